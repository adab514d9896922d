"""How a solve ended, and what to do about it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from cagp_dist.arrays import Indices
from cagp_dist.budget import Plan

# Condition number above which a direct solve has lost too many digits to be called exact: at 6e15, errors of
# up to 2.9 stated standard deviations were measured
WORST_CONDITION = 1e13


class Status(Enum):
    """How a solve ended. To stop early is no failure: calibrated solvers have a variance for what is left."""

    EXACT = "exact"
    COMPLETED = "completed"
    STOPPED = "stopped"
    NEIGHBOURS = "neighbours"
    CONVERGED = "converged"
    SOLVED = "solved"
    SHARE_REACHED = "share-reached"
    SHARE_NOT_REACHED = "share-not-reached"
    BREAKDOWN = "breakdown"
    ILL_CONDITIONED = "ill-conditioned"
    DIVERGED = "diverged"

    @classmethod
    def of_direct_solve(cls, condition_number: float) -> "Status":
        """Give the status of a direct solve, from an estimate or bound of the condition number."""
        return cls.ILL_CONDITIONED if condition_number > WORST_CONDITION else cls.EXACT

    @classmethod
    def worst(cls, found: "Iterable[Status]") -> "Status":
        """Give the worst of several ends; of those that are ok, the one that leaves most to compute."""
        return min(found, key=WORST_FIRST.index)

    @property
    def ok(self) -> bool:
        """Whether the posterior is what was asked for."""
        return self not in (
            Status.BREAKDOWN,
            Status.ILL_CONDITIONED,
            Status.DIVERGED,
            Status.SHARE_NOT_REACHED,
        )

    @property
    def of_iteration(self) -> bool:
        """Whether a variance above that of the prior is a sign of divergence.

        Of neighbours it is right where a drift is estimated and the target lies outside the data.
        """
        return self not in (Status.EXACT, Status.NEIGHBOURS, Status.ILL_CONDITIONED)

    @property
    def advice(self) -> str:
        """One sentence: what this means and what to do."""
        return _ADVICE[self]


# Ends of a solve: first those that are not what was asked for, then those that leave more to compute
WORST_FIRST = (
    Status.DIVERGED,
    Status.BREAKDOWN,
    Status.ILL_CONDITIONED,
    Status.SHARE_NOT_REACHED,
    Status.STOPPED,
    Status.COMPLETED,
    Status.NEIGHBOURS,
    Status.SHARE_REACHED,
    Status.CONVERGED,
    Status.SOLVED,
    Status.EXACT,
)

_ADVICE = {
    Status.EXACT: "The posterior is exact up to rounding; no computational uncertainty is left.",
    Status.COMPLETED: (
        "All iterations were done, and the variance includes what is left to compute. "
        "More iterations give smaller error bars. For scattered points, a few iterations of Chebyshev with "
        'the preconditioner "vecchia" mostly give nearly exact ones.'
    ),
    Status.STOPPED: (
        "All iterations were done before the residual reached rounding level. The actions follow the data, "
        "so that the variance is not calibrated: with few iterations it may be far too small or too large. "
        "Raise iterations until the residual is small, or use BlockGaussSeidel or Chebyshev, whose variance "
        "includes what is left to compute after any number of them."
    ),
    Status.NEIGHBOURS: (
        "Each target was predicted from the observations near it; the variance includes the effect of "
        "leaving the others out. More neighbours give smaller error bars."
    ),
    Status.CONVERGED: (
        "The residual reached rounding level before all iterations were used, so the mean is that of the "
        "exact posterior. The variance may be many times the exact one. For exact error bars use Cholesky, "
        "or Rings on a grid."
    ),
    Status.SOLVED: (
        "An earlier version solved it iteratively to a relative residual of 1e-10: exact for every practical "
        "purpose, no computational uncertainty is left."
    ),
    Status.SHARE_REACHED: (
        "At every target, the share of unfinished computation in the variance is within computational_share."
    ),
    Status.SHARE_NOT_REACHED: (
        "All iterations were used before the share of unfinished computation in every variance was within "
        "computational_share. The variance includes it nevertheless. Raise iterations or "
        "computational_share; larger blocks need fewer iterations."
    ),
    Status.BREAKDOWN: (
        "The search directions became dependent before the residual was small: the Gram matrix is nearly "
        "singular. Raise noise_variance, or use block Gauss-Seidel."
    ),
    Status.DIVERGED: (
        "A variance is above that of the prior: the iteration diverges. Lower damping, or leave it out to "
        "have a safe value computed."
    ),
    Status.ILL_CONDITIONED: (
        "The condition number of the Gram matrix is above 1e13, or a variance was lost to rounding: mean and "
        "error bars may be wrong by several standard deviations. Raise noise_variance, or thin points that "
        "nearly coincide."
    ),
}


@dataclass(frozen=True)
class Stats:
    """What a solve did.

    Attributes
    ----------
    iterations : int
        Sweeps or actions done.
    seconds : float
        Wall time of the solve.
    gram_entries : int
        Kernel evaluations planned for it.
    relative_residual : float or None
        ``|b - G v| / |b|`` for solvers that follow it (conjugate gradients), else None.
    plan : Plan
        Tiles, tasks, bytes and seconds decided before the start.
    executor : str
        Where it ran.
    iterations_by_target : array of int, shape of the variance
        Iterations that each target has had: fewer than ``iterations`` where its group, or its field, was
        done before others.
    downdate_psd : bool
        Whether it is known that the downdate ``V D V'`` is positive semidefinite, because the weight W of
        every stage is (math 1.4): then no variance is above the prior's and no stage raised one. It is for
        all solvers but `Neighbours`; `Jacobi`, `BlockJacobi` and `Richardson` with a damping or step within a
        twentieth of where they begin to diverge; and, at more than 20,000 points, `Chebyshev` and
        `Richardson` with Vecchia's factor, whose bounds are then estimates. Error bars are exact without it.
    dropped_actions : int
        Actions that were skipped because they lie in the span of earlier ones; of several solves, of all
        together.
    """

    iterations: int
    seconds: float
    gram_entries: int
    relative_residual: float | None
    plan: Plan
    executor: str
    iterations_by_target: Indices = field(compare=False, repr=False)
    downdate_psd: bool = True
    dropped_actions: int = 0
