"""Which numbers a fit looks for: those of one kernel, or of all parts of a sum, and the noise variance.

For m parts these are m lengthscales, m variances and the noise variance, in this order. A likelihood takes
the variance of the first part out (math 9) and is a function of k ``numbers``, k = 2 m::

    lengthscale_1 .. lengthscale_m,  weight_2 .. weight_m,  ratio

with ``weight_i = variance_i / variance_1`` and ``ratio = noise_variance / variance_1``. A part may have
several numbers of its own in place of the lengthscale, or none: a lengthscale for each coordinate or axis,
and what else a product of kernels is made from. They stand there part after part.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, cast

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.errors import ArgumentError
from cagp_dist.kernels import (
    KERNEL_FORMS,
    MOST_PARTS,
    SPACE,
    Axis,
    ClosedForm,
    Family,
    Kernel,
    Layout,
    Lengthscales,
    Matern,
    MaternOf,
    Parameters,
    Sum,
    families_of,
)
from cagp_dist.space_time import SpaceTimeOf

Families = Family | Sequence[Family] | str | type[Matern]
"""One class of kernels, or one for each part of a sum; or their names, as in job files. `Matern` itself has
its smoothness fitted as well."""

NAMES = ("lengthscale", "variance", "noise_variance")


@dataclass(frozen=True)
class Numbering:
    """Which number stands where."""

    # Names of the own numbers of each part
    own: tuple[tuple[str, ...], ...] = ((NAMES[0],),)
    # Along which axis of the points each of them is a lengthscale, space being 0; None if it is none
    along: tuple[tuple[int | None, ...], ...] = ((0,),)

    @classmethod
    def of(cls, parts: int = 1, coordinates: int | None = None) -> "Numbering":
        """Give that of kernels with one lengthscale, or with one for each of p coordinates."""
        if coordinates is None:
            return cls((NAMES[:1],) * parts, ((0,),) * parts)
        own = tuple(f"{NAMES[0]}_{place + 1}" for place in range(coordinates))
        return cls((own,) * parts, (tuple(range(coordinates)),) * parts)

    @classmethod
    def of_kernel(cls, kernel: Kernel) -> "Numbering":
        """Give that of the numbers of a kernel."""
        return cls.in_layout(
            [part.number_names for part in kernel.parts],
            [part.number_axes for part in kernel.parts],
            kernel.layout,
        )

    @classmethod
    def in_layout(
        cls, names: Sequence[tuple[str, ...]], axes: Sequence[tuple[Axis, ...]], layout: Layout | None
    ) -> "Numbering":
        """Give that of parts whose numbers have these names and axes, at points with these columns."""
        named = layout.axes if layout is not None else ()
        places = {SPACE: 0} | {axis: 1 + place for place, axis in enumerate(named)}
        along = (tuple(places[one] if isinstance(one, str) else one for one in own) for own in axes)
        return cls(tuple(names), tuple(along))

    @property
    def parts(self) -> int:
        """M."""
        return len(self.own)

    @property
    def lengthscales(self) -> int:
        """Own numbers of all parts: how many, and where the variances begin."""
        return sum(map(len, self.own))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the k + 1 parameters: lengthscale_2, or lengthscale_1_2 (part, coordinate)."""
        parts = [f"_{part}" for part in range(1, self.parts + 1)] if self.parts > 1 else [""]
        split = [
            (part, *(name if len(own) > 1 else name.removesuffix("_1")).partition("_"))
            for part, own in zip(parts, self.own, strict=True)
            for name in own
        ]
        return (
            *(f"{head}{part}{bar}{tail}" for part, head, bar, tail in split),
            *(f"{NAMES[1]}{part}" for part in parts),
            NAMES[2],
        )

    @property
    def natural(self) -> Array:
        """Logarithms of (lengthscales, variance_1, weights, ratio) from those of the parameters."""
        first = self.lengthscales
        matrix = np.eye(first + self.parts + 1)
        matrix[first + 1 :, first] = -1.0
        return matrix

    def parameters(self, numbers: Sequence[float], variance: float) -> tuple[float, ...]:
        """All lengthscales, variances and the noise variance, from ``numbers`` and the first variance."""
        first = self.lengthscales
        others = (float(number * variance) for number in numbers[first:])
        return (*(float(number) for number in numbers[:first]), variance, *others)

    def of_parts(self, lengthscales: Sequence[float]) -> tuple[Lengthscales, ...]:
        """Own numbers part by part: a number where it is the lengthscale alone, else a tuple."""
        given = iter(lengthscales)
        each = [tuple(next(given) for _ in own) for own in self.own]
        return tuple(
            numbers[0] if own == (NAMES[0],) else numbers for own, numbers in zip(self.own, each, strict=True)
        )

    def grouped(
        self, parameters: Sequence[float]
    ) -> tuple[tuple[Lengthscales, ...], tuple[float, ...], float]:
        """Lengthscales and variances part by part, and the noise variance."""
        first = self.lengthscales
        return self.of_parts(parameters[:first]), tuple(parameters[first:-1]), parameters[-1]


class UnitModel(NamedTuple):
    """A model at some numbers: its kernel, the first part of variance one, derivatives of it, the ratio."""

    kernel: Parameters
    derivatives: tuple[Parameters, ...]  # By the logarithms of all numbers but the ratio
    ratio: float


@dataclass(frozen=True)
class Model:
    """The families of the parts of a kernel, and whether each coordinate has a lengthscale of its own."""

    families: tuple[Family, ...]  # One for each part
    coordinates: int | None = None  # p, if each has a lengthscale of its own; None if all share one
    # Distance in each column of points that counts as one where neighbours are looked for; None: extents
    scales: tuple[float, ...] | None = None

    @classmethod
    def of(cls, kernel: "Families | Model") -> "Model":
        """Give the model of a class, or of several; a model is its own."""
        if isinstance(kernel, Model):
            return kernel
        if isinstance(kernel, Kernel):
            raise ArgumentError(_with_its_numbers(kernel), key="kernel-with-numbers")
        named = families_of(kernel) if isinstance(kernel, str) else kernel
        families = tuple(named) if isinstance(named, list | tuple) else (named,)
        for family in families or (kernel,):
            if not is_family(family):
                raise ArgumentError(
                    f"kernel is {kernel!r}; expected one of the classes Matern12, Matern32, Matern52 and "
                    "SquaredExponential, or several of them as a tuple, for their sum, or names such as "
                    f'"{KERNEL_FORMS[-1]}".',
                    key="kernel-unknown",
                )
        if len(families) > MOST_PARTS:
            raise ArgumentError(
                f"kernel has {len(families)} parts; expected at most {MOST_PARTS}.", key="too-many-parts"
            )
        both = [isinstance(family, SpaceTimeOf) for family in families]
        if any(both) and not all(both):
            raise ArgumentError(
                f"kernel is {kernel!r}; expected parts that are all kernels of space and time, or none.",
                key="kernel-of-time",
            )
        return cls(families)

    @property
    def layout(self) -> Layout | None:
        """Which columns points have; None: any, all of space."""
        if all(isinstance(family, type | MaternOf) for family in self.families):
            return None
        return self.example.layout

    @property
    def example(self) -> Kernel:
        """A kernel of it, all numbers of which are one."""
        own = [_own_names(family) for family in self.families]
        numbers = [1.0 if names == NAMES[:1] else (1.0,) * len(names) for names in own]
        return self.kernel(numbers, [1.0] * self.parts)

    @property
    def axes(self) -> tuple[int, ...] | None:
        """Which axis each column of points is of, space being 0; None of points in space alone."""
        layout = self.layout
        if layout is None or not layout.axes:
            return None
        return (0,) * layout.space + tuple(range(1, len(layout.axes) + 1))

    @property
    def parts(self) -> int:
        """M."""
        return len(self.families)

    @cached_property
    def numbering(self) -> Numbering:
        """Which of its numbers stands where."""
        if self.coordinates is not None:
            return Numbering.of(self.parts, self.coordinates)
        names, axes = map(_own_names, self.families), map(_own_axes, self.families)
        return Numbering.in_layout(tuple(names), tuple(axes), self.layout)

    def kernel(self, lengthscales: Sequence[Lengthscales], variances: Sequence[float]) -> Kernel:
        """Give the kernel with these numbers, a lengthscale (or several) and a variance for every part."""
        parts = [
            family(lengthscale, variance)
            for family, lengthscale, variance in zip(self.families, lengthscales, variances, strict=True)
        ]
        return parts[0] if len(parts) == 1 else Sum(tuple(parts))

    def at(self, numbers: Sequence[float]) -> "UnitModel":
        """Give what tasks need to know of the model at these numbers."""
        return UnitModel(self.unit(numbers).parameters, self.derivatives(numbers), numbers[-1])

    def unit(self, numbers: Sequence[float]) -> Kernel:
        """Give the kernel whose first part has variance one."""
        first = self.numbering.lengthscales
        return self.kernel(self.numbering.of_parts(numbers[:first]), [1.0, *numbers[first:-1]])

    def derivatives(self, numbers: Sequence[float]) -> tuple[Parameters, ...]:
        """Parameters of its derivatives by the logarithms of all numbers but the ratio."""
        kernel = self.unit(numbers)
        parts, layout = kernel.parts, kernel.layout
        weighted = (part.parameters if layout is None else part.parameters_in(layout) for part in parts[1:])
        return (*(slope for part in parts for slope in part.slope_parameters(layout)), *weighted)

    def comparable(self, X: Array) -> Array:
        """Points X (n, p) with coordinates that can be compared: as they are, or in extents."""
        if self.scales is not None:
            return np.asarray(X / np.array(self.scales))
        if self.coordinates is not None or self.axes is not None:
            return in_extents(X, self.axes)
        return X

    def in_order(self, x: Array) -> Array:
        """Logarithms of numbers, parts of one family ordered by their (geometric mean) lengthscale."""
        first, families = self.numbering.lengthscales, self.families
        ends = np.cumsum([len(own) for own in self.numbering.own])[:-1]
        lengthscales = np.split(x[:first], ends)
        order = list(range(self.parts))
        for family in set(families):
            places = [index for index in range(self.parts) if families[index] == family]
            by_length = sorted(places, key=lambda index: float(lengthscales[index].sum()))
            for place, index in zip(places, by_length, strict=True):
                order[place] = index
        variances = np.concatenate([[0.0], x[first:-1]])[order]
        return np.concatenate(
            [
                *(lengthscales[index] for index in order),
                variances[1:] - variances[0],
                [x[-1] - variances[0]],
            ]
        )


def _own_names(family: Family) -> tuple[str, ...]:
    """Names of the numbers that a family makes a kernel from."""
    one = isinstance(family, type | MaternOf)
    return NAMES[:1] if one else cast("tuple[str, ...]", getattr(family, "number_names"))  # noqa: B009


def _own_axes(family: Family) -> tuple[Axis, ...]:
    """Axes of the numbers that a family makes a kernel from."""
    one = isinstance(family, type | MaternOf)
    return (SPACE,) if one else cast("tuple[Axis, ...]", getattr(family, "number_axes"))  # noqa: B009


def is_family(family: object) -> bool:
    """Whether it makes a kernel from a lengthscale and a variance."""
    if isinstance(family, MaternOf) or (not isinstance(family, type) and hasattr(family, "number_names")):
        return True
    return isinstance(family, type) and issubclass(family, ClosedForm) and family is not ClosedForm


def in_extents(X: Array, axes: Sequence[int] | None = None) -> Array:
    """Points X (n, p) with each coordinate in units of its own extent, or that of its axis, if it has one."""
    sides = extents(X, axes)
    return np.asarray(X / np.where(sides > 0.0, sides, 1.0))


def extents(X: Array, axes: Sequence[int] | None = None) -> Array:
    """Extent of points X (n, p) in each coordinate, (p,); the largest of those that share an axis."""
    sides = np.ptp(X, axis=0)
    if axes is None:
        return np.asarray(sides)
    return np.array([sides[np.array(axes) == axis].max() for axis in axes])


def _with_its_numbers(kernel: Kernel) -> str:
    """Say what to give instead of a kernel that has its numbers."""
    families = [part.family.__name__ for part in kernel.parts]
    expected = f"the family {families[0]}" if len(families) == 1 else f"({', '.join(families)})"
    lengthscales = [part.lengthscale for part in kernel.parts]
    start = lengthscales[0] if len(lengthscales) == 1 else tuple(lengthscales)
    by_coordinate = kernel.coordinates is not None and kernel.layout is None
    own = "anisotropic=True, " if by_coordinate else ""
    return (
        f"kernel is {kernel!r}, a kernel with its numbers; expected {expected}, whose numbers are fitted. To "
        f'begin there give {own}start={{"lengthscale": {start}}}.'
    )
