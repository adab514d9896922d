"""The dense likelihood against the textbook formula, its gradient against differences."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import BudgetError, NumericalError
from cagp_dist.likelihood.exact.dense_likelihood import STRIP_ROWS, DenseLikelihood, dense_bytes
from cagp_dist.likelihood.exact.likelihood_evaluation import information
from cagp_dist.likelihood.exact.profile_likelihood import DIFFERENCE
from cagp_dist.likelihood.numbering import Numbering

from ..joined import one_after_another
from ..oracle import KERNELS, assert_close
from .textbook import curvature, log_likelihood, slope

pytestmark = pytest.mark.usefixtures("one_blas_thread")

NATURAL = Numbering().natural


def dense_likelihood(kernel_class, X, residuals):
    return DenseLikelihood(kernel_class, X, residuals, memory_limit_bytes=2**30)


def points_and_residuals(n, *, p=2, fields=1, seed=0):
    rng = np.random.default_rng([seed, n, p, fields])
    return rng.uniform(size=(n, p)), rng.normal(size=(n, fields))


def value_and_gradient(likelihood, parameters):
    """L and its derivatives by the logarithms of (lengthscale, variance, noise variance)."""
    lengthscale, variance, noise_variance = parameters
    evaluation = likelihood.evaluate(lengthscale, noise_variance / variance)
    return evaluation.log_likelihood(variance), NATURAL.T @ evaluation.gradient(variance)


@one_after_another
@pytest.mark.parametrize("kernel_class", KERNELS)
@pytest.mark.parametrize(("n", "p", "fields"), [(40, 2, 1), (25, 1, 3), (30, 5, 40)])
def test_value_and_gradient(kernel_class, n, p, fields):
    X, residuals = points_and_residuals(n, p=p, fields=fields)
    parameters = np.array([0.3, 1.7, 0.2])
    value, gradient = value_and_gradient(dense_likelihood(kernel_class, X, residuals), parameters)
    assert_close(value, log_likelihood(kernel_class, X, residuals, parameters), relative=1e-11)
    expected = slope(lambda x: log_likelihood(kernel_class, X, residuals, np.exp(x)), np.log(parameters))
    assert_close(gradient, expected, relative=1e-7)


@pytest.mark.parametrize("n", [STRIP_ROWS - 1, STRIP_ROWS, STRIP_ROWS + 1, 2 * STRIP_ROWS + 3])
def test_gradient_over_several_strips(n):
    X, residuals = points_and_residuals(n)
    likelihood = dense_likelihood(cagp.Matern32, X, residuals)
    x = np.log([0.2, 1.5, 0.3])
    expected = slope(lambda x: value_and_gradient(likelihood, np.exp(x))[0], x)
    assert_close(value_and_gradient(likelihood, np.exp(x))[1], expected, relative=1e-7)


def test_points_may_coincide():
    X, residuals = points_and_residuals(12)
    X = np.concatenate([X, X[:5]])
    residuals = np.concatenate([residuals, residuals[:5] + 0.1])
    parameters = np.array([0.4, 1.0, 0.05])
    value, _ = value_and_gradient(dense_likelihood(cagp.Matern52, X, residuals), parameters)
    assert_close(value, log_likelihood(cagp.Matern52, X, residuals, parameters), relative=1e-10)


@pytest.mark.parametrize("kernel_class", KERNELS)
def test_information_is_minus_the_second_derivatives(kernel_class):
    X, residuals = points_and_residuals(30, fields=2)
    parameters = np.array([0.3, 1.2, 0.4])
    likelihood = dense_likelihood(kernel_class, X, residuals)
    found = information(
        lambda x: likelihood.evaluate(*np.exp(x)),
        np.log([parameters[0], parameters[2] / parameters[1]]),
        parameters[1],
        step=DIFFERENCE,
    )
    expected = -curvature(lambda x: log_likelihood(kernel_class, X, residuals, np.exp(x)), np.log(parameters))
    assert_close(NATURAL.T @ found @ NATURAL, expected, relative=1e-5)


def test_memory_is_bounded():
    X, residuals = points_and_residuals(200, fields=3)
    needed = dense_bytes(200, 3)
    assert needed > 8 * 200**2
    DenseLikelihood(cagp.Matern32, X, residuals, memory_limit_bytes=needed)
    with pytest.raises(
        BudgetError,
    ) as refusal:
        DenseLikelihood(cagp.Matern32, X, residuals, memory_limit_bytes=needed - 1)
    assert refusal.value.key == "memory"


def test_a_matrix_that_is_not_positive_definite_is_an_error():
    X = np.zeros((5, 2))
    with pytest.raises(NumericalError) as refusal:
        dense_likelihood(cagp.Matern32, X, np.ones((5, 1))).evaluate(1.0, -0.5)
    assert refusal.value.key == "not-positive-definite"
