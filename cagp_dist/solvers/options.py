"""What the settings of solvers say of themselves, as metadata of their dataclass fields.

The keys of ``[solver]`` in a job file, their errors and their reference are made from the fields of the
class: name, type, default, and these entries, each of which may be left out::

    description   what is expected; else it is made from the type and the limits
    least, most   limits, themselves allowed
    above, below  limits, themselves not allowed
    example       a valid value
    job_default   default of a job file where the class has none

A field whose type is not int, float, bool or str, or one of them or None, is no key of a job file.

Examples
--------
>>> from dataclasses import dataclass, field
>>> @dataclass(frozen=True)
... class SOR:
...     iterations: int = field(metadata=ITERATIONS)
...     relaxation: float = field(metadata={"above": 0.0, "below": 2.0, "example": 1.5})
"""

from collections.abc import Mapping

ITERATIONS: Mapping[str, object] = {
    "description": "an integer of at least 0 (0 is the prior)",
    "least": 0,
    "most": 1_000_000,
    "example": 5,
    "job_default": 5,
}
BLOCK_SIZE: Mapping[str, object] = {"least": 1, "most": 10**9, "example": 1024}
SEED: Mapping[str, object] = {"least": 0, "most": 2**63 - 1, "example": 0}
RELAXATION: Mapping[str, object] = {"above": 0.0, "below": 2.0, "example": 1.5}
DAMPING: Mapping[str, object] = {"above": 0.0, "example": 0.1}
