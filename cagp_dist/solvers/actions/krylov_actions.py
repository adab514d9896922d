"""Lanczos vectors of a simulated right-hand side as actions (math 4)."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from cagp_dist.budget import Demand
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.budget.point_plans import ActionCost
from cagp_dist.gram.gram_matrix import Gram
from cagp_dist.runtime import Executor
from cagp_dist.solvers.actions.batch_projection import DenseActions
from cagp_dist.solvers.actions.known_actions import KnownActions
from cagp_dist.solvers.actions.orthonormal import DEPENDENT_ACTION
from cagp_dist.solvers.setting_metadata import ITERATIONS, SEED
from cagp_dist.solvers.stationary.low_rank import partial_cholesky, planned_flops

START_RANK = 256  # Columns of the low-rank part of the simulated data's covariance


@dataclass(frozen=True)
class KrylovActions(KnownActions):
    """Conjugate gradients on simulated data: the directions they would take, without a look at y (math 4).

    The actions span ``xi, G xi, G^2 xi, ...`` for data xi that are drawn from the prior, up to the accuracy
    of a partial Cholesky factor of rank 256. Calibrated exactly, since xi is independent of y (math 1.1), and
    slower to converge than `ConjugateGradient`, since y is not one of its directions.

    Parameters
    ----------
    iterations : int
        Actions, at least 0; at most n are used.
    seed : int
        Seed of the simulated data. They must be independent of y.

    Notes
    -----
    As many products with G of one column as actions, ``n^2 i / 2`` kernel evaluations and
    ``2 n^2 i + 14 n i^2`` flops; 8 (6 n i + 3 q i) bytes.
    """

    iterations: int = field(metadata=ITERATIONS)
    seed: int = field(default=0, metadata=SEED)

    label: ClassVar[str] = "Krylov actions"

    def made(self, gram: Gram, *, executor: Executor) -> DenseActions:
        """Orthonormal Lanczos vectors and their products with G; a new start where a space is exhausted."""
        n = gram.shape[0]
        count = min(self.iterations, n)
        generator = np.random.default_rng(self.seed)
        U = partial_cholesky(gram.kernel, gram.X, rank=START_RANK).factor
        basis, images = np.empty((count, n)), np.empty((count, n))
        noise = np.sqrt(gram.noise_variance)
        successor = U @ generator.standard_normal(U.shape[1]) + noise * generator.standard_normal(n)
        done = 0
        while done < count:
            size = np.linalg.norm(successor)
            for _ in range(3):
                successor = successor - basis[:done].T @ (basis[:done] @ successor)
            left = np.linalg.norm(successor)
            if not left > DEPENDENT_ACTION * size:
                successor = generator.standard_normal(n)
                continue
            basis[done] = successor / left
            images[done] = gram.product(basis[done][:, None], executor=executor)[:, 0]
            successor = images[done]
            done += 1
        return DenseActions(basis.T, images.T)

    def cost(self, demand: Demand) -> ActionCost:
        """Say what making them takes, from integers alone."""
        n, used = demand.n, min(self.iterations, demand.n)
        rank = min(START_RANK, n)
        return ActionCost(
            DOUBLE * n * (max(2 * used, rank) + rank + 24),
            n * rank + used * n * n // 2,
            planned_flops(n, rank) + 2 * n * n * used + 12 * n * used**2,
            tasks=16 * used,
            has_images=True,
        )
