"""Flags of quality and masks beside the values of fields choose among them, or are asked about."""

import numpy as np
import pytest
import xarray as xr

from cagp_dist.errors import DataError
from cagp_dist.fields.observed_objects import read
from cagp_dist.fields.sources import open_source

ROWS, COLUMNS = np.meshgrid(np.arange(6.0), np.arange(8.0), indexing="ij")
VALUES = np.round(280.0 + ROWS - 0.3 * COLUMNS + np.sin(3.0 * ROWS * COLUMNS), 2)
FLAGS = np.where((3 * ROWS + 5 * COLUMNS) % 7 < 2, 2, 4 + COLUMNS % 2).astype("int8")
GOOD = FLAGS > 2
SEA = (ROWS + 2 * COLUMNS) % 5 != 0

GRADED = {
    "flag_values": np.arange(6, dtype="int8"),
    "flag_meanings": "no_data bad_data worst_quality low_quality acceptable_quality best_quality",
}


def field(values, *, curvilinear=False, attributes=None, **beside):
    """A field at one time, and variables along its rows and columns."""
    dims = ("y", "x") if curvilinear else ("latitude", "longitude")
    axes = (
        {"latitude": (dims, 40.0 + ROWS + 0.1 * COLUMNS), "longitude": (dims, 5.0 + COLUMNS - 0.1 * ROWS)}
        if curvilinear
        else {"latitude": 40.0 + ROWS[:, 0], "longitude": 5.0 + COLUMNS[0]}
    )
    near = {name: (dims, *held) if isinstance(held, tuple) else (dims, held) for name, held in beside.items()}
    return xr.Dataset(
        {"sst": (("time", *dims), values[None], {"units": "K", **(attributes or {})}), **near},
        {**axes, "time": [np.datetime64("2021-07-01T12:00", "ns")]},
    )


def taken(data, door, folder, **how):
    """Values that are there, sorted."""
    if door == "object":
        values = read(data, value="sst", **how).points.values
    elif door == "zarr":
        data.to_zarr(folder / "store.zarr", mode="w", consolidated=False, zarr_format=3)
        values = open_source(f"zarr:{folder / 'store.zarr'}", variable="sst", **how)["sst"].values
    else:
        data.to_netcdf(folder / "field.nc", engine="h5netcdf")
        how["cache_directory"] = folder
        values = open_source(f"file:{folder / 'field.nc'}", variable="sst", **how)["sst"].values
    return np.sort(values[~np.isnan(values)])


QUALITY = field(np.where(GOOD, VALUES, VALUES - 9.0), curvilinear=True, quality_level=(FLAGS, GRADED),
                attributes={"ancillary_variables": "quality_level"})  # fmt: skip
LAND = field(np.where(SEA, VALUES, 0.0), mask_rho=SEA.astype(float))
CODED = field(np.where(GOOD, VALUES, VALUES - 9.0), sst_qc=FLAGS)


BITS = field(VALUES, l2_flags=(FLAGS, {"flag_masks": [1, 2, 4], "flag_meanings": "land cloud spare"}))
LINES = field(VALUES, curvilinear=True, sst_dtime=(FLAGS * 60).astype("timedelta64[s]"))
SCALED = field(VALUES, exponent=np.where(SEA, 0, 1))

CASES = {
    "quality": (QUALITY, "flags-differ", {"quality_level": [4, 5]}, GOOD),
    "land": (LAND, "masked", {"mask_rho": 1}, SEA),
    "codes": (CODED, "flags-differ", {"sst_qc": 4}, FLAGS == 4),
    "bits": (BITS, "flags-differ", {"l2_flags": [4, 5]}, GOOD),
    "powers of ten": (SCALED, "values-scaled", {"exponent": 0}, SEA),
}


@pytest.mark.parametrize(
    ("case", "door"),
    [
        ("quality", "object"),
        ("quality", "file"),
        ("land", "zarr"),
        ("land", "object"),
        ("codes", "object"),
        ("powers of ten", "file"),
        ("bits", "zarr"),
    ],
)
def test_variables_beside_the_values_choose_or_are_asked_about(tmp_path, case, door):
    data, key, where, expected = CASES[case]
    with pytest.raises(DataError) as refused:
        taken(data, door, tmp_path)
    assert refused.value.key == key
    *first, last = (remedy.value for remedy in refused.value.remedies)
    assert first in ([where], []) or case == "codes"
    assert last == dict.fromkeys(where, "*")
    found = taken(data, door, tmp_path, where=where)
    np.testing.assert_allclose(found, np.sort(VALUES[expected]), atol=1e-4)
    unchecked = {} if door == "object" else {"check_range": False}
    assert taken(data, door, tmp_path, where=last, **unchecked).size == VALUES.size
    with pytest.raises(DataError) as nothing:
        taken(data, door, tmp_path, where=dict.fromkeys(where, 77))
    assert nothing.value.key == "not-there"


@pytest.mark.parametrize(
    "data",
    [
        field(VALUES, quality_level=(np.where(GOOD, 5, 4).astype("int8"), GRADED)),  # both are good
        field(VALUES, quality_level=np.full(VALUES.shape, 2, "int8")),
        field(np.where(GOOD, VALUES, np.nan), qc=np.where(GOOD, 1, 4).astype("int8")),
        field(VALUES, rh=VALUES, rh_qc=FLAGS),
        field(VALUES, lsm=SEA.astype(float)),  # of values on land and sea
        field(np.where(SEA, VALUES, np.nan), mask_rho=SEA.astype(float)),
        field(VALUES, sst_uncertainty=VALUES, attributes={"ancillary_variables": "sst_uncertainty"}),
        field(VALUES, l2p_flags=(FLAGS, {"flag_masks": [1, 2, 4], "flag_meanings": "microwave land ice"})),
        field(VALUES, sst_dtime=np.zeros(VALUES.shape)),
        field(VALUES, wind=VALUES, wind_dtime=FLAGS),
    ],
)
def test_harmless_variables_are_passed_over(data):
    assert read(data, value="sst").points.values.size > 0


def test_times_since_that_of_a_field_are_asked_about():
    with pytest.raises(DataError) as refused:
        read(LINES, value="sst")
    assert refused.value.key == "time-offset"
    assert read(LINES, value="sst", where=refused.value.remedies[0].value).points.values.size == VALUES.size


@pytest.mark.parametrize("about", [{"standard_error_multiplier": 2.0}, {"long_name": "error variance"}])
def test_a_noise_that_is_no_standard_deviation_is_refused(about):
    for stated in ({}, about):
        data = field(VALUES, u=(np.ones(VALUES.shape), {"units": "K"} | stated))
        if not stated:
            assert read(data, value="sst", noise_std="u").points.noise_variance is not None
            continue
        with pytest.raises(DataError) as refused:
            read(data, value="sst", noise_std="u")
        assert refused.value.key == "no-standard-deviation"


def test_flags_that_are_bad_everywhere_are_asked_about():
    with pytest.raises(DataError) as refused:
        read(field(VALUES, quality_level=(np.full(VALUES.shape, 1, "int8"), GRADED)), value="sst")
    assert refused.value.key == "flags-differ"


def test_one_dimension_is_cut_by_what_lies_along_it():
    data = xr.concat([field(VALUES), field(VALUES + 1.0)], "time").assign_coords(
        time=np.array(["2021-07-01", "2021-08-01"], "datetime64[ns]"), month=("time", [7, 8])
    )
    chosen = read(data, value="sst", where={"month": 8}).points.values
    np.testing.assert_allclose(np.sort(chosen.reshape(-1)), np.sort(VALUES + 1.0, axis=None))


@pytest.mark.parametrize("door", ["object", "file"])
def test_points_of_a_curvilinear_grid_together_at_zero_are_nowhere(tmp_path, door):
    land = (ROWS > 3) & (COLUMNS > 4)
    data = field(np.where(land, 0.0, VALUES), curvilinear=True)
    data = data.assign_coords({name: data[name].where(~land, 0.0) for name in ("latitude", "longitude")})
    np.testing.assert_allclose(taken(data, door, tmp_path), np.sort(VALUES[~land]), atol=1e-4)
    data["sst"] = data.sst.where(~land, data.longitude + VALUES)
    with pytest.raises(DataError) as refused:
        taken(data, door, tmp_path)
    assert refused.value.key == "no-place"
