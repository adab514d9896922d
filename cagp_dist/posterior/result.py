"""What a solve returns, in the shape of its targets, and what it says of itself on the way."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Indices
from cagp_dist.checks import as_numbers, check_positive
from cagp_dist.errors import ArgumentError

if TYPE_CHECKING:
    from cagp_dist.gram.targets import Targets
    from cagp_dist.posterior.certificate import Certificate, JointCertificate
    from cagp_dist.posterior.coefficients import MeanCoefficients
    from cagp_dist.posterior.trace import Step
    from cagp_dist.solvers import Stats, Status

Values = TypeVar("Values", Array, Indices)


@dataclass(frozen=True)
class Progress:
    """How far a solve has come."""

    #: Sweeps or actions done for the current batch of test points, and those that were asked for
    iteration: int
    iterations: int
    fraction: float  #: Part of the work that is done, 0 to 1
    seconds: float  #: Since the start
    relative_residual: float | None = None  #: ``|b - G v| / |b|`` where the solver follows it
    #: Which batch of test points it is, from 1, and how many there are; with different gaps, of all solves
    batch: int = 1
    batches: int = 1


@dataclass(frozen=True, eq=False)
class Posterior:
    """The field at the targets after the solve.

    Attributes
    ----------
    mean : array, shape (q,), or (q, T) for T fields; with a grid as target (P, Q) or (T, P, Q)
        Posterior mean, unit of y.
    variance : array, shape (q,), or (P, Q); with different gaps (q, T), or (T, P, Q)
        Variance of the latent field about the mean, without observation noise, squared unit of y;
        the same for all T fields if they were observed at the same points, else of each field its own. Add
        the noise variance to predict a new observation. Never
        clipped: where it is zero, rounding may leave it slightly negative (by at most 1e-8 of the prior
        variance; beyond that the solve raises), and the status is then ILL_CONDITIONED.
    covariance : array, shape (q, q), with different gaps (T, q, q), or None
        Only when ``covariance="full"`` was asked for.
    status : Status
        How the solve ended, with ``ok`` and ``advice``.
    stats : Stats
        What it took.
    trace : tuple of Step
        The posterior after 0 (the prior), 1, 2, ... iterations; the last is this posterior.
    certificate : Certificate or JointCertificate
        Where `computational_variance` and its bounds come from.
    coefficients : MeanCoefficients or None
        Those of the prior mean that were estimated, with their covariance; None where the mean is known.

    Notes
    -----
    The variance is the sum of a mathematical part, that of the exact posterior, and a computational part,
    which more iterations take away (math 0). How large the second is follows from the points, the noise and
    the kernel alone. It is worked out when it is first asked for, on all cores of this process, or on so many
    as fit into what the solve was allowed to allocate (`BudgetError` where not one does): 50 to
    130 n q nanoseconds of one core, a tenth to a third of a sweep over 10,000 points and less over more; by
    Cholesky for up to 1,024 observed points, by rings on complete grids.
    """

    mean: Array
    variance: Array
    covariance: Array | None
    status: "Status"
    stats: "Stats"
    trace: "tuple[Step, ...]"
    certificate: "Certificate | JointCertificate" = field(repr=False)
    coefficients: "MeanCoefficients | None" = None

    @property
    def computational_variance(self) -> Array | None:
        """Part of the variance that is unfinished computation, of its shape, where it is known, else None.

        It is known where the solve was exact (zeros), for up to 1,024 observed points and on complete
        latitude-longitude grids, up to rounding. Beside coefficients of the mean that are estimated it is so
        on grids only of up to 1,024 points, a pole counted as a row of them.
        """
        return self.computational_variance_bounds[1] if self.certificate.known else None

    @property
    def computational_variance_bounds(self) -> Array:
        """Lower and upper bound of the computational part of the variance, shape (2, q) or (2, P, Q).

        Where the variance differs between fields, (2, q, T) or (2, T, P, Q).

        Both are at least zero, and equal where `computational_variance` is known. The lower one says how far
        the variance is above what the nearest 64 and more observed points leave; the upper one adds what all
        others could still tell. Where covariances are long and the noise small, that is much: the
        ``lanczos_steps`` of `condition` then bring both closer, by quadrature on what the solve left over
        (math 1.3).
        """
        from cagp_dist.runtime import ThreadExecutor

        with ThreadExecutor() as executor:
            bounds = self.certificate.bounds(executor)
        if bounds.ndim == self.variance.ndim == 3:  # (2, q, T), and (T, P, Q) of a grid
            bounds = bounds.transpose(0, 2, 1)
        return bounds.reshape(2, *self.variance.shape)

    def worst_case_error(self, rkhs_norm: float, *, noise_variance: ArrayLike = 0.0) -> Array:
        """Largest error of the mean over all fields of bounded norm: ``rkhs_norm sqrt(variance + noise)``.

        Nothing is random here. Let f be any function and e_i any errors of the observations with
        ``|f - m0|^2 + sum_i e_i^2 / s_i^2 <= rkhs_norm^2``, where the first norm is that of the reproducing
        kernel Hilbert space of the kernel and ``s_i^2`` the noise variances. Then the mean from
        ``y = f(X) + e`` is nowhere further from f than this, and for some f and e it is as far: unfinished
        computation is counted. Theorem 2 of [Wenger et al. 2022] for every linear solver (math 1.1, T1).

        It holds for solvers that are calibrated exactly, whose matrix does not depend on y; not for
        `ConjugateGradient`, nor where prior or solver were chosen by looking at the same y. Functions drawn
        from the prior have no finite norm with most kernels: for these the variance is the statement.

        Parameters
        ----------
        rkhs_norm : float
            The bound, above zero; it has no unit, for kernel and noise have that of y squared.
        noise_variance : array_like, the shape of the variance, or one number
            Of new observations at the targets, whose errors then count in the sum too: the result bounds the
            distance of their values from the mean. 0: that of the latent field.

        Returns
        -------
        array, the shape of the variance
            Unit of y. Zero where rounding has left a variance below zero.

        Raises
        ------
        ArgumentError
            If the norm is not a finite number above zero, or a noise variance is negative or has another
            shape.
        """
        check_positive("rkhs_norm", rkhs_norm)
        noise = as_numbers("noise_variance", noise_variance)
        if noise.shape not in ((), self.variance.shape):
            raise ArgumentError(
                f"noise_variance has shape {noise.shape}; expected one number, or one for each target, shape "
                f"{self.variance.shape}.",
                key="shapes",
            )
        if not (np.isfinite(noise).all() and (noise >= 0.0).all()):
            raise ArgumentError(
                "noise_variance holds NaN, infinity or numbers below zero; expected variances.",
                key="not-positive",
            )
        return np.asarray(rkhs_norm * np.sqrt(np.maximum(self.variance + noise, 0.0)))


def shaped_as_targets(
    mean: Array, variance: Array, *, targets: "Targets", single: bool
) -> tuple[Array, Array]:
    """Means (q, T) and variances (q,) or (q, T) in the shape that users get."""
    from cagp_dist.latlon.grid import LatLonGrid

    if not isinstance(targets, LatLonGrid):
        return (mean[:, 0] if single else mean), variance
    fields = np.ascontiguousarray(mean.T).reshape(-1, *targets.shape)
    return (fields[0] if single else fields), on_targets(variance, targets)


def on_targets(values: Values, targets: "Targets") -> Values:
    """Values (q,) or (q, T); of a grid (P, Q) or (T, P, Q)."""
    from cagp_dist.latlon.grid import LatLonGrid

    if not isinstance(targets, LatLonGrid):
        return values
    return np.ascontiguousarray(values.T).reshape(*values.shape[1:], *targets.shape)
