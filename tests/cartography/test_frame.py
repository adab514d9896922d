import numpy as np
import pytest

from cagp_dist.cartography.frame import (
    TOLD_APART,
    EqualEarth,
    PlateCarree,
    coastlines,
    frame_of,
    frame_of_plane,
    lines_degrees,
)
from cagp_dist.text import degrees_label


def test_equal_earth_has_the_published_extent() -> None:
    # Savric et al. (2019): the ratio of the axes is 2.05458, the poles are 0.59247 of the equator long
    projection = EqualEarth()
    (right, corner), (_, top) = projection.forward([180.0, 180.0], [0.0, 90.0])
    assert right == pytest.approx(2.7066299836960748, rel=1e-12)
    assert top == pytest.approx(1.3173627591574133, rel=1e-12)
    assert right / top == pytest.approx(2.05458, abs=5e-6)
    assert corner / right == pytest.approx(0.59247, abs=5e-6)


def test_equal_earth_preserves_area() -> None:
    # dx dy = cos(latitude) dlongitude dlatitude, by central differences of 1e-4 degrees
    rng = np.random.default_rng(0)
    longitude, latitude, step = rng.uniform(-179, 179, 200), rng.uniform(-85, 85, 200), 1e-4
    project = EqualEarth().forward
    columns = [
        (np.array(project(longitude + a, latitude + b)) - np.array(project(longitude - a, latitude - b)))
        / np.deg2rad(2.0 * step)
        for a, b in ((step, 0.0), (0.0, step))
    ]
    area = columns[0][0] * columns[1][1] - columns[1][0] * columns[0][1]
    np.testing.assert_allclose(area, np.cos(np.deg2rad(latitude)), rtol=2e-6)


@pytest.mark.parametrize("projection", [EqualEarth(), PlateCarree(shrink=0.6, centre_degrees=-70.0)])
def test_inverse_undoes_forward(projection: EqualEarth | PlateCarree) -> None:
    longitude, latitude = np.meshgrid(np.linspace(-180, 180, 37), np.linspace(-90, 90, 37))
    back = projection.inverse(*projection.forward(longitude, latitude))
    np.testing.assert_allclose(back[0], longitude, atol=1e-6)
    np.testing.assert_allclose(back[1], latitude, atol=2e-6)  # the sine is flat at the poles


def test_equal_earth_is_nan_off_the_globe() -> None:
    longitude, latitude = EqualEarth().inverse([0.0, 2.69, 0.0, 2.69], [0.0, 1.2, 1.33, 0.0])
    assert np.isnan(longitude).tolist() == [False, True, True, False]
    assert np.isnan(latitude).tolist() == [False, True, True, False]


@pytest.mark.parametrize(
    ("longitude", "latitude", "centre", "reach"),
    [
        (np.r_[np.arange(350, 360), np.arange(0, 41)], [30, 60], 15.0, 25.0),  # across Greenwich
        (np.arange(170, 200), [-40, -10], -175.5, 14.5),  # across the 180th meridian
        ([100.0, 120.0], [0, 10], 110.0, 10.0),
        ([7.0], [46.0], 7.0, 0.0),
    ],
)
def test_a_region_is_framed_across_any_meridian(
    longitude: np.ndarray, latitude: list[float], centre: float, reach: float
) -> None:
    frame = frame_of(longitude, latitude, margin_degrees=0.5)
    assert isinstance(frame.projection, PlateCarree)
    assert frame.centre_degrees == pytest.approx(centre)
    assert (frame.west, frame.east) == pytest.approx((-reach - 0.5, reach + 0.5))
    assert (frame.south, frame.north) == (min(latitude) - 0.5, max(latitude) + 0.5)
    assert frame.projection.shrink == pytest.approx(np.cos(np.deg2rad(np.mean([frame.south, frame.north]))))
    x, _ = frame.project(longitude, np.full(len(longitude), latitude[0]))
    left, right, _, _ = frame.extent()
    assert left < x.min() <= x.max() < right
    assert np.ptp(x) == pytest.approx(2.0 * reach)


def test_the_globe_is_equal_earth_about_greenwich() -> None:
    frame = frame_of(np.arange(0.0, 360.0, 4.0), [-88.0, 88.0], margin_degrees=2.0)
    assert isinstance(frame.projection, EqualEarth)
    assert (frame.centre_degrees, frame.west, frame.east) == (0.0, -180.0, 180.0)
    assert frame.extent() == pytest.approx((-2.70663, 2.70663, -1.31736, 1.31736), abs=1e-5)
    longitude, latitude = frame.pixels(200)
    assert longitude.shape == (97, 200)
    assert np.isnan(longitude[0, 0])
    assert np.isfinite(longitude[48]).all()
    assert latitude[0, 100] > 80.0 > -80.0 > latitude[-1, 100]  # the top row is the north


def test_a_belt_around_the_globe_is_a_whole_strip() -> None:
    frame = frame_of(np.arange(0.0, 360.0, 2.0), [-30.0, 30.0], margin_degrees=1.0)
    assert isinstance(frame.projection, PlateCarree)
    assert (frame.west, frame.east, frame.south, frame.north) == (-180.0, 180.0, -31.0, 31.0)


def test_a_polar_strip_does_not_become_a_thread_and_stops_at_the_pole() -> None:
    frame = frame_of([10.0, 40.0], [86.0, 90.0], margin_degrees=1.0)
    assert frame.projection == PlateCarree(shrink=0.2, centre_degrees=25.0)
    assert frame.north == 90.0


def test_pixels_of_a_region_are_true_longitudes() -> None:
    frame = frame_of([350.0, 355.0, 0.0, 40.0], [30.0, 60.0], margin_degrees=0.0)
    longitude, latitude = frame.pixels(100)
    assert longitude[0, 0] == pytest.approx(-10.0 + 0.25)
    assert longitude[-1, -1] == pytest.approx(40.0 - 0.25)
    half_pixel = 0.5 * 30.0 / len(latitude)
    assert latitude[0, 0] == pytest.approx(60.0 - half_pixel)
    assert latitude[-1, 0] == pytest.approx(30.0 + half_pixel)


@pytest.mark.parametrize(
    ("longitude", "latitude"),
    [(18.5, -34.3), (-5.5, 50.1), (174.0, -41.3), (-80.4, 25.2), (49.5, 37.5)],
    ids=["Cape of Good Hope", "Land's End", "Cook Strait", "Florida", "Caspian"],
)
def test_coastlines_pass_known_places(longitude: float, latitude: float) -> None:
    frame = frame_of(np.arange(0.0, 360.0, 4.0), [-88.0, 88.0], margin_degrees=2.0)
    x, y = coastlines(frame)
    here = frame.project(longitude, latitude)
    assert np.nanmin(np.hypot(x - here[0], y - here[1])) < np.deg2rad(1.5)


def test_coastlines_leave_out_borders_between_countries() -> None:
    frame = frame_of([5.0, 20.0], [45.0, 54.0], margin_degrees=0.0)
    x, y = coastlines(frame)
    for place in ((13.0, 48.3), (6.1, 49.5), (15.0, 51.0)):  # Inn, Moselle, Neisse
        here = frame.project(*place)
        assert np.nanmin(np.hypot(x - here[0], y - here[1])) > 2.0


@pytest.mark.parametrize(
    ("longitude", "latitude", "kind"),
    [(-5.712, 50.066, "coastline"), (-9.818, 51.450, "coastline"), (6.02, 50.755, "border")],
    ids=["Land's End", "Mizen Head", "Vaalserberg"],
)
def test_maps_of_less_than_ten_degrees_have_lines_of_one_to_ten_million(longitude, latitude, kind) -> None:
    for width, kilometres in ((4.0, 4.0), (20.0, 12.0)):
        reach = [-0.5 * width, 0.5 * width]
        frame = frame_of(longitude + np.array(reach), latitude + np.array(reach), margin_degrees=0.0)
        x, y = coastlines(frame, kind)
        here = frame.project(longitude, latitude)
        assert np.nanmin(np.hypot(x - here[0], y - here[1])) < kilometres / 111.0


@pytest.mark.parametrize(
    ("longitude", "latitude"),
    [(6.15, 46.205), (-82.42, 42.995), (33.19, 0.42)],
    ids=["Geneva", "Port Huron", "Jinja"],
)
def test_lakes_reach_the_towns_at_their_shores(longitude, latitude) -> None:
    for width in (4.0, 20.0):
        reach = [-0.5 * width, 0.5 * width]
        frame = frame_of(longitude + np.array(reach), latitude + np.array(reach), margin_degrees=0.0)
        x, y = coastlines(frame, "lake")
        here = frame.project(longitude, latitude)
        assert np.nanmin(np.hypot(x - here[0], y - here[1])) < 8.0 / 111.0


def test_points_of_lines_that_a_map_does_not_tell_apart_are_one() -> None:
    frame = frame_of(np.arange(0.0, 360.0, 4.0), [-88.0, 88.0], margin_degrees=2.0)
    x, y = coastlines(frame)
    left, right, _, _ = frame.extent()
    inner = np.isfinite(x[:-2]) & np.isfinite(x[1:-1]) & np.isfinite(x[2:])
    cells = np.floor(np.stack((x, y)) * (TOLD_APART / (right - left)))
    assert (cells[:, :-2] != cells[:, 1:-1]).any(axis=0)[inner].all()
    assert np.isfinite(x).sum() < 0.7 * len(lines_degrees("coastline", "50m"))


@pytest.mark.parametrize("centre", [0.0, 90.0, 180.0, 270.0])
def test_coastlines_do_not_jump_across_the_map(centre: float) -> None:
    longitude = np.arange(centre - 130.0, centre + 131.0, 5.0)
    frame = frame_of(longitude, [-80.0, 80.0], margin_degrees=2.5)
    frame = frame if centre else frame_of(np.arange(0.0, 360.0, 5.0), [-80.0, 80.0], margin_degrees=2.5)
    x, _ = coastlines(frame)
    left, right, _, _ = frame.extent()
    assert np.nanmax(np.abs(np.diff(x))) < 0.06 * (right - left)


def test_coastlines_far_from_a_region_are_dropped() -> None:
    frame = frame_of([-10.0, 2.0], [50.0, 58.0], margin_degrees=0.25)
    x, y = coastlines(frame)
    everywhere = coastlines(frame_of(np.arange(0.0, 360.0, 4.0), [-88.0, 88.0], margin_degrees=2.0))[0]
    assert 20 < np.isfinite(x).sum() < 0.05 * np.isfinite(everywhere).sum()
    assert np.nanmin(y) > 40.0


@pytest.mark.parametrize(
    ("value", "axis", "text"),
    [
        (30.0, "latitude", "30°N"),
        (-0.5, "latitude", "0.5°S"),
        (0.0, "latitude", "0°"),
        (359.0, "longitude", "1°W"),
        (180.0, "longitude", "180°"),
        (-200.0, "longitude", "160°E"),
    ],
)
def test_graticule_labels(value: float, axis: str, text: str) -> None:
    assert degrees_label(value, axis=axis) == text


def test_graticule_is_round_in_true_longitude() -> None:
    frame = frame_of([350.0, 355.0, 0.0, 41.0], [30.3, 60.2], margin_degrees=0.1)
    assert frame.parallels().tolist() == [35.0, 40.0, 45.0, 50.0, 55.0, 60.0]
    true = frame.meridians() + frame.centre_degrees
    np.testing.assert_allclose(true, [-10.0, 0.0, 10.0, 20.0, 30.0, 40.0], atol=1e-6)
    for span in (0.3, 1.0, 7.0, 60.0, 359.0):
        narrow = frame_of([0.0, span / 2, span], [0.0, 1.0], margin_degrees=0.0)
        assert 2 <= len(narrow.meridians()) <= 6


def test_a_frame_says_which_region_it_shows() -> None:
    assert frame_of(np.arange(-180.0, 180.0, 10.0), np.linspace(-80.0, 80.0, 36)).text == ""
    assert frame_of([170.0, -170.0], [-10.0, 10.0], margin_degrees=0.0).text == "10°S to 10°N, 170°E to 170°W"
    assert frame_of([8.0, 8.5], [50.0, 50.25], margin_degrees=0.0).text == "50°N to 50.25°N, 8°E to 8.5°E"
    around = frame_of(np.arange(-180.0, 180.0, 10.0), np.full(36, 65.0), margin_degrees=5.0)
    assert around.text == "60°N to 70°N"
    british = frame_of([-11.0, 2.5], [49.5, 59.5], margin_degrees=0.0)
    assert british.text == "49.5°N to 59.5°N, 11°W to 2.5°E"
    plane = frame_of_plane(np.array([600e3, 800e3]), np.array([5300e3, 5492e3]), unit="m")
    assert plane.text == "x 592 to 808, y 5,292 to 5,500 km"
