"""The factor of a sparse matrix by blocks, against dense algebra."""

import numpy as np
from scipy.sparse import csr_array

from cagp_dist.gram.block_factor import BLOCK, BlockFactor, BlockPattern, block_count
from cagp_dist.group_blocks import add_groups, link_blocks, link_neighbours, quadratic_forms


def _chain(rows: int) -> tuple[csr_array, np.ndarray]:
    """Sparse rows that link those near each other on a ring; rows of a matrix A, and A itself."""
    generator = np.random.default_rng(3)
    starts, near = np.arange(3 * rows + 1) * 4, generator.integers(0, 40, (3 * rows, 4))
    members = (generator.integers(0, rows, (3 * rows, 1)) + near) % rows
    given = csr_array((generator.normal(size=members.size), members.reshape(-1), starts), (3 * rows, rows))
    given.sum_duplicates()
    return given, (given.T @ given).toarray() + np.eye(rows)


def _entered(factor: BlockFactor, A: np.ndarray) -> None:
    for i, j in zip(*np.nonzero(np.tril(A)), strict=True):
        low, high = sorted((factor.places[i], factor.places[j]))
        (first, row), (second, column) = divmod(low, BLOCK), divmod(high, BLOCK)
        if first == second:
            factor.diagonals[first, column, row] += A[i, j] - (i == j)
        else:
            factor.panels[factor.table[first, second] + row * factor.widths[first] + column] = A[i, j]
    factor.add_to_diagonal(np.ones(len(A)))


def test_it_solves_and_has_the_inverse_where_the_matrix_has_entries():
    rows = 5 * BLOCK + 7
    given, A = _chain(rows)
    linked = np.zeros((block_count(rows),) * 2, dtype=bool)
    link_blocks(given.indptr.astype(np.intp), given.indices.astype(np.intp), BLOCK, linked)
    pattern = BlockPattern.of(linked)
    assert pattern.starts[-1] < BLOCK**2 * 15  # less than all blocks right of the diagonal
    factor = BlockFactor(pattern, rows)
    _entered(factor, A)
    columns = np.random.default_rng(4).normal(size=(rows, 3))
    inverse = np.linalg.inv(A)

    assert abs(factor.factor() - np.linalg.slogdet(A)[1]) < 1e-9
    np.testing.assert_allclose(factor.solve(columns), inverse @ columns, atol=1e-12)
    white = factor.whiten(columns)
    np.testing.assert_allclose(white.T @ white, columns.T @ inverse @ columns, atol=1e-11)

    factor.invert()
    np.testing.assert_allclose(factor.inverse_diagonal(), inverse.diagonal(), atol=1e-13)
    forms = np.empty(given.shape[0])
    blocks = factor.diagonals, factor.panels, factor.table, factor.widths
    whole = quadratic_forms(
        given.indptr.astype(np.intp), factor.places[given.indices], given.data, *blocks, forms
    )
    assert whole
    np.testing.assert_allclose(forms, np.sum((given @ inverse) * given.toarray(), axis=1), atol=1e-12)


def test_forms_of_a_pair_without_a_block_are_refused():
    factor = BlockFactor(BlockPattern.of(np.eye(2, dtype=bool)), 2 * BLOCK)
    blocks = factor.diagonals, factor.panels, factor.table, factor.widths
    assert not quadratic_forms(np.array([0, 2]), np.array([0, BLOCK]), np.ones(2), *blocks, np.empty(1))


def test_sums_over_neighbours_are_products_with_the_factor_of_vecchia():
    generator, n, axes, count = np.random.default_rng(5), 90, 2, 2 * BLOCK
    neighbours = np.array([[i - 1, i - 3 if i > 2 else -1] for i in range(n)])
    weights = np.where(neighbours >= 0, generator.normal(size=(n, 2)), 0.0)
    deviations = generator.uniform(0.5, 2.0, n)
    groups = generator.integers(-1, 2 * BLOCK, (n, axes))
    U = np.eye(n)
    for i, j in zip(*np.nonzero(neighbours >= 0), strict=True):
        U[neighbours[i, j], i] = -weights[i, j]
    U /= deviations
    F = np.zeros((n, count))
    for axis in range(axes):
        there = groups[:, axis] >= 0
        F[there, groups[there, axis]] += 1.0
    linked = np.eye(2, dtype=bool)
    link_neighbours(neighbours, groups, BLOCK, linked)
    assert linked.all()
    factor = BlockFactor(BlockPattern.of(linked), count)
    blocks = factor.diagonals, factor.panels, factor.table, factor.widths
    placed = np.where(groups >= 0, factor.places[groups], -1)
    add_groups(neighbours, weights, deviations, placed, count, *blocks)
    expected = F.T @ U @ U.T @ F
    for row in generator.normal(size=(5, count)):
        found, starts = np.empty(1), np.array([0, count])
        quadratic_forms(starts, factor.places, row, *blocks, found)
        np.testing.assert_allclose(found[0], row @ expected @ row, rtol=1e-12)
