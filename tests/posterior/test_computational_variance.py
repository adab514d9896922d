"""The computational part of a variance against dense formulas (T4), and the rule that stops on it."""

import dataclasses
import re

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, BudgetError
from cagp_dist.gram import exact_variance as module
from cagp_dist.gram.quadrature import tile_product
from cagp_dist.runtime import SerialExecutor, ThreadExecutor
from cagp_dist.solvers.engine import stopping
from cagp_dist.solvers.engine.affine import Affine

from ..conformance.registered import FURTHER, POINT_SOLVERS, kinds
from ..joined import one_after_another
from ..oracle import assert_same_bits, block_stage, compose
from ..pairwise import by_turns
from ..problems import regression_problem

pytestmark = pytest.mark.usefixtures("one_blas_thread")
AFFINE = {
    "gauss-seidel": cagp.GaussSeidel,
    "blocks": lambda m, **more: cagp.BlockGaussSeidel(m, block_size=40, **more),
    "overrelaxed": lambda m, **more: cagp.SOR(m, relaxation=1.4, **more),
    "there and back": lambda m, **more: cagp.SSOR(m, relaxation=1.4, **more),
    "jacobi": cagp.Jacobi,
    "block jacobi": lambda m, **more: cagp.BlockJacobi(m, block_size=40, **more),
}
every_affine_solver = pytest.mark.parametrize("make", AFFINE.values(), ids=AFFINE.keys())


@pytest.fixture(scope="module")
def problem():
    return regression_problem(300, q=40, lengthscale=0.1, noise_variance=0.1)


@pytest.fixture
def many_points(monkeypatch):
    """Small problems as if they were large ones: only bounds are known."""
    for name, value in {"FEW_POINTS": 10, "NEIGHBOURS": 40, "GROUP": 8}.items():
        monkeypatch.setattr(module, name, value)


def computational(problem, posterior):
    """Variance less that of the exact posterior."""
    return posterior.variance - problem.dense.exact()[1].diagonal()


def test_it_is_what_t4_says(problem):
    """``V (G^-1 - D) V' = Y0' G^-1 Y0`` with ``Y0 = V' - G A' V'``."""
    dense = problem.dense
    A, _, _ = compose(dense.G, [block_stage(dense.G, 40)] * 2)
    left = dense.V.T - dense.G @ A.T @ dense.V.T
    expected = np.einsum("ij,ij->j", left, np.linalg.solve(dense.G, left))
    posterior = problem.condition(AFFINE["blocks"](2))
    np.testing.assert_allclose(posterior.computational_variance, expected, rtol=1e-8, atol=1e-12)


@one_after_another
@pytest.mark.parametrize("solver", kinds(POINT_SOLVERS))
def test_few_points_make_it_known_for_every_solver(problem, solver):
    posterior = problem.condition(solver, covariance="diagonal")
    found, bounds = posterior.computational_variance, posterior.computational_variance_bounds
    np.testing.assert_allclose(
        found, np.maximum(computational(problem, posterior), 0.0), rtol=0.0, atol=1e-11
    )
    np.testing.assert_array_equal(bounds, [found, found])


@one_after_another
@pytest.mark.usefixtures("many_points")
@pytest.mark.parametrize("solver", kinds(POINT_SOLVERS))
def test_the_bounds_hold_for_every_solver(problem, solver):
    posterior = problem.condition(solver, covariance="diagonal")
    if posterior.status is cagp.Status.EXACT:
        np.testing.assert_array_equal(posterior.computational_variance, 0.0)
        np.testing.assert_array_equal(posterior.computational_variance_bounds, 0.0)
        return
    assert posterior.computational_variance is None
    lower, upper = posterior.computational_variance_bounds
    exact = computational(problem, posterior)
    assert (lower >= 0.0).all()
    assert (lower <= np.maximum(exact, 0.0) + 1e-12).all()
    assert (upper >= exact - 1e-12).all()
    assert (upper - lower <= 0.2 * posterior.variance).all()


@pytest.mark.usefixtures("many_points")
@every_affine_solver
def test_the_bounds_close_as_the_solve_converges(problem, make):
    """At most as far apart as those of the exact variance, whatever is left; both fall with every sweep."""
    early, late = (problem.condition(make(m)).computational_variance_bounds for m in (1, 6))
    assert (late <= early + 1e-12).all()
    assert late[1].sum() < early[1].sum()
    assert late[0].sum() < early[0].sum()


def test_shapes_follow_the_variance():
    grid = cagp.LatLonGrid(np.linspace(-75.0, 75.0, 5), 8)
    prior = cagp.Prior(cagp.Matern32(0.4), noise_variance=0.1)
    field = np.random.default_rng(0).normal(size=(3, *grid.shape))
    solver = cagp.BlockGaussSeidel(1, block_size=8)
    posterior = cagp.condition(prior, grid, field, grid, solver=solver)
    exact = cagp.condition(prior, grid, field, grid, solver=cagp.Rings())
    assert posterior.computational_variance.shape == grid.shape
    assert posterior.computational_variance_bounds.shape == (2, *grid.shape)
    expected = posterior.variance - exact.variance
    assert expected.max() > 1e-3
    np.testing.assert_allclose(posterior.computational_variance, expected, rtol=0.0, atol=1e-12)
    np.testing.assert_array_equal(exact.computational_variance, np.zeros(grid.shape))


def test_the_prior_is_all_computation_and_nothing_is_nothing(problem):
    prior = problem.condition(cagp.GaussSeidel(0))
    np.testing.assert_allclose(prior.computational_variance, computational(problem, prior), rtol=1e-10)
    nowhere = cagp.condition(
        problem.prior, problem.X, problem.y, problem.X_test[:0], solver=cagp.GaussSeidel(2)
    )
    assert nowhere.computational_variance_bounds.shape == (2, 0)


@pytest.mark.parametrize(("name", "known"), by_turns({"name": list(AFFINE), "known": [True, False]}))
def test_a_share_ends_the_solve_as_soon_as_it_is_reached(problem, name, known, request):
    make = AFFINE[name]
    if not known:
        request.getfixturevalue("many_points")
    posterior = problem.condition(make(4000, computational_share=0.2), covariance="diagonal")
    assert posterior.status is cagp.Status.SHARE_REACHED
    assert posterior.status.ok
    m = posterior.stats.iterations
    assert 1 < m < 4000
    assert (computational(problem, posterior) <= 0.2 * posterior.variance).all()
    # the same as the solve with so many iterations, and one less is not enough
    plain = problem.condition(make(m), covariance="diagonal")
    assert_same_bits(posterior, plain)
    before = problem.condition(make(m - 1), covariance="diagonal")
    share = before.computational_variance_bounds[1] / before.variance
    assert share.max() > 0.2


@pytest.fixture(scope="module")
def smooth():
    """Covariances so long, and noise so small, that neighbours tell next to nothing of the exact variance."""
    return regression_problem(300, q=12, lengthscale=0.5, noise_variance=0.05)


REGISTERED = {
    name: solver
    for name, solver in POINT_SOLVERS.items()
    if isinstance(solver, Affine) and "blocks of 3" not in name and name not in FURTHER
}
"""Blocks of 40, or one block, in the given order: many small ones only take longer here."""


@pytest.mark.filterwarnings("ignore:lanczos_steps=. brought no bound")  # as few may not
@pytest.mark.usefixtures("many_points")
@pytest.mark.parametrize("solver", REGISTERED.values(), ids=REGISTERED.keys())
def test_lanczos_steps_tighten_the_bounds_of_every_solver(smooth, solver, monkeypatch):
    """Of the leftover (T4), for every solver; more steps never loosen them."""
    monkeypatch.setattr(stopping, "WORTH_A_STEP", 1e-6)
    plain = smooth.condition(solver)
    exact = computational(smooth, plain)
    before = plain.computational_variance_bounds
    if plain.status is cagp.Status.EXACT:
        np.testing.assert_array_equal(smooth.condition(solver, lanczos_steps=3).computational_variance, 0.0)
        return
    for steps in (1, 6, 80):
        posterior = smooth.condition(solver, lanczos_steps=steps)
        assert_same_bits(posterior, plain)
        lower, upper = posterior.computational_variance_bounds
        assert (lower <= exact + 1e-11).all()
        assert (upper >= exact - 1e-11).all()
        assert (lower >= before[0]).all()
        assert (upper <= before[1]).all()
        before = np.stack([lower, upper])
    assert (before[1] - before[0]).max() < 0.2 * np.ptp(plain.computational_variance_bounds, axis=0).max()


@pytest.mark.usefixtures("many_points")
def test_lanczos_steps_that_change_nothing_are_said_once(smooth):
    """Beside little noise a single step tells less than neighbours; enough of them are not warned of."""
    noiseless = dataclasses.replace(smooth, prior=dataclasses.replace(smooth.prior, noise_variance=1e-7))
    solver = cagp.BlockGaussSeidel(1, 40)
    plain = noiseless.condition(solver).computational_variance_bounds
    with pytest.warns(
        UserWarning, match="lanczos_steps=1 brought no bound .* closer: .* take many more"
    ) as said:
        found = noiseless.condition(solver, lanczos_steps=1)
    assert len(said) == 1
    np.testing.assert_array_equal(found.computational_variance_bounds, plain)
    more = smooth.condition(
        solver, lanczos_steps=20
    ).computational_variance_bounds  # or the warning is an error
    assert (more[0] > smooth.condition(solver).computational_variance_bounds[0]).any()


@pytest.mark.exhaustive
@pytest.mark.usefixtures("many_points")
@pytest.mark.parametrize(("name", "share"), [("gauss-seidel", 0.6), ("blocks", 0.6), ("block jacobi", 0.3)])
def test_quadrature_ends_a_solve_where_neighbours_do_not_tell(smooth, name, share, monkeypatch):
    """With the promised ratio, soon after it is reached, for half the products of the sweeps at most."""
    make, dense, widths = AFFINE[name], smooth.dense, []
    solver = make(200, computational_share=share)
    with monkeypatch.context() as patch:

        def counted(gram, executor):
            product = tile_product(gram, executor)
            return lambda columns: widths.append(columns.shape[1]) or product(columns)

        patch.setattr(stopping, "tile_product", counted)
        posterior = smooth.condition(solver, covariance="diagonal")
    assert 0 < sum(widths) <= 0.5 * 12 * posterior.stats.iterations
    assert posterior.status is cagp.Status.SHARE_REACHED
    exact = computational(smooth, posterior)
    assert (exact <= share * posterior.variance + 1e-12).all()
    reached = next(
        step.iteration
        for step in posterior.trace
        if (step.variance - dense.exact()[1].diagonal() <= share * step.variance).all()
    )
    m = posterior.stats.iterations
    assert reached <= m <= 1.3 * reached + 2
    other = cagp.condition(smooth.prior, smooth.X, -1e9 * smooth.y**3, smooth.X_test, solver=solver)
    np.testing.assert_array_equal(other.variance, posterior.variance)
    with ThreadExecutor(3) as executor:
        assert_same_bits(smooth.condition(solver, covariance="diagonal", executor=executor), posterior)
    neighbours = smooth.condition(make(m)).computational_variance_bounds[1]
    assert (neighbours > share * posterior.variance).any()  # without quadrature it would have gone on


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:lanczos_steps=.* brought no bound")
@pytest.mark.usefixtures("many_points")
def test_bounds_hold_and_shares_are_kept_in_random_problems(monkeypatch):
    """Any registered affine solver, noise by point from 1e-5 on, observations of the same place."""
    monkeypatch.setattr(module, "NEIGHBOURS", 6)
    monkeypatch.setattr(stopping, "WORTH_A_STEP", 1e-6)
    solvers, reached = list(REGISTERED.values()), 0
    for seed in range(60):
        rng = np.random.default_rng([9, seed])
        n, q = int(rng.integers(15, 60)), 6
        X, X_test = rng.uniform(size=(n, 2)), rng.uniform(size=(q, 2))
        if seed % 3 == 0:
            X = X[rng.integers(n, size=n)]
        noise = 10.0 ** rng.uniform(-5.0, 0.5) * rng.uniform(0.1, 1.0, n)
        prior = cagp.Prior(cagp.Matern32(10.0 ** rng.uniform(-1.0, 0.5), variance=2.0), noise)
        solver = solvers[seed % len(solvers)]
        share = float(rng.uniform(0.05, 0.8))
        exact = cagp.condition(prior, X, X[:, 0], X_test, solver=cagp.Cholesky()).variance
        plain = cagp.condition(
            prior, X, X[:, 0], X_test, solver=solver, lanczos_steps=int(rng.integers(1, 20))
        )
        lower, upper = plain.computational_variance_bounds
        assert (lower <= plain.variance - exact + 1e-10).all(), seed
        assert (upper >= plain.variance - exact - 1e-10).all(), seed
        stops = dataclasses.replace(solver, computational_share=share, iterations=40)
        ended = cagp.condition(prior, X, X[:, 0], X_test, solver=stops)
        if ended.status is cagp.Status.SHARE_REACHED:
            reached += 1
            assert (ended.variance - exact <= share * ended.variance + 1e-10).all(), seed
    assert reached > 20


@pytest.mark.usefixtures("many_points")
def test_lanczos_steps_on_a_grid_with_gaps_and_with_fields_that_differ_in_theirs(monkeypatch):
    """By points; each pattern of gaps has bounds of its own."""
    monkeypatch.setattr(module, "NEIGHBOURS", 8)
    monkeypatch.setattr(stopping, "WORTH_A_STEP", 1e-6)
    grid = cagp.LatLonGrid(np.linspace(-75.0, 75.0, 7), 12)
    fields = np.random.default_rng(0).normal(size=(2, *grid.shape))
    fields[0, 2:4, 3:7] = fields[1, :, 0] = np.nan
    prior = cagp.Prior(cagp.Matern32(2.0), noise_variance=0.02)
    solver = cagp.BlockGaussSeidel(2, block_size=10)
    plain, tight = (
        cagp.condition(prior, grid, fields, grid, solver=solver, lanczos_steps=steps) for steps in (0, 60)
    )
    exact = plain.variance - cagp.condition(prior, grid, fields, grid, solver=cagp.Rings()).variance
    lower, upper = tight.computational_variance_bounds
    assert (lower <= exact + 1e-11).all()
    assert (upper >= exact - 1e-11).all()
    apart = np.ptp(plain.computational_variance_bounds, axis=0)
    assert ((upper - lower).max(axis=(1, 2)) < 0.1 * apart.max(axis=(1, 2))).all()


def test_lanczos_steps_are_counted_and_checked(problem):
    with pytest.raises(ArgumentError) as refusal:
        problem.condition(cagp.GaussSeidel(2), lanczos_steps=-1)
    assert refusal.value.key == "no-count"
    with pytest.raises(ArgumentError) as refusal:
        problem.condition(cagp.RandomActions(2), lanczos_steps=3)
    assert refusal.value.key == "no-leftover"
    known = problem.condition(cagp.GaussSeidel(2), lanczos_steps=5)  # nothing to tighten
    assert_same_bits(known, problem.condition(cagp.GaussSeidel(2)))


def test_a_share_that_is_not_reached_is_said(problem):
    posterior = problem.condition(cagp.GaussSeidel(2, computational_share=1e-6))
    assert posterior.status is cagp.Status.SHARE_NOT_REACHED
    assert not posterior.status.ok
    assert posterior.stats.iterations == 2
    assert "Raise iterations or computational_share" in posterior.status.advice
    assert_same_bits(posterior, problem.condition(cagp.GaussSeidel(2)))


def test_one_block_is_exact_at_once(problem):
    posterior = problem.condition(cagp.BlockGaussSeidel(50, block_size=300, computational_share=0.1))
    assert posterior.status is cagp.Status.EXACT
    assert posterior.stats.iterations == 1


@pytest.fixture(scope="module")
def groups_that_differ():
    """Two groups of targets: amid the points, and far from them, where no computation is left at once."""
    rng = np.random.default_rng(3)
    X = rng.uniform(size=(400, 2))
    targets = np.concatenate([rng.uniform(size=(500, 2)), 9.0 + rng.uniform(size=(500, 2))])
    prior = cagp.Prior(cagp.Matern32(0.1), noise_variance=0.3)
    return prior, X, targets


def solved(case, y, *, share=0.1, m=30, **settings):
    prior, X, targets = case
    solver = cagp.BlockGaussSeidel(m, block_size=50, computational_share=share)
    settings.setdefault("executor", SerialExecutor())
    return cagp.condition(prior, X, y, targets, solver=solver, **settings)


@pytest.mark.exhaustive
@pytest.mark.parametrize("backwards", [False, True])
def test_every_group_of_targets_stops_for_itself(groups_that_differ, backwards):
    prior, X, targets = groups_that_differ
    targets = targets[::-1] if backwards else targets
    case, y = (prior, X, targets), X[:, 0]
    # batches one after the other, as memory has it
    alone = solved(case, y, memory_limit_bytes=23_000_000)
    assert len(alone.stats.plan.batches) == 2
    whole = solved(case, y)
    assert len(whole.stats.plan.batches) == 1
    assert_same_bits(alone, whole)
    assert alone.status is cagp.Status.SHARE_REACHED
    m = alone.stats.iterations
    assert m > 1
    near, far = (slice(500, None), slice(500)) if backwards else (slice(500), slice(500, None))
    for part, sweeps in ((near, m), (far, 1)):
        plain = solved(case, y, share=None, m=sweeps)
        np.testing.assert_array_equal(alone.mean[part], plain.mean[part])
        np.testing.assert_array_equal(alone.variance[part], plain.variance[part])
    assert (alone.stats.iterations_by_target == np.where(np.arange(1000) // 500 == backwards, m, 1)).all()
    solver = cagp.BlockGaussSeidel(1, block_size=50)
    mean = cagp.posterior_mean(
        *case[:2], y, case[2], solver=solver, iterations_by_target=alone.stats.iterations_by_target
    )
    np.testing.assert_allclose(mean, alone.mean, rtol=0.0, atol=1e-10)
    # the trace keeps a group that has ended as it is
    for step in alone.trace[1:]:
        np.testing.assert_array_equal(step.variance[far], alone.variance[far])
        np.testing.assert_array_equal(step.mean[far], alone.mean[far])
    for step, same in zip(alone.trace, whole.trace, strict=True):
        np.testing.assert_array_equal(step.variance, same.variance)


def test_a_group_that_misses_the_share_is_not_forgotten(groups_that_differ):
    """The first of two batches uses all iterations, the second ends early."""
    _, X, _ = groups_that_differ
    posterior = solved(groups_that_differ, X[:, 0], m=2, memory_limit_bytes=23_000_000)
    assert len(posterior.stats.plan.batches) == 2
    assert posterior.status is cagp.Status.SHARE_NOT_REACHED


@pytest.mark.usefixtures("many_points")
def test_the_data_have_no_part_in_when_it_stops(groups_that_differ):
    """Theorem 1.1 needs this: to the bit the same variances, and a mean that is linear in y."""
    rng = np.random.default_rng(0)
    first, other = rng.normal(size=400), 1e6 * rng.standard_cauchy(size=400)
    mine, its = solved(groups_that_differ, first), solved(groups_that_differ, other)
    assert mine.stats.iterations == its.stats.iterations
    np.testing.assert_array_equal(mine.variance, its.variance)
    np.testing.assert_array_equal(mine.computational_variance_bounds, its.computational_variance_bounds)
    both = solved(groups_that_differ, first + other)
    np.testing.assert_allclose(both.mean, mine.mean + its.mean, rtol=0.0, atol=1e-6)


@pytest.mark.usefixtures("many_points")
def test_threads_stop_at_the_same_sweep(groups_that_differ):
    _, X, _ = groups_that_differ
    expected = solved(groups_that_differ, X[:, 0])
    with ThreadExecutor(3) as executor:
        found = solved(groups_that_differ, X[:, 0], executor=executor)
    assert_same_bits(found, expected)
    np.testing.assert_array_equal(found.computational_variance_bounds, expected.computational_variance_bounds)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 5, True, "half"])
def test_a_share_is_a_number_between_none_and_all(share):
    for make in AFFINE.values():
        with pytest.raises(ArgumentError, match=re.escape(f"computational_share is {share!r}; expected")):
            make(2, computational_share=share)


@pytest.mark.exhaustive
def test_the_plan_counts_what_lanczos_steps_need(traced):
    generator = np.random.default_rng(4)
    X, X_test = generator.uniform(-1.0, 1.0, (1100, 1)), generator.uniform(-1.0, 1.0, (100, 1))
    prior = cagp.Prior(cagp.SquaredExponential(lengthscale=2.0), noise_variance=1e-4)
    plans = []

    def solve(X, steps):
        solver = cagp.BlockGaussSeidel(1, block_size=50)
        settings = {"executor": executor, "on_plan": plans.append, "lanczos_steps": steps}
        cagp.condition(prior, X, X[:, 0], X_test, solver=solver, **settings)

    with ThreadExecutor(2) as executor:
        solve(X, 2)  # compiles
        peaks = [traced(lambda steps=steps: solve(X, steps))[1] for steps in (0, 24)]
    assert peaks[0] <= plans[1].peak_bytes < peaks[1] <= plans[2].peak_bytes


@pytest.mark.parametrize("n", [1000, pytest.param(3000, marks=pytest.mark.exhaustive)])
def test_the_plan_counts_what_the_share_needs(n, traced):
    generator = np.random.default_rng(4)
    X = np.sort(generator.uniform(-1.0, 1.0, (n, 1)), axis=0)
    X_test = generator.uniform(-1.0, 1.0, (100, 1))
    prior = cagp.Prior(cagp.Matern32(lengthscale=0.3), noise_variance=0.1)
    solver = cagp.BlockGaussSeidel(1, block_size=50, computational_share=0.3)
    plans = []
    with ThreadExecutor(2) as executor:
        cagp.condition(prior, X[:60], X[:60, 0], X_test[:2], solver=solver, executor=executor)  # compiles
        settings = {"executor": executor, "on_plan": plans.append}
        _, peak = traced(lambda: cagp.condition(prior, X, X[:, 0], X_test, solver=solver, **settings))
        assert peak <= plans[0].peak_bytes
        without = cagp.BlockGaussSeidel(1, block_size=50)
        cagp.condition(prior, X, X[:, 0], X_test, solver=without, executor=executor, on_plan=plans.append)
        assert plans[1].peak_bytes < peak
        with pytest.raises(BudgetError):
            cagp.condition(
                prior, X, X[:, 0], X_test, solver=solver, executor=executor, memory_limit_bytes=peak // 2
            )


@pytest.mark.parametrize(
    "asked",
    [
        np.zeros(4, dtype=int),
        np.ones(4),
        np.ones((4, 2), dtype=int),
        np.array([[1, 1, 2]] * 4),
    ],
)
def test_iterations_by_target_are_checked(asked):
    X = np.linspace(0.0, 1.0, 9)[:, None]
    y = np.ones((9, 3))
    y[0, 0] = np.nan
    prior = cagp.Prior(cagp.Matern32(0.3), noise_variance=0.1)
    with pytest.raises(ArgumentError) as refusal:
        cagp.posterior_mean(prior, X, y, X[:4], solver=cagp.GaussSeidel(1), iterations_by_target=asked)
    assert refusal.value.key == "iterations-by-target"


def test_the_mean_alone_goes_through_all_iterations():
    X = np.linspace(-1.0, 1.0, 60)[:, None]
    prior = cagp.Prior(cagp.Matern32(lengthscale=0.3), noise_variance=0.1)
    stops = cagp.BlockGaussSeidel(5, block_size=7, computational_share=0.9)
    all_done = cagp.BlockGaussSeidel(5, block_size=7)
    expected = cagp.condition(prior, X, X[:, 0], X, solver=all_done).mean
    assert cagp.condition(prior, X, X[:, 0], X, solver=stops).stats.iterations < 5
    found = cagp.posterior_mean(prior, X, X[:, 0], X, solver=stops)
    np.testing.assert_allclose(found, expected, atol=1e-12)
