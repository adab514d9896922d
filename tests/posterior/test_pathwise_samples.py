"""Samples from solvers that have not converged: distribution, ways to draw the prior, kinds of targets, "
"executors.

What the covariance of samples is, exactly, is checked for every solver by `tests.conformance` (T7). Here real
random numbers are used, at bounds that a right answer crosses once in 10^5 times.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom, chi2, norm

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, BudgetError, NumericalError
from cagp_dist.gram import neighbourhoods
from cagp_dist.posterior import sampling
from cagp_dist.posterior.fourier import draw_spectra
from cagp_dist.posterior.prior_draws import CovarianceDraws, FactorDraws, GridDraws, WaveDraws, prior_draws
from cagp_dist.posterior.problem import Problems, demand_of, patterns
from cagp_dist.posterior.sampling import Sampler, draw_groups
from cagp_dist.runtime import SerialExecutor, ThreadExecutor, open_executor

from ..oracle import KERNELS, assert_close, kernel_matrix, short_and_long
from ..problems import Prescribed, regression_problem, unit_noise

pytestmark = pytest.mark.usefixtures("one_blas_thread")

RARE = 1e-5
DRAWS = 1000
BLOCKS = cagp.BlockGaussSeidel(3, block_size=70)


def sampled(problem, solver, seed=0, *, samples=DRAWS, **settings):
    """`sample_posterior` of a problem."""
    given = {"solver": solver, "samples": samples, "generator": np.random.default_rng(seed), **settings}
    return cagp.sample_posterior(problem.prior, problem.X, problem.y, problem.X_test, **given)


def sampled_by_waves(problem, solver, seed, *, samples=DRAWS):
    """Errors (samples, q) with random waves where `sample_posterior` would draw exactly."""
    executor = SerialExecutor()
    (part,) = patterns(problem.X, problem.y)
    made = Problems(
        problem.prior,
        problem.X_test,
        full_covariance=False,
        executor=executor,
        memory_limit_bytes=2**30,
    ).of(part)
    waves = WaveDraws(problem.prior.kernel, problem.X, problem.X_test, executor)
    sampler = Sampler(made, solver, waves, demand_of(made, executor, 2**30), executor)
    groups = draw_groups(samples, points=len(problem.X) + len(problem.X_test))
    plans = sampler.plans(groups)
    generator = np.random.default_rng(seed)
    found = sampler.groups(generator, groups, plans, done=lambda group, iteration: None)
    return np.concatenate([errors for _, errors, *_ in found], axis=1).T


def assert_law(errors, covariance, *, excess=0.0):
    """Mean zero, variances, and the joint distribution: each within what chance allows.

    A mean of N errors has the standard error ``sqrt(k / N)``, a mean of squares ``k sqrt((2 + excess) / N)``,
    and whitened squares, chi-squared with q degrees of freedom each, add up to N q with the variance
    ``2 N q`` (and the excess of waves, which goes with all q of a draw together).
    """
    count, q = errors.shape
    variance = np.diag(covariance)
    z = errors.mean(axis=0) / np.sqrt(variance / count)
    assert np.abs(z).max() < norm.isf(RARE / (2 * q))
    ratio = (errors**2).mean(axis=0) / variance
    assert np.abs(ratio - 1.0).max() < norm.isf(RARE / (2 * q)) * np.sqrt((2.0 + excess) / count)
    whitened = (errors.T * np.linalg.solve(covariance, errors.T)).sum()
    spread = np.sqrt(count * q * (2.0 + excess))
    assert abs(whitened - count * q) < norm.isf(RARE / 2.0) * spread


@pytest.mark.parametrize(("room", "searches"), [(0, 3.0), (10_000, 2.0), (2**30, 1.0)])
def test_groups_of_draws_share_one_search_for_neighbours_where_it_fits(room, searches, monkeypatch):
    """The same bits as with a search for each; half of it is for the nodes of a region, which take less."""
    problem, sizes, searched = regression_problem(300, q=60), [], []
    weights = np.column_stack([np.eye(60), np.full(60, 1.0 / 60.0)])
    problem = replace(problem, X_test=cagp.LinearFunctionals(problem.X_test, weights))
    monkeypatch.setattr(sampling, "COLUMN_GROUP", 50)

    def draws():
        return sampled(problem, cagp.Neighbours(20, coarse=8), samples=130, executor=SerialExecutor())

    def counted(*arguments, original=neighbourhoods.groups):
        searched.append(1)
        return original(*arguments)

    def search(room_bytes, original=sampling.NeighbourSearch):
        sizes.append(room_bytes)
        return original(room)

    monkeypatch.setattr(neighbourhoods, "groups", counted)
    expected = draws()
    once = len(searched)
    monkeypatch.setattr(sampling, "NeighbourSearch", search)
    np.testing.assert_array_equal(draws(), expected)
    assert len(searched) - once == searches * once
    assert sizes[0] > 2**20, "where there is as much memory as here, all of it is kept"


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("solver", [cagp.GaussSeidel, cagp.Jacobi], ids=lambda solver: solver.__name__)
@pytest.mark.parametrize("iterations", [1, 3, pytest.param(10, marks=pytest.mark.exhaustive)])
def test_samples_have_the_mean_and_the_covariance_of_the_adjoint_pass_t7(solver, iterations, seed):
    problem = regression_problem(150, q=30, seed=seed)
    posterior = problem.condition(solver(iterations))
    assert_law(sampled(problem, solver(iterations), seed) - posterior.mean, posterior.covariance)
    errors = sampled_by_waves(problem, solver(iterations), seed)
    assert_law(errors, posterior.covariance, excess=0.25)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kernel_class", KERNELS, ids=lambda kernel: kernel.__name__)
@pytest.mark.parametrize("p", [1, 3])
def test_waves_have_the_covariance_of_the_kernel_on_average(kernel_class, p):
    """And given the frequencies it is nearly that: relative error at most ``1.5 / sqrt(m)``."""
    X = np.random.default_rng(p).uniform(size=(12, p))
    plain = kernel_class(0.3, 2.0)
    for kernel in (plain, short_and_long(0.3), kernel_class(tuple([0.2, 0.5, 1.0][:p]), 1.5)):
        K = kernel_matrix(kernel, X, X)
        found = np.array([covariance_given_frequencies(kernel, X, seed) for seed in range(40)])
        error = found.std(axis=0, ddof=1) / np.sqrt(40)
        # Student's t with 39 degrees of freedom, for 78 entries and what rounding makes of the diagonal
        assert (np.abs(found.mean(axis=0) - K) <= 6.5 * error + 2e-5 * kernel.variance).all()
        assert found.std(axis=0).max() <= 1.5 * kernel.variance / np.sqrt(1024 / len(kernel.parts))


@pytest.mark.parametrize("in_time", [cagp.Matern12(9.0), cagp.SquaredExponential(9.0)])
def test_waves_of_products_have_their_covariance_on_average(in_time):
    """In space and time; given the frequencies it is nearly that, by ``2 / sqrt(m)``."""
    rng, kernel = np.random.default_rng(0), cagp.SpaceTime(cagp.Matern32(0.3, 2.0), in_time)
    X = np.column_stack(
        [cagp.unit_sphere(rng.uniform(40, 60, 12), rng.uniform(0, 30, 12)), rng.uniform(0, 40, 12)]
    )
    found = np.array([covariance_given_frequencies(kernel, X, seed) for seed in range(40)])
    error = found.std(axis=0, ddof=1) / np.sqrt(40)
    assert (np.abs(found.mean(axis=0) - kernel(X, X)) <= 6.5 * error + 2e-5 * kernel.variance).all()
    assert found.std(axis=0).max() <= 2.0 * kernel.variance / np.sqrt(1024)


def test_waves_of_a_cycle_are_refused():
    cycle = cagp.SpaceTime(cagp.Matern32(0.3, 2.0), cagp.Periodic(cagp.Matern52(8.0), period=24.0))
    with pytest.raises(ArgumentError) as refusal:
        draw_spectra(cycle, 4, 2, seed=0)
    assert refusal.value.key == "no-spectral-density"


def covariance_given_frequencies(kernel, X, seed):
    """Covariance of draws that share the frequencies of a seed."""
    K = np.zeros((len(X), len(X)))
    for spectrum in draw_spectra(kernel, X.shape[1], 2, seed):
        phases = 2.0 * np.pi * X @ spectrum.turns.T
        waves = np.concatenate([np.cos(phases), np.sin(phases)], axis=1)
        K += (waves * np.tile(spectrum.variances, 2)) @ waves.T
    return K


def test_amplitudes_of_waves_are_normal_with_their_variances():
    (spectrum,) = draw_spectra(cagp.Matern32(0.3, 2.0), 3, 50, seed=0)
    both = np.stack([spectrum.cosines, spectrum.sines]) / np.sqrt(spectrum.variances)[:, None]
    # 102,400 standard normal numbers: first, second and fourth moment, and of cosines and sines together
    for value, expected, variance in (
        (both.mean(), 0.0, 1.0),
        ((both**2).mean(), 1.0, 2.0),
        ((both**4).mean(), 3.0, 96.0),
        ((both[0] * both[1]).mean(), 0.0, 2.0),
    ):
        assert abs(value - expected) < norm.isf(RARE / 2.0) * np.sqrt(variance / both.size)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("lengthscale", "noise"), [(0.05, 0.1), (0.5, 0.02), (1.0, 1e-4)])
def test_frequencies_that_are_shared_cost_what_is_promised(lengthscale, noise):
    """Posterior variances given the frequencies: right on average, and within 1/16 for the mean target."""
    problem = regression_problem(300, q=30, p=3, lengthscale=lengthscale, noise_variance=noise)
    dense, kernel = problem.dense, problem.prior.kernel
    weights = np.concatenate([-np.linalg.solve(dense.G, dense.V.T), np.eye(30)])
    places = np.concatenate([problem.X, problem.X_test])
    of_noise = noise * (weights[:300] ** 2).sum(axis=0)
    variance = np.diag(dense.exact()[1])
    ratios = []
    for seed in range(24):
        K = covariance_given_frequencies(kernel, places, seed)
        ratios.append((np.einsum("ij,ik,kj->j", weights, K, weights, optimize=True) + of_noise) / variance)
    spread = np.std(ratios, axis=0, ddof=1)
    assert spread.mean() <= 1.0 / 16.0
    error = spread / np.sqrt(24)
    # Student's t with 23 degrees of freedom for 30 targets
    assert (np.abs(np.mean(ratios, axis=0) - 1.0) <= 6.5 * error + 0.01).all()


def grid_case():
    """A grid with gaps and a pole, its prior, field and a finer grid that contains it."""
    grid = cagp.LatLonGrid([-60.0, -20.0, 20.0, 60.0, 90.0], 8)
    field = np.random.default_rng(3).normal(size=grid.shape)
    field[1, 2:4] = np.nan
    field[4] = 1.5
    finer = cagp.LatLonGrid(np.linspace(-80.0, 80.0, 9), 16)
    return cagp.Prior(cagp.Matern32(0.7, 2.0), 0.1, 0.5), grid, field, finer


CELLS = cagp.cell_means([0.0, 20.0, 50.0], [0.0, 15.0, 40.0, 90.0], nodes_per_side=2)


def test_of_points_grids_with_gaps_and_cells_the_variances_are_the_stated_ones_t7():
    """Exactly, with unit draws: of each kind of targets the diagonal of the same identity."""
    prior, grid, field, finer = grid_case()
    observed = 8 * 4 - 2 + 1
    for targets in (finer, finer.points, finer.points[:7], CELLS):
        q = targets.size if isinstance(targets, cagp.LatLonGrid) else len(targets)
        solver = cagp.BlockGaussSeidel(2, block_size=8)
        exact = cagp.condition(prior, grid, field, targets, solver=solver)
        draws = prior_rank(prior, grid, field, targets)
        found = cagp.posterior_by_samples(
            prior,
            grid,
            field,
            targets,
            solver=solver,
            samples=draws + observed,
            generator=unit_noise(draws, observed),
        )
        assert found.mean.shape == exact.mean.shape
        assert_close(found.mean, exact.mean, relative=1e-10)
        assert_close(found.variance * (draws + observed), exact.variance, relative=1e-7)
        assert found.drawn == "exactly, by the joint covariance"
        assert q + observed <= 4096


def prior_rank(prior, grid, field, targets):
    """How many white numbers an exact draw takes."""
    executor = SerialExecutor()
    (part,) = patterns(grid, field)
    made = Problems(prior, targets, full_covariance=False, executor=executor, memory_limit_bytes=2**30).of(
        part
    )
    return prior_draws(made.gram, targets, executor=executor).root.shape[1]


@pytest.mark.parametrize("solver", [cagp.BlockGaussSeidel(2, block_size=16), cagp.Rings()])
def test_on_the_grid_that_was_observed_draws_are_those_of_its_rings_t7(solver):
    prior, grid, field, _ = grid_case()
    field[1, 2:4] = 0.0
    n, observed = grid.size, 8 * 4 + 1
    exact = cagp.condition(prior, grid, field, grid, solver=solver)
    found = cagp.posterior_by_samples(
        prior, grid, field, grid, solver=solver, samples=n + observed, generator=unit_noise(n, observed)
    )
    assert found.drawn == "exactly, on a grid that has all points"
    assert_close(found.mean, exact.mean, relative=1e-10)
    # copies of a pole differ by the root of rounding
    assert_close(found.variance * (n + observed), exact.variance, relative=1e-6)


@pytest.mark.parametrize("kernel", [cagp.Matern12(0.4), cagp.Matern(1.2, 0.2, 2.0)])
def test_draws_by_a_factor_have_the_posterior_variance(kernel):
    """The covariance of draws from all unit vectors, at duplicates, targets on observations and cells."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(500, 2))
    X[:5] = X[5:10]
    nodes = np.concatenate([X[:30], rng.uniform(size=(60, 2))])
    cells = cagp.LinearFunctionals(nodes, rng.uniform(size=(90, 20)))
    for targets, M in ((nodes, np.eye(90)), (cells, cells.matrix().toarray())):
        draws = FactorDraws(kernel, X, targets, SerialExecutor())
        L = draws.factor.draw(np.eye(590))
        joint = np.concatenate([X, nodes])
        to_values = np.block([[np.eye(500), np.zeros((500, 90))], [np.zeros((M.shape[1], 500)), M.T]])
        K = to_values @ kernel(joint, joint) @ to_values.T
        W = np.linalg.solve(K[:500, :500] + 1e-3 * np.eye(500), K[:500, 500:]).T
        error = np.concatenate([-W, np.eye(len(W))], axis=1)
        exact = np.einsum("ij,jk,ik->i", error, K, error)
        drawn = ((error @ to_values @ L) ** 2).sum(axis=1)
        assert_close(drawn, exact, relative=0.02)
        at_points, at_targets = draws.draw(np.random.default_rng(3), 40)
        values = draws.factor.draw(np.concatenate(_normals(590, [32, 8])).T)
        assert_close(np.concatenate([at_points, at_targets]), to_values @ values)
        assert np.abs(at_points[:5] - at_points[5:10]).max() < 1e-3


def _normals(points, counts):
    generator = np.random.default_rng(3)
    return [generator.standard_normal((count, points)) for count in counts]


def test_points_on_one_grid_are_drawn_on_it_others_by_a_factor_or_waves():
    """Which way depends on the places alone; on the grid the covariance is the kernel's."""
    fine = cagp.LatLonGrid(np.linspace(-89.0, 89.0, 60), 90)
    coarse = cagp.LatLonGrid(fine.latitude_degrees[::2], 45)
    kernel, rng = cagp.Matern32(0.3), np.random.default_rng(0)
    executor = SerialExecutor()
    gram = cagp.TiledGram(kernel, coarse.points, noise_variance=np.ones(coarse.size))
    on_grid = prior_draws(gram, fine.points, executor=executor)
    scattered = rng.normal(size=(5000, 3))
    scattered /= np.linalg.norm(scattered, axis=1)[:, None]
    assert isinstance(prior_draws(gram, scattered, executor=executor), FactorDraws)
    assert isinstance(prior_draws(gram, 2.0 * fine.points, executor=executor), FactorDraws)
    assert isinstance(prior_draws(gram, np.tile(scattered, (13, 1)), executor=executor), WaveDraws)
    smooth = cagp.TiledGram(cagp.Matern52(0.3), coarse.points, noise_variance=np.ones(coarse.size))
    assert isinstance(prior_draws(smooth, scattered, executor=executor), WaveDraws)
    assert isinstance(prior_draws(gram, fine.points[:50], executor=executor), CovarianceDraws)
    assert isinstance(on_grid, GridDraws)
    at_points, at_targets = on_grid.draw(np.random.default_rng(1), 600)
    chosen = rng.choice(fine.size, 30, replace=False)
    values = np.concatenate([at_points[:30], at_targets[chosen]])
    K = kernel(*[np.concatenate([coarse.points[:30], fine.points[chosen]])] * 2)
    error = np.sqrt((1.0 + K**2) / 600)
    assert np.abs((values @ values.T / 600 - K) / error).max() < norm.isf(RARE / (60 * 61))


@pytest.mark.exhaustive
@pytest.mark.cluster
def test_samples_do_not_depend_on_the_executor(two_workers):
    """Serial, threads and Dask give the same bits, whichever way the prior is drawn."""
    exactly = regression_problem(200, q=20)
    prior, grid, field, _ = grid_case()
    rng = np.random.default_rng(0)
    X, X_test = rng.uniform(size=(200, 3)), rng.uniform(size=(4200, 3))

    def all_kinds(executor):
        waves, factor = (
            cagp.posterior_by_samples(
                cagp.Prior(kernel(lengthscale=0.3), exactly.prior.noise_variance),
                X,
                X[:, 0],
                X_test,
                solver=BLOCKS,
                samples=70,
                generator=np.random.default_rng(1),
                executor=executor,
            )
            for kernel in (cagp.Matern52, cagp.Matern32)
        )
        assert waves.drawn == "by random waves"
        assert factor.drawn == "by conditionals on neighbours"
        on_grid = cagp.sample_posterior(
            prior, grid, field, grid, solver=BLOCKS, samples=3, generator=np.random.default_rng(2),
            executor=executor,
        )  # fmt: skip
        by_waves, by_factor = (waves.mean, waves.variance), (factor.mean, factor.variance)
        return sampled(exactly, BLOCKS, samples=5, executor=executor), on_grid, *by_waves, *by_factor

    reference = all_kinds(SerialExecutor())
    with ThreadExecutor(3) as threads:
        for executor in (threads, two_workers):
            for found, expected in zip(all_kinds(executor), reference, strict=True):
                np.testing.assert_array_equal(found, expected)


@pytest.fixture(scope="module")
def two_workers(two_dask_workers):
    with open_executor(two_dask_workers.scheduler.address) as executor:
        yield executor


def test_fields_and_patterns_of_gaps_have_draws_of_their_own():
    """Shapes; equal seeds give equal samples; errors of different fields are independent."""
    problem = regression_problem(120, q=12, fields=3)
    y = problem.y.copy()
    y[:40, 2] = np.nan
    for values, patterns_of_gaps in ((problem.y, 1), (y, 2)):
        case = replace(problem, y=values)
        posterior = case.condition(BLOCKS, covariance="diagonal")
        found = sampled(case, BLOCKS, samples=400)
        np.testing.assert_array_equal(found, sampled(case, BLOCKS, samples=400))
        assert found.shape == (400, 12, 3)
        z = (found - posterior.mean) / np.sqrt(posterior.variance.reshape(12, -1))
        together = np.einsum("sqt,squ->qtu", z, z) / 400
        assert np.abs(together[:, ~np.eye(3, dtype=bool)]).max() < norm.isf(RARE / 72) / np.sqrt(400)
        by_samples = cagp.posterior_by_samples(
            case.prior, case.X, values, case.X_test, solver=BLOCKS, generator=np.random.default_rng(0)
        )
        assert_close(by_samples.mean, posterior.mean, relative=1e-10)
        assert by_samples.variance.shape == posterior.variance.shape
        ratio = by_samples.variance / posterior.variance
        assert np.abs(ratio - 1.0).max() < norm.isf(RARE / 72) * np.sqrt(2.0 / 400)
        assert by_samples.relative_error == np.sqrt(2.0 / 400)
        assert patterns_of_gaps == posterior.variance.ndim


def test_fields_on_grids_keep_their_shapes():
    prior, grid, field, finer = grid_case()
    fields = np.stack([field, np.ones(grid.shape)])
    given = {"solver": BLOCKS, "samples": 5, "generator": np.random.default_rng(0)}
    assert cagp.sample_posterior(prior, grid, fields, finer, **given).shape == (5, 2, *finer.shape)
    assert cagp.sample_posterior(prior, grid, field, finer, **given).shape == (5, *finer.shape)


def test_without_iterations_samples_are_those_of_the_prior():
    problem = regression_problem(60, q=10)
    errors = sampled(problem, cagp.GaussSeidel(0)) - problem.dense.centre
    assert_law(errors, problem.dense.K2)
    nothing = replace(problem, X_test=np.empty((0, 2)))
    assert sampled(nothing, BLOCKS, samples=3).shape == (3, 0)


def test_of_conjugate_gradients_each_sample_is_a_solve_and_calibrated_on_average():
    """Parametric bootstrap: ``f - m(y)`` and ``f' - m(y')`` have one distribution (math 1.5).

    Of 40 data sets with 6 targets each, half of the truths lie below the median of 9 samples. The ranks of
    one data set go together, so that what is counted is data sets, by their first target.
    """
    problem = regression_problem(50, q=6, lengthscale=0.2)
    solver, kernel = cagp.ConjugateGradient(3), problem.prior.kernel
    places = np.concatenate([problem.X, problem.X_test])
    root = np.linalg.cholesky(kernel(places, places) + 1e-10 * np.eye(56))
    prior = replace(problem.prior, mean=0.0)
    below, rng = np.zeros(6, dtype=int), np.random.default_rng(4)
    for _ in range(40):
        truth = root @ rng.standard_normal(56)
        y = truth[:50] + np.sqrt(0.02) * rng.standard_normal(50)
        found = cagp.sample_posterior(
            prior, problem.X, y, problem.X_test, solver=solver, samples=9, generator=rng
        )
        assert found.shape == (9, 6)
        below += truth[50:] < np.median(found, axis=0)
    low, high = binom.ppf([RARE / 12, 1.0 - RARE / 12], 40, 0.5)
    assert (low <= below).all()
    assert (below <= high).all()
    with pytest.raises(ArgumentError) as refusal:
        cagp.sample_posterior(
            prior, problem.X, np.ones((50, 2)), problem.X_test, solver=solver, generator=rng
        )
    assert refusal.value.key == "several-fields"


def test_random_actions_go_the_way_of_their_states():
    """A solver without a pass of its own for right-hand sides; many columns at once."""
    problem = regression_problem(80, q=10)
    solver = cagp.RandomActions(30, seed=1)
    posterior = problem.condition(solver)
    assert_law(sampled(problem, solver, 5) - posterior.mean, posterior.covariance)


def test_progress_goes_from_none_to_nearly_all_and_memory_is_asked_for_first():
    problem = regression_problem(150, q=30)
    seen = []
    sampled(problem, BLOCKS, samples=700, progress=seen.append)
    fractions = [report.fraction for report in seen]
    assert fractions == sorted(fractions)
    assert len(fractions) == 2 * 3
    assert [report.batch for report in seen] == [1, 1, 1, 2, 2, 2]
    assert 0.0 < fractions[0] < fractions[-1] < 1.0
    with pytest.raises(BudgetError) as refusal:
        sampled(problem, BLOCKS, samples=700, memory_limit_bytes=2 * 2**20)
    assert refusal.value.key == "memory"


def test_what_is_no_generator_or_no_number_of_samples_is_refused():
    problem = regression_problem(20, q=3)
    with pytest.raises(ArgumentError) as refusal:
        sampled(problem, BLOCKS, generator=3)
    assert refusal.value.key == "generator"
    with pytest.raises(ArgumentError) as refusal:
        sampled(problem, BLOCKS, samples=0)
    assert refusal.value.key == "no-count"
    with pytest.raises(ArgumentError) as refusal:
        sampled(replace(problem, prior=1.0), BLOCKS)
    assert refusal.value.key == "prior-type"
    for draw in (cagp.sample_posterior, cagp.posterior_by_samples):
        with pytest.raises(ArgumentError) as refusal:
            draw(problem.prior, problem.X, problem.y, problem.X_test, solver=None, generator=None)
        assert refusal.value.key == "solver-type"


def test_draws_that_are_not_finite_are_an_error():
    problem = regression_problem(20, q=3)
    endless = Prescribed(np.full((1, 23), 1e308), np.full((1, 20), 1e308))
    with (
        np.errstate(over="ignore", invalid="ignore"),
        pytest.raises(NumericalError) as refusal,
    ):
        sampled(problem, BLOCKS, samples=1, generator=endless, executor=SerialExecutor())
    assert refusal.value.key == "diverged"


def test_a_median_of_squares_is_that_of_chi_squared():
    """One more look at the joint distribution: lengths of whitened errors follow chi-squared."""
    problem = regression_problem(150, q=20)
    posterior = problem.condition(cagp.GaussSeidel(3))
    errors = sampled(problem, cagp.GaussSeidel(3), 7) - posterior.mean
    squares = (errors.T * np.linalg.solve(posterior.covariance, errors.T)).sum(axis=0)
    above = int((squares > chi2.median(20)).sum())
    low, high = binom.ppf([RARE / 2, 1.0 - RARE / 2], DRAWS, 0.5)
    assert low <= above <= high
