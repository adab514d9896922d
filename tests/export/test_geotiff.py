"""A GeoTIFF lies where its map lies, to half a cell, with north up and columns from west to east."""

import json
import re
import sys

import numpy as np
import pytest

from cagp_dist.errors import ConfigurationError
from cagp_dist.export import export_run
from cagp_dist.export.groups import open_for_export
from cagp_dist.remedies import installation
from cagp_dist.store.geotiff import westmost_first
from cagp_dist.store.zarr_arrays import read_group

from .make_group import KEY, NOISE, REGIONS, cells, publish_run
from .test_netcdf import program


def exported(folder, region):
    pytest.importorskip("tifffile", reason="the extra [geotiff] is not installed")
    latitude, longitude = REGIONS[region]
    run = publish_run(folder / "out", latitude=latitude, longitude=longitude)
    paths = {path.name: path for path in export_run(run, to="geotiff")}
    assert set(paths) == {f"map_t2m_{name}.tif" for name in ("mean", "std", "predictive_std")}
    assert {path.parent for path in paths.values()} == {folder / "out" / "export" / KEY}
    return read_group(run, "map"), paths["map_t2m_mean.tif"]


def value_at(group, latitude, longitude, step):
    """The oracle: the cell whose centre is nearest on the circle."""
    row = int(np.argmin(np.abs(group.latitude.values - latitude)))
    apart = (group.longitude.values - longitude + 180.0) % 360.0 - 180.0
    assert abs(apart).min() < 1e-9
    return group.t2m_mean.values[step, row, int(np.argmin(np.abs(apart)))]


@pytest.mark.parametrize("region", REGIONS)
def test_columns_run_from_west_to_east_in_equal_steps(region):
    longitude = REGIONS[region][1]
    order, columns = westmost_first(longitude)
    assert sorted(order) == list(range(longitude.size))
    np.testing.assert_allclose(np.diff(columns), longitude[1] - longitude[0], rtol=1e-9)
    np.testing.assert_allclose((columns - longitude[order]) % 360.0 % 360.0, 0.0, atol=1e-9)
    assert columns[0] >= -180.0
    assert columns[-1] < 180.0 or region == "pacific"


@pytest.mark.parametrize(
    "region",
    [
        pytest.param(name, marks=[pytest.mark.exhaustive] if number > 2 else [])
        for number, name in enumerate(REGIONS)
    ],
)
def test_every_pixel_is_where_its_cell_is(tmp_path, region):
    group, path = exported(tmp_path, region)
    import tifffile

    with tifffile.TiffFile(path) as file:
        tags = {tag.code: tag.value for tag in file.pages[0].tags}
        bands = file.asarray()
    width, height, _ = tags[33550]
    assert tags[33922][:3] == (0.0, 0.0, 0.0)
    west, north = tags[33922][3:5]
    assert bands.shape == (2, group.sizes["latitude"], group.sizes["longitude"])
    for step in range(2):
        for row in range(0, bands.shape[1], 4):
            for column in range(0, bands.shape[2], 5):
                place = north - (row + 0.5) * height, west + (column + 0.5) * width
                assert bands[step, row, column] == np.float32(value_at(group, *place, step))


def test_what_it_is_stands_inside(tmp_path):
    _, path = exported(tmp_path, "europe")
    import tifffile

    with tifffile.TiffFile(path) as file:
        tags = {tag.code: tag.value for tag in file.pages[0].tags}
    assert tags[34735] == (1, 1, 1, 4, 1024, 0, 1, 2, 1025, 0, 1, 1, 2048, 0, 1, 4326, 2054, 0, 1, 9102)
    assert tags[42113] == "nan"
    for words in (
        '<Item name="DESCRIPTION" sample="1" role="description">t2m_mean 2019-03-01T06:00:00Z</Item>',
        '<Item name="UNITTYPE" sample="0" role="unittype">K</Item>',
        f'<Item name="noise_variance">{NOISE}</Item>',
        '<Item name="license">Apache-2.0</Item>',
    ):
        assert words in tags[42112]


def test_without_the_library_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tifffile", None)
    latitude, longitude = REGIONS["europe"]
    run = publish_run(tmp_path / "out", latitude=latitude, longitude=longitude)
    remedy = f"Run: {installation('geotiff')}"
    with pytest.raises(ConfigurationError, match=re.escape(remedy)):
        export_run(run, to="geotiff")
    assert not (tmp_path / "out" / "export").exists()


GAUSSIAN = np.rad2deg(np.arcsin(np.polynomial.legendre.leggauss(16)[0]))


@pytest.mark.parametrize("to", ["geotiff", "zarr"])
@pytest.mark.parametrize(
    ("latitude", "key"),
    [
        (np.array([10.0, 12.0, 15.0]), "unequal-cells"),
        (GAUSSIAN, "unequal-cells"),
        (np.array([10.0]), "one-cell"),
    ],
)
def test_cells_that_are_not_equal_are_refused(tmp_path, latitude, key, to):
    if to == "geotiff":
        pytest.importorskip("tifffile", reason="the extra [geotiff] is not installed")
    run = publish_run(tmp_path / "out", latitude=latitude, longitude=cells(0.0, 40.0, 4))
    with pytest.raises(ConfigurationError) as refusal:
        export_run(run, to=to)
    assert refusal.value.key == key
    assert not (tmp_path / "out" / "export").exists()


def test_points_do_not_fit(tmp_path):
    latitude, longitude = REGIONS["europe"]
    run = publish_run(tmp_path / "out", latitude=latitude, longitude=longitude)
    with pytest.raises(ConfigurationError) as refusal:
        export_run(run, to="geotiff", groups=["observations"])
    assert refusal.value.key == "format-unfit"
    with open_for_export(run, "observations") as group:
        assert "latitude_bnds" not in group


@pytest.mark.exhaustive
@pytest.mark.parametrize("region", REGIONS)
def test_gdal_reads_the_values_where_they_are(tmp_path, region):
    group, path = exported(tmp_path, region)
    shown = json.loads(program("gdalinfo", "-json", path))
    assert shown["bands"][1]["description"] == "t2m_mean 2019-03-01T06:00:00Z"
    assert shown["bands"][0]["unit"] == "K"
    assert shown["metadata"][""]["AREA_OR_POINT"] == "Area"
    assert 'ID["EPSG",4326]' in shown["coordinateSystem"]["wkt"]
    for row in (0, 3):
        latitude, longitude = float(group.latitude[row]), float(group.longitude[2])
        west, width, *_ = shown["geoTransform"]
        column = ((longitude - west) % 360.0) / width
        text = program("gdallocationinfo", "-valonly", "-wgs84", path, west + column * width, latitude)
        values = [float(line) for line in text.split()]
        np.testing.assert_allclose(values, group.t2m_mean.values[:, row, 2], rtol=1e-6)
