"""Successive overrelaxation: Gauss-Seidel sweeps that go further, or less far, at every point (math 2)."""

from dataclasses import dataclass, field
from typing import ClassVar

from cagp_dist.gram.gram_matrix import Gram
from cagp_dist.runtime import Executor
from cagp_dist.solvers.engine.affine import Affine
from cagp_dist.solvers.engine.stages import Stage, Sweep
from cagp_dist.solvers.setting_metadata import ITERATIONS, RELAXATION
from cagp_dist.solvers.stationary.ordered import Ordered


@dataclass(frozen=True)
class SOR(Ordered):
    """Successive overrelaxation, ``Mt = (D / w + L)^-1``; w = 1 is `GaussSeidel`.

    Calibrated exactly, since its matrix does not depend on the data (math 1.1).

    Parameters
    ----------
    iterations : int
        Sweeps over all points, at least 0; each costs one of `GaussSeidel`.
    relaxation : float
        w, between 0 and 2, where it always converges (Ostrowski and Reich, math 2).
    order, seed
        As of `GaussSeidel`.
    """

    iterations: int = field(metadata=ITERATIONS)
    relaxation: float = field(metadata=RELAXATION)

    label: ClassVar[str] = "successive overrelaxation"
    points_per_block: ClassVar[None] = None

    def cycle(self, gram: Gram, *, executor: Executor, blocks: int) -> tuple[Stage, ...]:
        """One sweep over the points."""
        return (Sweep(whole_blocks=False, relaxation=self.relaxation, seed=self.sweep_seed),)


@dataclass(frozen=True)
class SSOR(Affine):
    """Symmetric overrelaxation, ``Mt = ((2 - w) / w) (D / w + L')^-1 D (D / w + L)^-1``.

    A sweep of `SOR` and one in the opposite order (T8). Calibrated exactly, since its matrix does not
    depend on the data (math 1.1).

    Parameters
    ----------
    iterations : int
        Pairs of sweeps, at least 0.
    relaxation : float
        w, between 0 and 2, where it always converges.
    """

    iterations: int = field(metadata=ITERATIONS)
    relaxation: float = field(metadata=RELAXATION)

    label: ClassVar[str] = "symmetric overrelaxation"
    stages: ClassVar[int] = 2
    points_per_block: ClassVar[None] = None

    def cycle(self, gram: Gram, *, executor: Executor, blocks: int) -> tuple[Stage, ...]:
        """One sweep forward over the points, and one backward."""
        forward = Sweep(whole_blocks=False, relaxation=self.relaxation)
        return forward, Sweep(whole_blocks=False, relaxation=self.relaxation, ascending=False)
