"""One call: what condition() gives for the same arrays comes out, on the coordinates of the target."""

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.calibration.curves import Kuleshov
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.geometry import spacing_degrees
from cagp_dist.gram.cells import nodes_per_side
from cagp_dist.kriging.observations import observe
from cagp_dist.kriging.solving import SOLVERS
from cagp_dist.predictive import Gaussian


@dataclass(frozen=True)
class Date:
    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: int
    microsecond: int
    calendar: str


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


@pytest.mark.parametrize("order", [("lon", "lat"), ("lat", "lon")])
@pytest.mark.parametrize("south_first", [True, False])
@pytest.mark.parametrize("eastern", [True, False])
def test_the_order_of_the_axes_and_their_convention_do_not_matter(gappy, prior, order, south_first, eastern):
    given = gappy if south_first else gappy.isel(lat=slice(None, None, -1))
    if not eastern:
        given = given.assign_coords(lon=((given.lon + 180.0) % 360.0 - 180.0)).sortby("lon")
    given = given.transpose(*order)
    result = cagp.krige(given, prior=prior)
    assert result.lon.variable.identical(given.lon.variable)
    assert result.lat.variable.identical(given.lat.variable)
    reference = cagp.krige(gappy, prior=prior)
    aligned = result.assign_coords(lon=result.lon % 360.0).sortby("lon").sortby("lat")
    np.testing.assert_allclose(aligned["mean"], reference["mean"], atol=1e-9)
    np.testing.assert_allclose(aligned["std"], reference["std"], atol=1e-9)


def test_times_with_different_gaps_are_solved_each_with_its_own(truth, prior):
    given = truth.copy()
    given[0, 2, 3:6] = np.nan
    given[1, 7, :4] = np.nan
    result = cagp.krige(given, prior=prior)
    assert result["mean"].dims == ("time", "lat", "lon")
    assert result.attrs["patterns_of_gaps"] == 2
    for number in range(2):
        alone = cagp.krige(given[number], prior=prior)
        np.testing.assert_array_equal(result["mean"][number], alone["mean"])
        np.testing.assert_array_equal(result["std"][number], alone["std"])
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


def test_names_units_and_attributes_are_those_of_the_observations(gappy, prior):
    result = cagp.krige(gappy, prior=prior)
    assert result["mean"].attrs["units"] == result["std"].attrs["units"] == "K"
    assert result["mean"].attrs["standard_name"] == "air_temperature"
    assert "near-surface temperature" in result["mean"].attrs["long_name"]
    said = result.attrs
    assert said["lengthscale_chord"] == 0.8
    assert said["lengthscale_km"] == pytest.approx(2 * 6371.0088 * np.arcsin(0.4))
    assert said["noise_std"] == pytest.approx(0.5)
    assert said["observations_used"] + said["observations_missing"] == gappy.size
    assert (said["fit_status"], said["earth_radius_km"]) == ("given", 6371.0088)
    assert {"solver", "status_advice", "history", "software", "planned_memory", "executor"} <= set(said)
    assert float(result.time.astype(int)) == float(gappy.time.astype(int))


def test_a_standard_name_that_is_not_known_is_none(gappy, prior):
    unknown = gappy.assign_attrs(standard_name="unknown")  # as cfgrib says
    assert "standard_name" not in cagp.krige(unknown, prior=prior)["mean"].attrs


def test_it_can_be_written_and_read_again(gappy, prior, tmp_path):
    result = cagp.krige(gappy, prior=prior)
    result.to_netcdf(tmp_path / "map.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "map.nc", engine="h5netcdf") as again:
        np.testing.assert_array_equal(again["mean"], result["mean"])


def test_places_of_a_table_keep_their_names(gappy, prior, tmp_path):
    places = {"city": ["Zürich", "Lima"], "lat": [47.4, -12.0], "lon": [8.5, -77.0]}
    result = cagp.krige(gappy, to=places, prior=prior)
    result.to_netcdf(tmp_path / "places.nc", engine="h5netcdf")
    result.to_zarr(tmp_path / "places.zarr", consolidated=False)
    with xr.open_dataset(tmp_path / "places.nc", engine="h5netcdf") as again:
        assert again.station_name.values.tolist() == ["Zürich", "Lima"]
    with xr.open_zarr(tmp_path / "places.zarr", consolidated=False) as again:
        lima = again.set_xindex("station_name").sel(station_name="Lima")
        assert float(lima["mean"]) == float(result["mean"][1])


def test_numbers_that_are_not_given_are_fitted(truth):
    result = cagp.krige(truth, to={"lat": [1.0], "lon": [2.0]})
    grid = cagp.LatLonGrid.from_axes(truth.lat, truth.lon)
    latitude = np.repeat(truth.lat.values, truth.lon.size)
    values = truth.values.reshape(2, -1)
    mean = cagp.mean_family("constant").fit(latitude, np.tile(truth.lon, truth.lat.size), values.T)
    centred = values - mean(grid.points).T
    expected = cagp.fit(cagp.Matern32, grid, centred.reshape(truth.shape), mean=0.0)
    assert result.attrs["fit_status"] == expected.status.value == "converged"
    assert result.attrs["lengthscale_chord"] == expected.prior.kernel.lengthscale
    errors = expected.standard_errors
    assert result.attrs["lengthscale_chord_standard_error"] == errors.lengthscale


def test_the_fit_to_a_large_grid_with_gaps_is_exact(gappy, monkeypatch):
    """Its likelihood by rings is the dense one, which smaller sets of points have."""
    dense = cagp.Kriging(mean=280.0).fit(gappy).fit_result_
    monkeypatch.setattr("cagp_dist.kriging.learning.MOST_DENSE", 100)
    result = cagp.Kriging(mean=280.0).fit(gappy).fit_result_
    assert (dense.method, result.method) == ("dense", "rings")
    assert result.points == dense.points == int(gappy.notnull().sum())
    assert result.log_likelihood == pytest.approx(dense.log_likelihood, abs=1e-4)
    # two searches end within a tenth of a standard error of the optimum
    apart = result.prior.kernel.lengthscale - dense.prior.kernel.lengthscale
    assert abs(apart) < 0.2 * dense.standard_errors.lengthscale
    assert result.standard_errors.lengthscale == pytest.approx(dense.standard_errors.lengthscale, rel=0.05)


def test_what_is_given_is_not_fitted(stations):
    model = cagp.Kriging(lengthscale_km=3000.0, noise_std=0.2).fit(stations)
    assert model.prior_.kernel.lengthscale == pytest.approx(2 * np.sin(1500.0 / 6371.0088), rel=1e-6)
    assert model.prior_.noise_variance == pytest.approx(0.04, rel=1e-6)
    assert model.fit_result_.standard_errors.variance > 0.0
    kernel = cagp.Matern12(0.5, 4.0)
    assert cagp.Kriging(kernel=kernel, noise_std=0.2).fit(stations).prior_.kernel == kernel


def test_a_nugget_is_added_to_a_known_noise(truth):
    settings = {"lengthscale": 0.8, "variance": 9.0, "noise_std": 0.3}
    exact = cagp.Kriging(**settings, nugget_std=0.4).fit(truth)
    assert exact.prior_.noise_variance == pytest.approx(0.25)
    fitted = cagp.Kriging(**settings, nugget_std=None).fit(truth)
    error = fitted.fit_result_.standard_errors.noise_variance
    assert abs(fitted.prior_.noise_variance - 0.25) < 3 * error < 0.15
    # all of it is known, and there is no nugget: no reason to warn
    none = cagp.Kriging(noise_std=0.7, nugget_std=None).fit(truth)
    assert none.fit_result_.prior == cagp.Kriging(noise_std=0.7).fit(truth).fit_result_.prior
    none = cagp.Kriging(**settings | {"noise_std": 0.7}, nugget_std=None).fit(truth)
    assert none.prior_.noise_variance == pytest.approx(0.49)


@pytest.mark.parametrize(
    ("to", "latitudes", "longitudes"),
    [
        ({"resolution": 30.0}, [-75, -45, -15, 15, 45, 75], np.arange(-165.0, 180.0, 30.0)),
        ({"resolution": 10.0, "region": [20, -10, 0, 10]}, [5, 15], [-5, 5]),
        ({"region": [20, 170, 0, -170], "resolution": 10.0}, [5, 15], [175, 185]),
        (cagp.LatLonGrid([0.0, 30.0], 4), [0, 30], [0, 90, 180, 270]),
    ],
)
def test_grids_of_cells(stations, prior, to, latitudes, longitudes):
    result = cagp.krige(stations, to=to, prior=prior)
    assert result.latitude.values.tolist() == list(latitudes)
    assert result.longitude.values.tolist() == list(longitudes)
    assert result["mean"].shape == (len(latitudes), len(longitudes))


def test_a_region_alone_gets_a_round_resolution(stations, prior):
    result = cagp.krige(stations, to=[60.0, -10.0, 30.0, 30.0], prior=prior)
    step = np.diff(result.longitude)
    np.testing.assert_allclose(step, 0.5)
    assert float(result.latitude.min()) == 30.25


def test_stations_and_curvilinear_grids_of_xarray(truth, prior):
    latitude = xr.DataArray([1.0, 2.0, 3.0], dims="station", attrs={"standard_name": "latitude"})
    longitude = xr.DataArray([4.0, 5.0, 6.0], dims="station", attrs={"standard_name": "longitude"})
    given = xr.Dataset(
        {"ta": (("time", "station"), [[280.0, np.nan, 282.0]]), "time": [0]},
        coords={"y_of": latitude, "x_of": longitude, "code": ("station", ["a", "b", "c"])},
    )
    result = cagp.krige(given, prior=prior)
    assert result["mean"].dims == ("time", "station")
    assert result.code.values.tolist() == ["a", "b", "c"]
    rotated = xr.DataArray(
        [[280.0, 281.0]],
        dims=("rlat", "rlon"),
        coords={
            "rlat": ("rlat", [0.0], {"standard_name": "grid_latitude", "units": "degrees", "axis": "Y"}),
            "rlon": (
                "rlon",
                [0.0, 1.0],
                {"standard_name": "grid_longitude", "units": "degrees", "axis": "X"},
            ),
            "lat": (("rlat", "rlon"), [[50.0, 50.1]]),
            "lon": (("rlat", "rlon"), [[10.0, 11.0]]),
        },
    )
    result = cagp.krige(rotated, prior=prior)
    assert result["mean"].dims == ("rlat", "rlon")
    assert {"lat", "lon", "rlat", "rlon"} <= set(result.coords)


def test_a_layout_like_cmip(truth, prior):
    days = xr.Variable("time", [54059.5, 54060.5], {"units": "days since 1850-01-01", "calendar": "360_day"})
    given = truth.assign_coords(time=days, height=2.0).to_dataset()
    given["lat_bnds"] = (("lat", "bnds"), np.zeros((11, 2)))
    given["lat"].attrs |= {"bounds": "lat_bnds", "axis": "Y"}
    given["time_bnds"] = (("time", "bnds"), np.zeros((2, 2)))
    result = cagp.krige(given, prior=prior)
    assert result.time.variable.identical(days)
    assert result.height == 2.0
    np.testing.assert_array_equal(result["mean"], cagp.krige(truth, prior=prior)["mean"])


def test_dates_of_another_calendar_stay_as_they_are_and_are_understood(truth, prior):
    """Objects such as those of the package cftime."""
    parts = {"hour": 12, "minute": 0, "second": 0, "microsecond": 0, "calendar": "noleap"}
    dates = np.array([Date(2004, 2, 28, **parts), Date(2004, 3, 1, **parts)], dtype=object)
    given = truth.assign_coords(time=("time", dates))
    expected = np.array(["2004-02-28T12", "2004-03-01T12"], dtype="datetime64[us]")
    np.testing.assert_array_equal(observe(given).times, expected)
    result = cagp.krige(given, prior=prior)
    assert result.time.values.tolist() == dates.tolist()
    np.testing.assert_array_equal(result["mean"], cagp.krige(truth, prior=prior)["mean"])


def test_a_layout_like_berkeley_earth(truth, prior):
    given = xr.Dataset(
        {
            "land_mask": (("latitude", "longitude"), np.ones((11, 18))),
            "temperature": (("time", "latitude", "longitude"), truth.values.astype(np.float32)),
            "climatology": (("month_number", "latitude", "longitude"), np.zeros((12, 11, 18))),
        },
        coords={
            "latitude": ("latitude", truth.lat.values, {"units": "degrees_north"}),
            "longitude": ("longitude", truth.lon.values - 170.0, {"units": "degrees_east"}),
            "time": ("time", [2020.04, 2020.12], {"units": "year A.D.", "standard_name": "time"}),
        },
    )
    with pytest.raises(ArgumentError, match=r"'temperature'.*value=\"NAME\""):
        cagp.krige(given, prior=prior)
    result = cagp.krige(given, value="temperature", prior=prior)
    assert result.time.values.tolist() == [2020.04, 2020.12]
    assert float(result.longitude[0]) == -170.0


@pytest.mark.parametrize("gaps", [0.0, 0.2])
def test_times_with_the_same_gaps_at_places_beside_the_grid(truth, prior, gaps):
    there = truth.where(np.random.default_rng(5).random(truth.shape[1:]) >= gaps)
    places = {"lat": [10.0, -20.0, 35.0], "lon": [5.0, 170.0, -175.0]}
    result = cagp.krige(there, to=places, prior=prior, solver="rings")
    for time in range(2):
        alone = cagp.krige(there[time], to=places, prior=prior, solver="cholesky")
        np.testing.assert_allclose(result["mean"][time], alone["mean"], atol=1e-9)
        np.testing.assert_allclose(result["std"][time], alone["std"], atol=1e-9)


def test_poles_are_one_place(prior):
    latitude = np.array([-90.0, -45.0, 0.0, 45.0, 90.0])
    values = np.random.default_rng(0).normal(280.0, 3.0, (5, 8))
    values[-1, 3:] = np.nan
    given = xr.DataArray(
        values, dims=("lat", "lon"), coords={"lat": latitude, "lon": np.arange(0.0, 360.0, 45.0)}
    )
    by_rings = cagp.krige(given, prior=prior, solver="rings")
    by_points = cagp.krige(given, prior=prior, solver="cholesky")
    np.testing.assert_allclose(by_rings["mean"], by_points["mean"], atol=1e-8)
    np.testing.assert_allclose(by_rings["std"], by_points["std"], atol=1e-8)
    np.testing.assert_allclose(by_rings["std"][0], by_rings["std"][0, 0], atol=1e-9)


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


def test_a_regional_grid_is_exact_by_either_way(truth, prior):
    region = truth[0].sel(lat=slice(-30, 45), lon=slice(40, 160)).copy()
    region[3, 2] = np.nan
    by_rings = cagp.krige(region, prior=prior, solver="rings")
    by_points = cagp.krige(region, prior=prior)
    np.testing.assert_allclose(by_rings["mean"], by_points["mean"], atol=1e-6)
    np.testing.assert_allclose(by_rings["std"], by_points["std"], atol=1e-6)
    assert by_points.attrs["solver"] == "Cholesky()"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"to": None}, "must be said where a map is wanted"),
        ({"to": "nowhere.csv"}, "there is no file"),
        ({"to": [1.0, 2.0]}, "to is"),
        ({"to": {"region": [0.0, 1.0, 10.0, 2.0]}}, r"expected \[north, west, south, east\]"),
        ({"to": 0.0}, "the resolution is 0.0"),
        ({"to": 0.001}, r"cells of 0.001 degrees; expected 10,000,000 at most"),
        ({"kernel": "matern23"}, "'matern23' is no kernel; expected matern12"),
        ({"kernel": 3}, "kernel is 3; expected a name"),
        (
            {"memory_limit_bytes": "1GB"},
            r"memory_limit_bytes is '1GB'; expected an integer of at least 0, .* 2 \* 10\*\*9 for 2 GB",
        ),
        ({"solver": "magic"}, "solver is 'magic'; expected \"auto\""),
        ({"solver": None}, "solver is None; expected a solver with its settings"),
        ({"solver": "rings"}, "form no latitude-longitude grid"),
        ({"mean": "cubic"}, "mean is 'cubic'"),
        ({"lengthscale": 1.0, "lengthscale_km": 1.0}, "both given"),
        ({"lengthscale_km": -1.0}, "lengthscale_km is -1.0"),
        ({"lengthscale_km": 21_000.0}, r"21000 km .* expected 0 to 20015 km.* kernel=cagp\.Matern32"),
        ({"lengthscale": 500}, r"a chord of the unit sphere, .* at most 2\. .* lengthscale_km=500\. "),
        ({"lengthscale": [0.1, 900.0]}, r"lengthscale is 900, .* lengthscale_km=\[0\.1, 900\]\. "),
        ({"lengthscale": 30_000.0}, r"lengthscale is 30000, .* at most 2\. A longer one"),
        (
            {"kernel": cagp.Matern32(500.0)},
            r"kernel has the lengthscale 500; .* 500 km are the chord 0\.07846",
        ),
        (
            {"prior": cagp.Prior(cagp.Matern32(500.0), 1.0)},
            r"prior has the lengthscale 500; .* diameter is 2",
        ),
        ({"noise_std": -1.0}, "noise_std is -1.0"),
        ({"noise_std": 0.1, "nugget_std": -1.0}, "nugget_std is -1.0"),
        ({"nugget_std": 1.0}, "nugget_std is 1, which is added to a known noise, and none is known"),
        ({"prior": 3.0}, "prior is 3.0; expected a cagp.Prior"),
        ({"noise_std": "err"}, "no column 'err'"),
        ({"executor": 3}, "executor is 3; expected a distributed.Client"),
    ],
)
def test_what_cannot_be_is_refused(stations, arguments, text):
    with pytest.raises((ArgumentError, DataError), match=text):
        cagp.krige(stations, **({"to": 30.0} | arguments))


def test_a_prior_fixes_every_number(stations, prior):
    with pytest.raises(ArgumentError, match="prior and noise_std were both given"):
        cagp.krige(stations, to=30.0, prior=prior, noise_std=0.1)
    with pytest.raises(ArgumentError, match="prior and nugget_std were both given"):
        cagp.krige(stations, to=30.0, prior=prior, nugget_std=0.1)


def test_a_prior_may_have_the_noise_of_each_place(truth, prior):
    field, noise = truth[0], np.linspace(0.1, 2.0, truth[0].size)
    own = cagp.Prior(prior.kernel, noise, mean=280.0)
    places = {"lat": [10.0, -20.0], "lon": [5.0, 170.0]}
    latitude, longitude = np.meshgrid(field.lat, field.lon, indexing="ij")
    X = cagp.unit_sphere(latitude.ravel(), longitude.ravel())
    X_test = cagp.unit_sphere(places["lat"], places["lon"])
    expected = cagp.condition(own, X, field.values.ravel(), X_test, solver=cagp.Cholesky())
    in_rows = cagp.Prior(prior.kernel, noise.reshape(field.shape), mean=280.0)
    for given in (own, in_rows):
        result = cagp.krige(field, to=places, prior=given)
        np.testing.assert_array_equal(result["mean"], expected.mean)
        np.testing.assert_array_equal(result["std"], np.sqrt(expected.variance))
    with pytest.raises(ArgumentError, match=r"shape \(5,\); .* of shape \(198,\) or \(11, 18\)"):
        cagp.krige(field, to=places, prior=cagp.Prior(prior.kernel, noise[:5]))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda given: given.rename(lat="south_north"), "no latitude was found"),
        (lambda given: given.expand_dims(level=[1, 2]), r"isel\(level=0\)"),
        (lambda given: given.assign_coords(lat=given.lat * 2), "which is no latitude"),
        (lambda given: given * np.nan, "NaN everywhere"),
        (lambda given: given / 0.0, "holds infinity"),
        (
            lambda given: given.expand_dims(time=np.array(["2020-01-01", "2020-01-02"], "M8[ns]")).where(
                lambda fields: fields.time.dt.day == 1
            ),
            "the field of 2020-01-02T00:00 has no observation .1 of 2",
        ),
    ],
)
def test_fields_that_cannot_be_read_are_refused(gappy, prior, change, text):
    given = gappy.copy()
    given["lat"].attrs.clear()
    with pytest.raises((ArgumentError, DataError), match=text):
        cagp.krige(change(given), prior=prior)


def test_a_number_may_mark_what_is_missing_in_a_field(gappy, prior):
    marked = gappy.fillna(1e20).astype("f4")
    result = cagp.krige(marked, prior=prior, missing=1e20, latitude="lat", time="time")
    expected = cagp.krige(gappy.astype("f4"), prior=prior)
    np.testing.assert_array_equal(result["mean"], expected["mean"])
    with pytest.raises(ArgumentError, match=r"longitude is 'x', which names a column.*here lon"):
        cagp.krige(gappy, prior=prior, longitude="x")


def test_each_observation_has_its_own_noise(stations, prior):
    noise = np.linspace(0.1, 2.0, 60)
    places = {"lat": [10.0, -20.0], "lon": [5.0, 170.0]}
    result = cagp.krige(stations | {"noise_std": noise}, to=places, kernel=prior.kernel, mean=280.0)
    own = cagp.Prior(prior.kernel, noise_variance=noise**2, mean=280.0)
    X, y = cagp.unit_sphere(stations["lat"], stations["lon"]), stations["temperature [K]"]
    X_test = cagp.unit_sphere(places["lat"], places["lon"])
    expected = cagp.condition(own, X, y, X_test, solver=cagp.Cholesky())
    np.testing.assert_array_equal(result["mean"], expected.mean)
    assert result.attrs["noise_std"] == "0.1 to 2, of each place"
    fitted = cagp.Kriging(mean=280.0).fit(stations | {"noise_std": noise}).fit_result_
    typical = float(np.mean(noise**2))
    direct = cagp.fit(
        cagp.Matern32, X, y - 280.0, mean=0.0, bounds={"noise_variance": (typical, typical)}, method="dense",
        noise_deviations=noise**2 - typical,
    )  # fmt: skip
    assert fitted.prior.kernel == direct.prior.kernel
    solver, order = cagp.BlockGaussSeidel(3, block_size=16), cagp.space_filling_order(X, block_size=16)
    swept = cagp.krige(
        stations | {"noise_std": noise}, to=places, kernel=prior.kernel, mean=280.0, solver=solver
    )
    ordered = cagp.Prior(prior.kernel, noise_variance=noise[order] ** 2, mean=280.0)
    expected = cagp.condition(ordered, X[order], y[order], X_test, solver=solver)
    np.testing.assert_array_equal(swept["mean"], expected.mean)


@pytest.mark.parametrize(
    ("noise_units", "units", "factor"), [("K", "degC", 1.0), ("Pa", "hPa", 0.01), ("", "hPa", 1.0)]
)
def test_a_noise_in_other_units_is_converted(truth, prior, noise_units, units, factor):
    noise = np.linspace(0.5, 2.0, truth[0].size).reshape(truth[0].shape)
    data = truth[0].assign_attrs(units=units).to_dataset(name="v")
    given = data.assign(e=(("lat", "lon"), noise, {"units": noise_units} if noise_units else {}))
    plain = data.assign(e=(("lat", "lon"), factor * noise))
    settings = {
        "value": "v",
        "noise_std": "e",
        "kernel": prior.kernel,
        "mean": 280.0,
        "to": {"lat": [1.0], "lon": [2.0]},
    }
    np.testing.assert_array_equal(
        cagp.krige(given, **settings)["mean"], cagp.krige(plain, **settings)["mean"]
    )
    with pytest.raises(
        DataError, match=rf"the noise 'e' is in 'm' and the values are in '{units}'; expected"
    ):
        cagp.krige(given.assign(e=given.e.assign_attrs(units="m")), **settings)


def test_a_climatology_in_other_units_is_converted_or_refused(prior, tmp_path):
    rng = np.random.default_rng(0)
    latitude, longitude = np.arange(-90.0, 91.0, 15.0), np.arange(0.0, 360.0, 15.0)
    usual = 101e3 + 500.0 * rng.standard_normal((latitude.size, longitude.size))
    usual[[0, -1]] = 101e3
    store = xr.Dataset(
        {"msl": (("latitude", "longitude"), usual, {"units": "Pa"})},
        coords={"latitude": latitude, "longitude": longitude},
    )
    store.to_zarr(tmp_path / "usual.zarr", zarr_format=2)
    stations = {
        "lat": rng.uniform(-60, 60, 20),
        "lon": rng.uniform(0, 350, 20),
        "msl": rng.normal(101e3, 400, 20),
    }
    settings = {
        "to": {"lat": [1.0, 30.0], "lon": [2.0, 40.0]},
        "mean": f"climatology:{tmp_path / 'usual.zarr'}",
        "lengthscale": 0.3,
    }
    pascal = cagp.krige(stations, units="Pa", variance=400.0**2, noise_std=50.0, **settings)
    hectopascal = stations | {"msl": stations["msl"] / 100.0}
    result = cagp.krige(hectopascal, units="mbar", variance=16.0, noise_std=0.5, **settings)
    np.testing.assert_allclose(result["mean"], pascal["mean"] / 100.0, rtol=1e-9)
    for units, text in (
        ("m", "the mean is in 'Pa' and the observations are in 'm'"),
        (None, "state no units"),
    ):
        with pytest.raises(ArgumentError, match=text):
            cagp.krige(hectopascal, units=units, variance=16.0, noise_std=0.5, **settings)


def test_a_sum_of_kernels_with_its_numbers(stations):
    kernel = cagp.Matern32(0.2, 1.0) + cagp.Matern32(1.0, 4.0)
    result = cagp.krige(stations, to={"lat": [0.0], "lon": [0.0]}, kernel=kernel, noise_std=0.5)
    assert result.attrs["lengthscale_chord"] == [0.2, 1.0]
    assert result.attrs["fit_status"] == "given"
    by_name = cagp.krige(
        stations,
        to={"lat": [0.0], "lon": [0.0]},
        kernel="matern32 + matern32",
        lengthscale=(0.2, 1.0),
        variance=(1.0, 4.0),
        noise_std=0.5,
    )
    np.testing.assert_array_equal(by_name["mean"], result["mean"])
    fitted = cagp.Kriging(kernel=kernel).fit(stations)
    assert fitted.prior_.kernel == kernel
    assert fitted.fit_result_.standard_errors.noise_variance > 0.0
    with pytest.raises(ArgumentError, match="the kernel has 2 parts: expected a number for each"):
        cagp.Kriging(kernel="matern32 + matern32", lengthscale_km=300.0).fit(stations)
    with pytest.raises(ArgumentError, match="whose numbers are kept, and variance were given"):
        cagp.Kriging(kernel=kernel, variance=1.0).fit(stations)


def test_both_lengthscales_of_a_sum_are_fitted(truth):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the field has one
        model = cagp.Kriging(kernel="matern32 + matern12", noise_std=0.5).fit(truth[0])
    parts = model.prior_.kernel.parts
    assert [type(part) for part in parts] == [cagp.Matern32, cagp.Matern12]
    assert "Matern32 + Matern12" in model.summary()


def test_sweeps_say_what_is_unfinished(stations, prior):
    places = {"lat": np.linspace(-60.0, 60.0, 9), "lon": np.linspace(0.0, 300.0, 9)}
    exact = cagp.krige(stations, to=places, prior=prior)
    few = cagp.krige(stations, to=places, prior=prior, solver=cagp.BlockGaussSeidel(1, block_size=8))
    unfinished = few["std"] ** 2 - exact["std"] ** 2
    np.testing.assert_allclose(few["std_computational"] ** 2, unfinished, atol=1e-10)
    assert float(few["std_computational"].max()) > 0.05
    assert few.attrs["status"] == "completed"


@pytest.mark.parametrize(("sweeps", "status"), [(200, "share-reached"), (1, "share-not-reached")])
def test_the_default_of_many_points_leaves_little_unfinished_or_says_so(
    stations, prior, monkeypatch, sweeps, status
):
    monkeypatch.setattr("cagp_dist.kriging.solving.MOST_DENSE", 10)
    small = cagp.BlockGaussSeidel(sweeps, block_size=8, computational_share=0.05)
    monkeypatch.setitem(SOLVERS, "block-gauss-seidel", small)
    result = cagp.krige(stations, to={"lat": [0.0, 50.0], "lon": [0.0, 120.0]}, prior=prior)
    assert result.attrs["solver"] == repr(small)
    assert result.attrs["status"] == status
    unfinished = (result["std_computational"] / result["std"]) ** 2
    assert float(unfinished.max()) > 0.0
    assert bool((unfinished <= 0.05).all()) == (status == "share-reached")


def test_the_fields_that_a_dataset_may_be_asked_for_are_named():
    axes = {"latitude": [0.0, 10.0, 20.0], "longitude": [0.0, 10.0]}
    field = xr.DataArray(np.zeros((3, 2)), axes, ["latitude", "longitude"])
    data = xr.Dataset({"land_mask": field, "temperature": field, "climatology": field})
    with pytest.raises(
        ArgumentError, match=r"has 2 variables .* \('temperature', 'climatology'\); say which"
    ):
        cagp.krige(data)


def test_a_lengthscale_beyond_the_diameter_of_the_earth_is_explained(stations):
    kernel = cagp.Matern32(lengthscale=3.0, variance=4.0)
    model = cagp.Kriging(kernel=kernel, noise_std=0.3).fit(stations)
    result = model.predict({"lat": [50.0], "lon": [10.0]})
    assert np.isnan(result.attrs["lengthscale_km"])
    assert "longer than the diameter of the Earth" in result.attrs["lengthscale_comment"]
    assert "lengthscale  chord 3. A chord above 2" in model.summary()
    assert "nan" not in model.summary()
    short = cagp.Kriging(lengthscale=0.3, variance=4.0, noise_std=0.3).fit(stations)
    assert "lengthscale_comment" not in short.predict({"lat": [50.0], "lon": [10.0]}).attrs


def cells_of(latitude_edges, longitude_edges, places):
    """The cells of a map, with as many nodes as their side has places."""
    spacing = spacing_degrees(*places)
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
    ("to", "kind", "text"),
    [
        (30.0, "cell", 'kind is \'cell\'; expected "grid" or "cells"'),
        ({"lat": [0.0], "lon": [0.0]}, "cells", "the targets are places, which have no cells"),
        (np.zeros((3, 2)), "cells", "the targets are places"),
        (cagp.LatLonGrid([10.0], 8), "cells", "have 1 latitude; expected at least two"),
        (
            xr.Dataset(coords={"lat": [0.0, 1.0], "lon": [0.0, 180.0, 360.0]}),
            "cells",
            "have 3 longitudes, of which some are the same",
        ),
    ],
)
def test_what_has_no_cells_is_said(stations, prior, to, kind, text):
    with pytest.raises(ArgumentError, match=text):
        cagp.Kriging(prior=prior).fit(stations).predict(to, kind=kind)


def test_recalibrated_laws_are_those_of_errors_at_places_that_were_left_out(truth):
    """Against the cross-validation and the method itself; the mean and the error bars of the field stay."""
    given = {"noise_std": 0.5, "lengthscale": 0.8, "variance": 9.0}
    rough = truth.where(truth.lon < 180.0, 280.0 + 4.0 * (truth - 280.0))
    model = cagp.Kriging(recalibration="kuleshov", **given).fit(rough)
    found, plain = model.predict(20.0), cagp.Kriging(**given).fit(rough).predict(20.0)
    for name in ("mean", "std"):
        np.testing.assert_array_equal(found[name], plain[name])
    errors = model.cross_validate(10, blocks_degrees=None)
    learnt = Kuleshov().fit(
        Gaussian(errors["mean"].values, errors.predictive_std.values), errors.observed.values, None
    )
    law = learnt(Gaussian(plain["mean"].values, np.sqrt(plain["std"].values ** 2 + 0.25)), None)
    assert found["quantile"].dims[0] == "quantile_level"
    np.testing.assert_allclose(found["quantile"], law.quantile(found.quantile_level.values), rtol=1e-9)
    np.testing.assert_allclose(found.predictive_std, law.std, rtol=1e-9)
    assert found.attrs["recalibration"] == "kuleshov"
    assert "errors at 198 places" in found.attrs["recalibration_statement"]


def test_what_recalibrated_laws_do_not_say_is_refused(stations, truth):
    given = {"noise_std": 0.5, "lengthscale": 0.8, "variance": 9.0}
    model = cagp.Kriging(recalibration="local-scale", **given).fit(stations)
    with pytest.raises(ArgumentError, match=r"recalibration 'local-scale': there are errors at 60 places"):
        model.predict(30.0)
    with pytest.raises(ArgumentError, match=r"The Gaussian posterior has one: recalibration=\"none\""):
        model.sample(30.0)
    with pytest.raises(ArgumentError, match="errors at places do not say how the mean over a cell errs"):
        model.predict(30.0, kind="cells")
    with pytest.raises(ArgumentError, match=r"recalibration is 'local'; expected \"local-scale\""):
        cagp.krige(stations, to=30.0, recalibration="local", **given)
    with pytest.raises(
        ArgumentError, match='recalibration is "sharp", which needs one model behind all errors'
    ):
        cagp.krige(stations, to=30.0, recalibration="sharp", **given)
