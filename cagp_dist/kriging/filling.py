"""A result at the rows of a table, in the table: gaps filled, each with its error bar."""

from typing import TYPE_CHECKING, cast

import numpy as np
import xarray as xr

from cagp_dist.arrays import Array, Indices
from cagp_dist.errors import ArgumentError
from cagp_dist.fields.axes import clock_of, located
from cagp_dist.fields.column_roles import IGNORED
from cagp_dist.fields.tables.columns import Columns
from cagp_dist.fields.tables.moments import about_time, moments_of
from cagp_dist.kernels import DEPTH
from cagp_dist.kriging.checking import copied_rows, table_as_it_is
from cagp_dist.kriging.map_targets import of_table
from cagp_dist.kriging.result_distribution import stem_of
from cagp_dist.kriging.result_model import depth_names, observed_beside, role_names
from cagp_dist.text import shown_time
from cagp_dist.variables import bare

if TYPE_CHECKING:
    import pandas as pd

    from cagp_dist.fields.observed_objects import ObservedObject, Source
    from cagp_dist.fields.tables import TableLike

ADDED = ("filled", "filled_std")
SAME_PLACE = 1e-9  # of the size of a coordinate: what reading may have rounded


def filled_table(dataset: xr.Dataset, table: "Source") -> "pd.DataFrame":
    """Add the two columns to a copy of a table; see `Maps.fill`."""
    _refuse_fields(table)
    frame, stem = table_as_it_is(table), stem_of(dataset)
    if taken := [name for name in ADDED if name in frame.columns]:
        raise ArgumentError(
            f"the table has a column {taken[0]!r}, which the result adds; rename or drop it.",
            key="fill-columns",
        )
    dataset = _of_one_field(dataset, stem, len(frame))
    mean, std = (dataset[f"{stem}{name}"] for name in ("mean", "std"))
    observed = observed_beside(table, mean, dataset)
    _check_times(dataset, mean, table, observed.name)
    _check_rows(dataset, table, observed)
    columns = {"filled": mean.values.astype(np.float64), "filled_std": std.values.astype(np.float64)}
    rows, values = _measured(observed)
    own, of = copied_rows(frame, rows)
    place = np.full(len(frame), -1, dtype=np.intp)  # of a row among the measured ones
    place[rows] = np.arange(rows.size)
    place[own] = place[of]
    there = place >= 0
    columns["filled"][there], columns["filled_std"][there] = values[place[there]], np.nan
    frame = frame.assign(**columns)
    frame.attrs["filled_units"] = str(mean.attrs.get("units", ""))
    return frame


def _refuse_fields(table: object) -> None:
    """Refuse an object that has a grid, whose gaps have another way."""
    if not isinstance(table, xr.Dataset | xr.DataArray) or located(table).axes is None:
        return
    raise ArgumentError(
        f"fill came with a field, a {type(table).__name__}; expected the table of whose rows this is the "
        'result. The gaps of a field are filled by filled = cagp.krige(field); field.fillna(filled["mean"]) '
        "then keeps the measured values.",
        key="fill-of-field",
    )


def _measured(observed: "ObservedObject") -> tuple[Indices, Array]:
    """Rows that have a measured value, and these; limits of detection are gaps."""
    points, rows = observed.points.measured(), observed.rows
    assert rows is not None  # of a table
    rows = rows[points.present[observed.points.present]]
    return rows, points.values[points.present]


def _of_one_field(dataset: xr.Dataset, stem: str, count: int) -> xr.Dataset:
    """Take the one time of a result away; refuse one that has not as many places as a table has rows."""
    where, mean = located(dataset), dataset[f"{stem}mean"]
    one = {dim: 0 for dim in mean.dims if dim not in where.dims and mean.sizes[dim] == 1}
    if mean[one].dims != where.dims or where.axes is not None or mean.size != count:
        sizes = ", ".join(f"{dim} {size:,}" for dim, size in mean.sizes.items())
        raise ArgumentError(
            f"the table has {count:,} rows, and the result {sizes}; expected the result at these rows, of "
            'one time: krige(table, to=table), or krige(day, to=day.drop(columns="date")) of the rows of one '
            "day, where there is a column of dates.",
            key="not-of-rows",
        )
    return dataset.isel(one)


def _check_times(dataset: xr.Dataset, mean: xr.DataArray, table: "Source", value: str) -> None:
    """Refuse rows, measured or not, of several times, or of another than the result says."""
    frame = Columns.open(cast("TableLike", table))
    role = role_names(dataset, table).get("time")
    there = role in (IGNORED, *frame.columns, *map(bare, frame.columns))
    given = role if there else None
    if given is None and not about_time(frame):
        return
    apart = {name for name in frame.columns if bare(name) == value}
    times = moments_of(frame, given, np.arange(frame.rows), apart).times
    if times is None:
        return
    clock = clock_of(dataset, mean)
    said = None if clock is None else clock.moments()
    own = np.unique(times.astype("datetime64[us]"))
    wanted = own if said is None else np.unique(said.astype("datetime64[us]"))
    if own.size > 1 or not np.array_equal(own, wanted):
        of = f"{own.size:,} times" if own.size > 1 else f"the time {shown_time(own[0])}"
        raise ArgumentError(
            f"the table has rows of {of}, and the result is of "
            f"{'one' if said is None else shown_time(wanted[0])}; expected the rows of that time alone: "
            'choose these before, day = table[table["date"] == "2020-06-01"].',
            key="not-of-rows",
        )


def _check_rows(dataset: xr.Dataset, table: "Source", observed: "ObservedObject") -> None:
    """Refuse a result that is not at the rows of a table, one after the other."""
    where, depth = located(dataset), dataset.coords.get(DEPTH)
    deep = depth_names(dataset, table) if observed.depths is None else [observed.depths.name, DEPTH]
    places = of_table(cast("TableLike", table), where.space, static=(), depth=deep, timed=True)
    pairs = list(zip(where.points, (places.north, places.east), strict=True))
    if depth is not None and depth.dims == where.dims and places.depths is not None:
        pairs.append((depth.values, places.depths))
    for axis, own in pairs:
        wrong = np.flatnonzero(~np.isclose(axis, own, rtol=SAME_PLACE, atol=SAME_PLACE))
        if wrong.size:
            said = [
                where.space.place_text(*(float(each[wrong[0]]) for each in both[:2]))
                + (f" at depth {both[2][wrong[0]]:g}" if len(both) > 2 else "")
                for both in reversed([*zip(*pairs, strict=True)])
            ]
            raise ArgumentError(
                f"row {wrong[0]:,} of the table is at {said[0]}, and that of the result at {said[1]}; "
                "expected the rows that the result was made for, in their order.",
                key="not-of-rows",
            )
