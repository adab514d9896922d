"""Weights of targets, kept for other data at the same points (math 14).

Of an affine solver ``W = A' V'`` does not depend on the data, and falls off the sweeps that the variances
take. Where it is kept (`cagp_dist.store.memo`), the mean ``W' b`` of new data costs ``2 n q T`` flops and
a read of 8 n q bytes instead of the sweeps. Of neighbours W is sparse, with 12 bytes for each weight that is
not zero.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget import Plan
from cagp_dist.runtime import Executor, single_threaded_blas
from cagp_dist.runtime.memo import MemoMetadata, MemoReader, MemoWriter
from cagp_dist.solvers.engine.kept_panels import Panels
from cagp_dist.solvers.engine.tiles import TileSystem
from cagp_dist.solvers.interface import Problem, State
from cagp_dist.solvers.status import Status
from cagp_dist.tiling import Range

if TYPE_CHECKING:
    from scipy.sparse import csr_array

SPARSE_ENTRY_BYTES = 12  # Of a weight that is not zero, and where it stands
SPARSE_BYTES = 64 * 2**20  # Of sparse weights that are written, or read, at a time


@runtime_checkable
class WritesWeights(Protocol):
    """A solver whose weights can be kept."""

    def write_weights(
        self, problem: Problem, writer: MemoWriter, *, executor: Executor, plan: Plan
    ) -> MemoMetadata:
        """Write weights and downdates, and say how they were made."""


class WrittenWeights:
    """Writes weights and downdates, one group of targets after the other, as soon as its work has ended."""

    reads_leftover = False

    def __init__(self, system: TileSystem, writer: MemoWriter) -> None:
        self._system, self._writer = system, writer
        self.groups: list[Range] = []

    def ended(self, group: Range, downdate: Array, work: Panels) -> None:
        """Write ``W`` (n, c) and the downdate (c,) of a group."""
        weights = np.ascontiguousarray(self._system.weights(work).T)
        self._writer.write(_name(group, "weights"), weights)
        self._writer.write(_name(group, "downdate"), downdate)
        self.groups.append(group)
        work.weights.clear()  # on the disk by now


def write_sparse(
    writer: MemoWriter, parts: "Iterable[tuple[Indices, csr_array]]", downdate: Array
) -> MemoMetadata:
    """Write sparse weights (r, n) of some targets after others, and all downdates (q,)."""
    from scipy.sparse import vstack

    waiting: list[tuple[Indices, csr_array]] = []
    files, entries = 0, 0

    def write() -> None:
        nonlocal files
        weights = vstack([made for _, made in waiting], format="csr")
        arrays = {"values": weights.data, "columns": weights.indices, "starts": weights.indptr}
        for name, array in {**arrays, "targets": np.concatenate([rows for rows, _ in waiting])}.items():
            writer.write(f"part-{files}/{name}", array)
        files += 1
        waiting.clear()

    for part in parts:
        waiting.append(part)
        entries += part[1].nnz
        if SPARSE_ENTRY_BYTES * sum(made.nnz for _, made in waiting) > SPARSE_BYTES:
            write()
    if waiting:
        write()
    writer.write("downdate", downdate)
    return {"parts": files, "entries": entries}


def _sparse_mean(kept: MemoReader, residuals: Array, q: int) -> Array:
    """``W b`` (q, T) of sparse weights."""
    from scipy.sparse import csr_array

    mean = np.zeros((q, residuals.shape[1]))
    for number in range(kept.metadata["parts"]):
        values, columns, starts, targets = (
            kept.read(f"part-{number}/{name}") for name in ("values", "columns", "starts", "targets")
        )
        weights = csr_array((values, columns, starts), shape=(len(targets), len(residuals)))
        mean[targets] = np.asarray(weights @ residuals)
    return mean


def kept_states(kept: MemoReader, problem: Problem) -> Iterator[State]:
    """Yield the belief after the last iteration, one group of targets at a time: one product for each."""
    metadata, residuals = kept.metadata, np.ascontiguousarray(problem.residuals)
    sparse = "parts" in metadata
    for start, stop in [(0, problem.q)] if sparse else metadata["groups"]:
        if sparse:
            mean = _sparse_mean(kept, residuals, problem.q)
        else:
            weights = kept.read(_name((start, stop), "weights"))
            with single_threaded_blas():
                mean = weights @ residuals
        yield State(
            metadata["iterations"],
            slice(start, stop),
            mean,
            kept.read("downdate" if sparse else _name((start, stop), "downdate")),
            Status[metadata["status"]],
            downdate_psd=metadata["downdate_psd"],
        )


def _name(columns: Range, what: str) -> str:
    return f"targets-{columns[0]}-{columns[1]}/{what}"
