"""``[observations]`` of a job file: which field is observed."""

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from cagp_dist.era5.selection import GapPolicy
from cagp_dist.era5.sources import SOURCES
from cagp_dist.kernels import KERNELS
from cagp_dist.service.jobfile import values
from cagp_dist.service.jobfile.fields import AREA, DEGREES, NOISE_VARIANCE, SEED, Area, Times
from cagp_dist.service.jobfile.table_base import JobTable
from cagp_dist.service.jobfile.times_key import EXPECTED as EXPECTED_TIMES
from cagp_dist.service.jobfile.times_key import TimeRule
from cagp_dist.text import alternatives

if TYPE_CHECKING:
    KernelName = str
else:
    KernelName = Literal[tuple(KERNELS)]


class SyntheticTable(JobTable):
    """``[observations.synthetic]``: the prior that the source ``synthetic`` draws from."""

    kernel: Annotated[KernelName, Field(description=alternatives(KERNELS), examples=["matern32"])] = (
        "matern32"
    )
    lengthscale: Annotated[
        float,
        AfterValidator(values.lengthscale),
        Field(description="a positive chord length on the unit sphere, at most 2", examples=[0.05], gt=0.0),
    ] = 0.05
    variance: Annotated[
        float,
        Field(
            description="a positive variance in the squared unit of the variable",
            examples=[22.0],
            gt=0.0,
            le=1e12,
        ),
    ] = 22.0
    noise_variance: Annotated[float, NOISE_VARIANCE] = 0.5
    seed: Annotated[int, SEED] = 0
    mean: Annotated[
        Literal["constant", "quadratic-latitude", "harmonic-latitude", "wave"],
        Field(
            description='"constant", "quadratic-latitude", "harmonic-latitude" or "wave"',
            examples=["quadratic-latitude"],
        ),
    ] = "quadratic-latitude"


class ColumnsTable(JobTable):
    """``columns``: names of the columns of a table, where they are not the usual ones."""

    latitude: Annotated[str | None, Field(description="the name of a column", examples=["LAT"])] = None
    longitude: Annotated[str | None, Field(description="the name of a column", examples=["LON"])] = None
    time: Annotated[str | None, Field(description="the name of a column", examples=["DATE"])] = None
    name: Annotated[str | None, Field(description="the name of a column", examples=["SITE"])] = None

    @property
    def named(self) -> dict[str, str]:
        """The names that were given."""
        return self.model_dump(exclude_none=True)


class ObservationsTable(JobTable):
    """``[observations]``: which field is observed."""

    source: Annotated[
        str,
        BeforeValidator(values.sources),
        AfterValidator(values.source),
        Field(
            description=values.EXPECTED_SOURCE,
            examples=["sample"],
            min_length=1,
        ),
    ]
    variable: Annotated[
        str,
        AfterValidator(values.variable),
        Field(description="the name of the variable in the source", examples=["t2m"], min_length=1),
    ] = "t2m"
    level: Annotated[
        float | None, Field(description="a level of the source, such as a pressure in hPa", examples=[850])
    ] = None
    select: Annotated[
        dict[str, str | float | tuple[str | float, ...]] | None,
        BeforeValidator(values.select),
        Field(
            description="what is chosen of dimensions of the field, or of keys of GRIB messages",
            examples=[{"number": 1}],
        ),
    ] = None
    units: Annotated[
        str | None,
        Field(description="what the values of the source are measured in", examples=["degC"], min_length=1),
    ] = None
    check_range: Annotated[bool, Field(description="true or false", examples=[False])] = True
    times: Annotated[
        Times | None,
        Field(description=EXPECTED_TIMES, examples=[["2017-04-27T12:00"]]),
    ] = None
    area: Annotated[Area | None, AREA] = None
    grid_degrees: Annotated[float | None, DEGREES] = None
    noise_std: Annotated[
        str | float | None,
        Field(
            description="a column of the table, or a number above zero: standard deviation of the error of a "
            "measurement",
            examples=["noise_std"],
        ),
    ] = None
    columns: Annotated[
        ColumnsTable | None,
        Field(description="the keys latitude, longitude, time, name", examples=[{"latitude": "LAT"}]),
    ] = None
    where: Annotated[
        dict[str, str | float | list[str | float]] | None,
        Field(
            description="columns of the table, each with the value (or a list of values) of the rows that "
            'are meant; "*" for all',
            examples=[{"element": "TMAX"}],
            min_length=1,
        ),
    ] = None
    missing: Annotated[
        float | tuple[float, ...] | None,
        BeforeValidator(values.as_tuple),
        Field(
            description="a number that a file, a Zarr store or a table writes in place of a missing value, "
            "or a list of all such numbers, which is empty where every number was observed",
            examples=[-9999],
        ),
    ] = None
    gaps: Annotated[
        GapPolicy,
        Field(
            description='"keep" to use every value, with a solve for each pattern of gaps, or "drop" to '
            "leave out places that lack a value at any of the times",
            examples=["drop"],
        ),
    ] = "keep"
    synthetic: Annotated[
        SyntheticTable | None,
        Field(
            description="the keys kernel, lengthscale, variance, noise_variance, seed, mean",
            examples=[{"lengthscale": 0.05, "seed": 1}],
        ),
    ] = None

    def reading(self) -> dict[str, object]:
        """How the values are read, apart from the times and places: every setting that is not the default."""
        return self.model_dump(
            include={"variable", "level", "select", "units", "check_range", "missing"},
            exclude_defaults=True,
            mode="json",
        )

    @property
    def kind(self) -> str:
        """The name of the source, without its address."""
        return self.source.partition(":")[0]

    @property
    def listed_times(self) -> tuple[str, ...] | None:
        """The times, None for all of the source; a rule must have been resolved."""
        if self.times is None or isinstance(self.times, tuple):
            return self.times
        raise TypeError("times is a rule; resolve it with cagp_dist.service.resolved_times.resolved")

    @staticmethod
    def check_times_of_source(source: str, times: tuple[str, ...] | TimeRule | None) -> None:
        """Raise `ValueError` if a source needs times and there are none."""
        if SOURCES[source.partition(":")[0]].needs_times and times is None:
            raise ValueError(f'source "{source}" needs times, for example times = ["2017-04-27T12:00"]')

    @model_validator(mode="before")
    @classmethod
    def _synthetic_by_default(cls, table: object) -> object:
        """Fill in the defaults of a synthetic field, so that they are part of the job's canonical form."""
        if isinstance(table, dict) and table.get("source") == "synthetic":
            return {"synthetic": {}, **table}
        return table

    @model_validator(mode="after")
    def _keys_of_the_source(self) -> Self:
        self.check_times_of_source(self.source, self.times)
        if self.source != "synthetic" and self.synthetic is not None:
            raise ValueError(
                f'the table [observations.synthetic] came with source "{self.source}"; leave it out, or '
                'write source = "synthetic"'
            )
        if self.kind != "table" and not (
            self.noise_std is None and self.columns is None and self.where is None
        ):
            raise ValueError(
                f'noise_std, columns and where are for tables, and the source is "{self.source}"; leave '
                'them out, or write source = "table:PATH"'
            )
        if self.missing is not None and not SOURCES[self.kind].marks_missing:
            raise ValueError(
                f'missing is for files, Zarr stores and tables, and the source is "{self.source}"; leave it '
                "out"
            )
        if self.select is not None and not SOURCES[self.kind].selects:
            raise ValueError(
                f'select is for files and Zarr stores, and the source is "{self.source}"; leave it out'
            )
        if isinstance(self.noise_std, float) and not 0.0 < self.noise_std < float("inf"):
            raise ValueError(f"noise_std = {self.noise_std:g}; expected a column or a number above zero")
        return self
