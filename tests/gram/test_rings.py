"""The Gram matrix by rings is the dense one: T26, T27, products, solves, posterior, leave-one-out."""

import dataclasses
import re
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import cho_factor, cho_solve, solve_triangular

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, BudgetError, NumericalError
from cagp_dist.runtime import SerialExecutor, ThreadExecutor

from ..grids import EVERY_CASE, LAYOUTS, Layout, case_name, gaussian_latitudes, grid_problem, make_problem
from ..joined import one_after_another
from ..oracle import KERNELS, KERNELS_AND_SUMS, assert_close, ring_matrix

pytestmark = pytest.mark.usefixtures("one_blas_thread")

every_layout = pytest.mark.parametrize("name", LAYOUTS)
every_case = pytest.mark.parametrize(("name", "kernel_class", "lengthscale"), EVERY_CASE, ids=case_name)

TOLERANCE = 1e-10
"""Relative to the largest expected entry; conditions are below 1e5, so that 1e-11 is what rounding leaves."""


@one_after_another
@every_case
def test_product_and_solve_are_those_of_the_dense_matrix(name, kernel_class, lengthscale):
    problem = grid_problem(name, kernel_class, lengthscale)
    field = problem.field()
    product, solution = problem.rings @ field, problem.rings.solve(field)
    assert product.shape == solution.shape == problem.grid.shape
    assert_close(product.ravel(), problem.G @ field.ravel(), relative=1e-13)
    assert_close(solution.ravel(), problem.solve(field.ravel()), relative=TOLERANCE)


@one_after_another
@every_case
def test_t26_logdet_is_the_weighted_sum_over_wavenumbers(name, kernel_class, lengthscale):
    problem = grid_problem(name, kernel_class, lengthscale)
    sign, expected = np.linalg.slogdet(problem.G)
    assert sign == 1.0
    # every one of n logarithms is rounded, and they may cancel
    assert problem.rings.logdet() == pytest.approx(expected, rel=TOLERANCE, abs=1e-13 * problem.n)


@one_after_another
@every_case
def test_t27_diagonal_of_the_inverse_depends_on_latitude_alone(name, kernel_class, lengthscale):
    problem = grid_problem(name, kernel_class, lengthscale)
    expected = np.diag(problem.solve(np.eye(problem.n))).reshape(problem.grid.shape)
    assert_close(np.repeat(expected[:, :1], problem.grid.shape[1], axis=1), expected, relative=TOLERANCE)
    assert_close(problem.rings.inverse_by_latitude(), expected[:, 0], relative=TOLERANCE)
    assert_close(problem.rings.inverse_diagonal(), expected.ravel(), relative=TOLERANCE)


def posterior(rings, field):
    """Exact posterior mean and variance (P, Q) at the points of the grid."""
    exact = rings.exact(executor=SerialExecutor())
    mean = rings.cross(rings.grid, exact.weights(field.reshape(-1, 1)), executor=SerialExecutor())
    variance = rings.kernel.diagonal(rings.X) - exact.downdate(rings.grid, full=False)
    return mean.reshape(rings.grid.shape), variance.reshape(rings.grid.shape)


@one_after_another
@every_case
def test_posterior_is_the_dense_one(name, kernel_class, lengthscale):
    problem = grid_problem(name, kernel_class, lengthscale)
    field = problem.field()
    mean, variance = posterior(problem.rings, field)
    expected = np.diag(problem.K - problem.K @ problem.solve(problem.K))
    assert_close(mean.ravel(), problem.K @ problem.solve(field.ravel()), relative=TOLERANCE)
    assert variance.shape == problem.grid.shape
    # the dense difference of nearly equal matrices has lost digits: its error is one of K, not of itself
    assert np.abs(variance.ravel() - expected).max() <= 1e-12 * problem.kernel.variance
    assert (variance > 0.0).all()
    assert (variance < problem.kernel.variance).all()


@one_after_another
@every_layout
def test_leave_one_out_is_what_is_predicted_without_the_point(name):
    """Against n posteriors of n - 1 points each."""
    problem = grid_problem(name)
    fields = problem.field(2)
    mean, variance = problem.rings.leave_one_out(fields)
    assert mean.shape == fields.shape
    columns = fields.reshape(2, -1).T
    for i in range(problem.n):
        rest = np.delete(np.arange(problem.n), i)
        weights = np.linalg.solve(problem.G[np.ix_(rest, rest)], problem.K[rest, i])
        np.testing.assert_allclose(mean.reshape(2, -1)[:, i], weights @ columns[rest], rtol=1e-9, atol=1e-11)
        expected = problem.G[i, i] - weights @ problem.K[rest, i]
        assert variance.flat[i] == pytest.approx(expected, rel=TOLERANCE)


@pytest.mark.parametrize("kernel_class", KERNELS_AND_SUMS)
def test_leave_one_out_of_all_kernels_by_the_inverse(kernel_class):
    problem = grid_problem("noise that is not", kernel_class, 0.6)
    field, inverse = problem.field(), problem.solve(np.eye(problem.n))
    loo = problem.rings.leave_one_out(field)
    expected = field.ravel() - inverse @ field.ravel() / np.diag(inverse)
    assert_close(loo.mean.ravel(), expected, relative=TOLERANCE)
    assert_close(loo.variance.ravel(), 1.0 / np.diag(inverse), relative=TOLERANCE)


@pytest.mark.parametrize("method", ["__matmul__", "solve", "prior_product"])
@pytest.mark.parametrize("name", ["poles, odd Q, even P, descending", "irregular, with noise by latitude"])
def test_fields_stacks_and_columns_give_the_same(method, name):
    problem = grid_problem(name)
    apply, stack = getattr(problem.rings, method), problem.field(4)
    expected = np.stack([apply(field) for field in stack])
    P, Q = problem.grid.shape
    for values, result in (
        (stack, expected),
        (stack[0].ravel(), expected[0].ravel()),
        (stack.reshape(4, -1).T, expected.reshape(4, -1).T),
        (stack[:1].reshape(1, -1).T, expected[:1].reshape(1, -1).T),
        (stack.tolist(), expected),
    ):
        assert_close(apply(values), result, relative=1e-13)
    for empty in ((0, P, Q), (P * Q, 0)):
        assert apply(np.zeros(empty)).shape == empty


@one_after_another
@every_layout
def test_prior_product_is_that_without_the_noise(name):
    problem = grid_problem(name)
    field = problem.field()
    expected = problem.K @ field.ravel()
    # made as G v - N v: the error is one of G v
    bound = 1e-13 * (problem.G @ np.abs(field.ravel())).max()
    assert np.abs(problem.rings.prior_product(field).ravel() - expected).max() <= bound


@one_after_another
@every_layout
def test_solve_inverts_the_product_and_both_are_symmetric(name):
    problem = grid_problem(name)
    u, v = problem.field(2, seed=3)
    assert_close(problem.rings.solve(problem.rings @ u), u, relative=TOLERANCE)
    assert_close(problem.rings @ problem.rings.solve(u), u, relative=TOLERANCE)
    for apply in (problem.rings.__matmul__, problem.rings.solve):
        scale = np.abs(u).sum() * np.abs(apply(v)).max()
        assert (u * apply(v)).sum() == pytest.approx((apply(u) * v).sum(), rel=1e-12, abs=1e-13 * scale)


@pytest.mark.parametrize("name", ["poles, even Q", "irregular latitudes"])
def test_turning_the_sphere_turns_the_result(name):
    problem = grid_problem(name)
    field = problem.field()
    for places in (1, 5):
        turned = problem.rings.solve(np.roll(field, places, axis=1))
        assert_close(turned, np.roll(problem.rings.solve(field), places, axis=1), relative=1e-12)


@pytest.mark.parametrize("name", [name for name in LAYOUTS if LAYOUTS[name].mirrored])
def test_parities_change_nothing_but_the_cost(name):
    """A mirrored grid with noise that differs by a hair is solved without splitting, and agrees."""
    problem = grid_problem(name)
    noise = problem.layout.noise * (1.0 + 1e-14 * np.arange(len(problem.layout.noise)))
    whole = cagp.RingGram(problem.grid, problem.kernel, noise_variance=noise)
    field = problem.field()
    P = problem.grid.shape[0]
    assert len(problem.rings.wavenumbers.sizes) == (2 if P > 1 else 1)
    assert len(whole.wavenumbers.sizes) == 1
    assert_close(problem.rings.solve(field), whole.solve(field), relative=1e-11)
    assert problem.rings.logdet() == pytest.approx(whole.logdet(), rel=1e-11)
    assert_close(problem.rings.inverse_diagonal(), whole.inverse_diagonal(), relative=1e-11)


def test_descending_latitudes_are_ascending_ones_upside_down():
    layout = LAYOUTS["irregular, with noise by latitude"]
    up = make_problem(layout, cagp.Matern52(0.5))
    down = make_problem(
        dataclasses.replace(layout, latitude=layout.latitude[::-1], noise=layout.noise[::-1]), up.kernel
    )
    field = up.field()
    assert_close(down.rings.solve(field[::-1])[::-1], up.rings.solve(field), relative=1e-12)
    assert_close(down.rings.inverse_by_latitude()[::-1], up.rings.inverse_by_latitude(), relative=1e-12)


@pytest.mark.parametrize("every", [2, 3, 4])
def test_every_a_th_longitude_of_a_grid_is_a_grid(every):
    fine = grid_problem("poles, even Q")
    P, Q = fine.grid.shape
    coarse = cagp.RingGram(
        cagp.LatLonGrid(fine.layout.latitude, Q // every), fine.kernel, noise_variance=fine.layout.noise
    )
    kept = np.arange(fine.n).reshape(P, Q)[:, ::every].ravel()
    field = fine.field()[:, ::every]
    expected = np.linalg.solve(fine.G[np.ix_(kept, kept)], field.ravel())
    assert_close(coarse.solve(field).ravel(), expected, relative=TOLERANCE)
    # zero elsewhere on the fine grid, the weights give the posterior mean of all its points
    weights = np.zeros((P, Q))
    weights[:, ::every] = coarse.solve(field)
    assert_close(fine.rings.prior_product(weights).ravel(), fine.K[:, kept] @ expected, relative=TOLERANCE)


def test_blocks_wide_enough_for_every_strip():
    """110 rings: more than the columns of an inverse that are made at a time, in both sectors or in one."""
    latitude, noise = gaussian_latitudes(220), 0.5
    kernel, Q = cagp.Matern32(0.4), 3
    K = ring_matrix(kernel, latitude, Q)
    factor = cho_factor(K + noise * np.eye(660), lower=True)
    diagonal = np.diag(cho_solve(factor, np.eye(660)))[::Q]
    for variances in (noise, noise * (1.0 + 1e-14 * np.arange(220))):
        rings = cagp.RingGram(cagp.LatLonGrid(latitude, Q), kernel, noise_variance=variances)
        assert_close(rings.inverse_by_latitude(), diagonal, relative=TOLERANCE)
        assert rings.logdet() == pytest.approx(2.0 * np.log(np.diag(factor[0])).sum(), rel=TOLERANCE)


@st.composite
def layouts(draw):
    """Any latitudes at least a hundredth of a degree apart, mirrored or not, any Q, any noise."""
    steps = draw(st.lists(st.integers(-9000, 9000), min_size=1, max_size=6, unique=True))
    latitude = np.sort(np.array(steps) / 100.0)
    if draw(st.booleans()):
        latitude = np.unique(np.concatenate([-np.abs(latitude), np.abs(latitude)]))
    noise = draw(st.lists(st.floats(0.01, 10.0), min_size=len(latitude), max_size=len(latitude)))
    noise = np.array(noise)
    if draw(st.booleans()):
        noise = 0.5 * (noise + noise[::-1])
    if draw(st.booleans()):
        latitude, noise = latitude[::-1], noise[::-1]
    return Layout(latitude, draw(st.integers(1, 9)), noise, mirrored=False)


@given(layout=layouts(), family=st.integers(0, 3), lengthscale=st.floats(0.01, 5.0))
def test_any_grid_against_dense_formulas(layout, family, lengthscale):
    problem = make_problem(layout, KERNELS[family](lengthscale=lengthscale, variance=2.0))
    fields = problem.field(2)
    columns = fields.reshape(2, -1).T
    assert_close(problem.rings @ columns, problem.G @ columns, relative=1e-13)
    assert_close(problem.rings.solve(columns), problem.solve(columns), relative=TOLERANCE)
    logdet = np.linalg.slogdet(problem.G)[1]
    assert problem.rings.logdet() == pytest.approx(logdet, rel=TOLERANCE, abs=1e-12)
    inverse = np.diag(problem.solve(np.eye(problem.n)))
    assert_close(problem.rings.inverse_diagonal(), inverse, relative=TOLERANCE)


@given(scale=st.floats(1e-6, 1e6))
@settings(max_examples=10)
def test_units_scale(scale):
    """Variance and noise by c, or the field by sqrt(c): solves by 1 / c, the determinant by c^n."""
    problem = grid_problem("poles, odd Q, even P, descending")
    kernel = dataclasses.replace(problem.kernel, variance=scale * problem.kernel.variance)
    scaled = cagp.RingGram(
        problem.grid, kernel, noise_variance=scale * problem.layout.noise, executor=SerialExecutor()
    )
    field = problem.field()
    assert_close(scale * scaled.solve(field), problem.rings.solve(field), relative=1e-11)
    expected = problem.rings.logdet() + problem.n * np.log(scale)
    assert scaled.logdet() == pytest.approx(expected, rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("noise", [1e-6, 1e-2, 1e2, 1e6])
def test_variance_is_right_where_noise_is_far_from_the_signal(noise):
    """``N - N^2 diag(G^-1)`` loses log10(noise / variance) digits where the noise is large, and no more."""
    latitude, Q = np.linspace(-60.0, 60.0, 6), 10
    problem = make_problem(Layout(latitude, Q, np.full(6, noise), True), cagp.Matern12(0.3, variance=1.0))
    _, variance = posterior(problem.rings, problem.field())
    half = solve_triangular(np.linalg.cholesky(problem.G), problem.K, lower=True)
    exact = 1.0 - (half**2).sum(axis=0)
    # dense: 1 - (almost 1) loses digits for small noise instead
    np.testing.assert_allclose(variance.ravel(), exact, rtol=1e-14 * (noise + 1.0 / noise) + 1e-12)


def test_a_short_lengthscale_leaves_points_alone():
    problem = make_problem(LAYOUTS["no poles, odd Q"], cagp.SquaredExponential(1e-3, variance=2.0))
    field = problem.field()
    assert_close(problem.rings.solve(field), field / 2.2, relative=1e-14)
    assert problem.rings.logdet() == pytest.approx(problem.n * np.log(2.2), rel=1e-14)
    loo = problem.rings.leave_one_out(field)
    assert np.abs(loo.mean).max() < 1e-14
    np.testing.assert_allclose(loo.variance, 2.2, rtol=1e-14)


def test_the_q_points_of_a_pole_row_are_observations_of_one_place():
    problem = grid_problem("a pole")
    mean, variance = posterior(problem.rings, problem.field())
    Q, signal, noise = 6, 2.0, 0.05
    np.testing.assert_allclose(mean, problem.field().mean() * signal / (signal + noise / Q), rtol=1e-12)
    np.testing.assert_allclose(variance, 1.0 / (1.0 / signal + Q / noise), rtol=1e-12)


def test_results_are_the_callers_own():
    """Changing what was returned, or given, changes nothing that is kept."""
    problem = grid_problem("irregular latitudes")
    noise = problem.layout.noise.copy()
    rings = cagp.RingGram(problem.grid, problem.kernel, noise_variance=noise, executor=SerialExecutor())
    field = problem.field()
    before = rings.solve(field)
    noise[:] = 7.0
    rings.inverse_diagonal()[:] = 0.0
    rings.inverse_by_latitude()[:] = 0.0
    rings.diagonal()[:] = 0.0
    rings.leave_one_out(field).variance[:] = 0.0
    np.testing.assert_array_equal(rings.solve(field), before)
    np.testing.assert_array_equal(rings.inverse_diagonal(), problem.rings.inverse_diagonal())
    np.testing.assert_array_equal(rings.inverse_by_latitude(), problem.rings.inverse_by_latitude())
    np.testing.assert_array_equal(field, problem.field())


def test_factors_are_made_once_and_on_first_use():
    calls = []

    class Counting(SerialExecutor):
        def submit(self, function, *arguments, **options):
            calls.append(function.__name__)
            return super().submit(function, *arguments, **options)

    problem = grid_problem("poles, even Q")
    rings = cagp.RingGram(problem.grid, problem.kernel, noise_variance=0.1, executor=Counting())
    assert calls == []
    ranges = len(rings.wavenumbers.ranges())
    for _ in range(3):
        rings.solve(problem.field())
        rings.logdet()
        rings.inverse_diagonal()
        rings.sample(np.random.default_rng(0))
    once = ("factor_range", "logdet_range", "inverse_diagonal_range", "square_root_range")
    assert {name: calls.count(name) for name in once} == dict.fromkeys(once, ranges)
    assert calls.count("solve_range") == 3 * ranges


class Cramped(SerialExecutor):
    memory_bytes = 0


@pytest.mark.parametrize("mirrored", [True, False])
def test_factors_that_do_not_fit_into_memory_are_refused_before_they_are_made(mirrored, monkeypatch):
    latitude = np.linspace(-80.0, 80.0 if mirrored else 81.0, 40)
    rings = cagp.RingGram(
        cagp.LatLonGrid(latitude, 60), cagp.Matern32(0.1), noise_variance=0.1, executor=Cramped()
    )
    # the blocks, and a quarter more while they are made
    needed = 31 * 8 * (2 * 20**2 if mirrored else 40**2) * 5 // 4
    monkeypatch.setattr(Cramped, "memory_bytes", needed - 1)
    for use in (rings.logdet, rings.inverse_diagonal, lambda: rings.solve(np.zeros((40, 60)))):
        with pytest.raises(BudgetError) as refusal:
            use()
        assert refusal.value.key == "memory"
    monkeypatch.setattr(Cramped, "memory_bytes", needed)
    assert np.isfinite(rings.logdet())


def test_factors_take_the_memory_they_are_said_to_take(traced):
    latitude = np.linspace(-80.0, 81.0, 100)
    grid, kernel = cagp.LatLonGrid(latitude, 200), cagp.Matern32(0.1)
    grid_problem().rings.logdet()  # imports what is imported on first use
    rings = cagp.RingGram(grid, kernel, noise_variance=0.1, executor=SerialExecutor())
    stated = rings.wavenumbers.block_bytes

    def kept_by_factors() -> int:
        before, _ = tracemalloc.get_traced_memory()
        rings.logdet()
        return tracemalloc.get_traced_memory()[0] - before

    kept, peak = traced(kept_by_factors)
    assert stated == 8 * 101 * 100**2
    assert kept == pytest.approx(stated, rel=0.01)
    assert peak < stated + 4e6  # a table of distances and its transform


@pytest.mark.parametrize("noise", [0.0, -1.0, np.nan, np.inf, [0.1, 0.1, 0.0], [0.1, np.nan, 0.1]])
def test_noise_that_is_not_above_zero_is_refused(noise):
    with pytest.raises(ArgumentError) as refused:
        cagp.RingGram(cagp.LatLonGrid([0.0, 1.0, 2.0], 4), cagp.Matern32(1.0), noise_variance=noise)
    assert refused.value.key == "ring-noise"


@pytest.mark.parametrize("shape", [(0,), (2,), (4,), (12,), (1,), (3, 4), (3, 1)])
def test_noise_of_another_length_is_refused(shape):
    text = f"noise_variance has shape {shape} and smallest value"
    with pytest.raises(ArgumentError, match=re.escape(text) + ".* 3 of them, one for each latitude"):
        cagp.RingGram(cagp.LatLonGrid([0.0, 1.0, 2.0], 4), cagp.Matern32(1.0), noise_variance=np.ones(shape))


@pytest.mark.parametrize("noise", ["loud", 1j])
def test_noise_that_is_no_number_is_refused(noise):
    with pytest.raises(ArgumentError) as refusal:
        cagp.RingGram(cagp.LatLonGrid([0.0], 4), cagp.Matern32(1.0), noise_variance=noise)
    assert refusal.value.key == "no-numbers"


@pytest.mark.parametrize("grid", [np.zeros((12, 3)), None, ([0.0, 1.0], 4)], ids=["points", "none", "pair"])
def test_what_is_no_grid_is_refused_and_what_takes_points_is_named(grid):
    text = f"grid is a {type(grid).__name__}; expected a cagp_dist.LatLonGrid. .* use cagp_dist.condition"
    with pytest.raises(ArgumentError, match=text):
        cagp.RingGram(grid, cagp.Matern32(1.0), noise_variance=0.1)


@pytest.mark.parametrize(
    "kernel",
    [lambda angle: np.exp(-angle), "Matern32", cagp.Matern32, None],
    ids=["function", "name", "class", "none"],
)
def test_what_is_no_kernel_is_refused_and_great_circles_are_spoken_of(kernel):
    text = f"kernel is a {type(kernel).__name__}; expected Matern12, .*great-circle distance is not positive"
    with pytest.raises(ArgumentError, match=text):
        cagp.RingGram(cagp.LatLonGrid([0.0], 4), kernel, noise_variance=0.1)


METHODS = ["__matmul__", "solve", "prior_product", "leave_one_out"]


@pytest.mark.parametrize("method", METHODS)
def test_fields_that_are_not_of_the_grid_are_refused(method):
    apply = getattr(grid_problem("poles, even Q").rings, method)
    with pytest.raises(ArgumentError) as refusal:
        apply(np.zeros((12, 9)))
    assert refusal.value.key == "shapes"
    field = np.zeros((9, 12))
    field[3, 4] = np.nan
    with pytest.raises(ArgumentError) as refusal:
        apply(field)
    assert refusal.value.key == "not-finite"


def test_a_matrix_that_is_singular_in_floating_point_is_an_error_with_advice():
    """Poles Q times over, and noise below rounding."""
    grid = cagp.LatLonGrid(np.linspace(-90.0, 90.0, 9), 12)
    rings = cagp.RingGram(grid, cagp.SquaredExponential(3.0), noise_variance=1e-25)
    for use in (rings.logdet, lambda: rings.solve(np.zeros((9, 12)))):
        with pytest.raises(NumericalError) as refusal:
            use()
        assert refusal.value.key == "not-positive-definite"


def test_a_closed_executor_is_an_error():
    with ThreadExecutor(1) as executor:
        problem = grid_problem()
        rings = cagp.RingGram(problem.grid, problem.kernel, noise_variance=0.1, executor=executor)
    with pytest.raises(ArgumentError) as refusal:
        rings.logdet()
    assert refusal.value.key == "executor-closed"


@pytest.mark.parametrize("noise", [0.9e6, 1.1e6, 1e9])
def test_under_noise_a_million_times_the_field_the_posterior_variance_is_the_prior_s(noise):
    grid = cagp.LatLonGrid([-30.0, 0.0, 30.0], 4)
    rings = cagp.RingGram(grid, cagp.Matern32(0.5, 1.0), noise_variance=noise)
    _, variance = posterior(rings, np.ones(grid.shape))
    np.testing.assert_allclose(variance, 1.0, rtol=1e-4)


def test_a_gram_matrix_says_what_it_is_and_stays_what_it_is():
    rings = cagp.RingGram(cagp.LatLonGrid([-30.0, 0.0, 30.0], 4), cagp.Matern32(0.5, 2.0), noise_variance=0.1)
    assert repr(rings) == "RingGram(3 x 4 points, Matern32(lengthscale=0.5, variance=2.0))"
    for name in ("grid", "kernel", "noise_by_latitude", "wavenumbers"):
        with pytest.raises(AttributeError):
            setattr(rings, name, None)


def test_stacks_of_fields_are_taken_a_few_at_a_time(monkeypatch):
    grid = cagp.LatLonGrid([-30.0, 0.0, 30.0], 4)
    rings = cagp.RingGram(grid, cagp.Matern32(0.5), noise_variance=0.1)
    fields = np.random.default_rng(0).standard_normal((7, *grid.shape))
    whole = rings.solve(fields)
    monkeypatch.setattr("cagp_dist.gram.ring_gram.TASK_COLUMN_BYTES", 2 * 8 * grid.size)
    sizes = []
    batch = cagp.RingGram._batch
    monkeypatch.setattr(
        cagp.RingGram, "_batch", lambda self, f, x, *rest: sizes.append(len(x)) or batch(self, f, x, *rest)
    )
    np.testing.assert_allclose(rings.solve(fields), whole, rtol=1e-13)
    assert sizes == [
        3,
        3,
        1,
    ]  # three ranges of wavenumbers: three times two columns of 8 bytes for each point


@one_after_another
@every_case
def test_condition_bound_is_an_upper_bound(name, kernel_class, lengthscale):
    """Of the condition number in the 2-norm, and not a wild one: n at most times the 1-norm's."""
    problem = grid_problem(name, kernel_class, lengthscale)
    bound = problem.rings.condition_bound()
    values = np.linalg.eigvalsh(problem.G)
    assert bound >= (1.0 - 1e-12) * values[-1] / values[0]
    largest = np.abs(problem.G).sum(axis=0).max()
    assert bound == pytest.approx(largest / problem.layout.noise.min(), rel=1e-12)
    assert problem.rings.exact(executor=SerialExecutor()).condition_number == bound


def test_with_noise_is_the_same_matrix_with_other_noise():
    problem = grid_problem("noise that is not")
    noise = problem.layout.noise[::-1].copy()
    other = problem.rings.with_noise(noise)
    G = problem.K + np.diag(np.repeat(noise, problem.grid.shape[1]))
    field = problem.field()
    assert_close((other @ field).ravel(), G @ field.ravel(), relative=1e-13)
    assert problem.rings.with_noise(problem.layout.noise.copy()) is problem.rings
