"""Distributions of what was transformed: exact but for quadrature, which draws of the base confirm."""

import numpy as np
import pytest
from scipy.integrate import quad

from cagp_dist import Arcsinh, BoxCox
from cagp_dist.errors import ArgumentError
from cagp_dist.predictive import Gaussian, Predictive, QuantileTable
from cagp_dist.predictive.transforms import (
    Censored,
    NormalScore,
    OwnTransform,
    Transformed,
    checked_at,
    of_normals,
    transform_of,
)

VALUES = np.random.default_rng(0).lognormal(size=200)

TRANSFORMS = [
    BoxCox(0.0),
    BoxCox(0.0, shift=0.2),
    BoxCox(0.5),
    BoxCox(0.3, shift=0.1),
    BoxCox(1.0),
    Arcsinh(0.3),
    NormalScore.of(VALUES),
    Censored(BoxCox(0.5), -1.5, 0.0),
]


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda transform: transform.text[:20])
def test_the_inverse_the_slope_and_the_text_belong_to_the_function(transform):
    y = VALUES[VALUES > 0.1]
    np.testing.assert_allclose(transform.inverse(transform.forward(y)), y, rtol=1e-12)
    if not isinstance(transform, NormalScore):  # whose slope has steps
        step = 1e-6 * y
        slope = (transform.forward(y + step) - transform.forward(y - step)) / (2.0 * step)
        np.testing.assert_allclose(transform.log_slope(y), np.log(slope), atol=1e-6)
    assert transform_of(repr(transform)) == transform


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda transform: transform.text[:20])
def test_mean_crps_and_probabilities_are_those_of_draws_taken_back(transform):
    """Means of 2e5 draws; four standard errors."""
    distribution = Transformed(Gaussian([-0.4], 0.8), transform)
    rng = np.random.default_rng(1)
    draws = distribution.sample(rng, 200_000)[:, 0]
    error = 4.0 * draws.std() / np.sqrt(draws.size)
    assert distribution.mean[0] == pytest.approx(draws.mean(), abs=error)
    squares = (draws - draws.mean()) ** 2
    assert distribution.std[0] ** 2 == pytest.approx(
        squares.mean(), abs=4.0 * squares.std() / np.sqrt(draws.size)
    )
    for value in (0.3, float(transform.inverse(-9.0))):
        terms = np.abs(draws - value) - 0.5 * np.abs(draws - rng.permutation(draws))
        sampled, spread = terms.mean(), 4.0 * terms.std() / np.sqrt(draws.size)
        assert distribution.crps([value])[0] == pytest.approx(sampled, abs=spread)
    below = (draws < 0.3).mean()
    assert distribution.cdf([0.3])[0] == pytest.approx(below, abs=4.0 * 0.5 / np.sqrt(draws.size))
    assert distribution.least_probability[0] == pytest.approx(
        (draws == transform.inverse(-99.0)).mean(), abs=4.0 * 0.5 / np.sqrt(draws.size)
    )


def test_all_is_above_what_lies_below_the_least_value_and_that_is_no_larger_than_itself():
    for transform in (BoxCox(0.0), BoxCox(0.5), Censored(BoxCox(0.5), -1.0)):
        distribution = Transformed(Gaussian([-0.4], 0.8), transform)
        assert distribution.above(np.array([-1.0])) == [1.0]
        for value in (transform.inverse(-np.inf), transform.inverse(-0.5)):
            below = (transform.inverse(np.random.default_rng(1).normal(-0.4, 0.8, 10_000)) <= value).mean()
            np.testing.assert_allclose(distribution.cdf(np.array([value])), below, atol=4.0 * 0.5 / 100.0)
            np.testing.assert_allclose(
                distribution.above(np.array([value])), 1.0 - distribution.cdf(np.array([value])), rtol=1e-12
            )


def test_a_density_and_the_probability_of_the_least_value_add_up_to_one():
    distribution = Transformed(Gaussian([-0.4], 0.8), Censored(BoxCox(0.5), -1.0))
    least = float(np.exp(distribution.log_density([0.0]))[0])
    start = float(distribution.transform.inverse(-1.0 + 1e-12))
    density, _ = quad(lambda y: float(np.exp(distribution.log_density([y]))[0]), start, 60.0, limit=200)
    assert least + density == pytest.approx(1.0, abs=1e-6)
    assert least == pytest.approx(distribution.least_probability[0], rel=1e-12)


def test_a_logarithm_of_normal_quantiles_is_lognormal():
    """By a table of quantiles and by the closed form: the table is the same normal distribution."""
    levels = np.array([0.025, 0.25, 0.5, 0.75, 0.975])
    base = Gaussian([0.4, 1.0], [0.5, 0.9])
    exact, table = (
        Transformed(each, BoxCox(0.0)) for each in (base, QuantileTable(levels, base.quantile(levels)))
    )
    np.testing.assert_allclose(exact.mean, np.exp([0.525, 1.405]), rtol=1e-12)
    np.testing.assert_allclose(table.mean, exact.mean, rtol=1e-6)
    np.testing.assert_allclose(table.std, exact.std, rtol=1e-5)


class Wrong:
    """A cube root whose parts can be spoiled."""

    def __init__(self, spoiled):
        self.spoiled = spoiled

    def forward(self, values):
        return np.cos(values) if self.spoiled == "forward" else np.cbrt(values)

    def inverse(self, scores):
        return scores**2 if self.spoiled == "inverse" else scores**3

    def log_slope(self, values):
        return np.zeros_like(values) if self.spoiled == "slope" else -np.log(3.0 * np.cbrt(values) ** 2)


def test_an_object_is_checked_at_the_data():
    checked_at(OwnTransform(Wrong("nothing")), VALUES)
    for spoiled in ("forward", "inverse", "slope"):
        with pytest.raises(ArgumentError) as refused:
            checked_at(OwnTransform(Wrong(spoiled)), VALUES)
        assert refused.value.key == "transform-object"
    with pytest.raises(ArgumentError) as refused:
        checked_at(BoxCox(0.0), VALUES - 1.0)
    assert refused.value.key == "transform-object"


class Square:
    """A square root whose inverse ascends again on the other side of zero."""

    def forward(self, values):
        return np.sqrt(values)

    def inverse(self, scores):
        return scores**2

    def log_slope(self, values):
        return -np.log(2.0 * np.sqrt(values))


def test_an_inverse_is_looked_at_where_predictions_may_lie():
    with pytest.raises(ArgumentError, match="where predictions may lie") as refused:
        checked_at(OwnTransform(Square()), np.linspace(0.01, 4.0, 50))
    assert refused.value.key == "transform-object"


def test_numbers_that_make_no_transform_are_refused():
    for family, numbers in ((BoxCox, (-0.5,)), (Arcsinh, (0.0,)), (NormalScore, ((1.0,), (0.0,)))):
        with pytest.raises(ArgumentError) as refused:
            family(*numbers)
        assert refused.value.key == "transform-number"


def test_moments_of_squares_are_those_of_the_quadrature():
    """In closed form, and by 12 nodes for each piece; far below the end nearly all is at the least value."""
    m, s = (each.ravel() for each in np.meshgrid([-6.0, -2.0, 0.0, 3.0, 60.0], [0.01, 0.3, 2.0]))
    found = Transformed(Gaussian(m, s), BoxCox(0.5, shift=0.2))
    mean, std = Predictive._moments.func(found)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.std, std, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("threshold", [None, -0.6])
def test_moments_of_normal_scores_are_exact_between_knots(threshold):
    """Against a fine grid of scores, which misses the step to a least value by a part of a cell."""
    rng = np.random.default_rng(7)
    values = np.exp(rng.standard_normal(60))
    transform = NormalScore.of(values, below=0 if threshold is None else 20)
    if threshold is not None:
        transform = Censored(transform, threshold)
    m, s = rng.standard_normal((2, 8)), rng.uniform(0.2, 1.0, (1, 8))
    score = np.linspace(-9.0, 9.0, 40_001)
    weights = np.exp(-0.5 * score**2) / np.exp(-0.5 * score**2).sum()
    y = transform.inverse(m[..., None] + s[..., None] * score)
    mean = (y @ weights).mean(axis=0)
    std = np.sqrt((y**2 @ weights).mean(axis=0) - mean**2)
    found = of_normals(m, s, transform)
    np.testing.assert_allclose(found, (mean, std), rtol=1e-6 if threshold is None else 2e-3)


class SquareRoot:
    """A transform of one's own, whose inverse is none below zero."""

    end = -np.inf

    def inverse(self, scores):
        return np.where(np.asarray(scores) < 0.0, np.nan, np.square(scores))


def test_no_value_below_a_threshold_is_asked_of_a_transform():
    """Of a distribution that lies far below it, whose mean is the least value."""
    transform = Censored(SquareRoot(), 0.05)
    mean, std = of_normals(np.array([[-0.6, 0.5]]), np.array([[0.05, 0.05]]), transform)
    np.testing.assert_allclose(mean, [0.0, 0.5**2 + 0.05**2], atol=1e-6)
    assert std[0] == 0.0
