"""Sweeps over whole grids against dense formulas, and against the solvers on points (T13, T29)."""

import numpy as np
import pytest
from scipy.stats import chi2

import cagp_dist as cagp
from cagp_dist.errors import NumericalError
from cagp_dist.posterior.problem import demand_of
from cagp_dist.runtime import SerialExecutor, ThreadExecutor
from cagp_dist.solvers import Problem

from ..grids import Layout, grid_problem, make_problem
from ..joined import one_after_another
from ..oracle import KERNELS_AND_SUMS, assert_close
from ..pairwise import by_turns
from .engine import LIMIT, SERIAL, states_of
from .rings import CASES, NEW, beliefs, dense_beliefs, directions, exact_posterior, sweeps

pytestmark = pytest.mark.usefixtures("one_blas_thread")
BANDS = (1, 2, 3, 100)
every_case = pytest.mark.parametrize(
    ("name", "kernel_class", "lengthscale"), CASES, ids=[f"{name}-{k.__name__}" for name, k, _ in CASES]
)
every_band = pytest.mark.parametrize("rings_per_block", BANDS)


@one_after_another
@pytest.mark.parametrize(("case", "rings_per_block"), by_turns({"case": CASES, "rings_per_block": BANDS}))
def test_t29_block_gauss_seidel_by_rings_decouples_into_wavenumbers(case, rings_per_block):
    problem = grid_problem(*case)
    field, K = problem.field(), problem.K
    solver = cagp.BlockGaussSeidel(3, block_size=rings_per_block * problem.grid.n_longitudes)
    states = list(beliefs(problem.rings, field, solver))
    assert [state.iteration for state in states] == [1, 2, 3]
    bands = -(-max(problem.rings.wavenumbers.sizes) // rings_per_block)
    for state, (A, D) in zip(states, dense_beliefs(problem, solver, rings_per_block), strict=True):
        assert_close(state.mean, (K @ A @ field.ravel()).reshape(field.shape))
        expected = problem.kernel.variance - np.diag(K @ D @ K)
        assert np.abs(state.variance.ravel() - expected).max() <= 1e-11 * problem.kernel.variance
        assert state.status is (cagp.Status.EXACT if bands == 1 else cagp.Status.COMPLETED)
        assert state.relative_residual is None


@pytest.mark.parametrize("kernel_class", KERNELS_AND_SUMS)
def test_the_sweep_engine_on_points_gives_the_same_belief(kernel_class):
    """`cagp.condition` at the grid's points, blocks of whole rings, from the other end of the package."""
    problem = grid_problem("irregular latitudes", kernel_class, 0.4)
    field, Q = problem.field(), problem.grid.shape[1]
    prior = cagp.Prior(problem.kernel, noise_variance=0.05)
    for rings_per_block in (1, 3):
        posterior = cagp.condition(
            prior,
            problem.points,
            field.ravel(),
            problem.points,
            solver=cagp.BlockGaussSeidel(3, block_size=rings_per_block * Q),
            executor=SerialExecutor(),
        )
        by_rings = cagp.condition(
            prior,
            problem.grid,
            field,
            problem.grid,
            solver=cagp.BlockGaussSeidel(3, block_size=rings_per_block * Q),
            executor=SerialExecutor(),
        )
        assert by_rings.stats.plan.rings_per_block == rings_per_block
        for state, step in zip(by_rings.trace[1:], posterior.trace[1:], strict=True):
            np.testing.assert_allclose(state.mean.ravel(), step.mean, rtol=0.0, atol=1e-10)
            np.testing.assert_allclose(state.variance.ravel(), step.variance, rtol=0.0, atol=1e-10)


@one_after_another
@every_case
def test_t13_one_band_of_all_rings_is_exact_after_one_sweep(name, kernel_class, lengthscale):
    problem = grid_problem(name, kernel_class, lengthscale)
    field = problem.field()
    (state,) = sweeps(problem.rings, field, iterations=1, rings_per_block=problem.grid.shape[0])
    mean, variance = exact_posterior(problem.rings, field)
    assert_close(state.mean, mean, relative=1e-10)
    assert np.abs(state.variance - variance).max() <= 1e-12 * problem.kernel.variance


@pytest.mark.parametrize("name", ["poles, even Q", "irregular latitudes", "noise that is not"])
def test_sweeps_go_to_the_exact_posterior_from_above(name):
    """Variances fall from sweep to sweep and never below the exact ones; both end there."""
    problem = grid_problem(name)
    field = problem.field()
    mean, exact = exact_posterior(problem.rings, field)
    rounding = 1e-13 * problem.kernel.variance
    before = np.full(problem.grid.shape, problem.kernel.variance)
    for state in sweeps(problem.rings, field, iterations=120, rings_per_block=2):
        assert (state.variance <= before + rounding).all()
        assert (state.variance >= exact - rounding).all()
        before = state.variance
    np.testing.assert_allclose(state.mean, mean, rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(state.variance, exact, rtol=1e-9)


@every_band
def test_without_variances_the_means_are_the_same(rings_per_block):
    """By the bands themselves instead of their adjoints (T2)."""
    problem = grid_problem("poles, even Q")
    b = problem.field(2).reshape(2, -1).T
    solver = cagp.BlockGaussSeidel(2, rings_per_block * problem.grid.n_longitudes)
    for targets in (problem.grid, NEW):
        *_, state = states_of(problem.rings, solver, b, targets)
        asked = Problem(problem.rings, b, targets, full_covariance=False)
        plan = solver.plan(demand_of(asked, SERIAL, LIMIT))
        assert_close(solver.mean(asked, executor=SERIAL, plan=plan)[0], state.mean, relative=1e-12)


def test_a_stack_of_fields_shares_the_variance():
    problem = grid_problem("poles, odd Q, even P, descending")
    stack = problem.field(3)
    (together,) = sweeps(problem.rings, stack, iterations=1)
    assert together.mean.shape == stack.shape
    assert together.variance.shape == problem.grid.shape
    for field, mean in zip(stack, together.mean, strict=True):
        (alone,) = sweeps(problem.rings, field, iterations=1)
        np.testing.assert_allclose(alone.mean, mean, rtol=0.0, atol=1e-13)
        np.testing.assert_array_equal(alone.variance, together.variance)


@pytest.mark.parametrize("iterations", [1, 4])
def test_few_sweeps_are_calibrated(iterations):
    """Errors of 600 fields drawn from the prior have the stated variance: chi-squared at every latitude.

    Points of a ring are dependent, so one point of each ring is looked at; bounds are crossed once in 10^6.
    """
    problem = grid_problem("noise that is not")
    rng, draws = np.random.default_rng(iterations), 600
    truth = problem.rings.sample(rng, fields=draws)
    observed = truth + np.sqrt(problem.layout.noise)[:, None] * rng.standard_normal(truth.shape)
    *_, state = sweeps(problem.rings, observed, iterations=iterations)
    squares = ((state.mean - truth)[:, :, 0] ** 2).sum(axis=0) / state.variance[:, 0]
    share = 1e-6 / (2 * len(squares))
    assert chi2.ppf(share, draws) < squares.min()
    assert squares.max() < chi2.isf(share, draws)
    _, exact = exact_posterior(problem.rings, observed)
    assert (state.variance > exact * (1.05 if iterations == 1 else 1.0)).any()  # it was a partial solve


def test_no_sweep_yields_nothing():
    problem = grid_problem()
    assert list(sweeps(problem.rings, problem.field(), iterations=0)) == []
    assert list(directions(problem.rings, problem.field(), iterations=0)) == []


def test_states_stay_as_they_were():
    """A state is not overwritten by the next."""
    problem = grid_problem()
    for solve in (sweeps, directions):
        copies, states = [], []
        for state in solve(problem.rings, problem.field(), iterations=3):
            states.append(state)
            copies.append((state.mean.copy(), state.variance.copy()))
        for state, (mean, variance) in zip(states, copies, strict=True):
            np.testing.assert_array_equal(state.mean, mean)
            np.testing.assert_array_equal(state.variance, variance)


@pytest.mark.parametrize("mirrored", [True, False])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_threads_change_no_bit(workers, mirrored):
    latitude = np.linspace(-80.0, 80.0 if mirrored else 81.0, 20)
    layout = Layout(latitude, 30, np.full(20, 0.1), mirrored)
    reference = make_problem(layout, cagp.Matern32(0.3))
    with ThreadExecutor(workers) as executor:
        rings = cagp.RingGram(
            reference.grid, reference.kernel, noise_variance=layout.noise, executor=executor
        )
        for solve, settings in (
            (sweeps, {"iterations": 3, "rings_per_block": 3}),
            (directions, {"iterations": 3}),
        ):
            found = solve(rings, reference.field(), executor=executor, **settings)
            for state, other in zip(
                found, solve(reference.rings, reference.field(), **settings), strict=True
            ):
                np.testing.assert_array_equal(state.mean, other.mean)
                np.testing.assert_array_equal(state.variance, other.variance)


def test_a_sweep_that_waits_leaves_blas_to_others():
    from threadpoolctl import ThreadpoolController

    controller = ThreadpoolController()
    before = [library["num_threads"] for library in controller.info()]
    rings = cagp.RingGram(cagp.LatLonGrid([-30.0, 0.0, 30.0], 4), cagp.Matern32(0.5), noise_variance=0.1)
    for solve in (sweeps, directions):
        states = solve(rings, np.random.default_rng(0).normal(size=rings.grid.shape), iterations=3)
        next(states)
        assert [library["num_threads"] for library in controller.info()] == before


def test_a_singular_block_is_an_error_with_advice():
    grid = cagp.LatLonGrid(np.linspace(-80.0, 80.0, 9), 16)
    rings = cagp.RingGram(grid, cagp.SquaredExponential(lengthscale=3.0), noise_variance=1e-300)
    with pytest.raises(NumericalError) as refusal:
        list(sweeps(rings, np.ones(grid.shape), iterations=1, rings_per_block=9))
    assert refusal.value.key == "not-positive-definite"
