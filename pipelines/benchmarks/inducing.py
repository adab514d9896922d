"""Measured cases of the bound of inducing points."""

import statistics
import time

import numpy as np

import cagp_dist as cagp
from cagp_dist.likelihood.inducing import inducing_points
from cagp_dist.likelihood.sgpr import Sgpr
from cagp_dist.runtime import ThreadExecutor

Figures = dict[str, float]

POINTS, INDUCING, REPEATS = 16_384, 512, 5


def sgpr() -> Figures:
    """One value and gradient of SGPR with 16,384 points of a cube and 512 inducing points, two threads.

    A lengthscale for each of the three coordinates; inducing points held, then learnt.
    """
    generator = np.random.default_rng(0)
    X, b = generator.uniform(size=(POINTS, 3)), generator.standard_normal((POINTS, 1))
    kernel = cagp.Matern32((0.3, 0.3, 0.3))
    start = time.perf_counter()
    Z = inducing_points(kernel, X, INDUCING)
    figures: Figures = {"seconds_placement": time.perf_counter() - start}
    with ThreadExecutor(2) as executor:
        for name, learn_inducing in (("held", False), ("learnt", True)):
            bound = Sgpr(
                cagp.Matern32,
                X,
                b,
                inducing=Z,
                learn_inducing=learn_inducing,
                executor=executor,
                memory_limit_bytes=2**30,
                anisotropic=True,
            )
            vector = bound.vector(kernel, 0.1)
            value, _ = bound(vector)  # compiled
            seconds = []
            for _ in range(REPEATS):
                start = time.perf_counter()
                bound(vector)
                seconds.append(time.perf_counter() - start)
            figures[f"seconds_{name}"] = statistics.median(seconds)
            figures[f"value_{name}"] = value
    return figures
