"""East against north on the globe (math 24): on points, on rings, by neighbours, and fitted."""

import numpy as np
import pytest
import xarray as xr
from scipy.spatial import cKDTree

import cagp_dist as cagp
from cagp_dist.compiled import evaluate
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.metric import metric
from cagp_dist.kernels import point_columns
from cagp_dist.likelihood.numbering import Model

RNG = np.random.default_rng(11)


def places(n, generator=RNG):
    """Evenly over the globe: latitudes and longitudes."""
    return np.degrees(np.arcsin(generator.uniform(-1.0, 1.0, n))), generator.uniform(0.0, 360.0, n)


def sigma(s, length, stretch):
    """Sigma(s) of math 24, whose axes at the equator have the product length^2 and this quotient."""
    a = length / np.sqrt(stretch)
    w = np.array([-s[1], s[0], 0.0])
    return a**2 * np.eye(3) + a**2 * (stretch**2 - 1.0) * np.outer(w, w)


def written_out(kernel, X):
    """The formula, pair by pair."""
    base, found = kernel.kernel, np.empty((len(X), len(X)))
    stretch = kernel.ratio if kernel.azimuth_degrees == 90.0 else 1.0 / kernel.ratio
    tables = [sigma(s, base.common_lengthscale, stretch) for s in X]
    roots = [np.linalg.det(table) ** 0.25 for table in tables]
    unit = base.family(1.0, base.variance)
    for i, s in enumerate(X):
        for j, t in enumerate(X):
            S = 0.5 * (tables[i] + tables[j])
            distance = np.sqrt((s - t) @ np.linalg.solve(S, s - t))
            weight = roots[i] * roots[j] / np.sqrt(np.linalg.det(S))
            found[i, j] = weight * unit([[0.0]], [[distance]])[0, 0]
    return found


EVERY = pytest.mark.parametrize(
    "kernel",
    [
        cagp.AxiallySymmetric(cagp.Matern32(0.4, 2.0), 3.0),
        cagp.AxiallySymmetric(cagp.Matern12(0.4), 5.0, 0.0),
        cagp.AxiallySymmetric(cagp.SquaredExponential(0.3), 2.0),
        cagp.AxiallySymmetric(cagp.Matern(0.8, 0.4), 4.0, 180.0),
    ],
    ids=lambda kernel: f"{type(kernel.kernel).__name__} {kernel.azimuth_degrees:g}",
)


@EVERY
def test_values_and_slopes_are_those_of_the_formula(kernel):
    X = np.vstack([cagp.unit_sphere(*places(24)), [[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]])
    expected = written_out(kernel, X)
    np.testing.assert_allclose(kernel(X, X), expected, atol=2e-15 * kernel.variance)
    np.testing.assert_array_equal(kernel(X[:7], X[3:]), kernel(X, X)[:7, 3:])
    np.testing.assert_array_equal(kernel.diagonal(X), kernel.variance)
    model, numbers = Model.of((kernel.family,)), np.array([*kernel.numbers, 0.1])
    columns, step = point_columns(X), 1e-6
    slopes = model.derivatives(numbers.tolist())
    assert len(slopes) == 2
    for at, slope in enumerate(slopes):
        found = np.empty((len(X), len(X)))
        evaluate(*slope, columns, columns, found)
        up, down = numbers.copy(), numbers.copy()
        up[at], down[at] = numbers[at] * np.exp(step), numbers[at] * np.exp(-step)
        difference = (model.unit(up.tolist())(X, X) - model.unit(down.tolist())(X, X)) / (2.0 * step)
        np.testing.assert_allclose(found, difference, atol=2e-9)  # rounding over the step
    again = kernel.family(kernel.numbers, kernel.variance)
    np.testing.assert_allclose(again(X, X), expected, atol=1e-14)


def test_it_is_a_covariance_that_is_the_same_at_every_longitude_t45():
    for kernel in (
        cagp.AxiallySymmetric(cagp.Matern52(1.0), 4.0),
        cagp.AxiallySymmetric(cagp.SquaredExponential(0.5), 4.0, 0.0),
    ):
        X = cagp.unit_sphere(*places(500))
        assert np.linalg.eigvalsh(kernel(X, X)).min() > -1e-12
        latitude, Q = np.array([-90.0, -35.0, 0.0, 20.0, 70.0]), 12
        rings = cagp.LatLonGrid(latitude, Q).points
        blocks = kernel(rings, rings).reshape(5, Q, 5, Q)
        for turn in range(1, Q):
            turned = np.roll(blocks, (turn, turn), axis=(1, 3))
            np.testing.assert_allclose(turned, blocks, atol=2e-15)


def test_a_ratio_of_one_is_the_isotropic_kernel_and_products_take_it():
    lat, lon = places(30)
    X, hours = cagp.unit_sphere(lat, lon), RNG.uniform(0.0, 48.0, 30)
    circle = cagp.AxiallySymmetric(cagp.Matern32(0.4, 2.0), 1.0)
    np.testing.assert_allclose(circle(X, X), cagp.Matern32(0.4, 2.0)(X, X), atol=1e-14)
    wide = cagp.AxiallySymmetric(cagp.Matern32(0.4, 2.0), 3.0)
    product = wide * cagp.Matern12(7.5, axis="time")
    Y = np.column_stack([X, hours])
    lags = np.exp(-np.abs(hours[:, None] - hours) / 7.5)
    np.testing.assert_allclose(product(Y, Y), wide(X, X) * lags, atol=1e-14)
    total = wide + cagp.Matern12(0.1)
    np.testing.assert_allclose(total(X, X), wide(X, X) + cagp.Matern12(0.1)(X, X), atol=1e-14)


@pytest.mark.parametrize("azimuth", [90.0, 0.0])
def test_rings_are_the_dense_matrix(azimuth):
    kernel = cagp.AxiallySymmetric(cagp.Matern32(0.5, 2.0), 3.0, azimuth) + cagp.Matern12(0.2, 0.5)
    for latitude, Q in ((np.linspace(-80.0, 80.0, 7), 9), (np.array([-50.0, 10.0, 30.0]), 8)):
        grid = cagp.LatLonGrid(latitude, Q)
        rings, X = cagp.RingGram(grid, kernel, noise_variance=0.1), grid.points
        G = kernel(X, X) + 0.1 * np.eye(len(X))
        field = RNG.normal(size=grid.shape)
        np.testing.assert_allclose((rings @ field).ravel(), G @ field.ravel(), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(rings.solve(field).ravel(), np.linalg.solve(G, field.ravel()), rtol=1e-9)
        assert rings.logdet() == pytest.approx(np.linalg.slogdet(G)[1], rel=1e-12)


def test_every_solver_has_the_posterior_of_the_dense_formula():
    kernel = cagp.AxiallySymmetric(cagp.Matern32(0.5, 2.0), 3.0)
    X = cagp.unit_sphere(*places(30))
    covariance, y = written_out(kernel, X), RNG.normal(size=20)
    weights = np.linalg.solve(covariance[:20, :20] + 0.3 * np.eye(20), covariance[:20, 20:]).T
    variance = covariance.diagonal()[20:] - np.einsum("ij,ji->i", weights, covariance[:20, 20:])
    solvers = cagp.Cholesky(), cagp.ConjugateGradient(60), cagp.BlockGaussSeidel(400), cagp.Neighbours(20)
    for solver in solvers:
        found = cagp.condition(cagp.Prior(kernel, 0.3, 0.0), X[:20], y, X[20:], solver=solver)
        np.testing.assert_allclose(found.mean, weights @ y, atol=1e-6)
        np.testing.assert_allclose(found.variance, variance, atol=1e-6)


@pytest.mark.parametrize("azimuth", [90.0, 0.0])
def test_neighbours_are_the_most_correlated(azimuth):
    kernel = cagp.AxiallySymmetric(cagp.Matern32(0.1, 2.0), 5.0, azimuth)
    X = cagp.unit_sphere(*places(5_000))
    near = cKDTree(X * metric(kernel, 3)).query((X * metric(kernel, 3))[:40], 30)[1]
    alike = np.argsort(-kernel(X[:40], X), axis=1)[:, :30]
    shared = [np.intersect1d(one, other).size / 30 for one, other in zip(near, alike, strict=True)]
    assert np.mean(shared) > 0.85  # by distances 0.56 and 0.72
    with_time = kernel * cagp.Matern12(7.5, axis="time")
    Y = np.column_stack([X, RNG.uniform(0.0, 100.0, 5_000)])
    near = cKDTree(Y * metric(with_time, 4)).query((Y * metric(with_time, 4))[:40], 30)[1]
    alike = np.argsort(-with_time(Y[:40], Y), axis=1)[:, :30]
    shared = [np.intersect1d(one, other).size / 30 for one, other in zip(near, alike, strict=True)]
    assert np.mean(shared) > 0.6  # 0.81 of the isotropic product


def drawn(n, kernel, seed):
    """A table of places over the globe, and the field at 60 others."""
    generator = np.random.default_rng(seed)
    latitude, longitude = places(n + 60, generator)
    X = cagp.unit_sphere(latitude, longitude)
    field = 10.0 + np.linalg.cholesky(kernel(X, X) + 1e-9 * np.eye(n + 60)) @ generator.normal(size=n + 60)
    value = field[:n] + 0.3 * generator.normal(size=n)
    return {"lat": latitude[:n], "lon": longitude[:n], "value": value}, {
        "lat": latitude[n:],
        "lon": longitude[n:],
    }


@pytest.mark.parametrize("azimuth", [90.0, 0.0])
def test_krige_finds_east_against_north_on_the_globe(azimuth):
    truth = cagp.AxiallySymmetric(cagp.Matern32(0.4, 4.0), 4.0, azimuth)
    table, to = drawn(250, truth, seed=3)
    given = {"kernel": "matern32", "hyperparameters": "plug-in", "progress": False}
    model = cagp.Kriging(anisotropy="fit", **given).fit(table)
    found = model.predict(to)
    assert found.attrs["anisotropy_azimuth_degrees"] == azimuth
    # three standard errors, as the result says them
    error = found.attrs["anisotropy_ratio_standard_error"]
    assert abs(found.attrs["anisotropy_ratio"] - 4.0) < 3.0 * error < 6.0
    assert "anisotropy_azimuth_degrees_standard_error" not in found.attrs
    assert "major axis" in model.summary()
    kernel = model.prior_.kernel
    X, Z = cagp.unit_sphere(table["lat"], table["lon"]), cagp.unit_sphere(to["lat"], to["lon"])
    noise = float(model.prior_.noise_variance)
    inverse, one = np.linalg.inv(kernel(X, X) + noise * np.eye(250)), np.ones(250)
    mean = (one @ inverse @ table["value"]) / (one @ inverse @ one)
    expected = mean + kernel(Z, X) @ inverse @ (table["value"] - mean)
    np.testing.assert_allclose(found["mean"], expected, rtol=1e-7)
    with pytest.raises(ArgumentError) as caught:
        cagp.krige(table, to=to, anisotropy=(3.0, 30.0), progress=False)
    assert caught.value.key == "anisotropy-region"


def test_whole_grids_are_fitted_and_mapped_by_rings():
    truth = cagp.AxiallySymmetric(cagp.Matern32(0.4, 4.0), 3.0)
    latitude, Q = np.linspace(-80.0, 80.0, 11), 24
    rings = cagp.RingGram(cagp.LatLonGrid(latitude, Q), truth, noise_variance=0.1)
    field = xr.DataArray(
        10.0 + rings.sample(np.random.default_rng(2), noise=True),
        dims=("latitude", "longitude"),
        coords={"latitude": latitude, "longitude": 15.0 * np.arange(Q)},
        name="field",
    )
    to = {"latitude": [0.0, 51.3], "longitude": [11.0, 140.0]}
    given = {"kernel": "matern32", "anisotropy": "fit", "progress": False}
    found = cagp.krige(field, to=to, **given)
    assert found.attrs["solver"] == "Rings()"
    assert (
        abs(np.log(found.attrs["anisotropy_ratio"] / 3.0))
        < 3.0 * found.attrs["anisotropy_ratio_standard_error"]
    )
    # the same likelihood, and the same posterior, of its points
    points = field.to_series().reset_index()
    alike = cagp.krige(points, to=to, value="field", solver="cholesky", **given)
    assert found.attrs["anisotropy_ratio"] == pytest.approx(alike.attrs["anisotropy_ratio"], rel=1e-3)
    np.testing.assert_allclose(found["std"], alike["std"], rtol=1e-3)


@pytest.mark.exhaustive
@pytest.mark.parametrize("solver", [cagp.Rings(), cagp.BlockGaussSeidel(3, 64), cagp.Neighbours(30)], ids=str)
def test_error_bars_hold_on_fields_of_the_prior(solver):
    """Over 200 fields; a false alarm has probability 0.27 %."""
    kernel = cagp.AxiallySymmetric(cagp.Matern32(0.5, 2.0), 4.0)
    grid = cagp.LatLonGrid(np.linspace(-75.0, 75.0, 11), 24)
    X = grid if solver.needs_grid else grid.points
    targets = cagp.unit_sphere(*places(12, np.random.default_rng(4)))
    found = cagp.calibrate(
        cagp.Prior(kernel, 0.1),
        X,
        targets,
        solver=solver,
        simulations=200,
        generator=np.random.default_rng(5),
    )
    assert found.verdict.ok, found


@pytest.mark.parametrize(
    ("key", "make"),
    [
        ("anisotropy-azimuth", lambda: cagp.AxiallySymmetric(cagp.Matern32(0.1), 2.0, 30.0)),
        ("anisotropy-ratio", lambda: cagp.AxiallySymmetric(cagp.Matern32(0.1), 0.5)),
        ("kernel-type", lambda: cagp.AxiallySymmetric(cagp.Matern32(0.1) + cagp.Matern12(1.0), 2.0)),
        ("unit-vectors", lambda: cagp.AxiallySymmetric(cagp.Matern32(0.1), 2.0)(np.eye(3) * 2, np.eye(3))),
        (
            "kernel-on-rings",
            lambda: cagp.RingGram(
                cagp.LatLonGrid([0.0, 10.0], 4),
                cagp.Anisotropic(cagp.Matern32(0.1), 2.0, 90.0, centre=(0.0, 0.0)),
                noise_variance=1.0,
            ),
        ),
    ],
)
def test_what_is_not_of_the_globe_is_refused(key, make):
    with pytest.raises(ArgumentError) as caught:
        make()
    assert caught.value.key == key
