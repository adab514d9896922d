import numpy as np
import pytest

from cagp_dist.geometry import area_weights, unit_sphere
from cagp_dist.service.mean import fit_mean


@pytest.fixture
def points():
    generator = np.random.default_rng(5)
    return generator.uniform(-90, 90, 400), generator.uniform(0, 360, 400)


def test_constant_is_the_area_weighted_average(points):
    latitude, _ = points
    values = np.random.default_rng(1).normal(280.0, 9.0, (400, 3))
    mean = fit_mean("constant", latitude, values)
    expected = np.average(values, axis=0, weights=np.cos(np.deg2rad(latitude)))
    X = unit_sphere([0.0, -90.0], [0.0, 13.0])
    assert np.allclose(mean(X), np.stack([expected, expected]), rtol=1e-12)


def test_quadratic_latitude_recovers_a_quadratic(points):
    latitude, longitude = points
    values = np.stack([300.0 - 0.01 * latitude**2, 270.0 + 0.2 * latitude], axis=1)
    mean = fit_mean("quadratic-latitude", latitude, values)
    assert np.allclose(mean(unit_sphere(latitude, longitude)), values, atol=1e-7)  # arcsin near the poles


def test_quadratic_latitude_leaves_residuals_orthogonal_under_the_weights(points):
    latitude, longitude = points
    values = 290.0 + 20 * np.sin(np.deg2rad(longitude))[:, None] * np.cos(np.deg2rad(3 * latitude))[:, None]
    residual = values - fit_mean("quadratic-latitude", latitude, values)(unit_sphere(latitude, longitude))
    powers = np.vander(latitude / 90, 3)
    assert np.abs((area_weights(latitude)[:, None] * powers).T @ residual).max() < 1e-6


@pytest.mark.parametrize("name", ["constant", "quadratic-latitude"])
def test_points_of_one_latitude_do_not_determine_a_slope(name):
    latitude = np.full(10, 50.0)
    mean = fit_mean(name, latitude, np.full((10, 1), 281.0))
    assert np.allclose(mean(unit_sphere(latitude, np.arange(10.0))), 281.0)
