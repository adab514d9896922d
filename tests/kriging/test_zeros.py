"""Rain: zeros are censored, and maps have the probability of none."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import ndtr

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.pipeline.censoring import DRAWS, drawn
from cagp_dist.pipeline.transform_choice import advice_of_means

RNG = np.random.default_rng(1)
LAT, LON = RNG.uniform(47.0, 53.0, 60), RNG.uniform(0.0, 9.0, 60)
KERNEL = cagp.Matern32(0.08, 1.0)
_G = KERNEL(*2 * [cagp.unit_sphere(LAT, LON)]) + 0.05 * np.eye(60)
Z = np.linalg.cholesky(_G) @ RNG.standard_normal(60)
RAIN = {"lat": LAT, "lon": LON, "rain (mm)": 3.0 * np.maximum(Z, 0.0) ** 2}
PRIOR = cagp.Prior(KERNEL, 0.05, cagp.MEANS["constant"])
TO = {"lat": [48.0, 50.0, 52.0], "lon": [2.0, 5.0, 8.0]}


@pytest.fixture(scope="module")
def model():
    """Give a model with numbers that are known."""
    return cagp.Kriging(transform="sqrt", prior=PRIOR, progress=False).fit(RAIN)


def test_a_map_is_the_mixture_of_maps_of_the_draws(model):
    found = model.predict(TO)
    filled = drawn(model._observed.points, model._learned, draws=DRAWS)
    X, targets = filled.X, cagp.unit_sphere(TO["lat"], TO["lon"])
    by_hand = cagp.condition(PRIOR, X, filled.values.T, targets, solver=cagp.Cholesky())
    d, s = model.transform_.end, np.sqrt(by_hand.variance)[:, None]
    dry = ndtr((d - by_hand.mean) / s).mean(axis=1)
    np.testing.assert_allclose(found["probability_zero"], dry, rtol=1e-9)
    # each draw over a fine grid of scores, and all of them together
    score = np.linspace(-9.0, 9.0, 4001)
    weights = np.exp(-0.5 * score**2) / np.exp(-0.5 * score**2).sum()
    y = model.transform_.inverse(by_hand.mean[:, :, None] + s[:, :, None] * score)
    np.testing.assert_allclose(found["mean"], (y @ weights).mean(axis=1), rtol=1e-4)
    squares = (y**2 @ weights).mean(axis=1) - found["mean"].values ** 2
    np.testing.assert_allclose(found["std"], np.sqrt(squares), rtol=1e-4)
    noisy = np.hypot(s, np.sqrt(0.05))
    z = by_hand.mean[:, :, None] + noisy[:, :, None] * score
    y = model.transform_.inverse(z)
    mean = (y @ weights).mean(axis=1)
    squares = (y**2 @ weights).mean(axis=1) - mean**2
    np.testing.assert_allclose(found["predictive_std"], np.sqrt(squares), rtol=1e-4)
    rng = np.random.default_rng(0)
    z = by_hand.mean[:, :, None] + s[:, :, None] * rng.standard_normal((3, DRAWS, 2000))
    y = model.transform_.inverse(z).reshape(3, -1)
    np.testing.assert_allclose(found["median"], np.median(y, axis=1), rtol=0.05, atol=0.05)
    assert (found["field_quantile"] >= 0.0).all()
    np.testing.assert_allclose(1.0 - found.cagp.exceedance(0.0), dry, rtol=1e-9, atol=1e-15)
    assert (found.cagp.exceedance(-1.0) == 1.0).all()
    assert "y = 0" in found.attrs["transform"]


@pytest.mark.exhaustive
def test_noise_that_is_fitted_beside_many_zeros_is_that_of_the_field():
    """Over three fields 0.89; 1.51 where the first draws were independent. One varies by some 0.12."""
    found = []
    for seed in (0, 1, 4):
        rng = np.random.default_rng(seed)
        lat, lon = rng.uniform(47.0, 53.0, 200), rng.uniform(0.0, 9.0, 200)
        gram = KERNEL(*2 * [cagp.unit_sphere(lat, lon)]) + 0.05 * np.eye(200)
        z = np.linalg.cholesky(gram) @ rng.standard_normal(200)
        rain = 3.0 * np.maximum(z - np.quantile(z, 0.7), 0.0) ** 2
        table = {"lat": lat, "lon": lon, "rain": rain}
        of_one = cagp.krige(table, to=TO, transform="sqrt", kernel="matern32", progress=False)
        found.append(of_one.attrs["noise_std"] / np.sqrt(12.0 * 0.05))  # sqrt(y) is 2 (sqrt(3) z - 1)
    assert abs(np.mean(found) - 1.0) < 3.0 * 0.12 / np.sqrt(3.0)


def test_what_is_proposed_for_rain_goes_together():
    """A few large values beside many zeros look wrong to a normal field, and are not."""
    storm = {**RAIN, "rain (mm)": 3.0 * np.maximum(Z, 0.0) ** 4}
    found = cagp.krige(storm, to=TO, kernel="matern32", hyperparameters="plug-in", progress=False)
    assert 'transform="auto"' in found.attrs["values_advice"]
    assert "suspicious_values" not in found.attrs


def test_a_mean_that_is_that_of_a_tail_is_warned_of():
    """A wide field of logarithms says rain of which no gauge has seen a thousandth."""
    everywhere = {"lat": np.repeat(np.arange(47.0, 53.0), 6), "lon": np.tile(np.arange(0.0, 9.0, 1.5), 6)}
    wide = cagp.Prior(cagp.Matern32(0.02, 36.0), 0.05, cagp.MEANS["constant"])
    with pytest.warns(UserWarning, match="above the largest observation"):
        found = cagp.krige(RAIN, to=everywhere, transform="log", prior=wide, progress=False)
    assert (found["mean"] > RAIN["rain (mm)"].max()).any()
    assert 'transform="auto"' in found.attrs["values_advice"]


def test_a_mean_far_above_every_gauge_is_warned_of_though_one_value_in_twenty_is_larger():
    """As of fields of logarithms with a large variance, whose 95 % quantiles are above their means."""
    seen = SimpleNamespace(values_in_units=np.array([[1.0, 5.0, 18.0]]), transform=cagp.BoxCox(0.0))
    means = np.array([4.0, 19.0, 53.0, 55.0, 187.0])
    said = advice_of_means(means, np.full(5, 200.0), seen)
    assert said.startswith("At 2 of 5 places the mean is above the largest observation, 18, and up to 187:")
    assert advice_of_means(means[:3], np.full(3, 200.0), seen) == ""
    said = advice_of_means(np.array([20.0, 40.0]), np.array([15.0, 60.0]), seen)
    assert "At 1 of 2 places" in said  # the other one is no place of this kind
    assert "up to 20:" in said
    below = SimpleNamespace(values_in_units=np.array([[-9.0, -5.0]]), transform=seen.transform)
    assert advice_of_means(np.array([-4.9]), np.array([-4.0]), below) == ""


def test_draws_and_scores_of_rain_are_never_below_zero(model):
    draws = model.sample(TO, 40)["rain"]
    assert draws.sizes["sample"] == 40
    assert (draws >= 0.0).all()
    assert (draws == 0.0).any()
    left = model.cross_validate(3)
    np.testing.assert_allclose(left["observed"], RAIN["rain (mm)"], atol=1e-12)
    assert (left["mean"] >= 0.0).all()
    errors = left["observed"] - left["mean"]
    assert left["rmse"].item() == pytest.approx(np.sqrt(np.mean(errors.values**2)), rel=1e-12)
    assert "an observation" in left["mean"].attrs["long_name"]
    spread = float(np.var(RAIN["rain (mm)"]))
    prior = cagp.Prior(cagp.Matern32(0.08, spread), 0.05 * spread, cagp.MEANS["constant"])
    plain = cagp.Kriging(progress=False, prior=prior).fit(RAIN).cross_validate(3)
    assert left["crps"] < plain["crps"]


def test_numbers_are_fitted_with_the_draws():
    found = cagp.krige(RAIN, to=TO, transform="box-cox", kernel="matern32", progress=False)
    assert 0.3 < eval_power(found.attrs["transform_object"]) < 0.8  # it was 0.5
    assert "draws of them and of censored values" in found.attrs["hyperparameters"]
    assert "drawn 8 times" in found.attrs["fitted_to"]


def eval_power(text):
    """Read the power of a transform."""
    return float(text.split("power=")[1].split(",")[0])


def test_few_values_are_mapped_by_draws_of_the_parameters():
    """The mixture of 32 maps by hand, each with its own parameters, two draws of values and its noise."""
    model = cagp.Kriging(transform="sqrt", kernel="matern32", progress=False).fit(RAIN)
    found, learned = model.predict(TO), model._learned
    assert found.attrs["hyperparameters"].startswith("integrated over because there are no more than 60")
    assert len(learned.likely) == 32
    low, high = found.attrs["lengthscale_interval"]
    assert low < float(learned.kernel.lengthscale) < high
    assert "90% of probability: lengthscale" in model.summary()
    points = model._observed.points
    models = [own for _, own in learned.likely]
    filled = drawn(points, *models, draws=DRAWS // 32).values.reshape(32, DRAWS // 32, -1)
    X, targets, dry, beyond = points.X, cagp.unit_sphere(TO["lat"], TO["lon"]), [], []
    wet = int(np.argmin(found["probability_zero"].values))
    level = float(found["quantile"].sel(quantile_level=0.95)[wet])
    assert level > 0.0
    for own, values in zip(models, filled, strict=True):
        prior = cagp.Prior(own.kernel, own.nugget, cagp.MEANS["constant"])
        by_hand = cagp.condition(prior, X, values.T, targets, solver=cagp.Cholesky())
        s = np.sqrt(by_hand.variance)[:, None]
        dry.append(ndtr((model.transform_.end - by_hand.mean) / s))
        noisy = np.hypot(s, np.sqrt(own.nugget))
        beyond.append(ndtr((model.transform_.forward(level) - by_hand.mean[wet]) / noisy[wet]))
    np.testing.assert_allclose(found["probability_zero"], np.mean(dry, axis=(0, 2)), rtol=1e-9)
    np.testing.assert_allclose(np.mean(beyond), 0.95, atol=1e-6)
    draws = model.sample(TO, 2000)["rain"]
    expected = found["probability_zero"].values
    error = np.sqrt(expected * (1.0 - expected) * (1.0 / 2000 + 1.0 / DRAWS))
    np.testing.assert_array_less(np.abs((draws == 0.0).mean("sample") - expected), 4.0 * error)


def test_standard_errors_are_those_of_values_that_are_there_once():
    """Of the noise, within a third of that of the values before they were cut off."""
    plain = cagp.Kriging(kernel="matern32", hyperparameters="plug-in", progress=False)
    whole = plain.fit({"lat": LAT, "lon": LON, "value": Z})._learned.result
    rain = cagp.Kriging(transform="sqrt", kernel="matern32", hyperparameters="plug-in", progress=False)
    censored = rain.fit(RAIN)._learned.result
    errors = [np.sqrt(result.log_covariance[-1, -1]) for result in (censored, whole)]
    assert 0.67 < errors[0] / errors[1] < 1.5
    own = censored.standard_errors.noise_variance / censored.prior.noise_variance
    assert own == pytest.approx(errors[0], rel=1e-9)


def test_what_draws_do_not_have_yet_is_refused():
    with pytest.raises(ArgumentError) as refused:
        cagp.krige(RAIN, to=TO, transform="sqrt", progress=False, recalibration="local-scale")
    assert refused.value.key == "zeros-with-others"
    timed = RAIN | {"time": np.arange(60).astype("datetime64[h]")}
    with pytest.raises(ArgumentError) as refused:
        cagp.krige(timed, to=TO, at="observed", transform="sqrt", progress=False)
    assert refused.value.key == "zeros-with-others"
    with pytest.raises(DataError) as none:
        cagp.krige(RAIN | {"rain (mm)": np.zeros(60)}, to=TO, transform="sqrt", progress=False)
    assert none.value.key == "transform-values"
