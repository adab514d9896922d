"""Errors that observations share, estimated from all of them beside a field by neighbours (math 25).

With weights W of neighbours of the field alone, groups F (n, g) of the observations and F* (q, g) of the
targets, variances B of the errors, and Vecchia's factor ``P = U U'`` of the field with its noise,

    beta = C^-1 F'P b,   C = F'P F + B^-1,   mean = W b + R beta,   R = F* - W F
    variance = E(W) + R C^-1 R'

E(W) is that of the errors of W (math 20, T37). Where the neighbours of all are all others, P is the inverse
of the Gram matrix and this is the posterior (T46). Elsewhere beta is what P makes of it, which is as good as
unbiased whatever P is; C^-1 is the covariance of its errors, and their covariance with those of W is zero, if
P is right. P has 60 neighbours, and 120 of dense observations: of 1,600 within a lengthscale, with noise,
standard deviations of errors are then stated .2 % too short, and with 60 of them 2 %.

C is sparse: groups are linked that have observations near each other.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.factors import SameLabel
from cagp_dist.geometry import space_filling_order
from cagp_dist.gram.block_factor import BLOCK, BlockFactor, BlockPattern, block_count
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.gram.gram_matrix import Gram
from cagp_dist.gram.metric import metric
from cagp_dist.gram.targets import target_points
from cagp_dist.gram.tiled import TiledGram
from cagp_dist.gram.vecchia_factor import VecchiaFactor, vecchia_factor
from cagp_dist.kernels import Kernel, Sum
from cagp_dist.runtime import Executor, single_threaded_blas

if TYPE_CHECKING:
    from scipy.sparse import csr_array

SEARCH_BYTES = 40  # Of each point that is looked at: distance, number, and which of them come before
PAIR_FLOPS = 200  # What a pair of neighbours takes that is added to the matrix of their groups

FACTOR_NEIGHBOURS = 60  # Of an observation in Vecchia's factor: with 30, error bars are up to 3 % too short
DENSE_NEIGHBOURS = 120  # Where the last of the 60 is so near that the field is hardly known from them
DENSE = 0.82  # Correlation with that one: of Matern 3/2, 300 observations are within a lengthscale
LOOKED_AT = 64  # Observations by which that is judged

NEGLIGIBLE = 1e-12  # Part of the weights of a functional below which those at a place count as none


@dataclass(frozen=True, eq=False)
class Sharing:
    """Which observations share errors, and the problem of the field alone."""

    gram: TiledGram  # of the field and its noise
    columns: Indices  # of points: which of them the field has
    axes: tuple[tuple[int, Array], ...]  # the column of points of each error, and its labels, ascending
    groups: Indices  # (n, axes): the error of each observation, -1 for none
    variances: Array  # (g,) of the errors

    @classmethod
    def of(cls, gram: Gram) -> "Sharing | None":
        """Take a Gram matrix apart; None where no errors are shared, or there is nothing else."""
        kernel, shared = without_shared(gram.kernel)
        layout = gram.kernel.layout
        if kernel is None or not shared or layout is None:
            return None
        kept = kernel.layout.axes if kernel.layout is not None else ()
        columns = np.array(
            [*range(layout.space), *(layout.space + layout.axes.index(axis) for axis in kept)], dtype=np.intp
        )
        axes, groups, variances = list[tuple[int, Array]](), list[Indices](), list[Array]()
        for part in shared:
            column = layout.space + layout.axes.index(part.axis)
            labels = np.unique(gram.X[:, column])
            labels = labels[labels >= 0.0]
            before = sum(map(len, variances))
            groups.append(_places(gram.X[:, column], labels, before))
            axes.append((column, labels))
            variances.append(np.full(labels.size, part.variance))
        if sum(map(len, variances)) == 0:  # no observation has a label, so that nothing is told of errors
            return None
        alone = TiledGram(
            kernel, np.ascontiguousarray(gram.X[:, columns]), noise_variance=gram.noise_variance
        )
        return cls(alone, columns, tuple(axes), np.stack(groups, axis=1), np.concatenate(variances))

    @cached_property
    def dense(self) -> bool:
        """Whether observations well beyond `FACTOR_NEIGHBOURS` go with one: usually, of some."""
        from scipy.spatial import KDTree

        n, kernel, points = self.gram.shape[0], self.gram.kernel, self.gram.X
        if n <= FACTOR_NEIGHBOURS:
            return False
        X = points * metric(kernel, points.shape[1])
        some = np.linspace(0, n - 1, min(n, LOOKED_AT)).astype(np.intp)
        last: Indices = np.asarray(KDTree(X).query(X[some], k=[FACTOR_NEIGHBOURS + 1])[1])
        own, other = points[some], points[last[:, 0]]
        shared = [kernel(a[None], b[None])[0, 0] for a, b in zip(own, other, strict=True)]
        correlations = np.array(shared) / np.sqrt(kernel.diagonal(own) * kernel.diagonal(other))
        return bool(np.median(correlations) > DENSE)

    @cached_property
    def of_observations(self) -> "csr_array":
        """F (n, g)."""
        return incidence(self.groups, self.variances.size)

    def field_of(self, targets: Array | LinearFunctionals) -> "tuple[Array | LinearFunctionals, Indices]":
        """Give targets as those of the field alone, without those of no field, and which of them are left.

        Of no field are errors of groups: what labels add at a place.
        """
        if not isinstance(targets, LinearFunctionals):
            return np.ascontiguousarray(targets[:, self.columns]), np.arange(len(targets))
        owner = np.repeat(np.arange(len(targets)), targets.counts)
        places = targets.places[:, self.columns]
        _, place = np.unique(places, axis=0, return_inverse=True)
        _, at, term = np.unique(
            owner * (place.max(initial=0) + 1) + place.reshape(-1), return_index=True, return_inverse=True
        )
        weights = np.bincount(term.reshape(-1), targets.weights).astype(np.float64)
        there = np.abs(weights) > NEGLIGIBLE * targets.magnitudes[owner[at]]
        at, weights = at[there], weights[there]
        left, counts = np.unique(owner[at], return_counts=True)
        if (counts == 1).all() and (weights == 1.0).all():
            return np.ascontiguousarray(places[at]), left
        return LinearFunctionals.of_terms(places[at], weights, counts), left

    def errors_of(self, targets: Array | LinearFunctionals) -> "csr_array":
        """F* (q, g): the errors that are part of targets."""
        X = target_points(targets)
        own, before = np.empty((len(X), len(self.axes)), dtype=np.intp), 0
        for index, (column, labels) in enumerate(self.axes):
            own[:, index] = _places(X[:, column], labels, before)
            before += labels.size
        nodes = incidence(own, self.variances.size)
        if isinstance(targets, LinearFunctionals):
            nodes = targets.matrix().T.tocsr() @ nodes
        nodes.sum_duplicates()
        return nodes


def without_shared(kernel: Kernel) -> tuple[Kernel | None, tuple[SameLabel, ...]]:
    """Give a kernel without the errors that labels share, None where nothing is left, and these errors."""
    shared = tuple(part for part in kernel.parts if isinstance(part, SameLabel))
    own = tuple(part for part in kernel.parts if not isinstance(part, SameLabel))
    if not own:
        return None, shared
    return own[0] if len(own) == 1 else Sum(own), shared


def _places(given: Array, labels: Array, before: int) -> Indices:
    """Places of labels among those that are known, counted from ``before``; -1 where there is none."""
    at = np.searchsorted(labels, given)
    found = at < labels.size
    found[found] = labels[at[found]] == given[found]
    return np.asarray(np.where(found, before + at, -1))


def incidence(groups: Indices, count: int) -> "csr_array":
    """Sparse rows (n, count) with a one for each group of a row."""
    from scipy.sparse import csr_array

    there = groups >= 0
    starts = np.append(0, np.cumsum(there.sum(axis=1)))
    members = groups[there]
    return csr_array((np.ones(members.size), members, starts), shape=(len(groups), count))


class SharedErrors:
    """Errors that groups share, as all observations tell them."""

    def __init__(self, sharing: Sharing, left: "csr_array", *, neighbours: int, executor: Executor) -> None:
        """Look at the observations, and link groups that ``left`` (q, g), R, has in one row."""
        from cagp_dist.group_blocks import add_groups, link_blocks, link_neighbours

        self._sharing, self.left = sharing, left
        gram, groups, g = sharing.gram, sharing.groups, sharing.variances.size
        n = gram.shape[0]
        self.neighbours = factor_neighbours(n, neighbours, dense=sharing.dense)
        self._near: VecchiaFactor = vecchia_factor(
            gram.kernel, gram.X, gram.noise_variance, neighbours=self.neighbours, executor=executor
        )
        order = _order(sharing)
        place = np.empty(g, dtype=np.intp)
        place[order] = np.arange(g)
        ordered = np.where(groups >= 0, place[groups], -1)[self._near.order]
        linked = np.eye(block_count(g), dtype=bool)
        link_neighbours(self._near.neighbours, ordered, BLOCK, linked)
        link_blocks(left.indptr.astype(np.intp), place[left.indices], BLOCK, linked)
        self._factor = BlockFactor(BlockPattern.of(linked), g)
        self._place: Indices = self._factor.places[place]
        add_groups(
            self._near.neighbours,
            self._near.weights,
            np.sqrt(self._near.variances),
            np.where(ordered >= 0, self._factor.places[ordered], -1),
            len(self._factor.diagonals) * BLOCK,
            self._factor.diagonals,
            self._factor.panels,
            self._factor.table,
            self._factor.widths,
        )
        self._factor.add_to_diagonal(1.0 / sharing.variances[order])
        self._order = order
        with single_threaded_blas():
            self.log_determinant = self._factor.factor()

    def estimate(self, columns: Array) -> Array:
        """``beta`` (g, T) of right-hand sides (n, T)."""
        seen = self._sharing.of_observations.T @ self._near.solve(columns)
        found = np.empty_like(seen)
        with single_threaded_blas():
            found[self._order] = self._factor.solve(seen[self._order])
        return np.asarray(found)

    def covariance(self) -> Array:
        """``R C^-1 R'`` (q, q)."""
        with single_threaded_blas():
            white = self._factor.whiten(self.left.T.tocsr()[self._order].toarray())
            square = white.T @ white
        return np.asarray(0.5 * (square + square.T))

    def variances(self) -> Array:
        """Diagonal (q,) of `covariance`; the factor is gone then."""
        from cagp_dist.group_blocks import quadratic_forms

        with single_threaded_blas():
            self._factor.invert()
        found, left, own = np.empty(self.left.shape[0]), self.left, self._factor
        members = self._place[left.indices]
        blocks = own.diagonals, own.panels, own.table, own.widths
        whole = quadratic_forms(left.indptr.astype(np.intp), members, left.data, *blocks, found)
        assert whole  # `left` has linked them
        return found


class Extent(NamedTuple):
    """Bytes at most, kernel values and flops of what all observations tell of the errors of groups."""

    nbytes: int
    entries: int
    flops: int


def extent_of(n: int, groups: int, neighbours: int, weights: int, *, dense: bool) -> Extent:
    """Count what n observations take, and so many weights of targets; all groups are linked at most."""
    k, blocks = factor_neighbours(n, neighbours, dense=dense), block_count(groups)
    # neighbours and weights, and the search of a quarter of the points among all
    factor = 16 * n * k + n * (4 * k // 3 + 32) * SEARCH_BYTES // 4
    stored = DOUBLE * (blocks * (blocks + 1) // 2 * BLOCK**2 + blocks**2)
    panels = 4 * DOUBLE * blocks * BLOCK**2
    pairs = n * (k + 1) ** 2 // 2
    linear_algebra = n * k**3 // 3 + (blocks * BLOCK) ** 3
    # of targets: weights of groups, twice while they are put together, and their places
    return Extent(factor + stored + panels + 40 * weights, pairs, PAIR_FLOPS * pairs + linear_algebra)


def factor_neighbours(n: int, neighbours: int, *, dense: bool) -> int:
    """Neighbours of an observation in Vecchia's factor: all others, where those of a target are all."""
    least = DENSE_NEIGHBOURS if dense else FACTOR_NEIGHBOURS
    return n - 1 if neighbours >= n else min(n - 1, max(neighbours, least))


def _order(sharing: Sharing) -> Indices:
    """Order groups so that those of a block lie near each other; the errors of one axis after another's."""
    gram, groups = sharing.gram, sharing.of_observations
    X = gram.X * metric(gram.kernel, gram.X.shape[1])
    centres = (groups.T @ X) / np.asarray(groups.sum(axis=0))[:, None]
    found, before = list[Indices](), 0
    for _, labels in sharing.axes:
        own = slice(before, before + labels.size)
        found.append(before + space_filling_order(centres[own], block_size=BLOCK))
        before += labels.size
    return np.concatenate(found)
