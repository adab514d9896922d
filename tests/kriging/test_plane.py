"""Maps on a plane of x and y: against the dense formula, in other units and origins, and what is refused."""

import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.interpolate import RegularGridInterpolator

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, ConfigurationError, DataError
from cagp_dist.remedies import Setting
from cagp_dist.space import Plane
from cagp_dist.space.systems import import_pyproj

from ..oracle import kernel_matrix

pyproj = import_pyproj()

EAST, NORTH, SIDE = 412_000.0, 5_331_000.0, 6_000.0  # of UTM zone 32, near Munich, in metres
KERNEL, NOISE = cagp.Matern32(1500.0, 4.0), 0.04
NUMBERS = {"lengthscale": 1500.0, "variance": 4.0, "noise_std": 0.2}
IN_PLANE = {"columns": {"x": "easting", "y": "northing"}, "crs": 32632, "value": "lead"}


def samples(n=120, seed=3):
    """Measurements at places in a square, with a trend in x, of which a column has a part."""
    rng = np.random.default_rng(seed)
    x, y = EAST + SIDE * rng.uniform(size=n), NORTH + SIDE * rng.uniform(size=n)
    X = np.column_stack([x - EAST, y - NORTH])
    root = np.linalg.cholesky(kernel_matrix(KERNEL, X, X) + 1e-9 * np.eye(n))
    depth = rng.uniform(0.0, 5.0, n)
    lead = 60.0 + 1e-3 * (x - EAST) - 2.0 * depth + root @ rng.standard_normal(n)
    return {"easting": x, "northing": y, "depth": depth, "lead": lead + 0.2 * rng.standard_normal(n)}


TABLE = samples()
Y = TABLE["lead"]
X = np.column_stack([TABLE["easting"] - EAST, TABLE["northing"] - NORTH])
TARGETS = {"easting": EAST + np.array([900.0, 3100.0]), "northing": NORTH + np.array([2000.0, 5500.0])}
X_NEW = np.column_stack([TARGETS["easting"] - EAST, TARGETS["northing"] - NORTH])


CONSTANT = np.ones((len(Y), 1))


def dense(H=CONSTANT, H_new=CONSTANT[:2]):
    """Mean and standard deviation by the textbook: the system with multipliers of ordinary kriging, or H."""
    G, V = kernel_matrix(KERNEL, X, X) + NOISE * np.eye(len(X)), kernel_matrix(KERNEL, X, X_NEW)
    k = H.shape[1]
    found = np.linalg.solve(np.block([[G, H], [H.T, np.zeros((k, k))]]), np.vstack([V, H_new.T]))
    weights, multipliers = found[: len(X)], found[len(X) :]
    variance = KERNEL.variance - np.sum(weights * V, axis=0) - np.sum(multipliers * H_new.T, axis=0)
    return weights.T @ Y, np.sqrt(variance)


def test_a_map_of_a_plane_is_the_textbook_formula_at_its_raw_coordinates():
    found = cagp.krige(TABLE, to=TARGETS, **IN_PLANE, **NUMBERS)
    mean, std = dense()
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-9)
    np.testing.assert_allclose(found["std"], std, rtol=1e-8)
    raw, raw_new = (np.column_stack([each["easting"], each["northing"]]) for each in (TABLE, TARGETS))
    direct = cagp.condition(
        cagp.Prior(KERNEL, NOISE, cagp.mean_family("constant")), raw, Y, raw_new, solver=cagp.Cholesky()
    )
    np.testing.assert_allclose(found["mean"], direct.mean, rtol=1e-8)
    model = cagp.Kriging(crs=32632, **NUMBERS).fit(raw, Y)
    np.testing.assert_array_equal(model.predict(raw_new), found["mean"])
    assert found.attrs["lengthscale"] == 1500.0
    assert found.attrs["lengthscale_units"] == "m"
    assert found.attrs["lengthscale_km"] == 1.5
    assert found.attrs["geometry"] == (
        "plane of easting and northing in m of WGS 84 / UTM zone 32N; Euclidean distance"
    )
    assert "lengthscale  1.5 km" in model.summary()
    assert "lengthscale_chord" not in found.attrs


@pytest.mark.parametrize(
    ("number", "unit", "text"),
    [
        (35_000.0, "m", "35 km"),
        (1500.0, "m", "1.5 km"),
        (999.4, "m", "999 m"),
        (999.6, "m", "1 km"),
        (12.345, "m", "12.3 m"),
        (309_700.0, "m", "310 km"),
        (4_812_345.0, "m", "4810 km"),
        (0.25, "km", "250 m"),
        (35.0, "km", "35 km"),
        (35_012.0, "US_survey_foot", "35000 US_survey_foot"),
        (35_012.0, "", "35000"),
    ],
)
def test_a_lengthscale_of_a_plane_is_written_in_metres_or_kilometres_without_powers_of_ten(
    number, unit, text
):
    assert Plane(unit=unit).lengthscale_text(number) == text


def test_a_summary_of_a_plane_says_units_of_errors_and_intervals_of_lengthscales():
    far = {**TABLE, "easting": EAST + 30.0 * X[:, 0], "northing": NORTH + 30.0 * X[:, 1]}
    model = cagp.Kriging(kernel="matern32", hyperparameters="integrate", progress=False, **IN_PLANE)
    said = model.fit(far).summary()
    assert re.search(r"lengthscale  [\d.]+ km\n", said)
    assert re.search(r"standard errors: lengthscale [\d.]+ km, ", said)
    assert re.search(r"of probability: lengthscale [\d.]+ km to [\d.]+ km, ", said)


def test_another_origin_direction_or_unit_changes_nothing_but_the_unit():
    plain = cagp.krige(TABLE, to=TARGETS, kernel="matern32", hyperparameters="plug-in", **IN_PLANE)
    length = plain.attrs["lengthscale"]
    turn = np.deg2rad(30.0)

    def moved(table, factor):
        x, y = table["easting"] - EAST, table["northing"] - NORTH
        turned = np.cos(turn) * x - np.sin(turn) * y, np.sin(turn) * x + np.cos(turn) * y
        return {**table, "easting": factor * turned[0] - 7e3, "northing": factor * turned[1] + 9e3}

    for factor in (1.0, 1e-3):
        found = cagp.krige(
            moved(TABLE, factor), to=moved(TARGETS, factor), kernel="matern32",
            hyperparameters="plug-in", **{**IN_PLANE, "crs": None},
        )  # fmt: skip
        np.testing.assert_allclose(found["mean"], plain["mean"], rtol=1e-5)
        np.testing.assert_allclose(found["std"], plain["std"], rtol=1e-4)
        assert found.attrs["lengthscale"] == pytest.approx(factor * length, rel=1e-3)
        assert "lengthscale_units" not in found.attrs
        assert "lengthscale_km" not in found.attrs
    named = {"x (km)": 1e-3 * TABLE["easting"], "y (km)": 1e-3 * TABLE["northing"], "lead": Y}
    in_km = {"columns": {"x": "x (km)", "y": "y (km)"}, "variance": 4.0, "noise_std": 0.2}
    to = {"x (m)": TARGETS["easting"], "y (m)": TARGETS["northing"]}
    known = cagp.krige(named, to=to, crs=32632, lengthscale=1.5, **in_km)
    np.testing.assert_allclose(known["mean"], dense()[0], rtol=1e-8)
    alone = cagp.krige(named, to=1.0, lengthscale_km=1.5, **in_km)
    assert (alone.attrs["lengthscale"], alone["x"].attrs["units"]) == (1.5, "km")


def test_the_unit_and_the_order_of_the_axes_are_those_of_the_system():
    feet = pyproj.CRS.from_user_input(2272)
    x, y = 2.6e6 + X[:, 0], 2.5e5 + X[:, 1]
    found = cagp.krige(
        {"x": x, "y": y, "lead": Y}, crs=feet, to=1000.0, lengthscale_km=0.5, variance=4.0, noise_std=0.2
    )
    assert found["x"].attrs["units"] == "US_survey_foot"
    assert found.attrs["lengthscale"] == pytest.approx(500.0 / 0.3048006096)
    northing_first = {"x": 1.6e6 + X[:, 0], "y": 5.4e6 + X[:, 1], "lead": Y}
    new_zealand = cagp.krige(northing_first, crs=2193, to=500.0, **NUMBERS)
    assert new_zealand["x"].values.max() < 1.7e6 < new_zealand["y"].values.min()


DRIFTS = {
    "constant": ("constant", lambda X, depth: []),
    "linear": ("regional_linear", lambda X, depth: [*(X.T - 3000.0)]),
    "column": ("depth", lambda X, depth: [depth]),
    "both": (["regional_linear", "depth"], lambda X, depth: [*(X.T - 3000.0), depth]),
}


@pytest.mark.parametrize("name", DRIFTS)
def test_a_drift_gives_the_system_with_multipliers(name):
    drift, columns = DRIFTS[name]
    depth = np.array([1.0, 3.0])
    H, H_new = (
        np.column_stack([np.ones(len(each)), *columns(each, of_each)])
        for each, of_each in ((X, TABLE["depth"]), (X_NEW, depth))
    )
    scale = np.abs(H).max(axis=0)
    mean, std = dense(H / scale, H_new / scale)
    found = cagp.krige(TABLE, to={**TARGETS, "depth": depth}, mean=drift, **IN_PLANE, **NUMBERS)
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-8)
    np.testing.assert_allclose(found["std"], std, rtol=1e-6)


def test_a_field_on_x_and_y_is_an_external_drift():
    y, x = NORTH - 500.0 + 700.0 * np.arange(11)[::-1], EAST - 500.0 + 700.0 * np.arange(11)
    values = np.sin(x / 900.0) + np.cos(y / 700.0)[:, None]
    axes = {
        name: (name, axis, {"standard_name": f"projection_{name}_coordinate"})
        for name, axis in (("x", x), ("y", y))
    }
    dem = xr.DataArray(values, axes, ("y", "x"), name="dem")
    interpolated = RegularGridInterpolator((y[::-1], x), values[::-1])
    H, H_new = (
        np.column_stack([np.ones(len(each)), interpolated(each[:, ::-1] + [NORTH, EAST])])
        for each in (X, X_NEW)
    )
    mean, std = dense(H, H_new)
    for drift in (dem, dem.T):
        found = cagp.krige(TABLE, to=TARGETS, mean=drift, **IN_PLANE, **NUMBERS)
        np.testing.assert_allclose(found["mean"], mean, rtol=1e-8)
        np.testing.assert_allclose(found["std"], std, rtol=1e-6)
    assert found["drift_term"].values.tolist() == ["constant", "dem"]
    with pytest.warns(UserWarning, match=r"'dem' is not known at \d+ of \d+ \w+, such as x 41"):
        half = cagp.krige(TABLE, to=TARGETS, mean=dem[:6], **IN_PLANE, **NUMBERS)
    assert 0 < np.isnan(half["mean"]).sum() < half["mean"].size
    holes = dem.where((x < EAST + 2000.0) | (y < NORTH + 2000.0)[:, None], -9999.0)
    with pytest.warns(UserWarning, match="'dem' is not known at"):
        cagp.krige(TABLE, to=TARGETS, mean=holes.assign_attrs(_FillValue=-9999.0), **IN_PLANE, **NUMBERS)
    elsewhere = dem.assign_coords(crs=((), 0, {"crs_wkt": pyproj.CRS.from_epsg(32633).to_wkt()}))
    with pytest.raises(ArgumentError) as refused:
        cagp.krige(TABLE, to=TARGETS, mean=elsewhere, **IN_PLANE, **NUMBERS)
    assert refused.value.key == "drift-system"
    endless = dem.where(x < EAST + 2000.0, np.inf)
    with pytest.raises(DataError) as refused:
        cagp.krige(TABLE, to=TARGETS, mean=endless, **IN_PLANE, **NUMBERS)
    assert refused.value.key == "infinite"
    with pytest.raises(ArgumentError) as refusal:
        cagp.krige(
            TABLE, to=TARGETS, mean=dem.drop_vars(["x", "y"]).rename(y="lat", x="lon"), **IN_PLANE, **NUMBERS
        )
    assert refusal.value.key == "covariate"


def test_targets_are_a_resolution_a_region_a_table_or_a_grid():
    def shape(to):
        found = cagp.krige(TABLE, to=to, **IN_PLANE, **NUMBERS)
        return found["mean"].shape, float(found["x"].values.min()), float(found["y"].values.max())

    assert shape(1000.0) == ((6, 6), EAST + 500.0, NORTH + 5500.0)
    region = [NORTH + 4000.0, EAST + 1000.0, NORTH + 1000.0, EAST + 3000.0]
    assert shape({"resolution": 500.0, "region": region}) == ((6, 4), EAST + 1250.0, NORTH + 3750.0)
    assert shape(region)[0] == shape({"region": region})[0] == (120, 80)
    assert shape({"resolution": 2000.0})[0] == (4, 3)
    grid = xr.Dataset(coords={"y": NORTH + 100.0 * np.arange(4), "x": EAST + 100.0 * np.arange(3)})
    for axis in "xy":
        grid[axis].attrs["standard_name"] = f"projection_{axis}_coordinate"
    assert shape(grid) == ((4, 3), EAST, NORTH + 300.0)
    assert shape(pd.DataFrame(TARGETS))[0] == (2,)


def test_cells_are_means_over_squares():
    cells = cagp.krige(TABLE, to=2000.0, kind="cells", **IN_PLANE, **NUMBERS)
    fine = cagp.Kriging(**IN_PLANE, **NUMBERS).fit(TABLE)
    x0, y0 = cells["x_bnds"].values[0], cells["y_bnds"].values[1]
    centres = {
        "easting": np.tile(np.linspace(*x0, 41)[:-1] + 25.0, 40),
        "northing": np.repeat(np.linspace(*y0, 41)[:-1] + 25.0, 40),
    }
    points = fine.predict(centres)
    assert float(cells["mean"][1, 0]) == pytest.approx(float(points["mean"].mean()), abs=0.02)
    assert float(cells["std"][1, 0]) < float(points["std"].mean())
    assert cells["mean"].attrs["cell_methods"] == "area: mean"


def test_the_result_says_its_system_as_cf_does(tmp_path):
    found = cagp.krige(TABLE, to=1000.0, recalibration="local-scale", **IN_PLANE, **NUMBERS)
    assert found["x"].attrs["standard_name"] == "projection_x_coordinate"
    assert found["y"].attrs == {
        "standard_name": "projection_y_coordinate", "axis": "Y", "long_name": "northing", "units": "m"
    }  # fmt: skip
    found.to_netcdf(tmp_path / "map.nc", engine="h5netcdf")
    kept = xr.open_dataset(tmp_path / "map.nc", engine="h5netcdf", decode_coords="all")
    for name in ("mean", "std", "predictive_std", "quantile"):
        assert kept[name].encoding["grid_mapping"] == "spatial_ref"
    assert pyproj.CRS.from_cf(kept["spatial_ref"].attrs) == pyproj.CRS.from_epsg(32632)
    again = cagp.krige(kept, value="mean", to=TARGETS, **NUMBERS)
    assert again.attrs["geometry"].endswith("of WGS 84 / UTM zone 32N; Euclidean distance")


LAMBERT = {
    "grid_mapping_name": "lambert_conformal_conic", "standard_parallel": [38.5, 38.5],
    "latitude_of_projection_origin": 38.5, "longitude_of_central_meridian": -97.5, "earth_radius": 6371229.0,
}  # fmt: skip


def model_grid():
    """A field of a regional model on x and y of a Lambert projection, in km, with a gap."""
    x, y = 3.0 * np.arange(20), 30.0 + 3.0 * np.arange(15)
    values = 280.0 + np.sin(x / 12.0) + np.cos(y / 9.0)[:, None]
    values[4:7, 5:9] = np.nan
    axes = {
        name: (name, axis, {"standard_name": f"projection_{name}_coordinate", "units": "km"})
        for name, axis in (("x", x), ("y", y))
    }
    field = xr.DataArray(values, axes, ("y", "x"), attrs={"units": "K", "grid_mapping": "lcc"})
    return xr.Dataset({"t2m": field, "lcc": ((), 0, LAMBERT)})


def test_a_model_grid_on_a_projection_is_mapped_on_its_own_axes():
    given = model_grid()
    found = cagp.krige(given, lengthscale_km=15.0, variance=1.0, noise_std=0.05)
    assert found["mean"].dims == ("y", "x")
    assert found["mean"].attrs["grid_mapping"] == "lcc"
    assert found.cagp.interval(0.9).lower.attrs["grid_mapping"] == "lcc"
    assert found.cagp.exceedance(280.0).attrs["grid_mapping"] == "lcc"
    assert found["lcc"].attrs == LAMBERT
    whole = 280.0 + np.sin(given.x / 12.0) + np.cos(given.y / 9.0)
    assert float(abs(found["mean"] - whole).max()) < 0.2
    with pytest.raises(DataError) as refused:
        cagp.krige(given["t2m"])
    assert refused.value.key == "no-grid-mapping"
    with pytest.raises(DataError) as refused:
        cagp.krige(given.assign(lcc=((), 0, {"grid_mapping_name": "nonsense"})))
    assert refused.value.key == "system-unknown"
    said = cagp.krige(
        given["t2m"], crs=pyproj.CRS.from_cf(LAMBERT), lengthscale=15.0, variance=1.0, noise_std=0.05
    )
    np.testing.assert_allclose(said["mean"], found["mean"], rtol=1e-9)
    assert said["x"].attrs["units"] == said.attrs["lengthscale_units"] == "km"


def test_systems_that_are_known_are_brought_together():
    given = model_grid()
    system = pyproj.CRS.from_cf(LAMBERT)
    to_degrees = pyproj.Transformer.from_crs(system, 4326, always_xy=True)
    x, y = np.meshgrid(1e3 * given.x.values, 1e3 * given.y.values)
    east, north = to_degrees.transform(x.ravel(), y.ravel())
    fitted = cagp.Kriging(lengthscale_km=15.0, variance=1.0, noise_std=0.05)
    sphere = {"lat": north, "lon": east, "t": given["t2m"].values.ravel()}
    on_globe = fitted.fit(sphere).predict(given)
    at_degrees = fitted.fit(sphere).predict({"lat": north, "lon": east})
    np.testing.assert_allclose(on_globe["mean"].values.ravel(), at_degrees["mean"], rtol=1e-9)
    assert on_globe["mean"].attrs["grid_mapping"] == "lcc"
    in_plane = fitted.fit(given)
    np.testing.assert_allclose(
        in_plane.predict({"lat": north, "lon": east})["mean"],
        in_plane.predict()["mean"].values.ravel(),
        rtol=1e-7,
    )
    degrees = xr.Dataset(coords={"lat": [48.12, 48.14], "lon": [7.83, 7.85, 7.87]})
    grid = cagp.krige(TABLE, to=degrees, **IN_PLANE, **NUMBERS)
    assert grid["mean"].dims == ("lat", "lon")
    assert float(grid["std"].min()) < 1.0
    with pytest.raises(ArgumentError) as refused:
        cagp.krige(
            {"x": X[:, 0], "y": X[:, 1], "lead": Y},
            columns={"x": "x", "y": "y"},
            to={"lat": [48.1], "lon": [11.0]},
            **NUMBERS,
        )
    assert refused.value.key == "of-another-space"
    with pytest.raises(DataError) as refused:
        cagp.krige(TABLE, to={"lat": [48.1, 5.0], "lon": [11.0, -81.0]}, **IN_PLANE, **NUMBERS)
    assert refused.value.key == "not-in-system"


def test_grids_with_latitudes_of_two_dimensions_are_points_of_the_sphere():
    given = model_grid()
    x, y = np.meshgrid(1e3 * given.x.values, 1e3 * given.y.values)
    east, north = pyproj.Transformer.from_crs(pyproj.CRS.from_cf(LAMBERT), 4326, always_xy=True).transform(
        x, y
    )
    curved = given.assign_coords(XLAT=(("y", "x"), north), XLONG=(("y", "x"), east))
    found = cagp.krige(curved, value="t2m", lengthscale_km=15.0, variance=1.0, noise_std=0.05)
    assert "earth_radius_km" in found.attrs
    flat = cagp.krige(
        curved, value="t2m", columns={"x": "x", "y": "y"}, lengthscale_km=15.0, variance=1.0, noise_std=0.05
    )
    assert flat.attrs["geometry"].startswith("plane of x and y")
    np.testing.assert_allclose(flat["mean"], found["mean"], atol=1e-3)


def test_what_kriging_offers_works_on_a_plane():
    model = cagp.Kriging(**IN_PLANE, **NUMBERS).fit(TABLE)
    blocks = model.cross_validate(6, blocks=1500.0, seed=1)
    side = np.floor((X - X.min(axis=0)) / 1500.0)
    for fold in range(6):
        mine = {tuple(cell) for cell in side[blocks["fold"].values == fold]}
        others = {tuple(cell) for cell in side[blocks["fold"].values != fold]}
        assert not mine & others
    np.testing.assert_array_equal(blocks["x"], TABLE["easting"])
    alone = model.cross_validate(None, blocks_degrees=None)
    gram = kernel_matrix(KERNEL, X, X) + NOISE * np.eye(len(X))
    inverse, ones = np.linalg.inv(gram), np.ones(len(Y))
    inverse -= np.outer(inverse @ ones, inverse @ ones) / (ones @ inverse @ ones)  # the mean is estimated
    np.testing.assert_allclose(alone["mean"], Y - inverse @ Y / np.diag(inverse), rtol=1e-8)
    np.testing.assert_allclose(alone["predictive_std"], 1.0 / np.sqrt(np.diag(inverse)), rtol=1e-8)
    draws = model.sample(TARGETS, size=2000, seed=0)["lead"]
    mean, std = dense()
    assert abs(draws.mean("sample") - mean).max() < 4.0 * std.max() / np.sqrt(2000.0)
    np.testing.assert_allclose(draws.std("sample"), std, rtol=4.0 / np.sqrt(2.0 * 2000.0))
    for solver in ("neighbours", cagp.Neighbours(100, drift="linear"), "block-gauss-seidel", cagp.Cholesky()):
        near = cagp.krige(TABLE, to=TARGETS, solver=solver, **IN_PLANE, **NUMBERS)
        np.testing.assert_allclose(near["mean"], mean, atol=0.2)
    with pytest.raises(ArgumentError) as refused:
        cagp.krige(TABLE, to=TARGETS, solver="rings", **IN_PLANE, **NUMBERS)
    assert refused.value.key == "no-rings"


def test_times_on_a_plane_are_informed_by_each_other():
    rng = np.random.default_rng(0)
    hours = rng.integers(0, 6, len(Y))
    table = {**TABLE, "time": np.datetime64("2024-03-01") + hours.astype("timedelta64[h]")}
    kernel = cagp.SpaceTime(KERNEL, cagp.Matern12(8.0))
    found = cagp.krige(table, to=TARGETS, at=["2024-03-01T02:00"], kernel=kernel, noise_std=0.2, **IN_PLANE)
    flat = np.zeros((len(X), 1))
    points, wanted = np.column_stack([X, flat, hours]), np.column_stack([X_NEW, flat[:2], [2, 2]])
    gram = kernel(points, points) + NOISE * np.eye(len(X))
    solved = np.linalg.solve(gram, np.column_stack([Y, np.ones(len(Y))]))
    level = solved[:, 0].sum() / solved[:, 1].sum()
    expected = level + kernel(wanted, points) @ (solved[:, 0] - level * solved[:, 1])
    np.testing.assert_allclose(found["mean"].values[0], expected, rtol=1e-8)


REFUSED = {
    "x without y": ({"columns": {"x": "easting"}}, ArgumentError, "x alone; expected both"),
    "no such column": (
        {"columns": {"x": "east_m", "y": "northing"}},
        ArgumentError,
        "has no column 'east_m'",
    ),
    "no such system": ({"crs": 999999}, ArgumentError, "crs is 999999, which pyproj does not know"),
    "degrees": ({"crs": 4326}, ArgumentError, "crs is WGS 84, of latitudes.* Leave crs"),
    "heights": ({"crs": 5703}, ArgumentError, "expected the system of a plane"),
    "both pairs": (
        {"columns": {"x": "easting", "y": "northing", "latitude": "lat"}},
        ArgumentError,
        "expected one pair",
    ),
    "swapped": (
        {"columns": {"x": "northing", "y": "easting"}, "crs": 32632},
        DataError,
        r'Swapped they lie there.* Say columns={"x": "easting", "y": "northing"}',
    ),
    "a trend by latitude": ({**IN_PLANE, "mean": "quadratic-latitude"}, ArgumentError, "points of a plane"),
    "a mean by latitude": ({**IN_PLANE, "mean": "harmonic-latitude"}, ArgumentError, "points of a plane"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_meant_is_refused(name):
    given, kind, message = REFUSED[name]
    with pytest.raises(kind, match=message):
        cagp.krige(TABLE, to=500.0, **{"value": "lead", **given})


def test_bad_coordinates_are_refused_by_row_and_unit():
    def with_(**columns):
        return {**{name: column.copy() for name, column in TABLE.items()}, **columns}

    empty = with_()
    empty["northing"][7] = np.nan
    with pytest.raises(DataError) as refused:
        cagp.krige(empty, to=500.0, **IN_PLANE)
    assert refused.value.key == "row"
    degrees = with_(easting=11.0 + X[:, 0] / 1e5, northing=48.0 + X[:, 1] / 1e5)
    with pytest.raises(DataError) as refused:
        cagp.krige(degrees, to=500.0, **IN_PLANE)
    assert refused.value.key == "outside-of-use"
    kilometres = with_(easting=TABLE["easting"] / 1000.0, northing=TABLE["northing"] / 1000.0)
    with pytest.raises(DataError) as refused:
        cagp.krige(kilometres, to=0.5, **IN_PLANE)
    assert refused.value.key == "outside-of-use"
    mixed = with_()
    mixed["easting"][3:5] /= 1000.0
    mixed["northing"][3:5] /= 1000.0
    with pytest.warns(
        UserWarning, match=r"2 places lie more than 10 .* 41\d\.\d+, 533\d\.\d+;.* their units"
    ):
        cagp.krige(mixed, to=TARGETS, **IN_PLANE, **NUMBERS)
    units = {"x (m)": TABLE["easting"], "y (km)": TABLE["northing"], "lead": Y}
    with pytest.raises(DataError) as refused:
        cagp.krige(units, to=500.0, columns={"x": "x (m)", "y": "y (km)"})
    assert refused.value.key == "units"
    angles = {"x (deg)": X[:, 0], "y (deg)": X[:, 1], "lead": Y}
    with pytest.raises(DataError) as refused:
        cagp.krige(angles, to=500.0, columns={"x": "x (deg)", "y": "y (deg)"})
    assert refused.value.key == "plane-in-degrees"
    with pytest.raises(ArgumentError) as raised:
        cagp.krige(TABLE, to=500.0)
    assert raised.value.remedies == (Setting("columns", {"x": "easting", "y": "northing"}),)


def test_x_and_y_are_taken_where_they_are_named_and_degrees_where_not():
    east, north = pyproj.Transformer.from_crs(32632, 4326, always_xy=True).transform(
        TABLE["easting"], TABLE["northing"]
    )
    both = {**TABLE, "lat": north, "lon": east}
    del both["depth"]
    flat = cagp.krige(both, to=TARGETS, **{**IN_PLANE, "value": None}, **NUMBERS)
    np.testing.assert_allclose(flat["mean"], dense()[0], rtol=1e-8)
    assert "geometry" in flat.attrs
    globe = cagp.krige(
        both, to={"lat": [48.15], "lon": [7.85]}, lengthscale_km=1.5, variance=4.0, noise_std=0.2
    )
    assert "geometry" not in globe.attrs


def test_places_that_are_there_twice_count_twice():
    twice = {name: np.concatenate([column, column[:1]]) for name, column in TABLE.items()}
    twice["lead"][-1] += 0.5
    with pytest.warns(UserWarning, match="2 rows share place and time"):
        found = cagp.krige(twice, to=TARGETS, **IN_PLANE, **NUMBERS)
    prior = cagp.Prior(KERNEL, NOISE, cagp.mean_family("constant"))
    direct = cagp.condition(prior, np.vstack([X, X[:1]]), twice["lead"], X_NEW, solver=cagp.Cholesky())
    np.testing.assert_allclose(found["mean"], direct.mean, rtol=1e-9)
    np.testing.assert_allclose(found["std"] ** 2, direct.variance, rtol=1e-8)


def test_without_pyproj_a_plane_works_and_a_system_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyproj", None)
    plain = cagp.krige(TABLE, to=TARGETS, **{**IN_PLANE, "crs": None}, **NUMBERS)
    np.testing.assert_allclose(plain["mean"], dense()[0], rtol=1e-8)
    with pytest.raises(ConfigurationError) as refused:
        cagp.krige(TABLE, to=TARGETS, **IN_PLANE, **NUMBERS)
    assert refused.value.key == "no-package"


@pytest.mark.exhaustive
def test_a_system_is_read_beside_the_proj_that_eccodes_loads():
    code = "import eccodes; from cagp_dist.space.systems import system; print(system(32632).name)"
    run = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith("WGS 84 / UTM zone 32N")


def test_maps_of_a_plane_are_drawn_and_written_in_its_system(tmp_path):
    import matplotlib.pyplot as plt
    import tifffile

    found = cagp.krige(TABLE, to={"resolution": 1000.0}, **IN_PLANE, **NUMBERS)
    figure = found.cagp.plot(observations={name: TABLE[name] for name in ("easting", "northing", "lead")})
    panel, drawn = figure.axes[0], figure.axes[0].collections
    assert panel.get_xlabel() == "easting [m]"
    np.testing.assert_array_equal(drawn[0].get_array(), found["mean"])
    np.testing.assert_allclose(drawn[1].get_offsets(), np.column_stack([TABLE["easting"], TABLE["northing"]]))
    plt.close(figure)
    places = cagp.krige(TABLE, to=TARGETS, **IN_PLANE, **NUMBERS).cagp.plot("mean")
    offsets = places.axes[0].collections[0].get_offsets()
    np.testing.assert_allclose(offsets, np.column_stack([*TARGETS.values()]))
    plt.close(places)
    variogram = cagp.Kriging(**IN_PLANE, **NUMBERS).fit(TABLE).variogram(draws=20)
    assert variogram["distance"].attrs["units"] == "m"
    h = variogram["curve_distance"].values[:, None]
    expected = KERNEL.variance - kernel_matrix(KERNEL, h, np.zeros((1, 1)))[:, 0] + NOISE
    np.testing.assert_allclose(variogram["fitted"], expected)
    assert float(variogram["distance"].max()) < SIDE
    plt.close(
        found.cagp.plot.variogram({name: TABLE[name] for name in ("easting", "northing", "lead")}, draws=20)
    )
    with tifffile.TiffFile(found.cagp.to_geotiff(tmp_path / "mean.tif")) as file:
        page = file.pages[0]
        np.testing.assert_array_equal(page.asarray(), found["mean"].values[::-1].astype(np.float32))
        assert page.tags[33922].value[3:5] == (EAST, NORTH + SIDE)
        assert page.geotiff_tags["ProjectedCSTypeGeoKey"] == 32632
    plane = cagp.krige(TABLE, to={"resolution": 1000.0}, **{**IN_PLANE, "crs": None}, **NUMBERS)
    with pytest.raises(ConfigurationError) as refused:
        plane.cagp.to_geotiff(tmp_path / "none.tif")
    assert refused.value.key == "no-epsg-number"


def _places(system, unit):
    """Places that were observed, on another system, in another unit, or as latitudes and longitudes."""
    east, north = (TABLE[name] for name in ("easting", "northing"))
    if system is not None:
        east, north = pyproj.Transformer.from_crs(32632, system, always_xy=True).transform(east, north)
    if system == 4326:
        return {"lat": ("place", north), "lon": ("place", east)}
    factor = {"m": 1.0, "km": 1e-3}[unit]
    return {
        letter: (
            "place",
            factor * axis,
            {"standard_name": f"projection_{letter}_coordinate", "units": unit},
        )
        for letter, axis in (("x", east), ("y", north))
    }


ELSEWHERE = {"system": (32633, "m"), "unit": (None, "km"), "globe": (4326, ""), "unit alone": (None, "km")}


@pytest.mark.parametrize(
    "name", ["system", "globe", "unit alone", pytest.param("unit", marks=pytest.mark.exhaustive)]
)
def test_observations_are_read_as_they_were_beside_targets_elsewhere(name):
    import matplotlib.pyplot as plt

    system, unit = ELSEWHERE[name]
    coordinates, own = _places(system, unit), {**IN_PLANE, "crs": None if name == "unit alone" else 32632}
    if name == "unit alone":
        table = {"easting (m)": TABLE["easting"], "northing (m)": TABLE["northing"], "lead": Y}
        own |= {"columns": {"x": "easting (m)", "y": "northing (m)"}}
    else:
        table = {each: TABLE[each] for each in ("easting", "northing", "lead")}
    to = xr.Dataset(coords=coordinates)
    if own["crs"] is not None and system != 4326:
        to = to.assign_coords(crs=((), 0, {"crs_wkt": pyproj.CRS.from_user_input(system or 32632).to_wkt()}))
    model = cagp.Kriging(**own, **NUMBERS).fit(table)
    found = model.predict(to)
    wanted = np.column_stack([coordinates[each][1] for each in (("lon", "lat") if system == 4326 else "xy")])
    for observations in (table, model):
        figure = found.cagp.plot("mean", observations=observations)
        seen = figure.axes[0].collections[1].get_offsets()
        np.testing.assert_allclose(seen, wanted, rtol=1e-8)
        plt.close(figure)
        figure = found.cagp.plot.variogram(observations, draws=20)
        plt.close(figure)
    days = np.datetime64("2024-03-01") + np.arange(3)
    timed = {each: np.tile(column, 3) for each, column in table.items()} | {"time": np.repeat(days, len(Y))}
    timed["lead"] = timed["lead"] + np.repeat([0.0, 1.0, 2.0], len(Y))
    model = cagp.Kriging(**own, **NUMBERS).fit(timed)
    found = model.predict(to)
    for observations in (timed, model):
        figure = found.cagp.plot(observations=observations)
        for place, panel in enumerate(figure.axes):
            near = np.linalg.norm(X - X[place], axis=1) < 100.0  # of which one place has two
            expected = Y[near] + np.arange(3.0)[:, None]
            np.testing.assert_allclose(panel.lines[1].get_ydata(), expected.ravel())
        plt.close(figure)


def test_observations_whose_place_beside_a_result_is_not_known_are_refused():
    import matplotlib.pyplot as plt

    grid = xr.DataArray(
        np.sin(np.arange(12.0)).reshape(3, 4),
        {
            letter: (
                letter,
                start + 500.0 * np.arange(n),
                {"standard_name": f"projection_{letter}_coordinate"},
            )
            for letter, start, n in (("y", NORTH + 2000.0, 3), ("x", EAST + 2000.0, 4))
        },
        ("y", "x"),
        name="lead",
    )
    system = ((), 0, {"crs_wkt": pyproj.CRS.from_epsg(32633).to_wkt()})
    to = xr.Dataset(coords=_places(32633, "m") | {"crs": system})
    found = cagp.krige(grid, crs=32632, to=to, **NUMBERS)
    plt.close(figure := found.cagp.plot("mean", observations=grid))
    seen = figure.axes[0].collections[1].get_offsets()
    corner = pyproj.Transformer.from_crs(32632, 32633, always_xy=True).transform(
        EAST + 2000.0, NORTH + 2000.0
    )
    np.testing.assert_allclose(seen[0], corner, rtol=1e-9)
    says = grid.assign_coords(crs=((), 0, {"crs_wkt": pyproj.CRS.from_epsg(32631).to_wkt()}))
    with pytest.raises(ArgumentError) as refused:
        found.cagp.plot("mean", observations=says)
    assert refused.value.key == "of-another-space"
    table = {each: TABLE[each] for each in ("easting", "northing", "lead")}
    with pytest.raises(ArgumentError) as refused:
        found.drop_attrs(deep=False).cagp.plot("mean", observations=table)
    assert refused.value.key == "of-another-space"
    flat = cagp.Kriging(**{**IN_PLANE, "crs": None}, **NUMBERS).fit(table)
    with pytest.raises(ArgumentError) as refused:
        found.cagp.plot("mean", observations=flat)
    assert refused.value.key == "of-another-space"


def test_crs_replaces_the_system_of_a_grid(tmp_path):
    import tifffile

    wrong = ((), 0, {"crs_wkt": pyproj.CRS.from_epsg(32631).to_wkt()})
    axes = {
        letter: (letter, start + 500.0 * np.arange(3), {"standard_name": f"projection_{letter}_coordinate"})
        for letter, start in (("y", NORTH), ("x", EAST))
    }
    grid = xr.DataArray(np.arange(9.0).reshape(3, 3), axes | {"utm": wrong}, ("y", "x"), name="lead")
    found = cagp.krige(grid, crs=32632, **NUMBERS)
    assert "utm" not in found.variables
    for result in (found, found.assign_coords(utm=wrong)):  # the map names its own
        with tifffile.TiffFile(result.cagp.to_geotiff(tmp_path / "map.tif")) as file:
            assert file.pages[0].geotiff_tags["ProjectedCSTypeGeoKey"] == 32632


def test_small_numbers_are_no_degrees_in_kilometres_or_around_the_origin():
    x, y = (X - 3000.0).T / 50.0  # within 60 km of the pole
    polar = {"crs": 3413, "noise_std": 0.2, "variance": 4.0}
    in_km = cagp.krige(
        {"x (km)": x, "y (km)": y, "lead": Y},
        to={"x (km)": [0.0], "y (km)": [1.0]},
        lengthscale=30.0,
        **polar,
    )
    in_m = cagp.krige(
        {"x": 1e3 * x, "y": 1e3 * y, "lead": Y}, to={"x": [0.0], "y": [1000.0]}, lengthscale=3e4, **polar
    )
    np.testing.assert_allclose(in_km["mean"], in_m["mean"], rtol=1e-9)
    at_pole = cagp.krige(
        {"x": 1e3 * x, "y": 1e3 * y, "lead": Y}, to={"x": [0.0], "y": [0.0]}, lengthscale=3e4, **polar
    )
    assert float(at_pole["std"][0]) < 2.0


AWAY = {
    "degrees": ({"easting": [11.0], "northing": [48.0]}, "look like degrees"),
    "kilometres": ({"easting": [694.0], "northing": [5335.0]}, "look like kilometres"),
    "swapped": ({"easting": TARGETS["northing"], "northing": TARGETS["easting"]}, "Swapped they lie there"),
    "a region of degrees": ([49.0, 10.0, 47.0, 12.0], "look like degrees"),
    "a swapped region": ([EAST + SIDE, NORTH, EAST, NORTH + SIDE], "Swapped they lie there"),
    "an array of degrees": (np.array([[11.0, 48.0]]), "look like degrees"),
}


@pytest.mark.parametrize("name", AWAY)
def test_targets_outside_the_area_of_use_are_refused_as_observations_are(name):
    to, message = AWAY[name]
    raw = np.column_stack([TABLE["easting"], TABLE["northing"]])
    arrays = isinstance(to, np.ndarray)
    model = cagp.Kriging(**({"crs": 32632} if arrays else IN_PLANE), **NUMBERS)
    model.fit(*((raw, Y) if arrays else (TABLE,)))
    with pytest.raises(DataError, match=message):
        model.predict(to)


def test_pyproj_is_imported_where_the_flags_of_linux_are_not_there(monkeypatch):
    monkeypatch.delattr("os.RTLD_DEEPBIND", raising=False)
    monkeypatch.delattr("sys.getdlopenflags", raising=False)
    assert import_pyproj().CRS.from_epsg(32632).to_epsg() == 32632


@pytest.mark.parametrize("names", [("rechtswert", "hochwert"), ("Hochwert", "Rechtswert")])
def test_axes_of_gauss_krueger_are_found_and_told_where_they_are_swapped(names):
    """Its X is the northing; taken as the easting, the places lie within the margin of its area."""
    degrees = np.random.default_rng(4).uniform([11.0, 48.0], [12.0, 49.0], (30, 2)).T
    east, north = pyproj.Transformer.from_crs(4326, 31468, always_xy=True).transform(*degrees)
    table = dict(zip(sorted(names, key=str.lower, reverse=True), (east, north), strict=True)) | {
        "lead": Y[:30]
    }
    found = cagp.krige(table, crs=31468, to=20_000.0, value="lead", **NUMBERS)
    assert found.x.min() > 4_400_000.0
    with pytest.raises(DataError) as refused:
        cagp.krige({"X": north, "Y": east, "lead": Y[:30]}, crs=31468, to=20_000.0, value="lead", **NUMBERS)
    assert refused.value.key == "axes-swapped"
    assert refused.value.remedies[0].value == {"x": "Y", "y": "X"}
