"""What a process that decodes files answers with: arrays and JSON in a folder that its parent chose."""

import json
from pathlib import Path

import numpy as np
import xarray as xr

from cagp_dist.fields.canonical import assemble
from cagp_dist.variables import variable_of

LISTED = "listed.json"  # what each file has, where times alone are asked for
HELD, NAMES = "held.npy", "names.json"  # all times of the variable, and the names of other fields
ERROR = "error.json"  # what went wrong: ``kind`` and ``message``

_ARRAYS = ("values", "time", "latitude", "longitude")
_ATTRIBUTES = "variable.json"


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
