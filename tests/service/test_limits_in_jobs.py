"""Jobs whose values lie below limits of detection: the same as calls."""

import numpy as np
import pandas as pd
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, ConfigurationError, DataError
from cagp_dist.pipeline.censoring import DRAWS
from cagp_dist.report import write_report
from cagp_dist.report.published import read_run
from cagp_dist.report.report_tables import UNMEASURED, by_time, time_rows
from cagp_dist.report.wording import percent
from cagp_dist.service.daily import daily
from cagp_dist.service.job_plan import plan_job
from cagp_dist.service.run import check_job, run
from cagp_dist.service.task import Simulations
from cagp_dist.service.verification import NotSolvedAgainError, solve_again, verify_run
from cagp_dist.store.zarr_arrays import read_group

from ..jobs import job_of, map_grid

NUMBERS = {"lengthscale": 0.08, "variance": 1.0, "noise_variance": 0.05}
PRIOR = cagp.Prior(cagp.Matern32(0.08, 1.0), 0.05, cagp.MEANS["constant"])
LIMIT = -0.3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two days of 60 places: limits in a column, and as cells of the field and of its exponential."""
    folder, rng = tmp_path_factory.mktemp("limits"), np.random.default_rng(1)
    lat, lon = rng.uniform(47.0, 53.0, 60), rng.uniform(0.0, 9.0, 60)
    G = cagp.Matern32(0.08, 1.0)(*2 * [cagp.unit_sphere(lat, lon)]) + 0.05 * np.eye(60)
    tables = []
    for day in range(2):
        z = np.linalg.cholesky(G) @ rng.standard_normal(60)
        limits = np.where(rng.random(60) < 0.5, LIMIT, -0.6)
        columns = {
            "lat": lat,
            "lon": lon,
            "zinc": np.maximum(z, limits),
            "lod": limits,
            "cell": cells(z, limits),
            "lead": cells(np.exp(z), np.exp(limits)),
            "time": f"2020-01-0{day + 1}",
        }
        tables.append(pd.DataFrame(columns))
    tables[0].drop(columns=["time"]).to_csv(folder / "once.csv", index=False)
    pd.concat([tables[0], tables[1].iloc[5:]]).to_csv(folder / "days.csv", index=False)
    dry = tables[1].assign(zinc=tables[1].lod)
    pd.concat([tables[0], dry]).to_csv(folder / "dry.csv", index=False)
    lonely = dry.assign(zinc=np.where(np.arange(60) == 7, 2.0, dry.zinc))
    pd.concat([tables[0], lonely]).to_csv(folder / "lonely.csv", index=False)
    places = {"name": ["a", "b", "c"], "lat": [48.0, 50.0, 52.0], "lon": [2.0, 5.0, 8.0]}
    pd.DataFrame(places).to_csv(folder / "places.csv", index=False)
    return folder


def cells(values, limits):
    """Write values as a laboratory does."""
    return [
        f"< {limit!r}" if value < limit else repr(value)
        for value, limit in zip(values.tolist(), limits.tolist(), strict=True)
    ]


def columns_of(variable):
    """Of the numbers a column says which are limits."""
    return {"columns": {"limit": "lod"}} if variable == "zinc" else {}


def job(folder, *, table="once.csv", name="run", variable="zinc", **tables):
    observations = {"source": f"table:{folder / table}", "variable": variable, **columns_of(variable)}
    if table == "once.csv":
        observations["times"] = ["2020-01-01"]
    settings = {
        "observations": observations,
        "design": {
            "train": {"kind": "all"},
            "test": {"kind": "folds", "count": 3},
            "targets": f"table:{folder / 'places.csv'}",
        },
        "prior": {"kernel": "matern32", "hyperparameters": "plug-in"},
        "solver": {"name": "cholesky"},
        "cluster": {"scheduler": "serial"},
        "output": {"root": folder / name},
    }
    return job_of(settings, tables)


def call(folder, *, table="once.csv", variable="zinc", **settings):
    return cagp.krige(
        folder / table,
        to=folder / "places.csv",
        value=variable,
        solver=cagp.Cholesky(),
        progress=False,
        **({"kernel": "matern32", "hyperparameters": "plug-in"} | columns_of(variable) | settings),
    )


def assert_same(path, found, variable):
    targets = read_group(path, "targets")
    for ours in ("mean", "std", "median", "predictive_std"):
        published = targets[f"{variable}_{ours}"].values
        np.testing.assert_allclose(published, found[ours].values.reshape(published.shape), rtol=1e-8)
    quantiles = np.moveaxis(targets[f"{variable}_quantile"].values, 1, 0)
    np.testing.assert_allclose(quantiles, found["quantile"].values.reshape(quantiles.shape), rtol=1e-8)
    root = read_group(path).attrs
    assert root["observations_below_limits"] == found.attrs["observations_below_limits"]
    assert root["transform_object"] == found.attrs["transform_object"]


@pytest.mark.parametrize(("table", "variable"), [("once.csv", "cell"), ("days.csv", "zinc")])
def test_a_job_is_the_call(folder, table, variable):
    """With folds; of two days, each a map of its own, where some places have no value on the second."""
    outcome = run(job(folder, table=table, variable=variable, name=f"{table}-{variable}"))
    verify_run(outcome.path)
    assert_same(outcome.path, call(folder, table=table, variable=variable), variable)
    with pytest.raises(NotSolvedAgainError, match="folds"):
        solve_again(outcome.path, points=3)
    root, posterior = (read_group(outcome.path, name) for name in ("", "posterior"))
    assert "transform" not in root.attrs
    assert "noise_variance_units" not in root.attrs  # as the table says none
    below, scores = posterior.below_limit.values > 0.0, outcome.calibration
    observed = posterior[variable].values
    assert below.sum() == root.attrs["observations_below_limits"]
    errors = (observed - posterior[f"{variable}_mean"].values)[~below]
    assert scores.rmse.item() == pytest.approx(np.sqrt(np.nanmean(errors**2)))
    for name in ("nll", "crps"):
        of_each = scores[f"{name}_of_value"].values
        np.testing.assert_array_equal(np.isnan(of_each), below | np.isnan(observed))
        assert scores[name].item() == pytest.approx(np.nanmean(of_each))
    inside = np.abs(scores.pit.values[~np.isnan(observed)] - 0.5) <= 0.45
    assert scores.coverage.sel(level=0.9).item() == pytest.approx(inside.mean())
    assert "limits of detection" in write_report(outcome.path).read_text()
    assert "which lie higher than all" in scores.attrs["limits_statement"]
    assert "mixture over draws" in posterior[f"{variable}_quantile"].attrs["comment"]
    assert "transformed" not in posterior[f"{variable}_std"].attrs["comment"]


def test_test_points_below_limits_are_scored_by_probability(folder):
    """Their PIT lies below the probability of a value below the limit; a map goes with them."""
    held_out = {
        "test": {"kind": "random", "count": 25, "seed": 1},
        "map": {**map_grid(2.0), "area": [53, 0, 47, 8]},
    }
    outcome = run(job(folder, name="held out", design=held_out, prior=NUMBERS))
    verify_run(outcome.path)
    assert solve_again(outcome.path, points=25) < 1e-9
    posterior, observed, field = (
        read_group(outcome.path, name) for name in ("posterior", "observations", "map")
    )
    assert {"zinc_median", "zinc_quantile"} <= {*field.data_vars}
    below = posterior.below_limit.values[0] > 0.0
    assert 0 < below.sum() < 25
    quantiles = posterior.zinc_quantile.values[0][:, below]
    limits, pit = posterior.zinc.values[0, below], outcome.calibration.pit.values[0, below]
    at_most = np.append(posterior.quantile_level.values, 1.0)[(quantiles < limits).sum(axis=0)]
    assert ((pit > 0.0) & (pit <= at_most)).all()
    known = {name: observed[name].values.ravel() for name in ("latitude", "longitude", "zinc")}
    known["lod"] = np.where(observed.below_limit.values.ravel() > 0.0, known["zinc"], -9.0)
    pd.DataFrame(known).to_csv(folder / "known.csv", index=False)
    found = call(folder, table="known.csv", prior=PRIOR, kernel="auto", hyperparameters="auto")
    assert_same(outcome.path, found, "zinc")


def test_a_day_whose_test_points_are_all_below_limits_has_a_report(folder):
    """Its first: errors are of none, coverage is that of the PIT."""
    held_out = {"test": {"kind": "random", "count": 12, "seed": 1}}
    places = pd.read_csv(folder / "once.csv")
    settings = {"prior": NUMBERS, "design": held_out}
    tested = read_group(run(job(folder, name="tested", **settings)).path, "posterior")
    first, second = (places.assign(time=f"2020-01-0{day}") for day in (1, 2))
    held = np.isin(first.lat.round(9), tested.latitude.values.round(9))
    assert held.sum() == 12
    first.loc[held, "zinc"] = first.loc[held, "lod"]
    pd.concat([first, second]).to_csv(folder / "hidden.csv", index=False)
    outcome = run(job(folder, table="hidden.csv", name="hidden", **settings))
    below = read_group(outcome.path, "posterior").below_limit.values > 0.0
    np.testing.assert_array_equal(below.all(axis=1), [True, False])
    page = write_report(outcome.path).read_text()
    assert "no test point has a measured value" in page
    assert "On average" not in page
    scored, pit = by_time(read_run(outcome.path)), outcome.calibration.pit.values
    np.testing.assert_array_equal(np.isnan(scored.rmse), [True, False])
    np.testing.assert_allclose(scored.coverage, (np.abs(pit - 0.5) <= 0.45).mean(axis=1))
    rows, _ = time_rows(scored)
    assert rows[0][1:4] == (UNMEASURED, "", "")
    assert rows[0][4] == percent(scored.coverage[0])
    assert UNMEASURED in page


def test_limits_at_test_points_alone_leave_distributions_normal(folder):
    """No page says that limits were used, or what they would have changed."""
    held_out = {"test": {"kind": "random", "count": 12, "seed": 1}}
    places = pd.read_csv(folder / "once.csv")
    settings = {"prior": NUMBERS, "design": held_out}
    tested = read_group(run(job(folder, name="tested", **settings)).path, "posterior")
    held = np.isin(places.lat.round(9), tested.latitude.values.round(9))
    places.loc[~held, "lod"] = -9.0
    places.to_csv(folder / "outside.csv", index=False)
    outside = job(folder, table="outside.csv", name="outside", **settings)
    outcome = run(outside)
    published = read_run(outcome.path)
    assert read_group(outcome.path).attrs["observations_below_limits"] == 0
    assert published.normal
    assert published.limits_held_out
    page = write_report(outcome.path).read_text()
    assert "0 observed values" not in page
    assert "not normal" not in page
    assert "On average" not in page


@pytest.mark.parametrize(
    ("variable", "transform", "hyperparameters"), [("lead", "log", "plug-in"), ("zinc", "none", "integrate")]
)
def test_with_transforms_and_parameters_that_are_integrated_over(
    folder, variable, transform, hyperparameters
):
    """Both together are a matter of zeros, which are alike."""
    settings = {"transform": transform, "hyperparameters": hyperparameters}
    outcome = run(
        job(
            folder,
            variable=variable,
            name=f"{variable}-{transform}",
            prior=settings,
            design={"test": {"kind": "random", "count": 10, "seed": 3}, "train": {"kind": "all"}},
        )
    )
    verify_run(outcome.path)
    observed = read_group(outcome.path, "observations")
    known = {name: observed[name].values.ravel() for name in ("latitude", "longitude", variable)}
    known["lod"] = np.where(observed.below_limit.values.ravel() > 0.0, known[variable], np.nan)
    pd.DataFrame(known).to_csv(folder / "known.csv", index=False)
    found = call(folder, table="known.csv", variable=variable, columns={"limit": "lod"}, **settings)
    assert_same(outcome.path, found, variable)


def test_days_with_and_without_limits_are_of_one_series(folder):
    days = pd.read_csv(folder / "once.csv")
    measured = days.assign(lod=-9.0, time="2020-01-02")
    days = [days.assign(time="2020-01-01"), measured, days.assign(time="2020-01-03")]
    pd.concat(days).to_csv(folder / "three.csv", index=False)
    held_out = {
        "test": {"kind": "random", "count": 20, "seed": 1},
        "map": {**map_grid(2.0), "area": [53, 0, 47, 8]},
    }
    asked = job(folder, table="three.csv", name="series", design=held_out, prior=NUMBERS)
    assert all(day.failed is None for day in daily(asked))
    maps = read_group(folder / "series" / "series.zarr", "map")
    assert maps.sizes["time"] == 3
    same = (maps.zinc_median == maps.zinc_mean).all(["latitude", "longitude"])
    np.testing.assert_array_equal(same, [False, True, False])
    assert np.isfinite(maps.zinc_quantile).all()


def test_a_plan_counts_limits_as_draws(folder):
    plain, limits = plan_job(job(folder, observations={"columns": {}})), plan_job(job(folder))
    table = pd.read_csv(folder / "once.csv")
    count = int((table.zinc == table.lod).sum())
    assert f"{count} censored values are drawn {DRAWS} times: about" in "\n".join(limits.lines())
    assert limits.plan.fields == DRAWS * plain.plan.fields


def test_limits_are_neither_checked_nor_used_by_a_check(folder):
    found = check_job(job(folder), 0.05)
    table = pd.read_csv(folder / "once.csv")
    assert found.points.count == int((table.zinc > table.lod).sum())


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"observations": {"variable": ["cell", "lead"]}, "variable": "cell"}, "several"),
        ({"observations": {"transform": "log1p"}, "variable": "lead"}, "log1p"),
        ({"observations": {"quality": "flag"}}, "quality"),
        ({"observations": {"columns": {"limit": "lod", "depth": "lat"}}}, "depth"),
        ({"prior": {"time_kernel": "matern12"}, "table": "days.csv"}, "time_kernel"),
        ({"prior": {"fit_times": ["2020-01-02"]}, "table": "days.csv"}, "fit_times"),
        ({"prior": {"outliers": "robust"}, "design": {"test": {"kind": "random", "count": 9}}}, "outliers"),
        ({"prior": {"transform": "normal-score"}}, "normal-score"),
        ({"prior": {"bias_by": "lod"}}, "bias_by"),
        ({"recalibration": {"method": "kuleshov"}}, "kuleshov"),
        ({"output": {"keep_weights": True}}, "keep_weights"),
        ({"design": {"map": {**map_grid(2.0), "kind": "cells"}}}, "cells"),
        ({"design": {"map": {**map_grid(2.0), "std_samples": 50}}}, "std_samples"),
        ({"design": {"regions": ["global"]}}, "regions"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_limits_do_not_have_yet_is_refused(folder, tables, said):
    """Before anything is fitted, and by a plan too."""
    asked = job(folder, **tables)
    for do in (run, plan_job):
        with pytest.raises((ConfigurationError, ArgumentError), match=said) as refused:
            do(asked)
        assert refused.value.key == "limits-with-others"


def test_what_limits_leave_unknown_is_refused(folder):
    with pytest.raises(DataError) as hidden:
        run(job(folder, table="dry.csv", design={"test": {"kind": "random", "count": 20, "seed": 1}}))
    assert hidden.value.key == "all-censored"
    with pytest.raises(DataError) as unscored:  # one test point, below its limit
        run(job(folder, design={"test": {"kind": "random", "count": 1, "seed": 0}}))
    assert unscored.value.key == "nothing-to-score"
    with pytest.raises(DataError) as unchecked:
        check_job(job(folder, table="dry.csv"), 0.05)
    assert unchecked.value.key == "all-censored"
    with pytest.raises(DataError) as lonely:  # of the second day nothing but limits is left of a fold
        run(job(folder, table="lonely.csv", prior=NUMBERS))
    assert lonely.value.key == "empty-fold"
    model = cagp.Kriging(
        value="zinc", columns={"limit": "lod"}, prior=PRIOR, solver=cagp.Cholesky(), progress=False
    )
    with pytest.raises(DataError) as called:
        model.fit(folder / "lonely.csv").cross_validate(3)
    assert called.value.key == "empty-fold"
    with pytest.raises(ConfigurationError) as simulated:
        run(job(folder), simulations=Simulations(10))
    assert simulated.value.key == "simulation-of-limits"
