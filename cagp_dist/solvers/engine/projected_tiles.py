"""A projection on tiles: ``c = P' Y``, then ``Y - (G P) c``, panel by panel (math 5, 6).

``c`` is the sum of ``P[a]' Y[a]`` over all row tiles a, in their order, whatever panels they are gathered in.
Then ``Y[a] -= (G P)[a] c``, forward also ``v[b] += P[b] c``; ``downdate += c' c``, ``mean += c' P'b``. A
conditioning is the same with its own numbers instead of ``P'b``, and leaves Y as it is.
"""

from collections.abc import Sequence

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.gram.tiled import put_value
from cagp_dist.runtime import Executor, Handle
from cagp_dist.solvers.engine.kept_panels import Panels
from cagp_dist.solvers.engine.panel_layout import PanelLayout
from cagp_dist.solvers.engine.stages import ConditioningStage, ProjectionStage
from cagp_dist.solvers.engine.tile_tasks import SolvedBlock
from cagp_dist.tiling import Range


class PanelColumns:
    """Columns S (n, k) by panels, on an executor, and their products with others."""

    def __init__(self, columns: Array, *, layout: PanelLayout, executor: Executor) -> None:
        self._executor = executor
        self.tiles = [layout.tiles_within(index) for index in range(layout.panels)]
        self._order = layout.place_of_tile
        self.panels = by_panels(columns, layout, executor=executor)

    def products(self, rows: Sequence[Handle[Array]], *, home: int) -> Handle[Array]:
        """``S' Y`` for the panels of Y, shape (k, r); tiles are added up in their order."""
        parts = [
            self._executor.submit(products_by_tile, own, panel, tiles, home=home + index)
            for index, (own, panel, tiles) in enumerate(zip(self.panels, rows, self.tiles, strict=True))
        ]
        return self._executor.submit(summed, parts, self._order, home=home)


def by_panels(
    columns: Array, layout: PanelLayout, *, executor: Executor, home: int = 0
) -> list[Handle[Array]]:
    """Rows of columns (n, r) by panels, panel i on worker ``home + i``."""
    return [
        executor.submit(put_value, layout.of_panel(index, columns), home=home + index)
        for index in range(layout.panels)
    ]


class PanelProjection:
    """Basis and image of a projection by panels, on an executor; of a conditioning the basis."""

    def __init__(
        self,
        stage: ProjectionStage | ConditioningStage,
        residuals: Array,
        *,
        layout: PanelLayout,
        executor: Executor,
    ) -> None:
        self._executor, self._layout = executor, layout
        self._basis = PanelColumns(stage.basis, layout=layout, executor=executor)
        if isinstance(stage, ConditioningStage):
            self._image, right = [], stage.coefficients
        else:
            self._image = by_panels(stage.image, layout, executor=executor)
            right = stage.basis.T @ residuals
        self._right = executor.submit(put_value, right)

    def apply(self, work: Panels, *, adjoint: bool, final: bool) -> None:
        """Solve in the span of the columns, or condition on them, all panels at once."""
        submit, home = self._executor.submit, work.home
        coefficients = self._basis.products(work.rows, home=home)
        if adjoint:
            work.sums = submit(add_projected, work.sums, coefficients, self._right, home=home)
        if work.keeps_weights:
            for b, own in enumerate(self._layout.panel_of_block):
                block, panel = self._layout.within_panel(b), self._basis.panels[own]
                work.weights[b] = submit(
                    add_block_product, work.weights.get(b), panel, block, coefficients, home=own
                )
        if self._image and not final:
            pieces = zip(work.rows, self._image, self._basis.tiles, strict=True)
            work.rows = [
                submit(less_product, panel, image, coefficients, tiles, home=home + index)
                for index, (panel, image, tiles) in enumerate(pieces)
            ]


def products_by_tile(basis: Array, panel: Array, tiles: Sequence[Range]) -> Array:
    """``P[a]' Y[a]`` for each tile of a panel, shape (tiles, k, r)."""
    P, Y = _aligned(basis), _aligned(panel)
    return np.stack([P[start:stop].T @ Y[start:stop] for start, stop in tiles])


def summed(parts: Sequence[Array], order: Sequence[tuple[int, int]]) -> Array:
    """Sum over all tiles, shape (k, r), in their order: panel of each, and its place there."""
    total = np.zeros(parts[0].shape[1:])
    for panel, place in order:
        total += parts[panel][place]
    return total


def add_projected(sums: SolvedBlock, coefficients: Array, right: Array) -> SolvedBlock:
    """Add ``c' c`` to the downdate and ``c' P'b`` to the mean."""
    c = _aligned(coefficients)
    part = c.T @ c if sums.downdate.ndim == 2 else np.einsum("ij,ij->j", c, c)
    return SolvedBlock(c[:0], sums.downdate + part, sums.mean + c.T @ _aligned(right))


def less_product(panel: Array, image: Array, coefficients: Array, tiles: Sequence[Range]) -> Array:
    """``Y[a] - (G P)[a] c`` for each tile of a panel."""
    GP, c = _aligned(image), _aligned(coefficients)
    return np.concatenate([panel[start:stop] - GP[start:stop] @ c for start, stop in tiles])


def add_block_product(before: Array | None, basis: Array, block: Range, coefficients: Array) -> Array:
    """``v[b] + P[b] c``."""
    product = np.asarray(_aligned(basis)[slice(*block)] @ _aligned(coefficients))
    return product if before is None else before + product


def _aligned(columns: Array) -> Array:
    # what came over a network may lie at any byte, and products with it then round otherwise
    return np.require(columns, requirements="A")
