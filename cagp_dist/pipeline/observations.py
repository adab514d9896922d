"""What was observed, wherever it comes from: places of the globe or of a plane, and their values."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from cagp_dist import tiling
from cagp_dist.arrays import Array, Indices, Mask, Names, Times
from cagp_dist.budget.demand import MOST_MISSING
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.geometry import cell_areas, coarse_first, median_spacing, space_filling_order
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.kernels import TIME, beside_columns
from cagp_dist.latlon import LatLonGrid, LatLonWindow
from cagp_dist.likelihood.numbering import in_extents
from cagp_dist.pipeline.grid_places import GridPlaces, grid_of_points, no_rings
from cagp_dist.posterior.patterns import fields_by_pattern
from cagp_dist.solvers import SOR, SSOR, GaussSeidel, Hybrid, Solver
from cagp_dist.solvers.engine.affine import Affine
from cagp_dist.space import SPHERE, Space
from cagp_dist.space.interface import Region
from cagp_dist.space_time import AXES
from cagp_dist.variables import T2M, Variable

if TYPE_CHECKING:
    from cagp_dist.predictive.transforms import Transform

logger = logging.getLogger(__name__)

# Part of the plausible range: copies of a pole that differ by more are cell averages, not copies. Of 2 metre
# temperature this is 0.01 K; ERA5 packs to about 0.002 K.
POLE_SPREAD = 5e-5

NO_ORIGIN = np.datetime64("NaT", "us")
HOUR = np.timedelta64(3_600_000_000, "us")


@dataclass(frozen=True, eq=False)
class Observations:
    """T fields observed at n places, with gaps; build it by `from_points` or `from_grid`.

    Of a grid the places are those with a value at some time, by latitude, then eastward from Greenwich, and a
    pole is one place; of points all places, in the order of the source.

    Examples
    --------
    >>> import numpy as np
    >>> from cagp_dist.pipeline import Observations
    >>> field = np.full((1, 3, 4), 280.0)
    >>> field[0, 1, 2] = np.nan
    >>> observed = Observations.from_grid(np.array([-90.0, 0.0, 90.0]), 90.0 * np.arange(4), field)
    >>> observed.values.shape, observed.count, observed.merged_pole_copies
    ((1, 5), 5, 6)
    """

    north: Array  # (n,), latitude in degrees, or y of a plane
    east: Array  # (n,), longitude in the convention of the source, or x
    values: Array  # (T, n), in the unit of the variable, NaN where nothing was observed
    times: Times  # (T,), NaT where no date is known
    variable: Variable = T2M
    stated_units: str | None = None  # if they are not those of the variable
    noise_variance: Array | None = None  # (n,), what is known of the error of a value, squared unit
    excess: Array | None = None  # (n,), noise variance beside that of values that may be wrong
    gridded: bool = False  # whether each place stands for the area of its cell
    grid: GridPlaces | None = None  # of a gridded source, as its axes say it
    source_index: Indices = field(default_factory=lambda: np.arange(0))  # (n,), place in the flat source
    dropped_missing: int = 0  # points of a grid that have no value; rows of a table
    merged_pole_copies: int = 0  # points of a grid that are the same place as another
    missing_places: Array = field(default_factory=lambda: np.empty((0, 2)))  # (m, 2), dropped, no poles
    names: Names | None = None  # (n,), of stations
    # (n,): of points in space and time, one for each value, so that T is 1; since a moment near them, as an
    # epoch would cost digits. Empty where each field is a map of its own
    hours: Array = field(default_factory=lambda: np.empty(0))
    origin: np.datetime64 = NO_ORIGIN
    space: Space = SPHERE
    # by names of axes beside space and time, (n,) each: depths, or labels as integers from 0
    beside: Mapping[str, Array] = field(default_factory=dict)
    # what the values were made by from those in the unit of the variable; None: they are in that unit
    transform: "Transform | None" = None
    # (T, n): which values are limits of detection, of which it is known only that they are no larger
    limits: Mask | None = None
    # (T, n): these, and values at the bound of a transform, such as rain of zero
    censored: Mask | None = None
    # n means over areas that were observed, of which the places are the middles; None: values at the places
    functionals: LinearFunctionals | None = None

    @classmethod
    def from_points(
        cls,
        north: Array,
        east: Array,
        values: Array,
        *,
        space: Space = SPHERE,
        variable: Variable = T2M,
        stated_units: str | None = None,
        times: Times | None = None,
        noise_variance: Array | None = None,
        dropped_missing: int = 0,
        names: Names | None = None,
        beside: Mapping[str, Array] | None = None,
        limits: Mask | None = None,
    ) -> Self:
        """Take values (T, n) at n places as they are."""
        return cls(
            north=north,
            east=east,
            space=space.around(north, east),
            values=values,
            times=_times(times, len(values)),
            variable=variable,
            stated_units=stated_units,
            noise_variance=noise_variance,
            source_index=np.arange(north.size),
            dropped_missing=dropped_missing,
            names=names,
            beside=beside or {},
            limits=limits,
            censored=limits,
        )

    @classmethod
    def from_grid(
        cls,
        north: Array,
        east: Array,
        values: Array,
        *,
        space: Space = SPHERE,
        variable: Variable = T2M,
        stated_units: str | None = None,
        times: Times | None = None,
        noise_variance: Array | None = None,
    ) -> Self:
        """Take fields (T, P, Q) on axes (P,) and (Q,) of any order, with noise (P, Q) where it is known.

        The points of a pole row are one place, the mean of them; of a component of a vector, no value.
        """
        rows, columns = north.size, east.size
        latitude, longitude = np.repeat(north, columns), np.tile(east, rows)
        sites = values.reshape(-1, rows * columns).copy()
        noise = None if noise_variance is None else noise_variance.reshape(-1).copy()
        kept = np.ones(sites.shape[1], dtype=bool)
        for pole in np.flatnonzero(space.is_pole(north)):
            first, copies = pole * columns, sites[:, pole * columns : (pole + 1) * columns]
            if noise is not None and (known := np.isfinite(copies).any(axis=0)).any():
                noise[first] = noise[first : first + columns][known].mean()
            units = variable.units if stated_units is None else stated_units
            merged = np.nan if variable.vector else _merged(copies, north[pole], variable, units)
            sites[:, first], longitude[first] = merged, 0.0
            kept[first + 1 : first + columns] = False
        seen = np.isfinite(sites).any(axis=0)
        missing = kept & ~seen & ~space.is_pole(latitude)
        there = np.flatnonzero(kept & seen)
        there = there[np.lexsort(space.keys(latitude[there], longitude[there]).T[::-1])]
        return cls(
            north=latitude[there],
            east=longitude[there],
            space=space.around(latitude[there], longitude[there]),
            values=sites[:, there],
            times=_times(times, len(sites)),
            variable=variable,
            stated_units=stated_units,
            noise_variance=None if noise is None else noise[there],
            gridded=True,
            grid=_recognised(north, east, there) if space.has_latitudes else None,
            source_index=there,
            dropped_missing=int(np.count_nonzero(kept & ~seen)),
            merged_pole_copies=int(np.count_nonzero(~kept)),
            missing_places=np.stack([latitude[missing], longitude[missing]], axis=1),
        )

    @classmethod
    def together(cls, parts: Sequence[Self], *, axis: str) -> Self:
        """Take observations of several variables, whose labels along the axis are their places among them.

        Fields are those of all times that any of them has, or of one moment where none says its time. Raises
        `DataError` where times or spaces of the variables do not go together.
        """
        space = parts[0].space
        if not all(space.is_same(part.space) for part in parts):
            raise DataError(
                "the variables lie in different spaces, such as planes of other systems; expected one.",
                key="parts",
            )
        times = np.unique(np.concatenate([part.times for part in parts]))  # NaT once, at the end
        known = [part.dates() is not None for part in parts]
        if not all(known) and (any(known) or {part.fields for part in parts} != {1}):
            raise DataError(
                "some variables have dates and others have none, so that it cannot be told which fields are "
                "of one time; expected dates of all of them, or one field of each.",
                key="times-of-variables",
            )
        values = []
        for part in parts:
            own = np.full((times.size, part.north.size), np.nan)
            own[np.searchsorted(times, part.times) if all(known) else [0]] = part.values
            values.append(own)
        north, east = (np.concatenate([getattr(part, name) for part in parts]) for name in ("north", "east"))
        noise = [part.noise_variance for part in parts]
        labels = np.concatenate([np.full(part.north.size, float(at)) for at, part in enumerate(parts)])
        given = sorted({name for part in parts for name in part.beside})
        beside = {name: np.concatenate([part.beside[name] for part in parts]) for name in given}
        missing, count = np.unique(
            np.concatenate([part.missing_places for part in parts]), axis=0, return_counts=True
        )
        found = cls.from_points(
            north,
            east,
            np.hstack(values),
            space=space,
            variable=parts[0].variable,
            times=times,
            noise_variance=None
            if all(each is None for each in noise)
            else np.concatenate(
                [
                    np.zeros(part.north.size) if each is None else each
                    for part, each in zip(parts, noise, strict=True)
                ]
            ),
            dropped_missing=sum(part.dropped_missing for part in parts),
            beside={**beside, axis: labels},
        )
        return replace(found, missing_places=missing[count == len(parts)])

    @cached_property
    def positions(self) -> Array:
        """Unit vectors of the places, shape (n, 3), or x and y of places of a plane, shape (n, 2)."""
        return self.space.positions(self.north, self.east)

    @property
    def in_time(self) -> bool:
        """Whether the values are points in space and time."""
        return self.hours.size > 0

    @cached_property
    def X(self) -> Array:
        """Positions; beside hours, depths or labels, where there are any, in three columns of space."""
        columns = {**self.beside, TIME: self.hours} if self.in_time else self.beside
        return beside_columns(self.positions, columns) if columns else self.positions

    @property
    def sites(self) -> Array | LinearFunctionals:
        """What was observed: the field at X, or its means over areas."""
        return self.X if self.functionals is None else self.functionals

    @property
    def moments(self) -> Times:
        """When, of points in space and time, shape (n,)."""
        since = np.rint(self.hours * 3.6e9).astype("timedelta64[us]")
        return np.asarray(self.origin.astype("datetime64[us]") + since)

    @cached_property
    def present(self) -> Mask:
        """Which values were observed, shape (T, n)."""
        return ~np.isnan(self.values)

    @cached_property
    def there(self) -> Indices:
        """Places with a value at some time, ascending."""
        return np.flatnonzero(self.present.any(axis=0))

    @property
    def areas(self) -> Array:
        """Area (n,) that each place stands for, over one: of a grid that of its cell."""
        if self.gridded and self.space.has_latitudes:
            return cell_areas(self.north)
        return np.ones(self.north.size)

    def spacing(self, places: Indices) -> float:
        """Median distance of some places from the next one of them, in the unit of the space."""
        seen = np.unique(self.space.keys(self.north[places], self.east[places]), axis=0)
        return float(self.space.in_unit(np.asarray(median_spacing(self.space.positions(*seen.T)))))

    def extent(self, step: float | None = None) -> Region:
        """Region of all places, those that were dropped too: that of a map in steps of which none is said."""
        north, east = (
            np.append(seen, dropped)
            for seen, dropped in zip((self.north, self.east), self.missing_places.T, strict=True)
        )
        return self.space.extent(north, east, step)

    @property
    def is_whole_grid(self) -> bool:
        """Whether all points of a full circle of longitudes were observed at all times; a pole is one."""
        kept = self.north.size + self.merged_pole_copies
        return self.grid is not None and kept == self.grid.grid.size and bool(self.present.all())

    def of_fields(self, chosen: Indices) -> "Observations":
        """Give some of the fields, none of which has censored values."""
        assert self.censored is None
        return replace(self, values=self.values[chosen], times=self.times[chosen])

    @property
    def hides(self) -> bool:
        """Whether some values that are present are censored."""
        return self.censored is not None and bool((self.censored & self.present).any())

    @property
    def hidden_share(self) -> float:
        """The part of the values that is censored."""
        hidden = 0 if self.censored is None else np.count_nonzero(self.censored & self.present)
        return float(hidden / self.count)

    @property
    def count(self) -> int:
        """Values that were observed."""
        return int(np.count_nonzero(self.present))

    def transformed(self, transform: "Transform") -> Self:
        """Give the values by a transform, which is remembered; those at the bound of it are censored."""
        from cagp_dist.predictive.transforms import Censored

        censored = self.limits
        if isinstance(transform, Censored):
            at_bound = self.values <= transform.value  # not where there is none
            censored = at_bound if censored is None else at_bound | censored
        return replace(self, values=transform.forward(self.values), transform=transform, censored=censored)

    @property
    def values_in_units(self) -> Array:
        """The values (T, n) in the unit of the variable."""
        return self.values if self.transform is None else self.transform.inverse(self.values)

    @property
    def noise_by_place(self) -> Array | None:
        """Known noise variance (n,) with what stands beside it; None where all places have the same noise."""
        if self.excess is None:
            return self.noise_variance
        return self.excess if self.noise_variance is None else self.noise_variance + self.excess

    @property
    def units(self) -> str:
        """Of the values, as the source states them; empty if they are not known."""
        return self.variable.units if self.stated_units is None else self.stated_units

    @property
    def fields(self) -> int:
        """T."""
        return len(self.values)

    def dates(self, fields: Indices | slice = slice(None)) -> Times | None:
        """Moments of some fields; None unless all of them are known."""
        return None if np.isnat(self.times).any() else self.times[fields]

    def patterns(self, solver: Solver | None = None) -> list[tuple[Indices, Indices]]:
        """Places observed, in solver order, and the fields observed there, for each pattern of gaps."""
        places = self.in_order(solver)
        return [(places[self.present[group[0], places]], group) for group in fields_by_pattern(self.present)]

    def in_order(self, solver: Solver | None = None) -> Indices:
        """Places with a value at some time in the order of a solve; of a million that takes seconds."""
        if (block := block_size(solver)) not in self._orders:
            X = in_extents(self.X, AXES) if self.in_time and not self.beside else self.positions
            self._orders[block] = self.there[space_filling_order(X[self.there], block_size=block)]
        return visited(self._orders[block], solver)

    @cached_property
    def _orders(self) -> dict[int, Indices]:
        return {}

    def grid_of(self, chosen: Indices) -> GridPlaces:
        """Find the full-circle grid that some of the places are most of, for solves by rings."""
        if self.in_time or self.beside or not self.space.has_latitudes:
            what = "points in space and time" if self.in_time else f"points of the {self.space.text}"
            if self.beside:
                what = f"points with {', '.join(self.beside)} beside space"
            raise no_rings(f"rings solve circles of latitude, and the observations are {what}.")
        places = grid_of_points(self.north[chosen], self.east[chosen])
        if (noise := self.noise_by_place) is not None and not places.even(noise[chosen]):
            raise no_rings("the noise varies along a latitude, and rings need the same along each.")
        seen = self.present[self.present[:, chosen].any(axis=1)][:, chosen]
        size = places.size(seen[seen.sum(axis=1).argmin()])
        if not size.solved_by_rings:
            raise no_rings(f"the grid lacks {size.missing:,} points; rings are for at most {MOST_MISSING:,}.")
        return places

    def at(self, chosen: Indices | Mask) -> Self:
        """Take some of the places; their grid is another, see `cagp_dist.pipeline.grid_places`."""
        taken: dict[str, Any] = {
            name: held[chosen]
            for name in ("north", "east", "noise_variance", "excess", "hours", "source_index", "names")
            if (held := getattr(self, name)) is not None and held.size
        }
        taken["beside"] = {axis: held[chosen] for axis, held in self.beside.items()}
        for name in ("limits", "censored"):
            held = getattr(self, name)
            taken[name] = None if held is None else held[:, chosen]
        if self.functionals is not None:
            taken["functionals"] = self.functionals.part(np.arange(self.north.size)[chosen])
        return replace(self, values=self.values[:, chosen], grid=None, **taken)

    def only(self, chosen: Indices) -> Self:
        """Forget the values of all places but the chosen ones; the others stay where they are."""
        kept = np.zeros(self.north.size, dtype=np.bool_)
        kept[chosen] = True

        def of_kept(hidden: Mask | None) -> Mask | None:
            return hidden & kept if hidden is not None and hidden[:, kept].any() else None

        return replace(
            self,
            values=np.where(kept, self.values, np.nan),
            limits=of_kept(self.limits),
            censored=of_kept(self.censored),
        )

    def measured(self) -> Self:
        """Forget limits of detection and other censored values."""
        if self.censored is None:
            return self
        values = np.where(self.censored, np.nan, self.values)
        return replace(self, values=values, limits=None, censored=None)

    def in_space_and_time(self, moments: Times) -> Self:
        """Take each value as a point in space and time, with moments (T,) of the fields, or (n,) of rows."""
        fields, places = np.nonzero(self.present)
        own = moments[places] if self.fields == 1 and moments.size == self.values.size else moments[fields]
        origin = own.min()
        limits = None if self.limits is None else self.limits[fields, places][None]
        return replace(
            self.at(places),
            values=self.values[fields, places][None],
            limits=limits,
            censored=limits,
            times=_times(None, 1),
            hours=hours_since(own, origin),
            origin=origin,
        )

    def without_gaps(self) -> Self:
        """Leave out the places that lack a value at any time; `DataError` if these are all of them."""
        complete = np.asarray(self.present.all(axis=0))
        if complete.all():
            return self
        if not complete.any():
            raise DataError(
                f"no point has a value at all {self.fields} selected times; select fewer times, "
                'another source, or keep the gaps: gaps="keep", the default of a job.',
                key="nothing-observed",
            )
        return self.keep(complete)

    def without_empty_places(self) -> Self:
        """Leave out the places that have no value at any time."""
        seen = np.asarray(self.present.any(axis=0))
        return self if seen.all() else self.keep(seen)

    def keep(self, kept: Mask) -> Self:
        """Keep some of the places, and remember where the others are."""
        left = np.stack([self.north, self.east], axis=1)[~kept]
        return replace(
            self.at(kept),
            dropped_missing=self.dropped_missing + len(left),
            missing_places=np.concatenate([self.missing_places, left[~self.space.is_pole(left[:, 0])]]),
        )


def block_size(solver: Solver | None) -> int:
    """Points of a block in solver order."""
    size = solver.points_per_block if isinstance(solver, Affine | Hybrid) else None
    return size or tiling.POINT_TILE


def visited(places: Indices, solver: Solver | None) -> Indices:
    """Put places that are in k-d order in the order that a solve visits them.

    Blocks are cells of it. Sweeps over single points, cell after cell, would leave the large scales to the
    end: they visit places that are spread over the whole region first (`coarse_first`).
    """
    single = isinstance(solver, SSOR) or (isinstance(solver, GaussSeidel | SOR) and not solver.shuffled)
    return places[coarse_first(places.size)] if single else places


def hours_since(times: Times, origin: np.datetime64) -> Array:
    """Hours from a moment near the data: an epoch would cost digits."""
    return np.asarray((times.astype("datetime64[us]") - origin.astype("datetime64[us]")) / HOUR)


def _times(times: Times | None, fields: int) -> Times:
    """Give the moments of the fields, NaT where they are not known."""
    return np.full(fields, "NaT", dtype="datetime64[ns]") if times is None else times


def _recognised(latitude_degrees: Array, longitude_degrees: Array, chosen: Indices) -> GridPlaces | None:
    """Recognise a full circle or a part of it from its axes, and where in it chosen points are."""
    columns: Indices
    try:
        grid = LatLonGrid.from_axes(latitude_degrees, longitude_degrees)
        columns = np.arange(grid.n_longitudes)
    except ArgumentError:
        try:
            window = LatLonWindow.from_axes(latitude_degrees, longitude_degrees)
        except ArgumentError:  # spaced unequally
            return None
        grid, columns = window.grid, window.columns
    row, column = np.divmod(chosen, longitude_degrees.size)
    return GridPlaces(grid, row * grid.n_longitudes + columns[column])


def _merged(copies: Array, latitude: float, variable: Variable, units: str) -> Array:
    """Mean over the copies of a pole that are there, (T, Q) -> (T,); NaN where all are missing."""
    present = np.isfinite(copies)
    low = np.where(present, copies, np.inf).min(axis=1)
    high = np.where(present, copies, -np.inf).max(axis=1)
    spread = float(np.max(high - low))
    known = units == variable.units and np.isfinite(variable.high - variable.low)
    typical = variable.high - variable.low if known else float(np.max(np.abs(copies[present]), initial=0.0))
    if spread > POLE_SPREAD * typical:
        logger.warning(
            "the %d values at latitude %g differ by up to %#.3g %s; they are taken as sector averages of the "
            "polar cap and replaced by their mean",
            copies.shape[1],
            latitude,
            spread,
            units,
        )
    # low + mean(copies - low): equal copies give back their value to the last bit
    count = present.sum(axis=1)
    excess = np.where(present, copies - np.where(count > 0, low, 0.0)[:, None], 0.0).sum(axis=1)
    return np.where(count > 0, low + excess / np.maximum(count, 1), np.nan)


def beside_limits(limits: int, given: Mapping[str, bool]) -> str:
    """Say that values are limits of detection and what of the others takes values alone; or nothing."""
    refused = [name for name, there in given.items() if there]
    if not refused:
        return ""
    return (
        f"{limits:,} values are limits of detection, and {' and '.join(refused)} was given, which do not go "
        "together yet; leave one out."
    )
