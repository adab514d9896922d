"""From a gridded field to observation sites: one point per place on the globe."""

import dataclasses
import logging
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from cagp_dist.arrays import Array
from cagp_dist.era5.selection import GapPolicy, shown_time
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.geometry import is_pole
from cagp_dist.store.published_variables import STATION_NAME
from cagp_dist.tables import Names
from cagp_dist.variables import T2M, Variable, variable_of

logger = logging.getLogger(__name__)

POLE_SPREAD = 5e-5
"""Part of the plausible range: copies of a pole that differ by more are cell averages, not copies. Of 2 metre
temperature this is 0.01 K; ERA5 packs to about 0.002 K."""


@dataclass(frozen=True, eq=False)
class FieldPoints:
    """Observation sites and what was observed there.

    Attributes
    ----------
    latitude_degrees, longitude_degrees : arrays of float64, shape (n,)
        Degrees north and degrees east in [0, 360); of a grid, no place appears twice.
    values : array of float64, shape (T, n)
        In the unit of the variable; NaN where there is no value. Each point has one at some time.
    times : array of datetime64[ns], shape (T,)
        Ascending.
    dropped_missing : int
        Points of the grid that were left out because they have no value, or, if gaps were dropped, none at
        one or more times; of a component of a vector also the poles, where it has no one value. Of stations
        also rows of the table that have no value.
    merged_pole_copies : int
        Grid points that were merged away because they are the same place as another: ``Q - 1`` per pole row.
    variable : Variable
        What the values are.
    missing_degrees : array of float64, shape (m, 2)
        Latitude and longitude of the points that were left out for missing values, poles not among them.
    noise_variance : array of float64, shape (n,), or None
        What is known of the error of the measurements at each place, squared unit of the variable.
    gridded : bool
        Whether they are points of a grid, each of which stands for the area of its cell.
    names : array of str, shape (n,), or None
        What the stations are called, where that is known.
    """

    latitude_degrees: Array
    longitude_degrees: Array
    values: Array
    times: NDArray[np.datetime64]
    dropped_missing: int
    merged_pole_copies: int
    variable: Variable = T2M
    missing_degrees: Array = dataclasses.field(default_factory=lambda: np.empty((0, 2)))
    noise_variance: Array | None = None
    gridded: bool = True
    names: Names | None = None

    @property
    def values_kelvin(self) -> Array:
        """The values, by the name that they had when all fields were temperatures."""
        return self.values

    def without_gaps(self) -> "FieldPoints":
        """Leave out the points that lack a value at any time; `DataError` if these are all of them."""
        there = np.isfinite(self.values).all(axis=0)
        if there.all():
            return self
        if not there.any():
            raise DataError(
                f"no point has a value at all {self.times.size} selected times; select fewer times, "
                'another source, or keep the gaps: gaps="keep", the default of a job.'
            )
        left = np.stack([self.latitude_degrees, self.longitude_degrees], axis=1)[~there]
        return replace(
            self,
            latitude_degrees=self.latitude_degrees[there],
            longitude_degrees=self.longitude_degrees[there],
            values=self.values[:, there],
            dropped_missing=self.dropped_missing + len(left),
            missing_degrees=np.concatenate([self.missing_degrees, left[~is_pole(left[:, 0])]]),
            noise_variance=None if self.noise_variance is None else self.noise_variance[there],
            names=None if self.names is None else self.names[there],
        )


def observation_points(field: xr.Dataset, *, gaps: GapPolicy | None = None) -> FieldPoints:
    """List the points of a canonical field: pole rows merged to one point each, and what was observed there.

    The ``Q`` grid points of a pole row are one place; kept as ``Q`` observations they would make the Gram
    matrix singular up to the noise and weigh that place ``Q`` times.  They are replaced by their mean.  In a
    reanalysis all copies are equal and the mean is that value.  In a conservatively regridded field they
    are averages over the sectors of the polar cap, all of equal area, so that the mean is the average over
    the cap; this is no error, and is noted in the log.
    """
    variable = field_variable(field)
    values = field[variable.name].values.astype(np.float64)
    if field[variable.name].dims == ("time", "point"):
        found = _stations(field, variable, values)
        return found.without_gaps() if gaps == "drop" else found
    found = _gridded(field, variable, values)
    return found if gaps == "keep" else found.without_gaps()


def _gridded(field: xr.Dataset, variable: Variable, values: Array) -> FieldPoints:
    """Points of a grid that have a value at one or more times."""
    latitude, longitude = field["latitude"].values, field["longitude"].values
    times = field["time"].values
    columns = longitude.size
    site_latitude = np.repeat(latitude, columns)
    site_longitude = np.tile(longitude, latitude.size)
    sites = values.reshape(times.size, -1)
    keep = np.ones(sites.shape[1], dtype=bool)
    for pole in np.flatnonzero(is_pole(latitude)):
        first = pole * columns
        sites[:, first] = np.nan if variable.vector else _merged(values[:, pole], latitude[pole], variable)
        site_longitude[first] = 0.0
        keep[first + 1 : first + columns] = False
    merged = int((~keep).sum())
    present = np.isfinite(sites)
    for time, there in zip(times, present, strict=True):
        if not there[keep].any():
            raise DataError(
                f"the field is NaN everywhere at {shown_time(time)}; leave this time out or use another "
                "source."
            )
    seen = present.any(axis=0)
    missing = keep & ~seen & ~is_pole(site_latitude)
    keep &= seen
    return FieldPoints(
        latitude_degrees=site_latitude[keep],
        longitude_degrees=site_longitude[keep],
        values=sites[:, keep],
        times=times,
        dropped_missing=int((~keep).sum()) - merged,
        merged_pole_copies=merged,
        variable=variable,
        missing_degrees=np.stack([site_latitude[missing], site_longitude[missing]], axis=1),
    )


def _stations(field: xr.Dataset, variable: Variable, values: Array) -> FieldPoints:
    """Places that have a value at one or more times."""
    there = np.isfinite(values).any(axis=0)
    if not there.all():
        degrees = np.stack([field["latitude"].values, field["longitude"].values], axis=1)
        found = _stations(field.isel(point=there), variable, values[:, there])
        left = degrees[~there]
        return replace(
            found,
            dropped_missing=found.dropped_missing + len(left),
            missing_degrees=left[~is_pole(left[:, 0])],
        )
    noise_std, names = field.coords.get("noise_std"), field.coords.get(STATION_NAME)
    return FieldPoints(
        latitude_degrees=field["latitude"].values,
        longitude_degrees=field["longitude"].values,
        values=values,
        times=field["time"].values,
        dropped_missing=int(field.attrs.get("dropped_missing", 0)),
        merged_pole_copies=0,
        variable=variable,
        noise_variance=None if noise_std is None else noise_std.values.astype(np.float64) ** 2,
        gridded=False,
        names=None if names is None else names.values,
    )


def field_variable(field: xr.Dataset) -> Variable:
    """Say what a field in canonical form holds."""
    names = [str(name) for name in field.data_vars]
    if len(names) != 1:
        raise ArgumentError(f"the field holds {names}; expected one variable, from canonical(...).")
    return variable_of(names[0], field[names[0]].attrs)


def _merged(copies: Array, latitude: float, variable: Variable) -> Array:
    """Mean over the copies of a pole that are there, (T, Q) -> (T,); NaN where all are missing."""
    present = np.isfinite(copies)
    low = np.where(present, copies, np.inf).min(axis=1)
    high = np.where(present, copies, -np.inf).max(axis=1)
    spread = float(np.max(high - low))
    known = np.isfinite(variable.high - variable.low)
    typical = variable.high - variable.low if known else float(np.max(np.abs(copies[present]), initial=0.0))
    if spread > POLE_SPREAD * typical:
        logger.warning(
            "the %d values at latitude %g differ by up to %#.3g %s; they are taken as sector averages of the "
            "polar cap and replaced by their mean",
            copies.shape[1],
            latitude,
            spread,
            variable.units,
        )
    # low + mean(copies - low): equal copies give back their value to the last bit
    count = present.sum(axis=1)
    excess = np.where(present, copies - np.where(count > 0, low, 0.0)[:, None], 0.0).sum(axis=1)
    return np.where(count > 0, low + excess / np.maximum(count, 1), np.nan)
