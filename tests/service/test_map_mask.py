"""Maps of sources with missing values: cells without any stay blank, unless all are asked for."""

import numpy as np
import pytest

from cagp_dist.cartography.raster import resample
from cagp_dist.geometry import unit_sphere
from cagp_dist.pipeline.map_cells import MapCells
from cagp_dist.report import write_report
from cagp_dist.report.published import Grid
from cagp_dist.service.job_plan import plan_job
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.run import run
from cagp_dist.store.zarr_arrays import read_group

from ..jobs import job_text, map_grid, random_points
from ..regional import EUROPE, GAPS


def job(root, *, source=GAPS, **keys):
    return parse_job(
        job_text(
            observations={"source": f"file:{source}"},
            design={
                "train": random_points(200),
                "test": random_points(20, seed=1),
                "map": {**map_grid(2.0), **keys},
            },
            output={"root": root},
        )
    )


def test_cells_without_values_are_blank_and_not_solved_for(tmp_path):
    outcome, whole = run(job(tmp_path / "a")), run(job(tmp_path / "b", mask="none"))
    masked, full = read_group(outcome.path, "map"), read_group(whole.path, "map")
    blank = np.isnan(masked.t2m_mean.values[0])
    attributes = read_group(outcome.path).attrs
    assert 0 < np.count_nonzero(blank) == attributes["map_cells_blank"] < blank.size
    assert np.isfinite(full.t2m_mean.values).all()
    assert "map_cells_blank" not in read_group(whole.path).attrs
    for name in ("t2m_mean", "t2m_std", "t2m_predictive_std"):
        np.testing.assert_array_equal(np.isnan(masked[name].values[0]), blank)
        np.testing.assert_allclose(masked[name].values[0][~blank], full[name].values[0][~blank], rtol=1e-6)
    planned = plan_job(job(tmp_path / "a")).size
    assert planned.mapped == np.count_nonzero(~blank)
    assert f"{np.count_nonzero(blank):,} blank ones without data" in planned.line()
    assert outcome.path.name != whole.path.name


@pytest.mark.exhaustive
def test_a_fine_mean_and_coarse_error_bars_are_blank_alike(tmp_path):
    path = run(job(tmp_path, std_resolution_degrees=5.0)).path
    fine, coarse = read_group(path, "map"), read_group(path, "map_std")
    for group, name in ((fine, "t2m_mean"), (coarse, "t2m_mean"), (coarse, "t2m_std")):
        assert np.count_nonzero(np.isnan(group[name].values)) == group.attrs.get("blank_cells", 0)
    assert fine.attrs["blank_cells"] > 0
    assert write_report(path, tmp_path / "report").exists()


@pytest.mark.exhaustive
def test_a_source_without_gaps_keeps_its_runs(tmp_path):
    """The mask is no part of the name of a run where it makes no difference."""
    plain, none = job(tmp_path, source=EUROPE), job(tmp_path, source=EUROPE, mask="none")
    assert "mask" not in plain.canonical()["design"]["map"]
    assert none.canonical()["design"]["map"]["mask"] == "none"
    outcome = run(plain)
    assert np.isfinite(read_group(outcome.path, "map").t2m_mean.values).all()


def test_a_cell_is_shown_if_its_nearest_point_or_one_inside_has_values():
    latitude, longitude = (
        axis.ravel() for axis in np.meshgrid(np.arange(0.0, 8.0), np.arange(8.0), indexing="ij")
    )
    there = longitude < 4.0
    seen = (
        unit_sphere(latitude[there], longitude[there]),
        np.stack([latitude[~there], longitude[~there]], axis=1),
    )
    fine = MapCells(np.array([2.0, 2.5]), np.array([2.0, 3.0, 3.4, 3.6, 5.0])).observed(*seen)
    assert fine.shown.tolist() == [[True, True, True, False, False]] * 2
    assert (fine.size, fine.blank) == (6, 4)
    coarse = MapCells(np.array([0.0, 4.0]), np.array([1.0, 4.9, 6.1])).observed(*seen)
    assert coarse.shown.tolist() == [[True, True, False]] * 2
    assert MapCells(np.array([2.0]), np.array([1.0])).observed(*seen).shown is None
    fields = fine.fields(np.arange(12.0).reshape(2, 6))
    assert fields.shape == (2, 2, 5)
    np.testing.assert_array_equal(fields[:, fine.shown], np.arange(12.0).reshape(2, 6))
    assert np.isnan(fields[:, ~fine.shown]).all()


def test_blank_cells_are_drawn_blank_to_half_way():
    grid = Grid(np.arange(4.0), np.arange(2.0), np.zeros((2, 4)), np.zeros((2, 4)))
    values = np.array([[1.0, 2.0, np.nan, 4.0], [1.0, 2.0, np.nan, 4.0]])
    drawn = resample(grid, values, np.array([0.5, 1.0, 1.4, 1.6, 2.0, 2.6, 3.0]), np.full(7, 0.3))
    np.testing.assert_allclose(drawn, [1.5, 2.0, 2.0, np.nan, np.nan, 4.0, 4.0])
