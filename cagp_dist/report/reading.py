"""Groups and arrays of a published run, read with every check and error in one place."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.errors import StoreError
from cagp_dist.store.layout import MISSING

if TYPE_CHECKING:
    import xarray as xr


@contextmanager
def open_group(path: Path, name: str) -> Iterator["xr.Dataset"]:
    """Open one group; whatever goes wrong in the library while it is read becomes a StoreError."""
    import xarray as xr

    from cagp_dist.store.plain import plain_store

    try:
        with xr.open_zarr(
            plain_store(str(path), text=True),
            group=name or None,
            chunks=None,
            consolidated=False,
            decode_timedelta=False,
        ) as dataset:
            yield dataset
    except StoreError as error:
        raise StoreError(f"the run {path}: {error}") from error
    except Exception as error:  # codecs and metadata readers raise whatever their library raises
        raise StoreError(
            f"cannot read group {name or '/'!r} of the run {path} ({type(error).__name__}: {error}). "
            "`cagp verify OUT` names the damaged file; restore it from a copy or run the job again."
        ) from error


def optional_values(dataset: "xr.Dataset", name: str, *dims: str, blank: int = 0) -> Array | None:
    """Variable that a run may hold or not."""
    return values_of(dataset, name, *dims, blank=blank) if name in dataset else None


def values_of(dataset: "xr.Dataset", name: str, *dims: str, blank: int = 0, missing: bool = False) -> Array:
    """Variable as float64 in the order of dims, finite but for as many values as the group says.

    Of a map these are the cells that were left ``blank``, of observations those that are ``missing``.
    """
    values = np.asarray(dataset[name].transpose(*dims).values, dtype=np.float64)
    expected = int(dataset.attrs.get(MISSING, 0)) if missing else blank
    if np.count_nonzero(~np.isfinite(values)) != expected or np.isinf(values).any():
        raise StoreError(
            f"{np.count_nonzero(~np.isfinite(values))} of {values.size} values of {name!r} "
            "are not finite; a missing chunk reads as NaN. "
            "`cagp verify OUT` names it; restore the run from a copy or run the job again."
        )
    return values
