"""Warnings are of the user's line, so that Python shows those of arguments that go."""

import warnings

import pytest

import cagp_dist as cagp

TABLE = {
    "lat": [2.0, 5.0, 8.0],
    "lon": [3.0, 8.0, 10.0],
    "depth": [5.0, 5.0, 5.0],
    "value [K]": [9.0, 11.0, 12.0],
}
KNOWN = {"kernel": "matern32", "lengthscale": 0.1, "variance": 4.0, "noise_std": 0.5}


@pytest.mark.parametrize(
    "call",
    [
        lambda: cagp.krige(TABLE, to=5.0, latitude="lat", longitude="lon", **KNOWN, mean=10.0),
        lambda: cagp.Kriging(**KNOWN, drift="constant").fit(TABLE),
        lambda: cagp.Kriging(**KNOWN, mean=10.0, columns={"depth": "depth"}).fit(TABLE),
    ],
    ids=["latitude=", "drift=", "one depth"],
)
def test_a_warning_names_the_call_of_the_user(call) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        call()
    assert told
    assert {each.filename for each in told} == {__file__}
