"""Hybrids: mean and covariance of one matrix, that of all stages and of the actions on the way (T25)."""

import itertools
from contextlib import nullcontext

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.runtime import SerialExecutor, ThreadExecutor

from ..oracle import assert_close, assert_same_bits, compose, conjugate_gradients
from ..problems import regression_problem
from .stages import dense_cycles, projection_stage

pytestmark = pytest.mark.usefixtures("one_blas_thread")

BLOCKS, SWEEPS, DIRECTIONS = cagp.BlockGaussSeidel(2, 40), cagp.SSOR(1, 1.4), cagp.ConjugateGradient(6)
LISTS = [
    [DIRECTIONS, BLOCKS],
    [BLOCKS, DIRECTIONS],
    [SWEEPS, cagp.ConjugateGradient(3), BLOCKS, cagp.ConjugateGradient(4)],
    [cagp.BlockGaussSeidel(2, 40, order="random", seed=3), DIRECTIONS, cagp.GaussSeidel(1)],
    [cagp.Chebyshev(3), DIRECTIONS, cagp.Chebyshev(2), BLOCKS],
    [cagp.TwoLevelBlockGaussSeidel(1, 40, coarse=7), cagp.RandomActions(4, seed=1), cagp.Richardson(2)],
]
every_list = pytest.mark.parametrize("parts", LISTS, ids=lambda parts: str([type(p).__name__ for p in parts]))


@pytest.fixture(scope="module")
def problem():
    return regression_problem(150, q=25, p=2, lengthscale=0.3)


def dense_stages(parts, G, b):
    """``Mt`` of all stages, and the iterate after each part; directions come from the residual there."""
    stages, iterates = [], []
    for part in parts:
        A, _, _ = compose(G, stages)
        left = b - G @ (A @ b)
        if isinstance(part, cagp.ConjugateGradient):
            stages.append(projection_stage(G, conjugate_gradients(G, left, part.iterations)[1]))
        elif isinstance(part, cagp.RandomActions):
            actions = np.random.default_rng(part.seed).standard_normal((len(G), part.iterations))
            stages.append(projection_stage(G, actions))
        else:
            stages += dense_cycles(part, G)
        iterates.append(compose(G, stages)[0] @ b)
    return stages, iterates


@every_list
@pytest.mark.parametrize("workers", [0, 3])
def test_t25_mean_and_covariance_are_those_of_one_matrix(problem, parts, workers):
    dense = problem.dense
    stages, iterates = dense_stages(parts, dense.G, dense.b)
    A, D, _ = compose(dense.G, stages)
    with ThreadExecutor(workers) if workers else nullcontext(SerialExecutor()) as executor:
        posterior = problem.condition(cagp.Hybrid(parts), executor=executor)
    assert_close(posterior.mean, dense.centre + dense.V @ A @ dense.b)
    assert_close(posterior.mean, dense.centre + dense.V @ iterates[-1])
    assert_close(posterior.covariance, dense.belief(A)[1])
    assert_close(dense.K2 - posterior.covariance, dense.V @ D @ dense.V.T)


def test_t25_conjugate_gradients_then_sweeps_in_closed_form(problem):
    """``D = D_E + M_E^m DS M_E'^m``, and ``G^-1 - D = M_E^m (G^-1 - DS) M_E'^m``."""
    dense = problem.dense
    iterates, S = conjugate_gradients(dense.G, dense.b, 6)
    DS = projection_stage(dense.G, S)
    A_E, D_E, M_E = compose(dense.G, dense_cycles(BLOCKS, dense.G))
    D = D_E + M_E @ DS @ M_E.T
    G_inverse = np.linalg.inv(dense.G)
    left = G_inverse - D
    assert np.abs(left - M_E @ (G_inverse - DS) @ M_E.T).max() < 1e-9 * np.abs(G_inverse).max()
    posterior = problem.condition(cagp.Hybrid([DIRECTIONS, BLOCKS]))
    assert_close(dense.K2 - posterior.covariance, dense.V @ D @ dense.V.T)
    smoothed = M_E @ iterates[-1] + A_E @ dense.b  # sweeps from the iterate of conjugate gradients
    assert_close(posterior.mean, dense.centre + dense.V @ smoothed)


def test_t25_sweeps_then_conjugate_gradients_in_closed_form(problem):
    """``D = DS + (I - DS G) D_E (I - G DS)``; the mean is that of conjugate gradients begun at ``v_E``."""
    dense = problem.dense
    A_E, D_E, _ = compose(dense.G, dense_cycles(BLOCKS, dense.G))
    begun = A_E @ dense.b
    iterates, S = conjugate_gradients(dense.G, dense.b - dense.G @ begun, 6)
    DS = projection_stage(dense.G, S)
    rest = np.eye(len(dense.G)) - DS @ dense.G
    D = DS + rest @ D_E @ rest.T
    posterior = problem.condition(cagp.Hybrid([BLOCKS, DIRECTIONS]))
    assert_close(dense.K2 - posterior.covariance, dense.V @ D @ dense.V.T)
    assert_close(posterior.mean, dense.centre + dense.V @ (begun + iterates[-1]))
    assert posterior.stats.relative_residual == pytest.approx(
        np.linalg.norm(dense.b - dense.G @ (begun + iterates[-1])) / np.linalg.norm(dense.b), rel=1e-9
    )


CONDITIONED = [
    [BLOCKS, DIRECTIONS],
    [cagp.BlockGaussSeidel(2, 40, order="random", seed=3), cagp.RandomActions(7, seed=1)],
    [cagp.Chebyshev(3), DIRECTIONS],
    [cagp.TwoLevelBlockGaussSeidel(1, 40, coarse=7), SWEEPS, cagp.RandomActions(5)],
]


@pytest.mark.parametrize("parts", CONDITIONED, ids=lambda parts: str([type(p).__name__ for p in parts]))
@pytest.mark.parametrize("workers", [0, 3])
def test_t25_a_belief_conditioned_on_actions_in_closed_form(problem, parts, workers):
    """``D = D_E + H (S'GH)^-1 H'``, ``v = v_E + H (S'GH)^-1 S' r_E`` with ``H = S - D_E G S`` (math 6 c).

    It is the D of its own A, and of no larger variance than a projection on the same S.
    """
    dense, *before, last = problem.dense, *parts
    G, b = dense.G, dense.b
    A_E, D_E, _ = compose(G, [stage for part in before for stage in dense_cycles(part, G)])
    left = b - G @ (A_E @ b)
    if isinstance(last, cagp.ConjugateGradient):
        S = conjugate_gradients(G, left, last.iterations)[1]
    else:
        S = np.random.default_rng(last.seed).standard_normal((len(G), last.iterations))
    S = np.linalg.qr(S)[0]
    H = S - D_E @ G @ S
    gain = H @ np.linalg.inv(S.T @ G @ H)
    A, D = A_E + gain @ S.T @ (np.eye(len(G)) - G @ A_E), D_E + gain @ H.T
    with ThreadExecutor(workers) if workers else nullcontext(SerialExecutor()) as executor:
        posterior = problem.condition(cagp.Hybrid(parts, condition=True), executor=executor)
    assert_close(posterior.mean, dense.centre + dense.V @ (A @ b))
    assert_close(dense.K2 - posterior.covariance, dense.V @ D @ dense.V.T)
    assert_close(posterior.covariance, dense.belief(A)[1])  # the covariance of the error of this mean
    projected = problem.condition(cagp.Hybrid(parts))
    less = projected.covariance - posterior.covariance
    assert np.linalg.eigvalsh(less).min() > -1e-9 * problem.prior.kernel.variance
    assert np.diag(less).max() > 1e-4 * problem.prior.kernel.variance
    residual = posterior.stats.relative_residual
    if isinstance(last, cagp.ConjugateGradient):
        assert residual == pytest.approx(np.linalg.norm(b - G @ (A @ b)) / np.linalg.norm(b), rel=1e-8)
    else:
        assert residual is None


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
    posterior = problem.condition(cagp.Hybrid(LISTS[-1]))
    stages, _ = dense_stages(LISTS[-1], problem.dense.G, problem.dense.b)
    assert_close(posterior.mean, problem.dense.belief(compose(problem.dense.G, stages)[0])[0])
    with pytest.raises(ArgumentError, match=r"y holds 3 fields; conjugate gradients follow one residual"):
        problem.condition(cagp.Hybrid(LISTS[0]))


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([], r"parts is \[\]; expected a list of at least one of ConjugateGradient"),
        ([cagp.Cholesky()], r"parts is \[Cholesky\(\)\]; expected a list"),
        (BLOCKS, r"parts is BlockGaussSeidel.*; expected a list"),
        ([BLOCKS, cagp.BlockJacobi(1, 20)], r"parts have blocks of 20 and 40 points; expected one size"),
        (
            [cagp.GaussSeidel(3, computational_share=0.1)],
            r"a part has a computational_share; .* Leave it out",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused(parts, text):
    with pytest.raises(ArgumentError, match=text):
        cagp.Hybrid(parts)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([DIRECTIONS, BLOCKS], "conjugate gradients, then block Gauss-Seidel"),
        ([DIRECTIONS], "conjugate gradients"),
        ([BLOCKS, DIRECTIONS, cagp.RandomActions(2)], "Gauss-Seidel, then conjugate gradients, then random"),
    ],
)
def test_only_sweeps_are_conditioned_and_only_on_the_last_part(parts, text):
    with pytest.raises(
        ArgumentError, match=rf"condition is true with .*{text}.*; expected .* Put that one last"
    ):
        cagp.Hybrid(parts, condition=True)


def test_parts_may_be_named():
    named = cagp.Hybrid("block-gauss-seidel 2, two-level-block-jacobi 1, conjugate-gradient 6", block_size=40)
    assert named == cagp.Hybrid([BLOCKS, cagp.TwoLevelBlockJacobi(1, 40), DIRECTIONS])
    assert named.points_per_block == 40
    assert cagp.Hybrid("gauss-seidel 1, block-jacobi 2").points_per_block == 1024
    with pytest.raises(ArgumentError, match=r"with 'cholesky 1'; expected names and numbers of iterations"):
        cagp.Hybrid("gauss-seidel 1, cholesky 1")
    with pytest.raises(ArgumentError, match=r"block_size is 40 beside parts that are solvers"):
        cagp.Hybrid([BLOCKS], block_size=40)


def test_calibrated_is_that_of_the_parts():
    for parts in itertools.permutations([BLOCKS, cagp.RandomActions(2), cagp.SOR(1, 1.2)]):
        assert cagp.Hybrid(parts).calibrated == "exact"
        assert cagp.Hybrid([*parts, DIRECTIONS]).calibrated == "approximate"
    assert cagp.Hybrid([BLOCKS, cagp.RandomActions(2)], condition=True).calibrated == "exact"
    assert cagp.Hybrid([BLOCKS, DIRECTIONS], condition=True).calibrated == "approximate"
