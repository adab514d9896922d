import numpy as np
import pytest
from scipy.special import ndtr

from cagp_dist.calibration.pit import histogram
from cagp_dist.report.wording import percent, reading, signed, when, when_all
from cagp_dist.text import duration


def times(*stamps: str) -> np.ndarray:
    return np.array(stamps, dtype="datetime64[s]")


def test_times_are_spelled_out_without_the_locale() -> None:
    assert when(np.datetime64("2017-04-27T12:00:00", "s")) == "27 April 2017, 12:00 UTC"
    assert when(np.datetime64("1999-12-01T06:30:00.000000000", "ns")) == "1 December 1999, 06:30 UTC"


def test_several_times_are_first_to_last() -> None:
    assert when_all(times("2017-04-27T12:00")) == "27 April 2017, 12:00 UTC"
    assert (
        when_all(times("2019-03-01T05:00", "2019-03-01T00:00", "2019-03-01T01:00"))
        == "1 March 2019, 00:00 to 05:00 UTC (3 times)"
    )
    # the 1st is no part of the 11th
    assert (
        when_all(times("2019-03-01T00:00", "2019-03-11T00:00"))
        == "1 March 2019, 00:00 to 11 March 2019, 00:00 UTC (2 times)"
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
    [(1.0, "Close to flat"), (1.5, "overconfident"), (0.7, "conservative")],
)
def test_the_reading_tells_the_width_of_the_error_bars(spread: float, word: str) -> None:
    z = spread * np.random.default_rng(11).standard_normal(4000)
    assert word in reading(histogram(ndtr(z)))


def test_heavy_tails_are_told_apart_from_overconfidence() -> None:
    rng = np.random.default_rng(12)
    z = np.where(rng.random(4000) < 0.85, 0.4, 3.0) * rng.standard_normal(4000)
    assert reading(histogram(ndtr(z))).startswith("Peaked in the middle with raised ends")


@pytest.mark.parametrize(("shift", "word"), [(0.1, "warmer"), (-0.1, "colder")])
def test_a_lean_is_told_by_its_side(shift: float, word: str) -> None:
    values = ndtr(np.random.default_rng(14).standard_normal(4000))
    assert word in reading(histogram(np.clip(values ** (1.0 - shift), 0.0, 1.0)))


def test_few_points_are_not_overread() -> None:
    # With 40 points the outer tenth holds 4 +- 1.9; three standard errors are 5.7.
    z = 1.2 * np.random.default_rng(13).standard_normal(40)
    assert reading(histogram(ndtr(z))).startswith("Close to flat")
