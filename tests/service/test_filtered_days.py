"""Daily jobs whose field goes on exactly from the run before: one batch solve of all days says the same."""

import json
import shutil
import tomllib
from collections import Counter

import numpy as np
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.errors import ConfigurationError
from cagp_dist.gram import ring_filter
from cagp_dist.service.daily import daily
from cagp_dist.service.ingest import ingest
from cagp_dist.service.job_fit import prior_table
from cagp_dist.service.job_plan import plan_job
from cagp_dist.service.jobfile.config import changed, parse_job
from cagp_dist.service.jobfile.design_table import StridePoints
from cagp_dist.service.run import fit_job, run
from cagp_dist.service.verification import solve_again
from cagp_dist.store.publish import current_run, output_lock
from cagp_dist.store.zarr_arrays import read_group

from ..jobs import job_text, map_grid, random_points
from ..sources import save, temperature

pytestmark = pytest.mark.usefixtures("one_blas_thread")

LATITUDE, LONGITUDE = np.arange(-90.0, 91.0, 45.0), np.arange(0.0, 360.0, 45.0)  # poles are one place each
GRID = cagp.unit_sphere(np.repeat(LATITUDE, 8), np.tile(LONGITUDE, 5))
NOT_A_COPY = (
    np.abs(np.repeat(LATITUDE, 8)) + np.tile(LONGITUDE, 5) * (np.abs(np.repeat(LATITUDE, 8)) > 89) <= 90
)
PRIOR = {
    "kernel": "matern32",
    "mean": "previous",
    "lengthscale": 0.6,
    "variance": 30.0,
    "noise_variance": 4.0,
    "time_kernel": "matern12",
    "time_lengthscale_hours": 50.0,
}
DESIGN = {"train": {"kind": "all"}, "test": random_points(5, seed=1), "map": map_grid(60.0)}


def fields(days):
    rng = np.random.default_rng(3)
    values = 285.0 - 30.0 * GRID[:, 2] ** 2 + 4.0 * rng.normal(size=(days, GRID.shape[0]))
    values = values.reshape(days, 5, 8)
    values[:, [0, -1]] = values[:, [0, -1], :1]
    return values.astype(np.float32).astype(np.float64)


def the_job(folder, **tables):
    given = {"observations": {"source": f"zarr:{folder / 'field.zarr'}"}, "design": DESIGN, "prior": PRIOR}
    return parse_job(job_text(**{**given, "solver": None, "output": {"root": folder / "out"}, **tables}))


def write_source(folder, values, times, which):
    shutil.rmtree(folder / "field.zarr", ignore_errors=True)
    some = temperature(values[which], latitude=LATITUDE, longitude=LONGITUDE, times=times[which])
    save(some, folder / "field.zarr")


def batch(in_time, values, hours, day, test, targets):
    """Mean and standard deviation by one dense solve of all days up to one, without its test values."""
    there = np.flatnonzero(NOT_A_COPY)
    train = np.setdiff1d(there, test)
    upto = np.flatnonzero(hours <= hours[day])
    flat, latitude, longitude = values.reshape(len(values), -1), np.repeat(LATITUDE, 8), np.tile(LONGITUDE, 5)
    X, y, mean = [], [], None
    for t in upto:
        family = cagp.mean_family("quadratic-latitude")
        mean = family.fit(latitude[train], longitude[train], flat[t, train][:, None], times=None)
        seen = train if t == day and targets is None else there
        X.append(np.column_stack([GRID[seen], np.full(seen.size, hours[t])]))
        y.append(flat[t, seen] - mean(GRID[seen])[:, 0])
    to = GRID[test] if targets is None else targets
    kernel = cagp.SpaceTime(cagp.Matern32(0.6, 30.0), in_time)
    at = np.column_stack([to, np.full(len(to), hours[day])])
    found = cagp.condition(
        cagp.Prior(kernel, 4.0), np.concatenate(X), np.concatenate(y), at, solver=cagp.Cholesky()
    )
    return found.mean + mean(to)[:, 0], np.sqrt(found.variance)


@pytest.mark.parametrize(
    ("days", "in_time"),
    [
        (5, cagp.Matern32(50.0)),
        pytest.param(60, cagp.Matern12(50.0), marks=pytest.mark.exhaustive),
    ],
)
def test_days_that_are_missed_and_come_late_are_those_of_one_batch_solve(tmp_path, days, in_time):
    """Maps of all days, and scores of the last; what came late is in those after it and in none before."""
    values, times = fields(days), np.arange(days) * np.timedelta64(1, "D") + np.datetime64("2020-01-01", "ns")
    times = times + np.where(np.arange(days) == days - 2, np.timedelta64(7, "h"), np.timedelta64(0, "h"))
    there = np.setdiff1d(np.arange(days), [2, 31])
    late = 2 * days // 3
    prior = {**PRIOR, "time_kernel": type(in_time).__name__.lower()}
    job = the_job(tmp_path, prior=prior)
    write_source(tmp_path, values, times, np.setdiff1d(there, late))
    list(daily(job))
    write_source(tmp_path, values, times, there)
    again = list(daily(job))
    assert [day.status is None for day in again] == (there < late).tolist()

    hours = np.where(np.isin(np.arange(days), there), (times - times[0]) / np.timedelta64(1, "h"), np.inf)
    maps = xr.open_zarr(tmp_path / "out" / "series.zarr", group="map").load()
    assert maps.sizes["time"] == there.size
    cells = cagp.unit_sphere(
        *(each.ravel() for each in np.meshgrid(maps.latitude, maps.longitude, indexing="ij"))
    )
    last = current_run(tmp_path / "out")
    scored = read_group(last, "posterior")
    latitude, longitude = np.repeat(LATITUDE, 8), np.tile(LONGITUDE, 5)
    test = [
        int(np.flatnonzero((latitude == a) & (longitude == b))[0])
        for a, b in zip(scored.latitude.values, scored.longitude.values, strict=True)
    ]
    for number, day in enumerate(there):
        if days > 6 and day % 10 != 9 and day != late + 1:
            continue
        mean, std = batch(in_time, values, hours, day, test, cells)
        np.testing.assert_allclose(maps.t2m_mean[number].values.ravel(), mean, rtol=0.0, atol=1e-8)
        np.testing.assert_allclose(maps.t2m_std[number].values.ravel(), std, rtol=0.0, atol=1e-8)
    mean, std = batch(in_time, values, hours, days - 1, test, None)
    np.testing.assert_allclose(scored.t2m_mean[0], mean, rtol=0.0, atol=1e-8)
    np.testing.assert_allclose(np.broadcast_to(scored.t2m_std, (1, 5))[0], std, rtol=0.0, atol=1e-8)
    assert solve_again(last, points=3) < 1e-6
    assert json.loads(read_group(last).attrs["previous"])["hours"] == (17.0 if days - 2 in there else 24.0)


@pytest.mark.exhaustive
def test_numbers_that_are_left_out_are_fitted_to_fixed_times_and_go_on(tmp_path, monkeypatch):
    made, modes_range = [], ring_filter.modes_range
    monkeypatch.setattr(ring_filter, "modes_range", lambda *args: made.append(args[2]) or modes_range(*args))
    latitude, longitude = np.arange(-75.0, 76.0, 15.0), np.arange(0.0, 360.0, 15.0)
    axes = np.meshgrid(latitude, longitude, indexing="ij")
    X, rng = cagp.unit_sphere(*(each.ravel() for each in axes)), np.random.default_rng(5)
    lasting = 0.9 ** np.abs(np.subtract.outer(np.arange(14), np.arange(14)))  # of 228 hours
    field = np.linalg.cholesky(cagp.Matern32(0.6, 50.0)(X, X) + 1e-6 * np.eye(len(X)))
    values = np.linalg.cholesky(lasting) @ rng.normal(size=(14, len(X))) @ field.T
    values = (285.0 + values + 1.5 * rng.normal(size=values.shape)).reshape(14, *axes[0].shape)
    times = np.arange(14) * np.timedelta64(1, "D") + np.datetime64("2020-01-01", "ns")
    save(temperature(values, latitude=latitude, longitude=longitude, times=times), tmp_path / "field.zarr")
    prior = {"kernel": "matern32", "mean": "previous", "time_kernel": "matern12"}
    prior["fit_times"] = {"from": "2020-01-01", "to": "2020-01-12", "every": "1d"}
    latest = {"source": f"zarr:{tmp_path / 'field.zarr'}", "times": ["2020-01-13", "2020-01-14"]}
    found = list(daily(the_job(tmp_path, observations=latest, prior=prior)))
    assert [day.failed for day in found] == [None, None]
    assert set(Counter(made).values()) == {2}  # once a day, for the fit and the day
    attributes = read_group(current_run(tmp_path / "out")).attrs
    assert json.loads(attributes["previous"])["hours"] == 24.0
    told, one = json.loads(attributes["prior"]), {**latest, "times": ["2020-01-14"]}
    fitted = fit_job(the_job(tmp_path, observations=one, prior=prior))
    assert told["time_lengthscale_hours"] == pytest.approx(228.0, rel=0.6)
    assert [name for name, _, _ in fitted.estimates()][1] == "time_lengthscale_hours"
    assert 0.0 < fitted.estimates()[1][2] < 0.5 * told["time_lengthscale_hours"]
    pasted = tomllib.loads(prior_table(the_job(tmp_path, prior=prior).prior, fitted))["prior"]
    assert pasted["time_lengthscale_hours"] == pytest.approx(told["time_lengthscale_hours"], rel=1e-5)
    assert the_job(tmp_path, prior=pasted).prior.numbers is not None
    assert solve_again(current_run(tmp_path / "out"), points=3) < 1e-6


FITTED = {"kernel": "matern32", "mean": "previous", "time_kernel": "matern12"}


def test_a_plan_is_that_of_a_day_and_refuses_what_the_run_would(tmp_path):
    write_source(tmp_path, fields(1), np.array(["2020-01-01"], "datetime64[ns]"), [0])
    job = the_job(
        tmp_path, observations={"source": f"zarr:{tmp_path / 'field.zarr'}", "times": ["2020-01-01"]}
    )
    with output_lock(tmp_path / "out"):
        ingest(job, report=lambda text: None)
    found = plan_job(job)
    assert found.plan.method == "a day of a filter on the grid"
    assert (found.plan.n, found.plan.q, found.plan.fields) == (26 - 5, 5 + found.size.mapped, 1)
    with pytest.raises(ConfigurationError) as refusal:
        plan_job(changed(job, "design", train=StridePoints(kind="stride", step=2, offset=0)))
    assert refusal.value.key == "state-of-grid"


def test_another_prior_or_design_does_not_go_on(tmp_path):
    values, times = fields(2), np.array(["2020-01-01", "2020-01-02"], "datetime64[ns]")
    write_source(tmp_path, values, times, [0])
    list(daily(the_job(tmp_path)))
    write_source(tmp_path, values, times, [0, 1])
    latest = {"source": f"zarr:{tmp_path / 'field.zarr'}", "times": "latest"}
    for tables, said in (
        ({"prior": {**PRIOR, "variance": 31.0}}, "has the prior"),
        ({"prior": {**PRIOR, "time_lengthscale_hours": 60.0}}, "has the prior"),
        ({"prior": {**PRIOR, "time_kernel": "matern32"}}, "is of another job"),
        ({"design": {**DESIGN, "train": random_points(20)}}, "train is not"),
        ({"design": {**DESIGN, "test": {"kind": "folds", "count": 2}}}, "cross-validation"),
        ({"solver": {"name": "cholesky"}}, 'name is "cholesky"'),
        ({"prior": {**FITTED, "fit_times": {"last": "30d", "at": "12:00"}}}, "that are the newest ones"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            run(the_job(tmp_path, observations=latest, **tables))
    for prior, said in (
        ({"time_lengthscale_hours": None}, "give time_lengthscale_hours"),
        ({"time_kernel": None}, "given without time_kernel"),
        ({"time_kernel": None, "time_lengthscale_hours": None}, "goes on exactly from its previous run with"),
        (
            {"time_kernel": None, "persistence": 0.8},
            r"\[prior\] persistence: how the field persists is said by",
        ),
        ({"lengthscale": None, "variance": None, "noise_variance": None}, "would be others each day"),
    ):
        kept = {key: value for key, value in {**PRIOR, **prior}.items() if value is not None}
        with pytest.raises(ConfigurationError, match=said):
            the_job(tmp_path, prior=kept)
