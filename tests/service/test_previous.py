"""A job that goes on from its run before: which run that is, what changes with it, and what is refused."""

import json
import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

from cagp_dist.cli import app
from cagp_dist.errors import ConfigurationError, StoreError
from cagp_dist.service import ingest as ingestion
from cagp_dist.service.carried_state import run_before
from cagp_dist.service.daily import daily
from cagp_dist.service.ingest import ingest
from cagp_dist.service.job_plan import plan_job
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.published_runs import keep_runs, pruned
from cagp_dist.service.run import run
from cagp_dist.service.series_status import status_of
from cagp_dist.service.task import Simulations, prepare_job
from cagp_dist.service.verification import solve_again, verify_run
from cagp_dist.store import manifest
from cagp_dist.store.earlier import earlier_runs
from cagp_dist.store.publish import make_current
from cagp_dist.store.retention import Retention
from cagp_dist.store.zarr_arrays import read_group

from ..jobs import job_text, map_grid, random_points
from ..sources import save, temperature

pytestmark = pytest.mark.usefixtures("one_blas_thread")

STEP = 45.0
LATITUDE, LONGITUDE = np.arange(-67.5, 90.0, STEP), np.arange(22.5, 360.0, STEP)
DAYS = [f"2020-01-{day:02d}" for day in range(1, 32)]
NUMBERS = {"lengthscale": 0.5, "variance": 60.0, "noise_variance": 6.0}
PRIOR = {**NUMBERS, "mean": "previous", "time_kernel": "matern12", "time_lengthscale_hours": 200.0}
DESIGN = {"train": {"kind": "all"}, "test": random_points(5, seed=1), "map": map_grid(STEP)}


def fields(generator, days):
    """What is observed on some days, (days, n)."""
    along = np.sin(np.deg2rad(np.repeat(LATITUDE, LONGITUDE.size)))
    return 290.0 - 40.0 * along**2 + 7.0 * generator.normal(size=(days, along.size))


def dataset(observed, days):
    values = observed.reshape(-1, LATITUDE.size, LONGITUDE.size)
    return temperature(values, latitude=LATITUDE, longitude=LONGITUDE, times=days)


def the_job(*, prior=None, **tables):
    given = {"observations": {"source": "zarr:nowhere.zarr"}, "design": DESIGN, "solver": None}
    return parse_job(job_text(**{**given, "prior": PRIOR if prior is None else prior, **tables}))


def write_source(path, days):
    """A source with the first days of one history, in place of any that is there."""
    observed = fields(np.random.default_rng(4), 5)
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
    assert (of["run"], of["hours"]) == (first.stem, 24.0)
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
    assert run(job(2)).already_done


def refusal(make):
    with pytest.raises((ConfigurationError, StoreError)) as caught:
        make()
    return str(caught.value)


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
    read, root, observed = [], tmp_path / "out", fields(np.random.default_rng(3), 4)
    (tmp_path / "files").mkdir()

    def ingest(job, report, original=ingestion._ingest):
        read.append(job.observations.listed_times[0][:10])
        return original(job, report)

    def correct(day, kelvin):
        draft = tmp_path / "draft"
        dataset(observed[day] + kelvin, [DAYS[day]]).to_netcdf(draft, engine="h5netcdf")
        draft.replace(tmp_path / f"files/{DAYS[day]}.nc")

    def done(times="2020-01", design=DESIGN, **output):
        read.clear()
        job = days_of("", root)(
            1,
            observations={"source": f"file:{tmp_path}/files", "times": times},
            design=design,
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
    monkeypatch.setattr("cagp_dist.service.daily.SHARE", 1.0)  # one version of the series for a pass
    return correct, done


@pytest.mark.exhaustive
def test_days_that_have_not_changed_are_not_read(corrected_files):
    correct, done = corrected_files
    done = partial(done, design={name: DESIGN[name] for name in ("train", "test")})
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
    chunk = next((path / "state/state_weight").glob("c.*"))
    chunk.write_bytes(chunk.read_bytes()[:-9] + b"123456789")
    assert "state/state_weight" in refusal(lambda: run(job(2)))
    assert not run(job(1)).already_done
    assert said(run(job(2)).path)["run"] == path.stem


def test_several_times_in_one_run_are_refused(job):
    text = refusal(lambda: run(job(2, times=DAYS[:2])))
    assert "2 times in one run" in text
    assert "cagp daily" in text
    assert "2 times in one run" in refusal(lambda: plan_job(job(2, times=DAYS[:2])))


def test_fields_of_the_prior_are_refused(job):
    assert 'mean = "previous"' in refusal(lambda: run(job(1), simulations=Simulations(10)))


OTHER = {**PRIOR, "kernel": "matern52"}


def test_a_run_before_of_another_job_is_refused(after_first):
    job, first = after_first
    text = refusal(lambda: run(job(2, prior=OTHER)))
    assert f"the previous run, {first.stem}, is of another job: its " in text
    assert 'its prior {"kernel": "matern32"}, and of this' in text
    assert "[output] root of its own" in text


@pytest.mark.exhaustive
def test_a_run_of_another_job_is_passed_over_beside_one_of_this_job(after_first):
    job, first = after_first
    other = run(job(2, prior=OTHER, output={"root": first.parents[2] / "other"})).path
    for path in (other, manifest.manifest_path(other)):
        path.rename(first.parent / path.name)  # as if both jobs had begun there
    assert said(run(job(3)).path)["run"] == first.stem


def test_a_run_before_in_another_unit_or_of_another_level_is_refused(after_first):
    job, _ = after_first
    other = job(2)
    prepared = prepare_job(other, ingest(other, report=print))
    high = other.model_copy(update={"observations": other.observations.model_copy(update={"level": 500.0})})
    celsius = replace(prepared.points.variable, units="degC")
    earlier, time = partial(earlier_runs, other.output.folder), prepared.points.times[0]
    for asked, variable in (
        (other, celsius),
        (high, prepared.points.variable),
    ):
        with pytest.raises(ConfigurationError) as refusal:
            run_before(earlier, asked, time=time, variable=variable)
        assert refusal.value.key == "previous-run"


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
    for place in ("zarr.json", "state/time/zarr.json"):
        spoiled(first / place)
    assert f"{first / 'zarr.json'} is damaged" in refusal(lambda: run(job(1)))


@pytest.mark.exhaustive
def test_a_damaged_run_is_not_passed_over_for_an_older_one(after_first):
    """Its attributes, too, are checked: what job it is of is one of them."""
    job, first = after_first
    other = {**DESIGN, "test": random_points(5, seed=7)}
    runs = [first, run(job(1, design=other)).path]
    last = max(runs, key=lambda path: (read_group(path).attrs["date_created"], path.stem))
    for place in (last / "zarr.json", last / "state" / "zarr.json"):
        kept = place.read_text()
        place.write_text(kept.replace("matern32", "matern3}"))
        assert place.read_text() != kept
        assert f"{place} is damaged" in refusal(lambda: run(job(2)))
        place.write_text(kept)
    assert said(run(job(2)).path)["run"] == last.stem


def test_a_damaged_run_has_no_part_where_a_later_one_is_the_run_before(after_second):
    job, first, later = after_second
    spoiled(first / "zarr.json")
    of = said(run(job(4)).path)
    assert (of["run"], of["time"], of["hours"]) == (later.stem, f"{DAYS[1]}T00:00", 48.0)


@pytest.mark.exhaustive
def test_a_run_of_another_kind_has_no_part_however_damaged(job):
    plain = run(job(1, prior={**NUMBERS, "mean": "quadratic-latitude"})).path
    spoiled(manifest.manifest_path(plain))
    assert said(run(job(2)).path)["run"] is None


@pytest.mark.exhaustive
def test_a_time_between_two_seconds_is_not_before_itself(tmp_path, job):
    moment = "2020-01-01T12:00:00.500"
    observed = fields(np.random.default_rng(6), 1)
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
