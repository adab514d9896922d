"""Block-sparse actions: each weighs the observations of one block of points, and no two share one (math 11).

n numbers in all, whatever the number of actions; ``S'S`` is diagonal.
"""

from dataclasses import dataclass
from math import isqrt
from typing import Literal, get_args

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.checks import check_count, check_word
from cagp_dist.geometry import space_filling_order
from cagp_dist.tiling import Range, split

Order = Literal["space-filling", "given"]

TILE = 2048  # Points of a tile, about: whole blocks, and at least one

# Sums over blocks that a tile gives on one side, at most, about: what tasks take and return stays small
TILE_SUMS = 2**19


@dataclass(frozen=True, eq=False)
class BlockLayout:
    """Which points each block has."""

    order: Indices  # (n,): points block after block
    edges: Indices  # (i + 1,): where blocks begin and end in that order; sizes differ by at most one

    @classmethod
    def of(cls, X: Array, actions: int, *, order: Order = "space-filling") -> "BlockLayout":
        """Cut points X (n, p) into as many blocks as there are actions, at most n."""
        check_count("actions", actions, least=1)
        check_word("order", order, get_args(Order))
        n = len(X)
        parts = split(n, actions)
        edges = np.array([0, *(stop for _, stop in parts)], dtype=np.intp)
        size = max(1, n // max(len(parts), 1))
        found = space_filling_order(X, block_size=size) if order == "space-filling" else np.arange(n)
        return cls(np.asarray(found, dtype=np.intp), edges)

    @property
    def blocks(self) -> int:
        """How many blocks there are, i."""
        return len(self.edges) - 1

    @property
    def block_of(self) -> Indices:
        """The block of each place in the order, shape (n,)."""
        return np.asarray(np.repeat(np.arange(self.blocks), np.diff(self.edges)))

    @property
    def tiles(self) -> list[Range]:
        """Blocks of each tile: a function of n and i alone."""
        if not len(self.order):
            return []
        return split(self.blocks, tile_count(len(self.order), self.blocks))

    def rows(self, tile: Range) -> slice:
        """Places in the order that a tile has."""
        return slice(int(self.edges[tile[0]]), int(self.edges[tile[1]]))

    def edges_within(self, tile: Range) -> Indices:
        """Where the blocks of a tile begin and end, counted from its first place."""
        return np.asarray(self.edges[tile[0] : tile[1] + 1] - self.edges[tile[0]])

    def columns(self, values: Array) -> Array:
        """S itself, dense, shape (n, i), for entries in the order of the points."""
        dense = np.zeros((len(self.order), self.blocks))
        dense[self.order, self.block_of] = values[self.order]
        return dense

    def draw(self, seed: int) -> Array:
        """Independent normal entries of variance one over the size of the block, shape (n,)."""
        sizes = np.diff(self.edges)[self.block_of]
        drawn = np.random.default_rng(seed).standard_normal(len(self.order)) / np.sqrt(sizes)
        values = np.empty_like(drawn)
        values[self.order] = drawn
        return values


def tile_count(n: int, blocks: int) -> int:
    """How many tiles n points in so many blocks are cut into: smaller ones where blocks are very small."""
    side = max(1, min(TILE, isqrt(TILE_SUMS * n // max(blocks, 1))))
    return -(-n // side)


def block_sums(rows: Array, edges: Indices) -> Array:
    """Add up the rows (n, r) of each block, shape (i, r)."""
    return np.add.reduceat(rows, edges[:-1], axis=0) if len(edges) > 1 else np.zeros((0, *rows.shape[1:]))
