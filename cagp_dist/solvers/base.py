"""What a solver gets and yields: a problem in, a generator of states out."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from cagp_dist.budget import Demand, Plan
from cagp_dist.gram.base import Array
from cagp_dist.gram.tiled import TiledGram
from cagp_dist.runtime import Executor
from cagp_dist.solvers.status import Status


@dataclass(frozen=True, eq=False)
class Problem:
    """Solve ``G v = b`` as far as the test points need it (math 0).

    Attributes
    ----------
    gram : TiledGram
        ``G`` of n observed points.
    residuals : array, shape (n, T)
        ``b = y - m0(X)``, one column per field.
    test_points : array, shape (q, p)
        ``X'``; ``V = k(X', X)``.
    full_covariance : bool
        Whether the whole downdate ``V D V'`` is wanted, not only its diagonal.
    """

    gram: TiledGram
    residuals: Array
    test_points: Array
    full_covariance: bool


@dataclass(frozen=True, eq=False)
class State:
    """The belief after some iterations, for a range of test points.

    Attributes
    ----------
    iteration : int
        Iterations done, from 1.
    columns : slice
        Test points this state speaks of; batches of test points follow each other.
    mean : array, shape (columns, T)
        ``V vbar``: what is added to the prior mean.
    downdate : array, shape (columns,), or (q, q) for a full covariance
        ``V D V'``: what is subtracted from the prior covariance.
    status : Status
        How the solve would end here.
    relative_residual : float or None
        ``|b - G v| / |b|`` where the solver follows it.
    """

    iteration: int
    columns: slice
    mean: Array
    downdate: Array
    status: Status = Status.COMPLETED
    relative_residual: float | None = None

    @property
    def ends_early(self) -> bool:
        """Whether the solve ends here, whatever was asked for."""
        return self.status in (Status.CONVERGED, Status.BREAKDOWN)


class Solver(Protocol):
    """A frozen dataclass of settings.

    Attributes
    ----------
    iterations : int
        Sweeps or actions asked for; 0 returns the prior.
    calibrated : bool
        Whether the matrix that maps data to estimate is independent of the data (math 1.1); only
        then is the stated variance exactly the variance of the error.
    many_fields : bool
        Whether several fields observed at the same points share one solve.
    """

    @property
    def iterations(self) -> int: ...

    @property
    def calibrated(self) -> bool: ...

    @property
    def many_fields(self) -> bool: ...

    def plan(self, demand: Demand) -> Plan:
        """Decide tiles, tasks and bytes; raise `BudgetError` if they do not fit."""
        ...

    def states(self, problem: Problem, *, executor: Executor, plan: Plan) -> Iterator[State]:
        """Iterate; each state replaces the one before it for its test points."""
        ...
