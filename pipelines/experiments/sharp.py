"""Sharp calibrated GPs against recalibration on UCI sets: Table 1 of Capone, Hirche & Pleiss (2023).

    python -m pipelines.experiments.sharp [--quick] [--output FOLDER] [--data FOLDER] [--sets NAME ...]
        [--repetitions COUNT] [--starting]

FOLDER has ``NAME.csv.gz`` for every set, a row of numbers for each case with the target last. In every
repetition 60 % of the cases are for training, 20 % for calibration and 20 % for the test, drawn by chance;
columns and target are standardised by the training cases. A squared exponential kernel with a lengthscale for
each column is fitted to the training cases by maximum likelihood.

Distributions are compared by their quantiles at 25 levels from 0.025 to 0.975: those of the fitted prior as
it is, of one curve over standardised errors (Kuleshov et al. 2018), of the conformal system with random
numbers (Vovk et al. 2020), of one width for all points (Marx et al. 2022), of a network (Kuleshov & Deshpande
2022) where PyTorch is installed, and of sharp GPs, with the same calibration cases for lengthscales and
factors, as in the paper, and with different ones, which keeps the guarantee. With ``--starting`` nothing is
fitted and standard deviations leave the noise out. The set-up of the published code, which hardly fits its
prior either, is in ``sharp_as_published``.

Prints tables, draws ``sharp.png`` and writes ``sharp.zarr``.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import numpy as np
import xarray as xr

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.calibration.recalibration.order_statistics import fewest, q_lin
from cagp_dist.calibration.recalibration.sharp import Sharp, table_with_tails
from cagp_dist.calibration.recalibration.stretched import DenseModel
from cagp_dist.predictive import Gaussian
from pipelines.experiments.other_recalibrations import Vovk
from pipelines.experiments.output import COLOURS, drawn, few_colours, parser, print_table, save
from pipelines.experiments.quantile_network import QuantileNetwork
from pipelines.experiments.uci import DATA, available, numbers

SETS = ("housing", "yacht", "autompg", "wine", "concrete")
REPETITIONS = 5
LEVELS = np.linspace(0.025, 0.975, 25)
SHARP, SPLIT, CENTRE, SHARES = "sharp", "sharp, three-way", "centre", "shares"
METHODS = (SHARP, SPLIT, "Kuleshov", "Vovk", "Marx", "network", "plain")
SCORES = ("ece", "std", "nll", "width", "crps", "interval")

MOST_TRAINED = 500
"""Calibration cases that the network is trained with, as in the paper."""

HOPELESS = 100.0
"""A mean log score beyond this is that of distributions whose outermost quantiles nearly agree."""

STARTING = float(np.log(2.0))
"""Lengthscales, variance and noise variance where GPyTorch begins to learn if they have no limits."""

LEAST_NOISE = 1e-6
"""Of standard deviations without noise: none is zero."""

PRINTED = {
    "housing": ".003 .16 .21 .76 | .0029 .31 .39 1.4 | .0029 .3 .4 1.4 | .0029 .33 .42 1.4 | "
    ".0056 .22 -.24 .73 | .041 1.9 1.6 7.4",
    "yacht": ".0044 .16 .26 .76 | .0043 .5 .68 2.3 | .0044 .47 .69 2.3 | .0043 .5 .68 2.3 | "
    ".0081 .14 -2 .3 | .039 2.8 2 11",
    "autompg": ".0036 .13 .032 .6 | .0035 .38 .63 1.7 | .0035 .38 .64 1.8 | .0035 .38 .63 1.7 | "
    ".0053 .29 .02 .96 | .044 2.8 2 11",
    "wine": ".00047 .54 1.2 2.1 | .00047 1 1.3 3.8 | .00047 1 1.3 3.8 | .00047 .88 1.3 3.9 | "
    ".0067 .72 -.36 2.8 | .0058 1.4 1.4 5.4",
    "concrete": ".00071 .25 .72 .93 | .00064 .64 1.1 2.5 | .00064 .64 1.1 2.5 | .00064 .64 1.1 2.5 | "
    ".00076 .57 .85 2.1 | .032 2.8 2 11",
}
"""ECE, standard deviation, NLL, width of 95 %: of sharp, Kuleshov, Vovk, Marx, network and plain."""


@dataclass(frozen=True, eq=False)
class Cases:
    """Cases of one repetition.

    Attributes
    ----------
    X, y : list of array, (n_i, p), (n_i,)
        For training, for calibration and for the test.
    """

    X: list[Array]
    y: list[Array]

    @classmethod
    def read(cls, folder: Path, name: str, *, repetition: int, most: int | None = None) -> Self:
        """Draw cases, of all or of ``most``, standardised by those for training, without constant columns."""
        table = numbers(folder / f"{name}.csv.gz")
        rows = np.random.default_rng(repetition).permutation(len(table))[:most]
        parts = np.split(table[rows], [round(0.6 * rows.size), round(0.8 * rows.size)])
        centre, scale = parts[0].mean(axis=0), parts[0].std(axis=0)
        varies = scale > 1e-9 * np.abs(parts[0]).max(axis=0)
        parts = [((part - centre) / np.where(varies, scale, 1.0))[:, varies] for part in parts]
        return cls([part[:, :-1] for part in parts], [part[:, -1] for part in parts])


def fitted_prior(X: Array, y: Array) -> cagp.Prior:
    """Fit a squared exponential with a lengthscale for each column, about zero."""
    return cagp.fit(cagp.SquaredExponential, X, y, mean=0.0, anisotropic=True, method="dense").prior


def quantiles(cases: Cases, *, starting: bool = False) -> dict[str, Array]:
    """Give quantiles (25, q) and centre of every distribution at the test cases.

    Beside them "shares", (25,): the sum of squared widths of sharp quantiles over the calibration cases, over
    that of the unchanged prior.
    """
    (X, X_cal, X_test), (y, y_cal, _) = cases.X, cases.y
    if starting:
        prior = cagp.Prior(cagp.SquaredExponential((STARTING,) * X.shape[1], STARTING), STARTING)
        noise = LEAST_NOISE
    else:
        prior = fitted_prior(X, y)
        noise = prior.noise_number
    found = cagp.condition(prior, X, y, np.concatenate([X_cal, X_test]), solver=cagp.Cholesky())
    distribution = Gaussian(found.mean, np.sqrt(found.variance + noise))
    known, new = distribution[: len(X_cal)], distribution[len(X_cal) :]
    model, outermost = DenseModel(prior, X), 1.0 / len(X_cal)
    sharp = Sharp(model, (outermost, *LEVELS, 1.0 - outermost), anisotropic=True, split="two-way")
    fitted = sharp.fit(known, y_cal, X_cal)
    unchanged = known.std * q_lin(LEVELS, known.normal_score(y_cal))[:, None]
    at_known = fitted.quantiles(known, X_cal)[1:-1] - known.mean
    distributions = {
        SHARP: np.sort(fitted.quantiles(new, X_test), axis=0)[1:-1],
        SHARES: np.sum(at_known**2, axis=1) / np.sum(unchanged**2, axis=1),
        "Kuleshov": new.mean + new.std * q_lin(LEVELS, known.normal_score(y_cal))[:, None],
        "Vovk": Vovk().fit(known, y_cal)(new).quantile(LEVELS),
        "Marx": new.mean + q_lin(LEVELS, y_cal - known.mean)[:, None],
        "plain": new.quantile(LEVELS),
        CENTRE: new.mean,
    }
    if find_spec("torch") is not None:
        network = QuantileNetwork(tuple(LEVELS)).fit(known[:MOST_TRAINED], y_cal[:MOST_TRAINED])
        distributions["network"] = network(new).quantile(LEVELS)
    if len(X_cal) // 2 >= fewest(LEVELS[0]):
        split = Sharp(model, tuple(LEVELS), anisotropic=True)
        distributions[SPLIT] = np.sort(split.fit(known, y_cal, X_cal).quantiles(new, X_test), axis=0)
    return distributions


def scored(found: Array, centre: Array, y: Array) -> Array:
    """Score quantiles (25, q) about a centre (q,) against values (q,): `SCORES`, means over cases."""
    distribution = table_with_tails(LEVELS, found, centre)
    lower, upper = found[[0, -1]]
    beyond = np.maximum(lower - y, 0.0) + np.maximum(y - upper, 0.0)
    each = (
        (np.mean(y <= found, axis=1) - LEVELS) ** 2,
        distribution.std,
        -distribution.log_density(y),
        upper - lower,
        distribution.crps(y),
        upper - lower + 2.0 / 0.05 * beyond,
    )
    return np.array([values.mean() for values in each])


def repeated(
    folder: Path, name: str, *, repetitions: int, most: int | None, starting: bool
) -> tuple[Array, Array]:
    """Scores (R, methods, scores), NaN where a split has too few cases, and shares (R, 25)."""
    shares = np.empty((repetitions, LEVELS.size))
    scores = np.full((repetitions, len(METHODS), len(SCORES)), np.nan)
    for repetition in range(repetitions):
        cases = Cases.read(folder, name, repetition=repetition, most=most)
        distributions = quantiles(cases, starting=starting)
        shares[repetition] = distributions[SHARES]
        for row, method in enumerate(METHODS):
            if method in distributions:
                scores[repetition, row] = scored(distributions[method], distributions[CENTRE], cases.y[2])
        print(f"{name}: repetition {repetition + 1} of {repetitions}", flush=True)
    return scores, shares


def results(found: dict[str, tuple[Array, Array]]) -> xr.Dataset:
    """Put all scores together."""
    scores, shares = (np.array(each) for each in zip(*found.values(), strict=True))
    dims = ("set", "repetition", "distribution")
    return xr.Dataset(
        {
            **{name: (dims, scores[..., index]) for index, name in enumerate(SCORES)},
            SHARES: (("set", "repetition", "level"), shares),
        },
        coords={"set": np.array(list(found), dtype=object), "distribution": np.array(METHODS, dtype=object)},
        attrs={"title": "Table 1 of Capone, Hirche and Pleiss (2023)"},
    )


def rows(data: xr.Dataset) -> Iterator[Sequence[str]]:
    """Lines of Table 1: means over repetitions, and the printed values behind them."""
    places = {SHARP: 0, "Kuleshov": 1, "Vovk": 2, "Marx": 3, "network": 4, "plain": 5}
    for name in data["set"].values:
        for method in METHODS:
            means = {score: float(data[score].sel(set=name, distribution=method).mean()) for score in SCORES}
            if np.isnan(means["ece"]):
                continue
            cells = [f"> {HOPELESS:g}" if mean > HOPELESS else f"{mean:.3g}" for mean in means.values()]
            if method in places:
                theirs = PRINTED[name].split("|")[places[method]].split()
                cells[:4] = [f"{ours} ({each})" for ours, each in zip(cells, theirs, strict=False)]
            yield name, method, *cells


def share_rows(data: xr.Dataset) -> Iterator[Sequence[str]]:
    """Lines of the comparison with the unchanged prior, level by level; means over repetitions."""
    for name in data["set"].values:
        each = data[SHARES].sel(set=name)
        worse = float((each > 1.0 + 1e-9).sum("level").mean())
        yield name, f"{float(each.mean()):.3f}", f"{float(each.max()):.2f}", f"{worse:.1f}"


def draw(path: Path, data: xr.Dataset) -> None:
    """Draw the widths of 95 % intervals and the CRPS of every method, in units of those of one curve."""
    colours = dict(zip(METHODS, (*COLOURS.values(), "#b0508f"), strict=True))
    with drawn(path, width_inches=8.0, height_inches=3.0) as figure:
        panels = figure.subplots(1, 2, sharey=True)
        places = np.arange(data.sizes["set"])[::-1]
        for axes, score, title in zip(
            panels, ("width", "crps"), ("mean width of 95 % intervals", "CRPS"), strict=True
        ):
            ratio = (data[score] / data[score].sel(distribution="Kuleshov")).mean("repetition")
            for method in METHODS:
                if bool(ratio.sel(distribution=method).isnull().all()):
                    continue
                axes.plot(
                    ratio.sel(distribution=method),
                    places,
                    "o",
                    color=colours[method],
                    label=method,
                    markersize=5,
                )
            axes.axvline(1.0, color=COLOURS["truth"], linewidth=0.8, zorder=0)
            axes.set_title(f"{title}, times Kuleshov", loc="left", fontsize=9)
        panels[0].set_yticks(places, list(data["set"].values))
        figure.legend(
            *panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=7, frameon=False
        )


def add_sets(command: argparse.ArgumentParser, sets: Sequence[str], *, repetitions: int) -> None:
    """Let a command line take the folder of the sets, which of them, and how many splits of each."""
    command.add_argument("--data", type=Path, default=DATA, help="folder of the sets (%(default)s)")
    command.add_argument("--sets", nargs="+", choices=sets, help="the sets (all that are there)")
    command.add_argument(
        "--repetitions", type=int, default=repetitions, help="splits of each set (%(default)s)"
    )


def given_sets(
    command: argparse.ArgumentParser, chosen: argparse.Namespace, sets: Sequence[str]
) -> list[str]:
    """Names of the sets that were chosen, which are all there."""
    if chosen.repetitions < 1:
        command.error(f"--repetitions is {chosen.repetitions}; expected at least 1.")
    return available(chosen.data, chosen.sets, sets)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read, fit, score, print, draw and save."""
    command = parser(__doc__)
    add_sets(command, SETS, repetitions=REPETITIONS)
    command.add_argument("--starting", action="store_true", help="do not fit the prior, leave the noise out")
    chosen = command.parse_args(arguments)
    names = given_sets(command, chosen, SETS)
    repetitions, most = (1, 220) if chosen.quick else (chosen.repetitions, None)
    data = results(
        {
            name: repeated(chosen.data, name, repetitions=repetitions, most=most, starting=chosen.starting)
            for name in names
        }
    )
    print()
    print_table(
        ("set", "distribution", "ECE (printed)", "STD", "NLL", "width of 95 %", "CRPS", "interval score"),
        rows(data),
    )
    print("Sums of squared widths over the calibration cases, over those of the unchanged prior\n")
    print_table(("set", "mean", "largest of a level", "levels above 1, of 25"), share_rows(data))
    draw(chosen.output / "sharp.png", data)
    few_colours(chosen.output / "sharp.png")
    save(chosen.output / "sharp.zarr", data)


if __name__ == "__main__":
    main()
