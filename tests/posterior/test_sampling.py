"""Draws of the prior and of the posterior, on grids and at points: their covariance, exactly and by counting.

A draw is a linear map of white noise. With unit vectors in place of the noise the map itself comes out, and
its covariance is compared without statistics; that real noise is used as meant is then checked with several
seeds, at bounds that a right answer crosses once in 10^6 times.
"""

import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve
from scipy.stats import chi2, norm

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.posterior.sampling import draw_latent

from ..grids import EVERY_CASE, LAYOUTS, case_name, grid_problem
from ..oracle import assert_close
from ..problems import Prescribed

pytestmark = pytest.mark.usefixtures("one_blas_thread")

every_case = pytest.mark.parametrize(("name", "kernel_class", "lengthscale"), EVERY_CASE, ids=case_name)
every_layout = pytest.mark.parametrize("name", LAYOUTS)
seeds = pytest.mark.parametrize("seed", range(4))

DRAWS = 4000
RARE = 1e-6


def draws_of_field(gram, field, generator, *, fields=None):
    """`sample_posterior` for a field (P, Q), in its shape, or (fields, P, Q)."""
    drawn = draw_latent(gram, field.ravel(), generator, draws=fields or 1).T
    return drawn.reshape(field.shape if fields is None else (fields, *field.shape))


def exact_posterior(problem, field):
    """Mean (P, Q) and covariance (n, n) by dense formulas."""
    mean = problem.K @ problem.solve(field.ravel())
    return mean.reshape(field.shape), problem.K - problem.K @ problem.solve(problem.K)


def dense_of(problem):
    """The same points and noise as a dense matrix."""
    return cagp.DenseGram(problem.kernel, problem.points, noise_variance=problem.noise)


GRAMS = {"rings": lambda problem: problem.rings, "dense": dense_of}
every_gram = pytest.mark.parametrize("gram_of", GRAMS.values(), ids=GRAMS)


def unit_fields(n):
    """Draws that are the columns of the linear map from white noise."""
    return {"generator": Prescribed(np.eye(n)), "fields": n}


@every_case
def test_draws_with_noise_have_covariance_g(name, kernel_class, lengthscale):
    problem = grid_problem(name, kernel_class, lengthscale)
    rows = problem.rings.sample(noise=True, **unit_fields(problem.n)).reshape(problem.n, -1)
    assert_close(rows.T @ rows, problem.G, relative=1e-13)


@every_case
def test_draws_without_noise_have_covariance_k(name, kernel_class, lengthscale):
    """Also where K is singular: pole rows, and smooth kernels of long lengthscale."""
    problem = grid_problem(name, kernel_class, lengthscale)
    rows = problem.rings.sample(**unit_fields(problem.n)).reshape(problem.n, -1)
    # the root ends where pivots fall below rounding of a block, n variance 2^-53
    bound = problem.n * 2.0**-51 * np.abs(problem.K).max() * len(problem.layout.latitude)
    assert np.abs(rows.T @ rows - problem.K).max() <= bound


@every_layout
def test_dense_draws_have_covariance_k(name):
    """By eigenvectors: also where K is singular, as in pole rows."""
    problem = grid_problem(name)
    n = problem.n
    columns = dense_of(problem).draw(Prescribed(np.eye(n)), draws=n)
    assert_close(columns @ columns.T, problem.K, relative=1e-13)


@every_gram
@every_layout
def test_draws_of_the_posterior_have_its_mean_and_covariance(name, gram_of):
    """With f = R w of the prior and e of the noise: zero noise gives the mean, unit noise the covariance."""
    problem, n = grid_problem(name), grid_problem(name).n
    gram = gram_of(problem)
    field, zero = problem.field(), np.zeros(grid_problem(name).grid.shape)
    mean, covariance = exact_posterior(problem, field)
    assert_close(draws_of_field(gram, field, Prescribed(zero, zero)), mean, relative=1e-10)
    nothing, units = np.zeros((n, n)), np.eye(n)
    spread = [
        draws_of_field(gram, zero, Prescribed(prior, error), fields=n).reshape(n, n)
        for prior, error in ((units, nothing), (nothing, units))
    ]
    found = sum(rows.T @ rows for rows in spread)
    assert np.abs(found - covariance).max() <= 1e-11 * problem.kernel.variance


def whiten(G, rows):
    """Squared standardised length of every row."""
    return (rows.T * cho_solve(cho_factor(G, lower=True), rows.T)).sum(axis=0)


def assert_covariance(rows, covariance):
    """Every entry of the sample covariance within its standard error, ``(c_ii c_jj + c_ij^2) / T``."""
    count, n = rows.shape
    variance = np.diag(covariance)
    error = np.sqrt((np.multiply.outer(variance, variance) + covariance**2) / count)
    z = (rows.T @ rows / count - covariance) / error
    assert np.abs(z).max() < norm.isf(RARE / (n * (n + 1)))


@seeds
@pytest.mark.parametrize("name", ["poles, odd Q, even P, descending", "irregular, with noise by latitude"])
@pytest.mark.parametrize("noise", [False, True])
def test_random_draws_have_the_covariance(name, noise, seed):
    problem = grid_problem(name)
    covariance = problem.G if noise else problem.K
    fields = problem.rings.sample(np.random.default_rng(seed), noise=noise, fields=DRAWS)
    rows = fields.reshape(DRAWS, -1)
    assert_covariance(rows, covariance)
    z = rows.mean(axis=0) / np.sqrt(np.diag(covariance) / DRAWS)
    assert np.abs(z).max() < norm.isf(RARE / (2 * problem.n))


@seeds
def test_random_draws_are_gaussian_and_independent(seed):
    """Whitened, n T squares add up to chi-squared; a field of a stack says nothing of the next."""
    problem = grid_problem("irregular latitudes")
    rows = problem.rings.sample(np.random.default_rng(seed), noise=True, fields=DRAWS).reshape(DRAWS, -1)
    squares = whiten(problem.G, rows)
    total = problem.n * DRAWS
    assert chi2.ppf(RARE, total) < squares.sum() < chi2.isf(RARE, total)
    # the spread of the squares, 2 n, is that of Gaussian numbers: its relative error is sqrt(2 / T), and a
    # little more for their skewness
    assert squares.var() == pytest.approx(2.0 * problem.n, rel=6.0 * np.sqrt(2.0 / DRAWS))
    following = (rows[:-1] * cho_solve(cho_factor(problem.G, lower=True), rows[1:].T).T).sum()
    assert abs(following) < norm.isf(RARE / 2.0) * np.sqrt(total)


@every_gram
@seeds
def test_random_draws_of_the_posterior_have_its_mean_and_variance(seed, gram_of):
    problem = grid_problem("noise that is not")
    field = problem.rings.sample(np.random.default_rng([seed, 1]), noise=True)
    mean, covariance = exact_posterior(problem, field)
    variance = np.diag(covariance).reshape(field.shape)
    draws = draws_of_field(gram_of(problem), field, np.random.default_rng(seed), fields=DRAWS)
    z = (draws.mean(axis=0) - mean) / np.sqrt(variance / DRAWS)
    assert np.abs(z).max() < norm.isf(RARE / (2 * problem.n))
    squares = ((draws - mean) ** 2 / variance).sum(axis=0)
    share = RARE / (2 * problem.n)
    assert chi2.ppf(share, DRAWS) < squares.min()
    assert squares.max() < chi2.isf(share, DRAWS)
    assert_covariance((draws - mean).reshape(DRAWS, -1), covariance)


@seeds
def test_random_draws_at_points_are_those_of_their_posterior(seed):
    """A cloud in the plane, noise by point: mean, variances and all covariances, by their standard errors."""
    rng = np.random.default_rng([seed, 2])
    X, noise = rng.uniform(size=(60, 2)), rng.uniform(0.05, 0.5, size=60)
    gram = cagp.DenseGram(cagp.Matern52(0.4, variance=2.0), X, noise_variance=noise)
    K, b = gram.kernel(X, X), rng.normal(size=60)
    factor = cho_factor(K + np.diag(noise), lower=True)
    mean, covariance = K @ cho_solve(factor, b), K - K @ cho_solve(factor, K)
    rows = draw_latent(gram, b, np.random.default_rng(seed), draws=DRAWS).T
    z = (rows.mean(axis=0) - mean) / np.sqrt(np.diag(covariance) / DRAWS)
    assert np.abs(z).max() < norm.isf(RARE / (2 * 60))
    assert_covariance(rows - mean, covariance)


@pytest.mark.parametrize("name", ["poles, even Q", "noise that is not", "a pole"])
def test_copies_of_a_pole_agree_without_noise_and_differ_with_it(name):
    """Up to the root of rounding: a variance of 1e-16 between copies is a difference of 1e-8."""
    problem = grid_problem(name)
    field = problem.field()
    latent = [
        problem.rings.sample(np.random.default_rng(0)),
        draws_of_field(problem.rings, field, np.random.default_rng(0)),
        draws_of_field(dense_of(problem), field, np.random.default_rng(0)),
    ]
    noisy = problem.rings.sample(np.random.default_rng(0), noise=True)
    for row in np.flatnonzero(np.abs(problem.layout.latitude) == 90.0):
        for draw in latent:
            assert np.ptp(draw[row]) < 1e-6
            assert np.abs(draw[row]).max() > 1e-3
        assert np.ptp(noisy[row]) > 0.1 * np.sqrt(problem.layout.noise[row])


@pytest.mark.parametrize("noise", [False, True])
def test_equal_states_of_the_generator_give_equal_draws(noise):
    rings = grid_problem().rings
    draws = [rings.sample(np.random.default_rng(5), noise=noise, fields=3) for _ in range(2)]
    np.testing.assert_array_equal(*draws)
    generator = np.random.default_rng(5)
    first, second = rings.sample(generator, noise=noise), rings.sample(generator, noise=noise)
    assert np.abs(first - second).max() > 0.1
    # one after the other or as a stack: the same draws, up to the order of sums
    np.testing.assert_allclose(np.stack([first, second]), draws[0][:2], rtol=0.0, atol=1e-13)


@every_gram
def test_equal_states_of_the_generator_give_equal_draws_of_the_posterior(gram_of):
    problem = grid_problem()
    gram = gram_of(problem)
    draws = [draw_latent(gram, problem.field().ravel(), np.random.default_rng(5)) for _ in range(2)]
    np.testing.assert_array_equal(*draws)


@every_gram
def test_shapes(gram_of):
    problem, generator = grid_problem(), np.random.default_rng(0)
    P, Q = problem.grid.shape
    assert problem.rings.sample(generator).shape == (P, Q)
    assert problem.rings.sample(generator, fields=1).shape == (1, P, Q)
    assert problem.rings.sample(generator, fields=3).shape == (3, P, Q)
    gram = gram_of(problem)
    assert gram.draw(generator, draws=3).shape == (P * Q, 3)
    assert draw_latent(gram, np.zeros(P * Q), generator).shape == (P * Q, 1)
    assert draw_latent(gram, np.zeros(P * Q), generator, draws=3).shape == (P * Q, 3)


@every_gram
@pytest.mark.parametrize(
    "generator", [np.random.RandomState(0), np.random, 0, None], ids=["old", "module", "seed", "none"]
)
def test_what_is_no_generator_is_refused(generator, gram_of):
    problem = grid_problem()
    text = rf"generator is a {type(generator).__name__}; expected numpy.random.default_rng\(seed\)"
    with pytest.raises(ArgumentError, match=text):
        problem.rings.sample(generator)
    with pytest.raises(ArgumentError, match=text):
        draw_latent(gram_of(problem), problem.field().ravel(), generator)


@every_gram
@pytest.mark.parametrize("fields", [0, -1, 2.0, "3", True])
def test_numbers_of_draws_that_are_none_are_refused(fields, gram_of):
    problem, generator = grid_problem(), np.random.default_rng(0)
    with pytest.raises(ArgumentError, match=r"fields is .*; expected an integer of at least 1"):
        problem.rings.sample(generator, fields=fields)
    with pytest.raises(ArgumentError, match=r"draws is .*; expected an integer of at least 1"):
        draw_latent(gram_of(problem), problem.field().ravel(), generator, draws=fields)


@every_gram
@pytest.mark.parametrize("shape", [(12, 9), (1, 9, 12), (9, 12), (107,), (108, 1), ()])
def test_residuals_that_are_not_one_for_each_point_are_refused(shape, gram_of):
    with pytest.raises(ArgumentError, match=r"residuals has shape \(.*\); expected \(108,\)"):
        draw_latent(gram_of(grid_problem()), np.zeros(shape), np.random.default_rng(0))


@every_gram
def test_missing_values_to_condition_on_are_counted_once(gram_of):
    field = grid_problem().field()
    field[2, 3] = np.nan
    with pytest.raises(ArgumentError, match=r"residuals holds NaN or infinite values \(1 of"):
        draw_latent(gram_of(grid_problem()), field.ravel(), np.random.default_rng(0), draws=3)


def test_a_draw_of_the_posterior_is_near_what_was_observed():
    rings = cagp.RingGram(
        cagp.LatLonGrid(np.linspace(-90.0, 90.0, 19), 36), cagp.Matern32(0.5, 4.0), noise_variance=0.01
    )
    rng = np.random.default_rng(0)
    truth = rings.sample(rng)
    observed = truth + 0.1 * rng.standard_normal(truth.shape)
    near = draws_of_field(rings, observed, rng) - truth
    assert np.abs(near).mean() < 0.2
    assert np.abs(rings.sample(rng) - truth).mean() > 1.0
