"""``[design]`` of a job file: which points are observed, scored and mapped."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, PlainValidator, model_validator

from cagp_dist.gram.area_means import RESOLUTION_DEGREES, area_means
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.regions import Region
from cagp_dist.service.jobfile import values
from cagp_dist.service.jobfile.fields import AREA, DEGREES, LARGEST_COUNT, SEED, JobTable, key
from cagp_dist.service.jobfile.regions_key import EXPECTED as EXPECTED_REGIONS
from cagp_dist.service.jobfile.regions_key import regions as check_regions
from cagp_dist.service.jobfile.regions_key import written_regions as written_regions

Regions = Annotated[
    tuple[Region, ...] | None, PlainValidator(check_regions), PlainSerializer(written_regions)
]
_COUNT = Field(description="an integer of at least 1", examples=[1000], ge=1, le=LARGEST_COUNT)
IN_UNIT_OF_PLANE = {"blocks", "margin", "resolution"}  # keys of its tables
FEWEST_SAMPLES = 50  # Of error bars from samples: a standard error of a tenth of them


def _check_one(table: JobTable, of_globe: str, of_plane: str) -> None:
    """Raise `ValueError` unless one of two keys is given."""
    given = [name for name in (of_globe, of_plane) if getattr(table, name) is not None]
    if len(given) != 1:
        raise ValueError(
            f"{' and '.join(given) or 'neither of them'} is given; expected {of_globe} in degrees, or "
            f"{of_plane} in the unit of a plane"
        )


class RandomPoints(JobTable):
    """``{ kind = "random" }``: ``count`` points, none twice, in proportion to area or all equally likely."""

    kind: Literal["random"]
    """Points are drawn at random."""
    count: Annotated[int, _COUNT]
    """How many points there are."""
    seed: Annotated[int, SEED] = 0
    """Which points are drawn: the same number gives the same."""
    weight: Literal["area", "equal"] = key("area", "what a point's chance is proportional to", "area")


class StridePoints(JobTable):
    """``{ kind = "stride" }``: every ``step``-th latitude of every ``step``-th longitude, from ``offset``."""

    kind: Literal["stride"]
    """Points are taken at a step."""
    step: int = key(..., "an integer of at least 1", 4, ge=1, le=LARGEST_COUNT)
    """Every so many-th latitude, and of it every so many-th longitude."""
    offset: int = key(0, "an integer of at least 0 and below step", 2, ge=0)
    """The first of them."""

    @model_validator(mode="after")
    def _offset_below_step(self) -> Self:
        if self.offset >= self.step:
            raise ValueError(f"offset = {self.offset} is not below step = {self.step}; use offset = 0")
        return self


class BlockPoints(JobTable):
    """``{ kind = "blocks" }``: ``count`` points, by area, in blocks in which nothing is observed."""

    kind: Literal["blocks"]
    """Points are in blocks that are held out as a whole."""
    count: Annotated[int, _COUNT]
    """How many points there are."""
    blocks_degrees: Annotated[float | None, DEGREES] = None
    """Height and width of a block on the globe."""
    margin_degrees: float = key(0.0, "a number of degrees in [0, 90]", 1.0, ge=0.0, le=90.0)
    """Width around the blocks in which nothing is observed either."""
    blocks: float | None = key(None, "in a plane, a number above 0 in its unit", 1000.0, gt=0.0)
    """Height and width of a block."""
    margin: float = key(0.0, "in a plane, a number of at least 0 in its unit", 100.0, ge=0.0)
    """Width around the blocks in which nothing is observed either."""
    share: float = key(0.1, "a number above 0 and below 1: how many of the blocks", 0.1, gt=0.0, lt=1.0)
    seed: Annotated[int, SEED] = 0
    """Which blocks and points are drawn: the same number gives the same."""

    @model_validator(mode="after")
    def _one_size(self) -> Self:
        _check_one(self, "blocks_degrees", "blocks")
        return self

    @property
    def size(self) -> float:
        """Size of a block in the unit of the space."""
        return self.blocks or self.blocks_degrees or 0.0

    @property
    def around(self) -> float:
        """Margin in the unit of the space."""
        return self.margin or self.margin_degrees


class FoldPoints(JobTable):
    """``{ kind = "folds" }``: every observed place, predicted without its fold; blocks stay together."""

    kind: Literal["folds"]
    """Every observed place is predicted without its fold."""
    count: int = key(10, "an integer of at least 2", 10, ge=2, le=LARGEST_COUNT)
    """How many folds there are."""
    blocks_degrees: Annotated[float, DEGREES] = 5.0
    """Height and width of the blocks that stay in one fold, on the globe."""
    blocks: float | None = key(None, "in a plane, a number above 0 in its unit", 1000.0, gt=0.0)
    """Height and width of the blocks that stay in one fold."""
    seed: Annotated[int, SEED] = 0
    """Which blocks are in which fold: the same number gives the same."""


class AllPoints(JobTable):
    """``{ kind = "all" }``: every point that is not held out for the test."""

    kind: Literal["all"]
    """All points that are not held out."""


class MapGrid(JobTable):
    """``{ kind = "grid" }``: the field at cell centres over ``area``; of ``"cells"`` its means over them."""

    kind: Literal["grid", "cells"]
    """What is mapped: "grid" the field at the centres of cells, "cells" its means over them."""
    resolution_degrees: Annotated[float | None, DEGREES] = None
    """Size of a cell on the globe."""
    resolution: float | None = key(None, "in a plane, a number above 0 in its unit", 1000.0, gt=0.0)
    """Size of a cell."""
    area: Annotated[tuple[float, float, float, float] | None, BeforeValidator(values.as_tuple), AREA] = None
    """Which part of the globe, or of the plane, is mapped."""
    std_resolution_degrees: float | None = key(
        None, "a number of degrees above resolution_degrees, at most 90", 4.0, gt=0.0, le=90.0
    )
    """Size of the cells of the error bars, where the mean has finer ones."""
    std_samples: int | None = key(
        None, f"an integer of at least {FEWEST_SAMPLES}, or 0 for no samples", 400, ge=0, le=100_000
    )
    """How many samples of the field the error bars are estimated from; by the size of the map if left
    out."""
    depths: Annotated[
        tuple[Annotated[float, Field(ge=0.0, le=1e6)], ...] | None, BeforeValidator(values.as_tuple)
    ] = key(
        None,
        "of observations with depths, a number of at least 0, or an ascending list of them: where maps are "
        "wanted, in the unit of these",
        [10.0, 50.0],
        min_length=1,
        max_length=1000,
    )
    mask: Literal["observed", "none"] = key(
        "observed", '"observed" to leave cells blank where the source has no values, or "none"', "none"
    )

    @model_validator(mode="after")
    def _depths_ascend(self) -> Self:
        if self.depths is not None and list(self.depths) != sorted(set(self.depths)):
            raise ValueError(f"depths = {list(self.depths)} do not ascend; sort them, and give none twice")
        return self

    @property
    def step(self) -> float:
        """Size of a cell in the unit of the space."""
        return self.resolution or self.resolution_degrees or 0.0

    @model_validator(mode="after")
    def _lies_somewhere(self) -> Self:
        _check_one(self, "resolution_degrees", "resolution")
        if self.area is not None and self.resolution is None:
            values.area(self.area)
        elif self.area is not None and not (self.area[2] < self.area[0] and self.area[1] < self.area[3]):
            raise ValueError(
                f"area = {list(self.area)}; expected [north, west, south, east] in the plane: the largest y, "
                "the smallest x, the smallest y and the largest x"
            )
        if self.std_resolution_degrees is not None and self.resolution is not None:
            raise ValueError("std_resolution_degrees is of the globe; in a plane leave it out")
        return self

    @model_validator(mode="after")
    def _error_bars_can_be_made(self) -> Self:
        coarse = self.std_resolution_degrees
        if coarse is not None and coarse <= self.step:
            raise ValueError(
                f"std_resolution_degrees = {coarse:g} is not above resolution_degrees = "
                f"{self.step:g}; leave it out to have mean and error bars on one grid"
            )
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


class DesignTable(JobTable):
    """``[design]``: which points are observed, scored and mapped, places to predict, regions to average."""

    train: RandomPoints | StridePoints | AllPoints = key(
        ...,
        "a table of kind random, stride or all",
        {"kind": "random", "count": 10000, "seed": 0},
        discriminator="kind",
    )
    """Which points are observed."""
    test: RandomPoints | StridePoints | BlockPoints | FoldPoints = key(
        FoldPoints(kind="folds"),
        "a table of kind random, stride, blocks or folds",
        {"kind": "random", "count": 1000, "seed": 1},
        discriminator="kind",
    )
    """Which points are held out and scored."""
    calibration: Annotated[RandomPoints | BlockPoints, Field(discriminator="kind")] | None = key(
        None, "a table of kind random or blocks", {"kind": "random", "count": 2000, "seed": 2}
    )
    """Which points are held out to correct error bars."""
    targets: Annotated[str | None, AfterValidator(values.places)] = key(
        None, '"table:PATH", a CSV or Parquet file of places to predict', "table:places.csv"
    )
    """Places that are predicted beside the map."""
    map: MapGrid | None = key(
        None, "a table of kind grid or cells", {"kind": "grid", "resolution_degrees": 4.0}
    )
    """Where a map is wanted."""
    regions: Regions = key(
        None,
        EXPECTED_REGIONS,
        ["global", {"name": "europe", "south": 35, "north": 70, "west": -10, "east": 40}],
    )
    """Regions over which means are wanted."""
    regions_resolution_degrees: float = key(
        RESOLUTION_DEGREES,
        "a number of degrees in [0.1, 30]: height of the cells whose sum is the mean over a region",
        1.0,
        ge=0.1,
        le=30.0,
    )

    window_hours: float | None = key(
        None,
        "of a [prior] time_kernel, a positive number of hours: observations that lie within so many of a "
        "time inform it, from all times of the source",
        48.0,
        gt=0.0,
        le=1e6,
    )
    causal: bool = key(
        False, "of a [prior] time_kernel, true: no observation informs times before its own; or false", True
    )

    lead_hours: float | None = key(
        None,
        "of a [prior] time_kernel, a positive number of hours: observations end so long before a time that "
        "they inform, as those of a forecast do",
        24.0,
        gt=0.0,
        le=1e6,
    )

    @model_validator(mode="after")
    def _something_is_seen(self) -> Self:
        window, lead = self.window_hours, self.lead_hours
        if window is not None and lead is not None and lead > window:
            raise ValueError(
                f"lead_hours = {lead:g} is more than window_hours = {window:g}, so that no observation is "
                "seen; give a longer window, or leave it out"
            )
        return self

    @model_validator(mode="after")
    def _folds_have_errors_of_their_own(self) -> Self:
        if self.calibration is not None and isinstance(self.test, FoldPoints):
            raise ValueError(
                "calibration cannot be combined with a cross-validation, which has an error of every "
                "observed place to "
                'calibrate with; leave it out, or hold points out: test = { kind = "random", count = 1000 }'
            )
        return self

    @property
    def of_globe(self) -> list[str]:
        """Keys that are given in degrees, or are places of the globe."""
        drawn = [(name, getattr(self, name)) for name in ("test", "calibration", "map")]
        found = [
            f"{name}.{key}"
            for name, table in drawn
            if table is not None
            for key in ("blocks_degrees", "margin_degrees", "resolution_degrees", "std_resolution_degrees")
            if key in table.model_fields_set and getattr(table, key) is not None
        ]
        return found + ["regions"] * (self.regions is not None)

    @property
    def of_plane(self) -> list[str]:
        """Keys that are given in the unit of a plane."""
        drawn = [(name, getattr(self, name)) for name in ("test", "calibration", "map")]
        return [
            f"{name}.{key}"
            for name, table in drawn
            if table is not None
            for key in sorted(IN_UNIT_OF_PLANE)
            if key in table.model_fields_set and getattr(table, key) is not None
        ]

    @property
    def lead(self) -> float | None:
        """Hours before a time at which what informs it ends; None where later observations do, too."""
        return 0.0 if self.lead_hours is None and self.causal else self.lead_hours

    @property
    def region_means(self) -> LinearFunctionals | None:
        """Means over the regions, one functional for each; None without regions."""
        if self.regions is None:
            return None
        return area_means(self.regions, resolution_degrees=self.regions_resolution_degrees)


def targets_path(address: str) -> Path:
    """Path of ``table:PATH``."""
    return Path(address.partition(":")[2]).expanduser()
