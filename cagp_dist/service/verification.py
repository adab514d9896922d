"""What a published run is checked for: its files, its values, and some of its points by another solve."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from cagp_dist.arrays import Array, Indices
from cagp_dist.errors import ConfigurationError, DataError, StoreError
from cagp_dist.pipeline import NAMES, Neighbours
from cagp_dist.pipeline.field_solves import Execution
from cagp_dist.pipeline.in_units import field_in_units
from cagp_dist.pipeline.map_points import Targets
from cagp_dist.pipeline.steps import fit, predict
from cagp_dist.predictive.transforms import transform_of
from cagp_dist.runtime import open_executor
from cagp_dist.service.filtered_jobs import check_goes_on
from cagp_dist.service.ingest import peek
from cagp_dist.service.job_fit import HOURS, OF_DEPTH
from cagp_dist.service.jobfile import values
from cagp_dist.service.jobfile.config import changed, parse_job, with_listed_times
from cagp_dist.service.jobfile.job import Job
from cagp_dist.service.task import PreparedJob, prepare_job
from cagp_dist.store.earlier import run_at
from cagp_dist.store.group_dataset import check_group
from cagp_dist.store.publish import verify_files
from cagp_dist.store.published_variables import JOB, PREVIOUS_RUN, STATE, TRANSFORM, TRANSFORM_OBJECT
from cagp_dist.store.zarr_arrays import content_sha256, read_group
from cagp_dist.text import without_secrets

_AXES = ("latitude", "longitude", "y", "x")
TOLERANCE = 1e-6  # Of the standard deviation of the prior: what a solve on another machine may differ by


class NotSolvedAgainError(ConfigurationError):
    """What a run was made from is not there as it was, so that there is nothing to compare it with."""

    def __init__(self, run: Path, why: object) -> None:
        super().__init__(f"{run} is not solved again: {why}")


def verify_run(run: Path) -> Path:
    """Check a published run: every file, that no chunk is missing, and that the values are plausible."""
    verify_files(run)
    for path in sorted(run.glob("*/zarr.json")):
        check_group(path.parent.name, read_group(run, path.parent.name))
    return run


def solve_again(run: Path, *, points: int, seed: int = 0) -> float:
    """Predict some test points of a run once more, from its job and its observations, and compare."""
    attributes, posterior = read_group(run).attrs, read_group(run, "posterior")
    job = _job_of(run, attributes, posterior)
    prepared = _prepared(run, job, attributes)
    if job.prior.numbers is None:  # they are in the attributes of every run
        raise StoreError(
            f"{run} does not say the numbers of its prior; it was written by another program.",
            key="not-of-package",
        )
    part, carried = prepared.task, prepared.carried is not None
    test = np.arange(prepared.design.test.size)
    if (folds := prepared.design.folds) is not None:
        part, test = part.without([0]), test[folds == 0]
    drawn = np.sort(np.random.default_rng(seed).choice(test.size, size=min(points, test.size), replace=False))
    places = test[drawn]
    # a solve by neighbours depends on all targets, which share them, and costs little more for these
    together = isinstance(prepared.solver, Neighbours) or carried or prepared.seen is not None
    targets = Targets(part.targets.points, part.targets.kinds)  # maps that have no column are left out
    if not together:
        targets = Targets(part.targets.points.part(drawn))
    with open_executor("local") as executor:
        execution = Execution(executor)
        model = fit(part, execution)
        check_goes_on(prepared, model)
        solution = predict(replace(part, targets=targets), model, execution)
    name, last = prepared.points.variable.name, solution.steps[-1]
    scale = float(np.sqrt(model.kernel.variance))
    mean, std = last.mean, last.std
    if (transform := prepared.points.transform) is not None:
        in_units = field_in_units(solution, transform)
        mean, std, scale = in_units.mean, in_units.std, float(np.nanstd(prepared.of_values.values))
    mean, std = (each[:, : test.size][:, drawn if together else slice(None)] for each in (mean, std))
    if transform is None and attributes.get("recalibration", "none") != "none":
        held = part.held_out
        assert held is not None
        noise = model.noise_of(model.known_of(held.known_noise, held.labels))
        plain = np.sqrt(std**2 + (noise[drawn] if noise.ndim else noise))
        std = std * _correction(posterior, name, places, plain)
    largest = 0.0
    for said, found in ((f"{name}_mean", mean), (f"{name}_std", std)):
        # a standard deviation that all times share has no axis of them
        published = np.broadcast_to(np.atleast_2d(posterior[said].values)[:, places], found.shape)
        differences = np.abs(published - found).max(axis=0) / scale
        worst = int(np.argmax(differences))
        if not differences[worst] <= TOLERANCE:
            there = posterior.isel(point=places[worst])
            where = ", ".join(f"{name} {float(there[name]):g}" for name in there.coords if name in _AXES)
            raise StoreError(
                f"{said} of {run} at {where} differs from another solve by {differences[worst]:.2g} standard "
                f"deviations of the {'prior' if transform is None else 'values'}; expected {TOLERANCE:g} at "
                "most. The run is not that of its job: "
                "do the job again with another output root, and compare.",
                key="differs",
            )
        largest = max(largest, float(differences[worst]))
    return largest


def _correction(posterior: xr.Dataset, name: str, places: Indices, plain: Array) -> Array:
    """Factor (T, k) by which a recalibration multiplied error bars, with the plain ones of observations.

    The errors that it was learned from are not predicted again. It is what the published standard deviations
    of observations say; of a local scale, which the run has, that says only by how much all are multiplied.
    """
    by = np.atleast_2d(posterior[f"{name}_predictive_std"].values)[:, places] / plain
    if "local_scale" not in posterior:
        return np.asarray(by)
    scale = np.atleast_2d(posterior["local_scale"].values)[:, places]
    return np.asarray(scale * np.median(by / scale))


def _job_of(run: Path, attributes: dict[str, Any], posterior: xr.Dataset) -> Job:
    """Job of a run, at the times and with the numbers of the prior that it came to."""
    try:
        job = parse_job(str(attributes[JOB]), name="its job")
    except ConfigurationError as error:  # of an earlier version, with what has been removed since
        raise NotSolvedAgainError(run, error) from error
    if len(job.observations.variables) > 1:
        raise NotSolvedAgainError(run, "the numbers of several variables are none that a job can give.")
    said = json.loads(attributes["prior"])
    if "integrated_intervals" in json.loads(attributes.get("fit", "{}")):
        raise NotSolvedAgainError(run, "its numbers are integrated over.")
    if attributes.get("flagged"):
        raise NotSolvedAgainError(run, "values that all others contradict were left out.")
    if attributes.get("outlier_share"):
        raise NotSolvedAgainError(run, "values that look wrong count less.")
    fitted = job.prior.numbers is None and job.prior.fit_to == "observed" and job.prior.fit_times is None
    if fitted and job.design.test.kind == "folds":
        raise NotSolvedAgainError(run, "each of its folds has a fitted prior of its own.")
    if isinstance(said.get("background_std"), str):  # such as a spread, of which its variance is a multiple
        raise NotSolvedAgainError(run, "the standard deviation of the error of its background is a field.")
    names = (*NAMES, *(name for name in (HOURS, OF_DEPTH) if name in said))
    numbers = {name: tuple(said[name]) if isinstance(said[name], list) else said[name] for name in names}
    numbers |= {key: said[key] for key in ("kernel", "time_kernel", "depth_kernel") if key in said}
    if "anisotropy" in said:
        numbers["anisotropy"] = values.anisotropy(said["anisotropy"])
    if "bias_std" in said:
        numbers["bias_std"] = tuple(said["bias_std"])
    if "time" in posterior.coords:
        job = with_listed_times(job, posterior["time"].values)
    # a number as background_std is the root of the variance
    known = changed(job, "prior", **numbers, fit_times=None, outliers="keep", background_std=None)
    return changed(known, "output", root=str(run.parents[1]))


def _prepared(run: Path, job: Job, attributes: dict[str, Any]) -> PreparedJob:
    try:
        field = peek(job)
    except (ConfigurationError, DataError) as error:
        raise NotSolvedAgainError(run, error) from error
    if field is None:
        raise NotSolvedAgainError(run, f"its observations are not in {run.parents[1] / 'observations'}.")
    key, made_from = "content_sha256", json.loads(attributes["provenance"])
    if content_sha256(field) != made_from[key]:
        source = without_secrets(job.observations.source)
        raise NotSolvedAgainError(run, f"{source} holds other observations than those that it was made from.")
    named = json.loads(attributes.get(PREVIOUS_RUN, "{}")).get("run")
    before = None if named is None else run.with_name(f"{named}.zarr")
    before_it = f"the previous run, {named}, whose posterior is its mean"
    try:
        found = [] if before is None else [run_at(before, STATE)]
        prepared = prepare_job(job, field, earlier=lambda *_, **__: filter(None, found))
    except (ConfigurationError, DataError) as error:
        raise NotSolvedAgainError(run, error) from error
    except StoreError as error:
        if before is None or before.is_dir():
            raise
        raise NotSolvedAgainError(run, f"{before_it}, is not there.") from error
    if getattr(prepared.solver, "computational_share", None) is not None:
        why = "its computational_share chose the iterations for all points together."
        raise NotSolvedAgainError(run, why)
    read = {
        "previous": f"{before_it},",
        "background": "its background",
        "covariates": "one of its covariates",
        "climatology": "its climatology",
    }
    if isinstance(prepared.solver, Neighbours):  # which solves all targets together
        read["targets"] = "its table of targets"
    if "fit_content_sha256" in made_from:
        del read["background"]  # whose digest is of the times of the fit, too
    for name, what in read.items():
        key = f"{name}_sha256"
        if prepared.provenance.get(key) != made_from.get(key):
            raise NotSolvedAgainError(run, f"{what} was replaced.")
    if not {TRANSFORM, TRANSFORM_OBJECT} & {*attributes}:
        return prepared
    if attributes.get("recalibration", "none") != "none":
        why = "its means and error bars are those of transformed values whose error bars were corrected."
        raise NotSolvedAgainError(run, why)
    transform = transform_of(str(attributes.get(TRANSFORM_OBJECT)))
    if transform is None:
        raise NotSolvedAgainError(run, "it does not say by what its values were transformed.")
    return prepared.transformed(transform)
