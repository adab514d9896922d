"""Error bars of means over regions, on fields drawn from the prior: the true mean is the field's own."""

import numpy as np
import pytest

import cagp_dist as cagp

FIELDS = 200
GRID = cagp.LatLonGrid(np.linspace(-87.0, 87.0, 30), 60)
KERNEL = cagp.Matern32(lengthscale=0.3, variance=22.0)
NOISE = 0.5
REGIONS = ["global", "northern-hemisphere", "tropics", cagp.Box("pacific", -30.0, 30.0, 150.0, -100.0)]
SOLVERS = {
    "block Gauss-Seidel, two sweeps": cagp.BlockGaussSeidel(2, block_size=100),
    "exact": cagp.Cholesky(),
}


@pytest.fixture(
    scope="module", params=[11, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in (12, 13))]
)
def drawn(request):
    """Points of the grid, 300 observed in proportion to area, and 200 fields: true (T, n) and observed."""
    generator = np.random.default_rng(request.param)
    chance = GRID.area_weights.ravel() / GRID.size
    chosen = generator.choice(GRID.size, 300, replace=False, p=chance / chance.sum())
    chosen = chosen[cagp.space_filling_order(GRID.points[chosen], block_size=100)]
    rings = cagp.RingGram(GRID, KERNEL, noise_variance=NOISE)
    fields = np.array([rings.sample(generator).ravel() for _ in range(FIELDS)])
    noise = np.sqrt(NOISE) * generator.standard_normal((FIELDS, 300))
    return chosen, fields, fields[:, chosen] + noise


@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
def test_true_means_lie_where_the_error_bars_say(drawn, solver):
    """Standardised errors of 200 fields: mean 0 +- 1/sqrt(200), mean square 1 +- sqrt(2/200); 3.5 of these.

    All regions together: the mean of a chi-square with four degrees of freedom, 4 +- sqrt(8/200).
    """
    chosen, fields, y = drawn
    means = cagp.area_means(REGIONS, grid=GRID)
    assert len(means.nodes) == GRID.size
    truth = means.averaged(fields.T)
    prior = cagp.Prior(KERNEL, noise_variance=NOISE)
    found = cagp.condition(prior, GRID.points[chosen], y.T, means, solver=solver, covariance="full")
    errors = found.mean - truth
    z = errors / np.sqrt(found.variance)[:, None]
    assert (np.abs(z.mean(axis=1)) < 3.5 / np.sqrt(FIELDS)).all()
    assert (np.abs((z**2).mean(axis=1) - 1.0) < 3.5 * np.sqrt(2.0 / FIELDS)).all()
    together = np.einsum("kt,kt->t", errors, np.linalg.solve(found.covariance, errors))
    assert abs(together.mean() - 4.0) < 3.5 * np.sqrt(8.0 / FIELDS)
    # cells as if they were independent of each other: the test would tell
    cells = cagp.condition(prior, GRID.points[chosen], y[:1].T, means.nodes, solver=solver)
    weights = means.matrix().toarray()
    independent = np.sqrt(cells.variance @ weights**2)
    assert ((errors / independent[:, None]) ** 2).mean(axis=1).min() > 4.0
