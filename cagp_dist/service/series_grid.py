"""Whether the maps of a day lie on the grid of the time series, found before anything is solved."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.errors import CagpError, DataError
from cagp_dist.fields.files.local_files import versions_by_time
from cagp_dist.service.ingest import one_by_one, selection_of
from cagp_dist.store.series import current_version
from cagp_dist.store.zarr_arrays import open_group
from cagp_dist.text import counted, without_secrets

if TYPE_CHECKING:
    from cagp_dist.service.task import PreparedJob

Axes = tuple[Array, Array]  # latitudes (rows,) and longitudes (columns,), of a plane north and east


def check_grid(root: Path, prepared: "PreparedJob") -> None:
    """Raise `DataError` unless the maps of a run have the grid of the series, if there is one."""
    version, design = current_version(root), prepared.design
    if version is None or design.cells is None:
        return
    coarse = "map" if design.mean_cells is None else "map_std"
    for name, cells in ((coarse, design.cells), ("map", design.mean_cells)):
        if cells is None or not (version / name).is_dir():
            continue
        there, here = _axes_of(version, name), (cells.north, cells.east)
        if not all(map(_alike, there, here)):
            table = prepared.job.design.map
            remedy = (
                "Give [design] map an area, and all days have the same map"
                if table is not None and table.area is None
                else "Give [design] map the area and the resolution that it had"
            )
            raise DataError(
                f"{_source(prepared)}: the map of this day has {_said(here)}, and that of the series in "
                f"{root} has {_said(there)}; a series has one grid, and nothing was solved. {remedy}, or use "
                "another [output] root.",
                key="of-another-grid",
            )


def _axes_of(version: Path, name: str) -> Axes:
    """Read the axes of the maps of a series."""
    with open_group(version, name) as group:
        fields = next(each for each in group.data_vars.values() if each.ndim > 2)
        north, east = (group[dim].values for dim in fields.dims[-2:])
    return north, east


def _alike(there: Array, here: Array) -> bool:
    return there.shape == here.shape and np.allclose(there, here, rtol=0.0, atol=1e-9)


def _said(axes: Axes) -> str:
    """Say how many points a grid has, and from where to where."""
    north, east = axes
    return (
        f"{north.size} x {east.size} points, {north.min():g}..{north.max():g} north and "
        f"{east.min():g}..{east.max():g} east"
    )


def _source(prepared: "PreparedJob") -> str:
    """Name the files that have the times of a run, else its source."""
    found: dict[str, None] = {}
    times = prepared.points.times.astype("datetime64[ns]").astype(np.int64).tolist()
    for each in one_by_one(prepared.job):
        table = each.observations
        if table.kind == "file":
            address = os.fspath(table.source).partition(":")[2]
            try:
                by_time = versions_by_time(
                    address, selection_of(table), scratch=prepared.job.output.folder / "downloads"
                )
            except CagpError:
                continue
            found |= dict.fromkeys(path for time in times for path, _ in by_time.get(time, ()))
    if not found:
        return without_secrets(prepared.provenance["source"])
    first = next(iter(found))
    return first if len(found) == 1 else f"{first} and {counted(len(found) - 1, 'other file')}"
