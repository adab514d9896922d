"""What the time may be of a kernel of space and time beside a kernel in hours: cycles, and Gneiting's class.

A cycle is a kernel of the chord of a circle as long as the period (math 21)::

    k(period / pi |sin(pi (t - t') / period)|)

Gneiting's class [Gneiting 2002] lets correlations in space reach further at
longer lags, where a product has the same at all; with ``w = 1 + |t - t'| / lengthscale`` and M a kernel::

    k(h, t) = w^(-3/2) M(h w^(-interaction / 2))

It is a covariance in three dimensions, so of chords of the sphere too, for interactions from 0 to 1.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array
from cagp_dist.checks import LARGEST, as_points, check_positive
from cagp_dist.errors import ArgumentError
from cagp_dist.kernels import (
    SPACE,
    SPACE_COLUMNS,
    TIME,
    Axis,
    Elementary,
    Family,
    Layout,
    Lengthscales,
    OfOneAxis,
    Piece,
    along,
)

DECAY = 1.5
"""Power of w: half the number of dimensions times the largest interaction."""


@dataclass(frozen=True)
class Periodic(OfOneAxis):
    """A factor in time that comes back after each period, as diurnal and annual cycles do.

    Parameters
    ----------
    kernel : Kernel
        Of the chord of a circle as long as the period, variance 1: lengthscale in hours, as without a period
        where it is short. Any kernel; the largest chord is the period over pi.
    period : float
        Hours: 24.0, or 8766.0 for a year.
    axis : str
        Another axis than time, in its unit.

    Raises
    ------
    ArgumentError
        If the kernel is a sum, has another variance or several lengthscales, or the period is not above zero.

    Examples
    --------
    The mean course of a day, which is the same each day, and weather:

    >>> import numpy as np, cagp_dist as cagp
    >>> day = cagp.Periodic(cagp.Matern52(lengthscale=8.0), period=24.0)
    >>> kernel = cagp.SpaceTime(cagp.Matern32(0.3, 9.0), day) + cagp.SpaceTime(
    ...     cagp.Matern32(0.05, 4.0), cagp.Matern12(20.0)
    ... )
    >>> X = np.array([[1.0, 0.0, 0.0, hours] for hours in (0.0, 12.0, 24.0, 240.0)])
    >>> kernel(X, X[:1]).ravel().round(2)
    array([13.  ,  7.15, 10.2 ,  9.  ])
    """

    kernel: Elementary
    period: float
    axis: str = TIME

    variance: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        known = isinstance(self.kernel, Elementary) and not isinstance(self.kernel.lengthscale, tuple)
        if not known or self.kernel.variance != 1.0:
            raise ArgumentError(
                f"kernel is {self.kernel!r}; expected a kernel with one lengthscale, in hours, and variance "
                "1, such as cagp.Matern52(8.0): the variance of the field is that of the kernel in space.",
                key="kernel-type",
            )
        check_positive("period", self.period, least=1.0 / LARGEST, most=LARGEST)

    @property
    def common_lengthscale(self) -> float:
        """Hours."""
        return self.kernel.common_lengthscale

    @property
    def family(self) -> "PeriodicOf":
        """What makes it from its lengthscale."""
        return PeriodicOf(self.kernel.family, self.period, self.axis)

    @property
    def numbers(self) -> tuple[float, ...]:
        """Its lengthscale."""
        return (self.common_lengthscale,)

    @property
    def number_names(self) -> tuple[str, ...]:
        """Name of its lengthscale."""
        return self._along.number_names

    @property
    def number_axes(self) -> tuple[Axis, ...]:
        """Along which axis it is."""
        return (self.axis,)

    def check(self, layout: Layout, X: Array) -> None:
        """Take all points: a cycle asks no more of them than their columns."""

    @property
    def _along(self) -> Elementary:
        return along(self.kernel, self.axis)

    def _bent(self, pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
        return tuple(piece._replace(period=self.period / self.common_lengthscale) for piece in pieces)

    def pieces(self, layout: Layout) -> tuple[Piece, ...]:
        """Give what compiled functions are told of it."""
        return self._bent(self._along.pieces(layout))

    def slopes(self, layout: Layout) -> tuple[tuple[tuple[Piece, ...], ...], ...]:
        """Give its derivative by the logarithm of its lengthscale."""
        return tuple(tuple(map(self._bent, terms)) for terms in self._along.slopes(layout))

    def __call__(self, X: ArrayLike, Z: ArrayLike) -> Array:
        """Correlations (n, m) of hours X (n, 1) and Z (m, 1)."""
        return self.kernel(self._circle(X), self._circle(Z))

    def _circle(self, hours: ArrayLike) -> Array:
        turn = 2.0 * np.pi * np.mod(as_points("hours", hours)[:, 0] / self.period, 1.0)
        return self.period / (2.0 * np.pi) * np.column_stack([np.cos(turn), np.sin(turn)])


@dataclass(frozen=True)
class Gneiting:
    """Gneiting's class: fields that are smoother in space from one time to another the longer the lag.

    Parameters
    ----------
    lengthscale : float
        Hours.
    interaction : float
        0 to 1: none, the product with ``w^(-3/2)``, to the most.

    Raises
    ------
    ArgumentError
        If a number is outside its range.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> kernel = cagp.SpaceTime(cagp.Matern32(0.1, 4.0), cagp.Gneiting(lengthscale=12.0, interaction=1.0))
    >>> here, there = cagp.unit_sphere([50.0, 50.0], [0.0, 10.0])
    >>> later = np.column_stack([np.stack([here, there]), [24.0, 24.0]])
    >>> kernel(later, np.append(here, 0.0)[None]).ravel().round(3)
    array([0.77 , 0.532])
    """

    lengthscale: float
    interaction: float = 1.0

    variance: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        check_positive("lengthscale", self.lengthscale, least=1.0 / LARGEST, most=LARGEST)
        if not 0.0 <= self.interaction <= 1.0:
            raise ArgumentError(
                f"interaction is {self.interaction!r}; expected a number from 0 to 1.",
                key="interaction-range",
            )

    @property
    def common_lengthscale(self) -> float:
        """Hours."""
        return float(self.lengthscale)

    @property
    def family(self) -> "GneitingOf":
        """What makes it from its lengthscale."""
        return GneitingOf(self.interaction)


@dataclass(frozen=True)
class Stretched:
    """A kernel in space whose distances `Gneiting` shortens with the lag, times what that has in time."""

    space: Elementary
    time: Gneiting

    layout: ClassVar[Layout] = Layout(SPACE_COLUMNS, (TIME,))
    number_names: ClassVar[tuple[str, ...]] = ("lengthscale", "lengthscale_time")
    number_axes: ClassVar[tuple[Axis, ...]] = (SPACE, TIME)
    is_zonal: ClassVar[bool] = False

    def check(self, layout: Layout, X: Array) -> None:
        """Take all points."""

    @property
    def numbers(self) -> tuple[float, ...]:
        """Lengthscales in space and time."""
        return self.space.common_lengthscale, self.time.common_lengthscale

    @property
    def family(self) -> "StretchedOf":
        """What makes it from its lengthscales."""
        return StretchedOf(self.space.family, self.time.family)

    def pieces(self, layout: Layout) -> tuple[Piece, ...]:
        """Give what compiled functions are told of it: of time, then of space."""
        return self._both(layout, 1.0, 0.0, self.space.pieces(layout))

    def _both(
        self, layout: Layout, level: float, rising: float, space: tuple[Piece, ...]
    ) -> tuple[Piece, ...]:
        from cagp_dist.profiles import algebraic

        rows = layout.rows(TIME, self.time.common_lengthscale)
        own = Piece(algebraic(level, rising, DECAY), rows)
        return own, *(piece._replace(power=self.time.interaction) for piece in space)

    def slopes(self, layout: Layout) -> tuple[tuple[tuple[Piece, ...], ...], ...]:
        """Give the terms of its derivatives by the logarithms of both lengthscales."""
        values, ((falling,),) = self.space.pieces(layout), self.space.slopes(layout)
        time, *rest = self._both(layout, 0.0, 1.0, values)
        risen = (time._replace(weight=DECAY), *rest)
        time, *rest = self._both(layout, 0.0, 1.0, falling)
        stretched = (time._replace(weight=-0.5 * self.time.interaction), *rest)
        by_time = (risen, stretched) if self.time.interaction > 0.0 else (risen,)
        return (self._both(layout, 1.0, 0.0, falling),), by_time


@dataclass(frozen=True)
class StretchedOf:
    """A family of kernels in space with `Gneiting` of one interaction."""

    space: Family
    time: "GneitingOf"

    def __call__(self, lengthscale: Lengthscales, variance: float = 1.0) -> Stretched:
        """Make the factor."""
        assert isinstance(lengthscale, tuple)
        return Stretched(self.space(lengthscale[0], variance), self.time(lengthscale[1]))


@dataclass(frozen=True)
class PeriodicOf:
    """Cycles of one period, by a family of kernels: it makes one from its lengthscale."""

    kernel: Family
    period: float
    axis: str = TIME

    def __call__(self, lengthscale: Lengthscales, variance: float = 1.0) -> Periodic:
        """Make the factor."""
        return Periodic(self.kernel(lengthscale, variance), self.period, self.axis)

    @property
    def __name__(self) -> str:
        """For people."""
        return f"Periodic({self.kernel.__name__}, {self.period:g})"


@dataclass(frozen=True)
class GneitingOf:
    """Gneiting's class with one interaction: it makes a factor from its lengthscale."""

    interaction: float = 1.0

    def __call__(self, lengthscale: float) -> Gneiting:
        """Make the factor."""
        return Gneiting(lengthscale, self.interaction)

    @property
    def __name__(self) -> str:
        """For people."""
        return f"Gneiting({self.interaction:g})"
