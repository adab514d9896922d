"""What the solvers ask of an executor: submit a function of arrays, use its handle, gather.

`SerialExecutor` is the reference; `ThreadExecutor` and `DaskExecutor` give the same bits. Dropping a handle
releases its value.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeAlias, TypeVar, cast

from cagp_dist.memory import available_bytes
from cagp_dist.runtime.counting import count

if TYPE_CHECKING:
    from threadpoolctl import LibController

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Handle(Protocol[T_co]):
    """A value that is being computed, or is there."""

    def result(self) -> T_co: ...  # waits; raises what the function raised


class Executor(Protocol):
    """Runs pure functions of NumPy arrays.

    Attributes
    ----------
    workers : int
        Tasks that run at once.
    description : str
        For people: "2 threads", "Dask cluster tcp://... with 4 workers".
    dashboard : str or None
        Address of the dashboard, where there is one.
    processes : int
        Processes that hold data: 1, or the number of Dask workers.
    memory_bytes : int
        What a solve may allocate, over all processes, where nothing else was said.
    spill_bytes : int
        What workers may put on disks where their memory does not hold it.
    shares_memory : bool
        Whether handles cost nothing to pass around (then tiles may be kept, see `cagp_dist.budget`).
    """

    @property
    def workers(self) -> int: ...

    @property
    def description(self) -> str: ...

    @property
    def dashboard(self) -> str | None: ...

    @property
    def processes(self) -> int: ...

    @property
    def memory_bytes(self) -> int: ...

    @property
    def spill_bytes(self) -> int: ...

    @property
    def shares_memory(self) -> bool: ...

    def submit(
        self, function: Callable[..., T], *arguments: object, priority: int = 0, home: int = 0
    ) -> Handle[T]:
        """Run ``function(*arguments)`` once the handles among the arguments have their values."""
        ...

    def gather(self, handles: Sequence[Handle[T]]) -> list[T]:
        """Wait for the values, in order."""
        ...

    def sent_bytes(self) -> int:
        """Bytes that worker processes have sent so far, to each other and back."""
        ...


# What users give: nothing (all cores of this process), the name, address or file of a scheduler, an executor,
# or a Dask client or cluster, an object of libraries that only `cagp_dist.runtime.dask` may import
ExecutorLike: TypeAlias = Executor | str | os.PathLike[str] | object | None


class InThisProcess:
    """What executors have in common whose workers have the memory of this process."""

    processes: ClassVar[int] = 1
    dashboard: ClassVar[str | None] = None
    shares_memory: ClassVar[bool] = True
    spill_bytes: ClassVar[int] = 0

    @property
    def memory_bytes(self) -> int:
        """What can be allocated now."""
        return available_bytes()

    def gather(self, handles: Sequence[Handle[T]]) -> list[T]:
        """Wait for the values, in order."""
        return [handle.result() for handle in handles]

    def sent_bytes(self) -> int:
        """Return 0: there is nobody else."""
        return 0


@lru_cache(maxsize=1)
def _blas_libraries() -> "list[LibController]":
    # The BLAS that compiled code calls is SciPy's; it must be loaded before it can be limited.
    import scipy.linalg.cython_blas  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


def _set_blas_threads(threads: "list[tuple[LibController, int]]") -> None:
    """Set threads of libraries, whichever thread asks: threadpoolctl heeds only the first, in silence."""
    from threadpoolctl import OpenBLASController

    if threads:
        OpenBLASController.clear_controlling_thread(force=True)
        for library, number in threads:
            library.set_num_threads(number)
        OpenBLASController.clear_controlling_thread(force=True)


class _BlasLimit:
    """One limit for all solves of the process that overlap; lifted when the last one ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._lifted: list[tuple[LibController, int]] = []  # threads of libraries that have more than one

    @contextmanager
    def held(self) -> Iterator[None]:
        with self._lock:
            if self._users == 0:
                found = [(library, library.get_num_threads()) for library in _blas_libraries()]
                self._lifted = [(library, number) for library, number in found if number != 1]
                _set_blas_threads([(library, 1) for library, _ in self._lifted])
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    _set_blas_threads(self._lifted)


_blas_limit = _BlasLimit()


def single_threaded_blas() -> AbstractContextManager[None]:
    """One BLAS thread while tasks run: tasks are the parallelism, and splits must not change bits."""
    return _blas_limit.held()


def single_threaded_steps(steps: Iterator[T]) -> Iterator[T]:
    """Yield what ``steps`` yields, each step with one BLAS thread; between them others have all threads."""
    while True:
        with single_threaded_blas():
            try:
                step = next(steps)
            except StopIteration:
                return
        yield step


FEWEST_FOR_THREADS = 2048  # rows of a matrix from which several BLAS threads are quicker than one


def blas_threads_for(size: int) -> AbstractContextManager[None]:
    """One BLAS thread while matrices of ``size`` rows are worked on if they are small, else all of them.

    The last bits of a large factor depend on the number of threads; what promises the same bits for every
    number of workers uses `single_threaded_blas`.
    """
    return single_threaded_blas() if size < FEWEST_FOR_THREADS else nullcontext()


@dataclass(frozen=True)
class Value(Generic[T]):
    """A handle whose value is there."""

    value: T

    def result(self) -> T:
        """Return the value."""
        return self.value


@dataclass(frozen=True)
class SerialExecutor(InThisProcess):
    """Runs each task when it is submitted, in the calling thread."""

    workers: ClassVar[int] = 1
    description: ClassVar[str] = "serial"

    def submit(
        self, function: Callable[..., T], *arguments: object, priority: int = 0, home: int = 0
    ) -> Handle[T]:
        """Run ``function`` now."""
        count(tasks=1)
        return Value(function(*[_value(argument) for argument in arguments]))


def _value(argument: object) -> object:
    if isinstance(argument, Value):
        return cast("Value[object]", argument).value
    if isinstance(argument, list):
        return [_value(item) for item in argument]
    return argument
