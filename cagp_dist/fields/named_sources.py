"""Observations named by the source that has them, as jobs do: "file:PATH", "zarr:URL", "cds", "sample"."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import xarray as xr

from cagp_dist.errors import ArgumentError
from cagp_dist.fields.canonical import space_of
from cagp_dist.fields.selection import Selection
from cagp_dist.fields.sources import SOURCES, Access, open_selected, where_of
from cagp_dist.remedies import Setting
from cagp_dist.space import Plane
from cagp_dist.warned import warn

# What can be asked of any source; other keys choose a value along a dimension of it
PARTS = ("times", "area", "grid_degrees", "check_range")


def is_source(observations: object) -> TypeGuard[str]:
    """Whether this names a source of fields; "table:PATH" and a path name a table."""
    if not isinstance(observations, str):
        return False
    name, _, address = observations.partition(":")
    return name in SOURCES and name != "table" and not (Path(observations).exists() and not address)


def open_named(
    source: str, selection: Selection, progress: Callable[[str], None] | None = None
) -> xr.DataArray:
    """Fetch the field of a source, or what ``where`` chooses of it; downloads are kept below ``~/.cache``."""
    chosen: dict[str, Any] = dict(selection.where)
    if "time" in chosen:
        raise ArgumentError(
            f"where has the time {chosen['time']!r}; expected dates in ISO 8601.",
            key="times",
            remedies=(Setting("times", ["2017-04-27T12:00"]),),
        )
    parts = {key: chosen.pop(key) for key in PARTS if key in chosen}
    if isinstance(parts.get("times"), str):
        parts["times"] = [parts["times"]]
    noise_std = (
        selection.noise_std if isinstance(selection.noise_std, str) else None
    )  # a number needs no source
    where = where_of(source, chosen)
    wanted = replace(selection, where=where, noise_std=noise_std, transform="none", **parts)
    with tempfile.TemporaryDirectory(prefix="cagp-") as scratch:
        remote = SOURCES[source.partition(":")[0]].remote
        access = Access(None if remote else Path(scratch), progress)
        field = open_selected(source, wanted, access, undated=True).load()
    for note in field.attrs.get("notes", []):
        warn(note)
    (name,) = field.data_vars
    if isinstance(space := space_of(field), Plane):  # under the names that the source has
        field = field.rename(dict(zip("xy", space.names, strict=True)))
    return field[name].isel(time=0, drop=True) if np.isnat(field["time"].values).any() else field[name]
