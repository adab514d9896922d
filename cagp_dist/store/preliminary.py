"""Times of which a source has the preliminary field alone: ERA5T, which the final ERA5 replaces.

The Climate Data Store marks them with the experiment version (``expver``) 0005; the final field, 0001, comes
two to three months later. It is the same for most times, and differs where a fault was found meanwhile.
"""

from collections.abc import Iterable

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from cagp_dist.arrays import Times

PRELIMINARY = "preliminary_times"
"""Attribute of a field: its times that are preliminary, ISO 8601, a space between; absent if none is."""

_VERSION = "5"


def is_preliminary(versions: ArrayLike) -> NDArray[np.bool_]:
    """Tell which experiment versions, numbers or text such as ``0005``, are preliminary."""
    given = np.asarray(versions)
    texts = [each.decode() if isinstance(each, bytes) else str(each) for each in given.ravel().tolist()]
    found = [text.strip().lstrip("0").removesuffix(".0") == _VERSION for text in texts]
    return np.array(found, dtype=bool).reshape(given.shape)


def preliminary_times(field: xr.Dataset) -> Times:
    """List the times of a field that are preliminary, ascending, datetime64[ns]; empty if all are final."""
    marked = np.array(str(field.attrs.get(PRELIMINARY, "")).split(), dtype="datetime64[ns]")
    return np.intersect1d(marked, field["time"].values)


def marked(field: xr.Dataset, times: ArrayLike) -> xr.Dataset:
    """Give a field the attribute `PRELIMINARY` of those of these times that it has; none, if it has none."""
    left = np.intersect1d(np.asarray(times, dtype="datetime64[ns]"), field["time"].values)
    others = {name: value for name, value in field.attrs.items() if name != PRELIMINARY}
    said = {PRELIMINARY: " ".join(map(str, left.astype("datetime64[s]")))} if left.size else {}
    found = field.copy(deep=False)
    found.attrs = {**others, **said}
    return found


def still_preliminary(parts: Iterable[xr.Dataset]) -> Times:
    """List the times that are preliminary in every part that has them."""
    none = [np.empty(0, dtype="datetime64[ns]")]
    preliminary, final = list(none), list(none)
    for part in parts:
        left = preliminary_times(part)
        preliminary.append(left)
        final.append(np.setdiff1d(part["time"].values, left))
    return np.setdiff1d(np.concatenate(preliminary), np.concatenate(final))
