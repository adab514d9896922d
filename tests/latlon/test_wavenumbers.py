"""Wavenumbers and parities: the transform is orthonormal, and in it the matrix falls into these blocks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cagp_dist as cagp
from cagp_dist import compiled
from cagp_dist.budget import GridSize
from cagp_dist.budget.demand import FEWEST_RANGES, RANGE_BYTES
from cagp_dist.latlon import wavenumbers as module
from cagp_dist.latlon.wavenumbers import Wavenumbers, ring_blocks

from ..grids import EVERY_CASE, LAYOUTS, LENGTHSCALES, Layout, case_name, grid_problem, make_problem
from ..joined import one_after_another
from ..oracle import KERNELS, KERNELS_AND_SUMS

pytestmark = pytest.mark.usefixtures("one_blas_thread")

every_layout = pytest.mark.parametrize("name", LAYOUTS)
every_case = pytest.mark.parametrize(("name", "kernel_class", "lengthscale"), EVERY_CASE, ids=case_name)


def of_layout(name: str, *, mirrored: bool | None = None) -> Wavenumbers:
    layout = LAYOUTS[name]
    mirrored = layout.mirrored if mirrored is None else mirrored
    return Wavenumbers(layout.latitude, layout.n_longitudes, mirrored)


def parity_rows(rings: int) -> list[np.ndarray]:
    """Orthonormal rows of the even and the odd functions of latitude, in the order of the sectors."""
    eye, half = np.eye(rings), rings // 2
    even = np.sqrt(0.5) * (eye + eye[::-1])[: rings - half]
    if rings % 2:
        even[-1] = eye[half]
    return [even, np.sqrt(0.5) * (eye - eye[::-1])[:half]]


def symmetric(block: np.ndarray) -> np.ndarray:
    return block + np.tril(block, -1).T


def blocks_by_definition(K: np.ndarray, P: int, Q: int) -> np.ndarray:
    """``sum_s kappa(phi, phi', 2 pi s / Q) cos(2 pi k s / Q)`` from the first column of every ring pair."""
    first_columns = K.reshape(P, Q, P, Q)[:, :, :, 0].transpose(0, 2, 1)
    angle = 2.0 * np.pi * np.outer(np.arange(Q // 2 + 1), np.arange(Q)) / Q
    return np.einsum("pqs,ks->kpq", first_columns, np.cos(angle))


@one_after_another
@every_layout
def test_the_transform_and_back_changes_nothing(name):
    waves, fields = of_layout(name), grid_problem(name).field(3)
    columns = waves.split(fields)
    assert [part.shape for part in columns] == [(waves.count, size, 6) for size in waves.sizes]
    np.testing.assert_allclose(waves.join(columns), fields, rtol=0.0, atol=1e-14)


@one_after_another
@every_layout
def test_the_transform_is_orthonormal_with_the_weights(name):
    waves, problem = of_layout(name), grid_problem(name)
    left, right = problem.field(2), problem.field(2, seed=1)
    total = sum(
        (waves.weights[:, None, None] * a * b).sum()
        for a, b in zip(waves.split(left), waves.split(right), strict=True)
    )
    assert total == pytest.approx((left * right).sum(), rel=1e-12, abs=1e-12)


@one_after_another
@every_layout
def test_real_and_imaginary_parts_stand_side_by_side(name):
    """Columns 2 t and 2 t + 1 of a sector are the transform of field t."""
    waves, fields = of_layout(name, mirrored=False), grid_problem(name).field(2)
    spectrum = np.fft.rfft(fields, axis=2, norm="ortho")
    (columns,) = waves.split(fields)
    np.testing.assert_array_equal(columns[:, :, 0::2], spectrum.real.transpose(2, 1, 0))
    np.testing.assert_array_equal(columns[:, :, 1::2], spectrum.imag.transpose(2, 1, 0))


@pytest.mark.parametrize("P", [2, 3, 8, 9])
def test_parities_are_sums_and_differences_of_mirrored_latitudes(P):
    latitude = np.linspace(-90.0, 90.0, P)
    fields = np.random.default_rng(P).normal(size=(2, P, 5))
    (whole,) = Wavenumbers(latitude, 5, False).split(fields)
    for rows, part in zip(parity_rows(P), Wavenumbers(latitude, 5, True).split(fields), strict=True):
        np.testing.assert_allclose(part, rows @ whole, rtol=0.0, atol=4e-15 * np.abs(whole).max())


@pytest.mark.parametrize(
    ("P", "mirrored", "sizes"),
    [
        (1, False, (1,)),
        (1, True, (1,)),
        (2, True, (1, 1)),
        (3, True, (2, 1)),
        (9, True, (5, 4)),
        (9, False, (9,)),
    ],
)
def test_sizes_of_the_sectors(P, mirrored, sizes):
    waves = Wavenumbers(np.linspace(-60.0, 60.0, P) if P > 1 else np.zeros(1), 6, mirrored)
    assert waves.sizes == sizes
    assert waves.block_bytes == 8 * 4 * sum(size**2 for size in sizes)
    values = np.abs(np.arange(P) - (P - 1) / 2.0)
    by_sector = waves.by_ring(values)
    assert [len(part) for part in by_sector] == list(sizes)
    np.testing.assert_array_equal(waves.to_rings(by_sector), values)


def test_the_diagonal_by_latitude_is_that_of_the_matrix_with_these_sectors():
    rng = np.random.default_rng(0)
    for P in (2, 5, 6):
        even, odd = parity_rows(P)
        A, B = rng.normal(size=(len(even), len(even))), rng.normal(size=(len(odd), len(odd)))
        expected = np.diag(even.T @ A @ even + odd.T @ B @ odd)
        waves = Wavenumbers(np.linspace(-60.0, 60.0, P), 4, True)
        np.testing.assert_allclose(waves.to_rings([np.diag(A), np.diag(B)]), expected, rtol=1e-14)


@pytest.mark.parametrize(
    ("Q", "weights"),
    [(1, [1]), (2, [1, 1]), (3, [1, 2]), (4, [1, 2, 1]), (7, [1, 2, 2, 2]), (8, [1, 2, 2, 2, 1])],
)
def test_every_wavenumber_counts_as_often_as_it_stands_in_the_full_transform(Q, weights):
    waves = Wavenumbers(np.zeros(1), Q, False)
    assert waves.weights.tolist() == weights
    assert sum(weights) == Q
    assert waves.count == len(weights)


@given(P=st.integers(1, 800), Q=st.integers(1, 20_000), mirrored=st.booleans())
def test_ranges_cover_all_wavenumbers_once_and_are_small(P, Q, mirrored):
    waves = Wavenumbers(np.linspace(-80.0, 80.0, P) if P > 1 else np.zeros(1), Q, mirrored)
    ranges = waves.ranges()
    assert [k for first, last in ranges for k in range(first, last)] == list(range(waves.count))
    assert len(ranges) >= min(FEWEST_RANGES, waves.count)
    assert all(first < last for first, last in ranges)
    per_wavenumber = waves.block_bytes // waves.count
    widest = max(last - first for first, last in ranges)
    # one more than even shares at most; what a task holds are its blocks, and a cosine for each longitude
    assert (widest - 1) * max(per_wavenumber, 8 * waves.count) <= RANGE_BYTES


def test_the_quarter_degree_grid_is_a_dozen_tasks_or_two():
    ranges = Wavenumbers(np.linspace(90.0, -90.0, 721), 1440, True).ranges()
    assert 12 <= len(ranges) <= 24


@one_after_another
@every_case
def test_blocks_are_the_cosine_transform_of_the_matrix(name, kernel_class, lengthscale):
    problem = grid_problem(name, kernel_class, lengthscale)
    P, Q = problem.grid.shape
    expected = blocks_by_definition(problem.K, P, Q)
    tolerance = 1e-14 * np.abs(expected).max()
    waves = of_layout(name, mirrored=False)
    (blocks,) = ring_blocks(problem.kernel.parameters, waves, (0, waves.count))
    np.testing.assert_array_equal(np.triu(blocks, 1), 0.0)
    np.testing.assert_allclose(blocks, np.tril(expected), rtol=0.0, atol=tolerance)


@one_after_another
@pytest.mark.parametrize("lengthscale", LENGTHSCALES)
@pytest.mark.parametrize("name", [name for name in LAYOUTS if LAYOUTS[name].mirrored])
def test_blocks_of_mirrored_latitudes_fall_into_even_and_odd_ones(name, lengthscale):
    """The full block is ``U_e' E U_e + U_o' O U_o``: nothing couples sums and differences."""
    problem = grid_problem(name, cagp.Matern32, lengthscale)
    expected = blocks_by_definition(problem.K, *problem.grid.shape)
    waves = of_layout(name)
    sectors = ring_blocks(problem.kernel.parameters, waves, (0, waves.count))
    P = problem.grid.shape[0]
    rows = parity_rows(P) if P > 1 else [np.eye(1)]
    whole = sum(
        U.T @ np.stack([symmetric(block) for block in part]) @ U
        for U, part in zip(rows, sectors, strict=True)
    )
    np.testing.assert_allclose(whole, expected, rtol=0.0, atol=1e-14 * np.abs(expected).max())
    assert all((np.triu(part, 1) == 0.0).all() for part in sectors)


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("P", [7, 8])
def test_tiles_of_latitudes_make_the_same_blocks(P, mirrored, monkeypatch):
    """The tiles of a large grid, at a small one: edges, diagonal tiles, tiles that hold the equator."""
    waves = Wavenumbers(np.linspace(-90.0, 90.0, P), 9, mirrored)
    parameters = cagp.Matern32(0.4, 2.0).parameters
    whole = ring_blocks(parameters, waves, (0, waves.count))
    for tile in (1, 2, 3, 5):
        monkeypatch.setattr(module, "TABLE_ENTRIES", tile**2 * waves.count)
        for part, expected in zip(ring_blocks(parameters, waves, (0, waves.count)), whole, strict=True):
            np.testing.assert_allclose(part, expected, rtol=0.0, atol=1e-14 * np.abs(expected).max())


@one_after_another
@every_layout
def test_a_range_holds_its_part_of_the_blocks(name):
    problem, waves = grid_problem(name), of_layout(name)
    whole = ring_blocks(problem.kernel.parameters, waves, (0, waves.count))
    for first, last in waves.ranges():
        parts = ring_blocks(problem.kernel.parameters, waves, (first, last))
        for part, sector in zip(parts, whole, strict=True):
            np.testing.assert_allclose(
                part, sector[first:last], rtol=0.0, atol=1e-14 * sector.max(initial=0.0)
            )


def test_many_longitudes_keep_the_cosines_accurate():
    """``k s`` reaches 10^8, a large angle to round: whole turns are taken off first.

    Against the sum in extended precision.
    """
    Q, last = 20_000, 10_001
    waves = Wavenumbers(np.zeros(1), Q, True)
    order = np.arange(last)
    values = np.exp(-2.0 * np.sin(np.pi * order / Q) / 3.0) * waves.weights
    (blocks,) = ring_blocks(cagp.Matern12(3.0).parameters, waves, (last - 3, last))
    for k, block in zip(order[-3:], blocks, strict=True):
        angle = ((k * order) % Q).astype(np.longdouble) * (2.0 * np.arccos(np.longdouble(-1.0)) / Q)
        expected = (values * np.cos(angle)).sum()
        assert abs(block[0, 0] - expected) < 1e-15 * values.sum()


@pytest.mark.parametrize("kernel_class", KERNELS_AND_SUMS)
@pytest.mark.parametrize("mirrored", [False, True])
def test_longitudes_beyond_the_negligible_distance_are_left_out(kernel_class, mirrored, monkeypatch):
    """A short lengthscale evaluates a part of the ring, and the rest is below rounding."""
    latitude, Q = np.linspace(-40.0, 40.0, 5), 64
    kernel = kernel_class(lengthscale=0.012, variance=2.0)
    turns = []

    def counted(family, inverse_lengthscale, variance, gap, girth, turn, out):
        turns.append(len(turn))
        original(family, inverse_lengthscale, variance, gap, girth, turn, out)

    original = compiled.evaluate_rings
    monkeypatch.setattr(compiled, "evaluate_rings", counted)
    monkeypatch.setattr(module, "TABLE_ENTRIES", 1)
    waves = Wavenumbers(latitude, Q, mirrored)
    sectors = ring_blocks(kernel.parameters, waves, (0, waves.count))
    assert min(turns) == 0  # latitudes 20 degrees apart are out of reach at every longitude
    assert 0 < max(turns) < Q // 2 + 1
    problem = make_problem(Layout(latitude, Q, np.ones(5), mirrored), kernel)
    expected = blocks_by_definition(problem.K, 5, Q)
    rows = parity_rows(5) if mirrored else [np.eye(5)]
    for U, part in zip(rows, sectors, strict=True):
        reference = np.tril(U @ expected @ U.T)
        np.testing.assert_allclose(part, reference, rtol=0.0, atol=4e-15 * np.abs(reference).max())


@pytest.mark.parametrize("kernel_class", KERNELS)
@pytest.mark.parametrize("name", ["poles, even Q", "irregular latitudes"])
def test_slopes_are_those_of_the_blocks(kernel_class, name):
    """``dK_k / d log(lengthscale)`` by central differences: step h leaves about h^2 / 6 of the third."""
    waves, h, lengthscale = of_layout(name), 1e-4, 0.4
    span = (0, waves.count)
    upper, lower = (
        ring_blocks(kernel_class(lengthscale * np.exp(step), 2.0).parameters, waves, span) for step in (h, -h)
    )
    slopes = ring_blocks(kernel_class(lengthscale, 2.0).slope_parameters()[0], waves, span)
    for slope, above, below in zip(slopes, upper, lower, strict=True):
        scale = np.abs(slope).max()
        np.testing.assert_allclose(slope, (above - below) / (2.0 * h), rtol=0.0, atol=1e-7 * scale)


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("rings", [1, 2, 7, 8, 33])
def test_a_plan_counts_the_same_blocks(rings, mirrored):
    waves = Wavenumbers(np.linspace(-60.0, 60.0, rings), 9, mirrored)
    planned = GridSize(rings, 9, mirrored=mirrored)
    assert planned.wavenumbers == waves.count
    assert planned.block_bytes == waves.block_bytes
