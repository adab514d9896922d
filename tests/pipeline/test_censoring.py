"""Censored values are drawn by the distribution that all others give them, below their bounds."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import multivariate_normal

import cagp_dist as cagp
from cagp_dist.conditional_draws import add_neighbours, colours_of
from cagp_dist.likelihood.exact.hyperprior import (
    LONGEST,
    SHORTEST,
    log_prior_of_lengthscale,
    log_prior_of_ratio,
)
from cagp_dist.likelihood.exact.integrated import Held
from cagp_dist.pipeline import censoring, integration
from cagp_dist.pipeline.censoring import drawn, tobit
from cagp_dist.pipeline.defaults import QUANTILE_LEVELS
from cagp_dist.pipeline.field_solves import DrawnFields
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.observations import Observations
from cagp_dist.predictive.mixtures import Mixture
from cagp_dist.predictive.transforms import Censored, Identity

KERNEL = cagp.Matern32(0.08, 1.0)


def observed_of(n, seed, count, *, limits=False):
    """Give observations, of which so many lowest are censored, by limits of their own perhaps, and values."""
    rng = np.random.default_rng(seed)
    lat, lon = rng.uniform(47.0, 53.0, n), rng.uniform(0.0, 9.0, n)
    gram = KERNEL(*2 * [cagp.unit_sphere(lat, lon)]) + 0.05 * np.eye(n)
    z = np.linalg.cholesky(gram) @ rng.standard_normal(n)
    threshold = np.sort(z)[count - 1 : count + 1].mean()
    if limits:
        hidden = z < threshold
        bounds = z + hidden * rng.uniform(0.1, 1.0, n)
        observed = Observations.from_points(lat, lon, bounds[None], limits=hidden[None])
        return observed.transformed(Identity()), gram, z
    transform = Censored(Identity(), threshold, threshold)
    return Observations.from_points(lat, lon, z[None]).transformed(transform), gram, z


@pytest.mark.parametrize(
    ("estimated", "limits"),
    [(False, False), (True, True)],
    ids=["known mean, one bound", "estimated mean, limits of each"],
)
def test_draws_are_those_of_rejection(estimated, limits):
    """Mean and covariance of 4,000 draws of each; five standard errors."""
    observed, gram, z = observed_of(12, 3, 4, limits=limits)
    hidden = observed.censored[0]
    bound = observed.values[0, hidden]
    mean = cagp.MEANS["constant"] if estimated else 0.0
    model = FittedModel(KERNEL, mean, np.asarray(0.0), 0.05)
    found = drawn(observed, model, draws=4000).values
    np.testing.assert_array_equal(found[:, ~hidden], np.broadcast_to(z[~hidden], (4000, (~hidden).sum())))
    precision = np.linalg.inv(gram)
    if estimated:
        ones = precision.sum(axis=1)
        precision = precision - np.outer(ones, ones) / ones.sum()
    covariance = np.linalg.inv(precision[np.ix_(hidden, hidden)])
    centre = -covariance @ precision[np.ix_(hidden, ~hidden)] @ z[~hidden]
    rng = np.random.default_rng(0)
    free = centre + rng.standard_normal((400_000, hidden.sum())) @ np.linalg.cholesky(covariance).T
    kept = free[(free <= bound).all(axis=1)][:4000]
    assert len(kept) == 4000
    own = found[:, hidden]
    assert (own <= bound).all()
    error = np.sqrt((own.var(axis=0) + kept.var(axis=0)) / 4000)
    np.testing.assert_array_less(np.abs(own.mean(axis=0) - kept.mean(axis=0)), 5.0 * error)
    spread = np.sqrt(2.0 / 4000 * 4.0) * kept.var(axis=0)  # of a variance, whose kurtosis is at most about 9
    np.testing.assert_array_less(np.abs(own.var(axis=0) - kept.var(axis=0)), 5.0 * spread)


def test_each_model_draws_as_it_does_alone():
    """Means of 500 draws by three models at once, and by each: six standard errors."""
    observed, _, _ = observed_of(30, 6, 10)
    models = [
        FittedModel(cagp.Matern32(lengthscale, variance), mean, np.asarray(0.0), noise)
        for lengthscale, variance, noise, mean in (
            (0.08, 1.0, 0.05, 0.0),
            (0.02, 3.0, 0.5, 1.0),
            (0.2, 0.3, 0.1, cagp.MEANS["constant"]),
        )
    ]
    together = drawn(observed, *models, draws=500).values.reshape(3, 500, 30)
    hidden = observed.censored[0]
    for own, model in zip(together, models, strict=True):
        alone = drawn(observed, model, draws=500, seed=1).values
        error = np.sqrt((own.var(axis=0) + alone.var(axis=0)) / 500)[hidden]
        np.testing.assert_array_less(np.abs(own.mean(axis=0) - alone.mean(axis=0))[hidden], 6.0 * error)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_numbers_beside_censored_values_have_their_posterior(seed, monkeypatch):
    """Of lengthscale and noise, by draws and by the probability that two values are below their bound.

    Means of logarithms of 250 draws: four of their standard errors, and a hundredth for the grids.
    """
    observed, _, _ = observed_of(10, [7, seed], 2)
    monkeypatch.setattr(integration, "NUMBER_DRAWS", 250)
    monkeypatch.setattr(integration, "ROUNDS_OF_NUMBERS", (5, 5))
    learned = FittedModel(KERNEL, 0.0, np.asarray(0.0), 0.05)
    held = Held(variance=1.0)
    made = integration._integral_beside_draws(learned, observed, held, [(KERNEL, 1.0)], lambda _: None)
    own = np.log([(model.kernel.lengthscale, model.nugget) for _, model in made.likely])
    X, z, hidden = observed.X, observed.values[0], observed.censored[0]
    extent = np.linalg.norm(X[:, None] - X, axis=2).max()
    u, v = np.linspace(*np.log([SHORTEST * extent, LONGEST * extent]), 25), np.linspace(-13.8, 4.6, 25)
    value = np.full((u.size, v.size), -np.inf)
    for i, lengthscale in enumerate(np.exp(u)):
        for j, ratio in enumerate(np.exp(v)):
            gram = cagp.Matern32(float(lengthscale), 1.0)(X, X) + ratio * np.eye(10)
            S = gram[np.ix_(~hidden, ~hidden)]
            W = np.linalg.solve(S, gram[np.ix_(~hidden, hidden)])
            left = gram[np.ix_(hidden, hidden)] - gram[np.ix_(hidden, ~hidden)] @ W
            below = multivariate_normal.cdf(z[hidden], W.T @ z[~hidden], left, allow_singular=True)
            value[i, j] = (
                multivariate_normal.logpdf(z[~hidden], cov=S, allow_singular=True)
                + np.log(max(below, 1e-300))
                + log_prior_of_lengthscale(np.exp(u[i : i + 1]), extent)[0]
                + log_prior_of_ratio(np.exp(v[j : j + 1]))[0]
            )
    weights = np.exp(value - value.max())
    weights /= weights.sum()
    expected = np.array([weights.sum(axis=1) @ u, weights.sum(axis=0) @ v])
    error = own.std(axis=0) / np.sqrt(len(own))
    np.testing.assert_array_less(np.abs(own.mean(axis=0) - expected), 4.0 * error + 0.01)


@pytest.mark.exhaustive
def test_draws_of_numbers_are_as_after_four_times_the_rounds(monkeypatch):
    """Half of two fields with gaps of their own is censored. Numbers begin twice and half as large.

    Means of logarithms of 200 draws each: four standard errors.
    """
    two = [observed_of(30, [8, seed], 15)[0] for seed in (0, 1)]
    values = np.concatenate([each.values for each in two])
    values[0, :3] = values[1, -2:] = np.nan
    observed = Observations.from_points(two[0].north, two[0].east, values)
    hidden = np.concatenate([each.censored for each in two]) & np.isfinite(values)
    observed = replace(observed, censored=hidden, transform=two[0].transform)
    began = FittedModel(cagp.Matern32(0.04, 2.0), cagp.MEANS["constant"], np.asarray(0.0), 0.1)
    monkeypatch.setattr(integration, "NUMBER_DRAWS", 200)
    rounds, found = integration.rounds_of_numbers(observed.hidden_share), []
    assert 5 <= rounds <= 7
    for many in (rounds, 4 * rounds):
        monkeypatch.setattr(integration, "ROUNDS_OF_NUMBERS", (many, many))
        made = integration._integral_beside_draws(
            began, observed, Held(), [(cagp.Matern32(1.0), 0.6), (cagp.Matern12(1.0), 0.4)], lambda _: None
        )
        families = [type(model.kernel).__name__ for _, model in made.likely]
        assert families == ["Matern32"] * 120 + ["Matern12"] * 80
        found.append(
            np.log(
                [(model.kernel.lengthscale, model.kernel.variance, model.nugget) for _, model in made.likely]
            )
        )
    error = np.sqrt(sum(own.var(axis=0) / len(own) for own in found))
    np.testing.assert_array_less(np.abs(found[0].mean(axis=0) - found[1].mean(axis=0)), 4.0 * error)
    low, high = made.drawn_intervals["lengthscale"]  # of the kernel that is named
    own = np.exp(found[1][:120, 0])
    assert 0.75 < np.mean((own > low) & (own < high)) < 0.99


def test_neighbours_draw_as_all_others_do():
    """Where all but a few are neighbours: means of 300 draws of each, five standard errors and 0.02."""
    observed, _, _ = observed_of(60, 5, 20)
    model = FittedModel(KERNEL, cagp.MEANS["constant"], np.asarray(0.0), 0.05)
    hidden = np.flatnonzero(observed.censored[0])
    prior, z = model.prior(observed, np.arange(60), np.array([0])), observed.values[0]
    dense, near = (
        way([prior], observed.X, z, hidden, 300, np.random.default_rng(1))
        for way in (censoring._dense, censoring._by_neighbours)
    )
    error = np.sqrt((dense.var(axis=1) + near.var(axis=1)) / 300)
    np.testing.assert_array_less(np.abs(dense.mean(axis=1) - near.mean(axis=1)), 5.0 * error + 0.02)


def test_no_neighbours_have_one_colour_and_each_row_is_a_sum_over_neighbours():
    rng = np.random.default_rng(2)
    near = rng.integers(-1, 300, (300, 200))  # more than the 64 colours that there is room for at first
    near[near == np.arange(300)[:, None]] = -1
    colours = colours_of(near)
    assert colours.max() > 64
    for j in range(200):
        there = near[:, j] >= 0
        assert (colours[there] != colours[near[there, j]]).all()
    weights, values, chosen = (
        rng.standard_normal((300, 200)),
        rng.standard_normal((300, 5)),
        np.array([7, 2, 9]),
    )
    dense = np.zeros((300, 300))
    there = near >= 0
    np.add.at(dense, (np.nonzero(there)[0], near[there]), weights[there])
    found = np.ones((3, 5))
    add_neighbours(chosen, near, weights, values, found)
    np.testing.assert_allclose(found, 1.0 + dense[chosen] @ values, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("spread", "most"), [(0.3, 0.002), (2.0, 0.015), (5.0, 0.05)])
def test_draws_that_lie_side_by_side_are_one_in_quantiles(spread, most):
    """Within a part of a standard deviation; quantiles of other draws are 0.04, 0.2 and 0.3 away."""
    means = spread * np.random.default_rng(4).standard_normal((2, censoring.DRAWS, 40))
    scale = np.ones((2, 1, 40))
    whole = Mixture(
        np.full(means.shape[1], 1.0 / means.shape[1]),
        means.swapaxes(0, 1),
        np.full((means.shape[1], 2, 40), np.hypot(1.0, 0.5)),
    )
    found = DrawnFields(means, scale, np.zeros((1, 40))).distribution(0.25)
    assert len(found.weights) < len(whole.weights) / 2
    np.testing.assert_allclose(found.mean, whole.mean, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.std, whole.std, rtol=1e-12)
    for level in QUANTILE_LEVELS:
        apart = found.quantile(level) - whole.quantile(level)
        assert (np.abs(apart) < most * whole.std).all()
    below = [ndtr(each.normal_score(np.zeros((2, 40)))) for each in (found, whole)]
    assert np.abs(below[0] - below[1]).max() < 0.015


def test_independent_values_below_a_bound_have_the_mean_of_all():
    """Five standard errors of 4,000 values, a third of them censored, are about 0.12."""
    z = np.random.default_rng(1).normal(2.0, 1.5, 4000)
    hidden = z < 1.4
    mean, spread = tobit(np.where(hidden, 1.4, z), hidden)
    assert mean == pytest.approx(2.0, abs=0.12)
    assert spread == pytest.approx(1.5, abs=0.12)
