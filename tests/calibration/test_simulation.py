"""Simulation-based calibration: passes what is calibrated, catches what is not."""

from dataclasses import replace

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.calibration.simulation import field_draws as draws
from cagp_dist.calibration.simulation.beliefs import of_one_covariance
from cagp_dist.calibration.simulation.field_draws import _factor, draw
from cagp_dist.calibration.verification.pit import normal_tests
from cagp_dist.errors import ArgumentError, BudgetError, NumericalError

from ..faulty import OneField
from ..joined import one_after_another

CALIBRATED = [
    cagp.GaussSeidel(iterations=5),
    cagp.BlockGaussSeidel(iterations=5, block_size=64),
    cagp.RandomActions(iterations=5, seed=0),
]


@pytest.fixture(scope="module")
def points():
    rng = np.random.default_rng(0)
    return rng.uniform(size=(400, 2)), rng.uniform(size=(20, 2))


PRIOR = cagp.Prior(cagp.Matern32(lengthscale=0.2), noise_variance=0.01)


@pytest.mark.exhaustive
@pytest.mark.parametrize("solver", CALIBRATED, ids=lambda solver: type(solver).__name__)
def test_calibrated_solvers_pass_at_the_rate_of_chance(points, solver):
    # 20 generators, 500 draws each. Under calibration every p-value is uniform: more than three of twenty
    # below 0.01 have probability 4e-5. All 10,000 z pooled are still independent standard normal ones; the
    # pooled variance test sees a scale wrong by 2.4 % (3.3 standard errors of 1 / sqrt(20,000)).
    results = [
        cagp.calibrate(PRIOR, *points, solver=solver, simulations=500, generator=np.random.default_rng(seed))
        for seed in range(20)
    ]
    for name in ("ks_pvalue", "variance_pvalue", "mean_pvalue"):
        assert sum(getattr(result.tests, name) < 0.01 for result in results) <= 3, name
    pooled = normal_tests(np.concatenate([result.z for result in results]))
    assert min(pooled.ks_pvalue, pooled.variance_pvalue, pooled.mean_pvalue) > 1e-3


@pytest.mark.exhaustive
def test_conjugate_gradients_fail_and_are_conservative(points):
    # sd of z is near 0.8 here: with 20 x 30 = 600 draws that is seven standard errors
    # (1 / sqrt(1,200) = 0.029) below 1.
    z = np.concatenate(
        [
            cagp.calibrate(
                PRIOR,
                *points,
                solver=cagp.ConjugateGradient(iterations=5),
                simulations=30,
                generator=np.random.default_rng(seed),
            ).z
            for seed in range(20)
        ]
    )
    tests = normal_tests(z)
    assert tests.z_std < 0.9
    assert tests.variance_pvalue < 1e-6
    assert tests.ks_pvalue < 0.01


def test_no_iteration_returns_the_prior_which_is_calibrated(points):
    result = cagp.calibrate(
        PRIOR, *points, solver=cagp.GaussSeidel(0), simulations=1_000, generator=np.random.default_rng(1)
    )
    assert min(result.tests.ks_pvalue, result.tests.variance_pvalue, result.tests.mean_pvalue) > 1e-3


@pytest.mark.parametrize("noise", [0.01, np.geomspace(1e-4, 1.0, 60)], ids=["one noise", "noise by point"])
def test_z_is_the_dense_formula(points, noise):
    X, X_test = points[0][:60], points[1]
    prior = replace(PRIOR, noise_variance=noise)
    result = cagp.calibrate(
        prior, X, X_test, solver=cagp.Cholesky(), simulations=7, generator=np.random.default_rng(2)
    )
    # The same draws, in the order in which the generator gives them.
    generator = np.random.default_rng(2)
    w = generator.standard_normal(20)
    w /= np.linalg.norm(w)
    joint = np.concatenate([X, X_test])
    f = np.linalg.cholesky(PRIOR.kernel(joint, joint)) @ generator.standard_normal((80, 7))
    y = f[:60] + np.sqrt(noise * np.ones(60))[:, None] * generator.standard_normal((60, 7))
    V, G = PRIOR.kernel(X_test, X), PRIOR.kernel(X, X) + noise * np.eye(60)
    covariance = PRIOR.kernel(X_test, X_test) - V @ np.linalg.solve(G, V.T)
    expected = w @ (V @ np.linalg.solve(G, y) - f[60:]) / np.sqrt(w @ covariance @ w)
    np.testing.assert_allclose(result.z, expected, rtol=1e-7)
    np.testing.assert_allclose(result.direction, w, rtol=1e-15)
    assert result.relative_jitter == 0.0


def test_one_call_with_many_columns_equals_one_call_per_draw(points):
    X, X_test = points[0][:80], points[1]
    inner = cagp.GaussSeidel(iterations=3)
    together, apart = (
        cagp.calibrate(PRIOR, X, X_test, solver=solver, simulations=6, generator=np.random.default_rng(3))
        for solver in (inner, OneField(inner))
    )
    np.testing.assert_allclose(together.z, apart.z, rtol=1e-10)


@pytest.mark.parametrize("mean", [280.0, lambda X: 280.0 + 30.0 * X[:, 0] ** 2])
def test_the_prior_mean_makes_no_difference(points, mean):
    X, X_test = points[0][:80], points[1]
    plain, shifted = (
        cagp.calibrate(
            prior, X, X_test, solver=CALIBRATED[1], simulations=6, generator=np.random.default_rng(4)
        ).z
        for prior in (PRIOR, replace(PRIOR, mean=mean))
    )
    np.testing.assert_allclose(shifted, plain, rtol=1e-8, atol=1e-8)


def test_executors_give_the_same_bits(points):
    with cagp.open_executor("serial") as serial:
        results = [
            cagp.calibrate(
                PRIOR,
                *points,
                solver=CALIBRATED[1],
                simulations=20,
                generator=np.random.default_rng(5),
                executor=executor,
            ).z
            for executor in (None, serial)
        ]
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("distance", [0.0, 1e-11])
def test_points_that_coincide_or_nearly_so_stay_calibrated(points, distance):
    """Those that coincide have one value; those that nearly do are drawn with jitter."""
    X = np.repeat(points[0][:40], 2, axis=0)
    X[::2, 0] += distance
    drawn = draw(PRIOR, X, X[:10], simulations=2, generator=np.random.default_rng(6))
    np.testing.assert_allclose(drawn.fields.latent[::2], drawn.fields.latent[1::2], atol=1e-4)
    assert np.array_equal(drawn.fields.latent[::2], drawn.fields.latent[1::2]) == (distance == 0.0)
    result = cagp.calibrate(
        PRIOR, X, X[:10], solver=CALIBRATED[0], simulations=1_000, generator=np.random.default_rng(6)
    )
    assert (0.0 < result.relative_jitter <= 1e-10) == (distance > 0.0)
    assert min(result.tests.ks_pvalue, result.tests.variance_pvalue) > 1e-3


def test_pit_values_belong_to_z(points):
    result = cagp.calibrate(
        PRIOR, *points, solver=CALIBRATED[1], simulations=50, generator=np.random.default_rng(7)
    )
    assert result.pit.shape == result.z.shape == (50,)
    assert np.linalg.norm(result.direction) == pytest.approx(1.0)
    assert result.tests == normal_tests(result.z)
    assert np.all(np.argsort(result.pit) == np.argsort(result.z))


def test_too_many_points_are_refused_before_any_work():
    X = np.linspace(0.0, 1.0, 6_000).reshape(-1, 1)
    text = r"6,001 training and test points .* 1,000 draws of 733.* at most 512"
    with pytest.raises(BudgetError, match=text):
        draw(
            PRIOR,
            X,
            [[0.5]],
            simulations=1_000,
            generator=np.random.default_rng(8),
            memory_limit_bytes=2**29,
        )


def test_points_of_a_grid_are_drawn_on_it_with_the_same_law(monkeypatch):
    """Both poles, points of both sets twice: covariances of 4,000 draws, and the calibration."""
    grid = cagp.LatLonGrid(np.linspace(-90.0, 90.0, 7), 12)
    X, X_test = grid.points[::2], grid.points[::5]
    prior = cagp.Prior(cagp.Matern32(0.5, variance=3.0), noise_variance=0.1, mean=5.0)
    monkeypatch.setattr(draws, "_draw", None)  # the joint covariance is not used
    monkeypatch.setattr(draws, "FEW_POINTS", 3)
    count = 4_000
    drawn = draw(prior, X, X_test, simulations=count, generator=np.random.default_rng(0)).fields
    centred = np.concatenate([drawn.y, drawn.latent]) - 5.0
    joint = np.concatenate([X, X_test])
    expected = prior.kernel(joint, joint)
    expected[np.diag_indices(len(X))] += 0.1
    error = np.abs(centred @ centred.T / count - expected)
    # standard error of a covariance sqrt((k_ii k_jj + k_ij^2) / N), at most 3.1 sqrt(2 / N); 4.5 of them
    assert error.max() < 4.5 * 3.1 * np.sqrt(2.0 / count)
    found = cagp.calibrate(prior, X, X_test, solver=cagp.Cholesky(), simulations=500)
    assert found.verdict.kind == "consistent"
    assert found.relative_jitter == 0.0


@one_after_another
@pytest.mark.parametrize(
    ("X", "X_test", "simulations", "key"),
    [
        ([[0.0]], [[1.0]], 0, "no-count"),
        (np.zeros((0, 1)), [[1.0]], 5, "no-points"),
        ([[0.0]], np.zeros((0, 1)), 5, "no-points"),
        ([0.0, 1.0], [[1.0]], 5, "shapes"),
        ([[0.0]], [[1.0, 2.0]], 5, "coordinates-differ"),
    ],
)
def test_wrong_arguments_are_refused(X, X_test, simulations, key):
    with pytest.raises(ArgumentError) as refusal:
        cagp.calibrate(
            PRIOR,
            X,
            X_test,
            solver=CALIBRATED[0],
            simulations=simulations,
            generator=np.random.default_rng(9),
        )
    assert refusal.value.key == key


def test_a_mean_with_several_columns_is_refused(points):
    prior = replace(PRIOR, mean=lambda X: np.zeros((len(X), 3)))
    with pytest.raises(ArgumentError) as refusal:
        cagp.calibrate(
            prior, *points, solver=CALIBRATED[0], simulations=3, generator=np.random.default_rng(10)
        )
    assert refusal.value.key == "mean-columns"


def test_an_indefinite_covariance_is_an_error():
    with pytest.raises(NumericalError) as refusal:
        _factor(np.array([[1.0, 2.0], [2.0, 1.0]]), scale=1.0)
    assert refusal.value.key == "not-positive-definite"


@pytest.mark.parametrize("factor", [0.0, -1.0])
def test_a_variance_that_is_not_positive_is_an_error(points, factor):
    covariance = factor * PRIOR.kernel(points[1], points[1])
    with pytest.raises(NumericalError) as refusal:
        of_one_covariance(np.zeros((20, 1)), covariance, np.ones(20), scale=1.0)
    assert refusal.value.key == "negative-variance"
