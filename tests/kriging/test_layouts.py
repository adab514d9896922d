"""Axes, names, units and gaps that fields and tables have, and the grids that are made for them."""

from dataclasses import dataclass

import numpy as np
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.fields.observed_objects import read
from cagp_dist.remedies import Setting


@dataclass(frozen=True)
class Date:
    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: int
    microsecond: int
    calendar: str


@pytest.mark.parametrize("order", [("lon", "lat"), ("lat", "lon")])
@pytest.mark.parametrize("south_first", [True, False])
@pytest.mark.parametrize("eastern", [True, False])
def test_the_order_of_the_axes_and_their_convention_do_not_matter(gappy, prior, order, south_first, eastern):
    given = gappy if south_first else gappy.isel(lat=slice(None, None, -1))
    if not eastern:
        given = given.assign_coords(lon=((given.lon + 180.0) % 360.0 - 180.0)).sortby("lon")
    given = given.transpose(*order)
    result = cagp.krige(given, prior=prior)
    assert result.lon.variable.identical(given.lon.variable)
    assert result.lat.variable.identical(given.lat.variable)
    reference = cagp.krige(gappy, prior=prior)
    aligned = result.assign_coords(lon=result.lon % 360.0).sortby("lon").sortby("lat")
    np.testing.assert_allclose(aligned["mean"], reference["mean"], atol=1e-9)
    np.testing.assert_allclose(aligned["std"], reference["std"], atol=1e-9)


def test_names_units_and_attributes_are_those_of_the_observations(gappy, prior):
    result = cagp.krige(gappy, prior=prior)
    assert result["mean"].attrs["units"] == result["std"].attrs["units"] == "K"
    assert result["mean"].attrs["standard_name"] == "air_temperature"
    assert "near-surface temperature" in result["mean"].attrs["long_name"]
    said = result.attrs
    assert said["lengthscale_chord"] == 0.8
    assert said["lengthscale_km"] == pytest.approx(2 * 6371.0088 * np.arcsin(0.4))
    assert said["noise_std"] == pytest.approx(0.5)
    assert said["observations_used"] + said["observations_missing"] == gappy.size
    assert (said["fit_status"], said["earth_radius_km"]) == ("given", 6371.0088)
    assert {"solver", "status_advice", "history", "software", "planned_memory", "executor"} <= set(said)
    assert float(result.time.astype(int)) == float(gappy.time.astype(int))


def test_a_standard_name_that_is_not_known_is_none(gappy, prior):
    unknown = gappy.assign_attrs(standard_name="unknown")  # as cfgrib says
    assert "standard_name" not in cagp.krige(unknown, prior=prior)["mean"].attrs


def test_it_can_be_written_and_read_again(gappy, prior, tmp_path):
    result = cagp.krige(gappy, prior=prior)
    result.to_netcdf(tmp_path / "map.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "map.nc", engine="h5netcdf") as again:
        np.testing.assert_array_equal(again["mean"], result["mean"])


def test_places_of_a_table_keep_their_names(gappy, prior, tmp_path):
    places = {"city": ["Zürich", "Lima"], "lat": [47.4, -12.0], "lon": [8.5, -77.0]}
    result = cagp.krige(gappy, to=places, prior=prior)
    result.to_netcdf(tmp_path / "places.nc", engine="h5netcdf")
    result.to_zarr(tmp_path / "places.zarr", consolidated=False)
    with xr.open_dataset(tmp_path / "places.nc", engine="h5netcdf") as again:
        assert again.station_name.values.tolist() == ["Zürich", "Lima"]
    with xr.open_zarr(tmp_path / "places.zarr", consolidated=False) as again:
        lima = again.set_xindex("station_name").sel(station_name="Lima")
        assert float(lima["mean"]) == float(result["mean"][1])


@pytest.mark.parametrize(
    ("to", "latitudes", "longitudes"),
    [
        ({"resolution": 30.0}, [-75, -45, -15, 15, 45, 75], np.arange(-165.0, 180.0, 30.0)),
        ({"resolution": 10.0, "region": [20, -10, 0, 10]}, [5, 15], [-5, 5]),
        ({"region": [20, 170, 0, -170], "resolution": 10.0}, [5, 15], [175, 185]),
        (cagp.LatLonGrid([0.0, 30.0], 4), [0, 30], [0, 90, 180, 270]),
    ],
)
def test_grids_of_cells(stations, prior, to, latitudes, longitudes):
    result = cagp.krige(stations, to=to, prior=prior)
    assert result.latitude.values.tolist() == list(latitudes)
    assert result.longitude.values.tolist() == list(longitudes)
    assert result["mean"].shape == (len(latitudes), len(longitudes))


def test_a_region_alone_gets_a_round_resolution(stations, prior):
    result = cagp.krige(stations, to=[60.0, -10.0, 30.0, 30.0], prior=prior)
    step = np.diff(result.longitude)
    np.testing.assert_allclose(step, 0.5)
    assert float(result.latitude.min()) == 30.25


def test_stations_and_curvilinear_grids_of_xarray(truth, prior):
    latitude = xr.DataArray([1.0, 2.0, 3.0], dims="station", attrs={"standard_name": "latitude"})
    longitude = xr.DataArray([4.0, 5.0, 6.0], dims="station", attrs={"standard_name": "longitude"})
    given = xr.Dataset(
        {"ta": (("time", "station"), [[280.0, np.nan, 282.0]]), "time": [0]},
        coords={"y_of": latitude, "x_of": longitude, "code": ("station", ["a", "b", "c"])},
    )
    result = cagp.krige(given, prior=prior)
    assert result["mean"].dims == ("time", "station")
    assert result.code.values.tolist() == ["a", "b", "c"]
    rotated = xr.DataArray(
        [[280.0, 281.0]],
        dims=("rlat", "rlon"),
        coords={
            "rlat": ("rlat", [0.0], {"standard_name": "grid_latitude", "units": "degrees", "axis": "Y"}),
            "rlon": (
                "rlon",
                [0.0, 1.0],
                {"standard_name": "grid_longitude", "units": "degrees", "axis": "X"},
            ),
            "lat": (("rlat", "rlon"), [[50.0, 50.1]]),
            "lon": (("rlat", "rlon"), [[10.0, 11.0]]),
        },
    )
    result = cagp.krige(rotated, prior=prior)
    assert result["mean"].dims == ("rlat", "rlon")
    assert {"lat", "lon", "rlat", "rlon"} <= set(result.coords)


def test_a_layout_like_cmip(truth, prior):
    days = xr.Variable("time", [54059.5, 54060.5], {"units": "days since 1850-01-01", "calendar": "360_day"})
    given = truth.assign_coords(time=days, height=2.0).to_dataset()
    given["lat_bnds"] = (("lat", "bnds"), np.zeros((11, 2)))
    given["lat"].attrs |= {"bounds": "lat_bnds", "axis": "Y"}
    given["time_bnds"] = (("time", "bnds"), np.zeros((2, 2)))
    result = cagp.krige(given, prior=prior)
    assert result.time.variable.identical(days)
    assert result.height == 2.0
    np.testing.assert_array_equal(result["mean"], cagp.krige(truth, prior=prior)["mean"])


def test_dates_of_another_calendar_stay_as_they_are_and_are_understood(truth, prior):
    """Objects such as those of the package cftime."""
    parts = {"hour": 12, "minute": 0, "second": 0, "microsecond": 0, "calendar": "noleap"}
    dates = np.array([Date(2004, 2, 28, **parts), Date(2004, 3, 1, **parts)], dtype=object)
    given = truth.assign_coords(time=("time", dates))
    expected = np.array(["2004-02-28T12", "2004-03-01T12"], dtype="datetime64[us]")
    np.testing.assert_array_equal(read(given).points.times, expected)
    result = cagp.krige(given, prior=prior)
    assert result.time.values.tolist() == dates.tolist()
    np.testing.assert_array_equal(result["mean"], cagp.krige(truth, prior=prior)["mean"])


def test_a_layout_like_berkeley_earth(truth, prior):
    given = xr.Dataset(
        {
            "land_mask": (("latitude", "longitude"), np.ones((11, 18))),
            "temperature": (("time", "latitude", "longitude"), truth.values.astype(np.float32)),
            "climatology": (("month_number", "latitude", "longitude"), np.zeros((12, 11, 18))),
        },
        coords={
            "latitude": ("latitude", truth.lat.values, {"units": "degrees_north"}),
            "longitude": ("longitude", truth.lon.values - 170.0, {"units": "degrees_east"}),
            "time": ("time", [2020.04, 2020.12], {"units": "year A.D.", "standard_name": "time"}),
        },
    )
    with pytest.raises(DataError) as which:
        cagp.krige(given, prior=prior)
    assert which.value.key == "which-variable"
    assert (which.value.key, which.value.remedies) == ("which-variable", (Setting("value", "temperature"),))
    result = cagp.krige(given, value="temperature", prior=prior)
    assert result.time.values.tolist() == [2020.04, 2020.12]
    assert float(result.longitude[0]) == -170.0


def test_poles_are_one_place(prior):
    latitude = np.array([-90.0, -45.0, 0.0, 45.0, 90.0])
    values = np.random.default_rng(0).normal(280.0, 3.0, (5, 8))
    values[-1, 3:] = np.nan
    given = xr.DataArray(
        values, dims=("lat", "lon"), coords={"lat": latitude, "lon": np.arange(0.0, 360.0, 45.0)}
    )
    by_rings = cagp.krige(given, prior=prior, solver="rings")
    by_points = cagp.krige(given, prior=prior, solver="cholesky")
    np.testing.assert_allclose(by_rings["mean"], by_points["mean"], atol=1e-8)
    np.testing.assert_allclose(by_rings["std"], by_points["std"], atol=1e-8)
    np.testing.assert_allclose(by_rings["std"][0], by_rings["std"][0, 0], atol=1e-9)


def test_a_regional_grid_is_exact_by_either_way(truth, prior):
    region = truth[0].sel(lat=slice(-30, 45), lon=slice(40, 160)).copy()
    region[3, 2] = np.nan
    by_rings = cagp.krige(region, prior=prior, solver="rings")
    by_points = cagp.krige(region, prior=prior)
    np.testing.assert_allclose(by_rings["mean"], by_points["mean"], atol=1e-6)
    np.testing.assert_allclose(by_rings["std"], by_points["std"], atol=1e-6)
    assert by_points.attrs["solver"] == "Cholesky()"


def test_a_field_of_several_that_has_no_observation_is_named(gappy, prior):
    days = gappy.expand_dims(time=np.array(["2020-01-01", "2020-01-02"], "M8[ns]"))
    with pytest.raises(ArgumentError) as refusal:
        cagp.krige(days.where(days.time.dt.day == 1), prior=prior)
    assert refusal.value.key == "nothing-observed"


def test_a_number_may_mark_what_is_missing_in_a_field(gappy, prior):
    marked = gappy.fillna(1e20).astype("f4")
    result = cagp.krige(marked, prior=prior, missing=1e20, columns={"latitude": "lat", "time": "time"})
    expected = cagp.krige(gappy.astype("f4"), prior=prior)
    np.testing.assert_array_equal(result["mean"], expected["mean"])
    with pytest.raises(ArgumentError) as raised:
        cagp.krige(gappy, prior=prior, columns={"longitude": "x"})
    assert raised.value.key == "columns"
    with pytest.deprecated_call(match="latitude= and time= will go"):
        cagp.krige(marked, prior=prior, missing=1e20, latitude="lat", time="time")


def test_columns_say_which_coordinates_of_an_object_are_meant(gappy, prior):
    """Also where attributes and names say something else."""
    usual = cagp.krige(gappy, prior=prior)
    odd = gappy.rename(lat="row", lon="lat")
    odd["row"].attrs, odd["lat"].attrs = {}, {"standard_name": "latitude"}
    found = cagp.krige(odd, prior=prior, columns={"latitude": "row", "longitude": "lat"})
    np.testing.assert_array_equal(found["mean"], usual["mean"])
