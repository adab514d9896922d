"""Distinct views of a grid: points that see it alike up to a rotation are one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cagp_dist as cagp
from cagp_dist.latlon.grid_layout import Views

from ..joined import one_after_another


@one_after_another
@pytest.mark.parametrize("Q", [7, 12, 360, 1200, 1440])
@pytest.mark.parametrize("turn", [-360.0, 0.0, 360.0])
def test_points_of_the_grid_see_it_in_one_way_for_each_latitude(Q, turn):
    """Also where 360 / Q is no binary fraction, and a longitude falls just short of its column."""
    columns = np.arange(Q)
    for longitude in (columns * (360.0 / Q), 360.0 * columns / Q, columns / (Q / 360.0)):
        points = cagp.unit_sphere(np.full(Q, 12.5), longitude + turn)
        views = Views.of(points, cagp.LatLonGrid([0.0], Q))
        assert len(views.latitude_degrees) == 1
        assert views.longitude_degrees[0] < 1e-8
        np.testing.assert_array_equal(views.steps % Q, columns)


@given(
    latitude=st.lists(st.sampled_from([-90.0, -3.25, 0.0, 41.0]), min_size=1, max_size=12),
    shift=st.sampled_from([0.0, 1e-13, 0.7, 29.999999]),
    turns=st.integers(-3, 3),
)
def test_views_and_steps_lead_back_to_the_points(latitude, shift, turns):
    grid = cagp.LatLonGrid([0.0], 12)
    longitude = shift + 30.0 * np.arange(len(latitude)) + 360.0 * turns
    views = Views.of(cagp.unit_sphere(latitude, longitude), grid)
    assert len(views.latitude_degrees) == len(set(latitude))
    assert ((views.longitude_degrees >= 0.0) & (views.longitude_degrees < 30.0)).all()
    # latitudes come back from coordinates, rounded
    np.testing.assert_allclose(views.latitude_degrees[views.view], latitude, rtol=0.0, atol=1e-12)
    away = views.longitude_degrees[views.view] + 30.0 * views.steps - longitude
    np.testing.assert_allclose(np.mod(away + 180.0, 360.0) - 180.0, 0.0, atol=1e-8)


def test_no_points_have_no_views():
    views = Views.of(cagp.unit_sphere([], []), cagp.LatLonGrid([0.0], 12))
    assert len(views.latitude_degrees) == len(views.view) == 0


@pytest.mark.parametrize("first", [-180.0, 0.0, 7.5])
def test_the_point_of_a_view_turned_by_its_steps_is_the_point(first):
    grid = cagp.LatLonGrid([-20.0, 0.0, 35.0], 9, first_longitude_degrees=first)
    rng = np.random.default_rng(0)
    points = cagp.unit_sphere(rng.uniform(-90.0, 90.0, 40), rng.uniform(-360.0, 720.0, 40))
    views = Views.of(points, grid)
    turn = np.deg2rad(40.0 * views.steps)
    x, y, z = views.points[views.view].T
    back = np.stack([x * np.cos(turn) - y * np.sin(turn), x * np.sin(turn) + y * np.cos(turn), z], axis=1)
    np.testing.assert_allclose(back, points, rtol=0.0, atol=1e-10)
