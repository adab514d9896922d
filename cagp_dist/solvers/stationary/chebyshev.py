"""Chebyshev semi-iteration: the polynomial that is smallest between two bounds of a spectrum (math 2)."""

from dataclasses import dataclass, field
from typing import ClassVar

from cagp_dist.gram.gram_matrix import Gram
from cagp_dist.runtime import Executor
from cagp_dist.solvers.engine.stages import Recurrence, Stage
from cagp_dist.solvers.setting_metadata import ITERATIONS
from cagp_dist.solvers.stationary.preconditioned import PreconditionedIteration, known_bounds
from cagp_dist.solvers.stationary.spectrum import row_sums


@dataclass(frozen=True)
class Chebyshev(PreconditionedIteration):
    """Chebyshev semi-iteration, ``v_i = p_i(G) b`` with the best polynomial between two bounds.

    Calibrated exactly, since its matrix does not depend on the data: the bounds are the smallest noise
    variance and the largest row sum of G (math 1.1). That matrix is symmetric, and its downdate positive
    semidefinite, so that no variance is above the prior's (with a preconditioner, if the upper bound below
    holds); from one iteration to the next a variance may rise, unlike those of stationary iterations. The
    number of iterations needed grows with the square root of the ratio of the bounds, which is large for many
    points or little noise: use a preconditioner there.

    A solve that continues from a state begins its polynomial afresh.

    On a complete latitude-longitude grid it goes by rings, as `Jacobi`; with a preconditioner by tiles.

    Parameters
    ----------
    iterations : int
        Degree, at least 0; each is one product with G. It holds one tall matrix, n q numbers, more than
        `Richardson`.
    preconditioner : {"pivoted-cholesky", "nystrom", "vecchia"}, optional
        P of diagonal and low rank, or by neighbours, for polynomials in ``P^-1 G``
        (`cagp_dist.solvers.stationary.preconditioners`). Their bounds are 1 and a twentieth more than the
        largest of 40 Ritz values, each of one product with one column; by neighbours a twentieth less and
        more than the smallest and the largest of some four to sixteen, of half a product each (math 2).
        Scattered points need few iterations with ``"vecchia"``: two or three are within some per cent of
        exact error bars, five, with 120 neighbours, where thousands of points lie within a lengthscale and
        noise is small.
    preconditioner_size : int, optional
        As of `Richardson`.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> X = np.linspace(0.0, 1.0, 200).reshape(-1, 1)
    >>> prior = cagp.Prior(cagp.Matern32(lengthscale=0.3), noise_variance=0.01)
    >>> def stated(solver):
    ...     return float(cagp.condition(prior, X, np.zeros(200), [[0.5]], solver=solver).variance[0])
    >>> exact = stated(cagp.Cholesky())
    >>> stated(cagp.Chebyshev(10)) > 1.1 * exact
    True
    >>> stated(cagp.Chebyshev(10, preconditioner="pivoted-cholesky", preconditioner_size=20)) < 1.01 * exact
    True
    """

    iterations: int = field(metadata=ITERATIONS)

    label: ClassVar[str] = "Chebyshev semi-iteration"
    work_matrices: ClassVar[int] = 1

    def cycle(self, gram: Gram, *, executor: Executor, blocks: int) -> tuple[Stage, ...]:
        """One step of the recurrence."""
        inverse = self.inverse(gram, executor)
        if inverse is not None:
            return (Recurrence(inverse, *known_bounds(inverse), accelerated=True),)
        bounds = float(gram.noise_variance.min()), float(row_sums(gram, executor).max())
        return (Recurrence(None, *bounds, accelerated=True),)
