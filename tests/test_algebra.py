"""Products and sums of kernels on named axes, against formulas written out (math 23-25)."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.compiled import evaluate
from cagp_dist.errors import ArgumentError
from cagp_dist.factors import AnisotropicOf, CoregionOf
from cagp_dist.gram.metric import metric
from cagp_dist.kernels import point_columns
from cagp_dist.likelihood.bounds import Scales, make_bounds
from cagp_dist.likelihood.numbering import Model, Numbering
from cagp_dist.likelihood.starts import make_starts
from cagp_dist.prior import Prior
from cagp_dist.runtime import SerialExecutor, ThreadExecutor

RNG = np.random.default_rng(3)
HERE = cagp.unit_sphere(RNG.uniform(40.0, 55.0, 30), RNG.uniform(0.0, 20.0, 30))
HOURS, LABELS = RNG.uniform(0.0, 48.0, 30), RNG.integers(0, 3, 30)
B = np.array([[1.0, 0.6, -0.2], [0.6, 2.0, 0.3], [-0.2, 0.3, 0.5]])
CENTRE = (47.5, 10.0)


def points(*columns):
    return np.column_stack([HERE, *columns])


def matern32(u):
    return (1.0 + np.sqrt(3.0) * u) * np.exp(-np.sqrt(3.0) * u)


def distances(X):
    return np.linalg.norm(X[:, None] - X[None], axis=2)


def ellipse(X, length, ratio, azimuth, centre=None):
    """Distances of math 24, in units of the axes."""
    if centre is None:
        east, north, up = np.array([1.0, 0.0]), np.array([0.0, 1.0]), None
    else:
        phi, lam = np.deg2rad(centre)
        east = np.array([-np.sin(lam), np.cos(lam), 0.0])
        north = np.array([-np.sin(phi) * np.cos(lam), -np.sin(phi) * np.sin(lam), np.cos(phi)])
        up = np.array([np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)])
    alpha = np.deg2rad(azimuth)
    major, minor = np.sin(alpha) * east + np.cos(alpha) * north, np.cos(alpha) * east - np.sin(alpha) * north
    a, b = length * np.sqrt(ratio), length / np.sqrt(ratio)
    axes = [major / a, minor / b] + ([] if up is None else [up / length])
    return distances(X @ np.array(axes).T)


def cases():
    plane = RNG.uniform(0.0, 100.0, (30, 2))
    space, hours = distances(HERE), np.abs(HOURS[:, None] - HOURS)
    table, same = B[LABELS][:, LABELS], LABELS[:, None] == LABELS
    m32, m12 = cagp.Matern32(0.1, 2.0), cagp.Matern12(7.5, axis="time")
    rotated = cagp.Anisotropic(cagp.Matern32(20.0, 3.0), 4.0, 30.0)
    in_region = cagp.Anisotropic(cagp.Matern32(0.1, 3.0), 2.5, -20.0, centre=CENTRE)
    together = np.sqrt((space / 0.1) ** 2 + (hours / 7.5) ** 2)
    product = 2.0 * matern32(space / 0.1) * np.exp(-hours / 7.5)
    coregion = cagp.Coregion(B, axis="variable")
    day = cagp.Periodic(cagp.Matern32(8.0), 24.0)
    chords = 24.0 / np.pi * np.abs(np.sin(np.pi * hours / 24.0))
    stretched = 3.0 * matern32(ellipse(HERE, 0.1, 2.5, -20.0, CENTRE))
    return {
        "product": (m32 * m12, points(HOURS), product),
        "time before space": (m12 * m32, points(HOURS), product),
        "metric": (
            cagp.Matern32((0.1, 7.5), 2.0, axis=("space", "time")),
            points(HOURS),
            2.0 * matern32(together),
        ),
        "time alone": (replace(m12, variance=4.0), points(HOURS), 4.0 * np.exp(-hours / 7.5)),
        "constant in time": (m32 * m12 + m32, points(HOURS), product + 2.0 * matern32(space / 0.1)),
        "cycle": (m32 * day, points(HOURS), 2.0 * matern32(space / 0.1) * matern32(chords / 8.0)),
        "labels": (m32 * coregion, points(LABELS), 2.0 * matern32(space / 0.1) * table),
        "three factors": (m32 * m12 * coregion, points(HOURS, LABELS), product * table),
        "a factor of a sum": (
            (m32 + cagp.Matern12(0.5)) * coregion,
            points(LABELS),
            (2.0 * matern32(space / 0.1) + np.exp(-space / 0.5)) * table,
        ),
        "shared errors": (
            m32 + cagp.SameLabel(0.7, axis="ship"),
            points(LABELS),
            2.0 * matern32(space / 0.1) + 0.7 * same,
        ),
        "ellipse": (rotated, plane, 3.0 * matern32(ellipse(plane, 20.0, 4.0, 30.0))),
        "two ellipses": (
            rotated + cagp.Anisotropic(cagp.Matern32(5.0), 2.0, 100.0),
            plane,
            3.0 * matern32(ellipse(plane, 20.0, 4.0, 30.0)) + matern32(ellipse(plane, 5.0, 2.0, 100.0)),
        ),
        "ellipse in a region": (in_region, HERE, stretched),
        "ellipse and labels": (in_region * coregion, points(LABELS), stretched * table),
        "ellipse and circle": (in_region + cagp.Matern32(0.05), HERE, stretched + matern32(space / 0.05)),
    }


CASES = cases()


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_the_formula(name):
    kernel, X, expected = CASES[name]
    np.testing.assert_allclose(kernel(X, X), expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(kernel.diagonal(X), expected.diagonal(), rtol=1e-13)
    np.testing.assert_array_equal(kernel(X[:7], X[3:]), kernel(X, X)[:7, 3:])  # whatever else is evaluated
    assert np.linalg.eigvalsh(expected).min() > -1e-9
    rescaled = 3.0 * kernel
    np.testing.assert_allclose(rescaled(X, X), 3.0 * expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", [name for name in CASES if name != "time alone"])
def test_slopes_are_those_of_differences(name):
    kernel, X, _ = CASES[name]
    model = Model.of(tuple(part.family for part in kernel.parts))
    numbers = np.array(
        [*(n for part in kernel.parts for n in part.numbers), *(p.variance for p in kernel.parts[1:]), 0.1]
    )
    slopes = model.derivatives(numbers.tolist())
    assert len(slopes) == len(numbers) - 1
    columns, step = point_columns(X), 1e-6
    for at, slope in enumerate(slopes):
        found = np.empty((len(X), len(X)))
        evaluate(*slope, columns, columns, found)
        up, down = numbers.copy(), numbers.copy()
        up[at], down[at] = numbers[at] * np.exp(step), numbers[at] * np.exp(-step)
        expected = (model.unit(up.tolist())(X, X) - model.unit(down.tolist())(X, X)) / (2.0 * step)
        np.testing.assert_allclose(found, expected, atol=2e-8)


def test_families_make_the_kernel_again():
    kernel = CASES["ellipse in a region"][0]
    again = kernel.family(kernel.numbers, kernel.variance)
    assert again.ratio == pytest.approx(2.5)
    assert again.azimuth_degrees == pytest.approx(160.0)
    assert isinstance(kernel.family, AnisotropicOf)
    table = cagp.Coregion(B)
    np.testing.assert_allclose(CoregionOf(3)(table.numbers).matrix, B, atol=1e-10)
    product = CASES["three factors"][0]
    assert product.number_names[:2] == ("lengthscale", "lengthscale_time")
    np.testing.assert_allclose(
        product.family(product.numbers, 2.0)(*[CASES["three factors"][1]] * 2),
        CASES["three factors"][2],
        rtol=1e-9,
    )


@pytest.mark.parametrize("name", ["three factors", "two ellipses", "shared errors"])
def test_every_solver_has_the_posterior_of_the_dense_formula(name):
    kernel, X, covariance = CASES[name]
    y = np.random.default_rng(1).normal(size=20)
    prior = Prior(kernel, 0.3, 1.0)
    G = covariance[:20, :20] + 0.3 * np.eye(20)
    weights = np.linalg.solve(G, covariance[:20, 20:]).T
    mean = 1.0 + weights @ (y - 1.0)
    variance = covariance.diagonal()[20:] - np.einsum("ij,ji->i", weights, covariance[:20, 20:])
    for solver in (
        cagp.Cholesky(),
        cagp.ConjugateGradient(60),
        cagp.BlockGaussSeidel(400),
        cagp.Neighbours(20),
    ):
        found = cagp.condition(prior, X[:20], y, X[20:], solver=solver)
        np.testing.assert_allclose(found.mean, mean, atol=1e-6)
        np.testing.assert_allclose(found.variance, variance, atol=1e-6)


def test_a_vanished_tile_is_left_out_of_no_other_label():
    # far apart in space, so that tiles vanish; a shared error is there all the same
    far = np.array([[0.0, 0.0, 0.0], [1e6, 0.0, 0.0]])
    X = np.repeat(np.column_stack([far, [0.0, 0.0]]), 300, axis=0)
    kernel = cagp.Matern32(1.0) + cagp.SameLabel(0.5, axis="ship")
    np.testing.assert_array_equal(kernel(X, X)[0, 300:], 0.5)


@pytest.mark.parametrize(
    ("key", "make"),
    [
        ("coregion-shape", lambda: cagp.Coregion([[1.0, 0.5]])),
        ("coregion-symmetric", lambda: cagp.Coregion([[1.0, 0.5], [0.4, 1.0]])),
        ("coregion-indefinite", lambda: cagp.Coregion([[1.0, 2.0], [2.0, 1.0]])),
        ("anisotropy-ratio", lambda: cagp.Anisotropic(cagp.Matern32(1.0), 0.5, 0.0)),
        ("anisotropy-azimuth", lambda: cagp.Anisotropic(cagp.Matern32(1.0), 2.0, 400.0)),
        ("kernel-type", lambda: cagp.Anisotropic(cagp.Matern32(1.0) + cagp.Matern12(1.0), 2.0, 0.0)),
        ("lengthscale-one", lambda: cagp.Anisotropic(cagp.Matern32((1.0, 2.0)), 2.0, 0.0)),
        ("kernel-product", lambda: cagp.Matern32(1.0) * cagp.Matern12(1.0)),
        ("kernel-axis", lambda: cagp.Matern32((1.0, 2.0), axis="time")),
        pytest.param("kernel-axis", lambda: cagp.SameLabel(1.0, axis="time"), id="a label of time"),
        ("anisotropy-centre", lambda: cagp.Anisotropic(cagp.Matern32(1.0), 2.0, 0.0, centre=(480.0, 0.0))),
        ("anisotropy-region", lambda: CASES["ellipse in a region"][0](-HERE, HERE)),
        (
            "kernel-of-space",
            lambda: (cagp.Anisotropic(cagp.Matern32(0.1), 2.0, 0.0) * cagp.Matern12(5.0, axis="time"))(
                points(HOURS), points(HOURS)
            ),
        ),
        pytest.param(
            "kernel-of-space",
            lambda: (
                cagp.Anisotropic(cagp.Matern32(0.1), 2.0, 0.0) * cagp.Matern12(5.0, axis="time")
                + cagp.Anisotropic(cagp.Matern32(0.1), 2.0, 0.0, centre=CENTRE)
            ),
            id="a plane and the globe",
        ),
        ("columns", lambda: CASES["product"][0](HERE, HERE)),
        ("label-range", lambda: CASES["labels"][0](points(LABELS), points(LABELS + 1.0))),
        pytest.param(
            "label-range",
            lambda: CASES["labels"][0](points(LABELS + 0.5), points(LABELS)),
            id="half a label",
        ),
        ("unit-vectors", lambda: CASES["product"][0](2.0 * points(HOURS), points(HOURS))),
    ],
)
def test_what_is_no_kernel_is_refused(key, make):
    with pytest.raises(ArgumentError) as caught:
        make()
    assert caught.value.key == key


def test_two_coordinates_make_an_ellipse_of_two_lengthscales():
    X = RNG.uniform(0.0, 50.0, (20, 2))
    along = cagp.Anisotropic(cagp.Matern32(10.0, 2.0), 4.0, 90.0)
    np.testing.assert_allclose(along(X, X), cagp.Matern32((20.0, 5.0), 2.0)(X, X), rtol=1e-12)
    ratios = [cagp.Anisotropic(cagp.Matern32(10.0), 3.0, azimuth)(X, X) for azimuth in (20.0, 200.0, -160.0)]
    for one, other in pairwise(ratios):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def drawn_fields(kernel, X, noise, seed):
    generator = np.random.default_rng(seed)
    root = np.linalg.cholesky(kernel(X, X) + noise * np.eye(len(X)))
    return root @ generator.normal(size=len(X))


def test_numbers_of_tables_and_shared_errors_are_fitted():
    generator = np.random.default_rng(5)
    places = cagp.unit_sphere(generator.uniform(40.0, 55.0, 200), generator.uniform(0.0, 20.0, 200))
    X = np.column_stack([np.tile(places, (2, 1)), np.repeat([0, 1], 200)])
    truth = cagp.Matern32(0.1, 2.0) * cagp.Coregion([[1.0, 1.6], [1.6, 4.0]])
    found = cagp.fit(truth.family, X, drawn_fields(truth, X, 0.1, 0), mean=0.0, starts=1)
    B = found.prior.kernel.factors[1].matrix
    # a correlation of 0.8 from some twenty independent values is known to 0.36 / sqrt(20); three of these
    assert abs(B[0, 1] / np.sqrt(B[1, 1]) - 0.8) < 0.24
    assert found.prior.kernel.number_names == ("lengthscale", "deviation_2", "angle_2_1")
    ships = np.column_stack([places, generator.integers(0, 40, 200)])
    truth = cagp.Matern32(0.1, 2.0) + cagp.SameLabel(1.0, axis="ship")
    y = drawn_fields(truth, ships, 0.1, 1)
    guess = {"lengthscale": (0.2, ()), "variance": (1.0, 0.3), "noise_variance": 0.2}
    families = tuple(part.family for part in truth.parts)
    found = cagp.fit(families, ships, y, mean=0.0, start=guess)
    # of 40 errors the variance is known to sqrt(2 / 40); three of these
    assert abs(np.log(found.prior.kernel.parts[1].variance)) < 0.67
    with pytest.raises(ArgumentError) as caught:
        cagp.fit(families, ships, y, mean=0.0)
    assert caught.value.key == "start-of-parts"


@pytest.mark.parametrize("name", ["three factors", "two ellipses", "shared errors"])
def test_error_bars_hold_what_they_say(name):
    """Squared errors over variances of 100 fields: their mean is 1 within three standard errors."""
    kernel, X, covariance = CASES[name]
    generator = np.random.default_rng(11)
    joint = covariance + 1e-10 * np.eye(len(X))
    fields = np.linalg.cholesky(joint) @ generator.normal(size=(len(X), 100))
    y = fields[:20] + np.sqrt(0.3) * generator.normal(size=(20, 100))
    found = cagp.condition(
        Prior(kernel, 0.3, 0.0), X[:20], y, X[20:], solver=cagp.Neighbours(8), covariance="full"
    )
    errors = np.linalg.solve(np.linalg.cholesky(found.covariance), fields[20:] - found.mean)
    # (10, 100) independent squares of normals
    assert abs(np.mean(errors**2) - 1.0) < 3.0 * np.sqrt(2.0 / 1000.0)


@pytest.mark.parametrize("name", ["three factors", "two ellipses", "shared errors"])
def test_executors_agree_to_the_bit(name):
    kernel, X, _ = CASES[name]
    y, prior = np.random.default_rng(1).normal(size=24), Prior(kernel, 0.3, 1.0)
    for solver in (cagp.Neighbours(6), cagp.BlockGaussSeidel(3, block_size=8), cagp.ConjugateGradient(5)):
        with ThreadExecutor(2) as threads:
            one, two = (
                cagp.condition(prior, X[:24], y, X[24:], solver=solver, executor=executor)
                for executor in (SerialExecutor(), threads)
            )
        np.testing.assert_array_equal(one.mean, two.mean)
        np.testing.assert_array_equal(one.variance, two.variance)


def test_a_target_shares_no_error():
    kernel, X, covariance = CASES["shared errors"]
    field = covariance - 0.7 * (LABELS[:, None] == LABELS)
    y, there = np.random.default_rng(2).normal(size=20), np.column_stack([HERE[20:], np.full(10, -1.0)])
    G = covariance[:20, :20] + 0.3 * np.eye(20)
    expected = field.diagonal()[20:] - np.einsum(
        "ij,ij->j", field[:20, 20:], np.linalg.solve(G, field[:20, 20:])
    )
    np.testing.assert_allclose(kernel.diagonal(there), 2.0)
    for solver in (cagp.Cholesky(), cagp.ConjugateGradient(60), cagp.Neighbours(20)):
        found = cagp.condition(Prior(kernel, 0.3, 0.0), X[:20], y, there, solver=solver)
        np.testing.assert_allclose(found.variance, expected, atol=1e-8)


@pytest.mark.parametrize("m", [1, 2, 3, 4, 5])
def test_tables_of_any_size_are_looked_up(m):
    """By comparing and by looking up; a label below zero goes with no other."""
    C = np.random.default_rng(m).normal(size=(m, m))
    table, labels = C @ C.T + np.eye(m), np.tile(np.arange(-1.0, m), 3)
    X = np.column_stack([np.tile([0.6, 0.0, 0.8], (len(labels), 1)), labels])  # one place
    expected = np.pad(table, (0, 1))[np.ix_(labels.astype(int), labels.astype(int))]  # -1: the last, zeros
    kernel = cagp.Matern32(0.1, 2.0) * cagp.Coregion(table)
    np.testing.assert_allclose(kernel(X, X), 2.0 * expected, rtol=1e-14)


def test_labels_far_apart_are_no_distance():
    generator, m = np.random.default_rng(1), 64
    C = generator.normal(size=(m, 3))
    kernel = cagp.Matern32(0.1) * cagp.Coregion(C @ C.T + 0.1 * np.eye(m))
    near = cagp.unit_sphere(generator.uniform(40.0, 41.0, 640), generator.uniform(0.0, 1.0, 640))
    X, y = np.column_stack([near, np.repeat(np.arange(m), 10)]), generator.normal(size=640)
    product = cagp.TiledGram(kernel, X, np.full(640, 0.1)) @ y
    np.testing.assert_allclose(product, kernel(X, X) @ y + 0.1 * y, atol=1e-9)


def test_neighbours_are_found_beside_a_large_shared_error():
    field = cagp.Matern32(0.1, 1.0) * cagp.Matern12(6.0, axis="time")
    alone, beside = metric(field, 4), metric(field + cagp.SameLabel(5.0, axis="ship"), 5)
    np.testing.assert_allclose(beside.rows[:, :4], np.diag(alone), rtol=1e-9)


def test_numbers_know_their_axes():
    day = cagp.Periodic(cagp.Matern52(8.0), 24.0)
    kernel = cagp.Matern32(0.1) * day * cagp.Matern12(240.0, axis="time") * cagp.Matern12(0.5)
    assert kernel.number_names == ("lengthscale", "lengthscale_time", "lengthscale_time_2", "lengthscale_2")
    model = Model.of(kernel.family)
    assert model.numbering.along == Numbering.of_kernel(kernel).along == ((0, 1, 1, 0),)
    bounds = make_bounds(None, Scales(0.1, 1.0, 1.0, (2.0, 300.0)), model.numbering)
    assert [high for _, high in bounds.lengthscales] == [200.0, 30000.0, 30000.0, 200.0]
    shaped = CASES["ellipse and labels"][0]
    assert Numbering.of_kernel(shaped).along[0][:3] == (0, None, None)
    guess = {"lengthscale": 0.3, "variance": 2.0, "noise_variance": 0.2}
    own = make_bounds(None, Scales(0.01, 1.0, 1.0, (1.0, 2.0)), Numbering.of_kernel(shaped))
    (start,) = make_starts(guess, own, Scales(0.01, 1.0, 1.0, (1.0, 2.0)), starts=1)
    np.testing.assert_allclose(np.exp(start[:4]), (0.3, 1.0, 1.0, 1.0))


def test_a_product_has_one_variance():
    time = cagp.Matern12(7.5, axis="time")
    assert cagp.Matern32(0.1, 4.0) * time == 4.0 * (cagp.Matern32(0.1) * time)
    assert (cagp.Matern32(0.1, 4.0) * cagp.Matern12(7.5, 3.0, axis="time")).variance == 12.0


def test_a_product_is_fitted_as_the_kernel_of_space_and_time_it_is(monkeypatch):
    monkeypatch.setattr("cagp_dist.likelihood.fit.MOST_COMPARED", 60)
    generator = np.random.default_rng(7)
    places = cagp.unit_sphere(generator.uniform(40.0, 55.0, 150), generator.uniform(0.0, 20.0, 150))
    X = np.column_stack([places, generator.uniform(0.0, 48.0, 150)])
    truth = cagp.SpaceTime(cagp.Matern32(0.1, 2.0), cagp.Matern12(7.5))
    y = drawn_fields(truth, X, 0.1, 3)
    same = cagp.Matern32(0.1, 2.0) * cagp.Matern12(7.5, axis="time")
    one, other = (cagp.fit(kernel.family, X, y, method="vecchia") for kernel in (truth, same))
    assert one.log_likelihood == other.log_likelihood
    assert one.prior.kernel.numbers == other.prior.kernel.numbers
