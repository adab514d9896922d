"""Learnt actions on UCI sets, beside the printed table of Wenger et al. (2024), and what learning does.

    python -m pipelines.experiments.learned_actions [--quick] [--output FOLDER] [--data FOLDER]
        [--sets NAME ...] [--methods NAME ...] [--splits COUNT] [--cases COUNT] [--steps COUNT]
        [--actions COUNT] [--inducing COUNT] [--adam RATE] [--epochs COUNT] [--least-noise VARIANCE]

For every set FOLDER has ``NAME.csv.gz`` and ``NAME.test_mask.csv.gz``, as for the experiment ``uci``; columns
and target are standardised by the training cases. The kernel is Matern 3/2 with a lengthscale for each column
and the mean zero. No noise variance falls below 1e-4, as in GPyTorch, unless asked for: with it no NLL is
below -3.69. What takes steps begins at the maximum of the likelihood of 1,000 training cases, with a noise
variance of 0.01 at least, and takes those of L-BFGS unless said otherwise (``--adam`` takes those of Adam for
"SGPR" and actions, whose length falls from RATE to a tenth of it as in the paper):

- "subset": no step is taken, and these 1,000 cases alone are conditioned on;
- "exact": `cagp_dist.fit` by the likelihood of all cases, where these are at most 6,000;
- "SGPR": the bound of 1,024 inducing points among the cases;
- "SVGP": as many inducing points, and Adam steps of 0.01 from batches of cases in place of L-BFGS;
- "CGGP": conjugate gradients in the likelihood, as far as GPyTorch takes them unless told otherwise, where
  "exact" is there too: memory is several n x n matrices;
- "ELBO": the bound of 512 block-sparse actions, which are learnt too, and which are then conditioned on;
- "projected": the same with the likelihood of the projected data in place of the bound;
- "CG-ELBO" and "CG-projected", where "exact" is there too: the same objectives of 512 directions of conjugate
  gradients, which follow the hyperparameters from step to step and are held in each; with steps of Adam, 0.1
  long at first unless said otherwise, since the gradient is not that of the value;
- "wrong-determinant", where it is asked for: the bound as GPyTorch's code had it until July 2025.

SVGP and CGGP are those of GPyTorch, and left out where it is not installed (``pip install '.[baselines]'``).
Scores are of new observations, in units of the target's deviation. Steps of "subset", "exact" and "CGGP" are
evaluations of a likelihood, those of "SVGP" batches; seconds are without the fit to 1,000 cases. Prints two
tables, the methods and the ways of the objectives of actions, draws the latter on the first set, and writes
``learned-actions.zarr``.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.calibration.verification.scores import scores
from cagp_dist.kernels import Kernel
from cagp_dist.likelihood.learned.elbo import Elbo
from cagp_dist.likelihood.learned.objective import Hyperparameters, Objective
from cagp_dist.likelihood.learned.optimise import LBFGS, Optimiser
from cagp_dist.likelihood.learned.projected_data import ProjectedData
from cagp_dist.likelihood.numbering import Model
from cagp_dist.memory import available_bytes
from cagp_dist.runtime import Executor, ThreadExecutor
from cagp_dist.solvers.actions.block_sparse import BlockLayout
from cagp_dist.solvers.actions.subsets import random_points
from pipelines.experiments import gpytorch_models, gradient_actions
from pipelines.experiments.adam import Adam
from pipelines.experiments.climbing import Way, climb
from pipelines.experiments.output import ACCENT, drawn, parser, print_table, save
from pipelines.experiments.projected_likelihood import ProjectedLikelihood
from pipelines.experiments.sgpr import JITTER, Sgpr
from pipelines.experiments.uci import DATA, Cases, available
from pipelines.experiments.wrong_determinant import WrongDeterminant

FAMILY = cagp.Matern32
SETS = ("parkinsons", "bike", "protein", "keggundirected")
FIRST, MOST_EXACT = 1000, 6000
ACTIONS, INDUCING = 512, 1024
LEAST_FIRST_NOISE = 0.01
"""What few directions do not resolve counts as noise at first; from the least noise the way back is long."""

WIDE, MOST_NOISE = 1e3, 10.0
"""How far lengthscales and variance may go from the start, as a factor; largest noise variance."""

QUICK_ACTIONS, QUICK_INDUCING, QUICK_CASES, QUICK_STEPS = 24, 40, 300, 8
SCORES = ("nll", "rmse", "crps", "coverage")
LEVEL = 0.95
OF_GRADIENTS = {"CG-ELBO": gradient_actions.lower_bound, "CG-projected": gradient_actions.projected}
METHODS = (
    *("subset", "exact", "SGPR", "SVGP", "CGGP", "ELBO", "projected"),
    *OF_GRADIENTS,
    "wrong-determinant",
)
USUAL = METHODS[:-1]
"""Those that are compared unless others are asked for."""

OF_GPYTORCH = ("SVGP", "CGGP")
DENSE = ("exact", "CGGP", *OF_GRADIENTS)
"""Methods that need n x n matrices."""

OBJECTIVES: dict[str, Callable[[ProjectedData], Objective]] = {
    "ELBO": Elbo,
    "projected": ProjectedLikelihood,
    "wrong-determinant": WrongDeterminant,
}
COLOURS = {
    "ELBO": ACCENT,
    "projected": "#d9772b",
    "CG-ELBO": "#2a9168",
    "CG-projected": "#8a63b5",
    "wrong-determinant": "#777777",
}
FIRST_STEP = 0.1
"""Of Adam, for actions that follow the hyperparameters, unless another is given."""


class Sizes(NamedTuple):
    """How much of everything."""

    actions: int
    inducing: int
    steps: int
    epochs: int
    least_noise: float = gpytorch_models.LEAST_NOISE
    learning_rate: float | None = None

    @property
    def optimiser(self) -> Optimiser:
        """Adam where there is a learning rate, otherwise L-BFGS."""
        if self.learning_rate is None:
            return LBFGS(steps=self.steps)
        return Adam(steps=self.steps, learning_rate=self.learning_rate)


class Scored(NamedTuple):
    """Scores of a method at the test cases, in the order of `SCORES`, with its noise variance."""

    scores: Array
    noise_variance: float


class Problem:
    """A split of a set, its target standardised, and the start of every search.

    Parameters
    ----------
    cases : Cases
        Their targets are scaled here.
    sizes : Sizes
        Of actions, inducing points and steps.
    executor : Executor
        Where it is computed.
    """

    def __init__(self, cases: Cases, sizes: Sizes, executor: Executor) -> None:
        scale = cases.y.std()
        self.X, self.X_test = cases.X, cases.X_test
        self.y, self.y_test = cases.y / scale, cases.y_test / scale
        self._sizes, self._executor = sizes, executor
        self._hyperparameters = Hyperparameters(Model((FAMILY,), self.X.shape[1]), self.X.shape[1])
        self._first = self._fitted(min(FIRST, len(self.X)))

    def _fitted(self, count: int) -> cagp.FitResult:
        X, y = self.X[:count], self.y[:count]
        return cagp.fit(
            FAMILY,
            X,
            y,
            mean=0.0,
            method="dense",
            anisotropic=True,
            bounds={"noise_variance": (self._sizes.least_noise, MOST_NOISE)},
            executor=self._executor,
        )

    def possible(self, chosen: Sequence[str]) -> list[str]:
        """Those of some methods that the size of these cases allows; says which it does not."""
        left_out = [name for name in DENSE if name in chosen and len(self.X) > MOST_EXACT]
        if left_out:
            print(
                f"  left out with more than {MOST_EXACT:,} training cases: {', '.join(left_out)} "
                f"(--cases {MOST_EXACT} takes as many)",
                flush=True,
            )
        return [name for name in METHODS if name in chosen and name not in left_out]

    def method(self, name: str) -> tuple[float, int, Scored]:
        """Seconds, steps and scores of a method without actions."""
        data, least = (self.X, self.y, self.X_test, self._start), self._sizes.least_noise
        match name:
            case "subset":
                return self._on_all(self._first)
            case "exact":
                return self._on_all(self._fitted(len(self.X)))
            case "SGPR":
                return self._sgpr()
            case "SVGP":
                inducing, epochs = self._inducing, self._sizes.epochs
                return self._of_gpytorch(
                    gpytorch_models.svgp(*data, inducing=inducing, epochs=epochs, least_noise=least)
                )
            case "CGGP":
                steps = self._sizes.steps
                return self._of_gpytorch(gpytorch_models.cggp(*data, steps=steps, least_noise=least))
            case _:
                raise ValueError(f"no such method: {name}")

    def _on_all(self, found: cagp.FitResult) -> tuple[float, int, Scored]:
        """Condition on all cases of a fit."""
        X, y = self.X[: found.points], self.y[: found.points]
        posterior = cagp.condition(found.prior, X, y, self.X_test, solver=cagp.Cholesky())
        scored = self._scored(posterior.mean, posterior.variance, found.prior.noise_number)
        return found.seconds, found.evaluations, scored

    @property
    def _inducing(self) -> Array:
        """First inducing points of SGPR and SVGP: (m, p), drawn among the cases."""
        return self.X[random_points(len(self.X), min(self._sizes.inducing, len(self.X)), 0)]

    def _of_gpytorch(self, found: gpytorch_models.Predicted) -> tuple[float, int, Scored]:
        return found.seconds, found.steps, self._scored(found.mean, found.variance, found.noise_variance)

    def _sgpr(self) -> tuple[float, int, Scored]:
        bound = Sgpr(
            Model((FAMILY,), self.X.shape[1]),
            self.X,
            self.y[:, None],
            inducing=self._inducing,
            learn_inducing=True,
            jitter=JITTER,
        )
        way = climb(bound, bound.vector(*self._start), self._sizes.optimiser, bounds=self._bounds)
        sparse = bound.posterior(way.end, self.X_test)
        _, noise_variance = self._hyperparameters.read(way.end)
        return way.seconds, way.steps, self._scored(sparse.mean[:, 0], sparse.variance, noise_variance)

    def learnt(self, name: str) -> tuple[Way, dict[int, Scored]]:
        """Learn actions by one of the objectives; scores after some steps."""
        data = ProjectedData(
            Model((FAMILY,), self.X.shape[1]),
            self.X,
            self.y[:, None],
            layout=BlockLayout.of(self.X, self._sizes.actions),
            executor=self._executor,
            memory_limit_bytes=available_bytes(),
            anisotropic=True,
        )
        start = np.concatenate([self._hyperparameters.write(*self._start), np.ones(len(self.X))])
        way = climb(OBJECTIVES[name](data), start, self._sizes.optimiser, bounds=self._bounds)
        return way, {step: self._conditioned(vector) for step, vector in way.vectors.items()}

    def by_gradients(self, name: str) -> tuple[Way, dict[int, Scored]]:
        """Learn hyperparameters by an objective of conjugate directions; scores after some steps."""
        objective = gradient_actions.GradientActions(
            self._hyperparameters,
            self.X,
            self.y,
            actions=self._sizes.actions,
            objective=OF_GRADIENTS[name],
        )
        optimiser = Adam(steps=self._sizes.steps, learning_rate=self._sizes.learning_rate or FIRST_STEP)
        start = self._hyperparameters.write(*self._start)
        way = climb(objective, start, optimiser, bounds=self._bounds)
        scored = {}
        for step, vector in way.vectors.items():
            kernel, noise_variance = self._hyperparameters.read(vector)
            solver = cagp.ConjugateGradient(self._sizes.actions)
            prior = cagp.Prior(kernel, noise_variance)
            found = cagp.condition(prior, self.X, self.y, self.X_test, solver=solver, executor=self._executor)
            scored[step] = self._scored(found.mean, found.variance, noise_variance)
        return way, scored

    def _conditioned(self, vector: Array) -> Scored:
        """Scores of the posterior of actions with the entries of a vector."""
        kernel, noise_variance = self._hyperparameters.read(vector)
        weights = vector[self._hyperparameters.size :]
        posterior = cagp.condition(
            cagp.Prior(kernel, noise_variance),
            self.X,
            self.y,
            self.X_test,
            solver=cagp.SparseActions(self._sizes.actions, values=weights),
            executor=self._executor,
        )
        return self._scored(posterior.mean, posterior.variance, noise_variance)

    @property
    def _start(self) -> tuple[Kernel, float]:
        prior = self._first.prior
        return prior.kernel, max(prior.noise_number, LEAST_FIRST_NOISE)

    @property
    def _bounds(self) -> list[tuple[float, float]]:
        """Of the hyperparameters, in the searches by a bound or with actions."""
        *others, _ = np.exp(self._hyperparameters.write(*self._start)).tolist()
        return [
            *((value / WIDE, value * WIDE) for value in others),
            (self._sizes.least_noise, MOST_NOISE),
        ]

    def _scored(self, mean: Array, variance: Array, noise_variance: float) -> Scored:
        found = scores(mean, np.sqrt(variance + noise_variance), self.y_test, levels=[LEVEL])
        return Scored(np.array([found.nll, found.rmse, found.crps, found.coverage[0]]), noise_variance)


class Results(NamedTuple):
    """What one split gave: seconds, steps and scores by method, and the ways of the objectives."""

    methods: dict[str, tuple[float, int, Scored]]
    ways: dict[str, dict[int, Scored]]


def split_results(cases: Cases, chosen: Sequence[str], sizes: Sizes, executor: Executor) -> Results:
    """Fit and score by the chosen methods, as far as they are possible."""
    problem = Problem(cases, sizes, executor)
    found = Results({}, {})
    for name in problem.possible(chosen):
        if name in OBJECTIVES or name in OF_GRADIENTS:
            learn = problem.learnt if name in OBJECTIVES else problem.by_gradients
            way, found.ways[name] = learn(name)
            seconds, steps, scored = way.seconds, way.steps, found.ways[name][way.steps]
        else:
            seconds, steps, scored = problem.method(name)
        found.methods[name] = seconds, steps, scored
        value, error = scored.scores[:2]
        print(f"  {name}: NLL {value:.3f}, RMSE {error:.3f}, {steps:,} steps, {seconds:.0f} s", flush=True)
    return found


def method_rows(found: dict[str, list[Results]]) -> Iterator[tuple[str, ...]]:
    """Means over splits, and of more than one the standard deviations of the first two scores."""
    for name, splits in found.items():
        for method in METHODS:
            if method not in splits[0].methods:
                continue
            seconds, steps, scored = zip(*(each.methods[method] for each in splits), strict=True)
            scores = np.array([each.scores for each in scored])
            mean, spread = scores.mean(axis=0), scores.std(axis=0)
            several = len(splits) > 1
            yield (
                name,
                method,
                *(f"{mean[k]:.3f} ± {spread[k]:.3f}" if several else f"{mean[k]:.3f}" for k in (0, 1)),
                f"{mean[2]:.3f}",
                f"{mean[3]:.3f}",
                f"{np.mean([each.noise_variance for each in scored]):.2g}",
                f"{np.mean(steps):.0f}",
                f"{np.mean(seconds):.0f}",
            )


def way_rows(found: dict[str, list[Results]]) -> Iterator[tuple[str, ...]]:
    """Noise variance and scores after some steps, on the first split of every set."""
    for name, splits in found.items():
        for objective, way in splits[0].ways.items():
            for step, scored in sorted(way.items()):
                value, error = scored.scores[:2]
                yield (
                    name,
                    objective,
                    str(step),
                    f"{scored.noise_variance:.3g}",
                    f"{value:.3f}",
                    f"{error:.3f}",
                )


def draw(path: Path, name: str, ways: dict[str, dict[int, Scored]]) -> None:
    """Draw noise variance and test score against steps."""
    with drawn(path, width_inches=7.0, height_inches=2.8) as figure:
        panels = figure.subplots(1, 2)
        for objective, colour in COLOURS.items():
            if objective not in ways:
                continue
            steps = sorted(ways[objective])
            for axes, values in zip(
                panels,
                (
                    [ways[objective][step].noise_variance for step in steps],
                    [ways[objective][step].scores[0] for step in steps],
                ),
                strict=True,
            ):
                axes.plot(steps, values, color=colour, label=objective, marker="o", markersize=3)
                axes.set_xlabel("steps")
        panels[0].set_yscale("log")
        panels[0].set_title(f"noise variance, {name}", loc="left", fontsize=9)
        panels[1].set_yscale("symlog")
        panels[1].set_title("test negative log likelihood", loc="left", fontsize=9)
        panels[0].legend(frameon=False)


def dataset(found: dict[str, list[Results]]) -> xr.Dataset:
    """Scores, seconds and steps of every set, split and method; NaN where a method was left out."""
    counts = len(found), len(next(iter(found.values()))), len(METHODS)
    scores = np.full((*counts, len(SCORES)), np.nan)
    others = {name: np.full(counts, np.nan) for name in ("seconds", "steps", "noise_variance")}
    for a, splits in enumerate(found.values()):
        for b, split in enumerate(splits):
            for method, (seconds, steps, scored) in split.methods.items():
                c = METHODS.index(method)
                scores[a, b, c] = scored.scores
                for kept, value in zip(others.values(), (seconds, steps, scored.noise_variance), strict=True):
                    kept[a, b, c] = value
    dims = ("set", "split", "method")
    return xr.Dataset(
        {
            **{name: (dims, scores[..., k]) for k, name in enumerate(SCORES)},
            **{name: (dims, values) for name, values in others.items()},
        },
        coords={"set": np.array(list(found), dtype=object), "method": np.array(METHODS, dtype=object)},
        attrs={"title": "Learnt actions, beside Table 1 of Wenger et al. (2024)"},
    )


def _chosen(arguments: Sequence[str] | None) -> argparse.Namespace:
    command = parser(__doc__)
    command.add_argument("--data", type=Path, default=DATA, help="folder of the sets (%(default)s)")
    command.add_argument("--sets", nargs="+", metavar="NAME", help=f"sets ({', '.join(SETS)})")
    command.add_argument(
        "--methods",
        nargs="+",
        metavar="NAME",
        choices=METHODS,
        default=USUAL,
        help=f"of {', '.join(METHODS)} (all but the last)",
    )
    for name, number, what in (
        ("splits", 5, "splits of each set"),
        ("cases", 10**9, "training cases of each split, at most"),
        ("steps", 100, "of the search"),
        ("actions", ACTIONS, "directions, or blocks of them"),
        ("inducing", INDUCING, "inducing points"),
        ("epochs", 100, "of SVGP"),
    ):
        command.add_argument(
            f"--{name}", type=int, default=number, metavar="COUNT", help=f"{what} ({number:,})"
        )
    command.add_argument(
        "--adam", type=float, metavar="RATE", help="steps of Adam in place of L-BFGS, the first so long"
    )
    command.add_argument(
        "--least-noise",
        type=float,
        default=gpytorch_models.LEAST_NOISE,
        metavar="VARIANCE",
        help="least noise variance, in squared deviations of the target (%(default)s)",
    )
    chosen = command.parse_args(arguments)
    if chosen.quick:
        chosen.cases, chosen.steps = min(chosen.cases, QUICK_CASES), min(chosen.steps, QUICK_STEPS)
        chosen.epochs = min(chosen.epochs, QUICK_STEPS)
        chosen.splits = min(chosen.splits, 2)
        chosen.actions, chosen.inducing = QUICK_ACTIONS, QUICK_INDUCING
    chosen.sets = available(chosen.data, chosen.sets, SETS)
    if not gpytorch_models.available() and set(chosen.methods) & set(OF_GPYTORCH):
        print(gpytorch_models.MISSING, flush=True)
        chosen.methods = [name for name in chosen.methods if name not in OF_GPYTORCH]
    if not chosen.methods:
        command.error("no method is left.")
    return chosen


def main(arguments: Sequence[str] | None = None) -> None:
    """Read, fit, condition, print, draw and save."""
    chosen = _chosen(arguments)
    sizes = Sizes(
        chosen.actions, chosen.inducing, chosen.steps, chosen.epochs, chosen.least_noise, chosen.adam
    )
    found: dict[str, list[Results]] = {}
    with ThreadExecutor() as executor:
        for name in chosen.sets:
            found[name] = []
            for split in range(chosen.splits):
                cases = Cases.read(chosen.data, name, split=split, train=chosen.cases, test=10**9)
                counts = f"{len(cases.X):,} training, {len(cases.X_test):,} test cases"
                print(f"{name}, split {split}: {counts}", flush=True)
                found[name].append(split_results(cases, chosen.methods, sizes, executor))
    head = ("set", "method", "NLL", "RMSE", "CRPS", "95 % coverage", "noise variance", "steps", "seconds")
    print_table(head, method_rows(found))
    print_table(("set", "objective", "step", "noise variance", "NLL", "RMSE"), way_rows(found))
    first = next(iter(found))
    if ways := found[first][0].ways:
        draw(chosen.output / "learned-actions.png", first, ways)
    save(chosen.output / "learned-actions.zarr", dataset(found))


if __name__ == "__main__":
    main()
