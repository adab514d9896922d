"""Conditioning on the observed points near a target, and on sums over all of them (math 20).

Near is near in the metric of the kernel. Targets are dealt out in cells, each with a halo of observed points
that has all their neighbours; in a cell, targets that stand together share theirs. Nothing here looks at
values before the weights are fixed, or depends on who works on a cell.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.errors import NumericalError
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.gram.targets import averaged, covariance_with, part, prior_variance, target_points
from cagp_dist.kernels import Kernel, coordinates, on_unit_sphere

if TYPE_CHECKING:
    from scipy.sparse import csr_array
    from scipy.spatial import cKDTree

CELL = 2048
"""Targets of a cell, at most; fewer where there are few, so that all workers have some."""

FEWEST_OF_CELL = 64
CELLS = 64

PIECE = 512
"""Observed points of a piece that is inside a halo, or outside, or looked at point by point."""

GROUP_FLOPS = 3e5
"""What handing out a group takes, in flops."""

ROUNDING = 1e-12
"""Part of its variance below which an observation is known from others: it is left out."""

SAMPLED = 16
"""Observed points of which a coarse sum consists, spread over its cell."""

ENTRIES = 2**22
"""Kernel values that a joint law holds at a time: 32 MiB."""

IDENTIFIED = 1e-8
"""Part of a column of a local drift that must be left beside the others."""


def metric(kernel: Kernel, columns: int) -> Array:
    """Factors (p,) of the coordinates by which points near each other are alike."""
    own = np.array([part.inverse_lengthscales(columns) for part in kernel.parts])
    return np.asarray(own.max(axis=0))


class Cell(NamedTuple):
    """Targets near each other, and observed points that include all their neighbours."""

    targets: Indices
    halo: Indices


def cells(X: Array, targets: Array, *, scale: Array, neighbours: int) -> Iterator[Cell]:
    """Deal targets (q, p) out in compact cells, with the points of X (n, p) that their neighbours are among.

    A function of the arguments alone; about a microsecond for each point and target.
    """
    from scipy.spatial import cKDTree

    q, k = len(targets), min(neighbours, len(X))
    if q == 0:
        return
    tree = cKDTree(X * scale, balanced_tree=False, compact_nodes=False)
    pieces = _Pieces(tree, PIECE)
    wanted = cKDTree(targets * scale, leafsize=FEWEST_OF_CELL)
    anchors = _Pieces(wanted, FEWEST_OF_CELL)
    middle = 0.5 * (anchors.lower + anchors.upper)
    reach = 0.5 * np.linalg.norm(anchors.upper - anchors.lower, axis=1)
    # a target is within reach of the middle, and so are the neighbours of the middle of the target
    reach += np.asarray(tree.query(middle, k=[k])[0])[:, 0]
    reach *= 1.0 + 1e-9
    lower, upper = anchors.lower - reach[:, None], anchors.upper + reach[:, None]
    for start, stop in leaves(wanted, max(FEWEST_OF_CELL, min(CELL, q // CELLS))):
        own = slice(*np.searchsorted(anchors.edges, [start, stop]))
        box = lower[own].min(axis=0), upper[own].max(axis=0)
        yield Cell(np.asarray(wanted.indices[start:stop]), pieces.inside(*box))


class _Pieces:
    """Points of a k-d tree in pieces, with their bounding boxes."""

    def __init__(self, tree: "cKDTree", size: int) -> None:
        self._index, self._points = tree.indices, tree.data[tree.indices]
        self.edges = np.array([0, *(stop for _, stop in leaves(tree, size))])
        self.lower = np.minimum.reduceat(self._points, self.edges[:-1])
        self.upper = np.maximum.reduceat(self._points, self.edges[:-1])

    def inside(self, lower: Array, upper: Array) -> Indices:
        """Points in a box, in their order in the tree."""
        near = np.flatnonzero(((self.upper >= lower) & (self.lower <= upper)).all(axis=1))
        places = np.concatenate([np.arange(self.edges[piece], self.edges[piece + 1]) for piece in near])
        points = self._points[places]
        return np.asarray(self._index[places[((points >= lower) & (points <= upper)).all(axis=1)]])


def leaves(tree: "cKDTree", size: int) -> Iterator[tuple[int, int]]:
    """Nodes of a tree with at most ``size`` points, or leaves: where their points begin and end."""
    pending: list[Any] = [tree.tree]
    while pending:
        node = pending.pop()
        if node.split_dim == -1 or node.children <= size:
            yield node.start_idx, node.end_idx
        else:
            pending += [node.greater, node.lesser]


def groups(X: Array, targets: Array, *, neighbours: int, most: int) -> Iterator[tuple[Indices, Indices]]:
    """Targets that share their neighbours, and these: indices into scaled targets (q, p) and X (n, p)."""
    from scipy.spatial import cKDTree

    from cagp_dist.triangles import shared_neighbours

    k = min(neighbours, len(X))
    order = cKDTree(targets, leafsize=1).indices
    nearest = cKDTree(X, balanced_tree=False).query(targets[order], k=k)[1].reshape(-1, k)
    edges, starts, members = shared_neighbours(nearest, len(X), most, GROUP_FLOPS)
    for group in range(len(edges) - 1):
        yield order[edges[group] : edges[group + 1]], members[starts[group] : starts[group + 1]]


@dataclass(frozen=True, eq=False)
class Coarse:
    """Means of some observations in each cell of a k-d tree: what all neighbourhoods have in common.

    Attributes
    ----------
    kernel : Kernel
    points : array, shape (p, c s)
        Observed points, s of each of c cells.
    index : array of int, shape (c s,)
        Which they are.
    noise : array, shape (c s,)
    factor : array, shape (c, c)
        Lower factor of the covariance of the means.
    """

    kernel: Kernel
    points: Array
    index: Indices
    noise: Array
    factor: Array

    @property
    def size(self) -> int:
        """Number of means, c."""
        return len(self.factor)

    @staticmethod
    def of(kernel: Kernel, X: Array, noise: Array, *, size: int, scale: Array) -> "Coarse | None":
        """Choose the cells of X (n, p); None where there are fewer points than means."""
        from scipy.spatial import cKDTree

        from cagp_dist.gram.dense import cholesky_lower

        if size == 0 or len(X) < size:
            return None
        order = cKDTree(X * scale, balanced_tree=True, leafsize=1).indices
        each = min(SAMPLED, len(X) // size)
        spread = (np.arange(size * each) + 0.5) * (len(X) / (size * each))
        index = np.asarray(order[spread.astype(np.intp)])
        points = coordinates(X[index])
        made = Coarse(kernel, points, index, noise[index], np.empty((size, 0)))
        covariance = made.means(made.covariances(X[index], index))
        return Coarse(kernel, points, index, noise[index], cholesky_lower(covariance))

    def means(self, values: Array) -> Array:
        """Means of values (c s, r) of the points, shape (c, r)."""
        c = len(self.factor)
        return np.asarray(values.reshape(c, len(values) // c, values.shape[1]).mean(axis=1))

    def covariances(self, X: Array, index: Indices) -> Array:
        """Covariances of observations at X (m, p), which are those of ``index``, with the means: (m, c)."""
        found = self._of_field(X)
        place = np.full(max(int(self.index.max()), int(index.max(initial=0))) + 1, -1)
        place[self.index] = np.arange(self.index.size)
        own = np.flatnonzero(place[index] >= 0)
        there = place[index[own]]
        each = self.index.size // len(self.factor)
        found[own, there // each] += self.noise[there] / each
        return found

    def _of_field(self, X: Array) -> Array:
        from cagp_dist.compiled import evaluate

        c, out = len(self.factor), np.empty((len(X), len(self.factor)))
        for start in range(0, len(X), 256):
            rows = np.ascontiguousarray(X[start : start + 256].T)
            values = np.empty((rows.shape[1], self.index.size))
            evaluate(*self.kernel.parameters, rows, self.points, values)
            out[start : start + 256] = values.reshape(len(values), c, -1).mean(axis=2)
        return out

    def whitened(self, columns: Array) -> Array:
        """``L^-1`` applied to columns (c, r), as rows (r, c)."""
        from scipy.linalg import solve_triangular

        return np.ascontiguousarray(solve_triangular(self.factor, columns, lower=True).T)

    def of_observed(self, X: Array, index: Indices) -> Array:
        """Rows (m, c) of the factor of means and observations."""
        return self.whitened(self.covariances(X, index).T)

    def of_targets(self, targets: Array | LinearFunctionals) -> Array:
        """Rows (q, c) of that factor for targets."""
        if isinstance(targets, LinearFunctionals):
            seen = covariance_with(self.kernel, np.ascontiguousarray(self.points.T), targets)
            return self.whitened(self.means(seen))
        return self.whitened(self._of_field(targets).T)

    def of_columns(self, columns: Array) -> Array:
        """Rows (T, c) for values (n, T) that were observed."""
        return self.whitened(self.means(columns[self.index]))

    def spread(self, weights: Array) -> tuple[Array, Indices]:
        """Weights (q, c s) of observations from whitened ones (q, c), and which they are of."""
        from scipy.linalg import solve_triangular

        each = self.index.size // self.size
        of_means = solve_triangular(self.factor, weights.T, lower=True, trans="T").T
        return np.repeat(of_means / each, each, axis=1), self.index


@dataclass(frozen=True)
class Settings:
    """What a task of a cell is told.

    Attributes
    ----------
    neighbours, most : int
        Neighbours of a target, and targets that may share theirs.
    drift : str
        "none", "constant" or "linear".
    """

    neighbours: int
    most: int
    drift: str = "none"


class Laws(NamedTuple):
    """Means (q, T) and downdates (q,) of a cell; observations left out; members of the largest group."""

    mean: Array
    downdate: Array
    left_out: int
    members: int


def cell_laws(
    kernel: Kernel,
    X: Array,
    noise: Array,
    columns: Array,
    index: Indices,
    targets: Array | LinearFunctionals,
    settings: Settings,
    coarse: Coarse | None,
    of_columns: Array | None,
) -> Laws:
    """Means and variances at targets of a cell: a task of executors.

    Parameters
    ----------
    kernel : Kernel
    X, noise, columns : array, shape (m, p), (m,) and (m, T)
        The halo: points, noise variances and right-hand sides.
    index : array of int, shape (m,)
        Which observed points these are.
    targets : array, shape (q, p), or LinearFunctionals
    settings : Settings
    coarse : Coarse or None
    of_columns : array, shape (T, c), or None
        `Coarse.of_columns` of all right-hand sides.
    """
    q = len(targets)
    mean, downdate = np.zeros((q, columns.shape[1])), np.empty(q)
    left_out, most = 0, 0
    for group in _solved(kernel, X, noise, columns, index, targets, settings, coarse, of_columns):
        mean[group.here] = group.known @ group.values.T
        reduced = np.einsum("ij,ij->i", group.known, group.known)
        if group.drift is not None:
            trend, unseen = group.drift.fitted(group)
            mean[group.here] += unseen @ trend
            reduced -= group.drift.cost(unseen)
        downdate[group.here] = reduced
        left_out, most = left_out + group.left_out, max(most, len(group.members))
    return Laws(mean, downdate, left_out, most)


def cell_weights(
    kernel: Kernel,
    X: Array,
    noise: Array,
    index: Indices,
    targets: Array | LinearFunctionals,
    settings: Settings,
    coarse: Coarse | None,
    n: int,
) -> "csr_array":
    """Weights (q, n) by which the observations enter the means at the targets of a cell, sparse."""
    from scipy.sparse import csr_array, vstack

    from cagp_dist.triangles import solve_rows_back

    rows, order = [], []
    none = np.zeros((len(X), 0))
    for group in _solved(kernel, X, noise, none, index, targets, settings, coarse, None):
        weights = group.known.copy()
        if group.drift is not None:
            weights += group.drift.weights(group)
        solve_rows_back(group.table, group.first, len(group.members), group.inverses, weights)
        own, columns = weights[:, group.first :], index[group.members]
        if coarse is not None:
            common, of = coarse.spread(weights[:, : group.first])
            own, columns = np.hstack([own, common]), np.concatenate([columns, of])
        g, size = own.shape
        where = np.tile(columns, g), np.arange(g + 1) * size
        made = csr_array((own.reshape(-1), *where), shape=(g, n))
        made.sum_duplicates()
        rows.append(made)
        order.append(group.here)
    return csr_array(vstack(rows, format="csr")[np.argsort(np.concatenate(order))])


@dataclass(frozen=True, eq=False)
class _Group:
    """Targets that share their neighbours, solved: rows ``L^-1 v`` of everything."""

    here: Indices
    members: Indices
    table: Array
    first: int
    inverses: Array
    left_out: int
    values: Array
    known: Array
    drift: "_Drift | None"


@dataclass(frozen=True, eq=False)
class _Drift:
    """Columns of a local drift: at the targets (g, d), ``L^-1`` times those at the neighbours (d, m)."""

    at_targets: Array
    rows: Array

    @property
    def _inverse(self) -> Array:
        square = self.rows @ self.rows.T
        size = np.sqrt(square.diagonal())
        if not (size > 0.0).all() or np.linalg.eigvalsh(square / np.outer(size, size))[0] < IDENTIFIED:
            raise NumericalError(
                f"a local drift of {len(size)} columns cannot be estimated from the neighbours of a target, "
                'which lie too much alike. Take more neighbours, or drift="constant" or "none".'
            )
        return np.asarray(np.linalg.inv(square))

    def unseen(self, known: Array) -> Array:
        """Give what the prediction of the field leaves of the columns, (g, d)."""
        return np.asarray(self.at_targets - known @ self.rows.T)

    def fitted(self, group: _Group) -> tuple[Array, Array]:
        """Coefficients (d, T), and what they are multiplied by (g, d)."""
        return np.asarray(self._inverse @ (self.rows @ group.values.T)), self.unseen(group.known)

    def cost(self, unseen: Array) -> Array:
        """Give what estimating the coefficients adds to the variance, (g,)."""
        return np.asarray(np.einsum("gd,de,ge->g", unseen, self._inverse, unseen))

    def weights(self, group: _Group) -> Array:
        """Give what they add to ``L^-1`` times the covariances."""
        return np.asarray(self.unseen(group.known) @ self._inverse @ self.rows)


def _solved(
    kernel: Kernel,
    X: Array,
    noise: Array,
    columns: Array,
    index: Indices,
    targets: Array | LinearFunctionals,
    settings: Settings,
    coarse: Coarse | None,
    of_columns: Array | None,
) -> Iterator[_Group]:
    """Solve the targets of a cell, group by group; what a group holds is gone with the next one."""
    from cagp_dist.compiled import evaluate
    from cagp_dist.triangles import complete_rows

    where = targets.centres if isinstance(targets, LinearFunctionals) else targets
    scale, T, parameters = metric(kernel, X.shape[1]), columns.shape[1], kernel.parameters
    points, first = coordinates(X), 0 if coarse is None else coarse.size
    drift_at = _drift(settings.drift, X, where)
    at_points, at_targets = drift_at(X), _of_targets(drift_at, targets)
    d = at_points.shape[1]
    if coarse is not None:
        of_points, of_targets = coarse.of_observed(X, index), coarse.of_targets(targets)
        of_drift = coarse.whitened(coarse.means(drift_at(np.ascontiguousarray(coarse.points.T))))
    space = np.empty(0)
    for here, members in groups(X * scale, where * scale, neighbours=settings.neighbours, most=settings.most):
        g, m = len(here), len(members)
        rows, width = m + T + d + g, first + m
        if space.size < rows * width:
            space = np.empty(2 * rows * width)
        table = space[: rows * width].reshape(rows, width)
        near = points[:, members]
        own, seen = (table[:m], table[m + T + d :]) if first == 0 else (np.empty((m, m)), np.empty((g, m)))
        evaluate(*parameters, near, near, own)
        own.reshape(-1)[:: m + 1] += noise[members]
        if isinstance(targets, LinearFunctionals):
            seen[:] = covariance_with(kernel, X[members], part(targets, here)).T
        else:
            evaluate(*parameters, np.ascontiguousarray(where[here].T), near, seen)
        if coarse is not None:
            table[:m, first:], table[m + T + d :, first:] = own, seen
            table[:m, :first], table[m + T + d :, :first] = of_points[members], of_targets[here]
            table[m : m + T, :first] = 0.0 if of_columns is None else of_columns
            table[m + T : m + T + d, :first] = of_drift
        table[m : m + T, first:] = columns[members].T
        table[m + T : m + T + d, first:] = at_points[members].T
        inverses = np.empty(m)
        left_out = complete_rows(table, first, m, ROUNDING, inverses)
        drift = _Drift(at_targets[here], table[m + T : m + T + d]) if d else None
        yield _Group(
            here,
            members,
            table,
            first,
            inverses,
            left_out,
            table[m : m + T],
            table[m + T + d :],
            drift,
        )


def _drift(drift: str, X: Array, where: Array) -> Callable[[Array], Array]:
    """Columns of a local drift as a function of points (m, p): a constant, axes from the middle of a cell."""
    middle, axes = where.mean(axis=0), np.eye(X.shape[1])
    if on_unit_sphere(X):  # along the surface
        axes = np.linalg.svd(middle[None])[2][1:].T

    def columns(points: Array) -> Array:
        linear = (points - middle) @ axes if drift == "linear" else np.empty((len(points), 0))
        return np.hstack([np.ones((len(points), 0 if drift == "none" else 1)), linear])

    return columns


def _of_targets(columns: Callable[[Array], Array], targets: Array | LinearFunctionals) -> Array:
    """Columns (q, d) of targets."""
    return averaged(targets, columns(target_points(targets)))


def joint_downdate(
    kernel: Kernel,
    X: Array,
    noise: Array,
    weights: "csr_array",
    targets: Array | LinearFunctionals,
    rows: slice,
) -> Array:
    """Rows of ``V W' + W V' - W G W'`` for sparse weights W (q, n), not made symmetric: ``(2 V - W G) W'``.

    A task of executors: rows times the points that have weights anywhere, in evaluations.
    """
    used = np.unique(weights.indices)
    own = weights[rows]
    mine = np.unique(own.indices)
    some = targets.part(rows) if isinstance(targets, LinearFunctionals) else targets[rows]
    total = np.zeros((own.shape[0], weights.shape[0]))
    together = max(16, min(PIECE, ENTRIES // max(len(mine), 1)))
    for start in range(0, len(used), together):
        block = used[start : start + together]
        left = 2.0 * covariance_with(kernel, X[block], some).T
        left -= own[:, mine] @ kernel(X[mine], X[block])
        left -= own[:, block].toarray() * noise[block]
        total += (weights[:, block] @ left.T).T
    return total


def wide(functionals: LinearFunctionals, X: Array, *, scale: Array, neighbours: int) -> Indices:
    """Functionals whose nodes lie further from their centre than its neighbours do."""
    from scipy.spatial import cKDTree

    centres = functionals.centres * scale
    apart = np.linalg.norm(
        functionals.places * scale - np.repeat(centres, functionals.counts, axis=0), axis=1
    )
    extent = np.maximum.reduceat(apart, functionals.starts)
    k = min(neighbours, len(X))
    reach = np.asarray(cKDTree(X * scale).query(centres, k=[k])[0])[:, 0]
    return np.flatnonzero((extent > reach) & (len(X) > k))


def cell_flops(neighbours: int) -> float:
    """Flops for each target, about."""
    k = float(neighbours)
    return (k**2 / 3.0 + k) * (k + 128.0)


def sampled_targets(targets: Array | LinearFunctionals, count: int) -> Indices:
    """Choose some of the targets, at random with a fixed seed; ascending."""
    q = len(targets)
    return np.sort(np.random.default_rng(0).choice(q, size=min(count, q), replace=False))


def downdated(kernel: Kernel, targets: Array | LinearFunctionals, downdate: Array) -> Array:
    """Give the standard deviations of targets with these downdates."""
    return np.sqrt(np.maximum(prior_variance(kernel, targets) - downdate, 0.0))


def least_bytes(n: int, q: int, p: int, fields: int, *, neighbours: int, coarse: int, workers: int) -> int:
    """Count the trees and copies of points and targets, and what tasks hold."""
    trees = 8 * (n + q) * (3 * p + 2)
    halo = 16 * max(CELL, 4 * neighbours)
    task = halo * (2 * p + fields + 4 + coarse) + CELL * (2 * neighbours + 2 * fields)
    group = (6 * neighbours + coarse) * (6 * neighbours + FEWEST_OF_CELL + coarse)
    return trees + 8 * workers * 3 * (task + group) + 8 * q * (fields + 2) + math.ceil(8 * SAMPLED * coarse)
