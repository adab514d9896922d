"""Damped Jacobi: all points, or all blocks, are solved at once from the same residual (math 2)."""

from dataclasses import dataclass, field
from typing import ClassVar

from cagp_dist.gram.gram_matrix import Gram
from cagp_dist.runtime import Executor
from cagp_dist.solvers.engine.affine import Affine
from cagp_dist.solvers.engine.stages import Simultaneous, Stage
from cagp_dist.solvers.setting_metadata import BLOCK_SIZE, DAMPING, ITERATIONS
from cagp_dist.solvers.stationary.spectrum import row_sums


@dataclass(frozen=True)
class Jacobi(Affine):
    """Damped Jacobi, ``v += damping D^-1 (b - G v)``.

    Converges for ``damping < 2 / lambda_max(D^-1 G)``. All entries of these covariances are positive, so
    the largest row sum of ``D^-1 G`` bounds that eigenvalue.

    Calibrated exactly, since its matrix does not depend on the data (math 1.1). On a complete
    latitude-longitude grid it works on rings, one wavenumber after the other, or by tiles where memory is too
    short for that; the belief is the same up to rounding (math 7.5).

    Parameters
    ----------
    iterations : int
        Updates of all points, at least 0; each is one product with G.
    damping : float, optional
        Above zero; by default one over that row sum, half the largest value that is sure to
        converge. A damping with which the iteration diverges is refused when a solve begins; to find out
        takes 40 updates of one column where the row sum does not tell.
    """

    iterations: int = field(metadata=ITERATIONS)
    damping: float | None = field(default=None, metadata=DAMPING)

    label: ClassVar[str] = "Jacobi"
    setting: ClassVar[str] = "damping"
    at_once: ClassVar[bool] = True
    points_per_block: ClassVar[None] = None

    @property
    def by_rings(self) -> bool:
        """True: all points of a ring are solved alike."""
        return True

    @property
    def products(self) -> int:
        """Products of G with one column: its row sums."""
        return 1

    def cycle(self, gram: Gram, *, executor: Executor, blocks: int) -> tuple[Stage, ...]:
        """One update of all points."""
        bound = float((row_sums(gram, executor) / gram.diagonal()).max())
        damping = 1.0 / bound if self.damping is None else self.damping
        return (Simultaneous(whole_blocks=False, relaxation=damping, largest=2.0 / bound),)


@dataclass(frozen=True)
class BlockJacobi(Affine):
    """Damped block Jacobi: `Jacobi` with blocks of consecutive points, each solved exactly.

    With B blocks it converges for every damping below ``2 / B``, and for larger ones below
    ``2 / lambda_max(P^-1 G)``, P the diagonal blocks. Calibrated exactly, since its matrix does not depend on
    the data (math 1.1).

    Parameters
    ----------
    iterations : int
        Updates of all blocks, at least 0.
    block_size : int
        Points of a block, at least 1.
    damping : float, optional
        Above zero; by default ``1 / B``. One that diverges is refused as by `Jacobi`, for which those of
        ``2 / B`` or more take 40 updates of one column.
    """

    iterations: int = field(metadata=ITERATIONS)
    block_size: int = field(default=1024, metadata=BLOCK_SIZE)
    damping: float | None = field(default=None, metadata=DAMPING)

    label: ClassVar[str] = "block Jacobi"
    setting: ClassVar[str] = "damping"
    at_once: ClassVar[bool] = True

    @property
    def points_per_block(self) -> int:
        """Points of a block."""
        return self.block_size

    def cycle(self, gram: Gram, *, executor: Executor, blocks: int) -> tuple[Stage, ...]:
        """One update of all blocks."""
        damping = self.damping or 1.0 / blocks
        return (Simultaneous(whole_blocks=True, relaxation=damping, largest=2.0 / blocks),)
