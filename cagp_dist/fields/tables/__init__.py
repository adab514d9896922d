"""Tables of observations and of places: one row per measurement, read from files or data frames.

Columns are found by their usual names, whatever their letter case, or named by the caller. Everything that
cannot be an observation (latitude 91, a date that is none, noise of zero) is an error that names its row, of
a text file its line; rows without a value are left out and counted.
"""

from cagp_dist.fields.tables.cells import check_says_std, codes_of, noise_factor
from cagp_dist.fields.tables.frames import Column, DataFrameLike, is_table
from cagp_dist.fields.tables.grouping import (
    Depths,
    MeasuredFields,
    Places,
    PlaneColumns,
    Table,
    by_time_and_place,
    check_depth_units,
    row_by_row,
)
from cagp_dist.fields.tables.reading import read_places, read_rows, read_table
from cagp_dist.fields.tables.table_files import TableLike

__all__ = [
    "Column", "DataFrameLike", "Depths", "MeasuredFields", "Places", "PlaneColumns", "Table", "TableLike",
    "by_time_and_place", "check_depth_units", "check_says_std", "codes_of", "is_table", "noise_factor",
    "read_places", "read_rows", "read_table", "row_by_row",
]  # fmt: skip
