"""A lengthscale for each coordinate: oracle, gradients, equivariance, recovery, what is refused."""

from types import SimpleNamespace

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.likelihood.bounds import Bounds, Scales, make_bounds
from cagp_dist.likelihood.exact.dense_likelihood import DenseLikelihood
from cagp_dist.likelihood.exact.likelihood_evaluation import information
from cagp_dist.likelihood.exact.profile_likelihood import DIFFERENCE, Counter, ProfileLikelihood
from cagp_dist.likelihood.numbering import Model, Numbering
from cagp_dist.likelihood.observed import ResidualsAtPoints
from cagp_dist.likelihood.starts import make_starts, make_sum_starts
from cagp_dist.likelihood.uncertainty import uncertainty
from cagp_dist.runtime import SerialExecutor

from ..oracle import KERNELS, assert_close, kernel_matrix
from .textbook import curvature, slope

pytestmark = pytest.mark.usefixtures("one_blas_thread")

LIMIT = 2**30
SETTINGS = {"executor": SerialExecutor(), "memory_limit_bytes": LIMIT}
UNITS = np.array([1.0, 64.0, 0.125])
"""Of the coordinates."""


def textbook(families, X, residuals, x):
    """Sum of log N(b | 0, G): x holds logarithms of lengthscales, part by part, variances and the noise."""
    from scipy.stats import multivariate_normal

    parts, p = len(families), X.shape[1]
    numbers = np.exp(x)
    lengthscales = numbers[: parts * p].reshape(parts, p)
    G = numbers[-1] * np.eye(len(X))
    for family, own, variance in zip(families, lengthscales, numbers[parts * p : -1], strict=True):
        G += kernel_matrix(family(1.0, variance), X / own, X / own)
    return float(np.sum(multivariate_normal(np.zeros(len(X)), G).logpdf(residuals.T)))


@pytest.mark.parametrize(
    ("families", "n"),
    [
        *(((family,), 50) for family in KERNELS),
        ((cagp.Matern12, cagp.Matern52), 60),
        ((cagp.Matern32,), 300),  # more than a strip
    ],
    ids=lambda value: "+".join(family.__name__ for family in value) if isinstance(value, tuple) else None,
)
def test_value_gradient_and_curvature_are_those_of_the_dense_log_likelihood(families, n):
    rng, p = np.random.default_rng(n), 3
    X, residuals = rng.uniform(size=(n, p)) * UNITS, rng.normal(size=(n, 2))
    lengthscales = np.geomspace(0.2, 0.9, len(families) * p).reshape(-1, p) * UNITS
    numbers, variance = [*lengthscales.ravel(), *[2.5] * (len(families) - 1), 0.1], 1.7
    model = Model(families, p)
    likelihood = DenseLikelihood(model, X, residuals, memory_limit_bytes=LIMIT)
    x = np.log([*lengthscales.ravel(), variance, *[2.5 * 1.7] * (len(families) - 1), 0.1 * 1.7])
    natural = model.numbering.natural
    assert np.log(model.numbering.parameters(numbers, variance)) == pytest.approx(x)

    def value(x):
        return textbook(families, X, residuals, x)

    found = likelihood.evaluate(*numbers)
    assert found.log_likelihood(variance) == pytest.approx(value(x), rel=1e-11)
    if n < 100:
        assert_close(natural.T @ found.gradient(variance), slope(value, x), relative=1e-7)
        second = information(
            lambda x: likelihood.evaluate(*np.exp(x)), np.log(numbers), variance, step=DIFFERENCE
        )
        assert_close(natural.T @ second @ natural, -curvature(value, x), relative=5e-5)
    else:
        # central differences of the value that was compared just now

        def own_value(x):
            return likelihood.evaluate(*np.exp(x)).log_likelihood(variance)

        by_numbers = np.delete(found.gradient(variance), model.numbering.lengthscales)
        assert_close(by_numbers, slope(own_value, np.log(numbers), 1e-3), relative=1e-6)


@pytest.mark.parametrize("families", [(cagp.Matern32,), (cagp.Matern12, cagp.Matern52)], ids=["one", "sum"])
def test_equal_lengthscales_are_one_lengthscale(families):
    """The same value, and by the shared lengthscale the sum of the gradients by those of the coordinates."""
    X, residuals = (
        np.random.default_rng(0).uniform(size=(80, 3)),
        np.random.default_rng(1).normal(size=(80, 1)),
    )
    parts = len(families)
    lengthscales, others = np.array([0.3, 0.8][:parts]), [0.5] * parts
    shared = DenseLikelihood(families, X, residuals, memory_limit_bytes=LIMIT).evaluate(
        *lengthscales, *others
    )
    own = DenseLikelihood(Model(families, 3), X, residuals, memory_limit_bytes=LIMIT).evaluate(
        *np.repeat(lengthscales, 3), *others
    )
    assert own.log_likelihood(1.3) == pytest.approx(shared.log_likelihood(1.3), rel=1e-12)
    gradient = own.gradient(1.3)
    together = [*gradient[: 3 * parts].reshape(parts, 3).sum(axis=1), *gradient[3 * parts :]]
    assert_close(np.array(together), shared.gradient(1.3), relative=1e-9)


def problem(n, fields=1, seed=0):
    """Points, residuals and numbers in three coordinates of different units."""
    rng = np.random.default_rng([n, seed])
    X = rng.uniform(size=(n, 3)) * [1.0, 50.0, 2.0]
    G = kernel_matrix(cagp.Matern32((0.4, 40.0, 4.0)), X, X) + 0.1 * np.eye(n)
    return X, np.linalg.cholesky(G) @ rng.normal(size=(n, fields)), (0.4, 40.0, 4.0, 0.1)


def assert_recovered(result, truth):
    """Within four standard errors of each logarithm: one of 40 fits with 4 numbers fails once in 100."""
    assert result.status is cagp.FitStatus.CONVERGED
    parts = result.prior.kernel.parts
    values = [number for part in parts for number in part.lengthscale]
    values += [*(part.variance for part in parts), result.prior.noise_variance]
    deviation = np.log(np.array(values) / truth) / np.sqrt(np.diag(result.log_covariance))
    assert (np.abs(deviation) < 4.0).all()


def test_lengthscales_follow_their_coordinates():
    """Whatever the order and the units of the coordinates; and they are found."""
    X, y, _ = problem(250, fields=2)
    order, units = [2, 0, 1], np.array([0.125, 1024.0, 3.0])
    found, moved = (
        cagp.fit(cagp.Matern32, points, y, mean=0.0, starts=1, anisotropic=True)
        for points in (X, X[:, order] * units)
    )
    assert_recovered(found, [0.4, 40.0, 4.0, 1.0, 0.1])
    # the same climb but for rounding; it ends where the log likelihood rises by less than 1e-5
    expected = np.array(found.prior.kernel.lengthscale)[order] * units
    np.testing.assert_allclose(moved.prior.kernel.lengthscale, expected, rtol=1e-4)
    errors = np.array(found.standard_errors.lengthscale)[order] * units
    np.testing.assert_allclose(moved.standard_errors.lengthscale, errors, rtol=1e-3)
    assert moved.prior.kernel.variance == pytest.approx(found.prior.kernel.variance, rel=1e-4)
    assert moved.prior.noise_variance == pytest.approx(found.prior.noise_variance, rel=1e-4)
    assert found.log_covariance.shape == (5, 5)
    assert found.standard_errors.lengthscale[0] == pytest.approx(
        found.prior.kernel.lengthscale[0] * np.sqrt(found.log_covariance[0, 0])
    )
    one = cagp.fit(cagp.Matern32, X, y, mean=0.0, starts=1)
    assert found.log_likelihood > one.log_likelihood + 50.0


@pytest.mark.exhaustive
@pytest.mark.parametrize("generator", [np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64])
@pytest.mark.parametrize(
    "kernel",
    [
        cagp.Matern12((0.1, 0.4), 4.0),
        cagp.Matern32((0.1, 0.4), 4.0),
        cagp.Matern52((0.4, 0.1), 4.0),
        cagp.SquaredExponential((0.1, 0.4), 4.0),
        cagp.Matern32((0.05, 0.2), 2.0) + cagp.Matern32((1.6, 0.4), 8.0),
    ],
    ids=str,
)
def test_recovery_from_several_generators(generator, kernel):
    rng = np.random.Generator(generator(7))
    X = rng.uniform(size=(500, 2))
    y = np.linalg.cholesky(kernel_matrix(kernel, X, X) + 0.1 * np.eye(500)) @ rng.standard_normal((500, 6))
    families = tuple(type(part) for part in kernel.parts)
    truth = [number for part in kernel.parts for number in part.lengthscale]
    result = cagp.fit(families, X, y, mean=0.0, anisotropic=True)
    assert_recovered(result, [*truth, *(part.variance for part in kernel.parts), 0.1])


@pytest.mark.exhaustive
def test_many_points_are_fitted_like_few():
    """5,000 points, coordinates of very different units: within 4 standard errors of the truth."""
    rng = np.random.default_rng(5)
    X = rng.uniform(size=(5000, 2)) * [1.0, 1e4]
    kernel = cagp.Matern32((0.1, 4000.0), 4.0)
    y = np.linalg.cholesky(kernel_matrix(kernel, X, X) + 0.2 * np.eye(5000)) @ rng.normal(size=5000)
    assert_recovered(cagp.fit(cagp.Matern32, X, y, mean=0.0, anisotropic=True), [0.1, 4000.0, 4.0, 0.2])


def test_a_coordinate_on_which_nothing_depends_ends_at_its_bound():
    rng = np.random.default_rng(2)
    X = rng.uniform(size=(200, 3)) * [1.0, 8.0, 0.5]
    y = np.sin(6.0 * X[:, 0]) * np.cos(9.0 * X[:, 2]) + 0.1 * rng.normal(size=200)
    told = []
    result = cagp.fit(cagp.Matern52, X, y, anisotropic=True, starts=1, progress=told.append)
    assert result.status is cagp.FitStatus.AT_BOUND
    assert result.at_bound == ("lengthscale_2",)
    assert result.prior.kernel.lengthscale[1] == pytest.approx(100.0 * np.ptp(X[:, 1]))
    assert np.isnan(result.standard_errors.lengthscale[1])
    assert result.standard_errors.lengthscale[0] > 0.0
    assert {len(step.lengthscale) for step in told} == {3}


def test_a_lengthscale_of_one_part_can_be_held():
    X, y, _ = problem(120)
    result = cagp.fit(
        (cagp.Matern32, cagp.Matern12),
        X,
        y,
        anisotropic=True,
        starts=1,
        bounds={
            "lengthscale": (((0.1, 0.1), (1.0, 100.0), (1.0, 90.0)), (0.5, 500.0)),
            "variance": (0.5, 0.5),
        },
        start={"lengthscale": ((0.1, 20.0, 5.0), 2.0)},
    )
    first, second = result.prior.kernel.parts
    assert first.lengthscale[0] == pytest.approx(0.1, rel=1e-12)
    assert np.isnan(result.standard_errors.lengthscale[0][0])
    assert all(0.5 * 0.999 < number < 500.0 * 1.001 for number in second.lengthscale)
    assert result.standard_errors.variance == (pytest.approx(np.nan, nan_ok=True),) * 2
    assert result.log_covariance.shape == (9, 9)


@pytest.mark.parametrize("held", ["variance_2", "noise_variance"])
def test_slope_and_standard_errors_where_a_variance_is_held(held):
    """The profile's slope is that of its value, and a weight on its limit is told by the name of its part."""
    X, residuals, _ = problem(60)
    likelihood = DenseLikelihood(
        Model((cagp.Matern32, cagp.Matern12), 3), X, residuals, memory_limit_bytes=LIMIT
    )
    wide, tight = (1e-6, 1e6), (0.3, 0.3)
    second, noise = (tight, wide) if held == "variance_2" else (wide, tight)
    profile = ProfileLikelihood(
        likelihood, Bounds((wide,) * 3, wide, noise, (((wide,) * 3, second),)), Counter(None)
    )
    x = np.log([0.4, 40.0, 4.0, 0.2, 10.0, 1.0, 2.5, 0.1])
    place = profile.at(x)
    assert place.follows == (1 if held == "variance_2" else 2)
    assert place.parameters[-2 if held == "variance_2" else -1] == pytest.approx(0.3)
    assert_close(place.slope, slope(lambda x: profile.at(x).log_likelihood, x), relative=1e-6)
    end = uncertainty(profile, place, 50.0 * np.eye(9))
    assert [np.isnan(error) for error in end.standard_errors.variance] == [False, held == "variance_2"]
    assert np.isnan(end.standard_errors.noise_variance) == (held == "noise_variance")
    assert end.at_bound == ()
    if held == "noise_variance":
        x[6] = profile.box[0, 6]  # the smallest weight
        assert uncertainty(profile, profile.at(x), 50.0 * np.eye(9)).at_bound == ("variance_2",)


SCALES = Scales(spacing=0.1, extent=1.0, power=4.0, sides=(2.0, 50.0))


def test_bounds_and_starts_follow_the_extent_of_each_coordinate():
    bounds = make_bounds(None, SCALES)
    np.testing.assert_allclose(bounds.lengthscales, [(0.04, 200.0), (1.0, 5000.0)])
    for start in make_starts(None, bounds, SCALES, starts=5):
        assert np.exp(start[1] - start[0]) == pytest.approx(25.0)
        assert np.log(0.2 * 2.0) <= start[0] <= np.log(0.5 * 2.0)
    guessed, *_ = make_starts(
        {"lengthscale": (0.5, 7.0), "variance": 2.0, "noise_variance": 0.5}, bounds, SCALES, starts=1
    )
    np.testing.assert_allclose(np.exp(guessed), (0.5, 7.0, 0.25))
    both, *_ = make_starts({"lengthscale": 3.0}, bounds, SCALES, starts=1)
    np.testing.assert_allclose(np.exp(both[:2]), (3.0, 3.0))
    given = {"lengthscale": ((1.0, 2.0), (3.0, 4.0)), "variance": (1.0, 9.0)}
    assert make_bounds(given, SCALES) == Bounds(
        ((1.0, 2.0), (3.0, 4.0)), (1.0, 9.0), make_bounds(None, SCALES).noise_variance
    )
    # of a sum pairs are those of the parts, and each may be one for each coordinate
    total = make_bounds({"lengthscale": ((1.0, 2.0), ((3.0, 4.0), (5.0, 6.0)))}, SCALES, Numbering.of(2, 2))
    assert total.lengthscales == ((1.0, 2.0), (1.0, 2.0), (3.0, 4.0), (5.0, 6.0))
    assert total.numbering == Numbering.of(2, 2)
    assert [
        low for low, _ in make_bounds(None, SCALES, Numbering.of(2, 2)).coarser(1.0, 30.0).lengthscales
    ] == [
        0.5,
        15.0,
        0.5,
        15.0,
    ]
    start, *_ = make_sum_starts(
        {"lengthscale": (3.0, (2.0, 70.0))},
        make_bounds(None, SCALES, Numbering.of(2, 2)),
        lambda: SimpleNamespace(parameters=(1.0, 20.0, 4.0, 0.2)),
        starts=1,
        mixed=False,
    )
    np.testing.assert_allclose(np.exp(start), (3.0, 3.0, 2.0, 70.0, 1.0, 0.05))


def test_names_and_order_of_numbers():
    assert Numbering.of(1, 2).names == ("lengthscale_1", "lengthscale_2", "variance", "noise_variance")
    assert Numbering.of(2, 2).names[:4] == (
        "lengthscale_1_1",
        "lengthscale_1_2",
        "lengthscale_2_1",
        "lengthscale_2_2",
    )
    assert Numbering.of(1, 1).names == Numbering().names
    assert Numbering.of(1, 1).grouped([0.5, 4.0, 0.1]) == (((0.5,),), (4.0,), 0.1)  # a tuple all the same
    x = np.log([0.5, 0.9, 8.0, 0.05, 3.0, 0.5])  # the second part is the shorter one by its geometric mean
    ordered = Model((cagp.Matern32, cagp.Matern32), 2).in_order(x)
    np.testing.assert_allclose(np.exp(ordered), (8.0, 0.05, 0.5, 0.9, 1.0 / 3.0, 0.5 / 3.0))


def test_points_are_thinned_to_neighbours_by_extents():
    """Units of the coordinates do not decide which points are neighbours."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(size=(2000, 2)), rng.normal(size=(2000, 1))
    plain, stretched = (
        ResidualsAtPoints(X * side, y, axes=(0, 1)).thinned(500) for side in ([1.0, 1.0], [1.0, 1024.0])
    )
    np.testing.assert_array_equal(plain.residuals, stretched.residuals)
    scales = stretched.scales()
    assert scales.spacing == pytest.approx(plain.scales().spacing)
    np.testing.assert_allclose(scales.sides, np.ptp(stretched.X, axis=0))


GRID = cagp.LatLonGrid(np.linspace(-60.0, 60.0, 5), 8)
X, Y, _ = problem(20)
REFUSED = {
    "grid": ((cagp.Matern32, GRID, GRID.points[:, 0].reshape(5, 8)), {}, "but the points lie on the unit"),
    "sphere": (
        (cagp.Matern32, GRID.points, GRID.points[:, 0]),
        {},
        "unit sphere.*one lengthscale, a chord, is",
    ),
    "constant": (
        (cagp.Matern32, np.column_stack([X[:, 0], np.full(20, 7.0)]), Y),
        {},
        "column 1 of X is 7 at all points, .* Leave that column out",
    ),
    "coincident": ((cagp.Matern32, np.ones((20, 2)), Y), {}, "all points coincide"),
    "start": (
        (cagp.Matern32, X, Y),
        {"start": {"lengthscale": (0.1, 1.0)}},
        r"start of lengthscale is \(0.1, 1.0\) for points of 3 coordinates; expected one number, or one",
    ),
    "start outside": (
        (cagp.Matern32, X, Y),
        {"start": {"lengthscale": (0.1, 1e9, 1.0)}},
        "start of lengthscale is 1e.09, outside its bounds",
    ),
    "bounds": (
        (cagp.Matern32, X, Y),
        {"bounds": {"lengthscale": ((0.1, 1.0),)}},
        r"expected \(lower, upper\), or 3 of these, one for each coordinate",
    ),
    "shared": (
        (cagp.Matern32, X, Y),
        {"anisotropic": False, "start": {"lengthscale": (0.1, 1.0)}},
        r"start of lengthscale is \(0.1, 1.0\); expected one number. With anisotropic=True",
    ),
    "instance": (
        (cagp.Matern32((0.1, 1.0)), X, Y),
        {},
        r"begin there give anisotropic=True, start=\{\"lengthscale\": \(0.1, 1.0\)\}",
    ),
}


@pytest.mark.parametrize(("given", "settings", "message"), REFUSED.values(), ids=list(REFUSED))
def test_what_does_not_fit_is_refused(given, settings, message):
    with pytest.raises(ArgumentError, match=message):
        cagp.fit(*given, **{"anisotropic": True, **settings})
