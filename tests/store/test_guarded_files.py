"""Files that somebody else put in the way: links, pipes, references to other files, formulas."""

import os

import h5py
import numpy as np
import pytest
import xarray as xr

from cagp_dist.digest import file_sha256
from cagp_dist.errors import CagpError, ConfigurationError, DataError, StoreError
from cagp_dist.export.flat_table import _harmless
from cagp_dist.fields.covariates import open_covariate
from cagp_dist.fields.files._decode import _open_netcdf
from cagp_dist.fields.files.local_files import files_at, open_file
from cagp_dist.fields.synthetic import synthetic_grid
from cagp_dist.fields.tables.table_files import read_file
from cagp_dist.report import write_report
from cagp_dist.service.jobfile.config import load_job, parse_job
from cagp_dist.store.atomic_files import whole_file
from cagp_dist.store.lock import output_lock
from cagp_dist.store.publish import current_run


@pytest.fixture
def precious(tmp_path):
    path = tmp_path / "precious"
    path.write_text("of somebody else")
    return path


def test_links_in_the_output_folder_are_not_written_through(tmp_path, precious):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".lock").symlink_to(precious)
    with pytest.raises(CagpError) as refusal, output_lock(tmp_path / "out"):
        pass
    assert refusal.value.key == "not-writable"
    (tmp_path / "elsewhere").mkdir()
    names = (".staging", ".series", "observations", ".weights", "report/4f1d", ".checkpoints/4f1d")
    for name in (*names, "downloads", "downloads/known-of-files", "observations/file-4f1d.zarr"):
        link = tmp_path / "other" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(ConfigurationError) as refusal:
            output_lock(tmp_path / "other").__enter__()
        assert refusal.value.key == "link"
        if name.startswith("report"):
            with pytest.raises(ConfigurationError) as refused:
                write_report(tmp_path / "other" / "runs" / "4f1d.zarr")
            assert refused.value.key == "link"
        link.unlink()
    (tmp_path / f".page.{os.getpid()}").symlink_to(precious)
    with whole_file(tmp_path / "page") as temporary:
        temporary.write_text("ours")
    assert (tmp_path / "page").read_text() == "ours"
    assert precious.read_text() == "of somebody else"


def test_pipes_and_devices_are_refused_and_do_not_hang(tmp_path):
    pipe = tmp_path / "CURRENT"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="not a regular file"):
        file_sha256(pipe)
    with pytest.raises(ConfigurationError) as refusal:
        load_job(pipe)
    assert refusal.value.key == "unreadable"
    with pytest.raises(ConfigurationError) as refusal:
        load_job("/dev/zero")
    assert refusal.value.key == "unreadable"
    with pytest.raises(DataError) as refusal:
        open_file(pipe, scratch=tmp_path)
    assert refusal.value.key == "unreadable"
    with pytest.raises(DataError) as refused:
        read_file(pipe)
    assert refused.value.key == "not-a-table"
    with pytest.raises(DataError) as refused:
        files_at(str(tmp_path), scratch=tmp_path / "scratch")
    assert refused.value.key == "no-field-file"
    with pytest.raises(StoreError):
        current_run(tmp_path)


@pytest.mark.parametrize("kind", ["external link", "stored externally", "virtual"])
def test_hdf5_files_that_read_other_files_are_refused(tmp_path, precious, kind):
    path = tmp_path / "field.nc"
    with h5py.File(path, "w") as file:
        group = file.create_group("below")
        if kind == "external link":
            group["t2m"] = h5py.ExternalLink(str(precious), "/t2m")
        elif kind == "virtual":
            layout = h5py.VirtualLayout((4,), "f4")
            layout[:] = h5py.VirtualSource(str(precious), "t2m", (4,))
            group.create_virtual_dataset("t2m", layout)
        else:
            group.create_dataset("t2m", (4,), "f4", external=[(str(precious), 0, 16)])
    with pytest.raises(DataError) as refusal:
        _open_netcdf(path, {"variable": "t2m"})
    assert refusal.value.key == "other-files"
    with pytest.raises(DataError) as refusal:
        open_covariate(f"file:{path}:t2m")
    assert refusal.value.key == "other-files"
    xr.Dataset({"t2m": ("x", np.ones(3))}).to_netcdf(tmp_path / "plain.nc", engine="h5netcdf")
    with _open_netcdf(tmp_path / "plain.nc", {"variable": "t2m"}) as plain:
        assert plain.t2m.values.tolist() == [1.0, 1.0, 1.0]


def test_a_synthetic_field_that_fits_nowhere_is_refused_with_its_size():
    with pytest.raises(ConfigurationError) as refused:
        synthetic_grid(0.0001)
    assert refused.value.key == "grid-degrees"
    assert "grid_degrees" in str(refused.value)


def test_names_that_are_formulas_are_made_text():
    for name in ("=1+1", "+1", "-1", "@A1", "\t=1", "\r=1", "\x1b[2J"):
        assert _harmless(name) == f"'{name}"
    assert [_harmless(value) for value in ("Bern", "", -1.5)] == ["Bern", "", -1.5]


def test_a_file_that_is_no_job_keeps_its_lines_to_itself():
    with pytest.raises(ConfigurationError) as told:
        parse_job("root:secret:19000\n", name="shadow")
    assert "secret" not in str(told.value)
    assert "shadow" in str(told.value)
    with pytest.raises(ConfigurationError) as refusal:
        parse_job("[solver]\niterations = = 3\n")
    assert refusal.value.key == "not-toml"
