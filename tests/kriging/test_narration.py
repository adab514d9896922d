"""What a map says of itself: what it does, how far it is; and that work is stopped whose time is over."""

import logging
import time
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
from rich.console import Console

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, DataError, TimeLimitError
from cagp_dist.fields.sources import SOURCES, Access
from cagp_dist.likelihood.fit_work import FitSize, fit_work
from cagp_dist.pipeline import narration
from cagp_dist.pipeline.narration import SOONER, SOONER_FIT, Narrator
from cagp_dist.remedies import Remedy

NUMBERS = {"lengthscale": 0.15, "variance": 25.0, "noise_std": 0.2, "mean": 285.0}


def test_work_is_stopped_by_what_was_measured() -> None:
    latitude, longitude = np.random.default_rng(0).uniform(0.0, 60.0, (2, 3000))
    table = {"lat": latitude, "lon": longitude, "t": 285.0 + latitude}
    sweeps = cagp.BlockGaussSeidel(400, block_size=64)
    with pytest.raises(TimeLimitError) as refusal:
        cagp.krige(table, to=5.0, time_limit_seconds=0.5, progress=False, solver=sweeps, **NUMBERS)
    assert refusal.value.key == "time-limit"
    assert Remedy.MORE_TIME in refusal.value.remedies
    with Narrator(shown=False, time_limit_seconds=1.0) as narrator, narrator.stage("solve") as report:
        time.sleep(0.15)  # to compile, which is not done again: at this rate the work would take 150 s
        report(0.001)
        time.sleep(0.01)
        report(0.1)
        assert narrator._now.headway.seconds_left() < 1.0
        time.sleep(0.5)  # much longer than it took so far: nothing is foretold until something is done
        assert narrator._now.headway.seconds_left() is None
        with pytest.raises(TimeLimitError) as refusal:
            report(0.11)
        assert refusal.value.key == "time-limit"


@pytest.mark.parametrize("shown", [True, False])
def test_what_is_done_and_how_far_it_is_is_logged_unless_it_is_not_wanted(
    shown: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, logger="cagp_dist")
    for name in ("QUICK_SECONDS", "LOG_SECONDS"):
        monkeypatch.setattr(narration, name, 0.01)
    plan = cagp.condition(
        cagp.Prior(cagp.Matern32(0.2), 0.1), np.eye(3), np.zeros(3), np.eye(3), solver=cagp.Cholesky()
    ).stats.plan
    with Narrator(shown=shown) as narrator, narrator.stage("solve") as report:
        narrator.tell(plan)
        report(0.25)
        deadline = time.monotonic() + 5.0
        while shown and len(caplog.records) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    records = caplog.records
    assert bool(records) is shown
    if shown:
        assert records[0].levelno == logging.WARNING
        assert records[0].message.startswith("solve: exact Cholesky, 3 observed points, 3 targets, memory")
        assert records[0].message.endswith(SOONER)
        assert records[1].message.startswith("solve: 25%, ")


def test_what_would_take_less_time_is_said_once_of_a_fit_and_once_of_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, logger="cagp_dist")
    narrator = Narrator(shown=True)
    for name in ("fit", "fit", "solve", "samples"):
        narrator._tell(narration._Stage(name))
    told = [each.message for each in caplog.records]
    assert told == [f"fit. {SOONER_FIT}", "fit", f"solve. {SOONER}", "samples"]


def test_what_is_shown_of_a_fit_with_several_starts_never_steps_back() -> None:
    with Narrator(shown=False) as narrator, narrator.stage("solve") as report:
        shown = []
        for fraction in (0.2, 0.6, 0.1, 0.3, 0.7):
            report(fraction)
            shown.append(narrator._state().split(",")[0])
    assert shown == ["solve: 20%", "solve: 60%", "solve: 60%", "solve: 60%", "solve: 70%"]


def test_kriging_asks_for_a_limit_and_a_bool(stations: object) -> None:
    with pytest.raises(ArgumentError) as refusal:
        cagp.Kriging(progress="yes", **NUMBERS).fit(stations)  # type: ignore[arg-type]
    assert refusal.value.key == "progress-type"
    with pytest.raises(ArgumentError) as refusal:
        cagp.Kriging(time_limit_seconds=-1.0, **NUMBERS).fit(stations)
    assert refusal.value.key == "not-positive"


def test_a_fit_says_how_many_likelihoods_it_has_worked_out(caplog: pytest.LogCaptureFixture) -> None:
    with Narrator(shown=False) as narrator, narrator.stage("fit") as report:
        report(None, "likelihood 7")
        assert narrator._state().startswith("fit: likelihood 7, ")


def test_a_fit_of_many_points_is_planned_by_its_levels() -> None:
    size = FitSize("vecchia", 100_000, 1)
    assert [points for points, _ in size.evaluations()] == [1_000, 16_000, 100_000]
    assert fit_work(size, workers=2).flops < fit_work(size._replace(kernels=3), workers=2).flops
    dense, twice = (fit_work(FitSize("dense", n, 1), workers=2) for n in (1_000, 2_000))
    assert 6.0 < twice.flops / dense.flops < 8.0
    assert dense.peak_bytes > 8 * 1_000**2


def test_reading_says_what_is_read_and_nothing_that_would_not_make_it_faster(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, logger="cagp_dist")
    for name in ("QUICK_SECONDS", "LOG_SECONDS"):
        monkeypatch.setattr(narration, name, 0.01)

    def reads_long(path: object, wanted: object, access: Access) -> None:
        assert access.progress is not None
        access.progress("reading field.grib (3 GiB): 12 of 60 messages decoded")
        deadline = time.monotonic() + 5.0
        while len(caplog.records) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        raise DataError("damaged", key="damaged")

    monkeypatch.setitem(SOURCES, "file", replace(SOURCES["file"], open=reads_long))
    with pytest.raises(DataError):
        cagp.krige("file:field.grib", to=5.0, value="t2m", **NUMBERS)
    first, second = caplog.messages[:2]
    assert first == "read: file:field.grib"
    assert second.startswith("read: reading field.grib (3 GiB): 12 of 60 messages decoded, ")


HOSTILE = "b[/red]\x1b[31m\r\n2026-01-01 ERROR: all is lost.nc"


@pytest.mark.parametrize("screen", [True, False])
def test_no_name_of_a_file_is_markup_or_obeyed_by_a_terminal(
    screen: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = StringIO()
    console = Console(file=shown, force_terminal=True, no_color=True, width=200)
    monkeypatch.setattr("rich.console.Console", lambda stderr: console)
    monkeypatch.setattr(narration, "on_screen", lambda: screen)
    monkeypatch.setattr(narration, "QUICK_SECONDS", 0.01)
    monkeypatch.setattr(narration, "LOG_SECONDS", 0.01)
    caplog.set_level(logging.INFO, logger="cagp_dist")
    written = r"b[/red]\x1b[31m 2026-01-01 ERROR: all is lost.nc"
    with Narrator(shown=True) as narrator, narrator.stage("read", HOSTILE) as report:
        report(None, f"reading {HOSTILE}")
        deadline = time.monotonic() + 5.0
        while f"reading {written}" not in shown.getvalue() + caplog.text and time.monotonic() < deadline:
            time.sleep(0.01)
    said = shown.getvalue() if screen else "".join(caplog.messages)
    assert f"read: {written}" in said  # of the stage, and of how far it is
    assert f"read: reading {written}" in said
    assert "\x1b[31m" not in said
    assert not any(line.startswith("2026-01-01") for line in said.splitlines())
