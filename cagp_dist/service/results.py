"""From a solution to the groups and attributes of a published run."""

import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.calibration.recalibration.sharp import FittedSharp
from cagp_dist.calibration.verification.scores import (
    PointScores,
    Scores,
    of_limits,
    point_scores,
    scores,
)
from cagp_dist.calibration.verification.strata import (
    ROUGHNESS_POINTS,
    Strata,
    by_lag,
    roughness_of,
    strata_of,
)
from cagp_dist.kernels import DEPTH
from cagp_dist.pipeline import Neighbours, Observations, solver_name
from cagp_dist.pipeline.background import Background
from cagp_dist.pipeline.defaults import INTERVAL
from cagp_dist.pipeline.field_solves import SampledMap, Solution, SolveStep
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.in_units import distribution_in_units, field_in_units, moments_of_draws
from cagp_dist.pipeline.labelled_fit import shared_stds, variances_of
from cagp_dist.pipeline.map_cells import MapCells
from cagp_dist.pipeline.map_mean import MeansByLabel
from cagp_dist.pipeline.map_points import MapPoints
from cagp_dist.pipeline.recalibration import Distribution, Distributions
from cagp_dist.pipeline.task import HeldOut, Result
from cagp_dist.predictive import Gaussian
from cagp_dist.predictive.transforms import Identity, transform_of
from cagp_dist.service.events import Clock
from cagp_dist.service.filtered_jobs import state_group_of
from cagp_dist.service.job_fit import FittedPrior, by_name, kernel_keys, numbers_of, prior_numbers
from cagp_dist.service.jobfile.design_table import BlockPoints, FoldPoints
from cagp_dist.service.map_cells import Wanted
from cagp_dist.service.point_roles import Design
from cagp_dist.service.simulated_jobs import Simulated
from cagp_dist.service.task import PreparedJob, bias_kind
from cagp_dist.service.values_as_they_are import flags_said, outliers_said
from cagp_dist.service.variables import of_variable
from cagp_dist.store import schema
from cagp_dist.store import scored_groups as evaluation
from cagp_dist.store.batches import PRELIMINARY
from cagp_dist.store.published_variables import (
    BELOW_LIMITS,
    BIASES,
    INNOVATIONS,
    JOB,
    MISSING,
    PREVIOUS_RUN,
    SCORED,
    STATE,
    TRANSFORM,
    TRANSFORM_OBJECT,
    VARIABLES_OF_RUN,
    kind_of,
    of_another,
)
from cagp_dist.store.rights import rights_of
from cagp_dist.text import without_secrets
from cagp_dist.variables import Variable
from cagp_dist.variables.units import amount, square_of
from cagp_dist.versions import numerical_version, version

# Said of a run as a whole, where it applies
_STATEMENTS = ("computational_statement", "sampling_statement", "recalibration", "recalibration_statement")

_SIMULATED = ("simulation_status", "simulation_statement", "simulations")
_VERSIONS = ("numpy", "scipy", "numba", "dask", "distributed", "xarray", "zarr")


def groups_of(prepared: PreparedJob, result: Result) -> dict[str, xr.Dataset]:
    """Arrange a result for publication; of several variables, groups of scores are there for each."""
    if not prepared.variables:
        return _groups_of_one(prepared, result)
    groups: dict[str, xr.Dataset] = {}
    for label, variable in enumerate(prepared.variables):
        for name, group in _groups_of_one(*of_variable(prepared, result, label)).items():
            if name in (*SCORED, BIASES) and label:  # see `scored_groups`
                groups[of_another(name, variable.name)] = group
            elif name in groups:
                groups[name] = xr.merge(
                    [groups[name], group], compat="override", join="exact", combine_attrs="drop_conflicts"
                )
            else:
                groups[name] = group
    for name, group in groups.items():
        if kind_of(name) not in SCORED:  # arrays of each variable say what they lack
            group.attrs.pop(MISSING, None)
    return groups


def _groups_of_one(prepared: PreparedJob, result: Result) -> dict[str, xr.Dataset]:
    """Arrange the result of one variable."""
    found = _Found(prepared, result)
    points, train = prepared.points, prepared.design.train
    values, outliers, limits = (
        prepared.of_values.values[:, train],
        result.priors.model.outliers,
        points.limits,
    )
    observed = schema.values_group(
        "observations",
        **_placed(prepared, train),
        values=values,
        outlier_probability=None if outliers is None else np.nan_to_num(outliers.probability[:, train]),
        below_limit=None if limits is None else limits[:, train],
    )
    groups = {**_of_test_points(found), "observations": observed}
    if prepared.flags is not None and prepared.flags.checked.count:
        flags = prepared.flags.dataset()
        flags = flags.isel(observation=np.flatnonzero(flags["flag"].values))
        groups["flags"] = schema.flags_group(flags, points.variable, points.space)
    if prepared.design.cells is not None:
        groups |= _of_maps(found, prepared.design.cells)
    if result.solution.state is not None:
        groups[STATE] = state_group_of(prepared, numbers_of(result.priors.model), result.solution.state)
    if prepared.wanted is not None:
        groups["targets"] = _of_places(found, prepared.wanted)
    if prepared.design.regions:
        groups["regions"] = schema.regions_group(
            times=points.times,
            regions=prepared.design.regions,
            mean=found.mean("regions"),
            std=found.std("regions"),
            computational_std=found.unfinished("regions"),
            variable=points.variable,
            resolution_degrees=prepared.job.design.regions_resolution_degrees,
        )
    if prepared.labels:
        kinds = [bias_kind(axis) for axis in prepared.labels]
        groups[BIASES] = schema.biases_group(
            times=points.times,
            labels=prepared.labels,
            bias=np.hstack([found.mean(kind) for kind in kinds]),
            std=np.hstack([found.std(kind) for kind in kinds]),
            variable=points.variable,
        )
    return groups


@dataclass(frozen=True, eq=False)
class _Found:
    """A result of a job."""

    prepared: PreparedJob
    result: Result

    @property
    def solution(self) -> Solution:
        """What was solved."""
        return self.result.solution

    def mean(self, kind: str) -> Array:
        """Mean (T, q) at targets of a kind."""
        return self.solution.mean[:, self.prepared.columns[kind]]

    def std(self, kind: str) -> Array:
        """Latent standard deviation (T, q) at targets of a kind."""
        return self.solution.std[:, self.prepared.columns[kind]]

    def unfinished(self, kind: str) -> Array | None:
        """Give the computational standard deviation (T, q) at targets of a kind, where it is known."""
        found = self.solution.computational_std
        return None if found is None else found[:, self.prepared.columns[kind]]

    def distribution_at(self, kind: str, mean: Array, std: Array, X: Array) -> Distribution | None:
        """Give the distribution of observations (T, q) at points X (q, p) where none was made."""
        if not self.result.has_distributions:
            return None
        drawn = self.solution.of_targets(self.prepared.columns[kind]).drawn
        return self.result.distribution_of(mean, std, MapPoints(X), kind, drawn=drawn)

    def predicted(
        self, kind: str, distribution: Distribution | None, noise_variance: float | Array
    ) -> dict[str, Any]:
        """Give what is predicted (T, q) at targets of a kind, in the unit of the data."""
        mean, std, unfinished = self.mean(kind), self.std(kind), self.unfinished(kind)
        transform = self.prepared.points.transform
        if transform is None:
            return {
                "mean": mean,
                "std": std,
                "computational_std": unfinished,
                "distribution": distribution,
                "noise_variance": noise_variance,
            }
        assert distribution is not None
        own = self.solution.of_targets(self.prepared.columns[kind])
        factor = distribution.correction(std, noise_variance)
        found = field_in_units(own, transform, factor if distribution.recalibrated else None)
        normal = mean if own.quantiles is None and not distribution.recalibrated else None
        measured = None if own.drawn is None else moments_of_draws(own.drawn, transform, noise_variance).std
        zero = None if np.isneginf(transform.end) else found.least
        if unfinished is not None:
            share = np.divide(found.std, std, out=np.zeros(std.shape), where=std > 0.0)
            unfinished = share * unfinished
        return {
            "mean": found.mean,
            "std": found.std,
            "computational_std": unfinished,
            "distribution": distribution_in_units(distribution, transform, normal, measured),
            "median": found.median,
            "probability_zero": zero,
            "transformed": not isinstance(transform, Identity),  # which is that of limits of detection
        }


def _of_test_points(found: _Found) -> dict[str, xr.Dataset]:
    """Arrange what was predicted at test points, its scores, and how these came about."""
    prepared, result, solution = found.prepared, found.result, found.solution
    points, design, distributions = prepared.points, prepared.design, result.distributions
    task, at = result.task, _placed(prepared, design.test)
    assert task.held_out is not None
    assert result.plain is not None
    assert result.scores is not None
    noise = result.priors.noise_of(task.held_out)
    limits = task.held_out.limits
    trace = [_scores(prepared, noise, step, task.held_out) for step in solution.steps[:-1]]
    trace.append(_pooled(result.plain, design.test_weights))
    calibration = evaluation.calibration_group(
        **at,
        pit=result.scores.pit,
        scores=_pooled(result.scores, design.test_weights) if result.corrected else trace[-1],
        area_weight=design.test_weights,
        of_values=result.scores,
        plain=(result.plain, trace[-1]) if result.corrected else None,
        strata=strata_of_test(prepared),
    )
    posterior = schema.prediction_group(
        "posterior",
        **at,
        observed=prepared.of_values.values[:, design.test],
        below_limit=limits,
        **found.predicted("held out", result.of_held_out, noise),
    )
    if prepared.labels:
        by = " and ".join(prepared.labels)
        posterior.attrs["comment"] = f"Of observations: with the errors that those of the same {by} share."
    statement = _computational_statement(posterior, points.variable)
    return {
        "posterior": posterior,
        "calibration": calibration.assign_attrs(
            statement
            | _sampling_statement(solution.sampled)
            | distributions.found.attributes()
            | _limits_statement(limits)
        ),
        "trace": evaluation.trace_group(
            trace,
            seconds=[step.seconds for step in solution.steps],
            iterations=[step.iteration for step in solution.steps],
            variable=points.variable,
        ),
    }


def strata_of_test(prepared: PreparedJob) -> list[Strata]:
    """Divide test points of a job by latitude, surface, and roughness and hours of what is known near by."""
    points, test = prepared.points, prepared.design.test
    found = strata_of(
        points.north[test],
        points.east[test],
        space=points.space,
        roughness=roughness_of_test(prepared.of_values.values, points.positions, prepared.design),
        units=points.variable.units,
    )
    if prepared.seen is None:
        return found
    lags = prepared.seen.lags(points.times, _observed_near(points.positions, prepared.design))
    return [*found, by_lag(lags)]


def _observed_near(X: Array, design: Design) -> Indices:
    """Observed points nearest to each test point (q, r); of folds those of the others alone."""
    from scipy.spatial import cKDTree

    near = np.empty((design.test.size, min(ROUGHNESS_POINTS, design.train.size)), dtype=np.intp)
    for mine, others in _beside(design):
        count = min(near.shape[1], others.size)
        found: Indices = np.asarray(cKDTree(X[others]).query(X[design.test[mine]], k=range(1, count + 1))[1])
        near[mine] = others[found[:, np.minimum(np.arange(near.shape[1]), count - 1)]]
    return near


def _beside(design: Design) -> Iterator[tuple[Mask, Indices]]:
    """Yield test points (q,), and what is observed beside them: of folds the places of the others."""
    if design.folds is None:
        yield np.full(design.test.size, True), design.train
        return
    for fold in range(design.count_folds):
        yield design.folds == fold, design.test[design.folds != fold]


def roughness_of_test(values: Array, X: Array, design: Design) -> Array:
    """Roughness (T, q) at test points by values (T, N) at X; of folds from the others alone."""
    rough = np.empty((len(values), design.test.size))
    for mine, others in _beside(design):
        rough[:, mine] = roughness_of(values[:, others], X[others], X[design.test[mine]])
    return rough


def _placed(prepared: PreparedJob, chosen: Indices) -> dict[str, Any]:
    """Say of what, when and where values at some points are."""
    points = prepared.points
    deep = {} if DEPTH not in points.beside else {"depths": points.beside[DEPTH][chosen]}
    return {
        **deep,
        "depth_units": prepared.depth_units,
        "times": points.times,
        "north": points.north[chosen],
        "east": points.east[chosen],
        "space": points.space,
        "variable": points.variable,
        "names": None if points.names is None else points.names[chosen],
    }


def _of_maps(found: _Found, cells: MapCells) -> dict[str, xr.Dataset]:
    """Arrange the map with error bars, the fine one of the mean if there is one, and draws of its error."""
    prepared, solution, points = found.prepared, found.solution, found.prepared.points
    sampled, fine, spacing = solution.sampled, prepared.design.mean_cells, prepared.spacing
    mean, std = found.mean("cells"), found.std("cells")
    if sampled is not None:
        mean, std = sampled.mean, sampled.std
    distribution = None  # nobody observes a mean over a cell
    if not cells.nodes_per_side(spacing):
        at = cells.X if prepared.depths is None else np.tile(cells.X, (prepared.depths.size, 1))
        distribution = found.distribution_at("cells", mean, std, at)
    said = found.predicted("cells", distribution, found.result.usual_noise)
    if sampled is not None:
        said |= {"mean": mean, "std": std, "computational_std": None}
    fields = partial(_fields, cells, prepared.depths)
    group = _map_group(
        points,
        cells,
        spacing,
        fields,
        said,
        depths=prepared.depths,
        depth_units=prepared.depth_units,
    )
    if sampled is not None:
        group.attrs |= {
            "std_samples": sampled.samples,
            "std_relative_standard_error": sampled.relative_error,
            **_sampling_statement(sampled),
        }
    groups = {"map" if fine is None else "map_std": group}
    if fine is not None and solution.fine_mean is not None:
        groups["map"] = _map_group(points, fine, spacing, fine.fields, {"mean": solution.fine_mean})
    return groups


def _fields(cells: MapCells, depths: Array | None, values: Array) -> Array:
    """Values (T, d q) of cells at d depths as fields (T, d, rows, columns), else (T, rows, columns)."""
    if depths is None:
        return cells.fields(values)
    own = cells.fields(values.reshape(-1, values.shape[-1] // depths.size))
    return own.reshape(-1, depths.size, *cells.shape)


def _map_group(
    points: Observations,
    cells: MapCells,
    spacing: float,
    fields: Callable[[Array], Array],
    said: Mapping[str, Any],
    **others: Any,
) -> xr.Dataset:
    """Arrange a map, of means over its cells where these are asked for."""
    on_grid: dict[str, Any] = {
        name: fields(held) if isinstance(held, np.ndarray) else held for name, held in said.items()
    }
    if (distribution := said.get("distribution")) is not None:
        on_grid["distribution"] = distribution.on_grid(fields)
    group = schema.prediction_group(
        "map",
        times=points.times,
        north=cells.north,
        east=cells.east,
        space=cells.space,
        variable=points.variable,
        **on_grid,
        **others,
    )
    if nodes := cells.nodes_per_side(spacing) ** 2:
        group = schema.means_over_cells(group, points.variable, nodes)
    if cells.blank:
        group.attrs["blank_cells"] = cells.blank
    return group


def _of_places(found: _Found, wanted: Wanted) -> xr.Dataset:
    """Arrange what is predicted at the places of a table."""
    mean, std = found.mean("places"), found.std("places")
    return schema.prediction_group(
        "targets",
        times=found.prepared.points.times,
        north=wanted.north,
        east=wanted.east,
        space=wanted.space,
        **found.predicted(
            "places", found.distribution_at("places", mean, std, wanted.X), found.result.usual_noise
        ),
        variable=found.prepared.points.variable,
        names=wanted.names,
        depths=wanted.depths,
        depth_units=found.prepared.depth_units,
    )


def simulation_group_of(points: Observations, found: Simulated) -> xr.Dataset:
    """Arrange what simulated fields found for publication."""
    group = evaluation.simulation_group(
        north=points.north[found.points],
        east=points.east[found.points],
        space=points.space,
        found=found.calibration,
        area_weight=found.area_weight,
        variable=points.variable,
    )
    asked = found.asked
    return group.assign_attrs(
        simulations=asked.count, simulation_seed=asked.seed, simulated_observations=found.observed
    )


def _computational_statement(posterior: xr.Dataset, variable: Variable) -> dict[str, str]:
    """Say how much of the error bars at the test points is unfinished computation, if that is known."""
    names, units = (f"{variable.name}_std", f"{variable.name}_std_computational"), variable.units
    if names[1] not in posterior:
        return {}
    whole, part = (float(np.sqrt((posterior[name] ** 2).mean())) for name in names)
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


def _scores(prepared: PreparedJob, noise: float | Array, step: SolveStep, held: HeldOut) -> Scores:
    """Score the state of a solve after a step, as if it were normal."""
    test, weights, observed = prepared.design.test, prepared.design.test_weights, held.values
    mean = step.mean[:, : test.size]
    with_noise = np.sqrt(step.std[:, : test.size] ** 2 + noise)
    there = ~np.isnan(observed)
    if (transform := prepared.points.transform) is not None:
        of_values = point_scores(
            Gaussian(mean[there], with_noise[there]), observed[there], transform=transform
        )
        if held.limits is not None:
            of_values = of_limits(of_values, held.limits[there], observed[there] <= transform.end)
        return of_values.pooled(weights=weights[np.nonzero(there)[1]])
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
    prepared: PreparedJob,
    result: Result,
    *,
    groups: Mapping[str, xr.Dataset],
    fitted: FittedPrior | None,
    executor: str,
    clock: Clock,
) -> dict[str, object]:
    """Say where a run comes from and what was found."""
    calibration, solution, model = groups["calibration"], result.solution, result.priors.model
    job, points, cells = prepared.job, prepared.points, prepared.design.cells
    blank = 0 if cells is None else cells.blank
    # as runs of versions that had a choice say it
    estimate: dict[str, object] = {"mean_estimate": "generalised"} if job.prior.estimates_mean else {}
    if job.prior.covariates:
        estimate["covariates"] = list(job.prior.covariates)
    if isinstance(background := model.mean, Background):
        estimate |= {"background": job.prior.background, **background.attributes}
    solver = prepared.solver
    calibrated: str = solver.calibrated
    if prepared.labels and isinstance(solver, Neighbours) and solver.shared_errors == "all":
        calibrated = "approximate"  # bars of shared errors are a few per cent too short at worst (math 25)
    gaps, simulated = prepared.gaps, groups["simulation"].attrs if "simulation" in groups else {}
    attributes: dict[str, object] = {
        JOB: without_secrets(job.text, job.observations.source),
        "status": solution.status.value,
        "status_advice": solution.status.advice,
        "calibration_status": calibration.attrs["calibration_status"],
        "calibration_statement": calibration.attrs["calibration_statement"],
        **{name: said for name, said in calibration.attrs.items() if name in _STATEMENTS},
        **{name: simulated[name] for name in _SIMULATED if name in simulated},
        "solver": _solver_said(prepared, solution),
        "solver_calibrated": calibrated == "exact",
        "solver_calibration": calibrated,
        **({VARIABLES_OF_RUN: [each.name for each in prepared.variables]} if prepared.variables else {}),
        **_noise_said(prepared, result),
        **_cross_validation(prepared, result),
        **_blocks(prepared),
        **({} if gaps is None else {"train_values": gaps.values, "patterns_of_gaps": gaps.patterns}),
        **_sharp(result.distributions),
        **_transform_said(prepared),
        **_limits_said(prepared),
        **outliers_said(model),
        **flags_said(prepared.flags),
        "prior": {**_kernel_said(model), "mean": job.prior.mean, **estimate},
        **({} if result.innovations is None else {INNOVATIONS: result.innovations.attributes()}),
        **({} if prepared.carried is None else {PREVIOUS_RUN: prepared.carried.attributes()}),
        **({} if points.space.has_latitudes else {"geometry": points.space.text, **points.space.said}),
        "train_count": int(prepared.design.train.size),
        "dropped_missing": points.dropped_missing,
        **({PRELIMINARY: prepared.provenance[PRELIMINARY]} if PRELIMINARY in prepared.provenance else {}),
        **({"map_cells_blank": blank} if blank else {}),
        "merged_pole_copies": points.merged_pole_copies,
        "plan": list(solution.plan),
        "timings": {name: round(spent, 3) for name, spent in clock.seconds.items()},
        "work": {name: work.counts() for name, work in clock.work.items() if work.tasks},
        "executor": executor,
        "provenance": {
            **prepared.provenance,
            "cagp_dist": version("cagp-dist"),
            "numerical_version": numerical_version(),
            "python": platform.python_version(),
            **{name: version(name) for name in _VERSIONS},
        },
    }
    if fitted is None:
        return attributes
    return {
        **attributes,
        "fit": {**fitted.attributes(), "hyperparameters": model.numbers, **_intervals(model)},
    }


def _transform_said(prepared: PreparedJob) -> dict[str, object]:
    """Say by what the values were transformed, and of what the numbers are then."""
    transform = prepared.points.transform
    if transform is None:
        return {}
    written = repr(transform)
    if isinstance(transform, Identity):  # with limits of detection
        return {TRANSFORM_OBJECT: written}
    return {
        TRANSFORM: transform.text,
        "transform_comment": "Kernel and noise are those of the transformed values; means, standard "
        "deviations, quantiles and scores are those of the values.",
        **({TRANSFORM_OBJECT: written} if transform_of(written) == transform else {}),
    }


def _limits_said(prepared: PreparedJob) -> dict[str, object]:
    """Say how many of the values that are observed are limits of detection."""
    limits = prepared.points.limits
    return {} if limits is None else {BELOW_LIMITS: int(limits[:, prepared.design.train].sum())}


def _limits_statement(limits: Mask | None) -> dict[str, str]:
    """Say which scores count limits of detection, where some were held out."""
    if limits is None or not limits.any():
        return {}
    return {
        "limits_statement": "rmse, crps and nll are of the values that were measured, which lie higher than "
        "all; coverage and pit count limits of detection, too."
    }


def _intervals(model: FittedModel) -> dict[str, object]:
    """Give the intervals of numbers that are integrated over."""
    if not model.averages:
        return {}
    low, high = INTERVAL
    return {
        "integrated_intervals": dict(model.intervals),
        "integrated_level": high - low,
    }


def self_contained(
    groups: Mapping[str, xr.Dataset],
    attributes: Mapping[str, object],
    points: Observations,
    *,
    source: str,
    run_key: str,
) -> dict[str, xr.Dataset]:
    """Give each group what the root says of origin, rights and noise, so that it can stand alone."""
    units, software = points.variable.units, f"cagp_dist {version('cagp-dist')}"
    rights = rights_of(source, points.times)
    said = {
        "history": f"created by {software}: run {run_key}",
        "source": f"Gaussian-process regression ({software}) of observations from {source}",
        "license": rights.license,
        "acknowledgement": rights.attribution,
        **({name: noise} if (noise := attributes.get(name := "noise_variance")) is not None else {}),
        **({"noise_variance_units": square_of(units)} if units and TRANSFORM not in attributes else {}),
        **{name: attributes[name] for name in (TRANSFORM, TRANSFORM_OBJECT) if name in attributes},
    }
    return {name: group.assign_attrs(said) for name, group in groups.items()}


def _kernel_said(model: FittedModel) -> dict[str, object]:
    """Give the kernel with its numbers, as a job would; of several variables, how they go together."""
    if (known := model.correlations) is None:
        prior = numbers_of(model)
        biases = {"bias_std": [*model.bias_std.values()]} if model.bias_std else {}
        return {**kernel_keys(prior.kernel), **by_name(prior, prior_numbers(prior)), **biases}
    assert isinstance(model.mean, MeansByLabel)
    names = model.mean.names
    variances, _ = variances_of(model.kernel, len(names))
    said: dict[str, object] = {
        name: value if np.isfinite(value) else None for name, value in known.attributes(names).items()
    }
    stds = dict(zip(names, np.sqrt(variances).tolist(), strict=True))
    if shared := shared_stds(model.kernel, len(names)).values():
        said["bias_std"] = {name: [float(own[at]) for own in shared] for at, name in enumerate(names)}
    return {"kernel": repr(model.kernel), "lengthscale": [*model.lengthscales], "prior_std": stds, **said}


def _noise_said(prepared: PreparedJob, result: Result) -> dict[str, object]:
    """Give the usual noise of an observation, of several variables of each, and what is known of errors."""
    if prepared.variables:
        of_each = [of_variable(prepared, result, label)[1] for label in range(len(prepared.variables))]
        noise = {
            variable.name: own.usual_noise for variable, own in zip(prepared.variables, of_each, strict=True)
        }
        return {"noise_variances": noise}
    points = prepared.points
    if points.noise_variance is None:
        return {"noise_variance": result.usual_noise}
    std = np.sqrt(points.noise_variance)
    known = {"smallest": float(std.min()), "largest": float(std.max())}
    return {"noise_variance": result.usual_noise, "known_noise_std": known}


def _sharp(distributions: Distributions) -> dict[str, object]:
    """Give the lengthscales of the quantiles of a sharp GP, as multiples of those of the prior, and beta."""
    fitted = distributions.everywhere
    if not isinstance(fitted, FittedSharp):
        return {}
    return {
        "sharp": {
            "levels": fitted.levels.tolist(),
            "beta": fitted.beta.tolist(),
            "lengthscale_factors": np.exp(-fitted.stretches[:, 0]).tolist(),
        }
    }


def _cross_validation(prepared: PreparedJob, result: Result) -> dict[str, object]:
    """Say which part the folds of a cross-validation have in the numbers that predict them."""
    wanted = prepared.job.design.test
    if not isinstance(wanted, FoldPoints):
        return {}
    assert prepared.design.in_folds is not None
    space, height = prepared.points.space, prepared.design.in_folds.blocks
    said = (
        f"{prepared.design.count_folds} folds: each observed place was predicted from the other folds, with "
        "the prior mean fitted to them"
    )
    if prepared.job.prior.numbers is not None:
        said += "."
    elif prepared.fit_points is not None:
        said += ", kernel and noise to other times."
    elif prepared.job.prior.fit_to == "field":
        said += ", kernel and noise to the whole field."
    elif result.priors.fits_of_folds == prepared.design.count_folds:
        said += ", kernel and noise too."
    else:
        said += ", kernel and noise to the half of all folds without its own."
    usual = wanted.blocks_degrees if space.has_latitudes else height
    if height != usual:
        said += f" Blocks are {height:g} degrees high: there are too few of {usual:g}."
    return {"cross_validation": said}


def _blocks(prepared: PreparedJob) -> dict[str, object]:
    """Say how far test points that were chosen by blocks are from what was observed."""
    from scipy.spatial import cKDTree

    wanted = prepared.job.design.test
    if not isinstance(wanted, BlockPoints):
        return {}
    space = prepared.points.space
    X, design = prepared.points.positions, prepared.design
    apart = space.distances(np.asarray(cKDTree(X[design.train]).query(X[design.test])[0]))
    margin = f", and {wanted.around:g} around them," if wanted.around else ""
    unit = space.distance_attributes.get("units", "")
    said = (
        f"Test points lie in blocks {wanted.size:g} {space.unit} high in which{margin} nothing was "
        f"observed: half of them are {np.median(apart):,.0f} {unit} or more from the nearest observed "
        f"point, all of them at least {apart.min():,.0f} {unit}."
    )
    return {"held_out_blocks": said}


def _solver_said(prepared: PreparedJob, solution: Solution) -> str:
    """Say which solver a job names, or what was chosen: ``auto: neighbours, 64 nearest neighbours``."""
    table = prepared.job.solver
    if table.build() is None:
        return f"auto: {solver_name(prepared.solver)}, {solution.plan[0].partition(':')[0]}"
    settings = table.model_dump(exclude={"name"}).items()
    return ", ".join([table.name, *(f"{key.replace('_', ' ')} {value}" for key, value in settings)])
