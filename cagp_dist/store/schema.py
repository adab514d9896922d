"""The groups of a published run that hold observations and what was predicted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array
from cagp_dist.regions import EARTH_SQUARE_KILOMETRES, Region
from cagp_dist.store.dataset import axes, coordinate, counting_missing, dataset, point_coordinates
from cagp_dist.store.layout import (
    ERROR_DRAW,
    ERROR_DRAWS,
    ERRORS,
    LOCAL_SCALE,
    NODES_PER_CELL,
    OF_CELLS,
    OF_REGIONS,
    QUANTILE_LEVEL,
    QUANTILE_LEVELS,
    REGION,
    REGION_DEFINITION,
    STANDARDISED_ERROR,
)
from cagp_dist.variables import T2M, Variable


@dataclass(frozen=True, eq=False)
class PublishedLaw:
    """What is published of recalibrated laws, each of T times and points, or of a grid (P, Q).

    Attributes
    ----------
    std : array, shape (T, q), or (T, P, Q)
        In the unit of the variable, noise included.
    quantiles : array, shape (T, L, q), or (T, L, P, Q)
        At the L levels of `cagp_dist.store.layout.QUANTILE_LEVELS`.
    local_scale : array, shape (T, q), or (T, P, Q), or None
        What the scale of the errors was multiplied by; None where the method has no such thing.
    recalibrated : bool
        If not, it is a mixture over the numbers of the prior, as it is.
    """

    std: Array
    quantiles: Array
    local_scale: Array | None = None
    recalibrated: bool = True

    def on_grid(self, fields: Callable[[Array], Array]) -> "PublishedLaw":
        """Put values of cells (T, q) into fields (T, P, Q)."""
        return PublishedLaw(
            fields(self.std),
            np.stack([fields(each) for each in np.moveaxis(self.quantiles, 1, 0)], axis=1),
            None if self.local_scale is None else fields(self.local_scale),
            self.recalibrated,
        )


def posterior_group(
    *,
    times: ArrayLike,
    latitude_degrees: ArrayLike,
    longitude_degrees: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    noise_variance: ArrayLike,
    observed: ArrayLike,
    computational_std: ArrayLike | None = None,
    law: PublishedLaw | None = None,
    variable: Variable = T2M,
    names: ArrayLike | None = None,
) -> xr.Dataset:
    """Group ``posterior``: prediction and observation at the test points.

    Shapes: ``times`` (T,), ``latitude_degrees, longitude_degrees`` (q,), ``mean, observed`` (T, q), ``std``
    (T, q) or (q,), ``noise_variance`` (q,), ``computational_std`` (T, q) or (q,), ``names`` (q,).
    """
    coordinates = point_coordinates(times, latitude_degrees, longitude_degrees, names)
    group = dataset(
        "posterior",
        coordinates,
        {
            **_posterior(variable, mean, std, noise_variance, computational_std, law),
            variable.name: observed,
        },
        variable,
        title=f"Posterior {variable.long_name} at test points",
    )
    return counting_missing(_of_law(group, variable.name, law), variable.name)


def map_group(
    *,
    times: ArrayLike,
    latitude_degrees: ArrayLike,
    longitude_degrees: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    noise_variance: ArrayLike,
    computational_std: ArrayLike | None = None,
    law: PublishedLaw | None = None,
    variable: Variable = T2M,
    nodes_per_cell: int = 0,
) -> xr.Dataset:
    """Group ``map``, or ``map_std`` beside a finer mean: prediction on a latitude-longitude grid.

    Shapes: ``times`` (T,), ``latitude_degrees, longitude_degrees`` (P,) and (Q,), ``mean`` (T, P, Q),
    ``std`` (T, P, Q) or (P, Q), ``computational_std`` (T, P, Q) or (P, Q).
    """
    group = dataset(
        "map",
        axes(times, latitude_degrees, longitude_degrees),
        _posterior(variable, mean, std, noise_variance, computational_std, law),
        variable,
        title=f"Posterior {variable.long_name} on a grid",
    )
    group = _of_law(group, variable.name, law)
    return _of_cells(group, variable.name, nodes_per_cell) if nodes_per_cell else group


def mean_group(
    *,
    times: ArrayLike,
    latitude_degrees: ArrayLike,
    longitude_degrees: ArrayLike,
    mean: ArrayLike,
    variable: Variable = T2M,
    nodes_per_cell: int = 0,
) -> xr.Dataset:
    """Group ``map`` where its error bars are in ``map_std``, on a coarser grid: the mean alone."""
    group = dataset(
        "map",
        axes(times, latitude_degrees, longitude_degrees),
        {f"{variable.name}_mean": mean},
        variable,
        title=f"Posterior {variable.long_name} on a grid, mean",
    )
    field = group[f"{variable.name}_mean"]
    del field.attrs["ancillary_variables"]
    field.attrs["comment"] = f"{field.attrs.get('comment', '')} Error bars: group map_std.".strip()
    return _of_cells(group, variable.name, nodes_per_cell) if nodes_per_cell else group


def _of_cells(group: xr.Dataset, name: str, nodes_per_cell: int) -> xr.Dataset:
    """Say of a map that its values are means over cells."""
    group = group.drop_vars(f"{name}_predictive_std", errors="ignore")
    group.attrs |= {NODES_PER_CELL: nodes_per_cell, "title": f"{group.attrs['title']}, means over its cells"}
    for field in group.data_vars.values():
        field.attrs["long_name"] += OF_CELLS
    mean = group[f"{name}_mean"].attrs
    mean["cell_methods"] = f"{mean['cell_methods']} area: mean"
    if f"{name}_std" in group:
        mean["ancillary_variables"] = f"{name}_std"
        group[f"{name}_std"].attrs |= {
            "cell_methods": "area: mean",
            "comment": "Latent: the uncertainty of the mean of the noise-free field over the cell, "
            "mathematical and computational together. WITHOUT noise; that of a value at a point in the cell "
            "is larger.",
        }
    return group


def targets_group(
    *,
    times: ArrayLike,
    latitude_degrees: ArrayLike,
    longitude_degrees: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    noise_variance: float,
    computational_std: ArrayLike | None = None,
    law: PublishedLaw | None = None,
    variable: Variable = T2M,
    names: ArrayLike | None = None,
) -> xr.Dataset:
    """Group ``targets``: prediction at the places of a table, in the order of its rows.

    Parameters and errors as for `posterior_group`.
    """
    group = dataset(
        "targets",
        point_coordinates(times, latitude_degrees, np.mod(longitude_degrees, 360.0), names),
        _posterior(variable, mean, std, noise_variance, computational_std, law),
        variable,
        title=f"Posterior {variable.long_name} at places of a table",
    )
    return _of_law(group, variable.name, law)


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
    """Group ``regions``: means over regions, weighted with area.

    Shapes: ``times`` (T,), ``mean`` (T, r), ``std`` (T, r) or (r,), ``computational_std`` (T, r) or (r,).
    """
    name = variable.name
    errors = {f"{name}_std": std}
    if computational_std is not None:
        errors[f"{name}_std_computational"] = computational_std
    group = dataset(
        "regions",
        {
            "time": coordinate("time", "time", times),
            REGION: coordinate(REGION, REGION, [region.name for region in regions]),
            REGION_DEFINITION: coordinate(
                REGION_DEFINITION, REGION, [region.definition for region in regions]
            ),
        },
        {
            f"{name}_mean": mean,
            **errors,
            "region_area": np.array([region.area for region in regions]) * EARTH_SQUARE_KILOMETRES,
        },
        variable,
        title=f"Posterior {variable.long_name}, means over regions",
    )
    for key in (f"{name}_mean", *errors):
        group[key].attrs["long_name"] += OF_REGIONS
        group[key].attrs["coordinates"] = REGION_DEFINITION
    at = group[f"{name}_mean"].attrs
    at |= {"cell_methods": f"{at['cell_methods']} area: mean", "ancillary_variables": f"{name}_std"}
    group[f"{name}_std"].attrs |= {
        "cell_methods": "area: mean",
        "comment": "Latent: the uncertainty of the mean of the noise-free field over the region, "
        "mathematical and computational together, with the covariance of its parts. WITHOUT noise.",
    }
    return group.assign_attrs(
        regions_resolution_degrees=resolution_degrees,
        comment="Sums over cells of at most that height, each with its area; regions are not independent of "
        "each other.",
    )


def observations_group(
    *,
    times: ArrayLike,
    latitude_degrees: ArrayLike,
    longitude_degrees: ArrayLike,
    values: ArrayLike,
    variable: Variable = T2M,
    names: ArrayLike | None = None,
) -> xr.Dataset:
    """Group ``observations``: the training points and what was observed there.

    Shapes: ``times`` (T,), ``latitude_degrees, longitude_degrees`` (n,), ``values`` (T, n), ``names`` (n,).
    """
    coordinates = point_coordinates(times, latitude_degrees, longitude_degrees, names)
    group = dataset(
        "observations",
        coordinates,
        {variable.name: values},
        variable,
        title=f"Observed {variable.long_name}",
    )
    return counting_missing(group, variable.name)


def errors_group(
    *,
    times: ArrayLike,
    latitude_degrees: ArrayLike,
    longitude_degrees: ArrayLike,
    errors: ArrayLike,
    variable: Variable = T2M,
    names: ArrayLike | None = None,
) -> xr.Dataset:
    """Group ``errors``: standardised errors of predictions that correct the laws of the run.

    Shapes: ``times`` (T,), ``latitude_degrees, longitude_degrees`` (N,), ``errors`` (T, N), ``names`` (N,).
    """
    coordinates = point_coordinates(times, latitude_degrees, longitude_degrees, names)
    group = dataset(
        ERRORS,
        coordinates,
        {STANDARDISED_ERROR: errors},
        variable,
        title=f"Errors of {variable.long_name} from which predictive laws are corrected",
    )
    return counting_missing(group, STANDARDISED_ERROR)


def error_draws_group(
    *,
    times: ArrayLike,
    latitude_degrees: ArrayLike,
    longitude_degrees: ArrayLike,
    errors: ArrayLike,
    variable: Variable = T2M,
) -> xr.Dataset:
    """Group ``error_draws``: draws of the error of a map, in single precision.

    Shapes: ``times`` (1,), ``latitude_degrees, longitude_degrees`` (P,) and (Q,), ``errors`` (1, N, P, Q).
    """
    group = dataset(
        ERROR_DRAWS,
        axes(times, latitude_degrees, longitude_degrees),
        {ERROR_DRAW: errors},
        variable,
        title=f"Draws of the error of {variable.long_name} on a grid",
    )
    return group.assign({ERROR_DRAW: group[ERROR_DRAW].astype(np.float32)})


def _posterior(
    variable: Variable,
    mean: ArrayLike,
    std: ArrayLike,
    noise_variance: ArrayLike,
    computational_std: ArrayLike | None,
    law: PublishedLaw | None,
) -> dict[str, ArrayLike]:
    name = variable.name
    found: dict[str, ArrayLike] = {
        f"{name}_mean": mean,
        f"{name}_std": std,
        f"{name}_predictive_std": np.hypot(std, np.sqrt(noise_variance)) if law is None else law.std,
    }
    if computational_std is not None:
        found[f"{name}_std_computational"] = computational_std
    if law is not None:
        found[f"{name}_quantile"] = law.quantiles
        found |= {} if law.local_scale is None else {LOCAL_SCALE: law.local_scale}
    return found


def _of_law(group: xr.Dataset, name: str, law: PublishedLaw | None) -> xr.Dataset:
    """Say of a group whose laws were recalibrated what its arrays mean, and give the levels of quantiles."""
    if law is None:
        return group
    levels = coordinate(QUANTILE_LEVEL, QUANTILE_LEVEL, np.asarray(QUANTILE_LEVELS))
    group = group.assign_coords({QUANTILE_LEVEL: levels})
    if not law.recalibrated:
        group[f"{name}_quantile"].attrs["comment"] = (
            "Of an observation, noise included: of a mixture of laws over lengthscale, variance and noise, "
            f"each with its probability, whose standard deviation is {name}_predictive_std."
        )
        return group
    errors, predictive = group[f"{name}_std"].attrs, group[f"{name}_predictive_std"].attrs
    errors["long_name"] += ", not recalibrated"
    predictive["long_name"] += ", recalibrated"
    errors["comment"] = (
        "Latent: the uncertainty of the noise-free field under the prior, mathematical and computational "
        "together, WITHOUT noise and without recalibration. The standard deviation of an observation is "
        f"{name}_predictive_std, its quantiles are {name}_quantile: these alone are recalibrated, and where "
        "the error bars of the prior are too wide, the former can be smaller than this."
    )
    predictive["comment"] = (
        f"Standard deviation of the published law of an observation, whose quantiles are {name}_quantile: "
        f"that of the prior, sqrt({name}_std**2 + noise_variance), corrected by errors at points that were "
        "not used."
    )
    return group
