"""Pairwise lists hold every pair, only values that were given, and few cases."""

from itertools import combinations, product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .grids import LAYOUTS, LENGTHSCALES
from .oracle import KERNELS
from .pairwise import by_turns, pairwise

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


def test_values_by_turns_are_all_met_and_every_pair_at_leisure():
    factors = {"name": list(LAYOUTS), "kernel_class": KERNELS, "lengthscale": LENGTHSCALES}
    for start in (0, 1):
        cases = by_turns(factors, start=start)
        quick = [case for case in cases if isinstance(case, tuple) and not hasattr(case, "marks")]
        assert len(quick) == len(LAYOUTS)
        for column, values in zip(zip(*quick, strict=True), factors.values(), strict=True):
            assert set(column) == set(values)
        left = [case for case in cases if hasattr(case, "marks")]
        assert all([mark.name for mark in case.marks] == ["exhaustive"] for case in left)
        both = {*quick, *(case.values for case in left)}
        assert len(both) == len(cases)
        assert both >= set(pairwise(factors))
