"""Lists of cases in place of all combinations: values by turns, and every pair of values of two factors."""

from collections.abc import Mapping, Sequence
from itertools import product

import pytest


def pairwise(factors: Mapping[str, Sequence]) -> list[tuple]:
    """Combine the values of factors so that every two values of two factors occur together at least once.

    A mistake that shows for certain values of one or two factors, whatever the others are, is found as surely
    as by all combinations. The list grows factor by factor: each row takes the value that makes most new
    pairs, and pairs that are left get rows of their own (Lei & Tai 1998, "In-parameter-order").

    Parameters
    ----------
    factors : mapping of str to sequence
        Name of a factor -> its values, at least one each.

    Returns
    -------
    list of tuple
        Cases with a value for each factor, in the order of ``factors``; the same list for the same factors.
        At least as many as the two longest factors have combinations, and rarely many more.

    Examples
    --------
    >>> pairwise({"kernel": ["a", "b"], "columns": [1, 2], "whole": [False, True]})
    [('a', 1, False), ('b', 1, True), ('a', 2, True), ('b', 2, False)]
    """
    names = sorted(factors, key=lambda name: -len(factors[name]))
    sizes = [len(factors[name]) for name in names]
    if not sizes or 0 in sizes:
        raise ValueError("every factor needs at least one value")
    rows: list[list[int | None]] = [[value] for value in range(sizes[0])]
    for new in range(1, len(names)):
        left = {
            (old, value, added)
            for old in range(new)
            for value, added in product(range(sizes[old]), range(sizes[new]))
        }
        _extend(rows, left, sizes[new])
        _complete(rows, left, new)
    places = [names.index(name) for name in factors]
    whole = [
        [index % size if value is None else value for value, size in zip(row, sizes, strict=True)]
        for index, row in enumerate(rows)
    ]
    return [
        tuple(factors[name][row[place]] for name, place in zip(factors, places, strict=True)) for row in whole
    ]


def by_turns(factors: Mapping[str, Sequence], *, start: int = 0) -> list:
    """Make a case of each value of the longest factor, those of the others by turns from ``start`` on.

    The pairs of `pairwise` that are left out are cases of the exhaustive run.
    """
    longest = max(map(len, factors.values()))
    quick = [
        tuple(values[(row + start * (len(values) < longest)) % len(values)] for values in factors.values())
        for row in range(longest)
    ]
    left = [case for case in pairwise(factors) if not any(_same(case, other) for other in quick)]
    return [*quick, *(pytest.param(*case, marks=pytest.mark.exhaustive) for case in left)]


def _same(case: tuple, other: tuple) -> bool:
    return all(one is another for one, another in zip(case, other, strict=True))


def _extend(rows: list[list[int | None]], left: set[tuple[int, int, int]], size: int) -> None:
    """Give each row the value of the new factor that makes most new pairs; among equals the first."""

    def gain(row: list[int | None], value: int) -> int:
        return sum((old, there, value) in left for old, there in enumerate(row))

    for row in rows:
        best = max(range(size), key=lambda value: gain(row, value))
        left.difference_update([(old, there, best) for old, there in enumerate(row)])
        row.append(best)


def _complete(rows: list[list[int | None]], left: set[tuple[int, int, int]], new: int) -> None:
    """Place the pairs that are left in rows that are free there, or in new ones."""
    for old, value, added in sorted(left):
        free = (row for row in rows if row[new] == added and row[old] is None)
        row = next(free, None)
        if row is None:
            row = [None] * new + [added]
            rows.append(row)
        row[old] = value
