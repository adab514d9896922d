"""The model of more workers: its limits, what must grow and what must fall, and what it is told."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest

import cagp_dist as cagp
from cagp_dist.budget import Demand, Plan
from cagp_dist.budget.network import Network
from cagp_dist.budget.plan import ENTRY_NANOSECONDS, FLOP_NANOSECONDS
from cagp_dist.budget.scaling import (
    LIMITS,
    SERIAL_FLOP,
    Crew,
    best,
    rounds,
    scaling,
    scaling_lines,
    worker_bytes,
)
from cagp_dist.errors import ConfigurationError
from cagp_dist.memory import PROCESS_BYTES

NOTHING = {"task_seconds": 0.0, "worker_task_seconds": 0.0, "hop_seconds": 0.0}
FREE = Network(float("inf"), 0.0)
CLUSTER = Network.parsed("10Gb", "50us")
WORKERS = (1, 2, 3, 8, 64, 1000)
SOLVERS = [
    cagp.GaussSeidel(2),
    cagp.BlockGaussSeidel(5, 1024),
    cagp.BlockGaussSeidel(5, 1024, order="multicolour"),
    cagp.BlockJacobi(5, 1024),
    cagp.TwoLevelBlockGaussSeidel(5, 1024, 256),
    cagp.TwoLevelBlockJacobi(5, 1024, 256),
    cagp.Chebyshev(3),
    cagp.ConjugateGradient(10),
    cagp.Neighbours(16),
]


def free_of(plan, workers, network=FREE, **seconds):
    """Scaling where tasks cost nothing beside their work, unless said otherwise."""
    return scaling(plan, Crew(workers), network, **{**NOTHING, **seconds})


def plan_of(solver, n=100_000, q=1000, workers=1) -> Plan:
    return solver.plan(Demand(n, q, 1, False, workers, False, 2**50))


@pytest.mark.parametrize("solver", SOLVERS, ids=[str(each) for each in range(len(SOLVERS))])
@pytest.mark.parametrize(("n", "q"), [(700, 3), (100_000, 1000)])
def test_limits_of_the_model(solver, n, q):
    plan = plan_of(solver, n, q)
    work = 1e-9 * (ENTRY_NANOSECONDS * plan.gram_entries + FLOP_NANOSECONDS * plan.flops)
    k = plan.cycle.coarse  # whose columns are made at a quarter of the speed of tiles
    work += 1e-9 * FLOP_NANOSECONDS * (SERIAL_FLOP - 1.0) * 10 * n * k**2
    one = free_of(plan, 1, CLUSTER)
    assert one.seconds == pytest.approx(work, rel=1e-9)  # on one worker: all tasks, one after the other
    assert one.efficiency == pytest.approx(1.0)
    for workers in WORKERS:
        free = free_of(plan, workers)
        assert free.serial_seconds == pytest.approx(work, rel=1e-9)  # what is done twice is no work
        path = sum(each.times * each.chain for each in rounds(plan, Crew(workers)))
        assert max(work / workers, path) <= free.seconds * (1 + 1e-9)
        assert free.seconds <= (work + path) * (1 + 1e-9)
        # nothing that costs something makes it faster
        costly = [
            free_of(plan, workers, replace(CLUSTER, latency_seconds=latency), task_seconds=task).seconds
            for latency, task in ((0.0, 0.0), (1e-4, 0.0), (1e-4, 1e-3), (1e-2, 1e-2))
        ]
        assert [free.seconds, *costly] == sorted([free.seconds, *costly])
        slower = free_of(plan, workers, Network(1e6, 50e-6)).seconds
        assert slower >= free_of(plan, workers, CLUSTER).seconds
        busier = free_of(plan, workers, CLUSTER, worker_task_seconds=1e-2)
        assert busier.seconds >= free_of(plan, workers, CLUSTER).seconds
        assert busier.efficiency < 1.0
        # the scheduler never hands out more than it can
        assert scaling(plan, Crew(workers), CLUSTER).tasks_per_second <= 1000.0 * (1 + 1e-9)
    # the more workers at no cost, the faster, as long as they share evenly
    even = [free_of(plan, 2**power).seconds for power in range(5)]
    assert all(later <= earlier * (1 + 1e-9) for earlier, later in pairwise(even))


@pytest.mark.parametrize("solver", SOLVERS, ids=[str(each) for each in range(len(SOLVERS))])
def test_every_term_of_a_sum_of_kernels_is_work(solver):
    one, three = (
        solver.plan(Demand(100_000, 50, 1, False, 1, False, 2**50, kernel_parts=parts)) for parts in (1, 3)
    )
    more = 2e-9 * ENTRY_NANOSECONDS * one.gram_entries
    assert one.gram_entries == three.gram_entries
    work = [free_of(plan, 1).serial_seconds for plan in (one, three)]
    assert work[1] - work[0] == pytest.approx(more, rel=1e-6)


@pytest.mark.parametrize("solver", [SOLVERS[1], SOLVERS[3]], ids=["sweeps", "at-once"])
@pytest.mark.parametrize("workers", [2, 16, 256])
def test_tasks_of_the_model_are_those_of_the_plan(solver, workers):
    plan = plan_of(solver, workers=workers)
    counted = sum(each.times * each.tasks for each in rounds(plan, Crew(workers)))
    assert counted == pytest.approx(plan.tasks, rel=0.02)


def test_threads_of_a_worker_share_its_memory_and_its_messages():
    plan = plan_of(SOLVERS[1], workers=16)
    shared, alone, one = (
        scaling(plan, crew, FREE, **NOTHING) for crew in (Crew(2, 8), Crew(16), Crew(1, 16))
    )
    assert shared.seconds == pytest.approx(alone.seconds)
    assert one.seconds <= alone.seconds  # no tile is solved ahead
    slow = Network(1e4, 0.0)
    assert scaling(plan, Crew(16), slow).limit == scaling(plan, Crew(4, 4), slow).limit == "messages"
    assert scaling(plan, Crew(4, 4), slow).seconds < scaling(plan, Crew(16), slow).seconds / 2
    assert scaling(plan, Crew(1, 16), slow).limit != "messages"
    held = [worker_bytes(plan, Crew(processes, 16 // processes)) for processes in (16, 4, 2, 1)]
    assert held == sorted(held)
    assert held[-1] == PROCESS_BYTES + plan.peak_bytes - plan.caller_bytes
    assert held[0] >= PROCESS_BYTES + (plan.peak_bytes - plan.caller_bytes) / 16


def test_more_threads_than_a_scheduler_feeds_make_sweeps_no_slower():
    found = [
        scaling(plan_of(SOLVERS[1], 10**6, 3000, 8 * processes), Crew(processes, 8), CLUSTER).seconds
        for processes in (2, 16, 128, 1024)
    ]
    assert found[0] > found[1] > found[2]
    assert found[3] == pytest.approx(found[2], rel=0.05)


def test_neighbours_are_found_by_the_process_that_asks():
    plan = plan_of(cagp.Neighbours(64), 10**8, 10**6, 4096)
    found = scaling(plan, Crew(512, 8), CLUSTER)
    assert found.limit == "caller"
    assert found.seconds > 100.0  # a microsecond for each observation, however many workers there are
    assert plan.tasks == plan.cycle.cells <= 1024
    assert plan.caller_bytes > 8 * 3 * 10**8
    assert scaling(plan_of(cagp.Neighbours(64), 10**6, 10**6), Crew(2), CLUSTER).limit == "work"


def test_sweeps_wait_for_every_block_and_updates_at_once_do_not():
    slow = Network(float("inf"), 1e4)
    B, sweeps, batches = 98, 5, 1  # two column groups run at the same time
    for solver, waits in ((SOLVERS[1], B), (SOLVERS[2], 2 * 4), (SOLVERS[3], 2)):
        plan = plan_of(solver)
        waited = free_of(plan, 64, slow).seconds
        assert waited == pytest.approx(2e4 * waits * sweeps * batches, rel=0.01)


def test_what_limits_is_said():
    plan = plan_of(SOLVERS[1])
    assert scaling(plan, Crew(2), CLUSTER).limit == "work"
    assert scaling(plan, Crew(256), Network.parsed("10Mb", "1us")).limit == "messages"
    assert scaling(plan, Crew(256), Network.parsed("10Gb", "10s")).limit == "chain"
    assert scaling(plan, Crew(256), FREE, task_seconds=1.0).limit == "scheduler"
    assert set(LIMITS) == {"work", "messages", "chain", "scheduler"}
    fastest = best(plan, CLUSTER)
    assert all(fastest.seconds <= scaling(plan, Crew(2**power), CLUSTER).seconds for power in range(11))
    text = "\n".join(scaling_lines(plan, Crew(256), CLUSTER))
    assert re.match(r"time about \S+ \w+ on 256 workers, efficiency \d+%", text)
    assert f"fastest of 1, 2, 4 ... 1,024 workers: {fastest.crew.processes:,}, about" in text


def test_what_is_not_modelled_is_refused_by_name():
    for solver in (cagp.Cholesky(), cagp.ConjugateGradient(5, preconditioner="nystrom")):
        with pytest.raises(ConfigurationError, match=r"there is no model of .* Leave out --workers"):
            scaling(plan_of(solver, n=500), Crew(4), CLUSTER)
    with pytest.raises(ConfigurationError, match="no solves on 0 workers; expected at least 1"):
        scaling(plan_of(SOLVERS[1]), Crew(0), CLUSTER)


@pytest.mark.parametrize(
    ("bandwidth", "latency", "network"),
    [
        ("10Gb", "50us", Network(1.25e9, 5e-5)),
        ("1.25GB", "0s", Network(1.25e9, 0.0)),
        ("100 Mb", "1ms", Network(1.25e7, 1e-3)),
    ],
)
def test_networks_are_read_with_units(bandwidth, latency, network):
    found = Network.parsed(bandwidth, latency)
    assert found.bytes_per_second == pytest.approx(network.bytes_per_second)
    assert found.latency_seconds == pytest.approx(network.latency_seconds)


@pytest.mark.parametrize(
    ("bandwidth", "latency", "text"),
    [
        ("10", "50us", "bandwidth '10' is not a number with a unit; expected one of kb, Mb, Gb"),
        ("-1Gb", "50us", "bandwidth '-1Gb' is not a number with a unit"),
        ("0Gb", "50us", "bandwidth '0Gb' is zero"),
        ("10Gb", "50", "latency '50' is not a number with a unit; expected one of ns, us, ms, s"),
        ("10Gb", "50Gb", "latency '50Gb' is not a number with a unit"),
    ],
)
def test_networks_without_sense_are_refused(bandwidth, latency, text):
    with pytest.raises(ConfigurationError, match=text):
        Network.parsed(bandwidth, latency)
