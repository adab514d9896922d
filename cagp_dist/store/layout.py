"""What a published run holds: groups, variables, dimensions, units, meaning and plausible ranges.

::

    posterior     t2m_mean t2m_std t2m_predictive_std t2m (time, point)    latitude longitude (point)
    map           t2m_mean t2m_std t2m_predictive_std (time, latitude, longitude)
    map_std       the same on a coarser grid, if the job asks for that; map has the mean alone then
                  all three with t2m_std_computational where it is known what the solver left undone
    calibration   pit nll_of_value crps_of_value (time, point)  area_weight (point)  pit_bin (pit_edge)
                  pit_count (pit_interval)   coverage coverage_standard_error mean_width interval_score
                  (level)   rmse nll crps ks_statistic ks_pvalue ()
    trace         rmse nll crps ks_statistic ks_pvalue seconds (iteration)  coverage (iteration, level)
    targets       t2m_mean t2m_std t2m_predictive_std (time, point)        latitude longitude (point)
    regions       t2m_mean t2m_std (time, region)  region_area (region)    region_definition (region)
    observations  t2m (time, point)                                        latitude longitude (point)
    errors        standardised_error (time, point)                         latitude longitude (point)
                  of predictions that correct the laws, where jobs of later times are to learn from them
    error_draws   error_draw (time, draw, latitude, longitude)
                  of the posterior mean of the map, where it is the prior mean of a later time
    simulation    z pit (simulation)  error_ratio area_weight (point)  pit_count (pit_interval)
                  pit_bin (pit_edge)  coverage (level)  error_ratio_joint joint_pvalue and others ();
                  on fields drawn from the prior, if the job was calibrated (`cagp_dist.store.simulated`)

Where the error bars were recalibrated, ``posterior``, ``map`` or ``map_std``, and ``targets`` hold the
quantiles of the published law as well, ``t2m_quantile`` (time, quantile_level, ...), and those of a local
scale the factor ``local_scale`` (time, ...) of their width; ``calibration`` then has everything that is said
of laws a second time with the suffix ``_plain``, for the Gaussian law without recalibration.

A run of another variable has its name in place of ``t2m``, and its unit. Groups of points have the coordinate
``station_name`` (point) as well, if the table that they come from names its places.

Everything that is averaged over test points, histogram and coverage included, comes a second time with the
suffix ``_area_weighted``: each point counted with the area that it stands for, ``area_weight``. Group
``calibration`` has scores by stratum and the reliability at many levels as well, weighted like that alone
(`cagp_dist.store.stratified`).

Attributes of variables and coordinates follow CF-1.13.
"""

from collections.abc import Mapping
from functools import cache
from math import prod
from typing import TypeAlias

import numpy as np
import xarray as xr

from cagp_dist.calibration.pit import CORRELATED_TEST_POINTS
from cagp_dist.errors import StoreError
from cagp_dist.store import simulated, stratified
from cagp_dist.variables import T2M, UNCHECKED, Variable, variable_of

MISSING = "missing_observations"
"""Attribute of a group: how many observations there are not, NaN in its arrays; left out if all are."""

ERRORS, STANDARDISED_ERROR = "errors", "standardised_error"
"""Group of the errors that correct the laws, and its array."""

ERROR_DRAWS, ERROR_DRAW = "error_draws", "error_draw"
"""Group of draws of the error of a map, and its array."""

ERRORS_OF = "errors_of"
"""Attribute of both groups: of what kind of job their errors are, as JSON."""

FORMAT_VERSION = 2
"""Raised when names, dimensions or meaning change, so that an old run is never taken for a new one."""

Attributes: TypeAlias = dict[str, str | int | float | bool]
_PLAIN = ("rmse", "nll", "crps", "ks_statistic", "ks_pvalue")
SCORES = (*_PLAIN, *(f"{name}_area_weighted" for name in _PLAIN))
"""Numbers of the run as a whole, and after each iteration."""

BY_LEVEL = ("mean_width", "interval_score")
"""Scores of central intervals, one for each level, beside their coverage."""

OF_VALUES = ("nll_of_value", "crps_of_value")
"""Scores of each observation."""

PLAIN = stratified.PLAIN
"""Suffix of what is said of the Gaussian law without recalibration."""

QUANTILE_LEVELS = (0.025, 0.05, 0.25, 0.5, 0.75, 0.95, 0.975)
"""Of the quantiles of recalibrated laws: the median, and the ends of central intervals of 50, 90 and 95 %."""

QUANTILE_LEVEL, LOCAL_SCALE = "quantile_level", "local_scale"

_BY_AREA = "Each test point counted with area_weight."


def _unweighted(variable: Variable) -> dict[str, Attributes]:
    name, said = variable.name, variable.long_name
    noun = "temperature" if variable.is_temperature else "value"
    varying = "temperature that varies" if variable.is_temperature else "what varies"
    unit: Attributes = {"units": variable.units} if variable.units else {}
    standard: Attributes = {"standard_name": variable.standard_name} if variable.standard_name else {}
    error: Attributes = {"standard_name": f"{variable.standard_name} standard_error"} if standard else {}
    kept: Attributes = {
        key: text for key, text in variable.attributes().items() if key in ("transform", "comment")
    }
    field: Attributes = {**unit, **standard, "cell_methods": "time: point"}
    unchecked: Attributes = {} if variable.checked else {"plausible_range": UNCHECKED}
    latent = (
        f"Latent: the uncertainty of the noise-free {noun}, mathematical and computational together. "
        f"WITHOUT noise. The standard deviation of a new observation is sqrt({name}_std**2 + "
        f"noise_variance), published as {name}_predictive_std, with noise_variance among the attributes of "
        "the root group."
    )
    noisy = (
        f"sqrt({name}_std**2 + noise_variance). For measurements, noise_variance is their error. For values "
        f"of a reanalysis it is mostly {varying} over less than the distance of the points: this is then "
        "the uncertainty of a value of the reanalysis."
    )
    unfinished = (
        f"Square root of an upper bound of the computational part of {name}_std**2: what more iterations of "
        f"the solver would take away, at most. The rest, {name}_std**2 - {name}_std_computational**2, is "
        "what the observations do not tell, at least. Zero where the solve was exact."
    )
    predictive = (
        f"Against observations, of the published law, whose standard deviation is {name}_predictive_std."
    )
    return {
        f"{name}_mean": {**field, "long_name": f"posterior mean of {said}",
                         "ancillary_variables": f"{name}_std {name}_predictive_std", **kept, **unchecked},
        f"{name}_std": {**unit, **error,
                        "long_name": f"posterior standard deviation of {said}, latent, without noise",
                        "comment": latent, **unchecked},
        f"{name}_predictive_std": {**unit, "long_name": f"predictive standard deviation of {said}, "
                                   "noise included", "comment": noisy, **unchecked},
        f"{name}_std_computational": {**unit, "long_name": "part of the posterior standard deviation of "
                                      f"{said} that is unfinished computation, at most",
                                      "comment": unfinished, **unchecked},
        name: {**field, "long_name": f"observed {said}", **kept, **unchecked},
        "region_area": {"units": "km2", "long_name": "area of the region"},
        "area_weight": {"units": "1", "long_name": "area that a test point stands for, mean 1",
                        "comment": "Its area over its probability of being chosen: equal for points that "
                        "were drawn in proportion to area, the area itself where every point was equally "
                        "likely."},
        "pit": {"units": "1", "long_name": "probability integral transform of the observation",
                "comment": f"Uniform on [0, 1] if calibrated. {predictive}"},
        f"{name}_quantile": {**field,
                             "long_name": f"quantile of the published law of an observation of {said}",
                             "comment": "Noise included.", **kept, **unchecked},
        LOCAL_SCALE: {"units": "1", "long_name": "local scale of the errors",
                      "comment": "By which the predictive standard deviation of the model is multiplied to "
                      "give the scale of the published law, a Student t law: learnt from errors near by."},
        STANDARDISED_ERROR: {"units": "1",
                             "long_name": f"error of a prediction of {said} over its standard deviation",
                             "comment": "Observation minus prediction, noise included in the standard "
                             "deviation. The prediction did not use the observation."},
        ERROR_DRAW: {**unit, "long_name": f"draw of the error of the posterior mean of {said}",
                     "comment": "Field minus posterior mean, jointly over the map, as the posterior has it: "
                     "latent, WITHOUT noise."},
        "nll_of_value": {"units": "1", "long_name": "negative log predictive density of the observation",
                         "comment": f"In nats. {predictive}"},
        "crps_of_value": {**unit, "long_name": "continuous ranked probability score of the observation",
                          "comment": predictive},
        "mean_width": {**unit, "long_name": "mean width of the central interval", "comment": predictive},
        "interval_score": {**unit, "long_name": "mean interval score of the central interval",
                           "comment": "Width plus 2 / (1 - level) times the distance of an observation "
                           f"outside; smaller is better. {predictive}"},
        "pit_count": {"units": "1", "long_name": "number of PIT values per interval between pit_bin edges"},
        "pit_bin": {"units": "1", "long_name": "edges of the PIT histogram"},
        "rmse": {**unit, "long_name": "root mean square error against observations"},
        "nll": {"units": "1", "long_name": "mean negative log predictive density in nats",
                "comment": predictive},
        "crps": {**unit, "long_name": "mean continuous ranked probability score", "comment": predictive},
        "ks_statistic": {"units": "1", "long_name": "Kolmogorov-Smirnov distance of PIT values from uniform"},
        "ks_pvalue": {"units": "1", "long_name": "Kolmogorov-Smirnov p-value of PIT values",
                      "comment": CORRELATED_TEST_POINTS},
        "coverage": {"units": "1", "long_name": "fraction of observations inside the central interval",
                     "comment": predictive},
        "coverage_standard_error": {"units": "1", "long_name": "standard error of coverage",
                                    "comment": "If the error bars are right. It allows for the correlation "
                                    "of errors of neighbouring points, not for one of all points."},
        "seconds": {"units": "s", "long_name": "wall time from the start of the solve to this iteration"},
        **simulated.ATTRIBUTES,
    }  # fmt: skip


_AVERAGED = (*_PLAIN, "pit_count", "coverage", "coverage_standard_error", *BY_LEVEL)
_OF_LAWS = ("nll", "crps", "ks_statistic", "ks_pvalue", "coverage", *BY_LEVEL)
OF_PLAIN_LAW = ("pit", *OF_VALUES, *_OF_LAWS, *(f"{name}_area_weighted" for name in _OF_LAWS))
"""What a recalibrated run says of the Gaussian law too, with the suffix ``_plain``."""


@cache
def attributes_of(variable: Variable) -> Mapping[str, Attributes]:
    """CF attributes of everything that a run of a variable holds, by the names of its arrays."""
    plain = _unweighted(variable)
    published = {
        **plain,
        **{
            f"{name}_area_weighted": plain[name]
            | {
                "long_name": f"{plain[name]['long_name']}, points weighted by area",
                "comment": f"{_BY_AREA} {plain[name].get('comment', '')}".strip(),
            }
            for name in _AVERAGED
        },
    }
    return {
        **published,
        **stratified.attributes_of(variable),
        **{
            f"{name}{PLAIN}": published[name]
            | {
                "long_name": f"{published[name]['long_name']}, of the Gaussian law without recalibration",
                "comment": "Of the Gaussian law whose variance is "
                f"{variable.name}_std**2 + noise_variance, beside that of the published law.",
            }
            for name in OF_PLAIN_LAW
        },
    }


VARIABLES: Mapping[str, Attributes] = attributes_of(T2M)
"""Of a run of 2 metre temperature."""

STATION_NAME = "station_name"
"""Coordinate of points whose names are known; empty where one has none."""

REGION, REGION_DEFINITION = "region", "region_definition"
"""Dimension of means over regions with their names, and where these are."""

COORDINATES: Mapping[str, Attributes] = {
    "time": {"standard_name": "time", "long_name": "time", "axis": "T"},
    "latitude": {"standard_name": "latitude", "long_name": "latitude", "units": "degrees_north"},
    "longitude": {"standard_name": "longitude", "long_name": "longitude", "units": "degrees_east"},
    STATION_NAME: {"standard_name": "platform_name", "long_name": "name of the place"},
    REGION: {"long_name": "name of the region"},
    REGION_DEFINITION: {"long_name": "where the region is"},
    "level": {"units": "1", "long_name": "level of the central prediction interval"},
    QUANTILE_LEVEL: {"units": "1", "long_name": "probability of a value no larger than the quantile"},
    "iteration": {"units": "1", "long_name": "solver iteration, 0 is the prior"},
    **stratified.COORDINATES,
}

_POINTS, _GRID = ("time", "point"), ("time", "latitude", "longitude")
_REGIONS = ("time", REGION)


def dimensions_of(variable: str) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Arrays and their dimensions in each group of a run of a variable."""
    posterior = tuple(f"{variable}_{kind}" for kind in ("mean", "std", "predictive_std"))
    by_level = ("coverage", "coverage_area_weighted")
    errors = ("coverage_standard_error", "coverage_standard_error_area_weighted")
    return {
        "posterior": dict.fromkeys((*posterior, variable), _POINTS),
        "map": {f"{variable}_mean": _GRID},
        "map_std": dict.fromkeys(posterior, _GRID),
        "targets": dict.fromkeys(posterior, _POINTS),
        "regions": {**dict.fromkeys(posterior[:2], _REGIONS), "region_area": (REGION,)},
        "calibration": {
            "pit": _POINTS,
            "area_weight": ("point",),
            "pit_bin": ("pit_edge",),
            **dict.fromkeys(("pit_count", "pit_count_area_weighted"), ("pit_interval",)),
            **dict.fromkeys((*by_level, *errors), ("level",)),
            **dict.fromkeys(SCORES, ()),
        },
        "trace": {
            **dict.fromkeys((*SCORES, "seconds"), ("iteration",)),
            **dict.fromkeys(by_level, ("iteration", "level")),
        },
        "observations": {variable: _POINTS},
        ERRORS: {STANDARDISED_ERROR: _POINTS},
        ERROR_DRAWS: {ERROR_DRAW: ("time", "draw", *_GRID[1:])},
        "simulation": simulated.DIMENSIONS,
    }


def optional_of(variable: str) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Arrays that a group may hold or not, and their dimensions."""
    name, quantile = f"{variable}_std_computational", f"{variable}_quantile"
    errors = (f"{variable}_std", f"{variable}_predictive_std", name)
    at_points = {name: _POINTS, quantile: ("time", QUANTILE_LEVEL, *_POINTS[1:]), LOCAL_SCALE: _POINTS}
    on_grid = {quantile: ("time", QUANTILE_LEVEL, *_GRID[1:]), LOCAL_SCALE: _GRID}
    of_laws = {
        **dict.fromkeys(("pit", *OF_VALUES), _POINTS),
        **{
            f"{score}{weighting}": () if score in _PLAIN else ("level",)
            for score in _OF_LAWS
            for weighting in ("", "_area_weighted")
        },
    }
    return {
        "posterior": at_points,
        "map": {**dict.fromkeys(errors, _GRID), **on_grid},
        "map_std": {name: _GRID, **on_grid},
        "targets": at_points,
        "regions": {name: _REGIONS},
        "calibration": {
            # runs of before have none of these
            **{key: of_laws[key] for key in of_laws if key.startswith((*OF_VALUES, *BY_LEVEL))},
            **{f"{key}{PLAIN}": dimensions for key, dimensions in of_laws.items()},
            **stratified.DIMENSIONS,
        },
    }


DIMENSIONS: Mapping[str, Mapping[str, tuple[str, ...]]] = dimensions_of(T2M.name)
"""Of a run of 2 metre temperature."""

OPTIONAL: Mapping[str, Mapping[str, tuple[str, ...]]] = optional_of(T2M.name)
"""Of such a run, what it may hold or not."""

_RANGES: Mapping[str, tuple[float, float]] = {
    "latitude": (-90.0, 90.0),
    "longitude": (0.0, 360.0),
    **dict.fromkeys(("pit", f"pit{PLAIN}", "pit_bin", "level", QUANTILE_LEVEL), (0.0, 1.0)),
    **{
        f"{name}{weighting}{law}": (0.0, 1.0)
        for name in ("coverage", "coverage_standard_error", "ks_statistic", "ks_pvalue")
        for weighting in ("", "_area_weighted")
        for law in ("", PLAIN)
    },
    **{
        f"{name}{weighting}{law}": (0.0, np.inf)
        for name in ("pit_count", "rmse", "crps", "crps_of_value", *BY_LEVEL)
        for weighting in ("", "_area_weighted")
        for law in ("", PLAIN)
    },
    LOCAL_SCALE: (0.0, np.inf),
    **dict.fromkeys(("area_weight", "seconds", "iteration", "region_area"), (0.0, np.inf)),
    **simulated.RANGES,
    **stratified.RANGES,
}
NODES_PER_CELL = "nodes_per_cell"
"""Attribute of a map whose values are means over its cells: nodes of quadrature in each."""

OF_CELLS, OF_REGIONS = ", mean over the cell", ", mean over the region"
"""How the long names of such a map end, and of means over regions."""

_ABOUT = ("posterior", "map", "map_std", "targets", "regions", "observations")
"""Groups whose arrays carry the name of the variable."""

_MAPS = ("map", "map_std")
_OF_OBSERVATIONS = tuple(f"{key}{law}" for key in ("pit", *OF_VALUES) for law in ("", PLAIN))
"""Arrays of `calibration` that have no value where nothing was observed."""

_MAP_LONGITUDES = (-360.0, 360.0)
"""A map across Greenwich has negative longitudes west of it, so that its columns are in order."""


def variable_in(group: xr.Dataset) -> Variable | None:
    """Tell what a group of a run is about by names and attributes of its arrays; None if they do not say."""
    names = [str(name) for name in group.data_vars]
    stems = [name.removesuffix("_mean") for name in names if name.endswith("_mean")]
    name = next((stem for stem in stems if f"{stem}_std" in names), names[0] if len(names) == 1 else None)
    if (
        stems
        and len(names) == 1
        and str(group[names[0]].attrs.get("long_name", "")).startswith("posterior mean")
    ):
        name = stems[0]
    if name is None:
        return None
    # old and foreign runs may lack attributes of one of the two
    for key, said in ((f"{name}_mean", "posterior mean of "), (name, "observed ")):
        if key in group and group[key].attrs:
            attributes = dict(group[key].attrs)
            said_of = str(attributes.get("long_name", "")).removeprefix(said)
            attributes["long_name"] = said_of.removesuffix(OF_CELLS).removesuffix(OF_REGIONS)
            return variable_of(name, attributes)
    return variable_of(name, {})


DIMENSIONS_OF_MAP = ("time", "latitude", "longitude")


def check(name: str, group: xr.Dataset) -> None:
    """Check a group against the layout: variables, dimensions, finite values, plausible ranges."""
    if name not in DIMENSIONS:
        raise StoreError(f"a run has no group {name!r}; expected one of {', '.join(DIMENSIONS)}.")
    variable = (variable_in(group) if name in _ABOUT else None) or T2M
    ranges = {**_RANGES, **_plausible(variable)}
    optional = optional_of(variable.name).get(name, {})
    of_cells = name in _MAPS and NODES_PER_CELL in group.attrs
    for key, dimensions in {**dimensions_of(variable.name)[name], **optional}.items():
        if key not in group:
            if key in optional or (of_cells and key == f"{variable.name}_predictive_std"):
                continue
            raise StoreError(f"group {name!r} lacks the variable {key!r} with dimensions {dimensions}.")
        if group[key].dims != dimensions:
            raise StoreError(f"{name}/{key} has dimensions {group[key].dims}; expected {dimensions}.")
    pair = f"{variable.name}_std" in group, f"{variable.name}_predictive_std" in group
    if name == "map" and pair != (pair[0], pair[0] and not of_cells):
        raise StoreError(
            f"group 'map' has one of {variable.name}_std and {variable.name}_predictive_std; expected "
            f"both with dimensions {_GRID}, or none and a group map_std; of means over cells the first alone."
        )
    for found, variable_ in group.variables.items():
        key = str(found)
        if variable_.dtype.kind not in "fiu":
            continue
        values = variable_.values
        if name in _MAPS and variable_.dims[-2:] == DIMENSIONS_OF_MAP[-2:]:
            blank = int(group.attrs.get("blank_cells", 0)) * prod(variable_.shape[:-2])
            there = ~np.isnan(values)
            values = values[there] if np.count_nonzero(~there) == blank else values
        if key in (variable.name, STANDARDISED_ERROR, *_OF_OBSERVATIONS):
            there = ~np.isnan(values)  # stations do not all measure at all times
            values = values[there] if np.count_nonzero(~there) == group.attrs.get(MISSING, 0) else values
        if not np.isfinite(values).all():
            raise StoreError(
                f"{name}/{key} holds {np.count_nonzero(~np.isfinite(values))} NaN or infinite values of "
                f"{values.size}; a run with missing numbers is not published."
            )
        low, high = ranges.get(key, (-np.inf, np.inf))
        if name in (*_MAPS, ERROR_DRAWS) and key == "longitude":
            low, high = _MAP_LONGITUDES
        if values.size and not (low <= values.min() and values.max() <= high):
            units = variable.units if name in _ABOUT else str(group[key].attrs.get("units", ""))
            units = {"K": "kelvin", "": "unknown"}.get(units, units)
            raise StoreError(
                f"{name}/{key} ranges over {values.min():g}..{values.max():g}; plausible is "
                f"{low:g}..{high:g}. Check units ({units}), the prior and whether the solver converged."
            )
    for axis in ("latitude", "longitude") if name in _MAPS else ():
        if np.any(np.diff(group[axis].values) <= 0.0):
            raise StoreError(
                f"{name}/{axis} does not ascend; expected cells from south to north and from west to east "
                "without a jump, negative longitudes to the west of Greenwich."
            )


def _plausible(variable: Variable) -> dict[str, tuple[float, float]]:
    """Ranges of what is published of a variable; a mean that stopped early may overshoot the observed one."""
    name, width = variable.name, variable.high - variable.low
    if not variable.checked or not np.isfinite(width):
        errors = ("std", "predictive_std", "std_computational")
        return dict.fromkeys((f"{name}_{error}" for error in errors), (0.0, np.inf))
    return {
        name: (variable.low, variable.high),
        f"{name}_mean": (variable.low - 0.25 * width, variable.high + 0.25 * width),
        f"{name}_std": (0.0, width),
        f"{name}_std_computational": (0.0, width),
        f"{name}_predictive_std": (0.0, 50.0 * width),
        f"{name}_quantile": (variable.low - 50.0 * width, variable.high + 50.0 * width),
    }
