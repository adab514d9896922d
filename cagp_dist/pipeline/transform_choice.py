"""Which transform of the values: named, given, or the one that the likelihood prefers (math 26, T48).

The log-likelihood of the data is that of ``z = t(y)`` plus ``sum log t'(y_i)``. With k coefficients of a mean
that are estimated it is that of n - k contrasts, and so much of the sum belongs to it: then no multiple of z
is preferred. Where the number of a transform is fitted, those of kernel and noise are held at their optimum
for normal scores of the values, then at that for what was found.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr, ndtri

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.errors import ArgumentError, CagpError, DataError
from cagp_dist.gram.dense import DenseGram
from cagp_dist.kernels import chosen_by
from cagp_dist.pipeline.background import Background
from cagp_dist.pipeline.censoring import tobit
from cagp_dist.pipeline.defaults import TRANSFORMS
from cagp_dist.pipeline.field_solves import Execution
from cagp_dist.pipeline.fitted_model import FittedModel, families
from cagp_dist.pipeline.map_mean import is_read
from cagp_dist.pipeline.map_points import MapPoints, Targets
from cagp_dist.pipeline.model_settings import ModelSettings
from cagp_dist.pipeline.narration import Narrator
from cagp_dist.pipeline.observations import Observations
from cagp_dist.pipeline.split import Split
from cagp_dist.pipeline.steps import fit
from cagp_dist.pipeline.task import Task
from cagp_dist.posterior.patterns import fields_by_pattern
from cagp_dist.predictive.transforms import (
    Arcsinh,
    BoxCox,
    Censored,
    Identity,
    NormalScore,
    OwnTransform,
    Transform,
    TransformLike,
    checked_at,
)
from cagp_dist.remedies import Setting
from cagp_dist.text import alternatives, counted

# Places and fields by which transforms are compared: a second or two for each
MOST_PLACES, MOST_FIELDS = 300, 3

POWERS = 0.0, 2.0  # of Box and Cox

MOST_VALUES = 2_000  # by which transforms of values with zeros are compared

# Log-likelihood from which on a transform is proposed; the part of zeros, and how many, and different others
FAR_ABOVE = 3.0  # times the largest observation, where the mean of a map does not follow from the values
WORTH_A_WORD, LEAST_ZEROS, FEWEST_ZEROS = 6.0, 0.1, 5

DEGREES = ("degree", "degrees", "deg", "°")  # units of directions

# Scale of asinh, at least, in medians of sizes of values: for a smaller one all of them are logarithms, and
# a value of the other sign is as far away as they are large
LEAST_SCALE = 0.05

# Log-likelihood that any transform has to gain, and more for a number that is fitted
GAIN, NUMBER = 2.0, 1.0
LEAST_GAINS = {"log": GAIN, "sqrt": GAIN, "box-cox": GAIN + NUMBER, "asinh": GAIN + NUMBER}
OF_POSITIVE = ("log", "sqrt", "box-cox")  # those of values above zero


@dataclass(frozen=True)
class Compared:
    """Log-likelihoods of transforms on one scale, by name."""

    chosen: Transform
    log_likelihoods: Mapping[str, float]

    def text(self) -> str:
        """Give the log-likelihoods by name."""
        return ", ".join(f"{name} {value:.1f}" for name, value in self.log_likelihoods.items())


def compared_by_fits(asked: str, least: float) -> tuple[str, ...]:
    """Name the transforms that are compared by likelihood, where ``least`` is the least value."""
    if asked != "auto":
        return (asked,)
    return tuple(name for name in ("none", *LEAST_GAINS) if least > 0.0 or name not in OF_POSITIVE)


def transform_of_values(
    observed: Observations,
    asked: "str | TransformLike",
    settings: ModelSettings,
    execution: Execution,
    *,
    narrator: Narrator,
) -> Compared:
    """Give the transform that is asked for, with its numbers fitted to observations in their unit.

    Raises
    ------
    ArgumentError
        If there is none of this name, an object is none, or it does not fit the values.
    DataError
        If the values are all the same, or lie where the transform has none.
    """
    values = observed.values[observed.present]
    if not isinstance(asked, str):
        own = asked if isinstance(asked, Transform) else OwnTransform(_checked(asked))
        checked_at(own, values)
        return Compared(own, {})
    if asked not in TRANSFORMS:
        raise ArgumentError(
            f"transform is {asked!r}; expected {alternatives(TRANSFORMS)}, or an object with forward, "
            "inverse and log_slope.",
            key="transform-unknown",
        )
    if asked == "none" and observed.limits is None:
        return Compared(Identity(), {})
    if observed.limits is None and (values.size == 0 or values.min() == values.max()):
        raise DataError(
            f"transform is {asked!r}, and the observations are all {values[0]:g}; expected different values.",
            key="transform-values",
        )
    if observed.limits is not None or (asked != "none" and values.min() == 0.0):
        return _above_bounds(observed, asked)
    if asked == "normal-score":
        return Compared(NormalScore.of(values), {})
    if asked in OF_POSITIVE:
        _check_positive(asked, values)
    if asked in ("log", "sqrt"):
        return Compared(BoxCox(0.0 if asked == "log" else 0.5), {})
    if observed.in_time:
        raise ArgumentError(
            f"transform is {asked!r}, whose numbers are fitted to fields of one time each, and at was given; "
            'expected "log", "sqrt", "normal-score", or a transform with its numbers, such as '
            "cagp.BoxCox(0.3).",
            key="transform-in-time",
            remedies=(Setting("transform", "log"),),
        )
    with narrator.stage("transform", f"choosing one for the values, from at most {MOST_PLACES} places"):
        part = _part(observed)
        first = _fitted(part.transformed(NormalScore.of(part.values[part.present])), settings, execution)
        found: dict[str, tuple[Transform, float]] = {}
        for name in compared_by_fits(asked, values.min()):
            try:
                found[name] = _fitted_transform(name, part, first, settings, execution)
            except CagpError:
                if asked != "auto" or name == "none":
                    raise
    return Compared(_best(found, LEAST_GAINS), {name: value for name, (_, value) in found.items()})


def _above_bounds(observed: Observations, asked: str) -> Compared:
    """Give a transform of values of which some are zero or limits of detection, which are censored.

    Zeros have the probability of all below a threshold, at half the least value: what is less is written as
    zero. Numbers are fitted, and transforms compared, by the likelihood of independent values, all of which
    censor alike.
    """
    values = observed.values[observed.present]
    below = np.zeros(values.shape, dtype=bool)
    if observed.limits is not None:
        below = observed.limits[observed.present]
    zeros = asked != "none" and values.min() == 0.0
    if zeros and (observed.in_time or observed.grid is not None):
        what = "at was given" if observed.in_time else "the observations are a grid"
        shift = resolution(values)
        raise ArgumentError(
            f"transform is {asked!r}, values are zero, which are censored, and {what}, which do not go "
            "together yet; expected places whose fields are maps of their own, or a transform in which zeros "
            "are values, with a shift as large as the smallest step between them.",
            key="zeros-with-others",
            remedies=(Setting("transform", BoxCox(0.5, shift=float(f"{shift:.3g}"))),),
        )
    hidden = below | (values == 0.0) if zeros else below
    seen = values[~hidden]
    if seen.size == 0 or seen.min() == seen.max():
        raise DataError(
            f"of {counted(values.size, 'value')}, {seen.size:,} lie above their bounds, and no two differ; "
            "expected two different ones or more.",
            key="all-censored",
        )
    half = 0.5 * float(values[values > 0.0].min()) if zeros else _least_scale(seen)

    def censored(base: Transform) -> Transform:
        return Censored(base, float(base.forward(half))) if zeros else base

    if asked == "none":
        return Compared(Identity(), {})
    if asked == "normal-score":
        if below.any():
            raise ArgumentError(
                f'transform is "normal-score", and {int(below.sum()):,} values are limits of detection, '
                "whose ranks are not known; expected another transform.",
                key="limits-with-others",
                remedies=(Setting("transform", "auto"),),
            )
        score = NormalScore.of(seen, below=int(hidden.sum()))
        return Compared(Censored(score, float(ndtri(hidden.mean()))), {})
    if not zeros and asked in OF_POSITIVE:
        _check_positive(asked, values)
    if asked in ("log", "sqrt"):
        return Compared(censored(BoxCox(0.0 if asked == "log" else 0.5)), {})
    names = compared_by_fits(asked, 1.0 if zeros else values.min())
    names = names[1:] if zeros and asked == "auto" else names  # zeros are no values of a normal field
    found = _likeliest(values, hidden, names, censored, half)
    least = {"box-cox": NUMBER, "asinh": NUMBER} if zeros else LEAST_GAINS
    return Compared(_best(found, least), {name: value for name, (_, value) in found.items()})


def _likeliest(
    values: Array,
    hidden: Mask,
    names: Sequence[str],
    censored: Callable[[Transform], Transform],
    least_scale: float,
) -> dict[str, tuple[Transform, float]]:
    """Fit transforms to independent values (n,), the hidden ones known to be no larger, and compare them."""
    if values.size > MOST_VALUES:
        generator = np.random.default_rng(np.random.SeedSequence(MOST_VALUES))
        chosen = generator.choice(values.size, MOST_VALUES, replace=False)
        values, hidden = values[chosen], hidden[chosen]

    def likelihood(base: Transform) -> float:
        z = censored(base).forward(values)
        m, s = tobit(z, hidden)
        seen = (z[~hidden] - m) / s
        total = -0.5 * float((seen**2).sum()) - seen.size * np.log(s * np.sqrt(2.0 * np.pi))
        total += float(base.log_slope(values[~hidden]).sum())
        return float(total + log_ndtr((z[hidden] - m) / s).sum())

    found: dict[str, tuple[Transform, float]] = {}
    for name in names:
        base: Transform = Identity() if name == "none" else BoxCox(0.0 if name == "log" else 0.5)
        if name == "box-cox":
            power = minimize_scalar(
                lambda power: -likelihood(BoxCox(float(power))), bounds=POWERS, method="bounded"
            )
            base = BoxCox(round(float(power.x), 3))
        elif name == "asinh":
            ends = float(np.log(least_scale)), float(np.log(1e2 * values[~hidden].std()))
            scale = minimize_scalar(
                lambda log: -likelihood(Arcsinh(float(np.exp(log)))), bounds=ends, method="bounded"
            )
            base = Arcsinh(float(f"{np.exp(scale.x):.4g}"))
        found[name] = censored(base), likelihood(base)
    return found


def _best(found: Mapping[str, tuple[Transform, float]], least: Mapping[str, float]) -> Transform:
    """Give the transform of the highest log-likelihood over what each has to gain."""
    return found[max(found, key=lambda name: found[name][1] - least.get(name, 0.0))][0]


def _least_scale(values: Array) -> float:
    """Give the least scale of asinh that is looked at."""
    middle, spread = float(np.median(np.abs(values))), float(values.std())
    return max(resolution(values), LEAST_SCALE * middle, 1e-6 * spread)


def log_likelihood(observed: Observations, learned: FittedModel) -> float:
    """Log-likelihood of the data in their unit, of a model of transformed ones; n^3 / 3 flops."""
    total = 0.0
    for each in _whitened(observed, learned):
        values = each.values_of(observed)
        total -= 0.5 * float((each.contrasts(values) ** 2).sum())
        total -= 0.5 * each.fields.size * (each.logdet + each.count * np.log(2.0 * np.pi))
        if (transform := observed.transform) is not None:
            total += each.share * float(transform.log_slope(transform.inverse(values)).sum())
    return total


@dataclass(frozen=True, eq=False)
class _Whitened:
    """Fields that were observed at the same places, in coordinates in which a prior makes them independent.

    With k coefficients of the mean estimated these are n - k contrasts (Harville 1974).
    """

    places: Indices
    fields: Indices
    gram: DenseGram
    known: Array  # (n, 1) or (n, T), the part of the mean that is known
    basis: Array  # (n, k), orthonormal after the whitening
    logdet: float  # of the Gram matrix, and of what the coefficients leave

    @property
    def count(self) -> int:
        """Contrasts of a field."""
        return int(self.places.size) - int(self.basis.shape[1])

    @property
    def share(self) -> float:
        """How much of the slopes of a transform belongs to the contrasts."""
        return self.count / self.places.size

    def values_of(self, observed: Observations) -> Array:
        """Values (T, n)."""
        return observed.values[np.ix_(self.fields, self.places)]

    def contrasts(self, values: Array) -> Array:
        """Give values (T, n) as (n, T) numbers, independent and of variance one."""
        half = self.gram.half_solve(values.T - self.known)
        return np.asarray(half - self.basis @ (self.basis.T @ half))


def advice_of_values(observed: Observations, learned: FittedModel, *, in_job: bool = False) -> str:
    """Say in a sentence what would help values that are not normal, in a call or a job; or nothing.

    But for directions, nothing beside a mean that is read or a background, which are in the unit of the
    values. Transforms are compared with the correlations that were fitted without one, which is hard on them;
    where values are below limits, by the likelihood of independent values, as "auto" compares them, and not
    at all beside terms of a mean.
    """
    values = observed.values[observed.present]
    units = observed.units.strip().lower()
    low, high = float(values.min()), float(values.max())
    if units in DEGREES and low >= 0.0 and high <= 360.0 and high - low > 180.0:
        return (
            "The values seem to be directions, of which 359 and 1 degrees are next to each other, and their "
            "mean, 180, is not between them: map the components, u = -speed * sin(direction) and v = -speed "
            "* cos(direction)."
        )
    if is_read(learned.mean) or isinstance(learned.mean, Background):
        return ""
    if has_many_zeros(observed):
        helps = f"{_asking('auto', in_job)} censors zeros, and gives the probability of one."
        if observed.in_time or observed.grid is not None:  # where zeros are not censored
            helps = f"transform=cagp.BoxCox(0.5, shift={resolution(values):.3g}) has them as least values."
            if in_job:
                helps = 'transform = "log1p" in [observations] maps log(1 + y).'
        return (
            f"{(values == 0.0).mean():.0%} of the values are zero and none is below, and error bars of "
            f"normal distributions reach below: {helps}"
        )
    if low == high or low <= 0.0 or learned.known_noise.ndim or observed.beside:
        return ""
    below = np.zeros(values.shape, dtype=bool)
    if observed.limits is not None:
        below = observed.limits[observed.present]
    if below.any():
        if _has_terms(observed, learned):  # which independent values about one middle do not know
            return ""
        scale = _least_scale(values[~below])
        found = _likeliest(values, below, ("none", "log", "sqrt"), lambda base: base, scale)
        of_each = {name: value for name, (_, value) in found.items()}
        count = min(values.size, MOST_VALUES)
        compared = f"{count:,} values, {below.mean():.0%} of them below limits, taken as independent,"
    else:
        part = _part(observed)
        likelihood = _profile(part, learned)
        transforms = {"none": Identity(), "log": BoxCox(0.0), "sqrt": BoxCox(0.5)}
        of_each = {name: likelihood(transform) for name, transform in transforms.items()}
        compared = f"{part.count} values"
    best = max(("log", "sqrt"), key=lambda name: of_each[name])
    gain = of_each[best] - of_each["none"]
    if gain < WORTH_A_WORD:
        return ""
    return (
        f"The log-likelihood of {compared} is higher by {gain:.0f} for their "
        f"{'logarithms' if best == 'log' else 'square roots'}: {_asking(best, in_job)} maps these, and gives "
        "mean and error bars of the values."
    )


def _has_terms(observed: Observations, learned: FittedModel) -> bool:
    """Whether the mean has more than a constant, so that values differ for a reason that is known."""
    some = observed.there[:1]
    return bool(learned.prior(observed, some, np.array([0])).basis_at(observed.X[some]).shape[1] > 1)


def advice_of_means(mean: Array, likely: Array, observed: Observations, *, in_job: bool = False) -> str:
    """Say where means (...) of the values come from a tail that no value shows; or nothing.

    There they are above the largest observation, and three times as large or above ``likely`` (...), what one
    value in twenty exceeds.
    """
    largest = float(np.nanmax(observed.values_in_units))
    far = (mean > FAR_ABOVE * largest) & (largest > 0.0)
    beyond = (mean > largest) & ((mean > likely) | far)
    if not beyond.any() or observed.transform is None:
        return ""
    places = f"At {np.count_nonzero(beyond):,} of {np.count_nonzero(np.isfinite(likely)):,} places"
    return (
        f"{places} the mean is above the largest observation, {largest:.4g}, and up to "
        f"{float(mean[beyond].max()):.3g}: it follows from a tail of {observed.transform.text} that no "
        "observation shows. Take the median, which does not depend on it. "
        f"{_asking('auto', in_job)} compares transforms and may choose one with less of a tail."
    )


def has_many_zeros(observed: Observations) -> bool:
    """Whether so many values are zero, and none is below, that they are no values of a normal field."""
    values = observed.values[observed.present]
    zeros, different = int((values == 0.0).sum()), np.unique(values).size - 1
    enough = min(zeros, different) >= FEWEST_ZEROS and zeros >= LEAST_ZEROS * values.size
    return enough and float(values.min()) == 0.0


def _asking(name: str, in_job: bool) -> str:
    """Write how a transform is asked for."""
    return f'transform = "{name}" in [prior]' if in_job else f'transform="{name}"'


def _whitened(observed: Observations, learned: FittedModel) -> list[_Whitened]:
    """Factor the Gram matrix of each pattern of gaps."""
    found = []
    for fields in fields_by_pattern(observed.present):
        places = np.flatnonzero(observed.present[fields[0]])
        prior, X = learned.prior(observed, places, fields), observed.X[places]
        noise = np.broadcast_to(np.asarray(prior.noise_variance), places.shape)
        gram = DenseGram(prior.kernel, X, noise_variance=noise)
        basis, root = np.linalg.qr(gram.half_solve(prior.basis_at(X)))
        logdet = gram.logdet() + 2.0 * float(np.log(np.abs(np.diag(root))).sum())
        found.append(_Whitened(places, fields, gram, prior.known_at(X), basis, logdet))
    return found


def _checked(given: object) -> TransformLike:
    """Refuse what is no transform."""
    if not isinstance(given, TransformLike):
        raise ArgumentError(
            f"transform is {given!r}; expected {alternatives(TRANSFORMS)}, or an object with the functions "
            "forward, inverse and log_slope of arrays.",
            key="transform-unknown",
        )
    return given


def _check_positive(asked: str, values: Array) -> None:
    """Refuse values at and below zero."""
    if (low := float(values.min())) <= 0.0:
        step = resolution(values)
        power = 0.5 if asked == "sqrt" else 0.0
        raise DataError(
            f"transform is {asked!r}, and values reach down to {low:g}; expected values above zero, or a "
            f"constant beside them in which the smallest step between values, {step:.4g}, is.",
            key="transform-negative",
            remedies=(
                Setting("transform", "asinh"),
                Setting("transform", BoxCox(power, shift=float(f"{step - low:.4g}"))),
            ),
        )


def resolution(values: Array) -> float:
    """Smallest step between different values: what a constant beside them is no smaller than."""
    return float(np.diff(np.unique(values)).min(initial=np.inf))


def _part(observed: Observations) -> Observations:
    """Take places and fields that are compared by."""
    generator = np.random.default_rng(np.random.SeedSequence(MOST_PLACES))
    there = observed.there
    if there.size > MOST_PLACES:
        there = np.sort(generator.choice(there, MOST_PLACES, replace=False))
    part = observed.at(there)
    fullest = np.sort(np.argsort(-part.present.sum(axis=1), kind="stable")[:MOST_FIELDS])
    part = replace(part, values=part.values[fullest], times=part.times[fullest])
    return part.at(part.there)


def _fitted(observed: Observations, settings: ModelSettings, execution: Execution) -> FittedModel:
    """Fit kernel and noise to a part; a kernel that is to be chosen is one of its candidates here."""
    kernel = settings.kernel if chosen_by(settings.kernel) is None else families(settings.kernel)
    asked = replace(settings, kernel=kernel, hyperparameters="plug-in")
    nowhere = Targets(MapPoints(observed.X[:0]))
    task = Task(observed, Split(np.arange(observed.north.size)), nowhere, asked, refits=False)
    return fit(task, replace(execution, checkpoints=None))


def _fitted_transform(
    name: str, part: Observations, first: FittedModel, settings: ModelSettings, execution: Execution
) -> tuple[Transform, float]:
    """Fit the number of a transform, if it has one, and give the log-likelihood with its own prior."""
    if name in ("none", "log", "sqrt"):
        transform: Transform = Identity() if name == "none" else BoxCox(0.0 if name == "log" else 0.5)
        own = part.transformed(transform)
        return transform, log_likelihood(own, _fitted(own, settings, execution))
    learned = first
    for _ in range(2):
        transform = _with_number(name, part, learned)
        own = part.transformed(transform)
        learned = _fitted(own, settings, execution)
    return transform, log_likelihood(own, learned)


def _profile(part: Observations, learned: FittedModel) -> Callable[[Transform], float]:
    """Give the log-likelihood of transforms with the correlations of a prior, at the best variance of each.

    It is that but for a constant.
    """
    fields = [each for each in _whitened(part, learned) if each.count > 0]

    def log_likelihood_of(transform: Transform) -> float:
        total = 0.0
        for each in fields:
            values = each.values_of(part)
            squares = float((each.contrasts(transform.forward(values)) ** 2).sum())
            total -= 0.5 * each.count * each.fields.size * np.log(squares)
            total += each.share * float(transform.log_slope(values).sum())
        return total

    return log_likelihood_of


def _with_number(name: str, part: Observations, learned: FittedModel) -> Transform:
    """Find the number of a transform that is likeliest with the correlations of a prior."""
    likelihood = _profile(part, learned)

    def loss(transform: Transform) -> float:
        return -likelihood(transform)

    if name == "box-cox":
        found = minimize_scalar(lambda power: loss(BoxCox(float(power))), bounds=POWERS, method="bounded")
        return BoxCox(round(float(found.x), 3))
    values = part.values[part.present]
    ends = float(np.log(_least_scale(values))), float(np.log(1e2 * values.std()))
    found = minimize_scalar(lambda log: loss(Arcsinh(float(np.exp(log)))), bounds=ends, method="bounded")
    return Arcsinh(float(f"{np.exp(found.x):.4g}"))
