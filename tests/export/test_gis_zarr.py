"""A Zarr store for GDAL lies as a GeoTIFF does, with the numbers of the run to the last bit."""

import json

import numpy as np
import pytest
import xarray as xr

from cagp_dist.errors import ConfigurationError
from cagp_dist.export import export_run
from cagp_dist.store.zarr_arrays import read_group

from .make_group import KEY, REGIONS, publish_run
from .test_netcdf import program

SYSTEM = {"url": "http://www.opengis.net/def/crs/EPSG/0/4326"}


def exported(folder, region, **options):
    latitude, longitude = REGIONS[region]
    run = publish_run(folder / "out", latitude=latitude, longitude=longitude, **options)
    (path,) = export_run(run, to="zarr")
    assert path == folder / "out" / "export" / KEY / "map.zarr"
    return read_group(run, "map"), path


@pytest.mark.parametrize("region", REGIONS)
def test_every_value_is_where_its_cell_is(tmp_path, region):
    group, path = exported(tmp_path, region)
    with xr.open_zarr(path, consolidated=True) as held:
        assert set(held.data_vars) == set(group.data_vars)
        assert (np.diff(held.latitude) < 0.0).all()
        np.testing.assert_allclose(np.diff(held.longitude), np.diff(group.longitude)[0])
        assert held.longitude[0] >= -180.0
        assert held.longitude[-1] < 180.0 or region == "pacific"
        back = held.assign_coords(longitude=held.longitude % 360.0).sortby(["latitude", "longitude"])
        there = group.assign_coords(longitude=group.longitude % 360.0).sortby(["latitude", "longitude"])
        np.testing.assert_allclose(back.longitude, there.longitude, atol=1e-9)
        for name in group.data_vars:
            np.testing.assert_array_equal(back[name], there[name])
        np.testing.assert_array_equal(back.time, there.time)


def test_it_says_what_it_is_and_gdal_s_oldest_codec_reads_it(tmp_path):
    _, path = exported(tmp_path, "europe", recalibrated=True)
    described = json.loads((path / ".zmetadata").read_text())["metadata"]
    arrays = {
        key.removesuffix("/.zarray"): said for key, said in described.items() if key.endswith("/.zarray")
    }
    assert {said["zarr_format"] for said in arrays.values()} == {2}
    assert {said["compressor"]["id"] for said in arrays.values()} == {"zlib"}
    assert arrays["t2m_mean"]["chunks"][0] == 1
    assert "t2m_quantile_0.95" in arrays
    assert not {"latitude_bnds", "longitude_bnds"} & set(arrays)
    assert described["t2m_mean/.zattrs"]["_CRS"] == SYSTEM
    assert described["t2m_mean/.zattrs"]["units"] == "K"
    assert "bounds" not in described["latitude/.zattrs"]
    assert described[".zattrs"]["license"] == "Apache-2.0"


def test_only_a_store_is_replaced_and_only_when_asked(tmp_path):
    _, path = exported(tmp_path, "europe")
    run = tmp_path / "out" / "runs" / f"{KEY}.zarr"
    with pytest.raises(ConfigurationError) as refusal:
        export_run(run, to="zarr")
    assert refusal.value.key == "output-exists"
    assert export_run(run, to="zarr", force=True) == [path]
    other = tmp_path / "other.zarr"
    other.mkdir()
    (other / "letter").write_text("mine")
    for target in (other, run):
        with pytest.raises(ConfigurationError) as refusal:
            export_run(run, to="zarr", output=target, force=True)
        assert refusal.value.key == "folder"
    assert (other / "letter").read_text() == "mine"
    assert [each.name for each in path.parent.iterdir()] == ["map.zarr"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("region", REGIONS)
def test_gdal_reads_the_values_where_they_are(tmp_path, region):
    group, path = exported(tmp_path, region)
    source = f'ZARR:"{path}":/t2m_mean:1'
    shown = json.loads(program("gdalinfo", "-json", source))
    assert shown["bands"][0]["unit"] == "K"
    assert 'ID["EPSG",4326]' in shown["coordinateSystem"]["wkt"]
    west, width, _, north, _, height = shown["geoTransform"]
    for row in (0, 3):
        latitude, longitude = float(group.latitude[row]), float(group.longitude[2])
        pixel = int(((longitude - west) % 360.0) / width), int((latitude - north) / height)
        value = float(program("gdallocationinfo", "-valonly", source, *pixel))
        np.testing.assert_allclose(value, group.t2m_mean.values[1, row, 2], rtol=1e-12)
