"""Measured cases of error bars on maps, by samples and by a column for each target."""

import math
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import cagp_dist as cagp
from pipelines.benchmarks.measuring import Figures, named, on_sphere, timed

# Maximum likelihood for ERA5 temperature on the unit sphere, in units of the prior variance.
PRIOR = cagp.Prior(cagp.Matern32(0.041, 1.0), 0.024)
SOLVER = cagp.BlockGaussSeidel(5, block_size=1024)
# For a relative standard error of 7 %, with what random waves add to the chance of exact draws.
SAMPLES = math.ceil(2.25 / 0.07**2)


def observed(n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Uniform points of the unit sphere, in space-filling order, and values."""
    return on_sphere(n, seed=0, block_size=1024), np.random.default_rng(2).standard_normal(n)


def map_points(step: float) -> NDArray[np.float64]:
    """Centres of the cells of a map of so many degrees."""
    latitude, longitude = np.arange(-90.0, 90.0, step), np.arange(0.0, 360.0, step)
    return cagp.unit_sphere(
        np.repeat(latitude + 0.5 * step, longitude.size), np.tile(longitude + 0.5 * step, latitude.size)
    )


def pathwise_variances() -> Figures:
    """Variances at 4,050 map points, n = 10,000, m = 5: 460 samples against a column for each point."""
    X, y = observed(10_000)
    targets = map_points(4.0)

    def by_samples() -> cagp.SampledPosterior:
        return cagp.posterior_by_samples(
            PRIOR, X, y, targets, solver=SOLVER, samples=SAMPLES, generator=np.random.default_rng(1)
        )

    def by_columns() -> cagp.Posterior:
        return cagp.condition(PRIOR, X, y, targets, solver=SOLVER)

    cagp.posterior_by_samples(
        PRIOR, X[:2000], y[:2000], targets, solver=SOLVER, samples=50, generator=np.random.default_rng(1)
    )
    # before and after, so that a neighbour who comes or goes hits both
    first, sampled = timed(by_samples)
    columns, exact = timed(by_columns)
    second, _ = timed(by_samples)
    ratio = np.asarray(sampled.variance / exact.variance)
    samples = {name: 0.5 * (first[name] + second[name]) for name in first}
    return {
        "targets": float(len(targets)),
        **named(samples, "samples"),
        **named(columns, "columns"),
        "ratio": columns["seconds"] / samples["seconds"],
        "processor_ratio": columns["processor_seconds"] / samples["processor_seconds"],
        "relative_error": float(np.sqrt(np.mean((ratio - 1.0) ** 2))),
        "stated_relative_error": sampled.relative_error,
        "mean_ratio": float(ratio.mean()),
    }


def map_job() -> Figures:
    """Run a job from the built-in field, 4,000 points observed: mean and error bars at 2 degrees."""
    from cagp_dist.service.jobfile.config import parse_job
    from cagp_dist.service.run import run
    from cagp_dist.store.zarr_arrays import read_group

    def job(root: Path, resolution: float) -> object:
        outcome = run(
            parse_job(
                f"""
                [observations]
                source = "sample"
                [design]
                train = {{ kind = "random", count = 4000, seed = 0 }}
                test = {{ kind = "random", count = 500, seed = 1 }}
                map = {{ kind = "grid", resolution_degrees = {resolution}, std_samples = 400 }}
                [prior]
                lengthscale = 0.041
                variance = 22.4
                noise_variance = 0.53
                [solver]
                name = "block-gauss-seidel"
                iterations = 5
                [output]
                root = "{root}"
                """
            )
        )
        return outcome.path

    with tempfile.TemporaryDirectory() as folder:
        job(Path(folder) / "warm", 30.0)
        spent, path = timed(lambda: job(Path(folder) / "out", 2.0))
        cells = read_group(Path(str(path)), "map").t2m_std
        return {**spent, "cells": float(cells.size), "mean_std": float(cells.mean())}


def held_out_job() -> Figures:
    """Exact job on a synthetic 721 x 1440 field, 5,000 points held out, from its store; and its fit alone."""
    from cagp_dist.service.jobfile.config import parse_job
    from cagp_dist.service.jobfile.job import Job
    from cagp_dist.service.run import fit_job, ingest_only, run

    def job(root: Path, degrees: float, count: int, numbers: str) -> Job:
        return parse_job(
            f"""
            [observations]
            source = "synthetic"
            grid_degrees = {degrees}
            [design]
            train = {{ kind = "all" }}
            test = {{ kind = "random", count = {count} }}
            [prior]
            {numbers}
            [solver]
            name = "rings"
            [output]
            root = "{root}"
            """
        )

    numbers = "lengthscale = 0.05\nvariance = 22.0\nnoise_variance = 0.5"
    with tempfile.TemporaryDirectory() as folder:
        run(job(Path(folder) / "warm", 2.0, 20, numbers))
        whole = job(Path(folder) / "out", 0.25, 5_000, numbers)
        ingest_only(whole)
        spent, _ = timed(lambda: run(whole))
        fitting, fitted = timed(lambda: fit_job(job(Path(folder) / "out", 0.25, 5_000, "")))
        return {
            **spent,
            "processor_seconds_fit": fitting["processor_seconds"],
            "likelihoods": float(fitted.result.evaluations),
        }
