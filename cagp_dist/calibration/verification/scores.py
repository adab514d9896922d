"""Scores of predictions against observations: accuracy, sharpness and calibration in numbers.

A prediction is any distribution (`cagp_dist.predictive`), its spread the *predictive* one, noise included
(math 13). The log score, the CRPS and the interval score are proper [Gneiting & Raftery 2007].
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Mask
from cagp_dist.calibration.verification.pit import AREA_WEIGHTED, checked_prediction, ks_test, unit_weights
from cagp_dist.errors import ArgumentError
from cagp_dist.predictive import Gaussian, Predictive
from cagp_dist.predictive.transforms import Transform, Transformed

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)

AT_END = 0x7A65726F  # names the stream of random numbers of values that have a probability


@dataclass(frozen=True, eq=False)
class Measures:
    """Means over observations in one weighting; units of the observations where not said otherwise."""

    rmse: float  #: Root mean square error of the mean against the (noisy) observations
    nll: float  #: Mean negative log predictive density, nats; smaller is better
    crps: float  #: Mean continuous ranked probability score; smaller is better
    #: (L,): fraction of observations inside the central interval of each level; near the level if calibrated
    coverage: Array
    #: (L,): mean width of the intervals, the sharpness: smaller is better where the coverage is right
    mean_width: Array
    #: (L,): mean of the width plus ``2 / (1 - level)`` times the distance of an observation outside from its
    #: interval; smaller is better
    interval_score: Array
    #: Distance of the PIT values from uniform, no unit; the p-value presumes independent test points (see
    #: ``cagp_dist.calibration.verification.pit.CORRELATED_TEST_POINTS``)
    ks_statistic: float
    ks_pvalue: float


@dataclass(frozen=True, eq=False)
class Scores(Measures):
    """What `scores_of` and `scores` measure: of each value counted once, and ``by_area``."""

    by_area: Measures  #: With the weights given; without weights the same
    levels: Array  #: (L,): of the central intervals, in (0, 1)

    def named(self, *, suffix: str = "") -> dict[str, float | Array]:
        """Each measure in both weightings, by its published name."""
        return {
            f"{measure.name}{weighting}{suffix}": getattr(found, measure.name)
            for weighting, found in (("", self), (AREA_WEIGHTED, self.by_area))
            for measure in fields(Measures)
        }


@dataclass(frozen=True, eq=False)
class PointScores:
    """Scores of each observation, of which `Scores` are the means."""

    # S: standard normal number of the observation's probability; it lies in the central interval of a level
    # if that of the interval's end is larger
    normal_score: Array
    # squared_error, nll, crps: S, squared error of the mean, negative log density in nats, and continuous
    # ranked probability score
    squared_error: Array
    nll: Array
    crps: Array
    # width, interval_score: (L, *S), width of the central interval of each level, and its score
    width: Array
    interval_score: Array
    levels: Array  # (L,)

    @property
    def pit(self) -> Array:
        """Probability of a value no larger than the observation, shape S."""
        from scipy.special import ndtr

        return np.asarray(ndtr(self.normal_score), dtype=np.float64)

    def __getitem__(self, index: Any) -> "PointScores":
        """Scores of some of the observations, as an array of shape S would be indexed."""
        return replace(self, **{name: values[at] for name, values, at in self._at(index)})

    def put(self, at: Any, scored: "PointScores") -> None:
        """Write scores of some of the observations, an index of arrays of shape S."""
        for name, values, index in self._at(at):
            values[index] = getattr(scored, name)

    def _at(self, index: Any) -> Iterator[tuple[str, Array, Any]]:
        """Each score with its array, and the index of some of the observations in that."""
        index = index if isinstance(index, tuple) else (index,)
        for name in ("normal_score", "squared_error", "nll", "crps"):
            yield name, getattr(self, name), index
        for name in ("width", "interval_score"):
            yield name, getattr(self, name), (slice(None), *index)

    def pooled(self, *, weights: ArrayLike | None = None) -> Scores:
        """Pool over points and fields; ``weights`` as for `scores_of`, one for each of the last axis."""
        return Scores(**vars(self._measures(None)), by_area=self._measures(weights), levels=self.levels)

    @property
    def _measured(self) -> Mask:
        """Which are no limits of detection, of which there is the PIT alone (S); see `of_limits`."""
        errors = np.isnan(self.squared_error) & np.isnan(self.nll) & np.isnan(self.crps)
        return np.asarray(~(errors & np.isfinite(self.normal_score)))

    def _measures(self, weights: ArrayLike | None) -> Measures:
        statistic, pvalue = ks_test(self.pit, weights=weights)
        measured = self._measured
        return Measures(
            rmse=float(np.sqrt(_average(self.squared_error, weights, measured))),
            nll=_average(self.nll, weights, measured),
            crps=_average(self.crps, weights, measured),
            coverage=_inside(self.normal_score, self.levels, weights),
            mean_width=np.array([_average(each, weights) for each in self.width]),
            interval_score=np.array([_average(each, weights, measured) for each in self.interval_score]),
            ks_statistic=statistic,
            ks_pvalue=pvalue,
        )


def point_scores(
    distribution: Predictive,
    observed: ArrayLike,
    *,
    levels: Sequence[float] = LEVELS,
    transform: Transform | None = None,
) -> PointScores:
    """Score each observation by its distribution; arguments and errors as of `scores_of`.

    Of transformed values both are taken back, and scored in the unit of the data. The least value may have a
    probability; the PIT of one is drawn evenly from zero to that, so that it is uniform where the
    distributions are right (Czado, Gneiting & Held 2009).
    """
    if transform is not None:
        return _of_transformed(distribution, np.asarray(observed, dtype=np.float64), levels, transform)
    value, chosen = _observations(distribution, observed), _levels(levels)
    widths, losses = np.empty((2, chosen.size, *value.shape))
    for index, level in enumerate(chosen):
        lower, upper = distribution.interval(level)
        outside = np.maximum(lower - value, 0.0) + np.maximum(value - upper, 0.0)
        widths[index] = upper - lower
        losses[index] = widths[index] + 2.0 / (1.0 - level) * outside
    return PointScores(
        normal_score=distribution.normal_score(value),
        squared_error=(distribution.mean - value) ** 2,
        nll=-distribution.log_density(value),
        crps=distribution.crps(value),
        width=widths,
        interval_score=losses,
        levels=chosen,
    )


def _of_transformed(
    distribution: Predictive, z: Array, levels: Sequence[float], transform: Transform
) -> PointScores:
    """Score transformed observations in the unit of the data."""
    of_values = Transformed(distribution, transform)
    found = point_scores(of_values, transform.inverse(z), levels=levels)
    at_end = z <= transform.end
    return drawn_below(found, at_end, of_values.least_probability) if at_end.any() else found


def drawn_below(found: PointScores, at: Mask, probability: Array) -> PointScores:
    """Draw PIT values of some observations evenly from zero to a probability; shapes: all S.

    It is that of a value no larger, and no more is known of these.
    """
    from scipy.special import ndtri

    generator = np.random.default_rng(np.random.SeedSequence(at.size, spawn_key=(AT_END,)))
    drawn = 1.0 - generator.random(at.shape)[at]  # of (0, 1]
    score = np.array(found.normal_score)
    score[at] = ndtri(drawn * probability[at])
    return replace(found, normal_score=score)


def of_limits(found: PointScores, limits: Mask, drawn: Mask) -> PointScores:
    """Score ``limits`` (S) as values that are known only to be no larger: by their PIT alone, else NaN.

    It is drawn from zero to the probability of that, but where it is ``drawn`` already.
    """
    scores = drawn_below(found, limits & ~drawn, found.pit)
    errors = {
        name: np.where(limits, np.nan, getattr(found, name))
        for name in ("squared_error", "nll", "crps", "interval_score")
    }
    return replace(scores, **errors)


def unscored(shape: tuple[int, ...]) -> PointScores:
    """Room for the scores of observations of this shape: NaN."""
    each, by_level = np.full((4, *shape), np.nan), np.full((2, len(LEVELS), *shape), np.nan)
    return PointScores(each[0], each[1], each[2], each[3], by_level[0], by_level[1], np.asarray(LEVELS))


def scores_of(
    distribution: Predictive,
    observed: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    levels: Sequence[float] = LEVELS,
) -> Scores:
    """All scores of predictive distributions, pooled over points and fields. Shapes: ``weights`` (q,)."""
    return point_scores(distribution, observed, levels=levels).pooled(weights=weights)


def scores(
    mean: ArrayLike,
    predictive_std: ArrayLike,
    observed: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    levels: Sequence[float] = LEVELS,
) -> Scores:
    """All scores of a Gaussian prediction, pooled over points and fields.

    Shapes: ``mean``, ``observed`` (q,) or (T, q); ``predictive_std``, **noise included**, likewise, or (q,)
    when all T fields share it; ``weights`` (q,), the area that each point stands for, on any positive scale.
    The coverage of intervals of ``levels`` is counted.

    Raises
    ------
    ArgumentError
        If shapes disagree, a value is not finite, a standard deviation is not positive, weights are negative
        or all zero, or a level lies outside (0, 1).

    Examples
    --------
    >>> result = scores([280.0, 290.0], [1.0, 1.0], [281.0, 290.0])
    >>> round(result.rmse, 4), round(result.nll, 4), result.coverage[-1]
    (0.7071, 1.1689, np.float64(1.0))
    """
    centre, spread, value = checked_prediction(mean, predictive_std, observed)
    return scores_of(Gaussian(centre, spread), value, weights=weights, levels=levels)


def _observations(distribution: Predictive, observed: ArrayLike) -> Array:
    """Observations of a distribution, of its shape and finite."""
    value = np.asarray(observed, dtype=np.float64)
    if len(distribution.shape) not in (1, 2) or value.shape != distribution.shape:
        raise ArgumentError(
            f"distributions have shape {distribution.shape} and observed {value.shape}; expected one "
            f"shape, (q,) "
            "for q points or (T, q) for T fields of q points.",
            key="shapes",
        )
    if value.size == 0:
        raise ArgumentError(
            f"distributions have shape {distribution.shape}: there is nothing to score; pass at least one "
            f"point.",
            key="nothing-to-score",
        )
    if not np.isfinite(value).all():
        raise ArgumentError(
            f"{np.count_nonzero(~np.isfinite(value))} of {value.size} values of observed are NaN or "
            "infinite; score only points that were observed: distribution[there], observed[there].",
            key="not-finite",
        )
    return value


def _average(values: Array, weights: ArrayLike | None, counted: Mask | None = None) -> float:
    """Mean over all fields and points, or those that count, each weighted by its share of the area."""
    some = None if counted is None or counted.all() else counted
    if weights is not None:
        shares = unit_weights(weights, values.shape)
        if some is None:
            return float((values * shares).mean())
        total = float(shares[some].sum())
        return float((values[some] * shares[some]).sum() / total) if total > 0.0 else float("nan")
    if some is None:
        return float(values.mean())
    return float(values[some].mean()) if some.any() else float("nan")


def _inside(normal_score: Array, levels: Array, weights: ArrayLike | None) -> Array:
    """Share of observations inside the central interval of each level."""
    from scipy.special import ndtri

    distance, half_widths = np.abs(normal_score), ndtri(0.5 + 0.5 * levels)
    shares = [_average(1.0 * (distance <= half_width), weights) for half_width in half_widths]
    return np.minimum(shares, 1.0)  # weights add up to one up to rounding


def _levels(levels: Sequence[float]) -> Array:
    """Levels as a vector, each in (0, 1)."""
    chosen = np.asarray(levels, dtype=np.float64)
    if chosen.ndim != 1 or not bool(np.all((chosen > 0.0) & (chosen < 1.0))):
        raise ArgumentError(
            f"levels are {list(levels)}; expected a list of numbers between 0 and 1, such as 0.95.",
            key="levels",
        )
    return chosen
