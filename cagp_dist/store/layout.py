"""What a published run holds: groups, variables, dimensions, units, meaning and plausible ranges.

::

    posterior     t2m_mean t2m_std t2m (time, point)              latitude longitude (point)
    map           t2m_mean t2m_std     (time, latitude, longitude)
    calibration   pit (time, point)  pit_count (pit_interval)  pit_bin (pit_edge)
                  coverage (level)   rmse rmse_area_weighted nll crps ks_statistic ks_pvalue ()
    trace         rmse nll crps ks_statistic ks_pvalue seconds (iteration)  coverage (iteration, level)
    observations  t2m (time, point)                               latitude longitude (point)

Attributes of variables and coordinates follow CF-1.13.
"""

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import xarray as xr

from cagp_dist.calibration.pit import CORRELATED_TEST_POINTS
from cagp_dist.errors import StoreError

FORMAT_VERSION = 1
"""Raised when names, dimensions or meaning change, so that an old run is never taken for a new one."""

Attributes: TypeAlias = dict[str, str | int | float | bool]
SCORES = ("rmse", "rmse_area_weighted", "nll", "crps", "ks_statistic", "ks_pvalue")
TRACED = ("rmse", "nll", "crps", "ks_statistic", "ks_pvalue")

_KELVIN = {"units": "K", "standard_name": "air_temperature", "cell_methods": "time: point"}
_LATENT = (
    "Latent: the uncertainty of the noise-free temperature, mathematical and computational together. "
    "WITHOUT noise. The standard deviation of a new observation is sqrt(t2m_std**2 + noise_variance), with "
    "noise_variance among the attributes of the root group."
)
_PREDICTIVE = "Against observations, with predictive standard deviation sqrt(t2m_std**2 + noise_variance)."

VARIABLES: Mapping[str, Attributes] = {
    "t2m_mean": {**_KELVIN, "long_name": "posterior mean of 2 metre temperature",
                 "ancillary_variables": "t2m_std"},
    "t2m_std": {"units": "K", "standard_name": "air_temperature standard_error",
                "long_name": "posterior standard deviation of 2 metre temperature, latent, without noise",
                "comment": _LATENT},
    "t2m": {**_KELVIN, "long_name": "observed 2 metre temperature"},
    "pit": {"units": "1", "long_name": "probability integral transform of the observation",
            "comment": f"Uniform on [0, 1] if calibrated. {_PREDICTIVE}"},
    "pit_count": {"units": "1", "long_name": "number of PIT values per interval between pit_bin edges"},
    "pit_bin": {"units": "1", "long_name": "edges of the PIT histogram"},
    "rmse": {"units": "K", "long_name": "root mean square error against observations"},
    "rmse_area_weighted": {"units": "K", "long_name": "root mean square error, points weighted by area"},
    "nll": {"units": "1", "long_name": "mean negative log predictive density in nats",
            "comment": _PREDICTIVE},
    "crps": {"units": "K", "long_name": "mean continuous ranked probability score", "comment": _PREDICTIVE},
    "ks_statistic": {"units": "1", "long_name": "Kolmogorov-Smirnov distance of PIT values from uniform"},
    "ks_pvalue": {"units": "1", "long_name": "Kolmogorov-Smirnov p-value of PIT values",
                  "comment": CORRELATED_TEST_POINTS},
    "coverage": {"units": "1", "long_name": "fraction of observations inside the central interval",
                 "comment": _PREDICTIVE},
    "seconds": {"units": "s", "long_name": "wall time from the start of the solve to this iteration"},
}  # fmt: skip

COORDINATES: Mapping[str, Attributes] = {
    "time": {"standard_name": "time", "long_name": "time", "axis": "T"},
    "latitude": {"standard_name": "latitude", "long_name": "latitude", "units": "degrees_north"},
    "longitude": {"standard_name": "longitude", "long_name": "longitude", "units": "degrees_east"},
    "level": {"units": "1", "long_name": "level of the central prediction interval"},
    "iteration": {"units": "1", "long_name": "solver iteration, 0 is the prior"},
}

_POINTS, _GRID = ("time", "point"), ("time", "latitude", "longitude")
DIMENSIONS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "posterior": dict.fromkeys(("t2m_mean", "t2m_std", "t2m"), _POINTS),
    "map": dict.fromkeys(("t2m_mean", "t2m_std"), _GRID),
    "calibration": {
        "pit": _POINTS,
        "pit_count": ("pit_interval",),
        "pit_bin": ("pit_edge",),
        "coverage": ("level",),
        **dict.fromkeys(SCORES, ()),
    },
    "trace": {
        **dict.fromkeys((*TRACED, "seconds"), ("iteration",)),
        "coverage": ("iteration", "level"),
    },
    "observations": {"t2m": _POINTS},
}

# Kelvin of air at 2 m: records are 184 and 330. A mean that stopped early may overshoot the observed range.
_RANGES: Mapping[str, tuple[float, float]] = {
    "t2m": (150.0, 350.0),
    "t2m_mean": (100.0, 400.0),
    "t2m_std": (0.0, 200.0),
    "latitude": (-90.0, 90.0),
    "longitude": (0.0, 360.0),
    **dict.fromkeys(("pit", "pit_bin", "coverage", "level", "ks_statistic", "ks_pvalue"), (0.0, 1.0)),
    **dict.fromkeys(
        ("pit_count", "rmse", "rmse_area_weighted", "crps", "seconds", "iteration"), (0.0, np.inf)
    ),
}


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
        100-400 K, standard deviation 0-200 K, probabilities 0-1.
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
        if values.size and not (low <= values.min() and values.max() <= high):
            raise StoreError(
                f"{name}/{key} ranges over {values.min():g}..{values.max():g}; plausible is "
                f"{low:g}..{high:g}. Check units (kelvin), the prior and whether the solver converged."
            )
