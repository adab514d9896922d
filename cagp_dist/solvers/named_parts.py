"""Solvers made of others: what they are by their parts, and parts in a text, names and numbers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from cagp_dist.errors import ArgumentError
from cagp_dist.solvers.interface import Calibrated

T = TypeVar("T")


class SolverPart(Protocol):
    """What a solver has to say of itself to be a part of another."""

    @property
    def calibrated(self) -> Calibrated: ...

    @property
    def many_fields(self) -> bool: ...


class MadeOfParts(ABC):
    """A solver that is as good as the worst of its parts."""

    @property
    @abstractmethod
    def _solvers(self) -> Sequence[SolverPart]: ...

    @property
    def calibrated(self) -> Calibrated:
        """``"exact"`` if no part depends on the data, else ``"approximate"``."""
        return "exact" if all(part.calibrated == "exact" for part in self._solvers) else "approximate"

    @property
    def many_fields(self) -> bool:
        """Whether fields observed at the same points share a solve: if no part follows the residual."""
        return all(part.many_fields for part in self._solvers)


def parts_of_text(
    text: str, make: Mapping[str, Callable[[int], T]], *, numbers: str, example: str
) -> list[T]:
    """Make the parts of a text like ``"block-gauss-seidel 2, conjugate-gradient 20"``."""
    parts = []
    for part in text.split(","):
        name, _, count = part.strip().partition(" ")
        if name not in make or not count.strip().isdecimal():
            raise ArgumentError(
                f"parts is {text!r}, with {part.strip()!r}; expected names and numbers of {numbers} like "
                f'"{example}". Names are {", ".join(make)}.',
                key="parts-of-solver",
            )
        parts.append(make[name](int(count)))
    return parts
