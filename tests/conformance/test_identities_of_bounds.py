"""Identities T31-T34 of the mathematics page: lower bounds of the likelihood that actions give, by tiles.

Here the dense formulas are written out as they stand in the sources; those of the package are others.
"""

import itertools

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, BudgetError, NumericalError
from cagp_dist.likelihood.learned import projected_data
from cagp_dist.likelihood.learned.elbo import Elbo
from cagp_dist.likelihood.learned.objective import Hyperparameters
from cagp_dist.likelihood.learned.projected_data import ProjectedData
from cagp_dist.runtime import SerialExecutor, ThreadExecutor
from cagp_dist.runtime.dask import DaskExecutor
from cagp_dist.solvers.actions import block_sparse
from cagp_dist.solvers.actions.block_sparse import BlockLayout
from pipelines.experiments.projected_likelihood import ProjectedLikelihood

from ..oracle import assert_close

pytestmark = pytest.mark.usefixtures("one_blas_thread")

OBJECTIVES = {"elbo": Elbo, "projected": ProjectedLikelihood}
ONE = cagp.Matern12, cagp.Matern32, cagp.Matern52, cagp.SquaredExponential
MODELS = {
    **{family.__name__: (family, False) for family in ONE},
    **{f"{family.__name__} by coordinate": (family, True) for family in ONE},
    "sum": ((cagp.Matern32, cagp.Matern52), False),
    "sum by coordinate": ((cagp.Matern12, cagp.SquaredExponential), True),
}
every_model = pytest.mark.parametrize(("kernel", "anisotropic"), MODELS.values(), ids=MODELS.keys())
every_objective = pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES.keys())


def data_of(kernel, X, b, layout, anisotropic=False, executor=None, limit=2**30):
    """Data that actions look at, in series unless told otherwise."""
    return ProjectedData(
        kernel,
        X,
        b,
        layout=layout,
        executor=executor or SerialExecutor(),
        memory_limit_bytes=limit,
        anisotropic=anisotropic,
    )


class Case:
    """An objective at a random place, and its matrices, evaluated without tiles."""

    def __init__(
        self,
        objective=Elbo,
        kernel=cagp.Matern32,
        anisotropic=False,
        *,
        n=31,
        p=3,
        actions=6,
        fields=1,
        order="space-filling",
        seed=0,
        executor=None,
    ):
        rng = np.random.default_rng([seed, n, actions])
        self.X, self.b = rng.uniform(size=(n, p)), rng.normal(size=(n, fields))
        self.layout = BlockLayout.of(self.X, actions, order=order)
        self.of = objective(data_of(kernel, self.X, self.b, self.layout, anisotropic, executor))
        numbers = self.of.size - n
        self.x = np.concatenate([np.log(rng.uniform(0.2, 1.5, size=numbers)), rng.normal(size=n)])
        self.hyperparameters = Hyperparameters.of(kernel, self.X, anisotropic=anisotropic)
        self.kernel, self.noise = self.hyperparameters.read(self.x)
        self.K = self.kernel(self.X, self.X)
        self.G = self.K + self.noise * np.eye(n)

    @property
    def S(self):
        """Actions, dense."""
        return self.layout.columns(self.x[-len(self.X) :])

    @property
    def log_likelihood(self):
        """Of all fields."""
        distribution = multivariate_normal(np.zeros(len(self.X)), self.G)
        return float(np.sum(distribution.logpdf(self.b.T)))

    def posterior(self, S):
        """Mean (n, T) and covariance of the computation-aware posterior at X."""
        gain = self.K @ S @ np.linalg.inv(S.T @ self.G @ S) @ S.T
        return gain @ self.b, self.K - gain @ self.K


def elbo_of(case, S):
    """``E_q log p(y | f) - KL(q || p)`` of the posterior of actions S, field by field."""
    n, total = len(case.X), 0.0
    mean, covariance = case.posterior(S)
    precision = np.linalg.inv(case.K)
    for t in range(case.b.shape[1]):
        misfit = np.sum((case.b[:, t] - mean[:, t]) ** 2) + np.trace(covariance)
        total -= 0.5 * (misfit / case.noise + n * np.log(2.0 * np.pi * case.noise))
        ratio = precision @ covariance
        total -= 0.5 * (
            np.trace(ratio) - n - np.linalg.slogdet(ratio)[1] + mean[:, t] @ precision @ mean[:, t]
        )
    return total


def projected_of(case, S):
    """Log density of the data, projected on an orthonormal basis of actions with disjoint blocks."""
    S = S / np.linalg.norm(S, axis=0)
    distribution = multivariate_normal(np.zeros(S.shape[1]), S.T @ case.G @ S)
    return float(np.sum(np.atleast_1d(distribution.logpdf((S.T @ case.b).T))))


@every_model
def test_the_bound_is_what_it_stands_for_t31(kernel, anisotropic):
    for seed, fields in ((0, 1), (1, 3)):
        case = Case(Elbo, kernel, anisotropic, n=23, actions=5, fields=fields, seed=seed)
        assert case.of(case.x)[0] == pytest.approx(elbo_of(case, case.S), rel=1e-7)
        case = Case(ProjectedLikelihood, kernel, anisotropic, fields=fields, seed=seed)
        assert case.of(case.x)[0] == pytest.approx(projected_of(case, case.S), rel=1e-10)


def test_the_bound_is_below_the_likelihood_t32():
    """On 200 random problems, of random size, kernel and actions."""
    rng, models = np.random.default_rng(0), itertools.cycle(MODELS.values())
    for seed, (kernel, anisotropic) in zip(range(200), models, strict=False):
        n = int(rng.integers(1, 40))
        actions, fields = int(rng.integers(1, n + 1)), int(rng.integers(1, 3))
        case = Case(Elbo, kernel, anisotropic, n=n, actions=actions, fields=fields, seed=seed)
        value, exact = case.of(case.x)[0], case.log_likelihood
        assert value <= exact + 1e-9 * abs(exact)


def nested_bounds(seed, fields_of):
    """Bounds with blocks that are cut in two again and again, each time with the same entries."""
    rng = np.random.default_rng(seed)
    X, entries = rng.uniform(size=(32, 3)), rng.normal(size=32)
    lengthscale, noise = rng.uniform(0.2, 1.5), 10.0 ** rng.uniform(-3.0, 0.0)
    root = np.linalg.cholesky(cagp.Matern32(lengthscale)(X, X) + noise * np.eye(32))
    b = fields_of(root, rng)
    vector = np.concatenate([np.log([lengthscale, 1.0, noise]), entries])
    return [
        Elbo(data_of(cagp.Matern32, X, b, BlockLayout.of(X, actions, order="given")))(vector)[0] / b.shape[1]
        for actions in (1, 2, 4, 8, 16, 32)
    ]


def test_the_bound_rises_with_nested_actions_on_average_t32():
    """The mean over data of the prior, exactly: 32 fields with the second moments of infinitely many."""
    for seed in range(60):
        found = nested_bounds(seed, lambda root, rng: np.sqrt(32.0) * root)
        assert all(earlier < later for earlier, later in itertools.pairwise(found))


def test_the_bound_may_fall_with_one_more_action_t32():
    """For single data there is no such promise: one sum more may point away from what all of them say."""
    falls = [
        min(np.diff(nested_bounds(seed, lambda root, rng: root @ rng.normal(size=(32, 1))))) < 0.0
        for seed in range(40)
    ]
    assert 0 < sum(falls) < 20


@every_objective
def test_the_length_of_an_action_says_nothing_t33(objective):
    """Entries of a block may be multiplied by any number but zero; dense S by any invertible matrix."""
    case = Case(objective, fields=2)
    value, gradient = case.of(case.x)
    factors = np.random.default_rng(1).normal(size=6)
    scaled, block_of = case.x.copy(), np.empty(31, dtype=int)
    block_of[case.layout.order] = case.layout.block_of
    scaled[-31:] *= factors[block_of]
    again, its = case.of(scaled)
    assert again == pytest.approx(value, rel=1e-12)
    assert_close(its[:-31], gradient[:-31])
    assert_close(its[-31:] * factors[block_of], gradient[-31:])
    along = np.bincount(block_of, case.x[-31:] * gradient[-31:])
    assert np.abs(along).max() < 1e-10 * np.abs(gradient).max(), "no slope along the length"
    W = np.random.default_rng(2).normal(size=(6, 6))
    assert elbo_of(case, case.S @ W) == pytest.approx(elbo_of(case, case.S), rel=1e-7)


@every_model
def test_as_many_actions_as_points_give_the_likelihood_t34(kernel, anisotropic):
    for objective in OBJECTIVES.values():
        case = Case(objective, kernel, anisotropic, actions=31, fields=2)
        assert case.of(case.x)[0] == pytest.approx(case.log_likelihood, rel=1e-10)


def test_as_many_actions_as_points_give_the_posterior_t34():
    case, X_test = Case(), np.random.default_rng(5).uniform(size=(7, 3))
    prior = cagp.Prior(case.kernel, case.noise)
    found, expected = (
        cagp.condition(prior, case.X, case.b[:, 0], X_test, solver=solver, covariance="full")
        for solver in (cagp.SparseActions(31), cagp.Cholesky())
    )
    assert_close(found.mean, expected.mean)
    assert_close(found.covariance, expected.covariance)
    assert found.status is cagp.Status.EXACT


@every_objective
@every_model
def test_gradients_are_those_of_differences(objective, kernel, anisotropic):
    """By every hyperparameter and every entry of S; blocks of five and six points; to 1e-6 of the largest."""
    case = Case(objective, kernel, anisotropic, fields=2)
    assert sorted(set(np.diff(case.layout.edges))) == [5, 6]
    assert_gradient_of_differences(case.of, case.x)


@every_objective
def test_gradients_are_those_of_differences_where_nothing_is_left_of_the_data(objective):
    """All data are zero, and so is the residual."""
    case = Case(objective)
    of = objective(data_of(cagp.Matern32, case.X, np.zeros((31, 1)), case.layout))
    assert_gradient_of_differences(of, case.x)


def test_gradients_are_precise_with_little_noise():
    """tr(K) / noise is 4e8 here, and nearly all of it cancels."""
    case = Case(kernel=cagp.SquaredExponential, n=400, actions=40)
    x = np.concatenate([np.log([0.6, 4.0, 4e-6]), np.ones(400)])
    _, gradient = case.of(x)
    for seed in range(5):
        way = np.random.default_rng(seed).normal(size=len(x)) / np.sqrt(len(x))
        after, before = (case.of(x + step * way)[0] for step in (1e-6, -1e-6))
        np.testing.assert_allclose(
            (after - before) / 2e-6, gradient @ way, rtol=0.0, atol=1e-5 * np.linalg.norm(gradient)
        )


def assert_gradient_of_differences(of, x, *, step=1e-5):
    """By hyperparameters and by entries of S apart, to 1e-6 of the largest."""
    gradient = of(x)[1]
    differences = [
        (of(x + step * direction)[0] - of(x - step * direction)[0]) / (2.0 * step)
        for direction in np.eye(of.size)
    ]
    for part in (slice(None, -31), slice(-31, None)):
        scale = np.abs(gradient[part]).max()
        assert np.abs(gradient - differences)[part].max() < 1e-6 * scale


@every_objective
def test_tiles_of_any_size_and_points_far_apart_change_nothing(objective, monkeypatch):
    """Several tiles, of which some pairs are left out because the kernel has vanished between them."""
    near = Case(objective, n=200, actions=20, fields=2)
    value, gradient = near.of(near.x)
    monkeypatch.setattr(block_sparse, "TILE", 30)
    monkeypatch.setattr(projected_data, "PIECE_BYTES", 8 * 20 * 30)
    assert projected_data.piece_rows(20) == 30
    assert len(near.layout.tiles) == 7
    again = Case(objective, n=200, actions=20, fields=2)
    other, its = again.of(again.x)
    assert other == pytest.approx(value, rel=1e-13)
    assert_close(its, gradient, relative=1e-11)
    short = near.x.copy()
    short[0] = np.log(0.002)
    value, gradient = again.of(short)
    kernel, noise = near.hyperparameters.read(short)
    near.K = kernel(near.X, near.X)
    near.G, near.noise = near.K + noise * np.eye(200), noise
    near.x = short
    formula = elbo_of if objective is Elbo else projected_of
    assert value == pytest.approx(formula(near, near.S), rel=1e-10)
    assert np.isfinite(gradient).all()


@pytest.mark.exhaustive
@pytest.mark.cluster
@every_objective
def test_every_executor_gives_the_same_bits(objective, monkeypatch, two_dask_workers):
    monkeypatch.setattr(block_sparse, "TILE", 50)
    monkeypatch.setattr(projected_data, "PIECE_BYTES", 8 * 40 * 35)
    expected = None
    with ThreadExecutor(3) as threads:
        for executor in (SerialExecutor(), threads, DaskExecutor(two_dask_workers)):
            case = Case(objective, (cagp.Matern32, cagp.Matern12), n=300, actions=40, executor=executor)
            value, gradient = case.of(case.x)
            found = np.array([value, *gradient])
            expected = found if expected is None else expected
            np.testing.assert_array_equal(found, expected)


@pytest.mark.cluster
def test_little_is_sent_to_a_cluster_at_once(two_dask_workers):
    """Dask warns of tasks with more than 10 MiB, and warnings fail tests: all rows of U would be enough."""
    case = Case(Elbo, n=2000, actions=700, executor=DaskExecutor(two_dask_workers))
    assert np.isfinite(case.of(case.x)[0])


def test_what_makes_no_sense_is_refused():
    case = Case()
    for change, key in (
        (lambda x: x[:-1], "shapes"),
        (lambda x: np.where(np.arange(34) == 0, np.nan, x), "not-finite"),
        (lambda x: np.where(np.arange(34) == 1, 800.0, x), "not-finite"),
        (lambda x: np.where(np.arange(34) > 2, 0.0, x), "empty-action"),
        (lambda x: np.where(np.arange(34) == 9, np.inf, x), "empty-action"),
    ):
        with pytest.raises(ArgumentError) as refusal:
            case.of(change(case.x))
        assert refusal.value.key == key
    with pytest.raises(BudgetError) as refusal:
        data_of(cagp.Matern32, case.X, case.b, case.layout, limit=1000)
    assert refusal.value.key == "memory"
    same = Elbo(data_of(cagp.SquaredExponential, np.zeros((31, 3)), case.b, case.layout))
    with pytest.raises(NumericalError) as refusal:
        same(np.concatenate([[0.0, 0.0, np.log(1e-200)], case.x[3:]]))
    assert refusal.value.key == "not-positive-definite"
