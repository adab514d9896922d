"""Exact solves where the observed points of a grid lie in a window of it, with few gaps inside (math 7).

The complete window is block Toeplitz (`cagp_dist.latlon.toeplitz`); gaps m by the identity of `few_missing`.
For a target j of the window and the noise N, ``k_j = (G - N) e_j``, so that ``k_j' G^-1 k_j`` is
``K_jj - N_j + N_j^2 [G^-1]_jj``, and ``G^-1 k_j`` at the missing points ``e_j - N_j [G^-1]_mj``.
"""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

import numpy as np

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.budget.grid_plans import GRID_COLUMNS
from cagp_dist.errors import NumericalError
from cagp_dist.geometry import degrees, unit_sphere
from cagp_dist.gram.dense import cholesky_lower
from cagp_dist.gram.few_missing import vanishing
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.gram.targets import part, seen_from
from cagp_dist.kernels import Kernel
from cagp_dist.krylov import conjugate_gradients
from cagp_dist.latlon.grid_layout import Layout
from cagp_dist.latlon.toeplitz import BlockToeplitz
from cagp_dist.runtime import Executor, executor_from

# Relative residual at which a solve, for the mean and for variances, is taken as it comes; else it is refined
TOLERANCE, VARIANCE_TOLERANCE = 1e-10, 1e-9

MOST_REFINEMENTS = 30

# Columns that are in memory at once, and those of them that a task solves
BATCH_COLUMNS = 16 * GRID_COLUMNS
SIDE_COLUMNS = 4 * GRID_COLUMNS

# Entries of the inverse between missing and other points that are in memory at once: 0.25 GiB
MISSING_ENTRIES = 2**25

ON_GRID_DEGREES = 1e-9  # Targets closer than this to a point of the window are that point

# Noise over field variance above which targets in the window are solved for like others: beyond, their
# downdate would be lost to rounding as a difference of the inverse's diagonal
LOUDEST = 1e6


@dataclass(frozen=True, eq=False)
class WindowSolve:
    """Solves with the observed points of a window."""

    kernel: Kernel  # covariance of the field
    layout: Layout  # the whole grid, and which of its points were observed
    noise_by_latitude: Array  # (P,): noise variance of an observation, not spread along rows of poles
    # where batches of columns are solved if it shares the memory of this process; else all cores
    executor: Executor | None = None

    relative_residual: ClassVar[None] = None  # solves are direct, and refined where rounding asks for it

    @property
    def condition_number(self) -> float:
        """Upper bound for the complete window: largest row sum over smallest noise."""
        P, W = self._gram.shape
        return float(self._gram.product(np.ones((1, P, W))).max() / self._noise.min())

    def weights(self, fields: Array) -> Array:
        """``G_o^-1 b_o`` as fields (T, P, Q), zero where nothing was observed, for fields (T, P, Q)."""
        solve = partial(self._solved, tolerance=TOLERANCE)
        factor = self._factor if self._rows.size else np.empty((0, 0))
        whole = np.zeros_like(fields)
        whole[..., self._columns] = vanishing(
            solve, fields[..., self._columns], self._rows, self._places, factor
        )
        return whole

    def downdate(self, targets: Array | LinearFunctionals, *, full: bool) -> Array:
        """``k*' G_o^-1 k*`` for points (q, 3) or cells; (q,) or (q, q)."""
        from scipy.linalg import solve_triangular

        if full:
            own, at_missing = self._anywhere(targets, full=True)
        else:
            own, at_missing = np.empty(len(targets)), np.empty((self._rows.size, len(targets)))
            index, rows, places = self._in_window(targets)
            own[index], at_missing[:, index] = self._of_window(rows, places)
            others = np.setdiff1d(np.arange(len(targets)), index)
            own[others], at_missing[:, others] = self._anywhere(part(targets, others), full=False)
        if self._rows.size:
            at_missing = solve_triangular(self._factor, at_missing, lower=True, check_finite=False)
        if not full:
            return np.asarray(own - np.einsum("mi,mi->i", at_missing, at_missing))
        return np.asarray(0.5 * (own + own.T) - at_missing.T @ at_missing)

    def inverse_diagonal(self) -> Array:
        """Diagonal of ``G_o^-1`` as a field (P, Q), which means nothing where nothing was observed."""
        from scipy.linalg import solve_triangular

        diagonal = self._gram.inverse_diagonal()
        rows, places = np.nonzero(~self.layout.missing[:, self._columns])
        at_once = max(1, MISSING_ENTRIES // max(self._rows.size, 1))
        for start in range(0, rows.size if self._rows.size else 0, at_once):
            some = rows[start : start + at_once], places[start : start + at_once]
            nowhere = np.zeros((self._rows.size, some[0].size), dtype=bool)
            half = solve_triangular(self._factor, self._inverse_at(*some, same=nowhere), lower=True)
            diagonal[some] -= np.einsum("mi,mi->i", half, half)
        whole = np.zeros(self.layout.grid.shape)
        whole[:, self._columns] = diagonal
        return whole

    def _of_window(self, rows: Indices, places: Indices) -> tuple[Array, Array]:
        """``k*' G^-1 k*`` with the complete window, and ``G^-1 k*`` at the missing points, of its points."""
        noise = self._noise[rows]
        prior = self.kernel.diagonal(self.layout.grid.points[:1])[0]
        own = prior - noise * (1.0 - noise * self._gram.inverse_diagonal()[rows, places])
        same = (self._rows[:, None] == rows) & (self._places[:, None] == places)
        return own, same - noise * self._inverse_at(rows, places, same=same)

    def _anywhere(self, targets: Array | LinearFunctionals, *, full: bool) -> tuple[Array, Array]:
        """Find the same of any targets by a solve for each; with ``full`` the whole ``V G^-1 V'``."""
        q, (P, W) = len(targets), self._gram.shape
        seen = seen_from(self.kernel, targets, self._points)
        own = np.zeros((q, q) if full else q)
        at_missing = np.zeros((self._rows.size, q))
        for start in range(0, q, BATCH_COLUMNS):
            group = slice(start, min(start + BATCH_COLUMNS, q))
            u = self._solved(seen[group].reshape(-1, P, W))
            at_missing[:, group] = u[:, self._rows, self._places].T
            flat = u.reshape(len(u), -1)
            if full:
                own[:, group] = seen @ flat.T
            else:
                own[group] = np.einsum("in,in->i", seen[group], flat)
        return own, at_missing

    def _in_window(self, targets: Array | LinearFunctionals) -> tuple[Indices, Indices, Indices]:
        """Which targets are points of the window, and their rows and places in it."""
        if isinstance(targets, LinearFunctionals):
            alone = targets.points
            index, rows, places = self._in_window(targets.nodes[targets.starts[alone]])
            return alone[index], rows, places
        points, none = targets, np.empty(0, dtype=np.intp)
        if self._noise.max() > LOUDEST * self.kernel.diagonal(self._points[:1])[0] or not len(points):
            return none, none, none
        grid = self.layout.grid
        latitude, longitude = degrees(points)
        row = np.abs(latitude[:, None] - grid.latitude_degrees).argmin(axis=1)
        spacing = 360.0 / grid.n_longitudes
        eastward = np.mod(longitude - grid.first_longitude_degrees, 360.0) / spacing
        column = np.rint(eastward).astype(np.intp)
        place = (column - self._columns[0]) % grid.n_longitudes
        off = np.maximum(np.abs(latitude - grid.latitude_degrees[row]), np.abs(eastward - column) * spacing)
        index = np.flatnonzero((off <= ON_GRID_DEGREES) & (place < self._columns.size))
        return index, row[index], place[index]

    def _inverse_at(self, rows: Indices, places: Indices, *, same: Mask) -> Array:
        """``[G^-1]_mj`` of points j of the window, (m, t): as known, or by the fewer of m and t solves."""
        out = np.empty(same.shape)
        if not self._rows.size:
            return out
        known = same.any(axis=0)
        out[:, known] = self._missing_inverse[:, same[:, known].argmax(axis=0)]
        fresh = np.flatnonzero(~known)
        if fresh.size <= self._rows.size:
            out[:, fresh] = self._columns_of_inverse(rows[fresh], places[fresh], self._rows, self._places)
        else:
            out[:, fresh] = self._columns_of_inverse(self._rows, self._places, rows[fresh], places[fresh]).T
        return out

    def _columns_of_inverse(
        self, rows: Indices, places: Indices, read_rows: Indices, read_places: Indices
    ) -> Array:
        """``[G^-1]_rj`` for points j, by a solve for each, read at points r."""
        out = np.empty((read_rows.size, rows.size))
        for start in range(0, rows.size, BATCH_COLUMNS):
            group = np.arange(start, min(start + BATCH_COLUMNS, rows.size))
            unit = np.zeros((group.size, *self._gram.shape))
            unit[np.arange(group.size), rows[group], places[group]] = 1.0
            out[:, group] = self._solved(unit)[:, read_rows, read_places].T
        return out

    def _solved(self, right: Array, *, tolerance: float = VARIANCE_TOLERANCE) -> Array:
        """``G^-1`` of fields (r, P, W), batches side by side; each is refined until it is there."""
        self._gram.prepare()
        batches = [slice(start, start + SIDE_COLUMNS) for start in range(0, len(right), SIDE_COLUMNS)]
        shared = self.executor if self.executor is not None and self.executor.shares_memory else None
        with executor_from(shared) as executor:
            parts = executor.gather(
                [executor.submit(refined_solve, self._gram, right[batch], tolerance) for batch in batches]
            )
        return np.concatenate(parts)

    @cached_property
    def _columns(self) -> Indices:
        """Columns of the whole grid that make the window, from west to east."""
        first, width = self.layout.window
        return np.asarray((first + np.arange(width)) % self.layout.grid.n_longitudes)

    @cached_property
    def _noise(self) -> Array:
        """Noise of the points of each row (P,): that of a pole is spread along the window."""
        noise = self.noise_by_latitude.copy()
        noise[self.layout.poles] *= self._columns.size
        return noise

    @cached_property
    def _gram(self) -> BlockToeplitz:
        return BlockToeplitz.of_window(
            self.kernel, self.layout.grid, width=self._columns.size, noise_by_latitude=self._noise
        )

    @cached_property
    def _missing(self) -> tuple[Indices, Indices]:
        rows, places = np.nonzero(self.layout.missing[:, self._columns])
        return rows, places

    @property
    def _rows(self) -> Indices:
        return self._missing[0]

    @property
    def _places(self) -> Indices:
        return self._missing[1]

    @cached_property
    def _missing_inverse(self) -> Array:
        """``[G^-1]_mm``, one solve for each missing point."""
        inverse = self._columns_of_inverse(self._rows, self._places, self._rows, self._places)
        return np.asarray(0.5 * (inverse + inverse.T))

    @cached_property
    def _factor(self) -> Array:
        return cholesky_lower(self._missing_inverse)

    @cached_property
    def _points(self) -> Array:
        """Points of the window on the unit sphere, (P W, 3)."""
        grid = self.layout.grid
        latitude = np.repeat(grid.latitude_degrees, self._columns.size)
        return unit_sphere(latitude, np.tile(grid.longitude_degrees[self._columns], grid.shape[0]))


def refined_solve(gram: BlockToeplitz, fields: Array, tolerance: float) -> Array:
    """``G^-1 @ fields`` to a relative residual: the direct solve preconditions its repeats."""
    shape = fields.shape
    solution = conjugate_gradients(
        lambda rows: gram.product(rows.reshape(shape)).reshape(rows.shape),
        fields.reshape(len(fields), -1),
        precondition=lambda rows: gram.solve(rows.reshape(shape)).reshape(rows.shape),
        tolerance=tolerance,
        iterations=MOST_REFINEMENTS,
        recompute=False,
    )
    if not solution.ok:
        raise NumericalError(
            f"the solve on the region reached a relative residual of {solution.relative_residual.max():.2g}; "
            f"needed is {tolerance:g}: observed points say nearly the same of each other. Raise "
            "noise_variance, or use block Gauss-Seidel."
        )
    return solution.value.reshape(shape)
