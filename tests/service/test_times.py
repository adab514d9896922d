"""Rules for times: what they come to, what is said of wrong ones, and that the run is that of the list."""

import datetime as dt

import numpy as np
import pytest
import xarray as xr

from cagp_dist.errors import ConfigurationError, DataError, NotReadyError
from cagp_dist.fields.files.local_files import file_times
from cagp_dist.fields.sample import SAMPLE_TIME, open_sample
from cagp_dist.fields.sources import source_times
from cagp_dist.fields.stores import cds
from cagp_dist.fields.stores.remote import open_zarr, store_times
from cagp_dist.service import ingest as ingestion
from cagp_dist.service.events import silent
from cagp_dist.service.ingest import ingest, resolved
from cagp_dist.service.job_plan import plan_job
from cagp_dist.service.jobfile.config import parse_job, with_times
from cagp_dist.service.jobfile.times_key import MOST_TIMES, parse_short_times, times, written_times
from cagp_dist.service.run import run
from cagp_dist.service.task import prepare_job

from ..jobs import job_text as job_of
from ..jobs import random_points
from ..joined import one_after_another
from ..sources import save, temperature

HOURS = np.arange(
    np.datetime64("2017-03-30", "ns"), np.datetime64("2017-05-03T06:00", "ns"), 6 * 3600 * 10**9
)


def quiet(text):
    """Nobody listens."""


def stamps(*texts):
    return np.array(texts, dtype="datetime64[ns]")


def field(moments=HOURS, seed=0):
    """A field of 6 x 12 points at each time."""
    latitude, longitude = np.arange(-75.0, 90.0, 30.0), np.arange(0.0, 360.0, 30.0)
    values = np.random.default_rng(seed).normal(280.0, 5.0, (moments.size, 6, 12))
    return temperature(values, latitude=latitude, longitude=longitude, times=moments)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("file") / "field.nc"
    field().to_netcdf(path, engine="h5netcdf")
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return save(field(), tmp_path_factory.mktemp("store") / "field.zarr")


def job(source, rule, root="out"):
    text = job_of(
        observations={"source": str(source), "times": "RULE"},
        design={"train": random_points(30), "test": random_points(10, seed=1)},
        output={"root": str(root)},
    )
    return parse_job(text.replace('times = "RULE"', f"times = {rule}" if rule else ""))


def obvious(first, last, hours):
    """A list of times by the calendar of the standard library."""
    moment, listed = dt.datetime.fromisoformat(first), []
    while moment <= dt.datetime.fromisoformat(last):
        listed.append(moment.isoformat(timespec="minutes"))
        moment += dt.timedelta(hours=hours)
    return listed


WINDOWS = [
    (
        '{ from = "2017-01-01", to = "2017-01-31", every = "6h" }',
        obvious("2017-01-01", "2017-01-31T18:00", 6),
    ),
    ('{ from = 2017-01-01, to = 2017-01-02, every = "1d" }', ["2017-01-01T00:00", "2017-01-02T00:00"]),
    (
        '{ from = "2017-01-01T06:00", to = "2017-01-02T06:00", every = "12h" }',
        obvious("2017-01-01T06:00", "2017-01-02T06:00", 12),
    ),
    ('{ from = "2017-01-01T06:00", to = "2017-01-02T05:59", every = "24 h" }', ["2017-01-01T06:00"]),
    ('{ from = "2016-02", to = "2016-03", every = "1d" }', obvious("2016-02-01", "2016-03-31", 24)),
    (
        '{ from = "2017-02-27", to = "2017-03-01", at = "12:00" }',
        obvious("2017-02-27T12:00", "2017-03-01T12:00", 24),
    ),
    (
        '{ from = "2017-01-01T01:00", to = "2017-01-02", at = [12:00:00, "00:00"] }',
        obvious("2017-01-01T12:00", "2017-01-02T12:00", 12),
    ),
    (
        '{ from = "2017-01-01T23:00:00-02:00", to = "2017-01-02", every = "90min" }',
        obvious("2017-01-02T01:00", "2017-01-02T23:59", 1.5),
    ),
]

FROM_THE_SOURCE = [
    ('"2017-04"', obvious("2017-04-01", "2017-04-30T18:00", 6)),
    (
        '["2017-05", "2017-03"]',
        obvious("2017-03-30", "2017-03-31T18:00", 6) + obvious("2017-05-01", "2017-05-03", 6),
    ),
    ('{ last = "5d", at = "12:00" }', obvious("2017-04-28T12:00", "2017-05-02T12:00", 24)),
    (
        '{ last = "5d", at = "12:00", first = "2017-05-01" }',
        obvious("2017-05-01T12:00", "2017-05-02T12:00", 24),
    ),
    ('{ last = "9d", every = "2d", first = 2017-04-28 }', obvious("2017-04-29", "2017-05-03", 48)),
    ('{ last = "1d" }', obvious("2017-05-02T06:00", "2017-05-03", 6)),
    ('{ last = "1w", every = "2d" }', obvious("2017-04-27", "2017-05-03", 48)),
    ('{ last = "1h" }', ["2017-05-03T00:00"]),
    ('{ from = "2017-04-30", to = "2017-05-01" }', obvious("2017-04-30", "2017-05-01T18:00", 6)),
]


@pytest.mark.parametrize(("rule", "listed"), WINDOWS)
def test_a_window_with_a_step_or_clock_times_needs_no_source(rule, listed):
    found = resolved(job("zarr:nowhere", rule), report=quiet, offline=True)
    assert list(found.observations.listed_times) == listed


@pytest.mark.parametrize(("rule", "listed"), FROM_THE_SOURCE)
def test_other_rules_choose_among_the_times_of_the_source(store, tmp_path, rule, listed):
    said = []
    found = resolved(job(f"zarr:{store}", rule, tmp_path), report=said.append)
    assert list(found.observations.listed_times) == listed
    assert said[-1].startswith(f"{len(listed)} time")
    assert listed[0] in said[-1]


@pytest.mark.parametrize(("rule", "listed"), [WINDOWS[0], FROM_THE_SOURCE[2]])
def test_a_rule_is_the_job_that_lists_its_times(store, tmp_path, rule, listed):
    by_rule = resolved(job(f"zarr:{store}", rule, tmp_path), report=quiet)
    by_list = job(f"zarr:{store}", str(listed).replace("'", '"'), tmp_path)
    assert by_rule.canonical() == by_list.canonical()
    assert by_rule.canonical()["observations"]["times"] == listed
    if rule == FROM_THE_SOURCE[2][0]:
        keys = {prepare_job(one, ingest(one, report=quiet)).run_key for one in (by_rule, by_list)}
        assert len(keys) == 1


@pytest.mark.exhaustive
def test_a_run_of_a_rule_is_published_under_the_key_of_the_list_and_says_its_times(store, tmp_path):
    outcome = run(
        job(f"zarr:{store}", '{ last = "1d", at = ["00:00", "12:00"] }', tmp_path / "out"), observe=silent
    )
    assert not outcome.already_done
    listed = '["2017-05-02T12:00", "2017-05-03T00:00"]'
    again = run(job(f"zarr:{store}", listed, tmp_path / "out"))
    assert again.already_done
    assert again.path == outcome.path
    attributes = xr.open_zarr(outcome.path, consolidated=False).attrs
    assert f"# The times of this run:\n# [observations] times = {listed}" in attributes["job"]
    assert xr.open_zarr(outcome.path, group="posterior", consolidated=False).sizes["time"] == 2


def test_listed_times_and_no_times_are_left_as_they_are():
    for rule in ('["2017-04-27T12:00"]', None):
        found = job("sample", rule)
        assert resolved(found, report=quiet) is found
        assert found.canonical()["observations"]["times"] == (["2017-04-27T12:00"] if rule else None)


def test_a_remote_store_is_asked_again_only_for_what_is_new(store, tmp_path, monkeypatch):
    rule = '{ last = "2d", at = "12:00" }'
    first = resolved(job(f"zarr:{store}", rule, tmp_path / "out"), report=quiet)
    ingest(first, report=quiet)
    monkeypatch.setattr(ingestion, "open_selected", None)  # nothing may be read again
    assert (
        ingest(resolved(job(f"zarr:{store}", rule, tmp_path / "out"), report=quiet), report=quiet).sizes[
            "time"
        ]
        == 2
    )


def test_a_plan_asks_no_remote_source_but_knows_what_was_ingested(store, tmp_path, monkeypatch):
    wanted = job(f"zarr:{store}", '"2017-04"', tmp_path / "out")
    with pytest.raises(ConfigurationError) as refusal:
        plan_job(wanted)
    assert refusal.value.key == "not-read-yet"
    ingest(
        resolved(job(f"zarr:{store}", '["2017-04-02", "2017-05-01"]', tmp_path / "out"), report=quiet),
        report=quiet,
    )
    monkeypatch.setattr(ingestion, "source_times", None)
    assert plan_job(wanted).size.times == 1
    assert plan_job(job(f"zarr:{store}", WINDOWS[0][0], tmp_path / "out")).size.times == 124


@pytest.mark.parametrize(
    ("rule", "listed"),
    [
        ('{ last = "2d", at = "12:00" }', ["2026-11-15T12:00", "2026-11-16T12:00"]),
        ('{ last = "12h", every = "6h" }', ["2026-11-16T17:00", "2026-11-16T23:00"]),
    ],
)
def test_the_climate_data_store_counts_back_from_six_days_ago(rule, listed):
    for hour in (0, 23):
        now = dt.datetime(2026, 11, 22, hour, 30, tzinfo=dt.UTC)
        assert list(resolved(job("cds", rule), report=quiet, now=now).observations.listed_times) == listed


@pytest.mark.parametrize(
    "rule", ['"2017-04"', '{ last = "2d" }', '{ from = "2017-01-01", to = "2017-01-02" }']
)
def test_a_source_that_has_every_time_needs_to_be_told_which(rule, monkeypatch):
    monkeypatch.setattr(cds, "connect_to_cds", None)
    with pytest.raises(ConfigurationError) as refusal:
        resolved(job("cds", rule), report=quiet)
    assert refusal.value.key == "no-times"
    with pytest.raises(ConfigurationError) as refused:
        resolved(job("synthetic", rule), report=quiet)
    assert (refused.value.key, refused.value.remedies[0].name) == ("no-times", "times")


@pytest.mark.parametrize(
    "rule",
    [
        '"2017-06"',
        '["2017-04", "2016-04"]',
        '{ from = "2018-01-01", to = "2018-02-01" }',
        '{ last = "1h", at = "12:00" }',
    ],
)
def test_what_the_source_does_not_have_is_said(store, tmp_path, rule):
    with pytest.raises(DataError) as refusal:
        resolved(job(f"zarr:{store}", rule, tmp_path), report=quiet)
    assert refusal.value.key == "times"


@pytest.mark.parametrize(
    "rule",
    [
        '{ last = "5d", first = "2040-01-01" }',
        '{ last = "5d", at = "12:00", first = "2017-05-02T18:00" }',  # the newest time is six hours later
    ],
)
def test_a_source_that_has_not_come_to_the_first_time_may_do_so_later(store, tmp_path, rule):
    with pytest.raises(NotReadyError) as refusal:
        resolved(job(f"zarr:{store}", rule, tmp_path), report=quiet)
    assert (refusal.value.key, refusal.value.exit_code) == ("times", 75)


def test_times_of_a_rule_that_the_source_lacks_are_named(store, tmp_path):
    wanted = resolved(job(f"zarr:{store}", '{ last = "1d", every = "9h" }', tmp_path), report=quiet)
    with pytest.raises(DataError) as refusal:
        ingest(wanted, report=quiet)
    assert refusal.value.key == "absent-times"


@one_after_another
@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ('"2017-04-27"', "expected a list of ISO 8601 times"),
        ('"2017-13"', "'2017-13' is not a time; expected an ISO 8601 time"),
        ("3", "times = 3: expected a list of ISO 8601 times"),
        ('["2017-04", "2017-04-27"]', "'2017-04' is a month and '2017-04-27' is not"),
        ('["2017-04", "2017-04"]', "2017-04 is listed more than once"),
        ("{ }", "from and to missing; expected a list"),
        ('{ from = "2017-01-01" }', "to missing; expected a list"),
        (
            '{ form = "2017-01-01" }',
            'unknown key form; nearest: "from"; valid here: from, to, last, first, every, at',
        ),
        ('{ from = "2017-01-02", to = "2017-01-01" }', "from = 2017-01-02 is after to = 2017-01-01"),
        ('{ from = "noon", to = "2017-01-01" }', "from: 'noon' is not a time"),
        ('{ last = "5d", from = "2017-01-01" }', "last cannot be combined with from or to"),
        ('{ from = "2017-01-01", to = "2017-01-02", first = "2017-01-01" }', "first goes with last"),
        ('{ last = "5d", first = "spring" }', "first: 'spring' is not a time"),
        ('{ last = "5d", every = "6h", at = "12:00" }', "every and at came together"),
        (
            '{ last = "five days" }',
            "last = 'five days' is not a length of time; expected a whole number of min, h, d",
        ),
        ('{ last = "5m" }', "last = '5m' is not a length of time"),
        ("{ last = 5 }", "last = 5 is not a length of time"),
        ('{ last = "5d", every = "0h" }', "every = '0h' is zero"),
        ('{ last = "999999d" }', "more than 200 years"),
        ('{ last = "5d", at = "24:00" }', "at = '24:00' is not a clock time; expected HH:MM"),
        ('{ last = "5d", at = 12 }', "at = 12 is not a clock time"),
        ('{ last = "5d", at = [] }', "at is an empty list"),
        (
            '{ from = "1700-01-01", to = "2250-01-01", every = "1min" }',
            "comes to 289,272,960 times; expected at most",
        ),
        ('{ from = "1800-01-01", to = "2000-01-01", at = ["00:00", "12:00"] }', "comes to 146,098 times"),
        ('{ last = "20w", every = "1min" }', "comes to 201,600 times"),
        ('{ from = "2017-01-01T13:00", to = "2017-01-01T14:00", at = "12:00" }', "no 12:00 lies between"),
    ],
)
def test_a_rule_that_is_wrong_is_explained(rule, said):
    with pytest.raises(ConfigurationError) as caught:
        job("sample", rule)
    assert str(caught.value).startswith("job: [observations] times")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("2017-04-28T12:00,2017-04-27T12:00", ["2017-04-27T12:00", "2017-04-28T12:00"]),
        ("2017-04-27", ["2017-04-27"]),
        ("2017-04", "2017-04"),
        ("2017-05, 2017-04", ["2017-04", "2017-05"]),
        ("from 2017-01-01 to 2017-01-31 every 6h", {"from": "2017-01-01", "to": "2017-01-31", "every": "6h"}),
        ("from=2017-01-01,to=2017-01-31", {"from": "2017-01-01", "to": "2017-01-31"}),
        ("last 5d at 00:00 at 12:00", {"last": "5d", "at": ["00:00", "12:00"]}),
        ("last=5d, at=12:00, 00:00", {"last": "5d", "at": ["00:00", "12:00"]}),
    ],
)
def test_the_short_form_says_the_same_as_the_job_file(short, long):
    assert parse_short_times(short) == times(long)


def test_times_of_the_command_line_replace_those_of_the_job(store, tmp_path):
    listed = job(f"zarr:{store}", '["2017-04-27T12:00"]', tmp_path)
    replaced = with_times(listed, "last 1d")
    assert replaced.text == f"{listed.text.rstrip()}\n# --times last 1d\n"
    assert replaced.design == listed.design
    assert len(resolved(replaced, report=quiet).observations.listed_times) == 4
    assert with_times(listed, "all").observations.times is None
    with pytest.raises(ConfigurationError) as refusal:
        with_times(job("cds", '["2017-04-27T12:00"]'), "all")
    assert refusal.value.key == "option-times"


@pytest.mark.parametrize(
    ("short", "said"),
    [
        ("", "the list is empty"),
        ("lats 5d", "'lats' is neither a time nor one of from, to, last, first, every, at; nearest"),
        ("last 5d 6d", "'last' is followed by 2 values; expected one"),
        ("from 2017-01-01 to", "'to' is followed by 0 values; expected one"),
        ("2017-04-27T12:00 noon", "'noon' is not a time"),
    ],
)
def test_a_short_form_that_is_wrong_is_explained(short, said):
    with pytest.raises(ConfigurationError) as caught:
        with_times(job("sample", None), short)
    assert str(caught.value).startswith(f'--times "{short}": ')
    assert said in str(caught.value)


def test_the_times_of_a_source_are_those_of_its_field(file, store, tmp_path):
    scratch = tmp_path / "scratch"
    sample = open_sample(scratch=scratch).time.values
    assert np.array_equal(sample, stamps(SAMPLE_TIME))
    assert np.array_equal(source_times("sample", cache_directory=scratch), sample)
    assert np.array_equal(source_times(f"file:{file}", cache_directory=scratch), HOURS)
    assert np.array_equal(
        source_times(f"zarr:{store}", cache_directory=scratch), open_zarr(str(store)).time.values
    )
    with pytest.raises(DataError) as refusal:
        file_times(tmp_path / "absent.nc", scratch=scratch)
    assert refusal.value.key == "unreadable"
    with pytest.raises(ConfigurationError) as refusal:
        source_times("sampel", cache_directory=scratch)
    assert refusal.value.key == "source"


def test_a_time_axis_that_runs_ahead_of_the_data_is_cut(tmp_path):
    whole = field().assign_attrs(valid_time_start="2017-04-01", valid_time_stop="2017-04-30")
    whole.to_zarr(tmp_path / "ahead.zarr", zarr_format=3, consolidated=False)
    found = store_times(str(tmp_path / "ahead.zarr"))
    assert np.array_equal(found, HOURS[(stamps("2017-04-01") <= HOURS) & (stamps("2017-05-01") > HOURS)])


@pytest.mark.parametrize(
    ("listed", "text"),
    [
        (
            obvious("2017-01-01", "2017-01-31T18:00", 6),
            '{ from = "2017-01-01T00:00", to = "2017-01-31T18:00", every = "6h" }',
        ),
        (
            obvious("2017-01-01", "2017-01-02", 0.25),
            '{ from = "2017-01-01T00:00", to = "2017-01-02T00:00", every = "15min" }',
        ),
        (["2017-01-01T00:00", "2017-01-02T00:00", "2017-01-03T00:00", "2017-01-04T12:00"], None),
        (["2017-01-01T00:00"], None),
        ([f"2017-01-01T00:00:{second:02d}" for second in range(1, 6)], None),
    ],
)
def test_a_list_is_written_as_short_as_it_can_be_and_read_again_as_the_same(listed, text):
    assert written_times(listed) == (text or str(listed).replace("'", '"'))
    again = resolved(job("sample", written_times(listed)), report=quiet)
    assert list(again.observations.listed_times) == listed


def test_eleven_years_of_hours_are_not_too_many():
    found = job("zarr:nowhere", '{ from = "2000-01-01", to = "2010-12-31", every = "1h" }')
    listed = resolved(found, report=quiet).observations.listed_times
    assert len(listed) == 4018 * 24 < MOST_TIMES
    assert listed[-1] == "2010-12-31T23:00"


def test_latest_is_the_newest_time_alone(store, tmp_path):
    assert parse_short_times("latest") == times("latest")
    available = np.array(["2020-01-01", "2020-01-01T00:30", "2020-01-02T06:00"], dtype="M8[ns]")
    np.testing.assert_array_equal(times("latest").times(available), available[-1:])
    np.testing.assert_array_equal(times("latest").times(available[:2]), available[1:2])
