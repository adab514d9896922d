"""Preconditioners: matrices ``P`` close to G whose inverse is cheap (math 4.2).

::

    PivotedCholesky        P = N + U U',  U a partial Cholesky factor of K
    Nystrom                P = N + U U',  U from pseudo-inputs drawn from the points
    SymmetricSweep         P = (B + L) B^-1 (B + L'),  one block Gauss-Seidel sweep up and one down,
                           B the diagonal blocks of G and L what is below them
    Vecchia                P^-1 = U U',  U sparse: each point given its nearest ones of those before

with the noise N. Each is a frozen object of settings; `of` makes the operator for a Gram matrix, from
kernel, points and noise alone: a preconditioner never depends on the data.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.budget import Demand, Plan
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.budget.point_plans import Sweeps, plan_sweeps
from cagp_dist.checks import check_count
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.gram_matrix import Gram
from cagp_dist.gram.vecchia_factor import VecchiaFactor, vecchia_factor
from cagp_dist.runtime import Executor
from cagp_dist.solvers.engine.stages import Sweep
from cagp_dist.solvers.engine.tiles import TileSystem
from cagp_dist.solvers.interface import Problem
from cagp_dist.solvers.stationary.low_rank import nystrom, partial_cholesky, planned_flops

# Factors of diagonal blocks are kept between sweeps up to this size, and made again beyond it
FACTORS_KEPT_BYTES = 2**30


class Cost(NamedTuple):
    """What a preconditioner takes: bytes; evaluations and flops once, and those and tasks of a solve."""

    memory_bytes: int
    entries: int
    flops: int
    entries_of_solve: int
    flops_of_solve: int
    tasks_of_solve: int = 0


class DiagonalPlusLowRank:
    """``P = diag(d) + U U'``, with its inverse and its product (math 4.2).

    ``P^-1 = d^-1/2 (I - Q Q') d^-1/2`` where Q (n, r) are the first n rows of the orthonormal factor of
    ``[d^-1/2 U; I]``: the formula of Woodbury without the squared condition number of ``I + U' d^-1 U``.

    Parameters
    ----------
    diagonal : array of float64, shape (n,)
        d, above zero.
    factor : array of float64, shape (n, r)
        U. 2 (n + r) r^2 flops once, 16 n r bytes kept and as much while they are made.

    Raises
    ------
    ArgumentError
        If an entry of ``diagonal`` is not above zero.

    Examples
    --------
    >>> import numpy as np
    >>> P = DiagonalPlusLowRank(np.full(3, 0.5), np.array([[1.0], [2.0], [0.0]]))
    >>> (P @ np.eye(3))[:2, :2]
    array([[1.5, 2. ],
           [2. , 4.5]])
    >>> bool(np.allclose(P.solve(P @ np.eye(3)), np.eye(3)))
    True
    """

    def __init__(self, diagonal: Array, factor: Array) -> None:
        if not (diagonal > 0.0).all():
            raise ArgumentError(
                f"the diagonal of a preconditioner has an entry of {diagonal.min():g}; expected noise above "
                "zero at every point. Raise noise_variance, or use the preconditioner block-gauss-seidel.",
                key="no-noise",
            )
        self.diagonal, self.factor = diagonal, factor

    @cached_property
    def _scale(self) -> Array:
        return np.asarray(1.0 / np.sqrt(self.diagonal))

    @cached_property
    def _orthonormal(self) -> tuple[Array, Array]:
        """Q (n, r) and the triangle (r, r) with ``R'R = I + U' d^-1 U``."""
        n, r = self.factor.shape
        stacked = np.concatenate([self.factor * self._scale[:, None], np.eye(r)])
        basis, triangle = np.linalg.qr(stacked)
        return basis[:n], triangle

    @property
    def inverse_factor(self) -> Array:
        """S (n, r) with ``P^-1 = diag(1 / d) - S S'``."""
        return np.asarray(self._scale[:, None] * self._orthonormal[0])

    def __matmul__(self, columns: Array) -> Array:
        """``P @ columns`` for columns (n,) or (n, k), 4 n r k flops."""
        return np.asarray((self.diagonal * columns.T).T + self.factor @ (self.factor.T @ columns))

    def solve(self, columns: Array) -> Array:
        """``P^-1 @ columns`` for columns (n,) or (n, k), 4 n r k flops."""
        basis, _ = self._orthonormal
        scaled = (self._scale * columns.T).T
        scaled = scaled - basis @ (basis.T @ scaled)
        return np.asarray((self._scale * scaled.T).T)


@dataclass(frozen=True)
class PivotedCholesky:
    """``P = N + U U'`` with U a partial Cholesky factor of K, of ``rank`` columns, at most n.

    ``K - U U' >= 0``, so that the spectrum of ``P^-1 G`` is within ``[1, 1 + |K - U U'| / noise]``.
    """

    rank: int = 100

    def __post_init__(self) -> None:
        check_count("rank", self.rank, least=1)

    def of(self, gram: Gram, *, executor: Executor) -> DiagonalPlusLowRank:
        """Make it, in this process, whatever the executor; cost as `cost` says."""
        U = partial_cholesky(gram.kernel, gram.X, rank=self.rank).factor
        return DiagonalPlusLowRank(gram.noise_variance, U)

    def cost(self, demand: Demand) -> Cost:
        """Say what it takes, from integers alone."""
        return _low_rank_cost(demand.n, self.rank, made=planned_flops(demand.n, self.rank))


@dataclass(frozen=True)
class Nystrom:
    """``P = N + U U'`` with ``U U' = k(X, Z) k(Z, Z)^-1 k(Z, X)``, Z drawn from the points, at most all."""

    points: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("points", self.points, least=1)
        check_count("seed", self.seed, least=0)

    def of(self, gram: Gram, *, executor: Executor) -> DiagonalPlusLowRank:
        """Make it, in this process, whatever the executor; cost as `cost` says."""
        n = gram.shape[0]
        chosen = np.random.default_rng(self.seed).choice(n, size=min(self.points, n), replace=False)
        return DiagonalPlusLowRank(gram.noise_variance, nystrom(gram.kernel, gram.X, gram.X[chosen]))

    def cost(self, demand: Demand) -> Cost:
        """Say what it takes, from integers alone."""
        m = min(self.points, demand.n)
        return _low_rank_cost(demand.n, m, made=2 * demand.n * m**2 + 9 * m**3)


def _low_rank_cost(n: int, rank: int, *, made: int) -> Cost:
    r = min(rank, n)
    return Cost(DOUBLE * (5 * (n + r) * r + 6 * n), n * r, made + 4 * (n + r) * r**2, 0, 4 * n * r)


@dataclass(frozen=True)
class SymmetricSweep:
    """One block Gauss-Seidel sweep up and one down: symmetric block Gauss-Seidel (math 2)."""

    block_size: int = 1024

    def __post_init__(self) -> None:
        check_count("block_size", self.block_size, least=1)

    def of(self, gram: Gram, *, executor: Executor) -> "SweepOperator":
        """Make it; its sweeps run on the executor."""
        demand = Demand(
            n=gram.shape[0],
            q=1,
            fields=1,
            full_covariance=False,
            workers=executor.workers,
            shares_memory=executor.shares_memory,
            memory_limit_bytes=0,
            p=gram.X.shape[1],
        )
        return SweepOperator(gram, plan=self._plan(demand), executor=executor)

    def cost(self, demand: Demand) -> Cost:
        """Say what it takes, from integers alone."""
        plan = self._plan(demand)
        blocks = demand.n * plan.block_size
        made = 0 if plan.keep_factors else 2
        return Cost(
            plan.peak_bytes,
            blocks,
            blocks * plan.block_size // 3,
            3 * demand.n**2 // 2 + made * blocks,
            3 * demand.n**2 + 4 * blocks + made * blocks * plan.block_size // 3,
            plan.tasks,
        )

    def _plan(self, demand: Demand) -> Plan:
        """Plan of two sweeps over one column; what is kept depends on the size of the problem alone."""
        alone = replace(demand, q=1, full_covariance=False, memory_limit_bytes=2**62, mean_targets=0)
        plan = plan_sweeps(
            alone, Sweeps(iterations=1, block_size=self.block_size, stages=2), method="symmetric sweep"
        )
        factor_bytes = DOUBLE * demand.n * plan.block_size
        if factor_bytes <= FACTORS_KEPT_BYTES:
            return plan
        return replace(plan, keep_factors=False, peak_bytes=plan.peak_bytes - factor_bytes)


@dataclass(frozen=True)
class Vecchia:
    """``P^-1 = U U'``, each point of a random order conditioned on the nearest of those before it (math 4.2).

    All of ``U' G U`` has ones on its diagonal, so that the eigenvalues of ``P^-1 G`` lie around one: closely,
    where points are scattered and the kernel is a Matern one.
    """

    neighbours: int = 60

    def __post_init__(self) -> None:
        check_count("neighbours", self.neighbours, least=1)

    def of(self, gram: Gram, *, executor: Executor) -> VecchiaFactor:
        """Make it on the executor; cost as `cost` says."""
        return vecchia_factor(
            gram.kernel, gram.X, gram.noise_variance, neighbours=self.neighbours, executor=executor
        )

    def cost(self, demand: Demand) -> Cost:
        """Say what it takes, from integers alone."""
        n, k = demand.n, min(self.neighbours, demand.n)
        # neighbours and weights, and while they are made what search and tasks hold; points, their order
        memory = DOUBLE * n * (7 * k + 4 * demand.p + 8)
        return Cost(memory, n * k**2 // 2, n * (k**3 // 3 + k**2), 0, 4 * n * k)


class SweepOperator:
    """``P^-1`` by a sweep over the blocks in ascending order and one in descending order."""

    def __init__(self, gram: Gram, *, plan: Plan, executor: Executor) -> None:
        nothing = Problem(gram, np.empty((gram.shape[0], 0)), gram.X[:0], full_covariance=False)
        self._system = TileSystem(nothing, plan=plan, executor=executor)

    def solve(self, columns: Array) -> Array:
        """``P^-1 @ columns`` for columns (n, r); 3/2 n^2 evaluations and 3 n^2 r flops."""
        work = self._system.forward(columns)
        self._system.apply(Sweep(whole_blocks=True), work, adjoint=False)
        self._system.apply(Sweep(whole_blocks=True, ascending=False), work, adjoint=False, final=True)
        return self._system.weights(work)


# By the names that settings of solvers give them; the first argument of each is its size
PreconditionerSettings = PivotedCholesky | Nystrom | SymmetricSweep | Vecchia

PRECONDITIONERS: Mapping[str, type[PreconditionerSettings]] = MappingProxyType(
    {
        "pivoted-cholesky": PivotedCholesky,
        "nystrom": Nystrom,
        "block-gauss-seidel": SymmetricSweep,
        "vecchia": Vecchia,
    }
)


def find_preconditioner(name: str, size: int | None = None) -> PreconditionerSettings:
    """Find a preconditioner by name, with its rank, block size or neighbours, or with its own default."""
    if not isinstance(name, str) or name not in PRECONDITIONERS:
        raise ArgumentError(
            f"preconditioner is {name!r}; expected one of {', '.join(PRECONDITIONERS)}.",
            key="preconditioner-unknown",
        )
    made = PRECONDITIONERS[name]
    if size is not None:
        check_count("preconditioner_size", size, least=1)
    return made() if size is None else made(size)
