"""A recurrence on tiles: ``Z = momentum Z_before + step P^-1 Y`` (math 2).

::

    P^-1 = diag(1 / d) - S S'    c = sum of S[a]' Y[a] over all row tiles a, in their order,
                                 then Y[a] / d[a] - S[a] c for all a
    P^-1 = U U'                  panels are gathered, and dealt out again

What is added up does not depend on how tiles are gathered into panels.
"""

from collections.abc import Sequence
from operator import getitem

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.gram.tiled import put_value
from cagp_dist.gram.vecchia_factor import VecchiaFactor
from cagp_dist.runtime import Executor, Handle
from cagp_dist.solvers.engine.panel_layout import PanelLayout
from cagp_dist.solvers.engine.projected_tiles import PanelColumns
from cagp_dist.solvers.engine.stages import LowRankInverse
from cagp_dist.solvers.engine.tile_tasks import SolvedBlock
from cagp_dist.tiling import Range, block_ranges

# Columns that sparse factors are applied to at a time: rows of neighbours stay in the caches
COLUMNS_AT_ONCE = 32


class LowRankPanels:
    """``diag(1 / d) - S S'`` by panels: one sum over all panels, then all of them at once."""

    def __init__(self, inverse: LowRankInverse, *, layout: PanelLayout, executor: Executor) -> None:
        self._executor = executor
        self._factor = PanelColumns(inverse.factor, layout=layout, executor=executor)
        self._inverse_diagonal = [
            layout.of_panel(index, inverse.inverse_diagonal) for index in range(layout.panels)
        ]

    def applied(self, rows: Sequence[Handle[Array]], *, home: int) -> list[Handle[Array]]:
        """``P^-1 Y`` for the panels of Y, by panels; 4 n r flops for each column."""
        c = self._factor.products(rows, home=home)
        parts = zip(rows, self._inverse_diagonal, self._factor.panels, self._factor.tiles, strict=True)
        return [
            self._executor.submit(scaled_less_product, *part, c, home=home + index)
            for index, part in enumerate(parts)
        ]


class GatheredPanels:
    """Vecchia's ``U U'``, whose rows meet neighbours in all panels: one task has all of them."""

    def __init__(self, inverse: VecchiaFactor, *, layout: PanelLayout, executor: Executor) -> None:
        self._executor, self._layout = executor, layout
        self._factor = executor.submit(put_value, inverse)

    def applied(self, rows: Sequence[Handle[Array]], *, home: int) -> list[Handle[Array]]:
        """``P^-1 Y`` for the panels of Y, by panels; 4 n k flops for each column."""
        now = list(rows)  # whose handles are replaced by those of the next step
        solved = self._executor.submit(solved_panels, self._factor, self._layout, now, home=home)
        return [self._executor.submit(getitem, solved, index, home=home) for index in range(len(rows))]


PanelInverse = LowRankPanels | GatheredPanels


def panel_inverse(
    inverse: LowRankInverse | VecchiaFactor, *, layout: PanelLayout, executor: Executor
) -> PanelInverse:
    """Put ``P^-1`` of n points on an executor, for panels of the n rows."""
    if isinstance(inverse, LowRankInverse):
        return LowRankPanels(inverse, layout=layout, executor=executor)
    return GatheredPanels(inverse, layout=layout, executor=executor)


def scaled_less_product(
    panel: Array, inverse_diagonal: Array, factor: Array, tiles: Sequence[Range], coefficients: Array
) -> Array:
    """``Y[a] / d[a] - S[a] c`` for each tile of a panel."""
    # what came over a network may lie at any byte, and products with it then round otherwise
    S, c = (np.require(array, requirements="A") for array in (factor, coefficients))
    rows = [slice(*tile) for tile in tiles]
    return np.concatenate([inverse_diagonal[a, None] * panel[a] - S[a] @ c for a in rows])


def solved_panels(factor: VecchiaFactor, layout: PanelLayout, panels: Sequence[Array]) -> list[Array]:
    """``U U' Y`` for the panels of Y, by panels."""
    out = [np.empty_like(panel) for panel in panels]
    for columns in block_ranges(panels[0].shape[1], COLUMNS_AT_ONCE):
        here = slice(*columns)
        solved = factor.solve(layout.joined([panel[:, here] for panel in panels]))
        for index, panel in enumerate(out):
            panel[:, here] = layout.of_panel(index, solved)
    return out


def recur(step: float, momentum: float, before: SolvedBlock | None, panel: Array, rows: Range) -> SolvedBlock:
    """``Z`` of the rows of a block within a panel of ``P^-1 Y``."""
    Z = step * panel[slice(*rows)]
    if before is not None:
        Z += momentum * before.columns
    return SolvedBlock(Z, np.zeros(0), np.zeros(0))
