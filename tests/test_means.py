import pickle

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, ConfigurationError
from cagp_dist.fields.bilinear import BilinearGrid
from cagp_dist.fields.climatology import Climatology
from cagp_dist.geometry import area_weights, unit_sphere
from cagp_dist.means import MEANS, PlacedFamily, ReadFamily, mean_family, spellings

from .joined import one_after_another

TIMES = np.array(["2020-01-15", "2020-07-01T12:00"], dtype="datetime64[ns]")


@pytest.fixture
def places():
    generator = np.random.default_rng(5)
    return generator.uniform(-90, 90, 400), generator.uniform(0, 360, 400)


def fitted(name, places, values):
    return mean_family(name).fit(*places, values, times=TIMES[: values.shape[1]])


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


@pytest.fixture
def monthly():
    """Twelve fields that are linear in latitude and longitude, from 40..60 N and 350..20 E."""
    latitude, eastward = np.linspace(40.0, 60.0, 5), np.linspace(0.0, 30.0, 4)
    shape = 270.0 - 0.5 * latitude[:, None, None] + 0.1 * eastward[None, :, None]
    return Climatology(BilinearGrid(latitude, 350.0, eastward, shape + np.arange(12.0)), "digest")


def test_a_climatology_is_shifted_by_a_constant_of_each_time(monthly):
    generator = np.random.default_rng(2)
    latitude, longitude = generator.uniform(40, 60, 50), generator.uniform(-10, 20, 50) % 360.0
    usual = 270.0 - 0.5 * latitude + 0.1 * ((longitude + 10.0) % 360.0)
    values = np.stack([usual + 3.0, usual + 6.0 - 1.5], axis=1)  # July is month 6 after January
    mean = monthly.fit(latitude, longitude, values, times=TIMES)
    np.testing.assert_allclose(mean.offset, [3.0, -1.5], atol=1e-9)
    X = unit_sphere(latitude, longitude)
    np.testing.assert_allclose(mean(X), values, rtol=1e-12)
    noisy = values + generator.standard_normal(values.shape)
    offset = monthly.fit(latitude, longitude, noisy, times=TIMES).offset
    shift = np.average(noisy - values, axis=0, weights=np.cos(np.deg2rad(latitude)))
    expected = shift + np.array([3.0, -1.5])
    np.testing.assert_allclose(offset, expected, rtol=1e-12)


def test_a_point_outside_the_climatology_is_refused(monthly):
    latitude, longitude, values = (
        np.array([45.0, 50.0, 39.0]),
        np.array([5.0, 6.0, 7.0]),
        np.full((3, 1), 280.0),
    )
    said = r"latitudes 40\.\.60 and 30 degrees east of longitude 350; 1 of 3"
    with pytest.raises(ConfigurationError, match=said):
        monthly.check_covers(latitude, longitude)
    with pytest.raises(ConfigurationError, match=said):
        monthly.fit(latitude, longitude, values, times=TIMES[:1])
    mean = monthly.fit(latitude[:2], longitude[:2], values[:2], times=TIMES[:1])
    with pytest.raises(ConfigurationError) as refusal:
        mean(unit_sphere([45.0], [30.0]))
    assert refusal.value.key == "outside-climatology"


def test_a_climatology_by_month_needs_a_time_for_each_field(monthly):
    places = np.array([45.0, 50.0]), np.array([5.0, 6.0])
    with pytest.raises(ArgumentError) as refusal:
        monthly.fit(*places, np.full(2, 280.0))
    assert refusal.value.key == "no-times"
    with pytest.raises(ArgumentError) as refusal:
        monthly.fit(*places, np.full(2, 280.0), times=TIMES)
    assert refusal.value.key == "shapes"


def test_a_climatology_of_the_whole_year_needs_no_times():
    latitude, eastward = np.linspace(40.0, 60.0, 5), np.linspace(0.0, 30.0, 4)
    yearly = Climatology(BilinearGrid(latitude, 350.0, eastward, np.full((5, 4, 1), 275.0)), "digest")
    mean = yearly.fit(np.array([45.0, 50.0]), np.array([5.0, 6.0]), np.array([276.0, 276.0]))
    np.testing.assert_allclose(mean(unit_sphere([41.0], [3.0])), [[276.0]])


def test_every_family_is_found_by_its_name(tmp_path):
    expected = ("constant", "quadratic-latitude", "harmonic-latitude", "regional_linear", "climatology:PATH")
    assert spellings() == expected
    for name, family in MEANS.items():
        if isinstance(family, ReadFamily):
            with pytest.raises(ArgumentError) as refusal:
                mean_family(name)
            assert refusal.value.key == "mean-unknown"
        elif not isinstance(family, PlacedFamily):
            assert mean_family(name) is family
            assert family.content_sha256 is None
            with pytest.raises(ArgumentError) as refusal:
                mean_family(f"{name}:x")
            assert refusal.value.key == "mean-unknown"
    with pytest.raises(ArgumentError) as refusal:
        mean_family("linear")
    assert refusal.value.key == "mean-unknown"


@pytest.mark.parametrize("name", [name for name in MEANS if "-" in name or name == "constant"])
def test_a_mean_goes_into_a_prior_and_a_fit(name, places):
    """From Python: one vector of values, a prior about its mean, and a fit about it."""
    latitude, longitude = (values[:60] for values in places)
    values = 290.0 - 0.004 * latitude**2 + np.random.default_rng(3).standard_normal(60)
    mean = cagp.mean_family(name).fit(latitude, longitude, values)
    X = unit_sphere(latitude, longitude)
    prior = cagp.Prior(cagp.Matern32(0.1, 4.0), noise_variance=0.5, mean=mean)
    assert prior.mean_at(X).shape == (60, 1)
    posterior = cagp.condition(prior, X, values, X, solver=cagp.Cholesky())
    assert posterior.mean.shape == (60,)
    assert (
        cagp.fit(cagp.Matern32, X, values, mean=mean, bounds={"lengthscale": (0.1, 0.1)}).prior.mean is mean
    )
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(mean))(X), mean(X))


@one_after_another
@pytest.mark.parametrize(
    ("latitude", "longitude", "values", "key"),
    [
        ([1.0, 2.0], [0.0, 0.0], [1.0], "shapes"),
        ([1.0, 2.0], [0.0], [1.0, 2.0], "shapes"),
        ([1.0, 2.0], [0.0, 0.0], [1.0, np.nan], "not-finite"),
    ],
)
def test_data_that_do_not_match_are_refused(latitude, longitude, values, key):
    with pytest.raises(ArgumentError) as refusal:
        mean_family("constant").fit(np.array(latitude), np.array(longitude), np.array(values))
    assert refusal.value.key == key
