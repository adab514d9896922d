"""Which rule chooses the kernel: likelihood, averages, errors of each place left out, or of blocks.

    python -m pipelines.experiments.kernel_rules [--quick] [--output FOLDER] [--data FOLDER]

Matern 1/2, 3/2 and 5/2 are fitted by restricted maximum likelihood to n observations of a field, thirteen
kinds of which are drawn at random places in 45-55 N, 0-15 E, and to public tables (with --data). Each fit
predicts other places. A rule sees the observations alone and takes one of the three, or their average. Its
regret is its CRPS over the smallest of the three, minus one; 90 % intervals, RMSE and MAE are those of the
rule. ``kernel="auto"`` is what `cagp_dist.fit` takes, `cagp_dist.krige` maps the tables with nothing set.

Leave-one-out and blocks are those of the fitted numbers, with the mean estimated without what is left out.
Beyond 2,000 observations the likelihood is Vecchia's.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2
from scipy.special import ndtri, softmax

import cagp_dist as cagp
from cagp_dist.kernels import Family
from cagp_dist.predictive import Gaussian, Mixture
from pipelines.experiments.output import parser, print_table

Array = NDArray[np.float64]

SEED, PREDICTED, BLOCKS = 26, 150, 10
FAMILIES = (cagp.Matern12, cagp.Matern32, cagp.Matern52)
FIELDS = {30: 30, 100: 20, 300: 5, 3_000: 2}  # of each kind
QUICK_FIELDS = {30: 1}
USUAL = 1  # Matern 3/2, taken unless another is better by `MARGIN`
MARGIN = 2.0
HALF_WIDTH = float(ndtri(0.95))


@dataclass(frozen=True)
class Case:
    """Observations, and what is predicted."""

    X: Array  # (n, p)
    y: Array  # (n,)
    X_new: Array  # (q, p)
    truth: Array  # (q,)
    observed: bool  # whether the truth has the noise of an observation
    wrong: NDArray[np.bool_] | None = None  # (n,) which observations have a gross error


@dataclass(frozen=True)
class Fit:
    """A kernel that was fitted, and what it predicts."""

    log_likelihood: float
    places: Gaussian  # (q,) of what is scored
    each: tuple[Array, Array]  # errors (n,) and standard deviations of each observation by all others
    blocks: tuple[Array, Array]  # those of each by the observations of other blocks


# Kinds of fields -----------------------------------------------------------------------------------------


def field_of(kind: str, n: int, generator: np.random.Generator) -> Case:
    """Draw a field of a kind: kernel, variance, trend and noise as `KINDS` has them."""
    q = PREDICTED
    latitude, longitude = generator.uniform(45.0, 55.0, n + q), generator.uniform(0.0, 15.0, n + q)
    if kind == "clusters":
        centre = generator.integers(6, size=n)
        latitude[:n] = generator.uniform(46.0, 54.0, 6)[centre] + 0.35 * generator.standard_normal(n)
        longitude[:n] = generator.uniform(1.0, 14.0, 6)[centre] + 0.5 * generator.standard_normal(n)
    if kind == "repeats":
        again = n // 3
        latitude[:again], longitude[:again] = latitude[n - again : n], longitude[n - again : n]
    X = cagp.unit_sphere(latitude, longitude)
    K, noise = covariance(kind, X, latitude, longitude), 0.1 if kind == "smooth" else 0.5
    places, first, which = np.unique(X, axis=0, return_index=True, return_inverse=True)
    root = np.linalg.cholesky(K[np.ix_(first, first)] + 1e-8 * np.eye(len(places)))
    z = (root @ generator.standard_normal(len(places)))[which.ravel()]
    if kind == "lognormal":
        truth = np.exp(0.5 * z)
        y = np.exp(0.5 * z[:n] + 0.2 * generator.standard_normal(n))
        return Case(X[:n], y, X[n:], truth[n:], observed=False)
    if kind == "zeros":
        truth = 3.0 * np.maximum(0.5 * z - 0.3, 0.0) ** 1.7
        return Case(X[:n], truth[:n], X[n:], truth[n:], observed=False)
    truth = 10.0 + z
    if kind == "trend":
        truth = truth + 1.2 * (latitude - 50.0) - 0.5 * (longitude - 7.5)
    error = np.sqrt(noise) * generator.standard_normal(n)
    if kind == "t3 noise":
        error = 0.75 * generator.standard_t(3, n) / np.sqrt(3.0)
    bad = None
    if kind == "outliers":
        bad = generator.random(n) < 0.02
        error[bad] = (generator.uniform(8.0, 20.0, n) * generator.choice([-1.0, 1.0], n))[bad]
    y = truth[:n] + error
    return Case(X[:n], np.round(y) if kind == "rounded" else y, X[n:], truth[n:], observed=False, wrong=bad)


def covariance(kind: str, X: Array, latitude: Array, longitude: Array) -> Array:
    """Covariance (N, N) of a field of a kind, variance 4."""
    if kind == "rough":
        return np.asarray(cagp.Matern12(0.08, 4.0)(X, X))
    if kind == "smooth":
        return np.asarray(cagp.Matern52(0.04, 4.0)(X, X))
    if kind == "ellipse":
        east = np.deg2rad(longitude) * np.cos(np.deg2rad(50.0))
        turned = np.column_stack([east, np.deg2rad(latitude)]) @ np.array(
            [[np.cos(0.6), -np.sin(0.6)], [np.sin(0.6), np.cos(0.6)]]
        )
        return np.asarray(cagp.Matern32(0.04, 4.0)(*(2 * [turned * np.array([3.0**-0.5, 3.0**0.5])])))
    K = np.asarray(cagp.Matern32(0.04, 4.0)(X, X))
    if kind == "varying variance":
        scale = np.exp(np.sin(2.0 * np.pi * (longitude - 7.5) / 15.0))
        K = K * np.outer(scale, scale)
    return K


KINDS = (
    "plain", "rough", "smooth", "ellipse", "varying variance", "trend", "t3 noise", "outliers", "clusters",
    "rounded", "repeats", "lognormal", "zeros",
)  # fmt: skip


# Public tables -------------------------------------------------------------------------------------------


def tables(folder: Path) -> Iterator[tuple[str, Case]]:
    """Public tables in a plane: rain, gamma dose rates without and with an accident, and seven metals."""
    geostat = folder / "geostat"
    for name, train, valid, (x, y), value in (
        ("SIC97 rain", "sic97_train", "sic97_valid", ("x_km", "y_km"), "rain_tenth_mm"),
        ("SIC2004 routine", "sic2004_train", "sic2004_valid", ("x", "y"), "routine"),
        ("SIC2004 joker", "sic2004_train", "sic2004_valid", ("x", "y"), "joker"),
        *(
            (f"Jura {metal}", "jura_train", "jura_valid", ("x_km", "y_km"), metal)
            for metal in ("Cd", "Co", "Cr", "Cu", "Ni", "Pb", "Zn")
        ),
    ):
        given, left = (pd.read_csv(geostat / f"{part}.csv") for part in (train, valid))
        yield (
            name,
            Case(
                given[[x, y]].to_numpy(dtype=np.float64),
                given[value].to_numpy(dtype=np.float64),
                left[[x, y]].to_numpy(dtype=np.float64),
                left[value].to_numpy(dtype=np.float64),
                observed=True,
            ),
        )


# Fits and rules ------------------------------------------------------------------------------------------


def fitted(case: Case, family: Family, generator: np.random.Generator) -> Fit:
    """Fit a kernel and predict: dense formulas, with a constant that is estimated (math 1.7)."""
    n = len(case.y)
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        mean = cagp.BasisMean(lambda X: np.ones((len(X), 1)), ("constant",))
        found = cagp.fit(family, case.X, case.y, mean=mean)
    kernel, noise = found.prior.kernel, found.prior.noise_number
    G = kernel(case.X, case.X) + noise * np.eye(n)
    inverse = np.linalg.inv(G)
    ones = np.ones((n, 1))
    weights = inverse @ ones
    P = inverse - weights @ weights.T / (ones.T @ weights)
    Py = P @ case.y
    cross = kernel(case.X_new, case.X)
    level = float(weights[:, 0] @ case.y / weights.sum())
    predicted = level + cross @ (inverse @ (case.y - level))
    lacking = 1.0 - cross @ weights[:, 0]
    variance = kernel.variance - np.einsum("qn,nm,qm->q", cross, inverse, cross) + lacking**2 / weights.sum()
    each = Py / P.diagonal(), P.diagonal() ** -0.5
    labels = kmeans2(case.X, min(BLOCKS, n // 5), seed=generator, minit="++")[1]
    errors, std = np.empty(n), np.empty(n)
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        covariance_of_errors = np.linalg.inv(P[np.ix_(own, own)])
        errors[own] = covariance_of_errors @ Py[own]
        std[own] = np.sqrt(covariance_of_errors.diagonal())
    spread = np.sqrt(np.maximum(variance, 0.0) + case.observed * noise)
    assert found.log_likelihood is not None
    return Fit(found.log_likelihood, Gaussian(predicted, spread), each, (errors, std))


def crps(error: Array, std: Array) -> Array:
    """CRPS of normal distributions whose means err by so much."""
    return Gaussian(np.zeros_like(std), std).crps(error)


def log_score(error: Array, std: Array) -> Array:
    """Log density of the errors."""
    return Gaussian(np.zeros_like(std), std).log_density(error)


def usual_unless(scores: Array, margin: float, usual: int = USUAL) -> int:
    """Take the best, but the usual one unless that is better by a margin."""
    best = int(scores.argmax())
    return best if scores[best] > scores[usual] + margin else usual


def _likelihoods(fits: Sequence[Fit]) -> Array:
    return np.array([fit.log_likelihood for fit in fits])


def _mean_crps(fits: Sequence[Fit], of: str) -> Array:
    return np.array([-crps(*getattr(fit, of)).mean() for fit in fits])


def _log_scores(fits: Sequence[Fit], of: str) -> Array:
    return np.array([log_score(*getattr(fit, of)).sum() for fit in fits])


def _unless_crps_disagrees(fits: Sequence[Fit], errors: float) -> int:
    """Take the likeliest, unless another has a smaller leave-one-out CRPS by so many standard errors."""
    likely = usual_unless(_likelihoods(fits), MARGIN)
    by_place = np.array([crps(*fit.each) for fit in fits])
    best = int(by_place.mean(axis=1).argmin())
    differences = by_place[likely] - by_place[best]
    doubt = differences.std() / np.sqrt(differences.size)
    return best if best != likely and differences.mean() > errors * doubt else likely


def _roughest_likely(fits: Sequence[Fit], margin: float) -> int:
    """Take the roughest whose likelihood is less than a margin below the largest."""
    likelihoods = _likelihoods(fits)
    return int(np.argmax(likelihoods > likelihoods.max() - margin))


def _roughest_by_crps(fits: Sequence[Fit], errors: float, of: str) -> int:
    """Take the roughest whose CRPS is at most so many standard errors above the smallest."""
    by_place = np.array([crps(*getattr(fit, of)) for fit in fits])
    above = by_place - by_place[by_place.mean(axis=1).argmin()]
    doubt = above.std(axis=1) / np.sqrt(above.shape[1])
    return int(np.argmax(above.mean(axis=1) <= errors * doubt))


def _usual_unless_crps(fits: Sequence[Fit], errors: float, share: float = 0.0) -> int:
    """Take the usual one, unless another has a CRPS smaller by so many standard errors, and by a share."""
    by_place = np.array([crps(*fit.each) for fit in fits])
    best = int(by_place.mean(axis=1).argmin())
    gain = by_place[USUAL] - by_place[best]
    doubt = gain.std() / np.sqrt(gain.size)
    better = gain.mean() > errors * doubt and gain.mean() > share * by_place[USUAL].mean()
    return best if better else USUAL


def _weights(scores: Array) -> Array:
    """Probabilities in proportion to the exponentials of scores, none of them zero."""
    return np.maximum(softmax(scores), 1e-12)


def _together(fits: Sequence[Fit], of: str) -> int:
    """Likelihood, and n times the logarithm of the CRPS, which is a likelihood of a scale."""
    n = fits[0].each[0].size
    return int((_likelihoods(fits) - n * np.log(-_mean_crps(fits, of))).argmax())


RULES: dict[str, Callable[[Sequence[Fit]], int | Array]] = {
    "Matern 1/2": lambda fits: 0,
    "Matern 3/2": lambda fits: 1,
    "Matern 5/2": lambda fits: 2,
    "likelihood": lambda fits: int(_likelihoods(fits).argmax()),
    "likelihood, 3/2 unless 2 better": lambda fits: usual_unless(_likelihoods(fits), MARGIN),
    **{
        f"roughest, likelihood at most {margin:g} less": partial(_roughest_likely, margin=margin)
        for margin in (1.0, 2.0, 4.0)
    },
    **{
        f"roughest within {errors:g} errors of CRPS": partial(_roughest_by_crps, errors=errors, of="each")
        for errors in (0.5, 1.0, 2.0)
    },
    **{
        f"3/2 unless CRPS {errors:g} errors and {share:.1%} better": partial(
            _usual_unless_crps, errors=errors, share=share
        )
        for errors, share in ((0.25, 0.0), (0.5, 0.0), (1.0, 0.0), (0.0, 0.005), (0.0, 0.01), (0.5, 0.005))
    },
    "roughest within 1 error of CRPS of blocks": partial(_roughest_by_crps, errors=1.0, of="blocks"),
    "average by likelihood": lambda fits: _weights(_likelihoods(fits)),
    "leave-one-out log score": lambda fits: int(_log_scores(fits, "each").argmax()),
    "leave-one-out CRPS": lambda fits: int(_mean_crps(fits, "each").argmax()),
    "CRPS of blocks": lambda fits: int(_mean_crps(fits, "blocks").argmax()),
    "log score of blocks": lambda fits: int(_log_scores(fits, "blocks").argmax()),
    "likelihood unless CRPS disagrees by 0": lambda fits: _unless_crps_disagrees(fits, 0.0),
    "likelihood unless CRPS disagrees by 1": lambda fits: _unless_crps_disagrees(fits, 1.0),
    "likelihood and CRPS": lambda fits: _together(fits, "each"),
    "likelihood and CRPS of blocks": lambda fits: _together(fits, "blocks"),
    "average by likelihood and CRPS": lambda fits: _weights(
        _likelihoods(fits) - fits[0].each[0].size * np.log(-_mean_crps(fits, "each"))
    ),
}


def judged(case: Case, fits: Sequence[Fit]) -> dict[str, tuple[float, ...]]:
    """Regret, CRPS, RMSE, MAE and share inside 90 % intervals of each rule."""
    mean = np.array([fit.places.mean for fit in fits])
    std = np.array([fit.places.std for fit in fits])
    best = min(crps(case.truth - fit.places.mean, fit.places.std).mean() for fit in fits)
    found = {}
    for name, rule in {**RULES, 'kernel="auto"': lambda _: automatic(case)}.items():
        chosen = rule(fits)
        if isinstance(chosen, int):
            found[name] = scored(case, mean[chosen], std[chosen], best)
            continue
        mixture = Mixture(chosen, mean, std)
        inside = np.abs(mixture.cdf(case.truth) - 0.5) <= 0.45
        own = scored(case, mixture.mean, mixture.std, best)
        score = float(mixture.crps(case.truth).mean())
        found[name] = (score / best - 1.0, score, *own[2:4], float(inside.mean()))
    return found


def scored(case: Case, mean: Array, std: Array, best: float) -> tuple[float, ...]:
    """Regret, CRPS, RMSE, MAE and share inside 90 % intervals of normal distributions."""
    error = case.truth - mean
    score, rmse = float(crps(error, std).mean()), float(np.sqrt(np.mean(error**2)))
    inside = float(np.mean(np.abs(error) <= HALF_WIDTH * std))
    return score / best - 1.0, score, rmse, float(np.abs(error).mean()), inside


def automatic(case: Case) -> int:
    """Take what the package takes, which compares a thousand observations at most."""
    mean = cagp.BasisMean(lambda X: np.ones((len(X), 1)), ("constant",))
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        found = cagp.fit("auto", case.X, case.y, mean=mean)
    return FAMILIES.index(found.prior.kernel.parts[0].family)


def with_nothing_set(case: Case) -> tuple[Array, Array]:
    """Map a table in a plane as a user does: mean and standard deviation of observations."""
    x, y = ({"x": X[:, 0], "y": X[:, 1]} for X in (case.X, case.X_new))
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        found = cagp.krige({**x, "value": case.y}, to=y, columns={"x": "x", "y": "y"}, progress=False)
    return found["mean"].values, np.hypot(found["std"].values, found.attrs["noise_std"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw, fit, and print the regret of each rule."""
    command = parser(__doc__)
    command.add_argument("--data", type=Path, help="folder whose folder geostat has the public tables")
    chosen = command.parse_args(arguments)
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for n, fields in (QUICK_FIELDS if chosen.quick else FIELDS).items():
        for number, kind in enumerate(KINDS):
            for field in range(fields):
                generator = np.random.default_rng([SEED, n, number, field])
                case = field_of(kind, n, generator)
                while np.ptp(case.y) == 0.0:  # without a value above zero there is nothing to fit
                    case = field_of(kind, n, generator)
                fits = [fitted(case, family, np.random.default_rng(0)) for family in FAMILIES]
                for name, (regret, *_, inside) in judged(case, fits).items():
                    for column in (f"n = {n:,}", kind):
                        found.setdefault(name, {}).setdefault(column, []).append((regret, inside))
    print("Regret, and what 90 % intervals hold")
    print_table(
        ("rule", *next(iter(found.values()))),
        [
            (name, *("{:.1%} ({:.0%})".format(*np.mean(each, axis=0)) for each in of.values()))
            for name, of in found.items()
        ],
    )
    if chosen.data is None:
        return
    for name, case in tables(chosen.data):
        fits = [fitted(case, family, np.random.default_rng(0)) for family in FAMILIES]
        rows = judged(case, fits)
        best = min(row[1] for row in list(rows.values())[: len(FAMILIES)])
        rows["krige, nothing set"] = scored(case, *with_nothing_set(case), best)
        print(name)
        print_table(
            ("rule", "regret", "CRPS", "RMSE", "MAE", "90 % intervals hold"),
            [
                (rule, f"{regret:.1%}", *(f"{score:.4g}" for score in scores), f"{inside:.3f}")
                for rule, (regret, *scores, inside) in rows.items()
            ],
        )


if __name__ == "__main__":
    main()
