"""The way up: quasi-Newton steps, and Fisher scoring where the expected information is known."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cagp_dist.arrays import Array, Mask
from cagp_dist.errors import NumericalError
from cagp_dist.likelihood.bounds import TOUCHING
from cagp_dist.likelihood.exact.profile_likelihood import Place, ProfileLikelihood

# A climb pauses when a step raises the log likelihood by less: half a percent of a standard error
GAIN = 1e-5

MOST_STEPS = 100
MOST_CLIMBS = 10

REACH = 1.5  # Of one climb, in log parameters: a line search that leaps to the bounds can stall there

# Where R was singular in floating point on the way, the next climb reaches less far; at last none does
SHORTER, SHORTEST_REACH = 0.25, 0.02

# A place is level where the gradient is below this times the fourth root of the number of values
LEVEL = 0.01

MOST_ROOT_STEPS = 12

MOST_HALVINGS = 4  # Of a step by Fisher scoring, before a climb takes over

# A search has arrived where the step left is below so many standard errors, and errors by sampled terms;
# on fewer points than all, the optimum of which is a standard error of theirs from it
ARRIVED, ARRIVED_SAMPLED, ARRIVED_FIRST = 0.1, 0.5, 0.5

# How many times longer a first step could be: its curvature is the expected one, corrected by no step yet
UNSURE = 2.0

# Between a step and the fall of the slope that a curvature missed, where it is corrected: a step that is
# nearly square to that tells nothing of it, and the correction is without bounds
LEAST_COSINE = 0.05

LONGEST_STEP = 0.7  # Of a Newton step, in log parameters: a factor of two


def best_climb(profile: ProfileLikelihood, starts: Sequence[Array]) -> Place:
    """Climb from every start and return the highest place; the first of equals."""
    found, failed = list[Place](), None
    for start in starts:
        try:
            place, there = score(profile, start) if profile.curved else (None, False)
            found.append(place if place and there else climb(profile, place.x if place else start))
        except NumericalError as error:
            failed = error
    if failed is not None and not found:
        raise failed
    return max(found, key=lambda place: place.log_likelihood)


def climb(profile: ProfileLikelihood, start: Array, curvature: Array | None = None) -> Place:
    """Maximise the profile likelihood by L-BFGS-B from one start (k,), within `REACH` at a time."""
    values = profile.likelihood.points * profile.likelihood.fields
    unit = np.ones(start.size)
    if curvature is not None and (expected := np.diag(profile_information(profile, curvature))).min() > 0.0:
        unit = np.sqrt(values / expected)  # unit curvature per value
    place, reach = profile.at(start), REACH
    for _ in range(MOST_CLIMBS):
        if np.linalg.norm(_admissible_slope(profile, place)) <= LEVEL * values**0.25:
            break
        higher, failed = _climb_within_reach(profile, place, unit, reach)
        if failed is not None:
            reach *= SHORTER
            if reach < SHORTEST_REACH:
                raise failed
        elif higher is place:
            break
        place = higher
    return place


def refine(profile: ProfileLikelihood, place: Place, curvature: Array) -> Place:
    """Take Newton steps with this curvature while they rise; in a narrow valley a climb ends early."""
    matrix = profile_information(profile, curvature)
    if not np.isfinite(matrix).all() or np.linalg.eigvalsh(matrix).min() <= 0.0:
        return place
    low, high = profile.box
    inverse = np.asarray(np.linalg.inv(matrix))
    for _ in range(MOST_ROOT_STEPS):
        step = inverse @ _admissible_slope(profile, place)
        if arrived(step, inverse, np.zeros_like(inverse)):
            break
        step *= min(1.0, LONGEST_STEP / np.abs(step).max())
        following = profile.at(np.clip(place.x + step, low, high))
        if following.log_likelihood <= place.log_likelihood:
            break
        place = following
    return place


@dataclass(frozen=True)
class _Chart:
    """In which numbers a search by Fisher scoring goes, and what there is in them."""

    low: Array
    high: Array
    at: Callable[[Array], Place]
    x: Callable[[Place], Array]
    slope: Callable[[Place], Array]
    information: Callable[[Place], Array]

    @classmethod
    def profiled(cls, profile: ProfileLikelihood) -> "_Chart":
        """Logarithms of all numbers but the first variance, the best of which has a closed form."""

        def information(place: Place) -> Array:
            return profile_information(profile, place.evaluation.expected_information())

        low, high = profile.box
        return cls(low, high, profile.at, lambda place: place.x, lambda place: place.slope, information)

    @classmethod
    def whole(cls, profile: ProfileLikelihood) -> "_Chart":
        """Logarithms of all numbers, where no variance has a closed form or parts of a sum compete."""

        def information(place: Place) -> Array:
            natural = place.evaluation.numbering.natural
            return np.asarray(natural.T @ place.evaluation.expected_information() @ natural)

        low, high = np.log(profile.bounds.limits).T
        x, at = (lambda place: np.log(place.parameters)), profile.at_parameters
        return cls(low, high, at, x, lambda place: place.gradient, information)


def score(
    profile: ProfileLikelihood, start: Array, variance: float | None = None, *, within: float = ARRIVED
) -> tuple[Place, bool]:
    """Climb by Fisher scoring from ``start`` (k,), halving steps, corrected by how the slope fell last.

    It ends ``within`` so many standard errors of the highest place.
    """
    plain = not profile.deviating and profile.bounds.numbering.parts == 1
    chart = _Chart.profiled(profile) if plain else _Chart.whole(profile)
    low, high = chart.low, chart.high
    place = profile.at(start) if plain or variance is None else profile.at_variance(start, variance)
    x, matrix, unsure = chart.x(place), chart.information(place), UNSURE
    for _ in range(MOST_ROOT_STEPS):
        slope = np.where(_outward(x, chart.slope(place), low, high), 0.0, chart.slope(place))
        level = LEVEL * place.evaluation.values**0.25
        if np.linalg.norm(slope) <= level:
            return place, True
        free = (slope != 0.0) | ((x > low + TOUCHING) & (x < high - TOUCHING))
        # of a noise within a tenth of a standard error of none the slope is all that is left to gain
        hidden = slope[-1] < 0.0 and chart.information(place)[-1, -1] < ARRIVED**2
        free[-1] &= not (hidden and -slope[-1] <= level)
        inner = matrix[np.ix_(free, free)]
        if not np.isfinite(inner).all() or np.linalg.eigvalsh(inner).min(initial=1.0) <= 0.0:
            return place, False
        inverse, step = np.asarray(np.linalg.inv(inner)), np.zeros(x.size)
        step[free] = inverse @ slope[free]
        if arrived(unsure * ARRIVED / within * step[free], inverse, np.zeros_like(inverse)):
            return place, True
        reach = np.full(x.size, LONGEST_STEP)
        if -slope[-1] > level:  # the slope is in proportion to a noise that is hardly to be found
            if hidden:
                step[-1] = -np.inf
            least = float(np.log(-2.0 * slope[-1] / level))
            reach[-1] = max(LONGEST_STEP, min(-step[-1], least))
        step[free] = _within(reach[free], step[free], slope[free], inner)
        for _ in range(MOST_HALVINGS):
            following = _at(chart, np.clip(x + step, low, high))
            if following is not None and following.log_likelihood > place.log_likelihood:
                break
            step *= 0.5
        else:
            return place, False
        taken, unsure = chart.x(following) - x, 1.0
        matrix = _updated(chart.information(following), taken, chart.slope(place) - chart.slope(following))
        place, x = following, x + taken
    return place, False


def _within(reach: Array, step: Array, slope: Array, matrix: Array) -> Array:
    """Newton step (k,) in which no number goes further than ``reach``; the others follow those held there."""
    step, held = step.copy(), np.zeros(step.size, dtype=bool)
    while (np.abs(step[~held]) > reach[~held]).any():
        furthest = int(np.argmax(np.where(held, 0.0, np.abs(step) / reach)))
        step[furthest] = np.copysign(reach[furthest], step[furthest])
        held[furthest] = True
        step[~held] = np.linalg.solve(
            matrix[np.ix_(~held, ~held)], slope[~held] - matrix[np.ix_(~held, held)] @ step[held]
        )
    return step


def _at(chart: _Chart, x: Array) -> Place | None:
    """Evaluate at x; None where R is singular in floating point."""
    try:
        return chart.at(x)
    except NumericalError:
        return None


def _climb_within_reach(
    profile: ProfileLikelihood, start: Place, unit: Array, reach: float
) -> tuple[Place, NumericalError | None]:
    """Climb within so much of each log parameter; the highest place, and the error that ended it."""
    from scipy.optimize import minimize

    values = start.evaluation.values
    low, high = profile.box
    best = start

    def descent(z: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> tuple[float, Array]:
        nonlocal best
        place = profile.at(np.clip(start.x + unit * z, low, high)) if z.any() else start
        if place.log_likelihood > best.log_likelihood:
            best = place
        return -place.log_likelihood / values, -unit * place.slope / values

    lower, upper = np.maximum(low - start.x, -reach) / unit, np.minimum(high - start.x, reach) / unit
    try:
        minimize(
            descent,
            np.zeros(start.x.size),
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(lower, upper, strict=True)),
            options={"maxiter": MOST_STEPS, "ftol": GAIN / values, "gtol": 1e-12},
        )
    except NumericalError as error:
        return best, error
    return best, None


def _admissible_slope(profile: ProfileLikelihood, place: Place) -> Array:
    """Gradient without what points out of the bounds."""
    return np.where(_outward(place.x, place.slope, *profile.box), 0.0, place.slope)


def _outward(x: Array, slope: Array, low: Array, high: Array) -> Mask:
    """Which entries of a slope point out of the bounds."""
    return ((x <= low + TOUCHING) & (slope < 0.0)) | ((x >= high - TOUCHING) & (slope > 0.0))


def profile_information(profile: ProfileLikelihood, information: Array) -> Array:
    """Information of all numbers with the best variance put in: a Schur complement."""
    variance = profile.bounds.numbering.lengthscales
    others = np.delete(np.arange(len(information)), variance)
    kept, out = np.ix_(others, others), information[others, variance]
    return np.asarray(information[kept] - np.outer(out, out) / information[variance, variance])


def arrived(step: Array, inverse: Array, noise: Array) -> bool:
    """Whether a step (k,) is small beside what the estimates are uncertain by anyway."""
    scale = ARRIVED**2 * inverse + ARRIVED_SAMPLED**2 * inverse @ noise @ inverse
    return bool(step @ np.linalg.solve(scale, step) <= 1.0)


def _updated(matrix: Array, taken: Array, fallen: Array) -> Array:
    """Correct a curvature by a symmetric matrix of rank one, so that a step explains how the slope fell."""
    missed = fallen - matrix @ taken
    bend = missed @ taken
    if abs(bend) > LEAST_COSINE * np.linalg.norm(missed) * np.linalg.norm(taken):
        updated = matrix + np.outer(missed, missed) / bend
        if np.linalg.eigvalsh(updated).min() > 0.0:
            return np.asarray(updated)
    return matrix
