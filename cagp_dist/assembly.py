"""States of a solver, batch by batch of test points, put together into the posterior and its trace."""

from dataclasses import dataclass

import numpy as np

from cagp_dist.errors import ArgumentError, NumericalError
from cagp_dist.gram.base import Array
from cagp_dist.kernels import Kernel
from cagp_dist.solvers import Problem, State

VARIANCE_ROUNDING = 1e-8
"""Variances below minus this fraction of the prior variance are errors, not rounding."""


@dataclass(frozen=True, eq=False)
class Step:
    """The posterior after some iterations.

    Attributes
    ----------
    iteration : int
        0 is the prior.
    mean : array, shape (q,) or (q, T)
        Unit of y.
    variance : array, shape (q,)
        Latent, squared unit of y.
    """

    iteration: int
    mean: Array
    variance: Array


class Assembly:
    """Collects states; memory 8 q (T + 1) bytes per iteration.

    Parameters
    ----------
    kernel : Kernel
        Prior covariance.
    problem : Problem
        What is being solved.
    prior_mean : array, shape (q, 1) or (q, T)
        Prior mean at the test points.
    """

    def __init__(self, kernel: Kernel, problem: Problem, prior_mean: Array) -> None:
        self._kernel = kernel
        self._points = problem.test_points
        self._full = problem.full_covariance
        q, fields = len(problem.test_points), problem.residuals.shape[1]
        if prior_mean.shape[1] not in (1, fields):
            raise ArgumentError(f"the prior mean has {prior_mean.shape[1]} columns for {fields} fields.")
        self._prior_mean = np.broadcast_to(prior_mean, (q, fields))
        self._downdate = np.zeros((q, q)) if self._full else None
        self._steps: dict[int, tuple[Array, Array]] = {}
        self._add_step(0)

    def _add_step(self, iteration: int) -> tuple[Array, Array]:
        q = len(self._points)
        step = self._prior_mean.copy(), np.full(q, float(self._kernel.variance))
        self._steps[iteration] = step
        return step

    def add(self, state: State) -> None:
        """Take a state; it replaces what was known after its iteration for its test points.

        Raises
        ------
        NumericalError
            If its mean is not finite, or a variance is negative beyond rounding.
        """
        mean, variance = self._steps.get(state.iteration) or self._add_step(state.iteration)
        downdate = state.downdate.diagonal() if self._full else state.downdate
        # set, not added: a solver that breaks down yields its last iteration again
        mean[state.columns] = self._prior_mean[state.columns] + state.mean
        variance[state.columns] = self._kernel.variance - downdate
        if self._full:
            self._downdate = state.downdate
        self._check(state, mean[state.columns], variance[state.columns])

    def _check(self, state: State, mean: Array, variance: Array) -> None:
        if not np.isfinite(mean).all():
            raise NumericalError(
                f"the posterior mean is not finite after iteration {state.iteration}: values of y or of the "
                "prior mean are too large for float64. Use another unit."
            )
        least = float(variance.min(initial=np.inf))
        if not least >= -VARIANCE_ROUNDING * self._kernel.variance:
            raise NumericalError(
                f"a posterior variance is {least:.3g} after iteration {state.iteration}, negative beyond "
                "rounding: the Gram matrix is nearly singular. Raise noise_variance, thin points that nearly "
                "coincide, or use fewer iterations."
            )

    def fraction(self, state: State, iterations: int) -> float:
        """Part of the work that is done after ``state``."""
        done = 1.0 if state.ends_early else min(1.0, state.iteration / iterations)
        own = (state.columns.stop - state.columns.start) * done
        return float((state.columns.start + own) / len(self._points))

    def trace(self, *, single_field: bool) -> tuple[Step, ...]:
        """Return the posterior after every iteration; means of shape (q,) for a single field."""
        return tuple(
            Step(iteration, mean[:, 0] if single_field else mean, variance)
            for iteration, (mean, variance) in sorted(self._steps.items())
        )

    def covariance(self) -> Array | None:
        """Posterior covariance (q, q), if it was asked for."""
        if self._downdate is None:
            return None
        covariance = self._kernel(self._points, self._points)
        covariance -= self._downdate
        return 0.5 * (covariance + covariance.T)
