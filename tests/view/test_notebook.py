"""A result in memory has the page of a run."""

import numpy as np
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.view import notebook
from cagp_dist.view.notebook import published_map

TABLE = {"lat": [2.0, 5.0, 8.0], "lon": [3.0, 8.0, 351.0], "temperature [degC]": [9.0, 11.0, 12.0]}
NUMBERS = {"kernel": "matern32", "lengthscale": 0.1, "variance": 4.0, "noise_std": 0.5, "mean": 10.0}


@pytest.fixture(scope="module")
def field():
    return cagp.krige(TABLE, to={"resolution": 5.0, "region": [10.0, -10.0, 0.0, 10.0]}, **NUMBERS)


def test_the_page_reads_the_numbers_of_the_result(field):
    pytest.importorskip("IPython")
    frame = field.isel(latitude=slice(None, None, -1)).cagp.explore(height=300)
    server, folder = notebook._open[-1]
    assert (frame.src, frame.height) == (server.url, 300)
    group = xr.open_zarr(f"{folder.name}/result.zarr", group="map", consolidated=False)
    np.testing.assert_allclose(group["field_mean"].isel(time=0), field["mean"])  # ascending again
    np.testing.assert_allclose(group["field_std"].isel(time=0), field["std"])
    np.testing.assert_allclose(group["field_predictive_std"].isel(time=0), np.hypot(field["std"], 0.5))
    np.testing.assert_array_equal(group.longitude, field.longitude)
    assert group["field_mean"].attrs["units"] == "degC"
    assert group["field_mean"].attrs["long_name"].endswith("temperature")
    root = xr.open_zarr(f"{folder.name}/result.zarr", consolidated=False)
    assert root.attrs["undated"] == 1
    notebook._close()
    assert notebook._open == []


def test_times_and_noises_that_are_not_known(field):
    moments = np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[ns]")
    days = xr.concat([field, field + 1.0], dim="time").assign_coords(time=moments)
    group = published_map(days.assign_attrs(noise_std="0.3 to 0.5, of each place"))
    np.testing.assert_allclose(group["field_mean"], days["mean"])
    assert "field_predictive_std" not in group
    with pytest.raises(ArgumentError) as refusal:
        published_map(field.stack(place=("latitude", "longitude")).reset_index("place"))
    assert refusal.value.key == "not-a-map"


def test_columns_across_greenwich_stay_beside_each_other(field):
    there = field.assign_coords(longitude=[350.0, 355.0, 0.0, 5.0])
    group = published_map(there)
    np.testing.assert_array_equal(group.longitude, [350.0, 355.0, 360.0, 365.0])
    np.testing.assert_allclose(group["field_mean"].isel(time=0), field["mean"])


def test_a_result_that_says_nothing_of_observations_shows_the_range_of_the_field():
    """Numbers that are integrated over: quantiles of the field, and no error bar with the one noise."""
    rng = np.random.default_rng(0)
    latitude, longitude = rng.uniform(0.0, 10.0, 12), rng.uniform(0.0, 10.0, 12)
    table = {"lat": latitude, "lon": longitude, "temperature [degC]": rng.normal(10.0, 2.0, 12)}
    found = cagp.krige(table, to={"resolution": 5.0, "region": [10.0, 0.0, 0.0, 10.0]}, progress=False)
    group = published_map(found)
    assert "field_predictive_std" not in group
    assert group["field_quantile"].attrs["long_name"].endswith("without noise")
    assert "comment" not in group["field_quantile"].attrs
    np.testing.assert_allclose(
        group["field_quantile"].isel(time=0).transpose("quantile_level", ...), found["field_quantile"]
    )
