"""Text files of tables as people have them: layouts, spellings, and files that are something else."""

import gzip

import numpy as np
import pytest

from cagp_dist.errors import ArgumentError, CagpError, DataError
from cagp_dist.fields.tables import read_places, read_table

from ..joined import one_after_another

PLAIN = "lat,lon,t\n50.1182,14.6199,5.38\n-54.5,17.7895,-9.5\n"
LATITUDE, LONGITUDE, VALUES = [50.1182, -54.5], [14.6199, 17.7895], [5.38, -9.5]
COMMAS = PLAIN.replace(",", ";").replace(".", ",")
TRUNCATED = gzip.compress(PLAIN.encode(), mtime=0)[:-12]

LAYOUTS = {
    "decimal commas between tabs": COMMAS.replace(";", "\t"),
    "decimal commas in quotes": "lat,lon,t\n" + "".join(
        ",".join(f'"{cell}"' for cell in line.split(";")) + "\n" for line in COMMAS.splitlines()[1:]),
    "beside text": COMMAS.replace("t\n", "t;kind\n").replace("38\n", "38;a\n").replace("-9,5\n", "-9,5;b\n"),
    "sep= of Excel": "sep=;\n" + COMMAS,
    "names behind a mark": PLAIN.replace("lat,lon,t", "# made by hand\n# lat, lon, t"),
    "names behind a mark, between spaces": PLAIN.replace("lat,lon,t", "# lat lon t").replace(",", " "),
    "UTF-16": PLAIN.encode("utf-16"),
    "a mark of UTF-8": PLAIN.encode("utf-8-sig"),
    "Latin-1": PLAIN.replace("t\n", "t,station\n").replace("38\n", "38,Zürich\n")
        .replace("-9.5\n", "-9.5,Köln\n").encode("latin-1"),
}  # fmt: skip


def written(folder, content, name="table.csv"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("case", LAYOUTS)
def test_layouts_that_people_have(tmp_path, case):
    path = written(tmp_path, LAYOUTS[case])
    table = read_table(path)
    assert (table.latitude_degrees.tolist(), table.longitude_degrees.tolist()) == (LATITUDE, LONGITUDE)
    assert (table.values.tolist(), table.name) == (VALUES, "t")
    assert case != "Latin-1" or table.names.tolist() == ["Zürich", "Köln"]


def test_units_in_a_second_line_are_those_of_the_columns_and_lines_count_on(tmp_path):
    text = "time,latitude,longitude,t,note\nUTC,degrees_north,degrees_east,degree_C,\n"
    text += "2020-07-01T00:00:00Z,50,14,5.5,a\n"
    table = read_table(written(tmp_path, text))
    assert (table.values.tolist(), table.name, table.units) == ([5.5], "t", "degree_C")
    with pytest.raises(DataError) as refusal:
        read_table(written(tmp_path, text + "2020-07-01T00:00:00Z,95,14,5.5,b\n"))
    assert refusal.value.key == "row"
    with pytest.raises(DataError) as refusal:
        read_table(written(tmp_path, "# remark\n# lat,lon,t\n1,2,3\n95,2,4\n"))
    assert refusal.value.key == "row"


@pytest.mark.parametrize(
    ("latitude", "longitude", "read"),
    [
        ("50.5N", "14.25E", (50.5, 14.25)),
        ("S50.5", "W 14.25", (-50.5, -14.25)),
        ("50 30N", "014 15W", (50.5, -14.25)),
        ("50°30'36\"S", "14°15'E", (-50.51, 14.25)),
        ("50d30m36sN", "14:15:00", (50.51, 14.25)),
        ("-50 30 36", "14,25°", (-50.51, 14.25)),
    ],
)
def test_spellings_of_degrees(latitude, longitude, read):
    places = read_places({"lat": [latitude], "lon": [longitude]})
    np.testing.assert_allclose((places.latitude_degrees[0], places.longitude_degrees[0]), read, rtol=1e-14)


@one_after_another
@pytest.mark.parametrize(
    "latitude",
    ["14.25E", "-50.5S", "N50.5N", "50 30", "50 60N", "50.5 30N", "50.30.36", "north", "50 30.5 10N"],
)
def test_what_is_no_latitude_is_refused(latitude):
    with pytest.raises(DataError) as refusal:
        read_places({"lat": ["1.0", latitude], "lon": [2.0, 3.0]})
    assert refusal.value.key == "no-degrees"


def test_temperatures_of_isd_are_tenths_with_a_mark_of_quality():
    rows = {
        "lat": [1.0, 2.0, 3.0, 4.0],
        "lon": [5.0] * 4,
        "TMP": ["+0053,1", "-0104,5", "+9999,9", "+0210,3"],
    }
    table = read_table(rows)
    assert (table.values.tolist(), table.dropped_missing) == ([5.3, -10.4], 2)


def test_points_beside_decimal_commas_are_refused(tmp_path):
    with pytest.raises(DataError) as refusal:
        read_table(written(tmp_path, "lat;lon;p\n50,1;14,6;999,5\n54,5;17,7;1.013\n"))
    assert refusal.value.key == "decimal-mark"


@pytest.mark.parametrize(
    ("name", "content", "key"),
    [
        (
            "a.csv",
            "Agency: an office\nMade: 2020\n\n" + PLAIN,
            "preamble",
        ),
        (
            "a.xlsx",
            b"PK\x03\x04" + bytes(40),
            "not-a-table",
        ),
        ("a.geojson", '{"type": "FeatureCollection"}', "not-a-table"),
        ("a.json", "[1]", "not-a-table"),
        (
            "a.csv.gz",
            TRUNCATED,
            "damaged",
        ),
        ("a.csv.gz", PLAIN, "not-a-table"),
    ],
)
def test_files_that_are_something_else_are_named_with_the_remedy(tmp_path, name, content, key):
    with pytest.raises(DataError) as refusal:
        read_table(written(tmp_path, content, name))
    assert refusal.value.key == key


def test_messages_stay_short_and_without_control_characters(tmp_path):
    many = written(tmp_path, ",".join(f"c{number}" for number in range(5_000)) + "\n" + "1," * 4_999 + "1\n")
    with pytest.raises(ArgumentError) as refused:
        read_table(many)
    assert refused.value.key == "no-column"
    assert len(str(refused.value)) < 1000
    escapes = "lat,lon,\x1b[2Ja,\x1b[2Jb\n1,2,3,4\n1,2,\x1b[2J,4\n"
    for arguments in ({}, {"value": "\x1b[2Ja"}, {"value": "\x1b[2Jc"}):
        with pytest.raises(CagpError) as refused:
            read_table(written(tmp_path, escapes), **arguments)
        assert "\x1b" not in str(refused.value)
    with pytest.raises(DataError) as refused:
        read_table(written(tmp_path, "lat,lon,t\n1,2,3\n1,2,3,\x1b[2J,5\n"))
    assert "\x1b" not in str(refused.value)


def test_a_quantity_of_the_weather_is_proposed_before_others():
    rows = {"lat": [1.0], "lon": [2.0], "slope_percent": [1.0], "air_temperature": [3.0], "rh": [40.0]}
    with pytest.raises(ArgumentError) as refusal:
        read_table(rows)
    assert refusal.value.key == "which-value"
    assert read_table({"lat": [1.0], "lon": [2.0], "elevation_m": [900.0], "v": [3.0]}).name == "v"
