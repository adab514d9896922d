"""Means over regions: `regions` of [design], from job to report."""

import csv

import numpy as np
import pytest
from typer.testing import CliRunner

import cagp_dist as cagp
from cagp_dist.budget.workers import Crew
from cagp_dist.cli import app
from cagp_dist.errors import ConfigurationError
from cagp_dist.export import export_run
from cagp_dist.report import write_report
from cagp_dist.runtime import SerialExecutor
from cagp_dist.service.ingest import ingest
from cagp_dist.service.job_plan import plan_job
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.run import run
from cagp_dist.service.task import prepare_job
from cagp_dist.store.publish import verify_files
from cagp_dist.store.zarr_arrays import read_group

from ..jobs import job_text, mean_of, random_points
from ..joined import one_after_another

BLOCKS = {"name": "block-gauss-seidel", "iterations": 2, "block_size": 50}
KERNEL = {"lengthscale": 0.3, "variance": 22.0, "noise_variance": 0.5}
PACIFIC = {"name": "pacific", "south": -30, "north": 30, "west": 150, "east": -100}
SAHARA = {"name": "sahara", "polygon": [[-15, 15], [35, 15], [35, 32], [-10, 32], [-15, 15]]}
REGIONS = ["global", "tropics", PACIFIC, SAHARA]
AS_VALUES = [
    "global",
    "tropics",
    cagp.Box("pacific", -30.0, 30.0, 150.0, -100.0),
    cagp.Polygon("sahara", ((-15.0, 15.0), (35.0, 15.0), (35.0, 32.0), (-10.0, 32.0))),
]


def the_job(root="out", *, solver=BLOCKS, regions=REGIONS, **design):
    design = {"train": random_points(300), "test": random_points(40, seed=1), **design}
    return job_text(
        observations={
            "source": "synthetic",
            "grid_degrees": 10.0,
            "times": ["2020-01-01T00:00", "2020-07-01T00:00"],
        },
        design={**design, **({} if regions is None else {"regions": regions})},
        prior=KERNEL,
        solver=solver,
        cluster=None,
        output={"root": root},
    )


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    root = tmp_path_factory.mktemp("regions")
    places = root / "places.csv"
    places.write_text("latitude,longitude\n10.0,20.0\n-35.0,140.0\n")
    job = parse_job(the_job(root, targets=f"table:{places}", regions_resolution_degrees=6.0))
    return job, run(job).path


def test_they_are_those_of_condition(published):
    job, path = published
    prepared = prepare_job(job, ingest(job, report=lambda text: None))
    means = cagp.area_means(AS_VALUES, resolution_degrees=6.0)
    prior = cagp.Prior(cagp.Matern32(0.3, 22.0), noise_variance=0.5, mean=mean_of(prepared))
    solver = cagp.BlockGaussSeidel(2, block_size=50)
    direct = cagp.condition(prior, prepared.X, prepared.y, means, solver=solver)
    found = read_group(path, "regions")
    assert dict(found.sizes) == {"time": 2, "region": 4}
    assert found.region.values.tolist() == ["global", "tropics", "pacific", "sahara"]
    np.testing.assert_allclose(found.t2m_mean, direct.mean.T, rtol=1e-11)
    np.testing.assert_allclose(found.t2m_std, [np.sqrt(direct.variance)] * 2, rtol=1e-9)
    upper = np.sqrt(direct.computational_variance_bounds[1])
    np.testing.assert_allclose(found.t2m_std_computational, [upper] * 2, rtol=1e-6)
    assert found.region_area[0] == pytest.approx(510.066e6, rel=1e-5)
    assert str(found.region_definition[2].values) == "30°S to 30°N, 150°E to 100°W"
    assert found.attrs["regions_resolution_degrees"] == 6.0
    attributes = found.t2m_mean.attrs
    assert attributes["cell_methods"] == "time: point area: mean"
    assert attributes["long_name"].endswith("2 metre temperature, mean over the region")
    verify_files(path)


def test_a_plan_counts_what_wide_regions_take_of_neighbours():
    """It asks for what the solve does, which knows targets and observations."""
    job = parse_job(the_job(solver={"name": "neighbours", "neighbours": 20}, regions_resolution_degrees=6.0))
    planned = plan_job(job, crew=Crew(1)).plan
    prepared = prepare_job(job, ingest(job, report=lambda text: None))
    prior = cagp.Prior(cagp.Matern32(0.3, 22.0), noise_variance=0.5, mean=mean_of(prepared))
    plans: list[cagp.Plan] = []
    cagp.condition(
        *(prior, prepared.X, prepared.y, prepared.predicted.points.wanted),
        solver=prepared.solver,
        executor=SerialExecutor(),
        on_plan=plans.append,
    )
    assert planned.gram_entries == plans[0].gram_entries > 300**2
    assert planned.flops == plans[0].flops


@pytest.mark.exhaustive
def test_points_and_places_are_what_they_are_without_them(published, tmp_path):
    job, path = published
    text = job.text.replace(f'root = "{job.output.root}"', f'root = "{tmp_path}"')
    without = run(parse_job("\n".join(line for line in text.splitlines() if not line.startswith("regions"))))
    assert without.path is not None
    assert without.regions is None
    for group in ("posterior", "targets"):
        for name in ("t2m_mean", "t2m_std"):
            ours, theirs = (read_group(where, group)[name] for where in (path, without.path))
            np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    assert "regions" not in parse_job(the_job(regions=None)).canonical()["design"]


def test_plan_counts_them():
    means = cagp.area_means(AS_VALUES, resolution_degrees=6.0)
    with_them = plan_job(parse_job(the_job(regions_resolution_degrees=6.0)))
    without = plan_job(parse_job(the_job(regions=None)))
    assert (with_them.size.regions, with_them.size.region_nodes) == (4, len(means.nodes))
    assert f"4 regions of {len(means.nodes):,} cells" in with_them.size.line()
    assert with_them.plan.q == without.plan.q + 4
    # once in the solve, and once for what the coefficients of the mean add
    assert with_them.plan.gram_entries - without.plan.gram_entries == 2 * 300 * len(means.nodes)
    folds = plan_job(parse_job(the_job(test={"kind": "folds", "count": 5})))
    assert folds.size.solves == 6


def test_export_report_and_terminal(published, tmp_path):
    _, path = published
    (table,) = export_run(path, to="csv", groups=["regions"], output=tmp_path)
    rows = list(csv.DictReader(table.read_text().splitlines()))
    found = read_group(path, "regions")
    assert [row["region"] for row in rows] == found.region.values.tolist() * 2
    assert [float(row["t2m_mean"]) for row in rows] == found.t2m_mean.values.ravel().tolist()
    assert "region_area" in rows[0]
    assert "latitude" not in rows[0]
    assert export_run(path, to="netcdf", groups=["regions"], output=tmp_path)[0].exists()
    page = write_report(path, tmp_path).read_text()
    assert "<h2>Regions</h2>" in page
    assert "Regions over time" in page
    low, high = (f"{float(bound(found.t2m_mean[:, 0])):.2f}" for bound in (np.min, np.max))
    assert f"{found.region.values[0]} between {low}" in page
    assert f"and {high}" in page
    assert (tmp_path / "regions.png").exists()
    job = tmp_path / "job.toml"
    job.write_text(str(read_group(path).attrs["job"]))
    shown = CliRunner().invoke(app, ["run", str(job)])
    assert shown.exit_code == 0, shown.output
    line = next(line for line in shown.output.splitlines() if line.strip().startswith("global"))
    std = float(found.t2m_std[1, 0])
    assert f"± {std:.{1 if std >= 1.0 else 2}f} K" in line
    assert " ≤ " in line
    assert "the last of 2 times" in shown.output


@pytest.mark.exhaustive
def test_with_folds_they_are_of_all_points(tmp_path):
    """One solve for each time with conjugate gradients, whose error bars differ between times."""
    solver = {"name": "conjugate-gradient", "iterations": 3}
    folds = {"kind": "folds", "count": 2}
    job = parse_job(the_job(tmp_path, solver=solver, test=folds, regions=["global", SAHARA]))
    found = run(job).regions
    prepared = prepare_job(job, ingest(job, report=lambda text: None))
    means = cagp.area_means(["global", AS_VALUES[3]])
    for t in range(2):
        prior = cagp.Prior(cagp.Matern32(0.3, 22.0), noise_variance=0.5, mean=mean_of(prepared))
        built = job.solver.build()
        direct = cagp.condition(prior, prepared.X, prepared.y[:, t], means, solver=built)
        np.testing.assert_allclose(found.t2m_mean[t], direct.mean, rtol=1e-9)
        np.testing.assert_allclose(found.t2m_std[t], np.sqrt(direct.variance), rtol=1e-7)


@one_after_another
@pytest.mark.parametrize(
    "regions",
    [
        [],
        "global",
        ["europe"],
        [{"south": 1}],
        [{"name": "x"}],
        [{"name": "x", "nort": 3}],
        [{"name": "x", "west": 3}],
        [{"name": "x", "south": "3"}],
        [{"name": "x", "south": 3, "north": 2}],
        [{"name": "x", "polygon": [[0, 0], [1, 0]]}],
        [{"name": "x", "polygon": [0, 1, 2]}],
        [{"name": "x", "polygon": 3}],
        [{"name": "x", "polygon": [[0, 0], [1, 0], [0, 1]], "south": 3}],
        ["global", "global"],
    ],
)
def test_what_is_no_region_is_said(regions):
    with pytest.raises(ConfigurationError) as refusal:
        parse_job(the_job(regions=regions))
    assert refusal.value.key == "design.regions"


def test_the_canonical_form_says_each_region_in_one_way():
    design = parse_job(the_job()).canonical()["design"]
    assert design["regions"][:2] == ["global", "tropics"]
    assert design["regions"][2] == {"name": "pacific", "south": -30, "north": 30, "west": 150, "east": -100}
    assert design["regions"][3]["polygon"] == SAHARA["polygon"][:-1]
    spelled = [{"name": "global", "south": -90, "north": 90, "west": -180, "east": 180}]
    assert parse_job(the_job(regions=spelled)).canonical()["design"]["regions"] == ["global"]
    assert design["regions_resolution_degrees"] == 2.0
