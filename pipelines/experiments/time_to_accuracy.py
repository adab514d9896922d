"""Time to accuracy: Gauss-Seidel, conjugate gradients and a subset of the data, as published and above.

    python -m pipelines.experiments.time_to_accuracy [--quick] [--output FOLDER] [--fields COUNT]

Points drawn uniformly in the unit square, 25 others predicted, Matern 3/2 with lengthscale 0.2 and variance
1, noise variance 0.01: 100 points as published, and 2,000. Twenty fields, or as many as asked for, are drawn
from the prior. Solvers have the points as drawn, as published; Gauss-Seidel is run in k-d order as well, and
its blocks are cells of that order. A solver is run anew for every number of iterations, or of points of the
subset, and timed: seconds of one core, from the data to means and error bars of one field, the fastest of
five. RMSE is that of the mean about the latent field, NLL that of a new observation, expected over its noise.
Draws ``time-to-accuracy.png``, prints tables and writes ``time-to-accuracy.zarr``.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import xarray as xr

import cagp_dist as cagp
from cagp_dist.calibration.simulation.beliefs import SimulatedFields
from cagp_dist.calibration.simulation.field_draws import draw
from cagp_dist.runtime import SerialExecutor
from cagp_dist.solvers import Solver
from pipelines.experiments.output import COLOURS, drawn, fields_asked, parser, print_table, save

SEED = 17
SIZES, QUICK_SIZES = (100, 2000), (40,)
TARGETS, FIELDS, REPEATS, NOISE_VARIANCE, BLOCKS = 25, 20, 5, 0.01, 8
PRIOR = cagp.Prior(cagp.Matern32(0.2), NOISE_VARIANCE)
TICKS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0)
IN_CELLS = "Gauss-Seidel, k-d order"
STYLES = {**COLOURS, IN_CELLS: "#9aa5b1", "subset of the data": "#8a63b5"}


@dataclass(frozen=True)
class Row:
    """What a run took and reached.

    Attributes
    ----------
    solver : str
    number : int
        Iterations, or points of the subset.
    seconds : float
        Of one core.
    rmse, nll : float
        Means over fields.
    """

    solver: str
    number: int
    seconds: float
    rmse: float
    nll: float


def cases(n: int) -> Iterator[tuple[str, int, Solver]]:
    """Solvers with the numbers that are tried for n points."""
    for name in ("Gauss-Seidel", IN_CELLS):
        for m in (1, 2, 5, 10, 20):
            yield name, m, cagp.GaussSeidel(m)
    for m in (1, 2, 5):
        yield "block Gauss-Seidel", m, cagp.BlockGaussSeidel(m, block_size=-(-n // BLOCKS))
    for m in (2, 5, 10, 20, 40):
        yield "conjugate gradients", m, cagp.ConjugateGradient(m)
    for part in (0.05, 0.1, 0.2, 0.4, 0.8):
        yield "subset of the data", round(part * n), cagp.SubsetOfData(round(part * n))
    yield "exact", n, cagp.Cholesky()


def measured(fields: SimulatedFields, solver: Solver) -> tuple[float, float, float]:
    """Seconds for one field, and RMSE and NLL over all of them."""
    executor, X, y = SerialExecutor(), fields.X, fields.y

    def solved(values: np.ndarray) -> cagp.Posterior:
        return cagp.condition(PRIOR, X, values, fields.X_test, solver=solver, executor=executor)

    seconds = []
    for _ in range(REPEATS):
        started = time.process_time()
        solved(y[:, 0])
        seconds.append(time.process_time() - started)
    posteriors = [solved(y)] if solver.many_fields else [solved(values) for values in y.T]
    error = np.column_stack([each.mean for each in posteriors]) - fields.latent
    spread = np.column_stack([each.variance for each in posteriors]) + NOISE_VARIANCE
    nll = 0.5 * (np.log(2.0 * np.pi * spread) + (error**2 + NOISE_VARIANCE) / spread)
    return min(seconds), float(np.sqrt((error**2).mean(axis=0)).mean()), float(nll.mean())


def compare(n: int, *, fields: int) -> list[Row]:
    """Draw points and fields, and run every case."""
    generator = np.random.default_rng(SEED)
    X, X_test = generator.uniform(size=(n, 2)), generator.uniform(size=(TARGETS, 2))
    seen = draw(PRIOR, X, X_test, simulations=fields, generator=generator).fields
    order = cagp.space_filling_order(X, block_size=-(-n // BLOCKS))
    in_cells = replace(seen, X=X[order], y=seen.y[order])
    return [
        Row(name, number, *measured(in_cells if name in (IN_CELLS, "block Gauss-Seidel") else seen, solver))
        for name, number, solver in cases(n)
    ]


def table(rows: Sequence[Row]) -> Iterator[Sequence[str]]:
    """Lines of a table."""
    for row in rows:
        milliseconds = f"{1000.0 * row.seconds:.1f}"
        yield row.solver, f"{row.number:,}", milliseconds, f"{row.rmse:.3f}", f"{row.nll:.3f}"


def draw_rows(path: Path, found: Mapping[int, Sequence[Row]]) -> None:
    """Draw both scores against seconds."""
    with drawn(path, height_inches=4.8) as figure:
        panels = figure.subplots(2, len(found), squeeze=False, sharex="col")
        for column, (n, rows) in zip(panels.T, found.items(), strict=True):
            column[0].set_title(f"{n:,} points", loc="left", fontsize=9)
            column[1].set_xlabel("milliseconds of one core")
            for axes, score in zip(column, ("rmse", "nll"), strict=True):
                for name in dict.fromkeys(row.solver for row in rows):
                    own = [row for row in rows if row.solver == name]
                    axes.plot(
                        [1000.0 * row.seconds for row in own],
                        [getattr(row, score) for row in own],
                        color=STYLES[name],
                        marker=".",
                        label=name,
                    )
                axes.set_xscale("log")
            low, high = column[1].get_xlim()
            ticks = [tick for tick in TICKS if low < tick < high]
            column[1].set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            column[1].set_xticks([], minor=True)
        panels[0, 0].set_ylabel("RMSE")
        panels[1, 0].set_ylabel("negative log likelihood")
        figure.legend(
            *panels[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False
        )


def results(found: Mapping[int, Sequence[Row]]) -> xr.Dataset:
    """All rows, size by run."""
    rows = next(iter(found.values()))
    return xr.Dataset(
        {
            name: (("points", "run"), [[getattr(row, name) for row in each] for each in found.values()])
            for name in ("number", "seconds", "rmse", "nll")
        },
        coords={
            "points": list(found),
            "solver": ("run", np.array([row.solver for row in rows], dtype=object)),
        },
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run every case at every size, print, draw and save."""
    chosen = parser(__doc__, fields=FIELDS, quick_fields=3).parse_args(arguments)
    sizes, fields = QUICK_SIZES if chosen.quick else SIZES, fields_asked(chosen)
    compare(40, fields=2)  # nothing is loaded or compiled while it is timed
    found = {n: compare(n, fields=fields) for n in sizes}
    for n, rows in found.items():
        print(f"{n:,} points\n")
        print_table(("solver", "iterations or points", "milliseconds", "RMSE", "NLL"), table(rows))
    draw_rows(chosen.output / "time-to-accuracy.png", found)
    save(chosen.output / "time-to-accuracy.zarr", results(found))


if __name__ == "__main__":
    main()
