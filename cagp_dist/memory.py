"""How much memory this process may still use, and data of others may take at once."""

from pathlib import Path

import psutil

MOST_CHUNK_BYTES = 2**29  # of a file of numbers, which is decoded at once
MOST_AXIS_BYTES = 2**28  # of an array with one axis, which is read whole

PROCESS_BYTES = 200 * 2**20  # of a worker without data: interpreter and compiled code (measured)
WORKER_JOB_BYTES = 4 * 2**30  # of a worker that is asked for, where nothing else is said
CONTROL_GROUPS = Path("/sys/fs/cgroup")  # where Linux shows the limits that SLURM, Docker and systemd set


def available_bytes() -> int:
    """Four fifths of what can be allocated now: free memory of the machine, or of the control group."""
    free = int(psutil.virtual_memory().available)
    return min([free, *_group_rooms()]) * 4 // 5


def _group_rooms() -> list[int]:
    """Bytes left in each control group (version 2) this process is in, from the inside out."""
    try:
        line = Path("/proc/self/cgroup").read_text().splitlines()[-1]
    except OSError:  # no Linux, no control groups
        return []
    group = CONTROL_GROUPS / line.rpartition(":")[2].lstrip("/")
    rooms = []
    for folder in [group, *group.parents]:
        limit, used = folder / "memory.max", folder / "memory.current"
        if limit.is_file() and used.is_file() and (text := limit.read_text().strip()) != "max":
            taken = max(int(used.read_text()) - _reclaimable(folder / "memory.stat"), 0)
            rooms.append(max(int(text) - taken, 0))
        if folder == CONTROL_GROUPS:
            break
    return rooms


def _reclaimable(path: Path) -> int:
    """Bytes that count as used by a control group, and that the system frees when they are asked for."""
    if not path.is_file():
        return 0
    found = dict(line.split() for line in path.read_text().splitlines())
    return sum(int(found.get(name, 0)) for name in ("inactive_file", "slab_reclaimable"))
