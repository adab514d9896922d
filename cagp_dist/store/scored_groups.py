"""The groups of a published run that say how right it is: calibration, simulation and trace."""

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from cagp_dist.calibration.simulation.laboratory import Calibration
from cagp_dist.calibration.verification.pit import AREA_WEIGHTED, Histogram, histogram, unit_weights
from cagp_dist.calibration.verification.scores import PointScores, Scores
from cagp_dist.calibration.verification.strata import RELIABILITY_LEVELS, Strata, Stratum, divided
from cagp_dist.calibration.verification.verdict import compact_cells, coverage_test, judge
from cagp_dist.errors import ArgumentError
from cagp_dist.space import SPHERE, Space
from cagp_dist.store.group_dataset import coordinate, coordinates_of, counting_missing, dataset
from cagp_dist.store.published_variables import (
    MISSING,
    PLAIN,
    RELIABILITY_LEVEL,
    STRATUM,
    STRATUM_DEFINITION,
    STRATUM_KIND,
    table,
)
from cagp_dist.variables import T2M, Variable

# Scores of measured values alone, where others are limits of detection
_OF_MEASURED = (
    "nll_of_value",
    "crps_of_value",
    *(f"stratum_{of}" for of in ("nll", "crps", "interval_score")),
)


def calibration_group(
    *,
    times: ArrayLike,
    north: ArrayLike,
    east: ArrayLike,
    space: Space = SPHERE,
    pit: ArrayLike,
    scores: Scores,
    area_weight: ArrayLike | None = None,
    of_values: PointScores | None = None,
    plain: tuple[PointScores, Scores] | None = None,
    strata: Sequence[Strata] = (),
    variable: Variable = T2M,
    names: ArrayLike | None = None,
    depths: ArrayLike | None = None,
    depth_units: str = "",
) -> xr.Dataset:
    """Group ``calibration``: PIT values (T, q) at the test points, their histogram, and the pooled scores.

    Its attributes ``calibration_status`` and ``calibration_statement`` say whether error bars hold.
    """
    weights = unit_weights(area_weight, np.shape(north))
    where = space.positions(np.asarray(north, dtype=np.float64), np.asarray(east, dtype=np.float64))
    cells = compact_cells(where)
    present = ~np.isnan(np.atleast_2d(pit))
    values, shares = np.asarray(pit, dtype=np.float64), weights
    if not present.all():  # each observation with the cell and the area of its place
        place = np.nonzero(present)[1]
        values, shares, cells = np.atleast_2d(pit)[present], weights[place], cells[place]
    weightings = {"": None, AREA_WEIGHTED: shares}
    counted = {by: histogram(values, weights=given) for by, given in weightings.items()}
    tests = {
        by: coverage_test(values, levels=scores.levels, cells=cells, weights=given)
        for by, given in weightings.items()
    }
    verdict = judge(*tests.values(), observations=values.size)
    arrays: dict[str, ArrayLike] = {
        "pit": pit,
        "area_weight": weights,
        "pit_bin": counted[""].edges,
        "pit_count": counted[""].counts.astype(np.int64),
        f"pit_count{AREA_WEIGHTED}": counted[AREA_WEIGHTED].counts,
        **{f"coverage_standard_error{by}": test.standard_error for by, test in tests.items()},
    }
    coordinates = coordinates_of(
        times, north, east, names, space=space, depths=depths, depth_units=depth_units
    )
    coordinates["level"] = coordinate("level", "level", scores.levels)
    parts: list[Stratum] = []
    if of_values is not None:
        parts = list(divided(~np.isnan(of_values.normal_score), where, strata, weights=weights))
        for name, what in ((STRATUM, "name"), (STRATUM_KIND, "kind"), (STRATUM_DEFINITION, "definition")):
            coordinates[name] = coordinate(name, STRATUM, [getattr(part, what) for part in parts])
        levels = np.asarray(RELIABILITY_LEVELS)
        coordinates[RELIABILITY_LEVEL] = coordinate(RELIABILITY_LEVEL, RELIABILITY_LEVEL, levels)
        arrays["stratum_observations"] = [int(np.count_nonzero(part.inside)) for part in parts]
    for suffix, (values_of, pooled) in {"": (of_values, scores), PLAIN: plain or (None, None)}.items():
        measured: dict[str, ArrayLike] = {}
        if pooled is not None:
            measured |= pooled.named()
        if values_of is not None:
            measured |= {"pit": values_of.pit, "nll_of_value": values_of.nll, "crps_of_value": values_of.crps}
            measured |= _of_strata(parts, values_of)
        arrays |= {f"{name}{suffix}": each for name, each in measured.items()}
    arrays = _published("calibration", arrays)
    title = f"Calibration of {variable.long_name} at test points"
    group = counting_missing(dataset("calibration", coordinates, arrays, variable, title=title), "pit")
    if of_values is not None and (np.isnan(of_values.crps) & present).any():  # of limits of detection
        for name in (each for each in _OF_MEASURED if each in group):
            group[name].attrs[MISSING] = int(np.isnan(group[name].values).sum())
    for by, each in counted.items():
        group[f"pit_count{by}"].attrs |= _if_uniform(each)
    return group.assign_attrs(calibration_status=verdict.kind, calibration_statement=verdict.statement)


def _published(group: str, arrays: Mapping[str, ArrayLike]) -> dict[str, ArrayLike]:
    """Those that the table has in a group."""
    return {name: each for name, each in arrays.items() if name in table(T2M)[group]}


def _of_strata(parts: Sequence[Stratum], scored: PointScores) -> dict[str, ArrayLike]:
    """Measures of each stratum, and coverage at many levels of the first, which is all observations."""
    pit = scored.pit
    tests = [part.coverage(pit, scored.levels.tolist()) for part in parts]
    reliability = parts[0].coverage(pit, RELIABILITY_LEVELS)
    means = {"mean_width": scored.width, "interval_score": scored.interval_score}
    means |= {"crps": scored.crps, "nll": scored.nll}
    return {
        "stratum_pit_count": [part.histogram(pit).counts for part in parts],
        "stratum_coverage": np.minimum([test.coverage for test in tests], 1.0),
        "stratum_coverage_standard_error": [test.standard_error for test in tests],
        **{f"stratum_{name}": [part.average(each) for part in parts] for name, each in means.items()},
        "reliability": np.minimum(reliability.coverage, 1.0),
        "reliability_standard_error": reliability.standard_error,
    }


def simulation_group(
    *,
    north: ArrayLike,
    east: ArrayLike,
    space: Space = SPHERE,
    found: Calibration,
    area_weight: ArrayLike,
    variable: Variable = T2M,
) -> xr.Dataset:
    """Group ``simulation``: what the error bars of the solver did on fields drawn from the prior."""
    counts, tests, joint, scored = found.histogram, found.tests, found.joint, found.scores
    group = dataset(
        "simulation",
        {
            **coordinates_of(np.datetime64("NaT"), north, east, space=space),
            "level": coordinate("level", "level", scored.levels),
        },
        {
            "z": found.z,
            "pit": found.pit,
            "error_ratio": found.point_std,
            "area_weight": unit_weights(area_weight, np.shape(north)),
            "pit_bin": counts.edges,
            "pit_count": counts.counts.astype(np.int64),
            "coverage": scored.coverage,
            "coverage_area_weighted": scored.by_area.coverage,
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
            "iteration 0 (the prior) included.",
            key="shapes",
        )
    levels = scores[0].levels
    if any(not np.array_equal(step.levels, levels) for step in scores):
        raise ArgumentError(
            "levels differ between iterations; score every iteration with the same levels.",
            key="levels-differ",
        )
    steps = np.arange(len(scores)) if iterations is None else np.asarray(iterations)
    named = [step.named() for step in scores]
    arrays = {name: np.array([each[name] for each in named]) for name in named[0]}
    return dataset(
        "trace",
        {
            "iteration": coordinate("iteration", "iteration", steps),
            "level": coordinate("level", "level", levels),
        },
        {**_published("trace", arrays), "seconds": np.asarray(seconds, dtype=np.float64)},
        variable,
        title=f"Scores of {variable.long_name} after each solver iteration",
    )
