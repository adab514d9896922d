"""What block-sparse actions say of the likelihood: the evidence lower bound, and the projected likelihood.

For actions S (n, i), T fields b (n, T), ``G = K + noise I`` and::

    M = S'G S = L L',   H = S'S,   W = K S L^-T,   w = L^-1 S'b,   r = b - W w
    N = I - noise L^-1 H L^-T

the evidence lower bound of the computation-aware posterior [Wenger et al. 2024, eq. 11; math 11] is

    -2 ELBO = (|r|^2 + T (tr(K) - |W|^2)) / noise + T (n - i) log noise + n T log 2 pi
              + tr(w'N w) - T tr(N) + T log|M| - T log|H|

at most the log likelihood, and equal to it where S has n independent columns. The log likelihood of the
projected data alone, of S'b with the columns of S scaled to H = I [eq. 9], is no bound of it:

    -2 L = |w|^2 + T log|M| - T log|H| + i T log 2 pi

Both are functions of the hyperparameters and of the n entries of S, with analytic gradients. An evaluation
goes through the tiles of K twice, n^2 kernel entries in all, beside some 5 n i^2 flops; it keeps one array of
the size of W.
"""

from abc import ABC, abstractmethod
from typing import final

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.likelihood.learned.projected_data import ProjectedData
from cagp_dist.runtime import single_threaded_blas


class _OfActions(ABC):
    """A function of the hyperparameters and of the n entries of S."""

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
        """Evaluate at logarithms of hyperparameters and entries of S; see `Objective`."""
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
        noise, w, identity = seen.noise_variance, seen.solution, np.eye(data.actions)
        N = identity - noise * seen.lengths_between
        missed = n * seen.kernel.variance - float(np.trace(seen.squares))
        misfit = float(np.vdot(seen.residual, seen.residual)) + T * missed
        twice = (
            misfit / noise
            + T * ((n - i) * np.log(noise) + n * np.log(2.0 * np.pi) + seen.log_determinant)
            + float(np.vdot(w, N @ w))
            - T * float(np.trace(N))
        )
        half = N @ w - seen.back / noise  # half the derivative by w
        inverted = T * (seen.squares / noise + N + identity) - (half @ w.T + w @ half.T)
        gradient = data.gradient(
            seen,
            by_matrix=w @ w.T - T * identity,
            by_inverted=0.5 * (inverted + inverted.T),
            by_projected=2.0 * half,
            by_noise=-misfit / noise**2 + T * (n - i) / noise,
            by_prior=T * n / noise,
            with_residual=True,
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
        i, T, w = data.actions, data.fields, seen.solution
        twice = float(np.vdot(w, w)) + T * (seen.log_determinant + i * np.log(2.0 * np.pi))
        gradient = data.gradient(
            seen,
            by_matrix=np.zeros((i, i)),
            by_inverted=T * np.eye(i) - w @ w.T,
            by_projected=2.0 * w,
        )
        return -0.5 * twice, -0.5 * gradient
