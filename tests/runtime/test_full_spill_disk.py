"""A worker whose disk for what its memory does not hold is full: a named error; with space the same bits."""

import re
import time

import dask
import pytest
from distributed import Client, LocalCluster

import cagp_dist as cagp
from cagp_dist.errors import ClusterError, ClusterLostError
from cagp_dist.runtime import SerialExecutor
from cagp_dist.runtime.dask import DaskExecutor

from ..mounts import needs_mounts, small_file_system
from ..oracle import assert_same_bits
from ..problems import regression_problem

LIMIT_BYTES = 500 * 2**20
"""Of the worker, whose process takes two fifths of it before there is any data."""


def put_on_the_disk(dask_worker) -> float:
    """Bytes that a worker has put on its disk, those that it put there again counted again."""
    return dask_worker.data.cumulative_metrics["disk-write", "bytes"]


@needs_mounts
@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_solve_that_fills_the_disk_of_its_worker_is_a_named_error_and_goes_on_with_space(tmp_path):
    """It takes three times the memory of the worker, which is told that it has more than there is.

    Its nanny would end it above 95 % of its memory, often before anybody has seen that it is paused; here it
    does not.
    """
    problem, solver, plans = regression_problem(1000, q=5000), cagp.BlockGaussSeidel(1, 250), []
    with (
        small_file_system(tmp_path / "spill") as change,
        dask.config.set({"distributed.worker.memory.terminate": False}),
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            dashboard_address=":0",
            memory_limit=LIMIT_BYTES,
            local_directory=str(tmp_path / "spill"),
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):

        def solve():
            executor = DaskExecutor(client)
            settings = {"executor": executor, "memory_limit_bytes": 2**36, "on_plan": plans.append}
            return problem.condition(solver, **settings)

        change(size=16 * 2**20)
        assert DaskExecutor(client).spill_bytes <= 16 * 2**20
        (address,), began = client.scheduler_info(n_workers=-1)["workers"], time.monotonic()
        text = (
            rf"{tmp_path}/spill\S* on worker {re.escape(address)} has .* free, and .* MiB are to be put there"
        )
        with pytest.raises(ClusterError, match=text) as caught:
            solve()
        assert not isinstance(caught.value, ClusterLostError), "another attempt would fill it again"
        assert time.monotonic() - began < 60.0, "10 s after the worker was paused"
        assert plans[0].peak_bytes > 3 * LIMIT_BYTES
        del caught  # and with it the results that the worker holds
        change(size=2**31)
        found = solve()
        assert next(iter(client.run(put_on_the_disk).values())) > LIMIT_BYTES
    assert_same_bits(found, problem.condition(solver, executor=SerialExecutor()))
