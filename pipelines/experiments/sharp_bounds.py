"""Bounds that all values should keep: Table 2 of Capone, Hirche & Pleiss (2023), on UCI sets.

    python -m pipelines.experiments.sharp_bounds [--quick] [--output FOLDER] [--data FOLDER] [--sets NAME ...]
        [--repetitions COUNT] [--steps COUNT]

FOLDER and the cases of a repetition are those of ``pipelines.experiments.sharp``, whose fitted prior theta_0
is taken too. Compared are, by the share of the test values outside and the mean width:

- sharp: the outermost order statistics of the calibration cases, N of them, of sharp GPs.
- bounding: ``mu_0 +- b sigma'`` of Capone, Lederer & Hirche (2022). Parameters are drawn from their posterior
  by random-walk Metropolis steps, the largest deviations from theta_0 are left out, and the rest gives the
  shortest and the longest lengthscale of each column, l' and l'', and the largest variance and noise
  variance. sigma' is the standard deviation with l' and these, and b that of the published code, at most
  sqrt(8).
- theorem: the same with ``b = gamma sqrt(2)``, ``gamma^2 = prod l'' / l'``. For squared exponential kernels
  ``gamma sigma'`` is no less than sigma of any parameters in between.

Prints a table, draws ``sharp-bounds.png`` and writes ``sharp-bounds.zarr``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from scipy.linalg import LinAlgError, cho_factor, cho_solve

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.calibration.recalibration.sharp import Sharp
from cagp_dist.calibration.recalibration.stretched import DenseModel
from cagp_dist.predictive import Gaussian
from pipelines.experiments.output import COLOURS, drawn, few_colours, parser, print_table, save
from pipelines.experiments.sharp import Cases, add_sets, fitted_prior, given_sets

SETS = ("housing", "autompg", "wine")
LAWS = ("sharp", "bounding", "theorem")
REPETITIONS, STEPS, QUICK_STEPS = 5, 6000, 300

MOST = 300
"""Training cases that the posterior of the parameters is worked out from."""

LIMITS = {"lengthscale": (1e-2, 20.0), "variance": (1e-2, 25.0), "noise": (1e-3, 1.0)}
"""Parameters have uniform priors between these, the limits that the published code has for autompg."""

KEPT = 0.95
"""Part of the draws that the bounding parameters hold."""

ROOT_BETA, ZETA, LARGEST = np.sqrt(2.0), 0.1, np.sqrt(8.0)
"""Factor of a single standard deviation, its addition, and the largest factor, as in the published code."""

PRINTED = {
    "housing": {"sharp": (0.00376, 1.2), "bounding": (0.000172, 28.3)},
    "autompg": {"sharp": (0.004, 1.7), "bounding": (0.0065, 24.13)},
    "wine": {"sharp": (0.00072, 4.7), "bounding": (0.00096, 24.8)},
}
"""Share of violations (RUEBV) and width (CI100) of Table 2."""


@dataclass(frozen=True)
class Bounding:
    """The prior theta', and gamma, the factor that its standard deviations need by the theorem."""

    prior: cagp.Prior
    gamma: float

    @classmethod
    def around(cls, chosen: cagp.Prior, draws: Array) -> "Bounding":
        """From draws (S, p + 2) of lengthscales, variance and noise variance, and theta_0, which it holds.

        Draws are left out by their largest deviation from theta_0 in any parameter, in logarithms.
        """
        centre = np.log(_parameters(chosen))
        deviation = np.abs(np.log(draws) - centre).max(axis=1)
        near = draws[np.argsort(deviation)[: max(1, round(KEPT * len(draws)))]]
        held = np.vstack([near, np.exp(centre)])
        lower, upper = held.min(axis=0), held.max(axis=0)
        kernel = cagp.SquaredExponential(tuple(lower[:-2]), upper[-2])
        return cls(cagp.Prior(kernel, upper[-1]), float(np.sqrt(np.prod(upper[:-2] / lower[:-2]))))

    @property
    def published_factor(self) -> float:
        """Factor b of the published code."""
        return float(min(LARGEST, self.gamma * np.sqrt(ROOT_BETA + ZETA)))


def _parameters(prior: cagp.Prior) -> Array:
    return np.array([*prior.kernel.parts[0].lengthscale, prior.kernel.variance, prior.noise_number])


def draws_of_parameters(X: Array, y: Array, start: cagp.Prior, *, steps: int, seed: int) -> Array:
    """Draw lengthscales, variance and noise variance from their posterior, shape (steps / 2, p + 2).

    Metropolis steps on the scale of logarithms, the second half of them; a step goes along the covariance of
    the steps before, which is brought up to date during the first half only.
    """
    generator = np.random.default_rng(seed)
    size = X.shape[1] + 2
    names = ("lengthscale",) * (size - 2) + ("variance", "noise")
    low, high = np.log([LIMITS[name] for name in names]).T
    x = np.clip(np.log(_parameters(start)), low, high)
    value, chain = _log_posterior(X, y, x), np.empty((steps, size))
    spread = 0.1 * np.eye(size) / np.sqrt(size)
    for step in range(steps):
        if step and step < steps // 2 and step % 100 == 0:
            covariance = np.cov(chain[step // 2 : step].T) + 1e-4 * np.eye(size)
            spread = 2.4 / np.sqrt(size) * np.linalg.cholesky(covariance)
        proposal = x + spread @ generator.standard_normal(size)
        there = bool(np.all((low <= proposal) & (proposal <= high)))
        proposed = _log_posterior(X, y, proposal) if there else -np.inf
        if np.log(generator.uniform()) < proposed - value:
            x, value = proposal, proposed
        chain[step] = x
    return np.exp(chain[steps // 2 :])


def _log_posterior(X: Array, y: Array, x: Array) -> float:
    """Log density of the logarithms x, up to a constant; priors of the parameters themselves are uniform."""
    parameters = np.exp(x)
    G = cagp.SquaredExponential(tuple(parameters[:-2]), parameters[-2])(X, X)
    G[np.diag_indices(len(G))] += parameters[-1]
    try:
        factor = cho_factor(G, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return -np.inf
    fit = y @ cho_solve(factor, y, check_finite=False)
    return float(x.sum() - 0.5 * fit - np.log(np.diagonal(factor[0])).sum())


def bounds(cases: Cases, *, steps: int, seed: int) -> tuple[dict[str, tuple[Array, Array]], float]:
    """Lower and upper bounds of every distribution at the test cases, each (q,), and gamma."""
    (X, X_cal, X_test), (y, y_cal, _) = cases.X, cases.y
    prior = fitted_prior(X, y)
    found = cagp.condition(prior, X, y, np.concatenate([X_cal, X_test]), solver=cagp.Cholesky())
    distribution = Gaussian(found.mean, np.sqrt(found.variance + prior.noise_number))
    known, new = distribution[: len(X_cal)], distribution[len(X_cal) :]
    ends = 1.0 / len(X_cal), 1.0 - 1.0 / len(X_cal)
    sharp = Sharp(DenseModel(prior, X), ends, anisotropic=True, split="two-way")
    lower, upper = sharp.fit(known, y_cal, X_cal).quantiles(new, X_test)
    draws = draws_of_parameters(X[:MOST], y[:MOST], prior, steps=steps, seed=seed)
    bounding = Bounding.around(prior, draws)
    wide = cagp.condition(bounding.prior, X, y, X_test, solver=cagp.Cholesky())
    std = np.sqrt(wide.variance)
    return {
        "sharp": (lower, upper),
        "bounding": _about(new.mean, bounding.published_factor * std),
        "theorem": _about(new.mean, bounding.gamma * ROOT_BETA * std),
    }, bounding.gamma


def _about(centre: Array, distance: Array) -> tuple[Array, Array]:
    return centre - distance, centre + distance


def results(
    data: Path, names: Sequence[str], *, repetitions: int, steps: int, most: int | None
) -> xr.Dataset:
    """Share outside and mean width of every distribution, and gamma, for each set and repetition."""
    outside, width = np.empty((2, len(names), repetitions, len(LAWS)))
    gamma = np.empty(outside.shape[:2])
    for row, name in enumerate(names):
        for repetition in range(repetitions):
            cases = Cases.read(data, name, repetition=repetition, most=most)
            found, gamma[row, repetition] = bounds(cases, steps=steps, seed=repetition)
            for column, distribution in enumerate(LAWS):
                lower, upper = found[distribution]
                missed = (cases.y[2] < lower) | (cases.y[2] > upper)
                outside[row, repetition, column] = missed.mean()
                width[row, repetition, column] = np.mean(upper - lower)
            print(f"{name}: repetition {repetition + 1} of {repetitions}", flush=True)
    dims = ("set", "repetition", "distribution")
    return xr.Dataset(
        {"outside": (dims, outside), "width": (dims, width), "gamma": (dims[:2], gamma)},
        coords={"set": np.array(names, dtype=object), "distribution": np.array(LAWS, dtype=object)},
        attrs={"title": "Table 2 of Capone, Hirche and Pleiss (2023)"},
    )


def rows(data: xr.Dataset) -> Iterator[Sequence[str]]:
    """Lines of the table: means over repetitions, and the printed values behind them."""
    for name in data["set"].values:
        for distribution in LAWS:
            part = data.sel(set=name, distribution=distribution)
            cells = [f"{float(part[score].mean()):.3g}" for score in ("outside", "width")]
            if distribution in PRINTED[name]:
                cells = [
                    f"{cell} ({each:g})"
                    for cell, each in zip(cells, PRINTED[name][distribution], strict=True)
                ]
            yield name, distribution, *cells
        yield name, "gamma, middle one", "", f"{float(data.gamma.sel(set=name).median()):.3g}"


def draw(path: Path, data: xr.Dataset) -> None:
    """Draw share outside against width of every repetition."""
    with drawn(path, width_inches=8.0, height_inches=2.8) as figure:
        panels = np.atleast_1d(figure.subplots(1, data.sizes["set"], sharey=True))
        for axes, name in zip(panels, data["set"].values, strict=True):
            for distribution, colour in zip(LAWS[:2], COLOURS.values(), strict=False):
                part = data.sel(set=name, distribution=distribution)
                axes.plot(
                    part.width, 100.0 * part.outside, "o", color=colour, label=distribution, markersize=5
                )
            axes.set_xscale("log")
            axes.set_xticks([1.0, 3.0, 10.0, 30.0], ["1", "3", "10", "30"])
            axes.set_title(name, loc="left", fontsize=9)
        panels[0].set_ylabel("test values outside [%]")
        figure.supxlabel("mean width, in standard deviations of the target", fontsize=9)
        figure.legend(
            *panels[0].get_legend_handles_labels(), loc="outside upper right", ncols=2, frameon=False
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Read, fit, draw parameters, count, print, draw and save."""
    command = parser(__doc__)
    add_sets(command, SETS, repetitions=REPETITIONS)
    command.add_argument("--steps", type=int, default=STEPS, help="Metropolis steps (%(default)s)")
    chosen = command.parse_args(arguments)
    if chosen.steps < QUICK_STEPS:
        command.error(f"--steps is {chosen.steps}; expected at least {QUICK_STEPS}.")
    names = given_sets(command, chosen, SETS)
    repetitions, steps, most = (
        (1, QUICK_STEPS, 220) if chosen.quick else (chosen.repetitions, chosen.steps, None)
    )
    data = results(chosen.data, names, repetitions=repetitions, steps=steps, most=most)
    print()
    print_table(("set", "distribution", "outside (printed)", "width"), rows(data))
    draw(chosen.output / "sharp-bounds.png", data)
    few_colours(chosen.output / "sharp-bounds.png")
    save(chosen.output / "sharp-bounds.zarr", data)


if __name__ == "__main__":
    main()
