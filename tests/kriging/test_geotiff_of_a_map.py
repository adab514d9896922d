"""``dataset.cagp`` whatever is imported first, and maps as GeoTIFF."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from cagp_dist.errors import ArgumentError


@pytest.mark.parametrize(
    "first", ["cagp_dist, xarray", pytest.param("xarray, cagp_dist", marks=pytest.mark.exhaustive)]
)
def test_the_accessor_is_there_in_whichever_order_both_are_imported(first: str) -> None:
    code = f"import {first}; xarray.Dataset.cagp; import importlib.resources as r; r.files(xarray)"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)


def test_rows_run_north_to_south_and_times_are_bands(tmp_path) -> None:
    tifffile = pytest.importorskip("tifffile")
    days = pd.date_range("2024-07-01", periods=2)
    values = np.arange(24.0).reshape(2, 3, 4)
    axes = {"valid_time": days, "lat": [52.0, 51.0, 50.0], "lon": [-1.0, 0.0, 1.0, 2.0]}
    maps = xr.Dataset({"mean": (tuple(axes), values)}, axes)
    path = maps.cagp.to_geotiff(tmp_path / "map.tif")
    np.testing.assert_array_equal(tifffile.imread(path), values)
    with tifffile.TiffFile(path) as file:
        assert file.pages[0].tags[33922].value[3:5] == (-1.5, 52.5)
        assert "mean 2024-07-02T00:00:00Z" in file.pages[0].tags[42112].value
    with pytest.raises(ArgumentError) as refused:
        maps.cagp.to_geotiff(tmp_path / "map.tif", "std")
    assert refused.value.key == "absent-variable"
    drawn = maps.rename(valid_time="sample").assign_coords(sample=[0, 1])
    with pytest.raises(ArgumentError) as refused:
        drawn.cagp.to_geotiff(tmp_path / "map.tif")
    assert refused.value.key == "several-dimensions"
