"""Solves on a Dask cluster whose workers are killed or frozen."""

import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import cycle
from pathlib import Path

import numpy as np
from distributed import Client, LocalCluster

import cagp_dist as cagp
from cagp_dist.errors import ClusterError
from cagp_dist.runtime import SerialExecutor, open_executor
from cagp_dist.runtime.dask import DaskExecutor
from cagp_dist.runtime.deadlines import Deadlines
from cagp_dist.runtime.supervision import Call
from cagp_dist.store.checkpoints import Checkpoints

from ..clusters import Processes
from ..oracle import assert_same_bits
from ..problems import RegressionProblem, regression_problem
from .rows import Row

SOLVERS = (cagp.BlockGaussSeidel(6, 150), cagp.ConjugateGradient(8), cagp.Chebyshev(6))
POINTS = 1200
IMPATIENT = Deadlines(silence_seconds=3.0, idle_seconds=12.0, stall_seconds=20.0)
PATIENCE_SECONDS = 120.0
"""The deadlines, two of 20 s for connections, and time for processes to start on a busy machine."""


def solved(problem: RegressionProblem, solver, executor, **settings) -> cagp.Posterior:
    return problem.condition(solver, covariance="diagonal", executor=executor, **settings)


def same_bits(found: cagp.Posterior, expected: cagp.Posterior) -> bool:
    try:
        assert_same_bits(found, expected)
    except AssertionError:
        return False
    return True


def later(seconds: float, strike: Callable[[], None]) -> threading.Timer:
    """Strike from another thread, after so long."""
    timer = threading.Timer(seconds, strike)
    timer.daemon = True
    timer.start()
    return timer


def killed_workers(count: int, rng: np.random.Generator, folder: Path, *, points: int = POINTS) -> Row:
    """Kill one of two workers, at a random moment of a solve; its nanny starts another."""
    row = Row("SIGKILL of a worker during a solve")
    problem = regression_problem(points, q=100, lengthscale=0.1)
    expected = [solved(problem, solver, SerialExecutor()) for solver in SOLVERS]
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.wait_for_workers(2, timeout=PATIENCE_SECONDS)
        undisturbed = []
        for solver in SOLVERS:
            times = []
            for _ in range(3):  # the first compiles in the workers
                began = time.monotonic()
                solved(problem, solver, DaskExecutor(client))
                times.append(time.monotonic() - began)
            undisturbed.append(min(times))
        for which in cycle(range(len(SOLVERS))):
            if row.runs == count:
                break
            client.wait_for_workers(2, timeout=PATIENCE_SECONDS)
            victim = list(cluster.workers.values())[rng.integers(2)].pid
            struck: list[float] = []

            def strike(victim: int = victim, struck: list[float] = struck) -> None:
                os.kill(victim, signal.SIGKILL)
                struck.append(time.monotonic())

            executor, kept = DaskExecutor(client), Checkpoints(folder / f"kept-{row.runs}", seconds=1.0)
            began = time.monotonic()
            timer = later(rng.uniform(0.05, 0.9) * undisturbed[which], strike)
            found = solved(problem, SOLVERS[which], executor, checkpoints=kept)
            ended = time.monotonic()
            timer.join()
            if struck[0] < ended:
                row.begin(count)
                row.took(ended - began, undisturbed[which])
                row.count(same=same_bits(found, expected[which]))
            while not _pids(cluster).isdisjoint({victim}) or len(_pids(cluster)) < 2:
                time.sleep(0.1)
    shortest, longest = min(undisturbed), max(undisturbed)
    row.notes.append(f"undisturbed solves take {shortest:.1f} to {longest:.1f} s on two workers")
    return row


def _pids(cluster: LocalCluster) -> set[int]:
    return {nanny.pid for nanny in cluster.workers.values() if nanny.pid}


def frozen_workers(count: int, rng: np.random.Generator, folder: Path) -> Row:
    """Freeze a worker at a random moment of a solve: the others get its tasks."""
    row = Row("SIGSTOP of a worker during a solve")
    problem, solver = regression_problem(POINTS, q=100, lengthscale=0.1), SOLVERS[0]
    expected = solved(problem, solver, SerialExecutor())
    longest = 0.0
    with Processes(folder / "frozen.json") as cluster:
        while row.runs < count:
            frozen, struck = int(rng.integers(2)), []
            with open_executor(cluster.file, deadlines=IMPATIENT) as executor:
                times = []
                for _ in range(2):  # the first compiles in the workers
                    began = time.monotonic()
                    solved(problem, solver, executor)
                    times.append(time.monotonic() - began)

                def strike(frozen: int = frozen, struck: list[float] = struck) -> None:
                    os.kill(cluster.workers[frozen].pid, signal.SIGSTOP)
                    struck.append(time.monotonic())

                began = time.monotonic()
                timer = later(rng.uniform(0.05, 0.8) * min(times), strike)
                call = Call(partial(solved, problem, solver, executor))
                done = call.done(min(times) + PATIENCE_SECONDS)
                ended = time.monotonic()
                timer.join()
                if not done or struck[0] < ended:
                    row.begin(count)
                    row.expect(done, f"no result and no error after {PATIENCE_SECONDS:g} s")
                if done and struck[0] < ended:
                    longest = max(longest, ended - began - min(times))
                    row.count(same=same_bits(call.value(), expected))
            cluster.replace(frozen)
    row.notes.append(f"silence_seconds = {IMPATIENT.silence_seconds:g}; {longest:.1f} s were lost at most")
    return row


def kill_storms(count: int, rng: np.random.Generator, folder: Path, *, seconds: float) -> Row:
    """Kill all workers as soon as they have begun: a result or a named error by the deadline.

    When the storm is over, the solve goes on from its checkpoints.
    """
    row = Row(f"a storm of {seconds:g} s: all workers killed as soon as new ones have begun")
    problem, solver = regression_problem(POINTS, q=100, lengthscale=0.1), cagp.BlockGaussSeidel(20, 100)
    expected = solved(problem, solver, SerialExecutor())
    kills, longest = 0, 0.0
    for _ in range(count):
        row.begin(count)
        kept = Checkpoints(folder / f"storm-{row.runs}", seconds=0.5)
        with Processes(folder / f"storm-{row.runs}.json") as cluster:
            attempt = partial(_attempt, cluster.file, problem, solver, kept)
            until = time.monotonic() + seconds
            while time.monotonic() < until:  # each round is an attempt, as a job makes them
                call = Call(attempt)
                while time.monotonic() < until and not call.done(float(rng.uniform(0.2, 3.0))):
                    for number in range(2):
                        cluster.replace(number)
                    kills += 2
                if not call.done(PATIENCE_SECONDS):
                    row.expect(False, f"no result and no error {PATIENCE_SECONDS:g} s after the storm")
                    return row
                try:
                    row.expect(same_bits(call.value(), expected), "another result in the storm")
                    break
                except ClusterError:
                    row.named_errors += 1
            longest = max(longest, time.monotonic() - until)
            row.count(same=same_bits(attempt(), expected))
    row.notes.append(
        f"{kills} kills; the last attempt of a storm ended {max(0.0, longest):.0f} s after it, the "
        "next went on from its checkpoints"
    )
    return row


def _attempt(
    file: str, problem: RegressionProblem, solver: cagp.BlockGaussSeidel, kept: Checkpoints
) -> cagp.Posterior:
    with open_executor(file, deadlines=IMPATIENT) as executor:
        return solved(problem, solver, executor, checkpoints=kept)
