"""One point per place on the globe, no missing values, and everything that was left out is counted."""

import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cagp_dist.errors import DataError
from cagp_dist.fields.canonical import canonical, observation_points

from .fields import raw_dataset


def globe(**changes):
    return canonical(raw_dataset(latitude=(90.0, 45.0, 0.0, -45.0, -90.0), **changes))


def test_pole_rows_become_one_point_each_with_their_value_to_the_last_bit():
    field = globe()
    points = observation_points(field)
    assert points.merged_pole_copies == 6
    assert points.dropped_missing == 0
    assert points.north.tolist() == [-90.0] + [-45.0] * 4 + [0.0] * 4 + [45.0] * 4 + [90.0]
    assert points.east.tolist() == [0.0] + [0.0, 90.0, 180.0, 270.0] * 3 + [0.0]
    np.testing.assert_array_equal(points.values[:, 0], field.t2m[:, 0, 0])
    np.testing.assert_array_equal(points.values[:, -1], field.t2m[:, -1, 0])
    np.testing.assert_array_equal(points.values[:, 1:-1].reshape(2, 3, 4), field.t2m[:, 1:4])
    np.testing.assert_array_equal(points.times, field.time)
    assert points.values.dtype == np.float64


def test_a_field_without_poles_loses_no_point():
    points = observation_points(canonical(raw_dataset()))
    assert (points.merged_pole_copies, points.dropped_missing) == (0, 0)
    assert points.values.shape == (2, 16)


def test_sector_averages_of_the_polar_cap_are_averaged_and_noted(caplog):
    field = globe()
    field.t2m[0, 4] = [250.0, 251.0, 252.0, 253.0]
    with caplog.at_level(logging.WARNING):
        points = observation_points(field)
    assert points.values[0, -1] == 251.5
    assert "the 4 values at latitude 90 differ by up to 3.00 K" in caplog.text
    caplog.clear()
    field.t2m[0, 4] = [250.0, 250.002, 250.0, 250.0]
    with caplog.at_level(logging.WARNING):
        observation_points(field)
    assert caplog.text == ""


def test_a_pole_with_a_missing_copy_is_kept_and_one_without_any_is_dropped():
    field = globe()
    field.t2m[0, 0] = [np.nan, 240.0, np.nan, 240.0]
    assert observation_points(field).values[0, 0] == 240.0
    field.t2m[0, 0] = np.nan
    points = observation_points(field)
    assert points.north[0] == -45.0
    assert (points.merged_pole_copies, points.dropped_missing) == (6, 1)


def test_a_whole_missing_time_is_named():
    field = globe()
    field.t2m[1] = np.nan
    with pytest.raises(DataError) as refusal:
        observation_points(field)
    assert refusal.value.key == "empty-times"


def test_no_point_with_all_times_is_an_error():
    field = canonical(raw_dataset())
    field.t2m[0, :2] = np.nan
    field.t2m[1, 2:] = np.nan
    with pytest.raises(DataError) as refusal:
        observation_points(field)
    assert refusal.value.key == "nothing-observed"


@given(holes=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 4), st.integers(0, 3)), max_size=12))
def test_points_are_complete_unique_and_accounted_for(holes):
    field = globe()
    for time, row, column in holes:
        field.t2m[time, row, column] = np.nan
    points = observation_points(field)
    n = points.north.size
    assert np.isfinite(points.values).all()
    assert points.values.shape == (2, n)
    assert n + points.dropped_missing + points.merged_pole_copies == 20
    places = set(zip(points.north, points.east, strict=True))
    assert len(places) == n
    expected = {(row, column) for _, row, column in holes if row in (1, 2, 3)}
    whole_poles = [r for r in (0, 4) if any({(t, r, c) for c in range(4)} <= set(holes) for t in (0, 1))]
    assert points.dropped_missing == len(expected) + len(whole_poles)
