"""One group of places as CSV, one row for each place and time, and its description as CSV on the Web."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import xarray as xr

from cagp_dist.export.groups import GRIDDED, POINT, REGIONAL, kind_of
from cagp_dist.kernels import DEPTH
from cagp_dist.store.atomic_files import whole_file
from cagp_dist.store.group_dataset import AXES, own_dims
from cagp_dist.store.published_variables import REGION, STATION_NAME

SIDECAR = "-metadata.json"  # what the W3C appends to the name of a CSV file for its description

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\x1b")  # begin formulas, or sequences for a terminal


def write_csv(group: xr.Dataset, path: Path) -> Path:
    """Write a group of places, and beside it ``<name>.csv-metadata.json``: units, meaning, attributes.

    One line of names, no comments; numbers have as many digits as float64 needs, a missing one is empty.
    """
    regional = kind_of(group) == REGIONAL
    axes = own_dims(AXES, group.coords)
    places = {GRIDDED: axes, REGIONAL: (REGION,)}.get(kind_of(group), (POINT,))
    deep = (DEPTH,) if DEPTH in group.coords and group[DEPTH].dims == (POINT,) else ()
    where = (REGION,) if regional else (*axes, *deep)
    named = [STATION_NAME] if STATION_NAME in group.coords else []
    varying = [str(name) for name in group.data_vars if set(places) <= set(group[name].dims)]
    names = named + [name for name in varying if set(group[name].dims) <= {"time", *places}]
    first = ["time"] if "time" in group.coords else []
    with whole_file(path.with_name(path.name + SIDECAR)) as sidecar, whole_file(path) as temporary:
        with temporary.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow([*first, *where, *map(_harmless, names)])
            writer.writerows(_rows(group, names, places, where))
        sidecar.write_text(_metadata(group, path.name, [*first, *where, *names]), encoding="utf-8")
    return path


def _rows(
    group: xr.Dataset, names: list[str], places: tuple[str, ...], where: tuple[str, ...]
) -> Iterator[tuple[object, ...]]:
    """Yield the rows, time by time; those of a group without times once."""
    axes = [group[name].values for name in where]
    if len(places) == 2:
        axes = list(np.meshgrid(*axes, indexing="ij"))
    at = [[_harmless(value) for value in axis.ravel().tolist()] for axis in axes]
    if "time" not in group.coords:
        yield from zip(*at, *(_column(group[name], 0, places) for name in names), strict=True)
        return
    for step, stamp in enumerate(np.datetime_as_string(group["time"].values, unit="s")):
        stamps = [f"{stamp}Z"] * len(at[0])
        yield from zip(stamps, *at, *(_column(group[name], step, places) for name in names), strict=True)


def _column(variable: xr.DataArray, step: int, places: tuple[str, ...]) -> list[object]:
    """Values at one time, in the order of the places; "" where one is missing."""
    at_time = variable.isel(time=step) if "time" in variable.dims else variable
    values = at_time.transpose(*places).values.ravel()
    column: list[object] = values.tolist()
    if values.dtype.kind in "OUT":
        return [_harmless(value) for value in column]
    if values.dtype.kind == "f":
        for index in np.flatnonzero(np.isnan(values)):
            column[index] = ""
    return column


def _harmless(value: object) -> object:
    """Put an apostrophe before a name that spreadsheets would run as a formula, or terminals obey."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _metadata(group: xr.Dataset, name: str, names: list[str]) -> str:
    """Describe the table in the vocabulary of CSV on the Web; attributes as notes."""
    kinds = {"time": "dateTime", STATION_NAME: "string", REGION: "string"}
    said = {"long_name": "dc:title", "comment": "dc:description", "units": "schema:unitText"}
    columns = [
        {"name": key, "titles": key, "datatype": kinds.get(key, "number")}
        | {title: group[key].attrs[name] for name, title in said.items() if name in group[key].attrs}
        for key in names
    ]
    document = {
        "@context": "http://www.w3.org/ns/csvw",
        "url": name,
        "dc:title": group.attrs.get("title"),
        "dc:license": group.attrs.get("license"),
        "dc:source": group.attrs.get("source"),
        "tableSchema": {"columns": columns},
        "notes": [{str(key): value for key, value in group.attrs.items()}],
    }
    return json.dumps(document, ensure_ascii=False, indent=1, default=np.generic.item) + "\n"
