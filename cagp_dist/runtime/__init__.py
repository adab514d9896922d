"""Where tasks run: in this thread, in threads of this process, or on a Dask cluster."""

from cagp_dist.runtime.executor import (
    Executor,
    Handle,
    SerialExecutor,
    blas_threads_for,
    single_threaded_blas,
    single_threaded_steps,
)
from cagp_dist.runtime.schedulers import open_executor
from cagp_dist.runtime.threads import ThreadExecutor, given_or_threads

__all__ = [
    "Executor", "Handle", "SerialExecutor", "ThreadExecutor", "blas_threads_for", "given_or_threads",
    "open_executor", "single_threaded_blas", "single_threaded_steps"
]  # fmt: skip
