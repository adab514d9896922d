"""A watch over the cluster that results are waited for: whether there is still somebody who computes them.

Dask gives the tasks of a lost worker to the others, and takes care of most else. It waits for ever where a
scheduler or a worker is there and does not answer, where all workers are paused, and where all were lost at
once: then it keeps tasks for workers with the addresses of the old ones, which do not come back.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from cagp_dist.errors import ClusterError, ClusterLostError
from cagp_dist.remedies import Remedy
from cagp_dist.runtime.deadlines import Deadlines
from cagp_dist.runtime.spilling import Spilling, describe_full_disks, spilling_of
from cagp_dist.text import counted

if TYPE_CHECKING:
    from distributed import Client, Worker

T = TypeVar("T")

_log = logging.getLogger(__name__)

BUSY = ("executing", "long-running", "flight")  # states of tasks in the metrics of a worker


FULL_DISK_SECONDS = 10.0  # without work, while a worker with a full disk is paused, until that is an error
ASK_SECONDS = 5.0  # how long to wait for what workers say of themselves before other things are looked at
POLL_SECONDS = 0.5  # how often to see whether the connection still stands while an answer is waited for
PAUSE_SECONDS = 5.0  # between two looks; in what is longer this process stood still


def call_in_thread(function: Callable[[], T]) -> "Future[T]":
    """Call a function in a thread of its own, which nobody need wait for."""
    call: Future[T] = Future()

    def run() -> None:
        try:
            call.set_result(function())
        except BaseException as error:  # raised where the result is asked for
            call.set_exception(error)

    threading.Thread(target=run, name="cagp-call", daemon=True).start()
    return call


def has_ended(call: "Future[T]", seconds: float) -> bool:
    """Wait for so long, or until a call has ended; say whether it has."""
    return bool(wait([call], seconds).done)


def within(seconds: float, function: Callable[[], T]) -> T:
    """Call a function; raise `TimeoutError` if that takes longer, and leave it to itself."""
    return call_in_thread(function).result(seconds)


class Watch:
    """What is known of a cluster, from one look to the next."""

    def __init__(self, client: "Client", deadlines: Deadlines, addresses: list[str]) -> None:
        self._client, self._deadlines = client, deadlines
        self._known, self._there = set(addresses), set(addresses)
        self._scheduler: Any = client.scheduler
        self._heard: dict[str, tuple[float, float]] = {}
        self._question: Future[dict[str, Spilling | None]] | None = None
        self._question_time = 0.0
        self._looked = self._worked = self._ended = time.monotonic()
        self.begin()

    def begin(self) -> None:
        """Forget how long nothing has happened: something new is waited for."""
        self._forgive_own_pause()
        self._fewest = float("inf")
        self._looked = self._worked = self._ended = time.monotonic()
        self._deserted = False
        self._disks: dict[str, Spilling] = {}

    def look(self) -> list[str]:
        """Look at the cluster."""
        self._deadlines.check()
        self._forgive_own_pause()
        try:
            return self._look()
        finally:
            self._looked = time.monotonic()

    def _look(self) -> list[str]:
        found = self._asked(lambda: self._client.scheduler_info(n_workers=-1))
        workers: dict[str, dict[str, object]] = dict(found["workers"])
        self._drop_silent(workers)
        if gone := self._there - workers.keys():
            call_in_thread(partial(self._client.run, _cut_off, gone=gone, on_error="ignore"))
        self._there = set(workers)
        self._look_at_disks(workers)
        if (
            not self._known.isdisjoint(workers)
            or (workers and self._all_done())  # results are fetched from those that took them over
            or any(self._asked(self._client.processing).values())
        ):
            self._known |= workers.keys()  # of which each may be lost in turn
            self._deserted = False
        elif self._deserted or not workers:
            self.check_disks()
            raise ClusterLostError(
                "all workers of the Dask cluster were lost, and with them what they had computed. Their logs "
                "say why: often memory ran out, or their walltime or `--lifetime` ended. Run the same job "
                "again, with more memory for each worker, or with two workers or more, which do not end at "
                "the same time.",
                key="workers-lost",
            )
        else:  # new workers may be about to begin
            self._deserted = True
        self._check_headway(workers)
        return list(workers)

    def _forgive_own_pause(self) -> None:
        """Do not count for silence what this process, and the cluster perhaps with it, stood still."""
        pause = time.monotonic() - self._looked
        if pause > min(PAUSE_SECONDS, self._deadlines.silence_seconds / 2.0):
            self._heard = {address: (seen, since + pause) for address, (seen, since) in self._heard.items()}
            self._worked += pause
            self._ended += pause

    def _asked(self, question: Callable[[], T]) -> T:
        """Ask the scheduler; without a connection, which Dask looks for, all handles are void already."""
        seconds, waited, call = self._deadlines.silence_seconds, 0.0, call_in_thread(question)
        poll = min(POLL_SECONDS, seconds)
        while not has_ended(call, poll):
            if self._client.status != "running":
                raise connection_broke("the scheduler has gone")
            waited += poll  # and not by the clock, which goes on while this process stands still
            if waited >= seconds:
                raise ClusterLostError(
                    f"the Dask scheduler at {self._scheduler.address} has not answered for {seconds:g} s. It "
                    "may be suspended, out of memory or cut off from this machine. Start it again, then run "
                    "the same job again.",
                    key="no-scheduler",
                )
        try:
            return call.result()
        except OSError as error:
            raise connection_broke(error) from error

    def _drop_silent(self, workers: dict[str, dict[str, object]]) -> None:
        """Have the scheduler give the tasks of workers that it has not heard of for long to the others."""
        now = time.monotonic()
        for address in list(workers):
            seen = float(str(workers[address]["last_seen"]))
            before, since = self._heard.get(address, (None, now))
            if seen != before:
                self._heard[address] = (seen, now)
            elif now - since > self._deadlines.silence_seconds:
                _log.warning(
                    "worker %s has given no sign of life for %.0f s; its tasks go to the others",
                    address,
                    now - since,
                )
                unregister = partial(
                    self._client.sync,
                    self._scheduler.unregister,
                    address=address,
                    stimulus_id="cagp-silent-worker",
                    expected=True,  # the task was not what stopped it
                )
                self._asked(unregister)
                del workers[address], self._heard[address]
                self._worked = now  # only now can the others begin with them

    def _look_at_disks(self, workers: dict[str, dict[str, object]]) -> None:
        """Ask paused workers about their disks, and remember it until they go on: soon they may be gone."""
        paused = [address for address, worker in workers.items() if worker["status"] == "paused"]
        self._disks = {
            address: disk
            for address, disk in self._disks.items()
            if address in paused or address not in workers
        }
        if self._question is None and paused:
            ask = partial(self._client.run, spilling_of, workers=paused, on_error="ignore")
            self._question, self._question_time = call_in_thread(ask), time.monotonic()
            has_ended(self._question, ASK_SECONDS)
        if self._question is None:
            return
        if self._question.done():
            with suppress(OSError):  # gone; the next look is soon
                found = self._question.result()
                self._disks |= {
                    address: disk for address, disk in found.items() if disk is not None and address in paused
                }
            self._question = None
        elif time.monotonic() - self._question_time > 2.0 * self._deadlines.silence_seconds + ASK_SECONDS:
            self._question = None  # given up: whoever did not answer is gone, and so may the answer be

    def check_disks(self) -> None:
        """Raise `ClusterError` if the disk of a worker was seen to be full; another attempt would fill it."""
        if full := describe_full_disks(self._disks):
            raise ClusterError(
                f"workers are out of memory, and so are the disks behind it: {full}. Free space "
                "there, or start the workers with another --local-directory; then run the same job again.",
                remedies=(Remedy.LARGER_WORKERS, Remedy.SMALLER_BLOCKS),
                key="worker-memory",
            )

    def _all_done(self) -> bool:
        """Whether no task is left to be done, or done again."""
        return not any(state.status in ("pending", "lost") for state in list(self._client.futures.values()))

    def _check_headway(self, workers: dict[str, dict[str, object]]) -> None:
        """Raise if nothing was done for too long."""
        now = time.monotonic()
        pending = sum(state.status == "pending" for state in list(self._client.futures.values()))
        if pending < self._fewest:
            self._fewest, self._ended = pending, now
        if now == self._ended or any(map(_busy, workers.values())):
            self._worked = now
        if now - self._worked > min(FULL_DISK_SECONDS, self._deadlines.idle_seconds):
            self.check_disks()
        if now - self._worked > self._deadlines.idle_seconds:
            paused = sum(worker["status"] == "paused" for worker in workers.values())
            raise ClusterLostError(
                f"tasks waited for {self._deadlines.idle_seconds:g} s and no worker worked on one: of "
                f"{counted(len(workers), 'worker')} {paused} "
                f"{'is' if paused == 1 else 'are'} paused because the memory is full.",
                remedies=(Remedy.LARGER_WORKERS, Remedy.SMALLER_BLOCKS) if paused else (),
                key="workers-idle",
            )
        if now - self._ended > self._deadlines.stall_seconds:
            raise ClusterLostError(
                f"no task ended for {self._deadlines.stall_seconds:g} s, although workers work. If tasks "
                "of this job take that long, raise [runtime] stall_seconds.",
                key="stalled",
            )


def _cut_off(gone: set[str], dask_worker: "Worker") -> None:
    """Have a worker give up connections to others that are gone; called on it.

    The scheduler says so as well. Of one to which the worker connects just after, it would wait for half a
    minute, and do nothing that needs what that one held.
    """
    for address in gone:
        dask_worker.rpc.remove(address)


def _busy(worker: dict[str, object]) -> bool:
    metrics = worker["metrics"]
    counts = metrics.get("task_counts", {}) if isinstance(metrics, dict) else {}
    return any(counts.get(state, 0) > 0 for state in BUSY)


def connection_broke(error: object) -> ClusterLostError:
    """Make the error of a connection that broke, from the first line of what Dask says."""
    said = str(error).partition("\n")[0].rstrip(".")
    return ClusterLostError(
        f"the connection to the Dask scheduler broke: {said}. Run the same job again.", key="connection-lost"
    )
