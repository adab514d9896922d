"""What is decided before a search: bounds, starts, thinned data, levels."""

from itertools import pairwise

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.likelihood.bounds import (
    LARGEST_RATIO,
    SMALLEST_RATIO,
    Bounds,
    Scales,
    make_bounds,
)
from cagp_dist.likelihood.exact.likelihood_evaluation import Evaluation
from cagp_dist.likelihood.exact.profile_likelihood import Counter, ProfileLikelihood
from cagp_dist.likelihood.fit import FIRST_RING_POINTS, GROWTH, _levels
from cagp_dist.likelihood.observed import Gridded, ResidualsAtPoints
from cagp_dist.likelihood.search import climb
from cagp_dist.likelihood.starts import make_starts

from ..joined import one_after_another

SCALES = Scales(spacing=0.1, extent=2.0, power=4.0)


def gridded(P, Q, fields=1):
    grid = cagp.LatLonGrid(np.linspace(-80.0, 80.0, P), Q)
    return Gridded(grid, np.arange(fields * P * Q, dtype=float).reshape(fields, P, Q))


@one_after_another
@pytest.mark.parametrize("seed", range(20))
def test_the_nearest_admissible_variance(seed):
    low = np.exp(np.random.default_rng(seed).normal(size=2))
    bounds = Bounds((1.0, 1.0), (low[0], 3.0 * low[0]), (low[1], 5.0 * low[1]))
    for ratio in np.geomspace(*bounds.ratio, 7)[1:-1]:
        for best in np.geomspace(0.01, 100.0, 9):
            variance, follows_noise = bounds.variance_at(ratio, best)
            candidates = np.geomspace(0.001, 1000.0, 20_001)
            noise = ratio * candidates
            inside = (candidates >= low[0]) & (candidates <= 3.0 * low[0])
            inside &= (noise >= low[1]) & (noise <= 5.0 * low[1])
            if inside.any():
                nearest = candidates[inside][np.abs(np.log(candidates[inside] / best)).argmin()]
                assert variance == pytest.approx(nearest, rel=2e-3)
            assert follows_noise == (variance != best and not np.isin(variance, [low[0], 3.0 * low[0]]))


def test_the_ratio_stays_where_floating_point_can_follow():
    assert make_bounds(None, SCALES).ratio == pytest.approx((SMALLEST_RATIO, 1e6))
    far = {"variance": (1e-20, 1e20), "noise_variance": (1e-20, 1e20)}
    assert make_bounds(far, SCALES).ratio == (SMALLEST_RATIO, LARGEST_RATIO)
    assert make_bounds({"variance": (2.0, 4.0), "noise_variance": (1.0, 3.0)}, SCALES).ratio == (0.25, 1.5)
    only_noise = Bounds((1.0, 1.0), (1e-30, 1e-29), (1.0, 2.0))
    assert only_noise.ratio == pytest.approx((1e29, 1e30))  # what the limits ask for decides


def test_starts_lie_apart_and_within_bounds():
    bounds = make_bounds({"lengthscale": (0.3, 0.6)}, SCALES)
    low, high = np.log([bounds.lengthscale, bounds.ratio]).T
    starts = np.array(make_starts(None, bounds, SCALES, starts=8))
    assert starts.shape == (8, 2)
    assert ((starts >= low) & (starts <= high)).all()
    free = np.array(make_starts(None, make_bounds(None, SCALES), SCALES, starts=8))
    assert np.linalg.norm(free[:, None] - free, axis=2)[~np.eye(8, dtype=bool)].min() > 0.3
    # the first ones do not depend on how many there are
    np.testing.assert_array_equal(free[:3], make_starts(None, make_bounds(None, SCALES), SCALES, starts=3))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"lengthscale": 0.5}, (0.5, None)),
        ({"variance": 2.0}, (None, 0.1)),
        ({"noise_variance": 0.2}, (None, 0.05)),
        ({"lengthscale": 0.7, "variance": 2.0, "noise_variance": 0.5}, (0.7, 0.25)),
    ],
)
def test_a_guess_may_be_partial(given, expected):
    bounds = make_bounds(None, SCALES)
    first, *others = make_starts(given, bounds, SCALES, starts=3)
    spread = make_starts(None, bounds, SCALES, starts=3)
    assert len(others) == 2
    for value, wanted, default in zip(np.exp(first), expected, np.exp(spread[0]), strict=True):
        assert value == pytest.approx(default if wanted is None else wanted)


@pytest.mark.parametrize(
    ("P", "Q", "most"), [(40, 90, 1000), (41, 90, 500), (40, 97, 1000), (5, 240, 300), (240, 6, 300)]
)
def test_a_thinned_grid_is_made_of_rows_and_columns_of_the_whole(P, Q, most):
    whole = gridded(P, Q, fields=2)
    thinned = whole.thinned(most)
    assert thinned.fields == 2
    assert thinned.residuals.shape == (2, *thinned.grid.shape)
    assert thinned.size < whole.size
    assert thinned.grid.shape[0] >= min(P, 5)
    rows = np.isin(whole.grid.latitude_degrees, thinned.grid.latitude_degrees)
    columns = np.isclose(whole.grid.longitude_degrees[:, None], thinned.grid.longitude_degrees).any(axis=1)
    np.testing.assert_array_equal(thinned.residuals, whole.residuals[:, rows][:, :, columns])


def test_a_thinned_grid_without_poles_stays_mirrored():
    sample = gridded(239, 480).thinned(20_000)
    assert sample.grid.mirrored
    assert 12_000 < sample.size <= 20_000


def test_thinned_points_keep_their_neighbours():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(2000, 2))
    whole = ResidualsAtPoints(X, rng.normal(size=(2000, 3)))
    thinned = whole.thinned(500)
    assert thinned.fields == 3
    assert 400 < thinned.size <= 512
    # as close together as before, and over all of the square
    assert thinned.scales().spacing < 1.3 * whole.scales().spacing
    assert thinned.scales().extent > 0.95 * whole.scales().extent
    place = {tuple(x): b for x, b in zip(whole.X, whole.residuals, strict=True)}
    for x, b in zip(thinned.X, thinned.residuals, strict=True):
        np.testing.assert_array_equal(b, place[tuple(x)])
    assert whole.thinned(2000) is whole


def test_scales_of_a_grid():
    scales = gridded(33, 8).scales()
    assert scales.spacing == pytest.approx(np.deg2rad(5.0))
    assert gridded(3, 360).scales().spacing == pytest.approx(np.deg2rad(1.0), rel=1e-3)
    assert gridded(5, 1).scales().spacing == pytest.approx(np.deg2rad(40.0))
    assert gridded(1, 4).scales().spacing == pytest.approx(np.sqrt(2.0) * np.cos(np.deg2rad(80.0)))


@pytest.mark.parametrize(("P", "Q"), [(719, 1440), (239, 480), (100, 100), (180, 997)])
def test_levels_of_a_grid_grow_by_bounded_factors(P, Q):
    sizes = [data.size for data, _ in _levels(gridded(P, Q), "rings")]
    assert sizes[-1] == P * Q
    assert sizes[0] <= 1.2 * FIRST_RING_POINTS
    assert all(1 < after / before < 1.3 * GROWTH for before, after in pairwise(sizes))


def test_a_grid_that_cannot_be_thinned_is_the_only_level():
    assert [data.size for data, _ in _levels(gridded(4, 20_011), "rings")] == [80_044]


def test_a_climb_that_gets_no_higher_ends():
    class Wrong:
        """A gradient that points where the value falls."""

        points, fields = 100, 1
        evaluations = 0

        def evaluate(self, lengthscale, ratio):
            self.evaluations += 1
            falls = 100.0 * np.log(lengthscale) ** 2
            return Evaluation(100, 1, falls, 100.0, np.array([-50.0, 0.0]), np.zeros(2))

    likelihood = Wrong()
    profile = ProfileLikelihood(likelihood, make_bounds(None, SCALES), Counter(None))
    place = climb(profile, np.array([0.0, -1.0]))
    assert place.x.tolist() == [0.0, -1.0]
    assert likelihood.evaluations < 100
