"""A job file as strict, frozen tables, and what its tables say of each other."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from cagp_dist.calibration.recalibration.fewest import fewest, outermost
from cagp_dist.calibration.recalibration.methods import RECALIBRATIONS, REMOVED, SHARP, SHARP_LEVELS
from cagp_dist.errors import ConfigurationError
from cagp_dist.fields.sources import SOURCES
from cagp_dist.kernels import FITTED, chosen_by
from cagp_dist.pipeline import SOLVERS, LinearMean, each
from cagp_dist.pipeline.defaults import RECALIBRATION, RECALIBRATION_BY_POINTS
from cagp_dist.remedies import Setting
from cagp_dist.runtime.deadlines import Deadlines
from cagp_dist.runtime.schedulers import EXPECTED_SCHEDULER
from cagp_dist.service.jobfile import values
from cagp_dist.service.jobfile.design_table import (
    IN_UNIT_OF_PLANE,
    BlockPoints,
    DesignTable,
    FoldPoints,
    MapGrid,
)
from cagp_dist.service.jobfile.fields import JobTable, key
from cagp_dist.service.jobfile.notify_table import NotifyTable
from cagp_dist.service.jobfile.observations_table import ColumnsTable, ObservationsTable
from cagp_dist.service.jobfile.prior_table import PriorTable
from cagp_dist.service.jobfile.solver_table import AnySolverTable, AutoTable
from cagp_dist.service.jobfile.times_key import parse_length
from cagp_dist.space import Plane, Space
from cagp_dist.store.addresses import folder_of
from cagp_dist.store.retention import Retention
from cagp_dist.text import alternatives, counted

METHOD_NAMES = (*(name for name in RECALIBRATIONS if name != "none"), SHARP, "none")

if TYPE_CHECKING:
    MethodName = str
else:
    MethodName = Literal[METHOD_NAMES]


def _is_there(method: object) -> object:
    """Say what to use instead of a method that was removed."""
    if isinstance(method, str) and method in REMOVED:
        raise ValueError(f"this method was removed; {REMOVED[method]}")
    return method


class RecalibrationTable(JobTable):
    """``[recalibration]``: how errors at points that were not used correct the predictive distributions."""

    method: Annotated[MethodName, BeforeValidator(_is_there)] = key(
        RECALIBRATION, alternatives(METHOD_NAMES), "local-scale"
    )
    """How the error bars are corrected."""
    levels: Annotated[
        tuple[Annotated[float, Field(gt=0.0, lt=1.0)], ...] | None, BeforeValidator(values.as_tuple)
    ] = key(
        None,
        'of "sharp", levels of the quantiles: ascending numbers above 0 and below 1, 2 to 99',
        [0.05, 0.5, 0.95],
        min_length=2,
        max_length=99,
    )
    split: Literal["three-way", "two-way"] | None = key(
        None,
        'of "sharp", "three-way": lengthscales are chosen with one half of the calibration '
        'points, widths with the other; or "two-way": both with all of them',
        "three-way",
    )

    @model_validator(mode="before")
    @classmethod
    def _has_no_history(cls, table: object) -> object:
        if isinstance(table, dict) and "history" in table:
            raise ValueError("the key history was removed: each run learns from its own errors; leave it out")
        return table

    @model_validator(mode="after")
    def _levels_of_quantiles(self) -> Self:
        given = [name for name in ("levels", "split") if getattr(self, name) is not None]
        if given and self.method != SHARP:
            raise ValueError(
                f'{" and ".join(given)} cannot be combined with method = "{self.method}"; only "{SHARP}" has '
                f'them; leave them out, or write method = "{SHARP}"'
            )
        if self.levels is not None and list(self.levels) != sorted(set(self.levels)):
            raise ValueError(f"levels = {list(self.levels)} do not ascend; sort them, and give none twice")
        return self

    @property
    def sharp_levels(self) -> tuple[float, ...]:
        """Levels of the quantiles of a sharp GP."""
        return SHARP_LEVELS if self.levels is None else self.levels

    @property
    def sharp_split(self) -> Literal["three-way", "two-way"]:
        """How the calibration points of a sharp GP are used."""
        return self.split or "three-way"

    @property
    def fewest_points(self) -> int:
        """Calibration points that a sharp GP needs."""
        return (1 if self.sharp_split == "two-way" else 2) * fewest(outermost(self.sharp_levels))

    def check_points(self, count: int) -> None:
        """Raise `ValueError` if so many calibration points are too few for the levels of a sharp GP."""
        if count >= (needed := self.fewest_points):
            return
        fewer = "levels nearer to the middle"
        if self.sharp_split == "three-way":
            fewer += f', or split = "two-way", which needs {needed // 2} and guarantees nothing'
        raise ValueError(
            f"{counted(count, 'calibration point')} cannot resolve the level "
            f"{outermost(self.sharp_levels):g}{' in each half' if self.sharp_split == 'three-way' else ''}; "
            f"expected at least {needed}: raise count of [design] calibration, or ask for {fewer}"
        )


class ClusterTable(JobTable):
    """``[cluster]``: where the work is done. Has no influence on the result."""

    scheduler: Annotated[str | None, AfterValidator(values.scheduler)] = key(
        None, EXPECTED_SCHEDULER, "local"
    )
    """Who does the work; this process on all cores if left out."""
    workers: int | None = key(None, "an integer of at least 1", 2, ge=1, le=100_000)
    """How many workers a batch system is asked for; 2 if left out."""
    threads: int = key(1, "an integer of at least 1", 1, ge=1, le=1000)
    """Threads of each worker."""
    memory_limit: Annotated[int | None, BeforeValidator(values.parse_bytes)] = key(
        None, "an amount of memory for each worker, with its unit", "4GiB"
    )
    insecure: bool = key(False, "true to allow plain TCP to other machines, or false", False)


Seconds = Annotated[
    float, Field(description="a number of seconds above 0", examples=[60.0], gt=0.0, le=10_000_000.0)
]

CHECKPOINT_SECONDS = 60.0  # Time between checkpoints: little is lost, and little is spent on them


def _length_of(name: str, value: str) -> str:
    """Check that a length of time is written as it is to be."""
    parse_length(value, name)
    return value


class RuntimeTable(JobTable):
    """``[runtime]``: patience with a cluster, attempts, and how often a solve is kept. Changes no result."""

    attempts: int = key(Deadlines.attempts, "an integer from 1 to 100", 3, ge=1, le=100)
    """How often in all a stage of the job is begun when its cluster is lost."""
    silence_seconds: Seconds = Deadlines.silence_seconds
    """Time without an answer of the scheduler or a worker, after which it counts as lost."""
    idle_seconds: Seconds = Deadlines.idle_seconds
    """Time in which tasks wait and no worker works on one, after which the cluster counts as lost."""
    stall_seconds: Seconds = Deadlines.stall_seconds
    """Time in which no task ends although workers work, after which the cluster counts as lost."""
    rejoin_seconds: Seconds = Deadlines.rejoin_seconds
    """Time to wait for a scheduler and its first worker before a new attempt."""
    worker_seconds: Seconds = Deadlines.worker_seconds
    """Time to wait for the first worker of a cluster that runs already."""
    start_after: Annotated[str, AfterValidator(partial(_length_of, "start_after"))] = key(
        "5min", "a whole number of min, h or d", "5min"
    )
    """Time after which work begins on the worker jobs of a batch system that are there."""
    queue_seconds: Seconds = Deadlines.queue_seconds
    """Time to wait for the first worker job to begin."""
    total_seconds: float | None = key(
        Deadlines.total_seconds, "a number of seconds above 0", 7200.0, gt=0.0, le=10_000_000.0
    )
    """Time limit of the whole job; none if left out."""
    checkpoint_seconds: float = key(
        CHECKPOINT_SECONDS, "a number of seconds of at least 0", 60.0, ge=0.0, le=10_000_000.0
    )
    """Time between two checkpoints, at least; 0 keeps every iteration."""

    def deadlines(self) -> Deadlines:
        """Make the deadlines; the time of the whole job begins."""
        seconds = parse_length(self.start_after, "start_after") / np.timedelta64(1, "s")
        settings = self.model_dump(exclude={"checkpoint_seconds", "start_after"})
        return Deadlines(**settings, start_after_seconds=float(seconds))


class KeepTable(JobTable):
    """``keep`` of ``[output]``: which runs stay. What any key says goes, goes, but not the current run."""

    days: float | None = key(
        None, "days since a run was made, a number above 0", 90, gt=0.0, le=100_000.0, strict=False
    )
    runs: int | None = key(None, "how many of the newest stay, an integer of at least 1", 30, ge=1)
    total: Annotated[int | None, BeforeValidator(values.parse_bytes)] = key(
        None, "how much all runs may take together, with its unit: the oldest go first", "50GiB"
    )
    finals_only: bool = key(
        False, "true to remove runs of preliminary fields when there are final ones, or false", True
    )

    def rule(self) -> Retention:
        """Give the rule as stores take it."""
        return Retention(**self.model_dump())


class OutputTable(JobTable):
    """``[output]``: where the results are, which of them stay, and whether weights are kept."""

    root: Annotated[str, AfterValidator(values.output)] = key(
        "out", "the path of a folder, or s3://BUCKET/PATH", "out", min_length=1
    )
    """Where the results go."""
    keep_weights: bool = key(False, "true or false", True)
    """Whether the weights of test points, cells and regions are kept for later runs at the same
    points."""
    keep: Annotated[KeepTable | None, BeforeValidator(values.keep)] = key(
        None, f"{values.EXPECTED_KEEP}; or a table with the keys days, runs, total, finals_only", "90d"
    )
    """Which runs stay; all if left out."""

    @property
    def folder(self) -> Path:
        """Where the output is; of one in an object store, where work is done."""
        return folder_of(self.root)


def _keys_of(table: type[JobTable]) -> str:
    """Give what is expected of a table."""
    return f"the keys {', '.join(field.alias or name for name, field in table.model_fields.items())}"


class Job(JobTable):
    """A checked job file."""

    observations: ObservationsTable = key(..., _keys_of(ObservationsTable))
    design: DesignTable = key(..., _keys_of(DesignTable))
    prior: PriorTable = key(PriorTable(), _keys_of(PriorTable))
    solver: AnySolverTable = key(
        AutoTable(),
        'a table with the name of a solver, or with name = "auto"',
        {"name": "block-gauss-seidel", "iterations": 5, "block_size": 1024},
        discriminator="name",
    )
    recalibration: RecalibrationTable = key(RecalibrationTable(), _keys_of(RecalibrationTable))
    cluster: ClusterTable = key(ClusterTable(), _keys_of(ClusterTable))
    runtime: RuntimeTable = key(RuntimeTable(), _keys_of(RuntimeTable))
    output: OutputTable = key(OutputTable(), _keys_of(OutputTable))
    notify: NotifyTable | None = key(None, _keys_of(NotifyTable))
    _text: str = PrivateAttr(default="")

    @model_validator(mode="before")
    @classmethod
    def _what_follows(cls, tables: object) -> object:
        """Fill in that all places of a table are observed, and what learns from calibration points."""
        if not isinstance(tables, dict):
            return tables
        observations, design = tables.get("observations"), tables.get("design", {})
        observations = observations if isinstance(observations, dict) else {}
        source = observations.get("source")
        if isinstance(source, str) and source.startswith("table:") and isinstance(design, dict):
            tables = {**tables, "design": {"train": {"kind": "all"}, **design}}
        learned = tables.get("recalibration", {})
        if isinstance(design, dict) and "calibration" in design and isinstance(learned, dict):
            tables = {**tables, "recalibration": {"method": RECALIBRATION_BY_POINTS, **learned}}
        prior, columns = tables.get("prior", {}), observations.get("columns")
        drawn = [*design.values()] if isinstance(design, dict) else []
        plane = (
            "crs" in observations
            or (isinstance(columns, dict) and "x" in columns)
            or any(isinstance(table, dict) and IN_UNIT_OF_PLANE & {*table} for table in drawn)
        )
        if plane and isinstance(prior, dict):  # the mean of the globe is one of latitude
            return {**tables, "prior": {**({} if "background" in prior else {"mean": "constant"}), **prior}}
        return tables

    @field_validator("prior", "recalibration", "solver", "output", mode="after")
    @classmethod
    def _suits_those_before_it(cls, table: Any, info: ValidationInfo) -> Any:
        """Refuse a table that contradicts one that stands before it; one with mistakes of its own is None."""
        assert info.field_name is not None
        before = info.data.get("design"), info.data.get("prior")
        if isinstance(table, PriorTable) and (observations := info.data.get("observations")) is not None:
            in_plane = _is_in_plane(observations, before[0])
            _refuse(
                _not_of_variables(table, observations, before[0]),
                _not_of_depths(table, observations, before[0]),
                _not_as_they_are(table, observations, before[0]),
                _misplaced(table, before[0], in_plane=in_plane),
            )
        if (observed := info.data.get("observations")) is not None:
            _refuse(_beside_labels(table, observed))
        _refuse(_CONTRADICTIONS[info.field_name](table, *before))
        return table

    def check_space(self, space: Space) -> None:
        """Raise `ConfigurationError` where the job is not one of the space in which its observations lie."""
        in_plane = _is_in_plane(self.observations, self.design)
        if isinstance(space, Plane) and not in_plane:
            raise ConfigurationError(
                f"the observations lie in the {space.text}, and the job is one of the globe, in degrees or "
                "with a mean by latitude; expected x and y to be named, or a resolution in the unit of the "
                "plane.",
                key="plane-not-said",
                remedies=(Setting("columns", dict(zip("xy", space.names, strict=True))),),
            )
        for wrong, said in _misplaced(self.prior, self.design, in_plane=not space.has_latitudes):
            if wrong:
                raise ConfigurationError(f"{said}.", key="of-another-space")

    @property
    def text(self) -> str:
        """The job file as it was written."""
        return self._text

    def canonical(self, version: str | None = None) -> dict[str, object]:
        """Every setting that has an influence on the result, defaults filled in, ready for JSON.

        The defaults are those of a numerical version, of this one if none is named.
        """
        form = self.model_dump(mode="json", exclude={"cluster", "runtime", "output", "notify"})
        shown, drawn, prior, table = (
            form[name] for name in ("observations", "design", "prior", "recalibration")
        )
        sharp = self.recalibration.method == SHARP
        if sharp:
            table["levels"] = list(self.recalibration.sharp_levels)
            table["split"] = self.recalibration.sharp_split
        # what is newer than jobs without it is left out, so that these keep their form, and their runs; where
        # "keep", "observed" and "auto" make a difference, the run and its key say so
        known: list[tuple[JobTable | None, Any]] = [
            (self.observations, shown),
            (self.observations.columns, shown["columns"]),
            (self.design, drawn),
            (self.design.map, drawn["map"]),
            (self.design.test, drawn["test"]),
            (self.design.calibration, drawn.get("calibration")),
            (self.prior, prior),
        ]
        for own, said in known:
            if own is None:
                continue
            for name in _NEWER_KEYS.get(type(own), ()):
                if getattr(own, name) == type(own).model_fields[name].default:
                    del said[name]
        absent: list[tuple[dict[str, Any], str, bool]] = [
            *((table, name, not sharp) for name in ("levels", "split")),
            (form, "recalibration", self.recalibration.method in ("none", RECALIBRATION_BY_POINTS)),
            *(
                (drawn, name, self.design.regions is None)
                for name in ("regions", "regions_resolution_degrees")
            ),
            (prior, "anisotropy", self.prior.anisotropy == "none"),
            (prior, "hyperparameters", self.prior.hyperparameters != "integrate"),
        ]
        for owner, name, is_absent in absent:
            if is_absent:
                del owner[name]
        if self.prior.estimates_mean:  # as jobs say it that had a choice
            prior["mean_estimate"] = "generalised"
        if version in FORMER_MEANS and "mean" not in self.prior.model_fields_set:
            prior["mean"] = FORMER_MEANS[version]
        return form


FORMER_MEANS = dict.fromkeys(("0.1.0", "0.2.0"), "quadratic-latitude")
"""Mean of a job that named none, by numerical version."""

TIMED = "time_kernel", "time_lengthscale_hours"

_NEWER_KEYS: dict[type[JobTable], tuple[str, ...]] = {
    ObservationsTable: (
        *("level", "select", "units", "check_range", "transform", "missing"),
        *("noise_std", "columns", "crs", "where", "gaps", "quality", "rate"),
    ),
    ColumnsTable: ("name", "x", "y", "depth", "limit"),
    DesignTable: ("calibration", "targets", "window_hours", "causal", "lead_hours"),
    MapGrid: ("resolution", "std_resolution_degrees", "std_samples", "mask", "depths"),
    BlockPoints: ("blocks", "margin"),
    FoldPoints: ("blocks",),
    PriorTable: (
        *("fit_times", "covariates_missing", "covariates", "background", "background_std"),
        *("bias_by", "bias_std", "nugget_correlation"),
        *("transform", "outliers"),
        *TIMED,
        *("depth_kernel", "depth_lengthscale"),
    ),
}


Mistakes = Iterator[tuple[bool, str]]


def _refuse(*mistakes: Mistakes) -> None:
    """Raise `ValueError` for the first of some mistakes that was made."""
    for wrong, said in chain(*mistakes):
        if wrong:
            raise ValueError(said)


def _beside_labels(table: Any, observations: ObservationsTable) -> Mistakes:
    """Yield what does not go with several variables or depths in tables beside that of the prior."""
    what = "depths" if observations.in_depth else "several variables"
    if not observations.in_depth and len(observations.variables) < 2:
        return
    if isinstance(table, RecalibrationTable):
        yield (
            table.method != "none",
            f'method = "{table.method}" cannot be combined with {what} yet; leave it out',
        )
    if isinstance(table, OutputTable):
        yield table.keep_weights, f"keep_weights cannot be combined with {what}; leave it out"


def _not_of_variables(
    prior: PriorTable, observations: ObservationsTable, design: DesignTable | None
) -> Mistakes:
    """Yield what does not go with the variables of a job, or with several."""
    several = len(observations.variables) > 1
    yield (
        prior.nugget_correlation and not several,
        "nugget_correlation is of several variables, and [observations] names one; leave it out",
    )
    measured = [name for name in prior.bias_by if name in observations.variables]
    yield (
        bool(measured),
        f"bias_by names {' and '.join(measured)}, whose values are mapped; expected a column that says who "
        "has measured them",
    )
    others = {
        "lengthscale, variance and noise_variance": prior.numbers is not None,
        "background": prior.background is not None,
        "time_kernel": prior.time_kernel is not None,
        "covariates": bool(prior.covariates),
        'fit_to = "field"': prior.fit_to == "field",
        'hyperparameters = "integrate"': prior.hyperparameters == "integrate",
        f'mean = "{prior.mean}"': prior.reads_mean or prior.is_previous,
        f'kernel = "{prior.kernel}"': chosen_by(prior.kernel) == FITTED or prior.parts > 1,
        '[observations] gaps = "drop"': observations.gaps == "drop",
        "[observations] transform": observations.transform != "none",
        "[design] calibration": design is not None and design.calibration is not None,
        "[design] map std_samples": design is not None
        and design.map is not None
        and design.map.std_samples is not None,
    }
    refused = " and ".join(name for name, there in others.items() if there)
    yield (
        several and bool(refused),
        f"{refused} cannot be combined with several variables yet; leave it out, or map them one by one",
    )


def _not_of_depths(
    prior: PriorTable, observations: ObservationsTable, design: DesignTable | None
) -> Mistakes:
    """Yield what does not go with the depths of a job, or with none."""
    cells = None if design is None else design.map
    if not observations.in_depth:
        own = [f"[design] map depths = {list(cells.depths)}"] if cells and cells.depths is not None else []
        own += ["depth_kernel"] if prior.depth_kernel is not None else []
        yield (
            bool(own),
            f"{' and '.join(own)} given, and [observations] names no column of depths; name it, columns = {{ "
            'depth = "..." }, or leave this out',
        )
        return
    yield (
        cells is not None and cells.depths is None,
        "the observations have depths, and [design] map says none; add depths = [10.0, 50.0], in their unit",
    )
    yield (
        prior.numbers is not None and prior.depth_kernel is None,
        "lengthscale, variance and noise_variance given without depth_kernel and depth_lengthscale, and the "
        "observations have depths; give these, too, or leave all of them out",
    )
    yield (
        prior.depth_kernel == "metric" and prior.anisotropy not in ("none", "auto"),
        'anisotropy cannot be combined with depth_kernel = "metric", of one distance in space and depth; '
        'write "matern12" or "matern32", or leave either out',
    )
    others = {
        "background": prior.background is not None,
        "time_kernel": prior.time_kernel is not None,
        'fit_to = "field"': prior.fit_to == "field",
        'hyperparameters = "integrate"': prior.hyperparameters == "integrate",
        f'mean = "{prior.mean}"': prior.reads_mean or prior.is_previous,
        f'kernel = "{prior.kernel}"': chosen_by(prior.kernel) == FITTED or prior.parts > 1,
        "[design] calibration": design is not None and design.calibration is not None,
        **_maps_beyond_places(design),
    }
    refused = " and ".join(name for name, there in others.items() if there)
    yield (
        bool(refused),
        f"{refused} cannot be combined with depths yet; leave it out, or map one depth at a time",
    )


def _maps_beyond_places(design: DesignTable | None) -> dict[str, bool]:
    """Say which of what is no map of places is asked for: means over areas, and error bars by draws."""
    cells = None if design is None else design.map
    return {
        "[design] regions": design is not None and design.regions is not None,
        '[design] map kind = "cells"': cells is not None and cells.kind == "cells",
        "[design] map std_samples": cells is not None and cells.std_samples is not None,
        "[design] map std_resolution_degrees": cells is not None and cells.std_resolution_degrees is not None,
    }


def _not_as_they_are(
    prior: PriorTable, observations: ObservationsTable, design: DesignTable | None
) -> Mistakes:
    """Yield what does not go with values that are transformed, or of which some may be wrong."""
    others = {
        "several variables": len(observations.variables) > 1,
        "depths": observations.in_depth,
        "[observations] noise_std, in the unit of the values,": observations.noise_std is not None,
        "[observations] transform": observations.transform != "none",
        **_maps_beyond_places(design),
    }
    refused = " and ".join(name for name, there in others.items() if there)
    yield (
        prior.transforms and bool(refused),
        f'transform = "{prior.transform}" cannot be combined with {refused}; leave either out. The mean of '
        "values over a cell is not that of what they were transformed to",
    )
    others = {
        "several variables": len(observations.variables) > 1,
        "depths": observations.in_depth,
        "a cross-validation": design is not None and isinstance(design.test, FoldPoints),
    }
    refused = " and ".join(name for name, there in others.items() if there)
    yield (
        prior.outliers != "keep" and bool(refused),
        f'outliers = "{prior.outliers}" cannot be combined with {refused} yet; leave either out',
    )
    others = {
        "several variables": len(observations.variables) > 1,
        "depths": observations.in_depth,
        "bias_by": bool(prior.bias_by),
        "transform": prior.transforms,
        "time_kernel": prior.time_kernel is not None,
        "a field as background_std": isinstance(prior.background_std, str),
        f'mean = "{prior.mean}"': prior.reads_mean or prior.is_previous,
    }
    refused = " and ".join(name for name, there in others.items() if there)
    yield (
        observations.quality == "flag" and bool(refused),
        f'{refused} cannot be combined with quality = "flag" of [observations], beside which values are not '
        "checked yet; leave either out",
    )


def given_beside_limits(job: Job) -> dict[str, bool]:
    """Say what a job asks for that does not go with limits of detection, which its table may hold."""
    prior, observations = job.prior, job.observations
    return {
        "several variables": len(observations.variables) > 1,
        "a column of depths": observations.in_depth,
        f'[observations] transform = "{observations.transform}"': observations.transform != "none",
        'quality = "flag"': observations.quality == "flag",
        'outliers = "robust"': prior.outliers != "keep",
        'transform = "normal-score"': prior.transform == "normal-score",
        "time_kernel": prior.time_kernel is not None,
        "fit_times": prior.fit_times is not None,
        "bias_by": bool(prior.bias_by),
        "background": prior.background is not None,
        f'mean = "{prior.mean}"': prior.reads_mean or prior.is_previous,
        f'[recalibration] method = "{job.recalibration.method}"': job.recalibration.method != "none",
        "keep_weights": job.output.keep_weights,
        **_maps_beyond_places(job.design),
    }


def _is_in_plane(observations: ObservationsTable, design: DesignTable | None) -> bool:
    """Whether a job says a plane; of a file, which may say so itself, the unit of the design tells."""
    if observations.in_plane or design is None or not SOURCES[observations.kind].selects:
        return observations.in_plane
    return bool(design.of_plane) and not design.of_globe


def _misplaced(prior: PriorTable, design: DesignTable | None, *, in_plane: bool) -> Mistakes:
    """Yield what is of the globe in a plane, and of a plane on the globe."""
    if not in_plane:
        given = [] if design is None else design.of_plane
        yield (
            bool(given),
            f"{' and '.join(given)} of [design] in the unit of a plane, and the places are latitudes and "
            'longitudes; write degrees, or columns = { x = "...", y = "..." } or crs in [observations]',
        )
        for number in each(prior.lengthscale or ()):
            try:
                values.lengthscale(number)
            except ValueError as error:
                yield True, f"lengthscale = {number}: {error}"
        return
    given = [] if design is None else design.of_globe
    yield (
        bool(given),
        f"{' and '.join(given)} of [design] cannot be had in a plane; write resolution, blocks and margin, "
        "in its unit, and leave regions out",
    )
    yield (
        prior.mean not in ("constant", "regional_linear", values.ZERO) or bool(prior.covariates),
        f'mean = "{prior.mean}"{" and covariates" if prior.covariates else ""} depends on latitude and '
        'longitude, and places are points of a plane; expected mean = "constant" or "regional_linear"',
    )
    yield prior.in_time, "time_kernel cannot be had in a plane by a job yet; use cagp_dist.krige(..., at=...)"


def _untimely(prior: PriorTable, design: DesignTable | None, _: None) -> Mistakes:
    """Yield what of a design does not go with how its times inform each other."""
    if design is None:
        return
    given = [name for name in ("window_hours", "causal", "lead_hours") if getattr(design, name)]
    keys, table = " and ".join(given), design.map
    yield (
        bool(given) and prior.is_previous,
        f'{keys} of [design] cannot be combined with mean = "previous", whose runs continue from earlier '
        "ones; leave it out",
    )
    yield (
        bool(given) and not prior.in_time,
        f"{keys} of [design] given without a kernel in time, so that each time is a field of its own; write "
        'time_kernel = "auto", or leave it out',
    )
    yield (
        prior.in_time and design.regions is not None,
        "time_kernel cannot be combined with regions of [design], whose means are of one time; leave one "
        "of the two out",
    )
    yield (
        prior.in_time and table is not None and bool(table.std_resolution_degrees or table.std_samples),
        "time_kernel cannot be combined with std_resolution_degrees or std_samples of [design] map; leave "
        "these out: each cell has its error bar",
    )


def _unlearned(table: RecalibrationTable, design: DesignTable | None, prior: PriorTable | None) -> Mistakes:
    """Yield why a method has nothing to learn from; a sharp GP has points that are kept for it."""
    gaps = design is not None and design.calibration is None and isinstance(design.test, BlockPoints)
    yield (
        table.method != "none" and gaps and prior is not None and prior.is_previous,
        f'method = "{table.method}" learns from leave-one-out errors of the state that goes on, which say '
        'nothing of blocks without observations; add calibration = { kind = "blocks", count = 1000, seed = 2 '
        "} to [design]",
    )
    yield (
        table.method != "none" and prior is not None and bool(prior.bias_by),
        f'method = "{table.method}" cannot be combined with bias_by of [prior]: errors of observations that '
        "share one do not say how the field errs; leave either out",
    )
    yield (
        table.method != "none" and prior is not None and prior.outliers != "keep",
        f'method = "{table.method}" cannot be combined with outliers = "robust" of [prior], and would learn '
        "from values that are wrong; leave either out",
    )
    if table.method != SHARP:
        return
    yield (
        prior is not None and prior.transforms,
        f'method = "{SHARP}" cannot be combined with transform of [prior] yet; use another method',
    )
    yield (
        prior is not None and prior.is_previous,
        f'method = "{SHARP}" tries other lengthscales, which the state of the previous run is not of; use '
        "another method, or another [prior] mean",
    )
    yield (
        prior is not None and prior.in_time,
        f'method = "{SHARP}" tries other lengthscales for each time by itself; use another method, or leave '
        "time_kernel of [prior] out",
    )
    if design is None:
        return
    if design.calibration is not None:
        table.check_points(design.calibration.count)
        return
    folds = ""
    if isinstance(design.test, FoldPoints):
        folds = ', and test = { kind = "random", count = 1000, seed = 1 } instead of a cross-validation'
    yield (
        True,
        f'method = "{SHARP}" learns from errors at points that are kept for it, and [design] keeps none; '
        f'add calibration = {{ kind = "random", count = 1000, seed = 2 }} to it{folds}. For the levels '
        f"asked for it takes at least {table.fewest_points} calibration points",
    )


def _unkept(output: OutputTable, _: DesignTable | None, prior: PriorTable | None) -> Mistakes:
    """Yield why weights cannot be kept."""
    yield (
        output.keep_weights and prior is not None and bool(prior.bias_by),
        "keep_weights cannot be combined with bias_by of [prior], whose observations are of others each "
        "time; leave it out",
    )
    yield (
        output.keep_weights and prior is not None and prior.transforms,
        "keep_weights cannot be combined with a transform of [prior], whose results are not sums of values "
        "times weights; leave it out",
    )
    yield (
        output.keep_weights and prior is not None and prior.in_time,
        "keep_weights cannot be combined with a time_kernel of [prior], whose weights are of places and "
        "times; leave it out",
    )


def _unsuited(solver: AnySolverTable, design: DesignTable | None, prior: PriorTable | None) -> Mistakes:
    """Yield why a solver does not suit the map of a job, or its times."""
    built = solver.build()
    yield (
        prior is not None and prior.in_time and built is not None and built.needs_grid,
        f'name = "{solver.name}" cannot be combined with a time_kernel of [prior], with which observations '
        'are points in space and time; write name = "auto", "neighbours" or "cholesky"',
    )
    if design is None:
        return
    table = design.map
    coarser = table is not None and table.std_resolution_degrees is not None
    sampled = table is not None and bool(table.std_samples)
    # any solver that may be chosen is exactly calibrated, and gives its mean by itself
    shares = built is not None and getattr(built, "computational_share", None) is not None
    linear = built is None or isinstance(built, LinearMean)
    names = ", ".join(name for name, known in SOLVERS.items() if issubclass(known, LinearMean))
    use = f"or use one of {names}"
    yield (
        coarser and not linear,
        f"the mean of {solver.name} does not come without its error bars, which std_resolution_degrees of "
        f"[design] map asks for; leave that out, {use}",
    )
    yield (
        sampled and not linear,
        f"std_samples of [design] map asks for error bars from samples, which {solver.name} does not give; "
        f"leave that out, {use}",
    )
    yield (
        sampled and shares,
        "computational_share stops a solve by variances that samples, which std_samples of [design] map asks "
        "for, do not have; leave one of the two out",
    )


_CONTRADICTIONS: dict[str, Callable[[Any, DesignTable | None, Any], Mistakes]] = {
    "prior": _untimely,
    "recalibration": _unlearned,
    "solver": _unsuited,
    "output": _unkept,
}
