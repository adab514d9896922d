"""Stages: affine updates ``v <- v + Mt (b - G v)`` that work block by block (math 1.2, 2).

With ``N = Mt^-1`` and a diagonal block ``G_b`` of G (D its diagonal, L its strict lower triangle)::

    Sweep            N is block lower triangular, its diagonal blocks
                     N_b = D / w + L (points)   or   G_b / w (whole blocks);   W = (2/w - 1) D or G_b
                     blocks are solved one after the other, each with what those before it left
    Simultaneous     N is block diagonal,  N_b = D / w,  I / w  or  G_b / w;   W = 2 N - G
                     all blocks are solved from the same right-hand side, or all of one colour: a cycle of
                     colours is block Gauss-Seidel without the couplings inside a colour
    Recurrence       a step of a polynomial in ``P^-1 G``, P the identity or a preconditioner
    Projection       Mt = S (S' G S)^-1 S' for a few columns S: solves what lies in their span (math 5, 6)
    CoarseSpace      a Projection whose columns the system chooses: points, or waves along whole rings
    Conditioning     conditions the belief of the stages before it on S' r, for a few columns S (math 6 c)

``w = 1`` is Gauss-Seidel (Sweep) or Jacobi (Simultaneous), other w are over- or underrelaxed. Where W is
positive semidefinite a stage repeated, or put in front of others, never raises a variance (math 1.4): always
for a Sweep with w below 2, and for Simultaneous where ``w lambda_max <= 2``, the largest eigenvalue being
that of G with ``D^-1``, the identity or the inverse blocks in front.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.gram.dense import cholesky_lower
from cagp_dist.gram.vecchia_factor import VecchiaFactor


class BlockSolution(NamedTuple):
    """Columns ``Z = N_b^-1 Y`` (m, r), and ``half`` (m, r) with ``half' half = Z' W_b Z``."""

    columns: Array
    half: Array


class Stage(ABC):
    """One stage: what a cycle is made of."""

    @property
    @abstractmethod
    def weight_psd(self) -> bool:
        """Whether W is known to be positive semidefinite (math 1.4)."""

    @property
    def varies(self) -> bool:
        """Whether it differs from one cycle to the next."""
        return False

    @property
    def idempotent(self) -> bool:
        """Whether a second one in a row changes nothing."""
        return False

    def at(self, number: int, *, place: int) -> Self:
        """Return the stage of one cycle, counted from the end of the solve, from 1.

        A state of the adjoint pass, which begins with the last cycle, is then that of a solver which ends
        there. ``place`` is counted from the beginning of the pass in both directions.
        """
        return self


@dataclass(frozen=True)
class BlockStage(Stage):
    """A stage that solves block by block."""

    # whether diagonal blocks are solved as a whole, or by their triangle (a sweep) or diagonal
    whole_blocks: bool
    relaxation: float = 1.0  # w, above zero

    @property
    def weight_psd(self) -> bool:
        """Whether W is known to be positive semidefinite (math 1.4)."""
        return self.relaxation <= 2.0

    def within(self, block: int) -> Self:
        """Return the stage as it solves with one block."""
        return self

    @property
    def kind_of_factor(self) -> tuple[object, ...]:
        """What stages whose factors of a block are the same have in common."""
        return (True,) if self.whole_blocks else (False, self.relaxation)

    def factor(self, block: Array) -> Array:
        """Make what `solve` takes of a diagonal block (m, m), Fortran order; its lower triangle matters."""
        if self.whole_blocks:
            return cholesky_lower(block)
        if self.relaxation == 1.0:
            return block
        relaxed = np.array(block, order="F")
        relaxed[np.diag_indices(len(block))] /= self.relaxation
        return relaxed


@dataclass(frozen=True)
class Sweep(BlockStage):
    """Visit the blocks one after the other."""

    #: Order in which a forward sweep visits the blocks; the adjoint visits them the other way round
    ascending: bool = True
    #: Whether the blocks, and the points of a block that are solved one by one, stand in a random order, a
    #: fresh one for each cycle; None: as they are given
    seed: int | None = None
    cycle: int = 0  #: Of a random order, which cycle, counted from the end of the solve, and which block
    block: int = 0

    @property
    def varies(self) -> bool:
        """Whether it differs from one cycle to the next."""
        return self.seed is not None

    def at(self, number: int, *, place: int) -> Self:
        """Return the stage of one cycle, counted from the end of the solve, from 1."""
        return self if self.seed is None else replace(self, cycle=number)

    def within(self, block: int) -> Self:
        """Return the stage as it solves with one block."""
        return self if self.seed is None else replace(self, block=block)

    def order(self, blocks: int, *, adjoint: bool) -> Sequence[int]:
        """Blocks in the order in which they are visited."""
        if self.seed is None:
            return range(blocks) if self.ascending != adjoint else range(blocks - 1, -1, -1)
        forward: list[int] = np.random.default_rng([self.seed, self.cycle]).permutation(blocks).tolist()
        return forward if self.ascending != adjoint else forward[::-1]

    def solve(self, factor: Array, Y: Array, *, adjoint: bool) -> BlockSolution:
        """``Z = N_b^-1 Y``, or ``N_b^-T Y`` for the adjoint; Y (m, r). m^2 r flops, whole blocks 2 m^2 r."""
        from scipy.linalg.blas import dtrsm

        if self.seed is not None and not self.whole_blocks:
            return self._solve_shuffled(factor, Y, adjoint=adjoint)
        w, target = self.relaxation, Y.T  # BLAS wants columns contiguous: Z' = Y' op(L)^-1
        if self.whole_blocks:
            half = dtrsm(1.0, factor, target, side=1, lower=1, trans_a=1)
            solution = dtrsm(w, factor, half, side=1, lower=1, trans_a=0)
            weight = np.sqrt(w * (2.0 - w))
            return BlockSolution(solution.T, (half if w == 1.0 else weight * half).T)
        transposed = self.ascending == adjoint
        solution = dtrsm(1.0, factor, target, side=1, lower=1, trans_a=0 if transposed else 1)
        half = solution * np.sqrt((2.0 - w) * factor.diagonal())
        return BlockSolution(solution.T, half.T)

    def _solve_shuffled(self, factor: Array, Y: Array, *, adjoint: bool) -> BlockSolution:
        """Solve point by point in a random order: with the triangle of the block in that order."""
        points = np.random.default_rng([self.seed or 0, self.cycle, self.block]).permutation(len(Y))
        shuffled = np.array(factor[np.ix_(points, points)], order="F")
        columns, half = replace(self, seed=None).solve(shuffled, Y[points], adjoint=adjoint)
        back = np.argsort(points)
        return BlockSolution(columns[back], half[back])


@dataclass(frozen=True)
class Simultaneous(BlockStage):
    """Solve all blocks from the same right-hand side; the order of blocks has no influence.

    Where points are solved one by one the factor of a block is the diagonal of ``N_b``, a vector (m,).
    """

    identity: bool = False  #: Whether points are solved as if the diagonal of G were one (Richardson)
    largest: float = 0.0  #: Relaxations below this one are known to leave W positive definite
    #: Which blocks are solved: ``colour``, ``colour + colours`` and so on; by default all of them. W is that
    #: of these blocks
    colour: int = 0
    colours: int = 1
    #: Projection before this stage and after it, so that its relaxation is bounded by what that leaves of G
    #: alone; 0 is then a relaxation that is still to be chosen
    coarse: "CoarseSpace | None" = None

    @property
    def kind_of_factor(self) -> tuple[object, ...]:
        """What stages whose factors of a block are the same have in common."""
        return (True,) if self.whole_blocks else (False, self.relaxation, self.identity)

    def members(self, blocks: int) -> range:
        """Blocks that are solved."""
        return range(self.colour, blocks, self.colours)

    @property
    def weight_psd(self) -> bool:
        """Whether W is known to be positive semidefinite (math 1.4)."""
        return self.relaxation < self.largest

    def factor_points(self, diagonal: Array) -> Array:
        """Make what `solve` takes of the diagonal of a block, shape (m,)."""
        return (np.ones_like(diagonal) if self.identity else diagonal) / self.relaxation

    def solve(self, factor: Array, Y: Array) -> Array:
        """``Z = N_b^-1 Y``, the same for the adjoint; Y (m, r)."""
        from scipy.linalg.blas import dtrsm

        if not self.whole_blocks:
            return Y / factor[:, None]
        half = dtrsm(1.0, factor, Y.T, side=1, lower=1, trans_a=1)
        return np.asarray(dtrsm(self.relaxation, factor, half, side=1, lower=1, trans_a=0).T)


@dataclass(frozen=True, eq=False)
class ProjectionStage(Stage):
    """Solve in the span of k columns S: ``Mt = S (S' G S)^-1 S' = P P'``, symmetric.

    The error that it leaves is G-orthogonal to S, so that a second one changes nothing.
    """

    # each (n, k): ``P`` with ``P' G P = I``, and ``G P``. 16 n k bytes; one application to r columns is 4 n k
    # r flops.
    basis: Array
    image: Array

    weight_psd = idempotent = True


@dataclass(frozen=True)
class CoarseSpace(Stage):
    """A projection that is still to be made: its columns are chosen by the system, never from the data."""

    columns: int  # k, at least 1; fewer where they say all there is to say

    weight_psd = True


@dataclass(frozen=True, eq=False)
class ConditioningStage(Stage):
    """Add ``P P'`` to D and ``P c`` to v, and leave all columns as they are: the last stage of a solve.

    For a belief ``N(v, G^-1 - D)`` that is conditioned on ``S' r``, ``r = b - G v``, with ``H = S - D G S``:
    ``P P' = H (S' G H)^-1 H'`` and ``P c = H (S' G H)^-1 S' r``. The adjoint pass begins with it.
    """

    basis: Array  # (n, k): P
    coefficients: Array  # (k, T): c

    weight_psd = True


@dataclass(frozen=True, eq=False)
class LowRankInverse:
    """``P^-1 = diag(1 / d) - S S'``, with ``G - P`` positive semidefinite."""

    inverse_diagonal: Array  # (n,): ``1 / d``
    factor: Array  # (n, r): S
    largest: float  # upper bound of ``lambda_max(P^-1 G)``; the smallest eigenvalue is at least 1


@dataclass(frozen=True)
class Recurrence(Stage):
    """``Z = momentum Z_before + step P^-1 Y``: preconditioned Richardson, or Chebyshev (math 2).

    Whatever the increments Z, ``D = sum of Z' (Y + Y - G Z)`` is ``A + A' - A G A'`` (T5).
    """

    inverse: LowRankInverse | VecchiaFactor | None  # ``P^-1``; None: the identity
    # bounds of the spectrum of ``P^-1 G``; 0 and infinity: still to be estimated
    low: float
    high: float
    accelerated: bool = False  # whether `at` gives the coefficients of Chebyshev; else they are what they are
    step: float = 0.0
    momentum: float = 0.0
    # whether no eigenvalue is beyond what the bounds allow for, but with a probability that is negligible
    sure: bool = True

    @property
    def weight_psd(self) -> bool:
        """Whether the downdate is positive semidefinite; of Chebyshev that of all steps together."""
        return self.sure and (self.accelerated or self.step < 2.0 / self.high)

    def at(self, number: int, *, place: int) -> Self:
        """Return the step of a pass, from 1."""
        if not self.accelerated:
            return self
        middle, half = (self.low + self.high) / 2.0, (self.high - self.low) / 2.0
        if half <= 1e-12 * middle or place == 1:
            return replace(self, step=1.0 / middle, momentum=0.0)
        ratio = middle / half
        before = rho = 1.0 / ratio
        for _ in range(place - 1):
            before, rho = rho, 1.0 / (2.0 * ratio - rho)
        return replace(self, step=2.0 * rho / half, momentum=rho * before)


def without_repeats(stages: Sequence[Stage], *, after: Stage | None = None) -> list[Stage]:
    """Leave out projections that directly follow themselves, or are the first ``after`` themselves."""
    kept = []
    for stage in stages:
        if stage is not after or not stage.idempotent:
            kept.append(stage)
        after = stage
    return kept


def stages_of_cycle(cycle: Sequence[Stage], number: int, *, place: int, adjoint: bool) -> list[Stage]:
    """Give the stages of one cycle in the order in which a pass goes through them."""
    stages = [stage.at(number, place=place) for stage in (reversed(cycle) if adjoint else cycle)]
    return without_repeats(stages, after=stages[-1] if place > 1 else None)
