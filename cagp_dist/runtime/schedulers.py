"""The ways to get workers by the names that job files give them: a new one is a function and one line."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from cagp_dist.checks import check_memory_limit
from cagp_dist.errors import ConfigurationError
from cagp_dist.runtime.batch_system import BATCH_SYSTEMS
from cagp_dist.runtime.dask import check_cluster, connect
from cagp_dist.runtime.deadlines import Deadlines
from cagp_dist.runtime.executor import Executor, SerialExecutor
from cagp_dist.runtime.threads import ThreadExecutor
from cagp_dist.text import alternatives


@contextmanager
def open_executor(
    scheduler: str = "local",
    *,
    workers: int | None = None,
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
    memory_limit_bytes : int, optional
        Memory of a worker job (``slurm``, ``pbs``).
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
        memory_limit_bytes=memory_limit_bytes,
        deadlines=deadlines,
        insecure=insecure,
    ) as executor:
        yield executor


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
    raise ConfigurationError(f'scheduler is "{name}"; expected {EXPECTED_SCHEDULER}.')


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
