"""How many independent fields several times are worth."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.likelihood.replicates import effective_fields

KERNEL, NOISE = cagp.Matern32(0.4, 3.0), 0.2


def fields(times, rho, *, n=120, seed=0):
    """Points, and fields that follow each other with correlation rho (an AR(1) in time)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    draws = np.linalg.cholesky(KERNEL(X, X) + NOISE * np.eye(n)) @ rng.normal(size=(n, times))
    for t in range(1, times):
        draws[:, t] = rho * draws[:, t - 1] + np.sqrt(1.0 - rho**2) * draws[:, t]
    return X, draws


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_correlated_times_are_worth_as_many_as_theory_says(rho):
    X, draws = fields(200, rho)
    # the sum of rho^(2 k) over all lags, from both sides
    expected = 200.0 * (1.0 - rho**2) / (1.0 + rho**2)
    assert effective_fields(KERNEL, NOISE, X, draws) == pytest.approx(expected, rel=0.1)


def test_standard_errors_are_too_small_by_that_much():
    """Estimates of the variance from many stretches of correlated fields scatter as the formula says."""
    estimates, worth = [], []
    for seed in range(60):
        X, draws = fields(40, 0.8, n=40, seed=seed)
        R = KERNEL(X, X) + NOISE * np.eye(40)
        estimates.append(np.einsum("nt,nt->", draws, np.linalg.solve(R, draws)) / draws.size)
        worth.append(effective_fields(KERNEL, NOISE, X, draws))
    scatter = np.var(estimates)  # 2 / (n T) for independent fields; known to 18 % from 60 stretches
    assert scatter / (2.0 / (40 * np.mean(worth))) == pytest.approx(1.0, abs=0.55)
    assert scatter > 2.0 * 2.0 / (40 * 40)


def test_one_field_is_one_and_equal_ones_are_one():
    X, draws = fields(1, 0.0)
    assert effective_fields(KERNEL, NOISE, X, draws) == 1.0
    assert effective_fields(KERNEL, NOISE, X, np.tile(draws, (1, 30))) == pytest.approx(1.0, abs=0.05)


def test_fields_without_any_departure_say_nothing():
    X, draws = fields(40, 0.8)
    calm = np.insert(draws, [0, 40], 0.0, axis=1)
    expected = effective_fields(KERNEL, NOISE, X, draws)
    assert effective_fields(KERNEL, NOISE, X, calm) == pytest.approx(expected, rel=0.15)
