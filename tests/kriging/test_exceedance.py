"""Probabilities of a value above a threshold, by the distribution that the result states and no other."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.kriging.result_distribution import distribution_of
from cagp_dist.pipeline.defaults import QUANTILE_LEVELS
from cagp_dist.pipeline.recalibration import Distribution
from cagp_dist.predictive import QuantileTable
from cagp_dist.store.schema import prediction_group

TO = {"resolution": 4.0, "region": [12.0, 0.0, 0.0, 12.0]}
NUMBERS = {"kernel": "matern32", "lengthscale": 0.1, "variance": 4.0, "noise_std": 0.5}


@pytest.fixture(scope="module")
def table():
    generator = np.random.default_rng(4)
    latitude, longitude = generator.uniform(0.0, 12.0, (2, 15))
    return {"lat": latitude, "lon": longitude, "value": 10.0 + 2.0 * generator.standard_normal(15)}


def test_a_normal_field_exceeds_as_the_normal_distribution_says(table):
    field = cagp.krige(table, to=TO, **NUMBERS)
    found = field.cagp.exceedance(10.5)
    assert found.dims == field["mean"].dims
    assert found.attrs["long_name"] == "probability that the field is above 10.5"
    np.testing.assert_allclose(found, stats.norm.sf(10.5, field["mean"], field["std"]), rtol=1e-12)
    new = field.cagp.exceedance(10.5, of="observation")
    np.testing.assert_allclose(
        new, stats.norm.sf(10.5, field["mean"], np.hypot(field["std"], 0.5)), rtol=1e-12
    )
    noisier = field.cagp.exceedance(10.5, of="observation", noise_std=2.0)
    np.testing.assert_allclose(
        noisier, stats.norm.sf(10.5, field["mean"], np.hypot(field["std"], 2.0)), rtol=1e-12
    )


def test_an_interval_is_that_of_the_distribution(table):
    """Normal, or known by quantiles and not beyond them."""
    field = cagp.krige(table | {"value [K]": table["value"]}, to=TO, value="value [K]", **NUMBERS)
    ends = field.cagp.interval(0.9)
    np.testing.assert_allclose(ends.lower, field["mean"] - 1.6448536269514722 * field["std"], rtol=1e-12)
    np.testing.assert_allclose(ends.upper, field["mean"] + 1.6448536269514722 * field["std"], rtol=1e-12)
    assert ends.upper.attrs == {"units": "K", "long_name": "upper end of the 90% interval of the field"}
    wider = field.cagp.interval(0.5, of="observation")
    half = 0.6744897501960817 * np.hypot(field["std"], 0.5)
    np.testing.assert_allclose(wider.upper - wider.lower, 2.0 * half, rtol=1e-12)
    mixture = cagp.krige(table, to=TO, kernel="matern32")
    ends, quantiles = mixture.cagp.interval(0.9), mixture.field_quantile
    np.testing.assert_array_equal(ends.lower, quantiles.sel(quantile_level=0.05))
    np.testing.assert_array_equal(ends.upper, quantiles.sel(quantile_level=0.95))
    with pytest.raises(ArgumentError) as refused:
        mixture.cagp.interval(0.99)
    assert refused.value.key == "level-beyond-quantiles"
    with pytest.raises(ArgumentError) as refusal:
        field.cagp.interval(90)
    assert refusal.value.key == "out-of-range"


def test_draws_exceed_as_often(table):
    """4,000 draws: four standard errors of a share."""
    model, count = cagp.Kriging(**NUMBERS).fit(table), 4000
    found = model.predict(TO).cagp.exceedance(10.5)
    drawn = (model.sample(TO, count)["value"] > 10.5).mean("sample")
    allowed = 4.0 * np.sqrt(found * (1.0 - found) / count) + 1.0 / count
    assert (abs(drawn - found) < allowed).all()
    assert found.std() > 0.1  # of places that differ


def test_each_place_may_have_its_threshold_and_gaps_stay_gaps(table):
    field = cagp.krige(table, to=TO, **NUMBERS)
    limit = field["mean"].isel(latitude=0).drop_vars("latitude") + 1.0
    limit[1] = np.nan
    found = field.cagp.exceedance(limit)
    expected = stats.norm.sf(limit.values[None, :], field["mean"], field["std"])
    np.testing.assert_allclose(found, expected, rtol=1e-12)  # NaN where the threshold is
    with pytest.raises(ArgumentError) as refused:
        field.cagp.exceedance(xr.DataArray([1.0, 2.0], dims="other"))
    assert refused.value.key == "threshold-dimensions"
    with pytest.raises(ArgumentError) as refused:
        field.cagp.exceedance(field["mean"].assign_coords(latitude=field.latitude + 1.0))
    assert refused.value.key == "threshold-dimensions"
    with pytest.raises(ArgumentError) as refused:
        field.cagp.exceedance("warm")
    assert refused.value.key == "threshold"


def test_a_recalibrated_result_exceeds_as_the_student_distribution_that_it_is():
    """Its degrees of freedom are told by its quantiles: tails beyond these are those of the recalibration."""
    generator = np.random.default_rng(0)
    latitude, longitude = generator.uniform(0.0, 20.0, (2, 150))
    errors = np.where(longitude < 10.0, 0.3, 2.0) * generator.standard_t(4, 150)
    rough = {"lat": latitude, "lon": longitude, "value": 10.0 + errors}
    result = cagp.krige(
        rough, to=5.0, recalibration="local-scale", **{**NUMBERS, "noise_std": 1.0, "mean": 10.0}
    )
    distribution = distribution_of(result).distribution
    assert 2.0 < distribution.degrees.flat[0] < 100.0
    np.testing.assert_allclose(distribution.std, result["predictive_std"].values.ravel(), rtol=1e-9)
    noise = np.sqrt(result["predictive_std"] ** 2 - result["std"] ** 2)  # recalibrated as the field is
    plain = result["predictive_std"] * result.attrs["reference_noise_std"] / noise
    np.testing.assert_allclose(distribution.scale, (result["local_scale"] * plain).values.ravel(), rtol=1e-9)
    centre = result["quantile"].sel(quantile_level=0.5).values.ravel()
    for threshold in (9.0, 10.0, 25.0):
        found = result.cagp.exceedance(threshold)
        expected = stats.t.sf(threshold, distribution.degrees, centre, distribution.scale)
        np.testing.assert_allclose(found.values.ravel(), expected, rtol=1e-9)
        assert "comment" not in found.attrs
    assert "an observation is above" in found.attrs["long_name"]
    latent = result.cagp.exceedance(10.0, of="field")
    np.testing.assert_allclose(latent, stats.norm.sf(10.0, result["mean"], result["std"]), rtol=1e-12)


def test_quantiles_are_kept_to_and_tails_go_on_beyond():
    """Of few observations the field is a mixture: draws, to 0.01 for what is interpolated."""
    generator = np.random.default_rng(2)
    latitude, longitude = generator.uniform(0.0, 12.0, (2, 12))
    few = {"lat": latitude, "lon": longitude, "value": 10.0 + 3.0 * np.sin(latitude)}
    model = cagp.Kriging(noise_std=0.5).fit(few)
    field, count = model.predict(TO), 500
    table = field["field_quantile"]
    for level in (0.05, 0.25, 0.95):
        at = table.sel(quantile_level=level, drop=True)
        np.testing.assert_allclose(field.cagp.exceedance(at), 1.0 - level, rtol=1e-9)
    found = field.cagp.exceedance(float(field["mean"].mean()))
    drawn = (model.sample(TO, count)["value"] > float(field["mean"].mean())).mean("sample")
    assert (abs(drawn - found) < 4.0 * np.sqrt(found * (1.0 - found) / count) + 0.01).all()
    ends = table.isel(quantile_level=-1, drop=True), table.isel(quantile_level=0, drop=True)
    near = [field.cagp.exceedance(ends[0] + 1e-9), field.cagp.exceedance(ends[1] - 1e-9, below=True)]
    np.testing.assert_allclose(near, 0.025, rtol=1e-6)
    far = field.cagp.exceedance(float(table.max()) + 1.0)
    assert "below 0.025 and above 0.975 estimated by tails" in far.attrs["comment"]
    np.testing.assert_allclose(far, 1.0 - field.cagp.exceedance(float(table.max()) + 1.0, below=True))
    assert (far < 0.025).all()
    assert (field.cagp.exceedance(1e4) < 1e-6).all()
    with pytest.raises(ArgumentError) as refused:
        field.cagp.exceedance(10.0, of="observation")
    assert refused.value.key == "observation-of-integrated"


@pytest.mark.parametrize("degrees", [1.0, 3.0, 10.0, np.inf])
def test_a_tail_of_student_quantiles_is_that_of_the_distribution(degrees):
    """And mirrored; nothing is said of what lies between the outermost quantiles."""
    law = stats.norm if np.isinf(degrees) else stats.t(degrees)
    levels = np.array(QUANTILE_LEVELS)
    far = law.ppf([0.98, 0.999, 0.99999])
    table = QuantileTable(levels, np.repeat(law.ppf(levels)[:, None], 4, axis=1))
    tail = table.student_tail([*far, 0.0], above=True)
    np.testing.assert_allclose(tail[:3], law.sf(far), rtol=2e-3)
    np.testing.assert_allclose(tail[:3], table.student_tail([*-far, 0.0], above=False)[:3], rtol=1e-9)
    assert np.isnan(tail[3])


@pytest.mark.parametrize("seed", range(3))
def test_tails_of_few_observations_are_those_of_draws(seed):
    """To half of the probability, beside four standard errors of 20,000 draws."""
    generator, count = np.random.default_rng(seed), 20_000
    latitude, longitude = generator.uniform(0.0, 12.0, (2, 20))
    few = {
        "lat": latitude,
        "lon": longitude,
        "value": 10.0 + 3.0 * np.sin(latitude) + generator.normal(size=20),
    }
    model = cagp.Kriging(noise_std=0.5, progress=False).fit(few)
    to = {"lat": [2.0, 6.0, 11.0], "lon": [3.0, 7.0, 1.0]}
    field, draws = model.predict(to), model.sample(to, count)["value"]
    for level in (0.002, 0.01):
        for far, below in ((level, True), (1.0 - level, False)):
            limit = draws.quantile(far, "sample").drop_vars("quantile")
            found = field.cagp.exceedance(limit, below=below)
            assert (abs(found - level) < 0.5 * level + 4.0 * np.sqrt(level * (1.0 - level) / count)).all()


def test_a_threshold_that_a_transform_does_not_have_is_below_all_values(table):
    """Of logarithms of few observations, whose quantiles are known from 0.025 to 0.975."""
    positive = table | {"value": np.exp(0.3 * np.asarray(table["value"]))}
    result = cagp.krige(positive, to=TO, kernel="matern32", transform="log", noise_std=None)
    assert "field_quantile" in result
    certain = result.cagp.exceedance(-1.0)
    np.testing.assert_array_equal(certain, 1.0)
    assert certain.attrs["comment"] == "Interpolated between quantiles."
    np.testing.assert_array_equal(result.cagp.exceedance(-1.0, below=True), 0.0)
    assert (result.cagp.exceedance(1e9) < 1e-4).all()


def test_where_quantiles_are_the_least_value_probabilities_beyond_are_bounds():
    """Rain: three dry places of few observations, whose quantiles are zero."""
    generator = np.random.default_rng(5)
    latitude, longitude = generator.uniform(0.0, 12.0, (2, 60))
    rain = np.maximum(3.0 * np.sin(latitude), 0.0) + 0.2 * generator.random(60) * (np.sin(latitude) > 0.0)
    given = {"lat": latitude, "lon": longitude, "value": rain}
    result = cagp.krige(given, to=2.0, transform="auto", kernel="matern32", progress=False)
    dry = (result["field_quantile"].sel(quantile_level=0.75) == 0.0) & (result["probability_zero"] < 0.99)
    wet = result["field_quantile"].sel(quantile_level=0.025) > 0.0
    assert dry.any()
    assert wet.any()
    for limit in (50.0, 1000.0):
        found = result.cagp.exceedance(limit)
        bound = np.minimum(0.025, 1.0 - result["probability_zero"])
        np.testing.assert_allclose(found.values[dry.values], bound.values[dry.values])
        assert (found.values[wet.values] < 1e-3).all()
        assert "0.025 means that or less" in found.attrs["comment"]
    np.testing.assert_array_equal(result.cagp.exceedance(-1.0), 1.0)
    np.testing.assert_array_equal(result.cagp.exceedance(-1.0, below=True), 0.0)


def test_what_a_result_does_not_say_is_refused(table):
    cells = cagp.krige(table, to=TO, kind="cells", **NUMBERS)
    with pytest.raises(ArgumentError) as refused:
        cells.cagp.exceedance(10.0, of="observation")
    assert refused.value.key == "observation-of-cells"
    field = cagp.krige(table, to=TO, **NUMBERS)
    with pytest.raises(ArgumentError) as refused:
        field.cagp.exceedance(10.0, noise_std=1.0)
    assert refused.value.key == "noise-of-field"
    with pytest.raises(ArgumentError) as refusal:
        field.cagp.exceedance(10.0, of="noise")
    assert refusal.value.key == "unknown-word"
    various = field.assign_attrs(noise_std="0.3 to 0.5, of each place")
    with pytest.raises(ArgumentError) as refused:
        various.cagp.exceedance(10.0, of="observation")
    assert refused.value.key == "no-noise-said"
    with pytest.raises(ArgumentError) as refused:
        field[["std"]].cagp.exceedance(10.0)
    assert refused.value.key == "no-distribution"


def test_groups_of_runs_say_it_in_their_names():
    where = {
        "times": np.array(["2020-01-01"], dtype="datetime64[ns]"),
        "north": np.array([0.0, 10.0]),
        "east": np.array([0.0, 20.0, 40.0]),
    }
    mean = np.array([[[280.0, 281.0, 282.0], [283.0, np.nan, 285.0]]])
    std = np.full_like(mean, 2.0)
    plain = prediction_group("map", mean=mean, std=std, noise_variance=2.25, **where)
    np.testing.assert_allclose(plain.cagp.exceedance(282.0), stats.norm.sf(282.0, mean, 2.0))
    np.testing.assert_allclose(
        plain.cagp.exceedance(282.0, of="observation"), stats.norm.sf(282.0, mean, 2.5), rtol=1e-9
    )
    quantiles = mean[:, None] + stats.t.ppf(QUANTILE_LEVELS, 5.0)[None, :, None, None]
    scaled = Distribution(np.full_like(mean, np.sqrt(5.0 / 3.0)), quantiles, std / 2.5)
    recalibrated = prediction_group(
        "map", mean=mean, std=std, noise_variance=2.25, distribution=scaled, **where
    )
    np.testing.assert_allclose(recalibrated.cagp.exceedance(286.0), stats.t.sf(286.0 - mean, 5.0), rtol=1e-6)
    mixed = Distribution(scaled.std, quantiles, recalibrated=False)
    mixture = prediction_group("map", mean=mean, std=std, noise_variance=2.25, distribution=mixed, **where)
    with pytest.raises(ArgumentError) as refused:
        mixture.cagp.exceedance(282.0, of="field")
    assert refused.value.key == "field-of-integrated"


RAIN = {"value [mm]": [0.0, 0.0, 0.3, 1.2, 4.0, 0.0, 2.5, 0.8, 0.0, 6.1, 0.2, 1.1, 0.0, 3.3, 0.5]}
RESULTS = {
    "normal": ({}, NUMBERS),
    "integrated": ({}, {"kernel": "matern32"}),
    "logarithm": ({"value": np.exp(np.linspace(-1.0, 2.0, 15))}, {"kernel": "matern32", "transform": "log"}),
    "zeros": (RAIN, {"kernel": "matern32", "transform": "sqrt"}),
}


@pytest.mark.parametrize("case", RESULTS)
def test_probabilities_of_both_directions_are_one_and_quantiles_have_theirs(table, case):
    values, settings = RESULTS[case]
    rows = {name: table[name] for name in ("lat", "lon")} | (values or {"value": table["value"]})
    result = cagp.krige(rows, to=TO, progress=False, **settings)
    medians = result.cagp.quantile(0.5)
    if "median" in result:
        np.testing.assert_allclose(medians, result["median"], rtol=1e-6, atol=1e-9)
    levels = [0.2, 0.5, 0.9]
    quantiles = result.cagp.quantile(levels)
    assert quantiles.dims == ("quantile_level", *result["mean"].dims)
    np.testing.assert_array_equal(quantiles.sel(quantile_level=0.5), medians)
    for level, quantile in zip(levels, quantiles, strict=True):
        at_most = result.cagp.exceedance(quantile, below=True)
        inside = quantile.values > (0.0 if case == "zeros" else -np.inf)
        np.testing.assert_allclose(at_most.values[inside], level, rtol=1e-6)
        above = result.cagp.exceedance(quantile)
        np.testing.assert_allclose(above + at_most, 1.0, rtol=1e-12)
    if case == "zeros":
        dry = result.cagp.exceedance(0.0, below=True)
        np.testing.assert_allclose(dry, result["probability_zero"], rtol=1e-12)
        assert (result.cagp.exceedance(-0.1, below=True) == 0.0).all()
        assert (quantiles >= 0.0).all()


def test_the_lower_tail_keeps_its_digits(table):
    field = cagp.krige(table, to=TO, progress=False, **NUMBERS)
    found = field.cagp.exceedance(4.0, below=True)
    np.testing.assert_allclose(found, stats.norm.cdf(4.0, field["mean"], field["std"]), rtol=1e-10)
    assert (found > 0.0).all()
    assert found.attrs["long_name"] == "probability that the field is at most 4"


def test_quantiles_beyond_what_is_known_are_refused(table):
    mixture = cagp.krige(table, to=TO, kernel="matern32", progress=False)
    for level, key in ((0.99, "level-beyond-quantiles"), (50, "levels"), ([0.5, 1.0], "levels")):
        with pytest.raises(ArgumentError) as refused:
            mixture.cagp.quantile(level)
        assert refused.value.key == key
