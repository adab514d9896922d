"""Words and numbers of the report: times, shares, and what a histogram says about the error bars."""

import numpy as np
from numpy.typing import NDArray

from cagp_dist.calibration.pit import Histogram

MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
"""Spelled out here because strftime follows the locale of whoever runs it."""

NOTICEABLE_RATIO = 0.15
NOTICEABLE_STANDARD_ERRORS = 3.0


def when(time: np.datetime64) -> str:
    """``27 April 2017, 12:00 UTC``.

    Examples
    --------
    >>> when(np.datetime64("2017-04-27T12:00"))
    '27 April 2017, 12:00 UTC'
    """
    date, clock = str(time.astype("datetime64[m]")).split("T")
    year, month, day = date.split("-")
    return f"{int(day)} {MONTHS[int(month) - 1]} {year}, {clock} UTC"


def when_all(times: NDArray[np.datetime64]) -> str:
    """One time as it is; several as their number, first and last, the date once if it is one day.

    Examples
    --------
    >>> when_all(np.array(["2019-03-01T00:00", "2019-03-01T23:00"], dtype="datetime64[s]"))
    '1 March 2019, 00:00 to 23:00 UTC (2 times)'
    """
    first, last = when(times.min()), when(times.max())
    if len(times) == 1:
        return first
    day, clock = last.split(", ")
    last = clock if first.startswith(f"{day},") else last
    return f"{first.removesuffix(' UTC')} to {last} ({len(times)} times)"


def percent(share: float) -> str:
    """``91.2 %``."""
    return f"{100.0 * share:.1f} %"


def signed(value: float, digits: int) -> str:
    """Write a number with its sign, a true minus; zero has none.

    Examples
    --------
    >>> signed(-0.314, 2), signed(0.5, 1), signed(-0.001, 2)
    ('−0.31', '+0.5', '0.00')
    """
    if float(f"{value:.{digits}f}") == 0.0:
        return f"{0.0:.{digits}f}"
    return f"{value:+.{digits}f}".replace("-", "\N{MINUS SIGN}")


def reading(histogram: Histogram) -> str:
    """Say in one line what the shape of a PIT histogram means.

    The outer tenth and the middle half are compared with a uniform histogram, and the outer intervals
    with their neighbours. A difference counts when it is both larger than three binomial standard
    errors and larger than 15 % (of the outer tenth), or a third of that (of the middle half): with many
    points even a harmless difference is significant.
    """
    counts, middles = histogram.counts, 0.5 * (histogram.edges[1:] + histogram.edges[:-1])
    total = int(counts.sum())
    outer, beside = int(counts[0] + counts[-1]), int(counts[1] + counts[-2])
    ends = _excess(int(counts[np.abs(middles - 0.5) > 0.45].sum()), total, 0.1, NOTICEABLE_RATIO)
    centre = _excess(int(counts[np.abs(middles - 0.5) < 0.25].sum()), total, 0.5, NOTICEABLE_RATIO / 3.0)
    horns = _excess(outer, outer + beside, 0.5, NOTICEABLE_RATIO)
    if centre > 0 and horns > 0:
        return (
            "Peaked in the middle with raised ends: the error bars are wider than needed at most points "
            "and too narrow at a few."
        )
    if ends > 0 or centre < 0:
        return "U-shaped: overconfident, errors are larger than the error bars say."
    if ends < 0 or centre > 0:
        return "Hump-shaped: conservative, errors are smaller than the error bars say."
    lean = _excess(int(counts[middles > 0.5].sum()), total, 0.5, NOTICEABLE_RATIO / 3.0)
    if lean:
        warmth = "warmer" if lean > 0 else "colder"
        return f"Leaning to one side: the observations are {warmth} than predicted on the whole."
    return "Close to flat: the error bars are about as wide as the errors."


def _excess(count: int, total: int, share: float, noticeable: float) -> int:
    """1 if a count is noticeably above its share of the total, -1 if below, else 0."""
    expected = share * total
    standard_error = np.sqrt(total * share * (1.0 - share))
    margin = max(NOTICEABLE_STANDARD_ERRORS * standard_error, noticeable * expected)
    return int(count > expected + margin) - int(count < expected - margin)
