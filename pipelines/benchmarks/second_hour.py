"""The measured case of weights that are kept: the same points with other data."""

import tempfile
import time
from pathlib import Path

import numpy as np

import cagp_dist as cagp
from cagp_dist.store.memo import FolderMemo
from pipelines.benchmarks.maps import PRIOR, SOLVER, observed
from pipelines.benchmarks.measuring import Figures, on_sphere

REPEATS = 5


def second_hour() -> Figures:
    """4,000 points, 1,000 targets, m = 5: the first hour, each further one, and a full solve of that."""
    X, y = observed(4_000)
    targets = on_sphere(1_000, seed=1)
    other = np.random.default_rng(2).standard_normal(len(X))
    cagp.condition(PRIOR, X[:2000], y[:2000], targets[:50], solver=SOLVER)  # compiled before it is measured
    figures: Figures = {}
    with tempfile.TemporaryDirectory(prefix="cagp-") as folder:
        kept = FolderMemo(Path(folder))
        for name, prior in (("known", PRIOR), ("estimated", _with_mean())):
            start = time.perf_counter()
            cagp.condition(prior, X, y, targets, solver=SOLVER, weights=kept)
            first = time.perf_counter() - start
            seconds = []
            for _ in range(REPEATS):
                start = time.perf_counter()
                second = cagp.condition(prior, X, other, targets, solver=SOLVER, weights=kept)
                seconds.append(time.perf_counter() - start)
            start = time.perf_counter()
            whole = cagp.condition(prior, X, other, targets, solver=SOLVER)
            solve = time.perf_counter() - start
            figures |= {
                f"seconds_first_{name}": first,
                f"seconds_further_{name}": float(np.median(seconds)),
                f"seconds_solve_{name}": solve,
                f"part_{name}": float(np.median(seconds)) / first,
                f"difference_{name}": max(
                    _difference(second.mean, whole.mean), _difference(second.variance, whole.variance)
                ),
            }
    return figures


def _with_mean() -> cagp.Prior:
    """Give the prior a mean whose coefficients are estimated."""
    return cagp.Prior(PRIOR.kernel, PRIOR.noise_number, mean=cagp.mean_family("quadratic-latitude"))


def _difference(found: np.ndarray, expected: np.ndarray) -> float:
    """Largest difference, as a part of the largest value."""
    return float(abs(found - expected).max() / abs(expected).max())
