"""Stationary kernels: Matern and squared exponential of the Euclidean distance, and their sums.

With ``u = |x - z| / lengthscale`` (math 8, [Rasmussen & Williams 2006, ch. 4])::

    Matern12            exp(-u)
    Matern32            (1 + sqrt(3) u) exp(-sqrt(3) u)
    Matern52            (1 + sqrt(5) u + 5 u^2 / 3) exp(-sqrt(5) u)
    Matern              2^(1 - nu) / Gamma(nu)  (sqrt(2 nu) u)^nu K_nu(sqrt(2 nu) u)
    SquaredExponential  exp(-u^2 / 2)

each times ``variance``. The covariance of a sum of independent fields is a sum of kernels,
``Matern32(0.05, 3.0) + Matern52(0.5, 20.0)``. With a lengthscale for each coordinate, ``u^2`` is the sum of
``((x - z) / lengthscale)^2`` (ARD). On the sphere use chordal distance, that is `cagp_dist.unit_sphere`
coordinates: great-circle distance makes Matern kernels with smoothness above 1/2 indefinite.
"""

import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array
from cagp_dist.checks import LARGEST, as_points, check_positive
from cagp_dist.errors import ArgumentError
from cagp_dist.text import counted

if TYPE_CHECKING:
    from cagp_dist.profiles import CompiledProfile, Part

Lengthscales = float | tuple[float, ...]  # one for all coordinates, or one for each

_Profiles: TypeAlias = "CompiledProfile | tuple[CompiledProfile, ...]"
Parameters: TypeAlias = "tuple[_Profiles, Lengthscales | tuple[tuple[float, ...], ...], Lengthscales]"
"""``(family, 1 / lengthscale, variance)`` as `cagp_dist.compiled` takes them: of one kernel, of the parts of
a sum, or of parts with a lengthscale for each coordinate."""


MOST_PARTS = 4  # of a sum that is fitted: more lengthscales no data tell apart


class Kernel(ABC):
    """A covariance function: `Matern`, `Matern12`, `Matern32`, `Matern52`, `SquaredExponential` or a `Sum`.

    Examples
    --------
    >>> import cagp_dist as cagp
    >>> kernel = cagp.Matern32(lengthscale=0.05, variance=1.0) + cagp.Matern52(lengthscale=0.5, variance=2.0)
    >>> kernel([[0.0], [0.5]], [[0.0]]).round(4)
    array([[3.   ],
           [1.048]])
    >>> 2.0 * cagp.Matern32(lengthscale=0.5)
    Matern32(lengthscale=0.5, variance=2.0)
    """

    __array_ufunc__: ClassVar[None] = None  # so that NumPy's numbers leave a product to the kernel

    def __new__(cls, *_: object, **__: object) -> Self:
        """Refuse what is no kernel yet."""
        if cls in (Kernel, Elementary, ClosedForm):
            raise ArgumentError(f"{cls.__name__} is abstract; use {CLASSES}.", key="abstract-kernel")
        return super().__new__(cls)

    def __call__(self, X: ArrayLike, Z: ArrayLike) -> Array:
        """Kernel matrix ``k(X, Z)`` of shape (n, m) for X (n, p) and Z (m, p), n m 8 bytes."""
        from cagp_dist.compiled import evaluate

        left, right = as_points("X", X), as_points("Z", Z)
        if left.shape[1] != right.shape[1]:
            raise ArgumentError(
                f"X has {counted(left.shape[1], 'column')} and Z {right.shape[1]}; both need the same "
                "coordinates.",
                key="coordinates-differ",
            )
        self.check_coordinates(left)
        out = np.empty((len(left), len(right)))
        evaluate(*self.parameters, point_columns(left), point_columns(right), out)
        return out

    def __add__(self, other: object) -> "Sum":
        """Sum of two kernels: the covariance of a sum of independent fields."""
        if not isinstance(other, Kernel):
            raise ArgumentError(
                f"{other!r} cannot be added to a kernel; expected another kernel. A constant that is unknown "
                "belongs to the prior mean, noise to noise_variance.",
                key="kernel-type",
            )
        return Sum((*self.parts, *other.parts))

    def __mul__(self, factor: float) -> Self:
        """Scale the variance by a number above zero."""
        if isinstance(factor, Kernel):
            raise ArgumentError(
                "kernels cannot be multiplied with each other; expected a number. Their sum is k1 + k2.",
                key="kernel-product",
            )
        check_positive("the factor of a kernel", factor)
        return self._scaled(float(factor))

    def __rmul__(self, factor: float) -> Self:
        """Scale the variance by a number above zero."""
        return self * factor

    def diagonal(self, X: ArrayLike) -> Array:
        """``k(x, x)`` at points X (n, p), the prior variance of the field there, shape (n,)."""
        return np.full(len(as_points("X", X)), float(self.variance))

    def check_coordinates(self, X: Array) -> None:
        """Raise `ArgumentError` unless the kernel is one of points X (n, p)."""
        given = self.coordinates
        if given is None:
            return
        if X.shape[1] != given:
            raise ArgumentError(
                f"lengthscale holds {given} numbers but points have {counted(X.shape[1], 'coordinate')}; "
                "expected one number for each coordinate, or one for all.",
                key="lengthscales-and-coordinates",
            )
        if on_unit_sphere(X):
            raise ArgumentError(OWN_ON_SPHERE, key="kernel-number")

    @property
    @abstractmethod
    def variance(self) -> float:
        """Prior variance of the field; of a sum, all together."""

    @property
    @abstractmethod
    def parts(self) -> "tuple[Elementary, ...]":
        """The kernels it is the sum of; one that is no sum is its own part."""

    @property
    @abstractmethod
    def parameters(self) -> Parameters:
        """``(family, 1 / lengthscale, variance)`` as the compiled functions take them."""

    @property
    def coordinates(self) -> int | None:
        """Number of coordinates that have lengthscales of their own; None if all share one."""
        own = [part.lengthscale for part in self.parts if isinstance(part.lengthscale, tuple)]
        return len(own[0]) if own else None

    @abstractmethod
    def _scaled(self, factor: float) -> Self: ...


SAME_ON_SPHERE = (
    "the points lie on the unit sphere, where the coordinates are one system of axes among many: the field "
    "would be stretched along the Earth's axis or towards a meridian."
)
OWN_ON_SPHERE = (
    f"lengthscale holds a number for each coordinate, but {SAME_ON_SPHERE} Give one lengthscale, a chord."
)


def on_unit_sphere(X: Array) -> bool:
    """Whether points X (n, p) lie on the unit sphere; up to three of them tell nothing."""
    return X.shape[1] == 3 and len(X) > 3 and np.allclose(np.einsum("ij,ij->i", X, X), 1.0, atol=1e-9)


class Elementary(Kernel):
    """A kernel that is no sum; the base of the concrete ones below.

    Parameters
    ----------
    lengthscale : float, or tuple of p floats
        In the unit of X (chord of the unit sphere for `unit_sphere` points), above zero. A tuple holds one
        for each coordinate; it is refused on the sphere.
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
    >>> wide = cagp.Matern32(lengthscale=(0.5, 5.0), variance=2.0)
    >>> wide([[0.0, 0.0], [0.5, 0.0], [0.0, 5.0]], [[0.0, 0.0]]).round(4)
    array([[2.    ],
           [0.9667],
           [0.9667]])
    """

    lengthscale: Lengthscales
    variance: float

    of_space_and_time: ClassVar[bool] = False

    def __post_init__(self) -> None:
        # squares of distances and lengthscales, and variance times distance, must stay finite
        own = self.lengthscale if isinstance(self.lengthscale, tuple) else (self.lengthscale,)
        if not own:
            raise ArgumentError(
                "lengthscale is (); expected a number, or one for each coordinate.", key="lengthscale-missing"
            )
        for lengthscale in own:
            check_positive("lengthscale", lengthscale, least=1.0 / LARGEST, most=LARGEST)
        check_positive("variance", self.variance, most=LARGEST)

    @property
    @abstractmethod
    def family(self) -> "Family":
        """What is left of it without its lengthscale and variance: it makes the kernel from them."""

    @abstractmethod
    def profile(self, part: "Part", coordinate: int | None = None) -> "CompiledProfile":
        """Give what compiled functions are told of it besides lengthscale and variance."""

    @property
    def parts(self) -> "tuple[Elementary, ...]":
        """Itself."""
        return (self,)

    @property
    def parameters(self) -> Parameters:
        """``(family, 1 / lengthscale, variance)`` as the compiled functions take them."""
        from cagp_dist.profiles import Part

        profile = self.profile(Part.VALUE)
        if isinstance(self.lengthscale, tuple):
            inverse = self.inverse_lengthscales(len(self.lengthscale))
            return (profile,), (inverse,), (float(self.variance),)
        return profile, 1.0 / float(self.lengthscale), float(self.variance)

    @property
    def slope_parameters(self) -> "tuple[CompiledProfile, float, float]":
        """The same for ``dk / d log(lengthscale)``, which the compiled functions treat as a kernel."""
        from cagp_dist.profiles import Part

        return self.profile(Part.SLOPE), 1.0 / self.common_lengthscale, float(self.variance)

    def coordinate_slope_parameters(self, coordinate: int) -> Parameters:
        """Give the same for ``dk / d log(lengthscale)`` of one coordinate, from 0, where each has its own."""
        from cagp_dist.profiles import Part

        if not isinstance(self.lengthscale, tuple):
            raise ArgumentError(
                f"lengthscale is {self.lengthscale!r}; expected one for each coordinate here.",
                key="lengthscale-each",
            )
        inverse = self.inverse_lengthscales(len(self.lengthscale))
        return (self.profile(Part.SHARE, coordinate),), (inverse,), (float(self.variance),)

    @property
    def common_lengthscale(self) -> float:
        """The lengthscale that all coordinates share; `ArgumentError` if each has its own."""
        if isinstance(self.lengthscale, tuple):
            raise ArgumentError(
                f"lengthscale is {self.lengthscale!r}; expected one number for all coordinates here.",
                key="lengthscale-one",
            )
        return float(self.lengthscale)

    def inverse_lengthscales(self, coordinates: int) -> tuple[float, ...]:
        """One over the lengthscale of each coordinate."""
        if isinstance(self.lengthscale, tuple):
            return tuple(1.0 / float(lengthscale) for lengthscale in self.lengthscale)
        return (1.0 / float(self.lengthscale),) * coordinates


@dataclass(frozen=True)
class Sum(Kernel):
    """A sum of kernels, as ``+`` makes it: the covariance of a sum of independent fields.

    Sums of chords of the unit sphere stay exact on latitude-longitude grids. The compiled functions work out
    the distances once for all parts, and where points are far apart only the parts that reach so far.

    Parameters
    ----------
    parts : sequence of kernels
        At least two; sums among them are taken apart, so that sums of sums are flat.

    Raises
    ------
    ArgumentError
        If a part is no kernel, or parts have lengthscales for different numbers of coordinates.

    Examples
    --------
    >>> import cagp_dist as cagp
    >>> kernel = cagp.Matern32(0.05, 3.0) + cagp.Matern52(0.5, 20.0)
    >>> kernel.variance, kernel.parts[1].lengthscale
    (23.0, 0.5)
    >>> kernel == cagp.Sum((cagp.Matern32(0.05, 3.0), cagp.Matern52(0.5, 20.0)))
    True
    """

    parts: tuple[Elementary, ...] = ()

    def __post_init__(self) -> None:
        parts = tuple(self.parts)
        if len(parts) < 2 or not all(isinstance(part, Kernel) for part in parts):
            raise ArgumentError(f"parts is {self.parts!r}; expected two kernels or more.", key="kernel-parts")
        object.__setattr__(self, "parts", tuple(one for part in parts for one in part.parts))
        counts = {len(part.lengthscale) for part in self.parts if isinstance(part.lengthscale, tuple)}
        if len(counts) > 1:
            raise ArgumentError(
                f"the parts of a sum have lengthscales for {' and '.join(map(str, sorted(counts)))} "
                "coordinates; expected the same number, or one lengthscale for all coordinates.",
                key="lengthscales-and-coordinates",
            )
        of_time = [part for part in self.parts if part.of_space_and_time]
        if of_time and len(of_time) < len(self.parts):
            other = next(part for part in self.parts if not part.of_space_and_time)
            raise ArgumentError(
                f"{other!r} is not a kernel of space and time, and {of_time[0]!r} is; expected a sum of "
                "SpaceTime kernels. A field that hardly changes has a long lengthscale in time.",
                key="kernel-of-time",
            )

    def check_coordinates(self, X: Array) -> None:
        """Raise `ArgumentError` unless all parts are kernels of points X (n, p)."""
        for part in self.parts:
            part.check_coordinates(X)

    @property
    def variance(self) -> float:
        """All variances together, in the order in which the compiled functions add."""
        return float(sum(part.variance for part in self._by_reach()))

    @property
    def parameters(self) -> Parameters:
        """Parameters of the parts, those that reach furthest first."""
        from cagp_dist.profiles import Part

        parts, coordinates = self._by_reach(), self.coordinates
        families = tuple(part.profile(Part.VALUE) for part in parts)
        variances = tuple(float(part.variance) for part in parts)
        if coordinates is None:
            return families, tuple(part.inverse_lengthscales(1)[0] for part in parts), variances
        return families, tuple(part.inverse_lengthscales(coordinates) for part in parts), variances

    def _by_reach(self) -> list[Elementary]:
        from cagp_dist.compiled import kernel_reach

        return sorted(self.parts, key=lambda part: -kernel_reach(*part.parameters[:2]))

    def _scaled(self, factor: float) -> Self:
        return replace(self, parts=tuple(part * factor for part in self.parts))


def total_variance(parameters: Parameters) -> float:
    """Value at distance zero of what the parameters stand for: the variance of a kernel, 0 of its slopes."""
    from cagp_dist.compiled import AT_ZERO

    families, _, variances = parameters
    if isinstance(families, bytes):
        families, variances = (families,), (cast("float", variances),)
    pairs = zip(families, cast("tuple[float, ...]", variances), strict=True)
    return float(sum(own * np.frombuffer(family, dtype=np.float64)[AT_ZERO] for family, own in pairs))


def point_columns(points: Array) -> Array:
    """Points (n, p) as a C-contiguous (p, n) array, the layout of the compiled functions."""
    return np.ascontiguousarray(points.T)


@dataclass(frozen=True)
class ClosedForm(Elementary):
    """A kernel that is ``p(a) exp(-a)``, p a polynomial of degree 3 at most; the base of such kernels."""

    lengthscale: Lengthscales
    variance: float = 1.0

    polynomial: ClassVar[tuple[float, ...]]
    """Coefficients of p, from that of power 0, which is one."""

    scale: ClassVar[float | None]
    """``a = scale u``; None: ``a = u^2 / 2``."""

    degrees_of_freedom: ClassVar[float | None] = None
    """Of the t distribution that is its spectral density: twice the smoothness; None if it is none."""

    @property
    def family(self) -> "Family":
        """Its class."""
        return type(self)

    def profile(self, part: "Part", coordinate: int | None = None) -> "CompiledProfile":
        """Coefficients of what it is multiplied with, and how far it reaches."""
        from cagp_dist.profiles import closed_form

        return closed_form(self.polynomial, self.scale, part, coordinate)

    def _scaled(self, factor: float) -> Self:
        return replace(self, variance=factor * self.variance)


class Matern12(ClosedForm):
    """Matern kernel of smoothness 1/2: ``variance exp(-u)``, continuous and nowhere smooth."""

    polynomial, scale, degrees_of_freedom = (1.0,), 1.0, 1.0


class Matern32(ClosedForm):
    """Matern kernel of smoothness 3/2: ``variance (1 + sqrt3 u) exp(-sqrt3 u)``, once differentiable."""

    polynomial, scale, degrees_of_freedom = (1.0, 1.0), math.sqrt(3.0), 3.0


class Matern52(ClosedForm):
    """Matern kernel of smoothness 5/2: ``variance (1 + sqrt5 u + 5u^2/3) exp(-sqrt5 u)``."""

    polynomial, scale, degrees_of_freedom = (1.0, 1.0, 1.0 / 3.0), math.sqrt(5.0), 5.0


class SquaredExponential(ClosedForm):
    """Squared exponential (Gaussian) kernel: ``variance exp(-u^2 / 2)``, infinitely smooth."""

    polynomial, scale, degrees_of_freedom = (1.0,), None, math.inf


ROUGHEST, SMOOTHEST = 0.1, 10.0  # smoothness of `Matern`; few data tell the most from a Gaussian kernel

HALVES: dict[float, type[ClosedForm]] = {0.5: Matern12, 1.5: Matern32, 2.5: Matern52}
"""Matern kernels in closed form by their smoothness."""


def check_smoothness(smoothness: float) -> None:
    """Raise `ArgumentError` unless it is a number that a `Matern` kernel may have."""
    check_positive("smoothness", smoothness)
    if not ROUGHEST <= smoothness <= SMOOTHEST:
        raise ArgumentError(
            f"smoothness is {smoothness:g}; expected {ROUGHEST:g} to {SMOOTHEST:g}. Fields that are still "
            "smoother have the kernel SquaredExponential.",
            key="smoothness-range",
        )


@dataclass(frozen=True)
class MaternOf:
    """Matern kernels of one smoothness: a family, which makes a kernel from a lengthscale and a variance."""

    smoothness: float  # from 0.1 to 10

    def __post_init__(self) -> None:
        check_smoothness(self.smoothness)

    def __call__(self, lengthscale: Lengthscales, variance: float = 1.0) -> "Matern":
        """Make the kernel."""
        return Matern(self.smoothness, lengthscale, variance)

    @property
    def __name__(self) -> str:
        """As it is written in job files, with a capital."""
        return f"Matern({self.smoothness:g})"

    @property
    def degrees_of_freedom(self) -> float:
        """Of the t distribution that is its spectral density."""
        return 2.0 * self.smoothness


Family = type[ClosedForm] | MaternOf  # makes a kernel from its lengthscale and variance


@dataclass(frozen=True)
class Matern(Elementary):
    """Matern kernel of any smoothness: fields with as many derivatives as integers are below the smoothness.

    Other than at smoothness 1/2, 3/2 and 5/2, which are `Matern12`, `Matern32` and `Matern52`, a value comes
    from a table of the modified Bessel function, to 1e-12 of the variance, at about twice the cost. The
    table takes 20 ms to make, once for each smoothness in a process.

    Parameters
    ----------
    smoothness : float
        From 0.1 to 10: at 0.5 the field is as rough as a random walk, at 10 hardly to be told from one with
        all derivatives.
    lengthscale : float, or tuple of p floats
        As of the other kernels.
    variance : float
        Prior variance of the field, squared unit of y, above zero.

    Raises
    ------
    ArgumentError
        If the smoothness is not a number from 0.1 to 10, or another parameter not a number above zero.

    Examples
    --------
    >>> import cagp_dist as cagp
    >>> kernel = cagp.Matern(smoothness=0.8, lengthscale=0.5, variance=2.0)
    >>> kernel([[0.0], [0.5]], [[0.0]]).round(4)
    array([[2.    ],
           [0.8416]])
    >>> cagp.Matern(1.5, 0.5)([[0.0]], [[0.3]]) == cagp.Matern32(0.5)([[0.0]], [[0.3]])
    array([[ True]])
    """

    smoothness: float
    lengthscale: Lengthscales
    variance: float = 1.0

    def __post_init__(self) -> None:
        check_smoothness(self.smoothness)
        super().__post_init__()

    @property
    def family(self) -> Family:
        """Matern kernels of this smoothness."""
        return MaternOf(self.smoothness)

    def profile(self, part: "Part", coordinate: int | None = None) -> "CompiledProfile":
        """Table of its values; that of a closed form where there is one."""
        from cagp_dist.profiles import closed_form, matern

        half = HALVES.get(self.smoothness)
        if half is not None:
            return closed_form(half.polynomial, half.scale, part, coordinate)
        return matern(float(self.smoothness), part, coordinate)

    def _scaled(self, factor: float) -> Self:
        return replace(self, variance=factor * self.variance)


KERNELS: dict[str, type[ClosedForm]] = {
    "matern12": Matern12,
    "matern32": Matern32,
    "matern52": Matern52,
    "squared-exponential": SquaredExponential,
}
"""The kernels by the names that job files give them."""

CLASSES = f"{', '.join(kernel.__name__ for kernel in KERNELS.values())} or Matern"
"""Kernels as users write them in Python."""

OF_SMOOTHNESS = re.compile(r"matern\((\d*\.?\d+)\)")  # as job files write it

AUTO, FITTED = "auto", "matern"
"""Instead of a kernel whose numbers are fitted: that of three whose likelihood is largest, and `Matern` of
the smoothness whose likelihood is; see `cagp_dist.fit`."""

KERNEL_FORMS = (*KERNELS, "matern(0.8)")  # as job files write them, one with a number
FORMS = (AUTO, FITTED, *KERNEL_FORMS)  # what may stand for a single kernel in a job file


def family_of(name: str) -> Family | None:
    """Give the family that a name of job files stands for, None if it is no such name."""
    if found := OF_SMOOTHNESS.fullmatch(name):
        return MaternOf(float(found[1]))
    return KERNELS.get(name)


def chosen_by(kernel: object) -> str | None:
    """How a kernel is chosen when its numbers are fitted, `AUTO` or `FITTED`; None if it is one already."""
    if kernel is Matern:
        return FITTED
    return kernel if isinstance(kernel, str) and kernel in (AUTO, FITTED) else None


def name_of(kernel: Kernel) -> str:
    """Write a kernel without its numbers as job files do."""
    classes = {family: name for name, family in KERNELS.items()}
    families = [part.family for part in kernel.parts]
    return " + ".join(
        f"matern({family.smoothness!r})" if isinstance(family, MaternOf) else classes[family]
        for family in families
    )


def families_of(name: str) -> tuple[Family, ...]:
    """Families of the parts of a kernel that is written as in job files, such as "matern32 + matern(0.8)"."""
    families = []
    for part in name.split("+"):
        family = family_of(part.strip())
        if family is None:
            raise ArgumentError(
                f"kernel is {name!r}; {part.strip()!r} is not a kernel; expected {', '.join(KERNEL_FORMS)}.",
                key="kernel-type",
            )
        families.append(family)
    return tuple(families)
