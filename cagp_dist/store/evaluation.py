"""The groups of a published run that say how right it is: calibration, simulation and trace."""

from collections.abc import Sequence

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from cagp_dist.calibration.laboratory import Calibration
from cagp_dist.calibration.pit import Histogram, histogram, unit_weights
from cagp_dist.calibration.scores import PointScores, Scores
from cagp_dist.calibration.strata import Strata
from cagp_dist.calibration.verdict import compact_cells, coverage_test, judge
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import unit_sphere
from cagp_dist.store import simulated
from cagp_dist.store.dataset import coordinate, counting_missing, dataset, point_coordinates
from cagp_dist.store.layout import BY_LEVEL, OF_PLAIN_LAW, PLAIN, SCORES
from cagp_dist.store.stratified import of_strata
from cagp_dist.variables import T2M, Variable


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

    Shapes: ``pit`` (T, q), ``area_weight`` (q,).
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
    coordinates = point_coordinates(times, latitude_degrees, longitude_degrees, names)
    coordinates["level"] = coordinate("level", "level", scores.levels)
    by_stratum: dict[str, ArrayLike] = {}
    if of_values is not None:
        of_plain = None if plain is None else plain[0]
        named, by_stratum = of_strata(of_values, of_plain, where, strata, weights=weights)
        coordinates |= named
    group = dataset(
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
        group[name].attrs |= _if_uniform(counted)
    group = counting_missing(group, "pit")
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

    Shapes: ``latitude_degrees, longitude_degrees`` (q,), ``area_weight`` (q,).
    """
    counts, tests, joint, scored = found.histogram, found.tests, found.joint, found.scores
    group = dataset(
        "simulation",
        {
            "latitude": coordinate("latitude", "point", latitude_degrees),
            "longitude": coordinate("longitude", "point", longitude_degrees),
            "level": coordinate("level", "level", scored.levels),
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
    group["pit_count"].attrs |= _if_uniform(counts)
    return group.assign_attrs(
        simulation_status=found.verdict.kind,
        simulation_statement=found.verdict.statement,
        null_space_dimension=joint.null_dimension,
    )


def _if_uniform(counted: Histogram) -> dict[str, str | float]:
    """Say beside the counts of PIT values what they would be of uniform ones."""
    return {
        "uniform_expected": counted.expected,
        "uniform_lower_95": counted.lower,
        "uniform_upper_95": counted.upper,
        "comment": "A count of independent uniform values lies between the bounds with probability 0.95.",
    }


def trace_group(
    scores: Sequence[Scores],
    *,
    seconds: Sequence[float],
    iterations: Sequence[int] | None = None,
    variable: Variable = T2M,
) -> xr.Dataset:
    """Group ``trace``: the scores after each iteration, the prior first."""
    if not scores or len(scores) != len(seconds):
        raise ArgumentError(
            f"there are {len(scores)} scores and {len(seconds)} times; expected one of each per iteration, "
            "iteration 0 (the prior) included."
        )
    levels = scores[0].levels
    if any(not np.array_equal(step.levels, levels) for step in scores):
        raise ArgumentError("levels differ between iterations; score every iteration with the same levels.")
    coordinates = {
        "iteration": coordinate(
            "iteration", "iteration", np.arange(len(scores)) if iterations is None else np.asarray(iterations)
        ),
        "level": coordinate("level", "level", levels),
    }
    return dataset(
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
