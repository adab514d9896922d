"""What every registered solver keeps on latitude-longitude grids: complete, with gaps, and with poles."""

import dataclasses
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, BudgetError
from cagp_dist.runtime import SerialExecutor, ThreadExecutor
from cagp_dist.solvers.engine.affine import Affine

from ..oracle import assert_close, assert_same_bits, dense, ring_points
from ..pairwise import by_turns, pairwise
from .registered import KINDS, POINT_SOLVERS, SOLVERS, may_rise, solvers_in_turn

pytestmark = pytest.mark.usefixtures("one_blas_thread")

Array = np.ndarray
VARIANCE, NOISE = 2.0, 0.05
ROUNDING = 1e-12 * VARIANCE
TARGETS = cagp.unit_sphere([0.0, 12.3, -80.0, 90.0, 40.0], [0.0, 111.1, 30.0, 5.0, -140.0])


def centre(points: Array) -> Array:
    """A prior mean that varies."""
    return 5.0 + points[:, 2]


@dataclass(frozen=True, eq=False)
class Observed:
    """Three fields (3, P, Q) of a grid, NaN where nothing was observed; and the same as points and values."""

    grid: cagp.LatLonGrid
    fields: Array
    points: Array
    values: Array
    prior: cagp.Prior = dataclasses.field(
        default=cagp.Prior(cagp.Matern32(0.5, VARIANCE), noise_variance=NOISE, mean=centre)
    )
    noise: Array | None = None
    """Noise of the points, where the prior has one for each point of the grid."""

    @property
    def uneven(self) -> bool:
        """Whether the noise varies along a latitude."""
        noise = self.prior.noise_variance
        return isinstance(noise, Array) and not (noise == noise[:, :1]).all()

    def targets(self, where: str) -> Array | cagp.LatLonGrid:
        """Points, or the grid."""
        return self.grid if where == "grid" else TARGETS

    def condition(self, solver, where: str, *, field: Array | None = None, **settings) -> cagp.Posterior:
        """`cagp.condition` on the first field, or on other fields."""
        if self.uneven and solver.needs_grid:  # rings are for noise that is the same along each latitude
            solver = cagp.Cholesky()
        y = self.fields[0] if field is None else field
        settings = {"executor": SerialExecutor(), **settings}
        return cagp.condition(self.prior, self.grid, y, self.targets(where), solver=solver, **settings)

    @property
    def prior_of_points(self) -> cagp.Prior:
        """The prior, with the noise of the observed points where it differs between them."""
        return (
            self.prior if self.noise is None else dataclasses.replace(self.prior, noise_variance=self.noise)
        )

    def on_points(self, solver, where: str, **settings) -> cagp.Posterior:
        """The same with points for the grid."""
        y, targets = self.values[:, 0], self.wanted(where)
        return cagp.condition(self.prior_of_points, self.points, y, targets, solver=solver, **settings)

    def wanted(self, where: str) -> Array:
        """Targets as points."""
        return self.grid.points if where == "grid" else TARGETS

    def exact(self, where: str) -> tuple[Array, Array]:
        """Mean (q,) and covariance (q, q) of the exact posterior, by dense formulas."""
        return dense(self.prior_of_points, self.points, self.values[:, 0], self.wanted(where)).exact()


def observe(latitude, n_longitudes: int, gaps=()) -> Observed:
    """Draw fields of a grid; a pole is one point, and its value the mean of its copies."""
    grid = cagp.LatLonGrid(latitude, n_longitudes)
    fields = 5.0 + np.random.default_rng(grid.size).normal(size=(3, *grid.shape))
    for row, columns in gaps:
        fields[:, row, columns] = np.nan
    merged = fields.copy()
    for row in np.flatnonzero(np.abs(grid.latitude_degrees) == 90.0):
        mean = np.nanmean(fields[:, row], axis=1)
        merged[:, row] = np.nan
        merged[:, row, 0] = mean
    there = np.isfinite(merged[0])
    points = ring_points(grid.latitude_degrees, n_longitudes)[there.ravel()]
    return Observed(grid, fields, points, merged[:, there].T)


def with_noise(given: Observed, noise: Array) -> Observed:
    """The same fields with noise (P, Q); a pole has the mean over its observed copies."""
    merged, there = noise.copy(), np.isfinite(given.fields[0])
    for row in np.flatnonzero(np.abs(given.grid.latitude_degrees) == 90.0):
        merged[row] = noise[row, there[row]].mean()
        there[row] = np.arange(given.grid.n_longitudes) == 0
    prior = dataclasses.replace(given.prior, noise_variance=noise)
    return dataclasses.replace(given, prior=prior, noise=merged[there])


def uneven(rows: int, columns: int) -> Array:
    """Noise that differs by a factor of up to 40 along each latitude."""
    return NOISE * 40.0 ** np.random.default_rng(rows).uniform(-0.5, 0.5, size=(rows, columns))


GAPS = [(2, slice(3, 6)), (4, slice(0, 1))]
INPUTS = {
    "mirrored": observe(np.linspace(-80.0, 80.0, 8), 12),
    "irregular": observe([-71.0, -64.5, -30.0, -28.0, 3.0, 44.0, 80.0], 10),
    "gaps": observe([-71.0, -64.5, -30.0, -28.0, 3.0, 44.0, 80.0], 10, GAPS),
    "poles": observe(np.linspace(90.0, -90.0, 7), 10),
    "poles and gaps": observe(np.linspace(90.0, -90.0, 7), 10, [*GAPS, (0, slice(2, 9))]),
}
INPUTS |= {
    "noise by latitude": with_noise(
        INPUTS["mirrored"], np.repeat(np.linspace(0.01, 0.2, 8), 12).reshape(8, 12)
    ),
    "noise by point": with_noise(INPUTS["mirrored"], uneven(8, 12)),
    "noise by point, poles and gaps": with_noise(INPUTS["poles and gaps"], uneven(7, 10)),
}
RINGS = [name for name in INPUTS if "gaps" not in name and "by point" not in name]
"""Inputs that block Gauss-Seidel sweeps in bands of rings."""
TILES = [name for name in INPUTS if name not in RINGS]
every_input = pytest.mark.parametrize("given", INPUTS.values(), ids=INPUTS.keys())
WHERE = ("points", "grid")


def chosen(solvers, **factors) -> Callable:
    """Every pair of a solver, an input and a kind of targets (and values of other factors), most at leisure.

    In every run each solver has one input with rings and one without, one of them with the grid as targets.
    Solvers take turns, so that every input has some.
    """
    cases = pairwise({"solver": list(solvers), "given": list(INPUTS), "where": WHERE, **factors})
    quick = [
        (
            solver,
            inputs[i % 4],
            WHERE[(i // 4 + k) % 2],
            *(values[(i + k) % 2] for values in factors.values()),
        )
        for i, solver in enumerate(solvers)
        for k, inputs in enumerate((RINGS, TILES))
    ]
    marked = [(case, ()) for case in quick]
    marked += [(case, pytest.mark.exhaustive) for case in cases if case not in quick]
    return solvers_in_turn(
        ("solver", "given", "where", *factors),
        [
            pytest.param(
                solvers[case[0]], INPUTS[case[1]], *case[2:], id="-".join(map(str, case)), marks=marks
            )
            for case, marks in marked
        ],
    )


INPUT_OF = dict(zip(SOLVERS, itertools.cycle(INPUTS), strict=False))
"""One input for each solver, all of them for some."""


def one_case(solvers: dict[str, object]) -> Callable:
    """Each solver with its input, and targets by turns."""
    return solvers_in_turn(
        ("solver", "given", "where"),
        [
            pytest.param(solver, INPUTS[INPUT_OF[name]], where, id=name)
            for (name, solver), where in zip(solvers.items(), itertools.cycle(WHERE), strict=False)
        ],
    )


some_case = one_case(SOLVERS)
few_cases = one_case(KINDS)


@cache
def solved(solver, given: Observed, where: str) -> cagp.Posterior:
    """The posterior with its covariance, made once: what other calls are compared with."""
    return given.condition(solver, where, covariance="full")


def names_of_settings(solver) -> set[str]:
    """What a solver, or a part of a hybrid, can be told."""
    if isinstance(solver, cagp.Hybrid):
        return set.union(*map(names_of_settings, solver.parts))
    return {setting.name for setting in dataclasses.fields(solver)}


def with_blocks(solver, block_size: int):
    """The solver, with blocks of that many points if it has any."""
    if isinstance(solver, cagp.Hybrid):
        return cagp.Hybrid([with_blocks(part, block_size) for part in solver.parts])
    if "block_size" not in names_of_settings(solver):
        return solver
    return dataclasses.replace(solver, block_size=block_size)


def flat(posterior: cagp.Posterior | cagp.Step) -> tuple[Array, Array]:
    """Mean and variance of one field as (q,)."""
    return posterior.mean.ravel(), posterior.variance.ravel()


@chosen(SOLVERS)
def test_the_trace_falls_from_the_prior_to_the_posterior_and_stays_above_the_exact_one(solver, given, where):
    posterior = solved(solver, given, where)
    mean, exact = given.exact(where)
    shape = given.grid.shape if where == "grid" else (5,)
    assert posterior.mean.shape == posterior.variance.shape == shape
    assert [step.iteration for step in posterior.trace] == list(range(solver.iterations + 1))
    assert posterior.stats.iterations == solver.iterations
    prior_mean, prior_variance = flat(posterior.trace[0])
    np.testing.assert_array_equal(prior_mean, centre(given.wanted(where)))
    assert (prior_variance == VARIANCE).all()
    for earlier, later in itertools.pairwise(posterior.trace):
        assert later.mean.shape == later.variance.shape == shape
        assert may_rise(solver) or (later.variance <= earlier.variance + ROUNDING).all()
        assert (later.variance <= VARIANCE + ROUNDING).all()
        assert (later.variance.ravel() >= exact.diagonal() - ROUNDING).all()
    np.testing.assert_array_equal(posterior.trace[-1].mean, posterior.mean)
    np.testing.assert_array_equal(posterior.trace[-1].variance, posterior.variance)
    assert posterior.status.ok
    covariance = posterior.covariance
    np.testing.assert_array_equal(covariance, covariance.T)
    np.testing.assert_allclose(covariance.diagonal(), posterior.variance.ravel(), rtol=0.0, atol=ROUNDING)
    K2 = dense(given.prior_of_points, given.points, given.values[:, 0], given.wanted(where)).K2
    for larger, smaller in ((covariance, exact), (K2, covariance)):
        assert np.linalg.eigvalsh(larger - smaller).min() > -1e-11 * VARIANCE
    if posterior.status is cagp.Status.EXACT:
        assert_close(posterior.mean.ravel(), mean)
        assert_close(covariance, exact)
    alone = given.condition(solver, where)
    assert alone.covariance is None
    assert_close(alone.mean, posterior.mean, relative=1e-12)
    np.testing.assert_allclose(alone.variance, posterior.variance, rtol=0.0, atol=ROUNDING)


@chosen(POINT_SOLVERS)
def test_a_grid_is_its_observed_points(solver, given, where):
    """The same belief as on points where blocks are the same, or points are solved one by one.

    Blocks are not where they hold mirror images or poles, coarse spaces never.
    """
    if getattr(solver, "order", None) == "space-filling":  # cells of points that lie on circles are a toss
        solver = dataclasses.replace(solver, order="given")
    on_grid = solved(solver, given, where)
    rings = on_grid.stats.plan.rings_per_block
    if rings:
        solver = with_blocks(solver, rings * given.grid.n_longitudes)
    plain = given.on_points(solver, where, covariance="full")
    settings = names_of_settings(solver)
    if rings and "block_size" in settings and (given is not INPUTS["irregular"] or "coarse" in settings):
        assert on_grid.status is cagp.Status.EXACT or on_grid.status is plain.status
        if plain.status is not cagp.Status.EXACT:
            return
    assert on_grid.status is plain.status
    for step, other in zip(on_grid.trace, plain.trace, strict=True):
        assert_close(flat(step)[0], other.mean)
        assert_close(flat(step)[1], other.variance)
    assert_close(on_grid.covariance, plain.covariance)


@every_input
def test_solvers_with_blocks_sweep_rings_where_a_grid_has_no_gaps(given):
    """So that the cases above are what they say they are."""
    rings = {
        name: given.condition(solver, "points").stats.plan.rings_per_block for name, solver in SOLVERS.items()
    }
    complete = given in [INPUTS[name] for name in RINGS]
    width, height = 40 // given.grid.n_longitudes, given.grid.shape[0]
    by_rings = {"jacobi": 1, "richardson": 1, "chebyshev": 1, "hybrid by rings": width}
    for name in (
        "block-gauss-seidel",
        "block-jacobi",
        "two-level-block-gauss-seidel",
        "two-level-block-jacobi",
    ):
        by_rings |= {name: width, f"{name}, blocks of 3": 1, f"{name}, one block": height}
    by_rings |= {f"block-gauss-seidel, {order} order": width for order in ("random", "multicolour")}
    expected = by_rings if complete else {}
    assert rings == {name: expected.get(name, 0) for name in SOLVERS}


@chosen(SOLVERS, workers=(1, 3))
def test_threads_give_the_same_bits(solver, given, where, workers):
    with ThreadExecutor(workers) as executor:
        found = given.condition(solver, where, executor=executor)
    assert_same_bits(found, given.condition(solver, where))


@chosen(SOLVERS)
def test_several_fields_are_several_solves(solver, given, where):
    if not solver.many_fields:
        with pytest.raises(ArgumentError) as refusal:
            given.condition(solver, where, field=given.fields)
        assert refusal.value.key == "several-fields"
        return
    together = given.condition(solver, where, field=given.fields, covariance="full")
    shape = given.grid.shape if where == "grid" else (5,)
    for t in range(3):
        alone = solved(solver, given, where)
        if t:
            alone = given.condition(solver, where, field=given.fields[t], covariance="full")
        mean = together.mean[t] if where == "grid" else together.mean[:, t]
        assert mean.shape == alone.mean.shape == shape
        assert_close(mean, alone.mean, relative=1e-12)
        np.testing.assert_array_equal(together.variance, alone.variance)
        np.testing.assert_array_equal(together.covariance, alone.covariance)
    one = given.condition(solver, where, field=given.fields[:1])
    assert one.mean.shape == ((1, *shape) if where == "grid" else (*shape, 1))


@some_case
def test_the_variance_depends_on_the_data_or_not_as_promised(solver, given, where):
    other = given.condition(solver, where, field=given.fields[1])
    mine = given.condition(solver, where)
    assert np.array_equal(mine.variance, other.variance) == (solver.calibrated == "exact")


@few_cases
def test_units_of_the_field_do_not_matter(solver, given, where):
    scale = 1024.0
    prior = cagp.Prior(
        cagp.Matern32(0.5, scale**2 * VARIANCE),
        scale**2 * given.prior.noise_variance,
        mean=lambda X: scale * centre(X),
    )
    scaled = dataclasses.replace(given, prior=prior).condition(solver, where, field=scale * given.fields[0])
    plain = given.condition(solver, where)
    assert_close(scaled.mean, scale * plain.mean, relative=1e-12)
    assert_close(scaled.variance, scale**2 * plain.variance, relative=1e-12)


@chosen({name: solver for name, solver in SOLVERS.items() if isinstance(solver, Affine)})
def test_the_mean_alone_is_the_same_mean(solver, given, where):
    mean = cagp.posterior_mean(given.prior, given.grid, given.fields, given.targets(where), solver=solver)
    expected = given.condition(solver, where, field=given.fields).mean
    assert mean.shape == expected.shape
    assert_close(mean, expected, relative=1e-11)


@some_case
def test_linear_functionals_have_the_belief_of_the_points_they_are_of(solver, given, where):
    W = np.random.default_rng(7).normal(size=(len(given.wanted(where)), 3))
    W[:, 1] -= W[:, 1].mean()
    functionals = cagp.LinearFunctionals(given.wanted(where), W)
    solver = cagp.Cholesky() if given.uneven and solver.needs_grid else solver
    found = cagp.condition(
        given.prior, given.grid, given.fields[0], functionals, solver=solver, covariance="full"
    )
    points = solved(solver, given, where)
    relative = 1e-10
    assert_close(found.mean, W.T @ points.mean.ravel(), relative=relative)
    assert_close(found.covariance, W.T @ points.covariance @ W, relative=relative)


@few_cases
def test_no_test_points(solver, given, where):
    posterior = cagp.condition(
        given.prior, given.grid, given.fields[0], np.zeros((0, 3)), solver=solver, covariance="full"
    )
    assert posterior.mean.shape == posterior.variance.shape == (0,)
    assert posterior.covariance.shape == (0, 0)
    assert posterior.status.ok


@solvers_in_turn(("name", "row"), by_turns({"name": list(SOLVERS), "row": [0, 3]}))
def test_one_observation(name, row):
    """All of a grid but one point is missing; at a pole, all but one copy."""
    solver = SOLVERS[name]
    grid = INPUTS["poles"].grid
    field = np.full(grid.shape, np.nan)
    field[row, 4] = 4.0
    prior = cagp.Prior(cagp.Matern32(0.5, VARIANCE), NOISE, mean=1.0)
    posterior = cagp.condition(prior, grid, field, TARGETS, solver=solver, covariance="full")
    X = grid.points.reshape(*grid.shape, 3)[row, 4:5]
    plain = cagp.condition(prior, X, [4.0], TARGETS, solver=POINT_SOLVERS.get("cholesky"), covariance="full")
    k, G = prior.kernel(TARGETS, X)[:, 0], VARIANCE + NOISE
    a = (posterior.mean[1] - 1.0) / (3.0 * k[1])
    np.testing.assert_allclose(posterior.mean, 1.0 + 3.0 * a * k, rtol=1e-13)
    np.testing.assert_allclose(
        posterior.covariance,
        prior.kernel(TARGETS, TARGETS) - (2.0 * a - a**2 * G) * np.outer(k, k),
        rtol=0.0,
        atol=1e-13,
    )
    if posterior.status is cagp.Status.EXACT:
        np.testing.assert_allclose(posterior.mean, plain.mean, rtol=1e-12)
        np.testing.assert_allclose(posterior.covariance, plain.covariance, rtol=0.0, atol=1e-12)


@few_cases
def test_progress_reports_every_iteration_and_ends_at_one(solver, given, where):
    seen: list[cagp.Progress] = []
    posterior = given.condition(solver, where, progress=seen.append)
    assert [report.iteration for report in seen] == list(range(1, solver.iterations + 1))
    assert all(report.iterations == solver.iterations for report in seen)
    assert all(earlier.fraction < later.fraction for earlier, later in itertools.pairwise(seen))
    assert seen[-1].fraction == pytest.approx(1.0)
    assert 0.0 <= seen[0].seconds <= seen[-1].seconds <= posterior.stats.seconds


@few_cases
def test_a_solve_that_cannot_fit_is_refused_before_it_starts(solver, given, where):
    begun: list[cagp.Progress] = []
    with pytest.raises(BudgetError) as refusal:
        given.condition(solver, where, memory_limit_bytes=5000, progress=begun.append)
    assert refusal.value.key == "memory"
    assert begun == []


@few_cases
def test_nothing_the_caller_gave_is_changed(solver, given, where):
    field = given.fields[0].copy()
    field.flags.writeable = False
    posterior = given.condition(solver, where, field=field)
    np.testing.assert_array_equal(field, given.fields[0])
    assert_same_bits(posterior, given.condition(solver, where))
