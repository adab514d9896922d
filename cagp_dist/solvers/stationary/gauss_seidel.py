"""Gauss-Seidel, point by point and block by block."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from cagp_dist.gram.gram_matrix import Gram
from cagp_dist.runtime import Executor
from cagp_dist.solvers.engine.stages import Simultaneous, Stage, Sweep
from cagp_dist.solvers.setting_metadata import BLOCK_ORDER, BLOCK_SIZE, COLOURS, ITERATIONS
from cagp_dist.solvers.stationary.ordered import Ordered


@dataclass(frozen=True)
class GaussSeidel(Ordered):
    """Point Gauss-Seidel sweeps in the order of X: Algorithm 2 of [Hegde et al. 2025], in tiles.

    Calibrated exactly, for any number of iterations, since its matrix does not depend on the data (math 1.1).
    The covariance has one term for each sweep of the mean.

    Parameters
    ----------
    iterations : int
        Sweeps over all points, at least 0. Cost of one: n^2 (q / 512 evaluations + 2 q flops).
    order : {"given", "random"}
        In which a sweep visits the points: that of X or, drawn afresh for every sweep, tiles of 512 points in
        a random order and the points of each in a random order. Orders do not depend on the data, and the
        last sweeps of many are the sweeps of few.
    seed : int
        Seed of random orders, at least 0.

    Notes
    -----
    The order of points decides what the first sweeps reach. Points as drawn, or coarse scale first, are far
    better than neighbours together, which leave long scales to later sweeps. `krige` and jobs put points
    coarse scale first for this solver, and neighbours together for blocks.
    """

    iterations: int = field(metadata=ITERATIONS)

    label: ClassVar[str] = "Gauss-Seidel"
    points_per_block: ClassVar[None] = None

    def cycle(self, gram: Gram, *, executor: Executor, blocks: int) -> tuple[Stage, ...]:
        """One sweep over the points, ``Mt = (D + L)^-1``."""
        return (Sweep(whole_blocks=False, seed=self.sweep_seed),)


@dataclass(frozen=True)
class BlockGaussSeidel(Ordered):
    """Block Gauss-Seidel: blocks of consecutive points are solved exactly, one after the other.

    Give the points in an order with neighbours together (`cagp_dist.space_filling_order`): compact blocks
    converge fastest. Calibrated exactly in any order that does not depend on the data, because its matrix
    then does not depend on them either (math 1.1). One block is the exact solve; blocks of one point are
    `GaussSeidel`.

    On a complete latitude-longitude grid with Q longitudes a block is a band of ``block_size // Q`` whole
    rings, at least one. On a mirrored grid it is that band and its mirror image beyond the equator: up to
    twice ``block_size`` points.

    Parameters
    ----------
    iterations : int
        Sweeps over all blocks, at least 0.
    block_size : int
        Points of a block, at least 1. The factors take 8 n block_size bytes.
    order : {"given", "random", "multicolour"}
        In which a sweep visits the blocks: as of `GaussSeidel`, or colour by colour.
    seed : int
        Seed of random orders, at least 0.
    colours : int
        Of a multicolour order, at least 2: every so many-th block has the same colour, and the blocks of one
        colour are solved at once. A sweep then waits for its workers as often as there are colours, in place
        of blocks.

    Notes
    -----
    Blocks of one colour do not see what the others of it do, since G is dense, and are damped by
    ``w = 2 / (1 + s)``, with s an upper bound of ``lambda_max(P^-1 G)`` among them, P their diagonal blocks,
    from their canonical correlations: for C colours 3 / C n^2 block_size flops once, on rings the eigenvalue
    itself. Then ``W = 2 P / w - G`` is positive definite within every colour (math 2), and no sweep raises a
    variance. At long lengthscales w is near two over one more than the blocks of a colour.
    """

    iterations: int = field(metadata=ITERATIONS)
    block_size: int = field(default=1024, metadata=BLOCK_SIZE)
    order: str = field(default="given", kw_only=True, metadata=BLOCK_ORDER)
    colours: int = field(default=4, kw_only=True, metadata=COLOURS)

    label: ClassVar[str] = "block Gauss-Seidel"
    orders: ClassVar[Sequence[str]] = ("given", "random", "multicolour")

    @property
    def points_per_block(self) -> int:
        """Points of a block."""
        return self.block_size

    @property
    def colours_at_once(self) -> int:
        """Colours of blocks that are solved at once; 0 where blocks are solved one after the other."""
        return self.colours if self.order == "multicolour" else 0

    def cycle(self, gram: Gram, *, executor: Executor, blocks: int) -> tuple[Stage, ...]:
        """One sweep over the blocks."""
        if self.colours_at_once and blocks > 1:
            colours = min(self.colours, blocks)
            return tuple(Simultaneous(True, colour=colour, colours=colours) for colour in range(colours))
        return (Sweep(whole_blocks=True, seed=self.sweep_seed),)
