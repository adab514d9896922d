"""Units of axes, wherever an axis comes from: converted to degrees, or refused by name."""

import numpy as np
import pytest
import xarray as xr

from cagp_dist.errors import CagpError, DataError
from cagp_dist.fields.axes import horizontal
from cagp_dist.fields.canonical import canonical
from cagp_dist.fields.coordinates import in_degrees
from cagp_dist.fields.covariates import covariate
from cagp_dist.fields.tables import read_places

from ..joined import one_after_another

LATITUDE, LONGITUDE = np.array([44.0, 46.0, 48.0]), np.array([4.0, 6.0, 8.0, 10.0])


def field(latitude, longitude, units, **more):
    """Values (3, 4) on two axes with these units."""
    axes = {
        "lat": ("lat", latitude, {"units": units} | more),
        "lon": ("lon", longitude, {"units": units} | more),
        "time": np.datetime64("2020-07-01", "ns"),
    }
    return xr.DataArray(280.0 + np.arange(12.0).reshape(3, 4), axes, ["lat", "lon"], "t2m", {"units": "K"})


def of_table(given):
    units = given.lat.attrs["units"]
    grid = np.meshgrid(given.lat, given.lon, indexing="ij")
    found = read_places({f"lat ({units})": grid[0].ravel(), f"lon ({units})": grid[1].ravel()})
    return found.latitude_degrees[::4], found.longitude_degrees[:4]


def of_drift(given):
    grid = covariate(given).grid
    return grid.latitude_degrees, grid.west_degrees + grid.eastward_degrees


def of_source(given):
    found = canonical(given.to_dataset())
    return found.latitude.values, found.longitude.values


READERS = {
    "object": lambda given: horizontal(given).axes,
    "source": of_source,
    "drift": of_drift,
    "table": of_table,
}


@pytest.fixture(params=READERS)
def read(request):
    return READERS[request.param]


@one_after_another
@pytest.mark.parametrize(
    ("units", "degrees"),
    [("radian", 180.0 / np.pi), ("arcmin", 1 / 60), ("degrees", 1.0), ("0.1 degrees", 0.1)],
)
def test_angles_are_converted(read, units, degrees):
    latitude, longitude = read(field(LATITUDE / degrees, LONGITUDE / degrees, units))
    np.testing.assert_allclose(latitude, LATITUDE)
    np.testing.assert_allclose(longitude, LONGITUDE)


def test_metres_are_refused_with_what_to_use(read):
    with pytest.raises(CagpError) as refused:
        read(field(LATITUDE, LONGITUDE, "m"))
    assert refused.value.key == "plane"
    assert_is_of_a_plane(refused.value)


def assert_is_of_a_plane(error):
    """The error of a projected plane, which may be kept."""
    assert error.key == "plane"
    assert [(way.name, way.value) for way in error.remedies] == [("columns", {"x": "NAME", "y": "NAME"})]


@one_after_another
@pytest.mark.parametrize("name", ["object", "source", "drift"])
def test_units_that_are_none_of_an_angle_are_refused_by_name(name):
    with pytest.raises(DataError) as refusal:
        READERS[name](field(LATITUDE, LONGITUDE, "K"))
    assert refusal.value.key == "units"


def on_axes(dims, attributes):
    """The field on the axes `dims`, whose attributes name the axis where they hold {}."""
    axes = {
        dim: (dim, values, {key: text.format(dim) for key, text in attributes.items()})
        for dim, values in zip(dims, (LATITUDE, LONGITUDE), strict=True)
    }
    return (
        field(LATITUDE, LONGITUDE, "1")
        .drop_vars(["lat", "lon"])
        .rename(lat=dims[0], lon=dims[1])
        .assign_coords(axes)
    )


PROJECTED = {"standard_name": "projection_{}_coordinate"}


@pytest.mark.parametrize("attributes", [PROJECTED, {"units": "km"}])
def test_a_plane_where_a_sphere_is_asked_for_says_what_to_use(attributes):
    with pytest.raises(CagpError) as refused:
        READERS["object"](on_axes(("y", "x"), attributes))
    assert refused.value.key == "plane"
    assert_is_of_a_plane(refused.value)


@pytest.mark.parametrize("attributes", [PROJECTED, {"units": "km"}])
def test_a_source_on_a_plane_keeps_its_axes(attributes):
    found = canonical(on_axes(("y", "x"), attributes).to_dataset())
    np.testing.assert_array_equal(np.sort(found.y), np.sort(LATITUDE))
    np.testing.assert_array_equal(found.x, LONGITUDE)
    assert "latitude" not in found.coords


@pytest.mark.parametrize("name", ["object", "source"])
def test_a_rotated_grid_says_what_to_use(name):
    with pytest.raises(CagpError) as refusal:
        READERS[name](on_axes(("rlat", "rlon"), {"units": "degrees"}))
    assert refusal.value.key == "rotated"


def test_axes_may_be_packed_and_count_westward():
    packed = {"scale_factor": 0.5, "units": "degrees_west"}
    np.testing.assert_array_equal(
        in_degrees(np.int16([20, 10]), packed, what="x", longitude=True), [-10.0, -5.0]
    )
    with pytest.raises(DataError) as refusal:
        in_degrees([-97.0], {"units": "degrees_west"}, what="x", longitude=True)
    assert refusal.value.key == "units"


@pytest.mark.parametrize(
    ("units", "longitude", "factor"),
    [
        ("W", True, -1),
        ("West", True, -1),
        ("E", True, 1),
        ("S", False, -1),
        ("N", False, 1),
        ("WGS84", True, 1),
    ],
)
def test_a_direction_behind_the_name_of_a_column_counts(units, longitude, factor):
    names = ["lat", f"lon ({units})"] if longitude else [f"lat [{units}]", "lon"]
    found = read_places({names[0]: [40.0], names[1]: [120.5]})
    numbers = (found.longitude_degrees, 120.5) if longitude else (found.latitude_degrees, 40.0)
    assert numbers[0].tolist() == [factor * numbers[1]]


@one_after_another
@pytest.mark.parametrize("units", ["W", "furlong", "DMS"])
def test_other_units_of_a_column_are_refused_by_name(units):
    with pytest.raises(DataError) as refusal:
        read_places({f"lat ({units})": [40.0], "lon": [120.5]})
    assert refusal.value.key == "units"


@pytest.mark.parametrize(
    ("units", "factor"),
    [("degS", -1), ("degreesS", -1), ("degrees_S", -1), ("degs", 1), ("degrees", 1), ("DEGREES", 1)],
)
def test_a_capital_letter_tells_south_from_the_plural(units, factor):
    assert in_degrees([40.0], {"units": units}, what="lat", longitude=False).tolist() == [factor * 40.0]


def test_nominal_axes_of_an_ocean_model_are_no_places():
    axes = {
        "yh": ("yh", LATITUDE, {"units": "degrees_north", "long_name": "h point nominal latitude"}),
        "xh": ("xh", LONGITUDE, {"units": "degrees_east", "long_name": "h point nominal longitude"}),
        "time": np.datetime64("2020-07-01", "ns"),
    }
    nominal = xr.DataArray(280.0 + np.arange(12.0).reshape(3, 4), axes, ["yh", "xh"], "t2m", {"units": "K"})
    for read in (READERS["object"], of_source, of_drift):
        with pytest.raises(CagpError) as refusal:
            read(nominal)
        assert refusal.value.key == "no-places"
    north, east = np.meshgrid(LATITUDE, LONGITUDE, indexing="ij")
    true = nominal.assign_coords(geolat=(("yh", "xh"), north), geolon=(("yh", "xh"), east))
    true.geolat.attrs["standard_name"], true.geolon.attrs["standard_name"] = "latitude", "longitude"
    assert horizontal(true).north.dims == ("yh", "xh")
    assert of_source(true)[0].shape == (12,)
    plain = nominal.copy()
    for name in ("yh", "xh"):
        del plain[name].attrs["long_name"]
    np.testing.assert_array_equal(of_source(plain)[0], LATITUDE)


@pytest.mark.parametrize(("north", "east"), [("nav_lat", "nav_lon"), ("decimalLatitude", "decimalLongitude")])
def test_a_name_of_a_coordinate_is_one_of_a_column_too(north, east):
    given = field(LATITUDE, LONGITUDE, "degrees").rename(lat=north, lon=east)
    np.testing.assert_array_equal(horizontal(given).axes[0], LATITUDE)
    grid = np.meshgrid(LATITUDE, LONGITUDE, indexing="ij")
    places = read_places({north: grid[0].ravel(), east: grid[1].ravel()})
    np.testing.assert_array_equal(places.latitude_degrees[::4], LATITUDE)
