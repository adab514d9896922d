"""Values below limits of detection: drawn below these, and mapped with all others."""

import numpy as np
import pytest
import xarray as xr
from scipy.special import ndtr

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.pipeline.censoring import DRAWS, drawn

RNG = np.random.default_rng(1)
LAT, LON = RNG.uniform(47.0, 53.0, 60), RNG.uniform(0.0, 9.0, 60)
KERNEL = cagp.Matern32(0.08, 1.0)
_G = KERNEL(*2 * [cagp.unit_sphere(LAT, LON)]) + 0.05 * np.eye(60)
Z = np.linalg.cholesky(_G) @ RNG.standard_normal(60)
LIMITS = RNG.choice([-0.6, -0.2], 60)
BELOW = LIMITS > Z
PRIOR = cagp.Prior(KERNEL, 0.05, cagp.MEANS["constant"])
TO = {"lat": [48.0, 50.0, 52.0], "lon": [2.0, 5.0, 8.0]}


def table_of(z, limits):
    """Give a table of values, and of their limits."""
    return {"lat": LAT, "lon": LON, "zinc": np.where(BELOW, limits, z), "lod": limits}


def fitted(z=Z, limits=LIMITS, **settings):
    """Fit nothing: all numbers are known."""
    settings = {"prior": PRIOR, "progress": False, "columns": {"limit": "lod"}, "value": "zinc"} | settings
    return cagp.Kriging(**settings).fit(table_of(z, limits))


def test_a_map_is_the_mixture_of_maps_of_the_draws():
    model = fitted()
    found = model.predict(TO)
    filled = drawn(model._observed.points, model._learned, draws=DRAWS)
    assert (filled.values[:, BELOW] <= LIMITS[BELOW]).all()
    np.testing.assert_array_equal(
        filled.values[:, ~BELOW], np.broadcast_to(Z[~BELOW], (DRAWS, (~BELOW).sum()))
    )
    X, targets = filled.X, cagp.unit_sphere(TO["lat"], TO["lon"])
    by_hand = cagp.condition(PRIOR, X, filled.values.T, targets, solver=cagp.Cholesky())
    np.testing.assert_allclose(found["mean"], by_hand.mean.mean(axis=1), rtol=1e-9)
    spread = np.sqrt(by_hand.variance + by_hand.mean.var(axis=1))
    np.testing.assert_allclose(found["std"], spread, rtol=1e-9)
    above = 1.0 - ndtr((0.1 - by_hand.mean) / np.sqrt(by_hand.variance)[:, None]).mean(axis=1)
    # the result knows a mixture by seven quantiles, and its tails by these
    np.testing.assert_allclose(found.cagp.exceedance(0.1), above, atol=0.02)
    assert found.attrs["observations_below_limits"] == BELOW.sum()


def test_points_of_a_file_have_limits_as_an_object_has(tmp_path):
    columns = table_of(Z, LIMITS)
    points = xr.Dataset({name: ("obs", columns[name]) for name in ("zinc", "lod")})
    points = points.assign_coords(
        lat=("obs", LAT, {"units": "degrees_north"}), lon=("obs", LON, {"units": "degrees_east"})
    )
    points.to_netcdf(tmp_path / "points.nc")
    settings = {"to": TO, "value": "zinc", "columns": {"limit": "lod"}, "prior": PRIOR, "progress": False}
    held, read = (cagp.krige(each, **settings) for each in (points, f"file:{tmp_path / 'points.nc'}"))
    assert read.attrs["observations_below_limits"] == BELOW.sum()
    np.testing.assert_allclose(read["mean"], held["mean"], rtol=1e-9)


def test_a_logarithm_of_values_with_limits_is_the_map_of_logarithms():
    plain, log = fitted(), fitted(np.exp(Z), np.exp(LIMITS), transform="log")
    of_plain, of_log = plain.predict(TO), log.predict(TO)
    np.testing.assert_allclose(np.log(of_log["median"]), of_plain["median"], rtol=1e-7)
    assert "probability_zero" not in of_log
    left = log.cross_validate(3)
    assert np.isfinite([left[name].item() for name in ("rmse", "crps", "nll")]).all()


def test_the_summary_names_a_transform_where_there_is_one():
    observed = table_of(Z, LIMITS)
    observed["zinc (mg kg-1)"] = observed.pop("zinc")
    plain = cagp.Kriging(prior=PRIOR, progress=False, columns={"limit": "lod"}, value="zinc").fit(observed)
    assert "transform" not in plain.summary()
    assert f"noise std    {np.sqrt(0.05):.4g} mg kg-1" in plain.summary()
    log = fitted(np.exp(Z), np.exp(LIMITS), transform="log").summary()
    assert "transform    z = log(y); all below is of z" in log


def test_pit_values_are_uniform_with_those_below_limits():
    """Of the values that were measured alone they are not: these are the higher ones."""
    every, measured = [], []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        z = np.linalg.cholesky(_G) @ rng.standard_normal(60)
        below = z < 0.3
        table = {"lat": LAT, "lon": LON, "zinc": np.maximum(z, 0.3), "lod": np.full(60, 0.3)}
        model = cagp.Kriging(prior=PRIOR, progress=False, columns={"limit": "lod"}, value="zinc").fit(table)
        left = model.cross_validate(3, blocks_degrees=None)
        pit = left["pit"].values
        inside = np.abs(pit - 0.5) <= 0.5 * left["level"].values[:, None]
        np.testing.assert_allclose(left["coverage"], inside.mean(axis=1))
        error = left["observed"] - left["mean"]
        assert left["rmse"].item() == pytest.approx(np.sqrt((error.values[~below] ** 2).mean()))
        every.append(pit)
        measured.append(pit[~below])
    error = 4.0 * np.sqrt(1.0 / 12.0 / 120.0)  # of 120 values, about as independent as such numbers are
    assert np.mean(every) == pytest.approx(0.5, abs=error)
    assert np.concatenate(measured).mean() > 0.5 + error


def test_limits_say_more_than_nothing_and_less_than_values():
    """Left out, values below limits are missed; taken as values, the map of what is below is too high."""
    where = {"lat": LAT[BELOW], "lon": LON[BELOW]}
    censored, taken = (fitted(columns=columns).predict(where) for columns in ({"limit": "lod"}, None))
    without = cagp.Kriging(prior=PRIOR, progress=False).fit(
        {"lat": LAT[~BELOW], "lon": LON[~BELOW], "zinc": Z[~BELOW]}
    )
    errors = [
        float(np.abs(each["mean"] - Z[BELOW]).mean()) for each in (censored, taken, without.predict(where))
    ]
    assert errors[0] < min(errors[1:])


@pytest.mark.filterwarnings("ignore:the covariate")
def test_limits_where_a_covariate_is_not_known_are_not_counted():
    """Nor drawn; with none left the map is that of the other values."""
    latitude, longitude = np.linspace(46.0, 54.0, 17), np.linspace(-1.0, 10.0, 23)
    height = xr.DataArray(
        np.add.outer(latitude, np.sin(longitude)), {"lat": latitude, "lon": longitude}, name="height"
    )
    table = {"lat": LAT, "lon": LON, "zinc": np.where(BELOW, LIMITS, Z), "lod": np.full(60, -9.0)}
    settings = {
        "kernel": "matern32",
        "value": "zinc",
        "progress": False,
        "lengthscale": 0.08,
        "variance": 1.0,
    }
    settings |= {
        "to": TO,
        "mean": ["constant", height.where(height.lat < 50.5)],
        "hyperparameters": "plug-in",
    }
    inside = LAT < 50.0
    for limits in (BELOW, BELOW & (LAT > 51.0)):
        own = table | {"lod": np.where(limits, LIMITS, -9.0)}
        found = cagp.krige(own, columns={"limit": "lod"}, **settings)
        counted = (limits & inside).sum()
        assert found.attrs.get("observations_below_limits", 0) == counted
        assert (f", {counted} censored values drawn" in found.attrs["fitted_to"]) == (counted > 0)
    plain = cagp.krige(
        {name: column[LAT < 51.0] for name, column in table.items() if name != "lod"}, **settings
    )
    np.testing.assert_array_equal(found["mean"], plain["mean"])


def test_what_limits_do_not_have_yet_is_refused():
    table = table_of(Z, LIMITS) | {"lat2": Z, "time": np.full(60, "2024-01-01")}
    usual = {"to": TO, "columns": {"limit": "lod"}, "value": "zinc", "progress": False}
    for settings, key in (
        ({"recalibration": "local-scale"}, "zeros-with-others"),
        ({"bias_by": "lod"}, "limits-with-others"),
        ({"at": "2024-01-01"}, "limits-with-others"),
        ({"transform": "normal-score"}, "limits-with-others"),
        ({"value": ["zinc", "lat2"]}, "limits-with-others"),
    ):
        with pytest.raises(ArgumentError) as refused:
            cagp.krige(table, **usual | settings)
        assert refused.value.key == key
    for limits in (LIMITS, np.full(60, -0.2)):
        with pytest.raises(DataError) as none:
            cagp.krige(table | {"zinc": limits, "lod": limits}, **usual)
        assert none.value.key == "all-censored"


def test_a_transform_that_helps_is_named_beside_limits():
    """By the likelihood of all values: those that were measured alone look skewed where none is."""
    for values, limit, said in (
        (np.exp(2.0 * Z), np.exp(-2.5), 'transform="log"'),
        (np.maximum(np.exp(Z) - 1.0, 0.0), 0.2, 'transform="auto"'),  # zeros that were measured
        (5.0 + Z, 4.1, ""),
    ):
        hidden = (values < limit) & (values > 0.0)
        cells = [
            f"< {limit}" if low else repr(float(value)) for low, value in zip(hidden, values, strict=True)
        ]
        table = {"lat": LAT, "lon": LON, "zinc": cells}
        model = cagp.Kriging(kernel="matern32", progress=False).fit(table)
        advice = model.predict(TO).attrs.get("values_advice", "")
        assert (said in advice) if said else advice == ""
        assert advice in model.summary()
        if said:
            named = cagp.krige(table, to=TO, kernel="matern32", progress=False, transform=said.split('"')[1])
            assert "values_advice" not in named.attrs


def test_no_transform_is_named_where_terms_of_the_mean_make_values_skewed():
    heights = np.exp(1.5 * np.random.default_rng(3).standard_normal(len(Z)))
    values = 5.0 + 2.0 * heights + Z
    limit = float(np.quantile(values, 0.05))
    cells = [f"< {limit!r}" if value < limit else repr(float(value)) for value in values]
    table = {"lat": LAT, "lon": LON, "height": heights, "zinc": cells}
    to = {"lat": LAT[:5], "lon": LON[:5], "height": heights[:5]}
    without = {name: column for name, column in table.items() if name != "height"}
    plain = cagp.krige(without, to=to, kernel="matern32", progress=False)
    assert 'transform="log"' in plain.attrs["values_advice"]
    found = cagp.krige(table, to=to, kernel="matern32", mean="height", value="zinc", progress=False)
    assert "values_advice" not in found.attrs
