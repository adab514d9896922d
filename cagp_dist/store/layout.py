"""What a published run holds: groups, variables, dimensions, units, meaning and plausible ranges.

::

    posterior     t2m_mean t2m_std t2m_predictive_std t2m (time, point)    latitude longitude (point)
    map           t2m_mean t2m_std t2m_predictive_std (time, latitude, longitude)
    calibration   pit (time, point)  area_weight (point)  pit_count (pit_interval)  pit_bin (pit_edge)
                  coverage coverage_standard_error (level)   rmse nll crps ks_statistic ks_pvalue ()
    trace         rmse nll crps ks_statistic ks_pvalue seconds (iteration)  coverage (iteration, level)
    observations  t2m (time, point)                                        latitude longitude (point)

Everything that is averaged over test points, histogram and coverage included, comes a second time with the
suffix ``_area_weighted``: each point counted with the area that it stands for, ``area_weight``.

Attributes of variables and coordinates follow CF-1.13.
"""

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import xarray as xr

from cagp_dist.calibration.pit import CORRELATED_TEST_POINTS
from cagp_dist.errors import StoreError

FORMAT_VERSION = 2
"""Raised when names, dimensions or meaning change, so that an old run is never taken for a new one."""

Attributes: TypeAlias = dict[str, str | int | float | bool]
_PLAIN = ("rmse", "nll", "crps", "ks_statistic", "ks_pvalue")
SCORES = (*_PLAIN, *(f"{name}_area_weighted" for name in _PLAIN))
"""Numbers of the run as a whole, and after each iteration."""

_KELVIN = {"units": "K", "standard_name": "air_temperature", "cell_methods": "time: point"}
_LATENT = (
    "Latent: the uncertainty of the noise-free temperature, mathematical and computational together. "
    "WITHOUT noise. The standard deviation of a new observation is sqrt(t2m_std**2 + noise_variance), "
    "published as t2m_predictive_std, with noise_variance among the attributes of the root group."
)
_NOISY = (
    "sqrt(t2m_std**2 + noise_variance). For measurements, noise_variance is their error. For values of a "
    "reanalysis it is mostly temperature that varies over less than the distance of the points: this is then "
    "the uncertainty of a value of the reanalysis."
)
_PREDICTIVE = "Against observations, with predictive standard deviation t2m_predictive_std."
_BY_AREA = "Each test point counted with area_weight."

_UNWEIGHTED: Mapping[str, Attributes] = {
    "t2m_mean": {**_KELVIN, "long_name": "posterior mean of 2 metre temperature",
                 "ancillary_variables": "t2m_std t2m_predictive_std"},
    "t2m_std": {"units": "K", "standard_name": "air_temperature standard_error",
                "long_name": "posterior standard deviation of 2 metre temperature, latent, without noise",
                "comment": _LATENT},
    "t2m_predictive_std": {"units": "K", "long_name": "predictive standard deviation of 2 metre temperature, "
                           "noise included", "comment": _NOISY},
    "t2m": {**_KELVIN, "long_name": "observed 2 metre temperature"},
    "area_weight": {"units": "1", "long_name": "area that a test point stands for, mean 1",
                    "comment": "Its area over its probability of being chosen: equal for points that were "
                    "drawn in proportion to area, the area itself where every point was equally likely."},
    "pit": {"units": "1", "long_name": "probability integral transform of the observation",
            "comment": f"Uniform on [0, 1] if calibrated. {_PREDICTIVE}"},
    "pit_count": {"units": "1", "long_name": "number of PIT values per interval between pit_bin edges"},
    "pit_bin": {"units": "1", "long_name": "edges of the PIT histogram"},
    "rmse": {"units": "K", "long_name": "root mean square error against observations"},
    "nll": {"units": "1", "long_name": "mean negative log predictive density in nats",
            "comment": _PREDICTIVE},
    "crps": {"units": "K", "long_name": "mean continuous ranked probability score", "comment": _PREDICTIVE},
    "ks_statistic": {"units": "1", "long_name": "Kolmogorov-Smirnov distance of PIT values from uniform"},
    "ks_pvalue": {"units": "1", "long_name": "Kolmogorov-Smirnov p-value of PIT values",
                  "comment": CORRELATED_TEST_POINTS},
    "coverage": {"units": "1", "long_name": "fraction of observations inside the central interval",
                 "comment": _PREDICTIVE},
    "coverage_standard_error": {"units": "1", "long_name": "standard error of coverage",
                                "comment": "If the error bars are right. It allows for the correlation of "
                                "errors of neighbouring points, not for one of all points."},
    "seconds": {"units": "s", "long_name": "wall time from the start of the solve to this iteration"},
}  # fmt: skip
_AVERAGED = (*_PLAIN, "pit_count", "coverage", "coverage_standard_error")
VARIABLES: Mapping[str, Attributes] = {
    **_UNWEIGHTED,
    **{
        f"{name}_area_weighted": _UNWEIGHTED[name]
        | {
            "long_name": f"{_UNWEIGHTED[name]['long_name']}, points weighted by area",
            "comment": f"{_BY_AREA} {_UNWEIGHTED[name].get('comment', '')}".strip(),
        }
        for name in _AVERAGED
    },
}

COORDINATES: Mapping[str, Attributes] = {
    "time": {"standard_name": "time", "long_name": "time", "axis": "T"},
    "latitude": {"standard_name": "latitude", "long_name": "latitude", "units": "degrees_north"},
    "longitude": {"standard_name": "longitude", "long_name": "longitude", "units": "degrees_east"},
    "level": {"units": "1", "long_name": "level of the central prediction interval"},
    "iteration": {"units": "1", "long_name": "solver iteration, 0 is the prior"},
}

_POINTS, _GRID = ("time", "point"), ("time", "latitude", "longitude")
DIMENSIONS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "posterior": dict.fromkeys(("t2m_mean", "t2m_std", "t2m_predictive_std", "t2m"), _POINTS),
    "map": dict.fromkeys(("t2m_mean", "t2m_std", "t2m_predictive_std"), _GRID),
    "calibration": {
        "pit": _POINTS,
        "area_weight": ("point",),
        "pit_bin": ("pit_edge",),
        **dict.fromkeys(("pit_count", "pit_count_area_weighted"), ("pit_interval",)),
        **dict.fromkeys(
            (
                "coverage",
                "coverage_area_weighted",
                "coverage_standard_error",
                "coverage_standard_error_area_weighted",
            ),
            ("level",),
        ),
        **dict.fromkeys(SCORES, ()),
    },
    "trace": {
        **dict.fromkeys((*SCORES, "seconds"), ("iteration",)),
        **dict.fromkeys(("coverage", "coverage_area_weighted"), ("iteration", "level")),
    },
    "observations": {"t2m": _POINTS},
}

# Kelvin of air at 2 m: records are 184 and 330. A mean that stopped early may overshoot the observed range.
_RANGES: Mapping[str, tuple[float, float]] = {
    "t2m": (150.0, 350.0),
    "t2m_mean": (100.0, 400.0),
    "t2m_std": (0.0, 200.0),
    "t2m_predictive_std": (0.0, 1e4),
    "latitude": (-90.0, 90.0),
    "longitude": (0.0, 360.0),
    **dict.fromkeys(("pit", "pit_bin", "level"), (0.0, 1.0)),
    **{
        f"{name}{suffix}": (0.0, 1.0)
        for name in ("coverage", "coverage_standard_error", "ks_statistic", "ks_pvalue")
        for suffix in ("", "_area_weighted")
    },
    **{
        f"{name}{suffix}": (0.0, np.inf)
        for name in ("pit_count", "rmse", "crps")
        for suffix in ("", "_area_weighted")
    },
    **dict.fromkeys(("area_weight", "seconds", "iteration"), (0.0, np.inf)),
}
_MAP_LONGITUDES = (-360.0, 360.0)
"""A map across Greenwich has negative longitudes west of it, so that its columns are in order."""


def check(name: str, group: xr.Dataset) -> None:
    """Check a group against the layout: variables, dimensions, finite values, plausible ranges.

    Parameters
    ----------
    name : str
        ``"posterior"``, ``"map"``, ``"calibration"``, ``"trace"`` or ``"observations"``.
    group : Dataset
        In memory, as it is about to be written or as it was read back.

    Raises
    ------
    StoreError
        Naming the group and the variable. Ranges: observed temperature 150-350 K, posterior mean
        100-400 K, standard deviation 0-200 K, probabilities 0-1. The axes of a map must ascend.
    """
    if name not in DIMENSIONS:
        raise StoreError(f"a run has no group {name!r}; expected one of {', '.join(DIMENSIONS)}.")
    for variable, dimensions in DIMENSIONS[name].items():
        if variable not in group:
            raise StoreError(f"group {name!r} lacks the variable {variable!r} with dimensions {dimensions}.")
        if group[variable].dims != dimensions:
            raise StoreError(
                f"{name}/{variable} has dimensions {group[variable].dims}; expected {dimensions}."
            )
    for key, variable_ in group.variables.items():
        if variable_.dtype.kind not in "fiu":
            continue
        values = variable_.values
        if not np.isfinite(values).all():
            raise StoreError(
                f"{name}/{key} holds {np.count_nonzero(~np.isfinite(values))} NaN or infinite values of "
                f"{values.size}; a run with missing numbers is not published."
            )
        low, high = _RANGES.get(str(key), (-np.inf, np.inf))
        if (name, key) == ("map", "longitude"):
            low, high = _MAP_LONGITUDES
        if values.size and not (low <= values.min() and values.max() <= high):
            raise StoreError(
                f"{name}/{key} ranges over {values.min():g}..{values.max():g}; plausible is "
                f"{low:g}..{high:g}. Check units (kelvin), the prior and whether the solver converged."
            )
    for axis in ("latitude", "longitude") if name == "map" else ():
        if np.any(np.diff(group[axis].values) <= 0.0):
            raise StoreError(
                f"map/{axis} does not ascend; expected cells from south to north and from west to east "
                "without a jump, negative longitudes to the west of Greenwich."
            )
