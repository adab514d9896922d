"""Ellipses in place of circles: two more numbers of a kernel in space, fitted by likelihood (math 24)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.errors import ArgumentError
from cagp_dist.factors import (
    WIDEST_CAP_DEGREES,
    Anisotropic,
    AnisotropicOf,
    AxiallySymmetric,
    AxiallySymmetricOf,
    Directional,
)
from cagp_dist.geometry import degrees
from cagp_dist.kernels import Elementary, Family, Kernel, Lengthscales
from cagp_dist.likelihood.fit_result import FitResult
from cagp_dist.likelihood.kernel_choice import likelihood_of
from cagp_dist.likelihood.starts import Start

AnisotropyLike = Literal["none", "auto", "fit"] | tuple[float, float]

GAIN = 4.0  # Log-likelihood by which an ellipse must be better than a circle where it is tried: two numbers
# The same where it is asked for: a field without a direction gains as much in one case of twenty, and an
# ellipse that is taken nevertheless costs a hundredth of its score
GAIN_ASKED = 3.0
ON_A_LINE = 1e-3  # Spread of places across over that along which tells nothing of a direction


@dataclass(frozen=True)
class Ellipse:
    """What is said of the ellipses of a kernel in space."""

    asked: AnisotropyLike
    centre: tuple[float, float] | None  # Latitude and longitude where the plane touches the globe
    globe: bool = False  # Whether it is east against north, on the whole globe

    @property
    def shape(self) -> tuple[float, float] | None:
        """Ratio and azimuth, where they are given."""
        return None if isinstance(self.asked, str) else self.asked

    def of(self, kernel: Kernel) -> Directional:
        """Stretch a kernel as it is given."""
        assert self.shape is not None
        assert isinstance(kernel, Elementary)
        if self.globe:
            return AxiallySymmetric(kernel, *self.shape, held=True)
        return Anisotropic(kernel, *self.shape, centre=self.centre, held=True)

    def family(self, kernel: Family) -> AnisotropicOf | AxiallySymmetricOf:
        """Give what makes ellipses of a family, of the shape that is given if there is one."""
        if not self.globe:
            return AnisotropicOf(kernel, self.centre, self.shape)
        held = None if self.shape is None else AxiallySymmetric(kernel(1.0), *self.shape).stretch
        return AxiallySymmetricOf(kernel, held)

    def circle(self, length: float) -> Lengthscales:
        """Give the numbers of an ellipse that is a circle."""
        if self.shape is not None:
            return length
        return (length, 1.0) if self.globe else (length, 1.0, 1.0)


def check_anisotropy(asked: object) -> AnisotropyLike:
    """Give what is asked of ellipses, checked."""
    if isinstance(asked, str) and asked in ("none", "auto", "fit"):
        return asked  # type: ignore[return-value]
    if isinstance(asked, tuple | list) and len(asked) == 2:
        ratio, azimuth = asked
        if all(isinstance(one, int | float | np.number) and not isinstance(one, bool) for one in asked):
            return float(ratio), float(azimuth)
    raise ArgumentError(
        f'anisotropy is {asked!r}; expected "fit", "auto", "none", or ratio and azimuth, such as (3.0, '
        "30.0): the major axis is three times the minor one, and points 30 degrees clockwise from north.",
        key="anisotropy",
    )


def ellipse_on_globe(asked: AnisotropyLike, X: Array) -> Ellipse:
    """Give what is said of ellipses of places X (n, 3): in a region, or east against north on the globe."""
    middle = X.mean(axis=0)
    length = float(np.linalg.norm(middle))
    radius = 180.0
    if length > 1e-6:
        middle = middle / length
        radius = float(np.degrees(np.arccos(np.clip(X @ middle, -1.0, 1.0).min())))
    if radius > WIDEST_CAP_DEGREES:
        if not isinstance(asked, str) and asked[1] % 90.0 != 0.0:
            raise ArgumentError(
                f"the azimuth is {asked[1]:g}, and the observations reach {radius:.0f} degrees from their "
                f"middle; expected 90 (east against north) or 0 beyond {WIDEST_CAP_DEGREES:g} degrees, where "
                "another direction is not the same everywhere. Map regions by themselves, or leave "
                "anisotropy out.",
                key="anisotropy-region",
            )
        return Ellipse(asked, None, globe=True)
    latitude, longitude = degrees(middle[None])
    return Ellipse(asked, (float(latitude[0]), float(longitude[0])))


def lie_on_a_line(X: Array) -> bool:
    """Whether places X (n, p) lie on a line, or on the globe on a circle, such as a parallel."""
    spread = np.linalg.svd(X - X.mean(axis=0), compute_uv=False) / np.sqrt(len(X))
    # of a region of the globe the third is about the square of the first, by its curvature
    flat = len(spread) > 2 and spread[2] <= ON_A_LINE * spread[0] ** 2
    return bool(spread[1] <= ON_A_LINE * spread[0] or flat)


def with_ellipse(ellipse: Ellipse, isotropic: FitResult, search: Callable[..., FitResult]) -> FitResult:
    """Fit an ellipse from the end of a fit of circles; these are kept where they do nearly as well.

    ``search(family, start=, starts=)`` fits. The logarithm of the shape is a point of a plane, in which
    circles are the origin, so that no direction has to be guessed.
    """
    circles = isotropic.prior.kernel
    assert isinstance(circles, Elementary)  # `fit_model` refuses sums
    length = circles.common_lengthscale
    start: Start = {
        "lengthscale": ellipse.circle(length),
        "variance": circles.variance,
        "noise_variance": isotropic.prior.noise_number,
    }
    found = search(ellipse.family(circles.family), start=start, starts=1)
    gain = likelihood_of(found) - likelihood_of(isotropic)
    if ellipse.asked == "auto" and gain < GAIN:
        return isotropic
    if ellipse.asked == "fit" and gain < GAIN_ASKED:
        circle = replace(ellipse, asked=(1.0, 0.0)).of(circles)
        return replace(isotropic, prior=replace(isotropic.prior, kernel=circle))
    return replace(found, choice=isotropic.choice)


def shape_errors(result: FitResult) -> tuple[float, float]:
    """Give the standard errors of log(ratio) and of the azimuth in degrees; NaN where there is none."""
    kernel = result.prior.kernel.parts[0].factors[0]  # whose numbers stand first
    assert isinstance(kernel, Directional)
    if kernel.held:
        return np.nan, np.nan
    if isinstance(kernel, AxiallySymmetric):
        return float(np.sqrt(result.log_covariance[1, 1])), np.nan
    c, s = np.log(kernel.numbers[1:])
    if c == s == 0.0:  # a circle, which points nowhere
        return np.nan, np.nan
    reach, own = float(np.hypot(c, s)), result.log_covariance[1:3, 1:3]
    along, across = np.array([c, s]) / reach, np.array([-s, c]) / reach
    turn = 0.5 * np.sqrt(across @ own @ across) / reach
    return float(np.sqrt(along @ own @ along)), float(np.degrees(turn))
