"""Fits beside a mean whose coefficients are estimated: the restricted likelihood (REML), math 9.

Its definition is the oracle: the likelihood of ``N'y``, with orthonormal columns N that are orthogonal to
the basis of the mean [Patterson & Thompson 1971].
"""

import numpy as np
import pytest
from scipy.linalg import null_space
from scipy.stats import binom, multivariate_normal

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.likelihood.exact.dense_likelihood import DenseLikelihood
from cagp_dist.likelihood.exact.ring_likelihood import RingLikelihood
from cagp_dist.likelihood.numbering import Numbering
from cagp_dist.likelihood.observed import centred_observations
from cagp_dist.runtime import SerialExecutor

from ..oracle import assert_close, kernel_matrix
from .textbook import slope

pytestmark = pytest.mark.usefixtures("one_blas_thread")

PLANE = cagp.BasisMean(lambda X: np.column_stack([np.ones(len(X)), X[:, :2]]), ("one", "east", "north"))
QUADRATIC = cagp.mean_family("quadratic-latitude")
LIMIT = 2**30


def textbook(G, H, y):
    """Sum over the columns of y (n, T) of the log density of ``N'y``."""
    N = null_space(H.T)
    return float(np.sum(multivariate_normal(np.zeros(N.shape[1]), N.T @ G @ N).logpdf((N.T @ y).T)))


def plane(n, fields, seed=0):
    rng = np.random.default_rng([seed, n, fields])
    return rng.uniform(size=(n, 2)), rng.normal(size=(n, fields))


def assert_is_the_likelihood(likelihood, function, parameters, numbering=Numbering()):  # noqa: B008 (frozen)
    """Value, and gradient by the logarithms of the parameters, from a function of these logarithms."""
    parameters = np.array(parameters)
    first = numbering.lengthscales
    variance = parameters[first]
    evaluation = likelihood.evaluate(*parameters[:first], *(parameters[first + 1 :] / variance))
    assert_close(evaluation.log_likelihood(variance), function(np.log(parameters)), relative=1e-9)
    gradient = numbering.natural.T @ evaluation.gradient(variance)
    assert_close(gradient, slope(function, np.log(parameters)), relative=1e-6)


@pytest.mark.parametrize(("n", "fields"), [(30, 1), (25, 3)])
def test_points_by_a_dense_factor(n, fields):
    X, y = plane(n, fields)
    likelihood = DenseLikelihood(cagp.Matern32, X, y, memory_limit_bytes=LIMIT, basis=PLANE.basis_at(X))

    def function(x):
        lengthscale, variance, noise = np.exp(x)
        G = kernel_matrix(cagp.Matern32(lengthscale, variance), X, X) + noise * np.eye(n)
        return textbook(G, PLANE.basis_at(X), y)

    assert_is_the_likelihood(likelihood, function, [0.3, 1.7, 0.2])


def test_a_sum_of_kernels():
    X, y = plane(30, 2)
    families = (cagp.Matern32, cagp.Matern52)
    likelihood = DenseLikelihood(families, X, y, memory_limit_bytes=LIMIT, basis=PLANE.basis_at(X))

    def function(x):
        short, long, first, second, noise = np.exp(x)
        kernel = cagp.Matern32(short, first) + cagp.Matern52(long, second)
        return textbook(kernel_matrix(kernel, X, X) + noise * np.eye(30), PLANE.basis_at(X), y)

    assert_is_the_likelihood(likelihood, function, [0.2, 0.8, 0.25, 0.75, 0.2], Numbering.of(2))


@pytest.mark.parametrize("latitude", [np.linspace(-60.0, 60.0, 4), np.array([-50.0, 10.0, 40.0])])
def test_grids_by_wavenumbers(latitude):
    """Also of a basis that varies along the circles, and on a mirrored grid."""
    grid = cagp.LatLonGrid(latitude, 6)
    y = np.random.default_rng(5).normal(size=(2, *grid.shape))
    wavy = cagp.BasisMean(lambda X: np.column_stack([np.ones(len(X)), X[:, 2], X[:, 0]]), ("1", "z", "x"))
    basis = wavy.basis_at(grid.points)
    likelihood = RingLikelihood(
        *(cagp.Matern32, grid, y),
        executor=SerialExecutor(),
        memory_limit_bytes=LIMIT,
        basis=basis.T.reshape(-1, *grid.shape),
    )

    def function(x):
        lengthscale, variance, noise = np.exp(x)
        G = kernel_matrix(cagp.Matern32(lengthscale, variance), grid.points, grid.points)
        return textbook(G + noise * np.eye(grid.size), basis, y.reshape(2, -1).T)

    assert_is_the_likelihood(likelihood, function, [0.6, 1.7, 0.2])


def test_noise_that_is_known_beside_the_nugget():
    X, y = plane(30, 2)
    more = np.random.default_rng(1).uniform(0.0, 0.4, size=30)
    likelihood = DenseLikelihood(
        cagp.Matern32, X, y, memory_limit_bytes=LIMIT, basis=PLANE.basis_at(X), deviations=more
    )

    def function(x):
        lengthscale, variance, noise = np.exp(x)
        G = kernel_matrix(cagp.Matern32(lengthscale, variance), X, X) + np.diag(noise + more)
        return textbook(G, PLANE.basis_at(X), y)

    variance = 1.7
    found = likelihood.evaluate(0.3, 0.2 / variance, 1.0 / variance)
    assert_close(found.log_likelihood(variance), function(np.log([0.3, variance, 0.2])), relative=1e-9)
    gradient = Numbering().natural.T @ found.gradient(variance)
    assert_close(gradient, slope(function, np.log([0.3, variance, 0.2])), relative=1e-6)


def test_a_fit_does_not_depend_on_the_coefficients():
    X, y = plane(60, 1)
    before = cagp.fit(cagp.Matern32, X, y[:, 0], mean=PLANE)
    after = cagp.fit(cagp.Matern32, X, y[:, 0] + PLANE.basis_at(X) @ [3.0, -40.0, 7.0], mean=PLANE)
    for name, ends in before.intervals().items():
        assert after.intervals()[name] == pytest.approx(ends, rel=1e-5, nan_ok=True)
    assert before.prior.mean is PLANE
    posterior = cagp.condition(before.prior, X, y[:, 0], X[:2], solver=cagp.Cholesky())
    assert posterior.coefficients.names == PLANE.coefficient_names


def test_thinned_points_keep_their_rows_of_the_basis():
    grid = cagp.LatLonGrid(np.linspace(-80.0, 80.0, 33), 64)
    coarse, _ = centred_observations(
        grid, grid.points[:, 2].reshape(grid.shape) ** 2, cagp.mean_family("constant")
    )
    few = coarse.thinned(300)
    assert few.basis.shape == (1, *few.grid.shape)
    quadratic, _ = centred_observations(grid.points, grid.points[:, 0], QUADRATIC)
    few = quadratic.thinned(300)
    assert_close(few.basis, QUADRATIC.basis_at(few.X))
    assert np.abs(quadratic.basis.T @ quadratic.residuals).max() < 1e-12  # those of least squares


def test_what_cannot_be_restricted_is_refused():
    X, y = plane(30, 1)
    with pytest.raises(ArgumentError) as refused:
        cagp.fit(cagp.Matern32, X, y[:, 0], mean=PLANE, method="elbo")
    assert refused.value.key == "method-elbo"
    level = cagp.BasisMean(lambda X: np.ones((len(X), 2)), ("level", "elevation"))
    with pytest.raises(ArgumentError) as refusal:
        cagp.fit(cagp.Matern32, X, y[:, 0], mean=level)
    assert refusal.value.key == "coefficient-undetermined"
    with pytest.raises(ArgumentError) as refusal:
        cagp.fit(cagp.Matern32, X, y[:, 0], mean=0.0).intervals(1.5)
    assert refusal.value.key == "out-of-range"


def test_intervals_are_symmetric_in_the_logarithms():
    X, y = plane(50, 4)
    found = cagp.fit(cagp.Matern32, X, y + np.sin(9.0 * X[:, :1]), mean=0.0)
    low, high = found.intervals(0.9)["variance"]
    value, error = found.prior.kernel.variance, np.sqrt(found.log_covariance[1, 1])
    assert np.sqrt(low * high) == pytest.approx(value)
    assert np.log(high / low) == pytest.approx(2 * 1.6448536269514722 * error)
    assert found.intervals()["variance"][0] < low


@pytest.mark.exhaustive
def test_variances_of_wide_fields_are_recovered_where_least_squares_take_half_of_them():
    """Fields with a quadratic mean and a lengthscale of a radian, 200 points; 200 fields of four designs.

    Least squares explain much of such a field by the mean, which is then gone from the variance and its
    interval; the restricted likelihood counts that. Intervals hold the truth in a binomial number of cases:
    of 200 at 95 % fewer than 176 have probability 8e-5 if they are right.
    """
    truth, held = np.array([1.0, 4.0, 0.1]), {"reml": 0, "plain": 0}
    ratios = {"reml": [], "plain": []}
    for design in range(4):
        rng = np.random.default_rng([9, design])
        X = rng.normal(size=(200, 3))
        X /= np.linalg.norm(X, axis=1)[:, None]
        G = kernel_matrix(cagp.Matern32(*truth[:2]), X, X) + truth[2] * np.eye(200)
        fields = np.linalg.cholesky(G) @ rng.normal(size=(200, 50))
        latitude, longitude = np.rad2deg(np.arcsin(X[:, 2])), np.rad2deg(np.arctan2(X[:, 1], X[:, 0]))
        for y in fields.T:
            plain = QUADRATIC.fit(latitude, longitude, y)
            for name, mean in (("reml", QUADRATIC), ("plain", lambda X: plain(X)[:, 0])):  # noqa: B023
                found = cagp.fit(cagp.Matern32, X, y, mean=mean)
                low, high = found.intervals()["variance"]
                held[name] += low <= truth[1] <= high
                ratios[name].append(found.prior.kernel.variance / truth[1])
    assert binom.cdf(175, 200, 0.95) < 1e-4
    # the mean of 200 ratios has a standard error of about 0.07
    assert 0.85 < np.mean(ratios["reml"]) < 1.35
    assert np.mean(ratios["plain"]) < 0.75
    assert held["reml"] >= 176
    assert held["plain"] < 176
