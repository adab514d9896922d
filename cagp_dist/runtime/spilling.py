"""Whether the disks on which Dask workers put what their memory does not hold are full.

A worker that cannot put results on its disk says so in its own log alone: it keeps them, takes no more tasks,
and waits. From outside it is a worker that is paused.
"""

import os
import shutil
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from cagp_dist.text import bytes_text

Disk: TypeAlias = tuple[str, str, int]  # machine, device and 0, or what `disk_of` says

SHARED_TYPES = ("afs", "beegfs", "ceph", "cifs", "gpfs", "lustre", "nfs", "smb", "wekafs")
"""With which the types of file systems begin that several machines mount."""


@dataclass(frozen=True)
class Spilling:
    """What a worker has to put on its disk, and the disk."""

    folder: str  # Where it puts what its memory does not hold
    disk: Disk  # Of the folder: that of several workers may be one
    free_bytes: int  # What the disk still takes
    due_bytes: int  # Results that stay in memory above the part of it from which they are put on the disk

    @property
    def full(self) -> bool:
        """Whether the disk does not take what is due."""
        return self.free_bytes < self.due_bytes


def spilling_of(dask_worker: Any) -> Spilling | None:
    """Look at the disk of a worker; called on it. None where it puts nothing there."""
    folder = dask_worker.local_directory
    manager = dask_worker.memory_manager
    fast = getattr(manager.data, "fast", None)  # Dask's mapping of two parts, memory and disk
    if fast is None:
        return None
    above = dask_worker.monitor.get_process_memory() - (manager.memory_limit or 0) * (
        manager.memory_target_fraction or manager.memory_spill_fraction or 1.0
    )
    usage, mounts = shutil.disk_usage(folder), Path("/proc/self/mountinfo")  # which only Linux has
    return Spilling(
        folder=os.fspath(folder),
        disk=disk_of(
            os.stat(folder).st_dev,
            mounts.read_text().splitlines() if mounts.is_file() else (),
            machine=socket.gethostname(),
            total_bytes=usage.total,
        ),
        free_bytes=usage.free,
        due_bytes=max(0, int(min(fast.total_weight, above))),
    )


def disk_of(device: int, mounts: Iterable[str], *, machine: str, total_bytes: int) -> Disk:
    """Tell a file system from all others of a cluster."""
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts:
        before, _, after = line.partition(" - ")
        if before.split()[2] == number:
            kind, source = after.split()[:2]
            served = ":/" in source or source.startswith("//")
            if served or kind.startswith(SHARED_TYPES):
                return (kind, source, 0 if served else total_bytes)
    return (machine, number, 0)


def free_bytes(workers: Iterable[Spilling | None]) -> int:
    """Sum up what the disks of workers take, each counted once; None for workers that put nothing there."""
    return sum({worker.disk: worker.free_bytes for worker in workers if worker is not None}.values())


def describe_full_disks(workers: Mapping[str, Spilling]) -> str:
    """Say which folder on which worker does not take what is due; "" where all do."""
    return "; ".join(
        f"{worker.folder} on worker {address} has {bytes_text(worker.free_bytes)} free, and "
        f"{bytes_text(worker.due_bytes)} are to be put there"
        for address, worker in workers.items()
        if worker.full
    )
