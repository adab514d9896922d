"""Kernel functions of pseudo-inputs as actions: ``s_i = k(X, z_i)`` (math 4)."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal, Self, get_args

from numpy.typing import ArrayLike

from cagp_dist.arrays import Array
from cagp_dist.budget import Demand
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.budget.point_plans import ActionCost
from cagp_dist.checks import as_points, check_word
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.gram_matrix import Gram
from cagp_dist.runtime import Executor
from cagp_dist.solvers.actions.batch_projection import DenseActions
from cagp_dist.solvers.actions.known_actions import KnownActions
from cagp_dist.solvers.actions.subsets import pivoted_points, random_points
from cagp_dist.solvers.setting_metadata import ITERATIONS, SEED
from cagp_dist.solvers.stationary.low_rank import planned_flops

Placement = Literal["space-filling", "random"]


@dataclass(frozen=True)
class PseudoInputs(KnownActions):
    """Kernel functions ``k(X, z_i)`` of pseudo-inputs z_i: weighted sums of the data around them (math 4).

    The mean is ``V K_XZ (K_ZX G K_XZ)^-1 K_ZX b``; with Z = X it is the exact posterior (T24). Calibrated
    exactly, since pseudo-inputs are placed without regard to the data (math 1.1); a sparse approximation with
    the same pseudo-inputs replaces the prior and is not.

    Parameters
    ----------
    iterations : int
        Pseudo-inputs, at least 0; at most n are used.
    placement : {"space-filling", "random"}
        Where they are among the points of X. Space filling: next comes the point whose prior variance, given
        the field at those before, is largest. Random: drawn with ``seed``.
    seed : int
        Seed of the random placement.
    at : sequence of points, optional
        The pseudo-inputs themselves, instead of points of X; the first ``iterations`` are used. They must
        not be chosen from y.

    Notes
    -----
    One product with G of all actions, ``n^2 + n i + n q`` kernel evaluations and ``2 n^2 i + 4 n i^2`` flops;
    8 (6 n i + 3 q i) bytes.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> X = np.linspace(0.0, 1.0, 200).reshape(-1, 1)
    >>> prior = cagp.Prior(cagp.Matern52(lengthscale=0.3), noise_variance=1e-4)
    >>> solver = cagp.PseudoInputs.at_points(np.linspace(0.0, 1.0, 8).reshape(-1, 1))
    >>> posterior = cagp.condition(prior, X, np.sin(6.0 * X[:, 0]), [[0.5]], solver=solver)
    >>> bool(abs(posterior.mean[0] - np.sin(3.0)) < 0.01), posterior.stats.iterations
    (True, 8)
    """

    iterations: int = field(metadata=ITERATIONS)
    placement: Placement = "space-filling"
    seed: int = field(default=0, metadata=SEED)
    at: tuple[tuple[float, ...], ...] | None = field(default=None, repr=False)

    label: ClassVar[str] = "pseudo-inputs"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_word("placement", self.placement, get_args(Placement))
        if self.at is not None:
            # plain numbers, so that the solver is a value that can be compared and hashed
            points = as_points("at", self.at)
            object.__setattr__(self, "at", tuple(tuple(point) for point in points.tolist()))
            if len(points) < self.iterations:
                raise ArgumentError(
                    f"at holds {len(points)} pseudo-inputs, fewer than the {self.iterations} iterations; "
                    "give more of them, or lower iterations.",
                    key="few-pseudo-inputs",
                )

    @classmethod
    def at_points(cls, Z: ArrayLike) -> Self:
        """Take pseudo-inputs (i, p) as they are, one action each."""
        points = as_points("Z", Z)
        if len(points) == 0:
            raise ArgumentError(
                "Z holds no point; expected at least one pseudo-input, (i, p).", key="no-points"
            )
        return cls(len(points), at=tuple(tuple(point) for point in points.tolist()))

    def made(self, gram: Gram, *, executor: Executor) -> DenseActions:
        """Evaluate ``k(X, Z)``, in this process."""
        return DenseActions(gram.kernel(gram.X, self._points(gram)))

    def _points(self, gram: Gram) -> Array:
        n = gram.shape[0]
        count = min(self.iterations, n)
        if self.at is not None:
            return as_points("at", self.at[:count])
        if self.placement == "random":
            return gram.X[random_points(n, count, self.seed)]
        return gram.X[pivoted_points(gram, count)]

    def cost(self, demand: Demand) -> ActionCost:
        """Say what evaluating them takes, from integers alone."""
        n, used = demand.n, min(self.iterations, demand.n)
        placed = self.at is None and self.placement == "space-filling"
        return ActionCost(
            DOUBLE * n * (2 * used + 6),
            n * used * (1 + placed),
            planned_flops(n, used) * placed,
        )
