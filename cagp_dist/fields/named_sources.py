"""Observations named by the source that has them, as jobs do: "file:PATH", "zarr:URL", "cds", "sample"."""

import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import xarray as xr

from cagp_dist.arrays import Marks
from cagp_dist.errors import ArgumentError
from cagp_dist.fields.canonical import space_of
from cagp_dist.fields.sources import SOURCES, open_source
from cagp_dist.remedies import Setting
from cagp_dist.space import CRSLike, Plane

# What can be asked of any source; other keys choose a value along a dimension of it
PARTS = ("times", "area", "grid_degrees", "level", "check_range")


def is_source(observations: object) -> TypeGuard[str]:
    """Whether this names a source of fields; "table:PATH" and a path name a table."""
    if not isinstance(observations, str):
        return False
    name, _, address = observations.partition(":")
    return name in SOURCES and name != "table" and not (Path(observations).exists() and not address)


def open_named(
    source: str,
    *,
    value: str | None,
    columns: Mapping[str, str],
    units: str | None,
    missing: Marks,
    where: Mapping[str, object] | None,
    noise_std: str | None,
    crs: CRSLike,
) -> xr.DataArray:
    """Fetch the field of a source, or what ``where`` chooses of it; downloads are kept below ``~/.cache``."""
    asked: dict[str, Any] = dict(where or {})
    if "time" in asked:
        raise ArgumentError(
            f"where has the time {asked['time']!r}; expected dates in ISO 8601.",
            key="times",
            remedies=(Setting("times", ["2017-04-27T12:00"]),),
        )
    parts = {key: asked.pop(key) for key in PARTS if key in asked}
    if isinstance(parts.get("times"), str):
        parts["times"] = [parts["times"]]
    with tempfile.TemporaryDirectory(prefix="cagp-") as scratch:
        remote = SOURCES[source.partition(":")[0]].remote
        field = open_source(
            source,
            variable=value or "t2m",
            select=asked or None,
            columns=columns or None,
            units=units,
            missing=missing,
            noise_std=noise_std,
            cache_directory=None if remote else Path(scratch),
            undated=True,
            crs=crs,
            **parts,
        ).load()
    for note in field.attrs.get("notes", []):
        warnings.warn(note, stacklevel=5)
    (name,) = field.data_vars
    if isinstance(space := space_of(field), Plane):  # under the names that the source has
        field = field.rename(dict(zip("xy", space.names, strict=True)))
    return field[name].isel(time=0, drop=True) if np.isnat(field["time"].values).any() else field[name]
