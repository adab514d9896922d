"""Conditioning on the observed points near a target, and on sums over all of them (math 20).

Targets are dealt out in cells, each with a halo of observed points that has all their neighbours, near in the
metric of the kernel. Nothing here looks at values before the weights are fixed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.errors import NumericalError
from cagp_dist.gram.functionals import LinearFunctionals, functional_panel
from cagp_dist.gram.metric import Metric, metric
from cagp_dist.gram.targets import averaged, covariance_with, part, prior_variance, target_points
from cagp_dist.kernels import Kernel, Parameters, on_unit_sphere, point_columns

if TYPE_CHECKING:
    from scipy.sparse import csr_array
    from scipy.spatial import cKDTree

CELL = 2048  # Targets of a cell, at most; fewer where there are few, so that all workers have some
FEWEST_OF_CELL, OF_ANCHOR = 16, 64
CELLS = 24

AT_ONCE = 16  # Cells that are handed out at a time, for each worker
PIECE = 512  # Observed points of a piece that is inside a halo, or outside, or looked at point by point
GROUP_FLOPS = 3e5  # What handing out a group takes, in flops
ROUNDING = 1e-12  # Part of its variance below which an observation is known from others: it is left out
LONG = 1024  # Members of a neighbourhood from where on LAPACK is faster than compiled loops over rows
LEAF = 8  # Observations of which a mean is taken: fewer lose less of where they are, more of them say more
ENTRIES = 2**22  # Kernel values that a joint distribution holds at a time: 32 MiB
MOST_KEPT = 1024  # Means of a cell whose covariances are kept for its groups: 8 MiB
RELIABLE = 1e-3  # Part of the prior variance below which noise makes no difference to the share in a mean
IDENTIFIED = 1e-8  # Part of a column of a local drift that must be left beside the others


class Cell(NamedTuple):
    """Targets near each other, and observed points that include all their neighbours."""

    targets: Indices
    halo: Indices


def cells(X: Array, targets: Array, *, scale: Metric, neighbours: int) -> Iterator[Cell]:
    """Deal targets (q, p) out in compact cells, with points of X (n, p) that have all their neighbours."""
    from scipy.spatial import cKDTree

    q, k = len(targets), min(neighbours, len(X))
    if q == 0:
        return
    tree = cKDTree(X * scale, leafsize=OF_ANCHOR, balanced_tree=False, compact_nodes=False)
    pieces = _Pieces(tree, [*range(0, len(X), PIECE), len(X)])
    few, most = _sizes(q)
    wanted = cKDTree(targets * scale, leafsize=few)
    anchors = _Pieces.of(wanted, few)
    lower, upper = _with_neighbours(anchors, tree, k)
    for start, stop in leaves(wanted, most):
        own = slice(*np.searchsorted(anchors.edges, [start, stop]))
        box = lower[own].min(axis=0), upper[own].max(axis=0)
        # sorted: of neighbours equally far away the same ones are taken, whatever points there are elsewhere
        yield Cell(np.asarray(wanted.indices[start:stop]), np.sort(pieces.inside(*box)))


def _sizes(q: int) -> tuple[int, int]:
    """Targets of an anchor, and of a cell, at most."""
    few = max(FEWEST_OF_CELL, min(OF_ANCHOR, q // CELLS))
    return few, max(few, min(CELL, q // CELLS))


def cell_count(q: int) -> int:
    """Count the cells of q targets, about: they are halved until none has too many."""
    return 1 << (-(-q // _sizes(q)[1]) - 1).bit_length() if q else 0


def boxes_with_neighbours(X: Array, targets: Array, *, scale: Metric, neighbours: int) -> tuple[Array, Array]:
    """Corners (b, p), in scaled coordinates, of boxes with the neighbours of some targets each."""
    from scipy.spatial import cKDTree

    tree = cKDTree(X * scale, balanced_tree=False, compact_nodes=False)
    anchors = _Pieces.of(cKDTree(targets * scale, leafsize=OF_ANCHOR), OF_ANCHOR)
    return _with_neighbours(anchors, tree, min(neighbours, len(X)))


def _with_neighbours(anchors: "_Pieces", tree: "cKDTree", k: int) -> tuple[Array, Array]:
    """Boxes of targets, widened until they hold the k nearest points of each."""
    middle = 0.5 * (anchors.lower + anchors.upper)
    reach = 0.5 * np.linalg.norm(anchors.upper - anchors.lower, axis=1)
    # a target is within reach of the middle, and so are the neighbours of the middle of the target
    reach += np.asarray(tree.query(middle, k=[k])[0])[:, 0]
    reach *= 1.0 + 1e-9
    return anchors.lower - reach[:, None], anchors.upper + reach[:, None]


class _Pieces:
    """Points in the order of a k-d tree, cut at some edges, with the bounding boxes of the pieces."""

    def __init__(self, tree: "cKDTree", edges: list[int]) -> None:
        points = tree.data.take(tree.indices, axis=0)
        self._index, self._axes = tree.indices, np.ascontiguousarray(points.T)
        self.edges = np.array(edges)
        self.lower = np.minimum.reduceat(points, self.edges[:-1])
        self.upper = np.maximum.reduceat(points, self.edges[:-1])

    @classmethod
    def of(cls, tree: "cKDTree", size: int) -> "_Pieces":
        """Cut at nodes of the tree."""
        return cls(tree, [0, *(stop for _, stop in leaves(tree, size))])

    def inside(self, lower: Array, upper: Array) -> Indices:
        """Points in a box, in their order in the tree."""
        near = np.flatnonzero(((self.upper >= lower) & (self.lower <= upper)).all(axis=1))
        places = np.concatenate([np.arange(self.edges[piece], self.edges[piece + 1]) for piece in near])
        for axis, least, most in zip(self._axes, lower, upper, strict=True):  # fewer are left for the next
            own = axis[places]
            places = places[(own >= least) & (own <= most)]
        return np.asarray(self._index[places])


def leaves(tree: "cKDTree", size: int) -> Iterator[tuple[int, int]]:
    """Nodes of a tree with at most ``size`` points, or leaves: where their points begin and end."""
    pending: list[Any] = [tree.tree]
    while pending:
        node = pending.pop()
        if node.split_dim == -1 or node.children <= size:
            yield node.start_idx, node.end_idx
        else:
            pending += [node.greater, node.lesser]


def groups(X: Array, targets: Array, settings: "Settings", means: "LeafMeans | None" = None) -> "Groups":
    """Targets that share neighbours, these, and leaves beside them."""
    from scipy.spatial import cKDTree

    from cagp_dist.sharing import shared_neighbours

    n, k = len(X), min(settings.neighbours, len(X))
    order = cKDTree(targets, leafsize=1).indices
    nearest = nearest_points(X, targets[order], k)
    if means is not None:
        beside = means.near(targets[order], nearest, settings.coarse)
        nearest = np.hstack([nearest, np.where(beside >= 0, n + beside, -1)])
    # a trend is that of the neighbours of each: only those that have most in common share it
    once = GROUP_FLOPS if settings.drift == "none" else 0.0
    return Groups(order, *shared_neighbours(nearest, n + n // LEAF + 1, settings.most, once))


def nearest_points(X: Array, targets: Array, k: int) -> Indices:
    """Give the k nearest of points X (n, p) to each target (q, p), the nearest first, shape (q, k).

    By SciPy's tree: a compiled search would save a fourteenth of a map of 64,800 targets among 10^6 points.
    """
    from scipy.spatial import cKDTree

    tree = cKDTree(X, balanced_tree=False, compact_nodes=False)
    return np.asarray(tree.query(targets, np.arange(1, k + 1))[1])


class LeafMeans:
    """Means of the observations in leaves of a k-d tree, by precision: what is beyond the nearest ones."""

    def __init__(self, kernel: Kernel, X: Array, noise: Array) -> None:
        from scipy.spatial import cKDTree

        scaled, m = X * metric(kernel, X.shape[1]), len(X)
        order = cKDTree(scaled, leafsize=1).indices
        self._parameters = kernel.parameters
        self._index = np.append(order, np.full(-m % LEAF, order[-1])).reshape(-1, LEAF)
        shares = 1.0 / (noise[self._index] + RELIABLE * kernel.variance)
        shares.reshape(-1)[m:] = 0.0  # fills the last leaf
        self._shares = shares / shares.sum(axis=1, keepdims=True)
        self._points, self._noise = np.ascontiguousarray(X[self._index].transpose(2, 0, 1)), noise
        self._leaf, self._share = np.empty(m, dtype=np.intp), np.empty(m)
        self._leaf[order], self._share[order] = np.arange(m) // LEAF, self._shares.reshape(-1)[:m]
        self._sizes = np.bincount(self._leaf)
        self._centres = self.of(scaled)
        self._row, self._table = np.full(len(self._index), -1), np.empty((0, 0))  # of those that are kept

    @classmethod
    def of_cell(cls, kernel: Kernel, X: Array, noise: Array, settings: "Settings") -> "LeafMeans | None":
        """Make those of a cell, if its targets are conditioned on any."""
        return cls(kernel, X, noise) if settings.coarse and settings.neighbours < len(X) else None

    def of(self, columns: Array) -> Array:
        """Means of columns (m, r), shape (l, r)."""
        return np.asarray(np.einsum("ls,lsr->lr", self._shares, columns[self._index]))

    def of_function(self, chosen: Indices, function: Callable[[Array], Array]) -> Array:
        """Means (c, r) in chosen leaves of a function of points, (m, p) to (m, r)."""
        values = function(self._places(chosen).T).reshape(len(chosen), LEAF, -1)
        return np.asarray(np.einsum("cs,csr->cr", self._shares[chosen], values))

    def near(self, targets: Array, nearest: Indices, count: int) -> Indices:
        """Give leaves (q, count) near scaled targets that neighbours (q, k) do not have all of, or -1."""
        from cagp_dist.sharing import unknown_leaves

        k = min(count + nearest.shape[1] // LEAF + 1, len(self._shares))
        found = nearest_points(self._centres, targets, k)
        return np.asarray(unknown_leaves(nearest, self._leaf, self._sizes, found, count))

    def unknown(self, leaves: Indices, members: Indices) -> Mask:
        """Whether members do not have all of leaves."""
        known = np.bincount(self._leaf[members], minlength=len(self._sizes))
        return np.asarray(known[leaves] < self._sizes[leaves])

    def keep(self, chosen: Sequence[Indices]) -> None:
        """Evaluate covariances of the means of all groups once, if that takes less than group by group."""
        used = np.unique(np.concatenate(chosen))
        if used.size <= MOST_KEPT and used.size**2 < sum(each.size**2 for each in chosen):
            # strided as a part of the table of a group is: one compiled function serves both
            table = np.empty((used.size, used.size + 1))[:, :-1]
            self.square(used, table)
            self._row[used], self._table = np.arange(used.size), table

    def square(self, chosen: Indices, out: Array) -> None:
        """Write the lower triangle of the covariance (c, c) of chosen means, in the order of the tree."""
        from cagp_dist.compiled import evaluate_means

        if len(self._table):
            rows = self._row[chosen]
            out[:] = self._table[rows[:, None], rows]
            return
        shares, noise = self._shares[chosen], self._noise[self._index[chosen]]
        points = self._places(chosen)
        evaluate_means(*self._parameters, points, shares, points, shares, True, out)
        out[np.diag_indices(len(chosen))] += (noise * shares**2).sum(axis=1)

    def with_points(self, chosen: Indices, points: Array, index: Indices, out: Array) -> None:
        """Write covariances (k, c) of observations at points (p, k), of this index, with chosen means."""
        self.seen(chosen, points, out)
        own = self._leaf[index][:, None] == chosen
        out += np.where(own, (self._noise * self._share)[index][:, None], 0.0)

    def seen(self, chosen: Indices, points: Array, out: Array) -> None:
        """Write covariances (k, c) of what is at points (p, k) with chosen means."""
        from cagp_dist.compiled import evaluate_means

        alone, shares = np.ones((points.shape[1], 1)), self._shares[chosen]
        evaluate_means(*self._parameters, points, alone, self._places(chosen), shares, False, out)

    def panel(self, chosen: Indices, panel: Callable[[Array], Array]) -> Array:
        """Covariances (r, c) of chosen means with what has those of ``panel`` (r, w) with points (p, w)."""
        values = panel(self._places(chosen))
        return np.asarray(
            np.einsum("rcs,cs->rc", values.reshape(-1, len(chosen), LEAF), self._shares[chosen])
        )

    def _places(self, chosen: Indices) -> Array:
        """Points (p, LEAF c) of chosen leaves, leaf by leaf."""
        return self._points[:, chosen].reshape(len(self._points), -1)

    def spread(self, chosen: Indices, weights: Array) -> tuple[Array, Indices]:
        """Weights (g, w) of points, and which these are, from weights (g, c) of chosen means."""
        shared = weights[:, :, None] * self._shares[chosen]
        return shared.reshape(len(weights), -1), self._index[chosen].reshape(-1)


@dataclass(frozen=True)
class Settings:
    """Neighbours of a target, means of leaves beside them, the most targets that share both; the drift."""

    neighbours: int
    coarse: int
    most: int
    drift: str = "none"

    @property
    def reach(self) -> int:
        """How many of the nearest observations a neighbourhood takes in, about."""
        return self.neighbours + LEAF * self.coarse


class Groups(NamedTuple):
    """Targets of a cell that share their neighbours.

    Those of group s are ``targets[edges[s] : edges[s + 1]]``, and what they share is ``members[starts[s] :
    starts[s + 1]]``: of n observations, and from n on leaves.
    """

    targets: Indices
    edges: Indices
    starts: Indices
    members: Indices

    def each(self) -> Iterator[tuple[Indices, Indices]]:
        """Give targets and members of one group after the other."""
        for group in range(len(self.edges) - 1):
            here, shared = slice(*self.edges[group : group + 2]), slice(*self.starts[group : group + 2])
            yield self.targets[here], self.members[shared]


class CellPosterior(NamedTuple):
    """Means (q, T) and downdates (q,) of a cell; observations left out and of the smallest group; groups."""

    mean: Array
    downdate: Array
    left_out: int
    fewest: int
    groups: Groups | None


def cell_distributions(
    kernel: Kernel,
    X: Array,
    noise: Array,
    columns: Array,
    targets: Array | LinearFunctionals,
    settings: Settings,
    shared: Groups | None = None,
    keep: bool = False,
) -> CellPosterior:
    """Means and variances at targets (q, p) of a cell of points (m, p): a task of executors."""
    from cagp_dist.compiled import solve_groups

    means = LeafMeans.of_cell(kernel, X, noise, settings)
    shared = shared or _groups_of(kernel, X, targets, settings, means)
    sizes, q = np.diff(shared.starts), len(targets)
    mean, downdate = np.zeros((q, columns.shape[1])), np.empty(q)
    fewest, kept = int(sizes.min(initial=len(X))), shared if keep else None
    plain = means is None and settings.drift == "none" and sizes.max(initial=0) < LONG
    if plain and not isinstance(targets, LinearFunctionals):  # all groups in one call, without the GIL
        left_out, where = np.zeros(1, dtype=np.int64), point_columns(targets)
        given = point_columns(X), noise, np.ascontiguousarray(columns), where, *shared, ROUNDING
        solve_groups(*kernel.parameters, *given, mean, downdate, left_out)
        return CellPosterior(mean, downdate, int(left_out[0]), fewest, kept)
    total = 0
    for group in _solved(kernel, X, noise, columns, targets, settings, means, shared):
        mean[group.here] = group.known @ group.values.T
        reduced = np.einsum("ij,ij->i", group.known, group.known)
        if group.drift is not None:
            trend, unseen = group.drift.fitted(group)
            mean[group.here] += unseen @ trend
            reduced -= group.drift.cost(unseen)
        downdate[group.here] = reduced
        total, fewest = total + group.left_out, min(fewest, len(group.members))
    return CellPosterior(mean, downdate, total, fewest, kept)


def _groups_of(
    kernel: Kernel, X: Array, targets: Array | LinearFunctionals, settings: Settings, means: LeafMeans | None
) -> Groups:
    """Find the groups of a cell in the metric of the kernel."""
    where = targets.centres if isinstance(targets, LinearFunctionals) else targets
    scale = metric(kernel, X.shape[1])
    return groups(X * scale, where * scale, settings, means)


def cell_weights(
    kernel: Kernel,
    X: Array,
    noise: Array,
    index: Indices,
    targets: Array | LinearFunctionals,
    settings: Settings,
    n: int,
) -> "csr_array":
    """Sparse weights (q, n) of the means of a cell, on a halo that is ``index`` of n observations."""
    from scipy.sparse import csr_array, vstack

    rows, order = [], []
    means = LeafMeans.of_cell(kernel, X, noise, settings)
    shared = _groups_of(kernel, X, targets, settings, means)
    for group in _solved(kernel, X, noise, np.zeros((len(X), 0)), targets, settings, means, shared):
        own, of = group.weights()
        rows.append(_sparse_rows(own, index[of], n))
        order.append(group.here)
    return csr_array(vstack(rows, format="csr")[np.argsort(np.concatenate(order))])


class CellOfGroups(NamedTuple):
    """Means (q, T) and downdates (q,) of a cell; weights (q, g) of groups; see `CellPosterior`."""

    mean: Array
    downdate: Array
    of_groups: "csr_array"
    left_out: int
    fewest: int


def cell_of_groups(
    kernel: Kernel,
    X: Array,
    noise: Array,
    columns: Array,
    groups_of: Indices,
    targets: Array | LinearFunctionals,
    settings: Settings,
    count: int,
) -> CellOfGroups:
    """Do as `cell_distributions`, and add up the weights of each of ``count`` groups of observations.

    Observation i is in groups ``groups_of[i]`` (m, axes), -1 for none.
    """
    from scipy.sparse import csr_array, vstack

    means = LeafMeans.of_cell(kernel, X, noise, settings)
    shared = _groups_of(kernel, X, targets, settings, means)
    mean, downdate = np.zeros((len(targets), columns.shape[1])), np.empty(len(targets))
    rows, order, left_out, fewest = [], [], 0, len(X)
    for group in _solved(kernel, X, noise, columns, targets, settings, means, shared):
        mean[group.here] = group.known @ group.values.T
        downdate[group.here] = np.einsum("ij,ij->i", group.known, group.known)
        own, of = group.weights()
        beside = groups_of[of].reshape(-1)
        there = beside >= 0
        repeated = np.repeat(own, groups_of.shape[1], axis=1)[:, there]
        rows.append(_sparse_rows(repeated, beside[there], count))
        order.append(group.here)
        left_out, fewest = left_out + group.left_out, min(fewest, len(group.members))
    of_groups = csr_array(vstack(rows, format="csr")[np.argsort(np.concatenate(order))])
    return CellOfGroups(mean, downdate, of_groups, left_out, fewest)


def _sparse_rows(values: Array, columns: Indices, count: int) -> "csr_array":
    """Rows (g, count) with values (g, m) in the same columns (m,), which may repeat."""
    from scipy.sparse import csr_array

    g, size = values.shape
    starts = np.arange(g + 1) * size
    made = csr_array((values.reshape(-1), np.tile(columns, g), starts), shape=(g, count))
    made.sum_duplicates()
    return made


@dataclass(frozen=True, eq=False)
class _Group:
    """Targets that share their neighbours, solved: rows ``L^-1 v`` of everything."""

    here: Indices
    members: Indices
    means: LeafMeans | None
    coarse: Indices
    table: Array
    inverses: Array
    left_out: int
    values: Array
    known: Array
    drift: "_Drift | None"

    def weights(self) -> tuple[Array, Indices]:
        """Weights (g, m) of observations in the predictions, and which these are; some may repeat."""
        from cagp_dist.triangles import solve_rows_back

        weights = self.known.copy()
        if self.drift is not None:
            weights += self.drift.weights(self)
        solve_rows_back(self.table, self.inverses, weights)
        c = self.coarse.size
        if self.means is None:
            return weights, self.members
        common, points = self.means.spread(self.coarse, weights[:, :c])
        return np.hstack([weights[:, c:], common]), np.concatenate([self.members, points])


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
                'which lie too much alike. Take more neighbours, or drift="constant" or "none".',
                key="local-drift",
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
    targets: Array | LinearFunctionals,
    settings: Settings,
    means: LeafMeans | None,
    shared: Groups,
) -> Iterator[_Group]:
    """Solve the targets of a cell, group by group; what a group holds is gone with the next one."""
    from cagp_dist.compiled import complete_rows, evaluate_subsets
    from cagp_dist.lapack import complete_long_rows

    where = targets.centres if isinstance(targets, LinearFunctionals) else targets
    parameters, points = kernel.parameters, point_columns(X)
    T, sphere = columns.shape[1], on_unit_sphere(X)
    of_columns = None if means is None else means.of(columns)
    space = np.empty(0)

    each = [(here, *_split(both, len(X), means)) for here, both in shared.each()]
    if means is not None:
        means.keep([coarse for _, _, coarse in each])
    for here, members, coarse in each:
        some, near = part(targets, here), np.ascontiguousarray(points[:, members])
        g, c, m = len(here), coarse.size, len(members)
        at_targets, at_members = np.empty((g, 0)), np.empty((m, 0))
        if settings.drift != "none":
            drift_at = _drift(settings.drift, where[here].mean(axis=0), sphere=sphere)
            at_targets, at_members = averaged(some, drift_at(target_points(some))), drift_at(X[members])
        size, d = c + m, at_targets.shape[1]
        r = T + d
        rows = size + r + g
        if space.size < rows * size:
            space = np.empty(2 * rows * size)
        table = space[: rows * size].reshape(rows, size)
        own = table[:m] if c == 0 else np.empty((m, m))
        evaluate_subsets(*parameters, points, members[None], True, own[None])
        own.reshape(-1)[:: m + 1] += noise[members]
        table[size : size + T, c:] = columns[members].T
        table[size + T : size + r, c:] = at_members.T
        table[size + r :, c:] = _panel(parameters, some, near)
        if means is not None and of_columns is not None:
            table[c:size, c:] = own
            means.square(coarse, table[:c, :c])
            means.with_points(coarse, near, members, table[c:size, :c])
            table[size : size + T, :c] = of_columns[coarse].T
            if d:
                table[size + T : size + r, :c] = means.of_function(coarse, drift_at).T
            if isinstance(some, LinearFunctionals):
                table[size + r :, :c] = means.panel(coarse, partial(_panel, parameters, some))
            else:
                means.seen(coarse, point_columns(some), table[size + r :, :c])
        inverses = np.empty(size)
        left_out = (complete_rows if size < LONG else complete_long_rows)(table, ROUNDING, inverses)
        drift = _Drift(at_targets, table[size + T : size + r]) if d else None
        values, known = table[size : size + T], table[size + r :]
        yield _Group(here, members, means, coarse, table, inverses, left_out, values, known, drift)


def _split(both: Indices, n: int, means: LeafMeans | None) -> tuple[Indices, Indices]:
    """Observations of a group, and leaves that these are not all of, in the order of the tree."""
    members, coarse = both[both < n], np.sort(both[both >= n]) - n
    return members, coarse if means is None else coarse[means.unknown(coarse, members)]


def _evaluated(parameters: Parameters, rows: Array, points: Array) -> Array:
    """Kernel values (k, w) of points (p, k) and (p, w)."""
    from cagp_dist.compiled import evaluate

    out = np.empty((rows.shape[1], points.shape[1]))
    evaluate(*parameters, rows, points, out)
    return out


def _panel(parameters: Parameters, targets: Array | LinearFunctionals, points: Array) -> Array:
    """Covariances (g, w) of targets with points (p, w)."""
    if isinstance(targets, LinearFunctionals):
        return functional_panel(parameters, points, targets).T
    return _evaluated(parameters, point_columns(targets), points)


def _drift(drift: str, middle: Array, *, sphere: bool) -> Callable[[Array], Array]:
    """Columns of a local drift as a function of points (m, p): a constant, and axes from a middle."""
    axes = np.eye(len(middle))
    if sphere and drift == "linear":  # along the surface
        axes = np.linalg.svd(middle[None])[2][1:].T

    def columns(points: Array) -> Array:
        linear = (points - middle) @ axes if drift == "linear" else np.empty((len(points), 0))
        return np.hstack([np.ones((len(points), 1)), linear])

    return columns


def joint_downdate(
    kernel: Kernel,
    X: Array,
    noise: Array,
    weights: "csr_array",
    targets: Array | LinearFunctionals,
    rows: slice,
) -> Array:
    """Rows of ``V W' + W V' - W G W'`` for sparse W (q, n), not symmetric: ``(2 V - W G) W'``."""
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


def wide(functionals: LinearFunctionals, X: Array, *, scale: Metric, neighbours: int) -> Indices:
    """Functionals whose nodes lie further from their centre than its neighbours do."""
    return np.flatnonzero(around(functionals, X, scale=scale, neighbours=neighbours))


def around(functionals: LinearFunctionals, X: Array, *, scale: Metric, neighbours: int) -> Indices:
    """Count observations among the nodes of each functional and around them; 0 where it is not wide."""
    from scipy.spatial import cKDTree

    k, found = min(neighbours, len(X)), np.zeros(len(functionals), dtype=np.intp)
    if len(X) == k:
        return found
    centres = functionals.centres * scale
    apart = np.linalg.norm(
        functionals.places * scale - np.repeat(centres, functionals.counts, axis=0), axis=1
    )
    extent = np.maximum.reduceat(apart, functionals.starts)
    tree = cKDTree(X * scale)
    reach = np.asarray(tree.query(centres, k=[k])[0])[:, 0]
    spread = np.flatnonzero(extent > reach)
    first = functionals.places[functionals.starts[spread]] * scale
    radius = extent[spread] + np.asarray(tree.query(first, k=[k])[0])[:, 0]
    found[spread] = tree.query_ball_point(centres[spread], radius, return_length=True)
    return found


def flops_alone(members: int, coarse: int) -> float:
    """Flops of a target by itself, about, with so many neighbours and means; a kernel value counts as 12."""
    m = float(members)
    return (m**2 / 3.0 + m) * (m + 128.0) + 12.0 * (m**2 + (LEAF * coarse) ** 2)


def sampled(q: int, count: int) -> Indices:
    """Choose some of q targets, at random with a fixed seed."""
    return np.random.default_rng(0).choice(q, size=min(count, q), replace=False)


def downdated(kernel: Kernel, targets: Array | LinearFunctionals, downdate: Array) -> Array:
    """Give the standard deviations of targets with these downdates."""
    return np.sqrt(np.maximum(prior_variance(kernel, targets) - downdate, 0.0))


class LeastBytes(NamedTuple):
    """Bytes of trees and copies of points and targets, and of cells that wait; and of each task at a time."""

    search: int
    task: int
    at_once: int

    @property
    def total(self) -> int:
        """Bytes of all."""
        return self.search + self.at_once * self.task


def least_bytes(
    n: int, q: int, p: int, fields: int, *, neighbours: int, coarse: int, workers: int
) -> LeastBytes:
    """Count the bytes of a search, and of tasks on so many workers; there are no more tasks than cells."""
    cells = max(cell_count(q), 1)
    trees = 8 * (n + q) * (3 * p + 2)
    # few targets that lie far apart may have a good part of all points around them
    halo = min(n, max(16 * max(CELL, 4 * neighbours), n // max(CELLS, cells // 2)))
    waiting = 8 * min(AT_ONCE * workers, cells) * halo * (p + fields + 1)
    task = halo * (3 * p + 2 * fields + 4 + coarse) + CELL * (2 * neighbours + 2 * fields)
    task += min(halo // LEAF, MOST_KEPT) ** 2 // 3 if coarse else 0
    group = 6 * neighbours + 4 * coarse
    held = 8 * 3 * (task + group * (group + OF_ANCHOR))
    return LeastBytes(trees + waiting + 8 * q * (fields + 2), held, min(workers, cells))
