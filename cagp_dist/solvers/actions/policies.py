"""Policies: which actions a projection takes, one block after the other (math 4).

Only policies that depend on the data call the function that returns the current residual.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from cagp_dist.arrays import Array

Residual = Callable[[], Array]  # Returns ``b - G v`` (n,), with v the solution so far


class Block(NamedTuple):
    """Actions that are taken with one product with G."""

    columns: Array  #: (n, k): of any length, none of them conjugate to anything yet
    #: Whether they were made from the data. If so the solve ends where the residual is at rounding level, or
    #: where the action lies in the span of earlier ones: there is no other to go on with. If not, neither may
    #: have a say (math 1.6), and an action in the span of earlier ones is skipped
    follows_residual: bool = False


Policy = Callable[[Residual], Iterator[Block]]  # Yields blocks of actions


def residuals(
    residual: Residual, *, solve: Callable[[Array], Array] = lambda columns: columns
) -> Iterator[Block]:
    """Conjugate gradients: ``P^-1 r`` is the next action, where ``solve`` applies it. Depends on the data."""
    while True:
        yield Block(solve(residual()[:, None]), follows_residual=True)


def given(make: Callable[[], Array]) -> Policy:
    """Actions (n, k) that are known in advance, all in one block, made when their turn comes."""

    def take(residual: Residual) -> Iterator[Block]:
        yield Block(make())

    return take
