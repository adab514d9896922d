"""Where tasks run: in this thread, in threads of this process, or on a Dask cluster."""

from collections.abc import Iterator
from contextlib import contextmanager

from cagp_dist.errors import ConfigurationError
from cagp_dist.runtime.base import Executor, Handle, blas_threads_for, single_threaded_blas
from cagp_dist.runtime.serial import SerialExecutor
from cagp_dist.runtime.threads import ThreadExecutor

__all__ = [
    "Executor",
    "Handle",
    "SerialExecutor",
    "ThreadExecutor",
    "blas_threads_for",
    "open_executor",
    "single_threaded_blas",
]


@contextmanager
def open_executor(
    scheduler: str = "local", *, workers: int | None = None, memory_limit_bytes: int | None = None
) -> Iterator[Executor]:
    """Open the executor that a scheduler name stands for.

    Parameters
    ----------
    scheduler : str
        ``local`` (threads of this process), ``serial``, ``tcp://host:port``, the path of a Dask
        scheduler file ending in ``.json``, ``slurm`` or ``pbs``.
    workers : int, optional
        Threads (``local``; default: all cores) or worker jobs (``slurm``, ``pbs``; default 2).
    memory_limit_bytes : int, optional
        Memory of a worker job (``slurm``, ``pbs``).

    Yields
    ------
    Executor
        Closed when the context ends; a cluster that was only connected to keeps running.

    Raises
    ------
    ConfigurationError
        If the name means nothing.
    ClusterError
        If the scheduler does not answer.

    Examples
    --------
    >>> from cagp_dist.runtime import open_executor
    >>> with open_executor("serial") as executor:
    ...     executor.gather([executor.submit(pow, 2, 10)])
    [1024]
    """
    if scheduler == "serial":
        yield SerialExecutor()
    elif scheduler == "local":
        with ThreadExecutor(workers) as executor:
            yield executor
    elif scheduler in ("slurm", "pbs") or "://" in scheduler or scheduler.endswith(".json"):
        from cagp_dist.runtime.dask import connect

        with connect(scheduler, workers=workers, memory_limit_bytes=memory_limit_bytes) as cluster:
            yield cluster
    else:
        raise ConfigurationError(
            f'scheduler is "{scheduler}"; expected "local", "serial", "tcp://host:port", '
            'a scheduler file ending in ".json", "slurm" or "pbs".'
        )
