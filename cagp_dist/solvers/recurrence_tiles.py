"""A recurrence on tiles: ``Z = momentum Z_before + step P^-1 Y``, ``P^-1 = diag(1 / d) - S S'`` (math 2).

::

    c    = sum of S[a]' Y[a]                                     over all row tiles a, in their order
    Z[b] = momentum Z_before[b] + step (Y[b] / d[b] - S[b] c)    for all blocks b

What is added up does not depend on how tiles are gathered into panels.
"""

from collections.abc import Sequence

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.runtime import Executor, Handle
from cagp_dist.solvers.panel_layout import PanelLayout
from cagp_dist.solvers.projected_tiles import PanelColumns
from cagp_dist.solvers.stages import LowRankInverse
from cagp_dist.solvers.tile_tasks import Solved
from cagp_dist.tiling import Range


class PanelInverse:
    """``P^-1`` by panels, on an executor.

    Parameters
    ----------
    inverse : LowRankInverse
        Of n points.
    layout : PanelLayout
        Panels of the n rows, and their tiles.
    executor : Executor
        Where the tasks run.
    """

    def __init__(self, inverse: LowRankInverse, *, layout: PanelLayout, executor: Executor) -> None:
        self._factor = PanelColumns(inverse.factor, layout=layout, executor=executor)
        self.factor = self._factor.panels
        self.inverse_diagonal = [
            layout.of_panel(index, inverse.inverse_diagonal) for index in range(layout.panels)
        ]

    def coefficients(self, rows: Sequence[Handle[Array]], *, home: int) -> Handle[Array]:
        """``c = S' Y`` for the panels of Y, shape (r, columns)."""
        return self._factor.products(rows, home=home)


def recur(
    step: float,
    momentum: float,
    before: Solved | None,
    panel: Array,
    rows: Range,
    inverse_diagonal: Array | None,
    factor: Array | None,
    coefficients: Array | None,
) -> Solved:
    """``Z`` of the rows of a block within their panel; without an inverse that of the identity."""
    Z = step * panel[slice(*rows)]
    if inverse_diagonal is not None and factor is not None and coefficients is not None:
        # what came over a network may lie at any byte, and products with it then round otherwise
        S, c = (np.require(array, requirements="A") for array in (factor, coefficients))
        Z = inverse_diagonal[slice(*rows), None] * Z - step * (S[slice(*rows)] @ c)
    if before is not None:
        Z += momentum * before.columns
    return Solved(Z, np.zeros(0), np.zeros(0))
