"""What holds for every registered solver whose matrix does not depend on the data (math 1.1, 1.2, 1.3).

Its matrix A is read off the means of unit vectors, its downdate off the covariance: nothing but what
`cagp.condition` returns, on points, on a whole grid, and on one with gaps.
"""

from dataclasses import dataclass

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.runtime import SerialExecutor

from ..oracle import assert_close, kernel_matrix
from .registered import GRID_SOLVERS, SOLVERS

pytestmark = pytest.mark.usefixtures("one_blas_thread")

Array = np.ndarray
KERNEL = cagp.Matern12(0.6, variance=2.0)
LATITUDES, LONGITUDES = np.linspace(-70.0, 70.0, 4), 6
NEW = cagp.unit_sphere([3.0, -80.0, 40.0, 51.0], [10.0, 250.0, 111.0, -30.0])
LINEAR = {name: solver for name, solver in SOLVERS.items() if solver.calibrated == "exact"}


@dataclass(frozen=True, eq=False)
class Solved:
    """G, ``V = k(X', X)``, ``K'' = k(X', X')``, noise, and of a solver ``V A`` and its covariance."""

    G: Array
    V: Array
    K2: Array
    VA: Array
    points: Array
    posterior: cagp.Posterior

    @property
    def left(self) -> Array:
        """``Y0 = V' - G A' V'``."""
        return self.V.T - self.G @ self.VA.T


def solve(solver, where: str, *, at_observed: bool = False, mean=0.0) -> Solved:
    """Every unit vector as a field, at new points or at the observed ones."""
    grid = cagp.LatLonGrid(LATITUDES, LONGITUDES)
    seen = np.ones(grid.shape, dtype=bool)
    if where == "gaps":
        seen[1, 2:5] = seen[3, 0] = False
    points = grid.points[seen.ravel()]
    n = len(points)
    noise = np.linspace(0.05, 0.5, n) if where == "points" else np.full(n, 0.1)
    targets = points if at_observed else NEW
    if where == "points":
        X, y, prior = points, np.eye(n), cagp.Prior(KERNEL, noise, mean)
    else:
        X, y, prior = grid, np.full((n, *grid.shape), np.nan), cagp.Prior(KERNEL, 0.1, mean)
        y[:, seen] = np.eye(n)
    posterior = cagp.condition(
        prior, X, y, targets, solver=solver, covariance="full", executor=SerialExecutor()
    )
    return Solved(
        kernel_matrix(KERNEL, points, points) + np.diag(noise),
        kernel_matrix(KERNEL, targets, points),
        kernel_matrix(KERNEL, targets, targets),
        posterior.mean,
        points,
        posterior,
    )


@pytest.fixture(scope="module", params=["points", "grid", "gaps"])
def where(request) -> str:
    return request.param


@pytest.fixture(scope="module", params=LINEAR.values(), ids=LINEAR.keys())
def solver(request, where):
    if where == "points" and request.param in GRID_SOLVERS.values():
        pytest.skip("needs a grid")
    return request.param


@pytest.fixture(scope="module")
def solved(solver, where) -> Solved:
    return solve(solver, where)


def test_the_variance_is_that_of_the_worst_case_t1(solved):
    """``w' Kaug w = kt + s2`` with ``w = [-A' V_x'; 1]`` and ``Kaug`` the Gram of observed and new point."""
    noise, posterior = 0.3, solved.posterior
    bound = posterior.worst_case_error(5.0, noise_variance=noise)
    for x in range(len(NEW)):
        seen = solved.V[[x]]
        Kaug = np.block([[solved.G, seen.T], [seen, solved.K2[[x], [x]] + noise]])
        w = np.append(-solved.VA[x], 1.0)
        assert w @ Kaug @ w == pytest.approx(posterior.variance[x] + noise, rel=1e-10)
        # and a field of that norm whose error is the bound: the representer Kaug w
        worst = 5.0 * Kaug @ w / np.sqrt(w @ Kaug @ w)
        assert worst @ np.linalg.solve(Kaug, worst) == pytest.approx(25.0, rel=1e-9)
        assert worst[-1] - solved.VA[x] @ worst[:-1] == pytest.approx(bound[x], rel=1e-9)


def test_no_field_of_bounded_norm_has_a_larger_error_t1(solved):
    """The field with errors at the observed points, latent at the new ones."""
    rng = np.random.default_rng(0)
    n = len(solved.G)
    K = np.block([[solved.G, solved.V.T], [solved.V, solved.K2]])
    fields = np.linalg.cholesky(K) @ rng.normal(size=(n + len(NEW), 200))
    norms = np.sqrt(np.einsum("ij,ij->j", fields, np.linalg.solve(K, fields)))
    errors = np.abs(fields[n:] - solved.VA @ fields[:n])
    assert (errors <= solved.posterior.worst_case_error(1.0)[:, None] * norms * (1.0 + 1e-9)).all()


def test_the_unfinished_part_is_what_the_leftover_says_t4(solved):
    """``kt - kbar = Y0' G^-1 Y0``, with kbar the exact covariance; as matrices."""
    exact = solved.K2 - solved.V @ np.linalg.solve(solved.G, solved.V.T)
    expected = solved.left.T @ np.linalg.solve(solved.G, solved.left)
    assert np.abs(solved.posterior.covariance - exact - expected).max() < 1e-12 * np.abs(solved.K2).max()


def test_the_downdate_is_that_of_the_weights_t5(solved):
    """``V D V' = Wt' V' + V Wt - Wt' G Wt`` with ``Wt = A' V'``."""
    weights = solved.VA.T
    expected = weights.T @ solved.V.T + solved.V @ weights - weights.T @ solved.G @ weights
    assert_close(solved.K2 - solved.posterior.covariance, expected, relative=1e-11)


def test_the_belief_about_the_solution_is_what_the_errors_left_t6(solver, where):
    """``G^-1 - D = M G^-1 M'`` with ``M = I - A G``, as matrices (n, n): targets where it was observed."""
    found = solve(solver, where, at_observed=True)
    A = np.linalg.solve(found.V, found.VA)
    half = np.linalg.solve(found.V, found.K2 - found.posterior.covariance)
    D = np.linalg.solve(found.V, half.T)
    inverse = np.linalg.inv(found.G)
    M = np.eye(len(found.G)) - A @ found.G
    assert np.abs(inverse - D - M @ inverse @ M.T).max() < 1e-9 * np.abs(inverse).max()


def test_the_variance_counts_the_coefficients_of_a_mean_t37(solver, where):
    """``L H = H'`` and ``kt = K'' - L V' - V L' + L G L'``, with L read off the means (math 1.7)."""
    mean = cagp.BasisMean(lambda X: np.column_stack([np.ones(len(X)), X[:, 2], X[:, 0]]), ("one", "z", "x"))
    found = solve(solver, where, mean=mean)
    L, covariance = found.VA, found.posterior.covariance
    basis, there = mean.basis_at(found.points), mean.basis_at(NEW)
    assert np.abs(L @ basis - there).max() < 1e-10
    expected = found.K2 - L @ found.V.T - found.V @ L.T + L @ found.G @ L.T
    assert np.abs(covariance - expected).max() < 1e-10 * np.abs(found.K2).max()
    assert_close(found.posterior.variance, covariance.diagonal())


def test_every_solver_that_is_exactly_calibrated_is_tested():
    assert len(LINEAR) >= 20
    assert all(solver.many_fields for solver in LINEAR.values())


@pytest.mark.parametrize(
    ("norm", "noise", "text"),
    [
        (-1.0, 0.0, "rkhs_norm is -1.0; expected"),
        (np.inf, 0.0, "rkhs_norm is inf; expected"),
        (1.0, -0.1, "noise_variance holds NaN, infinity or numbers below zero; expected variances"),
        (1.0, [0.1, 0.2], r"noise_variance has shape \(2,\); expected one number, or one for each target"),
    ],
)
def test_what_a_worst_case_needs_is_checked(norm, noise, text):
    posterior = solve(cagp.GaussSeidel(2), "points").posterior
    with pytest.raises(ArgumentError, match=text):
        posterior.worst_case_error(norm, noise_variance=noise)
