"""Measured cases of the bound of inducing points."""

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.runtime import ThreadExecutor
from pipelines.experiments import gpytorch_models
from pipelines.experiments.inducing import inducing_points
from pipelines.experiments.sgpr import Sgpr

Figures = dict[str, float]

POINTS, INDUCING, REPEATS = 16_384, 512, 5
KERNEL, NOISE_VARIANCE = cagp.Matern32((0.3, 0.3, 0.3)), 0.1


def sgpr() -> Figures:
    """One value and gradient of SGPR with 16,384 points of a cube and 512 inducing points, two threads.

    A lengthscale for each of the three coordinates; inducing points held, then learnt.
    """
    X, b = _data()
    start = time.perf_counter()
    Z = inducing_points(KERNEL, X, INDUCING)
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
            vector = bound.vector(KERNEL, NOISE_VARIANCE)
            value, _ = bound(vector)  # compiled
            figures[f"seconds_{name}"] = _median_seconds(lambda: bound(vector))  # noqa: B023
            figures[f"value_{name}"] = value
    return figures


def gpytorch() -> Figures:
    """Evaluate the same bound with GPyTorch, and take an epoch of its SVGP; no figures without GPyTorch."""
    if not gpytorch_models.available():
        print(gpytorch_models.MISSING, file=sys.stderr)
        return {}
    import torch

    torch.set_num_threads(2)
    X, b = _data()
    Z, start = inducing_points(KERNEL, X, INDUCING), (KERNEL, NOISE_VARIANCE)
    evaluate = gpytorch_models.sgpr(X, b[:, 0], start, inducing=Z)
    value = evaluate()
    epochs = [
        gpytorch_models.svgp(X, b[:, 0], X[:10], start, inducing=Z, epochs=1).seconds for _ in range(REPEATS)
    ]
    return {
        "seconds_sgpr": _median_seconds(evaluate),
        "value_sgpr": value,
        "seconds_svgp_epoch": statistics.median(epochs),
    }


def _data() -> tuple[Array, Array]:
    generator = np.random.default_rng(0)
    return generator.uniform(size=(POINTS, 3)), generator.standard_normal((POINTS, 1))


def _median_seconds(function: Callable[[], object]) -> float:
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)
