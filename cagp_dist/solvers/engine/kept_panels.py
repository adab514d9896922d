"""A tall matrix in panels, and how it is kept in a checkpoint and taken from it again.

Rows are read by their numbers, so that a solve can go on with other panels, on another number of workers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.runtime import Executor, Handle
from cagp_dist.runtime.memo import MemoReader, MemoWriter
from cagp_dist.solvers.engine.panel_layout import PanelLayout
from cagp_dist.solvers.engine.tile_tasks import SolvedBlock, only_sums
from cagp_dist.tiling import Range


@dataclass(eq=False)
class Panels:
    """A tall matrix in panels, and what stages have summed up over it."""

    rows: list[Handle[Array]]  # panel by panel
    sums: Handle[SolvedBlock]  # downdate and mean so far
    columns: Range  # targets it belongs to
    home: int = 0  # panel i lives on worker ``home + i`` where there is a choice
    # what was added to each block, where that is kept
    weights: dict[int, Handle[Array]] = field(default_factory=dict)
    # whether it is: in passes with columns of their own, which `TileSystem.forward` begins
    keeps_weights: bool = False
    # of a recurrence: Z of each block in the step before
    before: dict[int, Handle[SolvedBlock]] = field(default_factory=dict)

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.columns[1] - self.columns[0]


def save_panels(work: Panels, layout: PanelLayout, writer: MemoWriter, *, executor: Executor) -> bool:
    """Write the panels of a group, each by the worker that has it, its sums, and Z of a recurrence."""
    home = work.home
    written = [
        executor.submit(write_rows, writer, _rows(work.columns, index), handle, home=home + index)
        for index, handle in enumerate(work.rows)
    ]
    written += [
        executor.submit(write_solved, writer, _before(work.columns, block), handle, home=home)
        for block, handle in work.before.items()
    ]
    sums = executor.submit(only_sums, work.sums)
    written.append(executor.submit(write_solved, writer, _sums(work.columns), sums, home=home))
    seen = writer.write(f"{_of(work.columns)}/places", layout.places())
    seen &= writer.write(f"{_of(work.columns)}/blocks-before", np.array(sorted(work.before), dtype=np.int64))
    return seen and all(executor.gather(written))


def restored_panels(
    columns: Range, layout: PanelLayout, kept: MemoReader, *, home: int, executor: Executor
) -> Panels:
    """Read a group again, panel by panel by the worker that goes on with it."""
    places = kept.read(f"{_of(columns)}/places")
    blocks = [int(block) for block in kept.read(f"{_of(columns)}/blocks-before")]
    return Panels(
        [
            executor.submit(read_rows, kept, columns, places, layout.rows_of_panel(index), home=home + index)
            for index in range(layout.panels)
        ],
        executor.submit(read_solved, kept, _sums(columns), home=home),
        columns,
        home,
        before={
            block: executor.submit(read_solved, kept, _before(columns, block), home=home) for block in blocks
        },
    )


def write_rows(writer: MemoWriter, name: str, rows: Array) -> bool:
    """Write a panel."""
    return writer.write(name, rows)


def read_rows(kept: MemoReader, columns: Range, places: Indices, panel: Sequence[Range]) -> Array:
    """Read the rows of a panel from those that were saved."""
    pieces: list[tuple[int, int, int]] = []  # panel that was saved, and rows of it
    for first, last in panel:
        overlapping = places[(places[:, 0] < last) & (first < places[:, 1])]
        for start, stop, index, offset in overlapping.tolist():
            begin, end = max(first - start, 0) + offset, min(last, stop) - start + offset
            if pieces and pieces[-1][::2] == (index, begin):
                begin = pieces.pop()[1]
            pieces.append((index, begin, end))
    return np.concatenate([kept.read(_rows(columns, index), *rows) for index, *rows in pieces])


def write_solved(writer: MemoWriter, name: str, solved: SolvedBlock) -> bool:
    """Write the solution of a block and the sums."""
    parts = {"columns": solved.columns, "downdate": solved.downdate, "mean": solved.mean}
    return all(writer.write(f"{name}/{part}", array) for part, array in parts.items())


def read_solved(kept: MemoReader, name: str) -> SolvedBlock:
    """Read what `write_solved` wrote."""
    return SolvedBlock(*(kept.read(f"{name}/{part}") for part in ("columns", "downdate", "mean")))


def _of(columns: Range) -> str:
    return f"targets-{columns[0]}-{columns[1]}"


def _rows(columns: Range, panel: int) -> str:
    return f"{_of(columns)}/rows-{panel}"


def _before(columns: Range, block: int) -> str:
    return f"{_of(columns)}/before-{block}"


def _sums(columns: Range) -> str:
    return f"{_of(columns)}/sums"
