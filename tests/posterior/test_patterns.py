"""Fields with different gaps: each is what it is alone, and what is said of solves is said of all of them."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, BudgetError
from cagp_dist.posterior.certificate import Certificate
from cagp_dist.posterior.patterns import SolvedPattern, fields_by_pattern, joined_patterns, shared_places
from cagp_dist.runtime import SerialExecutor, ThreadExecutor
from cagp_dist.runtime.dask import DaskExecutor
from cagp_dist.solvers.engine.affine import Affine

from ..conformance.registered import POINT_SOLVERS, SOLVERS, kinds
from ..joined import one_after_another
from ..oracle import assert_close, assert_same_bits, dense
from ..pairwise import by_turns

pytestmark = pytest.mark.usefixtures("one_blas_thread")

KERNEL = cagp.Matern32(0.4, 2.0)
RNG = np.random.default_rng(0)
N, Q, T = 60, 7, 5
X, X_TEST = RNG.uniform(size=(N, 2)), RNG.uniform(size=(Q, 2))
NOISE = 0.05 * 20.0 ** RNG.uniform(-0.5, 0.5, size=N)
Y = RNG.normal(size=(N, T))
Y[3:9, [0, 3]] = np.nan
Y[50:, 2] = np.nan
GROUPS = [[0, 3], [1, 4], [2]]

GRID = cagp.LatLonGrid(np.linspace(-90.0, 90.0, 7), 8)
FIELDS = np.random.default_rng(1).normal(size=(T, *GRID.shape))
FIELDS[[0, 3], 2, 3:5] = np.nan
FIELDS[2, 4:] = np.nan  # whole latitudes, and a pole
FIELDS[2, 0, 3] = np.nan  # a copy of the other pole
GRID_NOISE = 0.05 * 20.0 ** np.random.default_rng(2).uniform(-0.5, 0.5, size=GRID.shape)


def slopes(points):
    """A prior mean with a column for each field."""
    return np.multiply.outer(points[:, 0], np.arange(1.0, T + 1.0))


def slope(t):
    """Its column t."""
    return lambda points: slopes(points)[:, t]


SHARING = {name: solver for name, solver in SOLVERS.items() if solver.many_fields}
sharing_on_points = pytest.mark.parametrize(
    "solver", kinds({name: solver for name, solver in SHARING.items() if name in POINT_SOLVERS})
)
sharing = pytest.mark.parametrize("solver", kinds(SHARING))


def on_points(solver, **settings):
    prior = cagp.Prior(KERNEL, settings.pop("noise", NOISE), mean=settings.pop("mean", slopes))
    settings = {"executor": SerialExecutor(), **settings}
    return cagp.condition(prior, X, settings.pop("y", Y), X_TEST, solver=solver, **settings)


def on_grid(solver, **settings):
    prior = cagp.Prior(KERNEL, settings.pop("noise", 0.05), mean=settings.pop("mean", slopes))
    settings = {"executor": SerialExecutor(), "targets": X_GRID, **settings}
    y, targets = settings.pop("y", FIELDS), settings.pop("targets")
    return cagp.condition(prior, GRID, y, targets, solver=solver, **settings)


X_GRID = cagp.unit_sphere([0.0, 12.3, -80.0, 90.0], [0.0, 111.1, 30.0, 5.0])


@one_after_another
@sharing_on_points
def test_a_field_of_points_is_what_it_is_alone(solver):
    together = on_points(solver, covariance="full")
    assert together.mean.shape == together.variance.shape == (Q, T)
    assert together.covariance.shape == (T, Q, Q)
    for t in range(T):
        seen = np.isfinite(Y[:, t])
        prior = cagp.Prior(KERNEL, NOISE[seen], mean=slope(t))
        alone = cagp.condition(prior, X[seen], Y[seen, t], X_TEST, solver=solver, covariance="full")
        assert_close(together.mean[:, t], alone.mean, relative=1e-12)
        assert_close(together.variance[:, t], alone.variance, relative=1e-12)
        assert_close(together.covariance[t], alone.covariance, relative=1e-12)
        assert len(together.trace) == len(alone.trace)
        for step, own in zip(together.trace, alone.trace, strict=True):
            assert step.iteration == own.iteration
            assert_close(step.mean[:, t], own.mean, relative=1e-12)
            assert_close(step.variance[:, t], own.variance, relative=1e-12)
        mean, exact = dense(prior, X[seen], Y[seen, t], X_TEST).exact()
        assert (together.variance[:, t] >= exact.diagonal() - 1e-12).all()
        if together.status is cagp.Status.EXACT:
            assert_close(together.mean[:, t], mean)
            assert_close(together.covariance[t], exact)


@one_after_another
@pytest.mark.parametrize(
    ("name", "where", "noise"),
    by_turns({"name": list(SHARING), "where": ["points", "grid", "grid"], "noise": ["one", "by point"]}),
)
def test_a_field_of_a_grid_is_what_it_is_alone(name, where, noise):
    if isinstance(SHARING[name], cagp.Rings):  # which are for even noise
        noise = "one"
    solver, targets = SHARING[name], {"points": X_GRID, "grid": GRID}[where]
    noise = {"one": 0.05, "by point": GRID_NOISE}[noise]
    together = on_grid(solver, targets=targets, noise=noise)
    assert together.mean.shape == together.variance.shape
    assert together.mean.shape == ((T, *GRID.shape) if targets is GRID else (4, T))
    assert together.covariance is None
    for t in range(T):
        alone = on_grid(solver, targets=targets, noise=noise, mean=slope(t), y=FIELDS[t])
        field = (t,) if targets is GRID else (slice(None), t)
        assert_close(together.mean[field], alone.mean, relative=1e-9)
        assert_close(together.variance[field], alone.variance, relative=1e-9)
        for step, own in zip(together.trace, alone.trace, strict=True):
            assert_close(step.mean[field], own.mean, relative=1e-9)
            assert_close(step.variance[field], own.variance, relative=1e-9)


@one_after_another
@sharing_on_points
def test_fields_with_the_same_gaps_share_their_variance(solver):
    """Shape (q,), as without gaps; and the bits are those of the points that were observed."""
    y = Y.copy()
    y[3:9] = np.nan
    y[50:] = np.nan
    seen = np.isfinite(y[:, 0])
    shared = on_points(solver, y=y)
    assert shared.variance.shape == (Q,)
    prior = cagp.Prior(KERNEL, NOISE[seen], mean=slopes)
    given = cagp.condition(prior, X[seen], y[seen], X_TEST, solver=solver, executor=SerialExecutor())
    assert_same_bits(shared, given)


@pytest.mark.parametrize("targets", [X_GRID, GRID], ids=["points", "grid"])
def test_the_computational_part_is_that_of_each_field(targets):
    solver = cagp.BlockGaussSeidel(1, block_size=8)
    together = on_grid(solver, targets=targets, mean=0.0)
    assert together.computational_variance.shape == together.variance.shape
    for t in range(T):
        alone = on_grid(solver, targets=targets, y=FIELDS[t], mean=0.0)
        field = (t,) if targets is GRID else (slice(None), t)
        assert_close(together.computational_variance[field], alone.computational_variance, relative=1e-12)
        bounds = together.computational_variance_bounds
        assert bounds.shape == (2, *together.variance.shape)
        assert_close(bounds[(slice(None), *field)], alone.computational_variance_bounds, relative=1e-12)
    assert together.computational_variance.max() > 0.01
    exact = on_grid(cagp.Cholesky(), targets=targets, mean=0.0)
    assert (exact.computational_variance == 0.0).all()


def test_the_computational_part_is_known_where_it_is_of_every_field(monkeypatch):
    monkeypatch.setattr("cagp_dist.gram.exact_variance.FEW_POINTS", 50)
    few, many = Y.copy(), Y.copy()
    few[:20, 1:] = few[20:40, 0] = np.nan
    assert on_points(SOME[0], y=few).computational_variance is not None
    many[:20, 1:] = np.nan
    assert on_points(SOME[0], y=many).computational_variance is None


affine = pytest.mark.parametrize(
    "solver", kinds({name: solver for name, solver in SHARING.items() if isinstance(solver, Affine)})
)


def test_patterns_that_end_at_different_iterations_have_the_means_of_theirs():
    """Given to the mean alone, as the posterior says them: on grids that are whole or nearly empty."""
    fields = np.concatenate([FIELDS, np.nan_to_num(FIELDS[:1], nan=1.0), np.full((1, *GRID.shape), np.nan)])
    fields[-1, 1::2, ::4] = 1.0
    for prior, X_, y, targets in (
        (cagp.Prior(KERNEL, NOISE, mean=slopes), X, Y, X_TEST),
        (cagp.Prior(KERNEL, 0.3), GRID, fields, GRID),
    ):
        solver = cagp.BlockGaussSeidel(90, block_size=8, computational_share=0.05)
        found = cagp.condition(prior, X_, y, targets, solver=solver)
        asked = found.stats.iterations_by_target
        assert asked.shape == found.variance.shape
        assert len(np.unique(asked)) > 1
        mean = cagp.posterior_mean(prior, X_, y, targets, solver=solver, iterations_by_target=asked)
        assert_close(mean, found.mean, relative=1e-10)


@affine
def test_the_mean_alone_is_the_same_mean(solver):
    prior = cagp.Prior(KERNEL, NOISE, mean=slopes)
    mean = cagp.posterior_mean(prior, X, Y, X_TEST, solver=solver)
    assert_close(mean, on_points(solver).mean, relative=1e-10)
    prior = cagp.Prior(KERNEL, GRID_NOISE, mean=slopes)
    mean = cagp.posterior_mean(prior, GRID, FIELDS, GRID, solver=solver)
    assert_close(mean, on_grid(solver, targets=GRID, noise=GRID_NOISE).mean, relative=1e-10)


SOME = [cagp.BlockGaussSeidel(2, block_size=16), cagp.RandomActions(4), cagp.Cholesky(), cagp.Rings()]


@pytest.mark.parametrize("noise", [0.05, GRID_NOISE], ids=["one noise", "noise by point"])
def test_executors_change_no_bit(noise):
    for solver in SOME if noise is not GRID_NOISE else SOME[:-1]:  # rings are for even noise
        reference = on_grid(solver, noise=noise, covariance="full")
        for workers in (1, 3):
            with ThreadExecutor(workers) as executor:
                found = on_grid(solver, noise=noise, covariance="full", executor=executor)
            assert_same_bits(found, reference)


@pytest.mark.cluster
@pytest.mark.exhaustive
def test_dask_changes_no_bit(two_dask_workers):
    for solver, noise in itertools.product(SOME[:-1], (0.05, GRID_NOISE)):
        found = on_grid(solver, noise=noise, executor=DaskExecutor(two_dask_workers))
        assert_same_bits(found, on_grid(solver, noise=noise))


@one_after_another
@sharing
def test_progress_covers_all_solves(solver):
    seen: list[cagp.Progress] = []
    on_grid(solver, progress=seen.append)
    fractions = [report.fraction for report in seen]
    assert all(earlier < later for earlier, later in itertools.pairwise([0.0, *fractions]))
    assert fractions[-1] == pytest.approx(1.0, abs=1e-12)
    assert [report.iteration for report in seen] == 3 * list(range(1, solver.iterations + 1))
    assert {(report.batch, report.batches) for report in seen} == {(1, 3), (2, 3), (3, 3)}
    assert seen[-1].seconds >= seen[0].seconds


def test_the_plan_is_the_sum_and_is_told_once():
    solver, told = cagp.BlockGaussSeidel(2, block_size=16), []
    posterior = on_points(solver, on_plan=told.append)
    (plan,) = told
    assert posterior.stats.plan is plan
    alone = []
    for fields in GROUPS:
        on_points(solver, y=Y[:, fields], mean=0.0, on_plan=alone.append)
    assert (plan.n, plan.fields, plan.solves) == (60, 5, 3)
    assert plan.tasks == sum(part.tasks for part in alone)
    assert plan.gram_entries == sum(part.gram_entries for part in alone) == posterior.stats.gram_entries
    assert plan.flops == sum(part.flops for part in alone)
    assert plan.peak_bytes > max(part.peak_bytes for part in alone)
    assert any(line.startswith("3 solves, one for each pattern of gaps") for line in plan.lines())
    assert not any("pattern" in line for line in alone[0].lines())


def test_a_pattern_that_does_not_fit_is_refused_before_any_solve():
    """The first pattern is small, the second is not."""
    y = np.random.default_rng(0).normal(size=(600, 2))
    y[30:, 0] = np.nan
    points = np.random.default_rng(1).uniform(size=(600, 2))
    prior, begun, plans = cagp.Prior(KERNEL, 0.1), [], []
    given = {"solver": cagp.Cholesky(), "executor": SerialExecutor(), "memory_limit_bytes": 2_000_000}
    cagp.condition(prior, points, y[:, :1], X_TEST, **given)
    with pytest.raises(BudgetError) as refusal:
        cagp.condition(prior, points, y, X_TEST, **given, progress=begun.append, on_plan=plans.append)
    assert refusal.value.key == "memory"
    assert begun == plans == []
    with pytest.raises(BudgetError) as refusal:
        cagp.condition(prior, points, y, X_TEST, **{**given, "memory_limit_bytes": 1})
    assert refusal.value.key == "memory"


def test_actions_that_no_pattern_can_take_are_not_counted():
    """Of a million actions at most n are taken: their steps fit into a few MB."""
    given = {"memory_limit_bytes": 4_000_000, "mean": 0.0}
    posterior = on_points(cagp.RandomActions(10**6), **given)
    assert posterior.stats.iterations == 60
    assert len(posterior.trace) == 61
    with pytest.raises(BudgetError) as refusal:
        on_points(cagp.GaussSeidel(10**5), **given)
    assert refusal.value.key == "memory"


def test_bytes_are_no_more_than_planned(traced):
    rng = np.random.default_rng(0)
    points, targets, y = rng.uniform(size=(150, 2)), rng.uniform(size=(2000, 2)), rng.normal(size=(150, 15))
    y[np.arange(15), np.arange(15)] = np.nan
    prior, solver = cagp.Prior(KERNEL, 0.1), cagp.BlockGaussSeidel(2, block_size=50)
    given = {"solver": solver, "executor": SerialExecutor()}
    cagp.condition(prior, points, y[:, :2], X_TEST, **given)  # imports, compilation
    posterior, peak = traced(lambda: cagp.condition(prior, points, y, targets, **given))
    assert 0.3 * posterior.stats.plan.peak_bytes < peak <= posterior.stats.plan.peak_bytes
    assert posterior.stats.plan.solves == 15


def test_factors_of_a_grid_are_made_once_for_all_patterns(monkeypatch):
    made = []
    make = cagp.RingGram.make
    monkeypatch.setattr(
        cagp.RingGram, "make", lambda self, *args, **kwargs: made.append(1) or make(self, *args, **kwargs)
    )
    fields = FIELDS[[0, 1, 3, 4]]
    fields[1, 3, 3] = np.nan
    posterior = on_grid(cagp.Rings(), y=fields, mean=0.0)
    assert posterior.stats.plan.solves == 3
    assert len(made) == 1


def test_factors_of_other_latitudes_are_not_taken_for_these():
    fields = FIELDS[1:3].copy()
    fields[:] = 1.0
    fields[0, 2] = fields[1, 4] = np.nan  # as many latitudes, and others
    together = on_grid(cagp.Rings(), y=fields, mean=0.0)
    for t in range(2):
        alone = on_grid(cagp.Rings(), y=fields[t], mean=0.0)
        assert_close(together.mean[:, t], alone.mean, relative=1e-12)


def test_a_pattern_that_was_done_early_keeps_its_last_step():
    def part(fields, length, status, residual):
        steps = [
            (i, np.full((2, len(fields)), 10.0 * fields[0] + i), np.full(2, 5.0 - i)) for i in range(length)
        ]
        certificate = Certificate(np.ones(2), None)
        return SolvedPattern(
            np.array(fields), steps, None, status, residual, certificate, np.full(2, length - 1)
        )

    found = joined_patterns(
        [part([0, 2], 2, cagp.Status.BREAKDOWN, 0.3), part([1], 4, cagp.Status.CONVERGED, 0.1)]
    )
    assert found.fields.tolist() == [0, 1, 2]
    assert [iteration for iteration, _, _ in found.steps] == [0, 1, 2, 3]
    assert found.steps[3][1].tolist() == [[1.0, 13.0, 1.0]] * 2
    assert found.steps[3][2].tolist() == [[4.0, 2.0, 4.0]] * 2
    assert found.status is cagp.Status.BREAKDOWN
    assert found.relative_residual == 0.3
    assert found.iterations.tolist() == [[1, 3, 1]] * 2


@given(st.lists(st.lists(st.booleans(), min_size=9, max_size=9), min_size=1, max_size=8))
def test_patterns_are_those_that_are_there(rows):
    present = np.array(rows)
    found = fields_by_pattern(present)
    assert sorted(np.concatenate(found).tolist()) == list(range(len(rows)))
    assert [group[0] for group in found] == sorted(group[0] for group in found)
    for group in found:
        assert (np.diff(group) > 0).all()
        assert (present[group] == present[group[0]]).all()
    for one, other in itertools.combinations(found, 2):
        assert (present[one[0]] != present[other[0]]).any()


def with_(array, place, value):
    changed = array.copy()
    changed[place] = value
    return changed


@one_after_another
@pytest.mark.parametrize(
    ("call", "key"),
    [
        (
            lambda: on_points(SOME[0], y=with_(Y, (slice(None), 2), np.nan)),
            "nothing-observed",
        ),
        (lambda: on_grid(SOME[0], y=with_(FIELDS, 4, np.nan)), "nothing-observed"),
        (
            lambda: on_points(SOME[0], y=with_(Y, (0, 1), -np.inf)),
            "infinite",
        ),
        (
            lambda: on_points(cagp.ConjugateGradient(2)),
            "several-fields",
        ),
        (
            lambda: on_points(cagp.ConjugateGradient(2), y=Y[:, :2], mean=0.0),
            "several-fields",
        ),
        (
            lambda: on_points(SOME[0], mean=lambda points: np.zeros((len(points), 2))),
            "mean-columns",
        ),
        (
            lambda: on_points(SOME[0], noise=NOISE[:54]),
            "shapes",
        ),
    ],
)
def test_bad_input_is_refused(call, key):
    with pytest.raises(ArgumentError) as refusal:
        call()
    assert refusal.value.key == key


def test_nothing_the_caller_gave_is_changed():
    y, fields = Y.copy(), FIELDS.copy()
    on_points(SOME[0], y=y)
    on_grid(SOME[0], y=fields)
    np.testing.assert_array_equal(y, Y)
    np.testing.assert_array_equal(fields, FIELDS)


def test_one_iteration_asked_for_or_none():
    posterior = on_points(dataclasses.replace(SOME[0], iterations=0))
    np.testing.assert_array_equal(posterior.mean, slopes(X_TEST))
    assert (posterior.variance == 2.0).all()
    assert posterior.variance.shape == (Q, T)
    assert on_points(SOME[0], y=Y[:, :1], mean=0.0).variance.shape == (Q,)


def test_noise_that_is_even_where_each_field_was_observed_is_solved_exactly():
    """East and west have noise of their own; each field was observed in one of them."""
    noise = np.where(np.arange(8) < 4, 0.05, 0.5) * np.ones(GRID.shape)
    fields = FIELDS[:2].copy()
    fields[0, :, 4:] = fields[1, :, :4] = np.nan
    fields[0, 2, 3] = 1.0
    together = on_grid(cagp.Rings(), y=fields, noise=noise, mean=0.0)
    assert together.status is cagp.Status.EXACT
    for t, own in enumerate((0.05, 0.5)):
        alone = on_grid(cagp.Rings(), y=fields[t], noise=own, mean=0.0)
        assert_close(together.mean[:, t], alone.mean, relative=1e-12)
        assert_close(together.variance[:, t], alone.variance, relative=1e-12)


def test_fields_share_the_places_that_have_most_values_together():
    rng = np.random.default_rng(0)
    present = rng.random((4, 200)) > 0.1
    places, fields = shared_places(present)
    assert fields.tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(places, present.all(axis=0))
    present[2] = rng.random(200) > 0.6  # with it, less than half would be left
    places, fields = shared_places(present)
    assert fields.tolist() == [0, 1, 3]
    np.testing.assert_array_equal(places, present[[0, 1, 3]].all(axis=0))


def test_fields_without_gaps_share_everything_and_different_ones_nothing():
    places, fields = shared_places(np.ones((3, 5), dtype=bool))
    assert places.all()
    assert fields.tolist() == [0, 1, 2]
    places, fields = shared_places(np.array([[1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]) > 0)
    assert places.tolist() == [False, False, True, True]
    assert fields.tolist() == [1, 2]
