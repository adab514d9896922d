"""Serial, threads and Dask with any number of workers: the same bits for everything a grid computes."""

import os
import signal

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.budget.demand import FEWEST_RANGES
from cagp_dist.errors import BudgetError, NumericalError
from cagp_dist.posterior.problem import demand_of
from cagp_dist.runtime import Executor, SerialExecutor, ThreadExecutor
from cagp_dist.runtime.dask import DaskExecutor
from cagp_dist.solvers import Problem, Solver, State

from ..clusters import local_cluster

LAYOUTS = {
    "mirrored": (np.linspace(-90.0, 90.0, 25), 30, 0.1),
    "not mirrored": (np.linspace(-85.0, 90.0, 25), 31, np.linspace(0.05, 0.5, 25)),
}
every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


def rings_of(layout, executor) -> cagp.RingGram:
    latitude, Q, noise = layout
    grid = cagp.LatLonGrid(latitude, Q)
    return cagp.RingGram(grid, cagp.Matern32(0.3, 2.0), noise_variance=noise, executor=executor)


CELLS = cagp.cell_means(np.linspace(-90.0, 90.0, 7), np.linspace(5.0, 365.0, 9), nodes_per_side=3)


def last_state(
    rings: cagp.RingGram, field: np.ndarray, solver: Solver, executor: Executor, *, cells: bool = False
) -> State:
    """What a solver reaches on a whole grid, whose points are the targets, or at means over cells."""
    targets = CELLS if cells else rings.grid
    problem = Problem(rings, field.reshape(-1, 1), targets, full_covariance=False)
    plan = solver.plan(demand_of(problem, executor, executor.memory_bytes))
    *_, state = solver.states(problem, executor=executor, plan=plan)
    return state


def by_factors(rings: cagp.RingGram, executor: Executor) -> dict[str, np.ndarray]:
    """What the factors of a grid give, by name."""
    fields = np.random.default_rng(0).normal(size=(3, *rings.grid.shape))
    loo, exact = rings.leave_one_out(fields), last_state(rings, fields[0], cagp.Rings(), executor)
    means = last_state(rings, fields[0], cagp.Rings(), executor, cells=True)
    return {
        "product": rings @ fields,
        "product with one field": rings @ fields[0],
        "solve": rings.solve(fields),
        "logdet": np.array(rings.logdet()),
        "inverse diagonal": rings.inverse_diagonal(),
        "leave-one-out mean": loo.mean,
        "leave-one-out variance": loo.variance,
        "posterior mean": exact.mean,
        "posterior downdate": exact.downdate,
        "mean over cells": means.mean,
        "downdate of means over cells": means.downdate,
        "draws": rings.sample(np.random.default_rng(0), fields=2),
        "draw with noise": rings.sample(np.random.default_rng(0), noise=True),
    }


def by_iteration(rings: cagp.RingGram, executor: Executor) -> dict[str, np.ndarray]:
    """What iterations of products and solves give, by name."""
    field = np.random.default_rng(0).normal(size=rings.grid.shape)
    observed = np.random.default_rng(1).uniform(size=rings.grid.shape) > 0.1
    masked = cagp.MaskedRings(rings, observed)
    directed = last_state(rings, field, cagp.ConjugateGradient(2), executor)
    return {
        "masked product": masked @ field[observed],
        "masked solve": masked.exact(executor=executor).weights(field[observed][:, None]),
        "directed mean": directed.mean,
        "directed downdate": directed.downdate,
    }


def by_sweeps(rings: cagp.RingGram, executor: Executor) -> dict[str, np.ndarray]:
    """What block Gauss-Seidel over bands of three rings gives, and stages of all other kinds, by name."""
    field = np.random.default_rng(0).normal(size=rings.grid.shape)
    size = 3 * rings.grid.n_longitudes
    others = [cagp.Richardson(1), cagp.TwoLevelBlockJacobi(1, size, coarse=20), cagp.Chebyshev(2)]
    found = {}
    for name, solver in {"swept": cagp.BlockGaussSeidel(2, size), "hybrid": cagp.Hybrid(others)}.items():
        swept = last_state(rings, field, solver, executor)
        cells = last_state(rings, field, solver, executor, cells=True)
        found |= {
            f"{name} mean": swept.mean,
            f"{name} downdate": swept.downdate,
            f"{name} mean over cells": cells.mean,
            f"{name} downdate of cells": cells.downdate,
        }
    return found


def everything(rings: cagp.RingGram, executor: Executor) -> dict[str, np.ndarray]:
    return by_factors(rings, executor) | by_iteration(rings, executor) | by_sweeps(rings, executor)


@pytest.fixture(scope="module")
def references():
    serial = SerialExecutor()
    return {name: everything(rings_of(layout, serial), serial) for name, layout in LAYOUTS.items()}


def assert_same_bits(found, expected):
    for name, value in found.items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


def test_sweeps_are_over_bands_of_rings():
    rings = rings_of(LAYOUTS["mirrored"], SerialExecutor())
    problem = Problem(rings, np.zeros((750, 1)), rings.grid, full_covariance=False)
    plan = cagp.BlockGaussSeidel(2, block_size=90).plan(demand_of(problem, SerialExecutor(), 2**30))
    assert plan.rings_per_block == 3


def test_the_grids_are_several_tasks_and_fall_into_parities_or_not():
    for name, layout in LAYOUTS.items():
        waves = rings_of(layout, SerialExecutor()).wavenumbers
        assert len(waves.ranges()) >= FEWEST_RANGES > 1
        assert waves.mirrored == (name == "mirrored")


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_threads(name, workers, references):
    with ThreadExecutor(workers) as executor:
        assert_same_bits(everything(rings_of(LAYOUTS[name], executor), executor), references[name])


@pytest.mark.parametrize("name", LAYOUTS)
def test_threads_that_pretend_to_be_processes(name, references):
    """Factors stay handles."""
    with ThreadExecutor(2) as executor:
        executor.processes, executor.shares_memory = 2, False
        assert_same_bits(everything(rings_of(LAYOUTS[name], executor), executor), references[name])


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_default_executor(name, references):
    latitude, Q, noise = LAYOUTS[name]
    rings = cagp.RingGram(cagp.LatLonGrid(latitude, Q), cagp.Matern32(0.3, 2.0), noise_variance=noise)
    with ThreadExecutor() as executor:
        assert_same_bits(everything(rings, executor), references[name])


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("workers", "names"),
    [
        pytest.param(1, ["mirrored"], marks=pytest.mark.exhaustive),
        (2, ["mirrored", "not mirrored"]),
    ],
)
def test_dask(workers, names, references, cluster_of):
    executor = DaskExecutor(cluster_of(workers))
    assert executor.workers == workers
    for name in names:
        rings = rings_of(LAYOUTS[name], executor)
        assert_same_bits(by_factors(rings, executor), references[name])
    assert_same_bits(by_sweeps(rings, executor), references[name])


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.cluster
def test_a_worker_killed_between_factors_and_solve_changes_no_bit(references):
    """The factors it held are made again by the other one, or by its successor."""
    fields = np.random.default_rng(0).normal(size=(3, 25, 30))
    with local_cluster(2) as client:
        rings = rings_of(LAYOUTS["mirrored"], DaskExecutor(client))
        logdet = rings.logdet()  # the factors are there
        held = {address: len(keys) for address, keys in client.has_what().items()}
        victim, process = next(iter(client.run(os.getpid).items()))
        assert held[victim] > 0
        os.kill(process, signal.SIGKILL)
        np.testing.assert_array_equal(rings.solve(fields), references["mirrored"]["solve"])
        client.wait_for_workers(2, timeout=300)
        assert victim not in client.run(os.getpid) or client.run(os.getpid)[victim] != process
        np.testing.assert_array_equal(rings.inverse_diagonal(), references["mirrored"]["inverse diagonal"])
        assert logdet == references["mirrored"]["logdet"]


@pytest.mark.cluster
def test_errors_of_workers_of_a_cluster_arrive(two_dask_workers):
    executor = DaskExecutor(two_dask_workers)
    grid = cagp.LatLonGrid(np.linspace(-90.0, 90.0, 9), 12)
    rings = cagp.RingGram(grid, cagp.SquaredExponential(3.0), noise_variance=1e-25, executor=executor)
    for _ in range(2):
        with pytest.raises(NumericalError) as refusal:
            rings.logdet()
        assert refusal.value.key == "not-positive-definite"
    executor.memory_bytes = 100
    with pytest.raises(BudgetError) as refusal:
        rings_of(LAYOUTS["mirrored"], executor).logdet()
    assert refusal.value.key == "memory"
