"""Solvers on whole grids against dense formulas, and against the solvers on points (T23, T29)."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from scipy.linalg import block_diag, eigh
from scipy.stats import chi2

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, BudgetError, NumericalError
from cagp_dist.posterior.problem import demand_of
from cagp_dist.runtime import SerialExecutor, ThreadExecutor
from cagp_dist.solvers import Problem
from cagp_dist.solvers.affine import Affine
from cagp_dist.solvers.stages import CoarseSpace

from ..grids import LAYOUTS, Layout, grid_problem, make_problem
from ..oracle import KERNELS_AND_SUMS, assert_close, compose, conjugate_gradients, kernel_matrix
from ..pairwise import pairwise
from .engine import LIMIT, SERIAL, states_of
from .stages import coloured_stages, dense_stage, projection_stage
from .waves import coarse_waves, waves_of

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


@dataclass(frozen=True)
class Belief:
    """A state as fields: mean (P, Q) or (T, P, Q), variance (P, Q)."""

    iteration: int
    mean: np.ndarray
    variance: np.ndarray
    status: cagp.Status
    relative_residual: float | None


def beliefs(rings, field, solver, *, executor=SERIAL) -> Iterator[Belief]:
    """What a solver yields for a field (P, Q) or fields (T, P, Q) at all points of the grid."""
    problem = Problem(rings, field.reshape(-1, rings.grid.size).T.copy(), rings.grid, full_covariance=False)
    plan = solver.plan(demand_of(problem, executor, LIMIT))
    for state in solver.states(problem, executor=executor, plan=plan):
        yield Belief(
            state.iteration,
            state.mean.T.reshape(field.shape),
            (rings.kernel.variance - state.downdate).reshape(rings.grid.shape),
            state.status,
            state.relative_residual,
        )


def sweeps(rings, field, *, iterations, rings_per_block=1, **settings):
    """Block Gauss-Seidel with bands of rings as blocks."""
    block_size = rings_per_block * rings.grid.n_longitudes
    return beliefs(rings, field, cagp.BlockGaussSeidel(iterations, block_size), **settings)


def directions(rings, field, *, iterations, **settings):
    """Conjugate gradients."""
    return beliefs(rings, field, cagp.ConjugateGradient(iterations), **settings)


def exact_posterior(rings, field):
    """Mean and variance at all points, by the factors of the wavenumbers."""
    (belief,) = beliefs(rings, field, cagp.Rings())
    assert belief.status is cagp.Status.EXACT
    return belief.mean, belief.variance


def sweep_order(problem):
    """Points in the order of the sweep, and how many stay together: a ring, with its image if mirrored."""
    P, Q = problem.grid.shape
    if problem.layout.mirrored and P > 1:
        pairs = [(p, P - 1 - p) for p in range(P // 2)] + [(P // 2,)] * (P % 2)
        order, unit = list(itertools.chain(*pairs)), 2
    else:
        order, unit = list(range(P)), 1
    return np.arange(P * Q).reshape(P, Q)[order].ravel(), unit * Q


def dense_beliefs(problem, solver, rings_per_block):
    """A and D after each iteration of a solver whose blocks are bands, in the order of the grid."""
    order, unit = sweep_order(problem)
    back = np.argsort(order)
    G = problem.G[np.ix_(order, order)]
    stage = dense_stage(type(solver)(1, block_size=unit * rings_per_block), G)
    for m in range(1, solver.iterations + 1):
        A, D, _ = compose(G, [stage] * m)
        yield A[np.ix_(back, back)], D[np.ix_(back, back)]


@every_case
@every_band
def test_t29_block_gauss_seidel_by_rings_decouples_into_wavenumbers(
    name, kernel_class, lengthscale, rings_per_block
):
    problem = grid_problem(name, kernel_class, lengthscale)
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


RING_SOLVERS = {"sweeps": cagp.BlockGaussSeidel, "all at once": cagp.BlockJacobi}
NEW = cagp.unit_sphere([0.0, 12.3, -80.0, 90.0, 40.0, -90.0], [0.0, 111.1, 30.0, 5.0, -140.0, 70.0])


@pytest.mark.parametrize(
    ("name", "rings_per_block", "solver_class", "targets", "fields"),
    pairwise(
        {
            "name": [name for name, _, _ in CASES[:9]],
            "rings_per_block": [1, 2, 3],
            "solver_class": list(RING_SOLVERS),
            "targets": ["points", "points, full", "grid", "grid, full"],
            "fields": [1, 3],
        }
    ),
)
def test_bands_of_rings_are_the_dense_formula_for_any_targets(
    name, rings_per_block, solver_class, targets, fields
):
    """Points that lie on no grid, the grid itself, and whole covariances; T2 by the forward stages too."""
    problem = grid_problem(name)
    b = problem.field(fields).reshape(fields, -1).T
    solver = RING_SOLVERS[solver_class](3, block_size=rings_per_block * problem.grid.n_longitudes)
    points = NEW if targets.startswith("points") else problem.points
    wanted = NEW if targets.startswith("points") else problem.grid
    full = targets.endswith("full")
    V = kernel_matrix(problem.kernel, points, problem.points)
    states = states_of(problem.rings, solver, b, wanted, full=full)
    for state, (A, D) in zip(states, dense_beliefs(problem, solver, rings_per_block), strict=True):
        downdate = V @ D @ V.T
        assert_close(state.mean, V @ A @ b)
        assert_close(state.downdate, downdate if full else downdate.diagonal())
    asked = Problem(problem.rings, b, wanted, full_covariance=False)
    plan = solver.plan(demand_of(asked, SERIAL, LIMIT))
    assert plan.rings_per_block == rings_per_block
    assert_close(solver.mean(asked, executor=SERIAL, plan=plan), states[-1].mean, relative=1e-11)


@pytest.mark.parametrize(
    ("solver_class", "damping"), [("sweeps", None), ("all at once", None), ("all at once", 0.3)]
)
@pytest.mark.parametrize("name", ["no poles, odd Q", "irregular latitudes"])
def test_conditioning_on_a_grid_is_the_dense_formula(name, solver_class, damping):
    """`cagp.condition` with the grid for X, T fields and a mean; targets are points, then the grid."""
    problem, width = grid_problem(name), 2
    prior = cagp.Prior(problem.kernel, float(problem.layout.noise[0]), mean=lambda X: 3.0 + X[:, 2])
    fields = 3.0 + problem.field(2)
    settings = {} if damping is None else {"damping": damping}
    solver = RING_SOLVERS[solver_class](3, block_size=width * problem.grid.n_longitudes, **settings)
    order, unit = sweep_order(problem)
    back = np.argsort(order)
    stage = dense_stage(
        type(solver)(1, block_size=unit * solver.block_size // problem.grid.n_longitudes, **settings),
        problem.G[np.ix_(order, order)],
    )[np.ix_(back, back)]
    A, D, _ = compose(problem.G, [stage] * 3)
    b = (fields.reshape(2, -1) - 3.0 - problem.points[:, 2]).T
    for targets, points in ((NEW, NEW), (problem.grid, problem.points)):
        posterior = cagp.condition(
            prior, problem.grid, fields, targets, solver=solver, covariance="full", executor=SERIAL
        )
        V, K2 = (kernel_matrix(problem.kernel, points, other) for other in (problem.points, points))
        mean = 3.0 + points[:, 2:] + V @ A @ b
        found = posterior.mean if targets is NEW else posterior.mean.reshape(2, -1).T
        assert_close(found, mean)
        assert_close(posterior.covariance, K2 - V @ D @ V.T)
        assert_close(posterior.variance.ravel(), (K2 - V @ D @ V.T).diagonal())
        assert posterior.stats.plan.rings_per_block == width
        forward = cagp.posterior_mean(prior, problem.grid, fields, targets, solver=solver, executor=SERIAL)
        assert_close(forward, posterior.mean, relative=1e-11)


def largest_left(G, blocks_inverse, projection) -> float:
    """``lambda_max(B^-1 (G - G P P' G))``."""
    left = G - G @ projection @ G
    root = np.linalg.cholesky(blocks_inverse)
    return float(np.linalg.eigvalsh(root.T @ left @ root)[-1])


def two_level_stages(problem, solver, rings_per_block):
    """``Mt`` of a cycle as a list, in the order of the grid."""
    order, unit = sweep_order(problem)
    back = np.argsort(order)
    G, width = problem.G, unit * rings_per_block
    block = cagp.BlockGaussSeidel if isinstance(solver, cagp.TwoLevelBlockGaussSeidel) else cagp.BlockJacobi
    settings = {} if block is cagp.BlockGaussSeidel else {"damping": 1.0}
    Mt = dense_stage(block(1, width, **settings), G[np.ix_(order, order)])[np.ix_(back, back)]
    layout = problem.layout
    waves = waves_of(layout.latitude, layout.n_longitudes, mirrored=layout.mirrored)
    projection = projection_stage(G, coarse_waves(problem.K, waves, solver.coarse))
    if block is cagp.BlockGaussSeidel:
        return [Mt, projection]
    limit = 2.0 / (np.ceil(1e6 * largest_left(G, Mt, projection)) / 1e6)
    return [projection, (solver.damping or min(1.0, 0.75 * limit)) * Mt, projection]


TWO_LEVEL = {"sweeps": cagp.TwoLevelBlockGaussSeidel, "all at once": cagp.TwoLevelBlockJacobi}


@pytest.mark.parametrize(
    ("name", "rings_per_block", "solver_class", "targets", "coarse"),
    pairwise(
        {
            "name": [name for name, _, _ in CASES[:9]],
            "rings_per_block": [1, 2],
            "solver_class": list(TWO_LEVEL),
            "targets": ["points", "points, full", "grid", "grid, full"],
            "coarse": [1, 8, 21],
        }
    ),
)
def test_coarse_spaces_of_waves_are_the_dense_formula(name, rings_per_block, solver_class, targets, coarse):
    """Waves along the rings, chosen by their variances; T2 by the forward stages too."""
    problem = grid_problem(name, cagp.Matern32, 0.7)
    b = problem.field(2).reshape(2, -1).T
    solver = TWO_LEVEL[solver_class](3, rings_per_block * problem.grid.n_longitudes, coarse=coarse)
    on_grid, full = targets.startswith("grid"), targets.endswith("full")
    points, wanted = (problem.points, problem.grid) if on_grid else (NEW, NEW)
    V = kernel_matrix(problem.kernel, points, problem.points)
    stages = two_level_stages(problem, solver, rings_per_block)
    states = states_of(problem.rings, solver, b, wanted, full=full)
    for m, state in enumerate(states, start=1):
        A, D, _ = compose(problem.G, stages * m)
        downdate = V @ D @ V.T
        assert_close(state.mean, V @ A @ b)
        assert_close(state.downdate, downdate if full else downdate.diagonal())
    asked = Problem(problem.rings, b, wanted, full_covariance=False)
    plan = solver.plan(demand_of(asked, SERIAL, LIMIT))
    assert plan.rings_per_block == rings_per_block
    assert_close(solver.mean(asked, executor=SERIAL, plan=plan), states[-1].mean, relative=1e-11)


@dataclass(frozen=True)
class CoarseAlone(Affine):
    """A projection on a coarse space, and nothing else."""

    columns: int = 9

    label: ClassVar[str] = "projection"
    points_per_block: ClassVar[None] = None
    by_rings: ClassVar[bool] = True

    def cycle(self, gram, *, executor, blocks):
        return (CoarseSpace(self.columns),)


@pytest.mark.parametrize("columns", [1, 2, 9, 1000])
def test_a_pole_observed_once_is_one_wave(columns):
    """The coarse space is that of the observed points; of all there are, the exact solve."""
    grid = cagp.LatLonGrid(np.linspace(90.0, -90.0, 7), 10)
    there = np.ones(grid.shape, dtype=bool)
    there[[0, -1], 1:] = False
    field = np.where(there, np.random.default_rng(0).normal(size=grid.shape), np.nan)
    X = grid.points[there.ravel()]
    K, V = kernel_matrix(PRIOR.kernel, X, X), kernel_matrix(PRIOR.kernel, NEW, X)
    waves = waves_of(grid.latitude_degrees, 10, mirrored=True, single=(0, 6))
    G = K + 0.1 * np.eye(len(K))
    A, D, _ = compose(G, [projection_stage(G, coarse_waves(K, waves, columns))])
    found = cagp.condition(PRIOR, grid, field, NEW, solver=CoarseAlone(1, columns=columns), covariance="full")
    assert found.stats.plan.rings_per_block == 1
    assert_close(found.mean, V @ A @ field[there])
    assert_close(found.covariance, kernel_matrix(PRIOR.kernel, NEW, NEW) - V @ D @ V.T)


@pytest.mark.parametrize("solver", [cagp.Jacobi(3), cagp.Richardson(3), cagp.Chebyshev(3)], ids=repr)
def test_points_solved_alike_go_by_tiles_where_memory_is_too_short_for_rings(solver):
    """The same belief up to rounding; blocks would be others, so that those are refused."""
    grid = cagp.LatLonGrid(np.linspace(-85.0, 87.0, 600), 2)
    field, targets = np.random.default_rng(0).normal(size=grid.shape), grid.points[:5] + 0.01
    by_rings, by_tiles = (
        cagp.condition(PRIOR, grid, field, targets, solver=solver, executor=SERIAL, memory_limit_bytes=limit)
        for limit in (64 * 2**20, 10 * 2**20)
    )
    assert [found.stats.plan.rings_per_block for found in (by_rings, by_tiles)] == [1, 0]
    assert "all points at once, one wavenumber of the rings after" in "".join(by_rings.stats.plan.lines())
    assert_close(by_rings.mean, by_tiles.mean)
    assert_close(by_rings.variance, by_tiles.variance)
    with pytest.raises(BudgetError, match="two-level block Gauss-Seidel on the grid on 1,200 points needs"):
        cagp.condition(
            PRIOR,
            grid,
            field,
            targets,
            solver=cagp.TwoLevelBlockGaussSeidel(1, 2),
            memory_limit_bytes=10 * 2**20,
        )


def test_a_damping_that_the_waves_leave_too_large_is_refused_with_the_range():
    problem = grid_problem("irregular latitudes", cagp.Matern32, 0.7)
    prior = cagp.Prior(problem.kernel, float(problem.layout.noise[0]))
    solver = cagp.TwoLevelBlockJacobi(1, 10, coarse=4, damping=1.0)
    projection, blocks, _ = two_level_stages(problem, solver, 1)
    limit = 1.9 / largest_left(problem.G, blocks, projection)
    for damping in (0.99 * limit, 1.01 * limit):
        asked = replace(solver, damping=damping)
        if damping < limit:
            found = cagp.condition(prior, problem.grid, problem.field(), NEW, solver=asked)
            assert found.stats.downdate_psd
            continue
        with pytest.raises(
            ArgumentError, match=rf"damping is .*above 0 and below {limit:.3g}\. Leave damping"
        ):
            cagp.condition(prior, problem.grid, problem.field(), NEW, solver=asked)


def test_poles_that_are_copies_on_one_side_alone_are_refused():
    """Where their noise hides it: parities would not separate what a point adds."""
    grid = cagp.LatLonGrid([90.0, 0.0, -90.0], 4)
    observed = np.ones(grid.shape, dtype=bool)
    observed[0, 1:] = False
    rings = cagp.RingGram(grid, PRIOR.kernel, noise_variance=[0.1, 0.1, 0.4])
    masked = cagp.MaskedRings(rings, observed)
    with pytest.raises(
        ArgumentError, match=r"one pole was observed once and the other at each of its copies"
    ):
        states_of(masked, cagp.Jacobi(1), np.zeros((9, 1)), NEW)
    assert len(states_of(masked, cagp.BlockGaussSeidel(1, 4), np.zeros((9, 1)), NEW)) == 1


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
        assert_close(solver.mean(asked, executor=SERIAL, plan=plan), state.mean, relative=1e-12)


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


@pytest.mark.parametrize("name", [name for name in LAYOUTS if name != "one point"])
def test_conjugate_gradients_are_the_textbook_ones_at_every_point(name):
    """T23: the mean is that of the iterate; the downdate is that of its directions."""
    problem = grid_problem(name)
    field, K, G = problem.field(), problem.K, problem.G
    steps = min(6, problem.n - 1)
    iterates, S = conjugate_gradients(G, field.ravel(), steps)
    states = list(directions(problem.rings, field, iterations=steps))
    for i, state in enumerate(states, start=1):
        taken = S[:, :i]
        assert state.iteration == i
        assert_close(state.mean.ravel(), K @ iterates[i - 1], relative=1e-8)
        seen = K @ taken
        downdate = np.einsum("xi,ix->x", seen, np.linalg.solve(taken.T @ G @ taken, seen.T))
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
    by_rings = cagp.condition(
        cagp.Prior(problem.kernel, noise_variance=0.05),
        problem.grid,
        field,
        problem.grid,
        solver=cagp.ConjugateGradient(8),
        executor=SerialExecutor(),
    )
    for state, step in zip(by_rings.trace[1:], posterior.trace[1:], strict=True):
        np.testing.assert_allclose(state.mean.ravel(), step.mean, rtol=0.0, atol=1e-9)
        np.testing.assert_allclose(state.variance.ravel(), step.variance, rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("name", ["poles, even Q", "noise that is not", "one point"])
def test_conjugate_gradients_end_at_the_exact_posterior(name):
    """They stop by themselves, and stay above the exact variance: conservative, never below."""
    problem = grid_problem(name)
    field = problem.field()
    mean, exact = exact_posterior(problem.rings, field)
    states = list(directions(problem.rings, field, iterations=10**6))
    assert len(states) <= problem.n
    # n directions are exact, variance included
    assert states[-1].status is (cagp.Status.EXACT if len(states) == problem.n else cagp.Status.CONVERGED)
    assert states[-1].relative_residual <= 1e-14
    assert_close(states[-1].mean, mean, relative=1e-10)
    for state in states:
        assert (state.variance >= exact - 1e-12 * problem.kernel.variance).all()


def test_a_field_of_zeros_is_solved_at_once():
    problem = grid_problem()
    (state,) = directions(problem.rings, np.zeros(problem.grid.shape), iterations=5)
    assert state.iteration == 0
    assert state.status is cagp.Status.CONVERGED
    assert state.relative_residual == 0.0
    assert (state.mean == 0.0).all()
    assert (state.variance == problem.kernel.variance).all()
    (swept,) = sweeps(problem.rings, np.zeros(problem.grid.shape), iterations=1)
    assert (swept.mean == 0.0).all()


def test_units_of_the_field_scale_the_mean_and_nothing_else():
    problem = grid_problem("noise that is not")
    for solve in (sweeps, directions):
        for scale in (1e-100, 1e100):
            states = solve(problem.rings, problem.field(), iterations=3)
            scaled = solve(problem.rings, scale * problem.field(), iterations=3)
            for state, other in zip(states, scaled, strict=True):
                assert_close(other.mean / scale, state.mean, relative=1e-12)
                assert_close(other.variance, state.variance, relative=1e-12)


SOLVES = {"sweeps": cagp.BlockGaussSeidel(1, 12), "directions": cagp.ConjugateGradient(1)}
both = pytest.mark.parametrize("solver", SOLVES.values(), ids=SOLVES)
PRIOR = cagp.Prior(cagp.Matern32(0.5), noise_variance=0.1)


@both
def test_fields_that_are_not_of_the_grid_are_refused(solver):
    grid = grid_problem("poles, even Q").grid
    for field, text in (
        (np.zeros((12, 9)), "y has shape (12, 9); expected (9, 12) (latitude, longitude), or T such fields"),
        (np.full((9, 12), np.nan), "y is NaN everywhere: nothing was observed"),
        (np.full((9, 12), np.inf), "y holds infinity; expected finite values, or NaN where nothing was obs"),
    ):
        with pytest.raises(ArgumentError, match=re.escape(text)):
            cagp.condition(PRIOR, grid, field, grid, solver=solver)


def test_conjugate_gradients_take_one_field():
    problem = grid_problem("no poles, odd Q")
    solver = cagp.ConjugateGradient(1)
    with pytest.raises(ArgumentError, match=r"y holds 2 fields; .* Call condition\(\) once per field"):
        cagp.condition(PRIOR, problem.grid, problem.field(2), problem.grid, solver=solver)
    posterior = cagp.condition(PRIOR, problem.grid, problem.field(1), problem.grid, solver=solver)
    assert posterior.mean.shape == (1, *problem.grid.shape)
    assert posterior.variance.shape == problem.grid.shape


def test_blocks_that_do_not_fit_into_memory_are_refused():
    class Cramped(SerialExecutor):
        memory_bytes = 1000

    problem = grid_problem()
    rings = cagp.RingGram(problem.grid, problem.kernel, noise_variance=0.1, executor=Cramped())
    with pytest.raises(BudgetError, match=r"factors of a 9 x 12 grid take .* use a coarser grid"):
        next(sweeps(rings, problem.field(), iterations=1))


@both
def test_solves_that_do_not_fit_into_memory_are_refused_before_they_start(solver):
    problem, begun = grid_problem("no poles, odd Q"), []
    with pytest.raises(BudgetError, match=r"on 104 points needs about .*, more than the 4.88 KiB"):
        cagp.condition(
            PRIOR,
            problem.grid,
            problem.field(),
            problem.grid,
            solver=solver,
            memory_limit_bytes=5000,
            progress=begun.append,
        )
    assert begun == []


def test_a_grid_that_is_not_whole_is_swept_in_tiles():
    """A point is missing: blocks are blocks of points, as for any other points."""
    problem = grid_problem("no poles, odd Q")
    field = problem.field()
    field[3, 4] = np.nan
    there = np.isfinite(field).ravel()
    solver = cagp.BlockGaussSeidel(2, 20)
    on_grid = cagp.condition(PRIOR, problem.grid, field, NEW, solver=solver, covariance="full")
    plain = cagp.condition(
        PRIOR, problem.grid.points[there], field.ravel()[there], NEW, solver=solver, covariance="full"
    )
    assert on_grid.stats.plan.rings_per_block == 0
    np.testing.assert_array_equal(on_grid.mean, plain.mean)
    np.testing.assert_array_equal(on_grid.covariance, plain.covariance)


def test_rings_cannot_be_swept_where_a_point_is_missing():
    """The plan of a complete grid does not fit another one."""
    problem = grid_problem("no poles, odd Q")
    observed = np.ones(problem.grid.shape, dtype=bool)
    solver = cagp.BlockGaussSeidel(1, 13)
    whole = Problem(problem.rings, np.zeros((problem.n, 1)), NEW, full_covariance=False)
    plan = solver.plan(demand_of(whole, SERIAL, LIMIT))
    observed[2, 2] = False
    part = cagp.MaskedRings(problem.rings, observed)
    asked = Problem(part, np.zeros((problem.n - 1, 1)), NEW, full_covariance=False)
    with pytest.raises(ArgumentError, match="is not a complete latitude-longitude grid; expected a RingGram"):
        next(solver.states(asked, executor=SERIAL, plan=plan))


@pytest.mark.parametrize("unlike", [2.0, [0.5, *[1.0] * 62], [*[1.0] * 62, 3.0]], ids=["all", "less", "more"])
def test_noise_that_is_not_that_of_the_latitudes_is_solved_by_tiles(unlike):
    """A matrix made by hand is planned as what it is, whichever points are unlike their latitude."""
    grid = cagp.LatLonGrid(np.linspace(-70.0, 60.0, 7), 9)
    rings = cagp.RingGram(grid, PRIOR.kernel, noise_variance=0.1)
    noise = 0.1 * np.broadcast_to(unlike, grid.size)
    gram = cagp.MaskedRings(rings, np.ones(grid.shape, dtype=bool), noise_variance=noise)
    b = np.random.default_rng(1).normal(size=(grid.size, 1))
    solver = cagp.BlockGaussSeidel(1, block_size=100)
    assert solver.plan(demand_of(Problem(gram, b, NEW, False), SERIAL, LIMIT)).rings_per_block == 0
    (state,) = states_of(gram, solver, b, NEW)
    G = kernel_matrix(PRIOR.kernel, grid.points, grid.points) + np.diag(noise)
    V = kernel_matrix(PRIOR.kernel, NEW, grid.points)
    assert_close(state.mean, V @ np.linalg.solve(G, b))
    assert_close(state.downdate, np.einsum("qn,nq->q", V, np.linalg.solve(G, V.T)))


@pytest.mark.parametrize("solver_class", RING_SOLVERS)
@pytest.mark.parametrize("full", [False, True])
def test_a_pole_observed_once_is_one_point_of_its_band(solver_class, full):
    """Sweeps over bands with poles end at the posterior of the points, each pole one of them."""
    grid = cagp.LatLonGrid(np.linspace(90.0, -90.0, 7), 10)
    field = np.random.default_rng(0).normal(size=grid.shape)
    solver = RING_SOLVERS[solver_class](400, block_size=40)
    covariance = "full" if full else "diagonal"
    posterior = cagp.condition(PRIOR, grid, field, NEW, solver=solver, covariance=covariance)
    exact = cagp.condition(PRIOR, grid, field, NEW, solver=cagp.Rings(), covariance=covariance)
    assert posterior.stats.plan.rings_per_block == 4
    np.testing.assert_allclose(posterior.mean, exact.mean, rtol=0.0, atol=1e-8)
    np.testing.assert_allclose(posterior.variance, exact.variance, rtol=0.0, atol=1e-8)
    observed = np.ones(grid.shape, dtype=bool)
    observed[[0, -1], 1:] = False
    single = field.copy()
    single[[0, -1], 0] = field[[0, -1]].mean(axis=1)
    points = cagp.condition(
        PRIOR, grid.points[observed.ravel()], single[observed], NEW, solver=cagp.Cholesky()
    )
    np.testing.assert_allclose(posterior.mean, points.mean, rtol=0.0, atol=1e-8)
    for step, after in itertools.pairwise(posterior.trace):
        assert (after.variance <= step.variance + 1e-12).all()
        assert (after.variance >= points.variance - 1e-12).all()


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
    with pytest.raises(NumericalError, match=r"Raise noise_variance"):
        list(sweeps(rings, np.ones(grid.shape), iterations=1, rings_per_block=9))


@pytest.mark.parametrize("rings_per_block", [1, 2])
def test_bands_in_another_order_are_blocks_of_points_in_that_order(rings_per_block):
    """Not mirrored: bands are blocks of consecutive points, and both have the orders of the seed."""
    problem = grid_problem("irregular latitudes")
    b, Q = problem.field(2).reshape(2, -1).T, problem.grid.n_longitudes
    solver = cagp.BlockGaussSeidel(3, rings_per_block * Q, order="random", seed=4)
    tiles = cagp.TiledGram(problem.kernel, problem.points, noise_variance=problem.rings.noise_variance)
    for targets, points in ((NEW, NEW), (problem.grid, problem.points)):
        full = targets is NEW
        on_rings = states_of(problem.rings, solver, b, targets, full=full)
        on_tiles = states_of(tiles, solver, b, points, full=full)
        for state, other in zip(on_rings, on_tiles, strict=True):
            assert_close(state.mean, other.mean)
            assert_close(state.downdate, other.downdate)


@pytest.mark.parametrize("name", ["no poles, odd Q", "poles, even Q"])
def test_mirrored_bands_may_stand_in_another_order(name):
    """Both sectors in the same order of bands: the state of one sweep is that of the first of two."""
    problem = grid_problem(name)
    b, Q = problem.field().reshape(-1, 1), problem.grid.n_longitudes
    given, shuffled = (cagp.BlockGaussSeidel(40, Q, order=order, seed=1) for order in ("given", "random"))
    one, two = (states_of(problem.rings, solver, b, NEW, full=True) for solver in (given, shuffled))
    assert np.abs(one[0].downdate - two[0].downdate).max() > 1e-3
    exact = problem.rings.exact(executor=SERIAL).downdate(NEW, full=True)
    for earlier, later in itertools.pairwise(two):
        assert np.linalg.eigvalsh(later.downdate - earlier.downdate).min() > -1e-12
        assert np.linalg.eigvalsh(exact - later.downdate).min() > -1e-12
    asked = Problem(problem.rings, b, NEW, full_covariance=False)
    plan = shuffled.plan(demand_of(asked, SERIAL, LIMIT))
    assert_close(shuffled.mean(asked, executor=SERIAL, plan=plan), two[-1].mean, relative=1e-11)


@pytest.mark.parametrize("name", ["irregular latitudes", "poles, even Q"])
def test_bands_of_a_colour_are_solved_at_once(name):
    """By the dense formula; damped by what couples them, the largest eigenvalue of all wavenumbers."""
    problem = grid_problem(name)
    b, Q = problem.field(2).reshape(2, -1).T, problem.grid.n_longitudes
    order, unit = sweep_order(problem)
    back = np.argsort(order)

    def coupling(G, blocks):
        at_once = np.concatenate(blocks)
        P = block_diag(*[G[np.ix_(block, block)] for block in blocks])
        return eigh(G[np.ix_(at_once, at_once)], P, eigvals_only=True)[-1]

    dense = coloured_stages(problem.G[np.ix_(order, order)], unit, 2, coupling)
    stages = [Mt[np.ix_(back, back)] for Mt in dense] * 3
    A, D, _ = compose(problem.G, stages)
    solver = cagp.BlockGaussSeidel(3, Q, order="multicolour", colours=2)
    for targets, points in ((NEW, NEW), (problem.grid, problem.points)):
        full = targets is NEW
        V = kernel_matrix(problem.kernel, points, problem.points)
        *_, state = states_of(problem.rings, solver, b, targets, full=full)
        assert_close(state.mean, V @ A @ b, relative=1e-7)  # the bound is rounded up to six digits
        downdate = V @ D @ V.T
        assert_close(state.downdate, downdate if full else downdate.diagonal(), relative=1e-7)
        assert state.downdate_psd
