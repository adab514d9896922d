"""Universal kriging by name: against the kriging system with its multipliers, as PyKrige solves it."""

import numpy as np
import pytest
import xarray as xr
from scipy.interpolate import RegularGridInterpolator

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, BudgetError, DataError
from cagp_dist.kriging import kriging_model
from cagp_dist.kriging.given_observations import read
from cagp_dist.kriging.map_targets import of_table

from ..oracle import kernel_matrix

KERNEL, NOISE = cagp.Matern32(0.05, 4.0), 0.25
NUMBERS = {"lengthscale": 0.05, "variance": 4.0, "noise_std": 0.5}


@pytest.fixture(scope="module")
def elevation():
    """A field of 2 degrees over a region across Greenwich, longitudes -12 to 14."""
    latitude, longitude = np.arange(40.0, 61.0, 2.0), np.arange(-12.0, 15.0, 2.0)
    height = 500.0 + 400.0 * np.sin(0.7 * latitude)[:, None] * np.cos(0.5 * longitude)
    return xr.DataArray(height, {"lat": latitude, "lon": longitude}, ("lat", "lon"), name="elevation")


@pytest.fixture(scope="module")
def region(elevation):
    """90 stations on both sides of Greenwich: a trend, a lapse rate, a field and noise; and 20 targets."""
    rng = np.random.default_rng(8)
    latitude, longitude = rng.uniform(41.0, 59.0, 110), rng.uniform(-11.0, 13.0, 110)
    height = RegularGridInterpolator((elevation.lat, elevation.lon), elevation.values)((latitude, longitude))
    X = cagp.unit_sphere(latitude, longitude)
    root = np.linalg.cholesky(kernel_matrix(KERNEL, X, X) + 1e-10 * np.eye(110))
    field = (
        288.0 - 0.7 * (latitude - 50.0) + 0.2 * longitude - 0.0065 * height + root @ rng.standard_normal(110)
    )
    seen = slice(0, 90)
    table = {"lat": latitude[seen], "lon": longitude[seen] % 360.0}
    table["temperature"] = field[seen] + 0.5 * rng.standard_normal(90)
    return table, latitude, longitude, height, X


def kriging_system(X, y, H, X_new, H_new):
    """Weights and Lagrange multipliers of the system with unbiasedness constraints, for each target."""
    G, V = kernel_matrix(KERNEL, X, X) + NOISE * np.eye(len(X)), kernel_matrix(KERNEL, X, X_new)
    k = H.shape[1]
    system = np.block([[G, H], [H.T, np.zeros((k, k))]])
    found = np.linalg.solve(system, np.vstack([V, H_new.T]))
    weights, multipliers = found[: len(X)], found[len(X) :]
    variance = KERNEL.variance - np.sum(weights * V, axis=0) - np.sum(multipliers * H_new.T, axis=0)
    return weights.T @ y, np.sqrt(variance)


DRIFTS = {
    "ordinary kriging": ("constant", lambda lat, lon, height: []),
    "regional_linear": ("regional_linear", lambda lat, lon, height: [lat, lon]),
    "quadratic-latitude": ("quadratic-latitude", lambda lat, lon, height: [lat, lat**2]),
    "external drift": (["elevation"], lambda lat, lon, height: [height]),
    "both": (["regional_linear", "elevation"], lambda lat, lon, height: [lat, lon, height]),
}


@pytest.mark.parametrize("name", DRIFTS)
def test_a_drift_gives_the_kriging_system_of_pykrige(name, region, elevation):
    table, latitude, longitude, height, X = region
    drift, columns = DRIFTS[name]
    if isinstance(drift, list):
        drift = [elevation if term == "elevation" else term for term in drift]
    H = np.column_stack([np.ones(110), *columns(latitude, longitude, height)])
    H = H / np.abs(H).max(axis=0)  # the system has the same solution, and is better conditioned
    mean, std = kriging_system(X[:90], table["temperature"], H[:90], X[90:], H[90:])
    targets = {"lat": latitude[90:], "lon": longitude[90:]}
    result = cagp.krige(table, to=targets, mean=drift, **NUMBERS)
    np.testing.assert_allclose(result["mean"], mean, rtol=1e-9)
    np.testing.assert_allclose(result["std"], std, rtol=1e-7)
    assert result.attrs["status"] == "exact"
    terms = ["constant", *(["latitude", "longitude"] if "regional" in name or name == "both" else [])]
    terms += ["latitude", "latitude^2"] if "quadratic" in name else []
    terms += ["elevation"] if isinstance(drift, list) else []
    assert result["drift_term"].values.tolist() == terms
    named = isinstance(drift, str) and drift != "regional_linear"
    assert result.attrs["prior_mean"] == (drift if named else f"estimated with the field: {', '.join(terms)}")
    if "elevation" in terms:
        lapse, error = (float(result[key].sel(drift_term="elevation")) for key in COEFFICIENTS)
        assert abs(lapse + 0.0065) < 4.0 * error
        assert 0.0 < error < 0.0065


def test_a_column_of_the_table_is_a_term(region):
    """The kriging system with the heights themselves; targets have them, or are refused by name."""
    table, latitude, longitude, height, X = region
    noisy = height + np.random.default_rng(1).normal(0.0, 50.0, 110)  # no field on a grid
    H = np.column_stack([np.ones(110), noisy / 1000.0])
    mean, std = kriging_system(X[:90], table["temperature"], H[:90], X[90:], H[90:])
    heights = {"elevation": noisy[:90]} | table
    targets = {"lat": latitude[90:], "lon": longitude[90:], "elevation": noisy[90:]}
    result = cagp.krige(heights, to=targets, mean="elevation", **NUMBERS)
    np.testing.assert_allclose(result["mean"], mean, rtol=1e-9)
    np.testing.assert_allclose(result["std"], std, rtol=1e-7)
    model = cagp.Kriging(mean=["elevation"], **NUMBERS).fit(heights)
    at = xr.Dataset({"elevation": ("place", noisy[90:])}, coords={
        "lat": ("place", latitude[90:]), "lon": ("place", longitude[90:])})  # fmt: skip
    np.testing.assert_allclose(model.predict(at)["mean"], mean, rtol=1e-9)
    assert model.cross_validate(3).rmse < np.std(table["temperature"])
    for wanted in (5.0, {name: targets[name] for name in ("lat", "lon")}, np.array([[50.0, 0.0]])):
        with pytest.raises(ArgumentError) as refused:
            model.predict(wanted)
        assert refused.value.key == "covariate-unknown"
    # beside a station but higher: not the station's height, nor the field there by it
    there = {name: [table[name][0]] for name in ("lat", "lon")}
    low, high = (model.predict(there | {"elevation": [noisy[0] + up]})["mean"].item() for up in (0.0, 500.0))
    lapse = result["drift_coefficient"].sel(drift_term="elevation").item()
    assert high - low == pytest.approx(500.0 * lapse, rel=1e-5)
    with pytest.raises(ArgumentError) as refusal:
        cagp.krige(heights, to=targets, mean="height", value="temperature", **NUMBERS)
    assert refusal.value.key == "mean"


COEFFICIENTS = "drift_coefficient", "drift_coefficient_std"


def test_kernel_and_noise_are_fitted_by_the_restricted_likelihood_beside_a_drift(region, elevation):
    """As `cagp.fit` does beside the same mean; samples and cross-validation count the drift too."""
    table, *_ = region
    model = cagp.Kriging(mean=["regional_linear", elevation], noise_std=0.5).fit(table)
    basis = model.prior_.mean
    X = cagp.unit_sphere(table["lat"], table["lon"])
    expected = cagp.fit(
        cagp.Matern32, X, table["temperature"], mean=basis, bounds={"noise_variance": (0.25, 0.25)}
    )
    for name in ("lengthscale", "variance"):  # the map centres the values before
        found = getattr(model.fit_result_.prior.kernel, name)
        assert found == pytest.approx(getattr(expected.prior.kernel, name), rel=1e-9)
    assert (
        "prior mean   estimated with the field: constant, latitude, longitude, elevation" in model.summary()
    )
    rows = np.array([[50.0, 0.0], [44.0, 8.0]])
    mean, std = model.predict(rows, return_std=True)
    draws = model.sample({"lat": rows[:, 0], "lon": rows[:, 1]}, 4000)["temperature"].values
    assert np.abs(draws.mean(axis=0) - mean).max() < 4.0 * std.max() / np.sqrt(4000)
    np.testing.assert_allclose(draws.std(axis=0), std, rtol=4.0 / np.sqrt(2 * 4000))
    assert model.cross_validate(5, blocks_degrees=None).rmse < np.std(table["temperature"])


def test_fields_with_gaps_have_coefficients_of_their_own(truth):
    """Each time those of its own observations: the bits of `condition`, on the grid by its rings."""
    gaps = np.random.default_rng(2).random(truth.shape[1:]) < 0.1
    fields = xr.concat([truth[0], truth[1].where(~gaps)], "time")
    mean = cagp.mean_family("quadratic-latitude")
    numbers = {"lengthscale": 0.8, "variance": 9.0, "noise_std": 0.5}
    result = cagp.krige(fields, mean="quadratic-latitude", solver="rings", **numbers)
    grid = cagp.LatLonGrid.from_axes(truth.lat, truth.lon)
    prior = cagp.Prior(cagp.Matern32(0.8, 9.0), 0.25, mean=mean)
    for time in range(2):
        expected = cagp.condition(prior, grid, fields.values[time], grid, solver=cagp.Rings())
        np.testing.assert_array_equal(result["mean"][time], expected.mean)
        np.testing.assert_array_equal(result["drift_coefficient"][:, time], expected.coefficients.values)
        np.testing.assert_array_equal(result["drift_coefficient_std"][:, time], expected.coefficients.std)


def test_a_column_of_a_similar_name_is_named():
    table = {
        "lat": [1.0, 2.0, 3.0],
        "lon": [4.0, 5.0, 6.0],
        "t": [1.0, 2.0, 4.0],
        "elevation_m": [10.0, 30.0, 20.0],
    }
    with pytest.raises(ArgumentError, match="such as 'elevation_m'") as refused:
        cagp.krige(table, to=1.0, value="t", mean="elevation")
    assert refused.value.key == "mean"
    known = table | {"elevation": table["elevation_m"]}
    targets = {"lat": [1.0, 2.0], "lon": [4.0, 5.0], "elevation_band": [1.0, 2.0]}
    given = {"value": "t", "mean": "elevation", "kernel": "matern32", "lengthscale": 0.1, "variance": 1.0}
    cagp.krige(known, to=targets, noise_std=0.1, **given)  # places of observations, which have elevations


REFUSED = {
    "no such term": ("regional-linear", "mean has the term 'regional-linear'; expected \"constant\", "),
    "a term of PyKrige": (["external_Z"], "mean has the term 'external_Z'.* Fields are given themselves"),
    "two trends": (
        ["regional_linear", "constant"],
        "mean is 'regional_linear', 'constant'; expected one of",
    ),
    "none": ([], r"mean is \[\]; expected one of"),
    "a number": ([3.0], "mean has the term 3.0; expected"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_drift_is_refused(region, case):
    drift, text = REFUSED[case]
    with pytest.raises(ArgumentError, match=text):
        cagp.krige(region[0], to=1.0, mean=drift, **NUMBERS)


def test_drifts_that_do_not_fit_are_refused(region, elevation, stations):
    table = region[0]
    with pytest.raises(ArgumentError) as refused:
        cagp.krige(stations, to=30.0, mean="regional_linear", **NUMBERS)
    assert refused.value.key == "regional-mean"
    with pytest.raises(ArgumentError) as refusal:
        cagp.krige(table, to=1.0, mean=[elevation, elevation], **NUMBERS)
    assert refusal.value.key == "mean"
    with pytest.warns(DeprecationWarning, match="mean="), pytest.raises(ArgumentError) as both:
        cagp.krige(table, to=1.0, mean=280.0, drift="constant", **NUMBERS)
    assert both.value.key == "mean"
    with pytest.warns(DeprecationWarning, match="mean="):
        old = cagp.krige(table, to=5.0, drift="quadratic-latitude", **NUMBERS)
    now = cagp.krige(table, to=5.0, mean="quadratic-latitude", **NUMBERS)
    np.testing.assert_array_equal(old["std"], now["std"])
    with pytest.raises(ArgumentError) as refused:
        cagp.krige(table, to=1.0, prior=cagp.Prior(KERNEL, 0.25), mean="quadratic-latitude")
    assert refused.value.key == "prior-and-numbers"
    with pytest.raises(DataError) as refused:
        cagp.krige(table, to={"lat": [70.0], "lon": [0.0]}, mean=elevation, **NUMBERS)
    assert refused.value.key == "covariate-unknown"
    with pytest.raises(ArgumentError) as refusal:
        cagp.krige(table, mean=(0.0 * elevation + 1.0).rename("ones"), to=1.0, **NUMBERS)
    assert refusal.value.key == "coefficient-undetermined"


def test_a_frame_beside_its_values_has_the_columns_of_a_drift():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"lat": [40.0, 41.0, 42.0], "lon": [5.0, 6.0, 7.0], "elev": [1.0, 3.0, 2.0]})
    model = cagp.Kriging(mean="elev", **NUMBERS)
    assert read(model, frame, [1.0, 2.0, 3.0])[0].static["elev"].tolist() == [1.0, 3.0, 2.0]
    assert of_table(frame, static=["elev"]).static["elev"].tolist() == [1.0, 3.0, 2.0]


def test_what_has_no_value_of_the_drift_is_left_out_or_nan(region, elevation):
    """The bits of the call without it; told once, with a place west of Greenwich."""
    table, _, longitude, *_ = region
    holes = elevation.where(elevation.lon > -4.0)
    with pytest.warns(UserWarning, match="not known at") as told:
        result = cagp.krige(table, to=holes, mean=holes, **NUMBERS)
    texts = [str(each.message) for each in told]
    assert len(texts) == 2
    assert "observations, such as" in texts[0]
    assert " W: " in texts[0]
    assert "targets, such as 40 N, 12 W" in texts[1]
    known = np.isfinite(holes)
    for name in ("mean", "std"):
        np.testing.assert_array_equal(np.isfinite(result[name]), known)
    kept = longitude[:90] >= -2.0
    some = {name: np.asarray(column)[kept] for name, column in table.items()}
    rows, columns = np.nonzero(known.values)
    places = {"lat": elevation.lat.values[rows], "lon": elevation.lon.values[columns]}
    expected = cagp.krige(some, to=places, mean=elevation, **NUMBERS)
    np.testing.assert_allclose(result["mean"].values[known], expected["mean"], rtol=1e-9)
    with pytest.warns(UserWarning, match="not known at"):  # without times, all keep their places
        observed, _ = read(cagp.Kriging(mean=holes), table)
    assert observed.points.positions.shape == (90, 3)
    np.testing.assert_array_equal(observed.points.there, np.flatnonzero(kept))
    times = np.datetime64("2024-01-01T00") + np.arange(90).astype("timedelta64[h]")
    kernel = cagp.SpaceTime(KERNEL, cagp.Matern12(24.0))
    model = cagp.Kriging(mean=holes, noise_std=0.5, kernel=kernel, at=times[[3, 70]].tolist())
    with pytest.warns(UserWarning, match="not known at"):
        in_time = model.fit(table | {"time": times}).predict(holes)
    with pytest.warns(UserWarning, match="not known at"):
        draws = model.sample(holes, 2)["temperature"]
    for field in (*in_time["mean"], *draws[0], *draws[1]):
        np.testing.assert_array_equal(np.isfinite(field), known)


def test_cells_and_columns_without_a_value_are_nan(region, elevation):
    table, _, _, height, _ = region
    holes = elevation.where(elevation.lat < 50.0)
    heights, southern = table | {"elevation": height[:90]}, elevation.where(elevation.lat < 59.0)
    with pytest.warns(UserWarning, match="not known at"):
        cells = cagp.krige(heights, to=holes, value="temperature", mean=southern, kind="cells", **NUMBERS)
    assert 0 < np.isfinite(cells["mean"]).sum() < cells["mean"].size
    with pytest.warns(UserWarning, match="targets are NaN"):
        found = cagp.krige(heights, to=holes, mean="elevation", value="temperature", **NUMBERS)
    np.testing.assert_array_equal(np.isfinite(found["mean"]), np.isfinite(holes))
    heights["elevation"] = np.where(np.arange(90) == 3, np.nan, height[:90])
    with pytest.warns(UserWarning, match="not known at 1 of 90 observations"):
        left = cagp.krige(heights, to=elevation, mean="elevation", value="temperature", **NUMBERS)
    assert left.attrs["observations_used"] == 89


def test_units_of_a_drift_are_converted_or_refused(region, elevation):
    table, _, _, height, _ = region
    heights = table | {"elevation (m)": height[:90]}
    expected = cagp.krige(heights, to=elevation, mean="elevation", value="temperature", **NUMBERS)
    settings = {"mean": "elevation", "value": "temperature"} | NUMBERS
    for unit, factor in (("km", 1e-3), ("ft", 1.0 / 0.3048)):
        other = (factor * elevation).assign_attrs(units=unit)
        for to in (other, other.to_dataset()):
            found = cagp.krige(heights, to=to, **settings)
            np.testing.assert_allclose(found["mean"], expected["mean"], rtol=1e-9)
    ending = table | {"elevation_m": height[:90]}  # which converts to km, and is in metres
    named = settings | {"mean": "elevation_m"}
    with pytest.warns(UserWarning, match="converted from 'km' to 'm': .* the end of its name"):
        found = cagp.krige(
            ending, to=(1e-3 * elevation).rename("elevation_m").assign_attrs(units="km"), **named
        )
    np.testing.assert_allclose(found["mean"], expected["mean"], rtol=1e-9)
    found = cagp.krige(ending, to=elevation.rename("elevation_m").assign_attrs(units="m"), **named)
    np.testing.assert_allclose(found["mean"], expected["mean"], rtol=1e-9)
    ending = table | {"elevation_m (km)": 1e-3 * height[:90]}
    with pytest.warns(UserWarning, match="converted from 'm' to 'km'"):
        found = cagp.krige(ending, to=elevation.rename("elevation_m"), **named)
    np.testing.assert_allclose(found["mean"], expected["mean"], rtol=1e-9)
    cover = table | {"cover_1": 0.05 * height[:90]}  # per cent: "1" is no unit of a name
    field = (0.05 * elevation).rename("cover_1").assign_attrs(units="%")
    found = cagp.krige(cover, to=field, **settings | {"mean": "cover_1"})
    np.testing.assert_allclose(found["mean"], expected["mean"], rtol=1e-9)
    with pytest.raises(DataError) as refused:
        cagp.krige(heights, to=elevation.assign_attrs(units="Pa"), **settings)
    assert refused.value.key == "drift-units"
    with pytest.warns(UserWarning, match=r"to [89]\d\d.* \(m\) at the observations, .* to 0\.\d+ \(no unit"):
        cagp.krige(heights, to=1e-3 * elevation.rename("elevation"), **settings)
    with pytest.warns(UserWarning, match=r"to 2\d\d\d\S* \(m\) at the targets: .* extrapolated"):
        cagp.krige(heights, to=(2.5e-3 * elevation).assign_attrs(units="km"), **settings)


def test_stations_of_one_place_with_other_heights_are_averaged_and_named(region):
    table, latitude, longitude, height, _ = region
    twice = {name: np.append(column, column[0]) for name, column in table.items()}
    heights = twice | {"elevation": np.append(height[:90], height[0] + 100.0)}
    heights["name"] = [*(f"S{row}" for row in range(90)), "summit"]
    to = {"lat": latitude[90:], "lon": longitude[90:], "elevation": height[90:]}
    settings = {"mean": "elevation", "value": "temperature"} | NUMBERS
    with pytest.warns(UserWarning, match=r"different values at 1 place, .*\(S0, summit\)"):
        found = cagp.krige(heights, to=to, **settings)
    heights["elevation"][[0, 90]] = height[0] + 50.0
    np.testing.assert_allclose(found["mean"], cagp.krige(heights, to=to, **settings)["mean"], rtol=1e-9)


def test_a_linear_trend_is_counted_from_the_middle_of_the_observations(region):
    table, *_ = region
    result = cagp.krige(table, to=4.0, mean="regional_linear", **NUMBERS)
    east = (np.asarray(table["lon"]) + 180.0) % 360.0 - 180.0
    middle = [0.5 * (axis.min() + axis.max()) for axis in (table["lat"], east)]
    assert result.attrs["centre_of_drift"] == pytest.approx(middle)
    level, *_ = result["drift_coefficient"].values
    assert level == pytest.approx(285.0, abs=4.0)  # there, not at the equator


def test_a_map_that_does_not_fit_with_its_trend_is_refused_before_the_fit(stations, monkeypatch):
    """Its solve has right-hand sides for each coefficient, which a known mean has not."""
    plans, plan = [], kriging_model.plan_of_map

    def planned(*given, **settings):
        plans.append(plan(*given, **settings))

    monkeypatch.setattr(kriging_model, "plan_of_map", planned)
    settings = {"to": 10.0, "solver": "cholesky", **NUMBERS}
    cagp.krige(stations, mean=0.0, **settings)
    monkeypatch.setattr(
        kriging_model, "fit_beside_outliers", lambda *given, **settings: pytest.fail("fitted")
    )
    with pytest.raises(BudgetError):
        cagp.krige(stations, mean="harmonic-latitude", memory_limit_bytes=plans[0].peak_bytes, **settings)
