"""Maps of means over cells: `kind = "cells"` of [design] map, from job to report."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.geometry import median_spacing
from cagp_dist.gram.cell_means import CellMeans
from cagp_dist.pipeline.map_cells import MapCells
from cagp_dist.report import write_report
from cagp_dist.service.ingest import ingest
from cagp_dist.service.job_plan import plan_job
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.run import run
from cagp_dist.service.task import prepare_job
from cagp_dist.store.zarr_arrays import read_group

from ..jobs import job_text, mean_of, random_points

BLOCKS = {"name": "block-gauss-seidel", "iterations": 2, "block_size": 50}
KERNEL = {"lengthscale": 0.3, "variance": 22.0, "noise_variance": 0.5}


def the_job(root, *, kind="cells", solver=BLOCKS, table=None, **design):
    text = job_text(
        observations={
            "source": "synthetic",
            "grid_degrees": 10.0,
            "times": ["2020-01-01T00:00", "2020-07-01T00:00"],
        },
        design={
            "train": random_points(300),
            "test": random_points(40, seed=1),
            "map": {"kind": kind, "resolution_degrees": 30.0, **(table or {})},
            **design,
        },
        prior=KERNEL,
        solver=solver,
        cluster=None,
        output={"root": root},
    )
    return parse_job(text)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    root = tmp_path_factory.mktemp("cells")
    places = root / "places.csv"
    places.write_text("latitude,longitude\n10.0,20.0\n-35.0,140.0\n")
    job = the_job(root, solver={"name": "cholesky"}, targets=f"table:{places}")
    return job, run(job).path


def test_the_map_is_the_mean_over_each_cell(published):
    job, path = published
    seen = read_group(path, "observations")
    X = cagp.unit_sphere(seen.latitude, seen.longitude)
    spacing = np.rad2deg(2.0 * np.arcsin(0.5 * median_spacing(X)))
    edges = np.linspace(-90.0, 90.0, 7), np.linspace(0.0, 360.0, 13)
    per_side = min(int(1.0 + np.ceil(30.0 / spacing)), 8)
    cells = cagp.cell_means(*edges, nodes_per_side=per_side)
    kernel = cagp.Matern32(KERNEL["lengthscale"], KERNEL["variance"])
    found = read_group(path, "map")
    assert found.attrs["nodes_per_cell"] == per_side**2
    # the prior mean is averaged as well: a field of points has it at the nodes
    everywhere = cagp.Prior(kernel, noise_variance=KERNEL["noise_variance"], mean=task_mean(job))
    direct = cagp.condition(everywhere, X, seen.t2m.values.T, cells, solver=cagp.Cholesky())
    std = np.sqrt(direct.variance).reshape(6, 12)
    np.testing.assert_allclose(found.t2m_std, [std, std], rtol=1e-6)
    np.testing.assert_allclose(found.t2m_mean, direct.mean.T.reshape(2, 6, 12), rtol=1e-9)


def task_mean(job):
    return mean_of(prepare_job(job, ingest(job, report=lambda text: None)))


def test_points_and_places_are_what_they_are_without_it(published, tmp_path):
    job, path = published
    solver, targets = {"name": "cholesky"}, job.design.targets
    plain = run(the_job(tmp_path, kind="grid", solver=solver, targets=targets)).path
    for group in ("posterior", "targets"):
        for name, values in read_group(plain, group).data_vars.items():
            np.testing.assert_allclose(read_group(path, group)[name], values, rtol=1e-9)
    wide, narrow = (read_group(where, "map").t2m_std for where in (plain, path))
    assert (narrow < wide).all()


def test_the_run_says_so(published):
    group = read_group(published[1], "map")
    assert group.attrs["title"] == "Posterior 2 metre temperature on a grid, means over its cells"
    assert group.t2m_mean.attrs["cell_methods"] == "time: point area: mean"
    assert group.t2m_std.attrs["cell_methods"] == "area: mean"
    assert group.t2m_mean.attrs["long_name"] == "posterior mean of 2 metre temperature, mean over the cell"
    assert group.t2m_mean.attrs["ancillary_variables"] == "t2m_std"
    assert "t2m_predictive_std" not in group


def test_the_report_says_so(published):
    page = write_report(published[1]).read_text()
    assert "Means over the cells of a grid of 6 x 12 cells, shaded bilinearly between their centres." in page
    assert "Uncertainty of the mean temperature of each cell" in page


@pytest.mark.exhaustive
def test_error_bars_of_cells_under_a_fine_mean_of_cells(tmp_path):
    table = {"resolution_degrees": 15.0, "std_resolution_degrees": 45.0}
    both = run(the_job(tmp_path / "both", table=table)).path
    for group, resolution in (("map", 15.0), ("map_std", 45.0)):
        alone = run(the_job(tmp_path / group, table={"resolution_degrees": resolution})).path
        found, expected = read_group(both, group), read_group(alone, "map")
        np.testing.assert_allclose(found.t2m_mean, expected.t2m_mean, rtol=0.0, atol=1e-9)
        assert found.attrs["nodes_per_cell"] == expected.attrs["nodes_per_cell"]
    np.testing.assert_allclose(found.t2m_std, expected.t2m_std, rtol=1e-9)


def test_cells_beside_folds(tmp_path):
    folds = {"kind": "folds", "count": 3, "blocks_degrees": 30.0}
    path = run(the_job(tmp_path, test=folds)).path
    assert read_group(path, "map").t2m_std.shape == (2, 6, 12)


def test_the_plan_counts_their_nodes(tmp_path):
    points, cells = (plan_job(the_job(tmp_path, kind=kind)) for kind in ("grid", "cells"))
    more = 72 * (cells.size.nodes_per_cell - 1)
    # once for the solve, and once for the weights of the coefficients of the mean
    assert cells.plan.gram_entries - points.plan.gram_entries == 2 * 300 * more
    assert "72 map cells, means over" in cells.size.line()


def test_jobs_of_points_keep_their_names(tmp_path):
    assert the_job(tmp_path, kind="grid").canonical()["design"]["map"]["kind"] == "grid"
    assert set(the_job(tmp_path).canonical()["design"]["map"]) == {"kind", "resolution_degrees", "area"}


def test_nodes_follow_the_distance_of_observations():
    edges = np.array([[-2.0], [2.0]])
    cells = MapCells(np.array([0.0]), np.array([0.0]), edges=(edges, edges))
    assert [cells.nodes_per_side(spacing) for spacing in (np.inf, 8.0, 2.0, 1.0, 0.1, 0.0)] == [
        2,
        2,
        3,
        5,
        8,
        8,
    ]
    assert isinstance(cells.inputs(2.0), CellMeans)
    assert len(cells.inputs(2.0).nodes) == 9
