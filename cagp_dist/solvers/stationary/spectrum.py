"""How large the eigenvalues of a Gram matrix are, as far as stages that solve all blocks at once need it.

They converge for relaxations below ``2 / lambda_max(P^-1 G)`` (math 2). Row sums and numbers of blocks bound
it from above; a relaxation that these do not prove safe is compared with Ritz values, which bound it from
below.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.gram_matrix import Gram
from cagp_dist.gram.masked import complete_grid
from cagp_dist.gram.tiled import TiledGram, cross_product
from cagp_dist.gram.vecchia_factor import VecchiaFactor
from cagp_dist.runtime import Executor
from cagp_dist.solvers.engine.stages import CoarseSpace, Recurrence, Simultaneous, Stage
from cagp_dist.solvers.engine.system import System

Operator = Callable[[Array], tuple[Array, Array]]  # ``z = P^-1 p`` and ``G z`` of a column p
LANCZOS_STEPS = 40
RITZ_MARGIN = 0.05
"""Part of ``lambda_max`` that the largest Ritz value may miss after so many steps.

From a random start it misses more with a probability of at most ``1.648 sqrt(n) exp(-79 sqrt(0.05))``
[Kuczyński & Woźniakowski 1992, theorem 4.2]: 4e-6 for 10,000 points, 4e-5 for a million.
"""

# Probability that Vecchia's factor may leave an eigenvalue beyond which a polynomial grows, at most
UNSURE = 1e-4

SURE_POINTS = 20_000
"""Points up to which steps go on until they are as sure: that takes some 16, each a product of half a second.

Beyond, they end where both ends of the spectrum have moved by less than `RITZ_MARGIN`.
"""

FEWEST_STEPS = 4  # Steps that tell whether they move

# Products that a plan counts for that: some 16 steps, each with half the evaluations of a product
STEPS_NEAR_ONE = 8

SAFE_PART, STEPS_OF_DEFAULT = 0.75, 20
"""Default damping of `TwoLevelBlockJacobi` as a part of what diverges, by so many steps of Lanczos iteration.

From a random start these miss more than the other quarter of the eigenvalue with a probability of at most
``1.648 sqrt(n) exp(-39 sqrt(0.25))``: 6e-6 for a million points.
"""


def row_sums(gram: Gram, executor: Executor) -> Array:
    """``G 1``, shape (n,): n^2 evaluations, or P n on a whole grid with P latitudes.

    All entries of G are positive: the largest of ``P^-1 G 1`` bounds ``lambda_max(P^-1 G)``, P diagonal.
    """
    X, ones = gram.X, np.ones((gram.shape[0], 1))
    # by tiles: a grid would factor all its wavenumbers for this one product
    if complete := complete_grid(gram):  # the same all along a ring
        _, layout = complete
        _, first, ring = np.unique(
            layout.index // layout.grid.n_longitudes, return_index=True, return_inverse=True
        )
        sums = cross_product(gram.kernel, X[first], X, ones, executor=executor)[ring, 0]
    else:
        sums = cross_product(gram.kernel, X, X, ones, executor=executor)[:, 0]
    return np.asarray(sums + gram.noise_variance)


def admissible(system: System[Any], stage: Stage, *, gram: Gram, executor: Executor, setting: str) -> Stage:
    """Return the stage, with what is known of its weight, or refuse a relaxation that diverges.

    Costs nothing where the relaxation is known to be safe, else `LANCZOS_STEPS` stages on one column.
    """
    if isinstance(stage, CoarseSpace):
        return system.coarse(stage)
    if isinstance(stage, Recurrence):
        return _bounded(system, stage, gram=gram, executor=executor, setting=setting)
    if stage.weight_psd or not isinstance(stage, Simultaneous):
        return stage
    if stage.coarse is not None:
        return _beside_projection(system, stage, stage.coarse, setting)
    if stage.colours > 1:
        bound = np.ceil(1e6 * system.coupling(stage)) / 1e6  # the same on machines that round otherwise
        return replace(stage, relaxation=2.0 / (1.0 + bound), largest=2.0 / bound)
    largest = 2.0 / largest_ritz_value(system, replace(stage, relaxation=1.0), n=gram.shape[0])
    _check_converges(stage.relaxation, largest, setting)
    return replace(stage, largest=(1.0 - RITZ_MARGIN) * largest)


def _bounded(
    system: System[Any], stage: Recurrence, *, gram: Gram, executor: Executor, setting: str
) -> Stage:
    """Bound the spectrum of ``P^-1 G`` by Ritz values, with a margin, and choose a step by it."""
    if stage.inverse is None or (stage.step > 0.0 and stage.weight_psd):
        return stage
    if isinstance(stage.inverse, VecchiaFactor):
        smallest, ritz, sure = _around_one(gram, stage.inverse, executor)
        low = max(np.floor(1e6 * smallest) / 1e6, 1e-6)
    else:
        alone = replace(stage, step=1.0, accelerated=False)
        low, ritz, sure = stage.low, largest_ritz_value(system, alone, n=gram.shape[0]), True
    # rounded: the same on machines that round otherwise
    high = min(stage.high, max(1.0, np.ceil(1e6 * ritz / (1.0 - RITZ_MARGIN)) / 1e6))
    _check_converges(stage.step, 2.0 / ritz, setting)
    step = stage.step if stage.step > 0.0 or stage.accelerated else 2.0 / (low + high)
    return replace(stage, low=low, high=high, step=step, sure=sure)


def _around_one(gram: Gram, factor: VecchiaFactor, executor: Executor) -> tuple[float, float, bool]:
    """Estimate where the spectrum of ``U U' G`` begins, with a margin, and ends, without one, and if surely.

    No polynomial between these bounds is above one for eigenvalues up to their sum, about two. Bounds that
    are not sharp cost iterations, and no more: the downdate of a recurrence is exact with any.
    """
    n = gram.shape[0]
    tiled = TiledGram(gram.kernel, gram.X, gram.noise_variance)  # half the evaluations of a stage

    def of(p: Array) -> tuple[Array, Array]:
        z = factor.solve(p)
        return z, tiled.product(z, executor=executor)

    smallest = ritz = 1.0
    low, sure = 1.0 - RITZ_MARGIN, False
    values = islice(ritz_values(of, factor.draw(random_column(n))), LANCZOS_STEPS)
    for step, (now, largest) in enumerate(values, 1):
        still = now >= (1.0 - RITZ_MARGIN) * smallest and ritz >= (1.0 - RITZ_MARGIN) * largest
        smallest, ritz, low = now, largest, (1.0 - RITZ_MARGIN) * now
        missed = 1.0 - ritz / (low + ritz / (1.0 - RITZ_MARGIN))
        sure = bool(1.648 * np.sqrt(n) * np.exp((1 - 2 * step) * np.sqrt(missed)) <= UNSURE)
        if sure or (n > SURE_POINTS and step >= FEWEST_STEPS and still):
            break
    return low, ritz, sure


def _beside_projection(
    system: System[Any], stage: Simultaneous, coarse: CoarseSpace, setting: str
) -> Simultaneous:
    """Bound a relaxation by the largest eigenvalue that a projection leaves, or choose one by it."""
    steps = LANCZOS_STEPS if stage.relaxation > 0.0 else STEPS_OF_DEFAULT
    largest = system.largest_left(stage, system.coarse(coarse), steps=steps)
    limit = 2.0 / largest if largest > 0.0 else np.inf
    relaxation = stage.relaxation if stage.relaxation > 0.0 else min(1.0, SAFE_PART * limit)
    if relaxation >= (1.0 - RITZ_MARGIN) * limit:
        raise ArgumentError(
            f"{setting} is {relaxation:g}, with which what the coarse space leaves may diverge; "
            f"expected a number above 0 and below {(1.0 - RITZ_MARGIN) * limit:.3g}. "
            f"Leave {setting} out to have a safe value worked out.",
            key="relaxation",
        )
    return replace(stage, relaxation=relaxation, largest=limit)


def _check_converges(relaxation: float, largest: float, setting: str) -> None:
    if relaxation >= largest:
        raise ArgumentError(
            f"{setting} is {relaxation:g}, with which the iteration diverges on these points; expected "
            f"a number above 0 and below {_rounded_down(largest)}. Leave {setting} out to have a safe value "
            "worked out.",
            key="relaxation",
        )


def _rounded_down(value: float) -> str:
    """Three digits, not above the value by more than rounding does."""
    scale = 10.0 ** (np.floor(np.log10(value)) - 2)
    return f"{np.floor(value / scale) * scale:.3g}"


def largest_ritz_value(system: System[Any], stage: Stage, *, n: int) -> float:
    """Lower bound of ``lambda_max(P^-1 G)`` by Lanczos iteration from the same random vector every time."""
    return lanczos(_applied(system, stage), random_column(n), steps=LANCZOS_STEPS)


def _applied(system: System[Any], stage: Stage) -> Operator:
    """``z = P^-1 p`` of a column p by one stage, of relaxation one, and ``G z`` of what it leaves."""

    def of(p: Array) -> tuple[Array, Array]:
        work = system.forward(p)
        system.apply(stage, work, adjoint=False)
        return system.weights(work), p - system.residual(work)

    return of


def random_column(n: int) -> Array:
    """Where Lanczos iterations start, shape (n, 1): the same every time."""
    return np.random.default_rng(0).standard_normal((n, 1))


def lanczos(of: Operator, p: Array, *, steps: int) -> float:
    """Largest Ritz value of ``P^-1 G`` after so many steps from a column p; 0 where p is zero."""
    return list(islice(ritz_values(of, p), steps))[-1][1] if p.any() else 0.0


def ritz_values(of: Operator, p: Array) -> Iterator[tuple[float, float]]:
    """Smallest and largest Ritz value of ``P^-1 G`` after each step from a column p.

    ``of(p)`` is ``z = P^-1 p`` and ``G z``: in the inner product of P the matrix ``P^-1 G`` is symmetric. It
    ends where all directions are used that the start has a part in.
    """
    diagonal: list[float] = []
    beside: list[float] = []
    before, norm = np.zeros_like(p), 0.0
    for _ in range(len(p)):
        z, image = of(p)
        norm = float(np.sqrt(max(float(np.vdot(p, z)), 0.0)))  # by rounding it may be below zero
        if norm <= (1e-10 * abs(diagonal[0]) if diagonal else 0.0):
            return
        if diagonal:
            beside.append(norm)
        p, z, image = p / norm, z / norm, image / norm
        diagonal.append(float(np.vdot(z, image)))
        p, before = image - diagonal[-1] * p - (norm if beside else 0.0) * before, p
        values = np.linalg.eigvalsh(np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1))
        yield float(values[0]), float(values[-1])
