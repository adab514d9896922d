"""From observed values to the posterior at test and map points: one solve for all times if it can be."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget import Plan
from cagp_dist.calibration.recalibration.sharp import FittedSharp
from cagp_dist.calibration.verification.scores import PointScores
from cagp_dist.gp import condition, posterior_mean
from cagp_dist.gram.exact_variance import FEW_POINTS
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.kernels import families_of
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.likelihood.fit_result import each
from cagp_dist.likelihood.numbering import Model
from cagp_dist.posterior.result import Posterior, Progress
from cagp_dist.prior import Mean, Prior
from cagp_dist.runtime import Executor
from cagp_dist.samples import posterior_by_samples
from cagp_dist.service.jobfile.job import Job
from cagp_dist.solvers import Solver, Status
from cagp_dist.solvers.engine.affine import Affine
from cagp_dist.solvers.engine.kept_weights import WeightStore
from cagp_dist.solvers.engine.solve_checkpoints import SolveCheckpoints
from cagp_dist.solvers.interface import LinearMean
from cagp_dist.store.schema import PublishedLaw

SAMPLES_OF_MAP = 0x6D6170
"""Names the stream of random numbers of samples of maps."""


@dataclass(frozen=True, eq=False)
class SolveStep:
    """The posterior after some iterations, for T times and q points.

    Attributes
    ----------
    iteration : int
        How many.
    mean : array, shape (T, q)
        In the unit of the observations.
    std : array, shape (T, q)
        In the same unit; latent, without noise. Rows are equal where times share one solve.
    seconds : float
        Wall time from the start of the solve.
    """

    iteration: int
    mean: Array
    std: Array
    seconds: float


@dataclass(frozen=True, eq=False)
class SampledMap:
    """Mean and error bars of a fine map, the latter from samples.

    Attributes
    ----------
    mean, std : array, shape (T, r)
        In the unit of the observations; latent, without noise.
    samples : int
        Of each pattern of gaps.
    relative_error : float
        Standard error of a standard deviation, relative to it, at most.
    """

    mean: Array
    std: Array
    samples: int
    relative_error: float


@dataclass(frozen=True, eq=False)
class LeftOut:
    """What all other observations predict at each observed point; NaN where nothing was observed.

    Attributes
    ----------
    mean, std : array, shape (T, n)
        In the unit of the observations; the noise of an observation is included.
    """

    mean: Array
    std: Array


@dataclass(frozen=True, eq=False)
class Sharpened:
    """A sharp GP that was fitted, and its latent standard deviations for each stretch of its kernel.

    Attributes
    ----------
    fitted : FittedSharp
    test, cells, places : array, shape (S, 1, q) or (S, T, q)
        At test points, points of a map and places of a table, in the unit of the observations, without noise.
    """

    fitted: FittedSharp
    test: Array
    cells: Array
    places: Array


@dataclass(frozen=True, eq=False)
class MixedLaws:
    """What is said of observations where the numbers of the prior are integrated over.

    Attributes
    ----------
    scores : PointScores
        Of the observations (T, q) at test points; NaN where there is none.
    of_test : PublishedLaw
        Laws at test points.
    of_cells, of_places : PublishedLaw or None
        With the usual noise, at points of a map and places of a table.
    nugget : float
        Mean of the noise variance, or of the nugget beside a known noise.
    """

    scores: PointScores
    of_test: PublishedLaw
    of_cells: PublishedLaw | None
    of_places: PublishedLaw | None
    nugget: float


@dataclass(frozen=True, eq=False)
class Solution:
    """The end of a solve.

    Attributes
    ----------
    steps : tuple of Step
        Iteration 0 (the prior) to m; the last one is the posterior. These two alone where weights are kept.
    status : Status
        The worst among the times.
    plan : tuple of str
        What was planned, for people.
    computational_std : array, shape (T, q), or None
        Root of the upper bound of the part of the variance that is unfinished computation; zeros where the
        solve was exact. None for actions, whose variance says how far they are from the exact one, but not at
        a cost that is small beside their own.
    fine_mean : array, shape (T, r), or None
        Posterior mean alone, where that was asked for.
    sampled : SampledMap or None
        Mean and error bars from samples, where that was asked for.
    test_nugget : array, shape (q,), or None
        Of a cross-validation, the nugget with which each test point was predicted, where they differ.
    left_out : LeftOut or None
        Each observation as all others predict it, where that was asked for.
    sharp : Sharpened or None
        Quantiles with lengthscales of their own, where the job asks for them
        (`cagp_dist.service.sharp_jobs`).
    error_draws : array, shape (N, r), or None
        Draws of the error of the mean at the cells of the map, where a later time is to start from it.
    mixed : MixedLaws or None
        Where the numbers of the prior are integrated over (`cagp_dist.service.integrated_jobs`).
    """

    steps: tuple[SolveStep, ...]
    status: Status
    plan: tuple[str, ...]
    computational_std: Array | None = None
    fine_mean: Array | None = None
    sampled: SampledMap | None = None
    test_nugget: Array | None = None
    left_out: LeftOut | None = None
    sharp: Sharpened | None = None
    error_draws: Array | None = None
    mixed: MixedLaws | None = None


def prior_of(job: Job, mean: Mean) -> Prior | None:
    """Build the prior of a job, or None if its numbers are to be fitted."""
    numbers = job.prior.numbers
    if numbers is None:
        return None
    kernel = Model(families_of(job.prior.kernel)).kernel(each(numbers.lengthscale), each(numbers.variance))
    return Prior(kernel, noise_variance=numbers.noise_variance, mean=mean)


def bounds_are_cheap(solver: Solver, *, observed: int) -> bool:
    """Whether a run says how much of its variances is unfinished computation, and plans for that.

    It does where this costs little beside the solve, or is no more than a Cholesky factor.
    """
    return isinstance(solver, Affine) or observed <= FEW_POINTS


def solve(
    prior: Prior,
    X: Array | LatLonGrid,
    y: Array,
    X_new: Array | LinearFunctionals,
    *,
    solver: Solver,
    executor: Executor,
    memory_limit_bytes: int | None = None,
    on_plan: Callable[[Plan], None],
    progress: Callable[[float, str], None],
    X_mean: Array | LinearFunctionals | None = None,
    mean_like: Indices | None = None,
    X_sampled: Array | LinearFunctionals | None = None,
    samples: int = 0,
    checkpoints: SolveCheckpoints | None = None,
    weights: WeightStore | None = None,
) -> Solution:
    """Condition on all times.

    Solvers whose matrix does not depend on the values take all times in one solve; conjugate gradients
    follow one residual and are called once for each time.

    Shapes: ``y`` (n, T), ``X_new`` (q, 3), ``X_mean`` (r, 3), ``mean_like`` (r,), ``X_sampled`` (r, 3).
    """
    on_grid = isinstance(X, LatLonGrid)
    fields = y.shape[0] if on_grid else y.shape[1]
    times = [slice(None)] if solver.many_fields else [slice(t, t + 1) for t in range(fields)]
    posteriors, seconds, sampled, share = list[Posterior](), list[dict[int, float]](), None, 0.0
    if X_sampled is not None:
        # by columns: one for each sample, and one for each of the others
        share = samples / (samples + len(X_new))
        sampled = sampled_map(
            prior,
            X,
            y,
            X_sampled,
            solver=solver,
            samples=samples,
            executor=executor,
            memory_limit_bytes=memory_limit_bytes,
            checkpoints=checkpoints,
            on_plan=on_plan,
            progress=lambda fraction, text: progress(share * fraction, text),
        )
    bounds = bounds_are_cheap(solver, observed=int((~np.isnan(y)).sum(axis=(1, 2) if on_grid else 0).max()))
    for number, columns in enumerate(times):
        clock = {0: 0.0}
        posteriors.append(
            condition(
                prior_of_times(prior, columns),
                X,
                y[columns] if on_grid else y[:, columns],
                X_new,
                solver=solver,
                executor=executor,
                memory_limit_bytes=memory_limit_bytes,
                computational_bounds=bounds,
                checkpoints=None if checkpoints is None else checkpoints.within(f"times-{number}"),
                weights=weights,
                on_plan=on_plan if number == 0 else None,
                progress=partial(_report, progress, clock, share, (number + 1, len(times))),
            )
        )
        seconds.append(clock)
    steps = _steps(posteriors, seconds, fields=fields)
    fine_mean = None
    if X_mean is not None and isinstance(solver, LinearMean):
        progress(1.0, f"mean at {len(X_mean):,} more points")
        fine_mean = posterior_mean(
            prior,
            X,
            y,
            X_mean,
            solver=_all_iterations(solver, steps[-1].iteration),
            iterations_by_target=_iterations(posteriors[0], mean_like),
            executor=executor,
            memory_limit_bytes=memory_limit_bytes,
        ).T
    return Solution(
        steps=steps,
        status=Status.worst(posterior.status for posterior in posteriors),
        plan=tuple(posteriors[0].stats.plan.lines()),
        computational_std=_computational_std(posteriors, solver, executor, fields=fields),
        fine_mean=fine_mean,
        sampled=sampled,
    )


def _report(
    progress: Callable[[float, str], None],
    clock: dict[int, float],
    share: float,
    time: tuple[int, int],
    state: Progress,
) -> None:
    """Note when an iteration was done, and say how far the solve is behind a share that others had."""
    clock[state.iteration] = state.seconds
    done = (time[0] - 1 + state.fraction) / time[1]
    progress(share + (1.0 - share) * done, _said(state, time=time))


def _said(state: Progress, **counts: tuple[int, int]) -> str:
    """Say which of several times, batches and iterations is done."""
    counted = {
        **counts,
        "batch": (state.batch, state.batches),
        "iteration": (state.iteration, state.iterations),
    }
    return ", ".join(f"{name} {i} of {n}" for name, (i, n) in counted.items() if n > 1)


def _all_iterations(solver: Solver, iterations: int) -> Solver:
    """Give a solver that does so many iterations, where it has any."""
    if not isinstance(solver, Affine):
        return solver
    return replace(solver, iterations=iterations, computational_share=None)


def sampled_map(
    prior: Prior,
    X: Array | LatLonGrid,
    y: Array,
    X_sampled: Array | LinearFunctionals,
    *,
    solver: Solver,
    samples: int,
    executor: Executor,
    memory_limit_bytes: int | None,
    checkpoints: SolveCheckpoints | None = None,
    on_plan: Callable[[Plan], None],
    progress: Callable[[float, str], None],
) -> SampledMap:
    """Mean and error bars of a map from samples: the same ones in every run."""

    def report(state: Progress) -> None:
        progress(state.fraction, ", ".join(filter(None, [f"{samples} samples of the map", _said(state)])))

    found = posterior_by_samples(
        prior,
        X,
        y,
        X_sampled,
        solver=solver,
        samples=samples,
        # no field, design or solver of a job draws from this stream
        generator=np.random.default_rng(np.random.SeedSequence(samples, spawn_key=(SAMPLES_OF_MAP,))),
        executor=executor,
        memory_limit_bytes=memory_limit_bytes,
        checkpoints=checkpoints,
        on_plan=on_plan,
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
