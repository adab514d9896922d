import numpy as np
import pytest

from cagp_dist.cartography.raster import half_cell, resample
from cagp_dist.report.published import Grid


def grid(longitude: np.ndarray, latitude: np.ndarray) -> Grid:
    blank = np.zeros((len(latitude), len(longitude)))
    return Grid(np.asarray(longitude, float), np.asarray(latitude, float), blank, blank)


@pytest.mark.parametrize("descending", [False, True])
def test_a_plane_is_reproduced_across_greenwich(descending: bool) -> None:
    longitude = np.r_[np.arange(0.0, 41.0, 2.0), np.arange(350.0, 360.0, 2.0)]
    latitude = np.arange(30.0, 61.0, 3.0)[:: -1 if descending else 1]
    unrolled = (longitude + 180.0) % 360.0 - 180.0
    values = 270.0 + 0.5 * latitude[:, None] - 0.25 * unrolled[None, :]
    rng = np.random.default_rng(3)
    x, y = rng.uniform(-10.0, 40.0, 500), rng.uniform(30.0, 60.0, 500)
    expected = 270.0 + 0.5 * y - 0.25 * x
    here = grid(longitude, latitude)
    np.testing.assert_allclose(resample(here, values, x, y), expected, rtol=1e-12)
    np.testing.assert_allclose(resample(here, values, x % 360.0, y), expected, rtol=1e-12)


def test_the_edge_is_constant_for_half_a_cell() -> None:
    here = grid(np.arange(350.0, 360.0), np.arange(30.0, 41.0))
    values = np.broadcast_to(np.arange(30.0, 41.0)[:, None], (11, 10))
    x = np.array([349.6, 349.4, 359.4, 359.6, 355.0, 355.0, 355.0, 355.0, 100.0])
    y = np.array([35.0, 35.0, 35.0, 35.0, 40.4, 40.6, 29.6, 29.4, 35.0])
    expected = [35.0, np.nan, 35.0, np.nan, 40.0, np.nan, 30.0, np.nan, np.nan]
    np.testing.assert_allclose(resample(here, values, x, y), expected)


def test_a_globe_wraps_without_a_seam() -> None:
    longitude, latitude = np.arange(0.0, 360.0, 4.0), np.arange(-88.0, 89.0, 4.0)
    values = np.cos(np.deg2rad(longitude))[None, :] * np.ones((len(latitude), 1))
    x = np.array([-2.0, 358.0, 359.9, 0.1, -180.0, 180.0, 540.0])
    got = resample(grid(longitude, latitude), values, x, np.zeros(7))
    middle = 0.5 * (1.0 + np.cos(np.deg2rad(4.0)))
    near = 1.0 - 0.025 * (1.0 - np.cos(np.deg2rad(4.0)))
    np.testing.assert_allclose(got, [middle, middle, near, near, -1.0, -1.0, -1.0], rtol=1e-12)
    assert np.isfinite(
        resample(grid(longitude, latitude), values, np.zeros(2), np.array([90.0, -90.0]))
    ).all()


def test_pixels_off_the_globe_stay_empty() -> None:
    got = resample(
        grid(np.arange(0.0, 360.0, 10.0), np.array([-90.0, 0.0, 90.0])),
        np.ones((3, 36)),
        np.array([np.nan, 5.0]),
        np.array([np.nan, 5.0]),
    )
    np.testing.assert_array_equal(got, [np.nan, 1.0])


def test_one_row_or_one_column_is_a_constant_of_one_degree() -> None:
    point = grid(np.array([7.0]), np.array([46.0]))
    x, y = np.array([7.0, 7.4, 6.6, 7.6, 7.0]), np.array([46.4, 46.0, 46.0, 46.0, 45.4])
    np.testing.assert_array_equal(
        resample(point, np.array([[280.0]]), x, y), [280.0, 280.0, 280.0, np.nan, np.nan]
    )
    row = grid(np.array([0.0, 10.0]), np.array([46.0]))
    np.testing.assert_allclose(
        resample(row, np.array([[280.0, 290.0]]), np.array([2.5]), np.array([46.0])), [282.5]
    )


def test_half_a_cell() -> None:
    assert half_cell(np.array([60.0, 58.0, 59.5])) == 0.25
    assert half_cell(np.array([3.0])) == 0.5
