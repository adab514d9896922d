"""Points on the sphere, area weights and the space-filling order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist, pdist

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import (
    EARTH_RADIUS_KILOMETRES,
    LEAF,
    cells_in_order,
    chord_of_kilometres,
    coarse_first,
    degrees,
    kilometres_of_chord,
    widest_gap,
)

from .joined import one_after_another

latitudes = st.floats(-90.0, 90.0)
longitudes = st.floats(-180.0, 360.0)


def chord(lat, lon, other_lat, other_lon):
    """Haversine form of the chord (math 8)."""
    phi, other_phi = np.deg2rad(lat), np.deg2rad(other_lat)
    lam = np.deg2rad(np.subtract(lon, other_lon))
    return 2.0 * np.sqrt(
        np.sin((phi - other_phi) / 2.0) ** 2 + np.cos(phi) * np.cos(other_phi) * np.sin(lam / 2.0) ** 2
    )


@given(latitudes, longitudes, latitudes, longitudes)
def test_distance_is_the_chord(lat, lon, other_lat, other_lon):
    X = cagp.unit_sphere([lat, other_lat], [lon, other_lon])
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), 1.0, rtol=4e-16)
    assert pdist(X)[0] == pytest.approx(chord(lat, lon, other_lat, other_lon), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(("angle", "chord"), [(0.0, 0.0), (60.0, 1.0), (90.0, 2**0.5), (180.0, 2.0)])
def test_a_chord_is_so_many_kilometres_on_the_ground(angle, chord):
    kilometres = np.deg2rad(angle) * EARTH_RADIUS_KILOMETRES
    assert chord_of_kilometres(kilometres) == pytest.approx(chord)
    assert kilometres_of_chord(chord) == pytest.approx(kilometres)


def test_no_two_points_are_further_apart_than_the_diameter():
    assert np.isnan(kilometres_of_chord(2.1))
    with pytest.raises(ArgumentError) as refusal:
        chord_of_kilometres(20_100.0)
    assert refusal.value.key == "distance-range"


def test_poles_and_axes():
    X = cagp.unit_sphere([0.0, 0.0, 90.0, -90.0, 0.0], [0.0, 90.0, 123.0, -50.0, -90.0])
    expected = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, -1], [0, -1, 0]]
    np.testing.assert_allclose(X, expected, atol=1e-15)


def test_longitudes_of_both_conventions_are_the_same_points():
    lat, lon = np.linspace(-88.0, 88.0, 97), np.linspace(0.0, 359.0, 97)
    west = np.where(lon >= 180.0, lon - 360.0, lon)
    np.testing.assert_allclose(cagp.unit_sphere(lat, lon), cagp.unit_sphere(lat, west), atol=1e-15)


def test_pairs_across_the_antimeridian_are_neighbours():
    across = pdist(cagp.unit_sphere([10.0, 10.0], [179.875, -179.875]))
    inland = pdist(cagp.unit_sphere([10.0, 10.0], [-0.125, 0.125]))
    np.testing.assert_allclose(across, inland, rtol=1e-12)
    kernel = cagp.Matern32(lengthscale=0.05)
    X = cagp.unit_sphere([10.0, 10.0, 10.0], [179.875, -179.875, 180.0])
    assert kernel(X, X).min() > 0.98


@pytest.mark.parametrize(
    ("longitudes", "gap"),
    [
        ([350.0, 355.0, 0.0, 40.0], (350.0, 310.0)),
        ([30.0, 10.0, 20.0], (10.0, 340.0)),
        ([-170.0, 170.0, 180.0], (170.0, 340.0)),
        ([-5.0], (355.0, 360.0)),
    ],
)
def test_the_widest_gap_ends_where_a_region_begins(longitudes, gap):
    assert widest_gap(longitudes) == gap


def test_no_points():
    assert cagp.unit_sphere([], []).shape == (0, 3)
    assert cagp.area_weights([]).shape == (0,)
    assert cagp.space_filling_order(np.zeros((0, 3)), block_size=4).shape == (0,)


@one_after_another
@pytest.mark.parametrize(
    ("latitude", "longitude", "key"),
    [
        ([0.0, 1.0], [0.0], "shapes"),
        ([[0.0]], [[0.0]], "shapes"),
        (5.0, 5.0, "shapes"),
        ([np.nan], [0.0], "not-finite"),
        ([0.0], [np.inf], "not-finite"),
        (
            [0.0, 270.0],
            [0.0, 10.0],
            "latitude-range",
        ),
        ([-90.5], [0.0], "latitude-range"),
    ],
)
def test_wrong_coordinates_are_refused(latitude, longitude, key):
    with pytest.raises(ArgumentError) as refusal:
        cagp.unit_sphere(latitude, longitude)
    assert refusal.value.key == key


def test_area_weights_are_cosines_with_mean_one():
    lat = np.linspace(-90.0, 90.0, 19)
    weights = cagp.area_weights(lat)
    assert weights.mean() == pytest.approx(1.0, rel=1e-15)
    np.testing.assert_allclose(weights / weights[9], np.cos(np.deg2rad(lat)), atol=1e-15)
    assert (weights >= 0.0).all()
    # a global mean of sin^2(lat) over the sphere is 1/3
    fine = np.linspace(-89.95, 89.95, 1800)
    mean = (cagp.area_weights(fine) * np.sin(np.deg2rad(fine)) ** 2).mean()
    assert mean == pytest.approx(1.0 / 3.0, rel=1e-5)


def test_area_weights_of_poles_alone_are_equal():
    assert cagp.area_weights([90.0, 90.0]).tolist() == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("latitude", [95.0, -91.0, np.nan, np.inf])
def test_area_weights_refuse_what_is_no_latitude(latitude):
    with pytest.raises(ArgumentError, match="latitude"):
        cagp.area_weights([0.0, latitude])


@given(n=st.integers(0, 400), p=st.integers(1, 4), block_size=st.integers(1, 450))
def test_order_is_a_permutation_that_depends_on_the_points_alone(n, p, block_size):
    X = np.random.default_rng([n, p]).normal(size=(n, p))
    order = cagp.space_filling_order(X, block_size=block_size)
    assert sorted(order) == list(range(n))
    np.testing.assert_array_equal(order, cagp.space_filling_order(X.copy(), block_size=block_size))


@pytest.mark.parametrize("n", [0, 1, 2, 7, 64, 777])
def test_the_first_places_of_a_coarse_order_are_spread_evenly(n):
    """Between the first 2^k of them no more than a 2^k-th of the next power of two is left out."""
    order = coarse_first(n)
    assert sorted(order) == list(range(n))
    whole = 2 ** max(n - 1, 0).bit_length()
    for part in (1, 2, 4, 8, 16):
        if part <= n:
            assert np.diff(np.sort(order[:part]), append=n).max() <= whole / part


def _halved(X, order, size):
    """The definition: halves along the widest axis, sorted stably, at multiples of a size."""
    parts = -(-len(order) // size)
    if parts < 2:
        return order
    along = X[order][:, np.ptp(X[order], axis=0).argmax()]
    order, middle = order[np.argsort(along, kind="stable")], parts // 2 * size
    return np.concatenate([_halved(X, half, size) for half in (order[:middle], order[middle:])])


@pytest.mark.parametrize("decimals", [15, 1], ids=["no ties", "ties"])
def test_points_that_tie_keep_the_order_of_stable_sorts(decimals):
    X = np.random.default_rng(5).normal(size=(1003, 3)).round(decimals)
    found = cells_in_order(X, 20, leaf=20)
    np.testing.assert_array_equal(found, _halved(X, np.arange(1003), 20))
    only = np.array([0, 7, 8, 50])
    some = cells_in_order(X, 20, leaf=20, only=only)
    for cell in only:
        np.testing.assert_array_equal(some[20 * cell :][:20], found[20 * cell :][:20])


@pytest.mark.parametrize(("n", "block_size"), [(1000, 100), (1000, 64), (777, 200), (500, 500), (120, 1)])
def test_blocks_are_cells_of_a_tree(n, block_size):
    """Any two blocks are separated by a plane across an axis: they touch at most."""
    X = np.random.default_rng(0).uniform(size=(n, 2))
    X = X[cagp.space_filling_order(X, block_size=block_size)]
    blocks = [X[start : start + block_size] for start in range(0, n, block_size)]
    for index, block in enumerate(blocks):
        for other in blocks[:index]:
            apart = np.maximum(other.min(axis=0) - block.max(axis=0), block.min(axis=0) - other.max(axis=0))
            assert apart.max() >= 0.0


def test_blocks_are_compact():
    lat = np.degrees(np.arcsin(np.random.default_rng(1).uniform(-1.0, 1.0, 4096)))
    X = cagp.unit_sphere(lat, np.random.default_rng(2).uniform(0.0, 360.0, 4096))
    ordered = X[cagp.space_filling_order(X, block_size=256)]

    def width(points, size):
        return np.mean([pdist(points[start : start + size]).max() for start in range(0, 4096, size)])

    # a block is a sixteenth of the sphere, a leaf a sixty-fourth: the diagonals of squares of that area
    assert width(ordered, 256) < 1.15 * np.sqrt(2.0 * 4.0 * np.pi / 16.0)
    assert width(ordered, LEAF) < 1.15 * np.sqrt(2.0 * 4.0 * np.pi / 64.0)
    assert width(X, LEAF) > 1.9  # without the order any group spans the sphere


def test_points_that_coincide_are_ordered_too():
    X = np.repeat([[1.0, 2.0]], 300, axis=0)
    assert sorted(cagp.space_filling_order(X, block_size=7)) == list(range(300))
    assert cdist(X, X).max() == 0.0


@one_after_another
@pytest.mark.parametrize(
    ("X", "block_size", "key"),
    [
        (np.zeros(5), 2, "shapes"),
        (np.zeros((5, 2)), 0, "no-count"),
        (np.zeros((5, 2)), -3, "no-count"),
    ],
)
def test_wrong_arguments_of_the_order_are_refused(X, block_size, key):
    with pytest.raises(ArgumentError) as refusal:
        cagp.space_filling_order(X, block_size=block_size)
    assert refusal.value.key == key


def test_poles_are_told_from_rings_near_them():
    from cagp_dist.geometry import is_pole

    np.testing.assert_array_equal(
        is_pole([90.0, -90.0, 90.0 - 5e-7, 89.99999, 0.0]), [True, True, True, False, False]
    )


def test_degrees_invert_the_unit_sphere():
    latitude = np.array([-90.0, -12.0, 0.0, 45.0, 90.0, 10.0, 10.0, 10.0])
    longitude = np.array([0.0, 359.75, 0.0, 180.0, 0.0, 1e-9, 360.0 - 1e-9, 360.0 - 1e-6])
    found = degrees(cagp.unit_sphere(latitude, longitude))
    np.testing.assert_allclose(found[0], latitude, rtol=0.0, atol=1e-12)
    assert ((found[1] >= 0.0) & (found[1] < 360.0)).all()
    np.testing.assert_allclose(found[1][1:4], longitude[1:4], rtol=0.0, atol=1e-12)
    assert found[1][6] == 0.0  # not a full turn
    # 11 cm west of the first meridian is not on it
    np.testing.assert_allclose(found[1][[5, 7]], longitude[[5, 7]], rtol=0.0, atol=1e-12)
