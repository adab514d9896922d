"""Scores of a result against a truth: values that were not used, at places of the result."""

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from cagp_dist.arrays import Array, Indices
from cagp_dist.calibration.verification.scores import LEVELS, PointScores, point_scores
from cagp_dist.errors import ArgumentError
from cagp_dist.kriging.matching import cells_of
from cagp_dist.kriging.result_distribution import Of, ResultDistribution, distribution_of, stem_of
from cagp_dist.kriging.result_model import observed_beside
from cagp_dist.predictive import Predictive
from cagp_dist.predictive.transforms import Transformed
from cagp_dist.store.published_variables import NODES_PER_CELL

if TYPE_CHECKING:
    from cagp_dist.fields.observed_objects import Source


def scores_of_result(dataset: xr.Dataset, truth: "Source", *, of: Of, noise_std: float | None) -> xr.Dataset:
    """Score the distribution that a result states by true values at its places; as `Maps.score`."""
    stem, stated = stem_of(dataset), distribution_of(dataset, of=of, noise_std=noise_std)
    mean = dataset[f"{stem}mean"]
    observed = observed_beside(truth, mean, dataset)
    if observed.points.limits is not None:
        raise ArgumentError(
            "true values have limits of detection, below which they are not known; expected numbers. Leave "
            "these rows out.",
            key="truth-limits",
        )
    at, values = cells_of(observed, truth, dataset, mean)
    total, there = at.size, at >= 0
    at, values = at[there], values[there]
    elsewhere, known = total - at.size, stated.known.ravel()[at]
    at, values, unknown = at[known], values[known], int((~known).sum())
    if not at.size:
        raise ArgumentError(
            f"none of {total:,} true values is at a place, depth and time where the result has a value; "
            "expected some there. Predict at their places first: model.predict(truth).cagp.score(truth).",
            key="truth-elsewhere",
        )
    found, distribution = _scored(stated, (np.cumsum(stated.known.ravel()) - 1)[at], values)
    scores = found.pooled()
    dims = {
        dim: xr.DataArray(each, dims="observation")
        for dim, each in zip(mean.dims, np.unravel_index(at, mean.shape), strict=True)
    }
    held = (
        dataset[[f"{stem}mean", f"{stem}std"]].isel(dims).rename({f"{stem}mean": "mean", f"{stem}std": "std"})
    )
    units = {name: text for name, text in mean.attrs.items() if name == "units"}
    rmse = float(np.sqrt(np.mean((values - held["mean"].values) ** 2)))
    said = [f"{at.size:,} true values are compared with the distribution of {stated.whose}"]
    if elsewhere or unknown:
        said.append(
            f"{elsewhere:,} are at no place, depth or time of the result, {unknown:,} where it has no value"
        )
    if stated.levels is not None:
        said.append("beyond the outermost quantiles of the result distributions go on as the last two do")
    if NODES_PER_CELL in dataset.attrs:
        said.append(
            "the result has means over cells, from which true values at points also differ by what varies "
            "within a cell"
        )
    return (
        held.assign(
            observed=("observation", values, {"long_name": "true value", **units}),
            predictive_std=(
                "observation",
                distribution.std,
                {"long_name": f"standard deviation of {stated.whose}", **units},
            ),
            pit=("observation", found.pit, {"long_name": "probability integral transform", "units": "1"}),
            rmse=((), rmse, {"long_name": "root mean square error", **units}),
            crps=((), scores.crps, {"long_name": "continuous ranked probability score", **units}),
            nll=((), scores.nll, {"long_name": "negative log predictive density", "units": "1"}),
            coverage=("level", scores.coverage, {"long_name": "true values in the central interval"}),
        )
        .assign_coords(level=("level", scores.levels, {"long_name": "level of the interval"}))
        .drop_attrs(deep=False)
        .assign_attrs(compared=int(at.size), elsewhere=elsewhere, comment=f"{'; '.join(said)}.")
    )


def _scored(stated: ResultDistribution, rank: Indices, values: Array) -> tuple[PointScores, Predictive]:
    """Score values by the distributions of these places, in intervals that they know."""
    distribution = stated.distribution[rank]
    most = 1.0 if stated.levels is None else stated.levels[1] - stated.levels[0] + 1e-9
    levels = [level for level in LEVELS if level <= most]
    if isinstance(distribution, Transformed):
        z = distribution.transform.forward(values)
        if beyond := int((~np.isfinite(z)).sum()):
            transform = distribution.transform
            raise ArgumentError(
                f"{beyond:,} of {values.size:,} true values, such as {values[~np.isfinite(z)][0]:g}, are not "
                f"above {float(transform.inverse(-np.inf)):g}, and the result is of {transform.text}, by "
                "which such values have no density; expected values above. Leave these out, or fit a "
                "transform that has them, such as asinh.",
                key="truth-beyond-transform",
            )
        return point_scores(
            distribution.base, z, levels=levels, transform=distribution.transform
        ), distribution
    return point_scores(distribution, values, levels=levels), distribution
