"""Recognise a temperature field in whatever ERA5-like dataset holds it: names, axes, versions, members.

Three layouts are common: the Climate Data Store until 2024 (``time``, at times an ``expver`` dimension),
the Climate Data Store since (``valid_time``, scalar ``number``, ``expver`` beside the time), and the
analysis-ready Zarr stores (``2m_temperature``, axes in any order).  Nothing is loaded here.
"""

from collections.abc import Hashable, Iterable

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from cagp_dist.errors import ConfigurationError, DataError

VARIABLE_NAMES: dict[str, tuple[str, ...]] = {
    "t2m": ("t2m", "2t", "2m_temperature", "VAR_2T", "temperature_2m", "var167"),
}
"""Canonical name of each variable the package knows -> the names it has in the wild."""

GRIB_PARAMETERS: dict[str, int] = {"t2m": 167}
"""Canonical name -> number in ECMWF's parameter table, which GRIB files carry instead of names."""

_LATITUDE = ("latitude", "lat")
_LONGITUDE = ("longitude", "lon", "long")
_TIME = ("valid_time", "time")  # where both exist, time is when the analysis began, valid_time when it holds
_VERSION = "expver"


def check_variable(variable: str) -> None:
    """Refuse a variable that the package does not know.

    Parameters
    ----------
    variable : str
        Canonical name, such as ``"t2m"``.

    Raises
    ------
    ConfigurationError
        Naming the variables that exist.
    """
    if variable not in VARIABLE_NAMES:
        raise ConfigurationError(
            f"variable {variable!r} is not known; expected one of {', '.join(map(repr, VARIABLE_NAMES))}."
        )


def find_variable(names: Iterable[Hashable], variable: str) -> str | None:
    """Name under which a variable is present, or None.

    Parameters
    ----------
    names : iterable of str
        Names of the variables of a dataset.
    variable : str
        Canonical name.

    Returns
    -------
    str or None
        The matching name as the dataset spells it; letter case does not matter.
    """
    spelled = {str(name).lower(): str(name) for name in names}
    return next((spelled[a.lower()] for a in VARIABLE_NAMES[variable] if a.lower() in spelled), None)


def standard_field(dataset: xr.Dataset, variable: str) -> xr.DataArray:
    """Give the variable the dimensions ``([expver,] time, latitude, longitude)``, still lazy.

    Parameters
    ----------
    dataset : xarray.Dataset
        Opened with times decoded.
    variable : str
        Canonical name of a variable that :func:`find_variable` finds in it.

    Returns
    -------
    xarray.DataArray
        Coordinates ``time`` (datetime64[ns]), ``latitude`` and ``longitude`` (float64 degrees) in the order
        and convention of the dataset; ``expver`` sorted, final before preliminary.

    Raises
    ------
    DataError
        If an axis is absent, two-dimensional or not a time, or if another dimension holds several values.
    """
    name = find_variable(dataset.data_vars, variable)
    if name is None:
        raise DataError(f"variable {variable!r} is not in the dataset; it holds {listed(dataset.data_vars)}.")
    field = dataset[name]
    latitude = _horizontal_axis(dataset, field, _LATITUDE)
    longitude = _horizontal_axis(dataset, field, _LONGITUDE)
    time = _time_axis(dataset, field)

    plain = field.drop_vars(list(field.coords))
    if time.ndim == 0:
        plain, time = plain.expand_dims("time"), time.reset_coords(drop=True).expand_dims("time")
    names = {latitude.dims[0]: "latitude", longitude.dims[0]: "longitude", time.dims[0]: "time"}
    plain = plain.rename({old: new for old, new in names.items() if old != new})
    if _VERSION in plain.dims:
        plain = plain.isel({_VERSION: _final_first(dataset, plain.sizes[_VERSION])})
    for dimension in set(plain.dims) - {_VERSION, "time", "latitude", "longitude"}:
        if plain.sizes[dimension] != 1:
            raise DataError(
                f"{name!r} has {plain.sizes[dimension]} values along {dimension!r}; expected time, latitude "
                f"and longitude alone. Select one value of {dimension!r} before the field is read."
            )
        plain = plain.isel({dimension: 0})
    leading = [_VERSION] if _VERSION in plain.dims else []
    return plain.transpose(*leading, "time", "latitude", "longitude").assign_coords(
        time=time.values.astype("datetime64[ns]"),
        latitude=latitude.values.astype(np.float64),
        longitude=longitude.values.astype(np.float64),
    )


def listed(names: Iterable[Hashable]) -> str:
    """Names as a message shows them.

    Parameters
    ----------
    names : iterable of str
        What is there.

    Returns
    -------
    str
        Such as ``"'tp', 'u10'"``.
    """
    return ", ".join(repr(str(name)) for name in names) or "no variable at all"


def _horizontal_axis(dataset: xr.Dataset, field: xr.DataArray, names: tuple[str, ...]) -> xr.DataArray:
    axis = next((dataset[key] for key in dataset.variables if str(key).lower() in names), None)
    if axis is None or axis.ndim != 1 or axis.dims[0] not in field.dims:
        found = "absent" if axis is None else f"of dimensions {axis.dims}"
        raise DataError(
            f"the {names[0]} of {field.name!r} is {found}, and the field has dimensions {field.dims}; "
            f"expected a regular grid with one {names[0]} per row. Regrid it to latitude and longitude first."
        )
    return axis


def _time_axis(dataset: xr.Dataset, field: xr.DataArray) -> xr.DataArray:
    candidates = [dataset[name] for name in _TIME if name in dataset.variables]
    along = [axis for axis in candidates if axis.ndim == 0 or (axis.ndim == 1 and axis.dims[0] in field.dims)]
    if not along:
        raise DataError(
            f"{field.name!r} of dimensions {field.dims} has no time; expected a coordinate 'time' or "
            f"'valid_time', and the dataset has {listed(dataset.variables)}."
        )
    if along[0].dtype.kind != "M":
        raise DataError(
            f"the times of {field.name!r} have type {along[0].dtype}; expected dates of the standard "
            "calendar. Check the attributes units and calendar of the time."
        )
    return along[0]


def _final_first(dataset: xr.Dataset, count: int) -> NDArray[np.intp]:
    """Order of experiment versions: 0001 is the final ERA5, 0005 the preliminary ERA5T."""
    if _VERSION not in dataset.variables:
        return np.arange(count)
    return np.argsort(dataset.variables[_VERSION].values.astype(np.int64), kind="stable")
