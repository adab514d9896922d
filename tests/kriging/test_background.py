"""A background: the same posterior as dense algebra, what innovations say of it, and what is refused."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.pipeline.background import Innovations
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.run import run

from ..jobs import job_text
from ..oracle import kernel_matrix

LATITUDE, LONGITUDE = np.arange(40.0, 61.0, 1.0), np.arange(-12.0, 15.0, 1.0)
KERNEL, NOISE = cagp.Matern32(0.05, 4.0), 0.5
PLUGGED = {"hyperparameters": "plug-in"}
QUIET = {**PLUGGED, "progress": False}


def on_grid(values, name="t2m", units="K", times=None):
    axes = {"lat": LATITUDE, "lon": LONGITUDE}
    if times is not None:
        axes = {"time": np.array(times, "M8[ns]"), **axes}
    return xr.DataArray(values, axes, list(axes), name=name, attrs={"units": units} if units else {})


def at(field, latitude, longitude):
    return field.interp(lat=xr.DataArray(latitude), lon=xr.DataArray(longitude)).values


@pytest.fixture(scope="module")
def world():
    """A first guess, its error's standard deviation, 120 stations in degrees Celsius, and 30 places."""
    rng = np.random.default_rng(3)
    guess = on_grid(
        280.0 + 5.0 * np.sin(np.deg2rad(8.0 * LATITUDE))[:, None] * np.cos(np.deg2rad(9.0 * LONGITUDE))
    )
    spread = on_grid(np.broadcast_to(1.0 + 0.1 * (LATITUDE[:, None] - 40.0), guess.shape), "spread")
    latitude, longitude = rng.uniform(41.0, 59.0, 150), rng.uniform(-11.0, 13.0, 150)
    X = cagp.unit_sphere(latitude, longitude)
    root = np.linalg.cholesky(kernel_matrix(KERNEL, X, X) / 4.0 + 1e-10 * np.eye(150))
    field = at(guess, latitude, longitude) + at(spread, latitude, longitude) * (
        root @ rng.standard_normal(150)
    )
    table = {"lat": latitude[:120], "lon": longitude[:120]}
    table["t (degC)"] = field[:120] + NOISE * rng.standard_normal(120) - 273.15
    return guess, spread, table, {"lat": latitude[120:], "lon": longitude[120:]}, X


def dense(world, scale):
    """Mean and standard deviation at the places, and the innovations, by dense algebra in kelvin."""
    guess, _, table, to, X = world
    background = at(guess, np.append(table["lat"], to["lat"]), np.append(table["lon"], to["lon"]))
    K = kernel_matrix(KERNEL, X, X) / 4.0 * np.outer(scale, scale)
    G, V = K[:120, :120] + NOISE**2 * np.eye(120), K[120:, :120]
    innovations = table["t (degC)"] + 273.15 - background[:120]
    mean = background[120:] + V @ np.linalg.solve(G, innovations)
    std = np.sqrt(np.diag(K)[120:] - np.sum(V * np.linalg.solve(G, V.T).T, axis=1))
    return mean, std, innovations, G


@pytest.mark.parametrize(
    "solver", ["cholesky", cagp.Neighbours(120), cagp.BlockGaussSeidel(200, 40)], ids=repr
)
@pytest.mark.parametrize("of_places", [False, True], ids=["number", "field"])
def test_the_posterior_is_that_of_dense_algebra(world, of_places, solver):
    guess, spread, table, to, _ = world
    scale = at(spread, np.append(table["lat"], to["lat"]), np.append(table["lon"], to["lon"]))
    scale = scale if of_places else np.full(150, 2.0)
    mean, std, innovations, G = dense(world, scale)
    asked = {"background": guess, "background_std": spread if of_places else 2.0, "noise_std": NOISE}
    model = cagp.Kriging(**asked, lengthscale=0.05, kernel="matern32", solver=solver, **QUIET).fit(table)
    found = model.predict(to)
    np.testing.assert_allclose(found["mean"] + 273.15, mean, rtol=1e-6)
    np.testing.assert_allclose(found["std"], std, rtol=1e-4)
    said = found.attrs
    assert said["prior_mean"] == "background t2m"
    np.testing.assert_allclose(said["innovation_mean"], innovations.mean(), rtol=1e-9)
    np.testing.assert_allclose(
        said["innovation_ratio"], innovations @ np.linalg.solve(G, innovations) / 120, rtol=1e-4
    )
    np.testing.assert_allclose(
        said["innovation_std_ratio"], np.sqrt(np.sum(innovations**2) / np.trace(G)), rtol=1e-9
    )


@pytest.mark.parametrize("trend", [pytest.param("constant", marks=pytest.mark.exhaustive), "regional_linear"])
def test_a_mean_of_the_innovations_is_estimated_with_the_field(world, trend):
    """As of a map of the innovations alone, to which the background is added; and by dense algebra."""
    guess, spread, table, to, X = world
    background = at(guess, np.append(table["lat"], to["lat"]), np.append(table["lon"], to["lon"])) - 273.15
    alone = {"lat": table["lat"], "lon": table["lon"], "t (degC)": table["t (degC)"] - background[:120]}
    stated = {"noise_std": NOISE, "kernel": "matern32", "progress": False, "mean": trend}
    for asked, n in (
        ({"solver": "cholesky", **PLUGGED}, 120),
        ({"solver": cagp.Neighbours(40), **PLUGGED}, 120),
        ({"solver": cagp.BlockGaussSeidel(2, block_size=30), **PLUGGED}, 120),
        ({"hyperparameters": "integrate"}, 20),
    ):
        some, of_alone = ({name: column[:n] for name, column in each.items()} for each in (table, alone))
        model = cagp.Kriging(**stated, background=guess, background_std=2.0, **asked).fit(some)
        apart = cagp.Kriging(**stated, variance=4.0, **asked).fit(of_alone)
        found, expected = model.predict(to), apart.predict(to)
        np.testing.assert_allclose(found["mean"], expected["mean"] + background[120:], rtol=1e-7)
        for name in ("std", "drift_coefficient", "drift_coefficient_std"):
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-5)
        folds, of_apart = model.cross_validate(5), apart.cross_validate(5)
        np.testing.assert_allclose(folds["pit"], of_apart["pit"], rtol=1e-5, atol=1e-9)
        draws, others = model.sample(to, size=2, seed=1), apart.sample(to, size=2, seed=1)
        np.testing.assert_allclose(draws["t"], others["t"] + background[120:], rtol=1e-5)
    left, of_apart = model.cross_validate(None), apart.cross_validate(None)
    np.testing.assert_allclose(left["pit"], of_apart["pit"], rtol=1e-5)
    asked = {**stated, **PLUGGED, "background": guess, "background_std": spread, "lengthscale": 0.05}
    found = cagp.krige(table, to=to, **asked)
    scale = at(spread, np.append(table["lat"], to["lat"]), np.append(table["lon"], to["lon"]))
    H = np.ones((150, 1))
    if trend == "regional_linear":
        H = np.column_stack([H, np.append(table["lat"], to["lat"]), np.append(table["lon"], to["lon"])])
    K = kernel_matrix(KERNEL, X, X) / 4.0 * np.outer(scale, scale)
    G, V = K[:120, :120] + NOISE**2 * np.eye(120), K[120:, :120]
    d, W = alone["t (degC)"], np.linalg.solve(G, K[:120, 120:]).T
    precision = H[:120].T @ np.linalg.solve(G, H[:120])
    beta = np.linalg.solve(precision, H[:120].T @ np.linalg.solve(G, d))
    unseen, residuals = H[120:] - W @ H[:120], d - H[:120] @ beta
    variance = np.diag(K)[120:] - np.sum(W * V, axis=1)
    variance += np.sum(unseen @ np.linalg.inv(precision) * unseen, axis=1)
    np.testing.assert_allclose(found["mean"], background[120:] + H[120:] @ beta + W @ residuals, rtol=1e-7)
    np.testing.assert_allclose(found["std"], np.sqrt(variance), rtol=1e-7)
    ratio = residuals @ np.linalg.solve(G, residuals) / 120
    np.testing.assert_allclose(found.attrs["innovation_ratio"], ratio, rtol=1e-6)
    np.testing.assert_allclose(found.attrs["innovation_mean"], d.mean(), rtol=1e-9)


def test_other_ways_to_ask_have_the_background_too(world):
    """Arrays, leave-one-out and folds, samples, cells of one point's size, and numbers integrated over."""
    guess, spread, table, to, _ = world
    asked = {"background": guess, "noise_std": NOISE, "kernel": "matern32", "progress": False}
    for std in (2.0, spread):
        model = cagp.Kriging(**asked, background_std=std, lengthscale=0.05, hyperparameters="plug-in").fit(
            table
        )
        found = model.predict(to)
        mean, error = model.predict(np.stack([to["lat"], to["lon"]], axis=1), return_std=True)
        np.testing.assert_allclose(mean, found["mean"], rtol=1e-12)
        np.testing.assert_allclose(error, found["std"], rtol=1e-12)
        alone, slow = model.cross_validate(None), model.cross_validate(120, blocks_degrees=None)
        for name in ("mean", "std", "pit"):
            np.testing.assert_allclose(alone[name], slow[name], rtol=1e-6)
        # its background-free error is larger: the fields are 4 to 13 standard deviations from 0
        assert float(alone["rmse"]) < 2.0
        draws = model.sample(to, size=400, seed=1)
        scores = (draws["t"].mean("sample") - found["mean"]) / found["std"] * np.sqrt(400)
        assert float(np.abs(scores).max()) < 4.5
        np.testing.assert_allclose(draws["t"].std("sample"), found["std"], rtol=0.2)
        whole = cagp.Kriging(**asked, background_std=std, hyperparameters="integrate").fit(table)
        mixed = whole.predict(to)
        assert mixed.attrs["hyperparameters"].startswith("integrated over")
        assert float(np.abs((mixed["mean"] - found["mean"]) / found["std"]).max()) < 0.5
        np.testing.assert_allclose(mixed["std"], found["std"], rtol=0.3)
        cells = model.predict({"resolution": 0.01, "region": [50.05, 5.0, 50.0, 5.05]}, kind="cells")
        points = model.predict({"resolution": 0.01, "region": [50.05, 5.0, 50.0, 5.05]})
        np.testing.assert_allclose(cells["mean"], points["mean"], atol=0.02)


def test_ratios_are_one_where_the_numbers_are_right_and_not_elsewhere_t47():
    """T47: E[d_a d_b'] = R, by dense simulation of three generators; and the same by the product.

    The ratio of one draw is chi-square over its degrees: its standard error over all draws is
    sqrt(2 / (n draws)) where the numbers are right.
    """
    rng, n, draws = np.random.default_rng(47), 200, 200
    X = cagp.unit_sphere(rng.uniform(45.0, 55.0, n), rng.uniform(0.0, 15.0, n))
    for kernel, noise in (
        (cagp.Matern12(0.08, 4.0), 0.25),
        (cagp.Matern32(0.04, 4.0), 1.0),
        (cagp.Matern52(0.04, 1.0), 0.09),
    ):
        K = kernel_matrix(kernel, X, X)
        G = K + noise * np.eye(n)
        d_b = np.linalg.cholesky(G) @ rng.standard_normal((n, draws))

        def ratios(stated_variance, stated_noise, d_b=d_b, K=K):
            stated = stated_variance * K + stated_noise * np.eye(n)
            d_a = d_b - stated_variance * K @ np.linalg.solve(stated, d_b)
            variance, of_noise = np.full(n, stated_variance * K[0, 0]), np.full(n, stated_noise)
            found = Innovations.of(d_b.T, d_a.T, variance, of_noise, told=True)
            return d_a, found

        d_a, right = ratios(1.0, noise)
        error = np.sqrt(2.0 / (n * draws))
        assert abs(right.ratio - 1.0) < 4.0 * error
        assert 0.95 < right.std_ratio < 1.05
        of_pairs = d_a @ d_b.T / draws  # R, all pairs; each has the variance R G_jj / draws, about
        scaled = (of_pairs - noise * np.eye(n)) / np.sqrt(noise * (G[0, 0] + noise) / draws)
        assert np.sqrt(np.mean(scaled**2)) < 1.5
        for variance, stated in ((1.0, 4.0 * noise), (0.25, noise), (4.0, noise)):
            assert abs(ratios(variance, stated)[1].ratio - 1.0) > 0.05
    guess = on_grid(np.full((21, 27), 280.0), units="")
    X = np.stack([rng.uniform(41.0, 59.0, 400), rng.uniform(-11.0, 13.0, 400)], axis=1)
    places = cagp.unit_sphere(*X.T)
    G = kernel_matrix(KERNEL, places, places) + NOISE**2 * np.eye(400)
    y = 280.0 + np.linalg.cholesky(G) @ rng.standard_normal((400, 20))
    found = {}
    for std, noise in ((2.0, 0.5), (2.0, 1.0), (1.0, 0.5), (None, None)):
        asked = {"background": guess, "background_std": std, "noise_std": noise, "kernel": "matern32"}
        model = cagp.Kriging(**asked, **QUIET).fit(X, y)
        found[std, noise] = model.predict({"lat": [50.0], "lon": [5.0]}).attrs
    # standard errors: sqrt(2 / 8,000) = .016, and of the second half that of a quadratic form in G
    error = 0.5 * np.sqrt(2.0 * np.sum(G**2) / 20) / np.trace(G)
    right = found[2.0, 0.5]
    assert 0.95 < right["innovation_ratio"] < 1.05
    assert abs(right["innovation_std_ratio"] - 1.0) < 4.0 * error
    assert {"innovation_ratio", "innovation_std_ratio"}.isdisjoint(found[None, None])
    assert "say nothing" in found[None, None]["innovation_comment"]  # fitted to the same innovations
    assert found[2.0, 1.0]["innovation_ratio"] < 0.9
    assert found[1.0, 0.5]["innovation_std_ratio"] > 1.5


def test_an_ensemble_is_its_mean_and_its_spread(world):
    guess, spread, table, to, _ = world
    noise = np.random.default_rng(5).standard_normal((7, *guess.shape))
    noise = (noise - noise.mean(axis=0)) / noise.std(axis=0, ddof=1)
    members = (guess + spread * xr.DataArray(noise, dims=("number", *guess.dims))).assign_attrs(units="K")
    members = members.transpose("lat", "number", "lon").rename("t2m")
    asked = {"noise_std": NOISE, "kernel": "matern32", "lengthscale": 0.05, **QUIET}
    known = cagp.krige(table, to=to, background=guess, background_std=spread, **asked)
    listed = [members.isel(number=number) for number in range(7)]
    for ensemble in (members, members.to_dataset(), listed):
        found = cagp.krige(table, to=to, background=ensemble, **asked)
        for name in ("mean", "std"):
            np.testing.assert_allclose(found[name], known[name], rtol=1e-9)
    number = cagp.krige(table, to=to, background=members, background_std=2.0, **asked)
    np.testing.assert_allclose(
        number["std"], cagp.krige(table, to=to, background=guess, background_std=2.0, **asked)["std"]
    )
    elsewhere = [listed[0], listed[1].assign_coords(lon=LONGITUDE + 0.5)]
    with pytest.raises(DataError) as refused:
        cagp.krige(table, to=to, background=elsewhere, **asked)
    assert refused.value.key == "background-members"


def test_each_time_has_its_background(world):
    """Linear between the times of the background, with maps apart and with maps at times."""
    guess, _, table, to, _ = world
    days = ["2020-01-01", "2020-01-02", "2020-01-03"]
    guesses = on_grid(np.stack([guess, guess + 2.0, guess + 6.0]), times=days)
    rows = {"lat": np.tile(table["lat"], 2), "lon": np.tile(table["lon"], 2)}
    rows["time"] = np.repeat(np.array(["2020-01-01T12", "2020-01-03"], "M8[ns]"), 120)
    rows["t (degC)"] = np.concatenate([table["t (degC)"] + 1.0, table["t (degC)"] + 6.0])
    asked = {"kernel": "matern32", "noise_std": NOISE, **QUIET}
    numbers = {"lengthscale": 0.05, "variance": 4.0}
    alone = cagp.krige(table, to=to, background=guess, **asked, **numbers)
    found = cagp.krige(rows, to=to, background=guesses, **asked, **numbers)
    np.testing.assert_allclose(found["mean"].isel(time=0), alone["mean"] + 1.0, rtol=1e-9)
    np.testing.assert_allclose(found["mean"].isel(time=1), alone["mean"] + 6.0, rtol=1e-9)
    # so short in time that each time is alone, and a time between has the background's mean alone
    asked["kernel"] = cagp.SpaceTime(KERNEL, cagp.Matern12(0.5))
    when = ["2020-01-01T12", "2020-01-02T12", "2020-01-03"]
    over = cagp.krige(rows, to=to, background=guesses, at=when, **asked)
    np.testing.assert_allclose(over["mean"].isel(time=[0, 2]), found["mean"], rtol=1e-6)
    expected = at(guess, to["lat"], to["lon"]) - 273.15 + 4.0
    np.testing.assert_allclose(over["mean"].isel(time=1), expected, rtol=1e-6)
    with pytest.raises(DataError) as refused:
        cagp.krige(rows, to=to, background=guesses.isel(time=[0, 1]), **asked, at=when)
    assert refused.value.key == "background-times"
    with pytest.raises(DataError) as refused:
        cagp.krige(rows, to=to, background=guesses.isel(time=0), kernel="matern32", **numbers, **QUIET)
    assert refused.value.key == "background-times"


def test_holes_are_left_out_or_nan(world):
    guess, _, table, to, _ = world
    holed = guess.where(guess["lat"] < 55.0)
    asked = {"background_std": 2.0, "noise_std": NOISE, "lengthscale": 0.05, **QUIET}
    with pytest.warns(UserWarning, match="not known at") as told:
        found = cagp.krige(table, to=to, background=holed, **asked)
    assert len(told) == 2
    known = to["lat"] <= 54.0
    assert (np.isfinite(found["mean"].values) == known).all()
    assert found.attrs["observations_used"] == np.count_nonzero(table["lat"] <= 54.0)
    with pytest.raises(DataError) as refused:
        cagp.krige(
            table, to=to, background=guess.isel(lon=slice(0, 2)).assign_coords(lon=[100.0, 101.0]), **asked
        )
    assert refused.value.key == "covariate-unknown"


def test_what_cannot_be_told_is_refused(world):
    guess, spread, table, to, _ = world
    plain = {"lat": table["lat"], "lon": table["lon"], "t": table["t (degC)"]}
    for key, observations, asked in (
        ("background-units", plain, {}),
        ("background-units", table, {"background": on_grid(guess.values, units="m")}),
        ("background-units", table, {"background": on_grid(guess.values, units="")}),
        ("background-std", table, {"background_std": spread * 0.0, "noise_std": 0.5}),
        ("background-noise", table, {"background_std": spread}),
        ("background-std-and-variance", table, {"background_std": 2.0, "variance": 4.0}),
        ("background-std-and-variance", table, {"background_std": 2.0, "kernel": KERNEL}),
        ("background-with-others", table, {"mean": [guess]}),
        ("background-with-others", table, {"prior": cagp.Prior(KERNEL, 0.25)}),
        ("background-std-alone", table, {"background": None, "background_std": 2.0}),
        ("background", table, {"background": "forecast.nc"}),
        ("which-variable", table, {"background": xr.Dataset({"a": guess, "b": guess})}),
    ):
        with pytest.raises((ArgumentError, DataError)) as refused:
            cagp.krige(observations, to=to, **{"background": guess, **asked}, progress=False)
        assert refused.value.key == key, asked


@pytest.mark.parametrize(
    "of_places", [pytest.param(False, marks=pytest.mark.exhaustive), True], ids=["number", "field"]
)
def test_a_job_gives_the_same_bits(world, of_places, tmp_path):
    """Of a file whose name has the day, with a hole, in a daily job's way; and its report says so."""
    guess, spread, table, to, _ = world
    mean = {"mean": "constant"} if of_places else {}
    at_noon = np.datetime64("2020-01-01T12", "ns")
    holed = guess.where((guess["lat"] < 58.0) | (guess["lon"] < 8.0)).expand_dims(time=[at_noon])
    holed.to_netcdf(tmp_path / "guess20200101.nc", engine="h5netcdf")
    spread.to_netcdf(tmp_path / "spread.nc", engine="h5netcdf")
    rows = {"lat": table["lat"], "lon": table["lon"], "t (K)": table["t (degC)"] + 273.15}
    for name, held in (("stations", rows), ("places", to)):
        pd.DataFrame(held).to_csv(tmp_path / f"{name}.csv", index=False)
    address = f"file:{tmp_path / 'guess%Y%m%d.nc'}:t2m"
    std = f"file:{tmp_path / 'spread.nc'}:spread" if of_places else 2.0
    parsed = parse_job(
        job_text(
            observations={
                "source": f"table:{tmp_path / 'stations.csv'}",
                "variable": "t",
                "times": ["2020-01-01T12:00"],
                "noise_std": NOISE,
            },
            design={
                "train": {"kind": "all"},
                "test": {"kind": "folds", "count": 2},
                "targets": f"table:{tmp_path / 'places.csv'}",
            },
            prior={
                "kernel": "matern32",
                "background": address,
                "background_std": std,
                "hyperparameters": "plug-in",
                **mean,
            },
            recalibration={"method": "none"},
            solver={"name": "cholesky"},
            output={"root": tmp_path / "out"},
        )
    )
    path = run(parsed).path
    with pytest.warns(UserWarning, match="not known"):
        found = cagp.krige(
            tmp_path / "stations.csv",
            to=tmp_path / "places.csv",
            background=holed.isel(time=0, drop=True),
            background_std=spread if of_places else 2.0,
            noise_std=NOISE,
            kernel="matern32",
            **QUIET,
            **mean,
        )
    found = found.dropna("place")
    with xr.open_zarr(path, group="targets") as published, xr.open_zarr(path) as root:
        for ours, theirs in (("mean", "t_mean"), ("std", "t_std")):
            np.testing.assert_allclose(published[theirs].values.ravel(), found[ours], rtol=1e-9)
        assert '"innovation_ratio"' in root.attrs["innovations"]


def test_a_plane_has_backgrounds_in_both_doors(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0.0, 1e5, (2, 80))
    axes = {name: (name, np.arange(-1e4, 1.2e5, 1e4), {"units": "m"}) for name in "yx"}
    values = 10.0 + 5.0 * np.sin(axes["y"][1] / 3e4)[:, None] * np.cos(axes["x"][1] / 3e4)
    guess = xr.DataArray(values, axes, ["y", "x"], name="pm", attrs={"units": "ug m-3"})
    innovations = rng.standard_normal(80)
    seen = guess.interp(x=xr.DataArray(x), y=xr.DataArray(y)).values + innovations
    pd.DataFrame({"x": x, "y": y, "pm (ug m-3)": seen}).to_csv(tmp_path / "stations.csv", index=False)
    pd.DataFrame({"x": x[:5] + 500.0, "y": y[:5]}).to_csv(tmp_path / "places.csv", index=False)
    guess.to_netcdf(tmp_path / "guess.nc", engine="h5netcdf")
    parsed = parse_job(
        job_text(
            observations={
                "source": f"table:{tmp_path / 'stations.csv'}",
                "variable": "pm",
                "noise_std": 0.7,
                "columns": {"x": "x", "y": "y"},
            },
            design={
                "test": {"kind": "folds", "count": 2},
                "targets": f"table:{tmp_path / 'places.csv'}",
            },
            prior={
                "background": f"file:{tmp_path / 'guess.nc'}:pm",
                "background_std": 0.7,
                "kernel": "matern32",
                "hyperparameters": "plug-in",
            },
            recalibration={"method": "none"},
            solver={"name": "cholesky"},
            output={"root": tmp_path / "out"},
        )
    )
    found = cagp.krige(
        tmp_path / "stations.csv",
        to=tmp_path / "places.csv",
        columns={"x": "x", "y": "y"},
        background=guess,
        background_std=0.7,
        noise_std=0.7,
        kernel="matern32",
        **QUIET,
    )
    assert found.attrs["innovation_mean"] == pytest.approx(innovations.mean())
    with xr.open_zarr(run(parsed).path, group="targets") as published:
        np.testing.assert_allclose(published["pm_mean"].values.ravel(), found["mean"], rtol=1e-9)
