"""Noise that differs between points in a known way: dense likelihood with diag(noise), and its maximum."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.likelihood.exact.dense_likelihood import DenseLikelihood
from cagp_dist.likelihood.nugget import fit_beside_known_noise

from ..joined import one_after_another
from ..oracle import assert_close, kernel_matrix
from .textbook import curvature, slope

pytestmark = pytest.mark.usefixtures("one_blas_thread")


def problem(n=60, fields=3, seed=0):
    """Points of a square, fields of a known prior, and two kinds of instruments."""
    rng = np.random.default_rng(seed)
    X, known = rng.uniform(size=(n, 2)), np.where(rng.random(n) < 0.5, 0.01, 4.0)
    G = kernel_matrix(cagp.Matern32(0.3, 2.0), X, X) + np.diag(known + 0.05)
    return X, np.linalg.cholesky(G) @ rng.standard_normal((n, fields)), known


def log_likelihood(X, b, own, parameters):
    """As the books write it; ``own`` is added to the noise of each point."""
    lengthscale, variance, noise_variance = parameters
    G = kernel_matrix(cagp.Matern32(lengthscale, variance), X, X) + np.diag(noise_variance + own)
    return float(np.sum(multivariate_normal(np.zeros(len(X)), G).logpdf(b.T)))


def value_and_gradient(likelihood, parameters):
    lengthscale, variance, noise_variance = parameters
    evaluation = likelihood.evaluate(lengthscale, noise_variance / variance, 1.0 / variance)
    natural = evaluation.numbering.natural
    return evaluation.log_likelihood(variance), natural.T @ evaluation.gradient(variance)


@pytest.mark.parametrize("parameters", [(0.3, 1.7, 2.3), (0.1, 30.0, 2.1)])
def test_value_and_gradient(parameters):
    X, b, known = problem()
    own = known - known.mean()
    likelihood = DenseLikelihood(cagp.Matern32, X, b, memory_limit_bytes=2**30, deviations=own)
    value, gradient = value_and_gradient(likelihood, parameters)
    assert_close(value, log_likelihood(X, b, own, parameters), relative=1e-11)
    expected = slope(lambda x: log_likelihood(X, b, own, np.exp(x)), np.log(parameters))
    assert_close(gradient, expected, relative=1e-7)


@pytest.mark.parametrize("fixed", [False, True])
def test_the_fit_is_the_maximum_of_the_likelihood_with_the_noise_of_each_point(fixed):
    X, b, known = problem()
    own, typical = known - known.mean(), float(known.mean())
    bounds = {"noise_variance": (typical, typical) if fixed else (typical, 20.0)}
    result = cagp.fit(cagp.Matern32, X, b, mean=0.0, bounds=bounds, noise_deviations=own)

    def parameters(x):  # the logarithm of what is added to the known noise, where it is fitted
        return (*np.exp(x[:2]), typical + (0.0 if fixed else np.exp(x[2])))

    free = np.log([0.3, 2.0, 0.05])[: 2 if fixed else 3]
    best = minimize(
        lambda x: -log_likelihood(X, b, own, parameters(x)), free, method="Nelder-Mead",
        options={"xatol": 1e-6, "fatol": 1e-9, "maxiter": 2000},
    )  # fmt: skip
    found = (result.prior.kernel.lengthscale, result.prior.kernel.variance, result.prior.noise_variance)
    assert result.log_likelihood == pytest.approx(-best.fun, abs=1e-4)
    np.testing.assert_allclose(found, parameters(best.x), rtol=5e-3)
    assert_close(result.log_likelihood, log_likelihood(X, b, own, found), relative=1e-9)
    assert result.status.ok
    # with the mean noise in place of each point's own it ends elsewhere
    plain = cagp.fit(cagp.Matern32, X, b, mean=0.0, bounds=bounds)
    there = (plain.prior.kernel.lengthscale, plain.prior.kernel.variance, plain.prior.noise_variance)
    assert log_likelihood(X, b, own, there) < result.log_likelihood - (0.05 if fixed else 1.0)
    if not fixed:
        second = curvature(lambda x: log_likelihood(X, b, own, np.exp(x)), np.log(found), step=2e-4)
        assert_close(np.linalg.inv(result.log_covariance), -second, relative=2e-3)


@pytest.mark.parametrize(
    ("known", "most", "at_bound", "found"),
    [(9.0, 50.0, (), 9.0), (0.1, 0.5, ("noise_variance",), 0.5)],
)
def test_only_a_noise_that_adds_nothing_to_the_known_is_held(known, most, at_bound, found):
    X, b, _ = problem()
    result = fit_beside_known_noise(
        lambda bounds, kernel=cagp.Matern32: cagp.fit(kernel, X, b, mean=0.0, bounds=bounds),
        known=known,
        most=most,
    )
    assert result.at_bound == at_bound
    assert result.prior.noise_variance == pytest.approx(found)


@pytest.mark.parametrize(
    ("seed", "lengthscale", "better"),
    [(15, 0.05, (0.0453, 7.75, 1.0)), (37, 0.15, (0.1084, 0.44, 1.024))],
)
def test_a_field_weaker_than_the_mean_noise_is_found(seed, lengthscale, better):
    """A few bad stations make the mean noise; a search from one noise for all ends 1.4 and 4.1 below."""
    rng = np.random.default_rng(seed)
    X = cagp.unit_sphere(rng.uniform(35.0, 65.0, 40), rng.uniform(-10.0, 30.0, 40))
    known = rng.choice([0.3, 1.5, 4.0], 40) ** 2
    variance = 9.0 if seed == 15 else 1.0
    G = cagp.Matern32(lengthscale, variance)(X, X) + np.diag(known)
    b = np.linalg.cholesky(G) @ rng.standard_normal(40)
    mean, own = known.mean(), known - known.mean()
    bounds = {"noise_variance": (mean, max(2.0 * mean, 4.0 * b.var()))}
    result = cagp.fit(cagp.Matern32, X, b, mean=0.0, bounds=bounds, noise_deviations=own)
    there = log_likelihood(X, b[:, None], own, (*better[:2], better[2] * mean))
    assert result.log_likelihood > there - 1e-3


def test_noise_that_is_the_same_everywhere_changes_no_bit():
    X, b, _ = problem()
    with_zeros = cagp.fit(cagp.Matern32, X, b, noise_deviations=np.zeros(60))
    assert with_zeros.prior.kernel == cagp.fit(cagp.Matern32, X, b).prior.kernel


@one_after_another
@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"noise_deviations": [1.0]}, "shapes"),
        ({"method": "elbo"}, "method-elbo"),
        ({"bounds": {"noise_variance": (0.1, 0.5)}}, "negative-noise"),
    ],
)
def test_what_cannot_be_is_refused(arguments, key):
    X, b, known = problem()
    with pytest.raises(ArgumentError) as refusal:
        cagp.fit(cagp.Matern32, X, b, **{"noise_deviations": known - known.mean()} | arguments)
    assert refusal.value.key == key


@pytest.mark.parametrize("least", [0.04, 0.2**2, 0.3**2, 0.7])
def test_a_noise_that_is_held_does_not_stop_scoring(monkeypatch, least):
    """Also where its logarithm is off by rounding: no climb has to take over."""
    rng = np.random.default_rng(0)
    X, deviations = rng.uniform(size=(300, 2)), rng.choice([0.0, 0.1, 0.3], 300)
    covariance = cagp.Matern32(0.3, 2.0)(X, X) + np.diag(least + deviations)
    y = np.linalg.cholesky(covariance) @ rng.normal(size=300)
    monkeypatch.setattr("cagp_dist.likelihood.search.climb", None)
    result = cagp.fit(
        cagp.Matern32,
        X,
        y,
        mean=0.0,
        method="vecchia",
        noise_deviations=deviations,
        bounds={"noise_variance": (least, least)},
    )
    assert result.status.ok
    assert result.prior.noise_variance == pytest.approx(least, rel=1e-12)
