"""What every registered solver keeps on points; for grids see `test_solvers_on_grids`."""

import dataclasses
import itertools
from collections.abc import Callable
from functools import cache
from typing import get_args

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, BudgetError
from cagp_dist.kernels import Kernel, beside_columns
from cagp_dist.runtime import SerialExecutor, ThreadExecutor
from cagp_dist.solvers import Solver
from cagp_dist.solvers.engine.affine import Affine
from cagp_dist.solvers.interface import Calibrated

from ..oracle import assert_close, assert_same_bits
from ..pairwise import by_turns
from ..problems import RegressionProblem, regression_problem, unit_noise
from .registered import GRID_SOLVERS, KINDS, POINT_SOLVERS, SOLVERS, may_rise, solvers_in_turn

pytestmark = pytest.mark.usefixtures("one_blas_thread")

NOISES = {
    "one noise": 0.02,
    "noise by point": 0.02 * 40.0 ** np.random.default_rng(1).uniform(-0.5, 0.5, size=140),
}
PROBLEMS = {
    name: regression_problem(140, q=30, lengthscale=0.25, noise_variance=noise)
    for name, noise in NOISES.items()
}
AFFINE = {name: solver for name, solver in POINT_SOLVERS.items() if isinstance(solver, Affine)}
TURNS = itertools.count()

every_solver = solvers_in_turn(
    ["solver"], [pytest.param(solver, id=name) for name, solver in POINT_SOLVERS.items()]
)


def some_case(solvers: dict[str, Solver] = POINT_SOLVERS, **factor: list) -> Callable:
    """Every solver on one problem (and with one value of another factor); the other ones at leisure.

    Solvers take turns, and so do the tests: across them each solver meets both problems, and every value.
    """
    turn, cases = next(TURNS), []
    values = [(value,) for known in factor.values() for value in known] or [()]
    every = itertools.product(enumerate(solvers.items()), enumerate(values), enumerate(PROBLEMS.items()))
    for (i, (name, solver)), (j, value), (k, (noise, problem)) in every:
        here = (i + turn) % len(values) == j and (i // len(values) + k + turn) % 2 == 0
        words = "-".join(map(str, (name, noise, *value)))
        marks = () if here else pytest.mark.exhaustive
        cases.append(pytest.param(problem, solver, *value, id=words, marks=marks))
    return solvers_in_turn(("problem", "solver", *factor), cases)


@cache
def solved(problem: RegressionProblem, solver: Solver) -> cagp.Posterior:
    """The posterior with its covariance, made once and in series: what other calls are compared with."""
    return problem.condition(solver, executor=SerialExecutor())


def follows_the_data(solver: Solver) -> bool:
    """Whether it, or a part of it, takes the residual as its action."""
    parts = solver.parts if isinstance(solver, cagp.Hybrid) else [solver]
    return any(isinstance(part, cagp.ConjugateGradient) for part in parts)


def variant(problem: RegressionProblem, **changes) -> RegressionProblem:
    return dataclasses.replace(problem, **changes)


@solvers_in_turn(["solver"], [pytest.param(solver, id=name) for name, solver in SOLVERS.items()])
def test_a_solver_is_a_frozen_value_with_its_promises(solver: Solver):
    assert dataclasses.replace(solver) == solver
    assert hash(solver) == hash(dataclasses.replace(solver))
    assert type(solver).__name__ in repr(solver)
    assert solver.calibrated in get_args(Calibrated)
    assert "alibrated" in type(solver).__doc__  # with the reason
    assert solver.many_fields in (True, False)
    assert solver.needs_grid == (solver in GRID_SOLVERS.values())
    assert type(solver).__doc__.splitlines()[0].endswith(".")
    with pytest.raises(dataclasses.FrozenInstanceError):
        solver.iterations = 3


@some_case()
def test_what_it_promises_of_calibration_is_so(problem, solver):
    """The stated variance is independent of the data, or it is not; only then may fields share a solve."""
    other = variant(problem, y=np.random.default_rng(8).normal(size=140))
    mine, its = solved(problem, solver), other.condition(solver)
    exact = solver.calibrated == "exact"
    assert np.array_equal(mine.variance, its.variance) == exact
    assert solver.many_fields <= exact
    if follows_the_data(solver):
        assert solver.calibrated == "approximate"
        assert not solver.many_fields
    elif type(solver).__name__ in cagp.__all__:
        assert exact
        assert solver.many_fields


@every_solver
def test_error_bars_that_are_exact_hold_on_fields_of_the_prior(solver):
    """Along a direction, jointly and in the null space; a false alarm has probability 0.27 %."""
    noise = 0.02 * 40.0 ** np.random.default_rng(1).uniform(-0.5, 0.5, size=100)
    problem = regression_problem(100, q=12, lengthscale=0.25, noise_variance=noise)
    # solvers that are called for each field by themselves are far off, and need few of them
    found = cagp.calibrate(
        problem.prior,
        problem.X,
        problem.X_test,
        solver=solver,
        simulations=400 if solver.many_fields else 60,
        generator=np.random.default_rng(3),
    )
    assert found.verdict.ok == (solver.calibrated == "exact"), found


def beside_space(kind: str) -> tuple[Kernel, np.ndarray]:
    """A kernel with directions, or with more axes than space, and points (132, p) with these columns."""
    generator = np.random.default_rng(17)
    X = cagp.unit_sphere(generator.uniform(40.0, 60.0, 132), generator.uniform(0.0, 30.0, 132))
    label, field = (np.arange(132) % 12).astype(float), cagp.Matern32(0.1, 1.0)
    kernels: dict[str, tuple[Kernel, dict[str, np.ndarray]]] = {
        "variables": (
            field * cagp.Coregion([[1.0, 0.7], [0.7, 2.0]], axis="variable"),
            {"variable": label % 2},
        ),
        # the errors of groups are targets, too
        "groups": (field + cagp.SameLabel(0.5, axis="ship"), {"ship": label}),
        "depths": (
            field * cagp.Matern12(60.0, axis="depth"),
            {"depth": generator.uniform(0.0, 200.0, 132)},
        ),
        "ellipse": (cagp.Anisotropic(field, 3.0, 30.0, centre=(50.0, 15.0)), {}),
        "globe": (cagp.AxiallySymmetric(field, 3.0), {}),
    }
    kernel, columns = kernels[kind]
    return kernel, beside_columns(X, columns) if columns else X


KINDS_BESIDE = ("variables", "groups", "depths", "ellipse", "variables", "groups", "depths", "globe")


@solvers_in_turn(
    ["solver", "kind"],
    [
        pytest.param(solver, KINDS_BESIDE[at % 8], id=f"{name}-{KINDS_BESIDE[at % 8]}")
        for at, (name, solver) in enumerate(POINT_SOLVERS.items())
        if solver.calibrated == "exact" and name != "neighbours"
    ]
    + [
        pytest.param(POINT_SOLVERS["neighbours"], kind, id=f"neighbours-{kind}")
        for kind in dict.fromkeys(KINDS_BESIDE)
    ],
)
def test_error_bars_hold_with_kernels_of_more_than_distance(solver, kind):
    """Over 200 fields, each solver with one kernel and neighbours with all, along a direction and jointly.

    A false alarm has probability 0.27 %.
    """
    kernel, X = beside_space(kind)
    found = cagp.calibrate(
        cagp.Prior(kernel, 0.1),
        X[:120],
        X[120:],
        solver=solver,
        simulations=200 if solver.many_fields else 60,
        generator=np.random.default_rng(5),
    )
    assert found.verdict.ok, found


def test_solvers_of_grids_say_so_on_points():
    assert "rings" in GRID_SOLVERS
    for solver in GRID_SOLVERS.values():
        with pytest.raises(ArgumentError) as caught:
            PROBLEMS["one noise"].condition(solver)
        assert caught.value.key == "no-rings"


@some_case(workers=[1, 3])
def test_threads_give_the_same_bits(problem, solver, workers):
    with ThreadExecutor(workers) as executor:
        found = problem.condition(solver, executor=executor)
    assert_same_bits(found, solved(problem, solver))


@some_case()
def test_exact_variance_bounds_from_below_the_prior_from_above_and_more_work_never_harms(problem, solver):
    exact = problem.dense.exact()[1]
    posterior = solved(problem, solver)
    prior_variance = problem.prior.kernel.variance
    variances = [step.variance for step in posterior.trace]
    assert (variances[0] == prior_variance).all()
    for earlier, later in itertools.pairwise(variances):
        assert may_rise(solver) or (later <= earlier + 1e-13 * prior_variance).all()
        assert (later <= prior_variance * (1.0 + 1e-13)).all()
    assert (posterior.variance >= exact.diagonal() - 1e-12 * prior_variance).all()
    # the same as matrices: exact <= kt <= prior
    for larger, smaller in ((posterior.covariance, exact), (problem.dense.K2, posterior.covariance)):
        assert np.linalg.eigvalsh(larger - smaller).min() > -1e-11 * prior_variance


@some_case()
def test_samples_have_the_stated_covariance_t7(problem, solver):
    """``K'' - V A V' - V A' V' + V A G A' V'`` of unit draws is that of the posterior (math 1.5), exactly."""
    posterior, n, q = solved(problem, solver), len(problem.X), len(problem.X_test)
    draws = n + q + n
    given = {"solver": solver, "samples": draws, "generator": unit_noise(n + q, n)}
    if not solver.many_fields:
        with pytest.raises(ArgumentError) as refusal:
            cagp.posterior_by_samples(problem.prior, problem.X, problem.y, problem.X_test, **given)
        assert refusal.value.key == "solver-follows-data"
        return
    found = cagp.sample_posterior(problem.prior, problem.X, problem.y, problem.X_test, **given)
    errors = found - posterior.mean
    assert_close(errors.T @ errors, posterior.covariance, relative=1e-10)


@some_case()
def test_trace_runs_from_the_prior_to_the_posterior(problem, solver):
    posterior = solved(problem, solver)
    assert [step.iteration for step in posterior.trace] == list(range(posterior.stats.iterations + 1))
    assert posterior.stats.iterations == solver.iterations
    np.testing.assert_array_equal(posterior.trace[0].mean, problem.dense.centre)
    np.testing.assert_array_equal(posterior.trace[-1].mean, posterior.mean)
    np.testing.assert_array_equal(posterior.trace[-1].variance, posterior.variance)


@some_case()
def test_covariance_is_symmetric_and_has_the_variances_on_its_diagonal(problem, solver):
    full, diagonal = solved(problem, solver), problem.condition(solver, covariance="diagonal")
    np.testing.assert_array_equal(full.covariance, full.covariance.T)
    np.testing.assert_array_equal(full.covariance.diagonal(), full.variance)
    assert diagonal.covariance is None
    assert_close(diagonal.variance, full.variance, relative=1e-12)
    assert_close(diagonal.mean, full.mean, relative=1e-12)


@some_case()
def test_linear_functionals_have_the_belief_of_the_points_they_are_of(problem, solver):
    """``W' mean`` and ``W' Cov W`` of the dense formula, to 1e-10; a single weight of one is the point."""
    if isinstance(solver, cagp.Neighbours):  # others that share its neighbours would add to a point
        solver = dataclasses.replace(solver, group=1)
    rng = np.random.default_rng(7)
    W = np.where(rng.uniform(size=(30, 5)) < 0.4, rng.normal(size=(30, 5)), 0.0)
    W[:, 1] -= W[:, 1].mean()
    W = np.column_stack([W, np.eye(30)[:, 4]])
    functionals = cagp.LinearFunctionals(problem.X_test, W)
    found = variant(problem, X_test=functionals).condition(solver)
    points, (mean, covariance) = solved(problem, solver), problem.dense.exact()
    if found.status is not cagp.Status.EXACT:
        mean, covariance = points.mean, points.covariance
    assert_close(found.mean, W.T @ mean, relative=1e-10)
    assert_close(found.covariance, W.T @ covariance @ W, relative=1e-10)
    np.testing.assert_allclose(found.trace[0].variance, np.diagonal(W.T @ problem.dense.K2 @ W), rtol=1e-12)
    np.testing.assert_allclose(found.mean[5], points.mean[4], rtol=1e-12)
    np.testing.assert_allclose(found.variance[5], points.variance[4], rtol=1e-10)
    with ThreadExecutor(3) as executor:
        assert_same_bits(variant(problem, X_test=functionals).condition(solver, executor=executor), found)


@some_case(KINDS)
def test_same_call_same_bits(problem, solver):
    assert_same_bits(problem.condition(solver), solved(problem, solver))


@some_case(KINDS)
def test_nothing_the_caller_gave_is_changed(problem, solver):
    arrays = problem.X.copy(), problem.y.copy(), problem.X_test.copy()
    frozen = variant(problem, X=problem.X.copy(), y=problem.y.copy(), X_test=problem.X_test.copy())
    for array in (frozen.X, frozen.y, frozen.X_test):
        array.flags.writeable = False
    posterior = frozen.condition(solver)
    for array, before in zip((frozen.X, frozen.y, frozen.X_test), arrays, strict=True):
        np.testing.assert_array_equal(array, before)
    assert_same_bits(posterior, solved(problem, solver))


@some_case(KINDS)
def test_lists_and_other_memory_orders_are_the_same_points(problem, solver):
    reference = solved(problem, solver)
    listed = variant(problem, X=problem.X.tolist(), y=problem.y.tolist(), X_test=problem.X_test.tolist())
    assert_same_bits(listed.condition(solver), reference)
    strided = np.repeat(problem.y, 2)[::2]
    turned = variant(problem, X=np.asfortranarray(problem.X), y=strided)
    assert_same_bits(turned.condition(solver), reference)


@some_case(KINDS)
def test_no_test_points(problem, solver):
    posterior = variant(problem, X_test=np.zeros((0, 2))).condition(solver)
    assert posterior.mean.shape == posterior.variance.shape == (0,)
    assert posterior.covariance.shape == (0, 0)
    assert posterior.status.ok


@some_case(KINDS)
def test_one_test_point_is_one_of_many(problem, solver):
    alone = variant(problem, X_test=problem.X_test[4:5]).condition(solver)
    together = solved(problem, solver)
    assert alone.mean[0] == pytest.approx(together.mean[4], rel=1e-12)
    assert alone.variance[0] == pytest.approx(together.variance[4], rel=1e-12)


ONE_STEP = (
    cagp.GaussSeidel,
    cagp.BlockGaussSeidel,
    cagp.Jacobi,
    cagp.BlockJacobi,
    cagp.Richardson,
    cagp.ConjugateGradient,
    cagp.RandomActions,
    cagp.Cholesky,
)


@every_solver
def test_one_observation(solver):
    """Its matrix is a number a that the mean tells; the downdate is ``k k' (2 a - a^2 G)`` (math 1.1)."""
    prior = cagp.Prior(cagp.Matern32(lengthscale=0.5, variance=2.0), noise_variance=0.5, mean=1.0)
    X_test = np.array([[0.0], [0.4]])
    posterior = cagp.condition(prior, [[0.0]], [4.0], X_test, solver=solver, covariance="full")
    k = prior.kernel([[0.0]], X_test)[0]
    a = (posterior.mean[0] - 1.0) / (3.0 * k[0])
    if isinstance(solver, ONE_STEP):
        assert a == pytest.approx(1.0 / 2.5, rel=1e-14)
        assert len(posterior.trace) == 2 or isinstance(solver, Affine)
    np.testing.assert_allclose(posterior.mean, 1.0 + k * 3.0 * a, rtol=1e-14)
    np.testing.assert_allclose(
        posterior.covariance,
        prior.kernel(X_test, X_test) - (2.0 * a - 2.5 * a**2) * np.outer(k, k),
        rtol=1e-14,
    )


@some_case(kind=["observed", "more than observed"])
def test_where_the_test_points_are_does_not_matter(problem, solver, kind):
    """The observed points themselves; and some of these, more points than were observed, and some twice."""
    X_test = problem.X
    if kind != "observed":
        others = np.random.default_rng(0).uniform(size=(150, 2))
        X_test = np.concatenate([problem.X_test, problem.X_test, problem.X[5:9], others])
    asked = variant(problem, X_test=X_test)
    posterior, (_, exact) = asked.condition(solver), asked.dense.exact()
    assert (posterior.variance >= exact.diagonal() - 1e-12).all()
    assert np.linalg.eigvalsh(posterior.covariance).min() > -1e-11
    if kind != "observed":
        assert_close(posterior.mean[:30], posterior.mean[30:60], relative=1e-12)
        assert_close(posterior.covariance[:30, :30], posterior.covariance[30:60, 30:60], relative=1e-12)


@some_case()
def test_duplicate_observations(problem, solver):
    """G is then positive definite through the noise alone; two noisy values of a place count as two.

    They are one observation of the place: their mean, weighted with one over their noise.
    """
    noise = np.broadcast_to(problem.prior.noise_variance, 140)[:120]
    prior = dataclasses.replace(problem.prior, noise_variance=noise)
    doubled = variant(problem, prior=prior, X=np.repeat(problem.X[:60], 2, axis=0), y=problem.y[:120])
    posterior = doubled.condition(solver)
    weights = 1.0 / noise.reshape(60, 2)
    y = (weights * problem.y[:120].reshape(60, 2)).sum(axis=1) / weights.sum(axis=1)
    once = dataclasses.replace(problem.prior, noise_variance=1.0 / weights.sum(axis=1))
    mean, exact = RegressionProblem(once, problem.X[:60], y, problem.X_test).dense.exact()
    assert posterior.status.ok
    assert (posterior.variance >= exact.diagonal() - 1e-10).all()
    if posterior.status is cagp.Status.EXACT:
        assert_close(posterior.mean, mean)
        assert_close(posterior.covariance, exact)


@some_case()
def test_observations_equal_to_the_prior_mean(problem, solver):
    """b = 0: nothing is learnt about the mean; conjugate gradients have no direction to go."""
    posterior = variant(problem, y=problem.prior.mean(problem.X)).condition(solver)
    np.testing.assert_array_equal(posterior.mean, problem.prior.mean(problem.X_test))
    if isinstance(solver, cagp.Hybrid) and follows_the_data(solver):
        rest = cagp.Hybrid([part for part in solver.parts if not isinstance(part, cagp.ConjugateGradient)])
        np.testing.assert_array_equal(posterior.variance, problem.condition(rest).variance)
    elif follows_the_data(solver):
        assert posterior.status is cagp.Status.CONVERGED
        assert posterior.stats.iterations == 0
        assert posterior.stats.relative_residual == 0.0
        assert (posterior.variance == problem.prior.kernel.variance).all()
    else:
        np.testing.assert_array_equal(posterior.variance, solved(problem, solver).variance)


@some_case(KINDS)
def test_constant_observations(problem, solver):
    prior = dataclasses.replace(problem.prior, mean=0.0)
    posterior = RegressionProblem(prior, problem.X, np.full(140, 7.0), problem.X_test).condition(solver)
    assert np.isfinite(posterior.mean).all()
    if solver.calibrated == "exact":  # y enters the mean linearly and the variance not at all
        twice = RegressionProblem(prior, problem.X, np.full(140, 14.0), problem.X_test).condition(solver)
        np.testing.assert_array_equal(twice.mean, 2.0 * posterior.mean)
        np.testing.assert_array_equal(twice.variance, posterior.variance)


@some_case(KINDS)
def test_units_of_the_field_do_not_matter(problem, solver):
    """Scaling y by 1,024 scales mean and variance; powers of two are exact, hence the same bits."""
    scale = 1024.0
    kernel = dataclasses.replace(problem.prior.kernel, variance=scale**2 * problem.prior.kernel.variance)
    prior = cagp.Prior(
        kernel, scale**2 * problem.prior.noise_variance, mean=lambda X: scale * problem.prior.mean(X)
    )
    scaled = variant(problem, prior=prior, y=scale * problem.y).condition(solver)
    posterior = solved(problem, solver)
    assert_close(scaled.mean, scale * posterior.mean, relative=1e-12)
    assert_close(scaled.covariance, scale**2 * posterior.covariance, relative=1e-12)


@some_case()
def test_moving_and_turning_the_points_changes_nothing(problem, solver):
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    if getattr(solver, "order", None) == "space-filling" or isinstance(solver, cagp.Neighbours):
        turn = np.eye(2)  # cells and groups along the axes are others when these are turned
    prior = dataclasses.replace(problem.prior, mean=0.0)
    plain = variant(problem, prior=prior)
    moved = variant(plain, X=plain.X @ turn + 3.0, X_test=plain.X_test @ turn + 3.0)
    found, expected = moved.condition(solver), plain.condition(solver)
    assert_close(found.mean, expected.mean)
    assert_close(found.covariance, expected.covariance)


@solvers_in_turn(("name", "p"), by_turns({"name": list(POINT_SOLVERS), "p": [1, 3, 7]}))
def test_any_number_of_coordinates(name, p):
    solver = POINT_SOLVERS[name]
    problem = regression_problem(90, q=15, p=p, lengthscale=0.5)
    posterior, (_, exact) = problem.condition(solver), problem.dense.exact()
    assert (posterior.variance >= exact.diagonal() - 1e-12).all()
    assert (posterior.variance <= 2.0).all()
    assert posterior.variance.mean() < 2.0
    if posterior.status is cagp.Status.EXACT:
        assert_close(posterior.covariance, exact)


@some_case(KINDS)
def test_points_far_apart_do_not_learn_from_each_other(problem, solver):
    far = variant(
        problem, prior=dataclasses.replace(problem.prior, mean=0.0), X_test=problem.X_test + 1e150
    ).condition(solver)
    assert (np.abs(far.mean) < 1e-290).all()
    assert (far.variance == 2.0).all()


@every_solver
def test_several_fields_are_several_solves(solver):
    """Variances to the last bit; means to rounding, because BLAS multiplies several columns otherwise."""
    problem = regression_problem(140, q=30, fields=3)
    if not solver.many_fields:
        with pytest.raises(ArgumentError) as refusal:
            problem.condition(solver)
        assert refusal.value.key == "several-fields"
        return
    together = problem.condition(solver)
    assert together.mean.shape == (30, 3)
    assert [step.mean.shape for step in together.trace] == [(30, 3)] * len(together.trace)
    for field in (0, 2):
        prior = dataclasses.replace(problem.prior, mean=lambda X, t=field: problem.prior.mean(X)[:, t])
        alone = variant(problem, prior=prior, y=problem.y[:, field]).condition(solver)
        assert_close(together.mean[:, field], alone.mean, relative=1e-13)
        np.testing.assert_array_equal(together.variance, alone.variance)
        np.testing.assert_array_equal(together.covariance, alone.covariance)
    one = variant(problem, y=problem.y[:, :1], prior=dataclasses.replace(problem.prior, mean=0.0))
    assert one.condition(solver).mean.shape == (30, 1)


@some_case(AFFINE)
def test_the_first_sweeps_of_many_are_the_sweeps_of_few(problem, solver):
    """To the last bit, although the last sweep leaves out what nobody reads."""
    longer = problem.condition(dataclasses.replace(solver, iterations=solver.iterations + 2))
    for step, other in zip(solved(problem, solver).trace, longer.trace, strict=False):
        np.testing.assert_array_equal(step.mean, other.mean)
        np.testing.assert_array_equal(step.variance, other.variance)


@some_case(KINDS)
def test_progress_reports_every_iteration_and_ends_at_one(problem, solver):
    seen: list[cagp.Progress] = []
    posterior = problem.condition(solver, progress=seen.append)
    assert [report.iteration for report in seen] == list(range(1, solver.iterations + 1))
    assert all(report.iterations == solver.iterations for report in seen)
    assert all(earlier.fraction < later.fraction for earlier, later in itertools.pairwise(seen))
    assert seen[-1].fraction == pytest.approx(1.0)
    assert 0.0 <= seen[0].seconds <= seen[-1].seconds <= posterior.stats.seconds


@some_case(KINDS)
def test_stats_tell_what_was_done(problem, solver):
    posterior = problem.condition(solver)
    stats = posterior.stats
    assert stats.plan.n == 140
    assert stats.plan.q == 30
    assert stats.gram_entries == stats.plan.gram_entries > 0
    assert "thread" in stats.executor
    last = solver.parts[-1] if isinstance(solver, cagp.Hybrid) else solver
    assert (stats.relative_residual is not None) == isinstance(last, cagp.ConjugateGradient)
    assert posterior.status.advice.endswith(".")


@some_case(KINDS)
def test_a_solve_that_cannot_fit_is_refused_before_it_starts(problem, solver):
    begun: list[cagp.Progress] = []
    with pytest.raises(BudgetError) as refusal:
        problem.condition(solver, memory_limit_bytes=5000, progress=begun.append)
    assert refusal.value.key == "memory"
    assert begun == []
