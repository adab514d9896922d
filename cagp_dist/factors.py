"""Factors of kernels that are no function of one distance: ellipses, and tables of labels (math 23, 24)."""

import math
from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array
from cagp_dist.checks import LARGEST, as_numbers, check_positive
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import east_and_north, unit_sphere
from cagp_dist.kernels import (
    CLASSES,
    NAME_OF_SPACE,
    SPACE,
    SPACE_COLUMNS,
    UNITS,
    Axis,
    ClosedForm,
    Elementary,
    Factor,
    Family,
    Kernel,
    Layout,
    Lengthscales,
    Matern,
    OfOneAxis,
    Piece,
    Row,
)

if TYPE_CHECKING:
    from cagp_dist.profiles import CompiledProfile, Part

MOST_RATIO = 100.0  # Of the axes of an ellipse
WIDEST_CAP_DEGREES = 30.0  # Radius of a region whose tangent plane takes its place
STRETCH, STRETCHES = "stretch", ("stretch_1", "stretch_2")
STEEPEST = 15.0  # Numbers of a table of which exponentials are fitted: a correlation of 0.998


class Directional(Elementary):
    """A kernel of space that reaches further in one direction; the base of those below."""

    kernel: Elementary
    ratio: float
    azimuth_degrees: float
    held: bool

    axis: ClassVar[str | tuple[str, ...]] = ()  # type: ignore[misc]

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, ClosedForm | Matern) or self.kernel.layout is not None:
            raise ArgumentError(
                f"kernel is {self.kernel!r}; expected one of space with one lengthscale: {CLASSES}. Sums are "
                f"sums of {type(self).__name__} kernels, products have one as a factor.",
                key="kernel-type",
            )
        self.kernel.common_lengthscale  # noqa: B018 (refuses several)
        check_shape(self.ratio, self.azimuth_degrees)

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """Which columns points have."""

    @property
    @abstractmethod
    def family(self) -> "AnisotropicOf | AxiallySymmetricOf":
        """What makes it from its numbers and variance."""

    @property
    def kept(self) -> Self:
        """The same, whose shape a fit keeps."""
        return cast("Self", replace(cast("Any", self), held=True))

    @property
    def correlation(self) -> Factor:
        """The same with the variance one."""
        return cast("Factor", replace(cast("Any", self), kernel=self.kernel.correlation))

    @property
    def variance(self) -> float:  # type: ignore[override]
        """Prior variance of the field."""
        return self.kernel.variance

    @property
    def lengthscale(self) -> float:  # type: ignore[override]
        """Geometric mean of the axes."""
        return self.kernel.common_lengthscale

    @property
    def number_names(self) -> tuple[str, ...]:
        """Names of its numbers."""
        return self.family.number_names

    @property
    def number_axes(self) -> tuple[Axis, ...]:
        """Along which axis each of them is a lengthscale."""
        return self.family.number_axes

    @property
    def factors(self) -> tuple[Factor, ...]:
        """Itself."""
        return (cast("Factor", self),)

    def profile(self, part: "Part", coordinate: int | None = None) -> "CompiledProfile":
        """Refuse: it is of no distance that actions are learned with."""
        raise ArgumentError(
            "actions are not learned with an anisotropic kernel; expected a kernel of one distance.",
            key="no-product",
        )

    def inverse_lengthscales(self, coordinates: int) -> tuple[float, ...]:
        """One over the lengthscale of the kernel, for each coordinate."""
        return (1.0 / self.kernel.common_lengthscale,) * coordinates

    def _scaled(self, factor: float) -> Self:
        return cast("Self", replace(cast("Any", self), kernel=self.kernel._scaled(factor)))


def check_shape(ratio: float, azimuth_degrees: float) -> None:
    """Raise `ArgumentError` unless these are the ratio of the axes of an ellipse, and the azimuth of it."""
    check_positive("ratio", ratio)
    if not 1.0 <= ratio <= MOST_RATIO:
        raise ArgumentError(
            f"ratio is {ratio:g}; expected 1 to {MOST_RATIO:g}, the major axis over the minor one.",
            key="anisotropy-ratio",
        )
    if not isinstance(azimuth_degrees, int | float) or not -180.0 <= azimuth_degrees <= 360.0:
        raise ArgumentError(
            f"azimuth_degrees is {azimuth_degrees!r}; expected degrees clockwise from north, from -180 to "
            "360.",
            key="anisotropy-azimuth",
        )


@dataclass(frozen=True)
class Anisotropic(Directional):
    """A kernel of space that reaches further in one direction: its contours are ellipses (math 24).

    With the axes ``a`` along the azimuth and ``b`` across, ``a / b`` is the ratio and ``sqrt(a b)`` the
    lengthscale of the kernel. In a region of the globe directions are those of the plane that touches it at
    its centre. Of the whole globe see `AxiallySymmetric`.

    Parameters
    ----------
    kernel : Kernel
        With one lengthscale, in space: one of Matern12, Matern32, Matern52, SquaredExponential or Matern.
    ratio : float
        Major axis over minor one, 1 to 100.
    azimuth_degrees : float
        Of the major axis, clockwise from north (the second coordinate of a plane), -180 to 360; directions
        that differ by 180 are the same.
    centre : tuple of two floats, optional
        Latitude and longitude in degrees of the centre of the region, for points on the unit sphere; without
        it points are those of a plane.
    held : bool
        Whether a fit keeps ratio and azimuth, and looks for the lengthscale alone.

    Raises
    ------
    ArgumentError
        If the kernel is a sum or a product, or a number is out of its range.

    Examples
    --------
    >>> import cagp_dist as cagp
    >>> kernel = cagp.Anisotropic(cagp.Matern32(10.0, 4.0), ratio=4.0, azimuth_degrees=90.0)
    >>> kernel([[20.0, 0.0], [0.0, 5.0]], [[0.0, 0.0]]).round(4)
    array([[1.9334],
           [1.9334]])
    """

    kernel: Elementary
    ratio: float
    azimuth_degrees: float
    _: KW_ONLY
    centre: tuple[float, float] | None = None
    held: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.centre is not None:
            self._check_centre()

    def _check_centre(self) -> None:
        given = self.centre
        if isinstance(given, tuple) and len(given) == 2:
            latitude, longitude = given
            if -90.0 <= latitude <= 90.0 and -180.0 <= longitude <= 360.0:
                return
        raise ArgumentError(
            f"centre is {given!r}; expected latitude and longitude in degrees, such as (47.0, 8.0).",
            key="anisotropy-centre",
        )

    def check(self, layout: Layout, X: Array) -> None:
        """Raise `ArgumentError` where points X (n, p) are too far from the centre."""
        if self.centre is None or len(X) == 0:
            return
        *_, up = self._directions(layout)
        radius = float(np.degrees(np.arccos(np.clip((X @ up).min(), -1.0, 1.0))))
        if radius > 2.0 * WIDEST_CAP_DEGREES:
            raise ArgumentError(
                f"a point is {radius:.0f} degrees from the centre {self.centre} of an ellipse, where north "
                "is another direction; expected a centre in the middle of the points, or of the whole globe "
                "cagp.AxiallySymmetric(kernel, ratio), east against north.",
                key="anisotropy-region",
            )

    @property
    def is_zonal(self) -> bool:
        """Directions of one place are others elsewhere."""
        return False

    @property
    def layout(self) -> Layout:
        """Which columns points have."""
        return Layout(2 if self.centre is None else SPACE_COLUMNS, (), self.centre is not None)

    @property
    def numbers(self) -> tuple[float, ...]:
        """Lengthscale, and exponentials of log(ratio) times minus cosine and sine of twice the azimuth."""
        length = self.kernel.common_lengthscale
        return (length,) if self.held else (length, *map(math.exp, self._stretches))

    @property
    def _stretches(self) -> tuple[float, float]:
        reach, turn = math.log(self.ratio), 2.0 * math.radians(self.azimuth_degrees)
        return -reach * math.cos(turn), reach * math.sin(turn)

    @property
    def family(self) -> "AnisotropicOf":
        """What makes it from its numbers and variance."""
        shape = (self.ratio, self.azimuth_degrees) if self.held else None
        return AnisotropicOf(self.kernel.family, self.centre, shape)

    def _shape(self) -> tuple[float, float, float]:
        """Logarithms (c, s) of the stretches, and of the ratio."""
        c, s = self._stretches
        return c, s, math.hypot(c, s)

    def pieces(self, layout: Layout) -> tuple[Piece, ...]:
        """Give what compiled functions are told of it."""
        from cagp_dist.profiles import Part

        return (Piece(self.kernel.profile(Part.VALUE), self._rows(layout)),)

    def _rows(self, layout: Layout) -> tuple[Row, ...]:
        """Coordinates along both axes, and away from the tangent plane, in units of their lengthscales."""
        c, s, reach = self._shape()
        angle = 0.5 * math.atan2(s, c)  # of the major axis, anticlockwise from east
        major, minor = math.exp(-0.5 * reach), math.exp(0.5 * reach)
        axes = [
            (major * math.cos(angle), major * math.sin(angle)),
            (-minor * math.sin(angle), minor * math.cos(angle)),
        ]
        east, north, *up = self._directions(layout)
        length = self.kernel.common_lengthscale
        rows = [x * east + y * north for x, y in axes]
        return tuple(tuple((row / length).tolist()) for row in (*rows, *up))

    def _directions(self, layout: Layout) -> list[Array]:
        """East, north, and on the globe up, as rows over the columns of points."""
        unit = np.eye(layout.columns)
        if self.centre is None:
            return [unit[0], unit[1]]
        at = tuple(np.array([degrees]) for degrees in self.centre)
        east, north, up = (*east_and_north(*at), unit_sphere(*at))
        return [direction[0] @ unit[:SPACE_COLUMNS] for direction in (east, north, up)]

    def slopes(self, layout: Layout) -> tuple[tuple[tuple[Piece, ...], ...], ...]:
        """Give the terms of its derivatives: by the stretches, squared differences along two directions."""
        from cagp_dist.profiles import Part

        rows, share = self._rows(layout), self.kernel.profile(Part.SHARE)
        c, s, reach = self._shape()
        east, north, *_ = self._directions(layout)
        length = self.kernel.common_lengthscale
        # squares are d' exp(-S) d / length^2 with S = [[c, s], [s, -c]], exp(-S) = cosh I - sinh / reach S
        S = np.array([[c, s], [s, -c]])
        ratio = math.sinh(reach) / reach if reach > 1e-6 else 1.0
        bend = (math.cosh(reach) - ratio) / reach**2 if reach > 1e-3 else 1.0 / 3.0
        found: list[tuple[tuple[Piece, ...], ...]] = [((Piece(self.kernel.profile(Part.SLOPE), rows),),)]
        if self.held:
            return tuple(found)
        for number, own in ((c, np.diag([1.0, -1.0])), (s, np.array([[0.0, 1.0], [1.0, 0.0]]))):
            by = ratio * number * np.eye(2) - bend * number * S - ratio * own
            values, vectors = np.linalg.eigh(by)
            terms = []
            for value, (x, y) in zip(values, vectors.T, strict=True):
                row = math.sqrt(abs(value)) / length * (x * east + y * north)
                terms.append(
                    (Piece(share, rows, -0.5 * math.copysign(1.0, value), multiplier=tuple(row.tolist())),)
                )
            found.append(tuple(terms))
        return tuple(found)


@dataclass(frozen=True)
class AnisotropicOf:
    """Anisotropic kernels of a family: it makes one from a lengthscale, two stretches and a variance."""

    kernel: Family
    centre: tuple[float, float] | None = None
    shape: tuple[float, float] | None = None  # ratio and azimuth that are kept

    @property
    def number_names(self) -> tuple[str, ...]:
        """Names of its numbers."""
        return (NAME_OF_SPACE,) if self.shape is not None else (NAME_OF_SPACE, *STRETCHES)

    @property
    def number_axes(self) -> tuple[Axis, ...]:
        """Along which axis each of them is a lengthscale."""
        return (SPACE,) if self.shape is not None else (SPACE, None, None)

    def __call__(self, lengthscale: Lengthscales, variance: float = 1.0) -> Anisotropic:
        """Make the kernel."""
        length, *stretches = lengthscale if isinstance(lengthscale, tuple) else (lengthscale,)
        if self.shape is not None:
            return Anisotropic(self.kernel(length, variance), *self.shape, centre=self.centre, held=True)
        c, s = (math.log(stretch) for stretch in stretches)
        azimuth = 90.0 - math.degrees(0.5 * math.atan2(s, c))
        ratio = math.exp(math.hypot(c, s))
        return Anisotropic(self.kernel(length, variance), ratio, azimuth % 180.0, centre=self.centre)

    @property
    def __name__(self) -> str:
        """For people."""
        return f"Anisotropic({self.kernel.__name__})"

    @property
    def degrees_of_freedom(self) -> None:
        """Of the t distribution that is its spectral density in the coordinates: it is none."""
        return None


@dataclass(frozen=True)
class AxiallySymmetric(Directional):
    """A kernel of the globe that reaches further along parallels, or along meridians (math 24).

    The distance that counts as one is ``a`` along meridians and ``sqrt(a^2 + c cos^2(latitude))`` along
    parallels. There is no direction at the poles, and the kernel is the same at every longitude, so that
    whole grids keep their rings. At the equator the larger of both over the smaller one is the ratio, and the
    root of their product the lengthscale of the kernel.

    Parameters
    ----------
    kernel : Kernel
        With one lengthscale, in space: one of Matern12, Matern32, Matern52, SquaredExponential or Matern.
    ratio : float
        How much further the field reaches at the equator in one direction than in the other, 1 to 100.
    azimuth_degrees : float
        90 where it reaches further along parallels, 0 along meridians; 180 more or less are the same.
    held : bool
        Whether a fit keeps the ratio, and looks for the lengthscale alone.

    Raises
    ------
    ArgumentError
        If the kernel is a sum or a product, a number is out of its range, or the azimuth another one.

    Notes
    -----
    With ``Sigma(s) = a^2 I + c w w'``, ``w = (-y, x, 0)``, and ``S`` the mean of ``Sigma(s)`` and
    ``Sigma(t)``, it is ``|Sigma(s)|^(1/4) |Sigma(t)|^(1/4) |S|^(-1/2) k(sqrt((s - t)' S^-1 (s - t)))``
    [Paciorek & Schervish 2006], a covariance for every kernel that is one in every dimension.

    Examples
    --------
    >>> import cagp_dist as cagp
    >>> kernel = cagp.AxiallySymmetric(cagp.Matern32(0.2, 4.0), ratio=4.0)
    >>> X = cagp.unit_sphere([0.0, 0.0, 20.0], [0.0, 20.0, 0.0])
    >>> kernel(X, X[:1]).round(4)
    array([[4.    ],
           [1.8496],
           [0.0684]])
    """

    kernel: Elementary
    ratio: float
    azimuth_degrees: float = 90.0
    _: KW_ONLY
    held: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.azimuth_degrees % 90.0 != 0.0:
            raise ArgumentError(
                f"azimuth_degrees is {self.azimuth_degrees:g}; expected 90 (east against north) or 0: on the "
                "whole globe there is no other direction that is the same everywhere. In a region of up to "
                f"{WIDEST_CAP_DEGREES:g} degrees around its middle take cagp.Anisotropic.",
                key="anisotropy-azimuth",
            )

    @property
    def is_zonal(self) -> bool:
        """It is the same at every longitude."""
        return True

    @property
    def layout(self) -> Layout:
        """Unit vectors."""
        return Layout(SPACE_COLUMNS, (), globe=True)

    @property
    def numbers(self) -> tuple[float, ...]:
        """Lengthscale, and the distance that counts as one along parallels over that along meridians."""
        length = self.kernel.common_lengthscale
        return (length,) if self.held else (length, self.stretch)

    @property
    def stretch(self) -> float:
        """Distance that counts as one along parallels over that along meridians, at the equator."""
        return 1.0 / self.ratio if self.azimuth_degrees % 180.0 == 0.0 else self.ratio

    @property
    def family(self) -> "AxiallySymmetricOf":
        """What makes it from its numbers and variance."""
        return AxiallySymmetricOf(self.kernel.family, self.stretch if self.held else None)

    @property
    def along_meridians(self) -> float:
        """The distance that counts as one along meridians: a chord."""
        return self.kernel.common_lengthscale / math.sqrt(self.stretch)

    def pieces(self, layout: Layout) -> tuple[Piece, ...]:
        """Give what compiled functions are told of it."""
        return (self._piece("VALUE", layout),)

    def _piece(self, part: str, layout: Layout, multiplied: int = 0, weight: float = 1.0) -> Piece:
        from cagp_dist.profiles import Part, on_globe

        squared, unit = self.stretch**2, self.along_meridians
        profile = on_globe(
            self.kernel.profile(Part[part]), (squared - 1.0) * unit**2, squared * unit**2, multiplied
        )
        return Piece(profile, layout.rows(SPACE, unit), weight)

    def slopes(self, layout: Layout) -> tuple[tuple[tuple[Piece, ...], ...], ...]:
        """Give the terms of its derivatives: of the stretch by the weight, the unit and squared distances."""
        from cagp_dist.compiled import BY_ITS_SLOPE, BY_SLOPE_OF_SQUARES

        of_length = ((self._piece("SLOPE", layout),),)
        if self.held:
            return (of_length,)
        of_stretch = (
            (self._piece("VALUE", layout, BY_ITS_SLOPE),),
            (self._piece("SLOPE", layout, weight=-0.5),),
            (self._piece("SHARE", layout, BY_SLOPE_OF_SQUARES, -1.0),),
        )
        return of_length, of_stretch


@dataclass(frozen=True)
class AxiallySymmetricOf:
    """Axially symmetric kernels of a family: it makes one from a lengthscale, a stretch and a variance."""

    kernel: Family
    stretch: float | None = None  # that is kept

    @property
    def number_names(self) -> tuple[str, ...]:
        """Names of its numbers."""
        return (NAME_OF_SPACE,) if self.stretch is not None else (NAME_OF_SPACE, STRETCH)

    @property
    def number_axes(self) -> tuple[Axis, ...]:
        """Along which axis each of them is a lengthscale."""
        return (SPACE,) if self.stretch is not None else (SPACE, None)

    def __call__(self, lengthscale: Lengthscales, variance: float = 1.0) -> AxiallySymmetric:
        """Make the kernel."""
        length, *own = lengthscale if isinstance(lengthscale, tuple) else (lengthscale,)
        stretch = own[0] if self.stretch is None else self.stretch
        azimuth = 0.0 if stretch < 1.0 else 90.0
        ratio, held = max(stretch, 1.0 / stretch), self.stretch is not None
        return AxiallySymmetric(self.kernel(length, variance), ratio, azimuth, held=held)

    @property
    def __name__(self) -> str:
        """For people."""
        return f"AxiallySymmetric({self.kernel.__name__})"

    @property
    def degrees_of_freedom(self) -> None:
        """Of the t distribution that is its spectral density: it is none."""
        return None


@dataclass(frozen=True)
class Coregion(OfOneAxis):
    """How variables go together: a table of covariances by a label, a factor of a kernel (math 23).

    Parameters
    ----------
    covariance : array_like, shape (m, m)
        B, symmetric and without negative eigenvalues: what the covariance of labels l and l' is multiplied
        with. Points have labels 0 to m - 1; one below zero goes with no other.
    axis : str
        Name of the label.
    independent : bool
        Whether nothing off the diagonal is fitted; B is diagonal then.

    Raises
    ------
    ArgumentError
        If B is not square, not symmetric, or has a negative eigenvalue.

    Examples
    --------
    >>> import cagp_dist as cagp
    >>> kernel = cagp.Matern32(0.1, 4.0) * cagp.Coregion([[1.0, 0.5], [0.5, 1.0]], axis="variable")
    >>> kernel([[1.0, 0.0, 0.0, 0.0]], [[1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 1.0]])
    array([[4., 2.]])
    """

    covariance: tuple[tuple[float, ...], ...]
    axis: str = "variable"
    independent: bool = False

    variance: ClassVar[float] = 1.0

    def __init__(self, covariance: ArrayLike, axis: str = "variable", *, independent: bool = False) -> None:
        B = as_numbers("covariance", covariance)
        if B.ndim != 2 or B.shape[0] != B.shape[1] or len(B) == 0 or not np.isfinite(B).all():
            raise ArgumentError(
                f"covariance has shape {B.shape}; expected (m, m) finite numbers, a row for each label.",
                key="coregion-shape",
            )
        if np.abs(B - B.T).max() > 1e-12 * np.abs(B).max():
            raise ArgumentError(
                f"covariance is {B.tolist()}, which is not symmetric; expected B[l, l'] = B[l', l].",
                key="coregion-symmetric",
            )
        least = float(np.linalg.eigvalsh(B).min())
        if least < -1e-12 * np.abs(B).max() or not (B.diagonal() > 0.0).all():
            raise ArgumentError(
                f"covariance is {B.tolist()}, whose smallest eigenvalue is {least:.3g}; expected none below "
                "zero, and a diagonal above zero: correlations that contradict each other are no covariance.",
                key="coregion-indefinite",
            )
        if independent and np.count_nonzero(B - np.diag(B.diagonal())):
            raise ArgumentError(
                f"covariance is {B.tolist()} and independent is True; expected zeros off the diagonal.",
                key="coregion-independent",
            )
        _check_label(axis)
        object.__setattr__(self, "independent", independent)
        object.__setattr__(self, "covariance", tuple(map(tuple, (0.5 * (B + B.T)).tolist())))
        object.__setattr__(self, "axis", axis)

    @property
    def matrix(self) -> Array:
        """B (m, m)."""
        return np.array(self.covariance)

    @property
    def number_names(self) -> tuple[str, ...]:
        """Names of its numbers."""
        return self.family.number_names

    @property
    def number_axes(self) -> tuple[Axis, ...]:
        """None of them is a lengthscale."""
        return self.family.number_axes

    def check(self, layout: Layout, X: Array) -> None:
        """Raise `ArgumentError` unless labels of points X (n, p) are in the table, or below zero."""
        layout.check_labels(X, self.axis, len(self.covariance))

    @property
    def numbers(self) -> tuple[float, ...]:
        """Deviations over that of label 0, then exponentials of a lower triangle, of correlations."""
        deviations, C = _taken_apart(self.matrix)
        if self.independent:
            return tuple((deviations[1:] / deviations[0]).tolist())
        triangle = np.clip(C / C.diagonal()[:, None], -STEEPEST, STEEPEST)  # of variables that go as one
        lower = triangle[np.tril_indices(len(C), -1)]
        return *(deviations[1:] / deviations[0]).tolist(), *np.exp(lower).tolist()

    @property
    def family(self) -> "CoregionOf":
        """What makes it from its numbers; the covariance of label 0 is then one."""
        return CoregionOf(len(self.covariance), self.axis, self.independent)

    def pieces(self, layout: Layout) -> tuple[Piece, ...]:
        """Give what compiled functions are told of it."""
        return (self._piece(self.covariance, layout),)

    def _piece(self, table: tuple[tuple[float, ...], ...], layout: Layout) -> Piece:
        from cagp_dist.profiles import table as profile

        return Piece(profile(table), layout.rows(self.axis))

    def slopes(self, layout: Layout) -> tuple[tuple[tuple[Piece, ...], ...], ...]:
        """Give the terms of its derivatives by the logarithms of its numbers: tables, too."""
        slopes = _slopes_of(self.matrix)[: len(self.numbers)]
        return tuple(((self._piece(tuple(map(tuple, slope.tolist())), layout),),) for slope in slopes)

    def __mul__(self, other: object) -> "Kernel":
        """Multiply with a kernel of other axes."""
        if isinstance(other, Kernel):
            return other * self
        return NotImplemented


def _taken_apart(B: Array) -> tuple[Array, Array]:
    """Give standard deviations (m,), and the lower factor (m, m) of the correlations."""
    deviations = np.sqrt(B.diagonal())
    return deviations, np.linalg.cholesky(B / np.outer(deviations, deviations) + 1e-12 * np.eye(len(B)))


def _check_label(axis: object) -> None:
    """Raise `ArgumentError` unless it is the name of a label."""
    if not isinstance(axis, str) or not axis or axis in (SPACE, *UNITS):
        raise ArgumentError(
            f'axis is {axis!r}, which is no label; expected a name of your own, such as "variable".',
            key="kernel-axis",
        )


def _slopes_of(B: Array) -> list[Array]:
    """Differentiate B by the logarithms of deviations, then by the lower triangle of `Coregion.numbers`."""
    m, found = len(B), []
    deviations, C = _taken_apart(B)
    for label in range(1, m):
        slope = np.zeros((m, m))
        slope[label] += B[label]
        slope[:, label] += B[label]
        found.append(slope)
    for row, column in zip(*np.tril_indices(m, -1), strict=True):
        change = np.zeros(m)
        change[column] = 1.0
        norm = 1.0 / C[row, row]  # of the row of the triangle, whose diagonal is one
        change = (change - C[row] * C[row, column]) / norm
        slope = np.zeros((m, m))
        slope[row] = C @ change
        slope = slope + slope.T
        slope[row, row] = 0.0
        found.append(slope * np.outer(deviations, deviations))
    return found


@dataclass(frozen=True)
class CoregionOf:
    """Tables of m labels: it makes one from its numbers."""

    labels: int
    axis: str = "variable"
    independent: bool = False

    def __call__(self, lengthscale: Lengthscales, variance: float = 1.0) -> Coregion:
        """Make the factor."""
        given = lengthscale if isinstance(lengthscale, tuple) else (lengthscale,)
        deviations = np.array([1.0, *given[: self.labels - 1]])
        triangle = np.eye(self.labels)
        if not self.independent:
            triangle[np.tril_indices(self.labels, -1)] = np.log(given[self.labels - 1 :])
        C = triangle / np.linalg.norm(triangle, axis=1, keepdims=True)
        return Coregion(np.outer(deviations, deviations) * (C @ C.T), self.axis, independent=self.independent)

    @property
    def number_names(self) -> tuple[str, ...]:
        """Names of its numbers."""
        pairs = () if self.independent else zip(*np.tril_indices(self.labels, -1), strict=True)
        return (
            *(f"deviation_{label + 1}" for label in range(1, self.labels)),
            *(f"angle_{row + 1}_{column + 1}" for row, column in pairs),
        )

    @property
    def number_axes(self) -> tuple[Axis, ...]:
        """None of them is a lengthscale."""
        return (None,) * len(self.number_names)

    @property
    def __name__(self) -> str:
        """For people."""
        return f"Coregion({self.labels}, {self.axis})"


@dataclass(frozen=True)
class SameLabel(Elementary):
    """What all points of one label share and no others: an error of a ship, a station or a sensor (math 25).

    Parameters
    ----------
    variance : float
        Squared unit of y, above zero.
    axis : str
        Name of the label. Points have labels from 0; one below zero shares nothing with any other.

    Examples
    --------
    >>> import cagp_dist as cagp
    >>> kernel = cagp.Matern32(0.1, 4.0) + cagp.SameLabel(0.5, axis="ship")
    >>> kernel([[1.0, 0.0, 0.0, 7.0]], [[1.0, 0.0, 0.0, 7.0], [1.0, 0.0, 0.0, 8.0], [1.0, 0.0, 0.0, -1.0]])
    array([[4.5, 4. , 4. ]])
    """

    variance: float = 1.0
    axis: str = "group"

    number_names: ClassVar[tuple[str, ...]] = ()
    number_axes: ClassVar[tuple[Axis, ...]] = ()
    numbers: ClassVar[tuple[float, ...]] = ()
    lengthscale: ClassVar[Lengthscales] = ()  # type: ignore[misc]

    def __post_init__(self) -> None:
        check_positive("variance", self.variance, most=LARGEST)
        _check_label(self.axis)

    def check(self, layout: Layout, X: Array) -> None:
        """Raise `ArgumentError` unless labels of points X (n, p) are integers."""
        layout.check_labels(X, self.axis, None)

    @property
    def family(self) -> "SameLabelOf":
        """What makes it from its variance."""
        return SameLabelOf(self.axis)

    @property
    def layout(self) -> Layout:
        """Columns that points have."""
        return Layout(SPACE_COLUMNS, (self.axis,))

    def profile(self, part: "Part", coordinate: int | None = None) -> "CompiledProfile":
        """Give what compiled functions are told of it."""
        from cagp_dist.profiles import same_label

        return same_label()

    def pieces(self, layout: Layout) -> tuple[Piece, ...]:
        """Give what compiled functions are told of it."""
        from cagp_dist.profiles import same_label

        return (Piece(same_label(), layout.rows(self.axis)),)

    def slopes(self, layout: Layout) -> tuple[tuple[tuple[Piece, ...], ...], ...]:
        """Give no derivatives: it has no numbers but its variance."""
        return ()

    def inverse_lengthscales(self, coordinates: int) -> tuple[float, ...]:
        """Zeros: it does not fall with distance."""
        return (0.0,) * coordinates

    def _scaled(self, factor: float) -> Self:
        return replace(self, variance=factor * self.variance)


@dataclass(frozen=True)
class SameLabelOf:
    """What points of one label share, whose variance is fitted."""

    axis: str

    number_names: ClassVar[tuple[str, ...]] = ()
    number_axes: ClassVar[tuple[Axis, ...]] = ()

    def __call__(self, lengthscale: Lengthscales, variance: float = 1.0) -> SameLabel:
        """Make the kernel."""
        return SameLabel(variance, self.axis)

    @property
    def __name__(self) -> str:
        """For people."""
        return f"SameLabel({self.axis})"

    @property
    def degrees_of_freedom(self) -> None:
        """Of the t distribution that is its spectral density: it is none."""
        return None
