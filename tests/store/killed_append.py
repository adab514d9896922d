"""Append the same field to fresh copies of a store again and again, killed at ever later moments.

Run as ``python killed_append.py FOLDER``.  The moments are every file opened for writing, every folder made
and every rename, counted by an audit hook; each try runs in a fork of its own and ends by SIGKILL just before
the moment.  The stores stay in ``FOLDER/try-K`` for whoever looks at them.
"""

import os
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import xarray as xr

from cagp_dist.store.ingested import append_times

STEP = 3  # odd, so that tries with and without a store take turns; 1 tries every moment in a minute
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def field(days):
    times = np.array([np.datetime64("2020-01-01", "ns") + np.timedelta64(day, "D") for day in days])
    values = np.array([np.full((3, 4), 250.0 + day) for day in days], dtype="float32")
    return xr.Dataset(
        {"t2m": (("time", "latitude", "longitude"), values)},
        coords={"time": times, "latitude": [-10.0, 0.0, 10.0], "longitude": [0.0, 90.0, 180.0, 270.0]},
        attrs={"source": "made", "source_sha256": "0" * 64},
    )


def kill_before(moment):
    count = 0

    def hook(event, arguments):
        nonlocal count
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING
        if writes or event in ("os.rename", "os.mkdir"):
            count += 1
            if count == moment:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def main(folder):
    append_times(folder / "warm" / "observations.zarr", field([0]))  # so that forks need not import anything
    for moment in range(1, 1000, STEP):
        store = folder / f"try-{moment}" / "observations.zarr"
        if moment % 2:  # half of the tries start with a store, half with nothing
            shutil.copytree(folder / "before" / "observations.zarr", store)
        child = os.fork()
        if child == 0:
            kill_before(moment)
            append_times(store, field([0, 1, 2, 3]), batch_bytes=2 * 3 * 4 * 4)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            return os.WEXITSTATUS(status)
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
