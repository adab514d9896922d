"""Hybrids: what parts they take, and what these do together; T25 is in `tests.conformance`."""

import itertools

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError

from ..joined import one_after_another
from ..oracle import assert_close, assert_same_bits, compose
from ..problems import regression_problem
from .stages import dense_cycles, hybrid_stages

pytestmark = pytest.mark.usefixtures("one_blas_thread")

BLOCKS, DIRECTIONS = cagp.BlockGaussSeidel(2, 40), cagp.ConjugateGradient(6)
INDEPENDENT = [
    cagp.TwoLevelBlockGaussSeidel(1, 40, coarse=7),
    cagp.RandomActions(4, seed=1),
    cagp.Richardson(2),
]


@pytest.fixture(scope="module")
def problem():
    return regression_problem(150, q=25, p=2, lengthscale=0.3)


def test_passes_with_more_columns_than_targets_do_not_read_tiles_kept_for_these():
    """Tiles that are kept for 20 targets stand in other sub-tiles than a product with 100 columns takes."""
    problem = regression_problem(600, q=20, p=2, lengthscale=0.3)
    dense, blocks = problem.dense, cagp.BlockGaussSeidel(2, 256)
    posterior = problem.condition(cagp.Hybrid([blocks, cagp.RandomActions(100)], condition=True))
    assert posterior.stats.plan.stored_rows
    _, D_E, _ = compose(dense.G, dense_cycles(blocks, dense.G))
    S = np.linalg.qr(np.random.default_rng(0).standard_normal((600, 100)))[0]
    H = S - D_E @ dense.G @ S
    gain = H @ np.linalg.inv(S.T @ dense.G @ H)
    assert_close(dense.K2 - posterior.covariance, dense.V @ (D_E + gain @ H.T) @ dense.V.T)


def test_conditioning_on_what_is_solved_already_changes_nothing(problem):
    whole = cagp.BlockGaussSeidel(1, 150)
    solved = problem.condition(whole)
    for actions in (cagp.RandomActions(4), DIRECTIONS, cagp.ConjugateGradient(0)):
        posterior = problem.condition(cagp.Hybrid([whole, actions], condition=True))
        assert_close(posterior.mean, solved.mean, relative=1e-12)
        assert_close(posterior.covariance, solved.covariance, relative=1e-12)
    # without sweeps there is nothing to condition but the prior: a projection
    first = cagp.BlockGaussSeidel(0, 40)
    for actions in (cagp.RandomActions(4), DIRECTIONS):
        conditioned = problem.condition(cagp.Hybrid([first, actions], condition=True))
        projected = problem.condition(cagp.Hybrid([first, actions]))
        assert_close(conditioned.mean, projected.mean, relative=1e-10)
        assert_close(conditioned.covariance, projected.covariance, relative=1e-10)


@pytest.mark.parametrize("solver", [DIRECTIONS, BLOCKS, cagp.RandomActions(5)], ids=repr)
def test_a_hybrid_of_one_part_is_that_solver(problem, solver):
    alone, hybrid = problem.condition(solver), problem.condition(cagp.Hybrid([solver]))
    assert_close(hybrid.mean, alone.mean, relative=1e-12)
    assert_close(hybrid.covariance, alone.covariance, relative=1e-12)
    assert cagp.Hybrid([solver]).calibrated == solver.calibrated


def test_parts_that_do_nothing_are_no_stages(problem):
    assert_same_bits(
        problem.condition(cagp.Hybrid([cagp.ConjugateGradient(0), BLOCKS, cagp.GaussSeidel(0)])),
        problem.condition(cagp.Hybrid([BLOCKS])),
    )
    nothing = problem.condition(cagp.Hybrid([cagp.ConjugateGradient(0)]))
    np.testing.assert_array_equal(nothing.mean, problem.dense.centre)
    assert (nothing.variance == problem.prior.kernel.variance).all()


def test_several_fields_share_a_hybrid_without_conjugate_gradients():
    problem = regression_problem(150, q=25, p=2, lengthscale=0.3, fields=3)
    posterior = problem.condition(cagp.Hybrid(INDEPENDENT))
    stages, _ = hybrid_stages(INDEPENDENT, problem.dense.G, problem.dense.b)
    assert_close(posterior.mean, problem.dense.belief(compose(problem.dense.G, stages)[0])[0])
    with pytest.raises(ArgumentError) as refused:
        problem.condition(cagp.Hybrid([DIRECTIONS, BLOCKS]))
    assert refused.value.key == "several-fields"


@one_after_another
@pytest.mark.parametrize(
    ("parts", "key"),
    [
        ([], "parts-of-solver"),
        ([cagp.Cholesky()], "parts-of-solver"),
        (BLOCKS, "parts-of-solver"),
        ([BLOCKS, cagp.BlockJacobi(1, 20)], "block-sizes"),
        (
            [cagp.GaussSeidel(3, computational_share=0.1)],
            "share-of-part",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused(parts, key):
    with pytest.raises(ArgumentError) as refusal:
        cagp.Hybrid(parts)
    assert refusal.value.key == key


@one_after_another
@pytest.mark.parametrize(
    "parts",
    [
        [DIRECTIONS, BLOCKS],
        [DIRECTIONS],
        [BLOCKS, DIRECTIONS, cagp.RandomActions(2)],
    ],
)
def test_only_sweeps_are_conditioned_and_only_on_the_last_part(parts):
    with pytest.raises(ArgumentError) as refusal:
        cagp.Hybrid(parts, condition=True)
    assert refusal.value.key == "order-of-parts"


def test_parts_may_be_named():
    named = cagp.Hybrid("block-gauss-seidel 2, two-level-block-jacobi 1, conjugate-gradient 6", block_size=40)
    assert named == cagp.Hybrid([BLOCKS, cagp.TwoLevelBlockJacobi(1, 40), DIRECTIONS])
    assert named.points_per_block == 40
    assert cagp.Hybrid("gauss-seidel 1, block-jacobi 2").points_per_block == 1024
    with pytest.raises(ArgumentError) as refusal:
        cagp.Hybrid("gauss-seidel 1, cholesky 1")
    assert refusal.value.key == "parts-of-solver"
    with pytest.raises(ArgumentError) as refused:
        cagp.Hybrid([BLOCKS], block_size=40)
    assert refused.value.key == "block-sizes"


def test_calibrated_is_that_of_the_parts():
    for parts in itertools.permutations([BLOCKS, cagp.RandomActions(2), cagp.SOR(1, 1.2)]):
        assert cagp.Hybrid(parts).calibrated == "exact"
        assert cagp.Hybrid([*parts, DIRECTIONS]).calibrated == "approximate"
    assert cagp.Hybrid([BLOCKS, cagp.RandomActions(2)], condition=True).calibrated == "exact"
    assert cagp.Hybrid([BLOCKS, DIRECTIONS], condition=True).calibrated == "approximate"
