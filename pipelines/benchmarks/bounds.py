"""Measured cases of the lower bound of the likelihood that block-sparse actions give."""

import statistics
from collections.abc import Callable

import numpy as np
import threadpoolctl

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.likelihood.learned.elbo import Elbo
from cagp_dist.likelihood.learned.projected_data import ProjectedData
from cagp_dist.runtime import ThreadExecutor
from cagp_dist.solvers.actions.block_sparse import BlockLayout
from pipelines.benchmarks import reference
from pipelines.benchmarks.measuring import Figures, exponents, named, timed

POINTS, MOST_POINTS, ACTIONS, THREADS = 16_384, 114_720, 512, 2
LENGTHSCALES, NOISE_VARIANCE = (0.3, 0.4, 0.5), 0.1
LIMIT_BYTES = 3 * 2**30


def elbo() -> Figures:
    """Evaluate value and gradient with 16,384 points of a cube and 512 actions, by three lengthscales.

    Two threads; the lengthscales are so long that no tile can be left out.
    """
    with ThreadExecutor(THREADS) as executor:
        bound, vector = _problem(POINTS, executor)
        value, gradient = bound(vector)  # compiled
        figures = _timed(lambda: bound(vector), repeats=5)
    return {**figures, "value": value, "gradient_length": float(np.linalg.norm(gradient))}


def elbo_dense() -> Figures:
    """Evaluate the same with NumPy and SciPy, all of the matrix stored, with two threads of BLAS."""
    X, b, layout = _data(POINTS)
    values, room = layout.draw(0)[layout.order], np.empty((3, POINTS, POINTS))

    def evaluate() -> tuple[float, Array]:
        return reference.elbo(
            X[layout.order],
            b[layout.order, 0],
            values,
            layout.block_of,
            lengthscales=np.array(LENGTHSCALES),
            variance=1.0,
            noise_variance=NOISE_VARIANCE,
            room=room,
        )

    with threadpoolctl.threadpool_limits(THREADS):
        value, gradient = evaluate()
        figures = _timed(evaluate, repeats=2)
    return {**figures, "value": value, "gradient_length": float(np.linalg.norm(gradient))}


def elbo_large() -> Figures:
    """Evaluate it with 114,720 points, and with a half and a quarter of them: how its time grows."""
    figures: list[Figures] = []
    sizes = [MOST_POINTS // 4, MOST_POINTS // 2, MOST_POINTS]
    with ThreadExecutor(THREADS) as executor:
        bound, vector = _problem(4096, executor)
        bound(vector)  # compiled
        for n in sizes:
            bound, vector = _problem(n, executor)
            figures.append(timed(lambda: bound(vector))[0])  # noqa: B023
    of_sizes = [named(each, str(n)) for n, each in zip(sizes, figures, strict=True)]
    return {name: value for each in of_sizes for name, value in each.items()} | exponents(sizes, figures)


def _data(n: int) -> tuple[Array, Array, BlockLayout]:
    generator = np.random.default_rng(0)
    X, b = generator.uniform(size=(n, 3)), generator.standard_normal((n, 1))
    return X, b, BlockLayout.of(X, ACTIONS)


def _problem(n: int, executor: ThreadExecutor) -> tuple[Elbo, Array]:
    X, b, layout = _data(n)
    data = ProjectedData(
        cagp.Matern32,
        X,
        b,
        layout=layout,
        executor=executor,
        memory_limit_bytes=LIMIT_BYTES,
        anisotropic=True,
    )
    return Elbo(data), np.concatenate([np.log([*LENGTHSCALES, 1.0, NOISE_VARIANCE]), layout.draw(0)])


def _timed(function: Callable[[], object], *, repeats: int) -> Figures:
    """Median seconds, and median seconds of all processors together."""
    found = [timed(function)[0] for _ in range(repeats)]
    return {name: statistics.median(each[name] for each in found) for name in found[0]}
