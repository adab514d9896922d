"""What to change where work does not fit or fails: the argument in Python, and the key of a job file."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Self


class Remedy(Enum):
    """One way out, as the end of "to go on, ...": in Python, and in job files, which may have none."""

    MORE_MEMORY = ("raise memory_limit_bytes", "raise [cluster] memory_limit")
    LARGER_WORKERS = ("give the workers more memory", "give the workers more memory")
    FEWER_WORKERS = ("use fewer workers", "lower [cluster] workers")
    SMALLER_BLOCKS = ("lower block_size", "lower [solver] block_size")
    FEWER_ITERATIONS = ("lower iterations", "lower [solver] iterations")
    MORE_TIME = (
        "raise time_limit_seconds, or give None",
        "start the same job again with more workers, or raise [runtime] total_seconds or --time-limit",
    )
    NEIGHBOURS = ("use solver=cagp.Neighbours()", 'use [solver] name = "neighbours"')
    FEWER_TEST_POINTS = (
        "ask for fewer test points",
        "lower [design] test.count or raise [design] map.resolution_degrees",
    )
    SMALLER_REGIONS = ("ask for smaller chunks of the map", None)
    FROM_STORE = ("use krige_store, which has no more of a map in memory than its tasks need", None)
    ERRORS_FROM_NEAR = (
        'use solver=cagp.Neighbours(shared_errors="near"), whose error bars are wider',
        'write shared_errors = "near" in [solver], whose error bars are wider',
    )
    VARIANCES_ALONE = ('ask for covariance="diagonal"', None)
    COARSER_GRID = ("use a coarser grid", "raise [observations] grid_degrees")
    FEWER_OBSERVED = ("fit on fewer points", "lower [design] train.count")
    VECCHIA = ('use method="vecchia"', None)
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
    SAME_POINTS = ("leave out points that some fields lack", 'write gaps = "drop" in [observations]')
    COVARIATE_MARKS = ("say cagp_dist.covariate(field, missing=...)", "write covariates_missing in [prior]")
    THINNED_GRID = ("fit on every other row and column", "raise [observations] grid_degrees")

    def __init__(self, in_python: str, in_job: str | None) -> None:
        self.in_python = in_python
        self.in_job = in_job


_NAMES_IN_JOBS = {"value": "variable"}
_TABLES_IN_JOBS = {"transform": "prior", "outliers": "prior", "anisotropy": "prior"}  # not [observations]
_ONLY_IN_CALLS = ("at",)
_IN_WHERE = ("times", "area", "grid_degrees", "check_range")  # keys of a job that `krige` takes in ``where``


@dataclass(frozen=True)
class Setting:
    """One way out: an argument of `krige` with the value that helps, or that key of ``[observations]``."""

    name: str  # of the argument, such as ``"where"``
    value: object  # that helps: texts, numbers, sequences and mappings of them; objects for calls alone
    so_that: str = ""  # what it does, behind the setting, such as "if they were observed"

    @property
    def in_python(self) -> str:
        """Write it as an argument."""
        name, value = (
            ("where", {self.name: self.value}) if self.name in _IN_WHERE else (self.name, self.value)
        )
        return f"say {name}={_in_python(value)} {self.so_that}".rstrip()

    @property
    def in_job(self) -> str | None:
        """Write it as a key of a job file; None where a job has none, or not this value."""
        if self.name in _ONLY_IN_CALLS or not isinstance(self.value, str | float | int | Sequence | Mapping):
            return None
        name, table = _NAMES_IN_JOBS.get(self.name, self.name), _TABLES_IN_JOBS.get(self.name, "observations")
        return f"write {name} = {_in_toml(self.value)} in [{table}] {self.so_that}".rstrip()


def _in_python(value: object) -> str:
    """Write a value as Python has it."""
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_in_python(key)}: {_in_python(held)}' for key, held in value.items())}}}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_in_python, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _in_toml(value: object) -> str:
    """Write a value as TOML has it."""
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, Mapping):
        pairs = (f"{_toml_key(str(key))} = {_in_toml(held)}" for key, held in value.items())
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_in_toml, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _toml_key(key: str) -> str:
    bare = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return key if bare else json.dumps(key, ensure_ascii=False)


def advice(remedies: Iterable[Remedy | Setting], *, in_job: bool = False) -> str:
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
