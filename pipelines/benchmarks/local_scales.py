"""Measured cases of the scale of error bars that is learnt from errors near by."""

import time

import numpy as np

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.calibration.recalibration.local_scale import LocalScale
from cagp_dist.calibration.verification.strata import surface_terms
from cagp_dist.predictive import Gaussian
from pipelines.benchmarks.measuring import Figures, on_sphere


def _seconds_and_error(X: Array) -> tuple[float, float, float]:
    """Seconds to learn from errors at X, seconds for the scale at all of them, and its relative error."""
    generator = np.random.default_rng(0)
    scale = np.exp(0.8 * X[:, 2])
    distribution = Gaussian(np.zeros(len(X)), 1.0)
    errors = scale * generator.standard_normal(len(X))
    start = time.perf_counter()
    fitted = LocalScale(terms=surface_terms).fit(distribution, errors, X)
    learnt = time.perf_counter()
    found = fitted.scale(distribution, X)
    seconds = time.perf_counter() - learnt
    return learnt - start, seconds, float(np.sqrt(np.mean((found / scale - 1.0) ** 2)))


def local_scale() -> Figures:
    """Learn a scale and state it everywhere: from 10,000 scattered errors, and from all of 721 x 1440."""
    points = on_sphere(10_000, seed=1)
    _seconds_and_error(points)  # modules are loaded
    learn, state, error = _seconds_and_error(points)
    grid = cagp.LatLonGrid(np.linspace(-90.0, 90.0, 721), 1440)
    before = time.process_time()
    learn_grid, state_grid, error_grid = _seconds_and_error(grid.points)
    processor = time.process_time() - before
    return {
        "seconds_10000": learn + state,
        "relative_error_10000": error,
        "seconds_grid_learnt": learn_grid,
        "seconds_grid": learn_grid + state_grid,
        "processor_seconds_grid": processor,
        "relative_error_grid": error_grid,
    }
