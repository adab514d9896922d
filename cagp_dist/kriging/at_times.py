"""Times of maps that are informed by the observations of all times."""

import datetime as dt
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from cagp_dist.arrays import Times
from cagp_dist.errors import ArgumentError
from cagp_dist.mapping import Observations

At: TypeAlias = "str | Sequence[object] | Times | None"
"""Times, or "observed"."""


def times_of_maps(at: At, observed: Observations) -> Times:
    """Read the times of maps, in UTC and without a zone, each once; or take those of the observations."""
    import pandas as pd

    dates = observed.dates()
    if dates is None:
        some = "no times" if np.isnat(observed.times).all() else "dates that are not known"
        raise ArgumentError(
            f"the observations have {some}, and maps at times were asked for; expected a column or "
            'coordinate of times. Name it, time="...", or leave at= out.'
        )
    if isinstance(at, str) and at == "observed":
        return np.unique(dates)
    expected = f'at is {at!r}; expected "observed", or times such as "2024-07-01T12:00"'
    given = np.atleast_1d(np.asarray(at))
    if given.dtype.kind == "O" and not any(isinstance(each, str) for each in given):
        given = np.array([pd.Timestamp(each) if _is_moment(each) else each for each in given], dtype=object)
    numbers = given.dtype.kind in "biuf" or any(isinstance(each, (int, float)) for each in given)
    if numbers or not given.size:
        raise ArgumentError(f"{expected}.")
    try:
        # one way to write a day: 01/07/2024 has two meanings
        form = "ISO8601" if given.dtype.kind in "OUS" else None
        found = pd.DatetimeIndex(pd.to_datetime(given.astype(object), utc=True, format=form)).as_unit("ns")
    except (ValueError, TypeError, pd.errors.OutOfBoundsDatetime) as error:
        raise ArgumentError(f"{expected}, in ISO 8601, from 1678 to 2262.") from error
    if found.hasnans:
        raise ArgumentError(f"{expected}; one of them is no time.")
    return np.asarray(found.tz_localize(None).unique().to_numpy("datetime64[ns]"))


def _is_moment(value: object) -> bool:
    """Whether it is a date of the standard library, of NumPy or of pandas."""
    return isinstance(value, (dt.datetime, dt.date, np.datetime64))
