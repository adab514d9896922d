"""What people pass as executor: clusters of Dask and of others, clients, addresses and files."""

import asyncio
import json

import numpy as np
import pytest
from distributed import Client, LocalCluster
from threadpoolctl import threadpool_info

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.runtime import dask as runtime_dask
from cagp_dist.runtime.dask import DaskExecutor

from ..clusters import wait_until
from ..oracle import assert_same_bits
from ..problems import regression_problem

pytestmark = pytest.mark.cluster

STATIONS = {"lat": [48.1, 52.5, 50.1], "lon": [11.6, 13.4, 8.7], "value": [21.0, 18.5, 20.2]}
MODEL = cagp.Kriging(
    solver=cagp.BlockGaussSeidel(3, block_size=2), lengthscale=0.1, variance=9.0, noise_std=0.3
)


def mapped(executor: object) -> np.ndarray:
    model = MODEL.set_params(executor=executor).fit(STATIONS)
    return model.predict({"latitude": [50.0], "longitude": [10.0]})["mean"].values


@pytest.mark.parametrize("adaptive", [False, True])
def test_a_cluster_is_taken_as_its_client_and_stays_open(adaptive: bool) -> None:
    workers = 0 if adaptive else 1
    with LocalCluster(n_workers=workers, processes=False, dashboard_address=":0") as cluster:
        if adaptive:
            cluster.adapt(minimum=0, maximum=1, interval="50ms")
        np.testing.assert_array_equal(mapped(cluster), mapped("serial"))
        with Client(cluster) as client:
            assert client.submit(int).result() == 0
        executor: object = client
    with pytest.raises(ArgumentError) as refusal:
        mapped(executor)
    assert refusal.value.key == "executor-closed"


@pytest.fixture(scope="module")
def threaded():
    """A cluster of one worker with three threads, in this process."""
    with LocalCluster(n_workers=1, threads_per_worker=3, processes=False, dashboard_address=":0") as cluster:
        yield cluster


def test_every_door_takes_whatever_stands_for_a_cluster(threaded, tmp_path):
    """Cluster, client, address and scheduler file, of one worker with three threads: the same bits."""
    file = tmp_path / "scheduler.json"
    file.write_text(json.dumps({"address": threaded.scheduler_address}))
    problem = regression_problem(60)
    solver = cagp.BlockGaussSeidel(2, block_size=16)
    alone = problem.condition(solver, executor="serial")
    with Client(threaded, set_as_default=False) as client:
        for given in (threaded, client, threaded.scheduler_address, file):
            assert_same_bits(problem.condition(solver, executor=given), alone)
        executor = DaskExecutor(client)
        assert (executor.workers, executor.processes) == (3, 1)
        limit = client.scheduler_info()["workers"].popitem()[1]["memory_limit"]
        assert executor.memory_bytes == runtime_dask._usable_bytes(limit)  # of the process, not of a thread


class Gateway:
    """What dask-gateway has: no `Cluster` of Dask, but an address and a status, and words of its own."""

    def __init__(self, cluster):
        self.scheduler_address, self.security = cluster.scheduler_address, None
        self.status, self.asynchronous = "running", False


def test_clusters_of_other_libraries_need_an_address_alone(threaded):
    np.testing.assert_array_equal(mapped(Gateway(threaded)), mapped("serial"))
    closed = Gateway(threaded)
    closed.status = "closed"
    with pytest.raises(ArgumentError) as refusal:
        mapped(closed)
    assert refusal.value.key == "executor-closed"


def threads_of_blas():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


@pytest.mark.exhaustive
@pytest.mark.slow
def test_an_adaptive_cluster_begins_and_ends_without_a_worker():
    problem, solver = regression_problem(1000, q=50), cagp.BlockGaussSeidel(2, block_size=128)
    with LocalCluster(n_workers=0, threads_per_worker=2, dashboard_address=":0") as cluster:
        cluster.adapt(minimum=0, maximum=3, interval="200ms", wait_count=2)
        found = problem.condition(solver, executor=cluster)
        assert_same_bits(found, problem.condition(solver, executor="serial"))
        with Client(cluster, set_as_default=False) as client:
            executor = DaskExecutor(client)
            assert (executor.processes, executor.workers) == (3, 6)
            assert executor.gather([executor.submit(threads_of_blas)]) == [[1] * len(threads_of_blas())]
        del executor  # what it holds keeps a worker
        wait_until(lambda: not cluster.scheduler_info["workers"])


@pytest.mark.exhaustive
@pytest.mark.slow
def test_workers_that_come_and_go_change_no_bit():
    """Of two threads each: one, three after an iteration, one again, and two."""
    problem, solver = regression_problem(1000, q=50), cagp.BlockGaussSeidel(5, block_size=128)
    with LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=":0") as cluster:
        sizes = iter((3, 1, 2))

        def change(_):
            if size := next(sizes, None):
                cluster.scale(size)
                wait_until(lambda: len(cluster.scheduler_info["workers"]) == size)

        found = problem.condition(solver, executor=cluster, progress=change)
        assert next(sizes, None) is None
    assert_same_bits(found, problem.condition(solver, executor="serial"))


def test_an_asynchronous_client_is_called_one() -> None:
    async def attempt() -> None:
        async with Client(n_workers=1, processes=False, dashboard_address=":0", asynchronous=True) as client:
            mapped(client)

    with pytest.raises(ArgumentError) as refusal:
        asyncio.run(attempt())
    assert refusal.value.key == "executor-asynchronous"
