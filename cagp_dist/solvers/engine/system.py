"""A Gram matrix as the engine's loop sees it, and how far a solve has come with a batch of targets."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from cagp_dist.arrays import Array
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.targets import Targets
from cagp_dist.runtime.memo import MemoReader, MemoWriter
from cagp_dist.solvers.engine.stages import CoarseSpace, Simultaneous, Stage
from cagp_dist.solvers.interface import State
from cagp_dist.tiling import Range

Work = TypeVar("Work")


class System(Protocol[Work]):
    """A Gram matrix on an executor; ``Work`` is a tall matrix Y in pieces, with the sums over it."""

    @property
    def blocks(self) -> int: ...  # number of diagonal blocks

    # whether what workers hold can be lost, so that it is taken from a checkpoint as soon as there is one
    @property
    def is_volatile(self) -> bool: ...

    @property
    def batches(self) -> Sequence[Sequence[Range]]: ...  # groups of targets; batches run one after the other

    def coupling(self, stage: Simultaneous) -> float:
        """Upper bound of ``lambda_max(P^-1 G)`` on the blocks that a stage solves at once, as a whole."""

    def coarse(self, stage: CoarseSpace) -> Stage:
        """Make the projection of a coarse space; the same one when asked again."""

    def largest_left(self, stage: Simultaneous, projection: Stage, *, steps: int) -> float:
        """Largest eigenvalue of ``P^-1 G``, P the diagonal blocks, that a projection leaves."""

    def open(self, columns: Range, place: int, start: State | None) -> Work:
        """``Y = V'`` for a group of targets with sums of zero, or what a state has left over and found."""

    def forward(self, columns: Array) -> Work:
        """Columns (n, r) of a pass of their own, forward or adjoint, and weights of zero."""

    def apply(self, stage: Stage, work: Work, *, adjoint: bool, final: bool = False) -> None:
        """One stage, in place; after a ``final`` one only the sums are read."""

    def read(self, works: Sequence[Work]) -> tuple[Array, Array]:
        """Mean and downdate of a batch."""

    def leftover(self, works: Sequence[Work]) -> list[Array]:
        """``Y`` of a batch, in a form that `open` continues from."""

    def save(self, works: Sequence[Work], writer: MemoWriter) -> bool:
        """Write all that `restore` needs of adjoint passes; whether workers see the place."""

    def restore(self, columns: Range, place: int, kept: MemoReader) -> Work:
        """Go on with a group of targets as it was saved."""

    def mean(self, work: Work, targets: Targets) -> Array:
        """``V A b`` (q, T) after forward stages."""

    def weights(self, work: Work) -> Array:
        """Return what stages have added up to, ``v = A b``, or ``A' b`` in an adjoint pass (n, r)."""

    def residual(self, work: Work) -> Array:
        """``b - G v`` (n, r) after forward stages."""


@dataclass(eq=False)
class OpenBatch(Generic[Work]):
    """A batch of targets in the course of a solve: the work of each group, and the groups that go on."""

    system: System[Work]
    number: int  # of the batch
    works: dict[Range, Work]
    active_groups: list[Range]
    step: int = 0  # steps that were done
    closed: bool = False  # whether the solve has gone on to the next batch

    @property
    def columns(self) -> slice:
        """Targets of the batch."""
        batch = self.system.batches[self.number]
        return slice(batch[0][0], batch[-1][1])

    def apply(self, stages: Sequence[Stage], *, final: bool) -> None:
        """Apply the stages of a step to the active groups; after a final one only the sums are read."""
        for position, stage in enumerate(stages, 1):
            for group in self.active_groups:
                self.system.apply(
                    stage, self.works[group], adjoint=True, final=final and position == len(stages)
                )

    def read(self) -> tuple[Array, Array]:
        """Mean and downdate of all targets of the batch."""
        return self.system.read(list(self.works.values()))

    def part(self, downdate: Array, group: Range) -> Array:
        """Diagonal of the downdate of a group within that of the batch."""
        diagonal = downdate.diagonal() if downdate.ndim == 2 else downdate
        return diagonal[group[0] - self.columns.start : group[1] - self.columns.start]

    def leftover(self, step: int) -> list[Array]:
        """``Y`` of the batch as it was after a step, if it still is that."""
        if self.closed or self.step != step:
            raise ArgumentError(
                "the leftover of this state is gone: the solve went on. Ask for it before the next state.",
                key="no-leftover",
            )
        return self.system.leftover(list(self.works.values()))
