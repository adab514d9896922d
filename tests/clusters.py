"""Dask clusters on this machine: of worker processes with nannies, and of processes that a test may hit."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import dask
from distributed import Client, LocalCluster


@contextmanager
def local_cluster(workers: int) -> Iterator[Client]:
    """Client of a fresh cluster of ``workers`` processes with one thread each, whose nannies stay.

    15 s after a worker was lost Dask looks for another by its name, and where that one has just been killed
    in its turn it gives up the nanny. Profiles that nobody looks at would take two thirds of what an idle
    cluster does.
    """
    with (
        dask.config.set(
            {
                "distributed.deploy.lost-worker-timeout": "1 day",
                "distributed.worker.preload": ["cagp_dist.preload"],
                "distributed.worker.profile.enabled": False,
                "distributed.admin.system-monitor.interval": "10s",
                "distributed.admin.system-monitor.gil.enabled": False,
                "distributed.admin.tick.interval": "1s",
            }
        ),
        LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


START_SECONDS = 120.0
"""In which a scheduler starts, on a machine that is busy with other things."""


def wait_until(
    done: Callable[[], object], *processes: "subprocess.Popen[bytes]", seconds: float = START_SECONDS
) -> None:
    """Wait for something that processes do; raise `TimeoutError` where it takes longer or one ends before."""
    until = time.monotonic() + seconds
    while not done():
        for process in processes:
            if process.poll() is not None:
                raise TimeoutError(f"{process.args} ended with exit code {process.returncode}")
        if time.monotonic() > until:
            raise TimeoutError(f"not done after {seconds:g} s")
        time.sleep(0.05)


class Processes:
    """A scheduler and two workers without nannies, each a process of its own. Use as a context manager.

    Parameters
    ----------
    file : Path
        Where the scheduler says its address.
    port : int
        Of the scheduler; 0 lets it choose.
    """

    def __init__(self, file: Path, *, port: int = 0) -> None:
        self.file, self._port = str(file), port
        self.address = f"tcp://127.0.0.1:{port}"

    def __enter__(self) -> Self:
        self._started: list[subprocess.Popen[bytes]] = []
        try:
            self.start_scheduler()
            self.workers = [self.worker() for _ in range(2)]
            self.wait_for_workers()
        except BaseException:
            self._end_all()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_all()

    def _end_all(self) -> None:
        for process in self._started:
            _end(process)

    def start_scheduler(self) -> None:
        """Start a scheduler at the address."""
        Path(self.file).unlink(missing_ok=True)
        port = str(self._port)
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard")
        wait_until(Path(self.file).is_file, self.scheduler)

    def wait_for_workers(self) -> None:
        """Wait until both workers have joined."""
        with Client(scheduler_file=self.file, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=START_SECONDS)

    def kill_scheduler(self) -> None:
        """Kill the scheduler; the workers stay."""
        _end(self.scheduler)

    def worker(self) -> "subprocess.Popen[bytes]":
        """Start a worker."""
        return self._start("worker", "--nthreads", "1", "--no-dashboard", "--no-nanny")

    def replace(self, number: int) -> None:
        """Kill a worker, frozen or not, and start another."""
        _end(self.workers[number])
        self.workers[number] = self.worker()

    def restart(self) -> None:
        """After its scheduler was killed, start one at the same address, with workers as at first."""
        self.start_scheduler()
        for number in range(len(self.workers)):
            self.replace(number)

    def _start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        command = [Path(sys.executable).with_name("dask"), *arguments, "--scheduler-file", self.file]
        started = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self._started.append(started)
        return started


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
