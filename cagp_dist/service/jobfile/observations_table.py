"""``[observations]`` of a job file: which field is observed."""

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, model_validator

from cagp_dist.fields.column_names import ANY
from cagp_dist.fields.selection import GapPolicy
from cagp_dist.fields.sources import SOURCES
from cagp_dist.kernels import KERNELS
from cagp_dist.pipeline.defaults import FLAG_RATE
from cagp_dist.service.jobfile import values
from cagp_dist.service.jobfile.fields import AREA, DEGREES, NOISE_VARIANCE, SEED, Area, JobTable, Times, key
from cagp_dist.service.jobfile.times_key import EXPECTED as EXPECTED_TIMES
from cagp_dist.service.jobfile.times_key import TimeRule
from cagp_dist.text import alternatives
from cagp_dist.variables import Transform, field_name

if TYPE_CHECKING:
    KernelName = str
else:
    KernelName = Literal[tuple(KERNELS)]


class SyntheticTable(JobTable):
    """``[observations.synthetic]``: the prior that the source ``synthetic`` draws from."""

    kernel: KernelName = key("matern32", alternatives(KERNELS), "matern32")
    """Covariance of the fields that are drawn."""
    lengthscale: Annotated[float, AfterValidator(values.lengthscale)] = key(
        0.05, "a positive chord length on the unit sphere, at most 2", 0.05, gt=0.0
    )
    """Distance over which they vary."""
    variance: float = key(
        22.0, "a positive variance in the squared unit of the variable", 22.0, gt=0.0, le=1e12
    )
    """Variance of the fields about their mean."""
    noise_variance: Annotated[float, NOISE_VARIANCE] = 0.5
    """Variance of the error of an observation."""
    seed: Annotated[int, SEED] = 0
    """Which fields are drawn: the same number gives the same."""
    mean: Literal["constant", "quadratic-latitude", "harmonic-latitude", "wave"] = key(
        "quadratic-latitude",
        '"constant", "quadratic-latitude", "harmonic-latitude" or "wave"',
        "quadratic-latitude",
    )
    """Mean of the fields."""


class ColumnsTable(JobTable):
    """``columns``: names of the columns of a table, where they are not the usual ones."""

    latitude: str | None = key(None, "the name of a column", "LAT")
    """Column of latitudes in degrees."""
    longitude: str | None = key(None, "the name of a column", "LON")
    """Column of longitudes in degrees."""
    x: str | None = key(None, "the name of a column", "easting")
    """Column of x of a plane, eastward."""
    y: str | None = key(None, "the name of a column", "northing")
    """Column of y of a plane, northward."""
    time: str | None = key(None, "the name of a column", "DATE")
    """Column of times; "none" takes all rows as one field."""
    name: str | None = key(None, "the name of a column", "SITE")
    """Column of the names of places."""
    depth: str | None = key(None, "the name of a column, positive downward", "pressure")
    """Column of depths."""
    limit: str | None = key(None, "the name of a column", "lod")
    """Column of limits of detection: a value that equals its limit is known only to be no larger."""

    @property
    def named(self) -> dict[str, str]:
        """The names that were given."""
        return self.model_dump(exclude_none=True)

    @model_validator(mode="after")
    def _one_pair(self) -> Self:
        if (self.x is None) != (self.y is None):
            raise ValueError("it names x or y alone; expected both")
        if self.x and (self.latitude or self.longitude):
            raise ValueError("it names latitude or longitude, and x and y of a plane; expected one pair")
        return self


class ObservationsTable(JobTable):
    """``[observations]``: which field is observed."""

    source: Annotated[str, BeforeValidator(values.sources), AfterValidator(values.source)] = key(
        ..., values.EXPECTED_SOURCE, "sample", min_length=1
    )
    """Where the observations are from."""
    variable: Annotated[
        str | tuple[str, ...], BeforeValidator(values.as_tuple), AfterValidator(values.variables)
    ] = key("t2m", "the name of the variable in the source, or a list of several", "t2m", min_length=1)
    level: float | None = key(None, "a level of the source, such as a pressure in hPa", 850)
    select: Annotated[
        dict[str, bool | str | float | tuple[bool | str | float, ...]] | None, BeforeValidator(values.select)
    ] = key(None, "what is chosen of dimensions of the field, or of keys of GRIB messages", {"number": 1})
    units: str | dict[str, str] | None = key(
        None,
        "what the values of the source are measured in, of several variables a table by their names",
        "degC",
        min_length=1,
    )
    check_range: bool = key(True, "true or false", False)
    """Whether values that are not plausible, and spacings of grids that differ, are refused."""
    transform: Transform = key("none", '"none" or "log1p"', "log1p")
    """What is done to the values before all else: "log1p" takes log(1 + value), and the map is one of
    logarithms."""
    times: Times | None = key(None, EXPECTED_TIMES, ["2017-04-27T12:00"])
    """Which times of the source are observed."""
    area: Annotated[Area | None, AREA] = None
    """Which part of the source is observed."""
    grid_degrees: Annotated[float | None, DEGREES] = None
    """Spacing of the grid that is asked for, of the sources "cds" and "synthetic"."""
    noise_std: str | float | dict[str, str | float] | None = key(
        None,
        "a column of the table, or a number above zero: standard deviation of the error of a measurement; of "
        "several variables a table by their names",
        "noise_std",
    )
    columns: ColumnsTable | None = key(
        None, "the keys latitude, longitude, x, y, time, name, depth, limit", {"latitude": "LAT"}
    )
    """Names of the columns of a table, where they are not the usual ones."""
    crs: int | str | None = key(
        None, "the coordinate reference system of x and y: an EPSG number, WKT or text of PROJ", 32632
    )
    where: dict[str, bool | str | float | list[bool | str | float]] | None = key(
        None,
        "columns of the table, or dimensions of fields, each with the value (or a list of values) that is "
        'meant; "*" for all of a column',
        {"element": "TMAX"},
        min_length=1,
    )
    missing: Annotated[float | str | tuple[float | str, ...] | None, BeforeValidator(values.as_tuple)] = key(
        None,
        "a number, of a table also a text, that stands for a missing value, or a list of all such; an empty "
        "list if every number was observed",
        -9999,
    )
    gaps: GapPolicy = key(
        "keep",
        '"keep" to use every value, with a solve for each pattern of gaps, or "drop" to '
        "leave out places that lack a value at any of the times",
        "drop",
    )
    quality: Literal["keep", "flag"] = key(
        "keep", '"flag" to leave out values that all others contradict, or "keep"', "flag"
    )
    rate: float | None = key(
        None,
        'of quality = "flag", the share of false ones among the flags that is aimed at: a number above 0, at '
        "most 0.5; 0.05 if left out",
        0.05,
        gt=0.0,
        le=0.5,
    )
    synthetic: SyntheticTable | None = key(
        None,
        "the keys kernel, lengthscale, variance, noise_variance, seed, mean",
        {"lengthscale": 0.05, "seed": 1},
    )
    """The prior that the source "synthetic" draws from."""

    def reading(self) -> dict[str, object]:
        """How the values are read, apart from the times and places: every setting that is not the default."""
        return self.model_dump(
            include={"variable", "level", "select", "units", "check_range", "transform", "missing"},
            exclude_defaults=True,
            mode="json",
        )

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the variables, of which there may be several."""
        return (self.variable,) if isinstance(self.variable, str) else self.variable

    @property
    def name(self) -> str:
        """Name of the variable of a table that has one: see `of_variable`."""
        if isinstance(self.variable, str):
            return self.variable
        raise TypeError("there are several variables; read them one by one, with of_variable")

    def of_variable(self, name: str) -> "ObservationsTable":
        """Say what is read of one of several variables."""
        where = self.where
        if self.kind == "table":  # what is measured beside does not tell rows apart
            where = {other: ANY for other in self.variables if other != name} | (where or {})
        units, noise_std = (
            given.get(name) if isinstance(given, dict) else given for given in (self.units, self.noise_std)
        )
        told = {"variable": name, "where": where, "units": units, "noise_std": noise_std}
        return self.model_copy(update=told)

    @property
    def flag_rate(self) -> float:
        """Share of false flags that is aimed at."""
        return FLAG_RATE if self.rate is None else self.rate

    @property
    def in_plane(self) -> bool:
        """Whether places are points of a plane."""
        return self.crs is not None or (self.columns is not None and self.columns.x is not None)

    @property
    def in_depth(self) -> bool:
        """Whether observations have depths."""
        return self.columns is not None and self.columns.depth is not None

    @property
    def kind(self) -> str:
        """The name of the source, without its address."""
        return self.source.partition(":")[0]

    @property
    def listed_times(self) -> tuple[str, ...] | None:
        """The times, None for all of the source; a rule must have been resolved."""
        if self.times is None or isinstance(self.times, tuple):
            return self.times
        raise TypeError("times is a rule; resolve it with cagp_dist.service.ingest.resolved")

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

    @model_validator(mode="before")
    @classmethod
    def _where_of_fields(cls, table: object) -> object:
        """Take ``where`` of a file or a store as ``level`` and ``select``, by which a run knows it."""
        if not isinstance(table, dict) or not isinstance(table.get("where"), dict):
            return table
        source = SOURCES.get(str(table.get("source", "")).partition(":")[0])
        if source is None or not source.selects:
            return table
        where = dict(table["where"])
        level = {"level": where.pop("level")} if "level" in where else {}
        select = {**where, **(table.get("select") or {})}
        rest = {key: said for key, said in table.items() if key not in ("where", "select")}
        return level | ({"select": select} if select else {}) | rest

    @model_validator(mode="before")
    @classmethod
    def _variable_of_tables(cls, table: object) -> object:
        """Take a column, which may have units and blanks in its name, by the name that its field has."""
        if not isinstance(table, dict) or not str(table.get("source", "")).startswith("table:"):
            return table
        named = table.get("variable")
        if isinstance(named, list | tuple) and all(isinstance(each, str) for each in named):
            return {**table, "variable": [field_name(each) for each in named]}
        return {**table, "variable": field_name(named)} if isinstance(named, str) else table

    @model_validator(mode="after")
    def _keys_of_the_source(self) -> Self:
        self.check_times_of_source(self.source, self.times)
        if self.source != "synthetic" and self.synthetic is not None:
            raise ValueError(
                f'the table [observations.synthetic] cannot be combined with source "{self.source}"; leave '
                'it out, or write source = "synthetic"'
            )
        for name in ("units", "noise_std"):
            by_variable = getattr(self, name)
            if isinstance(by_variable, dict) and len(self.variables) == 1:
                raise ValueError(f"{name} is a table by variables, and there is one; write its value alone")
            if isinstance(by_variable, dict) and (unknown := {*by_variable} - {*self.variables}):
                raise ValueError(
                    f"{name} names {', '.join(sorted(unknown))}, and the variables are "
                    f"{', '.join(self.variables)}; expected these names"
                )
        if isinstance(self.noise_std, str) and len(self.variables) > 1:
            raise ValueError(
                "noise_std names one column, and it cannot be told of which variable it is; write a table by "
                f'variables, noise_std = {{ {self.variables[0]} = "{self.noise_std}" }}'
            )
        if self.rate is not None and self.quality == "keep":
            raise ValueError('rate given without quality; write quality = "flag", or leave it out')
        given = (self.noise_std, self.columns, self.where, self.crs)
        if not SOURCES[self.kind].marks_missing and any(each is not None for each in given):
            raise ValueError(
                "noise_std, columns, where and crs are for tables, files and Zarr stores; the source is "
                f'"{self.source}"; leave them out, or write source = "table:PATH"'
            )
        if self.missing is not None and not SOURCES[self.kind].marks_missing:
            raise ValueError(
                f'missing is for files, Zarr stores and tables, and source is "{self.source}"; leave it out'
            )
        marks = self.missing if isinstance(self.missing, tuple) else (self.missing,)
        if self.kind != "table" and any(isinstance(mark, str) for mark in marks):
            raise ValueError("missing has a text, which is for cells of tables; expected a number")
        if self.select is not None and not SOURCES[self.kind].selects:
            raise ValueError(
                f'select is for files and Zarr stores, and the source is "{self.source}"; leave it out'
            )
        if isinstance(self.noise_std, float) and not 0.0 < self.noise_std < float("inf"):
            raise ValueError(f"noise_std = {self.noise_std:g}; expected a column or a number above zero")
        return self
