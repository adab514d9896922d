"""Exact solves on a latitude-longitude grid, where no, few or many points are missing (math 7, T28).

The weights v of the observed points, zero elsewhere, are found in one of three ways:

few missing
    ``v = G^-1 (b - e)``, with e chosen on the missing points m so that v vanishes there:
    ``[G^-1]_mm e = [G^-1 b]_m``. Entries of ``G^-1`` depend on two latitudes and the difference in longitude,
    so one whole-grid solve for each latitude with a missing point gives them all.
many missing, few of them inside a window that holds all observed points
    the window is solved directly (`cagp_dist.gram.window`).
many missing, or noise that varies along a latitude
    conjugate gradients preconditioned by the whole grid (`cagp_dist.gram.masked`).

A test point sees the grid through ``k* = k(X, x*)``; points of equal latitude that lie equally between
longitudes of the grid see it rotated, and share one solve, and so do means over cells. Where the targets are
the grid itself and nothing is missing, ``diag(K G^-1 K) = diag(K) - N + N^2 diag(G^-1)`` with the noise N,
which one pass over the factors gives.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.budget.demand import FEW_MISSING, solves_window
from cagp_dist.budget.grids import GRID_COLUMNS
from cagp_dist.errors import NumericalError
from cagp_dist.gram.dense import cholesky_lower
from cagp_dist.gram.functionals import LinearFunctionals, views_of_functionals
from cagp_dist.gram.masked import MaskedRings
from cagp_dist.gram.rings import RingGram
from cagp_dist.gram.targets import Targets, as_list, part, seen_from, target_points
from cagp_dist.gram.window import WindowSolve
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.latlon.layout import Layout
from cagp_dist.latlon.views import Views
from cagp_dist.runtime import Executor

TOLERANCE = 1e-10
"""Relative residual of the iteration for many missing points."""

TRUSTED_BOUND = 1e12
"""Condition number up to which its cheap upper bound is good enough."""

LOUDEST = 1e6
"""Noise over field variance above which the downdate of the grid itself would be lost to rounding as a
difference of the inverse's diagonal; it then comes from solves, as that of points."""


class GridSolve:
    """Exact solves with the observed points of a grid; an `cagp_dist.gram.base.ExactSolve`.

    Parameters
    ----------
    rings : RingGram
        The whole grid, with the noise of complete pole rows (`Layout.row_noise`).
    layout : Layout
        Which points were observed.
    noise_variance : array, shape (n,), optional
        Noise of each observed point, where it is not that of its latitude.
    executor : Executor, optional
        Where columns of a window are solved side by side.
    """

    def __init__(
        self,
        rings: RingGram,
        layout: Layout,
        *,
        noise_variance: Array | None = None,
        executor: Executor | None = None,
    ) -> None:
        self._rings, self._layout = rings, layout
        self._even = noise_variance is None
        missing = int(np.count_nonzero(layout.missing))
        self._system: FewMissing | WindowSolve | ManyMissing
        if self._even and missing <= FEW_MISSING:
            self._system = FewMissing.of(rings, layout.missing)
        elif self._even and solves_window(
            rings.grid.shape[0], layout.window[1], gaps=layout.missing_in_window, missing=missing
        ):
            noise = rings.noise_by_latitude.copy()
            noise[layout.poles] /= rings.grid.n_longitudes
            self._system = WindowSolve(rings.kernel, layout, noise, executor)
        else:
            noise_there = self._of_complete_rows(noise_variance)
            self._system = ManyMissing(rings, ~layout.missing, noise_variance=noise_there)

    def _of_complete_rows(self, noise_variance: Array | None) -> Array | None:
        """Noise of all points that are not missing, where poles are complete rows."""
        if noise_variance is None:
            return None
        field = self._layout.spread(noise_variance[None])[0]
        field[self._layout.poles] *= self._rings.grid.n_longitudes
        return np.asarray(field[~self._layout.missing])

    @property
    def relative_residual(self) -> float | None:
        """Largest relative residual of the iteration; None where nothing is iterated."""
        return self._system.relative_residual

    @property
    def condition_number(self) -> float:
        """That of the whole grid, no less than that of its observed points: a bound, or an estimate.

        With noise between c and C times that of the rings it is at most ``max(C, 1) / min(c, 1)`` times
        theirs.
        """
        if isinstance(self._system, WindowSolve):
            return self._system.condition_number
        bound, spread = self._rings.condition_bound(), self._system.noise_spread
        return spread * (bound if bound <= TRUSTED_BOUND else min(bound, self._rings.condition_estimate()))

    def weights(self, residuals: Array) -> Array:
        """``G^-1 b`` for b (n, T)."""
        fields = self._system.weights(self._layout.spread(residuals.T))
        return np.ascontiguousarray(self._layout.summed(fields).T)

    def inverse_diagonal(self) -> Array:
        """Diagonal of the inverse of the observed system, shape (n,)."""
        fields = self._system.inverse_diagonal()[None]
        poles = self._layout.poles
        if poles.size:  # one observation, but a row of the grid: e' G^-1 e of the whole row
            rows = np.zeros((poles.size, *self._rings.grid.shape))
            rows[np.arange(poles.size), poles] = 1.0
            weights = self._system.weights(rows)
            fields[0, poles] = weights[np.arange(poles.size), poles].sum(axis=1)[:, None]
        return np.asarray(self._layout.restrict(fields)[0])

    def downdate(self, targets: Targets, *, full: bool) -> Array:
        """``V G^-1 V'``, shape (q,) or (q, q)."""
        if full or not self._targets_are_whole_grid(targets):
            return self._system.downdate(as_list(targets), full=full)
        if self._rings.noise_by_latitude.max() <= LOUDEST * self._rings.kernel.variance:
            return self._whole_downdate()
        # latitude by latitude: one solve at a time, so that the plan need not know of the noise
        rings_of_points = target_points(targets).reshape(*self._rings.grid.shape, -1)
        return np.concatenate([self._system.downdate(ring, full=False) for ring in rings_of_points])

    def _targets_are_whole_grid(self, targets: Targets) -> bool:
        complete = self._even and not self._layout.missing.any()
        return isinstance(targets, LatLonGrid) and complete and targets.same_points(self._rings.grid)

    def _whole_downdate(self) -> Array:
        noise, prior = self._rings.noise_variance, self._rings.kernel.diagonal(self._rings.X)
        return np.asarray(prior - noise * (1.0 - noise * self._rings.inverse_diagonal()))


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
    rows: Indices
    columns: Indices
    factor: Array

    @property
    def relative_residual(self) -> float | None:
        """None: nothing is iterated."""
        return None

    @property
    def noise_spread(self) -> float:
        """One: the noise is that of the rings."""
        return 1.0

    @classmethod
    def of(cls, rings: RingGram, missing: Mask) -> "FewMissing":
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
        """``G^-1 (b - e)`` as fields (T, P, Q), with e such that it vanishes at the missing points."""
        from scipy.linalg import cho_solve

        weights = self.rings.solve(residuals)
        if self.rows.size:
            extra = np.zeros_like(residuals)
            wrong = weights[:, self.rows, self.columns].T
            extra[:, self.rows, self.columns] = cho_solve((self.factor, True), wrong).T
            weights -= self.rings.solve(extra)
            weights[:, self.rows, self.columns] = 0.0  # up to rounding it is
        return weights

    def inverse_diagonal(self) -> Array:
        """Diagonal of ``G_o^-1`` as a field (P, Q), which means nothing at the missing points.

        ``[G_o^-1]_ii = [G^-1]_ii - [G^-1]_im ([G^-1]_mm)^-1 [G^-1]_mi``: one whole-grid solve for each
        latitude gives the ``[G^-1]_mi`` of its points, and r^2 n flops for r missing points the rest.
        """
        from scipy.linalg import solve_triangular

        latitudes, longitudes = self.rings.grid.shape
        diagonal = np.repeat(self.rings.inverse_by_latitude()[:, None], longitudes, axis=1)
        if not self.rows.size:
            return diagonal
        turned = (self.columns[:, None] - np.arange(longitudes)) % longitudes
        for group in _batches(latitudes):
            unit = np.zeros((group.stop - group.start, latitudes, longitudes))
            unit[np.arange(len(unit)), np.arange(group.start, group.stop), 0] = 1.0
            for latitude, column_field in enumerate(self.rings.solve(unit), start=group.start):
                to_missing = column_field[self.rows[:, None], turned]
                half = solve_triangular(self.factor, to_missing, lower=True, check_finite=False)
                diagonal[latitude] -= np.einsum("mi,mi->i", half, half)
        return diagonal

    def downdate(self, targets: Array | LinearFunctionals, *, full: bool) -> Array:
        """``k*' G_o^-1 k*`` from one whole-grid solve for each view; (q,) or (q, q)."""
        from scipy.linalg import solve_triangular

        grid, kernel = self.rings.grid, self.rings.kernel
        seeing, view, turned = _views(targets, grid)
        q, observed = len(targets), self.rings.X
        own = np.zeros(q)
        at_missing = np.zeros((self.rows.size, q))
        solved = np.zeros((q, grid.size)) if full else np.zeros((0, 0))
        for group in _batches(len(seeing)):
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


class ManyMissing:
    """Many missing points, or uneven noise: conjugate gradients, once more for every test point."""

    def __init__(self, rings: RingGram, observed: Mask, *, noise_variance: Array | None = None) -> None:
        self._masked = MaskedRings(rings, observed, noise_variance=noise_variance)
        self.relative_residual: float | None = 0.0

    @property
    def noise_spread(self) -> float:
        """How many times larger noise that is not that of the rings can make the condition number."""
        low, high = self._masked.noise_range
        return max(high, 1.0) / min(low, 1.0)

    def weights(self, residuals: Array) -> Array:
        """``G_o^-1 b_o`` as fields (T, P, Q)."""
        columns = self._masked.layout.restrict(residuals).T
        solved = [self._solved(columns[:, group]) for group in _batches(columns.shape[1])]
        return self._masked.layout.embed(np.concatenate(solved))

    def _solved(self, columns: Array) -> Array:
        solution = self._masked.solution(columns, tolerance=TOLERANCE)
        worst = float(solution.relative_residual.max(initial=0.0))
        self.relative_residual = max(self.relative_residual or 0.0, worst)
        if not solution.ok:
            raise NumericalError(
                f"after {solution.products} products the relative residual is {worst:.2g}; needed is "
                f"{TOLERANCE:g}. Raise noise_variance, or use block Gauss-Seidel."
            )
        return solution.value

    def inverse_diagonal(self) -> Array:
        """Diagonal of ``G_o^-1`` as a field (P, Q), zero at the missing points; by a solve for each other."""
        diagonal = np.empty(self._masked.shape[0])
        for group in _batches(diagonal.size):
            own = np.arange(group.start, group.stop)
            unit = np.zeros((diagonal.size, own.size))
            unit[own, own - group.start] = 1.0
            diagonal[group] = self._solved(unit)[np.arange(own.size), own]
        return np.asarray(self._masked.layout.embed(diagonal[None])[0])

    def downdate(self, targets: Array | LinearFunctionals, *, full: bool) -> Array:
        """``k_o*' G_o^-1 k_o*`` by one solve for each target."""
        kernel, observed = self._masked.kernel, self._masked.X
        q = len(targets)
        out = np.zeros((q, q) if full else q)
        whole = seen_from(kernel, targets, observed) if full else np.zeros((0, 0))
        for group in _batches(q):
            seen = seen_from(kernel, part(targets, group), observed)
            solved = self._solved(seen.T)
            if full:
                out[:, group] = whole @ solved.T
            else:
                out[group] = np.einsum("in,in->i", seen, solved)
        return 0.5 * (out + out.T) if full else out


def _views(
    targets: Array | LinearFunctionals, grid: LatLonGrid
) -> tuple[Array | LinearFunctionals, Indices, Indices]:
    """Targets that see the grid differently up to rotation; for each target which, and its rotation."""
    if isinstance(targets, LinearFunctionals):
        return views_of_functionals(targets, grid)
    views = Views.of(targets, grid)
    return views.points, views.view, views.steps


def _batches(count: int) -> Iterator[slice]:
    for start in range(0, count, GRID_COLUMNS):
        yield slice(start, min(start + GRID_COLUMNS, count))
