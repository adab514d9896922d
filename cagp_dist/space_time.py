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

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.checks import LARGEST, check_positive
from cagp_dist.errors import ArgumentError
from cagp_dist.kernels import CLASSES, Elementary, Family, Lengthscales, Parameters
from cagp_dist.time_factors import Gneiting, GneitingOf, Periodic, PeriodicOf, TimeTerm

if TYPE_CHECKING:
    from cagp_dist.profiles import CompiledProfile, Part

SPACE, TIME = 0, 1
"""Which lengthscale of a part is which, where they are fitted."""

AXES = (SPACE, SPACE, SPACE, TIME)
"""What each column of X belongs to."""


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

    of_space_and_time: ClassVar[bool] = True

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
    def family(self) -> "SpaceTimeOf":  # type: ignore[override]
        """What makes it from its two lengthscales and its variance."""
        return SpaceTimeOf(self.space.family, None if self.time is None else self.time.family)

    def profile(self, part: "Part", coordinate: int | None = None) -> "CompiledProfile":
        """Give that of one kernel, or of two that are multiplied."""
        from cagp_dist.profiles import Part

        if self.time is None:
            return self.space.profile(part, coordinate)
        if part is Part.SHARE:
            raise ArgumentError(
                "actions are not learned with a product of kernels; expected a metric one.", key="no-product"
            )
        (_, profile), *_ = self._terms(part, Part.VALUE)
        return profile

    def _terms(self, of_space: "Part", of_time: "Part") -> "list[tuple[float, CompiledProfile]]":
        """Weights and profiles of the terms of a product or of a derivative."""
        from cagp_dist.profiles import product

        assert self.time is not None
        if isinstance(self.time, Elementary):
            terms: tuple[TimeTerm, ...] = (TimeTerm(of_space, self.time.profile(of_time)),)
        else:
            terms = self.time.terms(of_space, of_time)
        return [
            (
                weight,
                product(self.space.profile(own), in_time, AXES.index(TIME), period, power),
            )
            for own, in_time, weight, period, power in terms
        ]

    def coordinate_slope_parameters(self, coordinate: int) -> Parameters:
        """Give ``dk / d log(lengthscale)``, in space or in time, as compiled functions take kernels."""
        from cagp_dist.profiles import Part

        inverse, variance = self.inverse_lengthscales(len(AXES)), float(self.variance)
        if self.time is None:  # the derivatives by each coordinate add up
            own = [column for column, axis in enumerate(AXES) if axis == coordinate]
            shares = tuple(self.space.profile(Part.SHARE, column) for column in own)
            return shares, (inverse,) * len(own), (variance,) * len(own)
        parts = [Part.VALUE, Part.VALUE]
        parts[coordinate] = Part.SLOPE
        weights, slopes = zip(*self._terms(parts[SPACE], parts[TIME]), strict=True)
        return slopes, (inverse,) * len(slopes), tuple(variance * weight for weight in weights)

    def inverse_lengthscales(self, coordinates: int) -> tuple[float, ...]:
        """One over the lengthscale of each column of X."""
        assert isinstance(self.lengthscale, tuple)
        return tuple(1.0 / self.lengthscale[axis] for axis in AXES)

    def check_coordinates(self, X: Array) -> None:
        """Raise `ArgumentError` unless X holds unit vectors and hours."""
        check_space_time(X)

    def _scaled(self, factor: float) -> "SpaceTime":
        return replace(self, space=self.space * factor)


@dataclass(frozen=True)
class SpaceTimeOf:
    """Kernels of space and time of these families, whose numbers are fitted; without a time a metric kernel.

    >>> import cagp_dist as cagp
    >>> SpaceTimeOf(cagp.Matern32, cagp.Matern12)((0.3, 7.5), 2.0).lengthscale
    (0.3, 7.5)
    """

    space: Family
    time: Family | PeriodicOf | GneitingOf | None = None

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


def check_space_time(X: Array) -> None:
    """Raise `ArgumentError` unless X (n, 4) holds unit vectors, or x, y and 0 of a plane, and hours."""
    if X.shape[1] != len(AXES):
        raise ArgumentError(
            f"X has {X.shape[1]} columns; a kernel of space and time expects 4: the unit vectors of "
            "cagp.unit_sphere(latitude_degrees, longitude_degrees), or x, y and 0 of a plane, and hours.",
            key="columns",
        )
    lengths = np.sqrt((X[:, :3] ** 2).sum(axis=1))
    if not X[:, 2].any():  # a plane; on the sphere this is the equator
        return
    if not np.all(np.abs(lengths - 1.0) < 1e-3):
        wrong = lengths[np.argmax(np.abs(lengths - 1.0))]
        raise ArgumentError(
            f"the first three columns of a row of X have length {wrong:.4g}; a kernel of space and time "
            "expects unit vectors there, those of cagp.unit_sphere(latitude_degrees, longitude_degrees), or "
            "x, y and 0 of a plane, and hours in the fourth.",
            key="unit-vectors",
        )
