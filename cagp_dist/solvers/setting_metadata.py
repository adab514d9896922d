"""What describes the settings of solvers: metadata of their dataclass fields.

The keys of ``[solver]`` in a job file, their errors and their reference are made from the fields of the
class: name, type, default, and these entries, all of them optional::

    description   what is expected; by default made from the type and the limits
    least, most   limits, which are allowed values
    above, below  limits, which are not allowed values
    example       a valid value
    job_default   default of a job file where the class has none
    job           whether it is a key of job files (yes, where nothing is said)
    later         whether it came when jobs without it had run: at its default it is left out of their names

A field becomes a key of a job file if its type is int, float, bool or str, or one of these or None, or one of
a few words (Literal).
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from cagp_dist.checks import check_between, check_count, check_positive

ITERATIONS: Mapping[str, object] = {
    "description": "an integer of at least 0 (0 is the prior)",
    "least": 0,
    "most": 1_000_000,
    "example": 5,
    "job_default": 5,
}
BLOCK_SIZE: Mapping[str, object] = {"least": 1, "most": 10**9, "example": 1024}
COARSE: Mapping[str, object] = {"least": 1, "most": 100_000, "example": 256}
SEED: Mapping[str, object] = {"least": 0, "most": 2**63 - 1, "example": 0}
RELAXATION: Mapping[str, object] = {"above": 0.0, "below": 2.0, "example": 1.5}
DAMPING: Mapping[str, object] = {"above": 0.0, "example": 0.1}
STEP: Mapping[str, object] = {
    "description": "a number above 0, in one over the unit of the variance",
    "above": 0.0,
    "example": 0.001,
}
ORDER: Mapping[str, object] = {"description": '"given" or "random"', "later": True}
BLOCK_ORDER: Mapping[str, object] = {
    "description": '"given", "random" or "multicolour"',
    "later": True,
}
COLOURS: Mapping[str, object] = {"least": 2, "most": 10**9, "example": 4, "later": True}
ORDER_SEED: Mapping[str, object] = {**SEED, "later": True}
PRECONDITIONER: Mapping[str, object] = {
    "description": '"pivoted-cholesky", "nystrom" or "vecchia"',
    "later": True,
}
PRECONDITIONER_SIZE: Mapping[str, object] = {"least": 1, "most": 10**9, "later": True}
COMPUTATIONAL_SHARE: Mapping[str, object] = {
    "later": True,
    "description": "a number above 0 and below 1: the part of a variance that may be unfinished computation",
    "above": 0.0,
    "below": 1.0,
    "example": 0.05,
}


def check_settings(solver: Any) -> None:
    """Raise `ArgumentError` unless all settings are within their limits; None where it is the default."""
    for each in fields(solver):
        value, limits = getattr(solver, each.name), each.metadata
        if value is None and each.default is None:
            continue
        if "above" in limits and "below" in limits:
            check_between(each.name, value, limits["above"], limits["below"])
        elif "above" in limits:
            check_positive(each.name, value)
        elif "least" in limits:
            check_count(each.name, value, least=limits["least"])
