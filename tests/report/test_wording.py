from typing import get_args

import numpy as np
import pytest
from scipy.special import ndtr

from cagp_dist.calibration.verification.pit import histogram
from cagp_dist.calibration.verification.verdict import Kind
from cagp_dist.report.wording import (
    COVERAGE_WORDS,
    SIMULATION_WORDS,
    computed,
    percent,
    reading,
    signed,
    when,
    when_all,
)
from cagp_dist.text import duration


def times(*stamps: str) -> np.ndarray:
    return np.array(stamps, dtype="datetime64[s]")


@pytest.mark.parametrize(
    ("stamps", "text"),
    [
        (["2017-04-27T12:00"], "27 April 2017, 12:00 UTC"),
        (["1999-12-01T06:30"], "1 December 1999, 06:30 UTC"),
        (["2017-04-27T00:00", "2017-04-27T12:00"], "27 April 2017, 00:00 UTC"),
        (["2017-04-27T00:00", "2017-04-28T00:00"], "27 April 2017"),
        (["NaT"], ""),
    ],
)
def test_times_are_spelled_out_without_the_locale_and_days_without_a_clock(
    stamps: list[str], text: str
) -> None:
    assert when(times(*stamps)[0], times(*stamps)) == text


def test_several_times_are_first_to_last() -> None:
    assert when_all(times("2017-04-27T12:00")) == "27 April 2017, 12:00 UTC"
    assert (
        when_all(times("2019-03-01T05:00", "2019-03-01T00:00", "2019-03-01T01:00"))
        == "1 March 2019, 00:00 to 05:00 UTC (3 times)"
    )
    # the 1st is no part of the 11th
    assert (
        when_all(times("2019-03-01T00:00", "2019-03-11T00:00")) == "1 March 2019 to 11 March 2019 (2 times)"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.00 s"),
        (9.994, "9.99 s"),
        (9.996, "10.0 s"),
        (99.96, "1 min 40 s"),
        (3599.6, "1 h 0 min"),
        (7384.0, "2 h 3 min"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_signed_numbers_use_a_true_minus_and_no_signed_zero() -> None:
    assert [signed(v, 1) for v in (-1.25, 0.04, -0.04, 2.0)] == ["\N{MINUS SIGN}1.2", "0.0", "0.0", "+2.0"]
    assert percent(0.9123) == "91.2 %"


@pytest.mark.parametrize(
    ("spread", "word"),
    [(1.0, "Close to flat"), (1.5, "too narrow"), (0.7, "too wide")],
)
def test_the_reading_tells_the_width_of_the_error_bars(spread: float, word: str) -> None:
    z = spread * np.random.default_rng(11).standard_normal(4000)
    assert word in reading(histogram(ndtr(z)))


def test_heavy_tails_are_told_apart_from_overconfidence() -> None:
    rng = np.random.default_rng(12)
    z = np.where(rng.random(4000) < 0.85, 0.4, 3.0) * rng.standard_normal(4000)
    assert reading(histogram(ndtr(z))).startswith("Peaked in the middle with raised ends")


def test_errors_that_agree_count_as_fewer_independent_ones() -> None:
    # 60 independent errors, ten points each: what chance makes of 60 looks like a shape among 600
    z = np.repeat(np.random.default_rng(0).standard_normal(60), 10)
    assert reading(histogram(ndtr(z))).startswith("Hump-shaped")
    assert reading(histogram(ndtr(z)), design_effect=10.0).startswith("Close to flat")
    many = np.repeat(0.6 * np.random.default_rng(0).standard_normal(600), 10)
    assert reading(histogram(ndtr(many)), design_effect=10.0).startswith("Hump-shaped")


@pytest.mark.parametrize(("shift", "word"), [(0.1, "warmer"), (-0.1, "colder")])
def test_a_lean_is_told_by_its_side(shift: float, word: str) -> None:
    values = ndtr(np.random.default_rng(14).standard_normal(4000))
    assert word in reading(histogram(np.clip(values ** (1.0 - shift), 0.0, 1.0)))


def test_few_points_are_not_overread() -> None:
    # With 40 points the outer tenth holds 4 +- 1.9; three standard errors are 5.7.
    z = 1.2 * np.random.default_rng(13).standard_normal(40)
    text = reading(histogram(ndtr(z)))
    # which faults would have shown stands once on a page, with the coverage
    assert text == "Close to flat: no shape that chance does not explain."


def test_few_points_show_nothing() -> None:
    assert reading(histogram([0.2])) == "1 point cannot distinguish a shape from chance."
    assert reading(histogram([0.2, 0.9])) == "2 points cannot distinguish a shape from chance."


@pytest.mark.parametrize(
    ("status", "iterations", "said"),
    [
        ("exact", 1, "finished the computation"),
        ("solved", 1, "relative residual of 1e-10"),
        ("converged", 12, "reached rounding level after 12 iterations"),
        ("breakdown", 1, "broke down after 1 iteration;"),
        ("stopped", 5, "did 5 iterations; it follows the observations, so its error bars are not calibrated"),
        ("ill-conditioned", 1, "rounding may have spoilt mean and error bars"),
        ("completed", 0, "this is the prior"),
        ("completed", 5, "did 5 iterations; the error bars include what it did not compute"),
    ],
)
def test_what_was_computed_follows_how_the_solve_ended(status: str, iterations: int, said: str) -> None:
    text = computed(status, iterations)
    assert said in text
    assert "not wrong ones" not in text
    assert ("stopped" in text) is False


def test_every_verdict_has_its_words() -> None:
    assert set(SIMULATION_WORDS) == set(get_args(Kind))
    assert set(COVERAGE_WORDS) == set(get_args(Kind)) - {"biased"}  # which simulated fields alone can be
