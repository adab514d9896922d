"""Draws of the field given the data, by Matheron's rule (math 1.5)."""

from typing import Protocol

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.checks import as_numbers, check_count
from cagp_dist.errors import ArgumentError


class Drawable(Protocol):
    """A Gram matrix with draws of the prior and solves: `RingGram`, or `DenseGram`."""

    def draw(self, generator: np.random.Generator, *, draws: int) -> Array:
        """Draws of ``N(0, K)``, shape (n, draws)."""
        ...

    @property
    def noise_variance(self) -> Array: ...

    def solve(self, columns: Array) -> Array: ...


def sample_posterior(
    gram: Drawable, residuals: Array, generator: np.random.Generator, *, draws: int = 1
) -> Array:
    """Draw the latent field at the observed points, exactly.

    Parameters
    ----------
    gram : RingGram or DenseGram
        Observed points.
    residuals : array of float64, shape (n,)
        Observed values minus the prior mean.
    generator : numpy.random.Generator
        Source of randomness.
    draws : int
        Number of independent draws.

    Returns
    -------
    array of float64, shape (n, draws)
        ``f + K G^-1 (b - f - e) = b - e - N G^-1 (b - f - e)`` with draws f of the prior, and e of the
        noise N. Add the prior mean.

    Raises
    ------
    ArgumentError
        If an argument is not what is described.
    """
    if not isinstance(generator, np.random.Generator):
        raise ArgumentError(
            f"generator is a {type(generator).__name__}; expected numpy.random.default_rng(seed)."
        )
    check_count("draws", draws, least=1)
    b, n = as_numbers("residuals", residuals), gram.noise_variance.size
    if b.shape != (n,):
        raise ArgumentError(
            f"residuals has shape {b.shape}; expected ({n},), one for each observed point. Of a field: "
            "field.ravel()."
        )
    if not np.isfinite(b).all():
        raise ArgumentError(
            f"residuals holds NaN or infinite values ({np.count_nonzero(~np.isfinite(b))} of {b.size}); "
            "expected one for each observed point."
        )
    prior = gram.draw(generator, draws=draws)
    noise = gram.noise_variance[:, None]
    error = np.sqrt(noise) * generator.standard_normal(prior.T.shape).T
    left = b[:, None] - prior - error
    return np.asarray(prior + left - noise * gram.solve(left))
