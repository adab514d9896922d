"""Solvers on whole grids against dense formulas, and against the solvers on points (T23, T29)."""

import itertools
import re

import numpy as np
import pytest
from scipy.stats import chi2

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, BudgetError, NumericalError
from cagp_dist.runtime import SerialExecutor, ThreadExecutor

from ..grids import LAYOUTS, Layout, grid_problem, make_problem
from ..oracle import KERNELS, assert_close, block_lower, compose, conjugate_gradients

pytestmark = pytest.mark.usefixtures("one_blas_thread")

BANDS = (1, 2, 3, 100)
CASES = [
    ("poles, even Q", cagp.Matern32, 0.3),
    ("poles, even Q", cagp.SquaredExponential, 0.6),
    ("poles, odd Q, even P, descending", cagp.Matern12, 0.3),
    ("no poles, odd Q", cagp.Matern52, 0.3),
    ("Gaussian latitudes", cagp.Matern32, 0.1),
    ("irregular latitudes", cagp.Matern32, 1.0),
    ("irregular, with noise by latitude", cagp.Matern32, 0.3),
    ("noise that is its own mirror image", cagp.Matern32, 0.3),
    ("noise that is not", cagp.Matern32, 0.3),
    ("one latitude", cagp.Matern32, 0.3),
    ("the equator", cagp.Matern32, 0.3),
    ("one longitude", cagp.Matern32, 0.3),
    ("two mirrored latitudes, two longitudes", cagp.Matern32, 0.3),
    ("one point", cagp.Matern32, 0.3),
]
every_case = pytest.mark.parametrize(
    ("name", "kernel_class", "lengthscale"), CASES, ids=[f"{name}-{k.__name__}" for name, k, _ in CASES]
)
every_band = pytest.mark.parametrize("rings_per_block", BANDS)


def sweep_order(problem):
    """Points in the order of the sweep, and how many stay together: a ring, with its image if mirrored."""
    P, Q = problem.grid.shape
    if problem.layout.mirrored and P > 1:
        pairs = [(p, P - 1 - p) for p in range(P // 2)] + [(P // 2,)] * (P % 2)
        order, unit = list(itertools.chain(*pairs)), 2
    else:
        order, unit = list(range(P)), 1
    return np.arange(P * Q).reshape(P, Q)[order].ravel(), unit * Q


def dense_sweeps(problem, rings_per_block, iterations):
    """A and D of block Gauss-Seidel after each sweep, in the order of the grid."""
    order, unit = sweep_order(problem)
    back = np.argsort(order)
    G = problem.G[np.ix_(order, order)]
    stage = np.linalg.inv(block_lower(G, unit * rings_per_block))
    for m in range(1, iterations + 1):
        A, D, _ = compose(G, [stage] * m)
        yield A[np.ix_(back, back)], D[np.ix_(back, back)]


@every_case
@every_band
def test_t29_block_gauss_seidel_by_rings_decouples_into_wavenumbers(
    name, kernel_class, lengthscale, rings_per_block
):
    problem = grid_problem(name, kernel_class, lengthscale)
    field, K = problem.field(), problem.K
    states = list(
        cagp.gauss_seidel_on_grid(problem.rings, field, iterations=3, rings_per_block=rings_per_block)
    )
    assert [state.iteration for state in states] == [1, 2, 3]
    for state, (A, D) in zip(states, dense_sweeps(problem, rings_per_block, 3), strict=True):
        assert_close(state.mean, (K @ A @ field.ravel()).reshape(field.shape))
        expected = problem.kernel.variance - np.diag(K @ D @ K)
        assert np.abs(state.variance.ravel() - expected).max() <= 1e-11 * problem.kernel.variance
        assert state.status is cagp.Status.COMPLETED
        assert state.relative_residual is None


@pytest.mark.parametrize("kernel_class", KERNELS)
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
        states = cagp.gauss_seidel_on_grid(
            problem.rings, field, iterations=3, rings_per_block=rings_per_block
        )
        for state, step in zip(states, posterior.trace[1:], strict=True):
            np.testing.assert_allclose(state.mean.ravel(), step.mean, rtol=0.0, atol=1e-10)
            np.testing.assert_allclose(state.variance.ravel(), step.variance, rtol=0.0, atol=1e-10)


@every_case
def test_t13_one_band_of_all_rings_is_exact_after_one_sweep(name, kernel_class, lengthscale):
    problem = grid_problem(name, kernel_class, lengthscale)
    field = problem.field()
    (state,) = cagp.gauss_seidel_on_grid(
        problem.rings, field, iterations=1, rings_per_block=problem.grid.shape[0]
    )
    mean, variance = problem.rings.posterior(field)
    assert_close(state.mean, mean, relative=1e-10)
    assert np.abs(state.variance - variance).max() <= 1e-12 * problem.kernel.variance


@pytest.mark.parametrize("name", ["poles, even Q", "irregular latitudes", "noise that is not"])
def test_sweeps_go_to_the_exact_posterior_from_above(name):
    """Variances fall from sweep to sweep and never below the exact ones; both end there."""
    problem = grid_problem(name)
    field = problem.field()
    mean, exact = problem.rings.posterior(field)
    rounding = 1e-13 * problem.kernel.variance
    before = np.full(problem.grid.shape, problem.kernel.variance)
    for state in cagp.gauss_seidel_on_grid(problem.rings, field, iterations=120, rings_per_block=2):
        assert (state.variance <= before + rounding).all()
        assert (state.variance >= exact - rounding).all()
        before = state.variance
    np.testing.assert_allclose(state.mean, mean, rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(state.variance, exact, rtol=1e-9)


@every_band
def test_without_variances_the_means_are_the_same(rings_per_block):
    problem = grid_problem("poles, even Q")
    settings = {"iterations": 2, "rings_per_block": rings_per_block}
    with_them = cagp.gauss_seidel_on_grid(problem.rings, problem.field(), **settings)
    without = cagp.gauss_seidel_on_grid(problem.rings, problem.field(), variance=False, **settings)
    for state, other in zip(with_them, without, strict=True):
        assert other.variance is None
        np.testing.assert_array_equal(other.mean, state.mean)


def test_a_stack_of_fields_shares_the_variance():
    problem = grid_problem("poles, odd Q, even P, descending")
    stack = problem.field(3)
    (together,) = cagp.gauss_seidel_on_grid(problem.rings, stack, iterations=1)
    assert together.mean.shape == stack.shape
    assert together.variance.shape == problem.grid.shape
    for field, mean in zip(stack, together.mean, strict=True):
        (alone,) = cagp.gauss_seidel_on_grid(problem.rings, field, iterations=1)
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
    *_, state = cagp.gauss_seidel_on_grid(problem.rings, observed, iterations=iterations)
    squares = ((state.mean - truth)[:, :, 0] ** 2).sum(axis=0) / state.variance[:, 0]
    share = 1e-6 / (2 * len(squares))
    assert chi2.ppf(share, draws) < squares.min()
    assert squares.max() < chi2.isf(share, draws)
    _, exact = problem.rings.posterior(observed)
    assert (state.variance > exact * (1.05 if iterations == 1 else 1.0)).any()  # it was a partial solve


def test_no_sweep_yields_nothing():
    problem = grid_problem()
    assert list(cagp.gauss_seidel_on_grid(problem.rings, problem.field(), iterations=0)) == []
    assert list(cagp.conjugate_gradient_on_grid(problem.rings, problem.field(), iterations=0)) == []


def test_states_stay_as_they_were():
    """A state is not overwritten by the next."""
    problem = grid_problem()
    for solve in (cagp.gauss_seidel_on_grid, cagp.conjugate_gradient_on_grid):
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
            (cagp.gauss_seidel_on_grid, {"iterations": 3, "rings_per_block": 3}),
            (cagp.conjugate_gradient_on_grid, {"iterations": 3}),
        ):
            found = solve(rings, reference.field(), **settings)
            for state, other in zip(
                found, solve(reference.rings, reference.field(), **settings), strict=True
            ):
                np.testing.assert_array_equal(state.mean, other.mean)
                np.testing.assert_array_equal(state.variance, other.variance)


@pytest.mark.parametrize("name", [name for name in LAYOUTS if name != "one point"])
def test_conjugate_gradients_are_the_textbook_ones_at_every_point(name):
    """T23: the mean is that of the iterate; the downdate is that of its directions."""
    problem = grid_problem(name)
    field, K, G = problem.field(), problem.K, problem.G
    steps = min(6, problem.n - 1)
    iterates, S = conjugate_gradients(G, field.ravel(), steps)
    states = list(cagp.conjugate_gradient_on_grid(problem.rings, field, iterations=steps))
    for i, state in enumerate(states, start=1):
        directions = S[:, :i]
        assert state.iteration == i
        assert_close(state.mean.ravel(), K @ iterates[i - 1], relative=1e-8)
        seen = K @ directions
        downdate = np.einsum("xi,ix->x", seen, np.linalg.solve(directions.T @ G @ directions, seen.T))
        np.testing.assert_allclose(
            state.variance.ravel(), problem.kernel.variance - downdate, rtol=0.0, atol=1e-9
        )
        residual = np.linalg.norm(field.ravel() - G @ iterates[i - 1]) / np.linalg.norm(field)
        assert state.relative_residual == pytest.approx(residual, rel=1e-6, abs=1e-13)
        if state.status is not cagp.Status.COMPLETED:
            break
    assert len(states) == i


def test_conjugate_gradients_on_points_give_the_same_belief():
    problem = grid_problem("irregular latitudes")
    field = problem.field()
    posterior = cagp.condition(
        cagp.Prior(problem.kernel, noise_variance=0.05),
        problem.points,
        field.ravel(),
        problem.points,
        solver=cagp.ConjugateGradient(8),
        executor=SerialExecutor(),
    )
    states = cagp.conjugate_gradient_on_grid(problem.rings, field, iterations=8)
    for state, step in zip(states, posterior.trace[1:], strict=True):
        np.testing.assert_allclose(state.mean.ravel(), step.mean, rtol=0.0, atol=1e-9)
        np.testing.assert_allclose(state.variance.ravel(), step.variance, rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("name", ["poles, even Q", "noise that is not", "one point"])
def test_conjugate_gradients_end_at_the_exact_posterior(name):
    """They stop by themselves, and stay above the exact variance: conservative, never below."""
    problem = grid_problem(name)
    field = problem.field()
    mean, exact = problem.rings.posterior(field)
    states = list(cagp.conjugate_gradient_on_grid(problem.rings, field, iterations=10**6))
    assert len(states) <= problem.n
    assert states[-1].status is cagp.Status.CONVERGED
    assert states[-1].relative_residual <= 1e-14
    assert_close(states[-1].mean, mean, relative=1e-10)
    for state in states:
        assert (state.variance >= exact - 1e-12 * problem.kernel.variance).all()


def test_a_field_of_zeros_is_solved_at_once():
    problem = grid_problem()
    (state,) = cagp.conjugate_gradient_on_grid(problem.rings, np.zeros(problem.grid.shape), iterations=5)
    assert state.iteration == 0
    assert state.status is cagp.Status.CONVERGED
    assert state.relative_residual == 0.0
    assert (state.mean == 0.0).all()
    assert (state.variance == problem.kernel.variance).all()
    (swept,) = cagp.gauss_seidel_on_grid(problem.rings, np.zeros(problem.grid.shape), iterations=1)
    assert (swept.mean == 0.0).all()


def test_units_of_the_field_scale_the_mean_and_nothing_else():
    problem = grid_problem("noise that is not")
    for solve in (cagp.gauss_seidel_on_grid, cagp.conjugate_gradient_on_grid):
        for scale in (1e-100, 1e100):
            states = solve(problem.rings, problem.field(), iterations=3)
            scaled = solve(problem.rings, scale * problem.field(), iterations=3)
            for state, other in zip(states, scaled, strict=True):
                assert_close(other.mean / scale, state.mean, relative=1e-12)
                assert_close(other.variance, state.variance, relative=1e-12)


SOLVES = {"sweeps": cagp.gauss_seidel_on_grid, "directions": cagp.conjugate_gradient_on_grid}
both = pytest.mark.parametrize("solve", SOLVES.values(), ids=SOLVES)


@both
@pytest.mark.parametrize("iterations", [-1, 2.0, "3", None, True])
def test_iterations_that_are_no_count_are_refused(solve, iterations):
    problem = grid_problem()
    with pytest.raises(ArgumentError, match=r"iterations is .*; expected an integer of at least 0"):
        next(solve(problem.rings, problem.field(), iterations=iterations))


@pytest.mark.parametrize("width", [0, -1, 1.5, True])
def test_bands_that_are_none_are_refused(width):
    problem = grid_problem()
    with pytest.raises(ArgumentError, match=r"rings_per_block is .*; expected an integer of at least 1"):
        next(cagp.gauss_seidel_on_grid(problem.rings, problem.field(), iterations=1, rings_per_block=width))


@both
def test_fields_that_are_not_of_the_grid_are_refused(solve):
    rings = grid_problem("poles, even Q").rings
    with pytest.raises(ArgumentError, match=re.escape("field has shape (12, 9); expected (9, 12)")):
        next(solve(rings, np.zeros((12, 9)), iterations=1))
    with pytest.raises(ArgumentError, match=r"field holds 108 values that are NaN .* cagp_dist.MaskedRings"):
        next(solve(rings, np.full((9, 12), np.nan), iterations=1))


def test_conjugate_gradients_take_one_field():
    problem = grid_problem()
    with pytest.raises(ArgumentError, match=r"field holds 2 fields; .* Call it once per field"):
        next(cagp.conjugate_gradient_on_grid(problem.rings, problem.field(2), iterations=1))
    (state,) = cagp.conjugate_gradient_on_grid(problem.rings, problem.field(1), iterations=1)
    assert state.mean.shape == (1, *problem.grid.shape)
    assert state.variance.shape == problem.grid.shape


def test_blocks_that_do_not_fit_into_memory_are_refused():
    class Cramped(SerialExecutor):
        memory_bytes = 1000

    problem = grid_problem()
    rings = cagp.RingGram(problem.grid, problem.kernel, noise_variance=0.1, executor=Cramped())
    with pytest.raises(BudgetError, match=r"factors of a 9 x 12 grid take .* Use a coarser grid"):
        next(cagp.gauss_seidel_on_grid(rings, problem.field(), iterations=1))


def test_arguments_are_checked_before_the_first_sweep():
    rings = cagp.RingGram(cagp.LatLonGrid([-30.0, 0.0, 30.0], 4), cagp.Matern32(0.5), noise_variance=0.1)
    field = np.ones(rings.grid.shape)
    with pytest.raises(ArgumentError, match=r"rings_per_block is 0"):
        cagp.gauss_seidel_on_grid(rings, field, iterations=1, rings_per_block=0)
    with pytest.raises(ArgumentError, match=r"field has shape \(4, 3\)"):
        cagp.gauss_seidel_on_grid(rings, field.T, iterations=1)
    with pytest.raises(ArgumentError, match=r"iterations is -1"):
        cagp.conjugate_gradient_on_grid(rings, field, iterations=-1)
    assert list(cagp.gauss_seidel_on_grid(rings, field, iterations=0)) == []
    assert list(cagp.conjugate_gradient_on_grid(rings, field, iterations=0)) == []


def test_a_sweep_that_waits_leaves_blas_to_others():
    from threadpoolctl import ThreadpoolController

    controller = ThreadpoolController()
    before = [library["num_threads"] for library in controller.info()]
    rings = cagp.RingGram(cagp.LatLonGrid([-30.0, 0.0, 30.0], 4), cagp.Matern32(0.5), noise_variance=0.1)
    states = cagp.gauss_seidel_on_grid(rings, np.ones(rings.grid.shape), iterations=3)
    next(states)
    assert [library["num_threads"] for library in controller.info()] == before


def test_a_singular_block_is_an_error_with_advice():
    grid = cagp.LatLonGrid(np.linspace(-80.0, 80.0, 9), 16)
    rings = cagp.RingGram(grid, cagp.SquaredExponential(lengthscale=3.0), noise_variance=1e-300)
    with pytest.raises(NumericalError, match=r"Raise noise_variance"):
        list(cagp.gauss_seidel_on_grid(rings, np.ones(grid.shape), iterations=1, rings_per_block=9))
