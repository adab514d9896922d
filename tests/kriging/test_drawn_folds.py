"""The picture of a cross-validation shows its numbers."""

import numpy as np
import pytest
from matplotlib import pyplot as plt

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError

GIVEN = {"lengthscale_km": 400.0, "variance": 9.0, "noise_std": 0.3}


@pytest.fixture(scope="module")
def scores():
    rng = np.random.default_rng(0)
    places = {"lat": rng.uniform(46, 54, 40), "lon": rng.uniform(6, 15, 40), "value": rng.normal(20, 3, 40)}
    return cagp.Kriging(**GIVEN).fit(places).cross_validate(None)


def panels_of(dataset):
    figure = dataset.cagp.plot.folds()
    plt.close(figure)
    return figure.axes


def test_points_coverage_and_errors_are_those_of_the_folds(scores):
    points, coverage, errors, _ = panels_of(scores)
    drawn = points.lines[0]
    np.testing.assert_array_equal(np.sort(drawn.get_xdata()), np.sort(scores["mean"].values))
    np.testing.assert_array_equal(np.sort(drawn.get_ydata()), np.sort(scores["observed"].values))
    assert f"RMSE {float(scores['rmse']):.3g}" in points.get_title(loc="left")
    levels, inside = coverage.lines[-1].get_data()
    at = np.isclose(levels[:, None], 100.0 * scores["level"].values).any(axis=1)
    np.testing.assert_allclose(inside[at], 100.0 * scores["coverage"])
    shown = np.ma.getdata(errors.collections[-1].get_array())
    np.testing.assert_allclose(
        np.sort(shown), np.sort(scores["observed"].values - scores["mean"].values), rtol=1e-12
    )
    low, high = errors.collections[-1].get_clim()
    assert low == -high


def test_errors_of_several_fields_are_averaged_at_each_place(scores):
    both = scores.copy()
    for name in ("observed", "mean", "pit"):
        both[name] = (
            ("time", "observation"),
            np.stack([scores[name].values, scores[name].values + 2.0 * (name == "observed")]),
        )
    both["observed"][1, 0] = np.nan
    *_, errors, _ = panels_of(both)
    shown = np.ma.getdata(errors.collections[-1].get_array())
    expected = scores["observed"].values - scores["mean"].values + 1.0
    expected[0] -= 1.0
    np.testing.assert_allclose(np.sort(shown), np.sort(expected), rtol=1e-12)


def test_values_below_limits_are_in_the_coverage_alone():
    rng = np.random.default_rng(3)
    lat, lon = rng.uniform(46, 54, 60), rng.uniform(6, 15, 60)
    values = np.exp(rng.normal(0.0, 1.0, 60))
    text = ["<0.7" if value < 0.7 else f"{value:.3f}" for value in values]
    places = {"lat": lat, "lon": lon, "dose": np.array(text, dtype=object)}
    prior = cagp.Prior(cagp.Matern32(0.06), 0.1, cagp.MEANS["constant"])
    model = cagp.Kriging(transform="log", prior=prior, progress=False).fit(places)
    scores = model.cross_validate(4)
    points, coverage, errors, _ = panels_of(scores)
    measured = int((values >= 0.7).sum())
    assert points.lines[0].get_xdata().size == errors.collections[-1].get_array().size == measured < 60
    assert f"RMSE {float(scores['rmse']):.3g}" in points.get_title(loc="left")
    levels, inside = coverage.lines[-1].get_data()
    at = np.isclose(levels[:, None], 100.0 * scores["level"].values).any(axis=1)
    np.testing.assert_allclose(inside[at], 100.0 * scores["coverage"])


@pytest.mark.parametrize("name", ["observed", "pit"])
def test_nothing_to_draw_is_said(scores, name):
    with pytest.raises(ArgumentError) as refused:
        scores.assign({name: scores[name] * np.nan}).cagp.plot.folds()
    assert refused.value.key == "no-folds"


def test_what_is_no_cross_validation_is_refused(scores):
    with pytest.raises(ArgumentError) as refused:
        scores.drop_vars("pit").cagp.plot.folds()
    assert refused.value.key == "no-folds"
    names = np.where(np.arange(scores.sizes["observation"]) % 2, "tmin", "tmax")
    named = scores.assign_coords(variable=("observation", names))
    with pytest.raises(ArgumentError) as refused:
        named.cagp.plot.folds()
    assert refused.value.key == "several-variables"
    assert len(panels_of(named.isel(observation=names == "tmin"))) == 4
