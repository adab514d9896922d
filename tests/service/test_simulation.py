"""Jobs on fields of their own prior: the same points, prior and solver, published beside the real field."""

import dataclasses
import json
from functools import partial

import numpy as np
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, BudgetError
from cagp_dist.pipeline.field_solves import Execution
from cagp_dist.pipeline.steps import fit
from cagp_dist.service import simulated_jobs as simulation
from cagp_dist.service.ingest import ingest
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.run import run
from cagp_dist.service.simulated_jobs import simulate_job
from cagp_dist.service.task import Simulations, prepare_job
from cagp_dist.store.publish import verify_files
from cagp_dist.store.zarr_arrays import read_group

from ..jobs import job_text, random_points
from ..sources import save, temperature

PRIOR = {"mean": "constant", "lengthscale": 0.4, "variance": 60.0, "noise_variance": 2.0}
SOLVER = {"name": "block-gauss-seidel", "iterations": 1, "block_size": 30}
DESIGN = {"train": random_points(150), "test": random_points(25, seed=1)}
COUNT = 400


@pytest.fixture(scope="module")
def field(tmp_path_factory):
    """Two times of 10 x 20 points; the second lacks some of them."""
    latitude, longitude = np.arange(-81.0, 82.0, 18.0), np.arange(0.0, 360.0, 18.0)
    values = np.random.default_rng(3).normal(280.0, 8.0, (2, latitude.size, longitude.size)).astype("f4")
    field = temperature(values, latitude=latitude, longitude=longitude, times=["2020-01-01", "2020-01-02"])
    return save(field, tmp_path_factory.mktemp("source") / "field.zarr")


def job_of(field, root, **tables):
    standard = {
        "observations": {"source": f"zarr:{field}", "times": ["2020-01-01"]},
        "design": DESIGN,
        "prior": PRIOR,
        "solver": SOLVER,
        "output": {"root": root},
    }
    return parse_job(job_text(**{**standard, **tables}))


@pytest.fixture(scope="module")
def done(field, tmp_path_factory):
    root = tmp_path_factory.mktemp("out")
    events = []
    outcome = run(job_of(field, root), simulations=Simulations(COUNT), observe=events.append)
    return root, outcome, events


def test_the_run_is_that_of_the_job_with_a_group_more(field, done, tmp_path):
    _, outcome, events = done
    verify_files(outcome.path)
    plain = run(job_of(field, tmp_path))
    assert plain.path.stem != outcome.path.stem
    for name in ("posterior", "calibration", "observations"):
        xr.testing.assert_equal(read_group(plain.path, name), read_group(outcome.path, name))
    assert not (plain.path / "simulation").exists()
    stages = [event.stage for event in events if event.kind == "start"]
    assert stages[-2:] == ["Simulation", "Publication"]
    moved = [event.fraction for event in events if (event.stage, event.kind) == ("Simulation", "progress")]
    assert moved == sorted(moved)
    assert moved[-1] == 1.0


def test_the_group_is_what_calibrate_finds_at_the_points_of_the_job(done):
    _, outcome, _ = done
    group = read_group(outcome.path, "simulation")
    observed, test = (read_group(outcome.path, name) for name in ("observations", "posterior"))
    X, X_test = (cagp.unit_sphere(at.latitude.values, at.longitude.values) for at in (observed, test))
    kernel = cagp.Matern32(PRIOR["lengthscale"], PRIOR["variance"])
    found = cagp.calibrate(
        cagp.Prior(kernel, PRIOR["noise_variance"], cagp.mean_family("constant")),
        X,
        X_test,
        solver=cagp.BlockGaussSeidel(1, block_size=30),
        simulations=COUNT,
        generator=np.random.default_rng([0, 2025]),
        weights=group.area_weight.values,
    )
    np.testing.assert_array_equal(group.z, found.z)
    np.testing.assert_array_equal(group.pit, found.pit)
    np.testing.assert_array_equal(group.error_ratio, found.point_std)
    np.testing.assert_array_equal(group.latitude, test.latitude)
    np.testing.assert_array_equal(group.pit_count, found.histogram.counts)
    assert float(group.error_ratio_joint) == found.joint.std
    assert float(group.error_ratio_along) == found.tests.z_std
    for name, value in found.pvalues.items():
        key = {"Kolmogorov-Smirnov": "ks", "ranks": "rank"}.get(name, name)
        assert float(group[f"{key}_pvalue"]) == value
    assert group.attrs["simulation_statement"] == found.verdict.statement
    root = read_group(outcome.path).attrs
    assert root["simulation_status"] == group.attrs["simulation_status"] == "consistent"
    assert root["simulations"] == group.attrs["simulations"] == COUNT
    assert group.attrs["simulated_observations"] == 150
    assert all(group[name].attrs["long_name"] for name in group.variables)
    assert "true values" in group.coverage.attrs["long_name"]
    assert (
        abs(float(group.coverage.sel(level=0.9)) - 0.9) < 0.03
    )  # 10,000 correlated values: 4 errors of 0.7 %


def test_a_job_that_was_calibrated_is_not_done_again(field, done):
    root, outcome, _ = done
    again = run(job_of(field, root), simulations=Simulations(COUNT))
    assert again.already_done
    assert again.path == outcome.path
    assert again.simulation.attrs["simulation_statement"] == outcome.simulation.attrs["simulation_statement"]
    other = run(job_of(field, root), simulations=Simulations(COUNT, seed=1))
    assert not other.already_done
    assert not np.array_equal(other.simulation.z, outcome.simulation.z)


def same_simulation(found, other):
    assert found.simulation.attrs == other.simulation.attrs
    xr.testing.assert_equal(found.simulation.drop_attrs(), other.simulation.drop_attrs())


class CutError(Exception):
    """The end of a run before its end."""


@pytest.mark.exhaustive
def test_a_simulation_that_was_cut_off_goes_on_from_its_checkpoint(field, tmp_path):
    """Cut off in its third iteration, of which the second and the first were kept and are not done again."""
    solver, runtime = {**SOLVER, "iterations": 4}, {"checkpoint_seconds": 0.0}
    job = job_of(field, tmp_path / "cut", solver=solver, runtime=runtime)
    whole = run(job_of(field, tmp_path / "whole", solver=solver, runtime=runtime), simulations=Simulations(9))
    moved = []

    def observe(event, *, last):
        if (event.stage, event.kind) == ("Simulation", "progress") and event.fraction:
            moved.append(event.fraction)
            if event.fraction > last:
                raise CutError

    with pytest.raises(CutError):
        run(job, simulations=Simulations(9), observe=partial(observe, last=0.5))
    manifests = [path for path in tmp_path.rglob("manifest.json") if "simulation" in path.parts]
    assert len(manifests) == 2
    iterations = [json.loads(path.read_text())["about"]["states"][-1]["iteration"] for path in manifests]
    assert sorted(iterations) == [2, 3]
    same_simulation(run(job, simulations=Simulations(9), observe=partial(observe, last=2.0)), whole)
    assert not list(tmp_path.rglob(".checkpoints/*"))


def test_threads_give_the_same_bits(field, done, tmp_path):
    parallel = job_of(field, tmp_path, cluster={"scheduler": "local"})
    same_simulation(run(parallel, simulations=Simulations(COUNT)), done[1])


@pytest.mark.exhaustive
@pytest.mark.parametrize("solver", [SOLVER, {"name": "conjugate-gradient", "iterations": 4}])
def test_a_cluster_gives_the_same_bits(field, tmp_path, solver, two_dask_workers):
    found = [
        run(
            job_of(field, tmp_path / str(number), solver=solver, cluster={"scheduler": scheduler}),
            simulations=Simulations(50),
        )
        for number, scheduler in enumerate((two_dask_workers.scheduler.address, "serial"))
    ]
    same_simulation(*found)


def simulated(field, root, asked=20, memory_limit_bytes=None, note=lambda _: None, **tables):
    """What a job finds, without a run."""
    job = job_of(field, root, **tables)
    prepared = prepare_job(job, ingest(job, report=lambda _: None))
    with cagp.open_executor("serial") as executor:
        execution = Execution(executor, memory_limit_bytes)
        return prepared, simulate_job(
            prepared, fit(prepared.task, execution), Simulations(asked), execution, note=note
        )


@pytest.mark.parametrize(
    "design",
    [
        DESIGN,
        {"train": {"kind": "all"}, "test": random_points(25, seed=1)},
        {"train": {"kind": "all"}, "test": {"kind": "folds", "count": 3}},
    ],
    ids=["some points", "all others", "folds"],
)
def test_error_bars_of_grids_hold(field, tmp_path, design):
    """Exactly, jointly: a value in a wrong place would be an error many times as large as stated."""
    prepared, found = simulated(field, tmp_path, 400, design=design, solver={"name": "rings"})
    assert found.calibration.verdict.kind == "consistent"
    assert found.calibration.joint.degrees_of_freedom == 400 * prepared.design.test.size
    assert found.observed == prepared.design.train.size


def test_fields_are_observed_where_the_first_time_is(field, tmp_path):
    """Of times with gaps of their own; the noise of a point goes with it."""
    prepared, _ = simulated(field, tmp_path, 2)
    gone = prepared.points.values.copy()
    gone[0, prepared.design.train[::2]] = np.nan
    noise = np.random.default_rng(0).uniform(0.1, 9.0, gone.shape[1])
    points = dataclasses.replace(prepared.points, values=gone, noise_variance=noise)
    prepared = dataclasses.replace(prepared, points=points)
    with cagp.open_executor("serial") as executor:
        execution = Execution(executor)
        model = dataclasses.replace(fit(prepared.task, execution), nugget=0.5)
        found = simulate_job(prepared, model, Simulations(400), execution)
    assert found.observed == 75
    assert found.calibration.verdict.kind == "consistent"


def test_errors_are_looked_at_in_no_more_points_than_that(field, tmp_path, monkeypatch):
    monkeypatch.setattr(simulation, "MOST_POINTS", 10)
    prepared, found = simulated(field, tmp_path)
    assert found.points.size == found.area_weight.size == found.calibration.point_std.size == 10
    assert np.isin(found.points, prepared.design.test).all()
    assert np.unique(found.points).size == 10


def test_a_job_whose_points_do_not_fit_is_told_what_to_change(field, tmp_path):
    with pytest.raises(BudgetError) as refusal:
        simulated(field, tmp_path, 2_000, memory_limit_bytes=2**20)
    assert refusal.value.key == "memory"


def test_solvers_with_directions_for_each_field_say_what_that_takes(field, tmp_path):
    said = []
    for name, settings in (("conjugate-gradient", {"iterations": 3}), ("cholesky", {})):
        simulated(field, tmp_path, 30, solver={"name": name, **settings}, note=said.append)
    assert said == [
        "30 fields take directions of their own, as much work as 30 solves; --simulations takes fewer"
    ]


def test_every_solver_says_how_many_fields_and_which_seed():
    for wrong in ({"count": 0}, {"count": 2.5}, {"seed": -1}):
        with pytest.raises(ArgumentError) as refusal:
            Simulations(**wrong)
        assert refusal.value.key == "no-count"
