"""Cholesky factor and inverse of a sparse symmetric matrix, by dense blocks; what is zero takes no room.

Rows are cut into blocks of some that follow each other. Blocks are eliminated in an order of least fill (at
each step the one that is linked to the fewest others), which depends on the pattern alone. Of the inverse the
blocks of the factor are worked out [Takahashi, Fagan & Chen 1973], which hold all entries where the matrix
has any. Blocks of one thread, one after the other: the bits do not depend on who works.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.lapack import cholesky_in_place, invert_in_place, mirror_lower, solve_lower

BLOCK = 128  # Rows of a block: a product of two takes so long that what is around it does not count


def block_count(rows: int) -> int:
    """Count the blocks of so many rows."""
    return -(-rows // BLOCK)


@dataclass(frozen=True, eq=False)
class BlockPattern:
    """Which blocks a factor has: those of the matrix, and what elimination fills in."""

    order: Indices  # (B,): blocks of rows in the order in which they are eliminated
    right: tuple[Indices, ...]  # of each place in the order, the later places that it is linked to, ascending

    @classmethod
    def of(cls, linked: Mask) -> "BlockPattern":
        """Choose the order from which blocks (B, B) are not zero, symmetric."""
        count = len(linked)
        linked = linked.copy()
        linked[np.diag_indices(count)] = False
        left, order, right = np.ones(count, dtype=bool), np.empty(count, dtype=np.intp), []
        for place in range(count):
            degrees = np.where(left, np.count_nonzero(linked & left, axis=1), count + 1)
            block = int(degrees.argmin())
            order[place], left[block] = block, False
            near = np.flatnonzero(linked[block] & left)
            linked[np.ix_(near, near)] = True
            right.append(near)
        places = np.empty(count, dtype=np.intp)
        places[order] = np.arange(count)
        return cls(order, tuple(np.sort(places[near]) for near in right))

    @cached_property
    def widths(self) -> Indices:
        """Columns (B,) of each row of blocks right of the diagonal."""
        return np.array([BLOCK * len(near) for near in self.right], dtype=np.intp)

    @cached_property
    def starts(self) -> Indices:
        """Where each row of blocks begins among all entries, (B + 1,)."""
        return np.append(0, np.cumsum(BLOCK * self.widths))

    @cached_property
    def table(self) -> Indices:
        """Where each block (B, B) begins among them, -1 where it is zero."""
        table = np.full((len(self.order),) * 2, -1, dtype=np.intp)
        for row, near in enumerate(self.right):
            table[row, near] = self.starts[row] + BLOCK * np.arange(len(near))
        return table

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks and of the table."""
        return DOUBLE * int(self.starts[-1] + len(self.order) * (BLOCK**2 + len(self.order)))


class BlockFactor:
    """``A = U'U`` in the order of a pattern; rows and columns of A are cut into blocks by `places`."""

    def __init__(self, pattern: BlockPattern, rows: int) -> None:
        self._pattern, self._rows = pattern, rows
        count = len(pattern.order)
        self.diagonals = np.zeros((count, BLOCK, BLOCK))
        self.panels = np.zeros(int(pattern.starts[-1]))
        self.table, self.widths = pattern.table, pattern.widths
        place = np.empty(count, dtype=np.intp)
        place[pattern.order] = np.arange(count)
        every = np.arange(rows)
        self.places: Indices = place[every // BLOCK] * BLOCK + every % BLOCK  # (rows,) of each row of A
        filled = np.zeros(count * BLOCK, dtype=bool)
        filled[self.places] = True
        free = np.flatnonzero(~filled)  # of the block that is not full
        self.diagonals[free // BLOCK, free % BLOCK, free % BLOCK] = 1.0

    def add_to_diagonal(self, values: Array) -> None:
        """Add values (rows,)."""
        at = self.places % BLOCK
        self.diagonals[self.places // BLOCK, at, at] += values

    def factor(self) -> float:
        """Replace A by U, and give ``log|A|``."""
        pattern, before = self._pattern, [list[int]() for _ in self._pattern.order]
        for row, near in enumerate(pattern.right):
            for k in before[row]:
                others = pattern.right[k]
                at = int(np.searchsorted(others, row))
                panel = self._panel(k)
                own = np.ascontiguousarray(panel[:, at * BLOCK : (at + 1) * BLOCK].T)
                taken = own @ panel[:, at * BLOCK :]
                self.diagonals[row] -= taken[:, :BLOCK]
                here = self._panel(row).reshape(BLOCK, -1, BLOCK)
                here[:, np.searchsorted(near, others[at + 1 :])] -= taken[:, BLOCK:].reshape(BLOCK, -1, BLOCK)
            cholesky_in_place(self.diagonals[row : row + 1])
            if near.size:
                solve_lower(self.diagonals[row : row + 1], self._panel(row)[None])
                for later in near:
                    before[later].append(row)
        diagonal = self.diagonals.diagonal(axis1=1, axis2=2)
        return 2.0 * float(np.log(diagonal).sum())

    def solve(self, columns: Array) -> Array:
        """``A^-1 x`` for columns (rows, r), from the factor."""
        x = self._whitened(columns)
        for row in range(len(x) - 1, -1, -1):
            near = self._pattern.right[row]
            if near.size:
                x[row] -= self._panel(row) @ x[near].reshape(-1, columns.shape[1])
            solve_lower(self.diagonals[row : row + 1], x[row : row + 1], transposed=True)
        return np.asarray(x.reshape(-1, columns.shape[1])[self.places])

    def whiten(self, columns: Array) -> Array:
        """``U^-T x`` for columns (rows, r), whose squares add up to ``x' A^-1 x``; in another order."""
        return self._whitened(columns).reshape(-1, columns.shape[1])

    def invert(self) -> None:
        """Replace the factor by the blocks of ``A^-1`` where it has any."""
        pattern = self._pattern
        for row in range(len(pattern.order) - 1, -1, -1):
            near, own = pattern.right[row], self.diagonals[row : row + 1]
            panel = self._panel(row)
            if near.size:
                solve_lower(own, panel[None], transposed=True)
                known = panel.reshape(BLOCK, -1, BLOCK)
                total = np.zeros_like(known)
                for at, other in enumerate(near):
                    mine = np.ascontiguousarray(known[:, at])
                    total[:, at] += mine @ self.diagonals[other]
                    if at + 1 < near.size:
                        beside = np.searchsorted(pattern.right[other], near[at + 1 :])
                        there = self._panel(int(other)).reshape(BLOCK, -1, BLOCK)[:, beside]
                        flat = there.reshape(BLOCK, -1)
                        total[:, at + 1 :] += (mine @ flat).reshape(BLOCK, -1, BLOCK)
                        total[:, at] += known[:, at + 1 :].reshape(BLOCK, -1) @ flat.T
            invert_in_place(own)
            mirror_lower(own[0])
            if near.size:
                found = total.reshape(BLOCK, -1)
                own[0] += found @ panel.T
                panel[:] = -found

    def inverse_diagonal(self) -> Array:
        """Diagonal (rows,) of the inverse."""
        at = self.places % BLOCK
        return np.asarray(self.diagonals[self.places // BLOCK, at, at])

    def _panel(self, row: int) -> Array:
        start, stop = self._pattern.starts[row : row + 2]
        return self.panels[start:stop].reshape(BLOCK, -1)

    def _whitened(self, columns: Array) -> Array:
        x = np.zeros((len(self.diagonals), BLOCK, columns.shape[1]))
        x.reshape(-1, columns.shape[1])[self.places] = columns
        for row, near in enumerate(self._pattern.right):
            solve_lower(self.diagonals[row : row + 1], x[row : row + 1])
            if near.size:
                x[near] -= (self._panel(row).T @ x[row]).reshape(-1, BLOCK, columns.shape[1])
        return x
