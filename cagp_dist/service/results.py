"""From a solution to the groups and attributes of a published run."""

import json
import platform
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.calibration.scores import PointScores, Scores, scores
from cagp_dist.era5.canonical import Points
from cagp_dist.geometry import EARTH_RADIUS_KILOMETRES, unit_sphere
from cagp_dist.kernels import name_of
from cagp_dist.predictive import Gaussian
from cagp_dist.prior import Prior
from cagp_dist.service.design import blocks_of_folds
from cagp_dist.service.events import Clock
from cagp_dist.service.fit import FittedPrior, by_name
from cagp_dist.service.fold_fits import FEW_PLACES
from cagp_dist.service.jobfile.design import BlockPoints, FoldPoints
from cagp_dist.service.jobfile.tables import Job
from cagp_dist.service.known_errors import known_errors, predictive_std
from cagp_dist.service.laws import learnt, unchanged
from cagp_dist.service.map_cells import MapCells
from cagp_dist.service.previous import described
from cagp_dist.service.simulation import Simulated
from cagp_dist.service.solve import SampledMap, Solution, Step
from cagp_dist.service.strata import strata_of_test
from cagp_dist.service.task import Task, gaps_of, spacing_of
from cagp_dist.solvers.registry import solver_name
from cagp_dist.store import evaluation, schema
from cagp_dist.store.layout import ERROR_DRAWS, ERRORS_OF
from cagp_dist.store.preliminary import PRELIMINARY
from cagp_dist.store.rights import rights_of
from cagp_dist.text import without_secrets
from cagp_dist.variables.units import amount, square_of
from cagp_dist.versions import version

if TYPE_CHECKING:
    import xarray as xr


_STATEMENTS = (
    "computational_statement",
    "sampling_statement",
    "recalibration",
    "recalibration_statement",
)
"""Said of a run as a whole, where it applies."""

_VERSIONS = ("numpy", "scipy", "numba", "dask", "distributed", "xarray", "zarr")


def groups_of(task: Task, prior: Prior, solution: Solution) -> "dict[str, xr.Dataset]":
    """Score a solution and arrange everything for publication.

    Scores compare with observations, so that the standard deviation includes the noise; what is published as
    ``t2m_std``, or what else the variable is, has none (math 13).
    """
    points, design, last, columns = task.points, task.design, solution.steps[-1], task.columns
    test = {
        "times": points.times,
        "latitude_degrees": points.latitude_degrees[design.test],
        "longitude_degrees": points.longitude_degrees[design.test],
    }
    names = None if points.names is None else points.names[design.test]
    observed = points.values[:, design.test]
    mixed = solution.mixed
    nugget = prior.noise_number if mixed is None else mixed.nugget
    nugget_there = nugget if solution.test_nugget is None else solution.test_nugget
    noise, elsewhere = task.noise_at(design.test, nugget_there), task.typical_noise(nugget)
    sampled = solution.sampled
    trace = [_scores(task, noise, step, observed) for step in solution.steps]
    unfinished = solution.computational_std
    known, sharp = known_errors(task, solution, noise, nugget=nugget), solution.sharp
    laws = learnt(task.recalibration, known, None if sharp is None else sharp.fitted)
    mean, std = last.mean[:, columns.test], last.std[:, columns.test]
    plain, where = Gaussian(mean, predictive_std(noise, std)), task.inputs_at(design.test)
    of_plain = unchanged().scored(plain, where, observed) if mixed is None else mixed.scores
    if mixed is not None:
        trace[-1] = _pooled(of_plain, design.test_weights)
    stretched = None if sharp is None else predictive_std(noise, sharp.test)
    of_values = of_plain
    if laws.corrected:
        of_values = laws.scored(plain, where, observed, folds=design.folds, stretched=stretched)
    groups = {
        "posterior": schema.prediction_group(
            "posterior",
            **test,
            mean=mean,
            std=std,
            noise_variance=noise,
            observed=observed,
            computational_std=None if unfinished is None else unfinished[:, columns.test],
            law=mixed.of_test
            if mixed is not None and not laws.corrected
            else laws.published(plain, where, folds=design.folds, stretched=stretched),
            variable=points.variable,
            names=names,
        ),
        "calibration": evaluation.calibration_group(
            **test,
            pit=of_values.pit,
            scores=_pooled(of_values, design.test_weights) if laws.corrected else trace[-1],
            area_weight=design.test_weights,
            of_values=of_values,
            plain=(of_plain, trace[-1]) if laws.corrected else None,
            strata=strata_of_test(task),
            variable=points.variable,
            names=names,
        ).assign_attrs(
            _computational_statement(std, unfinished, points.variable.units)
            | _sampling_statement(sampled)
            | laws.found.attributes()
        ),
        "trace": evaluation.trace_group(
            trace,
            seconds=[step.seconds for step in solution.steps],
            iterations=[step.iteration for step in solution.steps],
            variable=points.variable,
        ),
        "observations": schema.values_group(
            "observations",
            times=points.times,
            latitude_degrees=points.latitude_degrees[design.train],
            longitude_degrees=points.longitude_degrees[design.train],
            values=points.values[:, design.train],
            variable=points.variable,
            names=None if points.names is None else points.names[design.train],
        ),
    }
    if design.cells is not None:
        fields = design.cells.fields
        fine, fine_mean = design.mean_cells, solution.fine_mean
        name = "map" if fine is None else "map_std"
        spacing = spacing_of(points, design)

        def nodes_of(shown: MapCells) -> int:
            return shown.nodes_per_side(spacing) ** 2

        if sampled is None:
            cell_mean, cell_std = last.mean[:, columns.cells], last.std[:, columns.cells]
        else:
            cell_mean, cell_std = sampled.mean, sampled.std
        law = None
        if nodes_of(design.cells):
            pass  # nobody observes a mean over a cell
        elif mixed is not None and not laws.corrected:
            law = mixed.of_cells
        else:
            at_cells = Gaussian(cell_mean, predictive_std(elsewhere, cell_std))
            law = laws.published(
                at_cells,
                unit_sphere(*design.cells.points()),
                stretched=None if sharp is None else predictive_std(elsewhere, sharp.cells),
            )
        groups[name] = schema.prediction_group(
            "map",
            times=points.times,
            latitude_degrees=design.cells.latitude_degrees,
            longitude_degrees=design.cells.longitude_degrees,
            mean=fields(cell_mean),
            std=fields(cell_std),
            noise_variance=elsewhere,
            computational_std=None
            if unfinished is None or sampled is not None
            else fields(unfinished[:, columns.cells]),
            law=None if law is None else law.on_grid(fields),
            variable=points.variable,
        )
        if nodes := nodes_of(design.cells):
            groups[name] = schema.means_over_cells(groups[name], points.variable, nodes)
        if sampled is not None:
            groups[name].attrs |= {
                "std_samples": sampled.samples,
                "std_relative_standard_error": sampled.relative_error,
                **_sampling_statement(sampled),
            }
        if solution.error_draws is not None:
            groups[ERROR_DRAWS] = schema.values_group(
                ERROR_DRAWS,
                times=points.times,
                latitude_degrees=design.cells.latitude_degrees,
                longitude_degrees=design.cells.longitude_degrees,
                values=fields(solution.error_draws)[None],
                variable=points.variable,
            ).assign_attrs({ERRORS_OF: json.dumps(described(task.job, points.variable), sort_keys=True)})
        if design.cells.blank:
            groups[name].attrs["blank_cells"] = design.cells.blank
        if fine is not None and fine_mean is not None:
            axes = fine.latitude_degrees, fine.longitude_degrees
            groups["map"] = schema.prediction_group(
                "map",
                times=points.times,
                latitude_degrees=axes[0],
                longitude_degrees=axes[1],
                mean=fine.fields(fine_mean),
                variable=points.variable,
            )
            if nodes := nodes_of(fine):
                groups["map"] = schema.means_over_cells(groups["map"], points.variable, nodes)
            if fine.blank:
                groups["map"].attrs["blank_cells"] = fine.blank
    if task.wanted is not None:
        place_mean, place_std = last.mean[:, columns.places], last.std[:, columns.places]
        at_places = Gaussian(place_mean, predictive_std(elsewhere, place_std))
        wanted = unit_sphere(task.wanted.latitude_degrees, task.wanted.longitude_degrees)
        groups["targets"] = schema.prediction_group(
            "targets",
            times=points.times,
            latitude_degrees=task.wanted.latitude_degrees,
            longitude_degrees=task.wanted.longitude_degrees,
            mean=place_mean,
            std=place_std,
            noise_variance=elsewhere,
            computational_std=None if unfinished is None else unfinished[:, columns.places],
            law=mixed.of_places
            if mixed is not None and not laws.corrected
            else laws.published(
                at_places,
                wanted,
                stretched=None if sharp is None else predictive_std(elsewhere, sharp.places),
            ),
            variable=points.variable,
            names=task.wanted.names,
        )
    if design.regions:
        groups["regions"] = schema.regions_group(
            times=points.times,
            regions=design.regions,
            mean=last.mean[:, columns.regions],
            std=last.std[:, columns.regions],
            computational_std=None if unfinished is None else unfinished[:, columns.regions],
            variable=points.variable,
            resolution_degrees=task.job.design.regions_resolution_degrees,
        )
    return groups


def simulation_group_of(task: Task, found: Simulated) -> "xr.Dataset":
    """Arrange what simulated fields found for publication."""
    points = task.points
    group = evaluation.simulation_group(
        latitude_degrees=points.latitude_degrees[found.points],
        longitude_degrees=points.longitude_degrees[found.points],
        found=found.calibration,
        area_weight=found.area_weight,
        variable=points.variable,
    )
    asked = found.asked
    return group.assign_attrs(
        simulations=asked.count, simulation_seed=asked.seed, simulated_observations=found.observed
    )


def _simulation_said(groups: "Mapping[str, xr.Dataset]") -> dict[str, object]:
    """Give the verdict on simulated fields, if there are any."""
    if "simulation" not in groups:
        return {}
    attributes = groups["simulation"].attrs
    return {name: attributes[name] for name in ("simulation_status", "simulation_statement", "simulations")}


def _computational_statement(std: Array, unfinished: Array | None, units: str) -> dict[str, str]:
    """Say how much of the error bars at the test points is unfinished computation, if that is known."""
    if unfinished is None:
        return {}
    here = unfinished[:, : std.shape[1]]
    whole, part = (float(np.sqrt(np.mean(values**2))) for values in (std, here))
    if part == 0.0:
        said = "The solve was exact: no part of the error bars is unfinished computation."
    else:
        said = (
            f"Of error bars of {amount(whole, units, 2)}, at most {amount(part, units, 2)} is unfinished "
            f"computation, {(part / whole) ** 2:.1%} of their variance (root mean squares at the test "
            "points, without noise)."
        )
    return {"computational_statement": said}


def _sampling_statement(sampled: SampledMap | None) -> dict[str, str]:
    """Say how far the error bars of the map are off by chance, if they come from samples."""
    if sampled is None:
        return {}
    return {
        "sampling_statement": f"The error bars of the map are estimated from {sampled.samples:,} samples of "
        f"the posterior: by chance each is off by {sampled.relative_error:.1%} (one standard error, relative "
        "to it). The mean is not estimated, and neither are the error bars at the test points."
    }


def _scores(task: Task, noise: float | Array, step: Step, observed: Array) -> Scores:
    test, weights = task.design.test, task.design.test_weights
    mean = step.mean[:, : test.size]
    with_noise = predictive_std(noise, step.std[:, : test.size])
    there = ~np.isnan(observed)
    if there.all():
        return scores(mean, with_noise, observed, weights=weights)
    # each observation with the weight of its place
    return scores(mean[there], with_noise[there], observed[there], weights=weights[np.nonzero(there)[1]])


def _pooled(of_values: PointScores, weights: Array) -> Scores:
    """Pool the scores of the observations that there are, each with the weight of its place."""
    there = ~np.isnan(of_values.normal_score)
    if there.all():
        return of_values.pooled(weights=weights)
    return of_values[there].pooled(weights=weights[np.nonzero(there)[1]])


def attributes_of(
    task: Task,
    prior: Prior,
    solution: Solution,
    *,
    groups: "Mapping[str, xr.Dataset]",
    fitted: FittedPrior | None,
    numbers: Mapping[str, object],
    executor: str,
    clock: Clock,
) -> dict[str, object]:
    """Say where a run comes from and what was found.

    The job as written, prior, fit, versions, plan, timings, what each stage handed out, how the solve
    ended, and whether the error bars hold what they promise, from groups ``calibration`` and ``simulation``.
    """
    calibration = groups["calibration"]
    job, points, cells = task.job, task.points, task.design.cells
    blank = 0 if cells is None else cells.blank
    attributes: dict[str, object] = {
        "job": without_secrets(job.text, job.observations.source),
        "status": solution.status.value,
        "status_advice": solution.status.advice,
        "calibration_status": calibration.attrs["calibration_status"],
        "calibration_statement": calibration.attrs["calibration_statement"],
        **{name: said for name, said in calibration.attrs.items() if name in _STATEMENTS},
        **_simulation_said(groups),
        "solver": _solver_said(task, solution),
        "solver_calibrated": task.solver.calibrated == "exact",
        "solver_calibration": task.solver.calibrated,
        "noise_variance": task.typical_noise(
            prior.noise_number if solution.mixed is None else solution.mixed.nugget
        ),
        **_known_noise(points),
        **_cross_validation(task),
        **_blocks(task),
        **_gaps(task),
        **_sharp(solution),
        "prior": {
            "kernel": name_of(prior.kernel),
            "mean": job.prior.mean,
            **_mean_estimate(job),
            **by_name(
                [
                    *(part.common_lengthscale for part in prior.kernel.parts),
                    *(part.variance for part in prior.kernel.parts),
                    prior.noise_number,
                ]
            ),
        },
        **({} if task.previous is None else {"previous": task.previous.attributes()}),
        "train_count": int(task.design.train.size),
        "dropped_missing": points.dropped_missing,
        **({PRELIMINARY: task.provenance[PRELIMINARY]} if PRELIMINARY in task.provenance else {}),
        **({"map_cells_blank": blank} if blank else {}),
        "merged_pole_copies": points.merged_pole_copies,
        "plan": list(solution.plan),
        "timings": {name: round(spent, 3) for name, spent in clock.seconds.items()},
        "work": {name: work.counts() for name, work in clock.work.items() if work.tasks},
        "executor": executor,
        "provenance": {
            **task.provenance,
            "cagp_dist": version("cagp-dist"),
            "python": platform.python_version(),
            **{name: version(name) for name in _VERSIONS},
        },
    }
    return attributes if fitted is None else {**attributes, "fit": {**fitted.attributes(), **numbers}}


def self_contained(
    groups: "Mapping[str, xr.Dataset]", attributes: Mapping[str, object], task: Task
) -> "dict[str, xr.Dataset]":
    """Give each group what the root says of origin, rights and noise, so that it can stand alone."""
    source, units = task.provenance["source"], task.points.variable.units
    rights, software = rights_of(source, task.points.times), f"cagp_dist {version('cagp-dist')}"
    said = {
        "history": f"created by {software}: run {task.run_key}",
        "source": f"Gaussian-process regression ({software}) of observations from {source}",
        "license": rights.license,
        "acknowledgement": rights.attribution,
        "noise_variance": attributes["noise_variance"],
        **({"noise_variance_units": square_of(units)} if units else {}),
    }
    return {name: group.assign_attrs(said) for name, group in groups.items()}


def _known_noise(points: Points) -> dict[str, object]:
    """Give the errors of measurements where they are known; the ``noise_variance`` of the prior is beside."""
    if points.noise_variance is None:
        return {}
    std = np.sqrt(points.noise_variance)
    return {"known_noise_std": {"smallest": float(std.min()), "largest": float(std.max())}}


def _gaps(task: Task) -> dict[str, object]:
    """Count the values and the solves where observed points lack values at some times."""
    gaps = gaps_of(task.points, task.design.train)
    return {} if gaps is None else {"train_values": gaps.values, "patterns_of_gaps": gaps.patterns}


def _sharp(solution: Solution) -> dict[str, object]:
    """Give the lengthscales of the quantiles of a sharp GP, as multiples of those of the prior, and beta."""
    if solution.sharp is None:
        return {}
    fitted = solution.sharp.fitted
    return {
        "sharp": {
            "levels": fitted.levels.tolist(),
            "beta": fitted.beta.tolist(),
            "lengthscale_factors": np.exp(-fitted.stretches[:, 0]).tolist(),
        }
    }


def _mean_estimate(job: Job) -> dict[str, object]:
    """How coefficients of the mean were found, and what they belong to beside the polynomial."""
    said: dict[str, object] = {} if job.prior.reads_mean else {"mean_estimate": job.prior.mean_estimate}
    return said | ({"covariates": list(job.prior.covariates)} if job.prior.covariates else {})


def _cross_validation(task: Task) -> dict[str, object]:
    folds, wanted = task.design.folds, task.job.design.test
    if folds is None or not isinstance(wanted, FoldPoints):
        return {}
    where, test = task.points, task.design.test
    height = blocks_of_folds(wanted, where.latitude_degrees[test], where.longitude_degrees[test])
    said = (
        f"{int(folds.max()) + 1} folds: each observed place was predicted from the other folds, with the "
        "prior mean fitted to them"
    )
    if task.job.prior.numbers is not None:
        said += "."
    elif task.fit_points is not None:
        said += ", kernel and noise to other times."
    elif task.job.prior.fit_to == "field":
        said += ", kernel and noise to the whole field."
    elif test.size <= FEW_PLACES:
        said += ", kernel and noise too."
    else:
        said += ", kernel and noise to the half of all folds without its own."
    if height != wanted.blocks_degrees:
        said += f" Blocks are {height:g} degrees high: there are too few of {wanted.blocks_degrees:g}."
    return {"cross_validation": said}


def _blocks(task: Task) -> dict[str, object]:
    """Say how far test points that were chosen by blocks are from what was observed."""
    from scipy.spatial import cKDTree

    wanted = task.job.design.test
    if not isinstance(wanted, BlockPoints):
        return {}
    chords = cKDTree(task.inputs).query(task.inputs_at(task.design.test))[0]
    kilometres = 2.0 * EARTH_RADIUS_KILOMETRES * np.arcsin(0.5 * chords)
    margin = f", and {wanted.margin_degrees:g} around them," if wanted.margin_degrees else ""
    said = (
        f"Test points lie in blocks {wanted.blocks_degrees:g} degrees high in which{margin} nothing was "
        f"observed: half of them are {np.median(kilometres):,.0f} km or more from the nearest observed "
        f"point, all of them at least {kilometres.min():,.0f} km."
    )
    return {"held_out_blocks": said}


def _solver_said(task: Task, solution: Solution) -> str:
    """Say which solver a job names, or what was chosen: ``auto: neighbours, 64 nearest neighbours``."""
    table = task.job.solver
    if table.build() is not None:
        return _described(table.model_dump())
    return f"auto: {solver_name(task.solver)}, {solution.plan[0].partition(':')[0]}"


def _described(solver: Mapping[str, object]) -> str:
    """Write a solver as the job names it: ``block-gauss-seidel, iterations 5, block size 1024``."""
    settings = [f"{key.replace('_', ' ')} {value}" for key, value in solver.items() if key != "name"]
    return ", ".join([str(solver["name"]), *settings])
