"""One call: what condition() gives for the same arrays comes out, on the coordinates of the target."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.calibration.recalibration.quantile_curve import Kuleshov
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.geometry import coarse_first, median_spacing
from cagp_dist.gram.cell_means import nodes_per_side
from cagp_dist.pipeline import observations
from cagp_dist.pipeline.cross_validation import drawn_places
from cagp_dist.pipeline.map_solves import NAMED_SOLVERS
from cagp_dist.predictive import Gaussian

from ..joined import one_after_another


def test_a_gappy_grid_gives_the_bits_of_condition(gappy, prior):
    result = cagp.krige(gappy, prior=prior, solver="rings")
    grid = cagp.LatLonGrid.from_axes(gappy.lat, gappy.lon)
    expected = cagp.condition(prior, grid, gappy.values, grid, solver=cagp.Rings())
    np.testing.assert_array_equal(result["mean"], expected.mean)
    np.testing.assert_array_equal(result["std"], np.sqrt(expected.variance))
    assert (result["std_computational"] == 0.0).all()
    assert result.attrs["status"] == "exact"
    assert result["mean"].dims == ("lat", "lon")
    assert result.lat.variable.identical(gappy.lat.variable)


def test_a_table_gives_the_bits_of_condition_in_its_own_order(stations, prior):
    places = {"lat": [10.0, -20.0, 10.0], "lon": [5.0, 170.0, -175.0]}
    result = cagp.krige(stations, to=places, prior=prior)
    X = cagp.unit_sphere(stations["lat"], stations["lon"])
    X_test = cagp.unit_sphere(places["lat"], places["lon"])
    expected = cagp.condition(prior, X, stations["temperature [K]"], X_test, solver=cagp.Cholesky())
    np.testing.assert_array_equal(result["mean"], expected.mean)
    np.testing.assert_array_equal(result["std"], np.sqrt(expected.variance))
    assert result["mean"].dims == ("place",)
    assert result.longitude.values.tolist() == places["lon"]


def test_sweeps_see_the_points_in_space_filling_order(stations, prior):
    solver = cagp.BlockGaussSeidel(iterations=2, block_size=16)
    result = cagp.krige(stations, to={"lat": [0.0], "lon": [0.0]}, prior=prior, solver=solver)
    X = cagp.unit_sphere(stations["lat"], stations["lon"])
    order = cagp.space_filling_order(X, block_size=16)
    y = stations["temperature [K]"][order]
    expected = cagp.condition(prior, X[order], y, cagp.unit_sphere([0.0], [0.0]), solver=solver)
    np.testing.assert_array_equal(result["mean"], expected.mean)
    np.testing.assert_array_equal(result["std"], np.sqrt(expected.variance))
    assert "block_size=16" in result.attrs["solver"]


@pytest.mark.parametrize(
    ("solver", "sooner"),
    [
        (cagp.GaussSeidel(1), True),
        (cagp.SSOR(1, 1.0), True),
        (cagp.BlockGaussSeidel(1, block_size=64), False),
        (cagp.GaussSeidel(1, order="random"), False),
    ],
)
def test_single_points_are_visited_coarse_scale_first(solver, sooner):
    """One sweep then leaves less of a long lengthscale than cell after cell."""
    rng = np.random.default_rng(0)
    table = {"lat": np.degrees(np.arcsin(rng.uniform(-1, 1, 400))), "lon": rng.uniform(0, 360, 400)}
    table["value"] = rng.standard_normal(400)
    prior, to = cagp.Prior(cagp.Matern32(0.5), 0.05), {"lat": [-60.0, 0.0, 45.0], "lon": [0.0, 120.0, 240.0]}
    found = cagp.krige(table, to=to, prior=prior, solver=solver)
    X = cagp.unit_sphere(table["lat"], table["lon"])
    cells = cagp.space_filling_order(X, block_size=solver.points_per_block or 512)
    order = cells[coarse_first(400)] if sooner else cells
    stds = [
        np.sqrt(
            cagp.condition(
                prior, X[rows], table["value"][rows], cagp.unit_sphere(to["lat"], to["lon"]), solver=solver
            ).variance
        )
        for rows in (order, cells)
    ]
    np.testing.assert_array_equal(found["std"], stds[0])
    if sooner:
        assert np.median(stds[0] / stds[1]) < 0.8


def test_points_are_put_in_order_once(stations, prior, monkeypatch):
    orders, order = [], observations.space_filling_order

    def counted(X, **settings):
        orders.append(settings)
        return order(X, **settings)

    monkeypatch.setattr(observations, "space_filling_order", counted)
    cagp.krige(stations, to={"lat": [0.0], "lon": [0.0]}, prior=prior, solver=cagp.Neighbours(8))
    assert len(orders) == 1


def test_times_with_different_gaps_are_solved_each_with_its_own(truth, prior):
    given = truth.copy()
    given[0, 2, 3:6] = np.nan
    given[1, 7, :4] = np.nan
    result = cagp.krige(given, prior=prior)
    assert result["mean"].dims == ("time", "lat", "lon")
    assert result.attrs["patterns_of_gaps"] == 2
    for number in range(2):
        alone = cagp.krige(given[number], prior=prior)
        np.testing.assert_allclose(
            result["mean"][number], alone["mean"], rtol=1e-12
        )  # in another order of the points
        np.testing.assert_allclose(result["std"][number], alone["std"], rtol=1e-12)
    xr.testing.assert_equal(result.time, truth.time)


def test_a_table_with_times_has_a_map_for_each(prior):
    rows = pd.DataFrame(
        {
            "lat": [0.0, 10.0, 0.0, 10.0, 20.0],
            "lon": [0.0, 10.0, 0.0, 10.0, 5.0],
            "date": ["2020-01-01"] * 2 + ["2020-01-02"] * 3,
            "value": [281.0, 282.0, 279.0, 280.0, 278.0],
        }
    )
    result = cagp.krige(rows, to=5.0, prior=prior)
    for day, part in rows.groupby("date"):
        alone = cagp.krige(part.drop(columns="date"), to=result, prior=prior)
        np.testing.assert_allclose(result["mean"].sel(time=day).squeeze(), alone["mean"], atol=1e-12)


@pytest.mark.parametrize("gaps", [0.0, 0.2])
def test_times_with_the_same_gaps_at_places_beside_the_grid(truth, prior, gaps):
    there = truth.where(np.random.default_rng(5).random(truth.shape[1:]) >= gaps)
    places = {"lat": [10.0, -20.0, 35.0], "lon": [5.0, 170.0, -175.0]}
    result = cagp.krige(there, to=places, prior=prior, solver="rings")
    for time in range(2):
        alone = cagp.krige(there[time], to=places, prior=prior, solver="cholesky")
        np.testing.assert_allclose(result["mean"][time], alone["mean"], atol=1e-9)
        np.testing.assert_allclose(result["std"][time], alone["std"], atol=1e-9)


def test_a_pole_has_the_noise_of_its_copies_that_were_observed(prior):
    latitude, longitude = np.array([30.0, 60.0, 90.0]), np.array([0.0, 120.0, 240.0])
    values = np.array([[280.0, 281.0, 282.0], [277.0, 276.0, 275.0], [np.nan, 270.0, 268.0]])
    noise_std = np.array([[0.5, 0.5, 0.5], [0.5, 0.5, 0.5], [np.nan, 0.1, 0.7]])
    data = xr.Dataset(
        {"t": (("lat", "lon"), values), "error": (("lat", "lon"), noise_std)},
        coords={"lat": latitude, "lon": longitude},
    )
    result = cagp.krige(
        data, value="t", noise_std="error", kernel=prior.kernel, mean=280.0, to={"lat": [80.0], "lon": [10.0]}
    )
    X = cagp.unit_sphere([30.0, 30.0, 30.0, 60.0, 60.0, 60.0, 90.0], [*longitude, *longitude, 0.0])
    own = cagp.Prior(prior.kernel, [0.25] * 6 + [(0.1**2 + 0.7**2) / 2], mean=280.0)
    y, X_test = [*values[:2].ravel(), 269.0], cagp.unit_sphere([80.0], [10.0])
    expected = cagp.condition(own, X, y, X_test, solver=cagp.Cholesky())
    np.testing.assert_allclose(result["mean"], expected.mean, rtol=1e-12)
    np.testing.assert_allclose(result["std"] ** 2, expected.variance, rtol=1e-9)


@one_after_another
@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"to": None}, "to-missing"),
        ({"to": "nowhere.csv"}, "no-file"),
        ({"to": [1.0, 2.0]}, "to-type"),
        ({"to": {"region": [0.0, 1.0, 10.0, 2.0]}}, "region"),
        ({"to": 0.0}, "resolution"),
        ({"to": 0.001}, "too-many-cells"),
        ({"kernel": "matern23"}, "kernel-type"),
        ({"kernel": 3}, "kernel-unknown"),
        (
            {"memory_limit_bytes": "1GB"},
            "memory-limit",
        ),
        ({"solver": "magic"}, "solver-type"),
        ({"solver": None}, "solver-type"),
        ({"solver": "rings"}, "no-rings"),
        ({"mean": "cubic"}, "mean"),
        ({"lengthscale": 1.0, "lengthscale_km": 1.0}, "both-lengthscales"),
        ({"lengthscale_km": -1.0}, "not-positive"),
        ({"lengthscale_km": 21_000.0}, "distance-range"),
        ({"lengthscale": 500}, "lengthscale-over-sphere"),
        ({"lengthscale": [0.1, 900.0]}, "lengthscale-over-sphere"),
        ({"lengthscale": 30_000.0}, "lengthscale-over-sphere"),
        (
            {"kernel": cagp.Matern32(500.0)},
            "lengthscale-over-sphere",
        ),
        (
            {"prior": cagp.Prior(cagp.Matern32(500.0), 1.0)},
            "lengthscale-over-sphere",
        ),
        ({"noise_std": -1.0}, "not-positive"),
        ({"noise_std": 0.1, "nugget_std": -1.0}, "not-positive"),
        ({"nugget_std": 1.0}, "nugget-without-noise"),
        ({"prior": 3.0}, "prior-type"),
        ({"noise_std": "err"}, "no-column"),
        ({"executor": 3}, "executor-type"),
    ],
)
def test_what_cannot_be_is_refused(stations, arguments, key):
    with pytest.raises((ArgumentError, DataError)) as refusal:
        cagp.krige(stations, **({"to": 30.0} | arguments))
    assert refusal.value.key == key


def test_sweeps_say_what_is_unfinished(stations, prior):
    places = {"lat": np.linspace(-60.0, 60.0, 9), "lon": np.linspace(0.0, 300.0, 9)}
    exact = cagp.krige(stations, to=places, prior=prior)
    few = cagp.krige(stations, to=places, prior=prior, solver=cagp.BlockGaussSeidel(1, block_size=8))
    unfinished = few["std"] ** 2 - exact["std"] ** 2
    np.testing.assert_allclose(few["std_computational"] ** 2, unfinished, atol=1e-10)
    assert float(few["std_computational"].max()) > 0.05
    assert few.attrs["status"] == "completed"


@pytest.mark.parametrize(("sweeps", "status"), [(200, "share-reached"), (1, "share-not-reached")])
def test_sweeps_leave_little_unfinished_or_say_so(stations, prior, monkeypatch, sweeps, status):
    small = cagp.BlockGaussSeidel(sweeps, block_size=8, computational_share=0.05)
    monkeypatch.setitem(NAMED_SOLVERS, "block-gauss-seidel", small)
    to = {"lat": [0.0, 50.0], "lon": [0.0, 120.0]}
    result = cagp.krige(stations, to=to, prior=prior, solver="block-gauss-seidel")
    assert result.attrs["solver"] == repr(small)
    assert result.attrs["status"] == status
    unfinished = (result["std_computational"] / result["std"]) ** 2
    assert float(unfinished.max()) > 0.0
    assert bool((unfinished <= 0.05).all()) == (status == "share-reached")


def cells_of(latitude_edges, longitude_edges, places):
    """The cells of a map, with as many nodes as their side has places."""
    spacing = np.rad2deg(2.0 * np.arcsin(0.5 * median_spacing(cagp.unit_sphere(*places))))
    per_side = nodes_per_side(float(np.max(np.diff(latitude_edges))), spacing)
    return cagp.cell_means(latitude_edges, longitude_edges, nodes_per_side=per_side)


def test_cells_of_a_table_are_those_of_condition(stations, prior):
    region = [40.0, -30.0, -20.0, 30.0]
    result = cagp.krige(stations, to={"resolution": 10.0, "region": region}, kind="cells", prior=prior)
    X = cagp.unit_sphere(stations["lat"], stations["lon"])
    edges = np.arange(-20.0, 41.0, 10.0), np.arange(-30.0, 31.0, 10.0)
    cells = cells_of(*edges, (np.asarray(stations["lat"]), np.asarray(stations["lon"])))
    y = stations["temperature [K]"]
    expected = cagp.condition(prior, X, y, cells, solver=cagp.Cholesky())
    np.testing.assert_allclose(result["mean"].values.ravel(), expected.mean, rtol=1e-12)
    np.testing.assert_allclose(result["std"].values.ravel() ** 2, expected.variance, rtol=1e-9)
    points = cagp.krige(stations, to={"resolution": 10.0, "region": region}, prior=prior)
    assert (result["std"] < points["std"]).all()
    assert result.attrs["nodes_per_cell"] == len(cells.nodes) // len(cells)
    assert result.attrs["title"].endswith(", means over cells")
    assert "kind='cells'" in result.attrs["history"]
    for name in ("mean", "std", "std_computational"):
        assert result[name].attrs["cell_methods"] == "area: mean"
        assert result[name].attrs["long_name"].endswith(", mean over the cell")
        assert "cell_methods" not in points[name].attrs
    for axis, ends in zip(("latitude", "longitude"), edges, strict=True):
        np.testing.assert_allclose(result[result[axis].attrs["bounds"]], np.stack([ends[:-1], ends[1:]], 1))
        assert "bounds" not in points[axis].attrs


@pytest.mark.parametrize("order", [("lon", "lat"), ("lat", "lon")])
def test_cells_of_a_grid_in_any_order_are_exact_by_its_rings(gappy, prior, order):
    """The default target: each cell reaches half way to its neighbours, in the convention of the axis."""
    western = gappy.assign_coords(lon=((gappy.lon + 180.0) % 360.0 - 180.0)).transpose(*order)
    shuffled = western.isel(lat=slice(None, None, -1))
    result = cagp.krige(shuffled, kind="cells", prior=prior, solver="rings")
    assert set(result["mean"].dims) == set(order)
    assert result.lon.values.tolist() == shuffled.lon.values.tolist()
    north, east = np.sort(gappy.lat.values), np.sort(gappy.lon.values)
    middle, half = 0.5 * (north[1:] + north[:-1]), 0.5 * float(east[1] - east[0])
    ends = np.clip([2 * north[0] - middle[0], *middle, 2 * north[-1] - middle[-1]], -90.0, 90.0)
    there = gappy.stack(point=("lat", "lon")).dropna("point")
    cells = cells_of(ends, np.append(east - half, east[-1] + half), (there.lat.values, there.lon.values))
    grid = cagp.LatLonGrid.from_axes(gappy.lat, gappy.lon)
    expected = cagp.condition(prior, grid, gappy.values, cells, solver=cagp.Cholesky())
    found = result.assign_coords(lon=result.lon % 360.0).sortby(["lat", "lon"]).transpose("lat", "lon", "nv")
    np.testing.assert_allclose(found["mean"].values.ravel(), expected.mean, atol=1e-9)
    np.testing.assert_allclose(found["std"].values.ravel() ** 2, expected.variance, atol=1e-9)
    assert (found.lon_bnds.values[:, 1] - found.lon_bnds.values[:, 0]).tolist() == [2 * half] * east.size
    assert ((result.lon_bnds[:, 0] < result.lon) & (result.lon < result.lon_bnds[:, 1])).all()


@pytest.mark.parametrize(
    ("to", "kind", "key"),
    [
        (30.0, "cell", "map-kind"),
        ({"lat": [0.0], "lon": [0.0]}, "cells", "places-as-cells"),
        (np.zeros((3, 2)), "cells", "places-as-cells"),
        (cagp.LatLonGrid([10.0], 8), "cells", "no-cells"),
        (
            xr.Dataset(coords={"lat": [0.0, 1.0], "lon": [0.0, 180.0, 360.0]}),
            "cells",
            "no-cells",
        ),
    ],
)
def test_what_has_no_cells_is_said(stations, prior, to, kind, key):
    with pytest.raises(ArgumentError) as refusal:
        cagp.Kriging(prior=prior).fit(stations).predict(to, kind=kind)
    assert refusal.value.key == key


def test_recalibrated_laws_are_those_of_errors_at_places_that_were_left_out(truth):
    """Against the cross-validation and the method itself; the mean stays, and error bars have one factor."""
    given = {"noise_std": 0.5, "lengthscale": 0.8, "variance": 9.0}
    rough = truth.where(truth.lon < 180.0, 280.0 + 4.0 * (truth - 280.0))
    model = cagp.Kriging(recalibration="kuleshov", **given).fit(rough)
    found, plain = model.predict(20.0), cagp.Kriging(**given).fit(rough).predict(20.0)
    np.testing.assert_array_equal(found["mean"], plain["mean"])
    by = found.predictive_std / np.sqrt(plain["std"] ** 2 + 0.25)
    np.testing.assert_allclose(found["std"], by * plain["std"], rtol=1e-12)
    errors = cagp.Kriging(**given).fit(rough).cross_validate(None)
    learnt = Kuleshov().fit(
        Gaussian(errors["mean"].values, errors.predictive_std.values), errors.observed.values, None
    )
    distribution = learnt(Gaussian(plain["mean"].values, np.sqrt(plain["std"].values ** 2 + 0.25)), None)
    assert found["quantile"].dims[0] == "quantile_level"
    np.testing.assert_allclose(
        found["quantile"], distribution.quantile(found.quantile_level.values), rtol=1e-9
    )
    np.testing.assert_allclose(found.predictive_std, distribution.std, rtol=1e-9)
    assert found.attrs["recalibration"] == "kuleshov"
    assert "leave-one-out errors of the 198 observed points" in found.attrs["recalibration_statement"]


@pytest.mark.parametrize("count", [4, 20, None])
def test_values_left_out_are_corrected_by_errors_of_other_folds(truth, monkeypatch, count):
    """By folds and alone; more than seven folds are put into seven groups for what a method learns."""
    monkeypatch.setattr("cagp_dist.pipeline.cross_validation.MOST_LEARNED", 7)
    given = {"noise_std": 0.5, "lengthscale": 0.8, "variance": 9.0, "progress": False}
    rough = truth[0].where(truth.lon < 180.0, 280.0 + 4.0 * (truth[0] - 280.0))
    plain, found = (
        cagp.Kriging(**given, recalibration=method).fit(rough).cross_validate(count, blocks_degrees=None)
        for method in ("none", "kuleshov")
    )
    np.testing.assert_array_equal(found["mean"], plain["mean"])
    mean, std, observed = (plain[name].values for name in ("mean", "predictive_std", "observed"))
    for group in range(min(count or 7, 7)):
        out = plain.fold.values % 7 == group
        learnt = Kuleshov().fit(Gaussian(mean[~out], std[~out]), observed[~out], None)
        corrected = learnt(Gaussian(mean[out], std[out]), None)
        np.testing.assert_allclose(found["pit"][out], corrected.cdf(observed[out]), rtol=1e-6)
        np.testing.assert_allclose(found["predictive_std"][out], corrected.std, rtol=1e-6)
    by = found["predictive_std"] / plain["predictive_std"]
    np.testing.assert_allclose(found["std"], by * plain["std"], rtol=1e-9)
    assert not np.allclose(by, 1.0)
    np.testing.assert_allclose(found["rmse"], np.sqrt(np.mean((observed - mean) ** 2)), rtol=1e-12)
    said = found.attrs["recalibration_statement"]
    assert "errors at 198 places, each predicted from other folds; the score of a place uses only" in said


def test_scores_of_transformed_values_are_those_of_the_laws_that_are_given(truth):
    """Local scales have tails of Student t, which have no mean after the inverse of a logarithm."""
    generator = np.random.default_rng(1)
    lat, lon = (axis.ravel() for axis in np.meshgrid(truth.lat, truth.lon, indexing="ij"))
    field = 0.2 * (truth[0].values.ravel() - 280.0) + 0.3 * generator.standard_t(2.5, size=lat.size)
    table = (
        pd.DataFrame({"lat": lat, "lon": lon, "value": np.exp(field)}).dropna().sample(180, random_state=1)
    )
    given = {"prior": cagp.Prior(0.4 * cagp.Matern32(0.8), 0.09), "transform": "log", "progress": False}
    found, plain = (
        cagp.Kriging(**given, recalibration=method).fit(table).cross_validate(10, blocks_degrees=None)
        for method in ("local-scale", "none")
    )
    assert found.attrs["recalibration"] == "local-scale"
    assert float(found["crps"]) < 1.1 * float(plain["crps"])


def test_folds_that_leave_too_few_errors_are_refused_before_they_are_solved(truth, monkeypatch):
    model = cagp.Kriging(
        noise_std=0.5, lengthscale=0.8, variance=9.0, recalibration="local-scale", progress=False
    )
    model.fit(truth[0])
    monkeypatch.setattr("cagp_dist.pipeline.cross_validation.solve", pytest.fail)
    with pytest.raises(ArgumentError) as refusal:
        model.cross_validate(2, blocks_degrees=None)
    assert refusal.value.key == "few-errors"


def test_many_places_are_recalibrated_by_errors_of_some_that_one_solve_leaves_out(stations, monkeypatch):
    """As by hand: the others predict them, and what that says of errors corrects the map of all."""
    monkeypatch.setattr("cagp_dist.pipeline.cross_validation.FEWEST_DRAWN", 10)
    monkeypatch.setattr("cagp_dist.pipeline.cross_validation.OBSERVED_FOR_EACH", 2)
    given = {"noise_std": 0.5, "lengthscale": 0.8, "variance": 9.0, "kernel": "matern32"}
    given |= {"solver": cagp.Neighbours(20), "progress": False}
    table = {name: np.asarray(values) for name, values in stations.items()}
    found = cagp.krige(table, to=30.0, recalibration="kuleshov", **given)
    points = cagp.Kriging(**given).fit(table)._fitted()[0].points
    drawn = drawn_places(points, points.there.size // 2)
    rest = np.setdiff1d(points.there, drawn)
    parts = ({name: values[some] for name, values in table.items()} for some in (rest, drawn))
    others, left = parts
    by_others = cagp.krige(others, to=left, **given)
    learnt = Kuleshov().fit(
        Gaussian(by_others["mean"].values, np.hypot(by_others["std"].values, 0.5)),
        points.values[0, drawn],
        None,
    )
    plain = cagp.krige(table, to=30.0, **given)
    distribution = learnt(Gaussian(plain["mean"].values, np.hypot(plain["std"].values, 0.5)), None)
    levels = found.quantile_level.values
    np.testing.assert_allclose(found["quantile"], distribution.quantile(levels), rtol=1e-9)
    assert f"errors at {drawn.size} places" in found.attrs["recalibration_statement"]


def test_what_recalibrated_laws_do_not_say_is_refused(stations, truth):
    given = {"noise_std": 0.5, "lengthscale": 0.8, "variance": 9.0}
    model = cagp.Kriging(recalibration="local-scale", **given).fit(stations)
    with pytest.raises(ArgumentError) as refusal:
        model.predict(30.0)
    assert refusal.value.key == "few-errors"
    with pytest.raises(ArgumentError) as refused:
        model.sample(30.0)
    assert refused.value.key == "samples-recalibrated"
    with pytest.raises(ArgumentError) as refused:
        model.predict(30.0, kind="cells")
    assert refused.value.key == "recalibration-of-cells"
    with pytest.raises(ArgumentError) as refusal:
        cagp.krige(stations, to=30.0, recalibration="local", **given)
    assert refusal.value.key == "recalibration"
    with pytest.raises(ArgumentError) as refusal:
        cagp.krige(stations, to=30.0, recalibration="marx", **given)
    assert refusal.value.key == "recalibration"
    with pytest.raises(ArgumentError) as refusal:
        cagp.krige(stations, to=30.0, recalibration="sharp", **given)
    assert refusal.value.key == "recalibration"


@pytest.mark.parametrize(
    "numbers",
    [
        {"kernel": cagp.Matern32(0.05, 4.0), "noise_std": 0.5},
        {"kernel": "matern32", "hyperparameters": "integrate"},
    ],
    ids=["plug-in", "integrated"],
)
def test_a_time_with_one_observation_keeps_no_other_from_its_recalibration(numbers):
    """What all others say of it is not defined where the mean is estimated: it has no error to learn from."""
    rng = np.random.default_rng(0)
    place = pd.DataFrame({"latitude": rng.uniform(45.0, 55.0, 110), "longitude": rng.uniform(5.0, 15.0, 110)})
    days = [
        place.assign(time=day, temperature=10.0 + rng.normal(size=110))
        for day in ("2024-07-01", "2024-07-03")
    ]
    alone = days[0][3:4].assign(time="2024-07-02")
    settings = {"to": {"resolution": 5.0, "region": [55, 5, 45, 15]}, "recalibration": "kuleshov", **numbers}
    with_it, without = (
        cagp.krige(pd.concat(parts), progress=False, **settings)
        for parts in ([days[0], alone, days[1]], days)
    )
    assert with_it.attrs["recalibration"] == without.attrs["recalibration"] == "kuleshov"
    if "noise_std" in numbers:  # else the values of that time are among those that give the numbers
        xr.testing.assert_allclose(with_it["std"].isel(time=[0, 2]), without["std"], rtol=1e-12)


def test_a_field_with_a_single_value_has_no_leave_one_out_error_of_it():
    """Nothing predicts that beside a mean that is estimated; the other fields are scored and corrected."""
    generator = np.random.default_rng(0)
    values = generator.standard_normal((2, 60))
    values[1, 1:] = np.nan
    coordinates = {
        "latitude": ("station", generator.uniform(40.0, 60.0, 60)),
        "longitude": ("station", generator.uniform(0.0, 20.0, 60)),
    }
    field = xr.DataArray(values, coordinates, ("time", "station"), name="t")
    given = {"kernel": cagp.Matern32(0.05, 1.0), "noise_std": 0.5, "progress": False}
    scores = cagp.Kriging(**given).fit(field).cross_validate(None)
    assert np.isnan(scores["mean"].values[1]).all()
    assert np.isfinite(scores["mean"].values[0]).all()
    assert np.isfinite(scores.crps)
    found = cagp.krige(field, to=5.0, recalibration="kuleshov", **given)
    assert "leave-one-out errors of the 60 observed points" in found.attrs["recalibration_statement"]


def test_error_bars_that_learned_nothing_are_not_called_recalibrated():
    """Errors of one size everywhere teach a local scale nothing."""
    generator = np.random.default_rng(0)
    table = {"lat": generator.uniform(40.0, 60.0, 300), "lon": generator.uniform(0.0, 20.0, 300)}
    table["t"] = generator.standard_normal(300)
    given = {"kernel": cagp.Matern32(0.001, 0.5), "noise_std": 0.5**0.5, "mean": 0.0, "progress": False}
    found = cagp.krige(table, to=table, recalibration="local-scale", **given)
    plain = cagp.krige(table, to=table, **given)
    assert found.attrs["recalibration"] == "none"
    assert "are not recalibrated" in found.attrs["recalibration_statement"]
    np.testing.assert_array_equal(found["std"], plain["std"])
    assert not any("recalibrated" in each.attrs.get("long_name", "") for each in found.data_vars.values())


def test_means_and_scores_need_no_errors():
    """Where nothing can be learned from so few, the mean is there nevertheless."""
    generator = np.random.default_rng(0)
    given = {"kernel": cagp.Matern32(0.8, 9.0), "noise_std": 0.5, "progress": False}
    X, y = generator.uniform(0.0, 20.0, (30, 2)), generator.standard_normal(30)
    plain, corrected = (
        cagp.Kriging(**given, recalibration=name).fit(X, y) for name in ("none", "local-scale")
    )
    np.testing.assert_array_equal(corrected.predict(X), plain.predict(X))
    assert corrected.score(X, y) == plain.score(X, y)
