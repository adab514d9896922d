"""What the group ``calibration`` holds of strata of the test points, and of the reliability at many levels.

Everything here counts an observation with the area that it stands for, and is there a second time with the
suffix ``_plain`` where the laws were recalibrated, for the Gaussian law without that.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array
from cagp_dist.calibration.scores import PointScores
from cagp_dist.calibration.strata import RELIABILITY_LEVELS, Strata, Stratum, divided
from cagp_dist.variables import Variable

Attributes: TypeAlias = dict[str, str | int | float | bool]

STRATUM, KIND, DEFINITION = "stratum", "stratum_kind", "stratum_definition"
RELIABILITY_LEVEL = "reliability_level"
COUNT = "stratum_observations"
PLAIN = "_plain"
"""Suffix of what is said of the Gaussian law without recalibration."""

_OF_LAWS: Mapping[str, tuple[str, ...]] = {
    "stratum_pit_count": (STRATUM, "pit_interval"),
    **dict.fromkeys(
        (
            "stratum_coverage",
            "stratum_coverage_standard_error",
            "stratum_mean_width",
            "stratum_interval_score",
        ),
        (STRATUM, "level"),
    ),
    **dict.fromkeys(("stratum_crps", "stratum_nll"), (STRATUM,)),
    **dict.fromkeys(("reliability", "reliability_standard_error"), (RELIABILITY_LEVEL,)),
}

DIMENSIONS: Mapping[str, tuple[str, ...]] = {
    COUNT: (STRATUM,),
    **_OF_LAWS,
    **{f"{name}{PLAIN}": dimensions for name, dimensions in _OF_LAWS.items()},
}

COORDINATES: Mapping[str, Attributes] = {
    STRATUM: {
        "long_name": "part of the observations at test points",
        "comment": "The first are all of them. Parts with fewer than 50 are left out.",
    },
    KIND: {"long_name": "by what the observations are divided: all, latitude, surface or roughness"},
    DEFINITION: {"long_name": "what a part is"},
    RELIABILITY_LEVEL: {"units": "1", "long_name": "level of the central prediction interval"},
}

RANGES: Mapping[str, tuple[float, float]] = {
    name: (0.0, 1.0 if "coverage" in name or "reliability" in name else np.inf)
    for name in DIMENSIONS
    if not name.startswith("stratum_nll")
}

_CHANCE = (
    "If the error bars are right. It allows for the correlation of errors of neighbouring points, not for "
    "one of all points."
)
_LONG_NAMES = {
    COUNT: "number of observations",
    "stratum_pit_count": "number of PIT values per interval between pit_bin edges",
    "stratum_coverage": "fraction of observations inside the central interval",
    "stratum_coverage_standard_error": "standard error of stratum_coverage",
    "stratum_mean_width": "mean width of the central interval",
    "stratum_interval_score": "mean interval score of the central interval",
    "stratum_crps": "mean continuous ranked probability score",
    "stratum_nll": "mean negative log predictive density in nats",
    "reliability": "fraction of all observations inside the central interval",
    "reliability_standard_error": "standard error of reliability",
}
_IN_UNITS = ("stratum_mean_width", "stratum_interval_score", "stratum_crps")


def attributes_of(variable: Variable) -> dict[str, Attributes]:
    """CF attributes of these arrays in a run of a variable."""
    unit: Attributes = {"units": variable.units} if variable.units else {}
    said: dict[str, Attributes] = {}
    for name, long_name in _LONG_NAMES.items():
        comment = _CHANCE if name.endswith("standard_error") else "Each test point counted with area_weight."
        said[name] = {
            **(unit if name in _IN_UNITS else {"units": "1"}),
            "long_name": long_name,
            **({} if name == COUNT else {"comment": comment}),
        }
    plain = {
        f"{name}{PLAIN}": said[name]
        | {"long_name": f"{_LONG_NAMES[name]}, of the Gaussian law without recalibration"}
        for name in _OF_LAWS
    }
    return {**said, **plain}


def of_strata(
    of_values: PointScores,
    plain: PointScores | None,
    X: Array,
    strata: Sequence[Strata],
    *,
    weights: ArrayLike,
) -> tuple[dict[str, xr.Variable], dict[str, ArrayLike]]:
    """Coordinates and arrays of the group, of T times and q test points.

    Shapes: ``of_values`` (T, q), ``X`` (q, 3), ``weights`` (q,).
    """
    found = list(divided(~np.isnan(of_values.normal_score), X, strata, weights=weights))
    names = {
        STRATUM: [part.name for part in found],
        KIND: [part.kind for part in found],
        DEFINITION: [part.definition for part in found],
    }
    coordinates = {
        name: xr.Variable(STRATUM, np.asarray(said), dict(COORDINATES[name])) for name, said in names.items()
    }
    levels = np.asarray(RELIABILITY_LEVELS)
    coordinates[RELIABILITY_LEVEL] = xr.Variable(
        RELIABILITY_LEVEL, levels, dict(COORDINATES[RELIABILITY_LEVEL])
    )
    data: dict[str, ArrayLike] = {COUNT: [int(np.count_nonzero(part.inside)) for part in found]}
    for suffix, law in (("", of_values), (PLAIN, plain)):
        if law is not None:
            data |= {f"{name}{suffix}": values for name, values in _of_law(found, law).items()}
    return coordinates, data


def _of_law(found: Sequence[Stratum], law: PointScores) -> dict[str, ArrayLike]:
    pit = law.pit
    tests = [part.coverage(pit, law.levels.tolist()) for part in found]
    reliability = found[0].coverage(pit, RELIABILITY_LEVELS)
    return {
        "stratum_pit_count": [part.histogram(pit).counts for part in found],
        "stratum_coverage": np.minimum([test.coverage for test in tests], 1.0),
        "stratum_coverage_standard_error": [test.standard_error for test in tests],
        "stratum_mean_width": [part.average(law.width) for part in found],
        "stratum_interval_score": [part.average(law.interval_score) for part in found],
        "stratum_crps": [part.average(law.crps) for part in found],
        "stratum_nll": [part.average(law.nll) for part in found],
        "reliability": np.minimum(reliability.coverage, 1.0),
        "reliability_standard_error": reliability.standard_error,
    }
