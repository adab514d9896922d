"""The workers of a job: who they are, when they are asked for, and what memory they have."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TypeAlias, TypeVar

from cagp_dist.budget.workers import Crew
from cagp_dist.errors import ClusterError, ClusterLostError
from cagp_dist.runtime import Executor, ExecutorLike, executor_from, open_executor
from cagp_dist.runtime.batch_system import WORKER_JOBS
from cagp_dist.runtime.counting import count
from cagp_dist.runtime.deadlines import Deadlines
from cagp_dist.runtime.schedulers import find_scheduler
from cagp_dist.service.jobfile.job import ClusterTable
from cagp_dist.text import counted

T = TypeVar("T")


class Workers:
    """The workers of a job, which are asked for when there is work for them."""

    def __init__(self, table: ClusterTable, deadlines: Deadlines, given: ExecutorLike = None) -> None:
        self._table, self._given, self._stack = table, given, ExitStack()
        self._executor: Executor | None = None
        self.deadlines = deadlines

    def __call__(self) -> Executor:
        """Return the executor, always the same until it is left."""
        if self._executor is None:
            opened = (
                _opened(self._table, self.deadlines)
                if self._given is None
                else executor_from(self._given, self.deadlines)
            )
            self._executor = self._stack.enter_context(opened)
        return self._executor

    def leave(self) -> None:
        """Close the executor, if there is one; the next call opens another."""
        self._executor = None
        self._stack.close()

    def attempt(self, work: Callable[[Executor], T], say: Callable[[str], None]) -> T:
        """Do work on the executor; where its cluster is lost, do it again on the workers there are then."""
        most = self.deadlines.attempts
        for attempt in range(1, most + 1):
            try:
                executor = self._rejoined() if attempt > 1 else self()
                before = executor.sent_bytes()
                done = work(executor)
                count(moved_bytes=max(0, executor.sent_bytes() - before))
                return done
            except ClusterLostError as error:
                self.leave()
                if attempt == most:
                    tried = f"Tried {counted(most, 'time')}, at last: " if most > 1 else ""
                    raise ClusterError(tried + error.text, remedies=error.remedies, key=error.key) from error
                say(f"attempt {attempt} of {most} ended: {error.text}")
        raise AssertionError

    def _rejoined(self) -> Executor:
        """Open an executor on whoever is there; a scheduler that was lost may need a while to come back."""
        waited = time.monotonic()
        while True:
            try:
                return self()
            except ClusterError as error:
                self.deadlines.check()
                if time.monotonic() - waited > self.deadlines.rejoin_seconds:
                    raise ClusterError(
                        f"the Dask cluster was lost, and {self.deadlines.rejoin_seconds:g} s later: {error}",
                        key=error.key,
                    ) from error
                time.sleep(1.0)


@contextmanager
def workers_of(table: ClusterTable, deadlines: Deadlines, given: ExecutorLike = None) -> Iterator[Workers]:
    """Give the workers of a job, or those given; a scheduler that does not answer is found out at once."""
    if given is None:
        scheduler = scheduler_of(table)
        find_scheduler(scheduler).check(scheduler, table.insecure)
    workers = Workers(table, deadlines, given)
    try:
        yield workers
    finally:
        workers.leave()


@contextmanager
def workforce_of(table: ClusterTable) -> "Iterator[Workforce]":
    """Give what a plan asks of the workers of a job; no job of a batch system is started for it."""
    if find_scheduler(scheduler_of(table)).batch:
        yield Crew(table.workers or WORKER_JOBS, table.threads)
    else:
        with _opened(table, None) as executor:
            yield executor


def _opened(table: ClusterTable, deadlines: Deadlines | None) -> AbstractContextManager[Executor]:
    return open_executor(
        scheduler_of(table),
        workers=table.workers,
        threads=table.threads,
        memory_limit_bytes=table.memory_limit,
        deadlines=deadlines,
        insecure=table.insecure,
    )


Workforce: TypeAlias = Executor | Crew  # what a plan asks for workers and memory


def memory_limit(table: ClusterTable, workforce: Workforce) -> int | None:
    """Bytes that all workers together may allocate; None leaves it to the free memory of this machine."""
    limit = table.memory_limit
    return limit if limit is None else limit * workforce.processes


def scheduler_of(table: ClusterTable) -> str:
    """Where the work is done: the job file, else ``DASK_SCHEDULER_ADDRESS``, else this process."""
    return table.scheduler or os.environ.get("DASK_SCHEDULER_ADDRESS") or "local"
