"""Problems that are planned and solved, and cases with numbers of workers."""

from collections.abc import Callable, Hashable

import numpy as np
import pytest

import cagp_dist as cagp

MIB = 2**20


def gaussian_problem(n, q, fields):
    rng = np.random.default_rng(0)
    shape = n if fields == 1 else (n, fields)
    return rng.uniform(size=(n, 3)), rng.normal(size=shape), rng.uniform(size=(q, 3))


def with_workers(
    cases: list[tuple], *numbers: int, turns: tuple[int, ...], kind: Callable[[tuple], Hashable]
) -> list:
    """The first case of each kind with one of the numbers of workers by ``turns``; the rest at leisure."""
    found, seen = [], set()
    for case in cases:
        first = kind(case) not in seen
        turn = turns[len(seen) % len(turns)]
        seen.add(kind(case))
        for workers in numbers:
            marks = () if first and workers == turn else pytest.mark.exhaustive
            found.append(pytest.param(*case, workers, marks=marks))
    return found


GRID = cagp.LatLonGrid(np.linspace(-85.0, 87.0, 60), 120)
