"""What a job takes of the disk of its output folder and of those of its workers, and what is free there."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cagp_dist.budget import Plan
from cagp_dist.calibration.simulation.beliefs import errors_bytes
from cagp_dist.errors import BudgetError, FullDiskError
from cagp_dist.runtime import Executor
from cagp_dist.store.durable_files import disk_usage, folder_bytes, full_disk, is_full
from cagp_dist.store.memo import KEPT
from cagp_dist.text import bytes_text

# A run without its values, and its report: some hundred files, most smaller than a block of the disk
RUN_BYTES = 8 * 2**20
NO_CHECKPOINTS_SECONDS = 10_000_000  # Between checkpoints from which on none is ever due
# Numbers that a run has for each value that is predicted, about: means, standard deviations, scores
VALUE_ARRAYS = 8


@dataclass(frozen=True)
class DiskNeed:
    """Disk that a job takes below its output folder."""

    run_bytes: int  # Of the run, about. It is written beside what was published before.
    checkpoint_bytes: int  # of all checkpoints that are there at once, at most
    weights_bytes: int = 0  # of weights that the job keeps, about

    def line(self) -> str:
        """Say it in one line."""
        kept = f" and {bytes_text(self.checkpoint_bytes)} of checkpoints" if self.checkpoint_bytes else ""
        weights = f" and {bytes_text(self.weights_bytes)} of kept weights" if self.weights_bytes else ""
        return f"disk: about {bytes_text(self.run_bytes)} of the run{kept}{weights}"


def run_bytes(*, observed: int, predicted: int, times: int) -> int:
    """Estimate what a run and its report take."""
    return RUN_BYTES + 8 * times * (observed + VALUE_ARRAYS * predicted)


def bytes_of_errors(*, targets: int, fields: int) -> int:
    """Count what checkpoints of a simulation take that solves its fields one after the other."""
    return (KEPT + 1) * errors_bytes(targets=targets, fields=fields)


def checkpoint_bytes(plan: Plan, *, solves: int, checkpoint_seconds: float) -> int:
    """Bytes of all checkpoints of a plan that is carried out so many times, at most; none where none is due.

    The one that is written is there beside those that are kept.
    """
    kept = KEPT * solves * plan.solves if checkpoint_seconds < NO_CHECKPOINTS_SECONDS else 0
    return (kept + 1) * plan.checkpoint_bytes if kept else 0


def check_disk(root: Path, need: DiskNeed, *, there: Path | None = None) -> None:
    """Raise `FullDiskError` if a job takes more than is free."""
    free = disk_usage(root).free
    kept = 0 if there is None else folder_bytes(there)
    weights = max(need.weights_bytes - folder_bytes(weights_folder(root)), 0)
    if need.run_bytes + weights + max(need.checkpoint_bytes - kept, 0) > free:
        checkpoints = f", and {bytes_text(need.checkpoint_bytes)} for checkpoints" * bool(
            need.checkpoint_bytes
        )
        of_weights = f", {bytes_text(weights)} for kept weights ([output] keep_weights)" * bool(weights)
        remedy = f", or give [runtime] checkpoint_seconds = {NO_CHECKPOINTS_SECONDS}: then none are kept"
        raise FullDiskError(
            f"the job takes about {bytes_text(need.run_bytes)} of disk for its run{of_weights}{checkpoints}, "
            f"and {bytes_text(free)} are free in {root}. Free space there, or choose another [output] root"
            f"{remedy if need.run_bytes <= free else ''}.",
            key="disk",
        )


@contextmanager
def full_disks_told(root: Path) -> Iterator[None]:
    """Make one error of a disk that is full, with what a run of this output folder takes, if there is one."""
    try:
        yield
    except (FullDiskError, OSError) as error:
        if isinstance(error, OSError):
            if not is_full(error):
                raise
            found = full_disk(Path(error.filename or root), error.strerror)
        else:
            found = error
        newest = max((root / "runs").glob("*.zarr"), key=lambda run: run.lstat().st_mtime, default=None)
        if newest is None or found.key != "disk-full":
            raise found from error.__cause__
        size = bytes_text(folder_bytes(newest))
        raise found.told(after=f"The last run here takes {size}.") from error


def weights_folder(root: Path) -> Path:
    """Folder of the weights that the jobs of an output folder keep."""
    return root.absolute() / ".weights"


def check_spilling(plan: Plan, executor: Executor) -> None:
    """Raise `BudgetError` if a solve fits neither into the memory of workers nor on the disks behind it."""
    memory, disk = executor.memory_bytes, executor.spill_bytes
    if not executor.shares_memory and plan.peak_bytes > memory + disk:
        raise BudgetError(
            f"the solve takes about {bytes_text(plan.peak_bytes)}. The workers hold {bytes_text(memory)} in "
            f"memory, and the disks on which they put the rest have {bytes_text(disk)} free. Lower [cluster] "
            "memory_limit, and it is done in smaller parts; or free space there, or give workers more "
            "memory.",
            key="memory",
        )
