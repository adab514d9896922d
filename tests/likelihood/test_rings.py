"""The likelihood on grids against the dense one, for every shape of grid."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import BudgetError
from cagp_dist.latlon.wavenumbers import Wavenumbers
from cagp_dist.likelihood.exact import DenseLikelihood
from cagp_dist.likelihood.rings import RingLikelihood, ring_bytes
from cagp_dist.runtime import SerialExecutor

from ..grids import LAYOUTS
from ..oracle import KERNELS, assert_close
from ..pairwise import pairwise
from .textbook import slope

pytestmark = pytest.mark.usefixtures("one_blas_thread")


def ring_likelihood(kernel_class, grid, residuals):
    return RingLikelihood(kernel_class, grid, residuals, executor=SerialExecutor(), memory_limit_bytes=2**30)


def residuals_on(grid, fields=1, seed=0):
    return np.random.default_rng([seed, grid.size, fields]).normal(size=(fields, *grid.shape))


@pytest.mark.parametrize(
    ("kernel_class", "layout", "fields"),
    pairwise({"kernel_class": KERNELS, "layout": list(LAYOUTS), "fields": [1, 3]}),
)
def test_equals_the_dense_likelihood(kernel_class, layout, fields):
    grid = cagp.LatLonGrid(LAYOUTS[layout].latitude, LAYOUTS[layout].n_longitudes)
    residuals = residuals_on(grid, fields)
    found = ring_likelihood(kernel_class, grid, residuals).evaluate(0.5, 0.1)
    columns = np.ascontiguousarray(residuals.reshape(fields, -1).T)
    expected = DenseLikelihood(kernel_class, grid.points, columns, memory_limit_bytes=2**30).evaluate(
        0.5, 0.1
    )
    assert (found.points, found.fields) == (grid.size, fields)
    assert_close(found.log_likelihood(1.7), expected.log_likelihood(1.7), relative=1e-10)
    assert_close(found.gradient(1.7), expected.gradient(1.7), relative=1e-10)


@pytest.mark.parametrize("kernel_class", KERNELS)
def test_gradient_is_the_slope_of_the_value(kernel_class):
    grid = cagp.LatLonGrid(np.linspace(-75.0, 75.0, 6), 11)
    likelihood = ring_likelihood(kernel_class, grid, residuals_on(grid))

    def value(x):
        lengthscale, variance, ratio = np.exp(x)
        return likelihood.evaluate(lengthscale, ratio).log_likelihood(variance)

    x = np.log([0.4, 1.3, 0.2])
    assert_close(likelihood.evaluate(0.4, 0.2).gradient(1.3), slope(value, x), relative=1e-7)


def test_memory_is_bounded():
    grid = cagp.LatLonGrid(np.linspace(-75.0, 75.0, 6), 12)
    needed = ring_bytes(Wavenumbers(grid.latitude_degrees, 12, True), fields=2, workers=1)
    residuals = residuals_on(grid, 2)
    settings = {"executor": SerialExecutor()}
    RingLikelihood(cagp.Matern32, grid, residuals, memory_limit_bytes=needed, **settings)
    with pytest.raises(BudgetError, match=r"grid of 6 x 12 points needs .* every other row and column"):
        RingLikelihood(cagp.Matern32, grid, residuals, memory_limit_bytes=needed - 1, **settings)
