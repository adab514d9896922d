"""Observations beside a result: those of the field that is drawn, with their places."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from cagp_dist.arrays import Array, Mask
from cagp_dist.errors import ArgumentError
from cagp_dist.kriging.observed_objects import ObservedObject, Source, observe
from cagp_dist.variables.units import plain_units

if TYPE_CHECKING:
    from cagp_dist.kriging.kriging_model import Kriging


class Shown(NamedTuple):
    """Values and where they were observed, (n,)."""

    latitude_degrees: Array
    longitude_degrees: Array
    values: Array

    def only(self, chosen: Mask) -> "Shown":
        """Take some of them."""
        return Shown(*(each[chosen] for each in self))


def observed_beside(observations: "Source | Kriging", field: xr.DataArray) -> ObservedObject:
    """Read observations as `krige` does, or take those of a fitted `Kriging`, in the units of a field."""
    from cagp_dist.kriging.kriging_model import Kriging

    observed = observations._fitted()[0] if isinstance(observations, Kriging) else observe(observations)
    own, wanted = (str(each.get("units", "")) for each in (observed.attributes, field.attrs))
    if own and wanted and plain_units(own) != plain_units(wanted):
        raise ArgumentError(
            f"the observations are in {own!r} and the result in {wanted!r}; expected one unit. Convert them."
        )
    return observed


def seen_in(observed: ObservedObject, values: xr.DataArray, dims: tuple[str, ...], field: int) -> Shown:
    """Take the observations of a field of a result, whose places have some dimensions."""
    points = observed.points
    others = [str(dim) for dim in values.dims if str(dim) not in dims]
    moment = None if not others or others[0] not in values.coords else values[others[0]].values[field]
    if points.hours is not None:
        row = points.values[0]
        if moment is not None:
            row = np.where(_same(points.moments, moment), row, np.nan)
    elif points.fields == 1:
        row = points.values[0]
    elif observed.dimension in others:
        held = observed.coordinates.get(str(observed.dimension))
        at = (
            np.array([field])
            if held is None or moment is None
            else np.flatnonzero(_same(held.values, moment))
        )
        row = points.values[at[0]] if at.size else np.full(points.values.shape[1], np.nan)
    else:
        raise ArgumentError(
            f"the observations are {points.fields} fields and the result is one; expected those of one field."
        )
    return Shown(points.latitude_degrees, points.longitude_degrees, row).only(~np.isnan(row))


def _same(moments: Any, moment: Any) -> Mask:
    """Which of some moments are a moment."""
    held = np.asarray(moments)
    if held.dtype.kind == "M":
        held, moment = held.astype("datetime64[us]"), np.datetime64(moment, "us")
    return np.asarray(held == moment)
