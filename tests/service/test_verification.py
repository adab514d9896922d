"""`cagp verify`: files, values, and test points that are solved once more."""

import shutil
from functools import partial

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

from cagp_dist.cli import app
from cagp_dist.errors import ConfigurationError, StoreError
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.run import run
from cagp_dist.service.verification import TOLERANCE, solve_again, verify_run
from cagp_dist.store import manifest
from cagp_dist.store.zarr_arrays import read_group, write_group

from ..jobs import TABLES, job_text, map_grid, random_points

SYNTHETIC = {"source": "synthetic", "grid_degrees": 10.0, "times": ["2020-01-01", "2020-01-02"]}
FOLDS = {"train": random_points(200), "test": {"kind": "folds", "count": 3}}


def done(root, **tables):
    """Do a small job on a synthetic field, and give its run."""
    job = parse_job(job_text(**{"observations": SYNTHETIC, "output": {"root": root}, **tables}))
    outcome = run(job, publish_unconverged=True)
    assert outcome.path is not None
    return outcome.path


def rewrite(path, change):
    """Publish other values under the name of a run, with digests that fit them."""
    groups = {found.parent.name: read_group(path, found.parent.name) for found in path.glob("*/zarr.json")}
    root = read_group(path)
    change(groups)
    for file in sorted(path.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    write_group(path, "/", root)
    for name, group in groups.items():
        write_group(path, name, group)
    manifest.manifest_path(path).write_text(manifest.build(path, name=path.name))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    design = {**TABLES["design"], "map": map_grid(30.0)}
    return done(tmp_path_factory.mktemp("plain") / "out", design=design)


@pytest.fixture
def copied(plain, tmp_path):
    """A copy of that run, and of its observations, to change."""
    return shutil.copytree(plain.parents[1], tmp_path / "out") / "runs" / plain.name


@pytest.mark.parametrize("method", ["local-scale", "kuleshov"])
def test_recalibrated_runs_are_solved_again(tmp_path, method):
    """Error bars are published as they were corrected, and a wrong one among them is found."""
    tables = {
        "observations": {"source": "sample", "times": ["2017-04-27T12:00"]},
        "design": {
            "train": random_points(400),
            "test": random_points(60, seed=1),
            "calibration": random_points(400, seed=2),
        },
        "prior": {"kernel": "matern32", "lengthscale": 0.1, "variance": 100.0, "noise_variance": 0.5},
        "solver": {"name": "cholesky"},
    }
    path = done(tmp_path / "out", recalibration={"method": method}, **tables)
    assert read_group(path).attrs["recalibration"] == method
    assert solve_again(path, points=20) < 1e-9
    rewrite(path, partial(spoil, of_observations=method == "local-scale"))
    with pytest.raises(StoreError, match="t2m_std"):
        solve_again(path, points=20)


def spoil(groups, *, of_observations):
    """Change half of the error bars of a run a little, those of the field, and of observations too."""
    half = np.arange(groups["posterior"].sizes["point"]) % 2
    for name in ("t2m_std", "t2m_predictive_std")[: 1 + of_observations]:
        groups["posterior"][name] = groups["posterior"][name] * xr.DataArray(1.0 + 1e-3 * half, dims="point")


def test_a_run_is_solved_again_at_some_of_its_points(plain):
    verify_run(plain)
    assert solve_again(plain, points=7) < 1e-11
    assert solve_again(plain, points=10_000, seed=1) < 1e-11


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "tables",
    [
        {"design": FOLDS},
        {"solver": {"name": "conjugate-gradient", "iterations": 20}},
        pytest.param(
            {
                "observations": {**SYNTHETIC, "grid_degrees": 5.0},
                "design": {**TABLES["design"], "train": random_points(800, weight="equal")},
                "prior": {"kernel": "matern32"},
            },
            marks=pytest.mark.exhaustive,
        ),
    ],
    ids=["folds", "actions", "fitted"],
)
def test_runs_of_other_kinds_are_solved_again(tmp_path, tables):
    assert solve_again(done(tmp_path / "out", **tables), points=7) < TOLERANCE / 10.0


def test_the_command_says_what_was_compared(plain):
    result = CliRunner().invoke(app, ["verify", str(plain), "--solve", "5"])
    assert result.exit_code == 0, result.output
    first, second = result.stdout.splitlines()
    assert first == f"undamaged  {plain}"
    assert second.startswith("solved again, differs by at most ")


def test_a_run_whose_values_are_not_those_of_its_job_is_found(copied):
    def shift(groups):
        groups["posterior"]["t2m_mean"][1, 3] += 0.01

    rewrite(copied, shift)
    verify_run(copied)  # files and ranges are in order
    with pytest.raises(StoreError) as refusal:
        solve_again(copied, points=40)
    assert refusal.value.key == "differs"

    def spoil(groups):
        groups["posterior"]["t2m_mean"][1, 3] = np.nan

    rewrite(copied, spoil)
    with pytest.raises(StoreError) as refusal:
        verify_run(copied)
    assert refusal.value.key == "not-finite"


def test_a_run_without_its_observations_or_with_others_is_not_solved_again(copied, monkeypatch):
    monkeypatch.setattr("cagp_dist.service.verification.peek", lambda job: None)
    with pytest.raises(ConfigurationError, match=r"its observations are not in .*observations"):
        solve_again(copied, points=1)
    monkeypatch.undo()

    def other(groups):
        groups["posterior"] = groups["posterior"].assign_coords(
            time=groups["posterior"].time.values + np.timedelta64(1, "D")
        )

    rewrite(copied, other)
    with pytest.raises(ConfigurationError, match="synthetic holds other observations"):
        solve_again(copied, points=1)


def test_folds_with_fitted_priors_and_shares_are_not_solved_again(plain, tmp_path):
    root = read_group(plain)
    text = job_text(observations=SYNTHETIC, design=FOLDS, prior={"kernel": "matern32"})
    write_group(tmp_path / "runs" / "a.zarr", "/", root.assign_attrs(job=text))
    write_group(tmp_path / "runs" / "a.zarr", "posterior", read_group(plain, "posterior"))
    with pytest.raises(ConfigurationError, match="each of its folds has a fitted prior"):
        solve_again(tmp_path / "runs" / "a.zarr", points=1)
    share = {"name": "block-gauss-seidel", "iterations": 2, "computational_share": 0.5}
    text = job_text(observations=SYNTHETIC, solver=share)
    write_group(tmp_path / "runs" / "b.zarr", "/", root.assign_attrs(job=text))
    write_group(tmp_path / "runs" / "b.zarr", "posterior", read_group(plain, "posterior"))
    with pytest.raises(ConfigurationError, match="its computational_share chose the iterations"):
        solve_again(tmp_path / "runs" / "b.zarr", points=1)
