"""What a result says of its model and its observations, and these beside it."""

import ast
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from cagp_dist import factors, kernels, space_time, time_factors
from cagp_dist.arrays import Array, Mask
from cagp_dist.errors import ArgumentError, CagpError
from cagp_dist.fields.axes import Horizontal, located
from cagp_dist.fields.column_roles import ROLES
from cagp_dist.fields.observed_objects import ObservedObject, Source, read
from cagp_dist.fields.selection import ANYWHERE, Asked
from cagp_dist.kernels import DEPTH, Kernel
from cagp_dist.kriging.map_dataset import MEAN_TERMS, READ_WITH, noise_text
from cagp_dist.kriging.observed_areas import OBSERVED_AREAS
from cagp_dist.kriging.result_distribution import stems_of
from cagp_dist.means import MEANS
from cagp_dist.space import Plane, moved, plane_of
from cagp_dist.space.systems import has_system
from cagp_dist.variables.units import plain_units

if TYPE_CHECKING:
    from cagp_dist.kriging.kriging_model import Kriging

_HOMES = (kernels, factors, space_time, time_factors)


def model_of(result: xr.Dataset, observations: Source) -> "Kriging":
    """Give a `Kriging` of observations with the numbers of a result, of which nothing is fitted again."""
    from cagp_dist.kriging.kriging_model import Kriging

    attributes, asked = result.attrs, asked_of(result, observations)
    instead = "Expected the fitted Kriging instead of the observations."
    if not {"kernel", "prior_mean", "noise_std"} <= set(attributes):
        raise ArgumentError(
            f"the result does not say its kernel, mean and noise. {instead}", key="result-without-model"
        )
    if OBSERVED_AREAS in attributes:
        raise ArgumentError(
            f"the result is of {attributes[OBSERVED_AREAS]}. {instead}", key="result-without-model"
        )
    if "transform" in attributes or "transform" in _settings_of(result, asked):
        raise ArgumentError(f"the result is of transformed values. {instead}", key="transform-noise")
    kernel = _kernel(ast.parse(str(attributes["kernel"]), mode="eval").body)
    mean, noise = attributes["prior_mean"], attributes["noise_std"]
    if MEAN_TERMS in attributes:
        mean = json.loads(attributes[MEAN_TERMS])
    if kernel is None or (isinstance(mean, str) and mean not in MEANS):
        what = f"kernel is {attributes['kernel']}" if kernel is None else f"mean is {mean}"
        raise ArgumentError(
            f"the {what}, which cannot be taken from the attributes of the result. {instead}",
            key="result-without-model",
        )
    model = Kriging(
        kernel=kernel,
        mean=mean,
        noise_std=None if isinstance(noise, str) else float(noise),
        at="observed" if kernel.of_space_and_time else None,
        hyperparameters="plug-in",
        crs=asked.crs,
        progress=False,
        **_settings_of(result, asked),
    ).fit(observations)
    if isinstance(noise, str) and noise != noise_text(model._fitted()[1]):
        raise ArgumentError(
            f"the noise was {noise}, and these observations do not say it. {instead}", key="no-noise-said"
        )
    return model


def _kernel(node: ast.AST) -> Any:
    """Read a kernel as it is written, None where it is none of this package."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp):
        return ast.literal_eval(node)
    if isinstance(node, ast.Tuple):
        return tuple(_kernel(each) for each in node.elts)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return None
    family = next((getattr(home, node.func.id) for home in _HOMES if hasattr(home, node.func.id)), None)
    if not (isinstance(family, type) and issubclass(family, Kernel)):
        return None
    return family(
        *(_kernel(each) for each in node.args),
        **{str(each.arg): _kernel(each.value) for each in node.keywords},
    )


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
    """Read observations as `krige` does, or take those of a fitted `Kriging`, in the units of a field.

    Beside a result of several variables they are those of the field's own.
    """
    from cagp_dist.kriging.kriging_model import Kriging

    variable = _variable_of(field, result)
    if isinstance(observations, Kriging):
        observed = observations._fitted()[0]
        every = observed.variables or (observed,)
        found = [each for each in every if variable in (None, each.name)]
        if len(found) != 1:
            there = ", ".join(repr(each.name) for each in every)
            raise ArgumentError(
                f"the fitted Kriging is of {there}, and {field.name!r} is of "
                f"{'one variable' if variable is None else repr(variable)}; expected its own observations: "
                "name the variables that are drawn, or give the table.",
                key="other-variable",
            )
        (observed,) = found
    else:
        value: dict[str, Any] = {} if variable is None else {"value": variable}
        asked = asked_of(result, observations)
        settings, plane = _settings_of(result, asked), _columns_of(asked)
        try:
            observed = read(observations, crs=asked.crs, limits=True, **settings | value)
        except CagpError:
            if settings.keys() <= {"columns"} and settings.get("columns", {}) == plane:
                raise
            # others than the result was made from
            observed = read(observations, crs=asked.crs, columns=plane, limits=True, **value)
    own, wanted = (str(each.get("units", "")) for each in (observed.attributes, field.attrs))
    if own and wanted and plain_units(own) != plain_units(wanted):
        raise ArgumentError(
            f"the observations are in {own!r} and the result in {wanted!r}; expected one unit. Convert them.",
            key="units",
        )
    return observed


def observed_of_each(
    observations: "Source | Kriging | None", names: Sequence[str], like: xr.DataArray, result: xr.Dataset
) -> dict[str, ObservedObject]:
    """Read the observations of each variable that is drawn; of a result of one, those of a field like it."""
    if observations is None:
        return {}
    if len(stems_of(result)) > 1:
        return {name: observed_beside(observations, result[name], result) for name in names}
    return dict.fromkeys(names, observed_beside(observations, like, result))


def _variable_of(field: xr.DataArray, result: xr.Dataset) -> str | None:
    """Name the variable that a field is of, in a result of several."""
    stems = stems_of(result)
    own = [stem for stem in stems if str(field.name).startswith(stem)]
    return max(own, key=len).removesuffix("_") if own and len(stems) > 1 else None


def _settings_of(result: xr.Dataset, asked: Asked) -> dict[str, Any]:
    """Give the settings with which the observations of a result were read, such as ``missing=-999``."""
    found: dict[str, Any] = json.loads(result.attrs.get(READ_WITH, "{}"))
    columns = {role: found.pop(role) for role in ROLES if role in found}  # arguments of earlier versions
    columns |= {role: name for role, name in found.pop("columns", {}).items() if role not in "xy"}
    columns |= _columns_of(asked)
    return found | ({"columns": columns} if columns else {})


def role_names(result: xr.Dataset, observations: "Source") -> dict[str, str]:
    """Give the names of columns, by their roles, with which the observations of a result were read."""
    found: dict[str, str] = _settings_of(result, asked_of(result, observations)).get("columns", {})
    return found


def depth_names(result: xr.Dataset, observations: "Source") -> list[str]:
    """Give the names that the depth of something beside a result may have."""
    return [role_names(result, observations).get(DEPTH, DEPTH), DEPTH]


def _columns_of(asked: Asked) -> dict[str, str]:
    """Give the names of x and y by their roles."""
    return {role: name for role, name in (("x", asked.x), ("y", asked.y)) if name is not None}


def asked_of(result: xr.Dataset, observations: "Source") -> Asked:
    """Say what a result says of its observations: the names of their x and y, and their system."""
    asked = Asked(*(result.attrs.get(f"observations_{what}") for what in ("x", "y", "crs")))
    if isinstance(observations, xr.DataArray | xr.Dataset):
        if not {asked.x, asked.y} <= set(observations.coords):
            return ANYWHERE
        if not has_system(observations):
            return asked
        own = located(observations).space
        if not isinstance(own, Plane) or asked.crs is None or own.is_of(plane_of(asked.crs, names=own.names)):
            return ANYWHERE
        raise ArgumentError(
            f"the observations lie on the {own.text}, and those of the result were read with "
            f"crs={asked.crs!r}; expected the fitted Kriging instead of the observations.",
            key="of-another-space",
        )
    if not asked.any and "earth_radius_km" not in result.attrs and not located(result).space.has_latitudes:
        raise ArgumentError(
            "the result does not say the names of x and y of its observations, nor their system; expected "
            "the fitted Kriging instead of the observations.",
            key="of-another-space",
        )
    return asked


def seen_in(observed: ObservedObject, values: xr.DataArray, where: Horizontal, field: int) -> Shown:
    """Take the observations of a field of a result."""
    points = replace(observed.points, values=observed.points.values_in_units)
    others = [str(dim) for dim in values.dims if str(dim) not in where.dims]
    moment = None if not others or others[0] not in values.coords else values[others[0]].values[field]
    if points.in_time:
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
            f"the observations are {points.fields} fields and the result is one; expected one field.",
            key="several-fields",
        )
    north, east = moved(points.space, where.space, points.north, points.east, what="observation")
    return Shown(north, east, row).only(~np.isnan(row))


def _same(moments: Any, moment: Any) -> Mask:
    """Which of some moments are a moment."""
    held = np.asarray(moments)
    if held.dtype.kind == "M":
        held, moment = held.astype("datetime64[us]"), np.datetime64(moment, "us")
    return np.asarray(held == moment)
