"""Maps at given times from the observations of all times: space and time in one prior (math 21)."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, cast

import numpy as np

from cagp_dist.arrays import Array, Indices, Times
from cagp_dist.budget import Demand
from cagp_dist.errors import ArgumentError, BudgetError
from cagp_dist.gp import condition
from cagp_dist.gram.neighbourhoods import metric
from cagp_dist.kernels import AUTO, Kernel, Matern12, chosen_by
from cagp_dist.likelihood.duration import FitSize, fit_seconds
from cagp_dist.likelihood.fit import fit
from cagp_dist.likelihood.fit_result import FitResult
from cagp_dist.likelihood.kernel_choice import CANDIDATES, MARGIN, likelihood_of, start_of, usable
from cagp_dist.likelihood.numbering import Families, in_extents
from cagp_dist.likelihood.observed import NEIGHBOURS_CELL, spread_cells
from cagp_dist.likelihood.starts import Start
from cagp_dist.mapping.defaults import MOST_CERTIFIED, OFTEN_SWEEPS
from cagp_dist.mapping.fitted_model import FittedModel, KernelLike, families, known_noise
from cagp_dist.mapping.map_mean import MeanLike, is_estimated
from cagp_dist.mapping.map_points import MapPoints
from cagp_dist.mapping.map_solves import NAMED_SOLVERS, PlannedSolve, Prediction, outlook_of
from cagp_dist.mapping.narration import Narrator, Outlook
from cagp_dist.mapping.observations import Observations
from cagp_dist.mapping.resources import Resources
from cagp_dist.mapping.solver_order import solver_order
from cagp_dist.means import LatitudePolynomial, mean_family
from cagp_dist.posterior.result import Posterior, Progress
from cagp_dist.prior import Mean, Prior
from cagp_dist.solvers import Cholesky, Neighbours, Solver, Status
from cagp_dist.solvers.solver_choice import MOST_DENSE, NEIGHBOURS
from cagp_dist.space_time import AXES, SpaceTime, SpaceTimeOf

COMPARED = 500
"""Values by which kernels are compared, exactly: seven fits of a second or less."""

NUMBERS_MORE = 3
"""Of a sum of two kernels: two lengthscales and a variance, each of which has to be worth the margin."""

FITS = 3.0
"""How many fits the choice of a kernel takes as well, about: on few values, from several starts."""

HOUR = np.timedelta64(3_600_000_000, "us")


def hours_since(times: Times, origin: np.datetime64) -> Array:
    """Hours from a moment near the data: an epoch would cost digits."""
    return np.asarray((times.astype("datetime64[us]") - origin.astype("datetime64[us]")) / HOUR)


def fit_in_space_and_time(
    observed: Observations,
    *,
    kernel: KernelLike,
    mean: MeanLike,
    noise_std: float | None,
    resources: Resources,
    narrator: Narrator,
) -> FittedModel:
    """Fit kernel and noise of space and time to all values, each a point with its hour.

    Where the kernel is to be chosen, metric kernels and products with Matern 1/2 in time are compared by the
    likelihood of at most 500 values, and the best of them with the sum of two such kernels. A kernel of space
    and time with its numbers keeps them.
    """
    known = known_noise(observed, observed.there, noise_std)
    _, places, X = values_as_points(observed)
    own = known if known.ndim == 0 else known[places]
    least = float(own.min())
    centre = _mean(observed, mean)
    bounds: dict[str, Sequence[object]] = {} if least == 0.0 else {"noise_variance": (least, least)}
    if isinstance(kernel, Kernel):
        _check_kernel(kernel)
        bounds |= _held(kernel)
    held = dict.fromkeys(bounds, "it was given")
    if isinstance(kernel, Kernel) and least > 0.0:
        return FittedModel(kernel, known, centre, held=held, known_noise=known)
    y = observed.values[observed.present] - Prior(Matern12(1.0), 1.0, centre).mean_at(X)[:, 0]
    candidates, few = _candidates(kernel), len(X) <= COMPARED
    size = FitSize("dense" if few else "vecchia", len(X), 1, None, 0, deviating=own.ndim > 0)
    narrator.expect(
        Outlook(
            "fit",
            f"kernel of space and time, and noise, by {len(X):,} observations",
            FITS * fit_seconds(size, workers=resources.executor.workers),
            0,
            "Give kernel=cagp.SpaceTime(...) with its numbers and noise_std, which are then not fitted.",
        )
    )
    narrator.announce()
    fitted = partial(
        _fit,
        bounds=bounds or None,
        resources=resources,
        deviations=None if own.ndim == 0 else own - least,
    )
    everything = np.arange(len(X))
    some = everything if few else spread_cells(in_extents(X, AXES), COMPARED, cell_size=NEIGHBOURS_CELL)
    with narrator.stage("fit"):
        results = [fitted(candidates[0], X, y, some)]
        if len(candidates) > 1:
            near = start_of(results[0]) if len(candidates[0]) == 1 else None
            others = partial(fitted, start=near, starts=1 if near else 3)
            results += [others(family, X, y, some) for family in candidates[1:]]
        result = _best(results)
        family = candidates[results.index(result)]
        summed: FitResult | None = None
        if len(candidates) > 1 and len(family) == 1:  # weather, and what is peculiar to places and lasts
            summed = fitted(2 * family, X, y, some)
            if likelihood_of(summed) <= likelihood_of(result) + NUMBERS_MORE * MARGIN:
                summed = None
            elif not few:
                summed = fitted(2 * family, X, y, everything)
        if summed is not None and usable(summed):
            result = summed
        elif not few:
            result = fitted(family, X, y, everything)
    where = f"{len(X):,} values at {observed.fields:,} times"
    nugget = result.prior.noise_number - least
    return FittedModel(result.prior.kernel, known + nugget, centre, result, where, held, known_noise=known)


def map_at(
    observed: Observations,
    targets: MapPoints,
    at: Times,
    *,
    prior: Prior | None,
    kernel: KernelLike,
    mean: MeanLike,
    noise_std: float | None,
    solver: "str | Solver",
    resources: Resources,
    narrator: Narrator,
) -> tuple[FittedModel, Prediction]:
    """Plan the solve, fit what is not given, and predict the field at targets at each time."""
    parts = 1 if prior is None else len(prior.kernel.parts)
    planned = plan_at(observed, targets, at.size, solver=solver, resources=resources, kernel_parts=parts)
    narrator.expect(outlook_of([planned.solve], iterations=OFTEN_SWEEPS, times=planned.solves))
    if prior is None:
        learned = fit_in_space_and_time(
            observed, kernel=kernel, mean=mean, noise_std=noise_std, resources=resources, narrator=narrator
        )
    else:
        learned = model_of_prior(observed, prior)
    narrator.announce()
    with narrator.stage("solve") as report:
        found = predict_at(
            observed, learned, targets, at, planned=planned, resources=resources, report=report
        )
    return learned, found


def model_of_prior(observed: Observations, prior: Prior) -> FittedModel:
    """Take kernel, noise and mean as they are given."""
    _check_kernel(prior.kernel)
    own = observed.noise_variance
    noise = np.asarray(prior.noise_variance) if own is None else own
    return FittedModel(prior.kernel, noise, _mean(observed, prior.mean))


def _check_kernel(kernel: Kernel) -> None:
    """Refuse a kernel with its numbers that knows of no time."""
    if not all(isinstance(part, SpaceTime) for part in kernel.parts):
        raise ArgumentError(
            f"kernel is {kernel!r}; expected a kernel of space and time where maps at times are informed by "
            'all times: cagp.SpaceTime(in_space, in_time), or "auto".'
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


class PlannedMaps(NamedTuple):
    """The solve of maps at times, so many of them together."""

    solve: PlannedSolve
    together: int
    solves: int


def plan_at(
    observed: Observations,
    targets: MapPoints,
    times: int,
    *,
    solver: "str | Solver",
    resources: Resources,
    kernel_parts: int,
) -> PlannedMaps:
    """Plan the solve of all values for the targets at all times, or at as many as fit into memory."""
    n, executor = observed.count, resources.executor
    chosen, together = _solver(solver, n), times
    while True:
        demand = Demand(
            n=n,
            q=together * len(targets.X),
            fields=1,
            full_covariance=False,
            workers=executor.workers,
            shares_memory=executor.shares_memory,
            memory_limit_bytes=resources.memory_bytes,
            kernel_parts=kernel_parts,
            bounds=True,
        )
        try:
            solve = PlannedSolve(np.arange(n), np.arange(1), chosen, demand, chosen.plan(demand))
            return PlannedMaps(solve, together, -(-times // together))
        except BudgetError:
            if together == 1:
                raise
            together = -(-together // 2)


def predict_at(
    observed: Observations,
    learned: FittedModel,
    targets: MapPoints,
    at: Times,
    *,
    planned: PlannedMaps,
    resources: Resources,
    report: Callable[[float], None],
) -> Prediction:
    """Predict the field at targets at each time, from the observations of all times."""
    origin, places, X = values_as_points(observed)
    hours, (solve, together, solves) = hours_since(at, origin), planned
    order = solver_order(X * metric(learned.kernel, X.shape[1]), solve.solver)
    noise, values = learned.noise_variance, observed.values[observed.present][order]
    prior = Prior(
        learned.kernel,
        float(noise) if noise.ndim == 0 else noise[places[order]],
        cast("Mean", learned.mean),
    )
    mean, variance, unfinished = np.empty((3, hours.size, len(targets.X)))
    certified = solve.demand.n * hours.size * len(targets.X) <= MOST_CERTIFIED
    certified |= not isinstance(solve.solver, Neighbours)
    found: list[Posterior] = []

    def said(state: Progress) -> None:
        report((len(found) + state.fraction) / solves)

    for number in range(solves):
        some = slice(number * together, (number + 1) * together)
        posterior = condition(
            prior,
            X[order],
            values,
            np.column_stack(
                [np.tile(targets.X, (hours[some].size, 1)), np.repeat(hours[some], len(targets.X))]
            ),
            solver=solve.solver,
            executor=resources.executor,
            memory_limit_bytes=resources.memory_limit_bytes,
            computational_bounds=certified,
            progress=said,
        )
        mean[some], variance[some] = (
            part.reshape(-1, len(targets.X)) for part in (posterior.mean, posterior.variance)
        )
        if certified:
            unfinished[some] = posterior.certificate.bounds(resources.executor)[1].reshape(-1, len(targets.X))
        found.append(posterior)
    return Prediction(
        mean=mean,
        variance=variance,
        computational_variance=unfinished if certified else None,
        computational_variance_known=all(posterior.certificate.known for posterior in found),
        covariance=None,
        status=Status.worst(posterior.status for posterior in found),
        solvers=(repr(solve.solver),),
        plans=(found[0].stats.plan,),
        executor=found[0].stats.executor,
    )


def values_as_points(observed: Observations) -> tuple[np.datetime64, Indices, Array]:
    """First time, place of each value, and its unit vector and hour (m, 4); time by time."""
    dates = observed.dates()
    if dates is None:
        raise ArgumentError("the observations have no times; expected a date of each field.")
    fields, places = np.nonzero(observed.present)
    hours = hours_since(dates, dates.min())
    return dates.min(), places, np.column_stack([observed.X[places], hours[fields]])


def _mean(observed: Observations, mean: MeanLike) -> Mean:
    """Give one prior mean for all times, fitted to all values."""
    if is_estimated(mean) or (
        isinstance(mean, str) and not isinstance(mean_family(mean), LatitudePolynomial)
    ):
        raise ArgumentError(
            f"mean is {mean!r}; expected a number, a function of points (n, 4), or a mean that depends on "
            'latitude alone, such as "constant" or "quadratic-latitude", where maps at times are informed by '
            "all times."
        )
    if not isinstance(mean, str):
        return mean
    _, places, _ = values_as_points(observed)
    fitted = mean_family(mean).fit(
        observed.latitude_degrees[places],
        observed.longitude_degrees[places],
        observed.values[observed.present][:, None],
        times=None,
    )
    return partial(_in_space, fitted)


def _in_space(mean: Callable[[Array], Array], X: Array) -> Array:
    """Values (n,) of a mean that does not depend on time."""
    return np.asarray(mean(X[:, :3])).reshape(len(X))


def _candidates(kernel: KernelLike) -> list[tuple[SpaceTimeOf, ...]]:
    """Families that are compared: kernels of space in metric kernels and in products, or those given."""
    if isinstance(kernel, Kernel):
        return [tuple(cast("SpaceTimeOf", part.family) for part in kernel.parts)]
    if chosen_by(kernel) == AUTO:
        return [(SpaceTimeOf(family, time),) for time in (None, Matern12) for family in CANDIDATES]
    parts = families(kernel)
    if all(isinstance(part, SpaceTimeOf) for part in parts):
        return [cast("tuple[SpaceTimeOf, ...]", parts)]
    return [tuple(SpaceTimeOf(part, time) for part in parts) for time in (None, Matern12)]


def _best(results: Sequence[FitResult]) -> FitResult:
    """Take the fit of largest likelihood; an earlier one is kept unless that is better by a margin."""
    best = results[0]
    for result in results[1:]:
        if likelihood_of(result) > likelihood_of(best) + MARGIN:
            best = result
    return best


def _fit(
    family: tuple[SpaceTimeOf, ...],
    X: Array,
    y: Array,
    some: Indices,
    *,
    bounds: "dict[str, Sequence[object]] | None",
    resources: Resources,
    deviations: Array | None,
    start: Start | None = None,
    starts: int = 3,
) -> FitResult:
    """Fit to some of the values; exactly to few of them."""
    return fit(
        cast("Families", family),
        X[some],
        y[some],
        mean=0.0,
        bounds=bounds,
        method="dense" if some.size <= COMPARED + NEIGHBOURS_CELL else "auto",
        executor=resources.executor,
        memory_limit_bytes=resources.memory_limit_bytes,
        noise_deviations=None if deviations is None else deviations[some],
        start=start,
        starts=starts,
    )


def _solver(solver: "str | Solver", values: int) -> Solver:
    """Exact where that is cheap, else neighbours; or what was asked for."""
    if solver == "auto":
        return Cholesky() if values <= MOST_DENSE else NEIGHBOURS
    found = NAMED_SOLVERS.get(solver) if isinstance(solver, str) else solver
    if found is None or found.needs_grid:
        raise ArgumentError(
            f'solver is {solver!r}; expected "auto", "cholesky", "neighbours", "block-gauss-seidel" or a '
            "solver of points, where maps at times are informed by all times."
        )
    return found
