"""When the workers of a job are asked for, and the plan that they are shown."""

import sys
from contextlib import contextmanager

import pytest

from cagp_dist.errors import BudgetError, ClusterError, ConfigurationError
from cagp_dist.runtime import SerialExecutor
from cagp_dist.runtime import dask as runtime_dask
from cagp_dist.runtime.schedulers import SCHEDULERS, Scheduler
from cagp_dist.service.job_plan import plan_job
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.jobfile.solver_table import SOLVER_TABLES
from cagp_dist.service.run import fit_job, run
from cagp_dist.service.workers import workers_of
from cagp_dist.solvers.registry import SOLVERS

from ..jobs import job_text, random_points


def notes_of_the_solve(events):
    """What was said about the solve, but for the compilation that a cold cache needs."""
    notes = [event.text for event in events if (event.stage, event.kind) == ("Solve", "note")]
    return [note for note in notes if not note.startswith("compiling functions")]


def job(root, *, scheduler="serial", **cluster):
    text = job_text(
        observations={"source": "synthetic", "grid_degrees": 15.0, "times": ["2020-01-01", "2020-01-02"]},
        design={"train": random_points(220), "test": random_points(20, seed=1)},
        prior={
            "lengthscale": 0.3,
            "variance": 22.0,
            "noise_variance": 0.5,
        },
        solver={"name": "conjugate-gradient", "iterations": 3},
        cluster={"scheduler": scheduler, **cluster},
        output={"root": root},
    )
    return parse_job(text)


@pytest.mark.cluster
@pytest.mark.parametrize("do", [run, fit_job])
def test_a_dead_scheduler_is_found_out_before_anything_is_read_or_written(do, tmp_path, monkeypatch):
    monkeypatch.setattr(runtime_dask, "CONNECT_SECONDS", 0.5)
    events = []
    with pytest.raises(ClusterError) as refusal:
        do(job(tmp_path / "out", scheduler="tcp://127.0.0.1:1"), observe=events.append)
    assert refusal.value.key == "no-scheduler"
    assert events == []
    assert not (tmp_path / "out").exists()


@contextmanager
def counted(opened):
    opened.append("asked")
    yield SerialExecutor()
    opened.append("given back")


@pytest.fixture
def asked(monkeypatch):
    """What a scheduler was asked, in order."""
    said = []
    scheduler = Scheduler(
        lambda name, **_: counted(said), check=lambda name, insecure: said.append(f"check {name}")
    )
    monkeypatch.setitem(SCHEDULERS, "pbs", scheduler)
    return said


def test_a_scheduler_is_checked_first_and_its_workers_are_asked_for_when_there_is_work(tmp_path, asked):
    asking = job(tmp_path, scheduler="pbs")
    with workers_of(asking.cluster, asking.runtime.deadlines()) as executor:
        assert asked == ["check pbs"]
        assert executor() is executor()
    assert asked == ["check pbs", "asked", "given back"]


def test_a_job_that_is_done_asks_for_no_workers(tmp_path, asked):
    assert not run(job(tmp_path)).already_done
    assert run(job(tmp_path, scheduler="pbs")).already_done
    assert asked == ["check pbs"]


@pytest.mark.parametrize("do", [run, fit_job])
def test_a_batch_system_without_its_extra_is_found_out_first(do, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "dask_jobqueue", None)
    with pytest.raises(ConfigurationError) as refusal:
        do(job(tmp_path / "out", scheduler="slurm"))
    assert refusal.value.key == "no-package"
    assert not (tmp_path / "out").exists()


def test_the_plan_that_is_shown_is_made_once_and_carried_out(tmp_path, monkeypatch):
    """The solver plans once for each of the two times; nothing plans beside it."""
    from cagp_dist.solvers import ConjugateGradient

    plans, plan = [], ConjugateGradient.plan
    monkeypatch.setattr(
        ConjugateGradient, "plan", lambda self, demand: plans.append(plan(self, demand)) or plans[-1]
    )
    events = []
    run(job(tmp_path), observe=events.append)
    assert len(plans) == 2
    found = notes_of_the_solve(events)
    disk = found[-3]
    # two columns ride along with the field for the coefficient of its mean
    first = plans[0].lines()[0].replace("3 fields", "1 field")
    assert found[:2] == ["on serial", first]
    assert found[-2] == "2 such solves, one for each time: the solver follows the values"
    assert found[-1].startswith("in all ")
    assert disk.startswith("disk: about ")


class SolvedError(Exception):
    """Ends a job before its scores and its publication, which take most of the time of a small one."""


PLANNED = {(kind.plan, kind.__bases__): name for name, kind in reversed(SOLVERS.items())}
"""One solver for each way to make a plan, which solvers of a family share."""
EVERY_PLAN = [
    pytest.param(name, marks=() if name in PLANNED.values() else pytest.mark.exhaustive) for name in SOLVERS
]


@pytest.mark.parametrize("name", EVERY_PLAN)
def test_cagp_plan_foretells_the_plan_of_the_run_for_every_solver(name, tmp_path):
    keys = SOLVER_TABLES[name].model_fields
    settings = {key: field.examples[0] for key, field in keys.items() if field.examples}
    settings.pop("computational_share", None)  # which may not be reached within two iterations
    settings |= {"block_size": 64} if "block_size" in keys else {}
    settings |= {"iterations": 2} if "iterations" in keys else {}
    text = job_text(
        observations={"source": "synthetic", "grid_degrees": 15.0, "times": ["2020-01-01", "2020-01-02"]},
        design={"train": {"kind": "all"}, "test": random_points(20, seed=1)},
        prior={"lengthscale": 0.3, "variance": 22.0, "noise_variance": 5.0},
        solver={"name": name, **settings},
        cluster={"scheduler": "serial", "memory_limit": "1GiB"},
        output={"root": tmp_path},
    )
    events = []

    def until_it_is_solved(event):
        events.append(event)
        if (event.stage, event.kind) == ("Solve", "done"):
            raise SolvedError

    foretold = plan_job(parse_job(text)).lines()
    with pytest.raises(SolvedError):
        run(parse_job(text), observe=until_it_is_solved)
    assert notes_of_the_solve(events) == ["on serial", *foretold]


@pytest.mark.parametrize("do", [plan_job, run])
def test_a_job_that_does_not_fit_is_told_which_keys_to_change(do, tmp_path):
    tight = job(tmp_path, memory_limit="1MiB")
    wide = tight.model_copy(update={"solver": tight.solver.model_copy(update={"iterations": 2000})})
    with pytest.raises(BudgetError) as caught:
        do(wide)
    assert str(caught.value).endswith(
        "more than the 1 MiB that may be used. Raise [cluster] memory_limit, or lower [solver] iterations."
    )
