"""Jobs whose observations have gross errors: flagged, given less weight, or said to look wrong."""

import json
import logging

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.errors import ConfigurationError, DataError
from cagp_dist.service.job_plan import plan_job
from cagp_dist.service.run import check_job, fit_job, run
from cagp_dist.service.verification import NotSolvedAgainError, solve_again, verify_run
from cagp_dist.store.publish import output_lock
from cagp_dist.store.series import append_runs, of_run
from cagp_dist.store.zarr_arrays import read_group

from ..jobs import job_of

WRONG = (3, 40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """80 stations, two of which read ten times what they should."""
    folder, rng = tmp_path_factory.mktemp("wrong"), np.random.default_rng(6)
    lat, lon = rng.uniform(45.0, 55.0, 80), rng.uniform(0.0, 15.0, 80)
    value = 12.0 + np.sin(0.5 * lat) + np.cos(0.4 * lon) + 0.1 * rng.standard_normal(80)
    value[[*WRONG]] *= 10.0
    frame = pd.DataFrame({"station": [f"S{k}" for k in range(80)], "lat": lat, "lon": lon, "no2": value})
    frame.to_csv(folder / "stations.csv", index=False)
    frame.assign(no2=np.where(np.arange(80) % 2, 100.0, -100.0) * (1.0 + np.arange(80))).to_csv(
        folder / "nonsense.csv", index=False
    )
    pd.DataFrame({"name": ["a", "b"], "lat": [46.0, 50.0], "lon": [3.0, 7.0]}).to_csv(
        folder / "places.csv", index=False
    )
    return folder


def job(folder, root, table="stations.csv", **tables):
    settings = {
        "observations": {"source": f"table:{folder / table}", "variable": "no2", "times": ["2020-01-01"]},
        "design": {
            "test": {"kind": "random", "count": 10, "seed": 2},
            "targets": f"table:{folder / 'places.csv'}",
        },
        "prior": {"kernel": "matern32", "hyperparameters": "plug-in"},
        "solver": {"name": "cholesky"},
        "cluster": {"scheduler": "serial"},
        "output": {"root": folder / root},
    }
    return job_of(settings, tables)


def observed(path):
    """What a run used, as a table."""
    group = read_group(path, "observations")
    names = ("latitude", "longitude", "no2")
    return group, pd.DataFrame({name: group[name].values.ravel() for name in names})


def call(folder, path, **settings):
    table = folder / "used.csv"
    observed(path)[1].to_csv(table, index=False)
    return cagp.krige(
        table,
        to=folder / "places.csv",
        value="no2",
        kernel="matern32",
        hyperparameters="plug-in",
        solver=cagp.Cholesky(),
        progress=False,
        **settings,
    )


def test_flagged_values_are_left_out_and_listed(folder):
    asked = job(folder, "flag", observations={"quality": "flag", "rate": 0.01})
    outcome = run(asked)
    verify_run(outcome.path)
    flags, root = read_group(outcome.path, "flags"), read_group(outcome.path).attrs
    assert {*flags.station_name.values} == {f"S{k}" for k in WRONG}
    assert all(text.startswith("divide by 10") for text in flags.suggestion.values)
    assert root["flagged"] == len(WRONG)
    assert "S40" in root["flagged_statement"]
    used, table = observed(outcome.path)
    tested = read_group(outcome.path, "posterior")
    assert used.sizes["point"] + tested.sizes["point"] == 78
    assert max(table.no2.max(), float(tested.no2.max())) < 20.0
    found = call(folder, outcome.path)
    targets = read_group(outcome.path, "targets")
    np.testing.assert_allclose(targets.no2_mean.values.ravel(), found["mean"].values, rtol=1e-8)
    # the same run is found again, fits and checks alone see the same, and a series says it of the day
    assert run(asked).already_done
    prior = json.loads(root["prior"])
    fitted = {name: number for name, number, _ in fit_job(asked).estimates()}
    assert fitted == {name: prior[name] for name in fitted}
    assert check_job(asked, 0.01).checked.count == len(WRONG)
    assert of_run(outcome.path)["scores"].flagged.values == [len(WRONG)]
    with output_lock(asked.output.folder):
        assert append_runs(asked.output.folder, [outcome.path])[0].changed
    with pytest.raises(NotSolvedAgainError, match="left out"):
        solve_again(outcome.path, points=3)


def test_where_nothing_is_right_nothing_is_mapped(folder):
    numbers = {"lengthscale": 0.1, "variance": 1e-4, "noise_variance": 1e-4}
    with pytest.raises(DataError) as error:
        run(job(folder, "nonsense", "nonsense.csv", observations={"quality": "flag"}, prior=numbers))
    assert error.value.key == "most-are-flagged"


@pytest.mark.exhaustive
def test_outliers_count_less_as_in_a_call(folder):
    outcome = run(job(folder, "robust", prior={"outliers": "robust"}))
    verify_run(outcome.path)
    found, targets = call(folder, outcome.path, outliers="robust"), read_group(outcome.path, "targets")
    np.testing.assert_allclose(targets.no2_mean.values.ravel(), found["mean"].values, rtol=1e-8)
    np.testing.assert_allclose(targets.no2_std.values.ravel(), found["std"].values, rtol=1e-8)
    used, root = observed(outcome.path)[0], read_group(outcome.path).attrs
    wrong = used.no2.values > 50.0
    np.testing.assert_allclose(used.outlier_probability.values[wrong], 1.0, atol=1e-6)
    assert used.outlier_probability.values[~wrong].max() < 0.5
    assert root["outlier_share"] == pytest.approx(found.attrs["outlier_share"], rel=1e-8)


def grid_with_two_wrong_values(folder):
    """Write a whole grid, and give the job that maps it beside its wrong values."""
    latitude, longitude = np.arange(-70.5, 71.0, 3.0), np.arange(0.0, 360.0, 3.0)
    rng = np.random.default_rng(1)
    values = np.cos(np.deg2rad(latitude))[:, None] + np.sin(np.deg2rad(longitude))
    values = 10.0 + values + 0.1 * rng.standard_normal(values.shape)
    values[[10, 30], [20, 90]] = 60.0
    field = xr.Dataset(
        {"no2": (("latitude", "longitude"), values)}, {"latitude": latitude, "longitude": longitude}
    )
    field.to_netcdf(folder / "grid.nc", engine="h5netcdf")
    return job(
        folder,
        "grid",
        observations={"source": f"file:{folder / 'grid.nc'}", "times": ["2020-01-01"], "units": "1"},
        design={"train": {"kind": "all"}, "test": {"kind": "random", "count": 20, "seed": 2}},
        prior={"outliers": "robust"},
        solver={"name": "auto"},
    )


def test_a_plan_says_what_solves_where_values_look_wrong(folder):
    said = [line for line in plan_job(grid_with_two_wrong_values(folder)).lines() if "look wrong" in line]
    assert len(said) == 1
    assert "a solve by neighbours instead of rings" in said[0]


@pytest.mark.exhaustive
def test_a_grid_whose_values_count_differently_has_no_rings(folder):
    """Whose solver is not said to be that of the grid with even noise."""
    outcome = run(grid_with_two_wrong_values(folder))
    root = read_group(outcome.path).attrs
    assert root["outlier_share"] > 0.0
    assert root["solver"].startswith("auto: neighbours, ")
    assert "nearest neighbours" in root["solver"]


def test_a_run_says_that_values_look_wrong(folder, caplog):
    with caplog.at_level(logging.WARNING):
        path = run(job(folder, "keep")).path
    said = read_group(path).attrs["suspicious_values"]
    assert 'outliers = "robust" in [prior]' in said
    assert said in caplog.text


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ({"observations": {"rate": 0.05}}, "quality"),
        ({"observations": {"quality": "flag"}, "prior": {"transform": "log"}}, "transform"),
        ({"prior": {"outliers": "robust", "time_kernel": "matern12"}}, "time_kernel"),
        ({"prior": {"outliers": "robust"}, "recalibration": {"method": "local-scale"}}, "outliers"),
        ({"prior": {"outliers": "robust"}, "design": {"test": {"kind": "folds", "count": 3}}}, "cross-valid"),
    ],
    ids=["rate alone", "transform", "time", "recalibration", "folds"],
)
def test_what_does_not_go_together_is_refused_by_name(folder, tables, expected):
    with pytest.raises(ConfigurationError, match=expected):
        job(folder, "out", **tables)
