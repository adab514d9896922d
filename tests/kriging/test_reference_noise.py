"""The distribution of a new observation where the noise of each station is known."""

import numpy as np

import cagp_dist as cagp


def test_a_few_bad_stations_do_not_make_the_noise_of_a_new_observation():
    rng = np.random.default_rng(0)
    latitude, longitude = rng.uniform(40.0, 60.0, 120), rng.uniform(0.0, 30.0, 120)
    X, noise = cagp.unit_sphere(latitude, longitude), np.where(np.arange(120) % 7 == 0, 6.0, 0.3)
    kernel = cagp.Matern32(0.3, 1.0)
    field = np.linalg.cholesky(kernel(X, X) + np.diag(noise**2)) @ rng.standard_normal(120)
    table = {"latitude": latitude, "longitude": longitude, "temperature": 10.0 + field, "noise_std": noise}
    to = {"latitude": [50.0, 47.0], "longitude": [10.0, 15.0]}
    model = cagp.Kriging(kernel=kernel, mean=10.0, recalibration="kuleshov").fit(table)
    result = model.predict(to)
    _, std = model.predict(np.column_stack([*to.values()]), return_std=True)
    assert result.attrs["reference_noise_std"] == 0.3
    before = model.set_params(recalibration="none").predict(to)["std"].values
    plain = np.sqrt(before**2 + 0.3**2)
    # that of the mean noise is six times as large
    ratio = result["predictive_std"].values / plain
    assert ((ratio > 0.5) & (ratio < 2.0)).all()
    np.testing.assert_allclose(result["std"], ratio * before, rtol=1e-12)  # one correction of both
    np.testing.assert_allclose(std, result["std"], rtol=1e-12)
    assert (result["std"] < result["predictive_std"]).all()
    for name in ("std", "predictive_std"):
        assert ", recalibrated" in result[name].attrs["long_name"]
