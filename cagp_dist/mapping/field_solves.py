"""Solves of all times at points of all kinds: one solve if it can be; means alone, samples, and left out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget import Plan
from cagp_dist.gp import condition, posterior_mean
from cagp_dist.gram.exact_variance import FEW_POINTS
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.gram.ring_filter import RingState
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.mapping.grid_places import GridPlaces
from cagp_dist.mapping.resources import Resources
from cagp_dist.posterior.left_out import each_left_out
from cagp_dist.posterior.result import Posterior, Progress
from cagp_dist.prior import Prior
from cagp_dist.runtime import Executor
from cagp_dist.samples import posterior_by_samples
from cagp_dist.solvers import Solver, Status
from cagp_dist.solvers.engine.affine import Affine
from cagp_dist.solvers.engine.kept_weights import WeightStore
from cagp_dist.solvers.engine.solve_checkpoints import SolveCheckpoints
from cagp_dist.solvers.interface import LinearMean

SAMPLES_OF_MAP = 0x6D6170  # Names the stream of random numbers of samples of maps


@dataclass(frozen=True)
class Execution(Resources):
    """Where and within what a solve is done, and who hears of it."""

    checkpoints: SolveCheckpoints | None = None
    weights: WeightStore | None = None  # where the weights of targets are kept
    on_plan: Callable[[Plan], None] = lambda plan: None
    progress: Callable[[float | None, str], None] = lambda fraction, text: None

    def within(self, name: str) -> "Execution":
        """Give a part of the solve checkpoints of its own."""
        kept = None if self.checkpoints is None else self.checkpoints.within(name)
        return replace(self, checkpoints=kept)

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


@dataclass(frozen=True, eq=False)
class Solution:
    """The end of a solve."""

    # Iteration 0 (the prior) to m; the last one is the posterior. These two alone where weights are kept.
    steps: tuple[SolveStep, ...]
    status: Status  # the worst among the times
    plan: tuple[str, ...]  # what was planned, for people
    # (T, q) root of the upper bound of the part of the variance that is unfinished computation; zeros where
    # the solve was exact. None for actions, whose variance says how far they are from the exact one, but
    # not at a cost that is small beside their own.
    computational_std: Array | None = None
    fine_mean: Array | None = None  # (T, r) posterior mean alone, where that was asked for
    sampled: SampledMap | None = None  # mean and error bars from samples, where that was asked for
    # (q,) of a cross-validation, the nugget with which each test point was predicted, where they differ
    test_nugget: Array | None = None
    left_out: LeftOut | None = None  # each observation as all others predict it, where that was asked for
    # (N, r) draws of the error of the mean at the cells of the map, where a later time is to start from it
    error_draws: Array | None = None
    state: RingState | None = None  # of a field that is Markov in time, for the time after


def bounds_are_cheap(solver: Solver, *, observed: int) -> bool:
    """Whether a run says how much of its variances is unfinished computation, and plans for that."""
    return isinstance(solver, Affine) or observed <= FEW_POINTS


def solve(
    prior: Prior,
    X: Array | LatLonGrid,
    y: Array,
    X_new: Array | LinearFunctionals,
    *,
    solver: Solver,
    execution: Execution,
    X_mean: Array | LinearFunctionals | None = None,
    mean_like: Indices | None = None,
    X_sampled: Array | LinearFunctionals | None = None,
    samples: int = 0,
) -> Solution:
    """Condition on all times; together, where the solver's matrix does not depend on the values.

    Shapes: ``y`` (n, T), ``X_new`` (q, 3), ``X_mean`` (r, 3), ``mean_like`` (r,), ``X_sampled`` (r, 3).
    """
    fields = y.shape[0] if isinstance(X, LatLonGrid) else y.shape[1]
    progress, posteriors, seconds = execution.progress, list[Posterior](), list[dict[int, float]]()
    sampled, share = None, 0.0
    if X_sampled is not None:
        # by columns: one for each sample, and one for each of the others
        share = samples / (samples + len(X_new))
        of_samples = replace(
            execution, progress=lambda fraction, text: progress(share * (fraction or 0.0), text)
        )
        sampled = sampled_map(prior, X, y, X_sampled, solver=solver, samples=samples, execution=of_samples)
    most = int((~np.isnan(y)).sum(axis=(1, 2) if isinstance(X, LatLonGrid) else 0).max())
    bounds, times = bounds_are_cheap(solver, observed=most), columns_of_solves(solver, fields)
    for number, columns in enumerate(times):
        clock, own = {0: 0.0}, execution.within(f"times-{number}")

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
                executor=execution.executor,
                memory_limit_bytes=execution.memory_limit_bytes,
                computational_bounds=bounds,
                checkpoints=own.checkpoints,
                weights=execution.weights,
                on_plan=execution.on_plan if number == 0 else None,
                progress=report,
            )
        )
        seconds.append(clock)
    steps = _steps(posteriors, seconds, fields=fields)
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
    return Solution(
        steps=steps,
        status=Status.worst(posterior.status for posterior in posteriors),
        plan=tuple(posteriors[0].stats.plan.lines()),
        computational_std=_computational_std(posteriors, solver, execution.executor, fields=fields),
        fine_mean=fine_mean,
        sampled=sampled,
    )


def solve_left_out(
    prior: Prior, X: Array | LatLonGrid, y: Array, places: GridPlaces | None, execution: Execution
) -> LeftOut:
    """Predict each observation (n, T), or (T, P, Q) at places of a grid, from all the others."""
    mean, variance = each_left_out(
        prior, X, y, executor=execution.executor, memory_limit_bytes=execution.memory_limit_bytes
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


def _computational_std(
    posteriors: Sequence[Posterior], solver: Solver, executor: Executor, *, fields: int
) -> Array | None:
    """Root of the upper bounds (math 1.3), where they are known or cost little beside the solve."""
    certificates = [posterior.certificate for posterior in posteriors]
    if not isinstance(solver, Affine) and not all(certificate.known for certificate in certificates):
        return None
    return _std_by_time([certificate.bounds(executor)[1] for certificate in certificates], fields=fields)


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
    """Restrict the mean of a prior to some of its columns; one that is estimated has none."""
    if prior.estimates_mean:
        return prior
    return replace(prior, mean=lambda X: prior.mean_at(X)[:, times])


def _steps(
    posteriors: Sequence[Posterior], seconds: Sequence[dict[int, float]], *, fields: int
) -> tuple[SolveStep, ...]:
    """Stack the traces of the times; a time that was done early keeps its last state."""
    steps = []
    for iteration in range(max(len(posterior.trace) for posterior in posteriors)):
        states = [posterior.trace[min(iteration, len(posterior.trace) - 1)] for posterior in posteriors]
        mean = np.concatenate([state.mean.T for state in states])
        std = _std_by_time([state.variance for state in states], fields=fields)
        reached = max(state.iteration for state in states)
        spent = sum(clock.get(reached, max(clock.values())) for clock in seconds)
        steps.append(SolveStep(iteration=reached, mean=mean, std=std, seconds=spent))
    return tuple(steps)
