"""Numbers of kernels of several variables, integrated over by importance sampling (math 23).

They are too many for a grid. What their maximum and curvature say is a normal distribution of their
logarithms; a wider one, of Student, is drawn from, and each draw weighed by restricted likelihood times prior
over its density. Some tens of draws, taken in proportion to their weights, are then the numbers that
predictions are averaged over.

The prior is weak: lengthscales as of one variable (`hyperprior`), variances in units of those of the
variables within a factor of 20, and correlations uniform between -1 and 1.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import chdtri, ndtri

from cagp_dist.arrays import Array
from cagp_dist.errors import ArgumentError
from cagp_dist.kernels import Kernel
from cagp_dist.likelihood.exact.hyperprior import log_prior_of_lengthscale
from cagp_dist.likelihood.fit_result import FitResult
from cagp_dist.likelihood.numbering import NAMES, Model, Numbering

# Draws that are weighed, a power of two, about the maximum and then about the mean of these; how many
# independent ones they must be worth each time; and those that are taken by their weights
PROPOSED, FEWEST, KEPT = 256, (4.0, 6.0), 32
DEGREES = 5.0  # Of the Student distribution that they are from
WIDEST = 2.0  # Its largest standard deviation of a logarithm, where the likelihood is flat
LEAST_SPREAD = 1e-4  # Of a logarithm
SPREAD_OF_VARIANCES, SPREAD_OF_DEVIATIONS = 3.0, 1.5  # Standard deviations of logarithms, by the prior


class Fields(NamedTuple):
    """Fields at the same points, beside a known noise."""

    X: Array  # (n, p)
    values: Array  # (n, T)
    noise_variance: Array  # (n,)
    basis: Array  # (n, k) of a mean that is estimated
    extent: float  # largest distance in space between two points


def likely_kernels(result: FitResult, fields: Fields) -> list[tuple[float, Kernel]]:
    """Draw kernels by their probability, with the weight of each; none where that is no bell.

    ``result`` is the fit to these fields. Numbers whose standard error is not known are kept.
    """
    kernel = result.prior.kernel
    numbering = Numbering.of_kernel(kernel)
    model = Model(tuple(part.family for part in kernel.parts))
    own = [number for part in kernel.parts for number in part.numbers]
    best = np.log([*own, *(part.variance for part in kernel.parts)])
    covariance = result.log_covariance[: best.size, : best.size]
    free = ~np.isnan(covariance.diagonal())
    if not free.any():
        return []

    def at(logarithms: Array) -> Kernel:
        lengths, variances, _ = numbering.grouped([*np.exp(logarithms), 1.0])
        return model.kernel(lengths, variances)

    prior = _log_prior(numbering, fields.extent)

    def density(chosen: Array) -> float:
        logarithms = best.copy()
        logarithms[free] = chosen
        try:
            drawn_kernel = at(logarithms)
        except ArgumentError:  # an ellipse longer than there may be
            return -np.inf
        return _log_likelihood(drawn_kernel, fields) + prior(logarithms)

    centre, spread = best[free], covariance[np.ix_(free, free)]
    for fewest in FEWEST:
        drawn, weights = _weighed(density, centre, spread)
        if 1.0 / np.sum(weights**2) < fewest:
            return []
        centre = weights @ drawn
        spread = (drawn - centre).T @ (weights[:, None] * (drawn - centre))
    numbers = np.tile(best, (PROPOSED, 1))
    numbers[:, free] = drawn
    places = (np.arange(KEPT) + 0.5) / KEPT
    chosen = np.minimum(np.searchsorted(np.cumsum(weights), places), PROPOSED - 1)
    each, counts = np.unique(chosen, return_counts=True)
    return [(float(count) / KEPT, at(numbers[one])) for one, count in zip(each, counts, strict=True)]


def _weighed(density: Callable[[Array], float], centre: Array, covariance: Array) -> tuple[Array, Array]:
    """Draw (k, d) from a Student distribution; weights make them draws of a density, up to its factor."""
    from scipy.stats import qmc  # a fifth of the time that the package takes to load

    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.clip(values, LEAST_SPREAD**2, WIDEST**2))
    even = qmc.Sobol(centre.size + 1, seed=PROPOSED).random(PROPOSED)  # of the open unit cube
    drawn = ndtri(even[:, 1:]) * np.sqrt(DEGREES / chdtri(DEGREES, even[:, :1]))
    tail = 0.5 * (DEGREES + centre.size) * np.log1p((drawn**2).sum(axis=1) / DEGREES)
    points = centre + drawn @ root.T
    logarithms = np.array([density(point) for point in points]) + tail
    if not np.isfinite(logarithms.max()):
        return points, np.eye(1, PROPOSED)[0]
    weights = np.exp(logarithms - logarithms.max())
    return points, weights / weights.sum()


def _log_prior(numbering: Numbering, extent: float) -> Callable[[Array], float]:
    """Logarithm of the density of logarithms of the numbers, up to a constant."""
    names = [name for own in numbering.own for name in own] + [NAMES[1]] * numbering.parts
    kinds = np.array([name.partition("_")[0] for name in names])
    rows = np.array(
        [
            f"{part}_{name.split('_')[1]}" if name.startswith("angle") else ""
            for part, own in enumerate([*numbering.own, NAMES[1:2] * numbering.parts])
            for name in own
        ]
    )

    def density(logarithms: Array) -> float:
        lengths = np.exp(logarithms[np.array(names) == NAMES[0]])
        total = float(log_prior_of_lengthscale(lengths, extent).sum())
        for kind, spread in ((NAMES[1], SPREAD_OF_VARIANCES), ("deviation", SPREAD_OF_DEVIATIONS)):
            total -= 0.5 * float(np.sum((logarithms[kinds == kind] / spread) ** 2))
        for row in set(rows) - {""}:  # of a triangle whose rows are correlations once they have length one
            triangle = logarithms[rows == row]
            total -= 0.5 * (triangle.size + 2) * float(np.log1p(triangle @ triangle))
        return total

    return density


def _log_likelihood(kernel: Kernel, fields: Fields) -> float:
    """Restricted log-likelihood of all fields, up to a constant."""
    G = kernel(fields.X, fields.X)
    G[np.diag_indices(len(G))] += fields.noise_variance
    try:
        root = np.linalg.cholesky(G)
    except np.linalg.LinAlgError:
        return -np.inf
    T = fields.values.shape[1]
    white = solve_triangular(root, np.column_stack([fields.values, fields.basis]), lower=True)
    frame, triangle = np.linalg.qr(white[:, T:])
    left = white[:, :T] - frame @ (frame.T @ white[:, :T])
    determinants = np.log(root.diagonal()).sum() + np.log(np.abs(triangle.diagonal())).sum()
    return float(-T * determinants - 0.5 * np.sum(left**2))
