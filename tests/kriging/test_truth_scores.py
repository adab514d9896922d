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
    samples = xr.concat([result, result], "sample")
    with pytest.raises(ArgumentError) as refused:
        samples.cagp.score(truth)
    assert refused.value.key == "several-dimensions"
