"""The workers of a job: who they are, when they are asked for, and what memory they have."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from cagp_dist.runtime import Executor, open_executor
from cagp_dist.runtime.dask import WORKER_JOB_BYTES, WORKER_JOBS
from cagp_dist.runtime.schedulers import find_scheduler
from cagp_dist.service.jobfile.tables import Job


@contextmanager
def workers_of(job: Job) -> Iterator[Callable[[], Executor]]:
    """Give the workers of a job, which are asked for when there is work for them.

    A scheduler that does not answer is found out at once. Its workers may join until the work begins.

    Parameters
    ----------
    job : Job
        A checked job file.

    Yields
    ------
    callable
        Returns the executor, always the same, which is closed when the context ends.

    Raises
    ------
    ClusterError
        If the scheduler does not answer, or, when the callable is called, has no workers.
    ConfigurationError
        If the scheduler is unknown.
    """
    scheduler = scheduler_of(job)
    find_scheduler(scheduler).check(scheduler)
    with ExitStack() as stack:

        @cache
        def executor() -> Executor:
            return stack.enter_context(_opened(job))

        yield executor


@contextmanager
def workforce_of(job: Job) -> "Iterator[Workforce]":
    """Give what a plan asks of the workers of a job; no job of a batch system is started for it."""
    if find_scheduler(scheduler_of(job)).batch:
        yield Crew(workers=job.cluster.workers or WORKER_JOBS)
    else:
        with _opened(job) as executor:
            yield executor


def _opened(job: Job) -> AbstractContextManager[Executor]:
    return open_executor(
        scheduler_of(job), workers=job.cluster.workers, memory_limit_bytes=job.cluster.memory_limit
    )


class Workforce(Protocol):
    """What a plan asks of an executor."""

    @property
    def workers(self) -> int: ...

    @property
    def processes(self) -> int: ...

    @property
    def memory_bytes(self) -> int: ...

    @property
    def shares_memory(self) -> bool: ...


@dataclass(frozen=True)
class Crew:
    """Workers that are not there yet: single-threaded processes with the usual memory."""

    workers: int
    shares_memory: bool = False

    @property
    def processes(self) -> int:
        """As many as workers."""
        return self.workers

    @property
    def memory_bytes(self) -> int:
        """Memory of all of them."""
        return WORKER_JOB_BYTES * self.workers


def memory_limit(job: Job, workforce: Workforce) -> int | None:
    """Bytes that all workers together may allocate; None leaves it to the free memory of this machine.

    The limit of a job is that of a worker; threads of one process are one worker.
    """
    limit = job.cluster.memory_limit
    return limit if limit is None else limit * workforce.processes


def scheduler_of(job: Job) -> str:
    """Where the work is done: the job file, else ``DASK_SCHEDULER_ADDRESS``, else this process."""
    return job.cluster.scheduler or os.environ.get("DASK_SCHEDULER_ADDRESS") or "local"
