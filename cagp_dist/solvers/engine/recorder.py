"""What a solve keeps of itself in a checkpoint, and how it continues from one: first its states once more."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.runtime.memo import (
    Checkpoint,
    MemoMetadata,
    MemoReader,
    MemoWriter,
)
from cagp_dist.solvers.engine.system import OpenBatch, System, Work
from cagp_dist.solvers.interface import State
from cagp_dist.solvers.status import Status

FULL = "full-downdate"


class StateLog:
    """States so far, batch by batch of targets; of full downdates (q, q) only the last is kept whole."""

    def __init__(self) -> None:
        self._states: list[State] = []

    def add(self, state: State) -> None:
        """Take a state."""
        if self._states and self._states[-1].downdate.ndim == 2:
            before = self._states.pop()
            self._states.append(replace(before, downdate=before.downdate.diagonal().copy()))
        self._states.append(state)

    def metadata(self) -> MemoMetadata:
        """Everything about the states but their arrays."""
        return {
            "states": [
                {
                    "iteration": state.iteration,
                    "columns": [state.columns.start, state.columns.stop],
                    "status": state.status.name,
                    "relative_residual": state.relative_residual,
                    "active_groups": state.active_groups,
                    "downdate_psd": state.downdate_psd,
                    "dropped": state.dropped,
                }
                for state in self._states
            ],
            "full": bool(self._states) and self._states[-1].downdate.ndim == 2,
        }

    def write(self, writer: MemoWriter) -> bool:
        """Write means and downdates, in one array for each batch of targets."""
        seen = True
        for start, stop in dict.fromkeys((state.columns.start, state.columns.stop) for state in self._states):
            of_batch = [state for state in self._states if state.columns == slice(start, stop)]
            seen &= writer.write(f"states-{start}-{stop}/mean", np.stack([state.mean for state in of_batch]))
            variances = [_diagonal(state.downdate) for state in of_batch]
            seen &= writer.write(f"states-{start}-{stop}/downdate", np.stack(variances))
        if self._states and self._states[-1].downdate.ndim == 2:
            seen &= writer.write(FULL, self._states[-1].downdate)
        return seen

    def read(self, kept: MemoReader) -> Iterator[State]:
        """Take and yield the states of a checkpoint, in their order."""
        place: dict[tuple[int, int], int] = {}
        for number, said in enumerate(kept.metadata["states"], start=1):
            start, stop = said["columns"]
            index = place[start, stop] = place.get((start, stop), -1) + 1
            names = (f"states-{start}-{stop}/{name}" for name in ("mean", "downdate"))
            mean, downdate = (kept.read(name, index, index + 1)[0] for name in names)
            if kept.metadata.get("full") and number == len(kept.metadata["states"]):
                downdate = kept.read(FULL)
            active_groups = said["active_groups"]
            state = State(
                said["iteration"],
                slice(start, stop),
                mean,
                downdate,
                Status[said["status"]],
                said["relative_residual"],
                active_groups=None
                if active_groups is None
                else tuple((first, last) for first, last in active_groups),
                downdate_psd=said["downdate_psd"],
                dropped=said["dropped"],
            )
            self.add(state)
            yield state


def _diagonal(downdate: Array) -> Array:
    return downdate.diagonal() if downdate.ndim == 2 else downdate


class RecordedPart:
    """What a checkpoint keeps beside states and systems."""

    def metadata(self) -> MemoMetadata:
        """Numbers to continue from."""
        return {}

    def write(self, writer: MemoWriter) -> bool:
        """Write the arrays to continue from; whether workers see the place."""
        return True


class RecordedResults(RecordedPart):
    """Results of costly calls in their order; those that a checkpoint has are not computed again."""

    def __init__(self, name: str, kept: MemoReader | None) -> None:
        self._name = name
        self._kept = kept
        self._found: list[Array] = []
        self._taken = 0

    def __call__(self, width: int, compute: Callable[[], Array]) -> Array:
        """Give the next columns, shape (n, width)."""
        start, self._taken = self._taken, self._taken + width
        known = self._known
        if known is not None and self._taken <= known.shape[1]:
            found = np.ascontiguousarray(known[:, start : self._taken])
        else:
            found = compute()
        self._found.append(found)
        return found

    @cached_property
    def _known(self) -> Array | None:
        """Results of the checkpoint, which has some wherever one is asked for."""
        return None if self._kept is None else self._kept.read(self._name)

    @property
    def behind(self) -> bool:
        """Whether the checkpoint has more results than were asked for so far."""
        return self._known is not None and self._taken < self._known.shape[1]

    def write(self, writer: MemoWriter) -> bool:
        """Write all results so far, side by side; nothing if there are none."""
        return not self._found or writer.write(self._name, np.concatenate(self._found, axis=1))


class Recorder:
    """Keeps the states of a solve and what goes on, as often as a checkpoint is due; None: nothing."""

    def __init__(self, checkpoint: Checkpoint | None) -> None:
        self._checkpoint, self._log = checkpoint, StateLog()
        self.kept = None if checkpoint is None else checkpoint.latest()
        self.parts: list[RecordedPart] = []
        self._done: list[int] = [] if self.kept is None else list(self.kept.metadata["done"])

    def states(self) -> Iterator[State]:
        """Yield the states that the checkpoint has."""
        if self.kept is not None:
            yield from self._log.read(self.kept)

    def ended(self, batches: int) -> bool:
        """Whether the checkpoint has the end of all batches."""
        whole = len(self._done) == batches and all(self._done)
        return whole and self.kept is not None and not self.kept.metadata["active_groups"]

    def open(self, system: System[Work], number: int, start: State | None) -> OpenBatch[Work]:
        """Begin a batch, or go on with it as it was saved; one that ended has no groups."""
        self._done += [0] * (len(system.batches) - len(self._done))
        batch, step = system.batches[number], self._done[number]
        if self.kept is None or not step:
            works = {group: system.open(group, place, start) for place, group in enumerate(batch)}
            return OpenBatch(system, number, works, list(batch))
        left = {(first, last) for first, last in self.kept.metadata["active_groups"]}
        active = [group for group in batch if group in left]
        works = _restored(system, number, self.kept) if active else {}
        return OpenBatch(system, number, works, active, step)

    def record(self, opened: OpenBatch[Any], state: State | None) -> None:
        """Take note of a step, with the state that it ended in, and keep all if it is time to."""
        if self._checkpoint is None:
            return
        if state is not None:
            self._log.add(replace(state, leftover=None))
        self._done[opened.number] = opened.step
        if self._checkpoint.due():
            saved = self._save(opened, opened.active_groups)
            if saved is not None and opened.system.is_volatile and opened.active_groups:
                opened.works = _restored(opened.system, opened.number, saved)

    def record_parts(self) -> None:
        """Keep what was found before the first step, if it is time to, and no step is kept already."""
        if self._checkpoint is not None and not any(self._done) and self._checkpoint.due():
            self._save(None, [])

    def _save(self, opened: OpenBatch[Any] | None, active: Sequence[object]) -> MemoReader | None:
        assert self._checkpoint is not None
        metadata = {**self._log.metadata(), "done": self._done, "active_groups": active}
        for part in self.parts:
            metadata |= part.metadata()

        def write(writer: MemoWriter) -> bool:
            seen = self._log.write(writer) and all(part.write(writer) for part in self.parts)
            return seen and (
                opened is None or not active or opened.system.save(list(opened.works.values()), writer)
            )

        return self._checkpoint.save(metadata, write)


def _restored(system: System[Work], number: int, kept: MemoReader) -> dict[Any, Work]:
    """Works of all groups of a batch as they were saved."""
    return {group: system.restore(group, place, kept) for place, group in enumerate(system.batches[number])}
