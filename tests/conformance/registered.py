"""Every registered solver with settings for small problems, made from its dataclass alone."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from cagp_dist.budget import Demand
from cagp_dist.errors import ArgumentError
from cagp_dist.solvers import (
    SSOR,
    BlockGaussSeidel,
    BlockJacobi,
    Chebyshev,
    ConjugateGradient,
    GaussSeidel,
    Hybrid,
    RandomActions,
    Richardson,
    Solver,
    TwoLevelBlockGaussSeidel,
    TwoLevelBlockJacobi,
)
from cagp_dist.solvers.registry import SOLVERS as REGISTRY
from cagp_dist.solvers.stationary.ordered import Ordered
from cagp_dist.solvers.stationary.preconditioned import PreconditionedIteration

from ..joined import in_turn, joined, name_of

ITERATIONS = 5
LARGEST = 40
"""Of settings that are whole numbers: sizes meant for large problems would make one block of a small one."""
BLOCK_SIZES = (", blocks of 3", ", one block")


def small(solver_class: type[Any], **changes: object) -> Solver:
    """A solver with few iterations, its own defaults, and examples from its metadata where it has none."""
    settings: dict[str, object] = {}
    for setting in dataclasses.fields(solver_class):
        if setting.name in changes:
            settings[setting.name] = changes[setting.name]
        elif setting.name in ("iterations", "actions"):
            settings[setting.name] = ITERATIONS
        else:
            missing = setting.default is dataclasses.MISSING
            value = setting.metadata["example"] if missing else setting.default
            settings[setting.name] = min(value, LARGEST) if type(value) is int else value
    return solver_class(**settings)


def _registered() -> dict[str, Solver]:
    found = {}
    for name, solver_class in REGISTRY.items():
        if solver_class is Hybrid:  # below, with blocks that are small
            continue
        found[name] = small(solver_class)
        for order in solver_class.orders[1:] if issubclass(solver_class, Ordered) else ():
            found[f"{name}, {order} order"] = small(solver_class, order=order)
        for kind in solver_class.preconditioners if issubclass(solver_class, PreconditionedIteration) else ():
            found[f"{name}, {kind}"] = small(solver_class, preconditioner=kind, preconditioner_size=20)
        if "block_size" in {setting.name for setting in dataclasses.fields(solver_class)}:
            found[name + BLOCK_SIZES[0]] = small(solver_class, block_size=3, iterations=3)
            found[name + BLOCK_SIZES[1]] = small(solver_class, block_size=500, iterations=2)
    return found


def _needs_grid(solver: Solver) -> bool:
    try:
        solver.plan(Demand(10, 1, 1, False, 1, True, 2**30))
    except ArgumentError:
        return True
    return False


FURTHER = tuple(
    f"{name}, {kind}"
    for name, solver_class in REGISTRY.items()
    for kind in (
        *(f"{order} order" for order in (solver_class.orders if issubclass(solver_class, Ordered) else ())),
        *(solver_class.preconditioners if issubclass(solver_class, PreconditionedIteration) else ()),
    )
)
"""Names of solvers in other orders and with preconditioners."""
QUICK = (
    "test_exact_variance_bounds",
    "test_samples_have_the_stated_covariance_t7",
    "test_the_first_sweeps",
    "test_the_mean_alone",
    "test_threads",
)
"""What other orders and preconditioners of a solver are tested for in every run; the rest is exhaustive."""


def kinds(solvers: Mapping[str, Solver]) -> list:
    """Cases for what is done around a solver: orders, preconditioners and block sizes have no part in it.

    Those that differ from another case in nothing else are cases of the exhaustive run.
    """
    return [
        pytest.param(
            solver,
            id=name,
            marks=pytest.mark.exhaustive if name in FURTHER or name.endswith(BLOCK_SIZES) else (),
        )
        for name, solver in solvers.items()
    ]


SOLVERS = _registered() | {
    "hybrid, conjugate gradients last": Hybrid([BlockGaussSeidel(2, LARGEST), ConjugateGradient(5)]),
    "hybrid, conjugate gradients first": Hybrid([ConjugateGradient(5), GaussSeidel(1)]),
    "hybrid of what is known": Hybrid(
        [TwoLevelBlockJacobi(2, LARGEST, coarse=9), SSOR(1, 1.5), RandomActions(3)]
    ),
    "hybrid by rings": Hybrid(
        [Richardson(2), TwoLevelBlockGaussSeidel(1, LARGEST, coarse=9), Chebyshev(3), BlockJacobi(1, LARGEST)]
    ),
    "hybrid, conditioned on conjugate gradients": Hybrid(
        [GaussSeidel(1), ConjugateGradient(8)], condition=True
    ),
    "hybrid, conditioned on random actions": Hybrid([SSOR(1, 1.5), RandomActions(3)], condition=True),
}
GRID_SOLVERS = {name: solver for name, solver in SOLVERS.items() if _needs_grid(solver)}
POINT_SOLVERS = {name: solver for name, solver in SOLVERS.items() if name not in GRID_SOLVERS}

KINDS = {
    name: POINT_SOLVERS[name]
    for name in (
        "block-gauss-seidel",
        "two-level-block-jacobi",
        "chebyshev",
        "conjugate-gradient",
        "random-actions",
        "hybrid, conjugate gradients last",
    )
}
"""One solver of each kind, for what is done before a solver begins, or around it."""


def may_rise(solver: Solver) -> bool:
    """Whether a variance may be above that of the iteration before: polynomials are none of each other."""
    return isinstance(solver, Chebyshev)


def solvers_in_turn(names: Sequence[str], cases: Iterable) -> Callable:
    """Cases of solvers, several in one test; of others than `QUICK` tests, `FURTHER` ones are exhaustive."""

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        known = [case if isinstance(case, ParameterSet) else pytest.param(*case) for case in cases]
        if not test.__name__.startswith(QUICK):
            known = [
                case._replace(marks=(pytest.mark.exhaustive,))
                if any(name in name_of(case) for name in FURTHER)
                else case
                for case in known
            ]
        return joined(names, in_turn(known))(test)

    return decorated
