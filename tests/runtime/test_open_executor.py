"""Executors by name, and one BLAS thread while tasks run."""

import threading

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from cagp_dist.errors import ArgumentError, ConfigurationError
from cagp_dist.runtime import SerialExecutor, ThreadExecutor, open_executor, single_threaded_blas

from ..joined import one_after_another


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_names():
    with open_executor() as executor:
        assert isinstance(executor, ThreadExecutor)
    with open_executor("local", workers=3) as executor:
        assert executor.workers == 3
    with open_executor("serial") as executor:
        assert isinstance(executor, SerialExecutor)
        assert executor.workers == 1


@one_after_another
@pytest.mark.parametrize("name", ["", "dask", "threads", "scheduler.yaml", "localhost:8786", "Local"])
def test_unknown_names_are_refused_with_the_known_ones(name):
    with pytest.raises(
        ConfigurationError,
    ) as refusal:
        open_executor(name).__enter__()
    assert refusal.value.key == "scheduler-unknown"


def test_local_checks_its_workers():
    with pytest.raises(ArgumentError) as refusal:
        open_executor("local", workers=0).__enter__()
    assert refusal.value.key == "no-count"


@pytest.mark.parametrize("shares", [SerialExecutor(), ThreadExecutor(2)], ids=["serial", "threads"])
def test_workers_of_this_process_share_its_memory(shares):
    assert shares.shares_memory
    assert shares.processes == 1
    assert shares.dashboard is None
    assert shares.memory_bytes > 2**20


@pytest.fixture
def two_blas_threads():
    with single_threaded_blas():
        pass  # loads every BLAS there is
    with threadpool_limits(limits=2, user_api="blas"):
        yield


def test_blas_has_one_thread_inside_and_its_own_number_after(two_blas_threads):
    assert blas_threads() == {2}
    with single_threaded_blas():
        assert blas_threads() == {1}
        with single_threaded_blas():
            assert blas_threads() == {1}
        assert blas_threads() == {1}
    assert blas_threads() == {2}


def test_blas_is_given_back_after_an_error(two_blas_threads):
    with pytest.raises(ZeroDivisionError), single_threaded_blas():
        raise ZeroDivisionError
    assert blas_threads() == {2}


def test_solves_that_overlap_share_one_limit(two_blas_threads):
    """The first that ends does not lift the limit of the other."""
    entered, leave = threading.Event(), threading.Event()

    def other():
        with single_threaded_blas():
            entered.set()
            leave.wait(10.0)

    thread = threading.Thread(target=other)
    with single_threaded_blas():
        thread.start()
        assert entered.wait(10.0)
    assert blas_threads() == {1}
    leave.set()
    thread.join()
    assert blas_threads() == {2}


def test_a_task_has_one_blas_thread_whoever_waits_for_it(two_blas_threads):
    """A generator of steps gives BLAS back between them, while tasks of the next step run."""
    with ThreadExecutor(2) as executor:
        seen = executor.gather([executor.submit(blas_threads) for _ in range(4)])
    assert seen == [{1}] * 4
    assert blas_threads() == {2}


def test_a_solve_in_any_thread_limits_blas_and_gives_it_back(two_blas_threads):
    """Although this thread was the first to set a limit, which is the one that threadpoolctl heeds."""
    seen = []

    def solve():
        with single_threaded_blas():
            seen.append(blas_threads())
        seen.append(blas_threads())

    thread = threading.Thread(target=solve)
    thread.start()
    thread.join()
    assert seen == [{1}, {2}]
