"""The predictive distribution that a result states at each place, and what follows from it in numbers.

That of the field is normal, or known by quantiles where lengthscale, variance and noise were integrated over.
That of an observation has the noise on top, or is what the recalibration made of it: a Student t distribution
with a local scale, else again known by quantiles.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import xarray as xr
from scipy.optimize import brentq
from scipy.special import ndtri, stdtrit

from cagp_dist.arrays import Array, Mask
from cagp_dist.checks import as_numbers, check_between, check_positive, check_word
from cagp_dist.errors import ArgumentError
from cagp_dist.predictive import Gaussian, Predictive, QuantileTable, StudentT
from cagp_dist.predictive.transforms import Transformed, transform_of
from cagp_dist.store.published_variables import NODES_PER_CELL, QUANTILE_LEVEL, RECALIBRATED, TRANSFORM_OBJECT
from cagp_dist.variables.units import symbol

Of: TypeAlias = Literal["field", "observation"] | None

STRAIGHT = 1e-6  # standard deviations by which quantiles of a normal distribution may miss it

SMALLEST = 1e-300  # probability of the least value

MOST_DEGREES = 1e6  # of a Student t distribution that is not normal


@dataclass(frozen=True, eq=False)
class ResultDistribution:
    """The distribution of the field, or of an observation, at all places of a result that have one."""

    like: xr.DataArray  # the mean, whose dimensions and coordinates numbers of the distribution have
    known: Mask  # where there is a distribution, of the shape of the mean
    distribution: Predictive  # there, (k,)
    of: str  # "field" or "observation"
    levels: tuple[float, float] | None = None  # between which it is known, if not everywhere
    least: tuple[float, Array] | None = None  # the least value, and its probability (k,) where that is known
    # where probabilities beyond these levels are estimated, below and above (k,); elsewhere they are bounds
    tailed: tuple[Mask, Mask] | None = None

    def exceedance(self, threshold: float | xr.DataArray, *, below: bool = False) -> xr.DataArray:
        """Probability of a value above a threshold, or of all others."""
        if not isinstance(below, bool):
            raise ArgumentError(f"below is {below!r}; expected True or False.", key="flag")
        limit = _as_like(threshold, self.like)
        there = self.known & np.isfinite(limit)
        of_there = self.distribution[there[self.known]]
        found = (of_there.cdf if below else of_there.above)(limit[there])
        units = symbol(str(self.like.attrs.get("units", "")))
        shown = "a threshold" if np.ndim(threshold) else f"{float(limit.flat[0]):g} {units}".strip()
        side = "at most" if below else "above"
        about = {"units": "1", "long_name": f"probability that {self.whose} is {side} {shown}"}
        if self.levels is not None:
            least, most = self.levels if below else (1.0 - self.levels[1], 1.0 - self.levels[0])
            bounded = np.clip(found, least, most)
            beyond = found != bounded
            found = self._beyond(of_there, there, limit, found, bounded, below=below)
            is_bound, is_certain = found == bounded, (found == 0.0) | (found == 1.0)
            if self.least is not None:
                value, of_least = self.least
                at, told = limit[there], of_least[there[self.known]]
                end = told if below else 1.0 - told
                inner = np.maximum(found, end) if below else np.minimum(found, end)
                found = np.select([at < value, at == value], [0.0 if below else 1.0, end], inner)
            said = ["Interpolated between quantiles"]
            if (beyond & ~is_bound & ~is_certain).any():
                said.append(
                    f"below {least:.3g} and above {most:.3g} estimated by tails of Student t distributions "
                    "with the same quantiles"
                )
            if (beyond & is_bound).any():
                said.append(
                    f"{least:.3g} means that or less, {most:.3g} that or more, because the result has no "
                    "quantiles beyond"
                )
            about["comment"] = f"{'; '.join(said)}."
        return self._filled(there, found).assign_attrs(about).rename("exceedance")

    def _beyond(
        self, of: Predictive, there: Mask, limit: Array, found: Array, bounded: Array, *, below: bool
    ) -> Array:
        """Replace bounds of probabilities beyond the outermost quantiles by those of tails, where there are.

        All values lie above a limit that is below the least value of a transform.
        """
        if self.tailed is None:
            return bounded
        table, score = of, limit[there]
        if isinstance(of, Transformed):
            with np.errstate(invalid="ignore"):
                table, score = of.base, of.transform.forward(limit[there])
            outside = np.isnan(score) | np.isneginf(score) | (limit[there] < of.transform.inverse(-np.inf))
            bounded, score = np.where(outside, found, bounded), np.where(outside, np.nan, score)
        assert isinstance(table, QuantileTable)
        lower, upper = (table.student_tail(score, above=above) for above in (False, True))
        values = (lower, 1.0 - upper) if below else (1.0 - lower, upper)
        sides = (side[there[self.known]] for side in self.tailed)
        known = [side & np.isfinite(value) for side, value in zip(sides, values, strict=True)]
        return np.asarray(np.select(known, values, bounded))

    def quantile(self, level: float | Sequence[float]) -> xr.DataArray:
        """Give the value of each place that is not exceeded with a probability, or with each of several."""
        levels = as_numbers("level", level)
        if levels.ndim > 1 or not levels.size or not ((levels > 0.0) & (levels < 1.0)).all():
            raise ArgumentError(
                f"level is {level!r}; expected a number between 0 and 1, such as 0.9, or a list of them.",
                key="levels",
            )
        if self.levels is not None:
            beyond = (levels < self.levels[0] - 1e-12) | (levels > self.levels[1] + 1e-12)
            if beyond.any():
                raise ArgumentError(
                    f"level is {level!r}, and the result knows quantiles from {self.levels[0]:g} to "
                    f"{self.levels[1]:g}; expected levels between these.",
                    key="level-beyond-quantiles",
                )
        found = self.distribution.quantile(levels)
        each = [self._filled(self.known, values) for values in (found if levels.ndim else found[None])]
        if not levels.ndim:
            name = f"{float(levels):.6g} quantile of {self.whose}"
            return each[0].assign_attrs(long_name=name, **self._units).rename("quantile")
        along = xr.Variable(QUANTILE_LEVEL, levels, {"units": "1"})
        joined = xr.concat(each, along, coords="minimal", compat="override")
        return joined.assign_attrs(long_name=f"quantile of {self.whose}", **self._units).rename("quantile")

    def interval(self, level: float) -> xr.Dataset:
        """Lower and upper end of the central interval of a level."""
        check_between("level", level, 0.0, 1.0)
        if self.levels is not None and (1.0 - level) / 2.0 < self.levels[0] - 1e-12:
            raise ArgumentError(
                f"level is {level:g}, and the result knows quantiles from {self.levels[0]:g} to "
                f"{self.levels[1]:g}; expected at most {1.0 - 2.0 * self.levels[0]:g}.",
                key="level-beyond-quantiles",
            )
        ends = zip(("lower", "upper"), self.distribution.interval(level), strict=True)
        return xr.Dataset(
            {
                end: self._filled(self.known, values).assign_attrs(
                    long_name=f"{end} end of the {level:.0%} interval of {self.whose}", **self._units
                )
                for end, values in ends
            }
        )

    @property
    def whose(self) -> str:
        """Whose distribution it is."""
        return "an observation" if self.of == "observation" else "the field"

    @property
    def _units(self) -> dict[str, str]:
        """Attribute of what has the unit of the field."""
        return {name: text for name, text in self.like.attrs.items() if name == "units"}

    def _filled(self, there: Mask, numbers: Array) -> xr.DataArray:
        """Put numbers at some places, NaN elsewhere."""
        values = np.full(self.like.shape, np.nan)
        values[there] = numbers
        kept = {name: text for name, text in self.like.attrs.items() if name == "grid_mapping"}
        return self.like.copy(data=values).drop_attrs(deep=False).assign_attrs(kept)


def stems_of(dataset: xr.Dataset) -> list[str]:
    """Find what precedes ``mean`` and ``std`` in the names of a result, of each variable."""
    if {"mean", "std"} <= set(dataset.data_vars):
        return [""]
    stems = [str(name).removesuffix("mean") for name in dataset.data_vars if str(name).endswith("_mean")]
    return [stem for stem in stems if f"{stem}std" in dataset.data_vars]


def stem_of(dataset: xr.Dataset) -> str:
    """Find what precedes ``mean`` and ``std`` in the names of a result: nothing, or ``t2m_`` in runs."""
    found = stems_of(dataset)
    if len(found) != 1:
        there = ", ".join(map(repr, dataset.data_vars)) or "no variables"
        raise ArgumentError(
            f"the dataset has {there}; expected the mean and the standard deviation of a result, 'mean' and "
            "'std'. Of samples, the part of them that lies above: (draws > threshold).mean('sample').",
            key="no-distribution",
        )
    return found[0]


def distribution_of(
    dataset: xr.Dataset, *, of: Of = None, noise_std: float | None = None
) -> ResultDistribution:
    """Take the distribution that a result states, by default the recalibrated one if it has one."""
    stem = stem_of(dataset)
    mean, std = dataset[f"{stem}mean"], dataset[f"{stem}std"]
    table = dataset.get(f"{stem}quantile")
    transformed = f"{stem}median" in dataset
    plain = table is None or (transformed and dataset.attrs.get("recalibration") == "none")
    chosen = of or ("field" if plain else "observation")
    check_word("of", chosen, ("field", "observation"))
    if noise_std is not None:
        check_positive("noise_std", noise_std)
        if chosen == "field" or table is not None:
            raise ArgumentError(
                f"noise_std is {noise_std:g}, and the distribution is that of "
                f"{'the field, without noise' if chosen == 'field' else 'an observation with its own noise'}"
                "; expected of='observation', of a result without recalibration.",
                key="noise-of-field",
            )
    if transformed:
        return _of_transformed(dataset, stem, chosen)
    if chosen == "field":
        latent = dataset.get("field_quantile")
        if latent is not None:
            drawn = "mean_standard_error" in dataset  # as means over areas are
            return _of_table(mean, latent, chosen, tailed=not drawn)
        if table is not None and RECALIBRATED not in str(std.attrs.get("long_name", "")):
            raise ArgumentError(
                "the result has quantiles of an observation alone, and the distribution of the field is not "
                "normal: lengthscale, variance and noise were integrated over. Expected of='observation'.",
                key="field-of-integrated",
            )
        return _normal(mean, std.values, chosen)
    if NODES_PER_CELL in dataset.attrs:
        raise ArgumentError(
            "the result has means over cells, which nobody observes; expected of='field'.",
            key="observation-of-cells",
        )
    if table is not None:
        return _of_table(mean, table, chosen, student="local_scale" in dataset)
    if f"{stem}predictive_std" in dataset and noise_std is None:
        return _normal(mean, dataset[f"{stem}predictive_std"].values, chosen)
    if "field_quantile" in dataset:
        raise ArgumentError(
            "lengthscale, variance and noise were integrated over, each with its own noise, so that the "
            "result does not say how an observation is distributed. Expected of='field', or a result with "
            'recalibration, krige(..., recalibration="local-scale").',
            key="observation-of-integrated",
        )
    noise = dataset.attrs.get("noise_std") if noise_std is None else noise_std
    if not isinstance(noise, (int, float, np.number)):
        said = "no noise" if noise is None else f"a noise of {noise}"
        raise ArgumentError(
            f"the result has {said}; expected one number beside it, such as noise_std=0.5.",
            key="no-noise-said",
        )
    return _normal(mean, np.hypot(std.values, float(noise)), chosen)


def _normal(mean: xr.DataArray, std: Array, of: str) -> ResultDistribution:
    """Give normal distributions; error bars may be the same at all times."""
    centre = np.asarray(mean.values, dtype=np.float64)
    spread = np.broadcast_to(np.asarray(std, dtype=np.float64), centre.shape)
    known = np.isfinite(centre) & np.isfinite(spread)
    if certain := int((spread[known] == 0.0).sum()):
        raise ArgumentError(
            f"the standard deviation is 0 at {certain:,} of {known.sum():,} values, which have no "
            "distribution; expected positive ones. Leave these values out: "
            'result.assign(std=result["std"].where(result["std"] > 0)).',
            key="no-spread",
        )
    return ResultDistribution(mean, known, Gaussian(centre[known], spread[known]), of)


def _of_table(
    mean: xr.DataArray, quantiles: xr.DataArray, of: str, *, student: bool = False, tailed: bool = False
) -> ResultDistribution:
    """Give the distributions of quantiles: Student t ones wholly, others between the outermost of them."""
    levels = np.asarray(quantiles[QUANTILE_LEVEL].values, dtype=np.float64)
    rows = np.asarray(quantiles.transpose(QUANTILE_LEVEL, *mean.dims).values, dtype=np.float64)
    known = np.asarray(np.isfinite(rows).all(axis=0))
    table = QuantileTable(levels, rows[:, known])
    distribution: Predictive | None = _student(table) if student else None
    return ResultDistribution(
        mean,
        known,
        distribution or table,
        of,
        None if distribution else (float(levels[0]), float(levels[-1])),
        tailed=2 * (np.ones(table.shape, dtype=np.bool_),) if tailed else None,
    )


def _of_transformed(dataset: xr.Dataset, stem: str, of: str) -> ResultDistribution:
    """Give the distributions of a result of transformed values: by their quantiles, in what they became.

    There quantiles of a normal distribution are that distribution. Of those at the least value it is known
    that they are no larger: they go on as the next two do, linear in the normal score.
    """
    mean = dataset[f"{stem}mean"]
    name = "field_quantile" if of == "field" else f"{stem}quantile"
    if name not in dataset:
        raise ArgumentError(
            f"the result has transformed values, and no quantiles of the field as {name}; expected "
            "of='observation', whose quantiles it has.",
            key="field-of-transformed",
        )
    quantiles = dataset[name]
    transform = transform_of(str(dataset.attrs.get(TRANSFORM_OBJECT, "")))
    rows = np.asarray(quantiles.transpose(QUANTILE_LEVEL, *mean.dims).values, dtype=np.float64)
    if transform is None:
        if bool((rows[0] == rows[1]).any()):  # tails that nothing says
            raise ArgumentError(
                "the result does not say by what its values were transformed, as each day of a series has "
                f"its own, and {name} has quantiles that are the least value; expected the run of one day. "
                f"Or read {name} itself.",
                key="transform-not-said",
            )
        return _of_table(mean, quantiles, of)
    levels = np.asarray(quantiles[QUANTILE_LEVEL].values, dtype=np.float64)
    known = np.asarray(np.isfinite(rows).all(axis=0))
    least = dataset.get("probability_zero") if of == "field" else None
    of_least = None if least is None else least.transpose(*mean.dims).values[known]
    scores = transform.forward(rows[:, known])
    table = QuantileTable(levels, _below_the_end(scores, levels, transform.end, of_least))
    tailed = None
    if of == "field" or dataset.attrs.get("recalibration", "none") == "none":
        there = scores > transform.end  # from the median on, a tail is that of quantiles
        lower, upper = (np.asarray(there[side].all(axis=0)) for side in (levels <= 0.5, levels >= 0.5))
        tailed = lower, upper
    base: Predictive | None = _gaussian(table)
    if base is None and of == "observation" and "local_scale" in dataset:
        base = _student(table)
    ends = (float(levels[0]), float(levels[-1])) if base is None else None
    told = None if of_least is None else (float(transform.inverse(-np.inf)), of_least)
    return ResultDistribution(mean, known, Transformed(base or table, transform), of, ends, told, tailed)


def _below_the_end(rows: Array, levels: Array, end: float, least: Array | None) -> Array:
    """Continue quantiles (L, k) downwards where they are at the end of a transform.

    Where the probability ``least`` (k,) of the end is known, along the line from the first quantile above it
    through the end at that probability, else through the next two quantiles.
    """
    scores = ndtri(levels)
    at_end = rows <= end
    found = rows.copy()
    if least is not None:
        at = ndtri(np.clip(least, SMALLEST, 1.0 - np.finfo(float).epsneg))
        first = np.minimum(at_end.sum(axis=0), levels.size - 1)
        above = np.take_along_axis(rows, first[None], axis=0)[0] - end
        slope = np.ones(at.shape)
        rises = (above > 0.0) & (scores[first] > at)
        slope[rises] = above[rises] / (scores[first] - at)[rises]
        return np.where(at_end, np.minimum(end + slope * (scores[:, None] - at), end), rows)
    for low in range(levels.size - 1, -1, -1):
        here = at_end[low]
        if not here.any():
            continue
        if low >= levels.size - 2:  # nothing is known of a slope; it has to be some
            above = found[low + 1] if low < levels.size - 1 else end
            slope = np.maximum(above - end, 1.0) / (scores[-1] - scores[-2])
            found[low] = np.where(
                here, end - slope * (scores[-1] - scores[low]) * (low < levels.size - 1), found[low]
            )
            continue
        slope = (found[low + 2] - found[low + 1]) / (scores[low + 2] - scores[low + 1])
        on = found[low + 1] - slope * (scores[low + 1] - scores[low])
        found[low] = np.where(here, np.minimum(on, end), found[low])
    return found


def _gaussian(table: QuantileTable) -> Gaussian | None:
    """Find the normal distributions that have these quantiles; None where they are others."""
    scores = ndtri(table.levels).reshape(-1, *(1,) * len(table.shape))
    spread = (table.values[-1] - table.values[0]) / (scores[-1] - scores[0])
    centre = table.quantile(0.5)
    apart = np.abs(table.values - centre - spread * scores)
    return Gaussian(centre, spread) if bool(np.all(apart <= STRAIGHT * spread)) else None


def _student(table: QuantileTable) -> StudentT | Gaussian:
    """Find the Student t distributions, all of the same degrees of freedom, that have these quantiles."""
    levels, outer, inner = table.levels, -1, int(np.searchsorted(table.levels, 0.5, side="right"))
    centre = table.quantile(0.5)
    if not centre.size:
        return Gaussian(centre, np.ones(0))
    widths = table.values - centre
    ratio = float(np.median(widths[outer] / widths[inner]))

    def beyond(logarithm: float) -> float:
        quantiles = stdtrit(np.exp(logarithm), levels[np.array([outer, inner])])
        return float(quantiles[0] / quantiles[1] - ratio)

    ends = 0.0, float(np.log(MOST_DEGREES))
    if beyond(ends[1]) >= 0.0:
        return Gaussian(centre, widths[outer] / ndtri(levels[outer]))
    degrees = float(np.exp(brentq(beyond, *ends, xtol=1e-12)))
    return StudentT(centre, widths[outer] / stdtrit(degrees, levels[outer]), np.asarray(degrees))


def _as_like(threshold: float | xr.DataArray, like: xr.DataArray) -> Array:
    """Give a threshold the shape of a result."""
    if isinstance(threshold, xr.DataArray):
        if not set(threshold.dims) <= set(like.dims):
            raise ArgumentError(
                f"threshold has the dimensions {tuple(threshold.dims)}; expected a number, or dimensions of "
                f"the result, which has {tuple(like.dims)}.",
                key="threshold-dimensions",
            )
        if any(
            not threshold[dim].variable.equals(like[dim].variable)
            for dim in threshold.dims
            if dim in threshold.coords
        ):
            raise ArgumentError(
                "threshold is on other coordinates; expected those of the result.", key="threshold-dimensions"
            )
        return np.asarray(threshold.broadcast_like(like).transpose(*like.dims).values, dtype=np.float64)
    if not isinstance(threshold, (int, float, np.number)) or not np.isfinite(threshold):
        raise ArgumentError(
            f"threshold is {threshold!r}; expected a number, or a DataArray of numbers.", key="threshold"
        )
    return np.full(like.shape, float(threshold))
