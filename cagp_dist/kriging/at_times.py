"""Times of maps that are informed by the observations of all times."""

import datetime as dt
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from cagp_dist.arrays import Array, Times
from cagp_dist.errors import ArgumentError
from cagp_dist.fields.calendars import calendar_of_dates, evenly_counted
from cagp_dist.pipeline.observations import hours_since
from cagp_dist.store.published_variables import COORDINATES

if TYPE_CHECKING:
    from cagp_dist.fields.observed_objects import ObservedObject

At: TypeAlias = "str | Sequence[object] | Times | None"
"""Times, or "observed"."""

_WRITTEN = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d)(?::(\d\d)(?::(\d\d))?)?)?Z?")

ABOUT = COORDINATES["time"]

AMONG, BEYOND, ALONE = 0, 1, 2
"""What observations there are around a time: before and after, on one side alone, or none near any target."""


def times_of_maps(at: At, observed: "ObservedObject") -> tuple[Array, xr.Variable]:
    """Read the times of maps, each once, or take those of the observations: hours (A,), and a coordinate.

    Those with a zone are converted to UTC, those without one are UTC. In another calendar they are texts or
    dates of it.
    """
    points, moments = observed.points, observed.moments
    assert moments is not None
    if isinstance(at, str) and at == "observed":
        found: NDArray[np.generic] = moments
    elif moments.dtype.kind == "O":
        found = _of_calendar(at, moments.flat[0])
    else:
        found = _standard(at)
    about = (
        dict(ABOUT) if moments.dtype.kind == "O" else {**ABOUT, "comment": "UTC, also where no zone is given"}
    )
    hours = hours_since(evenly_counted(found, observed.calendar), points.origin)
    return hours, xr.Variable("time", found, about)


def evidence(hours: Array, seen: Array, alone: NDArray[np.bool_], *, causal: bool) -> xr.Variable:
    """Say of each time (A,) whether it lies among the hours that were observed, as a CF flag variable."""
    outside = (hours > seen.max()) | (hours < seen.min())
    about = {
        "long_name": "observations around the time",
        "flag_values": np.array([AMONG, BEYOND, ALONE], dtype=np.int8),
        "flag_meanings": "on_both_sides extrapolated prior_alone",
    }
    values = np.where(alone, ALONE, np.where(outside | causal, BEYOND, AMONG)).astype(np.int8)
    return xr.Variable("time", values, about)


def _standard(at: At) -> Times:
    """Read dates of the standard calendar."""
    import pandas as pd

    given = np.atleast_1d(np.asarray(at))
    if given.dtype.kind == "O" and not any(isinstance(each, str) for each in given):
        dates = (dt.date, np.datetime64)  # of the standard library and pandas, and of NumPy
        read = [pd.Timestamp(each) if isinstance(each, dates) else each for each in given]
        given = np.array(read, dtype=object)
    numbers = given.dtype.kind in "biuf" or any(isinstance(each, (int, float)) for each in given)
    if numbers or not given.size:
        _refuse(at, "")
    try:
        # one way to write a day: 01/07/2024 has two meanings
        form = "ISO8601" if given.dtype.kind in "OUS" else None
        found = pd.DatetimeIndex(pd.to_datetime(given.astype(object), utc=True, format=form)).as_unit("ns")
    except (ValueError, TypeError, pd.errors.OutOfBoundsDatetime) as error:
        _refuse(at, ", in ISO 8601, from 1678 to 2262", error)
    if found.hasnans:
        _refuse(at, "; one of them is not a time")
    return np.asarray(found.tz_localize(None).unique().to_numpy("datetime64[ns]"))


def _of_calendar(at: At, like: Any) -> NDArray[np.object_]:
    """Read dates of the calendar of one of them."""
    given = [at] if isinstance(at, str) or not isinstance(at, Sequence | np.ndarray) else list(at)
    calendar, found = calendar_of_dates(np.array([like], dtype=object)), []
    said = f", written as 2001-02-30T12:00, or dates of the calendar {calendar!r} of the observations"
    for each in given:
        written = _WRITTEN.fullmatch(each) if isinstance(each, str) else None
        if getattr(each, "calendar", "").lower() == calendar:
            found.append(each)
            continue
        if written is None:
            _refuse(at, said)
        parts = dict(
            zip(
                ("year", "month", "day", "hour", "minute", "second"), map(int, written.groups(0)), strict=True
            )
        )
        try:
            found.append(like.replace(**parts, microsecond=0))
        except ValueError as error:
            _refuse(at, said, error)
    if not found:
        _refuse(at, said)
    return np.array(list(dict.fromkeys(found)), dtype=object)


def _refuse(at: At, said: str, error: Exception | None = None) -> NoReturn:
    """Say what is expected instead of what was given."""
    raise ArgumentError(
        f'at is {at!r}; expected "observed", or times such as "2024-07-01T12:00"{said}.', key="times"
    ) from error
