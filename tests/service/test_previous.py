"""A job whose prior mean is the posterior of its run before: what it takes from it, and that it counts it."""

import json
import shutil
import tomllib
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import cagp_dist as cagp
from cagp_dist.cli import app
from cagp_dist.errors import ConfigurationError, StoreError
from cagp_dist.fields.canonical import canonical
from cagp_dist.fields.selection import Selection
from cagp_dist.mapping.field_solves import Execution
from cagp_dist.runtime import SerialExecutor, ThreadExecutor
from cagp_dist.runtime.dask import DaskExecutor
from cagp_dist.service import ingest as ingestion
from cagp_dist.service.cell_values import CellGrid
from cagp_dist.service.daily import daily
from cagp_dist.service.folds import solve_task
from cagp_dist.service.ingest import ingest
from cagp_dist.service.job_fit import prior_table
from cagp_dist.service.job_plan import plan_job
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.previous import DRAWS, Earlier, Previous, previous_of
from cagp_dist.service.published_runs import keep_runs, pruned
from cagp_dist.service.run import fit_job, run
from cagp_dist.service.series_status import status_of
from cagp_dist.service.task import Simulations, prepare_job
from cagp_dist.service.verification import solve_again, verify_run
from cagp_dist.store import manifest
from cagp_dist.store.earlier import earlier_runs
from cagp_dist.store.publish import make_current
from cagp_dist.store.retention import Retention
from cagp_dist.store.zarr_arrays import read_group

from ..conformance.registered import POINT_SOLVERS
from ..jobs import job_text, map_grid, random_points
from ..sources import save, temperature

pytestmark = pytest.mark.usefixtures("one_blas_thread")

STEP = 15.0
LATITUDE, LONGITUDE = np.arange(-82.5, 90.0, STEP), np.arange(7.5, 360.0, STEP)
POINTS = cagp.unit_sphere(*(each.ravel() for each in np.meshgrid(LATITUDE, LONGITUDE, indexing="ij")))
DAYS = [f"2020-01-{day:02d}" for day in range(1, 32)]
NUMBERS = {"lengthscale": 0.5, "variance": 60.0, "noise_variance": 6.0}
PERSISTENCE = 0.9
KERNEL = cagp.Matern32(0.5, 60.0)
DESIGN = {"train": random_points(60), "test": random_points(30, seed=1), "map": map_grid(STEP)}
CHOLESKY = {"name": "cholesky"}
SWEEPS = {"name": "block-gauss-seidel", "iterations": 6, "block_size": 60}
LEVEL, WIDTH = 0.9, 1.6448536269514722


def fields(generator, days):
    """A field that persists about a mean by latitude, (days, 288), and what is observed of it, with noise."""
    factor = np.linalg.cholesky(KERNEL(POINTS, POINTS) + 1e-9 * np.eye(len(POINTS)))
    field, found = factor @ generator.standard_normal(len(POINTS)), []
    for _ in range(days):
        found.append(field)
        new = factor @ generator.standard_normal(len(POINTS))
        field = PERSISTENCE * field + np.sqrt(1.0 - PERSISTENCE**2) * new
    truth = 290.0 - 40.0 * POINTS[:, 2] ** 2 + np.array(found)
    return truth, truth + np.sqrt(NUMBERS["noise_variance"]) * generator.standard_normal(truth.shape)


def dataset(observed, days):
    values = observed.reshape(-1, LATITUDE.size, LONGITUDE.size)
    return temperature(values, latitude=LATITUDE, longitude=LONGITUDE, times=days)


def the_job(*, prior=None, **tables):
    table = {"mean": "previous", "persistence": PERSISTENCE, **NUMBERS} if prior is None else prior
    given = {"observations": {"source": "zarr:nowhere.zarr"}, "design": DESIGN, "solver": CHOLESKY}
    return parse_job(job_text(**{**given, "prior": table, **tables}))


def task_of(job, observed, day, earlier=None):
    """Task of one day, with what is taken from the day before."""
    field = canonical(dataset(observed, [day]), selection=Selection(value="t2m"))
    task = prepare_job(job, field.assign_attrs(source="simulated", source_sha256="0"))
    return replace(task, previous=Previous(task.previous.time, earlier))


def solved(task, executor=None):
    return solve_task(task, task.prior, Execution(executor or SerialExecutor()))


def earlier_of(task, solution, errors=None):
    """What the day after takes from a day: its map, and draws of its error or others."""
    cells, sampled = task.design.cells, solution.sampled
    return Earlier(
        run="0" * 32,
        time=task.previous.time,
        hours=24.0,
        persistence=PERSISTENCE,
        cells=CellGrid(cells.north, cells.east),
        mean=(solution.steps[-1].mean[:, task.columns.cells] if sampled is None else sampled.mean).T,
        errors=solution.error_draws.T if errors is None else errors,
        sha256="",
    )


def weights_of(task, X_new):
    """Matrix L from observations to the mean at other points, of a solve in which nothing is known before."""
    prior = task.conditioned(task.prior)
    return cagp.condition(prior, task.inputs, np.eye(len(task.inputs)), X_new, solver=task.solver).mean


def test_what_the_run_before_says_between_its_cells_fades_and_what_it_misses_is_known():
    """A third of the way from row to row and a quarter from column to column, also across Greenwich."""
    rng, cells, P, Q = np.random.default_rng(0), CellGrid(LATITUDE, LONGITUDE), LATITUDE.size, LONGITUDE.size
    mean, errors = rng.standard_normal((P * Q, 1)), rng.standard_normal((P * Q, 3))
    earlier = Earlier(
        run="0" * 32,
        time=np.datetime64(DAYS[0], "ns"),
        hours=48.0,
        persistence=0.5,
        cells=cells,
        mean=mean,
        errors=errors,
        sha256="",
    )
    X = cagp.unit_sphere(np.full(2, LATITUDE[3] + STEP / 3.0), LONGITUDE[[2, Q - 1]] + STEP / 4.0)
    W = np.zeros((2, P, Q))
    for target, (west, east) in enumerate(((2, 3), (Q - 1, 0))):
        W[target, 3:5, west] = 0.75 * np.array([2.0, 1.0]) / 3.0
        W[target, 3:5, east] = 0.25 * np.array([2.0, 1.0]) / 3.0
    W = W.reshape(2, P * Q)
    np.testing.assert_allclose(earlier.mean_at(X), 0.5 * (W @ mean)[:, 0], rtol=1e-12)
    np.testing.assert_allclose(earlier.errors_at(X), 0.5 * W @ errors, rtol=1e-12)
    kernel = cagp.Matern32(0.4, 3.0)
    missed = kernel(X, X) - 2.0 * W @ kernel(POINTS, X) + W @ kernel(POINTS, POINTS) @ W.T
    np.testing.assert_allclose(earlier.missed_at(X, kernel), 0.25 * missed.diagonal(), rtol=1e-9)
    assert Previous(earlier.time, earlier).unseen == 0.75


EXACTLY = {name: solver for name, solver in POINT_SOLVERS.items() if solver.calibrated == "exact"}
EXACTLY["neighbours"] = cagp.Neighbours(12, group=1)  # in a group the matrix is of all targets together
UNFINISHED = "block-gauss-seidel, blocks of 3"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=() if name in ("cholesky", "neighbours", UNFINISHED) else pytest.mark.exhaustive
        )
        for name in EXACTLY
    ],
)
def test_the_variance_counts_the_run_before_as_the_joint_law_of_both_days_does_t39(name):
    """T39: with a root of the exact covariance of the first day in place of draws, for every such solver."""
    _, observed = fields(np.random.default_rng(1), 2)
    solver = EXACTLY[name]
    first = replace(task_of(the_job(), observed[0], DAYS[0]), solver=solver)
    design = {**DESIGN, "train": random_points(60, seed=5)}
    L1, X1 = weights_of(first, POINTS), first.inputs
    noise = NUMBERS["noise_variance"]
    seen = KERNEL(POINTS, X1) @ L1.T
    V1 = KERNEL(POINTS, POINTS) - seen - seen.T + L1 @ (KERNEL(X1, X1) + noise * np.eye(60)) @ L1.T
    root = np.linalg.cholesky(V1 + 1e-12 * np.eye(len(V1))) * np.sqrt(len(V1))
    earlier = earlier_of(first, solved(first), root)
    second = task_of(the_job(design=design), observed[1], DAYS[1], earlier)
    second = replace(second, solver=solver)
    found = solved(second)

    X2, targets, p = second.inputs, second.new_inputs, PERSISTENCE
    L2 = weights_of(second, targets)
    to_targets, to_points = (weights_of(first, X) for X in (targets, X2))
    weights = np.hstack([p * (to_targets - L2 @ to_points), L2])
    mean = weights @ np.concatenate([first.targets, second.targets])[:, 0]
    together = np.block([[KERNEL(X1, X1), p * KERNEL(X1, X2)], [p * KERNEL(X2, X1), KERNEL(X2, X2)]])
    together += noise * np.eye(120)
    with_target = np.vstack([p * KERNEL(X1, targets), KERNEL(X2, targets)])
    variance = 60.0 - 2.0 * np.einsum("qi,iq->q", weights, with_target)
    variance += np.einsum("qi,ij,qj->q", weights, together, weights)
    np.testing.assert_allclose(found.steps[-1].mean[0], mean, rtol=1e-8)
    np.testing.assert_allclose(found.steps[-1].std[0] ** 2, variance, rtol=1e-7)


def coverage(generator, *, counted=True, days=4, step=STEP):
    """Part of the central 90 % intervals, of the last of several days, that hold the field."""
    truth, observed = fields(generator, days)
    earlier = None
    first = int(generator.integers(20000))
    for day in range(days):
        design = {**DESIGN, "train": random_points(60, seed=int(generator.integers(1000)))}
        job = the_job(design={**design, "map": map_grid(step)})
        moment = str(np.datetime64("1960-01-01") + first + day)
        task = task_of(job, observed[day], moment, earlier)
        found = solved(task)
        earlier = earlier_of(task, found)
        if not counted:
            earlier = replace(earlier, errors=np.zeros_like(earlier.errors))
    last, columns = found.steps[-1], task.columns.test
    off = np.abs(truth[-1][task.design.test] - last.mean[0, columns])
    return float(np.mean(off <= WIDTH * last.std[0, columns]))


@pytest.mark.exhaustive
@pytest.mark.parametrize("step", [STEP, 22.5], ids=["same-cells", "between-cells"])
def test_intervals_hold_over_two_hundred_fields_and_do_not_without_the_errors_of_the_run_before(step):
    """Four days of 200 fields, each of its own generator and other points every day.

    The standard error is that of 200 independent means. The variance is estimated from 100 draws: with a
    relative error of variance 0.02 at most, the mean coverage of 90 % intervals is lower by
    ``z phi(z) (1 + z^2) / 4 * 0.02 = 0.0031`` at most. With a map that is coarser than the points lie,
    what interpolation misses is drawn independently at each point, which is an approximation.
    """
    found = np.array([coverage(np.random.default_rng([7, i]), step=step) for i in range(200)])
    error = found.std(ddof=1) / np.sqrt(len(found))
    assert error < 0.01
    assert LEVEL - 0.0031 - 3.0 * error < found.mean() < LEVEL + 3.0 * error
    if step > STEP:  # what interpolation misses is the larger part there
        return
    ignored = np.array([coverage(np.random.default_rng([7, i]), counted=False, step=step) for i in range(50)])
    assert ignored.mean() < LEVEL - 0.1, "intervals that ignore the errors of the run before are too narrow"


@pytest.mark.parametrize(
    "solver",
    [pytest.param(CHOLESKY, marks=pytest.mark.exhaustive), {**SWEEPS, "block_size": 25}],
    ids=["cholesky", "sweeps"],
)
def test_threads_and_a_cluster_give_the_bits_of_the_series(solver, two_dask_workers):
    _, observed = fields(np.random.default_rng(2), 2)
    job = the_job(solver=solver)
    first = task_of(job, observed[0], DAYS[0])
    second = task_of(job, observed[1], DAYS[1], earlier_of(first, solved(first)))
    alone = solved(second)
    with ThreadExecutor(2) as threads:
        found = [solved(second, threads), solved(second, DaskExecutor(two_dask_workers))]
    for other in found:
        for name in ("mean", "std"):
            np.testing.assert_array_equal(getattr(other.steps[-1], name), getattr(alone.steps[-1], name))
        np.testing.assert_array_equal(other.error_draws, alone.error_draws)


SAMPLED = {"design": {**DESIGN, "map": {**map_grid(STEP), "std_samples": 400}}}
FOLDS = {**DESIGN, "test": {"kind": "folds", "count": 3, "blocks_degrees": 30.0, "seed": 1}}
EUROPE = {"name": "europe", "south": 35, "north": 70, "west": -10, "east": 40}
REGIONS = {"regions": [EUROPE], "regions_resolution_degrees": 10.0}
LEFT_OUT = {**DESIGN, "train": random_points(110)}


@pytest.mark.parametrize(
    "tables",
    [
        {"design": FOLDS | REGIONS},
        {**SAMPLED, "solver": SWEEPS},
        pytest.param(
            {"design": LEFT_OUT, "recalibration": {"method": "local-scale"}}, marks=pytest.mark.exhaustive
        ),
        pytest.param(
            {"design": {**DESIGN, "train": {"kind": "all"}}, "solver": {"name": "rings"}},
            marks=pytest.mark.exhaustive,
        ),
    ],
    ids=["folds", "sampled-map", "leave-one-out", "rings"],
)
def test_everything_that_a_job_predicts_counts_the_run_before(tables):
    """Twice the errors of the run before are four times the variance that they add, and the same mean."""
    _, observed = fields(np.random.default_rng(3), 2)
    job = the_job(**tables)
    first = task_of(job, observed[0], DAYS[0])
    earlier = earlier_of(first, solved(first))
    found = []
    for factor in (0.0, 1.0, 2.0):
        task = task_of(job, observed[1], DAYS[1], replace(earlier, errors=factor * earlier.errors))
        found.append(solved(task))
    none, once, twice = found
    parts = [lambda solution: solution.steps[-1]]
    parts += [lambda solution: solution.sampled] if once.sampled is not None else []
    parts += [lambda solution: solution.left_out] if once.left_out is not None else []
    for part in parts:
        added = part(once).std ** 2 - part(none).std ** 2
        assert added.min() > 0.0
        np.testing.assert_allclose(part(twice).std ** 2 - part(none).std ** 2, 4.0 * added, rtol=1e-6)
        np.testing.assert_allclose(part(twice).mean, part(none).mean, rtol=1e-12)
    assert (once.left_out is not None) == ("recalibration" in tables)
    assert (once.sampled is not None) == ("std_samples" in str(tables))


# what is published, and what is refused


def write_source(path, days):
    """A source with the first days of one history, in place of any that is there."""
    _, observed = fields(np.random.default_rng(4), 5)
    shutil.rmtree(path, ignore_errors=True)
    return save(dataset(observed[:days], DAYS[:days]), path)


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """A source of five days, and of it what jobs of the first day, and of the first two, have published."""
    folder = tmp_path_factory.mktemp("history")
    source = write_source(folder / "field.zarr", 5)
    run(days_of(source, folder / "one")(1))
    shutil.copytree(folder / "one", folder / "two", symlinks=True)
    run(days_of(source, folder / "two")(2))
    return folder


def days_of(source, root):
    """A function that makes a job of one day, or of whichever times."""

    def make(day, *, times=None, **tables):
        observations = {"source": f"zarr:{source}", "times": [DAYS[day - 1]] if times is None else times}
        return the_job(**{"observations": observations, "output": {"root": root}, **tables})

    return make


@pytest.fixture
def job(history, tmp_path):
    """Jobs of days of the history into a folder in which nothing is."""
    return days_of(history / "field.zarr", tmp_path / "out")


@pytest.fixture
def after_first(history, tmp_path):
    """Jobs where the first day is published, and its run."""
    shutil.copytree(history / "one", tmp_path / "out", symlinks=True)
    (path,) = (tmp_path / "out" / "runs").glob("*.zarr")
    return days_of(history / "field.zarr", tmp_path / "out"), path


@pytest.fixture
def after_second(history, tmp_path):
    """Jobs where two days are published, and their runs."""
    shutil.copytree(history / "two", tmp_path / "out", symlinks=True)
    runs = runs_by_day(tmp_path / "out")
    return days_of(history / "field.zarr", tmp_path / "out"), runs[DAYS[0]], runs[DAYS[1]]


def said(path):
    attributes = read_group(path).attrs
    return {**json.loads(attributes["previous"]), "provenance": json.loads(attributes["provenance"])}


def runs_by_day(root):
    """Runs by their day, of one day the last that was made last."""
    paths = sorted((root / "runs").glob("*.zarr"), key=lambda path: read_group(path).attrs["date_created"])
    return {str(read_group(path, "map")["time"].values[0])[:10]: path for path in paths}


def test_days_are_a_chain_in_order_and_a_day_that_changes_changes_those_after_it(tmp_path):
    source = write_source(tmp_path / "field.zarr", 2)
    the_same = days_of(source, tmp_path / "out")(2, times="2020-01")
    assert [day.version for day in daily(the_same)] == [1, 2]
    runs = runs_by_day(tmp_path / "out")
    first, second = (runs[day] for day in DAYS[:2])
    assert said(first)["run"] is None
    assert "previous_sha256" not in said(first)["provenance"]
    of = said(second)
    assert (of["run"], of["hours"], of["persistence"], of["draws"]) == (first.stem, 24.0, 0.9, DRAWS)
    assert of["provenance"]["previous_run"] == first.stem
    verify_run(second)
    assert solve_again(second, points=5) < 1e-12
    before, after = (float(read_group(path, "map").t2m_std.mean()) for path in (first, second))
    assert after < before, "the day before says something of this one"

    changed = xr.open_zarr(tmp_path / "field.zarr", consolidated=False).load()
    changed.t2m.values[0] += 1.0
    for path in (tmp_path / "out" / "observations", tmp_path / "field.zarr"):
        shutil.rmtree(path)
    save(changed, tmp_path / "field.zarr")
    assert [day.replaced for day in daily(the_same)] == [first.stem, second.stem]
    assert all("already" in day.line() for day in daily(the_same))


@pytest.mark.exhaustive
def test_the_run_before_is_of_the_latest_earlier_time_however_long_ago(job):
    events = []
    later = run(job(3), observe=events.append)
    assert any(event.text.startswith("no run before this time: the first one") for event in events)
    first = run(job(2))
    assert said(later.path)["run"] is None
    assert said(first.path)["run"] is None
    last = said(run(job(5)).path)
    assert (last["run"], last["time"], last["hours"]) == (later.path.stem, f"{DAYS[2]}T00:00", 48.0)
    assert last["persistence"] == pytest.approx(PERSISTENCE**2)
    assert run(job(2)).already_done


@pytest.mark.exhaustive
def test_a_run_without_errors_of_its_map_is_passed_over(job):
    plain = {**NUMBERS, "mean": "quadratic-latitude"}
    other = run(job(1, prior=plain))
    outcome = run(job(2))
    assert said(outcome.path)["run"] is None
    assert "previous" not in read_group(other.path).attrs
    assert not (other.path / "error_draws").exists()


def refusal(make):
    with pytest.raises((ConfigurationError, StoreError)) as caught:
        make()
    return str(caught.value)


@pytest.mark.exhaustive
def test_the_numbers_are_fitted_to_the_field_and_printed_as_a_table_of_a_job(after_first):
    """The same as with a mean by latitude alone: the run before has no part in them."""
    job, _ = after_first  # with numbers that are given
    asked = job(2, prior={"mean": "previous", "persistence": 0.25})
    plain = job(2, prior={"mean": "quadratic-latitude"})
    found = fit_job(asked)
    assert found.result.prior.kernel == fit_job(plain).result.prior.kernel
    table = tomllib.loads(prior_table(asked.prior, found))["prior"]
    again = job(2, prior=table)
    assert (again.prior.mean, again.prior.persistence) == ("previous", 0.25)


@pytest.mark.exhaustive
def test_days_whose_run_before_was_removed_are_not_done_again_as_first_ones(tmp_path):
    root = tmp_path / "out"
    days = days_of(write_source(tmp_path / "field.zarr", 3), root)
    job = days(3, times="2020-01", output={"root": root, "keep": 1})
    times = np.array([day.time for day in daily(job)])
    runs = runs_by_day(root)
    first, second, third = (runs[day] for day in DAYS[:3])
    assert keep_runs(job, times, dry=True) == keep_runs(job, times[1:], dry=True) == []
    make_current(root, run_key=third.stem)
    assert keep_runs(job, times[2:], dry=True) == [f"would be removed  {first}"]
    assert pruned(str(root), Retention(runs=1)) == [f"removed  {first}"]
    shutil.rmtree(second)  # by a command that knew nothing of days that go on from it
    assert [day.version for day in daily(job)] == [None, None, None]
    assert list((root / "runs").glob("*.zarr")) == [third]
    assert [day.replaced for day in daily(days(3, times="2020-01"))] == [None, None, None]
    assert set(runs_by_day(root).values()) == {first, second, third}, "without a rule they are made again"


@pytest.fixture
def corrected_files(tmp_path, monkeypatch):
    """A function that changes the file of a day, and one that does a pass.

    It gives the days of the pass that were read, and solved; and those that are outdated after it.
    """
    read, root, (_, observed) = [], tmp_path / "out", fields(np.random.default_rng(3), 4)
    (tmp_path / "files").mkdir()

    def ingest(job, report, original=ingestion._ingest):
        read.append(job.observations.listed_times[0][:10])
        return original(job, report)

    def correct(day, kelvin):
        draft = tmp_path / "draft"
        dataset(observed[day] + kelvin, [DAYS[day]]).to_netcdf(draft, engine="h5netcdf")
        draft.replace(tmp_path / f"files/{DAYS[day]}.nc")

    def done(times="2020-01", **output):
        read.clear()
        job = days_of("", root)(
            1,
            observations={"source": f"file:{tmp_path}/files", "times": times},
            output={"root": root, **output},
        )
        days = list(daily(job))
        keep_runs(job, [day.time for day in days])
        assert [str(day.time)[:10] for day in days if day.outdated] == [
            str(day.time)[:10] for day in days if "was removed" in day.line()
        ]
        solved = [str(day.time)[:10] for day in days if day.status is not None]
        return sorted({*read}), solved, [str(time)[:10] for time in status_of(root).outdated]

    monkeypatch.setattr(ingestion, "_ingest", ingest)
    return correct, done


def test_days_that_have_not_changed_are_not_read(corrected_files):
    correct, done = corrected_files
    for day in range(3):
        correct(day, 0.0)
    assert done() == (DAYS[:3], DAYS[:3], [])
    assert done() == ([], [], [])
    correct(1, 1.0)
    assert done(DAYS[1:2]) == (DAYS[1:2], DAYS[1:2], DAYS[2:3])
    assert done() == (DAYS[2:3], DAYS[2:3], [])


@pytest.mark.exhaustive
def test_corrections_that_are_not_taken_up_are_named(corrected_files, tmp_path):
    (correct, done), root = corrected_files, tmp_path / "out"
    second, third, fourth = DAYS[1:4]
    for day in range(4):
        correct(day, 0.0)
    assert done() == (DAYS[:4], DAYS[:4], [])
    assert done([fourth], keep=1) == ([], [], [])
    assert {*runs_by_day(root)} == {third, fourth}
    correct(1, 2.0)
    assert done([fourth], keep=1) == ([], [], [second])
    assert done(keep=1) == ([second], [], [second])
    assert "outdated     1 time: 2020-01-02T00:00, done of other data" in "\n".join(status_of(root).lines())
    correct(3, 1.0)
    assert done(keep=1) == ([second, fourth], [fourth], [second])


@pytest.mark.exhaustive
def test_a_damaged_run_before_is_named_and_done_again_by_its_job(after_first):
    job, path = after_first
    chunk = next((path / "error_draws/error_draw").glob("c.*"))
    chunk.write_bytes(chunk.read_bytes()[:-9] + b"123456789")
    assert "error_draws/error_draw" in refusal(lambda: run(job(2)))
    assert not run(job(1)).already_done
    assert said(run(job(2)).path)["run"] == path.stem


def test_several_times_in_one_run_are_refused(job):
    text = refusal(lambda: run(job(2, times=DAYS[:2])))
    assert "2 times in one run" in text
    assert "pipelines.daily" in text


def test_fields_of_the_prior_are_refused(job):
    text = refusal(lambda: run(job(1), simulations=Simulations(10)))
    assert 'mean = "quadratic-latitude"' in text


def test_points_outside_the_map_of_the_run_before_are_refused(job):
    """Its area holds the points of its own day; a day with others is refused before the solve."""
    few = {"train": random_points(8), "test": random_points(3, seed=1), "map": map_grid(STEP)}
    small = job(1, design=few)
    part = small.observations.model_copy(update={"area": (75.0, 0.0, 15.0, 90.0)})
    small = small.model_copy(update={"observations": part})
    run(small)
    text = refusal(lambda: run(job(2)))
    assert "does not hold" in text
    assert "[design] map" in text


PRIOR = {**NUMBERS, "mean": "previous", "persistence": PERSISTENCE}
OTHERS = {
    "solver": ({"solver": {"name": "block-gauss-seidel", "iterations": 5}}, 'its solver {"name": "cholesky"'),
    "kernel": ({"prior": {**PRIOR, "kernel": "matern52"}}, 'its prior {"kernel": "matern32"}, and of this'),
}


@pytest.mark.parametrize("changed", OTHERS)
def test_a_run_before_of_another_job_is_refused(changed, after_first):
    tables, expected = OTHERS[changed]
    job, first = after_first
    text = refusal(lambda: run(job(2, **tables)))
    assert f"the previous run, {first.stem}, is of another job: its " in text
    assert expected in text
    assert "[output] root of its own" in text


@pytest.mark.exhaustive
def test_a_run_of_another_job_is_passed_over_beside_one_of_this_job(after_first):
    job, first = after_first
    tables, _ = OTHERS["kernel"]
    other = run(job(2, **tables, output={"root": first.parents[2] / "other"})).path
    for path in (other, manifest.manifest_path(other)):
        path.rename(first.parent / path.name)  # as if both jobs had begun there
    assert said(run(job(3)).path)["run"] == first.stem


@pytest.mark.exhaustive
def test_the_run_before_may_have_had_other_numbers_of_the_prior(after_first):
    job, first = after_first
    outcome = run(job(2, prior={**PRIOR, "variance": 50.0, "persistence": 0.5}))
    assert said(outcome.path)["run"] == first.stem


def test_a_run_before_in_another_unit_or_of_another_level_is_refused(after_first):
    job, _ = after_first
    other = job(2)
    task = prepare_job(other, ingest(other, report=print))
    high = other.model_copy(update={"observations": other.observations.model_copy(update={"level": 500.0})})
    celsius = replace(task.points.variable, units="degC")
    for asked, variable, expected in (
        (other, celsius, 'its units "K", and of this one "degC"'),
        (high, task.points.variable, "its level null, and of this one 500.0"),
    ):
        with pytest.raises(ConfigurationError, match=expected):
            previous_of(
                partial(earlier_runs, other.output.folder), asked, times=task.points.times, variable=variable
            )


def spoiled(path):
    """Damage a file of text."""
    path.write_text(path.read_text().replace('"', "'") if path.suffix == ".json" else "")


@pytest.mark.exhaustive
@pytest.mark.parametrize("place", ["zarr.json", pytest.param("../KEY.sha256", marks=pytest.mark.exhaustive)])
def test_damaged_metadata_of_a_run_are_named_and_its_own_job_replaces_it(place, after_first):
    job, first = after_first
    place = first / place if place == "zarr.json" else manifest.manifest_path(first)
    spoiled(place)
    assert str(place) in refusal(lambda: run(job(2)))
    assert not run(job(1)).already_done
    assert said(run(job(2)).path)["run"] == first.stem


def test_a_run_that_does_not_say_its_time_at_all_is_named_by_every_job(after_first):
    job, first = after_first
    for place in ("zarr.json", "error_draws/time/zarr.json"):
        spoiled(first / place)
    assert f"{first / 'zarr.json'} is damaged" in refusal(lambda: run(job(1)))


@pytest.mark.exhaustive
def test_a_damaged_run_is_not_passed_over_for_an_older_one(after_first):
    """Its attributes, too, are checked: what job it is of is one of them."""
    job, first = after_first
    runs = [first, run(job(1, prior={**PRIOR, "variance": 50.0})).path]
    last = max(runs, key=lambda path: (read_group(path).attrs["date_created"], path.stem))
    for place in (last / "zarr.json", last / "error_draws" / "zarr.json"):
        kept = place.read_text()
        place.write_text(kept.replace("cholesky", "cholesk}"))
        assert place.read_text() != kept
        assert f"{place} is damaged" in refusal(lambda: run(job(2)))
        place.write_text(kept)
    assert said(run(job(2)).path)["run"] == last.stem


def test_a_damaged_run_has_no_part_where_a_later_one_is_the_run_before(after_second):
    """Two days later, so that the persistence of a day counts twice."""
    job, first, later = after_second
    spoiled(first / "zarr.json")
    of = said(run(job(4)).path)
    assert (of["run"], of["time"], of["hours"]) == (later.stem, f"{DAYS[1]}T00:00", 48.0)
    assert of["persistence"] == pytest.approx(PERSISTENCE**2)


@pytest.mark.exhaustive
def test_a_run_of_another_kind_has_no_part_however_damaged(job):
    plain = run(job(1, prior={**NUMBERS, "mean": "quadratic-latitude"})).path
    spoiled(manifest.manifest_path(plain))
    assert said(run(job(2)).path)["run"] is None


@pytest.mark.exhaustive
def test_a_time_between_two_seconds_is_not_before_itself(tmp_path, job):
    moment = "2020-01-01T12:00:00.500"
    _, observed = fields(np.random.default_rng(6), 1)
    source = save(dataset(observed, [moment]), tmp_path / "half.zarr")
    asked = job(1, observations={"source": f"zarr:{source}", "times": [moment]})
    assert said(run(asked).path)["run"] is None
    assert run(asked).already_done


@pytest.mark.exhaustive
def test_a_run_is_solved_again_from_the_run_that_it_names_and_verify_goes_on_where_that_was_removed(
    after_first,
):
    job, first = after_first
    second = run(job(3)).path
    root = first.parents[1]
    between = run(job(2)).path  # of an earlier time, and made later

    def verified():
        return CliRunner().invoke(app, ["verify", str(root), "--solve", "3"])

    def removed(path):  # as `cagp prune` does
        shutil.rmtree(path)
        manifest.manifest_path(path).unlink()

    result = verified()
    assert (result.exit_code, result.stdout.count("solved again, differs by at most ")) == (0, 3), (
        result.output
    )
    make_current(root, run_key=second.stem)
    removed(between)
    assert verified().stdout.count("solved again, differs by at most ") == 2
    removed(first)
    result = verified()
    assert (result.exit_code, result.stdout.splitlines()[0]) == (2, f"undamaged  {second}")
    assert (
        f"{second} is not solved again: the previous run, {first.stem}, whose posterior is its mean, is"
        in result.stdout
    )


def test_a_run_whose_source_is_gone_is_not_solved_again(history, after_first):
    _, path = after_first
    shutil.rmtree(path.parents[1] / "observations")
    source = history / "field.zarr"
    source.rename(history / "gone.zarr")
    result = CliRunner().invoke(app, ["verify", str(path.parents[1]), "--solve", "3"])
    (history / "gone.zarr").rename(source)
    assert result.exit_code == 2
    assert f"{path} is not solved again: " in result.stdout


def test_a_map_that_does_not_hold_all_points_or_cannot_be_interpolated_is_refused_on_the_first_day(job):
    small = {**DESIGN, "map": {**map_grid(STEP), "area": [90.0, 0.0, 0.0, 360.0]}}
    text = refusal(lambda: run(job(1, design=small)))
    assert "the map of this job does not hold" in text
    row = {**DESIGN, "map": {**map_grid(STEP), "area": [STEP, 0.0, 0.0, 360.0]}}
    assert "1 x 24 of them; expected at least 2 along each axis" in refusal(lambda: run(job(1, design=row)))


def test_blank_cells_of_the_map_are_refused():
    _, observed = fields(np.random.default_rng(5), 1)
    observed[0, 40:80] = np.nan
    with pytest.raises(ConfigurationError, match=r'which has \d+ blank cells here; write mask = "none"'):
        task_of(the_job(), observed[0], DAYS[0])


def test_a_plan_counts_the_draws_of_errors(job):
    """Of the second day 101 columns are solved for, and of all days 100 draws are kept."""
    plain = {**NUMBERS, "mean": "quadratic-latitude"}
    without = plan_job(job(1, prior=plain))
    with_it = plan_job(job(1))
    assert (with_it.solves, with_it.plan.fields, without.plan.fields) == (1, 1 + DRAWS, 1)
    cells = with_it.size.mapped
    assert with_it.disk_need(60.0).run_bytes - without.disk_need(60.0).run_bytes == 4 * DRAWS * cells
    assert any(line.startswith("100 draws of the error of the map") for line in with_it.lines())
    solver = {"name": "block-gauss-seidel", "iterations": 5}
    sweeps = plan_job(job(1, solver=solver))
    assert sweeps.plan.checkpoint_bytes > 0
    assert sweeps.disk_need(0.0).checkpoint_bytes == 3 * sweeps.plan.checkpoint_bytes, "two and the next one"
    assert "2 times in one run" in refusal(lambda: plan_job(job(2, times=DAYS[:2])))


PREVIOUS = {**NUMBERS, "mean": "previous", "persistence": 0.5}
SHARE = {"name": "block-gauss-seidel", "iterations": 5, "computational_share": 0.1}
NO_MAP = {key: value for key, value in DESIGN.items() if key != "map"}
KEPT = {**DESIGN, "calibration": random_points(100, seed=3)}


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ({"prior": {**NUMBERS, "mean": "previous"}}, "given without persistence"),
        (
            {"prior": {**NUMBERS, "persistence": 0.5}},
            'persistence cannot be combined with mean = "constant"',
        ),
        ({"prior": {**PREVIOUS, "persistence": 1.0}}, "above 0 and below 1"),
        ({"prior": {**PREVIOUS, "covariates": ["file:relief.nc:z"]}}, "does not tell how they vary"),
        ({"design": {**DESIGN, "map": {**map_grid(STEP), "kind": "cells"}}}, "reads mean and errors from"),
        ({"design": NO_MAP}, "reads mean and errors from the map"),
        (
            {"design": {**DESIGN, "map": {**map_grid(STEP), "std_resolution_degrees": 30.0}}},
            "of one resolution",
        ),
        ({"solver": {"name": "conjugate-gradient", "iterations": 5}}, "must not depend on the values"),
        ({"solver": SHARE}, "leave computational_share out"),
        ({"recalibration": {"method": "sharp"}, "design": KEPT}, "tries other lengthscales"),
    ],
)
def test_a_job_that_cannot_hand_its_errors_on_is_refused(tables, expected):
    assert expected in refusal(lambda: the_job(**tables))


def test_a_map_is_interpolated_over_the_seam_and_constant_beyond_its_last_centres():
    grid = CellGrid(np.array([-45.0, 45.0]), np.array([45.0, 135.0, 225.0, 315.0]))
    values = np.array([[0.0, 1.0, 2.0, 3.0, 10.0, 11.0, 12.0, 13.0]]).T
    at = cagp.unit_sphere([-45.0, -45.0, 0.0, 80.0, -45.0], [45.0, 0.0, 180.0, 90.0, 300.0])
    np.testing.assert_allclose(grid.at(at, values)[:, 0], [0.0, 1.5, 6.5, 10.5, 2.0 + 75.0 / 90.0])
    assert not grid.outside(np.array([-90.0, 90.0]), np.array([0.0, 17.0])).any()
    west = CellGrid(np.array([40.0, 50.0]), np.array([-10.0, 0.0]))
    assert west.outside(np.array([45.0] * 4), np.array([346.0, 344.0, 4.0, 6.0])).tolist() == [
        False,
        True,
        False,
        True,
    ]
    np.testing.assert_allclose(
        west.at(cagp.unit_sphere([40.0], [355.0]), np.array([[0.0, 4.0, 0.0, 0.0]]).T), [[2.0]]
    )


def test_what_interpolation_misses_is_its_variance_over_fields():
    """Dense: ``b K b'`` with ``b = (1, -w)``; none at a centre."""
    grid = CellGrid(LATITUDE, LONGITUDE)
    at = cagp.unit_sphere([0.0, 3.0, -82.5, 89.0], [0.0, 10.0, 7.5, 100.0])
    weights = grid.at(at, np.eye(grid.size))
    together = KERNEL(np.vstack([at, POINTS]), np.vstack([at, POINTS]))
    signed = np.hstack([np.eye(4), -weights])
    expected = np.diag(signed @ together @ signed.T)
    np.testing.assert_allclose(grid.missed(at, KERNEL), expected, atol=1e-10)
    assert grid.missed(at, KERNEL)[2] == pytest.approx(0.0, abs=1e-10)
