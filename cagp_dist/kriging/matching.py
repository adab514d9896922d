"""Which value of a result a true value belongs to: that of its place, its depth and its time."""

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from cagp_dist.arrays import Array, Indices
from cagp_dist.errors import ArgumentError
from cagp_dist.fields.axes import Horizontal, clock_of, located
from cagp_dist.fields.observed_objects import ObservedObject
from cagp_dist.fields.tables import check_depth_units
from cagp_dist.kernels import DEPTH
from cagp_dist.kriging.result_model import depth_names
from cagp_dist.space import moved

if TYPE_CHECKING:
    from cagp_dist.fields.observed_objects import Source

SAME_PLACE = 1e-6  # of the radius of the Earth, 6 m, or of the largest coordinate of a plane, as of float32
NEAR = 0.1  # of the distance from the next place of the result, where that is less
ONE_PLACE = 1e-9  # as `SAME_PLACE`, of places of a result that are one, as rounding leaves them


def cells_of(
    observed: ObservedObject, truth: "Source", dataset: xr.Dataset, mean: xr.DataArray
) -> tuple[Indices, Array]:
    """Find the cell of each true value (m,) in the flat mean, -1 where there is none, and these values.

    A time or a depth that one side alone says is that of the other, unless it is one of several.
    """
    where, points = located(dataset), observed.points
    within = [*([DEPTH] if DEPTH in mean.dims and DEPTH not in where.dims else []), *where.dims]
    others = [str(dim) for dim in mean.dims if dim not in within]
    if len(others) > 1:
        raise ArgumentError(
            f"the mean has the dimensions {', '.join(map(str, mean.dims))}; expected one beside those of "
            "places, such as time. Choose of the others first: dataset.isel(sample=0).",
            key="several-dimensions",
        )
    order = xr.DataArray(np.arange(mean.size).reshape(mean.shape), dims=mean.dims)
    cells = order.transpose(*others, *within).values.reshape(mean.sizes[others[0]] if others else 1, -1)
    field, place = np.nonzero(points.present)
    found = _fields(observed, dataset, mean, others)[place if points.in_time else field]
    at = _places(observed, truth, dataset, where, mean.sizes[DEPTH] if within[0] == DEPTH else 1)[place]
    return np.where((found >= 0) & (at >= 0), cells[found, at], -1), points.values_in_units[field, place]


def _fields(observed: ObservedObject, dataset: xr.Dataset, mean: xr.DataArray, others: list[str]) -> Indices:
    """Find the field of the result of each field (T,) of true values, or of each of them; -1: of none."""
    points, clock = observed.points, clock_of(dataset, mean)
    times = points.moments if points.in_time else points.times
    own = None if np.isnat(times).any() else times
    when = None if clock is None or own is None else clock.moments()
    fields = mean.sizes[others[0]] if others else 1
    times_differ = np.zeros(times.size, dtype=bool)
    several = points.in_time and np.unique(times).size > 1
    if clock is not None and own is not None and when is not None and clock.axis.dims in ((), (*others,)):
        found = _positions(when.reshape(-1), own)
        if when.size == fields:
            return found
        times_differ = found < 0
    held = observed.coordinates.get(str(observed.dimension))
    if observed.dimension in others and held is not None and observed.dimension in mean.coords:
        found = _positions(mean[observed.dimension].values, held.values)
    elif points.fields == fields and not several and (fields == 1 or observed.dimension in others):
        found = np.arange(fields) if not points.in_time else np.zeros(times.size, dtype=np.intp)
    elif fields == 1:
        raise ArgumentError(
            "the true values are of several times and the result is one field, and they do not both say "
            "their time; expected one time.",
            key="several-fields",
        )
    else:
        raise ArgumentError(
            f"the result has {fields:,} fields along {others[0]!r}, and the true values do not say theirs; "
            f"expected a column or coordinate {others[0]!r}, or one field: result.isel({others[0]}=0).",
            key="several-fields",
        )
    return np.where(times_differ, -1, found)


def _positions(labels: NDArray[np.generic], wanted: NDArray[np.generic]) -> Indices:
    """Where each of some times or names is among others, -1 where it is not."""
    if labels.dtype.kind == wanted.dtype.kind == "M":
        labels, wanted = labels.astype("datetime64[us]"), wanted.astype("datetime64[us]")
    first = {label: at for at, label in reversed([*enumerate(labels.tolist())])}
    return np.array([first.get(label, -1) for label in wanted.reshape(-1).tolist()], dtype=np.intp)


def _places(
    observed: ObservedObject, truth: "Source", dataset: xr.Dataset, where: Horizontal, levels: int
) -> Indices:
    """Find the place of the result, and its level, of each place (n,) of true values; -1: none of them."""
    import pandas as pd

    points, somewhere = observed.points, np.flatnonzero(~where.nowhere)
    X = where.space.positions(*where.points)[somewhere]
    extent = 1.0 if where.space.has_latitudes else float(np.abs(X).max())
    rounded = pd.DataFrame(np.round(X / (ONE_PLACE * extent or 1.0)) + 0.0)
    one = rounded.groupby([*rounded.columns], sort=False).ngroup().to_numpy()
    distinct = X[np.flatnonzero(~rounded.duplicated())]
    tree = cKDTree(distinct)
    spacing = np.asarray(tree.query(distinct, k=2)[0])[:, 1]  # infinite of a single place
    north, east = moved(points.space, where.space, points.north, points.east, what="observation")
    apart, nearest = (np.asarray(each) for each in tree.query(where.space.positions(north, east)))
    there = apart <= np.minimum(SAME_PLACE * extent, NEAR * spacing[nearest])
    depths, own = _depths(observed, truth, dataset, where, levels)
    rows = (np.arange(levels)[:, None] * where.nowhere.size + somewhere).reshape(-1)
    index = pd.MultiIndex.from_arrays([np.tile(one, levels), depths[rows]])
    first = ~index.duplicated()
    found = index[first].get_indexer(pd.MultiIndex.from_arrays([nearest, own]))
    return np.where(there & (found >= 0), rows[first][found], -1)


def _depths(
    observed: ObservedObject, truth: "Source", dataset: xr.Dataset, where: Horizontal, levels: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Give depths of all places of the result, level by level, and of true values; zeros if none are said."""
    size, n = levels * where.nowhere.size, observed.points.north.size
    given, own, units = dataset.coords.get(DEPTH), *_depths_of_truth(observed, truth, dataset)
    depths: Array | None = None
    if given is not None and (given.size == 1 or (given.dims == (DEPTH,) and given.size == levels)):
        depths = np.repeat(np.asarray(given.values, dtype=np.float64).reshape(-1), size // given.size)
    elif given is not None and given.dims == where.dims and given.attrs.get("axis") == "Z":
        depths = np.asarray(given.values, dtype=np.float64).reshape(-1)  # else it is that of the sea floor
    if depths is not None and own is not None:
        assert given is not None
        check_depth_units(str(given.attrs.get("units", "")), units)
        return depths.astype(np.float32), own.astype(np.float32)
    for alone, said in (
        (depths, "the result has several depths, and the true values do not say theirs"),
        (own, "the true values have several depths, and the result does not say its own"),
    ):
        if alone is not None and np.ptp(alone) > 0.0:
            raise ArgumentError(
                f'{said}; expected depths of both: a column of the name that columns={{"depth": ...}} of '
                f"krige had, a coordinate {DEPTH!r}, or values of one depth alone.",
                key="truth-depth",
            )
    return np.zeros(size, dtype=np.float32), np.zeros(n, dtype=np.float32)


def _depths_of_truth(
    observed: ObservedObject, truth: "Source", dataset: xr.Dataset
) -> tuple[Array | None, str]:
    """Give depths (n,) of true values, and their units; None where nothing says them."""
    n, known = observed.points.north.size, observed.depths
    if known is not None:
        return observed.points.beside.get(DEPTH, np.full(n, known.values[0])), known.units
    if isinstance(truth, xr.DataArray | xr.Dataset):
        for name in depth_names(dataset, truth):
            held = truth.coords.get(name)
            if held is not None and held.size == 1 and held.dtype.kind in "fiu":
                return np.full(n, float(held.item())), str(held.attrs.get("units", ""))
    return None, ""
