"""The likelihoods that run on executors give the same bits on each."""

from contextlib import nullcontext

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.likelihood.exact.gappy_ring_likelihood import MaskedRingLikelihood
from cagp_dist.likelihood.exact.ring_likelihood import RingLikelihood
from cagp_dist.likelihood.numbering import Model
from cagp_dist.likelihood.vecchia.vecchia_likelihood import VecchiaLikelihood
from cagp_dist.runtime import SerialExecutor, ThreadExecutor
from cagp_dist.runtime.dask import DaskExecutor

GRID = cagp.LatLonGrid(np.linspace(-85.0, 85.0, 18), 36)
FIELDS = np.random.default_rng(0).normal(size=(2, *GRID.shape))
LIMIT = 2**30


@pytest.fixture(
    scope="module",
    params=["one-thread", "three-threads", pytest.param("dask", marks=pytest.mark.cluster)],
)
def executor(request):
    openers = {
        "one-thread": lambda: ThreadExecutor(1),
        "three-threads": lambda: ThreadExecutor(3),
        "dask": lambda: nullcontext(DaskExecutor(request.getfixturevalue("two_dask_workers"))),
    }
    with openers[request.param]() as opened:
        yield opened


def numbers(likelihood, *lengthscales):
    """Of two evaluations, the second of which begins where the first ended."""
    found = [likelihood.evaluate(*lengthscales, ratio) for ratio in (0.1, 0.12)]
    return [[e.log_determinant, e.quadratic, *e.traces, *e.slopes] for e in found]


def rings(executor):
    return RingLikelihood(cagp.Matern32, GRID, FIELDS, executor=executor, memory_limit_bytes=LIMIT)


def rings_with_gaps(executor):
    missing = np.random.default_rng(1).random(GRID.shape) < 0.1
    return MaskedRingLikelihood(
        cagp.Matern32, GRID, FIELDS, missing, executor=executor, memory_limit_bytes=LIMIT
    )


def vecchia(executor, model=cagp.Matern32, X=GRID.points):
    columns = np.ascontiguousarray(FIELDS.reshape(2, -1).T)
    return VecchiaLikelihood(model, X, columns, executor=executor, memory_limit_bytes=LIMIT)


def by_coordinate(executor):
    return vecchia(executor, Model((cagp.Matern32,), 3), GRID.points * [1.0, 1.0, 2.0])


@pytest.mark.parametrize(
    ("make", "lengthscales"),
    [
        (rings, [0.3]),
        (rings_with_gaps, [0.3]),
        (vecchia, [0.3]),
        pytest.param(by_coordinate, [0.3, 0.5, 0.2], marks=pytest.mark.exhaustive),
    ],
)
def test_bits_do_not_depend_on_the_executor(executor, make, lengthscales, monkeypatch):
    monkeypatch.setattr("cagp_dist.likelihood.vecchia.vecchia_likelihood.TASK_GROUPS", 5)
    assert numbers(make(executor), *lengthscales) == numbers(make(SerialExecutor()), *lengthscales)
