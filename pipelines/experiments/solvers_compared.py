"""Every registered solver of scattered points on one problem: work, memory, accuracy and error bars.

    python -m pipelines.experiments.solvers_compared [--quick] [--output FOLDER]

4,096 points, uniform on the sphere and in k-d order, are observed, 200 others predicted; Matern 3/2, variance
22 K^2, noise variance 0.5 K^2. 40 fields (of which solvers that take one at a time get five) are drawn from
the prior for a lengthscale far below the width of a block of 512 points, 0.2, and one near it, 1. Solvers go
through five iterations, those by actions through 80. For each::

    products   flops of the plan over 2 n^2: products of G with one column, for means and error bars
    time       seconds of one core over those of block Gauss-Seidel
    memory     that the plan foresees
    distance   rms of mean - exact mean, over the rms of the exact standard deviations
    bars       stated over exact standard deviation, median of the points
    actual / stated    rms distance over what is stated for it; 1 if calibrated, up to chance

Prints two tables and writes ``solvers-compared.zarr``.
"""

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import xarray as xr

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.runtime import SerialExecutor
from cagp_dist.solvers import Solver
from cagp_dist.solvers.registry import SOLVERS
from cagp_dist.text import bytes_text
from pipelines.experiments.limits import Points, draw_fields, prior_of
from pipelines.experiments.output import parser, print_table, save

SEED = 11
OBSERVED, PREDICTED, BLOCK = 4096, 200, 512
FIELDS, FIELDS_ONE_BY_ONE = 40, 5
LENGTHSCALES = (0.2, 1.0)
SWEEPS, ACTIONS = 5, 80
REFERENCE = "block-gauss-seidel"
BY_ACTIONS = (
    "conjugate-gradient",
    "random-actions",
    "unit-vectors",
    "subset-of-data",
    "pseudo-inputs",
    "eigenvectors",
    "krylov-actions",
    "mixed-actions",
)


@dataclasses.dataclass(frozen=True)
class Row:
    """What a solver took and reached.

    Attributes
    ----------
    iterations : str
        What it was asked for.
    calibrated : str
        What it says of its error bars.
    products : float
        Flops of the plan over 2 n^2.
    seconds : float
        Of one core; of a solver that takes one field at a time, of one field.
    peak_bytes : int
        Of the plan.
    distance : float
        From the exact mean, in exact standard deviations.
    bars : float
        Stated over exact standard deviation.
    actual_over_stated : float
        Rms distance from the exact mean over the root of the mean of variance minus exact variance; 1 if
        calibrated, up to chance, NaN where both are rounding.
    """

    iterations: str
    calibrated: str
    products: float
    seconds: float
    peak_bytes: int
    distance: float
    bars: float
    actual_over_stated: float


def solvers(*, points: int, block: int) -> dict[str, Solver]:
    """Every registered solver of scattered points, with the settings of the experiment."""
    changes = {"iterations": SWEEPS, "block_size": block, "coarse": min(256, block)}
    by_name: dict[str, dict[str, object]] = {
        **{name: {"iterations": ACTIONS} for name in BY_ACTIONS},
        "subset-of-data": {"points": points // 8},
        "hybrid": {"parts": "block-gauss-seidel 2, conjugate-gradient 20"},
        "mixed-actions": {"parts": "unit-vectors 60, random-actions 20"},
        "sor": {"relaxation": 1.5},
        "ssor": {"relaxation": 1.0},
    }
    made: dict[str, Solver] = {}
    for name, kind in SOLVERS.items():
        if kind.needs_grid:
            continue
        settings = {}
        for field in dataclasses.fields(kind):  # type: ignore[arg-type]
            wanted = by_name.get(name, {}).get(field.name, changes.get(field.name))
            if wanted is not None:
                settings[field.name] = wanted
            elif field.default is dataclasses.MISSING:
                settings[field.name] = field.metadata["example"]
        made[name] = kind(**settings)
    low_rank = {"preconditioner": "nystrom", "preconditioner_size": min(256, block)}
    blocks = {"preconditioner": "block-gauss-seidel", "preconditioner_size": block}
    made["chebyshev, Nystrom"] = cagp.Chebyshev(SWEEPS, **low_rank)
    made["conjugate-gradient, Nystrom"] = cagp.ConjugateGradient(20, **low_rank)
    made["conjugate-gradient, blocks"] = cagp.ConjugateGradient(20, **blocks)
    return made


def measured(points: Points, prior: cagp.Prior, fields: Array, solver: Solver, exact: cagp.Posterior) -> Row:
    """Solve for fields (n, T) of which the exact posterior is known, one by one where a solver must."""
    executor, seconds, found, exact_mean = SerialExecutor(), [], [], exact.mean
    if not solver.many_fields:
        fields, exact_mean = fields[:, :FIELDS_ONE_BY_ONE], exact_mean[:, :FIELDS_ONE_BY_ONE]
    for y in fields[None] if solver.many_fields else fields.T:
        started = time.process_time()
        found.append(
            cagp.condition(prior, points.observed, y, points.predicted, solver=solver, executor=executor)
        )
        seconds.append(time.process_time() - started)
    mean = np.column_stack([posterior.mean for posterior in found])
    variance = np.column_stack([posterior.variance for posterior in found])
    actual = np.sqrt(np.mean((mean - exact_mean) ** 2))
    stated = np.sqrt(max(0.0, np.mean(variance - exact.variance[:, None])))
    plan = found[0].stats.plan
    return Row(
        _iterations(solver),
        solver.calibrated,
        plan.flops / (2.0 * plan.n**2),
        float(np.median(seconds)),
        plan.peak_bytes,
        float(actual / np.sqrt(np.mean(exact.variance))),
        float(np.median(np.sqrt(variance / exact.variance[:, None]))),
        float(actual / stated) if stated > 1e-6 * np.sqrt(prior.kernel.variance) else float("nan"),
    )


def _iterations(solver: Solver) -> str:
    """Write iterations, of a solver of several parts those of each."""
    parts = getattr(solver, "parts", None)
    if isinstance(parts, tuple):
        return " + ".join(map(_iterations, parts))
    return str(solver.iterations)


def closest_first(found: Mapping[float, Mapping[str, Row]]) -> list[str]:
    """Solvers, the ones closest to the exact mean at all lengthscales first."""
    return sorted(
        next(iter(found.values())),
        key=lambda name: np.prod([1e-3 + rows[name].distance for rows in found.values()]),
    )


def accuracies(found: Mapping[float, Mapping[str, Row]]) -> Iterator[Sequence[str]]:
    """Lines of the table of means and error bars."""
    for name in closest_first(found):
        cells = []
        for rows in found.values():
            at = rows[name]
            cells += [
                f"{at.distance:.3f}" if at.distance > 1e-6 else "0",
                f"{at.bars:.2f}",
                "" if np.isnan(at.actual_over_stated) else f"{at.actual_over_stated:.2f}",
            ]
        yield name, next(iter(found.values()))[name].iterations, *cells


def costs(found: Mapping[float, Mapping[str, Row]]) -> Iterator[Sequence[str]]:
    """Lines of the table of work and memory, at the first lengthscale."""
    first = next(iter(found.values()))
    for name in closest_first(found):
        row = first[name]
        yield (
            name,
            row.iterations,
            row.calibrated,
            f"{row.products:,.0f}",
            f"{row.seconds / first[REFERENCE].seconds:.2f}",
            bytes_text(row.peak_bytes),
        )


def results(found: Mapping[float, Mapping[str, Row]]) -> xr.Dataset:
    """All rows, lengthscale by solver."""
    names = list(next(iter(found.values())))
    return xr.Dataset(
        {
            field.name: (
                ("lengthscale", "solver"),
                np.array([[getattr(rows[name], field.name) for name in names] for rows in found.values()]),
            )
            for field in dataclasses.fields(Row)
            if field.type is not str
        },
        coords={"lengthscale": list(found), "solver": np.array(names, dtype=object)},
    )


def compare(lengthscale: float, observed: int, predicted: int, *, block: int) -> dict[str, Row]:
    """Draw points and fields, and solve with every solver."""
    generator = np.random.default_rng(SEED)
    points, prior = Points.draw(generator, observed, predicted, block=block), prior_of(lengthscale)
    fields, _ = draw_fields(points, lengthscale, generator, fields=FIELDS)
    exact = cagp.condition(prior, points.observed, fields, points.predicted, solver=cagp.Cholesky())
    return {
        name: measured(points, prior, fields, solver, exact)
        for name, solver in solvers(points=observed, block=block).items()
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Solve with every solver, print and save."""
    chosen = parser(__doc__).parse_args(arguments)
    sizes = (160, 20, 20) if chosen.quick else (OBSERVED, PREDICTED, BLOCK)
    compare(LENGTHSCALES[0], 160, 20, block=20)  # nothing is loaded or compiled while it is timed
    found: dict[float, dict[str, Row]] = {}
    for lengthscale in LENGTHSCALES:
        found[lengthscale] = compare(lengthscale, *sizes[:2], block=sizes[2])
        seconds = found[lengthscale][REFERENCE].seconds
        print(f"lengthscale {lengthscale:g}: {REFERENCE} took {seconds:.2f} s of one core")
    print()
    measures = ("distance", "bars", "actual / stated")
    print_table(
        ("solver", "m", *(f"{measure}, {each:g}" for each in found for measure in measures)),
        accuracies(found),
    )
    print_table(("solver", "m", "calibrated", "products with G", "time", "memory"), costs(found))
    save(chosen.output / "solvers-compared.zarr", results(found))


if __name__ == "__main__":
    main()
