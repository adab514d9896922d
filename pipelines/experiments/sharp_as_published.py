"""Table 1 of Capone, Hirche & Pleiss (2023) in the set-up of its authors, as far as their code tells it.

    python -m pipelines.experiments.sharp_as_published [--quick] [--output FOLDER] [--data FOLDER]
        [--sets NAME ...] [--repetitions COUNT]

FOLDER has ``NAME.csv.gz`` for every set, a row of numbers for each case with the target last. What differs
from ``sharp``, and is taken from the code that was published with the paper:

- Columns and target are standardised by all cases; those of wine are left as they are, and its target is the
  quality. The target of yacht is the resistance itself. (Files of uci_datasets have its logarithm, and the
  alcohol of wine as the target.) Of wine there are 1,280 cases for training and calibration, which a comment
  of the code has; the code has 500.
- Lengthscales, variance and noise variance begin at the middle of limits, and take 20 steps of gradient
  descent with rate 0.1 on the logits of where they are between the limits. The loss is the negative log
  likelihood per case of the cases for training and for calibration together.
- Quantiles of N errors lie at ``i / (N - 1)``, so that the levels 0 and 1 are there: 25 levels from 0 to 1.
- Lengthscales of the levels 0 and 1 take at most 100 steps with rate 0.5 from four starts: those of the
  prior, both limits and a random one. Further levels begin at their lower limit, the lengthscales of the
  level before, where the slope by the logit is zero: they keep them.
- The standard deviation of a distribution is that of 21 quantiles, the last of which is left at zero; the log
score is
  that of their differences, and takes values outside of them for values in an outermost interval.

The published code has standard deviations without the noise; the printed width of plain distributions is that
of standard deviations with it. Hence three variants of the sharp distributions: without the noise, with it,
and with it in the search for lengthscales and factors but not in the widths; and two of Kuleshov's and plain
distributions.

Prints a table, with the share of test values inside of the intervals, and writes ``sharp-as-published.zarr``.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import xarray as xr
from scipy.linalg import cho_factor, cho_solve
from scipy.spatial.distance import cdist
from scipy.special import expit, logit
from scipy.stats import norm

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.calibration.recalibration.sharp_search import Errors, Search, Visit
from cagp_dist.calibration.recalibration.stretched import DenseModel, Stretch
from pipelines.experiments.output import parser, print_table, save
from pipelines.experiments.sharp import PRINTED, SETS, Cases, add_sets, given_sets
from pipelines.experiments.uci import numbers

REPETITIONS = 10
INTERVAL = (0.025, 0.975)
LEVELS = np.array([0.0, 0.005, 0.025, *np.linspace(0.05, 0.95, 19), 0.975, 0.995, 1.0])
FIT_STEPS, FIT_RATE = 20, 0.1
SEARCH_STEPS, SEARCH_RATE = 100, 0.5

SHARP, NOISY, MIXED = "sharp", "sharp, noise", "sharp, noise in the factors only"
PLACES = {
    **dict.fromkeys((SHARP, NOISY, MIXED), 0),
    **dict.fromkeys(("Kuleshov", "Kuleshov, noise"), 1),
    "Marx": 3,
    **dict.fromkeys(("plain", "plain, noise"), 5),
}
"""The distributions, and which of the `PRINTED` ones each is to be compared with."""

METHODS = tuple(PLACES)

SCORES = ("ece", "std", "nll", "width", "inside")

Quantiles = Callable[[Array], Array]
"""Quantiles (L, q) of a distribution about its centre at the test cases, of levels (L,)."""


@dataclass(frozen=True)
class Setting:
    """What the published code has for a set: how many cases, and limits of parameters.

    Attributes
    ----------
    cases : int
        For training and calibration; the others are for the test.
    trained : float
        Share of them for training.
    lengthscale, variance, noise : tuple of float
        Limits.
    """

    cases: int
    trained: float
    lengthscale: tuple[float, float]
    variance: tuple[float, float]
    noise: tuple[float, float]


WIDE = (1e-2, 20.0), (1e-5, 25.0), (0.1, 20.0)
SETTINGS = {
    "housing": Setting(404, 0.8, (1e-9, 7.0), (1e-3, 40.0), (1e-3, 7.0)),
    "yacht": Setting(246, 0.8, *WIDE),
    "autompg": Setting(313, 0.75, *WIDE),
    "wine": Setting(1280, 0.6, (1e-2, 10.0), (1e-2, 100.0), (0.1, 1.0)),
    "concrete": Setting(824, 0.4, *WIDE),
}

MEAN_QUALITY = 5.636023
"""Of the wines; the files of uci_datasets are centred."""


def read(folder: Path, name: str, *, repetition: int, most: int | None = None) -> Cases:
    """Draw the cases of a repetition, of all or of ``most``."""
    table = numbers(folder / f"{name}.csv.gz")
    X, y = table[:, :-1], table[:, -1]
    if name == "wine":
        X, y = np.delete(table, -2, axis=1), table[:, -2] + MEAN_QUALITY
    else:
        X = X[:, np.ptp(X, axis=0) > 0.0]
        y = np.exp(y) if name == "yacht" else y
        X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    rows = np.random.default_rng(repetition).permutation(len(table))[:most]
    kept = min(SETTINGS[name].cases, round(0.8 * rows.size))
    parts = np.split(rows, [int(SETTINGS[name].trained * kept), kept])
    return Cases([X[part] for part in parts], [y[part] for part in parts])


def started_prior(X: Array, y: Array, setting: Setting) -> cagp.Prior:
    """Take a few steps of gradient descent from the middle of all limits."""
    p = X.shape[1]
    low, high = np.array([*[setting.lengthscale] * p, setting.variance, setting.noise]).T
    logits = np.zeros(p + 2)
    for _ in range(FIT_STEPS):
        share = expit(logits)
        slope = loss_slope(X, y, low + (high - low) * share)
        logits -= FIT_RATE * slope * (high - low) * share * (1.0 - share)
    found = low + (high - low) * expit(logits)
    return cagp.Prior(cagp.SquaredExponential(tuple(found[:p]), found[p]), found[-1])


def loss_slope(X: Array, y: Array, parameters: Array) -> Array:
    """Slope of the negative log likelihood per case: by lengthscales, variance, noise variance; (p + 2,)."""
    p = X.shape[1]
    lengths, variance, noise = parameters[:p], parameters[p], parameters[-1]
    K = variance * np.exp(-0.5 * cdist(X / lengths, X / lengths, "sqeuclidean"))
    G = K + noise * np.eye(len(X))
    factor = cho_factor(G, lower=True)
    v = cho_solve(factor, y)
    inner = 0.5 * (cho_solve(factor, np.eye(len(X))) - np.outer(v, v)) / len(X)
    weights = inner * K
    total = weights.sum(axis=1)
    squares = 2.0 * (total @ X**2 - np.einsum("ij,ij->j", X, weights @ X))
    return np.array([*squares / lengths**3, total.sum() / variance, np.trace(inner)])


def distributions(
    cases: Cases, setting: Setting, generator: np.random.Generator
) -> tuple[Array, dict[str, Quantiles]]:
    """Errors of the prior's predictions at the test cases (q,), and every distribution about them."""
    (X, X_cal, X_test), (y, y_cal, y_test) = cases.X, cases.y
    prior = started_prior(np.concatenate([X, X_cal]), np.concatenate([y, y_cal]), setting)
    targets = np.concatenate([X_cal, X_test])
    found = cagp.condition(prior, X, y, targets, solver=cagp.Cholesky())
    errors, N = np.concatenate([y_cal, y_test]) - found.mean, len(X_cal)
    model, stretch = DenseModel(prior, X), Stretch(X.shape[1])

    def sharp(noise: float) -> SharpQuantiles:
        known = Errors(errors[:N], np.full(N, noise), np.arange(N))
        search = Search(model, X_cal, stretch, known, reach=np.inf)
        return SharpQuantiles(model, fitted_levels(search, setting, generator), X_test, noise)

    without, noisy = (np.sqrt(found.variance + noise) for noise in (0.0, prior.noise_number))
    noisy_sharp = sharp(prior.noise_number)
    return errors[N:], {
        SHARP: sharp(0.0),
        NOISY: noisy_sharp,
        MIXED: replace(noisy_sharp, noise=0.0),
        "Kuleshov": partial(_by_scores, errors[:N] / without[:N], without[N:]),
        "Kuleshov, noise": partial(_by_scores, errors[:N] / noisy[:N], noisy[N:]),
        "Marx": partial(_by_scores, errors[:N], np.ones(len(X_test))),
        "plain": partial(_normal, without[N:]),
        "plain, noise": partial(_normal, noisy[N:]),
    }


def _by_scores(scores: Array, std: Array, levels: Array) -> Array:
    return np.asarray(np.quantile(scores, levels)[:, None] * std)


def _normal(std: Array, levels: Array) -> Array:
    return np.asarray(norm.ppf(np.clip(levels, 1e-5, 1.0 - 1e-5))[:, None] * std)


@dataclass(frozen=True, eq=False)
class Level:
    """Factor of one level, and lengthscales (p,)."""

    level: float
    factor: float
    lengths: Array


def fitted_levels(search: Search, setting: Setting, generator: np.random.Generator) -> list[Level]:
    """Find factors and lengthscales of `LEVELS`, from the outermost of each side inwards; in ascending order.

    A factor may not be larger than the one before; one that would be belongs to the level that it reaches.
    """
    errors = search.known.errors
    below, found = np.mean(errors <= 0.0), []
    for sign, levels in ((-1.0, LEVELS[below > LEVELS]), (1.0, LEVELS[below < LEVELS][::-1])):
        if not levels.size:
            continue
        visit, lengths = _descended(search, levels[0], setting, generator)
        largest = np.inf
        for level in levels:
            factor = visit.at(_place(level, errors.size))[0]
            if np.sign(factor) != sign:
                continue
            if abs(factor) > largest:
                factor = sign * largest
                apart = np.sort(errors - factor * np.sqrt(visit.squares))
                level = float(np.interp(0.0, apart, np.linspace(0.0, 1.0, errors.size)))
            largest = abs(factor)
            found.append(Level(level, factor, lengths))
    return sorted(found, key=lambda each: each.level)


def _place(level: float, count: int) -> float:
    """Level ``i / (N + 1)`` of the order statistic that the published code has at ``(i - 1) / (N - 1)``."""
    return ((count - 1) * level + 1.0) / (count + 1)


def _descended(
    search: Search, level: float, setting: Setting, generator: np.random.Generator
) -> tuple[Visit, Array]:
    """Lower the mean of squared half-widths of a level from every start; the best visit, its lengthscales.

    At a limit the slope by the logit is zero, and a start stays where it is.
    """
    first = np.array(search.model.prior.kernel.parts[0].lengthscale)
    low, high = 1e-3 * setting.lengthscale[0], setting.lengthscale[1]
    place, count, visited = _place(level, search.known.errors.size), search.known.errors.size, []
    inside = first, generator.uniform(low, high, first.size)
    for start, steps in ((low, 0), (high, 0), *((each, SEARCH_STEPS) for each in inside)):
        share = (np.broadcast_to(start, first.shape) - low) / (high - low)
        for step in range(steps + 1):
            lengths = low + (high - low) * share
            visited.append((search.visit(np.log(first / lengths)), lengths))
            if step < steps:
                slope = -visited[-1][0].width(place).slope / lengths / count
                logits = logit(share) - SEARCH_RATE * slope * (high - low) * share * (1.0 - share)
                share = expit(logits)
    return min(visited, key=lambda each: each[0].at(place)[1])


@dataclass(frozen=True, eq=False)
class SharpQuantiles:
    """Quantiles of a sharp distribution: factors and lengthscales linear between the levels found."""

    model: DenseModel
    levels: list[Level]
    X_test: Array
    noise: float

    def __call__(self, levels: Array) -> Array:
        """Quantiles (L, q)."""
        known = [each.level for each in self.levels]
        table = np.array([[each.factor, *each.lengths] for each in self.levels])
        factors, *lengths = (np.interp(levels, known, column) for column in table.T)
        wanted, rows = np.unique(np.transpose(lengths), axis=0, return_inverse=True)
        first, stretch = np.array(self.model.prior.kernel.parts[0].lengthscale), Stretch(len(lengths))
        std = [
            np.sqrt(self.model.at(self.X_test, np.log(first / row), stretch).variance + self.noise)
            for row in wanted
        ]
        return np.asarray(factors[:, None] * np.array(std)[rows.ravel()])


def scored(quantiles: Quantiles, errors: Array) -> Array:
    """`SCORES` of a distribution, for errors (q,) at the test cases."""
    found = quantiles(np.concatenate([LEVELS, np.linspace(0.0, 1.0, 21), INTERVAL]))
    many, few, (lower, upper) = np.split(found, [len(LEVELS), len(LEVELS) + 21])
    log_score = _log_score(few, errors)
    few[-1] = 0.0
    return np.array(
        [
            np.mean((np.mean(errors <= many, axis=1) - LEVELS) ** 2),
            few.std(axis=0).mean(),
            log_score,
            np.mean(upper - lower),
            np.mean((lower < errors) & (errors < upper)),
        ]
    )


def _log_score(found: Array, errors: Array) -> float:
    """Mean log of the difference of the quantiles around each error times their number; infinities left out.

    An error below all quantiles counts for the topmost interval, one above all for the lowest.
    """
    place = np.sum(found < errors, axis=0) - 1
    last = len(found) - 2
    interval = np.where(place < 0, last, np.where(place > last, 0, place))
    differences = np.take_along_axis(np.diff(found, axis=0), interval[None], axis=0)
    return float(np.mean(np.log(len(found) * differences[differences > 0.0])))


def repeated(folder: Path, name: str, *, repetitions: int, most: int | None) -> Array:
    """Scores (R, methods, scores)."""
    found = np.empty((repetitions, len(METHODS), len(SCORES)))
    for repetition in range(repetitions):
        cases = read(folder, name, repetition=repetition, most=most)
        errors, made = distributions(cases, SETTINGS[name], np.random.default_rng([repetition, 1]))
        found[repetition] = [scored(made[method], errors) for method in METHODS]
        print(f"{name}: repetition {repetition + 1} of {repetitions}", flush=True)
    return found


def rows(data: xr.Dataset) -> Iterator[Sequence[str]]:
    """Lines of the table: means over repetitions, standard errors of widths, and the printed values."""
    for name in data["set"].values:
        for method in METHODS:
            part = data.sel(set=name, distribution=method)
            theirs = [f" ({each})" for each in PRINTED[name].split("|")[PLACES[method]].split()]
            means = [float(part[score].mean()) for score in SCORES]
            error = float(part.width.std(ddof=1)) / np.sqrt(part.sizes["repetition"])
            cells = [f"{mean:.3g}{each}" for mean, each in zip(means, [*theirs, ""], strict=True)]
            yield name, method, *cells[:3], f"{means[3]:.3g} ± {error:.2g}{theirs[3]}", cells[4]


def main(arguments: Sequence[str] | None = None) -> None:
    """Read, fit, score, print and save."""
    command = parser(__doc__)
    add_sets(command, SETS, repetitions=REPETITIONS)
    chosen = command.parse_args(arguments)
    names = given_sets(command, chosen, SETS)
    repetitions, most = (2, 150) if chosen.quick else (chosen.repetitions, None)
    found = {name: repeated(chosen.data, name, repetitions=repetitions, most=most) for name in names}
    scores, dims = np.array(list(found.values())), ("set", "repetition", "distribution")
    data = xr.Dataset(
        {name: (dims, scores[..., index]) for index, name in enumerate(SCORES)},
        coords={"set": np.array(list(found), dtype=object), "distribution": np.array(METHODS, dtype=object)},
        attrs={"title": "Table 1 of Capone, Hirche and Pleiss (2023), set up as published"},
    )
    print()
    print_table(
        ("set", "distribution", "ECE (printed)", "STD", "NLL", "width of 95 %, s.e.", "inside"), rows(data)
    )
    save(chosen.output / "sharp-as-published.zarr", data)


if __name__ == "__main__":
    main()
