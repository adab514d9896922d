"""What tables hold, as it stands in the rows and by time and place."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from cagp_dist.arrays import Array, Indices, Mask, Names, Times
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.memory import available_bytes
from cagp_dist.remedies import Setting
from cagp_dist.space import SPHERE, CRSLike, Plane, Space, plane_of
from cagp_dist.text import bytes_text, counted

SAME = 6  # decimals of degrees, 0.1 m, within which a place is the same


@dataclass(frozen=True, eq=False)
class PlaneColumns:
    """x and y of places of a plane, as a table has them."""

    xy: Array  # (n, 2)
    names: tuple[str, str]  # of the columns, without units
    unit: str  # of both, as it is stated; empty if it is not

    def at(self, rows: Indices | slice) -> "PlaneColumns":
        """Take some of the places."""
        return replace(self, xy=self.xy[rows])


@dataclass(frozen=True, eq=False)
class Depths:
    """Depths of places, positive downward."""

    values: Array  # (n,)
    name: str  # of the column, without its unit
    units: str  # as they are stated; empty if they are not

    def at(self, rows: Indices | slice) -> "Depths":
        """Take some of the places."""
        return replace(self, values=self.values[rows])


def check_depth_units(found: str, observed: str) -> None:
    """Raise `ArgumentError` where depths of targets and of observations say different units."""
    if found and observed and found != observed:
        raise ArgumentError(
            f"the depths of the targets are in {found!r}, and those of the observations in {observed!r}; "
            "expected one unit.",
            key="depth-units",
        )


@dataclass(frozen=True, eq=False)
class Places:
    """Places on the globe or a plane, n of them, in the order and convention of the table."""

    latitude_degrees: Array  # NaN of places of a plane
    longitude_degrees: Array
    names: Names | None = None  # what they are called, empty where one has no name; None if nothing is said
    static: Mapping[str, Array] = field(default_factory=dict)  # columns with a number for each, if asked for
    static_units: Mapping[str, str] = field(default_factory=dict)  # of these, empty where none is stated
    plane: PlaneColumns | None = None
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # names of static codes of these
    depths: Depths | None = None

    @property
    def keys(self) -> Array:
        """Numbers (n, 2) that are the same where the place is, but for rounding."""
        if self.plane is not None:
            unit = 1e-9 * float(np.max(np.abs(self.plane.xy), initial=0.0))
            return np.round(self.plane.xy / unit) if unit else self.plane.xy
        north, east = np.round(self.latitude_degrees, SAME), np.round(self.longitude_degrees, SAME)
        return np.column_stack([north, np.mod(east, 360.0)]) + 0.0  # without -0

    def located(self, crs: CRSLike = None) -> tuple[Array, Array, Space]:
        """Give latitudes and longitudes, or y and x, and the space that they lie in."""
        if self.plane is None:
            return self.latitude_degrees, self.longitude_degrees, SPHERE
        east, north = self.plane.xy.T
        return north, east, plane_of(crs, names=self.plane.names, unit=self.plane.unit)

    def beside(self, space: Space) -> tuple[Array, Array, Space]:
        """Give y and x in the unit of a plane, where they are of it, as `located` does."""
        if self.plane is None or not isinstance(space, Plane):
            return self.latitude_degrees, self.longitude_degrees, SPHERE
        factors = [space.scale_of(self.plane.unit, name) for name in self.plane.names]
        east, north = (self.plane.xy * factors).T
        space.check(north, east)
        return north, east, space

    def at(self, rows: Indices | slice) -> "Places":
        """Take some of the places."""
        return Places(
            self.latitude_degrees[rows],
            self.longitude_degrees[rows],
            None if self.names is None else self.names[rows],
            {name: column[rows] for name, column in self.static.items()},
            self.static_units,
            None if self.plane is None else self.plane.at(rows),
            self.labels,
            None if self.depths is None else self.depths.at(rows),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Table(Places):
    """Measurements, n of them, with the place of each; none is missing."""

    values: Array  # (n,), as all that follows
    times: Times | None  # in UTC; None if the table does not say
    noise_std: Array | None  # of the error of each, in the unit of the values; None if nothing is known
    name: str  # of the column of the values, without units
    units: str  # of the values, where the column or the caller says so; else empty
    rows: Indices  # of the source, which each of them is
    dropped_missing: int = 0  # rows that were left out because they have no value
    notes: tuple[str, ...] = ()  # sentences on the rows that people should know of
    below: Mask | None = None  # which values are limits, that what was measured is no larger than


@dataclass(frozen=True, eq=False, kw_only=True)
class MeasuredFields(Places):
    """Measurements by time and place; a place appears once for each repeat and each noise.

    One whose rows have several names has them all, "A; B"; of static columns it has the first row.
    """

    values: Array  # (T, n), NaN where nothing was measured
    times: Times | None  # (T,), ascending; None if the table has no times, and T is 1
    noise_std: Array | None  # (n,)
    rows: Indices  # of the source, of the values that are there, by time, then by place
    below: Mask | None = None  # (T, n), which values are limits


MOST_SINGLE = 10  # from so many times with hardly more rows than times on, each row has a time of its own
SPARSE = 10  # so many entries by time and place for each measurement are mostly empty


def by_time_and_place(table: Table) -> MeasuredFields:
    """Arrange measurements by time and place; a place that has two at one time appears twice."""
    import pandas as pd

    rows = len(table.values)
    noise = np.zeros(rows) if table.noise_std is None else table.noise_std
    moments, when = (
        (None, np.zeros(rows, dtype=np.intp))
        if table.times is None
        else np.unique(table.times, return_inverse=True)
    )
    deep = [] if table.depths is None else [table.depths.values]
    kinds = pd.DataFrame(np.column_stack([table.keys, noise, *deep, *table.static.values()]))
    repeats = kinds.assign(when=when).groupby([*kinds.columns, "when"], dropna=False).cumcount()
    kinds = kinds.assign(repeats=repeats)
    # in the order in which they appear first
    place = kinds.groupby(list(kinds.columns), sort=False, dropna=False).ngroup().to_numpy()
    first = np.flatnonzero(~kinds.duplicated())
    if moments is not None:
        _check_size(rows, moments.size, first.size)
    values = np.full((1 if moments is None else moments.size, first.size), np.nan)
    values[when, place] = table.values
    places = table.at(first)
    if places.names is not None and table.names is not None:
        places = replace(places, names=_joined(table.names, place, places.names))
    noise_std = None if table.noise_std is None else table.noise_std[first]
    below = None
    if table.below is not None:
        below = np.zeros(values.shape, dtype=bool)
        below[when, place] = table.below
    rows_in_order = table.rows[np.argsort(when * first.size + place)]
    return MeasuredFields(
        **vars(places), values=values, times=moments, noise_std=noise_std, rows=rows_in_order, below=below
    )


def row_by_row(table: Table) -> MeasuredFields:
    """Give each measurement a place of its own in one field, whose times (n,) are those of the places."""
    places = vars(table.at(slice(None)))
    return MeasuredFields(
        **places,
        values=table.values[None],
        times=table.times,
        noise_std=table.noise_std,
        rows=table.rows,
        below=None if table.below is None else table.below[None],
    )


def _check_size(rows: int, times: int, places: int) -> None:
    """Refuse fields of hardly more than one measurement, and what does not fit into memory."""
    single = times > MOST_SINGLE and rows < 2 * times and times * places > SPARSE * rows
    needed, free = 8 * times * places, available_bytes()
    if not single and needed <= free:
        return
    why = (
        "nearly every row has its own time, and would be a separate field"
        if single
        else f"as fields they take {bytes_text(needed)}, but only {bytes_text(free)} are free"
    )
    raise DataError(
        f"the table has {counted(rows, 'measurement')} of {counted(times, 'time')} at "
        f"{counted(places, 'place')}: {why}. Round the times so that the measurements of one field share "
        "theirs.",
        key="too-many-times",
        remedies=(Setting("columns", {"time": "none"}, "to map all rows as one field"),),
    )


def _joined(names: Names, place: Indices, found: Names) -> Names:
    """Add to the first name of each place, ``found``, the others that its rows have."""
    others = np.flatnonzero((names != found[place]) & (names != ""))
    if others.size == 0:
        return found
    every = [dict.fromkeys([name] if name else []) for name in found.tolist()]
    for row in others:
        every[place[row]][str(names[row])] = None
    return np.array(["; ".join(several) for several in every], dtype=object)
