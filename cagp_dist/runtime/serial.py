"""The reference executor: every task runs at once, in the order it was submitted."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar, cast

from cagp_dist.runtime.counting import count
from cagp_dist.runtime.executor import Handle, InThisProcess

T = TypeVar("T")


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
