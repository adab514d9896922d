"""What intervals hold where observations are few: numbers known, plugged in, and integrated over.

    python -m pipelines.experiments.few_observations [--quick] [--output FOLDER]

Fields with a lengthscale of 0.1 to 0.3 of the side of a square, ten degrees of the sphere, and a noise of a
tenth of the variance are observed at random places and mapped by `cagp_dist.krige` at others: with the
numbers they were drawn from; with those of maximum likelihood, beside a mean that was fitted before (ML) and
one that is estimated (REML); and integrated over. Prints how many values of the field central intervals hold,
with the standard error over fields, how wide they are, the error of the mean, and processor time.
"""

import time
import warnings
from collections.abc import Iterator, Sequence

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import ndtri

import cagp_dist as cagp
from pipelines.experiments.output import parser, print_table

Array = NDArray[np.float64]

SEED, SIMULATIONS, QUICK_SIMULATIONS = 0, 200, 10
OBSERVED, PREDICTED = (12, 30, 100, 200), 60
SIDE_DEGREES, SHORTEST, LONGEST, NOISE_VARIANCE = 10.0, 0.1, 0.3, 0.1
LEVELS = (0.9, 0.95)


def drawn(
    n: int, generator: np.random.Generator
) -> tuple[dict[str, Array], dict[str, Array], Array, cagp.Prior]:
    """Draw n observations, where the field is predicted, the field there, and the prior of both."""
    latitude, longitude = generator.uniform(0.0, SIDE_DEGREES, (2, n + PREDICTED))
    X = cagp.unit_sphere(latitude, longitude)
    lengthscale = generator.uniform(SHORTEST, LONGEST) * np.deg2rad(SIDE_DEGREES)
    kernel = cagp.Matern32(lengthscale)
    root = np.linalg.cholesky(kernel(X, X) + 1e-10 * np.eye(len(X)))
    field = root @ generator.standard_normal(len(X))
    value = field[:n] + np.sqrt(NOISE_VARIANCE) * generator.standard_normal(n)
    observed = {"lat": latitude[:n], "lon": longitude[:n], "value": value}
    wanted = {"lat": latitude[n:], "lon": longitude[n:]}
    return observed, wanted, field[n:], cagp.Prior(kernel, NOISE_VARIANCE, cagp.mean_family("constant"))


def ways(prior: cagp.Prior) -> dict[str, dict[str, object]]:
    """Give the settings of the maps that are compared."""
    return {
        "known": {"prior": prior},
        "ML": {"kernel": "matern32", "hyperparameters": "plug-in"},
        "REML": {"kernel": "matern32", "hyperparameters": "plug-in", "mean": "constant"},
        "integrated over": {"kernel": "matern32", "hyperparameters": "integrate"},
    }


def ends(result: xr.Dataset, level: float) -> tuple[Array, Array]:
    """Lower and upper ends of the central intervals of the field."""
    if "field_quantile" in result:
        quantiles = result["field_quantile"]
        lower, upper = (
            quantiles.sel(quantile_level=0.5 + 0.5 * end, method="nearest") for end in (-level, level)
        )
        return lower.values, upper.values
    half = ndtri(0.5 + 0.5 * level) * result["std"]
    return (result["mean"] - half).values, (result["mean"] + half).values


def simulated(n: int, *, simulations: int, seed: int = SEED) -> xr.Dataset:
    """Map so many fields each way.

    Returns
    -------
    Dataset
        ``inside`` and ``width`` over way, simulation and level, ``squared_error`` and ``seconds`` (processor
        time) over way and simulation.
    """
    generator, names = np.random.default_rng([seed, n]), list(ways(cagp.Prior(cagp.Matern32(1.0), 1.0)))
    inside, width = np.empty((2, len(names), simulations, len(LEVELS)))
    error, seconds = np.empty((2, len(names), simulations))
    for number in range(simulations):
        observed, wanted, truth, prior = drawn(n, generator)
        for way, settings in enumerate(ways(prior).values()):
            started = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # of fits that end flat, or at a bound
                result = cagp.krige(observed, to=wanted, **settings)
            seconds[way, number] = time.process_time() - started
            error[way, number] = np.mean((result["mean"].values - truth) ** 2)
            for index, level in enumerate(LEVELS):
                lower, upper = ends(result, level)
                inside[way, number, index] = np.mean((lower <= truth) & (truth <= upper))
                width[way, number, index] = np.mean(upper - lower)
    return xr.Dataset(
        {
            "inside": (("way", "simulation", "level"), inside),
            "width": (("way", "simulation", "level"), width),
            "squared_error": (("way", "simulation"), error),
            "seconds": (("way", "simulation"), seconds),
        },
        coords={"way": names, "level": list(LEVELS)},
    )


def rows(n: int, found: xr.Dataset) -> Iterator[Sequence[str]]:
    """Lines of the table: each way."""
    share = found.inside.mean("simulation")
    error = found.inside.std("simulation") / np.sqrt(found.sizes["simulation"])
    for way in found.way.values:
        of_way = found.sel(way=way)
        yield (
            f"{n}",
            str(way),
            *(
                f"{share.sel(way=way, level=level):.3f} ± {error.sel(way=way, level=level):.3f}"
                for level in LEVELS
            ),
            f"{of_way.width.sel(level=LEVELS[0]).mean():.2f}",
            f"{np.sqrt(of_way.squared_error.mean()):.3f}",
            f"{of_way.seconds.median():.2f} s",
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate and print."""
    chosen = parser(__doc__).parse_args(arguments)
    simulations = QUICK_SIMULATIONS if chosen.quick else SIMULATIONS
    shares = (f"{level:.0%} intervals hold" for level in LEVELS)
    table: list[Sequence[str]] = []
    for n in OBSERVED[:2] if chosen.quick else OBSERVED:
        table += rows(n, simulated(n, simulations=simulations))
    print(f"{simulations} fields of each number of observations, {PREDICTED} places each\n")
    print_table(("observations", "numbers", *shares, "width of 90%", "RMSE", "processor time"), table)


if __name__ == "__main__":
    main()
