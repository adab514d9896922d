"""Maps of few observations: numbers that are integrated over, when, and what comes of it."""

import re
from dataclasses import replace

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import kilometres_of_chord

TO = {"resolution": 4.0, "region": [12.0, 0.0, 0.0, 12.0]}


@pytest.fixture(scope="module")
def few():
    """Twenty places, whose errors are 0.3 to 0.6."""
    generator = np.random.default_rng(2)
    latitude, longitude = generator.uniform(0.0, 12.0, (2, 20))
    X = cagp.unit_sphere(latitude, longitude)
    noise = generator.uniform(0.3, 0.6, 20)
    covariance = cagp.Matern32(0.06, 4.0)(X, X) + np.diag(noise**2)
    value = np.linalg.cholesky(covariance) @ generator.standard_normal(20) + 280.0
    return {"lat": latitude, "lon": longitude, "value": value, "noise_std": noise}


def _plain(table):
    return {name: column for name, column in table.items() if name != "noise_std"}


def test_few_observations_are_integrated_over_and_it_is_said(few):
    known, sought = cagp.krige(few, to=TO), cagp.krige(_plain(few), to=TO)
    for result, distributions in (
        (known, "normal distributions"),
        (sought, "Student distributions of 19 degrees of freedom"),
    ):
        said = result.attrs["hyperparameters"]
        assert said.startswith("integrated over because there are no more than 20 observations: mixtures")
        assert distributions in said
        assert said.endswith("%)")  # of each kernel that is averaged over
        low, high = result.attrs["lengthscale_interval"]
        assert low < result.attrs["lengthscale_chord"] < high
        quantiles = result["field_quantile"]
        assert quantiles.dims == ("quantile_level", *result["mean"].dims)
        assert (quantiles.diff("quantile_level") > 0.0).all()
        # of a mean that lies within a standard error of the median
        assert (abs(quantiles.sel(quantile_level=0.5) - result["mean"]) < result["std"]).all()
    with pytest.warns(UserWarning, match="the fit ended flat"):
        plain = cagp.krige(_plain(few), to=TO, hyperparameters="plug-in")
    assert plain.attrs["hyperparameters"] == "plugged in, as asked for"
    assert "field_quantile" not in plain
    assert plain["std"].mean() < sought["std"].mean()
    text = cagp.Kriging().fit(few).summary()
    assert "parameters   integrated over because" in text
    low, high = re.search(r"90% of probability: lengthscale (\S+) to (\S+) km", text).groups()
    ends = [kilometres_of_chord(chord) for chord in known.attrs["lengthscale_interval"]]
    np.testing.assert_allclose([float(low), float(high)], ends, rtol=0.005)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        pytest.param(
            {"kernel": "matern32 + matern32", "variance": [2.0, 2.0]},
            "the kernel is a sum",
            marks=pytest.mark.exhaustive,
        ),
        ({"solver": "block-gauss-seidel"}, "the solver 'block-gauss-seidel' is not exact"),
        ({"variance": 4.0, "nugget_std": None}, "the variance is given, and a nugget"),
    ],
)
def test_what_cannot_be_integrated_over_is_plugged_in_or_refused(few, settings, why):
    settings = {"kernel": "matern32", **settings}
    assert cagp.krige(few, to=TO, **settings).attrs["hyperparameters"].startswith(f"plugged in: {why}")
    with pytest.raises(ArgumentError) as refusal:
        cagp.krige(few, to=TO, hyperparameters="integrate", **settings)
    assert refusal.value.key == "not-integrated"
    with pytest.raises(ArgumentError) as refusal:
        cagp.krige(few, to=TO, hyperparameters="map")
    assert refusal.value.key == "hyperparameters-unknown"


def test_many_observations_are_plugged_in_unless_the_likelihood_is_flat(monkeypatch, few):
    from cagp_dist.likelihood.exact import integrated

    monkeypatch.setattr(integrated, "FEW", 19)
    flat = cagp.krige(_plain(few), to=TO)
    assert "because the likelihood is flat" in flat.attrs["hyperparameters"]
    monkeypatch.setattr(integrated, "is_flat", lambda result: False)
    plugged = cagp.krige(few, to=TO)
    assert plugged.attrs["hyperparameters"] == "plugged in: there are 20 observations"
    asked = cagp.krige(few, to=TO, hyperparameters="integrated")  # another word for "integrate"
    assert asked.attrs["hyperparameters"].startswith("integrated over as asked for: ")


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, marks=pytest.mark.exhaustive),
        pytest.param({"nugget_std": None, "kernel": "matern32"}, marks=pytest.mark.exhaustive),
        {"noise_std": "absent"},
    ],
)
def test_samples_draw_numbers_and_fields(few, settings):
    """Moments and quantiles of samples are those of the mixture."""
    if "noise_std" in settings:
        few, settings = _plain(few), {"kernel": "matern32"}
    model = cagp.Kriging(**settings).fit(few)
    result, samples, count = model.predict(TO), model.sample(TO, 3000), 3000
    drawn = samples["value"].values
    # eight independent places or so: four standard errors
    error = (drawn.mean(axis=0) - result["mean"]) / result["std"]
    assert np.abs(error).max() < 4.0 / np.sqrt(count)
    np.testing.assert_allclose(drawn.std(axis=0), result["std"], rtol=4.0 * 1.5 / np.sqrt(2 * count))
    inside = (drawn < result["field_quantile"].values[:, None]).mean(axis=1)
    levels = result["quantile_level"].values[:, None, None]
    assert np.abs(inside - levels).max() < 4.0 * 0.5 / np.sqrt(count)


def test_folds_are_predicted_by_mixtures(few):
    model = cagp.Kriging(nugget_std=0.0).fit(few)
    found = model.cross_validate(4, blocks_degrees=None)
    assert "averaged over what all observations say of them" in found.attrs["comment"]
    first = (found["fold"] == 0).values
    others = {name: column[~first] for name, column in few.items()}
    again = cagp.Kriging(nugget_std=0.0).fit(few)
    again._observed = replace(again._observed, points=again._observed.points.only(np.flatnonzero(~first)))
    expected = again.predict({"lat": few["lat"][first], "lon": few["lon"][first]})
    np.testing.assert_allclose(found["mean"].values[first], expected["mean"].values)
    np.testing.assert_allclose(found["std"].values[first], expected["std"].values)
    assert len(others["lat"]) == 15
    with_noise = np.hypot(found["std"], few["noise_std"])
    np.testing.assert_allclose(found["predictive_std"], with_noise, rtol=1e-6)
    assert found["pit"].min() > 0.0
    assert found["pit"].max() < 1.0
    assert found["crps"] < found["rmse"]


def test_a_nugget_that_is_given_is_in_the_distributions_of_observations():
    rng = np.random.default_rng(0)
    table = {"lat": rng.uniform(40.0, 60.0, 40), "lon": rng.uniform(0.0, 20.0, 40)}
    table["temperature"] = rng.standard_normal(40)
    model = cagp.Kriging(noise_std=0.1, nugget_std=1.0, kernel="matern32", progress=False).fit(table)
    assert model._fitted()[1].integrated is not None
    found = model.cross_validate(4)
    np.testing.assert_allclose(found.predictive_std**2 - found["std"] ** 2, 1.01, rtol=1e-6)
