"""How much of a variance is unfinished computation (math 0): itself where it is known, or bounds of it."""

from dataclasses import dataclass, field, replace

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget import Demand
from cagp_dist.gram.exact_variance import ExactVariance
from cagp_dist.runtime import Executor


@dataclass(frozen=True, eq=False)
class Certificate:
    """The computational part ``V (G^-1 - D) V'`` of the variances of a posterior."""

    variance: Array  # (q,): of the posterior, latent
    exact_variance: ExactVariance | None  # that of the exact posterior; None if this is it
    # size of the problem, and what the bounds may allocate beside the posterior; None: what they need
    demand: Demand | None = None
    # (q,), or None: what coefficients of the prior mean that are estimated add to the variance of the exact
    # posterior; None where only that it is at least zero is known
    of_mean: Array | None = field(default_factory=lambda: np.zeros(1))

    @property
    def known(self) -> bool:
        """Whether both bounds are the computational variance itself."""
        return self.exact_variance is None or (self.exact_variance.known and self.of_mean is not None)

    def bounds(self, executor: Executor) -> Array:
        """Lower and upper bound, shape (2, q), at least zero up to rounding; worked out on the first call."""
        if self.exact_variance is None:
            return np.zeros((2, len(self.variance)))
        demand = self.demand
        if demand is not None and executor.shares_memory and not demand.shares_memory:
            # solved on a cluster, whose memory is not that of this process
            limit = min(demand.memory_limit_bytes, executor.memory_bytes)
            demand = replace(demand, memory_limit_bytes=limit)
        least, most = self.exact_variance.bounds(executor, demand=demand)
        if self.of_mean is None:  # the exact posterior has no larger variance than any other estimate
            return np.stack([np.zeros_like(least), np.maximum(self.variance - least, 0.0)])
        variance = self.variance - self.of_mean
        lower = np.maximum(variance - most, 0.0)
        return np.stack([lower, np.maximum(variance - least, lower)])


@dataclass(frozen=True, eq=False)
class JointCertificate:
    """Certificates of fields with different gaps."""

    parts: "tuple[Certificate | JointCertificate, ...]"  # one for each pattern of gaps
    groups: tuple[Indices, ...]  # the fields of each

    @property
    def known(self) -> bool:
        """Whether both bounds are the computational variance itself, of all fields."""
        return all(part.known for part in self.parts)

    def bounds(self, executor: Executor) -> Array:
        """Lower and upper bound for every field, shape (2, q, T), worked out on the first call."""
        found = [
            np.repeat(part.bounds(executor)[:, :, None], len(group), axis=2)
            for part, group in zip(self.parts, self.groups, strict=True)
        ]
        return np.concatenate(found, axis=2)[:, :, np.argsort(np.concatenate(self.groups))]
