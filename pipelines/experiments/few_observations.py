"""What intervals hold where observations are few: numbers known, plugged in, integrated over, averaged.

    python -m pipelines.experiments.few_observations [--quick] [--output FOLDER]

Fields with a lengthscale of 0.1 to 0.3 of the side of a square, ten degrees of the sphere, and a noise of a
tenth of the variance are observed at random places and mapped by `cagp_dist.krige` at others: with the
numbers they were drawn from; with those of maximum likelihood, beside a mean that was fitted before (ML) and
one that is estimated (REML); and integrated over. Prints how many values of the field central intervals hold,
with the standard error over fields, how wide they are, the error of the mean, and processor time.

Then six kinds of fields of `pipelines.experiments.kernel_rules` from 30 observations, integrated over the
numbers of the likeliest kernel, over those of the one with the smallest leave-one-out CRPS, which is chosen,
and over all kernels that are nearly as good, as by default. Last, how many of the numbers themselves their
90 % intervals hold: numbers that are drawn from the prior over them, and the same ones in all fields.
"""

import time
import warnings
from collections.abc import Iterator, Sequence

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.spatial.distance import pdist
from scipy.special import ndtri

import cagp_dist as cagp
from cagp_dist.kernels import Family
from cagp_dist.likelihood.exact import hyperprior
from cagp_dist.likelihood.exact.integrated import Held, SharedFields, integrate, joined
from cagp_dist.likelihood.kernel_choice import CANDIDATES, kernel_probabilities
from cagp_dist.predictive import Mixture
from pipelines.experiments.kernel_rules import MARGIN, field_of, usual_unless
from pipelines.experiments.output import parser, print_table

Array = NDArray[np.float64]

SEED, SIMULATIONS, QUICK_SIMULATIONS = 0, 200, 10
OBSERVED, PREDICTED = (12, 30, 100, 200), 60
SIDE_DEGREES, SHORTEST, LONGEST, NOISE_VARIANCE = 10.0, 0.1, 0.3, 0.1
LEVELS = (0.9, 0.95)

KINDS = ("plain", "rough", "smooth", "trend", "t3 noise", "lognormal")
SEED_OF_KINDS, SEED_OF_NUMBERS, OF_KIND, QUICK_OF_KIND, BARS = 43, 11, 100, 1, (0.5, 0.9, 0.99)
OF_NUMBERS = 2000  # Fields, so that the standard error of a share is 0.7 %
FIXED = {"lengthscale": 0.04, "variance": 4.0, "noise_variance": 0.5}
MEAN = cagp.mean_family("constant")


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
            with warnings.catch_warnings(
                action="ignore", category=UserWarning
            ):  # of fits that end flat, or at a bound
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


def averaged(kind: str, n: int, generator: np.random.Generator) -> dict[str, list[float]]:
    """Map a field of a kind each way, and give what bars hold."""
    case = field_of(kind, n, generator)
    found = cagp.fit("auto", case.X, case.y, mean=MEAN)
    assert found.choice is not None
    families = [family for family in CANDIDATES if family.__name__ in found.choice.log_likelihoods]
    likelihoods = np.array([found.choice.log_likelihoods[family.__name__] for family in families])
    probabilities = kernel_probabilities(found, n)
    likeliest = families[usual_unless(likelihoods, MARGIN, usual=0)]
    ways: dict[str, dict[Family, float]] = {
        "likeliest": {likeliest: 1.0},
        "chosen": {next(iter(probabilities)): 1.0},
        "averaged": probabilities,
    }
    fields = SharedFields(case.X, case.y[:, None], cagp.Prior(found.prior.kernel, 1.0, MEAN), np.ones(n))
    each = {family: integrate(family(1.0), [fields], held=Held()) for family in {likeliest, *probabilities}}
    held = {}
    for way, of in ways.items():
        posterior = joined([each[family] for family in of], list(of.values()))
        distribution = Mixture(*posterior.predict(fields, case.X_new))
        pit = distribution.cdf(case.truth[None])
        held[way] = [float(np.mean(np.abs(pit - 0.5) <= 0.5 * bar)) for bar in BARS]
    return held


def numbers_held(n: int, generator: np.random.Generator, *, drawn_from_prior: bool) -> list[bool]:
    """Whether 90 % intervals hold lengthscale, variance and noise variance of a field that is drawn."""
    X = cagp.unit_sphere(generator.uniform(45.0, 55.0, n), generator.uniform(0.0, 15.0, n))
    true, extent = dict(FIXED), float(pdist(X).max())
    median = hyperprior.MEDIAN_LENGTHSCALE * extent
    if drawn_from_prior:
        true["lengthscale"] = 0.0
        while not hyperprior.SHORTEST * extent < true["lengthscale"] < hyperprior.LONGEST * extent:
            true["lengthscale"] = median * np.log(2.0) / -np.log(generator.uniform())
        share = generator.uniform() ** 2
        true["noise_variance"] = true["variance"] * share / (1.0 - share)
    kernel = cagp.Matern32(true["lengthscale"], true["variance"])
    root = np.linalg.cholesky(kernel(X, X) + (true["noise_variance"] + 1e-9) * np.eye(n))
    y = root @ generator.standard_normal((n, 1))
    fields = SharedFields(X, y, cagp.Prior(kernel, 1.0, MEAN), np.ones(n))
    found = integrate(kernel, [fields], held=Held()).quantiles((0.05, 0.95))
    return [bool(found[name][0] <= value <= found[name][1]) for name, value in true.items()]


def print_kinds(fields: int) -> None:
    """Map fields of each kind, each way, and print what bars hold, with standard errors over fields."""
    rows: list[Sequence[str]] = []
    for number, kind in enumerate(KINDS):
        found = [
            averaged(kind, OBSERVED[1], np.random.default_rng([SEED_OF_KINDS, OBSERVED[1], number, field]))
            for field in range(fields)
        ]
        for way in found[0]:
            held = np.array([each[way] for each in found])
            errors = held.std(axis=0) / np.sqrt(fields)
            shares = zip(held.mean(axis=0), errors, strict=True)
            rows.append((kind, way, *(f"{share:.3f} ± {error:.3f}" for share, error in shares)))
    print(f"{OBSERVED[1]} observations, {fields} fields of each kind\n")
    print_table(("kind", "kernel", *(f"{bar:.0%} bars hold" for bar in BARS)), rows)


def print_numbers(fields: int) -> None:
    """Print how often intervals hold the numbers themselves."""
    rows: list[Sequence[str]] = []
    for n in OBSERVED[1:3]:
        for numbers, drawn_from_prior in (("of the prior", True), ("the same", False)):
            generator = np.random.default_rng([SEED_OF_NUMBERS, n])
            held = [numbers_held(n, generator, drawn_from_prior=drawn_from_prior) for _ in range(fields)]
            rows.append((f"{n}", numbers, *(f"{share:.3f}" for share in np.mean(held, axis=0))))
    print(f"90 % intervals of numbers, {fields:,} fields\n")
    print_table(("observations", "true numbers", *FIXED), rows)


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
    with warnings.catch_warnings(
        action="ignore", category=UserWarning
    ):  # of fits that end flat, or at a bound
        print_kinds(QUICK_OF_KIND if chosen.quick else OF_KIND)
        print_numbers(QUICK_SIMULATIONS if chosen.quick else OF_NUMBERS)


if __name__ == "__main__":
    main()
