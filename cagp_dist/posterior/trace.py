"""States of a solver, batch by batch of targets, put together into the posterior and its trace."""

from dataclasses import dataclass

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.errors import NumericalError
from cagp_dist.gram.targets import prior_covariance, prior_variance, variance_scale
from cagp_dist.solvers.interface import Problem, State
from cagp_dist.solvers.status import Status

VARIANCE_ROUNDING = 1e-8  # Variances below minus this fraction of the prior variance are errors, not rounding
HOPELESS = 1e6  # Variances above this multiple of the prior variance only grow


@dataclass(frozen=True, eq=False)
class Step:
    """The posterior after some iterations."""

    iteration: int  #: 0 is the prior
    mean: Array  #: Of the shape of the posterior's, unit of y
    variance: Array  #: Latent, squared unit of y


class Trace:
    """Collects states; memory 8 q (T + 1) bytes per iteration."""

    def __init__(self, problem: Problem, prior_mean: Array, of_mean: Array | None = None) -> None:
        self._problem = problem
        self._kernel = problem.gram.kernel
        q, fields = problem.q, problem.fields
        self._prior_mean = np.broadcast_to(prior_mean, (q, fields))
        self._prior_variance = prior_variance(self._kernel, problem.targets)
        self._scale = variance_scale(self._kernel, problem.targets, self._prior_variance)
        self._known_mean_variance = self._prior_variance.copy()
        self._downdate = np.zeros((q, q)) if problem.full_covariance else None
        if of_mean is not None and self._downdate is not None:
            self._downdate -= of_mean
        self._steps: dict[int, tuple[Array, Array]] = {}
        self.iterations: Indices = np.zeros(q, dtype=np.intp)
        """Iterations that each target has had, shape (q,)."""
        _, variance = self._add_step(0)
        if of_mean is not None:
            variance += of_mean if of_mean.ndim == 1 else of_mean.diagonal()

    def _add_step(self, iteration: int) -> tuple[Array, Array]:
        """Begin a step with what is known: targets that ended early keep their last state."""
        before = max((done for done in self._steps if done < iteration), default=None)
        mean, variance = (self._prior_mean, self._prior_variance) if before is None else self._steps[before]
        self._steps[iteration] = step = mean.copy(), variance.copy()
        return step

    def add(self, state: State) -> None:
        """Take a state; it replaces what was known after its iteration for its targets."""
        mean, variance = self._steps.get(state.iteration) or self._add_step(state.iteration)
        full = state.downdate.ndim == 2  # of states from a checkpoint the last one alone
        downdate = state.downdate.diagonal() if full else state.downdate
        # set, not added: a solver that breaks down yields its last iteration again
        mean[state.columns] = self._prior_mean[state.columns] + state.mean
        variance[state.columns] = self._prior_variance[state.columns] - downdate
        self._known_mean_variance[state.columns] = variance[state.columns]
        if state.of_mean is not None:
            of_mean = state.of_mean
            variance[state.columns] += of_mean.diagonal() if of_mean.ndim == 2 else of_mean
        for iteration, (later_mean, later_variance) in self._steps.items():
            if iteration > state.iteration:  # of targets that went on for longer; these may end here
                later_mean[state.columns] = mean[state.columns]
                later_variance[state.columns] = variance[state.columns]
        whole = ((state.columns.start, state.columns.stop),)
        for start, stop in whole if state.active_groups is None else state.active_groups:
            self.iterations[start:stop] = state.iteration
        if full:
            self._downdate = state.downdate if state.of_mean is None else state.downdate - state.of_mean
        self._check(state, mean[state.columns], variance[state.columns])

    def _check(self, state: State, mean: Array, variance: Array) -> None:
        scale, alone = self._scale[state.columns], self._known_mean_variance[state.columns]
        if state.status.of_iteration and (alone > HOPELESS * scale).any():
            raise NumericalError(
                f"after iteration {state.iteration} a posterior variance is {(alone / scale).max():.2g} "
                "times that of the prior: the iteration diverges. Lower damping, or leave it out to have a "
                "safe value worked out.",
                key="diverged",
            )
        if not np.isfinite(mean).all():
            raise NumericalError(
                f"the posterior mean is not finite after iteration {state.iteration}: values of y or of the "
                "prior mean are too large for float64. Use another unit.",
                key="not-finite",
            )
        least = np.minimum(alone, variance)
        if not (least >= -VARIANCE_ROUNDING * scale).all():
            raise NumericalError(
                f"a posterior variance is {least.min():.3g} after iteration {state.iteration}, negative "
                "beyond rounding: the Gram matrix is nearly singular. Raise noise_variance, thin points that "
                "nearly coincide, or use fewer iterations.",
                key="negative-variance",
            )

    def fraction(self, state: State, iterations: int) -> float:
        """Part of the work that is done after ``state``."""
        done = 1.0 if state.ends_early else min(1.0, state.iteration / iterations)
        own = (state.columns.stop - state.columns.start) * done
        return float((state.columns.start + own) / self._problem.q)

    def steps(self) -> list[tuple[int, Array, Array]]:
        """Return iteration, mean (q, T) and variance (q,) after every iteration, the prior first."""
        return [(iteration, *step) for iteration, step in sorted(self._steps.items())]

    @property
    def diverged(self) -> bool:
        """Whether a variance of the last step is above the prior's beyond rounding."""
        return bool(
            (self._known_mean_variance > self._prior_variance + VARIANCE_ROUNDING * self._scale).any()
        )

    def status(self, found: Status) -> Status:
        """Status of the whole solve, from what its last state says and the variances that there are."""
        if found.ok and found.of_iteration and self.diverged:
            return Status.DIVERGED
        if found.ok and (self._steps[max(self._steps)][1] < 0.0).any():
            return Status.ILL_CONDITIONED
        return found

    def covariance(self) -> Array | None:
        """Posterior covariance (q, q), if it was asked for."""
        if self._downdate is None:
            return None
        covariance = prior_covariance(self._kernel, self._problem.targets)
        covariance -= self._downdate
        return 0.5 * (covariance + covariance.T)
