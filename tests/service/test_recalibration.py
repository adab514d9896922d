"""Recalibrated distributions of jobs: from which errors, what is published, and when there are none."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from markupsafe import Markup

from cagp_dist.calibration.recalibration import corrected
from cagp_dist.calibration.recalibration.local_scale import LocalScale
from cagp_dist.calibration.recalibration.methods import SHARP, SHARP_LEVELS
from cagp_dist.calibration.verification.scores import scores_of
from cagp_dist.calibration.verification.strata import surface_terms
from cagp_dist.errors import ConfigurationError
from cagp_dist.kernels import Matern32
from cagp_dist.pipeline.cross_validation import out_of_sample
from cagp_dist.pipeline.defaults import QUANTILE_LEVELS
from cagp_dist.pipeline.field_solves import Execution
from cagp_dist.predictive import Gaussian, StudentT
from cagp_dist.report.page import render
from cagp_dist.report.published import read_run
from cagp_dist.runtime import SerialExecutor, ThreadExecutor
from cagp_dist.service.ingest import ingest
from cagp_dist.service.job_plan import plan_job
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.jobfile.job import METHOD_NAMES
from cagp_dist.service.results import groups_of, roughness_of_test, strata_of_test
from cagp_dist.service.run import run
from cagp_dist.service.task import prepare_job
from cagp_dist.store.group_dataset import check_group
from cagp_dist.store.zarr_arrays import read_group

from ..jobs import job_text, map_grid, mean_of, random_points, result_of
from ..sources import save, temperature

pytestmark = pytest.mark.usefixtures("one_blas_thread")

NUMBERS = {"lengthscale": 0.2, "variance": 9.0, "noise_variance": 0.3}
DESIGN = {
    "train": random_points(700),
    "test": random_points(150, seed=1),
    "calibration": random_points(300, seed=2),
    "map": map_grid(30.0),
}
BLOCKS = {"name": "block-gauss-seidel", "iterations": 2, "block_size": 200}


@pytest.fixture(scope="module")
def field(tmp_path_factory):
    """Two times on a globe of 6 degrees: noise of 0.2 K in the west and of 3 K in the east."""
    rng = np.random.default_rng(5)
    latitude, longitude = np.arange(-87.0, 88.0, 6.0), np.arange(0.0, 360.0, 6.0)
    rough = np.where(longitude < 180.0, 0.2, 3.0)
    values = 280.0 + rough * rng.standard_normal((2, latitude.size, longitude.size))
    field = temperature(values, latitude=latitude, longitude=longitude, times=["2020-01-01", "2020-01-02"])
    return save(field, tmp_path_factory.mktemp("field") / "field.zarr")


def the_job(field, root, *, method=None, design=DESIGN, solver=BLOCKS):
    return parse_job(
        job_text(
            observations={"source": f"zarr:{field}", "times": ["2020-01-01", "2020-01-02"]},
            design=design,
            prior=NUMBERS,
            solver=solver,
            recalibration=None if method is None else {"method": method},
            output={"root": root},
        )
    )


def prepared_of(job):
    return prepare_job(job, ingest(job, report=lambda _: None))


def groups_by(prepared, result):
    """Groups of a job that says something else of what a result is made from."""
    return groups_of(prepared, result_of(prepared, like=result))


@pytest.fixture(scope="module")
def done(field, tmp_path_factory):
    """A job with calibration points, and its solution."""
    prepared = prepared_of(the_job(field, tmp_path_factory.mktemp("out")))
    return prepared, result_of(prepared)


def test_calibration_points_are_columns_of_the_solve_and_laws_are_learnt_from_them(done):
    """Against the method itself, applied to published plain distributions and to dense predictions."""
    prepared, result = done
    groups = groups_of(prepared, result)
    plain = groups_by(replace(prepared, recalibration=replace(prepared.recalibration, method="none")), result)
    kept, calibrating = prepared.design.calibration, prepared.columns["calibration"]
    assert calibrating == slice(150, 450)
    last = result.solution.steps[-1]
    ascending = np.argsort(prepared.design.train)
    std = np.sqrt(last.std[:, calibrating] ** 2 + NUMBERS["noise_variance"])
    learnt = LocalScale(terms=surface_terms).fit(
        Gaussian(last.mean[:, calibrating], std),
        prepared.points.values[:, kept],
        prepared.points.X[kept],
        training=(prepared.X[ascending], prepared.y.T[:, ascending]),  # of equally near ones the first
    )
    group, values = groups["posterior"], plain["posterior"]
    distribution = learnt(
        Gaussian(values.t2m_mean.values, values.t2m_predictive_std.values),
        prepared.points.X[prepared.design.test],
    )
    assert isinstance(distribution, StudentT)
    np.testing.assert_array_equal(group.t2m_mean, values.t2m_mean)
    # one correction of both: the field keeps its share of the error bar of an observation
    by = distribution.std / values.t2m_predictive_std.values
    np.testing.assert_allclose(group.t2m_std, by * values.t2m_std, rtol=1e-12)
    assert (group.t2m_std < group.t2m_predictive_std).all()
    np.testing.assert_allclose(group.t2m_predictive_std, distribution.std, rtol=1e-12)
    quantiles = group.t2m_quantile.transpose("quantile_level", "time", "point")
    np.testing.assert_allclose(quantiles, distribution.quantile(QUANTILE_LEVELS), rtol=1e-12)
    np.testing.assert_allclose(group.local_scale, distribution.scale / values.t2m_predictive_std, rtol=1e-12)
    east = group.longitude.values > 180.0
    scales = np.median(group.local_scale, axis=0)
    assert np.median(scales[east]) > 3.0 * np.median(scales[~east])
    expected = scores_of(distribution, group.t2m.values, weights=prepared.design.test_weights)
    scored, before = groups["calibration"], plain["calibration"]
    for name in ("nll", "crps", "ks_statistic", "coverage", "mean_width", "interval_score"):
        for by in ("", "_area_weighted"):
            np.testing.assert_allclose(scored[f"{name}{by}"], expected.named()[f"{name}{by}"], rtol=1e-12)
            np.testing.assert_array_equal(scored[f"{name}{by}_plain"], before[f"{name}{by}"])
    np.testing.assert_allclose(scored.pit, distribution.cdf(group.t2m.values), rtol=1e-12)
    np.testing.assert_array_equal(scored.pit_plain, before.pit)
    np.testing.assert_allclose(scored.nll_of_value.mean(), scored.nll, rtol=1e-12)
    assert not any("plain" in str(name) or "quantile" in str(name) for name in before)
    # the east is rough: plain error bars are too narrow there and too wide in the west
    rough = scored.sel(level=0.9).sel(stratum="roughest fifth")
    assert float(rough.stratum_coverage_plain) < 0.8 < float(rough.stratum_coverage)
    assert set(scored.stratum_kind.values) == {"all", "latitude", "surface", "roughness"}
    np.testing.assert_array_equal(scored.stratum_crps_plain, before.stratum_crps)
    assert scored.attrs["recalibration"] == "local-scale"
    assert "300 calibration points" in scored.attrs["recalibration_statement"]


def test_laws_of_a_map_do_not_depend_on_how_many_are_in_memory(done, monkeypatch):
    whole = groups_of(*done)["map"]
    monkeypatch.setattr(corrected, "DISTRIBUTIONS_AT_ONCE", 14)
    xr.testing.assert_identical(groups_of(*done)["map"], whole)
    assert whole.t2m_quantile.dims == ("time", "quantile_level", "latitude", "longitude")
    width = np.diff(whole.t2m_quantile.sel(quantile_level=[0.05, 0.95]), axis=1)[:, 0]
    assert np.median(width[..., 7:-1]) > 3.0 * np.median(width[..., 1:5])


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_every_method_gives_groups_that_can_be_published(done, method):
    prepared, result = done
    chosen = replace(prepared, recalibration=replace(prepared.recalibration, method=method))
    if method == SHARP:
        settings = replace(chosen.recalibration, levels=SHARP_LEVELS, split="three-way")
        chosen = replace(chosen, recalibration=settings)
    groups = groups_by(chosen, result)
    for name, group in groups.items():
        check_group(name, group)
    posterior = groups["posterior"]
    assert ("t2m_quantile" in posterior) == (method != "none")
    assert ("local_scale" in posterior) == (method == "local-scale")
    assert groups["calibration"].attrs["recalibration"] == method
    if method != "none":
        assert (np.diff(posterior.t2m_quantile, axis=1) >= 0.0).all()
        covered = groups["calibration"].coverage.sel(level=0.9)
        # by exchangeability 90 %; of 300 values worth at least 150 independent ones four standard errors,
        # and as much for the 600 errors that are learnt from
        assert abs(float(covered) - 0.9) < 4.0 * np.sqrt(0.09 / 150 + 0.09 / 300)


def test_threads_give_the_same_laws_to_the_last_bit(done):
    prepared, result = done
    with ThreadExecutor() as executor:
        other = result_of(prepared, executor=executor)
    for name, group in groups_of(prepared, other).items():
        expected = groups_of(prepared, result)[name]
        xr.testing.assert_identical(
            group.drop_vars("seconds", errors="ignore"), expected.drop_vars("seconds", errors="ignore")
        )


def test_leave_one_out_errors_are_used_where_the_solver_is_exact(field, tmp_path):
    """Against the inverse of the dense matrix."""
    design = {name: DESIGN[name] for name in ("train", "test")}
    prepared = prepared_of(
        the_job(field, tmp_path, design=design, solver={"name": "cholesky"}, method="local-scale")
    )
    assert (prepared.recalibration.errors, prepared.recalibration.places) == ("leave-one-out", 700)
    assert prepared.size.errors == "leave-one-out"
    result = result_of(prepared)
    X, kernel = prepared.X, Matern32(NUMBERS["lengthscale"], NUMBERS["variance"])
    inverse = np.linalg.inv(kernel(X, X) + NUMBERS["noise_variance"] * np.eye(700))
    # beside a mean whose coefficients are estimated without each point as well
    basis = mean_of(prepared).basis_at(X)
    weights = inverse @ basis
    inverse -= weights @ np.linalg.solve(basis.T @ weights, weights.T)
    precision = inverse.diagonal()
    expected = (prepared.y - inverse @ prepared.y / precision[:, None]).T
    errors = out_of_sample(prepared.task, result.priors, result.solution, Execution(SerialExecutor()))
    order = np.argsort(prepared.design.train)
    np.testing.assert_allclose(errors.distribution.mean, expected[:, order], rtol=1e-9)
    std = np.tile(precision[order] ** -0.5, (2, 1))
    np.testing.assert_allclose(errors.distribution.std, std, rtol=1e-9)
    said = groups_of(prepared, result)["calibration"].attrs["recalibration_statement"]
    assert "leave-one-out errors of the 700 observed points" in said


def test_a_test_by_blocks_is_calibrated_by_blocks_even_where_the_solver_is_exact(field, tmp_path):
    """Of the same size: ten folds of the observed ones, or calibration points that the job keeps."""
    blocks = {"kind": "blocks", "count": 100, "blocks_degrees": 20.0, "share": 0.15}
    design, asked = {"train": random_points(700), "test": blocks}, {"solver": {"name": "cholesky"}}
    prepared = prepared_of(the_job(field, tmp_path, design=design, method="kuleshov", **asked))
    assert (prepared.recalibration.errors, prepared.recalibration.places) == ("blocks", 700)
    assert prepared.recalibration.blocks == 20.0
    assert "solves without a tenth of the blocks" in "".join(plan_job(prepared.job).lines())
    result = result_of(prepared)
    assert result.corrected
    kept = prepared_of(
        the_job(field, tmp_path, design={**design, "calibration": {**blocks, "count": 110}}, **asked)
    )
    assert (kept.recalibration.method, kept.recalibration.errors) == ("local-scale", "points")
    assert np.unique(kept.design.calibration_blocks).size > 10
    said = kept.recalibration.statement()
    assert said.endswith("110 calibration points, none of them observed, in separate blocks.")


def test_the_law_of_a_place_uses_no_error_of_its_own_fold(field, tmp_path):
    """Errors of one fold are changed: its distributions stay to the bit, and those of others do not."""
    design = {"train": random_points(400), "test": {"kind": "folds", "count": 3, "blocks_degrees": 20.0}}
    prepared = prepared_of(the_job(field, tmp_path, design=design, method="local-scale"))
    assert (prepared.recalibration.errors, prepared.recalibration.scored_by_folds) == ("blocks", True)
    own = prepared.design.folds == 1
    changed = prepared.points.values.copy()
    changed[:, prepared.design.test[own]] += 5.0 * np.sign(changed[:, prepared.design.test[own]] - 280.0)
    other, result = replace(prepared, points=replace(prepared.points, values=changed)), result_of(prepared)
    first, second = (groups_by(each, result)["posterior"] for each in (prepared, other))
    assert (first.t2m.values != second.t2m.values).any(axis=0)[own].all()
    for name in ("t2m_quantile", "t2m_predictive_std", "local_scale"):
        np.testing.assert_array_equal(first[name].values[..., own], second[name].values[..., own])
        assert (first[name].values[..., ~own] != second[name].values[..., ~own]).any()


def test_a_job_is_recalibrated_where_it_asks_for_that_alone(field, tmp_path):
    """By a method, or by calibration points that it keeps; else its name is that of a job without."""
    design = {name: DESIGN[name] for name in ("train", "test")}
    plain, none, asked = (
        prepared_of(the_job(field, tmp_path, method=method, design=design))
        for method in (None, "none", "local-scale")
    )
    assert plain.run_key == none.run_key != asked.run_key
    assert (plain.recalibration.errors, asked.recalibration.errors) == ("none", "blocks")
    for name in ("train", "test"):
        np.testing.assert_array_equal(getattr(asked.design, name), getattr(plain.design, name))
    assert "no recalibration was asked for" in plain.recalibration.statement()
    assert prepared_of(the_job(field, tmp_path)).recalibration.errors == "points"
    assert prepared_of(the_job(field, tmp_path, method="none")).recalibration.errors == "none"


def test_a_recalibrated_run_is_planned_and_published(field, tmp_path):
    job = the_job(field, tmp_path, method="kuleshov")
    planned = plan_job(job)
    assert "700 points observed, 150 held out, 300 to calibrate, " in planned.size.line()
    assert planned.plan.q == 150 + 300 + 72
    outcome = run(job)
    attributes = read_group(outcome.path).attrs
    page = render(read_run(outcome.path), {"std": Markup("<svg></svg>")})
    assert "also includes its noise; both are recalibrated." in page
    assert attributes["recalibration"] == "kuleshov"
    assert "t2m_quantile" in read_group(outcome.path, "map")
    assert run(job).already_done


def test_methods_that_cannot_learn_are_refused(field, tmp_path):
    few = {**DESIGN, "calibration": random_points(40, seed=2)}
    with pytest.raises(ConfigurationError) as refusal:
        prepared_of(the_job(field, tmp_path, method="local-scale", design=few))
    assert refusal.value.key == "few-errors"
    with pytest.raises(ConfigurationError) as refusal:
        the_job(field, tmp_path, method="locale-scale")
    assert refusal.value.key == "recalibration.method"


def test_no_held_out_value_says_in_which_stratum_it_is(done, field, tmp_path):
    """Of a cross-validation no value of its own fold does."""
    prepared, _ = done
    rng = np.random.default_rng(0)
    folded = prepared_of(
        the_job(field, tmp_path, design={"train": random_points(300), "test": {"kind": "folds", "count": 3}})
    )
    for one, own in ((prepared, np.ones(150, dtype=bool)), (folded, folded.design.folds == 1)):
        held = one.design.test[own]
        values = one.points.values.copy()
        values[:, held] = rng.permuted(values[:, held], axis=1)
        changed = replace(one, points=replace(one.points, values=values))
        before, after = (
            roughness_of_test(each.points.values, each.points.X, each.design) for each in (one, changed)
        )
        np.testing.assert_array_equal(before[:, own], after[:, own])
        if one is folded:
            assert (before[:, ~own] != after[:, ~own]).any()
    kinds = {strata.kind: strata.member.shape for strata in strata_of_test(prepared)}
    assert kinds == {"latitude": (150,), "surface": (150,), "roughness": (2, 150)}
