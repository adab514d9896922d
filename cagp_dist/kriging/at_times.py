"""Times of maps that are informed by the observations of all times."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from cagp_dist.arrays import Times
from cagp_dist.errors import ArgumentError
from cagp_dist.mapping import Observations

At: TypeAlias = "str | Sequence[object] | Times | None"
"""Times, or "observed"."""


def times_of_maps(at: At, observed: Observations) -> Times:
    """Read the times of maps, in UTC and without a zone; or take those of the observations."""
    import pandas as pd

    if isinstance(at, str) and at == "observed":
        dates = observed.dates()
        return np.unique(np.array([], "datetime64[ns]") if dates is None else dates)
    try:
        found = pd.DatetimeIndex(pd.to_datetime(np.atleast_1d(np.asarray(at, dtype=object)), utc=True))
    except (ValueError, TypeError, pd.errors.OutOfBoundsDatetime) as error:
        raise ArgumentError(
            f'at is {at!r}; expected "observed", or times such as "2024-07-01T12:00": {error}'
        ) from error
    if found.hasnans or found.empty:
        raise ArgumentError(f'at is {at!r}; expected "observed", or times such as "2024-07-01T12:00".')
    return np.asarray(found.tz_localize(None).to_numpy("datetime64[ns]"))
