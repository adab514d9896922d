"""The variogram of observations, its band, and where they are drawn."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import EARTH_RADIUS_KILOMETRES

KERNEL = cagp.Matern32(lengthscale=0.05, variance=4.0)


def drawn(seed, count=150, noise=0.6):
    """A table of a field that was drawn from the prior."""
    generator = np.random.default_rng(seed)
    latitude, longitude = generator.uniform(40.0, 55.0, count), generator.uniform(0.0, 20.0, count)
    X = cagp.unit_sphere(latitude, longitude)
    covariance = KERNEL(X, X) + noise**2 * np.eye(count)
    value = 10.0 + np.linalg.cholesky(covariance) @ generator.standard_normal(count)
    return {"lat": latitude, "lon": longitude, "value [K]": value}


def test_it_is_half_the_mean_square_difference_of_pairs_in_bins():
    table = drawn(0, count=12)
    model = cagp.Kriging(kernel=KERNEL, mean=10.0, noise_std=0.6).fit(table)
    found = model.variogram(draws=20)
    X = cagp.unit_sphere(table["lat"], table["lon"])
    first, second = np.triu_indices(12, 1)
    chord = np.linalg.norm(X[first] - X[second], axis=1)
    distance = 2.0 * EARTH_RADIUS_KILOMETRES * np.arcsin(0.5 * chord)
    half = 0.5 * (table["value [K]"][first] - table["value [K]"][second]) ** 2
    edges = np.linspace(0.0, 0.5 * distance.max(), 16)
    assert found["empirical"].attrs["units"] == "K2"
    for number in range(found.sizes["bin"]):
        at = np.searchsorted(edges, float(found["distance"][number])) - 1
        inside = (distance > edges[at]) & (distance <= edges[at + 1])
        assert int(found["pairs"][number]) == inside.sum()
        assert float(found["distance"][number]) == pytest.approx(distance[inside].mean())
        assert float(found["empirical"][number]) == pytest.approx(half[inside].mean())
    curve = found["fitted"].values
    h = 2.0 * np.sin(0.5 * found["curve_distance"].values / EARTH_RADIUS_KILOMETRES)
    expected = 4.0 - KERNEL(np.zeros((1, 1)), h[:, None])[0] + 0.36
    np.testing.assert_allclose(curve, expected, rtol=1e-6)


@pytest.mark.exhaustive
def test_the_band_holds_nine_tenths_where_the_model_is_right():
    """Of 40 fields of the model, whose bins go together: a standard error of 0.05 if they were one bin."""
    inside = []
    for seed in range(40):
        table = drawn(seed, count=60)
        found = cagp.Kriging(kernel=KERNEL, mean="constant", noise_std=0.6).fit(table).variogram(draws=60)
        inside.append(((found["low"] <= found["empirical"]) & (found["empirical"] <= found["high"])).mean())
    assert np.mean(inside) == pytest.approx(0.9, abs=0.12)


def test_a_model_that_is_wrong_leaves_the_band_and_it_is_drawn_so():
    table = drawn(1)
    settings = {"kernel": "matern32", "lengthscale": 0.05, "variance": 0.2, "noise_std": 0.2}
    model = cagp.Kriging(**settings).fit(table)
    field = model.predict(5.0)
    found = model.variogram()
    assert (found["empirical"] > found["high"]).mean() > 0.8
    figure = field.cagp.plot.variogram(model)
    (panel,) = figure.axes
    curve, points = panel.get_lines()
    np.testing.assert_array_equal(points.get_ydata(), found["empirical"])
    np.testing.assert_array_equal(curve.get_ydata(), found["fitted"])
    assert panel.get_ylabel() == "semivariance [K²]"
    _, own = plt.subplots()
    field.cagp.plot.variogram(table, ax=own)  # the same model, as the attributes say it
    np.testing.assert_allclose(own.get_lines()[1].get_ydata(), found["empirical"])
    plt.close("all")


def test_an_ellipse_south_of_the_equator_is_in_the_attributes():
    table = drawn(4, count=30)
    table |= {"lat": -table["lat"], "lon": -table["lon"]}
    numbers = {"kernel": "matern32", "lengthscale": 0.05, "variance": 4.0, "mean": 10.0, "noise_std": 0.6}
    model = cagp.Kriging(**numbers, anisotropy=(2.0, 30.0)).fit(table)
    field = model.predict(5.0)
    assert "centre=(-" in field.attrs["kernel"]
    figures = [field.cagp.plot.variogram(seen, draws=20) for seen in (model, table)]
    for of_model, of_table in zip(*(figure.axes[0].lines for figure in figures), strict=True):
        np.testing.assert_allclose(of_table.get_ydata(), of_model.get_ydata(), rtol=1e-9)
    plt.close("all")


def test_pairs_are_of_one_time_and_a_drift_is_fitted_to_draws_too():
    table = pd.DataFrame(drawn(2, count=60))
    hours = pd.concat([table.assign(time=pd.Timestamp(f"2020-01-01T{hour:02}:00")) for hour in range(3)])
    kernel = cagp.SpaceTime(KERNEL, lengthscale_time=6.0)
    model = cagp.Kriging(kernel=kernel, noise_std=0.6, at="observed").fit(hours)
    one = cagp.Kriging(kernel=KERNEL, mean="constant", noise_std=0.6).fit(table)
    found, of_one = model.variogram(), one.variogram()
    both = of_one.sizes["bin"]  # bins of too few pairs are left out
    np.testing.assert_array_equal(found["pairs"][-both:], 3 * of_one["pairs"])
    np.testing.assert_allclose(found["fitted"], of_one["fitted"], rtol=1e-9)
    trend = table.assign(value=table["value [K]"] + 50.0 * table["lat"])[["lat", "lon", "value"]]
    drift = cagp.Kriging(kernel=KERNEL, mean="regional_linear", noise_std=0.6).fit(trend).variogram()
    flat = table.rename(columns={"value [K]": "value"})
    same = cagp.Kriging(kernel=KERNEL, mean="regional_linear", noise_std=0.6).fit(flat).variogram()
    np.testing.assert_allclose(drift["empirical"], same["empirical"], rtol=1e-6)


@pytest.mark.parametrize("mean", ["regional_linear", ["height"], ["harmonic-latitude", "height"]], ids=str)
def test_a_mean_of_a_trend_and_columns_is_in_the_attributes(mean):
    table = drawn(3, count=40)
    heights = np.random.default_rng(5).uniform(0.0, 2.0, 40)
    table = {**table, "height": heights, "value [K]": table["value [K]"] - 6.5 * heights}
    model = cagp.Kriging(kernel=KERNEL, mean=mean, noise_std=0.6, value="value").fit(table)
    field = model.predict({name: table[name][:3] for name in ("lat", "lon", "height")})
    figures = [field.cagp.plot.variogram(seen, draws=20) for seen in (model, table)]
    for of_model, of_table in zip(*(figure.axes[0].lines for figure in figures), strict=True):
        np.testing.assert_allclose(of_table.get_ydata(), of_model.get_ydata(), rtol=1e-9)
    plt.close("all")


def test_what_attributes_do_not_say_is_refused():
    table = drawn(3, count=20)
    field = cagp.krige(table, to=5.0, kernel=KERNEL, mean=lambda X: 10.0 + X[:, 2], noise_std=0.6)
    with pytest.raises(ArgumentError) as refused:
        field.cagp.plot.variogram(table)
    assert refused.value.key == "result-without-model"
    with pytest.raises(ArgumentError) as refused:
        field.drop_attrs().cagp.plot.variogram(table)
    assert refused.value.key == "result-without-model"
    noisy = {**table, "noise_std": np.linspace(0.3, 0.6, 20)}
    known = cagp.krige(noisy, to=5.0, kernel=KERNEL, mean=10.0)
    assert len(known.cagp.plot.variogram(noisy).axes) == 1
    plt.close("all")
    with pytest.raises(ArgumentError) as refused:
        known.cagp.plot.variogram({**noisy, "noise_std": np.linspace(0.3, 0.7, 20)})
    assert refused.value.key == "no-noise-said"
