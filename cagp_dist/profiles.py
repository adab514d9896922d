"""What compiled functions are told of a kernel: its profile, a function of the distance, as numbers.

A `CompiledProfile` holds float64 numbers in the order that `cagp_dist.compiled` reads. Of a kernel in closed
form these are the coefficients of a polynomial that an exponential is multiplied with (`closed_form`), of a
Matern kernel of any other smoothness polynomials on pieces of the square of the distance (`matern`). Either
way the derivative by the logarithm of the lengthscale follows from the kernel itself, and so does how far it
reaches.

With ``a = scale u`` a kernel ``p(a) exp(-a)`` has the derivative ``a (p - p') exp(-a)``, and with
``a = u^2 / 2`` twice that (math 9). A Matern kernel is, with ``a = sqrt(2 nu) u`` (math 8)::

    k(u) = c a^nu K_nu(a),  dk / d log(lengthscale) = c a^(nu + 1) K_(nu - 1)(a),  c = 2^(1 - nu) / Gamma(nu)

Pieces are 1/32 of an octave of ``s = u^2``, so that what is a power of the distance near zero is as smooth on
each as on any other. A polynomial of degree 5 through the Chebyshev nodes of a piece is off by less than
1e-13 of the variance. Below ``u = 1e-6`` the two leading powers take its place, ``1 + A s^nu + B s``.
"""

import math
from collections.abc import Callable, Sequence
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.compiled import (
    ALGEBRAIC,
    ALONG,
    AT_ZERO,
    BY_WEIGHT,
    COORDINATE,
    DEGREE,
    DISTANCE,
    EDGE,
    FACTORS,
    FIRST_COEFFICIENT,
    FIRST_ENTRY,
    FIRST_FACTOR,
    FIRST_OCTAVE,
    FIRST_OF_DISTANCES,
    FIRST_PIECE,
    FIRST_POWER,
    GLOBE,
    KIND,
    LABELS,
    MULTIPLIED,
    OF_FACTOR,
    PIECES,
    PIECES_OF_OCTAVE,
    PRODUCT,
    REACH,
    RECIPROCAL,
    SAME,
    SCALE,
    SQUARE,
    STRETCH,
    TABLE,
    TERMS,
)
from cagp_dist.errors import ArgumentError

NEGLIGIBLE = 2.0**-60  # part of the variance below the rounding of any sum that a value would enter
SMOOTHEST_SINGULAR = 1.5  # above, the power ``s^nu`` is nothing beside ``s`` below the first piece
NEAREST_TO_ONE = 1e-6  # to smoothness 1, where ``A`` and ``B`` are infinite and cancel


class Part(Enum):
    """What of a kernel a profile describes."""

    VALUE = "value"
    SLOPE = "slope"
    """Its derivative by the logarithm of its lengthscale."""
    SHARE = "share"
    """The slope over the square of the scaled distance.

    Times the square of the scaled difference in one coordinate it is the derivative by the logarithm of the
    lengthscale of that one.
    """


class CompiledProfile(bytes):
    """Numbers of a profile as compiled functions read them; sent to another process by how they are made."""

    _made: tuple[Callable[..., "CompiledProfile"], tuple[object, ...]]

    @classmethod
    def of(
        cls, numbers: Array, make: Callable[..., "CompiledProfile"], *arguments: object
    ) -> "CompiledProfile":
        """Keep numbers, and the call that makes them."""
        profile = cls(np.asarray(numbers, dtype=np.float64).tobytes())
        profile._made = make, arguments
        return profile

    @property
    def of_labels(self) -> bool:
        """Whether it is of pairs of labels, and no function of a distance."""
        return bool(np.frombuffer(self, dtype=np.float64, count=1)[KIND] >= TABLE)

    @property
    def of_distances(self) -> bool:
        """Whether it is of a distance that differences of points have, wherever they are."""
        return bool(np.frombuffer(self, dtype=np.float64, count=1)[KIND] < GLOBE)

    def __reduce__(self) -> tuple[Callable[..., "CompiledProfile"], tuple[object, ...]]:
        """Send the call that makes it: tables are a thousand times as long."""
        return self._made

    def __repr__(self) -> str:
        """Give the call that makes it."""
        make, arguments = self._made
        return f"{make.__name__}{arguments!r}"


@lru_cache(maxsize=256)
def closed_form(
    polynomial: tuple[float, ...], scale: float | None, part: Part = Part.VALUE, coordinate: int | None = None
) -> CompiledProfile:
    """Give the profile of ``p(a) exp(-a)``, ``a = scale u``, or ``u^2 / 2`` if the scale is None."""
    most = 1 if scale is None else TERMS - 1
    if len(polynomial) > most:
        raise ArgumentError(
            f"the polynomial of a kernel has {len(polynomial)} terms; expected at most {most} here. Add "
            "terms to the loops of cagp_dist.compiled.",
            key="kernel-terms",
        )
    p = np.zeros(TERMS)
    p[: len(polynomial)] = polynomial
    left = p - np.append(np.arange(1, TERMS) * p[1:], 0.0)  # p - p'
    slope = np.append(0.0, left[:-1]) * (2.0 if scale is None else 1.0)
    kind = SQUARE if scale is None else DISTANCE
    if part is Part.SLOPE:
        coefficients = slope
    elif part is Part.VALUE:
        coefficients = p
    elif scale is None:
        coefficients = left
    elif left[0]:
        kind, coefficients = RECIPROCAL, scale**2 * left
    else:
        coefficients = scale**2 * np.append(left[1:], 0.0)

    def value(u: float) -> float:
        a = 0.5 * u * u if scale is None else scale * u
        own = p if part is Part.VALUE else slope
        return float(np.polynomial.polynomial.polyval(a, own)) * math.exp(-a)

    numbers = np.zeros(FIRST_COEFFICIENT + TERMS)
    numbers[SCALE] = 0.5 if scale is None else scale
    numbers[FIRST_COEFFICIENT:] = coefficients
    _describe(numbers, kind, value, part, coordinate)
    return CompiledProfile.of(numbers, closed_form, polynomial, scale, part, coordinate)


class Factor(NamedTuple):
    """A profile of some of the coordinates, one of those that `product` multiplies."""

    profile: CompiledProfile
    first: int  # coordinate, and the one past the last
    end: int
    period: float = 0.0  # around which distances are bent, 0: they are not
    power: float = 0.0  # of one and the distance of the factor before, by which squares are divided


@lru_cache(maxsize=1024)
def product(factors: tuple[Factor, ...], coordinate: int | None = None) -> CompiledProfile:
    """Profile of a product, of factors that each have coordinates of their own.

    With a ``coordinate`` it is multiplied by the squared difference there.
    """
    numbers = [np.frombuffer(factor.profile, dtype=np.float64) for factor in factors]
    ends = FIRST_FACTOR + OF_FACTOR * len(factors) + np.cumsum([each.size for each in numbers])
    head = np.zeros(FIRST_FACTOR)
    head[KIND], head[COORDINATE] = PRODUCT, -1 if coordinate is None else coordinate
    head[FACTORS] = len(factors)
    # where all together are so far away, one of them is
    bent = any(factor.period > 0.0 or factor.power > 0.0 for factor in factors)
    reaches = [each[REACH] for each in numbers if each[KIND] < TABLE]
    head[REACH] = math.inf if bent or not reaches else math.sqrt(len(reaches)) * max(reaches)
    head[AT_ZERO] = math.prod(each[AT_ZERO] for each in numbers) if coordinate is None else 0.0
    said = [
        (factor.first, factor.end, factor.period, factor.power, end - own.size, end)
        for factor, own, end in zip(factors, numbers, ends, strict=True)
    ]
    return CompiledProfile.of(np.concatenate([head, np.ravel(said), *numbers]), product, factors, coordinate)


@lru_cache(maxsize=256)
def table(entries: tuple[tuple[float, ...], ...]) -> CompiledProfile:
    """Profile of a label: the entry of a symmetric table (labels, labels) for each pair."""
    numbers = np.zeros(FIRST_ENTRY + len(entries) ** 2)
    numbers[KIND], numbers[REACH], numbers[COORDINATE], numbers[AT_ZERO] = TABLE, math.inf, -1, math.nan
    numbers[LABELS] = len(entries)
    numbers[FIRST_ENTRY:] = np.ravel(entries)
    return CompiledProfile.of(numbers, table, entries)


@lru_cache(maxsize=1)
def same_label() -> CompiledProfile:
    """Profile of a label: one where labels are the same, else zero."""
    numbers = np.zeros(FIRST_ENTRY)
    numbers[KIND], numbers[REACH], numbers[COORDINATE], numbers[AT_ZERO] = SAME, math.inf, -1, 1.0
    return CompiledProfile.of(numbers, same_label)


@lru_cache(maxsize=16)
def algebraic(level: float, rising: float, decay: float) -> CompiledProfile:
    """Give the profile of ``level w^-decay + rising (w - 1) w^(-decay - 1)``, w = 1 + distance."""
    numbers = np.zeros(FIRST_COEFFICIENT + TERMS)
    numbers[KIND], numbers[REACH], numbers[COORDINATE], numbers[AT_ZERO] = ALGEBRAIC, math.inf, -1, level
    numbers[SCALE] = decay
    numbers[FIRST_COEFFICIENT : FIRST_COEFFICIENT + 2] = level, rising
    return CompiledProfile.of(numbers, algebraic, level, rising, decay)


@lru_cache(maxsize=256)
def on_globe(
    distances: CompiledProfile, stretch: float, along: float, multiplied: int = BY_WEIGHT
) -> CompiledProfile:
    """Profile of places on the globe (math 24), points in units of what counts as one along meridians.

    ``along`` is the square of the distance that counts as one along parallels at the equator, and ``stretch``
    how much larger that is than the square of that along meridians; a chord, both.
    """
    inner = np.frombuffer(distances, dtype=np.float64)
    head = np.zeros(FIRST_OF_DISTANCES)
    head[KIND], head[COORDINATE] = GLOBE, -1
    head[STRETCH], head[ALONG], head[MULTIPLIED] = stretch, along, multiplied
    ratio = along / (along - stretch)  # of squares
    head[REACH] = inner[REACH] * math.sqrt(max(ratio, 1.0))
    head[AT_ZERO] = inner[AT_ZERO] if multiplied == BY_WEIGHT else 0.0
    return CompiledProfile.of(np.concatenate([head, inner]), on_globe, distances, stretch, along, multiplied)


@lru_cache(maxsize=64)
def matern(smoothness: float, part: Part = Part.VALUE, coordinate: int | None = None) -> CompiledProfile:
    """Give the profile of a Matern kernel of any smoothness; some 20 ms, and 80 KiB."""
    if coordinate is not None:  # the pieces are the same
        numbers = np.frombuffer(matern(smoothness, part), dtype=np.float64).copy()
        numbers[COORDINATE] = coordinate
        return CompiledProfile.of(numbers, matern, smoothness, part, coordinate)
    head = np.zeros(FIRST_PIECE)

    def value(u: float) -> float:
        return float(_bessel(smoothness, np.array(u * u), Part.VALUE if part is Part.VALUE else Part.SLOPE))

    _describe(head, PIECES, value, part, None)
    octaves = math.ceil(2.0 * math.log2(head[REACH])) - FIRST_OCTAVE
    head[EDGE] = 2.0 ** (FIRST_OCTAVE + octaves)
    head[FIRST_POWER : FIRST_POWER + 4] = _near_zero(smoothness, part)
    pieces = _pieces(lambda s: _bessel(smoothness, s, part), octaves)
    before = np.append(head[AT_ZERO], np.zeros(DEGREE))  # at distance zero
    numbers = np.concatenate([head, before, pieces.ravel(), np.zeros(DEGREE + 1)])
    return CompiledProfile.of(numbers, matern, smoothness, part, coordinate)


def _describe(
    numbers: Array, kind: int, value: Callable[[float], float], part: Part, coordinate: int | None
) -> None:
    """Fill in what all profiles say; ``value`` of the scaled distance is the kernel or its slope."""
    numbers[KIND] = kind
    numbers[REACH] = _reach(value)
    numbers[COORDINATE] = -1 if coordinate is None else coordinate
    numbers[AT_ZERO] = 1.0 if part is Part.VALUE else 0.0


def _reach(value: Callable[[float], float]) -> float:
    """Scaled distance beyond which a profile is `NEGLIGIBLE`, by bisection: it falls from 1 on."""
    near, far = 1.0, 1000.0
    while far - near > 1e-3 * far:
        middle = 0.5 * (near + far)
        near, far = (middle, far) if value(middle) > NEGLIGIBLE else (near, middle)
    return far


def _bessel(smoothness: float, s: Array, part: Part) -> Array:
    """Matern kernel at squares s of scaled distances, its slope or its share."""
    from scipy.special import gamma, kv

    a = np.sqrt(2.0 * smoothness * s)
    factor = 2.0 ** (1.0 - smoothness) / gamma(smoothness)
    if part is Part.VALUE:
        return np.asarray(factor * a**smoothness * kv(smoothness, a))
    slope = np.asarray(factor * a ** (smoothness + 1.0) * kv(abs(smoothness - 1.0), a))
    return slope if part is Part.SLOPE else slope / s


def _near_zero(smoothness: float, part: Part) -> Sequence[float]:
    """Two powers of s and their factors, in the order (power, factor, power, factor)."""
    nu = smoothness
    if abs(nu - 1.0) < NEAREST_TO_ONE:
        nu = 1.0 + math.copysign(NEAREST_TO_ONE, nu - 1.0)
    regular, singular = 0.5 * nu / (1.0 - nu), 0.0
    if nu < SMOOTHEST_SINGULAR:
        singular = -math.gamma(1.0 - nu) / math.gamma(1.0 + nu) * (0.5 * nu) ** nu
    if part is Part.VALUE:
        return nu, singular, 1.0, regular
    down = 1.0 if part is Part.SHARE else 0.0
    return nu - down, -2.0 * nu * singular, 1.0 - down, -2.0 * regular


def _pieces(function: Callable[[Array], Array], octaves: int) -> Array:
    """Coefficients (pieces, degree + 1) of polynomials about the middle of each piece of s."""
    terms = DEGREE + 1
    nodes = np.cos(np.pi * (np.arange(terms) + 0.5) / terms)
    start = np.arange(octaves * PIECES_OF_OCTAVE)
    octave = 2.0 ** (FIRST_OCTAVE + start // PIECES_OF_OCTAVE)
    half = 0.5 * octave / PIECES_OF_OCTAVE
    middle = octave * (1.0 + start % PIECES_OF_OCTAVE / PIECES_OF_OCTAVE) + half
    values = function(middle[:, None] + half[:, None] * nodes)
    series = 2.0 / terms * values @ np.polynomial.chebyshev.chebvander(nodes, DEGREE)
    series[:, 0] *= 0.5
    powers = np.zeros((terms, terms))
    for degree in range(terms):
        powers[degree, : degree + 1] = np.polynomial.chebyshev.cheb2poly(np.eye(terms)[degree])[: degree + 1]
    return np.asarray(series @ powers / half[:, None] ** np.arange(terms))
