"""Plans on workers that need not be there: what each holds, and how many can be busy."""

import pytest

import cagp_dist as cagp
from cagp_dist.budget import Demand, Plan
from cagp_dist.budget.workers import Crew, most_useful, worker_bytes, worker_lines
from cagp_dist.memory import PROCESS_BYTES


def plan_of(solver, n=100_000, q=1000, workers=1) -> Plan:
    return solver.plan(Demand(n, q, 1, False, workers, False, 2**50))


@pytest.mark.parametrize(
    ("fewer", "more"),
    [
        (
            cagp.BlockGaussSeidel(5, 1024),
            cagp.BlockJacobi(5, 1024),
        ),  # blocks at once
        (cagp.BlockGaussSeidel(5, 4096), cagp.BlockGaussSeidel(5, 1024)),
        (cagp.BlockGaussSeidel(5, 1024), cagp.BlockGaussSeidel(5, 1024, order="multicolour")),
    ],
)
def test_the_more_tasks_wait_for_each_other_the_fewer_workers_are_busy(fewer, more):
    few, many = (plan_of(solver, workers=256) for solver in (fewer, more))
    assert 1 < most_useful(few) < most_useful(many)
    assert most_useful(plan_of(fewer, n=10**6, workers=256)) > most_useful(few)


def test_products_are_cut_into_strips_and_cells_stand_alone():
    assert most_useful(plan_of(cagp.ConjugateGradient(10))) in range(16, 40)
    cells = plan_of(cagp.Neighbours(64), 10**6, 10**6)
    assert 1 < most_useful(cells) <= cells.tasks
    assert cells.chain_flops > 10**6 * 1000  # the process that asks finds the neighbours of all
    assert most_useful(plan_of(cagp.Cholesky(), n=500)) == 0  # not counted


def test_threads_of_a_worker_share_its_memory():
    plan = plan_of(cagp.BlockGaussSeidel(5, 1024), workers=16)
    held = [worker_bytes(plan, Crew(processes, 16 // processes)) for processes in (16, 4, 2, 1)]
    assert held == sorted(held)
    assert held[-1] == PROCESS_BYTES + plan.peak_bytes - plan.caller_bytes
    assert held[0] >= PROCESS_BYTES + (plan.peak_bytes - plan.caller_bytes) / 16
    text = worker_lines(plan, Crew(2, 8))
    assert len(text) == 3
    assert "2 workers with 8 threads each" in text[1]
