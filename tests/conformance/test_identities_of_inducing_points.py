"""Identity T35 of the mathematics page: Titsias' bound of the likelihood, by inducing points.

Here the bound is written out as it stands in the source, with the matrix Q;
`pipelines.experiments.sgpr` has another formula.
"""

import itertools

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import cagp_dist as cagp
from pipelines.experiments.sgpr import Sgpr

from ..oracle import assert_close, kernel_matrix
from .test_identities_of_bounds import every_model

pytestmark = pytest.mark.usefixtures("one_blas_thread")


class Case:
    """The bound at a random place, and its matrices, by the formulas of the kernels' names."""

    def __init__(
        self,
        kernel=cagp.Matern32,
        anisotropic=False,
        *,
        n=31,
        p=3,
        inducing=7,
        fields=1,
        longest=0.9,
        jitter=0.0,
        learn_inducing=False,
        seed=0,
    ):
        rng = np.random.default_rng([seed, n])
        self.X, self.b = rng.uniform(size=(n, p)), rng.normal(size=(n, fields))
        self.Z = rng.uniform(size=(inducing, p)) if isinstance(inducing, int) else inducing(self.X)
        self.of = Sgpr(
            kernel,
            self.X,
            self.b,
            inducing=self.Z,
            learn_inducing=learn_inducing,
            jitter=jitter,
            anisotropic=anisotropic,
        )
        x = np.log(rng.uniform(0.2, longest, size=self.of.hyperparameters.size))
        self.kernel, self.noise = self.of.hyperparameters.read(x)
        self.x = self.of.vector(self.kernel, self.noise)
        np.testing.assert_allclose(self.x[: len(x)], x, atol=1e-14)
        own = jitter * self.kernel.variance * np.eye(len(self.Z))
        self.K, self.KZ = (kernel_matrix(self.kernel, A, A) for A in (self.X, self.Z))
        self.KXZ, self.KZ = kernel_matrix(self.kernel, self.X, self.Z), self.KZ + own
        self.Q = self.KXZ @ np.linalg.solve(self.KZ, self.KXZ.T)
        self.white = self.noise * np.eye(n)

    def log_density(self, covariance):
        """Of all fields, with so much noise beside it."""
        distribution = multivariate_normal(np.zeros(len(self.X)), covariance + self.white)
        return float(np.sum(distribution.logpdf(self.b.T)))

    @property
    def bound(self):
        """``log N(b | 0, Q + s2 I) - tr(K - Q) / (2 s2)``, field by field [Titsias 2009, eq. 9]."""
        left_out = self.b.shape[1] * np.trace(self.K - self.Q)
        return self.log_density(self.Q) - 0.5 * left_out / self.noise

    def posterior(self, targets):
        """Mean and variance [Titsias 2009, eq. 6], the optimal distribution of the field at Z put in."""
        V = kernel_matrix(self.kernel, targets, self.Z)
        S = np.linalg.inv(self.KZ + self.KXZ.T @ self.KXZ / self.noise)
        prior = kernel_matrix(self.kernel, targets, targets)
        covariance = prior - V @ (np.linalg.inv(self.KZ) - S) @ V.T
        return V @ S @ self.KXZ.T @ self.b / self.noise, covariance.diagonal()


def itself(X):
    """Every observed point as an inducing one, in another order."""
    return X[::-1]


@every_model
def test_the_bound_is_what_it_stands_for_t35(kernel, anisotropic):
    for seed, fields, jitter in ((0, 1, 0.0), (1, 3, 0.0), (2, 1, 0.3)):
        case = Case(kernel, anisotropic, fields=fields, jitter=jitter, seed=seed)
        assert case.of(case.x)[0] == pytest.approx(case.bound, rel=1e-10)
        targets = np.random.default_rng(5).uniform(size=(9, 3))
        for found, expected in zip(case.of.posterior(case.x, targets), case.posterior(targets), strict=True):
            assert_close(found, expected, relative=1e-9)


@every_model
def test_every_point_as_an_inducing_one_gives_the_likelihood_t35(kernel, anisotropic):
    case = Case(kernel, anisotropic, n=17, inducing=itself, fields=2, longest=0.5)
    assert case.of(case.x)[0] == pytest.approx(case.log_density(case.K), rel=1e-9)


def test_every_point_as_an_inducing_one_gives_the_posterior_t35():
    case, targets = Case(inducing=itself, fields=2), np.random.default_rng(5).uniform(size=(7, 3))
    prior = cagp.Prior(case.kernel, case.noise)
    expected = cagp.condition(prior, case.X, case.b, targets, solver=cagp.Cholesky())
    mean, variance = case.of.posterior(case.x, targets)
    assert_close(mean, expected.mean)
    assert_close(variance, expected.variance)


def test_the_bound_is_below_the_likelihood_t35():
    """On 200 random problems, of random size, kernel, inducing points and jitter."""
    rng = np.random.default_rng(0)
    families = cagp.Matern12, cagp.Matern32, cagp.Matern52, (cagp.Matern32, cagp.SquaredExponential)
    models = itertools.cycle(itertools.product(families, (False, True), (0.0, 0.0, 1e-3)))
    for seed, (kernel, anisotropic, jitter) in zip(range(200), models, strict=False):
        n, m = (int(rng.integers(1, most)) for most in (40, 15))
        fields = int(rng.integers(1, 3))
        case = Case(kernel, anisotropic, n=n, inducing=m, fields=fields, jitter=jitter, seed=seed)
        value, exact = case.of(case.x)[0], case.log_density(case.K)
        assert value <= exact + 1e-9 * abs(exact)


def test_the_bound_rises_with_nested_inducing_points_t35():
    """For any data, unlike that of nested actions."""
    for seed in range(40):
        nested = [
            Case(inducing=lambda X, m=m: X[:m], n=24, seed=seed, longest=1.5) for m in (1, 2, 5, 11, 17, 24)
        ]
        found = [case.of(case.x)[0] for case in nested]
        assert all(earlier < later + 1e-10 * abs(later) for earlier, later in itertools.pairwise(found)), seed
        assert found[-1] == pytest.approx(nested[-1].log_density(nested[-1].K), rel=1e-10)


def differences(function, x, step=1e-5):
    """Central differences of a value by every entry."""
    return np.array(
        [(function(x + step * e)[0] - function(x - step * e)[0]) / (2.0 * step) for e in np.eye(x.size)]
    )


@every_model
def test_gradients_are_those_of_differences(kernel, anisotropic):
    """By every hyperparameter and every coordinate of Z; to 1e-6 of the largest."""
    for jitter in (0.0, 0.1):
        case = Case(kernel, anisotropic, fields=2, jitter=jitter, learn_inducing=True)
        assert case.of.size == case.of.hyperparameters.size + 21
        gradient, expected = case.of(case.x)[1], differences(case.of, case.x)
        for part in (slice(None, -21), slice(-21, None)):
            scale = np.abs(gradient[part]).max()
            assert np.abs(gradient - expected)[part].max() < 1e-6 * scale
        held = Case(kernel, anisotropic, fields=2, jitter=jitter)
        np.testing.assert_array_equal(held.of(held.x)[1], gradient[:-21])


@pytest.mark.parametrize("family", [cagp.Matern12, cagp.Matern32, cagp.Matern52])
def test_inducing_points_may_lie_on_observed_ones(family):
    """There a rough kernel has a kink: the gradient is that of the other pairs, the mean of both sides."""
    case = Case(family, inducing=lambda X: X[:6], learn_inducing=True)
    gradient = case.of(case.x)[1]
    assert_close(gradient, differences(case.of, case.x, 1e-6), relative=1e-5)
