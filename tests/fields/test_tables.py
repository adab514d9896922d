"""Tables of observations: columns found, rows checked, measurements arranged by time and place."""

import sys

import numpy as np
import pandas as pd
import pytest

from cagp_dist.errors import ArgumentError, ConfigurationError, DataError
from cagp_dist.fields.tables import by_time_and_place, read_places, read_table

from ..joined import one_after_another

ROWS = {"latitude": [48.1, 52.5, 50.1], "longitude": [11.6, 13.4, 8.7], "value": [21.0, 20.0, 19.5]}


def rows(**changes):
    return ROWS | changes


def test_a_plain_table_keeps_its_order_and_its_numbers():
    table = read_table(ROWS)
    assert table.latitude_degrees.tolist() == ROWS["latitude"]
    assert table.longitude_degrees.tolist() == ROWS["longitude"]
    assert table.values.tolist() == ROWS["value"]
    assert (table.times, table.noise_std, table.name, table.units) == (None, None, "value", "")


@one_after_another
@pytest.mark.parametrize("latitude", ["LAT", "Latitude [degrees]", "lat (deg)", "DecimalLatitude"])
@pytest.mark.parametrize("longitude", ["Lon", "LONGITUDE", "lng"])
def test_usual_names_are_found_whatever_their_case_and_units(latitude, longitude):
    table = read_table({longitude: [200.0], latitude: [1.0], "id": [7], "Sea level (hPa)": [1013.0]})
    assert (table.latitude_degrees[0], table.longitude_degrees[0]) == (1.0, 200.0)
    assert (table.name, table.units, table.values[0]) == ("Sea level", "hPa", 1013.0)


def test_a_frame_of_pandas_and_its_index_are_read():
    frame = pd.DataFrame(ROWS)
    assert read_table(frame).values.tolist() == ROWS["value"]
    indexed = frame.set_index(["latitude", "longitude"])
    assert read_table(indexed).longitude_degrees.tolist() == ROWS["longitude"]


def test_a_frame_of_polars_is_read():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(ROWS | {"time": ["2020-01-01"] * 3, "noise_std": [0.5, 0.5, None]})
    frame = frame.with_columns(polars.col("time").str.to_datetime(), value=polars.Series([1.0, 2.0, None]))
    table = read_table(frame)
    assert table.values.tolist() == [1.0, 2.0]
    assert table.noise_std.tolist() == [0.5, 0.5]
    assert table.times[0] == np.datetime64("2020-01-01")


def test_a_file_like_those_of_ghcn_daily(tmp_path):
    path = tmp_path / "stations.csv"
    path.write_text(
        '"STATION","DATE","LATITUDE","LONGITUDE","ELEVATION","NAME","TMAX","TMAX_ATTRIBUTES","TMIN"\n'
        '"GME00111445","2017-04-27","52.4639","13.3017","51.0","BERLIN-DAHLEM, GM","10.1",",,E","2.2"\n'
        '"GME00111445","2017-04-28","52.4639","13.3017","51.0","BERLIN-DAHLEM, GM","",",,E","1.2"\n'
        '"GM000004204","2017-04-27","50.9267","11.5842","155.0","JENA STERNWARTE, GM","8.6",",,E","0.3"\n'
    )
    table = read_table(path, value="TMAX", units="degC")
    assert table.values.tolist() == [10.1, 8.6]
    assert table.times.tolist() == [np.datetime64("2017-04-27", "ns").astype(int)] * 2
    assert (table.dropped_missing, table.units) == (1, "degC")
    with pytest.raises(ArgumentError) as refusal:
        read_table(path)
    assert refusal.value.key == "which-value"


@pytest.mark.parametrize("name", ["Cd", "Cd (mg/kg)", "cd"])
def test_cadmium_is_a_value_and_no_code(name):
    table = {
        "lat": [1.0, 2.0, 3.0],
        "lon": [4.0, 5.0, 6.0],
        name: [0.2, 0.3, 0.25],
        "value_cd": ["P", "P", "A"],
    }
    assert read_table(table).values.tolist() == [0.2, 0.3, 0.25]


def test_numbers_that_mark_what_is_missing_may_be_rounded():
    table = {"lat": [1.0, 2.0, 3.0], "lon": [4.0, 5.0, 6.0], "v": np.float32([20.1, -99.9, 20.3])}
    assert read_table(table, missing=-99.9).dropped_missing == 1
    with pytest.raises(DataError) as refusal:
        read_table(table)
    assert refusal.value.key == "missing-mark"


def test_semicolons_decimal_commas_and_comments(tmp_path):
    path = tmp_path / "european.csv"
    path.write_text("% made by hand\nlat;lon;value\n48,1;11,6;21,5\n")
    table = read_table(path)
    assert (table.latitude_degrees[0], table.values[0]) == (48.1, 21.5)


@pytest.mark.parametrize(
    ("text", "values", "names"),
    [
        ("# by hand\nlat,lon,name,v\n1,2,Site #1,3\n# a remark\n4,5,B,6\n", [3, 6], ["Site #1", "B"]),
        ("% by hand\nsite %,lat,lon,rh (%)\nA,1,2,3\nB,4,5,6 % dry, too\n", [3, 6], None),
        ("lat lon v # three\n1 2 3 # odd\n4 5 6\n", [3, 6], None),
        ("lat,lon,v\n1,2,3,\n4,5,6,\n", [3, 6], None),  # a separator ends each line
        ("lat,lon,v\n1,2,3,# odd\n4,5,6,\n", [3, 6], None),
        ("lat,lon,v\n1,1,2,3\n2,4,5,6\n", [3, 6], None),  # rows with numbers, or names
        ("lat,lon,v\nA,1,2,3\nB,4,5,6\n", [3, 6], None),
    ],
)
def test_marks_within_lines_and_cells_beyond_the_header(tmp_path, text, values, names):
    path = tmp_path / "stations.csv"
    path.write_text(text)
    table = read_table(path)
    assert (table.latitude_degrees.tolist(), table.longitude_degrees.tolist()) == ([1, 4], [2, 5])
    assert table.values.tolist() == values
    assert names is None or table.names.tolist() == names


@pytest.mark.parametrize("row", ["7,8,9,10", "7,8,9,10,11"])
def test_rows_with_cells_that_nothing_names_are_refused(tmp_path, row):
    path = tmp_path / "stations.csv"
    path.write_text(f"lat,lon,v\n{row}\n{row}\n")
    with pytest.raises(DataError) as refusal:
        read_table(path)
    assert refusal.value.key == "not-a-table"


def test_columns_between_spaces_and_compressed(tmp_path):
    path = tmp_path / "plain.txt.gz"
    pd.DataFrame(ROWS).to_csv(path, sep="\t", index=False)
    assert read_table(path).values.tolist() == ROWS["value"]


def test_parquet_is_read_or_the_error_says_what_is_needed(tmp_path, monkeypatch):
    path = tmp_path / "stations.parquet"
    pd.DataFrame(ROWS).to_parquet(path)
    assert read_table(path).values.tolist() == ROWS["value"]
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigurationError) as refusal:
        read_table(path)
    assert refusal.value.key == "no-package"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("2017-04-27T12:00", "2017-04-27T12:00"),
        ("2017-04-27 12:00:30+02:00", "2017-04-27T10:00:30"),
        (20170427, "2017-04-27"),
        (2017, "2017-01-01"),
        (np.datetime64("2017-04-27"), "2017-04-27"),
        (pd.Timestamp("2017-04-27T01:00", tz="Europe/Berlin"), "2017-04-26T23:00"),
    ],
)
def test_times(written, read):
    table = read_table(rows(date=[written] * 3))
    assert (table.times == np.datetime64(read, "ns")).all()


@pytest.mark.parametrize(
    ("columns", "times"),
    [
        ({"Year": [2019, 2020]}, ["2019-01-01", "2020-01-01"]),
        ({"YEAR": ["2019", "2020"], "MONTH": ["12", "2"]}, ["2019-12-01", "2020-02-01"]),
        ({"day": [31, 29], "month": [12, 2], "year": [2019, 2020]}, ["2019-12-31", "2020-02-29"]),
        (
            {"year": [2019.0, 2020.0], "month": [1.0, 1.0], "day": [2.0, 3.0], "hour": [0.0, 23.0]},
            ["2019-01-02T00", "2020-01-03T23"],
        ),
        ({"year": [2019, 2019], "time": ["2001-01-01", "2001-01-02"]}, ["2001-01-01", "2001-01-02"]),
        ({"month": [1, 1]}, None),
    ],
)
def test_times_in_several_columns(columns, times):
    table = read_table({"lat": [1.0, 1.0], "lon": [2.0, 2.0], "t": [3.0, 9.0], **columns})
    assert (table.name, table.values.tolist()) == ("t", [3.0, 9.0])
    if times is None:
        assert table.times is None
    else:
        assert table.times.tolist() == np.array(times, dtype="datetime64[ns]").tolist()


@one_after_another
@pytest.mark.parametrize(
    ("columns", "kind", "key"),
    [
        ({"month": [1, 2]}, ArgumentError, "no-time"),
        (
            {"year": [1, 1], "day": [1, 2]},
            ArgumentError,
            "no-time",
        ),
        (
            {"year": [2019, 2019], "month": [2, 2], "day": [28, 29]},
            DataError,
            "no-time-in-cell",
        ),
        ({"year": [2019, 2019.5]}, DataError, "no-time-in-cell"),
        ({"year": [2019, None]}, DataError, "no-time-in-cell"),
    ],
)
def test_columns_that_make_no_time_are_refused(columns, kind, key):
    with pytest.raises(kind) as refusal:
        read_table({"lat": [1.0, 1.0], "lon": [2.0, 2.0], "t": [3.0, 9.0], **columns})
    assert refusal.value.key == key


def test_noise_is_a_column_or_a_number():
    assert read_table(rows(noise_std=[0.1, 0.2, 0.3])).noise_std.tolist() == [0.1, 0.2, 0.3]
    assert read_table(rows(err=[0.1, 0.2, 0.3]), noise_std="err").noise_std.tolist() == [0.1, 0.2, 0.3]
    assert read_table(ROWS, noise_std=0.5).noise_std.tolist() == [0.5] * 3


@one_after_another
@pytest.mark.parametrize(
    ("changes", "key"),
    [
        (
            {"latitude": [48.1, 91.0, 0.0]},
            "row",
        ),
        ({"longitude": [48.1, 9.0, 361.0]}, "row"),
        ({"longitude": [48.1, None, 3.0]}, "row"),
        (
            {"time": ["2020-01-01", "soon", "2020-01-02"]},
            "no-time-in-cell",
        ),
        ({"time": ["2020-01-01", "2020-02-31", ""]}, "no-time-in-cell"),
        ({"time": [12.5, 13.0, 14.0]}, "no-time-in-cell"),
        ({"value": ["1", "M", "2"]}, "no-number"),
        ({"value": [np.nan] * 3}, "nothing-observed"),
        ({"value": [1.0, np.inf, 2.0]}, "row"),
        ({"value": [10.0, -9999.0, 12.0]}, "missing-mark"),
        ({"noise_std": [1.0, 0.0, 1.0]}, "row"),
    ],
)
def test_rows_that_cannot_be_observations_are_named(changes, key):
    with pytest.raises(DataError) as refusal:
        read_table(rows(**changes))
    assert refusal.value.key == key


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("lat,lon,v\n1,2,3\n4,95,M\n", 3),
        ("# made by hand\n\nlat,lon,v\n1,2,3\n\n  \n# a remark\n1,2,\n4,95,M\n5,6,M\n", 9),
        ('name,lat,lon,v\n"two\nlines",1,2,3\na,4,95,M\n', 4),
        ("lat lon v\n1 2 3\n4 95 M\n", 3),
        ("% by hand\nlat;lon;v\n1;2;3\n4;95;M\n", 4),
    ],
)
def test_rows_of_a_text_file_are_named_by_its_lines(tmp_path, text, line):
    path = tmp_path / "stations.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=rf"holds 'M' in line {line}; expected a number"):
        read_table(path)
    path.write_text(text.replace("95", "395").replace("M", "7"))
    with pytest.raises(DataError, match=rf"'lon' of .*stations\.csv is 395 in line {line} \(1 such row\)"):
        read_table(path)


def test_rows_of_a_frame_are_named_by_their_index_too():
    frame = pd.DataFrame(rows(value=["1", "M", "2"]))
    with pytest.raises(DataError) as refusal:
        read_table(frame)
    assert refusal.value.key == "no-number"
    with pytest.raises(DataError) as refusal:
        read_table(frame[1:])
    assert refusal.value.key == "no-number"


def test_a_marker_of_what_is_missing_is_left_out_when_it_is_named():
    table = read_table(rows(value=[10.0, -9999.0, 12.0]), missing=-9999.0)
    assert (table.values.tolist(), table.dropped_missing) == ([10.0, 12.0], 1)
    assert read_table(rows(value=[-9990.0, -9999.0, -9980.0])).values[1] == -9999.0


@one_after_another
@pytest.mark.parametrize(
    ("columns", "arguments", "key"),
    [
        ({"lat": [1.0], "value": [2.0]}, {}, "no-column"),
        ({"lat": [1.0], "lon": [1.0], "id": [3]}, {}, "no-column"),
        (ROWS, {"value": "vale"}, "no-column"),
        ({"lat": [1.0], "LAT": [1.0], "lon": [1.0], "v": [1.0]}, {}, "which-column"),
        ({"lat": [1.0, 2.0], "lon": [1.0]}, {}, "shapes"),
        (3, {}, "no-table"),
    ],
)
def test_columns_that_are_not_there_or_not_clear(columns, arguments, key):
    with pytest.raises(ArgumentError) as refusal:
        read_table(columns, **arguments)
    assert refusal.value.key == key


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError) as refusal:
        read_table(tmp_path / "none.csv")
    assert refusal.value.key == "no-file"


def test_places():
    places = read_places({"lat": [1.0, 2.0], "lon": [-3.0, 359.0], "name": ["a", None]})
    assert places.longitude_degrees.tolist() == [-3.0, 359.0]
    assert places.names.tolist() == ["a", ""]
    assert read_places({"lat": [1.0], "lon": [2.0], "name": [None]}).names is None
    with pytest.raises(DataError) as refusal:
        read_places({"lat": [], "lon": []})
    assert refusal.value.key == "no-points"


def test_measurements_are_arranged_by_time_and_place():
    table = read_table(
        {
            "lat": [5.0, 1.0, 5.0, 5.0, 1.0],
            "lon": [0.0, 0.0, 360.0, 0.0, 0.0],
            "time": ["2020-01-02", "2020-01-02", "2020-01-01", "2020-01-02", "2020-01-03"],
            "v": [1.0, 2.0, 3.0, 4.0, 5.0],
        }
    )
    fields = by_time_and_place(table)
    expected = [[3.0, np.nan, np.nan], [1.0, 2.0, 4.0], [np.nan, 5.0, np.nan]]
    np.testing.assert_array_equal(fields.values, expected)
    assert fields.latitude_degrees.tolist() == [5.0, 1.0, 5.0]
    assert (np.diff(fields.times) == np.timedelta64(1, "D")).all()


def test_a_noise_in_other_units_than_the_values_is_converted():
    columns = {"lat": [1.0], "lon": [2.0], "t (degC)": [3.0]}
    assert read_table(columns | {"err (K)": [0.5]}, value="t", noise_std="err (K)").noise_std.tolist() == [
        0.5
    ]
    bare = {name.removesuffix(" (degC)"): held for name, held in columns.items()}
    tenths = read_table(bare | {"noise_std (degC)": [0.5]}, value="t", units="0.1 degC")
    assert tenths.noise_std.tolist() == [5.0]
    with pytest.raises(DataError) as refusal:
        read_table(columns | {"noise_std (%)": [5.0]}, value="t")
    assert refusal.value.key == "units"


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        ({"station": ["A", "B", "A", "B"], "id": [1, 2, 3, 4]}, ["A", "B"]),
        ({"STATION": ["A", "B", "A", "B"], "Name": ["Jena ", "Nice", "Jena", "Nice, Cote d'Azur"]},
         ["Jena", "Nice; Nice, Cote d'Azur"]),
        ({"wmo": [10384.0, np.nan, 10384.0, np.nan]}, ["10384", ""]),
        ({"id": [1, 2, 3, 4]}, None),
        ({"elevation": [1, 2, 3, 4]}, None),
    ],
)  # fmt: skip
def test_places_keep_their_names(columns, names):
    table = read_table(
        columns
        | {"lat": [5.0, 1.0, 5.0, 1.0], "lon": [0.0, 0.0, 360.0, 0.0]}
        | {"date": [2020, 2020, 2021, 2021], "temperature": [1.0, 2.0, 3.0, 4.0]}
    )
    found = by_time_and_place(table).names
    assert (found if found is None else found.tolist()) == names


def test_names_are_taken_from_the_column_that_is_said():
    rows = {
        "lat": [1.0, 2.0],
        "lon": [1.0, 2.0],
        "station": ["A", "B"],
        "Site [code]": [7, 8],
        "t": [0.5, 1.5],
    }
    table = read_table(rows, columns={"name": "site"})
    assert (table.names.tolist(), table.name) == (["7", "8"], "t")
    assert read_table(rows, value="t").names.tolist() == ["A", "B"]
    with pytest.raises(ArgumentError) as refusal:
        read_table(rows, value="t", columns={"name": "stations"})
    assert refusal.value.key == "no-column"


def test_other_noise_is_another_column():
    table = read_table(rows(latitude=[1.0] * 3, longitude=[2.0] * 3, noise_std=[1.0, 2.0, 1.0]))
    fields = by_time_and_place(table)
    assert (fields.times, fields.values.tolist()) == (None, [[21.0, 20.0, 19.5]])
    assert fields.noise_std.tolist() == [1.0, 2.0, 1.0]


def test_a_field_is_no_table_and_the_error_says_where_it_goes(tmp_path):
    (tmp_path / "field.nc").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(range(200, 256)))
    with pytest.raises(DataError) as refusal:
        read_table(tmp_path / "field.nc")
    assert refusal.value.key == "not-a-table"
    with pytest.raises(DataError) as refusal:
        read_table(tmp_path)
    assert refusal.value.key == "folder"
