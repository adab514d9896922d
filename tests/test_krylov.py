"""Conjugate gradients for several right-hand sides against dense solves, with any preconditioner."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cagp_dist as cagp
from cagp_dist.errors import NumericalError
from cagp_dist.krylov import conjugate_gradients

from .oracle import assert_close, block_stage, kernel_matrix

pytestmark = pytest.mark.usefixtures("one_blas_thread")

Array = np.ndarray
N, ROWS = 60, 4


def matrix(n: int = N, *, condition: float = 1e3, seed: int = 0) -> Array:
    """A positive definite matrix with entries of both signs and this condition number."""
    basis, _ = np.linalg.qr(np.random.default_rng([seed, n]).normal(size=(n, n)))
    return (basis * np.geomspace(1.0, condition, n)) @ basis.T


def right_sides(n: int = N, rows: int = ROWS, *, seed: int = 1) -> Array:
    return np.random.default_rng([seed, n]).normal(size=(rows, n))


def sweep_of(G: Array):
    """A forward Gauss-Seidel sweep: not symmetric."""
    L_inverse = np.linalg.inv(np.tril(G))
    return lambda rows: rows @ L_inverse.T


PRECONDITIONERS = {
    "none": lambda G: np.copy,
    "diagonal": lambda G: lambda rows: rows / np.diag(G),
    "inverse": lambda G: lambda rows: np.linalg.solve(G, rows.T).T,
    "a sweep": sweep_of,
}
every_preconditioner = pytest.mark.parametrize(
    "precondition", PRECONDITIONERS.values(), ids=PRECONDITIONERS.keys()
)


def solve(G: Array, right: Array, precondition=np.copy, **settings):
    """The solution, and how many products and applications it took."""
    calls = {"product": 0, "precondition": 0}

    def product(rows: Array) -> Array:
        calls["product"] += 1
        return rows @ G

    def counted(rows: Array) -> Array:
        calls["precondition"] += 1
        return precondition(rows)

    settings = {"tolerance": 1e-12, "iterations": 500, **settings}
    return conjugate_gradients(product, right, precondition=counted, **settings), calls


@every_preconditioner
def test_it_is_the_dense_solve(precondition):
    G, right = matrix(), right_sides()
    solution, calls = solve(G, right, precondition(G))
    assert solution.ok
    assert solution.value.shape == solution.residual.shape == right.shape
    assert_close(solution.value, np.linalg.solve(G, right.T).T, relative=1e-9)
    relative = np.linalg.norm(right - solution.value @ G, axis=1) / np.linalg.norm(right, axis=1)
    np.testing.assert_allclose(solution.relative_residual, relative, rtol=1e-12)
    assert solution.products == calls["precondition"]


@given(n=st.integers(1, 30), rows=st.integers(0, 5), seed=st.integers(0, 10))
def test_any_shape(n, rows, seed):
    G, right = matrix(n, condition=100.0, seed=seed), right_sides(n, rows, seed=seed)
    for precondition in PRECONDITIONERS.values():
        solution, _ = solve(G, right, precondition(G))
        assert solution.ok
        assert_close(solution.value, np.linalg.solve(G, right.T).T, relative=1e-9)


@pytest.mark.parametrize("iterations", [1, 2, 5, 12])
def test_iterates_are_those_of_the_textbook(iterations):
    """Without a preconditioner, column by column: the short recurrence by ratios of residual norms."""
    G, right = matrix(), right_sides()
    solution, _ = solve(G, right, iterations=iterations)
    assert solution.products == iterations
    assert not solution.ok
    for value, b in zip(solution.value, right, strict=True):
        v, r = np.zeros(N), b.copy()
        d = r.copy()
        for _ in range(iterations):
            step = (r @ r) / (d @ G @ d)
            v, after = v + step * d, r - step * (G @ d)
            d, r = after + (after @ after) / (r @ r) * d, after
        assert_close(value, v)


@every_preconditioner
def test_a_step_is_the_best_in_its_plane(precondition):
    """In the plane of the preconditioned residual and the last step none leaves an error of less energy."""
    G, right = matrix(), right_sides()
    apply = precondition(G)
    exact = np.linalg.solve(G, right.T).T
    values = [np.zeros_like(right)]
    for iterations in (1, 2, 3, 4):
        values.append(solve(G, right, apply, iterations=iterations)[0].value)
    for m in (1, 2, 3):
        before, last, after = values[m], values[m] - values[m - 1], values[m + 1]
        fresh = apply(right - before @ G)
        for row in range(ROWS):
            plane = np.stack([fresh[row], last[row]], axis=1)
            scale = np.linalg.norm(plane, axis=0)
            plane = plane / np.where(scale > 0.0, scale, 1.0)
            error = exact[row] - after[row]
            energy = np.sqrt(max((exact[row] - before[row]) @ G @ (exact[row] - before[row]), 0.0))
            bound = 1e-9 * (energy + 1e-3) * np.sqrt(np.einsum("ij,ik,kj->j", plane, G, plane))
            assert (np.abs(plane.T @ G @ error) <= bound).all()


def test_sweeps_are_accelerated():
    """A block sweep is not symmetric; as a preconditioner it takes fewer sweeps than sweeps alone."""
    X = np.random.default_rng(0).normal(size=(400, 3))
    X /= np.linalg.norm(X, axis=1)[:, None]
    X = X[cagp.space_filling_order(X, block_size=50)]
    G = kernel_matrix(cagp.Matern32(0.5), X, X) + 0.02 * np.eye(400)
    right = right_sides(400) @ np.linalg.cholesky(G).T
    L_inverse = block_stage(G, 50)

    def sweep(rows: Array) -> Array:
        return rows @ L_inverse.T

    solution, _ = solve(G, right, sweep, tolerance=1e-6)
    assert solution.ok
    left, alone = right.copy(), 0
    while (np.linalg.norm(left, axis=1) > 1e-6 * np.linalg.norm(right, axis=1)).any():
        left, alone = left - sweep(left) @ G, alone + 1
    assert solution.products < 0.5 * alone


@pytest.mark.parametrize("tolerance", [1e-2, 1e-5, 1e-9])
@every_preconditioner
def test_the_tolerance_is_met_and_not_overdone(precondition, tolerance):
    G, right = matrix(), right_sides() * np.geomspace(1e-8, 1e8, ROWS)[:, None]
    solution, _ = solve(G, right, precondition(G), tolerance=tolerance)
    assert solution.ok
    assert (solution.relative_residual <= 1.01 * tolerance).all()
    assert solution.tolerance == tolerance
    fewer, _ = solve(G, right, precondition(G), tolerance=tolerance, iterations=solution.products - 1)
    assert (fewer.relative_residual > tolerance).any()


def test_a_row_that_is_done_stays_as_it_is():
    """Each row stops by itself: alone it gets the same value."""
    G, right = matrix(condition=10.0), right_sides()
    right[0] = np.linalg.eigh(G)[1][:, 3]  # solved by one step
    together, _ = solve(G, right, tolerance=1e-3)
    for row in range(ROWS):
        alone, _ = solve(G, right[row : row + 1], tolerance=1e-3)
        assert_close(together.value[row], alone.value[0], relative=1e-10)
        assert alone.products <= (1 if row == 0 else together.products)


@every_preconditioner
def test_rows_of_zeros_are_solved_by_zero(precondition):
    G, right = matrix(), right_sides()
    right[[0, 2]] = 0.0
    solution, _ = solve(G, right, precondition(G))
    assert (solution.value[[0, 2]] == 0.0).all()
    assert (solution.relative_residual[[0, 2]] == 0.0).all()
    assert_close(solution.value, np.linalg.solve(G, right.T).T, relative=1e-9)
    nothing, calls = solve(G, np.zeros((2, N)), precondition(G))
    assert nothing.ok
    assert not nothing.value.any()
    assert calls == {"product": 0, "precondition": 0}


def test_what_is_not_reached_is_told():
    G, right = matrix(condition=1e8), right_sides()
    solution, calls = solve(G, right, iterations=3)
    assert solution.products == calls["precondition"] == 3
    assert not solution.ok
    assert solution.relative_residual.max() > 1e-3


def test_the_residual_is_that_of_the_solution_or_of_the_recurrence():
    G, right = matrix(), right_sides()
    recomputed, with_one_more = solve(G, right, tolerance=1e-6)
    followed, calls = solve(G, right, tolerance=1e-6, recompute=False)
    assert with_one_more["product"] == calls["product"] + 1
    np.testing.assert_array_equal(recomputed.value, followed.value)
    norms = np.linalg.norm(right, axis=1)
    np.testing.assert_allclose(followed.relative_residual, np.linalg.norm(followed.residual, axis=1) / norms)
    assert_close(followed.residual, right - followed.value @ G, relative=1e-6)


def test_right_hand_sides_are_left_alone():
    G, right = matrix(), right_sides()
    right.flags.writeable = False
    assert solve(G, right)[0].ok


@pytest.mark.parametrize("size", [1e-320, 1e-170, 1e-20, 1e160, 1e300])
@every_preconditioner
def test_right_hand_sides_of_any_size_are_solved(precondition, size):
    """Rows of different sizes, whose squares are zero or infinite in floating point."""
    G, right = matrix(), np.round(right_sides(), 3)
    scale = np.array([size, 1.0, size, 1.0])[:, None]
    solution, _ = solve(G, scale * right, precondition(G))
    assert solution.ok
    assert (np.abs(solution.residual) <= 1e-11 * scale).all()
    if size > 1e-300:
        assert_close(solution.value / scale, np.linalg.solve(G, right.T).T, relative=1e-9)


def test_a_power_of_two_changes_no_bit():
    G, right = matrix(), right_sides()
    plain, scaled = solve(G, right)[0], solve(G, 2.0**500 * right)[0]
    np.testing.assert_array_equal(scaled.value, 2.0**500 * plain.value)
    np.testing.assert_array_equal(scaled.relative_residual, plain.relative_residual)


def test_zeros_are_solved_by_zero():
    G, right = matrix(), right_sides()
    right[1] = 0.0
    for recompute in (False, True):
        solution, _ = solve(G, right, recompute=recompute)
        assert solution.ok
        assert not solution.value[1].any()
        assert not solution.residual[1].any()
        assert solution.relative_residual[1] == 0.0
        assert_close(solution.value, np.linalg.solve(G, right.T).T, relative=1e-9)


@pytest.mark.parametrize(
    ("sign", "precondition"),
    [(1.0, lambda rows: np.zeros_like(rows)), (-1.0, np.copy)],
    ids=["a preconditioner of zeros", "a negative definite matrix"],
)
def test_it_ends_where_no_row_can_move(sign, precondition):
    solution, calls = solve(sign * matrix(), right_sides(), precondition)
    assert solution.products == calls["precondition"] == 1
    assert not solution.ok
    assert not solution.value.any()
    np.testing.assert_array_equal(solution.relative_residual, 1.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_are_an_error(bad):
    G, right = matrix(), right_sides()
    wrong = right.copy()
    wrong[1, 2] = bad
    with np.errstate(invalid="ignore"), pytest.raises(NumericalError, match="met values that are NaN or inf"):
        solve(G, wrong)
    with np.errstate(invalid="ignore"), pytest.raises(NumericalError, match="the preconditioner made of it"):
        solve(G, right, lambda rows: np.full_like(rows, bad))


def test_memory_is_what_is_said(traced):
    """64 n r bytes: eight arrays, those that the product and the preconditioner return included.

    Of 100 MB, so that what other threads of the process allocate meanwhile is far below 2 %.
    """
    n = 400_000
    diagonal, right = np.linspace(1.0, 50.0, n), right_sides(n)
    _, peak = traced(
        lambda: conjugate_gradients(
            lambda rows: rows * diagonal,
            right,
            precondition=lambda rows: rows / (1.0 + diagonal),
            tolerance=1e-8,
            iterations=5,
        )
    )
    assert 0.8 * 64 * right.size < peak < 1.02 * 64 * right.size
