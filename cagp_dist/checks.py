"""Checks of arguments at the boundary: what came, what was expected, what to do."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array
from cagp_dist.errors import ArgumentError

LARGEST = 1e150  # largest lengthscale and variance: squares are finite, and farther points are infinitely far


def as_points(name: str, X: ArrayLike) -> Array:
    """Check and return points as a C-contiguous float64 array of shape (n, p)."""
    try:
        points = np.ascontiguousarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"{name} is not numeric: {error}. Expected an (n, p) array of numbers.", key="no-numbers"
        ) from error
    if points.ndim != 2 or points.shape[1] == 0:
        raise ArgumentError(
            f"{name} has shape {points.shape}; expected (n, p), one row per point. "
            f"For points on a line use {name}.reshape(-1, 1).",
            key="shapes",
        )
    if not np.isfinite(points).all():
        bad = int(np.flatnonzero(~np.isfinite(points).all(axis=1))[0])
        raise ArgumentError(
            f"{name} holds NaN or infinity (first in row {bad}); drop those points first.", key="not-finite"
        )
    return points


def as_numbers(name: str, values: ArrayLike) -> Array:
    """Return values as float64; masked entries and complex numbers are refused, not converted."""
    if np.ma.is_masked(values):
        raise ArgumentError(f"{name} has masked entries; drop those points first.", key="masked-entries")
    try:
        if np.iscomplexobj(values):
            raise TypeError("complex numbers")
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"{name} is not numeric: {error}. Expected an array of numbers.", key="no-numbers"
        ) from error


def check_positive(name: str, value: float, *, least: float = 0.0, most: float = math.inf) -> None:
    """Raise `ArgumentError` unless ``value`` is a finite number above zero and within the limits."""
    number = isinstance(value, (int, float, np.floating, np.integer)) and not isinstance(value, bool)
    if not (number and 0.0 < value < math.inf):
        raise ArgumentError(f"{name} is {value!r}; expected a finite number above zero.", key="not-positive")
    if not least <= value <= most:
        raise ArgumentError(
            f"{name} is {value!r}; expected {least:g} to {most:g}. Use another unit.", key="out-of-range"
        )


def as_variances(name: str, values: ArrayLike) -> Array:
    """Check and return an array of variances as float64: finite and above zero."""
    variances = as_numbers(name, values)
    wrong = ~(np.isfinite(variances) & (variances > 0.0))
    if wrong.any():
        place = tuple(int(index) for index in np.argwhere(wrong)[0])
        raise ArgumentError(
            f"{name}{list(place)} is {variances[place]:g}; expected finite numbers above zero, also at "
            "points that were not observed.",
            key="not-positive",
        )
    return variances


def check_between(name: str, value: float, low: float, high: float) -> None:
    """Raise `ArgumentError` unless ``value`` is a number between two others, neither of them."""
    check_positive(name, value)
    if not low < value < high:
        raise ArgumentError(
            f"{name} is {value!r}; expected a number between {low:g} and {high:g}.", key="out-of-range"
        )


def check_count(name: str, value: int, *, least: int) -> None:
    """Raise `ArgumentError` unless ``value`` is an integer of at least ``least``."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
        raise ArgumentError(f"{name} is {value!r}; expected an integer of at least {least}.", key="no-count")


def check_memory_limit(memory_limit_bytes: int | None) -> None:
    """Raise `ArgumentError` unless it is a number of bytes, or None for what is free."""
    whole = isinstance(memory_limit_bytes, (int, np.integer)) and not isinstance(memory_limit_bytes, bool)
    if memory_limit_bytes is not None and not (whole and memory_limit_bytes >= 0):
        raise ArgumentError(
            f"memory_limit_bytes is {memory_limit_bytes!r}; expected an integer of at least 0, the number of "
            "bytes: 2 * 10**9 for 2 GB, 2 * 2**30 for 2 GiB; or None for most of what is free.",
            key="memory-limit",
        )


def check_generator(generator: object) -> None:
    """Raise `ArgumentError` unless it is a generator of NumPy."""
    if not isinstance(generator, np.random.Generator):
        raise ArgumentError(
            f"generator is a {type(generator).__name__}; expected numpy.random.default_rng(seed).",
            key="generator",
        )


def check_word(name: str, value: object, words: Sequence[str]) -> None:
    """Raise `ArgumentError` unless ``value`` is one of a few words."""
    if value not in words:
        raise ArgumentError(f"{name} is {value!r}; expected one of {', '.join(words)}.", key="unknown-word")
