"""From a gridded field to observations: one point per place on the globe."""

import numpy as np
import xarray as xr

from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.fields.selection import GapPolicy, shown_time
from cagp_dist.mapping import Observations
from cagp_dist.store.published_variables import STATION_NAME
from cagp_dist.variables import Variable, variable_of


def observation_points(field: xr.Dataset, *, gaps: GapPolicy | None = None) -> Observations:
    """List the points of a canonical field and what was observed there; those of a pole are one."""
    variable, times = field_variable(field), field["time"].values
    where = field["latitude"].values, field["longitude"].values
    values = field[variable.name].values.astype(np.float64)
    if field[variable.name].dims == ("time", "point"):
        noise_std, names = field.coords.get("noise_std"), field.coords.get(STATION_NAME)
        found = Observations.from_points(
            *where,
            values,
            variable=variable,
            times=times,
            noise_variance=None if noise_std is None else noise_std.values.astype(np.float64) ** 2,
            dropped_missing=int(field.attrs.get("dropped_missing", 0)),
            names=None if names is None else names.values,
        ).without_empty_places()
        return found.without_gaps() if gaps == "drop" else found
    found = Observations.from_grid(*where, values, variable=variable, times=times)
    empty = np.flatnonzero(~found.present.any(axis=1))
    if empty.size:
        raise DataError(
            f"the field is NaN everywhere at {shown_time(times[empty[0]])}; leave this time out or use "
            "another source."
        )
    return found if gaps == "keep" else found.without_gaps()


def field_variable(field: xr.Dataset) -> Variable:
    """Say what a field in canonical form holds."""
    names = [str(name) for name in field.data_vars]
    if len(names) != 1:
        raise ArgumentError(f"the field holds {names}; expected one variable, from canonical(...).")
    return variable_of(names[0], field[names[0]].attrs)
