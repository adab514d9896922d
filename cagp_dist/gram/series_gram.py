"""The Gram matrix of places that were all observed at several times, by modes in space and time (math 21)."""

from functools import cached_property

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.gram.gaps import batches
from cagp_dist.gram.space_modes import SpaceModes
from cagp_dist.kernels import Elementary
from cagp_dist.time_factors import Periodic


class SeriesGram:
    """``G = K_t (x) K_s + I (x) D`` of places at hours (T,), each place at each hour.

    With ``K_t = U diag(lam) U'`` it is ``1 + lam_j mu_i`` over the noise, in modes in space and time. Fields
    are (T, P, Q) or (T, n), as `SpaceModes` has them. A solve or product costs two transforms of each field
    in space, and 4 T^2 n flops.
    """

    def __init__(self, modes: SpaceModes, time: Elementary | Periodic, hours: Array) -> None:
        self.modes, self._time, self.hours = modes, time, hours
        lam, self.U = np.linalg.eigh(self.in_time(hours))
        self.lam = np.maximum(lam, 0.0)

    def in_time(self, at: Array) -> Array:
        """``k_t(at, hours)``, shape (A, T)."""
        return np.asarray(self._time(at[:, None], self.hours[:, None]))

    def solve(self, fields: Array) -> Array:
        """``G^-1 fields``."""
        states = self.modes.project(np.tensordot(self.U.T, fields, axes=1))
        states.reshape(*self._spread.shape, -1)[:] /= self._spread[..., None]
        return np.tensordot(self.U, self.modes.lift(states), axes=1)

    def field(self, weights: Array, at: Array, points: Array | None = None) -> Array:
        """Fields ``K weights`` at hours (A,) and the places, (A, ...), or unit vectors (q, 3), (A, q)."""
        in_space = np.tensordot(self.in_time(at), weights, axes=1)
        if points is not None:
            return self.modes.field_at(points, in_space)
        return self.modes.field(self.modes.of_weights(in_space))

    def draw(self, generator: np.random.Generator, at: Array) -> tuple[Array, Array]:
        """Draw a field of the prior at hours (A,), and observations of it at the hours."""
        modes, hours = self.modes, np.concatenate([self.hours, at])
        lam, U = np.linalg.eigh(self._time(hours[:, None], hours[:, None]))
        white = generator.standard_normal((hours.size, *modes.shape))
        in_time = np.tensordot(U * np.sqrt(np.maximum(lam, 0.0)), white, axes=1)
        states = np.sqrt(modes.mu)[..., None] * modes.columns(in_time)
        drawn = modes.noise_of_places * modes.lift(states)
        observed, field = drawn[: self.hours.size], drawn[self.hours.size :]
        noise = generator.standard_normal(observed.shape) * np.sqrt(modes.noise_of_places)
        return field, observed + modes.merged(noise)

    def logdet(self) -> float:
        """``log|G|``, of each pole that of the one observation."""
        modes = self.modes
        by_place = float(np.log(modes.noise).sum()) * modes.copies - float(
            ((modes.copies - 1) * np.log(modes.noise[modes.poles]) + np.log(modes.copies)).sum()
        )
        by_mode = float(modes.counts @ np.log(self._spread).sum(axis=(1, 2)))
        return by_mode + by_place * self.hours.size

    def precision(self) -> Array:
        """Diagonal of ``G^-1``, (T, P) or (T, n); of a pole that of the one observation."""
        found = [
            self.modes.precision(np.moveaxis((1.0 / self._spread) @ (self.U[some] ** 2).T, -1, 0))
            for some in batches(self.hours.size)
        ]
        return np.concatenate(found)

    def variance(self, at: Array, points: Array | None = None) -> Array:
        """Latent variance at hours (A,) and the places, (A, P) or (A, n), or unit vectors (q, 3), (A, q)."""
        if points is not None:
            return self.modes.variance_at(points, self._left(at))
        return np.concatenate([self.modes.variance(self._left(at[some])) for some in batches(at.size)])

    def _left(self, at: Array) -> Array:
        """Parts (A, K, P) of the variance of the modes that are left at hours."""
        squares = (self.in_time(at) @ self.U) ** 2
        known = (self.modes.mu[..., None] / self._spread) @ squares.T
        return np.asarray(np.maximum(np.moveaxis(1.0 - known, -1, 0), 0.0))

    @cached_property
    def _spread(self) -> Array:
        """``1 + lam_j mu_i``, (K, P, T)."""
        return np.asarray(1.0 + self.modes.mu[..., None] * self.lam)
