"""A tall matrix in panels, and how it is kept in a checkpoint and taken from it again.

Rows are read by their numbers, so that a solve can go on with other panels, on another number of workers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.runtime import Executor, Handle
from cagp_dist.solvers.checkpoints import Draft, Kept
from cagp_dist.solvers.tile_tasks import Solved, only_sums
from cagp_dist.tiling import Range


@dataclass(eq=False)
class Panels:
    """A tall matrix in panels, and what stages have summed up over it.

    Attributes
    ----------
    rows : list of handles
        Panel by panel.
    sums : handle
        Downdate and mean so far.
    columns : (int, int)
        Targets it belongs to.
    home : int
        Panel i lives on worker ``home + i`` where there is a choice.
    weights : dict
        What was added to each block, where that is kept.
    keeps_weights : bool
        Whether it is: in passes with columns of their own, which `TileSystem.forward` begins.
    before : dict
        Of a recurrence: Z of each block in the step before.
    """

    rows: list[Handle[Array]]
    sums: Handle[Solved]
    columns: Range
    home: int = 0
    weights: dict[int, Handle[Array]] = field(default_factory=dict)
    keeps_weights: bool = False
    before: dict[int, Handle[Solved]] = field(default_factory=dict)

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.columns[1] - self.columns[0]


def save_panels(work: Panels, panels: Sequence[Range], draft: Draft, *, executor: Executor) -> bool:
    """Write the panels of a group, each by the worker that has it, its sums, and Z of a recurrence."""
    home = work.home
    written = [
        executor.submit(write_rows, draft, _rows(work.columns, panel), handle, home=home + index)
        for index, (panel, handle) in enumerate(zip(panels, work.rows, strict=True))
    ]
    written += [
        executor.submit(write_solved, draft, _before(work.columns, block), handle, home=home)
        for block, handle in work.before.items()
    ]
    sums = executor.submit(only_sums, work.sums)
    written.append(executor.submit(write_solved, draft, _sums(work.columns), sums, home=home))
    layout = [list(panels), sorted(work.before)]
    seen = draft.write(f"{_of(work.columns)}/panels", np.array(layout[0]))
    seen &= draft.write(f"{_of(work.columns)}/blocks-before", np.array(layout[1], dtype=np.int64))
    return seen and all(executor.gather(written))


def restored_panels(
    columns: Range, panels: Sequence[Range], kept: Kept, *, home: int, executor: Executor
) -> Panels:
    """Read a group again, panel by panel by the worker that goes on with it."""
    saved = [(int(start), int(stop)) for start, stop in kept.read(f"{_of(columns)}/panels")]
    blocks = [int(block) for block in kept.read(f"{_of(columns)}/blocks-before")]
    return Panels(
        [
            executor.submit(read_rows, kept, columns, saved, panel, home=home + index)
            for index, panel in enumerate(panels)
        ],
        executor.submit(read_solved, kept, _sums(columns), home=home),
        columns,
        home,
        before={
            block: executor.submit(read_solved, kept, _before(columns, block), home=home) for block in blocks
        },
    )


def write_rows(draft: Draft, name: str, rows: Array) -> bool:
    """Write a panel."""
    return draft.write(name, rows)


def read_rows(kept: Kept, columns: Range, saved: Sequence[Range], panel: Range) -> Array:
    """Read the rows of a panel from those that were saved."""
    return np.concatenate(
        [
            kept.read(_rows(columns, (start, stop)), max(panel[0] - start, 0), min(panel[1], stop) - start)
            for start, stop in saved
            if start < panel[1] and panel[0] < stop
        ]
    )


def write_solved(draft: Draft, name: str, solved: Solved) -> bool:
    """Write the solution of a block and the sums."""
    parts = {"columns": solved.columns, "downdate": solved.downdate, "mean": solved.mean}
    return all(draft.write(f"{name}/{part}", array) for part, array in parts.items())


def read_solved(kept: Kept, name: str) -> Solved:
    """Read what `write_solved` wrote."""
    return Solved(*(kept.read(f"{name}/{part}") for part in ("columns", "downdate", "mean")))


def _of(columns: Range) -> str:
    return f"targets-{columns[0]}-{columns[1]}"


def _rows(columns: Range, panel: Range) -> str:
    return f"{_of(columns)}/rows-{panel[0]}-{panel[1]}"


def _before(columns: Range, block: int) -> str:
    return f"{_of(columns)}/before-{block}"


def _sums(columns: Range) -> str:
    return f"{_of(columns)}/sums"
