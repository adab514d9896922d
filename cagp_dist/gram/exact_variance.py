"""The exact posterior variance at targets, or close bounds of it, at a fraction of the cost of a sweep.

Any trial solution u of ``G u = V'`` (one column for each target) brackets it: with ``r = V' - G u``, and
``N`` the noise, ``G >= N`` gives (math 1.3 for ``Y0 = r``)::

    V G^-1 V' = 2 V u - u' G u + r' G^-1 r,          0 <= r' G^-1 r <= r' N^-1 r

Here u solves the problem of the observed points near the target alone. Covariances that fall with distance
screen what lies further off, so that both bounds usually agree in several digits.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget import Demand, Plan
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.budget.grid_plans import plan_exact_grid
from cagp_dist.budget.plan import common_bytes
from cagp_dist.errors import BudgetError, NumericalError
from cagp_dist.gram.dense import cholesky_lower
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.gram.gram_matrix import Gram
from cagp_dist.gram.masked import complete_grid
from cagp_dist.gram.metric import metric
from cagp_dist.gram.ring_gram import RingGram
from cagp_dist.gram.targets import Targets, covariance_with, list_targets, part, prior_variance
from cagp_dist.gram.tiled import put_value
from cagp_dist.kernels import Kernel
from cagp_dist.remedies import Remedy
from cagp_dist.runtime import Executor, Handle, single_threaded_blas
from cagp_dist.text import bytes_text
from cagp_dist.tiling import block_ranges

FEW_POINTS = 1024  # Observed points up to which a Cholesky factor gives the exact variance in no time
NEIGHBOURS = 64  # Nearest observed points that the trial solution of a target may use, at least
GROUP = 64  # Targets that share one trial problem, at most: those of all of them together
MOST_MEMBERS = 1024  # Observed points of such a problem, at most; its matrix takes 8 MB, as does the factor
ENTRIES = 2**20  # Kernel values that a task holds at a time, 8 MB


class ExactVariance:
    """The exact posterior variance of the field at targets, or bounds of it from observed points near by.

    Bounds take 50 to 130 n q nanoseconds on one core; each task 25 to 54 MB (measured).
    """

    def __init__(self, gram: Gram, targets: Targets) -> None:
        rings, _ = complete_grid(gram) or (None, None)
        self.known = rings is not None or gram.shape[0] <= FEW_POINTS
        """Whether the variance itself is found, and both bounds are it."""
        # not the Gram matrix of the solve, which may keep factors and an executor that closes
        self._rings = (
            None if rings is None else (rings.grid, rings.noise_by_latitude, rings.memory_limit_bytes)
        )
        self._kernel, self._noise, self._targets = gram.kernel, gram.noise_variance, targets
        self._X = gram.X if rings is None else None
        self._found: Array | None = None

    def bounds(self, executor: Executor, *, demand: Demand | None = None) -> Array:
        """Lower and upper bound, shape (2, q), worked out on the first call; latent, without noise."""
        if self._found is None:
            at_once = executor.workers
            if demand is not None:
                at_once = bounds_workers(replace(demand, workers=executor.workers))
            if self._rings is None:
                assert self._X is not None
                self._found = neighbour_bounds(
                    self._kernel,
                    self._X,
                    self._noise,
                    list_targets(self._targets),
                    executor=executor,
                    at_once=at_once,
                )
            else:
                grid, noise, limit = self._rings
                gram = RingGram(
                    grid, self._kernel, noise_variance=noise, executor=executor, memory_limit_bytes=limit
                )
                with single_threaded_blas():
                    downdate = gram.exact(executor=executor).downdate(self._targets, full=False)
                variance = prior_variance(self._kernel, self._targets) - downdate
                self._found = np.stack([variance, variance])
        return self._found

    def take(self, bounds: Array) -> None:
        """Take bounds (2, q) that were found, and perhaps tightened, before, instead of new ones."""
        self._found = bounds

    def tighten(self, targets: Indices, found: Array) -> None:
        """Take other bounds (2, c) of it at some targets, after `bounds`, where they say more."""
        assert self._found is not None
        least, most = self._found[:, targets]
        # bounds that rounding lets cross are both as good as it is
        most = np.minimum(most, found[1])
        self._found[:, targets] = np.minimum(np.maximum(least, found[0]), most), most


def is_known(demand: Demand) -> bool:
    """Whether the exact variance itself is found for a problem of this size."""
    return demand.n <= FEW_POINTS or (demand.grid is not None and demand.grid.has_rings)


def bounds_bytes(demand: Demand) -> int:
    """Bytes that `ExactVariance.bounds` takes for a problem of this size, beside the observed points."""
    if demand.grid is not None and demand.grid.has_rings:
        alone = replace(demand, fields=1, full_covariance=False, memory_limit_bytes=sys.maxsize)
        return plan_exact_grid(alone, demand.grid).peak_bytes
    n, q = demand.n, demand.q
    values = ENTRIES if demand.cell_nodes else 0  # at nodes of cells, before they are averaged
    if n <= FEW_POINTS:
        # the matrix and its factor; covariances of the targets, the trial solution, and what it leaves over
        task = 5 * n**2 // 2 + 4 * n * min(q, FEW_POINTS) + values
        return DOUBLE * task * min(demand.workers, -(-q // FEW_POINTS))
    # a factor; or the kernel values of some rows and their residuals
    task = 3 * max(MOST_MEMBERS**2, ENTRIES) + 6 * MOST_MEMBERS * GROUP + values
    # members of the groups, coordinates in two trees; and targets as the tasks have them
    search = MOST_MEMBERS * -(-q // GROUP) + 3 * demand.p * (n + q) + (demand.p + 1) * demand.target_points
    return DOUBLE * (task * min(demand.workers, q) + search)


def bounds_workers(demand: Demand) -> int:
    """Tasks of the bounds that fit side by side into the memory of a demand, at most its workers."""
    for workers in range(demand.workers, 0, -1):
        if bounds_bytes(replace(demand, workers=workers)) <= demand.memory_limit_bytes:
            return workers
    needed = bounds_bytes(replace(demand, workers=1))
    raise BudgetError(
        f"to say how much of the variance at {demand.q:,} targets is unfinished computation needs about "
        f"{bytes_text(needed)} beside the posterior, more than the {bytes_text(demand.memory_limit_bytes)} "
        "that may be used for it.",
        key="memory",
        remedies=(Remedy.MORE_MEMORY, Remedy.FEWER_TEST_POINTS),
    )


def beside_posterior(demand: Demand, plan: Plan) -> Demand:
    """Demand of the bounds, after a solve: what the posterior takes is gone from the memory."""
    taken = common_bytes(demand, plan.iterations)
    return replace(demand, memory_limit_bytes=max(demand.memory_limit_bytes - taken, 0))


def with_bounds(plan: Plan, demand: Demand) -> Plan:
    """Plan of a solve, and of the bounds after it where these are wanted."""
    if not demand.bounds or demand.q == 0:
        return plan
    after = beside_posterior(demand, plan)
    taken = common_bytes(demand, plan.iterations)
    needed = taken + bounds_bytes(replace(after, workers=bounds_workers(after)))
    return replace(plan, peak_bytes=max(plan.peak_bytes, needed))


def neighbour_bounds(
    kernel: Kernel,
    X: Array,
    noise: Array,
    targets: Array | LinearFunctionals,
    *,
    executor: Executor,
    at_once: int | None = None,
) -> Array:
    """Bounds (2, q) of the exact posterior variance at targets (q, p), given X (n, p) and noise (n,)."""
    bounds = np.empty((2, len(targets)))
    if len(targets) == 0:
        return bounds
    with single_threaded_blas():
        points, variances = executor.submit(put_value, X), executor.submit(put_value, noise)
        where = targets.centres if isinstance(targets, LinearFunctionals) else targets
        groups = list(_groups(kernel, X, where))
        together = len(groups) if at_once is None or at_once >= executor.workers else at_once
        for first, last in block_ranges(len(groups), together):
            done: list[Handle[Array]] = [
                executor.submit(
                    group_bounds, kernel, points, variances, part(targets, here), members, home=home
                )
                for home, (here, members) in enumerate(groups[first:last], start=first)
            ]
            for (here, _), found in zip(groups[first:last], executor.gather(done), strict=True):
                bounds[:, here] = found
    return bounds


def _groups(kernel: Kernel, X: Array, targets: Array) -> Iterator[tuple[Indices, Indices]]:
    """Targets that stand together, and the observed points that their trial problem has."""
    from scipy.spatial import KDTree

    if len(X) <= FEW_POINTS:
        everything = np.arange(len(X))
        for start in range(0, len(targets), FEW_POINTS):
            yield np.arange(start, min(start + FEW_POINTS, len(targets))), everything
        return
    scale = metric(kernel, X.shape[1])  # where each coordinate has a lengthscale, near is what is alike
    observed = KDTree(X * scale)
    order = KDTree(targets * scale, leafsize=GROUP).indices  # leaf by leaf: compact
    pending = [order[start : start + GROUP] for start in range(0, len(order), GROUP)]
    while pending:
        here = pending.pop()
        members = np.unique(observed.query(targets[here] * scale, k=NEIGHBOURS)[1])
        if len(members) > MOST_MEMBERS and len(here) > 1:  # far from each other
            pending += np.array_split(here, 2)
        else:
            yield here, members


def group_bounds(
    kernel: Kernel, X: Array, noise: Array, targets: Array | LinearFunctionals, members: Indices
) -> Array:
    """Bounds (2, c) for a group of targets (c, p), from the trial problem of some observed points (m,)."""
    matrix = kernel(X[members], X[members])
    matrix[np.diag_indices(len(members))] += noise[members]
    seen = covariance_with(kernel, X[members], targets)
    prior = prior_variance(kernel, targets)
    trial = _solved(matrix, seen)
    if trial is None:
        return np.stack([np.zeros_like(prior), prior])
    # to second order in whatever rounding did to the trial solution
    upper = prior - np.einsum("ij,ij->j", trial, 2.0 * seen - matrix @ trial)
    if len(members) == len(X):
        return np.stack([upper, upper])
    if noise.min() <= 0.0:
        return np.stack([np.zeros_like(upper), upper])
    left = np.zeros(len(targets))
    rows = max(1, ENTRIES // max(len(members), len(targets)))
    for start in range(0, len(X), rows):
        here = X[start : start + rows]
        residual = covariance_with(kernel, here, targets) - kernel(here, X[members]) @ trial
        own = (members >= start) & (members < start + len(here))
        residual[members[own] - start] -= noise[members[own], None] * trial[own]
        left += (1.0 / noise[start : start + rows]) @ residual**2
    return np.stack([np.maximum(upper - left, 0.0), upper])


def _solved(matrix: Array, right: Array) -> Array | None:
    """Solve a trial problem; None where it has no Cholesky factor."""
    from scipy.linalg import cho_solve

    try:
        return np.asarray(cho_solve((cholesky_lower(matrix), True), right, check_finite=False))
    except NumericalError:
        return None
