"""Observations beside a result: those of the field that is drawn, with their places."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from cagp_dist.arrays import Array, Mask
from cagp_dist.errors import ArgumentError
from cagp_dist.kriging.axes import ANYWHERE, Asked, Horizontal, located
from cagp_dist.kriging.observed_objects import ObservedObject, Source, observe
from cagp_dist.kriging.plane import has_system, moved, plane_of
from cagp_dist.variables.units import plain_units

if TYPE_CHECKING:
    from cagp_dist.kriging.kriging_model import Kriging


class Shown(NamedTuple):
    """Values and where they were observed, (n,)."""

    north: Array  # latitudes in degrees, or y of the plane of the result
    east: Array
    values: Array

    def only(self, chosen: Mask) -> "Shown":
        """Take some of them."""
        return Shown(*(each[chosen] for each in self))


def observed_beside(
    observations: "Source | Kriging", field: xr.DataArray, result: xr.Dataset
) -> ObservedObject:
    """Read observations as `krige` does, or take those of a fitted `Kriging`, in the units of a field."""
    from cagp_dist.kriging.kriging_model import Kriging

    if isinstance(observations, Kriging):
        observed = observations._fitted()[0]
    else:
        observed = observe(observations, asked=asked_of(result, observations))
    own, wanted = (str(each.get("units", "")) for each in (observed.attributes, field.attrs))
    if own and wanted and plain_units(own) != plain_units(wanted):
        raise ArgumentError(
            f"the observations are in {own!r} and the result in {wanted!r}; expected one unit. Convert them."
        )
    return observed


def asked_of(result: xr.Dataset, observations: "Source") -> Asked:
    """Say what a result says of its observations: the names of their x and y, and their system."""
    asked = Asked(*(result.attrs.get(f"observations_{what}") for what in ("x", "y", "crs")))
    if isinstance(observations, xr.DataArray | xr.Dataset):
        if not {asked.x, asked.y} <= set(observations.coords):
            return ANYWHERE
        if not has_system(observations):
            return asked
        own = located(observations).plane
        if own is None or asked.crs is None or own.is_of(plane_of(asked.crs, names=own.names)):
            return ANYWHERE
        raise ArgumentError(
            f"the observations lie on the {own.text}, and those of the result were read with "
            f"crs={asked.crs!r}; expected the fitted Kriging instead of the observations."
        )
    if not asked.any and "earth_radius_km" not in result.attrs and located(result).plane is not None:
        raise ArgumentError(
            "the result does not say the names of x and y of its observations, nor their system; expected "
            "the fitted Kriging instead of the observations."
        )
    return asked


def seen_in(observed: ObservedObject, values: xr.DataArray, where: Horizontal, field: int) -> Shown:
    """Take the observations of a field of a result."""
    points = observed.points
    others = [str(dim) for dim in values.dims if str(dim) not in where.dims]
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
    north, east = points.latitude_degrees, points.longitude_degrees
    if (plane := observed.plane) is not None:
        east, north = plane.back(points.positions)
    east, north = moved(plane, where.plane, east, north, what="observation")
    return Shown(north, east, row).only(~np.isnan(row))


def _same(moments: Any, moment: Any) -> Mask:
    """Which of some moments are a moment."""
    held = np.asarray(moments)
    if held.dtype.kind == "M":
        held, moment = held.astype("datetime64[us]"), np.datetime64(moment, "us")
    return np.asarray(held == moment)
