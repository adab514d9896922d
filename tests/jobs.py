"""Job files for tests: a small one, and whatever tables a test writes otherwise."""

import json
from collections.abc import Mapping
from pathlib import Path

import cagp_dist as cagp
from cagp_dist.calibration.recalibration.methods import SHARP
from cagp_dist.pipeline.field_solves import Execution
from cagp_dist.pipeline.map_mean import mean_of_all
from cagp_dist.pipeline.solve_task import solve_task
from cagp_dist.pipeline.steps import fit
from cagp_dist.runtime import SerialExecutor
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.jobfile.job import Job
from cagp_dist.service.sharp_jobs import sharpened

TABLES: dict[str, Mapping[str, object] | None] = {
    "observations": {"source": "sample"},
    "observations.synthetic": None,
    "design": {
        "train": {"kind": "random", "count": 300, "seed": 0},
        "test": {"kind": "random", "count": 40, "seed": 1},
    },
    "prior": {"lengthscale": 0.2, "variance": 60.0, "noise_variance": 2.0},
    "solver": {"name": "block-gauss-seidel", "iterations": 2, "block_size": 100},
    "cluster": {"scheduler": "serial"},
}


def job_text(**tables: Mapping[str, object] | None) -> str:
    """Write a job file, with these tables in place of those of `TABLES`; None leaves a table out.

    Tables and keys stand one to a line in the order given, so that a test may also replace text.
    """
    chosen = {**TABLES, **tables}
    return "\n".join(
        "\n".join([f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in table.items()), ""])
        for name, table in chosen.items()
        if table is not None
    )


def job_of(settings: Mapping[str, Mapping[str, object]], tables: Mapping[str, object]) -> Job:
    """Parse a job of usual settings, with those of the tables that are given in their place."""
    given = {name: tables[name] for name in tables if name not in settings}
    usual = {name: {**held, **tables.get(name, {})} for name, held in settings.items()}
    return parse_job(job_text(**usual, **given))


def random_points(count: int, *, seed: int = 0, weight: str | None = None) -> dict[str, object]:
    """Points drawn at random, for ``train`` or ``test``.

    With weight "equal" many of them are near the poles, where a coarse grid has neighbours close enough to
    tell noise from field: fits need them.
    """
    drawn: dict[str, object] = {"kind": "random", "count": count, "seed": seed}
    return drawn if weight is None else {**drawn, "weight": weight}


def map_grid(resolution_degrees: float) -> dict[str, object]:
    """Cells of a map."""
    return {"kind": "grid", "resolution_degrees": resolution_degrees}


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)


def result_of(prepared, *, executor=None, like=None):
    """Do what a run does with a job that is prepared; with priors and solution of another, if given."""
    execution, learn, done = Execution(executor or SerialExecutor()), None, {}
    if prepared.recalibration.method == SHARP:

        def learn(task, priors, errors):
            return sharpened(prepared, priors.model, errors, execution)

    if like is not None:
        done = {"fits of folds": like.priors.of_folds, "solve": like.solution}

    def step(name, do, about):
        return done[name] if name in done else do(execution)

    model = fit(prepared.task, execution) if like is None else like.priors.model
    return solve_task(prepared.task, model, step, learn=learn)


def mean_of(prepared):
    """The mean of a prepared job, fitted to what it observes, or its basis."""
    return mean_of_all(prepared.mean, prepared.points, prepared.design.train)


def numbers_given(prepared):
    """Kernel, noise and mean of a job that gives its numbers."""
    numbers = prepared.job.prior.numbers
    return cagp.Prior(prepared.task.model.kernel, numbers.noise_variance, mean_of(prepared))
