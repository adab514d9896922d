"""The likelihood on grids against the dense one, for every shape of grid."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import BudgetError
from cagp_dist.latlon.entries import PlacesOnGrid, blocks_at
from cagp_dist.latlon.wavenumbers import Wavenumbers, ring_blocks
from cagp_dist.likelihood.exact.dense_likelihood import DenseLikelihood
from cagp_dist.likelihood.exact.gappy_ring_likelihood import MaskedRingLikelihood, masked_bytes
from cagp_dist.likelihood.exact.ring_likelihood import RingLikelihood, ring_bytes
from cagp_dist.runtime import SerialExecutor

from ..grids import LAYOUTS
from ..joined import one_after_another
from ..oracle import KERNELS, assert_close
from ..pairwise import by_turns
from .textbook import slope

pytestmark = pytest.mark.usefixtures("one_blas_thread")


def ring_likelihood(kernel_class, grid, residuals):
    return RingLikelihood(kernel_class, grid, residuals, executor=SerialExecutor(), memory_limit_bytes=2**30)


def residuals_on(grid, fields=1, seed=0):
    return np.random.default_rng([seed, grid.size, fields]).normal(size=(fields, *grid.shape))


@one_after_another
@pytest.mark.parametrize(
    ("kernel_class", "layout", "fields"),
    by_turns({"kernel_class": KERNELS, "layout": list(LAYOUTS), "fields": [1, 3]}),
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


def masked_likelihood(kernel_class, grid, residuals, missing, limit=2**30, basis=None):
    settings = {"executor": SerialExecutor(), "memory_limit_bytes": limit}
    return MaskedRingLikelihood(kernel_class, grid, residuals, missing, basis=basis, **settings)


def test_a_mean_that_is_estimated_on_a_grid_with_gaps_t28():
    """The restricted likelihood of the observed points, by rings and dense."""
    grid = cagp.LatLonGrid(np.linspace(-75.0, 75.0, 7), 12)
    missing = np.random.default_rng(1).random(grid.shape) < 0.2
    residuals, basis = residuals_on(grid, 2), grid.points.T[1:].reshape(2, *grid.shape)
    found = masked_likelihood(cagp.Matern32, grid, residuals, missing, basis=basis).evaluate(0.5, 0.1)
    columns, at_points = (np.ascontiguousarray(field[:, ~missing].T) for field in (residuals, basis))
    expected = DenseLikelihood(
        cagp.Matern32, grid.points[~missing.ravel()], columns, memory_limit_bytes=2**30, basis=at_points
    ).evaluate(0.5, 0.1)
    assert found.values == expected.values == 2 * (np.count_nonzero(~missing) - 2)
    assert_close(found.log_likelihood(1.7), expected.log_likelihood(1.7), relative=1e-10)
    assert_close(found.gradient(1.7), expected.gradient(1.7), relative=1e-9)


@one_after_another
@pytest.mark.parametrize(
    ("kernel_class", "layout", "gap"),
    by_turns(
        {
            "kernel_class": [*KERNELS, (cagp.Matern32, cagp.Matern12)],
            "layout": [name for name in LAYOUTS if name != "one point"],
            "gap": ["one", "few", "row", "half"],
        }
    ),
)
def test_equals_the_dense_likelihood_of_the_observed_points_t28(kernel_class, layout, gap):
    """Determinant, quadratic form, traces and slopes of a grid with gaps; two fields (math 7.4, T28)."""
    grid = cagp.LatLonGrid(LAYOUTS[layout].latitude, LAYOUTS[layout].n_longitudes)
    missing = np.zeros(grid.shape, dtype=bool)
    if gap == "row":
        missing[1:2] = missing[0, 0] = True
    else:
        count = {"one": 1, "few": 1 + grid.size // 6, "half": grid.size // 2}[gap]
        missing.flat[np.random.default_rng(1).choice(grid.size, count, replace=False)] = True
    residuals = residuals_on(grid, 2)
    numbers = (0.5, 0.1) if isinstance(kernel_class, type) else (0.5, 0.2, 0.7, 0.1)
    spoilt = np.where(missing, np.nan, residuals)
    found = masked_likelihood(kernel_class, grid, spoilt, missing).evaluate(*numbers)
    columns = np.ascontiguousarray(residuals[:, ~missing].T)
    expected = DenseLikelihood(
        kernel_class, grid.points[~missing.ravel()], columns, memory_limit_bytes=2**30
    ).evaluate(*numbers)
    assert (found.points, found.fields) == (grid.size - np.count_nonzero(missing), 2)
    assert_close(found.log_determinant, expected.log_determinant, relative=1e-10)
    assert_close(found.log_likelihood(1.7), expected.log_likelihood(1.7), relative=1e-10)
    assert_close(found.gradient(1.7), expected.gradient(1.7), relative=1e-9)


@pytest.mark.parametrize("layout", ["mirrored", "ragged"])
def test_entries_of_a_matrix_by_wavenumber_and_their_adjoint(layout):
    """Entries are those of the dense inverse; ``<E, C at the points> = sum of weights <B_k, C_k>``."""
    axes = {"mirrored": ([-50.0, -20.0, 0.0, 20.0, 50.0], 9), "ragged": ([-3.0, 44.0, 80.0], 8)}
    grid = cagp.LatLonGrid(*axes[layout])
    numbers = Wavenumbers(grid.latitude_degrees, grid.n_longitudes, grid.mirrored)
    kernel = cagp.Matern32(0.5)
    rng = np.random.default_rng(0)
    chosen = rng.random(grid.shape) < 0.3
    places = PlacesOnGrid.of(numbers, chosen)
    lower = ring_blocks(kernel.parameters, numbers, (0, numbers.count))
    blocks = [part + np.tril(part, -1).transpose(0, 2, 1) for part in lower]
    there = grid.points[chosen.ravel()]
    some = blocks_at(blocks, places.sector_rows)
    assert_close(places.entries(some), kernel(there, there), relative=1e-12)
    E = rng.normal(size=(len(there), len(there)))
    E += E.T
    inner = sum(
        float(np.einsum("ijk,ijk,k->", part, other, numbers.weights))
        for part, other in zip(places.adjoint(E), some, strict=True)
    )
    assert_close(inner, np.sum(E * kernel(there, there)), relative=1e-12)


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
    with pytest.raises(BudgetError) as refusal:
        RingLikelihood(cagp.Matern32, grid, residuals, memory_limit_bytes=needed - 1, **settings)
    assert refusal.value.key == "memory"
    missing = np.arange(72).reshape(6, 12) % 7 == 0
    kept = masked_bytes(
        Wavenumbers(grid.latitude_degrees, 12, True), fields=2, workers=1, missing=np.count_nonzero(missing)
    )
    masked_likelihood(cagp.Matern32, grid, residuals, missing, kept)
    with pytest.raises(BudgetError) as refusal:
        masked_likelihood(cagp.Matern32, grid, residuals, missing, kept - 1)
    assert refusal.value.key == "memory"
