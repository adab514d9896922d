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
    """Places on the globe.

    Attributes
    ----------
    latitude_degrees, longitude_degrees : array of float64, shape (n,)
        Degrees north and degrees east, in the order and convention of the table.
    names : array of str, shape (n,), or None
        What they are called, empty where one has no name; None if the table does not say.
    static : mapping of str to array of float64, shape (n,)
        Columns with a number for each place, as far as they were asked for.
    """

    latitude_degrees: Array
    longitude_degrees: Array
    names: Names | None = None
    static: Mapping[str, Array] = field(default_factory=dict)


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
    """Measurements by time and place.

    Attributes
    ----------
    latitude_degrees, longitude_degrees : array of float64, shape (n,)
        Of the places. A place appears again for each measurement that it has more than one of at a time, and
        for each noise that it was measured with.
    values : array of float64, shape (T, n)
        NaN where nothing was measured.
    times : array of datetime64[ns], shape (T,), or None
        Ascending; None if the table has no times, and T is 1.
    noise_std : array of float64, shape (n,), or None
    names : array of str, shape (n,), or None
        Of the places; one whose rows have several names has them all, "A; B".
    static : mapping of str to array of float64, shape (n,)
        As in `Places`: what the first row of a place says.
    """

    latitude_degrees: Array
    longitude_degrees: Array
    values: Array
    times: Times | None
    noise_std: Array | None
    names: Names | None = None
    static: Mapping[str, Array] = field(default_factory=dict)
