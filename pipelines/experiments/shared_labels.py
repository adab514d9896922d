"""What several variables in one call are worth, and what errors that ships share cost who ignores them.

    python -m pipelines.experiments.shared_labels [--quick] [--geostat FOLDER] [--output FOLDER]

*Variables*: two fields of a Matern 3/2 kernel with correlation .8, one seen at 40 places and the other at
160, 100 of which are other places; the map of the first at 100 places alone and together. *Ships*: 200
ships with 3 rows each, whose shared error has twice the standard deviation of the noise; maps without and
with ``bias_by``, and the errors of the ships. *Many rows*: 1,000 ships with 100 rows each, scattered and
along tracks, whose field is drawn by Vecchia's factor, mapped by neighbours with the numbers that made it;
one field each. Prints CRPS of the field, intervals and their standard errors over fields. With the folder
of the public tables also cadmium of the Swiss Jura (Goovaerts 1997) with nickel and zinc, which are known
at the 100 places of validation, all seven metals alone, and the log-likelihood of the errors of forecasts
of pressure and temperature together and apart (Gneiting, Kleiber & Schlather 2010).
"""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import cagp_dist as cagp
from cagp_dist.gram.vecchia_factor import vecchia_factor
from cagp_dist.predictive import Gaussian
from cagp_dist.runtime import open_executor
from pipelines.experiments.output import parser, print_table

Array = NDArray[np.float64]

SEED, SIMULATIONS, QUICK_SIMULATIONS = 0, 12, 1
LENGTHSCALE, VARIANCE, NOISE_VARIANCE = 0.05, 4.0, 0.25
SPARSE, DENSE, PREDICTED, SHIPS, ROWS = 40, 160, 100, 200, 3
MANY, MANY_SHIPS, STEP_DEGREES = 100_000, 1_000, 0.15
SPAN = (70.0, 106.0)  # degrees north and east, so that there are as many rows in each area
DRAWN_FROM = 40  # rows that the field of each is drawn from
METALS = ("Cd", "Co", "Cr", "Cu", "Ni", "Pb", "Zn")
FAMILIES = ("matern12", "matern32", "matern52")


def _fields(places: Array, table: Array, generator: np.random.Generator) -> Array:
    """Draw fields (m, n) at latitudes and longitudes (n, 2) whose covariances at a place are the table."""
    P = cagp.unit_sphere(*places.T)
    root = np.linalg.cholesky(cagp.Matern32(LENGTHSCALE)(P, P) + 1e-9 * np.eye(len(P)))
    return np.linalg.cholesky(table) @ (root @ generator.standard_normal((len(P), len(table)))).T


def _scored(mean: Array, std: Array, truth: Array) -> tuple[float, float]:
    """CRPS, and the part inside 90 % intervals."""
    return (
        float(Gaussian(mean, std).crps(truth).mean()),
        float(np.mean(np.abs(truth - mean) < 1.645 * std)),
    )


def of_variables(generator: np.random.Generator) -> dict[str, tuple[float, float]]:
    """Map one pair of fields: scores of the first alone and together with the second."""
    places = generator.uniform([45.0, 0.0], [55.0, 15.0], (DENSE + PREDICTED, 2))
    first, second = 10.0 + _fields(places, VARIANCE * np.array([[1.0, 0.8], [0.8, 1.0]]), generator)
    noise = np.sqrt(NOISE_VARIANCE) * generator.standard_normal((2, DENSE))
    table = pd.DataFrame(places[:DENSE], columns=["latitude", "longitude"])
    table["a"], table["b"] = first[:DENSE] + noise[0], second[:DENSE] + noise[1]
    table.loc[SPARSE:, "a"] = np.nan
    to = pd.DataFrame(places[DENSE:], columns=["latitude", "longitude"])
    alone = cagp.krige(table, to=to, value="a", progress=False)
    both = cagp.krige(table, to=to, value=["a", "b"], progress=False)
    truth = first[DENSE:]
    return {
        "alone": _scored(alone["mean"].values, alone["std"].values, truth),
        "together": _scored(both["a_mean"].values, both["a_std"].values, truth),
    }


def of_ships(generator: np.random.Generator) -> dict[str, tuple[float, float]]:
    """Map the field that ships with errors of their own saw: scores of both maps, and of the errors."""
    n = SHIPS * ROWS
    places = generator.uniform([45.0, 0.0], [55.0, 15.0], (n + PREDICTED, 2))
    (field,) = 10.0 + _fields(places, np.array([[VARIANCE]]), generator)
    ship, biases = np.arange(n) % SHIPS, 2.0 * np.sqrt(NOISE_VARIANCE) * generator.standard_normal(SHIPS)
    table = pd.DataFrame(places[:n], columns=["latitude", "longitude"])
    table["sst"] = field[:n] + biases[ship] + np.sqrt(NOISE_VARIANCE) * generator.standard_normal(n)
    table["ship"] = [f"ship {number}" for number in ship]
    to = pd.DataFrame(places[n:], columns=["latitude", "longitude"])
    without = cagp.krige(table, to=to, value="sst", progress=False)
    with_ships = cagp.krige(table, to=to, value="sst", bias_by="ship", progress=False)
    own = with_ships.cagp.biases()
    true = biases[[int(str(name).removeprefix("ship ")) for name in own["ship"].values]]
    return {
        "without": _scored(without["mean"].values, without["std"].values, field[n:]),
        'bias_by="ship"': _scored(with_ships["mean"].values, with_ships["std"].values, field[n:]),
        "errors of the ships": _scored(own["mean"].values, own["std"].values, true),
    }


def _far_and_wide(rows: int, ships: int, generator: np.random.Generator, *, tracks: bool) -> Array:
    """Places (rows, 2) of ships that sail straight on, or of readings anywhere."""
    span = np.array(SPAN) * np.sqrt(rows / MANY)
    if not tracks:
        return generator.uniform([0.0, 0.0], span, (rows, 2))
    ship, step = np.arange(rows) % ships, np.arange(rows) // ships
    course = generator.normal(size=(ships, 2))
    course *= STEP_DEGREES / np.linalg.norm(course, axis=1, keepdims=True)
    begin = generator.uniform([0.0, 0.0], span, (ships, 2))
    return begin[ship] + step[:, None] * course[ship]


def of_many_rows(rows: int, ships: int, *, tracks: bool) -> Iterator[Sequence[str]]:
    """Lines of a map from many rows, without and with ``bias_by``, and of the errors of the ships.

    The numbers are those that made them; without ``bias_by`` errors of ships are noise.
    """
    generator = np.random.default_rng([SEED, rows, tracks])
    seen = _far_and_wide(rows, ships, generator, tracks=tracks)
    new = generator.uniform([0.0, 0.0], seen.max(axis=0), (2_000, 2))
    X = cagp.unit_sphere(*np.vstack([seen, new]).T)
    with open_executor("local") as executor:
        factor = vecchia_factor(
            cagp.Matern32(LENGTHSCALE, VARIANCE), X, 1e-6, neighbours=DRAWN_FROM, executor=executor
        )
    field = 10.0 + factor.draw(generator.standard_normal(len(X)))
    ship, biases = np.arange(rows) % ships, 2.0 * np.sqrt(NOISE_VARIANCE) * generator.standard_normal(ships)
    table = pd.DataFrame(seen, columns=["latitude", "longitude"]).assign(ship=ship)
    table["sst"] = field[:rows] + biases[ship] + np.sqrt(NOISE_VARIANCE) * generator.standard_normal(rows)
    to = pd.DataFrame(new, columns=["latitude", "longitude"])
    name = f"{rows:,} rows, {'tracks' if tracks else 'scattered'}"
    for way in (None, "ship"):
        kernel: cagp.Kernel = cagp.Matern32(LENGTHSCALE, VARIANCE)
        prior = cagp.Prior(kernel, 5.0 * NOISE_VARIANCE, 10.0)
        if way is not None:
            shared = cagp.SameLabel(4.0 * NOISE_VARIANCE, axis=way)
            prior = cagp.Prior(kernel + shared, NOISE_VARIANCE, 10.0)
        found = cagp.krige(table, to=to, value="sst", prior=prior, bias_by=way, progress=False)
        crps, inside = _scored(found["mean"].values, found["std"].values, field[rows:])
        yield name, "without" if way is None else 'bias_by="ship"', f"{crps:.3f}", f"{inside:.3f}"
    own = found.cagp.biases()
    crps, inside = _scored(own["mean"].values, own["std"].values, biases[own["ship"].values.astype(int)])
    yield name, "errors of the ships", f"{crps:.3f}", f"{inside:.3f}"


def simulated(simulations: int) -> Iterator[Sequence[str]]:
    """Lines of the table of simulated fields."""
    for name, draw in (("variables", of_variables), ("ships", of_ships)):
        generator = np.random.default_rng([SEED, len(name)])
        found = [draw(generator) for _ in range(simulations)]
        for way in found[0]:
            scores = np.array([each[way] for each in found])
            error = scores.std(axis=0) / np.sqrt(simulations)
            yield (
                name,
                way,
                f"{scores[:, 0].mean():.3f} ± {error[0]:.3f}",
                f"{scores[:, 1].mean():.3f} ± {error[1]:.3f}",
            )


def of_jura(folder: Path) -> Iterator[Sequence[str]]:
    """Lines of the table of metals: each alone, and cadmium together with nickel and zinc."""
    train, valid = (pd.read_csv(folder / f"jura_{part}.csv") for part in ("train", "valid"))
    plane, to = {"x": "x_km", "y": "y_km"}, valid[["x_km", "y_km"]]
    for metal in METALS:
        found = cagp.krige(train, to=to, columns=plane, value=metal, progress=False)
        yield metal, "alone", f"{np.abs(found['mean'].values - valid[metal].values).mean():.3f}"
    everywhere = pd.concat([train, valid.assign(Cd=np.nan)], ignore_index=True)
    for together in (False, True):
        found = cagp.krige(
            everywhere,
            to=to,
            columns=plane,
            value=["Cd", "Ni", "Zn"],
            nugget_correlation=together,
            progress=False,
        )
        error = np.abs(found["Cd_mean"].values - valid["Cd"].values).mean()
        yield "Cd", f"with Ni and Zn{', nuggets together' * together}", f"{error:.3f}"


def _log_likelihood(model: cagp.Kriging) -> float:
    """Log-likelihood of a fit."""
    assert model.fit_result_ is not None
    assert model.fit_result_.log_likelihood is not None
    return model.fit_result_.log_likelihood


def of_weather(folder: Path) -> Iterator[Sequence[str]]:
    """Lines of log-likelihoods with means of zero: the best of three kernels for each variable, and both."""
    table, names = pd.read_csv(folder / "weather.csv"), ["pressure", "temperature"]
    apart = 0.0
    for name in names:
        given = {"value": name, "mean": 0.0, "hyperparameters": "plug-in", "progress": False}
        models = [cagp.Kriging(kernel=family, **given).fit(table) for family in FAMILIES]
        apart += max(_log_likelihood(model) for model in models)
    both = cagp.Kriging(value=names, mean=0.0, progress=False).fit(table)
    # which was fitted in units of the standard deviations
    scales = sum(len(table) * np.log(table[name].std(ddof=0)) for name in names)
    yield "apart", f"{apart:.1f}"
    yield "together", f"{_log_likelihood(both) - scales:.1f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate, read, and print."""
    asked = parser(__doc__)
    asked.add_argument("--geostat", type=Path, help="folder with jura_train.csv, weather.csv and the like")
    chosen = asked.parse_args(arguments)
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # of fits that end flat
        simulations = QUICK_SIMULATIONS if chosen.quick else SIMULATIONS
        print(f"{simulations} fields each\n")
        print_table(("simulated", "map", "CRPS", "90% intervals hold"), list(simulated(simulations)))
        rows, ships = (MANY // 20, MANY_SHIPS // 20) if chosen.quick else (MANY, MANY_SHIPS)
        many = [line for tracks in (False, True) for line in of_many_rows(rows, ships, tracks=tracks)]
        print("\nOne field each\n")
        print_table(("simulated", "map", "CRPS", "90% intervals hold"), many)
        if chosen.geostat is not None:
            print("\nJura, mean absolute error at 100 places\n")
            print_table(("metal", "map", "MAE"), list(of_jura(chosen.geostat)))
            print("\nErrors of forecasts at 157 stations\n")
            print_table(("pressure and temperature", "log-likelihood"), list(of_weather(chosen.geostat)))


if __name__ == "__main__":
    main()
