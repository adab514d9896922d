"""Regional grids as windows of full circles: any convention and meridian, float32, what is refused."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.latlon.window import OFF_DEGREES, place_longitudes

from ..joined import one_after_another
from ..pairwise import pairwise


@one_after_another
@pytest.mark.parametrize(
    ("circle", "start_degrees", "convention", "dtype"),
    pairwise(
        {
            "circle": [12, 480, 1440, 3600, 7200],
            "start_degrees": [0.0, 12.15, 179.0, 355.5],
            "convention": ["0..360", "-180..180"],
            "dtype": [np.float32, np.float64],
        }
    ),
)
def test_longitudes_of_a_region_are_found_on_their_circle(circle, start_degrees, convention, dtype):
    steps = np.arange(min(237, circle - 2))
    longitude = np.mod(start_degrees + steps * 360.0 / circle, 360.0)
    if convention == "-180..180":
        longitude = np.mod(longitude + 180.0, 360.0) - 180.0
    longitude = longitude.astype(dtype)
    window = cagp.LatLonWindow.from_axes([10.0, 20.0], longitude)
    assert window.grid.n_longitudes == circle
    assert window.grid.first_longitude_degrees == longitude[0]
    assert window.columns.tolist() == steps.tolist()
    away = window.grid.longitude_degrees[window.columns] - longitude
    assert np.abs(np.mod(away + 180.0, 360.0) - 180.0).max() <= OFF_DEGREES


def test_a_full_circle_and_a_field_that_runs_westward_are_windows_too():
    whole = cagp.LatLonWindow.from_axes([0.0], np.arange(-180.0, 180.0, 1.5))
    assert whole.shape == whole.grid.shape == (1, 240)
    westward = cagp.LatLonWindow.from_axes([5.0, 0.0, -5.0], [20.0, 10.0, 0.0, -10.0])
    assert westward.grid.n_longitudes == 36
    assert westward.columns.tolist() == [3, 2, 1, 0]
    assert westward.grid.latitude_degrees.tolist() == [5.0, 0.0, -5.0]


def test_columns_may_be_absent_and_points_may_repeat_their_longitude():
    n_longitudes, first, columns = place_longitudes([10.0, 11.5, 10.0, 14.5, 13.0, 11.5])
    assert (n_longitudes, first) == (240, 10.0)
    assert columns.tolist() == [0, 1, 0, 3, 2, 1]
    # steps of 2 and 3 degrees: the circle has one of 1 degree or finer
    n_longitudes, _, columns = place_longitudes([0.0, 2.0, 4.0, 7.0, 9.0])
    np.testing.assert_allclose(columns * 360.0 / n_longitudes, [0.0, 2.0, 4.0, 7.0, 9.0])


def test_a_region_is_cut_out_of_the_full_circle_at_its_places():
    latitude, longitude = np.array([44.0, 43.0, 41.0]), np.array([358.0, 359.0, 0.0, 1.0, 2.0])
    window = cagp.LatLonWindow.from_axes(latitude, longitude)
    points = window.grid.points.T.reshape(3, *window.grid.shape)
    expected = cagp.unit_sphere(np.repeat(latitude, 5), np.tile(longitude, 3))
    np.testing.assert_allclose(window.cut(points).reshape(3, -1).T, expected, atol=1e-15)


@one_after_another
@pytest.mark.parametrize(
    ("longitude", "key"),
    [
        (np.random.default_rng(0).uniform(0.0, 360.0, 50), "no-full-circle"),
        (np.arange(40) * 0.7001, "no-full-circle"),
        ([0.0, 120.0, 240.0, 360.0], "longitude-twice"),
        ([0.0, np.nan], "shapes"),
        ([[0.0, 1.0]], "shapes"),
    ],
)
def test_what_is_no_window_is_refused(longitude, key):
    with pytest.raises(ArgumentError) as refusal:
        cagp.LatLonWindow.from_axes([0.0], longitude)
    assert refusal.value.key == key


def test_fields_of_another_shape_are_refused():
    window = cagp.LatLonWindow.from_axes([0.0, 1.0], [0.0, 1.0, 2.0])
    with pytest.raises(ArgumentError) as refusal:
        window.cut(np.zeros((2, 3)))
    assert refusal.value.key == "shapes"
