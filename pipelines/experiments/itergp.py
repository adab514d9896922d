"""Projections on a sine: mathematical and computational variance, and what separate solves add.

    python -m pipelines.experiments.itergp [--quick] [--output FOLDER]

The synthetic problem of [Wenger et al. 2022]: ``y = sin(pi x'1) + noise`` at 500 points that are drawn
uniformly from [-1, 1]^d, d = 1, 2 and 4, noise of standard deviation 0.1; 50 other points are predicted.
Matern 3/2, fitted by maximum likelihood to another draw; ten draws. Each method after m actions:

    conjugate gradients         mean and variance of one run (IterGP-CG)
    two runs                    the same mean; the variance of a run on the mean column of V' (CGGP)
    a solve for each target     the same mean; variances by conjugate gradients on each column of V'
    pseudo-inputs               at random points of the data (IterGP-PI)
    pseudo-inputs outside       at random points of [1, 2]^d, where there are no data
    subset of the data          unit vectors, a Cholesky factor of m points (IterGP-Cholesky)
    inducing points             the best variational posterior with the pseudo-inputs as inducing points: the
                                optimum of SVGP's bound for the same prior [Titsias 2009]
    inducing points outside     the same with those in [1, 2]^d

RMSE and NLL of new noisy observations, the columns that were multiplied with G, and the smallest ratio of a
stated to an exact variance. The computational part ``Y0' G^-1 Y0`` of a variance, ``Y0 = V' - G D V'`` (T4),
is worked out by itself and added to the exact variance. With v after i actions, rho(i) is how much of the
solution is left in the norm of G, and bounds what is left of the mean in that of the kernel's space::

    rho(i)^2 = |v* - v|_G^2 / |v*|_G^2 = 1 - b'v / b'v*
    |mu* - mu|_H  <=  rho(i) sqrt(1 + noise / least eigenvalue of K) |mu*|_H

The root is left out where the least eigenvalue is within rounding of zero, as it is on a line.

Last, what is stated where the points of inducing points are, in 1 to 25 dimensions (figure S3 of
[Wenger et al. 2024]): 64 of the 500 points, Matern 3/2 with lengthscale 1, noise variance 0.01.

Prints tables, draws ``itergp.png`` and writes ``itergp.zarr``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import xarray as xr

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.calibration.simulation.beliefs import conjugate_gradient_beliefs
from cagp_dist.calibration.verification.scores import scores
from cagp_dist.cartography.chart_style import MUTED
from cagp_dist.runtime import SerialExecutor, single_threaded_blas
from cagp_dist.solvers.actions.action_solvers import ConjugateGradient
from cagp_dist.solvers.actions.known_actions import KnownActions
from cagp_dist.solvers.actions.projection import project
from cagp_dist.solvers.actions.subsets import random_points
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

POINTS, TARGETS, DRAWS, NOISE_STD = 500, 50, 10, 0.1
QUICK_POINTS, QUICK_TARGETS, QUICK_DRAWS = 80, 15, 2
DIMENSIONS, ACTIONS = (1, 2, 4), (5, 10, 20, 40, 80)
STATED_DIMENSIONS, STATED_POINTS = (1, 2, 4, 8, 16, 25), 64
RUN, TWO_RUNS, EACH = "conjugate gradients", "two runs", "a solve for each target"
PSEUDO, OUTSIDE, SUBSET = "pseudo-inputs", "pseudo-inputs outside", "subset of the data"
INDUCING, INDUCING_OUTSIDE = "inducing points", "inducing points outside"
METHODS = (RUN, TWO_RUNS, EACH, PSEUDO, OUTSIDE, SUBSET, INDUCING, INDUCING_OUTSIDE, "exact")
PROJECTIONS = (RUN, PSEUDO, OUTSIDE, SUBSET)
"""Methods that have a solution v, and so a rho."""

LINES = {
    RUN: (COLOURS["conjugate gradients"], "-"),
    TWO_RUNS: (COLOURS["conjugate gradients"], "--"),
    EACH: (COLOURS["conjugate gradients"], ":"),
    PSEUDO: (COLOURS["Gauss-Seidel"], "-"),
    OUTSIDE: (COLOURS["Gauss-Seidel"], "--"),
    SUBSET: (COLOURS["block Gauss-Seidel"], "-"),
}
SCORES = ("rmse", "nll", "products", "least", "gap", "share", "rho", "rkhs", "rkhs_bound")


@dataclass(frozen=True, eq=False)
class Belief:
    """Mean (q,) and variance (q,) after some actions, its computational part, and what they took.

    ``computational`` is None where mean and variance belong to different runs, or to none; ``products``
    counts columns that were multiplied with G; ``solution`` (n,) is v where the mean is ``V v``.
    """

    mean: Array
    variance: Array
    computational: Array | None
    products: int
    solution: Array | None = None


class Progress(NamedTuple):
    """How much of a solution is left, as part of all of it: see `progress`."""

    rho: float  # of the solution, in the norm of G
    rkhs: float  # of the mean, in the norm of the kernel's space
    rkhs_bound: float  # that `rkhs` is at most this; NaN where the least eigenvalue is not known


def progress(G: Array, noise_variance: float, exact: Array, solution: Array, *, least: float) -> Progress:
    """Say what is left of the solution ``exact`` (n,) of ``G v = b`` at another one; ``least`` is of K.

    The mean of weights v is ``k(x, X) v``, whose squared norm in the kernel's space is ``v'K v``. For the
    error e, ``e'K e <= |e|_G^2 = rho^2 |v*|_G^2``, and ``|v*|_G^2 <= (1 + noise / least) v*'K v*`` with the
    least eigenvalue of K [Wenger et al. 2022, theorem 1]. This holds for the solution of any solver.
    """

    def squares(v: Array) -> tuple[float, float]:
        image = G @ v
        return float(v @ (image - noise_variance * v)), float(v @ image)

    (left, left_in_G), (whole, whole_in_G) = squares(exact - solution), squares(exact)
    rho = np.sqrt(left_in_G / whole_in_G)
    bound = rho * np.sqrt(1.0 + noise_variance / least)
    return Progress(float(rho), float(np.sqrt(max(left, 0.0) / whole)), float(bound))


def least_eigenvalue(K: Array) -> float:
    """Least eigenvalue of K (n, n); NaN where it is within rounding of zero, ``n eps |K|``."""
    least, *_, most = np.linalg.eigvalsh(K)
    return float(least) if least > len(K) * np.finfo(float).eps * most else np.nan


@dataclass(frozen=True, eq=False)
class Sine:
    """A draw of the problem: y (n,) at X (n, d), new observations y_test (q,) at X_test (q, d)."""

    X: Array
    y: Array
    X_test: Array
    y_test: Array

    @classmethod
    def draw(cls, d: int, generator: np.random.Generator, *, points: int, targets: int) -> Self:
        """Draw points and noise."""
        X = generator.uniform(-1.0, 1.0, (points + targets, d))
        y = np.sin(np.pi * X.sum(axis=1)) + NOISE_STD * generator.standard_normal(len(X))
        return cls(X[:points], y[:points], X[points:], y[points:])

    def prior(self) -> cagp.Prior:
        """Fit a prior with mean zero."""
        return cagp.fit(cagp.Matern32, self.X, self.y, mean=0.0, method="dense").prior


class Solves:
    """Beliefs about one draw, by any method, with the products with G counted."""

    def __init__(self, prior: cagp.Prior, problem: Sine, *, seed: int, most: int) -> None:
        self._prior, self._problem, self._seed = prior, problem, seed
        self._gram = cagp.DenseGram(
            prior.kernel, problem.X, noise_variance=np.full(len(problem.X), prior.noise_number)
        )
        self._V, self._prior_variance = prior.kernel(problem.X_test, problem.X), prior.kernel.variance
        half = self._gram.half_solve(self._V.T)
        exact = self._prior_variance - (half**2).sum(axis=0)
        solution = self._gram.solve(problem.y[:, None])[:, 0]
        self.exact = Belief(self._V @ solution, exact, np.zeros(len(exact)), 0, solution)
        self._least = least_eigenvalue(prior.kernel(problem.X, problem.X))
        self.root = float(np.sqrt(1.0 + prior.noise_number / self._least))
        # what the i-th direction of the run on a target's own column of V' adds for that target, (i, q)
        _, seen = conjugate_gradient_beliefs(self._gram.matrix, self._V, self._V.T, iterations=most)
        self._own = np.diagonal(seen, axis1=1, axis2=2) ** 2

    def beliefs(self, m: int) -> dict[str, Belief]:
        """Every method after m actions."""
        outside = np.random.default_rng(self._seed).uniform(1.0, 2.0, (m, self._problem.X.shape[1]))
        at_data = self._problem.X[random_points(len(self._problem.X), m, self._seed)]
        one = self.taken(cagp.ConjugateGradient(m))
        cached = self.taken(cagp.ConjugateGradient(m), right=self._V.mean(axis=0))
        separate = self._prior_variance - self._own[:m].sum(axis=0)
        count = one.products
        return {
            RUN: one,
            TWO_RUNS: Belief(one.mean, cached.variance, None, count + cached.products),
            EACH: Belief(one.mean, separate, None, count + m * len(separate)),
            PSEUDO: self.taken(cagp.PseudoInputs.at_points(at_data)),
            OUTSIDE: self.taken(cagp.PseudoInputs.at_points(outside)),
            SUBSET: self.taken(cagp.UnitVectors(m, order="random", seed=self._seed)),
            INDUCING: self.variational(at_data),
            INDUCING_OUTSIDE: self.variational(outside),
            "exact": self.exact,
        }

    def progress(self, belief: Belief) -> Progress:
        """Say how much of its solution is left."""
        assert self.exact.solution is not None
        if belief.solution is None:
            return Progress(np.nan, np.nan, np.nan)
        return progress(
            self._gram.matrix,
            self._prior.noise_number,
            self.exact.solution,
            belief.solution,
            least=self._least,
        )

    def variational(self, points: Array) -> Belief:
        """Give the best variational posterior with inducing points (m, d)."""
        data = self._problem
        found = variational(cagp.Matern32, self._prior, data.X, data.y, data.X_test, inducing=points)
        return Belief(found.mean[:, 0], found.variance, None, 0)

    def taken(self, solver: ConjugateGradient | KnownActions, *, right: Array | None = None) -> Belief:
        """Take the actions of a solver, for y or for another right-hand side (n,)."""
        b = self._problem.y if right is None else right
        products = 0

        def product(columns: Array) -> Array:
            nonlocal products
            products += columns.shape[1]
            return self._gram @ columns

        steps = [
            step
            for step in project(
                product,
                b[:, None],
                policy=solver.policy(self._gram, executor=SerialExecutor()),
                iterations=solver.iterations,
            )
            if step.direction.any()
        ]
        if isinstance(solver, cagp.UnitVectors):
            products = 0  # its products are entries of G, of these points alone
        root = np.sqrt([step.curvature for step in steps])
        seen = self._V @ np.stack([step.direction for step in steps], axis=1) / root
        image = np.stack([step.image for step in steps], axis=1) / root
        leftover = self._V.T - image @ seen.T
        length = np.concatenate([step.step for step in steps])
        return Belief(
            seen @ (root * length),
            self._prior_variance - (seen**2).sum(axis=1),
            (self._gram.half_solve(leftover) ** 2).sum(axis=0),
            products,
            np.stack([step.direction for step in steps], axis=1) @ length if right is None else None,
        )


def scored(problem: Sine, belief: Belief, exact: Array, noise: float, left: Progress) -> tuple[float, ...]:
    """Say how good a belief is, and how its variance stands to the exact one (q,); in order of `SCORES`."""
    gap = share = np.nan
    if belief.computational is not None:
        gap = float(np.abs(exact + belief.computational - belief.variance).max())
        share = float(np.mean(belief.computational / belief.variance))
    score = scores(belief.mean, np.sqrt(belief.variance + noise), problem.y_test)
    return (
        score.rmse,
        score.nll,
        float(belief.products),
        float((belief.variance / exact).min()),
        gap,
        share,
        *left,
    )


def results(*, points: int, targets: int, draws: int, actions: Sequence[int]) -> xr.Dataset:
    """Score every method in every draw, for every number of inputs and of actions."""
    found = np.empty((len(SCORES), len(DIMENSIONS), draws, len(METHODS), len(actions)))
    roots = np.empty((len(DIMENSIONS), draws))
    for row, d in enumerate(DIMENSIONS):
        first, *problems = (
            Sine.draw(d, np.random.default_rng([d, draw]), points=points, targets=targets)
            for draw in range(draws + 1)
        )
        prior = first.prior()
        for draw, problem in enumerate(problems):
            solves = Solves(prior, problem, seed=draw, most=max(actions))
            roots[row, draw] = solves.root
            for column, m in enumerate(actions):
                beliefs = solves.beliefs(m)
                for place, name in enumerate(METHODS):
                    found[:, row, draw, place, column] = scored(
                        problem,
                        beliefs[name],
                        solves.exact.variance,
                        prior.noise_number,
                        solves.progress(beliefs[name]),
                    )
    return xr.Dataset(
        {
            name: (("inputs", "draw", "solver", "actions"), values)
            for name, values in zip(SCORES, found, strict=True)
        }
        | {"root": (("inputs", "draw"), roots)},
        coords={
            "inputs": list(DIMENSIONS),
            "solver": np.array(METHODS, dtype=object),
            "actions": list(actions),
        },
        attrs={"title": "Synthetic comparison of Wenger et al. (2022)"},
    )


def table(data: xr.Dataset) -> Iterator[Sequence[str]]:
    """Lines of the table: means over draws, the most products, the least ratio of all."""
    for d in data["inputs"].values:
        for name in data["solver"].values:
            each = data.sel(inputs=d, solver=name)
            mean = each[["rmse", "nll"]].mean("draw")
            scores = (
                f"{rmse:.3f}, {nll:.3f}"
                for rmse, nll in zip(mean["rmse"].values, mean["nll"].values, strict=True)
            )
            products = f"{float(each['products'].max()):,.0f}" if name != "exact" else ""
            yield str(d), str(name), *scores, products, f"{float(each['least'].min()):.4f}"


def progress_table(data: xr.Dataset) -> Iterator[Sequence[str]]:
    """Lines of what is left: means over draws of rho, and of the mean's error in the kernel's space."""
    for d in data["inputs"].values:
        for name in PROJECTIONS:
            mean = data.sel(inputs=d, solver=name)[["rho", "rkhs"]].mean("draw")
            yield (
                str(d),
                name,
                *(
                    f"{float(mean['rho'][k]):.2g}, {float(mean['rkhs'][k]):.2g}"
                    for k in range(data.sizes["actions"])
                ),
            )


def bound_table(data: xr.Dataset) -> Iterator[Sequence[str]]:
    """Lines of the bound: its root over draws, and the largest error of a mean as part of its bound."""
    for d in data["inputs"].values:
        at = data.sel(inputs=d, solver=list(PROJECTIONS))
        if np.isnan(at["root"]).any():
            yield str(d), "", ""
        else:
            least, most = float(at["root"].min()), float(at["root"].max())
            yield str(d), f"{least:.4g} to {most:.4g}", f"{float((at['rkhs'] / at['rkhs_bound']).max()):.3f}"


def stated_table(*, points: int, actions: int) -> Iterator[Sequence[str]]:
    """Lines of variances at inducing points and at other points, over that of the prior; means of each."""
    prior = cagp.Prior(cagp.Matern32(1.0), NOISE_STD**2)
    for d in STATED_DIMENSIONS:
        problem = Sine.draw(d, np.random.default_rng([d, 0]), points=points, targets=points)
        inducing = problem.X[random_points(points, actions, 0)]
        cells = []
        for targets in (inducing, problem.X_test):
            solves = Solves(prior, replace(problem, X_test=targets), seed=0, most=1)
            pseudo = solves.taken(cagp.PseudoInputs.at_points(inducing))
            each = (solves.exact, solves.variational(inducing), pseudo)
            cells += [f"{belief.variance.mean() / prior.kernel.variance:.3f}" for belief in each]
        yield str(d), *cells


def draw(path: Path, data: xr.Dataset, *, points: int) -> None:
    """Draw both parts of the error bars on a line, and scores in two dimensions against products."""
    with drawn(path, width_inches=9.0, height_inches=5.4) as figure:
        panels = figure.subplots(2, 3)
        problem = Sine.draw(1, np.random.default_rng(0), points=points, targets=1)
        line = Sine(problem.X, problem.y, np.linspace(-1.5, 1.5, 200)[:, None], np.zeros(200))
        few = min(6, points)
        solves = Solves(problem.prior(), line, seed=0, most=few)
        beliefs, x = solves.beliefs(few), line.X_test[:, 0]
        for axes, name in zip(panels[0], (RUN, PSEUDO, SUBSET), strict=True):
            belief, colour = beliefs[name], LINES[name][0]
            for variance, shade in ((belief.variance, 0.2), (solves.exact.variance, 0.45)):
                width = 2.0 * np.sqrt(variance)
                axes.fill_between(
                    x, belief.mean - width, belief.mean + width, color=colour, alpha=shade, linewidth=0
                )
            axes.plot(problem.X[:, 0], problem.y, ".", color=MUTED, markersize=1.5)
            axes.plot(x, belief.mean, color=colour, linewidth=1.2)
            axes.set_title(f"{name}, m = {few}", loc="left", fontsize=9)
            axes.set_ylim(-3.2, 3.2)
        mean = data.sel(inputs=2).mean("draw")
        for axes, score in zip(panels[1], ("rmse", "nll", "share"), strict=True):
            for name, (colour, style) in LINES.items():
                each = mean.sel(solver=name)
                count = data["actions"] if name == SUBSET else each["products"]
                axes.plot(
                    count, each[score], color=colour, linestyle=style, marker=".", linewidth=1.2, label=name
                )
            count_ticks(axes, (5, 20, 80, 1000, 8000))
            axes.set_xlabel("products with G (subset: points)")
        plain_ticks(panels[1, 0], (0.1, 0.2, 0.5, 1.0))
        for axes, word in zip(
            panels[1], ("RMSE, d = 2", "negative log likelihood", "computational share"), strict=True
        ):
            axes.set_title(word, loc="left", fontsize=9)
        figure.legend(
            *panels[1, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Solve, print, draw and save."""
    chosen = parser(__doc__).parse_args(arguments)
    sizes = (QUICK_POINTS, QUICK_TARGETS, QUICK_DRAWS) if chosen.quick else (POINTS, TARGETS, DRAWS)
    points, targets, draws = sizes
    actions = ACTIONS[:3] if chosen.quick else ACTIONS
    with single_threaded_blas():
        data = results(points=points, targets=targets, draws=draws, actions=actions)
        draw(chosen.output / "itergp.png", data, points=points)
    few_colours(chosen.output / "itergp.png")
    print_table(
        (
            "d",
            "method",
            *(f"m = {m}: RMSE, NLL" for m in actions),
            "products",
            "least stated / exact variance",
        ),
        table(data),
    )
    print_table(
        ("d", "method", *(f"m = {m}: rho, of the mean" for m in actions)),
        progress_table(data),
    )
    print_table(("d", "bound / rho, by draw", "largest error of a mean / bound"), bound_table(data))
    with single_threaded_blas():
        where = (
            f"{name}, {at}" for at in ("at the points", "elsewhere") for name in ("exact", INDUCING, PSEUDO)
        )
        print_table(("d", *where), stated_table(points=points, actions=min(STATED_POINTS, points // 4)))
    print(f"exact + computational variance differs from the stated one by at most {data['gap'].max():.1e}")
    save(chosen.output / "itergp.zarr", data)


if __name__ == "__main__":
    main()
