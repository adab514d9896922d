"""What an evaluation allocates stays below what is checked before it."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.latlon.wavenumbers import Wavenumbers
from cagp_dist.likelihood.exact.dense_likelihood import DenseLikelihood, dense_bytes
from cagp_dist.likelihood.exact.ring_likelihood import RingLikelihood, ring_bytes
from cagp_dist.likelihood.learned.elbo import Elbo
from cagp_dist.likelihood.learned.projected_data import ProjectedData, projection_bytes
from cagp_dist.runtime import SerialExecutor
from cagp_dist.solvers.actions.block_sparse import BlockLayout

pytestmark = pytest.mark.usefixtures("one_blas_thread")

LIMIT = 2**32


@pytest.fixture
def peak_bytes(traced):
    """Most bytes that NumPy held during the second of two equal evaluations."""

    def measured(make):
        make().evaluate(0.2, 0.1)  # compiles, imports
        return traced(lambda: make().evaluate(0.2, 0.1))[1]

    return measured


@pytest.mark.parametrize(
    ("fields", "top"),
    [(1, 80.0), *(pytest.param(*case, marks=pytest.mark.exhaustive) for case in ((1, 88.0), (8, 80.0)))],
)
def test_rings(fields, top, peak_bytes):
    grid = cagp.LatLonGrid(np.linspace(-88.0, top, 120), 160)
    residuals = np.random.default_rng(0).normal(size=(fields, *grid.shape))
    wavenumbers = Wavenumbers(grid.latitude_degrees, 160, grid.mirrored)

    def bound_and_peak(curved):
        peak = peak_bytes(
            lambda: RingLikelihood(
                cagp.Matern32,
                grid,
                residuals,
                executor=SerialExecutor(),
                memory_limit_bytes=LIMIT,
                curved=curved,
            )
        )
        return ring_bytes(wavenumbers, fields=fields, workers=1, curved=curved), peak

    bound, peak = bound_and_peak(curved=False)
    assert bound / 6 < peak < bound
    with_squares, peak_with_squares = bound_and_peak(curved=True)
    assert bound / 6 < peak_with_squares < with_squares
    if not grid.mirrored:  # else the table of kernel values takes more than the matrices that are added
        assert peak_with_squares - peak < with_squares - bound


@pytest.mark.exhaustive
@pytest.mark.parametrize(("n", "fields"), [(900, 1), (500, 60)])
def test_dense(n, fields, peak_bytes):
    rng = np.random.default_rng(0)
    X, residuals = rng.uniform(size=(n, 3)), rng.normal(size=(n, fields))
    peak = peak_bytes(lambda: DenseLikelihood(cagp.Matern32, X, residuals, memory_limit_bytes=LIMIT))
    assert 0.5 * dense_bytes(n, fields) < peak < dense_bytes(n, fields)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("n", "actions", "fields"),
    [
        (5000, 20, 1),
        (500, 500, 1),
        (3000, 100, 400),
        *(
            pytest.param(*case, marks=pytest.mark.exhaustive)
            for case in ((6000, 300, 1), (9000, 2, 1), (9000, 2, 60))
        ),
    ],
)
def test_block_sparse_actions(n, actions, fields, traced):
    rng = np.random.default_rng(0)
    X, residuals = rng.uniform(size=(n, 3)), rng.normal(size=(n, fields))
    layout = BlockLayout.of(X, actions)
    data = ProjectedData(
        cagp.Matern32, X, residuals, layout=layout, executor=SerialExecutor(), memory_limit_bytes=LIMIT
    )
    objective, vector = Elbo(data), np.concatenate([np.log([0.5, 1.0, 0.1]), layout.draw(0)])
    objective(vector)  # compiles, imports
    bound = projection_bytes(n, actions, fields=fields, workers=1)
    peak = traced(lambda: objective(vector))[1]
    assert bound / 5 < peak < bound
