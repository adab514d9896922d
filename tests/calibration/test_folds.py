"""Folds of places: neighbours together, folds of equal size, nothing left out."""

import numpy as np
import pytest

from cagp_dist.calibration.verification.spatial_folds import block_folds, fitting_blocks
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import unit_sphere


def places(n, seed=0):
    rng = np.random.default_rng(seed)
    latitude = np.rad2deg(np.arcsin(rng.uniform(-1.0, 1.0, n)))
    return latitude, rng.uniform(-180.0, 180.0, n)


def folds(latitude, longitude, **options):
    return block_folds(latitude, longitude, generator=np.random.default_rng(1), **options)


@pytest.mark.parametrize("height", [2.0, 5.0, 30.0, None])
def test_every_place_is_in_one_fold_and_folds_are_of_about_equal_size(height):
    latitude, longitude = places(3000)
    fold = folds(latitude, longitude, count=7, blocks=height)
    sizes = np.bincount(fold, minlength=7)
    assert fold.shape == (3000,)
    assert sizes.size == 7
    # the largest block of 30 degrees holds about 3000 / 44 places; dealt out, no fold is off by more
    assert np.ptp(sizes) <= {2.0: 1, 5.0: 1, 30.0: 90, None: 1}[height]


def test_blocks_stay_together_and_are_as_wide_as_they_are_high():
    latitude, longitude = places(4000)
    fold = folds(latitude, longitude, count=10, blocks=10.0)
    X = unit_sphere(latitude, longitude)
    near = np.cos(np.deg2rad(1.0)) < X @ X.T
    np.fill_diagonal(near, False)
    together = (fold[:, None] == fold[None, :])[near].mean()
    # a pair 2/3 of a degree apart is cut by an edge of a 10 degree block with probability about 2 * 2/3 / 10
    # * 2 / pi = 0.08, and then in one fold by chance one time in ten
    assert together > 0.88


def test_longitudes_of_both_conventions_give_the_same_folds_and_repeated_places_stay_together():
    latitude, longitude = places(500)
    first = folds(latitude, longitude)
    np.testing.assert_array_equal(first, folds(latitude, np.mod(longitude, 360.0)))
    twice = folds(np.tile(latitude, 2), np.tile(longitude, 2), blocks=None)
    np.testing.assert_array_equal(twice[:500], twice[500:])


def test_poles_and_the_date_line_belong_to_blocks():
    fold = folds([90.0, -90.0, 90.0, 0.0, 0.0], [0.0, 10.0, 360.0, 359.9999999, 180.0], count=4)
    assert set(fold) == {0, 1, 2, 3}
    assert fold[0] == fold[2]


def test_what_cannot_be_split_is_refused():
    with pytest.raises(ArgumentError) as refusal:
        folds([0.1, 0.2], [0.1, 0.2], count=3)
    assert refusal.value.key == "few-blocks"
    for alone in ([0.1], [0.1, 0.1]):  # no smaller blocks tell one place from itself
        with pytest.raises(ArgumentError) as refusal:
            folds(alone, alone, count=3)
        assert refusal.value.key == "few-blocks"
    with pytest.raises(ArgumentError) as refusal:
        folds([0.1, 50.0], [0.1, 0.1], count=3)
    assert refusal.value.key == "few-blocks"
    with pytest.raises(ArgumentError) as refusal:
        folds([0.1, 0.2, 50.0], [0.1, 0.2, 0.0], count=3)
    assert refusal.value.key == "few-blocks"
    with pytest.raises(ArgumentError) as refusal:
        folds([0.0, 50.0], [0.0, 0.0], count=2, blocks=0.0)
    assert refusal.value.key == "not-positive"
    with pytest.raises(ArgumentError) as refusal:
        folds([0.0, 50.0], [0.0], count=2)
    assert refusal.value.key == "shapes"


def test_blocks_are_halved_until_there_are_as_many_as_folds_if_that_can_be():
    rng = np.random.default_rng(1)
    places = rng.uniform(50.0, 58.0, 80), rng.uniform(-10.0, 2.0, 80)
    height = fitting_blocks(*places, count=10, blocks=5.0)
    assert height == 2.5
    block_folds(*places, count=10, blocks=height, generator=rng)
    with pytest.raises(ArgumentError) as refusal:
        block_folds(*places, count=10, blocks=2.0 * height, generator=rng)
    assert refusal.value.key == "few-blocks"
    assert fitting_blocks(*places, count=3, blocks=5.0) == 5.0
    assert fitting_blocks(places[0][:4], places[1][:4], count=5, blocks=5.0) == 5.0
    beside = np.array([50.0, np.nextafter(50.0, 51.0)])  # no blocks part these
    assert fitting_blocks(beside, np.zeros(2), count=2, blocks=5.0) == 5.0
