"""Any ERA5-like dataset in canonical form: ``t2m`` in kelvin, latitude ascending, longitude in [0, 360).

Canonical form is the contract between sources and everything that follows, so that no later step asks
which way a latitude runs, which convention a longitude has, or whether a number is packed.
"""

from collections.abc import Sequence

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from cagp_dist.arrays import Array, Indices, Times
from cagp_dist.era5.layout import check_variable, find_variable, listed, standard_field
from cagp_dist.era5.points import Points, observation_points
from cagp_dist.era5.selection import (
    Area,
    inside_area,
    on_grid,
    parse_times,
    shown,
    time_positions,
)
from cagp_dist.errors import DataError

__all__ = ["Points", "assemble", "canonical", "observation_points", "time_axis"]

Values = NDArray[np.float32]

COLDEST_KELVIN, WARMEST_KELVIN = 150.0, 350.0
"""No air near the ground was ever outside; the records are 184 K and 330 K."""

_KELVIN = {"", "k", "kelvin", "degk", "deg_k", "degrees kelvin", "degrees_kelvin"}


def canonical(
    *datasets: xr.Dataset,
    variable: str = "t2m",
    times: Sequence[str] | None = None,
    area: Area | None = None,
    grid_degrees: float | None = None,
) -> xr.Dataset:
    """Bring the selected part of a field into canonical form, checked and in memory.

    Parameters
    ----------
    *datasets : xarray.Dataset
        One dataset, or several that hold the same grid at different times (the members of a zip).  Old and
        new layouts of the Climate Data Store, GRIB through cfgrib and the public Zarr stores are recognised.
    variable : str
        Canonical name of the variable.
    times : sequence of str, optional
        ISO times in UTC; every one must be there.  None: all times.
    area : tuple of float, optional
        North, west, south, east in degrees.
    grid_degrees : float, optional
        Keep the grid points at multiples of this spacing.

    Returns
    -------
    xarray.Dataset
        ``t2m`` (time, latitude, longitude) float32 in kelvin without encoding; ``time`` datetime64[ns]
        ascending without repetition; ``latitude`` and ``longitude`` float64, ascending, longitude in
        [0, 360); CF attributes.  Missing values are NaN.  Only the selection is read; peak memory is about
        three times the result.

    Raises
    ------
    DataError
        If the variable is absent, a selected time is absent, has no values or appears twice with different
        values, values are not kelvin, or the grid is not a regular one.
    ConfigurationError
        If variable, times, area or grid_degrees are not valid.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> from cagp_dist.era5.canonical import canonical
    >>> raw = xr.Dataset(
    ...     {"2t": (("lat", "lon"), np.array([[280.0, 281.0], [290.0, 291.0]]))},
    ...     coords={"lat": [10.0, 0.0], "lon": [-90.0, 0.0], "time": np.datetime64("2020-01-01", "ns")},
    ... )
    >>> canonical(raw).t2m.values[0]
    array([[291., 290.],
           [281., 280.]], dtype=float32)
    """
    wanted = None if times is None else parse_times(times)
    fields = _fields(datasets, variable)
    for field in fields:
        _check_units(field)
    latitude, longitude = _common_grid(fields)
    rows, columns = np.arange(latitude.size), np.arange(longitude.size)
    if grid_degrees is not None:
        rows, columns = on_grid(latitude, grid_degrees), on_grid(longitude, grid_degrees)
    if area is not None:
        north_south, west_east = inside_area(latitude[rows], longitude[columns], area)
        rows, columns = rows[north_south], columns[west_east]

    values, moments = _load(fields, rows, columns, wanted)
    values, moments = _merge_times(values, moments)
    values, latitude = _ascending_rows(values, latitude[rows])
    values, longitude = _ascending_columns(values, longitude[columns])
    _check_values(values, moments)
    return assemble(values, moments, latitude, longitude, variable)


def time_axis(*datasets: xr.Dataset, variable: str = "t2m") -> Times:
    """List the times of a field; no value of it is read.

    Parameters
    ----------
    *datasets, variable
        As for `canonical`.

    Returns
    -------
    array of datetime64[ns]
        Ascending, each once.

    Raises
    ------
    DataError
        If the variable is absent, or there is no time.
    """
    found = np.unique(np.concatenate([field.time.values for field in _fields(datasets, variable)]))
    if found.size == 0:
        raise DataError("the source holds no time at all; expected at least one field.")
    return found


def _fields(datasets: Sequence[xr.Dataset], variable: str) -> list[xr.DataArray]:
    check_variable(variable)
    holders = [dataset for dataset in datasets if find_variable(dataset.data_vars, variable)]
    if not holders:
        names = dict.fromkeys(str(name) for dataset in datasets for name in dataset.data_vars)
        raise DataError(
            f"variable {variable!r} is missing; there is {listed(names)}. Request 2m_temperature "
            "(parameter 167)."
        )
    return [standard_field(dataset, variable) for dataset in holders]


def assemble(
    values: Values,
    moments: NDArray[np.datetime64],
    latitude: Array,
    longitude: Array,
    variable: str,
) -> xr.Dataset:
    """Wrap arrays that are in canonical order as a dataset with CF attributes.

    Parameters
    ----------
    values : array of float32, shape (T, P, Q)
        Kelvin.
    moments : array of datetime64[ns], shape (T,)
        Ascending.
    latitude, longitude : arrays of float64, shapes (P,) and (Q,)
        Degrees, ascending.
    variable : str
        Canonical name.

    Returns
    -------
    xarray.Dataset
    """
    degrees_north = {
        "standard_name": "latitude",
        "long_name": "latitude",
        "units": "degrees_north",
        "axis": "Y",
    }
    degrees_east = {
        "standard_name": "longitude",
        "long_name": "longitude",
        "units": "degrees_east",
        "axis": "X",
    }
    kelvin = {"standard_name": "air_temperature", "long_name": "2 metre temperature", "units": "K"}
    return xr.Dataset(
        {variable: (("time", "latitude", "longitude"), np.ascontiguousarray(values), kelvin)},
        coords={
            "time": ("time", moments, {"standard_name": "time", "long_name": "time", "axis": "T"}),
            "latitude": ("latitude", latitude, degrees_north),
            "longitude": ("longitude", longitude, degrees_east),
        },
        attrs={"Conventions": "CF-1.13"},
    )


def _check_units(field: xr.DataArray) -> None:
    units = str(field.attrs.get("units", "")).strip()
    if units.lower() not in _KELVIN:
        raise DataError(
            f"the field has units {units!r}; expected kelvin. Add 273.15 to degrees Celsius, set units to K."
        )


def _common_grid(fields: list[xr.DataArray]) -> tuple[Array, Array]:
    latitude, longitude = fields[0].latitude.values, fields[0].longitude.values
    for other in fields[1:]:
        if not (
            np.array_equal(other.latitude.values, latitude)
            and np.array_equal(other.longitude.values, longitude)
        ):
            raise DataError(
                f"the parts have different grids, {latitude.size} x {longitude.size} and "
                f"{other.latitude.size} x {other.longitude.size}; expected one grid for all times."
            )
    if latitude.size == 0 or longitude.size == 0:
        raise DataError(f"the grid is {latitude.size} x {longitude.size}; expected at least one point.")
    if not (np.isfinite(latitude).all() and np.isfinite(longitude).all()):
        raise DataError("a latitude or longitude of the grid is missing; the file is damaged.")
    if np.abs(latitude).max() > 90.0 + 1e-6 or np.abs(longitude).max() > 360.0 + 1e-6:
        raise DataError(
            f"the grid has latitudes {latitude.min():g}..{latitude.max():g} and longitudes "
            f"{longitude.min():g}..{longitude.max():g}; expected -90..90 and -180..360 degrees. "
            "The file is damaged or its axes are swapped."
        )
    return latitude, longitude


def _load(
    fields: list[xr.DataArray], rows: Indices, columns: Indices, wanted: NDArray[np.datetime64] | None
) -> tuple[Values, NDArray[np.datetime64]]:
    """Read the selection, final values before preliminary ones, in the order of the sources."""
    available = np.concatenate([field.time.values for field in fields])
    positions = time_positions(available, wanted)
    owner = np.repeat(np.arange(len(fields)), [field.time.size for field in fields])[positions]
    start = np.cumsum([0, *(field.time.size for field in fields)])
    pieces = []
    for number, field in enumerate(fields):
        steps = positions[owner == number] - start[number]
        if steps.size:
            box = field.isel(latitude=_runs(rows), longitude=_runs(columns), time=_runs(steps))
            pieces.append(_best_version(box.values.astype(np.float32, copy=False)))
    return np.concatenate(pieces), available[positions]


def _runs(positions: Indices) -> slice | Indices:
    """Turn contiguous positions into a slice, which files and remote stores read far quicker."""
    first, last = int(positions[0]), int(positions[-1])
    return slice(first, last + 1) if last - first + 1 == positions.size else positions


def _best_version(values: Values) -> Values:
    if values.ndim == 3:
        return values
    best: Values = values[0]
    for preliminary in values[1:]:
        best = np.where(np.isnan(best), preliminary, best)
    return best


def _merge_times(values: Values, moments: NDArray[np.datetime64]) -> tuple[Values, NDArray[np.datetime64]]:
    order = np.argsort(moments, kind="stable")
    moments = moments[order]
    if not np.array_equal(order, np.arange(order.size)):
        values = values[order]
    first = np.append(True, moments[1:] != moments[:-1])
    for repeated in np.flatnonzero(~first):
        if not np.array_equal(values[repeated], values[repeated - 1], equal_nan=True):
            raise DataError(
                f"time {shown(moments[repeated])} appears twice with different values; expected one field "
                "per time. Remove the one that is not wanted."
            )
    return (values, moments) if first.all() else (values[first], moments[first])


def _ascending_rows(values: Values, latitude: Array) -> tuple[Values, Array]:
    order = np.argsort(latitude, kind="stable")
    latitude = np.clip(latitude[order], -90.0, 90.0).round(6)
    if (np.diff(latitude) <= 0.0).any():
        raise DataError("a latitude appears twice; expected every row of the grid once.")
    return values[:, order], latitude


def _ascending_columns(values: Values, longitude: Array) -> tuple[Values, Array]:
    wrapped = np.mod(longitude, 360.0).round(6)
    wrapped[wrapped >= 360.0] = 0.0  # a tiny negative longitude
    order = np.argsort(wrapped, kind="stable")
    wrapped, values = wrapped[order], values[:, :, order]
    first = np.append(True, np.diff(wrapped) > 0.0)
    for repeated in np.flatnonzero(~first):
        if not np.array_equal(values[..., repeated], values[..., repeated - 1], equal_nan=True):
            raise DataError(
                f"longitude {wrapped[repeated]:g} appears twice (0 and 360 are one meridian) with different "
                "values; expected every column of the grid once."
            )
    return (values, wrapped) if first.all() else (values[..., first], wrapped[first])


def _check_values(values: Values, moments: NDArray[np.datetime64]) -> None:
    missing = np.isnan(values)
    if missing.all():
        raise DataError(
            "the field is NaN everywhere; expected temperatures. Check times and area of the source."
        )
    empty = np.flatnonzero(missing.all(axis=(1, 2)))
    if empty.size:
        raise DataError(
            f"the field is NaN everywhere at {shown(moments[empty[0]])} ({empty.size} of {moments.size} "
            "times); the source has a hole there. Leave these times out or use another source."
        )
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    if low < COLDEST_KELVIN or high > WARMEST_KELVIN:
        guess = "It looks like Celsius: add 273.15. " if low > -100.0 and high < 70.0 else ""
        raise DataError(
            f"values reach from {low:g} to {high:g}; expected {COLDEST_KELVIN:g}..{WARMEST_KELVIN:g} K. "
            f"{guess}Check the variable, its units and its scale_factor, add_offset and _FillValue."
        )
