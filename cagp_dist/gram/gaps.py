"""Exact solves on a latitude-longitude grid, where no, few or many points are missing (math 7, T28).

Few: an identity (`few_missing`). Many, but few inside a window that holds all observed points: the window is
solved directly (`window_solves`). Many, or noise that varies along a latitude: conjugate gradients
(`masked`).
"""

import numpy as np

from cagp_dist.arrays import Array, Mask
from cagp_dist.budget.demand import FEW_MISSING, solves_window
from cagp_dist.errors import ArgumentError, NumericalError
from cagp_dist.gram.few_missing import FewMissing, batches
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.gram.masked import MaskedRings
from cagp_dist.gram.ring_gram import RingGram
from cagp_dist.gram.targets import Targets, list_targets, part, seen_from, target_points
from cagp_dist.gram.window_solves import WindowSolve
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.latlon.grid_layout import Layout
from cagp_dist.runtime import Executor

TOLERANCE = 1e-10  # Relative residual of the iteration for many missing points
TRUSTED_BOUND = 1e12  # Condition number up to which its cheap upper bound is good enough

# Noise over field variance above which the downdate of the grid itself would be lost to rounding as a
# difference of the inverse's diagonal; it then comes from solves, as that of points
LOUDEST = 1e6


class GridSolve:
    """Exact solves with the observed points of a grid; an `cagp_dist.gram.gram_matrix.ExactSolve`."""

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
        """That of the whole grid, no less than that of its observed points: a bound, or an estimate."""
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

    def logdet(self) -> float:
        """``log|G_oo| = log|G| + log|[G^-1]_mm|``; of each pole, a row of Q copies, the mean alone."""
        if not isinstance(self._system, FewMissing):
            raise ArgumentError(
                "the grid lacks too many points for its determinant, or its noise varies along a latitude; "
                f"expected at most {FEW_MISSING:,} gaps and noise by latitude. Use points and cagp.Cholesky."
            )
        copies, noise = self._rings.grid.n_longitudes, self._rings.noise_by_latitude[self._layout.poles]
        of_copies = float(((copies - 1) * np.log(noise) + np.log(copies)).sum())
        of_gaps = 2.0 * float(np.log(np.diag(self._system.factor)).sum())
        return self._rings.logdet() + of_gaps - of_copies

    def downdate(self, targets: Targets, *, full: bool) -> Array:
        """``V G^-1 V'``, shape (q,) or (q, q)."""
        if full or not self._targets_are_whole_grid(targets):
            return self._system.downdate(list_targets(targets), full=full)
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


class ManyMissing:
    """Many missing points, or uneven noise: conjugate gradients, once more for every test point."""

    def __init__(self, rings: RingGram, observed: Mask, *, noise_variance: Array | None = None) -> None:
        self._masked = MaskedRings(rings, observed, noise_variance=noise_variance)
        self.relative_residual: float | None = 0.0

    @property
    def noise_spread(self) -> float:
        """How many times larger noise that is not that of the rings can make the condition number."""
        return self._masked.noise_spread

    def weights(self, residuals: Array) -> Array:
        """``G_o^-1 b_o`` as fields (T, P, Q)."""
        columns = self._masked.layout.restrict(residuals).T
        solved = [self._solved(columns[:, group]) for group in batches(columns.shape[1])]
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
        for group in batches(diagonal.size):
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
        for group in batches(q):
            seen = seen_from(kernel, part(targets, group), observed)
            solved = self._solved(seen.T)
            if full:
                out[:, group] = whole @ solved.T
            else:
                out[group] = np.einsum("in,in->i", seen, solved)
        return 0.5 * (out + out.T) if full else out
