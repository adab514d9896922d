"""Fields without axes: stations, curvilinear and reduced grids are read as places."""

import eccodes
import numpy as np
import pytest
import xarray as xr

from cagp_dist.errors import ConfigurationError, DataError
from cagp_dist.fields.canonical import canonical, observation_points
from cagp_dist.fields.files.local_files import open_file
from cagp_dist.fields.observed_objects import read
from cagp_dist.fields.selection import Selection
from cagp_dist.service.ingest import ingest
from cagp_dist.service.jobfile.config import parse_job

from .fields import netcdf4

TIMES = np.array(["2020-07-01T00", "2020-07-01T12"], dtype="datetime64[ns]")


def stations(dims=("time", "station")):
    """Three stations, the last of which never measured anything."""
    values = np.array([[280.0, 281.0, np.nan], [282.0, np.nan, np.nan]])
    return xr.Dataset(
        {"tas": (dims, values if dims[0] == "time" else values.T, {"units": "K"})},
        coords={
            "time": TIMES,
            "lat": ("station", [50.0, 47.0, 45.0], {"standard_name": "latitude"}),
            "lon": ("station", [10.0, -3.0, 5.0], {"standard_name": "longitude"}),
            "alt": ("station", [500.0, 20.0, 70.0], {"units": "m", "positive": "up", "axis": "Z"}),
        },
        attrs={"featureType": "timeSeries"},
    )


def swath():
    """Two rows and three columns of places, a corner without coordinates or value."""
    latitude = np.array([[50.0, 50.5, 51.0], [49.0, 49.5, np.nan]])
    longitude = np.array([[10.0, 11.0, 12.0], [10.5, 11.5, np.nan]])
    values = 280.0 + latitude - longitude
    return xr.Dataset(
        {"t2m": (("time", "y", "x"), values[None].astype("f4"), {"units": "K"})},
        coords={"time": TIMES[:1], "lat": (("y", "x"), latitude), "lon": (("y", "x"), longitude)},
    )


@pytest.mark.parametrize("dims", [("time", "station"), ("station", "time")])
def test_a_file_of_stations_is_read_as_its_stations(tmp_path, dims):
    (tmp_path / "stations.nc").write_bytes(netcdf4(stations(dims)))
    points = observation_points(open_file(tmp_path / "stations.nc", Selection(value="tas"), scratch=tmp_path))
    np.testing.assert_array_equal(points.north, [50.0, 47.0])
    np.testing.assert_array_equal(points.east, [10.0, 357.0])
    np.testing.assert_array_equal(points.values, [[280.0, 281.0], [282.0, np.nan]])
    assert (points.gridded, points.dropped_missing) == (False, 1)
    later = canonical(
        stations(dims),
        selection=Selection(value="tas", times=["2020-07-01T12"], area=(55.0, 0.0, 48.0, 20.0)),
    )
    np.testing.assert_array_equal(later.tas, [[282.0]])
    with pytest.raises(ConfigurationError) as refusal:
        canonical(stations(dims), selection=Selection(value="tas", grid_degrees=1.0))
    assert refusal.value.key == "grid-degrees"


def test_places_of_a_curvilinear_grid_are_left_out_where_they_have_no_coordinates():
    field = swath()
    points = observation_points(canonical(field))
    assert points.values.shape == (1, 5)
    np.testing.assert_allclose(points.values[0], 280.0 + points.north - points.east, atol=1e-4)
    observed = read(field).points
    there = ~np.isnan(observed.values[0])
    assert (there.sum(), np.isfinite(observed.north).all()) == (5, True)
    np.testing.assert_allclose(observed.north[there], points.north)
    field["t2m"] = field.t2m.fillna(280.0)
    for reader in (canonical, read):
        with pytest.raises(DataError) as lost:
            reader(field)
        assert lost.value.key == "no-place"


def test_a_place_that_appears_twice_has_one_value():
    field = stations().isel(station=[0, 1, 0])
    assert canonical(field, selection=Selection(value="tas")).tas.shape == (2, 2)
    field["tas"][0, 2] += 1.0
    with pytest.raises(DataError) as refusal:
        canonical(field, selection=Selection(value="tas"))
    assert refusal.value.key == "place-twice"


@pytest.mark.parametrize("sample", ["reduced_gg_pl_32_grib2", "healpix"])
def test_grids_without_columns_are_read_as_places(tmp_path, sample):
    if sample == "healpix":
        handle = eccodes.codes_grib_new_from_samples("regular_ll_pl_grib2")
        for key, value in {"gridType": "healpix", "Nside": 4, "orderingConvention": "ring",
                           "longitudeOfFirstGridPointInDegrees": 45.0}.items():  # fmt: skip
            eccodes.codes_set(handle, key, value)
        eccodes.codes_set_values(handle, np.zeros(12 * 4**2))
    else:
        handle = eccodes.codes_grib_new_from_samples(sample)
    latitude, longitude = (eccodes.codes_get_array(handle, name) for name in ("latitudes", "longitudes"))
    eccodes.codes_set(handle, "paramId", 130)
    eccodes.codes_set(handle, "bitsPerValue", 24)
    eccodes.codes_set_values(handle, 250.0 + latitude / 10.0 + np.cos(np.deg2rad(longitude)))
    (tmp_path / "field.grib").write_bytes(eccodes.codes_get_message(handle))
    eccodes.codes_release(handle)
    points = observation_points(open_file(tmp_path / "field.grib", Selection(value="t"), scratch=tmp_path))
    assert points.values.shape == (1, latitude.size)
    expected = 250.0 + points.north / 10.0 + np.cos(np.deg2rad(points.east))
    np.testing.assert_allclose(points.values[0], expected, atol=1e-3)


def test_a_job_takes_places_without_a_store_of_fields(tmp_path):
    stations().to_zarr(tmp_path / "stations.zarr", zarr_format=3, consolidated=False)
    job = parse_job(
        f'[observations]\nsource = "zarr:{tmp_path / "stations.zarr"}"\nvariable = "tas"\n'
        '[design]\ntrain = { kind = "all" }\n[prior]\n[solver]\nname = "cholesky"\n'
        f'[output]\nroot = "{tmp_path / "out"}"\n'
    )
    assert observation_points(ingest(job, report=lambda _: None)).values.shape == (2, 2)
    assert not (tmp_path / "out" / "observations").exists()
