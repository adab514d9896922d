"""Exact solves on a latitude-longitude grid of which few points are missing (math 7, T28).

With the inverse of the whole grid, ``A = G^-1``, and the missing points m, the observed points o have::

    G_oo^-1 b_o = A (b - e) at o,     e = A_mm^-1 [A b]_m, which makes it vanish at m
    [G_oo^-1]_ii = A_ii - A_im B A_mi,    B = A_mm^-1, the covariance of new observations at m
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.budget.grid_plans import GRID_COLUMNS
from cagp_dist.gram.dense import cholesky_lower
from cagp_dist.gram.functionals import LinearFunctionals, views_of_functionals
from cagp_dist.gram.ring_gram import RingGram
from cagp_dist.gram.targets import part, prior_variance, seen_from
from cagp_dist.lapack import inverse_diagonals, invert_in_place, mirror_lower
from cagp_dist.latlon.entries import PlacesOnGrid
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.latlon.grid_layout import Views

# Noise over field variance up to which variances at points of the grid itself are differences from it: they
# then lose three digits at most
QUIET = 1e3

# Entries of the inverse, in units of its largest, that count as zero far from a missing point
NEGLIGIBLE = 1e-12

# Points of the grid for which the missing points near by are collected at once
BAND_ROWS, BAND_COLUMNS = 8, 32


@dataclass(frozen=True, eq=False)
class FewMissing:
    """No or few missing points."""

    rings: RingGram  # the whole grid
    rows: Indices  # where the missing points are, (r,)
    columns: Indices
    factor: Array  # (r, r): lower Cholesky factor of ``[G^-1]_mm``

    relative_residual: ClassVar[None] = None  # nothing is iterated
    noise_spread: ClassVar[float] = 1.0  # the noise is that of the rings

    @classmethod
    def of(cls, rings: RingGram, missing: Mask) -> "FewMissing":
        """Factor the inverse at the missing points."""
        places = PlacesOnGrid.of(rings.wavenumbers, missing)
        if not places.rows.size:
            return cls(rings, places.rows, places.columns, np.empty((0, 0)))
        inverse = places.entries(rings.inverse_blocks(places.sector_rows))
        return cls(rings, places.rows, places.columns, cholesky_lower(inverse))

    def weights(self, residuals: Array) -> Array:
        """``G^-1 (b - e)`` as fields (T, P, Q), with e such that it vanishes at the missing points."""
        return vanishing(self.rings.solve, residuals, self.rows, self.columns, self.factor)

    def inverse_diagonal(self, wanted: Mask | None = None) -> Array:
        """Diagonal of ``G_o^-1`` as a field (P, Q), without meaning at the missing points."""
        latitudes, longitudes = self.rings.grid.shape
        diagonal = np.repeat(self.rings.inverse_by_latitude()[:, None], longitudes, axis=1)
        if not self.rows.size:
            return diagonal
        smallest = NEGLIGIBLE * float(diagonal.max())
        everywhere = PlacesOnGrid(self.rings.wavenumbers, np.arange(latitudes), np.zeros(latitudes, np.intp))
        blocks = self.rings.inverse_blocks(everywhere.sector_rows)
        gappy, latitude = np.unique(self.rows, return_inverse=True)
        lags = np.minimum(np.arange(longitudes), longitudes - np.arange(longitudes))
        for first in range(0, latitudes, BAND_ROWS):
            band = np.arange(first, min(first + BAND_ROWS, latitudes))
            if wanted is not None and not wanted[band].any():
                continue
            values = np.stack([everywhere.ring_entries(blocks, row)[gappy] for row in band.tolist()])
            reach = np.where(np.abs(values) > smallest, lags, -1).max(axis=(0, 2))[latitude]
            for start in range(0, longitudes, BAND_COLUMNS):
                columns = np.arange(start, min(start + BAND_COLUMNS, longitudes))
                if wanted is not None and not wanted[np.ix_(band, columns)].any():
                    continue
                near = np.flatnonzero(self._apart(columns) <= reach)
                turned = (columns[:, None] - self.columns[near]) % longitudes
                seen = values[:, latitude[near], turned]  # (rows, columns, near)
                explained = np.einsum("ijm,ijm->ij", seen @ self.covariance[np.ix_(near, near)], seen)
                diagonal[np.ix_(band, columns)] -= explained
        return diagonal

    def _apart(self, columns: Indices) -> Indices:
        """Give the steps in longitude from each missing point to the nearest of consecutive columns."""
        longitudes = self.rings.grid.n_longitudes
        ahead = (columns[0] - self.columns) % longitudes
        behind = (self.columns - columns[-1]) % longitudes
        return np.where((self.columns - columns[0]) % longitudes < columns.size, 0, np.minimum(ahead, behind))

    @cached_property
    def covariance(self) -> Array:
        """``B``, covariance of new observations at the missing points, shape (r, r)."""
        inverse = self.factor.copy(order="C")
        invert_in_place(inverse[None])
        mirror_lower(inverse)
        return inverse

    def _variance_at_missing(self) -> Array:
        """Diagonal of B, shape (r,)."""
        if "covariance" in self.__dict__:
            return np.asarray(np.diagonal(self.covariance))
        return np.asarray(inverse_diagonals(np.ascontiguousarray(self.factor)[None])[0])

    def downdate(self, targets: Array | LinearFunctionals, *, full: bool) -> Array:
        """``k*' G_o^-1 k*``, (q,) or (q, q): at points of the grid from the inverse, else by solves."""
        quiet = self.rings.noise_by_latitude.max() <= QUIET * self.rings.kernel.variance
        if full or isinstance(targets, LinearFunctionals) or not quiet:
            return self._downdate_by_views(targets, full=full)
        index = self.rings.grid.places(targets)
        on_grid = index >= 0
        downdate = np.empty(len(targets))
        if on_grid.any():
            prior = prior_variance(self.rings.kernel, targets[on_grid])
            downdate[on_grid] = prior - self._variance_at(index[on_grid])
        if not on_grid.all():
            downdate[~on_grid] = self._downdate_by_views(targets[~on_grid], full=False)
        return downdate

    def _variance_at(self, index: Indices) -> Array:
        """Latent variance at points of the grid, given by their index."""
        latitudes, longitudes = self.rings.grid.shape
        gap = np.zeros((latitudes, longitudes), dtype=bool)
        gap[self.rows, self.columns] = True
        row, column = np.divmod(index, longitudes)
        noise = self.rings.noise_by_latitude
        variance = np.empty(index.size)
        missing = gap[row, column]
        if missing.any():
            found = np.zeros(gap.shape)
            found[self.rows, self.columns] = self._variance_at_missing()
            variance[missing] = found[row[missing], column[missing]] - noise[row[missing]]
        if not missing.all():
            there, own = ~missing, noise[row[~missing]]
            wanted = np.zeros_like(gap)
            wanted[row[there], column[there]] = True
            inverse = self.inverse_diagonal(wanted)[row[there], column[there]]
            variance[there] = own - own**2 * inverse
        return variance

    def _downdate_by_views(self, targets: Array | LinearFunctionals, *, full: bool) -> Array:
        from scipy.linalg import solve_triangular

        grid, kernel = self.rings.grid, self.rings.kernel
        seeing, view, turned = _views(targets, grid)
        q, observed = len(targets), self.rings.X
        own = np.zeros(q)
        at_missing = np.zeros((self.rows.size, q))
        solved = np.zeros((q, grid.size)) if full else np.zeros((0, 0))
        for group in batches(len(seeing)):
            seen = seen_from(kernel, part(seeing, group), observed)
            u = self.rings.solve(seen.reshape(-1, *grid.shape))
            quadratic = np.einsum("vn,vn->v", seen, u.reshape(len(u), -1))
            for i in np.flatnonzero((view >= group.start) & (view < group.stop)):
                v, steps = view[i] - group.start, turned[i]
                own[i] = quadratic[v]
                at_missing[:, i] = u[v, self.rows, (self.columns - steps) % grid.n_longitudes]
                if full:
                    solved[i] = np.roll(u[v], steps, axis=1).ravel()
        half = at_missing
        if self.rows.size:
            half = solve_triangular(self.factor, at_missing, lower=True, check_finite=False)
        if not full:
            return np.asarray(own - np.einsum("mi,mi->i", half, half))
        whole = seen_from(kernel, targets, observed) @ solved.T
        return np.asarray(0.5 * (whole + whole.T) - half.T @ half)


def vanishing(
    solve: Callable[[Array], Array], fields: Array, rows: Indices, columns: Indices, factor: Array
) -> Array:
    """``G^-1 (b - e)`` of fields b (T, P, W) that vanishes at some points, the factor of ``G^-1`` there."""
    from scipy.linalg import cho_solve

    weights = solve(fields)
    if rows.size:
        extra = np.zeros_like(fields)
        extra[:, rows, columns] = cho_solve((factor, True), weights[:, rows, columns].T).T
        weights -= solve(extra)
        weights[:, rows, columns] = 0.0  # exact up to rounding
    return weights


def _views(
    targets: Array | LinearFunctionals, grid: LatLonGrid
) -> tuple[Array | LinearFunctionals, Indices, Indices]:
    """Targets that see the grid differently up to rotation; for each target which, and its rotation."""
    if isinstance(targets, LinearFunctionals):
        return views_of_functionals(targets, grid)
    views = Views.of(targets, grid)
    return views.points, views.view, views.steps


def batches(count: int) -> Iterator[slice]:
    """Slices of at most `GRID_COLUMNS` of so many columns."""
    for start in range(0, count, GRID_COLUMNS):
        yield slice(start, min(start + GRID_COLUMNS, count))
