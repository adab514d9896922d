"""What the report needs of a published run, read once, checked and typed."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cagp_dist.arrays import Array, Times
from cagp_dist.errors import StoreError
from cagp_dist.report.by_stratum import ByStratum, by_stratum_of
from cagp_dist.report.reading import open_group, optional_values, values_of
from cagp_dist.store import simulated
from cagp_dist.store.layout import (
    FORMAT_VERSION,
    LOCAL_SCALE,
    NODES_PER_CELL,
    OF_VALUES,
    PLAIN,
    REGION,
    REGION_DEFINITION,
    SCORES,
    STATION_NAME,
    variable_in,
)
from cagp_dist.variables import T2M, Variable

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True, eq=False)
class Points:
    """Posterior and observation at the test points, in the unit of the variable.

    ``std`` is latent, without the noise of an observation; ``predictive_std`` has it. Of ``std``, no more
    than ``computational_std`` is unfinished computation.

    Attributes
    ----------
    longitude_degrees, latitude_degrees : array, shape (q,)
    observed, mean, std, predictive_std : array, shape (T, q)
        Observed is NaN where a station did not measure.
    computational_std, local_scale : array, shape (T, q), or None
    """

    longitude_degrees: Array
    latitude_degrees: Array
    observed: Array
    mean: Array
    std: Array
    predictive_std: Array
    computational_std: Array | None = None
    local_scale: Array | None = None

    def residuals(self, time: int) -> "tuple[Points, Array]":
        """Points that were observed at a time, and observed minus predicted there, shape (k,)."""
        there = ~np.isnan(self.observed[time])
        residual = (self.observed[time] - self.mean[time])[there]
        if there.all():
            return self, residual
        unfinished = self.computational_std
        return Points(
            self.longitude_degrees[there],
            self.latitude_degrees[there],
            self.observed[:, there],
            self.mean[:, there],
            self.std[:, there],
            self.predictive_std[:, there],
            None if unfinished is None else unfinished[:, there],
        ), residual


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
class Places:
    """Posterior of the first time at the places of a table.

    Attributes
    ----------
    names : tuple of str or None
        Empty where one has no name.
    longitude_degrees, latitude_degrees, mean, std : array, shape (q,)
    """

    names: tuple[str, ...] | None
    longitude_degrees: Array
    latitude_degrees: Array
    mean: Array
    std: Array


@dataclass(frozen=True, eq=False)
class Regions:
    """Means over regions.

    Attributes
    ----------
    names, definitions : tuple of str
    mean, std : array, shape (T, r)
    computational_std : array, shape (T, r), or None
    """

    names: tuple[str, ...]
    definitions: tuple[str, ...]
    mean: Array
    std: Array
    computational_std: Array | None


@dataclass(frozen=True, eq=False)
class ScoredValues:
    """PIT value, negative log density and CRPS of each observation, shape (T, q); NaN where there is none."""

    pit: Array
    nll: Array
    crps: Array


@dataclass(frozen=True, eq=False)
class Calibration:
    """Pooled scores of the run.

    Attributes
    ----------
    pit : array, shape (T, q), or (k,) if k of the T q observations are missing
    area_weight : array, shape (q,), or (k,)
        Area that each test point stands for, mean 1.
    levels, coverage, standard_error : array, shape (L,)
        Every test point counted alike.
    coverage_by_area, standard_error_by_area : array, shape (L,)
    scores, prior_scores : mapping of str to float
        Of the run and of the prior, by the names of the layout.
    plain_scores : mapping of str to float
        Of the run without recalibration; empty where there was none.
    values : ScoredValues or None
        Scores of each observation; None in runs of earlier versions.
    by_stratum : ByStratum or None
        Scores by stratum, and the reliability at many levels; None likewise.
    """

    pit: Array
    area_weight: Array
    levels: Array
    coverage: Array
    coverage_by_area: Array
    standard_error: Array
    standard_error_by_area: Array
    scores: Mapping[str, float]
    prior_scores: Mapping[str, float]
    plain_scores: Mapping[str, float] = field(default_factory=dict)
    values: ScoredValues | None = None
    by_stratum: ByStratum | None = None

    def design_effect(self, standard_error: Array) -> float:
        """How many times more points there are than independent ones, by standard errors of coverage."""
        independent = self.levels * (1.0 - self.levels) / self.pit.size
        return max(1.0, float(np.max(standard_error**2 / independent)))

    @property
    def by_area_is_the_same(self) -> bool:
        """Whether all test points stand for one area, so that the two weightings are one."""
        return bool(np.ptp(self.area_weight) < 1e-6)


@dataclass(frozen=True, eq=False)
class Simulation:
    """What the error bars did on fields drawn from the prior.

    Attributes
    ----------
    pit : array, shape (N,)
        One value for each field.
    error_ratio : array, shape (q,)
        Root mean square of error over error bar at each point.
    numbers : mapping of str to float
        By the names of `cagp_dist.store.simulated.NUMBERS`.
    status, statement : str
        The verdict.
    observed : int or None
        Points that the fields were observed at.
    """

    pit: Array
    error_ratio: Array
    numbers: Mapping[str, float]
    status: str
    statement: str
    observed: int | None


@dataclass(frozen=True, eq=False)
class Trace:
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
    points: Points
    grid: Grid | None
    calibration: Calibration
    trace: Trace
    attributes: Attributes
    variable: Variable = T2M
    fine: MeanMap | None = None
    places: Places | None = None
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
    with open_group(path, "") as root:
        attributes = Attributes({str(name): value for name, value in root.attrs.items()})
    if attributes.count("format_version") not in (None, FORMAT_VERSION):
        raise StoreError(
            f"the run {path} has format {attributes.count('format_version')}; this version of cagp_dist "
            f"reads format {FORMAT_VERSION}. Run its job again: it is the attribute `job` of the run."
        )
    with open_group(path, "posterior") as posterior:
        variable = variable_in(posterior) or T2M
        name = variable.name
        times = np.atleast_1d(posterior["time"].values).astype("datetime64[s]")
        points = Points(
            longitude_degrees=values_of(posterior, "longitude", "point"),
            latitude_degrees=values_of(posterior, "latitude", "point"),
            observed=values_of(posterior, name, "time", "point", missing=True),
            mean=values_of(posterior, f"{name}_mean", "time", "point"),
            std=values_of(posterior, f"{name}_std", "time", "point"),
            predictive_std=values_of(posterior, f"{name}_predictive_std", "time", "point"),
            computational_std=optional_values(posterior, f"{name}_std_computational", "time", "point"),
            local_scale=optional_values(posterior, LOCAL_SCALE, "time", "point"),
        )
    with open_group(path, "trace") as trace:
        traced = Trace(
            *(values_of(trace, name, "iteration") for name in ("iteration", "rmse", "nll", "crps"))
        )
        prior_scores = {name: float(values_of(trace, name, "iteration")[0]) for name in SCORES}
    with open_group(path, "calibration") as calibration:
        pit = values_of(calibration, "pit", "time", "point", missing=True)
        weight, there = values_of(calibration, "area_weight", "point"), ~np.isnan(pit)
        scored = Calibration(
            pit=pit if there.all() else pit[there],
            area_weight=weight if there.all() else weight[np.nonzero(there)[1]],
            levels=values_of(calibration, "level", "level"),
            coverage=values_of(calibration, "coverage", "level"),
            coverage_by_area=values_of(calibration, "coverage_area_weighted", "level"),
            standard_error=values_of(calibration, "coverage_standard_error", "level"),
            standard_error_by_area=values_of(calibration, "coverage_standard_error_area_weighted", "level"),
            scores={name: float(values_of(calibration, name)) for name in SCORES},
            prior_scores=prior_scores,
            plain_scores={
                name: float(values_of(calibration, f"{name}{PLAIN}"))
                for name in SCORES
                if f"{name}{PLAIN}" in calibration
            },
            values=ScoredValues(
                pit,
                *(values_of(calibration, key, "time", "point", missing=True) for key in OF_VALUES),
            )
            if OF_VALUES[0] in calibration
            else None,
            by_stratum=by_stratum_of(calibration),
        )
    grid, fine = None, None
    with_errors = "map_std" if (path / "map_std").is_dir() else "map"
    if with_errors != "map":
        with open_group(path, "map") as fields:
            fine = _mean_of(fields, name, 0)
    if (path / with_errors).is_dir():
        with open_group(path, with_errors) as fields:
            grid = _map_of(fields, name, 0)
    places = None
    if (path / "targets").is_dir():
        with open_group(path, "targets") as targets:
            places = _places_of(targets, name)
    simulation = None
    if (path / "simulation").is_dir():
        with open_group(path, "simulation") as fields:
            simulation = _simulation_of(fields)
    regions = None
    if (path / "regions").is_dir():
        with open_group(path, "regions") as fields:
            regions = _regions_of(fields, name)
    key = attributes.text("run_key") or path.stem
    return PublishedRun(
        key, times, points, grid, scored, traced, attributes, variable, fine, places, simulation, regions
    )


def each_map(path: Path, variable: str) -> Iterator[tuple[MeanMap | Grid, Grid]]:
    """Read the maps of all times, one after the other; raises as `read_run`."""
    if not (path / "map_std").is_dir():
        with open_group(path, "map") as fields:
            for index in range(fields.sizes["time"]):
                grid = _map_of(fields, variable, index)
                yield grid, grid
        return
    with open_group(path, "map") as fine, open_group(path, "map_std") as fields:
        for index in range(fields.sizes["time"]):
            yield _mean_of(fine, variable, index), _map_of(fields, variable, index)


def _simulation_of(fields: "xr.Dataset") -> Simulation:
    said = Attributes({str(name): value for name, value in fields.attrs.items()})
    return Simulation(
        pit=values_of(fields, "pit", "simulation"),
        error_ratio=values_of(fields, "error_ratio", "point"),
        numbers={name: float(values_of(fields, name)) for name in simulated.NUMBERS},
        status=said.text("simulation_status"),
        statement=said.text("simulation_statement"),
        observed=said.count("simulated_observations"),
    )


def _places_of(targets: "xr.Dataset", name: str) -> Places:
    first = targets.isel(time=0)
    named = STATION_NAME in targets.coords
    return Places(
        names=tuple(map(str, targets[STATION_NAME].values.tolist())) if named else None,
        longitude_degrees=values_of(first, "longitude", "point"),
        latitude_degrees=values_of(first, "latitude", "point"),
        mean=values_of(first, f"{name}_mean", "point"),
        std=values_of(first, f"{name}_std", "point"),
    )


def _regions_of(fields: "xr.Dataset", name: str) -> Regions:
    over = ("time", REGION)
    return Regions(
        names=tuple(map(str, fields[REGION].values.tolist())),
        definitions=tuple(map(str, fields[REGION_DEFINITION].values.tolist())),
        mean=values_of(fields, f"{name}_mean", *over),
        std=values_of(fields, f"{name}_std", *over),
        computational_std=optional_values(fields, f"{name}_std_computational", *over),
    )


def _mean_of(fields: "xr.Dataset", name: str, index: int) -> MeanMap:
    at, blank = fields.isel(time=index), int(fields.attrs.get("blank_cells", 0))
    return MeanMap(
        longitude_degrees=values_of(at, "longitude", "longitude"),
        latitude_degrees=values_of(at, "latitude", "latitude"),
        mean=values_of(at, f"{name}_mean", "latitude", "longitude", blank=blank),
    )


def _map_of(fields: "xr.Dataset", name: str, index: int) -> Grid:
    at, blank = fields.isel(time=index), int(fields.attrs.get("blank_cells", 0))
    return Grid(
        longitude_degrees=values_of(at, "longitude", "longitude"),
        latitude_degrees=values_of(at, "latitude", "latitude"),
        mean=values_of(at, f"{name}_mean", "latitude", "longitude", blank=blank),
        std=values_of(at, f"{name}_std", "latitude", "longitude", blank=blank),
        computational_std=optional_values(
            at, f"{name}_std_computational", "latitude", "longitude", blank=blank
        ),
        of_cells=NODES_PER_CELL in fields.attrs,
        local_scale=optional_values(at, LOCAL_SCALE, "latitude", "longitude", blank=blank),
    )
