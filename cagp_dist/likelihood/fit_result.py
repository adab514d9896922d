"""What a fit returns: value, status and what it took."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.checks import check_between
from cagp_dist.kernels import Lengthscales
from cagp_dist.likelihood.numbering import Numbering
from cagp_dist.prior import Prior
from cagp_dist.remedies import AdvisedStatus, Remedy


class FitStatus(AdvisedStatus):
    """How a fit ended, and what to do about it."""

    CONVERGED = ("converged", "The parameters are an optimum of the likelihood inside the bounds.")
    AT_BOUND = (
        "at-bound",
        "A parameter ended on its bound: the likelihood may rise beyond it, or the data do not determine "
        "the parameter.",
        Remedy.WIDER_BOUNDS,
        Remedy.OTHER_MODEL,
        Remedy.MORE_POINTS,
        Remedy.EQUAL_BOUNDS,
    )
    FLAT = (
        "flat",
        "The likelihood hardly depends on some combination of the parameters, so standard errors are "
        "missing or very large.",
        Remedy.EQUAL_BOUNDS,
        Remedy.OTHER_MODEL,
        Remedy.MORE_POINTS,
    )
    NOT_CONVERGED = (
        "not-converged",
        "The search ended before the gradient was small compared with its own uncertainty.",
        Remedy.START_HERE,
        Remedy.MORE_STARTS,
        Remedy.OTHER_MODEL,
        Remedy.FEWER_OBSERVED,
    )
    BIASED = (
        "biased",
        "The optimum of the evidence lower bound lies more than two standard errors from that of the "
        "likelihood: the actions resolve too little of the field.",
        Remedy.MORE_ACTIONS,
        Remedy.VECCHIA,
    )

    @property
    def ok(self) -> bool:
        """Whether the parameters are an optimum inside the bounds, with standard errors."""
        return self is FitStatus.CONVERGED


Numbers = float | tuple[float, ...]  # Of one kernel; of a sum one for each part

# The same of lengthscales, any of which may be a tuple with one for each coordinate
OwnNumbers = Lengthscales | tuple[Lengthscales, ...]


def grouped(
    lengthscales: Sequence[Lengthscales], variances: Sequence[float], noise_variance: float
) -> tuple[OwnNumbers, Numbers, float]:
    """Lengthscale, variance and noise variance of one kernel; tuples of the first two for a sum."""
    if len(variances) == 1:
        return lengthscales[0], variances[0], noise_variance
    return tuple(lengthscales), tuple(variances), noise_variance


def each(numbers: OwnNumbers) -> tuple[float, ...]:
    """One number, or one for each part of a sum and each coordinate, as a tuple."""
    if not isinstance(numbers, tuple):
        return (numbers,)
    return tuple(number for part in numbers for number in each(part))


@dataclass(frozen=True)
class StandardErrors:
    """Standard errors of the parameters, in their own units; NaN where there is none.

    Attributes
    ----------
    lengthscale, variance : float, or tuple of float
        Of a sum, a tuple with one for each part. Where each coordinate has a lengthscale of its own, a tuple
        of these instead of a number, as in the kernel.
    noise_variance : float
        All are from the curvature of the log likelihood, by the delta method. By Vecchia's likelihood, and
        where a complete grid has so many points that the search began on some of them, it is the curvature
        that is expected of a field of the model. NaN for a parameter that is
        fixed or on its bound, and for all where the likelihood is not curved downwards. Several fields count
        as independent: for fields that resemble each other, such as consecutive hours, they are too small.
        Where a sample of Vecchia's conditionals counts, they are sandwich (Godambe) errors, which have what
        that adds. A smoothness that was fitted or chosen has none, and the others are those at this
        smoothness: too small where it is uncertain. `FitResult.choice` has likelihoods at others.
    """

    lengthscale: OwnNumbers
    variance: Numbers
    noise_variance: float


@dataclass(frozen=True)
class FitProgress:
    """How far a fit has come."""

    evaluations: int  #: Likelihoods evaluated so far; of "elbo" steps, whose line searches may take several
    points: int  #: Points of this one: first steps are done on fewer
    lengthscale: OwnNumbers  #: Where it was; tuples as in `StandardErrors`
    variance: Numbers
    noise_variance: float
    log_likelihood: float  #: Its value; that of the bound for "elbo"
    seconds: float  #: Since the start


@dataclass(frozen=True, eq=False)
class BoundOptimum:
    """What a fit to the evidence lower bound knows beside its parameters."""

    value: float  # The bound, nats: at most the log likelihood of these parameters
    # (n,): entries of the actions that were learned: ``cagp.SparseActions(actions, values=weights)``
    weights: Array
    # How far the parameters lie from the maximum of the log likelihood, as differences of logarithms, by
    # name: a Newton step along its gradient. Far off it is a rough guess. NaN for those that a bound holds.
    bias: dict[str, float]


@dataclass(frozen=True)
class KernelChoice:
    """Which kernel was chosen, and from which."""

    kernel: str  # Name of the class, such as "Matern32"
    # Of every kernel that was compared, with the numbers that are best for it
    log_likelihoods: dict[str, float]
    points: int  # Points that they were compared on; some of those of the fit where these are many
    # Kernels whose likelihood left floating point, which are then none to choose from
    missing: tuple[str, ...] = ()
    # Mean CRPS of each value by all others, by which it was chosen; empty where the likelihood decided
    crps: dict[str, float] = field(default_factory=dict)

    def line(self) -> str:
        """Say it in a line."""
        if self.crps:
            own = self.crps[self.kernel]
            others = [
                f"{name} {value / own - 1.0:+.1%}" for name, value in self.crps.items() if name != self.kernel
            ]
            left = [name for name in self.log_likelihoods if name not in self.crps]
            others += [f"{name} none" for name in (*left, *self.missing)]
            return (
                f"{self.kernel}, chosen by leave-one-out errors (CRPS), on {self.points:,} points: "
                f"{', '.join(others)}"
            )
        own = self.log_likelihoods[self.kernel]
        others = [
            *(f"{name} {value - own:+.1f}" for name, value in self.log_likelihoods.items() if value != own),
            *(f"{name} none" for name in self.missing),
        ]
        return f"{self.kernel}, chosen by likelihood on {self.points:,} points: {', '.join(others)}"


@dataclass(frozen=True, eq=False)
class FitResult:
    """Parameters learned from data.

    Attributes
    ----------
    prior : Prior
        Kernel, noise variance and mean, ready for `cagp_dist.condition`.
    log_likelihood : float or None
        At the optimum, of all fields, Gaussian constant included; None for "elbo".
    standard_errors : StandardErrors
        In the units of the parameters.
    log_covariance : array of float64, shape (3, 3), or (2 m + 1, 2 m + 1) for a sum of m kernels
        Covariance of the estimates of (log lengthscale, log variance, log noise variance), of a sum
        (lengthscales, variances, noise variance); NaN where there is no standard error. With a lengthscale
        for each of p coordinates (p m + m + 1, p m + m + 1), those of the first part first.
    status : FitStatus
        How it ended, with ``ok`` and ``advice``.
    at_bound : tuple of str
        Parameters on a bound that does not fix them; of a sum they are called lengthscale_1, variance_2 and
        so on. With a lengthscale for each coordinate lengthscale_2 is that of the second coordinate, and
        lengthscale_1_2, of a sum, that of its first part.
    gradient_norm : float
        Euclidean norm of the gradient of the log likelihood (of all points and fields, not per point) by the
        logarithms of those parameters that are free to move.
    evaluations : int
        Likelihoods with gradient evaluated, on thinned data, on all points and for the standard errors.
    seconds : float
        Wall time.
    method : str
        "rings", "dense", "vecchia" or "elbo".
    points : int
        Points the parameters were fitted to; pole rows of a grid are left out.
    bound : BoundOptimum or None
        Of "elbo": the bound, its actions, and how far off it is.
    reason : str
        Why this method, in words.
    conditionals : int or None
        Of "vecchia": conditional densities that the likelihood is made of; fewer than ``points`` where it is
        a sample of them.
    choice : KernelChoice or None
        Which kernel was chosen, if it was not given.
    """

    prior: Prior
    log_likelihood: float | None
    standard_errors: StandardErrors
    log_covariance: Array
    status: FitStatus
    at_bound: tuple[str, ...]
    gradient_norm: float
    evaluations: int
    seconds: float
    method: str
    points: int
    bound: BoundOptimum | None = None
    reason: str = ""
    conditionals: int | None = None
    choice: KernelChoice | None = None

    def intervals(self, level: float = 0.95) -> dict[str, tuple[float, float]]:
        """Give central intervals of the parameters, symmetric on the scale of their logarithms.

        The likelihood is closer to normal in the logarithms than in the numbers themselves, of which the
        lower end would often be negative. Lower and upper end stand by the names "lengthscale", "variance"
        and "noise_variance", of a sum those of each part as in ``at_bound``; NaN where there is no standard
        error.

        Raises
        ------
        ArgumentError
            If the level is not between 0 and 1.
        """
        from scipy.special import ndtri

        check_between("level", level, 0.0, 1.0)
        parts = self.prior.kernel.parts
        numbering = Numbering.of_kernel(self.prior.kernel)
        values = np.array(
            [
                *(number for part in parts for number in part.numbers),
                *(part.variance for part in parts),
                self.prior.noise_number,
            ]
        )
        half = np.exp(ndtri(0.5 * (1.0 + level)) * np.sqrt(np.diagonal(self.log_covariance)))
        ends = zip((values / half).tolist(), (values * half).tolist(), strict=True)
        return dict(zip(numbering.names, ends, strict=True))
