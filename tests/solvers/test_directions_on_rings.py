"""Conjugate gradients on whole grids against dense formulas, and against those on points (T23)."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.runtime import SerialExecutor

from ..grids import LAYOUTS, grid_problem
from ..joined import one_after_another
from ..oracle import assert_close, conjugate_gradients
from .rings import directions, exact_posterior, sweeps

pytestmark = pytest.mark.usefixtures("one_blas_thread")


@one_after_another
@pytest.mark.parametrize("name", [name for name in LAYOUTS if name != "one point"])
def test_conjugate_gradients_are_the_textbook_ones_at_every_point(name):
    """T23: the mean is that of the iterate; the downdate is that of its directions."""
    problem = grid_problem(name)
    field, K, G = problem.field(), problem.K, problem.G
    steps = min(6, problem.n - 1)
    iterates, S = conjugate_gradients(G, field.ravel(), steps)
    states = list(directions(problem.rings, field, iterations=steps))
    for i, state in enumerate(states, start=1):
        taken = S[:, :i]
        assert state.iteration == i
        assert_close(state.mean.ravel(), K @ iterates[i - 1], relative=1e-8)
        seen = K @ taken
        downdate = np.einsum("xi,ix->x", seen, np.linalg.solve(taken.T @ G @ taken, seen.T))
        np.testing.assert_allclose(
            state.variance.ravel(), problem.kernel.variance - downdate, rtol=0.0, atol=1e-9
        )
        residual = np.linalg.norm(field.ravel() - G @ iterates[i - 1]) / np.linalg.norm(field)
        assert state.relative_residual == pytest.approx(residual, rel=1e-6, abs=1e-13)
        if state.status is not cagp.Status.STOPPED:
            break
    assert len(states) == i


def test_conjugate_gradients_on_points_give_the_same_belief():
    problem = grid_problem("irregular latitudes")
    field = problem.field()
    posterior = cagp.condition(
        cagp.Prior(problem.kernel, noise_variance=0.05),
        problem.points,
        field.ravel(),
        problem.points,
        solver=cagp.ConjugateGradient(8),
        executor=SerialExecutor(),
    )
    by_rings = cagp.condition(
        cagp.Prior(problem.kernel, noise_variance=0.05),
        problem.grid,
        field,
        problem.grid,
        solver=cagp.ConjugateGradient(8),
        executor=SerialExecutor(),
    )
    for state, step in zip(by_rings.trace[1:], posterior.trace[1:], strict=True):
        np.testing.assert_allclose(state.mean.ravel(), step.mean, rtol=0.0, atol=1e-9)
        np.testing.assert_allclose(state.variance.ravel(), step.variance, rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("name", ["poles, even Q", "noise that is not", "one point"])
def test_conjugate_gradients_end_at_the_exact_posterior(name):
    """They stop by themselves, and stay above the exact variance: conservative, never below."""
    problem = grid_problem(name)
    field = problem.field()
    mean, exact = exact_posterior(problem.rings, field)
    states = list(directions(problem.rings, field, iterations=10**6))
    assert len(states) <= problem.n
    # n directions are exact, variance included
    assert states[-1].status is (cagp.Status.EXACT if len(states) == problem.n else cagp.Status.CONVERGED)
    assert states[-1].relative_residual <= 1e-14
    assert_close(states[-1].mean, mean, relative=1e-10)
    for state in states:
        assert (state.variance >= exact - 1e-12 * problem.kernel.variance).all()


def test_a_field_of_zeros_is_solved_at_once():
    problem = grid_problem()
    (state,) = directions(problem.rings, np.zeros(problem.grid.shape), iterations=5)
    assert state.iteration == 0
    assert state.status is cagp.Status.CONVERGED
    assert state.relative_residual == 0.0
    assert (state.mean == 0.0).all()
    assert (state.variance == problem.kernel.variance).all()
    (swept,) = sweeps(problem.rings, np.zeros(problem.grid.shape), iterations=1)
    assert (swept.mean == 0.0).all()


def test_units_of_the_field_scale_the_mean_and_nothing_else():
    problem = grid_problem("noise that is not")
    for solve in (sweeps, directions):
        for scale in (1e-100, 1e100):
            states = solve(problem.rings, problem.field(), iterations=3)
            scaled = solve(problem.rings, scale * problem.field(), iterations=3)
            for state, other in zip(states, scaled, strict=True):
                assert_close(other.mean / scale, state.mean, relative=1e-12)
                assert_close(other.variance, state.variance, relative=1e-12)
