"""What a job comes to once its field is known: points, values, prior, solver and the run's name."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cagp_dist import tiling
from cagp_dist.arrays import Array, Indices
from cagp_dist.checks import check_count
from cagp_dist.digest import file_sha256
from cagp_dist.era5.canonical import observation_points
from cagp_dist.era5.selection import shown_time
from cagp_dist.errors import ArgumentError, ConfigurationError, DataError
from cagp_dist.geometry import spacing_degrees, unit_sphere
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.gram.targets import joined_targets
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.likelihood.exact.integrated import MOST_FLAT
from cagp_dist.mapping import GridPlaces, Observations
from cagp_dist.mapping.solver_order import block_size
from cagp_dist.means import FieldMean, MeanFamily, latitude_of, mean_family
from cagp_dist.posterior.coefficients import check_estimable
from cagp_dist.posterior.patterns import fields_by_pattern
from cagp_dist.prior import EstimatedMean, Prior
from cagp_dist.service.cell_values import FEWEST_CELLS, CellGrid
from cagp_dist.service.jobfile.job import Job
from cagp_dist.service.map_cells import MapCells, samples_of_map
from cagp_dist.service.observed_grids import found_grid, places_on_grid
from cagp_dist.service.point_roles import Design, design_points
from cagp_dist.service.previous import Previous, check_covers, previous_of
from cagp_dist.service.recalibration_plan import NOT_ASKED, Recalibrating, with_errors
from cagp_dist.service.solve import prior_of
from cagp_dist.solvers import Neighbours, Solver
from cagp_dist.solvers.registry import solver_name
from cagp_dist.solvers.solver_choice import chosen_solver, demand_of_choice
from cagp_dist.store.earlier import EarlierRuns, earlier_runs
from cagp_dist.store.preliminary import PRELIMINARY
from cagp_dist.store.publish import run_key
from cagp_dist.store.zarr_arrays import content_sha256
from cagp_dist.tables import Places, read_places
from cagp_dist.versions import version

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True)
class Gaps:
    """What the observed points of a field or table lack.

    Attributes
    ----------
    values : int
        Values of all times together.
    patterns : int
        Sets of points that were observed at one time or more: times of one set share a solve.
    complete : int
        Points that have a value at all times.
    """

    values: int
    patterns: int
    complete: int

    def line(self) -> str:
        """Say it in one line, and how to have one solve."""
        text = f"{self.values:,} values with {self.patterns:,} patterns of gaps, each of which is a solve"
        if self.complete == 0:
            return f"{text}; no point has a value at all times"
        return (
            f'{text}; gaps = "drop" in [observations] makes it one solve, of the {self.complete:,} '
            f"point{'s' if self.complete != 1 else ''} with a value at all times"
        )


def gaps_of(points: Observations, train: Indices) -> Gaps | None:
    """Count what is missing at the observed points; None if nothing is."""
    present = ~np.isnan(points.values)[:, train]
    if present.all():
        return None
    return Gaps(
        values=int(np.count_nonzero(present)),
        patterns=len(fields_by_pattern(present)),
        complete=int(np.count_nonzero(present.all(axis=0))),
    )


@dataclass(frozen=True)
class Simulations:
    """How many fields are drawn from the prior of a job to see what its error bars do, and their seed."""

    count: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("simulations", self.count, least=2)
        check_count("seed", self.seed, least=0)


class SolveColumns(NamedTuple):
    """Columns of a solve: what is predicted there."""

    test: slice
    calibration: slice
    cells: slice
    places: slice
    regions: slice


@dataclass(frozen=True, eq=False)
class PreparedJob:
    """Everything a solve needs.

    Attributes
    ----------
    job : Job
        The checked job file.
    points : Observations
        All points of the field.
    design : Design
        Which of them are observed and scored, and the cells of the map.
    family : MeanFamily
        What the prior mean is fitted from.
    mean : FieldMean or EstimatedMean
        The prior mean, fitted to the observed values, or its basis, if it is estimated with the field.
    prior : Prior or None
        Kernel, noise and mean; None where the job leaves its numbers out, which are fitted first.
    solver : Solver
        Settings of the solve.
    places : GridPlaces or None
        Of a solver that works on grids: the grid, and where in it each observed point lies.
    provenance : mapping
        Source of the field and digests of it, of the climatology if the mean is one, and of the targets.
    recalibration : Recalibrating
        Which errors correct the predictive laws.
    wanted : Places or None
        Places of a table that are to be predicted.
    simulations : Simulations or None
        Fields of the prior that are solved for as well.
    fit_points : Observations or None
        The field at other times, where the numbers of the prior are fitted to those.
    previous : Previous or None
        What is taken from the run before, where the job asks for that.
    """

    job: Job
    points: Observations
    design: Design
    family: MeanFamily
    mean: FieldMean | EstimatedMean
    prior: Prior | None
    solver: Solver
    places: GridPlaces | None
    provenance: Mapping[str, str]
    recalibration: Recalibrating = NOT_ASKED
    wanted: Places | None = None
    simulations: Simulations | None = None
    fit_points: Observations | None = None
    previous: Previous | None = None

    @property
    def inputs(self) -> Array:
        """Observed points on the unit sphere, in solver order, shape (n, 3)."""
        return self.inputs_at(self.design.train)

    @property
    def targets(self) -> Array:
        """Observed values in the unit of the variable, shape (n, T)."""
        return np.ascontiguousarray(self.points.values[:, self.design.train].T)

    @property
    def observations(self) -> tuple[Array | LatLonGrid, Array]:
        """X and y of `cagp_dist.condition`: points and (n, T), or a grid and (T, P, Q) with gaps."""
        return self.observations_of(self.targets)

    def observations_of(self, columns: Array) -> tuple[Array | LatLonGrid, Array]:
        """X and y of `cagp_dist.condition` for columns (n, T) of values at the observed points."""
        if self.places is None:
            return self.inputs, columns
        return self.places.grid, self.places.fields(columns.T)

    @property
    def new_inputs(self) -> Array | LinearFunctionals:
        """Test and calibration points, map cells, places of a table and means over regions: (q, 3), or sums.

        In this order, that of `columns`; without the map if its error bars come from samples. On the unit
        sphere.
        """
        return targets_of(self.points, self.design, self.calibrating, self.wanted)

    @property
    def columns(self) -> "SolveColumns":
        """Where in `new_inputs` each kind of target is."""
        cells = 0 if self.design.cells is None or self.design.samples else self.design.cells.size
        wanted = 0 if self.wanted is None else self.wanted.latitude_degrees.size
        regions = 0 if self.design.region_means is None else len(self.design.region_means)
        sizes = self.design.test.size, self.calibrating.size, cells, wanted, regions
        ends = np.cumsum(sizes).tolist()
        return SolveColumns(*(slice(end - size, end) for end, size in zip(ends, sizes, strict=True)))

    @property
    def calibrating(self) -> Indices:
        """Calibration points that are predicted: those whose errors are used."""
        return calibrating_of(self.design, self.recalibration)

    def inputs_at(self, chosen: Indices) -> Array:
        """Points of the field on the unit sphere, shape (k, 3)."""
        return unit_sphere(self.points.latitude_degrees[chosen], self.points.longitude_degrees[chosen])

    def noise_at(self, chosen: Indices, nugget: float | Array) -> float | Array:
        """Noise variance of observations at some points (n,): what is known of it, and the nugget."""
        known = self.points.noise_variance
        return nugget if known is None else known[chosen] + nugget

    def typical_noise(self, nugget: float) -> float:
        """Noise variance of an observation where none was made: the median over the observed points."""
        return float(np.median(self.noise_at(self.design.train, nugget)))

    def conditioned(self, prior: Prior) -> Prior:
        """Prior of the solve: this kernel, the noise of each observed point with the nugget, and our mean."""
        noise = self.noise_at(self.design.train, prior.noise_number)
        if self.places is not None and isinstance(noise, np.ndarray):
            grid, index = self.places
            by_point = np.full(grid.size, noise.mean())  # what stands where nothing was observed is not used
            by_point[index] = noise
            noise = by_point.reshape(grid.shape)
        # of the field about its mean, what the run before has not seen
        kernel = prior.kernel if self.previous is None else self.previous.unseen * prior.kernel
        return Prior(kernel, noise, self.mean)

    def folds(self) -> "Iterator[PreparedJob]":
        """Tasks of a cross-validation: points of one fold are predicted from those of the others."""
        design = self.design
        for fold in range(0 if design.folds is None else int(design.folds.max()) + 1):
            left = design.test[design.folds == fold]
            yield self._part(design.train[~np.isin(design.train, left)], left)

    def without_test(self) -> "PreparedJob":
        """Task of what is predicted from all observed points: map cells and places."""
        empty = np.arange(0)
        design = replace(self.design, test=empty, test_weights=np.ones(0), folds=None)
        return replace(self, design=design, recalibration=NOT_ASKED)

    def _part(self, train: Indices, test: Indices) -> "PreparedJob":
        design = Design(train=train, test=test, test_weights=np.ones(test.size), cells=None)
        mean = fit_mean(self.job, self.family, self.points, train)
        places = places_on_grid(self.solver, self.points, design)
        return replace(
            self,
            design=design,
            mean=mean,
            prior=None,
            places=places,
            wanted=None,
            recalibration=NOT_ASKED,
        )

    @property
    def mean_inputs(self) -> Array | LinearFunctionals | None:
        """Map cells where the mean alone is wanted, on the unit sphere: points (r, 3), or means."""
        cells = self.design.mean_cells
        return None if cells is None else cells.inputs(spacing_of(self.points, self.design))

    @property
    def sampled_inputs(self) -> Array | LinearFunctionals | None:
        """Map cells whose error bars come from samples, on the unit sphere: points (r, 3), or means."""
        cells = self.design.cells
        if cells is None or not self.design.samples:
            return None
        return cells.inputs(spacing_of(self.points, self.design))

    @property
    def mean_like(self) -> Indices | None:
        """Which of `new_inputs` each of `mean_inputs` goes with, (r,): the nearest cell with error bars."""
        from scipy.spatial import cKDTree

        cells, fine = self.design.cells, self.design.mean_cells
        if cells is None or fine is None:
            return None
        nearest = cKDTree(unit_sphere(*cells.points())).query(unit_sphere(*fine.points()))[1]
        return np.asarray(self.columns.cells.start + nearest, dtype=np.intp)

    @property
    def may_integrate(self) -> bool:
        """Whether numbers may be integrated over without being asked for."""
        asked = self.job.prior.hyperparameters
        return self.prior is None and asked == "auto" and self.design.train.size <= MOST_FLAT

    @property
    def run_key(self) -> str:
        """Name of the run: a digest of all that decides its result, and of nothing else.

        Numbers that are fitted have no part in it: they follow from the job, the data and the versions.
        """
        blank = 0 if self.design.cells is None else self.design.cells.blank
        gaps = self.points.gridded and bool(np.isnan(self.points.values).any())
        names = (
            "content_sha256",
            "climatology_sha256",
            "covariates_sha256",
            "targets_sha256",
            "fit_content_sha256",
            "previous_sha256",
            PRELIMINARY,
        )
        contents = (self.provenance.get(name) for name in names)
        return run_key(
            job=self.job.canonical(),
            input_hash=" ".join(content for content in contents if content is not None),
            tiling={
                "block_size": block_size(self.solver),
                "column_group": tiling.COLUMN_GROUP,
                "smallest_row_tile": tiling.SMALLEST_ROW_TILE,
                **({} if blank == 0 else {"blank_cells": blank}),
                **({"gaps": "kept"} if gaps else {}),  # they were dropped once
                **self.recalibration.key(),
                **({} if self.simulations is None else {"simulations": asdict(self.simulations)}),
                # of fine maps each cell had a column once
                **({"samples_of_map": self.design.samples} if self.design.samples else {}),
                # numbers were plugged in once, however few the points
                **({"hyperparameters": "auto"} if self.may_integrate else {}),
                # means are products with weights, and the trace has no iterations between
                **({"weights": "kept"} if self.job.output.keep_weights else {}),
            },
            dtype="float64",
            code_version=version("cagp-dist"),
        )


def prepare_job(
    job: Job,
    field: "xr.Dataset",
    fit_field: "xr.Dataset | None" = None,
    *,
    earlier: EarlierRuns | None = None,
) -> PreparedJob:
    """Choose points, fit the prior mean and build the solver."""
    points, design, recalibration = choose_points(job, field)
    family = mean_family(
        job.prior.family,
        variable=job.observations.variable,
        covariates=job.prior.covariates,
        covariates_missing=job.prior.covariates_missing,
    )
    for cells in (design.cells, design.mean_cells):
        if cells is not None:
            family.check_covers(*cells.covered())
    family.check_covers(points.latitude_degrees, points.longitude_degrees)
    mean = fit_mean(job, family, points, design.train)
    provenance = {
        "source": str(field.attrs["source"]),
        "source_sha256": str(field.attrs["source_sha256"]),
        "content_sha256": content_sha256(field),
        **({PRELIMINARY: str(field.attrs[PRELIMINARY])} if PRELIMINARY in field.attrs else {}),
    }
    if family.content_sha256 is not None and job.prior.covariates:
        provenance |= {"covariates_sha256": family.content_sha256}
    elif family.content_sha256 is not None:
        kind, _, address = job.prior.mean.partition(":")
        provenance |= {kind: address, f"{kind}_sha256": family.content_sha256}
    wanted = wanted_places(job)
    if wanted is not None and job.design.targets is not None:
        family.check_covers(wanted.latitude_degrees, wanted.longitude_degrees)
        provenance |= {"targets_sha256": file_sha256(targets_path(job.design.targets))}
    if fit_field is not None:
        provenance |= {"fit_content_sha256": content_sha256(fit_field)}
    previous = _previous(job, earlier or partial(earlier_runs, job.root), points, design, wanted)
    if previous is not None:
        provenance |= previous.provenance
    solver = solver_of(job, points, design)
    return PreparedJob(
        job=job,
        points=points,
        design=design,
        recalibration=recalibration,
        family=family,
        mean=mean,
        prior=prior_of(job, mean),
        solver=solver,
        places=places_on_grid(solver, points, design),
        provenance=provenance,
        wanted=wanted,
        fit_points=None if fit_field is None else observation_points(fit_field, gaps=job.observations.gaps),
        previous=previous,
    )


def _previous(
    job: Job, earlier: EarlierRuns, points: Observations, design: Design, wanted: Places | None
) -> Previous | None:
    """Find the run before, and check that it knows all that is asked of it."""
    if not job.prior.is_previous:
        return None
    found = previous_of(earlier, job, times=points.times, variable=points.variable)
    if design.cells is None or design.cells.blank:
        raise ConfigurationError(
            '[prior] mean = "previous" takes mean and errors from the map, which has '
            f"{0 if design.cells is None else design.cells.blank:,} blank cells here; write mask = "
            '"none" in [design] map, or give it an area without them.'
        )
    places = [(points.latitude_degrees, points.longitude_degrees), design.cells.points()]
    if wanted is not None:
        places.append((wanted.latitude_degrees, wanted.longitude_degrees))
    if design.region_means is not None:
        nodes = design.region_means.nodes
        places.append((latitude_of(nodes), np.rad2deg(np.arctan2(nodes[:, 1], nodes[:, 0]))))
    own = CellGrid(design.cells.latitude_degrees, design.cells.longitude_degrees)
    if min(own.latitude_degrees.size, own.longitude_degrees.size) < FEWEST_CELLS:
        raise ConfigurationError(
            '[prior] mean = "previous" interpolates mean and errors between the cells of the map, which has '
            f"{own.latitude_degrees.size} x {own.longitude_degrees.size} of them; expected at least "
            f"{FEWEST_CELLS} along each axis. Give [design] map a finer resolution or a larger area."
        )
    maps = {"this job": own}
    if (before := found.earlier) is not None:
        maps[f"the run before, {before.run} of {shown_time(before.time)},"] = before.cells
    for of, cells in maps.items():
        for latitude, longitude in places:
            check_covers(cells, latitude, longitude, of=of)
    return found


@dataclass(frozen=True, eq=False)
class MeanByPattern:
    """A prior mean of T fields with different gaps: those with the same gaps share a part.

    Attributes
    ----------
    parts : tuple of (array of int, FieldMean)
        Fields, and the mean of them.
    """

    parts: tuple[tuple[Indices, FieldMean], ...]

    def __call__(self, X: Array) -> Array:
        """Values at unit vectors X (n, 3), shape (n, T)."""
        values = np.empty((len(X), sum(fields.size for fields, _ in self.parts)))
        for fields, mean in self.parts:
            values[:, fields] = mean(X)
        return values


def fit_mean(
    job: Job, family: MeanFamily, points: Observations, chosen: Indices
) -> FieldMean | EstimatedMean:
    """Fit a prior mean to the values at some points, each field to those that it has.

    Where the job has it estimated with the field, it is given as it is.
    """
    latitude, longitude = points.latitude_degrees[chosen], points.longitude_degrees[chosen]
    values = points.values[:, chosen]
    present = ~np.isnan(values)
    estimated = job.prior.estimates_mean and isinstance(family, EstimatedMean)
    if isinstance(family, EstimatedMean) and (estimated or job.prior.covariates):
        basis = np.asarray(family.basis_at(unit_sphere(latitude, longitude)))
        for fields in fields_by_pattern(present):
            if (places := present[fields[0]]).any():
                check_estimable(basis[places], family.coefficient_names)
    if present.all() and not estimated:
        return family.fit(latitude, longitude, values.T, times=points.times)
    parts = []
    for fields in fields_by_pattern(present):
        places = present[fields[0]]
        if not places.any():
            raise DataError(
                f"nothing was observed at {shown_time(points.times[fields[0]])} at the {chosen.size:,} "
                "points "
                "that predict the others; leave this time out, or use fewer folds or smaller blocks."
            )
        if estimated:
            continue
        mean = family.fit(
            latitude[places],
            longitude[places],
            values[np.ix_(fields, places)].T,
            times=points.times[fields],
        )
        parts.append((fields, mean))
    return family if isinstance(family, EstimatedMean) and estimated else MeanByPattern(tuple(parts))


def targets_of(
    points: Observations, design: Design, calibrating: Indices, wanted: Places | None
) -> Array | LinearFunctionals:
    """Test points, predicted calibration points, map cells, places and means over regions, see `Task`."""
    cells = design.cells
    parts: list[Array | LinearFunctionals] = [
        unit_sphere(points.latitude_degrees[chosen], points.longitude_degrees[chosen])
        for chosen in (design.test, calibrating)
        if chosen is design.test or chosen.size
    ]
    if cells is not None and not design.samples:
        parts.append(cells.inputs(spacing_of(points, design)))
    if wanted is not None:
        parts.append(unit_sphere(wanted.latitude_degrees, wanted.longitude_degrees))
    if design.region_means is not None:
        parts.append(design.region_means)
    return joined_targets(parts)


def calibrating_of(design: Design, recalibration: Recalibrating) -> Indices:
    """Calibration points that are predicted: those whose errors are used."""
    kept = design.calibration
    return np.arange(0) if kept is None or recalibration.errors != "points" else kept


def spacing_of(points: Observations, design: Design) -> float:
    """Distance of observed points from each other in degrees; 0 where no map asks for means over cells."""
    if design.cells is None or design.cells.sides_degrees is None:
        return 0.0
    return spacing_degrees(points.latitude_degrees[design.train], points.longitude_degrees[design.train])


def targets_path(address: str) -> Path:
    """Path of ``table:PATH``."""
    return Path(address.partition(":")[2]).expanduser()


def wanted_places(job: Job) -> Places | None:
    """Read the places that a job asks for, if it does."""
    if job.design.targets is None:
        return None
    path = targets_path(job.design.targets)
    if not path.is_file():
        raise DataError(
            f"[design] targets: there is no table {path}. The path is relative to the working directory."
        )
    try:
        return read_places(path)
    except ArgumentError as error:
        raise ConfigurationError(f"[design] targets: {error}") from error


def choose_points(job: Job, field: "xr.Dataset") -> tuple[Observations, Design, Recalibrating]:
    """Points of the field; which are observed, scored, mapped, and which calibrate; raises as `prepare`."""
    points, named = observation_points(field, gaps=job.observations.gaps), job.solver.build()
    design_of = partial(
        design_points,
        points.latitude_degrees,
        points.longitude_degrees,
        table=job.design,
        block_size=block_size(named),
        gridded=points.gridded,
    )
    design, recalibration = with_errors(
        job,
        points,
        lambda design: solver_of(job, points, design),
        design_of=lambda spare: design_of(spare_calibration=spare),
    )
    if job.design.map is not None and job.design.map.mask == "observed":
        design = replace(
            design, cells=_observed(design.cells, points), mean_cells=_observed(design.mean_cells, points)
        )
    samples = samples_of_map(job.design.map, design.cells, solver_of(job, points, design))
    return points, replace(design, samples=samples), recalibration


def solver_of(job: Job, points: Observations, design: Design) -> Solver:
    """Give the solver of a job; of one that names none, what its points decide, the same on every machine."""
    if (named := job.solver.build()) is not None:
        return named
    observed, times = design.train.size, points.times.size
    if (places := found_grid(points, design.train)) is None:
        return chosen_solver(demand_of_choice(observed, 0, fields=times))
    kept = np.arange(0) if design.calibration is None else design.calibration
    targets = targets_of(points, design, kept, wanted_places(job))
    # at its emptiest time, and without the largest fold
    present = ~np.isnan(points.values)[:, design.train]
    always, solves = np.asarray(present.all(axis=0)), len(fields_by_pattern(present))
    if design.folds is not None:
        always &= design.folds != np.bincount(design.folds).argmax()
        solves *= 1 + int(design.folds.max())
    size = places.size(always, targets if design.folds is None else None)
    if points.noise_variance is not None:
        known = points.noise_variance[design.train]
        size = replace(size, noise_spread=float(known.max() / max(known.min(), np.finfo(float).tiny)))
    demand = demand_of_choice(observed, len(targets), fields=times)
    if isinstance(targets, LinearFunctionals):
        demand = replace(demand, cell_nodes=len(targets.nodes))
    return chosen_solver(demand, replace(demand, grid=size), solves=solves)


def choice_line(job: Job, solver: Solver) -> str:
    """Say which solver a job came to that names none; empty for others."""
    if job.solver.build() is not None:
        return ""
    exact = not isinstance(solver, Neighbours)
    return (
        f"Solver auto: {solver_name(solver)}, as an exact solve is {'cheap' if exact else 'not cheap'} here"
    )


def _observed(cells: MapCells | None, points: Observations) -> MapCells | None:
    """Leave cells blank where the source has no values; `ConfigurationError` if these are all of them."""
    if cells is None:
        return None
    found = cells.observed(points.latitude_degrees, points.longitude_degrees, points.missing_degrees)
    if found.size == 0:
        raise ConfigurationError(
            "[design] map: the source has no values in its area, so that all of its cells are blank. "
            'Give the map another area, or mask = "none" to predict there all the same.'
        )
    return found
