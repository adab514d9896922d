"""Thirteen kinds of data: maps with nothing set, with what a result proposes, and with the true numbers.

    python -m pipelines.experiments.kinds [--quick] [--kinds KIND ...] [--n N ...] [--fields COUNT]

Fields of the kinds of `pipelines.experiments.kernel_rules` are drawn at n random places in 45-55 N, 0-15 E
and mapped by `cagp_dist.krige` at 150 others. *Zeros* are lognormal fields whose z, noise included, is made
rain of 3 (z - 0.3)^1.7, or none where it is below 0.3. *Today* is a call with nothing set. Its result may say
in ``values_advice`` or ``suspicious_values`` which argument helps: *proposed* is the call with that. *All* is
``transform="auto"``, ``outliers="robust"`` and ``anisotropy="auto"`` together, on plain fields.

Prints the CRPS of the field as a ratio of means over fields to that of kriging with the covariance, mean and
noise that made it, which knows the transform, which values are wrong, and z where there is no rain; how many
values of the field intervals hold; and for how many fields something is proposed. What lies below zero is
spread evenly over the probability of zero. *Plugged in* are zeros with parameters that count as known once
they are fitted; up to 200 places they are integrated over otherwise. *Censored* are zeros with the true
numbers and transform by a map that sees only where it is dry, which no method knows more about. Standard
errors are over fields.
"""

import re
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import cagp_dist as cagp
from cagp_dist.geometry import degrees
from cagp_dist.kriging.result_distribution import distribution_of
from cagp_dist.predictive import Gaussian, Predictive
from cagp_dist.predictive.transforms import BoxCox, Censored, Transform, Transformed
from pipelines.experiments.kernel_rules import KINDS, Case, covariance, field_of
from pipelines.experiments.output import parser, print_table

Array = NDArray[np.float64]

SEED = 45
FIELDS = {30: 20, 300: 10}
QUICK_FIELDS = {30: 1}
LEVELS = (0.5, 0.9, 0.99)
WRONG = 1e8  # noise variance of what is known to be wrong
NOISE = {"smooth": 0.1, "t3 noise": 0.75**2, "rounded": 0.5 + 1.0 / 12.0}  # variance, 0.5 of others
OF_LOGARITHMS = 0.2**2
ALL = {"transform": "auto", "outliers": "robust", "anisotropy": "auto"}
PROPOSALS = ("values_advice", "suspicious_values")
WAYS = ("today", "proposed", "plugged in", "all", "censored")


@dataclass(frozen=True)
class Rain(Transform):
    """The function behind *zeros*: values above zero are 3 (z - 0.3)^1.7, and others zero."""

    @property
    def end(self) -> float:
        """Below it there is none."""
        return 0.3

    @property
    def text(self) -> str:
        """What it is."""
        return "0.3 + (y / 3)^(1 / 1.7)"

    def forward(self, values: object) -> Array:
        """Give z."""
        return np.asarray(0.3 + (np.asarray(values, dtype=np.float64) / 3.0) ** (1.0 / 1.7))

    def inverse(self, scores: object) -> Array:
        """Give the rain."""
        return np.asarray(3.0 * np.maximum(np.asarray(scores, dtype=np.float64) - 0.3, 0.0) ** 1.7)

    def log_slope(self, values: object) -> Array:
        """Logarithm of the derivative of `forward`."""
        y = np.asarray(values, dtype=np.float64)
        return np.asarray(np.log(y / 3.0) * (1.0 / 1.7 - 1.0) - np.log(3.0 * 1.7))


RAIN = Rain()
POWER = 1.0 / 1.7  # of Box-Cox, by which rain is SLOPE * (z - 0.3) - 1 / POWER
SLOPE = 3.0**POWER / POWER
CENSORED = {
    "transform": Censored(cagp.BoxCox(POWER), -1.0 / POWER),
    "prior": cagp.Prior(cagp.Matern32(0.04, SLOPE**2), SLOPE**2 * OF_LOGARITHMS, -0.3 * SLOPE - 1.0 / POWER),
}


def drawn(kind: str, n: int, seed: int) -> tuple[Case, Predictive]:
    """Draw a field of a kind, and predict it with the numbers that made it."""
    generator = np.random.default_rng([SEED, n, KINDS.index(kind), seed])
    case = field_of("lognormal" if kind == "zeros" else kind, n, generator)
    X = np.concatenate([case.X, case.X_new])
    north, east = degrees(X)
    K, mean, y = covariance(kind, X, north, east), np.full(len(X), 10.0), case.y
    noise = np.full(n, NOISE.get(kind, 0.5))
    if kind in ("lognormal", "zeros"):
        K, mean, noise, y = 0.25 * K, np.zeros(len(X)), np.full(n, OF_LOGARITHMS), np.log(y)
    if kind == "trend":
        mean = mean + 1.2 * (north - 50.0) - 0.5 * (east - 7.5)
    if case.wrong is not None:
        noise[case.wrong] = WRONG
    weights = np.linalg.solve(K[:n, :n] + np.diag(noise), K[:n, n:])
    variance = np.diag(K)[n:] - np.einsum("nq,nq->q", K[:n, n:], weights)
    known: Predictive = Gaussian(mean[n:] + weights.T @ (y - mean[:n]), np.sqrt(variance))
    if kind == "lognormal":
        known = Transformed(known, BoxCox(0.0))
    if kind == "zeros":
        known = Transformed(known, RAIN)
        values, truth = RAIN.inverse(y), RAIN.inverse(np.log(case.truth))
        case = Case(case.X, values, case.X_new, truth, observed=False)
    return case, known


def mapped(case: Case, settings: Mapping[str, object]) -> tuple[Predictive, dict[str, str]]:
    """Map a field; give its distribution, and the arguments that the result proposes."""
    (north, east), (north_new, east_new) = degrees(case.X), degrees(case.X_new)
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # of fits that end flat
        found = cagp.krige(
            {"latitude": north, "longitude": east, "value": case.y},
            to={"latitude": north_new, "longitude": east_new},
            progress=False,
            **settings,  # type: ignore[arg-type]
        )
    said = " ".join(str(found.attrs.get(name, "")) for name in PROPOSALS)
    return distribution_of(found, of="field").distribution, dict(re.findall(r'(\w+)="([\w-]+)"', said))


def held(distribution: Predictive, truth: Array, generator: np.random.Generator) -> list[float]:
    """Give how many values central intervals hold, by the probability integral transform."""
    pit = distribution.cdf(truth)
    if isinstance(distribution, Transformed):  # draw it between 0 and the probability of the least value
        least = np.isclose(truth, distribution.transform.inverse(-np.inf), rtol=0.0, atol=1e-12)
        pit = np.where(least, generator.random(truth.shape) * distribution.least_probability, pit)
    return [float(np.mean(np.abs(pit - 0.5) < 0.5 * level)) for level in LEVELS]


def row(kind: str, n: int, fields: int, way: str, found: list[dict[str, list[float]]]) -> Sequence[str]:
    """Line of the table, of one way of mapping so many fields."""
    crps, *shares = np.array([each[way] for each in found]).T
    known = np.array([each["known"][0] for each in found])
    ratio = crps.mean() / known.mean()
    error = np.std(crps - ratio * known) / known.mean()
    spread = [np.std(share) for share in shares]
    proposed = sum(each["proposals"][0] for each in found)
    return (
        kind,
        f"{n:,}",
        f"{fields}",
        way,
        f"{ratio:.3f} ± {error / np.sqrt(max(fields - 1, 1)):.3f}",
        *(
            f"{share.mean():.3f} ± {each / np.sqrt(max(fields - 1, 1)):.3f}"
            for share, each in zip(shares, spread, strict=True)
        ),
        f"{proposed:.0f}" if way == "proposed" else "",
        f"{np.mean([each[f'{way} seconds'][0] for each in found]):.1f} s",
    )


def rows(kind: str, n: int, fields: int) -> Iterator[Sequence[str]]:
    """Lines of a kind, one for each way."""
    found: list[dict[str, list[float]]] = []
    for seed in range(fields):
        case, known = drawn(kind, n, seed)
        generator = np.random.default_rng([SEED, seed])
        scored = {"known": [float(known.crps(case.truth).mean())]}
        settings: dict[str, Mapping[str, object]] = {"today": {}}
        if kind == "plain":
            settings["all"] = ALL
        if kind == "zeros":
            settings["censored"] = CENSORED
        for way in WAYS:
            began = time.process_time()
            if way == "proposed" and not settings["proposed"]:
                scored[way], scored["proposed seconds"] = scored["today"], scored["today seconds"]
                continue
            if way == "plugged in" and kind == "zeros":
                settings[way] = {**settings["proposed"], "hyperparameters": "plug-in"}
            if way not in settings:
                continue
            distribution, proposals = mapped(case, settings[way])
            settings.setdefault("proposed", proposals)
            scored[way] = [
                float(distribution.crps(case.truth).mean()),
                *held(distribution, case.truth, generator),
            ]
            scored[f"{way} seconds"] = [time.process_time() - began]
        found.append(scored | {"proposals": [float(bool(settings["proposed"]))]})
    for way in WAYS:
        if way in found[0]:
            yield row(kind, n, fields, way, found)


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate and print."""
    command = parser(__doc__)
    command.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, metavar="KIND")
    command.add_argument("--n", nargs="+", type=int, help="observations (30 300)")
    command.add_argument("--fields", type=int, help="fields of each kind")
    chosen = command.parse_args(arguments)
    usual = QUICK_FIELDS if chosen.quick else FIELDS
    sizes = {n: chosen.fields or usual.get(n, 2) for n in chosen.n or usual}
    shares = (f"{level:.0%} intervals hold" for level in LEVELS)
    head = ("kind", "n", "fields", "arguments", "CRPS over known", *shares, "proposed", "time")
    print_table(
        head, (line for n, fields in sizes.items() for kind in chosen.kinds for line in rows(kind, n, fields))
    )


if __name__ == "__main__":
    main()
