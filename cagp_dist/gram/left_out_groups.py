"""Each observation as the others near it predict it: in groups that share their neighbours (math 27).

A group is a leaf of a k-d tree, in the metric of the kernel, and the observations nearest to its middle. Few
observations are one group, in which all predict each: then nothing is left out but the value itself.
"""

from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.gram.metric import metric
from cagp_dist.gram.neighbourhoods import ROUNDING, leaves
from cagp_dist.kernels import Kernel, point_columns
from cagp_dist.runtime import Executor

ALONE = 600  # Observations up to which all predict each
OWN, MEMBERS = 32, 128  # Of a group at most: what it predicts, and what there is beside
TASK = 256  # Groups of a task
FORGOTTEN = 1e6  # Noise of what is left out, in prior variances: it says a millionth
COLLINEAR = 1e-9  # Part of a precision below which nothing is left of it beside the coefficients


class Groups(NamedTuple):
    """Group s has ``members[starts[s] : starts[s + 1]]``, of which the last ``owned[s]`` are its own."""

    members: Indices
    starts: Indices
    owned: Indices

    @classmethod
    def of(cls, kernel: Kernel, X: Array, *, alone: int = ALONE) -> "Groups":
        """Deal n points (n, p) out; up to ``alone`` of them are one group."""
        from scipy.spatial import cKDTree

        n = len(X)
        if n <= alone:
            return cls(np.arange(n), np.array([0, n]), np.array([n]))
        scaled = X * metric(kernel, X.shape[1])
        tree = cKDTree(scaled, leafsize=OWN)
        parts = [tree.indices[start:stop] for start, stop in leaves(tree, OWN)]
        middle = np.array([0.5 * (scaled[own].min(axis=0) + scaled[own].max(axis=0)) for own in parts])
        nearest = np.asarray(tree.query(middle, min(OWN + MEMBERS, n))[1])
        mine = np.zeros(n, dtype=np.bool_)
        members, sizes = [], []
        for own, near in zip(parts, nearest, strict=True):
            mine[own] = True
            others = near[~mine[near]][:MEMBERS]
            mine[own] = False
            members += [others, own]
            sizes.append(others.size + own.size)
        owned = np.array([own.size for own in parts])
        return cls(np.concatenate(members), np.concatenate([[0], np.cumsum(sizes)]), owned)

    def with_any(self, chosen: Mask) -> Indices:
        """Find groups that have any of the observations (n,)."""
        return np.flatnonzero(np.add.reduceat(chosen[self.members].astype(np.intp), self.starts[:-1]))

    def worst(self, badness: Array) -> Mask:
        """Which observations (n,) are the worst of their own group and its neighbours; none where it is 0."""
        most, own = np.maximum.reduceat(badness[self.members], self.starts[:-1]), np.empty_like(badness)
        for end, count, value in zip(self.starts[1:], self.owned, most, strict=True):
            own[self.members[end - count : end]] = value
        return np.asarray((badness > 0.0) & (badness >= own))


class LeftOutInGroups:
    """One field (n,) of which every value is predicted from the others of its group, and some are forgotten.

    The mean has a basis (n, d), whose coefficients are estimated by all groups together.
    """

    def __init__(
        self,
        kernel: Kernel,
        X: Array,
        noise: Array,
        values: Array,
        basis: Array,
        groups: Groups,
        executor: Executor,
    ) -> None:
        self._kernel, self._points, self._noise = kernel, point_columns(X), noise
        self._columns = np.ascontiguousarray(np.column_stack([values, basis]))
        self.groups, self._executor = groups, executor
        n, r = self._columns.shape
        self.forgotten = np.zeros(n, dtype=np.bool_)
        self._large = FORGOTTEN * (float(kernel.variance) + float(noise.max()))
        self._solved, self._precision = np.empty((n, r)), np.empty(n)
        self._moments = np.empty((groups.owned.size, r, r))
        self._solve(np.arange(groups.owned.size))

    def forget(self, forgotten: Mask) -> None:
        """Predict all values (n,) without these, and with all others."""
        changed = forgotten ^ self.forgotten
        if changed.any():
            self.forgotten = forgotten.copy()
            self._solve(self.groups.with_any(changed))

    def errors(self) -> tuple[Array, Array]:
        """Errors (n,) of the predictions, and their variances with noise; NaN where only the value tells."""
        values, basis = self._solved[:, 0], self._solved[:, 1:]
        precision = self._precision
        if basis.shape[1]:
            total = self._moments.sum(axis=0)
            found = np.linalg.solve(total[1:, 1:], np.column_stack([total[1:, :1], basis.T]))
            values = values - basis @ found[:, 0]
            left = precision - np.einsum("nd,dn->n", basis, found[:, 1:])
            precision = np.where(left > COLLINEAR * precision, left, np.nan)
        variance = 1.0 / precision
        return values * variance, variance - self._large * self.forgotten

    def _solve(self, chosen: Indices) -> None:
        noise = self._noise + self._large * self.forgotten
        tasks = np.array_split(chosen, max(1, -(-chosen.size // TASK)))
        handles = [
            self._executor.submit(
                _solved, self._kernel, self._points, noise, self._columns, some, self.groups
            )
            for some in tasks
        ]
        for some, (own, solved, precision, moments) in zip(
            tasks, self._executor.gather(handles), strict=True
        ):
            self._solved[own], self._precision[own], self._moments[some] = solved, precision, moments


def _solved(
    kernel: Kernel, points: Array, noise: Array, columns: Array, chosen: Indices, groups: Groups
) -> tuple[Indices, Array, Array, Array]:
    """Solve some groups: which observations are theirs, and what `leave_out_groups` writes for them."""
    from cagp_dist.compiled import leave_out_groups

    pieces = [groups.members[groups.starts[s] : groups.starts[s + 1]] for s in chosen]
    sizes = np.array([piece.size for piece in pieces])
    here, inverse = np.unique(np.concatenate(pieces), return_inverse=True)
    owned = groups.owned[chosen]
    ends = np.cumsum(sizes)
    starts = np.concatenate([[0], ends])
    solved, precision = np.empty((here.size, columns.shape[1])), np.empty(here.size)
    moments = np.empty((chosen.size, columns.shape[1], columns.shape[1]))
    leave_out_groups(
        *kernel.parameters,
        np.ascontiguousarray(points[:, here]),
        noise[here],
        np.ascontiguousarray(columns[here]),
        np.arange(chosen.size),
        owned,
        starts,
        inverse.astype(np.intp),
        ROUNDING,
        solved,
        precision,
        moments,
    )
    own = np.concatenate([inverse[end - count : end] for end, count in zip(ends, owned, strict=True)])
    return here[own], solved[own], precision[own], moments
