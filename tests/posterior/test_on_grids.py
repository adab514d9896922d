"""Exact posteriors of fields on a grid against dense formulas: T28, any gaps, any targets, poles, fields."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import cho_factor, cho_solve

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, BudgetError, NumericalError
from cagp_dist.runtime import SerialExecutor, ThreadExecutor

from ..grids import grid_problem
from ..joined import one_after_another
from ..oracle import KERNELS_AND_SUMS, assert_close, kernel_matrix, ring_points
from ..pairwise import by_turns

pytestmark = pytest.mark.usefixtures("one_blas_thread")

NOISE = 0.05
GRIDS = {
    "poles": (np.linspace(-90.0, 90.0, 7), 10),
    "poles, odd, descending": (np.linspace(90.0, -90.0, 6), 9),
    "no poles": (np.linspace(-70.0, 75.0, 7), 8),
    "one latitude": (np.array([20.0]), 12),
    "a pole and a ring": (np.array([-90.0, 10.0]), 7),
}
MASKS = {
    "whole": lambda shape: np.ones(shape, dtype=bool),
    "few": lambda shape: np.random.default_rng(0).uniform(size=shape) > 0.1,
    "half": lambda shape: np.random.default_rng(1).uniform(size=shape) > 0.5,
    "little": lambda shape: np.random.default_rng(2).uniform(size=shape) > 0.9,
    "one hemisphere": lambda shape: np.arange(shape[1]) * np.ones((shape[0], 1)) < (shape[1] + 1) // 2,
}
TESTS = {
    "latitude": np.array([-90.0, 90.0, 90.0, 10.0, -12.3, 20.0, 20.0, 20.0, 66.6, 10.0]),
    "longitude": np.array([0.0, 17.0, -170.0, 36.0, -179.9, 30.0, 75.0, 390.0, 725.0, 36.0]),
}
CASES = [(grid, mask) for grid in GRIDS for mask in MASKS]
every_case = pytest.mark.parametrize(
    ("case", "covariance"), by_turns({"case": CASES, "covariance": ["diagonal", "full"]})
)


def sphere(latitude, longitude):
    """Unit vectors by the formula."""
    phi, lam = np.deg2rad(latitude), np.deg2rad(longitude)
    return np.stack([np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)], axis=1)


def merged(latitude, y, observed):
    """Points and observations with every pole once: the mean of its observed copies."""
    P, Q = observed.shape
    X, kept, values = ring_points(latitude, Q).reshape(P, Q, 3), observed.copy(), y.copy()
    for row in np.flatnonzero(np.abs(latitude) == 90.0):
        copies = np.flatnonzero(observed[row])
        kept[row] = False
        if copies.size:
            kept[row, 0] = True
            values[..., row, 0] = y[..., row, copies].mean(axis=-1)
    return X[kept], values[..., kept].T


def expected_posterior(kernel, latitude, y, observed, points, *, noise=NOISE):
    """Mean (q,) or (q, T) and covariance (q, q) by a dense factor."""
    X, b = merged(latitude, y, observed)
    factor = cho_factor(kernel_matrix(kernel, X, X) + noise * np.eye(len(X)), lower=True)
    V = kernel_matrix(kernel, points, X)
    return V @ cho_solve(factor, b), kernel_matrix(kernel, points, points) - V @ cho_solve(factor, V.T)


def the_case(grid_name, mask, *stack):
    latitude, Q = GRIDS[grid_name]
    observed = MASKS[mask]((len(latitude), Q))
    observed[0, 0] = True
    y = np.random.default_rng(5).normal(size=(*stack, len(latitude), Q))
    return cagp.LatLonGrid(latitude, Q), y, observed


def solve(grid, y, latitude=TESTS["latitude"], longitude=TESTS["longitude"], **settings):
    """The exact posterior at points, of a field with NaN where ``observed`` is False."""
    observed = settings.pop("observed", None)
    field = y if observed is None else np.where(observed, y, np.nan)
    return conditioned(grid, field, cagp.unit_sphere(latitude, longitude), **settings)


def conditioned(grid, field, targets, **settings):
    kernel = settings.pop("kernel", cagp.Matern32(0.6, variance=2.0))
    prior = cagp.Prior(kernel, noise_variance=settings.pop("noise", NOISE), mean=settings.pop("mean", 0.0))
    settings.setdefault("executor", SerialExecutor())
    return cagp.condition(prior, grid, field, targets, solver=cagp.Rings(), **settings)


@one_after_another
@every_case
def test_it_is_the_dense_posterior(case, covariance):
    grid, y, observed = the_case(*case)
    posterior = solve(grid, y, observed=observed, covariance=covariance)
    mean, dense = expected_posterior(
        cagp.Matern32(0.6, 2.0), grid.latitude_degrees, y, observed, sphere(*TESTS.values())
    )
    assert_close(posterior.mean, mean, relative=1e-10)
    np.testing.assert_allclose(posterior.variance, np.diag(dense), rtol=0.0, atol=1e-12)
    if covariance == "full":
        np.testing.assert_allclose(posterior.covariance, dense, rtol=0.0, atol=1e-12)
        np.testing.assert_array_equal(posterior.covariance, posterior.covariance.T)
        np.testing.assert_allclose(posterior.covariance.diagonal(), posterior.variance, rtol=0.0, atol=1e-14)
    else:
        assert posterior.covariance is None
    assert posterior.status is cagp.Status.EXACT
    assert posterior.stats.relative_residual is None
    first, last = posterior.trace
    assert (first.iteration, last.iteration) == (0, 1)
    np.testing.assert_array_equal(first.variance, 2.0)
    np.testing.assert_array_equal(last.mean, posterior.mean)


@one_after_another
@pytest.mark.parametrize("kernel_class", KERNELS_AND_SUMS)
@pytest.mark.parametrize("lengthscale", [0.05, 0.6, 2.0])
def test_all_kernels(kernel_class, lengthscale):
    grid, y, observed = the_case("poles", "few")
    kernel = kernel_class(lengthscale=lengthscale, variance=2.0)
    posterior = solve(grid, y, observed=observed, covariance="full", kernel=kernel)
    mean, dense = expected_posterior(kernel, grid.latitude_degrees, y, observed, sphere(*TESTS.values()))
    assert_close(posterior.mean, mean, relative=1e-10)
    np.testing.assert_allclose(posterior.covariance, dense, rtol=0.0, atol=1e-11)


@pytest.mark.parametrize("name", ["no poles, odd Q", "irregular latitudes", "one latitude"])
def test_t28_held_out_points_by_the_inverse_of_the_whole_grid(name):
    """``y_m - mu_m = B [G^-1 b]_m`` with predictive covariance ``B = ([G^-1]_mm)^-1``, noise included."""
    problem = grid_problem(name)
    b, noise = problem.field(), float(problem.layout.noise[0])
    held_out = np.zeros(problem.grid.shape, dtype=bool)
    held_out.flat[np.random.default_rng(0).choice(problem.n, min(6, problem.n // 2), replace=False)] = True
    m = np.flatnonzero(held_out)
    units = np.zeros((len(m), problem.n))
    units[np.arange(len(m)), m] = 1.0
    inverse = problem.rings.solve(units.reshape(-1, *problem.grid.shape)).reshape(len(m), -1)[:, m]
    B = np.linalg.inv(inverse)
    rows, columns = np.nonzero(held_out)
    posterior = solve(
        problem.grid,
        b,
        problem.layout.latitude[rows],
        problem.grid.longitude_degrees[columns],
        observed=~held_out,
        covariance="full",
        kernel=problem.kernel,
        noise=noise,
    )
    error = b[held_out] - posterior.mean
    assert_close(B @ problem.rings.solve(b)[held_out], error, relative=1e-10)
    assert_close(B, posterior.covariance + noise * np.eye(len(m)), relative=1e-10)
    # and both are the dense posterior
    rest = np.flatnonzero(~held_out)
    weights = np.linalg.solve(problem.G[np.ix_(rest, rest)], problem.K[np.ix_(rest, m)])
    assert_close(posterior.mean, weights.T @ b.ravel()[rest], relative=1e-10)


def test_one_point_held_out_is_leave_one_out():
    problem = grid_problem("no poles, odd Q")
    b, noise = problem.field(), float(problem.layout.noise[0])
    loo = problem.rings.leave_one_out(b)
    for row, column in ((0, 0), (3, 5), (7, 12)):
        observed = np.ones(problem.grid.shape, dtype=bool)
        observed[row, column] = False
        place = [problem.layout.latitude[row]], [problem.grid.longitude_degrees[column]]
        posterior = solve(problem.grid, b, *place, observed=observed, kernel=problem.kernel, noise=noise)
        assert posterior.mean[0] == pytest.approx(loo.mean[row, column], rel=1e-10)
        assert posterior.variance[0] + noise == pytest.approx(loo.variance[row, column], rel=1e-10)


@pytest.mark.parametrize("first", [-180.0, 7.5])
@pytest.mark.parametrize("mask", ["whole", "few", "half"])
def test_grids_that_begin_at_another_longitude(first, mask):
    latitude, Q = GRIDS["no poles"]
    grid = cagp.LatLonGrid(latitude, Q, first_longitude_degrees=first)
    _, y, observed = the_case("no poles", mask)
    posterior = solve(grid, y, observed=observed, covariance="full")
    turned = sphere(TESTS["latitude"], TESTS["longitude"] - first)
    mean, dense = expected_posterior(cagp.Matern32(0.6, 2.0), latitude, y, observed, turned)
    assert_close(posterior.mean, mean, relative=1e-10)
    np.testing.assert_allclose(posterior.covariance, dense, rtol=0.0, atol=1e-12)


def test_the_field_that_was_given_stays_as_it_was():
    """Gaps and unequal copies of poles included; and all bits of NaN are NaN."""
    grid, y, observed = the_case("poles", "few")
    reference = solve(grid, y, observed=observed)
    y[~observed] = np.nan
    blank = y.copy()
    posterior = solve(grid, y)
    np.testing.assert_array_equal(posterior.mean, reference.mean)
    np.testing.assert_array_equal(posterior.variance, reference.variance)
    np.testing.assert_array_equal(y, blank)  # the caller's array stays as it was, poles included
    y[~observed] = np.copysign(np.nan, -1.0)
    np.testing.assert_array_equal(solve(grid, y).mean, reference.mean)


def test_copies_of_a_pole_are_one_observation():
    """Q equal copies do not make a pole Q times as certain; unequal ones count as their mean."""
    Q = GRIDS["a pole and a ring"][1]
    grid, y, _ = the_case("a pole and a ring", "whole")
    y[1] = 0.0
    observed = np.zeros((2, Q), dtype=bool)
    observed[0, 2:5] = True
    posterior = solve(grid, y, [-90.0], [123.0], observed=observed, kernel=cagp.Matern12(0.3, 2.0))
    assert posterior.mean[0] == pytest.approx(y[0, 2:5].mean() * 2.0 / (2.0 + NOISE), rel=1e-12)
    assert posterior.variance[0] == pytest.approx(2.0 - 4.0 / (2.0 + NOISE), rel=1e-12)


def test_several_fields_share_the_variance():
    grid, y, observed = the_case("poles, odd, descending", "few", 3)
    together = solve(grid, y, observed=observed)
    assert together.mean.shape == (10, 3)
    assert together.variance.shape == (10,)
    for t, field in enumerate(y):
        alone = solve(grid, field, observed=observed)
        assert_close(together.mean[:, t], alone.mean, relative=1e-12)
        np.testing.assert_allclose(together.variance, alone.variance, rtol=0.0, atol=1e-14)
    one = solve(grid, y[:1], observed=observed)
    assert one.mean.shape == (10, 1)
    assert one.trace[0].mean.shape == (10, 1)


@pytest.mark.parametrize(
    "mean",
    [3.0, lambda X: 3.0 + X[:, 2], lambda X: np.multiply.outer(X[:, 2], [1.0, -2.0])],
    ids=["number", "function", "function by field"],
)
def test_the_prior_mean_is_taken_off_and_put_back(mean):
    grid, y, observed = the_case("poles", "few", 2)
    points = sphere(*TESTS.values())
    X = ring_points(grid.latitude_degrees, grid.n_longitudes)
    at_grid = np.broadcast_to(cagp.Prior(cagp.Matern12(1.0), 1.0, mean).mean_at(X), (len(X), 2))
    at_points = cagp.Prior(cagp.Matern12(1.0), 1.0, mean).mean_at(points)
    residuals = y - at_grid.T.reshape(y.shape)
    posterior = solve(grid, y, observed=observed, mean=mean)
    expected, _ = expected_posterior(
        cagp.Matern32(0.6, 2.0), grid.latitude_degrees, residuals, observed, points
    )
    assert_close(posterior.mean, at_points + expected, relative=1e-10)
    np.testing.assert_allclose(posterior.trace[0].mean, np.broadcast_to(at_points, (10, 2)), rtol=1e-13)


def test_one_field_and_a_mean_that_is_a_function_give_a_vector():
    grid, y, observed = the_case("poles", "few")
    posterior = solve(grid, y, observed=observed, mean=lambda X: X[:, 2])
    assert posterior.mean.shape == (10,)
    assert posterior.trace[0].mean.shape == (10,)


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_no_test_points(covariance):
    grid, y, observed = the_case("poles", "few")
    posterior = solve(grid, y, [], [], observed=observed, covariance=covariance)
    assert posterior.mean.shape == posterior.variance.shape == (0,)
    assert covariance == "diagonal" or posterior.covariance.shape == (0, 0)


def test_longitudes_come_in_any_convention():
    grid, y, observed = the_case("poles", "few")
    longitude = np.array([-180.0, -90.0, -1e-12, 0.0, 179.0, 33.3])
    latitude = np.full(6, 12.0)
    reference = solve(grid, y, latitude, longitude, observed=observed)
    for turn in (360.0, -360.0, 720.0):
        posterior = solve(grid, y, latitude, longitude + turn, observed=observed)
        np.testing.assert_allclose(posterior.mean, reference.mean, rtol=0.0, atol=1e-12)
        np.testing.assert_allclose(posterior.variance, reference.variance, rtol=0.0, atol=1e-12)


@given(
    bits=st.integers(1, 2**20 - 1),
    latitude=st.lists(st.floats(-90.0, 90.0), min_size=1, max_size=4),
    longitude=st.floats(-360.0, 720.0),
)
def test_any_mask_and_any_test_points(bits, latitude, longitude):
    axis = np.array([-90.0, -10.0, 20.0, 88.0])
    observed = np.array([bool(bits >> i & 1) for i in range(20)]).reshape(4, 5)
    y = np.random.default_rng(0).normal(size=(4, 5))
    turned = longitude + 72.0 * np.arange(len(latitude))
    posterior = solve(cagp.LatLonGrid(axis, 5), y, latitude, turned, observed=observed, covariance="full")
    mean, dense = expected_posterior(
        cagp.Matern32(0.6, 2.0), axis, y, observed, sphere(np.array(latitude), turned)
    )
    np.testing.assert_allclose(posterior.mean, mean, rtol=0.0, atol=1e-8)
    np.testing.assert_allclose(posterior.covariance, dense, rtol=0.0, atol=1e-8)


@pytest.mark.parametrize("mask", ["whole", "few", "half"])
def test_executors_change_no_bit(mask):
    grid, y, observed = the_case("poles", mask, 2)
    reference = solve(grid, y, observed=observed, covariance="full")
    for workers in (1, 2, 3):
        with ThreadExecutor(workers) as executor:
            posterior = solve(grid, y, observed=observed, covariance="full", executor=executor)
        np.testing.assert_array_equal(posterior.mean, reference.mean)
        np.testing.assert_array_equal(posterior.covariance, reference.covariance)
    default = solve(grid, y, observed=observed, covariance="full", executor=None)
    np.testing.assert_array_equal(default.mean, reference.mean)


def test_more_than_fits_into_memory_is_refused():
    class Cramped(SerialExecutor):
        memory_bytes = 10_000

    grid, y, _ = the_case("poles", "whole")
    with pytest.raises(BudgetError) as refusal:
        solve(grid, y, executor=Cramped())
    assert refusal.value.key == "memory"


def test_noise_below_rounding_is_an_error():
    grid = cagp.LatLonGrid(np.linspace(-80.0, 80.0, 9), 16)
    with pytest.raises(NumericalError) as refusal:
        solve(grid, np.zeros((9, 16)), kernel=cagp.SquaredExponential(3.0), noise=1e-25)
    assert refusal.value.key == "not-positive-definite"


@one_after_another
@pytest.mark.parametrize(
    ("change", "key"),
    [
        (
            {"grid": np.zeros((3, 3))},
            "shapes",
        ),
        ({"y": np.zeros((10, 7))}, "shapes"),
        ({"y": np.zeros(70)}, "shapes"),
        ({"y": np.zeros((0, 7, 10))}, "shapes"),
        ({"y": np.full((7, 10), 1j)}, "no-numbers"),
        (
            {"y": np.full((7, 10), np.nan)},
            "nothing-observed",
        ),
        ({"y": np.full((7, 10), np.inf)}, "infinite"),
        ({"latitude": [91.0], "longitude": [0.0]}, "latitude-range"),
        ({"latitude": [0.0], "longitude": [np.nan]}, "not-finite"),
        ({"latitude": [0.0, 1.0], "longitude": [0.0]}, "shapes"),
        ({"covariance": "half"}, "covariance-unknown"),
    ],
)
def test_bad_input_is_refused(change, key):
    grid, y, _ = the_case("poles", "few")
    with pytest.raises(ArgumentError) as refusal:
        solve(**{"grid": grid, "y": y, **change})
    assert refusal.value.key == key


def test_a_prior_that_is_none_is_refused():
    grid, y, _ = the_case("poles", "few")
    with pytest.raises(ArgumentError) as refusal:
        cagp.condition(cagp.Matern32(1.0), grid, y, grid, solver=cagp.Rings())
    assert refusal.value.key == "prior-type"


def test_infinite_values_are_refused_beside_gaps():
    grid, y, observed = the_case("no poles", "few")
    y[~observed] = np.nan
    y[np.nonzero(observed)[0][:3], np.nonzero(observed)[1][:3]] = np.inf
    with pytest.raises(ArgumentError) as refusal:
        solve(grid, y)
    assert refusal.value.key == "infinite"


def test_a_masked_array_is_told_how_to_be_given():
    grid = cagp.LatLonGrid([-30.0, 0.0, 30.0], 4)
    y = np.ma.masked_greater(np.arange(12.0).reshape(grid.shape), 10.0)
    with pytest.raises(ArgumentError) as refusal:
        conditioned(grid, y, grid)
    assert refusal.value.key == "masked-entries"
    posterior = conditioned(grid, y.filled(np.nan), grid)
    assert posterior.mean.shape == grid.shape


def test_fields_with_different_gaps_are_solved_each_with_its_own():
    grid, y, _ = the_case("no poles", "whole", 3)
    y[:, 2, 3] = np.nan
    shared = solve(grid, y)
    assert shared.mean.shape == (10, 3)
    assert shared.variance.shape == (10,)
    y[1, 4, 0] = np.nan
    posterior = solve(grid, y)
    assert posterior.mean.shape == posterior.variance.shape == (10, 3)
    for t in range(3):
        mean, covariance = expected_posterior(
            cagp.Matern32(0.6, 2.0), grid.latitude_degrees, y[t], np.isfinite(y[t]), sphere(*TESTS.values())
        )
        assert_close(posterior.mean[:, t], mean, relative=1e-10)
        np.testing.assert_allclose(posterior.variance[:, t], covariance.diagonal(), rtol=0.0, atol=1e-12)


@one_after_another
@pytest.mark.parametrize("case", CASES)
def test_the_grid_itself_as_target(case):
    """Means (P, Q) and variances (P, Q) are those at its points, one after the other."""
    grid, y, observed = the_case(*case, 2)
    field = np.where(observed, y, np.nan)
    posterior = conditioned(grid, field, grid)
    mean, dense = expected_posterior(cagp.Matern32(0.6, 2.0), grid.latitude_degrees, y, observed, grid.points)
    assert posterior.mean.shape == (2, *grid.shape)
    assert posterior.variance.shape == grid.shape
    assert_close(posterior.mean.reshape(2, -1).T, mean, relative=1e-10)
    np.testing.assert_allclose(posterior.variance.ravel(), np.diag(dense), rtol=0.0, atol=1e-12)
    one = conditioned(grid, field[0], grid)
    assert one.mean.shape == grid.shape
    assert_close(one.mean, posterior.mean[0], relative=1e-12)
    first, last = one.trace
    assert first.mean.shape == last.mean.shape == first.variance.shape == grid.shape


@pytest.mark.parametrize("mask", ["whole", "few"])
def test_another_grid_as_target(mask):
    grid, y, observed = the_case("poles", mask)
    other = cagp.LatLonGrid([90.0, 33.0, -12.0], 4, first_longitude_degrees=-180.0)
    posterior = conditioned(grid, np.where(observed, y, np.nan), other, covariance="full")
    mean, dense = expected_posterior(
        cagp.Matern32(0.6, 2.0), grid.latitude_degrees, y, observed, other.points
    )
    assert_close(posterior.mean, mean.reshape(3, 4), relative=1e-10)
    np.testing.assert_allclose(posterior.covariance, dense, rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(posterior.variance.ravel(), np.diag(dense), rtol=0.0, atol=1e-12)
