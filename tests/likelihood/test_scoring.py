"""Fisher scoring: the expected information against its dense formula, and fits against those of a climb."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.likelihood import fit as fit_module
from cagp_dist.likelihood import search, uncertainty
from cagp_dist.likelihood.bounds import make_bounds
from cagp_dist.likelihood.exact.profile_likelihood import Counter, ProfileLikelihood
from cagp_dist.likelihood.exact.ring_likelihood import RingLikelihood
from cagp_dist.likelihood.observed import Gridded
from cagp_dist.runtime import SerialExecutor

from ..oracle import kernel_matrix

pytestmark = pytest.mark.usefixtures("one_blas_thread")

LIMIT = {"executor": SerialExecutor(), "memory_limit_bytes": 2**30}
WAYS = {"mean": 0.0, "starts": 1, "executor": SerialExecutor()}
GRIDS = {"mirrored": np.linspace(-80.0, 80.0, 7), "not mirrored": np.array([-70.0, -31.0, 4.0, 5.0, 60.0])}


def expected(family, X, lengthscale, variance, ratio, fields):
    """``T / 2 tr(G^-1 dG G^-1 dG')`` by log (lengthscale, variance, ratio), dK by differences."""
    h = 1e-5
    up, down = (kernel_matrix(family(lengthscale * np.exp(s), variance), X, X) for s in (h, -h))
    noise = ratio * variance * np.eye(len(X))
    G = kernel_matrix(family(lengthscale, variance), X, X) + noise
    parts = [np.linalg.solve(G, d) for d in ((up - down) / (2.0 * h), G, noise)]
    return np.array([[0.5 * fields * np.einsum("ij,ji->", a, b) for a in parts] for b in parts])


@pytest.mark.parametrize("latitude", GRIDS.values(), ids=GRIDS)
@pytest.mark.parametrize("family", [cagp.Matern12, cagp.Matern52])
def test_expected_information_by_rings_is_the_dense_one(latitude, family):
    grid, numbers = cagp.LatLonGrid(latitude, 9), (0.5, 0.3)
    fields = np.random.default_rng(0).normal(size=(2, *grid.shape))
    found = RingLikelihood(family, grid, fields, curved=True, **LIMIT).evaluate(*numbers)
    plain = RingLikelihood(family, grid, fields, **LIMIT).evaluate(*numbers)
    assert plain.squares is None
    np.testing.assert_array_equal(found.gradient(2.0), plain.gradient(2.0))
    np.testing.assert_allclose(
        found.expected_information(), expected(family, grid.points, 0.5, 2.0, 0.3, 2), rtol=1e-7
    )


def fields_of(case):
    """A grid and a field: of its prior, of no prior, of hardly any noise."""
    grid = cagp.LatLonGrid(np.linspace(-86.0, 86.0, 24), 48)
    rings = cagp.RingGram(grid, cagp.Matern32(0.3, 4.0), noise_variance=1e-6 if case == "noiseless" else 0.2)
    field = rings.sample(np.random.default_rng(1), noise=True)
    return grid, np.exp(field / 3.0) if case == "skewed" else field


def logarithms(result):
    return np.log(
        [result.prior.kernel.lengthscale, result.prior.kernel.variance, result.prior.noise_variance]
    )


@pytest.mark.parametrize("case", ["its prior", "skewed", "noiseless"])
def test_scoring_ends_where_a_climb_does(case, monkeypatch):
    """Within a tenth of a standard error, in fewer evaluations on all points; standard errors within a third.

    The expected information is that of a field of the model, the climb's that of this field.
    """
    monkeypatch.setattr(fit_module, "FIRST_RING_POINTS", 200)
    grid, field = fields_of(case)
    seen = {True: [], False: []}
    results = {}
    for scoring in (True, False):
        if not scoring:
            monkeypatch.setattr(fit_module, "_has_squares", lambda *_, **__: False)
        results[scoring] = cagp.fit(cagp.Matern32, grid, field, progress=seen[scoring].append, **WAYS)
    scored, climbed = results[True], results[False]
    assert scored.status == climbed.status
    assert scored.at_bound == climbed.at_bound
    # beyond a factor of 20 a number is not determined
    free = np.sqrt(np.diag(climbed.log_covariance)) < uncertainty.LOOSE
    assert free.sum() == (2 if case == "noiseless" else 3)
    error = np.sqrt(np.diag(climbed.log_covariance)[free])
    assert (np.abs(logarithms(scored) - logarithms(climbed))[free] <= 0.1 * error).all()
    assert np.sqrt(np.diag(scored.log_covariance)[free]) == pytest.approx(error, rel=1.0 / 3.0)
    # a noise that is not there is left where the likelihood has so much left to gain by it
    left = search.LEVEL * grid.size**0.25 if case == "noiseless" else 0.01
    assert scored.log_likelihood == pytest.approx(climbed.log_likelihood, abs=left)
    on_all = {key: sum(state.points == grid.size for state in states) for key, states in seen.items()}
    assert on_all[True] < on_all[False]


def test_a_noise_that_is_not_there_takes_few_steps():
    """A noise of no effect goes to none at once, and the others with it: three evaluations, not five."""
    grid = cagp.LatLonGrid(np.linspace(-86.0, 86.0, 96), 192)
    rings = cagp.RingGram(grid, cagp.Matern12(0.3, 4.0), noise_variance=1e-9)
    fields = rings.sample(np.random.default_rng(1), noise=True)[None]
    likelihood = RingLikelihood(cagp.Matern12, grid, fields, curved=True, **LIMIT)
    bounds = make_bounds(None, Gridded(grid, fields).scales())
    profile = ProfileLikelihood(likelihood, bounds, Counter(None), curved=True)
    place, there = search.score(profile, np.log([0.25, 2e-4]))
    assert there
    assert profile.counter.evaluations <= 3
    assert search.climb(profile, place.x).log_likelihood < place.log_likelihood + 0.1


def test_steps_are_the_best_within_reach():
    """Of a quadratic form: held numbers are at the end of their reach, the slope of the others is zero."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        root = rng.normal(size=(4, 4))
        matrix, slope, reach = root @ root.T + 0.1 * np.eye(4), rng.normal(size=4), np.full(4, 0.3)
        step = search._within(reach, np.linalg.solve(matrix, slope), slope, matrix)
        held = np.abs(step) == reach
        assert (np.abs(step) <= reach).all()
        np.testing.assert_allclose((slope - matrix @ step)[~held], 0.0, atol=1e-9)
        assert slope @ step - 0.5 * step @ matrix @ step > 0.0


def test_many_points_are_scored_by_way_of_some_of_them(monkeypatch):
    monkeypatch.setattr(fit_module, "FIRST_VECCHIA_POINTS", (96, 250))
    X = np.random.default_rng(0).uniform(size=(600, 2)) * 2.0
    G = kernel_matrix(cagp.Matern32(0.3, 4.0), X, X) + 0.2 * np.eye(len(X))
    y = np.linalg.cholesky(G) @ np.random.default_rng(1).normal(size=len(X))
    points = []
    ways = {"method": "vecchia", **WAYS}
    scored = cagp.fit(cagp.Matern32, X, y, progress=lambda state: points.append(state.points), **ways)
    assert sorted(set(points)) == [88, 216, 600]  # whole cells
    assert points.count(600) < 5
    monkeypatch.setattr(fit_module, "_has_squares", lambda *_, **__: False)
    climbed = cagp.fit(cagp.Matern32, X, y, **ways)
    error = np.sqrt(np.diag(climbed.log_covariance))
    assert (np.abs(logarithms(scored) - logarithms(climbed)) <= 0.1 * error).all()


def test_where_scoring_does_not_arrive_a_climb_takes_over(monkeypatch):
    monkeypatch.setattr(fit_module, "FIRST_RING_POINTS", 200)
    grid, field = fields_of("its prior")
    scored = cagp.fit(cagp.Matern32, grid, field, **WAYS)
    monkeypatch.setattr(search, "MOST_ROOT_STEPS", 0)
    climbed = cagp.fit(cagp.Matern32, grid, field, **WAYS)
    assert climbed.status.ok
    error = np.sqrt(np.diag(climbed.log_covariance))
    assert (np.abs(logarithms(scored) - logarithms(climbed)) <= 0.1 * error).all()


def test_scoring_ends_on_a_bound():
    grid, field = fields_of("its prior")
    data = Gridded(grid, field[None])
    bounds = make_bounds({"lengthscale": (0.01, 0.2)}, data.scales())
    likelihood = RingLikelihood(cagp.Matern32, grid, field[None], curved=True, **LIMIT)
    profile = ProfileLikelihood(likelihood, bounds, Counter(None), curved=True)
    place, there = search.score(profile, np.log([0.1, 0.2]))
    assert there
    assert np.exp(place.x[0]) == pytest.approx(0.2, rel=1e-12)
    assert place.slope[0] > 0.0
    assert search.score(profile, place.x)[0].x == pytest.approx(place.x, abs=1e-3)
