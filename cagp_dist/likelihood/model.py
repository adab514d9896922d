"""Which numbers a fit looks for: those of one kernel, or of all parts of a sum, and the noise variance.

For m parts these are m lengthscales, m variances and the noise variance, in this order. A likelihood takes
the variance of the first part out (math 9) and is a function of 2 m ``numbers``::

    lengthscale_1 .. lengthscale_m,  weight_2 .. weight_m,  ratio

with ``weight_k = variance_k / variance_1`` and ``ratio = noise_variance / variance_1``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.errors import ArgumentError
from cagp_dist.kernels import MOST_PARTS, Elementary, Kernel, Parameters, Sum

Families = type[Elementary] | Sequence[type[Elementary]]
"""One class of kernels, or one for each part of a sum."""

NAMES = ("lengthscale", "variance", "noise_variance")


@dataclass(frozen=True)
class Model:
    """The families of the parts of a kernel."""

    families: tuple[type[Elementary], ...]

    @classmethod
    def of(cls, kernel: Families) -> "Model":
        """Give the model of a class, or of several.

        Raises
        ------
        ArgumentError
            If ``kernel`` is something else.
        """
        if isinstance(kernel, Kernel):
            families = [type(part).__name__ for part in kernel.parts]
            expected = f"the family {families[0]}" if len(families) == 1 else f"({', '.join(families)})"
            lengthscales = [part.lengthscale for part in kernel.parts]
            start = lengthscales[0] if len(lengthscales) == 1 else tuple(lengthscales)
            raise ArgumentError(
                f"kernel is {kernel!r}, a kernel with its numbers; expected {expected}, whose numbers are "
                f'fitted. To begin there give start={{"lengthscale": {start}}}.'
            )
        families = tuple(kernel) if isinstance(kernel, list | tuple) else (kernel,)
        for family in families or (kernel,):
            if not (isinstance(family, type) and issubclass(family, Elementary)) or family is Elementary:
                raise ArgumentError(
                    f"kernel is {kernel!r}; expected one of the classes Matern12, Matern32, Matern52 and "
                    "SquaredExponential, or several of them as a tuple, for their sum."
                )
        if len(families) > MOST_PARTS:
            raise ArgumentError(f"kernel has {len(families)} parts; expected at most {MOST_PARTS}.")
        return cls(families)

    @property
    def parts(self) -> int:
        """M."""
        return len(self.families)

    def kernel(self, lengthscales: Sequence[float], variances: Sequence[float]) -> Kernel:
        """Give the kernel with these numbers, one of each for every part."""
        parts = [
            family(lengthscale, variance)
            for family, lengthscale, variance in zip(self.families, lengthscales, variances, strict=True)
        ]
        return parts[0] if len(parts) == 1 else Sum(tuple(parts))

    def unit(self, numbers: Sequence[float]) -> Kernel:
        """Give the kernel whose first part has variance one."""
        return self.kernel(numbers[: self.parts], [1.0, *numbers[self.parts : -1]])

    def derivatives(self, numbers: Sequence[float]) -> tuple[Parameters, ...]:
        """Parameters of its derivatives by the logarithms of all numbers but the ratio.

        By a lengthscale it is the slope of that part, by a weight that part itself.
        """
        parts = self.unit(numbers).parts
        return (*(part.slope_parameters for part in parts), *(part.parameters for part in parts[1:]))


def names_of(parts: int) -> tuple[str, ...]:
    """Names of the 2 m + 1 parameters; those of a sum are numbered."""
    if parts == 1:
        return NAMES
    numbered = [f"{name}_{part}" for name in NAMES[:2] for part in range(1, parts + 1)]
    return (*numbered, NAMES[2])


def natural(parts: int) -> Array:
    """Logarithms of (lengthscales, variance_1, weights, ratio) from those of the parameters."""
    matrix = np.eye(2 * parts + 1)
    matrix[parts + 1 :, parts] = -1.0
    return matrix


def parameters_of(numbers: Sequence[float], variance: float) -> tuple[float, ...]:
    """All lengthscales, variances and the noise variance, from ``numbers`` and the variance of the first."""
    parts = len(numbers) // 2
    others = (float(number * variance) for number in numbers[parts:])
    return (*(float(number) for number in numbers[:parts]), variance, *others)


def in_order(families: Sequence[type[Elementary]], x: Array) -> Array:
    """Logarithms of numbers with parts of the same family ordered by lengthscale, short ones first."""
    parts = len(families)
    lengthscales = x[:parts]
    order = list(range(parts))
    for family in set(families):
        places = [index for index in range(parts) if families[index] is family]
        for place, index in zip(places, sorted(places, key=lambda i: lengthscales[i]), strict=True):
            order[place] = index
    variances = np.concatenate([[0.0], x[parts:-1]])[order]
    return np.concatenate([lengthscales[order], variances[1:] - variances[0], [x[-1] - variances[0]]])
