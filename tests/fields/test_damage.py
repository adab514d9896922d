"""What a flipped bit makes of axes, times and values is refused where it can be told; whole fields pass."""

import numpy as np
import pytest
import xarray as xr

from cagp_dist.errors import DataError
from cagp_dist.fields.canonical import canonical
from cagp_dist.fields.files.damage import check_axis
from cagp_dist.fields.selection import Selection

from ..joined import one_after_another

LATITUDE, LONGITUDE = np.arange(60.0, 29.9, -0.75), np.arange(-10.0, 40.1, 0.75)
TIMES = np.datetime64("2019-03-01", "ns") + np.arange(24) * np.timedelta64(1, "h")


def temperature(name="t2m", **attributes):
    """A smooth field with weather, an island and a coast."""
    phi, lam = np.deg2rad(LATITUDE)[:, None], np.deg2rad(LONGITUDE)[None, :]
    values = 285.0 - 40.0 * np.sin(phi) ** 2 + 5.0 * np.cos(6.0 * lam + 9.0 * phi)
    values = np.where(lam > 0.3, values + 6.0, values)
    values[20, 5] -= 5.0
    values = values + np.sin(np.arange(TIMES.size))[:, None, None]
    dimensions = ("time", "latitude", "longitude")
    return xr.Dataset(
        {name: (dimensions, values.astype("f4"), attributes)},
        coords={"time": TIMES, "latitude": LATITUDE, "longitude": LONGITUDE},
    )


@one_after_another
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("change", [-64.0, 64.0])
@pytest.mark.parametrize("where", [(10, 10), (0, 30), (40, 66), (40, 0)])
def test_a_value_that_stands_out_is_refused(where, change, missing):
    field = temperature()
    if missing:
        field.t2m[:, 8:13, 11:14] = np.nan
    canonical(field)
    field.t2m[(3, *where)] += change
    with pytest.raises(
        DataError,
        match=rf"at {abs(LATITUDE[where[0]]):g} [NS], .*T03:00 stands out .*damaged",
    ):
        canonical(field)
    canonical(field, selection=Selection(check_range=False))


def test_a_free_variable_may_have_peaks_but_not_the_number_of_a_flipped_exponent():
    field = temperature("dust", units="kg m-3")
    field.dust[0, 10, 10] += 500.0
    canonical(field, selection=Selection(value="dust"))
    field.dust[0, 10, 10] = 3e29
    with pytest.raises(DataError) as refusal:
        canonical(field, selection=Selection(value="dust"))
    assert refusal.value.key == "damaged"


def test_fields_made_of_peaks_pass():
    field = temperature("burnt")
    field.burnt[:] = 0.0
    field.burnt[2, 5, 6] = 1e6
    canonical(field, selection=Selection(value="burnt"))


def gaussian(count):
    return np.rad2deg(np.arcsin(np.polynomial.legendre.leggauss(count)[0]))[::-1]


@one_after_another
@pytest.mark.parametrize(
    ("degrees", "name"),
    [
        (LATITUDE, "latitude"),
        (np.round(LATITUDE, 3), "latitude"),
        (np.linspace(-90.0, 90.0, 721, dtype="f4").astype(float), "latitude"),
        (gaussian(64), "latitude"),
        (gaussian(320), "latitude"),
        (np.array([-90.0, *np.arange(-88.0, 89.0, 4.0), 90.0]), "latitude"),  # half cells at the poles
        (np.delete(LATITUDE, [7, 8, 20]), "latitude"),
        (np.sort(np.random.default_rng(0).uniform(-80.0, 80.0, 30)), "latitude"),
        (np.append(np.arange(-60.0, 60.0, 2.0), [61.0, 63.0]), "longitude"),
        (np.roll(np.arange(0.0, 360.0, 1.5), 40), "longitude"),
        (np.arange(0.0, 360.1, 0.703125), "longitude"),
        (np.round(np.arange(0.0, 360.0, 0.703125), 3), "longitude"),
        (np.array([-10.0, 0.0, 3.0]), "longitude"),
    ],
)
def test_axes_of_whole_files_pass(degrees, name):
    check_axis(degrees, name)
    check_axis(degrees[::-1], name)


@one_after_another
@pytest.mark.parametrize(("axis", "name"), [(LATITUDE, "latitude"), (LONGITUDE, "longitude")])
@pytest.mark.parametrize("at", [0, 1, 17, -2, -1])
@pytest.mark.parametrize("change", [0.1, -0.3, 0.4, 4.0, -30.0, -31.0])
def test_an_axis_with_one_value_out_of_line_is_refused(axis, name, at, change):
    changed = axis.copy()
    changed[at] += change
    with pytest.raises(DataError) as refusal:
        check_axis(changed, name)
    assert refusal.value.key == "damaged"


def test_a_turned_axis_of_a_field_is_refused():
    field = temperature()
    order = np.arange(LATITUDE.size)
    order[[3, 4]] = [4, 3]
    with pytest.raises(DataError) as refusal:
        canonical(field.isel(latitude=order))
    assert refusal.value.key == "damaged"
