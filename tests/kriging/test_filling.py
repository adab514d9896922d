"""A table gets its gaps filled: its own rows, in its own order, with an error bar for each gap."""

import numpy as np
import pandas as pd
import pytest

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
