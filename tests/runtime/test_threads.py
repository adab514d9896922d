"""The thread pool: urgent tasks first, nothing kept alive, an end in every case."""

import gc
import os
import signal
import threading
import time
import weakref

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.runtime import SerialExecutor, ThreadExecutor

from ..joined import one_after_another
from ..problems import regression_problem


class Value:
    """Something that can be watched while it lives."""


def settle(condition, seconds=60.0):
    """Wait until a condition holds: threads let go of values a moment after they are done."""
    limit = time.monotonic() + seconds
    while not condition() and time.monotonic() < limit:
        gc.collect()
        time.sleep(0.005)
    return condition()


def occupy(executor):
    """Keep the only thread of a pool busy until the returned event is set."""
    started, released = threading.Event(), threading.Event()

    def hold():
        started.set()
        released.wait(60.0)

    holding = executor.submit(hold)
    assert started.wait(60.0)  # by now it runs, whether somebody holds its handle or not
    del holding
    return released


def test_the_most_urgent_ready_task_goes_first_then_the_oldest():
    order = []
    with ThreadExecutor(1) as executor:
        released = occupy(executor)
        handles = [
            executor.submit(order.append, name, priority=priority)
            for name, priority in (("a", 0), ("b", 2), ("c", 1), ("d", 2), ("e", 0), ("f", -1))
        ]
        released.set()
        executor.gather(handles)
    assert order == ["b", "d", "c", "a", "e", "f"]


def test_an_urgent_task_overtakes_as_soon_as_its_arguments_are_there():
    order = []

    def note(name, *_):
        order.append(name)
        return name

    with ThreadExecutor(1) as executor:
        released = occupy(executor)
        first = executor.submit(note, "first", priority=1)
        plain = [executor.submit(note, "plain") for _ in range(3)]
        urgent = executor.submit(note, "urgent", first, priority=2)
        last = executor.submit(note, "last", plain[0], urgent, priority=9)
        released.set()
        executor.gather([*plain, urgent, last])
    assert order == ["first", "urgent", "plain", "last", "plain", "plain"]


def test_tasks_run_at_the_same_time():
    barrier = threading.Barrier(3)
    with ThreadExecutor(3) as executor:  # each waits for the other two
        executor.gather([executor.submit(barrier.wait, 60.0) for _ in range(3)])


@pytest.mark.parametrize("workers", [1, 2])
def test_values_live_as_long_as_their_handles(workers):
    with ThreadExecutor(workers) as executor:
        handle = executor.submit(Value)
        kept = executor.submit(lambda value: weakref.ref(value), handle).result()
        assert kept() is not None
        del handle
        assert settle(lambda: kept() is None)


@pytest.mark.parametrize("opened", [SerialExecutor, lambda: ThreadExecutor(2)])
def test_a_chain_keeps_only_its_end(opened):
    """What a sweep does: every panel replaces the one before it."""
    seen = []

    def successor(_):
        value = Value()
        seen.append(weakref.ref(value))
        return value

    executor = opened()
    if isinstance(executor, ThreadExecutor):
        executor.__enter__()
    handle = executor.submit(successor, None)
    for _ in range(20):
        handle = executor.submit(successor, handle)
    last = handle.result()
    assert settle(lambda: sum(reference() is not None for reference in seen) == 1)
    assert seen[-1]() is last
    if isinstance(executor, ThreadExecutor):
        executor.__exit__(None, None, None)


def test_arguments_are_let_go_when_the_task_is_done():
    with ThreadExecutor(1) as executor:
        argument = Value()
        watched = weakref.ref(argument)
        handle = executor.submit(lambda value: 1, argument)
        handle.result()
        del argument
        assert settle(lambda: watched() is None)
        assert handle.result() == 1


def test_an_error_leaves_the_pool_at_work_and_closable():
    with ThreadExecutor(2) as executor:
        failing = executor.submit(int, "not a number")
        dependents = [executor.submit(abs, failing) for _ in range(5)]
        for handle in (failing, *dependents, failing):
            with pytest.raises(ValueError, match="not a number"):
                handle.result()
        assert executor.submit(abs, -2).result() == 2


def test_even_an_interrupt_inside_a_task_reaches_whoever_gathers():
    def interrupted():
        raise KeyboardInterrupt("inside a task")

    with ThreadExecutor(2) as executor:
        with pytest.raises(KeyboardInterrupt, match="inside a task"):
            executor.gather([executor.submit(interrupted)])
        assert executor.submit(abs, -2).result() == 2


@pytest.fixture
def interrupts():
    """Interrupts raise KeyboardInterrupt, also where the tests were started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_while_waiting_ends_the_pool_without_the_queued_tasks(interrupts):
    ran, waits = [], threading.Event()
    before = threading.active_count()

    def interrupt(executor):
        assert waits.wait(60.0)
        time.sleep(0.1)  # the caller is waiting by then, or is about to
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        assert settle(lambda: not executor._open)  # a task that has begun is not torn down
        ran.append("begun")

    def wait(executor):
        slow, queued = executor.submit(interrupt, executor), executor.submit(ran.append, "queued")
        waits.set()
        executor.gather([slow, queued])

    with pytest.raises(KeyboardInterrupt), ThreadExecutor(1) as executor:
        wait(executor)
    assert ran == ["begun"]
    assert threading.active_count() <= before, "threads of others may have ended meanwhile"


def test_an_error_in_the_caller_ends_the_pool_without_the_queued_tasks():
    handles = []

    def fail(executor):
        begun = threading.Event()

        def work_on():
            begun.set()
            assert settle(lambda: not executor._open)

        handles.extend((executor.submit(work_on), executor.submit(abs, -1)))
        assert begun.wait(60.0)
        raise RuntimeError("caller")

    with pytest.raises(RuntimeError, match="caller"), ThreadExecutor(1) as executor:
        fail(executor)
    with pytest.raises(ArgumentError) as refusal:
        handles[1].result()
    assert refusal.value.key == "executor-closed"
    assert handles[0].result() is None, "a task that has begun is done to its end"


def test_a_pool_that_is_not_open_refuses_work_instead_of_waiting_for_ever():
    closed = ThreadExecutor(1)
    with pytest.raises(ArgumentError) as refusal:
        closed.submit(abs, -1)
    assert refusal.value.key == "executor-closed"
    with pytest.raises(ArgumentError) as refusal:
        regression_problem(20).condition(cagp.GaussSeidel(1), executor=closed)
    assert refusal.value.key == "executor-closed"
    with closed:
        handle = closed.submit(abs, -1)
        assert handle.result() == 1
    assert handle.result() == 1
    with pytest.raises(ArgumentError) as refusal:
        closed.submit(abs, -1)
    assert refusal.value.key == "executor-closed"


def test_a_task_that_nobody_waits_for_is_not_run():
    ran = []
    with ThreadExecutor(1) as executor:
        released = occupy(executor)
        kept = executor.submit(ran.append, "kept")
        executor.submit(ran.append, "dropped")
        needed = executor.submit(ran.append, "needed")
        dependent = executor.submit(lambda *_: ran.append("dependent"), needed)
        executor.submit(abs, needed)  # dropped as well
        del needed
        released.set()
        executor.gather([kept, dependent])
    assert ran == ["kept", "needed", "dependent"]


@one_after_another
@pytest.mark.parametrize("workers", [0, -2, 1.5, "2", True])
def test_a_pool_needs_a_thread(workers):
    with pytest.raises(ArgumentError) as refusal:
        ThreadExecutor(workers)
    assert refusal.value.key == "no-count"


def test_default_is_one_thread_per_core_of_this_process():
    assert ThreadExecutor().workers == len(os.sched_getaffinity(0))
    assert ThreadExecutor(1).description == "1 thread"
    assert ThreadExecutor(2).description == "2 threads"


def test_a_plain_call_leaves_no_thread_behind():
    before = threading.active_count()
    problem = regression_problem(60)
    problem.condition(cagp.GaussSeidel(1))
    assert threading.active_count() == before

    def stop(progress):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        problem.condition(cagp.GaussSeidel(3), progress=stop)
    assert threading.active_count() == before


def test_many_tasks_from_many_threads():
    """Submitting is safe from several threads at once."""
    with ThreadExecutor(2) as executor:
        totals = []

        def submit_and_sum():
            handles = [executor.submit(np.add, index, 1) for index in range(200)]
            totals.append(executor.submit(sum, handles).result())

        threads = [threading.Thread(target=submit_and_sum) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60.0)
    assert totals == [sum(range(1, 201))] * 4
