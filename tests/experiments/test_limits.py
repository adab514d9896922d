"""What few iterations do not give: long lengthscales, wrong prior means, orders and sizes of blocks."""

import numpy as np
import pytest

import cagp_dist as cagp

from .scripts import script

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def scattered():
    """A tenth of the points of the limits experiment."""
    return script("limits").Points.draw(np.random.default_rng(0), 400, 50, block=50)


def test_two_levels_and_hybrids_bring_long_lengthscales_down_for_the_same_price():
    """A tenth of the points of the experiment, one lengthscale of it."""
    module = script("long_lengthscales")
    points = script("limits").Points.draw(np.random.default_rng(0), 400, 50, block=50)
    found = {
        row.method: row for row in module.rows(points, 1.0, block=50, generator=np.random.default_rng(1))
    }
    assert found["block Gauss-Seidel, m = 5"].median > 1.5
    assert found["two-level sweeps, k = 24, m = 4"].median < module.GOAL
    assert found["3 sweeps, then 40 gradients"].median < module.GOAL


def test_a_hybrid_beats_its_parts_with_as_many_products():
    """A smaller problem than that of the experiment, one lengthscale of it."""
    module = script("hybrids")
    points = script("limits").Points.draw(np.random.default_rng(0), 300, 30, block=30)
    prior = cagp.Prior(cagp.Matern32(0.5), module.NOISE_VARIANCE)
    y = module.fields_of(points, prior, np.random.default_rng(1), fields=4)
    exact, spread = module.solved(points, prior, y, cagp.Cholesky())
    solvers = module.methods(16, 30)
    error = {
        name: np.sqrt(np.mean(((module.solved(points, prior, y, solvers[name])[0] - exact) / spread) ** 2))
        for name in ("conjugate gradients", "block Gauss-Seidel", "sweeps, then preconditioned")
    }
    assert error["sweeps, then preconditioned"] < 0.9 * error["block Gauss-Seidel"]
    assert error["sweeps, then preconditioned"] < 0.5 * error["conjugate gradients"]


def test_hybrids_have_the_points_as_drawn_beside_k_d_order():
    """Affine solvers state the same whatever the field, so a single one is enough."""
    module = script("hybrids")
    points = script("limits").Points.draw(np.random.default_rng(0), 200, 20, block=25)
    found = list(module.rows(points, 0.5, block=25, fields=1, simulations=4, seed=2))
    stated = {row.method: row.stated for row in found if row.products == module.TESTED}
    assert list(stated) == list(module.LINES)
    order = np.random.default_rng(2).permutation(200)
    prior = cagp.Prior(cagp.Matern32(0.5), module.NOISE_VARIANCE)
    for name, X in (
        ("point sweeps", points.observed),
        ("point sweeps, as drawn", points.observed[order]),
    ):
        bars, exact = (
            cagp.condition(prior, X, np.zeros(200), points.predicted, solver=solver).variance
            for solver in (cagp.GaussSeidel(module.TESTED), cagp.Cholesky())
        )
        assert stated[name] == pytest.approx(np.median(np.sqrt(bars / exact)), rel=1e-9)


def test_long_lengthscales_need_more_sweeps(scattered):
    limits = script("limits")
    short, long = (
        limits.stated_over_exact(scattered, lengthscale, sweeps=5, block=50) for lengthscale in (0.1, 1.0)
    )
    for ratio in (short, long):
        assert ratio.shape == (6, 50)
        assert ratio.min() > 1.0 - 1e-9
        assert np.diff(ratio, axis=0).max() < 1e-9  # equal sweeps: math 1.4
    assert np.median(short[5]) < 1.01
    assert np.median(long[5]) > 1.5


def test_an_unfinished_solve_depends_on_the_prior_mean_more_than_the_exact_one(scattered):
    limits = script("limits")
    order = np.argsort(scattered.observed[:, 2])  # from south to north
    points = limits.Points(scattered.observed[order], scattered.predicted)
    fields = limits.draw_fields(points, 0.5, np.random.default_rng(1), fields=40)
    share = {
        (name, offset): limits.coverage(points, 0.5, solver, fields, offset=offset)
        for name, solver in (("exact", cagp.Cholesky()), ("sweep", cagp.GaussSeidel(1)))
        for offset in (0.0, 10.0)
    }
    # 40 fields of at least ten independent places each: a standard error of at most 0.3 / 20 = 0.015
    assert abs(share["exact", 0.0] - 0.9) < 0.06
    assert abs(share["sweep", 0.0] - 0.9) < 0.06
    assert share["exact", 10.0] > 0.84
    assert share["sweep", 10.0] < 0.6


def test_conjugate_gradients_overtake_where_they_stay_ahead():
    overtaken = script("crossings").overtaken
    leader = np.zeros((40, 3))
    follower = np.ones((40, 3))
    follower[3:8, 0] = -1.0  # for five iterations only
    follower[20:, 0] = follower[30:, 1] = -1.0
    assert overtaken(leader, follower).tolist() == [21, 31, 41]


def test_curves_of_crossings_are_those_of_condition():
    crossings = script("crossings")
    X = np.random.default_rng(0).uniform(size=(40, 2))
    setting = crossings.Setting.make(cagp.Matern32(0.3), X, side=4, fields=3)
    curves, fields = setting.solved(12), setting.drawn.fields
    for name, solver in (
        ("Gauss-Seidel", cagp.GaussSeidel(12)),
        ("conjugate gradients", cagp.ConjugateGradient(12)),
        ("exact", cagp.Cholesky()),
    ):
        posterior = cagp.condition(
            fields.prior, X, fields.y[:, 1], fields.X_test, solver=solver, covariance="full"
        )
        error = posterior.mean - fields.latent[:, 1]
        found, w = curves[name], setting.drawn.direction
        assert found.rmse.shape == found.nll.shape == found.z.shape == (12, 3)
        assert found.rmse[-1, 1] == pytest.approx(np.sqrt(np.mean(error**2)))
        assert found.z[-1, 1] == pytest.approx(w @ error / np.sqrt(w @ posterior.covariance @ w))
        spread = posterior.variance + 0.01
        density = -0.5 * np.log(2.0 * np.pi * spread) - 0.5 * (error**2 + 0.01) / spread
        assert found.nll[-1, 1] == pytest.approx(-density.mean())


def test_robustness_is_that_of_condition_field_by_field(scattered):
    limits, robustness = script("limits"), script("robustness")
    points = limits.Points(scattered.observed[:80], scattered.predicted[:10])
    drawn = robustness.Fields(points, *limits.draw_fields(points, 0.2, np.random.default_rng(3), fields=3))
    cells = robustness.conjugate_gradients(drawn, iterations=(4,))[4]
    assert len(cells) == len(robustness.CASES)
    for cell, offset, lengthscale in zip(
        cells, (0.0, 3.0, 10.0, 0.0, 0.0), (0.2, 0.2, 0.2, 0.1, 0.4), strict=True
    ):
        error, std = [], []
        for y, latent in zip(drawn.observed.T + offset, drawn.latent.T + offset, strict=True):
            posterior = cagp.condition(
                limits.prior_of(lengthscale),
                points.observed,
                y,
                points.predicted,
                solver=cagp.ConjugateGradient(4),
            )
            error.append(posterior.mean - latent)
            std.append(np.sqrt(posterior.variance))
        z = np.divide(error, std)
        assert cell.scale == pytest.approx(np.sqrt(np.mean(z**2)))
        assert cell.coverage == pytest.approx(np.mean(np.abs(z) <= 1.6448536))
        assert cell.rmse == pytest.approx(np.sqrt(np.mean(np.square(error))))
    # the same numbers from a solve for each field, as hybrids have them: theirs is a list of one part
    order = np.arange(80)[::-1]
    alone = robustness.one_by_one(drawn.first(3), cagp.Hybrid([cagp.ConjugateGradient(4)]), order)
    for cell, other in zip(cells, alone, strict=True):
        assert cell.scale == pytest.approx(other.scale)
        assert cell.rmse == pytest.approx(other.rmse)
    [right, *_] = robustness.solved(drawn, cagp.GaussSeidel(2), order, iterations=(1, 2))[2]
    posterior = cagp.condition(
        limits.prior_of(0.2),
        points.observed[::-1],
        drawn.observed[::-1],
        points.predicted,
        solver=cagp.GaussSeidel(2),
    )
    z = (posterior.mean - drawn.latent) / np.sqrt(posterior.variance)[:, None]
    assert right.scale == pytest.approx(np.sqrt(np.mean(z**2)))


def test_blocks_of_all_points_are_exact_whatever_the_order(scattered):
    limits, blocks = script("limits"), script("block_sizes")
    points = limits.Points(scattered.observed[:60], scattered.predicted[:8])
    prior = limits.prior_of(0.4)
    y, latent = limits.draw_fields(points, 0.4, np.random.default_rng(5), fields=30)
    exact = cagp.condition(prior, points.observed, y[:, 0], points.predicted, solver=cagp.Cholesky()).variance
    bars = {}
    for name, order in blocks.orders(points.observed, np.random.default_rng(6)).items():
        for size in (1, 60):
            found = blocks.measured(
                prior, points.observed[order], y[order], points, latent, size=size, exact=exact
            )
            bars[name, size] = found["bars"].values
            # whitened errors of 240 independent numbers: a standard error of 1 / sqrt(480) = 0.046
            assert np.abs(found["u"].values - 1.0).max() < 0.2
    for name in ("k-d", "latitude", "random"):
        np.testing.assert_allclose(bars[name, 60], 1.0, rtol=1e-9)
        assert bars[name, 1][0] > bars[name, 1][1] > 1.0
