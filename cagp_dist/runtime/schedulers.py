"""The ways to get workers by the names that job files give them: a new one is a function and one line."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import cast

from cagp_dist.checks import check_memory_limit
from cagp_dist.errors import ArgumentError, ConfigurationError
from cagp_dist.runtime.batch_system import BATCH_SYSTEMS
from cagp_dist.runtime.dask import DaskExecutor, check_cluster, connect, executor_of
from cagp_dist.runtime.deadlines import Deadlines
from cagp_dist.runtime.executor import Executor, ExecutorLike, SerialExecutor
from cagp_dist.runtime.threads import ThreadExecutor
from cagp_dist.text import alternatives


@contextmanager
def open_executor(
    scheduler: str = "local",
    *,
    workers: int | None = None,
    threads: int = 1,
    memory_limit_bytes: int | None = None,
    deadlines: Deadlines | None = None,
    insecure: bool = False,
) -> Iterator[Executor]:
    """Open the executor that a scheduler name stands for.

    Parameters
    ----------
    scheduler : str
        ``local`` (threads of this process), ``serial``, ``tls://host:port`` (or ``tcp://``), the path of a
        Dask scheduler file ending in ``.json``, ``slurm`` or ``pbs``.
    workers : int, optional
        Threads (``local``; default: all cores) or worker jobs (``slurm``, ``pbs``; default 2).
    threads, memory_limit_bytes : int, optional
        Of a worker job (``slurm``, ``pbs``), whose threads share its memory.
    deadlines : Deadlines, optional
        When a Dask cluster that does not answer, or does nothing, is given up.
    insecure : bool
        Allow connections without encryption (``tcp://``) that leave this machine.

    Yields
    ------
    Executor
        Closed when the context ends; a cluster that was only connected to keeps running.

    Raises
    ------
    ConfigurationError
        If the name means nothing, or connections that leave this machine would not be encrypted.
    ClusterError
        If the scheduler does not answer.

    Examples
    --------
    >>> from cagp_dist.runtime import open_executor
    >>> with open_executor("serial") as executor:
    ...     executor.gather([executor.submit(pow, 2, 10)])
    [1024]
    """
    check_memory_limit(memory_limit_bytes)
    with find_scheduler(scheduler).open(
        scheduler,
        workers=workers,
        threads=threads,
        memory_limit_bytes=memory_limit_bytes,
        deadlines=deadlines,
        insecure=insecure,
    ) as executor:
        yield executor


@contextmanager
def executor_from(given: ExecutorLike, deadlines: Deadlines | None = None) -> Iterator[Executor]:
    """Open the executor that is meant, for None all cores of this process; what was given stays open."""
    if given is None:
        with ThreadExecutor() as executor:
            yield executor
    elif isinstance(given, str | os.PathLike):
        with open_executor(os.fspath(given), deadlines=deadlines) as executor:
            yield executor
    elif isinstance(given, DaskExecutor):
        with given.part() as executor:
            yield executor
    elif callable(getattr(given, "gather", None)) and hasattr(given, "memory_bytes"):
        yield cast("Executor", given)
    elif hasattr(given, "scheduler_info") or hasattr(given, "scheduler_address"):
        with executor_of(given, deadlines) as executor:
            yield executor
    else:
        raise ArgumentError(
            f"executor is {given!r}; expected a distributed.Client, a Dask cluster (LocalCluster, "
            "SLURMCluster, GatewayCluster ...), the address or file of a Dask scheduler, "
            '"local", "serial", or an executor of cagp.open_executor.',
            key="executor-type",
        )


@contextmanager
def given_or_threads(
    given: ExecutorLike, memory_limit_bytes: int | None = None
) -> Iterator[tuple[Executor, int]]:
    """Give the executor that is meant, and the bytes that may be allocated on it."""
    check_memory_limit(memory_limit_bytes)
    with executor_from(given) as executor:
        yield executor, executor.memory_bytes if memory_limit_bytes is None else memory_limit_bytes


@dataclass(frozen=True)
class Scheduler:
    """A way to get workers."""

    open: Callable[..., AbstractContextManager[Executor]]  # takes the arguments of `open_executor`
    # Takes the name, and whether plain TCP may leave this machine; raises `ClusterError` or
    # `ConfigurationError` if there is no such cluster to be had
    check: Callable[[str, bool], None] = lambda name, insecure: None
    # Whether the workers are jobs of a batch system, which wait in a queue and are paid for
    batch: bool = False


def find_scheduler(name: str) -> Scheduler:
    """Find a scheduler by its name, address or file; raises `ConfigurationError` for any other text."""
    if name in SCHEDULERS:
        return SCHEDULERS[name]
    if "://" in name or name.endswith(".json"):
        return _RUNNING
    raise ConfigurationError(
        f'scheduler is "{name}"; expected {EXPECTED_SCHEDULER}.', key="scheduler-unknown"
    )


_RUNNING = Scheduler(connect, check_cluster)  # a Dask cluster that runs already

SCHEDULERS: dict[str, Scheduler] = {
    "local": Scheduler(lambda name, *, workers, **_: ThreadExecutor(workers)),
    "serial": Scheduler(lambda name, **_: nullcontext(SerialExecutor())),
    **{name: Scheduler(connect, check_cluster, batch=True) for name in BATCH_SYSTEMS},
}

EXPECTED_SCHEDULER = alternatives(
    [*SCHEDULERS, "tcp://HOST:PORT", "tls://HOST:PORT"], 'a scheduler file that ends in ".json"'
)
"""What a scheduler may be, for errors and references."""
