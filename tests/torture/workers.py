"""Solves on a Dask cluster whose workers are killed or frozen."""

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from itertools import cycle, islice
from pathlib import Path

import numpy as np
from distributed import LocalCluster

import cagp_dist as cagp
from cagp_dist.errors import ClusterError
from cagp_dist.runtime import SerialExecutor, open_executor
from cagp_dist.runtime.dask import DaskExecutor
from cagp_dist.runtime.deadlines import Deadlines
from cagp_dist.runtime.supervision import call_in_thread, has_ended
from cagp_dist.store.memo import FolderMemo

from ..clusters import Processes, local_cluster
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


def killed_workers(count: int, rng: np.random.Generator, folder: Path, *, points: int = POINTS) -> Row:
    """Kill one of two workers, at a random moment of a solve; its nanny starts another."""
    row = Row("SIGKILL of a worker during a solve")
    problem = regression_problem(points, q=100, lengthscale=0.1)
    expected = [solved(problem, solver, SerialExecutor()) for solver in SOLVERS]
    with local_cluster(2) as client:
        client.wait_for_workers(2, timeout=PATIENCE_SECONDS)
        undisturbed = [
            timed(partial(solved, problem, solver, DaskExecutor(client)), repetitions=3) for solver in SOLVERS
        ]
        for which in islice(cycle(range(len(SOLVERS))), most_tries(count)):
            if row.runs == count:
                break
            client.wait_for_workers(2, timeout=PATIENCE_SECONDS)
            victim = list(client.cluster.workers.values())[rng.integers(2)].pid
            kept = FolderMemo(folder / f"kept-{rng.integers(2**40)}", seconds=1.0)
            call = partial(solved, problem, SOLVERS[which], DaskExecutor(client), checkpoints=kept)
            disturbed = Disturbed(
                call,
                partial(os.kill, victim, signal.SIGKILL),
                after=rng.uniform(0.05, 0.9) * undisturbed[which],
                deadline=undisturbed[which] + PATIENCE_SECONDS,
            )
            if disturbed.hit:
                row.begin(count)
                if not disturbed.judge(row, expected[which]):
                    return row
                row.ratios.append(disturbed.seconds / undisturbed[which])
                _wait_for_another(client.cluster, victim)
    row.must_have("kills hit a solve", row.runs, at_least=count)
    shortest, longest = min(undisturbed), max(undisturbed)
    row.notes.append(f"undisturbed solves take {shortest:.1f} to {longest:.1f} s on two workers")
    if row.ratios:
        half, most = np.quantile(row.ratios, [0.5, 0.9])
        row.notes.append(f"of the walls half are below {half:.1f}x, nine of ten below {most:.1f}x")
    return row


def timed(call: Callable[[], object], *, repetitions: int) -> float:
    """Shortest wall time of some calls; the first compiles in the workers."""
    times = []
    for _ in range(repetitions):
        began = time.monotonic()
        call()
        times.append(time.monotonic() - began)
    return min(times)


def most_tries(count: int) -> int:
    """How often to try to hit something so often, where it may be over before."""
    return 20 + 10 * count


class Disturbed:
    """A solve that is struck after some seconds, and either ends by its deadline or not.

    Parameters
    ----------
    call : callable
        The solve, done in a thread of its own.
    strike : callable
        What is done to its cluster.
    after, deadline : float
        Seconds from the beginning.

    Attributes
    ----------
    hit : bool
        Whether the strike came before the end.
    seconds : float
        From the beginning to the end.
    """

    def __init__(
        self,
        call: Callable[[], cagp.Posterior],
        strike: Callable[[], object],
        *,
        after: float,
        deadline: float,
    ) -> None:
        began = time.monotonic()
        self._call, self._deadline = call_in_thread(call), deadline
        self.hit = not has_ended(self._call, after)
        if self.hit:
            strike()
        self._done = has_ended(self._call, deadline - after)
        self.seconds = time.monotonic() - began

    def judge(self, row: Row, expected: cagp.Posterior) -> bool:
        """Count the result of the solve, or note that there is none; whether it has ended at all."""
        row.expect(self._done, f"no result and no error {self._deadline:g} s after the beginning")
        if self._done:
            try:
                row.count(same=same_bits(self._call.result(), expected))
            except ClusterError as error:
                row.expect(False, f"no result: {error}")
        return self._done


def _wait_for_another(cluster: LocalCluster, victim: int) -> None:
    """Wait until there are two workers again."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        there = {nanny.pid for nanny in cluster.workers.values() if nanny.pid}
        if victim not in there and len(there) == 2:
            return
        if time.monotonic() > until:
            raise TimeoutError(f"no nanny started another worker within {PATIENCE_SECONDS:g} s")
        time.sleep(0.1)


def frozen_workers(count: int, rng: np.random.Generator, folder: Path) -> Row:
    """Freeze a worker at a random moment of a solve: the others get its tasks."""
    row = Row("SIGSTOP of a worker during a solve")
    problem, solver = regression_problem(POINTS, q=100, lengthscale=0.1), SOLVERS[0]
    expected = solved(problem, solver, SerialExecutor())
    longest, missed = 0.0, 0
    with Processes(folder / "frozen.json") as cluster:
        for _ in range(most_tries(count)):
            if row.runs == count:
                break
            cluster.wait_for_workers()
            frozen = int(rng.integers(2))
            with open_executor(cluster.file, deadlines=IMPATIENT) as executor:
                call = partial(solved, problem, solver, executor)
                shortest = timed(call, repetitions=2)
                disturbed = Disturbed(
                    call,
                    partial(os.kill, cluster.workers[frozen].pid, signal.SIGSTOP),
                    after=rng.uniform(0.05, 0.8) * shortest,
                    deadline=shortest + PATIENCE_SECONDS,
                )
                if disturbed.hit:
                    row.begin(count)
                    row.expect(stopped(cluster.workers[frozen].pid), "the worker went on by itself")
                    if not disturbed.judge(row, expected):
                        return row
                    lost = disturbed.seconds - shortest
                    longest, missed = max(longest, lost), missed + (lost > IMPATIENT.silence_seconds)
            cluster.replace(frozen)
    row.must_have("workers frozen during a solve", row.runs, at_least=count)
    row.must_have("of them had tasks that were waited for", missed, at_least=count // 2)
    row.notes.append(f"silence_seconds = {IMPATIENT.silence_seconds:g}; {longest:.1f} s were lost at most")
    return row


def stopped(process: int) -> bool:
    """Whether a process is there and stopped by a signal."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def kill_storms(count: int, rng: np.random.Generator, folder: Path, *, seconds: float) -> Row:
    """Kill all workers as soon as they have begun: a result or a named error by the deadline.

    Solves that get through are followed by others until the storm is over; then the last goes on from its
    checkpoints.
    """
    row = Row(f"a storm of {seconds:g} s: all workers killed as soon as new ones have begun")
    problem, solver = regression_problem(POINTS, q=100, lengthscale=0.1), cagp.BlockGaussSeidel(20, 100)
    expected = solved(problem, solver, SerialExecutor())
    kills, through, longest = 0, 0, 0.0
    for _ in range(count):
        row.begin(count)
        with Processes(folder / f"storm-{row.runs}.json") as cluster:
            kept = FolderMemo(folder / f"storm-{row.runs}-0", seconds=0.5)
            until = time.monotonic() + seconds
            while time.monotonic() < until:  # each round is an attempt, as a job makes them
                call = call_in_thread(partial(_attempt, cluster.file, problem, solver, kept))
                while time.monotonic() < until and not has_ended(call, float(rng.uniform(0.2, 3.0))):
                    for number in range(2):
                        cluster.replace(number)
                    kills += 2
                if not has_ended(call, PATIENCE_SECONDS):
                    row.expect(False, f"no result and no error {PATIENCE_SECONDS:g} s after the storm")
                    return row
                try:
                    row.expect(same_bits(call.result(), expected), "another result in the storm")
                except ClusterError:
                    row.named_errors += 1
                else:
                    through += 1
                    kept = FolderMemo(folder / f"storm-{row.runs}-{through}", seconds=0.5)
            longest = max(longest, time.monotonic() - until)
            cluster.wait_for_workers()
            attempt = partial(_attempt, cluster.file, problem, solver, kept)
            calm = Disturbed(attempt, lambda: None, after=0.0, deadline=2.0 * PATIENCE_SECONDS)
            if not calm.judge(row, expected):
                return row
    row.must_have("kills", kills, at_least=2 * count)
    row.must_have("attempts in a storm ended", through + row.named_errors, at_least=count)
    row.notes.append(
        f"{through} of them with the result; the last attempt of a storm ended {max(0.0, longest):.0f} s "
        "after it, the next went on from its checkpoints"
    )
    return row


def _attempt(
    file: str, problem: RegressionProblem, solver: cagp.BlockGaussSeidel, kept: FolderMemo
) -> cagp.Posterior:
    with open_executor(file, deadlines=IMPATIENT) as executor:
        return solved(problem, solver, executor, checkpoints=kept)
