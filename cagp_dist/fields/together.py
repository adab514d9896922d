"""Several variables as the points of one field, which a job is about.

The points are all places of any variable, once for each: those of the first variable, then those of the
second, in the same order, and NaN where a variable was not observed. A coordinate says which variable each
is of, so that the values have no unit of their own.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from cagp_dist.arrays import Array, Indices
from cagp_dist.digest import joint_sha256
from cagp_dist.errors import DataError
from cagp_dist.fields.canonical import field_variable, observation_points, space_of
from cagp_dist.fields.gridded import PLACE
from cagp_dist.kernels import VARIABLE
from cagp_dist.pipeline import Observations
from cagp_dist.store.batches import PRELIMINARY
from cagp_dist.variables import Variable, variable_of

VALUES = "value"  # of all variables
_VARIABLES = "variables"  # attribute: their names and attributes as JSON
_MISSING = "missing_places"  # attribute: (k, 2) where none of them has a value


def together(fields: Sequence[xr.Dataset]) -> xr.Dataset:
    """Put fields in canonical form, each of one variable, together as points."""
    spaces = [space_of(field) for field in fields]
    if not all(spaces[0].is_same(space) for space in spaces):
        raise DataError(
            "the variables lie in different spaces, such as planes of other systems; expected one.",
            key="parts",
        )
    parts, space = [observation_points(field, gaps="keep") for field in fields], spaces[0]
    undated = [part.dates() is None for part in parts]
    if any(undated) and (not all(undated) or {part.fields for part in parts} != {1}):
        raise DataError(
            "some variables have dates and others have none, so that it cannot be told which fields are of "
            "one time; expected dates of all of them, or one field of each.",
            key="times-of-variables",
        )
    times = np.unique(np.concatenate([part.times for part in parts]))
    keys = [_keys(part) for part in parts]
    places, first, of = np.unique(np.concatenate(keys), axis=0, return_index=True, return_inverse=True)
    ends = np.cumsum([0, *(len(own) for own in keys)])
    n, north, east = len(places), *(_joined(parts, name)[first] for name in ("north", "east"))
    values, noise = np.full((times.size, len(parts) * n), np.nan), np.full(len(parts) * n, np.nan)
    for label, part in enumerate(parts):
        at: Indices = label * n + of.reshape(-1)[ends[label] : ends[label + 1]]
        rows = np.zeros(1, dtype=np.intp) if undated[label] else np.searchsorted(times, part.times)
        values[np.ix_(rows, at)] = part.values
        if part.noise_variance is not None:
            noise[at] = np.sqrt(part.noise_variance)
    gone, count = np.unique(
        np.concatenate([each.missing_places for each in parts]), axis=0, return_counts=True
    )
    variables = [field_variable(field) for field in fields]
    names = np.repeat([variable.name for variable in variables], n)
    coordinates: dict[str, Any] = {
        "time": ("time", times),
        **dict(space.mapping),
        VARIABLE: (PLACE, names),
        **({} if np.isnan(noise).all() else {"noise_std": (PLACE, noise)}),
    }
    for (name, about), axis in zip(space.axes.items(), (north, east), strict=True):
        coordinates[name] = PLACE, np.tile(axis, len(parts)), {k: v for k, v in about.items() if k != "axis"}
    said = [{"name": variable.name, **variable.attributes()} for variable in variables]
    early = [field.attrs[PRELIMINARY] for field in fields if PRELIMINARY in field.attrs]
    return xr.Dataset(
        {
            VALUES: (
                ("time", PLACE),
                values,
                {"long_name": " and ".join(each.long_name for each in variables)},
            )
        },
        coords=coordinates,
        attrs={
            "source": fields[0].attrs["source"],
            "source_sha256": joint_sha256([str(field.attrs["source_sha256"]) for field in fields]),
            "dropped_missing": sum(part.dropped_missing for part in parts),
            "notes": [note for field in fields for note in field.attrs.get("notes", [])],
            _VARIABLES: json.dumps(said),
            _MISSING: gone[count == len(parts)],
            **({PRELIMINARY: early[0]} if early else {}),
        },
    )


def variables_of(field: xr.Dataset) -> tuple[Variable, ...]:
    """Say which variables a field is of that `together` has made; none of another one."""
    said = json.loads(field.attrs.get(_VARIABLES, "[]"))
    return tuple(variable_of(str(each["name"]), each) for each in said)


def points_together(field: xr.Dataset) -> Observations:
    """List the points of a field of several variables, also those where one was not observed."""
    variables, space, names = variables_of(field), space_of(field), field[VARIABLE].values
    north, east = (field[name].values for name in space.axes)
    labels = np.argmax(names[:, None] == np.array([each.name for each in variables]), axis=1)
    noise = field.coords.get("noise_std")
    found = Observations.from_points(
        north,
        east,
        field[VALUES].values,
        space=space,
        variable=Variable(VALUES, str(field[VALUES].attrs["long_name"])),
        times=field["time"].values,
        noise_variance=None if noise is None else np.nan_to_num(noise.values.astype(np.float64) ** 2),
        dropped_missing=int(field.attrs["dropped_missing"]),
        beside={VARIABLE: labels.astype(np.float64)},
    )
    return replace(found, missing_places=field.attrs[_MISSING])


def _keys(part: Observations) -> Array:
    """Numbers (n, 3) of places: where, and which of several there."""
    where = part.space.keys(part.north, part.east)
    _, of = np.unique(where, axis=0, return_inverse=True)
    order = np.argsort(of.reshape(-1), kind="stable")
    ordered = of.reshape(-1)[order]
    new = np.append(True, ordered[1:] != ordered[:-1])
    begins = np.maximum.accumulate(np.where(new, np.arange(order.size), 0))
    repeat = np.empty(order.size)
    repeat[order] = np.arange(order.size) - begins
    return np.column_stack([where, repeat])


def _joined(parts: Sequence[Observations], name: str) -> Array:
    return np.concatenate([getattr(part, name) for part in parts])
