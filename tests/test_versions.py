"""Numbers and keys of runs change with the numerical version alone; what is older stays readable."""

import hashlib
import json
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
from cagp_dist.service.jobfile.config import changed, load_job, parse_job, with_output, with_times
from cagp_dist.service.run import run
from cagp_dist.service.series_status import status_of
from cagp_dist.store.publish import current_run
from cagp_dist.store.zarr_arrays import read_group
from cagp_dist.versions import NUMERICAL_VERSIONS, numerical_version

from .jobs import job_text, map_grid, random_points
from .sources import save, smooth, temperature

pytestmark = pytest.mark.usefixtures("one_blas_thread")

DATA = Path(__file__).parent / "data"
SAVED = {  # SHA-256 of what was saved last with each numerical version
    "0.1.0": {
        "results_0_1.npz": "e695b7fb516be771c3376e436a360e8bc65dac6d65f56a26d82c0ed91c9dfff4",
        "kinds_0_1.json": "0f9e78b47634afaf3983ee4b738cd6daa2c950fdc1379c811536321f846f9cb7",
        "store_0_1.tar.xz": "2e6187c416f06a3b28ba770598402e22ff5ea98529cf85bf060625191a3325ca",
    },
}
SAVED["0.2.0"] = SAVED["0.1.0"]  # these jobs read their observations as before
SAVED["0.3.0"] = {  # these jobs name their mean; the recalibrated one corrects the error bars of the field
    name: digest for name, digest in SAVED["0.1.0"].items() if name != "kinds_0_1.json"
}
SAVED["0.3.0"]["kinds_0_3.json"] = "5dc9ae6e1076bf3bb3dfa16e41593c7dd59971768e227c7c2571b0814705d797"
SAVED["0.4.0"] = SAVED["0.3.0"]  # the gaps of these jobs are few
SAVED["0.5.0"] = SAVED["0.3.0"]  # these jobs name their kernel, or the same one is chosen
SAVED["0.6.0"] = SAVED["0.3.0"]  # these jobs ask for their corrections, and have few points
SAVED["0.7.0"] = SAVED["0.3.0"]  # none of these jobs has as many stations in time
SAVED["0.8.0"] = SAVED["0.3.0"]  # these jobs name no units; last digits differ
SAVED["0.9.0"] = SAVED["0.3.0"]  # none of these jobs has shared errors
SAVED["0.10.0"] = SAVED["0.3.0"]  # last digits differ
SAVED["0.11.0"] = SAVED["0.3.0"]  # none of these jobs has an ellipse
SAVED["0.12.0"] = SAVED["0.3.0"]  # these jobs have one variable each, and no ellipses
SAVED["0.13.0"] = SAVED["0.3.0"]  # nor errors of ships
SAVED["0.14.0"] = SAVED["0.3.0"]  # nor depths
SAVED["0.15.0"] = SAVED["0.3.0"]  # no sharp quantiles here, and sweeps over blocks only
SAVED["0.16.0"] = SAVED["0.17.0"] = SAVED["0.3.0"]  # no transforms here
SAVED["0.18.0"] = SAVED["0.3.0"]  # nor censored values
SAVED["0.19.0"] = SAVED["0.3.0"]  # nor components that are so unequal
SAVED["0.20.0"] = SAVED["0.3.0"]  # nor a noise that is known
SAVED["0.21.0"] = SAVED["0.3.0"]  # nor censored values, as before
SAVED["0.22.0"] = SAVED["0.3.0"]  # nor zeros or limits
NEXT = "Numbers differ: append an entry to NUMERICAL_VERSIONS, and save results and store anew beside these."


DAYS = ["2020-01-01", "2020-01-02"]
TIMES = {"filtered": "2020-01"}  # others need one day
ALL = {"train": {"kind": "all"}, "test": random_points(20, seed=1), "map": map_grid(45.0)}
SOME = {**ALL, "train": random_points(90)}
IN_TIME = {"time_kernel": "matern12", "time_lengthscale_hours": 48.0}
KINDS = {
    "dense": {"solver": {"name": "cholesky"}},
    "sweeps": {"solver": {"name": "block-gauss-seidel", "iterations": 3, "block_size": 30}},
    "gradients": {"solver": {"name": "conjugate-gradient", "iterations": 6}},
    "neighbours": {"solver": {"name": "neighbours", "neighbours": 12, "coarse": 4}},
    "rings": {"design": ALL, "solver": {"name": "rings"}},
    "gaps": {"source": "gappy", "design": ALL, "solver": {"name": "rings"}},
    "cells": {"design": {**SOME, "map": {**map_grid(45.0), "kind": "cells"}}},
    "filtered": {"design": ALL, "solver": None, "prior": {"mean": "previous", **IN_TIME}},
    "window": {"design": {**SOME, "window_hours": 24}, "prior": IN_TIME},
    "recalibrated": {
        "design": {**SOME, "calibration": random_points(120, seed=2)},
        "recalibration": {"method": "local-scale"},
    },
    "integrated": {"prior": None},
}
"""Jobs, by what sets their numbers apart: keys in place of those of `small_job`."""


def small_job(folder, kind):
    """A job of a kind, of 288 points and two days."""
    tables = dict(KINDS[kind])
    source, prior = tables.pop("source", "field"), tables.pop("prior", {})
    mean = {"mean": "quadratic-latitude"}  # that of jobs that named none until 0.2.0
    numbers = {"lengthscale": 0.5, "variance": 20.0, "noise_variance": 0.5, **mean}
    given = {
        "observations": {"source": f"zarr:{folder / source}.zarr", "times": DAYS},
        "design": SOME,
        "prior": mean if prior is None else {**numbers, **prior},
        "solver": {"name": "cholesky"},
        "output": {"root": folder / kind},
    }
    return parse_job(job_text(**{**given, **tables}))


def numbers_of(path):
    """Mean size and the middle one of the numbers of arrays of a run, to eight digits."""
    found = {}
    groups = {"posterior": None, "map": None, "calibration": ["crps", "nll", "rmse"]}
    for group, names in groups.items():
        arrays = read_group(path, group).data_vars
        for name in names or sorted(arrays):
            values = arrays[name]
            if values.dtype.kind == "f":
                known = values.values[np.isfinite(values.values)]
                pair = np.abs(known).mean(), known[known.size // 2]
                found[f"{group}/{name}"] = [float(f"{each:.8g}") for each in pair]
    return found


@pytest.fixture(scope="module")
def small_fields(tmp_path_factory):
    """A folder with two days of a grid of 15 degrees, and with gaps that differ between the days."""
    folder, rng = tmp_path_factory.mktemp("kinds"), np.random.default_rng(11)
    latitude, longitude = np.arange(-82.5, 90.0, 15.0), np.arange(7.5, 360.0, 15.0)
    whole = smooth(latitude, longitude) + rng.normal(size=(2, latitude.size, longitude.size))
    gappy = np.where(rng.random(whole.shape) < 0.06, np.nan, whole)
    for name, values in (("field", whole), ("gappy", gappy)):
        save(temperature(values, latitude=latitude, longitude=longitude, times=DAYS), folder / f"{name}.zarr")
    return folder


QUICK = ("neighbours", "recalibrated")


@pytest.mark.parametrize(
    "kind",
    [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.exhaustive) for kind in KINDS],
)
def test_each_kind_of_job_has_the_numbers_of_the_numerical_version(kind, small_fields):
    saved = json.loads((DATA / "kinds_0_3.json").read_text())
    del saved["previous"]  # a kind that is gone
    assert list(saved) == list(KINDS)
    *_, last = daily(with_times(small_job(small_fields, kind), TIMES.get(kind, DAYS[1])))
    found = numbers_of(current_run(small_fields / kind))
    assert (last.failed, found.keys()) == (None, saved[kind].keys())
    # a fit ends where its steps are small, and not at a number
    tolerance = 1e-3 if kind == "integrated" else 1e-6
    for name, expected in saved[kind].items():
        np.testing.assert_allclose(
            found[name], expected, rtol=tolerance, atol=1e-9, err_msg=f"{kind}: {name}. {NEXT}"
        )


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


@pytest.mark.exhaustive
def test_a_run_of_the_same_numerical_version_has_the_same_numbers(old, monkeypatch):
    monkeypatch.setattr(versions, "NUMERICAL_VERSIONS", NUMERICAL_VERSIONS[:1])
    job = changed(old, "prior", mean="quadratic-latitude")  # which it does not name, as the default was that
    again = run(with_times(with_output(job, "anew"), "2020-01-02")).path
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
def test_days_keep_the_numbers_of_their_version_until_they_are_to_be_redone(old):
    before, root, job = current_run(old.output.folder), old.output.folder, with_times(old, "2020-01-02")
    for _ in range(2):  # the records of the first pass are those of this version
        (day,) = daily(job)
        assert (day.status, day.run or before.stem) == (None, before.stem)
    assert status_of(root).earlier.size == 2
    (day,) = daily(job, redo=True)
    assert (day.version, day.replaced) == (3, before.stem)
    (day,) = daily(job, redo=True)
    assert "already" in day.line()
    with xr.open_zarr(root / "series.zarr", group="scores") as scores:
        assert scores["numerical_version"].values.tolist() == ["", numerical_version()]
    assert status_of(root).earlier.tolist() == [np.datetime64("2020-01-01", "ns").astype(int)]


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
