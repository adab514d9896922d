"""How a job finds the coefficients of its mean: with the field, or before; with covariates."""

import json

import numpy as np
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, ConfigurationError, DataError
from cagp_dist.fields.covariates import covariate
from cagp_dist.pipeline.field_solves import Execution
from cagp_dist.remedies import Remedy
from cagp_dist.runtime import SerialExecutor
from cagp_dist.service.ingest import ingest
from cagp_dist.service.job_fit import fit_prior, prior_table
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.run import run
from cagp_dist.service.task import prepare_job

from ..jobs import job_text, random_points
from ..sources import save, temperature

NUMBERS = {"lengthscale": 0.4, "variance": 60.0, "noise_variance": 2.0}


SOLVER = {"name": "block-gauss-seidel", "iterations": 1, "block_size": 30}


@pytest.fixture(scope="module", autouse=True)
def field(tmp_path_factory):
    """One time of 10 x 20 points, which a quick Zarr store holds."""
    latitude, longitude = np.arange(-81.0, 82.0, 18.0), np.arange(0.0, 360.0, 18.0)
    points = cagp.unit_sphere(*(each.ravel() for each in np.meshgrid(latitude, longitude, indexing="ij")))
    covariance = cagp.Matern32(0.4, 60.0)(points, points) + 2.0 * np.eye(200)
    drawn = np.linalg.cholesky(covariance) @ np.random.default_rng(3).normal(size=200) + 280.0
    values = drawn.reshape(1, latitude.size, longitude.size)
    field = temperature(values, latitude=latitude, longitude=longitude)
    return save(field, tmp_path_factory.mktemp("source") / "field.zarr")


@pytest.fixture
def job(tmp_path, field):
    """Make a job of its solver and of keys of the prior; numbers that are None are left out."""

    def make(solver=None, design=None, **prior):
        table = {key: value for key, value in {**NUMBERS, **prior}.items() if value is not None}
        return parse_job(
            job_text(
                **{
                    "observations": {"source": f"zarr:{field}"},
                    "design": {"train": random_points(150), "test": random_points(25, seed=1)}
                    | (design or {}),
                    "prior": table,
                    "solver": solver or SOLVER,
                    "output": {"root": tmp_path / "out"},
                }
            )
        )

    return make


def prepared_of(parsed):
    return prepare_job(parsed, ingest(parsed, report=lambda line: None))


@pytest.fixture
def static(tmp_path):
    """Elevation on a grid; another that is known north of the equator alone."""
    latitude, longitude = np.linspace(-90.0, 90.0, 37), np.arange(0.0, 360.0, 5.0)
    relief = 1000.0 * np.cos(np.deg2rad(latitude))[:, None] * (1.0 + np.cos(3.0 * np.deg2rad(longitude)))
    axes = {"latitude": latitude, "longitude": longitude}
    field = xr.DataArray(relief, axes, list(axes), name="elevation")
    dataset = xr.Dataset(
        {"elevation": field, "north": field.where(field.latitude > 0), "level": 0 * field + 3}
    )
    dataset.to_netcdf(tmp_path / "static.nc", engine="h5netcdf")
    return f"file:{tmp_path / 'static.nc'}"


def published(outcome, group):
    with xr.open_zarr(outcome.path, group=group) as dataset:
        return dataset.load()


@pytest.mark.parametrize(
    "solver",
    [
        None,
        pytest.param({"name": "cholesky"}, marks=pytest.mark.exhaustive),
        pytest.param({"name": "conjugate-gradient", "iterations": 5}, marks=pytest.mark.exhaustive),
    ],
    ids=["sweeps", "cholesky", "conjugate gradients"],
)
def test_a_job_gives_what_condition_gives(job, tmp_path, static, solver):
    parsed = job(solver, mean="quadratic-latitude", covariates=[f"{static}:elevation"])
    outcome = run(parsed)
    prepared = prepared_of(parsed)
    with xr.open_dataset(tmp_path / "static.nc", engine="h5netcdf") as dataset:
        relief = covariate(dataset.elevation.load())
    prior = cagp.Prior(
        cagp.Matern32(NUMBERS["lengthscale"], NUMBERS["variance"]),
        NUMBERS["noise_variance"],
        cagp.mean_family("quadratic-latitude", covariates=[relief]),
    )
    found = cagp.condition(
        prior, prepared.X, prepared.y, prepared.predicted.points.wanted, solver=prepared.solver
    )
    posterior = published(outcome, "posterior")
    np.testing.assert_allclose(posterior.t2m_mean[0], found.mean[:, 0], rtol=1e-12)
    np.testing.assert_allclose(posterior.t2m_std[0], np.sqrt(found.variance), rtol=1e-9)
    said = json.loads(published(outcome, None).attrs["prior"])
    assert said["mean_estimate"] == "generalised"
    assert said["covariates"] == [f"{static}:elevation"]


def test_covariates_are_part_of_what_names_a_run(job, tmp_path, static):
    with_relief = job(covariates=[f"{static}:elevation"])
    first = prepared_of(with_relief)
    with xr.open_dataset(tmp_path / "static.nc", engine="h5netcdf") as dataset:
        changed = dataset.load() + 1.0
    changed.to_netcdf(tmp_path / "static.nc", engine="h5netcdf")
    second = prepared_of(with_relief)
    assert first.provenance["covariates_sha256"] != second.provenance["covariates_sha256"]
    assert len({first.run_key, second.run_key, prepared_of(job()).run_key}) == 3


def test_marks_in_covariates_are_refused_and_then_missing(job, tmp_path, static, caplog):
    with xr.open_dataset(tmp_path / "static.nc", engine="h5netcdf") as dataset:
        marked = dataset.load()
    marked["elevation"][16, 36] = -9999.0
    marked.to_netcdf(tmp_path / "static.nc", engine="h5netcdf")
    with pytest.raises(DataError) as refused:
        prepared_of(job(covariates=[f"{static}:elevation"]))
    assert (refused.value.key, refused.value.remedies) == ("missing-mark", (Remedy.COVARIATE_MARKS,))
    parsed = job(covariates=[f"{static}:elevation"], covariates_missing=-9999)
    prepared, whole = prepared_of(parsed), prepared_of(job())
    assert prepared.points.north.size == whole.points.north.size - 1
    assert "not known at 1 of" in caplog.text
    assert parsed.canonical()["prior"]["covariates_missing"] == -9999.0
    assert "covariates_missing" not in job(covariates=[f"{static}:elevation"]).canonical()["prior"]
    with pytest.raises(ConfigurationError) as refusal:
        job(covariates_missing=-9999)
    assert refusal.value.key == "prior"


@pytest.mark.parametrize("kind", [pytest.param("grid", marks=pytest.mark.exhaustive), "cells"])
def test_cells_and_targets_without_a_covariate_are_blank_or_left_out(job, tmp_path, static, kind, caplog):
    (tmp_path / "places.csv").write_text("lat,lon\n10,20\n-30,-12\n")
    design = {
        "train": random_points(70),
        "test": random_points(20, seed=1),
        "map": {"kind": kind, "resolution_degrees": 10.0, "area": [90.0, -180.0, -90.0, 180.0]},
        "targets": f"table:{tmp_path / 'places.csv'}",
    }
    parsed = job(covariates=[f"{static}:north"], design=design)
    prepared = prepared_of(parsed)
    assert (prepared.points.north > 0.0).all()
    south = 0.0 if kind == "grid" else 10.0  # cells from the equator on have a part of what is not known
    assert (prepared.design.cells.shown == (prepared.design.cells.north > south)[:, None]).all()
    assert prepared.wanted.north.tolist() == [10.0]
    assert "1 of 2 targets, such as 30 S, 12 W" in caplog.text
    found = published(run(parsed), "map")
    there = np.isfinite(found["t2m_mean"]).all("time")
    assert (there == (found.latitude > south)).all()


def test_covariates_that_cannot_be_used_are_refused_by_name(job, tmp_path, static):
    with pytest.raises(ArgumentError) as refusal:
        prepared_of(job(mean="constant", covariates=[f"{static}:level"]))  # before anything is solved
    assert refusal.value.key == "coefficient-undetermined"
    with pytest.raises(ConfigurationError) as refusal:
        job(covariates=["static.nc"])
    assert refusal.value.key == "prior.covariates"
    with pytest.raises(
        ConfigurationError,
    ) as refusal:
        job(mean="climatology:x", covariates=[f"{static}:elevation"])
    assert refusal.value.key == "prior"
    with pytest.raises(ConfigurationError) as refusal:
        job(mean_estimate="ordinary")
    assert refusal.value.key == "prior"
    assert job(mean_estimate="generalised").canonical() == job().canonical()


def test_numbers_are_fitted_beside_the_covariates(job, tmp_path, static):
    left_out = {**dict.fromkeys(NUMBERS), "kernel": "matern32"}
    parsed = job(mean="constant", covariates=[f"{static}:elevation"], **left_out)
    prepared = prepared_of(parsed)
    fitted = fit_prior(prepared, Execution(SerialExecutor()))
    with xr.open_dataset(tmp_path / "static.nc", engine="h5netcdf") as dataset:
        relief = covariate(dataset.elevation.load())
    mean = cagp.mean_family("constant", covariates=[relief])
    direct = cagp.fit(cagp.Matern32, prepared.X, prepared.y[:, 0], mean=mean)
    assert fitted.prior.kernel.lengthscale == pytest.approx(direct.prior.kernel.lengthscale, rel=1e-3)
    assert fitted.prior.kernel.variance == pytest.approx(direct.prior.kernel.variance, rel=1e-3)
    assert f'covariates = ["{static}:elevation"]' in prior_table(parsed.prior, fitted)
