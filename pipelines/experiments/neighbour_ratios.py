"""Error bars from neighbours over the exact ones: by number of neighbours, groups and coarse means.

    python -m pipelines.experiments.neighbour_ratios [--quick] [--output FOLDER]

10,000 points, drawn uniformly on the sphere, are observed, 200 others predicted; Matern 3/2 of variance 1,
lengthscales from a quarter to six times the reach of 64 neighbours, noise variances from a thousandth to a
tenth. For each pair a dense Cholesky factor gives the exact standard deviations. The table has median, 99 %
quantile and largest ratio of the stated over the exact standard deviation at the targets, and the processor
time; nothing depends on values. Prints the table and writes it to ``neighbour-ratios.json``.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.runtime import single_threaded_blas
from pipelines.experiments.limits import Points
from pipelines.experiments.output import parser, print_table, save_rows

OBSERVED, PREDICTED = 10_000, 200
QUICK_OBSERVED, QUICK_PREDICTED = 600, 40
LENGTHSCALES, NOISE_VARIANCES = (0.04, 0.1, 0.3, 1.0), (0.001, 0.01, 0.1)

SOLVERS = {
    "k = 32": cagp.Neighbours(32),
    "k = 64": cagp.Neighbours(64),
    "k = 128": cagp.Neighbours(128),
    "k = 64, each by itself": cagp.Neighbours(64, group=1),
    "k = 64, 256 coarse": cagp.Neighbours(64, coarse=256),
    "k = 128, 256 coarse": cagp.Neighbours(128, coarse=256),
    "auto": cagp.Neighbours("auto"),
}


@dataclass(frozen=True)
class Row:
    """Ratios of one solver for one prior; ``taken`` is what the plan says of it."""

    lengthscale: float
    noise_variance: float
    solver: str
    taken: str
    median: float
    high: float
    largest: float
    processor_seconds: float


def rows(points: Points) -> Iterator[Row]:
    """Yield a row for each solver and prior."""
    y = np.zeros(len(points.observed))

    def solved(prior: cagp.Prior, solver: cagp.solvers.Solver) -> tuple[Array, str, float]:
        begun = time.process_time()
        found = cagp.condition(prior, points.observed, y, points.predicted, solver=solver)
        return np.sqrt(found.variance), found.stats.plan.method, time.process_time() - begun

    for solver in SOLVERS.values():  # compiled before it is measured
        solved(cagp.Prior(cagp.Matern32(0.1), 0.01), solver)
    for lengthscale in LENGTHSCALES:
        for noise_variance in NOISE_VARIANCES:
            prior = cagp.Prior(cagp.Matern32(lengthscale), noise_variance)
            exact, _, _ = solved(prior, cagp.Cholesky())
            for name, solver in SOLVERS.items():
                stated, taken, seconds = solved(prior, solver)
                ratio = stated / exact
                median, high = np.quantile(ratio, (0.5, 0.99))
                yield Row(
                    lengthscale,
                    noise_variance,
                    name,
                    taken,
                    float(median),
                    float(high),
                    float(ratio.max()),
                    seconds,
                )


def table(found: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """Yield a line for each prior, a column for each solver."""
    for lengthscale, noise in dict.fromkeys((row.lengthscale, row.noise_variance) for row in found):
        mine = [row for row in found if (row.lengthscale, row.noise_variance) == (lengthscale, noise)]
        cells = (f"{row.median:.3f}, {row.high:.3f}, {row.largest:.3f}" for row in mine)
        yield f"{lengthscale:g}", f"{noise:g}", *cells, mine[-1].taken


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare, print, write."""
    chosen = parser(__doc__).parse_args(arguments)
    n, q = (QUICK_OBSERVED, QUICK_PREDICTED) if chosen.quick else (OBSERVED, PREDICTED)
    points = Points.draw(np.random.default_rng(0), n, q, block=n)
    with single_threaded_blas():
        found = list(rows(points))
    print_table(("lengthscale", "noise variance", *SOLVERS, "auto took"), table(found))
    seconds = [
        (name, f"{np.median([row.processor_seconds for row in found if row.solver == name]):.2f}")
        for name in SOLVERS
    ]
    print_table(("solver", "processor seconds, median"), seconds)
    save_rows(chosen.output / "neighbour-ratios.json", [asdict(row) for row in found])


if __name__ == "__main__":
    main()
