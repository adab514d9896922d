"""Where tasks run: in this thread, in threads of this process, or on a Dask cluster."""

from cagp_dist.runtime.executor import (
    Executor,
    ExecutorLike,
    Handle,
    SerialExecutor,
    blas_threads_for,
    single_threaded_blas,
    single_threaded_steps,
)
from cagp_dist.runtime.schedulers import executor_from, given_or_threads, open_executor
from cagp_dist.runtime.threads import ThreadExecutor

__all__ = [
    "Executor", "ExecutorLike", "Handle", "SerialExecutor", "ThreadExecutor", "blas_threads_for",
    "executor_from", "given_or_threads", "open_executor", "single_threaded_blas", "single_threaded_steps"
]  # fmt: skip
