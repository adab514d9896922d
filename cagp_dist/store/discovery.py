"""Attributes by which catalogues find a run: ACDD-1.3, worked out from the data itself."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from cagp_dist.arrays import Array
from cagp_dist.store.layout_check import variable_in
from cagp_dist.store.published_variables import FORMAT_VERSION, Attributes
from cagp_dist.variables import T2M

_WHOLE_CIRCLE_GAP_DEGREES = 15.0
_HEIGHTS_METRES = {"t2m": 2.0, "d2m": 2.0, "u10": 10.0, "v10": 10.0, "si10": 10.0}


def root_attributes(
    groups: Mapping[str, xr.Dataset], *, run_key: str, date_created: datetime | None = None
) -> Attributes:
    """ACDD-1.3 attributes of the root group, worked out from the groups."""
    variable = next((found for group in groups.values() if (found := variable_in(group))), T2M)
    said, known = variable.long_name, variable.standard_name or variable.long_name
    created = (date_created or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    attributes: Attributes = {
        "Conventions": "CF-1.13, ACDD-1.3",
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
        "date_created": created,
        "history": "created by cagp_dist",
        "cdm_data_type": "Grid" if "map" in groups else "Point",
    }
    latitudes, longitudes = _values(groups, "latitude"), _values(groups, "longitude")
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
        if (height := _HEIGHTS_METRES.get(variable.name)) is not None:
            attributes |= {
                "geospatial_vertical_min": height,
                "geospatial_vertical_max": height,
                "geospatial_vertical_units": "m",
                "geospatial_vertical_positive": "up",
            }
    times = _values(groups, "time")
    if times.size:
        attributes["time_coverage_start"] = f"{np.datetime_as_string(times.min(), unit='s')}Z"
        attributes["time_coverage_end"] = f"{np.datetime_as_string(times.max(), unit='s')}Z"
    return attributes


def _values(groups: Mapping[str, xr.Dataset], coordinate: str) -> NDArray[Any]:
    """One coordinate of all groups that have it, end to end."""
    found = [group[coordinate].values for group in groups.values() if coordinate in group.coords]
    return np.concatenate(found) if found else np.empty(0)


def _longitude_extent(longitude_degrees: Array) -> tuple[float, float]:
    """Western and eastern end of the smallest arc that holds all points; west is negative across Greenwich.

    The arc leaves out the widest gap between neighbours on the circle. Points all around the circle are
    described from 0 to 360.
    """
    around = np.unique(longitude_degrees % 360.0)
    gaps = np.append(np.diff(around), around[0] + 360.0 - around[-1])
    widest = len(gaps) - 1 if gaps.max() < _WHOLE_CIRCLE_GAP_DEGREES else int(np.argmax(gaps))
    west, east = float(around[(widest + 1) % len(around)]), float(around[widest])
    return west if west <= east else west - 360.0, east
