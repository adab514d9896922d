"""What an adapter reads and writes: NumPy and the standard library alone.

Called as ``python ADAPTER.py METHOD PROBLEM.npz ANSWER.npz``. The problem has all places of a table, and
splits of them; a method is given those of a split that are observed, fits what it fits, and predicts
observations at the others.
"""

import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Seen:
    """What a method knows of one split.

    Attributes
    ----------
    X, y, U : array, shape (n, 2), (n,), (n, k)
        Coordinates, values and covariates where it was observed.
    X_new, U_new : array, shape (q, 2), (q, k)
        The same of the places to predict.
    geographic : bool
        Whether coordinates are longitude and latitude in degrees.
    """

    X: Array
    y: Array
    U: Array
    X_new: Array
    U_new: Array
    geographic: bool


@dataclass(frozen=True, eq=False)
class Predicted:
    """Mean and standard deviation of observations (q,); draws of them (q, s) where they are not normal."""

    mean: Array
    std: Array
    draws: Array | None = None


Method = Callable[[Seen], Predicted]


def unit_vectors(degrees: Array) -> Array:
    """Points of the unit sphere (n, 3) of longitude and latitude (n, 2)."""
    longitude, latitude = np.radians(degrees).T
    return np.column_stack(
        [np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude)]
    )


ANGLES = range(0, 180, 15)  # degrees, of directions that are tried
FOLDS = 10


def squared_error(method: Method, seen: Seen) -> float:
    """Sum the squared errors of a method at observations of ten folds; infinity where a fit fails."""
    fold, found = np.arange(len(seen.y)) % FOLDS, 0.0
    for k in range(FOLDS):
        train, test = fold != k, fold == k
        part = Seen(seen.X[train], seen.y[train], seen.U[train], seen.X[test], seen.U[test], seen.geographic)
        try:
            found += float(np.sum((method(part).mean - seen.y[test]) ** 2))
        except RuntimeError:
            return np.inf
    return found


def serve(methods: Mapping[str, Method]) -> None:
    """Run the method that the command line names on every split."""
    name, problem, answer = sys.argv[1:]
    with np.load(problem) as stored:
        X, y, U, observed, wanted = (stored[key] for key in ("X", "y", "U", "observed", "wanted"))
        geographic = bool(stored["geographic"])
    began, worked = time.perf_counter(), time.process_time()
    found = [
        methods[name](Seen(X[seen], y[seen], U[seen], X[new], U[new], geographic))
        for seen, new in zip(observed, wanted, strict=True)
    ]
    seconds, worked = time.perf_counter() - began, time.process_time() - worked
    written = {
        "mean": np.concatenate([each.mean for each in found]),
        "std": np.concatenate([each.std for each in found]),
        "seconds": np.float64(seconds),
        "processor_seconds": np.float64(worked),
        "peak_mebibytes": np.float64(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    if found[0].draws is not None:
        written["draws"] = np.concatenate([each.draws for each in found if each.draws is not None])
    np.savez(answer, **written)
