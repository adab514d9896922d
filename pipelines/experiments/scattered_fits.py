"""Ways of fitting to scattered points: what they take, and how far they are from the likelihood's maximum.

    python -m pipelines.experiments.scattered_fits [--quick] [--output FOLDER] [--points COUNT ...]
        [--fields NAME ...] [--methods NAME ...] [--draws COUNT]

Points are drawn from the built-in field in proportion to area, without its quadratic mean, or from a smooth
field: squared-exponential, lengthscale 0.5, variance 1, noise variance 0.1, by random waves. The exact
likelihood is there for up to 12,000 points; beyond, Vecchia's is what others are compared with. "scoring"
stands for the exact fit where that takes long: from Vecchia's one step to the maximum, with the exact
gradient and the expected information. The first method of a field is the reference of the others. Distances
are differences of logarithms, of lengthscale, variance and noise variance, in standard errors of the fit that
is compared with; with more than one draw of the points their root mean squares and largest ones follow.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.likelihood.exact.dense_likelihood import DenseLikelihood
from cagp_dist.likelihood.numbering import Families
from cagp_dist.memory import available_bytes
from cagp_dist.posterior.fourier import draw_spectrum, evaluate_spectra
from pipelines.experiments.output import parser, print_table
from pipelines.experiments.sample_field import SampleField

COUNTS, ACTIONS, WAVES = (10_000, 50_000), 512, 8192
METHODS = ("dense", "vecchia", "elbo")
SCORING = "scoring"
MOST_DENSE = 12_000
SMOOTH = cagp.SquaredExponential(0.5, 1.0)
SMOOTH_NOISE = 0.1
HEAD = (
    *("field", "points", "draw", "method", "lengthscale", "variance", "noise variance"),
    *("seconds", "seconds over the reference", "standard errors off", "stated", "status"),
)


class Drawn(NamedTuple):
    """Points of a field: a name, the family that is fitted, X (n, 3) and y (n,)."""

    name: str
    family: Families
    X: Array
    y: Array


def built_in(count: int, draw: int) -> Drawn:
    """Points of the built-in field, no two the same."""
    field = SampleField.about("quadratic-latitude")
    weights = field.grid.area_weights.ravel()
    chosen = np.random.default_rng(draw).choice(weights.size, count, replace=False, p=weights / weights.sum())
    return Drawn("built-in", cagp.Matern32, field.grid.points[chosen], field.residual.ravel()[chosen])


def smooth(count: int, draw: int) -> Drawn:
    """Points of the sphere, and a field that few numbers describe."""
    rng = np.random.default_rng(draw)
    X = rng.standard_normal((count, 3))
    X /= np.linalg.norm(X, axis=1)[:, None]
    y = evaluate_spectra([draw_spectrum(SMOOTH, 3, WAVES, 1, np.random.default_rng(1))], X)[:, 0]
    return Drawn("smooth", cagp.SquaredExponential, X, y + np.sqrt(SMOOTH_NOISE) * rng.standard_normal(count))


FIELDS: dict[str, Callable[[int, int], Drawn]] = {"built-in": built_in, "smooth": smooth}


class Fitted(NamedTuple):
    """A line of the table, and the distances (3,) that it has."""

    line: tuple[str, ...]
    off: Array


def fitted(drawn: Drawn, draw: int, actions: int, methods: Sequence[str]) -> Iterator[Fitted]:
    """Fit by every method; the first is what the others are compared with."""
    n = len(drawn.X)
    reference: cagp.FitResult | None = None
    for method in methods:
        if method in ("dense", SCORING) and n > MOST_DENSE:
            continue
        if method == SCORING:
            found = scored(drawn)
        else:
            found = cagp.fit(drawn.family, drawn.X, drawn.y, mean=0.0, method=method, actions=actions)
        reference = reference or found
        off = (_logarithms(found) - _logarithms(reference)) / np.sqrt(np.diag(reference.log_covariance))
        what = f"{drawn.name}, {n:,} points, draw {draw}, {method}"
        print(f"{what}: {found.seconds:.1f} s, off {_said(off)}", flush=True)
        stated = "" if found.bound is None else _stated(found.bound.bias, reference)
        kernel = found.prior.kernel
        line = (
            drawn.name,
            f"{n:,}",
            str(draw),
            method,
            f"{kernel.lengthscale:.4f}",
            f"{kernel.variance:.4g}",
            f"{found.prior.noise_number:.4g}",
            f"{found.seconds:.1f}",
            f"{found.seconds / reference.seconds:.2f}",
            _said(off),
            stated,
            found.status.value,
        )
        yield Fitted(line, off)


def scored(drawn: Drawn) -> cagp.FitResult:
    """Vecchia's fit, moved to where the exact likelihood has its maximum by one step of Fisher scoring."""
    begun = time.perf_counter()
    found = cagp.fit(drawn.family, drawn.X, drawn.y, mean=0.0, method="vecchia")
    kernel = found.prior.kernel
    likelihood = DenseLikelihood(
        drawn.family, drawn.X, drawn.y[:, None], memory_limit_bytes=available_bytes()
    )
    exact = likelihood.evaluate(kernel.lengthscale, found.prior.noise_number / kernel.variance)
    gradient = exact.numbering.natural.T @ exact.gradient(kernel.variance)
    lengthscale, variance, noise_variance = np.exp(_logarithms(found) + found.log_covariance @ gradient)
    prior = cagp.Prior(drawn.family(lengthscale, variance), noise_variance, mean=0.0)
    return replace(found, prior=prior, seconds=time.perf_counter() - begun)


def over_draws(found: Sequence[Fitted]) -> list[str]:
    """Root mean square and largest distance of each field, size and method over the draws."""
    groups: dict[tuple[str, str, str], list[Array]] = {}
    for (name, points, _, method, *_), off in found:
        groups.setdefault((name, points, method), []).append(off)
    return [
        f"{name}, {points} points, {method}: root mean square "
        f"{', '.join(f'{value:.3f}' for value in np.sqrt(np.mean(np.square(off), axis=0)))}, "
        f"largest {', '.join(f'{value:.3f}' for value in np.abs(off).max(axis=0))} over {len(off)} draws"
        for (name, points, method), off in groups.items()
    ]


def _logarithms(found: cagp.FitResult) -> Array:
    kernel = found.prior.kernel
    return np.log([kernel.lengthscale, kernel.variance, found.prior.noise_number])


def _stated(bias: Mapping[str, float], reference: cagp.FitResult) -> str:
    """Give the bias that a fit to the bound states: none where systems of its gradient are not solved."""
    values = np.array(list(bias.values()))
    if np.isnan(values).any():
        return "not stated"
    return _said(values / np.sqrt(np.diag(reference.log_covariance)))


def _said(values: Array) -> str:
    return ", ".join(f"{value:+.3f}" for value in values)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit, and print the table."""
    made = parser(__doc__)
    made.add_argument("--points", type=int, nargs="+", metavar="COUNT", help="n (10,000 and 50,000)")
    made.add_argument(
        "--fields", nargs="+", choices=tuple(FIELDS), default=tuple(FIELDS), help="those to fit (both)"
    )
    made.add_argument(
        "--methods",
        nargs="+",
        choices=(*METHODS, SCORING),
        default=METHODS,
        help="first the reference (all but scoring)",
    )
    made.add_argument("--draws", type=int, default=1, metavar="COUNT", help="of the points (1)")
    chosen = made.parse_args(arguments)
    found: list[Fitted] = []
    for count in chosen.points or ((400,) if chosen.quick else COUNTS):
        for name in chosen.fields:
            for draw in range(chosen.draws):
                drawn = FIELDS[name](count, draw)
                found += fitted(drawn, draw, min(ACTIONS, count // 8), chosen.methods)
    print_table(HEAD, [line for line, _ in found])
    if chosen.draws > 1:
        print("\n".join(over_draws(found)))


if __name__ == "__main__":
    main()
