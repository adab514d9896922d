"""Every solver against an independent dense formula, mean and full covariance, to 1e-9 relative."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cagp_dist as cagp
from cagp_dist.runtime import ThreadExecutor

from ..joined import one_after_another
from ..oracle import (
    KERNELS,
    KERNELS_AND_SUMS,
    algorithm_2,
    assert_close,
    block_stage,
    compose,
    conjugate_gradients,
    point_stage,
)
from ..pairwise import by_turns
from ..problems import regression_problem
from .stages import Diverging, dense_cycles, dense_stage, weight

pytestmark = pytest.mark.usefixtures("one_blas_thread")

BLOCK_SIZES = [1, 7, 64, 100, 300]

dimensions = pytest.mark.parametrize("p", [2, 3])


def assert_belief(posterior, expected):
    mean, covariance = expected
    assert_close(posterior.mean, mean)
    assert_close(posterior.covariance, covariance)
    assert_close(posterior.variance, covariance.diagonal())


@pytest.mark.parametrize(
    ("p", "kernel_class", "iterations"),
    by_turns({"p": [2, 3], "kernel_class": KERNELS_AND_SUMS, "iterations": [1, 2, 5]}),
)
def test_gauss_seidel(p, kernel_class, iterations):
    problem = regression_problem(p=p, kernel_class=kernel_class)
    dense = problem.dense
    posterior = problem.condition(cagp.GaussSeidel(iterations))
    A, D, _ = compose(dense.G, [point_stage(dense.G)] * iterations)
    assert_belief(posterior, dense.belief(A))
    assert_close(posterior.covariance, dense.K2 - dense.V @ D @ dense.V.T)
    mean, downdate = algorithm_2(dense.G, dense.V, dense.b, iterations)
    assert_belief(posterior, (dense.centre + mean, dense.K2 - downdate))


@pytest.mark.parametrize(
    ("p", "kernel_class", "block_size", "iterations"),
    by_turns(
        {"p": [2, 3], "kernel_class": KERNELS_AND_SUMS, "block_size": BLOCK_SIZES, "iterations": [1, 3]}
    ),
)
def test_block_gauss_seidel(p, kernel_class, block_size, iterations):
    problem = regression_problem(p=p, kernel_class=kernel_class)
    dense = problem.dense
    A, D, _ = compose(dense.G, [block_stage(dense.G, block_size)] * iterations)
    posterior = problem.condition(cagp.BlockGaussSeidel(iterations, block_size=block_size))
    assert_belief(posterior, dense.belief(A))
    assert_close(posterior.covariance, dense.K2 - dense.V @ D @ dense.V.T)
    exact = block_size == 300
    assert posterior.status is (cagp.Status.EXACT if exact else cagp.Status.COMPLETED)
    if exact:
        assert_belief(posterior, dense.exact())


RELAXED = {
    "SOR over": lambda m: cagp.SOR(m, relaxation=1.6),
    "SOR in random order": lambda m: cagp.SOR(m, relaxation=1.6, order="random"),
    "blocks in random order": lambda m: cagp.BlockGaussSeidel(m, 64, order="random", seed=2),
    "blocks by colours": lambda m: cagp.BlockGaussSeidel(m, 32, order="multicolour", colours=3),
    "SOR under": lambda m: cagp.SOR(m, relaxation=0.5),
    "SSOR over": lambda m: cagp.SSOR(m, relaxation=1.6),
    "SSOR under": lambda m: cagp.SSOR(m, relaxation=0.5),
    "Jacobi": lambda m: cagp.Jacobi(m),
    "Jacobi damped": lambda m: cagp.Jacobi(m, damping=0.009),
    "diverging": lambda m: Diverging(m, damping=0.05),
    "Richardson": lambda m: cagp.Richardson(m),
    "Richardson of a step": lambda m: cagp.Richardson(m, step=0.005),
    "Chebyshev": lambda m: cagp.Chebyshev(m),
    "BlockJacobi": lambda m: cagp.BlockJacobi(m, block_size=64),
    "BlockJacobi of 7": lambda m: cagp.BlockJacobi(m, block_size=7),
    "BlockJacobi damped": lambda m: cagp.BlockJacobi(m, block_size=100, damping=0.6),
    "TwoLevelBlockGaussSeidel": lambda m: cagp.TwoLevelBlockGaussSeidel(m, block_size=64, coarse=10),
    "TwoLevelBlockJacobi": lambda m: cagp.TwoLevelBlockJacobi(m, block_size=7, coarse=30, damping=0.2),
}


@one_after_another
@pytest.mark.parametrize(
    ("name", "kernel_class", "p", "iterations", "workers"),
    by_turns(
        {
            "name": list(RELAXED),
            "kernel_class": KERNELS,
            "p": [2, 3],
            "iterations": [1, 2, 5],
            "workers": [1, 3],
        }
    ),
)
def test_relaxed_solvers(name, kernel_class, p, iterations, workers):
    problem = regression_problem(p=p, kernel_class=kernel_class)
    dense, solver = problem.dense, RELAXED[name](iterations)
    A, D, _ = compose(dense.G, dense_cycles(solver, dense.G))
    with ThreadExecutor(workers) as executor:
        posterior = problem.condition(solver, executor=executor)
        alone = problem.condition(solver, executor=executor, covariance="diagonal")
        forward = cagp.posterior_mean(
            problem.prior, problem.X, problem.y, problem.X_test, solver=solver, executor=executor
        )
    assert_belief(posterior, dense.belief(A))
    assert_close(posterior.covariance, dense.K2 - dense.V @ D @ dense.V.T)
    assert_close(alone.variance, posterior.variance, relative=1e-12)
    assert_close(forward, posterior.mean)
    # updates that go too far raise variances above the prior's, which is calibrated and no success
    above = (posterior.variance > problem.prior.kernel.variance).any()
    assert above <= (name == "diverging")
    assert posterior.status is (cagp.Status.DIVERGED if above else cagp.Status.COMPLETED)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "solver",
    [
        cagp.SOR(2, 1.5),
        cagp.SSOR(2, 1.5),
        cagp.SOR(2, 1.5, order="random"),
        cagp.BlockGaussSeidel(2, 100, order="random", seed=3),
        cagp.BlockGaussSeidel(2, 100, order="multicolour"),
        cagp.Jacobi(3),
        cagp.Jacobi(2, damping=0.005),
        cagp.BlockJacobi(2, 300),
        cagp.Chebyshev(3),
        cagp.BlockJacobi(2, 600, damping=0.7),
        cagp.TwoLevelBlockGaussSeidel(2, 300, coarse=40),
    ],
    ids=repr,
)
@pytest.mark.parametrize(
    ("n", "workers"),
    [
        (620, 5),
        pytest.param(700, 1, marks=pytest.mark.exhaustive),
        pytest.param(1100, 2, marks=pytest.mark.exhaustive),
        pytest.param(1100, 5, marks=pytest.mark.exhaustive),
    ],
)
def test_relaxed_solvers_do_not_see_tiles_panels_and_groups_of_columns(solver, n, workers):
    """Several tiles of 512, panels, and for 520 test points two groups of columns.

    At a lengthscale at which rounding does not decide which points the coarse space is made of.
    """
    problem = regression_problem(n, q=520, p=3, lengthscale=0.3)
    dense = problem.dense
    A, _, _ = compose(dense.G, dense_cycles(solver, dense.G))
    mean, covariance = dense.belief(A)
    with ThreadExecutor(workers) as executor:
        posterior = problem.condition(solver, executor=executor, covariance="diagonal")
    assert posterior.stats.plan.panels > 1 or workers == 1
    assert len(posterior.stats.plan.batches[0]) == 2
    assert_close(posterior.mean, mean)
    assert_close(posterior.variance, covariance.diagonal())


def test_damping_that_is_too_large_gives_a_larger_variance_and_not_a_wrong_one():
    """W is not positive semidefinite: the covariance is right and may exceed the prior's (math 1.4)."""
    problem = regression_problem(60, q=20)
    dense = problem.dense
    for solver in (Diverging(2, damping=1.0), Diverging(2, damping=0.5)):
        assert np.linalg.eigvalsh(weight(solver, dense.G)).min() < 0.0
        A, _, _ = compose(dense.G, [dense_stage(solver, dense.G)] * 2)
        posterior = problem.condition(solver)
        assert_belief(posterior, dense.belief(A))
        assert (posterior.variance > problem.prior.kernel.variance).any()


@pytest.mark.parametrize(
    ("p", "kernel_class", "iterations"),
    by_turns({"p": [2, 3], "kernel_class": KERNELS_AND_SUMS, "iterations": [1, 5, 20]}),
)
def test_conjugate_gradient(p, kernel_class, iterations):
    problem = regression_problem(p=p, kernel_class=kernel_class)
    dense = problem.dense
    iterates, S = conjugate_gradients(dense.G, dense.b, iterations)
    posterior = problem.condition(cagp.ConjugateGradient(iterations))
    assert_belief(posterior, dense.projected(S / np.linalg.norm(S, axis=0)))
    assert_close(posterior.mean, dense.centre + dense.V @ iterates[-1])
    residual = np.linalg.norm(dense.b - dense.G @ iterates[-1]) / np.linalg.norm(dense.b)
    assert posterior.stats.relative_residual == pytest.approx(residual, rel=1e-9)


@pytest.mark.parametrize(
    ("p", "kernel_class", "iterations"),
    by_turns({"p": [2, 3], "kernel_class": KERNELS_AND_SUMS, "iterations": [1, 6, 30]}),
)
def test_random_actions(p, kernel_class, iterations):
    problem = regression_problem(p=p, kernel_class=kernel_class)
    S = np.random.default_rng(11).standard_normal((300, iterations))
    posterior = problem.condition(cagp.RandomActions(iterations, seed=11))
    assert_belief(posterior, problem.dense.projected(S))


@pytest.mark.parametrize(("p", "kernel_class"), by_turns({"p": [2, 3], "kernel_class": KERNELS_AND_SUMS}))
def test_cholesky(p, kernel_class):
    problem = regression_problem(p=p, kernel_class=kernel_class)
    posterior = problem.condition(cagp.Cholesky())
    assert_belief(posterior, problem.dense.exact())
    assert posterior.status is cagp.Status.EXACT


@one_after_another
@pytest.mark.parametrize(
    "solver",
    [
        cagp.GaussSeidel(0),
        cagp.BlockGaussSeidel(0, 7),
        cagp.SOR(0, 1.5),
        cagp.SSOR(0, 1.5),
        cagp.Jacobi(0),
        cagp.BlockJacobi(0, 7),
        cagp.Richardson(0),
        cagp.Chebyshev(0),
        cagp.TwoLevelBlockGaussSeidel(0, 7),
        cagp.TwoLevelBlockJacobi(0, 7),
        cagp.ConjugateGradient(0),
        cagp.RandomActions(0),
    ],
)
def test_no_iteration_is_the_prior(solver):
    problem = regression_problem(p=3)
    posterior = problem.condition(solver)
    dense = problem.dense
    np.testing.assert_array_equal(posterior.mean, dense.centre)
    assert (posterior.variance == problem.prior.kernel.variance).all()
    assert_close(posterior.covariance, dense.K2, relative=1e-13)
    assert posterior.status is cagp.Status.COMPLETED
    assert [step.iteration for step in posterior.trace] == [0]


@dimensions
def test_one_block_is_exact_after_one_sweep_and_stays(p):
    problem = regression_problem(p=p)
    for solver in (cagp.BlockGaussSeidel(1, 300), cagp.BlockGaussSeidel(4, 10_000)):
        posterior = problem.condition(solver)
        assert posterior.status is cagp.Status.EXACT
        for step in posterior.trace[1:]:
            assert_close(step.mean, problem.dense.exact()[0])
        assert_belief(posterior, problem.dense.exact())


@dimensions
@pytest.mark.parametrize("iterations", [1, 4])
def test_blocks_of_one_point_are_point_gauss_seidel(p, iterations):
    problem = regression_problem(p=p)
    blocks = problem.condition(cagp.BlockGaussSeidel(iterations, block_size=1))
    points = problem.condition(cagp.GaussSeidel(iterations))
    for step, other in zip(blocks.trace, points.trace, strict=True):
        assert_close(step.mean, other.mean)
        assert_close(step.variance, other.variance)
    assert_close(blocks.covariance, points.covariance)


@pytest.mark.parametrize("n", [530, 700, 1024, pytest.param(1100, marks=pytest.mark.exhaustive)])
def test_point_gauss_seidel_does_not_see_the_tiles_it_is_organised_in(n):
    """More points than a tile of 512: several block steps, the last one short, full or of few rows."""
    problem = regression_problem(n, q=5, p=3, lengthscale=0.1)
    dense = problem.dense
    A, _, _ = compose(dense.G, [point_stage(dense.G)] * 2)
    assert_belief(problem.condition(cagp.GaussSeidel(2)), dense.belief(A))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("q", "block_size"), by_turns({"q": [1, 2, 30, 31, 122, 123, 513], "block_size": [150, 256]})
)
def test_any_number_of_test_points(q, block_size):
    """Around the changes of sub-tile shape, of the tile cache and of column groups."""
    problem = regression_problem(600, q=q, p=2, lengthscale=0.1)
    dense = problem.dense
    A, _, _ = compose(dense.G, [block_stage(dense.G, block_size)] * 2)
    mean, covariance = dense.belief(A)
    posterior = problem.condition(cagp.BlockGaussSeidel(2, block_size), covariance="diagonal")
    assert posterior.covariance is None
    assert_close(posterior.mean, mean)
    assert_close(posterior.variance, covariance.diagonal())
    assert_belief(problem.condition(cagp.BlockGaussSeidel(2, block_size)), (mean, covariance))


def test_several_fields_share_one_solve():
    problem = regression_problem(fields=4)
    dense = problem.dense
    A, _, _ = compose(dense.G, [block_stage(dense.G, 64)] * 3)
    posterior = problem.condition(cagp.BlockGaussSeidel(3, 64))
    assert posterior.mean.shape == (40, 4)
    assert_belief(posterior, dense.belief(A))
    S = np.random.default_rng(2).standard_normal((300, 5))
    assert_belief(problem.condition(cagp.RandomActions(5, seed=2)), dense.projected(S))
    assert_belief(problem.condition(cagp.Cholesky()), dense.exact())


def test_tiles_that_are_left_out_do_not_matter():
    """Points in two clumps a hundred lengthscales apart: most tiles between them are never evaluated."""
    problem = regression_problem(600, q=30, lengthscale=0.3)
    X, X_test = problem.X.copy(), problem.X_test.copy()
    X[::2, 0] += 100.0
    X_test[::2, 0] += 100.0
    X = X[cagp.space_filling_order(X, block_size=64)]
    apart = type(problem)(problem.prior, X, problem.y, X_test)
    dense = apart.dense
    A, _, _ = compose(dense.G, [block_stage(dense.G, 64)] * 3)
    assert_belief(apart.condition(cagp.BlockGaussSeidel(3, 64)), dense.belief(A))
    A, _, _ = compose(dense.G, [point_stage(dense.G)] * 3)
    assert_belief(apart.condition(cagp.GaussSeidel(3)), dense.belief(A))


shapes = {
    "n": st.integers(1, 140),
    "q": st.integers(1, 40),
    "p": st.integers(1, 4),
    "iterations": st.integers(0, 4),
    "workers": st.integers(1, 4),
}


@given(block_size=st.integers(1, 150), fields=st.sampled_from([None, 1, 3]), **shapes)
def test_sweeps_of_any_shape(n, q, p, iterations, workers, block_size, fields):
    problem = regression_problem(n, q=q, p=p, lengthscale=0.4, fields=fields)
    dense = problem.dense
    with ThreadExecutor(workers) as executor:
        for solver, Mt in (
            (cagp.BlockGaussSeidel(iterations, block_size), block_stage(dense.G, block_size)),
            (cagp.GaussSeidel(iterations), point_stage(dense.G)),
        ):
            A, _, _ = compose(dense.G, [Mt] * iterations)
            assert_belief(problem.condition(solver, executor=executor), dense.belief(A))


@pytest.mark.exhaustive
@given(
    block_size=st.integers(1, 150),
    relaxation=st.floats(0.05, 1.95),
    damping=st.one_of(st.none(), st.floats(0.01, 1.0)),
    fields=st.sampled_from([None, 1, 3]),
    **shapes,
)
def test_relaxed_solvers_of_any_shape(n, q, p, iterations, workers, block_size, relaxation, damping, fields):
    problem = regression_problem(n, q=q, p=p, lengthscale=0.4, fields=fields)
    dense = problem.dense
    with ThreadExecutor(workers) as executor:
        for solver in (
            cagp.SOR(iterations, relaxation),
            cagp.SSOR(iterations, relaxation),
            cagp.BlockJacobi(iterations, block_size, damping and damping / -(-n // block_size)),
            cagp.Jacobi(iterations, damping and damping / n),
            cagp.Richardson(iterations, damping and damping / n / 2.1),
        ):
            A, _, _ = compose(dense.G, dense_cycles(solver, dense.G))
            assert_belief(problem.condition(solver, executor=executor), dense.belief(A))


@given(**shapes)
def test_actions_of_any_shape(n, q, p, iterations, workers):
    problem = regression_problem(n, q=q, p=p, lengthscale=0.4)
    dense = problem.dense
    with ThreadExecutor(workers) as executor:
        posterior = problem.condition(cagp.RandomActions(iterations, seed=3), executor=executor)
        S = np.random.default_rng(3).standard_normal((n, min(iterations, n)))
        assert_belief(posterior, dense.projected(S))
        posterior = problem.condition(cagp.ConjugateGradient(iterations), executor=executor)
        used = posterior.stats.iterations
        _, S = conjugate_gradients(dense.G, dense.b, used)
        assert_belief(posterior, dense.projected(S / np.linalg.norm(S, axis=0)))
        assert used == iterations or posterior.stats.relative_residual < 1e-12
