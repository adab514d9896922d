"""Check of a group before publication: arrays, dimensions, finite values, plausible ranges."""

from collections.abc import Mapping
from math import inf, prod

import numpy as np
import xarray as xr

from cagp_dist.errors import StoreError
from cagp_dist.store.group_dataset import variable_in
from cagp_dist.store.published_variables import ERROR_DRAWS, GROUPS, MISSING, NODES_PER_CELL, table
from cagp_dist.variables import T2M, Variable

_MAPS = ("map", "map_std")
_RANGES = {
    "latitude": (-90.0, 90.0),
    "longitude": (0.0, 360.0),
    "level": (0.0, 1.0),
    "quantile_level": (0.0, 1.0),
    "iteration": (0.0, inf),
}
"""Of coordinates."""

_MAP_LONGITUDES = (-360.0, 360.0)  # in order across Greenwich: negative west of it


def check_group(name: str, group: xr.Dataset) -> None:
    """Check a group against the table: arrays, dimensions, finite values, plausible ranges."""
    if name not in GROUPS:
        raise StoreError(f"a run has no group {name!r}; expected one of {', '.join(GROUPS)}.")
    about = GROUPS[name]
    variable = (variable_in(group) if about else None) or T2M
    arrays = table(variable)[name]
    of_cells = name in _MAPS and NODES_PER_CELL in group.attrs
    for key, each in arrays.items():
        if key not in group:
            if each.optional or (of_cells and key == f"{variable.name}_predictive_std"):
                continue
            raise StoreError(f"group {name!r} lacks the variable {key!r} with dimensions {each.dims}.")
        if group[key].dims != each.dims:
            raise StoreError(f"{name}/{key} has dimensions {group[key].dims}; expected {each.dims}.")
    pair = f"{variable.name}_std" in group, f"{variable.name}_predictive_std" in group
    if name == "map" and pair != (pair[0], pair[0] and not of_cells):
        raise StoreError(
            f"group 'map' has one of {variable.name}_std and {variable.name}_predictive_std; expected both "
            f"with dimensions {arrays[f'{variable.name}_mean'].dims}, or none and a group map_std; of means "
            "over cells the first alone."
        )
    for found, values in group.variables.items():
        if values.dtype.kind not in "fiu":
            continue
        key, present = str(found), values.values
        if missing := count_absent(name, key, values, group.attrs, variable):
            there = ~np.isnan(present)
            present = present[there] if np.count_nonzero(~there) == missing else present
        if not np.isfinite(present).all():
            raise StoreError(
                f"{name}/{key} holds {np.count_nonzero(~np.isfinite(present))} NaN or infinite values of "
                f"{present.size}; a run with missing numbers is not published."
            )
        low, high = arrays[key].range if key in arrays else _RANGES.get(key, (-inf, inf))
        if name in (*_MAPS, ERROR_DRAWS) and key == "longitude":
            low, high = _MAP_LONGITUDES
        if present.size and not (low <= present.min() and present.max() <= high):
            units = variable.units if about else str(values.attrs.get("units", ""))
            units = {"K": "kelvin", "": "unknown"}.get(units, units)
            raise StoreError(
                f"{name}/{key} ranges over {present.min():g}..{present.max():g}; plausible is "
                f"{low:g}..{high:g}. Check units ({units}), the prior and whether the solver converged."
            )
    for axis in ("latitude", "longitude") if name in _MAPS else ():
        if np.any(np.diff(group[axis].values) <= 0.0):
            raise StoreError(
                f"{name}/{axis} does not ascend; expected cells from south to north and from west to east "
                "without a jump, negative longitudes to the west of Greenwich."
            )


def count_absent(
    name: str, key: str, found: xr.Variable, said: Mapping[object, object], variable: Variable
) -> int:
    """Count the values of an array that are blank cells or were not observed, as its group says."""
    if name in _MAPS and found.dims[-2:] == ("latitude", "longitude"):
        return int(str(said.get("blank_cells", 0))) * prod(found.shape[:-2])
    # stations do not all measure at all times
    of_each = name in ("calibration", "errors") and found.dims == ("time", "point")
    return int(str(said.get(MISSING, 0))) if of_each or key == variable.name else 0
