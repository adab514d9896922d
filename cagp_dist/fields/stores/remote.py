"""Fields from Zarr stores, local or in the cloud: only the chunks of the selection are fetched."""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np
import xarray as xr
import zarr

from cagp_dist.arrays import Times
from cagp_dist.errors import CagpError, ConfigurationError, DataError, StoreError
from cagp_dist.extras import no_package
from cagp_dist.fields.calendars import decode, is_other, named
from cagp_dist.fields.canonical import canonical, points_of, time_axis
from cagp_dist.fields.missing import ZERO_FILL
from cagp_dist.fields.selection import EVERYTHING, Selection
from cagp_dist.fields.stations import field_of_points
from cagp_dist.memory import MOST_AXIS_BYTES, MOST_CHUNK_BYTES
from cagp_dist.store.plain import check_all_arrays, plain_store
from cagp_dist.store.zarr_arrays import content_sha256
from cagp_dist.text import bytes_text, without_secrets

PUBLIC_STORES = {
    "arco-era5": "gs://gcp-public-data-arco-era5/ar/full_37-1h-0p25deg-chunk-1.zarr-v3",
    "weatherbench2": (
        "gs://weatherbench2/datasets/era5/1959-2022-6h-240x121_equiangular_with_poles_conservative.zarr"
    ),
}
"""ERA5 that anybody may read: hourly at 0.25 degrees since 1940, and 6-hourly at 1.5 degrees 1959-2022."""

MOST_CHUNKS_OF_AXIS = 200_000  # each is a request, or takes 0.1 ms on a local disk
MOST_SMALL_CHUNKS, SMALL_CHUNK_BYTES = 500_000, 4096

_PUBLIC_BUCKETS = ("gs://gcp-public-data-arco-era5/", "gs://weatherbench2/")


def open_zarr(url: str, selection: Selection = EVERYTHING) -> xr.Dataset:
    """Read the selected part of a Zarr store into canonical form."""
    with opened_store(url) as dataset:
        points = points_of([dataset], selection)
        if points is None:
            result = canonical(dataset, selection=selection)
        else:
            result = field_of_points(points, selection, without_secrets(url, url))
    source = f"zarr:{without_secrets(url, url)}"
    result.attrs |= {"source": named(source, result), "source_sha256": content_sha256(result)}
    return result


def store_times(url: str, selection: Selection = EVERYTHING) -> Times:
    """List the times of a Zarr store, within ``valid_time_start`` and ``valid_time_stop`` if it says them."""
    with opened_store(url) as dataset:
        found = time_axis([dataset], selection)
        for name, inside in (("valid_time_start", np.greater_equal), ("valid_time_stop", np.less)):
            if name in dataset.attrs:
                day = np.datetime64(str(dataset.attrs[name]), "D") + (name == "valid_time_stop")
                found = found[inside(found, day)]
    return found


@contextmanager
def opened_store(url: str) -> Iterator[xr.Dataset]:
    """Open a Zarr store whose metadata is plain, lazily; what goes wrong until it is closed names it."""
    try:
        with _opened(url) as dataset:
            yield dataset
    except CagpError as error:
        said = without_secrets(error.text, url)
        if said == error.text:
            raise
        raise error.told(text=said) from None  # what it came from quotes the address too


@contextmanager
def _opened(url: str) -> Iterator[xr.Dataset]:
    """Open a store; errors quote the address as it is."""
    address = PUBLIC_STORES.get(url, url)
    # without credentials, which would otherwise be searched for minutes
    options = {"token": "anon"} if address.startswith(_PUBLIC_BUCKETS) else {}
    try:
        with warnings.catch_warnings():
            # stores without consolidated metadata are read as well, only slower
            warnings.filterwarnings("ignore", message="Failed to open Zarr store with consolidated")
            store = plain_store(address, options=options)
            arrays = check_all_arrays(store)
            largest = max(map(_check_chunks, arrays, arrays.values()), default=1)
            zeros = [path for path, array in arrays.items() if _is_filled_with_zero(array)]
            if zeros or any(is_other(dict(array.attrs)) for array in arrays.values()):
                raw = xr.open_zarr(store, chunks=None, decode_cf=False)
                opened = decode(_with_zeros(raw, zeros))
            else:
                opened = xr.open_zarr(store, chunks=None, decode_timedelta=False)
        few = max(1, min(zarr.config.get("async.concurrency"), MOST_CHUNK_BYTES // largest))
        with store, opened, zarr.config.set({"async.concurrency": few}):  # chunks in memory at once
            yield opened
    except StoreError as error:  # an array that is not plain: here it is the data of somebody else
        raise DataError(f"{address}: {error}", key="damaged") from error
    except CagpError as error:
        raise error.told(before=f"{address}:") from error
    except ImportError as error:
        if address.startswith(("az://", "abfs://")):  # of no extra
            raise ConfigurationError(
                f"reading {address} needs another package ({error}). Run: pip install adlfs", key="no-package"
            ) from error
        raise no_package("cloud", "another package", f"reading {address}", error) from error
    except FileNotFoundError as error:
        raise DataError(
            f"there is no Zarr store at {address} ({error}). Check the path; public stores are "
            f"{', '.join(f'zarr:{name}' for name in PUBLIC_STORES)}.",
            key="no-store",
        ) from error
    except Exception as error:  # every file system and codec has its own family of errors
        raise DataError(
            f"cannot read the Zarr store {address} ({type(error).__name__}: {error}). Check the address and "
            "the network, then run again; a store that stays unreadable is damaged.",
            key="unreadable",
        ) from error


def _check_chunks(name: str, array: zarr.Array[Any]) -> int:
    """Refuse an array that takes minutes or the memory only to open; give the bytes of a chunk."""
    size = prod(array.chunks) * array.dtype.itemsize
    count = prod(
        -(-length // chunk) for length, chunk in zip(array.shape, array.chunks, strict=True) if chunk
    )
    if array.ndim == 1:  # axes are read whole
        endless = count > MOST_CHUNKS_OF_AXIS or array.size * array.dtype.itemsize > MOST_AXIS_BYTES
    else:
        endless = count > MOST_SMALL_CHUNKS and size < SMALL_CHUNK_BYTES
    if endless:
        raise DataError(
            f"array {name!r} has {array.size:,} values in {count:,} chunks of {bytes_text(size)}; reading it "
            "would take minutes or fill the memory. Write the store again with larger chunks, or without it.",
            key="chunks",
        )
    return max(size, 1)


def _is_filled_with_zero(array: zarr.Array[Any]) -> bool:
    """Whether an array of Zarr 2 has the fill value 0, which Zarr gives it unasked, and says no other."""
    stated = array.metadata.zarr_format == 2 and array.fill_value is not None
    return bool(stated and "_FillValue" not in array.attrs and array.fill_value == 0)


def _with_zeros(raw: xr.Dataset, names: Iterable[str]) -> xr.Dataset:
    """Take zeros as numbers, which xarray would take as missing, and mark the variables that have them."""
    for name in names:
        if name in raw.variables:
            raw[name].attrs.pop("_FillValue", None)
            raw[name].attrs[ZERO_FILL] = 0
    return raw
