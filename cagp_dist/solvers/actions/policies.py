"""Policies: which actions a projection takes, one block after the other (math 4).

Only policies that depend on the data call the function that returns the current residual.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array

Residual = Callable[[], Array]  # Returns ``b - G v`` (n,), with v the solution so far


class Block(NamedTuple):
    """Actions that are taken with one product with G."""

    columns: Array  # (n, k): of any length, none of them conjugate to anything yet
    # Whether they were made from the data. If so the solve ends where the residual is at rounding level, or
    # where the action lies in the span of earlier ones: there is no other to go on with. If not, neither may
    # have a say (math 1.6), and an action in the span of earlier ones is skipped
    follows_residual: bool = False


Policy = Callable[[Residual], Iterator[Block]]  # Yields blocks of actions


def residuals(residual: Residual) -> Iterator[Block]:
    """Conjugate gradients: the residual is the next action. Depends on the data."""
    while True:
        yield Block(residual()[:, None], follows_residual=True)


def preconditioned_residuals(solve: Callable[[Array], Array]) -> Policy:
    """Preconditioned conjugate gradients: ``P^-1 r``, by a function of columns. Depends on the data."""

    def follow(residual: Residual) -> Iterator[Block]:
        while True:
            yield Block(solve(residual()[:, None]), follows_residual=True)

    return follow


def gaussian(n: int, *, actions: int, seed: int) -> Policy:
    """Independent Gaussian actions, all in one block: one product with G for all of them."""

    def draw(residual: Residual) -> Iterator[Block]:
        yield Block(np.random.default_rng(seed).standard_normal((n, actions)))

    return draw


def given(make: Callable[[], Array]) -> Policy:
    """Actions (n, k) that are known in advance, all in one block, made when their turn comes."""

    def take(residual: Residual) -> Iterator[Block]:
        yield Block(make())

    return take


def first_blocks(policy: Policy, count: int) -> Policy:
    """Take the first blocks of a policy alone."""
    return lambda residual: islice(policy(residual), count)


def in_turn(policies: Sequence[Policy]) -> Policy:
    """One policy after the other, each for as long as it has actions; what was learned before stays."""

    def chain(residual: Residual) -> Iterator[Block]:
        for policy in policies:
            yield from policy(residual)

    return chain
