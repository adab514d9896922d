"""Solvers that the identities are about, and the Gram matrices and executors that they meet."""

import itertools
from collections.abc import Callable

import pytest

import cagp_dist as cagp
from cagp_dist.solvers import Solver

from ..joined import joined
from ..solvers.policies import known, policies
from ..solvers.stages import Diverging
from .places import EXECUTORS, GRAMS, UNEVEN
from .registered import SOLVERS

BLOCK = 13
"""Of points: three blocks of 36; on grids of six rings, bands of two."""
STAGES = {
    "gauss-seidel": cagp.GaussSeidel(3),
    "block-gauss-seidel": cagp.BlockGaussSeidel(3, BLOCK),
    "blocks in random order": cagp.BlockGaussSeidel(2, BLOCK, order="random", seed=1),
    "points in random order": cagp.GaussSeidel(2, order="random"),
    "sor": cagp.SOR(2, 1.4),
    "ssor": cagp.SSOR(2, 0.6),
    "jacobi": cagp.Jacobi(3),
    "block-jacobi": cagp.BlockJacobi(2, BLOCK),
    "richardson": cagp.Richardson(3),
    "chebyshev": cagp.Chebyshev(4),
    "two-level-block-gauss-seidel": cagp.TwoLevelBlockGaussSeidel(2, BLOCK, coarse=5),
    "two-level-block-jacobi": cagp.TwoLevelBlockJacobi(2, BLOCK, coarse=5, damping=0.3),
    "diverging": Diverging(2, damping=0.7),
}
ACTIONS = 8
POLICIES = policies(ACTIONS, rank=9, block=BLOCK, first=(3, 3))
GRADIENTS = {name: policy for name, policy in POLICIES.items() if isinstance(policy, cagp.ConjugateGradient)}
KNOWN = known(POLICIES)
INDEPENDENT = {
    name: policy
    for name, policy in POLICIES.items()
    if policy.calibrated == "exact" and not isinstance(policy, cagp.MixedActions)
}
BLOCKS, DIRECTIONS = cagp.BlockGaussSeidel(2, BLOCK), cagp.ConjugateGradient(4)
HYBRIDS = {
    "gradients, blocks": cagp.Hybrid([DIRECTIONS, BLOCKS]),
    "blocks, gradients": cagp.Hybrid([BLOCKS, DIRECTIONS]),
    "four parts": cagp.Hybrid([cagp.SSOR(1, 1.4), cagp.ConjugateGradient(2), BLOCKS, DIRECTIONS]),
    "polynomials": cagp.Hybrid([cagp.Chebyshev(3), DIRECTIONS, cagp.Chebyshev(2), BLOCKS]),
    "what is known": cagp.Hybrid(
        [cagp.TwoLevelBlockGaussSeidel(1, BLOCK, coarse=5), cagp.RandomActions(3), cagp.Richardson(2)]
    ),
    "stages alone": cagp.Hybrid(
        [cagp.Richardson(2), cagp.TwoLevelBlockGaussSeidel(1, BLOCK, coarse=5), cagp.Chebyshev(3), BLOCKS]
    ),
}
EXACT = {
    **STAGES,
    **INDEPENDENT,
    "two kinds": POLICIES["two kinds"],
    "hybrid": HYBRIDS["what is known"],
    "cholesky": cagp.Cholesky(),
    "rings": cagp.Rings(),
}
"""One of every class whose matrix does not depend on the data."""
REGISTERED = {
    f"registered {name}": solver
    for name, solver in SOLVERS.items()
    if solver.calibrated == "exact" and not solver.needs_grid and not isinstance(solver, cagp.Neighbours)
}
"""The same in every order, with preconditioners, and with blocks of other sizes."""
FEW = ("gauss-seidel", "block-gauss-seidel", "conjugate gradients", "random", "gradients, blocks", "rings")
"""What runs by threads and on the cluster."""
POINTS = ("dense", "tiled", "tiled-7")
TYPICAL = ("tiled", "rings", "masked rings")
"""Gram matrices that every solver meets, and that run on every executor."""


def everywhere(
    solvers: dict[str, Solver],
    *,
    few: tuple[str, ...] = FEW,
    more: dict[str, Solver] | None = None,
    given: bool = False,
) -> Callable:
    """Every Gram matrix in series, and typical ones on every executor.

    In series typical ones meet all solvers, and others every sixth one, by turns, and the ``few``, which run
    on the other executors too (a cluster at leisure: `solvers.test_executors_agree` has its bits in every
    run). With ``given`` only matrices that
    `cagp.condition` makes. Each of ``more`` solvers meets one typical one; the others at leisure. Solvers
    that meet the same matrix on the same executor do so in one test.
    """
    few = tuple(name for name in few if name in solvers)
    assert few
    cases: list[tuple[str, str, str, Solver, tuple]] = []
    for g, gram in enumerate(GRAMS):
        for i, (name, solver) in enumerate(solvers.items()):
            if gram in TYPICAL or name in few or (g + i) % 6 == 0:
                cases.append((gram, "serial", name, solver, ()))
    for (g, gram), (i, name) in itertools.product(enumerate(TYPICAL), enumerate(more or {})):
        marks = (pytest.mark.exhaustive,) if (g + i) % 3 or "vecchia" in name else ()
        cases.append((gram, "serial", name, more[name], marks))
    for executor, gram, name in itertools.product(EXECUTORS[1:], TYPICAL, few):
        marks = (pytest.mark.cluster, pytest.mark.exhaustive) if executor == "dask" else ()
        cases.append((gram, executor, name, solvers[name], marks))
    groups: dict[tuple[str, str, bool], list] = {}
    for gram, executor, name, solver, marks in cases:
        if not (solver.needs_grid and gram in (*POINTS, UNEVEN)) and not (
            given and gram in ("dense", "tiled-7")
        ):
            case = pytest.param(solver, id=name, marks=marks)
            groups.setdefault((gram, executor, pytest.mark.exhaustive in marks), []).append(case)
    named = {
        f"{gram}-{executor}{'-exhaustive' * exhaustive}": solvers
        for (gram, executor, exhaustive), solvers in groups.items()
    }
    return joined(["solver"], named, fixtures={"where": [(gram, executor) for gram, executor, _ in groups]})


def everywhere_one(solver: Solver) -> Callable:
    """Every Gram matrix, and typical ones on every executor, with one solver."""
    name = type(solver).__name__
    return everywhere({name: solver}, few=(name,))
