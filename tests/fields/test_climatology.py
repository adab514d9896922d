"""Climatologies from Zarr stores: months, seams, poles, and what does not cover or is damaged."""

import numpy as np
import pytest
import xarray as xr

from cagp_dist.errors import BudgetError, ConfigurationError, DataError
from cagp_dist.fields import climatology as module
from cagp_dist.fields.climatology import open_climatology

TIMES = np.array(["2020-01-31T23:00", "1961-12-01", "2020-01-01"], dtype="datetime64[ns]")
JANUARY, DECEMBER = 0, 11


def smooth(latitude, longitude):
    """A field that bilinear interpolation on a fine grid gets nearly right."""
    phi, lam = np.deg2rad(latitude), np.deg2rad(longitude)
    return 285.0 - 30.0 * np.sin(phi) ** 2 + 5.0 * np.cos(phi) * np.sin(lam)


def field(latitude, longitude, *, leading=(), name="t2m"):
    """Values of `smooth` plus 0, 1, 2, ... along a leading axis."""
    values = smooth(latitude[:, None], longitude[None, :])
    dims = ("latitude", "longitude")
    if leading:
        axis, coordinate = leading
        values = values[None] + np.arange(len(coordinate))[:, None, None]
        dims = (axis, *dims)
    coords = {"latitude": latitude, "longitude": longitude} | (dict([leading]) if leading else {})
    return xr.Dataset({name: (dims, values.astype("f4"), {"units": "K"})}, coords=coords)


@pytest.fixture
def stored(tmp_path):
    def store(dataset):
        path = tmp_path / "climatology.zarr"
        dataset.to_zarr(path, mode="w", zarr_format=3, consolidated=False)
        return str(path)

    return store


GLOBE = np.arange(-90.0, 90.1, 2.0), np.arange(0.0, 360.0, 2.0)
CENTRES = np.arange(-89.0, 90.0, 2.0), np.arange(1.0, 360.0, 2.0)
DESCENDING = GLOBE[0][::-1], np.arange(-180.0, 180.0, 2.0)
ANYWHERE = np.random.default_rng(0).uniform([-90.0, -180.0], [90.0, 360.0], (500, 2)).T
PLACES = np.concatenate([ANYWHERE, [[90.0, -90.0, 12.5, 12.5], [77.0, 5.0, 359.9, -0.1]]], axis=1)


@pytest.mark.parametrize("axes", [GLOBE, CENTRES, DESCENDING])
def test_any_layout_of_the_globe_is_interpolated_with_seam_and_poles(stored, axes):
    found = open_climatology(stored(field(*axes)))
    values = found.at(*PLACES, TIMES)
    assert values.shape == (504, 3)
    np.testing.assert_array_equal(values[:, 0], values[:, 1])
    # bilinear: at most h^2 / 8 (|f_lat lat| + |f_lon lon|) of the truth, and half a row of slope at a pole
    error = np.abs(values[:, 0] - smooth(*PLACES))
    assert error[np.abs(PLACES[0]) < 88.0].max() < np.deg2rad(2.0) ** 2 / 8.0 * 70.0
    assert error.max() < 0.3
    assert values[502, 0] == pytest.approx(values[503, 0], abs=0.05)


def test_it_is_exact_at_the_points_of_its_grid(stored):
    found = open_climatology(stored(field(*GLOBE)))
    latitude, longitude = (axis.ravel() for axis in np.meshgrid(*GLOBE, indexing="ij"))
    np.testing.assert_allclose(
        found.at(latitude, longitude, TIMES)[:, 0], smooth(latitude, longitude), rtol=1e-6
    )


def test_a_pole_has_one_value(stored):
    raw = field(*GLOBE)
    raw["t2m"][0] += np.linspace(-1.0, 1.0, GLOBE[1].size)  # sector averages of the polar cap
    found = open_climatology(stored(raw))
    south = found.at(np.full(5, -90.0), np.linspace(0.0, 359.0, 5), TIMES)
    np.testing.assert_allclose(south, float(raw.t2m[0].mean()), rtol=1e-6)


MONTHS = [np.arange(1, 13), np.arange(12, 0, -1)]


@pytest.mark.parametrize("months", MONTHS)
def test_an_axis_of_months_gives_the_month_of_each_time(stored, months):
    found = open_climatology(stored(field(*GLOBE, leading=("month", months))))
    values = found.at(np.array([10.0]), np.array([20.0]), TIMES)[0] - smooth(10.0, 20.0)
    at = {int(month): place for place, month in enumerate(months)}
    np.testing.assert_allclose(values, [at[1], at[12], at[1]], atol=1e-2)


def test_twelve_times_of_different_months_are_months(stored):
    times = np.array([f"19{90 + month // 8}-{(month + 3) % 12 + 1:02d}-16" for month in range(12)])
    found = open_climatology(stored(field(*GLOBE, leading=("time", times.astype("datetime64[ns]")))))
    values = found.at(np.array([10.0]), np.array([20.0]), TIMES)[0] - smooth(10.0, 20.0)
    np.testing.assert_allclose(values, [9.0, 8.0, 9.0], atol=1e-2)  # the first time is April


def test_years_of_months_give_the_mean_of_each_month(stored):
    times = np.arange("1991-01", "1993-01", dtype="datetime64[M]").astype("datetime64[ns]")
    found = open_climatology(stored(field(*GLOBE, leading=("time", times))))
    values = found.at(np.array([10.0]), np.array([20.0]), TIMES)[0] - smooth(10.0, 20.0)
    # the fields rise by one kelvin from time to time: Januaries 0 and 12, Decembers 11 and 23
    np.testing.assert_allclose(values, [6.0, 17.0, 6.0], atol=1e-2)


@pytest.mark.parametrize("count", [1, 3, 12])
def test_other_times_are_averaged(stored, count):
    times = np.datetime64("2000-01-01", "ns") + np.arange(count) * np.timedelta64(6, "h")
    found = open_climatology(stored(field(*GLOBE, leading=("valid_time", times), name="2m_temperature")))
    values = found.at(np.array([10.0]), np.array([20.0]), TIMES)[0] - smooth(10.0, 20.0)
    np.testing.assert_allclose(values, (count - 1) / 2, atol=1e-2)


@pytest.mark.parametrize("west", [-30.0, 100.0])
def test_a_region_covers_itself_and_nothing_else(stored, west):
    latitude, longitude = np.arange(40.0, 61.0), (west + np.arange(61.0)) % 360.0
    order = np.argsort(longitude)
    found = open_climatology(stored(field(latitude, longitude[order])))
    assert found.grid.west_degrees == west % 360.0
    inside = np.array([40.0, 60.0, 50.5]), np.array([west, west + 60.0, west + 29.5])
    np.testing.assert_allclose(found.at(*inside, TIMES)[:, 0], smooth(*inside), atol=0.01)
    for latitude_degrees, longitude_degrees in (
        (39.9, west),
        (60.1, west),
        (50.0, west - 0.1),
        (50.0, west + 60.1),
    ):
        with pytest.raises(ConfigurationError) as refusal:
            found.at(np.array([latitude_degrees]), np.array([longitude_degrees]), TIMES)
        assert refusal.value.key == "outside-climatology"


def test_it_is_told_apart_by_its_numbers(stored):
    first = open_climatology(stored(field(*GLOBE))).content_sha256
    assert open_climatology(stored(field(*GLOBE, name="2t"))).content_sha256 == first
    warmer = field(*GLOBE)
    warmer["t2m"][3, 4] += 0.1
    assert open_climatology(stored(warmer)).content_sha256 != first


def holed():
    raw = field(*GLOBE)
    raw["t2m"][3, 4] = np.nan
    return raw


@pytest.mark.parametrize(
    ("raw", "key"),
    [
        (holed(), "gaps"),
        (field(*GLOBE) - 273.15, "range"),
        (field(*GLOBE, name="tp"), "absent-variable"),
        (field(np.array([0.0]), GLOBE[1]), "shapes"),
        (field(*GLOBE, leading=("month", np.arange(12))), "months"),
    ],
)
def test_what_is_no_climatology_is_refused(stored, raw, key):
    with pytest.raises(DataError, match=r"climatology\.zarr: ") as refused:
        open_climatology(stored(raw))
    assert refused.value.key == key


def test_a_store_that_is_not_there(tmp_path):
    with pytest.raises(DataError) as refused:
        open_climatology(f"{tmp_path}/none.zarr")
    assert refused.value.key == "no-store"


def test_what_does_not_fit_into_memory_is_not_read(stored, monkeypatch):
    path = stored(field(*GLOBE))
    monkeypatch.setattr(module, "available_bytes", lambda: 1000)
    with pytest.raises(BudgetError) as refusal:
        open_climatology(path)
    assert refusal.value.key == "memory"


def test_a_belt_around_the_globe_has_no_poles(stored):
    found = open_climatology(stored(field(np.arange(-30.0, 31.0, 2.0), GLOBE[1])))
    inside = np.array([-30.0, 30.0]), np.array([359.5, -179.5])
    np.testing.assert_allclose(found.at(*inside, TIMES)[:, 0], smooth(*inside), atol=0.01)
    with pytest.raises(ConfigurationError) as refusal:
        found.at(np.array([31.0]), np.array([0.0]), TIMES)
    assert refusal.value.key == "outside-climatology"
