"""Pictures: what is drawn where, read back from the figure."""

import base64
import io
import json
import re

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr
from PIL import Image

import cagp_dist.kriging  # noqa: F401 (registers the accessor)
from cagp_dist.cartography.frame import EqualEarth, PlateCarree, frame_of
from cagp_dist.errors import ArgumentError
from cagp_dist.fields.axes import horizontal
from cagp_dist.kriging.drawn_maps import frame_around


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def plane(latitude, longitude):
    """A field that tells latitude and longitude apart, and what is left of it after wrapping."""
    north, east = np.meshgrid(latitude, longitude, indexing="ij")
    return xr.Dataset(
        {"mean": (("lat", "lon"), north + 0.001 * ((east + 180.0) % 360.0 - 180.0), {"units": "K"})},
        coords={"lat": latitude, "lon": longitude},
    )


def decoded(address):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))).convert("RGB"))


def image_of(figure):
    (image,) = figure.axes[0].get_images()
    return image


@pytest.mark.parametrize(("flipped", "transposed"), [(False, True), (True, False)])
def test_a_global_grid_is_shaded_where_it_is(flipped, transposed):
    field = plane(np.arange(-88.0, 90.0, 4.0), np.arange(0.0, 360.0, 4.0))
    field = field.isel(lat=slice(None, None, -1)) if flipped else field
    figure = (field.transpose() if transposed else field).cagp.plot("mean")
    frame = frame_around(horizontal(field))
    assert isinstance(frame.projection, EqualEarth)
    longitude, latitude = frame.pixels(image_of(figure).get_array().shape[1])
    drawn = np.ma.filled(image_of(figure).get_array(), np.nan)
    there = np.isfinite(drawn) & (np.abs(latitude) < 86.0) & (np.abs(np.abs(longitude) - 180.0) > 5.0)
    assert there.mean() > 0.7
    np.testing.assert_allclose(drawn[there], latitude[there] + 0.001 * longitude[there], atol=1e-6)


@pytest.mark.parametrize(
    "longitude", [np.arange(170.0, 191.0), np.r_[np.arange(170.0, 180.0), np.arange(-180.0, -169.0)]]
)
def test_a_region_across_the_date_line_is_one_piece(longitude):
    field = plane(np.arange(-10.0, 11.0), longitude)
    frame = frame_around(horizontal(field))
    assert isinstance(frame.projection, PlateCarree)
    assert (frame.centre_degrees % 360.0, frame.east - frame.west) == (180.0, 21.0)
    assert np.isfinite(np.ma.filled(image_of(field.cagp.plot("mean")).get_array(), np.nan)).all()


def test_places_are_dots_and_gaps_are_not_drawn():
    places = xr.Dataset(
        {"mean": ("place", [1.0, np.nan, 3.0]), "std": ("place", [1.0, 1.0, 1.0])},
        coords={"latitude": ("place", [0.0, 10.0, 20.0]), "longitude": ("place", [350.0, 0.0, 10.0])},
    )
    places["mean"].attrs["units"] = "degC"
    figure = places.cagp.plot()
    assert len(figure.axes) == 4  # two maps, two colour bars
    assert [axis.get_xlabel() for axis in figure.axes if axis.get_label() == "<colorbar>"] == ["°C", ""]
    (drawn,) = figure.axes[0].collections
    frame = frame_of([350.0, 0.0, 10.0], [0.0, 20.0], margin_degrees=0.8)
    x, y = frame.project(np.array([350.0, 10.0]), np.array([0.0, 20.0]))
    np.testing.assert_allclose(drawn.get_offsets(), np.stack([x, y], axis=1))
    np.testing.assert_allclose(drawn.get_array(), [1.0, 3.0])


def test_one_of_several_times_is_drawn_and_named():
    field = plane(np.arange(0.0, 5.0), np.arange(0.0, 5.0))
    moments = np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[ns]")
    both = xr.concat([field, field + 100.0], dim="time").assign_coords(time=moments)
    figure = both.cagp.plot("mean", field=-1)
    assert image_of(figure).get_array().min() >= 100.0
    assert "2020-01-02" in figure.axes[0].get_title(loc="left")
    with pytest.raises(ArgumentError) as refused:
        both.cagp.plot("mean", field=2)
    assert refused.value.key == "field-number"
    with pytest.raises(ArgumentError) as refused:
        both.cagp.plot()
    assert refused.value.key == "absent-variable"


def test_maps_of_an_animation_move_together_with_the_observations_of_their_time(tmp_path):
    """One value was observed, at the second of three equal times: its maps differ, and both of them do."""
    field = plane(np.arange(0.0, 5.0), np.arange(0.0, 5.0))
    moments = np.array(["2020-01-01", "2020-01-02", "2020-01-03"], dtype="datetime64[ns]")
    days = xr.concat([field, field, field], dim="time").assign_coords(time=moments)
    days["std"] = days["mean"] + 1.0
    values = np.full((3, 5, 5), np.nan)
    values[1, 2, 2] = 100.0
    seen = days["mean"].copy(data=values)
    text = days.cagp.animate(tmp_path / "days.html", ["mean", "std"], observations=seen).read_text()
    found = json.loads(re.search(r'id="frames-data">(.*?)</script>', text)[1])
    first, second, third = (decoded(frame["picture"]).astype(float) for frame in found)
    np.testing.assert_array_equal(first, third)
    differs = (np.abs(second - first).max(axis=2) > 20.0).any(axis=0)
    left, right = np.array_split(differs, 2)
    assert left.any()
    assert right.any()
    assert differs.mean() < 0.05
    assert plt.get_fignums() == []


def test_all_times_are_frames_of_a_page_in_the_same_colours(tmp_path):
    """The same field three times, the second of them higher: the pictures of the others are the same."""
    field = plane(np.arange(0.0, 5.0), np.arange(0.0, 5.0))
    moments = np.array(["2020-01-01", "2020-01-02", "2020-01-03"], dtype="datetime64[ns]")
    days = xr.concat([field, field + 2.0, field], dim="time").assign_coords(time=moments)
    days["std"] = days["mean"] + xr.DataArray([0.0, 1.0], dims="sample")
    text = days.cagp.animate(tmp_path / "days.html").read_text(encoding="utf-8")
    found = json.loads(re.search(r'id="frames-data">(.*?)</script>', text)[1])
    assert [frame["stamp"] for frame in found] == ["2020-01-01", "2020-01-02", "2020-01-03"]
    first, second, third = (decoded(frame["picture"]).astype(float) for frame in found)
    np.testing.assert_array_equal(first, third)
    there = np.abs(second - first).max(axis=2) > 20.0  # more than the compression loses
    assert 0.2 < there.mean() < 0.9  # the map, and not its frame and colour bar
    assert f'<img id="frame" src="{found[0]["picture"]}"' in text  # what is there without scripts
    assert plt.get_fignums() == []
    with pytest.raises(ArgumentError) as refused:
        days.cagp.animate(tmp_path / "days.html", "std")
    assert refused.value.key == "several-dimensions"
