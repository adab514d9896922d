"""Latitude-longitude grids: their points, their symmetry, shapes of fields, and what is refused."""

import dataclasses
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.latlon.grid import MIRRORED_DEGREES, NEAREST_DEGREES, as_fields

from ..grids import LAYOUTS, gaussian_latitudes
from ..joined import one_after_another
from ..oracle import ring_points

GRID = cagp.LatLonGrid([-50.0, 0.0, 10.0], 4)


@one_after_another
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_points_are_latitude_by_latitude_on_the_unit_sphere(layout):
    grid = cagp.LatLonGrid(layout.latitude, layout.n_longitudes)
    assert grid.shape == (len(layout.latitude), layout.n_longitudes)
    assert grid.points.shape == (grid.size, 3)
    # 360 s / Q degrees and 2 pi s / Q are both rounded, by at most 2^-52 of an angle up to 2 pi
    expected = ring_points(layout.latitude, layout.n_longitudes)
    np.testing.assert_allclose(grid.points, expected, rtol=0.0, atol=4.0 * np.pi * 2.0**-52)
    by_field = grid.points.reshape(*grid.shape, 3)
    np.testing.assert_allclose(by_field[:, 0, 1], 0.0, atol=1e-15)  # every ring begins at longitude zero
    np.testing.assert_allclose(np.rad2deg(np.arcsin(by_field[:, -1, 2])), layout.latitude, atol=1e-6)


def test_longitudes_are_equispaced_from_zero_and_do_not_come_back_to_it():
    assert GRID.longitude_degrees.tolist() == [0.0, 90.0, 180.0, 270.0]
    longitude = cagp.LatLonGrid([0.0], 1440).longitude_degrees
    assert longitude[1] == 0.25
    assert longitude[-1] == 359.75
    assert cagp.LatLonGrid([12.0], 1).longitude_degrees.tolist() == [0.0]


@pytest.mark.parametrize("first", [-180.0, 0.0, 45, 0.125, np.float32(-179.5), 720.0])
def test_the_first_longitude_turns_the_grid(first):
    grid, turn = (
        cagp.LatLonGrid([-50.0, 0.0, 90.0], 8, first_longitude_degrees=first),
        np.deg2rad(float(first)),
    )
    assert grid.first_longitude_degrees == first
    assert type(grid.first_longitude_degrees) is float
    np.testing.assert_array_equal(grid.longitude_degrees, first + 45.0 * np.arange(8))
    rotation = [[np.cos(turn), np.sin(turn), 0.0], [-np.sin(turn), np.cos(turn), 0.0], [0.0, 0.0, 1.0]]
    expected = ring_points([-50.0, 0.0, 90.0], 8) @ rotation
    np.testing.assert_allclose(grid.points, expected, rtol=0.0, atol=1e-14)


AXES = {
    "Greenwich to Greenwich": np.arange(0.0, 360.0, 0.25),
    "date line to date line": np.arange(-180.0, 180.0, 0.25),
    "cell centres": np.arange(-179.875, 180.0, 0.25),
    "in single precision": np.arange(1440, dtype=np.float32) * np.float32(0.25) - np.float32(180.0),
    "thirds of a degree in single precision": (np.arange(1080) / 3.0 + 100.0).astype(np.float32),
    "with a step where 360 becomes 0": np.mod(np.arange(180.0, 540.0, 0.25), 360.0),
    "one": [12.5],
    "integers": [0, 120, 240],
}


@pytest.mark.parametrize("axis", AXES.values(), ids=AXES)
def test_a_grid_is_recognised_by_its_axes(axis):
    grid = cagp.LatLonGrid.from_axes([10.0, 0.0], axis)
    assert grid.shape == (2, len(axis))
    assert grid.latitude_degrees.tolist() == [10.0, 0.0]
    away = np.mod(grid.longitude_degrees - np.asarray(axis, dtype=float) + 180.0, 360.0) - 180.0
    assert np.abs(away).max() < 3e-5


@one_after_another
@pytest.mark.parametrize(
    ("axis", "key"),
    [
        (
            np.arange(0.0, 360.1, 1.0),
            "cyclic-column",
        ),
        (
            np.arange(0.0, 90.0, 10.0),
            "uneven-longitudes",
        ),
        (
            [0.0, 90.0, 180.0, 271.0],
            "uneven-longitudes",
        ),
        (
            [270.0, 180.0, 90.0, 0.0],
            "axis-order",
        ),
        ([0.0, np.nan], "shapes"),
        ([[0.0, 180.0]], "shapes"),
        ([], "shapes"),
        (0.0, "shapes"),
        (["east"], "no-numbers"),
    ],
)
def test_axes_that_make_no_full_circle_are_refused(axis, key):
    with pytest.raises(ArgumentError) as refusal:
        cagp.LatLonGrid.from_axes([0.0, 10.0], axis)
    assert refusal.value.key == key


@pytest.mark.parametrize("first", [np.nan, np.inf, None, "east", [0.0], 1j])
def test_first_longitudes_that_are_no_number_are_refused(first):
    with pytest.raises(ArgumentError, match=r"first_longitude_degrees is "):
        cagp.LatLonGrid([0.0], 4, first_longitude_degrees=first)


def test_weights_are_areas_of_cells_with_mean_one():
    weights = GRID.area_weights
    assert weights.shape == (3, 4)
    assert weights.mean() == pytest.approx(1.0, rel=1e-15)
    ratios = weights[:, 0] / weights[1, 0]
    np.testing.assert_allclose(ratios, np.cos(np.deg2rad([-50.0, 0.0, 10.0])), rtol=1e-15)
    np.testing.assert_array_equal(weights, weights[:, :1].repeat(4, axis=1))


@one_after_another
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_grid_knows_whether_it_is_its_own_mirror_image(layout):
    even_noise = np.array_equal(layout.noise, layout.noise[::-1])
    grid = cagp.LatLonGrid(layout.latitude, layout.n_longitudes)
    assert (grid.mirrored and even_noise) == layout.mirrored


@pytest.mark.parametrize("P", [1, 2, 73, 120, 181])
def test_regular_and_gaussian_latitudes_are_mirrored(P):
    """Latitudes as files have them: rounded, from sums of steps, in single precision, Gaussian."""
    step = 180.0 / (P - 1) if P > 1 else 0.0
    for latitude in (
        np.linspace(-90.0, 90.0, P) if P > 1 else np.zeros(1),
        90.0 - step * np.arange(P) if P > 1 else np.zeros(1),
        gaussian_latitudes(P),
        gaussian_latitudes(P).astype(np.float32),
    ):
        assert cagp.LatLonGrid(latitude, 8).mirrored
    assert not cagp.LatLonGrid(np.linspace(-90.0, 89.0, P), 8).mirrored


def test_mirror_images_may_be_off_by_rounding_and_no_more():
    assert cagp.LatLonGrid([-10.0, 10.0 + 0.5 * MIRRORED_DEGREES], 4).mirrored
    assert not cagp.LatLonGrid([-10.0, 10.0 + 2.0 * MIRRORED_DEGREES], 4).mirrored
    assert not cagp.LatLonGrid([-10.0, 0.1, 10.0], 4).mirrored


@pytest.mark.parametrize(
    "latitude",
    [
        [10.0, 20.0],
        (10, 20),
        np.array([10, 20]),
        np.array([10.0, 20.0], dtype=np.float32),
        np.ma.masked_array([10.0, 20.0], mask=[False, False]),
    ],
    ids=["list", "tuple", "integers", "single precision", "nothing masked"],
)
def test_latitudes_come_in_any_numeric_form(latitude):
    grid = cagp.LatLonGrid(latitude, np.int64(3))
    assert grid.latitude_degrees.dtype == np.float64
    assert grid.latitude_degrees.tolist() == [10.0, 20.0]
    assert type(grid.n_longitudes) is int


def test_a_grid_does_not_change():
    latitude = np.array([10.0, 20.0])
    grid = cagp.LatLonGrid(latitude, 3)
    latitude[0] = -80.0
    assert grid.latitude_degrees.tolist() == [10.0, 20.0]
    with pytest.raises(ValueError, match="read-only"):
        grid.latitude_degrees[0] = -80.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        grid.n_longitudes = 4


@one_after_another
@pytest.mark.parametrize(
    ("latitude", "key"),
    [
        ([10.0, 20.0, 20.0, 30.0], "latitude-twice"),
        ([10.0, 10.0 + 0.5 * NEAREST_DEGREES], "latitude-twice"),
        ([10.0, 30.0, 20.0], "axis-order"),
        ([10.0, 20.0, 10.0], "axis-order"),
        ([0.0, 90.5], "latitude-range"),
        ([-91.0, 0.0], "latitude-range"),
        ([0.0, np.nan], "not-finite"),
        ([-np.inf, 0.0], "not-finite"),
        ([[0.0, 10.0], [0.0, 10.0]], "shapes"),
        (10.0, "shapes"),
        ([], "shapes"),
        (["north"], "no-numbers"),
        ([1j], "no-numbers"),
        (np.ma.masked_array([0.0, 1.0], mask=[False, True]), "masked-entries"),
    ],
)
def test_latitudes_that_make_no_grid_are_refused(latitude, key):
    with pytest.raises(ArgumentError) as refusal:
        cagp.LatLonGrid(latitude, 8)
    assert refusal.value.key == key


@one_after_another
@pytest.mark.parametrize("count", [0, -8, 8.0, "8", None, True])
def test_numbers_of_longitudes_that_make_no_grid_are_refused(count):
    with pytest.raises(ArgumentError) as refusal:
        cagp.LatLonGrid([0.0, 10.0], count)
    assert refusal.value.key == "no-count"


@pytest.mark.parametrize("shape", [(3, 4), (1, 3, 4), (5, 3, 4), (0, 3, 4), (12,), (12, 1), (12, 5), (12, 0)])
def test_fields_and_columns_are_the_same_numbers_and_come_back_in_their_shape(shape):
    given = np.arange(float(np.prod(shape))).reshape(shape)
    fields, shaped = as_fields("field", given, GRID)
    assert fields.shape[1:] == (3, 4)
    expected = given.T.reshape(-1, 3, 4) if len(shape) == 2 and shape[0] == 12 else given.reshape(-1, 3, 4)
    np.testing.assert_array_equal(fields, expected)
    back = shaped(2.0 * fields)
    assert back.shape == shape
    np.testing.assert_array_equal(back, 2.0 * given)


@given(P=st.integers(1, 5), Q=st.integers(1, 5), r=st.integers(0, 4))
def test_no_shape_means_two_things(P, Q, r):
    """Columns (n, r) that look like a field (P, Q) are that field: one longitude, or one point."""
    grid = cagp.LatLonGrid(np.linspace(-60.0, 60.0, P) if P > 1 else [0.0], Q)
    columns = np.random.default_rng(0).normal(size=(P * Q, r))
    fields, shaped = as_fields("field", columns, grid)
    np.testing.assert_array_equal(fields.reshape(-1, P * Q), columns.T)
    np.testing.assert_array_equal(shaped(fields), columns)


@pytest.mark.parametrize("shape", [(), (4, 3), (3,), (4,), (13,), (13, 2), (2, 12), (2, 4, 3), (2, 1, 3, 4)])
def test_fields_of_other_shapes_are_refused(shape):
    text = (
        f"field has shape {shape}; expected (3, 4) (latitude, longitude), a stack of such fields (T, 3, 4), "
        "or columns (12,) or (12, r)."
    )
    with pytest.raises(ArgumentError, match=re.escape(text)):
        as_fields("field", np.zeros(shape), GRID)


@one_after_another
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (12,), (12, 2)])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_missing_values_are_refused_and_masked_rings_are_named(shape, value):
    field = np.zeros(shape)
    field.flat[[1, 5]] = value
    with pytest.raises(ArgumentError) as refusal:
        as_fields("field", field, GRID)
    assert refusal.value.key == "not-finite"


@one_after_another
@pytest.mark.parametrize(
    ("field", "key"),
    [
        (np.full((3, 4), 1j), "no-numbers"),
        ([["a"] * 4] * 3, "no-numbers"),
        (np.ma.masked_array(np.zeros((3, 4)), mask=np.eye(3, 4) > 0), "masked-entries"),
    ],
)
def test_fields_that_are_no_numbers_are_refused(field, key):
    with pytest.raises(ArgumentError) as refusal:
        as_fields("field", field, GRID)
    assert refusal.value.key == key


def test_places_of_points_are_found_up_to_rounding():
    """In either order of latitudes, whatever the first longitude; a pole is in its first column."""
    for latitude in ([-90.0, -31.0, 4.0, 90.0], [60.0, 4.0, -31.0], [12.0]):
        grid = cagp.LatLonGrid(latitude, 7, first_longitude_degrees=-171.0)
        index = grid.places(grid.points)
        columns = np.where(np.abs(np.repeat(latitude, 7)) == 90.0, 0, np.tile(np.arange(7), len(latitude)))
        np.testing.assert_array_equal(index, np.repeat(np.arange(len(latitude)) * 7, 7) + columns)
    grid = cagp.LatLonGrid([-90.0, -31.0, 4.0], 8)
    elsewhere = cagp.unit_sphere([-31.0, -31.0 + 1e-6, 89.0, -90.0], [45.000001, 45.0, 45.0, 17.0])
    assert grid.places(elsewhere).tolist() == [-1, -1, -1, 0]
