"""The groups of a published run that hold observations and what was predicted."""

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array
from cagp_dist.pipeline.defaults import QUANTILE_LEVELS
from cagp_dist.pipeline.recalibration import Distribution
from cagp_dist.regions import EARTH_SQUARE_KILOMETRES, Region
from cagp_dist.space import SPHERE, Space
from cagp_dist.store.group_dataset import coordinate, coordinates_of, counting_missing, dataset, time_of
from cagp_dist.store.published_variables import (
    BELOW_LIMIT,
    BIAS_BY,
    COORDINATES,
    GROUP,
    GROUPS,
    NODES_PER_CELL,
    QUANTILE_LEVEL,
    RECALIBRATED,
    REGION,
    REGION_DEFINITION,
    STATE,
    STATION_NAME,
    SUGGESTION,
)
from cagp_dist.variables import T2M, Variable

_TITLES = {
    "posterior": "Posterior {} at test points",
    "map": "Posterior {} on a grid",
    "targets": "Posterior {} at places of a table",
    "observations": "Observed {}",
    STATE: "What is known of {} on a grid, for the time after",
}


def prediction_group(
    group: str,
    *,
    times: ArrayLike,
    north: ArrayLike,
    east: ArrayLike,
    space: Space = SPHERE,
    mean: ArrayLike,
    std: ArrayLike | None = None,
    noise_variance: ArrayLike = 0.0,
    computational_std: ArrayLike | None = None,
    observed: ArrayLike | None = None,
    distribution: Distribution | None = None,
    median: ArrayLike | None = None,
    probability_zero: ArrayLike | None = None,
    transformed: bool = True,
    below_limit: ArrayLike | None = None,
    variable: Variable = T2M,
    names: ArrayLike | None = None,
    depths: ArrayLike | None = None,
    depth_units: str = "",
) -> xr.Dataset:
    """Group ``posterior``, ``targets`` or ``map``: what was predicted, and what was observed there.

    A map without ``std`` has the mean alone: its error bars are in ``map_std``, on a coarser grid. With a
    ``median`` values were ``transformed``, or some are limits, and all is of the distribution of the values
    already.

    Shapes: (T, q), of error bars also (q,); of a map (T, P, Q) and (P, Q), at depths (T, d, P, Q).
    """
    name, noisy = variable.name, None
    if std is not None:
        std, noise = np.asarray(std), np.asarray(noise_variance)
        noisy = np.sqrt(std**2 + noise) if distribution is None else distribution.std
        if distribution is not None and distribution.recalibrated and median is None:
            by = distribution.correction(std, noise)
            std = by * std
            computational_std = None if computational_std is None else by * np.asarray(computational_std)
    arrays = {
        f"{name}_mean": mean,
        f"{name}_std": std,
        f"{name}_predictive_std": noisy,
        f"{name}_std_computational": computational_std,
        f"{name}_quantile": None if distribution is None else distribution.quantiles,
        f"{name}_median": median,
        f"{name}_probability_zero": probability_zero,
        "local_scale": None if distribution is None else distribution.local_scale,
        name: observed,
        BELOW_LIMIT: _as_numbers(below_limit),
    }
    if group == "targets":
        east = space.keys(np.asarray(north), np.asarray(east))[:, 1]
    grid = GROUPS[group] != "point"
    where = coordinates_of(
        times, north, east, names, space=space, grid=grid, depths=depths, depth_units=depth_units
    )
    title = _TITLES[group].format(variable.long_name) + ("" if std is not None else ", mean")
    found = _of_distribution(dataset(group, where, arrays, variable, title=title), name, distribution)
    if median is not None:
        _say_not_normal(found, name, transformed=transformed)
    if std is None:
        field = found[f"{name}_mean"]
        del field.attrs["ancillary_variables"]
        field.attrs["comment"] = f"{field.attrs.get('comment', '')} Error bars: group map_std.".strip()
    return found if observed is None else counting_missing(found, name)


def means_over_cells(group: xr.Dataset, variable: Variable, nodes_per_cell: int) -> xr.Dataset:
    """Say of a map that its values are means over cells, which nobody observes."""
    found = group.drop_vars(f"{variable.name}_predictive_std", errors="ignore")
    comment = ". WITHOUT noise; that of a value at a point in the cell is larger."
    _say_mean_over(found, variable.name, "cell", comment)
    title = f"{group.attrs['title']}, means over its cells"
    return found.assign_attrs({NODES_PER_CELL: nodes_per_cell, "title": title})


def values_group(
    group: str,
    *,
    times: ArrayLike,
    north: ArrayLike,
    east: ArrayLike,
    space: Space = SPHERE,
    values: ArrayLike,
    outlier_probability: ArrayLike | None = None,
    below_limit: ArrayLike | None = None,
    variable: Variable = T2M,
    names: ArrayLike | None = None,
    depths: ArrayLike | None = None,
    depth_units: str = "",
) -> xr.Dataset:
    """Group ``observations``: values (T, n) at points, how probably each is wrong, and which are limits."""
    where = coordinates_of(times, north, east, names, space=space, depths=depths, depth_units=depth_units)
    title = _TITLES[group].format(variable.long_name)
    arrays = {
        variable.name: values,
        "outlier_probability": outlier_probability,
        BELOW_LIMIT: _as_numbers(below_limit),
    }
    return counting_missing(dataset(group, where, arrays, variable, title=title), variable.name)


def _as_numbers(mask: ArrayLike | None) -> Array | None:
    """Give 0 and 1, which every reader of Zarr and NetCDF knows, for a mask."""
    return None if mask is None else np.asarray(mask, dtype=np.float64)


def flags_group(found: xr.Dataset, variable: Variable, space: Space) -> xr.Dataset:
    """Group ``flags``: what was flagged, along ``flagged``, with places and times."""
    where = dict(space.mapping)
    for name in (*space.axes, "time", STATION_NAME):
        if name in found.coords:
            held = found[name]
            about = {key: said for key, said in held.attrs.items() if key != "axis"}
            values = held.values.astype(str) if name == STATION_NAME else held.values
            made = coordinate(name, "flagged", values) if name in COORDINATES else None
            where[name] = xr.Variable("flagged", values, about) if made is None else made
    where[SUGGESTION] = coordinate(SUGGESTION, "flagged", found["suggestion"].values.astype(str))
    if "time" in where:
        del where["time"].attrs["axis"]
    arrays = {
        "flagged_value": found["observed"].values,
        "flagged_expected": found["expected"].values,
        "flagged_std": found["expected_std"].values,
    }
    title = f"Values of {variable.long_name} that all others contradict"
    return dataset("flags", where, arrays, variable, title=title)


def state_group(
    *,
    times: ArrayLike,
    north: ArrayLike,
    east: ArrayLike,
    space: Space = SPHERE,
    weights: ArrayLike,
    covariance: ArrayLike,
    variable: Variable = T2M,
) -> xr.Dataset:
    """Group ``state``: weights (m, P, Q), and covariances (m, m, wavenumbers, P)."""
    where = coordinates_of(times, north, east, space=space, grid=True)
    arrays = {"state_weight": np.asarray(weights)[None], "state_covariance": np.asarray(covariance)[None]}
    return dataset(STATE, where, arrays, variable, title=_TITLES[STATE].format(variable.long_name))


def regions_group(
    *,
    times: ArrayLike,
    regions: Sequence[Region],
    mean: ArrayLike,
    std: ArrayLike,
    computational_std: ArrayLike | None = None,
    variable: Variable = T2M,
    resolution_degrees: float,
) -> xr.Dataset:
    """Group ``regions``: means (T, r) over regions, weighted with area; error bars also (r,)."""
    name = variable.name
    arrays = {f"{name}_mean": mean, f"{name}_std": std, f"{name}_std_computational": computational_std}
    definitions = [region.definition for region in regions]
    areas = np.array([region.area for region in regions]) * EARTH_SQUARE_KILOMETRES
    group = dataset(
        "regions",
        {
            **time_of(times),
            REGION: coordinate(REGION, REGION, [region.name for region in regions]),
            REGION_DEFINITION: coordinate(REGION_DEFINITION, REGION, definitions),
        },
        {**arrays, "region_area": areas},
        variable,
        title=f"Posterior {variable.long_name}, means over regions",
    )
    _say_mean_over(group, name, "region", ", with the covariance of its parts. WITHOUT noise.")
    for key in arrays.keys() & group.keys():
        group[key].attrs["coordinates"] = REGION_DEFINITION
    return group.assign_attrs(
        regions_resolution_degrees=resolution_degrees,
        comment="Sums over cells of at most that height, each with its area; regions are not independent of "
        "each other.",
    )


def biases_group(
    *,
    times: ArrayLike,
    labels: Mapping[str, Sequence[str]],
    bias: ArrayLike,
    std: ArrayLike,
    variable: Variable = T2M,
) -> xr.Dataset:
    """Group ``biases``: errors (T, g) that groups of observations share; ``labels`` names them by columns."""
    columns = [column for column, names in labels.items() for _ in names]
    names = [name for column in labels.values() for name in column]
    group = dataset(
        "biases",
        {
            **time_of(times),
            GROUP: coordinate(GROUP, GROUP, names),
            BIAS_BY: coordinate(BIAS_BY, GROUP, columns),
        },
        {"bias": bias, "bias_std": std},
        variable,
        title=f"Errors of {variable.long_name} that observations share",
    )
    for key in ("bias", "bias_std"):
        group[key].attrs["coordinates"] = BIAS_BY
    return group


def _say_mean_over(group: xr.Dataset, name: str, part: str, comment: str) -> None:
    """Say of the arrays of a field that they are means over cells or regions, in place."""
    for key in (f"{name}_mean", f"{name}_std", f"{name}_std_computational"):
        if key in group:
            group[key].attrs["long_name"] += f", mean over the {part}"
    mean = group[f"{name}_mean"].attrs
    mean["cell_methods"] = f"{mean['cell_methods']} area: mean"
    if f"{name}_std" in group:
        mean["ancillary_variables"] = f"{name}_std"
        group[f"{name}_std"].attrs |= {
            "cell_methods": "area: mean",
            "comment": f"Latent: the uncertainty of the mean of the noise-free field over the {part}, "
            f"mathematical and computational together{comment}",
        }


def _say_not_normal(group: xr.Dataset, name: str, *, transformed: bool) -> None:
    """Say of arrays what they are of where values were transformed, or else some are limits, in place."""
    because = "Values were transformed" if transformed else "Some values are limits of detection"
    taken = (
        "taken back from that of transformed values"
        if transformed
        else "a mixture over draws of the values that are limits of detection"
    )
    not_normal = f"which is not normal: its quantiles are {name}_quantile, those of no multiple of this."
    group[f"{name}_std"].attrs["comment"] = (
        "Of the distribution of the noise-free field, mathematical and computational uncertainty together, "
        f"WITHOUT noise. {because}, so that it is not normal."
    )
    group[f"{name}_predictive_std"].attrs["comment"] = (
        f"Of the distribution of an observation, noise included, {not_normal}"
    )
    group[f"{name}_quantile"].attrs["comment"] = f"Of an observation, noise included: {taken}."
    median = group[f"{name}_median"].attrs
    median["comment"] = f"{median['comment']} {because}."


def _of_distribution(group: xr.Dataset, name: str, distribution: Distribution | None) -> xr.Dataset:
    """Say of recalibrated distributions what their arrays mean, and give the levels of quantiles."""
    if distribution is None:
        return group
    levels = coordinate(QUANTILE_LEVEL, QUANTILE_LEVEL, np.asarray(QUANTILE_LEVELS))
    group = group.assign_coords({QUANTILE_LEVEL: levels})
    if not distribution.recalibrated:
        group[f"{name}_quantile"].attrs["comment"] = (
            "Of an observation, noise included: of a mixture of distributions over lengthscale, variance and "
            f"noise, each with its probability, whose standard deviation is {name}_predictive_std."
        )
        return group
    errors, predictive = group[f"{name}_std"].attrs, group[f"{name}_predictive_std"].attrs
    for each in (errors, predictive):
        each["long_name"] += f", {RECALIBRATED}"
    errors["comment"] = (
        "Latent: the uncertainty of the noise-free field, mathematical and computational together, WITHOUT "
        f"noise. It is the share of {name}_predictive_std that the prior gives it."
    )
    predictive["comment"] = (
        "Standard deviation of the published distribution of an observation, whose quantiles are "
        f"{name}_quantile: that of the prior, noise included, corrected by errors of predictions that did "
        "not use the observation."
    )
    return group
