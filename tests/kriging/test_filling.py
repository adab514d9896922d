"""A table gets its gaps filled: its own rows, in its own order, with an error bar for each gap."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError

NUMBERS = {"kernel": "matern32", "lengthscale_km": 400.0, "variance": 9.0, "noise_std": 0.3}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(4)
    frame = pd.DataFrame(
        {
            "station": [f"S{number}" for number in range(30)],
            "lat": rng.uniform(45.0, 55.0, 30),
            "lon": rng.uniform(5.0, 15.0, 30),
            "t (degC)": rng.normal(15.0, 3.0, 30),
        },
        index=pd.Index(np.arange(30)[::-1] + 100, name="row"),
    )
    frame.loc[frame.index[[3, 17, 29]], "t (degC)"] = np.nan
    return frame


def test_gaps_of_a_table_are_filled_and_all_else_stays(table):
    before = table.copy()
    result = cagp.krige(table, to=table, **NUMBERS)
    filled = result.cagp.fill(table)
    pd.testing.assert_frame_equal(table, before)
    pd.testing.assert_frame_equal(filled[table.columns], before)
    gap = table["t (degC)"].isna().to_numpy()
    np.testing.assert_array_equal(filled["filled"][~gap], table["t (degC)"][~gap])
    np.testing.assert_array_equal(filled["filled"][gap], result["mean"][gap])
    np.testing.assert_array_equal(filled["filled_std"][gap], result["std"][gap])
    assert filled["filled_std"][~gap].isna().all()
    assert filled.attrs["filled_units"] == "degC"


def test_a_field_with_gaps_is_filled_on_its_own_grid():
    """As the page says, and `fill` says so."""
    rng = np.random.default_rng(5)
    field = xr.DataArray(
        rng.normal(15.0, 3.0, (5, 6)),
        coords={"latitude": np.arange(45.0, 50.0), "longitude": np.arange(5.0, 11.0)},
        dims=("latitude", "longitude"),
        name="t",
        attrs={"units": "degC"},
    )
    field[1, 2] = field[3, 4] = np.nan
    result = cagp.krige(field, **NUMBERS)
    complete, known = field.fillna(result["mean"]), field.notnull()
    assert not complete.isnull().any()
    xr.testing.assert_equal(complete.where(known), field)
    np.testing.assert_array_equal(complete.values[~known], result["mean"].values[~known])
    for given in (field, field.to_dataset()):
        with pytest.raises(ArgumentError, match="fillna") as refused:
            result.cagp.fill(given)
        assert refused.value.key == "fill-of-field"


@pytest.mark.filterwarnings("ignore:1 row is a copy of another row")
def test_copies_of_a_row_are_measured_and_limits_of_detection_are_gaps(table):
    twice = pd.concat([table, table.iloc[[0, 3]]])
    filled = cagp.krige(twice, to=twice, **NUMBERS).cagp.fill(twice)
    assert filled["filled"].iloc[30] == table["t (degC)"].iloc[0]
    assert np.isnan(filled["filled_std"].iloc[30])
    assert filled["filled_std"].iloc[31] == filled["filled_std"].iloc[3] > 0.0
    lead = {
        "lat": table["lat"].to_numpy(),
        "lon": table["lon"].to_numpy(),
        "lead": [f"{2.0 + 0.1 * each:.1f}" for each in range(29)] + ["<0.1"],
    }
    result = cagp.krige(lead, to=lead, progress=False, **NUMBERS)
    filled = result.cagp.fill(lead)
    np.testing.assert_array_equal(np.flatnonzero(filled["filled_std"].notna()), [29])
    assert filled["filled"].iloc[29] == result["mean"].values[29]


def test_rows_of_a_plane_are_filled(table):
    x, y = 600e3 + 2e4 * np.cos(np.arange(30)), 5300e3 + 2e4 * np.sin(3.0 * np.arange(30))
    plane = pd.DataFrame({"x": x, "y": y, "zinc": table["t (degC)"].to_numpy()})
    result = cagp.krige(
        plane, to=plane, columns={"x": "x", "y": "y"}, crs=32632, **NUMBERS | {"lengthscale_km": 9.0}
    )
    filled = result.cagp.fill(plane)
    assert np.flatnonzero(filled["filled_std"].notna()).tolist() == [3, 17, 29]


def test_a_table_of_one_day_keeps_its_dates(table):
    every = pd.concat([table.assign(date=day) for day in ("2020-06-01", "2020-06-02")])
    day = every[every["date"] == "2020-06-01"]
    result = cagp.krige(day, to=day.drop(columns="date"), **NUMBERS)
    expected = cagp.krige(table, to=table, **NUMBERS).cagp.fill(table)
    for given in (result, result.isel(time=0), result.isel(time=0, drop=True)):
        filled = given.cagp.fill(day)
        pd.testing.assert_frame_equal(filled[day.columns], day)
        pd.testing.assert_frame_equal(filled.drop(columns="date"), expected)
    other = day.assign(date="2020-06-02")
    gap_of_another = day.assign(date=np.where(day["t (degC)"].isna(), "2020-06-02", "2020-06-01"))
    both = cagp.krige(every, to=day.drop(columns="date"), **NUMBERS)
    for given, rows in ((result, other), (result, gap_of_another), (both, day)):
        with pytest.raises(ArgumentError) as refused:
            given.cagp.fill(rows)
        assert refused.value.key == "not-of-rows"
    pd.testing.assert_frame_equal(both.isel(time=0).cagp.fill(day).drop(columns="date"), expected)
    two_days = day.assign(date=np.where(np.arange(30) < 15, "2020-06-01", "2020-06-02"))
    places = two_days.drop(columns="date")
    plain = cagp.krige(two_days, to=places, columns={"time": "none"}, **NUMBERS)
    assert plain.cagp.fill(two_days)["filled_std"].notna().sum() == 3


def test_rows_that_were_not_chosen_are_predicted_and_not_kept(table):
    table = table.assign(quality=np.where(np.arange(30) < 5, "bad", "good"))
    result = cagp.krige(table, to=table, where={"quality": "good"}, **NUMBERS)
    filled = result.cagp.fill(table)
    assert np.flatnonzero(filled["filled_std"].notna()).tolist() == [0, 1, 2, 3, 4, 17, 29]
    np.testing.assert_array_equal(filled["filled"][:5], result["mean"][:5])


def test_rows_of_a_profile_have_their_depths():
    at = {"lat": np.repeat([48.1, 52.5, 50.1], 3), "lon": np.repeat([11.6, 13.4, 8.7], 3)}
    values = np.array([15.0, 12.0, np.nan, 14.0, 11.0, 5.0, 16.0, np.nan, 6.0])
    profiles = pd.DataFrame(at | {"pressure": np.tile([0.0, 10.0, 50.0], 3), "t (degC)": values})
    kernel = cagp.Matern32((0.05, 20.0), 4.0, axis=("space", "depth"))
    deep = {"columns": {"depth": "pressure"}, "prior": cagp.Prior(kernel, 0.09, 10.0)}
    result = cagp.krige(profiles, to=profiles, progress=False, **deep)
    filled = result.cagp.fill(profiles)
    assert np.flatnonzero(filled["filled_std"].notna()).tolist() == [2, 7]
    with pytest.raises(ArgumentError) as refused:
        result.cagp.fill(profiles.iloc[[0, 2, 1, 3, 4, 5, 6, 7, 8]])
    assert refused.value.key == "not-of-rows"


def test_a_result_that_is_not_of_the_rows_is_refused(table):
    result = cagp.krige(table, to=table, **NUMBERS)
    wrong = (
        (cagp.krige(table, to=1.0, **NUMBERS), table),
        (result, table.iloc[::-1]),  # other places, row by row
        (result, table.iloc[:-1]),
    )
    for given, rows in wrong:
        with pytest.raises(ArgumentError) as refused:
            given.cagp.fill(rows)
        assert refused.value.key == "not-of-rows"
    with pytest.raises(ArgumentError) as refused:
        result.cagp.fill(table.assign(filled=0.0))
    assert refused.value.key == "fill-columns"
