"""What block-sparse actions say of the likelihood: the evidence lower bound, and the projected likelihood.

For actions S (n, i), T fields b (n, T), ``G = K + noise I`` and::

    U = K S,   A = S'U,   H = S'S,   M = A + noise H = S'G S,   v = M^-1 S'b,   r = b - U v

the evidence lower bound of the computation-aware posterior [Wenger et al. 2024, eq. 11; math 9] is

    -2 ELBO = (|r|^2 + T tr(K - U M^-1 U')) / noise + T (n - i) log noise + n T log 2 pi
              + tr(v'A v) - T tr(M^-1 A) + T log|M| - T log|H|

at most the log likelihood, and equal to it where S has n independent columns. The log likelihood of the
projected data alone, of S'b with the columns of S scaled to H = I [eq. 9], is no bound of it:

    -2 L = tr(v'M v) + T log|M| - T log|H| + i T log 2 pi

Both are functions of the hyperparameters and of the n entries of S, with analytic gradients. An evaluation
goes through the tiles of K twice, n^2 kernel entries in all, beside 2 to 5 n i^2 flops; it keeps one array of
the size of U, and another for the moment.
"""

from abc import ABC, abstractmethod
from typing import final

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.likelihood.projected_data import ProjectedData
from cagp_dist.runtime import single_threaded_blas


class _OfActions(ABC):
    """A function of the hyperparameters and of the n entries of S.

    Parameters
    ----------
    data : ProjectedData
        Observations, and the blocks of actions.
    """

    def __init__(self, data: ProjectedData) -> None:
        self._data = data

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the hyperparameters."""
        return self._data.hyperparameters.names

    @property
    def size(self) -> int:
        """Hyperparameters and points."""
        return self._data.size

    @property
    def fingerprint(self) -> str:
        """Digest of objective, data, model and blocks, for checkpoints."""
        return f"{type(self).__name__} {self._data.fingerprint}"

    def __call__(self, vector: Array) -> tuple[float, Array]:
        """Evaluate at logarithms of hyperparameters and entries of S; see `Objective`.

        Raises
        ------
        ArgumentError
            If the vector has another shape or entries that are not finite, or an action none but zeros.
        NumericalError
            If ``S'G S`` is not positive definite in floating point.
        """
        with single_threaded_blas():
            return self._evaluate(vector)

    @abstractmethod
    def _evaluate(self, vector: Array) -> tuple[float, Array]: ...


@final
class Elbo(_OfActions):
    """The evidence lower bound of a computation-aware posterior, by hyperparameters and actions."""

    def _evaluate(self, vector: Array) -> tuple[float, Array]:
        data = self._data
        seen = data.at(vector)
        n, i, T = data.points, data.actions, data.fields
        noise, A, M, v = seen.noise_variance, seen.matrix, seen.inverse, seen.solution
        squares, residual, back = data.squares_and_residual(seen)
        MA, MC = M @ A, M @ squares
        misfit = float(np.vdot(residual, residual)) + T * (n * seen.kernel.variance - float(np.trace(MC)))
        twice = (
            misfit / noise
            + T * ((n - i) * np.log(noise) + n * np.log(2.0 * np.pi) + seen.log_determinant)
            + float(np.vdot(v, A @ v))
            - T * float(np.trace(MA))
        )
        half = M @ (A @ v - back / noise)  # half the derivative by S'b
        inverted = T * (MC @ M / noise + MA @ M + M) - (half @ v.T + v @ half.T)
        gradient = data.gradient(
            seen,
            by_matrix=v @ v.T - T * M,
            by_inverted=0.5 * (inverted + inverted.T),
            by_projected=2.0 * half,
            by_noise=-misfit / noise**2 + T * (n - i) / noise,
            by_prior=T * n / noise,
            residual=residual,
        )
        return -0.5 * twice, -0.5 * gradient


@final
class ProjectedLikelihood(_OfActions):
    """The log likelihood of the projected data S'b alone, by hyperparameters and actions.

    It does not see what S leaves out: maximised over S it learns actions that are easily explained, and
    overestimates the noise [Wenger et al. 2024, S3]. For comparisons; `Elbo` is the one to fit with.
    """

    def _evaluate(self, vector: Array) -> tuple[float, Array]:
        data = self._data
        seen = data.at(vector)
        i, T, v = data.actions, data.fields, seen.solution
        M = seen.matrix + np.diag(seen.noise_variance * seen.lengths)
        twice = float(np.vdot(v, M @ v)) + T * (seen.log_determinant + i * np.log(2.0 * np.pi))
        gradient = data.gradient(
            seen,
            by_matrix=np.zeros_like(M),
            by_inverted=T * seen.inverse - v @ v.T,
            by_projected=2.0 * v,
            by_noise=0.0,
        )
        return -0.5 * twice, -0.5 * gradient
