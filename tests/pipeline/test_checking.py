"""Flags of values that the others contradict: what is found, and how many are false."""

from dataclasses import replace

import numpy as np
import pytest

from cagp_dist import unit_sphere
from cagp_dist.arrays import Array, Mask
from cagp_dist.errors import DataError
from cagp_dist.kernels import Matern32
from cagp_dist.means import MEANS
from cagp_dist.pipeline.checking import Checked, check_observations, threshold
from cagp_dist.pipeline.field_solves import Execution
from cagp_dist.pipeline.map_points import MapPoints, Targets
from cagp_dist.pipeline.model_settings import ModelSettings
from cagp_dist.pipeline.observations import Observations
from cagp_dist.pipeline.outliers import contamination
from cagp_dist.pipeline.split import Split
from cagp_dist.pipeline.suggestions import suggestions
from cagp_dist.pipeline.task import Task
from cagp_dist.runtime.executor import SerialExecutor
from cagp_dist.variables import variable_named

HERE = Execution(SerialExecutor())


def observed(n: int, share: float, seed: int, *, fields: int = 1) -> tuple[Observations, Mask]:
    """Temperatures of Germany and around, a share of which has an error of 8 to 20."""
    generator = np.random.default_rng([27, n, seed])
    north, east = generator.uniform(45.0, 55.0, n), generator.uniform(0.0, 15.0, n)
    X = unit_sphere(north, east)
    root = np.linalg.cholesky(Matern32(0.04, 4.0)(X, X) + 1e-8 * np.eye(n))
    field = 10.0 + (root @ generator.standard_normal((n, fields))).T
    error = np.sqrt(0.5) * generator.standard_normal((fields, n))
    wrong = generator.random((fields, n)) < share
    gross = generator.uniform(8.0, 20.0, (fields, n)) * generator.choice([-1.0, 1.0], (fields, n))
    times = (
        None
        if fields == 1
        else np.datetime64("2024-07-01", "ns") + np.arange(fields) * np.timedelta64(1, "h")
    )
    values = field + np.where(wrong, gross, error)
    return Observations.from_points(north, east, values, times=times, stated_units="degC"), wrong


def task_of(points: Observations) -> Task:
    settings = ModelSettings("matern32", MEANS["constant"])
    places = Split(np.arange(points.north.size))
    return Task(points, places, Targets(MapPoints(points.X[:0])), settings, refits=False)


def checked(points: Observations, rate: float = 0.05) -> Checked:
    return check_observations(task_of(points), rate, HERE)


def test_the_threshold_is_that_of_benjamini_and_hochberg() -> None:
    generator = np.random.default_rng(0)
    chances: Array = np.concatenate([generator.uniform(size=80), 1e-4 * generator.uniform(size=20)])
    limit = threshold(chances, 0.1)
    ordered = np.sort(chances)
    flagged = max(k for k in range(1, 101) if ordered[k - 1] <= 0.1 * k / 100)
    assert limit == ordered[flagged - 1]
    assert threshold(np.full(10, 0.9), 0.1) < 0.0


def test_gross_errors_are_found_and_others_kept() -> None:
    points, wrong = observed(200, 0.04, 1)
    found = checked(points)
    assert wrong.sum() >= 5
    assert (found.flagged & wrong).sum() == wrong.sum()
    assert (found.flagged & ~wrong).sum() <= 1
    right = ~found.flagged
    spread = np.std((points.values - found.expected)[right] / found.std[right])
    assert abs(spread - 1.0) < 4.0 / np.sqrt(2.0 * right.sum())  # four standard errors


def test_each_time_is_checked_by_itself() -> None:
    points, wrong = observed(60, 0.03, 2, fields=4)
    values = points.values.copy()
    values[0, :10] = np.nan
    found = checked(Observations.from_points(points.north, points.east, values, times=points.times))
    wrong &= ~np.isnan(values)
    assert (found.flagged & wrong).sum() == wrong.sum() > 3
    assert np.isnan(found.expected[0, :10]).all()


def test_a_plague_is_no_outlier_and_few_values_tell_of_none() -> None:
    points, _ = observed(80, 0.0, 3)
    wild = np.random.default_rng(3).uniform(-1e3, 1e3, (1, 80))
    numbers = ModelSettings(Matern32(0.04, 4.0), MEANS["constant"], noise_variance=0.5)
    with pytest.raises(DataError) as error:
        check_observations(replace(task_of(replace(points, values=wild)), model=numbers), 0.05, HERE)
    assert error.value.key == "most-are-flagged"
    with pytest.raises(DataError) as error:
        checked(points.at(np.arange(9)))
    assert error.value.key == "few-to-check"
    alike = np.full((1, 80), 3.0)
    alike[0, 5] = 30.0
    with pytest.raises(DataError) as error:
        checked(replace(points, values=alike))
    assert error.value.key == "constant-to-check"


def test_what_would_make_values_right_is_said() -> None:
    points, _ = observed(100, 0.0, 4)
    values = points.values.copy() + 12.0
    at = {10: -values[0, 10], 20: values[0, 20] * 10.0, 40: values[0, 40] / 100.0}
    at |= {60: values[0, 60] * 1.8 + 32.0, 80: values[0, 80] + 273.15, 95: 55.0}
    right = values[0].copy()
    for place, value in at.items():
        values[0, place] = value
    given = Observations.from_points(points.north, points.east, values, stated_units="degC")
    found = checked(given)
    said = suggestions(task_of(given), found, HERE)[0]
    assert found.flagged[0, list(at)].all()
    for place, text in zip(
        at,
        ("change the sign", "divide by 10", "multiply by 100", "from degrees Fahrenheit", "from kelvin"),
        strict=False,
    ):
        assert said[place] == f"{text}: {right[place]:.6g}"
    assert said[95] == ""  # nothing makes it right


def test_swapped_coordinates_are_said() -> None:
    generator = np.random.default_rng(5)
    n = 150
    north, east = generator.uniform(40.0, 50.0, n), generator.uniform(40.0, 50.0, n)
    values = 20.0 + 2.0 * (north - 45.0) + 0.1 * generator.standard_normal(n)
    far = int(np.argmax(north - east))
    north[far], east[far] = east[far], north[far]
    given = Observations.from_points(north, east, values[None], variable=variable_named("t"))
    found = checked(given)
    assert np.flatnonzero(found.flagged[0]).tolist() == [far]
    assert suggestions(task_of(given), found, HERE)[0, far] == "swap latitude and longitude"


def test_share_and_width_of_wider_noise_are_those_drawn() -> None:
    generator = np.random.default_rng(6)
    n, share, width = 20_000, 0.03, 40.0
    variance = generator.uniform(0.5, 1.5, n)
    wrong = generator.random(n) < share
    errors = np.sqrt(variance + width * wrong) * generator.standard_normal(n)
    found = contamination(errors, variance)
    assert found.taken
    assert abs(found.share - share) < 4.0 * np.sqrt(share / n) * 1.3  # errors of wrong ones may be small
    assert abs(found.variance / width - 1.0) < 4.0 * np.sqrt(2.0 / (share * n)) * 1.3
    assert abs(found.probability.sum() - wrong.sum()) < 4.0 * np.sqrt(share * n)
    clean = contamination(np.sqrt(variance) * generator.standard_normal(n), variance)
    assert not clean.taken


@pytest.mark.exhaustive
@pytest.mark.parametrize("share", [0.0, 0.01, 0.02, 0.05])
def test_the_share_of_false_flags_is_the_rate(share: float) -> None:
    """Over twelve fields of 300 values: counts of false flags are about Poisson."""
    false, hits, errors = 0, 0, 0
    for seed in range(12):
        points, wrong = observed(300, share, 100 + seed)
        flagged = checked(points).flagged
        false, hits = false + int((flagged & ~wrong).sum()), hits + int((flagged & wrong).sum())
        errors += int(wrong.sum())
    assert hits >= 0.98 * errors
    expected = 0.05 / 0.95 * hits if share else 0.05 * 12  # of clean fields a twentieth has a flag
    assert false <= expected + 4.0 * np.sqrt(max(expected, 1.0))
