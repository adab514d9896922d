"""Sharp calibrated GPs: slopes against differences, what a split guarantees, every way to the variances."""

from itertools import product

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.calibration.recalibration.order_statistics import q_lin
from cagp_dist.calibration.recalibration.sharp import Sharp, table_with_tails
from cagp_dist.calibration.recalibration.sharp_search import Errors, Search
from cagp_dist.calibration.recalibration.stretched import DenseModel, FieldByField, SolvedModel, Stretch
from cagp_dist.errors import ArgumentError, NumericalError
from cagp_dist.predictive import Gaussian

from ..joined import one_after_another

LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)


def _problem(seed: int, n: int = 30, others: int = 60):
    """A rough field in one half of a square, noise that grows along it, and a prior that knows neither."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n + others, 2))
    y = 2.0 * np.sin(9.0 * X[:, 0]) * (X[:, 1] > 0.5) + (0.1 + X[:, 0]) * 0.3 * rng.standard_normal(
        n + others
    )
    prior = cagp.Prior(cagp.Matern32(0.2, 1.5), noise_variance=0.02)
    found = cagp.condition(prior, X[:n], y[:n], X[n:], solver=cagp.Cholesky())
    return prior, X[:n], y[:n], X[n:], y[n:], Gaussian(found.mean, np.sqrt(found.variance + 0.02))


@one_after_another
@pytest.mark.parametrize("family", [cagp.Matern12, cagp.Matern32, cagp.Matern52, cagp.SquaredExponential])
@pytest.mark.parametrize(
    ("lengthscale", "own"), [(0.3, False), (0.3, True), ((0.2, 0.9), True), ((0.2, 0.9), False)]
)
def test_dense_slopes_are_those_of_differences_of_solves(family, lengthscale, own: bool) -> None:
    rng = np.random.default_rng(0)
    X, targets = rng.uniform(size=(40, 2)), rng.uniform(size=(9, 2))
    prior = cagp.Prior(family(lengthscale, 2.0), noise_variance=0.1 + rng.uniform(size=40))
    stretch = Stretch(2 if own else None, variance=True)
    x = 0.3 * rng.standard_normal(stretch.numbers)
    dense = DenseModel(prior, X).at(targets, x, stretch)
    solved = SolvedModel(prior, X, np.zeros(40), cagp.Cholesky()).at(targets, x, stretch)
    np.testing.assert_allclose(dense.variance, solved.variance, rtol=1e-10)
    for weights in (rng.standard_normal(9), rng.uniform(size=9), np.eye(9)[4], np.zeros(9)):
        np.testing.assert_allclose(dense.slope_of_sum(weights), solved.slope_of_sum(weights), atol=2e-5)


@pytest.mark.parametrize("anisotropic", [False, True])
def test_slopes_go_through_the_active_order_statistics(anisotropic: bool) -> None:
    """Slopes of beta and of the objective (math 12) against central differences, at every level."""
    prior, X, _, targets, values, distribution = _problem(1)
    stretch = Stretch(2 if anisotropic else None)
    known = Errors(values - distribution.mean, np.full(60, 0.02), np.arange(60))
    search = Search(DenseModel(prior, X), targets, stretch, known, reach=3.0)
    x = np.array([0.21, -0.4])[: stretch.numbers]
    latent = search.visit(x).latent
    for level in (0.02, 0.11, 0.5, 0.87, 0.97):
        width = search.visit(x).width(level)
        assert width.beta == pytest.approx(q_lin(level, known.errors / np.sqrt(0.02 + latent)), rel=1e-12)
        assert width.objective == pytest.approx(width.beta**2 * np.sum(0.02 + latent), rel=1e-12)
        for number, step in enumerate(1e-5 * np.eye(x.size)):
            ahead, behind = (search.visit(x + sign * step).at(level) for sign in (1.0, -1.0))
            slopes = (np.array(ahead) - np.array(behind)) / 2e-5
            found = width.beta_slope[number], width.slope[number]
            np.testing.assert_allclose(found, slopes, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("anisotropic", [False, True])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_levels_are_ordered_and_no_wider_than_without_a_search(anisotropic: bool, seed: int) -> None:
    prior, X, _, targets, values, distribution = _problem(seed)
    levels = tuple(np.linspace(0.04, 0.96, 24))
    sharp = Sharp(DenseModel(prior, X), levels, anisotropic=anisotropic, split="two-way")
    fitted = sharp.fit(distribution, values, targets)
    assert np.all(np.diff(fitted.beta) >= -1e-12)
    upper, lower = fitted.stretches[fitted.beta > 0.0], fitted.stretches[fitted.beta < 0.0]
    assert np.all(np.diff(upper, axis=0) >= 0.0)
    assert np.all(np.diff(lower, axis=0) <= 0.0)
    quantiles = fitted.quantiles(distribution, targets)
    if not anisotropic:
        assert np.all(np.diff(quantiles, axis=0) >= -1e-12)
    # eq. 5: as many calibration points below a quantile as its level says, rounded down
    below = np.count_nonzero(values <= quantiles + 1e-12, axis=1)
    np.testing.assert_array_equal(below, np.floor(np.array(levels) * 61 + 1e-9))
    plain = distribution.mean + distribution.std * q_lin(levels, distribution.normal_score(values))[:, None]
    ours, theirs = (np.sum((each - distribution.mean) ** 2, axis=1) for each in (quantiles, plain))
    assert ours[0] <= theirs[0] * (1.0 + 1e-12)
    assert ours[-1] <= theirs[-1] * (1.0 + 1e-12)
    assert ours.sum() < 0.95 * theirs.sum()


@pytest.mark.parametrize("way", [{}, {"anisotropic": True}, {"variance": True}, {"factors": 7}])
@pytest.mark.parametrize("split", ["two-way", "three-way"])
def test_no_level_is_worse_than_with_the_unchanged_prior(split: str, way: dict) -> None:
    """Eq. 7 at the points that lengthscales are chosen with: of every level, in several draws."""
    levels, narrower = np.linspace(0.05, 0.95, 13), 0
    for seed in range(2):
        prior, X, _, targets, values, distribution = _problem(seed)
        model = DenseModel(prior, X)
        sharp = Sharp(model, tuple(levels), split=split, starts=2, steps=2, **way)
        fitted = sharp.fit(distribution, values, targets)
        chosen = sharp._parts(targets)[0]
        errors = (values - distribution.mean)[chosen]

        def objective(level: float, x: np.ndarray) -> float:
            squares = 0.02 + model.at(targets[chosen], x, fitted.stretch).variance  # noqa: B023
            return q_lin(level, errors / np.sqrt(squares)) ** 2 * squares.sum()  # noqa: B023

        plain = np.zeros(fitted.stretch.numbers)
        usual = np.array([objective(level, plain) for level in levels])
        ours = np.array([objective(level, x) for level, x in zip(levels, fitted.stretches, strict=True)])
        assert np.all(ours <= usual * (1.0 + 1e-9))
        narrower += np.count_nonzero(ours < 0.99 * usual)
    assert narrower > 3  # of 26


def _shares(simulations: range, *, new: int, count: int) -> np.ndarray:
    """Share of new values below each quantile of a three-way split with ``count`` points for beta."""
    shares = []
    for seed in simulations:
        prior, X, _, others, values, distribution = _problem(seed, n=15, others=2 * count + new)
        way = ({"anisotropic": True}, {"factors": 7}, {"anisotropic": True}, {})[seed % 4]
        sharp = Sharp(DenseModel(prior, X), LEVELS, starts=2, steps=2, **way)
        fitted = sharp.fit(distribution[:-new], values[:-new], others[:-new])
        shares.append(np.mean(values[-new:] <= fitted.quantiles(distribution[-new:], others[-new:]), axis=1))
    return np.array(shares)


def _guarantee(start: int, simulations: int) -> None:
    """Mean shares within 1 / (N + 1) of their levels, and 4 standard errors.

    Given the calibration points a share has the distribution Beta(l, N + 1 - l) and ``new`` draws are made of
    it.
    """
    new, count = 50, 19
    shares = _shares(range(start, start + simulations), new=new, count=count).mean(axis=0)
    for level, share in zip(LEVELS, shares, strict=True):
        own = level * (1.0 - level) / (count + 2)
        error = np.sqrt((own + (level * (1.0 - level) - own) / new) / simulations)
        assert abs(share - level) < 4.0 * error  # levels are multiples of 1 / (N + 1) here: exact
        assert abs(share - level) < 1.0 / (count + 1) + 4.0 * error


@pytest.mark.parametrize("start", [0, pytest.param(5000, marks=pytest.mark.exhaustive)])
def test_three_way_split_keeps_the_guarantee(start: int) -> None:
    _guarantee(start, 40)


@pytest.mark.exhaustive
@pytest.mark.parametrize("start", [0, 5000])
def test_three_way_split_keeps_the_guarantee_over_500_simulations(start: int) -> None:
    _guarantee(start, 500)


def test_solvers_give_what_dense_matrices_give() -> None:
    """The same search through `Cholesky` of `condition`; sweeps that stop early have their own variances."""
    prior, X, y, targets, values, distribution = _problem(2)
    settings = {"levels": LEVELS, "split": "two-way", "steps": 2, "starts": 2}
    dense = Sharp(DenseModel(prior, X), **settings).fit(distribution, values, targets)
    solved = Sharp(SolvedModel(prior, X, y, cagp.Cholesky()), **settings).fit(distribution, values, targets)
    np.testing.assert_allclose(solved.stretches, dense.stretches, atol=1e-3)
    np.testing.assert_allclose(
        solved.quantiles(distribution, targets), dense.quantiles(distribution, targets), atol=1e-4
    )

    solver = cagp.BlockGaussSeidel(2, block_size=8)
    early = cagp.condition(prior, X, y, targets, solver=solver)
    stated = Gaussian(early.mean, np.sqrt(early.variance + 0.02))
    fitted = Sharp(SolvedModel(prior, X, y, solver), **settings).fit(stated, values, targets)
    inside = np.mean(values <= fitted.quantiles(stated, targets) + 1e-12, axis=1)
    np.testing.assert_allclose(inside, np.floor(np.array(LEVELS) * 61 + 1e-9) / 60)
    total = prior.kernel + cagp.Matern32(0.9, 0.5)
    summed = SolvedModel(cagp.Prior(total, 0.02), X, y, cagp.Cholesky())
    halved = summed.at(targets, np.array([np.log(2.0)]), Stretch()).variance
    oracle = cagp.condition(
        cagp.Prior(cagp.Matern32(0.1, 1.5) + cagp.Matern32(0.45, 0.5), 0.02),
        X,
        y,
        targets,
        solver=cagp.Cholesky(),
    )
    np.testing.assert_allclose(halved, oracle.variance, rtol=1e-10)


def test_grids_are_solved_by_rings() -> None:
    grid = cagp.LatLonGrid(np.linspace(-75.0, 75.0, 6), 12)
    prior = cagp.Prior(cagp.Matern32(0.5, 1.0), 0.05)
    rng = np.random.default_rng(0)
    field = rng.standard_normal((6, 12))
    targets = cagp.unit_sphere(rng.uniform(-60.0, 60.0, 8), rng.uniform(0.0, 360.0, 8))
    x, weights = np.array([0.3]), rng.uniform(size=8)
    rings = SolvedModel(prior, grid, field, cagp.Rings()).at(targets, x, Stretch())
    dense = DenseModel(prior, grid.points).at(targets, x, Stretch())
    np.testing.assert_allclose(rings.variance, dense.variance, rtol=1e-9)
    np.testing.assert_allclose(rings.slope_of_sum(weights), dense.slope_of_sum(weights), rtol=1e-5)


def test_several_fields_and_gaps_share_the_stretches() -> None:
    """Twice the same field is the same distribution, and values that are missing count for nothing."""
    prior, X, _, targets, values, distribution = _problem(3)
    sharp = Sharp(DenseModel(prior, X), LEVELS, split="two-way")
    twice = Gaussian(
        np.stack([distribution.mean, distribution.mean]), np.stack([distribution.std, distribution.std])
    )
    gaps = np.where(np.arange(60) < 20, np.nan, values)
    for seen in (values, gaps):
        there = ~np.isnan(seen)
        one = sharp.fit(distribution[there], values[there], targets[there])
        both = sharp.fit(distribution, seen, targets)
        np.testing.assert_allclose(both.beta, one.beta, rtol=1e-9)
        table = sharp.fit(twice, np.stack([seen, np.full(60, np.nan)]), targets)(twice, targets)
        np.testing.assert_allclose(table.values[:, 0], both(distribution, targets).values, rtol=1e-9)
        np.testing.assert_array_equal(table.values[:, 0], table.values[:, 1])


def test_fields_with_gaps_of_their_own_have_variances_of_their_own() -> None:
    """Against a model of each field by itself, and against dense matrices; slopes are sums over fields."""
    prior, X, y, targets, values, _ = _problem(3)
    gaps = np.stack([y, np.where(np.arange(30) < 9, np.nan, y)], axis=1)
    found = cagp.condition(prior, X, gaps, targets, solver=cagp.Cholesky())
    distribution, seen = Gaussian(found.mean.T, np.sqrt(found.variance.T + 0.02)), np.stack([values, -values])
    seen[0, ::7] = np.nan
    both = SolvedModel(prior, X, gaps, cagp.Cholesky())
    parts = DenseModel(prior, X), DenseModel(prior, X[9:])
    by_field = FieldByField(prior, parts)
    x, weights = np.array([0.4]), np.random.default_rng(0).uniform(size=(2, 60))
    one, other = (model.at(targets, x, Stretch()) for model in (both, by_field))
    np.testing.assert_allclose(one.variance, other.variance, rtol=1e-9)
    np.testing.assert_array_equal(other.variance[1], parts[1].at(targets, x, Stretch()).variance)
    slopes = [part.at(targets, x, Stretch()).slope_of_sum(w) for part, w in zip(parts, weights, strict=True)]
    np.testing.assert_allclose(other.slope_of_sum(weights.ravel()), sum(slopes), rtol=1e-12)
    np.testing.assert_allclose(one.slope_of_sum(weights.ravel()), sum(slopes), rtol=1e-4)
    fitted = Sharp(both, LEVELS, split="two-way", factors=5).fit(distribution, seen, targets)
    for level, beta, stretch in zip(LEVELS, fitted.beta, fitted.stretches, strict=True):
        std = np.sqrt(0.02 + by_field.at(targets, stretch, Stretch()).variance)
        scores = ((seen - distribution.mean) / std)[~np.isnan(seen)]
        assert beta == pytest.approx(q_lin(level, scores), rel=1e-8)
    table = fitted(distribution[:, :20], targets[:20])
    np.testing.assert_allclose(
        table.values[1:-1], fitted.quantiles(distribution, targets)[:, :, :20], rtol=1e-9
    )


def test_factors_are_solved_for_one_by_one_and_the_best_order_of_them_is_taken() -> None:
    """Against all sequences that are ordered, as their betas are, and nowhere worse than the prior."""
    prior, X, _, targets, values, distribution = _problem(2)
    model, solved = DenseModel(prior, X), []
    fitted = Sharp(model, LEVELS, split="two-way", factors=9, reach=16.0).fit(
        distribution, values, targets, beside=targets[:7], report=solved.append
    )
    assert fitted.evaluations == 9
    assert solved == list(range(1, 9 + len(fitted.different) + 1))
    factors, errors = 2.0 ** np.arange(-4, 5), values - distribution.mean
    squares = []
    for factor in factors:
        of_factor = cagp.Prior(cagp.Matern32(0.2 / factor, 1.5), noise_variance=0.02)
        found = cagp.condition(of_factor, X, np.zeros(30), targets, solver=cagp.Cholesky())
        squares.append(0.02 + found.variance)
    beta = np.array([[q_lin(level, errors / np.sqrt(each)) for each in squares] for level in LEVELS])
    widths = beta**2 * np.sum(squares, axis=1)
    shares = widths / widths[:, [4]]
    upper = 2 if beta[2, 4] > 0.0 else 3  # the median goes with the side that the unchanged prior has it on
    for rows, side in ((np.arange(upper, 5), 1.0), (np.arange(upper)[::-1], -1.0)):
        total = {}
        for chosen in map(list, product(range(9), repeat=rows.size)):
            sizes, share = side * beta[rows, chosen], shares[rows, chosen]
            if chosen == sorted(chosen) and np.all(np.diff(sizes, prepend=0.0) >= 0.0) and share.max() <= 1.0:
                total[tuple(chosen)] = share.sum()
        best = min(total, key=total.__getitem__)
        np.testing.assert_allclose(np.exp(fitted.stretches[rows, 0]), factors[list(best)])
    for x, beside in zip(fitted.different, fitted.beside, strict=True):
        np.testing.assert_allclose(beside, model.at(targets, x, Stretch()).variance[:7], rtol=1e-9)
    std = np.sqrt(0.02 + fitted.beside)
    table = fitted.with_std(distribution.mean[:7], std)
    np.testing.assert_allclose(table.values, fitted(distribution[:7], targets[:7]).values, rtol=1e-9)


def test_tails_are_normal_about_the_centre_and_never_without_a_width() -> None:
    """Quantiles of a normal distribution give it back; two outermost ones that nearly agree do not end it."""
    distribution = Gaussian(np.array([1.0, -2.0]), np.array([0.5, 3.0]))
    levels = np.array([0.05, 0.1, 0.5, 0.9, 0.95])
    table = table_with_tails(levels, distribution.quantile(levels), distribution.mean)
    for level in (1e-6, 0.01, 0.999):
        np.testing.assert_allclose(table.quantile(level), distribution.quantile(level), rtol=1e-9)
    close = distribution.quantile(levels)
    close[-2] = close[-1] - 1e-9
    table = table_with_tails(levels, close, distribution.mean)
    np.testing.assert_allclose(table.quantile(0.999), distribution.quantile(0.999), rtol=1e-9)
    shifted = table_with_tails(levels, distribution.quantile(levels), distribution.mean + 40.0)
    np.testing.assert_allclose(shifted.quantile(0.999), distribution.quantile(0.999), rtol=1e-9)


def test_levels_between_are_interpolated_with_a_node_where_beta_is_zero() -> None:
    prior, X, _, targets, values, distribution = _problem(4)
    fitted = Sharp(DenseModel(prior, X), (0.1, 0.4, 0.6, 0.9), split="two-way").fit(
        distribution, values, targets
    )
    again = fitted.interpolated(fitted.levels)
    np.testing.assert_allclose(
        again.quantiles(distribution, targets), fitted.quantiles(distribution, targets), rtol=1e-9
    )
    half = fitted.interpolated([0.25])
    assert half.beta[0] == pytest.approx(0.5 * (fitted.beta[0] + fitted.beta[1]))
    np.testing.assert_allclose(np.exp(half.stretches[0]), np.exp(fitted.stretches[:2]).mean(axis=0))
    assert fitted.beta[1] < 0.0 < fitted.beta[2]
    node = 0.4 + 0.2 * fitted.beta[1] / (fitted.beta[1] - fitted.beta[2])
    zero = fitted.interpolated([node])
    assert zero.beta[0] == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(zero.stretches[0], fitted.stretches[1:3].min(axis=0))
    with pytest.raises(ArgumentError) as refusal:
        fitted.interpolated([0.05])
    assert refusal.value.key == "levels"


@one_after_another
@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"model": None}, "model-missing"),
        ({"levels": (0.01, 0.5)}, "few-errors"),
        ({"levels": (0.01, 0.5), "split": "two-way"}, "few-errors"),
        ({"levels": (0.5, 0.3)}, "levels"),
        ({"split": "four-way"}, "split"),
        ({"share": 1.0}, "out-of-range"),
        ({"reach": 0.5}, "out-of-range"),
        ({"factors": 4}, "factors"),
        ({"factors": 5, "anisotropic": True}, "factors"),
    ],
)
def test_wrong_settings_are_refused(change: dict, key: str) -> None:
    prior, X, _, targets, values, distribution = _problem(0)
    with pytest.raises(ArgumentError) as refusal:
        Sharp(**({"model": DenseModel(prior, X), "levels": LEVELS} | change)).fit(
            distribution, values, targets
        )
    assert refusal.value.key == key


def test_wrong_problems_are_refused() -> None:
    prior, X, y, targets, values, distribution = _problem(0)
    sharp = Sharp(DenseModel(prior, X), LEVELS)
    with pytest.raises(ArgumentError) as refusal:
        sharp.fit(Gaussian(distribution.mean, 0.1 * distribution.std), values, targets)
    assert refusal.value.key == "predictive-below-latent"
    with pytest.raises(ArgumentError) as refusal:
        sharp.fit(distribution, values, targets[:5])
    assert refusal.value.key == "shapes"
    with pytest.raises(ArgumentError) as refusal:
        sharp.fit(distribution, distribution.mean, targets)
    assert refusal.value.key == "constant"
    with pytest.raises(ArgumentError) as refusal:
        DenseModel(cagp.Prior(prior.kernel + prior.kernel, 0.1), X)
    assert refusal.value.key == "kernel-sum"
    singular = DenseModel(cagp.Prior(cagp.SquaredExponential(50.0, 1.0), 1e-18), X)
    with pytest.raises(NumericalError) as refusal:
        singular.at(targets, np.zeros(1), Stretch()).variance  # noqa: B018
    assert refusal.value.key == "not-positive-definite"
    gaps = np.stack([y, np.where(np.arange(30) < 3, np.nan, y)], axis=1)
    twice = np.stack([values, values, values])
    with pytest.raises(ArgumentError) as refusal:
        Sharp(SolvedModel(prior, X, gaps, cagp.Cholesky()), LEVELS).fit(
            Gaussian(twice, np.stack([distribution.std] * 3)), twice + 0.1 * twice**2 + 0.1, targets
        )
    assert refusal.value.key == "shapes"
