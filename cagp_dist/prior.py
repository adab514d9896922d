"""What is assumed before the data: a Gaussian process and the noise of its observations."""

from collections.abc import Callable, Sized
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array
from cagp_dist.checks import as_variances, check_positive
from cagp_dist.errors import ArgumentError
from cagp_dist.kernels import Kernel
from cagp_dist.means import EstimatedMean
from cagp_dist.text import counted


@dataclass(frozen=True, eq=False)
class KnownPlusEstimated:
    """A mean of which a part is known, and coefficients of the rest are estimated: an `EstimatedMean`."""

    known: Callable[[Array], ArrayLike]
    estimated: EstimatedMean

    @property
    def coefficient_names(self) -> tuple[str, ...]:
        """Those of the part that is estimated."""
        return self.estimated.coefficient_names

    def basis_at(self, X: Array) -> ArrayLike:
        """Columns of the part that is estimated."""
        return self.estimated.basis_at(X)


Mean = float | Callable[[Array], ArrayLike] | EstimatedMean


@dataclass(frozen=True, eq=False)
class Prior:
    """What is assumed before the data: ``f ~ GP(mean, kernel)`` and ``y = f(X) + noise``.

    Priors are equal, and have equal hashes, if their kernels, noise variances and means are.

    Parameters
    ----------
    kernel : Kernel
        Covariance of the latent field f.
    noise_variance : float or array_like, shape (n,), or (P, Q) for a grid
        Variance of the independent observation noise, squared unit of y, above zero: one number, or one for
        each observed point, in the order of X. An array is kept as a read-only copy. On a grid, entries at
        points without an observation are not used. A pole given as Q copies is one observation; its variance
        is the mean over the copies that were observed.
    mean : float, callable or EstimatedMean
        A number, or a function of points (n, p) that returns (n,), or (n, T) with a column per field. Or a
        basis, such as ``cagp.mean_family("quadratic-latitude")``. `condition`, `posterior_mean` and samples
        then estimate its coefficients by generalised least squares for each field, and the variance includes
        their uncertainty (universal kriging, math 1.7).

    Examples
    --------
    >>> import cagp_dist as cagp
    >>> prior = cagp.Prior(cagp.Matern32(lengthscale=0.2), noise_variance=0.01)

    Two observations of one place, the second with an error ten times as large:

    >>> prior = cagp.Prior(cagp.Matern32(lengthscale=0.2), noise_variance=[0.01, 1.0])
    >>> posterior = cagp.condition(prior, [[0.5], [0.5]], [1.0, 2.0], [[0.5]], solver=cagp.Cholesky())
    >>> posterior.mean.round(3)
    array([1.])
    """

    kernel: Kernel
    noise_variance: float | Array
    mean: Mean = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Kernel):
            raise ArgumentError(
                f"kernel is a {type(self.kernel).__name__}; expected Matern12, Matern32, Matern52, "
                "SquaredExponential or a sum of them.",
                key="kernel-type",
            )
        if isinstance(self.noise_variance, Sized) and not isinstance(self.noise_variance, str):
            noise = as_variances("noise_variance", self.noise_variance).copy()
            noise.flags.writeable = False
            object.__setattr__(self, "noise_variance", noise if noise.ndim else float(noise))
        else:
            check_positive("noise_variance", self.noise_variance)
        if isinstance(self.mean, (int, float, np.floating, np.integer)):
            fits = bool(np.isfinite(self.mean))
        else:
            fits = callable(self.mean) or isinstance(self.mean, EstimatedMean)
        if not fits:
            raise ArgumentError(
                f"mean is {self.mean!r}; expected a finite number or a function of X, or a basis whose "
                'coefficients are estimated, such as cagp_dist.mean_family("quadratic-latitude").',
                key="mean-type",
            )

    def __eq__(self, other: object) -> bool:
        return self._value() == other._value() if isinstance(other, Prior) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._value())

    def _value(self) -> tuple[object, ...]:
        noise = self.noise_variance
        return (
            self.kernel,
            (noise.shape, noise.tobytes()) if isinstance(noise, np.ndarray) else noise,
            self.mean,
        )

    @property
    def noise_number(self) -> float:
        """The noise variance of every observation; `ArgumentError` where it differs between them."""
        if isinstance(self.noise_variance, np.ndarray):
            raise ArgumentError(
                f"noise_variance is an array of shape {self.noise_variance.shape}; expected one number for "
                "all observations.",
                key="shapes",
            )
        return self.noise_variance

    @property
    def estimates_mean(self) -> bool:
        """Whether coefficients of the mean are estimated with the field."""
        return self._basis is not None

    @property
    def coefficient_names(self) -> tuple[str, ...]:
        """Names of the coefficients of the mean that are estimated; none where it is known."""
        return () if self._basis is None else self._basis.coefficient_names

    @cached_property  # to ask a protocol takes as long as to evaluate a small basis
    def _basis(self) -> EstimatedMean | None:
        return self.mean if not callable(self.mean) and isinstance(self.mean, EstimatedMean) else None

    def basis_at(self, X: Array) -> Array:
        """Basis H of the mean at X (n, p), shape (n, k); no columns where the mean is known.

        `ArgumentError`: the basis is not of that shape, or not finite; its column is named.
        """
        if self._basis is None:
            return np.empty((len(X), 0))
        names = self._basis.coefficient_names
        columns = np.asarray(self._basis.basis_at(X), dtype=np.float64)
        if columns.shape != (len(X), len(names)):
            raise ArgumentError(
                f"the basis of the mean has shape {columns.shape} for {counted(len(X), 'point')}; expected "
                f"({len(X)}, {len(names)}), a column for each of {', '.join(names)}.",
                key="shapes",
            )
        for name, column in zip(names, columns.T, strict=True):
            bad = np.flatnonzero(~np.isfinite(column))
            if bad.size:
                raise ArgumentError(
                    f"{name} of the mean is {column[bad[0]]} at {counted(bad.size, 'point')} of {len(X)}, "
                    f"the first at {X[bad[0]].tolist()}; expected finite values at all observed points and "
                    "targets.",
                    key="mean-values",
                )
        return columns

    @property
    def knows_mean(self) -> bool:
        """Whether the mean, or a part of it, is known."""
        return self._basis is None or isinstance(self._basis, KnownPlusEstimated)

    def known_at(self, X: Array) -> Array:
        """Part of the mean that is known, as `mean_at`; zero where all of it is estimated."""
        if self._basis is None:
            return self.mean_at(X)
        if isinstance(self._basis, KnownPlusEstimated):
            return Prior(self.kernel, 1.0, self._basis.known).mean_at(X)
        return np.zeros((len(X), 1))

    def mean_at(self, X: Array) -> Array:
        """Prior mean at X (n, p): shape (n, 1), or (n, T) where the mean differs between fields.

        `ArgumentError`: its coefficients are estimated, or it is not finite or of another shape.
        """
        if self._basis is not None:
            raise ArgumentError(
                f"the coefficients of the prior's mean ({', '.join(self.coefficient_names)}) are estimated "
                "by condition, posterior_mean and samples; here a mean is expected that is known: a number, "
                "a function of X, or what fit() makes of this one.",
                key="mean-estimated",
            )
        value = self.mean(X) if callable(self.mean) else np.full(len(X), self.mean)
        values = np.asarray(value, dtype=np.float64)
        if values.ndim not in (1, 2) or len(values) != len(X) or not np.isfinite(values).all():
            raise ArgumentError(
                f"the prior mean returned shape {values.shape} for {counted(len(X), 'point')}; "
                "expected finite values of shape (n,) or (n, T).",
                key="mean-values",
            )
        return values if values.ndim == 2 else values[:, None]


def check_prior(prior: object) -> None:
    """Raise `ArgumentError` unless it is a `Prior`."""
    if not isinstance(prior, Prior):
        raise ArgumentError(
            f"prior is a {type(prior).__name__}; expected a cagp_dist.Prior.", key="prior-type"
        )
