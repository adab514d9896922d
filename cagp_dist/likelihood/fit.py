"""Learn lengthscales, variances and noise variance from data by maximum marginal likelihood (math 9).

The variance has a closed form, so that of one kernel two numbers are left to find; of a sum of m kernels 2 m,
from the best single kernel on, taken apart into shorter and longer lengthscales.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array
from cagp_dist.checks import check_count
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.kernels import chosen_by
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.likelihood.bounds import Bounds, Given, checked_names, make_bounds
from cagp_dist.likelihood.exact.dense_likelihood import DenseLikelihood
from cagp_dist.likelihood.exact.gappy_ring_likelihood import MaskedRingLikelihood
from cagp_dist.likelihood.exact.likelihood_evaluation import Likelihood
from cagp_dist.likelihood.exact.profile_likelihood import Counter, Place, ProfileLikelihood
from cagp_dist.likelihood.exact.ring_likelihood import RingLikelihood
from cagp_dist.likelihood.fit_result import FitProgress, FitResult
from cagp_dist.likelihood.kernel_choice import CHOICES, MOST_COMPARED, start_of
from cagp_dist.likelihood.learned.bound_fit import check_bound_fits, fit_bound
from cagp_dist.likelihood.numbering import NAMES, Families, Model
from cagp_dist.likelihood.observed import (
    Gridded,
    ResidualsAtPoints,
    by_coordinate,
    centred_observations,
    on_columns,
)
from cagp_dist.likelihood.replay_cache import Evaluations, search_key
from cagp_dist.likelihood.search import ARRIVED, ARRIVED_FIRST, best_climb, climb, refine, score
from cagp_dist.likelihood.starts import FoundStart, Start, make_starts, make_sum_starts, without_nugget
from cagp_dist.likelihood.uncertainty import Uncertainty, uncertainty
from cagp_dist.likelihood.vecchia.conditionals import conditionals_of
from cagp_dist.likelihood.vecchia.vecchia_likelihood import VecchiaLikelihood
from cagp_dist.memory import available_bytes
from cagp_dist.posterior.left_out import each_left_out
from cagp_dist.predictive import Gaussian
from cagp_dist.prior import Mean, Prior
from cagp_dist.remedies import Remedy
from cagp_dist.runtime.memo import Memo
from cagp_dist.solvers.solver_choice import few_gaps

if TYPE_CHECKING:
    from cagp_dist.runtime import ExecutorLike

Data = ResidualsAtPoints | Gridded
Method = Literal["auto", "rings", "dense", "vecchia", "elbo"]

ASKED = "asked for"  # Reason of a method that somebody chose
MOST_DENSE_POINTS = 2_000  # Above, conditionals on neighbours take less than n^3 and find nearly the same

# Points on which starts are tried, if there are more than twice as many; a tenth of a second each
FIRST_RING_POINTS = 20_000
FIRST_DENSE_POINTS = 2_000

# The same, and points with which the search goes on: all points then take two or three evaluations
FIRST_VECCHIA_POINTS = (1_000, 16_000)

FEWEST_FIRST_POINTS = 200

MOST_ROOTS = 3  # Refinements of a sum's optimum, each with a better curvature
GROWTH = 16  # How many times more points one level has than the level before


def fit(
    kernel: Families,
    where: LatLonGrid | LinearFunctionals | ArrayLike,
    y: ArrayLike,
    *,
    mean: Mean | Literal["constant"] = "constant",
    anisotropic: bool = False,
    start: Start | None = None,
    bounds: Given | None = None,
    starts: int = 3,
    method: Method = "auto",
    actions: int = 512,
    executor: "ExecutorLike" = None,
    memory_limit_bytes: int | None = None,
    progress: Callable[[FitProgress], None] | None = None,
    noise_deviations: ArrayLike | None = None,
    checkpoints: Memo | None = None,
) -> FitResult:
    """Fit lengthscales, variances and noise variance by maximum marginal likelihood.

    For many points, the search begins from several starts on thinned data (every k-th row and column of a
    grid, otherwise evenly spread cells of neighbouring points). It continues from the best optimum with all
    points. On complete grids, and with Vecchia's likelihood, this last part is Fisher scoring: three or four
    evaluations with the expected information.

    Parameters
    ----------
    kernel : type of Kernel, tuple of them, or str
        Family, as a class: `Matern12`, `Matern32`, `Matern52` or `SquaredExponential`. Several classes mean
        their sum, with all lengthscales and variances fitted: ``(Matern32, Matern32)``. Or a name as in job
        files, such as "matern(0.8)". "auto" chooses the one of the three Matern classes that predicts each
        value best from all others, by the CRPS, at no more than 1,000 of the points (at all points of a grid
        of up to 40,000); fixed parameters and bounds apply to all three. The class `Matern`, or "matern",
        fits the smoothness by likelihood, to the same points.
    where : LatLonGrid, array_like, shape (n, p), or LinearFunctionals
        A whole grid, or points. Pole rows of a grid, Q copies of one point each, are left out. Or n weighted
        sums of the field, such as means over areas, by the dense likelihood of their covariances.
    y : array_like, shape (P, Q) or (T, P, Q) on a grid, (n,) or (n, T) at points
        Observations; T fields share all parameters. On a grid NaN where no field has a value.
    mean : "constant", number or callable
        "constant": the average of each field (weighted by area on a grid), taken as known. Otherwise as in
        `Prior`; on a grid a function gets ``grid.points``. With a basis whose coefficients are estimated,
        such as ``cagp.mean_family("constant")``, the likelihood is the restricted one (REML), which allows
        for the estimation of the coefficients. For some tens of points, its plugged-in parameters make
        intervals narrower than those of the plain likelihood, which are already too narrow. Not with "elbo".
    anisotropic : bool
        Fit a lengthscale for each coordinate (ARD), of every part of a sum: for points whose coordinates
        differ in unit or in kind, such as depth and distance. Not on the sphere.
    start : mapping, optional
        Some of "lengthscale", "variance", "noise_variance": a guess, tried first. For a sum the first two are
        tuples with a number for each part. If each coordinate has a lengthscale, a tuple with one for each
        can replace a number.
    bounds : mapping, optional
        (lower, upper) for some of the names; equal bounds fix a parameter. A sum takes one pair for all
        parts, or a tuple with a pair for each part. If each coordinate has a lengthscale, a tuple with a pair
        for each can replace a pair. By default the lengthscale lies between a fifth of the point spacing and
        ten times the extent. The lengthscale of one coordinate may reach a hundred times its extent, where it
        ends if nothing depends on this coordinate. Variances lie within wide factors of the mean square of
        the residuals. A fitted noise variance stays above 1e-8 of the variance; a given one may be smaller.
    starts : int
        Number of starts, spread evenly over lengthscales and noise ratios.
    method : {"auto", "rings", "dense", "vecchia", "elbo"}
        "rings" (grids, also with gaps): exact. "dense": exact, n^3 flops and 8 n^2 bytes for each evaluation.
        "vecchia": cells of 20 neighbours, each conditioned on 180 points near it of those that come before
        in a random order; 400,000 n flops, and no more beyond 100,000 points, of which a sample of the
        conditionals counts. "elbo": the evidence lower bound of block-sparse actions, learned with the
        parameters; n^2 kernel values and some n i^2 flops for each of up to a hundred evaluations. It is near
        the likelihood only where few actions resolve the field: the result says how far off it is, by the
        gradient of the likelihood that "auto" takes, and is "converged" within two standard errors. "auto":
        rings on a grid, also if at most 5,000 points, and half of all, of up to 300,000 are missing; else
        dense for up to 2,000 points, and "vecchia" beyond.
    actions : int
        For "elbo": i, at most n are used.
    executor : Executor, Dask client or cluster, or str, optional
        Where tasks run ("rings", "vecchia" and "elbo"); by default all cores of this process.
    memory_limit_bytes : int, optional
        Memory that may be allocated; by default four fifths of the free memory.
    progress : callable, optional
        Called with a `FitProgress` after every evaluation; for "elbo" after every step.
    noise_deviations : array_like, shape (n,), optional
        Known difference between the noise variance of each point and the fitted one, squared unit of y. If
        the variances of the measurement errors are known, pass these minus the smallest of them, with bounds
        of "noise_variance" from the smallest upward. At points only, "dense" or "vecchia".
    checkpoints : FolderMemo, optional
        Where evaluations are kept (`cagp_dist.store.memo.FolderMemo`), so that the same call goes on
        where it was cut off, with the same bits.

    Returns
    -------
    FitResult
        With rings and "vecchia", the same bits for every executor. Parts of a sum that are of the same family
        and have the same bounds come with the shortest lengthscale first.

    Raises
    ------
    ArgumentError
        If an argument has the wrong shape or value.
    BudgetError
        If an evaluation does not fit into memory; raised before any work.
    NumericalError
        If the likelihood is not finite.

    Notes
    -----
    ``L = -1/2 [b' G^-1 b + log|G| + n log 2 pi]`` with ``b = y - mean``, summed over fields ([Rasmussen &
    Williams 2006, 5.8-5.9]). A mean that was fitted beforehand lowers the variance by what it explains by
    chance, and the standard errors do not include this. If the lengthscale is a large part of the extent,
    estimate the mean here. T fields count as independent draws of one prior. Consecutive hours or days are
    not independent: the estimates are still right on average, but their standard errors are too small, by
    the root of T over the effective number of independent fields.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> grid = cagp.LatLonGrid(np.linspace(-85.0, 85.0, 18), 36)
    >>> truth = cagp.RingGram(grid, cagp.Matern32(lengthscale=0.5, variance=4.0), noise_variance=0.1)
    >>> field = truth.sample(np.random.default_rng(0), noise=True)
    >>> result = cagp.fit(cagp.Matern32, grid, field, mean=0.0)
    >>> result.status.ok, 0.4 < result.prior.kernel.lengthscale < 0.6
    (True, True)

    Depth in metres and distance in kilometres, each with its lengthscale:

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(200, 2)) * [100.0, 2000.0]
    >>> covariance = cagp.Matern32((20.0, 900.0), 4.0)(X, X) + 0.1 * np.eye(200)
    >>> y = np.linalg.cholesky(covariance) @ rng.normal(size=200)
    >>> result = cagp.fit(cagp.Matern32, X, y, anisotropic=True)
    >>> [round(lengthscale) for lengthscale in result.prior.kernel.lengthscale]
    [19, 918]
    """
    check_count("actions", actions, least=1)
    asked = _Asked(
        start, bounds, starts, method, actions, executor, memory_limit_bytes, progress, checkpoints
    )
    data, centre = centred_observations(where, y, mean, noise_deviations)
    if (way := chosen_by(kernel)) is not None:
        seen = {"where": where, "y": y, "mean": mean, "noise_deviations": noise_deviations}
        return _chosen(way, data, centre, {**vars(asked), **seen, "anisotropic": anisotropic})
    model = Model.of(kernel)
    if anisotropic and model.axes is None:
        data = by_coordinate(data)
        model = replace(model, coordinates=data.X.shape[1])
    if model.layout is not None:
        some = ("auto", "dense", "vecchia", *(["rings"] if model.example.is_zonal else []))
        if anisotropic or method not in some:
            raise ArgumentError(
                f"kernel is {kernel!r}, with directions or axes of its own, anisotropic={anisotropic} and "
                f'method={method!r}; expected method "auto", "dense" or "vecchia", and no lengthscales by '
                "coordinate.",
                key="method-of-time",
            )
        checked = on_columns(data, model)
        if len(set(model.numbering.own)) > 1:
            asked = _from_the_guess(asked)
        if model.axes is not None and isinstance(checked, ResidualsAtPoints):
            model, asked = _in_lengthscales(model, checked, centre, asked)
        data = checked
    return _fitted(model, data, centre, asked)


def _from_the_guess(asked: "_Asked") -> "_Asked":
    """Begin a fit of parts that have different numbers where it was said, and nowhere else."""
    if asked.start is None or not {*NAMES} <= asked.start.keys():
        raise ArgumentError(
            "the parts of the kernel have different numbers, and no part alone says where to begin; expected "
            f"start with {', '.join(NAMES)}, the first two with an entry for each part, such as those of a "
            "kernel that was fitted without the others.",
            key="start-of-parts",
        )
    return replace(asked, starts=1)


def _in_lengthscales(
    model: Model, data: ResidualsAtPoints, mean: Mean, asked: "_Asked"
) -> tuple[Model, "_Asked"]:
    """Measure distances along the axes by lengthscales that fit some of the points, and begin there."""
    if data.size <= MOST_COMPARED:
        return model, asked
    first = _fitted(model, data.thinned(MOST_COMPARED), mean, replace(asked, method="dense"))
    parts = first.prior.kernel.parts
    layout = first.prior.kernel.layout
    assert layout is not None
    falling = [part for part in parts if any(axis is not None for axis in part.number_axes)]
    dominant = max(falling, key=lambda part: part.variance)
    # along what it does not fall with, points are as near as they can be
    scales = tuple(1.0 / own if own > 0.0 else np.inf for own in dominant.inverse_in(layout))
    return replace(model, scales=scales), replace(asked, start=asked.start or start_of(first), starts=1)


@dataclass(frozen=True)
class _Asked:
    """What `fit` was asked for beside kernel and data."""

    start: Start | None
    bounds: Given | None
    starts: int
    method: Method
    actions: int
    executor: "ExecutorLike"
    memory_limit_bytes: int | None
    progress: Callable[[FitProgress], None] | None
    checkpoints: Memo | None


def _fitted(model: Model, data: Data, mean: Mean, asked: _Asked) -> FitResult:
    """Fit the numbers of a model to data."""
    own_noise = _deviations(data)
    _check_method(asked.method, data, exactly=own_noise is not None or data.basis is not None)
    limits = make_bounds(asked.bounds, data.scales(), model.numbering)
    if own_noise is not None:
        limits = limits.above(-float(own_noise.min()))
    noise = checked_names("start", asked.start).get("noise_variance")
    if isinstance(noise, float) and noise > 0.0 and "noise_variance" not in (asked.bounds or {}):
        # one that other points left at their bound: of a field without noise
        inside = min(max(noise, limits.noise_variance[0]), limits.noise_variance[1])
        kind = FoundStart if isinstance(asked.start, FoundStart) else dict
        asked = replace(asked, start=kind({**(asked.start or {}), "noise_variance": inside}))
    counter = Counter(asked.progress)

    from cagp_dist.runtime import given_or_threads

    with given_or_threads(asked.executor, asked.memory_limit_bytes) as (executor, memory):
        chosen, reason = asked.method, ASKED
        if chosen == "auto":
            chosen, reason = _choose(data)
        place: dict[str, Any] = {"executor": executor, "memory_limit_bytes": memory}
        kept = judge = None
        if chosen == "elbo":
            points = _as_points(data)
            check_bound_fits(points, actions=asked.actions, **place)
            exact, _ = _choose(points)
            judge = _likelihood(model, points, exact, place, curved=exact == "vecchia")
        if asked.checkpoints is not None:
            settings = (chosen, limits, asked.start, asked.starts)
            kept = Evaluations(asked.checkpoints.of(search_key(model, data, settings)))

        def likelihood_of(model: Model, part: Data, how: Method, curved: bool = False) -> Likelihood:
            made = _likelihood(model, part, how, place, curved=curved)
            return made if kept is None else kept.of(made)

        levels, spread = _profiles(model, data, chosen, asked, limits, likelihood_of, counter)
        end = _search(levels, spread, model)
        parameters, found, bound = end[0].parameters, end[1], None
        if judge is not None:
            information = levels[0].curvature(end[0]) * (data.size / levels[0].likelihood.points)
            parameters, found, bound = fit_bound(
                model,
                points,
                parameters,
                information,
                limits,
                counter,
                judge=judge,
                actions=asked.actions,
                checkpoints=asked.checkpoints,
                **place,
            )
    lengthscales, variances, noise_variance = model.numbering.grouped(parameters)
    return FitResult(
        prior=Prior(model.kernel(lengthscales, variances), noise_variance, mean),
        log_likelihood=None if chosen == "elbo" else end[0].log_likelihood,
        standard_errors=found.standard_errors,
        log_covariance=found.covariance,
        status=found.status,
        at_bound=found.at_bound,
        gradient_norm=found.gradient_norm,
        evaluations=counter.evaluations,
        seconds=counter.seconds,
        method=chosen,
        points=data.size,
        bound=bound,
        reason=reason,
        conditionals=conditionals_of(data.size) if chosen == "vecchia" else None,
    )


def _chosen(way: str, data: Data, mean: Mean, given: dict[str, Any]) -> FitResult:
    """Choose a kernel, on some of the data where they are many, and fit it to all; ``given`` as to `fit`."""
    some = _compared(data, mean, given["method"])
    asked = {**given, **some}
    best = CHOICES[way](partial(fit, **asked), final=not some, crps=partial(_crps_left_out, asked=asked))
    if not some:
        return best
    how = given["method"] if given["method"] != "auto" else _choose(data)[0]
    if given["start"] is None and how == "vecchia":  # its first level are the points that were compared
        given = {**given, "start": start_of(best), "starts": 1}
    return replace(fit(best.prior.kernel.parts[0].family, **given), choice=best.choice)


def _crps_left_out(result: FitResult, *, asked: dict[str, Any]) -> float:
    """Mean CRPS of each value by all others, with the numbers of a fit; NaN where they do not predict it."""
    prior, y, deviations = result.prior, np.asarray(asked["y"]), asked["noise_deviations"]
    if deviations is not None:
        prior = replace(prior, noise_variance=prior.noise_number + np.asarray(deviations))
    try:
        found = each_left_out(
            prior,
            asked["where"],
            y,
            executor=asked["executor"],
            memory_limit_bytes=asked["memory_limit_bytes"],
        )
    except ArgumentError:  # without any one value the mean is not estimated
        return math.nan
    values = (y if isinstance(asked["where"], LatLonGrid) else y.T).reshape(found.mean.shape)
    there = ~np.isnan(found.mean)
    predicted = Gaussian(found.mean[there], np.sqrt(found.variance[there]))
    return float(predicted.crps(values[there]).mean())


def _profiles(
    model: Model,
    data: Data,
    method: Method,
    asked: _Asked,
    limits: Bounds,
    likelihood_of: Callable[..., Likelihood],
    counter: Counter,
) -> tuple[list[ProfileLikelihood], list[Array]]:
    """Give what is searched on each level, from few points to all, and where the first search begins."""
    found: list[ProfileLikelihood] = []
    start, starts, scales, deviating = asked.start, asked.starts, data.scales(), _deviations(data) is not None
    spread = make_starts(start, limits, scales, starts=starts) if model.parts == 1 else []
    for part, how in _levels(data, method):
        within = limits
        if model.parts > 1 and part.size < data.size:
            within = limits.coarser(*part.scales().spacings)
        if model.parts > 1 and not found:
            one = replace(model, families=model.families[:1])
            alone = make_bounds({"noise_variance": limits.noise_variance}, scales, one.numbering)
            single = ProfileLikelihood(likelihood_of(one, _alike(part), how), alone, counter)
            spread = make_sum_starts(
                start,
                within,
                partial(best_climb, single, make_starts(None, alone, scales, starts=starts)),
                starts=starts,
                mixed=len(set(model.families)) > 1,
            )
        curved = _has_squares(part, how, first=not found) and (
            how == "vecchia" or (model.parts == 1 and not deviating)
        )
        own_noise = _deviations(part)
        if own_noise is not None and not found and start is None:
            # a good place for one noise, which is soon found, is a good start
            likelihood = likelihood_of(model, _alike(part), how, curved)
            spread = [
                best_climb(ProfileLikelihood(likelihood, within, counter, curved=curved), spread[:1]).x,
                spread[0],
                *without_nugget(
                    spread,
                    within,
                    noise_variance=limits.noise_variance[0],
                    residuals=part.residuals,
                    deviations=own_noise,
                ),
            ]
        likelihood = likelihood_of(model, part, how, curved)
        found.append(ProfileLikelihood(likelihood, within, counter, deviating, curved))
    return found, spread


def _compared(data: Data, mean: Mean, method: Method) -> dict[str, Any]:
    """On what kernels are compared, as arguments of `fit`; nothing: on all of the data."""
    if isinstance(data, Gridded) and data.missing is None and method in ("auto", "rings"):
        if data.size <= 2 * FIRST_RING_POINTS:
            return {}
    elif data.size <= MOST_COMPARED and method in ("auto", "dense"):
        return {}
    part = _as_points(data).thinned(MOST_COMPARED)
    of_sums = part.functionals is not None
    return {
        "where": part.functionals if of_sums else part.X,
        "y": part.residuals,
        "mean": 0.0 if part.basis is None else mean,
        "noise_deviations": part.deviations,
        "method": "dense" if of_sums else "vecchia",
    }


def _as_points(data: Data) -> ResidualsAtPoints:
    """Give data as points, also those on a grid."""
    return data.as_points() if isinstance(data, Gridded) else data


def _search(
    levels: Sequence[ProfileLikelihood], starts: Sequence[Array], model: Model
) -> tuple[Place, Uncertainty]:
    """Climb from every start on the first level, then from the best place on each further one."""
    place = _ordered(levels[0], best_climb(levels[0], starts), model)
    curvature, there = levels[0].curvature(place), False
    for before, profile in pairwise(levels):
        curvature = curvature * (profile.likelihood.points / before.likelihood.points)
        if profile.curved:
            within = ARRIVED if profile is levels[-1] else ARRIVED_FIRST
            place, there = score(profile, place.x, place.variance, within=within)
            if there:
                place = _ordered(profile, place, model)
                curvature = place.evaluation.expected_information()
                continue
        place = _ordered(profile, climb(profile, place.x, curvature), model)
        curvature = profile.curvature(place)
    if model.parts > 1 and not there:
        for _ in range(MOST_ROOTS):
            refined = refine(levels[-1], place, curvature)
            if refined is place:
                break
            place = _ordered(levels[-1], refined, model)
            curvature = levels[-1].information(place)
    return place, uncertainty(levels[-1], place, curvature)


def _ordered(profile: ProfileLikelihood, place: Place, model: Model) -> Place:
    """Give the same place with parts that could be exchanged ordered by lengthscale."""
    x = model.in_order(place.x) if profile.bounds.alike else place.x
    return place if np.array_equal(x, place.x) else profile.at(x)


def _levels(data: Data, method: Method) -> list[tuple[Data, Method]]:
    """Choose the data of each level of the search, coarse to fine, and how their likelihood is worked out."""
    if method == "rings":
        levels: list[tuple[Data, Method]] = [(data, method)]
        while levels[0][0].size > 2 * FIRST_RING_POINTS:
            coarser = levels[0][0].thinned(max(FIRST_RING_POINTS, levels[0][0].size // GROWTH))
            if coarser.size >= levels[0][0].size:
                break
            levels.insert(0, (coarser, method))
        return levels
    points = _as_points(data)
    if method in ("dense", "vecchia"):
        fewer: list[tuple[Data, Method]] = [
            (points.thinned(few), method) for few in first_points(method, points.size)
        ]
        return [*fewer, (points, method)]
    first = points.thinned(min(FIRST_DENSE_POINTS, max(points.size // 4, FEWEST_FIRST_POINTS)))
    return [(first, "dense")]


def first_points(method: Method, points: int) -> list[int]:
    """Points of each level of a search among points anywhere, but for the last, which has them all."""
    most = FIRST_VECCHIA_POINTS if method == "vecchia" else (FIRST_DENSE_POINTS,)
    return [few for few in most if points > 2 * few]


def _deviations(data: Data) -> Array | None:
    """By how much the noise variance of each point differs from that of all; None where it does not."""
    return data.deviations if isinstance(data, ResidualsAtPoints) else None


def _alike(data: Data) -> Data:
    """Give the same data with one noise for all points."""
    return replace(data, deviations=None) if isinstance(data, ResidualsAtPoints) else data


def _has_squares(data: Data, method: Method, *, first: bool) -> bool:
    """Whether the likelihood of a level gives its expected information; grids do from the second on."""
    return method == "vecchia" or (isinstance(data, Gridded) and data.missing is None and not first)


def _likelihood(
    model: Model, data: Data, method: Method, place: dict[str, Any], *, curved: bool
) -> Likelihood:
    """Make the likelihood of data by a method, worked out at ``place``: an executor, and bytes."""
    if isinstance(data, Gridded):
        if data.missing is not None:
            return MaskedRingLikelihood(
                model, data.grid, data.residuals, data.missing, basis=data.basis, **place
            )
        return RingLikelihood(model, data.grid, data.residuals, basis=data.basis, curved=curved, **place)
    own: dict[str, Any] = {"deviations": data.deviations, "basis": data.basis}
    if method == "vecchia":
        return VecchiaLikelihood(model, data.X, data.residuals, curved=curved, **own, **place)
    # stands in this process, wherever the executor has its memory
    here = min(place["memory_limit_bytes"], available_bytes())
    where = data.X if data.functionals is None else data.functionals
    return DenseLikelihood(model, where, data.residuals, memory_limit_bytes=here, **own)


def _check_method(method: Method, data: Data, *, exactly: bool) -> None:
    """Raise `ArgumentError` unless there is such a method for such data."""
    if method not in get_args(Method):
        raise ArgumentError(
            f'method is {method!r}; expected "auto", "rings", "dense", "vecchia" or "elbo".',
            key="method-unknown",
            remedies=(Remedy.VECCHIA,) if str(method) in ("blocks", "pathwise") else (),
        )
    of_sums = isinstance(data, ResidualsAtPoints) and data.functionals is not None
    if of_sums and method not in ("auto", "dense"):
        raise ArgumentError(
            f"method is {method!r}, and weighted sums of the field were observed; expected "
            '"dense", or "auto".',
            key="method-of-functionals",
        )
    if method == "rings" and isinstance(data, ResidualsAtPoints):
        raise ArgumentError(
            'method "rings" needs a whole latitude-longitude grid and got points; pass a '
            'cagp_dist.LatLonGrid, or use method="auto".',
            key="grid-type",
        )
    if method == "elbo" and exactly:
        raise ArgumentError(
            'method "elbo" has a known mean and got one whose coefficients are estimated.'
            if data.basis is not None
            else 'method "elbo" has one noise for all points and got noise_deviations.',
            key="method-elbo",
            remedies=(Remedy.VECCHIA,),
        )


def _choose(data: Data) -> tuple[Method, str]:
    """Choose a method for data by how many there are, and say why."""
    if isinstance(data, Gridded) and few_gaps(data.grid.size, data.gaps):
        gaps = f" without {data.gaps:,} of its points" if data.gaps else ""
        return "rings", f"the points are a grid{gaps}, whose likelihood is exact"
    if isinstance(data, ResidualsAtPoints) and data.functionals is not None:
        return "dense", "weighted sums of the field were observed, whose likelihood is dense"
    if data.size > MOST_DENSE_POINTS:
        return (
            "vecchia",
            f"{data.size:,} points are more than the {MOST_DENSE_POINTS:,} of an exact likelihood",
        )
    return "dense", f"{data.size:,} points are few enough for the exact likelihood"
