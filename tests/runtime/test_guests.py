"""What a cluster of other people, and a client of theirs, are like after work was done on them."""

import _thread
import asyncio
import signal
import threading
import time
from contextlib import nullcontext
from functools import partial

import dask
import pytest
from distributed import Client
from threadpoolctl import threadpool_info

import cagp_dist as cagp
from cagp_dist.errors import TimeLimitError
from cagp_dist.runtime import executor_from
from cagp_dist.runtime.dask import PLANNED_SIZE
from cagp_dist.runtime.deadlines import Deadlines
from cagp_dist.runtime.supervision import _cut_off

from ..clusters import wait_until
from ..ports import closed_port
from ..problems import regression_problem

pytestmark = pytest.mark.cluster

SOLVER = cagp.BlockGaussSeidel(3, block_size=20)


def worker_settings():
    """Threads of BLAS, and how long other workers are waited for."""
    pools = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    return pools, dask.config.get("distributed.comm.timeouts.connect")


def tasks_of(dask_scheduler):
    return set(dask_scheduler.tasks)


def succeed(client):
    regression_problem(60).condition(SOLVER, executor=client)


def fail(client):
    def stop(progress):
        raise ArithmeticError

    regression_problem(60).condition(SOLVER, executor=client, progress=stop)


def wait_long(client, deadlines=None):
    """Two workers have fifteen seconds of work each."""
    with executor_from(client, deadlines) as executor:
        handles = [executor.submit(time.sleep, 0.5) for _ in range(60)]
        executor.gather([executor.submit(len, handles)])


def interrupt(client):
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # libraries set others
    threading.Timer(0.5, _thread.interrupt_main).start()
    try:
        wait_long(client)
    finally:
        signal.signal(signal.SIGINT, handler)


@pytest.mark.parametrize(
    ("work", "error"),
    [
        (succeed, None),
        (fail, ArithmeticError),
        (interrupt, KeyboardInterrupt),
        (partial(wait_long, deadlines=Deadlines(total_seconds=0.1)), TimeLimitError),
    ],
    ids=["result", "error", "interrupt", "deadline"],
)
def test_settings_and_futures_are_as_before(two_dask_workers, work, error):
    client, own = two_dask_workers, two_dask_workers.submit(int)
    assert own.result() == 0

    def state():
        return client.run(worker_settings), set(client.futures), client.run_on_scheduler(tasks_of)

    before, began = state(), time.monotonic()
    with nullcontext() if error is None else pytest.raises(error) as raised:
        work(client)
    wait_until(lambda: state() == before, seconds=10.0)  # while a notebook keeps the error, with its frames
    assert time.monotonic() - began < 12.0
    del raised


def test_an_executor_of_several_calls_is_left_with_what_it_had(two_dask_workers):
    with executor_from(two_dask_workers) as executor:
        handle = executor.submit(abs, -3)
        with pytest.raises(ArithmeticError):
            fail(executor)
        assert executor.gather([handle]) == [3]
        assert len(executor._submitted) == 2  # and the one that keeps a worker


def test_a_client_is_asked_once_who_its_workers_are(two_dask_workers, monkeypatch):
    with Client(two_dask_workers.scheduler.address, set_as_default=False) as client:
        asked = []
        get_versions = client.get_versions
        monkeypatch.setattr(client, "get_versions", lambda **given: asked.append(1) or get_versions(**given))
        for _ in range(3):
            succeed(client)
        assert len(asked) == 1


def test_threads_that_submit_at_once_leave_the_settings_of_dask(two_dask_workers):
    (setting,) = PLANNED_SIZE
    before = dask.config.get(setting)
    with executor_from(two_dask_workers) as executor:

        def submit():
            executor.gather([executor.submit(int) for _ in range(50)])

        threads = [threading.Thread(target=submit) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert dask.config.get(setting) == before


def test_a_worker_gives_up_a_connection_to_another_that_is_gone(two_dask_workers):
    """Dask tries for half a minute, and does nothing meanwhile that needs what that one held."""

    async def attempt(dask_worker, address):
        connecting = asyncio.ensure_future(dask_worker.rpc.connect(address))
        await asyncio.sleep(0.1)
        assert not connecting.done()
        _cut_off({address}, dask_worker=dask_worker)
        try:
            await asyncio.wait_for(connecting, 5.0)
        except OSError as error:
            return str(error)

    found = two_dask_workers.run(attempt, address=f"tcp://127.0.0.1:{closed_port()}")
    assert set(found.values()) == {"Address removed."}
