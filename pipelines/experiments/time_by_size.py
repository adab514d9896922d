"""Seconds of Gauss-Seidel and conjugate gradients by iterations, points and targets.

    python -m pipelines.experiments.time_by_size [--quick]

Figure S4 of [Hegde et al. 2025]. Points drawn uniformly on the sphere, in k-d order; Matern 3/2 with a
lengthscale of 0.041 chords and variance 1, noise variance 0.02. One of three numbers grows while the other
two stay: iterations m, observed points d and targets q. Processor seconds on one thread, the faster of two
runs, from the data to means and error bars. Prints a table.
"""

import time
from collections.abc import Iterator, Sequence

import numpy as np

import cagp_dist as cagp
from cagp_dist.runtime import SerialExecutor, single_threaded_blas
from cagp_dist.solvers import Solver
from pipelines.experiments.limits import Points
from pipelines.experiments.output import parser, print_table

SEED, REPEATS = 5, 2
PRIOR = cagp.Prior(cagp.Matern32(0.041), 0.02)
"""About what maximum likelihood gives for temperature, in units of its variance."""

ITERATIONS, POINTS, TARGETS = (5, 10, 20, 40), (1000, 2000, 4000, 8000), (1, 25, 100, 400)
QUICK_ITERATIONS, QUICK_POINTS, QUICK_TARGETS = (2, 4), (60, 120), (1, 5)
STAY = (2, 2, 1)
"""Which of iterations, points and targets stay while another number grows."""


def solvers(iterations: int) -> dict[str, Solver]:
    """Name what is timed."""
    return {
        "Gauss-Seidel": cagp.GaussSeidel(iterations),
        "block Gauss-Seidel": cagp.BlockGaussSeidel(iterations),
        "conjugate gradients": cagp.ConjugateGradient(iterations),
    }


def seconds(m: int, d: int, q: int) -> dict[str, float]:
    """Processor seconds of every solver."""
    generator = np.random.default_rng(SEED)
    points = Points.draw(generator, d, q, block=1024)
    y, found = generator.standard_normal(d), {}
    for name, solver in solvers(m).items():
        each = []
        for _ in range(REPEATS):
            begun = time.process_time()
            cagp.condition(
                PRIOR, points.observed, y, points.predicted, solver=solver, executor=SerialExecutor()
            )
            each.append(time.process_time() - begun)
        found[name] = min(each)
    return found


def cases(
    iterations: Sequence[int], points: Sequence[int], targets: Sequence[int]
) -> Iterator[tuple[str, int, int, int]]:
    """Yield what grows, and the three numbers."""
    m, d, q = (
        row[min(place, len(row) - 1)] for row, place in zip((iterations, points, targets), STAY, strict=True)
    )
    for each in iterations:
        yield "m", each, d, q
    for each in points:
        yield "d", m, each, q
    for each in targets:
        yield "q", m, d, each


def main(arguments: Sequence[str] | None = None) -> None:
    """Time and print."""
    quick = parser(__doc__).parse_args(arguments).quick
    rows = (QUICK_ITERATIONS, QUICK_POINTS, QUICK_TARGETS) if quick else (ITERATIONS, POINTS, TARGETS)
    with single_threaded_blas():
        seconds(2, 60, 2)  # nothing is loaded or compiled while it is timed
        lines = [
            (grows, f"{m}", f"{d:,}", f"{q}", *(f"{value:.3f}" for value in seconds(m, d, q).values()))
            for grows, m, d, q in cases(*rows)
        ]
    print_table(("grows", "m", "d", "q", *solvers(1)), lines)


if __name__ == "__main__":
    main()
