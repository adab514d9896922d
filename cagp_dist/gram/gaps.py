"""Exact solves on a latitude-longitude grid of which no or few points are missing (math 7, T28).

With the inverse of the whole grid, ``A = G^-1``, and the missing points m, the observed points o have::

    G_oo^-1 b_o = A (b - e) at o,     e = A_mm^-1 [A b]_m, which makes it vanish at m
    [G_oo^-1]_ii = A_ii - A_im B A_mi,    B = A_mm^-1, the covariance of new observations at m
    log|G_oo| = log|G| + log|A_mm|
"""

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.budget.grid_plans import GRID_COLUMNS
from cagp_dist.gram.dense import cholesky_lower
from cagp_dist.gram.functionals import LinearFunctionals, views_of_functionals
from cagp_dist.gram.ring_gram import RingGram
from cagp_dist.gram.targets import Targets, list_targets, part, prior_variance, seen_from
from cagp_dist.lapack import inverse_diagonals, invert_in_place, mirror_lower
from cagp_dist.latlon.entries import PlacesOnGrid
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.latlon.grid_layout import Layout, Views

# Noise over field variance up to which variances at points of the grid itself are differences from it: they
# then lose three digits at most
QUIET = 1e3

# Noise over field variance above which the downdate of the grid itself would be lost to rounding as a
# difference of the inverse's diagonal; it then comes from solves, as that of points
LOUDEST = 1e6

TRUSTED_BOUND = 1e12  # Condition number up to which its cheap upper bound is good enough

# Entries of the inverse, in units of its largest, that count as zero far from a missing point
NEGLIGIBLE = 1e-12

# Points of the grid for which the missing points near by are collected at once
BAND_ROWS, BAND_COLUMNS = 8, 32


class GridSolve:
    """Exact solves with the observed points of a grid; an `cagp_dist.gram.gram_matrix.ExactSolve`."""

    def __init__(self, rings: RingGram, layout: Layout) -> None:
        self.rings, self.layout = rings, layout  # the whole grid, and which of its points were observed
        self._places = PlacesOnGrid.of(rings.wavenumbers, layout.missing)
        self.rows, self.columns = self._places.rows, self._places.columns  # of the missing points, (r,)

    @cached_property
    def factor(self) -> Array:
        """Lower Cholesky factor (r, r) of ``[G^-1]_mm``."""
        if not self.rows.size:
            return np.empty((0, 0))
        return cholesky_lower(self._places.entries(self.rings.inverse_blocks(self._places.sector_rows)))

    @property
    def condition_number(self) -> float:
        """That of the whole grid, no less than that of its observed points: a bound, or an estimate."""
        bound = self.rings.condition_bound()
        return bound if bound <= TRUSTED_BOUND else min(bound, self.rings.condition_estimate())

    def logdet(self) -> float:
        """``log|G_oo|``; of each pole, a row of Q copies, that of the mean alone."""
        copies, noise = self.rings.grid.n_longitudes, self.rings.noise_by_latitude[self.layout.poles]
        of_copies = float(((copies - 1) * np.log(noise) + np.log(copies)).sum())
        return self.rings.logdet() + 2.0 * float(np.log(np.diag(self.factor)).sum()) - of_copies

    def weights(self, residuals: Array) -> Array:
        """``G_oo^-1 b`` for b (n, T)."""
        fields = self._weights(self.layout.spread(residuals.T))
        return np.ascontiguousarray(self.layout.summed(fields).T)

    def _weights(self, fields: Array) -> Array:
        """``G^-1 (b - e)`` of fields b (T, P, Q), with e such that it vanishes at the missing points."""
        from scipy.linalg import cho_solve

        weights = self.rings.solve(fields)
        if self.rows.size:
            extra = np.zeros_like(fields)
            extra[:, self.rows, self.columns] = cho_solve(
                (self.factor, True), weights[:, self.rows, self.columns].T
            ).T
            weights -= self.rings.solve(extra)
            weights[:, self.rows, self.columns] = 0.0  # exact up to rounding
        return weights

    def inverse_diagonal(self) -> Array:
        """Diagonal of ``G_oo^-1``, shape (n,)."""
        fields, poles = self._inverse_field()[None], self.layout.poles
        if poles.size:  # one observation, but a row of the grid: e' G^-1 e of the whole row
            rows = np.zeros((poles.size, *self.rings.grid.shape))
            rows[np.arange(poles.size), poles] = 1.0
            weights = self._weights(rows)
            fields[0, poles] = weights[np.arange(poles.size), poles].sum(axis=1)[:, None]
        return np.asarray(self.layout.restrict(fields)[0])

    def _inverse_field(self, wanted: Mask | None = None) -> Array:
        """Diagonal of ``G_oo^-1`` as a field (P, Q), without meaning at the missing points."""
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

    def downdate(self, targets: Targets, *, full: bool) -> Array:
        """``V G_oo^-1 V'``, (q,) or (q, q): at points of the grid from the inverse, else by solves."""
        listed = list_targets(targets)
        loudness = self.rings.noise_by_latitude.max() / self.rings.kernel.variance
        if full or isinstance(listed, LinearFunctionals):
            return self._downdate_by_views(listed, full=full)
        if isinstance(targets, LatLonGrid) and not self.rows.size and targets.same_points(self.rings.grid):
            if loudness <= LOUDEST:
                noise, prior = self.rings.noise_variance, self.rings.kernel.diagonal(self.rings.X)
                return np.asarray(prior - noise * (1.0 - noise * self.rings.inverse_diagonal()))
            # latitude by latitude: one solve at a time, so that the plan need not know of the noise
            by_latitude = listed.reshape(*self.rings.grid.shape, -1)
            return np.concatenate([self._downdate_by_views(ring, full=False) for ring in by_latitude])
        if loudness > QUIET:
            return self._downdate_by_views(listed, full=False)
        index = self.rings.grid.places(listed)
        on_grid = index >= 0
        downdate = np.empty(len(listed))
        if on_grid.any():
            prior = prior_variance(self.rings.kernel, listed[on_grid])
            downdate[on_grid] = prior - self._variance_at(index[on_grid])
        if not on_grid.all():
            downdate[~on_grid] = self._downdate_by_views(listed[~on_grid], full=False)
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
            inverse = self._inverse_field(wanted)[row[there], column[there]]
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
