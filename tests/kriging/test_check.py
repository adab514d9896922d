"""`check` of tables and objects of xarray: flags stand in the rows that they are of."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError

SETTINGS: dict[str, Any] = {"kernel": "matern32", "progress": False}


def stations() -> pd.DataFrame:
    """Temperatures on a slope, the eighth ten times too large."""
    latitude, longitude = np.repeat(np.arange(46.0, 52.0), 6), np.tile(np.arange(6.0, 12.0), 6)
    values = 20.0 - (latitude - 46.0) + 0.2 * np.sin(9.0 * longitude)
    values[8] *= 10.0
    return pd.DataFrame({"lat": latitude, "lon": longitude, "t (degC)": values}, index=np.arange(36) + 100)


def test_a_table_comes_back_with_flags_in_its_rows() -> None:
    clean = stations()
    gap = clean.iloc[:1].assign(**{"t (degC)": np.nan})
    copy = clean.iloc[8:9]
    table = pd.concat([gap, clean, copy], ignore_index=True).sample(frac=1.0, random_state=1)
    with pytest.warns(UserWarning, match="copy of another row"):
        found = cagp.check(table, rate=0.1, **SETTINGS)
    assert found.index.equals(table.index)
    pd.testing.assert_frame_equal(found[table.columns], table, check_exact=True)
    assert sorted(found.index[found.flag]) == [9, 37]  # the row and its copy
    assert set(found.suggestion[found.flag]) == {f"divide by 10: {clean['t (degC)'].iloc[8] / 10.0:.6g}"}
    assert np.isnan(found.expected[0])  # without a value
    assert not found.flag[0]
    assert found.expected.notna().sum() == 37
    assert (found.attrs["rate"], found.attrs["flagged"]) == (0.1, 1)


def test_only_rows_that_are_meant_are_checked_and_an_object_has_the_same_flags() -> None:
    table = stations().assign(element="TMAX")
    other = table.assign(element="TMIN", **{"t (degC)": 500.0})
    both = pd.concat([other, table], ignore_index=True)
    found = cagp.check(both, where={"element": "TMAX"}, **SETTINGS)
    assert np.flatnonzero(found.flag).tolist() == [36 + 8]
    assert found.expected[:36].isna().all()
    points = stations().rename(columns={"t (degC)": "t"}).reset_index(drop=True).to_xarray()
    again = cagp.check(points, value="t", units="degC", **SETTINGS)
    np.testing.assert_array_equal(again.flag, found.flag[36:])
    np.testing.assert_allclose(again.expected, found.expected[36:])
    assert again.latitude.values[8] == table.lat.iloc[8]


def test_limits_of_detection_are_neither_flagged_nor_evidence() -> None:
    """The other rows have the flags of a table without these."""
    given = stations().rename(columns={"t (degC)": "cadmium"})
    hidden = np.arange(len(given)) % 5 == 4
    texts = [f"{value:.4f}" for value in given["cadmium"]]
    given["cadmium"] = [f"<{text}" if low else text for text, low in zip(texts, hidden, strict=True)]
    numbers = SETTINGS | {"lengthscale": 0.1, "variance": 4.0, "noise_std": 0.3}
    found = cagp.check(given, value="cadmium", **numbers)
    assert not found.flag[hidden].any()
    assert found.expected[hidden].isna().all()
    alone = cagp.check(given[~hidden].astype({"cadmium": float}), value="cadmium", **numbers)
    assert alone.flag.sum() == 1
    for name in ("flag", "expected", "expected_std"):
        np.testing.assert_allclose(found[name][~hidden].astype(float), alone[name].astype(float), rtol=1e-9)


def test_limits_at_several_times_are_left_out_of_suggestions_too() -> None:
    """Seven times, of which the eighth place is wrong at all."""
    rng = np.random.default_rng(0)
    one = stations().iloc[:, :2].reset_index(drop=True)
    table = pd.concat(
        [one.assign(time=day) for day in pd.date_range("2020-01-01", periods=7)], ignore_index=True
    )
    values = 20.0 - (table.lat - 46.0) + 0.2 * rng.standard_normal(len(table))
    values[np.arange(8, len(table), 36)] *= 10.0
    low = np.arange(len(table)) % 36 % 5 == 4
    table["cadmium"] = [
        f"<{value:.4f}" if limit else f"{value:.4f}" for value, limit in zip(values, low, strict=True)
    ]
    found = cagp.check(table, value="cadmium", lengthscale=0.1, variance=4.0, noise_std=0.3, **SETTINGS)
    assert (np.flatnonzero(found.flag) % 36 == 8).all()
    assert found.flag.sum() == 7
    assert found.suggestion[found.flag].str.startswith("divide by 10").all()


def test_values_of_all_times_predict_each_other() -> None:
    generator = np.random.default_rng(4)
    hours = np.tile(np.arange(12), 12)
    place = np.repeat(np.arange(12), 12)
    values = 10.0 + np.sin(0.4 * hours + place) + 0.1 * generator.standard_normal(144)
    values[70] += 6.0
    table = {
        "lat": 47.0 + 0.7 * (place % 4),
        "lon": 8.0 + 0.9 * (place // 4),
        "time": np.datetime64("2024-07-01T00", "s") + hours * np.timedelta64(3600, "s"),
        "t": values,
    }
    settings: dict[str, Any] = {"value": "t", "units": "degC", "at": "observed", "progress": False}
    kernel = cagp.SpaceTime(cagp.Matern32(0.01, 1.0), cagp.Matern32(4.0))
    found = cagp.check(table, kernel=kernel, **settings)
    assert 70 in np.flatnonzero(found.flag)
    assert found.flag.sum() <= 2


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"to": 1.0}, "check-settings"),
        ({"recalibration": "local-scale"}, "check-settings"),
        ({"value": ["a", "b"]}, "check-settings"),
        ({"rate": 0.9}, "out-of-range"),
    ],
)
def test_what_a_check_does_not_have_is_refused(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ArgumentError) as error:
        cagp.check(stations(), **{**SETTINGS, **settings})
    assert error.value.key == key


def test_a_column_of_the_same_name_is_not_overwritten() -> None:
    with pytest.raises(ArgumentError) as error:
        cagp.check(stations().assign(flag="ok"), **SETTINGS)
    assert error.value.key == "check-columns"
