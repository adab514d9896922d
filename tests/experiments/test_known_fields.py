"""Fields drawn from a known prior: exact, by conjugate gradients, and what every iteration states."""

import numpy as np
import pytest

import cagp_dist as cagp

from .scripts import script

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def split():
    return script("split").Split.make(14, np.random.default_rng(0), held_out=20)


@pytest.fixture(scope="module")
def values(split):
    return split.draw(np.random.default_rng(1), 1)[1][0]


def test_split_keeps_the_problem_the_same_on_coarser_grids(split):
    assert split.rings.grid.shape == (14, 28)
    assert len(split.test) == 20
    assert len(split.train) == 14 * 28 - 20
    assert split.prior.kernel.lengthscale == pytest.approx(0.041 * 180 / 14)


def test_held_out_points_are_drawn_by_area():
    grid_rows = []
    for seed in range(40):
        made = script("split").Split.make(12, np.random.default_rng(seed), held_out=20)
        grid_rows.append(made.rings.grid.latitude_degrees[np.nonzero(~made.observed)[0]])
    sine = np.sin(np.deg2rad(np.concatenate(grid_rows)))
    # uniform on the sphere: mean square of the sine 1/3, standard error sqrt(4/45/800) = 0.011; drawn from
    # all points of the grid alike it would be 1/2
    assert abs(np.mean(sine**2) - 1.0 / 3.0) < 0.05


def test_exact_posterior_is_that_of_cholesky(split, values):
    exact = split.exact(values)
    dense = cagp.condition(
        split.prior,
        split.train,
        values[split.observed],
        split.test,
        solver=cagp.Cholesky(),
        covariance="full",
    )
    np.testing.assert_allclose(exact.mean, dense.mean, atol=1e-9)
    np.testing.assert_allclose(exact.covariance, dense.covariance, atol=1e-9)


def test_conjugate_gradients_of_the_grid_are_those_of_condition(split, values):
    posterior = cagp.condition(
        split.prior,
        split.train,
        values[split.observed],
        split.test,
        solver=cagp.ConjugateGradient(12),
        covariance="full",
    )
    states = list(split.conjugate_gradients(values, iterations=12))
    for (mean, downdate), step in zip(states, posterior.trace[1:], strict=True):
        np.testing.assert_allclose(mean, step.mean, atol=1e-9)
        np.testing.assert_allclose(
            split.prior.kernel.variance - downdate.diagonal(), step.variance, atol=1e-9
        )
    prior = split.prior.kernel(split.test, split.test)
    np.testing.assert_allclose(prior - states[-1][1], posterior.covariance, atol=1e-9)


def test_held_out_scores_every_iteration(split, values):
    rows, seconds = script("held_out").solve(split, values)
    assert {name: len(found) for name, found in rows.items()} == {
        "Gauss-Seidel": 20,
        "block Gauss-Seidel": 5,
        "conjugate gradients": 80,
        "exact": 1,
    }
    assert min(seconds.values()) > 0.0
    sweeps = rows["Gauss-Seidel"]
    stated = [row.stated for row in sweeps]
    assert stated == sorted(stated, reverse=True)  # more sweeps never state more
    # chance lets 20 correlated squares differ from their variance, but not by a factor of two in their root
    assert 0.5 < sweeps[0].actual / sweeps[0].stated < 2.0
    [exact] = rows["exact"]
    assert exact.actual == exact.stated == 0.0
    assert sweeps[0].actual > 10.0 * sweeps[-1].actual
    first, twentieth = (sweep.score.nll - exact.score.nll for sweep in (sweeps[0], sweeps[-1]))
    assert abs(twentieth) < 0.25 * first
    last = rows["conjugate gradients"][-1]
    assert last.actual < 0.2 * last.stated  # conservative


def test_simulation_passes_what_is_calibrated_and_fails_conjugate_gradients(split, monkeypatch):
    simulation = script("simulation")
    monkeypatch.setattr(simulation, "DIRECTIONS", (5, 20))
    found = {
        (errors.solver, errors.iteration): errors
        for errors in simulation.simulate(split, np.random.default_rng(2), fields=40)
    }
    for key, errors in found.items():
        assert errors.projected.shape == (40,)
        assert errors.whitened.shape == (20 * 40,)
        deviation = np.sqrt(2.0 * 800) * (np.sqrt(np.mean(errors.whitened**2)) - 1.0)
        if key[0] == "conjugate gradients":
            assert deviation < -3.0, key
        else:
            assert abs(deviation) < 4.0, key
            assert np.abs(np.mean(errors.projected)) < 4.0 / np.sqrt(40.0), key
    everywhere = np.ones(20, dtype=bool)
    ratio, error = found["Gauss-Seidel", 1].ratio(everywhere)
    assert abs(ratio - 1.0) < 4.0 * error
    ratio, error = found["conjugate gradients", 20].ratio(everywhere)
    assert ratio < 1.0 - 10.0 * error


def test_means_on_the_whole_grid_pass_through_those_at_the_held_out_points(split, values):
    grid, seen = split.rings.grid, np.where(split.observed, values, np.nan)
    everywhere = cagp.posterior_mean(split.prior, grid, seen, grid, solver=cagp.Rings())
    found = dict(script("smooth_means").means(split, values, everywhere))
    exact = split.exact(values)
    held_out = ~split.observed
    np.testing.assert_allclose(found["exact", 0][held_out], exact.mean, atol=1e-6)
    posterior = cagp.condition(
        split.prior, split.train, values[split.observed], split.test, solver=cagp.GaussSeidel(2)
    )
    np.testing.assert_allclose(found["Gauss-Seidel", 2][held_out], posterior.mean, atol=1e-9)
    states = list(split.conjugate_gradients(values, iterations=20))
    np.testing.assert_allclose(found["conjugate gradients", 20][held_out], states[-1][0], atol=1e-9)


def test_whole_grid_states_what_it_does_not_know():
    whole_grid = script("whole_grid")
    truth, observed = whole_grid.draw_field(61, 0)
    judge, exact = whole_grid.run_exact(61, truth, observed)
    assert exact.actual == exact.stated == 0.0
    assert exact.coverage == pytest.approx(0.9, abs=0.05)
    rows = {case: whole_grid.run_case(case, 61, observed, judge) for case in whole_grid.cases()}
    for case, found in rows.items():
        assert len(found) == case.iterations
        assert found[-1].actual < found[0].actual
        assert found[0].seconds > 0.0
        if case.rings_per_block:
            assert 0.8 < found[0].actual / found[0].stated < 1.25, case
        else:
            assert found[40].actual < 0.7 * found[40].stated


def test_alone_returns_the_result_and_the_peak_memory_of_another_process():
    result, gibibytes = script("whole_grid").alone(np.ones, (1 << 25,))
    assert result.sum() == 1 << 25
    assert 0.25 < gibibytes < 4.0
