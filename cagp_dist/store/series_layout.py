"""One layout of all days of a series: also of those whose error bars needed no recalibration."""

import numpy as np
import xarray as xr

from cagp_dist.store.published_variables import PLAIN, QUANTILE_LEVEL

LOCAL_SCALE, QUANTILE, PREDICTIVE_STD = "local_scale", "_quantile", "_predictive_std"
MEDIAN, ZERO = "_median", "_probability_zero"


def as_recalibrated(group: xr.Dataset, like: xr.Dataset) -> xr.Dataset:
    """Add the variables of recalibration that a group lacks and ``like``, that of another run, has.

    Quantiles are those of normal distributions, the local scale is 1, and scores without recalibration are
    the scores. Where values were not transformed, and none was a limit of detection, medians are means, and
    zero has no probability.
    """
    from scipy.special import ndtri

    added = {}
    for name in map(str, like.data_vars):
        stem = name.removesuffix(QUANTILE)
        if name in group:
            continue
        if name.endswith(PLAIN) and (same := name.removesuffix(PLAIN)) in group:
            found = group[same]
        elif name.endswith(MEDIAN) and (mean := group.get(f"{name.removesuffix(MEDIAN)}_mean")) is not None:
            found = mean
        elif name.endswith(ZERO) and (mean := group.get(f"{name.removesuffix(ZERO)}_mean")) is not None:
            found = xr.zeros_like(mean).where(mean.notnull())
        elif name == LOCAL_SCALE and (spread := _predictive_std(group)) is not None:
            found = xr.ones_like(spread)
        elif stem != name and (spread := group.get(f"{stem}{PREDICTIVE_STD}")) is not None:
            levels = like[QUANTILE_LEVEL]
            found = group[f"{stem}_mean"] + spread * levels.copy(data=ndtri(levels.values))
        else:
            continue
        added[name] = found.transpose(*like[name].dims).astype(np.float64)
        # not those of what it was made of, such as units of levels
        added[name].attrs = dict(like[name].attrs)
    return group.assign(added)


def _predictive_std(group: xr.Dataset) -> xr.DataArray | None:
    names = [name for name in map(str, group.data_vars) if name.endswith(PREDICTIVE_STD)]
    return group[names[0]] if names else None
