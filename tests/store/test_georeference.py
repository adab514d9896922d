"""Where a map is, by the Zarr conventions proj: and spatial:."""

import numpy as np
import pytest
import xarray as xr

from cagp_dist.export import export_run
from cagp_dist.store.georeference import georeferenced
from cagp_dist.store.publish import output_lock, publish
from cagp_dist.store.schema import prediction_group

KEY = "0123456789abcdef"


def a_map(latitude, longitude):
    return prediction_group(
        "map",
        times=np.array(["2020-01-01"], dtype="datetime64[s]"),
        north=latitude,
        east=longitude,
        mean=np.full((1, len(latitude), len(longitude)), 280.0),
        std=1.0 + np.zeros((len(latitude), len(longitude))),
    )


@pytest.mark.parametrize("southward", [False, True])
def test_the_transform_leads_from_indices_to_the_middles_of_cells(southward):
    latitude = np.arange(40.0, 60.1, 2.0)[:: -1 if southward else 1]
    longitude = np.arange(-10.0, 20.1, 2.5)
    said = georeferenced(a_map(latitude, longitude)).attrs
    a, b, c, d, e, f = said["spatial:transform"]
    rows, columns = np.arange(latitude.size) + 0.5, np.arange(longitude.size) + 0.5
    np.testing.assert_allclose(a * columns + c, longitude)
    np.testing.assert_allclose(e * rows + f, latitude)
    assert (b, d) == (0.0, 0.0)
    assert said["spatial:bbox"] == [-11.25, 39.0, 21.25, 61.0]
    assert said["spatial:shape"] == [11, 13]
    assert said["spatial:dimensions"] == ["latitude", "longitude"]
    assert said["proj:code"] == "EPSG:4326"


def test_uneven_rows_have_no_transform():
    said = georeferenced(a_map([10.0, 20.0, 40.0], [0.0, 1.0])).attrs
    assert said["spatial:transform_type"] == "lookup"
    assert "spatial:transform" not in said
    assert said["spatial:bbox"] == [-0.5, 5.0, 1.5, 50.0]


def test_the_extent_stays_on_the_earth_and_goes_on_across_greenwich():
    globe = georeferenced(a_map(np.arange(-90.0, 91.0, 1.0), np.arange(0.0, 360.0, 1.0))).attrs
    assert globe["spatial:bbox"] == [-0.5, -90.0, 359.5, 90.0]
    assert globe["spatial:transform"] == [1.0, 0.0, -0.5, 0.0, 1.0, -90.5]
    seam = georeferenced(a_map([0.0, 5.0], [350.0, 355.0, 0.0, 5.0])).attrs
    assert seam["spatial:bbox"] == [347.5, -2.5, 367.5, 7.5]
    assert seam["spatial:transform_type"] == "affine"


def test_a_published_map_says_it_and_exports_have_their_own(tmp_path):
    group = a_map(np.arange(0.0, 5.0), np.arange(0.0, 5.0))
    with output_lock(tmp_path):
        run = publish(tmp_path, {"map": group}, run_key=KEY, attributes={})
    said = xr.open_zarr(run, group="map").attrs
    assert said["proj:code"] == "EPSG:4326"
    assert said["spatial:bbox"] == [-0.5, -0.5, 4.5, 4.5]
    (file,) = export_run(run, to="netcdf", groups=["map"], output=tmp_path / "export")
    with xr.open_dataset(file, engine="h5netcdf") as exported:
        assert not any(":" in name for name in exported.attrs)


def test_points_have_no_grid():
    group = xr.Dataset(coords={"latitude": ("point", [1.0, 2.0]), "longitude": ("point", [1.0, 2.0])})
    assert georeferenced(group).attrs == {}
