"""Jobs with a background: the table that `cagp fit` prints, and whether their runs are solved again."""

import tomllib
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from cagp_dist.cli.display import show_fit
from cagp_dist.service.job_fit import prior_table
from cagp_dist.service.jobfile.config import changed, parse_job
from cagp_dist.service.run import fit_job, run
from cagp_dist.service.verification import TOLERANCE, NotSolvedAgainError, solve_again

from ..jobs import job_text, random_points

LATITUDE, LONGITUDE = np.arange(40.0, 61.0), np.arange(-12.0, 15.0)


@pytest.fixture
def job_of(tmp_path):
    """Write jobs of 60 stations, a guess with an error of 1 K to 3 K, and an ensemble with that spread."""
    rng = np.random.default_rng(3)
    axes = {"lat": LATITUDE, "lon": LONGITUDE}
    guess = xr.DataArray(280.0 + 0.1 * np.add.outer(LATITUDE, LONGITUDE), axes, ["lat", "lon"], "t2m")
    guess.assign_attrs(units="K").to_netcdf(tmp_path / "guess.nc", engine="h5netcdf")
    spread = xr.DataArray(1.0 + 0.1 * (LATITUDE - 40.0), {"lat": LATITUDE}, ["lat"])
    members = xr.concat([guess - spread, guess, guess + spread], "number").assign_attrs(units="K")
    members.rename("t2m").to_netcdf(tmp_path / "members.nc", engine="h5netcdf")
    latitude, longitude = rng.uniform(41.0, 59.0, 60), rng.uniform(-11.0, 13.0, 60)
    seen = guess.interp(lat=xr.DataArray(latitude), lon=xr.DataArray(longitude)).values
    seen += 5.0 + np.sin(0.3 * latitude) + rng.standard_normal(60)
    rows = {"lat": latitude, "lon": longitude, "t (K)": seen}
    pd.DataFrame(rows).to_csv(tmp_path / "stations.csv", index=False)

    def written(fields, **prior):
        asked = {"kernel": "matern32", "background": f"file:{tmp_path / fields}.nc:t2m"}
        asked["hyperparameters"] = "plug-in"
        return parse_job(
            job_text(
                observations={
                    "source": f"table:{tmp_path / 'stations.csv'}",
                    "variable": "t",
                    "noise_std": 0.5,
                },
                design={"train": {"kind": "all"}, "test": random_points(10)},
                prior={name: value for name, value in (asked | prior).items() if value is not None},
                recalibration={"method": "none"},
                solver={"name": "cholesky"},
                output={"root": tmp_path / "out"},
            )
        )

    return written


def printed(job):
    return tomllib.loads(prior_table(job.prior, fit_job(job)))["prior"]


def test_a_mean_of_the_innovations_stays_in_the_table_of_a_fit(job_of):
    assert printed(job_of("guess", mean="constant"))["mean"] == "constant"
    assert "mean" not in printed(job_of("guess"))


def test_numbers_over_a_spread_are_not_in_the_table_of_a_fit(job_of):
    """The variance is then a multiple of the squared spread; beside it, a number of K² would be read."""
    table = printed(job_of("members", mean="constant"))
    assert table == {
        "kernel": "matern32",
        "background": job_of("members").prior.background,
        "mean": "constant",
    }


def test_a_run_over_a_spread_is_not_solved_again_and_one_with_a_stated_error_is(job_of):
    with pytest.raises(NotSolvedAgainError, match="the error of its background is a field"):
        solve_again(run(job_of("members")).path, points=5)
    assert solve_again(run(job_of("members", background_std=2.0)).path, points=5) < TOLERANCE


def test_a_run_whose_background_or_covariate_was_replaced_is_not_solved_again(job_of, tmp_path):
    static = {"background": None, "covariates": [f"file:{tmp_path / 'static.nc'}:t2m"], "mean": "constant"}
    with xr.open_dataset(tmp_path / "guess.nc", engine="h5netcdf") as opened:
        guess = opened.load()
    guess.to_netcdf(tmp_path / "static.nc", engine="h5netcdf")
    for file, found in (("guess", job_of("guess")), ("static", job_of("guess", **static))):
        path = run(found).path
        assert solve_again(path, points=5) < 1e-9
        other = guess.assign(t2m=(guess.t2m + np.sin(guess.lat)).assign_attrs(units="K"))
        other.to_netcdf(tmp_path / f"{file}.nc", engine="h5netcdf")
        with pytest.raises(NotSolvedAgainError, match="replaced"):
            solve_again(path, points=5)


def test_noise_that_is_a_number_is_all_of_it_and_a_fit_says_so(job_of, capsys):
    job = job_of("guess", background=None, mean="constant")
    fitted = fit_job(job)
    assert fitted.noise_is_held
    assert "noise" not in fitted.line().partition(";")[0]
    show_fit(job, fitted)
    (row,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith(" noise_variance"))
    assert row.split()[:3] == ["noise_variance", "none", "beside"]
    assert solve_again(run(job).path, points=5) < 1e-9


def test_noise_that_a_fit_finds_beside_known_noise_is_not_called_none(job_of, tmp_path):
    """Also where its standard error is not known."""
    job = job_of("guess", background=None, mean="constant")
    rows = pd.read_csv(tmp_path / "stations.csv").assign(err=0.1)
    rows.to_csv(tmp_path / "stations.csv", index=False)
    fitted = fit_job(changed(job, "observations", noise_std="err"))
    assert fitted.model.nugget > 0.1
    errors = replace(fitted.result.standard_errors, noise_variance=float("nan"))
    flat = replace(fitted, model=replace(fitted.model, result=replace(fitted.result, standard_errors=errors)))
    assert not flat.noise_is_held
    assert "noise variance" in flat.line()
