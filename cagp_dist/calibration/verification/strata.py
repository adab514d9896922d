"""Where error bars hold: test points in strata, and the coverage of each with what chance explains.

Observations are divided by what was known before they were seen: latitude, surface, how rough the observed
field is near by and, where times inform each other, how long before or after it was observed there. Standard
errors come from compact cells of the stratum's own points, as in `verdict`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.calibration.verification.pit import Histogram, histogram
from cagp_dist.calibration.verification.verdict import CoverageTest, compact_cells, coverage_test
from cagp_dist.cartography.land import NEAR_KILOMETRES, SURFACES, surface_of
from cagp_dist.checks import as_points
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import degrees
from cagp_dist.space import SPHERE, Space
from cagp_dist.text import degrees_label

ROUGHNESS_POINTS = 10  # Observed points around a place that say how rough the field is there

# A stratum with fewer is not measured: its standard error would be guessed from a dozen cells or less
FEWEST_OBSERVATIONS = 50

# Of the central intervals of a reliability diagram
RELIABILITY_LEVELS = (*(round(0.05 * step, 2) for step in range(1, 20)), 0.99)

CHANCE = 1.96  # Standard errors to each side that hold 95 of 100 shares by chance
_MOST_BANDS = 6
_BAND_DEGREES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0)
LAGS = {
    "same time": "one of the {near} nearest observed places has a value at the time itself",
    "within 6 hours": "one of the {near} nearest observed places has a value within 6 hours, none at it",
    "6 to 24 hours": "none of the {near} nearest observed places has a value within 6 hours",
    "1 to 3 days": "none of the {near} nearest observed places has a value within a day",
    "beyond 3 days": "none of the {near} nearest observed places has a value within 3 days",
}
_LAG_HOURS = tuple(hours + 1e-6 for hours in (0.0, 6.0, 24.0, 72.0))  # but for rounding
FIFTHS = ("smoothest fifth", "second fifth", "middle fifth", "fourth fifth", "roughest fifth")
_NEIGHBOURS_AT_ONCE = 2**22


@dataclass(frozen=True, eq=False)
class Strata:
    """One way to divide observations."""

    kind: str  #: "all", "latitude", "surface", "roughness" or "lag"
    names: tuple[str, ...]
    definitions: tuple[str, ...]
    member: Indices  #: (q,) or (T, q): stratum of each test point, or of each at each time; -1 for none


@dataclass(frozen=True, eq=False)
class Stratum:
    """The observations of a stratum, k of them."""

    kind: str
    name: str
    definition: str
    inside: Mask  #: (T, q): which they are
    cells: Indices  #: (k,): compact cell of the stratum that each lies in; all times of a point are in one
    weights: Array | None  #: (k,): area that each stands for

    def coverage(self, pit: ArrayLike, levels: Sequence[float]) -> CoverageTest:
        """Coverage of central intervals, from PIT values (T, q), with its standard error."""
        return coverage_test(self._own(pit), levels=levels, cells=self.cells, weights=self.weights)

    def histogram(self, pit: ArrayLike) -> Histogram:
        """Histogram of PIT values (T, q)."""
        return histogram(self._own(pit), weights=self.weights)

    def average(self, values: ArrayLike) -> Array:
        """Mean of values (..., T, q) over the observations, weighted as their coverage is; not of NaN."""
        own = self._own(values)
        weights = np.broadcast_to(1.0 if self.weights is None else self.weights, own.shape)
        shares = np.where(np.isnan(own), 0.0, weights)
        total = shares.sum(axis=-1)
        mean = (np.where(np.isnan(own), 0.0, own) * shares).sum(axis=-1)
        found = np.divide(mean, total, out=np.full(total.shape, np.nan), where=total > 0.0)
        return np.asarray(found, dtype=np.float64)

    def _own(self, values: ArrayLike) -> Array:
        every = np.asarray(values, dtype=np.float64)
        return np.asarray(every[..., self.inside if every.ndim > 1 else self.inside[0]], dtype=np.float64)


def strata_of(
    north: Array,
    east: Array,
    *,
    space: Space = SPHERE,
    roughness: ArrayLike | None = None,
    units: str = "",
) -> list[Strata]:
    """Divide test points (q,) by latitude, surface and, where it is given, roughness, (q,) or (T, q)."""
    found = [by_latitude(north), by_surface(north, east)] if space.has_latitudes else []
    return found if roughness is None else [*found, by_roughness(roughness, units=units)]


def by_latitude(latitude_degrees: ArrayLike) -> Strata:
    """Bands of latitude: of 30 degrees on the globe, of a region so high that there are six or fewer."""
    latitude = np.asarray(latitude_degrees, dtype=np.float64)
    low, high = float(latitude.min()), float(latitude.max())

    def bounds(step: float) -> tuple[int, int]:
        first = int(np.floor(low / step))
        return first, max(first + 1, int(np.ceil(high / step)))

    fitting = (step for step in _BAND_DEGREES if np.diff(bounds(step))[0] <= _MOST_BANDS)
    step = next(fitting)  # no more than six of 30 degrees fit on the globe
    first, last = bounds(step)
    member = np.minimum(np.floor(latitude / step).astype(np.intp), last - 1) - first
    edges = [degrees_label(round(step * index, 6), axis="latitude") for index in range(first, last + 1)]
    names = tuple(f"{south} to {north}" for south, north in pairwise(edges))
    return Strata("latitude", names, tuple(f"latitudes {name}" for name in names), member)


def by_surface(latitude_degrees: ArrayLike, longitude_degrees: ArrayLike) -> Strata:
    """Sea, land and coast, by the coastlines that there are (`cagp_dist.cartography.land`)."""
    definitions = {
        "sea": f"more than {NEAR_KILOMETRES:g} km from a coastline, at sea",
        "land": f"more than {NEAR_KILOMETRES:g} km from a coastline, on land",
        "coast": f"within {NEAR_KILOMETRES:g} km of a coastline, which is drawn no finer",
    }
    member = surface_of(latitude_degrees, longitude_degrees)
    return Strata("surface", SURFACES, tuple(definitions[name] for name in SURFACES), member)


def surface_terms(points: Array) -> Array:
    """Whether unit vectors (n, 3) lie on land, and whether on a coast, as two columns of ones and zeros.

    Of other points nothing is known: no column.
    """
    if points.shape[1] != 3:
        return np.empty((len(points), 0))
    member = surface_of(*degrees(points))
    return np.stack([member == SURFACES.index(name) for name in ("land", "coast")], axis=1).astype(np.float64)


def by_roughness(roughness: ArrayLike, *, units: str = "") -> Strata:
    """Fifths, from smooth to rough, of observations ``roughness`` (q,) or (T, q); NaN is in none."""
    rough = np.asarray(roughness, dtype=np.float64)
    known = np.isfinite(rough)
    if not known.any():
        return Strata("roughness", (), (), np.full(rough.shape, -1))
    edges = np.quantile(rough[known], np.linspace(0.0, 1.0, len(FIFTHS) + 1))
    member = np.where(known, np.searchsorted(edges[1:-1], np.where(known, rough, 0.0)), -1)
    definitions = tuple(
        f"the {ROUGHNESS_POINTS} nearest observed values have a standard deviation of "
        f"{low:.3g} to {high:.3g} {units}".strip()
        for low, high in pairwise(edges)
    )
    return Strata("roughness", FIFTHS, definitions, member)


def by_lag(hours: ArrayLike) -> Strata:
    """Divide by hours (T, q) to the nearest value near by; NaN, where there is none, is in no stratum."""
    lag = np.asarray(hours, dtype=np.float64)
    member = np.where(np.isnan(lag), -1, np.searchsorted(_LAG_HOURS, lag))
    return Strata(
        "lag", tuple(LAGS), tuple(said.format(near=ROUGHNESS_POINTS) for said in LAGS.values()), member
    )


def roughness_of(values: ArrayLike, X: ArrayLike, targets: ArrayLike) -> Array:
    """Say how much the observed field varies around places: by the ten observed points nearest to each.

    The standard deviation of their values. Shapes: ``values`` (n,) or (T, n), NaN where nothing was observed,
    at X (n, p); ``targets`` (q, p). Returns (q,) or (T, q); NaN where fewer than two of the ten were
    observed.

    Examples
    --------
    >>> X = np.arange(20.0)[:, None]
    >>> roughness_of(np.where(X[:, 0] < 10.0, 0.0, X[:, 0]), X, [[3.0], [16.0]]).round(2).tolist()
    [0.0, 2.87]
    """
    from scipy.spatial import cKDTree

    observed, where, places = (
        np.asarray(values, dtype=np.float64),
        as_points("X", X),
        as_points("targets", targets),
    )
    if observed.shape[-1:] != (len(where),):
        raise ArgumentError(
            f"values have shape {observed.shape} and X {where.shape}; expected a value for each row of X.",
            key="shapes",
        )
    table = np.atleast_2d(observed)
    count = min(ROUGHNESS_POINTS, len(where))
    index = np.asarray(cKDTree(where).query(places, k=range(1, count + 1), workers=-1)[1])
    rough = np.empty((len(table), len(places)))
    step = max(1, _NEIGHBOURS_AT_ONCE // max(1, index.size))
    for start in range(0, len(table), step):
        near = table[start : start + step][:, index]
        there = ~np.isnan(near)
        number = np.count_nonzero(there, axis=2)
        middle = np.where(there, near, 0.0).sum(axis=2) / np.maximum(number, 1)
        squares = np.where(there, near - middle[..., None], 0.0) ** 2
        spread = np.sqrt(squares.sum(axis=2) / np.maximum(number, 1))
        rough[start : start + step] = np.where(number > 1, spread, np.nan)
    return rough.reshape(*observed.shape[:-1], len(places))


def divided(
    observed: ArrayLike, X: ArrayLike, strata: Sequence[Strata], *, weights: ArrayLike | None = None
) -> Iterator[Stratum]:
    """Yield all observations, then those of each stratum that has at least 50 of them.

    Shapes: ``observed`` (q,) or (T, q), of bool; X (q, p), test points; ``weights`` (q,), the area that each
    stands for: one without area is in no stratum. `ArgumentError`: there is no observation, or not one row of
    X for each point.

    Examples
    --------
    Half of the points are sure of too much:

    >>> from scipy.special import ndtr
    >>> generator = np.random.default_rng(0)
    >>> X = generator.uniform(size=(2000, 1))
    >>> pit = ndtr(generator.standard_normal(2000) * np.where(X[:, 0] < 0.5, 1.0, 3.0))
    >>> halves = Strata("half", ("left", "right"), ("", ""), (X[:, 0] >= 0.5).astype(int))
    >>> for stratum in divided(np.ones(2000, dtype=bool), X, [halves]):
    ...     found = stratum.coverage(pit, [0.9])
    ...     print(stratum.name, found.coverage.round(2), found.faults)
    all [0.65] [-1]
    left [0.89] [0]
    right [0.4] [-1]
    """
    there, points = np.atleast_2d(np.asarray(observed, dtype=bool)), as_points("X", X)
    if there.shape[1] != len(points):
        raise ArgumentError(
            f"observed has shape {np.shape(observed)} and X {points.shape}; expected one row of X for each "
            "point.",
            key="shapes",
        )
    area = None if weights is None else np.asarray(weights, dtype=np.float64)
    if area is not None:
        there = there & (area > 0.0)
    if not there.any():
        raise ArgumentError(
            "there is no observation to divide; expected at least one, with an area.", key="no-points"
        )
    everywhere = Strata("all", ("all",), ("all test points",), np.zeros(len(points), dtype=np.intp))
    for division in (everywhere, *strata):
        for number, (name, definition) in enumerate(zip(division.names, division.definitions, strict=True)):
            inside = there & (division.member == number)
            if division is not everywhere and np.count_nonzero(inside) < FEWEST_OBSERVATIONS:
                continue
            _, point = np.nonzero(inside)
            places, place = np.unique(point, return_inverse=True)
            yield Stratum(
                division.kind,
                name,
                definition,
                inside,
                cells=compact_cells(points[places])[place],
                weights=None if area is None else area[point],
            )
