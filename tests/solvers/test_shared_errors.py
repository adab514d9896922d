"""Shared errors beside neighbours of the field (math 25): against dense algebra, and by simulation."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.sparse import csr_array

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.gram import TiledGram
from cagp_dist.gram.metric import metric
from cagp_dist.gram.targets import joined_targets
from cagp_dist.gram.vecchia_factor import vecchia_factor
from cagp_dist.runtime import SerialExecutor, ThreadExecutor
from cagp_dist.solvers.local.neighbours import _Work
from cagp_dist.solvers.local.shared_errors import (
    DENSE_NEIGHBOURS,
    FACTOR_NEIGHBOURS,
    SharedErrors,
    Sharing,
)

from ..oracle import assert_same_bits

UNSEEN = 24  # target of a ship of which there are no rows
FIELD, SHIP, SENSOR, NOISE = cagp.Matern32(0.05, 4.0), 1.0, 0.3, 0.25


@dataclass(frozen=True)
class _Rows:
    """Rows of ships and sensors, some of neither, and targets: of the field, of a ship, errors of ships."""

    X: np.ndarray
    F: np.ndarray
    targets: cagp.LinearFunctionals
    beside: np.ndarray  # F*
    prior: cagp.Prior

    def draw(self, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Observations, and what the targets are."""
        n = len(self.X)
        P = np.vstack([self.X[:, :3], self.targets.nodes[self.targets.starts, :3]])
        covariance = FIELD(P, P) + 1e-9 * np.eye(len(P))
        field = np.linalg.cholesky(covariance) @ generator.standard_normal(len(P))
        errors = self.deviations * generator.standard_normal(self.F.shape[1])
        of_field = np.where(self.targets.counts == 1, field[n:], 0.0)
        seen = 10.0 + field[:n] + self.F @ errors + np.sqrt(NOISE) * generator.standard_normal(n)
        truth = 10.0 * (self.targets.counts == 1) + of_field + self.beside @ errors
        truth[UNSEEN] += np.sqrt(SHIP) * generator.standard_normal()
        return seen, truth

    @property
    def deviations(self) -> np.ndarray:
        """Of the errors."""
        sensors = 3
        return np.sqrt(np.repeat([SENSOR, SHIP], [sensors, self.F.shape[1] - sensors]))


def _rows(n: int, ships: int, seed: int = 0, *, degrees: float = 10.0) -> _Rows:
    generator = np.random.default_rng(seed)
    north_east = [45.0 + degrees, 1.5 * degrees]
    places = cagp.unit_sphere(*generator.uniform([45.0, 0.0], north_east, (n + 25, 2)).T)
    ship, sensor = np.arange(n) % ships, generator.integers(-1, 3, n)
    ship[::17] = -1
    X = np.column_stack([places[:n], sensor, ship])
    new = np.column_stack([places[n:], np.full((25, 2), -1.0)])
    new[20:, 4] = [0, 1, 2, 3, ships + 5]  # the last one has not been seen
    errors = np.repeat(new[:1], 2 * ships, axis=0)
    errors[::2, 4] = np.arange(ships)
    signs, counts = np.tile([1.0, -1.0], ships), np.full(ships, 2)
    targets = joined_targets([new, cagp.LinearFunctionals.of_terms(errors, signs, counts)])
    known = np.arange(3 + ships)
    F = np.column_stack([sensor[:, None] == known[:3], ship[:, None] == known[:ships]]).astype(float)
    beside = np.zeros((25 + ships, 3 + ships))
    beside[20:24, 3:7], beside[25:, 3:] = np.eye(4), np.eye(ships)
    kernel = FIELD + cagp.SameLabel(SENSOR, axis="sensor") + cagp.SameLabel(SHIP, axis="ship")
    assert isinstance(targets, cagp.LinearFunctionals)
    return _Rows(X, F, targets, beside, cagp.Prior(kernel, NOISE, 10.0))


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_with_all_neighbours_it_is_the_posterior_t46(covariance):
    rows = _rows(150, 12)
    y, _ = rows.draw(np.random.default_rng(1))
    exact = cagp.condition(rows.prior, rows.X, y, rows.targets, solver=cagp.Cholesky(), covariance=covariance)
    found = cagp.condition(
        rows.prior, rows.X, y, rows.targets, solver=cagp.Neighbours(150), covariance=covariance
    )
    assert found.status is cagp.Status.EXACT
    np.testing.assert_allclose(found.mean, exact.mean, atol=1e-10)
    np.testing.assert_allclose(found.variance, exact.variance, atol=1e-10)
    if covariance == "full":
        np.testing.assert_allclose(found.covariance, exact.covariance, atol=1e-10)
        np.testing.assert_array_equal(found.covariance, found.covariance.T)
    mean = cagp.posterior_mean(rows.prior, rows.X, y, rows.targets, solver=cagp.Neighbours(150))
    np.testing.assert_allclose(mean, exact.mean, atol=1e-10)


def test_with_some_it_is_the_formula_and_its_law_is_near_t37():
    """Weights ``A = W + R C^-1 F'P``; deviations are near those of their law, and of the posterior.

    Here they are .9976 to 1.0039 times those of the law, and .9981 to 1.0105 times those of the posterior.
    """
    rows, k, m = _rows(600, 30), 48, 25
    y, _ = rows.draw(np.random.default_rng(2))
    found = cagp.condition(rows.prior, rows.X, y, rows.targets, solver=cagp.Neighbours(k))
    exact = cagp.condition(rows.prior, rows.X, y, rows.targets, solver=cagp.Cholesky())
    P, n = rows.X[:, :3], len(rows.X)
    factor = vecchia_factor(FIELD, P, NOISE, neighbours=FACTOR_NEIGHBOURS, executor=SerialExecutor())
    precision, B = factor.solve(np.eye(n)), np.diag(rows.deviations**2)
    alone = TiledGram(FIELD, P, noise_variance=np.full(n, NOISE))
    new = rows.targets.nodes[:m, :3]
    W = np.zeros((len(rows.targets), n))
    W[:m] = _Work(cagp.Neighbours(k), alone, new, SerialExecutor()).weights().toarray()
    R = rows.beside - W @ rows.F
    A = W + R @ np.linalg.solve(rows.F.T @ precision @ rows.F + np.linalg.inv(B), rows.F.T @ precision)
    prior_mean = np.where(rows.targets.counts == 1, 10.0, 0.0)
    np.testing.assert_allclose(found.mean, prior_mean + A @ (y - 10.0), atol=1e-10)

    G = FIELD(P, P) + NOISE * np.eye(n) + rows.F @ B @ rows.F.T
    V = rows.beside @ B @ rows.F.T
    V[:m] += FIELD(new, P)
    prior = rows.prior.kernel
    of_prior = rows.targets.prior_variance(prior)
    law = of_prior - 2.0 * np.sum(A * V, axis=1) + np.sum((A @ G) * A, axis=1)
    ratio = np.sqrt(found.variance / law)
    assert 0.995 < ratio.min() <= ratio.max() < 1.005
    ratio = np.sqrt(found.variance / exact.variance)
    assert 0.98 < ratio.min() <= ratio.max() < 1.02


def test_among_dense_rows_more_neighbours_tell_the_errors():
    """Some 2,000 within a lengthscale: errors of ships are stated as by T37, within .9984 to 1.0005.

    With 60 neighbours .9968 to .9992.
    """
    rows = _rows(1500, 20, degrees=4.2)
    sharing = Sharing.of(TiledGram(rows.prior.kernel, rows.X, noise_variance=np.full(1500, NOISE)))
    F = sharing.of_observations.toarray()
    G = FIELD(rows.X[:, :3], rows.X[:, :3]) + NOISE * np.eye(1500)
    wanted = csr_array(np.eye(F.shape[1]))
    errors = SharedErrors(sharing, wanted, neighbours=48, executor=SerialExecutor())
    A = errors.estimate(np.eye(1500))
    law = (A @ G * A).sum(axis=1) + ((A @ F - np.eye(len(A))) ** 2 @ sharing.variances)
    ratio = np.sqrt(errors.variances() / law)
    assert errors.neighbours == DENSE_NEIGHBOURS
    assert 0.998 < ratio.min() <= ratio.max() < 1.002


def test_all_executors_give_the_same_bits():
    rows = _rows(700, 40)
    y, _ = rows.draw(np.random.default_rng(3))
    given = rows.prior, rows.X, y, rows.targets
    alone = cagp.condition(*given, solver=cagp.Neighbours(24), executor="serial")
    with ThreadExecutor(3) as executor:
        assert_same_bits(cagp.condition(*given, solver=cagp.Neighbours(24), executor=executor), alone)


@pytest.mark.exhaustive
def test_dask_gives_the_same_bits(two_dask_workers):
    rows = _rows(700, 40)
    y, _ = rows.draw(np.random.default_rng(3))
    given = rows.prior, rows.X, y, rows.targets
    alone = cagp.condition(*given, solver=cagp.Neighbours(24), executor="serial")
    found = cagp.condition(*given, solver=cagp.Neighbours(24), executor=two_dask_workers)
    assert_same_bits(found, alone)


@pytest.mark.parametrize("given", [{"drift": "constant"}, {"shared_errors": "near"}])
def test_neighbours_alone_are_never_below_the_posterior_t38(given):
    """Of a drift they have to be: coefficients of errors would be those of what the drift leaves."""
    rows = _rows(150, 12)
    y, _ = rows.draw(np.random.default_rng(4))
    asked = rows.prior, rows.X, y, rows.targets.nodes[:25]
    exact = cagp.condition(*asked, solver=cagp.Cholesky())
    found = cagp.condition(*asked, solver=cagp.Neighbours(40, **given))
    assert (found.variance > exact.variance * (1.0 - 1e-9)).all()


@pytest.mark.parametrize("simulations", [40, pytest.param(400, marks=pytest.mark.exhaustive)])
def test_error_bars_hold(simulations):
    """Mean squares of standardised errors of the field, of readings and of ships, over fields of the model.

    Errors at targets of one field go together, so that standard errors are taken over fields.
    """
    rows = _rows(400, 20)
    squares = []
    for seed in range(simulations):
        y, truth = rows.draw(np.random.default_rng([9, seed]))
        found = cagp.condition(rows.prior, rows.X, y, rows.targets, solver=cagp.Neighbours(32))
        squares.append((found.mean - truth) ** 2 / found.variance)
    for kind in (slice(0, 20), slice(20, 25), slice(25, None)):
        of_fields = np.mean(np.array(squares)[:, kind], axis=1)
        assert abs(of_fields.mean() - 1.0) < 4.0 * of_fields.std() / np.sqrt(simulations)


def test_rows_of_no_ship_and_labels_that_the_field_has_too_are_solved_as_by_cholesky():
    generator, n = np.random.default_rng(4), 80
    X, new = (np.column_stack([generator.uniform(size=(m, 2)), np.zeros(m)]) for m in (n, 4))
    label, at = np.arange(n) % 2, np.array([0.0, 1.0, 0.0, 1.0])
    table = cagp.Coregion([[1.0, 0.5], [0.5, 1.0]], axis="variable")
    of_ship = cagp.Matern32(0.2, 2.0) + cagp.SameLabel(0.5, axis="ship")
    of_sensor = cagp.Matern32(0.2, 2.0) * table + cagp.SameLabel(0.5, axis="variable")
    for kernel, given, wanted in ((of_ship, np.full(n, -1.0), at), (of_sensor, label, at)):
        problem = (
            cagp.Prior(kernel, 0.1),
            np.column_stack([X, given]),
            generator.standard_normal(n),
            np.column_stack([new, wanted]),
        )
        exact = cagp.condition(*problem, solver=cagp.Cholesky())
        found = cagp.condition(*problem, solver=cagp.Neighbours(n))
        np.testing.assert_allclose(found.mean, exact.mean, atol=1e-10)
        np.testing.assert_allclose(found.variance, exact.variance, atol=1e-10)


def test_what_is_shared_at_any_distance_brings_nothing_near():
    table = cagp.Coregion([[1.0, 0.5], [0.5, 1.0]], axis="variable")
    field = cagp.Matern32(0.2, 1.0) * table
    with_errors = field + 4.0 * (cagp.SameLabel(1.0, axis="ship") * table)
    X = np.column_stack([np.random.default_rng(5).uniform(size=(6, 3)), [0, 1, 0, 1, 0, 1]])
    beside = np.column_stack([X[:, :3], np.arange(6), X[:, 3]])
    alone, together = X * metric(field, 4), beside * metric(with_errors, 5)
    np.testing.assert_allclose(together, alone, rtol=1e-12)
    only = cagp.SameLabel(1.0, axis="ship")
    with pytest.raises(ArgumentError) as refused:
        metric(only, 4)
    assert refused.value.key == "kernel-without-distance"
