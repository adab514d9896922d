"""Solvers whose sweeps may visit the blocks in another order than the given one."""

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from cagp_dist.errors import ArgumentError
from cagp_dist.solvers.engine.affine import Affine
from cagp_dist.solvers.setting_metadata import ORDER, ORDER_SEED


@dataclass(frozen=True)
class Ordered(Affine, ABC):
    """An affine solver with a choice of orders, none of which depends on the data (math 1.6).

    Random orders are counted from the last sweep of a solve: every state is that of a solver which stops
    there.
    """

    order: str = field(default="given", kw_only=True, metadata=ORDER)  # one of `orders`
    seed: int = field(default=0, kw_only=True, metadata=ORDER_SEED)  # seed of random orders, at least 0

    orders: ClassVar[Sequence[str]] = ("given", "random")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.order not in self.orders:
            expected = ", ".join(map(repr, self.orders))
            raise ArgumentError(f"order is {self.order!r}; expected one of {expected}.", key="unknown-word")

    @property
    def shuffled(self) -> bool:
        """Whether blocks are visited in a random order."""
        return self.order == "random"

    @property
    def sweep_seed(self) -> int | None:
        """Seed of a random order, or None."""
        return self.seed if self.shuffled else None
