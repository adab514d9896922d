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

Then ``mean = V A b`` and ``downdate = V D V'`` (T2, T3), and the leftover ``Y`` is where a solve continues.
A stage says how ``Mt'`` and W act on blocks (`cagp_dist.solvers.engine.stages`), a system which blocks there
are and how G is applied (`cagp_dist.solvers.engine.tiles`, `cagp_dist.solvers.engine.ring_system`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from cagp_dist.arrays import Array
from cagp_dist.solvers.engine.recorder import Recorder
from cagp_dist.solvers.engine.stages import Stage, stages_of_cycle
from cagp_dist.solvers.engine.stopping_rules import AnyWork, StoppingRule
from cagp_dist.solvers.engine.system import OpenBatch, System, Work
from cagp_dist.solvers.interface import State
from cagp_dist.solvers.status import Status
from cagp_dist.tiling import Range


class Watcher(Protocol[AnyWork]):
    """Hears when the work of a group of targets is over."""

    @property
    def reads_leftover(self) -> bool: ...  # whether the leftover is asked for, also after the last step

    def ended(self, group: Range, downdate: Array, work: AnyWork) -> None:
        """Take note of a group with this downdate (columns,) before its work goes."""


class Schedule(Protocol):
    """What the steps of an adjoint pass are."""

    @property
    def weight_psd(self) -> bool: ...  # whether W of every stage is known to be positive semidefinite

    def stages(self, step: int) -> Sequence[Stage]:
        """Give the stages of a step, from 1, in the order of the adjoint pass."""

    def iteration(self, step: int) -> int | None:
        """Give the number of the iteration that a step ends, None within one."""


@dataclass(frozen=True, eq=False)
class Cycles:
    """Steps that are whole cycles of stages; ``done`` of them were gone through before the solve."""

    cycle: Sequence[Stage]
    done: int = 0

    @property
    def weight_psd(self) -> bool:
        """Whether W of every stage is known to be positive semidefinite."""
        return all(stage.weight_psd for stage in self.cycle)

    def stages(self, step: int) -> Sequence[Stage]:
        """Give the stages of a cycle, the last one first."""
        return stages_of_cycle(self.cycle, self.done + step, place=step, adjoint=True)

    def iteration(self, step: int) -> int:
        """Each step is an iteration."""
        return self.done + step


def adjoint_states(
    system: System[Work],
    schedule: Schedule,
    rule: StoppingRule[Work],
    *,
    recorder: Recorder | None = None,
    watchers: Sequence[Watcher[Work]] = (),
    start: State | None = None,
    keep_leftover: bool = False,
    status: Status = Status.COMPLETED,
    relative_residual: float | None = None,
) -> Iterator[State]:
    """Yield the belief after every iteration, batch of targets by batch; from ``start`` on where it is given.

    A state can give its leftover until the next one is asked for; the last one only with ``keep_leftover``.
    The rule says of each group of targets when it is left as it is; groups are the same on every executor,
    and so is where each one ends. The states of a recorder are yielded first, without their leftovers, and
    then those that follow, with the same bits; with a checkpoint there is no ``start``.
    """
    recorder = recorder or Recorder(None)
    keep_leftover = keep_leftover or any(watcher.reads_leftover for watcher in watchers)
    psd = schedule.weight_psd and (start is None or start.downdate_psd)
    yield from recorder.states()
    for number in range(len(system.batches)):  # what a batch held is gone before the next one begins
        opened = recorder.open(system, number, start)
        while active := opened.active_groups:
            opened.step += 1
            final = opened.step == rule.limit and not keep_leftover
            opened.apply(schedule.stages(opened.step), final=final)
            state = None
            if (iteration := schedule.iteration(opened.step)) is not None:
                mean, downdate = opened.read()
                opened.active_groups = [group for group in active if not _ends(group, opened, downdate, rule)]
                for group in active:
                    if group not in opened.active_groups:
                        for watcher in watchers:
                            watcher.ended(group, opened.part(downdate, group), opened.works[group])
                state = State(
                    iteration,
                    opened.columns,
                    mean,
                    downdate,
                    status if status is not Status.COMPLETED else rule.status or status,
                    relative_residual,
                    leftover=None if final else partial(opened.leftover, opened.step),
                    active_groups=tuple(active),
                    downdate_psd=psd,
                )
            recorder.record(opened, state)
            if state is not None:
                yield state
        opened.closed = number + 1 < len(system.batches)


def _ends(group: Range, opened: OpenBatch[Work], downdate: Array, rule: StoppingRule[Work]) -> bool:
    return rule(group, opened.part(downdate, group), opened.works[group], opened.step)


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
