"""What tables of a job file have in common: their base, and kinds of values that several have.

Error messages are made of a field's ``description`` and its first example, a valid value.
"""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator

from cagp_dist.service.jobfile import values
from cagp_dist.service.jobfile.times_key import TimeRule
from cagp_dist.service.jobfile.times_key import times as check_times

LARGEST_COUNT = 10**9


class JobTable(BaseModel):
    """A table of the job file: unknown keys, wrong types, NaN and infinity are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def key(default: Any, description: str, example: Any = None, **limits: Any) -> Any:
    """Give a key of a table its default (``...`` for none), what is expected there, and an example."""
    return Field(default, description=description, examples=None if example is None else [example], **limits)


Times = Annotated[tuple[str, ...] | TimeRule, PlainValidator(check_times)]
Area = Annotated[
    tuple[float, float, float, float], BeforeValidator(values.as_tuple), AfterValidator(values.area)
]
AREA = Field(
    description="four numbers in degrees, [north, west, south, east]", examples=[[60.0, -10.0, 30.0, 40.0]]
)
SEED = Field(description="an integer of at least 0", examples=[0], ge=0, le=2**63 - 1)
DEGREES = Field(description="a number of degrees in (0, 90]", examples=[1.0], gt=0.0, le=90.0)
NOISE_VARIANCE = Field(
    description="a positive variance in the squared unit of the variable", examples=[0.5], gt=0.0, le=1e12
)
