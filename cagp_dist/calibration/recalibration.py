"""Recalibration methods by the names that job files give them: a new method is one class and one line here.

Its name is in `cagp_dist.calibration.method_names` too.

A method corrects Gaussian laws by the errors of calibration points, whose predictions did not use their own
values: ``method.fit(law, observed, X)`` learns from N of them, ``fitted(law, X_new)`` gives the corrected
laws at others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from numpy.typing import ArrayLike

from cagp_dist.calibration.curves import Kuleshov
from cagp_dist.calibration.local_scale import LocalScale
from cagp_dist.calibration.strata import surface_terms
from cagp_dist.predictive import Gaussian, Predictive


class Fitted(Protocol):
    """What a method learnt; ``law`` has shape (q,) or (T, q), ``X_new`` (q, p)."""

    def __call__(self, law: Gaussian, X_new: ArrayLike | None) -> Predictive: ...


class Recalibration(Protocol):
    """Settings of a method; ``law`` and ``observed`` have shape (N,) or (T, N), ``X`` (N, p).

    Observed values that are NaN are not there.
    """

    def fit(self, law: Gaussian, observed: ArrayLike, X: ArrayLike | None) -> Fitted: ...


@dataclass(frozen=True)
class Unchanged:
    """The laws as they are: ``method = "none"``."""

    def fit(self, law: Gaussian, observed: ArrayLike, X: ArrayLike | None) -> "Unchanged":
        """Learn nothing."""
        return self

    def __call__(self, law: Gaussian, X_new: ArrayLike | None) -> Gaussian:
        """Give the law back."""
        return law


RECALIBRATIONS: dict[str, Callable[[], Recalibration]] = {
    "local-scale": partial(LocalScale, terms=surface_terms),
    "kuleshov": Kuleshov,
    "none": Unchanged,
}
"""By their names in job files, as they correct laws at unit vectors: places on the globe."""
