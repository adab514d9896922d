"""What stands where: ``columns={"latitude": "lat", "time": "date"}``, of tables and of objects of xarray."""

from collections.abc import Collection, Mapping
from typing import TypeVar

import xarray as xr

from cagp_dist.errors import ArgumentError
from cagp_dist.fields.column_names import counted_from
from cagp_dist.space.systems import variables_of
from cagp_dist.text import alternatives, nearest
from cagp_dist.warned import warn

ROLES = ("latitude", "longitude", "x", "y", "time", "depth", "name", "limit")
IGNORED = "none"  # instead of a column of times: all rows are of one field
INSTEAD_OF_A_ROLE = ("value", "noise_std", "units", "missing", "where", "crs")  # arguments of their own

_ATTRIBUTES = {
    "latitude": {"standard_name": "latitude", "units": "degrees_north"},
    "longitude": {"standard_name": "longitude", "units": "degrees_east"},
    "x": {"standard_name": "projection_x_coordinate"},
    "y": {"standard_name": "projection_y_coordinate"},
    "time": {"standard_name": "time"},
}


def column_roles(columns: Mapping[str, str] | None, **arguments: str | None) -> dict[str, str]:
    """Check ``columns``, and take over the arguments that did the same before, with a warning.

    Raises `ArgumentError` for a role that is none, a name that is no text, a role that is named twice, or one
    of x and y without the other.
    """
    if columns is not None and not isinstance(columns, Mapping):
        raise ArgumentError(
            f"columns is {columns!r}; expected a mapping of roles to names, such as "
            '{"latitude": "lat", "longitude": "lon"}.',
            key="columns",
        )
    found = dict(columns or {})
    for role, name in found.items():
        if role not in ROLES:
            near = nearest(str(role), ROLES)
            hint = f" Did you mean {near!r}?" if near else ""
            if role in INSTEAD_OF_A_ROLE:
                hint = f" {role} is an argument of its own."
            raise ArgumentError(
                f"columns has the key {role!r}; expected {alternatives(ROLES)}.{hint}", key="columns"
            )
        if not isinstance(name, str):
            raise ArgumentError(
                f"columns names {name!r} as the {role}; expected the name of a column.", key="columns"
            )
    given = {role: name for role, name in arguments.items() if name is not None}
    if given:
        written = ", ".join(f'"{role}": "{name}"' for role, name in given.items())
        warn(
            f"{' and '.join(f'{role}=' for role in given)} will go; write columns={{{written}}}.",
            DeprecationWarning,
        )
    if twice := sorted(set(given) & set(found)):
        raise ArgumentError(
            f"columns names the {twice[0]}, and so does {twice[0]}=; expected one.", key="columns"
        )
    found |= given
    if ("x" in found) != ("y" in found):
        raise ArgumentError(
            f"columns names {'x' if 'x' in found else 'y'} alone; expected both x and y of a plane.",
            key="columns",
        )
    if {"latitude", "longitude"} & set(found) and "x" in found:
        raise ArgumentError(
            "columns names latitude or longitude, and x and y of a plane; expected one pair.", key="columns"
        )
    return found


Given = TypeVar("Given", xr.DataArray, xr.Dataset)


def check_of_fields(columns: Mapping[str, str], labels: Collection[str], name: str) -> None:
    """Refuse what a variable of fields does not have: rows with labels or depths; or times to leave out."""
    if labels:
        raise ArgumentError(
            f"bias_by is {', '.join(map(repr, labels))}, and {name!r} is one of fields, not of rows with "
            "names; expected a table, or an object with one dimension, that of points.",
            key="labels-of-fields",
        )
    if "depth" in columns:
        raise ArgumentError(
            f"columns names {columns['depth']!r} as the depth, and it is no dimension of {name!r}, whose "
            "values would all have one; expected a dimension of depths, or leave it out.",
            key="depth-of-fields",
        )
    if "limit" in columns:
        raise ArgumentError(
            f"columns names {columns['limit']!r} as the limit of detection, and {name!r} is one of fields, "
            "not of rows with limits; expected a table, or an object with one dimension, that of points.",
            key="limit-of-fields",
        )
    if columns.get("time") == IGNORED:
        raise ArgumentError(
            f'columns has time "{IGNORED}", which makes one field of rows, and {name!r} is a field at each '
            "of its times; leave it out, or choose a time.",
            key="columns",
        )


def in_roles(given: Given, roles: Mapping[str, str]) -> Given:
    """Give coordinates and variables the CF attributes of their roles, by which every reader finds them."""
    roles = {role: name for role, name in roles.items() if name != IGNORED}
    there = {str(name) for name in (*given.coords, *getattr(given, "data_vars", ()))}
    absent = next((role for role, name in roles.items() if name not in there), None)
    if absent is not None:
        raise ArgumentError(
            f"columns names {roles[absent]!r} as the {absent}, and there is no such coordinate; there are "
            f"{', '.join(map(repr, sorted(there))) or 'none'}.",
            key="columns",
        )
    taken = {about.get("standard_name"): role for role, about in _ATTRIBUTES.items() if role in roles}
    changed = {}
    for name, held in variables_of(given).items():
        attributes = dict(held.attrs)
        if attributes.get("standard_name") in taken and name not in roles.values():
            del attributes["standard_name"]  # another one was meant
        for role, meant in roles.items():
            if meant == name:
                told = {} if counted_from(name) else _ATTRIBUTES.get(role, {})
                attributes = {**told, **attributes}
                attributes |= {key: text for key, text in _ATTRIBUTES.get(role, {}).items() if key != "units"}
        if attributes != held.attrs:
            changed[name] = held.copy(deep=False)
            changed[name].attrs = attributes
    return given.assign_coords(changed) if isinstance(given, xr.DataArray) else given.assign(changed)
