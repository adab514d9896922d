"""Rows of tables: when they were measured, what tells rows of one place apart, and one field or many."""

import datetime as dt

import numpy as np
import pandas as pd
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, ConfigurationError, DataError
from cagp_dist.fields.sources import open_source
from cagp_dist.fields.tables import by_time_and_place, read_places, read_table

from ..joined import one_after_another

PLACES = {"lat": [1.0, 1.0, 2.0, 2.0], "lon": [5.0, 5.0, 6.0, 6.0]}
ROWS = PLACES | {"t": [1.0, 2.0, 3.0, 4.0]}
NUMBERS = {"lengthscale_km": 500.0, "variance": 4.0, "noise_std": 0.2, "mean": 2.0}


def times(*written):
    return np.array(written, dtype="datetime64[ns]").tolist()


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"date": ["2020-07-01"] * 4, "hour": [0, 6, 0, 24]},
         ["2020-07-01T00", "2020-07-01T06", "2020-07-02T00"]),
        ({"DATE": [20200701] * 4, "TIME": [0, 1230, 0, 1230]}, ["2020-07-01T00", "2020-07-01T12:30"]),
        ({"date": ["01.07.2020"] * 4, "time": ["09:30", "10:00 UTC"] * 2},
         ["2020-07-01T09:30", "2020-07-01T10"]),
        ({"date": ["2020-07-01"] * 4, "time": [dt.time(9), dt.time(10)] * 2},
         ["2020-07-01T09", "2020-07-01T10"]),
        ({"date": pd.to_datetime(["2020-07-01"] * 4), "hour": [1, 2] * 2, "minute": [30] * 4},
         ["2020-07-01T01:30", "2020-07-01T02:30"]),
        ({"year": [2020] * 4, "month": [7] * 4, "day": [1] * 4, "time": ["09:00", "10:00"] * 2},
         ["2020-07-01T09", "2020-07-01T10"]),
    ],
)  # fmt: skip
def test_dates_and_times_of_day_make_times_together(columns, expected):
    fields = by_time_and_place(read_table(ROWS | columns, value="t"))
    assert fields.times.tolist() == times(*expected)
    assert fields.latitude_degrees.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (2020070112, "2020-07-01T12"),
        (202007011230, "2020-07-01T12:30"),
        (1593604800, "2020-07-01T12"),  # no date to the hour: seconds since 1970
        (1593604800000, "2020-07-01T12"),
        (1593604800.0, "2020-07-01T12"),
        ("01.07.2020 9:05", "2020-07-01T09:05"),
        ("2020-07-01 12:00 UTC", "2020-07-01T12"),
    ],
)
def test_spellings_of_times(written, read):
    assert read_table(ROWS | {"time": [written] * 4}, value="t").times.tolist() == times(*[read] * 4)


@one_after_another
@pytest.mark.parametrize(
    ("columns", "kind", "key"),
    [
        ({"time": [2020070112, 2020070199] * 2}, DataError, "no-time-in-cell"),
        ({"time": ["01/07/2020"] * 4}, DataError, "no-time-in-cell"),
        ({"date": ["2020-07-01"] * 4, "hour": [1, 25, 1, 2]}, DataError,
         "no-time-in-cell"),
        ({"time": ["09:00"] * 4}, ArgumentError,
         "no-time"),
    ],
)  # fmt: skip
def test_what_is_no_time_is_refused(columns, kind, key):
    with pytest.raises(kind) as refusal:
        read_table(ROWS | columns, value="t")
    assert refusal.value.key == key


def test_times_in_several_zones_are_counted():
    zoned = ROWS | {
        "time": ["2020-07-01T12:00", "2020-07-01T12:00Z", "2020-07-01T14:00+02:00", "2020-07-01T12:00"]
    }
    table = read_table(zoned, value="t", where={"t": "*"})
    assert set(table.times.tolist()) == set(times("2020-07-01T12"))
    assert "times in +02:00, Z, and 2 of 4 without a zone, which are taken as UTC" in table.notes[0]
    with pytest.warns(UserWarning, match="2 of 4 without a zone|4 rows share place and time"):
        cagp.krige(zoned, to={"lat": [1.5], "lon": [5.5]}, value="t", **NUMBERS)


@pytest.mark.parametrize(
    "column",
    [
        {"element": ["TMAX", "TMIN"] * 2},
        {"level": [850.0, 500.0] * 2},
        {"kind": [1, 2] * 2},
        {"name": ["TMAX", "TMIN"] * 2},
        {"name": ["A", "A", "B", "B"], "depth": [0.5, 1.5] * 2},
    ],
)
def test_rows_that_another_column_tells_apart_are_refused_until_one_says_which(column):
    name, (first, second) = list(column)[-1], list(column.values())[-1][:2]
    with pytest.raises(ArgumentError, match=f"rows .* differ in column '{name}'") as refused:
        read_table(ROWS | column, value="t")
    assert [remedy.value for remedy in refused.value.remedies] == [{name: first}, {name: "*"}]
    chosen = read_table(ROWS | column, value="t", where={name: second})
    assert (chosen.values.tolist(), chosen.dropped_missing) == ([2.0, 4.0], 0)
    for both in ("*", [first, second]):
        assert read_table(ROWS | column, value="t", where={name: both}).values.tolist() == ROWS["t"]


def test_krige_takes_the_rows_that_are_meant():
    column, name, first = {"element": ["TMAX", "TMIN"] * 2}, "element", "TMAX"
    field = cagp.krige(
        ROWS | column, to={"lat": [1.0], "lon": [5.0]}, value="t", where={name: first}, **NUMBERS
    )
    assert abs(field["mean"].item() - 1.0) < 0.1


def test_rows_that_are_not_chosen_may_hold_anything():
    long = ROWS | {"t": ["1", "T", "3", "-9999"], "element": ["TMAX", "PRCP"] * 2}
    assert read_table(long, value="t", where={"element": "TMAX"}).values.tolist() == [1.0, 3.0]
    with pytest.raises(ArgumentError) as refusal:
        read_table(long, value="t", where={"element": "TAVG"})
    assert refusal.value.key == "no-such-row"


@pytest.mark.parametrize("beside", [{"humidity": [81.5, 80.0, 77.0, 70.0]}, {"id": [1, 2, 3, 4]},
                                    {"station": ["A", "B", "C", "D"], "level": [1, 2, 3, 4]}])  # fmt: skip
def test_repeated_measurements_stay_such(beside):
    fields = by_time_and_place(read_table(ROWS | beside, value="t"))
    assert fields.values.tolist() == [ROWS["t"]]


def test_rows_with_times_of_their_own_are_no_fields():
    rng, n = np.random.default_rng(0), 20_000
    rows = {"lat": rng.uniform(-80, 80, n), "lon": rng.uniform(0, 360, n), "v": rng.normal(size=n)}
    rows["time"] = np.datetime64("2020-01-01") + np.arange(n) * np.timedelta64(1, "m")
    with pytest.raises(DataError) as refusal:
        by_time_and_place(read_table(rows))
    assert refusal.value.key == "too-many-times"
    assert by_time_and_place(read_table(rows, columns={"time": "none"})).values.shape == (1, n)


def test_places_of_a_map_have_no_times():
    with pytest.raises(ArgumentError) as refusal:
        read_places(PLACES | {"time": ["2020-07-01"] * 4})
    assert refusal.value.key == "times"


def test_copies_of_rows_and_places_far_from_all_others_are_counted(tmp_path):
    rng, n = np.random.default_rng(1), 40
    rows = pd.DataFrame({"lat": rng.uniform(47, 55, n), "lon": rng.uniform(5, 15, n)})
    rows["v"] = rng.normal(size=n)
    assert read_table(rows).notes == ()
    wrong = pd.concat([rows, rows[:3], pd.DataFrame({"lat": [1.5], "lon": [0.0], "v": [0.5]})])
    copies, far = read_table(wrong).notes
    assert copies.startswith("3 rows are copies of other rows")
    assert far.startswith("1 place lies far from all others: 1.5 N, 0 E (")
    wrong.assign(element=["TMAX"] * n + ["TMIN"] * 4, time="2020-07-01").to_csv(
        tmp_path / "t.csv", index=False
    )
    job = {"variable": "v", "times": ["2020-07-01"], "cache_directory": tmp_path}
    field = open_source(f"table:{tmp_path / 't.csv'}", where={"element": ["TMIN"]}, **job)
    assert (field.sizes["point"], field.attrs["notes"]) == (4, [])
    with pytest.raises(ConfigurationError) as refusal:
        open_source(f"table:{tmp_path / 't.csv'}", **job)
    assert refusal.value.key == "elements-differ"


@pytest.mark.parametrize("separator", [",", ";", " "])
def test_words_in_place_of_values_are_counted_and_said(tmp_path, separator):
    words = ["n/a", "-", "missing", "n/a", "NaN", "-9999"]
    rows = [("lat", "lon", "temperature", "element")]
    rows += [(1 + row, 5 + row, word, "TMAX") for row, word in enumerate(["1.5", *words, "2.5"])]
    rows += [(50, 5, "n/a", "TMIN"), (51, 6, "3.5", "TMIN")]
    (tmp_path / "t.csv").write_text("\n".join(separator.join(map(str, row)) for row in rows) + "\n")
    how = {"value": "temperature", "missing": -9999}
    table = read_table(tmp_path / "t.csv", where={"element": "TMAX"}, **how)
    assert table.values.tolist() == [1.5, 2.5]
    assert table.notes[:1] == (
        "4 cells of 'temperature' say '-' or 'missing' or 'n/a' and count as missing.",
    )
    frame = pd.DataFrame(rows[1:], columns=rows[0])
    assert read_table(frame, where={"element": "TMIN"}, **how).notes[:1] == (
        "1 cell of 'temperature' says 'n/a' and counts as missing.",
    )
    assert "missing" not in read_table({**ROWS, "t": [1.0, np.nan, 3.0, 4.0]}).notes[0]


def test_krige_and_jobs_say_which_words_count_as_missing(tmp_path):
    rows = pd.DataFrame({"lat": [1.0, 2.0, 3.0], "lon": 5.0, "v": [1.0, np.nan, 2.0]})
    rows.to_csv(tmp_path / "t.csv", index=False, na_rep="n/a")
    said = "1 cell of 'v' says 'n/a' and counts as missing."
    with pytest.warns(UserWarning, match=said):
        cagp.Kriging(**NUMBERS).fit(tmp_path / "t.csv")
    field = open_source(
        f"table:{tmp_path / 't.csv'}", variable="v", times=["2020-07-01"], cache_directory=tmp_path
    )
    assert field.attrs["notes"] == [said]


DAY = {"date": ["2017-01-01"] * 3}
PARTS = {"year": [2017] * 3, "month": [1] * 3, "day": [1] * 3}
HOURS = ["2017-01-01T00", "2017-01-01T06", "2017-01-01T12"]


@one_after_another
@pytest.mark.parametrize(
    ("columns", "how", "expected"),
    [
        (DAY | {"hhmm": [5, 10, 20]}, {}, ["2017-01-01T00:05", "2017-01-01T00:10", "2017-01-01T00:20"]),
        (DAY | {"time_utc": ["0000", "0015", "0020"]}, {},
         ["2017-01-01", "2017-01-01T00:15", "2017-01-01T00:20"]),
        (DAY | {"time": [0, 6, 12]}, {}, "may be hours or minutes .* Call the column hour or hhmm"),
        (PARTS | {"hour_utc": [0, 6, 12]}, {}, HOURS),
        (PARTS | {"hhmm": [0, 600, 1200]}, {}, HOURS),
        (PARTS | {"time_utc": ["00:00", "06:00", "12:00"]}, {}, HOURS),
        (PARTS | {"hour": [0] * 3, "minute": [0] * 3, "second": [0, 1, 2]}, {},
         ["2017-01-01", "2017-01-01T00:00:01", "2017-01-01T00:00:02"]),
        (PARTS | {"second": [0, 1, 2]}, {}, "'second' with different values and none for the hour"),
        ({"year": [2017] * 3, "hour_utc": [0, 6, 12]}, {}, "'hour_utc' .* none for the day"),
        (DAY | {"timestamp": HOURS}, {}, HOURS),
        (DAY | {"timestamp": HOURS}, {"columns": {"time": "date"}}, ["2017-01-01"] * 3),
        (DAY | {"timestamp": ["2017-01-02T06"] * 3}, {}, "'timestamp' and 'date' .* disagree in row 0"),
        ({"date": ["2017-01-01 00:00:00+01:00"] * 3, "time": ["01:00", "07:00", "13:00"]}, {}, HOURS),
        ({"date": ["2017-01-01 00:00:00+01:00"] * 3, "hour_utc": [0, 6, 12]}, {},
         "'hour_utc' .* times in UTC"),
        ({"date": HOURS, "hour": [0, 6, 12]}, {}, HOURS),
        ({"date": HOURS, "hour": [3, 4, 5]}, {}, "'hour' .* has other times of day"),
        ({"date": [201701] * 3, "day": [1, 2, 3]}, {}, "'201701', and column 'day' stands beside"),
        ({"date": ["2017"] * 3, "month": [1, 2, 3]}, {}, "'2017', and column 'month' stands beside"),
        (DAY | {"time": [0, 600, 1200]}, {"columns": {"time": "time"}}, HOURS),
        ({"lev": [1, 2, 3]}, {"where": {"lev": np.array([1, 2])}}, None),
        ({"issued_date": pd.to_datetime(HOURS)}, {"where": {"issued_date": "2017-01-01"}}, None),
        ({"issued_date": pd.to_datetime(HOURS), "lat": [1, 1, 1], "lon": [1, 1, 1]}, {},
         "'issued_date' has different ones"),
        ({"noise_std": [0.1, 9999.0, 0.1]}, {}, "column 'noise_std' .* holds 9999 in 1 row"),
    ],
)  # fmt: skip
def test_what_a_table_says_of_its_rows_is_read_or_refused(columns, how, expected):
    rows = {"lat": [1, 2, 3], "lon": [1, 2, 3], "t": [1, 2, 3]} | columns
    if isinstance(expected, str):
        with pytest.raises((ArgumentError, DataError), match=expected):
            read_table(rows, value="t", **how)
        return
    found = read_table(rows, value="t", **how).times
    assert (None if found is None else found.tolist()) == (None if expected is None else times(*expected))


def test_rows_of_some_times_are_chosen_as_fields_of_a_source_are():
    rows = {
        "lat": [1, 2, 1, 2],
        "lon": [3, 4, 3, 4],
        "t": [1.0, 2.0, 3.0, 4.0],
        "time": ["2024-07-01"] * 2 + ["2024-07-02"] * 2,
    }
    without = {name: rows[name] for name in ("lon", "t")} | {"lat": [1, 2, 3, 4]}
    found = read_table(rows, value="t", where={"times": ["2024-07-02"]})
    assert found.values.tolist() == [3.0, 4.0]
    with pytest.raises(DataError) as refusal:
        read_table(rows, value="t", where={"times": "2024-07-03"})
    assert refusal.value.key == "absent-times"
    with pytest.raises(ArgumentError) as refused:
        read_table(without, value="t", where={"times": "2024-07-03"})
    assert refused.value.key == "no-times"
    with pytest.raises(ArgumentError) as refused:
        read_table(rows, value="t", where={"tim": "2024-07-03"})
    assert refused.value.remedies[0].value == {"time": "VALUE"}
