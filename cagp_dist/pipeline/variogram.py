"""The empirical variogram of observations beside that of the fitted model, and what is chance of it.

Half the mean square difference of residuals about the prior mean, of pairs at nearly the same distance h,
stands beside ``k(0) - k(h) + noise``. The band is that of the same estimate of fields drawn from the fitted
model at the same places, whose mean is fitted in the same way: an estimate from few pairs, or about a mean
that was fitted, differs from the curve without anything being wrong.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from cagp_dist.arrays import Array, Indices
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import degrees, east_and_north, unit_sphere
from cagp_dist.kernels import TIME, beside_columns
from cagp_dist.pipeline.background import Background
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.map_mean import mean_of, residuals_about
from cagp_dist.pipeline.maps_at_times import SAME_HOUR
from cagp_dist.pipeline.observations import Observations

MOST_PLACES = 800  # whose pairs are taken, drawn at random; of hours up to twice as many rows
MOST_TIMES = 8  # fields, evenly spread
BINS, FEWEST_PAIRS = 15, 20
FARTHEST = 0.5  # of the largest distance; beyond, few pairs of the rim decide
FEW_PLACES = 10  # fewer have all their pairs
CURVE = 200  # distances of the curve
DIRECTIONS_OF_CURVE = 16  # of which an ellipse has the mean


class Variogram(NamedTuple):
    """Semivariances, squared unit of the values, at the mean distance of the pairs of each bin, (B,)."""

    distance: Array  # kilometres on the ground, or the unit of a plane
    pairs: Indices
    empirical: Array
    draws: Array  # (N, B), of the fitted model
    curve_distance: Array  # (C,)
    curve: Array
    places: int  # that were taken


class Sector(NamedTuple):
    """Directions of pairs: those up to ``half`` degrees from an azimuth, which counts from north by east."""

    azimuth: float
    half: float


def sectors(directions: int) -> list[Sector]:
    """Divide the directions of pairs, of which one and its opposite are the same."""
    return [Sector(180.0 * number / directions, 90.0 / directions) for number in range(directions)]


def fitted_variogram(
    observed: Observations, learned: FittedModel, *, draws: int, seed: int, sector: Sector | None = None
) -> Variogram:
    """Estimate the variogram of observations at pairs of places, and of draws of the model at them.

    Of a ``sector`` those of pairs in its directions.
    """
    generator = np.random.default_rng(seed)
    groups = _groups(observed, generator)
    largest = max(_distances(observed, places).max(initial=0.0) for places, _ in groups)
    few = max(places.size for places, _ in groups) < FEW_PLACES
    edges = np.linspace(0.0, (1.0 if few else FARTHEST) * largest, BINS + 1)
    totals, sums, far = np.zeros(BINS), np.zeros((1 + draws, BINS)), np.zeros(BINS)
    for places, field in groups:
        first, second, distance = _pairs(observed, places, float(edges[-1]), sector)
        bins = np.searchsorted(edges[1:-1], distance, side="right")
        totals += np.bincount(bins, minlength=BINS)
        far += np.bincount(bins, distance, minlength=BINS)
        values = _with_draws(observed, learned, places, field, draws, generator)
        for row, of in zip(sums, values, strict=True):
            row += np.bincount(bins, 0.5 * (of[first] - of[second]) ** 2, minlength=BINS)
    if not totals.any():
        raise ArgumentError(
            "no two places were observed at the same time; expected pairs, of which a variogram is made.",
            key="no-pairs",
        )
    kept = totals >= min(FEWEST_PAIRS, totals.max())
    found = sums[:, kept] / totals[kept]
    x = np.linspace(0.0, edges[-1], CURVE)
    return Variogram(
        far[kept] / totals[kept],
        totals[kept].astype(np.intp),
        found[0],
        found[1:],
        x,
        _curve(observed, learned, x, sector),
        len(np.unique(np.concatenate([places for places, _ in groups]))),
    )


def _groups(observed: Observations, generator: np.random.Generator) -> "list[tuple[Indices, int]]":
    """Choose places of some fields, and the numbers of these; in space and time whole hours."""
    if observed.in_time:
        hours, of = np.unique(observed.hours.round(6), return_inverse=True)
        order = generator.permutation(hours.size)
        enough = int(np.searchsorted(np.cumsum(np.bincount(of)[order]), MOST_PLACES)) + 1
        places = np.flatnonzero(np.isin(of, order[:enough]))
        most = 2 * MOST_PLACES
        return [
            (places if places.size <= most else np.sort(generator.choice(places, most, replace=False)), 0)
        ]
    fields = np.unique(np.linspace(0, observed.fields - 1, min(MOST_TIMES, observed.fields)).astype(int))
    groups = [(np.flatnonzero(observed.present[field]), int(field)) for field in fields]
    most = int(MOST_PLACES / np.sqrt(len(groups)))
    return [
        (places if places.size <= most else np.sort(generator.choice(places, most, replace=False)), field)
        for places, field in groups
    ]


def _pairs(
    observed: Observations, places: Indices, most: float, sector: Sector | None
) -> tuple[Indices, Indices, Array]:
    """Pairs of different places at one time and in a sector, up to a distance, and their distances."""
    first, second = np.triu_indices(places.size, 1)
    distance = _distances(observed, places)[first, second]
    near = (distance > 0.0) & (distance <= most)
    if observed.in_time:
        hours = observed.hours[places]
        near &= np.abs(hours[first] - hours[second]) < SAME_HOUR
    if sector is not None:
        X = observed.positions[places]
        east, north = (X @ direction for direction in _east_and_north(observed)[:2])
        azimuth = np.degrees(np.arctan2(east[first] - east[second], north[first] - north[second]))
        turned = np.mod(azimuth - sector.azimuth + sector.half, 180.0)
        near &= turned < 2.0 * sector.half
    return first[near], second[near], distance[near]


def _distances(observed: Observations, places: Indices) -> Array:
    """Distances between places (n,), kilometres on the ground or in the unit of a plane, shape (n, n)."""
    X = observed.positions[places]
    return observed.space.distances(np.asarray(cdist(X, X)))


def _with_draws(
    observed: Observations,
    learned: FittedModel,
    places: Indices,
    field: int,
    draws: int,
    generator: np.random.Generator,
) -> Array:
    """Residuals (1 + N, n) of what was observed, then of fields drawn about the same mean."""
    X, values = observed.X[places], observed.values[field, places]
    noise = np.broadcast_to(learned.noise_variance, observed.values.shape[1:])[places]
    root = np.linalg.cholesky(learned.kernel(X, X) + np.diag(noise))
    own = _residual(observed, learned, places, field, values)
    drawn = values - own + generator.standard_normal((draws, places.size)) @ root.T
    return np.stack([own, *(_residual(observed, learned, places, field, each) for each in drawn)])


def _residual(
    observed: Observations, learned: FittedModel, places: Indices, field: int, values: Array
) -> Array:
    """Subtract the mean from values (n,), fitted to them where the model fits one."""
    every = np.full_like(observed.values[field : field + 1], np.nan)
    every[0, places] = values
    here = replace(observed, values=every, times=observed.times[field : field + 1])
    by_field = callable(learned.mean) or isinstance(learned.mean, Background)
    own = np.array([field]) if by_field else np.array([0])
    mean = mean_of(learned.mean, here, places, own)
    return residuals_about(mean, observed.X[places], values[None]).ravel()


def _curve(observed: Observations, learned: FittedModel, distances: Array, sector: Sector | None) -> Array:
    """Variogram of kernel and mean noise at distances, from the noise on; mean of directions if there are."""
    noise = np.broadcast_to(learned.noise_variance, observed.values.shape[1:])[observed.there].mean()
    azimuths = [0.0] if sector is None else [sector.azimuth]
    if sector is None and learned.ellipses:
        azimuths = [own.azimuth for own in sectors(DIRECTIONS_OF_CURVE)]
    return np.asarray(
        np.mean([_covariance_lost(observed, learned, distances, azimuth) for azimuth in azimuths], axis=0)
        + noise
    )


def _covariance_lost(observed: Observations, learned: FittedModel, distances: Array, azimuth: float) -> Array:
    """``k(0) - k(h)`` along a direction, from the middle of the places."""
    line, (east, north, middle) = observed.space.along(distances), _east_and_north(observed)
    direction = np.sin(np.deg2rad(azimuth)) * east + np.cos(np.deg2rad(azimuth)) * north
    if observed.space.has_latitudes:
        along = line[:, :1] * middle + line[:, 1:2] * direction
    else:
        along = line[:, :1] * direction
    if observed.in_time:
        along = beside_columns(along, {TIME: np.full(distances.size, observed.hours[0])})
    covariance = learned.kernel(along[:1], along)[0]
    return np.asarray(covariance[0] - covariance)


def _east_and_north(observed: Observations) -> tuple[Array, Array, Array]:
    """Directions at the middle of the places, and the middle, (p,) each."""
    middle = observed.positions[observed.there].mean(axis=0)
    if not observed.space.has_latitudes:
        return np.array([1.0, 0.0]), np.array([0.0, 1.0]), middle
    (latitude,), (longitude,) = degrees(middle[None])
    at = np.array([latitude]), np.array([longitude])
    east, north = east_and_north(*at)
    return east[0], north[0], unit_sphere(*at)[0]
