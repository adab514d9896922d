"""`condition` and `posterior_mean`: arguments, the prior, batches and progress."""

import dataclasses
import itertools
import pickle

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, BudgetError, NumericalError
from cagp_dist.runtime import SerialExecutor, ThreadExecutor
from cagp_dist.solvers import State

from .joined import one_after_another
from .oracle import assert_close, assert_same_bits
from .pairwise import by_turns
from .problems import regression_problem
from .solvers.stages import Diverging

pytestmark = pytest.mark.usefixtures("one_blas_thread")

KERNEL = cagp.Matern32(lengthscale=0.3, variance=2.0)
PRIOR = cagp.Prior(KERNEL, noise_variance=0.1)
X = np.random.default_rng(0).uniform(size=(30, 2))
Y = np.random.default_rng(1).normal(size=30)
X_TEST = np.random.default_rng(2).uniform(size=(7, 2))
SOLVER = cagp.BlockGaussSeidel(2, block_size=10)


def condition(**changes):
    given = {"prior": PRIOR, "X": X, "y": Y, "X_test": X_TEST, "solver": SOLVER, **changes}
    positional = [given.pop(name) for name in ("prior", "X", "y", "X_test")]
    return cagp.condition(*positional, **given)


@one_after_another
@pytest.mark.parametrize("noise_variance", [0.0, -0.1, np.nan, np.inf, "0.1", None])
def test_noise_must_be_finite_and_positive(noise_variance):
    with pytest.raises(ArgumentError) as refusal:
        cagp.Prior(KERNEL, noise_variance=noise_variance)
    assert refusal.value.key == "not-positive"


@one_after_another
@pytest.mark.parametrize(
    ("noise_variance", "key"),
    [
        ([0.1, 0.0], "not-positive"),
        ([[0.1, np.nan]], "not-positive"),
        ([0.1, np.inf, -1.0], "not-positive"),
        ([[0.1], [0.1, 0.2]], "no-numbers"),
        (np.ma.masked_less([0.1, 1.0], 0.5), "masked-entries"),
    ],
)
def test_every_noise_must_be_finite_and_positive(noise_variance, key):
    with pytest.raises(ArgumentError) as refusal:
        cagp.Prior(KERNEL, noise_variance=noise_variance)
    assert refusal.value.key == key


def test_noise_by_point_is_a_read_only_copy():
    given = np.array([0.1, 0.2, 0.3])
    prior = cagp.Prior(KERNEL, given)
    given[0] = 9.0
    assert prior.noise_variance.tolist() == [0.1, 0.2, 0.3]
    with pytest.raises(ValueError, match="read-only"):
        prior.noise_variance[0] = 9.0
    assert cagp.Prior(KERNEL, np.array(0.1)) == PRIOR


def test_a_prior_with_noise_by_point_is_a_value():
    def prior(*noise, **settings):
        return cagp.Prior(KERNEL, noise_variance=np.array(noise), **settings)

    one = prior(0.1, 0.2)
    for same in (prior(0.1, 0.2), cagp.Prior(KERNEL, [0.1, 0.2]), pickle.loads(pickle.dumps(one))):
        assert same == one
        assert hash(same) == hash(one)
        assert repr(same) == repr(one)
    others = [prior(0.1, 0.3), prior([0.1, 0.2]), PRIOR, prior(0.1, 0.2, mean=1.0), 0.1]
    assert all(one != other for other in others)
    assert len({one, prior(0.1, 0.2), *others}) == 6
    assert repr(one) == (
        "Prior(kernel=Matern32(lengthscale=0.3, variance=2.0), noise_variance=array([0.1, 0.2]), mean=0.0)"
    )
    assert PRIOR.noise_number == 0.1
    with pytest.raises(ArgumentError) as refusal:
        one.noise_number  # noqa: B018
    assert refusal.value.key == "shapes"


GRID = cagp.LatLonGrid([-30.0, 0.0, 30.0], 4)


@pytest.mark.parametrize(
    ("shape", "changes"),
    [
        ((29,), {}),
        ((30, 1), {}),
        ((30,), {"X": GRID, "y": np.zeros((3, 4)), "X_test": GRID}),
        ((12,), {"X": GRID, "y": np.zeros((3, 4)), "X_test": GRID}),
        ((3,), {"X": GRID, "y": np.zeros((3, 4)), "X_test": GRID}),
    ],
)
def test_noise_that_does_not_fit_the_points_is_refused(shape, changes):
    prior = cagp.Prior(KERNEL, np.full(shape, 0.1))
    with pytest.raises(ArgumentError) as refusal:
        condition(prior=prior, **changes)
    assert refusal.value.key == "shapes"
    given = {"X": X, "y": Y, "X_test": X_TEST, **changes}
    with pytest.raises(ArgumentError) as refusal:
        cagp.posterior_mean(prior, *given.values(), solver=SOLVER)
    assert refusal.value.key == "shapes"


def test_equal_noise_at_every_point_is_one_noise():
    assert_same_bits(condition(prior=cagp.Prior(KERNEL, np.full(30, 0.1))), condition())


@one_after_another
@pytest.mark.parametrize("kernel", [None, "matern32", cagp.Matern32, np.exp])
def test_kernel_must_be_a_kernel(kernel):
    with pytest.raises(ArgumentError) as refusal:
        cagp.Prior(kernel, noise_variance=0.1)
    assert refusal.value.key == "kernel-type"


@one_after_another
@pytest.mark.parametrize("mean", [np.nan, np.inf, "zero", None, np.zeros(3), [0.0]])
def test_mean_must_be_a_number_or_a_function(mean):
    with pytest.raises(ArgumentError) as refusal:
        cagp.Prior(KERNEL, 0.1, mean=mean)
    assert refusal.value.key == "mean-type"


def test_prior_is_a_value():
    assert cagp.Prior(KERNEL, 0.1) == PRIOR
    assert hash(PRIOR) == hash(cagp.Prior(KERNEL, 0.1, mean=0.0))
    with pytest.raises(dataclasses.FrozenInstanceError):
        PRIOR.mean = 1.0


@pytest.mark.parametrize("mean", [3, 3.0, np.float32(3.0), np.int64(3), lambda X: np.full(len(X), 3.0)])
def test_a_constant_mean_shifts_the_field(mean):
    shifted = condition(prior=cagp.Prior(KERNEL, 0.1, mean=mean), y=Y + 3.0)
    plain = condition()
    assert_close(shifted.mean, plain.mean + 3.0, relative=1e-14)
    np.testing.assert_array_equal(shifted.variance, plain.variance)


def test_a_mean_that_varies_is_taken_off_and_put_back():
    def slope(points):
        return 10.0 * points[:, 0]

    tilted = condition(prior=cagp.Prior(KERNEL, 0.1, mean=slope), y=Y + slope(X))
    assert_close(tilted.mean, condition().mean + slope(X_TEST), relative=1e-13)


def test_a_mean_of_its_own_for_every_field():
    y = np.stack([Y, Y + 5.0, Y - 7.0], axis=1)
    prior = cagp.Prior(KERNEL, 0.1, mean=lambda points: np.tile([0.0, 5.0, -7.0], (len(points), 1)))
    posterior = condition(prior=prior, y=y)
    for field, offset in enumerate((0.0, 5.0, -7.0)):
        assert_close(posterior.mean[:, field], condition().mean + offset, relative=1e-13)
    one_for_all = condition(prior=cagp.Prior(KERNEL, 0.1, mean=lambda points: points[:, 0]), y=y)
    assert one_for_all.mean.shape == (7, 3)


@one_after_another
@pytest.mark.parametrize(
    ("mean", "key"),
    [
        (lambda X: np.zeros(len(X) + 1), "mean-values"),
        (
            lambda X: 0.0,
            "mean-values",
        ),
        (lambda X: np.zeros((len(X), 2, 2)), "mean-values"),
        (lambda X: np.full(len(X), np.nan), "mean-values"),
        (
            lambda X: np.zeros((len(X), 2)),
            "mean-columns",
        ),
    ],
)
def test_a_mean_of_the_wrong_shape_is_refused(mean, key):
    with pytest.raises(ArgumentError) as refusal:
        condition(prior=cagp.Prior(KERNEL, 0.1, mean=mean))
    assert refusal.value.key == key


def test_a_mean_that_changes_its_mind_at_the_test_points_is_refused():
    prior = cagp.Prior(KERNEL, 0.1, mean=lambda points: np.zeros((len(points), 1 + (len(points) == 7))))
    with pytest.raises(ArgumentError) as refusal:
        condition(prior=prior)
    assert refusal.value.key == "mean-columns"


@one_after_another
@pytest.mark.parametrize(
    ("changes", "key"),
    [
        (
            {"X": X[:, 0]},
            "shapes",
        ),
        ({"X": np.zeros((0, 2)), "y": []}, "nothing-observed"),
        ({"X": np.where(X > 0.9, np.nan, X)}, "not-finite"),
        ({"X": np.where(X > 0.9, np.inf, X)}, "not-finite"),
        ({"X": [["a", "b"]]}, "no-numbers"),
        ({"X_test": X_TEST[:, :1]}, "coordinates-differ"),
        ({"X_test": X_TEST[0]}, "shapes"),
        ({"X_test": np.full((1, 2), np.nan)}, "not-finite"),
        ({"y": Y[:-1]}, "shapes"),
        ({"y": 1.0}, "shapes"),
        ({"y": np.zeros((30, 0))}, "shapes"),
        ({"y": np.zeros((30, 2, 2))}, "shapes"),
        ({"y": np.zeros((2, 30))}, "shapes"),
        ({"y": np.where(Y > 1.0, np.nan, Y)}, "not-finite"),
        ({"y": np.where(Y > 1.0, np.inf, Y)}, "not-finite"),
        ({"y": ["a"] * 30}, "no-numbers"),
        ({"y": Y + 1j}, "no-numbers"),
        ({"y": np.ma.masked_greater(Y, 1.0)}, "masked-entries"),
        ({"covariance": "sparse"}, "covariance-unknown"),
        ({"prior": KERNEL}, "prior-type"),
        ({"solver": None}, "solver-type"),
        ({"solver": cagp.Hybrid}, "solver-type"),
        ({"executor": 3}, "executor-type"),
        ({"memory_limit_bytes": "1 GB"}, "memory-limit"),
    ],
)
def test_wrong_arguments_are_refused(changes, key):
    with pytest.raises(ArgumentError) as refusal:
        condition(**changes)
    assert refusal.value.key == key


def test_settings_are_given_by_name():
    with pytest.raises(TypeError):
        cagp.condition(PRIOR, X, Y, X_TEST, SOLVER)


def test_posterior_is_frozen():
    posterior = condition()
    with pytest.raises(dataclasses.FrozenInstanceError):
        posterior.mean = None
    with pytest.raises(dataclasses.FrozenInstanceError):
        posterior.trace[0].mean = None


def test_test_points_that_do_not_fit_at_once_come_in_batches():
    """Batch by batch: the same bits, and progress that covers all of them."""
    problem = regression_problem(300, q=1100, lengthscale=0.1)
    solver = cagp.BlockGaussSeidel(3, 64)
    seen: list[cagp.Progress] = []
    with ThreadExecutor(2) as executor:
        given = {"covariance": "diagonal", "executor": executor}
        together = problem.condition(solver, **given)
        assert len(together.stats.plan.batches) == 1
        limit = together.stats.plan.peak_bytes // 2
        apart = problem.condition(solver, memory_limit_bytes=limit, progress=seen.append, **given)
        with pytest.raises(BudgetError) as refusal:
            problem.condition(solver, memory_limit_bytes=2**20, **given)
        assert refusal.value.key == "memory"
    assert len(apart.stats.plan.batches) == 3
    assert_same_bits(apart, together)
    assert [report.iteration for report in seen] == [1, 2, 3] * 3
    fractions = [report.fraction for report in seen]
    np.testing.assert_allclose(fractions, np.arange(1, 10) / 9.0, atol=1e-3)
    assert all(earlier < later for earlier, later in itertools.pairwise(fractions))


@dataclasses.dataclass(frozen=True)
class Scripted:
    """A solver that yields what it was told."""

    downdates: tuple[float, ...]
    mean: float = 0.0
    status: cagp.Status = cagp.Status.COMPLETED
    calibrated = "exact"
    many_fields = True

    @property
    def iterations(self):
        return len(self.downdates)

    def plan(self, demand):
        return cagp.GaussSeidel(self.iterations).plan(demand)

    def states(self, problem, *, executor, plan):
        q = problem.q
        for iteration, downdate in enumerate(self.downdates, start=1):
            columns, last = slice(0, q), iteration == self.iterations
            status = self.status if last else cagp.Status.COMPLETED
            yield State(iteration, columns, np.full((q, 1), self.mean), np.full(q, downdate), status)


def test_a_negative_variance_is_an_error_and_not_clipped():
    with pytest.raises(NumericalError) as refusal:
        condition(solver=Scripted((1.0, 2.5, 1.0)))
    assert refusal.value.key == "negative-variance"
    with pytest.raises(NumericalError) as refusal:
        condition(solver=Scripted((np.nan,)))
    assert refusal.value.key == "negative-variance"


def test_a_variance_negative_by_rounding_is_left_as_it_is():
    posterior = condition(solver=Scripted((2.0 + 1e-9,)))
    assert (posterior.variance < 0.0).all()
    assert (posterior.variance > -2e-9).all()


def test_a_negative_variance_is_never_called_a_success():
    """Whatever the solver says of itself, and wherever among the targets the variance is negative."""
    for status in cagp.Status:
        told = condition(solver=Scripted((1.0, 2.0 + 1e-9), status=status)).status
        assert told is (cagp.Status.ILL_CONDITIONED if status.ok else status)
        assert not told.ok
    # zero is no negative number, and what was negative on the way is mended by the last iteration
    assert condition(solver=Scripted((2.0,))).status is cagp.Status.COMPLETED
    assert condition(solver=Scripted((2.0 + 1e-9, 1.0))).status is cagp.Status.COMPLETED


NEARLY_SINGULAR = [
    cagp.Cholesky(),
    cagp.BlockGaussSeidel(1, 100),
    cagp.BlockJacobi(1, 100),
    cagp.GaussSeidel(3),
    cagp.SSOR(3, 1.5),
    cagp.ConjugateGradient(20),
    cagp.RandomActions(30),
]


@pytest.mark.parametrize(
    ("solver", "noise_variance", "points"),
    by_turns(
        {"solver": NEARLY_SINGULAR, "noise_variance": [1e-12, 1e-13, 1e-14, 3e-15], "points": [20, 40, 20]}
    ),
    ids=repr,
)
def test_variances_that_rounding_makes_negative_are_told(solver, noise_variance, points):
    """Smooth fields with hardly any noise: variances are below what float64 holds beside the prior's."""
    line = np.random.default_rng(0).uniform(size=(points, 1))
    prior = cagp.Prior(cagp.SquaredExponential(1.0), noise_variance)
    given = prior, line, np.sin(6.0 * line[:, 0]), line
    try:
        posterior = cagp.condition(*given, solver=solver, executor=SerialExecutor())
    except NumericalError:
        return  # negative beyond rounding, or no Cholesky factor: told as well
    assert (posterior.variance >= 0.0).all() or not posterior.status.ok
    if isinstance(solver, cagp.Cholesky):
        assert posterior.status is cagp.Status.ILL_CONDITIONED
        assert "condition number of the Gram matrix is above 1e13" in posterior.status.advice


def test_some_of_these_are_negative():
    """Or the test above would show nothing."""
    line = np.random.default_rng(0).uniform(size=(20, 1))
    prior = cagp.Prior(cagp.Matern52(0.5), 3e-15)
    found = [
        cagp.condition(
            prior, line, line[:, 0], line, solver=cagp.RandomActions(30, seed=seed), executor=SerialExecutor()
        )
        for seed in range(8)
    ]
    worst = min(found, key=lambda posterior: posterior.variance.min())
    assert -1e-8 < worst.variance.min() < 0.0
    assert worst.status is cagp.Status.ILL_CONDITIONED


@pytest.mark.parametrize("mean", [np.nan, np.inf])
def test_a_mean_that_is_not_finite_is_an_error(mean):
    with pytest.raises(NumericalError) as refusal:
        condition(solver=Scripted((1.0,), mean=mean))
    assert refusal.value.key == "not-finite"


def test_values_beyond_float64_are_an_error():
    prior = cagp.Prior(KERNEL, 0.1, mean=-1.7e308)
    with (
        np.errstate(over="ignore", invalid="ignore"),
        pytest.raises(NumericalError) as refusal,
    ):
        condition(y=np.full(30, 1.7e308), prior=prior, executor=SerialExecutor())
    assert refusal.value.key == "not-finite"


def test_an_iteration_that_is_told_again_replaces_itself():
    """What a solver that breaks down does."""

    class Stammering(Scripted):
        def states(self, problem, *, executor, plan):
            for state in super().states(problem, executor=executor, plan=plan):
                yield state
                yield state

    posterior = condition(solver=Stammering((0.5, 1.0), mean=3.0))
    assert [step.iteration for step in posterior.trace] == [0, 1, 2]
    assert posterior.mean.tolist() == [3.0] * 7
    assert posterior.variance.tolist() == [1.0] * 7


def test_the_bound_of_memory_is_that_of_the_executor_if_none_is_given():
    @dataclasses.dataclass(frozen=True)
    class Cramped(SerialExecutor):
        @property
        def memory_bytes(self):
            return 1000

    with pytest.raises(BudgetError) as refusal:
        condition(executor=Cramped())
    assert refusal.value.key == "memory"
    assert condition(executor=Cramped(), memory_limit_bytes=2**24).status.ok


SWEEPS = [
    cagp.GaussSeidel(3),
    cagp.BlockGaussSeidel(3, 20),
    cagp.BlockGaussSeidel(2, 1),
    cagp.GaussSeidel(0),
    cagp.SOR(3, 1.5),
    cagp.SSOR(3, 0.7),
    cagp.Jacobi(3),
    cagp.BlockJacobi(3, 20),
]


@one_after_another
@pytest.mark.parametrize("solver", SWEEPS, ids=repr)
@pytest.mark.parametrize("fields", [None, 1, 5])
def test_posterior_mean_alone_is_the_same_mean(solver, fields):
    problem = regression_problem(130, q=50, fields=fields)
    mean = cagp.posterior_mean(problem.prior, problem.X, problem.y, problem.X_test, solver=solver)
    expected = problem.condition(solver).mean
    assert mean.shape == expected.shape
    assert_close(mean, expected, relative=1e-11)


def test_posterior_mean_does_not_depend_on_the_executor_or_on_how_many_points_are_asked():
    problem = regression_problem(700, q=900, lengthscale=0.1)
    solver = cagp.BlockGaussSeidel(2, 100)
    given = problem.prior, problem.X, problem.y
    reference = cagp.posterior_mean(*given, problem.X_test, solver=solver, executor=SerialExecutor())
    for workers in (1, 3):
        with ThreadExecutor(workers) as executor:
            mean = cagp.posterior_mean(*given, problem.X_test, solver=solver, executor=executor)
        np.testing.assert_array_equal(mean, reference)
    few = cagp.posterior_mean(*given, problem.X_test[:3], solver=solver)
    assert_close(few, reference[:3], relative=1e-13)
    assert cagp.posterior_mean(*given, problem.X_test[:0], solver=solver).shape == (0,)


def test_posterior_mean_of_more_fields_than_points():
    problem = regression_problem(20, q=6, fields=30)
    mean = cagp.posterior_mean(
        problem.prior, problem.X, problem.y, problem.X_test, solver=cagp.GaussSeidel(2)
    )
    assert_close(mean, problem.condition(cagp.GaussSeidel(2)).mean, relative=1e-11)


@pytest.mark.parametrize(
    "solver", [cagp.ConjugateGradient(3), cagp.Cholesky(), cagp.SubsetOfData(20), cagp.Hybrid([SOLVER])]
)
def test_posterior_mean_takes_every_solver_and_says_its_plan(solver):
    plans = []
    mean = cagp.posterior_mean(PRIOR, X, Y, X_TEST, solver=solver, on_plan=plans.append)
    assert_close(mean, cagp.condition(PRIOR, X, Y, X_TEST, solver=solver).mean, relative=1e-11)
    assert [plan.q > 0 and plan.peak_bytes > 0 for plan in plans] == [True]


def test_posterior_mean_refuses_what_is_no_solver_and_iterations_of_what_has_none():
    with pytest.raises(ArgumentError) as refusal:
        cagp.posterior_mean(PRIOR, X, Y, X_TEST, solver=None)
    assert refusal.value.key == "solver-type"
    with pytest.raises(ArgumentError) as refusal:
        cagp.posterior_mean(PRIOR, X, Y, X_TEST, solver=cagp.Cholesky(), iterations_by_target=[1])
    assert refusal.value.key == "no-stages"


def test_posterior_mean_checks_its_arguments_and_its_memory():
    with pytest.raises(ArgumentError) as refusal:
        cagp.posterior_mean(PRIOR, X, Y[:-1], X_TEST, solver=SOLVER)
    assert refusal.value.key == "shapes"
    with pytest.raises(BudgetError) as refusal:
        cagp.posterior_mean(PRIOR, X, Y, X_TEST, solver=SOLVER, memory_limit_bytes=1000)
    assert refusal.value.key == "memory"


def test_a_diverging_iteration_is_never_called_a_success():
    problem = regression_problem(40, q=10)
    few = problem.condition(Diverging(3, damping=0.4))
    assert few.status is cagp.Status.DIVERGED
    assert not few.status.ok
    assert (few.variance > problem.prior.kernel.variance).any()
    assert "Lower damping" in few.status.advice
    with pytest.raises(NumericalError) as refusal:
        problem.condition(Diverging(300, damping=1.0))
    assert refusal.value.key == "diverged"
    assert problem.condition(cagp.Jacobi(300)).status.ok


@pytest.mark.parametrize("solver", [cagp.BlockGaussSeidel(1, block_size=10**6), cagp.Cholesky()], ids=repr)
def test_rough_kernels_are_not_blamed_for_little_noise(solver):
    """Their smallest eigenvalue is far above the noise, where bounds of the condition number put it."""
    X = np.random.default_rng(0).uniform(size=(300, 2))
    prior = cagp.Prior(cagp.Matern12(lengthscale=0.3), noise_variance=1e-12)
    posterior = cagp.condition(prior, X, X[:, 0], X[:3] + 0.01, solver=solver)
    assert posterior.status is cagp.Status.EXACT


def test_rough_kernels_on_grids_are_not_blamed_either():
    grid = cagp.LatLonGrid(np.linspace(-80.0, 80.0, 17), 36)
    prior = cagp.Prior(cagp.Matern12(lengthscale=0.3), noise_variance=1e-12)
    field = np.random.default_rng(0).standard_normal(grid.shape)
    for solver in (cagp.Rings(), cagp.BlockGaussSeidel(1, block_size=10**6)):
        assert cagp.condition(prior, grid, field, grid.points[:3], solver=solver).status is cagp.Status.EXACT


def test_progress_of_random_actions_ends_at_one_where_there_are_fewer_points():
    seen: list[cagp.Progress] = []
    problem = regression_problem(30, q=5)
    problem.condition(cagp.RandomActions(100), progress=seen.append)
    assert (seen[-1].iteration, seen[-1].iterations, seen[-1].fraction) == (30, 30, 1.0)
