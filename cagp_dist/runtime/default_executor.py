"""What a call of the library runs on: the executor it was given, or threads of its own."""

from collections.abc import Iterator
from contextlib import contextmanager

from cagp_dist.checks import check_memory_limit
from cagp_dist.errors import ArgumentError
from cagp_dist.runtime.executor import Executor
from cagp_dist.runtime.threads import ThreadExecutor


@contextmanager
def given_or_threads(
    executor: Executor | None, memory_limit_bytes: int | None = None
) -> Iterator[tuple[Executor, int]]:
    """Give the executor, or all cores of this process for None, and the bytes that may be allocated."""
    check_memory_limit(memory_limit_bytes)
    if executor is None:
        with ThreadExecutor() as threads:
            yield threads, threads.memory_bytes if memory_limit_bytes is None else memory_limit_bytes
        return
    if not callable(getattr(executor, "gather", None)) or getattr(executor, "memory_bytes", None) is None:
        raise ArgumentError(
            f"executor is {executor!r}; expected one that is open: "
            '`with cagp_dist.open_executor("local") as executor:`.'
        )
    yield executor, executor.memory_bytes if memory_limit_bytes is None else memory_limit_bytes
