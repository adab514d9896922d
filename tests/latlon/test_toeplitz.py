"""Block Toeplitz matrices of windows: product, solve, determinant and inverse are the dense matrix's."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import NumericalError
from cagp_dist.latlon.toeplitz import BlockToeplitz

from ..oracle import KERNELS, assert_close

pytestmark = pytest.mark.usefixtures("one_blas_thread")

LATITUDE = np.array([-20.0, -17.0, -12.5, 3.0, 4.0])


def dense(kernel, grid, width, noise):
    """The Gram matrix of the window's points, longitude by longitude."""
    X = grid.points.reshape(*grid.shape, 3)[:, :width].transpose(1, 0, 2).reshape(-1, 3)
    return kernel(X, X) + np.diag(np.tile(noise, width))


@pytest.mark.parametrize("kernel_class", KERNELS)
@pytest.mark.parametrize("width", [1, 2, 7, 12])
def test_everything_is_that_of_the_dense_matrix(kernel_class, width):
    grid, noise = cagp.LatLonGrid(LATITUDE, 120), np.linspace(0.05, 0.2, 5)
    kernel = kernel_class(0.2, 2.0)
    gram = BlockToeplitz.of_window(kernel, grid, width=width, noise_by_latitude=noise)
    assert gram.shape == (5, width)
    G = dense(kernel, grid, width, noise)
    fields = np.random.default_rng(width).normal(size=(3, 5, width))
    columns = fields.transpose(2, 1, 0).reshape(-1, 3)
    for found, expected in (
        (gram.product(fields), G @ columns),
        (gram.solve(fields), np.linalg.solve(G, columns)),
    ):
        assert found.shape == fields.shape
        assert_close(found.transpose(2, 1, 0).reshape(-1, 3), expected, relative=1e-11)
    assert gram.logdet() == pytest.approx(np.linalg.slogdet(G)[1], rel=1e-12)
    diagonal = np.diag(np.linalg.inv(G)).reshape(width, 5).T
    np.testing.assert_allclose(gram.inverse_diagonal(), diagonal, rtol=1e-10)


def test_a_matrix_that_is_not_positive_definite_is_refused():
    blocks = np.stack([np.eye(2), 2.0 * np.eye(2)])
    with pytest.raises(NumericalError, match=r"not positive definite .* \(column 2\)"):
        BlockToeplitz(blocks).logdet()
