"""Calibration on data drawn from the prior itself, in the setting of [Hegde, Adil & Cockayne, section 5.1].

Matern 3/2 of lengthscale 0.2 and variance 1, noise 0.1; 400 points drawn uniformly on the unit square, a
grid of 21 x 21 test points, five iterations, a thousand simulations for each of twenty generators. Every
generator draws its own points and its own direction, so that all p-values are independent and, for a
calibrated solver, uniform.
"""

import numpy as np
import pytest
from scipy.stats import binom, chi2, kstest

import cagp_dist as cagp
from cagp_dist.calibration.verification.pit import NormalTests, normal_tests
from cagp_dist.runtime import SerialExecutor

from ..conformance.registered import POINT_SOLVERS
from ..faulty import OffByOne

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive, pytest.mark.usefixtures("one_blas_thread")]

PRIOR = cagp.Prior(cagp.Matern32(lengthscale=0.2), noise_variance=0.01)
N_TRAIN = 400
SIMULATIONS = 1000
GENERATORS = 20
LEVEL = 0.01
FAILURES_BY_CHANCE = 3
"""Of twenty uniform p-values more than three are below 0.01 with probability 4e-5: see the first test."""

CALIBRATED = {
    name: solver
    for name, solver in POINT_SOLVERS.items()
    if solver.calibrated == "exact" and "blocks of 3" not in name
}
"""Every solver that says so, with five iterations and blocks of forty points."""


def grid() -> np.ndarray:
    side = np.linspace(0.0, 1.0, 21)
    return np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)


def errors(solver, seed: int, *, simulations: int = SIMULATIONS) -> np.ndarray:
    """Standardised errors along the direction of one generator."""
    generator = np.random.default_rng([2025, seed])
    X = generator.uniform(size=(N_TRAIN, 2))
    return cagp.calibrate(
        PRIOR,
        X,
        grid(),
        solver=solver,
        simulations=simulations,
        generator=generator,
        executor=SerialExecutor(),
    ).z


def test_the_bound_on_failures_is_what_chance_allows():
    assert binom.sf(FAILURES_BY_CHANCE, GENERATORS, LEVEL) < 1e-4 < binom.sf(2, GENERATORS, LEVEL)


@pytest.mark.parametrize("solver", CALIBRATED.values(), ids=CALIBRATED.keys())
def test_calibrated_solvers_pass(solver):
    z = [errors(solver, seed) for seed in range(GENERATORS)]
    tests = [normal_tests(values) for values in z]
    for name in ("ks_pvalue", "variance_pvalue", "mean_pvalue"):
        p_values = [getattr(test, name) for test in tests]
        assert sum(p < LEVEL for p in p_values) <= FAILURES_BY_CHANCE, name
        assert kstest(p_values, "uniform").pvalue > 1e-3, name  # neither too good nor too bad
    # All 20,000 together: the standard error of their standard deviation is 1 / sqrt(40,000) = 0.5 %.
    pooled = normal_tests(np.concatenate(z))
    assert abs(pooled.z_std - 1.0) < 4 * 0.005
    assert min(pooled.ks_pvalue, pooled.variance_pvalue, pooled.mean_pvalue) > 1e-3


@pytest.mark.parametrize("solver", CALIBRATED.values(), ids=CALIBRATED.keys())
def test_the_whole_covariance_is_that_of_the_errors(solver):
    """Not only along one direction: whitened errors of all test points are chi-squared together."""
    simulations = 200
    generator = np.random.default_rng(7)
    X, X_test = generator.uniform(size=(N_TRAIN, 2)), grid()
    joint = np.concatenate([X, X_test])
    f = np.linalg.cholesky(PRIOR.kernel(joint, joint)) @ generator.normal(size=(len(joint), simulations))
    y = f[:N_TRAIN] + 0.1 * generator.normal(size=(N_TRAIN, simulations))
    posterior = cagp.condition(PRIOR, X, y, X_test, solver=solver, covariance="full")
    white = np.linalg.solve(np.linalg.cholesky(posterior.covariance), posterior.mean - f[N_TRAIN:])
    count = white.size
    p_value = 2.0 * min(chi2.cdf((white**2).sum(), count), chi2.sf((white**2).sum(), count))
    assert p_value > 1e-3
    # 88,200 whitened errors: a scale wrong by 1 % is four standard errors
    assert abs(np.sqrt((white**2).mean()) - 1.0) < 4.0 / np.sqrt(2.0 * count)


def test_conjugate_gradients_are_conservative():
    """Their directions follow the data: the errors are smaller than stated, and every test says so.

    The standard deviation of z is near 0.8. With 500 draws that is more than six standard errors of
    1 / sqrt(1,000) below 1 for a single generator; KS, less sensitive to scale, needs all 2,000.
    """
    z = [errors(cagp.ConjugateGradient(iterations=5), seed, simulations=500) for seed in range(4)]
    tests: list[NormalTests] = [normal_tests(values) for values in z]
    assert all(0.6 < test.z_std < 0.9 for test in tests)
    assert all(test.variance_pvalue < 1e-4 for test in tests)
    assert sum(test.ks_pvalue < 0.05 for test in tests) >= 3
    assert normal_tests(np.concatenate(z)).ks_pvalue < 1e-3
    histogram = np.histogram(np.concatenate(z), bins=[-np.inf, -1.0, 1.0, np.inf])[0]
    assert histogram[1] > 0.683 * 2000  # inverted U: too many errors within one standard deviation


@pytest.mark.parametrize(("iterations", "inflation"), [(1, 1.19), (2, 1.09)])
def test_a_covariance_one_iteration_ahead_of_the_mean_is_caught(iterations, inflation):
    """The standard deviation of z is 1.19 and 1.09, known to 1 / sqrt(8,000) = 1.1 % here."""
    z = np.concatenate([errors(OffByOne(iterations), seed) for seed in range(4)])
    tests = normal_tests(z)
    assert tests.variance_pvalue < 1e-6
    assert abs(tests.z_std - inflation) < 0.08  # directions and points differ
    assert (
        normal_tests(
            np.concatenate([errors(cagp.GaussSeidel(iterations), seed) for seed in range(4)])
        ).variance_pvalue
        > 1e-3
    )
