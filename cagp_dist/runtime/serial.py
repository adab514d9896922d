"""The reference executor: every task runs at once, in the order it was submitted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar, cast

from cagp_dist.memory import available_bytes
from cagp_dist.runtime.counting import count
from cagp_dist.runtime.executor import Handle

T = TypeVar("T")


@dataclass(frozen=True)
class Value(Generic[T]):
    """A handle whose value is there."""

    value: T

    def result(self) -> T:
        """Return the value."""
        return self.value


@dataclass(frozen=True)
class SerialExecutor:
    """Runs each task when it is submitted, in the calling thread."""

    workers: ClassVar[int] = 1
    processes: ClassVar[int] = 1
    description: ClassVar[str] = "serial"
    dashboard: ClassVar[str | None] = None
    shares_memory: ClassVar[bool] = True
    spill_bytes: ClassVar[int] = 0

    @property
    def memory_bytes(self) -> int:
        """What can be allocated now."""
        return available_bytes()

    def submit(
        self, function: Callable[..., T], *arguments: object, priority: int = 0, home: int = 0
    ) -> Handle[T]:
        """Run ``function`` now."""
        count(tasks=1)
        return Value(function(*[_value(argument) for argument in arguments]))

    def gather(self, handles: Sequence[Handle[T]]) -> list[T]:
        """Return the values."""
        return [handle.result() for handle in handles]

    def sent_bytes(self) -> int:
        """Return 0: there is nobody else."""
        return 0


def _value(argument: object) -> object:
    if isinstance(argument, Value):
        return cast("Value[object]", argument).value
    if isinstance(argument, list):
        return [_value(item) for item in argument]
    return argument
