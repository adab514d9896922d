"""Which observed points are the neighbours of a target."""

import numpy as np
import pytest
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

import cagp_dist as cagp
from cagp_dist.gram.neighbourhoods import least_bytes
from cagp_dist.nearest import nearest_points


def test_of_points_equally_far_away_the_first_ones_are_neighbours():
    """Whatever points there are elsewhere: on a grid, where many are equally far away."""
    latitude, longitude = np.meshgrid(np.arange(-20.0, 21.0, 2.0), np.arange(0.0, 40.0, 2.0), indexing="ij")
    X = cagp.unit_sphere(latitude.ravel(), longitude.ravel())
    targets = X[::7]
    found = nearest_points(X, targets, 20)
    distance = cdist(targets, X)
    taken = np.take_along_axis(distance, found, axis=1)
    np.testing.assert_allclose(taken, np.sort(distance, axis=1)[:, :20], rtol=1e-12)
    for some in (np.unique(found), np.arange(found.max() + 1)):
        np.testing.assert_array_equal(some[nearest_points(X[some], targets, 20)], found)
    many = np.repeat(X[:3], 100, axis=0)[np.random.default_rng(0).permutation(300)]
    at_first = np.flatnonzero((many == X[0]).all(axis=1))
    np.testing.assert_array_equal(nearest_points(many, X[:1], 20), at_first[None, :20])
    tied = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, -1.0], [-1.0, 0.0]])
    np.testing.assert_array_equal(nearest_points(tied, np.zeros((1, 2)), 3), [[0, 1, 2]])
    np.testing.assert_array_equal(nearest_points(tied, np.zeros((1, 2)), 4), [[0, 1, 2, 3]])


@pytest.mark.parametrize("k", [1, 7, 60])
def test_neighbours_are_those_of_a_k_d_tree(k):
    """Clustered points, at several scales and places, and targets among them and far away, in any order."""
    rng = np.random.default_rng(k)
    clusters = [10.0 ** rng.uniform(-6, 2) * rng.normal(size=(200, 3)) + rng.normal(size=3) for _ in range(9)]
    X = np.concatenate([*clusters, np.repeat(rng.normal(size=(3, 3)), 90, axis=0)])
    targets = rng.permutation(np.concatenate([X[::3], X[::50] + 1e-9, 1e3 * rng.normal(size=(20, 3))]))
    for columns in (1, 3):
        expected = cKDTree(X[:, :columns]).query(targets[:, :columns], np.arange(1, k + 1))[0]
        found = nearest_points(X[:, :columns], targets[:, :columns], k)
        assert (np.diff(np.sort(found, axis=1)) > 0).all()
        apart = np.linalg.norm(X[found][..., :columns] - targets[:, None, :columns], axis=2)
        np.testing.assert_allclose(apart, expected, rtol=1e-12, atol=1e-12)


def test_coordinates_without_distances_are_refused():
    with pytest.raises(ValueError, match="too large, or no numbers"):
        nearest_points(np.full((5, 2), np.nan), np.zeros((1, 2)), 2)


def test_more_of_anything_takes_more_bytes():
    few = {"n": 10**5, "q": 10**5, "p": 3, "fields": 2, "neighbours": 64, "coarse": 32, "workers": 2}

    def bytes_of(sizes):
        keywords = {name: sizes[name] for name in ("neighbours", "coarse", "workers")}
        return least_bytes(*(sizes[name] for name in ("n", "q", "p", "fields")), **keywords).total

    for name, size in few.items():
        assert bytes_of({**few, name: 2 * size}) > bytes_of(few), name
    assert bytes_of(few) > 8 * 3 * 2 * 10**5  # points and targets themselves
