"""Relaxations of stages that solve all blocks at once: those that converge are taken, others refused."""

import re

import numpy as np
import pytest
from scipy.linalg import eigh

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.solvers.stationary.spectrum import lanczos

from ..grids import grid_problem
from ..joined import one_after_another
from ..oracle import assert_close, block_diagonal
from ..problems import RegressionProblem, regression_problem
from .engine import opened, tiled

pytestmark = pytest.mark.usefixtures("one_blas_thread")

N = 300
MAKE = {
    "step": lambda w: cagp.Richardson(2, step=w),
    "damping": lambda w: cagp.Jacobi(2, damping=w),
    "damping of blocks": lambda w: cagp.BlockJacobi(2, block_size=40, damping=w),
    "damping of one block": lambda w: cagp.BlockJacobi(2, block_size=N, damping=w),
}
every_setting = pytest.mark.parametrize("setting", MAKE)


@pytest.fixture(scope="module", params=[0.05, 2.0], ids=["short", "long"])
def problem(request) -> RegressionProblem:
    noise = 0.02 * 40.0 ** np.random.default_rng(1).uniform(-0.5, 0.5, size=N)
    return regression_problem(N, q=5, lengthscale=request.param, noise_variance=noise)


def limit(setting: str, G: np.ndarray) -> float:
    """``2 / lambda_max(P^-1 G)``."""
    n = len(G)
    P = {
        "step": np.eye(n),
        "damping": np.diag(np.diag(G)),
        "damping of blocks": block_diagonal(G, 40),
        "damping of one block": G,
    }[setting]
    return 2.0 / float(eigh(G, P, eigvals_only=True)[-1])


@one_after_another
@every_setting
@pytest.mark.parametrize("part", [0.2, 0.94, 0.98])
def test_what_converges_is_taken(problem, setting, part):
    largest = limit(setting, problem.dense.G)
    posterior = problem.condition(MAKE[setting](part * largest))
    assert posterior.status.ok
    assert posterior.stats.downdate_psd or part > 0.95
    assert (posterior.variance <= problem.prior.kernel.variance).all()


@one_after_another
@every_setting
@pytest.mark.parametrize("part", [1.02, 1.5, 100.0])
def test_what_diverges_is_refused_with_the_range(problem, setting, part):
    largest = limit(setting, problem.dense.G)
    name = setting.partition(" ")[0]
    with pytest.raises(
        ArgumentError, match=rf"{name} is .*, with which the iteration diverges .* above 0 and below "
    ) as error:
        problem.condition(MAKE[setting](part * largest))
    said = float(re.search(r"below ([\d.e+-]+)\. Leave", str(error.value))[1])
    assert 0.98 * largest <= said <= 1.01 * largest
    # so says the mean alone
    with pytest.raises(ArgumentError, match=rf"{name} is .*, with which the iteration diverges"):
        cagp.posterior_mean(
            problem.prior, problem.X, problem.y, problem.X_test, solver=MAKE[setting](part * largest)
        )


def test_a_lanczos_iteration_may_end_with_a_residual_of_exactly_zero():
    """Of one eigenvalue, or of two, on a start that the arithmetic does not round."""
    eigenvalues = np.array([[4.0], [4.0], [2.0]])
    for start, largest in (([1.0, 0.0, 0.0], 4.0), ([0.0, 0.0, 1.0], 2.0), ([3.0, 0.0, 3.0], 4.0)):
        found = lanczos(lambda p: (p, eigenvalues * p), np.array(start)[:, None], steps=40)
        assert_close(np.array(found), np.array(largest), relative=1e-14)
    assert lanczos(lambda p: (p, p), np.zeros((3, 1)), steps=40) == 0.0
    # of a product that rounding has left below zero
    assert lanczos(lambda p: (p, -1e-16 * p), np.array([[1.0], [0.0]]), steps=40) == -1e-16


@pytest.mark.parametrize("name", ["poles, even Q", "irregular latitudes"])
def test_bands_of_rings_are_checked_alike(name):
    problem = grid_problem(name)
    prior = cagp.Prior(problem.kernel, float(problem.layout.noise[0]))
    field = problem.field()
    solver = cagp.BlockJacobi(2, block_size=2 * problem.grid.n_longitudes, damping=3.0)
    with pytest.raises(ArgumentError) as error:
        cagp.condition(prior, problem.grid, field, problem.points[:3], solver=solver)
    assert error.value.key == "relaxation"
    largest = float(re.search(r"below ([\d.e+-]+)\. Leave", str(error.value))[1])
    for part, psd in ((0.9, True), (0.97, False)):
        taken = cagp.BlockJacobi(200, block_size=solver.block_size, damping=part * largest)
        posterior = cagp.condition(prior, problem.grid, field, problem.points[:3], solver=taken)
        assert posterior.stats.plan.rings_per_block == 2
        assert posterior.status.ok
        assert posterior.stats.downdate_psd == psd


@pytest.mark.parametrize(
    "solver",
    [cagp.SOR(2, 1.9), cagp.Jacobi(2), cagp.Richardson(0), cagp.ConjugateGradient(3), cagp.Cholesky()],
)
def test_downdates_that_cannot_be_negative_are_said_to_be_so(problem, solver):
    """``downdate_psd``: every W is positive semidefinite, or the downdate a projection (math 1.4)."""
    posterior = problem.condition(solver)
    assert posterior.stats.downdate_psd
    downdate = problem.dense.K2 - posterior.covariance
    assert np.linalg.eigvalsh(downdate).min() > -1e-12 * problem.prior.kernel.variance


@pytest.mark.parametrize(("block_size", "colours"), [(7, 2), (40, 2), (40, 3)])
def test_what_couples_blocks_of_a_colour_is_bounded_from_above(problem, block_size, colours):
    """And not by much: by the number of blocks, and by less than three times the eigenvalue here."""
    G = problem.dense.G
    gram = tiled(problem)
    solver = cagp.BlockGaussSeidel(1, block_size, order="multicolour", colours=colours)
    system, cycle = opened(problem, solver, problem.dense.b[:, None], q=5, workers=1)
    assert len(cycle) == colours
    for stage in cycle:
        blocks = np.arange(gram.shape[0]) // block_size
        members = np.isin(blocks, stage.members(system.blocks))
        P = block_diagonal(G, block_size)[np.ix_(members, members)]
        largest = float(eigh(G[np.ix_(members, members)], P, eigvals_only=True)[-1])
        bound = system.coupling(stage)
        assert largest <= bound * (1.0 + 1e-12)
        assert bound <= min(len(stage.members(system.blocks)) * (1.0 + 1e-12), 2.5 * largest)
