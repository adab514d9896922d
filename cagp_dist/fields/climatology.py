"""A climatology from a Zarr store: the usual value of each place, interpolated to any points."""

import logging
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from cagp_dist.arrays import Array
from cagp_dist.errors import ArgumentError, BudgetError, ConfigurationError, DataError
from cagp_dist.fields.bilinear import BilinearGrid, closed
from cagp_dist.fields.canonical import canonical, field_variable, space_of
from cagp_dist.fields.gridded import find_variable
from cagp_dist.fields.selection import Selection
from cagp_dist.fields.stores.remote import opened_store
from cagp_dist.geometry import area_weights
from cagp_dist.means import as_columns, latitude_of
from cagp_dist.memory import available_bytes
from cagp_dist.store.zarr_arrays import content_sha256
from cagp_dist.text import bytes_text, counted, place_text

logger = logging.getLogger(__name__)

MONTHS = 12
_COPIES = 3  # peak memory of reading a field in canonical form, in copies of it


@dataclass(frozen=True, eq=False)
class Climatology:
    """Mean of each place, for the whole year or for each calendar month: a `MeanFamily`."""

    grid: BilinearGrid  # with one layer, or 12 from January to December
    content_sha256: str  # of the numbers that were read
    units: str = "K"  # of the values; empty if the store does not say

    @property
    def is_monthly(self) -> bool:
        """Whether each calendar month has a layer."""
        return bool(self.grid.values.shape[2] == MONTHS)

    def at(self, latitude_degrees: Array, longitude_degrees: Array, times: NDArray[np.datetime64]) -> Array:
        """Interpolate bilinearly to places (n,) at times (T,): values (n, T) in `units`.

        Nothing is interpolated in time: where there are twelve months, that of each time is taken. Raises
        `ConfigurationError` if a point lies outside. Cost: n times the number of different months.
        """
        self.check_covers(latitude_degrees, longitude_degrees)
        months = _month(times) if self.is_monthly else np.zeros(len(times), dtype=np.intp)
        used, which = np.unique(months, return_inverse=True)
        grid = replace(self.grid, values=self.grid.values[:, :, used])
        return grid.at(latitude_degrees, longitude_degrees)[:, which.reshape(-1)]

    def fit(
        self,
        latitude_degrees: Array,
        longitude_degrees: Array,
        values: ArrayLike,
        *,
        times: NDArray[np.datetime64] | None = None,
    ) -> "ClimatologyMean":
        """Fit the constant that shifts the climatology for every field, points weighted with their area.

        A day that was warm everywhere is then not taken for a pattern. Values are (n,) or (n, T) in `units`;
        times (T,) are needed where the climatology is by month. Raises `ArgumentError` if shapes do not match
        or a value is not finite, and as `at`.
        """
        columns = as_columns(latitude_degrees, longitude_degrees, values)
        if times is None and self.is_monthly:
            raise ArgumentError(
                "the climatology is by month; give times, one for each column of values.", key="no-times"
            )
        moments = np.zeros(columns.shape[1], dtype="datetime64[ns]") if times is None else times
        if len(moments) != columns.shape[1]:
            raise ArgumentError(
                f"{counted(len(moments), 'time')} for {counted(columns.shape[1], 'field')}; expected one "
                "for each.",
                key="shapes",
            )
        usual = self.at(latitude_degrees, longitude_degrees, moments)
        offset = np.average(columns - usual, axis=0, weights=area_weights(latitude_degrees))
        return ClimatologyMean(self, moments, offset)

    def check_covers(self, latitude_degrees: Array, longitude_degrees: Array) -> None:
        """Raise `ConfigurationError` if a point of (n,) latitudes and longitudes lies outside."""
        outside = self.grid.outside(latitude_degrees, longitude_degrees)
        if outside.any():
            first = int(np.flatnonzero(outside)[0])
            raise ConfigurationError(
                f"the climatology covers {self.grid.extent}; {np.count_nonzero(outside):,} of "
                f"{outside.size:,} points lie outside, such as "
                f"{place_text(latitude_degrees[first], longitude_degrees[first])}. Take a climatology of the "
                "whole area, restrict observations.area and the map to it, or use another mean.",
                key="outside-climatology",
            )


@dataclass(frozen=True, eq=False)
class ClimatologyMean:
    """A climatology, by month that of each time, shifted for every time by a constant."""

    climatology: Climatology
    times: NDArray[np.datetime64]  # (T,)
    offset: Array  # (T,)

    def __call__(self, X: Array) -> Array:
        """Mean (n, T) in the units of the climatology at unit vectors X (n, 3); outside of it this raises."""
        longitude = np.rad2deg(np.arctan2(X[:, 1], X[:, 0]))
        return self.climatology.at(latitude_of(X), longitude, self.times) + self.offset


def open_climatology(address: str, *, variable: str = "t2m") -> Climatology:
    """Read a climatology from a Zarr store.

    An axis ``month`` of 1..12, or times in all calendar months, make one by month; other times are averaged.
    """
    with opened_store(address) as dataset:
        _check_size(dataset, variable)
        field = canonical(_timed(dataset), selection=Selection(value=variable))
        if not space_of(field).has_latitudes:
            raise DataError(
                "the climatology lies in a plane of x and y; expected latitudes and longitudes. Bring it to "
                "a grid of these first.",
                key="climatology-of-plane",
            )
        values = field[field_variable(field).name].values
        missing = int(np.isnan(values).sum())
        if missing:
            raise DataError(
                f"{missing:,} of {values.size:,} values of the climatology are missing; expected a value at "
                "every grid point. Fill them, or cut the store to where there are values.",
                key="gaps",
            )
        if min(values.shape[1:]) < 2:
            raise DataError(
                f"the climatology has {values.shape[1]} x {values.shape[2]} points; expected at least two "
                "rows and two columns to interpolate between.",
                key="shapes",
            )
    layers = np.moveaxis(_by_month(values, field["time"].values), 0, -1)
    grid = BilinearGrid(*closed(field["latitude"].values, field["longitude"].values, layers))
    return Climatology(grid, content_sha256(field), field_variable(field).units)


def _check_size(dataset: xr.Dataset, variable: str) -> None:
    name = find_variable(dataset.data_vars, variable)
    needed = 0 if name is None else _COPIES * 4 * dataset[name].size
    free = available_bytes()
    if needed > free:
        raise BudgetError(
            f"reading all times of the climatology takes {bytes_text(needed)}, and {bytes_text(free)} are "
            "free. Average it over time first, and name the store of the averages.",
            key="memory",
        )


def _timed(dataset: xr.Dataset) -> xr.Dataset:
    """Give months, or a field that holds at all times, a time axis, which the layout asks for."""
    if "time" in dataset.variables or "valid_time" in dataset.variables:
        return dataset
    if "month" not in dataset.dims:
        return dataset.assign_coords(time=np.datetime64("2001-01-01", "ns"))
    months = np.asarray(dataset["month"].values)
    if sorted(months.tolist()) != list(range(1, MONTHS + 1)):
        raise DataError(
            f"the axis month is {months.tolist()}; expected the numbers 1 to 12, each once.", key="months"
        )
    starts = np.array([f"2001-{int(month):02d}-01" for month in months], dtype="datetime64[ns]")
    return dataset.assign_coords(time=("month", starts))


def _by_month(values: NDArray[np.float32], times: NDArray[np.datetime64]) -> Array:
    """Means of the months from January on, where all twelve are there; else the mean of all times."""
    months = _month(times)
    if np.unique(months).size == MONTHS:
        logger.info("the climatology has %d times: one mean for each calendar month is taken", times.size)
        return np.stack([values[months == month].mean(axis=0, dtype=np.float64) for month in range(MONTHS)])
    logger.info("the climatology has %d times of some months: the mean of all of them is taken", times.size)
    return np.asarray(values.mean(axis=0, dtype=np.float64, keepdims=True))


def _month(times: NDArray[np.datetime64]) -> NDArray[np.intp]:
    """Calendar month, 0 for January."""
    return (times.astype("datetime64[M]").astype(np.int64) % MONTHS).astype(np.intp)
