"""Jobs whose observations share errors or are of several variables: what the call answers, and checks."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.stats import norm

import cagp_dist as cagp
from cagp_dist.errors import ConfigurationError, DataError
from cagp_dist.fields.canonical import canonical, observation_points
from cagp_dist.fields.selection import Selection
from cagp_dist.fields.together import together
from cagp_dist.geometry import unit_sphere
from cagp_dist.kernels import PLACE, VARIABLE
from cagp_dist.likelihood.fit_work import FitSize
from cagp_dist.pipeline import Observations, field_fit, labelled_fit
from cagp_dist.pipeline.labels import with_pairs
from cagp_dist.report import write_report
from cagp_dist.report.published import read_run
from cagp_dist.service.job_fit import prior_table
from cagp_dist.service.job_plan import plan_job
from cagp_dist.service.jobfile.config import load_job
from cagp_dist.service.metrics import Metrics
from cagp_dist.service.run import fit_job
from cagp_dist.service.verification import solve_again, verify_run
from cagp_dist.store import series
from cagp_dist.store.series_check import check_series

from ..prometheus import metrics_of


@pytest.fixture(scope="module")
def ships(tmp_path_factory):
    """Two days of 12 ships that are elsewhere on each, and a job that maps them."""
    root, generator = tmp_path_factory.mktemp("ships"), np.random.default_rng(5)
    parts = []
    for day in ("2020-06-01", "2020-06-02"):
        places = generator.uniform([45.0, 0.0], [55.0, 15.0], (84, 2))
        P = unit_sphere(*places.T)
        field = np.linalg.cholesky(cagp.Matern32(0.05, 4.0)(P, P) + 0.2 * np.eye(84)) @ generator.normal(
            size=84
        )
        ship = np.arange(84) % 12
        field += 10.0 + 1.5 * generator.normal(size=12)[ship]
        parts.append(
            pd.DataFrame({"lat": places[:, 0], "lon": places[:, 1], "ship": ship, "t2m": field, "time": day})
        )
    table = pd.concat(parts, ignore_index=True).assign(ship=lambda rows: "S" + rows["ship"].astype(str))
    table.loc[[7, 100], "ship"] = None
    table.to_csv(root / "ships.csv", index=False)
    job = f"""
[observations]
source = "table:{root}/ships.csv"
variable = "t2m"
units = "degC"
[design]
test = {{ kind = "folds", count = 3 }}
map = {{ kind = "grid", resolution_degrees = 2.0 }}
[prior]
kernel = "matern32"
bias_by = "ship"
[output]
root = "{root}/out"
"""
    (root / "job.toml").write_text(job)
    return root, job, table


def test_a_job_and_a_call_give_the_same_map_and_the_same_errors_of_ships(ships, tmp_path):
    root, _, table = ships
    path = cagp.run(root / "job.toml").path
    run, biases = xr.open_zarr(path, group="map"), xr.open_zarr(path, group="biases")
    given = {"value": "t2m", "units": "degC", "bias_by": "ship", "kernel": "matern32", "progress": False}
    found = cagp.krige(table, to=run[["latitude", "longitude"]], **given)
    np.testing.assert_allclose(run["t2m_mean"], found["mean"] + 273.15, atol=1e-8)
    np.testing.assert_allclose(run["t2m_std"], found["std"], atol=1e-8)
    order = np.argsort(found["ship"].values.astype(str))
    np.testing.assert_allclose(biases["bias"], found["bias_ship"].values[:, order], atol=1e-8)
    np.testing.assert_allclose(biases["bias_std"], found["bias_ship_std"].values[:, order], atol=1e-8)
    assert biases["group"].values.tolist() == sorted(set(table["ship"].dropna()))
    assert set(biases["bias_by"].values.tolist()) == {"ship"}
    assert "ship" in xr.open_zarr(path, group="posterior").attrs["comment"]
    assert found.cagp.plot.biases(field=1).axes[0].get_xlabel().startswith("error by ship [°C]")
    assert len(found.cagp.plot.biases().axes[0].get_yticks()) == 12

    verify_run(path)
    report = write_report(path, tmp_path)
    assert "Errors that observations share" in report.read_text()
    assert (tmp_path / "biases.png").is_file()


def test_numbers_that_were_fitted_are_numbers_of_a_job(ships):
    """Of other times, where ships are elsewhere; a run is solved again with the numbers that it says."""
    root, job, _ = ships
    fitted = job.replace('variable = "t2m"', 'variable = "t2m"\ntimes = ["2020-06-01"]')
    fitted = fitted.replace("[output]", 'fit_times = ["2020-06-02"]\n[output]').replace("/out", "/other")
    (root / "fit.toml").write_text(fitted)
    settings = load_job(root / "fit.toml")
    text = prior_table(settings.prior, fit_job(settings))
    assert 'bias_by = ["ship"]' in text
    start, end = fitted.index("[prior]"), fitted.index("[output]")
    (root / "given.toml").write_text(fitted[:start] + text + "\n" + fitted[end:])
    paths = [cagp.run(root / name).path for name in ("fit.toml", "given.toml")]
    means = [xr.open_zarr(path, group="map")["t2m_mean"].values for path in paths]
    np.testing.assert_allclose(*means, atol=1e-4)  # six digits of the numbers
    assert max(solve_again(path, points=10) for path in paths) < 1e-9


def test_what_does_not_go_with_shared_errors_is_refused_by_name(ships):
    root, job, table = ships
    beside = {
        'time_kernel = "auto"': "time_kernel",
        "lengthscale = 0.1\nvariance = 4.0\nnoise_variance = 0.2": "bias_std",
        "bias_std = [1.0, 2.0]\nlengthscale = 0.1\nvariance = 4.0\nnoise_variance = 0.2": "2 numbers",
        "bias_std = 1.0": "noise_variance",
        '[recalibration]\nmethod = "local-scale"': "bias_by",
        'fit_to = "field"': "fit_to",
    }
    for written, named in beside.items():
        (root / "refused.toml").write_text(job.replace("[output]", f"{written}\n[output]"))
        with pytest.raises(ConfigurationError, match=named):
            load_job(root / "refused.toml")
    table.assign(ship="Orion").to_csv(root / "one.csv", index=False)
    (root / "refused.toml").write_text(job.replace("ships.csv", "one.csv"))
    with pytest.raises(DataError) as error:
        cagp.run(root / "refused.toml")
    assert error.value.key == "one-group"
    grid = job.replace(f"table:{root}/ships.csv", "sample").replace('units = "degC"\n', "")
    grid = grid.replace("[design]", '[design]\ntrain = { kind = "random", count = 50, seed = 1 }')
    (root / "refused.toml").write_text(grid)
    with pytest.raises((ConfigurationError, DataError)) as refused:
        cagp.run(root / "refused.toml")
    assert refused.value.key == "labels-of-fields"


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Minimum and maximum at 70 places, each not observed at some, and a job that maps both."""
    root, generator = tmp_path_factory.mktemp("two"), np.random.default_rng(11)
    places = generator.uniform([45.0, 0.0], [55.0, 15.0], (70, 2))
    P = unit_sphere(*places.T)
    draw = np.linalg.cholesky(cagp.Matern32(0.08, 1.0)(P, P) + 1e-9 * np.eye(70)) @ generator.normal(
        size=(70, 2)
    )
    low = 5.0 + 2.0 * draw[:, 0] + 0.3 * generator.normal(size=70)
    high = 15.0 + 3.0 * (0.8 * draw[:, 0] + 0.6 * draw[:, 1]) + 0.3 * generator.normal(size=70)
    table = pd.DataFrame({"lat": places[:, 0], "lon": places[:, 1], "tmin (degC)": low, "tmax (degC)": high})
    table.loc[50:, "tmin (degC)"] = np.nan
    table.loc[:9, "tmax (degC)"] = np.nan
    table.assign(time="2020-06-01").to_csv(root / "two.csv", index=False)
    job = f"""
[observations]
source = "table:{root}/two.csv"
variable = ["tmin", "tmax"]
[design]
test = {{ kind = "random", count = 12, seed = 3 }}
map = {{ kind = "grid", resolution_degrees = 5.0 }}
[prior]
hyperparameters = "plug-in"
kernel = "matern32"
[output]
root = "{root}/out"
"""
    (root / "job.toml").write_text(job)
    return root, job, table


def test_two_variables_of_a_job_are_those_of_a_call_without_the_places_that_are_held_out(two, tmp_path):
    root, _, table = two
    outcome = cagp.run(root / "job.toml")
    groups = xr.open_datatree(outcome.path, engine="zarr", consolidated=False)
    held_out, observed = groups["posterior"], groups["observations"]
    kept = table[np.isin(table["lat"].round(6), observed["latitude"].values.round(6))]
    assert len(kept) == 58
    at = pd.DataFrame({"lat": held_out["latitude"].values, "lon": held_out["longitude"].values})
    given = {"kernel": "matern32", "hyperparameters": "plug-in", "progress": False}
    found = cagp.krige(kept, value=["tmin", "tmax"], to=at, **given)
    noise = json.loads(groups.attrs["noise_variances"])
    for name, scores in (("tmin", groups["calibration"]), ("tmax", groups["calibration_tmax"])):
        mean, std = (held_out[f"{name}_{kind}"].values[0] for kind in ("mean", "std"))
        np.testing.assert_allclose(mean, found[f"{name}_mean"], atol=1e-8)
        np.testing.assert_allclose(std, found[f"{name}_std"], atol=1e-8)
        with_noise = np.hypot(std, found.attrs[f"noise_std_{name}"])
        np.testing.assert_allclose(held_out[f"{name}_predictive_std"].values[0], with_noise, atol=1e-8)
        assert noise[name] == pytest.approx(with_noise[0] ** 2 - std[0] ** 2)
        seen = held_out[name].values[0]
        z = (seen - mean) / with_noise
        np.testing.assert_allclose(scores["pit"].values[0], norm.cdf(z), atol=1e-8)
        assert float(scores["rmse"]) == pytest.approx(np.sqrt(np.nanmean((seen - mean) ** 2)))
        assert {f"{name}_mean", f"{name}_std"} <= {*groups["map"].data_vars}
    assert [*outcome.by_variable] == ["tmin", "tmax"]
    verify_run(outcome.path)
    with pytest.raises(ConfigurationError):
        solve_again(outcome.path, points=2)
    metrics = Metrics("two")
    metrics.outcome = outcome
    metrics.write(tmp_path / "two.prom", 0)
    of_tmax = 'cagp_score{job="two",score="rmse",units="degC",variable="tmax"}'
    assert metrics_of(tmp_path / "two.prom")[of_tmax] == float(groups["calibration_tmax"]["rmse"])
    series.append_runs(root / "out", [outcome.path])
    assert check_series(root / "out").compared == 1
    version = series.current_version(root / "out")
    for name, scores in (("scores", groups["calibration"]), ("scores_tmax", groups["calibration_tmax"])):
        of_day = xr.open_zarr(version, group=name)
        assert of_day["crps"].values.tolist() == [float(scores["crps"])]
        assert of_day["calibration_status"].values.tolist() == [scores.attrs["calibration_status"]]
    page = write_report(outcome.path, tmp_path)
    assert 'href="tmax/report.html"' in page.read_text()
    assert 'href="../report.html"' in (tmp_path / "tmax" / "report.html").read_text()


@pytest.mark.exhaustive
def test_errors_of_two_variables_at_a_place_that_go_together_are_noise_of_each(two):
    root, job, table = two
    undated = table.assign(sigma=np.where(np.arange(70) % 2, 0.2, 0.4))
    undated.to_csv(root / "undated.csv", index=False)
    noise = {"tmin": "sigma", "tmax": 0.2}  # and rows that lack tmin know nothing of its noise
    text = job.replace("[output]", "nugget_correlation = true\n[output]").replace("/out", "/pairs")
    text = text.replace("[design]", 'noise_std = { tmin = "sigma", tmax = 0.2 }\n[design]')
    (root / "pairs.toml").write_text(text.replace("two.csv", "undated.csv"))
    path = cagp.run(root / "pairs.toml").path
    run, observed = xr.open_zarr(path, group="map"), xr.open_zarr(path, group="observations")
    kept = undated[np.isin(table["lat"].round(6), observed["latitude"].values.round(6))]
    found = cagp.krige(
        kept,
        value=["tmin", "tmax"],
        noise_std=noise,
        nugget_correlation=True,
        hyperparameters="plug-in",
        to=run[["latitude", "longitude"]],
        kernel="matern32",
        progress=False,
    )
    for name in ("tmin", "tmax"):
        np.testing.assert_allclose(run[f"{name}_mean"], found[f"{name}_mean"], atol=1e-8)
        np.testing.assert_allclose(run[f"{name}_std"], found[f"{name}_std"], atol=1e-8)
    added = run["tmax_predictive_std"] ** 2 - run["tmax_std"] ** 2
    np.testing.assert_allclose(added, found.attrs["noise_std_tmax"] ** 2, atol=1e-8)
    scored = read_run(path, "tmin").points.observed
    assert 0 < np.isnan(scored).sum() < scored.size


@pytest.mark.exhaustive
def test_a_plan_counts_the_searches_that_are_made(two, ships, monkeypatch):
    """And evaluations, within a factor of two, which were counted for other data."""
    searches, flops = [], [0]
    plain = labelled_fit.fit_model

    def counting(observed, asked, work, **given):
        def heard(state):
            flops[0] += FitSize("dense", state.points, len(asked.kernel)).flops(state.points)
            if work.progress is not None:  # which ends searches that are hopeless
                work.progress(state)

        searches.append(given)
        return plain(observed, asked, replace(work, progress=heard), **given)

    for (root, job, _), kernel in ((two, "auto"), (ships, "matern32")):
        name = f"planned-{kernel}"
        text = job.replace('hyperparameters = "plug-in"\n', "")
        text = text.replace('"matern32"', f'"{kernel}"\nhyperparameters = "plug-in"').replace(
            f"{root}/out", f"{root}/{name}"
        )
        text = text.replace('{ kind = "folds", count = 3 }', '{ kind = "random", count = 24, seed = 2 }')
        (root / "planned.toml").write_text(text)
        plan = plan_job(load_job(root / "planned.toml"))
        with monkeypatch.context() as patched:
            for module in (labelled_fit, field_fit):
                patched.setattr(module, "fit_model", counting)
            fit_job(load_job(root / "planned.toml"))
        assert f", in {len(searches)} searches: about" in plan.fit
        assert 0.5 < plan.of_fits.flops / flops[0] < 2.0
        searches.clear()
        flops[0] = 0


def test_rows_that_repeat_a_place_are_pairs_or_cannot_be_told():
    north, east = np.array([50.0, 50.0, 51.0, 50.0, 50.0, 51.0]), np.full(6, 8.0)
    beside = {VARIABLE: np.repeat([0.0, 1.0], 3)}
    points = Observations.from_points(north, east, np.ones((1, 6)), beside=beside)
    pairs = with_pairs(points).beside[PLACE]
    assert pairs[:3].tolist() == pairs[3:].tolist()
    assert len({*pairs}) == 3
    with pytest.raises(DataError) as refused:
        with_pairs(points.at(np.arange(1, 6)))
    assert refused.value.key == "pairs-of-rows"


def test_what_does_not_go_with_several_variables_is_refused_by_name(two):
    root, job, _ = two
    for written, named in {
        'kernel = "matern32 + matern32"': "matern32",
        "lengthscale = 0.1\nvariance = 4.0\nnoise_variance = 0.2": "noise_variance",
        '[recalibration]\nmethod = "local-scale"': "several variables",
    }.items():
        text = job.replace('kernel = "matern32"\n', "").replace("[output]", f"{written}\n[output]")
        (root / "refused.toml").write_text(text)
        with pytest.raises(ConfigurationError, match=named):
            load_job(root / "refused.toml")
    for names in ('["tmin"]', '["tmin", "tmin"]', '["tmin", "tmin_mean"]'):
        (root / "refused.toml").write_text(job.replace('["tmin", "tmax"]', names))
        with pytest.raises(ConfigurationError, match="variable"):
            load_job(root / "refused.toml")
    (root / "refused.toml").write_text(job.replace("count = 12, seed = 3", "count = 1, seed = 7"))
    with pytest.raises(DataError) as refused:
        cagp.run(root / "refused.toml")
    assert refused.value.key == "nothing-to-score"
    alone = job.replace('["tmin", "tmax"]', '"tmin"')
    for text, named in (
        (alone.replace("[design]", "noise_std = { tmin = 0.2 }\n[design]"), "noise_std"),
        (alone.replace("[output]", 'bias_by = "tmin"\n[output]'), "bias_by"),
    ):
        (root / "refused.toml").write_text(text)
        with pytest.raises(ConfigurationError, match=named):
            load_job(root / "refused.toml")


def test_cells_are_blank_where_none_of_the_variables_has_a_value():
    axes = {
        "time": np.array(["2020-06-01"], "datetime64[ns]"),
        "latitude": [50.0, 52.0],
        "longitude": [3.0, 5.0],
    }
    values = np.array([[[np.nan, np.nan], [1.0, 2.0]]])
    field = xr.Dataset({name: (("time", *list(axes)[1:]), values.copy()) for name in ("low", "high")}, axes)
    field["high"][0, 0, 1] = 3.0
    parts = [canonical(field, selection=Selection(value=name)) for name in ("low", "high")]
    parts = [part.assign_attrs(source="a test", source_sha256="0") for part in parts]
    np.testing.assert_allclose(observation_points(together(parts)).missing_places, [[50.0, 3.0]])
