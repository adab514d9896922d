"""Policies: which actions a projection takes (math 4.1).

A policy yields columns of actions (n, k). It sees the current residual through a function, which only a
policy that depends on the data calls.
"""

from collections.abc import Callable, Iterator

import numpy as np

from cagp_dist.arrays import Array

Residual = Callable[[], Array]
"""Returns ``b - G v`` (n,), with v the solution so far."""

Policy = Callable[[Residual], Iterator[Array]]
"""Yields actions, shape (n, k); those in the span of earlier ones end the solve."""


def residuals(residual: Residual) -> Iterator[Array]:
    """Conjugate gradients: the residual is the next action. Depends on the data."""
    while True:
        yield residual()[:, None]


def gaussian(n: int, *, actions: int, seed: int) -> Policy:
    """Independent Gaussian actions, in one go: one product with G for all of them."""

    def draw(residual: Residual) -> Iterator[Array]:
        yield np.random.default_rng(seed).standard_normal((n, actions))

    return draw
