"""Results of version 0.1 before its solvers got one engine, reproduced to 1e-12 of the scale of each array.

The file was written by that version from the problems below: points, whole grids, grids with gaps, several
fields, every solver, with its covariance and its trace.
"""

from pathlib import Path

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.runtime import SerialExecutor

SAVED = np.load(Path(__file__).parent / "data" / "results_0_1.npz")
KERNELS = {
    "m12": cagp.Matern12(0.4, 2.0),
    "m32": cagp.Matern32(0.4, 2.0),
    "se": cagp.SquaredExponential(0.3, 2.0),
}
SOLVERS = {
    "gs": cagp.GaussSeidel(4),
    "bgs": cagp.BlockGaussSeidel(3, block_size=64),
    "one": cagp.BlockGaussSeidel(1, block_size=300),
    "cg": cagp.ConjugateGradient(12),
    "rand": cagp.RandomActions(10, seed=4),
    "chol": cagp.Cholesky(),
}
GRIDS = {
    "mirrored": cagp.LatLonGrid(np.linspace(-80.0, 80.0, 9), 12),
    "poles": cagp.LatLonGrid(np.linspace(90.0, -90.0, 7), 10),
    "odd": cagp.LatLonGrid([-61.0, -20.0, 3.0, 40.0, 77.0], 9, first_longitude_degrees=-180.0),
}
TARGETS = cagp.unit_sphere([0.0, 12.3, -80.0, 90.0, 40.0], [0.0, 111.1, 30.0, 5.0, -140.0])


def same(found, key):
    """Equal to 1e-12 of the largest entry."""
    expected = SAVED[key]
    np.testing.assert_allclose(
        found, expected, rtol=0.0, atol=1e-12 * max(1.0, np.abs(expected).max()), err_msg=key
    )


def points_problem():
    rng = np.random.default_rng(7)
    X = rng.standard_normal((300, 3))
    X /= np.linalg.norm(X, axis=1)[:, None]
    X = X[cagp.space_filling_order(X, block_size=64)]
    X_test = rng.standard_normal((17, 3))
    X_test /= np.linalg.norm(X_test, axis=1)[:, None]
    return X, 5.0 + rng.standard_normal((300, 2)), X_test


def prior_of(kernel):
    return cagp.Prior(kernel, 0.05, mean=lambda X: 5.0 + X[:, 2])


def fields_of(grid):
    return 2.0 + np.random.default_rng(3).standard_normal((2, *grid.shape))


def gappy(grid):
    observed = np.ones(grid.shape, dtype=bool)
    observed[2, 3:6] = False
    observed[4, 0] = False
    return observed


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", SOLVERS)
def test_points(kernel, name):
    X, y, X_test = points_problem()
    y = y[:, 0] if name == "cg" else y
    prior, solver, key = prior_of(KERNELS[kernel]), SOLVERS[name], f"points/{kernel}/{name}"
    posterior = cagp.condition(prior, X, y, X_test, solver=solver)
    same(posterior.mean, f"{key}/mean")
    same(posterior.variance, f"{key}/variance")
    same(np.stack([step.mean for step in posterior.trace]), f"{key}/trace_mean")
    same(np.stack([step.variance for step in posterior.trace]), f"{key}/trace_variance")
    full = cagp.condition(prior, X, y, X_test, solver=solver, covariance="full")
    same(full.covariance, f"{key}/covariance")
    if name in ("gs", "bgs"):
        same(cagp.posterior_mean(prior, X, y, X_test, solver=solver), f"{key}/forward")


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("gaps_too", [False, True], ids=["whole", "gaps"])
def test_exact_on_grids(name, gaps_too):
    grid, prior, key = GRIDS[name], prior_of(KERNELS["m32"]), f"grid/{name}/{'gaps' if gaps_too else 'whole'}"
    fields = fields_of(grid)
    if gaps_too:
        fields[:, ~gappy(grid)] = np.nan
    posterior = cagp.condition(prior, grid, fields, TARGETS, solver=cagp.Rings(), covariance="full")
    same(posterior.mean, f"{key}/mean")
    same(posterior.variance, f"{key}/variance")
    same(posterior.covariance, f"{key}/covariance")
    same(cagp.condition(prior, grid, fields, TARGETS, solver=cagp.Rings()).variance, f"{key}/diagonal")


def test_exact_with_gaps_is_what_iterations_gave():
    grid = GRIDS["odd"]
    fields = fields_of(grid)
    fields[:, ~gappy(grid)] = np.nan
    posterior = cagp.condition(prior_of(KERNELS["m32"]), grid, fields, TARGETS, solver=cagp.Rings())
    # those were to a relative residual of 1e-10
    np.testing.assert_allclose(posterior.mean, SAVED["many/odd/mean"], rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(posterior.variance, SAVED["many/odd/variance"], rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("name", ["mirrored", "odd"])
@pytest.mark.parametrize("width", [1, 2, 3])
def test_sweeps_over_bands_of_rings(name, width):
    grid, prior = GRIDS[name], prior_of(KERNELS["m32"])
    solver = cagp.BlockGaussSeidel(3, block_size=width * grid.n_longitudes)
    posterior = cagp.condition(prior, grid, fields_of(grid), grid, solver=solver)
    centre = prior.mean_at(grid.points).reshape(grid.shape)
    for iteration in (1, 2, 3):
        step, key = posterior.trace[iteration], f"sweep/{name}/{width}/{iteration}"
        same(step.mean - centre, f"{key}/mean")
        same(step.variance, f"{key}/variance")
    mean = cagp.posterior_mean(prior, grid, fields_of(grid), grid, solver=solver)
    same(mean - centre, f"sweep/{name}/{width}/3/mean")


@pytest.mark.parametrize("name", ["mirrored", "odd"])
def test_conjugate_gradients_on_grids(name):
    grid, prior = GRIDS[name], prior_of(KERNELS["m32"])
    posterior = cagp.condition(prior, grid, fields_of(grid)[0], grid, solver=cagp.ConjugateGradient(6))
    centre = prior.mean_at(grid.points).reshape(grid.shape)
    for iteration in range(1, 7):
        same(posterior.trace[iteration].mean - centre, f"cg/{name}/{iteration}/mean")
        same(posterior.trace[iteration].variance, f"cg/{name}/{iteration}/variance")


@pytest.mark.parametrize("name", GRIDS)
def test_whole_grids(name):
    grid, prior, key = GRIDS[name], prior_of(KERNELS["m32"]), f"rings/{name}"
    rings = cagp.RingGram(grid, prior.kernel, noise_variance=0.05)
    b = fields_of(grid) - prior.mean_at(grid.points).reshape(grid.shape)
    same(rings.logdet(), f"{key}/logdet")
    left_out = rings.leave_one_out(b)
    same(left_out.mean, f"{key}/loo_mean")
    same(left_out.variance, f"{key}/loo_variance")
    same(rings.sample(np.random.default_rng(0), fields=2), f"{key}/sample")
    same(rings.sample(np.random.default_rng(0), noise=True), f"{key}/sample_noise")
    if name != "poles":  # there, condition() takes a pole for one observation
        exact = cagp.condition(prior, grid, fields_of(grid), grid, solver=cagp.Rings())
        same(exact.mean - prior.mean_at(grid.points).reshape(grid.shape), f"{key}/mean")
        same(exact.variance, f"{key}/variance")
    masked = cagp.MaskedRings(rings, gappy(grid))
    weights = masked.exact(executor=SerialExecutor()).weights(b[0][gappy(grid)][:, None])
    same(weights[:, 0], f"masked/{name}/solve")
