"""Which rule chooses the kernel of hourly stations: likelihood, or errors of values or stations left out.

    python -m pipelines.experiments.time_rules [--quick] [--output FOLDER] [--data FILE] [--draws 4]

Months and hours are those of `pipelines.experiments.hourly_stations`. Metric kernels and products of Matern
1/2, 3/2 and 5/2, and each metric kernel with what lasts, are fitted to whole hours as `cagp_dist.Kriging`
compares them. Each predicts 60 places without a station at 15 hours from the values of six hours before to
six after. A rule takes one of the fits. Its regret is its CRPS over the smallest of all fits, minus one.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import cast

import numpy as np
import pandas as pd

import cagp_dist as cagp
from cagp_dist.arrays import Array, Indices
from cagp_dist.likelihood.fit_result import FitResult
from cagp_dist.likelihood.kernel_choice import MARGIN, likelihood_of, start_of, usable
from cagp_dist.likelihood.numbering import Families, extents
from cagp_dist.likelihood.starts import Start
from cagp_dist.pipeline import maps_at_times
from cagp_dist.pipeline.model_settings import COMPARED_IN_TIME
from cagp_dist.posterior.left_out import each_left_out
from cagp_dist.predictive import Gaussian
from cagp_dist.space_time import AXES, SpaceTime
from pipelines.experiments.hourly_stations import LEVEL, NOISE_STD, month
from pipelines.experiments.hours import stations
from pipelines.experiments.kernel_rules import HALF_WIDTH, crps
from pipelines.experiments.output import parser, print_table
from pipelines.experiments.real_fields import UNITED_KINGDOM

REACH = 6.0  # Hours before and after, whose values predict
MEAN = cagp.mean_family("constant")


def fits(X: Array, y: Array) -> list[FitResult]:
    """Fit all kernels that are compared, sums last; X (n, 4)."""

    def fitted(
        families: object,
        *,
        start: Start | None = None,
        starts: int = 3,
        limits: Mapping[str, Sequence[object]] = MappingProxyType({}),
    ) -> FitResult:
        bounds = dict(limits) or None
        return cagp.fit(
            cast("Families", families), X, y, mean=MEAN, start=start, starts=starts, bounds=bounds
        )

    first, *others = maps_at_times.candidates_in_time("auto", COMPARED_IN_TIME)
    found = [fitted(first)]
    found += [fitted(each, start=start_of(found[0]), starts=1) for each in others]
    sides = extents(X, AXES)
    extent = float(sides[0]), float(sides[-1])
    metric = [each for each in found if cast("SpaceTime", each.prior.kernel).time is None]
    dense = maps_at_times.are_dense(len(np.unique(X[:, :-1], axis=0)))
    found += [maps_at_times.with_lasting(each, fitted, extent, dense=dense)[0] for each in metric]
    return [each for each in found if usable(each)]


def by_other_stations(found: FitResult, X: Array, y: Array, places: Indices) -> Gaussian:
    """Errors of all values by those of other places, with the mean estimated from these (math 27)."""
    K = found.prior.kernel(X, X)
    inverse = np.linalg.inv(K + found.prior.noise_number * np.eye(len(X)))
    weights = inverse.sum(axis=1)
    P = inverse - np.outer(weights, weights) / weights.sum()
    error, std = np.empty((2, len(X)))
    for place in np.unique(places):
        own = np.flatnonzero(places == place)
        covariance = np.linalg.inv(P[np.ix_(own, own)])
        error[own], std[own] = covariance @ (P[own] @ y), np.sqrt(covariance.diagonal())
    return Gaussian(error, std)


def by_other_values(found: FitResult, X: Array, y: Array, _: Indices) -> Gaussian:
    """Errors of all values, each by all others."""
    others = each_left_out(found.prior, X, y)
    return Gaussian(y - others.mean[0], np.sqrt(others.variance[0]))


def likeliest(found: Sequence[FitResult]) -> int:
    """Take the likeliest; an earlier one is kept unless that is better by the margin."""
    best = 0
    for number, each in enumerate(found):
        if likelihood_of(each) > likelihood_of(found[best]) + MARGIN:
            best = number
    return best


ERRORS: dict[str, Callable[[FitResult, Array, Array, Indices], Gaussian]] = {
    "each station left out": by_other_stations,
    "each value left out": by_other_values,
}


def judged(
    places: pd.DataFrame, values: Array, observed: int, noise: float
) -> dict[str, tuple[float, float]]:
    """Regret of each rule, and what its 90 % intervals hold."""
    hours = len(values)
    at = np.linspace(hours // 10, hours - 1 - hours // 10, 15).round()
    where = cagp.unit_sphere(places["latitude"], places["longitude"])
    X = np.column_stack([np.tile(where[:observed], (hours, 1)), np.repeat(np.arange(hours), observed)])
    y = (values[:, :observed] + noise * np.random.default_rng(9).normal(size=(hours, observed))).ravel()
    station = np.tile(np.arange(observed), hours)
    some = maps_at_times.whole_times(X, station, maps_at_times.COMPARED)
    found = fits(X[some], y[some])
    scores, held = np.empty((2, len(found)))
    for number, each in enumerate(found):
        error, std = [], []
        for hour in at:
            near = np.abs(X[:, -1] - hour) <= REACH
            targets = np.column_stack([where[observed:], np.full(len(where) - observed, hour)])
            posterior = cagp.condition(each.prior, X[near], y[near], targets, solver=cagp.Cholesky())
            error.append(values[int(hour), observed:] - posterior.mean)
            std.append(np.sqrt(posterior.variance))
        scores[number] = crps(np.concatenate(error), np.concatenate(std)).mean()
        held[number] = np.mean(np.abs(np.concatenate(error)) <= HALF_WIDTH * np.concatenate(std))
    chosen = {"likelihood": likeliest(found)}
    for name, errors_of in ERRORS.items():
        left = [errors_of(each, X[some], y[some], station[some]) for each in found]
        own = [crps(np.asarray(one.mean), np.asarray(one.std)).mean() for one in left]
        chosen[f"CRPS, {name}"] = int(np.argmin(own))
    return {
        name: (float(scores[number] / scores.min() - 1.0), float(held[number]))
        for name, number in chosen.items()
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare, and print a table."""
    command = parser(__doc__)
    command.add_argument("--data", type=Path, default=UNITED_KINGDOM, help="GRIB of hours (%(default)s)")
    command.add_argument("--draws", type=int, default=4, help="of places and fields (%(default)s)")
    chosen = command.parse_args(arguments)
    draws, (observed, predicted, hours) = (1, (12, 6, 60)) if chosen.quick else (chosen.draws, (40, 60, 744))
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for data in ("simulated month", *(["ERA5 hours"] if chosen.data.exists() else [])):
        for seed in range(draws):
            if data == "ERA5 hours":
                places, values = stations(chosen.data, observed + predicted, hours, seed=seed)
                noise = 0.0
            else:
                places, values = month(observed + predicted, hours, seed)
                noise = NOISE_STD
            with warnings.catch_warnings(
                action="ignore", category=UserWarning
            ):  # of fits that end flat, or at a bound
                rows = judged(places, values, observed, noise)
            for name, row in rows.items():
                found.setdefault((data, name), []).append(row)
                print(data, seed, name, f"{row[0]:.1%} {row[1]:.3f}", flush=True)
    print_table(
        ("data", "rule", "regret", f"{LEVEL:.0%} intervals hold"),
        [
            (*names, f"{np.mean([row[0] for row in rows]):.1%}", f"{np.mean([row[1] for row in rows]):.3f}")
            for names, rows in found.items()
        ],
    )


if __name__ == "__main__":
    main()
