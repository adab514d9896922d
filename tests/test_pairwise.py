"""Pairwise lists hold every pair, only values that were given, and few cases."""

from itertools import combinations, product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .grids import EVERY_CASE, LAYOUTS, LENGTHSCALES
from .oracle import KERNELS
from .pairwise import pairwise

SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=5)


def numbered(sizes):
    """Factors of given sizes; a value knows its factor, so that one in a wrong place is found."""
    return {f"f{place}": [(place, value) for value in range(size)] for place, size in enumerate(sizes)}


@given(sizes=SIZES)
def test_every_pair_occurs_and_nothing_else_than_was_given(sizes):
    factors = numbered(sizes)
    cases = pairwise(factors)
    columns = list(zip(*cases, strict=True))
    for column, values in zip(columns, factors.values(), strict=True):
        assert set(column) == set(values)
    for (first, values), (second, others) in combinations(enumerate(factors.values()), 2):
        assert set(zip(columns[first], columns[second], strict=True)) == set(product(values, others))


@given(sizes=SIZES)
def test_no_case_is_there_twice_and_few_are_more_than_must_be(sizes):
    cases = pairwise(numbered(sizes))
    longest = sorted(sizes)[-2:]
    assert len(set(cases)) == len(cases) <= prod(sizes)
    assert prod(longest) <= len(cases) <= 1.6 * prod(longest) + 2


@given(sizes=SIZES)
def test_the_same_factors_give_the_same_list(sizes):
    assert pairwise(numbered(sizes)) == pairwise(numbered(sizes))


def test_values_may_be_equal_unhashable_or_none():
    assert len(pairwise({"a": [[1], [1]], "b": [None, 2.0, {}]})) == 6


@pytest.mark.parametrize("factors", [{}, {"a": []}, {"a": [1], "b": []}])
def test_factors_without_values_are_refused(factors):
    with pytest.raises(ValueError, match="every factor needs at least one value"):
        pairwise(factors)


def test_cases_of_grids_are_as_few_as_layouts_times_kernels():
    assert len(EVERY_CASE) == len(LAYOUTS) * len(KERNELS)
    assert {(name, lengthscale) for name, _, lengthscale in EVERY_CASE} == set(product(LAYOUTS, LENGTHSCALES))
