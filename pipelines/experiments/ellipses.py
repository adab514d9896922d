"""What an ellipse in place of a circle is worth, and what it costs where the field has no direction.

    python -m pipelines.experiments.ellipses [--quick] [--output FOLDER] [--data FOLDER]

Fields of a Matern 3/2 kernel whose ellipse has the ratio 3 and an azimuth drawn at random, and fields without
a direction, are observed at 300 random places of a square, with a noise of an eighth of the variance, and
mapped by `cagp_dist.krige` at 200 others: with the numbers they were drawn from, with circles that are
fitted, and with ``anisotropy="fit"`` and ``"auto"``. Prints the CRPS of the field in units of that of the
true numbers, how many values intervals hold, each with its standard error over fields, and the ellipse.

With ``--data`` ten public tables in a plane, those of ``kernel_rules``, are mapped as well, with nothing set
and with ``anisotropy="auto"``: mean absolute and root mean square errors, CRPS of what was held out, and the
ellipse.
"""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import xarray as xr
from numpy.typing import NDArray

import cagp_dist as cagp
from cagp_dist.predictive import Gaussian
from pipelines.experiments.kernel_rules import tables
from pipelines.experiments.output import parser, print_table
from pipelines.proof.problems import of_observations

Array = NDArray[np.float64]

SEED, SIMULATIONS, QUICK_SIMULATIONS = 0, 40, 2
OBSERVED, PREDICTED, SIDE, LENGTHSCALE = 300, 200, 100.0, 15.0
VARIANCE, NOISE_VARIANCE, RATIO = 4.0, 0.5, 3.0
LEVELS = (0.5, 0.9, 0.99)


def drawn(
    ratio: float, generator: np.random.Generator
) -> tuple[dict[str, Array], dict[str, Array], Array, cagp.Prior]:
    """Draw observations, where the field is predicted, the field there, and the prior of both."""
    X = generator.uniform(0.0, SIDE, (OBSERVED + PREDICTED, 2))
    azimuth = generator.uniform(0.0, 180.0)
    kernel = cagp.Anisotropic(cagp.Matern32(LENGTHSCALE, VARIANCE), ratio, azimuth)
    root = np.linalg.cholesky(kernel(X, X) + 1e-9 * np.eye(len(X)))
    field = 10.0 + root @ generator.standard_normal(len(X))
    value = field[:OBSERVED] + np.sqrt(NOISE_VARIANCE) * generator.standard_normal(OBSERVED)
    x, y = X.T
    observed = {"x": x[:OBSERVED], "y": y[:OBSERVED], "value": value}
    prior = cagp.Prior(kernel, NOISE_VARIANCE, cagp.mean_family("constant"))
    return observed, {"x": x[OBSERVED:], "y": y[OBSERVED:]}, field[OBSERVED:], prior


def ways(prior: cagp.Prior) -> dict[str, dict[str, object]]:
    """Give the settings of the maps that are compared."""
    return {
        "known": {"prior": prior},
        "circles": {"kernel": "matern32"},
        '"fit"': {"kernel": "matern32", "anisotropy": "fit"},
        '"auto"': {"kernel": "matern32", "anisotropy": "auto"},
    }


def simulated(ratio: float, *, simulations: int, seed: int = SEED) -> xr.Dataset:
    """Map so many fields each way.

    Returns
    -------
    Dataset
        ``crps`` over way and simulation, ``inside`` over way, simulation and level, and of the ellipses
        ``ratio`` (1 for circles) and ``turned``, degrees from the true azimuth.
    """
    generator, names = (
        np.random.default_rng([seed, round(ratio)]),
        list(ways(cagp.Prior(cagp.Matern32(1.0), 1.0))),
    )
    crps, found_ratio, turned = np.ones((3, len(names), simulations))
    inside = np.empty((len(names), simulations, len(LEVELS)))
    for number in range(simulations):
        observed, wanted, truth, prior = drawn(ratio, generator)
        for way, settings in enumerate(ways(prior).values()):
            with warnings.catch_warnings(action="ignore", category=UserWarning):  # of fits that end flat
                result = cagp.krige(
                    observed, columns={"x": "x", "y": "y"}, to=wanted, progress=False, **settings
                )
            field = Gaussian(result["mean"].values, result["std"].values)
            crps[way, number] = field.crps(truth).mean()
            found_ratio[way, number] = result.attrs.get("anisotropy_ratio", 1.0)
            azimuth = result.attrs.get("anisotropy_azimuth_degrees", np.nan) - prior.kernel.azimuth_degrees
            turned[way, number] = (azimuth + 90.0) % 180.0 - 90.0
            for index, level in enumerate(LEVELS):
                low, high = field.quantile([0.5 - 0.5 * level, 0.5 + 0.5 * level])
                inside[way, number, index] = np.mean((low <= truth) & (truth <= high))
    return xr.Dataset(
        {
            "crps": (("way", "simulation"), crps),
            "ratio": (("way", "simulation"), found_ratio),
            "turned": (("way", "simulation"), turned),
            "inside": (("way", "simulation", "level"), inside),
        },
        coords={"way": names, "level": list(LEVELS)},
    )


def rows(ratio: float, found: xr.Dataset) -> Iterator[Sequence[str]]:
    """Lines of the table: each way."""
    count = np.sqrt(found.sizes["simulation"])
    over = found.crps / found.crps.sel(way="known")
    for way in found.way.values:
        of_way = found.sel(way=way)
        shares = (of_way.inside.sel(level=level) for level in LEVELS)
        turned = float(np.sqrt((of_way.turned**2).mean()))
        yield (
            f"{ratio:g}",
            str(way),
            f"{of_way.crps.mean() / found.crps.sel(way='known').mean():.3f} "
            f"± {over.sel(way=way).std() / count:.3f}",
            *(f"{share.mean():.3f} ± {share.std() / count:.3f}" for share in shares),
            f"{of_way.ratio.median():.2f}",
            "" if np.isnan(turned) or ratio == 1.0 else f"{turned:.0f}",
        )


def public_rows(folder: Path) -> Iterator[Sequence[str]]:
    """Lines of public tables, without a direction and with one where the likelihood gains enough."""
    for name, case in tables(folder):
        seen, wanted = (dict(zip("xy", X.T, strict=True)) for X in (case.X, case.X_new))
        cells = []
        for settings in ({}, {"anisotropy": "auto"}):
            with warnings.catch_warnings(action="ignore", category=UserWarning):  # of fits that end flat
                found = cagp.krige(
                    seen | {"value": case.y},
                    to=wanted,
                    columns={"x": "x", "y": "y"},
                    progress=False,
                    **settings,
                )
            error = found["mean"].values - case.truth
            crps = of_observations(found).crps(case.truth).mean()
            scores = np.abs(error).mean(), np.sqrt(np.mean(error**2)), crps
            cells.append(", ".join(f"{score:.4g}" for score in scores))
        ellipse = [found.attrs.get(f"anisotropy_{of}", np.nan) for of in ("ratio", "azimuth_degrees")]
        yield name, *cells, "" if np.isnan(ellipse).any() else "{:.1f}, {:.0f}".format(*ellipse)


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate and print."""
    command = parser(__doc__)
    command.add_argument("--data", type=Path, help="folder whose folder geostat has the public tables")
    chosen = command.parse_args(arguments)
    simulations = QUICK_SIMULATIONS if chosen.quick else SIMULATIONS
    table: list[Sequence[str]] = []
    for ratio in (RATIO, 1.0):
        table += rows(ratio, simulated(ratio, simulations=simulations))
    print(f"{simulations} fields each, {OBSERVED} observations, {PREDICTED} places\n")
    shares = (f"{level:.0%} intervals hold" for level in LEVELS)
    head = ("true ratio", "numbers", "CRPS over known", *shares, "ratio, median", "azimuth off, degrees")
    print_table(head, table)
    if chosen.data is not None:
        print_table(("table", "without a direction", '"auto"', "ratio, azimuth"), public_rows(chosen.data))


if __name__ == "__main__":
    main()
