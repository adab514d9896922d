"""Values below limits of detection, as tables have them."""

import numpy as np
import pandas as pd
import pytest

from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.fields.observed_objects import read
from cagp_dist.fields.tables import read_table

PLACES = {"lat": [48.1, 52.5, 50.1, 51.0], "lon": [11.6, 13.4, 8.7, 9.0]}
WRITTEN = {
    "marks": ["1.5", "< 0.2", "<=0.5", "3"],
    "words": ["1.5", "ND", "n.d.", "3"],
    "mixed": ["1.5", "<0.2", "not detected", "3"],
    "limits": ["1.5", "0.2", "0.5", "3"],
}
LOD = [0.2, 0.2, 0.5, None]


@pytest.mark.parametrize("way", WRITTEN)
def test_cells_below_limits_are_these_however_they_are_written(way, tmp_path):
    table = PLACES | {"zinc (ug/l)": WRITTEN[way]}
    columns = None if way == "marks" else {"limit": "lod (ug/l)"}
    table |= {} if columns is None else {"lod (ug/l)": LOD}
    path = tmp_path / "zinc.csv"
    pd.DataFrame(table).to_csv(path, index=False)
    for source in (table, path):
        points = read(source, value="zinc (ug/l)", columns=columns, limits=True).points
        np.testing.assert_array_equal(points.values, [[1.5, 0.2, 0.5, 3.0]])
        np.testing.assert_array_equal(points.limits, [[False, True, True, False]])


def test_limits_stay_with_their_times_and_units():
    table = {name: np.tile(column, 2) for name, column in PLACES.items()}
    table |= {
        "time": np.repeat(["2024-01-01", "2024-01-02"], 4),
        "zinc (ug/l)": WRITTEN["marks"] + list("4567"),
    }
    points = read(table, units="ug/l", value="zinc (ug/l)", limits=True).points
    assert points.values[0, 1] == 0.2
    np.testing.assert_array_equal(points.limits, [[False, True, True, False], [False] * 4])
    assert points.at(np.array([1, 3])).censored.tolist() == [[True, False], [False, False]]


REFUSED = {
    "no column": (WRITTEN["words"], None, None, "limit"),
    "no limit": (["1.5", "0.2", "0.5", "ND"], LOD, None, "limit"),
    "no value": (["1.5", "", "0.5", "3"], LOD, None, "limit-without-value"),
    "above the value": (["0.1", "0.2", "0.5", "3"], LOD, None, "limit-above-value"),
    "another limit": (["1.5", "<0.3", "0.5", "3"], LOD, None, "limit-above-value"),
    "a unit in cells": (["1.5", "< 0.6 mg/l", "0.5", "3"], None, None, "number-with-unit"),
    "no limit upwards": (["1.5", ">20", "0.5", "3"], None, None, "limit"),
    "other units": (WRITTEN["limits"], LOD, "lod (mg/l)", "units"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_clear_is_refused(case):
    cells, limits, name, key = REFUSED[case]
    name = name or "lod"
    table = PLACES | {"zinc (ug/l)": cells} | ({} if limits is None else {name: limits})
    with pytest.raises((DataError, ArgumentError)) as refused:
        read(table, value="zinc (ug/l)", columns=None if limits is None else {"limit": name}, limits=True)
    assert refused.value.key == key


@pytest.mark.parametrize("way", ["marks", "limits"])
def test_who_takes_values_alone_refuses_limits(way):
    columns = None if way == "marks" else {"limit": "lod"}
    with pytest.raises((DataError, ArgumentError)) as refused:
        read_table(PLACES | {"zinc": WRITTEN[way], "lod": LOD}, value="zinc", columns=columns)
    assert refused.value.key == "limit"
