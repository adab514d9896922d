"""From a published run to files that other programs read."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import xarray as xr

from cagp_dist.errors import ConfigurationError
from cagp_dist.export.flat_table import write_csv
from cagp_dist.export.gis_zarr import is_gis_zarr, write_gis_zarr
from cagp_dist.export.groups import (
    GRIDDED,
    PLACED,
    REGIONAL,
    TABULAR,
    by_level,
    group_names,
    kind_of,
    open_for_export,
)
from cagp_dist.export.netcdf import write_netcdf
from cagp_dist.fields.axes import located
from cagp_dist.space import Plane
from cagp_dist.store.geotiff import geotiff_variables, write_geotiff
from cagp_dist.store.lock import run_in_use
from cagp_dist.store.zarr_arrays import verify_chunks
from cagp_dist.text import alternatives, nearest

__all__ = ["FORMATS", "export_run"]

File: TypeAlias = tuple[str, Callable[[Path], Path]]  # name without suffix, and what writes it


@dataclass(frozen=True)
class Format:
    """A kind of file."""

    suffix: str
    kinds: frozenset[str]  # of groups that fit into it, see `cagp_dist.export.groups.kind_of`
    holds: str  # these groups, in words
    files: Callable[[str, xr.Dataset], list[File]]  # those that a group of a name makes
    is_ours: Callable[[Path], bool] | None = None  # of a folder, where each "file" is one


def _geotiff(name: str, group: xr.Dataset) -> list[File]:
    """Give a file for each variable of a map."""
    group, epsg = _in_its_system(by_level(group))
    return [
        (f"{name}_{each}", partial(write_geotiff, group, each, epsg=epsg))
        for each in geotiff_variables(group)
    ]


def _zarr(name: str, group: xr.Dataset) -> list[File]:
    """Give a store for a map."""
    group, epsg = _in_its_system(by_level(group))
    return [(name, partial(write_gis_zarr, group, epsg=epsg))]


FORMATS: Mapping[str, Format] = {
    "netcdf": Format(
        ".nc",
        frozenset({GRIDDED, PLACED, REGIONAL, TABULAR}),
        "every group",
        lambda name, group: [(name, partial(write_netcdf, group))],
    ),
    "csv": Format(
        ".csv",
        frozenset({GRIDDED, PLACED, REGIONAL}),
        "groups of places and regions",
        lambda name, group: [(name, partial(write_csv, by_level(group)))],
    ),
    "geotiff": Format(".tif", frozenset({GRIDDED}), "maps", _geotiff),
    "zarr": Format(".zarr", frozenset({GRIDDED}), "maps", _zarr, is_ours=is_gis_zarr),
}
"""The formats by the names that `cagp export --to` takes."""


def _in_its_system(group: xr.Dataset) -> tuple[xr.Dataset, int | None]:
    """Give a map of a plane in the unit of its system, and the EPSG number of that; others as they are."""
    space = located(group).space
    if not isinstance(space, Plane):
        return group, None
    epsg = space.epsg
    return group.assign_coords({axis: space.scale * group[axis] for axis in "yx"}), epsg


def export_run(
    run_path: str | os.PathLike[str],
    *,
    to: str,
    groups: Sequence[str] | None = None,
    output: str | os.PathLike[str] | None = None,
    force: bool = False,
) -> list[Path]:
    """Write groups of a published run as files of another format, each of which says where it comes from.

    Parameters
    ----------
    run_path : path-like
        ``OUT/runs/<run_key>.zarr``.
    to : str
        ``"netcdf"``: one CF-1.11 file for each group. ``"csv"``: one row for each place or region and each
        time, with the units and the rest of the description in ``<group>.csv-metadata.json`` beside it.
        ``"geotiff"``: one file for each variable of a map, ``<group>_<variable>.tif``, with a band for each
        time. ``"zarr"``: one Zarr store of version 2 for each group of maps, laid out for GDAL and QGIS.
    groups : sequence of str, optional
        Names of groups, such as ``["map"]``; all that the format can hold when omitted.
    output : path-like, optional
        A file, if its name ends with the suffix of the format and one group is exported; else a folder, which
        is created. ``OUT/export/<run_key>`` when omitted.
    force : bool
        Replace files that exist; of folders, only stores that this function wrote.

    Returns
    -------
    list of Path
        The files. Cost: one pass over the run; memory of one variable.

    Raises
    ------
    ConfigurationError
        If the format or a group is not known or do not fit, a file exists, the place cannot be written, or a
        library is missing. Nothing is written then.
    StoreError
        If there is no run, it is damaged, or the disk is full.

    Examples
    --------
    >>> export_run("out/runs/4f1d.zarr", to="netcdf", groups=["map"])  # doctest: +SKIP
    [PosixPath('out/export/4f1d/map.nc')]
    """
    form = FORMATS.get(to)
    if form is None:
        close = nearest(to, FORMATS)
        raise ConfigurationError(
            f"cannot export to {to!r}; expected {alternatives(FORMATS)}."
            + (f" Did you mean {close!r}?" if close else ""),
            key="format-unknown",
        )
    run = Path(run_path)
    there = group_names(run)
    for name in groups or ():
        if name not in there:
            raise ConfigurationError(
                f"the run {run} has no group {name!r}; expected {alternatives(there)}."
                + (" Its job asked for no map: add one under [design] and run it again." * (name == "map")),
                key="group-unknown",
            )
    with ExitStack() as stack:
        stack.enter_context(run_in_use(run))
        every = {
            name: stack.enter_context(open_for_export(run, name)) for name in dict.fromkeys(groups or there)
        }
        chosen = {name: group for name, group in every.items() if kind_of(group) in form.kinds}
        if not chosen or (groups and len(chosen) < len(every)):
            left_out = ", ".join(name for name in every if name not in chosen)
            raise ConfigurationError(
                f"{to} holds {form.holds}, and of the run {run} these do not fit: {left_out}. "
                'Export them to "netcdf", which holds every group; a map is made where [design] asks for '
                "one.",
                key="format-unfit",
            )
        files = [file for name, group in chosen.items() for file in form.files(name, group)]
        targets = _targets(run, form, [name for name, _ in files], output)
        for path in targets:
            _refuse_to_replace(path, form, force=force)
        for name in chosen:
            verify_chunks(run, name)
        for (_, write), target in zip(files, targets, strict=True):
            write(Path(os.path.realpath(target)))  # a link stays, and what it leads to is replaced
        return targets


def _refuse_to_replace(path: Path, form: Format, *, force: bool) -> None:
    """Raise where something is that is not an export of the format, or that nobody asked to replace."""
    if path.is_dir() and not (form.is_ours and form.is_ours(path)):
        raise ConfigurationError(
            f"{path} is a folder of other files; expected the name of "
            + (
                "a store that this package exported, or of a new one." if form.is_ours else "a file to write."
            ),
            key="folder",
        )
    if form.is_ours and path.exists() and not path.is_dir():
        raise ConfigurationError(
            f"{path} is a file; expected the name of a folder to write. Remove the file, or choose another "
            "output.",
            key="not-a-folder",
        )
    if path.exists() and not force:
        raise ConfigurationError(
            f"{path} exists; it is not replaced unasked. Add --force (force=True), or choose another output.",
            key="output-exists",
        )


def _targets(
    run: Path, form: Format, names: Sequence[str], output: str | os.PathLike[str] | None
) -> list[Path]:
    """Paths of the files."""
    if output is None:
        folder = run.absolute().parent
        target = (folder.parent if folder.name == "runs" else folder) / "export" / run.stem
    else:
        target = Path(output)
    if target.suffix.lower() != form.suffix:
        return [target / f"{name}{form.suffix}" for name in names]
    if len(names) > 1:
        raise ConfigurationError(
            f"{target} is one file, but there are {len(names)} to write: {', '.join(names)}. "
            "Name a folder, or one group with --group.",
            key="several-groups",
        )
    return [target]
