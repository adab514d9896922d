"""Recalibration methods by the names that job files give them: a new method is one module and one line here.

``method.fit(distribution, observed, X)`` learns from calibration points, whose predictions did not use their
own values; ``fitted(distribution, X_new)`` gives corrected distributions. Methods need SciPy, and are
imported when asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from cagp_dist.calibration.recalibration.local_scale import LocalScale
    from cagp_dist.calibration.recalibration.quantile_curve import Kuleshov
    from cagp_dist.predictive import Gaussian, Predictive

# Sharp calibrated GPs (`recalibration.sharp`), which need the observed points and a solver beside errors
SHARP = "sharp"

# Levels of a sharp GP where a job does not say: the quantiles that runs publish
SHARP_LEVELS = (0.025, 0.05, 0.25, 0.5, 0.75, 0.95, 0.975)


class Fitted(Protocol):
    """What a method learned; ``distribution`` has shape (q,) or (T, q), ``X_new`` (q, p)."""

    def __call__(self, distribution: "Gaussian", X_new: ArrayLike | None) -> "Predictive": ...


class Recalibration(Protocol):
    """A method; ``distribution`` and ``observed`` (NaN: left out) are (N,) or (T, N), ``X`` (N, p)."""

    def fit(self, distribution: "Gaussian", observed: ArrayLike, X: ArrayLike | None) -> Fitted: ...


@dataclass(frozen=True)
class Unchanged:
    """The distributions as they are: ``method = "none"``."""

    def fit(self, distribution: "Gaussian", observed: ArrayLike, X: ArrayLike | None) -> "Unchanged":
        """Learn nothing."""
        return self

    def __call__(self, distribution: "Gaussian", X_new: ArrayLike | None) -> "Gaussian":
        """Give the distribution back."""
        return distribution


def _local_scale() -> "LocalScale":
    """Give a local scale that also depends on land and coast; X has unit vectors on the globe."""
    from cagp_dist.calibration.recalibration.local_scale import LocalScale
    from cagp_dist.calibration.verification.strata import surface_terms

    return LocalScale(terms=surface_terms)


def _kuleshov() -> "Kuleshov":
    from cagp_dist.calibration.recalibration.quantile_curve import Kuleshov

    return Kuleshov()


# By their names in job files, where `SHARP` is one more
RECALIBRATIONS: dict[str, Callable[[], Recalibration]] = {
    "local-scale": _local_scale,
    "kuleshov": _kuleshov,
    "none": Unchanged,
}

# Names that runs of earlier versions may have, and what to use instead
REMOVED = {
    "conformal": 'write "kuleshov", which has the same distributions',
    "marx": 'write "kuleshov", or "local-scale" where widths should vary with the place',
    "split-conformal": 'write "local-scale", whose widths follow the errors near by, too',
}
