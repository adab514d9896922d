"""What to change where work does not fit or fails: the argument in Python, and the key of a job file."""

import sys
from collections.abc import Iterable
from enum import Enum
from typing import Self


class Remedy(Enum):
    """One way out, as the end of "to go on, ...": in Python, and in job files, which may have none."""

    MORE_MEMORY = ("raise memory_limit_bytes", "raise [cluster] memory_limit")
    LARGER_WORKERS = ("give the workers more memory", "give the workers more memory")
    FEWER_WORKERS = ("use fewer workers", "lower [cluster] workers")
    SMALLER_BLOCKS = ("lower block_size", "lower [solver] block_size")
    FEWER_ITERATIONS = ("lower iterations", "lower [solver] iterations")
    BLOCK_GAUSS_SEIDEL = ("use BlockGaussSeidel", 'use [solver] name = "block-gauss-seidel"')
    FEWER_TEST_POINTS = (
        "ask for fewer test points",
        "lower [design] test.count or raise [design] map.resolution_degrees",
    )
    SMALLER_REGIONS = ("ask for smaller chunks of the map", None)
    FROM_STORE = ("use krige_store, which has no more of a map in memory than its tasks need", None)
    VARIANCES_ALONE = ('ask for covariance="diagonal"', None)
    COARSER_GRID = ("use a coarser grid", "raise [observations] grid_degrees")
    FEWER_OBSERVED = ("fit on fewer points", "lower [design] train.count")
    FEWER_FIELDS = ("fit on fewer fields", "list fewer [observations] times")
    VECCHIA = ('use method="vecchia"', None)
    PATHWISE = ('use method="pathwise"', None)
    FEWER_ACTIONS = ("give fewer actions", "lower [solver] actions")
    MORE_ACTIONS = ("give more actions", "raise [solver] actions")
    OTHER_MODEL = ("try another kernel or mean", "try another [prior] kernel or mean")
    MORE_POINTS = ("give more or closer points", "observe more or closer points ([design] train)")
    WIDER_BOUNDS = ("widen its bounds", None)
    EQUAL_BOUNDS = ("fix a parameter with equal bounds", None)
    START_HERE = ("start from this result", None)
    MORE_STARTS = ("give more starts", None)
    MORE_STEPS = ("give more steps", None)
    LONGER_WINDOW = ("let it rise over a longer window, or by less", None)
    HIGHER_NOISE_BOUND = ("with the pathwise method raise the lower bound of the noise", None)
    SAME_POINTS = ("leave out points that some fields lack", 'write gaps = "drop" in [observations]')
    THINNED_GRID = ("fit on every other row and column", "raise [observations] grid_degrees")

    def __init__(self, in_python: str, in_job: str | None) -> None:
        self.in_python = in_python
        self.in_job = in_job


def advice(remedies: Iterable[Remedy], *, in_job: bool = False) -> str:
    """Write remedies as a sentence, or nothing if there are none."""
    ways = [remedy.in_job if in_job else remedy.in_python for remedy in remedies]
    texts = list(dict.fromkeys(way for way in ways if way is not None))
    if not texts:
        return ""
    sentence = texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])}, or {texts[-1]}"
    return f"{sentence[0].upper()}{sentence[1:]}."


class AdvisedStatus(Enum):
    """How work ended: a word for programs, what it means and what to do about it for people."""

    meaning: str
    """What this means."""

    remedies: tuple[Remedy, ...]
    """What to do."""

    def __new__(cls, value: str, meaning: str, *remedies: Remedy) -> Self:
        """Give a member the word as its value."""
        status = object.__new__(cls)
        status._value_, status.meaning, status.remedies = value, meaning, remedies
        return status

    @property
    def advice(self) -> str:
        """What this means and what to do."""
        return f"{self.meaning} {advice(self.remedies)}".rstrip()


def installation(extra: str) -> str:
    """Command that adds an extra to this package where it is installed, from a wheel or from a clone."""
    python = f'"{sys.executable}"' if " " in sys.executable else sys.executable
    return f"{python} -m pip install 'cagp-dist[{extra}]'"
