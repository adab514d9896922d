"""Preliminary fields (ERA5T) are recorded, and replaced as soon as the source has the final ones."""

import shutil

import numpy as np
import pytest
import xarray as xr

from cagp_dist.errors import NotReadyError
from cagp_dist.service import ingest as ingestion
from cagp_dist.service.daily import daily
from cagp_dist.service.jobfile.config import parse_job, with_listed_times
from cagp_dist.store import series
from cagp_dist.store.batches import marked, preliminary_times
from cagp_dist.store.ingested import append_times, open_observations
from cagp_dist.store.series_check import check_series
from cagp_dist.store.set_aside import KEPT, remove_old_preliminary, set_aside_preliminary
from cagp_dist.store.zarr_arrays import read_group

from ..jobs import job_text, random_points

pytestmark = pytest.mark.usefixtures("one_blas_thread")

DAYS = np.array(["2020-06-01", "2020-06-02"], dtype="datetime64[ns]")


def source_of(path, versions, values, *, layout):
    """A field whose days have these experiment versions, as the Climate Data Store writes it."""
    time = "time" if layout == "dimension" else "valid_time"
    latitude, longitude = np.arange(80.0, -90.0, -20.0), np.arange(0.0, 360.0, 20.0)
    field = xr.Dataset(
        {"t2m": ((time, "latitude", "longitude"), values.astype("f4"), {"units": "K"})},
        coords={time: DAYS, "latitude": latitude, "longitude": longitude},
    )
    if layout == "dimension":
        final = xr.DataArray([version == "0001" for version in versions], dims="time")
        field = xr.concat([field.where(final), field.where(~final)], dim="expver")
        field = field.assign_coords(expver=[1, 5]).transpose("time", "expver", ...)
    else:
        numbers = [int(version) for version in versions] if path.suffix == ".zarr" else versions
        field = field.assign_coords(expver=(time, numbers))
    if path.suffix == ".zarr":
        shutil.rmtree(path, ignore_errors=True)
        field.to_zarr(path, zarr_format=3, consolidated=False)
    else:
        path.unlink(missing_ok=True)
        field.to_netcdf(path, engine="h5netcdf")


def passed(folder, source):
    """One pass of the daily job, and the scores that are in the series after it."""
    job = parse_job(
        job_text(
            observations={"source": source, "times": "2020-06"},
            design={"train": random_points(60), "test": random_points(20, seed=1)},
            output={"root": folder / "out"},
        )
    )
    days = list(daily(job))
    return days, read_group(series.current_version(folder / "out"), series.SCORES)


def unanswered():
    raise NotReadyError("the request waits")


@pytest.mark.parametrize(
    ("kind", "layout"),
    [
        ("zarr", "beside the time"),
        pytest.param("file", "beside the time", marks=pytest.mark.exhaustive),
        pytest.param("file", "dimension", marks=pytest.mark.exhaustive),
    ],
)
@pytest.mark.parametrize(
    "changed", [True, pytest.param(False, marks=pytest.mark.exhaustive)], ids=["changed", "as before"]
)
def test_a_preliminary_day_is_replaced_when_its_final_field_is_there(
    kind, layout, changed, tmp_path, monkeypatch
):
    """In the source, the store, the run and the series; the run before and the version before are kept."""
    values = 280.0 + np.random.default_rng(1).normal(size=(2, 9, 18))
    values[:, [0, -1]] = 280.0
    path = tmp_path / f"field.{'zarr' if kind == 'zarr' else 'nc'}"
    source_of(path, ["0001", "0005"], values, layout=layout)
    days, early = passed(tmp_path, f"{kind}:{path}")
    assert [day.version for day in days] == [1, 2]
    assert early[series.IS_PRELIMINARY].values.tolist() == [0, 1]
    runs = [tmp_path / "out/runs" / f"{key}.zarr" for key in early.run_key.values]
    said = [xr.open_zarr(run).attrs.get("preliminary_times") for run in runs]
    assert said == [None, "2020-06-02T00:00:00"]
    days, again = passed(tmp_path, f"{kind}:{path}")
    assert [day.status for day in days] == [None, None]
    xr.testing.assert_identical(again, early)
    if kind == "zarr":  # a source without an answer is no reason to do without what is there
        with monkeypatch.context() as without:
            without.setattr(ingestion, "_open", lambda *_, **__: unanswered())
            days, again = passed(tmp_path, f"{kind}:{path}")
        assert [day.status for day in days] == [None, None]
        xr.testing.assert_identical(again, early)

    if changed:
        values[1] += 0.25
    source_of(path, ["0001", "0001"], values, layout=layout)
    days, final = passed(tmp_path, f"{kind}:{path}")
    assert [day.version for day in days] == [None, 3]
    assert days[1].replaced == runs[1].stem
    assert final[series.IS_PRELIMINARY].values.tolist() == [0, 0]
    assert (final.rmse.values[1] == early.rmse.values[1]) is np.bool_(not changed)
    assert final.version.values.tolist() == [1, 3]
    assert runs[1].is_dir(), "the run of the preliminary field stays"
    before = tmp_path / "out" / series.VERSIONS / "000002.zarr"
    xr.testing.assert_identical(read_group(before, series.SCORES), early)
    assert check_series(tmp_path / "out").compared == 2
    solved = []
    monkeypatch.setattr("cagp_dist.pipeline.solve_task.solve", lambda *arguments: solved.append(arguments))
    days, again = passed(tmp_path, f"{kind}:{path}")
    assert [day.status for day in days] == [None, None]
    assert not solved


@pytest.mark.parametrize("answer", ["queued", "still preliminary", "final"])
def test_a_job_waits_but_briefly_to_hear_of_final_fields(answer, tmp_path, monkeypatch):
    """It asks for old preliminary times alone, and takes over those that are final into what is stored."""
    young = np.datetime64("now", "s").astype("datetime64[ns]") - np.timedelta64(30, "D")
    times = np.array([*DAYS, young])
    job = parse_job(
        job_text(
            observations={"source": "cds", "times": [str(time)[:19] for time in times]},
            output={"root": tmp_path / "out"},
        )
    )
    path = ingestion.store_path(job.output.folder, job.observations, content=None)
    stored = small(280.0, DAYS)
    newest = small(280.0, DAYS[:1]).isel(time=[0]).assign_coords(time=times[2:])
    append_times(path, stored)
    append_times(path, marked(newest, times[2:]))
    asked, said = [], []

    def open_selected(source, wanted, access, **_):
        asked.append((source, [str(time)[:10] for time in wanted.times], access.wait_seconds))
        if answer == "queued":
            raise NotReadyError("the request waits")
        return small(281.0, DAYS if answer == "still preliminary" else DAYS[:1])

    monkeypatch.setattr(ingestion, "open_selected", open_selected)
    found = ingestion.ingest(job, report=said.append)
    assert asked == [("cds", ["2020-06-01", "2020-06-02"], ingestion.FINAL_WAIT_SECONDS)]
    assert ingestion.FINAL_WAIT_SECONDS <= 10.0
    early = [0, 2] if answer == "final" else [0, 1, 2]
    assert preliminary_times(found).tolist() == times[early].tolist()
    assert found.t2m.values[:, 0, 0].tolist() == [280.0, 281.0 if answer == "final" else 280.0, 280.0]
    wait = {
        "queued": "the request waits",
        "still preliminary": "2 times still preliminary",
        "final": "are moved to",
    }
    assert any(wait[answer] in line for line in said)
    xr.testing.assert_identical(open_observations(path), found)


def small(values, preliminary):
    field = xr.Dataset(
        {"t2m": (("time", "latitude", "longitude"), np.full((2, 3, 4), values, dtype="f4"), {"units": "K"})},
        coords={"time": DAYS, "latitude": [-10.0, 0.0, 10.0], "longitude": [0.0, 90.0, 180.0, 270.0]},
        attrs={"source": "made", "source_sha256": "0" * 64},
    )
    return marked(field, preliminary)


def test_only_batches_with_a_time_that_is_final_now_leave_the_store(tmp_path):
    store = tmp_path / "observations" / "zarr-1.zarr"
    for at in range(2):
        append_times(store, small(280.0, DAYS[1:]).isel(time=[at]))
    assert preliminary_times(open_observations(store)).tolist() == DAYS[1:].tolist()
    for field in (small(280.0, DAYS[1:]), small(281.0, DAYS).isel(time=[0])):
        assert set_aside_preliminary(store, field) is None
    aside = set_aside_preliminary(store, small(281.0, []))
    assert aside.name.startswith("zarr-1.preliminary-")
    assert [path.name[:8] for path in aside.iterdir()] == ["20200602"]
    assert open_observations(store).time.values.tolist() == DAYS[:1].tolist()
    assert remove_old_preliminary(store) == []
    append_times(store, small(281.0, []).isel(time=[1]))
    found = open_observations(store)
    assert "preliminary_times" not in found.attrs
    assert found.t2m.values[:, 0, 0].tolist() == [280.0, 281.0]


def test_times_beside_a_preliminary_field_stay_in_the_store(tmp_path, monkeypatch):
    """Of other jobs, in one batch with a field that is replaced: the batch is set aside as a whole."""
    job = parse_job(
        job_text(
            observations={"source": "cds", "times": ["2020-06-01"]},
            output={"root": tmp_path / "out"},
        )
    )
    path = ingestion.store_path(job.output.folder, job.observations, content=None)
    append_times(path, small(280.0, DAYS[:1]))
    monkeypatch.setattr(ingestion, "open_selected", lambda *_, **__: small(281.0, []).isel(time=[0]))
    found = ingestion.ingest(job, report=lambda line: None)
    assert found.time.values.tolist() == DAYS[:1].tolist()
    stored = open_observations(path)
    assert stored.time.values.tolist() == DAYS.tolist()
    assert stored.t2m.values[:, 0, 0].tolist() == [281.0, 280.0]
    assert preliminary_times(stored).size == 0


def test_the_last_fields_that_were_set_aside_are_kept(tmp_path, monkeypatch):
    """When the final field of the day was read back; those of other stores have no part."""
    times = DAYS[0] + np.arange(KEPT + 2) * np.timedelta64(1, "D")
    job = parse_job(
        job_text(
            observations={"source": "cds", "times": [str(time)[:19] for time in times]},
            output={"root": tmp_path / "out"},
        )
    )
    path = ingestion.store_path(job.output.folder, job.observations, content=None)
    other = path.with_name("cds-0.preliminary-20200101T000000Z")
    for number, time in enumerate(times):
        day = small(280.0 + number, []).isel(time=[0]).assign_coords(time=[time])
        append_times(path, marked(day, [time]))
    other.mkdir()
    removed = []
    for number, time in enumerate(times):

        def open_selected(*_, number=number, time=time, **__):
            field = small(281.0 + number, []).isel(time=[0]).assign_coords(time=[time])
            return marked(field, [])

        monkeypatch.setattr(ingestion, "open_selected", open_selected)
        one = with_listed_times(job, np.array([time]))
        before = sorted(path.parent.glob("*.preliminary-*"))
        assert ingestion.ingest(one, report=lambda line: None).t2m.values[0, 0, 0] == 281.0 + number
        removed += [folder for folder in before if not folder.exists()]
        if number < len(times) - 1:
            (new,) = set(path.parent.glob("*.preliminary-*")) - set(before)
            new.rename(path.with_name(f"{path.stem}.preliminary-20200801T00000{number}Z"))
    kept = sorted(folder.name for folder in path.parent.glob(f"{path.stem}.preliminary-*"))
    assert len(kept) == KEPT
    assert [folder.name[-3:] for folder in removed] == ["00Z", "01Z"]
    assert other.exists()
    assert open_observations(path).time.size == len(times)
