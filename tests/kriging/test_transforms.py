"""Maps of transformed values are what the formulae of the transform make of maps of these."""

import numpy as np
import pytest
from scipy.special import ndtr

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.pipeline.integration import moments_in_units
from cagp_dist.predictive import Gaussian, Mixture
from cagp_dist.predictive.transforms import Transformed

RNG = np.random.default_rng(0)
LAT, LON = RNG.uniform(45.0, 55.0, 120), RNG.uniform(0.0, 15.0, 120)
KERNEL = cagp.Matern32(0.04, 1.0)
_G = KERNEL(*2 * [cagp.unit_sphere(LAT, LON)]) + 0.04 * np.eye(LAT.size)
Z = np.linalg.cholesky(_G) @ RNG.standard_normal(LAT.size)
PRIOR = cagp.Prior(KERNEL, 0.04, cagp.MEANS["constant"])
TO = {"lat": [46.0, 50.0, 54.0], "lon": [3.0, 7.0, 12.0]}


def table(values, name="zn (ppm)"):
    """Give the places with values."""
    return {"lat": LAT, "lon": LON, name: values}


@pytest.fixture(scope="module")
def logs():
    """Give a model of logarithms, and the same by hand."""
    settings = {"prior": PRIOR, "progress": False}
    return (
        cagp.Kriging(transform="log", **settings).fit(table(np.exp(Z))),
        cagp.Kriging(**settings).fit(table(Z, "logs")),
    )


def test_a_map_of_logarithms_is_the_lognormal_of_the_map_by_hand(logs):
    found, z = (model.predict(TO) for model in logs)
    m, s = z["mean"].values, z["std"].values
    assert found["mean"].attrs["units"] == found["median"].attrs["units"] == "ppm"
    np.testing.assert_allclose(found["mean"], np.exp(m + 0.5 * s**2), rtol=1e-12)
    np.testing.assert_allclose(found["median"], np.exp(m), rtol=1e-12)
    np.testing.assert_allclose(found["std"], np.exp(m + 0.5 * s**2) * np.sqrt(np.expm1(s**2)), rtol=1e-12)
    with_noise = np.hypot(s, 0.2)
    np.testing.assert_allclose(found["quantile"][1], np.exp(m - 1.6448536269514729 * with_noise), rtol=1e-12)
    for of, spread in (("field", s), ("observation", with_noise)):
        np.testing.assert_allclose(
            found.cagp.exceedance(1.5, of=of), ndtr((m - np.log(1.5)) / spread), rtol=1e-9
        )
    low = found.cagp.interval(0.99)["lower"]
    np.testing.assert_allclose(low, np.exp(m - 2.5758293035489004 * s), rtol=1e-9)
    assert found.attrs["transform"] == "log(y)"
    rows = np.stack([TO["lat"], TO["lon"]], axis=1)
    np.testing.assert_allclose(logs[0].predict(rows), found["mean"], rtol=1e-12)


def test_draws_and_scores_of_logarithms_are_those_of_the_values(logs):
    draws, of_z = (model.sample(TO, 3, seed=1) for model in logs)
    np.testing.assert_allclose(draws["zn"], np.exp(of_z["logs"]), rtol=1e-12)
    left, of_z = (model.cross_validate(4) for model in logs)
    np.testing.assert_allclose(left["observed"], np.exp(Z), rtol=1e-12)
    np.testing.assert_allclose(left["pit"], of_z["pit"], rtol=1e-9)
    np.testing.assert_allclose(left["coverage"], of_z["coverage"])
    m, s = of_z["mean"].values, of_z["predictive_std"].values
    # the closed form of the lognormal [Baran & Lerch 2015]
    w = (Z - m) / s
    crps = np.exp(Z) * (2.0 * ndtr(w) - 1.0) - 2.0 * np.exp(m + 0.5 * s**2) * (
        ndtr(w - s) + ndtr(s / np.sqrt(2.0)) - 1.0
    )
    assert float(left["crps"]) == pytest.approx(crps.mean(), rel=1e-4)
    np.testing.assert_allclose(left["mean"], np.exp(m + 0.5 * s**2), rtol=1e-10)
    density = 0.5 * w**2 + np.log(s * np.sqrt(2.0 * np.pi)) + Z
    assert float(left["nll"]) == pytest.approx(density.mean(), rel=1e-9)


def test_means_of_mixtures_are_those_of_their_parts():
    """As where numbers are integrated over: by 41 quantiles, whose tails are those of a normal one."""
    spread = np.exp(0.2 * RNG.standard_normal((30, 1))) * RNG.uniform(0.3, 1.0, 50)
    centre = 1.0 + RNG.standard_normal(50) + 0.15 * RNG.standard_normal((30, 50))
    mixture = Mixture(np.full(30, 1.0 / 30.0), centre, spread)
    for transform, parts in ((cagp.BoxCox(0.0), 2e-2), (cagp.BoxCox(0.5), 2e-3)):
        own = [Transformed(Gaussian(m, s), transform) for m, s in zip(centre, spread, strict=True)]
        mean = np.mean([each.mean for each in own], axis=0)
        square = np.mean([each.mean**2 + each.std**2 for each in own], axis=0)
        found = moments_in_units(mixture, transform)
        np.testing.assert_allclose(found[0], mean, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(found[1], np.sqrt(square - mean**2), rtol=parts)


def test_the_first_power_changes_nothing():
    """Where the half-line ends many standard deviations away."""
    prior = cagp.Prior(KERNEL, 0.04, cagp.MEANS["constant"])
    plain = cagp.krige(table(20.0 + Z), to=TO, prior=prior, progress=False)
    found = cagp.krige(table(20.0 + Z), to=TO, prior=prior, transform=cagp.BoxCox(1.0), progress=False)
    for name in ("mean", "std"):
        np.testing.assert_allclose(found[name], plain[name], rtol=1e-6)
    np.testing.assert_allclose(found.cagp.exceedance(20.0), plain.cagp.exceedance(20.0), rtol=1e-9)


def test_recalibration_is_of_what_the_values_became(logs):
    settings = {"prior": PRIOR, "progress": False, "recalibration": "kuleshov"}
    of_y = cagp.krige(table(np.exp(Z)), to=TO, transform="log", **settings)
    of_z = cagp.krige(table(Z, "logs"), to=TO, **settings)
    np.testing.assert_allclose(of_y["quantile"], np.exp(of_z["quantile"]), rtol=1e-9)
    assert of_y.cagp.exceedance(1.0).attrs["long_name"].startswith("probability that an observation")
    model = cagp.Kriging(transform="log", **settings).fit(table(np.exp(Z)))
    rows = np.stack([TO["lat"], TO["lon"]], axis=1)
    np.testing.assert_array_equal(model.predict(rows), of_y["mean"])
    np.testing.assert_array_equal(model.predict(rows, return_std=True), [of_y["mean"], of_y["std"]])


class CubeRoot:
    """A transform of one's own."""

    def forward(self, values):
        return np.cbrt(values)

    def inverse(self, scores):
        return scores**3

    def log_slope(self, values):
        return -np.log(3.0 * np.cbrt(values) ** 2)


def test_an_object_of_ones_own_is_a_transform():
    found = cagp.krige(table((5.0 + Z) ** 3), to=TO, transform=CubeRoot(), prior=PRIOR, progress=False)
    z = cagp.krige(table(5.0 + Z, "roots"), to=TO, prior=PRIOR, progress=False)
    np.testing.assert_allclose(found["median"], z["mean"] ** 3, rtol=1e-9)
    assert 0.0 < float(found.cagp.exceedance(125.0)[0]) < 1.0


def test_what_does_not_go_together_is_refused():
    positive, to = table(np.exp(Z)), {"to": TO, "progress": False}
    for key, given, settings in (
        ("transform-unknown", positive, {"transform": "logs"}),
        ("transform-unknown", positive, {"transform": np.log}),
        ("transform-with-others", positive, {"transform": "log", "noise_std": 0.1}),
        ("transform-with-others", positive, {"transform": "log", "variance": 1.0}),
        ("transform-with-others", positive, {"transform": "log", "mean": 1.0}),
        ("transform-of-cells", positive, {"transform": "log", "to": 1.0, "kind": "cells"}),
        ("transform-object", table(Z), {"transform": CubeRoot(), "where": None}),
    ):
        if key == "transform-object":
            settings = {"transform": cagp.BoxCox(0.0)}
        with pytest.raises(ArgumentError) as refused:
            cagp.krige(given, **to | settings)
        assert refused.value.key == key
    for key, given in (("transform-negative", table(Z)), ("transform-values", table(np.ones(120)))):
        with pytest.raises(DataError) as refused:
            cagp.krige(given, transform="log", **to)
        assert refused.value.key == key
