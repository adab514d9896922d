"""What an adapter reads, measures and writes: NumPy and the standard library alone.

Every adapter imports this file from the folder it lies in, under the interpreter of its own environment, and
ends with ``serve(...)``. Called as

    python ADAPTER.py METHOD CHECK.npz PROBLEM.npz ANSWER.json

it first does the small problem, which also pays for compilers and lazy imports, and then the one that is
measured; a quick one up to three times, of which the fastest counts. The last line of its standard error is
what the suite reports when it fails.
"""

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

PHASES = ("build", "solve", "predict")

QUICK_SECONDS = 3.0
REPEATS = 3


@dataclass(frozen=True, eq=False)
class Problem:
    """Observations with zero prior mean, and the Matern-3/2 prior on the chord of the unit sphere.

    ``k(r) = variance (1 + sqrt(3) r / lengthscale) exp(-sqrt(3) r / lengthscale)``, observed with independent
    noise of variance ``noise_variance``.

    Attributes
    ----------
    X, y, X_test : arrays of float64, shape (n, 3), (n,) and (q, 3)
        Unit vectors and observed values.
    lengthscale, variance, noise_variance : float
        The prior; for a fit, where it starts.
    threads : int
        How many threads may work.
    latitude_degrees : array of float64, shape (P,)
        Rings of the grid that X and X_test make up together; empty where they make up none.
    observed : array of bool, shape (P, Q)
        Which points of the grid are X, row by row; all others are X_test, row by row.
    """

    X: Array
    y: Array
    X_test: Array
    lengthscale: float
    variance: float
    noise_variance: float
    threads: int
    latitude_degrees: Array
    observed: NDArray[np.bool_]

    def save(self, path: Path) -> None:
        """Write to an ``.npz`` file."""
        np.savez(path, **{name: np.asarray(value) for name, value in vars(self).items()})

    @classmethod
    def load(cls, path: str) -> "Problem":
        """Read what `save` wrote."""
        with np.load(path) as stored:
            return cls(**{name: stored[name][()] for name in stored.files})


@dataclass(frozen=True)
class Prediction:
    """Gaussian prediction of *observations* at X_test: mean, and standard deviation with noise, each (q,)."""

    mean: Array
    std: Array


@dataclass(frozen=True)
class Fit:
    """Hyperparameters that a peer chose, and how often it evaluated its objective (0: not told)."""

    lengthscale: float
    variance: float
    noise_variance: float
    evaluations: int


class Clock:
    """Seconds of each phase of a run, ``with clock("solve"): ...``, and of all processors together.

    Processor seconds are those of this process and its threads: what a program takes on a machine that
    others use, too. Those of other processes that it starts are missing.
    """

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.processor_seconds = 0.0

    @property
    def total(self) -> float:
        """Seconds of all phases."""
        return sum(self.seconds.values())

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Add the time of the block to a phase."""
        start, worked = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.seconds[phase] += time.perf_counter() - start
            self.processor_seconds += time.process_time() - worked


Method = Callable[[Problem, Clock], Prediction | Fit]


def serve(methods: Mapping[str, Method]) -> None:
    """Run the method named on the command line on both problems and write the answer as JSON."""
    name, check, problem, answer = sys.argv[1:]
    document = {
        "check": _measured(methods[name], Problem.load(check)),
        "result": _measured(methods[name], Problem.load(problem)),
        "peak_mebibytes": peak_mebibytes(),
    }
    Path(answer).write_text(json.dumps(document))


def peak_mebibytes() -> float:
    """Most memory that this process held, libraries included.

    From the kernel's high-water mark where there is one: ``ru_maxrss`` also counts the process that
    started this one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return float(fields["VmHWM"].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def _measured(method: Method, problem: Problem) -> dict[str, object]:
    fastest = None
    for _ in range(REPEATS):
        clock = Clock()
        answer = method(problem, clock)
        if fastest is None or clock.total < fastest.total:
            fastest = clock
        if clock.total > QUICK_SECONDS:
            break
    values = {name: np.asarray(value).tolist() for name, value in asdict(answer).items()}
    return {**values, "seconds": fastest.seconds, "processor_seconds": fastest.processor_seconds}
