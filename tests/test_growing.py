"""Data that grow: the posterior is that of all stages on all data, as they came (math 14)."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import chi2

import cagp_dist as cagp
from cagp_dist import growing
from cagp_dist.errors import ArgumentError, BudgetError
from cagp_dist.runtime import SerialExecutor, ThreadExecutor
from cagp_dist.solvers.affine import Affine

from .conformance.registered import POINT_SOLVERS
from .oracle import assert_close, assert_same_bits, compose, downdate
from .problems import RegressionProblem, regression_problem
from .solvers.engine import solver_matrix
from .solvers.stages import dense_stage

pytestmark = pytest.mark.usefixtures("one_blas_thread")

PARTS = ((0, 50), (50, 51), (51, 130))
SOLVERS = {
    name: solver
    for name, solver in POINT_SOLVERS.items()
    if isinstance(solver, Affine) and "blocks of 3" not in name
}
"""Blocks of 40, or one block: many small ones only take longer here."""
every_solver = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS.keys())


@pytest.fixture(scope="module")
def problem() -> RegressionProblem:
    return regression_problem(130, q=17, lengthscale=0.3, noise_variance=0.05)


def grown(problem: RegressionProblem, solver, *, y=None, executor=None, **settings) -> cagp.GrowingData:
    """A stream after three parts of the data."""
    y = problem.y if y is None else y
    stream = cagp.GrowingData(
        problem.prior, problem.X_test, solver=solver, executor=executor or SerialExecutor(), **settings
    )
    for start, stop in PARTS:
        stream.append(problem.X[start:stop], y[start:stop])
    return stream


def padded(stage, n: int, *, first: int = 0):
    """A stage on some consecutive points, as one on n points."""
    whole = np.zeros((n, n))
    stop = first + len(stage)
    whole[first:stop, first:stop] = stage
    return whole


def dense_phases(G, phases) -> list[np.ndarray]:
    """Stages of phases (solver, n, first) as matrices of all points."""
    return [
        padded(dense_stage(solver, G[first:n, first:n]), len(G), first=first)
        for solver, n, first in phases
        for _ in range(solver.iterations)
    ]


@every_solver
def test_it_is_the_belief_of_all_stages_padded_with_zeros_t36(problem, solver):
    """``A_pad = [[A, 0], [0, 0]]`` of every call, with A the matrix of its solver; by the recursion (2)."""
    dense = problem.dense
    parts = [dataclasses.replace(problem, X=problem.X[:stop], y=problem.y[:stop]) for _, stop in PARTS]
    A, D, _ = compose(dense.G, [padded(solver_matrix(part, solver), 130) for part in parts])
    stream = grown(problem, solver)
    posterior = stream.posterior(covariance="full")
    mean, covariance = dense.belief(A)
    assert_close(posterior.mean, mean)
    assert_close(posterior.covariance, covariance)
    assert_close(dense.V @ D @ dense.V.T, dense.V @ downdate(A, dense.G) @ dense.V.T)
    assert_close(stream.mean(), mean)
    np.testing.assert_array_equal(posterior.covariance.diagonal(), posterior.variance)
    assert posterior.stats.iterations == 3 * solver.iterations
    assert posterior.status is problem.condition(solver).status


@every_solver
def test_one_part_is_the_plain_solve(problem, solver):
    stream = cagp.GrowingData(problem.prior, problem.X_test, solver=solver, executor=SerialExecutor())
    stream.append(problem.X, problem.y)
    posterior, plain = stream.posterior(covariance="full"), problem.condition(solver)
    for name in ("mean", "variance", "covariance"):
        np.testing.assert_array_equal(getattr(posterior, name), getattr(plain, name))
    assert posterior.stats.downdate_psd == plain.stats.downdate_psd
    np.testing.assert_array_equal(
        posterior.computational_variance_bounds, plain.computational_variance_bounds
    )


@pytest.mark.parametrize(
    "solver", [cagp.BlockGaussSeidel(2, block_size=20), cagp.SSOR(1, relaxation=1.2)], ids=["blocks", "ssor"]
)
def test_sweeps_may_visit_the_new_blocks_alone(problem, solver):
    """Those that hold a new point: of 20 points, or tiles of 512 where points are solved one by one."""
    dense = problem.dense
    stream = cagp.GrowingData(problem.prior, problem.X_test, solver=solver, executor=SerialExecutor())
    phases = []
    for start, stop in PARTS:
        stream.append(problem.X[start:stop], problem.y[start:stop], new_blocks=True)
        phases.append((solver, stop, start // 20 * 20 if isinstance(solver, cagp.BlockGaussSeidel) else 0))
    stream.advance(cagp.BlockGaussSeidel(1, block_size=33))
    phases.append((cagp.BlockGaussSeidel(1, block_size=33), 130, 0))
    A, _, _ = compose(dense.G, dense_phases(dense.G, phases))
    mean, covariance = dense.belief(A)
    posterior = stream.posterior(covariance="full")
    assert_close(posterior.mean, mean)
    assert_close(stream.mean(), mean)
    assert_close(posterior.covariance, covariance)


def test_a_sweep_of_the_new_blocks_for_each_part_is_one_sweep_of_them_all(problem):
    """Where parts are of whole blocks: Gauss-Seidel visits a block when all before it are solved."""
    solver = cagp.BlockGaussSeidel(1, block_size=26)
    stream = cagp.GrowingData(problem.prior, problem.X_test, solver=solver, executor=SerialExecutor())
    for start in range(0, 130, 26):
        stream.append(problem.X[start : start + 26], problem.y[start : start + 26], new_blocks=True)
    posterior, plain = stream.posterior(covariance="full"), problem.condition(solver)
    assert_close(posterior.mean, plain.mean, relative=1e-12)
    assert_close(posterior.covariance, plain.covariance, relative=1e-12)


def test_random_orders_are_the_same_forwards_and_backwards(problem):
    stream = grown(problem, cagp.BlockGaussSeidel(3, block_size=20, order="random", seed=4))
    assert_close(stream.mean(), stream.posterior().mean)
    stream.advance(cagp.GaussSeidel(2, order="random"))
    assert_close(stream.mean(), stream.posterior().mean)


def test_the_stated_variance_is_that_of_the_error():
    """Over 1,000 fields of the prior, for three sets of points: at every target, and jointly.

    The mean of N squared errors over their variance is one, with a standard error of sqrt(2 / N): 36 of them
    within 4.5. The sum of q N whitened ones is chi-square: within both 1e-5 quantiles.
    """
    for seed in range(3):
        problem = regression_problem(130, q=12, lengthscale=0.4, noise_variance=0.05, seed=seed)
        prior = cagp.Prior(problem.prior.kernel, noise_variance=0.05)
        points = np.concatenate([problem.X, problem.X_test])
        root = np.linalg.cholesky(prior.kernel(points, points) + 1e-10 * np.eye(len(points)))
        rng = np.random.default_rng([seed, 7])
        fields = root @ rng.normal(size=(len(points), 1000))
        y = fields[:130] + np.sqrt(0.05) * rng.normal(size=(130, 1000))
        stream = grown(RegressionProblem(prior, problem.X, y, problem.X_test), cagp.BlockGaussSeidel(1, 20))
        posterior = stream.posterior(covariance="full")
        errors = posterior.mean - fields[130:]
        ratios = (errors**2).mean(axis=1) / posterior.variance
        assert (np.abs(ratios - 1.0) < 4.5 * np.sqrt(2.0 / 1000)).all()
        whitened = np.linalg.solve(np.linalg.cholesky(posterior.covariance), errors)
        assert 1e-5 < chi2.sf((whitened**2).sum(), whitened.size) < 1.0 - 1e-5


def test_it_does_not_matter_where_it_runs_nor_how_many_targets_go_together(problem, monkeypatch):
    solver = cagp.BlockGaussSeidel(2, block_size=20)
    reference = grown(problem, solver).posterior()
    with ThreadExecutor(3) as executor:
        stream = grown(problem, solver, executor=executor)
        assert_same_bits(stream.posterior(), reference)
        np.testing.assert_array_equal(stream.mean(), grown(problem, solver).mean())
    monkeypatch.setattr(growing, "TARGETS_AT_ONCE", 5)
    parts = grown(problem, solver).posterior()
    assert parts.stats.plan.solves == 4 * 3
    assert_close(parts.mean, reference.mean, relative=1e-12)
    assert_close(parts.variance, reference.variance, relative=1e-12)


def test_targets_may_be_a_grid_cells_or_functionals_and_fields_several():
    grid = cagp.LatLonGrid(np.linspace(-60.0, 60.0, 3), 4)
    rng = np.random.default_rng(0)
    X, y = cagp.unit_sphere(rng.uniform(-80, 80, 40), rng.uniform(0, 360, 40)), rng.normal(size=(40, 2))
    noise = rng.uniform(0.05, 0.2, 40)
    kernel, solver = cagp.Matern32(0.5), cagp.GaussSeidel(2)
    cells = cagp.cell_means(np.linspace(-90.0, 90.0, 4), np.linspace(0.0, 360.0, 5))
    difference = cagp.LinearFunctionals(X[:2], [1.0, -1.0])
    for targets in (grid, cells, difference):
        stream = cagp.GrowingData(cagp.Prior(kernel, 1.0), targets, solver=solver)
        stream.append(X, y, noise_variance=noise)
        plain = cagp.condition(cagp.Prior(kernel, noise), X, y, targets, solver=solver)
        posterior = stream.posterior()
        np.testing.assert_array_equal(posterior.mean, plain.mean)
        np.testing.assert_array_equal(posterior.variance, plain.variance)
        assert_close(stream.mean(), plain.mean)
        assert posterior.stats.iterations_by_target.shape == plain.variance.shape


def test_one_block_of_all_points_is_exact(problem):
    stream = grown(problem, cagp.BlockGaussSeidel(1, block_size=130))
    posterior = stream.posterior(covariance="full")
    assert posterior.status is cagp.Status.EXACT
    mean, covariance = problem.dense.exact()
    assert_close(posterior.mean, mean)
    assert_close(posterior.covariance, covariance)
    stream.append([[0.5, 0.5]], [1.0], solver=cagp.BlockGaussSeidel(0))
    assert stream.posterior().status is cagp.Status.COMPLETED


def test_the_plan_counts_what_it_takes(traced):
    problem = regression_problem(900, q=180, lengthscale=0.3)
    stream = cagp.GrowingData(
        problem.prior,
        problem.X_test,
        solver=cagp.BlockGaussSeidel(1, block_size=100),
        executor=SerialExecutor(),
    )
    for start in range(0, 900, 300):
        stream.append(problem.X[start : start + 300], problem.y[start : start + 300])
    posterior, peak = traced(stream.posterior)
    assert 0.3 * posterior.stats.plan.peak_bytes < peak < posterior.stats.plan.peak_bytes


def test_no_targets_and_no_stages(problem):
    stream = cagp.GrowingData(problem.prior, problem.X_test[:0], solver=cagp.GaussSeidel(1))
    stream.append(problem.X, problem.y)
    assert stream.posterior().mean.shape == stream.mean().shape == (0,)
    stream = cagp.GrowingData(problem.prior, problem.X_test, solver=cagp.GaussSeidel(0))
    stream.append(problem.X, problem.y)
    posterior = stream.posterior()
    np.testing.assert_array_equal(posterior.mean, problem.dense.centre)
    assert (posterior.variance == 2.0).all()
    assert len(posterior.trace) == 1


def test_arrays_of_the_caller_may_change_later(problem):
    X, y, X_test = problem.X.copy(), problem.y.copy(), problem.X_test.copy()
    stream = cagp.GrowingData(problem.prior, X_test, solver=cagp.GaussSeidel(1), executor=SerialExecutor())
    stream.append(X, y)
    before, mean = stream.posterior(), stream.mean()
    for array in (X, y, X_test):
        array[:] = 0.0
    assert_same_bits(stream.posterior(), before)
    np.testing.assert_array_equal(stream.mean(), mean)


def test_what_is_wrong_is_said_and_changes_nothing(problem):
    def stream(**settings):
        settings = {"solver": cagp.GaussSeidel(1), **settings}
        return cagp.GrowingData(problem.prior, problem.X_test, **settings)

    with pytest.raises(ArgumentError, match="stages can be appended to those of affine solvers"):
        stream(solver=cagp.Cholesky())
    with pytest.raises(ArgumentError, match="solver has a computational_share"):
        stream(solver=cagp.GaussSeidel(3, computational_share=0.1))
    for call in (stream().mean, stream().posterior, stream().advance):
        with pytest.raises(ArgumentError, match=r"nothing was observed yet; append\(X, y\) first"):
            call()
    begun = stream()
    begun.append(problem.X[:9], problem.y[:9])
    before = begun.posterior()
    for X, y, text in [
        (np.zeros((2, 3)), [1.0, 2.0], r"X has shape \(2, 3\); expected \(k, 2\)"),
        (problem.X[:2], [1.0], r"y has shape \(1,\); expected \(2,\), as many fields as before"),
        (problem.X[:2], np.ones((2, 3)), r"y has shape \(2, 3\); expected \(2,\), as many"),
        (problem.X[:2], [1.0, np.nan], "y holds NaN or infinity; append only what was observed"),
    ]:
        with pytest.raises(ArgumentError, match=text):
            begun.append(X, y)
    with pytest.raises(ArgumentError, match=r"noise_variance has shape \(3,\); expected \(2,\)"):
        begun.append(problem.X[:2], [1.0, 2.0], noise_variance=np.ones(3))
    for solver in (cagp.Jacobi(1), cagp.BlockGaussSeidel(1, 3, order="multicolour")):
        with pytest.raises(ArgumentError, match="does not visit blocks one after the other"):
            begun.append(problem.X[:2], [1.0, 2.0], solver=solver, new_blocks=True)
    with pytest.raises(ArgumentError, match=r'covariance is "half"|covariance is .half.'):
        begun.posterior(covariance="half")
    own = cagp.GrowingData(
        cagp.Prior(cagp.Matern32(0.3), np.full(3, 0.1)), problem.X_test, solver=cagp.GaussSeidel(1)
    )
    with pytest.raises(ArgumentError, match="the prior has a noise_variance for each of other points"):
        own.append(problem.X[:3], problem.y[:3])
    wide = cagp.Prior(cagp.Matern32(0.3), 0.1, mean=lambda X: np.ones((len(X), 3)))
    two = cagp.GrowingData(wide, problem.X_test, solver=cagp.GaussSeidel(1))
    with pytest.raises(ArgumentError, match="the prior mean has 3 columns for 2 fields; expected one"):
        two.append(problem.X[:3], np.ones((3, 2)))
    small = stream(memory_limit_bytes=20_000)
    with pytest.raises(BudgetError):
        small.append(problem.X, problem.y)
    assert small.n == 0
    assert begun.n == 9
    assert_same_bits(begun.posterior(), before)
