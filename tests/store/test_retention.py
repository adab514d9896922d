"""What a rule keeps: days, so many runs, bytes, finals; the current run, and what later ones go on from."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from cagp_dist.errors import ConfigurationError
from cagp_dist.service.jobfile.config import parse_job, parse_keep
from cagp_dist.store.retention import KeptRun, Retention, beyond

from ..jobs import job_text

NOW = datetime(2020, 3, 1, tzinfo=UTC)
# made a day apart, the oldest first; e is the final field of the day of c, whose field was preliminary
RUNS = [
    KeptRun(key, NOW - timedelta(days=5 - age), f"job {day}", key in "cd", last=f"2020-02-0{day}T00:00:00Z")
    for age, (key, day) in enumerate(zip("abcde", (1, 2, 3, 4, 3), strict=True))
]


# b goes on from a, d from b, which is of the day before it; the others are of a job whose runs do not
CHAIN = [
    replace(run, previous=previous, chain=chain, preliminary=False)
    for run, previous, chain in zip(RUNS, ("", "a", "", "b", ""), ("one", "one", "", "one", ""), strict=True)
]


def gone(current=None, since=None, runs_are=RUNS, **rule):
    found = beyond(
        Retention(**rule),
        reversed(runs_are),
        current=current,
        sizes=lambda: dict.fromkeys("abcde", 10),
        since=since,
        now=NOW,
    )
    return "".join(found)


def test_each_rule_and_all_together():
    assert gone() == ""
    assert gone(runs=2) == "abc"
    assert gone(days=3.5) == "ab"
    assert gone(total=29) == "abc"
    assert gone(total=30) == "ab"
    assert gone(finals_only=True) == "c"
    assert gone(runs=4, total=39, finals_only=True) == "ac"


def test_the_current_run_stays_and_its_bytes_count():
    assert gone(current="a", runs=1) == "bcd"
    assert gone(current="a", total=20) == "bcd"
    assert gone(current="c", finals_only=True) == ""
    assert gone(current="a", total=1) == "bcde"


def test_what_runs_go_on_from_stays():
    assert gone(runs_are=CHAIN, runs=1) == "ac", "the last of a chain, and the one before it"
    assert gone(runs_are=CHAIN, total=1) == "ace"
    assert gone(runs_are=CHAIN, current="e", days=1e-3) == "ac"
    assert gone(runs_are=CHAIN, since="2020-02-04T00:00:00Z", runs=1) == "ac", "c is of another job"
    assert gone(runs_are=CHAIN, since="2020-02-02T00:00:00Z", runs=1) == ""


def test_what_the_times_of_a_pass_are_of_stays():
    assert gone(since="2020-02-03T00:00:00Z", runs=1) == "ab"
    assert gone(since="2020-02-03T00:00:00Z", finals_only=True) == "c"
    assert gone(since="2020-01-01T00:00:00Z", runs=1) == ""


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("30", Retention(runs=30)),
        ("30 runs", Retention(runs=30)),
        ("90d", Retention(days=90.0)),
        ("1 day", Retention(days=1.0)),
        ("50GiB", Retention(total=50 * 2**30)),
        ("90d, 30 runs, 1.5TB, finals", Retention(90.0, 30, 1_500_000_000_000, finals_only=True)),
    ],
)
def test_short_forms(text, rule):
    assert parse_keep(text) == rule
    assert parse_job(job_text(output={"root": "out", "keep": text})).output.keep.rule() == rule


def test_the_long_form_and_what_is_no_rule():
    table = {"days": 90, "runs": 30, "total": "50GiB", "finals_only": True}
    job = parse_job(job_text(output={"root": "out", "keep": table}))
    assert job.output.keep.rule() == Retention(90.0, 30, 50 * 2**30, finals_only=True)
    assert parse_job(job_text(output={"root": "out", "keep": 7})).output.keep.rule() == Retention(runs=7)
    assert "keep" not in job.canonical()
    for wrong, said in {
        "0": r"\[output\] keep.runs = 0 is not allowed; expected how many of the newest stay",
        "9 weeks": "'9 weeks' is none of \"90d\"",
        "9d, 8d": "'8d' is the second of its kind",
    }.items():
        with pytest.raises(ConfigurationError, match=said):
            parse_job(job_text(output={"root": "out", "keep": wrong}))
        with pytest.raises(ConfigurationError) as refusal:
            parse_keep(wrong)
        assert refusal.value.key == "option-keep"
    for earlier in ("30 runs, pack", {"runs": 30, "pack": True}):
        with pytest.raises(ConfigurationError, match=r"runs are no longer packed.*; leave pack out"):
            parse_job(job_text(output={"root": "out", "keep": earlier}))
    with pytest.raises(ConfigurationError) as refusal:
        parse_keep("30 runs, pack")
    assert refusal.value.key == "option-keep"
    with pytest.raises(ConfigurationError) as refusal:
        parse_job(job_text(output={"root": "out", "keep": {"run": 3}}))
    assert refusal.value.key == "output.keep.run"
