"""Policies: which actions a projection takes (math 4).

A policy yields columns of actions (n, k). It can ask for the current residual by calling a function; only
policies that depend on the data do so.
"""

from collections.abc import Callable, Iterator

import numpy as np

from cagp_dist.arrays import Array

Residual = Callable[[], Array]
"""Returns ``b - G v`` (n,), with v the solution so far."""

Policy = Callable[[Residual], Iterator[Array]]
"""Yields actions, shape (n, k); actions in the span of earlier ones end the solve."""


def residuals(residual: Residual) -> Iterator[Array]:
    """Conjugate gradients: the residual is the next action. Depends on the data."""
    while True:
        yield residual()[:, None]


def gaussian(n: int, *, actions: int, seed: int) -> Policy:
    """Independent Gaussian actions, all in one block: one product with G for all of them."""

    def draw(residual: Residual) -> Iterator[Array]:
        yield np.random.default_rng(seed).standard_normal((n, actions))

    return draw
