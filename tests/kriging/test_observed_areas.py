"""Observations that are means over areas, down to points."""

import numpy as np
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, BudgetError
from cagp_dist.kriging.observed_areas import nodes_along
from cagp_dist.likelihood.exact.dense_likelihood import DenseLikelihood

NORTH, EAST = np.arange(45.5, 50.0), np.arange(5.5, 10.0)
NUMBERS = {"lengthscale_km": 200.0, "variance": 4.0, "kernel": "matern32", "progress": False}


def coarse() -> xr.DataArray:
    values = np.sin(NORTH[:, None]) + np.cos(EAST)
    return xr.DataArray(values, coords={"lat": NORTH, "lon": EAST}, name="t")


def squares() -> list[dict[str, object]]:
    return [square(north, east, 0.5) for north in NORTH for east in EAST]


def square(north: float, east: float, half: float) -> dict[str, object]:
    corners = [(-1, -1), (1, -1), (1, 1), (-1, 1), (-1, -1)]
    return {"type": "Polygon", "coordinates": [[[east + half * x, north + half * y] for x, y in corners]]}


def functionals(generator: np.random.Generator, n: int = 12, k: int = 5) -> tuple[np.ndarray, cagp.CellMeans]:
    middles = generator.uniform(0, 1, (n, 1, 2))
    nodes = (middles + 0.1 * generator.uniform(-1, 1, (n, k, 2))).reshape(-1, 2)
    cells = cagp.CellMeans(nodes, np.full(n * k, 1.0 / k), np.full(n, k))
    return cells.matrix().toarray().T, cells


def test_a_posterior_of_means_is_that_of_the_dense_formula() -> None:
    generator = np.random.default_rng(0)
    A, cells = functionals(generator)
    prior = cagp.Prior(cagp.Matern32(0.3, 2.0), generator.uniform(0.05, 0.2, 12), 1.5)
    y, new = generator.normal(size=(12, 2)), generator.uniform(0, 1, (7, 2))
    found = cagp.condition(prior, cells, y, new, solver=cagp.Cholesky(), covariance="full")
    V = prior.kernel(new, cells.nodes) @ A.T
    G = A @ prior.kernel(cells.nodes, cells.nodes) @ A.T + np.diag(np.asarray(prior.noise_variance))
    np.testing.assert_allclose(found.mean, 1.5 + V @ np.linalg.solve(G, y - 1.5), atol=1e-10)
    exact = prior.kernel(new, new) - V @ np.linalg.solve(G, V.T)
    np.testing.assert_allclose(found.covariance, exact, atol=1e-10)
    mean = cagp.posterior_mean(prior, cells, y, new, solver=cagp.Cholesky())
    np.testing.assert_allclose(mean, found.mean, atol=1e-10)


def test_a_basis_of_the_mean_is_averaged_over_each_area() -> None:
    generator = np.random.default_rng(1)
    A, cells = functionals(generator)
    kernel, noise = cagp.Matern32(0.3, 2.0), 0.1

    class Slope:
        coefficient_names = ("one", "square")

        def basis_at(self, X: np.ndarray) -> np.ndarray:
            return np.column_stack([np.ones(len(X)), X[:, 0] ** 2])

    y, new = generator.normal(size=12), generator.uniform(0, 1, (4, 2))
    found = cagp.condition(cagp.Prior(kernel, noise, Slope()), cells, y, new, solver=cagp.Cholesky())
    # a prior of the coefficients as wide as the digits bear
    wide = 1e5
    H, h = A @ Slope().basis_at(cells.nodes), Slope().basis_at(new)
    V = kernel(new, cells.nodes) @ A.T + wide * h @ H.T
    G = A @ kernel(cells.nodes, cells.nodes) @ A.T + noise * np.eye(12) + wide * H @ H.T
    np.testing.assert_allclose(found.mean, V @ np.linalg.solve(G, y), atol=1e-3)
    variance = np.diag(kernel(new, new) + wide * h @ h.T - V @ np.linalg.solve(G, V.T))
    np.testing.assert_allclose(found.variance, variance, atol=1e-3)


def test_the_likelihood_of_means_and_its_slopes_are_those_of_the_dense_formula() -> None:
    generator = np.random.default_rng(2)
    A, cells = functionals(generator)
    y = generator.normal(size=(12, 2))
    likelihood = DenseLikelihood(cagp.Matern32, cells, y, memory_limit_bytes=2**30)

    def value(lengthscale: float, ratio: float) -> tuple[float, float]:
        G = A @ cagp.Matern32(lengthscale)(cells.nodes, cells.nodes) @ A.T + ratio * np.eye(12)
        return float(np.linalg.slogdet(G)[1]), float(np.sum(y * np.linalg.solve(G, y)))

    found, step = likelihood.evaluate(0.3, 0.1), 1e-5
    np.testing.assert_allclose((found.log_determinant, found.quadratic), value(0.3, 0.1), rtol=1e-10)
    for number, (more, less) in enumerate(
        [((0.3 * np.exp(s), 0.1) for s in (step, -step)), ((0.3, 0.1 * np.exp(s)) for s in (step, -step))]
    ):
        trace, form = (np.subtract(value(*more), value(*less))) / (2.0 * step)
        # q falls by v' dG v
        np.testing.assert_allclose((found.traces[number], -found.slopes[number]), (trace, form), rtol=1e-5)


def test_each_mean_is_left_out_as_a_solve_without_it_says() -> None:
    model = cagp.Kriging(geometry="cells", noise_std=0.1, **NUMBERS).fit(coarse())
    scores = model.cross_validate(None)
    observed = model._fitted()[0].points
    others, prior = np.arange(1, 25), model.prior_
    alone = cagp.condition(
        prior,
        observed.functionals.part(others),
        observed.values[0, others],
        observed.functionals.part(np.arange(1)),
        solver=cagp.Cholesky(),
    )
    assert scores["mean"].values[0] == pytest.approx(alone.mean[0], abs=1e-8)
    assert scores["std"].values[0] == pytest.approx(np.sqrt(alone.variance[0]), abs=1e-6)
    folds = model.cross_validate(5, blocks_degrees=1.0)
    assert np.isfinite(folds["mean"]).all()


def test_the_mean_of_the_map_over_an_area_is_what_was_observed_there() -> None:
    model = cagp.Kriging(geometry="cells", noise_std=1e-6, **NUMBERS).fit(coarse())
    observed = model._fitted()[0].points
    assert observed.functionals is not None
    places = cagp.LinearFunctionals(observed.functionals.nodes, np.ones(observed.functionals.nodes.shape[0]))
    at_nodes = cagp.condition(
        model.prior_, observed.functionals, observed.values[0], places.nodes, solver=cagp.Cholesky()
    )
    means = observed.functionals.averaged(at_nodes.mean[:, None])[:, 0]
    np.testing.assert_allclose(means, observed.values[0], atol=1e-8)


def test_areas_that_shrink_are_observations_at_points() -> None:
    values = np.asarray(coarse()).ravel()
    north, east = np.repeat(NORTH, EAST.size), np.tile(EAST, NORTH.size)
    settings = {"noise_std": 0.1, "hyperparameters": "plug-in", **NUMBERS}
    to = {"lat": [46.2, 48.9], "lon": [6.1, 9.4]}
    points = cagp.krige({"lat": north, "lon": east, "t": values}, to=to, value="t", **settings)
    small = [square(*place, 1e-4) for place in zip(north, east, strict=True)]
    shrunk = [{"type": "Point", "coordinates": [x, y]} for y, x in zip(north, east, strict=True)]
    for shapes, tolerance in ((small, 1e-4), (shrunk, 1e-8)):
        found = cagp.krige({"t": values, "shape": shapes}, geometry="shape", to=to, **settings)
        for name in ("mean", "std"):
            np.testing.assert_allclose(found[name], points[name], atol=tolerance)


def test_a_drift_is_averaged_over_each_area_and_taken_at_each_point() -> None:
    axis_north, axis_east = np.arange(44.0, 52.0, 0.1), np.arange(4.0, 12.0, 0.1)
    height = xr.DataArray(
        100.0 * np.cos(3.0 * axis_north)[:, None] + 100.0 * np.sin(4.0 * axis_east),
        coords={"lat": axis_north, "lon": axis_east},
        name="height",
    )
    generator = np.random.default_rng(3)
    fine = -0.01 * height
    blocks = fine.isel(lat=slice(11, 61), lon=slice(11, 61)).coarsen(lat=10, lon=10).mean()
    observed = blocks + 0.02 * generator.normal(size=blocks.shape)
    settings = {"lengthscale_km": 200.0, "variance": 0.01, "progress": False}
    found = cagp.krige(
        observed.rename("t"),
        geometry="cells",
        mean=height,
        noise_std=0.02,
        to=fine[20:50:5, 20:50:5],
        **settings,
    )
    slope = found["drift_coefficient"].sel(drift_term="height")
    error = found["drift_coefficient_std"].sel(drift_term="height")
    assert abs(slope - -0.01) < 4.0 * error
    assert float(error) < 0.001
    assert float(abs(found["mean"] - fine[20:50:5, 20:50:5]).max()) < 0.2  # of a field with a std of 1


def test_polygons_and_cells_of_one_grid_are_one_thing_and_frames_of_geopandas_too() -> None:
    geopandas, shapely = pytest.importorskip("geopandas"), pytest.importorskip("shapely")
    settings = {"noise_std": 0.1, **NUMBERS}
    to = {"lat": [46.2, 48.9], "lon": [6.1, 9.4]}
    cells = cagp.krige(coarse(), geometry="cells", to=to, **settings)
    shapes = [shapely.geometry.shape(each) for each in squares()]
    frame = geopandas.GeoDataFrame({"t": np.asarray(coarse()).ravel()}, geometry=shapes, crs=4326)
    polygons = cagp.krige(frame, geometry="geometry", to=to, **settings)
    for name in ("mean", "std"):  # whose northern and southern edges are great circles, and nodes others
        np.testing.assert_allclose(polygons[name], cells[name], atol=0.03)
    assert cells.attrs["observations_are"] == "means over areas"
    assert cells.attrs["quadrature_change"] < 0.01
    prior = cagp.Prior(cagp.Matern32(2e5, 4.0), 0.01)
    plane = cagp.Kriging(geometry="geometry", prior=prior, progress=False).fit(frame.to_crs(3035))
    assert plane._fitted()[0].space.text.startswith("plane")


def test_rows_of_several_times_share_their_areas() -> None:
    shapes, values = squares(), np.asarray(coarse()).ravel()
    table = {
        "time": np.repeat(np.array(["2020-01-01", "2020-01-02"], "datetime64[D]"), 25),
        "t": np.concatenate([values, values + 1.0]),
        "shape": shapes * 2,
    }
    model = cagp.Kriging(geometry="shape", noise_std=0.1, **NUMBERS).fit(table)
    assert len(model._fitted()[0].points.functionals) == 25
    found = model.predict({"lat": [46.2], "lon": [6.1]})
    np.testing.assert_allclose(np.diff(found["mean"].values[:, 0]), 1.0, atol=1e-9)


def test_areas_that_are_large_beside_the_lengthscale_are_told_of() -> None:
    model = cagp.Kriging(geometry="cells", noise_std=0.1, **{**NUMBERS, "lengthscale_km": 15.0})
    with pytest.warns(UserWarning, match="the areas are large beside the lengthscale"):
        model.fit(coarse()).predict(0.5)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"at": "observed"}, "at='observed'"),
        ({"bias_by": "ship"}, "bias_by"),
        ({"value": ["a", "b"]}, "value"),
        ({"transform": "log"}, "transform"),
        ({"recalibration": "local-scale"}, "recalibration"),
        ({"hyperparameters": "integrate"}, "hyperparameters"),
        ({"anisotropy": "fit"}, "anisotropy"),
        ({"solver": "neighbours"}, "solver"),
        ({"mean": "height"}, "a column"),
        ({"background": coarse()}, "background"),
    ],
)
def test_what_means_over_areas_do_not_go_with_is_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ArgumentError, match="do not go together yet") as caught:
        cagp.krige(coarse(), geometry="cells", progress=False, **settings)
    assert words in str(caught.value)
    assert caught.value.key == "geometry-with-others"


def test_what_is_no_geometry_of_observations_is_refused() -> None:
    table = {"t": [1.0, 2.0], "shape": squares()[:2]}
    for given, geometry, words in (
        (table, "forms", "expected the name of a column"),
        (table, squares()[:3], "3 areas, and the observations 2 rows"),
        (table, "cells", "no grid with axes"),
        (coarse(), "shape", "expected a data frame"),
    ):
        if geometry == "cells":
            given = {"t": [1.0, 2.0], "lat": [1.0, 2.0], "lon": [1.0, 2.0]}
        with pytest.raises(ArgumentError, match=words):
            cagp.Kriging(geometry=geometry, progress=False).fit(given)
    with pytest.raises(ArgumentError, match="y is an array"):
        cagp.Kriging(geometry="cells").fit(np.zeros((2, 2)), [1.0, 2.0])
    ring = {
        "type": "Polygon",
        "coordinates": [*square(1, 1, 1.0)["coordinates"], *square(1, 1, 0.5)["coordinates"]],
    }
    with pytest.raises(ArgumentError, match="have one middle"):
        cagp.Kriging(geometry="shape", columns={"x": "x", "y": "y"}).fit(
            {"t": [1.0, 2.0], "shape": [ring, square(1, 1, 0.5)]}
        )
    with pytest.raises(BudgetError, match=r"5,000 areas .* would take 191 MiB"):
        nodes_along(5_000)
    polar = xr.DataArray(
        np.zeros((3, 4)), coords={"lat": [-90.0, 0.0, 90.0], "lon": [0, 90, 180, 270]}, name="t"
    )
    with pytest.raises(ArgumentError, match="a row at a pole"):
        cagp.Kriging(geometry="cells").fit(polar)


def test_other_solvers_samples_and_variograms_are_refused_by_name() -> None:
    _, cells = functionals(np.random.default_rng(0))
    prior = cagp.Prior(cagp.Matern32(0.3), 0.1)
    y, new = np.zeros(12), np.zeros((1, 2))
    with pytest.raises(ArgumentError, match="12 linear functionals"):
        cagp.condition(prior, cells, y, new, solver=cagp.BlockGaussSeidel(2, block_size=4))
    with pytest.raises(ArgumentError, match="samples were asked for"):
        cagp.sample_posterior(
            prior, cells, y, new, solver=cagp.Cholesky(), generator=np.random.default_rng(0)
        )
    model = cagp.Kriging(geometry="cells", noise_std=0.1, **NUMBERS).fit(coarse())
    with pytest.raises(ArgumentError, match="have no distances"):
        model.variogram()
    with pytest.raises(ArgumentError, match="from which at most"):
        model.sample(0.05, 2)
    draws = model.sample(1.0, 3)["t"]
    assert draws.shape[0] == 3


@pytest.mark.parametrize("fields", [40, pytest.param(1_000, marks=pytest.mark.exhaustive)])
def test_error_bars_of_points_hold_their_share_of_drawn_fields(fields: int) -> None:
    generator = np.random.default_rng(4)
    kernel, noise = cagp.Matern32(0.05, 4.0), 0.3
    model = cagp.Kriging(geometry="cells", prior=cagp.Prior(kernel, noise**2), progress=False)
    functionals = model.fit(coarse())._fitted()[0].points.functionals
    assert functionals is not None
    # the field is drawn at nodes that are twice as close as those by which it is predicted
    finer = model._fitted()[0].finer(np.arange(25))
    new = cagp.unit_sphere(generator.uniform(45, 50, 8), generator.uniform(5, 10, 8))
    X = np.vstack([finer.nodes, new])
    root = np.linalg.cholesky(kernel(X, X) + 1e-9 * np.eye(len(X)))
    drawn = root @ generator.standard_normal((len(X), fields))
    y = finer.averaged(drawn[:-8]) + noise * generator.standard_normal((25, fields))
    found = cagp.condition(cagp.Prior(kernel, noise**2), functionals, y, new, solver=cagp.Cholesky())
    z = (drawn[-8:] - found.mean) / np.sqrt(found.variance)[:, None]
    # eight places of one field go together; the error of a share of fields, at its worst
    assert abs((np.abs(z) < 1.6449).mean() - 0.9) < 4.0 * np.sqrt(0.09 / fields)
    assert abs((z**2).mean() - 1.0) < 4.0 * np.sqrt(2.0 / fields)
