"""What a cycle of each affine solver is as a dense matrix: ``Mt`` of ``v <- v + Mt (b - G v)`` (math 2)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

import cagp_dist as cagp
from cagp_dist.solvers.engine.affine import Affine
from cagp_dist.solvers.engine.stages import Simultaneous

from ..oracle import compose, conjugate_gradients, point_stage

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Diverging(Affine):
    """Jacobi updates of which no one asks whether they converge; W need not be positive."""

    damping: float = 1.0

    label: ClassVar[str] = "diverging updates"
    at_once: ClassVar[bool] = True
    points_per_block: ClassVar[None] = None

    def cycle(self, gram, *, executor, blocks):
        """One update of all points."""
        return (Simultaneous(whole_blocks=False, relaxation=self.damping, largest=np.inf),)


def half_sweep(G: Array, relaxation: float, *, ascending: bool = True) -> Array:
    """``(D / w + L)^-1`` of one overrelaxed sweep over the points, or ``(D / w + L')^-1`` of one back."""
    forth = np.linalg.inv(np.tril(G, -1) + np.diag(np.diag(G)) / relaxation)
    return forth if ascending else forth.T


def jacobi_damping(G: Array) -> float:
    """One over the largest row sum of ``D^-1 G``."""
    return float(1.0 / (G.sum(axis=1) / np.diag(G)).max())


def visits(solver: Affine, n: int, number: int, blocks: Array | None = None) -> Array:
    """When a sweep solves with each point, in the cycle of that number, counted from the last: (n,).

    ``blocks`` (n,) is the block of each point, in the given order; by default they are of consecutive points.
    """
    if blocks is None:
        blocks = np.arange(n) // getattr(solver, "block_size", 1)
    if getattr(solver, "order", "given") != "random":
        return blocks
    if hasattr(solver, "block_size"):
        order = np.random.default_rng([solver.seed, number]).permutation(blocks.max() + 1)
        return np.argsort(order)[blocks]
    tile, rank = 512, np.empty(n)
    for place, b in enumerate(np.random.default_rng([solver.seed, number]).permutation(-(-n // tile))):
        points = np.arange(b * tile, min((b + 1) * tile, n))
        shuffled = np.random.default_rng([solver.seed, number, b]).permutation(len(points))
        rank[points[shuffled]] = place * tile + np.arange(len(points))
    return rank


def coupling_bound(G: Array, blocks: list[Array]) -> float:
    """Bound of ``lambda_max(P^-1 G)`` on some blocks, by eighth powers of their canonical correlations."""
    roots = [np.linalg.cholesky(G[np.ix_(block, block)]) for block in blocks]
    norms = np.eye(len(blocks))
    for a, first in enumerate(blocks):
        for b, second in enumerate(blocks[:a]):
            between = np.linalg.solve(roots[a], np.linalg.solve(roots[b], G[np.ix_(second, first)]).T)
            correlations = np.linalg.svd(between, compute_uv=False)
            norms[a, b] = norms[b, a] = min(1.0, (correlations**8).sum() ** 0.125)
    return float(np.linalg.eigvalsh(norms)[-1])


def coloured_stages(G: Array, block_size: int, colours: int, bound=coupling_bound) -> list[Array]:
    """``Mt`` of each colour: its blocks are solved at once, damped by 2 / (1 + bound)."""
    n = len(G)
    blocks = [np.arange(first, min(first + block_size, n)) for first in range(0, n, block_size)]
    stages = []
    for colour in range(min(colours, len(blocks))):
        members = blocks[colour::colours]
        w = 2.0 / (1.0 + np.ceil(1e6 * bound(G, members)) / 1e6)
        Mt = np.zeros((n, n))
        for block in members:
            Mt[np.ix_(block, block)] = w * np.linalg.inv(G[np.ix_(block, block)])
        stages.append(Mt)
    return stages


def chebyshev_matrix(G: Array, low: float, high: float, iterations: int, inverse: Array) -> Array:
    """A of Chebyshev semi-iteration on ``P^-1 G``, whose spectrum is between two bounds."""
    middle, half = (low + high) / 2.0, (high - low) / 2.0
    ratio = middle / half
    x, r, before = np.zeros_like(G), np.eye(len(G)), 1.0 / ratio
    d = inverse @ r / middle
    for _ in range(iterations):
        x, r = x + d, r - G @ d
        after = 1.0 / (2.0 * ratio - before)
        d, before = after * before * d + 2.0 * after / half * (inverse @ r), after
    return x


def dense_cycles(
    solver: Affine, G: Array, blocks: Array | None = None, coarse: Array | None = None
) -> list[Array]:
    """``Mt`` of every cycle, the first one first; Chebyshev is one stage of as many products."""
    if isinstance(solver, cagp.Chebyshev):
        low, high = np.diag(G).min() - 2.0, G.sum(axis=1).max()  # the variance of `regression_problem` is 2
        return [chebyshev_matrix(G, low, high, solver.iterations, np.eye(len(G)))]
    return [dense_stage(solver, G, number, blocks, coarse) for number in range(solver.iterations, 0, -1)]


def coarse_columns(G: Array, coarse: int) -> Array:
    """``k(X, Z)`` for the Z that are chosen one by one, each where most variance is left given the others.

    Of those where as much is left, up to rounding, it is the first. The prior variance of all tests is 2.
    """
    K = G - np.diag(np.diag(G) - 2.0)
    chosen: list[int] = []
    for _ in range(min(coarse, len(G))):
        seen = K[np.ix_(chosen, chosen)]
        left = 2.0 - np.einsum("ij,ij->j", K[chosen], np.linalg.solve(seen, K[chosen]))
        chosen.append(int(np.argmax(left >= (1.0 - 1e-9) * left.max())))
    return K[:, chosen]


def projection_stage(G: Array, S: Array) -> Array:
    """``S (S' G S)^-1 S'``."""
    basis = np.linalg.qr(S)[0]
    return basis @ np.linalg.solve(basis.T @ G @ basis, basis.T)


def dense_stage(
    solver: Affine,
    G: Array,
    number: int = 1,
    blocks: Array | None = None,
    coarse: Array | None = None,
) -> Array:
    """``Mt`` of one cycle of a solver, counted from the last.

    ``blocks`` (n,) is the block of each point, in the given order; by default they are of consecutive points.
    ``coarse`` (n, k) spans the coarse space of two-level methods; by default that of points.
    """
    n, diagonal = len(G), np.diag(G)
    if blocks is None:
        blocks = np.arange(n) // getattr(solver, "block_size", 1)
    on_diagonal, below = blocks[:, None] == blocks, blocks[:, None] >= blocks
    if getattr(solver, "order", "given") == "random":
        rank = visits(solver, n, number, blocks)
        N = np.where(rank[:, None] >= rank, G, 0.0) + np.diag(diagonal / getattr(solver, "relaxation", 1.0))
        return np.linalg.inv(N - np.diag(diagonal))
    if getattr(solver, "order", "given") == "multicolour":
        return compose(G, coloured_stages(G, solver.block_size, solver.colours))[0]
    match solver:
        case cagp.GaussSeidel():
            return point_stage(G)
        case cagp.BlockGaussSeidel():
            return np.linalg.inv(np.where(below, G, 0.0))
        case cagp.SOR():
            return half_sweep(G, solver.relaxation)
        case cagp.SSOR():
            w = solver.relaxation
            forth, back = half_sweep(G, w), half_sweep(G, w, ascending=False)
            return (2.0 - w) / w * back @ (diagonal[:, None] * forth)
        case cagp.Jacobi():
            damping = jacobi_damping(G) if solver.damping is None else solver.damping
            return np.diag(damping / diagonal)
        case Diverging():
            return np.diag(solver.damping / diagonal)
        case cagp.Richardson():
            return np.eye(n) * (1.0 / G.sum(axis=1).max() if solver.step is None else solver.step)
        case cagp.BlockJacobi():
            damping = 1.0 / (blocks.max() + 1) if solver.damping is None else solver.damping
            return damping * np.linalg.inv(np.where(on_diagonal, G, 0.0))
        case cagp.TwoLevelBlockGaussSeidel():
            projection = projection_stage(G, coarse_columns(G, solver.coarse) if coarse is None else coarse)
            return compose(G, [np.linalg.inv(np.where(below, G, 0.0)), projection])[0]
        case cagp.TwoLevelBlockJacobi():
            projection = projection_stage(G, coarse_columns(G, solver.coarse) if coarse is None else coarse)
            damped = solver.damping * np.linalg.inv(np.where(on_diagonal, G, 0.0))
            return compose(G, [projection, damped, projection])[0]
    raise AssertionError(f"{solver!r} has no dense formula here: add it")


def hybrid_stages(
    parts: Sequence[Any],
    G: Array,
    b: Array,
    cycles: Callable[[Affine, Array], list[Array]] = dense_cycles,
) -> tuple[list[Array], list[Array]]:
    """``Mt`` of all stages of a hybrid's parts, and the iterate after each part.

    Directions of conjugate gradients come from the residual there.
    """
    stages: list[Array] = []
    iterates = []
    for part in parts:
        left = b - G @ (compose(G, stages)[0] @ b)
        if isinstance(part, cagp.ConjugateGradient):
            stages.append(projection_stage(G, conjugate_gradients(G, left, part.iterations)[1]))
        elif isinstance(part, cagp.RandomActions):
            actions = np.random.default_rng(part.seed).standard_normal((len(G), part.iterations))
            stages.append(projection_stage(G, actions))
        else:
            stages += cycles(part, G)
        iterates.append(compose(G, stages)[0] @ b)
    return stages, iterates


def weight(solver: Affine, G: Array) -> Array:
    """``W = N + N' - G`` with ``N = Mt^-1``, symmetric."""
    N = np.linalg.inv(dense_stage(solver, G))
    return N + N.T - G
