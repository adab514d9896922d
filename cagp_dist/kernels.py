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

A kernel is of space unless it names another axis, and kernels of several axes are multiplied (math 23)::

    Matern32(0.1, 4.0) * Matern12(7.5, axis="time")
    Matern32((0.1, 7.5), 4.0, axis=("space", "time"))   # one distance in space and time together

Points then have three columns of space (unit vectors, or x, y and 0 of a plane) and one for each other axis,
in the order of `Kernel.layout`: hours, depths, or labels as integers from 0.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array
from cagp_dist.checks import LARGEST, as_points, check_positive
from cagp_dist.errors import ArgumentError
from cagp_dist.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cagp_dist.compiled import Embedding
    from cagp_dist.profiles import CompiledProfile, Part


Lengthscales = float | tuple[float, ...]  # one for all coordinates, or one for each

_Profiles: TypeAlias = "CompiledProfile | tuple[CompiledProfile, ...]"
_Inverse: TypeAlias = "Lengthscales | tuple[tuple[float, ...], ...] | Embedding"
Parameters: TypeAlias = "tuple[_Profiles, _Inverse, Lengthscales]"
"""``(family, 1 / lengthscale, variance)`` as `cagp_dist.compiled` takes them: of one kernel, of the parts of
a sum, of parts with a lengthscale for each coordinate, or of linear functions of points."""

SPACE, TIME, DEPTH = "space", "time", "depth"  # axes; any other name is that of a label
VARIABLE, ROW, PLACE = "variable", "row", "place"  # labels that observations of several variables have
NO_LABEL = -1.0  # of points that share nothing with any other
RESERVED_AXES = (SPACE, TIME, DEPTH, VARIABLE, ROW, PLACE)  # names that columns of other labels cannot have
NAME_OF_SPACE = "lengthscale"  # of a number in space; others have their axis behind it
SPACE_COLUMNS = 3  # of points that have other axes beside space: unit vectors, or x, y and 0 of a plane

UNITS = {TIME: "hours", DEPTH: "depths"}

Row = tuple[float, ...]
"""A linear function of a point, its factor for each column."""


class Layout(NamedTuple):
    """Which columns points have: those of space first, then one for each other axis."""

    space: int
    axes: tuple[str, ...] = ()
    globe: bool | None = None  # whether space are unit vectors, or x, y and 0 of a plane; None: either

    @property
    def columns(self) -> int:
        """How many columns there are."""
        return self.space + len(self.axes)

    def rows(self, axis: str, lengthscale: float = 1.0) -> tuple[Row, ...]:
        """Coordinates along an axis, in units of a lengthscale."""
        own = range(self.space) if axis == SPACE else (self.space + self.axes.index(axis),)
        return tuple(
            tuple(1.0 / lengthscale if at == column else 0.0 for at in range(self.columns)) for column in own
        )

    def check(self, X: Array) -> None:
        """Raise `ArgumentError` unless points X (n, p) have these columns."""
        if X.shape[1] != self.columns:
            space = "the coordinates in space"
            if self.axes:
                space = (
                    "the unit vectors of cagp.unit_sphere(latitude_degrees, longitude_degrees), or x, y and "
                    "0 of a plane"
                )
            rest = "".join(f", and {UNITS.get(axis, f'labels of {axis}')}" for axis in self.axes)
            raise ArgumentError(
                f"X has {X.shape[1]} columns; the kernel expects {self.columns}: {space}{rest}.",
                key="columns",
            )
        if self.space != SPACE_COLUMNS:
            return
        plane = not X[:, 2].any()  # on the sphere this is the equator
        if self.globe is False and not plane:
            raise ArgumentError(
                "the kernel has directions of a plane, and the third column of X is not 0; expected x, y and "
                "0, or cagp.Anisotropic(..., centre=(latitude, longitude)) for unit vectors.",
                key="kernel-of-space",
            )
        if plane and not self.globe:
            return
        lengths = np.sqrt((X[:, :SPACE_COLUMNS] ** 2).sum(axis=1))
        if not np.all(np.abs(lengths - 1.0) < 1e-3):
            wrong = lengths[np.argmax(np.abs(lengths - 1.0))]
            raise ArgumentError(
                f"the first three columns of a row of X have length {wrong:.4g}; the kernel expects unit "
                "vectors there, those of cagp.unit_sphere(latitude_degrees, longitude_degrees), or x, y and "
                "0 of a plane.",
                key="unit-vectors",
            )

    @property
    def labels(self) -> tuple[str, ...]:
        """Axes whose columns are labels."""
        return tuple(axis for axis in self.axes if axis not in UNITS)

    def check_labels(self, X: Array, axis: str, most: int | None) -> None:
        """Raise `ArgumentError` unless labels of points X (n, p) are integers, below ``most`` if given."""
        own = X[:, self.space + self.axes.index(axis)]
        wrong = own != np.rint(own)
        if most is not None:
            wrong |= own >= most
        if wrong.any():
            last = "on" if most is None else f"to {most - 1}"
            raise ArgumentError(
                f"{axis} of a row of X is {own[wrong][0]:g}; expected an integer from 0 {last}, or one below "
                "zero for a point that goes with no other.",
                key="label-range",
            )

    @staticmethod
    def union(layouts: "Iterable[Layout]") -> "Layout":
        """Give the layout of points that have all axes of several."""
        return _union(frozenset(layouts))


@lru_cache(maxsize=1024)  # searches ask for the same ones again and again
def _union(layouts: frozenset[Layout]) -> Layout:
    axes = in_order_of_columns({axis for layout in layouts for axis in layout.axes})
    space = {layout.space for layout in layouts}
    known = {layout.globe for layout in layouts} - {None}
    if len(known) > 1:
        raise ArgumentError(
            "the parts of a kernel have directions of a plane and of the globe; expected one of them.",
            key="kernel-of-space",
        )
    globe = known.pop() if known else None
    if axes:
        return Layout(SPACE_COLUMNS, axes, globe)
    if len(space) > 1:
        raise ArgumentError(
            f"the parts of a kernel are of points with {' and '.join(map(str, sorted(space)))} "
            "coordinates; expected the same number.",
            key="lengthscales-and-coordinates",
        )
    return Layout(space.pop(), (), globe)


def lengthscales_in_space(kernel: "Kernel") -> tuple[float, ...]:
    """Lengthscales of the parts of a kernel that have one in space, the first of each."""
    if kernel.layout is None:
        return tuple(part.common_lengthscale for part in kernel.parts)
    each = (
        [number for number, axis in zip(part.numbers, part.number_axes, strict=True) if axis == SPACE]
        for part in kernel.parts
    )
    return tuple(float(numbers[0]) for numbers in each if numbers)


def in_order_of_columns(axes: Collection[str]) -> tuple[str, ...]:
    """Give the names of axes beside space in the order in which points have them."""
    first = tuple(axis for axis in (TIME, DEPTH) if axis in axes)
    return (*first, *sorted(set(axes) - {*first}))


def beside_columns(positions: Array, columns: Mapping[str, Array]) -> Array:
    """Points (n, 3 + k): unit vectors (n, 3), or x, y (n, 2) of a plane and 0, beside axes by their names."""
    flat = np.zeros((len(positions), SPACE_COLUMNS - positions.shape[1]))
    return np.column_stack([positions, flat, *(columns[axis] for axis in in_order_of_columns(columns))])


class Piece(NamedTuple):
    """A factor as compiled functions are told of it, or one of the terms of a derivative of it."""

    profile: "CompiledProfile"
    rows: tuple[Row, ...]  # whose squared differences add up to the squared distance; of labels one
    weight: float = 1.0
    period: float = 0.0  # around which the distance is bent, 0: it is not
    power: float = 0.0  # of one and the distance of the factor before, by which squared distances are divided
    multiplier: Row | None = None  # whose squared difference the factor is multiplied with


class FamilyOf(Protocol):
    """What is left of a kernel without its numbers: it makes one from them, as the classes of kernels do."""

    def __call__(self, lengthscale: Lengthscales, variance: float = ...) -> "Elementary":
        """Make the kernel."""

    @property
    def __name__(self) -> str:
        """For people."""

    @property
    def degrees_of_freedom(self) -> float | None:
        """Of the t distribution that is its spectral density; None if it is none."""


Axis: TypeAlias = (
    str | int | None
)  # by its name, or a coordinate by its place; None of what is no lengthscale


class Factor(Protocol):
    """A correlation of some columns of points, one of those that a `Product` multiplies."""

    @property
    def layout(self) -> Layout | None:
        """Which columns points have at least; None: any, all of space."""

    @property
    def numbers(self) -> tuple[float, ...]:
        """Its own numbers, above zero, that are fitted."""

    @property
    def number_names(self) -> tuple[str, ...]:
        """Their names."""

    @property
    def number_axes(self) -> "tuple[Axis, ...]":
        """Along which axis each of them is a lengthscale."""

    @property
    def is_zonal(self) -> bool:
        """Whether it is the same at every longitude."""

    def check(self, layout: Layout, X: Array) -> None:
        """Raise `ArgumentError` unless it is one of points X (n, p) with these columns."""

    @property
    def family(self) -> Any:
        """What makes it from its numbers."""

    def pieces(self, layout: Layout) -> tuple[Piece, ...]:
        """Give what compiled functions are told of it: one piece, or two that belong together."""

    def slopes(self, layout: Layout) -> tuple[tuple[tuple[Piece, ...], ...], ...]:
        """Give the terms of its derivative by the logarithm of each number, each like `pieces`."""


class OfOneAxis:
    """What factors share that are no kernels by themselves, along one axis beside space."""

    axis: str

    is_zonal: ClassVar[bool] = False

    @property
    def parts(self) -> tuple[Self, ...]:
        """Itself."""
        return (self,)

    @property
    def factors(self) -> tuple[Self, ...]:
        """Itself."""
        return (self,)

    @property
    def layout(self) -> Layout:
        """Columns that points have."""
        return Layout(SPACE_COLUMNS, (self.axis,))


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
        if self.layout is not None:
            self.check_coordinates(right)
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

    def __mul__(self, factor: object) -> "Kernel":
        """Scale the variance by a number above zero, or multiply with a kernel of other axes."""
        if hasattr(factor, "factors") or isinstance(factor, Kernel):
            products = tuple(
                Product((*one.factors, *other.factors), one.variance * other.variance)
                for one in self.parts
                for other in cast("Kernel", factor).parts
            )
            return products[0] if len(products) == 1 else Sum(products)
        number = cast("float", factor)
        check_positive("the factor of a kernel", number)
        return self._scaled(float(number))

    def __rmul__(self, factor: float) -> "Kernel":
        """Scale the variance by a number above zero."""
        return self * factor

    def diagonal(self, X: ArrayLike) -> Array:
        """``k(x, x)`` at points X (n, p), the prior variance of the field there, shape (n,)."""
        points = as_points("X", X)
        if self.layout is None or not self.layout.labels:
            return np.full(len(points), float(self.variance))
        self.check_coordinates(points)
        return diagonal_of(self.parameters, point_columns(points))

    def check_coordinates(self, X: Array) -> None:
        """Raise `ArgumentError` unless the kernel is one of points X (n, p)."""
        given = self.coordinates
        if given is None:
            return
        layout = self.layout
        if layout is not None:
            layout.check(X)
            for part in self.parts:
                for factor in part.factors:
                    factor.check(layout, X)
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
    def layout(self) -> Layout | None:
        """Which columns points have; None: any, all of space."""
        found = [part.layout for part in self.parts]
        named = [layout for layout in found if layout is not None]
        return Layout.union(named) if named else None

    @property
    def of_space_and_time(self) -> bool:
        """Whether points have hours beside space, and nothing else."""
        return self.layout is not None and self.layout.axes == (TIME,)

    @property
    def is_zonal(self) -> bool:
        """Whether it is one of unit vectors alone that is the same at every longitude, as rings need it."""
        if self.layout is None:
            return self.coordinates is None
        return not self.layout.axes and all(f.is_zonal for part in self.parts for f in part.factors)

    @property
    def coordinates(self) -> int | None:
        """Number of columns that points have; None: any, and all share one lengthscale."""
        if self.layout is not None:
            return self.layout.columns
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
    axis: str | tuple[str, ...]

    def __repr__(self) -> str:
        """Give the call that makes it, without an axis that goes without saying."""
        said = [
            f"{one.name}={getattr(self, one.name)!r}"
            for one in fields(self)  # type: ignore[arg-type]
            if one.name != "axis" or self.axis != SPACE
        ]
        return f"{type(self).__name__}({', '.join(said)})"

    def __post_init__(self) -> None:
        # squares of distances and lengthscales, and variance times distance, must stay finite
        own = self.lengthscale if isinstance(self.lengthscale, tuple) else (self.lengthscale,)
        if not own:
            raise ArgumentError(
                "lengthscale is (); expected a number, or one for each coordinate.", key="lengthscale-missing"
            )
        if self.axis != SPACE:
            axes = self._axes
            if len(own) != len(axes) or len(set(axes)) < len(axes) or not all(map(str, axes)):
                raise ArgumentError(
                    f"axis is {self.axis!r} and lengthscale is {self.lengthscale!r}; expected a name and a "
                    'number, such as axis="time", or several of both, such as axis=("space", "time").',
                    key="kernel-axis",
                )
        for lengthscale in own:
            check_positive("lengthscale", lengthscale, least=1.0 / LARGEST, most=LARGEST)
        check_positive("variance", self.variance, most=LARGEST)

    @property
    @abstractmethod
    def family(self) -> "Family":
        """What is left of it without its numbers and variance: it makes the kernel from them."""

    @abstractmethod
    def profile(self, part: "Part", coordinate: int | None = None) -> "CompiledProfile":
        """Give what compiled functions are told of it besides lengthscale and variance."""

    @property
    def _axes(self) -> tuple[str, ...]:
        return self.axis if isinstance(self.axis, tuple) else (self.axis,)

    @property
    def parts(self) -> "tuple[Elementary, ...]":
        """Itself."""
        return (self,)

    @property
    def factors(self) -> tuple[Factor, ...]:
        """The correlations that it is a product of; one that is no product is its own factor."""
        return (cast("Factor", self),)

    @property
    def layout(self) -> Layout | None:
        """Which columns points have; None: any, all of space."""
        return None if self.axis == SPACE else Layout.union([Layout(SPACE_COLUMNS, self._axes_but_space)])

    @property
    def _axes_but_space(self) -> tuple[str, ...]:
        return tuple(axis for axis in self._axes if axis != SPACE)

    @property
    def numbers(self) -> tuple[float, ...]:
        """Its lengthscales, all that a fit looks for beside its variance."""
        own = self.lengthscale if isinstance(self.lengthscale, tuple) else (self.lengthscale,)
        return tuple(float(number) for number in own)

    @property
    def number_names(self) -> tuple[str, ...]:
        """Names of its numbers."""
        if self.axis == SPACE:
            if not isinstance(self.lengthscale, tuple):
                return (NAME_OF_SPACE,)
            return tuple(f"{NAME_OF_SPACE}_{place + 1}" for place in range(len(self.lengthscale)))
        return tuple(NAME_OF_SPACE if axis == SPACE else f"{NAME_OF_SPACE}_{axis}" for axis in self._axes)

    @property
    def correlation(self) -> Factor:
        """The same with the variance one."""
        return cast("Factor", replace(cast("Any", self), variance=1.0))

    @property
    def number_axes(self) -> tuple[Axis, ...]:
        """Along which axis each of them is a lengthscale."""
        if self.axis == SPACE and isinstance(self.lengthscale, tuple):
            return tuple(range(len(self.lengthscale)))
        return self._axes

    def check(self, layout: Layout, X: Array) -> None:
        """Take all points: a distance asks no more of them than their columns."""

    def pieces(self, layout: Layout) -> tuple[Piece, ...]:
        """Give what compiled functions are told of it as a factor."""
        from cagp_dist.profiles import Part

        return (Piece(self.profile(Part.VALUE), self._rows(layout)),)

    def slopes(self, layout: Layout) -> tuple[tuple[tuple[Piece, ...], ...], ...]:
        """Give the terms of its derivative by the logarithm of each lengthscale."""
        from cagp_dist.profiles import Part

        rows = self._rows(layout)
        if len(self.numbers) == 1:
            return (((Piece(self.profile(Part.SLOPE), rows),),),)
        share = self.profile(Part.SHARE)
        if self.axis == SPACE:
            return tuple(((Piece(share, rows, multiplier=row),),) for row in rows)
        return tuple(
            tuple((Piece(share, rows, multiplier=row),) for row in layout.rows(axis, number))
            for axis, number in zip(self._axes, self.numbers, strict=True)
        )

    def _rows(self, layout: Layout) -> tuple[Row, ...]:
        """Linear functions of a point whose squared differences add up to the squared distance."""
        if self.axis == SPACE and len(self.numbers) > 1:  # a lengthscale for each coordinate
            plain = layout.rows(SPACE)
            return tuple(
                tuple(number / own for number in row) for row, own in zip(plain, self.numbers, strict=True)
            )
        return tuple(
            row for axis, own in zip(self._axes, self.numbers, strict=True) for row in layout.rows(axis, own)
        )

    def inverse_in(self, layout: Layout) -> Array:
        """One over the lengthscale of each column (p,) of points, zero where it does not fall with one."""
        pieces = (piece for factor in self.factors for piece in factor.pieces(layout))
        rows = [row for piece in pieces if not piece.profile.of_labels for row in piece.rows]
        return np.asarray(np.sqrt(np.square(np.reshape(rows, (-1, layout.columns))).sum(axis=0)))

    @property
    def parameters(self) -> Parameters:
        """``(family, 1 / lengthscale, variance)`` as the compiled functions take them."""
        from cagp_dist.profiles import Part

        if self.layout is not None:
            return self.parameters_in(self.layout)
        profile = self.profile(Part.VALUE)
        if isinstance(self.lengthscale, tuple):
            inverse = self.inverse_lengthscales(len(self.lengthscale))
            return (profile,), (inverse,), (float(self.variance),)
        return profile, 1.0 / float(self.lengthscale), float(self.variance)

    def parameters_in(self, layout: Layout) -> Parameters:
        """Give the same for points with these columns."""
        return _of_terms([(float(self.variance), _product_of([one.pieces(layout) for one in self.factors]))])

    def slope_parameters(self, layout: Layout | None = None) -> tuple[Parameters, ...]:
        """Give the same for ``dk / d log(number)`` of each number, a kernel for compiled functions."""
        from cagp_dist.profiles import Part

        if layout is None and isinstance(self.lengthscale, tuple):
            inverse = self.inverse_lengthscales(len(self.lengthscale))
            shares = (self.profile(Part.SHARE, at) for at in range(len(self.lengthscale)))
            return tuple(((share,), (inverse,), (float(self.variance),)) for share in shares)
        if layout is None:
            return ((self.profile(Part.SLOPE), 1.0 / float(self.lengthscale), float(self.variance)),)  # type: ignore[arg-type]
        factors, found = self.factors, []
        values = [factor.pieces(layout) for factor in factors]
        for at, factor in enumerate(factors):
            for terms in factor.slopes(layout):
                found.append(
                    _of_terms(
                        [
                            (float(self.variance), _product_of([*values[:at], term, *values[at + 1 :]]))
                            for term in terms
                        ]
                    )
                )
        return tuple(found)

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


def _product_of(factors: "Sequence[tuple[Piece, ...]]") -> tuple[Piece, ...]:
    return tuple(piece for pieces in factors for piece in pieces)


def _of_terms(terms: "Sequence[tuple[float, tuple[Piece, ...]]]") -> Parameters:
    """Give compiled functions a sum of products: of each its variance and its factors."""
    from cagp_dist.compiled import Embedding
    from cagp_dist.profiles import Factor as CompiledFactor
    from cagp_dist.profiles import product

    rows: list[Row] = []
    places: dict[tuple[Row, ...], int] = {}

    def place(own: tuple[Row, ...]) -> int:
        if own not in places:
            places[own] = len(rows)
            rows.extend(own)
        return places[own]

    (variance, (first_piece, *others)), *more = terms
    plain = first_piece.period == 0.0 and first_piece.multiplier is None and first_piece.profile.of_distances
    if plain and not others and not more:  # of one distance
        return first_piece.profile, Embedding(1.0, first_piece.rows), variance * first_piece.weight
    profiles, variances, spans = [], [], []
    for variance, pieces in terms:
        first = [place(piece.rows) for piece in pieces]
        multipliers = [piece.multiplier for piece in pieces if piece.multiplier is not None]
        coordinate = place((multipliers[0],)) if multipliers else None
        span = [(start, start + len(piece.rows)) for start, piece in zip(first, pieces, strict=True)]
        near = [own for own, piece in zip(span, pieces, strict=True) if not piece.profile.of_labels]
        factors = tuple(
            CompiledFactor(piece.profile, *own, piece.period, piece.power)
            for piece, own in zip(pieces, span, strict=True)
        )
        profiles.append(product(factors, coordinate))
        variances.append(variance * math.prod(piece.weight for piece in pieces))
        spans.append(near)  # labels are no distances
    scales = tuple(
        tuple(1.0 if any(start <= at < stop for start, stop in span) else 0.0 for at in range(len(rows)))
        for span in spans
    )
    return tuple(profiles), Embedding(scales, tuple(rows)), tuple(variances)


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
        if self.layout is not None:  # that of parts of different points is refused
            return
        counts = {len(part.lengthscale) for part in self.parts if isinstance(part.lengthscale, tuple)}
        if len(counts) > 1:
            raise ArgumentError(
                f"the parts of a sum have lengthscales for {' and '.join(map(str, sorted(counts)))} "
                "coordinates; expected the same number, or one lengthscale for all coordinates.",
                key="lengthscales-and-coordinates",
            )

    @property
    def variance(self) -> float:
        """All variances together, in the order in which the compiled functions add."""
        return float(sum(part.variance for part in self._by_reach()))

    @property
    def parameters(self) -> Parameters:
        """Parameters of the parts, those that reach furthest first."""
        from cagp_dist.profiles import Part

        parts, coordinates, layout = self._by_reach(), self.coordinates, self.layout
        if layout is not None:
            return _of_terms(
                [
                    (float(part.variance), _product_of([one.pieces(layout) for one in part.factors]))
                    for part in parts
                ]
            )
        families = tuple(part.profile(Part.VALUE) for part in parts)
        variances = tuple(float(part.variance) for part in parts)
        if coordinates is None:
            return families, tuple(part.inverse_lengthscales(1)[0] for part in parts), variances
        return families, tuple(part.inverse_lengthscales(coordinates) for part in parts), variances

    def _by_reach(self) -> list[Elementary]:
        from cagp_dist.compiled import kernel_reach

        return sorted(self.parts, key=lambda part: -kernel_reach(*part.parameters[:2]))

    def _scaled(self, factor: float) -> Self:
        return replace(self, parts=tuple(part._scaled(factor) for part in self.parts))


@dataclass(frozen=True)
class Product(Elementary):
    """A product of kernels of different axes, as ``*`` makes it, with one variance.

    Parameters
    ----------
    factors : sequence of kernels, `Coregion`, `SameLabel` and others
        Their own variances are not counted.
    variance : float
        Prior variance of the field, squared unit of y, above zero.

    Raises
    ------
    ArgumentError
        If there is no factor, or all are of distances in space alone.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> kernel = cagp.Matern32(0.3, 2.0) * cagp.Matern12(7.5, axis="time")
    >>> X = np.array([[1.0, 0.0, 0.0, 12.0], [1.0, 0.0, 0.0, 19.5], [0.0, 1.0, 0.0, 12.0]])
    >>> kernel(X, X[:1]).round(4)
    array([[2.    ],
           [0.7358],
           [0.0052]])
    >>> kernel.layout.axes
    ('time',)
    """

    factors: tuple[Factor, ...] = ()
    variance: float = 1.0

    axis: ClassVar[str | tuple[str, ...]] = ()  # type: ignore[misc]

    def __post_init__(self) -> None:
        factors = tuple(one.correlation if isinstance(one, Elementary) else one for one in self.factors)
        object.__setattr__(self, "factors", factors)
        check_positive("variance", self.variance, most=LARGEST)
        if not factors:
            raise ArgumentError("factors is (); expected two kernels or more.", key="kernel-parts")
        if self.layout is None:
            raise ArgumentError(
                f"{' and '.join(map(repr, factors))} are kernels in space; expected one of another axis "
                'beside it, such as cagp.Matern12(7.5, axis="time"). Their sum is k1 + k2.',
                key="kernel-product",
            )

    @property
    def layout(self) -> Layout | None:
        """Which columns points have; None: any, all of space."""
        found = [factor.layout for factor in self.factors if factor.layout is not None]
        return Layout.union(found) if found else None

    @property
    def lengthscale(self) -> Lengthscales:  # type: ignore[override]
        """Numbers of all factors, one after the other."""
        return self.numbers

    @property
    def numbers(self) -> tuple[float, ...]:
        """Numbers of all factors, one after the other."""
        return tuple(number for factor in self.factors for number in factor.numbers)

    @property
    def number_names(self) -> tuple[str, ...]:
        """Names of its numbers; of names that factors share those after the first are numbered."""
        names = [name for factor in self.factors for name in factor.number_names]
        return tuple(
            f"{name}_{names[: at + 1].count(name)}" if name in names[:at] else name
            for at, name in enumerate(names)
        )

    @property
    def number_axes(self) -> tuple[Axis, ...]:
        """Along which axis each of them is a lengthscale; of coordinates in space, space."""
        every = (axis for factor in self.factors for axis in factor.number_axes)
        return tuple(SPACE if isinstance(axis, int) else axis for axis in every)

    @property
    def family(self) -> "ProductOf":
        """What makes it from its numbers."""
        counts = tuple(len(factor.numbers) for factor in self.factors)
        families = tuple(factor.family for factor in self.factors)
        return ProductOf(families, counts, self.number_names, self.number_axes)

    def profile(self, part: "Part", coordinate: int | None = None) -> "CompiledProfile":
        """Refuse: it is none of one distance."""
        raise ArgumentError(
            "actions are not learned with a product of kernels; expected a kernel of one distance.",
            key="no-product",
        )

    def _scaled(self, factor: float) -> Self:
        return replace(self, variance=factor * self.variance)


@dataclass(frozen=True)
class ProductOf:
    """Products of these families: a family, which makes a kernel from its numbers and a variance."""

    families: tuple[Any, ...]
    counts: tuple[int, ...]  # how many numbers each takes
    number_names: tuple[str, ...]
    number_axes: tuple[Axis, ...]

    def __call__(self, lengthscale: Lengthscales, variance: float = 1.0) -> Product:
        """Make the kernel."""
        given = iter(lengthscale if isinstance(lengthscale, tuple) else (lengthscale,))
        own = [tuple(next(given) for _ in range(many)) for many in self.counts]
        factors = tuple(
            family(numbers[0] if len(numbers) == 1 else numbers, 1.0)
            for family, numbers in zip(self.families, own, strict=True)
        )
        return Product(cast("tuple[Factor, ...]", factors), variance)

    @property
    def __name__(self) -> str:
        """For people."""
        return " * ".join(family.__name__ for family in self.families)

    @property
    def degrees_of_freedom(self) -> None:
        """Of the t distribution that is its spectral density: it is none."""
        return None


def diagonal_of(parameters: Parameters, points: Array) -> Array:
    """Value of what the parameters stand for at each of the points (p, n) with itself, shape (n,)."""
    from cagp_dist.compiled import Embedding, evaluate_diagonal

    n = points.shape[1]
    if isinstance(parameters[1], Embedding):
        out = np.empty(n)
        evaluate_diagonal(*parameters, points, out)
        return out
    return np.full(n, total_variance(parameters))


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


@dataclass(frozen=True, repr=False)
class ClosedForm(Elementary):
    """A kernel that is ``p(a) exp(-a)``, p a polynomial of degree 3 at most; the base of such kernels."""

    lengthscale: Lengthscales
    variance: float = 1.0
    axis: str | tuple[str, ...] = field(default=SPACE, kw_only=True)

    polynomial: ClassVar[tuple[float, ...]]
    """Coefficients of p, from that of power 0, which is one."""

    scale: ClassVar[float | None]
    """``a = scale u``; None: ``a = u^2 / 2``."""

    degrees_of_freedom: ClassVar[float | None] = None
    """Of the t distribution that is its spectral density: twice the smoothness; None if it is none."""

    @property
    def family(self) -> "Family":
        """Its class; of one along other axes than space, with them."""
        return type(self) if self.axis == SPACE else Along(type(self), self.axis)

    def profile(self, part: "Part", coordinate: int | None = None) -> "CompiledProfile":
        """Coefficients of what it is multiplied with, and how far it reaches."""
        from cagp_dist.profiles import closed_form

        return closed_form(self.polynomial, self.scale, part, coordinate)

    def _scaled(self, factor: float) -> Self:
        return replace(self, variance=factor * self.variance)


Family: TypeAlias = type[ClosedForm] | FamilyOf


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


@dataclass(frozen=True)
class Along:
    """A family of kernels along axes other than space."""

    kernel: Family
    axis: str | tuple[str, ...]

    def __call__(self, lengthscale: Lengthscales, variance: float = 1.0) -> "Elementary":
        """Make the kernel."""
        own = lengthscale
        if isinstance(lengthscale, tuple) and not isinstance(self.axis, tuple):
            own = lengthscale[0]
        if isinstance(self.kernel, MaternOf):
            return Matern(self.kernel.smoothness, own, variance, axis=self.axis)
        return cast("type[ClosedForm]", self.kernel)(own, variance, axis=self.axis)

    @property
    def number_names(self) -> tuple[str, ...]:
        """Names of its numbers."""
        return tuple(
            NAME_OF_SPACE if axis == SPACE else f"{NAME_OF_SPACE}_{axis}" for axis in self.number_axes
        )

    @property
    def number_axes(self) -> tuple[str, ...]:
        """Along which axis each of them is a lengthscale."""
        return self.axis if isinstance(self.axis, tuple) else (self.axis,)

    @property
    def __name__(self) -> str:
        """For people."""
        return f"{self.kernel.__name__}({self.axis})"

    @property
    def degrees_of_freedom(self) -> float | None:
        """Of the t distribution that is its spectral density."""
        return self.kernel.degrees_of_freedom


def along(kernel: Elementary, axis: str) -> Elementary:
    """Give a kernel with one lengthscale along another axis, with the variance one."""
    return Along(kernel.family, axis)(kernel.lengthscale)


@dataclass(frozen=True, repr=False)
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
    axis: str | tuple[str, ...] = field(default=SPACE, kw_only=True)

    def __post_init__(self) -> None:
        check_smoothness(self.smoothness)
        super().__post_init__()

    @property
    def family(self) -> Family:
        """Matern kernels of this smoothness."""
        own = MaternOf(self.smoothness)
        return own if self.axis == SPACE else Along(own, self.axis)

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
    classes: dict[object, str] = {family: name for name, family in KERNELS.items()}
    families = [getattr(part.family, "kernel", part.family) for part in kernel.parts]  # of an ellipse
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
