"""Stationary kernels: Matern 1/2, 3/2, 5/2 and squared exponential, of the Euclidean distance.

With ``u = |x - z| / lengthscale`` (math 8, [Rasmussen & Williams 2006, ch. 4])::

    Matern12            exp(-u)
    Matern32            (1 + sqrt(3) u) exp(-sqrt(3) u)
    Matern52            (1 + sqrt(5) u + 5 u^2 / 3) exp(-sqrt(5) u)
    SquaredExponential  exp(-u^2 / 2)

each times ``variance``. On the sphere use chordal distance, that is `cagp_dist.unit_sphere`
coordinates: great-circle distance makes Matern kernels with smoothness above 1/2 indefinite.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array
from cagp_dist.checks import LARGEST, as_points, check_positive
from cagp_dist.errors import ArgumentError


@dataclass(frozen=True)
class Kernel:
    """A stationary kernel; the base of the four concrete ones below.

    Parameters
    ----------
    lengthscale : float
        In the unit of X (chord of the unit sphere for `unit_sphere` points), above zero.
    variance : float
        Prior variance of the field, squared unit of y, above zero.

    Raises
    ------
    ArgumentError
        If a parameter is not a finite number above zero.

    Examples
    --------
    >>> import cagp_dist as cagp
    >>> kernel = cagp.Matern32(lengthscale=0.5, variance=2.0)
    >>> kernel([[0.0], [0.5]], [[0.0]]).round(4)
    array([[2.    ],
           [0.9667]])
    """

    lengthscale: float
    variance: float = 1.0

    family: ClassVar[int]

    def __post_init__(self) -> None:
        if type(self) is Kernel:
            raise ArgumentError("Kernel is abstract; use Matern12, Matern32, Matern52 or SquaredExponential.")
        # squares of distances and lengthscales, and variance times distance, must stay finite
        check_positive("lengthscale", self.lengthscale, least=1.0 / LARGEST, most=LARGEST)
        check_positive("variance", self.variance, most=LARGEST)

    def __call__(self, X: ArrayLike, Z: ArrayLike) -> Array:
        """Kernel matrix ``k(X, Z)`` of shape (n, m) for X (n, p) and Z (m, p), n m 8 bytes."""
        from cagp_dist.compiled import evaluate

        left, right = as_points("X", X), as_points("Z", Z)
        if left.shape[1] != right.shape[1]:
            raise ArgumentError(
                f"X has {left.shape[1]} columns and Z {right.shape[1]}; both need the same coordinates."
            )
        out = np.empty((len(left), len(right)))
        evaluate(*self.parameters, coordinates(left), coordinates(right), out)
        return out

    def diagonal(self, X: ArrayLike) -> Array:
        """``k(x, x)`` at points X (n, p), the prior variance of the field there, shape (n,)."""
        return np.full(len(as_points("X", X)), float(self.variance))

    @property
    def parameters(self) -> tuple[int, float, float]:
        """``(family, 1 / lengthscale, variance)`` as the compiled functions take them."""
        return self.family, 1.0 / float(self.lengthscale), float(self.variance)

    @property
    def slope_parameters(self) -> tuple[int, float, float]:
        """The same for ``dk / d log(lengthscale)``, which the compiled functions treat as a kernel."""
        from cagp_dist.compiled import SLOPE

        family, inverse_lengthscale, variance = self.parameters
        return family + SLOPE, inverse_lengthscale, variance


def coordinates(points: Array) -> Array:
    """Points (n, p) as a C-contiguous (p, n) array, the layout of the compiled functions."""
    return np.ascontiguousarray(points.T)


@dataclass(frozen=True)
class Matern12(Kernel):
    """Matern kernel of smoothness 1/2: ``variance exp(-u)``, continuous and nowhere smooth."""

    family: ClassVar[int] = 0


@dataclass(frozen=True)
class Matern32(Kernel):
    """Matern kernel of smoothness 3/2: ``variance (1 + sqrt3 u) exp(-sqrt3 u)``, once differentiable."""

    family: ClassVar[int] = 1


@dataclass(frozen=True)
class Matern52(Kernel):
    """Matern kernel of smoothness 5/2: ``variance (1 + sqrt5 u + 5u^2/3) exp(-sqrt5 u)``."""

    family: ClassVar[int] = 2


@dataclass(frozen=True)
class SquaredExponential(Kernel):
    """Squared exponential (Gaussian) kernel: ``variance exp(-u^2 / 2)``, infinitely smooth."""

    family: ClassVar[int] = 3


KERNELS: dict[str, type[Kernel]] = {
    "matern12": Matern12,
    "matern32": Matern32,
    "matern52": Matern52,
    "squared-exponential": SquaredExponential,
}
"""The kernels by the names that job files give them."""
