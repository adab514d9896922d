"""The likelihood and the fit of sums of kernels: oracle, gradients, recovery, statuses."""

from types import SimpleNamespace

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.likelihood.bounds import Bounds, Scales, make_bounds
from cagp_dist.likelihood.exact.dense_likelihood import DenseLikelihood
from cagp_dist.likelihood.exact.likelihood_evaluation import information
from cagp_dist.likelihood.exact.profile_likelihood import DIFFERENCE, Counter, ProfileLikelihood
from cagp_dist.likelihood.exact.ring_likelihood import RingLikelihood
from cagp_dist.likelihood.numbering import Model, Numbering
from cagp_dist.likelihood.starts import make_sum_starts
from cagp_dist.likelihood.uncertainty import uncertainty
from cagp_dist.runtime import SerialExecutor

from ..joined import one_after_another
from ..oracle import assert_close, kernel_matrix
from .textbook import curvature, slope

pytestmark = pytest.mark.usefixtures("one_blas_thread")

TWO = (cagp.Matern32, cagp.Matern52)
THREE = (cagp.SquaredExponential, cagp.Matern12, cagp.Matern32)
NUMBERS = {
    2: (0.2, 0.9, 2.5, 0.1),
    3: (0.1, 0.4, 1.5, 0.7, 2.0, 0.2),
}
"""Lengthscales, weights, ratio."""
LIMIT = 2**30
GRID = cagp.LatLonGrid(np.linspace(-80.0, 80.0, 9), 12)


def textbook(families, X, residuals, parameters):
    """Sum of log N(b | 0, G) over fields, for all lengthscales, all variances and the noise variance."""
    from scipy.stats import multivariate_normal

    parts = len(families)
    G = parameters[-1] * np.eye(len(X))
    for family, lengthscale, variance in zip(families, parameters[:parts], parameters[parts:-1], strict=True):
        G = G + kernel_matrix(family(lengthscale, variance), X, X)
    return float(np.sum(multivariate_normal(np.zeros(len(X)), G).logpdf(residuals.T)))


def problem(n=60, fields=2):
    rng = np.random.default_rng(n)
    return rng.uniform(size=(n, 2)), rng.normal(size=(n, fields))


@pytest.mark.parametrize("families", [TWO, THREE], ids=["two", "three"])
def test_value_gradient_and_curvature_are_those_of_the_dense_log_likelihood(families):
    X, residuals = problem()
    likelihood = DenseLikelihood(families, X, residuals, memory_limit_bytes=LIMIT)
    parts, numbers, variance = len(families), NUMBERS[len(families)], 1.7
    parameters = Numbering.of(parts).parameters(numbers, variance)
    evaluation = likelihood.evaluate(*numbers)
    assert evaluation.log_likelihood(variance) == pytest.approx(
        textbook(families, X, residuals, parameters), rel=1e-11
    )

    def value(x):
        return textbook(families, X, residuals, np.exp(x))

    found = Numbering.of(parts).natural.T @ evaluation.gradient(variance)
    assert_close(found, slope(value, np.log(parameters)), relative=1e-7)
    second = information(
        lambda x: likelihood.evaluate(*np.exp(x)), np.log(numbers), variance, step=DIFFERENCE
    )
    expected = -curvature(value, np.log(parameters))
    # differences of step h = 1e-3 leave h^2 / 6 of the fourth derivative, up to 200 times the second here
    assert_close(
        Numbering.of(parts).natural.T @ second @ Numbering.of(parts).natural, expected, relative=5e-5
    )


@pytest.mark.parametrize("mirrored", [True, False])
@pytest.mark.parametrize(
    "families",
    [pytest.param(TWO, id="two"), pytest.param(THREE, id="three", marks=pytest.mark.exhaustive)],
)
def test_rings_are_dense(families, mirrored):
    grid = GRID if mirrored else cagp.LatLonGrid([-70.0, -33.0, 0.0, 12.0, 60.0], 13)
    fields = np.random.default_rng(1).normal(size=(2, *grid.shape))
    columns, numbers = np.ascontiguousarray(fields.reshape(2, -1).T), NUMBERS[len(families)]
    settings = {"executor": SerialExecutor(), "memory_limit_bytes": LIMIT}
    expected = DenseLikelihood(families, grid.points, columns, memory_limit_bytes=LIMIT).evaluate(*numbers)
    found = RingLikelihood(families, grid, fields, **settings).evaluate(*numbers)
    assert found.log_likelihood(1.3) == pytest.approx(expected.log_likelihood(1.3), rel=1e-12)
    assert_close(found.gradient(1.3), expected.gradient(1.3), relative=1e-10)


def draw(kernel, noise_variance, seed, grid=GRID, fields=3):
    rings = cagp.RingGram(grid, kernel, noise_variance=noise_variance, executor=SerialExecutor())
    return rings.sample(np.random.default_rng(seed), noise=True, fields=fields)


def flat(result):
    """All parameters, and their standard errors."""
    kernel, errors = result.prior.kernel, result.standard_errors
    values = [part.lengthscale for part in kernel.parts] + [part.variance for part in kernel.parts]
    spread = [*errors.lengthscale, *errors.variance, errors.noise_variance]
    return np.array([*values, result.prior.noise_variance]), np.array(spread)


FINE = cagp.LatLonGrid(np.linspace(-85.0, 85.0, 35), 72)
TRUTH = cagp.Matern32(0.1, 2.0) + cagp.Matern32(0.8, 8.0)


def assert_recovered(result, kernel, noise_variance):
    """Within four standard errors of each logarithm: one of 20 fits with 5 numbers fails once in 160."""
    assert result.status is cagp.FitStatus.CONVERGED
    truth = [part.lengthscale for part in kernel.parts] + [part.variance for part in kernel.parts]
    values, _ = flat(result)
    deviation = np.log(values / [*truth, noise_variance]) / np.sqrt(np.diag(result.log_covariance))
    assert (np.abs(deviation) < 4.0).all()


@pytest.mark.exhaustive
def test_both_lengthscales_are_found_on_a_grid_with_the_short_one_first():
    fields = draw(TRUTH, 0.1, seed=0, grid=FINE)
    result = cagp.fit((cagp.Matern32, cagp.Matern32), FINE, fields, mean=0.0)
    assert_recovered(result, TRUTH, 0.1)
    assert result.method == "rings"
    assert result.log_covariance.shape == (5, 5)
    _, errors = flat(result)
    assert errors[0] < 0.01
    one = cagp.fit(cagp.Matern32, FINE, fields, mean=0.0)
    assert result.log_likelihood > one.log_likelihood + 50.0
    again = cagp.fit(
        (cagp.Matern32, cagp.Matern32),
        FINE,
        fields,
        mean=0.0,
        starts=1,
        start={"lengthscale": (0.8, 0.1), "variance": (8.0, 2.0), "noise_variance": 0.1},
    )
    np.testing.assert_allclose(flat(again)[0], flat(result)[0], rtol=1e-2)  # in the same order


@pytest.mark.exhaustive
@pytest.mark.parametrize("generator", [np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64])
@pytest.mark.parametrize("kernel", [TRUTH, cagp.Matern32(0.15, 4.0) + cagp.Matern52(1.0, 10.0)], ids=str)
def test_recovery_from_several_generators(generator, kernel):
    rings = cagp.RingGram(FINE, kernel, noise_variance=0.1, executor=SerialExecutor())
    fields = rings.sample(np.random.Generator(generator(11)), noise=True, fields=6)
    families = tuple(type(part) for part in kernel.parts)
    assert_recovered(cagp.fit(families, FINE, fields, mean=0.0), kernel, 0.1)


def test_points():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(500, 2))
    kernel = cagp.Matern32(0.05, 2.0) + cagp.Matern32(0.8, 6.0)
    L = np.linalg.cholesky(kernel_matrix(kernel, X, X) + 0.05 * np.eye(500))
    y = L @ rng.normal(size=(500, 6))
    dense = cagp.fit((cagp.Matern32, cagp.Matern32), X, y, mean=0.0, starts=1)
    assert_recovered(dense, kernel, 0.05)


def test_a_part_too_many_is_not_called_converged():
    fields = draw(cagp.Matern32(0.5, 4.0), 0.1, seed=3)
    result = cagp.fit((cagp.Matern32, cagp.Matern32), GRID, fields, mean=0.0, starts=1)
    assert not result.status.ok
    assert result.status in (cagp.FitStatus.FLAT, cagp.FitStatus.AT_BOUND)


def test_equal_bounds_hold_a_number_of_a_part():
    result = cagp.fit(
        TWO,
        GRID,
        draw(cagp.Matern32(0.3, 2.0) + cagp.Matern52(1.0, 6.0), 0.2, seed=1),
        mean=0.0,
        starts=1,
        bounds={"lengthscale": ((0.3, 0.3), (0.5, 5.0)), "noise_variance": (0.2, 0.2)},
    )
    assert result.prior.kernel.parts[0].lengthscale == pytest.approx(0.3, rel=1e-12)
    assert result.prior.noise_variance == pytest.approx(0.2, rel=1e-9)
    assert np.isnan(result.standard_errors.lengthscale[0])
    assert np.isnan(result.standard_errors.noise_variance)
    assert result.standard_errors.lengthscale[1] > 0.0


SCALES = Scales(spacing=0.1, extent=2.0, power=4.0)


@pytest.mark.parametrize("seed", range(10))
def test_the_nearest_admissible_variance_of_the_first_part(seed):
    rng = np.random.default_rng(seed)
    low = np.exp(rng.normal(size=3))
    high = low * [3.0, 5.0, 4.0]
    bounds = Bounds((1.0, 1.0), (low[0], high[0]), (low[2], high[2]), (((1.0, 1.0), (low[1], high[1])),))
    for _ in range(40):
        weight, ratio, best = np.exp(rng.normal(size=3))
        variance, follows = bounds.variance_at([weight, ratio], best)
        candidates = np.geomspace(1e-3, 1e3, 20_001)
        own = np.stack([candidates, weight * candidates, ratio * candidates])
        inside = ((own >= low[:, None]) & (own <= high[:, None])).all(axis=0)
        if inside.any():
            nearest = candidates[inside][np.abs(np.log(candidates[inside] / best)).argmin()]
            assert variance == pytest.approx(nearest, rel=2e-3)
            at_limit = (1.0, weight, ratio)[follows] * variance
            assert (follows == 0 and variance == best) or np.isclose(
                at_limit, [low[follows], high[follows]]
            ).any()


@pytest.mark.parametrize("held", ["variance of the second part", "noise variance"])
def test_the_slope_follows_a_variance_that_is_held(held):
    """The profile's slope is that of its value also where a bound ties the variances together."""
    X, residuals = problem()
    likelihood = DenseLikelihood(TWO, X, residuals, memory_limit_bytes=LIMIT)
    wide, tight = (1e-6, 1e6), (0.3, 0.3)
    second, noise = (tight, wide) if held.startswith("variance") else (wide, tight)
    profile = ProfileLikelihood(likelihood, Bounds(wide, wide, noise, ((wide, second),)), Counter(None))
    x = np.log(NUMBERS[2])
    assert profile.at(x).follows == (1 if second == tight else 2)
    assert_close(profile.at(x).slope, slope(lambda x: profile.at(x).log_likelihood, x), relative=1e-6)


def test_limits_of_several_variances_hold_together():
    """Where they tie the weights, too: the profile's slope is then that of what is left."""
    ties = [0, 0, 0]
    for seed in range(12):
        assert_limits_hold(np.random.default_rng(seed), ties)
    assert min(ties) > 0


def assert_limits_hold(rng, ties):
    X, residuals = problem()
    likelihood = DenseLikelihood(THREE, X, residuals, memory_limit_bytes=LIMIT)
    limits = [
        (low, low * factor) for low, factor in zip(np.exp(rng.normal(size=4)), (9, 20, 5, 1), strict=True)
    ]
    first, *others, noise = limits
    wide = (1e-6, 1e6)
    bounds = Bounds(wide, first, noise, tuple((wide, other) for other in others))
    profile = ProfileLikelihood(likelihood, bounds, Counter(None))
    low, high = profile.box[:, 3:]
    x = np.concatenate([np.log(NUMBERS[3][:3]), rng.uniform(low, high)])
    place = profile.at(x)
    ties[len(place.tied)] += 1
    for value, (low, high) in zip(place.parameters, bounds.limits, strict=True):
        assert low * (1.0 - 1e-12) <= value <= high * (1.0 + 1e-12)
    assert_close(place.slope, slope(lambda x: profile.at(x).log_likelihood, x), relative=1e-5)


def test_a_held_variance_and_a_held_noise_are_both_held():
    X, _ = problem()
    truth = cagp.Matern32(0.1, 1.0) + cagp.Matern52(0.6, 4.0)
    root = np.linalg.cholesky(truth(X, X) + 0.1 * np.eye(60))
    y = root @ np.random.default_rng(1).normal(size=(60, 2))
    bounds = {"variance": ((0.01, 100.0), (2.0, 2.0)), "noise_variance": (0.1, 0.1)}
    result = cagp.fit(TWO, X, y, mean=0.0, bounds=bounds)
    one, two = result.prior.kernel.parts
    assert (two.variance, result.prior.noise_variance) == pytest.approx((2.0, 0.1), rel=1e-9)
    assert result.status is cagp.FitStatus.CONVERGED
    # nothing near it is better
    best = np.log([one.lengthscale, two.lengthscale, one.variance])

    def value(free):
        first, second, variance = np.exp(free)
        return textbook(TWO, X, y, (first, second, variance, 2.0, 0.1))

    assert result.log_likelihood == pytest.approx(value(best), rel=1e-9)
    np.testing.assert_allclose(slope(value, best), 0.0, atol=0.1)


def test_a_weight_on_its_limit_is_on_a_bound():
    X, residuals = problem()
    likelihood = DenseLikelihood(TWO, X, residuals, memory_limit_bytes=LIMIT)
    wide = (1e-12, 1e12)
    profile = ProfileLikelihood(likelihood, Bounds(wide, wide, wide, ((wide, wide),)), Counter(None))
    place = profile.at(np.array([-1.0, 0.0, profile.box[0, 2], -1.0]))
    end = uncertainty(profile, place, np.eye(5) * 50.0)
    assert end.at_bound == ("variance_2",)
    assert end.status is cagp.FitStatus.AT_BOUND
    assert np.isnan(end.standard_errors.variance[1])
    assert end.standard_errors.variance[0] > 0.0


def test_starts_of_a_sum_lie_apart_and_hold_the_guess():
    bounds = make_bounds(None, SCALES, Numbering.of(2))
    alone = SimpleNamespace(parameters=(0.5, 4.0, 0.2))
    starts = np.array(make_sum_starts(None, bounds, lambda: alone, starts=3, mixed=False))
    assert starts.shape == (3, 4)
    assert (starts[:, 0] < starts[:, 1]).all()
    assert np.linalg.norm(starts[:, None] - starts, axis=2)[~np.eye(3, dtype=bool)].min() > 0.3
    both = make_sum_starts(None, bounds, lambda: alone, starts=3, mixed=True)
    assert len(both) == 6
    np.testing.assert_allclose(both[1][:2], both[0][:2][::-1])
    guess = {"lengthscale": (0.3, 1.0), "variance": (2.0, 5.0)}
    first, *_ = make_sum_starts(guess, bounds, lambda: alone, starts=1, mixed=False)
    np.testing.assert_allclose(np.exp(first), (0.3, 1.0, 2.5, 0.05))
    # a guess of all numbers is the only start where one is asked for: one kernel alone is not fitted
    (only,) = make_sum_starts(guess | {"noise_variance": 0.1}, bounds, pytest.fail, starts=1, mixed=True)
    np.testing.assert_allclose(np.exp(only), (0.3, 1.0, 2.5, 0.05))
    raised = make_bounds(None, SCALES, Numbering.of(2)).coarser(1.0)
    assert [low for low, _ in raised.lengthscales] == [0.5, 0.5]


def test_parts_of_one_family_are_ordered_and_others_left():
    x = np.log([0.9, 0.2, 3.0, 0.5])
    ordered = Model((cagp.Matern32, cagp.Matern32)).in_order(x)
    np.testing.assert_allclose(np.exp(ordered), (0.2, 0.9, 1.0 / 3.0, 0.5 / 3.0))
    np.testing.assert_array_equal(Model(TWO).in_order(x), x)
    three = np.log([0.9, 0.5, 0.2, 3.0, 4.0, 0.5])
    mixed = Model((cagp.Matern32, cagp.Matern52, cagp.Matern32)).in_order(three)
    np.testing.assert_allclose(np.exp(mixed), (0.2, 0.5, 0.9, 3.0 / 4.0, 1.0 / 4.0, 0.5 / 4.0))
    assert Numbering.of(2).names == (
        "lengthscale_1",
        "lengthscale_2",
        "variance_1",
        "variance_2",
        "noise_variance",
    )


@one_after_another
@pytest.mark.parametrize(
    ("kernel", "settings", "key"),
    [
        ((cagp.Matern32, 3), {}, "kernel-unknown"),
        ((), {}, "kernel-unknown"),
        ((cagp.Matern32,) * 5, {}, "too-many-parts"),
        (TRUTH, {}, "kernel-with-numbers"),
        (
            TWO,
            {"start": {"lengthscale": 0.5}},
            "start",
        ),
        (
            TWO,
            {"start": {"noise_variance": (1.0, 2.0)}},
            "start",
        ),
        (TWO, {"start": {"variance": (1.0, -2.0)}}, "not-positive"),
        (TWO, {"start": {"lengthscale": (0.5, 99.0)}}, "start-outside-bounds"),
        (TWO, {"bounds": {"lengthscale": ((0.1, 1.0),)}}, "bounds"),
        (
            TWO,
            {"bounds": {"lengthscale": ((0.1, 1.0), (1.0, 0.1))}},
            "bounds-reversed",
        ),
    ],
)
def test_what_does_not_fit_a_sum_is_refused(kernel, settings, key):
    with pytest.raises(ArgumentError) as refusal:
        cagp.fit(kernel, GRID, draw(TRUTH, 0.1, seed=0), **settings)
    assert refusal.value.key == key


def test_one_class_in_a_tuple_is_that_class():
    assert Model.of((cagp.Matern12,)) == Model.of(cagp.Matern12)


def test_a_noise_that_began_below_its_bound_begins_there():
    """As one that other points of a field without noise left at theirs; a bound that is given is kept."""
    X = np.random.default_rng(0).uniform(size=(40, 2))
    y = np.sin(3.0 * X[:, 0])
    start = {"noise_variance": 1e-30}
    assert cagp.fit(cagp.Matern32, X, y, start=start, starts=1).log_likelihood is not None
    with pytest.raises(ArgumentError) as refusal:
        cagp.fit(cagp.Matern32, X, y, start=start, bounds={"noise_variance": (1e-6, 1.0)})
    assert refusal.value.key == "start-outside-bounds"
