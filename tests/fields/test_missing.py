"""Numbers that are no observations, from every source: decoded, missing or refused."""

import re

import numpy as np
import pytest
import xarray as xr
import zarr

from cagp_dist.errors import DataError
from cagp_dist.fields import observed_objects
from cagp_dist.fields.canonical import canonical
from cagp_dist.fields.covariates import covariate
from cagp_dist.fields.missing import observations
from cagp_dist.fields.observed_objects import observe_arrays
from cagp_dist.fields.selection import Selection
from cagp_dist.fields.stores.remote import open_zarr

from ..joined import one_after_another

WARM = 280.0 + np.arange(12.0).reshape(3, 4)


def field(values, name="lst", **attributes):
    """Values (3, 4) at one time."""
    axes = {"latitude": [50.0, 51.0, 52.0], "longitude": [5.0, 6.0, 7.0, 8.0]}
    at = {"time": np.datetime64("2020-07-01", "ns")}
    return xr.DataArray(values, {**axes, **at}, ["latitude", "longitude"], name, {"units": "K"} | attributes)


def with_one(number, values=WARM):
    """Put a number in the place of the second value."""
    changed = values.copy()
    changed[0, 1] = number
    return changed


def stored(data):
    """Give it the encoding of what was read from a file."""
    data.encoding["source"] = "lst.nc"
    return data


def observed(data, **given):
    """Values of an object where it has them."""
    points = observed_objects.read(data, **given).points
    found = np.full(data.size, np.nan)
    found[points.source_index] = points.values[0]
    return found.reshape(3, 4)


READERS = {
    "object": observed,
    "source": lambda data, **given: canonical(
        data.to_dataset(), selection=Selection(value="lst", **given)
    ).lst.values[0],
    "drift": lambda data, **given: covariate(data, **given).grid.values[:, :, 0],
}


@pytest.fixture(params=READERS)
def read(request):
    return READERS[request.param]


def test_packed_values_are_decoded_by_what_stands_on_the_variable(read):
    packed = with_one(-32767, np.rint((WARM - 273.0) / 0.01)).astype(np.int16)
    found = read(field(packed, scale_factor=0.01, add_offset=273.0, _FillValue=np.int16(-32767)))
    np.testing.assert_allclose(found, with_one(np.nan), rtol=1e-6)
    with pytest.raises(DataError) as refusal:
        read(field(packed.astype(np.float32), scale_factor=0.01, add_offset=273.0))
    assert refusal.value.key == "packing"


@one_after_another
@pytest.mark.parametrize(
    ("number", "attributes"),
    [
        (1e20, {"missing_value": 1e20}),
        (0.0, {"valid_range": np.float32([150.0, 350.0])}),
        (400.0, {"valid_max": 350, "nodata": -9999}),
        (0.0, {"valid_range": "150, 350"}),
    ],
)
def test_what_is_stated_to_be_missing_is_so(read, number, attributes):
    found = read(stored(field(with_one(np.float32(number)), **attributes)))
    np.testing.assert_allclose(found, with_one(np.nan), rtol=1e-6)


def test_a_valid_range_that_nothing_lies_in_is_refused(read):
    with pytest.raises(DataError) as refusal:
        read(stored(field(WARM, valid_range=np.uint16([7500, 65535]))))
    assert refusal.value.key == "valid-range"


def test_limits_of_decoded_values_are_in_packed_numbers_unless_they_are_floating():
    packing = {"scale_factor": 0.5, "add_offset": 100.0, "dtype": np.dtype("int16")}
    whole = {"valid_range": np.int16([0, 40])}
    found = observations([99.0, 100.0, 120.0, 121.0], whole, what="it", encoding=packing)
    np.testing.assert_array_equal(found, [np.nan, 100.0, 120.0, np.nan])
    floating = {"valid_min": np.float32(100.0)}
    np.testing.assert_array_equal(
        observations([99.0, 100.0], floating, what="it", encoding=packing), [np.nan, 100]
    )
    unsigned = {"_Unsigned": "true", "valid_range": np.int8([1, -2]), "_FillValue": np.int8(-1)}
    found = observations(np.array([0, 1, -2, -1], dtype=np.int8), unsigned, what="it")
    np.testing.assert_array_equal(found, [np.nan, 1.0, 254.0, np.nan])


@pytest.mark.parametrize(
    "mark",
    [-9999.0, 9.96921e36, 1e20, -32768.0, -3276.8, 99.99, 999.9, -999999.0, -(2.0**31), -3.4028235e38, 1e15],
)
def test_usual_marks_far_from_all_others_are_suspected(mark):
    rain = np.append(np.linspace(0.0, 0.4, 30), mark)
    with pytest.raises(DataError) as error:
        observations(rain, what="it")
    assert error.value.key == "missing-mark"
    said = error.value.remedies[0].value
    assert np.isnan(observations(rain, what="it", missing=said)).sum() == 1
    np.testing.assert_array_equal(observations(rain, what="it", missing=[]), rain)


def test_marks_are_suspected_wherever_values_come_from(read):
    marked = field(with_one(-9999.0))
    with pytest.raises(DataError) as refusal:
        read(marked)
    assert refusal.value.key == "missing-mark"
    np.testing.assert_allclose(read(marked, missing=-9999), with_one(np.nan), rtol=1e-6)
    with pytest.raises(DataError) as refusal:
        observe_arrays(np.zeros((12, 2)), with_one(-9999.0).ravel())
    assert refusal.value.key == "missing-mark"


def test_several_marks_are_named_together_and_those_of_packed_numbers_as_they_are_stored():
    both = np.append(WARM, [-9999.0, 9999.0, 9999.0])
    with pytest.raises(DataError) as refusal:
        observations(both, what="it")
    assert refusal.value.key == "missing-mark"
    assert np.isnan(observations(both, what="it", missing=(-9999, 9999))).sum() == 3
    decoded = np.float32(0.01) * with_one(-32768.0, np.rint((WARM - 273.0) / 0.01)) + 273.0
    with pytest.raises(DataError) as refusal:
        observations(decoded, what="it", encoding={"scale_factor": 0.01, "add_offset": 273.0})
    assert refusal.value.key == "missing-mark"
    with pytest.raises(DataError) as refusal:
        observations(np.full(4, -9999.0), what="it")
    assert refusal.value.key == "missing-mark"


@pytest.mark.parametrize(
    "values",
    [
        [1013.2, 999.9, 1001.0],  # hPa
        [-9990.0, -9999.0, -9980.0],
        [0.0, 3.0, 60.0, 99.9],  # mm
        [99.0, 45.0, 100.0],  # %
        [101325.0, 99999.0, 98000.0],
        [255.0, 0.0, 100.0],
        [999.0],
    ],
)
def test_marks_among_other_values_are_values(values):
    np.testing.assert_array_equal(observations(values, what="it"), values)


@pytest.fixture
def store(tmp_path):
    """Write values (3, 4) to a store of Zarr 2 that was made without xarray, whose fill value is 0 then."""

    def write(name, values):
        field(WARM).to_dataset().expand_dims("time").to_zarr(
            tmp_path / f"{name}.zarr", zarr_format=2, consolidated=False
        )
        group = zarr.open_group(tmp_path / f"{name}.zarr", zarr_format=2)
        array = group.create_array(name, shape=(1, 3, 4), dtype="float32", fill_value=0)
        array[0] = values
        array.attrs["_ARRAY_DIMENSIONS"] = ["time", "latitude", "longitude"]
        return str(tmp_path / f"{name}.zarr")

    return write


def test_zeros_of_a_zarr_2_store_are_rain_of_zero_or_refused(store):
    rain = np.maximum(WARM - 285.0, 0.0)
    path = store("precip", rain)
    np.testing.assert_array_equal(open_zarr(path, Selection(value="precip")).precip.values[0], rain)
    opened = xr.open_zarr(path, consolidated=False).precip
    with pytest.raises(DataError) as refusal:
        observed_objects.read(opened)
    assert refusal.value.key == "zero-fill"
    assert observed_objects.read(opened.fillna(0.0)).points.count == 12
    assert observed_objects.read(opened, missing=0).points.count == 6
    path = store("height", rain)
    with pytest.raises(DataError) as refusal:
        open_zarr(path, Selection(value="height"))
    assert refusal.value.key == "zero-fill"
    assert np.isnan(open_zarr(path, Selection(value="height", missing=0)).height.values).sum() == 6
    np.testing.assert_array_equal(
        open_zarr(path, Selection(value="height", missing=[])).height.values[0], rain
    )
    around = store("anomaly", WARM - 285.0)
    np.testing.assert_array_equal(
        open_zarr(around, Selection(value="anomaly")).anomaly.values[0], WARM - 285.0
    )


def test_values_that_were_computed_are_not_held_against_the_range_of_what_they_came_from():
    rain = stored(field(np.arange(12.0).reshape(3, 4), "pr", valid_min=0.0, units="mm"))
    anomaly = rain - rain.mean("latitude")
    for read in (observed_objects.read, covariate):
        with pytest.raises(DataError) as error:
            read(anomaly)
        assert error.value.key == "valid-range"
        assert "packed" not in str(error.value)
    data = anomaly.copy()
    exec(re.search(r"del data[^;]*", str(error.value))[0])
    np.testing.assert_array_equal(observed(data), anomaly.values)
    packed = field(WARM, valid_range=np.uint16([7500, 65535]))
    with pytest.raises(DataError) as refusal:
        observed_objects.read(packed)
    assert refusal.value.key == "valid-range"


def test_stated_marks_are_exact_but_for_rounding_to_single_precision():
    near = [100000.05, 100000.0, 99999.95]
    found = observations(near, {"missing_value": 100000.0}, what="it")
    np.testing.assert_array_equal(found, [near[0], np.nan, near[2]])
    for mark in (np.float32(-9999.9), -9999.9):
        there = np.array([-9999.9, float(np.float32(-9999.9)), 3.0])
        found = observations(there, {"missing_value": mark}, what="it")
        np.testing.assert_array_equal(found, [np.nan, np.nan, 3.0])
    single = observations(np.float32([1e20, 3.0]), {"missing_value": 1e20}, what="it")
    np.testing.assert_array_equal(single, np.float32([np.nan, 3.0]))
