"""CSV files have a row for each place and time, and say in a file beside them what is in them."""

import csv
import json

import numpy as np
import pytest

from cagp_dist.export import export_run
from cagp_dist.export.flat_table import write_csv
from cagp_dist.export.groups import open_for_export
from cagp_dist.store.zarr_arrays import read_group

from .make_group import NOISE, REGIONS, publish_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    latitude, longitude = REGIONS["pacific"]
    return publish_run(tmp_path_factory.mktemp("pacific"), latitude=latitude, longitude=longitude)


def rows(path):
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_quantiles_have_a_column_and_a_file_for_each_level(tmp_path):
    latitude, longitude = REGIONS["europe"]
    run = publish_run(tmp_path / "out", latitude=latitude, longitude=longitude, recalibrated=True)
    there = read_group(run, "map")
    levels = ["0.025", "0.05", "0.25", "0.5", "0.75", "0.95", "0.975"]
    found = rows(export_run(run, to="csv", groups=["map"], output=tmp_path)[0])
    quantiles = [name for name in found[0] if "quantile" in name]
    assert quantiles == [f"t2m_quantile_{level}" for level in levels]
    values = there.t2m_quantile.transpose("time", "latitude", "longitude", "quantile_level").values
    np.testing.assert_array_equal(
        [[float(row[name]) for name in quantiles] for row in found], values.reshape(-1, 7)
    )
    scales = [float(row["local_scale"]) for row in found]
    np.testing.assert_array_equal(scales, there.local_scale.values.ravel())
    described = json.loads((tmp_path / "map.csv-metadata.json").read_text())
    titles = {column["name"]: column.get("dc:title", "") for column in described["tableSchema"]["columns"]}
    assert titles["t2m_quantile_0.95"].endswith("of 2 metre temperature of level 0.95")
    files = {path.stem for path in export_run(run, to="geotiff", output=tmp_path / "tif")}
    assert {"map_local_scale", *(f"map_t2m_quantile_{level}" for level in levels)} <= files


@pytest.mark.parametrize("group", ["map", "observations"])
def test_a_row_for_each_place_and_time_with_the_values_of_the_run(run, tmp_path, group):
    path = export_run(run, to="csv", groups=[group], output=tmp_path)[0]
    there = read_group(run, group)
    found = rows(path)
    values = there.t2m_mean if group == "map" else there.t2m
    assert len(found) == values.size
    for row in found[:: max(1, len(found) // 50)]:
        time = np.datetime64(row["time"].removesuffix("Z"))
        assert row["time"].endswith("Z")
        if group == "map":
            place = {"latitude": float(row["latitude"]), "longitude": float(row["longitude"])}
            expected = values.sel(time=time, **place)
        else:
            at = (there.latitude == float(row["latitude"])) & (there.longitude == float(row["longitude"]))
            expected = values.sel(time=time)[at.values][0]
        assert float(row[values.name]) == float(expected)


def test_units_rights_and_noise_lie_beside_it(run, tmp_path):
    path = export_run(run, to="csv", groups=["map"], output=tmp_path / "map.csv")[0]
    described = json.loads((tmp_path / "map.csv-metadata.json").read_text())
    assert described["@context"] == "http://www.w3.org/ns/csvw"
    assert described["url"] == "map.csv"
    columns = {column["name"]: column for column in described["tableSchema"]["columns"]}
    assert list(columns) == ["time", "latitude", "longitude", "t2m_mean", "t2m_predictive_std", "t2m_std"]
    assert list(columns) == path.read_text().splitlines()[0].split(",")
    assert columns["t2m_mean"]["schema:unitText"] == "K"
    assert columns["longitude"]["schema:unitText"] == "degrees_east"
    assert described["dc:license"] == "Apache-2.0"
    assert described["notes"][0]["noise_variance"] == NOISE
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["map.csv", "map.csv-metadata.json"]


def test_a_missing_value_is_empty(run, tmp_path):
    with open_for_export(run, "map") as group:
        holed = group.load()
    holed["t2m_mean"].values[1, 0, 2] = np.nan
    found = rows(write_csv(holed, tmp_path / "holed.csv"))
    empty = [row for row in found if row["t2m_mean"] == ""]
    assert len(empty) == 1
    assert empty[0]["time"] == "2019-03-01T06:00:00Z"
    assert float(empty[0]["longitude"]) == holed["longitude"].values[2]


def test_places_without_times_have_a_row_each(run, tmp_path):
    """As group `simulation` of a run has them."""
    with open_for_export(run, "observations") as group:
        timeless = group.isel(time=0, drop=True).load()
    found = rows(write_csv(timeless, tmp_path / "timeless.csv"))
    assert "time" not in found[0]
    assert [float(row["t2m"]) for row in found] == timeless["t2m"].values.tolist()
    assert [float(row["latitude"]) for row in found] == timeless["latitude"].values.tolist()
