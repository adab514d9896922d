"""Random waves: draws of a stationary field at any number of points, without its covariance matrix.

By Bochner's theorem a stationary kernel of variance one is the mean of ``cos(w . (x - z))`` over frequencies
w drawn from its spectral density: for a Matern kernel of smoothness nu a multivariate t with 2 nu degrees of
freedom, for the squared exponential a normal, both of scale 1 / lengthscale. So waves with normal amplitudes,
``sum over j < m of (a_j cos(w_j . x) + b_j sin(w_j . x)) / sqrt(m)``, have covariance k [Rahimi & Recht 2007;
math 9]. Lengths of frequencies are stratified.

To posterior variances short waves matter most: most frequencies are drawn from the far end, evenly in the
logarithm of what lies beyond them, and count for as much less.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from cagp_dist.arrays import Array
from cagp_dist.errors import ArgumentError
from cagp_dist.kernels import Elementary, Family, Kernel
from cagp_dist.space_time import AXES, SpaceTime


def degrees_of_freedom(kernel: Family) -> float:
    """Degrees of freedom of the t distribution that is the spectral density, infinite for a normal."""
    degrees: float | None = getattr(kernel, "degrees_of_freedom", None)  # a cycle has none
    if degrees is None:
        raise ArgumentError(
            f"{kernel.__name__} does not say its spectral density, which waves are drawn from; expected a "
            "kernel with degrees_of_freedom. Take another kernel, or a method that draws no waves.",
            key="no-spectral-density",
        )
    return degrees


SPECTRUM_WAVES = 1024  # Frequencies of a spectrum, over all parts of a sum of kernels
PLAIN_PART = 0.3  # Part of the frequencies of a spectrum that are drawn from the spectral density as it is
LEAST_BEYOND = 1e-8  # Part of the variance beyond which the others are not drawn
POINTS_AT_ONCE = 512  # Points whose waves are evaluated at a time: 4 MB of angles


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Waves that several draws of one field share."""

    turns: Array  # (m, p): frequencies, in turns per unit of X
    # (m,): of the amplitudes; ``sum over j of variance_j cos(2 pi turns_j . (x - z))`` is the covariance of
    # the draws given the frequencies.
    variances: Array
    # each (m, draws): amplitudes
    cosines: NDArray[np.float32]
    sines: NDArray[np.float32]


def draw_spectrum(
    kernel: Elementary, p: int, waves: int, draws: int, generator: np.random.Generator
) -> Spectrum:
    """Draw m frequencies in p dimensions, and the amplitudes of some draws."""
    if isinstance(kernel, SpaceTime) and kernel.time is not None:  # a product: each factor has its own
        in_space, density = _far_frequencies(kernel.space.family, len(AXES) - 1, waves, generator)
        in_time, other = _far_frequencies(cast("Family", kernel.time.family), 1, waves, generator)
        shuffled = generator.permutation(waves)
        directions, density = np.column_stack([in_space, in_time[shuffled]]), density * other[shuffled]
    else:
        directions, density = _far_frequencies(kernel.family, p, waves, generator)
    turns = directions * np.array(kernel.inverse_lengthscales(p)) / (2.0 * np.pi)
    variances = kernel.variance / (waves * density)
    cosines, sines = (
        (np.sqrt(variances)[:, None] * generator.standard_normal((waves, draws))).astype(np.float32)
        for _ in range(2)
    )
    return Spectrum(turns, variances, cosines, sines)


def _far_frequencies(
    kernel: Family, p: int, waves: int, generator: np.random.Generator
) -> tuple[Array, Array]:
    """Draw frequencies (m, p) for a lengthscale of one, most of them far out; how much denser (m,)."""
    from scipy.special import betaincinv, gammainccinv

    plain = max(1, round(PLAIN_PART * waves))
    far = waves - plain
    decay = -np.log(LEAST_BEYOND)
    # part of the variance at still higher frequencies
    beyond = np.concatenate(
        [
            (np.arange(plain) + generator.random(plain)) / plain,
            np.exp(-decay * (np.arange(far) + generator.random(far)) / max(far, 1)),
        ]
    )
    density = plain / waves + np.where(beyond >= LEAST_BEYOND, far / (waves * decay * beyond), 0.0)
    degrees = degrees_of_freedom(kernel)
    if math.isinf(degrees):
        square = 2.0 * gammainccinv(0.5 * p, beyond)
    else:
        share = betaincinv(0.5 * degrees, 0.5 * p, beyond)
        square = degrees * (1.0 - share) / share
    directions = generator.standard_normal((waves, p))
    directions *= (np.sqrt(square) / np.linalg.norm(directions, axis=1))[:, None]
    return directions, density


def draw_spectra(kernel: Kernel, p: int, draws: int, seed: int) -> list[Spectrum]:
    """Draw a spectrum for each part of a kernel; a task of executors."""
    generator = np.random.default_rng(seed)
    waves = SPECTRUM_WAVES // len(kernel.parts)
    return [draw_spectrum(part, p, waves, draws, generator) for part in kernel.parts]


def evaluate_spectra(spectra: Sequence[Spectrum], X: Array) -> Array:
    """Values of the draws at points X (n, p), shape (n, draws); n m sines and cosines, 4 n m draws flops."""
    out = np.empty((len(X), spectra[0].cosines.shape[1]))
    for start in range(0, len(X), POINTS_AT_ONCE):
        here = slice(start, start + POINTS_AT_ONCE)
        out[here] = sum(_waves_at(spectrum, X[here]) for spectrum in spectra)
    return out


def _waves_at(spectrum: Spectrum, X: Array) -> NDArray[np.float32]:
    turns = X @ spectrum.turns.T
    turns -= np.rint(turns)
    angles = turns.astype(np.float32)
    angles *= np.float32(2.0 * np.pi)
    values = np.cos(angles) @ spectrum.cosines
    values += np.sin(angles, out=angles) @ spectrum.sines
    return np.asarray(values)
