"""Leave-one-out predictions of a job's observations, each against a solve without it."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, BudgetError
from cagp_dist.posterior.left_out import each_left_out
from cagp_dist.runtime import SerialExecutor


def _mean(X: np.ndarray) -> np.ndarray:
    return np.stack([1.0 + X[:, 0], 2.0 * X[:, 1]], axis=1)


def _without(prior, X, y, where, point, solver):
    """Predict one value of a field from the others; variance with the noise of the value."""
    held = y.copy()
    held[where] = np.nan
    posterior = cagp.condition(prior, X, held, point[None], solver=solver)
    return posterior.mean[0], posterior.variance[0]


@pytest.mark.parametrize("mean", [_mean, cagp.mean_family("quadratic-latitude")], ids=["known", "estimated"])
def test_points_with_and_without_gaps_are_predicted_from_all_others(mean) -> None:
    """The coefficients of a mean that is estimated are those without the value, for each of them."""
    rng = np.random.default_rng(0)
    X = cagp.unit_sphere(rng.uniform(-80.0, 80.0, 25), rng.uniform(0.0, 60.0, 25))
    noise = np.linspace(0.01, 0.2, 25)
    y = rng.normal(size=(25, 2))
    y[[3, 8], 1] = np.nan
    prior = cagp.Prior(cagp.Matern32(lengthscale=0.4, variance=2.0), noise_variance=noise, mean=mean)
    mean, variance = each_left_out(prior, X, y)
    assert mean.shape == variance.shape == (2, 25)
    np.testing.assert_array_equal(np.isnan(mean), np.isnan(y.T))
    np.testing.assert_array_equal(np.isnan(variance), np.isnan(y.T))
    for i in (0, 7, 24):
        expected, of = _without(prior, X, y, (i, slice(None)), X[i], cagp.Cholesky())
        np.testing.assert_allclose(mean[:, i], expected, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(variance[:, i], of + noise[i], rtol=1e-9)


@pytest.mark.parametrize("estimated", [False, True], ids=["known mean", "estimated mean"])
@pytest.mark.parametrize("kind", ["whole", "with gaps", "region"])
def test_grids_are_predicted_from_all_others(kind, estimated) -> None:
    """Poles that were observed at several copies are one observation; a latitude may have none."""
    rng = np.random.default_rng(1)
    grid = cagp.LatLonGrid(np.linspace(-60.0, 90.0, 6), 10)
    y = rng.normal(size=(2, *grid.shape))
    if kind != "whole":
        y[:, 2, 3:6] = np.nan
        y[:, 4] = np.nan
        y[1, 1, 7] = np.nan
        y[:, -1, 4:] = np.nan
    if kind == "region":
        y[:, :-1, 6:] = np.nan
    known = cagp.mean_family("quadratic-latitude") if estimated else _mean
    prior = cagp.Prior(cagp.Matern32(lengthscale=0.6, variance=2.0), noise_variance=0.1, mean=known)
    mean, variance = each_left_out(prior, grid, y, executor=SerialExecutor())
    np.testing.assert_array_equal(np.isnan(mean), np.isnan(y))
    points = grid.points.reshape(*grid.shape, 3)
    for field, row, column in ((0, 0, 0), (0, 1, 7), (1, 2, 2), (0, 3, 5), (1, -1, 0), (0, -1, 3)):
        if np.isnan(y[field, row, column]):
            continue
        where = (row, slice(None)) if row == -1 else (row, column)
        expected, of = _without(
            prior_of(prior, field), grid, y[field], where, points[row, column], cagp.Rings()
        )
        np.testing.assert_allclose(mean[field, row, column], expected, rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(variance[field, row, column], of + 0.1, rtol=1e-7)


def prior_of(prior: cagp.Prior, field: int) -> cagp.Prior:
    if prior.estimates_mean:
        return prior
    return cagp.Prior(prior.kernel, noise_variance=prior.noise_variance, mean=lambda X: _mean(X)[:, [field]])


def test_what_tells_of_a_mean_alone_is_not_predicted_and_the_others_are() -> None:
    """One point off a line of points; and a field with a single observation beside one with more."""
    slope = cagp.BasisMean(lambda X: np.column_stack([np.ones(len(X)), X[:, 1]]), ("one", "y"))
    prior = cagp.Prior(cagp.Matern32(0.4), noise_variance=0.1, mean=slope)
    X = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [1.0, 3.0]])
    found = each_left_out(prior, X, np.ones(4))
    assert np.isnan(found.mean).tolist() == np.isnan(found.variance).tolist() == [[False, False, False, True]]
    level = cagp.Prior(cagp.Matern32(0.4), noise_variance=0.1, mean=cagp.mean_family("constant"))
    y = np.column_stack([np.full(4, np.nan), np.arange(4.0)])
    y[2, 0] = 7.0
    together, alone = each_left_out(level, X, y), each_left_out(level, X, y[:, 1])
    assert np.isnan(together.mean[0]).all()
    np.testing.assert_array_equal(together.mean[1], alone.mean[0])
    np.testing.assert_array_equal(together.variance[1], alone.variance[0])
    with pytest.raises(ArgumentError) as caught:
        each_left_out(level, X[:1], y[2:3, :1])
    assert caught.value.key == "left-out-mean"
    with pytest.raises(ArgumentError) as refusal:
        each_left_out(prior, X[:3] + np.array([0.0, 2.0]), np.ones(3))
    assert refusal.value.key == "coefficient-undetermined"


def test_leaving_out_is_planned_and_says_how_far_it_is() -> None:
    """What does not fit is refused; each pattern of gaps is a part of the work, of points and of a grid."""
    prior = cagp.Prior(cagp.Matern32(0.4), noise_variance=0.1)
    rng, grid = np.random.default_rng(0), cagp.LatLonGrid(np.linspace(-80.0, 80.0, 12), 24)
    X, y, fields = rng.normal(size=(300, 2)), rng.normal(size=(300, 2)), rng.normal(size=(2, 12, 24))
    y[3, 1] = fields[1, 2, 4] = np.nan
    for where, values in ((X, y), (grid, fields)):
        parts: list[float] = []
        each_left_out(prior, where, values, progress=parts.append)
        assert parts == [0.5, 1.0]
        with pytest.raises(BudgetError):
            each_left_out(prior, where, values, memory_limit_bytes=200_000)


@pytest.mark.parametrize("where", ["points", "whole grid", "gaps"])
def test_bytes_of_leaving_out_are_no_more_than_planned(where, monkeypatch, traced) -> None:
    planned: list[int] = []
    for solver in (cagp.Rings, cagp.Cholesky):
        plan = solver.plan
        monkeypatch.setattr(
            solver,
            "plan",
            lambda self, demand, plan=plan: (
                planned.append(plan(self, demand).peak_bytes) or plan(self, demand)
            ),
        )
    rng, grid = np.random.default_rng(0), cagp.LatLonGrid(np.linspace(-80.0, 80.0, 60), 120)
    prior = cagp.Prior(cagp.Matern32(0.4), 0.1, cagp.mean_family("quadratic-latitude"))
    X, y = (
        cagp.unit_sphere(rng.uniform(-80.0, 80.0, 700), rng.uniform(0.0, 360.0, 700)),
        rng.normal(size=(700, 40)),
    )
    if where != "points":
        X, y = grid, rng.normal(size=(40, *grid.shape))
        y[:, rng.random(grid.shape) < (0.01 if where == "gaps" else 0.0)] = np.nan
    each_left_out(prior, X, y)  # imports, compilation
    _, peak = traced(lambda: each_left_out(prior, X, y, executor=SerialExecutor()))
    assert 0.3 * planned[-1] < peak <= planned[-1]
