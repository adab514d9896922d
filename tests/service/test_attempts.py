"""Jobs whose cluster is lost on the way: they go on with the workers that come back, or say what happened."""

import time

import numpy as np
import pytest
from distributed import LocalCluster

from cagp_dist.cli import app
from cagp_dist.errors import ClusterError, ClusterLostError, ConfigurationError, TimeLimitError
from cagp_dist.runtime import SerialExecutor
from cagp_dist.runtime import dask as runtime_dask
from cagp_dist.runtime.deadlines import Deadlines
from cagp_dist.service.jobfile.config import parse_job, with_runtime
from cagp_dist.service.run import run
from cagp_dist.service.workers import workers_of
from cagp_dist.store.zarr_arrays import read_group

from ..jobs import job_text, random_points


def job(root, scheduler="serial", **runtime):
    return parse_job(
        job_text(
            observations={"source": "synthetic", "grid_degrees": 15.0, "times": ["2020-01-01"]},
            design={"train": random_points(220), "test": random_points(20, seed=1)},
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
