"""UCI regression sets: Gauss-Seidel against conjugate gradients, and actions against each other.

    python -m pipelines.experiments.uci [--quick] [--output FOLDER] [--data FOLDER] [--sets NAME ...]
        [--splits COUNT] [--cases COUNT] [--sweeps COUNT] [--actions COUNT]

For every set FOLDER has ``NAME.csv.gz``, a row of numbers for each case with the target last, and
``NAME.test_mask.csv.gz`` with a column of zeros and ones for each split. By default 1,500 training cases of
the first three splits are drawn, and 200 test cases; columns are standardised, the target is centred and not
scaled. Lengthscale, variance and noise are fitted to 1,000 of the training cases.

Two comparisons. With Matern 3/2, iterations: Gauss-Seidel in the random order of the draw, block Gauss-Seidel
over 6 blocks of neighbours, conjugate gradients. With Matern 1/2, actions: conjugate gradients, random
actions, pseudo-inputs at random cases and unit vectors, at equal numbers; an approximation with two runs,
the mean of one and the variance of another that knows no data (`KrylovActions`), at twice the products with
G; and the best variational posterior with the pseudo-inputs as inducing points, which is where SVGP ends for
this prior and these points [Titsias 2009].

Prints tables, draws ``uci.png`` and writes ``uci-iterations.zarr`` and ``uci-actions.zarr``, each where its
comparison is made.
"""

import argparse
import gzip
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import xarray as xr

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.calibration.verification.scores import scores
from cagp_dist.kernels import Matern12, Matern32
from cagp_dist.runtime import SerialExecutor
from cagp_dist.solvers import Solver
from cagp_dist.solvers.actions.subsets import random_points
from pipelines.experiments.crossings import overtaken
from pipelines.experiments.output import (
    COLOURS,
    count_ticks,
    drawn,
    few_colours,
    parser,
    plain_ticks,
    print_table,
    save,
)
from pipelines.experiments.sgpr import variational

DATA = Path("../shared/data/uci")
SETS = ("concrete", "bike", "protein", "kin40k")
TEST, QUICK_TEST, FITTED, BLOCKS = 200, 50, 1000, 6
COUNTS = {
    "splits": (3, 2, 1, "splits of each set, its first ones"),
    "cases": (1500, 150, 2, "training cases that are drawn from each split; all where there are fewer"),
    "sweeps": (40, 12, 0, "iterations of the first comparison; 0 leaves it out"),
    "actions": (100, 20, 0, "actions of the second comparison; 0 leaves it out"),
}
"""Counts that the command line takes: in full, with ``--quick``, the least, and what they count."""

SHOWN_SWEEPS, SHOWN_ACTIONS = (1, 5, 20, 40), (10, 30, 100)
TICKS = (0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0)
SOLVERS = ("Gauss-Seidel", "block Gauss-Seidel", "conjugate gradients", "exact")
INDUCING = "inducing points"
PSEUDO = "pseudo-inputs"
BY_ACTIONS = (
    "conjugate gradients",
    "two runs",
    "random actions",
    PSEUDO,
    INDUCING,
    "unit vectors",
    "exact",
)


@dataclass(frozen=True, eq=False)
class Cases:
    """Training and test cases of a split, in a random order.

    Attributes
    ----------
    X, X_test : array, shape (n, p), (q, p)
        Standardised by the training cases; columns that are constant there are left out.
    y, y_test : array, shape (n,), (q,)
        About the mean of the training cases.
    """

    X: Array
    y: Array
    X_test: Array
    y_test: Array

    @classmethod
    def read(cls, folder: Path, name: str, *, split: int, train: int, test: int) -> Self:
        """Draw cases of a split; all of them where there are fewer."""
        table, masks = (numbers(folder / f"{name}{ending}.csv.gz") for ending in ("", ".test_mask"))
        if split >= masks.shape[1]:
            raise SystemExit(f"{name} has {masks.shape[1]} splits; lower --splits, which asks for more.")
        generator, held_out = np.random.default_rng(split), masks[:, split] > 0.5
        chosen, others = (
            table[generator.permutation(np.flatnonzero(rows))[:count]]
            for rows, count in ((~held_out, train), (held_out, test))
        )
        centre, scale = chosen.mean(axis=0), chosen.std(axis=0)
        scale[-1] = 1.0
        varies = scale > 1e-9 * np.abs(chosen).max(axis=0)
        chosen, others = (
            ((rows - centre) / np.where(varies, scale, 1.0))[:, varies] for rows in (chosen, others)
        )
        return cls(chosen[:, :-1], chosen[:, -1], others[:, :-1], others[:, -1])

    def fitted(self, kernel: type[Matern12 | Matern32]) -> cagp.Prior:
        """Fit a prior with mean zero to some of the training cases."""
        return cagp.fit(kernel, self.X[:FITTED], self.y[:FITTED], mean=0.0, method="dense").prior

    def posterior(self, prior: cagp.Prior, solver: Solver, *, together: int | None = None) -> cagp.Posterior:
        """Solve; with cases in blocks of neighbours where ``together`` says how many."""
        X, y = self.X, self.y
        if together is not None:
            order = cagp.space_filling_order(X, block_size=together)
            X, y = X[order], y[order]
        return cagp.condition(prior, X, y, self.X_test, solver=solver, executor=SerialExecutor())

    def scored(self, means: Sequence[Array], variances: Sequence[Array], noise: float, *, rows: int) -> Array:
        """RMSE and NLL of new observations, (2, m), after every iteration; the last goes on to ``rows``."""
        beliefs = zip(means, variances, strict=True)
        each = [scores(mean, np.sqrt(variance + noise), self.y_test) for mean, variance in beliefs]
        found = [(score.rmse, score.nll) for score in each]
        return np.transpose(found + (rows - len(found)) * found[-1:])


def numbers(path: Path) -> Array:
    """Read a compressed table of numbers."""
    with gzip.open(path, "rt") as file:
        return np.loadtxt(file, delimiter=",", ndmin=2)


def iterations(cases: Cases, *, count: int) -> dict[str, Array]:
    """Scores (2, m) of every solver with Matern 3/2, after 1, 2, ..., m iterations."""
    prior = cases.fitted(Matern32)
    block = -(-len(cases.X) // BLOCKS)
    posteriors = {
        "Gauss-Seidel": cases.posterior(prior, cagp.GaussSeidel(count)),
        "block Gauss-Seidel": cases.posterior(
            prior, cagp.BlockGaussSeidel(count, block_size=block), together=block
        ),
        "conjugate gradients": cases.posterior(prior, cagp.ConjugateGradient(count)),
        "exact": cases.posterior(prior, cagp.Cholesky()),
    }
    return {
        name: cases.scored(
            [step.mean for step in each.trace[1:]],
            [step.variance for step in each.trace[1:]],
            prior.noise_number,
            rows=count,
        )
        for name, each in posteriors.items()
    }


def actions(cases: Cases, *, count: int) -> dict[str, Array]:
    """Scores (2, m) of every kind of actions with Matern 1/2, after 1, 2, ..., m of them."""
    prior = cases.fitted(Matern12)
    points = cases.X[random_points(len(cases.X), count, 0)]
    solvers: dict[str, Solver] = {
        "conjugate gradients": cagp.ConjugateGradient(count),
        "random actions": cagp.RandomActions(count),
        PSEUDO: cagp.PseudoInputs.at_points(points),
        "unit vectors": cagp.UnitVectors(count),
        "two runs": cagp.KrylovActions(count),
        "exact": cagp.Cholesky(),
    }
    steps = {name: cases.posterior(prior, solver).trace[1:] for name, solver in solvers.items()}
    length = min(len(steps["conjugate gradients"]), len(steps["two runs"]))
    means = {name: [step.mean for step in each] for name, each in steps.items()}
    means["two runs"] = means["conjugate gradients"][:length]
    variances = {name: [step.variance for step in each][: len(means[name])] for name, each in steps.items()}
    sparse = [
        variational(Matern12, prior, cases.X, cases.y, cases.X_test, inducing=points[:m])
        for m in range(1, len(points) + 1)
    ]
    means[INDUCING], variances[INDUCING] = (
        [each.mean[:, 0] for each in sparse],
        [each.variance for each in sparse],
    )
    return {
        name: cases.scored(means[name], variances[name], prior.noise_number, rows=count)
        for name in BY_ACTIONS
    }


def results(found: Mapping[str, Sequence[Mapping[str, Array]]], *, title: str) -> xr.Dataset:
    """Put the scores of every set, split and solver together."""
    names = list(next(iter(found.values()))[0])
    scores = np.array([[[split[name] for name in names] for split in splits] for splits in found.values()])
    dims = ("set", "split", "solver", "iteration")
    return xr.Dataset(
        {score: (dims, scores[..., row, :]) for row, score in enumerate(("rmse", "nll"))},
        coords={"set": np.array(list(found), dtype=object), "solver": np.array(names, dtype=object)},
        attrs={"title": title},
    )


def table(data: xr.Dataset, shown: Sequence[int]) -> Iterator[Sequence[str]]:
    """Lines of a table: RMSE and NLL, means over splits."""
    for name in data["set"].values:
        for solver in data["solver"].values:
            at = data.sel(set=name, solver=solver).mean("split")
            yield (
                name,
                solver,
                *(f"{float(at['rmse'][m - 1]):.3f}, {float(at['nll'][m - 1]):.3f}" for m in shown),
            )


def crossing_rows(data: xr.Dataset) -> Iterator[Sequence[str]]:
    """Where conjugate gradients overtake Gauss-Seidel, split by split."""
    for name in data["set"].values:
        cells = []
        for score in ("rmse", "nll"):
            leader, follower = (
                data[score].sel(set=name, solver=solver).transpose("iteration", "split").values
                for solver in ("Gauss-Seidel", "conjugate gradients")
            )
            done = len(leader)
            cells.append(", ".join(str(m) if m <= done else f"> {done}" for m in overtaken(leader, follower)))
        yield name, *cells


def difference_rows(data: xr.Dataset, shown: Sequence[int]) -> Iterator[Sequence[str]]:
    """How much lower scores are with pseudo-inputs: means over splits, and standard errors of paired ones."""
    behind = data.sel(solver=INDUCING) - data.sel(solver=PSEUDO)
    error = behind.std("split", ddof=1) / np.sqrt(data.sizes["split"])
    for name in data["set"].values:
        for score in ("rmse", "nll"):
            mean, each = (part[score].sel(set=name).values for part in (behind.mean("split"), error))
            yield name, score.upper(), *(f"{mean[m - 1]:.3f} ± {each[m - 1]:.3f}" for m in shown)


def draw(path: Path, data: xr.Dataset) -> None:
    """Draw both scores of every set against iterations: mean over splits, and their range."""
    with drawn(path, width_inches=2.7 * data.sizes["set"], height_inches=4.6) as figure:
        panels = figure.subplots(2, data.sizes["set"], sharex=True, squeeze=False)
        m = np.arange(1, data.sizes["iteration"] + 1)
        for column, name in zip(panels.T, data["set"].values, strict=True):
            column[0].set_title(name, loc="left", fontsize=9)
            column[1].set_xlabel("iterations")
            for axes, score in zip(column, ("rmse", "nll"), strict=True):
                for solver in SOLVERS:
                    each = data[score].sel(set=name, solver=solver)
                    colour = COLOURS[solver]
                    axes.plot(m, each.mean("split"), color=colour, label=solver, linewidth=1.2)
                    axes.fill_between(
                        m, each.min("split"), each.max("split"), color=colour, alpha=0.15, linewidth=0
                    )
            low, high = column[0].get_ylim()
            plain_ticks(column[0], [tick for tick in TICKS if max(low, 0.0) < tick < high])
        panels[0, 0].set_ylabel("RMSE")
        panels[1, 0].set_ylabel("negative log likelihood")
        count_ticks(panels[0, 0], [each for each in (1, 2, 5, 10, 20, 40) if each <= m[-1]])
        figure.legend(
            *panels[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False
        )


def _chosen(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Options; counts that were not given are those of a full or a quick run."""
    command = parser(__doc__)
    command.add_argument("--data", type=Path, default=DATA, help="folder of the sets (%(default)s)")
    command.add_argument(
        "--sets",
        nargs="+",
        metavar="NAME",
        help=f"sets of that folder (those of {', '.join(SETS)} that it has)",
    )
    for name, (full, quick, _, what) in COUNTS.items():
        command.add_argument(
            f"--{name}", type=int, metavar="COUNT", help=f"{what} ({full:,}; {quick} with --quick)"
        )
    chosen = command.parse_args(arguments)
    for name, (full, quick, least, _) in COUNTS.items():
        if getattr(chosen, name) is None:
            setattr(chosen, name, quick if chosen.quick else full)
        elif getattr(chosen, name) < least:
            command.error(f"--{name} is {getattr(chosen, name)}; expected at least {least}.")
    chosen.sets = available(chosen.data, chosen.sets, SETS)
    return chosen


def available(folder: Path, asked: Sequence[str] | None, usual: Sequence[str]) -> list[str]:
    """Names of the sets to read: those that were asked for, or the usual ones that the folder has."""
    there = [name for name in asked or usual if (folder / f"{name}.csv.gz").exists()]
    missing = [f"{name}.csv.gz" for name in asked or usual if name not in there]
    if missing and (asked or not there):
        which = "none of" if not there else "no"
        raise SystemExit(
            f"{folder} has {which} {', '.join(missing)}. Give their folder with --data; the collection "
            "uci_datasets has them."
        )
    return there


def main(arguments: Sequence[str] | None = None) -> None:
    """Read, fit, solve, print, draw and save."""
    chosen = _chosen(arguments)
    test = QUICK_TEST if chosen.quick else TEST
    by_iteration, by_action = {}, {}
    for name in chosen.sets:
        cases = [
            Cases.read(chosen.data, name, split=i, train=chosen.cases, test=test)
            for i in range(chosen.splits)
        ]
        first_split = cases[0]
        columns = first_split.X.shape[1]
        print(
            f"{name}: {len(first_split.X)} training, {len(first_split.X_test)} test cases, "
            f"{columns} columns, splits: {chosen.splits}",
            flush=True,
        )
        if chosen.sweeps:
            by_iteration[name] = [iterations(each, count=chosen.sweeps) for each in cases]
        if chosen.actions:
            by_action[name] = [actions(each, count=chosen.actions) for each in cases]
    print()
    if by_iteration:
        report_iterations(results(by_iteration, title="Figure 4 of Hegde et al. (2025)"), chosen.output)
    if by_action:
        report_actions(results(by_action, title="Actions of Wenger et al. (2022)"), chosen.output)


def report_iterations(data: xr.Dataset, output: Path) -> None:
    """Print, draw and save the first comparison."""
    shown = [m for m in SHOWN_SWEEPS if m <= data.sizes["iteration"]]
    print_table(("set", "solver", *(f"m = {m}: RMSE, NLL" for m in shown)), table(data, shown))
    print_table(("set", "RMSE: overtaken at m, by split", "NLL"), crossing_rows(data))
    draw(output / "uci.png", data)
    few_colours(output / "uci.png")
    save(output / "uci-iterations.zarr", data)


def report_actions(data: xr.Dataset, output: Path) -> None:
    """Print and save the second comparison."""
    shown = [m for m in SHOWN_ACTIONS if m <= data.sizes["iteration"]]
    print_table(("set", "actions", *(f"{m} actions: RMSE, NLL" for m in shown)), table(data, shown))
    if data.sizes["split"] > 1:
        print_table(
            ("set", f"{INDUCING} less {PSEUDO}", *(f"{m} actions" for m in shown)),
            difference_rows(data, shown),
        )
    save(output / "uci-actions.zarr", data)


if __name__ == "__main__":
    main()
