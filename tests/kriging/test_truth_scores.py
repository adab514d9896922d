"""Scores of a result against true values at its places."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats

import cagp_dist as cagp
from cagp_dist.calibration.verification.scores import scores
from cagp_dist.errors import ArgumentError

NUMBERS = {"kernel": "matern32", "hyperparameters": "plug-in", "progress": False}
LAT, LON = np.arange(47.0, 51.1, 0.5), np.arange(0.0, 6.1, 0.5)
TIMES = pd.to_datetime(["2020-01-01", "2020-01-02"])


@pytest.fixture(scope="module")
def truth():
    """Give a field at two times, drawn from its prior."""
    north, east = (axis.ravel() for axis in np.meshgrid(LAT, LON, indexing="ij"))
    X = cagp.unit_sphere(north, east)
    root = np.linalg.cholesky(cagp.Matern32(0.05, 4.0)(X, X) + 1e-8 * np.eye(len(X)))
    values = 280.0 + root @ np.random.default_rng(0).standard_normal((len(X), 2))
    axes = {"time": TIMES, "latitude": LAT, "longitude": LON}
    return xr.DataArray(values.T.reshape(2, LAT.size, LON.size), axes, list(axes), "t", {"units": "K"})


@pytest.fixture(scope="module")
def measured(truth):
    """Give measurements of the field at 40 of its places, at both times."""
    generator = np.random.default_rng(1)
    row, column = np.divmod(generator.choice(LAT.size * LON.size, 40, replace=False), LON.size)
    at = {"lat": np.tile(LAT[row], 2), "lon": np.tile(LON[column], 2), "time": np.repeat(TIMES, 40)}
    noise = generator.normal(0.0, 0.3, 80)
    return pd.DataFrame(at | {"t (K)": truth.values[:, row, column].ravel() + noise})


@pytest.fixture(scope="module")
def result(truth, measured):
    """Give the map of the measurements."""
    return cagp.krige(measured, to=truth, noise_std=0.3, **NUMBERS)


def test_scores_are_those_of_the_distribution_at_each_place(truth, result):
    found = result.cagp.score(truth)
    mean, std, true = (each.values.ravel() for each in (result["mean"], result["std"], truth))
    expected = scores(mean, std, true)
    for name in ("rmse", "crps", "nll"):
        assert found[name].item() == pytest.approx(getattr(expected, name), rel=1e-12)
    np.testing.assert_array_equal(found["coverage"], expected.coverage)
    np.testing.assert_allclose(found["pit"], stats.norm.cdf(true, mean, std))
    assert found.attrs["compared"] == truth.size
    assert found["rmse"].attrs["units"] == "K"
    assert found["time"].values[-1] == np.datetime64(TIMES[1])
    cross = cagp.Kriging(noise_std=0.3, **NUMBERS).fit(truth[:1, :3]).cross_validate(3)
    assert {*cross.data_vars} - {*found.data_vars} == {"fold"}


def test_a_truth_is_brought_to_the_places_of_the_result_whatever_its_layout(truth, result, measured):
    expected = result.cagp.score(truth)["rmse"].item()
    turned = truth.transpose("longitude", "time", "latitude").isel(latitude=slice(None, None, -1))
    around = turned.assign_coords(longitude=truth.longitude - 360.0).astype("float32")
    table = truth.to_dataframe().reset_index().sample(frac=1.0, random_state=0).rename(columns={"t": "t (K)"})
    for given in (turned, around, table):
        found = result.cagp.score(given)
        assert found["rmse"].item() == pytest.approx(expected, rel=1e-4)
        assert found.attrs["compared"] == truth.size
    one = result.isel(time=1).cagp.score(truth.isel(time=1, drop=True))
    of_one = result.cagp.score(truth.isel(time=[1]))
    assert one["rmse"].item() == pytest.approx(of_one["rmse"].item(), rel=1e-12)
    moved = measured.assign(lat=measured["lat"] + np.where(np.arange(80) < 10, 0.01, 0.0))
    moved["time"] = moved["time"].where(np.arange(80) < 75, np.datetime64("2021-01-01"))
    found = result.cagp.score(moved, of="observation")
    assert (found.attrs["compared"], found.attrs["elsewhere"]) == (65, 15)
    np.testing.assert_allclose(found["predictive_std"], np.hypot(found["std"], 0.3))


def test_places_of_a_plane_are_compared(measured):
    first = measured[:40]
    table = {"x": 1e5 * first["lon"], "y": 1e5 * first["lat"], "t": first["t (K)"]}
    to = {name: held[::2] for name, held in table.items()}
    found = cagp.krige(table, to=to, columns={"x": "x", "y": "y"}, noise_std=0.3, **NUMBERS).cagp.score(table)
    assert (found.attrs["compared"], found.attrs["elsewhere"]) == (20, 20)


def test_rows_of_a_profile_are_compared_at_their_depths():
    kernel = cagp.Matern32((0.05, 20.0), 4.0, axis=("space", "depth"))
    deep = {"columns": {"depth": "depth"}, "prior": cagp.Prior(kernel, 0.09, 10.0)}
    north, east = np.array([48.1, 52.5, 50.1, 49.0]), np.array([11.6, 13.4, 8.7, 9.5])
    at = {"lat": np.repeat(north, 3), "lon": np.repeat(east, 3), "depth": np.tile([0.1, 10.0, 50.0], 4)}
    values = 15.0 - 0.2 * at["depth"] + np.random.default_rng(2).normal(0.0, 0.5, 12)
    table = pd.DataFrame(at | {"t (degC)": values})
    places = table.drop(columns="t (degC)").assign(depth=table["depth"].astype(np.float32))
    profiles = cagp.krige(table, to=places, progress=False, **deep)
    by_hand = np.sqrt(np.mean((profiles["mean"].values - values) ** 2))
    mixed = table.sample(frac=1.0, random_state=0)
    assert profiles.cagp.score(mixed)["rmse"].item() == pytest.approx(by_hand, rel=1e-12)
    grid = xr.Dataset(coords={"depth": [10.0, 50.0], "latitude": [48.1, 49.0], "longitude": [9.5, 11.6]})
    levels = cagp.krige(table, to=grid, progress=False, **deep)
    found = levels.cagp.score(table)
    assert (found.attrs["compared"], found.attrs["elsewhere"]) == (4, 8)
    assert found["depth"].values.tolist() == [10.0, 50.0, 10.0, 50.0]
    np.testing.assert_array_equal(found["observed"], values[[1, 2, 10, 11]])
    for one in (table[table["depth"] == 50.0].drop(columns="depth"), table):  # of the only depth, or of that
        found = levels.isel(depth=1).cagp.score(one)
        np.testing.assert_array_equal(found["observed"], values[[2, 11]])
    field = levels["mean"].isel(depth=1)
    assert levels.isel(depth=1).cagp.score(field)["rmse"].item() == 0.0
    for given, truth, key in (
        (levels.isel(depth=0), field, "truth-elsewhere"),
        (levels, field.drop_vars("depth"), "truth-depth"),
        (levels.isel(depth=0, drop=True), table, "truth-depth"),
    ):
        with pytest.raises(ArgumentError) as refused:
            given.cagp.score(truth)
        assert refused.value.key == key


def test_one_time_that_either_says_is_compared(truth, result):
    of_second = result.cagp.score(truth.isel(time=[1]))["rmse"].item()
    second = result.isel(time=1)
    for given, known in (
        (result, truth.isel(time=1)),
        (second, truth.isel(time=1)),
        (second, truth),
        (second, truth.isel(time=1, drop=True)),
        (second.drop_vars("time"), truth.isel(time=1)),
        (result.isel(time=[1]), truth.isel(time=1)),
        (second, truth.isel(time=1).drop_vars("time").to_dataframe().reset_index()),
        (second, truth.isel(time=1).to_dataframe().reset_index()),
    ):
        found = given.cagp.score(known)
        assert found["rmse"].item() == pytest.approx(of_second, rel=1e-12)
        assert found.attrs["compared"] == LAT.size * LON.size
    for known in (truth.isel(time=0), truth.isel(time=0).to_dataframe().reset_index()):
        with pytest.raises(ArgumentError) as refused:
            second.cagp.score(known)
        assert refused.value.key == "truth-elsewhere"


def test_places_of_a_fine_grid_far_from_the_origin_are_told_apart():
    x, y = 600e3 + np.arange(0.5, 5.0), 5.3e6 + np.arange(0.5, 5.0)
    grid = {"resolution": 1.0, "region": [5300005, 600000, 5300000, 600005]}
    table = pd.DataFrame({"x": x, "y": y[::-1], "h": [1.0, 3.0, 2.0, 5.0, 4.0]})
    plane = {"columns": {"x": "x", "y": "y"}, "crs": 32632, "lengthscale_km": 0.003, "variance": 4.0}
    found = cagp.krige(table, to=grid, kernel="matern32", noise_std=0.3, progress=False, **plane)
    between = table.assign(x=table["x"] + [0.3, 0.0, -0.4, 0.001, 0.5])
    scores_ = found.cagp.score(between)
    assert (scores_.attrs["compared"], scores_.attrs["elsewhere"]) == (2, 3)
    np.testing.assert_array_equal(scores_["observed"], [3.0, 5.0])


def test_places_of_a_fine_grid_in_single_precision_are_those_of_the_result(measured):
    grid = {"latitude": 49.0 + np.arange(12) / 3600.0, "longitude": 120.3 + np.arange(12) / 3600.0}
    east = measured[:40].drop(columns="time").assign(lon=measured["lon"] + 118.0)
    found = cagp.krige(east, to=xr.Dataset(coords=grid), **NUMBERS)
    single = {name: found[name].astype(np.float32) for name in grid}
    assert found.cagp.score(found["mean"].assign_coords(single)).attrs["compared"] == 144


def test_values_of_several_times_are_no_truth_of_one_field_without_a_date(measured):
    timed = {"kernel": cagp.SpaceTime(cagp.Matern32(0.05, 4.0), cagp.Matern12(20.0)), "noise_std": 0.3}
    model = cagp.Kriging(at="observed", progress=False, **timed).fit(measured)
    one = model.predict(measured[:10].drop(columns="time")).isel(time=0, drop=True)
    with pytest.raises(ArgumentError) as refused:
        one.cagp.score(model)
    assert refused.value.key == "several-fields"


@pytest.mark.parametrize("settings", [{"hyperparameters": "integrate"}, {"transform": "log"}])
def test_distributions_that_are_known_by_quantiles_are_scored_within_these(truth, measured, settings):
    table = measured[:40].drop(columns="time")
    result = cagp.krige(table, to=truth[0], **NUMBERS | settings)
    found = result.cagp.score(truth[0].drop_vars("time"))
    for level in found["level"].values:
        bars = result.cagp.interval(level)
        inside = (bars.lower <= truth[0]) & (truth[0] <= bars.upper)
        assert found["coverage"].sel(level=level).item() == pytest.approx(inside.mean().item())
    assert 0.9 in found["level"]
    error = (truth[0] - result["mean"]).values
    assert found["rmse"].item() == pytest.approx(np.sqrt((error**2).mean()), rel=1e-12)


def test_what_cannot_be_compared_is_refused(truth, result, measured):
    for given, key in (
        (truth.isel(time=0, drop=True), "several-fields"),
        (truth.assign_attrs(units="degC"), "units"),
        (measured.assign(lat=measured["lat"] + 0.01), "truth-elsewhere"),
        (truth.isel(time=[0]).assign_coords(time=[np.datetime64("2021-01-01", "ns")]), "truth-elsewhere"),
        ({"lat": [47.0, 48.0], "lon": [1.0, 2.0], "t (K)": ["< 280", "281"]}, "truth-limits"),
    ):
        with pytest.raises(ArgumentError) as refused:
            result.cagp.score(given)
        assert refused.value.key == key
    plain = measured[:40].drop(columns="time")
    logarithms = cagp.krige(plain, to=plain, **NUMBERS, transform="log")
    exact = result.assign(std=result["std"].where(result["latitude"] > 47.0, 0.0))
    none_below = plain.assign(**{"t (K)": np.where(np.arange(40) < 38, plain["t (K)"], [-1.0, 0.0] * 20)})
    for given, known, key in (
        (logarithms, none_below, "truth-beyond-transform"),
        (exact, truth, "no-spread"),
    ):
        with pytest.raises(ArgumentError, match=r"\b2 of 40|\b26 of 234") as refused:
            given.cagp.score(known)
        assert refused.value.key == key
    rest = exact.assign(std=exact["std"].where(exact["std"] > 0)).cagp.score(truth)
    assert rest.attrs["compared"] == truth.size - 26
    samples = xr.concat([result, result], "sample")
    with pytest.raises(ArgumentError) as refused:
        samples.cagp.score(truth)
    assert refused.value.key == "several-dimensions"


def test_a_result_of_means_over_cells_says_so(measured):
    plain = measured[:40].drop(columns="time")
    over_cells = cagp.krige(plain, to={"resolution": 1.0, "region": [51, 0, 47, 6]}, kind="cells", **NUMBERS)
    at_points = over_cells["mean"] + 0.1
    assert "means over cells" in over_cells.cagp.score(at_points).attrs["comment"]
