"""The path through the Climate Data Store, with the real client against a store on the loopback interface."""

import hashlib
import io
import json
import logging
import os
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

from cagp_dist.errors import ConfigurationError, DataError, NotReadyError
from cagp_dist.fields.canonical import canonical
from cagp_dist.fields.files import _decode
from cagp_dist.fields.files import local_files as files
from cagp_dist.fields.selection import Selection
from cagp_dist.fields.sources import open_source
from cagp_dist.fields.stores import cds, cds_cache
from cagp_dist.fields.stores.cds import open_cds
from cagp_dist.fields.stores.cds_cache import request_key, requested_times
from cagp_dist.fields.stores.cds_client import Patience, connect_to_cds

from .cds_server import TOKEN, CdsServer
from .fields import grib, netcdf3, netcdf4, raw_dataset, zipped

QUICK = Patience(queue_seconds=30.0, poll_seconds=0.01, poll_limit_seconds=0.05, tries=2, retry_seconds=0.01)
TIMES = ["2020-01-01T00:00", "2020-01-01T12:00"]


@pytest.fixture
def server(monkeypatch, tmp_path):
    monkeypatch.setenv("CDSAPI_RC", str(tmp_path / "no-cdsapirc"))
    monkeypatch.setenv("CDSAPI_KEY", TOKEN)
    with CdsServer() as started:
        monkeypatch.setenv("CDSAPI_URL", started.url)
        started.behaviour.deliver = deliver_netcdf
        yield started


@pytest.fixture(autouse=True)
def no_key_in_any_log(caplog):
    """Everything that any library logs at any level, in every test."""
    caplog.set_level(logging.DEBUG)
    yield
    assert TOKEN not in caplog.text


@pytest.fixture(autouse=True)
def decode_here(monkeypatch):
    """Decode in this process: children are tested with the files, and each takes a second to start."""

    def run(job, path, time_limit_seconds, look):
        monkeypatch.setattr(_decode.sys, "stdin", io.StringIO(json.dumps(job)))
        if _decode.decode_command() != 0:
            files.raise_told(Path(job["folder"]), path)

    monkeypatch.setattr(files, "run_child", run)


@pytest.fixture
def pauses(monkeypatch):
    """The pauses between two looks at the queue; only they take time, and nobody waits for them."""
    made = []
    clock = SimpleNamespace(monotonic=lambda: sum(made), sleep=made.append)
    monkeypatch.setattr(cds, "time", clock)
    return made


def clock_at(seconds):
    """A clock for one module that stands still. That of all would stop the Dask cluster that tests share."""
    return SimpleNamespace(time=lambda: seconds)


def asked(request):
    return [str(time)[:16] for time in requested_times(request)]


def deliver_netcdf(request):
    return netcdf3(raw_dataset(times=asked(request)))


def fetch(tmp_path, **settings):
    of_store = {key: settings.pop(key) for key in ("progress", "wait_seconds") if key in settings}
    patience = settings.pop("patience", QUICK)
    wanted = Selection(**{"times": TIMES} | settings)
    return open_cds(wanted, cache_directory=tmp_path / "cache", patience=patience, **of_store)


def cache_files(tmp_path, suffix):
    return sorted((tmp_path / "cache" / "cds").glob(f"*{suffix}"))


def test_a_request_is_queued_delivered_checked_and_cached(server, tmp_path):
    lines = []
    field = fetch(tmp_path, progress=lines.append)
    xr.testing.assert_equal(field, canonical(raw_dataset(times=TIMES)))
    assert lines == [
        "CDS request job-1 is submitted",
        "CDS request job-1 is accepted",
        "CDS request job-1 is running",
        "CDS request job-1 is successful",
        "CDS request job-1 is delivered",
    ]
    assert server.tokens == {TOKEN}
    request = server.jobs["job-1"].request
    assert request["data_format"] == "grib"
    (data,) = cache_files(tmp_path, "")[:1]
    assert data.name == f"{request_key(request)}.data"
    sha256 = hashlib.sha256(data.read_bytes()).hexdigest()
    assert field.attrs["source"] == "cds:reanalysis-era5-single-levels"
    assert field.attrs["source_sha256"] == sha256
    note = json.loads(data.with_suffix(".json").read_text())
    assert (note["sha256"], note["request"]) == (sha256, request)
    assert "request_id" not in note

    calls = len(server.calls)
    xr.testing.assert_identical(fetch(tmp_path), field)
    assert len(server.calls) == calls
    assert len(cache_files(tmp_path, ".data") + cache_files(tmp_path, ".json")) == 2


def test_a_preliminary_field_is_asked_for_again_when_the_final_one_should_be_there(
    server, tmp_path, monkeypatch
):
    """At most once a day, not while the field is younger than the delay, and not after the final one came."""
    server.behaviour.states = ["successful"]
    server.behaviour.deliver = lambda request: grib(asked(request), version="0005")
    early = fetch(tmp_path)
    assert early.attrs["preliminary_times"] == "2020-01-01T00:00:00 2020-01-01T12:00:00"
    (data,) = cache_files(tmp_path, ".data")

    def asks(*, days_after_the_field, days_after_the_last):
        """Fetch at another time, and say how often the store was asked, and whether it is preliminary."""
        now = datetime(2020, 1, 1, tzinfo=UTC).timestamp() + 86_400.0 * days_after_the_field
        last = now - 86_400.0 * days_after_the_last
        os.utime(data, (last, last))
        before = len(server.jobs)
        with monkeypatch.context() as then:
            then.setattr(cds_cache, "time", clock_at(now))
            field = fetch(tmp_path)
        return len(server.jobs) - before, "preliminary_times" in field.attrs

    young, old = cds_cache.FINAL_AFTER_DAYS - 0.01, cds_cache.FINAL_AFTER_DAYS + 0.01
    assert asks(days_after_the_field=young, days_after_the_last=2.0) == (0, True)
    assert asks(days_after_the_field=old, days_after_the_last=0.99) == (0, True)
    assert asks(days_after_the_field=old, days_after_the_last=1.01) == (1, True)
    server.behaviour.deliver = lambda request: grib(asked(request))
    assert asks(days_after_the_field=old, days_after_the_last=0.99) == (0, True)
    assert asks(days_after_the_field=old, days_after_the_last=1.01) == (1, False)
    assert asks(days_after_the_field=old, days_after_the_last=1.01) == (0, False)


def test_who_does_not_need_the_answer_waits_briefly_and_asks_once_a_day(
    server, tmp_path, monkeypatch, caplog, pauses
):
    """What is in the cache stays usable, and the request in the queue is taken up the next day."""
    server.behaviour.states = ["successful"]
    server.behaviour.deliver = lambda request: grib(asked(request), version="0005")
    early = fetch(tmp_path)
    (data,) = cache_files(tmp_path, ".data")
    two_days_ago = time.time() - 2 * 86_400.0
    os.utime(data, (two_days_ago, two_days_ago))
    sha256 = json.loads(data.with_suffix(".json").read_text())["sha256"]
    server.behaviour.states = ["accepted"]
    server.behaviour.deliver = lambda request: grib(asked(request))
    slow = replace(QUICK, poll_seconds=5.0, poll_limit_seconds=5.0)
    with pytest.raises(NotReadyError) as refusal:
        fetch(tmp_path, wait_seconds=20.0, patience=slow)
    assert refusal.value.key == "queued"
    assert sum(pauses) == 20.0
    note = json.loads(data.with_suffix(".json").read_text())
    assert (note["sha256"], note["request_id"]) == (sha256, "job-2")
    calls = len(server.calls)
    for brief in ({"wait_seconds": 20.0}, {}):  # a job that does need the field has what is there, too
        xr.testing.assert_identical(fetch(tmp_path, **brief), early)
    assert len(server.calls) == calls
    assert "damaged" not in caplog.text

    server.jobs["job-2"].states = ["successful"]
    tomorrow = time.time() + 1.01 * 86_400.0
    monkeypatch.setattr(cds_cache, "time", clock_at(tomorrow))
    assert "preliminary_times" not in fetch(tmp_path, wait_seconds=20.0).attrs
    assert server.count("POST") == 2


def test_a_store_that_does_not_answer_is_asked_once_a_day_by_who_does_not_need_it(
    server, tmp_path, monkeypatch
):
    monkeypatch.setenv("CDSAPI_URL", "http://127.0.0.1:9/api")
    with pytest.raises(DataError) as refusal:
        fetch(tmp_path, wait_seconds=0.5)
    assert refusal.value.key == "unreadable"
    monkeypatch.setenv("CDSAPI_URL", server.url)
    with pytest.raises(NotReadyError) as refusal:
        fetch(tmp_path, wait_seconds=0.5)
    assert refusal.value.key == "asked-lately"
    assert server.calls == []
    assert fetch(tmp_path).t2m.shape == (2, 4, 4)


def test_grib_of_two_months_is_two_requests_queued_together(server, tmp_path):
    server.behaviour.deliver = lambda request: grib(asked(request))
    server.behaviour.states = ["successful"]
    times = ["2020-02-01T00:00", "2020-01-31T18:00"]
    lines = []
    field = open_source("cds", times=times, cache_directory=tmp_path / "cache", progress=lines.append)
    np.testing.assert_array_equal(field.time, np.array(sorted(times), dtype="datetime64[ns]"))
    assert field.t2m.shape == (2, 241, 480)
    assert lines[:2] == ["CDS request job-1 is submitted", "CDS request job-2 is submitted"]
    digests = [hashlib.sha256(server.jobs[job].data).hexdigest() for job in ("job-1", "job-2")]
    assert field.attrs["source_sha256"] == hashlib.sha256("".join(digests).encode()).hexdigest()


def test_a_zip_of_new_layout_files_is_taken_as_it_comes(server, tmp_path):
    def deliver(request):
        raw = raw_dataset(times=asked(request))
        rain = raw.rename(t2m="tp")
        return zipped(
            **{
                "data_stream-oper_stepType-instant.nc": netcdf4(raw),
                "data_stream-oper_stepType-accum.nc": netcdf4(rain),
            }
        )

    server.behaviour.deliver = deliver
    xr.testing.assert_equal(fetch(tmp_path), canonical(raw_dataset(times=TIMES)))


def test_an_interrupted_wait_takes_up_the_same_request(server, tmp_path):
    server.behaviour.states = ["accepted"] * 3 + ["running"]

    def interrupt(line):
        if "running" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(tmp_path, progress=interrupt)
    (note,) = cache_files(tmp_path, ".json")
    assert json.loads(note.read_text())["request_id"] == "job-1"
    server.jobs["job-1"].states = ["running", "successful"]
    server.jobs["job-1"].looks = 0
    lines = []
    fetch(tmp_path, progress=lines.append)
    assert lines[0] == "CDS request job-1 is taken up again"
    assert server.count("POST") == 1


def test_a_long_queue_ends_in_not_ready_and_is_resumed(server, tmp_path):
    server.behaviour.states = ["accepted"]
    brief = Patience(queue_seconds=0.05, poll_seconds=0.02, tries=1)
    with pytest.raises(NotReadyError) as caught:
        fetch(tmp_path, patience=brief)
    assert caught.value.key == "queued"
    assert caught.value.exit_code == 75
    server.jobs["job-1"].states = ["successful"]
    assert fetch(tmp_path).t2m.shape == (2, 4, 4)
    assert server.count("POST") == 1


@pytest.mark.parametrize("fate", ["failed", "dismissed", "gone"])
def test_a_remembered_request_that_is_over_is_submitted_anew(server, tmp_path, fate):
    server.behaviour.states = ["accepted"]
    brief = Patience(queue_seconds=0.01, poll_seconds=0.02)
    with pytest.raises(NotReadyError):
        fetch(tmp_path, patience=brief)
    if fate == "gone":
        server.jobs["job-9"] = server.jobs.pop("job-1")
    else:
        server.jobs["job-1"].states = [fate]
    with pytest.raises(NotReadyError) as refusal:
        fetch(tmp_path, patience=brief)
    assert refusal.value.key == "queued"
    assert server.count("POST") == 2


NO_DATA_YET = {
    "title": "The job has failed",
    "traceback": "the request you have submitted is not valid. None of the data you have requested is "
    "available yet, please revise the period requested. The latest date available for this dataset is: "
    "2020-01-01 05:00.",
}


@pytest.mark.parametrize(
    ("failure", "kind", "key"),
    [
        (
            {"title": "The job has failed", "traceback": "MARS ERROR"},
            DataError,
            "unreadable",
        ),
        (NO_DATA_YET, NotReadyError, "not-yet"),
        (
            {"title": "x", "detail": "Maximum number of daily requests reached"},
            NotReadyError,
            "rate-limit",
        ),
    ],
)
def test_a_job_that_fails_says_why_and_is_forgotten(server, tmp_path, failure, kind, key):
    server.behaviour.states = ["running", "failed"]
    server.behaviour.failure = failure
    with pytest.raises(kind) as caught:
        fetch(tmp_path)
    assert caught.value.key == key
    assert type(caught.value) is kind
    (note,) = cache_files(tmp_path, "")
    assert "request_id" not in json.loads(note.read_text())


LICENCE = {
    "title": "required licences not accepted",
    "detail": "Not all the required licences have been accepted; please visit https://cds/manage-licences",
}


@pytest.mark.parametrize(
    ("status", "body", "kind", "message"),
    [
        (
            403,
            LICENCE,
            ConfigurationError,
            r"licence of reanalysis-era5-single-levels.*tab=download#manage-licences",
        ),
        (
            403,
            {"title": "cost limits exceeded"},
            ConfigurationError,
            "too large for the store; select fewer times",
        ),
        (403, {"title": "permission denied"}, ConfigurationError, "refused the request.*permission denied"),
        (
            401,
            {"title": "operation not allowed"},
            ConfigurationError,
            "does not accept the key.*personal access token",
        ),
        (
            404,
            {"title": "collection not found"},
            ConfigurationError,
            r"no Climate Data Store at .*switched off",
        ),
        (429, {"title": "rate limit exceeded"}, NotReadyError, "limits the rate of requests"),
        (400, {"title": "invalid request"}, DataError, "did not deliver.*invalid request"),
        (503, {"title": "maintenance"}, DataError, r"did not deliver \(HTTPError\).*status\.ecmwf\.int"),
    ],
)
def test_each_refusal_of_a_request_comes_with_advice(server, tmp_path, status, body, kind, message):
    server.behaviour.refuse["submit"] = (status, body)
    with pytest.raises(kind, match=f"(?s){message}") as caught:
        fetch(tmp_path)
    assert type(caught.value) is kind
    assert server.jobs == {}
    assert server.count("POST") == (QUICK.tries if status in (429, 503) else 1)
    assert cache_files(tmp_path, ".data") == []


def test_a_store_that_does_not_answer_keeps_the_request(server, tmp_path, monkeypatch):
    server.behaviour.states = ["accepted"]
    server.behaviour.refuse["look"] = (502, {"title": "bad gateway"})
    with pytest.raises(DataError) as refusal:
        fetch(tmp_path)
    assert refusal.value.key == "unreadable"
    (note,) = cache_files(tmp_path, ".json")
    assert json.loads(note.read_text())["request_id"] == "job-1"
    with pytest.raises(DataError) as refusal:
        fetch(tmp_path)
    assert refusal.value.key == "unreadable"
    monkeypatch.setenv("CDSAPI_URL", "http://127.0.0.1:9/api")
    with pytest.raises(DataError) as refusal:
        fetch(tmp_path)
    assert refusal.value.key == "unreadable"
    assert json.loads(note.read_text())["request_id"] == "job-1"


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (lambda request: deliver_netcdf(request)[:200], "damaged"),
        (lambda request: b"<html>busy</html>", "not-a-field"),
        (lambda request: netcdf3(raw_dataset(times=asked(request)) - 273.15), "range"),
    ],
)
def test_what_cannot_be_used_does_not_enter_the_cache(server, tmp_path, data, key):
    server.behaviour.deliver = data
    with pytest.raises(DataError) as refused:
        fetch(tmp_path)
    assert refused.value.key == key
    (note,) = cache_files(tmp_path, "")
    assert "request_id" not in json.loads(note.read_text())
    server.behaviour.deliver = deliver_netcdf
    assert fetch(tmp_path).t2m.shape == (2, 4, 4)
    assert server.count("POST") == 2


def test_a_download_that_ends_early_is_noticed_by_its_size(server, tmp_path):
    server.behaviour.declared_size = 10**6
    with pytest.raises(DataError) as refusal:
        fetch(tmp_path)
    assert refusal.value.key == "unreadable"
    assert [path.suffix for path in cache_files(tmp_path, "")] == [".json"]


@pytest.mark.parametrize(("step", "key"), [("results", "result-gone"), ("data", "unreadable")])
def test_a_result_that_expired_is_requested_anew(server, tmp_path, step, key):
    server.behaviour.refuse[step] = (404, {"title": "not found"})
    with pytest.raises(DataError) as refusal:
        fetch(tmp_path)
    assert refusal.value.key == key
    server.behaviour.refuse.clear()
    assert fetch(tmp_path).t2m.shape == (2, 4, 4)
    assert server.count("POST") == 2


def test_times_that_do_not_exist_yet_are_not_ready_and_not_cached(server, tmp_path):
    server.behaviour.deliver = lambda request: netcdf3(raw_dataset(times=asked(request)[:1]))
    with pytest.raises(
        NotReadyError,
    ) as refusal:
        fetch(tmp_path)
    assert refusal.value.key == "not-yet"
    assert cache_files(tmp_path, ".data") == []


def test_a_damaged_cache_entry_is_fetched_again(server, tmp_path, caplog):
    field = fetch(tmp_path)
    (data,) = cache_files(tmp_path, ".data")
    data.write_bytes(data.read_bytes()[:-1])
    xr.testing.assert_identical(fetch(tmp_path), field)
    assert "is damaged; it is fetched again" in caplog.text
    assert server.count("POST") == 2
    data.with_suffix(".json").write_text("{")
    server.behaviour.refuse["submit"] = (403, LICENCE)
    with pytest.raises(ConfigurationError) as refusal:
        fetch(tmp_path)
    assert refusal.value.key == "licence"
    assert server.count("POST") == 3


def test_a_kill_between_download_and_rename_leaves_no_half_result(server, tmp_path, monkeypatch):
    replaced = os.replace

    def killed(source, target):
        if str(target).endswith(".data"):
            raise KeyboardInterrupt
        replaced(source, target)

    monkeypatch.setattr(cds_cache.os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        fetch(tmp_path)
    assert cache_files(tmp_path, ".data") == []
    assert cache_files(tmp_path, ".part") == []
    monkeypatch.setattr(cds_cache.os, "replace", replaced)
    assert fetch(tmp_path).t2m.shape == (2, 4, 4)


def test_times_must_be_given(tmp_path):
    with pytest.raises(ConfigurationError) as refused:
        fetch(tmp_path, times=None)
    assert (refused.value.key, refused.value.remedies[0].name) == ("no-times", "times")


def test_a_cache_that_cannot_be_written_is_a_configuration_error(server, tmp_path):
    (tmp_path / "cache").write_bytes(b"")
    with pytest.raises(ConfigurationError) as refusal:
        fetch(tmp_path)
    assert refusal.value.key == "cache-folder"


@pytest.mark.parametrize(
    "rc",
    [
        None,
        "url: https://cds.climate.copernicus.eu/api\nkey:\n",
        "url: https://cds.climate.copernicus.eu/api/v2\nkey: 12345:abcdef\n",
    ],
)
def test_a_key_that_is_missing_or_old_says_how_to_make_one(tmp_path, monkeypatch, rc):
    for name in ("CDSAPI_URL", "CDSAPI_KEY"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "cdsapirc"
    if rc is not None:
        file.write_text(rc)
    monkeypatch.setenv("CDSAPI_RC", str(file))
    with pytest.raises(ConfigurationError) as caught:
        fetch(tmp_path)
    assert caught.value.key == "credentials"
    assert "abcdef" not in str(caught.value)


def test_a_key_is_sent_over_https_alone_and_the_host_is_said(tmp_path, monkeypatch):
    for name, value in {
        "KEY": TOKEN,
        "URL": "http://me:s3cret@store.example.org/api",
        "RC": "nowhere",
    }.items():
        monkeypatch.setenv(f"CDSAPI_{name}", value)
    with pytest.raises(ConfigurationError, match=r"http://store\.example\.org ") as refusal:
        fetch(tmp_path)
    assert refusal.value.key == "plain-http"
    assert not any(secret in str(refusal.value) for secret in (TOKEN, "s3cret"))


def test_a_key_in_a_file_is_used_and_an_open_file_is_noted(server, tmp_path, monkeypatch, caplog):
    monkeypatch.delenv("CDSAPI_KEY")
    monkeypatch.delenv("CDSAPI_URL")
    file = tmp_path / "cdsapirc"
    file.write_text(f"url: {server.url}\nkey: {TOKEN}\n")
    file.chmod(0o600)
    monkeypatch.setenv("CDSAPI_RC", str(file))
    server.behaviour.refuse["submit"] = (403, LICENCE)
    with pytest.raises(ConfigurationError) as refusal:
        fetch(tmp_path)
    assert refusal.value.key == "licence"
    assert "others can read" not in caplog.text
    file.chmod(0o644)
    with pytest.raises(ConfigurationError) as refusal:
        fetch(tmp_path)
    assert refusal.value.key == "licence"
    assert f"others can read the key in {file}" in caplog.text


@pytest.mark.parametrize("odd", ["\nsecond line", " x", "\u00fc"])
def test_a_key_that_cannot_be_sent_is_not_quoted(server, tmp_path, monkeypatch, odd):
    monkeypatch.setenv("CDSAPI_KEY", TOKEN + odd + "x")
    with pytest.raises(ConfigurationError) as caught:
        fetch(tmp_path)
    assert caught.value.key == "credentials"
    assert TOKEN not in str(caught.value)
    assert server.calls == []


def test_an_error_that_quotes_the_key_is_told_without_it(server):
    with pytest.raises(DataError) as caught, connect_to_cds(QUICK):
        raise ValueError(f"header {TOKEN}")
    assert caught.value.key == "unreadable"
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_messages_of_the_store_are_heard_without_the_key(server, tmp_path, caplog):
    server.behaviour.refuse["submit"] = (429, {"title": "slow down"})
    with pytest.raises(NotReadyError):
        fetch(tmp_path)
    assert "Recovering from HTTP error [429" in caplog.text
