"""A result at the rows of a table, in the table: gaps filled, each with its error bar."""

from typing import TYPE_CHECKING, cast

import numpy as np
import xarray as xr

from cagp_dist.arrays import Array, Indices
from cagp_dist.errors import ArgumentError
from cagp_dist.fields.axes import located
from cagp_dist.kriging.checking import copied_rows, table_as_it_is
from cagp_dist.kriging.map_targets import of_table
from cagp_dist.kriging.result_distribution import stem_of
from cagp_dist.kriging.result_model import observed_beside

if TYPE_CHECKING:
    import pandas as pd

    from cagp_dist.fields.observed_objects import ObservedObject, Source
    from cagp_dist.fields.tables import TableLike

ADDED = ("filled", "filled_std")
SAME_PLACE = 1e-9  # of the size of a coordinate: what reading may have rounded


def filled_table(dataset: xr.Dataset, table: "Source") -> "pd.DataFrame":
    """Add the two columns to a copy of a table; see `Maps.fill`."""
    frame, stem = table_as_it_is(table), stem_of(dataset)
    if taken := [name for name in ADDED if name in frame.columns]:
        raise ArgumentError(
            f"the table has a column {taken[0]!r}, which the result adds; rename or drop it.",
            key="fill-columns",
        )
    mean, std = (dataset[f"{stem}{name}"] for name in ("mean", "std"))
    _check_rows(dataset, mean, table, len(frame))
    columns = {"filled": mean.values.astype(np.float64), "filled_std": std.values.astype(np.float64)}
    rows, values = _measured(observed_beside(table, mean, dataset))
    own, of = copied_rows(frame, rows)
    place = np.full(len(frame), -1, dtype=np.intp)  # of a row among the measured ones
    place[rows] = np.arange(rows.size)
    place[own] = place[of]
    there = place >= 0
    columns["filled"][there], columns["filled_std"][there] = values[place[there]], np.nan
    frame = frame.assign(**columns)
    frame.attrs["filled_units"] = str(mean.attrs.get("units", ""))
    return frame


def _measured(observed: "ObservedObject") -> tuple[Indices, Array]:
    """Rows that have a measured value, and these; limits of detection are gaps."""
    points, rows = observed.points.measured(), observed.rows
    assert rows is not None  # of a table
    rows = rows[points.present[observed.points.present]]
    return rows, points.values[points.present]


def _check_rows(dataset: xr.Dataset, mean: xr.DataArray, table: "Source", count: int) -> None:
    """Refuse a result that is not at the rows of a table, one after the other."""
    where = located(dataset)
    if mean.dims != where.dims or where.axes is not None or mean.size != count:
        sizes = ", ".join(f"{dim} {size:,}" for dim, size in mean.sizes.items())
        raise ArgumentError(
            f"the table has {count:,} rows, and the result {sizes}; expected the result at these rows, "
            "krige(table, to=table), of one time: choose its rows before.",
            key="not-of-rows",
        )
    places = of_table(cast("TableLike", table), where.space, static=())
    for axis, own in zip(where.points, (places.north, places.east), strict=True):
        wrong = np.flatnonzero(~np.isclose(axis, own, rtol=SAME_PLACE, atol=SAME_PLACE))
        if wrong.size:
            said = [
                where.space.place_text(*(float(each[wrong[0]]) for each in pair))
                for pair in ((places.north, places.east), where.points)
            ]
            raise ArgumentError(
                f"row {wrong[0]:,} of the table is at {said[0]}, and that of the result at {said[1]}; "
                "expected the rows that the result was made for, in their order.",
                key="not-of-rows",
            )
