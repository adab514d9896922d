"""Requests ask for exactly the times that are wanted; equal requests have one key."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cagp_dist.errors import ConfigurationError
from cagp_dist.fields.selection import parse_times
from cagp_dist.fields.stores.cds_cache import request_key, requested_times, requests_for

from ..joined import one_after_another

HOURS = np.datetime64("2019-12-30T00", "h").astype(int)


@given(st.sets(st.integers(0, 24 * 70), min_size=1, max_size=60))
def test_requests_cover_the_times_once_and_each_stays_in_a_month(offsets):
    times = np.array(sorted(HOURS + offset for offset in offsets), dtype="datetime64[h]").astype(
        "datetime64[ns]"
    )
    requests = requests_for(times)
    asked = np.concatenate([requested_times(request) for request in requests])
    assert asked.size == times.size
    np.testing.assert_array_equal(np.sort(asked), times)
    assert all(len(request["year"]) == len(request["month"]) == 1 for request in requests)


def test_a_month_of_hours_is_one_request_of_the_documented_form():
    times = np.arange("2019-03-01", "2019-04-01", dtype="datetime64[h]").astype("datetime64[ns]")
    (request,) = requests_for(times, area=(60, -10, 50, 2), grid_degrees=1)
    assert request == {
        "product_type": ["reanalysis"],
        "variable": ["2m_temperature"],
        "year": ["2019"],
        "month": ["03"],
        "day": [f"{day:02d}" for day in range(1, 32)],
        "time": [f"{hour:02d}:00" for hour in range(24)],
        "data_format": "grib",
        "download_format": "unarchived",
        "area": [60.0, -10.0, 50.0, 2.0],
        "grid": [1.0, 1.0],
    }


def test_the_key_follows_the_content_and_not_the_order_in_which_it_was_written():
    (request,) = requests_for(parse_times(["2019-03-01"]))
    backwards = dict(reversed(request.items()))
    assert request_key(request) == request_key(backwards)
    assert len(request_key(request)) == 64
    assert request_key(request) != request_key(request | {"day": ["02"]})


@one_after_another
@pytest.mark.parametrize(
    ("times", "settings", "key"),
    [
        (["2019-03-01T00:30"], {}, "times"),
        (["2019-03-01"], {"grid_degrees": 0.0}, "grid-degrees"),
        (["2019-03-01"], {"area": (0.0, 0.0, 1.0, 1.0)}, "area"),
    ],
)
def test_what_cannot_be_asked_is_refused(times, settings, key):
    with pytest.raises(ConfigurationError) as refusal:
        requests_for(parse_times(times), **settings)
    assert refusal.value.key == key
