"""What tables hold: measurements as they stand in the rows, by time and place, and places alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cagp_dist.arrays import Array, Times

Names: TypeAlias = NDArray[np.object_]
"""Texts; rows of one place share theirs."""


@dataclass(frozen=True, eq=False)
class Places:
    """Places on the globe, n of them, in the order and convention of the table."""

    latitude_degrees: Array
    longitude_degrees: Array
    names: Names | None = None  # what they are called, empty where one has no name; None if nothing is said
    static: Mapping[str, Array] = field(default_factory=dict)  # columns with a number for each, if asked for


@dataclass(frozen=True, eq=False)
class Table:
    """Measurements, one per entry; none is missing.

    Attributes
    ----------
    latitude_degrees, longitude_degrees : array of float64, shape (n,)
        Degrees north and degrees east, in the order and convention of the table.
    values : array of float64, shape (n,)
        What was measured.
    times : array of datetime64[ns], shape (n,), or None
        When, in UTC; None if the table does not say.
    noise_std : array of float64, shape (n,), or None
        Standard deviation of the error of each measurement, unit of the values; None if nothing is known.
    name : str
        Column of the values, without units.
    units : str
        Their units, where the name of the column or the caller says so; else empty.
    dropped_missing : int
        Rows that were left out because they have no value.
    names : array of str, shape (n,), or None
        Of the place of each measurement, as in `Places`.
    notes : tuple of str
        Sentences on the rows that people should know of.
    static : mapping of str to array of float64, shape (n,)
        As in `Places`.
    """

    latitude_degrees: Array
    longitude_degrees: Array
    values: Array
    times: Times | None
    noise_std: Array | None
    name: str
    units: str
    dropped_missing: int = 0
    names: Names | None = None
    notes: tuple[str, ...] = ()
    static: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class MeasuredFields:
    """Measurements by time and place; a place appears once for each repeat and each noise."""

    latitude_degrees: Array  # (n,), of the places
    longitude_degrees: Array
    values: Array  # (T, n), NaN where nothing was measured
    times: Times | None  # (T,), ascending; None if the table has no times, and T is 1
    noise_std: Array | None  # (n,)
    names: Names | None = None  # (n,); a place whose rows have several names has them all, "A; B"
    static: Mapping[str, Array] = field(default_factory=dict)  # what the first row of a place says
