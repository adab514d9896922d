"""Synthetic fields: the layout of ERA5, the distribution that was asked for, the same bits every time."""

import numpy as np
import pytest

from cagp_dist.errors import ArgumentError, ConfigurationError
from cagp_dist.fields.canonical import observation_points
from cagp_dist.fields.selection import Selection
from cagp_dist.fields.sources import open_source
from cagp_dist.fields.synthetic import Synthetic, open_synthetic, synthetic_grid, synthetic_mean
from cagp_dist.geometry import unit_sphere
from cagp_dist.kernels import Matern12, Matern52, SquaredExponential
from cagp_dist.means import mean_family

from ..joined import one_after_another

YEARS = [f"{year}-01-01" for year in range(1700, 2100)]


def test_it_has_the_layout_of_era5(tmp_path):
    field = open_source("synthetic", cache_directory=tmp_path)
    assert field.t2m.dims == ("time", "latitude", "longitude")
    assert (field.t2m.shape, field.t2m.dtype, field.t2m.attrs["units"]) == ((1, 181, 360), np.float32, "K")
    assert field.time.values.tolist() == np.array(["2001-01-01"], "datetime64[ns]").tolist()
    np.testing.assert_array_equal(field.latitude, np.arange(-90.0, 91.0))
    np.testing.assert_array_equal(field.longitude, np.arange(360.0))
    assert field.attrs["source"] == "synthetic"
    assert field.attrs["source_sha256"] == Synthetic().sha256(1.0)
    points = observation_points(field)
    assert (points.merged_pole_copies, points.dropped_missing) == (2 * 359, 0)


def test_all_copies_of_a_pole_are_equal():
    poles = open_synthetic(Synthetic(), selection=Selection(grid_degrees=5.0, times=YEARS[:3])).t2m.values[
        :, [0, -1]
    ]
    np.testing.assert_array_equal(poles, poles[:, :, :1].repeat(72, axis=2))
    assert np.unique(poles).size == 6


@pytest.mark.parametrize(
    "kernel",
    [
        Matern52(0.2, 10.0),
        *(
            pytest.param(each, marks=pytest.mark.exhaustive)
            for each in (Matern12(0.3, 30.0), SquaredExponential(0.25, 20.0))
        ),
    ],
)
def test_covariances_are_those_of_kernel_and_noise(kernel):
    """Sample covariances of 400 draws over pairs of places, poles included, against kernel plus noise."""
    settings = Synthetic(kernel, noise_variance=2.0, seed=3)
    field = open_synthetic(settings, selection=Selection(grid_degrees=30.0, times=YEARS))
    grid = synthetic_grid(30.0)
    mean = np.stack([synthetic_mean(settings.mean, grid, time) for time in field.time.values])
    anomaly = (field.t2m.values - mean).reshape(len(YEARS), *grid.shape)
    places = [(0, 0), (1, 4), (1, 5), (2, 0), (2, 11), (3, 3), (5, 7), (6, 0)]
    rows, columns = (np.array(index) for index in zip(*places, strict=True))
    X = unit_sphere(grid.latitude_degrees[rows], grid.longitude_degrees[columns])
    expected = kernel(X, X) + 2.0 * np.eye(len(X))
    sampled = anomaly[:, rows, columns]
    found = sampled.T @ sampled / len(YEARS)
    variances = np.diag(expected)
    # the standard error of a covariance of N draws is sqrt((K_ii K_jj + K_ij^2) / N); 5 of them is 1 in 10^5
    error = np.sqrt((np.outer(variances, variances) + expected**2) / len(YEARS))
    assert (np.abs(found - expected) / error).max() < 5.0
    assert np.abs(sampled.mean(axis=0) / np.sqrt(variances / len(YEARS))).max() < 5.0
    # one time after another: independent
    lagged = (sampled[1:] * sampled[:-1]).mean(axis=0)
    assert np.abs(lagged / (variances / np.sqrt(len(YEARS) - 1))).max() < 5.0


def test_a_time_does_not_depend_on_what_else_is_asked_for():
    times = ["2020-07-01T06:00", "1969-12-31T18:00", "2020-01-01"]
    together = open_synthetic(Synthetic(), selection=Selection(grid_degrees=10.0, times=times))
    for time in times:
        alone = open_synthetic(
            Synthetic(), selection=Selection(grid_degrees=10.0, times=[time], area=(60.0, -20.0, 20.0, 45.0))
        )
        same = together.t2m.sel(time=alone.time, latitude=alone.latitude, longitude=alone.longitude)
        np.testing.assert_array_equal(alone.t2m.values, same.values)
        assert alone.longitude.values.tolist() == [0.0, 10.0, 20.0, 30.0, 40.0, 340.0, 350.0]


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 1},
        {"noise_variance": 0.6},
        {"mean": "wave"},
        {"kernel": Matern12(0.05, 22.0)},
        {"kernel": type(Synthetic().kernel)(0.06, 22.0)},
        {"kernel": type(Synthetic().kernel)(0.05, 23.0)},
    ],
)
def test_other_settings_are_other_fields_with_other_digests(other):
    first, second = Synthetic(), Synthetic(**other)
    assert first.sha256(10.0) != second.sha256(10.0)
    fields = [
        open_synthetic(settings, selection=Selection(grid_degrees=10.0)).t2m.values
        for settings in (first, second)
    ]
    assert not np.array_equal(*fields)


def test_the_digest_follows_the_resolution():
    assert Synthetic().sha256(None) == Synthetic().sha256(1.0) != Synthetic().sha256(0.5)


@pytest.mark.parametrize(("mean", "middle"), [("quadratic-latitude", 300.889), ("wave", 298.291)])
def test_a_field_stays_what_it_is(mean, middle):
    """A change of the formula or of the draw must raise FORMULA, which is part of the digest."""
    field = open_synthetic(Synthetic(mean=mean), selection=Selection(grid_degrees=30.0))
    drawn = [
        [265.254, 265.254, 265.254],
        [307.489, middle, middle + 12.400],
        [246.513, 246.513, 246.513],
    ]
    np.testing.assert_allclose(field.t2m.values[0, ::3, ::5], drawn, atol=2e-3)


@pytest.mark.parametrize("name", ["quadratic-latitude", "harmonic-latitude", "wave"])
def test_the_mean_is_warm_at_the_equator_and_has_seasons(name):
    grid = synthetic_grid(5.0)
    january, july = (
        synthetic_mean(name, grid, np.datetime64(time, "ns")) for time in ("2021-01-15", "2021-07-16")
    )
    zonal = january.mean(axis=1)
    assert zonal[18] - max(zonal[0], zonal[-1]) > 30.0
    assert (july - january)[30].mean() > 5.0
    np.testing.assert_allclose((july - january)[::-1], january - july, atol=1e-3)
    assert np.ptp(january[[0, -1]], axis=1).max() < 1e-12
    assert (np.ptp(january, axis=1).max() > 5.0) == (name == "wave")


def within(mean, field):
    """What least squares with a prior mean of a job leaves of a synthetic mean, at most, in kelvin."""
    points = observation_points(field)
    fitted = mean_family(mean).fit(points.north, points.east, points.values.T)
    found = fitted(unit_sphere(points.north, points.east))
    return np.abs(points.values.T - found).max()


@pytest.mark.parametrize("mean", ["constant", "quadratic-latitude", "harmonic-latitude"])
def test_a_mean_lies_within_the_prior_mean_of_its_name(mean):
    """With next to no draw and noise what is left is the rounding of float32 values, 3e-5 K."""
    still = {"kernel": Matern12(0.3, 1e-12), "noise_variance": 1e-12}
    field = open_synthetic(
        Synthetic(**still, mean=mean), selection=Selection(grid_degrees=10.0, times=["2021-04-01"])
    )
    assert within(mean, field) < 1e-4
    wave = open_synthetic(
        Synthetic(**still, mean="wave"), selection=Selection(grid_degrees=10.0, times=["2021-04-01"])
    )
    assert within(mean, wave) > 2.0


@one_after_another
@pytest.mark.parametrize("spacing", [0.0, -1.0, 0.7, 91.0, 180.0])
def test_a_spacing_that_does_not_divide_the_globe_is_refused(spacing):
    with pytest.raises(ConfigurationError) as refusal:
        open_synthetic(Synthetic(), selection=Selection(grid_degrees=spacing))
    assert refusal.value.key == "grid-degrees"


@pytest.mark.parametrize("spacing", [90.0, 22.5, 1.0 / 3.0, 0.25])
def test_spacings_that_divide_the_globe(spacing):
    grid = synthetic_grid(spacing)
    assert grid.shape == (round(180 / spacing) + 1, round(360 / spacing))
    assert grid.latitude_degrees[[0, -1]].tolist() == [-90.0, 90.0]


def test_values_that_no_thermometer_shows_are_refused():
    settings = Synthetic(type(Synthetic().kernel)(0.05, 1e4))
    with pytest.raises(ConfigurationError) as refusal:
        open_synthetic(settings, selection=Selection(grid_degrees=5.0))
    assert refusal.value.key == "synthetic"


@pytest.mark.parametrize(
    "wrong", [{"seed": -1}, {"seed": 0.5}, {"seed": True}, {"noise_variance": 0.0}, {"mean": "x"}]
)
def test_settings_that_are_none(wrong):
    with pytest.raises(ArgumentError, match="expected"):
        Synthetic(**wrong)


def test_it_says_what_it_draws():
    said = []
    open_synthetic(Synthetic(), selection=Selection(grid_degrees=30.0, times=YEARS[:2]), progress=said.append)
    assert said == ["drawing 2 x 7 x 12 values of the prior"]


def test_settings_are_for_the_synthetic_source_alone(tmp_path):
    with pytest.raises(ConfigurationError) as refused:
        open_source("sample", cache_directory=tmp_path, synthetic=Synthetic())
    assert refused.value.key == "not-of-source"
