"""Measured cases on whole latitude-longitude grids; see `pipelines.benchmarks.cases`."""

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.posterior.problem import demand_of
from cagp_dist.runtime import ThreadExecutor, single_threaded_blas
from cagp_dist.solvers import Problem
from cagp_dist.solvers.engine.adjoint import forward_passes
from cagp_dist.solvers.engine.ring_system import RingSystem
from pipelines.benchmarks import reference
from pipelines.benchmarks.measuring import Figures, peak_mebibytes

# Maximum likelihood for the built-in field, K^2.
KERNEL = cagp.Matern32(lengthscale=0.041, variance=22.4)
NOISE_VARIANCE = 0.53


def _seconds(function: object, *arguments: object) -> float:
    start = time.perf_counter()
    function(*arguments)  # type: ignore[operator]
    return time.perf_counter() - start


def _warm() -> None:
    """Compile and load everything on a tiny grid, so that seconds are those of the work."""
    grid = cagp.LatLonGrid(np.linspace(-80.0, 80.0, 5), 8)
    rings = cagp.RingGram(grid, KERNEL, noise_variance=NOISE_VARIANCE)
    rng = np.random.default_rng(0)
    field = rings.sample(rng)
    rings.leave_one_out(field)
    list(_sweeps(rings, field, 1))


def _sweeps(rings: cagp.RingGram, field: Array, iterations: int) -> Iterator[object]:
    """Forward sweeps over single rings, each followed by its mean on the whole grid."""
    problem = Problem(rings, field.reshape(-1, 1), rings.grid, full_covariance=False)
    solver = cagp.BlockGaussSeidel(iterations, block_size=1)
    with ThreadExecutor() as executor:
        demand = demand_of(problem, executor, executor.memory_bytes)
        grid = replace(demand.grid, targets_are_grid=False) if demand.grid is not None else None
        plan = solver.plan(replace(demand, q=1, grid=grid))
        system = RingSystem(problem, plan=plan, executor=executor)
        cycle = solver.cycle(rings, executor=executor, blocks=system.blocks)
        with single_threaded_blas():
            for work in forward_passes(system, cycle, problem.residuals, iterations=iterations):
                yield system.mean(work, rings.grid)


def whole_grid() -> Figures:
    """721 x 1440 points of the 0.25-degree grid, exactly: factors, solves, samples, leave-one-out, sweeps."""
    _warm()
    grid = cagp.LatLonGrid(np.linspace(-90.0, 90.0, 721), 1440)
    field = np.random.default_rng(0).standard_normal(grid.shape)
    rings = cagp.RingGram(grid, KERNEL, noise_variance=NOISE_VARIANCE)
    start = time.perf_counter()
    rings.logdet()
    factor = time.perf_counter() - start
    solution = rings.solve(field)
    first = time.perf_counter() - start
    peak = peak_mebibytes()
    residual = np.linalg.norm(rings @ solution - field) / np.linalg.norm(field)
    figures = {
        "seconds_factor_logdet": factor,
        "seconds_factor_logdet_solve": first,
        "peak_mebibytes_factor_logdet_solve": peak,
        "relative_residual": float(residual),
        "seconds_solve": min(_seconds(rings.solve, field) for _ in range(3)),
        "seconds_leave_one_out": _seconds(rings.leave_one_out, field),
    }
    rng = np.random.default_rng(1)
    figures["seconds_first_sample"] = _seconds(rings.sample, rng)
    figures["seconds_sample"] = min(_seconds(rings.sample, rng) for _ in range(3))
    del rings
    fresh = cagp.RingGram(grid, KERNEL, noise_variance=NOISE_VARIANCE)
    sweeps = _sweeps(fresh, field, 4)
    next(sweeps)  # makes the blocks
    figures["seconds_sweep"] = min(_seconds(next, sweeps) for _ in range(3))
    return figures


def grid_likelihood() -> Figures:
    """Likelihood and gradient on 72 x 144 points: ours, and dense Cholesky of the same 10,368 points."""
    from cagp_dist.likelihood.exact.ring_likelihood import RingLikelihood
    from cagp_dist.likelihood.numbering import Numbering

    _warm()
    grid = cagp.LatLonGrid(np.linspace(-88.75, 88.75, 72), 144)
    rings = cagp.RingGram(grid, KERNEL, noise_variance=NOISE_VARIANCE)
    field = rings.sample(np.random.default_rng(0), noise=True)
    lengthscale, variance, ratio = KERNEL.lengthscale, KERNEL.variance, NOISE_VARIANCE / KERNEL.variance
    with ThreadExecutor() as executor:
        likelihood = RingLikelihood(
            cagp.Matern32, grid, field[None], executor=executor, memory_limit_bytes=2**30
        )
        found = likelihood.evaluate(lengthscale, ratio)
        ours = min(_seconds(likelihood.evaluate, lengthscale, ratio) for _ in range(20))
    start = time.perf_counter()
    value, gradient = reference.likelihood(
        grid.points,
        field.ravel(),
        lengthscale=lengthscale,
        variance=variance,
        noise_variance=NOISE_VARIANCE,
    )
    dense = time.perf_counter() - start
    if abs(found.log_likelihood(variance) - value) > 1e-8 * abs(value):
        raise SystemExit(f"likelihoods differ: {found.log_likelihood(variance)!r} and {value!r}")
    ring_gradient = Numbering().natural.T @ found.gradient(variance)
    if np.abs(ring_gradient - gradient).max() > 1e-6 * np.abs(gradient).max():
        raise SystemExit(f"gradients differ: {ring_gradient!r} and {gradient!r}")
    return {"seconds": ours, "seconds_dense": dense, "ratio": dense / ours}


@lru_cache
def sample_field() -> tuple[cagp.LatLonGrid, Array]:
    """Return the built-in field without its pole rows, minus a quadratic in latitude."""
    import tempfile
    from pathlib import Path

    from cagp_dist.fields.sources import open_source

    with tempfile.TemporaryDirectory() as folder:
        field = open_source("sample", cache_directory=Path(folder)).load()
    inner = field.isel(time=0, latitude=slice(1, -1))
    grid = cagp.LatLonGrid(inner["latitude"].values, inner.sizes["longitude"])
    values = inner["t2m"].values.astype(np.float64)
    powers = np.vander(grid.latitude_degrees / 90.0, 3)
    root = np.sqrt(cagp.area_weights(grid.latitude_degrees))
    zonal = values.mean(axis=1)
    coefficients = np.linalg.lstsq(root[:, None] * powers, root * zonal, rcond=None)[0]
    return grid, values - (powers @ coefficients)[:, None]


def grid_fit() -> Figures:
    """Fit of three hyperparameters to the built-in field without poles, 114,720 points."""
    _warm()
    grid, residual = sample_field()
    start = time.perf_counter()
    result = cagp.fit(cagp.Matern32, grid, residual, mean=0.0)
    return {
        "seconds": time.perf_counter() - start,
        "points": float(grid.size),
        "evaluations": float(result.evaluations),
        "lengthscale": result.prior.kernel.lengthscale,
        "variance": result.prior.kernel.variance,
        "noise_variance": result.prior.noise_variance,
        "ok": float(result.status.ok),
    }
