"""What a map says of itself: its plan, how far it is, and that it refuses what would take hours."""

import logging
import os
import time
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, BudgetError
from cagp_dist.likelihood.duration import FitCourse, FitSize, evaluations, fit_seconds
from cagp_dist.mapping import narration
from cagp_dist.mapping.narration import Narrator, Outlook, Way
from cagp_dist.runtime.pace import Slowness, slowness

NUMBERS = {"lengthscale": 0.15, "variance": 25.0, "noise_std": 0.2, "mean": 285.0}
SOLVE = Outlook("solve", "block Gauss-Seidel", 20.0, 2**30)


@pytest.fixture(autouse=True)
def _as_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narration, "slowness", lambda workers: Slowness(1.5, 1.2))


@pytest.fixture
def masked() -> xr.DataArray:
    """Land of a region, 54,000 points of no grid around the globe."""
    latitude, longitude = np.linspace(49.4, 25.1, 195), np.linspace(-124.8, -67.1, 462)
    inside = ((latitude[:, None] - 37.0) / 13.0) ** 2 + ((longitude + 96.0) / 24.0) ** 2 <= 1.0
    values = np.where(inside, 285.0 + np.sin(longitude), np.nan)
    return xr.DataArray(values, {"lat": latitude, "lon": longitude}, ("lat", "lon"), "tmmx")


def test_a_map_of_hours_is_refused_at_once_with_ways_out(masked: xr.DataArray) -> None:
    started = time.process_time()
    sweeps = {"lengthscale": 0.01, "solver": "block-gauss-seidel"}
    with pytest.raises(BudgetError) as refusal:
        cagp.krige(masked, time_limit_seconds=60.0, **(NUMBERS | sweeps))
    assert time.process_time() - started < 10.0
    for part in (
        "more than the 60 s of time_limit_seconds",
        "observed points",
        'Faster: solver="auto": about',
        "time_limit_seconds=None",
    ):
        assert part in str(refusal.value)


def test_the_plan_is_said_before_the_solve_and_counts_the_machine(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Narrator(shown=True, time_limit_seconds=None, workers=2) as narrator:
        narrator.expect(SOLVE)
        narrator.announce()
        narrator.announce()  # nothing new
    (said,) = caplog.records
    assert said.levelno == logging.WARNING
    assert said.message == ("this takes about 30 s: solve (block Gauss-Seidel) 30 s; memory about 1 GiB")


@pytest.mark.parametrize("shown", [True, False])
def test_progress_is_logged_unless_it_is_not_wanted(
    shown: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, logger="cagp_dist")
    monkeypatch.setattr(narration, "QUICK_SECONDS", 0.01)
    monkeypatch.setattr(narration, "LOG_SECONDS", 0.01)
    with Narrator(shown=shown, time_limit_seconds=None, workers=2) as narrator:
        narrator.expect(SOLVE)
        narrator.announce()
        with narrator.stage("solve") as report:
            report(0.25)
            deadline = time.monotonic() + 5.0
            while shown and len(caplog.records) < 2 and time.monotonic() < deadline:
                time.sleep(0.01)
    texts = [record.message for record in caplog.records]
    assert bool(texts) is shown
    assert not shown or texts[1].startswith("solve: 25%, ")


def test_what_is_shown_of_a_fit_with_several_starts_never_steps_back() -> None:
    with Narrator(shown=False, time_limit_seconds=None, workers=2) as narrator:
        narrator.expect(SOLVE)
        with narrator.stage("solve") as report:
            shown = []
            for fraction in (0.2, 0.6, 0.1, 0.3, 0.7):
                report(fraction)
                shown.append(narrator._state().split(",")[0])
    assert shown == ["solve: 20%", "solve: 60%", "solve: 60%", "solve: 60%", "solve: 70%"]


def test_kriging_asks_for_a_limit_and_a_bool(stations: object) -> None:
    with pytest.raises(ArgumentError, match="progress is 'yes'; expected True or False"):
        cagp.Kriging(progress="yes", **NUMBERS).fit(stations)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="time_limit_seconds is -1"):
        cagp.Kriging(time_limit_seconds=-1.0, **NUMBERS).fit(stations)


def test_a_fit_of_many_points_is_planned_by_its_levels() -> None:
    size = FitSize("vecchia", 100_000, 1)
    assert [points for points, _ in evaluations(size)] == [1_000, 16_000, 100_000]
    assert 3.0 < fit_seconds(size, workers=2) < 12.0  # 297 s were once needed, and nothing was said
    course = FitCourse(size, 2)
    fractions = [course.fraction(points) for points in (1_000, 1_000, 100_000, 100_000)]
    assert fractions == sorted(fractions)
    assert 0.0 < fractions[0] < 0.01 < fractions[-1] < 1.0


def test_a_plan_counts_workers_that_share_cores_and_every_term_of_a_kernel() -> None:
    cores = os.cpu_count() or 1
    many, one_alone = slowness(4 * cores), slowness(1)
    assert many.now > 1.5 * one_alone.now  # four times as many threads as cores: about four times
    assert 0.5 * many.now > many.alone > 0.5 * one_alone.alone
    X = cagp.unit_sphere(np.linspace(-60.0, 60.0, 400), np.linspace(0.0, 300.0, 400))
    one, two = (
        cagp.condition(
            cagp.Prior(kernel, 0.1, 0.0), X, np.zeros(400), X[:1], solver=cagp.BlockGaussSeidel(3)
        ).stats.plan.seconds
        for kernel in (cagp.Matern32(0.2), cagp.Matern32(0.2) + cagp.Matern12(0.5))
    )
    assert 1.3 * one < two < 2.0 * one


def test_the_limit_is_for_a_machine_without_other_programs() -> None:
    with Narrator(shown=False, time_limit_seconds=25.0, workers=2) as narrator:
        narrator.expect(SOLVE)
        narrator.announce()  # 30 seconds just now, and 24 alone
        assert narrator.planned_seconds == pytest.approx(30.0)
        narrator.expect(replace(SOLVE, seconds=21.0))
        with pytest.raises(BudgetError, match="about 25 s, more than the 25 s of time_limit_seconds"):
            narrator.announce()


def test_ways_that_save_most_of_long_work_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    seconds = {"a quarter of the targets": 8.0, 'solver="auto"': 19.0, "folds=5": 10.0, "numbers": 0.0}
    ways = tuple(Way(*each) for each in seconds.items())
    with Narrator(shown=True, time_limit_seconds=None, workers=2) as narrator:
        narrator.expect(replace(SOLVE, faster=ways))
        narrator.announce()
        narrator.expect(replace(SOLVE, seconds=60.0, faster=ways))
        narrator.announce()
    first, second = (record.message for record in caplog.records)
    assert first.endswith("1 GiB. Faster: numbers: about 1 s; a quarter of the targets: about 12 s")
    assert second.endswith('1 GiB. Faster: folds=5: about 15 s; solver="auto": about 28 s')
