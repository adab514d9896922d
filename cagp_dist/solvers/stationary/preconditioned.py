"""Iterations on ``P^-1 G``: P diagonal plus low rank, or the inverse of Vecchia's ``U U'`` (math 4.2)."""

from abc import ABC
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from cagp_dist.budget import Demand
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.budget.point_plans import ActionCost
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.gram_matrix import Gram
from cagp_dist.gram.vecchia_factor import VecchiaFactor
from cagp_dist.runtime import Executor
from cagp_dist.solvers.engine.affine import Affine
from cagp_dist.solvers.engine.recurrence_tiles import COLUMNS_AT_ONCE
from cagp_dist.solvers.engine.stages import LowRankInverse
from cagp_dist.solvers.setting_metadata import PRECONDITIONER, PRECONDITIONER_SIZE
from cagp_dist.solvers.stationary.preconditioners import DiagonalPlusLowRank, find_preconditioner
from cagp_dist.solvers.stationary.spectrum import LANCZOS_STEPS, STEPS_NEAR_ONE

RANK = 100
VECCHIA = "vecchia"


@dataclass(frozen=True)
class PreconditionedIteration(Affine, ABC):
    """An affine solver that works with all points at once and may have a preconditioner."""

    # one of `preconditioners`
    preconditioner: str | None = field(default=None, kw_only=True, metadata=PRECONDITIONER)
    # its rank, or neighbours, at least 1
    preconditioner_size: int | None = field(default=None, kw_only=True, metadata=PRECONDITIONER_SIZE)

    preconditioners: ClassVar[tuple[str, ...]] = ("pivoted-cholesky", "nystrom", VECCHIA)
    at_once: ClassVar[bool] = True
    points_per_block: ClassVar[None] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.preconditioner is None:
            if self.preconditioner_size is not None:
                raise ArgumentError(
                    f"preconditioner_size is {self.preconditioner_size} without a preconditioner; expected "
                    f"one of {', '.join(map(repr, self.preconditioners))} beside it.",
                    key="no-preconditioner",
                )
            return
        if self.preconditioner not in self.preconditioners:
            raise ArgumentError(
                f"preconditioner is {self.preconditioner!r}; expected one of "
                f"{', '.join(map(repr, self.preconditioners))}: the spectrum that it leaves has bounds.",
                key="preconditioner-unknown",
            )
        find_preconditioner(self.preconditioner, self.preconditioner_size)

    @property
    def by_rings(self) -> bool:
        """Whether all points of a ring are solved alike: a preconditioner tells them apart."""
        return self.preconditioner is None

    @property
    def _low_rank(self) -> bool:
        return self.preconditioner is not None and self.preconditioner != VECCHIA

    @property
    def coarse_columns(self) -> int:
        """Rank of the preconditioner; 0: none."""
        return self.preconditioner_size or RANK if self._low_rank else 0

    @property
    def projections(self) -> int:
        """Applications of a preconditioner of low rank in all cycles."""
        return self.iterations if self._low_rank else 0

    @property
    def products(self) -> int:
        """Products of G with one column, of all n^2 entries: for row sums, or Ritz values."""
        if self.preconditioner is None:
            return 1
        return LANCZOS_STEPS if self._low_rank else STEPS_NEAR_ONE

    def beside(self, demand: Demand) -> ActionCost:
        """Say what Vecchia's factor takes, and columns in the order of its points."""
        if self.preconditioner != VECCHIA:
            return ActionCost()
        cost = find_preconditioner(VECCHIA, self.preconditioner_size).cost(demand)
        applied = self.iterations * demand.q + self.products
        columns = 6 * DOUBLE * demand.n * min(demand.q, COLUMNS_AT_ONCE) * demand.workers
        return ActionCost(
            cost.memory_bytes + columns, cost.entries, cost.flops + applied * cost.flops_of_solve
        )

    def inverse(self, gram: Gram, executor: Executor) -> LowRankInverse | VecchiaFactor | None:
        """Make ``P^-1`` of a Gram matrix, None without a preconditioner."""
        if self.preconditioner is None:
            return None
        made = find_preconditioner(self.preconditioner, self.preconditioner_size).of(gram, executor=executor)
        if isinstance(made, VecchiaFactor):
            return made
        assert isinstance(made, DiagonalPlusLowRank)
        left = gram.diagonal() - made.diagonal - np.einsum("ij,ij->i", made.factor, made.factor)
        # G - P = K - U U' >= 0, and P >= N: lambda_max(P^-1 G) <= 1 + trace(N^-1 (K - U U'))
        largest = 1.0 + float((np.maximum(left, 0.0) / made.diagonal).sum())
        return LowRankInverse(1.0 / made.diagonal, made.inverse_factor, largest)


def known_bounds(inverse: LowRankInverse | VecchiaFactor) -> tuple[float, float]:
    """Bounds of the spectrum of ``P^-1 G`` that are proved; 0 and infinity where none are."""
    return (1.0, inverse.largest) if isinstance(inverse, LowRankInverse) else (0.0, np.inf)
