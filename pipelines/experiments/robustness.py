"""Error bars under a prior that is wrong: its mean by 3 and 10 K, its lengthscale by a factor of two.

    python -m pipelines.experiments.robustness [--quick] [--output FOLDER] [--fields COUNT] [--only WORD ...]

2,048 points, uniform on the sphere and in k-d order, are observed, 200 others predicted. 100 fields, or
as many as asked for, are drawn from a Matern 3/2 prior (lengthscale 0.2, variance 22 K^2, noise variance 0.5
K^2) and solved for with that prior, with 3 and 10 K added that the mean knows nothing of, and with
lengthscales of 0.1 and 0.4. For every solver and number of iterations, over all points and fields, about the
latent values::

    share of 90 % intervals that hold the truth, and root mean square of error / stated standard deviation

What the exact posterior loses is due to the prior; what a solver loses beyond that is due to the solve.
Sweeps over single points are also run in a random order, that in which points are drawn. Hybrids need a solve
for each field and are judged on the first 30; their m counts conjugate directions.
Prints a table and writes ``robustness.zarr``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dataclasses import fields as fields_of

import numpy as np
import xarray as xr

import cagp_dist as cagp
from cagp_dist.arrays import Array, Indices
from cagp_dist.calibration.simulation.beliefs import conjugate_gradient_beliefs
from cagp_dist.runtime import SerialExecutor
from cagp_dist.solvers import Solver
from pipelines.experiments.limits import HALF_WIDTH, NOISE_VARIANCE, Points, draw_fields, prior_of
from pipelines.experiments.output import fields_asked, parser, print_table, save

SEED = 7
OBSERVED, PREDICTED, BLOCK, FIELDS, ALONE = 2048, 200, 256, 100, 30
LENGTHSCALE = 0.2
OFFSETS_KELVIN = (0.0, 3.0, 10.0)
FACTORS = (0.5, 2.0)
CASES = ("prior right", "mean 3 K off", "mean 10 K off", "lengthscale halved", "lengthscale doubled")


@dataclass(frozen=True)
class Cell:
    """How the error bars of a solver do on fields of one case.

    Attributes
    ----------
    coverage : float
        Share of latent values inside 90 % intervals.
    scale : float
        Root mean square of errors over stated standard deviations.
    rmse : float
        Of the mean about the latent field, K.
    """

    coverage: float
    scale: float
    rmse: float

    @classmethod
    def of(cls, error: Array, std: Array) -> "Cell":
        """Judge errors (q, T) with standard deviations (q, 1) or (q, T)."""
        z = error / std
        return cls(
            float(np.mean(np.abs(z) <= HALF_WIDTH)),
            float(np.sqrt(np.mean(z**2))),
            float(np.sqrt(np.mean(error**2))),
        )


@dataclass(frozen=True, eq=False)
class Fields:
    """Fields of the prior with 0.2 as lengthscale: observations (n, T) and latent values (q, T)."""

    points: Points
    observed: Array
    latent: Array

    def off(self, kelvin: float) -> "Fields":
        """Add a number that the prior mean knows nothing of."""
        return Fields(self.points, self.observed + kelvin, self.latent + kelvin)

    def first(self, count: int) -> "Fields":
        """Take some of the fields, or all if there are no more."""
        return Fields(self.points, self.observed[:, :count], self.latent[:, :count])

    def cases(self) -> Iterator[tuple["Fields", float]]:
        """Fields and the lengthscale that they are solved with, case by case."""
        for kelvin in OFFSETS_KELVIN:
            yield self.off(kelvin), LENGTHSCALE
        for factor in FACTORS:
            yield self, factor * LENGTHSCALE


def solved(
    fields: Fields, solver: Solver, order: Indices, *, iterations: Sequence[int]
) -> dict[int, list[Cell]]:
    """Judge a solver that has one matrix for all fields, after some of its iterations, in every case."""
    found: dict[int, list[Cell]] = {m: [] for m in iterations}
    for case, lengthscale in fields.cases():
        X, y = case.points.observed[order], case.observed[order]
        posterior = cagp.condition(prior_of(lengthscale), X, y, case.points.predicted, solver=solver)
        for m, cells in found.items():
            step = posterior.trace[min(m, posterior.stats.iterations)]
            cells.append(Cell.of(step.mean - case.latent, np.sqrt(step.variance)[:, None]))
    return found


def conjugate_gradients(fields: Fields, *, iterations: Sequence[int]) -> dict[int, list[Cell]]:
    """Judge the beliefs of `ConjugateGradient`, for all fields at once, in every case."""
    found: dict[int, list[Cell]] = {m: [] for m in iterations}
    X, X_test = fields.points.observed, fields.points.predicted
    for case, lengthscale in fields.cases():
        kernel = prior_of(lengthscale).kernel
        G = kernel(X, X)
        G[np.diag_indices_from(G)] += NOISE_VARIANCE
        V = kernel(X_test, X)
        for m in iterations:
            mean, U = conjugate_gradient_beliefs(G, V, case.observed, iterations=m)
            std = np.sqrt(kernel.variance - (U**2).sum(axis=0))
            found[m].append(Cell.of(mean - case.latent, std))
    return found


def one_by_one(fields: Fields, solver: Solver, order: Indices) -> list[Cell]:
    """Judge a solver whose matrix depends on the field, with a solve for each, in every case."""
    cells = []
    for case, lengthscale in fields.cases():
        prior, X = prior_of(lengthscale), case.points.observed[order]
        found = [
            cagp.condition(
                prior, X, y[order], case.points.predicted, solver=solver, executor=SerialExecutor()
            )
            for y in case.observed.T
        ]
        means, variances = (
            np.stack([getattr(each, name) for each in found], axis=1) for name in ("mean", "variance")
        )
        cells.append(Cell.of(means - case.latent, np.sqrt(variances)))
    return cells


RANDOM = ", random order"
"""End of the names of solvers that have the points in that order instead of k-d order."""


def hybrids(block: int) -> dict[str, dict[int, Solver]]:
    """Hybrids by their number of conjugate directions."""
    sweeps = cagp.BlockGaussSeidel(2, block_size=block)
    gradients = {m: cagp.ConjugateGradient(m) for m in (5, 20)}
    preconditioned = cagp.ConjugateGradient(10, "block-gauss-seidel", block)
    points = {m: cagp.Hybrid([cagp.GaussSeidel(2), cg]) for m, cg in gradients.items()}
    return {
        "2 point sweeps, then gradients": points,
        f"2 point sweeps, then gradients{RANDOM}": points,
        "2 block sweeps, then gradients": {m: cagp.Hybrid([sweeps, cg]) for m, cg in gradients.items()},
        "2 block sweeps, conditioned on gradients": {
            m: cagp.Hybrid([sweeps, cg], condition=True) for m, cg in gradients.items()
        },
        "gradients, then 2 block sweeps": {m: cagp.Hybrid([cg, sweeps]) for m, cg in gradients.items()},
        "2 block sweeps, then preconditioned gradients": {10: cagp.Hybrid([sweeps, preconditioned])},
    }


def solvers(
    given: Indices, shuffled: Indices, block: int
) -> dict[str, tuple[Solver, Indices, tuple[int, ...]]]:
    """Solvers with one matrix for all fields, the order of the points, and the iterations that are shown."""
    return {
        "exact": (cagp.Cholesky(), given, (1,)),
        "Gauss-Seidel": (cagp.GaussSeidel(20), given, (1, 5, 20)),
        f"Gauss-Seidel{RANDOM}": (cagp.GaussSeidel(20), shuffled, (1, 5, 20)),
        "SSOR": (cagp.SSOR(5, relaxation=1.0), given, (1, 5)),
        f"SSOR{RANDOM}": (cagp.SSOR(5, relaxation=1.0), shuffled, (1, 5)),
        "block Gauss-Seidel": (cagp.BlockGaussSeidel(5, block_size=block), given, (1, 2, 5)),
        "block Jacobi": (cagp.BlockJacobi(5, block_size=block), given, (1, 5)),
        "two-level block Gauss-Seidel": (
            cagp.TwoLevelBlockGaussSeidel(5, block_size=block, coarse=block),
            given,
            (1, 2, 5),
        ),
        "random actions": (cagp.RandomActions(80), given, (20, 80)),
        "pseudo-inputs": (cagp.PseudoInputs(80), given, (20, 80)),
        "eigenvectors": (cagp.Eigenvectors(80), given, (20, 80)),
    }


def table(found: dict[str, dict[int, list[Cell]]]) -> Iterator[Sequence[str]]:
    """Lines of the table."""
    for name, iterations in found.items():
        for m, cells in iterations.items():
            shown = (f"{100.0 * cell.coverage:.1f} % ({cell.scale:.2f})" for cell in cells)
            yield name, "" if name == "exact" else str(m), f"{cells[0].rmse:.2f}", *shown


def results(found: dict[str, dict[int, list[Cell]]]) -> xr.Dataset:
    """All cells, a line of the table by a case."""
    lines = [(name, m, cells) for name, each in found.items() for m, cells in each.items()]
    return xr.Dataset(
        {
            score.name: (
                ("line", "case"),
                [[getattr(cell, score.name) for cell in cells] for *_, cells in lines],
            )
            for score in fields_of(Cell)
        },
        coords={
            "solver": ("line", np.array([name for name, *_ in lines], dtype=object)),
            "iteration": ("line", [m for _, m, _ in lines]),
            "case": np.array(CASES, dtype=object),
        },
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw fields, solve them in every case, print and save."""
    command = parser(__doc__, fields=FIELDS, quick_fields=10)
    command.add_argument(
        "--only", nargs="+", metavar="WORD", help="solvers whose name has one of these (all)"
    )
    chosen = command.parse_args(arguments)
    observed, predicted, block = (120, 20, 30) if chosen.quick else (OBSERVED, PREDICTED, BLOCK)
    fields = fields_asked(chosen)
    generator = np.random.default_rng(SEED)
    points = Points.draw(generator, observed, predicted, block=block)
    drawn = Fields(points, *draw_fields(points, LENGTHSCALE, generator, fields=fields))
    given, shuffled = np.arange(observed), generator.permutation(observed)

    def wanted(name: str) -> bool:
        return not chosen.only or any(word in name for word in chosen.only)

    found = {
        name: solved(drawn, solver, order, iterations=shown)
        for name, (solver, order, shown) in solvers(given, shuffled, block).items()
        if wanted(name)
    }
    if wanted("conjugate gradients"):
        found["conjugate gradients"] = conjugate_gradients(drawn, iterations=(5, 20, 80))
    for name, each in hybrids(block).items():
        order = shuffled if name.endswith(RANDOM) else given
        if wanted(name):
            found[name] = {m: one_by_one(drawn.first(ALONE), hybrid, order) for m, hybrid in each.items()}
    print(f"{fields} fields, {observed} points observed, {predicted} predicted, blocks of {block}\n")
    print_table(("solver", "m", "RMSE [K], prior right", *CASES), table(found))
    save(chosen.output / "robustness.zarr", results(found))


if __name__ == "__main__":
    main()
