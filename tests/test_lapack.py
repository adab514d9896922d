"""Stacks of small matrices against NumPy, and what they refuse: they write where they are told to."""

import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cagp_dist import lapack
from cagp_dist.compiled import complete_rows
from cagp_dist.errors import NumericalError
from cagp_dist.lapack import (
    STRIP,
    cholesky_in_place,
    inverse_diagonals,
    multiply_lower,
    multiply_symmetric,
    solve_lower,
)
from cagp_dist.runtime import single_threaded_blas

from .joined import one_after_another
from .pairwise import pairwise

pytestmark = pytest.mark.usefixtures("one_blas_thread")

SIZES = [1, 2, 5, 31]


def positive_definite(count, m, seed=0):
    A = np.random.default_rng([seed, count, m]).normal(size=(count, m, m + 5))
    return A @ A.transpose(0, 2, 1) + np.eye(m)


def factors(count, m):
    """Cholesky factors, with what must not be read above the diagonal."""
    lower = np.linalg.cholesky(positive_definite(count, m))
    return lower, lower + np.triu(np.full((m, m), np.nan), 1)


def columns_for(count, m, r):
    return np.random.default_rng([count, m, r]).normal(size=(count, m, r))


@pytest.mark.parametrize("m", SIZES)
@pytest.mark.parametrize("count", [1, 4])
def test_cholesky_reads_and_writes_the_lower_triangle_alone(count, m):
    matrices = positive_definite(count, m)
    above = np.triu(np.full((m, m), 777.0), 1)
    stack = np.tril(matrices) + above
    cholesky_in_place(stack)
    np.testing.assert_allclose(np.tril(stack), np.linalg.cholesky(matrices), rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(np.triu(stack, 1), np.broadcast_to(above, stack.shape))


@pytest.mark.parametrize("m", SIZES)
@pytest.mark.parametrize("count", [1, 4])
def test_inverses_read_and_write_the_lower_triangle_alone(count, m):
    _, stored = factors(count, m)
    lapack.invert_in_place(stored)
    expected = np.linalg.inv(positive_definite(count, m))
    np.testing.assert_allclose(np.tril(stored), np.tril(expected), rtol=1e-10, atol=1e-14)
    assert np.isnan(stored[:, *np.triu_indices(m, 1)]).all()
    lapack.mirror_lower(stored[0])
    np.testing.assert_array_equal(stored[0], stored[0].T)


def test_a_factor_with_a_zero_on_its_diagonal_has_no_inverse():
    stack = np.stack([np.eye(3), np.diag([1.0, 0.0, 1.0])])
    with pytest.raises(NumericalError) as refusal:
        lapack.invert_in_place(stack)
    assert refusal.value.key == "not-positive-definite"


def test_a_large_matrix_is_mirrored_strip_by_strip(monkeypatch):
    monkeypatch.setattr(lapack, "BLOCK", 3)
    matrix = np.arange(64.0).reshape(8, 8)
    expected = np.tril(matrix) + np.tril(matrix, -1).T
    lapack.mirror_lower(matrix)
    np.testing.assert_array_equal(matrix, expected)


@one_after_another
@pytest.mark.parametrize(
    ("m", "r", "transposed"), pairwise({"m": SIZES, "r": [1, 2, 7], "transposed": [False, True]})
)
def test_solves_and_products_with_triangles(m, r, transposed):
    lower, stored = factors(3, m)
    L = lower.transpose(0, 2, 1) if transposed else lower
    columns = columns_for(3, m, r)
    product = columns.copy()
    multiply_lower(stored, product, transposed=transposed)
    np.testing.assert_allclose(product, L @ columns, rtol=1e-12, atol=1e-12)
    solved = columns.copy()
    solve_lower(stored, solved, transposed=transposed)
    np.testing.assert_allclose(solved, np.linalg.solve(L, columns), rtol=1e-10, atol=1e-12)


@one_after_another
@pytest.mark.parametrize(("m", "r"), pairwise({"m": SIZES, "r": [1, 7]}))
def test_products_with_symmetric_matrices_read_lower_triangles(m, r):
    square, columns = positive_definite(3, m), columns_for(3, m, r)
    stored = np.tril(square) + np.triu(np.full((m, m), np.nan), 1)
    np.testing.assert_allclose(multiply_symmetric(stored, columns), square @ columns, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("m", [1, 2, STRIP - 1, STRIP, STRIP + 1, 2 * STRIP + 7])
def test_diagonals_of_inverses(m):
    lower, stored = factors(2, m)
    before = stored.copy()
    expected = np.diagonal(np.linalg.inv(lower @ lower.transpose(0, 2, 1)), axis1=1, axis2=2)
    np.testing.assert_allclose(inverse_diagonals(stored), expected, rtol=1e-11)
    np.testing.assert_array_equal(stored, before)


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("below", [0, 3])
def test_rows_are_completed_by_lapack_as_by_loops(repeated, below):
    """Also where a row is that of another one: it is left out."""
    m = 12
    square = positive_definite(1, m)[0]
    if repeated:
        square[7], square[:, 7] = square[3], square[3]
        square[7, 7] = square[3, 3]
    table = np.concatenate(
        [np.tril(square) + np.triu(np.full((m, m), np.nan), 1), columns_for(1, below, m)[0]]
    )
    expected, inverses, found = table.copy(), np.empty(m), np.empty(m)
    left_out = complete_rows(expected, 1e-12, inverses)
    assert lapack.complete_long_rows(table, 1e-12, found) == left_out == repeated
    np.testing.assert_allclose(found, inverses, rtol=1e-12)
    lower = np.tril(np.ones((m + below, m), dtype=bool))
    np.testing.assert_allclose(table[lower], expected[lower], rtol=1e-10, atol=1e-12)


@given(m=st.integers(1, 20), strip=st.integers(1, 25))
def test_strips_of_any_width_give_the_same_diagonals(m, strip):
    lower, stored = factors(2, m)
    expected = np.diagonal(np.linalg.inv(lower @ lower.transpose(0, 2, 1)), axis1=1, axis2=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lapack, "STRIP", strip)
        np.testing.assert_allclose(inverse_diagonals(stored), expected, rtol=1e-11)


@pytest.mark.parametrize(("count", "m"), [(0, 3), (2, 0), (0, 0)])
def test_empty_stacks(count, m):
    cholesky_in_place(np.zeros((count, m, m)))
    assert inverse_diagonals(np.zeros((count, m, m))).shape == (count, m)
    for apply in (solve_lower, multiply_lower):
        columns = np.zeros((count, m, 2))
        apply(np.zeros((count, m, m)), columns)


@pytest.mark.parametrize("apply", [solve_lower, multiply_lower])
def test_no_columns(apply):
    columns = np.zeros((2, 3, 0))
    apply(positive_definite(2, 3), columns)
    assert columns.shape == (2, 3, 0)


@pytest.mark.parametrize(("which", "minor"), [(0, 1), (2, 4), (1, 5)])
def test_a_matrix_that_is_not_positive_definite_is_named(which, minor):
    stack = positive_definite(3, 5)
    stack[which, minor - 1, minor - 1] = -1.0
    text = rf"matrix {which} of a stack of 5 x 5 ones is not positive definite \(minor {minor}\)"
    with pytest.raises(NumericalError, match=text + r"\. Points may coincide .* raise noise_variance"):
        cholesky_in_place(stack)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_matrix_that_is_not_finite_is_not_positive_definite(value):
    stack = positive_definite(2, 4)
    stack[1, 2, 1] = value
    with pytest.raises(NumericalError, match=r"matrix 1 of a stack .*(not positive|NaN or infinity)"):
        cholesky_in_place(stack)


WRONG = {
    "transposed": lambda stack: stack.transpose(0, 2, 1),
    "every other": lambda stack: np.repeat(stack, 2, axis=0)[::2],
    "part of a matrix": lambda stack: np.pad(stack, ((0, 0), (0, 1), (0, 1)))[:, :3, :3],
    "single precision": lambda stack: stack.astype(np.float32),
    "integers": lambda stack: stack.astype(np.int64),
    "other byte order": lambda stack: stack.astype(stack.dtype.newbyteorder()),
}


@pytest.mark.parametrize("spoil", WRONG.values(), ids=WRONG)
def test_stacks_of_another_layout_are_refused(spoil):
    stack = positive_definite(4, 3)
    bad = spoil(stack)
    with pytest.raises(TypeError, match="must be C-contiguous float64"):
        cholesky_in_place(bad)
    with pytest.raises(TypeError, match="must be C-contiguous float64"):
        inverse_diagonals(bad)
    for apply in (solve_lower, multiply_lower):
        with pytest.raises(TypeError, match="must be C-contiguous float64"):
            apply(bad, np.ones((4, 3, 3)))
        with pytest.raises(TypeError, match="must be C-contiguous float64"):
            apply(stack, bad)


def test_what_must_not_be_written_is_refused():
    stack, columns = positive_definite(2, 3), np.ones((2, 3, 1))
    for array in (stack, columns):
        array.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        cholesky_in_place(stack)
    for apply in (solve_lower, multiply_lower):
        with pytest.raises(ValueError, match="read-only"):
            apply(stack, columns)
    np.testing.assert_array_equal(columns, 1.0)
    assert inverse_diagonals(stack).shape == (2, 3)  # only read


@pytest.mark.parametrize("apply", [solve_lower, multiply_lower])
@pytest.mark.parametrize("shape", [(2, 3, 1), (4, 4, 1), (3, 4, 1)])
def test_columns_that_do_not_fit_the_matrices_are_refused(apply, shape):
    """Instead of being read beyond their end."""
    with pytest.raises(ValueError, match=r"columns have shape .*; expected \(4, 3, r\), or fewer"):
        apply(positive_definite(4, 3), np.ones(shape))


@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 4), (2, 2, 3, 3)])
def test_what_is_no_stack_of_squares_is_refused(shape):
    for use in (cholesky_in_place, inverse_diagonals):
        with pytest.raises(ValueError, match=r"a stack of shape .*; expected \(count, m, m\)"):
            use(np.ones(shape))


def test_work_releases_the_interpreter():
    """Another thread works on while one of about 0.1 s runs; on a busy machine at some time."""
    stack = positive_definite(1, 1500)

    def turns():
        worker = threading.Thread(target=cholesky_in_place, args=(stack.copy(),))
        worker.start()
        counted = 0
        while worker.is_alive():
            time.sleep(0.001)
            counted += 1
        return counted

    with single_threaded_blas():
        assert any(turns() > 5 for _ in range(20))


@pytest.mark.parametrize("n", [9, 10, 23])
def test_large_matrices_are_factored_by_blocks(monkeypatch, n):
    from cagp_dist.gram.dense import cholesky_lower

    monkeypatch.setattr(lapack, "LARGEST_WHOLE", 8)
    monkeypatch.setattr("cagp_dist.gram.dense.LARGEST_WHOLE", 8)
    monkeypatch.setattr(lapack, "BLOCK", 5)
    half = np.random.default_rng(n).standard_normal((2, n, n))
    matrices = half @ half.transpose(0, 2, 1) + np.eye(n)
    expected = np.linalg.cholesky(matrices)
    stack = matrices.copy()
    lapack.cholesky_in_place(stack)
    np.testing.assert_allclose(np.tril(stack), expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(cholesky_lower(matrices[0]), expected[0], rtol=0, atol=1e-12)
    matrices[0, n - 1, n - 1] = -1.0
    with pytest.raises(NumericalError) as refusal:
        cholesky_lower(matrices[0])
    assert refusal.value.key == "not-positive-definite"
