"""What a checkpoint is, and of which solve: where it is kept is not known here.

`cagp_dist.store.checkpoints` keeps them in a folder; `recorder` says what is in them.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, is_dataclass
from typing import Any, Protocol

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget import Plan
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.gram.targets import Targets, target_points
from cagp_dist.kernels import point_columns
from cagp_dist.solvers.interface import Problem
from cagp_dist.versions import numerical_version

# Of what is kept, and of the order of stages that it counts; checkpoints of another format are not found
FORMAT = 4

# Numbers, texts and lists that say what the arrays of a checkpoint are; JSON can hold it
CheckpointMetadata = Mapping[str, Any]


class CheckpointWriter(Protocol):
    """A checkpoint that is being written; tasks on workers take it as an argument."""

    def write(self, name: str, array: Array | Indices) -> bool:
        """Write an array; whether the place of the checkpoint is seen from here."""


class CheckpointReader(Protocol):
    """A checkpoint that is there; tasks on workers take it as an argument."""

    @property
    def metadata(self) -> CheckpointMetadata: ...

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Array:
        """Read an array, or some of its rows."""


class Checkpoint(Protocol):
    """Where one solve keeps what it has reached."""

    def latest(self) -> CheckpointReader | None:
        """Find the last checkpoint that is whole and of this very solve."""

    def due(self) -> bool:
        """Whether it is time to keep something again."""

    def save(
        self, metadata: CheckpointMetadata, write: Callable[[CheckpointWriter], bool]
    ) -> CheckpointReader | None:
        """Keep what ``write`` writes; None if that says that workers do not see the place."""


class SolveCheckpoints(Protocol):
    """Where solves keep what they have reached, each under its fingerprint."""

    def of(self, fingerprint: str) -> Checkpoint:
        """Those of a solve."""

    def within(self, name: str) -> "SolveCheckpoints":
        """Those of a part of the work, apart from those of others."""


def solve_fingerprint(problem: Problem, solver: object, plan: Plan) -> str:
    """Digest of all that the states of a solve depend on; cost 8 (n + q) p + 8 n T bytes to be read."""
    found = hashlib.sha256()
    gram = problem.gram
    tiles = (plan.block_size, plan.rings_per_block, plan.batches)
    for part in (FORMAT, numerical_version(), in_full(solver), gram.kernel, *tiles):
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
