"""Means over areas of a fitted field, and maps within areas."""

import json
import re

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.kriging.areas import as_areas, nodes_of
from cagp_dist.regions import Box, Outline, PlaneOutline
from cagp_dist.space import SPHERE, plane_of

SQUARE = {"type": "Polygon", "coordinates": [[[7, 47], [11, 47], [11, 50], [7, 50], [7, 47]]]}
HOLED = {
    "type": "MultiPolygon",
    "coordinates": [
        [
            [[0, 0], [10, 0], [10, 10], [0, 10], [0, 0]],
            [[4, 4], [6, 4], [6, 6], [4, 6], [4, 4]],
        ],
        [[[20, 0], [22, 0], [22, 2], [20, 2], [20, 0]]],
    ],
}
NUMBERS = {"noise_std": 0.3, "lengthscale_km": 300.0, "variance": 9.0, "progress": False}


@pytest.fixture(scope="module")
def model() -> cagp.Kriging:
    generator = np.random.default_rng(0)
    X = np.stack([generator.uniform(45, 55, 40), generator.uniform(5, 16, 40)], axis=1)
    return cagp.Kriging(**NUMBERS).fit(X, 10.0 + np.sin(X[:, 0]) + generator.normal(size=40))


def of_plane(values: np.ndarray, X: np.ndarray, **settings: object) -> cagp.Kriging:
    table = {"x": X[:, 0], "y": X[:, 1], "value": values}
    return cagp.Kriging(columns={"x": "x", "y": "y"}, progress=False, **settings).fit(table)


def test_a_mean_is_that_of_a_dense_gaussian_process_on_many_points_inside(model: cagp.Kriging) -> None:
    found = model.area_mean({"a": SQUARE})
    generator = np.random.default_rng(1)
    north = np.rad2deg(np.arcsin(generator.uniform(*np.sin(np.deg2rad([47, 51])), 2500)))
    east = generator.uniform(7, 11, 2500)
    inside = as_areas(SQUARE, SPHERE)[0].contains(north, east)
    draws = model.area_mean(cagp.Box("b", 47, 50, 7, 11))  # parallels instead of great circles
    assert abs(draws["std"].item() / found["std"].item() - 1.0) < 0.03
    X = np.stack([north[inside], east[inside]], axis=1)
    prior, observed = model.prior_, model._fitted()[0].points
    points = cagp.unit_sphere(*X.T)
    means = cagp.LinearFunctionals(points, np.full(len(points), 1.0 / len(points)))
    exact = cagp.condition(prior, observed.X, observed.values[0], means, solver=cagp.Cholesky())
    # random points: the mean over them departs from that over the area by std of the field over sqrt(n)
    assert abs(found["mean"].item() - exact.mean[0]) < 4.0 * 3.0 / np.sqrt(len(X))
    assert abs(found["std"].item() / np.sqrt(exact.variance[0]) - 1.0) < 0.02


def test_halving_the_cells_again_changes_error_bars_by_less_than_the_share(model: cagp.Kriging) -> None:
    found = model.area_mean(SQUARE, share=0.02)
    finer = model.area_mean(SQUARE, share=0.002)
    assert found.attrs["quadrature_change"] <= 0.02
    assert finer.attrs["quadrature_nodes"] > found.attrs["quadrature_nodes"]
    assert abs(found["std"].item() / finer["std"].item() - 1.0) < 0.02


def test_a_quadrature_that_does_not_do_is_a_warning(
    model: cagp.Kriging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cagp_dist.kriging.kriging_model.MOST_NODES", 100)
    with pytest.warns(UserWarning, match="nodes of an area an error bar still changes"):
        model.area_mean(SQUARE, share=1e-6)


def test_a_difference_knows_how_both_areas_go_together(model: cagp.Kriging) -> None:
    areas = [cagp.Box("a", 47, 50, 7, 11), cagp.Box("b", 50, 53, 7, 11)]
    found = model.area_mean(areas, differences=[("a", "b")])
    means = nodes_of(as_areas(areas, SPHERE), SPHERE, 32)
    observed = model._fitted()[0].points
    exact = cagp.condition(
        model.prior_, observed.X, observed.values[0], means, solver=cagp.Cholesky(), covariance="full"
    )
    assert exact.covariance is not None
    variance = exact.covariance[0, 0] + exact.covariance[1, 1] - 2.0 * exact.covariance[0, 1]
    np.testing.assert_allclose(found["difference_std"], [np.sqrt(variance)], rtol=0.02)
    np.testing.assert_allclose(found["difference_mean"], found["mean"][0] - found["mean"][1], atol=1e-9)


def test_geometries_are_read_alike_however_they_are_given(tmp_path, model: cagp.Kriging) -> None:
    collection = {
        "type": "FeatureCollection",
        "features": [
            {"type": "Feature", "geometry": SQUARE, "properties": {"name": "square"}},
            {"type": "Feature", "geometry": HOLED, "properties": {}},
        ],
    }
    path = tmp_path / "areas.geojson"
    path.write_text(json.dumps(collection))
    for given in (collection, path, str(path)):
        first, second = as_areas(given, SPHERE)
        assert (first.name, second.name) == ("square", "area 2")
    assert [area.name for area in as_areas([SQUARE, SQUARE], SPHERE)] == ["area (1)", "area (2)"]
    assert as_areas({"square": SQUARE}, SPHERE)[0].name == "square"


def test_polygons_of_shapely_and_geopandas_are_areas_in_their_own_system(model: cagp.Kriging) -> None:
    shapely, geopandas = pytest.importorskip("shapely"), pytest.importorskip("geopandas")
    polygon = shapely.box(7, 47, 11, 50)
    frame = geopandas.GeoDataFrame({"name": ["a"]}, geometry=[polygon], crs=4326)
    of_json = model.area_mean(SQUARE)["std"].item()
    assert model.area_mean(polygon)["std"].item() == pytest.approx(of_json, rel=1e-9)
    assert model.area_mean(frame)["area"].item() == "a"
    # straight lines of the other system are not great circles: edges move by a few kilometres
    moved = model.area_mean(frame.to_crs(3035))["std"].item()
    assert moved == pytest.approx(of_json, rel=0.01)


def test_holes_and_parts_are_counted_in_a_plane_as_on_the_sphere() -> None:
    plane = plane_of(None, names=("x", "y"))
    for space, unit, tolerance in ((plane, 1.0, 1e-9), (SPHERE, (np.pi / 180.0) ** 2 / (4 * np.pi), 0.01)):
        (area,) = as_areas(HOLED, space)
        outline = area.region  # type: ignore[attr-defined]
        assert isinstance(outline, PlaneOutline | Outline)
        assert outline.area / unit == pytest.approx(100.0 - 4.0 + 4.0, rel=tolerance)
        north, east = np.array([5.0, 2.0, 1.0, 5.0]), np.array([5.0, 2.0, 21.0, 15.0])
        assert area.contains(north, east).tolist() == [False, True, True, False]
        assert area.cells(40).area.sum() == pytest.approx(outline.area, rel=0.01)


def test_polygons_cross_the_antimeridian_and_go_around_a_pole() -> None:
    across = {
        "type": "Polygon",
        "coordinates": [[[170, -10], [-170, -10], [-170, 10], [170, 10], [170, -10]]],
    }
    (area,) = as_areas(across, SPHERE)
    assert area.contains(np.zeros(3), np.array([180.0, -175.0, 0.0])).tolist() == [True, True, False]
    # as Natural Earth draws Antarctica: down the antimeridian, along the pole, and up again
    coast = [[float(x), -70.0] for x in range(-180, 181, 20)]
    polar = {"type": "Polygon", "coordinates": [[*coast, [180, -90], [-180, -90], coast[0]]]}
    (area,) = as_areas(polar, SPHERE)
    assert area.contains(np.array([-90.0, -80.0, -60.0]), np.array([0.0, 179.9, 0.0])).tolist() == [
        True,
        True,
        False,
    ]


def test_a_mask_is_the_cells_where_it_is_true(model: cagp.Kriging) -> None:
    north, east = np.arange(54.5, 45.0, -1.0), np.arange(5.5, 16.0)
    inside = (north[:, None] < 50) & (north[:, None] > 47) & (east > 7) & (east < 11)
    mask = xr.DataArray(inside, coords={"lat": north, "lon": east}, name="square")
    found, box = model.area_mean(mask), model.area_mean(cagp.Box("square", 47, 50, 7, 11))
    assert found["area"].item() == "square"
    assert found["std"].item() == pytest.approx(box["std"].item(), rel=0.01)
    both = xr.concat([mask, ~mask], xr.Variable("part", ["in", "out"]))
    assert model.area_mean(both)["area"].values.tolist() == ["in", "out"]


def test_a_map_within_a_mask_is_the_map_there_and_nan_elsewhere(model: cagp.Kriging) -> None:
    grid = {"resolution": 1.0, "region": [55, 5, 45, 16]}
    whole = model.predict(grid)
    # in degrees, that edges are great circles matters by half of one at most
    expected = (whole["latitude"] > 47) & (whole["latitude"] < 50) & (whole["longitude"] > 7)
    expected &= whole["longitude"] < 11
    for mask in (cagp.Box("square", 47, 50, 7, 11), expected, expected.values):
        part = model.predict(grid, mask=mask)
        np.testing.assert_array_equal(np.isfinite(part["mean"]), expected)
        np.testing.assert_allclose(part["mean"], whole["mean"].where(expected), rtol=1e-9)
    draws = model.sample(grid, 2, mask=expected)["y"]
    np.testing.assert_array_equal(np.isfinite(draws), np.broadcast_to(expected, draws.shape))


def test_a_drift_that_is_not_known_outside_of_the_mask_is_not_asked_for(recwarn) -> None:
    axis = np.arange(0.0, 10.0)
    height = xr.DataArray(np.add.outer(axis, 0.0 * axis), coords={"lat": axis, "lon": axis}, name="height")
    generator = np.random.default_rng(2)
    X = generator.uniform(1, 8, (20, 2))
    values = X[:, 0] + generator.normal(size=20)
    table = {"lat": X[:, 0], "lon": X[:, 1], "value": values}
    model = cagp.Kriging(mean=height, **NUMBERS).fit(table)
    found = model.predict({"resolution": 1.0, "region": [15, 0, 0, 15]}, mask=cagp.Box("b", 2, 7, 2, 7))
    assert np.isfinite(found["mean"]).sum() == 25
    assert not recwarn.list


@pytest.mark.parametrize(
    ("ring", "key"),
    [
        (
            [(o, 0) for o in range(-180, 181, 10)] + [(o, 30) for o in range(180, -181, -10)],
            "area-of-polygon",
        ),
        ([(-100, 20), (100, 20), (100, 60), (-100, 60)], "long-edge"),
    ],
)
def test_rings_whose_inside_is_not_clear_are_refused(
    model: cagp.Kriging, ring: list[tuple[float, float]], key: str
) -> None:
    with pytest.raises(ArgumentError) as refused:
        model.area_mean({"type": "Polygon", "coordinates": [[*ring, ring[0]]]})
    assert refused.value.key == key


def test_a_strip_with_very_many_cells_is_refused() -> None:
    strip = {"type": "Polygon", "coordinates": [[(0, 0), (20, 0), (20, 0.01), (0, 0.01), (0, 0)]]}
    with pytest.raises(ArgumentError) as refused:
        nodes_of(as_areas(strip, SPHERE), SPHERE, 8)
    assert refused.value.key == "narrow-area"


def test_means_over_areas_of_a_plane_are_those_of_squares() -> None:
    generator = np.random.default_rng(3)
    X = generator.uniform(0, 100, (50, 2))
    model = of_plane(np.sin(X[:, 0] / 20), X, noise_std=0.1, lengthscale=30.0, variance=1.0)
    square = {"type": "Polygon", "coordinates": [[[20, 20], [40, 20], [40, 60], [20, 60]]]}
    found = model.area_mean(square)
    cell = model.predict({"resolution": 2.0, "region": [60, 20, 20, 40]}, kind="cells")
    assert found["mean"].item() == pytest.approx(float(cell["mean"].mean()), abs=0.005)
    with pytest.raises(ArgumentError, match="a region of the globe"):
        model.area_mean("global")


@pytest.mark.parametrize(
    ("areas", "words"),
    [
        ([], "the areas are none"),
        ({"type": "LineString", "coordinates": [[0, 0], [1, 1]]}, "is a LineString; expected a Polygon"),
        ({"type": "Polygon", "coordinates": []}, "is an empty Polygon"),
        (
            {"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]]},
            "begin at corners 0 and 2 cross each other",
        ),
        (
            {"type": "Polygon", "coordinates": [[[0, 100], [1, 1], [1, 0], [0, 100]]]},
            "a corner at latitude 100",
        ),
        ("nowhere", "is not a region"),
        ("missing.geojson", "cannot be read"),
        (3.0, "the area is a float"),
        (xr.DataArray([[0.5, 1.0], [0.0, 0.2]], coords={"lat": [1.0, 2.0], "lon": [1.0, 2.0]}), "land > 0.5"),
        (xr.DataArray([[0, 0], [0, 0]], coords={"lat": [1.0, 2.0], "lon": [1.0, 2.0]}), "false everywhere"),
    ],
)
def test_what_is_no_area_is_refused_by_name(model: cagp.Kriging, areas: object, words: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(words)):
        model.area_mean(areas)


def test_what_means_over_areas_do_not_go_with_is_refused(model: cagp.Kriging) -> None:
    with pytest.raises(ArgumentError, match="pairs of two of the areas"):
        model.area_mean(SQUARE, differences=[("a", "b")])
    with pytest.raises(ArgumentError, match="none of the"):
        model.predict({"resolution": 1.0, "region": [55, 5, 45, 16]}, mask=Box("far", -50, -40, 0, 10))
    with pytest.raises(ArgumentError, match="is an array of float64"):
        model.predict({"resolution": 1.0, "region": [55, 5, 45, 16]}, mask=np.ones((10, 11)))
    X = np.array([[47.0, 8.0], [48.0, 9.0], [49.0, 7.0]])
    others = cagp.Kriging(recalibration="local-scale", **NUMBERS).fit(X, [1.0, 2.0, 3.0])
    with pytest.raises(ArgumentError, match="recalibration"):
        others.area_mean(SQUARE)


@pytest.mark.parametrize("kind", ["logarithm", "zeros"])
def test_means_of_transformed_values_are_those_of_their_distribution(kind: str) -> None:
    """By log-normal moments, or means of each place; five standard errors of 1,000 draws."""
    generator = np.random.default_rng(3)
    X = np.stack([generator.uniform(45, 55, 40), generator.uniform(5, 16, 40)], axis=1)
    z = np.sin(X[:, 0]) + 0.3 * generator.normal(size=40)
    prior = cagp.Prior(cagp.Matern32(0.05, 0.5), 0.05, cagp.MEANS["constant"])
    settings = {"prior": prior, "progress": False, "transform": "log" if kind == "logarithm" else "sqrt"}
    model = cagp.Kriging(**settings).fit(X, np.exp(z) if kind == "logarithm" else np.maximum(z, 0.0) ** 2)
    boxes = [cagp.Box("south", 46, 49, 7, 11), cagp.Box("north", 50, 53, 7, 11)]
    found = model.area_mean(boxes, differences=[("south", "north")])
    assert "1,000 draws" in found.attrs["monte_carlo"]
    nodes = [box.cells(0.375) for box in boxes]
    at = np.stack(
        [np.concatenate([getattr(each, axis) for each in nodes]) for axis in ("north", "east")], axis=1
    )
    W = np.zeros((len(at), 2))
    W[: nodes[0].area.size, 0] = nodes[0].area / nodes[0].area.sum()
    W[nodes[0].area.size :, 1] = nodes[1].area / nodes[1].area.sum()
    means = model.predict({"lat": at[:, 0], "lon": at[:, 1]})["mean"].values @ W
    error = 5.0 * found["mean_standard_error"].values
    # of zeros the means of places come from seven quantiles of a mixture
    np.testing.assert_array_less(
        np.abs(found["mean"] - means), error + (0.02 * means if kind == "zeros" else 0)
    )
    assert found["difference_mean"].item() == pytest.approx(float(-np.diff(found["mean"])[0]), rel=1e-12)
    if kind == "zeros":
        assert (found["field_quantile"] >= 0.0).all()
        return
    points, observed = cagp.unit_sphere(*at.T), model._fitted()[0].points
    exact = cagp.condition(prior, observed.X, z, points, solver=cagp.Cholesky(), covariance="full")
    centre = np.exp(exact.mean + 0.5 * exact.variance)
    covariance = W.T @ (np.outer(centre, centre) * np.expm1(exact.covariance)) @ W
    for name, variance in (("std", np.diag(covariance)), ("difference_std", [1, -1] @ covariance @ [1, -1])):
        error = 5.0 * found[f"{name}_standard_error"].values + 0.01 * found[name].values  # of the quadrature
        np.testing.assert_array_less(np.abs(found[name] - np.sqrt(variance)), error)


def test_draws_with_the_same_gaps_have_one_root() -> None:
    """Fields of one pattern have the mean and spread of each of them alone."""
    generator = np.random.default_rng(5)
    X, y = generator.uniform(45, 50, (12, 2)), generator.normal(size=(12, 2))
    model = cagp.Kriging(**NUMBERS).fit(X, y)
    draws = model.sample({"lat": [46.0, 48.0], "lon": [46.0, 49.0]}, 2000, seed=1)["y"]
    found = model.predict({"lat": [46.0, 48.0], "lon": [46.0, 49.0]})
    # five standard errors of a mean of 2,000 draws
    assert (np.abs(draws.mean("sample") - found["mean"]) < 5.0 * found["std"] / np.sqrt(2000)).all()
    np.testing.assert_allclose(draws.std("sample"), found["std"], rtol=5.0 / np.sqrt(4000))


@pytest.mark.parametrize("settings", [{}, {"transform": "log"}], ids=["plain", "draws"])
@pytest.mark.parametrize("in_plane", [False, True], ids=["globe", "plane"])
def test_columns_that_a_mean_names_are_fields_within_areas(in_plane: bool, settings: dict[str, str]) -> None:
    """The mean is that of the field as a term of its own, where the column has its values at the stations."""
    generator = np.random.default_rng(4)
    names = ("y", "x") if in_plane else ("latitude", "longitude")
    axes = {names[0]: np.linspace(44.0, 56.0, 25), names[1]: np.linspace(4.0, 17.0, 27)}
    height = xr.DataArray(generator.uniform(0.0, 900.0, (25, 27)), axes, names, "height", {"units": "m"})
    row, column = np.divmod(generator.choice(25 * 27, 40, replace=False), 27)
    at = {name: axis[rows] for (name, axis), rows in zip(axes.items(), (row, column), strict=True)}
    values = np.exp(2.0 - 0.002 * height.values[row, column] + 0.1 * generator.normal(size=40))
    table = pd.DataFrame(at | {"height (m)": height.values[row, column], "value": values})
    numbers = {"lengthscale": 2.0 if in_plane else 0.05, "progress": False} | settings
    if in_plane:
        numbers["columns"] = {"x": "x", "y": "y"}
        for name in names:
            height[name].attrs["standard_name"] = f"projection_{name}_coordinate"
    if not settings:
        numbers |= {"noise_std": 0.1, "variance": 0.2}
    term, by_name = (
        cagp.Kriging(mean=mean, value="value", kernel="matern32", hyperparameters="plug-in", **numbers).fit(
            table
        )
        for mean in (height, "height")
    )
    areas = {"a": SQUARE, "b": {"type": "Point", "coordinates": [12.2, 49.9]}}
    wanted = {"differences": [("a", "b")], "draws": 100, "share": 0.2}
    expected = term.area_mean(areas, **wanted)
    for given in (height, height.to_dataset(), {"height": (height / 1000.0).assign_attrs(units="km")}):
        found = by_name.area_mean(areas, covariates=given, **wanted)
        for name in ("mean", "std", "difference_mean", "difference_std"):
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-6, atol=1e-6)


def test_areas_without_a_field_of_a_column_say_what_to_give(model: cagp.Kriging) -> None:
    table = {"lat": [46.0, 48.0, 52.0, 50.0], "lon": [6.0, 9.0, 8.0, 12.0], "t": [1.0, 2.0, 3.0, 2.0]}
    table["height"] = [100.0, 400.0, 300.0, 200.0]
    columns = cagp.Kriging(value="t", mean="height", kernel="matern32", **NUMBERS).fit(table)
    field = xr.DataArray(np.ones((2, 2)), {"lat": [40.0, 60.0], "lon": [0.0, 20.0]}, name="slope")
    with pytest.raises(ArgumentError, match=re.escape("covariates={'height': DataArray}")) as refused:
        columns.area_mean(SQUARE)
    assert refused.value.key == "covariate-unknown"
    for given in ({"slope": field}, field, table):
        with pytest.raises(ArgumentError) as refused:
            columns.area_mean(SQUARE, covariates=given)
        assert refused.value.key == "covariates-of-areas"
    with pytest.raises(ArgumentError) as refused:
        model.area_mean(SQUARE, covariates=field)
    assert refused.value.key == "covariates-of-areas"
