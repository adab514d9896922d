"""Observations are one value, in whatever order a source has them."""

import dataclasses

import numpy as np
import pytest
import xarray as xr

from cagp_dist.errors import DataError
from cagp_dist.fields.observed_objects import read
from cagp_dist.pipeline import Observations, Split
from cagp_dist.space import plane_of
from cagp_dist.variables import variable_named

LATITUDE, LONGITUDE = np.array([-90.0, -30.0, 30.0, 90.0]), np.arange(-180.0, 180.0, 60.0)


@pytest.fixture
def field():
    """Two times with a gap each, a point without any value, poles of equal copies."""
    field = np.random.default_rng(0).normal(size=(2, 4, 6))
    field[:, 0], field[:, 3] = 0.1, 0.7
    field[0, 1, 2] = field[1, 2, 4] = np.nan
    field[:, 1, 5] = np.nan
    return field


def test_a_grid_is_one_value_in_any_order(field):
    noise = np.arange(24.0).reshape(4, 6) + 1.0
    one = Observations.from_grid(LATITUDE, LONGITUDE, field, noise_variance=noise)
    rows, columns = slice(None, None, -1), np.roll(np.arange(6), 2)
    other = Observations.from_grid(
        LATITUDE[rows],
        LONGITUDE[columns] % 360.0,
        field[:, rows][:, :, columns],
        noise_variance=noise[rows][:, columns],
    )
    assert one.values.shape == (2, 13)
    for name in ("north", "values", "noise_variance", "X"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert (np.diff(one.north) >= 0.0).all()
    assert (one.merged_pole_copies, one.dropped_missing, one.count) == (10, 1, 24)
    np.testing.assert_array_equal(one.missing_places, [[-30.0, 120.0]])
    for observed in (one, other):
        points = observed.grid.grid.points[observed.grid.positions]
        np.testing.assert_allclose(points, observed.X, atol=1e-15)
        again = observed.grid.fields(observed.values).reshape(2, -1)[:, observed.grid.positions]
        np.testing.assert_array_equal(again, observed.values)


def test_a_pole_is_the_mean_of_its_copies_and_a_vector_has_none_there(field):
    """Equal copies give their value to the last bit; noise is that of the copies that were observed."""
    field[:, 3, 4:] = np.nan
    noise = np.arange(24.0).reshape(4, 6) + 1.0
    found = Observations.from_grid(LATITUDE, LONGITUDE, field, noise_variance=noise)
    np.testing.assert_array_equal(found.values[:, [0, -1]], [[0.1, 0.7]] * 2)
    np.testing.assert_array_equal(found.noise_variance[[0, -1]], [noise[0].mean(), noise[3, :4].mean()])
    wind = dataclasses.replace(variable_named("u10"), checked=False)
    components = Observations.from_grid(LATITUDE, LONGITUDE, field, variable=wind)
    assert np.abs(components.north).max() == 30.0
    assert len(components.missing_places) == 1


def test_krige_takes_a_transposed_object_as_the_same_observations(field):
    given = xr.DataArray(field, {"time": [0, 1], "latitude": LATITUDE, "longitude": LONGITUDE}, name="x")
    one, other = (read(given.transpose(*order)).points for order in (given.dims, given.dims[::-1]))
    for name in ("values", "X", "source_index"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    np.testing.assert_array_equal(one.values, Observations.from_grid(LATITUDE, LONGITUDE, field).values)


def test_each_place_with_a_value_is_held_out_once(field):
    observed = Observations.from_grid(LATITUDE[::-1], LONGITUDE, field[:, ::-1])
    split = Split.into_folds(observed, count=3, blocks=None, seed=0)
    np.testing.assert_array_equal(observed.source_index[split.held_out], np.sort(observed.source_index))
    parts = [split.without([fold]) for fold in range(3)]
    assert len(parts) == 3
    np.testing.assert_array_equal(np.sort(np.concatenate([part.held_out for part in parts])), observed.there)
    for part in parts:
        np.testing.assert_array_equal(np.sort([*part.observed, *part.held_out]), observed.there)
        only = observed.only(part.observed)
        np.testing.assert_array_equal(only.there, np.sort(part.observed))


def test_a_grid_has_the_units_of_its_source():
    """As stations at its points have: a mean in kelvin is converted for both."""
    grid = xr.DataArray(
        np.full((2, 3), 59.0),
        coords={"latitude": [40.0, 50.0], "longitude": [0.0, 10.0, 20.0]},
        dims=("latitude", "longitude"),
        name="t2m",
        attrs={"units": "degF"},
    )
    stations = grid.stack(station=("latitude", "longitude")).reset_index("station")
    assert read(grid).points.units == read(stations).points.units == "degF"


def test_variables_that_do_not_lie_together_are_refused_by_both_doors():
    north, east, dates = (
        np.array([50.0, 51.0]),
        np.array([8.0, 9.0]),
        np.array(["2020-06-01"], "datetime64[ns]"),
    )
    one = Observations.from_points(north, east, np.ones((1, 2)))
    x, y = np.array([400e3, 401e3]), np.array([5500e3, 5501e3])
    for other, key in (
        (Observations.from_points(y, x, np.ones((1, 2)), space=plane_of(25832, names=("x", "y"))), "parts"),
        (Observations.from_points(north, east, np.ones((1, 2)), times=dates), "times-of-variables"),
        (Observations.from_points(north, east, np.ones((2, 2))), "times-of-variables"),
    ):
        with pytest.raises(DataError) as refused:
            Observations.together([one, other], axis="variable")
        assert refused.value.key == key


def test_variables_together_lack_the_places_that_all_of_them_lack(field):
    dates = np.array(["2020-06-01", "2020-06-02"], "datetime64[ns]")
    whole, gaps = (
        Observations.from_grid(LATITUDE, LONGITUDE, values, times=dates)
        for values in (np.nan_to_num(field, nan=1.0), field)
    )
    assert Observations.together([gaps, whole], axis="variable").missing_places.size == 0
    both = Observations.together([gaps, gaps], axis="variable")
    np.testing.assert_array_equal(both.missing_places, gaps.missing_places)
    assert both.extent() == gaps.extent()
