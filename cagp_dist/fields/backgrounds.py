"""A background and the standard deviation of its error, from fields, files, sources and ensembles."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import xarray as xr

from cagp_dist.arrays import Times
from cagp_dist.checks import check_positive
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.fields.axes import Role, role_of
from cagp_dist.fields.covariates import (
    Covariate,
    Layers,
    PlaneField,
    interpolated,
    layers_in,
    opened_variable,
)
from cagp_dist.fields.gridded import chosen_variable
from cagp_dist.fields.named_sources import is_source, open_named
from cagp_dist.fields.selection import Selection
from cagp_dist.means import EstimatedMean
from cagp_dist.pipeline.background import Background, FieldInUnits
from cagp_dist.remedies import Setting
from cagp_dist.space import Space
from cagp_dist.text import counted
from cagp_dist.variables.units import conversion, plain_units

BackgroundLike: TypeAlias = xr.DataArray | xr.Dataset | str | Sequence[xr.DataArray]
ErrorLike: TypeAlias = float | xr.DataArray | xr.Dataset | str

NAMED = ("file", "zarr")  # of whose addresses the variable is a part


def read_background(
    given: BackgroundLike,
    std: ErrorLike | None,
    *,
    space: Space,
    variable: str,
    units: str,
    innovation_mean: float = 0.0,
    estimated: EstimatedMean | None = None,
    around: Times | None = None,
    takes_spread: bool = True,
) -> Background:
    """Read a background in the units of the observations, and what is known of its error.

    Parameters
    ----------
    given : DataArray, Dataset, str or sequence of DataArray
        A field, at several times if it has a time, with a member dimension if it is an ensemble; the
        address of one, or the members of an ensemble.
    std : number, DataArray, Dataset or str, optional
        Standard deviation of its error; without it the spread of an ensemble.
    space : Space
        Of the observations.
    variable, units : str
        Of the observations.
    innovation_mean : float
        That is expected of observation minus background.
    estimated : EstimatedMean, optional
        What of that is estimated with the field.
    around : array of datetime64, optional
        Times between which it is wanted; None: all.
    takes_spread : bool
        Whether the spread of an ensemble is its error; no, where a variance says that.

    Raises
    ------
    ArgumentError, DataError
        If units do not convert, members have different grids, or as `cagp_dist.covariate`.
    """
    guess, spread = _layers(given, space, variable, around, what="background")
    in_units = _in_units(guess, space, units)
    if std is None or isinstance(std, int | float | np.number):
        if std is not None:
            check_positive("background_std", float(std))
        own = (
            None
            if spread is None or not takes_spread
            else replace(in_units, field=interpolated(spread, space), offset=0.0)
        )
        return Background(in_units, own if std is None else float(std), innovation_mean, estimated)
    error, _ = _layers(std, space, variable, around, what="background_std")
    factor, _ = _conversion(error.units, units, "background_std") if error.units else (1.0, 0.0)
    return Background(in_units, FieldInUnits(interpolated(error, space), factor), innovation_mean, estimated)


def _layers(
    given: BackgroundLike, space: Space, variable: str, around: Times | None, *, what: str
) -> tuple[Layers, Layers | None]:
    """Load the layers of a field; of an ensemble their mean and spread."""
    if isinstance(given, str):
        given = _of_the_day(given, around, what)
        if given.partition(":")[0] in NAMED:

            def read(field: xr.DataArray) -> tuple[Layers, Layers | None]:
                return _layers(field, space, variable, around, what=what)

            return opened_variable(given, read, what=what)
        if not is_source(given):
            raise ArgumentError(
                f'{what} is {given!r}; expected "file:PATH:VARIABLE", "zarr:ADDRESS:VARIABLE", another '
                "source of fields, or a field of xarray.",
                key=what,
            )
        given = open_named(given, Selection(value=variable))
    if isinstance(given, xr.Dataset):
        name = variable if variable in given.data_vars else None
        given = given[chosen_variable(given, name)]
    if isinstance(given, xr.DataArray):
        members = [dim for dim in map(str, given.dims) if role_of(dim, given.coords.get(dim)) is Role.MEMBER]
        along = next((dim for dim in members if given.sizes[dim] > 1), None)
        if along is None:
            return layers_in(space, given, str(given.name or what), what=what, around=around), None
        given = [given.isel({along: member}, drop=True) for member in range(given.sizes[along])]
    if isinstance(given, Mapping) or not isinstance(given, Sequence) or not given:
        raise ArgumentError(
            f"{what} is a {type(given).__name__}; expected a field of xarray, its address, or a sequence of "
            "fields, the members of an ensemble.",
            key=what,
        )
    return _of_ensemble([_layers(each, space, variable, around, what=what)[0] for each in given], what)


def _of_the_day(address: str, around: Times | None, what: str) -> str:
    """Fill %Y, %m, %d and %H in the path of a file with the time of the observations."""
    if not address.startswith("file:") or "%" not in address:
        return address
    known = np.empty(0, "datetime64[ns]") if around is None else around[~np.isnat(around)]
    filled = {str(each.astype("datetime64[s]").item().strftime(address)) for each in np.unique(known)}
    if len(filled) != 1:
        raise ArgumentError(
            f"{what} is {address!r}, of which there is a file for each time, and the observations have "
            f"{counted(np.unique(known).size, 'time')}, of {counted(len(filled), 'file')}; expected those of "
            "one file. Map one time at a time, as `cagp daily` does.",
            key="background-times",
        )
    return filled.pop()


def _of_ensemble(members: Sequence[Layers], what: str) -> tuple[Layers, Layers | None]:
    """Give mean and spread of members; `DataError` where their grids, times or units are others."""
    first = members[0]
    for number, each in enumerate(members):
        for name in ("north", "east", "times", "units"):
            one, other = getattr(first, name), getattr(each, name)
            if (one is None) != (other is None) or not np.array_equal(one, other):
                axis = {"north": "latitudes or y", "east": "longitudes or x"}.get(name, name)
                raise DataError(
                    f"{what} has members with different {axis}: member {number} is not as the first one; "
                    "expected one grid, and the same times and units. Interpolate them to one grid before.",
                    key="background-members",
                )
    if len(members) == 1:
        return first, None
    values = np.stack([each.values for each in members])
    mean, spread = values.mean(axis=0), values.std(axis=0, ddof=1)
    return replace(first, values=mean), replace(first, name=f"spread of {first.name}", values=spread)


def _in_units(guess: Layers, space: Space, units: str) -> FieldInUnits:
    """Bring a background to the units of the observations; where one of both states none, refuse."""
    field: Covariate | PlaneField = interpolated(guess, space)
    if not guess.units and not units:
        return FieldInUnits(field)
    if not guess.units or not units:
        silent = "observations" if guess.units else "background"
        raise ArgumentError(
            f"background and observations have the units {guess.units!r} and {units!r}: the {silent} state "
            "none, so that it cannot be told what their difference is; expected the units of both.",
            key="background-units",
            remedies=(Setting("units", guess.units, "if they are"),) if guess.units else (),
        )
    return FieldInUnits(field, *_conversion(guess.units, units, "background"))


def _conversion(own: str, units: str, what: str) -> tuple[float, float]:
    """Factor and offset into the units of the observations."""
    found = (1.0, 0.0) if plain_units(own) == plain_units(units) else conversion(own, units)
    if found is None:
        raise ArgumentError(
            f"{what} is in {own!r}, and the observations are in {units!r}, which do not convert; expected "
            "one quantity.",
            key="background-units",
        )
    return found
