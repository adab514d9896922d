"""Conjugate gradients with any preconditioner: what a step minimises, and where it stops."""

import numpy as np
import pytest

from cagp_dist.krylov import Preconditioned, conjugate_gradients

from .oracle import assert_close

N = 12


@pytest.fixture
def system():
    """G (n, n), right-hand sides in rows, and a preconditioner that is not symmetric."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(N, N))
    sweep = np.linalg.inv(np.tril(root @ root.T + np.eye(N)))
    return root @ root.T + np.eye(N), rng.normal(size=(4, N)), sweep


def solved(system, iterations, *, image=False, **settings):
    G, right, sweep = system

    def precondition(residual):
        fresh = residual @ sweep.T
        return Preconditioned(fresh, fresh @ G if image else None)

    return conjugate_gradients(
        lambda rows: rows @ G,
        right,
        precondition=precondition,
        iterations=iterations,
        **{"tolerance": 1e-12, **settings},
    )


def test_a_step_minimises_the_energy_in_the_plane_of_the_fresh_direction_and_the_last_step(system):
    G, right, sweep = system
    values = [solved(system, iterations).value for iterations in range(5)]
    for k in range(1, 5):
        for row in range(len(right)):
            residual = right[row] - G @ values[k - 1][row]
            plane = [sweep @ residual]
            if k > 1:
                plane.append(values[k - 1][row] - values[k - 2][row])
            plane = np.stack(plane, axis=1)
            best = plane @ np.linalg.solve(plane.T @ G @ plane, plane.T @ residual)
            assert_close(values[k][row] - values[k - 1][row], best, relative=1e-9)


@pytest.mark.parametrize("image", [False, True])
def test_it_ends_at_the_tolerance_and_says_how_far_it_came(system, image):
    G, right, _ = system
    found = solved(system, 200, image=image, tolerance=1e-8)
    assert found.ok
    assert found.products < 200
    missed = np.linalg.norm(right - found.value @ G, axis=1) / np.linalg.norm(right, axis=1)
    assert_close(found.relative_residual, missed, relative=1e-6)
    assert missed.max() <= 1.1e-8
    assert not solved(system, 1, tolerance=1e-8).ok


def test_a_solution_to_begin_with_is_kept(system):
    G, right, _ = system
    exact = np.linalg.solve(G, right.T).T
    found = solved(system, 50, start=exact, tolerance=1e-8)
    assert found.products == 0
    np.testing.assert_array_equal(found.value, exact)


def test_nothing_is_asked_of_a_row_of_zeros(system):
    G, right, sweep = system
    right = right.copy()
    right[2] = 0.0
    found = solved((G, right, sweep), 100, tolerance=1e-8)
    assert found.ok
    np.testing.assert_array_equal(found.value[2], np.zeros(N))
