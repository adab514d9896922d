"""Solvers made of others, in a text: names and numbers, one after the other."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from cagp_dist.errors import ArgumentError

T = TypeVar("T")


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
                f'"{example}". Names are {", ".join(make)}.'
            )
        parts.append(make[name](int(count)))
    return parts
