"""Random waves: draws of a stationary field at any number of points, without its covariance matrix.

By Bochner's theorem a stationary kernel of variance one is the mean of ``cos(w . (x - z))`` over frequencies
w drawn from its spectral density, so that a sum of waves with Rayleigh amplitudes and uniform phases::

    z(x) = sum over j < m of  a_j cos(w_j . x + p_j) / sqrt(m)

has covariance exactly k when the frequencies are drawn anew for each field ([Rahimi & Recht 2007]; math 9).
The spectral density of a Matern kernel of smoothness nu is a multivariate t with 2 nu degrees of freedom,
that of the squared exponential a normal, both of scale 1 / lengthscale. The lengths of the frequencies are
stratified, one in each m-th of their distribution, which leaves the covariance exact and takes most of the
chance out of it.
"""

from dataclasses import dataclass

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.kernels import Elementary, Lengthscales, Matern12, Matern32, Matern52

_DEGREES: dict[type[Elementary], int] = {Matern12: 1, Matern32: 3, Matern52: 5}
"""Twice the smoothness."""


@dataclass(frozen=True, eq=False)
class Waves:
    """Waves of one draw for a lengthscale of one.

    Attributes
    ----------
    frequencies : array of float64, shape (m, p)
        Per unit of X; divide by the lengthscale.
    phases, amplitudes : array of float64, shape (m,)
        In radians; with mean square 2 / m.
    """

    frequencies: Array
    phases: Array
    amplitudes: Array


def draw_waves(kernel: type[Elementary], p: int, waves: int, generator: np.random.Generator) -> Waves:
    """Draw m waves in p dimensions.

    Parameters
    ----------
    kernel : type of Kernel
        Family.
    p, waves : int
        Coordinates of a point; m.
    generator : numpy.random.Generator
        Source of randomness.
    """
    from scipy.special import fdtri, gammaincinv

    level = (np.arange(waves) + generator.random(waves)) / waves
    if kernel in _DEGREES:
        square = np.asarray(p * fdtri(p, _DEGREES[kernel], level), dtype=np.float64)
    else:
        square = np.asarray(2.0 * gammaincinv(0.5 * p, level), dtype=np.float64)
    directions = generator.standard_normal((waves, p))
    frequencies = directions * (np.sqrt(square) / np.linalg.norm(directions, axis=1))[:, None]
    phases = generator.uniform(0.0, 2.0 * np.pi, waves)
    amplitudes = np.sqrt(-2.0 * np.log1p(-generator.random(waves)) / waves)
    return Waves(frequencies, phases, amplitudes)


def evaluate_waves(draws: list[Waves], lengthscale: Lengthscales, points: Array) -> Array:
    """Values of several draws at points (p, n), shape (n, draws): n m cosines each.

    The lengthscale is one number, or one for each coordinate.

    Angles are brought into one turn in double precision; cosines and their sum are taken in single, whose
    error, 1e-6, is nothing beside the chance in a draw.
    """
    out = np.empty((points.shape[1], len(draws)))
    for column, waves in enumerate(draws):
        turns = (waves.frequencies / (2.0 * np.pi * np.asarray(lengthscale))) @ points
        turns += waves.phases[:, None] / (2.0 * np.pi)
        turns -= np.rint(turns)
        angles = turns.astype(np.float32)
        angles *= np.float32(2.0 * np.pi)
        out[:, column] = waves.amplitudes.astype(np.float32) @ np.cos(angles, out=angles)
    return out
