"""What all tables of a job file have in common."""

from pydantic import BaseModel, ConfigDict


class JobTable(BaseModel):
    """A table of the job file: unknown keys, wrong types, NaN and infinity are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
