"""Affine solvers: Algorithm 2 of [Hegde et al. 2025], for any stages on any Gram matrix (math 1.2).

A solver is a cycle of stages ``v <- v + Mt (b - G v)`` that is gone through m times. What it does to the data
is a matrix A that does not depend on them, so that the error of the mean ``V A b`` at the targets, under the
model, has covariance ``V (G^-1 - D) V'`` beside that of the exact posterior, with ``D = A + A' - A G A'``::

    Y = V'                                 V = k(X', X)
    m times, for each stage of the cycle in reverse order:
        Z = Mt' Y
        downdate += Z' W Z                 W = N + N' - G,  N = Mt^-1
        mean     += Z' b
        Y        -= G Z

Then ``mean = V A b`` and ``downdate = V D V'`` (T2, T3), and the leftover ``Y`` is what a solve goes on from.
A stage says how ``Mt'`` and W act on blocks (`cagp_dist.solvers.engine.stages`), a system which blocks there
are and how G is applied (`cagp_dist.solvers.engine.tiles`, `cagp_dist.solvers.engine.ring_system`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

from cagp_dist.arrays import Array
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.targets import Targets
from cagp_dist.solvers.engine.solve_checkpoints import (
    Checkpoint,
    CheckpointMetadata,
    CheckpointReader,
    CheckpointWriter,
    StateLog,
)
from cagp_dist.solvers.engine.stages import CoarseSpace, Simultaneous, Stage, stages_of_cycle
from cagp_dist.solvers.interface import State
from cagp_dist.solvers.status import Status
from cagp_dist.tiling import Range

Work = TypeVar("Work")
AnyWork = TypeVar("AnyWork", contravariant=True)


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
        ...

    def coarse(self, stage: CoarseSpace) -> Stage:
        """Make the projection of a coarse space; the same one when asked again."""
        ...

    def largest_left(self, stage: Simultaneous, projection: Stage, *, steps: int) -> float:
        """Largest eigenvalue of ``P^-1 G``, P the diagonal blocks, that a projection leaves.

        Exact, or estimated from below by so many steps of Lanczos iteration.
        """
        ...

    def open(self, columns: Range, place: int, start: State | None) -> Work:
        """``Y = V'`` for a group of targets with sums of zero, or what a state has left over and found."""
        ...

    def forward(self, columns: Array) -> Work:
        """Columns (n, r) of a pass of their own, forward or adjoint, and weights of zero."""
        ...

    def apply(self, stage: Stage, work: Work, *, adjoint: bool, final: bool = False) -> None:
        """One stage, in place; after a ``final`` one only the sums are read."""
        ...

    def read(self, works: Sequence[Work]) -> tuple[Array, Array]:
        """Mean and downdate of a batch."""
        ...

    def leftover(self, works: Sequence[Work]) -> list[Array]:
        """``Y`` of a batch, in a form that `open` goes on from."""
        ...

    def save(self, works: Sequence[Work], writer: CheckpointWriter) -> bool:
        """Write all that `restore` needs of adjoint passes; whether workers see the place."""
        ...

    def restore(self, columns: Range, place: int, kept: CheckpointReader) -> Work:
        """Go on with a group of targets as it was saved."""
        ...

    def mean(self, work: Work, targets: Targets) -> Array:
        """``V A b`` (q, T) after forward stages."""
        ...

    def weights(self, work: Work) -> Array:
        """Return what stages have added up to, ``v = A b``, or ``A' b`` in an adjoint pass (n, r)."""
        ...

    def residual(self, work: Work) -> Array:
        """``b - G v`` (n, r) after forward stages."""
        ...


class Rule(Protocol[AnyWork]):
    """Which groups of targets have enough; what it knows is kept with the solve."""

    def begin(self, kept: CheckpointReader | None) -> None:
        """Get ready for a solve, or for one that goes on from a checkpoint."""
        ...

    def __call__(self, group: Range, downdate: Array, work: AnyWork, iteration: int) -> bool:
        """Whether a group with this downdate and work is left as it is after so many iterations."""
        ...

    def metadata(self) -> CheckpointMetadata:
        """Numbers that `begin` goes on from."""
        ...

    def write(self, writer: CheckpointWriter) -> bool:
        """Write the arrays that it goes on from; whether workers see the place."""
        ...


def adjoint_states(
    system: System[Work],
    cycle: Sequence[Stage],
    *,
    iterations: int,
    status: Status = Status.COMPLETED,
    start: State | None = None,
    keep_leftover: bool = False,
    enough: Rule[Work] | None = None,
    checkpoint: Checkpoint | None = None,
) -> Iterator[State]:
    """Yield the belief after every cycle, batch of targets by batch; from ``start`` on where it is given.

    A state can give its leftover until the next one is asked for; the last one only with ``keep_leftover``.
    With ``enough``, which says of a group of targets whether it is left as it is, ``iterations`` is the most
    that are gone through. Groups are the same on every executor, and so is where each one ends. With a
    ``checkpoint`` the states that it has are yielded first, without their leftovers, and then those that
    follow, with the same bits; it takes no ``start``.
    """
    done = 0 if start is None else start.iteration
    moved = [0]  # how often the columns were changed
    psd = all(stage.weight_psd for stage in cycle) and (start is None or start.downdate_psd)
    log = StateLog()
    kept = None if checkpoint is None else checkpoint.latest()
    if enough is not None:
        enough.begin(kept)
    # whether a group went through all iterations and had not enough
    missed = kept is not None and kept.metadata.get("missed", False)
    if kept is not None:
        yield from log.read(kept)
    for number, batch in enumerate(system.batches):  # what a batch held is gone before the next one begins
        begun = 0 if kept is None else kept.metadata["done"][number]
        if begun == iterations:
            continue
        works, active = _opened(system, batch, begun, kept, start)
        for iteration in range(begun + 1, iterations + 1):
            final = iteration == iterations and not keep_leftover
            moved[0] += 1
            stages = stages_of_cycle(cycle, done + iteration, place=iteration, adjoint=True)
            _pass(system, stages, [work for _, work in active], final=final)
            mean, downdate = system.read(works)
            columns = slice(batch[0][0], batch[-1][1])
            leftover = None if final else partial(_leftover, system, works, moved, moved[0])
            swept, ends = tuple(group for group, _ in active), status
            if enough is not None:
                active = [
                    (group, work)
                    for group, work in active
                    if not enough(group, _part(downdate, group, columns), work, iteration)
                ]
                missed |= bool(active) and iteration == iterations
                if status is Status.COMPLETED:
                    ends = Status.SHARE_NOT_REACHED if active or missed else Status.SHARE_REACHED
            state = State(
                done + iteration,
                columns,
                mean,
                downdate,
                ends,
                leftover=leftover,
                active_groups=swept,
                downdate_psd=psd,
            )
            if checkpoint is not None:
                log.add(replace(state, leftover=None))
                if checkpoint.due():
                    ends_here = iteration == iterations or not active
                    ended = [iterations] * number + [iterations if ends_here else iteration]
                    left = [list(group) for group, _ in active]
                    about = {**log.metadata(), "done": ended + [0] * (len(system.batches) - number - 1)}
                    about |= (
                        {}
                        if enough is None
                        else {**enough.metadata(), "active_groups": left, "missed": missed}
                    )
                    written = partial(_save, log, system, [] if ends_here else works, enough)
                    saved = checkpoint.save(about, written)
                    if saved is not None and system.is_volatile and not ends_here:
                        works = _restored(system, batch, saved)
                        active = _of_groups(zip(batch, works, strict=True), left)
            yield state
            if not active:
                break


def _opened(
    system: System[Work],
    batch: Sequence[Range],
    begun: int,
    kept: CheckpointReader | None,
    start: State | None,
) -> tuple[list[Work], list[tuple[Range, Work]]]:
    """Give the groups of a batch, new or as they were saved, and those of them that go on."""
    if kept is None or not begun:
        works = [system.open(columns, place, start) for place, columns in enumerate(batch)]
        return works, list(zip(batch, works, strict=True))
    works = _restored(system, batch, kept)
    return works, _of_groups(zip(batch, works, strict=True), kept.metadata.get("active_groups", batch))


def _restored(system: System[Work], batch: Sequence[Range], kept: CheckpointReader) -> list[Work]:
    return [system.restore(columns, place, kept) for place, columns in enumerate(batch)]


def _pass(system: System[Work], stages: Iterable[Stage], works: Sequence[Work], *, final: bool) -> None:
    """Apply the stages of a cycle to groups, the last of which may be the final one."""
    *before, last = stages
    for stage in before:
        for work in works:
            system.apply(stage, work, adjoint=True)
    for work in works:
        system.apply(last, work, adjoint=True, final=final)


def _save(
    log: StateLog,
    system: System[Work],
    works: Sequence[Work],
    enough: Rule[Work] | None,
    writer: CheckpointWriter,
) -> bool:
    """Write the states so far, what goes on, and what the rule knows; whether workers see the place."""
    seen = log.write(writer) and system.save(works, writer)
    return seen and (enough is None or enough.write(writer))


def _of_groups(
    works: Iterable[tuple[Range, Work]], groups: Sequence[Sequence[int]]
) -> list[tuple[Range, Work]]:
    """Take those of some groups of targets."""
    wanted = {(start, stop) for start, stop in groups}
    return [(group, work) for group, work in works if group in wanted]


def _part(downdate: Array, group: Range, columns: slice) -> Array:
    """Diagonal of the downdate of a group within that of its batch."""
    diagonal = downdate.diagonal() if downdate.ndim == 2 else downdate
    return diagonal[group[0] - columns.start : group[1] - columns.start]


def _leftover(system: System[Work], works: Sequence[Work], moved: list[int], then: int) -> list[Array]:
    """``Y`` of a batch, if it still is what it was when the state was yielded."""
    if moved[0] != then:
        raise ArgumentError(
            "the leftover of this state is gone: the solve went on. Ask for it before the next state."
        )
    return system.leftover(works)


def forward_passes(
    system: System[Work],
    cycle: Sequence[Stage],
    right: Array,
    *,
    iterations: int,
    keep_residual: bool = False,
) -> Iterator[Work]:
    """Go through the stages themselves from ``v = 0`` and ``r = b`` (n, T); yields after every cycle.

    ``v <- v + Mt r,  r <- r - G Mt r``. ``k(x, X) v`` is the mean anywhere, at the cost of T columns instead
    of one for each target (math 3). Where the cycles differ, only the last ``v`` is that of the solver: those
    before are without its last cycles, and the adjoint pass is without its first ones. The last residual is
    only there with ``keep_residual``.
    """
    work = system.forward(right)
    for iteration in range(1, iterations + 1):
        number = iterations + 1 - iteration
        *before, last = stages_of_cycle(cycle, number, place=iteration, adjoint=False)
        for stage in before:
            system.apply(stage, work, adjoint=False)
        system.apply(last, work, adjoint=False, final=iteration == iterations and not keep_residual)
        yield work
