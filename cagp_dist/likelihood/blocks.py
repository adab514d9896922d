"""The likelihood of many points by blocks of neighbours that count as independent (math 9).

The points are cut into B blocks of neighbours, cells of the space-filling order, and the likelihoods of the
blocks are multiplied::

    L = sum over blocks of  L(X_b, b_b)

Each term is exact, so that the gradient has mean zero at the true parameters (an independent-blocks composite
likelihood; [Varin, Reid & Firth 2011]). What is lost is what
neighbours on two sides of an edge say about each other: little as long as a block is several lengthscales
wide. Unlike a subset drawn at random, a block has the density of all points, hence the same short distances.

A block is a task, and its sums are added in the order of the blocks: the bits do not depend on who works.
"""

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.errors import BudgetError
from cagp_dist.geometry import space_filling_order
from cagp_dist.gram.tiled import identity
from cagp_dist.kernels import coordinates
from cagp_dist.likelihood.evaluation import Evaluation
from cagp_dist.likelihood.exact import dense_bytes, dense_sums, evaluation_of, with_basis, without_scale
from cagp_dist.likelihood.model import Families, Model
from cagp_dist.remedies import Remedy
from cagp_dist.runtime import Executor, single_threaded_blas
from cagp_dist.text import bytes_text, counted
from cagp_dist.tiling import block_ranges

BLOCK_POINTS = 1_000
"""Points of a block, at most."""


class BlockLikelihood:
    """Likelihood and gradient of points anywhere, blocks of neighbours counting as independent.

    Parameters
    ----------
    kernel : type of Kernel, several, or Model
        Family of the covariance, or of each part of a sum.
    X : array of float64, shape (n, p)
        Observed points.
    residuals : array of float64, shape (n, T)
        ``b = y - mean(X)``, a column for each field.
    executor : Executor
        Where the blocks are worked on; the result does not depend on it.
    memory_limit_bytes : int
        What may be allocated.
    deviations, basis : arrays of float64, shapes (n,) and (n, k), optional
        As for `cagp_dist.likelihood.exact.DenseLikelihood`. All blocks share the coefficients.
    curved : bool
        Whether evaluations have ``squares``, 2 n m^2 flops more for each number.

    Raises
    ------
    BudgetError
        If the blocks that are worked on at once do not fit.
    """

    difference = 1e-3

    def __init__(
        self,
        kernel: Families | Model,
        X: Array,
        residuals: Array,
        *,
        executor: Executor,
        memory_limit_bytes: int,
        deviations: Array | None = None,
        basis: Array | None = None,
        curved: bool = False,
    ) -> None:
        self._curved = curved
        self._model = Model.of(kernel)
        self._executor = executor
        self._deviate = deviations is not None
        self.points, self.fields = residuals.shape
        residuals, self._coefficients = with_basis(residuals, basis)
        blocks = -(-self.points // BLOCK_POINTS)
        size = -(-self.points // blocks)  # of equal size but for the last
        needed = min(executor.workers, blocks) * (
            dense_bytes(size, residuals.shape[1]) + 4 * curved * DOUBLE * size**2
        )
        if needed > memory_limit_bytes:
            raise BudgetError(
                f"the likelihood of blocks of {size:,} points needs {bytes_text(needed)} on "
                f"{counted(executor.workers, 'worker')}, more than the {bytes_text(memory_limit_bytes)} that "
                "may be used.",
                remedies=(Remedy.MORE_MEMORY, Remedy.FEWER_WORKERS),
            )
        order = space_filling_order(self._model.comparable(X), block_size=size)
        self._blocks = [
            (
                executor.submit(identity, coordinates(X[order[start:stop]]), home=index),
                executor.submit(identity, residuals[order[start:stop]], home=index),
                None
                if deviations is None
                else executor.submit(identity, deviations[order[start:stop]], home=index),
            )
            for index, (start, stop) in enumerate(block_ranges(self.points, size))
        ]

    def evaluate(self, *numbers: float) -> Evaluation:
        """Evaluate at (lengthscale, ratio), or (lengthscales, weights, ratio) of a sum.

        Returns
        -------
        Evaluation
            Cost n m^2 flops and 2 n m kernel values for blocks of m points; for each worker memory as in
            `dense_bytes` of a block.

        Raises
        ------
        NumericalError
            If a block of R is not positive definite in floating point.
        """
        numbers, scale = without_scale(numbers, self._deviate)
        kernel, derivatives = self._model.unit(numbers), self._model.derivatives(numbers)
        with single_threaded_blas():
            parts = self._executor.gather(
                [
                    self._executor.submit(
                        dense_sums,
                        kernel.parameters,
                        derivatives,
                        numbers[-1],
                        points,
                        residuals,
                        deviations,
                        scale,
                        self._coefficients,
                        self._curved,
                        home=index,
                    )
                    for index, (points, residuals, deviations) in enumerate(self._blocks)
                ]
            )
        return evaluation_of(
            sum(parts, np.zeros_like(parts[0])),
            self.points,
            self.fields,
            self._model.numbering,
            coefficients=self._coefficients,
            curved=self._curved,
        )
