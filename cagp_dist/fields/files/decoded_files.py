"""What a process that decodes files answers with: arrays and JSON in a folder that its parent chose."""

import json
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import xarray as xr

from cagp_dist.errors import CagpError, ConfigurationError, DamagedFileError, DataError
from cagp_dist.fields.canonical import assemble
from cagp_dist.fields.points import Points
from cagp_dist.remedies import Remedy, Setting
from cagp_dist.variables import variable_of

LISTED = "listed.json"  # what each file has, where times alone are asked for
HELD, NAMES = "held.npy", "names.json"  # all times of the variable, and the names of other fields
ERROR = "error.json"  # what went wrong, a `Told`

_ARRAYS = ("values", "time", "latitude", "longitude")
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


def told_error(told: Told, *, what: str) -> ConfigurationError | DataError:
    """Make an error of what a child process has written down, naming ``what``."""
    kinds = {each.__name__: each for each in (ConfigurationError, DamagedFileError)}
    remedies = [Remedy[each[0]] if len(each) == 1 else Setting(*each) for each in told["remedies"]]
    kind = kinds.get(told["kind"], DataError)
    return kind(f"{what}: {told['text']}", key=told["key"], remedies=tuple(remedies))


def save_points(points: Points, folder: Path) -> None:
    """Write the columns of points."""
    columns: dict[str, Any] = {f"column_{at}": held for at, held in enumerate(points.columns.values())}
    np.savez(folder / _COLUMNS, **columns)
    units = {key: str(text) for key, text in points.attributes.items()}
    said = [[*points.columns], points.value, points.axes, points.time, units, dict(points.units_beside)]
    (folder / _POINTS).write_text(json.dumps(said))


def saved_points(folder: Path) -> Points | None:
    """Read the columns of `save_points`; None if there are none."""
    if not (folder / _POINTS).exists():
        return None
    names, value, axes, time, units, beside = json.loads((folder / _POINTS).read_text())
    with np.load(folder / _COLUMNS, allow_pickle=False) as held:
        columns = {name: held[f"column_{at}"] for at, name in enumerate(names)}
    pair = None if axes is None else (axes[0], axes[1])
    return Points(columns, value, pair, time, units, units_beside=beside)


def save_field(field: xr.Dataset, folder: Path) -> None:
    """Write a field in canonical form."""
    ((name, values),) = field.data_vars.items()
    for axis in _ARRAYS:
        np.save(folder / f"{axis}.npy", (values if axis == "values" else field[axis]).values)
    said = {"name": str(name), "attributes": values.attrs, "field": field.attrs}
    (folder / _ATTRIBUTES).write_text(json.dumps(said))


def saved_field(folder: Path) -> xr.Dataset | None:
    """Read the field of `save_field`; None if there is none."""
    if not (folder / _ATTRIBUTES).exists():
        return None
    found = json.loads((folder / _ATTRIBUTES).read_text())
    values, time, latitude, longitude = (
        np.load(folder / f"{name}.npy", allow_pickle=False) for name in _ARRAYS
    )
    variable = variable_of(found["name"], found["attributes"])
    return assemble(values, time, latitude, longitude, variable).assign_attrs(found["field"])
