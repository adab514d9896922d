"""Two-level methods: sweeps over blocks, and a coarse space for what varies slowly over many (math 6).

Of what is alike over many blocks a sweep takes a part; a projection on a coarse space takes the rest.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from cagp_dist.gram.gram_matrix import Gram
from cagp_dist.runtime import Executor
from cagp_dist.solvers.engine.affine import Affine
from cagp_dist.solvers.engine.stages import CoarseSpace, Simultaneous, Stage, Sweep
from cagp_dist.solvers.setting_metadata import BLOCK_SIZE, COARSE, DAMPING, ITERATIONS
from cagp_dist.solvers.stationary.spectrum import STEPS_OF_DEFAULT


@dataclass(frozen=True)
class TwoLevel(Affine):
    """What two-level methods have in common: blocks of points and a coarse space."""

    iterations: int = field(metadata=ITERATIONS)
    block_size: int = field(default=1024, metadata=BLOCK_SIZE)
    coarse: int = field(default=256, metadata=COARSE)

    @property
    def points_per_block(self) -> int:
        """Points of a block."""
        return self.block_size

    @property
    def coarse_columns(self) -> int:
        """Columns of the coarse space."""
        return self.coarse


@dataclass(frozen=True)
class TwoLevelBlockGaussSeidel(TwoLevel):
    """Block Gauss-Seidel with a coarse space: deflated block Gauss-Seidel, for long lengthscales.

    A cycle is a sweep of `BlockGaussSeidel`, and then the exact solution in the span of the covariances of
    all points with ``coarse`` of them (math 6). Exactly calibrated if the prior is right, after any number of
    cycles.

    On a complete latitude-longitude grid blocks are bands of rings, as those of `BlockGaussSeidel`, and the
    coarse space is another one: the covariances of all points with ``coarse`` waves along the rings, cosines
    and sines of the longitude at one latitude, each chosen where the variance given the others is largest
    (math 7.5). It falls into wavenumbers as the sweeps do. The belief differs from that at the same points
    given one by one; both are exactly calibrated.

    Parameters
    ----------
    iterations : int
        Cycles, at least 0. Each costs a sweep, and 4 n coarse q flops for q test points.
    block_size : int
        Points of a block, at least 1.
    coarse : int
        Columns of the coarse space, at least 1. One product with G of so many columns before the first cycle,
        and 16 n coarse bytes.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> X = np.linspace(0.0, 1.0, 400).reshape(-1, 1)
    >>> prior = cagp.Prior(cagp.Matern32(lengthscale=1.0), noise_variance=0.01)
    >>> def stated(solver):
    ...     return float(cagp.condition(prior, X, np.zeros(400), [[0.5]], solver=solver).variance[0])
    >>> exact = stated(cagp.Cholesky())
    >>> stated(cagp.BlockGaussSeidel(2, block_size=40)) > 1.5 * exact
    True
    >>> stated(cagp.TwoLevelBlockGaussSeidel(2, block_size=40, coarse=20)) < 1.01 * exact
    True
    """

    label: ClassVar[str] = "two-level block Gauss-Seidel"

    @property
    def projections(self) -> int:
        """Projections in all cycles."""
        return self.iterations

    def cycle(self, gram: Gram, *, executor: Executor, blocks: int) -> tuple[Stage, ...]:
        """One sweep over the blocks, and a projection."""
        return Sweep(whole_blocks=True), CoarseSpace(self.coarse)


@dataclass(frozen=True)
class TwoLevelBlockJacobi(TwoLevel):
    """Damped block Jacobi with a coarse space: all blocks at once, also for long lengthscales.

    A cycle is a projection, an update of `BlockJacobi`, and the projection again (math 6). Between two cycles
    of a solve it is done once, since a second one in a row changes nothing. The coarse space holds what made
    large dampings diverge, so that a cycle takes nearly as much out as a sweep of `TwoLevelBlockGaussSeidel`,
    and all its blocks are solved at the same time. Exactly calibrated if the prior is right, after any number
    of cycles. On a complete latitude-longitude grid blocks are bands of rings, and the coarse space is that
    of `TwoLevelBlockGaussSeidel` there.

    Parameters
    ----------
    iterations : int
        Cycles, at least 0. Each costs an update of all blocks and 4 n coarse q flops for q test points, the
        first one twice as many.
    block_size : int
        Points of a block, at least 1.
    coarse : int
        Columns of the coarse space, at least 1; as for `TwoLevelBlockGaussSeidel`.
    damping : float, optional
        Above zero and below ``1.9 / lambda``, lambda the largest eigenvalue that the coarse space leaves of
        ``B^-1 G``, with the diagonal blocks B of G; by default ``1.5 / lambda``, at most 1. Lambda is
        estimated by 20 products with G of one column each, by 40 where a damping is given; by rings it is
        the eigenvalue itself, of all wavenumbers. From ``2 / lambda`` on the iteration diverges.
    """

    damping: float | None = field(default=None, metadata=DAMPING)

    label: ClassVar[str] = "two-level block Jacobi"
    setting: ClassVar[str] = "damping"
    at_once: ClassVar[bool] = True

    @property
    def projections(self) -> int:
        """Projections in all cycles: that between two cycles is done once."""
        return self.iterations + 1 if self.iterations else 0

    @property
    def products(self) -> int:
        """Products of G with one column, of half the evaluations each."""
        return STEPS_OF_DEFAULT // 2

    def cycle(self, gram: Gram, *, executor: Executor, blocks: int) -> tuple[Stage, ...]:
        """Project, update all blocks, and project again."""
        coarse = CoarseSpace(self.coarse)
        return coarse, Simultaneous(whole_blocks=True, relaxation=self.damping or 0.0, coarse=coarse), coarse
