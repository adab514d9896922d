"""What the report needs of a published run, read once, checked and typed."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np

from cagp_dist.arrays import Array, Times
from cagp_dist.calibration.verification.pit import AREA_WEIGHTED
from cagp_dist.errors import StoreError
from cagp_dist.kernels import DEPTH
from cagp_dist.report.by_stratum import ByStratum, by_stratum_of
from cagp_dist.report.run_reader import OpenGroup, open_published_group
from cagp_dist.space import SPHERE, Plane, Space
from cagp_dist.store.group_dataset import AXES, own_dims, variable_in
from cagp_dist.store.published_variables import (
    BELOW_LIMIT,
    BELOW_LIMITS,
    BIAS_BY,
    BIASES,
    FORMAT_VERSION,
    GROUP,
    NODES_PER_CELL,
    PLAIN,
    RECALIBRATED,
    REGION,
    REGION_DEFINITION,
    SCORED,
    SCORES,
    STATION_NAME,
    TRANSFORM,
    VARIABLES_OF_RUN,
    of_another,
    table,
)
from cagp_dist.variables import T2M, Variable

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class TestPoints:
    """Posterior and observation at the test points, in the unit of the variable."""

    longitude_degrees: Array  # (q,)
    latitude_degrees: Array  # (q,)
    # (T, q), as all that follow; NaN where a station did not measure, or a limit of detection
    observed: Array
    mean: Array
    std: Array  # latent, without the noise of an observation
    predictive_std: Array  # with it
    computational_std: Array | None = None  # of std, what is unfinished computation, at most
    local_scale: Array | None = None

    def residuals(self, time: int) -> "tuple[TestPoints, Array]":
        """Points that were observed at a time, and observed minus predicted there, shape (k,)."""
        there = ~np.isnan(self.observed[time])
        residual = (self.observed[time] - self.mean[time])[there]
        if there.all():
            return self, residual
        chosen = {name: values[..., there] for name, values in vars(self).items() if values is not None}
        return replace(self, **chosen), residual


@dataclass(frozen=True, eq=False)
class MeanMap:
    """Posterior mean of one time on a latitude-longitude grid (P, Q)."""

    longitude_degrees: Array
    latitude_degrees: Array
    mean: Array


@dataclass(frozen=True, eq=False)
class Grid(MeanMap):
    """The same with its error bars; with ``of_cells`` of means over the cells of the grid."""

    std: Array
    computational_std: Array | None = None
    of_cells: bool = False
    local_scale: Array | None = None


@dataclass(frozen=True, eq=False)
class PublishedPlaces:
    """Posterior of the first time at the q places of a table."""

    names: tuple[str, ...] | None  # empty where one has no name
    longitude_degrees: Array
    latitude_degrees: Array
    mean: Array
    std: Array


@dataclass(frozen=True, eq=False)
class Regions:
    """Means over r regions, (T, r)."""

    names: tuple[str, ...]
    definitions: tuple[str, ...]
    mean: Array
    std: Array
    computational_std: Array | None


@dataclass(frozen=True, eq=False)
class Biases:
    """Errors (T, g) that groups of observations share."""

    names: tuple[str, ...]
    columns: tuple[str, ...]  # that name the groups
    mean: Array
    std: Array


@dataclass(frozen=True, eq=False)
class HeldOutVerification:
    """Held-out verification of the run; of the T q observations, the k that are there."""

    pit: Array  # (T, q), or (k,) if some are missing
    area_weight: Array  # (q,), or (k,): area that each test point stands for, mean 1
    levels: Array  # (L,)
    measures: Mapping[str, Array]  # () or (L,): of the run, by their published names
    # what runs of earlier versions lack; ``pit``, ``nll`` and ``crps`` (T, q) are NaN where there is no value
    values: Mapping[str, Array] | None = None
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
        return {"": ""} if self.by_area_is_the_same else {"": "", AREA_WEIGHTED: ", by area"}

    @property
    def by_area_is_the_same(self) -> bool:
        """Whether all test points stand for one area, so that the two weightings are one."""
        return bool(np.ptp(self.area_weight) < 1e-6)


@dataclass(frozen=True, eq=False)
class Simulation:
    """What the error bars did on N fields drawn from the prior."""

    pit: Array  # (N,)
    error_ratio: Array  # (q,): root mean square of error over error bar at each point
    numbers: Mapping[str, float]  # of the simulations as a whole, by their published names
    status: str
    statement: str
    observed: int | None  # points that the fields were observed at


@dataclass(frozen=True, eq=False)
class Attributes:
    """Attributes of a group, as text, number or decoded JSON."""

    values: Mapping[str, object]

    def text(self, name: str) -> str:
        """Attribute as text, empty if the run does not record it."""
        value = self.values.get(name)
        return "" if value is None else str(value)

    def count(self, name: str) -> int | None:
        """Attribute as a whole number, None if the run does not record it."""
        value = self.number(name)
        return None if value is None else int(value)

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
    """One published run; of what the job did not ask for there is nothing."""

    key: str
    times: Times
    points: TestPoints
    grid: Grid | None
    calibration: HeldOutVerification
    trace: Mapping[str, Array]  # scores after each ``iteration``, by their published names; 0 is the prior
    attributes: Attributes
    variable: Variable = T2M
    variables: tuple[str, ...] = ()  # of the run, where there are several
    depths: tuple[str, ...] = ()  # of its map, with their unit; none where it has none
    depth: int = 0  # which of these the map is at
    fine: MeanMap | None = None  # where the mean has a finer map than the error bars
    places: PublishedPlaces | None = None
    simulation: Simulation | None = None
    regions: Regions | None = None
    biases: Biases | None = None
    used: tuple[Array, Array] | None = None  # longitudes and latitudes (n,) observed at the first time
    space: Space = SPHERE
    both_recalibrated: bool = (
        False  # the field's error bars as those of observations; not in earlier versions
    )
    limits_held_out: bool = False  # whether values at test points are limits of detection, without errors

    @property
    def transformed(self) -> bool:
        """Whether values were transformed."""
        return bool(self.attributes.text(TRANSFORM))

    @property
    def normal(self) -> bool:
        """Whether distributions are normal: not of values that were transformed, or lie below limits."""
        return not self.transformed and not self.attributes.count(BELOW_LIMITS)

    @property
    def solver_calibration(self) -> str:
        """What the error bars of its solver are if the prior is right; empty where the run does not say."""
        exact = self.attributes.values.get("solver_calibrated")  # all that earlier versions recorded
        said = "" if exact is None else "exact" if exact is True else "approximate"
        return self.attributes.text("solver_calibration") or said


def read_run(path: Path, variable_name: str | None = None, *, depth: int = 0) -> PublishedRun:
    """Read a published run; of the maps, the first time alone, at one depth. Of several variables, one."""
    if not (path / "zarr.json").is_file():
        raise StoreError(
            f"there is no published run at {path}; expected a Zarr store OUT/runs/<run_key>.zarr. "
            "Run `cagp run JOB.toml` (or `cagp demo`) first; OUT/CURRENT names the run that is current.",
            key="no-run",
        )
    with open_published_group(path, "") as root:
        attributes = _attributes_of(root)
    if attributes.count("format_version") not in (None, FORMAT_VERSION):
        raise StoreError(
            f"the run {path} has format {attributes.count('format_version')}; this version of cagp_dist "
            f"reads format {FORMAT_VERSION}. Run its job again: it is the attribute `job` of the run.",
            key="format-of-run",
        )
    names = tuple(attributes.lines(VARIABLES_OF_RUN))
    with open_published_group(path, "posterior") as unnamed:
        own = unnamed.dataset
        if names:
            first = variable_name or names[0]
            own = own[[f"{first}_mean", f"{first}_std"]]
        variable = variable_in(own) or T2M
        posterior = replace(unnamed, variable=variable)
        times = posterior.dataset["time"].values.astype("datetime64[s]")
        observed, mean, std, noisy = posterior.of("", "_mean", "_std", "_predictive_std")
        space = _space_of(posterior)
        about = str(posterior.dataset[f"{variable.name}_std"].attrs.get("long_name", ""))
        both = about.endswith(RECALIBRATED)
        if (below := posterior.optional(BELOW_LIMIT)) is not None:
            observed = np.where(below > 0.0, np.nan, observed)
        limits_held_out = below is not None and bool((below > 0.0).any())
        points = TestPoints(*_where(posterior), observed, mean, std, noisy, *_more(posterior))
    beside = names.index(variable.name) if names else 0
    scores, iterations = (of_another(name, variable.name) if beside else name for name in SCORED)
    with open_published_group(path, iterations) as trace:
        traced = {name: trace.values(name) for name in ("iteration", *SCORES)}
    with open_published_group(path, scores) as calibration:
        scored = _calibration_of(calibration)

    def optional(name: str, read: Callable[[OpenGroup], T], *, beside: str = "", **at: int) -> T | None:
        """Read a group if it is there, and so is the one beside it."""
        if not (path / name).is_dir() or not (path / beside).is_dir():
            return None
        with open_published_group(path, name, variable) as group:
            return read(_at_depth(group, depth).at(**at))

    depths: tuple[str, ...] = ()
    if (path / "map").is_dir():
        with open_published_group(path, "map", variable) as maps:
            depths = _depths_of(maps)

    return PublishedRun(
        key=attributes.text("run_key") or path.stem,
        times=times,
        points=points,
        grid=optional("map_std", _map_of, time=0) or optional("map", _map_of, time=0),
        calibration=scored,
        trace=traced,
        both_recalibrated=both,
        limits_held_out=limits_held_out,
        attributes=attributes,
        variable=variable,
        variables=names,
        depths=depths,
        depth=depth,
        fine=optional("map", _mean_of, beside="map_std", time=0),
        places=optional("targets", _places_of, time=0),
        simulation=optional("simulation", _simulation_of),
        regions=optional("regions", _regions_of),
        used=optional("observations", _used_of, time=0),
        biases=optional(of_another(BIASES, variable.name) if beside else BIASES, _biases_of),
        space=space,
    )


def each_map(path: Path, variable: Variable, *, depth: int = 0) -> Iterator[tuple[MeanMap, Grid]]:
    """Read the maps of all times at one depth, one after the other; raises as `read_run`."""
    with_errors = "map_std" if (path / "map_std").is_dir() else "map"
    with (
        open_published_group(path, "map", variable) as fine,
        open_published_group(path, with_errors, variable) as fields,
    ):
        for index in range(fields.dataset.sizes["time"]):
            grid = _map_of(_at_depth(fields, depth).at(time=index))
            yield grid if with_errors == "map" else _mean_of(fine.at(time=index)), grid


def _at_depth(group: OpenGroup, depth: int) -> OpenGroup:
    """Take one depth of a map that has several."""
    return group.at(depth=depth) if DEPTH in group.dataset.dims else group


def _depths_of(group: OpenGroup) -> tuple[str, ...]:
    """Depths of a map, as they are said."""
    if DEPTH not in group.dataset.coords:
        return ()
    held = group.dataset[DEPTH]
    return tuple(f"{value:g} {held.attrs.get('units', '')}".strip() for value in np.atleast_1d(held.values))


def _space_of(group: OpenGroup) -> Space:
    """Say where a run lies."""
    if "y" not in group.dataset.coords:
        return SPHERE
    x, y = (group.dataset[name].attrs for name in "xy")
    names = str(x.get("long_name", "x")), str(y.get("long_name", "y"))
    return Plane(names, str(x.get("units", "")))


def _where(group: OpenGroup) -> tuple[Array, Array]:
    """Longitudes and latitudes, or x and y of a plane."""
    north, east = own_dims(AXES, group.dataset.coords)
    return group.values(east), group.values(north)


def _more(group: OpenGroup) -> tuple[Array | None, Array | None]:
    """Read the computational part of the standard deviation and the local scale, where a run has them."""
    return group.optional(f"{group.variable.name}_std_computational"), group.optional("local_scale")


def _attributes_of(group: OpenGroup) -> Attributes:
    """Read what a group says of itself."""
    return Attributes({str(name): value for name, value in group.dataset.attrs.items()})


def _calibration_of(group: OpenGroup) -> HeldOutVerification:
    """Read held-out verification; observations that are missing are left out of what is pooled."""
    pit, weight = group.values("pit"), group.values("area_weight")
    there = ~np.isnan(pit)
    known = table(T2M)["calibration"].items()
    pooled = [name for name, each in known if each.dims in ((), ("level",)) and name in group]
    values = None
    if "nll_of_value" in group:
        values = {name: group.values(f"{name}_of_value") for name in ("nll", "crps")} | {"pit": pit}
    return HeldOutVerification(
        pit=pit if there.all() else pit[there],
        area_weight=weight if there.all() else weight[np.nonzero(there)[1]],
        levels=group.values("level"),
        measures={name: group.values(name) for name in pooled},
        values=values,
        by_stratum=by_stratum_of(group),
    )


def _simulation_of(group: OpenGroup) -> Simulation:
    """Read what simulated fields found."""
    said, known = _attributes_of(group), table(T2M)["simulation"].items()
    return Simulation(
        pit=group.values("pit"),
        error_ratio=group.values("error_ratio"),
        numbers={name: float(group.values(name)) for name, each in known if not each.dims},
        status=said.text("simulation_status"),
        statement=said.text("simulation_statement"),
        observed=said.count("simulated_observations"),
    )


def _places_of(group: OpenGroup) -> PublishedPlaces:
    """Read predictions at the places of a table."""
    mean, std = group.of("_mean", "_std")
    return PublishedPlaces(
        group.texts(STATION_NAME) if STATION_NAME in group else None, *_where(group), mean, std
    )


def _regions_of(group: OpenGroup) -> Regions:
    """Read means over regions."""
    mean, std = group.of("_mean", "_std")
    return Regions(group.texts(REGION), group.texts(REGION_DEFINITION), mean, std, _more(group)[0])


def _biases_of(group: OpenGroup) -> Biases:
    """Read errors that observations share."""
    return Biases(group.texts(GROUP), group.texts(BIAS_BY), group.values("bias"), group.values("bias_std"))


def _used_of(group: OpenGroup) -> tuple[Array, Array]:
    """Read where something was observed."""
    longitude, latitude = _where(group)
    # as it is: how many values are missing is said of all times together
    there = np.isfinite(group.dataset[group.variable.name].values)
    return longitude[there], latitude[there]


def _mean_of(group: OpenGroup) -> MeanMap:
    """Read a map of the mean."""
    return MeanMap(*_where(group), next(group.of("_mean")))


def _map_of(group: OpenGroup) -> Grid:
    """Read a map with its error bars."""
    (mean, std), (unfinished, scale) = group.of("_mean", "_std"), _more(group)
    return Grid(*_where(group), mean, std, unfinished, NODES_PER_CELL in group.dataset.attrs, scale)
