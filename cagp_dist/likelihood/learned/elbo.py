"""What block-sparse actions say of the likelihood: the evidence lower bound.

For actions S (n, i), T fields b (n, T), ``G = K + noise I`` and::

    M = S'G S = L L',   H = S'S,   W = K S L^-T,   w = L^-1 S'b,   r = b - W w
    N = I - noise L^-1 H L^-T

the evidence lower bound of the computation-aware posterior [Wenger et al. 2024, eq. 11; math 11] is

    -2 ELBO = (|r|^2 + T (tr(K) - |W|^2)) / noise + T (n - i) log noise + n T log 2 pi
              + tr(w'N w) - T tr(N) + T log|M| - T log|H|

at most the log likelihood, and equal to it where S has n independent columns. An evaluation goes through the
tiles of K twice, n^2 kernel entries in all, beside some 5 n i^2 flops; it keeps one array of the size of W.
"""

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.likelihood.learned.projected_data import ProjectedData
from cagp_dist.runtime import single_threaded_blas


class Elbo:
    """The evidence lower bound of a computation-aware posterior, by hyperparameters and entries of S."""

    def __init__(self, data: ProjectedData) -> None:
        self._data = data
        self.names, self.size = data.hyperparameters.names, data.size
        self.fingerprint = f"Elbo {data.fingerprint}"

    def __call__(self, vector: Array) -> tuple[float, Array]:
        """Evaluate at logarithms of hyperparameters and entries of S; see `Objective`."""
        with single_threaded_blas():
            return self._evaluate(vector)

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
