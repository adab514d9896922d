import numpy as np
import pytest

from cagp_dist.era5.canonical import Points
from cagp_dist.era5.climatology import Climatology
from cagp_dist.errors import ConfigurationError
from cagp_dist.geometry import area_weights, unit_sphere
from cagp_dist.service.mean import fit_mean

TIMES = np.array(["2020-01-15", "2020-07-01T12:00"], dtype="datetime64[ns]")


@pytest.fixture
def places():
    generator = np.random.default_rng(5)
    return generator.uniform(-90, 90, 400), generator.uniform(0, 360, 400)


def points_at(latitude, longitude, values, times=TIMES):
    """All points with values (n, T)."""
    return Points(latitude, longitude, np.ascontiguousarray(values.T), times[: values.shape[1]], 0, 0)


def fitted(name, places, values, **settings):
    return fit_mean(name, points_at(*places, values), np.arange(len(values)), **settings)


def test_constant_is_the_area_weighted_average(places):
    values = np.random.default_rng(1).normal(280.0, 9.0, (400, 2))
    mean = fitted("constant", places, values)
    expected = np.average(values, axis=0, weights=np.cos(np.deg2rad(places[0])))
    X = unit_sphere([0.0, -90.0], [0.0, 13.0])
    np.testing.assert_allclose(mean(X), np.stack([expected, expected]), rtol=1e-12)


def test_quadratic_latitude_recovers_a_quadratic(places):
    latitude, _ = places
    values = np.stack([300.0 - 0.01 * latitude**2, 270.0 + 0.2 * latitude], axis=1)
    mean = fitted("quadratic-latitude", places, values)
    np.testing.assert_allclose(mean(unit_sphere(*places)), values, rtol=1e-12)


def test_harmonic_latitude_recovers_zonal_harmonics(places):
    sine = np.sin(np.deg2rad(places[0]))
    fourth = (35.0 * sine**4 - 30.0 * sine**2 + 3.0) / 8.0
    values = np.stack([280.0 - 30.0 * (1.5 * sine**2 - 0.5) + 4.0 * fourth, 270.0 - 6.0 * sine**3], axis=1)
    mean = fitted("harmonic-latitude", places, values)
    np.testing.assert_allclose(mean(unit_sphere(*places)), values, rtol=1e-12)
    assert not np.allclose(
        fitted("quadratic-latitude", places, values)(unit_sphere(*places)), values, atol=0.1
    )


@pytest.mark.parametrize(
    ("name", "basis"),
    [
        ("quadratic-latitude", lambda latitude: np.vander(latitude / 90, 3)),
        ("harmonic-latitude", lambda latitude: np.vander(np.sin(np.deg2rad(latitude)), 5)),
    ],
)
def test_residuals_are_orthogonal_under_the_weights(places, name, basis):
    latitude, longitude = places
    values = 290.0 + 20 * np.sin(np.deg2rad(longitude))[:, None] * np.cos(np.deg2rad(3 * latitude))[:, None]
    residual = values - fitted(name, places, values)(unit_sphere(*places))
    assert np.abs((area_weights(latitude)[:, None] * basis(latitude)).T @ residual).max() < 1e-6


@pytest.mark.parametrize("name", ["constant", "quadratic-latitude", "harmonic-latitude"])
def test_points_of_one_latitude_do_not_determine_a_slope(name):
    latitude = np.full(10, 50.0)
    mean = fitted(name, (latitude, np.arange(10.0)), np.full((10, 1), 281.0))
    np.testing.assert_allclose(mean(unit_sphere(latitude, np.arange(10.0))), 281.0)


def test_only_the_observed_points_are_used(places):
    values = np.random.default_rng(1).normal(280.0, 9.0, (400, 2))
    train = np.arange(0, 400, 3)
    spoiled = values.copy()
    spoiled[1::3] = 150.0
    X = unit_sphere(*places)
    for name in ("constant", "harmonic-latitude"):
        means = [fit_mean(name, points_at(*places, each), train)(X) for each in (values, spoiled)]
        np.testing.assert_array_equal(*means)


@pytest.fixture
def monthly():
    """Twelve fields that are linear in latitude and longitude, from 40..60 N and 350..20 E."""
    latitude, eastward = np.linspace(40.0, 60.0, 5), np.linspace(0.0, 30.0, 4)
    shape = 270.0 - 0.5 * latitude[:, None, None] + 0.1 * eastward[None, :, None]
    return Climatology(latitude, 350.0, eastward, shape + np.arange(12.0), "digest")


def test_a_climatology_is_shifted_by_a_constant_of_each_time(monthly):
    generator = np.random.default_rng(2)
    latitude, longitude = generator.uniform(40, 60, 50), generator.uniform(-10, 20, 50) % 360.0
    usual = 270.0 - 0.5 * latitude + 0.1 * ((longitude + 10.0) % 360.0)
    values = np.stack([usual + 3.0, usual + 6.0 - 1.5], axis=1)  # July is month 6 after January
    mean = fitted("climatology:x", (latitude, longitude), values, climatology=monthly)
    np.testing.assert_allclose(mean.offset_kelvin, [3.0, -1.5], atol=1e-9)
    X = unit_sphere(latitude, longitude)
    np.testing.assert_allclose(mean(X), values, rtol=1e-12)
    noisy = values + generator.standard_normal(values.shape)
    offset = fitted("climatology:x", (latitude, longitude), noisy, climatology=monthly).offset_kelvin
    shift = np.average(noisy - values, axis=0, weights=np.cos(np.deg2rad(latitude)))
    expected = shift + np.array([3.0, -1.5])
    np.testing.assert_allclose(offset, expected, rtol=1e-12)


def test_a_point_outside_the_climatology_is_refused_even_if_it_is_not_observed(monthly):
    latitude, longitude = np.array([45.0, 50.0, 39.0]), np.array([5.0, 6.0, 7.0])
    points = points_at(latitude, longitude, np.full((3, 1), 280.0))
    with pytest.raises(
        ConfigurationError, match=r"latitudes 40\.\.60 and 30 degrees east of longitude 350; 1 of 3"
    ):
        fit_mean("climatology:x", points, np.array([0, 1]), climatology=monthly)
    mean = fit_mean(
        "climatology:x",
        points_at(latitude[:2], longitude[:2], np.full((2, 1), 280.0)),
        np.array([0, 1]),
        climatology=monthly,
    )
    with pytest.raises(ConfigurationError, match=r"such as 45 N, 30 E"):
        mean(unit_sphere([45.0], [30.0]))
