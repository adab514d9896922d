"""What a process that decodes files answers with: arrays and JSON in a folder that its parent chose."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import xarray as xr

from cagp_dist.errors import (
    CagpError,
    ConfigurationError,
    DamagedFileError,
    DataError,
    FullDiskError,
    NotReadyError,
)
from cagp_dist.fields.canonical import assemble, space_of
from cagp_dist.fields.points import Points
from cagp_dist.remedies import Remedy, Setting
from cagp_dist.space import SPHERE, Plane, Space
from cagp_dist.space.systems import written_system
from cagp_dist.variables import variable_of

REQUEST = "request.json"  # what is asked for
LISTED = "listed.jsonl"  # what each file has, a line each, where times alone are asked for
HELD, NAMES = "held.npy", "names.json"  # all times of the variable, and the names of other fields
HEADWAY = "headway.txt"  # how far it is, a line
ERROR = "error.json"  # what went wrong, a `Told`

DISK_IS_FULL = 75  # exit code of a process that could not even write down its error

_ARRAYS = ("values", "time", "north", "east")
_ATTRIBUTES = "variable.json"
_POINTS, _COLUMNS = "points.json", "columns.npz"


class Told(TypedDict):
    """An error on its way between processes."""

    kind: str
    text: str
    key: str
    remedies: list[list[Any]]  # name of a remedy, or name, value and purpose of a setting


def told_of(error: CagpError) -> Told:
    """Write down an error."""
    remedies = [
        [each.name, each.value, each.so_that] if isinstance(each, Setting) else [each.name]
        for each in error.remedies
    ]
    return Told(kind=type(error).__name__, text=error.text, key=error.key, remedies=remedies)


def told_error(told: Told, *, what: str) -> ConfigurationError | DataError | FullDiskError:
    """Make an error of what a child process has written down, naming ``what`` once."""
    kinds: dict[str, type[ConfigurationError | DataError | FullDiskError]] = {
        each.__name__: each for each in (ConfigurationError, DamagedFileError, FullDiskError, NotReadyError)
    }
    remedies = [Remedy[each[0]] if len(each) == 1 else Setting(*each) for each in told["remedies"]]
    kind = kinds.get(told["kind"], DataError)
    text = told["text"]
    named = text if text == what or text.startswith((f"{what} ", f"{what}:")) else f"{what}: {text}"
    return kind(named, key=told["key"], remedies=tuple(remedies))


def save_headway(text: str, folder: Path) -> None:
    """Write how far the work is; who cannot, says nothing."""
    with suppress(OSError):
        (folder / f"{HEADWAY}.new").write_text(text)
        (folder / f"{HEADWAY}.new").replace(folder / HEADWAY)


def saved_headway(folder: Path) -> str:
    """Read how far the work is; empty where it is not said."""
    try:
        return (folder / HEADWAY).read_text()
    except OSError:
        return ""


def saved_listings(folder: Path) -> list[Any]:
    """Read what files have, as far as the process came that looked at them."""
    if not (folder / LISTED).exists():
        return []
    whole, _, _ = (folder / LISTED).read_text().rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def save_points(points: Points, folder: Path) -> None:
    """Write the columns of points."""
    columns: dict[str, Any] = {f"column_{at}": held for at, held in enumerate(points.columns.values())}
    np.savez(folder / _COLUMNS, **columns)
    said = {
        "names": [*points.columns],
        "value": points.value,
        "axes": points.axes,
        "time": points.time,
        "attributes": {key: str(text) for key, text in points.attributes.items()},
        "units_beside": dict(points.units_beside),
        "zones": dict(points.zones),
        "pair": points.pair,
        "crs": written_system(points.crs),
    }
    (folder / _POINTS).write_text(json.dumps(said))


def saved_points(folder: Path) -> Points | None:
    """Read the columns of `save_points`; None if there are none."""
    if not (folder / _POINTS).exists():
        return None
    said = json.loads((folder / _POINTS).read_text())
    names = said.pop("names")
    with np.load(folder / _COLUMNS, allow_pickle=False) as held:
        columns = {name: held[f"column_{at}"] for at, name in enumerate(names)}
    pairs = {name: None if said[name] is None else tuple(said[name]) for name in ("axes", "pair")}
    return Points(columns, **(said | pairs))


def save_field(field: xr.Dataset, folder: Path) -> None:
    """Write a field in canonical form."""
    ((name, values),), space = field.data_vars.items(), space_of(field)
    held = (values, field["time"], *(field[axis] for axis in space.axes))
    for name_of_array, array in zip(_ARRAYS, held, strict=True):
        np.save(folder / f"{name_of_array}.npy", array.values)
    said: dict[str, Any] = {"name": str(name), "attributes": values.attrs, "field": field.attrs}
    if isinstance(space, Plane):
        mapping = {name: held.to_dict(data=False)["attrs"] for name, held in space.mapping.items()}
        said["plane"] = {"names": space.names, "unit": space.unit, "mapping": mapping}
    (folder / _ATTRIBUTES).write_text(json.dumps(said))


def saved_field(folder: Path) -> xr.Dataset | None:
    """Read the field of `save_field`; None if there is none."""
    if not (folder / _ATTRIBUTES).exists():
        return None
    found = json.loads((folder / _ATTRIBUTES).read_text())
    values, time, north, east = (np.load(folder / f"{name}.npy", allow_pickle=False) for name in _ARRAYS)
    variable = variable_of(found["name"], found["attributes"])
    space: Space = SPHERE
    if plane := found.get("plane"):
        mapping = {name: xr.Variable((), np.int32(0), about) for name, about in plane["mapping"].items()}
        space = Plane((plane["names"][0], plane["names"][1]), plane["unit"], mapping=mapping)
    return assemble(values, time, north, east, variable, space).assign_attrs(found["field"])
