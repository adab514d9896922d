"""Jobs with sharp GPs: against the class on dense matrices; kinds of targets, plans, executors, refusals."""

import json
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.calibration.recalibration.methods import SHARP_LEVELS
from cagp_dist.calibration.recalibration.sharp import Sharp
from cagp_dist.calibration.recalibration.stretched import DenseModel, FieldByField, SolvedModel
from cagp_dist.errors import ConfigurationError
from cagp_dist.pipeline.defaults import QUANTILE_LEVELS
from cagp_dist.predictive import Gaussian
from cagp_dist.runtime import SerialExecutor, ThreadExecutor
from cagp_dist.runtime.dask import DaskExecutor
from cagp_dist.service import sharp_jobs as service
from cagp_dist.service.ingest import ingest
from cagp_dist.service.job_plan import plan_job
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.results import groups_of
from cagp_dist.service.run import run
from cagp_dist.service.sharp_jobs import FACTORS, _alone
from cagp_dist.service.task import prepare_job
from cagp_dist.store.group_dataset import check_group
from cagp_dist.store.zarr_arrays import read_group

from ..clusters import local_cluster
from ..jobs import job_text, map_grid, numbers_given, random_points, result_of

pytestmark = pytest.mark.usefixtures("one_blas_thread")

TIMES = ["2020-01-01", "2020-01-02"]
NUMBERS = {"lengthscale": 0.3, "variance": 9.0, "noise_variance": 0.4}
DESIGN = {
    "train": random_points(130),
    "test": random_points(40, seed=1),
    "calibration": random_points(90, seed=2),
    "map": map_grid(30.0),
}
BLOCKS = {"name": "block-gauss-seidel", "iterations": 2, "block_size": 50}
FEW = {"levels": [0.1, 0.5, 0.9]}


def rough_field(*, gaps=False):
    """Two times on a globe of 10 degrees: rough in the east, so that stretched kernels say more there."""
    rng = np.random.default_rng(4)
    latitude, longitude = np.arange(-85.0, 86.0, 10.0), np.arange(0.0, 360.0, 10.0)
    waves = 3.0 * np.sin(np.deg2rad(3.0 * longitude)) * np.cos(np.deg2rad(latitude))[:, None]
    rough = np.where(longitude < 180.0, 0.3, 3.0)
    values = 280.0 + waves + rough * rng.standard_normal((2, latitude.size, longitude.size))
    if gaps:
        values[0, rng.random(values.shape[1:]) < 0.15] = np.nan
    return xr.Dataset(
        {"t2m": (("time", "latitude", "longitude"), values.astype("f4"), {"units": "K"})},
        coords={"time": np.array(TIMES, "datetime64[ns]"), "latitude": latitude, "longitude": longitude},
    )


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder, found = tmp_path_factory.mktemp("field"), {}
    for name, gaps in (("whole", False), ("gaps", True)):
        found[name] = folder / f"{name}.zarr"
        rough_field(gaps=gaps).to_zarr(found[name], zarr_format=3, consolidated=False)
    return found


def the_job(store, root, *, design=None, solver=BLOCKS, settings=None, **others):
    return parse_job(
        job_text(
            observations={"source": f"zarr:{store}", "times": TIMES},
            design={**DESIGN, **(design or {})},
            prior=NUMBERS,
            solver=solver,
            recalibration={"method": "sharp", **(settings or {})},
            output={"root": root},
            **others,
        )
    )


def prepared_of(job):
    return prepare_job(job, ingest(job, report=lambda _: None))


def fitted_by_hand(prepared, solution, model, **settings):
    """The class itself, on predictions that were published."""
    at = prepared.columns["calibration"]
    last, kept = solution.steps[-1], prepared.design.calibration
    distribution = Gaussian(last.mean[:, at], np.sqrt(last.std[:, at] ** 2 + NUMBERS["noise_variance"]))
    sharp = Sharp(model, settings.pop("levels", SHARP_LEVELS), factors=FACTORS, **settings)
    return sharp.fit(distribution, prepared.points.values[:, kept], prepared.points.X[kept])


class Known:
    """A mean that is 280 everywhere."""

    content_sha256, units = None, ""

    def check_covers(self, north, east):
        pass

    def fit(self, north, east, values, *, times=None):
        return lambda X: np.full((len(X), np.shape(values)[1]), 280.0)


def plain_std(group):
    """Standard deviation of an observation before recalibration, which scales that of the field too."""
    noise = group.t2m_predictive_std.values**2 - group.t2m_std.values**2
    return group.t2m_predictive_std.values / np.sqrt(noise / NUMBERS["noise_variance"])


def expected_quantiles(fitted, group, X):
    """Of the distributions that the fitted class gives for a published group, (T, L, q)."""
    mean, plain = group.t2m_mean.values.reshape(2, -1), plain_std(group).reshape(2, -1)
    distribution = Gaussian(mean, plain)
    return np.moveaxis(fitted(distribution, X).quantile(QUANTILE_LEVELS), 0, 1)


@pytest.mark.parametrize("store", ["whole", "gaps"])
@pytest.mark.parametrize("split", ["three-way", "two-way"])
def test_quantiles_of_a_job_are_those_of_the_class_on_dense_matrices(stores, tmp_path, store, split):
    """At test points, map cells and places of a table; times with gaps have variances of their own."""
    table = tmp_path / "places.csv"
    table.write_text("latitude,longitude\n10.0,20.0\n-40.0,200.0\n")
    design = {"targets": f"table:{table}"}
    job = the_job(
        stores[store], tmp_path, design=design, solver={"name": "cholesky"}, settings={"split": split}
    )
    prepared = replace(prepared_of(job), mean=Known())  # as the class has it
    result = result_of(prepared)
    solution, groups, prior = result.solution, groups_of(prepared, result), numbers_given(prepared)
    parts = [
        DenseModel(cagp.Prior(prior.kernel, NUMBERS["noise_variance"]), prepared.X[~np.isnan(values)])
        for values in prepared.y.T
    ]
    assert (len(parts[0].X) < len(parts[1].X)) == (store == "gaps")
    model = FieldByField(prior, tuple(parts)) if store == "gaps" else parts[0]
    fitted = fitted_by_hand(prepared, solution, model, split=split)
    assert len(fitted.different) > 1  # levels have lengthscales of their own
    where = {
        "posterior": prepared.points.X[prepared.design.test],
        "map": cagp.unit_sphere(*prepared.design.cells.points()),
        "targets": cagp.unit_sphere([10.0, -40.0], [20.0, 200.0]),
    }
    for name, X in where.items():
        group = groups[name]
        check_group(name, group)
        found = group.t2m_quantile.values.reshape(2, len(QUANTILE_LEVELS), -1)
        np.testing.assert_allclose(found, expected_quantiles(fitted, group, X), rtol=1e-9)
        assert (np.diff(found, axis=1) >= 0.0).all()
        assert (np.abs(group.t2m_predictive_std.values / plain_std(group) - 1.0) > 0.01).any()
    distribution = fitted(
        Gaussian(groups["posterior"].t2m_mean.values, plain_std(groups["posterior"])),
        where["posterior"],
    )
    there = ~np.isnan(groups["posterior"].t2m.values)
    pit = distribution.cdf(np.nan_to_num(groups["posterior"].t2m.values))
    np.testing.assert_allclose(groups["calibration"].pit.values[there], pit[there], rtol=1e-9)
    assert np.isfinite(groups["calibration"].crps_plain)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "solver",
    [pytest.param(BLOCKS, marks=pytest.mark.exhaustive), {"name": "conjugate-gradient", "iterations": 6}],
    ids=["one matrix for all times", "a solve for each time"],
)
def test_every_solver_has_variances_of_its_own_for_stretched_kernels(stores, tmp_path, solver):
    """Beside a mean whose coefficients are estimated; each time by itself where the solver follows values."""
    job = the_job(stores["whole"], tmp_path, solver=solver, settings=FEW)
    prepared = prepared_of(job)
    result = result_of(prepared)
    solution, prior, built = result.solution, numbers_given(prepared), prepared.solver
    by_time = tuple(SolvedModel(prior, prepared.X, column[:, None], built) for column in prepared.y.T)
    model = FieldByField(prior, by_time)
    fitted = fitted_by_hand(prepared, solution, model, levels=(0.1, 0.5, 0.9))
    group = groups_of(prepared, result)["map"]
    expected = expected_quantiles(fitted, group, cagp.unit_sphere(*prepared.design.cells.points()))
    np.testing.assert_allclose(group.t2m_quantile.values.reshape(expected.shape), expected, rtol=1e-8)


def test_a_sampled_map_has_samples_for_each_lengthscale(stores, tmp_path):
    """Error bars within 4.5 standard errors of those of a column for each cell, for every lengthscale."""
    maps = {}
    for samples in (0, 400):
        design = {"map": {**map_grid(30.0), "std_samples": samples}}
        prepared = prepared_of(the_job(stores["whole"], tmp_path, design=design, settings=FEW))
        assert (prepared.predicted.sampled_at is not None) == bool(samples)
        result = result_of(prepared)
        maps[samples] = result.distributions
        assert groups_of(prepared, result)["map"].t2m_quantile.shape == (2, 7, 6, 12)
    np.testing.assert_allclose(maps[400].everywhere.beta, maps[0].everywhere.beta, rtol=1e-9)
    ratio = maps[400].stretched["cells"] / maps[0].stretched["cells"]
    assert ratio.shape == (len(maps[0].everywhere.different), 2, 72)
    assert np.abs(ratio - 1.0).max() < 4.5 * np.sqrt(0.5 / 400)  # the largest of some 150 normal numbers
    assert np.abs(ratio - 1.0).max() > 1e-3


@pytest.mark.parametrize(
    "opened",
    [
        pytest.param(lambda stack: stack.enter_context(ThreadExecutor(workers=3)), id="threads"),
        pytest.param(
            lambda stack: DaskExecutor(stack.enter_context(local_cluster(2))),
            id="dask",
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_every_executor_gives_the_same_bits(stores, tmp_path, opened):
    prepared = prepared_of(the_job(stores["gaps"], tmp_path, settings=FEW))
    serial = groups_of(prepared, result_of(prepared))
    with ExitStack() as stack:
        other = groups_of(prepared, result_of(prepared, executor=opened(stack)))
    for name in ("posterior", "map"):
        xr.testing.assert_identical(other[name], serial[name])


@pytest.mark.exhaustive
def test_a_run_is_planned_as_it_is_done_and_says_what_it_did(stores, tmp_path, monkeypatch):
    job = the_job(stores["whole"], tmp_path)
    planned = plan_job(job)
    said = "\n".join(planned.lines())
    assert "sharp quantiles: 18 more solves with 45 calibration points, then up to 7 with 157 points" in said
    plan = planned.sharp
    assert plan.work.flops == 18 * plan.search.work.flops + 7 * plan.last.work.flops
    assert plan.work.peak_bytes > plan.last.peak_bytes
    columns, events = [], []
    solve = SolvedModel.solve

    def counted(self, targets, x, stretch):
        columns.append(len(targets))
        return solve(self, targets, x, stretch)

    monkeypatch.setattr(SolvedModel, "solve", counted)
    outcome = run(job, observe=events.append)
    attributes = read_group(outcome.path).attrs
    sharp = json.loads(attributes["sharp"])
    chosen = len(set(sharp["lengthscale_factors"]))
    assert columns == [90] + FACTORS * [plan.search.q] + chosen * [plan.last.q]
    assert sharp["levels"] == list(QUANTILE_LEVELS) == list(SHARP_LEVELS)
    assert attributes["recalibration"] == "sharp"
    assert attributes["recalibration_statement"] == (
        "Predictive distributions are recalibrated (sharp) by errors at 90 calibration points, none of "
        "them observed: quantiles at 7 levels from 0.025 to 0.975 each have their own lengthscale, chosen "
        "with one half of these points and scaled by the errors at the other half."
    )
    fractions = [event.fraction for event in events if event.stage == "Sharp quantiles" and event.fraction]
    assert fractions == sorted(fractions)
    assert len(fractions) == FACTORS + chosen
    assert run(job).already_done
    two_way = the_job(stores["whole"], tmp_path, settings={"split": "two-way"})
    assert "guarantees no probability" in prepared_of(two_way).recalibration.statement()
    assert prepared_of(two_way).run_key != prepared_of(job).run_key
    stated = the_job(stores["whole"], tmp_path, settings={"levels": list(SHARP_LEVELS)})
    assert prepared_of(stated).run_key == prepared_of(job).run_key


def test_plans_name_what_takes_less(stores, tmp_path):
    """And a cell whose mean is wanted has no distribution, nor a column."""
    design = {"map": {"kind": "cells", "resolution_degrees": 30.0}}
    planned = plan_job(the_job(stores["whole"], tmp_path, design=design)).sharp
    assert planned.last.q == 40 + 45
    assert '[recalibration] method = "local-scale" learns' in planned.lines()[-1]
    prepared = prepared_of(the_job(stores["whole"], tmp_path, design=design))
    assert len(service.sharp_points(prepared)[1]) == 0


@pytest.mark.parametrize(
    ("design", "settings", "key"),
    [
        (
            {"calibration": None},
            {},
            "recalibration",
        ),
        (
            {"calibration": None, "test": {"kind": "folds", "count": 5}},
            {},
            "recalibration",
        ),
        (
            {"calibration": random_points(79, seed=2)},
            {},
            "recalibration",
        ),
        (
            {"calibration": random_points(99, seed=2)},
            {"levels": [0.01, 0.5], "split": "two-way"},
            "recalibration",
        ),
        ({}, {"levels": [0.5, 0.1]}, "recalibration"),
        (
            {},
            {"levels": [0.5, 1.5]},
            "recalibration.levels",
        ),
        ({}, {"levels": [0.5]}, "recalibration.levels"),
        (
            {},
            {"split": "four-way"},
            "recalibration.split",
        ),
        (
            {},
            {"method": "kuleshov", "levels": [0.1, 0.9]},
            "recalibration",
        ),
    ],
)
def test_jobs_that_cannot_be_are_refused_with_what_to_add(stores, tmp_path, design, settings, key):
    given = {name: value for name, value in {**DESIGN, **design}.items() if value is not None}
    with pytest.raises(ConfigurationError) as refusal:
        parse_job(
            job_text(
                observations={"source": f"zarr:{stores['whole']}", "times": TIMES},
                design=given,
                recalibration={"method": "sharp", **settings},
            )
        )
    assert refusal.value.key == key


def test_too_few_values_at_the_calibration_points_are_refused(stores, tmp_path):
    """Points there are enough, but most of them have no value."""
    prepared = prepared_of(the_job(stores["whole"], tmp_path))
    values = prepared.points.values.copy()
    values[:, prepared.design.calibration[10:]] = np.nan
    with pytest.raises(ConfigurationError) as refusal:
        result_of(replace(prepared, points=replace(prepared.points, values=values)))
    assert refusal.value.key == "recalibration"


def test_the_width_at_a_point_does_not_depend_on_the_points_beside_it():
    """Else calibration and test points, which are solved apart, would not be exchangeable."""
    rng, prior = np.random.default_rng(0), cagp.Prior(cagp.Matern32(0.3), noise_variance=0.1)
    X, targets = rng.uniform(size=(300, 2)), rng.uniform(size=(80, 2))
    for solver in (_alone(cagp.Neighbours(12)), _alone(cagp.Neighbours("auto"))):
        one, all_of_them = (
            cagp.condition(prior, X, X[:, 0], some, solver=solver, executor=SerialExecutor()).variance
            for some in (targets[:5], targets)
        )
        np.testing.assert_allclose(one, all_of_them[:5], rtol=1e-12)
