"""A Zarr store for GDAL lies as a GeoTIFF does, with the numbers of the run to the last bit."""

import json
import os
import uuid

import numpy as np
import pytest
import xarray as xr

from cagp_dist.errors import ConfigurationError
from cagp_dist.export import FORMATS, export_run
from cagp_dist.store.lock import staged_for, whole_folder
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
    group, path = exported(tmp_path, "europe", recalibrated=True)
    described = json.loads((path / ".zmetadata").read_text())["metadata"]
    arrays = {
        key.removesuffix("/.zarray"): said for key, said in described.items() if key.endswith("/.zarray")
    }
    assert {said["zarr_format"] for said in arrays.values()} == {2}
    assert {said["compressor"]["id"] for said in arrays.values()} == {"zlib"}
    sizes = dict(zip(("time", "latitude", "longitude"), group.t2m_mean.shape, strict=True))
    for name, said in arrays.items():
        assert said["chunks"] == ([sizes[name]] if name in sizes else [1, *group.t2m_mean.shape[1:]])
        assert said["fill_value"] == (None if name == "time" else "NaN")
        assert said["dtype"] == ("<i8" if name == "time" else "<f8")
    assert "t2m_quantile_0.95" in arrays
    assert not {"latitude_bnds", "longitude_bnds"} & set(arrays)
    assert described["t2m_mean/.zattrs"]["_CRS"] == SYSTEM
    assert described["t2m_mean/.zattrs"]["units"] == "K"
    assert "bounds" not in described["latitude/.zattrs"]
    assert described[".zattrs"]["license"] == "Apache-2.0"


def test_only_what_was_exported_is_replaced_and_only_when_asked(tmp_path):
    _, path = exported(tmp_path, "europe")
    run = tmp_path / "out" / "runs" / f"{KEY}.zarr"
    with pytest.raises(ConfigurationError) as refusal:
        export_run(run, to="zarr")
    assert refusal.value.key == "output-exists"
    assert export_run(run, to="zarr", force=True) == [path]
    empty, other, foreign, older = (
        tmp_path / f"{name}.zarr" for name in ("empty", "other", "foreign", "old")
    )
    empty.mkdir()
    assert export_run(run, to="zarr", output=empty, force=True) == [empty]
    other.mkdir()
    (other / "letter").write_text("mine")
    theirs = xr.Dataset({"rain": ("x", np.arange(3.0))}, attrs={"history": "made by hand"})
    theirs.to_zarr(foreign, zarr_format=2)
    theirs.drop_attrs().to_zarr(older, zarr_format=2)
    (older / ".zattrs").write_text("[]")
    for target in (other, foreign, older, run):
        before = contents(target)
        with pytest.raises(ConfigurationError) as refusal:
            export_run(run, to="zarr", output=target, force=True)
        assert refusal.value.key == "folder"
        assert contents(target) == before
    assert [each.name for each in path.parent.iterdir()] == ["map.zarr"]


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_file_in_the_way_stays(tmp_path):
    _, store = exported(tmp_path, "europe")
    run, file = tmp_path / "out" / "runs" / f"{KEY}.zarr", tmp_path / "map.zarr"
    file.write_text("mine")
    for force in (False, True):
        with pytest.raises(ConfigurationError, match="choose another output") as refusal:
            export_run(run, to="zarr", output=file, force=force)
        assert refusal.value.key == "not-a-folder"
    with pytest.raises(ConfigurationError) as refusal, whole_folder(file) as stage:
        (stage / "new").write_text("")
    assert refusal.value.key == "not-writable"
    assert file.read_text() == "mine"
    assert export_run(run, to="zarr", force=True) == [store]
    assert not [*tmp_path.glob(".*"), *store.parent.glob(".*")]


@pytest.mark.parametrize("to", ["netcdf", "zarr"])
def test_links_stay_and_what_they_lead_to_is_written(tmp_path, to):
    exported(tmp_path, "europe")
    run, suffix = tmp_path / "out" / "runs" / f"{KEY}.zarr", FORMATS[to].suffix
    real, link = tmp_path / "disk" / f"real{suffix}", tmp_path / f"link{suffix}"
    real.parent.mkdir()
    link.symlink_to(real)
    for force in (False, True):  # to nothing yet, then to what was exported
        assert export_run(run, to=to, groups=["map"], output=link, force=force) == [link]
        assert link.is_symlink()
        opened = xr.open_zarr if to == "zarr" else xr.open_dataset
        with opened(real) as held:
            assert "t2m_mean" in held
    assert not [*tmp_path.glob(".*"), *real.parent.glob(".*")]
    round_, other = tmp_path / f"round{suffix}", tmp_path / f"other{suffix}"
    round_.symlink_to(other)
    other.symlink_to(round_)
    if to == "zarr":
        with pytest.raises(ConfigurationError) as refusal:
            export_run(run, to=to, output=round_)
        assert refusal.value.key == "not-writable"
        assert not [*tmp_path.glob(".*")]


def test_what_a_killed_export_left_is_removed_and_nothing_else(tmp_path):
    _, path = exported(tmp_path, "europe")
    run, name = tmp_path / "out" / "runs" / f"{KEY}.zarr", uuid.uuid4().hex
    left, others = (path.with_name(f".{store}.zarr-{name}") for store in ("map", "other"))
    for folder in (left, others):
        folder.mkdir()
        (folder / "half").write_text("")
    with staged_for(path.with_name("else")):  # another export is at work there
        export_run(run, to="zarr", force=True)
        assert left.exists()
    export_run(run, to="zarr", force=True)
    assert {each.name for each in path.parent.iterdir()} == {"map.zarr", others.name}


def test_it_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    synced, fsync = [], os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda number: (synced.append(os.readlink(f"/proc/self/fd/{number}")), fsync(number))
    )
    with whole_folder(tmp_path / "new.zarr") as stage:
        (stage / "in").mkdir()
        (stage / "in" / "file").write_text("all of it")
    assert set(synced) == {str(path) for path in (stage, stage / "in", stage / "in" / "file", tmp_path)}
    assert synced[-1] == str(tmp_path)


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
