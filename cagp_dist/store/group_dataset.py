"""A group of a published run as a data set, its check before publication, and attributes for catalogues."""

from collections.abc import Mapping
from datetime import UTC, datetime
from math import inf, prod
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array
from cagp_dist.errors import ArgumentError, StoreError
from cagp_dist.kernels import DEPTH
from cagp_dist.space import SPHERE, Space
from cagp_dist.store.published_variables import (
    CONVENTIONS,
    COORDINATES,
    ERROR_DRAWS,
    FORMAT_VERSION,
    GROUPS,
    MISSING,
    NODES_PER_CELL,
    STATION_NAME,
    Attributes,
    about_depth,
    kind_of,
    table,
)
from cagp_dist.variables import T2M, Variable, variable_of

OF_CELLS, OF_REGIONS = ", mean over the cell", ", mean over the region"  # ends of long names

AXES = ("latitude", "longitude")
AXES_OF_PLANE = {"latitude": "y", "longitude": "x"}

_WHOLE_CIRCLE_GAP_DEGREES = 15.0
_HEIGHTS_METRES = {"t2m": 2.0, "d2m": 2.0, "u10": 10.0, "v10": 10.0, "si10": 10.0}


def dataset(
    group: str,
    coordinates: Mapping[str, xr.Variable],
    arrays: Mapping[str, ArrayLike | None],
    variable: Variable,
    *,
    title: str,
) -> xr.Dataset:
    """Build a data set of the arrays that are not None; one without its leading axis is repeated along it."""
    lengths = {str(dim): size for each in coordinates.values() for dim, size in each.sizes.items()}
    data: dict[str, xr.Variable] = {}
    mapping = [name for name, each in coordinates.items() if each.ndim == 0]
    system = {"grid_mapping": mapping[0]} if mapping else {}
    for name, values in ((name, values) for name, values in arrays.items() if values is not None):
        described, array = table(variable)[group][name], np.asarray(values)
        dims = own_dims(described.dims, coordinates)
        if array.ndim > len(dims) and len(array) == 1 and "time" not in coordinates:
            array = array[0]
        expected = tuple(
            lengths.setdefault(dim, array.shape[axis] if axis < array.ndim else 1)
            for axis, dim in enumerate(dims)
        )
        repeats = name.endswith(("_std", "_std_computational")) or expected[:1] == (1,)
        if array.shape != expected and not (repeats and array.shape == expected[1:]):
            raise ArgumentError(
                f"{name} of group {group!r} has shape {array.shape}; expected {expected}, "
                f"dimensions {dims}. A posterior mean of shape (q, T) must be transposed.",
                key="shapes",
            )
        if array.dtype.kind == "f":
            array = array.astype(np.float64)
        said = {**described.attributes, **(system if {"point", "y"} & set(dims) else {})}
        data[name] = xr.Variable(dims, np.broadcast_to(array, expected), said)
    return xr.Dataset(data, dict(coordinates), {"Conventions": CONVENTIONS, "title": title})


def own_dims(dims: tuple[str, ...], coordinates: Mapping[Any, Any]) -> tuple[str, ...]:
    """Dimensions of the table as a group has them: without time, at depths, and on axes of a plane."""
    axes = AXES_OF_PLANE if "y" in coordinates else {}
    found = [axes.get(dim, dim) for dim in dims if dim != "time" or "time" in coordinates]
    deep = DEPTH in coordinates and coordinates[DEPTH].dims == (DEPTH,)
    if deep and "latitude" in dims and dims != AXES:
        found.insert(dims.index("latitude") - len(dims), DEPTH)
    return tuple(found)


def time_of(times: ArrayLike) -> dict[str, xr.Variable]:
    """Coordinate of times; none where they are not known."""
    known = not np.isnat(np.asarray(times, dtype="datetime64[ns]")).any()
    return {"time": coordinate("time", "time", times)} if known else {}


def coordinates_of(
    times: ArrayLike,
    north: ArrayLike,
    east: ArrayLike,
    names: ArrayLike | None = None,
    *,
    space: Space = SPHERE,
    grid: bool = False,
    depths: ArrayLike | None = None,
    depth_units: str = "",
) -> dict[str, xr.Variable]:
    """Coordinates of times and points (q,), with their names if they have any, or of the axes of a grid.

    Depths are those of points, or of a grid (d,).
    """
    found = time_of(times) | dict(space.mapping)
    for (name, about), values in zip(space.axes.items(), (north, east), strict=True):
        numbers = np.asarray(values, dtype=np.float64)
        if numbers.ndim != 1:
            raise ArgumentError(f"{name} has shape {numbers.shape}; expected a vector.", key="shapes")
        said = {key: text for key, text in about.items() if grid or key != "axis"}
        found[name] = xr.Variable(name if grid else "point", numbers, said)
    if depths is not None:
        about = about_depth(depth_units)
        if not grid:
            del about["axis"]
        found[DEPTH] = xr.Variable(DEPTH if grid else "point", np.asarray(depths, dtype=np.float64), about)
    return found if names is None else {**found, STATION_NAME: coordinate(STATION_NAME, "point", names)}


def coordinate(name: str, dimension: str, values: ArrayLike) -> xr.Variable:
    """Make a coordinate of a vector: times in nanoseconds, other numbers with a point as float64."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise ArgumentError(f"{name} has shape {array.shape}; expected a vector.", key="shapes")
    if name == "time":
        if array.dtype.kind != "M":
            raise ArgumentError(f"time has dtype {array.dtype}; expected datetime64, UTC.", key="no-dates")
        array = array.astype("datetime64[ns]")
    elif array.dtype.kind == "f":
        array = array.astype(np.float64)
    return xr.Variable(dimension, array, dict(COORDINATES[name]))


def counting_missing(group: xr.Dataset, name: str) -> xr.Dataset:
    """Say how many values of an array are missing, if there are any: else a run may not have them."""
    missing = int(np.isnan(group[name].values).sum())
    if missing and name in group:
        group[name].attrs[MISSING] = missing
    return group.assign_attrs({MISSING: missing}) if missing else group


def variables_in(group: xr.Dataset) -> tuple[Variable, ...]:
    """Tell what a group of a run is about, of several variables of each; none if its arrays do not say."""
    names = [str(name) for name in group.data_vars]
    stems = [name.removesuffix("_mean") for name in names if name.endswith("_mean")]
    stems = stems or [
        name for name in names if group[name].attrs.get("long_name", "").startswith("observed ")
    ]
    if len(stems) < 2:
        found = variable_in(group)
        return () if found is None else (found,)
    ends = "_mean", "_std", ""
    # stores give arrays in no order
    own = [[f"{stem}{end}" for end in ends if f"{stem}{end}" in names] for stem in sorted(stems)]
    return tuple(found for of_one in own if (found := variable_in(group[of_one])) is not None)


def variable_in(group: xr.Dataset) -> Variable | None:
    """Tell what a group of a run is about by names and attributes of its arrays; None if they do not say."""
    names = [str(name) for name in group.data_vars]
    stems = [name.removesuffix("_mean") for name in names if name.endswith("_mean")]
    name = next((stem for stem in stems if f"{stem}_std" in names), names[0] if len(names) == 1 else None)
    seen = [each for each in names if group[each].attrs.get("long_name", "").startswith("observed ")]
    if not stems and len(seen) == 1:  # beside what is said of observations
        name = seen[0]
    if stems and len(names) == 1 and group[names[0]].attrs.get("long_name", "").startswith("posterior mean"):
        name = stems[0]
    if name is None:
        return None
    # old and foreign runs may lack attributes of one of the two
    for key, said in ((f"{name}_mean", "posterior mean of "), (name, "observed ")):
        if key in group and group[key].attrs:
            said_of = str(group[key].attrs.get("long_name", "")).removeprefix(said)
            said_of = said_of.removesuffix(OF_CELLS).removesuffix(OF_REGIONS)
            return variable_of(name, {**group[key].attrs, "long_name": said_of})
    return variable_of(name, {})


def root_attributes(
    groups: Mapping[str, xr.Dataset], *, run_key: str, date_created: datetime | None = None
) -> Attributes:
    """ACDD-1.3 attributes of the root group, worked out from the groups."""
    variables = next((found for group in groups.values() if (found := variables_in(group))), (T2M,))
    said = " and ".join(variable.long_name for variable in variables)
    known = ", ".join(variable.standard_name or variable.long_name for variable in variables)
    created = (date_created or datetime.now(UTC)).astimezone(UTC).replace(tzinfo=None)
    attributes: Attributes = {
        "Conventions": f"{CONVENTIONS}, ACDD-1.3",
        "title": f"{said} with computation-aware uncertainty",
        "summary": (
            f"Gaussian-process posterior of {said} from scattered observations. The standard "
            "deviation counts both what the observations do not determine and what was not computed. How far "
            "it matches the errors at held-out points is measured: calibration_status, calibration_statement."
        ),
        "keywords": f"{known.replace('_', ' ')}, Gaussian process, uncertainty, calibration",
        "standard_name_vocabulary": "CF Standard Name Table",
        "id": run_key,
        "run_key": run_key,
        "format_version": FORMAT_VERSION,
        "date_created": f"{created.isoformat(timespec='microseconds')}Z",
        "history": "created by cagp_dist",
        "cdm_data_type": "Grid" if "map" in groups else "Point",
    }
    latitudes, longitudes, times = (_values(groups, name) for name in ("latitude", "longitude", "time"))
    if latitudes.size and longitudes.size:
        west, east = _longitude_extent(longitudes)
        attributes |= {
            "geospatial_lat_min": float(latitudes.min()),
            "geospatial_lat_max": float(latitudes.max()),
            "geospatial_lat_units": "degrees_north",
            "geospatial_lon_min": west,
            "geospatial_lon_max": east,
            "geospatial_lon_units": "degrees_east",
        }
        depths = _values(groups, DEPTH)
        if depths.size:
            units = {str(g[DEPTH].attrs.get("units", "")) for g in groups.values() if DEPTH in g.coords}
            attributes |= {
                "geospatial_vertical_min": float(depths.min()),
                "geospatial_vertical_max": float(depths.max()),
                "geospatial_vertical_units": units.pop(),
                "geospatial_vertical_positive": "down",
            }
        heights = {_HEIGHTS_METRES.get(variable.name) for variable in variables}
        if not depths.size and len(heights) == 1 and (height := heights.pop()) is not None:
            attributes |= {
                "geospatial_vertical_min": height,
                "geospatial_vertical_max": height,
                "geospatial_vertical_units": "m",
                "geospatial_vertical_positive": "up",
            }
    if times.size:
        attributes["time_coverage_start"] = f"{np.datetime_as_string(times.min(), unit='s')}Z"
        attributes["time_coverage_end"] = f"{np.datetime_as_string(times.max(), unit='s')}Z"
    return attributes


def _values(groups: Mapping[str, xr.Dataset], name: str) -> np.ndarray:
    """One coordinate of all groups that have it, end to end."""
    found = [group[name].values for group in groups.values() if name in group.coords]
    return np.concatenate(found) if found else np.empty(0)


def _longitude_extent(longitude_degrees: Array) -> tuple[float, float]:
    """Find the smallest arc that holds all points, west negative across Greenwich; 0..360 all around."""
    around = np.unique(longitude_degrees % 360.0)
    gaps = np.append(np.diff(around), around[0] + 360.0 - around[-1])
    widest = len(gaps) - 1 if gaps.max() < _WHOLE_CIRCLE_GAP_DEGREES else int(np.argmax(gaps))
    west, east = float(around[(widest + 1) % len(around)]), float(around[widest])
    return west if west <= east else west - 360.0, east


_MAPS = ("map", "map_std")
_RANGES = {
    "latitude": (-90.0, 90.0),
    "longitude": (0.0, 360.0),
    DEPTH: (0.0, inf),
    "level": (0.0, 1.0),
    "quantile_level": (0.0, 1.0),
    "iteration": (0.0, inf),
}
"""Of coordinates."""

_MAP_LONGITUDES = (-360.0, 360.0)  # in order across Greenwich: negative west of it


def check_group(name: str, group: xr.Dataset) -> None:
    """Check a group against the table: arrays, dimensions, finite values, plausible ranges."""
    kind = kind_of(name)
    if kind not in GROUPS:
        raise StoreError(
            f"a run has no group {name!r}; expected one of {', '.join(GROUPS)}.", key="group-unknown"
        )
    name, about = kind, GROUPS[kind]
    variables = variables_in(group) if about else ()
    variable = variables[0] if variables else T2M
    arrays = {key: each for own in (variables or [T2M]) for key, each in table(own)[name].items()}
    of_cells = name in _MAPS and NODES_PER_CELL in group.attrs
    for key, each in arrays.items():
        if key not in group:
            if each.optional or (of_cells and key == f"{variable.name}_predictive_std"):
                continue
            raise StoreError(
                f"group {name!r} lacks the variable {key!r} with dimensions {each.dims}.", key="group-layout"
            )
        dims = own_dims(each.dims, group.coords)
        if group[key].dims != dims:
            raise StoreError(
                f"{name}/{key} has dimensions {group[key].dims}; expected {dims}.", key="group-layout"
            )
    pair = f"{variable.name}_std" in group, f"{variable.name}_predictive_std" in group
    if name == "map" and pair != (pair[0], pair[0] and not of_cells):
        raise StoreError(
            f"group 'map' has one of {variable.name}_std and {variable.name}_predictive_std; expected both "
            f"with dimensions {arrays[f'{variable.name}_mean'].dims}, or none and a group map_std; of means "
            "over cells the first alone.",
            key="group-layout",
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
                f"{present.size}; a run with missing numbers is not published.",
                key="not-finite",
            )
        low, high = arrays[key].range if key in arrays else _RANGES.get(key, (-inf, inf))
        if name in (*_MAPS, ERROR_DRAWS) and key == "longitude":
            low, high = _MAP_LONGITUDES
        if present.size and not (low <= present.min() and present.max() <= high):
            units = variable.units if about else str(values.attrs.get("units", ""))
            units = {"K": "kelvin", "": "unknown"}.get(units, units)
            raise StoreError(
                f"{name}/{key} ranges over {present.min():g}..{present.max():g}; plausible is "
                f"{low:g}..{high:g}. Check units ({units}), the prior and whether the solver converged.",
                key="implausible",
            )
    deep = (DEPTH,) if group.get(DEPTH, group).dims == (DEPTH,) else ()
    for axis in (*deep, *own_dims(AXES, group.coords)) if name in _MAPS else ():
        if np.any(np.diff(group[axis].values) <= 0.0):
            raise StoreError(
                f"{name}/{axis} does not ascend; expected cells from south to north and from west to east "
                "without a jump, negative longitudes to the west of Greenwich.",
                key="axis-order",
            )


def count_absent(
    name: str, key: str, found: xr.Variable, said: Mapping[object, object], variable: Variable
) -> int:
    """Count the values of an array that are blank cells or were not observed, as its group says."""
    if name in _MAPS and found.dims[-2:] in (AXES, tuple(AXES_OF_PLANE.values())):
        return int(str(said.get("blank_cells", 0))) * prod(found.shape[:-2])
    # stations do not all measure at all times
    if MISSING in found.attrs:
        return int(found.attrs[MISSING])
    described = table(variable)[name].get(key) if name in ("calibration", "errors") else None
    of_each = described is not None and described.dims == ("time", "point")
    return int(str(said.get(MISSING, 0))) if of_each or key == variable.name else 0
