"""Threads of this process: tasks start when their arguments are there, the most urgent first.

Unlike that of `concurrent.futures` a task may wait for others without holding a thread, and the update of the
next block overtakes the others (look-ahead). A task whose handle was dropped is not run.
"""

import heapq
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Self, TypeVar, cast

from cagp_dist.checks import check_count
from cagp_dist.errors import ArgumentError
from cagp_dist.runtime.counting import count
from cagp_dist.runtime.executor import Handle, InThisProcess, single_threaded_blas

T = TypeVar("T")

_CLOSED = "the thread pool is not open"


Entry = tuple[int, int, "weakref.ref[ThreadTask[object]]"]  # urgency, order, task


class ThreadTask(Generic[T]):
    """A function call that runs once its arguments are there; also the handle of its value."""

    __slots__ = (
        "__weakref__",
        "_arguments",
        "_error",
        "_executor",
        "_function",
        "_value",
        "awaited",
        "dependents",
        "done",
        "missing",
    )

    def __init__(
        self, executor: "ThreadExecutor", function: Callable[..., T], arguments: tuple[object, ...]
    ) -> None:
        self._executor = executor
        self._function: Callable[..., T] | None = function
        self._arguments = arguments
        self._value: T | None = None
        self._error: BaseException | None = None
        self.dependents: list[Entry] = []
        self.missing = 0
        self.awaited = False  # whether somebody sleeps until it is done
        self.done = False

    def run(self) -> None:
        """Call the function; keep its value or its error, and let go of the arguments."""
        assert self._function is not None
        try:
            self._value = self._function(*[_value(argument) for argument in self._arguments])
        except BaseException as error:  # a worker thread must hand every error to whoever gathers
            self._error = error
        self._function, self._arguments = None, ()

    def value(self) -> T:
        """Return the value of a task that is done, or raise its error."""
        if self._error is not None:
            raise self._error
        return cast("T", self._value)

    def result(self) -> T:
        """Wait for the value and return it, or raise what the function raised."""
        self._executor.wait(self)
        return self.value()


class ThreadExecutor(InThisProcess):
    """A pool of threads with priorities and dependencies; use as a context manager."""

    def __init__(self, workers: int | None = None) -> None:
        check_count("workers", 1 if workers is None else workers, least=1)
        self.workers = usable_cores() if workers is None else workers
        self.description = f"{self.workers} thread{'s' if self.workers > 1 else ''}"
        self._ready: list[Entry] = []
        self._submitted = 0
        # threads of the pool sleep until there are tasks, others until what they gather is there: all would
        # else be woken for every task
        lock = threading.RLock()
        self._changed, self._finished = threading.Condition(lock), threading.Condition(lock)
        self._open = False
        self._threads: list[threading.Thread] = []  # each starts with a task: a small solve needs few

    def __enter__(self) -> Self:
        self._open = True
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._open = False
            self._ready.clear()
            self._changed.notify_all()
            self._finished.notify_all()
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def submit(
        self, function: Callable[..., T], *arguments: object, priority: int = 0, home: int = 0
    ) -> Handle[T]:
        """Queue ``function``; see `cagp_dist.runtime.executor.Executor.submit`."""
        count(tasks=1)
        task: ThreadTask[T] = ThreadTask(self, function, arguments)
        with self._changed:
            if not self._open:
                raise ArgumentError(
                    f"{_CLOSED}; use it inside `with ThreadExecutor() as executor:`.", key="executor-closed"
                )
            if len(self._threads) < self.workers:
                name = f"cagp-{len(self._threads)}"
                self._threads.append(threading.Thread(target=self._work, name=name, daemon=True))
                self._threads[-1].start()
            entry: Entry = (-priority, self._submitted, weakref.ref(cast("ThreadTask[object]", task)))
            self._submitted += 1
            for needed in _tasks(arguments):
                if not needed.done:
                    needed.dependents.append(entry)
                    task.missing += 1
            if task.missing == 0:
                heapq.heappush(self._ready, entry)
                self._changed.notify()
        return task

    def wait(self, task: ThreadTask[T]) -> None:
        """Block until ``task`` is done; a closed pool never gets to it."""
        with self._finished:
            task.awaited = True
            self._finished.wait_for(lambda: task.done or not self._open)
            if not task.done:
                raise ArgumentError(f"{_CLOSED}; the task was never run.", key="executor-closed")

    def _work(self) -> None:
        while (task := self._next()) is not None:
            # tasks go on while whoever gathers them looks at a step, outside of its own limit
            with single_threaded_blas():
                task.run()
            self._finish(task)
            del task  # else an idle thread would keep the last value alive

    def _next(self) -> ThreadTask[object] | None:
        """Wait for the most urgent ready task that is still wanted; None when the pool closes."""
        with self._changed:
            while True:
                self._changed.wait_for(lambda: not self._open or bool(self._ready))
                if not self._open:
                    return None
                if (task := heapq.heappop(self._ready)[2]()) is not None:
                    return task

    def _finish(self, task: ThreadTask[object]) -> None:
        """Mark a task as done and queue those that waited for it alone."""
        with self._changed:
            task.done, ready = True, 0
            for entry in task.dependents:
                if (waiting := entry[2]()) is None:
                    continue
                waiting.missing -= 1
                if waiting.missing == 0:
                    heapq.heappush(self._ready, entry)
                    ready += 1
            task.dependents = []
            self._changed.notify(max(ready - 1, 0))  # this thread takes the first
            if task.awaited:
                self._finished.notify_all()


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _tasks(arguments: Sequence[object]) -> Iterator[ThreadTask[object]]:
    for argument in arguments:
        if isinstance(argument, ThreadTask):
            yield argument
        elif isinstance(argument, list):
            yield from _tasks(argument)


def _value(argument: object) -> object:
    if isinstance(argument, ThreadTask):
        return cast("ThreadTask[object]", argument).value()
    if isinstance(argument, list):
        return [_value(item) for item in argument]
    return argument
