"""Coordinate reference systems, by pyproj: as they are said, and as objects of xarray describe them."""

import json
import os
import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.extras import from_extra

if TYPE_CHECKING:
    import xarray as xr
    from pyproj import CRS

CRSLike: TypeAlias = "int | str | CRS | Mapping[str, object] | None"

SPATIAL_REF = "spatial_ref"  # As GDAL and rioxarray call the variable that holds the system
_OF_MAPPINGS = ("grid_mapping_name", "crs_wkt", SPATIAL_REF)  # attributes, of which one is there


def system(crs: CRSLike) -> "CRS":
    """Find a coordinate reference system whose axes are lengths in a plane."""
    pyproj = import_pyproj()
    try:
        found: CRS = pyproj.CRS.from_user_input(crs)
    except pyproj.exceptions.CRSError as error:
        raise ArgumentError(
            f"crs is {crs!r}, which pyproj does not know; expected an EPSG number such as 32632, "
            '"EPSG:32632", WKT, or a string of PROJ.',
            key="system-unknown",
        ) from error
    if found.is_geographic:
        raise ArgumentError(
            f"crs is {found.name}, of latitudes and longitudes in degrees, whose distances are those on the "
            "globe. Leave crs, x and y out.",
            key="system-of-degrees",
        )
    if not (found.is_projected or found.is_engineering):
        raise ArgumentError(
            f"crs is {found.name}; expected the system of a plane, such as that of UTM.",
            key="system-of-plane",
        )
    return found


def written_system(crs: CRSLike) -> int | str | None:
    """Write a system as JSON can have it."""
    return crs if crs is None or isinstance(crs, (int, str)) else str(system(crs).to_wkt())


@lru_cache(maxsize=64)  # pyproj looks through all authorities for it, for 30 ms
def text_of(found: "CRS") -> str:
    """Write a system that was found, by its authority if one knows it."""
    return str(found.to_string())


def same_system(first: CRSLike, other: CRSLike) -> bool:
    """Whether two systems are the same, or neither is known."""
    if first is None or other is None:
        return first is other
    return bool(system(first).equals(system(other), ignore_axis_order=True))


def describes_system(variable: "xr.DataArray | xr.Variable") -> bool:
    """Whether this is a grid mapping, as CF has it."""
    return bool(set(_OF_MAPPINGS) & set(variable.attrs))


def has_system(given: "xr.DataArray | xr.Dataset") -> bool:
    """Whether a variable of an object describes a system."""
    return any(describes_system(each) for each in variables_of(given).values())


def system_in(
    given: "xr.DataArray | xr.Dataset", values: "xr.DataArray | None"
) -> "tuple[str, xr.Variable] | None":
    """Find the variable with the system of an object, by the CF attribute ``grid_mapping``, and its name."""
    every = variables_of(given)
    held = [name for name, each in every.items() if describes_system(each)]
    fields = [values] if values is not None else [*getattr(given, "data_vars", {}).values()]
    said = [str(each.attrs.get("grid_mapping", each.encoding.get("grid_mapping", ""))) for each in fields]
    named = {text.split(":")[0].split()[0] for text in said if text}
    if values is None:  # none is read
        named &= set(every)
    if len(named) == 1:
        name = named.pop()
        if name not in every:
            raise DataError(
                f"the grid mapping {name!r} is named and not there; expected a variable of this name. Give "
                "the whole dataset with value=NAME, or say the system, crs=...",
                key="no-grid-mapping",
            )
        return name, every[name]
    return (held[0], every[held[0]]) if len(held) == 1 else None


def variables_of(given: "xr.DataArray | xr.Dataset") -> "dict[str, xr.Variable]":
    """Coordinates of an object, and variables of a dataset, without making an array of each."""
    if hasattr(given, "data_vars"):
        return {str(name): given.variables[name] for name in (*given.coords, *given.data_vars)}
    return {str(name): coordinate.variable for name, coordinate in given.coords.items()}


def system_of_cf(name: str, attributes: Mapping[Any, Any]) -> "CRS":
    """Read the system that CF attributes describe."""
    pyproj = import_pyproj()
    try:
        written = {str(key): np.asarray(value).tolist() for key, value in attributes.items()}
        return _system_of_cf(json.dumps(written, sort_keys=True, default=bytes.decode))
    except (pyproj.exceptions.CRSError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"the grid mapping {name!r} describes no system that pyproj knows ({error}); say it, crs=...",
            key="system-unknown",
        ) from error


@lru_cache(maxsize=64)  # pyproj takes a fifth of a second
def _system_of_cf(attributes: str) -> "CRS":
    """Read the system that CF attributes describe, which are written as JSON."""
    return cast("CRS", import_pyproj().CRS.from_cf(json.loads(attributes)))


def import_pyproj() -> Any:
    """Import pyproj, which an extra brings, with its own PROJ: eccodes may have loaded another before."""
    deep: int = getattr(os, "RTLD_DEEPBIND", 0)  # of Linux
    if not deep:
        return _pyproj()
    flags = sys.getdlopenflags()
    sys.setdlopenflags(flags | deep)
    try:
        return _pyproj()
    finally:
        sys.setdlopenflags(flags)


def _pyproj() -> Any:
    """Import pyproj and its exceptions."""
    found = from_extra("projections", "pyproj", "a coordinate reference system, crs,")
    import_module("pyproj.exceptions")
    return found
