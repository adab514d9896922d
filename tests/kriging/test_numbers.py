"""Numbers of the prior: fitted, given, with a noise of each place, in other units."""

import warnings

import numpy as np
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, DataError


def test_numbers_that_are_not_given_are_fitted(truth):
    result = cagp.krige(truth, to={"lat": [1.0], "lon": [2.0]}, kernel="matern32")
    grid = cagp.LatLonGrid.from_axes(truth.lat, truth.lon)
    expected = cagp.fit(cagp.Matern32, grid, truth.values, mean=cagp.mean_family("constant"))
    assert result.attrs["fit_status"] == expected.status.value == "converged"
    assert result.attrs["lengthscale_chord"] == expected.prior.kernel.lengthscale
    errors = expected.standard_errors
    assert result.attrs["lengthscale_chord_standard_error"] == errors.lengthscale


def test_the_kernel_is_chosen_and_said(stations):
    """One that is given has nothing to be said of it; a smoothness is not fitted where no number is."""
    result = cagp.krige(stations, to={"lat": [1.0], "lon": [2.0]}, lengthscale=0.8)
    model = cagp.Kriging(lengthscale=0.8).fit(stations)
    assert result.attrs["kernel_choice"] == model.fit_result_.choice.line()
    assert f"kernel       {model.fit_result_.choice.line()}" in model.summary()
    assert result.attrs["lengthscale_chord"] == pytest.approx(0.8)
    fitted = cagp.Kriging(kernel="matern", lengthscale=0.8).fit(stations).prior_.kernel
    assert isinstance(fitted, cagp.Matern)
    assert "kernel_choice" not in cagp.krige(stations, to=60.0, kernel=cagp.Matern32).attrs
    with pytest.raises(ArgumentError) as refusal:
        cagp.krige(stations, to=60.0, kernel=cagp.Matern, lengthscale=0.8, variance=9.0, noise_std=0.5)
    assert refusal.value.key == "nothing-to-fit"


@pytest.mark.exhaustive
def test_the_fit_to_a_large_grid_with_gaps_is_exact(gappy, monkeypatch):
    """Its likelihood by rings is the dense one, which smaller sets of points have."""
    dense = cagp.Kriging(mean=280.0).fit(gappy).fit_result_
    monkeypatch.setattr("cagp_dist.pipeline.fitting.MOST_FITTED_DENSE", 100)
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
    settings = {"kernel": "matern32", "lengthscale": 0.8, "variance": 9.0, "noise_std": 0.3}
    exact = cagp.Kriging(**settings, nugget_std=0.4).fit(truth)
    assert exact.prior_.noise_variance == pytest.approx(0.25)
    fitted = cagp.Kriging(**settings, nugget_std=None).fit(truth)
    error = fitted.fit_result_.standard_errors.noise_variance
    assert abs(fitted.prior_.noise_variance - 0.25) < 3 * error < 0.15
    # all of it is known, and there is no nugget: no reason to warn
    none = cagp.Kriging(kernel="matern32", noise_std=0.7, nugget_std=None).fit(truth)
    given = cagp.Kriging(kernel="matern32", noise_std=0.7).fit(truth)
    for name in ("kernel", "noise_variance"):
        assert getattr(none.fit_result_.prior, name) == getattr(given.fit_result_.prior, name)
    none = cagp.Kriging(**settings | {"noise_std": 0.7}, nugget_std=None).fit(truth)
    assert none.prior_.noise_variance == pytest.approx(0.49)


def test_a_prior_fixes_every_number(stations, prior):
    with pytest.raises(ArgumentError) as refused:
        cagp.krige(stations, to=30.0, prior=prior, noise_std=0.1)
    assert refused.value.key == "prior-and-numbers"
    with pytest.raises(ArgumentError) as refused:
        cagp.krige(stations, to=30.0, prior=prior, nugget_std=0.1)
    assert refused.value.key == "prior-and-numbers"
    for given in ({"kernel": "matern52"}, {"kernel": cagp.Matern12(0.3)}, {"hyperparameters": "integrate"}):
        with pytest.raises(ArgumentError) as refused:
            cagp.krige(stations, to=30.0, prior=prior, **given)
        assert refused.value.key == "prior-and-numbers"
    plugged = cagp.krige(stations, to=30.0, prior=prior, hyperparameters="plug-in")
    np.testing.assert_array_equal(plugged["std"], cagp.krige(stations, to=30.0, prior=prior)["std"])


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
        np.testing.assert_allclose(result["mean"], expected.mean, rtol=1e-12)
        np.testing.assert_allclose(result["std"], np.sqrt(expected.variance), rtol=1e-12)
    with pytest.raises(ArgumentError) as refusal:
        cagp.krige(field, to=places, prior=cagp.Prior(prior.kernel, noise[:5]))
    assert refusal.value.key == "shapes"


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
    fitted = cagp.Kriging(mean=280.0, nugget_std=0.0).fit(stations | {"noise_std": noise}).fit_result_
    typical = float(np.min(noise**2))
    direct = cagp.fit(
        "auto", X, y - 280.0, mean=0.0, bounds={"noise_variance": (typical, typical)}, method="dense",
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
    with pytest.raises(DataError) as refusal:
        cagp.krige(given.assign(e=given.e.assign_attrs(units="m")), **settings)
    assert refusal.value.key == "units"


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
    for units in (
        "m",
        None,
    ):
        with pytest.raises(ArgumentError) as refusal:
            cagp.krige(hectopascal, units=units, variance=16.0, noise_std=0.5, **settings)
        assert refusal.value.key == "mean-units"


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
    with pytest.raises(ArgumentError) as refusal:
        cagp.Kriging(kernel="matern32 + matern32", lengthscale_km=300.0).fit(stations)
    assert refusal.value.key == "numbers-of-parts"
    with pytest.raises(ArgumentError) as refused:
        cagp.Kriging(kernel=kernel, variance=1.0).fit(stations)
    assert refused.value.key == "kernel-and-numbers"


@pytest.mark.exhaustive
def test_both_lengthscales_of_a_sum_are_fitted(truth):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the field has one
        model = cagp.Kriging(kernel="matern32 + matern12", noise_std=0.5).fit(truth[0])
    parts = model.prior_.kernel.parts
    assert [type(part) for part in parts] == [cagp.Matern32, cagp.Matern12]
    assert "Matern32 + Matern12" in model.summary()


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


def test_constant_and_linear_values_are_refused_where_numbers_are_fitted(gappy):
    """Whatever the mean's rounding; with every number given they are mapped."""
    rng = np.random.default_rng(1)
    places = {"lat": rng.uniform(45.0, 55.0, 40), "lon": rng.uniform(-5.0, 15.0, 40)}
    hours = np.datetime64("2024-01-01") + np.arange(40).astype("timedelta64[h]")
    linear = 280.0 - 0.3 * places["lat"] + 0.1 * places["lon"]
    for source, settings in (
        ({name: column[:10] for name, column in places.items()} | {"t": np.full(10, 5.0)}, {}),
        (places | {"t": np.full(40, 0.3)}, {"noise_std": 0.1}),
        (places | {"t": np.full(40, 5.0), "time": hours}, {"at": "observed"}),
        (places | {"t": linear}, {"mean": "regional_linear"}),
        (0.0 * gappy + 273.15, {}),
    ):
        with pytest.raises(DataError) as refused:
            cagp.krige(source, to={"lat": [50.0], "lon": [3.0]}, **settings)
        assert refused.value.key == "constant"
    varying = np.sin(0.5 * places["lat"]) + np.cos(0.3 * places["lon"])
    for size, spread in (1e5, 1e-9), (0.0, 1e-12):  # the first in units of 1.5e-11
        found = cagp.krige(places | {"t": size + spread * varying}, to={"lat": [50.0], "lon": [3.0]})
        truth = np.sin(25.0) + np.cos(0.9)
        assert (found["mean"].item() - size) / spread == pytest.approx(truth, abs=0.2)
        assert 0.0 < found["std"].item() < 0.2 * spread
    given = {"lengthscale": 0.5, "variance": 1.0, "noise_std": 0.1}
    found = cagp.krige(places | {"t": np.full(40, 5.0)}, to={"lat": [50.0], "lon": [3.0]}, **given)
    assert found["mean"].item() == pytest.approx(5.0)


def test_values_are_transformed_only_where_that_is_asked_for():
    rng = np.random.default_rng(0)
    table = {
        "lat": rng.uniform(45.0, 55.0, 30),
        "lon": rng.uniform(0.0, 10.0, 30),
        "tp (mm)": rng.gamma(1.0, 4.0, 30),
    }
    to, numbers = {"lat": [50.0], "lon": [5.0]}, {"lengthscale": 0.1, "variance": 1.0, "nugget_std": None}
    plain = cagp.krige(table, to=to, **numbers)
    assert plain["mean"].attrs["units"] == "mm"
    found = cagp.krige(table, to=to, transform="log1p", **numbers)
    logs = {"lat": table["lat"], "lon": table["lon"], "x": np.log1p(table["tp (mm)"])}
    np.testing.assert_allclose(
        found["mean"], cagp.krige(logs, to=to, value="x", **numbers)["mean"], rtol=1e-9
    )
    assert found["mean"].attrs["transform"] == "log(1 + tp / 1 mm)"
    assert found["mean"].attrs["units"] == found["std"].attrs["units"] == "1"
    X, y = np.stack([table["lat"], table["lon"]], axis=1), table["tp (mm)"]
    model = cagp.Kriging(transform="log1p", **numbers).fit(X, y)
    np.testing.assert_allclose(
        model.predict(X[:1]), cagp.Kriging(**numbers).fit(X, np.log1p(y)).predict(X[:1])
    )
    for given, noise in ((table, 0.5), (table | {"noise_std": np.full(30, 0.5)}, None)):
        with pytest.raises(ArgumentError) as refused:
            cagp.krige(given, to=to, transform="log1p", noise_std=noise)
        assert refused.value.key == "transform-noise"
    with pytest.raises(ArgumentError) as refusal:
        cagp.krige(table, to=to, transform="logs", **numbers | {"variance": None})
    assert refusal.value.key == "transform-unknown"
