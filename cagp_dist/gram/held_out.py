"""Solves with the observed part of a grid's Gram matrix, where few or many points are missing (math 7, T28).

The weights v of the observed points, zero elsewhere, come from the whole grid in one of two ways:

few missing
    ``v = G^-1 (b - e)``, with e chosen on the missing points m so that v vanishes there:
    ``[G^-1]_mm e = [G^-1 b]_m``. Entries of ``G^-1`` depend on two latitudes and the difference in longitude,
    so one whole-grid solve for each latitude with a missing point gives them all.
many missing
    conjugate gradients preconditioned by the whole grid (`cagp_dist.gram.masked`).

A test point sees the grid through ``k* = k(X, x*)``; points of equal latitude that lie equally between
longitudes of the grid see it rotated, and share one solve.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cagp_dist.budget import GRID_COLUMNS
from cagp_dist.checks import as_numbers
from cagp_dist.errors import NumericalError
from cagp_dist.geometry import unit_sphere
from cagp_dist.gram.base import Array
from cagp_dist.gram.dense import cholesky_lower
from cagp_dist.gram.grid import LatLonGrid
from cagp_dist.gram.masked import MaskedRings
from cagp_dist.gram.rings import RingGram

TOLERANCE = 1e-10
"""Relative residual of the iteration for many missing points."""

SAME_DEGREES = 1e-9
"""Positions closer than this are one."""


@dataclass(frozen=True, eq=False)
class Targets:
    """Test points: degrees (q,), longitude in [0, 360)."""

    latitude_degrees: Array
    longitude_degrees: Array

    @property
    def points(self) -> Array:
        """On the unit sphere, shape (q, 3)."""
        return unit_sphere(self.latitude_degrees, self.longitude_degrees)


def as_targets(latitude_degrees: ArrayLike, longitude_degrees: ArrayLike) -> Targets:
    """Check test points given in degrees; longitudes of any convention."""
    latitude = as_numbers("latitude_degrees", latitude_degrees)
    longitude = as_numbers("longitude_degrees", longitude_degrees)
    unit_sphere(latitude, longitude)  # shapes, ranges and finite values
    return Targets(latitude, np.mod(longitude, 360.0))


@dataclass(frozen=True, eq=False)
class Views:
    """The distinct ways in which test points see a grid, up to rotation by whole grid steps.

    Attributes
    ----------
    latitude_degrees, longitude_degrees : array, shape (v,)
        A point for each view, less than one grid step east of the first longitude.
    view, steps : array of int, shape (q,)
        View of each test point, and its rotation to the east.
    """

    latitude_degrees: Array
    longitude_degrees: Array
    view: NDArray[np.intp]
    steps: NDArray[np.intp]

    @classmethod
    def of(cls, targets: Targets, grid: LatLonGrid) -> Self:
        """Find the views of some test points."""
        spacing = 360.0 / grid.n_longitudes
        eastward = np.mod(targets.longitude_degrees - grid.first_longitude_degrees, 360.0)
        steps = np.floor(eastward / spacing + SAME_DEGREES)
        offset = grid.first_longitude_degrees + np.maximum(eastward - steps * spacing, 0.0)
        pairs = np.stack([targets.latitude_degrees, offset], axis=1)
        _, first, view = np.unique(
            np.round(pairs / SAME_DEGREES), axis=0, return_index=True, return_inverse=True
        )
        chosen = pairs[first]
        return cls(chosen[:, 0], chosen[:, 1], view.reshape(-1), steps.astype(np.intp))


class ObservedSystem(Protocol):
    """Solves with the observed part of the Gram matrix."""

    @property
    def relative_residual(self) -> float | None: ...

    def weights(self, residuals: Array) -> Array:
        """``G_o^-1 b_o`` as fields (T, P, Q), zero at missing points."""
        ...

    def downdate(self, targets: Targets, *, full: bool) -> Array:
        """``k*' G_o^-1 k*``, shape (q,) or (q, q)."""
        ...


@dataclass(frozen=True, eq=False)
class FewMissing:
    """No or few missing points.

    Attributes
    ----------
    rings : RingGram
        The whole grid.
    rows, columns : array of int, shape (r,)
        Where the missing points are.
    factor : array, shape (r, r)
        Lower Cholesky factor of ``[G^-1]_mm``.
    """

    rings: RingGram
    rows: NDArray[np.intp]
    columns: NDArray[np.intp]
    factor: Array

    @property
    def relative_residual(self) -> float | None:
        """None: nothing is iterated."""
        return None

    @classmethod
    def of(cls, rings: RingGram, missing: NDArray[np.bool_]) -> Self:
        """Factor the inverse at the missing points, one whole-grid solve for each latitude that has any."""
        rows, columns = np.nonzero(missing)
        inverse = np.empty((rows.size, rows.size))
        latitudes = np.unique(rows)
        for group in _batches(latitudes.size):
            unit = np.zeros((len(latitudes[group]), *rings.grid.shape))
            unit[np.arange(len(unit)), latitudes[group], 0] = 1.0
            for latitude, column_field in zip(latitudes[group], rings.solve(unit), strict=True):
                for j in np.flatnonzero(rows == latitude):
                    turned = (columns - columns[j]) % rings.grid.n_longitudes
                    inverse[:, j] = column_field[rows, turned]
        return cls(rings, rows, columns, cholesky_lower(inverse) if rows.size else inverse)

    def weights(self, residuals: Array) -> Array:
        """``G^-1 (b - e)`` with e such that it vanishes at the missing points."""
        from scipy.linalg import cho_solve

        weights = self.rings.solve(residuals)
        if self.rows.size:
            extra = np.zeros_like(residuals)
            wrong = weights[:, self.rows, self.columns].T
            extra[:, self.rows, self.columns] = cho_solve((self.factor, True), wrong).T
            weights -= self.rings.solve(extra)
            weights[:, self.rows, self.columns] = 0.0  # up to rounding it is
        return weights

    def downdate(self, targets: Targets, *, full: bool) -> Array:
        """``k*' u - u_m' [G^-1]_mm^-1 u_m`` with ``u = G^-1 k*``."""
        from scipy.linalg import solve_triangular

        grid, kernel = self.rings.grid, self.rings.kernel
        views = Views.of(targets, grid)
        q, points = len(views.view), grid.points
        own = np.zeros(q)
        at_missing = np.zeros((self.rows.size, q))
        solved = np.zeros((q, grid.size)) if full else np.zeros((0, 0))
        for group in _batches(len(views.latitude_degrees)):
            seen = kernel(unit_sphere(views.latitude_degrees[group], views.longitude_degrees[group]), points)
            u = self.rings.solve(seen.reshape(-1, *grid.shape))
            quadratic = np.einsum("vn,vn->v", seen, u.reshape(len(u), -1))
            for i in np.flatnonzero((views.view >= group.start) & (views.view < group.stop)):
                v, steps = views.view[i] - group.start, views.steps[i]
                own[i] = quadratic[v]
                at_missing[:, i] = u[v, self.rows, (self.columns - steps) % grid.n_longitudes]
                if full:
                    solved[i] = np.roll(u[v], steps, axis=1).ravel()
        half = at_missing
        if self.rows.size:
            half = solve_triangular(self.factor, at_missing, lower=True, check_finite=False)
        if not full:
            return np.asarray(own - np.einsum("mi,mi->i", half, half))
        whole = kernel(targets.points, points) @ solved.T
        return np.asarray(0.5 * (whole + whole.T) - half.T @ half)


class ManyMissing:
    """Many missing points: conjugate gradients, for every test point anew."""

    def __init__(self, rings: RingGram, observed: NDArray[np.bool_]) -> None:
        self._masked = MaskedRings(rings, observed)
        self.relative_residual: float | None = 0.0

    def weights(self, residuals: Array) -> Array:
        """``G_o^-1 b_o``."""
        return self._masked.embed(self._solved(self._masked.restrict(residuals).T))

    def _solved(self, columns: Array) -> Array:
        solution = self._masked.solution(columns, tolerance=TOLERANCE)
        worst = float(solution.relative_residual.max(initial=0.0))
        self.relative_residual = max(self.relative_residual or 0.0, worst)
        if not solution.ok:
            raise NumericalError(
                f"after {solution.products} products the relative residual is {worst:.2g}; needed is "
                f"{TOLERANCE:g}. Raise noise_variance, or use cagp_dist.condition with block Gauss-Seidel."
            )
        return solution.value

    def downdate(self, targets: Targets, *, full: bool) -> Array:
        """``k_o*' G_o^-1 k_o*`` by one solve for each test point."""
        kernel, points, new = self._masked.rings.kernel, self._masked.points, targets.points
        q = len(new)
        out = np.zeros((q, q) if full else q)
        whole = kernel(new, points) if full else np.zeros((0, 0))
        for group in _batches(q):
            seen = kernel(new[group], points)
            solved = self._solved(seen.T)
            if full:
                out[:, group] = whole @ solved.T
            else:
                out[group] = np.einsum("in,in->i", seen, solved)
        return 0.5 * (out + out.T) if full else out


def _batches(count: int) -> Iterator[slice]:
    for start in range(0, count, GRID_COLUMNS):
        yield slice(start, min(start + GRID_COLUMNS, count))
