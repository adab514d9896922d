"""Solves on more workers, measured, beside how many workers the plan says can be busy.

    python -m pipelines.benchmarks.scaling [--quick] [--points N] [--solver NAME]

Solves run with Dask worker processes of one thread on this machine, n = 16,384 or as asked, q = 100, 2
sweeps, no tile skipped. Conjugate gradients have twice as many points: of a solve of less than a second
Dask takes as much as the work, and how much depends on the machine. Of two solves, after one that loads
code and touches memory for the first time, the faster one is told. Other processes make wall clocks longer,
so the load average stands beside them, and the processor time of the busiest worker, of driver and of
scheduler, which has a process of its own. All in seconds. As root on Linux ``chrt -r 5`` before the command
keeps other processes off.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from typing import NamedTuple

import numpy as np

import cagp_dist as cagp
from cagp_dist.budget import Demand, Plan
from cagp_dist.budget.workers import most_useful
from cagp_dist.runtime import SerialExecutor
from cagp_dist.solvers import Solver
from pipelines.experiments.output import parser

TARGETS, FIELDS, SWEEPS, BLOCK, COARSE, REPEATS = 100, 1, 2, 1024, 256, 2
LENGTHSCALE = 1.0
TIMES_AS_MANY = {"conjugate gradients": 2}
"""Points of some solvers, over those of the others."""


def solvers(block: int) -> dict[str, Solver]:
    """Solvers that are measured."""
    return {
        "block Gauss-Seidel": cagp.BlockGaussSeidel(SWEEPS, block),
        "two-level block Jacobi": cagp.TwoLevelBlockJacobi(SWEEPS, block, COARSE),
        "conjugate gradients": cagp.ConjugateGradient(2 * SWEEPS),
    }


def plan_of(solver: Solver, n: int, q: int, workers: int) -> Plan:
    """Plan for Dask workers whose memory suffices."""
    return solver.plan(Demand(n, q, FIELDS, False, workers, False, 2**50))


def serve(workers: int, parent: Connection) -> None:
    """Keep a cluster of worker processes with one thread each, until the parent says something or is gone."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster:
        parent.send(cluster.scheduler_address)
        parent.poll(None)


@contextmanager
def cluster(workers: int) -> Iterator[str]:
    """Address of a cluster whose scheduler, as in earnest, is not in the process of the driver."""
    spawning = multiprocessing.get_context("spawn")
    here, there = spawning.Pipe()
    process = spawning.Process(target=serve, args=(workers, there))
    process.start()
    there.close()
    try:
        yield here.recv()
    finally:
        here.close()
        process.join()


def measured(n: int, block: int, names: Sequence[str]) -> None:
    """Print what was measured with 1, 2 and 4 workers, and how many can be busy."""
    head = ("solver", "n", "workers", "can be busy", "serial", "wall clock", "busiest worker")
    print(f"| {' | '.join((*head, 'driver', 'scheduler', 'load'))} |")
    for name in names:
        points = TIMES_AS_MANY.get(name, 1) * n
        generator, solver = np.random.default_rng(0), solvers(block)[name]
        X, X_test = (generator.standard_normal((count, 3)) for count in (points, TARGETS))
        X /= np.linalg.norm(X, axis=1)[:, None]
        X_test /= np.linalg.norm(X_test, axis=1)[:, None]
        prior, y = cagp.Prior(cagp.Matern32(LENGTHSCALE), 0.024), generator.standard_normal(points)
        solve = partial(cagp.condition, prior, X, y, X_test, solver=solver)
        serial = serial_seconds(solve)
        for workers in (1, 2, 4):
            found = on_workers(solve, workers)
            figures = (*(f"{each:.2f}" for each in (serial, *found)), f"{os.getloadavg()[0]:.1f}")
            busy = most_useful(plan_of(solver, points, TARGETS, workers))
            row = (name, f"{points:,}", str(workers), f"{busy:,}", *figures)
            print(f"| {' | '.join(row)} |", flush=True)
    print(flush=True)


class Measured(NamedTuple):
    """Wall clock of a solve, and processor time of the busiest worker, the driver and the scheduler."""

    wall: float
    busiest: float
    driver: float
    scheduler: float


def serial_seconds(solve: Callable[..., object]) -> float:
    """Processor time of a serial solve in this process."""
    found = []
    for _ in range(1 + REPEATS):
        started = time.process_time()
        solve(executor=SerialExecutor())
        found.append(time.process_time() - started)
    return min(found[1:])


def on_workers(solve: Callable[..., object], workers: int) -> Measured:
    """Measure the faster one of two solves on a new cluster."""
    from distributed import Client

    found = []
    with (
        cluster(workers) as address,
        Client(address, set_as_default=False) as client,
        cagp.open_executor(address) as executor,
    ):
        for _ in range(1 + REPEATS):
            before, scheduler = client.run(time.process_time), client.run_on_scheduler(time.process_time)
            began, driver = time.perf_counter(), time.process_time()
            solve(executor=executor)
            wall, driver = time.perf_counter() - began, time.process_time() - driver
            scheduler = client.run_on_scheduler(time.process_time) - scheduler
            busiest = max(end - before[worker] for worker, end in client.run(time.process_time).items())
            found.append(Measured(wall, busiest, driver, scheduler))
    return min(found[1:])


def main() -> None:
    """Measure."""
    made = parser(__doc__)
    names = list(solvers(BLOCK))
    made.add_argument("--points", type=int, help="n (16,384; with --quick 4,096)")
    made.add_argument("--solver", nargs="+", choices=names, default=names, help="only these", metavar="NAME")
    chosen = made.parse_args()
    usual, block = (4096, 512) if chosen.quick else (16_384, BLOCK)
    measured(chosen.points or usual, block, chosen.solver)


if __name__ == "__main__":
    main()
