"""Matern kernels of any smoothness against SciPy's Bessel functions, and what is told of them elsewhere."""

import pickle

import numpy as np
import pytest
from scipy.linalg import cholesky
from scipy.spatial.distance import cdist
from scipy.special import gamma, kv

import cagp_dist as cagp
from cagp_dist import compiled
from cagp_dist.errors import ArgumentError
from cagp_dist.kernels import point_columns
from cagp_dist.posterior.fourier import draw_spectrum
from cagp_dist.profiles import Part, closed_form, matern

SMOOTHNESSES = [0.1, 0.3, 0.8, 0.9999, 1.0, 1.3, 2.0, 3.5, 6.1, 10.0]


def formula(smoothness, u):
    """Correlation at scaled distances u, by math 8."""
    a = np.sqrt(2.0 * smoothness) * np.maximum(u, 1e-100)
    return 2.0 ** (1.0 - smoothness) / gamma(smoothness) * a**smoothness * kv(smoothness, a)


def slope_formula(smoothness, u):
    """Derivative by the logarithm of the lengthscale: ``(a^nu K_nu(a))' = -a^nu K_(nu - 1)(a)``."""
    a = np.sqrt(2.0 * smoothness) * np.maximum(u, 1e-100)
    return 2.0 ** (1.0 - smoothness) / gamma(smoothness) * a ** (smoothness + 1.0) * kv(smoothness - 1.0, a)


@pytest.mark.parametrize("smoothness", SMOOTHNESSES)
def test_values_and_slopes_are_those_of_bessel_functions(smoothness):
    """From 1e-12 to 300 lengthscales; what is farther than the reach is zero."""
    rng = np.random.default_rng(0)
    distance = np.append(np.exp(rng.uniform(np.log(1e-12), np.log(300.0), 20_000)), [1e-6, 1.0, 2.0])
    kernel = cagp.Matern(smoothness, lengthscale=0.5, variance=2.0)
    u = distance / 0.5
    values, slopes = np.empty((1, u.size)), np.empty((1, u.size))
    origin, line = np.zeros((1, 1)), distance[None]
    compiled.evaluate(*kernel.parameters, origin, line, values)
    compiled.evaluate(*kernel.slope_parameters()[0], origin, line, slopes)
    np.testing.assert_allclose(values[0], 2.0 * formula(smoothness, u), rtol=0.0, atol=2e-12)
    np.testing.assert_allclose(slopes[0], 2.0 * slope_formula(smoothness, u), rtol=0.0, atol=2e-12)
    assert kernel([[0.0]], [[0.0]]) == 2.0  # to the last bit
    assert kernel([[0.0]], [[1e200]]) == 0.0
    # below rounding of the variance, slopes are still right: 1 - k is of order u^min(2, 2 nu)
    small = u < 1e-7
    np.testing.assert_allclose(slopes[0, small], 2.0 * slope_formula(smoothness, u[small]), rtol=1e-4)


def test_half_integers_are_the_closed_forms():
    X = np.random.default_rng(1).normal(size=(40, 3))
    for smoothness, closed in ((0.5, cagp.Matern12), (1.5, cagp.Matern32), (2.5, cagp.Matern52)):
        np.testing.assert_array_equal(cagp.Matern(smoothness, 0.7, 3.0)(X, X), closed(0.7, 3.0)(X, X))
        out = np.empty((40, 40))  # the table is the same function
        compiled.evaluate(matern(smoothness), 1.0 / 0.7, 3.0, point_columns(X), point_columns(X), out)
        np.testing.assert_allclose(out, closed(0.7, 3.0)(X, X), rtol=0.0, atol=1e-12)


@pytest.mark.usefixtures("one_blas_thread")
@pytest.mark.parametrize("smoothness", [0.1, 0.8, 1.0, 2.0, 10.0])
def test_matrices_are_positive_definite_to_rounding(smoothness):
    """On the sphere, at points as near as 1e-9, with a noise of 1e-10: errors of pieces are below 1e-12."""
    X = np.random.default_rng(2).normal(size=(400, 3))
    X /= np.linalg.norm(X, axis=1)[:, None]
    X[:20] = X[20:40] + 1e-9
    cholesky(cagp.Matern(smoothness, 0.5)(X, X) + 1e-10 * np.eye(400))


def test_nan_stays_nan():
    out = np.empty((1, 2))
    compiled.evaluate(*cagp.Matern(0.8, 1.0).parameters, np.zeros((1, 1)), np.array([[np.nan, np.inf]]), out)
    assert np.isnan(out[0, 0])
    assert out[0, 1] == 0.0


@pytest.mark.parametrize("coordinate", [0, 1])
def test_lengthscales_by_coordinate_and_their_slopes(coordinate):
    own, h = np.array([0.5, 4.0]), 1e-5
    rng = np.random.default_rng(3)
    X, Z = own * rng.normal(size=(23, 2)), own * rng.normal(size=(31, 2))
    Z[0] = X[0]
    kernel = cagp.Matern(0.8, tuple(own), 1.7)
    np.testing.assert_allclose(kernel(X, Z), 1.7 * formula(0.8, cdist(X / own, Z / own)), rtol=0, atol=2e-12)
    out, step = np.empty((23, 31)), np.where(np.arange(2) == coordinate, h, 0.0)
    compiled.evaluate(*kernel.slope_parameters()[coordinate], point_columns(X), point_columns(Z), out)
    up, down = (cagp.Matern(0.8, tuple(own * np.exp(sign * step)), 1.7)(X, Z) for sign in (1.0, -1.0))
    np.testing.assert_allclose(out, (up - down) / (2.0 * h), rtol=0.0, atol=1e-7)
    assert out[0, 0] == 0.0


def test_sums_rings_and_products_take_it():
    kernel = cagp.Matern(0.8, 0.3, 2.0) + cagp.Matern32(0.5)
    grid = cagp.LatLonGrid(np.linspace(-60.0, 60.0, 5), 8)
    X = grid.points
    K = 2.0 * formula(0.8, cdist(X, X) / 0.3) + cagp.Matern32(0.5)(X, X)
    np.testing.assert_allclose(kernel(X, X), K, rtol=0.0, atol=1e-11)
    v = np.random.default_rng(4).normal(size=(40, 1))
    rings = cagp.RingGram(grid, kernel, noise_variance=0.1)
    product = rings @ v.reshape(5, 8)
    np.testing.assert_allclose(product.ravel(), (K @ v + 0.1 * v).ravel(), rtol=0.0, atol=1e-10)
    found = cagp.condition(cagp.Prior(kernel, 0.1), X, v[:, 0], X[:3] + 0.01, solver=cagp.Cholesky())
    V = kernel(X[:3] + 0.01, X)
    np.testing.assert_allclose(found.mean, V @ np.linalg.solve(K + 0.1 * np.eye(40), v[:, 0]), atol=1e-9)


def test_waves_have_its_covariance():
    """Of Student t with 2 nu degrees of freedom."""
    line = np.linspace(0.0, 2.0, 6)[None]
    spectrum = draw_spectrum(cagp.Matern(0.8, 0.7), 1, 4096, 1, np.random.default_rng(0))
    waves = np.cos(2.0 * np.pi * line.T * spectrum.turns[:, 0])
    np.testing.assert_allclose(waves @ spectrum.variances, formula(0.8, line[0] / 0.7), atol=0.02)


def test_a_kernel_without_a_spectral_density_is_refused_by_name():
    class Linear(cagp.Matern12):
        degrees_of_freedom = None

    with pytest.raises(ArgumentError) as refusal:
        draw_spectrum(Linear(0.5), 2, 16, 1, np.random.default_rng(0))
    assert refusal.value.key == "no-spectral-density"


def test_a_polynomial_that_compiled_functions_do_not_sum_up_is_refused():
    for polynomial, scale in (((1.0, 1.0, 0.5, 0.1), 1.0), ((1.0, 1.0), None)):
        with pytest.raises(ArgumentError) as refusal:
            closed_form(polynomial, scale)
        assert refusal.value.key == "kernel-terms"


def test_it_travels_and_reads_as_it_was_made():
    kernel = cagp.Matern(smoothness=0.8, lengthscale=0.5, variance=2.0)
    assert repr(kernel) == "Matern(smoothness=0.8, lengthscale=0.5, variance=2.0)"
    assert 2.0 * cagp.Matern(0.8, 0.5) == kernel
    sent = pickle.dumps(kernel.parameters)
    assert len(sent) < 500  # not the table
    assert pickle.loads(sent) == kernel.parameters
    assert matern(0.8, Part.SHARE, 1) != matern(0.8, Part.SHARE, 0)


@pytest.mark.parametrize("smoothness", [0.0, 0.05, 11.0, np.nan, "rough", True])
def test_other_smoothness_is_refused(smoothness):
    with pytest.raises(ArgumentError, match=r"smoothness is .*; expected"):
        cagp.Matern(smoothness, 1.0)
