"""Values of which it is known only that they are no larger than a bound, such as rain of zero (math 26).

Their ``z = t(y)`` is below the z of the bound. It is drawn there given all other values, many times, by its
full conditional distribution (Gibbs sampling; De Oliveira 2005). Each draw makes a whole field of values at
the same places, and all fields share one solve. What is predicted is the mixture of them.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri, ndtri_exp

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.errors import CagpError
from cagp_dist.gram.dense import DenseGram
from cagp_dist.gram.neighbourhoods import nearest_points
from cagp_dist.kernels import point_columns
from cagp_dist.likelihood.fit_result import FitStatus
from cagp_dist.pipeline.defaults import QUANTILE_LEVELS
from cagp_dist.pipeline.field_solves import DrawnFields, DriftCoefficients, Solution, SolveStep
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.observations import Observations
from cagp_dist.prior import Prior

DRAWS = 64  # of a map: the standard error of a probability is then a sixteenth at most

FIT_DRAWS, ROUNDS = 8, 3  # of a fit, which follows the draws and is followed by them

# Rounds through all censored values of a draw; from a near start twenty are enough where the noise is
# a hundredth of the variance of the field
SWEEPS = 50

# Observed places up to which full conditionals are of all others; beyond, of so many neighbours
MOST_DRAWN_DENSE, NEIGHBOURS = 2_000, 32

PLACES_AT_ONCE = 1_024

TARGETS_AT_ONCE = 4_096

FAR = -30.0  # Standard deviations of a bound below what is expected from where on logarithms are needed

# Standard deviation of what draws predict, in units of the error bar, up to which their mixture is normal
LITTLE = 0.1

CENSORED = 0x63656E  # names the stream of random numbers


def drawn(observed: Observations, model: FittedModel, *, draws: int, seed: int = 0) -> Observations:
    """Give observations (T draws, n) in which censored values are drawn, those of one field side by side."""
    assert observed.censored is not None
    values = np.repeat(observed.values, draws, axis=0)
    for field in range(observed.fields):
        places = np.flatnonzero(observed.present[field])
        hidden = observed.censored[field, places]
        if not hidden.any():
            continue
        generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(CENSORED, field, draws)))
        prior = model.prior(observed, places, np.array([field]))
        z, X = observed.values[field, places], observed.X[places]
        way = _dense if places.size <= MOST_DRAWN_DENSE else _by_neighbours
        found = way(prior, X, z, np.flatnonzero(hidden), draws, generator)
        rows = slice(field * draws, (field + 1) * draws)
        values[rows, places[hidden]] = found.T
    times = np.repeat(observed.times, draws)
    return replace(observed, values=values, times=times, censored=None, transform=observed.transform)


def fit_with_draws(observed: Observations, way: Callable[[Observations], FittedModel]) -> FittedModel:
    """Fit to draws of the censored values, draw them by that fit, and so on (stochastic EM).

    The first draws are by a fit to the other values alone: it finds the noise, where draws that are
    independent of each other would be noise, of which a few rounds take away little. They are independent
    where that fit finds no lengthscale: rounds that begin at a bound end there.
    """
    hidden = observed.censored
    assert hidden is not None
    filled = _independent(observed)
    with suppress(CagpError):  # the other values are too few, or all alike
        first = way(replace(observed, values=np.where(hidden, np.nan, observed.values), censored=None))
        if first.result is None or first.result.status is not FitStatus.AT_BOUND:
            filled = drawn(observed, first, draws=FIT_DRAWS, seed=ROUNDS)
    for number in range(ROUNDS):
        model = way(filled)
        if number < ROUNDS - 1:
            filled = drawn(observed, model, draws=FIT_DRAWS, seed=number)
    return replace(
        model,
        fitted_to=f"{observed.there.size:,} observed places, {int(hidden.sum()):,} censored values drawn "
        f"{FIT_DRAWS} times",
        numbers="plugged in: values are censored",
    )


def mixed(found: Solution, draws: int) -> Solution:
    """Give what the draws of each field predict together."""
    T = len(found.mean) // draws
    means = found.mean.reshape(T, draws, -1)
    scale = found.std.reshape(T, draws, -1)[:, 0]
    mean, std = means.mean(axis=1), np.hypot(scale, means.std(axis=1))
    of_draws = DrawnFields(means, scale)
    drift, own = found.drift, found.computational_std
    if drift is not None:
        values, errors = (each.reshape(len(drift.names), T, draws) for each in (drift.values, drift.std))
        drift = DriftCoefficients(
            drift.names, values.mean(axis=2), np.sqrt((errors**2).mean(axis=2) + values.var(axis=2))
        )
    last = found.steps[-1]
    fine = found.fine_mean
    return replace(
        found,
        steps=(SolveStep(last.iteration, mean, std, last.seconds),),
        quantiles=quantiles_of(of_draws),
        drift=drift,
        computational_std=None if own is None else own.reshape(T, draws, -1)[:, 0],
        fine_mean=None if fine is None else fine.reshape(T, draws, -1).mean(axis=1),
        drawn=of_draws,
        solvers=(*found.solvers, f"{draws} draws of censored values"),
    )


def quantiles_of(found: DrawnFields) -> Array:
    """Quantiles (T, L, q) of the field."""
    mean, apart = found.means.mean(axis=1), found.means.std(axis=1)
    scores = ndtri(np.array(QUANTILE_LEVELS))
    quantiles = mean[:, None] + np.hypot(found.scale, apart)[:, None] * scores[:, None]
    for own, some_apart, means, scale in zip(quantiles, apart, found.means, found.scale, strict=True):
        many = np.flatnonzero(some_apart > LITTLE * scale)
        for start in range(0, many.size, TARGETS_AT_ONCE):
            some = many[start : start + TARGETS_AT_ONCE]
            own[:, some] = DrawnFields(means[:, some], scale[some]).distribution().quantile(QUANTILE_LEVELS)
    return np.asarray(quantiles)


def _independent(observed: Observations) -> Observations:
    """Draw censored values below their bounds as if all were independent of each other."""
    assert observed.censored is not None
    generator = np.random.default_rng(np.random.SeedSequence(0, spawn_key=(CENSORED,)))
    values = np.repeat(observed.values, FIT_DRAWS, axis=0)
    hidden = np.repeat(observed.censored & observed.present, FIT_DRAWS, axis=0)
    centre, spread = tobit(observed.values[observed.present], observed.censored[observed.present])
    values[hidden] = _below(np.full(hidden.sum(), centre), np.array(spread), values[hidden], generator)
    times = np.repeat(observed.times, FIT_DRAWS)
    return replace(observed, values=values, times=times, censored=None)


def tobit(z: Array, hidden: Mask) -> tuple[float, float]:
    """Mean and standard deviation of independent normal values z (n,), some no larger than what they say.

    By maximum likelihood (Tobin 1958).
    """
    from scipy.optimize import minimize

    seen, bounds = z[~hidden], z[hidden]
    middle, scale = float(seen.mean()), max(float(seen.std()), 1e-12)

    def loss(numbers: Array) -> float:
        m, s = middle + scale * numbers[0], scale * float(np.exp(numbers[1]))
        of_seen = 0.5 * float((((seen - m) / s) ** 2).sum()) + seen.size * np.log(s)
        return float(of_seen - log_ndtr((bounds - m) / s).sum())

    found = minimize(
        loss, np.array([-0.5, 0.2]), method="Nelder-Mead", options={"xatol": 1e-4, "fatol": 1e-6}
    )
    return middle + scale * float(found.x[0]), scale * float(np.exp(found.x[1]))


def _below(centre: Array, spread: Array, bound: Array, generator: np.random.Generator) -> Array:
    """Draw normal numbers given that they are below a bound."""
    uniform = 1.0 - generator.random(centre.shape)  # of (0, 1]
    at = (bound - centre) / spread
    score = ndtri(ndtr(at) * uniform)
    if (far := at < FAR).any():  # where probabilities are too small to be numbers
        score[far] = ndtri_exp(log_ndtr(at[far]) + np.log(uniform[far]))
    return np.asarray(np.minimum(centre + spread * score, bound))


def _dense(
    prior: Prior, X: Array, z: Array, hidden: Indices, draws: int, generator: np.random.Generator
) -> Array:
    """Draw (h, draws) hidden values, each given all others: by rows of the inverse of the Gram matrix.

    With a mean that is estimated that is ``G^-1 - G^-1 H (H' G^-1 H)^-1 H' G^-1``.
    """
    noise = np.broadcast_to(np.asarray(prior.noise_variance), z.shape)
    gram = DenseGram(prior.kernel, X, noise_variance=noise)
    known, H = prior.known_at(X)[:, 0], prior.basis_at(X)
    unit = np.zeros((z.size, hidden.size))
    unit[hidden, np.arange(hidden.size)] = 1.0
    rows = gram.solve(unit)
    if H.shape[1]:
        weights = gram.solve(H)
        rows -= weights @ np.linalg.solve(H.T @ weights, weights[hidden].T)
    precision = np.ascontiguousarray(rows[hidden])
    rows[hidden] = 0.0
    pull = rows.T @ (z - known)  # of the values that were seen
    bound = (z - known)[hidden]
    spread = 1.0 / np.sqrt(precision.diagonal())
    found = np.repeat((bound - spread)[:, None], draws, axis=1)
    for _ in range(SWEEPS):
        for i in range(hidden.size):
            centre = found[i] - (pull[i] + precision[i] @ found) * spread[i] ** 2
            found[i] = _below(centre, spread[i], bound[i], generator)
    return np.asarray(found + known[hidden][:, None])


def _by_neighbours(
    prior: Prior, X: Array, z: Array, hidden: Indices, draws: int, generator: np.random.Generator
) -> Array:
    """Draw (h, draws) hidden values, each given its nearest neighbours, with a level of their own.

    Places none of which is a neighbour of another one are drawn together.
    """
    from cagp_dist.conditional_draws import add_neighbours, colours_of

    noise = np.broadcast_to(np.asarray(prior.noise_variance), z.shape)
    known = prior.known_at(X)[:, 0]
    near = nearest_points(X, X[hidden], NEIGHBOURS + 1)
    near = np.where(near == hidden[:, None], near[:, -1:], near)[:, :NEIGHBOURS]
    weights, spread = np.empty((2, hidden.size, NEIGHBOURS))
    for start in range(0, hidden.size, PLACES_AT_ONCE):
        some = slice(start, start + PLACES_AT_ONCE)
        weights[some], spread[some, 0] = _weights(prior, X, noise, hidden[some], near[some])
    bound, seen = (z - known)[hidden], z - known
    seen[hidden] = 0.0
    pull = np.einsum("hm,hm->h", weights, seen[near])  # of the values that were seen
    own = np.full(z.size, -1)
    own[hidden] = np.arange(hidden.size)
    near = own[near]
    colours = colours_of(near)
    groups = [np.flatnonzero(colours == colour) for colour in range(int(colours.max()) + 1)]
    found = np.repeat((bound - spread[:, 0])[:, None], draws, axis=1)
    for _ in range(SWEEPS // 2):
        for group in groups:
            centre = np.repeat(pull[group, None], draws, axis=1)
            add_neighbours(group, near, weights, found, centre)
            found[group] = _below(centre, spread[group, :1], bound[group, None], generator)
    return np.asarray(found + known[hidden][:, None])


def _weights(prior: Prior, X: Array, noise: Array, hidden: Indices, near: Indices) -> tuple[Array, Array]:
    """Weights (h, m) of neighbours in ordinary kriging, and standard deviations (h,), noise included."""
    from cagp_dist.compiled import evaluate_subsets

    h, m = near.shape
    system = np.empty((h, m + 1, m + 1))
    members = np.column_stack([near, hidden])
    evaluate_subsets(*prior.kernel.parameters, point_columns(X), members, False, system)
    right, own = system[:, m].copy(), system[:, m, m] + noise[hidden]
    system[:, np.arange(m), np.arange(m)] += noise[near]
    system[:, m] = system[:, :, m] = right[:, m] = 1.0
    system[:, m, m] = 0.0
    solved = np.linalg.solve(system, right[..., None])[..., 0]
    return solved[:, :m], np.sqrt(own - (solved * right).sum(axis=1))
