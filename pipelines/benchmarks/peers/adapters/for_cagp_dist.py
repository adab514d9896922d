"""Ours: every solver through the public functions."""

from typing import Literal

import numpy as np
from harness import Array, Clock, Fit, Prediction, Problem, serve

import cagp_dist as cagp
from cagp_dist.runtime import ThreadExecutor
from cagp_dist.solvers import Solver

BLOCK_SIZE = 1024
GRADIENT_STEPS = 80


def _solve_with(solver: Solver, problem: Problem, clock: Clock) -> Prediction:
    with ThreadExecutor(problem.threads) as executor:
        with clock("build"):
            order = cagp.space_filling_order(problem.X, block_size=BLOCK_SIZE)
            kernel = cagp.Matern32(problem.lengthscale, problem.variance)
            prior = cagp.Prior(kernel, problem.noise_variance)
        with clock("solve"):
            posterior = cagp.condition(
                prior, problem.X[order], problem.y[order], problem.X_test, solver=solver, executor=executor
            )
    return Prediction(posterior.mean, np.sqrt(posterior.variance + problem.noise_variance))


def cholesky(problem: Problem, clock: Clock) -> Prediction:
    """Exact, by a dense factor."""
    return _solve_with(cagp.Cholesky(), problem, clock)


def neighbours(problem: Problem, clock: Clock) -> Prediction:
    """Kriging from neighbours with the default settings."""
    return _near(cagp.Neighbours(), problem, clock)


def neighbours_60(problem: Problem, clock: Clock) -> Prediction:
    """Predict every target by itself from as many neighbours as other programs."""
    return _near(cagp.Neighbours(60, group=1), problem, clock)


def _near(solver: Solver, problem: Problem, clock: Clock) -> Prediction:
    prior = cagp.Prior(cagp.Matern32(problem.lengthscale, problem.variance), problem.noise_variance)
    with ThreadExecutor(problem.threads) as executor, clock("predict"):
        found = cagp.condition(prior, problem.X, problem.y, problem.X_test, solver=solver, executor=executor)
    return Prediction(found.mean, np.sqrt(found.variance + problem.noise_variance))


def sweeps_2(problem: Problem, clock: Clock) -> Prediction:
    """Block Gauss-Seidel, two sweeps."""
    return _solve_with(cagp.BlockGaussSeidel(2, block_size=BLOCK_SIZE), problem, clock)


def sweeps_5(problem: Problem, clock: Clock) -> Prediction:
    """Block Gauss-Seidel, five sweeps."""
    return _solve_with(cagp.BlockGaussSeidel(5, block_size=BLOCK_SIZE), problem, clock)


def conjugate_gradient(problem: Problem, clock: Clock) -> Prediction:
    """Computation-aware conjugate gradients."""
    return _solve_with(cagp.ConjugateGradient(GRADIENT_STEPS), problem, clock)


def rings(problem: Problem, clock: Clock) -> Prediction:
    """Exact on a grid with few points left out (T28).

    With ``P = G^-1`` on the whole grid, the distribution of the left-out values m given the observed ones is
    ``N(-P_mm^-1 (P b)_m, P_mm^-1)``, where b is zero at m; noise is included.
    """
    with ThreadExecutor(problem.threads) as executor:
        with clock("build"):
            grid = cagp.LatLonGrid(problem.latitude_degrees, problem.observed.shape[1])
            kernel = cagp.Matern32(problem.lengthscale, problem.variance)
            gram = cagp.RingGram(grid, kernel, noise_variance=problem.noise_variance, executor=executor)
            gram.logdet()  # makes the factors
        with clock("solve"):
            field = np.zeros(grid.shape)
            field[problem.observed] = problem.y
            weights = gram.solve(field)[~problem.observed]
        with clock("predict"):
            points = np.zeros((len(weights), *grid.shape))
            points[np.arange(len(weights)), *np.nonzero(~problem.observed)] = 1.0
            covariance = np.linalg.inv(gram.solve(points)[:, ~problem.observed])
    return Prediction(-covariance @ weights, np.sqrt(np.diag(covariance)))


def fit_rings(problem: Problem, clock: Clock) -> Fit:
    """Maximum likelihood on the grid."""
    grid = cagp.LatLonGrid(problem.latitude_degrees, problem.observed.shape[1])
    return _fit(grid, problem.y.reshape(grid.shape), problem, clock)


def fit_dense(problem: Problem, clock: Clock) -> Fit:
    """Maximum likelihood as for points anywhere."""
    return _fit(problem.X, problem.y, problem, clock, method="dense")


def fit_vecchia(problem: Problem, clock: Clock) -> Fit:
    """Maximum of Vecchia's likelihood."""
    return _fit(problem.X, problem.y, problem, clock, method="vecchia")


def _fit(
    where: cagp.LatLonGrid | Array,
    y: Array,
    problem: Problem,
    clock: Clock,
    method: Literal["auto", "dense", "vecchia"] = "auto",
) -> Fit:
    start = {
        "lengthscale": problem.lengthscale,
        "variance": problem.variance,
        "noise_variance": problem.noise_variance,
    }
    with ThreadExecutor(problem.threads) as executor, clock("solve"):
        result = cagp.fit(
            cagp.Matern32, where, y, mean=0.0, start=start, starts=1, method=method, executor=executor
        )
    prior = result.prior
    return Fit(prior.kernel.lengthscale, prior.kernel.variance, prior.noise_variance, result.evaluations)


if __name__ == "__main__":
    serve(
        {
            "cholesky": cholesky,
            "neighbours": neighbours,
            "neighbours-60": neighbours_60,
            "sweeps-2": sweeps_2,
            "sweeps-5": sweeps_5,
            "conjugate-gradient": conjugate_gradient,
            "rings": rings,
            "fit-rings": fit_rings,
            "fit-dense": fit_dense,
            "fit-vecchia": fit_vecchia,
        }
    )
