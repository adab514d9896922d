"""Leading eigenvectors of G as actions (math 4)."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.budget import Demand
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.budget.point_plans import ActionCost
from cagp_dist.errors import NumericalError
from cagp_dist.gram.dense import DenseGram
from cagp_dist.gram.gram_matrix import Gram
from cagp_dist.runtime import Executor
from cagp_dist.solvers.actions.batch_projection import DenseActions
from cagp_dist.solvers.actions.known_actions import KnownActions
from cagp_dist.solvers.setting_metadata import ITERATIONS

DENSE_POINTS = 1024  # Points up to which all of G is decomposed

# Residual of an eigenvector, as part of its eigenvalue. The belief does not depend on it: it is that of the
# vectors that were found, whatever they are.
TOLERANCE = 1e-10

# Part of the largest eigenvalue within which neighbours in the spectrum count as one eigenvalue
SAME_EIGENVALUE = 1e-9

# Eigenvectors that are sought beyond those asked for, so that the last ones come with all of their kind
BEYOND = 8

PRODUCTS_OF_VECTOR = 4  # Products with G that an eigenvector takes, about


@dataclass(frozen=True)
class Eigenvectors(KnownActions):
    """Eigenvectors of G with the largest eigenvalues: the actions that say most about the field (math 4).

    No other i actions leave less entropy in the field at X [Wenger et al. 2024, lemma S5], but they cost more
    than they save: of use to compare others with. Calibrated exactly, since G does not depend on the data
    (math 1.1).

    Parameters
    ----------
    iterations : int
        Eigenvectors, at least 0; at most n are used.

    Notes
    -----
    Up to 1,024 points, or from a third of n eigenvectors on, all of G is decomposed, in the calling process:
    9 n^3 flops and 40 n^2 bytes. Beyond, by Lanczos iteration (ARPACK) with a fixed start vector: 2 i to 6 i
    products with G of one column (measured), each n^2 / 2 kernel evaluations, and 8 (7 n i) bytes. Of vectors
    with equal eigenvalues any rotation is as good; those nearest to fixed random vectors are taken.
    """

    iterations: int = field(metadata=ITERATIONS)

    label: ClassVar[str] = "eigenvectors"

    def made(self, gram: Gram, *, executor: Executor) -> DenseActions:
        """Find the eigenvectors."""
        n = gram.shape[0]
        count = min(self.iterations, n)
        values, vectors = (
            _all_pairs(gram) if _dense(n, count) else _leading_pairs(gram, count + BEYOND, executor)
        )
        return DenseActions(fix_rotation(values, vectors)[:, :count])

    def cost(self, demand: Demand) -> ActionCost:
        """Say what finding them takes, from integers alone."""
        n, used = demand.n, min(self.iterations, demand.n)
        if _dense(n, used):
            # 9 n^3 flops, which go through memory at less than half the speed of products
            return ActionCost(DOUBLE * 5 * n * n, n * n, 20 * n**3)
        found = used + BEYOND
        products = PRODUCTS_OF_VECTOR * found
        # the Lanczos vectors, twice as many as are sought, and those that are handed back
        return ActionCost(
            DOUBLE * n * (5 * found + 64),
            products * n * n // 2,
            products * 2 * n * n + 8 * n * found**2,
            tasks=16 * products,
        )


def _dense(n: int, count: int) -> bool:
    return n <= DENSE_POINTS or 3 * (count + BEYOND) >= n


def _all_pairs(gram: Gram) -> tuple[Array, Array]:
    """All eigenvalues, largest first, and eigenvectors as columns."""
    dense = DenseGram(gram.kernel, gram.X, noise_variance=gram.noise_variance)
    values, vectors = np.linalg.eigh(dense.matrix)
    return values[::-1], vectors[:, ::-1]


def _leading_pairs(gram: Gram, count: int, executor: Executor) -> tuple[Array, Array]:
    """Find the largest eigenvalues, largest first, and eigenvectors as columns, by products with G."""
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    n = gram.shape[0]
    operator = LinearOperator(
        (n, n), matvec=lambda column: gram.product(column.reshape(n, 1), executor=executor)[:, 0], dtype=float
    )
    start = np.random.default_rng(0).standard_normal(n)
    try:
        values, vectors = eigsh(operator, k=count, which="LA", v0=start, tol=TOLERANCE)
    except ArpackNoConvergence as error:
        raise NumericalError(
            f"{count} eigenvectors of the Gram matrix were not found ({error}). Ask for fewer iterations, or "
            "use PseudoInputs, which need none.",
            key="no-eigenvectors",
        ) from error
    return values[::-1], vectors[:, ::-1]


def fix_rotation(values: Array, vectors: Array) -> Array:
    """Eigenvectors (n, m) that rounding does not turn: those of one eigenvalue nearest to fixed vectors."""
    out = np.array(vectors)
    edges = np.flatnonzero(-np.diff(values) > SAME_EIGENVALUE * np.abs(values).max(initial=0.0)) + 1
    fixed = np.random.default_rng(1)
    for group in np.split(np.arange(len(values)), edges):
        if len(group) > 1:
            span = vectors[:, group]
            basis, _ = np.linalg.qr(span.T @ fixed.standard_normal((len(group), len(vectors))).T)
            out[:, group] = span @ basis
    return out
