"""The model of more workers against measured runs, and to 1,000 workers: a table, and ``scaling.png``.

    python -m pipelines.benchmarks.scaling [--quick] [--output FOLDER] [--points N] [--solver NAME]

Solves run with Dask worker processes of one thread on this machine, n = 16,384 or as asked, q = 100, 2
sweeps, no tile skipped. Conjugate gradients have twice as many points: of a solve of less than a second
Dask takes as much as the work, and how much depends on the machine. The work is that of the plan, times
one factor for this machine: the processor time of a serial solve over what the plan says. Where there are
more workers than cores, work takes longer by their ratio, waiting does not; where they leave no core
free, driver and scheduler, which has a process of its own, take what they need from them. Of two solves,
after one that loads code and touches memory for the first time, the faster one is told. Other processes
make wall clocks longer, so the load average stands beside them, and the processor time of the busiest
worker, of driver and of scheduler. All in seconds. As root on Linux ``chrt -r 5`` before the command
keeps other processes off.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import numpy as np

import cagp_dist as cagp
from cagp_dist.budget import Demand, Plan
from cagp_dist.budget.network import Network
from cagp_dist.budget.plan import DASK_TASK_SECONDS
from cagp_dist.budget.scaling import HOP_SECONDS, WORKER_TASK_SECONDS, Crew, scaling
from cagp_dist.runtime import SerialExecutor
from cagp_dist.solvers import Solver
from pipelines.experiments.output import COLOURS, drawn, parser, print_table

TARGETS, FIELDS, SWEEPS, BLOCK, COARSE, REPEATS = 100, 1, 2, 1024, 256, 2
LENGTHSCALE = 1.0
TIMES_AS_MANY = {"conjugate gradients": 2}
"""Points of some solvers, over those of the others."""

LOOPBACK = Network(4e8, 1e-4)
CLUSTER = Network.parsed("10Gb", "50us")
WORKERS = tuple(1 << power for power in range(11))


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
    """Print what was measured with 1, 2 and 4 workers, and what the model says."""
    head = ("solver", "n", "workers", "serial", "model", "wall clock", "model / wall", "busiest worker")
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
            model = modelled(plan_of(solver, points, TARGETS, workers), workers, serial, found)
            seconds = (serial, model, found.wall, model / found.wall, *found[1:])
            figures = (*(f"{each:.2f}" for each in seconds), f"{os.getloadavg()[0]:.1f}")
            row = (name, f"{points:,}", str(workers), *figures)
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


def modelled(plan: Plan, workers: int, serial: float, found: Measured) -> float:
    """Seconds by the model on the cores of this machine, whose speed is that of the serial solve."""
    cores = os.cpu_count() or 1
    share = min(1.0, cores / workers)  # of a core that a worker has
    factor = serial / scaling(plan, Crew(workers), LOOPBACK).serial_seconds / share
    others = found.driver + found.scheduler if workers >= cores else 0.0
    return others / cores + factor * (
        scaling(
            plan,
            Crew(workers),
            LOOPBACK,
            task_seconds=DASK_TASK_SECONDS / factor,
            worker_task_seconds=WORKER_TASK_SECONDS / share / factor,
            hop_seconds=HOP_SECONDS / factor,
        ).seconds
    )


def draw(path: Path) -> None:
    """Draw time and efficiency to 1,000 workers, and print them."""
    from matplotlib.ticker import NullFormatter

    rows = []
    chosen = {
        "block Gauss-Seidel": (cagp.BlockGaussSeidel(5, BLOCK), COLOURS["block Gauss-Seidel"]),
        "two-level block Jacobi": (cagp.TwoLevelBlockJacobi(5, BLOCK, COARSE), COLOURS["random actions"]),
    }
    with drawn(path) as figure:
        for place, n in enumerate((10**5, 10**6), start=1):
            axes = figure.add_subplot(1, 2, place)
            for name, (solver, colour) in chosen.items():
                found = [scaling(plan_of(solver, n, 1000, p), Crew(p), CLUSTER) for p in WORKERS]
                axes.loglog(WORKERS, [each.seconds / 60 for each in found], color=colour, label=name)
                fastest = min(found, key=lambda each: each.seconds)
                for each in (found[4], found[8], found[10], fastest):
                    minutes, part = f"{each.seconds / 60:.3g}", f"{each.efficiency:.0%}"
                    rows.append((f"{n:,}", name, str(each.crew.workers), minutes, part, each.limit))
            axes.set(title=f"n = {n:,}", xlabel="workers", ylabel="minutes, by the model")
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter("{x:,.0f}")
                axis.set_minor_formatter(NullFormatter())
            axes.legend()
    print_table(("n", "solver", "workers", "minutes", "efficiency", "limit"), rows)


def main() -> None:
    """Measure, then draw."""
    made = parser(__doc__)
    names = list(solvers(BLOCK))
    made.add_argument("--points", type=int, help="n (16,384; with --quick 4,096)")
    made.add_argument("--solver", nargs="+", choices=names, default=names, help="only these", metavar="NAME")
    chosen = made.parse_args()
    chosen.output.mkdir(parents=True, exist_ok=True)
    usual, block = (4096, 512) if chosen.quick else (16_384, BLOCK)
    measured(chosen.points or usual, block, chosen.solver)
    draw(chosen.output / "scaling.png")


if __name__ == "__main__":
    main()
