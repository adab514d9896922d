"""What a solve keeps of itself from time to time, so that it can go on from there after a loss.

A solver yields states; those of a solve that goes on are yielded again first, from the checkpoint, and then
the new ones. What is between two states stays with whoever computes it (`System.save`, `System.restore`).
Where checkpoints are kept is not known here: `cagp_dist.store.checkpoints` keeps them in a folder.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, is_dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget import Plan
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.gram.targets import Targets, target_points
from cagp_dist.kernels import point_columns
from cagp_dist.solvers.interface import Problem, State
from cagp_dist.solvers.status import Status
from cagp_dist.versions import version

FORMAT = 4
"""Of what is kept, and of the order of stages that it counts; checkpoints of another format are not found."""

FULL = "full-downdate"

CheckpointMetadata = Mapping[str, Any]
"""Numbers, texts and lists that say what the arrays of a checkpoint are; JSON can hold it."""


class CheckpointWriter(Protocol):
    """A checkpoint that is being written; tasks on workers take it as an argument."""

    def write(self, name: str, array: Array | Indices) -> bool:
        """Write an array; whether the place of the checkpoint is seen from here."""
        ...


class CheckpointReader(Protocol):
    """A checkpoint that is there; tasks on workers take it as an argument."""

    @property
    def metadata(self) -> CheckpointMetadata: ...

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Array:
        """Read an array, or some of its rows."""
        ...


class Checkpoint(Protocol):
    """Where one solve keeps what it has reached."""

    def latest(self) -> CheckpointReader | None:
        """Find the last checkpoint that is whole and of this very solve."""
        ...

    def due(self) -> bool:
        """Whether it is time to keep something again."""
        ...

    def save(
        self, metadata: CheckpointMetadata, write: Callable[[CheckpointWriter], bool]
    ) -> CheckpointReader | None:
        """Keep what ``write`` writes; None if that says that workers do not see the place."""
        ...


class SolveCheckpoints(Protocol):
    """Where solves keep what they have reached, each under its fingerprint."""

    def of(self, fingerprint: str) -> Checkpoint:
        """Those of a solve."""
        ...

    def within(self, name: str) -> "SolveCheckpoints":
        """Those of a part of the work, apart from those of others."""
        ...


class StateLog:
    """States so far, batch by batch of targets, as arrays and back again.

    Of a full downdate (q, q) only the last one is kept whole, and of those before it the diagonal.
    """

    def __init__(self) -> None:
        self._states: list[State] = []

    def add(self, state: State) -> None:
        """Take a state."""
        if self._states and self._states[-1].downdate.ndim == 2:
            before = self._states.pop()
            self._states.append(replace(before, downdate=before.downdate.diagonal().copy()))
        self._states.append(state)

    def metadata(self) -> CheckpointMetadata:
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

    def write(self, writer: CheckpointWriter) -> bool:
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

    def read(self, kept: CheckpointReader) -> Iterator[State]:
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


class RecordedResults:
    """Results of costly calls in their order; those that a checkpoint has are not computed again."""

    def __init__(self, name: str, kept: CheckpointReader | None) -> None:
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

    def write(self, writer: CheckpointWriter) -> bool:
        """Write all results so far, side by side; nothing if there are none."""
        return not self._found or writer.write(self._name, np.concatenate(self._found, axis=1))


def solve_fingerprint(problem: Problem, solver: object, plan: Plan) -> str:
    """Digest of all that the states of a solve depend on; cost 8 (n + q) p + 8 n T bytes to be read."""
    found = hashlib.sha256()
    gram = problem.gram
    tiles = (plan.block_size, plan.rings_per_block, plan.batches)
    for part in (FORMAT, version("cagp-dist"), in_full(solver), gram.kernel, *tiles):
        found.update(repr(part).encode())
    if problem.lanczos_steps:  # what they tell of the variance is kept
        found.update(repr(problem.lanczos_steps).encode())
    if problem.full_covariance:
        found.update(b"full")
    X, noise, *targets = fingerprinted_points(problem)
    add_arrays(found, [X, noise, problem.residuals, *targets])
    return found.hexdigest()


def in_full(solver: object) -> tuple[object, ...]:
    """Give a solver, and the values of all its fields: its `repr` leaves out long ones."""
    return (solver, astuple(solver)) if is_dataclass(solver) and not isinstance(solver, type) else (solver,)


def fingerprinted_points(problem: Problem) -> Sequence[Array | Indices]:
    """Observed points, their noise, and targets."""
    gram = problem.gram
    return [point_columns(gram.X), gram.noise_variance, *_of_targets(problem.targets)]


def add_arrays(digest: "hashlib._Hash", arrays: Sequence[Array | Indices]) -> None:
    """Add shapes and values to a digest."""
    for array in arrays:
        digest.update(repr(array.shape).encode())
        digest.update(np.ascontiguousarray(array, dtype=np.float64).tobytes())


def _of_targets(targets: Targets) -> Sequence[Array | Indices]:
    if not isinstance(targets, LinearFunctionals):
        return [target_points(targets)]
    terms = np.zeros(0) if targets.terms is None else targets.terms
    return [targets.nodes, targets.weights, targets.counts, terms]
