"""The solve of all fields at targets of all kinds: one if it can be; means alone, samples, and left out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.budget import Plan
from cagp_dist.gp import condition, posterior_mean
from cagp_dist.gram.exact_variance import FEW_POINTS
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.gram.ring_filter import RingState
from cagp_dist.gram.targets import target_count
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.pipeline.defaults import MOST_CERTIFIED
from cagp_dist.pipeline.grid_places import GridPlaces
from cagp_dist.pipeline.resources import Resources
from cagp_dist.posterior.left_out import each_left_out
from cagp_dist.posterior.result import Posterior, Progress
from cagp_dist.predictive import Mixture
from cagp_dist.prior import KnownPlusEstimated, Prior
from cagp_dist.runtime.memo import Memo
from cagp_dist.samples import posterior_by_samples
from cagp_dist.solvers import Neighbours, Solver, Status
from cagp_dist.solvers.engine.affine import Affine
from cagp_dist.solvers.interface import LinearMean
from cagp_dist.text import counted

SAMPLES_OF_MAP = 0x6D6170  # Names the stream of random numbers of samples of maps


@dataclass(frozen=True)
class Execution(Resources):
    """Where and within what a solve is done, and who hears of it."""

    checkpoints: Memo | None = None
    weights: Memo | None = None  # where the weights of targets are kept
    certifies: bool = True  # whether it is asked how much of the variances is unfinished computation
    on_plan: Callable[[Plan], None] = lambda plan: None
    progress: Callable[[float | None, str], None] = lambda fraction, text: None

    @classmethod
    def on(
        cls,
        resources: Resources,
        *,
        report: Callable[[float | None, str], None] = lambda fraction, text: None,
        on_plan: Callable[[Plan], None] = lambda plan: None,
    ) -> "Execution":
        """Give resources for a solve; ``report`` gets the part that is done, if known, and what is done."""
        return cls(resources.executor, resources.memory_limit_bytes, on_plan=on_plan, progress=report)

    def part(self, number: int, count: int, name: str) -> "Execution":
        """Give one of several parts of the work its share of the progress, and its name."""

        def report(fraction: float | None, text: str) -> None:
            self.progress((number + (fraction or 0.0)) / count, ", ".join(filter(None, (name, text))))

        return replace(self, progress=report)


@dataclass(frozen=True, eq=False)
class SolveStep:
    """The posterior after some iterations, for T times and q points."""

    iteration: int  # how many
    mean: Array  # (T, q) in the unit of the observations
    std: Array  # (T, q) in the same unit; latent, without noise. Rows are equal where times share one solve.
    seconds: float  # wall time from the start of the solve


@dataclass(frozen=True, eq=False)
class SampledMap:
    """Mean and error bars of a fine map, the latter from samples."""

    mean: Array  # (T, r) in the unit of the observations; latent, without noise
    std: Array  # (T, r)
    samples: int  # of each pattern of gaps
    relative_error: float  # standard error of a standard deviation, relative to it, at most


@dataclass(frozen=True, eq=False)
class LeftOut:
    """What all other observations predict at each observed point; NaN where nothing was observed."""

    mean: Array  # (T, n) in the unit of the observations; the noise of an observation is included
    std: Array  # (T, n)


MANY_DRAWS, MERGED = 40, 4  # Draws from which so many that lie side by side are predicted as one


def components_of(draws: int) -> int:
    """Count components of the mixture that so many draws are predicted as."""
    merged = draws >= MANY_DRAWS and draws % MERGED == 0
    return draws // MERGED + 2 * (MERGED - 1) if merged else draws


class DrawnFields(NamedTuple):
    """What D draws of censored values predict: normal distributions, equally probable.

    They are of one scale, or each of its own where numbers are drawn as well: K is 1 or D.
    """

    means: Array  # (..., D, q)
    scale: Array  # (..., K, q), latent
    beside: Array  # (K, q): noise variance of an observation by each, minus that by the numbers of the map

    def part(self, chosen: slice | Indices) -> "DrawnFields":
        """Give some of the points."""
        return DrawnFields(*(each[..., chosen] for each in self))

    @property
    def moments(self) -> tuple[Array, Array]:
        """Mean and standard deviation (..., q) of the field."""
        mean, apart = self.means.mean(axis=-2), self.means.std(axis=-2)
        return mean, np.hypot(np.sqrt((self.scale**2).mean(axis=-2)), apart)

    def alike(self, part: float) -> Mask:
        """Where means and scales differ by this part of the scale at most (..., q): a normal mixture."""
        level = self.scale.mean(axis=-2)
        same = self.means.std(axis=-2) <= part * level
        return np.asarray(
            same if self.scale.shape[-2] == 1 else same & (self.scale.std(axis=-2) <= part * level)
        )

    def with_noise(self, noise_variance: float | Array) -> Array:
        """Give standard deviations (..., K, q) with noise on top, (q,) by the numbers of the map."""
        return np.sqrt(self.scale**2 + (noise_variance + self.beside))

    def distribution(self, noise_variance: float | Array | None = None) -> Mixture:
        """Give the mixture of fields (q,), or of T fields (T, q), with noise on top if that is said.

        Of many draws of one scale, four that lie side by side at a point, in the order of their means, are
        one normal distribution of the same mean and variance, but the four lowest and highest. It is a third
        of the work. Quantiles change by a fiftieth of what 64 draws leave uncertain, where draws differ by up
        to five times the scale, and a probability by at most 0.015.
        """
        own = self.scale if noise_variance is None else self.with_noise(noise_variance)
        means, scale = (each if each.ndim == 2 else each.swapaxes(0, 1) for each in (self.means, own))
        D = len(means)
        if len(scale) > 1 or components_of(D) == D:
            return Mixture(np.full(D, 1.0 / D), means, np.broadcast_to(scale, means.shape))
        means = np.sort(means, axis=0)
        low, inner, high = np.split(means, [MERGED, D - MERGED])
        groups = inner.reshape(-1, MERGED, *scale.shape[1:])
        single = np.broadcast_to(scale, low.shape)
        return Mixture(
            np.repeat([1.0 / D, MERGED / D, 1.0 / D], [MERGED, len(groups), MERGED]),
            np.concatenate([low, groups.mean(axis=1), high]),
            np.concatenate([single, np.hypot(scale, groups.std(axis=1)), single]),
        )


class DriftCoefficients(NamedTuple):
    """Coefficients of a mean that were estimated: k names, values (k, T) and standard errors (k, T)."""

    names: tuple[str, ...]
    values: Array
    std: Array


@dataclass(frozen=True, eq=False, kw_only=True)
class Solution:
    """The end of a solve."""

    # Iteration 0 (the prior) to m; the last one is the posterior. These two alone where weights are kept.
    steps: tuple[SolveStep, ...]
    status: Status  # the worst among the times
    plan: tuple[str, ...]  # what was planned, for people
    solvers: tuple[str, ...] = ()  # that were used, with what they chose for themselves
    plans: tuple[Plan, ...] = ()  # of each solve, all patterns of gaps of which are one
    executor: str = ""  # where it ran
    # (T, q) root of the upper bound of the part of the variance that is unfinished computation; zeros where
    # the solve was exact. None where it would take long beside the solve.
    computational_std: Array | None = None
    computational_std_known: bool = True  # whether it is that part and no bound
    covariance: Array | None = None  # (T, q, q), if it was asked for
    drift: DriftCoefficients | None = None  # None where the mean was known
    # (T, L, q): of the field at `QUANTILE_LEVELS`, where the numbers of the prior were integrated over
    quantiles: Array | None = None
    # (2, T, q): mean and standard deviation in the unit of the data, where those were transformed as well
    moments: Array | None = None
    drawn: DrawnFields | None = None  # of D draws of T fields, where values are censored
    fine_mean: Array | None = None  # (T, r) posterior mean alone, where that was asked for
    sampled: SampledMap | None = None  # mean and error bars from samples, where that was asked for
    left_out: LeftOut | None = None  # each observation as all others predict it, where that was asked for
    state: RingState | None = None  # of a field that is Markov in time, for the time after

    @property
    def mean(self) -> Array:
        """Posterior mean (T, q)."""
        return self.steps[-1].mean

    @property
    def std(self) -> Array:
        """Posterior standard deviation (T, q), latent."""
        return self.steps[-1].std

    def line(self) -> str:
        """Say how the solve ended."""
        said: str = self.status.value
        if self.status is Status.EXACT:
            return said
        return f"{said} after {counted(self.steps[-1].iteration, 'iteration')}"

    def of_times(self, count: int) -> "Solution":
        """Give each of so many times of the targets a row: (1, T q) as (T, q)."""
        own = self.computational_std
        steps = tuple(
            replace(step, mean=step.mean.reshape(count, -1), std=step.std.reshape(count, -1))
            for step in self.steps
        )
        return replace(self, steps=steps, computational_std=None if own is None else own.reshape(count, -1))

    def of_targets(self, chosen: slice | Indices) -> "Solution":
        """Give what it says of some of the targets."""
        own = self.computational_std
        steps = tuple(
            replace(step, mean=step.mean[:, chosen], std=step.std[:, chosen]) for step in self.steps
        )
        return replace(
            self,
            steps=steps,
            computational_std=None if own is None else own[:, chosen],
            quantiles=None if self.quantiles is None else self.quantiles[..., chosen],
            moments=None if self.moments is None else self.moments[..., chosen],
            drawn=None if self.drawn is None else self.drawn.part(chosen),
        )


def bounds_are_cheap(solver: Solver, *, observed: int, targets: int) -> bool:
    """Whether a solve says how much of its variances is unfinished computation, and plans for that."""
    return isinstance(solver, Affine) or observed <= FEW_POINTS or observed * targets <= MOST_CERTIFIED


def solve(
    prior: Prior,
    X: Array | LatLonGrid,
    y: Array,
    X_new: Array | LinearFunctionals | LatLonGrid,
    *,
    solver: Solver,
    execution: Execution,
    full_covariance: bool = False,
    X_mean: Array | LinearFunctionals | None = None,
    mean_like: Indices | None = None,
    X_sampled: Array | LinearFunctionals | None = None,
    samples: int = 0,
) -> Solution:
    """Condition on all times; together, where the solver's matrix does not depend on the values.

    Shapes: ``y`` (n, T), or (T, P, Q) on a grid, ``X_new`` (q, 3), ``X_mean`` (r, 3), ``mean_like`` (r,),
    ``X_sampled`` (r, 3).
    """
    fields = y.shape[0] if isinstance(X, LatLonGrid) else y.shape[1]
    progress, posteriors, seconds = execution.progress, list[Posterior](), list[dict[int, float]]()
    sampled, share, q = None, 0.0, target_count(X_new)
    if X_sampled is not None:
        # by columns: one for each sample, and one for each of the others
        share = samples / (samples + q)
        of_samples = replace(
            execution, progress=lambda fraction, text: progress(share * (fraction or 0.0), text)
        )
        sampled = sampled_map(prior, X, y, X_sampled, solver=solver, samples=samples, execution=of_samples)
    most = int((~np.isnan(y)).sum(axis=(1, 2) if isinstance(X, LatLonGrid) else 0).max())
    bounds = execution.certifies and bounds_are_cheap(solver, observed=most, targets=q)
    times = columns_of_solves(solver, fields)
    for number, columns in enumerate(times):
        clock = {0: 0.0}

        def report(state: Progress, number: int = number, clock: dict[int, float] = clock) -> None:
            clock[state.iteration] = state.seconds  # when an iteration was done
            done = (number + state.fraction) / len(times)
            progress(share + (1.0 - share) * done, _said(state, time=(number + 1, len(times))))

        posteriors.append(
            condition(
                prior_of_times(prior, columns),
                X,
                values_at(X, y, columns),
                X_new,
                solver=solver,
                covariance="full" if full_covariance else "diagonal",
                executor=execution.executor,
                memory_limit_bytes=execution.memory_limit_bytes,
                computational_bounds=bounds,
                checkpoints=execution.checkpoints,
                weights=execution.weights,
                on_plan=execution.on_plan if number == 0 else None,
                progress=report,
            )
        )
        seconds.append(clock)
    steps = _steps(posteriors, seconds, fields=fields, q=q)
    fine_mean = None
    if X_mean is not None and isinstance(solver, LinearMean):
        progress(1.0, f"mean at {len(X_mean):,} more points")
        done: Solver = solver
        if isinstance(solver, Affine):
            done = replace(solver, iterations=steps[-1].iteration, computational_share=None)
        fine_mean = posterior_mean(
            prior,
            X,
            y,
            X_mean,
            solver=done,
            iterations_by_target=_iterations(posteriors[0], mean_like),
            executor=execution.executor,
            memory_limit_bytes=execution.memory_limit_bytes,
        ).T
    known = all(posterior.certificate.known for posterior in posteriors)
    computational = None
    if bounds or known:
        found = [posterior.certificate.bounds(execution.executor)[1] for posterior in posteriors]
        computational = _std_by_time(found, fields=fields)
    plans = tuple(posterior.stats.plan for posterior in posteriors)
    automatic = isinstance(solver, Neighbours) and solver.neighbours == "auto"
    return Solution(
        steps=steps,
        status=Status.worst(posterior.status for posterior in posteriors),
        plan=tuple(plans[0].lines()),
        solvers=(f"{solver!r}: {plans[0].method}" if automatic else repr(solver),),
        plans=plans,
        executor=posteriors[0].stats.executor,
        computational_std=computational,
        computational_std_known=known,
        covariance=_covariance(posteriors, fields=fields) if full_covariance else None,
        drift=_drift(posteriors, fields=fields),
        fine_mean=fine_mean,
        sampled=sampled,
    )


def solve_left_out(
    prior: Prior, X: Array | LatLonGrid, y: Array, places: GridPlaces | None, execution: Execution
) -> LeftOut:
    """Predict each observation (n, T), or (T, P, Q) at places of a grid, from all the others."""
    mean, variance = each_left_out(
        prior,
        X,
        y,
        executor=execution.executor,
        memory_limit_bytes=execution.memory_limit_bytes,
        progress=lambda fraction: execution.progress(fraction, "each observation from all others"),
    )
    if places is not None:
        mean, variance = (fields.reshape(len(fields), -1)[:, places.positions] for fields in (mean, variance))
    return LeftOut(mean, np.sqrt(variance))


def columns_of_solves(solver: Solver, fields: int) -> list[slice]:
    """Give the columns of data of each solve: all, or one by one where the solver follows the values."""
    return [slice(None)] if solver.many_fields else [slice(t, t + 1) for t in range(fields)]


def values_at(X: Array | LatLonGrid, y: Array, times: slice) -> Array:
    """Take some times of values (n, T) at points, or (T, P, Q) on a grid."""
    return y[times] if isinstance(X, LatLonGrid) else y[:, times]


def _said(state: Progress, **counts: tuple[int, int]) -> str:
    """Say which of several times, batches and iterations is done."""
    counted = {
        **counts,
        "batch": (state.batch, state.batches),
        "iteration": (state.iteration, state.iterations),
    }
    return ", ".join(f"{name} {i} of {n}" for name, (i, n) in counted.items() if n > 1)


def sampled_map(
    prior: Prior,
    X: Array | LatLonGrid,
    y: Array,
    X_sampled: Array | LinearFunctionals,
    *,
    solver: Solver,
    samples: int,
    execution: Execution,
) -> SampledMap:
    """Mean and error bars of a map from samples: the same ones in every run."""

    def report(state: Progress) -> None:
        said = [f"{samples} samples of the map", _said(state)]
        execution.progress(state.fraction, ", ".join(filter(None, said)))

    found = posterior_by_samples(
        prior,
        X,
        y,
        X_sampled,
        solver=solver,
        samples=samples,
        # no field, design or solver of a job draws from this stream
        generator=np.random.default_rng(np.random.SeedSequence(samples, spawn_key=(SAMPLES_OF_MAP,))),
        executor=execution.executor,
        memory_limit_bytes=execution.memory_limit_bytes,
        checkpoints=execution.checkpoints,
        on_plan=execution.on_plan,
        progress=report,
    )
    std = _std_by_time([found.variance], fields=found.mean.shape[1])
    return SampledMap(found.mean.T, std, samples, 0.5 * found.relative_error)


def _covariance(posteriors: Sequence[Posterior], *, fields: int) -> Array:
    """Covariances of all times, (T, q, q)."""
    parts = [np.asarray(posterior.covariance) for posterior in posteriors]
    each = np.concatenate([part[None] if part.ndim == 2 else part for part in parts])
    return np.broadcast_to(each, (fields, *each.shape[1:]))


def _drift(posteriors: Sequence[Posterior], *, fields: int) -> DriftCoefficients | None:
    """Coefficients of the mean of all times, if they were estimated."""
    found = [posterior.coefficients for posterior in posteriors if posterior.coefficients is not None]
    if not found:
        return None
    names = found[0].names
    values = np.concatenate([each.values.reshape(len(names), -1) for each in found], axis=1)
    std = np.concatenate([each.std.reshape(len(names), -1) for each in found], axis=1)
    return DriftCoefficients(names, values, np.broadcast_to(std, (len(names), fields)))


def _iterations(posterior: Posterior, like: Indices | None) -> Indices | None:
    """Give the iterations of the targets that others go with; None where all had the same."""
    done = posterior.stats.iterations_by_target
    return None if like is None or (done == posterior.stats.iterations).all() else done[like]


def _std_by_time(variances: Sequence[Array], *, fields: int) -> Array:
    """Roots of variances (q,), for all times or one by one, or (q, T) where they differ, as (T, q)."""
    # The solve raises on variances that are negative beyond rounding; what is left is rounding.
    rows = np.concatenate([np.atleast_2d(np.sqrt(np.maximum(variance, 0.0)).T) for variance in variances])
    return np.broadcast_to(rows, (fields, rows.shape[1]))


def prior_of_times(prior: Prior, times: slice) -> Prior:
    """Restrict the mean of a prior to some of its columns; what is estimated has none."""
    if not prior.knows_mean:
        return prior

    def own(X: Array) -> Array:
        values = prior.known_at(X)  # one column, where all fields have the same
        return values if values.shape[1] == 1 else values[:, times]

    mean = prior.mean
    return replace(prior, mean=replace(mean, known=own) if isinstance(mean, KnownPlusEstimated) else own)


def _steps(
    posteriors: Sequence[Posterior], seconds: Sequence[dict[int, float]], *, fields: int, q: int
) -> tuple[SolveStep, ...]:
    """Stack the traces of the times; a time that was done early keeps its last state."""
    steps = []
    for iteration in range(max(len(posterior.trace) for posterior in posteriors)):
        states = [posterior.trace[min(iteration, len(posterior.trace) - 1)] for posterior in posteriors]
        mean = np.concatenate(
            [state.mean.T if state.mean.ndim == 2 else state.mean.reshape(-1, q) for state in states]
        )
        std = _std_by_time([_by_target(state.variance, q) for state in states], fields=fields)
        reached = max(state.iteration for state in states)
        spent = sum(clock.get(reached, max(clock.values())) for clock in seconds)
        steps.append(SolveStep(iteration=reached, mean=mean, std=std, seconds=spent))
    return tuple(steps)


def _by_target(variance: Array, q: int) -> Array:
    """Variances (q,) or (q, T) of targets, of a grid (P, Q) or (T, P, Q)."""
    if variance.ndim == 3:
        return variance.reshape(-1, q).T
    return variance if variance.shape[0] == q else variance.reshape(q)
