"""Condition the belief of some stages on what actions S say of the data that they left (math 6 c).

Stages E leave ``v* ~ N(v_E, C)``, ``C = G^-1 - D_E``, and ``r = b - G v_E``. With ``S' r = S' G (v* - v_E)``
given as well, and ``H = C G S = S - D_E G S``::

    v = v_E + H (S' G H)^-1 S' r,     D = D_E + H (S' G H)^-1 H'

No other matrix times ``S' r`` leaves less variance; that of a projection on S is ``S (S' G S)^-1``. What is
needed comes from a pass through the stages transposed and one through the stages, with k columns::

    U = S - A_E' G S       and  G U,  what the first pass leaves of  G S
    H = U - A_E G U        and  G H,  what the second leaves of  G U
    S' G H = U' G U,       S' r = U' b
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.solvers.engine.stages import ConditioningStage, ProjectionStage, Stage
from cagp_dist.solvers.engine.system import System

# Directions of S of whose square, in the norm of G, the stages left less than this part are rounding
LEFT = 1e-10


class Conditioned(NamedTuple):
    """The stage, None where the stages before had solved all of S, and what it leaves of ``r``, (n, T)."""

    stage: ConditioningStage | None
    residual: Array


def condition_on(
    system: System[Any],
    actions: ProjectionStage,
    *,
    forward: Sequence[Stage],
    transposed: Sequence[Stage],
    right: Array,
    residual: Array,
) -> Conditioned:
    """Make the stage that conditions the belief of others on actions: two passes with k columns."""
    work = system.forward(actions.image)
    for stage in reversed(transposed):
        system.apply(stage, work, adjoint=True)
    U, image = actions.basis - system.weights(work), system.residual(work)
    work = system.forward(image)
    for stage in forward:
        system.apply(stage, work, adjoint=False)
    H, image_of_H = U - system.weights(work), system.residual(work)
    curvature = U.T @ image
    values, vectors = np.linalg.eigh(0.5 * (curvature + curvature.T))
    turn = vectors[:, values > LEFT] / np.sqrt(values[values > LEFT])
    if not turn.size:
        return Conditioned(None, residual)
    coefficients = turn.T @ (U.T @ right)
    stage = ConditioningStage(np.ascontiguousarray(H @ turn), coefficients)
    return Conditioned(stage, residual - image_of_H @ (turn @ coefficients))
