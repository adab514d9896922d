"""What a job is going to cost: points, tiles, tasks, bytes and seconds, before any work."""

import os
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from cagp_dist.budget import Demand, Plan
from cagp_dist.era5.canonical import Points
from cagp_dist.errors import ConfigurationError
from cagp_dist.runtime import open_executor
from cagp_dist.service.design import Design, map_cells
from cagp_dist.service.fit import fit_sites, fitted_to
from cagp_dist.service.ingest import peek
from cagp_dist.service.solve import solver_of
from cagp_dist.service.tables import Job, RandomPoints
from cagp_dist.service.task import Task, choose, solver_on
from cagp_dist.solvers import Solver

_GLOBE = (90.0, 0.0, -90.0, 360.0)
_JOB_QUEUE_WORKERS = 2
_JOB_QUEUE_BYTES = 4 * 2**30


@dataclass(frozen=True)
class Size:
    """How large a solve is.

    Attributes
    ----------
    observed, tested, mapped, times : int
        Training points, test points, map cells, and times.
    """

    observed: int
    tested: int
    mapped: int
    times: int

    def line(self) -> str:
        """Say it in one line."""
        times = f"{self.times:,} time{'s' if self.times > 1 else ''}"
        return (
            f"{self.observed:,} points observed, {self.tested:,} held out, {self.mapped:,} map cells, {times}"
        )


@dataclass(frozen=True)
class JobPlan:
    """Size of a job and the plan of its solver.

    Attributes
    ----------
    size : Size
    plan : Plan
    solves : int
        How often the plan is carried out.
    fit : str
        What is fitted before, empty if nothing is. It is not part of the plan's bytes and seconds.
    """

    size: Size
    plan: Plan
    solves: int
    fit: str = ""

    def lines(self) -> list[str]:
        """Return the plan as sentences for people."""
        text = [self.fit] * bool(self.fit) + self.plan.lines()
        if self.solves > 1:
            text.append(f"{self.solves} such solves, one for each time: the solver follows the values")
        return text


def plan_job(job: Job) -> JobPlan:
    """Plan a job without writing anything.

    Parameters
    ----------
    job : Job
        A checked job file. Local sources are read, remote ones are never asked; of a batch system no
        worker is asked for.

    Returns
    -------
    JobPlan

    Raises
    ------
    BudgetError
        If the solve does not fit into the memory that was allowed; the text has the numbers.
    ConfigurationError
        If the design is impossible, or depends on a remote field that was not ingested yet.
    DataError
        If a local field is missing or damaged.
    ClusterError
        If the scheduler does not answer.
    """
    seen = _seen(job)
    size, scheduler = _size(job, seen), scheduler_of(job)
    solver = solver_of(job) if seen is None else solver_on(job, *seen)
    if scheduler in ("slurm", "pbs"):
        crew = Crew(workers=job.cluster.workers or _JOB_QUEUE_WORKERS)
        found = plan_solve(job, size, solver, crew)
    else:
        with open_executor(scheduler, workers=job.cluster.workers) as executor:
            found = plan_solve(job, size, solver, executor)
    if job.prior.numbers is not None:
        return found
    return replace(
        found, fit=f"the three numbers of [prior] are fitted first, to {_fitted_to(job, size, seen)}"
    )


def _fitted_to(job: Job, size: Size, seen: tuple[Points, Design] | None) -> str:
    fit_to = job.prior.fit_to
    if seen is None:
        return fitted_to(fit_to, observed=size.observed, field=None)
    points, design = seen
    return fit_sites(points, design.train, fit_to=fit_to).where


class Workforce(Protocol):
    """What a plan asks of an executor."""

    @property
    def workers(self) -> int: ...

    @property
    def processes(self) -> int: ...

    @property
    def memory_bytes(self) -> int: ...

    @property
    def shares_memory(self) -> bool: ...


@dataclass(frozen=True)
class Crew:
    """Workers that are not there yet: single-threaded processes with the usual memory."""

    workers: int
    shares_memory: bool = False

    @property
    def processes(self) -> int:
        """As many as workers."""
        return self.workers

    @property
    def memory_bytes(self) -> int:
        """Memory of all of them."""
        return _JOB_QUEUE_BYTES * self.workers


def plan_solve(job: Job, size: Size, solver: Solver, workforce: Workforce) -> JobPlan:
    """Plan the solve of a job on given workers; raises `BudgetError` if it does not fit."""
    together = size.times if solver.many_fields else 1
    plan = solver.plan(
        Demand(
            n=size.observed,
            q=size.tested + size.mapped,
            fields=together,
            full_covariance=False,
            workers=workforce.workers,
            shares_memory=workforce.shares_memory,
            memory_limit_bytes=memory_limit(job, workforce) or workforce.memory_bytes,
        )
    )
    return JobPlan(size=size, plan=plan, solves=size.times // together)


def memory_limit(job: Job, workforce: Workforce) -> int | None:
    """Bytes that all workers together may allocate; None leaves it to the free memory of this machine.

    The limit of a job is that of a worker; threads of one process are one worker.
    """
    limit = job.cluster.memory_limit
    return limit if limit is None else limit * workforce.processes


def scheduler_of(job: Job) -> str:
    """Where the work is done: the job file, else ``DASK_SCHEDULER_ADDRESS``, else this process."""
    return job.cluster.scheduler or os.environ.get("DASK_SCHEDULER_ADDRESS") or "local"


def size_of_task(task: Task) -> Size:
    """Count the points of a task."""
    return _counted(task.points, task.design)


def size_of_job(job: Job) -> Size:
    """Count the points of a job; see `plan_job` for what is read and raised."""
    return _size(job, _seen(job))


def _counted(points: Points, design: Design) -> Size:
    return Size(
        observed=design.train.size,
        tested=design.test.size,
        mapped=0 if design.cells is None else design.cells.size,
        times=points.times.size,
    )


def _seen(job: Job) -> tuple[Points, Design] | None:
    """Points of a job whose field can be looked at without a download."""
    field = peek(job, report=lambda text: None)
    return None if field is None else choose(job, field)


def _size(job: Job, seen: tuple[Points, Design] | None) -> Size:
    if seen is not None:
        return _counted(*seen)
    design, table = job.design, job.observations
    if (
        table.times is None
        or not isinstance(design.train, RandomPoints)
        or not isinstance(design.test, RandomPoints)
    ):
        raise ConfigurationError(
            f"the plan depends on the field, and {table.source} was not read yet. Run `cagp ingest` with the "
            "same job first, or give observations.times and choose train and test at random, by count."
        )
    mapped = 0
    if design.map is not None:
        area = design.map.area or table.area or _GLOBE
        somewhere = design.map.model_copy(update={"area": area})
        mapped = map_cells(somewhere, np.empty(0), np.empty(0)).size
    return Size(observed=design.train.count, tested=design.test.count, mapped=mapped, times=len(table.times))
