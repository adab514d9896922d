"""Maps with a fine mean and coarser error bars: the same posterior as on one grid each."""

import numpy as np
import pytest

from cagp_dist.errors import ConfigurationError
from cagp_dist.report import write_report
from cagp_dist.report.published import read_run
from cagp_dist.service.job_plan import plan_job
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.run import run
from cagp_dist.store.zarr_arrays import read_group

from ..jobs import job_text, map_grid, random_points

BLOCKS = {"name": "block-gauss-seidel", "iterations": 2, "block_size": 50}


def the_job(root, *, resolution=10.0, std_resolution=None, solver=BLOCKS, area=None):
    table = map_grid(resolution)
    if std_resolution is not None:
        table = {**table, "std_resolution_degrees": std_resolution}
    if area is not None:
        table = {**table, "area": area}
    text = job_text(
        observations={
            "source": "synthetic",
            "grid_degrees": 10.0,
            "times": ["2020-01-01T00:00", "2020-07-01T00:00"],
        },
        design={"train": random_points(300), "test": random_points(40, seed=1), "map": table},
        prior={"lengthscale": 0.3, "variance": 22.0, "noise_variance": 0.5},
        solver=solver,
        cluster=None,
        output={"root": root},
    )
    return parse_job(text)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return run(the_job(tmp_path_factory.mktemp("both"), std_resolution=30.0)).path


@pytest.mark.parametrize(("group", "resolution"), [("map", 10.0), ("map_std", 30.0)])
@pytest.mark.exhaustive
def test_each_grid_is_the_map_of_a_job_of_that_resolution(both, tmp_path, group, resolution):
    alone = read_group(run(the_job(tmp_path, resolution=resolution)).path, "map")
    found = read_group(both, group)
    for axis in ("time", "latitude", "longitude"):
        np.testing.assert_array_equal(found[axis], alone[axis])
    np.testing.assert_allclose(found.t2m_mean, alone.t2m_mean, rtol=0.0, atol=1e-9)
    errors = ("t2m_std", "t2m_predictive_std", "t2m_std_computational")
    if group == "map":
        assert set(found.data_vars) == {"t2m_mean"}
        assert found.t2m_mean.attrs["comment"] == "Error bars: group map_std."
        assert "ancillary_variables" not in found.t2m_mean.attrs
    else:
        for name in errors:
            np.testing.assert_allclose(found[name], alone[name], rtol=0.0, atol=1e-12)


@pytest.mark.exhaustive
def test_test_points_are_not_touched_by_it(both, tmp_path):
    alone = read_group(run(the_job(tmp_path, resolution=30.0)).path, "posterior")
    found = read_group(both, "posterior")
    assert found.equals(alone)
    assert found.variables.keys() == alone.variables.keys()


def test_error_bars_are_taken_to_the_mean_by_xarray(both):
    fine, coarse = read_group(both, "map"), read_group(both, "map_std")
    inner = fine.sel(latitude=slice(-70.0, 70.0), longitude=slice(20.0, 340.0))
    std = coarse.t2m_std.interp(latitude=inner.latitude, longitude=inner.longitude)
    assert std.dims == inner.t2m_mean.dims
    assert np.isfinite(std).all()


@pytest.mark.exhaustive
def test_the_report_draws_both(both):
    published = read_run(both)
    assert published.fine.mean.shape == (18, 36)
    assert published.grid.std.shape == (6, 12)
    np.testing.assert_array_equal(published.fine.mean, read_group(both, "map").t2m_mean[0])
    page = write_report(both)
    text = page.read_text()
    assert (
        "Computed on a grid of 18 x 36 points, the error bars on a grid of 6 x 12 points, and shaded" in text
    )
    assert (page.parent / "mean.png").is_file()
    assert (page.parent / "std.png").is_file()


@pytest.mark.exhaustive
@pytest.mark.parametrize("group", [512, pytest.param(16, marks=pytest.mark.exhaustive)])
def test_with_a_share_the_mean_has_as_many_sweeps_as_its_error_bars(tmp_path, monkeypatch, group):
    """In groups of 512 targets all had the same; of 16, each had its own."""
    monkeypatch.setattr("cagp_dist.tiling.COLUMN_GROUP", group)
    share = {**BLOCKS, "iterations": 50, "computational_share": 0.2}
    path = run(the_job(tmp_path / "share", std_resolution=30.0, solver=share)).path
    sweeps = read_group(path, "trace").iteration.size - 1
    assert 1 < sweeps < 50
    plain = run(the_job(tmp_path / "plain", solver={**BLOCKS, "iterations": sweeps})).path
    fine, coarse, last = (
        read_group(*of).t2m_mean for of in ((path, "map"), (path, "map_std"), (plain, "map"))
    )
    there = {"latitude": coarse.latitude, "longitude": coarse.longitude}  # also points of the finer grid
    np.testing.assert_allclose(fine.sel(there), coarse, rtol=0.0, atol=1e-9)
    same = (np.abs(fine - last) < 1e-9).all("time")
    assert same.any()
    assert bool(same.all()) == (group == 512)


def test_a_map_of_an_area_has_both_grids_there(tmp_path):
    job = the_job(tmp_path, resolution=5.0, std_resolution=20.0, area=[60.0, -20.0, 20.0, 40.0])
    path = run(job).path
    assert read_group(path, "map").t2m_mean.shape == (2, 8, 12)
    assert read_group(path, "map_std").t2m_std.shape == (2, 2, 3)
    assert plan_job(job).size.mean_mapped == 96
    assert "6 map cells and 96 of the mean" in plan_job(job).size.line()


def test_a_job_without_it_keeps_its_name(tmp_path):
    plain = the_job(tmp_path).canonical()["design"]["map"]
    assert plain == {"kind": "grid", "resolution_degrees": 10.0, "area": None}
    assert the_job(tmp_path, std_resolution=30.0).canonical()["design"]["map"] != plain


@pytest.mark.parametrize("coarse", [10.0, 4.0])
def test_error_bars_finer_than_the_mean_are_refused(tmp_path, coarse):
    with pytest.raises(ConfigurationError) as refusal:
        the_job(tmp_path, std_resolution=coarse)
    assert refusal.value.key == "design.map"


@pytest.mark.parametrize("solver", ["conjugate-gradient", "unit-vectors"])
def test_solvers_whose_mean_does_not_come_alone_are_refused(tmp_path, solver):
    with pytest.raises(ConfigurationError) as refusal:
        the_job(tmp_path, std_resolution=30.0, solver={"name": solver})
    assert refusal.value.key == "solver"
