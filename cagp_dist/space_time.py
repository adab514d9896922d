"""Kernels of space and time: how a field at one place and hour goes with that at another (math 21).

With ``u = |x - x'| / lengthscale`` and ``w = |t - t'| / lengthscale_time``::

    product   variance k_space(u) k_time(w)
    metric    variance k(sqrt(u^2 + w^2))

Points are unit vectors and hours, X (n, 4). Both are covariances, and so are their sums, such as that of a
slow field and the weather on top of it::

    SpaceTime(Matern32(0.5, 9.0), Matern52(240.0)) + SpaceTime(Matern32(0.05, 4.0), Matern12(9.0))
"""

from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from cagp_dist.checks import LARGEST, check_positive
from cagp_dist.errors import ArgumentError
from cagp_dist.kernels import (
    CLASSES,
    SPACE,
    SPACE_COLUMNS,
    TIME,
    Along,
    Axis,
    Elementary,
    Factor,
    Family,
    Layout,
    Lengthscales,
    along,
)
from cagp_dist.time_factors import Gneiting, GneitingOf, Periodic, PeriodicOf, Stretched

if TYPE_CHECKING:
    from cagp_dist.profiles import CompiledProfile, Part

AXES = (0, 0, 0, 1)
"""Which of the two lengthscales each column of X belongs to."""

LAYOUT = Layout(SPACE_COLUMNS, (TIME,))
"""Columns of points in space and time: unit vectors, or x, y and 0 of a plane, and hours."""


@dataclass(frozen=True)
class SpaceTime(Elementary):
    """A kernel of points in space and time, X (n, 4): unit vector and hours.

    Two kernels are multiplied: correlations in space are the same at all lags in time (separable). One kernel
    with ``lengthscale_time`` is that kernel of the distance in space and time together (metric).

    Parameters
    ----------
    space : Kernel
        In space, with its lengthscale (chord of the unit sphere) and the variance of the field.
    time : Kernel, Periodic or Gneiting, optional
        In time, with its lengthscale in hours and variance 1. A cycle is periodic. With `Gneiting` it is no
        product: correlations in space reach further at longer lags.
    lengthscale_time : float, optional
        Hours, instead of ``time``.

    Raises
    ------
    ArgumentError
        If it is not one of the two forms, or a kernel is a sum, or has a lengthscale for each coordinate.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> kernel = cagp.SpaceTime(cagp.Matern32(lengthscale=0.3, variance=2.0), cagp.Matern12(lengthscale=7.5))
    >>> X = np.array([[1.0, 0.0, 0.0, 12.0], [1.0, 0.0, 0.0, 19.5], [0.0, 1.0, 0.0, 12.0]])
    >>> kernel(X, X[:1]).round(4)
    array([[2.    ],
           [0.7358],
           [0.0052]])
    >>> cagp.SpaceTime(cagp.Matern32(0.3, 2.0), lengthscale_time=7.5).lengthscale
    (0.3, 7.5)
    """

    space: Elementary
    time: Elementary | Periodic | Gneiting | None = None
    _: KW_ONLY
    lengthscale_time: float | None = None

    axis: ClassVar[str | tuple[str, ...]] = (SPACE, TIME)  # type: ignore[misc]

    def __post_init__(self) -> None:
        for name, kernel in (("space", self.space), ("time", self.time)):
            if name == "time" and (kernel is None or isinstance(kernel, Periodic | Gneiting)):
                continue
            if not isinstance(kernel, Elementary) or isinstance(kernel.lengthscale, tuple):
                raise ArgumentError(
                    f"{name} is {kernel!r}; expected a kernel with one lengthscale, such as "
                    f"cagp.Matern32(0.3, 2.0): {CLASSES}. Sums are sums of SpaceTime kernels.",
                    key="kernel-type",
                )
        if (self.time is None) == (self.lengthscale_time is None):
            raise ArgumentError(
                f"time is {self.time!r} and lengthscale_time is {self.lengthscale_time!r}; expected one of "
                "them: a kernel in time, which the one in space is multiplied with, or hours that count like "
                "a lengthscale in space.",
                key="both-lengthscales",
            )
        if self.time is not None and self.time.variance != 1.0:
            raise ArgumentError(
                f"time has the variance {self.time.variance:g}; expected 1: the variance of the field is "
                "that of the kernel in space.",
                key="variance-of-time-kernel",
            )
        if self.lengthscale_time is not None:
            check_positive("lengthscale_time", self.lengthscale_time, least=1.0 / LARGEST, most=LARGEST)

    @property
    def lengthscale(self) -> Lengthscales:  # type: ignore[override]
        """Chord in space, and hours in time."""
        return self.space.common_lengthscale, self.hours

    @property
    def hours(self) -> float:
        """Lengthscale in time."""
        return float(
            (self.time.common_lengthscale if self.time is not None else self.lengthscale_time) or 0.0
        )

    @property
    def variance(self) -> float:  # type: ignore[override]
        """Prior variance of the field."""
        return self.space.variance

    @property
    def family(self) -> "SpaceTimeOf":
        """What makes it from its two lengthscales and its variance."""
        return SpaceTimeOf(self.space.family, None if self.time is None else self.time.family)

    @property
    def factors(self) -> tuple[Factor, ...]:
        """One of space and time together, or one of each."""
        if self.time is None:
            return (Along(self.space.family, (SPACE, TIME))(self.lengthscale),)
        space = self.space.family(self.space.lengthscale)
        if isinstance(self.time, Gneiting):
            return (Stretched(space, self.time),)
        if isinstance(self.time, Periodic):
            return space, self.time
        return space, along(self.time, TIME)

    @property
    def layout(self) -> Layout:
        """Columns of points: three of space, and hours."""
        return LAYOUT

    @property
    def number_names(self) -> tuple[str, ...]:
        """Names of the lengthscales in space and time."""
        return SpaceTimeOf.number_names

    @property
    def number_axes(self) -> tuple[Axis, ...]:
        """Their axes."""
        return SpaceTimeOf.number_axes

    def profile(self, part: "Part", coordinate: int | None = None) -> "CompiledProfile":
        """Give that of the one kernel, if it is one."""
        if self.time is None:
            return self.space.profile(part, coordinate)
        raise ArgumentError(
            "actions are not learned with a product of kernels; expected a metric one.", key="no-product"
        )

    def inverse_lengthscales(self, coordinates: int) -> tuple[float, ...]:
        """One over the lengthscale of each column of X."""
        assert isinstance(self.lengthscale, tuple)
        return tuple(1.0 / self.lengthscale[axis] for axis in AXES)

    def _scaled(self, factor: float) -> "SpaceTime":
        return replace(self, space=self.space._scaled(factor))


@dataclass(frozen=True)
class SpaceTimeOf:
    """Kernels of space and time of these families, whose numbers are fitted; without a time a metric kernel.

    >>> import cagp_dist as cagp
    >>> SpaceTimeOf(cagp.Matern32, cagp.Matern12)((0.3, 7.5), 2.0).lengthscale
    (0.3, 7.5)
    """

    space: Family
    time: Family | PeriodicOf | GneitingOf | None = None

    number_names: ClassVar[tuple[str, ...]] = ("lengthscale_1", "lengthscale_2")
    number_axes: ClassVar[tuple[Axis, ...]] = (SPACE, TIME)

    def __call__(self, lengthscale: Lengthscales, variance: float = 1.0) -> SpaceTime:
        """Make the kernel from its lengthscales in space and time and its variance."""
        assert isinstance(lengthscale, tuple)
        chord, hours = lengthscale
        space = self.space(chord, variance)
        if self.time is None:
            return SpaceTime(space, lengthscale_time=hours)
        return SpaceTime(space, self.time(hours))

    @property
    def __name__(self) -> str:
        """For people."""
        return f"SpaceTime({self.space.__name__}{'' if self.time is None else f', {self.time.__name__}'})"

    @property
    def degrees_of_freedom(self) -> float | None:
        """Of the t distribution that is its spectral density; None: that of a product is none."""
        return self.space.degrees_of_freedom if self.time is None else None
