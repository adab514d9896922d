"""Where a map is wanted, in numbers alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.gram.targets import averaged, joined_targets, part, target_points
from cagp_dist.kernels import TIME, beside_columns
from cagp_dist.latlon import LatLonGrid


@dataclass(frozen=True, eq=False)
class MapPoints:
    """Points of sphere or plane, or means over the cells around them; at hours, if these are a coordinate."""

    X: Array  # (q, 3), of a plane (q, 2), or (q, 4) in space and time
    grid: LatLonGrid | None = None  # the full-circle grid that the points are, row by row
    cells: LinearFunctionals | None = None

    @classmethod
    def of(cls, wanted: Array | LinearFunctionals) -> Self:
        """Take points, or weighted sums of the field."""
        if isinstance(wanted, np.ndarray):
            return cls(wanted)
        return cls(averaged(wanted, target_points(wanted)), cells=wanted)

    @property
    def size(self) -> int:
        """How many they are."""
        return len(self.X)

    @property
    def wanted(self) -> Array | LinearFunctionals:
        """Points, or means."""
        return self.X if self.cells is None else self.cells

    def at_hours(self, hours: Array) -> "MapPoints":
        """Give all of them at each hour (A,), hour after hour."""
        cells = self.cells
        if cells is not None:
            nodes = np.tile(cells.places, (hours.size, 1))
            nodes = beside_columns(nodes, {TIME: np.repeat(hours, len(cells.places))})
            weights, counts = np.tile(cells.weights, hours.size), np.tile(cells.counts, hours.size)
            cells = LinearFunctionals.of_terms(nodes, weights, counts)
        X = beside_columns(np.tile(self.X, (hours.size, 1)), {TIME: np.repeat(hours, len(self.X))})
        return MapPoints(X, cells=cells)

    def beside(self, columns: Mapping[str, float | Array]) -> "MapPoints":
        """Give them coordinates along axes beside space, all the same one or, without cells, each its own."""
        if not columns:
            return self

        def together(X: Array) -> Array:
            return beside_columns(X, {axis: np.broadcast_to(own, len(X)) for axis, own in columns.items()})

        cells = self.cells
        if cells is not None:
            nodes = together(cells.nodes)
            cells = LinearFunctionals.of_terms(nodes, cells.weights, cells.counts, cells.terms)
        return MapPoints(together(self.X), cells=cells)

    def part(self, chosen: Indices) -> Self:
        """Take some of the points."""
        cells = None if self.cells is None else part(self.cells, chosen)
        assert cells is None or isinstance(cells, LinearFunctionals)
        return type(self)(self.X[chosen], cells=cells)


@dataclass(frozen=True, eq=False)
class Targets:
    """All that is predicted: points or means that have names by their kind, and more of which the mean is."""

    points: MapPoints  # each with its mean and its error bar
    kinds: Mapping[str, slice] = field(default_factory=dict)  # which of them are of which kind
    mean_at: MapPoints | None = None  # more of them, where the mean alone is wanted
    # which of the points each of these goes with, of iterations that stop one by one
    mean_like: Indices | None = None
    sampled_at: MapPoints | None = None  # more of them, whose error bars come from samples
    samples: int = 0  # how many

    @classmethod
    def of_kinds(cls, parts: Mapping[str, Array | LinearFunctionals | None]) -> Self:
        """Take points, or weighted sums of the field, by their kinds; None where there are none of a kind."""
        kinds, end = {}, 0
        there: list[Array | LinearFunctionals] = []
        for name, wanted in parts.items():
            size = 0 if wanted is None else len(wanted)
            kinds[name] = slice(end, end + size)
            end += size
            there += [wanted] if wanted is not None and (size or not there) else []
        return cls(MapPoints.of(joined_targets(there)), kinds)

    def with_mean_at(self, points: MapPoints, *, like: str) -> Self:
        """Add points where the mean alone is wanted; each goes with the nearest of a kind."""
        from scipy.spatial import cKDTree

        at = self.of_kind(like)
        nearest = cKDTree(self.points.X[at]).query(points.X)[1]
        return replace(self, mean_at=points, mean_like=np.asarray(at.start + nearest, dtype=np.intp))

    @property
    def size(self) -> int:
        """Points that have an error bar each."""
        return self.points.size

    def of_kind(self, name: str) -> slice:
        """Which of the points are of a kind; none where there is none."""
        return self.kinds.get(name, slice(0, 0))
