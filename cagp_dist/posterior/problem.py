"""From observations to a problem for the solvers: check them, remove the prior mean, choose the Gram matrix.

That of points is made of tiles, that of a grid of rings; with gaps, or with a pole (Q points that are one
place), it is that of the observed points of the grid.
"""

import math
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.budget import Demand, GridSize, Plan
from cagp_dist.checks import as_numbers, as_points
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import is_pole
from cagp_dist.gram import Gram, MaskedRings, RingGram, TiledGram
from cagp_dist.gram.functional_gram import FunctionalGram
from cagp_dist.gram.functionals import LinearFunctionals, views_of_functionals
from cagp_dist.gram.metric import metric
from cagp_dist.gram.targets import Targets, averaged, part, target_points
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.latlon.grid_layout import Layout
from cagp_dist.posterior.patterns import fields_by_pattern
from cagp_dist.prior import Prior
from cagp_dist.runtime import Executor
from cagp_dist.solvers.engine.affine import Affine
from cagp_dist.solvers.exact.exact_solvers import Cholesky
from cagp_dist.solvers.interface import Problem, Solver
from cagp_dist.solvers.local.neighbours import Neighbours
from cagp_dist.text import counted


@dataclass(frozen=True, eq=False)
class Pattern:
    """Fields that were observed at the same points: what is solved at once."""

    X: Array | LatLonGrid | LinearFunctionals  # (m, p), or LatLonGrid: all points that were given
    y: Array  # (T, m), or (T, P, Q) on a grid: all fields that were given, NaN where nothing was observed
    fields: Indices  # (t,): which of them these are, ascending
    single: bool  # whether one field was given, without an axis for fields

    @property
    def columns(self) -> int:
        """Coordinates of a point."""
        return 3 if isinstance(self.X, LatLonGrid) else int(target_points(self.X).shape[1])

    @property
    def given(self) -> Mask:
        """Which of the given points were observed, shape (m,) or (P, Q)."""
        return np.asarray(~np.isnan(self.y[self.fields[0]]))

    def mean_at(self, prior: Prior, points: Array) -> Array:
        """Known mean of these fields at points (q, p), (q, 1), or (q, t) where it differs."""
        mean = prior.known_at(points)
        if mean.shape[1] not in (1, len(self.y)):
            raise ArgumentError(
                f"the prior mean has {counted(mean.shape[1], 'column')} for "
                f"{counted(len(self.y), 'field')}; expected one column, "
                "or one per field.",
                key="mean-columns",
            )
        return mean if mean.shape[1] == 1 else mean[:, self.fields]

    def observed(self) -> "Observed":
        """Observed points and their values; a pole of a grid is one of them."""
        fields = self.y if len(self.fields) == len(self.y) else self.y[self.fields]
        if isinstance(self.X, LatLonGrid):
            return _on_grid(self.X, fields, self.given)
        given = self.given
        if given.all():
            return Observed(cast("Array", self.X), np.ascontiguousarray(fields.T), given)
        return Observed(
            cast("Array", part(self.X, np.flatnonzero(given))),
            np.ascontiguousarray(fields[:, given].T),
            given,
        )


@dataclass(frozen=True, eq=False)
class Observed:
    """Where fields were observed, and what."""

    # (n, p): points where something was observed, in solver order; or functionals, which stand for them
    X: Array
    values: Array  # (n, t): what was observed there
    given: Mask  # (m,) of X, or (P, Q) of the grid: which of the given points have values
    layout: Layout | None = None  # where they lie on a grid; None for points
    # the grid that was given, of which latitudes without any value are left out of ``layout``
    grid: LatLonGrid | None = None


def patterns(X: ArrayLike | LatLonGrid | LinearFunctionals, y: ArrayLike) -> tuple[Pattern, ...]:
    """Check points (n, p) and values (n,) or (n, T), or a grid and fields (P, Q) or (T, P, Q)."""
    if isinstance(X, LatLonGrid):
        points: Array | LatLonGrid | LinearFunctionals = X
        fields, single = _fields_of_grid(X, y)
    else:
        points = X if isinstance(X, LinearFunctionals) else as_points("X", X)
        fields, single = _fields_of_points(points, y)
    present = ~np.isnan(fields)
    empty = np.flatnonzero(~present.reshape(len(fields), -1).any(axis=1))
    if empty.size:
        which = "y" if single else f"y[{empty[0]}]" if isinstance(X, LatLonGrid) else f"y[:, {empty[0]}]"
        raise ArgumentError(
            f"{which} is NaN everywhere: nothing was observed; expected at least one value.",
            key="nothing-observed",
        )
    return tuple(Pattern(points, fields, group, single) for group in fields_by_pattern(present))


def check_observed(X: object, solver: Solver | None) -> None:
    """Refuse functionals that were observed beside anything but a Cholesky factor."""
    if isinstance(X, LinearFunctionals) and not isinstance(solver, Cholesky):
        raise ArgumentError(
            f"X are {len(X):,} linear functionals, such as means over areas, and "
            f"{'samples were asked for' if solver is None else f'the solver is {solver!r}'}; expected "
            "cagp_dist.Cholesky() in cagp_dist.condition or cagp_dist.posterior_mean, which take them. A "
            'joint posterior, from which few targets can be drawn, is condition(..., covariance="full").',
            key="solver-of-functionals",
        )


def _fields_of_points(points: Array | LinearFunctionals, y: ArrayLike) -> tuple[Array, bool]:
    """Fields (T, n), NaN where nothing was observed, and whether it is one without an axis for fields."""
    if len(points) == 0:
        raise ArgumentError(
            f"X has shape {target_points(points).shape}: nothing was observed; expected at least one point.",
            key="nothing-observed",
        )
    values = as_numbers("y", y)
    if values.ndim not in (1, 2) or len(values) != len(points) or values.size == 0:
        raise ArgumentError(
            f"y has shape {values.shape} but X has {counted(len(points), 'point')}; expected "
            f"({len(points)},), or ({len(points)}, T) for T fields.",
            key="shapes",
        )
    if values.ndim == 1:
        if not np.isfinite(values).all():
            raise ArgumentError("y holds NaN or infinity; drop those points first.", key="not-finite")
        return values[None], True
    if np.isinf(values).any():
        raise ArgumentError(
            "y holds infinity; expected finite values, or NaN where a field was not observed.", key="infinite"
        )
    return values.T, False


def _fields_of_grid(grid: LatLonGrid, y: ArrayLike) -> tuple[Array, bool]:
    """Fields (T, P, Q), NaN where nothing was observed, and whether it is one without an axis for fields."""
    if np.ma.is_masked(y):
        raise ArgumentError(
            "y has masked entries; on a grid NaN is where nothing was observed: give y.filled(numpy.nan).",
            key="masked-entries",
        )
    fields = as_numbers("y", y)
    if fields.ndim not in (2, 3) or fields.shape[-2:] != grid.shape or fields.size == 0:
        raise ArgumentError(
            f"y has shape {fields.shape}; expected {grid.shape} (latitude, longitude), or T such fields.",
            key="shapes",
        )
    if np.isinf(fields).any():
        raise ArgumentError(
            "y holds infinity; expected finite values, or NaN where nothing was observed.", key="infinite"
        )
    return fields.reshape(-1, *grid.shape), fields.ndim == 2


def _on_grid(grid: LatLonGrid, fields: Array, given: Mask) -> Observed:
    whole, (fields, present) = grid, _merged_poles(fields, given, grid)
    rows = np.asarray(present.any(axis=1))
    if not rows.all():  # a latitude without observations would be missing points for nothing
        grid, fields, present = grid.of_rows(rows), fields[:, rows], present[rows]
    layout = Layout.of(grid, present)
    values = np.ascontiguousarray(layout.restrict(fields).T)
    return Observed(grid.points[layout.index], values, given, layout, whole)


def _merged_poles(fields: Array, present: Mask, grid: LatLonGrid) -> tuple[Array, Mask]:
    """Replace the observed copies of a pole by one observation in column zero, their mean."""
    poles = np.flatnonzero(is_pole(grid.latitude_degrees))
    if poles.size == 0:
        return fields, present
    fields, present = fields.copy(), present.copy()
    for row in poles:
        copies = present[row].copy()
        present[row] = False
        if copies.any():
            fields[:, row, 0] = fields[:, row, copies].mean(axis=-1)
            present[row, 0] = True
    return fields, present


def noise_of(noise_variance: float | Array, seen: Observed) -> Array:
    """Noise variance of every observation (n,); of a pole the mean of those of its observed copies."""
    if not isinstance(noise_variance, np.ndarray):
        return np.full(len(seen.X), float(noise_variance))
    if noise_variance.shape != seen.given.shape:
        shape = seen.given.shape
        where = f"{shape[0]} points, in their order" if seen.grid is None else "grid (latitude, longitude)"
        raise ArgumentError(
            f"the prior has a noise_variance of shape {noise_variance.shape}; expected one number, or an "
            f"array of shape {shape}, one for each of the {where}. Make a Prior for these observations.",
            key="shapes",
        )
    if seen.layout is None or seen.grid is None:
        return np.asarray(noise_variance[seen.given])
    merged, _ = _merged_poles(noise_variance[None], seen.given, seen.grid)
    return np.asarray(seen.layout.restrict(merged[:, seen.given.any(axis=1)])[0])


def as_targets(X_test: ArrayLike | LatLonGrid | LinearFunctionals, *, columns: int) -> Targets:
    """Check targets: points with ``columns`` coordinates, a grid, or means over cells."""
    targets: Targets = (
        X_test if isinstance(X_test, LatLonGrid | LinearFunctionals) else as_points("X_test", X_test)
    )
    found = 3 if isinstance(targets, LatLonGrid) else target_points(targets).shape[1]
    if found != columns:
        raise ArgumentError(
            f"X has {counted(columns, 'column')}, X_test {found}; both need the same coordinates (those of "
            "a grid are cagp_dist.unit_sphere's).",
            key="coordinates-differ",
        )
    return targets


@dataclass(eq=False)
class Problems:
    """Problems of patterns for one prior and targets: the last one is kept, with the factors of its grid."""

    prior: Prior
    targets: Targets
    _: KW_ONLY
    full_covariance: bool
    executor: Executor
    memory_limit_bytes: int
    _latest: tuple[Pattern, Problem] | None = field(default=None, init=False)

    def of(self, pattern: Pattern) -> Problem:
        """Give the problem of a pattern: without a known prior mean, with its Gram matrix."""
        if self._latest is None or pattern is not self._latest[0]:
            seen = pattern.observed()
            # coefficients of a mean that are estimated need the Gram matrix first
            values = seen.values
            if self.prior.knows_mean:
                values = values - averaged(seen.X, pattern.mean_at(self.prior, target_points(seen.X)))
            problem = Problem(self._gram(seen), values, self.targets, full_covariance=self.full_covariance)
            self._latest = pattern, problem
        return self._latest[1]

    def _gram(self, seen: Observed) -> Gram:
        noise = noise_of(self.prior.noise_variance, seen)
        if isinstance(sums := cast("Array | LinearFunctionals", seen.X), LinearFunctionals):
            return FunctionalGram(self.prior.kernel, sums, noise_variance=noise)
        if seen.layout is None:
            return TiledGram(self.prior.kernel, seen.X, noise_variance=noise)
        by_latitude = mean_by_latitude(seen.layout, noise)
        like = None if self._latest is None else self._latest[1]
        rings = _rings_of(like, seen.layout.grid, by_latitude) or RingGram(
            seen.layout.grid,
            self.prior.kernel,
            noise_variance=by_latitude,
            executor=self.executor,
            memory_limit_bytes=self.memory_limit_bytes,
        )
        observed = seen.layout.observed
        even = np.array_equal(noise, rings.noise_variance[seen.layout.index])
        if even and observed.all():
            return rings
        return MaskedRings(rings, observed, noise_variance=None if even else noise)


def _rings_of(problem: Problem | None, grid: LatLonGrid, noise_by_latitude: Array) -> RingGram | None:
    """Give the whole grid behind a problem, if it is this one."""
    gram = None if problem is None else problem.gram
    rings = gram.rings if isinstance(gram, MaskedRings) else gram
    if not isinstance(rings, RingGram) or not rings.grid.same_points(grid):
        return None
    return rings if np.array_equal(rings.noise_by_latitude, noise_by_latitude) else None


def mean_by_latitude(layout: Layout, noise_variance: Array) -> Array:
    """Geometric mean (P,) of the noise (n,) of the observed points of each latitude; equal ones exactly."""
    field = np.full(layout.grid.shape, np.nan)
    field[layout.observed] = noise_variance
    low, high = np.nanmin(field, axis=1), np.nanmax(field, axis=1)
    return np.asarray(np.where(low == high, low, np.exp(np.nanmean(np.log(field), axis=1))))


def demand_of(
    problem: Problem, executor: Executor, memory_limit_bytes: int, *, solver: Solver | None = None
) -> Demand:
    """Give the size of a problem, from which its solve is planned; for a solver what it asks for, too."""
    gram, targets = problem.gram, problem.targets
    wide: tuple[tuple[int, int], ...] = ()
    if isinstance(solver, Neighbours) and isinstance(targets, LinearFunctionals):
        wide = solver.touched(gram.X, targets, scale=metric(gram.kernel, gram.X.shape[1]))
    sharing = None if not isinstance(solver, Neighbours) else solver.sharing(problem)
    return Demand(
        n=gram.shape[0],
        q=problem.q,
        fields=problem.fields,
        full_covariance=problem.full_covariance,
        workers=executor.workers,
        shares_memory=executor.shares_memory,
        memory_limit_bytes=memory_limit_bytes,
        p=3 if isinstance(targets, LatLonGrid) else target_points(targets).shape[1],
        kernel_parts=len(gram.kernel.parts),
        cell_nodes=len(targets.nodes) if isinstance(targets, LinearFunctionals) else 0,
        wide=wide,
        groups=0 if sharing is None else sharing.variances.size,
        dense=sharing is None or sharing.dense,
        grid=None if not isinstance(gram, (RingGram, MaskedRings)) else _size_of(gram, targets),
    )


def plan_of_mean(solver: Solver, demand: Demand) -> Plan:
    """Plan what a solver does for its mean alone; an affine one carries a column for each field."""
    if not isinstance(solver, Affine):
        return solver.plan(demand)
    # plan the columns as if each field were a target
    grid = None if demand.grid is None else replace(demand.grid, targets_are_grid=False)
    return solver.plan(replace(demand, q=demand.fields, mean_targets=demand.q, grid=grid))


def _size_of(gram: RingGram | MaskedRings, targets: Targets) -> GridSize:
    on_grid = targets if isinstance(targets, LatLonGrid) else None
    if isinstance(gram, RingGram):
        size = grid_size(gram.layout, on_grid, noise_by_latitude=gram.noise_by_latitude)
    else:
        noise = gram.rings.noise_by_latitude
        size = grid_size(gram.layout, on_grid, noise_by_latitude=noise, even_noise=gram.even_noise)
    if isinstance(targets, np.ndarray):
        places = int(np.count_nonzero(gram.layout.grid.places(targets) >= 0))
        return replace(size, target_places=places)
    if not isinstance(targets, LinearFunctionals) or not len(targets):
        return size
    return replace(size, target_views=len(views_of_functionals(targets, gram.layout.grid)[0]))


def grid_size(
    layout: Layout,
    targets: LatLonGrid | None = None,
    *,
    noise_by_latitude: Array | None = None,
    even_noise: bool = True,
) -> GridSize:
    """Say in numbers what a solve needs to know of a grid, and of targets that are one."""
    grid = layout.grid
    # poles that were observed once may make equal noise uneven
    rows = layout.row_noise(np.ones(grid.shape[0]) if noise_by_latitude is None else noise_by_latitude)
    views = None
    if targets is not None:
        # longitudes of the targets that no whole steps of this grid turn into each other, at each latitude
        steps = math.gcd(targets.n_longitudes, grid.n_longitudes)
        views = targets.shape[0] * (targets.n_longitudes // steps)
    return GridSize(
        *grid.shape,
        missing=int(np.count_nonzero(layout.missing)),
        mirrored=grid.mirrored and np.array_equal(rows, rows[::-1]),
        targets_are_grid=targets is not None and targets.same_points(grid),
        target_views=views,
        even_noise=even_noise,
    )
