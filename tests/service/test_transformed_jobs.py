"""Jobs of values that are not normal: the same as calls, in the unit of the values throughout."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import lognorm

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, ConfigurationError, DataError
from cagp_dist.export.groups import open_for_export
from cagp_dist.pipeline.censoring import DRAWS
from cagp_dist.report import write_report
from cagp_dist.service.job_plan import plan_job
from cagp_dist.service.run import run
from cagp_dist.service.verification import NotSolvedAgainError, solve_again, verify_run
from cagp_dist.store.series import of_run
from cagp_dist.store.zarr_arrays import read_group

from ..jobs import job_of, map_grid


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """70 places of a field that is smooth in z, as concentrations and as rain; two days of them."""
    folder, rng = tmp_path_factory.mktemp("values"), np.random.default_rng(4)
    lat, lon = rng.uniform(45.0, 55.0, 70), rng.uniform(0.0, 15.0, 70)
    z = np.sin(0.5 * lat) + np.cos(0.4 * lon) + 0.2 * rng.standard_normal(70)
    at = {"lat": lat, "lon": lon}
    rain = 3.0 * np.maximum(z - 0.3, 0.0) ** 1.7
    pd.DataFrame({**at, "no2": np.exp(z), "rain": rain, "low": np.minimum(z, 0.0)}).to_csv(
        folder / "once.csv", index=False
    )
    days = [pd.DataFrame({**at, "no2": np.exp(z + day), "time": f"2020-01-0{day + 1}"}) for day in range(2)]
    pd.concat(days).to_csv(folder / "days.csv", index=False)
    places = {"name": ["a", "b", "c"], "lat": [46.0, 50.0, 54.0], "lon": [3.0, 7.0, 12.0]}
    pd.DataFrame(places).to_csv(folder / "places.csv", index=False)
    return folder


def job(folder, transform="log", *, table="once.csv", variable="no2", **tables):
    observations = {"source": f"table:{folder / table}", "variable": variable}
    if table == "once.csv":
        observations["times"] = ["2020-01-01"]
    settings = {
        "observations": observations,
        "design": {
            "train": {"kind": "all"},
            "test": {"kind": "folds", "count": 2},
            "targets": f"table:{folder / 'places.csv'}",
        },
        "prior": {"kernel": "matern32", "hyperparameters": "plug-in", "transform": transform},
        "solver": {"name": "cholesky"},
        "cluster": {"scheduler": "serial"},
        "output": {"root": folder / f"{transform}-{variable}-{table}"},
    }
    return job_of(settings, tables)


def call(folder, transform, *, table="once.csv", variable="no2"):
    return cagp.krige(
        folder / table,
        to=folder / "places.csv",
        value=variable,
        kernel="matern32",
        hyperparameters="plug-in",
        transform=transform,
        solver=cagp.Cholesky(),
        progress=False,
    )


def assert_same(path, found, variable):
    targets = read_group(path, "targets")
    for ours in ("mean", "std", "median", "predictive_std", *({"probability_zero"} & {*found.data_vars})):
        published = targets[f"{variable}_{ours}"].values
        np.testing.assert_allclose(published, found[ours].values.reshape(published.shape), rtol=1e-8)
    quantiles = np.moveaxis(targets[f"{variable}_quantile"].values, 1, 0)
    np.testing.assert_allclose(quantiles, found["quantile"].values.reshape(quantiles.shape), rtol=1e-8)
    assert read_group(path).attrs["transform"] == found.attrs["transform"]


@pytest.mark.parametrize(
    ("transform", "table"),
    [
        ("log", "days.csv"),
        ("normal-score", "once.csv"),
        pytest.param("auto", "once.csv", marks=pytest.mark.exhaustive),
        pytest.param("box-cox", "days.csv", marks=pytest.mark.exhaustive),
    ],
)
def test_a_job_is_the_call(folder, transform, table):
    """Also of two times, each a map of its own."""
    outcome = run(job(folder, transform, table=table))
    verify_run(outcome.path)
    assert_same(outcome.path, call(folder, transform, table=table), "no2")


def test_zeros_are_censored_as_by_a_call(folder):
    held_out = {
        "test": {"kind": "random", "count": 20, "seed": 1},
        "map": {**map_grid(5.0), "area": [55, 0, 45, 15]},
    }
    outcome = run(job(folder, "sqrt", variable="rain", design=held_out))
    verify_run(outcome.path)
    assert solve_again(outcome.path, points=20) < 1e-9
    posterior, observed = (read_group(outcome.path, name) for name in ("posterior", "observations"))
    assert (posterior.rain_quantile >= 0.0).all()
    assert (posterior.rain.values == 0.0).any()
    targets = read_group(outcome.path, "targets")  # as it is published, quantiles at zero included
    np.testing.assert_allclose(
        targets.cagp.quantile(0.95).values, targets.rain_quantile.sel(quantile_level=0.95).values, atol=1e-9
    )
    with pytest.raises(ArgumentError) as refused:
        targets.cagp.exceedance(1.0, of="field")
    assert refused.value.key == "field-of-transformed"
    with pytest.raises(ArgumentError) as refused:  # a series has the transforms of several days
        of_run(outcome.path)["map"].cagp.quantile(0.95)
    assert refused.value.key == "transform-not-said"
    assert "noise_variance" in read_group(outcome.path, "map").attrs
    assert "noise_variance" not in of_run(outcome.path)["map"].attrs  # fitted for each day
    with open_for_export(outcome.path, "posterior") as exported:
        assert "noise_variance_units" not in exported.attrs
    known = pd.DataFrame({name: observed[name].values.ravel() for name in ("latitude", "longitude", "rain")})
    known.to_csv(folder / "known.csv", index=False)
    assert_same(outcome.path, call(folder, "sqrt", table="known.csv", variable="rain"), "rain")


def test_a_plan_counts_what_values_ask_for(folder):
    """Draws multiply the columns of a solve; what compares, checks or weighs values has its own line."""
    plain, rain = (plan_job(job(folder, way, variable="rain")) for way in ("none", "sqrt"))
    dry = int((pd.read_csv(folder / "once.csv").rain == 0.0).sum())
    assert f"{dry} censored values are drawn {DRAWS} times: about" in "\n".join(rain.lines())
    assert rain.plan.fields == DRAWS * plain.plan.fields
    assert rain.solves == plain.solves
    assert rain.work.flops > plain.work.flops
    chosen = plan_job(job(folder, "auto"))
    assert "the transform is found by 8 fits: about" in "\n".join(chosen.lines())


@pytest.mark.parametrize("variable", [pytest.param("no2", marks=pytest.mark.exhaustive), "rain"])
def test_a_job_is_the_call_where_parameters_are_integrated_over(folder, variable):
    """Beside folds, whose solves are put together with that of all points; zeros are drawn with them."""
    integrated = job(
        folder,
        "sqrt",
        variable=variable,
        prior={"hyperparameters": "integrate"},
        output={"root": folder / f"integrated {variable}"},
    )
    outcome = run(integrated)
    found = cagp.krige(
        folder / "once.csv",
        to=folder / "places.csv",
        value=variable,
        kernel="matern32",
        hyperparameters="integrate",
        transform="sqrt",
        solver=cagp.Cholesky(),
        progress=False,
    )
    assert_same(outcome.path, found, variable)
    with pytest.raises(NotSolvedAgainError, match="integrated over"):
        solve_again(outcome.path, points=3)


@pytest.mark.exhaustive
def test_corrected_error_bars_of_values_are_not_solved_again(folder):
    """A correction of z moves means and error bars of the values, which another solve does not have."""
    held_out = {"train": {"kind": "random", "count": 40, "seed": 3}, "test": {"kind": "random", "count": 10}}
    outcome = run(
        job(
            folder,
            "log",
            design=held_out,
            recalibration={"method": "kuleshov"},
            output={"root": folder / "scaled"},
        )
    )
    verify_run(outcome.path)
    with pytest.raises(NotSolvedAgainError, match="were corrected"):
        solve_again(outcome.path, points=5)


@pytest.mark.exhaustive
def test_a_mean_that_is_that_of_a_tail_is_said(folder):
    wide = {"lengthscale": 0.08, "variance": 36.0, "noise_variance": 0.05}
    outcome = run(job(folder, "log", variable="rain", prior=wide))
    attributes = read_group(outcome.path).attrs
    assert "above the largest observation" in attributes["values_advice"]
    assert 'transform = "auto" in [prior]' in attributes["values_advice"]


def test_scores_are_those_of_the_values(folder):
    """By quadrature over the published quantiles' own distribution, a lognormal one."""
    outcome = run(job(folder, "log"))
    assert solve_again_is_refused(outcome.path)
    posterior, scores = read_group(outcome.path, "posterior"), outcome.calibration
    low, middle, high = (posterior.no2_quantile.sel(quantile_level=at).values for at in (0.025, 0.5, 0.975))
    sigma = np.log(high / low) / (2.0 * 1.959963984540054)
    expected = lognorm(s=sigma, scale=middle)
    np.testing.assert_allclose(scores.pit.values, expected.cdf(posterior.no2.values), rtol=1e-6)
    np.testing.assert_allclose(scores.nll_of_value.values, -expected.logpdf(posterior.no2.values), rtol=1e-6)
    np.testing.assert_allclose(posterior.no2_predictive_std.values, expected.std(), rtol=1e-6)
    root = read_group(outcome.path).attrs
    assert root["transform"] == "log(y)"
    assert "noise_variance_units" not in posterior.attrs
    write_report(outcome.path)


def solve_again_is_refused(path):
    """Each fold has numbers of its own."""
    with pytest.raises(NotSolvedAgainError):
        solve_again(path, points=5)
    return True


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ({"prior": {"transform": "BoxCox(power=0.3)"}}, "krige"),
        ({"prior": {"time_kernel": "matern12"}}, "time_kernel"),
        ({"observations": {"variable": ["no2", "rain"]}}, "several variables"),
        ({"design": {"map": {**map_grid(2.0), "kind": "cells"}}}, "cells"),
        ({"observations": {"noise_std": 0.1}}, "noise_std"),
    ],
    ids=["object", "time", "variables", "cells", "noise"],
)
def test_what_has_no_transform_is_refused_by_name(folder, tables, expected):
    with pytest.raises(ConfigurationError, match=expected):
        job(folder, **tables)


def test_values_that_have_no_logarithm(folder):
    """They are named with a remedy of the job."""
    with pytest.raises(DataError) as negative:
        run(job(folder, "log", variable="low"))
    assert negative.value.key == "transform-negative"
    assert "[prior]" in str(negative.value)
    assert "cagp.BoxCox" not in str(negative.value)
    with pytest.raises(ConfigurationError) as zeros:
        run(job(folder, "sqrt", variable="rain", recalibration={"method": "kuleshov"}))
    assert zeros.value.key == "zeros-with-others"
