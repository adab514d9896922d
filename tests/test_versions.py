"""Numbers and keys of runs change with the numerical version alone; what is older stays readable."""

import hashlib
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

from cagp_dist import versions
from cagp_dist.cli import app
from cagp_dist.service.daily import daily
from cagp_dist.service.jobfile.config import load_job, with_output, with_times
from cagp_dist.service.run import run
from cagp_dist.store.publish import current_run
from cagp_dist.versions import NUMERICAL_VERSIONS, numerical_version

pytestmark = pytest.mark.usefixtures("one_blas_thread")

DATA = Path(__file__).parent / "data"
SAVED = {  # SHA-256 of what was saved last with each numerical version
    "0.1.0": {
        "results_0_1.npz": "e695b7fb516be771c3376e436a360e8bc65dac6d65f56a26d82c0ed91c9dfff4",
        "store_0_1.tar.xz": "2e6187c416f06a3b28ba770598402e22ff5ea98529cf85bf060625191a3325ca",
    },
}
NEXT = "Numbers differ: append an entry to NUMERICAL_VERSIONS, and save results and store anew beside these."


@pytest.fixture
def old(tmp_path, monkeypatch):
    """An output folder of version 0.1.0 and its job; the current folder is that of both."""
    with tarfile.open(DATA / "store_0_1.tar.xz") as archive:
        # as an argument only from Python 3.11.4 on
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(tmp_path)
    monkeypatch.chdir(tmp_path)
    return load_job("job.toml")


def test_saved_results_are_those_of_the_numerical_version():
    assert list(SAVED) == [each.number for each in NUMERICAL_VERSIONS]
    dates = [each.date for each in NUMERICAL_VERSIONS]
    assert dates == sorted(dates)
    assert all(each.change and "\n" not in each.change for each in NUMERICAL_VERSIONS)
    for name, digest in SAVED[numerical_version()].items():
        assert hashlib.sha256((DATA / name).read_bytes()).hexdigest() == digest, NEXT


def test_a_run_of_the_same_numerical_version_has_the_same_numbers(old):
    again = run(with_times(with_output(old, "anew"), "2020-01-02")).path
    before = current_run(old.output.folder)
    assert again.stem == before.stem, NEXT
    for group in ("posterior", "map", "calibration", "trace"):
        found, expected = (xr.open_zarr(path, group=group).load() for path in (again, before))
        assert found.sizes == expected.sizes
        for name, values in expected.variables.items():
            if values.dtype.kind in "fi" and name != "seconds":
                np.testing.assert_allclose(
                    found[name].values, values.values, rtol=1e-6, atol=1e-9, err_msg=f"{group}/{name}. {NEXT}"
                )


def test_a_release_does_nothing_again(old, monkeypatch):
    monkeypatch.setattr(versions.metadata, "version", lambda package: "7.0.0")
    versions.version.cache_clear()
    try:
        assert versions.version("cagp-dist") == "7.0.0"
        (day,) = daily(with_times(old, "2020-01-02"))
        assert "already" in day.line()
    finally:
        versions.version.cache_clear()


@pytest.mark.exhaustive
def test_a_new_numerical_version_has_times_solved_again(old, monkeypatch):
    newer = versions.NumericalVersion("2", "2030-01-01", "rounding")
    monkeypatch.setattr(versions, "NUMERICAL_VERSIONS", (*NUMERICAL_VERSIONS, newer))
    before = current_run(old.output.folder)
    (day,) = daily(with_times(old, "2020-01-02"))
    assert (day.version, day.replaced) == (3, before.stem)


@pytest.mark.exhaustive
def test_a_folder_of_an_old_version_is_read_and_gone_on_with(old):
    def cagp(*arguments):
        result = CliRunner().invoke(app, [*arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    assert cagp("list", "out").count("2020-01-0") == 2
    assert cagp("verify", "out").count("undamaged") >= 2
    assert "done         2 times" in cagp("status", "out")
    cagp("report", "out")
    cagp("export", "out", "--to", "csv", "--group", "map")
    (third,) = daily(with_times(old, "2020-01-03"))
    assert third.version == 3
    assert xr.open_zarr("out/series.zarr", group="map").sizes["time"] == 3
    assert cagp("verify", "out").count("undamaged") >= 3
    assert (
        subprocess.run(["sha256sum", "-c", "--quiet", *_manifests()], cwd="out/runs", check=False).returncode
        == 0
    )


def _manifests():
    return sorted(path.name for path in Path("out/runs").glob("*.sha256"))
