"""Jobs whose cluster is lost on the way: they go on with the workers that come back, or say what happened."""

import time

import numpy as np
import pytest
import xarray as xr
from distributed import Client, LocalCluster

from cagp_dist.cli import app
from cagp_dist.errors import BudgetError, ClusterError, ClusterLostError, ConfigurationError, TimeLimitError
from cagp_dist.runtime import SerialExecutor
from cagp_dist.runtime import dask as runtime_dask
from cagp_dist.runtime.deadlines import Deadlines
from cagp_dist.service.jobfile.config import parse_job, with_runtime
from cagp_dist.service.run import run
from cagp_dist.service.workers import workers_of
from cagp_dist.store.zarr_arrays import read_group

from ..clusters import wait_until
from ..jobs import job_text, random_points


def job(root, scheduler="serial", *, seed=0, **runtime):
    return parse_job(
        job_text(
            observations={"source": "synthetic", "grid_degrees": 15.0, "times": ["2020-01-01"]},
            design={"train": random_points(220, seed=seed), "test": random_points(20, seed=1)},
            cluster={"scheduler": scheduler},
            runtime={"silence_seconds": 20, **runtime},
            output={"root": root},
        )
    )


def workers_for(job):
    return workers_of(job.cluster, job.runtime.deadlines())


@pytest.mark.cluster
def test_a_job_is_done_on_a_cluster_that_is_given(tmp_path):
    with LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as cluster:
        found = run(job(tmp_path / "dask"), executor=cluster)
        assert found.path.name == run(job(tmp_path / "serial")).path.name
        assert cluster.status.name == "running"
    about = read_group(found.path, "").attrs
    assert cluster.scheduler_address in str(about)


@pytest.mark.exhaustive
@pytest.mark.cluster
def test_a_job_that_workers_hold_neither_in_memory_nor_on_disks_is_named_at_once(tmp_path, monkeypatch):
    """It would take a gibibyte, of workers that have half of one, with a disk behind them that is full."""
    monkeypatch.setattr(runtime_dask, "free_bytes", lambda disks: 0)
    text = job_text(
        observations={"source": "synthetic", "grid_degrees": 2.0, "times": ["2020-01-01"]},
        design={"train": random_points(12_000), "test": random_points(2_000, seed=1)},
        solver={"name": "cholesky"},
        output={"root": tmp_path / "out"},
    )
    with LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=":0", memory_limit="1GiB"
    ) as small:
        with pytest.raises(BudgetError) as refusal:
            run(parse_job(text), executor=small)
        assert refusal.value.key == "memory"
    assert not (tmp_path / "out" / "CURRENT").exists()


@pytest.mark.exhaustive
@pytest.mark.cluster
def test_a_hundred_jobs_leave_a_cluster_as_it_was(tmp_path):
    """Each is the one of this process to the bit; no task, key or client of it stays on the scheduler."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):

        def held():
            return client.run_on_scheduler(
                lambda dask_scheduler: (len(dask_scheduler.tasks), len(dask_scheduler.clients))
            )

        clients = held()[1]
        for number in range(100):
            found = run(job(tmp_path / "dask", seed=number), executor=client)
            if number % 33 == 0:
                alone = run(job(tmp_path / "serial", seed=number))
                for group in ("posterior", "calibration"):
                    there, here = (read_group(each.path, group) for each in (found, alone))
                    xr.testing.assert_identical(there, here)
        wait_until(lambda: held()[0] == 0)  # what is released is forgotten a moment later
        assert held()[1] == clients
        assert len(cluster.scheduler_info["workers"]) == 2
    assert len([*(tmp_path / "dask" / "runs").glob("*.zarr")]) == 100


@pytest.mark.exhaustive
@pytest.mark.cluster
def test_new_workers_do_the_job_when_all_old_ones_are_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(runtime_dask, "WATCH_SECONDS", 0.2)
    said = []
    with LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=":0"
    ) as cluster:

        def replace_all(event):
            said.append(event.text)
            if event.text == "iteration 1 of 2" and said.count(event.text) == 1:
                cluster.scale(0)
                while cluster.scheduler.workers:
                    time.sleep(0.02)
                cluster.scale(1)

        found = run(job(tmp_path / "dask", cluster.scheduler_address), observe=replace_all)
    assert any(text.startswith("attempt 1 of 3 ended: all workers") for text in said)
    expected = run(job(tmp_path / "serial"))
    assert found.path.name == expected.path.name, "patience and attempts have no part in the key of a run"
    for name in ("t2m_mean", "t2m_std"):
        ours, theirs = (read_group(outcome.path, "posterior")[name] for outcome in (found, expected))
        np.testing.assert_array_equal(ours, theirs)


def test_attempts_are_bounded_and_the_last_error_says_how_many_there_were(tmp_path):
    tried, said = [], []

    def lose(executor):
        tried.append(type(executor))
        raise ClusterLostError("the cluster fell over. Stand it up.")

    with (
        workers_for(job(tmp_path, attempts=2)) as workers,
        pytest.raises(ClusterError, match=r"^Tried 2 times, at last: the cluster fell over\. "),
    ):
        workers.attempt(lose, said.append)
    assert tried == [SerialExecutor] * 2
    assert said == ["attempt 1 of 2 ended: the cluster fell over. Stand it up."]


@pytest.mark.exhaustive
def test_a_cluster_that_does_not_come_back_is_given_up(tmp_path, monkeypatch):
    def lose(executor):
        monkeypatch.setattr("cagp_dist.service.workers._opened", refuse)
        raise ClusterLostError("lost.")

    def refuse(*_):
        raise ClusterError("no Dask scheduler answers.")

    with (
        workers_for(job(tmp_path, rejoin_seconds=0.1)) as workers,
        pytest.raises(ClusterError, match=r"was lost, and 0\.1 s later: no Dask scheduler answers"),
    ):
        workers.attempt(lose, [].append)


def test_a_job_ends_at_its_time_limit_and_publishes_nothing(tmp_path):
    hurried = with_runtime(job(tmp_path), total_seconds=1e-9)
    with pytest.raises(TimeLimitError) as refusal:
        run(hurried)
    assert refusal.value.key == "time-limit"
    assert not (tmp_path / "CURRENT").exists()
    assert not list((tmp_path / "runs").iterdir())


def test_deadlines_come_from_the_job_and_flags_take_precedence(tmp_path):
    asked = job(tmp_path, attempts=5, total_seconds=60)
    assert asked.runtime.deadlines() == Deadlines(silence_seconds=20, attempts=5, total_seconds=60)
    assert with_runtime(asked, attempts=1).runtime.deadlines().attempts == 1
    assert with_runtime(asked, attempts=1).runtime.total_seconds == 60
    assert asked.canonical() == job(tmp_path).canonical()
    with pytest.raises(ConfigurationError) as refusal:
        job(tmp_path, attempts=0)
    assert refusal.value.key == "runtime.attempts"


def test_flags_reach_the_job(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    path = tmp_path / "job.toml"
    path.write_text(job(tmp_path).text)
    ended = CliRunner().invoke(app, ["run", str(path), "--time-limit", "1", "--attempts", "101"])
    assert ended.exit_code == 2
    monkeypatch.setattr(Deadlines, "check", lambda self: over(self))

    def over(deadlines):
        raise TimeLimitError(f"{deadlines.attempts} attempts, {deadlines.total_seconds:g} s")

    ended = CliRunner().invoke(app, ["run", str(path), "--time-limit", "7", "--attempts", "2"])
    assert ended.exit_code == 75
    assert "2 attempts, 7 s" in ended.output + ended.stderr
