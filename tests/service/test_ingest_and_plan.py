import json
import re

import numpy as np
import pytest
import xarray as xr

from cagp_dist.errors import BudgetError, ConfigurationError, DataError, StoreError
from cagp_dist.service.ingest import ingest, note_input, peek, stored_observations
from cagp_dist.service.job_plan import plan_job
from cagp_dist.service.jobfile.config import parse_job, with_scheduler
from cagp_dist.service.workers import scheduler_of
from cagp_dist.store.ingested import append_times

from ..jobs import job_text, map_grid, random_points
from ..sources import save, temperature

POINTS = random_points(40)


@pytest.fixture
def store(tmp_path):
    """A Zarr store of three times on a grid of 8 x 12 points."""
    latitude, longitude = np.arange(-78.75, 90.0, 22.5), np.arange(0.0, 360.0, 30.0)
    values = np.random.default_rng(3).normal(280.0, 8.0, (3, 8, 12))
    times = ["2020-01-01", "2020-01-02", "2020-01-03"]
    field = temperature(values, latitude=latitude, longitude=longitude, times=times)
    return save(field, tmp_path / "field.zarr")


@pytest.fixture
def make_job(store, tmp_path):
    def make(*, train=POINTS, solver="gauss-seidel", scheduler="serial", cluster=None, **observations):
        keys = {"source": f"zarr:{store}", "times": ["2020-01-01", "2020-01-02"], **observations}
        text = job_text(
            observations={key: value for key, value in keys.items() if value is not None},
            design={"train": train, "test": random_points(9), "map": map_grid(30.0)},
            prior={"lengthscale": 0.5, "variance": 60.0, "noise_variance": 1.0},
            solver={"name": solver},
            cluster={"scheduler": scheduler, **(cluster or {})},
            output={"root": tmp_path / "out"},
        )
        return parse_job(text)

    return make


def quiet(text):
    assert text


def test_ingest_returns_the_field_and_asks_the_source_once(make_job, store):
    job = make_job()
    field = ingest(job, report=quiet)
    with xr.open_zarr(store, consolidated=False) as source:
        np.testing.assert_array_equal(field.t2m.values, source.t2m.values[:2])
    store.rename(store.parent / "away")
    said = []
    again = ingest(job, report=said.append)
    assert said == ["nothing to fetch, 2 times already in the store"]
    xr.testing.assert_equal(again, field)
    with pytest.raises(DataError):
        ingest(make_job(times=["2020-01-03"]), report=quiet)


def test_ingest_adds_only_new_times(make_job):
    ingest(make_job(), report=quiet)
    said = []
    field = ingest(make_job(times=["2020-01-02", "2020-01-03"]), report=said.append)
    assert said == ["1 time added, 1 there already"]
    assert field.sizes["time"] == 2
    assert ingest(make_job(times=None), report=quiet).sizes["time"] == 3


def test_a_damaged_store_is_an_error_where_nothing_is_written(make_job, tmp_path):
    job = make_job()
    ingest(job, report=quiet)
    chunk = next(
        path for path in sorted((tmp_path / "out" / "observations").rglob("t2m/c.*")) if path.is_file()
    )
    chunk.write_bytes(chunk.read_bytes()[:-2])
    with pytest.raises(StoreError) as refusal:
        peek(job)
    assert refusal.value.key == "damaged"
    assert chunk.exists()


def test_other_areas_are_kept_apart(make_job, tmp_path):
    ingest(make_job(), report=quiet)
    smaller = make_job(times=["2020-01-01"], area=[60.0, 0.0, -60.0, 180.0])
    assert ingest(smaller, report=quiet).sizes["longitude"] == 7
    assert len(list((tmp_path / "out" / "observations").glob("*.zarr"))) == 2


def test_a_replaced_local_file_is_noticed(make_job, store, tmp_path):
    path = tmp_path / "field.nc"
    field = xr.open_zarr(store, consolidated=False).load()
    job = make_job().model_copy(
        update={"observations": make_job().observations.model_copy(update={"source": f"file:{path}"})}
    )
    field.to_netcdf(path, engine="scipy")
    said = []
    first = ingest(job, report=said.append)
    assert said == ["2 times added, 0 there already"]
    (field + 1.0).assign_attrs(field.attrs).to_netcdf(path, engine="scipy")
    second = ingest(job, report=said.append)
    np.testing.assert_allclose(second.t2m.values - first.t2m.values, 1.0, atol=1e-3)
    changed = re.compile(
        rf"file:{path} is not what it was on 20.*Z \(SHA-256 \w{{8}} then, \w{{8}} now\): (.*)"
    )
    count = first.t2m.size
    assert changed.match(said[1])[1].startswith(
        f"{count} values of {count} at the 2 times that both have differ"
    )


def test_the_digest_of_a_file_is_compared_with_that_of_the_last_time(tmp_path):
    def note(values, digest, times=("2020-01-01", "2020-01-02")):
        """Ingest values as those of a file."""
        field = xr.Dataset(
            {"t2m": (("time", "latitude", "longitude"), np.asarray(values, dtype="f4"))},
            {"time": np.array(times, "datetime64[ns]"), "latitude": [0.0, 1.0], "longitude": [0.0, 1.0, 2.0]},
            {"source": "file:a.nc", "source_sha256": digest * 64},
        )
        said = []
        append_times(store := tmp_path / f"file-{digest}.zarr", field)
        note_input(store, field, reading="all", report=said.append)
        note_input(store, field, reading="all", report=said.append)
        return said

    values = 280.0 + np.arange(12.0).reshape(2, 2, 3)
    values[0, 0, 0] = np.nan
    flipped = values.copy()
    flipped[1, 1, 1] += 1.0
    assert note(values, "a") == []
    (line,) = note(flipped, "b")
    assert "(SHA-256 aaaaaaaa then, bbbbbbbb now): 1 value of 12 at the 2 times that both have differ" in line
    (line,) = note(flipped[1:], "c", times=["2020-01-02"])
    assert line.endswith("the values of the 1 time that both have are the same")
    (line,) = note(values[:1], "d", times=["2020-01-03"])
    assert line.endswith("it has other times or another grid")
    (tmp_path / "file-d.zarr" / "zarr.json").unlink()
    (line,) = note(values, "e")
    assert line.endswith("the observations stored then cannot be read, so they are not compared")
    (tmp_path / "inputs.json").write_text('{"all": 1}')
    assert note(values, "f") == []
    assert json.loads((tmp_path / "inputs.json").read_text())["all"]["sha256"] == "f" * 64


def test_peek_never_asks_a_remote_source(make_job, tmp_path):
    job = make_job()
    assert peek(job) is None
    ingest(job, report=quiet)
    assert peek(job).sizes["time"] == 2
    assert stored_observations(make_job(times=["2020-01-03"])) is None


def test_size_of_a_job_that_was_not_ingested_comes_from_its_counts(make_job, tmp_path):
    before = plan_job(make_job()).size
    assert (before.observed, before.tested, before.mapped, before.times) == (40, 9, 72, 2)
    assert not (tmp_path / "out").exists()
    ingest(make_job(), report=quiet)
    assert plan_job(make_job()).size == before


@pytest.mark.parametrize(
    "changes", [{"times": None}, {"train": {"kind": "stride", "step": 2}}, {"train": {"kind": "all"}}]
)
def test_a_size_that_depends_on_an_unread_field_is_refused(make_job, changes):
    with pytest.raises(ConfigurationError) as refusal:
        plan_job(make_job(**changes))
    assert refusal.value.key == "not-read-yet"
    ingest(make_job(), report=quiet)
    if "train" in changes:
        assert plan_job(make_job(**changes)).size.tested == 9


def test_solvers_that_follow_the_values_solve_once_for_each_time(make_job):
    shared, single = plan_job(make_job()), plan_job(make_job(solver="conjugate-gradient"))
    assert (shared.solves, shared.plan.fields) == (1, 2)
    assert (single.solves, single.plan.fields) == (2, 1)
    assert single.lines()[-2] == "2 such solves, one for each time: the solver follows the values"


def test_a_batch_system_is_not_asked_for_workers_to_make_a_plan(make_job):
    assert plan_job(make_job(scheduler="slurm")).plan.workers == 2
    assert plan_job(make_job(scheduler="pbs", cluster={"workers": 16})).plan.workers == 16


def test_memory_is_that_of_all_workers(make_job):
    big = {"solver": "cholesky", "cluster": {"memory_limit": "1MiB", "workers": 16}}
    job = make_job(**big)
    wide = job.model_copy(update={"design": job.design.model_copy(update={"map": make_wide(job.design.map)})})
    assert plan_job(with_scheduler(wide, "slurm")).plan.peak_bytes > 2**20
    with pytest.raises(BudgetError) as refusal:
        plan_job(with_scheduler(wide, "serial"))
    assert refusal.value.key == "memory"


def make_wide(wanted):
    return wanted.model_copy(update={"resolution_degrees": 5.0})


def test_the_scheduler_comes_from_the_job_then_the_environment(make_job, monkeypatch):
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", "tcp://127.0.0.1:8786")
    job = make_job()
    assert scheduler_of(job.cluster) == "serial"
    unset = job.model_copy(update={"cluster": job.cluster.model_copy(update={"scheduler": None})})
    assert scheduler_of(unset.cluster) == "tcp://127.0.0.1:8786"
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS")
    assert scheduler_of(unset.cluster) == "local"
