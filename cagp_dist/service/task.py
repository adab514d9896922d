"""What a job comes to once its field is known: points, values, prior, solver and the run's name."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import TypeAlias, cast

import numpy as np
import xarray as xr

from cagp_dist import tiling
from cagp_dist.arrays import Array, Indices, Mask, Times
from cagp_dist.calibration.recalibration.methods import SHARP
from cagp_dist.checks import check_count
from cagp_dist.digest import file_sha256
from cagp_dist.errors import ArgumentError, ConfigurationError, DataError
from cagp_dist.factors import SameLabel
from cagp_dist.fields.backgrounds import read_background
from cagp_dist.fields.canonical import (
    depths_of,
    field_variable,
    labels_of,
    limits_of,
    observation_points,
    several_variables,
    space_of,
)
from cagp_dist.fields.checked import CheckedObservations
from cagp_dist.fields.selection import parse_times
from cagp_dist.fields.tables import Depths, check_depth_units, read_places
from cagp_dist.geometry import coinciding
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.gram.targets import joined_targets
from cagp_dist.kernels import (
    AUTO,
    DEPTH,
    KERNELS,
    NO_LABEL,
    VARIABLE,
    Factor,
    Family,
    Lengthscales,
    Product,
    families_of,
)
from cagp_dist.means import MEANS, EstimatedMean, MeanFamily, PlacedFamily, WithCovariates
from cagp_dist.pipeline import (
    MOST_FLAT,
    Model,
    Neighbours,
    Observations,
    Rings,
    Solver,
    check_estimable,
    chosen_solver,
    each,
    fields_by_pattern,
    solver_name,
)
from cagp_dist.pipeline.background import Background
from cagp_dist.pipeline.carried import CarriedField
from cagp_dist.pipeline.cross_validation import usual_recalibration
from cagp_dist.pipeline.field_fit import ways_in_depth
from cagp_dist.pipeline.fitted_model import FittedModel, ellipse_of, no_nugget
from cagp_dist.pipeline.labels import (
    Labels,
    check_groups,
    one_depth,
    said_of_one_depth,
    shared_errors,
    with_pairs,
    without_depths,
)
from cagp_dist.pipeline.map_cells import MapCells
from cagp_dist.pipeline.map_mean import MeanLike, MeansByLabel, PartlyKnown, known_at, known_of, unknown_text
from cagp_dist.pipeline.map_points import MapPoints, Targets
from cagp_dist.pipeline.maps_at_times import SAME_HOUR
from cagp_dist.pipeline.model_settings import COMPARED_IN_TIME, ModelSettings
from cagp_dist.pipeline.observations import beside_limits, block_size, hours_since, visited
from cagp_dist.pipeline.recalibration import Errors, Recalibration
from cagp_dist.pipeline.solve_plans import choose_solver
from cagp_dist.pipeline.split import Split
from cagp_dist.pipeline.task import HeldOut, Task
from cagp_dist.predictive.transforms import Identity, Transform
from cagp_dist.service.carried_state import Carried, carried_of, check_filter
from cagp_dist.service.job_size import Gaps, Size
from cagp_dist.service.jobfile.design_table import BlockPoints, targets_path
from cagp_dist.service.jobfile.job import Job, given_beside_limits
from cagp_dist.service.jobfile.prior_table import PriorNumbers
from cagp_dist.service.jobfile.solver_table import AnySolverTable
from cagp_dist.service.map_cells import Wanted, samples_of_map
from cagp_dist.service.point_roles import Design, design_of_profiles, design_of_variables, design_points
from cagp_dist.space import SPHERE, Space, moved
from cagp_dist.space_time import SpaceTimeOf
from cagp_dist.store.batches import PRELIMINARY
from cagp_dist.store.earlier import EarlierRuns, earlier_runs
from cagp_dist.store.publish import run_key
from cagp_dist.store.zarr_arrays import content_sha256
from cagp_dist.text import counted, shown_time
from cagp_dist.variables import Variable
from cagp_dist.versions import numerical_version

logger = logging.getLogger(__name__)

JobMean: TypeAlias = MeanFamily | EstimatedMean | Background | MeansByLabel

# Kernels in time by their names in job files; None: one kernel of the distance in space and time together
TIME_KERNELS: dict[str, Family | None] = {
    "metric": None,
    **{name: KERNELS[name] for name in ("matern12", "matern32")},
}


@dataclass(frozen=True)
class Simulations:
    """How many fields are drawn from the prior of a job to see what its error bars do, and their seed."""

    count: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("simulations", self.count, least=2)
        check_count("seed", self.seed, least=0)


@dataclass(frozen=True, eq=False)
class SeenTimes:
    """What informs the times of a job where they inform each other: observations of T' times, ascending."""

    points: Observations
    window_hours: float | None  # how far from a time its observations may lie
    lead_hours: float | None  # how long before it they end; None: later ones inform it, too

    @property
    def apart(self) -> bool:
        """Whether each time of a job has a solve of its own, as it sees others than the next."""
        return self.lead_hours is not None or self.window_hours is not None

    def counts(self, times: Times, train: Indices) -> Indices:
        """Values at some points that each of some times (T,) sees, shape (T,)."""
        upto = np.concatenate([[0], np.cumsum(self.points.present[:, train].sum(axis=1))])
        hours, at = (hours_since(each, times[0]) for each in (self.points.times, times))
        reach = np.inf if self.window_hours is None else self.window_hours + SAME_HOUR
        last = at + reach if self.lead_hours is None else at - self.lead_hours + SAME_HOUR
        ends = np.searchsorted(hours, last, side="right")
        return np.asarray(upto[ends] - upto[np.minimum(np.searchsorted(hours, at - reach), ends)])

    def lags(self, times: Times, near: Indices) -> Array:
        """Hours (T, q) from times to the nearest one that they see with a value at one of places (q, r)."""
        heard: Mask = np.asarray(self.points.present[:, near].any(axis=2))
        hours, at = (hours_since(each, times[0]) for each in (self.points.times, times))
        found = np.full((times.size, len(near)), np.nan)
        for place, there in enumerate(heard.T):
            known = np.concatenate([[-np.inf], hours[there], [np.inf]])
            last = at - (self.lead_hours or 0.0) + SAME_HOUR
            lag = at - known[np.searchsorted(known, last, side="right") - 1]
            if self.lead_hours is None:
                lag = np.minimum(lag, known[np.searchsorted(known, at - SAME_HOUR)] - at)
            seen = np.isfinite(lag) if self.window_hours is None else lag <= self.window_hours + SAME_HOUR
            found[seen, place] = np.abs(lag[seen])
        return found


@dataclass(frozen=True, eq=False)
class ChosenPoints:
    """Points of a job, what is done with each, and the solver: known before anything is fitted."""

    points: Observations  # all points of the field
    design: Design  # which of them are observed and scored, and the cells of the map
    recalibration: Recalibration  # which errors correct the predictive distributions
    wanted: Wanted | None  # places of a table that are to be predicted
    solver: Solver
    fold_solver: Solver  # of each fold of a cross-validation, which leaves gaps
    seen: SeenTimes | None = None  # what informs its times, where they inform each other
    # by columns, the names of those whose observations share an error
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    variables: tuple[
        Variable, ...
    ] = ()  # where there are several: the points are those of one after the other
    carried: Carried | None = None  # the state of the previous run, where the job asks for that
    depths: Array | None = None  # (d,) of maps, where observations have depths; of one depth it
    depth_units: str = ""  # of these, empty where nothing is said

    @cached_property
    def X(self) -> Array:
        """Observed points, in solver order, shape (n, p)."""
        return self.points.X[self.design.train]

    @cached_property
    def y(self) -> Array:
        """Observed values in the unit of the variable, shape (n, T)."""
        return np.ascontiguousarray(self.points.values[:, self.design.train].T)

    @cached_property
    def calibrating(self) -> Indices:
        """Calibration points that are predicted: those whose errors are used."""
        kept = self.design.calibration
        return np.arange(0) if kept is None or self.recalibration.errors != "points" else kept

    @cached_property
    def spacing(self) -> float:
        """Distance of observed points in degrees; 0 where no map asks for means over cells."""
        return spacing_of(self.points, self.design)

    @cached_property
    def predicted(self) -> Targets:
        """All that is predicted; what has a column of the solve by its kind."""
        design, points, spacing = self.design, self.points, self.spacing
        cells, fine = (
            None if each is None else each.inputs(spacing) for each in (design.cells, design.mean_cells)
        )
        free: dict[str, float | Array] = dict.fromkeys(points.beside, NO_LABEL)

        def field_at(
            wanted: Array | LinearFunctionals | None,
            depths: Array | None = None,
            labels: Mapping[str, Array] | None = None,
        ) -> Array | LinearFunctionals | None:
            """Give what is wanted of the field, or of one variable after the other, with errors of labels."""
            at = free if depths is None or DEPTH not in free else {**free, DEPTH: depths}
            at = {**at, **(labels or {})}
            if wanted is None or not self.variables:
                return None if wanted is None else MapPoints.of(wanted).beside(at).wanted
            every = range(len(self.variables))
            each = [MapPoints.of(wanted).beside({**at, VARIABLE: float(label)}) for label in every]
            return joined_targets([points.wanted for points in each])

        at, deep = cells, None
        if self.depths is not None and isinstance(cells, np.ndarray):
            at, deep = np.tile(cells, (self.depths.size, 1)), np.repeat(self.depths, len(cells))
        tested = design.test[: design.test.size // max(len(self.variables), 1)]
        deeper = points.beside[DEPTH][tested] if DEPTH in points.beside else None
        of_tested = {axis: points.beside[axis][tested] for axis in self.labels}
        held_out: Array | LinearFunctionals | None = points.X[tested]
        if self.variables:
            held_out = field_at(points.positions[tested], deeper, of_tested)
        found = Targets.of_kinds(
            {
                "held out": held_out,
                "calibration": points.X[self.calibrating],
                "cells": None if design.samples else field_at(at, deep),
                "places": None if self.wanted is None else field_at(self.wanted.X, self.wanted.depths),
                "regions": field_at(design.region_means),
                **{
                    bias_kind(axis): shared_errors(points, axis, len(names), len(self.variables) or None)
                    for axis, names in self.labels.items()
                },
            }
        )
        if cells is not None and design.samples:
            return replace(found, sampled_at=MapPoints.of(cells).beside(free), samples=design.samples)
        of_mean = field_at(fine)
        return found if of_mean is None else found.with_mean_at(MapPoints.of(of_mean), like="cells")

    @property
    def columns(self) -> Mapping[str, slice]:
        """Which column of the solve each kind of target has."""
        return self.predicted.kinds

    @cached_property
    def gaps(self) -> Gaps | None:
        """What is missing at the observed points, where that parts their solves; None if nothing is."""
        present = self.points.present[:, self.design.train]
        if self.seen is not None or present.all():
            return None
        return Gaps(
            values=int(np.count_nonzero(present)),
            patterns=len(fields_by_pattern(present)),
            complete=int(np.count_nonzero(present.all(axis=0))),
        )

    @cached_property
    def size(self) -> Size:
        """Count the points."""
        design, cells, recalibration = self.design, self.design.cells, self.recalibration
        several = max(len(self.variables), 1)
        deep = 1 if self.depths is None else self.depths.size
        return Size(
            observed=design.train.size,
            tested=design.test.size,
            mapped=0 if cells is None else several * deep * cells.size,
            blank=0 if cells is None else cells.blank,
            times=self.points.times.size,
            joined=0 if self.seen is None else int(self.seen.counts(self.points.times, design.train).max()),
            apart=self.seen is not None and self.seen.apart,
            mean_mapped=0 if design.mean_cells is None else several * design.mean_cells.size,
            folds=design.count_folds,
            places=0 if self.wanted is None else several * self.wanted.north.size,
            nodes_per_cell=0 if cells is None else cells.nodes_per_side(self.spacing) ** 2,
            gaps=self.gaps,
            samples=design.samples,
            regions=several * len(design.regions or ()),
            biases=several * sum(map(len, self.labels.values())),
            variables=several,
            depths=deep,
            region_nodes=0 if design.region_means is None else several * len(design.region_means.nodes),
            errors=recalibration.errors,
            with_errors=recalibration.places,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class PreparedJob(ChosenPoints):
    """Everything a solve needs; what follows from the fields is worked out once."""

    job: Job
    mean: JobMean  # of the prior mean
    provenance: Mapping[str, str]  # source of the field, and digests of it and of all else that is read
    simulations: Simulations | None = None  # fields of the prior that are solved for as well
    fit_points: Observations | None = None  # the field at the times of the fit, if not its own
    flags: CheckedObservations | None = None  # what was looked at, with flags, where that is asked for
    named: str = ""  # name of the run, where values were left out of what was read
    as_read: Observations | None = None  # the points with their values, where those above are transformed

    @property
    def of_values(self) -> Observations:
        """The points with values in the unit of the variable."""
        return self.points if self.as_read is None else self.as_read

    def transformed(self, transform: Transform) -> "PreparedJob":
        """Take the values by a transform; `DataError` if it has none of some of them, held-out ones too.

        Beside limits of detection the identity is one: what is predicted is not normal.
        """
        if isinstance(transform, Identity) and self.points.limits is None:
            return self
        points = self.points.transformed(transform)
        lost = self.points.present & ~np.isfinite(points.values)
        if lost.any():
            raise DataError(
                f"[prior] transform is {transform.text}, and {counted(int(lost.sum()), 'held-out value')} "
                f"such as {self.points.values[lost][0]:g} lie where it has none; expected values like those "
                'that are observed. Take transform = "asinh", or draw other test points.',
                key="transform-held-out",
            )
        if points.censored is not None and self.recalibration.method != "none":
            raise ConfigurationError(
                f"[prior] transform is {transform.text}, values are zero, which are censored, and "
                f'[recalibration] method = "{self.recalibration.method}" was given, which do not go together '
                "yet; leave it out.",
                key="zeros-with-others",
            )
        return replace(self, points=points, as_read=self.points)

    def beside_outliers(self, model: FittedModel) -> "PreparedJob":
        """Give values that look wrong the wider noise that was found."""
        if model.excess is None:
            return self
        points, solver = replace(self.points, excess=model.excess), self.solver
        if self.job.solver.build() is None and self.seen is None:  # rings of a grid are for even noise
            solver = choose_solver(points, self.design.train)
        return replace(self, points=points, solver=solver, named=self.run_key)

    @cached_property
    def task(self) -> Task:
        """What is asked, as `cagp_dist.pipeline.task` takes it."""
        points, design, prior = self.points, self.design, self.job.prior
        folds, targets = design.folds, self.predicted
        fold_of = None
        if folds is not None:
            of_place = np.full(points.north.size, -1)
            of_place[design.test] = folds
            fold_of = of_place[design.train]
        observations, split, times = points, Split(design.train, design.test, folds, fold_of), None
        if self.seen is not None:
            chosen = np.sort(design.train)
            there = self.seen.points.at(chosen)
            observations, times = there.in_space_and_time(self.seen.points.times), points.times.size
            check_informed(self)
            at = hours_since(points.times, observations.origin)
            targets = replace(targets, points=targets.points.at_hours(at))
            fold_of = None if folds is None else of_place[chosen[np.nonzero(there.present)[1]]]
            split = Split(np.arange(observations.north.size), fold_of=fold_of)
        calibrating = None
        if self.recalibration.errors == "points":
            training = points.positions[design.train], points.values[:, design.train]
            calibrating = replace(
                self._held(self.calibrating),
                blocks=design.calibration_blocks,
                training=None if self.seen is None else training,
            )
        carried = None
        if self.carried is not None:
            held = np.concatenate([design.test, self.calibrating])
            carried = CarriedField(self.carried.state, held)
        return Task(
            observations,
            split,
            targets,
            self.settings() if prior.numbers is None else self._given(prior.numbers),
            solver=self.job.solver.build() or "auto",
            recalibration=self.recalibration,
            held_out=replace(self._held(design.test), folds=folds),
            calibrating=calibrating,
            lead_hours=self.job.design.lead if self.seen is not None else None,
            window_hours=self.job.design.window_hours if self.seen is not None else None,
            fitted_to=None if prior.numbers is not None else self._fitted_to(),
            times=times,
            carried=carried,
        )

    @property
    def to_fit(self) -> Task:
        """The same where numbers that are given are fitted."""
        return replace(self.task, model=self.settings(), fitted_to=self._fitted_to())

    def _given(self, numbers: PriorNumbers) -> ModelSettings:
        """Take kernel and noise as the job gives them."""
        table = self.job.prior
        model = Model(families_of(table.kernel))
        lengthscales: Sequence[Lengthscales] = each(numbers.lengthscale)
        if table.time_kernel is not None:
            assert table.time_lengthscale_hours is not None
            hours = each(table.time_lengthscale_hours)
            lengthscales = list(zip(each(numbers.lengthscale), hours, strict=True))
            in_time = TIME_KERNELS[table.time_kernel]
            model = Model(tuple(cast("Family", SpaceTimeOf(family, in_time)) for family in model.families))
        kernel = model.kernel(lengthscales, each(numbers.variance))
        if (ellipse := ellipse_of(table.anisotropy, self.points.only(self.design.train))) is not None:
            kernel = ellipse.of(kernel)
        if DEPTH in self.points.beside:
            assert table.depth_lengthscale is not None
            (family,) = ways_in_depth(model.families[0])[table.depth_kernel or AUTO]
            (deep,) = each(table.depth_lengthscale)
            if ellipse is None:
                kernel = family((kernel.parts[0].common_lengthscale, float(deep)), kernel.variance)
            else:
                factor = cast("Product", family((1.0, float(deep)))).factors[1]
                kernel = Product((cast("Factor", kernel), factor), kernel.variance)
        for axis, std in zip(table.bias_by, each(table.bias_std or ()), strict=True):
            kernel = kernel + SameLabel(std**2, axis)
        noise = 0.0 if self._is_no_nugget(numbers.noise_variance) else numbers.noise_variance
        return ModelSettings(kernel, self.mean, noise_variance=noise)

    def _is_no_nugget(self, noise_variance: float) -> bool:
        """Whether it is what a fit prints for none beside noise that is a number, as zero is not stated."""
        known = self.points.noise_variance
        if known is None or not isinstance(self.job.observations.noise_std, float):
            return False
        return noise_variance <= 1.001 * no_nugget(known)  # some digits are printed

    def settings(self) -> ModelSettings:
        """Say of kernel and mean what the job does; the numbers are fitted."""
        table, mean = self.job.prior, self.mean
        in_time = {name: (family,) for name, family in TIME_KERNELS.items()}
        fixed: Mapping[str, Sequence[float]] = {}
        nugget = 0.0 if isinstance(self.job.observations.noise_std, float) else None  # as in a call
        if isinstance(mean, Background) and mean.std is not None:
            fixed = {"variance": [mean.variance]}
            nugget = None if self.points.noise_variance is None else 0.0
        return ModelSettings(
            table.kernel,
            mean,
            fixed=fixed,
            nugget_std=nugget,
            anisotropy=table.anisotropy,
            outliers=table.outliers,
            hyperparameters=table.hyperparameters,
            obstacle=self._obstacle,
            in_time=in_time.get(table.time_kernel or AUTO, COMPARED_IN_TIME),
            in_depth=table.depth_kernel or AUTO,
            labels=Labels(
                tuple(self.labels),
                tuple(variable.name for variable in self.variables),
                nugget_correlation=table.nugget_correlation,
            ),
        )

    def _held(self, chosen: Indices) -> HeldOut:
        """Give observations at some points that the solve does not use."""
        known = self.points.noise_variance
        return HeldOut(
            self.points.values[:, chosen],
            self.points.positions[chosen],
            np.zeros(chosen.size) if known is None else known[chosen],
            labels=self.points.beside[VARIABLE][chosen].astype(np.intp) if self.variables else None,
            limits=None if self.points.limits is None else self.points.limits[:, chosen],
        )

    def _fitted_to(self) -> Observations | None:
        """Observations that the numbers are fitted to, if they are not those that are observed."""
        points, whole = self.fit_points, self.job.prior.fit_to == "field"
        if points is None:
            return self.points if whole and self.seen is None else None
        if whole and self.seen is None:
            return points
        chosen = places_of_fit(self)
        if self.seen is None:
            return points.only(chosen)
        return points.at(np.sort(chosen)).in_space_and_time(points.times)

    @property
    def _obstacle(self) -> str | None:
        """Say what of a job leaves no room for more than one set of numbers."""
        obstacles = {
            "the kernel is one of space and time": self.job.prior.time_kernel is not None,
            "the numbers are fitted to the whole field": self.job.prior.fit_to == "field",
            "the numbers are fitted to other times": self.fit_points is not None,
            "the mean is the previous run": self.carried is not None,
            "lengthscales are stretched for each quantile": self.recalibration.method == SHARP,
            "weights are kept": self.job.output.keep_weights,
            "error bars of the map come from samples": self.design.samples > 0,
            "fields of one prior are simulated": self.simulations is not None,
        }
        return next((said for said, there in obstacles.items() if there), None)

    @cached_property
    def run_key(self) -> str:
        """Name of the run: a digest of all that decides its result, and of nothing else.

        Numbers that are fitted have no part in it: they follow from the job, the data and the versions.
        """
        return self.named or self.run_key_of(numerical_version())

    def run_key_of(self, version: str) -> str:
        """Name of the run of this job and these data by a numerical version."""
        blank = 0 if self.design.cells is None else self.design.cells.blank
        gaps = self.points.gridded and bool(np.isnan(self.points.values).any())
        # of folds with gaps the solver was chosen by another order of the points
        may_integrate = (
            self.job.prior.numbers is None
            and self.seen is None
            and self.job.prior.hyperparameters == "auto"
            and self.design.train.size <= MOST_FLAT
        )
        chosen = gaps and self.job.solver.build() is None and self.design.folds is not None
        names = (
            "content_sha256",
            "climatology_sha256",
            "covariates_sha256",
            "background_sha256",
            "targets_sha256",
            "fit_content_sha256",
            "previous_sha256",
            PRELIMINARY,
        )
        contents = (self.provenance.get(name) for name in names)
        return run_key(
            job=self.job.canonical(version),
            input_hash=" ".join(content for content in contents if content is not None),
            tiling={
                "block_size": block_size(self.solver),
                "column_group": tiling.COLUMN_GROUP,
                "smallest_row_tile": tiling.SMALLEST_ROW_TILE,
                **({} if blank == 0 else {"blank_cells": blank}),
                **({"gaps": "kept"} if gaps else {}),  # they were dropped once
                **({"chosen": solver_name(self.solver)} if chosen else {}),
                **self.recalibration.key(),
                **({} if self.simulations is None else {"simulations": asdict(self.simulations)}),
                # of fine maps each cell had a column once
                **({"samples_of_map": self.design.samples} if self.design.samples else {}),
                # numbers were plugged in once, however few the points
                **({"hyperparameters": "auto"} if may_integrate else {}),
                # means are products with weights, and the trace has no iterations between
                **({"weights": "kept"} if self.job.output.keep_weights else {}),
            },
            dtype="float64",
            numerical_version=version,
        )


def prepare_job(
    job: Job,
    field: xr.Dataset,
    fit_field: xr.Dataset | None = None,
    *,
    earlier: EarlierRuns | None = None,
    flagged: Mask | None = None,
) -> PreparedJob:
    """Choose points and solver, and read what the mean is fitted from; values (T, n) may be flagged."""
    mean = mean_of_job(job, field, fit_field)
    chosen = choose_points(job, field, mean, flagged)
    points, design, wanted = chosen.points, chosen.design, chosen.wanted
    read = cast("MeanFamily", mean) if job.prior.reads_mean else None
    if read is not None:
        for cells in (design.cells, design.mean_cells) if points.space.has_latitudes else ():
            if cells is not None:
                read.check_covers(*cells.corners())
        read.check_covers(points.north, points.east)
    elif design.region_means is not None and isinstance(mean, PartlyKnown):
        nodes = design.region_means.nodes
        known = known_at(mean, nodes, points)
        if not known.all():  # a mean over a part of a region is another one
            said = unknown_text(mean, known, nodes, points.space, "points of the regions")
            raise DataError(f"{said}; expected it around them. Check its region.", key="covariate-unknown")
    if chosen.seen is None:
        check_every_time(points, design.train, mean if job.prior.estimates_mean else None)
    provenance = {
        "source": str(field.attrs["source"]),
        "source_sha256": str(field.attrs["source_sha256"]),
        "content_sha256": content_sha256(field),
        **({PRELIMINARY: str(field.attrs[PRELIMINARY])} if PRELIMINARY in field.attrs else {}),
    }
    if job.prior.background is not None and isinstance(mean, Background):
        provenance |= {"background": job.prior.background, "background_sha256": mean.content_sha256}
    elif isinstance(mean, WithCovariates):
        provenance |= {"covariates_sha256": mean.content_sha256}
    elif read is not None and read.content_sha256 is not None:
        kind, _, address = job.prior.mean.partition(":")
        provenance |= {kind: address, f"{kind}_sha256": read.content_sha256}
    if wanted is not None and job.design.targets is not None:
        if read is not None:
            read.check_covers(wanted.north, wanted.east)
        provenance |= {"targets_sha256": file_sha256(targets_path(job.design.targets))}
    if fit_field is not None:
        provenance |= {"fit_content_sha256": content_sha256(fit_field)}
    carried = None
    if job.prior.is_previous:
        check_filter(job, points, design)
        carried = carried_of(earlier or partial(earlier_runs, job.output.folder), job, points)
        provenance |= carried.provenance
    return PreparedJob(
        points,
        design,
        chosen.recalibration,
        wanted,
        chosen.solver,
        chosen.fold_solver,
        chosen.seen,
        chosen.labels,
        chosen.variables,
        depths=chosen.depths,
        depth_units=chosen.depth_units,
        job=job,
        mean=mean,
        provenance=provenance,
        fit_points=None if fit_field is None else _fit_points(job, fit_field, mean, points, field),
        carried=carried,
    )


def _fit_points(
    job: Job, fit_field: xr.Dataset, mean: JobMean, points: Observations, field: xr.Dataset
) -> Observations:
    """Observations of the times of a fit; at one depth, where those of the job are all at one."""
    found, deep = _known_points(job, fit_field, mean), depths_of(field)
    if deep is None or DEPTH in points.beside:
        return found
    return without_depths(found.keep(found.beside[DEPTH] == deep.values[0]))


def mean_of_job(job: Job, field: xr.Dataset, fit_field: xr.Dataset | None = None) -> JobMean:
    """Read what the mean of a job is fitted from, or its background."""
    table, variables = job.prior, several_variables(field)
    if variables:
        points = observation_points(field)
        n, means = points.north.size // len(variables), []
        for label, variable in enumerate(variables):
            part = points.at(np.arange(label * n, (label + 1) * n))
            placed = part.space, part.north[part.there], part.east[part.there]
            means.append(cast("MeanLike", table.mean_family(variable.name, placed)))
        return MeansByLabel(tuple(means), tuple(variable.name for variable in variables), VARIABLE)
    places = None
    if isinstance(MEANS.get(table.family), PlacedFamily):
        seen = observation_points(field)
        places = seen.space, seen.north[seen.there], seen.east[seen.there]
    if table.background is None:
        return table.mean_family(job.observations.name, places)
    variable = field_variable(field)
    around = np.concatenate([each["time"].values for each in (field, fit_field) if each is not None])
    if variable.transform:
        raise ConfigurationError(
            "[observations] transform cannot be combined with background, whose values are as they are; "
            "leave either out.",
            key="background-with-others",
        )
    estimated = table.mean_family(job.observations.name, places) if table.estimates_mean else None
    points = observation_points(field)
    if fit_field is not None and not points.space.has_latitudes:
        raise ConfigurationError(
            "[prior] fit_times cannot be combined with background in a plane yet; leave either out.",
            key="background-with-others",
        )
    found = read_background(
        table.background,
        table.background_std,
        space=points.space,
        variable=job.observations.name,
        units=variable.units,
        around=around,
        estimated=estimated if isinstance(estimated, EstimatedMean) else None,
        takes_spread=not table.in_time and table.numbers is None and table.parts == 1,
    )
    if found.scales and table.bias_by:
        raise ConfigurationError(
            "[prior] bias_by cannot be combined with a background whose error is a field, such as the spread "
            "of an ensemble; write background_std as a number, or leave bias_by out.",
            key="background-with-others",
        )
    if found.scales and job.recalibration.method == SHARP:
        raise ConfigurationError(
            f'[recalibration] method = "{SHARP}" stretches the lengthscales of a kernel, and the standard '
            "deviation of the background's error is a field; write background_std as a number, or another "
            "method.",
            key="background-with-others",
        )
    return found


def places_of_fit(prepared: PreparedJob) -> Indices:
    """Places of the field of other times that its numbers are fitted to: those that are observed.

    Ships and floats are elsewhere at other times: of them all places count that are not held out.
    """
    assert prepared.fit_points is not None
    points, others, chosen = prepared.fit_points, prepared.points, prepared.design.train
    elsewhere = bool(prepared.labels) or DEPTH in points.beside
    of = np.setdiff1d(prepared.design.test, chosen) if elsewhere else chosen
    same = coinciding(*(some.space.keys(some.north, some.east) for some in (points, others.at(of)))) >= 0
    train = np.flatnonzero(~same if elsewhere else same)
    if train.size == 0:
        raise DataError(
            f"[prior] fit_times: none of the {chosen.size:,} observed places has a value then; "
            "choose others.",
            key="nothing-at-fit-times",
        )
    return train


def check_every_time(points: Observations, chosen: Indices, mean: JobMean | None) -> None:
    """Raise `DataError` where a time has no value at the chosen points, or does not say its mean."""
    present = points.present[:, chosen]
    there = present.any(axis=1)
    if not there.all():
        raise DataError(
            f"nothing was observed at {shown_time(points.times[there.argmin()])} at the {chosen.size:,} "
            "points that predict the others; leave this time out, or use fewer folds or smaller blocks.",
            key="nothing-observed",
        )
    if isinstance(mean, EstimatedMean):
        basis = np.asarray(mean.basis_at(points.positions[chosen]))
        for fields in fields_by_pattern(present):
            check_estimable(basis[present[fields[0]]], mean.coefficient_names)


def check_each_variable(points: Observations, design: Design, variables: Sequence[Variable]) -> None:
    """Raise `DataError` where a time has no observed value of a variable, or none is held out."""
    labels = points.beside[VARIABLE]
    for label, variable in enumerate(variables):
        own, held = (chosen[labels[chosen] == label] for chosen in (design.train, design.test))
        if not points.present[:, held].any():
            raise DataError(
                f"none of the {held.size:,} held-out places has a value of {variable.name!r}, so that "
                "it has no scores; hold out more places, or draw others: [design] test count and seed.",
                key="nothing-to-score",
            )
        there = points.present[:, own].any(axis=1)
        if not there.all():
            raise DataError(
                f"nothing was observed of {variable.name!r} at {shown_time(points.times[there.argmin()])} at "
                "the points that predict the others; leave this time out, or map the variables one by one.",
                key="nothing-observed",
            )


def check_informed(prepared: PreparedJob) -> None:
    """Raise `DataError` where a time sees no value, from which the mean is to be estimated."""
    assert prepared.seen is not None
    counts = prepared.seen.counts(prepared.points.times, prepared.design.train)
    if not counts.all():
        time = shown_time(prepared.points.times[counts.argmin()])
        raise DataError(
            f"no observed point has a value that {time} may see, by "
            "[design] window_hours, causal and lead_hours; leave this time out, or give a longer window.",
            key="nothing-observed",
        )


def bias_kind(axis: str) -> str:
    """Kind of the targets that are the errors which observations with the same label share."""
    return f"errors by {axis}"


def spacing_of(points: Observations, design: Design) -> float:
    """Distance of observed points from each other in degrees; 0 where no map asks for means over cells."""
    return 0.0 if design.cells is None or design.cells.edges is None else points.spacing(design.train)


def wanted_places(address: str | None, space: Space = SPHERE, depths: Depths | None = None) -> Wanted | None:
    """Read the table of places that a job asks for, if it does; of observations with depths, with theirs."""
    if address is None:
        return None
    path = targets_path(address)
    if not path.is_file():
        raise DataError(
            f"[design] targets: there is no table {path}. The path is relative to the working directory.",
            key="no-table",
        )
    try:
        found = read_places(path, space, depth=[] if depths is None else [depths.name, DEPTH])
        north, east, own = found.beside(space)
        at = None if depths is None else _depths_of_targets(found.depths, depths)
        return Wanted(*moved(own, space, north, east, what="target"), space, found.names, at)
    except ArgumentError as error:
        key = error.key if error.key.startswith("depth") else "targets"
        raise ConfigurationError(f"[design] targets: {error}", key=key) from error


def _depths_of_targets(found: Depths | None, observed: Depths) -> Array:
    """Check that targets have depths, in the unit of those of the observations."""
    if found is None:
        raise ArgumentError(
            f"the observations have depths, and the targets have none; expected a column {observed.name!r}, "
            f'or "{DEPTH}".',
            key="depth-of-targets",
        )
    check_depth_units(found.units, observed.units)
    return found.values


def choose_points(
    job: Job, field: xr.Dataset, mean: JobMean | None, flagged: Mask | None = None
) -> ChosenPoints:
    """Points of the field: which are observed, scored, mapped, and which calibrate; and the solver."""
    points, named = _known_points(job, field, mean), job.solver.build()
    if flagged is not None:
        points = replace(points, values=np.where(flagged, np.nan, points.values))
        least = points.fields if job.observations.gaps == "drop" else 1
        there: Mask = np.count_nonzero(points.present, axis=0) >= least
        points = points if there.all() else points.keep(there)
    named = Rings() if job.prior.is_previous else named
    seen = SeenTimes(points, job.design.window_hours, job.design.lead) if job.prior.in_time else None
    if seen is not None and points.times.size == 1 and seen.window_hours is None:
        raise ConfigurationError(
            "[prior] time_kernel lets times inform each other, and the job has one. Write window_hours = 48 "
            "into [design] to take what the source has around it, give more times, or leave time_kernel out.",
            key="one-time",
        )
    if (seen is not None or job.prior.is_previous) and points.dates() is None:
        raise ConfigurationError(
            f"{job.observations.source} has no times, and [prior] lets times inform each other; expected a "
            'column of times. Leave time_kernel out, and mean = "previous".',
            key="no-times",
        )
    points = points if seen is None else _at_times(job, points)
    deep = depths_of(field)
    wanted, map_table = wanted_places(job.design.targets, points.space, deep), job.design.map
    depths = None
    if deep is not None:
        depths = None if map_table is None else np.array(map_table.depths, dtype=np.float64)
        points = _in_depth(points, depths, wanted)
    if wanted is not None and isinstance(mean, PartlyKnown):
        known = known_at(mean, wanted.X, points)
        _tell_unknown(mean, known, wanted.X, wanted.space, "targets", "left out")
        wanted = wanted.at(np.flatnonzero(known))

    def solver_at(design: Design) -> Solver:
        if named is None and seen is not None:
            return chosen_solver(int(seen.counts(points.times, design.train).max()))
        return choose_solver(points, design.train) if named is None else named

    variables = several_variables(field)
    if variables:
        design = design_of_variables(points, len(variables), job.design, block_size(named))
        check_each_variable(points, design, variables)
    elif DEPTH in points.beside:
        design = design_of_profiles(points, job.design, block_size(named))
    else:
        design = design_points(points, table=job.design, block_size=block_size(named))
    solver = fold_solver = solver_at(design)
    design = replace(design, train=visited(design.train, solver))
    recalibration = _recalibration(job, points, design, solver)
    if map_table is not None and map_table.mask == "observed":
        design = replace(
            design, cells=_observed(design.cells, points), mean_cells=_observed(design.mean_cells, points)
        )
    if isinstance(mean, PartlyKnown):
        cells, fine = (
            _known_cells(each, mean, points, spacing_of(points, design))
            for each in (design.cells, design.mean_cells)
        )
        design = replace(design, cells=cells, mean_cells=fine)
    samples = 0 if seen is not None else samples_of_map(map_table, design.cells, solver)
    design = replace(design, samples=samples)
    if design.folds is not None:
        fold_solver = solver_at(replace(design, train=design.without_largest_fold))
    if solver.needs_grid:
        points.grid_of(design.train)  # refuses points that fill none before anything is fitted
    labels = {axis: names for axis, (_, names) in labels_of(field).items()}
    try:
        check_groups(points.only(design.train), [*labels])
    except ArgumentError as error:
        raise DataError(f"[prior] {error}", key=error.key) from error
    return ChosenPoints(
        points,
        design,
        recalibration,
        wanted,
        solver,
        fold_solver,
        seen,
        labels,
        variables,
        depths=depths,
        depth_units="" if deep is None else deep.units,
    )


def _in_depth(points: Observations, maps: Array | None, wanted: Wanted | None) -> Observations:
    """Leave depths out where all observations have one, and nothing is wanted at others."""
    depth = one_depth(points)
    if depth is None:
        return points
    asked = {"[design] map": maps, "[design] targets": None if wanted is None else wanted.depths}
    for what, depths in asked.items():
        if depths is not None and (depths != depth).any():
            raise ConfigurationError(
                f"all observations have the depth {depth:g}, and {what} has others, of which nothing is "
                "known; expected this depth.",
                key="depth-of-targets",
            )
    logger.warning(said_of_one_depth(depth))
    return without_depths(points)


def _recalibration(job: Job, points: Observations, design: Design, solver: Solver) -> Recalibration:
    """Choose the errors that correct the distributions of a job."""
    table, test = job.recalibration, job.design.test
    kept: tuple[Errors, int] | None = None
    if design.calibration is not None:
        kept = "points", design.calibration.size
    elif job.prior.is_previous:
        kept = "leave-one-out", design.train.size
    held_out = test if design.calibration is None else job.design.calibration
    try:
        found = usual_recalibration(
            table.method,
            points.only(design.train),
            solver,
            reads_mean=job.prior.reads_mean,
            near=not job.prior.in_time and not isinstance(test, BlockPoints),
            blocks=held_out.size if isinstance(held_out, BlockPoints) else None,
            kept=kept,
        )
        if found.method == SHARP:
            table.check_points(found.places)
    except ValueError as error:
        key = error.key if isinstance(error, ArgumentError) else "few-errors"
        raise ConfigurationError(f"[recalibration] {error}", key=key) from error
    if found.method == SHARP:
        return replace(found, levels=table.sharp_levels, split=table.sharp_split)
    return replace(found, scored_by_folds=design.folds is not None and found.method != "none")


def _known_points(job: Job, field: xr.Dataset, mean: JobMean | None) -> Observations:
    """Observations of a field, without those where the mean is not known."""
    job.check_space(space_of(field))
    _check_limits(job, field)
    points = observation_points(field, gaps=job.observations.gaps)
    if job.prior.nugget_correlation:
        return with_pairs(points)
    if not isinstance(mean, PartlyKnown):
        return points
    known = known_at(mean, points.positions, points)
    _tell_unknown(mean, known, points.positions, points.space, "observations", "left out")
    return points if known.all() else points.keep(known)


def _check_limits(job: Job, field: xr.Dataset) -> None:
    """Raise `ConfigurationError` where a job asks for what does not go with limits of detection."""
    limits = limits_of(field)
    if limits is not None and (said := beside_limits(int(limits.sum()), given_beside_limits(job))):
        raise ConfigurationError(said, key="limits-with-others")


def _known_cells(
    cells: MapCells | None, mean: PartlyKnown, points: Observations, spacing: float
) -> MapCells | None:
    """Leave cells blank where the mean is not known."""
    if cells is None:
        return None
    known = known_of(mean, cells.inputs(spacing), points)
    _tell_unknown(mean, known, cells.X, cells.space, "cells", "blank")
    return cells.only(known)


def _tell_unknown(mean: PartlyKnown, known: Mask, X: Array, space: Space, what: str, become: str) -> None:
    """Tell of points where the mean is not known; `DataError` if these are all."""
    if not known.all():
        logger.warning("%s. These are %s.", unknown_text(mean, known, X, space, what), become)


def _at_times(job: Job, points: Observations) -> Observations:
    """Leave the times of a job, of all that inform them."""
    listed = job.observations.listed_times
    own = slice(None) if listed is None else np.isin(points.times, parse_times(listed))
    return replace(points, values=points.values[own], times=points.times[own])


def choice_line(table: AnySolverTable, solver: Solver) -> str:
    """Say which solver a job came to that names none; empty for others."""
    if table.build() is not None:
        return ""
    exact = not isinstance(solver, Neighbours)
    return (
        f"Solver auto: {solver_name(solver)}, as an exact solve is {'cheap' if exact else 'not cheap'} here"
    )


def _observed(cells: MapCells | None, points: Observations) -> MapCells | None:
    """Leave cells blank where the source has no values; `ConfigurationError` if these are all of them."""
    if cells is None:
        return None
    found = cells.observed(points.positions, points.missing_places)
    if found.size == 0:
        raise ConfigurationError(
            "[design] map: the source has no values in its area, so that all of its cells are blank. "
            'Give the map another area, or mask = "none" to predict there nevertheless.',
            key="empty-map",
        )
    return found
