"""Sizes of earlier errors at the same places, from which a job that runs every day learns where it errs."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Indices
from cagp_dist.checks import as_numbers, as_points
from cagp_dist.errors import ArgumentError
from cagp_dist.predictive import Gaussian


@dataclass(frozen=True, eq=False)
class PastErrors:
    """Sizes of standardised errors ``|y - mu| / sigma`` at N places, summed over times.

    Parameters
    ----------
    points : array, shape (N, p)
    absolute_sums : array, shape (N,)
    counts : array of int, shape (N,)
        Errors of each place, 0 where there are none.
    unit : str
        Of the values that were predicted.

    Examples
    --------
    >>> from cagp_dist.predictive import Gaussian
    >>> monday = PastErrors.of(Gaussian([0.0, 0.0], 2.0), [1.0, -4.0], [[0.0], [1.0]], unit="K")
    >>> tuesday = PastErrors.of(Gaussian([0.0, 0.0], 2.0), [3.0, float("nan")], [[0.0], [1.0]], unit="K")
    >>> both = monday + tuesday
    >>> both.absolute_sums.tolist(), both.counts.tolist()
    ([2.0, 2.0], [2, 1])
    """

    points: Array
    absolute_sums: Array
    counts: Indices
    unit: str

    @classmethod
    def of(cls, law: Gaussian, observed: ArrayLike, X: ArrayLike, *, unit: str) -> Self:
        """Errors of predictions (N,) or (T, N) at places X (N, p), which did not use their own values."""
        points, values = as_points("X", X), as_numbers("observed", observed)
        if values.shape != law.shape or law.shape[-1:] != (len(points),) or values.ndim > 2:
            raise ArgumentError(
                f"the law has shape {law.shape}, observed {values.shape} and X {points.shape}; expected (N,) "
                "or (T, N) of the first two, and one row of X for each of the N places."
            )
        sizes = np.atleast_2d(np.abs(law.normal_score(values)))
        return cls(points, np.nansum(sizes, axis=0), np.count_nonzero(~np.isnan(sizes), axis=0), unit)

    def __add__(self, later: "PastErrors") -> "PastErrors":
        """Errors of both; refused if places or units differ."""
        if later.unit != self.unit:
            raise ArgumentError(
                f"past errors are of values in {self.unit!r} and others in {later.unit!r}; expected one "
                "unit. Errors of another variable say nothing of this one."
            )
        self.check_places(later.points)
        sums, counts = self.absolute_sums + later.absolute_sums, self.counts + later.counts
        return PastErrors(self.points, sums, counts, self.unit)

    def check_places(self, points: Array) -> None:
        """Raise `ArgumentError` unless these are the places of the errors, in their order."""
        if points.shape != self.points.shape or not np.allclose(points, self.points, rtol=0.0, atol=1e-9):
            raise ArgumentError(
                f"past errors belong to {len(self.points)} places and these are {len(points)} others; "
                "expected the same places in the same order. Errors of another grid cannot be used."
            )

    def at(self, some: Indices) -> "PastErrors":
        """Errors of some of the places."""
        return PastErrors(self.points[some], self.absolute_sums[some], self.counts[some], self.unit)
