"""When the workers of a job are asked for, and the plan that they are shown."""

from contextlib import contextmanager

import pytest

from cagp_dist.errors import BudgetError, ClusterError
from cagp_dist.runtime import SerialExecutor
from cagp_dist.runtime import dask as runtime_dask
from cagp_dist.runtime.schedulers import SCHEDULERS, Scheduler
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.plan import plan_job
from cagp_dist.service.run import fit, run
from cagp_dist.service.workers import workers_of

from ..jobs import job_text, random_points


def job(root, *, scheduler="serial", **cluster):
    text = job_text(
        observations={"source": "synthetic", "grid_degrees": 15.0, "times": ["2020-01-01", "2020-01-02"]},
        design={"train": random_points(220), "test": random_points(20, seed=1)},
        prior={"lengthscale": 0.3, "variance": 22.0, "noise_variance": 0.5},
        solver={"name": "conjugate-gradient", "iterations": 3},
        cluster={"scheduler": scheduler, **cluster},
        output={"root": root},
    )
    return parse_job(text)


@pytest.mark.cluster
@pytest.mark.parametrize("do", [run, fit])
def test_a_dead_scheduler_is_found_out_before_anything_is_read_or_written(do, tmp_path, monkeypatch):
    monkeypatch.setattr(runtime_dask, "CONNECT_SECONDS", 0.5)
    events = []
    with pytest.raises(ClusterError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:1 "):
        do(job(tmp_path / "out", scheduler="tcp://127.0.0.1:1"), observe=events.append)
    assert events == []
    assert not (tmp_path / "out").exists()


@contextmanager
def counted(opened):
    opened.append("asked")
    yield SerialExecutor()
    opened.append("given back")


@pytest.mark.parametrize("batch", [True, False])
def test_jobs_of_a_batch_system_are_asked_for_when_there_is_work(batch, tmp_path, monkeypatch):
    opened = []
    monkeypatch.setitem(SCHEDULERS, "slurm", Scheduler(lambda *settings: counted(opened), batch=batch))
    with workers_of(job(tmp_path, scheduler="slurm")) as executor:
        assert opened == ([] if batch else ["asked"])
        assert executor() is executor()
        assert opened == ["asked"]
    assert opened == ["asked", "given back"]


def test_a_job_that_is_done_asks_for_no_worker_jobs(tmp_path, monkeypatch):
    assert not run(job(tmp_path)).already_done
    opened = []
    monkeypatch.setitem(SCHEDULERS, "slurm", Scheduler(lambda *settings: counted(opened), batch=True))
    assert run(job(tmp_path, scheduler="slurm")).already_done
    assert opened == []


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
    notes = [event.text for event in events if (event.stage, event.kind) == ("Solve", "note")]
    assert notes == [
        "on serial",
        *plans[0].lines(),
        "2 such solves, one for each time: the solver follows the values",
    ]


@pytest.mark.parametrize("do", [plan_job, run])
def test_a_job_that_does_not_fit_is_told_which_keys_to_change(do, tmp_path):
    tight = job(tmp_path, memory_limit="1MiB")
    wide = tight.model_copy(update={"solver": tight.solver.model_copy(update={"iterations": 2000})})
    with pytest.raises(BudgetError) as caught:
        do(wide)
    assert str(caught.value).endswith(
        "more than the 1 MiB that may be used. Raise [cluster] memory_limit, or lower [solver] iterations."
    )
