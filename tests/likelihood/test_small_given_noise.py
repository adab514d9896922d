"""Bounds of a fit never decide in silence: a noise that is given leaves the variance its own bounds."""

import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

import cagp_dist as cagp
from cagp_dist.errors import NumericalError

from ..oracle import kernel_matrix

pytestmark = pytest.mark.usefixtures("one_blas_thread")


def stations(n=40, seed=0):
    """Places of a region, and values of a field of variance 4 there."""
    rng = np.random.default_rng(seed)
    latitude, longitude = rng.uniform(40.0, 60.0, n), rng.uniform(0.0, 30.0, n)
    X = cagp.unit_sphere(latitude, longitude)
    field = np.linalg.cholesky(kernel_matrix(cagp.Matern32(0.1, 4.0), X, X)) @ rng.standard_normal(n)
    return latitude, longitude, X, field


def best_numbers(X, b, noise):
    """Lengthscale and variance of the largest likelihood, found without any bounds."""

    def loss(x):
        factor = cho_factor(kernel_matrix(cagp.Matern32(*np.exp(x)), X, X) + np.diag(noise), lower=True)
        return 0.5 * b @ cho_solve(factor, b) + np.log(np.diag(factor[0])).sum()

    found = minimize(loss, np.log([0.1, 4.0]), method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-10})
    return np.exp(found.x)


@pytest.mark.parametrize("noise_std", [1e-3, 1e-6, 1e-9])
def test_the_variance_beside_a_small_given_noise_is_that_of_the_dense_maximum(noise_std):
    _, _, X, b = stations()
    held = {"noise_variance": (noise_std**2, noise_std**2)}
    result = cagp.fit(cagp.Matern32, X, b, mean=0.0, bounds=held)
    lengthscale, variance = best_numbers(X, b, np.full(len(b), noise_std**2))
    kernel = result.prior.kernel
    assert (kernel.lengthscale, kernel.variance) == pytest.approx((lengthscale, variance), rel=0.01)
    assert result.status.ok


def test_one_useless_station_changes_neither_the_fit_nor_the_map():
    latitude, longitude, X, b = stations()
    table = {"latitude": latitude, "longitude": longitude, "temperature": 10.0 + b}
    table |= {"noise_std": np.where(np.arange(40) == 7, 1e6, 0.1)}
    numbers = best_numbers(X, b + 10.0 - (10.0 + b).mean(), table["noise_std"] ** 2)
    model = cagp.Kriging(kernel="matern32", mean=float((10.0 + b).mean())).fit(table)
    kernel = model.prior_.kernel
    assert (kernel.lengthscale, kernel.variance) == pytest.approx(numbers, rel=0.05)
    assert np.min(model.prior_.noise_variance) == pytest.approx(0.01, rel=1e-3)


def test_a_limit_of_the_noise_ratio_is_named_where_it_decides():
    X = np.linspace(0.0, 1.0, 60).reshape(-1, 1)
    bounds = {"lengthscale": (2.0, 2.0), "variance": (1.0, 1.0), "noise_variance": (1e-20, 1.0)}
    result = cagp.fit(cagp.Matern52, X, np.sin(3.0 * X[:, 0]), mean=0.0, bounds=bounds)
    assert result.prior.noise_variance == pytest.approx(1e-8)
    assert (result.at_bound, result.status.ok) == (("noise_variance",), False)


def test_a_matrix_that_is_singular_in_floating_point_gives_no_numbers():
    X = np.linspace(0.0, 1.0, 30).reshape(-1, 1)
    held = {"noise_variance": (1e-30, 1e-30)}
    with pytest.raises(NumericalError) as refusal:
        cagp.fit(cagp.SquaredExponential, X, np.sin(9.0 * X[:, 0]), mean=0.0, bounds=held)
    assert refusal.value.key == "not-positive-definite"
