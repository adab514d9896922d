"""What the report needs of a published run, read once, checked and typed."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from cagp_dist.arrays import Array, Times
from cagp_dist.calibration.verification.scores import AREA_WEIGHTED
from cagp_dist.errors import StoreError
from cagp_dist.report.by_stratum import ByStratum, by_stratum_of
from cagp_dist.report.run_reader import OpenGroup, open_published_group
from cagp_dist.store.layout_check import variable_in
from cagp_dist.store.published_variables import (
    FORMAT_VERSION,
    LOCAL_SCALE,
    NODES_PER_CELL,
    OF_VALUES,
    PLAIN,
    REGION,
    REGION_DEFINITION,
    SCORES,
    STATION_NAME,
    table,
)
from cagp_dist.variables import T2M, Variable


@dataclass(frozen=True, eq=False)
class TestPoints:
    """Posterior and observation at the test points, in the unit of the variable.

    ``std`` is latent, without the noise of an observation; ``predictive_std`` has it. Of ``std``, no more
    than ``computational_std`` is unfinished computation.
    """

    longitude_degrees: Array  # (q,)
    latitude_degrees: Array  # (q,)
    # observed, mean, std, predictive_std: (T, q); observed is NaN where a station did not measure
    observed: Array
    mean: Array
    std: Array
    predictive_std: Array
    computational_std: Array | None = None  # (T, q)
    local_scale: Array | None = None  # (T, q)

    def residuals(self, time: int) -> "tuple[TestPoints, Array]":
        """Points that were observed at a time, and observed minus predicted there, shape (k,)."""
        there = ~np.isnan(self.observed[time])
        residual = (self.observed[time] - self.mean[time])[there]
        if there.all():
            return self, residual
        chosen = {name: values[..., there] for name, values in vars(self).items() if values is not None}
        return replace(self, **chosen), residual


@dataclass(frozen=True, eq=False)
class Grid:
    """Posterior of the first time on a latitude-longitude grid; fields have shape (P, Q).

    With ``of_cells`` they are means over the cells of the grid, else values at their centres.
    """

    longitude_degrees: Array
    latitude_degrees: Array
    mean: Array
    std: Array
    computational_std: Array | None = None
    of_cells: bool = False
    local_scale: Array | None = None


@dataclass(frozen=True, eq=False)
class MeanMap:
    """Posterior mean of the first time on a grid that is finer than that of the error bars, shape (P, Q)."""

    longitude_degrees: Array
    latitude_degrees: Array
    mean: Array


@dataclass(frozen=True, eq=False)
class PublishedPlaces:
    """Posterior of the first time at the places of a table."""

    names: tuple[str, ...] | None  # Empty where one has no name
    longitude_degrees: Array  # (q,)
    latitude_degrees: Array  # (q,)
    mean: Array  # (q,)
    std: Array  # (q,)


@dataclass(frozen=True, eq=False)
class Regions:
    """Means over regions."""

    names: tuple[str, ...]
    definitions: tuple[str, ...]
    mean: Array  # (T, r)
    std: Array  # (T, r)
    computational_std: Array | None  # (T, r)


@dataclass(frozen=True, eq=False)
class ScoredValues:
    """PIT value, negative log density and CRPS of each observation, shape (T, q); NaN where there is none."""

    pit: Array
    nll: Array
    crps: Array


@dataclass(frozen=True, eq=False)
class HeldOutVerification:
    """Held-out verification of the run.

    Attributes
    ----------
    pit : array, shape (T, q), or (k,) if k of the T q observations are missing
    area_weight : array, shape (q,), or (k,)
        Area that each test point stands for, mean 1.
    levels : array, shape (L,)
    measures : mapping of str to array, shape () or (L,)
        Of the run, by their published names.
    prior_scores : mapping of str to float
        Of the prior.
    values : ScoredValues or None
        Scores of each observation; None in runs of earlier versions.
    by_stratum : ByStratum or None
        Scores by stratum, and the reliability at many levels; None likewise.
    """

    pit: Array
    area_weight: Array
    levels: Array
    measures: Mapping[str, Array]
    prior_scores: Mapping[str, float]
    values: ScoredValues | None = None
    by_stratum: ByStratum | None = None

    def design_effect(self, weighting: str = "") -> float:
        """How many times more points there are than independent ones, by standard errors of coverage."""
        independent = self.levels * (1.0 - self.levels) / self.pit.size
        error = self.measures[f"coverage_standard_error{weighting}"]
        return max(1.0, float(np.max(error**2 / independent)))

    @property
    def recalibrated(self) -> bool:
        """Whether the run says what it would have been without recalibration."""
        return f"nll{PLAIN}" in self.measures

    @cached_property
    def weightings(self) -> dict[str, str]:
        """Suffixes of the names of measures, and what is said of each; one where the two are the same."""
        alike = bool(np.ptp(self.area_weight) < 1e-6)
        return {"": ""} if alike else {"": "", AREA_WEIGHTED: ", by area"}

    @property
    def by_area_is_the_same(self) -> bool:
        """Whether all test points stand for one area, so that the two weightings are one."""
        return len(self.weightings) == 1


@dataclass(frozen=True, eq=False)
class Simulation:
    """What the error bars did on fields drawn from the prior."""

    pit: Array  # (N,): one value for each field
    error_ratio: Array  # (q,): root mean square of error over error bar at each point
    numbers: Mapping[str, float]  # Of the simulations as a whole, by their published names
    # status, statement: the verdict
    status: str
    statement: str
    observed: int | None  # Points that the fields were observed at


@dataclass(frozen=True, eq=False)
class PublishedTrace:
    """Scores after each iteration; entry 0 is the prior."""

    iteration: Array
    rmse: Array
    nll: Array
    crps: Array


@dataclass(frozen=True, eq=False)
class Attributes:
    """Attributes of the root group, as text, number or decoded JSON."""

    values: Mapping[str, object]

    def text(self, name: str) -> str:
        """Attribute as text, empty if the run does not record it."""
        value = self.values.get(name)
        return "" if value is None else str(value)

    def count(self, name: str) -> int | None:
        """Attribute as a whole number, None if the run does not record it."""
        value = self.values.get(name)
        return int(value) if isinstance(value, (int, float)) else None

    def number(self, name: str) -> float | None:
        """Attribute as a number, None if the run does not record it."""
        value = self.values.get(name)
        return float(value) if isinstance(value, (int, float)) else None

    def table(self, name: str) -> dict[str, object]:
        """Attribute as a mapping, from JSON text; empty if the run does not record it."""
        value = self._decoded(name)
        if not isinstance(value, dict):
            return {} if value is None else {name: value}
        return {str(key): entry for key, entry in value.items()}

    def lines(self, name: str) -> list[str]:
        """Attribute as lines, from a JSON list; empty if the run does not record it."""
        value = self._decoded(name)
        if not isinstance(value, list):
            return [] if value is None else [str(value)]
        return [str(entry) for entry in value]

    def _decoded(self, name: str) -> object:
        value = self.values.get(name)
        if not isinstance(value, str):
            return value
        try:
            decoded: object = json.loads(value)
        except json.JSONDecodeError:
            return value  # plain text is shown as it stands
        return decoded


@dataclass(frozen=True, eq=False)
class PublishedRun:
    """One published run; ``grid`` is None when the job asked for no map.

    ``fine`` is there where the mean has a finer map than the error bars, ``places`` where the job asked for
    predictions at those of a table, ``regions`` where it asked for means over some.
    """

    key: str
    times: Times
    points: TestPoints
    grid: Grid | None
    calibration: HeldOutVerification
    trace: PublishedTrace
    attributes: Attributes
    variable: Variable = T2M
    fine: MeanMap | None = None
    places: PublishedPlaces | None = None
    simulation: Simulation | None = None
    regions: Regions | None = None

    @property
    def solver_calibration(self) -> str:
        """What the error bars of its solver are if the prior is right; empty where the run does not say."""
        exact = self.attributes.values.get("solver_calibrated")  # all that earlier versions recorded
        said = "" if exact is None else "exact" if exact is True else "approximate"
        return self.attributes.text("solver_calibration") or said


def read_run(path: Path) -> PublishedRun:
    """Read a published run; of the maps, the first time alone."""
    if not (path / "zarr.json").is_file():
        raise StoreError(
            f"there is no published run at {path}; expected a Zarr store OUT/runs/<run_key>.zarr. "
            "Run `cagp run JOB.toml` (or `cagp demo`) first; OUT/CURRENT names the run that is current."
        )
    with open_published_group(path, "") as root:
        attributes = Attributes({str(name): value for name, value in root.dataset.attrs.items()})
    if attributes.count("format_version") not in (None, FORMAT_VERSION):
        raise StoreError(
            f"the run {path} has format {attributes.count('format_version')}; this version of cagp_dist "
            f"reads format {FORMAT_VERSION}. Run its job again: it is the attribute `job` of the run."
        )
    with open_published_group(path, "posterior") as unnamed:
        variable = variable_in(unnamed.dataset) or T2M
        posterior = replace(unnamed, variable=variable)
        times = np.atleast_1d(posterior.dataset["time"].values).astype("datetime64[s]")
        kinds = ("", "_mean", "_std", "_predictive_std")
        observed, mean, std, noisy = (posterior.values(f"{variable.name}{kind}") for kind in kinds)
        points = TestPoints(*_where(posterior), observed, mean, std, noisy, *_more(posterior))
    with open_published_group(path, "trace") as trace:
        traced = PublishedTrace(*(trace.values(name) for name in ("iteration", "rmse", "nll", "crps")))
        prior_scores = {name: float(trace.values(name)[0]) for name in SCORES}
    with open_published_group(path, "calibration") as calibration:
        scored = _calibration_of(calibration, prior_scores)
    fine = grid = places = regions = simulation = None
    if (path / "map_std").is_dir():
        with open_published_group(path, "map", variable) as fields:
            fine = _mean_of(fields.at(time=0))
    with_errors = "map" if fine is None else "map_std"
    if (path / with_errors).is_dir():
        with open_published_group(path, with_errors, variable) as fields:
            grid = _map_of(fields.at(time=0))
    if (path / "targets").is_dir():
        with open_published_group(path, "targets", variable) as targets:
            places = _places_of(targets.at(time=0))
    if (path / "simulation").is_dir():
        with open_published_group(path, "simulation") as fields:
            simulation = _simulation_of(fields)
    if (path / "regions").is_dir():
        with open_published_group(path, "regions", variable) as fields:
            regions = _regions_of(fields)
    key = attributes.text("run_key") or path.stem
    return PublishedRun(
        key, times, points, grid, scored, traced, attributes, variable, fine, places, simulation, regions
    )


def each_map(path: Path, variable: Variable) -> Iterator[tuple[MeanMap | Grid, Grid]]:
    """Read the maps of all times, one after the other; raises as `read_run`."""
    if not (path / "map_std").is_dir():
        with open_published_group(path, "map", variable) as fields:
            for index in range(fields.dataset.sizes["time"]):
                grid = _map_of(fields.at(time=index))
                yield grid, grid
        return
    with (
        open_published_group(path, "map", variable) as fine,
        open_published_group(path, "map_std", variable) as fields,
    ):
        for index in range(fields.dataset.sizes["time"]):
            yield _mean_of(fine.at(time=index)), _map_of(fields.at(time=index))


def _where(group: OpenGroup) -> tuple[Array, Array]:
    """Longitudes and latitudes."""
    return group.values("longitude"), group.values("latitude")


def _more(group: OpenGroup) -> tuple[Array | None, Array | None]:
    """Read the computational part of the standard deviation and the local scale, where a run has them."""
    return group.optional(f"{group.variable.name}_std_computational"), group.optional(LOCAL_SCALE)


def _calibration_of(group: OpenGroup, prior_scores: Mapping[str, float]) -> HeldOutVerification:
    """Read held-out verification; observations that are missing are left out of what is pooled."""
    pit, weight = group.values("pit"), group.values("area_weight")
    there = ~np.isnan(pit)
    known = table(T2M)["calibration"].items()
    pooled = [name for name, each in known if each.dims in ((), ("level",)) and name in group]
    values = None
    if OF_VALUES[0] in group:
        values = ScoredValues(pit, *(group.values(name) for name in OF_VALUES))
    return HeldOutVerification(
        pit=pit if there.all() else pit[there],
        area_weight=weight if there.all() else weight[np.nonzero(there)[1]],
        levels=group.values("level"),
        measures={name: group.values(name) for name in pooled},
        prior_scores=prior_scores,
        values=values,
        by_stratum=by_stratum_of(group),
    )


def _simulation_of(group: OpenGroup) -> Simulation:
    """Read what simulated fields found."""
    said = Attributes({str(name): value for name, value in group.dataset.attrs.items()})
    numbers = [name for name, each in table(T2M)["simulation"].items() if not each.dims]
    return Simulation(
        pit=group.values("pit"),
        error_ratio=group.values("error_ratio"),
        numbers={name: float(group.values(name)) for name in numbers},
        status=said.text("simulation_status"),
        statement=said.text("simulation_statement"),
        observed=said.count("simulated_observations"),
    )


def _places_of(group: OpenGroup) -> PublishedPlaces:
    """Read predictions of one time at the places of a table."""
    name = group.variable.name
    names = group.texts(STATION_NAME) if STATION_NAME in group else None
    return PublishedPlaces(names, *_where(group), group.values(f"{name}_mean"), group.values(f"{name}_std"))


def _regions_of(group: OpenGroup) -> Regions:
    """Read means over regions."""
    name = group.variable.name
    return Regions(
        group.texts(REGION),
        group.texts(REGION_DEFINITION),
        group.values(f"{name}_mean"),
        group.values(f"{name}_std"),
        _more(group)[0],
    )


def _mean_of(group: OpenGroup) -> MeanMap:
    """Read the mean of one time on a grid."""
    return MeanMap(*_where(group), group.values(f"{group.variable.name}_mean"))


def _map_of(group: OpenGroup) -> Grid:
    """Read mean and error bars of one time on a grid."""
    mean, std = (group.values(f"{group.variable.name}_{kind}") for kind in ("mean", "std"))
    unfinished, scale = _more(group)
    return Grid(*_where(group), mean, std, unfinished, NODES_PER_CELL in group.dataset.attrs, scale)
