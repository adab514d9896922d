"""Dask clusters: reached, not reached, and workers that die in the middle of a solve."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import dask
import pytest
from distributed import Client, LocalCluster

import cagp_dist as cagp
from cagp_dist.budget import Demand
from cagp_dist.errors import BudgetError, ClusterError, ConfigurationError
from cagp_dist.runtime import SerialExecutor, open_executor
from cagp_dist.runtime import dask as runtime_dask
from cagp_dist.runtime.dask import PROCESS_BYTES, DaskExecutor
from cagp_dist.runtime.deadlines import Deadlines

from ..clusters import local_cluster, wait_until
from ..oracle import assert_same_bits
from ..ports import closed_port
from ..problems import regression_problem

pytestmark = pytest.mark.cluster


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(runtime_dask, "CONNECT_SECONDS", 0.5)


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as opened:
        yield opened


def process_ids(client) -> list[int]:
    return list(client.run(os.getpid).values())


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_worker_killed_in_the_middle_of_a_solve_changes_no_bit():
    """What it held is computed again by others; nothing was scattered."""
    few, many = (regression_problem(900, q=q, lengthscale=0.1) for q in (60, 3000))
    cases = [
        (few, cagp.BlockGaussSeidel(4, 100)),
        (few, cagp.ConjugateGradient(6)),
        (few, cagp.GaussSeidel(4)),
        (many, cagp.Neighbours(300)),  # 32 cells, all of which are handed out when the first is heard of
    ]
    with local_cluster(2) as client:
        executor = DaskExecutor(client)
        for problem, solver in cases:
            victims: list[int] = []

            def kill_one(progress, victims=victims):
                if progress.iteration == 1 and not victims:
                    assert progress.fraction < 0.5
                    victims.append(process_ids(client)[0])
                    os.kill(victims[0], signal.SIGKILL)

            condition = partial(problem.condition, solver, covariance="diagonal")
            posterior = condition(executor=executor, progress=kill_one)
            assert_same_bits(posterior, condition(executor=SerialExecutor()))
            client.wait_for_workers(2, timeout=300)
            assert victims[0] not in process_ids(client)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_new_worker_takes_the_place_of_a_lost_one(monkeypatch):
    monkeypatch.setattr(runtime_dask, "WATCH_SECONDS", 0.1)
    with local_cluster(2) as client:
        executor = DaskExecutor(client)
        lost, process = next(iter(client.run(os.getpid).items()))
        os.kill(process, signal.SIGKILL)
        wait_until(lambda: lost not in client.scheduler_info(n_workers=-1)["workers"])
        client.wait_for_workers(2, timeout=300)
        there = client.run(os.getpid)
        assert lost not in there

        def looked():
            executor.gather([executor.submit(time.sleep, 0.5)])  # long enough for some looks at the cluster
            return lost not in executor._addresses

        wait_until(looked)
        for place in range(2):
            assert executor.gather([executor.submit(os.getpid, home=place)]) == [
                there[executor._address(place)]
            ]
        assert {executor._address(place) for place in range(2)} == set(there)


@pytest.mark.exhaustive
@pytest.mark.parametrize("solver", [cagp.GaussSeidel(1), cagp.RandomActions(2)], ids=["sweep", "action"])
def test_a_task_that_kills_its_workers_is_a_cluster_error(solver, monkeypatch):
    """Out of memory looks like this: the worker is gone, and so is the next one that tries."""

    def die(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    with dask.config.set({"distributed.scheduler.allowed-failures": 0}), local_cluster(1) as client:
        executor = DaskExecutor(client)
        monkeypatch.setattr("cagp_dist.solvers.engine.tile_tasks.update_panel", die)
        monkeypatch.setattr("cagp_dist.solvers.engine.tile_tasks.solve_block", die)
        monkeypatch.setattr("cagp_dist.gram.tiled.rows_product", die)
        with pytest.raises(ClusterError, match=r"lost with several workers in a row: .* or lower block_size"):
            regression_problem(40).condition(solver, executor=executor)


@pytest.fixture
def start():
    """A function that starts a process of Dask's command line; what still runs at the end is killed."""
    processes: list[subprocess.Popen] = []

    def begin(*arguments: str) -> subprocess.Popen:
        command = [Path(sys.executable).with_name("dask"), *arguments]
        processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        return processes[-1]

    yield begin
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_scheduler_that_goes_away_is_a_cluster_error(start, tmp_path):
    file = str(tmp_path / "scheduler.json")
    scheduler = start("scheduler", "--scheduler-file", file, "--port", "0", "--no-dashboard")
    start("worker", "--scheduler-file", file, "--nthreads", "1", "--no-dashboard", "--no-nanny")
    wait_until(Path(file).is_file, scheduler)
    with open_executor(file, insecure=True) as executor:
        handle = executor.submit(time.sleep, 60.0)
        scheduler.kill()
        with pytest.raises(ClusterError) as refusal:
            executor.gather([handle])
        assert refusal.value.key == "connection-lost"


@pytest.mark.exhaustive
@pytest.mark.parametrize("successors", [0, 1])
def test_workers_that_are_all_lost_at_once_are_a_cluster_error(successors, monkeypatch):
    """Dask would keep their tasks for good, also where new workers have joined."""
    monkeypatch.setattr(runtime_dask, "WATCH_SECONDS", 0.2)
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        executor = DaskExecutor(client)
        slow = executor.submit(time.sleep, 0.5)
        assert executor.gather([slow]) == [None]  # slow work is no loss
        handle = executor.submit(time.sleep, 60.0)  # not done when its worker goes
        cluster.scale(0)
        wait_until(lambda: not client.scheduler_info(n_workers=-1)["workers"])
        cluster.scale(successors)
        client.wait_for_workers(successors) if successors else None
        with pytest.raises(ClusterError) as refusal:
            executor.gather([handle])
        assert refusal.value.key == "workers-lost"


def test_address_where_nobody_answers(impatient):
    address = f"tcp://127.0.0.1:{closed_port()}"
    began = time.monotonic()
    with pytest.raises(ClusterError) as refusal:
        open_executor(address).__enter__()
    assert refusal.value.key == "no-scheduler"
    assert time.monotonic() - began < 10.0


def test_address_that_is_no_address(impatient):
    with pytest.raises(ClusterError) as refusal:
        open_executor("pigeon://roof").__enter__()
    assert refusal.value.key == "no-scheduler"


def test_scheduler_file_that_is_not_there(tmp_path):
    path = tmp_path / "scheduler.json"
    with pytest.raises(ClusterError) as refusal:
        open_executor(str(path)).__enter__()
    assert refusal.value.key == "no-scheduler-file"


def test_scheduler_file_of_another_time(tmp_path, impatient):
    path = tmp_path / "scheduler.json"
    path.write_text(json.dumps({"address": "tcp://127.0.0.1:1"}))
    with pytest.raises(ClusterError) as refusal:
        open_executor(str(path)).__enter__()
    assert refusal.value.key == "no-scheduler"


@pytest.mark.exhaustive
@pytest.mark.parametrize("text", ["", "{", "not json", "[1]", "{}"])
def test_scheduler_file_that_names_no_scheduler(tmp_path, text, impatient):
    path = tmp_path / "scheduler.json"
    path.write_text(text)
    with pytest.raises(ClusterError) as refusal:
        open_executor(str(path)).__enter__()
    assert refusal.value.key == "no-scheduler-file"


def test_scheduler_file_that_is_being_written(cluster, tmp_path):
    path = tmp_path / "scheduler.json"
    path.write_text("")
    text = json.dumps({"address": cluster.scheduler.address})
    threading.Timer(0.3, path.write_text, [text]).start()
    with open_executor(str(path)) as executor:
        assert executor.workers == 2


def test_address_and_scheduler_file_lead_to_the_cluster_and_leave_it_running(cluster, tmp_path):
    path = tmp_path / "scheduler.json"
    with Client(cluster, set_as_default=False) as client:
        client.write_scheduler_file(str(path))
    for scheduler in (cluster.scheduler.address, str(path)):
        with open_executor(scheduler) as executor:
            assert executor.workers == 2
            assert executor.description == f"Dask cluster {cluster.scheduler.address}, 2 workers, 2 threads"
            assert executor.dashboard.startswith("http://")
            assert executor.submit(abs, -3).result() == 3


@pytest.fixture
def empty_cluster():
    with LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as opened:
        yield opened


def test_a_scheduler_without_workers(empty_cluster):
    patience = Deadlines(worker_seconds=0.5)
    with pytest.raises(ClusterError, match=r"worker_seconds") as refusal:
        open_executor(empty_cluster.scheduler.address, deadlines=patience).__enter__()
    assert refusal.value.key == "no-workers"
    with (
        Client(empty_cluster, set_as_default=False) as client,
        pytest.raises(ClusterError) as refusal,
    ):
        DaskExecutor(client, patience)
    assert refusal.value.key == "no-workers"


def test_tasks_of_another_version_are_refused_by_workers_that_came_late(cluster):
    with Client(cluster, set_as_default=False) as client:
        task = client.submit(runtime_dask._run, "0.0.1", abs, -3)
        with pytest.raises(ClusterError) as refusal:
            task.result()
        assert refusal.value.key == "versions-differ"


def test_a_package_that_is_missing_where_a_task_arrives_is_named(cluster, monkeypatch):
    """As by a worker that joins late, or a scheduler, whose errors come with texts alone."""

    def absent():
        raise RuntimeError("ModuleNotFoundError(\"No module named 'cagp_dist'\")")

    with Client(cluster, set_as_default=False) as client:
        executor = DaskExecutor(client)
        with pytest.raises(ClusterError) as refusal:
            executor.gather([executor.submit(absent)])
        assert refusal.value.key == "not-installed"


def found_versions(scheduler="1.0", worker="1.0", numba="0.60"):
    """What Dask says of the versions of a cluster; its client has 1.0, and numba 0.60."""

    def of(package, numba="0.60"):
        return {"packages": {"cagp-dist": package, "numpy": "2.0", "scipy": "1.14", "numba": numba}}

    return {"client": of("1.0"), "scheduler": of(scheduler), "workers": {"tcp://a": of(worker, numba)}}


@pytest.mark.parametrize(
    ("found", "key"),
    [
        (
            {"worker": "0.9"},
            "versions-differ",
        ),
        ({"scheduler": "0.9"}, "versions-differ"),
        ({"worker": None}, "not-installed"),
        ({"scheduler": None, "worker": None}, "not-installed"),
    ],
)
def test_scheduler_and_workers_with_other_versions_or_none_are_refused(cluster, monkeypatch, found, key):
    with Client(cluster, set_as_default=False) as client:
        monkeypatch.setattr(client, "get_versions", lambda packages: found_versions(**found))
        with pytest.raises(ClusterError) as refusal:
            DaskExecutor(client)
        assert refusal.value.key == key


def test_workers_with_another_numba_are_spoken_of(cluster, monkeypatch, caplog):
    with Client(cluster, set_as_default=False) as client:
        monkeypatch.setattr(client, "get_versions", lambda packages: found_versions(numba="0.61"))
        DaskExecutor(client)
    assert "workers have numba 0.61, and here it is 0.60" in caplog.text


@pytest.mark.parametrize("scheduler", ["slurm", "pbs"])
def test_batch_systems_need_their_extra(scheduler, monkeypatch):
    monkeypatch.setitem(sys.modules, "dask_jobqueue", None)
    with pytest.raises(
        ConfigurationError,
    ) as refusal:
        open_executor(scheduler).__enter__()
    assert refusal.value.key == "no-package"


def test_a_small_worker_keeps_room_for_its_own_process():
    for limit, usable in ((2**32, 2**32 * 6 // 10), (2**29, 2**29 * 8 // 10 - PROCESS_BYTES)):
        with (
            LocalCluster(n_workers=1, processes=False, dashboard_address=":0", memory_limit=limit) as small,
            Client(small, set_as_default=False) as client,
        ):
            assert DaskExecutor(client).memory_bytes == usable


def test_workers_that_have_no_memory_for_data_are_named_at_once():
    """120 MiB are less than the process of a worker takes by itself."""
    problem = regression_problem(60)
    with LocalCluster(n_workers=1, processes=False, dashboard_address=":0", memory_limit="120MiB") as small:
        with pytest.raises(BudgetError, match="may take 120 MiB, and its process takes 200 MiB") as refusal:
            problem.condition(cagp.BlockGaussSeidel(2, block_size=16), executor=small)
        assert refusal.value.key == "small-workers"


def peak_bytes() -> int:
    """Most memory that this process has had."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
    return 1024 * int(line.split()[1])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.slow
@pytest.mark.exhaustive
def test_workers_with_a_third_of_the_working_set_stay_below_their_limit():
    """No worker is terminated; the working set is what the solve takes with as much memory as it wants.

    The results are those of this process, which has that memory, to the bit.
    """
    problem, solver = regression_problem(10_000, q=4096), cagp.BlockGaussSeidel(1, 250)
    asked = Demand(
        **{"n": 10_000, "q": 4096, "fields": 1, "workers": 4},
        full_covariance=False,
        shares_memory=False,
        memory_limit_bytes=2**60,
    )
    limit = solver.plan(asked).peak_bytes // 3
    assert limit > 2 * PROCESS_BYTES, "else the memory of the process is most of it"
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=2, dashboard_address=":0", memory_limit=limit
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        before, plans = client.run(os.getpid), []
        found = problem.condition(
            solver, covariance="diagonal", executor=DaskExecutor(client), on_plan=plans.append
        )
        assert len(plans[0].batches) > 1
        assert client.run(os.getpid) == before
        assert max(client.run(peak_bytes).values()) <= 1.1 * limit
    assert_same_bits(found, problem.condition(solver, covariance="diagonal", executor=SerialExecutor()))
