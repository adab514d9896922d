"""Iterations on ``P^-1 G`` with a preconditioner P of diagonal plus low rank (math 4.2)."""

from abc import ABC
from dataclasses import dataclass, field
from typing import ClassVar, final

import numpy as np

from cagp_dist.errors import ArgumentError
from cagp_dist.gram.base import Gram
from cagp_dist.runtime import Executor
from cagp_dist.solvers.affine import Affine
from cagp_dist.solvers.options import LOW_RANK, PRECONDITIONER_RANK
from cagp_dist.solvers.preconditioners import DiagonalPlusLowRank, find_preconditioner
from cagp_dist.solvers.spectrum import LANCZOS_STEPS
from cagp_dist.solvers.stages import LowRankInverse

RANK = 100


@dataclass(frozen=True)
class Preconditioned(Affine, ABC):
    """An affine solver that works with all points at once and may have a preconditioner.

    Parameters
    ----------
    preconditioner : str or None
        One of `preconditioners`.
    preconditioner_size : int or None
        Its rank, at least 1.
    """

    preconditioner: str | None = field(default=None, kw_only=True, metadata=LOW_RANK)
    preconditioner_size: int | None = field(default=None, kw_only=True, metadata=PRECONDITIONER_RANK)

    preconditioners: ClassVar[tuple[str, ...]] = ("pivoted-cholesky", "nystrom")
    at_once: ClassVar[bool] = True
    points_per_block: ClassVar[None] = None

    @final
    def check_preconditioner(self) -> None:
        """Raise `ArgumentError` unless there is such a preconditioner, and its rank is a count."""
        if self.preconditioner is None:
            if self.preconditioner_size is not None:
                raise ArgumentError(
                    f"preconditioner_size is {self.preconditioner_size} without a preconditioner; expected "
                    f"one of {', '.join(map(repr, self.preconditioners))} beside it."
                )
            return
        if self.preconditioner not in self.preconditioners:
            raise ArgumentError(
                f"preconditioner is {self.preconditioner!r}; expected one of "
                f"{', '.join(map(repr, self.preconditioners))}: its bounds are known."
            )
        find_preconditioner(self.preconditioner, self.preconditioner_size)

    @property
    def by_rings(self) -> bool:
        """Whether all points of a ring are solved alike: a preconditioner tells them apart."""
        return self.preconditioner is None

    @property
    def coarse_columns(self) -> int:
        """Rank of the preconditioner; 0: none."""
        return 0 if self.preconditioner is None else self.preconditioner_size or RANK

    @property
    def projections(self) -> int:
        """Applications of the preconditioner in all cycles."""
        return 0 if self.preconditioner is None else self.iterations

    @property
    def products(self) -> int:
        """Products of G with one column: for row sums, or Ritz values."""
        return 1 if self.preconditioner is None else LANCZOS_STEPS

    def inverse(self, gram: Gram, executor: Executor) -> LowRankInverse | None:
        """Make ``P^-1`` of a Gram matrix, None without a preconditioner."""
        if self.preconditioner is None:
            return None
        made = find_preconditioner(self.preconditioner, self.coarse_columns).of(gram, executor=executor)
        assert isinstance(made, DiagonalPlusLowRank)
        left = gram.diagonal() - made.diagonal - np.einsum("ij,ij->i", made.factor, made.factor)
        # G - P = K - U U' >= 0, and P >= N: lambda_max(P^-1 G) <= 1 + trace(N^-1 (K - U U'))
        largest = 1.0 + float((np.maximum(left, 0.0) / made.diagonal).sum())
        return LowRankInverse(1.0 / made.diagonal, made.inverse_factor, largest)
