"""What every executor keeps: handles, order, errors, and use after an error."""

import operator
import time
from contextlib import nullcontext

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import NumericalError
from cagp_dist.runtime import SerialExecutor, ThreadExecutor, open_executor
from cagp_dist.runtime.counting import counted_work
from cagp_dist.runtime.dask import DaskExecutor
from cagp_dist.solvers.engine.panel_layout import PanelLayout

from ..oracle import assert_same_bits
from ..problems import regression_problem

OPENERS = {
    "serial": lambda client: open_executor("serial"),
    "one-thread": lambda client: ThreadExecutor(1),
    "three-threads": lambda client: open_executor("local", workers=3),
    "dask": lambda client: nullcontext(DaskExecutor(client())),
}


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.cluster if name == "dask" else ()) for name in OPENERS],
)
def executor(request):
    with OPENERS[request.param](lambda: request.getfixturevalue("two_dask_workers")) as opened:
        yield opened


class CustomError(Exception):
    """An error only this module knows."""


def test_value_of_a_task(executor):
    handle = executor.submit(operator.add, 2, 3)
    assert handle.result() == 5
    assert handle.result() == 5
    assert executor.gather([handle, handle]) == [5, 5]


def test_gather_keeps_the_order(executor):
    def later(seconds, value):
        time.sleep(seconds)
        return value

    handles = [executor.submit(later, 0.05 * (index == 0), index) for index in range(6)]
    assert executor.gather(handles) == list(range(6))
    assert executor.gather([]) == []


def test_handles_are_arguments(executor):
    two = executor.submit(operator.add, 1, 1)
    four = executor.submit(operator.mul, two, two)
    assert executor.submit(operator.sub, 10, four).result() == 6


def test_handles_inside_lists_also_nested(executor):
    one, two = executor.submit(int, 1), executor.submit(int, 2)

    def shape(values):
        return repr(values)

    handle = executor.submit(shape, [one, [two, 5, [one]], [], None])
    assert handle.result() == "[1, [2, 5, [1]], [], None]"


def test_arrays_pass_unchanged(executor):
    array = np.arange(12.0).reshape(3, 4)
    echoed = executor.submit(np.negative, executor.submit(np.transpose, array)).result()
    np.testing.assert_array_equal(echoed, -array.T)
    pieces = executor.submit(np.concatenate, [executor.submit(np.negative, array), array])
    np.testing.assert_array_equal(pieces.result(), np.concatenate([-array, array]))
    assert executor.submit(operator.itemgetter(0), [None]).result() is None


def test_long_chains_and_wide_sums(executor):
    handle = executor.submit(int, 0)
    for _ in range(100):
        handle = executor.submit(operator.add, handle, 1)
    many = [executor.submit(operator.mul, handle, factor) for factor in range(30)]
    assert executor.submit(sum, many).result() == 100 * sum(range(30))


def test_priority_and_home_are_wishes(executor):
    handles = [executor.submit(int, index, priority=index % 3, home=7 * index) for index in range(12)]
    assert executor.gather(handles) == list(range(12))


@pytest.mark.parametrize("kind", [ValueError, ZeroDivisionError, CustomError])
def test_errors_keep_their_type_and_text(executor, kind):
    def fail(text):
        raise kind(text)

    # the serial executor raises at once, the others when the value is wanted
    with pytest.raises(kind, match="this went wrong"):
        executor.submit(fail, "this went wrong").result()
    with pytest.raises(kind, match="this went wrong"):
        executor.gather([executor.submit(int, 1), executor.submit(fail, "this went wrong")])


def test_errors_reach_those_who_depend_on_them_and_nobody_else(executor):
    def fail():
        raise ZeroDivisionError("at the root")

    good = executor.submit(int, 3)
    with pytest.raises(ZeroDivisionError, match="at the root"):
        executor.submit(operator.add, 1, executor.submit(operator.neg, executor.submit(fail))).result()
    with pytest.raises(ZeroDivisionError, match="at the root"):
        executor.submit(sum, [good, executor.submit(fail)]).result()
    assert executor.submit(operator.add, good, 1).result() == 4


def test_it_describes_itself(executor):
    assert executor.workers >= 1
    assert executor.description
    assert executor.shares_memory is not isinstance(executor, DaskExecutor)
    assert executor.dashboard is None or executor.dashboard.startswith("http://")
    if not isinstance(executor, SerialExecutor):
        assert f"{executor.workers} thread" in executor.description


def test_a_solve_is_the_same_everywhere_and_says_where_it_was(executor):
    problem = regression_problem(200, q=20)
    solver = cagp.BlockGaussSeidel(2, block_size=30)
    posterior = problem.condition(solver, executor=executor)
    assert_same_bits(posterior, problem.condition(solver, executor=SerialExecutor()))
    assert posterior.stats.executor == executor.description


def test_estimated_means_have_the_same_bits_everywhere(executor):
    """With more points than a block of the sweeps that find their coefficients."""
    rng = np.random.default_rng(4)
    X, X_test = rng.uniform(size=(1200, 2)), rng.uniform(size=(3, 2))
    mean = cagp.BasisMean(lambda X: np.column_stack([np.ones(len(X)), X]), ("one", "east", "north"))
    given = cagp.Prior(cagp.Matern32(0.3), 0.1, mean), X, rng.normal(size=1200), X_test
    settings = {"solver": cagp.BlockGaussSeidel(1, block_size=400), "covariance": "full"}
    reference = cagp.condition(*given, **settings, executor=SerialExecutor())
    assert_same_bits(cagp.condition(*given, **settings, executor=executor), reference)


def test_a_solve_that_fails_leaves_the_executor_usable(executor):
    X = np.zeros((40, 2))  # coincident points and hardly any noise: not positive definite
    prior = cagp.Prior(cagp.Matern32(0.3), noise_variance=1e-300)
    with pytest.raises(NumericalError) as refusal:
        cagp.condition(prior, X, np.ones(40), X, solver=cagp.BlockGaussSeidel(2, 40), executor=executor)
    assert refusal.value.key == "not-positive-definite"
    assert executor.submit(int, 1).result() == 1


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "solver", [cagp.BlockGaussSeidel(3, 50), cagp.BlockGaussSeidel(1, 100), cagp.BlockJacobi(4, 50)]
)
def test_work_of_sweeps_is_what_the_plan_said(executor, solver):
    problem = regression_problem(300, q=600, lengthscale=0.2)
    with counted_work() as work:
        plan = problem.condition(solver, executor=executor).stats.plan
    assert work.products == plan.q * plan.iterations * solver.stages
    groups, blocks = sum(map(len, plan.batches)), 300 // plan.block_size
    points = plan.panels + 2 * blocks  # of panels and blocks, and the residuals of these
    opened = len(plan.stored_rows) + plan.keep_factors * blocks + groups * (2 + plan.panels)
    read = groups * plan.iterations
    layout = PanelLayout.of(300, block_size=plan.block_size, panels=plan.panels)
    last = layout.last_visits(list(reversed(range(blocks))))
    # by the last sweep; between processes the step before that of a block leaves its rows to the solve
    ahead = executor.processes > 1
    updates = [max(max(last[a] for a in tiles) - ahead, 0) for tiles in layout.tiles_of_panel]
    left_out = 0 if solver.at_once else groups * sum(blocks - steps for steps in updates)
    assert work.tasks == plan.tasks + points + opened + read - left_out


def test_actions_take_a_product_each(executor):
    with counted_work() as work:
        regression_problem(300, q=40).condition(cagp.ConjugateGradient(7), executor=executor)
    assert work.products == 7


def test_moved_bytes_are_those_of_arrays_that_leave_a_process(executor):
    array = np.zeros(100_000)
    with counted_work() as outer, counted_work() as work:
        before = executor.sent_bytes()
        handles = [executor.submit(np.negative, array), executor.submit(np.sum, [array, array])]
        executor.gather(handles)
        sent = executor.sent_bytes() - before
    assert work == outer
    assert work.tasks == 2
    if executor.processes == 1:
        assert (work.moved_bytes, sent) == (0, 0)
    else:
        assert work.moved_bytes == 3 * array.nbytes
        assert array.nbytes <= sent < 1.01 * array.nbytes  # one result, and a number with its type
    assert executor.gather([executor.submit(operator.add, 1, 1)]) == [2]
    assert work.tasks == 2
