"""Predictive distributions against SciPy's, their own definitions by quadrature, and their samples."""

import numpy as np
import pytest
from scipy import integrate, stats

from cagp_dist.errors import ArgumentError
from cagp_dist.predictive import Gaussian, Mixture, Predictive, QuantileTable, Recalibrated, StudentT

from ..joined import one_after_another

LOCATION = np.array([[280.0, 275.0, 0.0], [1.0, -3.0, 2.0]])
SCALE = np.array([[2.0, 0.5, 1.0], [1.0, 3.0, 0.1]])
LEVELS = np.array([0.02, 0.1, 0.3, 0.5, 0.6, 0.9, 0.99])


def _skewed() -> QuantileTable:
    """Quantiles of a skewed distribution, stretched and moved for each point."""
    return QuantileTable(LEVELS, LOCATION + SCALE * stats.gumbel_r.ppf(LEVELS)[:, None, None])


def _curve(base: Predictive) -> Recalibrated:
    return Recalibrated(
        base, scores=np.array([-2.5, -1.0, 0.2, 0.9, 3.0]), levels=[0.05, 0.3, 0.5, 0.9, 0.97]
    )


LAWS: dict[str, Predictive] = {
    "gaussian": Gaussian(LOCATION, SCALE),
    "student-t": StudentT(LOCATION, SCALE, np.array([3.0, 5.5, 40.0])),
    "recalibrated": _curve(Gaussian(LOCATION, SCALE)),
    "recalibrated student-t": _curve(StudentT(LOCATION, SCALE, 6.0)),
    "quantile table": _skewed(),
    "mixture": Mixture([1.0, 3.0], [LOCATION, LOCATION + SCALE], [SCALE, 0.5 * SCALE], 5.5),
    "mixture of normal distributions": Mixture(
        [1.0, 3.0], [LOCATION, LOCATION - SCALE], [0.6 * SCALE, SCALE]
    ),
}


@pytest.fixture(params=LAWS)
def distribution(request: pytest.FixtureRequest) -> Predictive:
    return LAWS[request.param]


def test_families_are_those_of_scipy() -> None:
    y = LOCATION + SCALE * np.array([-3.0, 0.4, 60.0])
    for distribution, oracle in (
        (LAWS["gaussian"], stats.norm(LOCATION, SCALE)),
        (LAWS["student-t"], stats.t(np.array([3.0, 5.5, 40.0]), LOCATION, SCALE)),
    ):
        np.testing.assert_allclose(distribution.cdf(y), oracle.cdf(y), rtol=1e-12)
        np.testing.assert_allclose(distribution.log_density(y), oracle.logpdf(y), rtol=1e-10)
        np.testing.assert_allclose(distribution.quantile(0.003), oracle.ppf(0.003), rtol=1e-9)
        np.testing.assert_allclose(distribution.mean, oracle.mean(), rtol=1e-12)
        np.testing.assert_allclose(distribution.std, oracle.std(), rtol=1e-12)


def test_quantiles_invert_the_distribution_function(distribution: Predictive) -> None:
    levels = np.array([1e-9, 0.01, 0.05, 0.3, 0.5, 0.62, 0.9, 0.97, 0.999])
    quantiles = distribution.quantile(levels)
    assert quantiles.shape == (9, 2, 3)
    assert bool(np.all(np.diff(quantiles, axis=0) > 0.0))
    for level, values in zip(levels, quantiles, strict=True):
        np.testing.assert_allclose(distribution.cdf(values), level, rtol=1e-6)
        # exponentials of one value and of a vector may differ in the last digit
        np.testing.assert_allclose(distribution.quantile(level), values, rtol=1e-12, atol=1e-13)
    lower, upper = distribution.interval(0.8)
    np.testing.assert_allclose(distribution.cdf(upper) - distribution.cdf(lower), 0.8, rtol=1e-9)


@pytest.mark.parametrize("seed", [3257, 4991])
def test_quantiles_beside_narrow_components_are_found(seed: int) -> None:
    """Of seven components the widest is thousands of times as wide as the narrowest, where Newton creeps."""
    rng = np.random.default_rng(seed)
    weights, location = rng.dirichlet(np.full(7, 0.3)) + 1e-9, rng.normal(size=(7, 1))
    mixture = Mixture(weights, location, np.exp(3.0 * rng.normal(size=(7, 1))), 197.0)
    z = np.linspace(-4.0, 4.0, 41)[:, None]
    np.testing.assert_allclose(mixture.normal_score(mixture.at_normal_score(z)), z, atol=1e-6)


def test_density_is_the_slope_of_the_distribution_function(distribution: Predictive) -> None:
    for level in (0.004, 0.07, 0.2, 0.45, 0.55, 0.75, 0.995):
        y = distribution.quantile(level)
        step = 1e-5 * SCALE
        slope = (distribution.cdf(y + step) - distribution.cdf(y - step)) / (2.0 * step)
        np.testing.assert_allclose(np.exp(distribution.log_density(y)), slope, rtol=2e-5)


def test_crps_mean_and_std_are_those_of_the_definition(distribution: Predictive) -> None:
    """CRPS as the integral of squared differences of distribution functions; moments by the density."""
    point = distribution[0, 1:2]
    grid = np.unique(
        point.quantile(
            np.concatenate([np.geomspace(1e-13, 0.5, 4001)[:-1], 1.0 - np.geomspace(1e-13, 0.5, 4001)])
        ).ravel()
    )
    inside = np.array([float(point.cdf(x)[0]) for x in grid])
    for level in (0.001, 0.2, 0.5, 0.93):
        y = float(point.quantile(level)[0])
        x = np.sort(np.append(grid, [y - 1e-12, y + 1e-12]))
        squares = (np.interp(x, grid, inside) - (x >= y)) ** 2
        assert float(point.crps(y)[0]) == pytest.approx(integrate.trapezoid(squares, x), rel=3e-3)
    middle = 0.5 * (grid[1:] + grid[:-1])
    mass = np.diff(inside)
    mean = float(middle @ mass) / mass.sum()
    assert float(point.mean[0]) == pytest.approx(mean, abs=2e-3 * SCALE[0, 1])
    assert float(point.std[0]) == pytest.approx(float(np.sqrt((middle - mean) ** 2 @ mass)), rel=1e-2)


def test_samples_follow_the_law(distribution: Predictive) -> None:
    """PIT values of 1,000 draws at six points: a KS statistic exceeds 2.2 / sqrt(N) once in 8,000."""
    for seed in (0, 1):
        drawn = distribution.sample(np.random.default_rng(seed), 1000)
        assert drawn.shape == (1000, 2, 3)
        probabilities = (
            distribution.cdf(drawn)
            if isinstance(distribution, Gaussian)
            else np.stack([distribution.cdf(row) for row in drawn])
        )
        for index in np.ndindex(2, 3):
            statistic = stats.kstest(probabilities[(slice(None), *index)], "uniform").statistic
            assert statistic < 2.2 / np.sqrt(1000)


def test_points_are_taken_out_as_from_an_array(distribution: Predictive) -> None:
    y = LOCATION + 0.3 * SCALE
    mask = np.array([[True, False, True], [False, False, True]])
    np.testing.assert_array_equal(distribution[mask].cdf(y[mask]), distribution.cdf(y)[mask])
    np.testing.assert_array_equal(distribution[:, 1].log_density(y[:, 1]), distribution.log_density(y)[:, 1])


def test_tails_of_a_curve_are_those_of_the_base() -> None:
    """Beyond the last knot ratios of probabilities are those of the base, as far as floating point goes."""
    base = Gaussian(np.zeros(2), 1.0)
    distribution = Recalibrated(base, scores=np.array([-1.0, 2.0]), levels=[0.2, 0.9])
    for z in (-4.0, -12.0, -30.0):
        np.testing.assert_allclose(
            stats.norm.logcdf(distribution.normal_score(z)),
            np.log(0.2) + stats.norm.logcdf(z) - stats.norm.logcdf(-1.0),
        )
        np.testing.assert_allclose(distribution.at_normal_score(distribution.normal_score(-z)), -z, rtol=1e-9)
        np.testing.assert_allclose(
            stats.norm.logsf(distribution.normal_score(-z)),
            np.log(0.1) + stats.norm.logsf(-z) - stats.norm.logsf(2.0),
        )


def test_identity_curve_and_table_of_a_normal_law_change_nothing() -> None:
    distribution = LAWS["gaussian"]
    levels = np.linspace(0.05, 0.95, 10)
    y = LOCATION + SCALE * np.array([-7.0, 0.1, 2.0])
    same = Recalibrated(distribution, scores=stats.norm.ppf(levels), levels=levels)
    table = QuantileTable(levels, distribution.quantile(levels))
    for other in (same, table):
        np.testing.assert_allclose(other.normal_score(y), distribution.normal_score(y), rtol=1e-9)
        np.testing.assert_allclose(other.log_density(y), distribution.log_density(y), rtol=1e-9)
        np.testing.assert_allclose(other.crps(y), distribution.crps(y), rtol=1e-6)
        np.testing.assert_allclose(other.mean, distribution.mean, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(other.std, distribution.std, rtol=1e-6)


def test_equal_quantiles_are_one_value_with_a_probability() -> None:
    distribution = QuantileTable([0.1, 0.4, 0.6, 0.9], np.array([[0.0], [1.0], [1.0], [3.0]]))
    assert distribution.cdf(1.0).tolist() == pytest.approx([0.5])
    assert distribution.quantile([0.41, 0.5, 0.59]).ravel().tolist() == [1.0, 1.0, 1.0]


@one_after_another
@pytest.mark.parametrize(
    ("build", "key"),
    [
        (lambda: Gaussian([0.0, np.nan], 1.0), "not-finite"),
        (lambda: Gaussian([0.0], 0.0), "not-positive"),
        (lambda: StudentT([0.0], 1.0, 1.0), "degrees-of-freedom"),
        (
            lambda: Gaussian([0.0], 1.0).quantile(1.0),
            "levels",
        ),
        (
            lambda: Recalibrated(Gaussian([0.0], 1.0), [0.0, 0.0], [0.1, 0.2]),
            "quantiles-equal",
        ),
        (lambda: Recalibrated(Gaussian([0.0], 1.0), [0.0], [1.0]), "levels"),
        (lambda: Recalibrated(Gaussian([0.0], 1.0), [], []), "shapes"),
        (
            lambda: QuantileTable([0.1, 0.9], [[1.0, 0.0], [0.0, 1.0]]),
            "quantiles-cross",
        ),
        (lambda: QuantileTable([0.9, 0.1], [[0.0], [1.0]]), "levels"),
        (lambda: QuantileTable([0.1, 0.9], [[0.0], [0.0]]), "quantiles-equal"),
        (lambda: QuantileTable([0.5], [[0.0]]), "shapes"),
    ],
)
def test_wrong_numbers_are_refused(build: object, key: str) -> None:
    with pytest.raises(ArgumentError) as refusal:
        build()  # type: ignore[operator]
    assert refusal.value.key == key
