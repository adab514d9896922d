"""The prior mean of a problem: taken off the data before the solve, put back at the targets.

It is known, or its coefficients are estimated first (`cagp_dist.posterior.coefficients`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.budget import Plan
from cagp_dist.gram.targets import averaged, target_points
from cagp_dist.posterior.coefficients import Coefficients, CountedMean, coefficients_of
from cagp_dist.posterior.problem import Pattern
from cagp_dist.prior import Prior
from cagp_dist.runtime import Executor
from cagp_dist.solvers.interface import Problem, Solver, State
from cagp_dist.solvers.status import Status


@dataclass(frozen=True, eq=False)
class PriorMean:
    """What a solve goes without, of one pattern of fields."""

    problem: Problem  # residuals and what rides along with them
    at_targets: Array  # (q, 1) or (q, T): the mean at the targets
    coefficients: Coefficients | None = None  # how they were estimated, if they were
    counted: CountedMean | None = None  # what they add to variances, where these are wanted
    # their values (k, T) in the basis of the prior, and their covariance (k, k)
    fitted: tuple[Array, Array] | None = None

    @property
    def before(self) -> Array | None:
        """What adds to the variance before the first iteration."""
        return None if self.counted is None else self.counted.before()

    def states(self, states: Iterator[State]) -> Iterator[State]:
        """States of the problem as those of its fields."""
        return states if self.counted is None else self.counted.states(states)

    def status(self, found: Status) -> Status:
        """Status of a solve: it is not exact where coefficients that are not are part of it."""
        inexact = self.coefficients is not None and not self.coefficients.exact
        return Status.COMPLETED if inexact and found is Status.EXACT else found

    @property
    def of_exact(self) -> Array | None:
        """What adds to the variance of the exact posterior, shape (q,); None where that is not known."""
        if self.counted is None or self.coefficients is None:
            return np.zeros(self.problem.q)
        return self.counted.of_exact() if self.coefficients.exact else None


def remove_mean(
    prior: Prior,
    problem: Problem,
    pattern: Pattern,
    solver: Solver,
    *,
    plan: Plan | None,
    executor: Executor,
    variances: bool = True,
    known: Coefficients | None = None,
) -> PriorMean:
    """Take the prior mean off the data of a problem of `cagp_dist.posterior.problem.Problems`."""
    known_mean = None
    if prior.knows_mean:
        known_mean = averaged(problem.targets, pattern.mean_at(prior, target_points(problem.targets)))
    if not prior.estimates_mean:
        assert known_mean is not None
        return PriorMean(problem, known_mean)
    found = known
    if found is None:
        found, problem = coefficients_of(prior, problem, solver, plan=plan, executor=executor)
    fitted = found.of_given_basis(problem.residuals)
    residuals, mean = found.without_mean(problem.residuals)
    mean = mean if known_mean is None else mean + known_mean
    problem = replace(problem, residuals=np.ascontiguousarray(residuals))
    if not variances:
        return PriorMean(problem, mean, found, fitted=fitted)
    counted = found.counted(problem, executor=executor)
    return PriorMean(found.extra_right_hand_sides(problem), mean, found, counted, fitted)
