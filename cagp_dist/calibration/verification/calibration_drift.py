"""Whether the errors of a row of times are as large as their error bars say, or have drifted from that.

The mean m of ``z^2``, ``z = Phi^-1(PIT)``, over N values is 1 if the distributions are right. What chance
explains of the difference is measured along both ways in which errors agree [Cameron et al. 2011]: compact
cells of places, and six runs of times. There is an alarm if ``|m - 1|`` exceeds the quantile of Student's
distribution with five degrees of freedom times ``sqrt(max(V_c + V_b - V_cb, V_c, V_b, 2 / N))``.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Indices
from cagp_dist.errors import ArgumentError

BATCHES = 6  # Runs of consecutive times; fewer times than these decide nothing
FALSE_ALARMS = 0.01  # Probability of an alarm if nothing has drifted, of one look at one row of times

# A PIT value that a distribution of no such observation rounds to 0 or 1 is taken for this far from them
_SMALLEST = 1e-16


@dataclass(frozen=True)
class CalibrationDrift:
    """Size of errors over that of error bars, and the band in which chance leaves it."""

    ratio: float  # Root mean square of standardised errors: how many times as large errors are as stated
    # low, high: band of the ratio if the error bars are right; outside it there is an alarm
    low: float
    high: float
    values: int  # Number of observations

    @property
    def alarm(self) -> bool:
        """Whether the ratio is outside the band."""
        return not self.low <= self.ratio <= self.high


def measure_drift(pit: ArrayLike, *, times: ArrayLike, cells: ArrayLike, looks: int = 1) -> CalibrationDrift:
    """Compare errors with their error bars over a row of times; ``pit``, ``times``, ``cells`` (N,).

    Of several looks at once, such as one at each variable, the probability of any false alarm is that of one.
    """
    from scipy.special import ndtri, stdtrit

    values, when = np.asarray(pit, dtype=np.float64), np.asarray(times, dtype=np.intp)
    count = int(when.max(initial=-1)) + 1
    if count < BATCHES:
        raise ArgumentError(
            f"there are {count} times; expected at least {BATCHES}, one for each batch.", key="few-times"
        )
    if not ((values >= 0.0) & (values <= 1.0)).all():
        raise ArgumentError(
            "a PIT value lies outside [0, 1]; expected values of a distribution function.", key="pit-range"
        )
    squares = ndtri(np.clip(values, _SMALLEST, 1.0 - _SMALLEST)) ** 2
    mean = float(squares.mean())
    deviations = (squares - mean) / squares.size
    batch = when * BATCHES // count
    cell = np.asarray(cells, dtype=np.intp)
    by_batch, by_cell = _variance(deviations, batch), _variance(deviations, cell)
    both = _variance(deviations, cell * BATCHES + batch, corrected=False)
    variance = max(by_cell + by_batch - both, by_cell, by_batch, 2.0 / squares.size)
    margin = float(stdtrit(BATCHES - 1, 1.0 - 0.5 * FALSE_ALARMS / looks)) * float(np.sqrt(variance))
    low, high = np.sqrt(max(0.0, 1.0 - margin)), np.sqrt(1.0 + margin)
    return CalibrationDrift(float(np.sqrt(mean)), float(low), float(high), squares.size)


def _variance(deviations: Array, clusters: Indices, *, corrected: bool = True) -> float:
    """Variance of a sum of deviations that agree within clusters alone."""
    sums = np.bincount(clusters, weights=deviations)
    count = np.unique(clusters).size
    factor = count / (count - 1) if corrected and count > 1 else 1.0
    return factor * float(sums @ sums)
