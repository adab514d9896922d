"""A first guess of the field, the background, as prior mean with coefficient one, and its error (math 25).

With the background x_b and the standard deviation s_b of its error, the prior is::

    f(x) = x_b(x) + m(x) + s_b(x) u(x),      u ~ GP(0, rho),      y = f + noise

and what is mapped are the innovations y - x_b. Where s_b is a number it is the square root of the kernel's
variance. Where it is a field, observations are divided by it and targets are weighted with it, so that kernel
and solvers see u alone: the same posterior, with no kernel of its own.

Where kernel and noise are right, innovations d_b = y - x_b have the variance s_b^2 + R, and with residuals
d_a = y - x_a of the map the mean of d_a d_b is the noise variance R [Desroziers et al. 2005].
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Indices, Mask, Times
from cagp_dist.digest import joint_sha256
from cagp_dist.errors import DataError
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.means import BasisMean, EstimatedMean
from cagp_dist.pipeline.observations import Observations
from cagp_dist.prior import KnownPlusEstimated, Mean
from cagp_dist.text import counted, shown_time

FITTED_TO_THEM = (
    "variance and noise were fitted to these innovations, so that ratios to them say nothing: give "
    "background_std, or the noise"
)
SAME_TIME = np.timedelta64(1, "s")  # by which times are the same but for rounding


class LayeredField(Protocol):
    """A field on a grid, or fields of several times."""

    @property
    def name(self) -> str: ...

    @property
    def times(self) -> Times | None: ...  # (L,) ascending; None where one layer holds at all times

    @property
    def content_sha256(self) -> str: ...

    def layers_at(self, X: Array, layers: Indices, /) -> Array: ...  # (n, k), NaN where not known


@dataclass(frozen=True, eq=False)
class FieldInUnits:
    """A field, linear in time between its layers, in the unit of the observations."""

    field: LayeredField
    factor: float = 1.0
    offset: float = 0.0

    def at(self, X: Array, when: Times) -> Array:
        """Values (n, T) at positions X at each of the times (T,)."""
        lower, weight = self._layers(when)
        used = np.unique(np.concatenate([lower, lower[weight > 0.0] + 1]))
        values = self.field.layers_at(X, used)
        first, second = (np.minimum(np.searchsorted(used, lower + step), used.size - 1) for step in (0, 1))
        found = values[:, first]
        between = weight > 0.0
        found[:, between] += weight[between] * (values[:, second[between]] - found[:, between])
        return self.factor * found + self.offset

    def along(self, X: Array, when: Times) -> Array:
        """Values (n,) at positions X (n, p), each at a time of its own."""
        lower, weight = self._layers(when)
        found = np.empty(len(X))
        for layer in np.unique(lower):
            here = np.flatnonzero(lower == layer)
            found[here] = self.field.layers_at(X[here], np.array([layer]))[:, 0]
            between = here[weight[here] > 0.0]
            if between.size:
                after = self.field.layers_at(X[between], np.array([layer + 1]))[:, 0]
                found[between] += weight[between] * (after - found[between])
        return self.factor * found + self.offset

    def _layers(self, when: Times) -> tuple[Indices, Array]:
        """Layer before each time, and the weight of the one after it; `DataError` where there is none."""
        times = self.field.times
        if times is None or (times.size == 1 and np.isnat(when).all()):
            return np.zeros(when.size, dtype=np.intp), np.zeros(when.size)
        outside = (when < times[0] - SAME_TIME) | (when > times[-1] + SAME_TIME) | np.isnat(when)
        if outside.any():
            first = when[outside.argmax()]
            came = "times that are not known" if np.isnat(first) else f"the time {shown_time(first)}"
            held = shown_time(times[0]) + (f" to {shown_time(times[-1])}" if times.size > 1 else "")
            raise DataError(
                f"the background {self.field.name!r} is of {held}, and the observations or targets have "
                f"{came}; expected it at each of their times. Where it holds at all times, leave its time "
                'out: background.drop_vars("time").',
                key="background-times",
            )
        lower = np.clip(np.searchsorted(times, when, side="right") - 1, 0, times.size - 1)
        after = np.minimum(lower + 1, times.size - 1)
        step = np.maximum((times[after] - times[lower]) / SAME_TIME, 1.0)
        weight = np.clip((when - times[lower]) / SAME_TIME / step, 0.0, 1.0)
        return lower, np.where(after > lower, weight, 0.0)


@dataclass(frozen=True, eq=False)
class Background:
    """A first guess with coefficient one, what is known of its error, and the mean of the innovations."""

    guess: FieldInUnits
    std: FieldInUnits | float | None = None  # standard deviation of its error; None: that of the kernel
    innovation_mean: float = 0.0  # what is known of it
    estimated: EstimatedMean | None = None  # and what is estimated with the field

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its fields, for people."""
        fields = [self.guess, *([self.std] if isinstance(self.std, FieldInUnits) else [])]
        return tuple(dict.fromkeys(each.field.name for each in fields))

    @property
    def attributes(self) -> dict[str, str | float]:
        """What a result says of it."""
        said: dict[str, str | float] = {"background": self.guess.field.name}
        if self.std is None:
            return said
        return {**said, "background_std": self.std if isinstance(self.std, float) else self.std.field.name}

    @property
    def variance(self) -> float:
        """Variance of the kernel: that of the error, or one over a field of standard deviations."""
        return self.std**2 if isinstance(self.std, float) else 1.0

    @property
    def content_sha256(self) -> str:
        """Digest of the fields."""
        fields = [self.guess, *([self.std] if isinstance(self.std, FieldInUnits) else [])]
        return joint_sha256([each.field.content_sha256 for each in fields])

    @property
    def scales(self) -> bool:
        """Whether the standard deviation of the error is a field."""
        return isinstance(self.std, FieldInUnits)

    def known_of(self, observed: Observations, fields: Indices) -> Callable[[Array], Array]:
        """Known mean of some fields: at points X (n, p) values (n, T)."""
        return partial(self._at, self.guess, observed, fields, self.innovation_mean)

    def mean_of(self, observed: Observations, fields: Indices) -> Mean:
        """Prior mean of some fields, with coefficients where some of the innovations' are estimated."""
        known = self.known_of(observed, fields)
        return known if self.estimated is None else KnownPlusEstimated(known, self.estimated)

    def scale_at(self, X: Array, observed: Observations) -> Array:
        """Give the standard deviation (n,) of the error at points X; `DataError` where it is not above 0."""
        assert isinstance(self.std, FieldInUnits)
        fields = np.arange(observed.fields)
        if self.std.field.times is None:
            fields = fields[:1]
        elif observed.fields > 1:
            raise DataError(
                f"background_std has {counted(self.std.field.times.size, 'time')}, and there are "
                f"{observed.fields:,} fields, which share kernel and weights; expected one "
                'standard deviation for all times. Average it, background_std=std.mean("time"), or map each '
                "time by itself.",
                key="background-std-times",
            )
        found = self._at(self.std, observed, fields, 0.0, X)[:, 0]
        if not (found > 0.0).all():
            raise DataError(
                f"background_std is {found[~(found > 0.0)][0]:g} at {int((~(found > 0.0)).sum()):,} of "
                f"{found.size:,} points; expected standard deviations above zero.",
                key="background-std",
            )
        return found

    def known_at(self, X: Array, observed: Observations) -> Mask:
        """Tell at which points X all fields are known at all times."""
        every = np.arange(observed.fields)
        known = np.isfinite(self._at(self.guess, observed, every, 0.0, X)).all(axis=1)
        if isinstance(self.std, FieldInUnits):
            some = every if self.std.field.times is not None else every[:1]
            known &= np.isfinite(self._at(self.std, observed, some, 0.0, X)).all(axis=1)
        return np.asarray(known)

    def _at(self, of: FieldInUnits, observed: Observations, fields: Indices, add: float, X: Array) -> Array:
        """Values (n, T) of a field at points X, of points in space and time (n, 1)."""
        if not observed.in_time:
            return of.at(X, observed.times[fields]) + add
        when = observed.origin.astype("datetime64[us]") + np.rint(X[:, -1] * 3.6e9).astype("timedelta64[us]")
        return of.along(X[:, :-1], when)[:, None] + add


@dataclass(frozen=True)
class Innovations:
    """What innovations say of the numbers that they were mapped with (math 25)."""

    count: int  # of the values that were compared
    mean: float  # of observation minus background
    # standard deviation about their stated mean over the stated one, and the mean of d_a d_b over the stated
    # noise variance: 1 where the numbers are right; None where variance and noise were fitted to them
    std_ratio: float | None
    ratio: float | None

    @classmethod
    def of(
        cls,
        from_background: Array,
        from_map: Array,
        variance: Array,
        noise: Array,
        *,
        mean: float | Array = 0.0,
        told: bool,
    ) -> "Innovations":
        """Compare innovations (T, n) less their mean, NaN where there is none, with variances (n,)."""
        there = ~np.isnan(from_background)
        count, d_b, d_a = int(there.sum()), from_background[there], from_map[there]
        stated, of_noise = ((there * each).sum() for each in (variance + noise, noise))
        return cls(
            count,
            float((from_background + mean)[there].mean()),
            float(np.sqrt(np.sum(d_b**2) / stated)) if told else None,
            float(np.sum(d_a * d_b) / of_noise) if told else None,
        )

    def attributes(self) -> dict[str, float | int | str]:
        """Say them; where variance and noise are both fitted to the innovations, that ratios tell nothing."""
        said: dict[str, float | int | str] = {
            "innovation_mean": self.mean,
            "innovations_compared": self.count,
        }
        if self.std_ratio is None or self.ratio is None:
            return {**said, "innovation_comment": FITTED_TO_THEM}
        return {**said, "innovation_std_ratio": self.std_ratio, "innovation_ratio": self.ratio}

    def line(self) -> str:
        """Sum them up."""
        said = f"{counted(self.count, 'innovation')}, mean {self.mean:.3g}"
        if self.std_ratio is None or self.ratio is None:
            return f"{said}; {FITTED_TO_THEM}"
        return (
            f"{said}; standard deviation {self.std_ratio:.3f} times the stated one, noise variance "
            f"{self.ratio:.3f} times the stated one by the residuals of the map"
        )


def over_scale(mean: Mean, scale: Callable[[Array], Array]) -> Mean:
    """Give a mean of a background over the scale of the field."""

    def divided(of: Callable[[Array], ArrayLike], X: Array) -> Array:
        return np.asarray(np.asarray(of(X)) / scale(X)[:, None])

    if isinstance(mean, KnownPlusEstimated):
        names, basis_at = mean.coefficient_names, mean.estimated.basis_at
        return KnownPlusEstimated(partial(divided, mean.known), BasisMean(partial(divided, basis_at), names))
    assert callable(mean)
    return partial(divided, mean)


def weighted(
    wanted: Array | LinearFunctionals, scale: Callable[[Array], Array] | None
) -> Array | LinearFunctionals:
    """Targets as sums of the field over its scale, f(x) = s(x) u(x); the same where there is none."""
    if scale is None:
        return wanted
    each = wanted if isinstance(wanted, LinearFunctionals) else LinearFunctionals.of_points(wanted)
    return LinearFunctionals.of_terms(each.nodes, each.weights * scale(each.places), each.counts, each.terms)
