"""Draws of the prior on grids: their covariance, exactly and by counting.

A draw is a linear map of white noise. With unit vectors in place of the noise the map itself comes out, and
its covariance is compared without statistics; that real noise is used as meant is then checked with several
seeds, at bounds that a right answer crosses once in 10^6 times.
"""

import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve
from scipy.stats import chi2, norm

from cagp_dist.errors import ArgumentError

from ..grids import EVERY_CASE, case_name, grid_problem
from ..joined import one_after_another
from ..oracle import assert_close
from ..problems import Prescribed

pytestmark = pytest.mark.usefixtures("one_blas_thread")

every_case = pytest.mark.parametrize(("name", "kernel_class", "lengthscale"), EVERY_CASE, ids=case_name)
seeds = pytest.mark.parametrize("seed", range(4))

DRAWS = 4000
RARE = 1e-6


def unit_fields(n):
    """Draws that are the columns of the linear map from white noise."""
    return {"generator": Prescribed(np.eye(n)), "fields": n}


@one_after_another
@every_case
def test_draws_with_noise_have_covariance_g(name, kernel_class, lengthscale):
    problem = grid_problem(name, kernel_class, lengthscale)
    rows = problem.rings.sample(noise=True, **unit_fields(problem.n)).reshape(problem.n, -1)
    assert_close(rows.T @ rows, problem.G, relative=1e-13)


@one_after_another
@every_case
def test_draws_without_noise_have_covariance_k(name, kernel_class, lengthscale):
    """Also where K is singular: pole rows, and smooth kernels of long lengthscale."""
    problem = grid_problem(name, kernel_class, lengthscale)
    rows = problem.rings.sample(**unit_fields(problem.n)).reshape(problem.n, -1)
    # the root ends where pivots fall below rounding of a block, n variance 2^-53
    bound = problem.n * 2.0**-51 * np.abs(problem.K).max() * len(problem.layout.latitude)
    assert np.abs(rows.T @ rows - problem.K).max() <= bound


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


@one_after_another
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


@pytest.mark.parametrize("name", ["poles, even Q", "noise that is not", "a pole"])
def test_copies_of_a_pole_agree_without_noise_and_differ_with_it(name):
    """Up to the root of rounding: a variance of 1e-16 between copies is a difference of 1e-8."""
    problem = grid_problem(name)
    latent = problem.rings.sample(np.random.default_rng(0))
    noisy = problem.rings.sample(np.random.default_rng(0), noise=True)
    for row in np.flatnonzero(np.abs(problem.layout.latitude) == 90.0):
        assert np.ptp(latent[row]) < 1e-6
        assert np.abs(latent[row]).max() > 1e-3
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


def test_shapes():
    problem, generator = grid_problem(), np.random.default_rng(0)
    P, Q = problem.grid.shape
    assert problem.rings.sample(generator).shape == (P, Q)
    assert problem.rings.sample(generator, fields=1).shape == (1, P, Q)
    assert problem.rings.sample(generator, fields=3).shape == (3, P, Q)


@pytest.mark.parametrize(
    "generator", [np.random.RandomState(0), np.random, 0, None], ids=["old", "module", "seed", "none"]
)
def test_what_is_no_generator_is_refused(generator):
    problem = grid_problem()
    text = rf"generator is a {type(generator).__name__}; expected numpy.random.default_rng\(seed\)"
    with pytest.raises(ArgumentError, match=text):
        problem.rings.sample(generator)


@one_after_another
@pytest.mark.parametrize("fields", [0, -1, 2.0, "3", True])
def test_numbers_of_draws_that_are_none_are_refused(fields):
    problem, generator = grid_problem(), np.random.default_rng(0)
    with pytest.raises(ArgumentError) as refusal:
        problem.rings.sample(generator, fields=fields)
    assert refusal.value.key == "no-count"
