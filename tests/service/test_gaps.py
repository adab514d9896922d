"""Jobs on fields whose gaps differ between times: every value counts, against dense formulas."""

import numpy as np
import pytest
import xarray as xr

from cagp_dist import tiling
from cagp_dist.calibration.verification.pit import pit
from cagp_dist.errors import BudgetError, DataError
from cagp_dist.geometry import unit_sphere
from cagp_dist.kernels import Matern32
from cagp_dist.pipeline.fitted_model import sites_of_fit
from cagp_dist.report import write_report
from cagp_dist.service.ingest import ingest
from cagp_dist.service.job_fit import fitted_to_sites
from cagp_dist.service.job_plan import plan_job
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.run import fit_job, run
from cagp_dist.service.task import prepare_job
from cagp_dist.store.publish import run_key
from cagp_dist.store.zarr_arrays import read_group
from cagp_dist.versions import numerical_version

from ..jobs import job_text, map_grid, random_points
from ..oracle import universal_kriging
from ..sources import save, temperature

LENGTHSCALE, VARIANCE, NOISE = 0.3, 30.0, 0.4
ALL = {"kind": "all"}
DAYS = ["2020-01-01", "2020-01-02", "2020-01-03", "2020-01-04"]


@pytest.fixture
def field(tmp_path):
    """Four times on a globe of 20 degrees without land and clouds; those of the last two are the same."""
    rng = np.random.default_rng(8)
    latitude, longitude = np.arange(-80.0, 81.0, 20.0), np.arange(0.0, 360.0, 20.0)
    smooth = 20.0 * np.cos(np.deg2rad(latitude))[:, None] + 4.0 * np.sin(np.deg2rad(longitude))
    values = 270.0 + smooth + rng.standard_normal((4, 9, 18))
    values[:, 3:5, 2:6] = np.nan  # never observed
    clouds = rng.random((4, 9, 18)) < 0.15
    clouds[0] = False
    clouds[3] = clouds[2]
    values[clouds] = np.nan
    return write(values, np.array(DAYS, dtype="datetime64[ns]"), latitude, longitude, tmp_path)


def write(values, times, latitude, longitude, folder, *, name="field", missing=np.nan):
    filled = np.where(np.isnan(values), missing, values)
    field = temperature(filled, latitude=latitude, longitude=longitude, times=times)
    return save(field, folder / f"{name}.zarr")


def job(path, *, solver="cholesky", prior=True, observations=None, cluster=None, **design):
    numbers = {"lengthscale": LENGTHSCALE, "variance": VARIANCE, "noise_variance": NOISE} if prior else {}
    settings = {"name": solver} if isinstance(solver, str) else solver
    asked = {"train": ALL, "test": random_points(25, seed=1), "map": map_grid(30.0), **design}
    return parse_job(
        job_text(
            observations={"source": f"zarr:{path}", "times": DAYS, **(observations or {})},
            design={key: value for key, value in asked.items() if value is not None},
            prior={"kernel": "matern32", "mean": "constant", **numbers},
            solver=settings,
            cluster={"scheduler": "serial", **(cluster or {})},
            output={"root": path.parent / "out"},
        )
    )


def dense(X, y, X_new, *, kernel=Matern32(LENGTHSCALE, VARIANCE), noise=NOISE):  # noqa: B008 (frozen)
    """Mean and standard deviation of one field about a constant that is estimated with it."""
    ones = np.ones((len(X), 1)), np.ones((len(X_new), 1))
    G = kernel(X, X) + np.diag(np.broadcast_to(noise, len(X)))
    found = universal_kriging(G, kernel(X_new, X), kernel(X_new, X_new), *ones, y)
    return found.mean, np.sqrt(found.covariance.diagonal())


def assert_dense(path, *, atol):
    """Every time of group posterior and map is the dense formula of the values that this time has."""
    groups = {name: read_group(path, name) for name in ("posterior", "map", "observations", "calibration")}
    posterior, seen = groups["posterior"], groups["observations"]
    cells = np.meshgrid(groups["map"].latitude, groups["map"].longitude, indexing="ij")
    shown = ~np.isnan(groups["map"].t2m_mean.values[0])
    X, X_map = (
        unit_sphere(seen.latitude.values, seen.longitude.values),
        unit_sphere(cells[0][shown], cells[1][shown]),
    )
    X_test = unit_sphere(posterior.latitude.values, posterior.longitude.values)
    for time in range(posterior.sizes["time"]):
        y = seen.t2m.values[time]
        there = ~np.isnan(y)
        arguments = X[there], y[there]
        mean, std = dense(*arguments, X_test)
        np.testing.assert_allclose(posterior.t2m_mean[time], mean, atol=atol)
        np.testing.assert_allclose(posterior.t2m_std[time], std, atol=atol)
        mean, std = dense(*arguments, X_map)
        np.testing.assert_allclose(groups["map"].t2m_mean.values[time][shown], mean, atol=atol)
        np.testing.assert_allclose(groups["map"].t2m_std.values[time][shown], std, atol=atol)
    return groups


def test_every_time_is_the_dense_formula_of_the_values_it_has(field):
    outcome = run(job(field, solver="rings"))
    groups = assert_dense(outcome.path, atol=1e-7)
    observed = groups["posterior"].t2m.values
    there = ~np.isnan(observed)
    assert 0 < np.count_nonzero(~there) < 40  # some test points lack values
    attributes = read_group(outcome.path).attrs
    values = np.count_nonzero(~np.isnan(groups["observations"].t2m.values))
    assert (attributes["train_values"], attributes["patterns_of_gaps"]) == (values, 3)
    assert attributes["dropped_missing"] == 8
    # what is not there is not scored
    predictive = groups["posterior"].t2m_predictive_std.values
    mean = groups["posterior"].t2m_mean.values
    expected = pit(mean[there], predictive[there], observed[there])
    np.testing.assert_allclose(groups["calibration"].pit.values[there], expected, atol=1e-12)
    assert np.isnan(groups["calibration"].pit.values[~there]).all()
    rmse = np.sqrt(np.mean((mean[there] - observed[there]) ** 2))
    np.testing.assert_allclose(groups["calibration"].rmse, rmse, rtol=1e-12)
    # blank is what was never observed, at all times alike
    blank = np.isnan(groups["map"].t2m_mean.values)
    assert attributes["map_cells_blank"] == np.count_nonzero(blank[0]) > 0
    assert (blank == blank[0]).all()


def test_dropped_gaps_are_one_solve_of_the_points_with_all_values(field):
    kept, dropped = job(field), job(field, observations={"gaps": "drop"})
    outcome = run(dropped)
    groups = assert_dense(outcome.path, atol=1e-7)
    assert not any(np.isnan(groups[name].t2m).any() for name in ("posterior", "observations"))
    attributes = read_group(outcome.path).attrs
    assert "patterns_of_gaps" not in attributes
    assert attributes["train_count"] + 25 + attributes["dropped_missing"] == 162
    plan, all_values = plan_job(dropped), plan_job(kept)
    assert (plan.plan.solves, plan.plan.fields, plan.size.gaps) == (1, 4, None)
    assert (all_values.plan.solves, all_values.plan.fields) == (3, 4)
    assert all_values.plan.flops > 2 * plan.plan.flops
    said = "\n".join(all_values.lines())
    gaps = all_values.size.gaps
    assert (
        "3 solves, one for each pattern of gaps, with up to that many observed points; work is the "
        "total" in said
    )
    assert (
        f'{gaps.values:,} values with 3 patterns of gaps, each of which is a solve; gaps = "drop" in '
        f"[observations] makes it one solve, of the {gaps.complete:,} points with a value at all times"
    ) in said
    seen = assert_dense(run(kept).path, atol=1e-7)["observations"]
    assert gaps.values == np.count_nonzero(~np.isnan(seen.t2m.values))
    assert 80 < gaps.complete < all_values.size.observed < gaps.values
    assert plan_job(job(field, solver={"name": "conjugate-gradient", "iterations": 2})).solves == 4
    with pytest.raises(BudgetError) as refusal:
        plan_job(job(field, cluster={"memory_limit": "1MiB"}, map=map_grid(8.0)))
    assert refusal.value.key == "memory"


@pytest.mark.exhaustive
def test_gaps_that_are_the_same_at_all_times_make_no_difference(field, tmp_path):
    with xr.open_zarr(field, consolidated=False) as opened:
        dataset = opened.load()
    dataset["t2m"] = dataset.t2m.where(dataset.t2m.notnull().all("time"))
    same = tmp_path / "same.zarr"
    dataset.to_zarr(same, zarr_format=3, consolidated=False)
    runs = [run(job(same, observations=keys)).path for keys in ({}, {"gaps": "drop"})]
    for name in ("posterior", "map", "calibration", "trace", "observations"):
        one, other = (read_group(path, name) for path in runs)
        for key in one.variables.keys() - {"seconds"}:
            np.testing.assert_array_equal(one[key].values, other[key].values)
    plain = job(same)
    prepared = prepare_job(plain, ingest(plain, report=lambda text: None))
    assert prepared.run_key == run_key(
        job=plain.canonical(),
        input_hash=prepared.provenance["content_sha256"],
        tiling={
            "block_size": tiling.POINT_TILE,
            "column_group": tiling.COLUMN_GROUP,
            "smallest_row_tile": tiling.SMALLEST_ROW_TILE,
            "blank_cells": prepared.design.cells.blank,
        },
        dtype="float64",
        numerical_version=numerical_version(),
    )
    assert "gaps" not in plain.canonical()["observations"]


def test_a_number_may_mark_what_is_missing(field, tmp_path):
    with xr.open_zarr(field, consolidated=False) as opened:
        values = opened.t2m.values
        axes = [opened[name].values for name in ("time", "latitude", "longitude")]
    for marker in (-9999.0, 1e20):
        marked = write(values, *axes, tmp_path, name=f"marked{marker:g}", missing=marker)
        found = ingest(job(marked, observations={"missing": marker}), report=lambda text: None)
        np.testing.assert_array_equal(found.t2m.values, values)
        with pytest.raises(DataError) as refusal:
            ingest(job(marked), report=lambda text: None)
        assert refusal.value.key == "missing-mark"
    values[2] = np.nan
    empty = write(values, *axes, tmp_path, name="empty", missing=-9999.0)
    with pytest.raises(DataError) as refusal:
        run(job(empty, observations={"missing": -9999}))
    assert refusal.value.key == "empty-times"


def test_a_time_without_a_value_to_score_is_reported_as_such(field, tmp_path):
    with xr.open_zarr(field, consolidated=False) as opened:
        values = opened.t2m.values
        axes = [opened[name].values for name in ("time", "latitude", "longitude")]
    values[:, 4, 12] = [280.0, np.nan, 281.0, np.nan]  # the only test point: no land in row 4, column 12
    one = write(values, *axes, tmp_path, name="one")
    stride = {"kind": "stride", "step": 8, "offset": 4}
    outcome = run(job(one, test=stride, map=None, solver={"name": "conjugate-gradient", "iterations": 5}))
    assert read_group(outcome.path, "posterior").sizes == {"time": 4, "point": 1}
    page = " ".join(write_report(outcome.path, tmp_path / "report").read_text().split())
    assert "nothing to score" in page
    assert (
        "Not every place was observed at every time, and times with different gaps were solved separately"
        in page
    )
    assert "Patterns of gaps" in page


def test_a_fit_takes_the_times_and_points_without_gaps(field):
    parsed = job(field, prior=False)
    prepared = prepare_job(parsed, ingest(parsed, report=lambda text: None))
    sites = sites_of_fit(prepared.points, np.sort(prepared.design.train))
    values = prepared.points.values[np.ix_(sites.times, sites.chosen)]
    assert np.isfinite(values).all()
    assert fitted_to_sites(parsed.prior, prepared.points.only(prepared.design.train), sites) == (
        f"{sites.chosen.size:,} of the {prepared.design.train.size:,} observed points, at "
        f"{sites.times.size} of 4 times"
    )
    assert np.isin(sites.chosen, prepared.design.train).all()
    assert values.size > 2 * prepared.design.train.size
    assert fit_job(parsed).ok


def test_stations_on_a_grid_keep_their_noise_and_gaps(tmp_path):
    rng = np.random.default_rng(4)
    latitude, longitude = (
        axis.ravel()
        for axis in np.meshgrid(np.arange(-60.0, 61.0, 20.0), np.arange(0.0, 360.0, 30.0), indexing="ij")
    )
    noise = rng.choice([0.3, 1.5], latitude.size)
    rows = ["lat,lon,time,snow,err"]
    for day in ("2020-06-01", "2020-06-02"):
        rows += [
            f"{latitude[k]},{longitude[k]},{day},{20.0 + 5.0 * rng.standard_normal()},{noise[k]}"
            for k in np.flatnonzero(rng.random(latitude.size) > 0.1)
        ]
    (tmp_path / "stations.csv").write_text("\n".join(rows) + "\n")
    path = run(
        parse_job(
            job_text(
                observations={
                    "source": f"table:{tmp_path / 'stations.csv'}",
                    "variable": "snow",
                    "noise_std": "err",
                },
                design={"test": random_points(6, weight="equal"), "map": map_grid(45.0)},
                prior={"mean": "constant", "lengthscale": 0.4, "variance": 25.0, "noise_variance": 0.2},
                solver={"name": "cholesky"},
                output={"root": tmp_path / "out"},
            )
        )
    ).path
    seen, posterior = read_group(path, "observations"), read_group(path, "posterior")
    of_place = dict(zip(zip(latitude, longitude, strict=True), noise, strict=True))
    kernel = Matern32(0.4, 25.0)
    X_new = unit_sphere(posterior.latitude.values, posterior.longitude.values)
    assert seen.sizes["point"] + posterior.sizes["point"] == 84
    for time in range(2):
        there = ~np.isnan(seen.snow.values[time])
        places = list(zip(seen.latitude.values[there], seen.longitude.values[there], strict=True))
        X, y = unit_sphere(*np.array(places).T), seen.snow.values[time, there]
        noises = np.array([of_place[place] ** 2 + 0.2 for place in places])
        mean, std = dense(X, y, X_new, kernel=kernel, noise=noises)
        np.testing.assert_allclose(posterior.snow_mean[time], mean, atol=1e-6)
        np.testing.assert_allclose(posterior.snow_std[time], std, atol=1e-6)
