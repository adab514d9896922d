"""What a solver gets and yields: a problem in, a generator of states out."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar, cast, runtime_checkable

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget import Demand, Plan
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.exact_variance import ExactVariance
from cagp_dist.gram.gram_matrix import ExactSolve, Gram
from cagp_dist.gram.targets import Targets, target_count
from cagp_dist.runtime import Executor
from cagp_dist.solvers.status import Status
from cagp_dist.tiling import Range

if TYPE_CHECKING:
    from cagp_dist.runtime.memo import Checkpoint

Calibrated = Literal["exact", "conservative", "approximate"]
"""What the stated variance of a solver is, over fields of the prior (math 1.1, 1.6).

``"exact"``: the variance of the error of the mean, after any number of iterations, because the matrix that
maps data to estimate does not depend on the data. ``"conservative"``: never less than that, by a proof.
``"approximate"``: neither is known; the variance may be too large and too small.
"""


@dataclass(frozen=True, eq=False)
class State:
    """The belief after some iterations, for a range of targets.

    Attributes
    ----------
    iteration : int
        Iterations done, from 1.
    columns : slice
        Targets this state covers; batches of targets follow each other.
    mean : array, shape (columns, T)
        ``V A b``: what is added to the prior mean.
    downdate : array, shape (columns,), or (q, q) for a full covariance
        ``V D V'``: what is subtracted from the prior covariance.
    status : Status
        How the solve would end here.
    relative_residual : float or None
        ``|b - G v| / |b|`` where the solver follows it.
    leftover : callable or None
        Returns ``Y0 = V' - G A' V'``, what is not solved yet (math 1.2): one array (n, columns), or columns
        by wavenumber where the targets are a whole grid. To be called before the next state is asked for;
        the last state has it if it was asked for. With mean and downdate it is all that a solve needs to go
        on from here, with any stages.
    active_groups : tuple of (start, stop), or None
        Groups of its targets that this iteration changed; None: all of them.
    downdate_psd : bool
        Whether every stage so far is known to leave a downdate that is positive semidefinite (math 1.4).
    dropped : int
        Actions that were skipped because they lie in the span of earlier ones.
    of_mean : array, the shape of the downdate, or None
        What is added to the covariance for coefficients of the prior mean that are estimated, where there
        are any.
    """

    iteration: int
    columns: slice
    mean: Array
    downdate: Array
    status: Status = Status.COMPLETED
    relative_residual: float | None = None
    leftover: Callable[[], list[Array]] | None = None
    active_groups: tuple[Range, ...] | None = None
    downdate_psd: bool = True
    dropped: int = 0
    of_mean: Array | None = None

    @property
    def ends_early(self) -> bool:
        """Whether the solve ends here, whatever was asked for."""
        return self.status in (Status.CONVERGED, Status.BREAKDOWN, Status.SHARE_REACHED)


def no_op(done: float) -> None:
    """Take the number of an iteration, or the part that is done, where nobody wants to hear of it."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Solve ``G v = b`` as far as the targets need it (math 0).

    Attributes
    ----------
    gram : Gram
        ``G`` of n observed points.
    residuals : array, shape (n, T)
        ``b = y - m0(X)``, one column per field.
    targets : array (q, p), LatLonGrid or LinearFunctionals
        ``X'``; ``V = k(X', X)``, averaged over cells.
    full_covariance : bool
        Whether the whole downdate ``V D V'`` is wanted, not only its diagonal.
    start : State, optional
        Where affine solvers continue from: a state of all targets that kept its leftover. Others refuse it.
    keep_leftover : bool
        Whether the last state keeps its leftover too; without it the last sweep is half the work.
    lanczos_steps : int
        Steps of quadrature after the last iteration of affine solvers, which tighten `exact_variance`.
    extra_right_hand_sides : int
        How many columns of ``residuals``, the last ones, are no fields: they have the same A applied to them,
        which no solver makes from them.
    heard : callable
        Called with the part that is done, 0 to 1, by direct solvers that take long.
    opened : (Gram, ExactSolve) or None
        The exact solve of an exact solver, where it was made before.
    checkpoint : Checkpoint, optional
        Where the solve is kept, so that it can continue from there. Direct solvers keep nothing.
    """

    gram: Gram
    residuals: Array
    targets: Targets
    full_covariance: bool
    start: State | None = None
    keep_leftover: bool = False
    lanczos_steps: int = 0
    extra_right_hand_sides: int = 0
    heard: Callable[[float], None] = no_op
    opened: tuple[Gram, ExactSolve] | None = None
    checkpoint: "Checkpoint | None" = None

    @property
    def fields(self) -> int:
        """Number of fields, T."""
        return int(self.residuals.shape[1]) - self.extra_right_hand_sides

    @property
    def q(self) -> int:
        """Number of targets."""
        return target_count(self.targets)

    @cached_property
    def exact_variance(self) -> ExactVariance:
        """The exact variance at the targets, or bounds of it, worked out when it is asked for."""
        return ExactVariance(self.gram, self.targets)


def check_one_field(fields: int) -> None:
    """Raise `ArgumentError` if there are several fields, for a solver that follows one."""
    if fields > 1:
        raise ArgumentError(
            f"y holds {fields} fields; conjugate gradients follow one residual, so each field has its "
            "own variance. Call condition() once per field, or use BlockGaussSeidel.",
            key="several-fields",
        )


def check_no_start(problem: Problem) -> None:
    """Raise `ArgumentError` if the problem has a state to continue from, which only affine solvers can."""
    if problem.start is not None:
        raise ArgumentError(
            "the problem has a state to start from; only affine solvers can continue from one.",
            key="start-of-solver",
        )


class Solver(Protocol):
    """A frozen dataclass of settings.

    Attributes
    ----------
    iterations : int
        Sweeps or actions asked for; 0 returns the prior.
    calibrated : {"exact", "conservative", "approximate"}
        What the stated variance is to the error, if the prior is right: see `Calibrated`. The docstring of a
        solver says why.
    many_fields : bool
        Whether several fields observed at the same points share one solve.
    needs_grid : bool
        Whether the observed points must be those of a latitude-longitude grid.
    """

    @property
    def iterations(self) -> int: ...

    @property
    def calibrated(self) -> Calibrated: ...

    @property
    def many_fields(self) -> bool: ...

    @property
    def needs_grid(self) -> bool: ...

    def plan(self, demand: Demand) -> Plan:
        """Decide tiles, tasks and bytes; raise `BudgetError` if they do not fit."""

    def states(self, problem: Problem, *, executor: Executor, plan: Plan) -> Iterator[State]:
        """Iterate; each state replaces the one before it for its targets."""


def check_solver(solver: object) -> None:
    """Raise `ArgumentError` unless it is a solver with its settings."""
    if isinstance(solver, type) or not callable(getattr(solver, "states", None)):
        raise ArgumentError(
            f"solver is {solver!r}; expected a solver with its settings, such as "
            "cagp_dist.BlockGaussSeidel(iterations=5).",
            key="solver-type",
        )


@runtime_checkable
class LinearMean(Protocol):
    """A solver that works out ``V A b`` for many right-hand sides without a downdate."""

    def mean(
        self,
        problem: Problem,
        *,
        executor: Executor,
        plan: Plan,
        done: Callable[[int], None] = no_op,
    ) -> tuple[Array, Status]:
        """``V A b`` (q, T), and how that ended; ``done`` is called with the number of every iteration."""


@runtime_checkable
class DirectSolver(Protocol):
    """A solver that leaves nothing uncomputed."""

    def weights(self, problem: Problem, *, executor: Executor) -> tuple[Array, Problem]:
        """``G^-1 b`` (n, T) of the residuals, and the problem with the exact solve that was made for it."""


# Points from which local solvers estimate the coefficients of a mean, at most: 0.1 s for their factor
SOME_POINTS = 2048


@runtime_checkable
class Local(Protocol):
    """A solver that sees some of the points from each target, and takes a mean from some of all."""

    def settled(self, problem: Problem, *, executor: Executor) -> Solver:
        """Give the solver with settings that were left open chosen for a problem, without its values."""

    def points_of_mean(self, gram: Gram) -> Indices:
        """Observed points (m,) that they are estimated from, by exact generalised least squares."""


AnySolver = TypeVar("AnySolver")


def settle(solver: AnySolver, problem: Problem, *, executor: Executor) -> AnySolver:
    """Give a solver whose settings are all known, chosen for a problem where they were left open."""
    return (
        cast("AnySolver", solver.settled(problem, executor=executor)) if isinstance(solver, Local) else solver
    )
