"""The groups of a published run as data sets: checked shapes, names and CF attributes from the layout."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array
from cagp_dist.calibration.laboratory import Calibration
from cagp_dist.calibration.pit import histogram, unit_weights
from cagp_dist.calibration.scores import PointScores, Scores
from cagp_dist.calibration.strata import Strata
from cagp_dist.calibration.verdict import compact_cells, coverage_test, judge
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import unit_sphere
from cagp_dist.regions import EARTH_SQUARE_KILOMETRES, Region
from cagp_dist.store import simulated
from cagp_dist.store.layout import (
    BY_LEVEL,
    COORDINATES,
    LOCAL_SCALE,
    MISSING,
    NODES_PER_CELL,
    OF_CELLS,
    OF_PLAIN_LAW,
    OF_REGIONS,
    PLAIN,
    QUANTILE_LEVEL,
    QUANTILE_LEVELS,
    REGION,
    REGION_DEFINITION,
    SCORES,
    STATION_NAME,
    attributes_of,
    dimensions_of,
    optional_of,
)
from cagp_dist.store.stratified import of_strata
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
    """

    std: Array
    quantiles: Array
    local_scale: Array | None = None

    def on_grid(self, fields: Callable[[Array], Array]) -> "PublishedLaw":
        """Put values of cells (T, q) into fields (T, P, Q)."""
        return PublishedLaw(
            fields(self.std),
            np.stack([fields(each) for each in np.moveaxis(self.quantiles, 1, 0)], axis=1),
            None if self.local_scale is None else fields(self.local_scale),
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

    Parameters
    ----------
    times : array_like of datetime64, shape (T,)
    latitude_degrees, longitude_degrees : array_like, shape (q,)
    mean, observed : array_like, shape (T, q)
        In the unit of the variable; a vector (q,) when T is 1.
    std : array_like, shape (T, q) or (q,)
        Latent standard deviation in that unit, **without noise**; (q,) is repeated for each time.
    noise_variance : float, or array_like, shape (q,)
        In its square; makes the predictive standard deviation.
    computational_std : array_like, shape (T, q) or (q,), optional
        Part of the latent standard deviation that is unfinished computation, at most.
    law : PublishedLaw, optional
        Of an observation, where it is not the Gaussian one of mean, std and noise.
    variable : Variable
        What is analysed.
    names : array_like of str, shape (q,), optional
        Of the points.

    Raises
    ------
    ArgumentError
        If a shape does not fit.
    """
    coordinates = _point_coordinates(times, latitude_degrees, longitude_degrees, names)
    group = _dataset(
        "posterior",
        coordinates,
        {
            **_posterior(variable, mean, std, noise_variance, computational_std, law),
            variable.name: observed,
        },
        variable,
        title=f"Posterior {variable.long_name} at test points",
    )
    return _counting_missing(_of_law(group, variable.name, law), variable.name)


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

    Parameters
    ----------
    times : array_like of datetime64, shape (T,)
    latitude_degrees, longitude_degrees : array_like, shape (P,) and (Q,)
        Axes of the grid, ascending.
    mean : array_like, shape (T, P, Q)
        In the unit of the variable; (P, Q) when T is 1.
    std : array_like, shape (T, P, Q) or (P, Q)
        Latent standard deviation in that unit, **without noise**; (P, Q) is repeated for each time.
    noise_variance : float
        In its square; makes the predictive standard deviation.
    computational_std : array_like, shape (T, P, Q) or (P, Q), optional
        Part of the latent standard deviation that is unfinished computation, at most.
    law : PublishedLaw, optional
        Of an observation at each cell, where it is not the Gaussian one; arrays (T, P, Q).
    variable : Variable
        What is analysed.
    nodes_per_cell : int
        Where values are means over cells, nodes of quadrature in each; there is then no predictive standard
        deviation, for nobody observes a mean. 0 where they are those of the field at the points.

    Raises
    ------
    ArgumentError
        If a shape does not fit.
    """
    group = _dataset(
        "map",
        _axes(times, latitude_degrees, longitude_degrees),
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
    """Group ``map`` where its error bars are in ``map_std``, on a coarser grid: the mean alone.

    Parameters
    ----------
    times, latitude_degrees, longitude_degrees, mean, variable, nodes_per_cell
        As for `map_group`.

    Raises
    ------
    ArgumentError
        If a shape does not fit.
    """
    group = _dataset(
        "map",
        _axes(times, latitude_degrees, longitude_degrees),
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
    group = _dataset(
        "targets",
        _point_coordinates(times, latitude_degrees, np.mod(longitude_degrees, 360.0), names),
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

    Parameters
    ----------
    times : array_like of datetime64, shape (T,)
    regions : sequence of Region, length r
        Names, definitions and areas.
    mean : array_like, shape (T, r)
        In the unit of the variable; a vector (r,) when T is 1.
    std : array_like, shape (T, r) or (r,)
        Standard deviation of the mean in that unit, without noise; (r,) is repeated for each time.
    computational_std : array_like, shape (T, r) or (r,), optional
        Part of it that is unfinished computation, at most.
    variable : Variable
        What is analysed.
    resolution_degrees : float
        Height of the cells that the means are sums over.

    Raises
    ------
    ArgumentError
        If a shape does not fit.
    """
    name = variable.name
    errors = {f"{name}_std": std}
    if computational_std is not None:
        errors[f"{name}_std_computational"] = computational_std
    group = _dataset(
        "regions",
        {
            "time": _coordinate("time", "time", times),
            REGION: _coordinate(REGION, REGION, [region.name for region in regions]),
            REGION_DEFINITION: _coordinate(
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


def calibration_group(
    *,
    times: ArrayLike,
    latitude_degrees: ArrayLike,
    longitude_degrees: ArrayLike,
    pit: ArrayLike,
    scores: Scores,
    area_weight: ArrayLike | None = None,
    of_values: PointScores | None = None,
    plain: tuple[PointScores, Scores] | None = None,
    strata: Sequence[Strata] = (),
    variable: Variable = T2M,
    names: ArrayLike | None = None,
) -> xr.Dataset:
    """Group ``calibration``: PIT values at the test points, their histogram, and the pooled scores.

    Whether the error bars hold what they promise is in its attributes ``calibration_status`` and
    ``calibration_statement``, see `cagp_dist.calibration.verdict`.

    Parameters
    ----------
    times, latitude_degrees, longitude_degrees, names : array_like
        As in `posterior_group`.
    pit : array_like, shape (T, q)
        PIT values of the observations, noise included; NaN where nothing was observed.
    scores : Scores
        Pooled over times and points, with the same weights.
    area_weight : array_like, shape (q,), optional
        Area that each point stands for, on any positive scale; equal when omitted.
    of_values : PointScores, optional
        Of each observation, shape (T, q); NaN where nothing was observed.
    plain : PointScores and Scores, optional
        Of the Gaussian law, where the published one was recalibrated.
    strata : sequence of Strata
        Ways to divide the test points, where ``of_values`` are given (`cagp_dist.store.stratified`).
    variable : Variable
        What is analysed.

    Raises
    ------
    ArgumentError
        If a shape does not fit or a PIT value lies outside [0, 1].
    """
    weights = unit_weights(area_weight, np.shape(latitude_degrees))
    where = unit_sphere(latitude_degrees, longitude_degrees)
    cells = compact_cells(where)
    present = ~np.isnan(np.atleast_2d(pit))
    values, shares = np.asarray(pit, dtype=np.float64), weights
    if not present.all():  # each observation with the cell and the area of its place
        place = np.nonzero(present)[1]
        values, shares, cells = np.atleast_2d(pit)[present], weights[place], cells[place]
    every_point, by_area = histogram(values), histogram(values, weights=shares)
    tests = [
        coverage_test(values, levels=scores.levels, cells=cells, weights=given) for given in (None, shares)
    ]
    verdict = judge(*tests, observations=values.size)
    coordinates = _point_coordinates(times, latitude_degrees, longitude_degrees, names)
    coordinates["level"] = _coordinate("level", "level", scores.levels)
    by_stratum: dict[str, ArrayLike] = {}
    if of_values is not None:
        of_plain = None if plain is None else plain[0]
        named, by_stratum = of_strata(of_values, of_plain, where, strata, weights=weights)
        coordinates |= named
    group = _dataset(
        "calibration",
        coordinates,
        {
            "pit": pit,
            "area_weight": weights,
            "pit_count": every_point.counts.astype(np.int64),
            "pit_count_area_weighted": by_area.counts,
            "pit_bin": every_point.edges,
            "coverage": scores.coverage,
            "coverage_area_weighted": scores.coverage_area_weighted,
            "coverage_standard_error": tests[0].standard_error,
            "coverage_standard_error_area_weighted": tests[1].standard_error,
            **{name: getattr(scores, name) for name in SCORES},
            **{
                f"{name}{by}": getattr(scores, f"{name}{by}")
                for name in BY_LEVEL
                for by in ("", "_area_weighted")
            },
            **_of_values(of_values),
            **({} if plain is None else _of_plain_law(*plain)),
            **by_stratum,
        },
        variable,
        title=f"Calibration of {variable.long_name} at test points",
    )
    for name, counted in (("pit_count", every_point), ("pit_count_area_weighted", by_area)):
        group[name].attrs |= {
            "uniform_expected": counted.expected,
            "uniform_lower_95": counted.lower,
            "uniform_upper_95": counted.upper,
            "comment": "A count of independent uniform values lies between the bounds with probability 0.95.",
        }
    group = _counting_missing(group, "pit")
    return group.assign_attrs(calibration_status=verdict.kind, calibration_statement=verdict.statement)


def _of_values(found: PointScores | None) -> dict[str, ArrayLike]:
    """Scores of each observation."""
    return {} if found is None else {"nll_of_value": found.nll, "crps_of_value": found.crps}


def _of_plain_law(of_values: PointScores, scores: Scores) -> dict[str, ArrayLike]:
    """Everything that is said of laws, of the plain one."""
    said = {"pit": of_values.pit, **_of_values(of_values)}
    return {f"{name}{PLAIN}": said[name] if name in said else getattr(scores, name) for name in OF_PLAIN_LAW}


def simulation_group(
    *,
    latitude_degrees: ArrayLike,
    longitude_degrees: ArrayLike,
    found: Calibration,
    area_weight: ArrayLike,
    variable: Variable = T2M,
) -> xr.Dataset:
    """Group ``simulation``: what the error bars of the solver did on fields drawn from the prior.

    The verdict is in its attributes ``simulation_status`` and ``simulation_statement``, see
    `cagp_dist.calibrate`.

    Parameters
    ----------
    latitude_degrees, longitude_degrees : array_like, shape (q,)
        Where errors were looked at.
    found : Calibration
        What was found there.
    area_weight : array_like, shape (q,)
        Area that each point stands for, on any positive scale.
    variable : Variable
        What is analysed.

    Raises
    ------
    ArgumentError
        If a shape does not fit.
    """
    counts, tests, joint, scored = found.histogram, found.tests, found.joint, found.scores
    group = _dataset(
        "simulation",
        {
            "latitude": _coordinate("latitude", "point", latitude_degrees),
            "longitude": _coordinate("longitude", "point", longitude_degrees),
            "level": _coordinate("level", "level", scored.levels),
        },
        {
            "z": found.z,
            "pit": found.pit,
            "error_ratio": found.point_std,
            "area_weight": unit_weights(area_weight, np.shape(latitude_degrees)),
            "pit_bin": counts.edges,
            "pit_count": counts.counts.astype(np.int64),
            "coverage": scored.coverage,
            "coverage_area_weighted": scored.coverage_area_weighted,
            "error_ratio_joint": joint.std,
            "error_ratio_along": tests.z_std,
            "error_ratio_by_area": found.area_std,
            "error_ratio_by_area_standard_error": found.area_std_error,
            "ks_statistic": tests.ks_statistic,
            "ks_pvalue": tests.ks_pvalue,
            "variance_pvalue": tests.variance_pvalue,
            "mean_pvalue": tests.mean_pvalue,
            "rank_pvalue": found.rank_pvalue,
            "joint_pvalue": joint.pvalue,
            "null_space_error": joint.null_error,
        },
        variable,
        title=f"Error bars of {variable.long_name} on fields drawn from the prior",
    )
    group["pit"].attrs["long_name"] = "probability integral transform of z"
    for name, by in (("coverage", ""), ("coverage_area_weighted", ", points weighted by area")):
        group[name].attrs["long_name"] = f"fraction of true values inside the central interval{by}"
    for name in ("pit", "coverage", "coverage_area_weighted"):
        group[name].attrs["comment"] = simulated.LATENT
    group["ks_pvalue"].attrs["comment"] = simulated.INDEPENDENT
    group["pit_count"].attrs |= {
        "uniform_expected": counts.expected,
        "uniform_lower_95": counts.lower,
        "uniform_upper_95": counts.upper,
        "comment": "A count of independent uniform values lies between the bounds with probability 0.95.",
    }
    return group.assign_attrs(
        simulation_status=found.verdict.kind,
        simulation_statement=found.verdict.statement,
        null_space_dimension=joint.null_dimension,
    )


def trace_group(
    scores: Sequence[Scores], *, seconds: Sequence[float], variable: Variable = T2M
) -> xr.Dataset:
    """Group ``trace``: the scores after each iteration, the prior first.

    Parameters
    ----------
    scores : sequence of Scores, length m + 1
        Iterations 0 to m, all with the same levels.
    seconds : sequence of float, length m + 1
        Wall time from the start of the solve to the end of each iteration.
    variable : Variable
        What is analysed.

    Raises
    ------
    ArgumentError
        If there is no iteration, or lengths or levels differ.
    """
    if not scores or len(scores) != len(seconds):
        raise ArgumentError(
            f"there are {len(scores)} scores and {len(seconds)} times; expected one of each per iteration, "
            "iteration 0 (the prior) included."
        )
    levels = scores[0].levels
    if any(not np.array_equal(step.levels, levels) for step in scores):
        raise ArgumentError("levels differ between iterations; score every iteration with the same levels.")
    coordinates = {
        "iteration": _coordinate("iteration", "iteration", np.arange(len(scores))),
        "level": _coordinate("level", "level", levels),
    }
    return _dataset(
        "trace",
        coordinates,
        {
            **{
                name: np.array([getattr(step, name) for step in scores])
                for name in (*SCORES, "coverage", "coverage_area_weighted")
            },
            "seconds": np.asarray(seconds, dtype=np.float64),
        },
        variable,
        title=f"Scores of {variable.long_name} after each solver iteration",
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

    Parameters
    ----------
    times : array_like of datetime64, shape (T,)
    latitude_degrees, longitude_degrees : array_like, shape (n,)
    values : array_like, shape (T, n)
        In the unit of the variable; a vector (n,) when T is 1.
    variable : Variable
        What was observed.
    names : array_like of str, shape (n,), optional
        Of the points.

    Raises
    ------
    ArgumentError
        If a shape does not fit.
    """
    coordinates = _point_coordinates(times, latitude_degrees, longitude_degrees, names)
    group = _dataset(
        "observations",
        coordinates,
        {variable.name: values},
        variable,
        title=f"Observed {variable.long_name}",
    )
    return _counting_missing(group, variable.name)


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
    levels = _coordinate(QUANTILE_LEVEL, QUANTILE_LEVEL, np.asarray(QUANTILE_LEVELS))
    group = group.assign_coords({QUANTILE_LEVEL: levels})
    errors, predictive = group[f"{name}_std"].attrs, group[f"{name}_predictive_std"].attrs
    errors["comment"] = (
        "Latent: the uncertainty of the noise-free field under the prior, mathematical and computational "
        "together, WITHOUT noise and without recalibration. The standard deviation of an observation is "
        f"{name}_predictive_std, its quantiles are {name}_quantile."
    )
    predictive["comment"] = (
        f"Standard deviation of the published law of an observation, whose quantiles are {name}_quantile: "
        f"that of the prior, sqrt({name}_std**2 + noise_variance), corrected by errors at points that were "
        "not used."
    )
    return group


def _axes(
    times: ArrayLike, latitude_degrees: ArrayLike, longitude_degrees: ArrayLike
) -> dict[str, xr.Variable]:
    return {
        "time": _coordinate("time", "time", times),
        "latitude": _coordinate("latitude", "latitude", latitude_degrees, axis="Y"),
        "longitude": _coordinate("longitude", "longitude", longitude_degrees, axis="X"),
    }


def _counting_missing(group: xr.Dataset, name: str) -> xr.Dataset:
    """Say how many values of an array are missing, if there are any: else a run may not have them."""
    missing = int(np.isnan(group[name].values).sum())
    return group.assign_attrs({MISSING: missing}) if missing else group


def _point_coordinates(
    times: ArrayLike, latitude_degrees: ArrayLike, longitude_degrees: ArrayLike, names: ArrayLike | None
) -> dict[str, xr.Variable]:
    named = {} if names is None else {STATION_NAME: _coordinate(STATION_NAME, "point", names)}
    return {
        "time": _coordinate("time", "time", times),
        "latitude": _coordinate("latitude", "point", latitude_degrees),
        "longitude": _coordinate("longitude", "point", longitude_degrees),
        **named,
    }


def _coordinate(name: str, dimension: str, values: ArrayLike, *, axis: str | None = None) -> xr.Variable:
    array = np.asarray(values)
    if array.ndim != 1:
        raise ArgumentError(f"{name} has shape {array.shape}; expected a vector.")
    if name == "time":
        if array.dtype.kind != "M":
            raise ArgumentError(f"time has dtype {array.dtype}; expected datetime64, UTC.")
        array = array.astype("datetime64[ns]")
    elif array.dtype.kind == "f":
        array = array.astype(np.float64)
    return xr.Variable(dimension, array, {**COORDINATES[name], **({"axis": axis} if axis else {})})


def _dataset(
    group: str,
    coordinates: Mapping[str, xr.Variable],
    variables: Mapping[str, ArrayLike],
    analysed: Variable,
    *,
    title: str,
) -> xr.Dataset:
    """Build the data set of a group; a variable without its leading axis is repeated along it."""
    lengths = {str(dim): size for variable in coordinates.values() for dim, size in variable.sizes.items()}
    known = {**dimensions_of(analysed.name)[group], **optional_of(analysed.name).get(group, {})}
    data: dict[str, xr.Variable] = {}
    for name, values in variables.items():
        dimensions = known[name]
        array = np.asarray(values)
        expected = tuple(
            lengths.setdefault(dim, array.shape[axis] if axis < array.ndim else 1)
            for axis, dim in enumerate(dimensions)
        )
        repeats = name.endswith(("_std", "_std_computational")) or expected[:1] == (1,)
        if array.shape != expected and not (repeats and array.shape == expected[1:]):
            raise ArgumentError(
                f"{name} of group {group!r} has shape {array.shape}; expected {expected}, "
                f"dimensions {dimensions}. A posterior mean of shape (q, T) must be transposed."
            )
        if array.dtype.kind == "f":
            array = array.astype(np.float64)
        data[name] = xr.Variable(
            dimensions, np.broadcast_to(array, expected), dict(attributes_of(analysed)[name])
        )
    return xr.Dataset(data, dict(coordinates), {"Conventions": "CF-1.13", "title": title})
