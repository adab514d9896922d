"""One group of places as CSV, one row for each place and time, and its description as CSV on the Web."""

import csv
import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import xarray as xr

from cagp_dist.export.groups import GRIDDED, POINT, REGIONAL, kind_of
from cagp_dist.store.atomic_files import whole_file
from cagp_dist.store.published_variables import REGION, STATION_NAME

SIDECAR = "-metadata.json"
"""What the W3C recommendation on tabular metadata appends to the name of a CSV file."""


_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\x1b")
"""What a formula, or a sequence for a terminal, begins with."""


def write_csv(group: xr.Dataset, path: Path) -> Path:
    """Write a group of places, and beside it ``<name>.csv-metadata.json``: units, meaning, attributes.

    Columns are ``time`` (ISO 8601, UTC), ``latitude``, ``longitude``, ``station_name`` where places have
    names, and the variables that have a value at each place; of means over regions ``time``, ``region`` and
    these. One line of names, no comments, so that every program reads it. Numbers have as many digits as
    their float64 needs; a missing one is empty.
    """
    kind = kind_of(group)
    places = {GRIDDED: ("latitude", "longitude"), REGIONAL: (REGION,)}.get(kind, (POINT,))
    where = (REGION,) if kind == REGIONAL else ("latitude", "longitude")
    names = [
        *([STATION_NAME] if STATION_NAME in group.coords else []),
        *(
            str(name)
            for name, variable in group.data_vars.items()
            if set(places) <= set(variable.dims) <= {"time", *places}
        ),
    ]
    with (
        whole_file(path.with_name(path.name + SIDECAR)) as sidecar,
        whole_file(path) as temporary,
    ):
        with temporary.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(["time", *where, *map(_harmless, names)])
            writer.writerows(_rows(group, names, places, where))
        sidecar.write_text(_metadata(group, path.name, [*where, *names]), encoding="utf-8")
    return path


def _rows(
    group: xr.Dataset, names: list[str], places: tuple[str, ...], where: tuple[str, ...]
) -> Iterator[tuple[object, ...]]:
    """Yield the rows, time by time."""
    axes = [group[name].values for name in where]
    if len(places) == 2:
        axes = list(np.meshgrid(*axes, indexing="ij"))
    at = [[_harmless(value) for value in axis.ravel().tolist()] for axis in axes]
    stamps = np.datetime_as_string(group["time"].values.astype("datetime64[s]"), unit="s")
    yield from chain.from_iterable(
        zip(
            [f"{stamp}Z"] * len(at[0]),
            *at,
            *(_column(group[name], step, places) for name in names),
            strict=True,
        )
        for step, stamp in enumerate(stamps)
    )


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
    columns: list[dict[str, object]] = []
    for key in ("time", *names):
        attributes = group[key].attrs
        column: dict[str, object] = {
            "name": key,
            "titles": key,
            "datatype": {"time": "dateTime", STATION_NAME: "string", REGION: "string"}.get(key, "number"),
        }
        if "long_name" in attributes:
            column["dc:title"] = attributes["long_name"]
        if "comment" in attributes:
            column["dc:description"] = attributes["comment"]
        if "units" in attributes:
            column["schema:unitText"] = attributes["units"]
        columns.append(column)
    document = {
        "@context": "http://www.w3.org/ns/csvw",
        "url": name,
        "dc:title": group.attrs.get("title"),
        "dc:license": group.attrs.get("license"),
        "dc:source": group.attrs.get("source"),
        "tableSchema": {"columns": columns},
        "notes": [{str(key): value for key, value in group.attrs.items()}],
    }
    return json.dumps(document, ensure_ascii=False, indent=1, default=_plain_number) + "\n"


def _plain_number(value: np.generic) -> object:
    return value.item()
