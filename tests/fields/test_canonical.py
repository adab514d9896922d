"""Canonical form does not depend on conventions, and what is not a temperature field is refused by name."""

import re

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from cagp_dist.errors import ConfigurationError, DataError
from cagp_dist.fields.canonical import canonical, joined_times, time_axis
from cagp_dist.fields.selection import Selection
from cagp_dist.store.batches import PRELIMINARY

from ..joined import one_after_another
from .fields import raw_dataset


def old_layout(new):
    """The same field as the store wrote it until 2024: ``time``, final and preliminary along expver."""
    old = new.drop_vars(["number", "expver"]).rename(valid_time="time")
    final = old.t2m.where(old.time < old.time[-1])
    preliminary = old.t2m.where(old.time >= old.time[-1])
    old["t2m"] = xr.concat([final, preliminary], dim=xr.Variable("expver", [1, 5]))
    return old


def test_the_new_layout_of_the_store_becomes_canonical():
    raw = raw_dataset()
    field = canonical(raw)
    assert field.t2m.dims == ("time", "latitude", "longitude")
    assert field.t2m.dtype == np.float32
    assert set(field.variables) == {"t2m", "time", "latitude", "longitude"}
    np.testing.assert_array_equal(field.time, raw.valid_time)
    np.testing.assert_array_equal(field.latitude, [30.0, 40.0, 50.0, 60.0])
    np.testing.assert_array_equal(field.t2m, raw.t2m[:, ::-1])
    assert field.t2m.attrs["units"] == "K"
    assert all(not variable.encoding for variable in field.variables.values())


@pytest.mark.parametrize("versions", [[1, 5], ["0001", "0005"], None])
@pytest.mark.parametrize("preliminary_first", [False, True])
def test_the_old_layout_gives_the_same_field_and_final_values_win(versions, preliminary_first):
    raw = raw_dataset()
    old = old_layout(raw)
    if versions is None:
        old = old.drop_vars("expver")
        preliminary_first = False
    else:
        old = old.assign_coords(expver=versions)
        old.t2m.loc[{"expver": versions[1], "time": old.time[0]}] = 333.0  # there is a final value too
    if preliminary_first:
        old = old.isel(expver=[1, 0])
    expected = canonical(raw)
    if versions is not None:
        expected.attrs[PRELIMINARY] = "2020-01-01T12:00:00"
        xr.testing.assert_identical(canonical(raw.assign_coords(expver=("valid_time", versions))), expected)
    xr.testing.assert_identical(canonical(old), expected)


def test_a_time_is_final_if_a_source_has_it_as_final():
    raw = raw_dataset(times=("2020-01-01", "2020-01-02", "2020-01-03"))
    early = raw.assign_coords(expver=("valid_time", ["0001", "0005", "0005"]))
    late = raw.isel(valid_time=[1]).assign_coords(expver=("valid_time", ["0001"]))
    assert canonical(early).attrs[PRELIMINARY] == "2020-01-02T00:00:00 2020-01-03T00:00:00"
    expected = canonical(early)
    early.t2m[1] += 1.0  # and was corrected before it was final
    for parts in ((early, late), (late, early)):
        for field in (canonical(*parts), joined_times([canonical(part) for part in parts])):
            assert field.attrs[PRELIMINARY] == "2020-01-03T00:00:00"
            np.testing.assert_array_equal(field.t2m, expected.t2m)
    again = early.isel(valid_time=[1]) + 1.0
    with pytest.raises(DataError) as refusal:
        canonical(early, again.assign_coords(expver=("valid_time", ["0005"])))
    assert refusal.value.key == "several-values"
    assert canonical(raw.isel(valid_time=0).assign_coords(expver="0005")).attrs[PRELIMINARY] == (
        "2020-01-01T00:00:00"
    )
    assert PRELIMINARY not in canonical(early, selection=Selection(times=["2020-01-01"])).attrs
    others = raw.drop_vars("expver").assign_coords(expver=("expver", [1, 5]))  # those of another variable
    assert PRELIMINARY not in canonical(others).attrs


def test_packed_values_are_decoded_and_their_encoding_is_gone(tmp_path):
    raw = raw_dataset().drop_vars("expver")
    raw.t2m.encoding = {"dtype": "int16", "scale_factor": 0.002, "add_offset": 280.0, "_FillValue": -32767}
    raw.to_netcdf(tmp_path / "packed.nc", engine="scipy")
    with xr.open_dataset(tmp_path / "packed.nc", engine="scipy") as packed:
        field = canonical(packed)
    np.testing.assert_allclose(field.t2m, raw.t2m[:, ::-1], atol=0.0011)
    assert field.t2m.encoding == {}


@one_after_another
@pytest.mark.parametrize("name", ["2t", "2m_temperature", "VAR_2T", "T2M"])
@pytest.mark.parametrize("axes", [("latitude", "longitude"), ("lat", "lon"), ("Latitude", "Longitude")])
def test_names_of_variables_and_axes_do_not_matter(name, axes):
    raw = raw_dataset()
    other = raw.rename(
        {"t2m": name} | {a: b for a, b in zip(("latitude", "longitude"), axes, strict=True) if a != b}
    )
    xr.testing.assert_identical(canonical(other.transpose(..., axes[0])), canonical(raw))


def test_coordinates_of_other_dimensions_scalar_times_and_single_members_are_understood():
    raw = raw_dataset(times=("2020-01-01T06:00",))
    scalar = raw.isel(valid_time=0)
    points = (
        raw.rename_dims(latitude="y", longitude="x")
        .expand_dims(number=[0])
        .reset_index(["latitude", "longitude"])
    )
    grib_like = raw.rename(valid_time="time").assign_coords(
        valid_time=("time", raw.valid_time.values), time=raw.valid_time.values - np.timedelta64(3, "h")
    )
    for variant in (scalar, points, grib_like):
        xr.testing.assert_identical(canonical(variant), canonical(raw))


@given(
    shift=st.integers(0, 7),
    west=st.booleans(),
    north_first=st.booleans(),
    duplicate=st.booleans(),
    order=st.permutations(range(3)),
    repeat=st.integers(0, 2),
)
def test_conventions_of_longitude_latitude_and_time_do_not_matter(
    shift, west, north_first, duplicate, order, repeat
):
    raw = raw_dataset(
        times=("2020-01-01", "2020-01-02", "2020-01-03"),
        latitude=(45.0, 0.0, -45.0),
        longitude=np.arange(0, 360, 45),
    )
    other = raw.roll(longitude=shift, roll_coords=True)
    if west:
        other = other.assign_coords(longitude=(other.longitude + 180.0) % 360.0 - 180.0)
    if duplicate:
        copy = other.isel(longitude=[0]).assign_coords(
            longitude=other.longitude[[0]] + (0 if shift else 360.0)
        )
        other = xr.concat([other, copy], dim="longitude")
    if not north_first:
        other = other.isel(latitude=slice(None, None, -1))
    other = other.isel(valid_time=[*order, order[repeat]])
    xr.testing.assert_identical(canonical(other), canonical(raw))


def test_360_degrees_with_other_values_than_0_is_refused():
    raw = raw_dataset(longitude=(0.0, 120.0, 240.0, 360.0))
    with pytest.raises(DataError) as refusal:
        canonical(raw)
    assert refusal.value.key == "place-twice"
    raw.t2m[:, :, 3] = raw.t2m[:, :, 0]
    assert canonical(raw).longitude.values.tolist() == [0.0, 120.0, 240.0]
    tiny = raw.isel(longitude=slice(0, 3)).assign_coords(longitude=[-1e-13, 120.0, 240.0])
    xr.testing.assert_identical(canonical(tiny), canonical(raw))


def test_repeated_times_are_merged_when_equal_and_an_error_when_not():
    raw = raw_dataset()
    twice = xr.concat([raw, raw.isel(valid_time=[0])], dim="valid_time")
    xr.testing.assert_identical(canonical(twice), canonical(raw))
    twice.t2m[2, 0, 0] += 1.0
    with pytest.raises(DataError) as refusal:
        canonical(twice)
    assert refusal.value.key == "several-values"
    xr.testing.assert_identical(
        canonical(twice, selection=Selection(times=["2020-01-01T12"])).t2m[0], canonical(raw).t2m[1]
    )


def test_parts_of_one_grid_are_joined_in_time_and_foreign_parts_ignored():
    raw = raw_dataset(times=("2020-01-01", "2020-01-02", "2020-01-03"))
    late, early = raw.isel(valid_time=[2]), raw.isel(valid_time=[0, 1])
    rain = xr.Dataset({"tp": ("x", [0.0])})
    xr.testing.assert_identical(canonical(late, rain, early), canonical(raw))
    one = canonical(late, early, selection=Selection(times=["2020-01-02"]))
    xr.testing.assert_identical(one.t2m[0], canonical(raw).t2m[1])
    with pytest.raises(DataError) as refusal:
        canonical(early, late.isel(latitude=slice(0, 3)))
    assert refusal.value.key == "parts"


def test_arrays_made_for_times_do_not_grow_with_the_number_of_scalars(monkeypatch):
    """Making an array of a dataset looks at all of its variables, so that one for each is quadratic work."""
    made = []

    def array(self, name, original=xr.Dataset._construct_dataarray):
        made.append(name)
        return original(self, name)

    monkeypatch.setattr(xr.Dataset, "_construct_dataarray", array)

    def count(scalars):
        given = raw_dataset().assign({f"scalar_{number}": float(number) for number in range(scalars)})
        made.clear()
        assert time_axis([given], Selection()).size == raw_dataset().sizes["valid_time"]
        return len(made)

    assert count(200) == count(2) > 0


def test_only_the_selection_is_read():
    raw = raw_dataset(times=("2020-01-01", "2020-01-02", "2020-01-03"))
    raw.t2m[0] = np.nan
    raw.t2m[2, :, 0] = 999.0
    field = canonical(
        raw, selection=Selection(times=["2020-01-03", "2020-01-02T00:00Z"], area=(60.0, 45.0, 30.0, 300.0))
    )
    assert field.t2m.shape == (2, 4, 3)


def test_a_box_may_cross_the_prime_meridian_and_a_grid_be_thinned():
    raw = raw_dataset(latitude=np.arange(20.0, -21.0, -5.0), longitude=np.arange(0.0, 360.0, 5.0))
    field = canonical(raw, selection=Selection(area=(10.0, -10.0, -10.0, 10.0), grid_degrees=10.0))
    assert field.latitude.values.tolist() == [-10.0, 0.0, 10.0]
    assert field.longitude.values.tolist() == [0.0, 10.0, 350.0]
    np.testing.assert_array_equal(field.t2m, raw.t2m.sel(latitude=field.latitude, longitude=field.longitude))


@one_after_another
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda d: d.rename(t2m="tp"),
            r"absent-variable: variable 't2m' is missing; there is 'tp'\.",
        ),
        (lambda d: xr.Dataset(), "absent-variable: .*no variable at all"),
        (
            lambda d: d.assign(t2m=(1.8 * d.t2m).assign_attrs(units="degR")),
            "units 'degR'; expected kelvin, degrees Celsius or Fahrenheit",
        ),
        (lambda d: d - 273.15, "range: .*if it is Celsius"),
        (
            lambda d: d.assign(t2m=d.t2m.where(d.latitude < 55.0, 9999.0)),
            "missing-mark: 't2m' holds 9999 in 8 values",
        ),
        (
            lambda d: d.assign(t2m=d.t2m.where(d.latitude < 55.0, 99.0)),
            r"range: .*from 99 to .* expected 150\.\.350 K",
        ),
        (lambda d: d.assign(t2m=d.t2m.where(d.latitude < 55.0, np.inf)), "infinite:"),
        (lambda d: d * np.nan, "nothing-observed:"),
        (
            lambda d: d.assign(t2m=d.t2m.where(d.valid_time < d.valid_time[1])),
            r"empty-times: .*2020-01-01T12:00, and at 1 of 2",
        ),
        (lambda d: d.isel(valid_time=[]), "no-times:"),
        (lambda d: d.isel(latitude=[]), "no-points: .* 0 x 4"),
        (lambda d: d.drop_vars("valid_time"), "no-dates:"),
        (
            lambda d: d.assign_coords(valid_time=[0, 1]),
            "have type int64 and no units; expected dates of the standard",
        ),
        (lambda d: d.drop_vars("latitude"), "no-places:"),
        (
            lambda d: (
                d.rename_dims(longitude="x")
                .drop_vars("longitude")
                .assign_coords(longitude=(("latitude", "x"), np.zeros((4, 4))))
            ),
            "places: .*expected an axis each, or both along the same dimensions",
        ),
        (lambda d: d.expand_dims(member=3), "several-values: .* has 3 values along 'member'"),
        (lambda d: d.assign_coords(latitude=d.latitude + 31.0), "degrees: .* has 91, which is no latitude"),
        (lambda d: d.assign_coords(latitude=[1.0, 1.0, 2.0, 3.0]), "place-twice: 1 N"),
        (lambda d: d.assign_coords(longitude=[0.0, np.nan, 1.0, 2.0]), "degrees: .*longitude. has nan"),
    ],
)
def test_what_is_no_temperature_field_is_refused_by_name(change, message):
    raw = raw_dataset()
    raw.t2m.attrs.clear()  # no units: the values themselves must tell
    with pytest.raises(DataError) as refused:
        canonical(change(raw))
    assert re.search(message, f"{refused.value.key}: {refused.value}")


def test_absent_times_are_named_with_those_that_are_there():
    with pytest.raises(DataError) as caught:
        canonical(
            raw_dataset(), selection=Selection(times=["2020-01-01T12:00", "2021-01-01", "2022-01-01T06:30"])
        )
    assert str(caught.value) == (
        "2 of 3 selected times are not in the source: 2021-01-01T00:00, 2022-01-01T06:30. It has 2 times "
        "from 2020-01-01T00:00 to 2020-01-01T12:00."
    )


@one_after_another
@pytest.mark.parametrize(
    ("selection", "key"),
    [
        ({"value": "a b"}, "variable-name"),
        ({"value": "latitude"}, "variable-name"),
        ({"times": []}, "times"),
        ({"times": "2020-01-01"}, "times"),
        ({"times": ["yesterday"]}, "times"),
        ({"times": ["2020-13-01"]}, "times"),
        ({"times": ["2020-01-01T00:00+02:00"]}, "times"),
        ({"times": ["2020-01-01T00:00-02:00"]}, "times"),
        ({"area": (0.0, 0.0, 10.0, 10.0)}, "area"),
        ({"area": (10.0, 0.0, 0.0)}, "area"),
        ({"area": (10.0, np.nan, 0.0, 1.0)}, "area"),
        ({"area": (10.0, 0.0, 0.0, 360.0)}, "empty-area"),
        ({"grid_degrees": 15.0}, "grid-degrees"),
        ({"grid_degrees": 5.0}, "grid-degrees"),
        ({"grid_degrees": 0.0}, "grid-degrees"),
        ({"grid_degrees": -1.0}, "grid-degrees"),
    ],
)
def test_a_selection_that_cannot_be_is_a_configuration_error(selection, key):
    with pytest.raises(ConfigurationError) as refused:
        canonical(raw_dataset(), selection=Selection(**selection))
    assert refused.value.key == key


def test_an_irregular_grid_is_not_thinned():
    with pytest.raises(ConfigurationError) as refusal:
        canonical(raw_dataset(latitude=(60.0, 50.0, 45.0, 20.0)), selection=Selection(grid_degrees=10.0))
    assert refusal.value.key == "grid-degrees"
