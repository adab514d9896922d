"""Scores of a result against a truth: values that were not used, at places of the result."""

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from scipy.spatial import cKDTree

from cagp_dist.arrays import Array, Indices
from cagp_dist.calibration.verification.scores import LEVELS, PointScores, point_scores
from cagp_dist.errors import ArgumentError
from cagp_dist.fields.axes import Horizontal, located
from cagp_dist.fields.observed_objects import ObservedObject
from cagp_dist.kriging.result_distribution import Of, ResultDistribution, distribution_of, stem_of
from cagp_dist.kriging.result_model import observed_beside, seen_in
from cagp_dist.predictive import Predictive
from cagp_dist.predictive.transforms import Transformed

if TYPE_CHECKING:
    from cagp_dist.fields.observed_objects import Source

SAME_PLACE = 1e-6  # of the radius of the Earth, 6 m, or of the largest coordinate of a plane, as of float32


def scores_of_result(dataset: xr.Dataset, truth: "Source", *, of: Of, noise_std: float | None) -> xr.Dataset:
    """Score the distribution that a result states by true values at its places; as `Maps.score`."""
    stem, stated = stem_of(dataset), distribution_of(dataset, of=of, noise_std=noise_std)
    mean, where = dataset[f"{stem}mean"], located(dataset)
    others = [str(dim) for dim in mean.dims if str(dim) not in where.dims]
    if len(others) > 1:
        raise ArgumentError(
            f"the mean has the dimensions {', '.join(map(str, mean.dims))}; expected one beside those of "
            "places, such as time. Choose of the others first: dataset.isel(sample=0).",
            key="several-dimensions",
        )
    observed = observed_beside(truth, mean, dataset)
    _check_fields(observed, mean, others)
    order = xr.DataArray(np.arange(mean.size).reshape(mean.shape), dims=mean.dims)
    cells_of_fields = order.transpose(*others, *where.dims).values.reshape(-1, int(np.prod(where.shape)))
    index, true = list[Indices](), list[Array]()
    somewhere = np.flatnonzero(~where.nowhere)
    X = where.space.positions(*where.points)[somewhere]
    tree = cKDTree(X)
    for field, cells in enumerate(cells_of_fields):
        if not _is_of(observed, mean, others, field):
            continue
        shown = seen_in(observed, mean, where, field)
        found_at = tree.query(where.space.positions(shown.north, shown.east))
        apart, nearest = (np.asarray(each) for each in found_at)
        there = np.asarray(apart <= SAME_PLACE * _extent(where, X))
        index.append(cells[somewhere[nearest[there]]])
        true.append(shown.values[there])
    total = int(observed.points.present.sum())
    at = np.concatenate(index) if index else np.empty(0, dtype=np.intp)
    values = np.concatenate(true) if true else np.empty(0)
    elsewhere, known = total - at.size, stated.known.ravel()[at]
    at, values, unknown = at[known], values[known], int((~known).sum())
    if not at.size:
        raise ArgumentError(
            f"none of {total:,} true values is at a place and time where the result has a value; expected "
            "some there. Predict at their places first: model.predict(truth).cagp.score(truth).",
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
        said.append(f"{elsewhere:,} are at no place or time of the result, {unknown:,} where it has no value")
    if stated.levels is not None:
        said.append("beyond the outermost quantiles of the result distributions go on as the last two do")
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


def _check_fields(observed: ObservedObject, mean: xr.DataArray, others: list[str]) -> None:
    """Refuse true values of which it is not known to which field of the result they belong."""
    if observed.points.limits is not None:
        raise ArgumentError(
            "true values have limits of detection, below which they are not known; expected numbers. Leave "
            "these rows out.",
            key="truth-limits",
        )
    fields = mean.sizes[others[0]] if others else 1
    if fields > 1 and observed.points.fields == 1 and observed.dimension is None:
        raise ArgumentError(
            f"the result has {fields:,} fields along {others[0]!r}, and the true values do not say theirs; "
            f"expected a column or coordinate {others[0]!r}, or one field: result.isel({others[0]}=0).",
            key="several-fields",
        )


def _is_of(observed: ObservedObject, mean: xr.DataArray, others: list[str], field: int) -> bool:
    """Whether the one time of true values is that of a field; several are told apart by `seen_in`."""
    held = observed.coordinates.get(str(observed.dimension))
    if observed.points.fields > 1 or held is None or observed.dimension not in others:
        return True
    both = held.values.ravel()[:1], mean[observed.dimension].values[field : field + 1]
    if all(times.dtype.kind == "M" for times in both):
        both = both[0].astype("datetime64[us]"), both[1].astype("datetime64[us]")
    return bool((both[0] == both[1]).all())


def _extent(where: Horizontal, X: Array) -> float:
    """Give what digits of places are relative to: the radius of the sphere, or coordinates of a plane."""
    return 1.0 if where.space.has_latitudes else float(np.abs(X).max())


def _scored(stated: ResultDistribution, rank: Indices, values: Array) -> tuple[PointScores, Predictive]:
    """Score values by the distributions of these places, in intervals that they know."""
    distribution = stated.distribution[rank]
    most = 1.0 if stated.levels is None else stated.levels[1] - stated.levels[0] + 1e-9
    levels = [level for level in LEVELS if level <= most]
    if isinstance(distribution, Transformed):
        z = distribution.transform.forward(values)
        return point_scores(
            distribution.base, z, levels=levels, transform=distribution.transform
        ), distribution
    return point_scores(distribution, values, levels=levels), distribution
