"""Observed points of a grid: fields and columns of them are adjoint; a pole that was observed once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.latlon.grid_layout import Layout
from cagp_dist.runtime import SerialExecutor

from ..joined import one_after_another

LATITUDE = np.array([-90.0, -20.0, 35.0, 90.0])
GRID = cagp.LatLonGrid(LATITUDE, 5)


def mask_of(bits, shape=(4, 5)):
    return np.array([bool(bits >> i & 1) for i in range(shape[0] * shape[1])]).reshape(shape)


def one_copy_of_each_pole():
    observed = np.ones(GRID.shape, dtype=bool)
    observed[[0, -1]] = False
    observed[0, 3] = observed[-1, 0] = True
    observed[1, 2] = False
    return observed


any_mask = given(bits=st.integers(1, 2**20 - 1))


@any_mask
def test_embedding_and_restriction_are_adjoint(bits):
    layout = Layout.of(GRID, mask_of(bits))
    rng = np.random.default_rng(0)
    values, fields = rng.normal(size=(2, layout.index.size)), rng.normal(size=(2, *GRID.shape))
    embedded = layout.embed(values)
    assert embedded.shape == fields.shape
    assert (embedded[:, ~layout.observed] == 0.0).all()
    np.testing.assert_array_equal(embedded[:, layout.observed], values)
    np.testing.assert_array_equal(layout.restrict(fields), fields[:, layout.observed])
    assert (embedded * fields).sum() == pytest.approx((values * layout.restrict(fields)).sum(), rel=1e-13)


@any_mask
def test_spreading_and_summing_are_adjoint(bits):
    layout = Layout.of(GRID, mask_of(bits))
    rng = np.random.default_rng(1)
    values, fields = rng.normal(size=(3, layout.index.size)), rng.normal(size=(3, *GRID.shape))
    before = fields.copy()
    left = (layout.spread(values) * fields).sum()
    scale = np.abs(values).sum() * np.abs(fields).max()
    assert left == pytest.approx((values * layout.summed(fields)).sum(), rel=1e-12, abs=1e-14 * scale)
    np.testing.assert_array_equal(fields, before)


@any_mask
def test_poles_are_the_rows_of_which_one_copy_was_observed(bits):
    layout = Layout.of(GRID, mask_of(bits))
    counts = mask_of(bits).sum(axis=1)
    assert layout.poles.tolist() == [row for row in (0, 3) if counts[row] == 1]
    np.testing.assert_array_equal(layout.index, np.flatnonzero(mask_of(bits)))
    expected = ~mask_of(bits)
    expected[layout.poles] = False
    np.testing.assert_array_equal(layout.missing, expected)


def test_a_pole_is_repeated_along_its_row_and_its_weights_are_added():
    layout = Layout.of(GRID, one_copy_of_each_pole())
    values = np.arange(1.0, layout.index.size + 1.0)[None]
    (field,) = layout.spread(values)
    np.testing.assert_array_equal(field[0], 1.0)
    np.testing.assert_array_equal(field[-1], values[0, -1])
    assert field[1, 2] == 0.0
    np.testing.assert_array_equal(field[1:3][layout.observed[1:3]], values[0, 1:-1])
    weights = np.random.default_rng(0).normal(size=(1, *GRID.shape))
    (summed,) = layout.summed(weights)
    assert summed[0] == pytest.approx(weights[0, 0].sum(), rel=1e-14)
    assert summed[-1] == pytest.approx(weights[0, -1].sum(), rel=1e-14)
    np.testing.assert_array_equal(summed[1:-1], weights[0, 1:3][layout.observed[1:3]])


def test_a_row_of_equal_values_is_the_information_of_one_observation():
    """Q observations of one place with Q times the noise, by dense formulas."""
    layout = Layout.of(GRID, one_copy_of_each_pole())
    kernel = cagp.Matern32(0.6, 2.0)
    noise = np.array([0.3, 0.1, 0.2, 0.4])
    spread_noise = np.repeat(layout.row_noise(noise), 5)
    np.testing.assert_allclose(layout.row_noise(noise), [1.5, 0.1, 0.2, 2.0], rtol=1e-15)
    assert noise.tolist() == [0.3, 0.1, 0.2, 0.4]
    kept = np.flatnonzero(~layout.missing)
    K = kernel(GRID.points, GRID.points)
    G_rows = K[np.ix_(kept, kept)] + np.diag(spread_noise[kept])
    there = layout.index
    G = K[np.ix_(there, there)] + np.diag(np.repeat(noise, 5)[there])
    b = np.random.default_rng(0).normal(size=(2, there.size))
    fields = np.zeros((2, GRID.size))
    fields[:, kept] = np.linalg.solve(G_rows, layout.spread(b).reshape(2, -1)[:, kept].T).T
    weights = layout.summed(fields.reshape(2, *GRID.shape))
    np.testing.assert_allclose(weights, np.linalg.solve(G, b.T).T, rtol=1e-10, atol=1e-11)


def test_other_rows_with_one_observation_and_poles_with_several_are_left_alone():
    observed = np.zeros(GRID.shape, dtype=bool)
    observed[1, 3] = True
    observed[0, :2] = True
    layout = Layout.of(GRID, observed)
    assert layout.poles.size == 0
    np.testing.assert_array_equal(layout.missing, ~observed)
    values = np.array([[1.0, 2.0, 3.0]])
    np.testing.assert_array_equal(layout.spread(values), layout.embed(values))
    np.testing.assert_array_equal(layout.row_noise(np.ones(4)), 1.0)


def test_the_only_point_of_a_pole_row_is_itself():
    layout = Layout.of(cagp.LatLonGrid([-90.0, 0.0], 1), np.ones((2, 1), dtype=bool))
    values = np.array([[1.0, 2.0]])
    np.testing.assert_array_equal(layout.spread(values).ravel(), [1.0, 2.0])
    np.testing.assert_array_equal(layout.summed(layout.spread(values)), values)
    np.testing.assert_array_equal(layout.row_noise(np.array([0.1, 0.2])), [0.1, 0.2])


def test_a_whole_grid_misses_nothing():
    rings = cagp.RingGram(GRID, cagp.Matern32(0.5), noise_variance=0.1, executor=SerialExecutor())
    layout = rings.layout
    assert layout.observed.all()
    assert not layout.missing.any()
    assert layout.poles.size == 0
    np.testing.assert_array_equal(layout.index, np.arange(GRID.size))


def test_the_mask_is_the_layouts_own():
    observed = one_copy_of_each_pole()
    layout = Layout.of(GRID, observed)
    there = observed.copy()
    observed[:] = True
    np.testing.assert_array_equal(layout.observed, there)
    with pytest.raises(ValueError, match="read-only"):
        layout.observed[0, 0] = True


@one_after_another
@pytest.mark.parametrize(
    ("observed", "key"),
    [
        (np.ones((5, 4), dtype=bool), "shapes"),
        (np.ones((4, 5)), "shapes"),
        (np.zeros((4, 5), dtype=bool), "nothing-observed"),
    ],
)
def test_masks_that_are_none_are_refused(observed, key):
    with pytest.raises(ArgumentError) as refusal:
        Layout.of(GRID, observed)
    assert refusal.value.key == key
