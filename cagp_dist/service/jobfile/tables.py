"""The tables of a job file as strict, frozen models.

A field's ``description`` says what is expected and its first example is a valid value: the error
messages are made from these two, so each fact about a key is stated once.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    PrivateAttr,
    ValidationInfo,
    WrapValidator,
    field_validator,
    model_validator,
)

from cagp_dist.calibration.method_names import METHOD_NAMES
from cagp_dist.era5.selection import GapPolicy
from cagp_dist.era5.sources import SOURCES
from cagp_dist.gram.area_means import RESOLUTION_DEGREES, area_means
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.kernels import KERNELS, families_of
from cagp_dist.means import MEANS
from cagp_dist.prior import EstimatedMean
from cagp_dist.regions import Region
from cagp_dist.runtime.schedulers import EXPECTED_SCHEDULER
from cagp_dist.service.jobfile import values
from cagp_dist.service.jobfile.base import Table
from cagp_dist.service.jobfile.regions import EXPECTED as EXPECTED_REGIONS
from cagp_dist.service.jobfile.regions import regions as check_regions
from cagp_dist.service.jobfile.regions import written as written_regions
from cagp_dist.service.jobfile.solver import DEFAULT_SOLVER, AnySolverTable, SolverTable
from cagp_dist.service.jobfile.times import EXPECTED as EXPECTED_TIMES
from cagp_dist.service.jobfile.times import TimeRule
from cagp_dist.service.jobfile.times import times as check_times
from cagp_dist.solvers.affine import Affine
from cagp_dist.solvers.registry import SOLVERS
from cagp_dist.text import alternatives

_LARGEST_COUNT = 10**9


Times = Annotated[tuple[str, ...] | TimeRule, PlainValidator(check_times)]
Regions = Annotated[
    tuple[Region, ...] | None, PlainValidator(check_regions), PlainSerializer(written_regions)
]
Area = Annotated[
    tuple[float, float, float, float], BeforeValidator(values.as_tuple), AfterValidator(values.area)
]
_AREA = Field(
    description="four numbers in degrees, [north, west, south, east]", examples=[[60.0, -10.0, 30.0, 40.0]]
)
_COUNT = Field(description="an integer of at least 1", examples=[1000], ge=1, le=_LARGEST_COUNT)
_SEED = Field(description="an integer of at least 0", examples=[0], ge=0, le=2**63 - 1)
_STEP = Field(description="an integer of at least 1", examples=[4], ge=1, le=_LARGEST_COUNT)
_DEGREES = Field(description="a number of degrees in (0, 90]", examples=[1.0], gt=0.0, le=90.0)
_STD_DEGREES = Field(
    description="a number of degrees above resolution_degrees, at most 90", examples=[4.0], gt=0.0, le=90.0
)
FEWEST_SAMPLES = 50
"""Of error bars from samples: a standard error of a tenth of them."""

_STD_SAMPLES = Field(
    description=f"an integer of at least {FEWEST_SAMPLES}, or 0 for no samples",
    examples=[400],
    ge=0,
    le=100_000,
)
_LENGTHSCALE = Field(
    description="a positive chord length on the unit sphere, at most 2", examples=[0.05], gt=0.0
)
Lengthscale = Annotated[float, AfterValidator(values.lengthscale), _LENGTHSCALE]
_VARIANCE = Field(
    description="a positive variance in the squared unit of the variable", examples=[22.0], gt=0.0, le=1e12
)
_NOISE_VARIANCE = Field(
    description="a positive variance in the squared unit of the variable", examples=[0.5], gt=0.0, le=1e12
)

FitTo = Literal["observed", "field"]
"""Whose values decide where the numbers of a prior are fitted: the observed points, or the whole field."""

if TYPE_CHECKING:
    MethodName = str
    KernelName = str
    KernelSum = str
    EachLengthscale = float | tuple[float, ...] | None
    EachVariance = float | tuple[float, ...] | None
else:
    MethodName = Literal[METHOD_NAMES]
    KernelName = Literal[tuple(KERNELS)]
    KernelSum = Annotated[KernelName, WrapValidator(values.kernel), PlainSerializer(str)]
    _EACH = (WrapValidator(values.each_part), PlainSerializer(values.as_list))
    EachLengthscale = Annotated[float | None, Field(gt=0.0), AfterValidator(values.lengthscale), *_EACH]
    EachVariance = Annotated[float | None, Field(gt=0.0, le=1e12), *_EACH]
_KERNEL = Field(description=alternatives(KERNELS), examples=["matern32"])


class SyntheticTable(Table):
    """``[observations.synthetic]``: the prior that the source ``synthetic`` draws from."""

    kernel: Annotated[KernelName, _KERNEL] = "matern32"
    lengthscale: Lengthscale = 0.05
    variance: Annotated[float, _VARIANCE] = 22.0
    noise_variance: Annotated[float, _NOISE_VARIANCE] = 0.5
    seed: Annotated[int, _SEED] = 0
    mean: Annotated[
        Literal["constant", "quadratic-latitude", "harmonic-latitude", "wave"],
        Field(
            description='"constant", "quadratic-latitude", "harmonic-latitude" or "wave"',
            examples=["quadratic-latitude"],
        ),
    ] = "quadratic-latitude"


class ColumnsTable(Table):
    """``columns``: names of the columns of a table, where they are not the usual ones."""

    latitude: Annotated[str | None, Field(description="the name of a column", examples=["LAT"])] = None
    longitude: Annotated[str | None, Field(description="the name of a column", examples=["LON"])] = None
    time: Annotated[str | None, Field(description="the name of a column", examples=["DATE"])] = None
    name: Annotated[str | None, Field(description="the name of a column", examples=["SITE"])] = None

    @property
    def named(self) -> dict[str, str]:
        """The names that were given."""
        return self.model_dump(exclude_none=True)


class Observations(Table):
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
    units: Annotated[
        str | None,
        Field(description="what the values of the source are measured in", examples=["degC"], min_length=1),
    ] = None
    check_range: Annotated[bool, Field(description="true or false", examples=[False])] = True
    times: Annotated[
        Times | None,
        Field(description=EXPECTED_TIMES, examples=[["2017-04-27T12:00"]]),
    ] = None
    area: Annotated[Area | None, _AREA] = None
    grid_degrees: Annotated[float | None, _DEGREES] = None
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
    missing: Annotated[
        float | None,
        Field(
            description="a number that a file, a Zarr store or a table writes in place of a missing value",
            examples=[-9999],
            allow_inf_nan=False,
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
            include={"variable", "level", "units", "check_range", "missing"},
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
        raise TypeError("times is a rule; resolve it with cagp_dist.service.times.resolved")

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
        if self.kind != "table" and not (self.noise_std is None and self.columns is None):
            raise ValueError(
                f'noise_std and columns are for tables, and the source is "{self.source}"; leave them out, '
                'or write source = "table:PATH"'
            )
        if self.missing is not None and not SOURCES[self.kind].marks_missing:
            raise ValueError(
                f'missing is for files, Zarr stores and tables, and the source is "{self.source}"; leave it '
                "out"
            )
        if isinstance(self.noise_std, float) and not 0.0 < self.noise_std < float("inf"):
            raise ValueError(f"noise_std = {self.noise_std:g}; expected a column or a number above zero")
        return self


class RandomPoints(Table):
    """``{ kind = "random" }``: ``count`` points, none twice, in proportion to area or all equally likely."""

    kind: Literal["random"]
    count: Annotated[int, _COUNT]
    seed: Annotated[int, _SEED] = 0
    weight: Annotated[
        Literal["area", "equal"],
        Field(description="what a point's chance is proportional to", examples=["area"]),
    ] = "area"


class StridePoints(Table):
    """``{ kind = "stride" }``: every ``step``-th latitude of every ``step``-th longitude, from ``offset``."""

    kind: Literal["stride"]
    step: Annotated[int, _STEP]
    offset: Annotated[
        int, Field(description="an integer of at least 0 and below step", examples=[2], ge=0)
    ] = 0

    @model_validator(mode="after")
    def _offset_below_step(self) -> Self:
        if self.offset >= self.step:
            raise ValueError(f"offset = {self.offset} is not below step = {self.step}; use offset = 0")
        return self


class BlockPoints(Table):
    """``{ kind = "blocks" }``: ``count`` points, by area, of blocks in which nothing is observed.

    The globe is cut into blocks about ``blocks_degrees`` high and wide, and ``share`` of those that have
    points are chosen at random. Points nearer than ``margin_degrees`` to one of them are not observed either.
    """

    kind: Literal["blocks"]
    count: Annotated[int, _COUNT]
    blocks_degrees: Annotated[float, _DEGREES]
    margin_degrees: Annotated[
        float,
        Field(description="a number of degrees in [0, 90]", examples=[1.0], ge=0.0, le=90.0),
    ] = 0.0
    share: Annotated[
        float,
        Field(
            description="a number above 0 and below 1: how many of the blocks", examples=[0.1], gt=0.0, lt=1.0
        ),
    ] = 0.1
    seed: Annotated[int, _SEED] = 0


class FoldPoints(Table):
    """``{ kind = "folds" }``: every observed place, predicted without its fold; blocks stay together."""

    kind: Literal["folds"]
    count: Annotated[
        int, Field(description="an integer of at least 2", examples=[10], ge=2, le=_LARGEST_COUNT)
    ] = 10
    blocks_degrees: Annotated[float, _DEGREES] = 5.0
    seed: Annotated[int, _SEED] = 0


class AllPoints(Table):
    """``{ kind = "all" }``: every point that is not held out for the test."""

    kind: Literal["all"]


class MapGrid(Table):
    """``{ kind = "grid" }``: cell centres about ``resolution_degrees`` apart, over ``area``.

    With ``kind = "cells"`` not the field at the centres is wanted but its mean over each cell.

    With ``std_resolution_degrees``, which is coarser, the error bars have cells of their own. Of fine maps
    the error bars come from samples, ``std_samples`` of them, 400 if it is left out and there are more than
    8,000 cells; see `cagp_dist.service.map_cells.samples_of_map`.
    """

    kind: Literal["grid", "cells"]
    resolution_degrees: Annotated[float, _DEGREES]
    area: Annotated[Area | None, _AREA] = None
    std_resolution_degrees: Annotated[float | None, _STD_DEGREES] = None
    std_samples: Annotated[int | None, _STD_SAMPLES] = None
    mask: Annotated[
        Literal["observed", "none"],
        Field(
            description='"observed" to leave cells blank where the source has no values, or "none"',
            examples=["none"],
        ),
    ] = "observed"

    @model_validator(mode="after")
    def _error_bars_are_coarser(self) -> Self:
        coarse = self.std_resolution_degrees
        if coarse is not None and coarse <= self.resolution_degrees:
            raise ValueError(
                f"std_resolution_degrees = {coarse:g} is not above resolution_degrees = "
                f"{self.resolution_degrees:g}; leave it out to have mean and error bars on one grid"
            )
        return self

    @model_validator(mode="after")
    def _samples_are_enough_and_for_one_map(self) -> Self:
        samples = self.std_samples
        if samples is not None and 0 < samples < FEWEST_SAMPLES:
            raise ValueError(
                f"std_samples = {samples} would leave a standard error of {(0.5 / samples) ** 0.5:.0%}; give "
                f"at least {FEWEST_SAMPLES}, or 0 for error bars without chance"
            )
        if samples and self.std_resolution_degrees is not None:
            raise ValueError(
                f"std_samples = {samples} gives the error bars of all cells, and std_resolution_degrees asks "
                "for those of coarser ones; leave one of the two out"
            )
        return self


class DesignTable(Table):
    """``[design]``: which points are observed, scored and mapped, places to predict, regions to average."""

    train: Annotated[
        RandomPoints | StridePoints | AllPoints,
        Field(
            discriminator="kind",
            description="a table of kind random, stride or all",
            examples=[{"kind": "random", "count": 10000, "seed": 0}],
        ),
    ]
    test: Annotated[
        RandomPoints | StridePoints | BlockPoints | FoldPoints,
        Field(
            discriminator="kind",
            description="a table of kind random, stride, blocks or folds",
            examples=[{"kind": "random", "count": 1000, "seed": 1}],
        ),
    ] = FoldPoints(kind="folds")
    calibration: Annotated[
        Annotated[RandomPoints | BlockPoints, Field(discriminator="kind")] | None,
        Field(
            description="a table of kind random or blocks",
            examples=[{"kind": "random", "count": 2000, "seed": 2}],
        ),
    ] = None
    targets: Annotated[
        str | None,
        AfterValidator(values.places),
        Field(
            description='"table:PATH", a CSV or Parquet file of places to predict',
            examples=["table:places.csv"],
        ),
    ] = None
    map: Annotated[
        MapGrid | None,
        Field(
            description="a table of kind grid or cells",
            examples=[{"kind": "grid", "resolution_degrees": 4.0}],
        ),
    ] = None
    regions: Annotated[
        Regions,
        Field(
            description=EXPECTED_REGIONS,
            examples=[["global", {"name": "europe", "south": 35, "north": 70, "west": -10, "east": 40}]],
        ),
    ] = None
    regions_resolution_degrees: Annotated[
        float,
        Field(
            description="a number of degrees in [0.1, 30]: height of the cells whose sum is the mean over a "
            "region",
            examples=[1.0],
            ge=0.1,
            le=30.0,
        ),
    ] = RESOLUTION_DEGREES

    @model_validator(mode="after")
    def _folds_have_errors_of_their_own(self) -> Self:
        if self.calibration is not None and isinstance(self.test, FoldPoints):
            raise ValueError(
                "calibration came with a cross-validation, which has an error of every observed place to "
                "calibrate with; leave calibration out, or hold points out for the test: "
                'test = { kind = "random", count = 1000 }'
            )
        return self

    @property
    def region_means(self) -> LinearFunctionals | None:
        """Means over the regions, one functional for each; None without regions."""
        if self.regions is None:
            return None
        return area_means(self.regions, resolution_degrees=self.regions_resolution_degrees)


@dataclass(frozen=True)
class Numbers:
    """The three numbers of a prior: chord on the unit sphere, K^2, K^2; of a sum the first two by part."""

    lengthscale: float | tuple[float, ...]
    variance: float | tuple[float, ...]
    noise_variance: float


class PriorTable(Table):
    """``[prior]``: kernel, mean and the three numbers, which are fitted first if all are left out."""

    kernel: Annotated[
        KernelSum,
        Field(
            description=f'{alternatives(KERNELS)}, or a sum of them, "matern32 + matern32"',
            examples=["matern32"],
        ),
    ] = "matern32"
    mean: Annotated[
        str,
        AfterValidator(values.mean),
        Field(
            description=values.EXPECTED_MEAN,
            examples=["quadratic-latitude"],
        ),
    ] = "quadratic-latitude"
    mean_estimate: Annotated[
        Literal["generalised", "ordinary"],
        Field(
            description='"generalised": by generalised least squares with the field, counted in the error '
            'bars; or "ordinary": by least squares before, taken as known',
            examples=["generalised"],
        ),
    ] = "generalised"
    covariates: Annotated[
        tuple[Annotated[str, AfterValidator(values.covariate)], ...],
        BeforeValidator(values.as_tuple),
        Field(
            description='a list of fields that the mean depends on, "file:PATH:VARIABLE" or '
            '"zarr:ADDRESS:VARIABLE"',
            examples=[["file:static.nc:elevation"]],
            max_length=20,
        ),
    ] = ()
    fit_to: Annotated[FitTo, Field(description='"observed" or "field"', examples=["observed"])] = "observed"
    fit_times: Annotated[
        Times | None,
        Field(
            description=f"times of the source whose values the numbers are fitted to: {EXPECTED_TIMES}",
            examples=[{"last": "30d", "at": "12:00"}],
        ),
    ] = None
    lengthscale: Annotated[
        EachLengthscale,
        Field(
            description="a positive chord length on the unit sphere, at most 2, or of a sum a list of them",
            examples=[0.05],
        ),
    ] = None
    variance: Annotated[
        EachVariance,
        Field(
            description="a positive variance in the squared unit of the variable, or of a sum a list of them",
            examples=[22.0],
        ),
    ] = None
    noise_variance: Annotated[float | None, _NOISE_VARIANCE] = None

    @model_validator(mode="after")
    def _all_numbers_or_none(self) -> Self:
        given = {name: getattr(self, name) for name in ("lengthscale", "variance", "noise_variance")}
        missing = [name for name, number in given.items() if number is None]
        if 0 < len(missing) < len(given):
            stated = [name for name, number in given.items() if number is not None]
            raise ValueError(
                f"{' and '.join(stated)} came without {' and '.join(missing)}; give all three "
                "numbers, or none of them to have them fitted (`cagp fit` prints them). Values that suit "
                "global 2 m temperature: lengthscale = 0.05 (chord on the unit sphere), variance = 22.0 "
                "(K^2), noise_variance = 0.5 (K^2)"
            )
        return self

    @model_validator(mode="after")
    def _times_of_a_fit(self) -> Self:
        if self.fit_times is not None and self.numbers is not None:
            raise ValueError(
                "fit_times came with lengthscale, variance and noise_variance, which are not fitted then; "
                "leave either out"
            )
        return self

    @model_validator(mode="after")
    def _one_number_for_each_part(self) -> Self:
        parts = len(families_of(self.kernel))
        for name, example in (("lengthscale", [0.05, 0.5]), ("variance", [5.0, 20.0])):
            numbers = getattr(self, name)
            count = len(numbers) if isinstance(numbers, tuple) else None
            if numbers is None or count == (None if parts == 1 else parts):
                continue
            came = f"a list of {count}" if count is not None else f"one number, {numbers:g}"
            if parts == 1:
                raise ValueError(
                    f'{name} is {came}, but kernel = "{self.kernel}" is no sum; expected one number, or a '
                    f'sum such as kernel = "{self.kernel} + {self.kernel}"'
                )
            raise ValueError(
                f'{name} is {came}, but kernel = "{self.kernel}" has {parts} parts; expected a list of '
                f"{parts} numbers, one for each part in the same order, for example {example} for two"
            )
        return self

    @model_validator(mode="after")
    def _covariates_beside_coefficients(self) -> Self:
        if self.covariates and self.reads_mean:
            raise ValueError(
                f'covariates came with mean = "{self.mean}", which has no coefficients; leave them out, or '
                'write mean = "constant" or a mean by latitude'
            )
        return self

    @property
    def reads_mean(self) -> bool:
        """Whether the mean is read, and has no coefficients but a shift."""
        return ":" in self.mean

    @property
    def estimates_mean(self) -> bool:
        """Whether coefficients of the mean are estimated with the field."""
        return self.mean_estimate == "generalised" and not self.reads_mean

    @property
    def coefficients(self) -> int:
        """How many coefficients of the mean are estimated with the field."""
        family = MEANS.get(self.mean)
        if not self.estimates_mean or not isinstance(family, EstimatedMean):
            return 0
        return len(family.coefficient_names) + len(self.covariates)

    @property
    def numbers(self) -> Numbers | None:
        """The three numbers, or None if they are to be fitted."""
        if self.lengthscale is None or self.variance is None or self.noise_variance is None:
            return None
        return Numbers(self.lengthscale, self.variance, self.noise_variance)


class RecalibrationTable(Table):
    """``[recalibration]``: how errors at points that were not used correct the predictive laws."""

    method: Annotated[
        MethodName,
        Field(description=alternatives(METHOD_NAMES), examples=["local-scale"]),
    ] = "local-scale"

    @property
    def asked(self) -> bool:
        """Whether the job names the method."""
        return "method" in self.model_fields_set


class ClusterTable(Table):
    """``[cluster]``: where the work is done. Has no influence on the result."""

    scheduler: Annotated[
        str | None,
        AfterValidator(values.scheduler),
        Field(
            description=EXPECTED_SCHEDULER,
            examples=["local"],
        ),
    ] = None
    workers: Annotated[
        int | None, Field(description="an integer of at least 1", examples=[2], ge=1, le=100_000)
    ] = None
    memory_limit: Annotated[
        int | None,
        BeforeValidator(values.parse_bytes),
        Field(description="an amount of memory for each worker, with its unit", examples=["4GiB"]),
    ] = None


class OutputTable(Table):
    """``[output]``: the folder of the results."""

    root: Annotated[
        str,
        AfterValidator(values.path),
        Field(description="the path of a folder", examples=["out"], min_length=1),
    ] = "out"


class Job(Table):
    """A checked job file."""

    observations: Annotated[Observations, Field(description="the keys source, variable, times")]
    design: Annotated[
        DesignTable, Field(description="the keys train, test, calibration, map, targets, regions")
    ]
    prior: Annotated[
        PriorTable,
        Field(description="the keys kernel, mean, fit_to, fit_times, lengthscale, variance, noise_variance"),
    ]
    solver: Annotated[
        AnySolverTable,
        Field(
            discriminator="name",
            description="a table with the name of a solver",
            examples=[{"name": "block-gauss-seidel", "iterations": 5, "block_size": 1024}],
        ),
    ] = DEFAULT_SOLVER
    recalibration: Annotated[RecalibrationTable, Field(description="the key method")] = RecalibrationTable()
    cluster: Annotated[ClusterTable, Field(description="the keys scheduler, workers, memory_limit")] = (
        ClusterTable()
    )
    output: Annotated[OutputTable, Field(description="the key root")] = OutputTable()
    _text: str = PrivateAttr(default="")

    @model_validator(mode="before")
    @classmethod
    def _all_places_of_a_table(cls, tables: object) -> object:
        """Fill in that all places of a table are observed, where the design does not say which."""
        if not isinstance(tables, dict):
            return tables
        observations, design = tables.get("observations"), tables.get("design", {})
        source = observations.get("source") if isinstance(observations, dict) else None
        if isinstance(source, str) and source.startswith("table:") and isinstance(design, dict):
            return {**tables, "design": {"train": {"kind": "all"}, **design}}
        return tables

    @field_validator("solver", mode="after")
    @classmethod
    def _the_mean_comes_by_itself(cls, solver: SolverTable, info: ValidationInfo) -> SolverTable:
        design = info.data.get("design")
        table = None if design is None else design.map
        if table is None or table.std_resolution_degrees is None or isinstance(solver.build(), Affine):
            return solver
        able = _affine_names()
        raise ValueError(
            f"the mean of {solver.name} does not come without its error bars, which std_resolution_degrees "
            f"of [design] map asks for; leave that out, or use one of {able}"
        )

    @field_validator("solver", mode="after")
    @classmethod
    def _samples_are_of_one_matrix(cls, solver: SolverTable, info: ValidationInfo) -> SolverTable:
        design = info.data.get("design")
        samples = 0 if design is None or design.map is None else design.map.std_samples
        if not samples:
            return solver
        built = solver.build()
        if not isinstance(built, Affine):
            raise ValueError(
                f"std_samples of [design] map asks for error bars from samples, which {solver.name} does not "
                f"give; leave that out, or use one of {_affine_names()}"
            )
        if built.computational_share is not None:
            raise ValueError(
                "computational_share stops a solve by variances that samples, which std_samples of [design] "
                "map asks for, do not have; leave one of the two out"
            )
        return solver

    @property
    def text(self) -> str:
        """The job file as it was written."""
        return self._text

    @property
    def root(self) -> Path:
        """The output folder."""
        return Path(self.output.root)

    def canonical(self) -> dict[str, object]:
        """Every setting that has an influence on the result, defaults filled in, ready for JSON.

        Two jobs with equal canonical forms and equal data give the same run. Where the work is done
        and where the result is kept make no difference. Whether error bars are recalibrated where the job
        does not say depends on its points: the key of the run has it.
        """
        form = self.model_dump(mode="json", exclude={"cluster", "output"})
        if self.recalibration.method in ("none", RecalibrationTable().method):
            del form["recalibration"]  # jobs from before there was this table keep their form
        observations = form["observations"]
        for key in {"level", "units", "check_range", "missing"} - self.observations.reading().keys():
            del observations[key]  # jobs from before there were these keys keep their form, and their runs
        for key in ("std_resolution_degrees", "std_samples"):
            if form["design"]["map"] is not None and form["design"]["map"][key] is None:
                del form["design"]["map"][key]
        if self.design.map is not None and self.design.map.mask == "observed":
            del form["design"]["map"]["mask"]  # the same; where it leaves cells blank, the run says so
        if self.observations.columns is not None and self.observations.columns.name is None:
            del observations["columns"]["name"]
        if self.observations.gaps == "keep":
            del observations["gaps"]  # as of tables; where it makes a difference to a field, the run says so
        if self.design.regions is None:
            del form["design"]["regions"], form["design"]["regions_resolution_degrees"]
        if not self.prior.estimates_mean:
            del form["prior"]["mean_estimate"]  # as all means were once
        if not self.prior.covariates:
            del form["prior"]["covariates"]
        new = {
            "noise_std": observations,
            "columns": observations,
            "calibration": form["design"],
            "targets": form["design"],
            "fit_times": form["prior"],
        }
        for key, owner in new.items():
            if owner[key] is None:
                del owner[key]
        return form


def _affine_names() -> str:
    """List the solvers whose mean comes by itself, as job files name them."""
    return ", ".join(name for name, known in SOLVERS.items() if issubclass(known, Affine))
