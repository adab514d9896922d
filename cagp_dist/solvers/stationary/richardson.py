"""Richardson iteration: the residual itself, times a step (math 2)."""

from dataclasses import dataclass, field
from typing import ClassVar

from cagp_dist.gram.gram_matrix import Gram
from cagp_dist.runtime import Executor
from cagp_dist.solvers.engine.stages import Recurrence, Simultaneous, Stage
from cagp_dist.solvers.setting_metadata import ITERATIONS, STEP
from cagp_dist.solvers.stationary.preconditioned import PreconditionedIteration, known_bounds
from cagp_dist.solvers.stationary.spectrum import row_sums


@dataclass(frozen=True)
class Richardson(PreconditionedIteration):
    """Richardson iteration, ``v += step P^-1 (b - G v)``; P is the identity, or a preconditioner.

    Converges for ``step < 2 / lambda_max(P^-1 G)``. With one noise variance for all points and no
    preconditioner it is `Jacobi` with a damping of ``step`` times the diagonal of G. Calibrated exactly,
    since its matrix does not depend on the data (math 1.1).

    On a complete latitude-longitude grid it goes by rings, as `Jacobi`; with a preconditioner by tiles.

    Parameters
    ----------
    iterations : int
        Updates, at least 0; each is one product with G.
    step : float, optional
        Above zero, in one over the squared unit of y; by default one over the largest row sum of G, which
        bounds ``lambda_max``, half the largest value that is sure to converge. A step with which the
        iteration diverges is refused when a solve begins; to find out takes 40 products with one column where
        the row sums do not tell. With a preconditioner a number without unit, by default 2 over the sum of
        the bounds of `Chebyshev`.
    preconditioner : {"pivoted-cholesky", "nystrom", "vecchia"}, optional
        P of diagonal and low rank, or by neighbours (`cagp_dist.solvers.stationary.preconditioners`).
    preconditioner_size : int, optional
        Its rank, at least 1, by default 100, or neighbours, by default 60. 4 n rank q flops in each iteration
        for q test points.
    """

    iterations: int = field(metadata=ITERATIONS)
    step: float | None = field(default=None, metadata=STEP)

    label: ClassVar[str] = "Richardson iteration"
    setting: ClassVar[str] = "step"

    def cycle(self, gram: Gram, *, executor: Executor, blocks: int) -> tuple[Stage, ...]:
        """One update of all points."""
        inverse = self.inverse(gram, executor)
        if inverse is not None:
            return (Recurrence(inverse, *known_bounds(inverse), step=self.step or 0.0),)
        bound = float(row_sums(gram, executor).max())
        step = 1.0 / bound if self.step is None else self.step
        return (Simultaneous(whole_blocks=False, relaxation=step, identity=True, largest=2.0 / bound),)
