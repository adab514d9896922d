"""Checks at the boundary: what is refused, what is let through, and what the error says."""

import re

import numpy as np
import pytest

from cagp_dist.checks import as_numbers, as_points, check_count, check_positive
from cagp_dist.errors import ArgumentError

from .joined import one_after_another


@pytest.mark.parametrize("value", [1, 0.5, np.float32(0.25), np.int64(3), 1e-300, 1e300])
def test_positive_numbers_pass(value):
    check_positive("size", value)


@pytest.mark.parametrize("value", [0, -1.0, np.nan, np.inf, -np.inf, "1", None, True, [1.0], np.ones(1), 1j])
def test_other_values_are_no_positive_numbers(value):
    text = re.escape(f"size is {value!r}; expected a finite number above zero")
    with pytest.raises(ArgumentError, match=text):
        check_positive("size", value)


@pytest.mark.parametrize("value", [0.5, 20.1])
def test_positive_numbers_have_limits(value):
    check_positive("size", 1.0, least=1.0, most=20.0)
    check_positive("size", 20.0, least=1.0, most=20.0)
    with pytest.raises(ArgumentError) as refusal:
        check_positive("size", value, least=1.0, most=20.0)
    assert refusal.value.key == "out-of-range"


@pytest.mark.parametrize("value", [3, 4, np.int64(3), np.uint8(200)])
def test_counts_pass(value):
    check_count("blocks", value, least=3)


@pytest.mark.parametrize("value", [2, -1, 3.0, "3", None, True, np.float64(4.0), [3]])
def test_other_values_are_no_counts(value):
    text = re.escape(f"blocks is {value!r}; expected an integer of at least 3")
    with pytest.raises(ArgumentError, match=text):
        check_count("blocks", value, least=3)


def test_numbers_become_float64():
    for values in ([1, 2], (1.0, 2.0), np.array([1, 2], dtype=np.int8), np.ma.masked_array([1.0, 2.0])):
        numbers = as_numbers("y", values)
        assert numbers.dtype == np.float64
        assert numbers.tolist() == [1.0, 2.0]


@one_after_another
@pytest.mark.parametrize(
    ("values", "key"),
    [
        (np.ma.masked_array([1.0, 2.0], mask=[False, True]), "masked-entries"),
        ([1.0, 2.0j], "no-numbers"),
        (["a", "b"], "no-numbers"),
        ([[1.0], [1.0, 2.0]], "no-numbers"),
        ([object()], "no-numbers"),
    ],
)
def test_what_is_no_number_is_refused_and_not_converted(values, key):
    with pytest.raises(ArgumentError) as refusal:
        as_numbers("y", values)
    assert refusal.value.key == key


def test_points_become_contiguous_float64():
    strided = np.arange(24, dtype=np.float32).reshape(6, 4)[::2, ::3]
    points = as_points("X", strided)
    assert points.dtype == np.float64
    assert points.flags.c_contiguous
    assert points.tolist() == [[0.0, 3.0], [8.0, 11.0], [16.0, 19.0]]
    assert as_points("X", points) is points  # nothing is copied that is as it should be
