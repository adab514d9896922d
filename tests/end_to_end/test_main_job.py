"""The main job from file to published run: same bits everywhere, done once, changed when the job changes."""

import json
import multiprocessing
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from cagp_dist.geometry import unit_sphere
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.run import run
from cagp_dist.solvers import Status
from cagp_dist.store.publish import verify_files

from ..jobs import job_text, map_grid, random_points
from ..sources import save, temperature

GROUPS = ("posterior", "map", "calibration", "trace", "observations")

JOB = job_text(
    design={"train": random_points(500), "test": random_points(80, seed=1), "map": map_grid(30.0)},
    prior={"mean": "quadratic-latitude", "lengthscale": 0.2, "variance": 60.0, "noise_variance": 2.0},
    solver={"name": "block-gauss-seidel", "iterations": 3, "block_size": 96},
)


def two_times(path: Path) -> Path:
    """A smooth field at two times, in the layout of the Climate Data Store, as a Zarr store."""
    latitude, longitude = np.arange(-82.5, 90.0, 15.0), np.arange(0.0, 360.0, 15.0)
    phi, lam = np.deg2rad(latitude)[None, :, None], np.deg2rad(longitude)[None, None, :]
    drift = np.array([0.0, 1.0])[:, None, None]
    values = 285.0 - 40.0 * np.sin(phi) ** 2 + 5.0 * np.cos(phi) * np.sin(2.0 * lam + drift)
    times = ["2020-01-01T00:00", "2020-01-01T06:00"]
    field = temperature(values, latitude=latitude, longitude=longitude, times=times, time="valid_time")
    return save(field, path)


def small_job(folder: Path) -> str:
    """A job that takes a moment."""
    field = folder / "field.zarr"
    if not field.exists():
        two_times(field)
    text = JOB.replace("count = 500", "count = 100").replace("count = 80", "count = 20")
    return text.replace('"sample"', f'"zarr:{field}"')


def fit_job(root: Path, *, scheduler: str = "serial"):
    """A job on two synthetic fields that leaves the numbers of its prior out."""
    text = JOB.replace('"sample"', '"synthetic"\ngrid_degrees = 10.0\ntimes = ["2020-01-01", "2020-07-01"]')
    text = text.replace("[design]", "[observations.synthetic]\nlengthscale = 0.3\n[design]")
    text = text.replace(
        'mean = "quadratic-latitude"\nlengthscale = 0.2\nvariance = 60.0\nnoise_variance = 2.0',
        'mean = "harmonic-latitude"',
    )
    # on so coarse a grid only the crowd at the poles has neighbours close enough to tell noise from field
    text = text.replace("seed = 0 }", 'seed = 0, weight = "equal" }').replace(
        "seed = 1 }", 'seed = 1, weight = "equal" }'
    )
    return job_in(root, text.replace("count = 500", "count = 200"), scheduler=scheduler)


def job_in(root: Path, text: str = JOB, *, scheduler: str = "serial"):
    changed = text.replace('scheduler = "serial"', f'scheduler = "{scheduler}"')
    return parse_job(f"{changed}\n[output]\nroot = {json.dumps(str(root))}\n")


def arrays(path: Path) -> dict[str, np.ndarray]:
    """Every number of a run except the seconds it took."""
    found = {}
    for group in GROUPS:
        with xr.open_zarr(path, group=group) as dataset:
            found |= {f"{group}/{name}": variable.values for name, variable in dataset.variables.items()}
    del found["trace/seconds"]
    return found


def assert_same_bits(first: Path, second: Path) -> None:
    assert first.name == second.name  # the run key does not depend on where the work was done
    expected, actual = arrays(first), arrays(second)
    assert expected.keys() == actual.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(values, actual[name], err_msg=name, strict=True)


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    root = tmp_path_factory.mktemp("serial")
    return run(job_in(root)).path


RECALIBRATED = JOB.replace("[prior]", 'calibration = { kind = "random", count = 150, seed = 2 }\n[prior]')


@pytest.fixture(scope="module")
def recalibrated(tmp_path_factory):
    """The same job, whose distributions are corrected by errors at calibration points."""
    return run(job_in(tmp_path_factory.mktemp("recalibrated"), RECALIBRATED)).path


@pytest.mark.exhaustive
def test_threads_give_the_same_bits(serial, recalibrated, tmp_path):
    assert_same_bits(serial, run(job_in(tmp_path, scheduler="local")).path)
    assert "posterior/t2m_quantile" in arrays(recalibrated)
    assert_same_bits(recalibrated, run(job_in(tmp_path, RECALIBRATED, scheduler="local")).path)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    return run(fit_job(tmp_path_factory.mktemp("fitted"))).path


def test_a_fitted_prior_is_in_the_run(fitted):
    attributes = xr.open_zarr(fitted).attrs
    prior, fit = json.loads(attributes["prior"]), json.loads(attributes["fit"])
    assert (prior["kernel"], prior["mean"]) == ("matern32", "harmonic-latitude")
    for name, truth in (("lengthscale", 0.3), ("variance", 22.0), ("noise_variance", 0.5)):
        assert abs(prior[name] - truth) < 4.0 * fit["standard_errors"][name]
    assert attributes["noise_variance"] == prior["noise_variance"]
    assert (fit["status"], fit["method"], fit["points"]) == ("converged", "dense", 200)
    assert (fit["fit_to"], fit["where"]) == ("observed", "the 200 observed points")
    assert fit["log_likelihood"] < 0.0
    assert fit["gradient_norm"] < 1.0
    assert json.loads(attributes["timings"]).keys() == {
        "Observations",
        "Points",
        "Fit",
        "Solve",
        "Scores",
        "Results",
    }
    scores = xr.open_zarr(fitted, group="calibration")
    assert 0.7 < float(scores.coverage.sel(level=0.8)) < 0.9


@pytest.mark.exhaustive
def test_threads_fit_and_solve_to_the_same_bits(fitted, tmp_path):
    other = run(fit_job(tmp_path, scheduler="local")).path
    assert_same_bits(fitted, other)
    for name in ("prior", "fit"):
        assert xr.open_zarr(other).attrs[name] == xr.open_zarr(fitted).attrs[name]


def test_a_fitted_job_is_done_once_without_fitting_again(fitted, monkeypatch):
    monkeypatch.setattr("cagp_dist.service.run.fit_prior", None)
    again = run(fit_job(fitted.parents[1], scheduler="local"))
    assert again.already_done
    assert again.path == fitted
    first, bars = repr(again).splitlines()
    assert first == f"{again.status.value}, {fitted}, already published"
    assert bars == again.calibration.attrs["calibration_statement"]


@pytest.mark.exhaustive
def test_a_climatology_is_part_of_the_job(tmp_path):
    """The field itself, shifted, as climatology is the prior mean; a changed climatology is another run."""
    usual = tmp_path / "usual.zarr"

    def write(shift):
        with xr.open_zarr(tmp_path / "field.zarr", consolidated=False) as field:
            shifted = (field.isel(valid_time=[0]) + shift).assign_attrs(field.attrs)
            shifted.to_zarr(usual, mode="w", zarr_format=3, consolidated=False)

    text = small_job(tmp_path).replace('"quadratic-latitude"', f'"climatology:{usual}"')
    text = text.replace("[observations]\n", '[observations]\ntimes = ["2020-01-01T00:00"]\n')
    job = job_in(tmp_path / "out", text.replace("iterations = 3", "iterations = 0"))
    write(5.0)
    first = run(job)
    posterior = xr.open_zarr(first.path, group="posterior").load()
    np.testing.assert_allclose(posterior.t2m_mean, posterior.t2m, atol=1e-3)
    provenance = json.loads(xr.open_zarr(first.path).attrs["provenance"])
    assert provenance["climatology"] == str(usual)
    assert run(job).already_done

    write(6.0)
    changed = run(job)
    assert not changed.already_done
    assert changed.path != first.path


@pytest.mark.exhaustive
@pytest.mark.cluster
def test_dask_processes_give_the_same_bits(serial, recalibrated, fitted, tmp_path, two_dask_workers):
    scheduler = two_dask_workers.scheduler.address
    assert_same_bits(serial, run(job_in(tmp_path, scheduler=scheduler)).path)
    other = run(job_in(tmp_path / "recalibrated", RECALIBRATED, scheduler=scheduler))
    assert_same_bits(recalibrated, other.path)
    assert_same_bits(fitted, run(fit_job(tmp_path / "fit", scheduler=scheduler)).path)


def test_the_run_is_the_posterior_of_the_published_observations(serial):
    """An independent dense solve from what the run itself holds."""
    observed = xr.open_zarr(serial, group="observations").load()
    test = xr.open_zarr(serial, group="posterior").load()
    last = xr.open_zarr(serial, group="trace").isel(iteration=-1).load()
    X, X_new = (unit_sphere(group.latitude, group.longitude) for group in (observed, test))
    y = observed.t2m.values[0]

    def kernel(A, B):
        u = np.sqrt(3.0) * np.linalg.norm(A[:, None] - B[None], axis=2) / 0.2
        return 60.0 * (1.0 + u) * np.exp(-u)

    def powers(group):
        return np.stack([group.latitude.values**k for k in range(3)], axis=1)

    G, V = kernel(X, X) + 2.0 * np.eye(len(X)), kernel(X_new, X)
    # generalised least squares: up to 1,024 points their weights are exact
    weights = np.linalg.solve(G, powers(observed))
    covariance = np.linalg.inv(powers(observed).T @ weights)
    coefficients = covariance @ (weights.T @ y)
    residual = y - powers(observed) @ coefficients

    # m sweeps of block Gauss-Seidel, written as v <- v + L^-1 (b - G v); the variance with D of math 2
    blocks = np.arange(len(X)) // 96
    inverse = np.linalg.inv(np.where(blocks[:, None] >= blocks[None, :], G, 0.0))
    A, D = np.zeros_like(G), np.zeros_like(G)
    for _ in range(3):
        M = np.eye(len(X)) - inverse @ G
        A = inverse + M @ A
        D = inverse + inverse.T - inverse @ G @ inverse.T + M @ D @ M.T
    mean = powers(test) @ coefficients + V @ A @ residual
    variance = 60.0 - np.einsum("ij,jk,ik->i", V, D, V)
    # equation of math 1.7 with W = G^-1 H: what is added is R C R' less that of what sweeps have left
    exact, reached = (powers(test) - V @ of_basis for of_basis in (weights, A @ powers(observed)))
    for left, sign in ((exact, 1.0), (reached - exact, -1.0)):
        variance += sign * np.einsum("ij,jk,ik->i", left, covariance, left)

    np.testing.assert_allclose(test.t2m_mean.values[0], mean, rtol=1e-9)
    np.testing.assert_allclose(test.t2m_std.values[0] ** 2, variance, rtol=1e-8)
    error = test.t2m.values[0] - mean
    assert np.isclose(last.rmse, np.sqrt(np.mean(error**2)), rtol=1e-9)
    nll = np.mean(0.5 * np.log(2 * np.pi * (variance + 2.0)) + 0.5 * error**2 / (variance + 2.0))
    assert np.isclose(last.nll, nll, rtol=1e-9)


def test_the_run_says_where_it_comes_from(serial):
    attributes = xr.open_zarr(serial).attrs
    assert parse_job(attributes["job"]).design.train.count == 500
    assert attributes["status"] == "completed"
    assert attributes["solver_calibrated"] is True
    assert attributes["solver_calibration"] == "exact"
    assert attributes["solver"] == "block-gauss-seidel, iterations 3, block size 96"
    assert attributes["calibration_status"] in ("consistent", "too-narrow", "too-wide", "wrong-shape")
    assert "% of the held-out observations lie inside their" in attributes["calibration_statement"]
    group = xr.open_zarr(serial, group="calibration").attrs
    for name in ("calibration_status", "calibration_statement"):
        assert attributes[name] == group[name]
    assert "calibrated" not in attributes["title"]
    assert "calibrated" not in attributes
    assert attributes["noise_variance"] == 2.0
    assert attributes["merged_pole_copies"] == 2 * 479
    assert attributes["train_count"] == 500
    assert attributes["run_key"] == serial.stem
    assert attributes["executor"] == "serial"
    assert json.loads(attributes["provenance"])["source"] == "sample"
    assert json.loads(attributes["timings"]).keys() == {
        "Observations",
        "Points",
        "Solve",
        "Scores",
        "Results",
    }
    assert any("500 observed points" in line for line in json.loads(attributes["plan"]))


def test_every_score_is_published_in_both_weightings(serial):
    """The area-weighted ones from what the run holds, by hand."""
    test = xr.open_zarr(serial, group="posterior").load()
    scores = xr.open_zarr(serial, group="calibration").load()
    np.testing.assert_allclose(scores.area_weight, 1.0)  # drawn in proportion to area
    equal = parse_job(xr.open_zarr(serial).attrs["job"].replace("seed = 1", 'seed = 1, weight = "equal"'))
    path = run(
        equal.model_copy(update={"output": equal.output.model_copy(update={"root": str(serial.parents[1])})})
    ).path
    test, scores = (xr.open_zarr(path, group=name).load() for name in ("posterior", "calibration"))
    weights = np.cos(np.deg2rad(test.latitude.values))
    np.testing.assert_allclose(scores.area_weight, weights / weights.mean(), rtol=1e-9)
    error, std = (test.t2m - test.t2m_mean).values[0], test.t2m_predictive_std.values[0]
    np.testing.assert_allclose(std**2, test.t2m_std.values[0] ** 2 + 2.0)
    assert float(scores.rmse) == pytest.approx(np.sqrt(np.mean(error**2)))
    assert float(scores.rmse_area_weighted) == pytest.approx(np.sqrt(np.average(error**2, weights=weights)))
    density = 0.5 * np.log(2 * np.pi * std**2) + 0.5 * (error / std) ** 2
    assert float(scores.nll_area_weighted) == pytest.approx(np.average(density, weights=weights))
    inside = np.abs(error / std) <= 1.6448536269514722
    assert float(scores.coverage_area_weighted.sel(level=0.9)) == pytest.approx(
        np.average(inside, weights=weights)
    )


def test_the_map_and_the_test_points_are_one_posterior(serial):
    grid = xr.open_zarr(serial, group="map").load()
    assert grid.t2m_mean.shape == (1, 6, 12)
    assert grid.latitude.values.tolist() == [-75.0, -45.0, -15.0, 15.0, 45.0, 75.0]
    assert (grid.t2m_mean.sel(latitude=-15).min() > grid.t2m_mean.sel(latitude=-75).max()).item()
    assert ((grid.t2m_std > 0) & (grid.t2m_std < np.sqrt(60.0))).all()


def test_train_and_test_points_do_not_meet(serial):
    observed, test = (xr.open_zarr(serial, group=group) for group in ("observations", "posterior"))
    places = [
        set(zip(group.latitude.values, group.longitude.values, strict=True)) for group in (observed, test)
    ]
    assert [len(place) for place in places] == [500, 80]
    assert not places[0] & places[1]


def test_a_job_is_done_once_and_a_changed_job_is_another_run(tmp_path):
    small, tmp_path = small_job(tmp_path), tmp_path / "out"
    first = run(job_in(tmp_path, small))
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}

    again = run(job_in(tmp_path, small, scheduler="local"))
    assert again.already_done
    assert again.path == first.path
    assert again.status is first.status
    assert float(again.calibration.rmse) == float(first.calibration.rmse)
    unchanged = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert unchanged == files | {tmp_path / ".lock": unchanged[tmp_path / ".lock"]}

    changed = run(job_in(tmp_path, small.replace("seed = 1", "seed = 2")))
    assert not changed.already_done
    assert changed.path != first.path
    assert (tmp_path / "CURRENT").read_text().strip() == changed.path.stem
    verify_files(first.path)
    verify_files(changed.path)

    back = run(job_in(tmp_path, small))
    assert back.already_done
    assert (tmp_path / "CURRENT").read_text().strip() == first.path.stem


@pytest.mark.exhaustive
def test_a_damaged_run_is_done_again(tmp_path):
    small, tmp_path = small_job(tmp_path), tmp_path / "out"
    first = run(job_in(tmp_path, small))
    chunk = next(path for path in sorted(first.path.rglob("c.*")) if path.is_file())
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"x")
    again = run(job_in(tmp_path, small))
    assert not again.already_done
    verify_files(again.path)


def _race(root: str, job: str, queue) -> None:
    try:
        queue.put("done before" if run(job_in(Path(root), job)).already_done else "done")
    except Exception as error:
        queue.put(type(error).__name__)


@pytest.mark.exhaustive
def test_two_processes_publish_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    small = small_job(tmp_path)
    racers = [context.Process(target=_race, args=(str(tmp_path), small, queue)) for _ in range(2)]
    for racer in racers:
        racer.start()
    ends = sorted(queue.get(timeout=600) for _ in racers)
    for racer in racers:
        racer.join(timeout=600)
    assert ends in (["BusyError", "done"], ["done", "done before"])
    assert len(list((tmp_path / "runs").glob("*.zarr"))) == 1


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("solver", "many"),
    [
        pytest.param('name = "gauss-seidel"\niterations = 2', True, marks=pytest.mark.exhaustive),
        ('name = "conjugate-gradient"\niterations = 4', False),
        pytest.param('name = "random-actions"\niterations = 3', True, marks=pytest.mark.exhaustive),
        pytest.param('name = "cholesky"', True, marks=pytest.mark.exhaustive),
        pytest.param('name = "block-gauss-seidel"\niterations = 0', True, marks=pytest.mark.exhaustive),
    ],
)
def test_every_solver_does_several_times(tmp_path, solver, many):
    """Two times in one job equal the same two times in two jobs."""
    field = two_times(tmp_path / "two.zarr")
    head, tail = JOB.split("[solver]")
    text = head.replace('"sample"', f'"zarr:{field}"') + f"[solver]\n{solver}\n[cluster]\n"
    text = text.replace("count = 500", "count = 90").replace("count = 80", "count = 15")
    text += tail.split("[cluster]\n")[1]
    both = run(job_in(tmp_path / "both", text))
    together = xr.open_zarr(both.path, group="posterior").load()
    steps = xr.open_zarr(both.path, group="trace").load()
    assert together.t2m_mean.shape == (2, 15)
    shared = np.array_equal(together.t2m_std.values[0], together.t2m_std.values[1])
    assert shared == many
    for index, time in enumerate(("2020-01-01T00:00", "2020-01-01T06:00")):
        alone = text.replace("[observations]\n", f'[observations]\ntimes = ["{time}"]\n')
        single = run(job_in(tmp_path / f"single{index}", alone))
        one = xr.open_zarr(single.path, group="posterior").load()
        assert one.time.values == together.time.values[index]
        np.testing.assert_allclose(one.t2m_mean.values[0], together.t2m_mean.values[index], rtol=1e-12)
        np.testing.assert_allclose(one.t2m_std.values[0], together.t2m_std.values[index], rtol=1e-12)
    assert steps.iteration.size >= (1 if "iterations = 0" in solver else 2)
    assert (np.diff(steps.seconds) >= 0).all()


def test_a_solve_that_did_not_end_well_is_published_only_if_asked(tmp_path):
    """Sweeps that leave more of a variance uncomputed than was asked for."""
    field = two_times(tmp_path / "two.zarr")
    text = job_text(
        observations={"source": f"zarr:{field}", "times": ["2020-01-01T00:00"]},
        design={"train": {"kind": "all"}, "test": random_points(20)},
        prior={"lengthscale": 1.0, "variance": 22.0, "noise_variance": 1.0},
        solver={"name": "gauss-seidel", "iterations": 1, "computational_share": 1e-6},
    )
    outcome = run(job_in(tmp_path / "out", text))
    assert outcome.status is Status.SHARE_NOT_REACHED
    assert outcome.path is None
    assert not (tmp_path / "out" / "CURRENT").exists()
    asked = run(job_in(tmp_path / "out", text), publish_unconverged=True)
    assert asked.path is not None
    assert xr.open_zarr(asked.path).attrs["status"] == asked.status.value
    assert not run(job_in(tmp_path / "out", text)).status.ok
