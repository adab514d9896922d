"""Small fields of 2 m temperature that jobs of tests take their observations from."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from cagp_dist.store.zarr_arrays import write_group

Array = NDArray[np.float64]


def temperature(
    values: Array,
    *,
    latitude: Array,
    longitude: Array,
    times: Sequence[str] | NDArray[np.datetime64] = ("2020-01-01",),
    time: str = "time",
    units: str = "K",
) -> xr.Dataset:
    """Fields (T, P, Q) on a grid; ``time`` is what their dimension is called."""
    return xr.Dataset(
        {"t2m": ((time, "latitude", "longitude"), values.astype("f4"), {"units": units})},
        coords={time: np.array(times, dtype="M8[ns]"), "latitude": latitude, "longitude": longitude},
    )


def save(field: xr.Dataset, path: Path) -> Path:
    """Write a new Zarr store, which is quicker to open than a file, and give its path."""
    write_group(path, "/", field)
    return path


def smooth(latitude: Array, longitude: Array) -> Array:
    """Warm at the equator, with two waves around the globe: shape (1, P, Q)."""
    phi, lam = np.deg2rad(latitude)[:, None], np.deg2rad(longitude)[None, :]
    return (285.0 - 40.0 * np.sin(phi) ** 2 + 5.0 * np.cos(phi) * np.sin(2.0 * lam))[None]
