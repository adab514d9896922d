"""Draws of the field given the data, by Matheron's rule (math 1.5)."""

from typing import Protocol

import numpy as np

from cagp_dist.arrays import Array


class Drawable(Protocol):
    """A Gram matrix with draws of the prior, products and solves: `RingGram`, or `DenseGram`."""

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
        How many independent draws.

    Returns
    -------
    array of float64, shape (n, draws)
        ``f + K G^-1 (b - f - e) = b - e - N G^-1 (b - f - e)`` with draws f of the prior, and e of the
        noise N. Add the prior mean.
    """
    prior = gram.draw(generator, draws=draws)
    noise = gram.noise_variance[:, None]
    error = np.sqrt(noise) * generator.standard_normal(prior.T.shape).T
    left = residuals[:, None] - prior - error
    return np.asarray(prior + left - noise * gram.solve(left))
