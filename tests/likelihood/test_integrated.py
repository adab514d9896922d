"""Numbers integrated over: nodes against dense solves, weights and distributions against a truth."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from scipy.special import ndtr
from scipy.stats import chi2, norm

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.likelihood.exact import integrated
from cagp_dist.likelihood.exact.hyperprior import log_prior_of_lengthscale, log_prior_of_ratio
from cagp_dist.likelihood.exact.integrated import Held, SharedFields, _quantiles, integrate, joined
from cagp_dist.posterior.left_out import each_left_out
from cagp_dist.predictive import Mixture

CONSTANT = cagp.mean_family("constant")
LINEAR = cagp.BasisMean(lambda X: np.c_[np.ones(len(X)), X], ("1", "x", "y"))
LEVEL = 0.9


def _drawn(n, q, generator, *, lengthscale=0.2, noise=0.1, fields=1):
    """Points (n + q, 2), observations (n, T) and the field at the q others (q, T)."""
    X = generator.random((n + q, 2))
    covariance = cagp.Matern32(lengthscale)(X, X) + 1e-10 * np.eye(n + q)
    field = np.linalg.cholesky(covariance) @ generator.standard_normal((n + q, fields))
    y = field[:n] + np.sqrt(noise) * generator.standard_normal((n, fields)) + 5.0
    return X, y, field[n:] + 5.0


def _fields(X, y, *, mean=CONSTANT, noise=None):
    noise = np.ones(len(X)) if noise is None else noise
    return SharedFields(X, y, cagp.Prior(cagp.Matern32(1.0), 1.0, mean), noise)


CASES = {
    "noise sought": (Held(), CONSTANT),
    "a noise for each point": (Held(noise=True), CONSTANT),
    "a nugget beside it": (Held(noise=True, nugget=True), CONSTANT),
    "variance given": (Held(variance=0.7), 5.0),
    "lengthscale given": (Held(lengthscale=0.3), LINEAR),
}


@pytest.mark.parametrize("case", CASES)
def test_each_node_predicts_as_a_dense_solve_and_weighs_as_its_likelihood(case):
    held, mean = CASES[case]
    generator = np.random.default_rng(4)
    X, y, _ = _drawn(12, 5, generator, fields=2)
    X, X_new, n = X[:12], X[12:], 12
    known = generator.uniform(0.05, 0.3, n) if held.noise else np.ones(n)
    fields = _fields(X, y, mean=mean, noise=known)
    found = integrate(cagp.Matern32(1.0), [fields], held=held)
    W = np.array([[0.5, 0.0], [0.5, 0.0], [0.0, 1.0], [0.0, -1.0], [0.0, 0.0]])
    sums = cagp.LinearFunctionals(X_new, W)
    distributions, of_sums = found.predict(fields, X_new), found.predict(fields, sums)
    of_values = found.predict(fields, X_new, noise_variance=np.full(5, 0.2))
    left_out = found.left_out(fields)
    basis = fields.mean.basis_at(X)
    k, log_weights = basis.shape[1], []
    kept = np.argsort(found.weights)[-6:]  # none at an end of the grid
    noises = found.noise_variances(known)
    extent = np.max(np.linalg.norm(X[:, None] - X, axis=2))
    for index in kept:
        node, noise = found.nodes[index], noises[index]
        kernel = cagp.Matern32(node.lengthscale, node.variance)
        prior = cagp.Prior(kernel, noise, mean)
        for own, targets in ((distributions, X_new), (of_sums, sums)):
            dense = cagp.condition(prior, X, y, targets, solver=cagp.Cholesky())
            np.testing.assert_allclose(own.location[index], dense.mean.T, atol=1e-8)
            np.testing.assert_allclose(own.scale[index] ** 2, np.tile(dense.variance, (2, 1)), rtol=1e-6)
        at_new = found.noise_variances(np.full(5, 0.2))[index]
        np.testing.assert_allclose(of_values.scale[index] ** 2, distributions.scale[index] ** 2 + at_new)
        others = each_left_out(prior, X, y)
        np.testing.assert_allclose(left_out.location[index], others.mean, atol=1e-8)
        np.testing.assert_allclose(left_out.scale[index] ** 2, others.variance, rtol=1e-6)
        # the restricted likelihood, by projection on what the mean leaves
        rest = np.linalg.svd(basis)[0][:, k:]
        G = rest.T @ (kernel(X, X) + np.diag(noise)) @ rest
        b = rest.T @ (y if k else y - mean)
        quadratic = np.einsum("nt,nt->", b, np.linalg.solve(G, b))
        if np.isfinite(found.degrees):  # with the variance integrated out, (Q / m)^(-m / 2) |R|^(-T / 2)
            assert found.degrees == 2 * (n - k)
            assert quadratic == pytest.approx(found.degrees)
        value = -0.5 * (2.0 * np.linalg.slogdet(G)[1] + quadratic)
        value += log_prior_of_lengthscale(node.lengthscale, extent) + log_prior_of_ratio(node.ratio)
        if held.nugget:  # weights of Gauss and Legendre for its share of the standard deviation
            nodes, weights = np.polynomial.legendre.leggauss(integrated.NUGGETS)
            share = np.sqrt(node.nugget / (node.nugget + found.noise_level))
            value += np.log(weights[np.argmin(np.abs(0.5 * (1.0 + nodes) - share))])
        log_weights.append(value)
    ours = np.log([found.nodes[index].weight for index in kept])
    np.testing.assert_allclose(np.diff(ours), np.diff(log_weights), atol=1e-5)
    assert sum(node.weight for node in found.nodes) == pytest.approx(1.0)


def test_kernels_are_averaged_by_their_probability():
    X, y, _ = _drawn(25, 30, np.random.default_rng(1))
    fields, families = _fields(X[:25], y), (cagp.Matern12, cagp.Matern52)
    parts = [integrate(family(1.0), [fields], held=Held()) for family in families]
    both = joined(parts, (0.6, 0.2))
    mean, rough, smooth = (Mixture(*found.predict(fields, X[25:])).mean for found in (both, *parts))
    np.testing.assert_allclose(mean, 0.75 * rough + 0.25 * smooth)
    left_out, alone = (Mixture(*found.left_out(fields)).mean for found in (both, parts[0]))
    assert np.abs(left_out - alone).max() > 1e-3
    named, alone = (
        found.quantiles((0.05, 0.95)) for found in (both, parts[0])
    )  # of the kernel that is named
    assert named.keys() == alone.keys()
    for name, ends in named.items():
        np.testing.assert_allclose(ends, alone[name], rtol=1e-12)
    assert both.distributions.endswith("(Matern12 75%, Matern52 25%)")


def test_a_finer_grid_says_the_same(monkeypatch):
    X, y, _ = _drawn(25, 30, np.random.default_rng(1))
    fields = _fields(X[:25], y)

    def said():
        found = integrate(cagp.Matern32(1.0), [fields], held=Held())
        distribution = Mixture(*found.predict(fields, X[25:]))
        return len(found.nodes), distribution.mean, distribution.std, distribution.quantile([0.05, 0.95])

    nodes, *coarse = said()
    monkeypatch.setattr(integrated, "LENGTHSCALES", 61)
    monkeypatch.setattr(integrated, "RATIOS", 61)
    monkeypatch.setattr(integrated, "FALL", 14.0)
    many, *fine = said()
    assert nodes < 100 < 500 < many
    for ours, better in zip(coarse, fine, strict=True):
        np.testing.assert_allclose(ours, better, atol=0.02 * np.max(fine[1]))


def test_intervals_of_few_observations_hold_what_they_promise():
    """Twelve observations: plugged in, 90 % intervals hold three quarters."""
    generator, fields = np.random.default_rng(0), 40
    shares = np.empty((2, fields))
    for number in range(fields):
        X, y, truth = _drawn(12, 30, generator, lengthscale=generator.uniform(0.1, 0.3))
        observed = _fields(X[:12], y)
        found = integrate(cagp.Matern32(1.0), [observed], held=Held())
        distributions = Mixture(*found.predict(observed, X[12:]))
        best = int(np.argmax(distributions.weights))
        z = (truth.T - distributions.location[best]) / distributions.scale[best]
        for way, probability in enumerate((distributions.cdf(truth.T), ndtr(z))):
            shares[way, number] = np.mean(np.abs(probability - 0.5) <= 0.5 * LEVEL)
    # shares of a field have a standard deviation of 0.11, their mean a standard error of 0.018; over 200
    # fields it is 0.87 (pipelines/experiments/few_observations.py)
    assert abs(shares[0].mean() - 0.87) < 3.0 * 0.018
    assert shares[1].mean() < shares[0].mean() - 0.02


def test_what_cannot_be_integrated_over_is_refused():
    X, y, _ = _drawn(3, 1, np.random.default_rng(0))
    with pytest.raises(ArgumentError) as refused:
        integrate(cagp.Matern32(1.0), [_fields(X[:3], y)], held=Held())
    assert refused.value.key == "few-observations"
    with pytest.raises(ArgumentError) as refused:
        integrate(cagp.Matern32(1.0), [_fields(np.ones((5, 2)), np.zeros((5, 1)))], held=Held())
    assert refused.value.key == "one-place"
    with pytest.raises(ArgumentError) as refused:
        integrate(cagp.Matern32(1.0), [_fields(X, np.zeros((4, 1)))], held=Held(variance=1.0, nugget=True))
    assert refused.value.key == "variance-with-nugget"


def test_quantiles_of_numbers_are_those_of_their_density():
    """Of a normal logarithm on a grid; nodes that share a value count together; over chi-square with m."""
    levels = (0.05, 0.5, 0.9)
    x = np.linspace(-4.0, 4.0, 41)
    weights = norm.pdf(x) / norm.pdf(x).sum()
    found = _quantiles(np.exp(x), weights, levels)
    np.testing.assert_allclose(np.log(found), norm.ppf(levels), atol=0.01)
    tied = np.concatenate([np.exp(x), np.exp(x[5:20]) * (1.0 + 1e-13)])
    halved = np.concatenate([weights, 0.5 * weights[5:20]])
    halved[5:20] *= 0.5
    np.testing.assert_allclose(_quantiles(tied, halved, levels), found, rtol=1e-9)
    assert _quantiles(np.full(3, 2.0), np.full(3, 1.0 / 3.0), levels) == pytest.approx([2.0] * 3)
    scaled = _quantiles(np.array([2.0]), np.ones(1), levels, degrees=25.0)
    np.testing.assert_allclose(scaled, 2.0 * 25.0 / chi2.isf(levels, 25.0), rtol=1e-4)


def test_intervals_hold_numbers_as_often_as_they_say():
    """Of fields whose numbers are drawn from the prior over them; 4 standard errors of 60 draws."""
    held, generator = np.zeros(2), np.random.default_rng(2)
    for _ in range(60):
        X = generator.uniform(size=(25, 2))
        extent = pdist(X).max()
        lengthscale = 0.0
        while not 0.01 * extent < lengthscale < 10.0 * extent:
            lengthscale = 0.1 * extent * np.log(2.0) / -np.log(generator.uniform())
        kernel = cagp.Matern32(lengthscale, 1.0)
        y = 10.0 + np.linalg.cholesky(kernel(X, X) + 0.1 * np.eye(25)) @ generator.standard_normal(25)
        fields = SharedFields(
            X, y[:, None], cagp.Prior(kernel, 1.0, cagp.mean_family("constant")), np.full(25, 0.1)
        )
        found = integrate(kernel, [fields], held=Held(noise=True)).quantiles((0.05, 0.95))
        for number, (name, true) in enumerate({"lengthscale": lengthscale, "variance": 1.0}.items()):
            held[number] += found[name][0] <= true <= found[name][1]
    assert np.abs(held / 60 - 0.9).max() < 4.0 * np.sqrt(0.09 / 60)
