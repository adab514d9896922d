"""Ellipses that are fitted or given, in a plane and in a region of the globe, from calls and jobs."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError

COLUMNS = {"x": "x", "y": "y"}


def drawn(seed=0, n=150, ratio=4.0, azimuth=30.0):
    """Observations of a field in a plane that reaches four times as far along 30 degrees from north."""
    generator = np.random.default_rng(seed)
    X = generator.uniform(0.0, 100.0, (n, 2))
    kernel = cagp.Anisotropic(cagp.Matern32(20.0, 4.0), ratio, azimuth)
    field = np.linalg.cholesky(kernel(X, X) + 0.1 * np.eye(n)) @ generator.normal(size=n)
    return {"x": X[:, 0], "y": X[:, 1], "value": 10.0 + field}


def on_the_globe(table):
    """The same in a region: a degree for 10 units, narrower where parallels are."""
    latitude = 45.0 + (table["y"] - 50.0) / 10.0
    longitude = 10.0 + (table["x"] - 50.0) / 10.0 / np.cos(np.deg2rad(latitude))
    return {"lat": latitude, "lon": longitude, "value": table["value"]}


def test_an_ellipse_is_found_in_a_plane_and_on_the_globe():
    table = drawn()
    plane = cagp.krige(table, columns=COLUMNS, to=20.0, kernel="matern32", anisotropy="fit", progress=False)
    region = cagp.krige(on_the_globe(table), to=2.0, kernel="matern32", anisotropy="fit", progress=False)
    for found in (plane, region):
        # three standard errors, as the result says them
        error = found.attrs["anisotropy_ratio_standard_error"]
        assert abs(found.attrs["anisotropy_ratio"] - 4.0) < 3.0 * error < 8.0
        error = found.attrs["anisotropy_azimuth_degrees_standard_error"]
        assert abs(found.attrs["anisotropy_azimuth_degrees"] - 30.0) < 3.0 * error < 30.0
    # one ellipse, but for the curvature of ten degrees
    assert plane.attrs["anisotropy_ratio"] == pytest.approx(region.attrs["anisotropy_ratio"], rel=0.1)


def test_what_is_fitted_is_what_is_given():
    table = drawn()
    model = cagp.Kriging(
        columns=COLUMNS, kernel="matern32", anisotropy="fit", hyperparameters="plug-in", progress=False
    ).fit(table)
    kernel = model.prior_.kernel
    to = {"x": [10.0, 90.0], "y": [50.0, 20.0]}
    given = {"columns": COLUMNS, "to": to, "noise_std": float(model.prior_.noise_variance) ** 0.5}
    one = cagp.krige(table, kernel=kernel, progress=False, **given)
    shape = (kernel.ratio, kernel.azimuth_degrees)
    numbers = {"lengthscale": kernel.common_lengthscale, "variance": kernel.variance}
    other = cagp.krige(table, kernel="matern32", anisotropy=shape, progress=False, **numbers, **given)
    for found in (one, other):
        np.testing.assert_allclose(found["mean"], model.predict(to)["mean"], rtol=1e-9)
        np.testing.assert_allclose(found["std"], model.predict(to)["std"], rtol=1e-9)
    held = cagp.krige(table, kernel="matern32", anisotropy=shape, progress=False, columns=COLUMNS, to=to)
    assert held.attrs["anisotropy_ratio"] == shape[0]
    assert held.attrs["lengthscale"] == pytest.approx(kernel.common_lengthscale, rel=1e-2)


@pytest.mark.exhaustive
def test_an_ellipse_is_found_beside_the_errors_of_ships():
    """Without these errors in the fit of the shape there is none: they are 15 times the noise."""
    generator, n = np.random.default_rng(0), 120
    places = generator.uniform(0.0, 100.0, (n, 2))
    kernel = cagp.Anisotropic(cagp.Matern32(12.0, 1.0), 5.0, 30.0)
    field = np.linalg.cholesky(kernel(places, places) + 1e-9 * np.eye(n)) @ generator.standard_normal(n)
    ship, errors = np.arange(n) % 6, 3.0 * generator.standard_normal(6)
    table = {"x": places[:, 0], "y": places[:, 1], "ship": np.array([f"S{own}" for own in ship])}
    table["value"] = field + errors[ship] + 0.2 * generator.standard_normal(n)
    given = {"columns": {"x": "x", "y": "y"}, "kernel": "matern32", "bias_by": "ship", "progress": False}
    for asked in ("fit", "auto"):
        found = cagp.krige(table, to={"x": [50.0], "y": [50.0]}, value="value", anisotropy=asked, **given)
        assert 3.0 < found.attrs["anisotropy_ratio"] < 8.0
        assert found.attrs["anisotropy_azimuth_degrees"] == pytest.approx(30.0, abs=10.0)


def test_auto_takes_an_ellipse_where_the_likelihood_gains():
    settings = {"columns": COLUMNS, "to": 50.0, "kernel": "matern32", "anisotropy": "auto", "progress": False}
    assert "anisotropy_ratio" in cagp.krige(drawn(), **settings).attrs
    # of ten fields without a direction, two numbers gain 4 in one of 55: none or one of these
    seen = [
        "anisotropy_ratio" in cagp.krige(drawn(seed, n=60, ratio=1.0), **settings).attrs for seed in range(5)
    ]
    assert sum(seen) <= 1


def test_a_fit_keeps_circles_that_are_nearly_as_likely():
    given = {"columns": COLUMNS, "kernel": "matern32", "hyperparameters": "plug-in", "progress": False}
    asked = [cagp.Kriging(anisotropy="fit", **given).fit(drawn(seed, n=60, ratio=1.0)) for seed in range(4)]
    to = {"x": [10.0, 90.0], "y": [50.0, 20.0]}
    ratios = [model.predict(to).attrs["anisotropy_ratio"] for model in asked]
    # two numbers gain 3 in one field of twenty that have no direction: none or one of these
    assert ratios.count(1.0) >= 3
    round_one = ratios.index(1.0)
    circles = cagp.Kriging(**given).fit(drawn(round_one, n=60, ratio=1.0))
    for name in ("mean", "std"):
        np.testing.assert_allclose(asked[round_one].predict(to)[name], circles.predict(to)[name], rtol=1e-9)
    assert "a circle is nearly as likely" in asked[round_one].summary()


def test_numbers_are_integrated_over_beside_the_ellipse():
    found = cagp.krige(drawn(n=60), columns=COLUMNS, to=50.0, anisotropy="fit", progress=False)
    assert "field_quantile" in found
    assert found.attrs["anisotropy_ratio"] > 2.0


def test_neighbours_along_the_ellipse_are_the_exact_posterior():
    table = drawn()
    prior = cagp.Prior(cagp.Anisotropic(cagp.Matern32(20.0, 4.0), 4.0, 30.0), 0.1, 10.0)
    given = {"columns": COLUMNS, "to": 20.0, "prior": prior, "progress": False}
    exact = cagp.krige(table, **given)
    near = cagp.krige(table, solver=cagp.Neighbours(40), **given)
    turned = cagp.Prior(cagp.Anisotropic(cagp.Matern32(20.0, 4.0), 4.0, 120.0), 0.1, 10.0)
    apart = np.abs(near["std"] / exact["std"] - 1.0)
    assert float(apart.max()) < 1e-3
    assert float(np.abs(cagp.krige(table, **{**given, "prior": turned})["mean"] - exact["mean"]).max()) > 0.5


def test_variograms_rise_more_slowly_along_the_major_axis():
    model = cagp.Kriging(
        columns=COLUMNS, kernel="matern32", anisotropy=(4.0, 30.0), progress=False, noise_std=0.3
    ).fit(drawn())
    found = model.variogram(directions=3, draws=20)  # around 0, 60 and 120 degrees
    assert found["azimuth_degrees"].values.tolist() == [0.0, 60.0, 120.0]
    along, across = (found["fitted"].sel(azimuth_degrees=azimuth).values for azimuth in (0.0, 120.0))
    assert (along[5:] < across[5:]).all()
    pairs = model.variogram(draws=20)["pairs"].sum() - found["pairs"].sum()
    assert abs(int(pairs)) < 100  # each pair has one direction; bins of few pairs are left out
    assert "ellipse      4 : 1, major axis 30 degrees from north" in model.summary()
    plot = model.predict(20.0).cagp.plot
    assert any("4.0 : 1" in text.get_text() for text in plot("mean").findobj() if hasattr(text, "get_text"))


@pytest.mark.parametrize(
    ("key", "settings"),
    [
        ("anisotropy", {"anisotropy": "yes"}),
        ("anisotropy", {"anisotropy": (3.0,)}),
        ("anisotropy-ratio", {"anisotropy": (0.3, 30.0)}),
        ("anisotropy-azimuth", {"anisotropy": (3.0, 999.0)}),
        ("anisotropy-of-sum", {"anisotropy": "fit", "kernel": "matern32 + matern32"}),
        pytest.param(
            "kernel-and-numbers",
            {
                "anisotropy": (2.0, 30.0),
                "kernel": cagp.Anisotropic(cagp.Matern32(20.0), 2.0, 0.0).family,
            },
            id="of a family",
        ),
        (
            "kernel-and-numbers",
            {"anisotropy": "fit", "kernel": cagp.Anisotropic(cagp.Matern32(20.0), 2.0, 0.0)},
        ),
    ],
)
def test_what_is_no_ellipse_is_refused(key, settings):
    with pytest.raises(ArgumentError) as caught:
        cagp.krige(drawn(n=30), columns=COLUMNS, to=50.0, progress=False, **settings)
    assert caught.value.key == key


def test_a_result_says_its_ellipse_and_kernels_of_other_points_are_refused():
    table = drawn(n=40)
    kernel = cagp.Anisotropic(cagp.Matern32(20.0, 4.0), 4.0, 30.0)
    given = {"columns": COLUMNS, "to": 50.0, "noise_std": 0.3, "progress": False}
    found = cagp.krige(table, kernel=kernel, **given)
    assert repr(kernel) == found.attrs["kernel"]
    assert found.cagp.plot.variogram(table) is not None  # by the kernel that the attributes say
    region = cagp.Anisotropic(cagp.Matern32(0.2), 2.0, 0.0, centre=(45.0, 10.0))
    labels = cagp.Matern32(0.2) * cagp.Coregion([[1.0, 0.5], [0.5, 1.0]])
    for other, key in ((region, "kernel-of-space"), (labels, "kernel-of-axes")):
        for way in ({"kernel": other}, {"prior": cagp.Prior(other, 0.1, 0.0), "noise_std": None}):
            with pytest.raises(ArgumentError) as caught:
                cagp.krige(table, **{**given, **way})
            assert caught.value.key == key


def test_the_globe_has_no_directions_beyond_a_cap():
    around = {
        "lat": np.linspace(-60.0, 60.0, 40),
        "lon": np.linspace(0.0, 300.0, 40),
        "value": np.arange(40.0),
    }
    with pytest.raises(ArgumentError) as caught:
        cagp.krige(around, to=20.0, anisotropy=(3.0, 30.0), progress=False)
    assert caught.value.key == "anisotropy-region"


def test_places_on_a_line_have_no_ellipse():
    table = drawn(n=40)
    line = {**table, "y": 2.0 * table["x"]}
    settings = {"columns": COLUMNS, "to": 50.0, "kernel": "matern32", "progress": False}
    with pytest.raises(ArgumentError) as caught:
        cagp.krige(line, anisotropy="fit", **settings)
    assert caught.value.key == "anisotropy-on-line"
    assert "anisotropy_ratio" not in cagp.krige(line, anisotropy="auto", **settings).attrs
