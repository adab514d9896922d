"""How many calibration points levels need: ``1 / min(level, 1 - level)``, in each part of a split."""

from collections.abc import Sequence
from math import ceil


def fewest(level: float) -> int:
    """Fewest calibration points that resolve a level: ``1 / min(level, 1 - level)``, rounded up."""
    return max(2, ceil(1.0 / min(level, 1.0 - level) - 1e-9))


def outermost(levels: Sequence[float]) -> float:
    """Level that needs the most calibration points."""
    return min(levels, key=lambda level: min(level, 1.0 - level))
