"""Every source is opened by its name; a name that is none says which there are."""

import importlib.resources

import numpy as np
import pytest
import xarray as xr

from cagp_dist.digest import file_sha256
from cagp_dist.errors import ConfigurationError, DataError
from cagp_dist.fields import sample
from cagp_dist.fields.canonical import canonical, observation_points
from cagp_dist.fields.sample import SAMPLE_SHA256
from cagp_dist.fields.selection import Selection
from cagp_dist.fields.sources import open_source

from ..regional import WORLD
from .fields import netcdf3, raw_dataset


def test_the_sample_is_a_global_field(tmp_path):
    field = open_source("sample", times=["2017-04-27T12:00"], cache_directory=tmp_path / "cache")
    assert field.t2m.shape == (1, 241, 480)
    assert field.t2m.dtype == np.float32
    assert field.attrs["source"] == "sample"
    assert field.attrs["source_sha256"] == SAMPLE_SHA256
    points = observation_points(field)
    assert points.values.shape == (1, 239 * 480 + 2)
    assert (points.merged_pole_copies, points.dropped_missing) == (958, 0)


@pytest.mark.exhaustive
def test_the_sample_has_the_values_of_its_origin(tmp_path):
    assert file_sha256(WORLD) == SAMPLE_SHA256
    field, origin = (open_source(name, cache_directory=tmp_path) for name in ("sample", f"file:{WORLD}"))
    assert field.t2m.values.tobytes() == origin.t2m.values.tobytes()
    xr.testing.assert_identical(field.drop_attrs(deep=False), origin.drop_attrs(deep=False))


def test_a_damaged_sample_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(sample, "STORED_SHA256", "0" * 64)
    with pytest.raises(DataError) as refusal:
        open_source("sample", cache_directory=tmp_path)
    assert refusal.value.key == "damaged"


def test_the_sample_carries_its_attribution():
    text = (importlib.resources.files("cagp_dist.fields") / "data" / "ATTRIBUTION.txt").read_text()
    assert "ECMWF" in text
    assert "Apache License, Version 2.0" in text


def test_files_and_stores_are_opened_by_prefix(tmp_path, monkeypatch):
    raw = raw_dataset()
    (tmp_path / "field.nc").write_bytes(netcdf3(raw))
    monkeypatch.setenv("HOME", str(tmp_path))
    field = open_source("file:~/field.nc", times=["2020-01-01"], cache_directory=tmp_path)
    xr.testing.assert_equal(field, canonical(raw, selection=Selection(times=["2020-01-01"])))
    raw.drop_vars("expver").to_zarr(tmp_path / "field.zarr", consolidated=False)
    field = open_source(f"zarr:{tmp_path}/field.zarr", area=(60.0, 0.0, 40.0, 90.0), cache_directory=tmp_path)
    xr.testing.assert_equal(field, canonical(raw, selection=Selection(area=(60.0, 0.0, 40.0, 90.0))))


@pytest.mark.parametrize(
    "source",
    [
        "other",
        "syntetic",
        "smaple",
        "arco-era5",
        "",
        "file:",
        "zarr",
        "sample:x",
    ],
)
def test_an_unknown_source_says_which_there_are(tmp_path, source):
    with pytest.raises(ConfigurationError) as refusal:
        open_source(source, cache_directory=tmp_path)
    assert refusal.value.key == "source"


def test_a_bare_path_is_told_its_prefix(tmp_path):
    (tmp_path / "field.nc").write_bytes(b"")
    for path in (tmp_path / "field.nc", tmp_path):
        with pytest.raises(ConfigurationError) as refusal:
            open_source(str(path), cache_directory=tmp_path)
        assert refusal.value.key == "source"


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"variable": "a/b"}, "variable-name"),
        ({"times": ["noon"]}, "times"),
        ({"area": (0.0, 0.0, 0.0, 0.0)}, "area"),
    ],
)
def test_a_wrong_selection_is_refused_before_anything_is_read(tmp_path, settings, key):
    with pytest.raises(ConfigurationError) as refusal:
        open_source("file:/does/not/exist", cache_directory=tmp_path, **settings)
    assert refusal.value.key == key
