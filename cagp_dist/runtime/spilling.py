"""Whether the disks on which Dask workers put what their memory does not hold are full.

A worker that cannot put results on its disk says so in its own log alone: it keeps them, takes no more tasks,
and waits. From outside it is a worker that is paused.
"""

import os
import shutil
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cagp_dist.text import bytes_text


@dataclass(frozen=True)
class Spilling:
    """What a worker has to put on its disk, and the disk.

    Attributes
    ----------
    folder : str
        Where it puts what its memory does not hold.
    disk : tuple of str and int
        Machine and device of the folder: that of several workers may be one.
    free_bytes : int
        What the disk still takes.
    due_bytes : int
        Results that stay in memory above the part of it from which they are put on the disk.
    """

    folder: str
    disk: tuple[str, int]
    free_bytes: int
    due_bytes: int

    @property
    def full(self) -> bool:
        """Whether the disk does not take what is due."""
        return self.free_bytes < self.due_bytes


def spilling_of(dask_worker: Any) -> Spilling:
    """Look at the disk of a worker; called on it."""
    folder = dask_worker.local_directory
    manager = dask_worker.memory_manager
    held = getattr(getattr(manager.data, "fast", None), "total_weight", 0)  # 0: nothing is put on a disk
    above = dask_worker.monitor.get_process_memory() - (manager.memory_limit or 0) * (
        manager.memory_target_fraction or manager.memory_spill_fraction or 1.0
    )
    return Spilling(
        folder=os.fspath(folder),
        disk=(socket.gethostname(), os.stat(folder).st_dev),
        free_bytes=shutil.disk_usage(folder).free,
        due_bytes=max(0, int(min(held, above))),
    )


def free_bytes(workers: Iterable[Spilling]) -> int:
    """Sum up what the disks of workers take, each counted once."""
    return sum({worker.disk: worker.free_bytes for worker in workers}.values())


def describe_full_disks(workers: Mapping[str, Spilling]) -> str:
    """Say which folder on which worker does not take what is due; "" where all do."""
    return "; ".join(
        f"{worker.folder} on worker {address} has {bytes_text(worker.free_bytes)} free, and "
        f"{bytes_text(worker.due_bytes)} are to be put there"
        for address, worker in workers.items()
        if worker.full
    )
