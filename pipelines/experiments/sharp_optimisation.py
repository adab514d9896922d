"""Optimisation by upper bounds of sharp calibrated GPs: figure 3 of Capone, Hirche & Pleiss (2023).

    python -m pipelines.experiments.sharp_optimisation [--quick] [--output FOLDER] [--repetitions COUNT]
        [--evaluations COUNT]

The Ackley and the Rosenbrock function of two coordinates, with a minus sign, are maximised from noisy values:
at 20 points drawn by chance, then where an upper bound ``mu + b sigma`` is largest. A squared exponential
kernel with a lengthscale for each coordinate is fitted to all values, about their mean, after every fifth of
them. Bounds:

- plain: ``b = sqrt(2)``, with the standard deviation of the fitted prior: UCB with the paper's beta = 2.
- one factor: b is the quantile of standardised errors at a fifth of the values, which the others predict.
- sharp: the same with the standard deviation of a sharp GP, whose lengthscales belong to this quantile.

N calibration values resolve no level above 1 - 1 / N, so this is the level, up to the 0.99 of the paper. The
points are chosen by the values before them: nothing is guaranteed here.

Prints a table, draws ``sharp-optimisation.png`` and writes ``sharp-optimisation.zarr``.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import xarray as xr

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.calibration.recalibration.order_statistics import q_lin
from cagp_dist.calibration.recalibration.sharp import Sharp
from cagp_dist.calibration.recalibration.stretched import DenseModel
from cagp_dist.predictive import Gaussian
from pipelines.experiments.output import COLOURS, drawn, few_colours, parser, print_table, save

STARTING, EVALUATIONS, REPETITIONS, REFIT = 20, 60, 20, 5
QUICK = (6, 2)
NOISE_STD = 0.1
LEVEL, PLAIN_FACTOR = 0.99, float(np.sqrt(2.0))
LEAST_NOISE = 1e-6
"""Of standardised values: points next to each other leave no covariance singular."""

CANDIDATES, ROUNDS, AROUND, SHRINK = 1000, 4, 100, 0.3
"""Points that an upper bound is compared at: everywhere, and in rounds around the best one, ever nearer."""


@dataclass(frozen=True)
class Objective:
    """A function of points (n, 2) of the unit square whose maximum is zero."""

    low: float
    high: float
    loss: Callable[[Array], Array]

    def __call__(self, X: Array) -> Array:
        """Values, shape (n,)."""
        return -self.loss(self.low + (self.high - self.low) * X)


def ackley(x: Array) -> Array:
    """Waves on a cone, shape (n, 2) to (n,); zero at the origin."""
    cone = np.exp(-0.2 * np.sqrt(np.mean(x**2, axis=1)))
    return 20.0 * (1.0 - cone) + np.e - np.exp(np.mean(np.cos(2.0 * np.pi * x), axis=1))


def rosenbrock(x: Array) -> Array:
    """Curved valley, shape (n, 2) to (n,); zero at (1, 1)."""
    return 100.0 * (x[:, 1] - x[:, 0] ** 2) ** 2 + (1.0 - x[:, 0]) ** 2


OBJECTIVES = {"Ackley": Objective(-32.768, 32.768, ackley), "Rosenbrock": Objective(-5.0, 10.0, rosenbrock)}


@dataclass(frozen=True)
class Bound:
    """An upper bound: mean of one prior, plus a factor times the standard deviation of another kernel."""

    prior: cagp.Prior
    wide: cagp.Prior
    factor: float

    def __call__(self, X: Array, y: Array, targets: Array) -> Array:
        """Upper bounds at targets (q, 2) from standardised values y at X."""
        found = cagp.condition(self.prior, X, y, targets, solver=cagp.Cholesky())
        other = (
            found
            if self.wide is self.prior
            else cagp.condition(self.wide, X, y, targets, solver=cagp.Cholesky())
        )
        return found.mean + self.factor * np.sqrt(other.variance)


def plain(prior: cagp.Prior, X: Array, y: Array, generator: np.random.Generator) -> Bound:
    """Give the bound of a fixed factor."""
    return Bound(prior, prior, PLAIN_FACTOR)


def one_factor(prior: cagp.Prior, X: Array, y: Array, generator: np.random.Generator) -> Bound:
    """Give the bound of a quantile of standardised errors."""
    known, values, _ = _calibration(prior, X, y, generator)
    return Bound(prior, prior, max(0.0, float(q_lin(_level(len(values)), known.normal_score(values)))))


def sharp(prior: cagp.Prior, X: Array, y: Array, generator: np.random.Generator) -> Bound:
    """Give the bound of a sharp GP."""
    known, values, (train, rest) = _calibration(prior, X, y, generator)
    level = _level(len(values))
    method = Sharp(DenseModel(prior, X[train]), (1.0 - level, level), anisotropic=True, split="two-way")
    fitted = method.fit(known, values, X[rest])
    wide = replace(prior, kernel=fitted.stretch.kernel(prior.kernel, fitted.stretches[-1]))
    return Bound(prior, wide, max(0.0, float(fitted.beta[-1])))


RULES = {"plain": plain, "one factor": one_factor, "sharp": sharp}


def _calibration(
    prior: cagp.Prior, X: Array, y: Array, generator: np.random.Generator
) -> tuple[Gaussian, Array, tuple[Array, Array]]:
    """Predict a fifth of the values from the others: distributions, values, indices of both."""
    order = generator.permutation(len(y))
    rest, train = np.split(order, [len(y) // 5])
    found = cagp.condition(prior, X[train], y[train], X[rest], solver=cagp.Cholesky())
    return Gaussian(found.mean, np.sqrt(found.variance + prior.noise_number)), y[rest], (train, rest)


def _level(count: int) -> float:
    return min(LEVEL, 1.0 - 1.0 / count)


def search(objective: Objective, rule: str, *, evaluations: int, seed: int) -> Array:
    """Regrets of the starting points and of each evaluation, shape (STARTING + evaluations,)."""
    starting, noise, chance = (np.random.default_rng([seed, part]) for part in range(3))
    X = starting.uniform(size=(STARTING, 2))
    y = objective(X) + NOISE_STD * noise.standard_normal(STARTING)
    bound: Bound | None = None
    for step in range(evaluations):
        standard = (y - y.mean()) / y.std()
        if bound is None or step % REFIT == 0:
            prior = cagp.fit(
                cagp.SquaredExponential, X, standard, mean=0.0, anisotropic=True, method="dense"
            ).prior
            prior = replace(prior, noise_variance=max(LEAST_NOISE, prior.noise_number))
            bound = RULES[rule](prior, X, standard, chance)
        new = highest(bound, X, standard, chance)
        X = np.vstack([X, new])
        y = np.append(y, objective(new[None]) + NOISE_STD * noise.standard_normal(1))
    return -objective(X)


def highest(bound: Bound, X: Array, y: Array, generator: np.random.Generator) -> Array:
    """Point of the unit square where a bound is largest among those that are tried, shape (2,)."""
    tried = generator.uniform(size=(CANDIDATES, 2))
    best, value, reach = tried[0], -np.inf, 0.1
    for _ in range(1 + ROUNDS):
        upper = bound(X, y, tried)
        if upper.max() > value:
            best, value = tried[np.argmax(upper)], float(upper.max())
        tried = np.clip(best + reach * generator.uniform(-1.0, 1.0, size=(AROUND, 2)), 0.0, 1.0)
        reach *= SHRINK
    return best


def results(*, evaluations: int, repetitions: int) -> xr.Dataset:
    """Regrets of every search."""
    regret = np.empty((len(OBJECTIVES), len(RULES), repetitions, STARTING + evaluations))
    for row, (name, objective) in enumerate(OBJECTIVES.items()):
        for repetition in range(repetitions):
            for column, rule in enumerate(RULES):
                regret[row, column, repetition] = search(
                    objective, rule, evaluations=evaluations, seed=repetition
                )
            print(f"{name}: repetition {repetition + 1} of {repetitions}", flush=True)
    return xr.Dataset(
        {"regret": (("function", "bound", "repetition", "value"), regret)},
        coords={
            "function": np.array(list(OBJECTIVES), dtype=object),
            "bound": np.array(list(RULES), dtype=object),
        },
        attrs={"title": "Figure 3 of Capone, Hirche and Pleiss (2023)"},
    )


def summed(data: xr.Dataset) -> tuple[xr.DataArray, xr.DataArray]:
    """Sum of the regrets of all evaluations so far, and the smallest regret so far, after each of them."""
    each = data.regret
    least = xr.apply_ufunc(np.minimum.accumulate, each, kwargs={"axis": each.get_axis_num("value")})
    after = slice(STARTING, None)
    return each.isel(value=after).cumsum("value"), least.isel(value=after)


def rows(data: xr.Dataset) -> Iterator[Sequence[str]]:
    """Lines of the table: mean and standard error over repetitions, and how often one is ahead of plain."""
    both = [part.isel(value=-1) for part in summed(data)]
    for function in data.function.values:
        for rule in RULES:
            cells = []
            for part in both:
                mine, other = (part.sel(function=function, bound=each) for each in (rule, "plain"))
                error = float(mine.std(ddof=1)) / np.sqrt(mine.size) if mine.size > 1 else np.nan
                cells.append(f"{float(mine.mean()):.3g} ({error:.2g})")
                cells.append("" if rule == "plain" else f"{int((mine < other).sum())} of {mine.size}")
            yield str(function), rule, *cells


def draw(path: Path, data: xr.Dataset) -> None:
    """Draw the middle of both regrets over repetitions, and its half in between, against evaluations."""
    titles = ("mean regret of the evaluations", "smallest regret so far")
    with drawn(path, width_inches=9.0, height_inches=5.2) as figure:
        panels = figure.subplots(data.sizes["function"], 2, sharex=True, squeeze=False)
        for row, function in zip(panels, data.function.values, strict=True):
            for axes, part, title in zip(row, summed(data), titles, strict=True):
                count = np.arange(1, part.sizes["value"] + 1)
                for rule, colour in zip(RULES, COLOURS.values(), strict=False):
                    values = part.sel(function=function, bound=rule)
                    if title == titles[0]:
                        values = values / count
                    low, middle, high = values.quantile([0.25, 0.5, 0.75], "repetition").values
                    axes.plot(count, middle, color=colour, label=rule)
                    axes.fill_between(count, low, high, color=colour, alpha=0.15, linewidth=0)
                axes.set_yscale("log")
                axes.set_title(f"{function}: {title}", loc="left", fontsize=9)
        for axes in panels[-1]:
            axes.set_xlabel("evaluations")
        figure.legend(
            *panels[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Search, print, draw and save."""
    command = parser(__doc__)
    command.add_argument(
        "--repetitions", type=int, default=REPETITIONS, help="searches of each kind (%(default)s)"
    )
    command.add_argument(
        "--evaluations", type=int, default=EVALUATIONS, help="values after the first 20 (%(default)s)"
    )
    chosen = command.parse_args(arguments)
    for name in ("repetitions", "evaluations"):
        if getattr(chosen, name) < 1:
            command.error(f"--{name} is {getattr(chosen, name)}; expected at least 1.")
    evaluations, repetitions = QUICK if chosen.quick else (chosen.evaluations, chosen.repetitions)
    data = results(evaluations=evaluations, repetitions=repetitions)
    print()
    print_table(
        ("function", "bound", "sum of regrets (s.e.)", "ahead of plain", "smallest regret", "ahead of plain"),
        rows(data),
    )
    draw(chosen.output / "sharp-optimisation.png", data)
    few_colours(chosen.output / "sharp-optimisation.png")
    save(chosen.output / "sharp-optimisation.zarr", data)


if __name__ == "__main__":
    main()
