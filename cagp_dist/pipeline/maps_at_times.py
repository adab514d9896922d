"""Maps at given times from the observations of all times: space and time in one prior (math 21).

Observations and targets are points in space and time here, `Observations.in_space_and_time` and
`MapPoints.at_hours`: one field, whose solves, folds and samples are those of any other.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from types import MappingProxyType
from typing import cast

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget import Plan, Work
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.targets import averaged, prior_variance, target_points
from cagp_dist.kernels import AUTO, Family, Kernel, Matern12, chosen_by
from cagp_dist.likelihood.fit import fit
from cagp_dist.likelihood.fit_result import FitResult
from cagp_dist.likelihood.fit_work import FitSize, fit_work
from cagp_dist.likelihood.kernel_choice import CANDIDATES, MARGIN, likelihood_of, start_of, usable
from cagp_dist.likelihood.numbering import Families, extents, in_extents
from cagp_dist.likelihood.observed import NEIGHBOURS_CELL, spread_cells
from cagp_dist.likelihood.starts import Start
from cagp_dist.pipeline.defaults import NO_NUGGET
from cagp_dist.pipeline.field_solves import Execution, Solution, SolveStep
from cagp_dist.pipeline.fitted_model import FittedModel, families, known_noise
from cagp_dist.pipeline.map_mean import MeanLike, is_estimated, is_read, mean_of
from cagp_dist.pipeline.map_points import MapPoints, Targets
from cagp_dist.pipeline.map_solves import solve_map, solver_of
from cagp_dist.pipeline.model_settings import FitWork, KernelLike, ModelSettings
from cagp_dist.pipeline.observations import Observations
from cagp_dist.pipeline.resources import Resources
from cagp_dist.pipeline.series_maps import predict_series, series_map
from cagp_dist.prior import Prior
from cagp_dist.solvers import Solver, Status
from cagp_dist.space_time import AXES, SpaceTime, SpaceTimeOf
from cagp_dist.text import counted

COMPARED = 500
"""Values by which kernels are compared, exactly: a dozen fits of a second or two."""

FITTED = 1_000
"""Values of stations to which the numbers are fitted, exactly; more where a dozen times of all are more."""

SUMMED = 20_000
"""Values to which the numbers are fitted at most, of scattered places those of a sum of kernels."""

LASTING = SpaceTimeOf(Matern12, Matern12)
"""What lasts at a place, beside the weather in the sum that is compared as well."""

NUMBERS_MORE = 3
"""Of a sum of two kernels: two lengthscales and a variance, each of which has to be worth the margin."""

FITS = 4
"""How many fits to `FITTED` values the choice of a kernel takes, about."""

RUN = (0, 1, 3, 7, 12, 24)
"""Times of a run, in steps, among which are lags of 1 to 7, and of a day where steps are hours."""

DENSE_RUN, DENSE_TIMES = (0, 1, 2, 3, 4, 5), 24
"""Times of a run of so many stations that not all of them are compared, and times to which they are fitted.

What is between neighbouring stations, and from one hour to the next, decides what is predicted there.
"""

FEWEST_TIMES = 12
"""Times that are chosen, at least, if there are so many: two runs."""

FEWEST_REPORTS = 3
"""Values at each place, on average, from which on places are stations that report again and again."""

PLACES_CELL = 8
"""Places of the cells that are kept whole where not all places can be chosen."""

LEEWAY = 30.0
"""Factor by which lengthscales of weather may change when what lasts is fitted beside it."""

WIDE, LONG = 1e3, 100.0
"""Of what lasts: factors from the least chord to the places' extent, and from the period to most hours."""

SAME_HOUR = 1e-6
"""Hours by which times are the same but for rounding."""

MOST_TOGETHER = 500_000
"""Targets of one solve, whose memory is some hundred megabytes."""


def fit_in_space_and_time(observed: Observations, asked: ModelSettings, work: FitWork) -> FittedModel:
    """Fit kernel and noise of space and time to values, each a point with its hour.

    Where the kernel is to be chosen, metric kernels (``in_time`` None), products with kernels in time, and
    the best metric kernel and the best of all, each with a part that lasts, are compared by the likelihood of
    some 500 values. The best is fitted to more: of stations to 1,000 values, or where a dozen times of all
    are more to 24 times of all, up to 20,000; of scattered places to all, or a sum to 20,000. Values of
    stations are those of `whole_times`. A kernel of space and time with its numbers keeps them.
    """
    kernel, mean, X = asked.kernel, asked.mean, observed.X
    known = known_noise(observed, observed.there, asked.noise_std)
    least = float(known.min() if known.ndim == 0 else known[observed.there].min())
    check_mean(mean)
    beside = known if observed.excess is None else known + observed.excess
    bounds: dict[str, Sequence[object]] = {} if least == 0.0 else {"noise_variance": (least, least)}
    if isinstance(kernel, Kernel):
        check_kernel(kernel)
        bounds |= _held(kernel)
    held = dict.fromkeys(bounds, "it was given")
    if isinstance(kernel, Kernel) and least > 0.0:
        return FittedModel(kernel, mean, known, held=held, excess=observed.excess)
    centre = mean_of(mean, observed, observed.there, np.arange(1))
    places = np.unique(X[:, :-1], axis=0, return_inverse=True)[1].reshape(-1)
    count = 1 + int(places.max())
    stations = len(X) >= FEWEST_REPORTS * count

    def chosen(most: int) -> Indices:
        if len(X) <= most:
            return np.arange(len(X))
        return (
            whole_times(X, places, most)
            if stations
            else spread_cells(in_extents(X, AXES), most, cell_size=NEIGHBOURS_CELL)
        )

    def fitted(
        family: tuple[SpaceTimeOf, ...],
        some: Indices,
        *,
        start: Start | None = None,
        starts: int = 3,
        limits: Mapping[str, Sequence[object]] = MappingProxyType({}),
    ) -> FitResult:
        return fit(
            cast("Families", family),
            X[some],
            observed.values[0, some],
            mean=centre,
            executor=work.resources.executor,
            memory_limit_bytes=work.resources.memory_limit_bytes,
            noise_deviations=None if beside.ndim == 0 else beside[some] - least,
            bounds={**bounds, **limits} or None,
            start=start,
            starts=starts,
        )

    candidates, some = candidates_in_time(kernel, asked.in_time), chosen(COMPARED)
    text = f"fitting a kernel of space and time, and noise, to {len(X):,} observations"
    with work.narrator.stage("fit", text):
        results = [fitted(candidates[0], some)]
        near = partial(fitted, some=some, start=start_of(results[0]), starts=1)
        results += [near(family) for family in candidates[1:]]
        result = _best(results)
        limits: dict[str, Sequence[object]] = {}
        metric = [each for each in results if _is_metric(each)]
        if metric and len(asked.in_time) > 1 and len(candidates[0]) == 1:
            sides = extents(X, AXES)
            extent, dense = (float(sides[0]), float(sides[-1])), are_dense(count)
            for weather in [_best(metric)] if _is_metric(result) else [_best(metric), result]:
                summed, own = with_lasting(weather, partial(fitted, some=some), extent, dense=dense)
                margin = MARGIN if limits else NUMBERS_MORE * MARGIN
                if usable(summed) and likelihood_of(summed) > likelihood_of(result) + margin:
                    result, limits = summed, own
            held |= dict.fromkeys(limits, "no value tells it of what lasts, and it is held")
        parts = cast("tuple[SpaceTime, ...]", result.prior.kernel.parts)
        all_of_them = len(X) if len(parts) == 1 else SUMMED
        if stations:  # all of them at some times: part of them tells too little of short distances
            all_of_them = min(DENSE_TIMES * count, SUMMED) if are_dense(count) else FITTED
        if result.points < (more := chosen(all_of_them)).size:
            family = tuple(part.family for part in parts)
            result = fitted(family, more, start=start_of(result), starts=1, limits=limits)
    where = f"{result.points:,} values at {np.unique(X[more, -1]).size:,} times"
    nugget = max(result.prior.noise_number - least, NO_NUGGET * least)
    return FittedModel(result.prior.kernel, mean, known, nugget, result, where, held, excess=observed.excess)


def whole_times(X: Array, places: Indices, most: int) -> Indices:
    """Choose about ``most`` of values at points X (n, 4), whose places are numbered: all of some times.

    These come in runs that are spread over the period: of mixed lags, or of so many stations that a dozen
    times are more than `FITTED`, of times that follow each other. Where they are too few, cells of
    neighbouring places are left out. Values that are nearest in space and time would be those of one station
    after another, which tell little of distances (math 21). Of times that differ from value to value the
    hours count.
    """
    times, at = np.unique(np.rint(X[:, -1] / SAME_HOUR), return_inverse=True)
    if 2 * times.size > len(X):
        times, at = np.unique(np.floor(X[:, -1] + SAME_HOUR), return_inverse=True)
    wanted = min(times.size, max(FEWEST_TIMES, most * times.size // len(X)))
    run = DENSE_RUN if are_dense(1 + int(places.max())) else RUN
    runs = -(-wanted // len(run))
    first = np.linspace(0, max(0, times.size - 1 - run[-1]), runs).round().astype(int)
    kept = np.unique((first[:, None] + run).ravel()[:wanted].clip(max=times.size - 1))
    others = np.setdiff1d(np.arange(times.size), kept)  # a short period has no room for runs
    further = np.linspace(0, others.size - 1, wanted - kept.size).round().astype(int)
    found = np.flatnonzero(np.isin(at.reshape(-1), np.append(kept, others[further])))
    if found.size <= 1.2 * most:
        return found
    own, index = np.unique(places, return_index=True)
    some = spread_cells(X[index, :-1], own.size * most // found.size, cell_size=PLACES_CELL)
    return found[np.isin(places[found], own[some])]


def are_dense(places: int) -> bool:
    """Whether a dozen times of so many stations are more than numbers are fitted to exactly."""
    return FEWEST_TIMES * places > FITTED


def _is_metric(result: FitResult) -> bool:
    """Whether a fit is of a metric kernel alone."""
    (first, *more) = result.prior.kernel.parts
    return not more and cast("SpaceTime", first).time is None


def with_lasting(
    weather: FitResult, fitted: Callable[..., FitResult], extent: tuple[float, float], *, dense: bool
) -> tuple[FitResult, dict[str, Sequence[object]]]:
    """Fit weather and what lasts, and give limits of lengthscales; ``extent`` is a chord and hours.

    What lasts is an offset that each place has for itself and for ever, unless one that neighbours share, or
    that ends, is better by the margin: offsets that look shared by chance spoil what is predicted between
    places. Lengthscales that values leave open are held where the search has come to. Beyond the extent of
    the places they only make more of a common constant, which the mean is. Between ``dense`` stations what
    they share is as smooth in space as the weather.
    """
    (part,) = cast("tuple[SpaceTime, ...]", weather.prior.kernel.parts)
    (chord, hours), (far, period) = cast("tuple[float, float]", part.lengthscale), extent
    least, longest = min(far / WIDE, 0.1 * chord), max(LONG * period, hours)
    near = tuple((own / LEEWAY, own * LEEWAY) for own in (chord, hours))

    def begun(lasting: tuple[float, float]) -> Start:
        """Numbers to begin with, by the lengthscales of what lasts."""
        variances = [0.7 * part.variance, 0.3 * part.variance]
        return {
            "lengthscale": [(chord, hours), lasting],
            "variance": variances,
            "noise_variance": weather.prior.noise_number,
        }

    def summed(
        start: Start, *lasting: tuple[float, float], family: SpaceTimeOf = LASTING
    ) -> tuple[FitResult, dict[str, Sequence[object]]]:
        """Fit both, within these limits of the lengthscales of what lasts."""
        own: dict[str, Sequence[object]] = {"lengthscale": (near, lasting)}
        return fitted((part.family, family), start=start, starts=1, limits=own), own

    alone = summed(begun((least, longest)), (least, least), (longest, longest))
    own = SpaceTimeOf(part.family.space, Matern12) if dense else LASTING
    start = begun((min(0.3 * chord, 0.3 * far), max(period, hours)))
    shared = summed(start, (least, far), (hours, longest), family=own)
    if not usable(shared[0]):
        found = cast("tuple[float, float]", shared[0].prior.kernel.parts[1].lengthscale)
        shared = summed(start_of(shared[0]), *((at, at) for at in found), family=own)
    worth = likelihood_of(shared[0]) > likelihood_of(alone[0]) + MARGIN
    return shared if worth or not usable(alone[0]) else alone


def work_in_time(values: int, places: int, *, deviating: bool, workers: int) -> Work:
    """Count what it takes to fit a kernel of space and time to so many values at so many places, about."""
    stations = values >= FEWEST_REPORTS * places
    if values <= FITTED or (stations and not are_dense(places)):
        size = FitSize("dense", min(values, FITTED), 1, None, 0, deviating=deviating)
    else:
        fitted = min(values, DENSE_TIMES * places, SUMMED) if stations else values
        size = FitSize("vecchia", fitted, 1, None, 0, deviating=deviating)
    return FITS * fit_work(size, workers=workers)


def predict_in_time(
    observed: Observations,
    learned: FittedModel,
    targets: MapPoints,
    *,
    solver: str | Solver,
    lead_hours: float | None = None,
    window_hours: float | None = None,
    execution: Execution,
) -> Solution:
    """Predict the field at points in space and time, all of them together: one field.

    With a lead each from the observations that end so long before it, with a window from those within so many
    hours of it. A mean that is fitted is then that of all of them. Without any it is the prior.
    """
    groups = _groups(observed, targets, lead_hours, window_hours)
    found = _predicted(observed, learned, targets, solver, groups, execution)
    return replace(
        found,
        steps=(_before(observed, learned, targets), *found.steps),
        plan=(*found.plan, _seen_text(observed, lead_hours, window_hours, solves=len(found.plans))),
    )


def _predicted(
    observed: Observations,
    learned: FittedModel,
    targets: MapPoints,
    asked: str | Solver,
    groups: Sequence[tuple[Indices, Indices | None]],
    execution: Execution,
) -> Solution:
    """Predict by modes, or by a solve for all targets that see the same observations."""
    began, q = perf_counter(), len(targets.X)
    series = series_map(observed, learned, targets, asked, execution) if groups[0][1] is None else None
    if series is not None:
        prior = learned.prior(observed, observed.there)
        return predict_series(series, prior, execution)
    most = groups[0][1]
    solver = solver_of(asked, observed if most is None or not most.size else observed.only(most))
    found: list[tuple[Indices, Solution]] = []
    done = 0
    for group, chosen in groups:
        seen = observed if chosen is None else observed.only(chosen)
        for some in np.array_split(group, max(1, -(-group.size // MOST_TOGETHER))):

            def said(fraction: float | None, text: str, done: int = done, size: int = some.size) -> None:
                execution.progress((done + (fraction or 0.0) * size) / q, "all times together")

            own = replace(execution, progress=said, on_plan=_unsaid if found else execution.on_plan)
            part = targets.part(some)
            if seen.count:
                solution = solve_map(seen, learned, Targets(part), solver=solver, execution=own)
            else:
                solution = _prior(observed, learned, part, execution)
            found.append((some, solution))
            done += some.size
    return _joined(found, perf_counter() - began)


def _unsaid(plan: Plan) -> None:
    """Take the plan of a solve that is much like the first one, which was said."""


def _groups(
    observed: Observations, targets: MapPoints, lead: float | None, window: float | None
) -> list[tuple[Indices, Indices | None]]:
    """Targets that see the same observations, and these (None: all); those that see most first."""
    if lead is None and window is None:
        return [(np.arange(len(targets.X)), None)]
    hours, there = targets.X[:, -1], observed.there
    there = there[np.argsort(observed.X[there, -1], kind="stable")]
    known, reach = observed.X[there, -1], np.inf if window is None else window + SAME_HOUR
    first = np.searchsorted(known, hours - reach)
    last = np.searchsorted(known, hours + reach if lead is None else hours - lead + SAME_HOUR, side="right")
    last = np.maximum(first, last)
    ranges, group = np.unique(np.stack([first, last], axis=1), axis=0, return_inverse=True)
    return [
        (np.flatnonzero(group.reshape(-1) == number), there[slice(*ranges[number])])
        for number in np.argsort(ranges[:, 0] - ranges[:, 1], kind="stable")
    ]


def _before(observed: Observations, learned: FittedModel, targets: MapPoints) -> SolveStep:
    """Give the prior of all targets (1, q), with coefficients of its mean by least squares."""
    std, points = np.sqrt(prior_variance(learned.kernel, targets.wanted)[None]), target_points(targets.wanted)
    if is_estimated(learned.mean):
        basis, values = np.asarray(learned.mean.basis_at(observed.X[observed.there])), observed.values[0]
        coefficients = np.linalg.lstsq(basis, values[observed.there], rcond=None)[0]
        mean = np.asarray(learned.mean.basis_at(points)) @ coefficients[:, None]
    else:
        mean = _known_mean(observed, learned).mean_at(points)
    return SolveStep(0, averaged(targets.wanted, mean).T, std, 0.0)


def _seen_text(observed: Observations, lead: float | None, window: float | None, *, solves: int) -> str:
    """Say what each target is predicted from."""
    times = np.unique(observed.hours[observed.there]).size
    seen = "all of them" if window is None else f"those within {window:g} hours"
    if lead is not None:
        seen += f" that end {lead:g} hours before it" if lead else ", none later than itself"
    return (
        f"{counted(observed.count, 'value')} at {counted(times, 'time')} are points in space and time; a "
        f"target sees {seen}: {counted(solves, 'solve')}"
    )


def _known_mean(observed: Observations, learned: FittedModel) -> Prior:
    """Give a prior whose mean is the one that is known."""
    return Prior(learned.kernel, 1.0, mean_of(learned.mean, observed, observed.there, np.arange(1)))


def _prior(
    observed: Observations, learned: FittedModel, targets: MapPoints, resources: Resources
) -> Solution:
    """Give the prior, where nothing was observed; NaN where its mean is to be estimated from something."""
    std = np.sqrt(prior_variance(learned.kernel, targets.wanted)[None])
    if is_estimated(learned.mean):
        mean, std = np.full((2, *std.shape), np.nan)
    else:
        known = _known_mean(observed, learned).mean_at(target_points(targets.wanted))
        mean = averaged(targets.wanted, known).T
    return Solution(
        steps=(SolveStep(1, mean, std, 0.0),),
        status=Status.EXACT,
        plan=(),
        executor=resources.executor.description,
        computational_std=np.where(np.isnan(std), np.nan, 0.0),
    )


def _joined(parts: Sequence[tuple[Indices, Solution]], seconds: float) -> Solution:
    """Put solutions at some targets together; coefficients of a drift are those of the first ones."""
    solutions = [solution for _, solution in parts]
    order = np.argsort(np.concatenate([chosen for chosen, _ in parts]))
    mean, std = (
        np.concatenate([getattr(each, name) for each in solutions], axis=1)[:, order]
        for name in ("mean", "std")
    )
    own = [each.computational_std for each in solutions]
    known = [each for each in own if each is not None]
    return Solution(
        steps=(SolveStep(1, mean, std, seconds),),
        status=Status.worst(each.status for each in solutions),
        plan=solutions[0].plan,
        solvers=tuple(dict.fromkeys(name for each in solutions for name in each.solvers)),
        plans=tuple(plan for each in solutions for plan in each.plans),
        executor=solutions[0].executor,
        computational_std=np.concatenate(known, axis=1)[:, order] if len(known) == len(own) else None,
        computational_std_known=all(each.computational_std_known for each in solutions),
        drift=solutions[0].drift,
    )


def check_kernel(kernel: Kernel) -> None:
    """Refuse a kernel with its numbers that knows of no time."""
    if not all(isinstance(part, SpaceTime) for part in kernel.parts):
        raise ArgumentError(
            f"kernel is {kernel!r}; expected a kernel of space and time where maps at times are informed by "
            'all times: cagp.SpaceTime(in_space, in_time), or "auto".',
            key="kernel-of-time",
        )


def _held(kernel: Kernel) -> dict[str, Sequence[object]]:
    """Bounds of a fit that keep the numbers of a kernel."""
    lengthscales = [
        tuple((own, own) for own in cast("tuple[float, ...]", part.lengthscale)) for part in kernel.parts
    ]
    variances = [(part.variance, part.variance) for part in kernel.parts]
    if len(kernel.parts) == 1:
        return {"lengthscale": lengthscales[0], "variance": variances[0]}
    return {"lengthscale": lengthscales, "variance": variances}


def check_mean(mean: MeanLike) -> None:
    """Refuse a mean that is fitted to each time by itself."""
    if is_read(mean):
        raise ArgumentError(
            f"mean is {mean!r}, which is read for each time; expected a number, a function of points (n, 4), "
            'or terms with coefficients, such as "constant" or "quadratic-latitude", where maps at times are '
            "informed by all times.",
            key="mean",
        )


def candidates_in_time(
    kernel: KernelLike, in_time: "Sequence[Family | None]"
) -> list[tuple[SpaceTimeOf, ...]]:
    """Families that are compared: kernels of space in metric kernels and in products, or those given."""
    if isinstance(kernel, Kernel):
        return [tuple(cast("SpaceTimeOf", part.family) for part in kernel.parts)]
    if chosen_by(kernel) == AUTO:
        return [(SpaceTimeOf(family, time),) for time in in_time for family in CANDIDATES]
    parts = families(kernel)
    if all(isinstance(part, SpaceTimeOf) for part in parts):
        return [cast("tuple[SpaceTimeOf, ...]", parts)]
    return [tuple(SpaceTimeOf(part, time) for part in parts) for time in in_time]


def _best(results: Sequence[FitResult]) -> FitResult:
    """Take the fit of largest likelihood; an earlier one is kept unless that is better by a margin."""
    best = results[0]
    for result in results[1:]:
        if likelihood_of(result) > likelihood_of(best) + MARGIN:
            best = result
    return best
