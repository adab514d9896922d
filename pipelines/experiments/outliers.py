"""Values that are wrong: maps beside them, and how many flags of a check are false.

    python -m pipelines.experiments.outliers [--quick] [--output FOLDER]

Fields are drawn at random places in 45-55 N, 0-15 E: Matern 3/2, chord lengthscale 0.04, variance 4, mean 10,
noise variance 0.5. A share of the values has an error of 8 to 20, up or down, instead of the noise; *t3* has
0.75 t_3 / sqrt 3 for noise. First `cagp_dist.krige` maps each field with ``outliers="keep"`` and
``outliers="robust"`` at 150 other places, and its CRPS there is divided by that of kriging with the true
numbers, which knows what is wrong. Then `cagp_dist.check` flags values; what is false is counted over all
flags of a row. A seed is of each field, so that any can be drawn again.
"""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import cagp_dist as cagp
from cagp_dist.predictive import Gaussian
from pipelines.experiments.output import parser, print_table

Array = NDArray[np.float64]

SEED, PREDICTED, RATE = 26, 150, 0.05
KERNEL, NOISE, MEAN = cagp.Matern32(0.04, 4.0), 0.5, 10.0
LEVELS = {"50 %": 0.6745, "90 %": 1.6449, "99 %": 2.5758}  # half widths of intervals
MAPPED = {30: 20, 100: 10, 300: 6}  # fields of each number of observations
KINDS = {"plain": 0.0, "1 %": 0.01, "2 %": 0.02, "5 %": 0.05, "t3": 0.0}
CHECKED = {100: 40, 300: 20, 4_000: 2}
QUICK = {100: 1}
WRONG = 1e8  # noise variance of what is known to be wrong


@dataclass(frozen=True)
class Case:
    """A field, observed with errors that are known here."""

    places: Array  # (n, 2), latitude and longitude
    values: Array  # (n,)
    wrong: NDArray[np.bool_]  # (n,)
    others: Array  # (q, 2)
    truth: Array  # (q,)

    @property
    def table(self) -> dict[str, Array]:
        """Columns as they are mapped."""
        return {"latitude": self.places[:, 0], "longitude": self.places[:, 1], "value": self.values}


def case(kind: str, n: int, seed: int, *, others: int = PREDICTED) -> Case:
    """Draw a field of a kind."""
    generator = np.random.default_rng([SEED, n, list(KINDS).index(kind), seed])
    side = max(1.0, n / 300.0) ** 0.5  # of the region: more than 300 are as dense as these
    places = np.column_stack(
        [
            generator.uniform(50.0 - 5.0 * side, 50.0 + 5.0 * side, n + others),
            generator.uniform(0.0, 15.0 * side, n + others),
        ]
    )
    X = cagp.unit_sphere(*places.T)
    root = np.linalg.cholesky(KERNEL(X, X) + 1e-8 * np.eye(n + others))
    field = MEAN + root @ generator.standard_normal(n + others)
    error = np.sqrt(NOISE) * generator.standard_normal(n)
    if kind == "t3":
        error = 0.75 * generator.standard_t(3, n) / np.sqrt(3.0)
    wrong = generator.random(n) < KINDS[kind]
    gross = generator.uniform(8.0, 20.0, n) * generator.choice([-1.0, 1.0], n)
    values = field[:n] + np.where(wrong, gross, error)
    return Case(places[:n], values, wrong, places[n:], field[n:])


def known(drawn: Case) -> Gaussian:
    """Predict with the true numbers, and by what is right."""
    noise = np.where(drawn.wrong, WRONG, NOISE)
    X, there = cagp.unit_sphere(*drawn.places.T), cagp.unit_sphere(*drawn.others.T)
    mean = cagp.BasisMean(lambda X: np.ones((len(X), 1)), ("constant",))
    found = cagp.condition(cagp.Prior(KERNEL, noise, mean), X, drawn.values, there, solver=cagp.Cholesky())
    return Gaussian(found.mean, np.sqrt(found.variance))


def mapped(drawn: Case, outliers: str) -> tuple[Gaussian, float]:
    """Map a field with nothing else said; also how long that took."""
    began = time.process_time()
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        found = cagp.krige(
            drawn.table,
            to={"latitude": drawn.others[:, 0], "longitude": drawn.others[:, 1]},
            outliers=outliers,  # type: ignore[arg-type]
            progress=False,
        )
    return Gaussian(found["mean"].values.ravel(), found["std"].values.ravel()), time.process_time() - began


def map_row(kind: str, n: int, fields: int) -> Sequence[str]:
    """Average over fields of a kind: CRPS over that of true numbers, and what intervals hold."""
    crps: dict[str, list[float]] = {"true": [], "keep": [], "robust": []}
    held: dict[str, list[list[float]]] = {"keep": [], "robust": []}
    seconds: dict[str, list[float]] = {"keep": [], "robust": []}
    for seed in range(fields):
        drawn = case(kind, n, seed)
        crps["true"].append(float(known(drawn).crps(drawn.truth).mean()))
        for way in ("keep", "robust"):
            found, taken = mapped(drawn, way)
            crps[way].append(float(found.crps(drawn.truth).mean()))
            away = np.abs(drawn.truth - found.mean) / found.std
            held[way].append([float(np.mean(away < half)) for half in LEVELS.values()])
            seconds[way].append(taken)
    ratios = [f"{np.mean(crps[way]) / np.mean(crps['true']):.3f}" for way in held]
    bars = [" ".join(f"{share:.3f}" for share in np.mean(held[way], axis=0)) for way in held]
    return kind, f"{n}", *ratios, *bars, *(f"{np.mean(seconds[way]):.1f} s" for way in seconds)


def check_row(kind: str, n: int, fields: int) -> Sequence[str]:
    """Count hits and false flags over fields of a kind."""
    hits, false, wrong, shares, began = 0, 0, 0, [], time.process_time()
    for seed in range(fields):
        drawn = case(kind, n, 1_000 + seed, others=0)
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            found = cagp.check(drawn.table, rate=RATE, kernel="matern32", progress=False)
        flags = found["flag"].to_numpy()
        own = int((flags & ~drawn.wrong).sum())
        hits, false, wrong = (
            hits + int((flags & drawn.wrong).sum()),
            false + own,
            wrong + int(drawn.wrong.sum()),
        )
        shares.append(own / max(int(flags.sum()), 1))
    taken = (time.process_time() - began) / fields
    error = np.std(shares) / np.sqrt(fields)
    share = f"{np.mean(shares):.3f} ± {error:.3f}"
    return kind, f"{n:,}", f"{fields}", f"{wrong}", f"{hits}", f"{false}", share, f"{taken:.1f} s"


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate and print."""
    chosen = parser(__doc__).parse_args(arguments)
    print(f"CRPS over that of true numbers, and what bars of {', '.join(LEVELS)} hold\n")
    head = ("kind", "observations", "keep", "robust", "bars, keep", "bars, robust", "time, keep", "robust")
    sizes = QUICK if chosen.quick else MAPPED
    print_table(head, [map_row(kind, n, fields) for n, fields in sizes.items() for kind in KINDS])
    print(f"Flags at a rate of {RATE:g}; the share of false ones is the mean over fields\n")
    head = ("kind", "observations", "fields", "wrong", "hits", "false flags", "share of false", "time")
    sizes = QUICK if chosen.quick else CHECKED
    print_table(
        head, [check_row(kind, n, fields) for n, fields in sizes.items() for kind in KINDS if kind != "t3"]
    )


if __name__ == "__main__":
    main()
