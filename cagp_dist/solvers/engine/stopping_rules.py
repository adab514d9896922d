"""When the work on a group of targets ends: rules that combine with ``|``."""

import sys
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from cagp_dist.arrays import Array
from cagp_dist.solvers.status import Status
from cagp_dist.tiling import Range

AnyWork = TypeVar("AnyWork", contravariant=True)


class StoppingRule(ABC, Generic[AnyWork]):
    """Says of a group of targets whether it is left as it is; the data have no part in it (math 1.6)."""

    limit: int = sys.maxsize  # steps after which all groups end

    @property
    def status(self) -> Status | None:
        """How a solve would end here, if the rule has a word on that."""
        return None

    @abstractmethod
    def __call__(self, group: Range, downdate: Array, work: AnyWork, step: int) -> bool:
        """Whether a group with this downdate (columns,) and work ends after so many steps."""

    def __or__(self, other: "StoppingRule[Any]") -> "AnyOf":
        """End a group as soon as either rule says so."""
        return AnyOf(self, other)


class Iterations(StoppingRule[Any]):
    """All groups end after so many steps."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def __call__(self, group: Range, downdate: Array, work: object, step: int) -> bool:
        """Whether these are all."""
        return step >= self.limit


class AnyOf(StoppingRule[Any]):
    """A group ends as soon as one of two rules says so; both are asked every time."""

    def __init__(self, first: StoppingRule[Any], second: StoppingRule[Any]) -> None:
        self._rules = first, second
        self.limit = min(first.limit, second.limit)

    @property
    def status(self) -> Status | None:
        """That of the first rule that has one."""
        return next((rule.status for rule in self._rules if rule.status is not None), None)

    def __call__(self, group: Range, downdate: Array, work: Any, step: int) -> bool:
        """Whether one of them says so."""
        answers = [rule(group, downdate, work, step) for rule in self._rules]
        return any(answers)
