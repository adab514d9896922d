"""Workers as users have them: none, the name of a scheduler, a Dask client, or an executor."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias, cast

from cagp_dist.errors import ArgumentError
from cagp_dist.runtime import Executor, ThreadExecutor, open_executor

# An object is a ``distributed.Client`` or a Dask cluster, whose module only `cagp_dist.runtime.dask` may
# import
Workers: TypeAlias = Executor | str | object | None


@contextmanager
def open_workers(given: Workers) -> Iterator[Executor]:
    """Open the executor that is meant; what was given open stays open."""
    if given is None:
        with ThreadExecutor() as executor:
            yield executor
    elif isinstance(given, str):
        with open_executor(given) as executor:
            yield executor
    elif any(base.__module__.partition(".")[0] == "distributed" for base in type(given).__mro__):
        from cagp_dist.runtime.dask import executor_of

        with executor_of(given) as executor:
            yield executor
    elif callable(getattr(given, "gather", None)):
        yield cast("Executor", given)
    else:
        raise ArgumentError(
            f"executor is {given!r}; expected a distributed.Client, a Dask cluster, the address of a Dask "
            'scheduler, "local", "serial", or an executor of cagp.open_executor.'
        )
