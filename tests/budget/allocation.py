"""Problems that are planned and solved, and cases with numbers of workers."""

import numpy as np
import pytest

import cagp_dist as cagp

MIB = 2**20


def gaussian_problem(n, q, fields):
    rng = np.random.default_rng(0)
    shape = n if fields == 1 else (n, fields)
    return rng.uniform(size=(n, 3)), rng.normal(size=shape), rng.uniform(size=(q, 3))


def with_workers(cases: list[tuple], *numbers: int, turns: tuple[int, ...]) -> list:
    """Each case with one of the numbers of workers by ``turns``, and with the others at leisure."""
    found = []
    for number, case in enumerate(cases):
        for workers in numbers:
            marks = () if workers == turns[number % len(turns)] else pytest.mark.exhaustive
            found.append(pytest.param(*case, workers, marks=marks))
    return found


GRID = cagp.LatLonGrid(np.linspace(-85.0, 87.0, 60), 120)
