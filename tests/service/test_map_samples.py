"""Maps whose error bars come from samples: near those of a column for each cell, and told apart from them."""

import numpy as np
import pytest
from scipy.stats import norm

from cagp_dist.errors import BudgetError, ConfigurationError
from cagp_dist.report import write_report
from cagp_dist.service import map_cells
from cagp_dist.service.job_plan import plan_job
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.run import run
from cagp_dist.store.zarr_arrays import read_group

from ..jobs import job_text, random_points

BLOCKS = {"name": "block-gauss-seidel", "iterations": 2, "block_size": 50}


def the_job(root, *, map_table=None, solver=BLOCKS, scheduler="serial", test=None, **observations):
    text = job_text(
        observations={
            "source": "synthetic",
            "grid_degrees": 10.0,
            "times": ["2020-01-01T00:00", "2020-07-01T00:00"],
            **observations,
        },
        design={
            "train": random_points(300),
            "test": test or random_points(40, seed=1),
            "map": {"kind": "grid", "resolution_degrees": 10.0, **(map_table or {})},
        },
        prior={"lengthscale": 0.3, "variance": 22.0, "noise_variance": 0.5},
        solver=solver,
        cluster={"scheduler": scheduler},
        output={"root": root},
    )
    return parse_job(text)


@pytest.fixture(scope="module")
def sampled(tmp_path_factory):
    return run(the_job(tmp_path_factory.mktemp("sampled"), map_table={"std_samples": 400})).path


@pytest.fixture(scope="module")
def columns(tmp_path_factory):
    return run(the_job(tmp_path_factory.mktemp("columns"))).path


def test_error_bars_are_those_of_columns_within_their_standard_error(sampled, columns):
    """648 cells, each within what chance allows once in 10^5 maps; the mean is no estimate."""
    found, exact = read_group(sampled, "map"), read_group(columns, "map")
    np.testing.assert_allclose(found.t2m_mean, exact.t2m_mean, rtol=0.0, atol=1e-9)
    ratio = (found.t2m_std / exact.t2m_std).values
    assert found.attrs["std_relative_standard_error"] == pytest.approx(0.5 * np.sqrt(2.0 / 400))
    assert np.abs(ratio - 1.0).max() < norm.isf(1e-5 / 1296) * found.attrs["std_relative_standard_error"]
    assert ratio.std() > 0.01
    np.testing.assert_array_equal(found.t2m_std[0], found.t2m_std[1])  # one pattern, one set of samples


def test_test_points_and_scores_are_not_touched_by_it(sampled, columns):
    for group in ("posterior", "trace", "observations"):
        assert (
            read_group(sampled, group)
            .drop_vars("seconds", errors="ignore")
            .equals(read_group(columns, group).drop_vars("seconds", errors="ignore"))
        )


@pytest.mark.exhaustive
def test_the_run_says_so_in_words(sampled, columns):
    said = read_group(sampled).attrs["sampling_statement"]
    assert said.startswith(
        "The error bars of the map are estimated from 400 samples of the posterior: by chance each is off by "
        "3.5% (one standard error"
    )
    assert read_group(sampled, "calibration").attrs["sampling_statement"] == said
    assert read_group(sampled, "map").attrs["std_samples"] == 400
    assert "sampling_statement" not in read_group(columns).attrs
    # what part of them is unfinished computation is not known of samples
    assert "t2m_std_computational" not in read_group(sampled, "map")
    assert "t2m_std_computational" in read_group(sampled, "posterior")
    assert "estimated from 400 samples" in write_report(sampled).read_text()


@pytest.mark.exhaustive
def test_maps_with_many_more_cells_than_samples_have_them_from_samples(tmp_path, monkeypatch, sampled):
    """By default 400; small maps, jobs that say no, and solvers that may end early keep their columns."""
    job = the_job(tmp_path)
    assert plan_job(job).size.samples == 0
    monkeypatch.setattr(map_cells, "MOST_COLUMNS", 600)
    plan = plan_job(job)
    assert plan.size.samples == 400
    assert plan.size.line().endswith("40 held out, 648 map cells from 400 samples, 2 times")
    assert plan.plan.q == 40
    assert plan.lines()[0].startswith("block Gauss-Seidel, 400 samples: 300 observed points, 648 test points")
    with_share = {**BLOCKS, "computational_share": 0.5}
    for other in (
        the_job(tmp_path, map_table={"std_samples": 0}),
        the_job(tmp_path, solver={"name": "cholesky"}),
        the_job(tmp_path, solver=with_share),
        the_job(tmp_path, map_table={"std_resolution_degrees": 30.0}),
    ):
        assert plan_job(other).size.samples == 0
    path = run(job).path
    same = read_group(sampled, "map")
    np.testing.assert_array_equal(read_group(path, "map").t2m_std, same.t2m_std)
    monkeypatch.undo()
    assert run(job).path != path  # the name of a run knows of samples


def test_jobs_without_the_key_keep_their_names(tmp_path):
    plain = the_job(tmp_path).canonical()["design"]["map"]
    assert plain == {"kind": "grid", "resolution_degrees": 10.0, "area": None}
    asked = the_job(tmp_path, map_table={"std_samples": 100}).canonical()["design"]["map"]
    assert asked == {**plain, "std_samples": 100}


@pytest.mark.exhaustive
def test_threads_and_cells_and_folds(tmp_path, sampled):
    """The same bits on threads; means over cells; a map beside a cross-validation."""
    threads = run(the_job(tmp_path / "a", map_table={"std_samples": 400}, scheduler="local")).path
    np.testing.assert_array_equal(read_group(threads, "map").t2m_std, read_group(sampled, "map").t2m_std)
    cells = {"kind": "cells", "resolution_degrees": 30.0}
    found, exact = (
        read_group(run(the_job(tmp_path / str(n), map_table={**cells, "std_samples": n})).path, "map")
        for n in (200, 0)
    )
    ratio = (found.t2m_std / exact.t2m_std).values
    assert np.abs(ratio - 1.0).max() < norm.isf(1e-5 / 144) * 0.5 * np.sqrt(2.0 / 200)
    folds = {"kind": "folds", "count": 2}
    crossed = run(the_job(tmp_path / "b", map_table={"std_samples": 50}, test=folds)).path
    assert np.isfinite(read_group(crossed, "map").t2m_std).all()
    assert read_group(crossed, "posterior").sizes["point"] == 300


@pytest.mark.parametrize(
    ("map_table", "solver", "key"),
    [
        ({"std_samples": 20}, BLOCKS, "design.map"),
        ({"std_samples": -1}, BLOCKS, "design.map.std_samples"),
        (
            {"std_samples": 100, "std_resolution_degrees": 30.0},
            BLOCKS,
            "design.map",
        ),
        ({"std_samples": 100}, {"name": "conjugate-gradient"}, "solver"),
        (
            {"std_samples": 100},
            {**BLOCKS, "computational_share": 0.1},
            "solver",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path, map_table, solver, key):
    with pytest.raises(ConfigurationError) as refusal:
        the_job(tmp_path, map_table=map_table, solver=solver)
    assert refusal.value.key == key


def test_samples_that_do_not_fit_are_refused_before_any_work(tmp_path, monkeypatch):
    import cagp_dist.service.run as service

    monkeypatch.setattr(service, "memory_limit", lambda job, executor: 10 * 2**20)
    with pytest.raises(BudgetError) as refusal:
        run(the_job(tmp_path, map_table={"std_samples": 400}))
    assert refusal.value.key == "memory"
