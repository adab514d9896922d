"""The Gram matrix of places that were all observed at several times, by modes (math 21)."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.geometry import is_pole
from cagp_dist.gram.gaps import batches
from cagp_dist.gram.ring_gram import RingGram
from cagp_dist.gram.targets import prior_variance, seen_from
from cagp_dist.gram.tiled import cross_product
from cagp_dist.kernels import Elementary
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.latlon.grid_layout import Views
from cagp_dist.latlon.ring_states import RangeModes, modes_range
from cagp_dist.latlon.series_tasks import (
    OneBlock,
    block_modes,
    series_draw_range,
    series_explained_range,
    series_field_range,
    series_largest_range,
    series_logdet_range,
    series_precision_range,
    series_shrunk_range,
    series_solve_range,
    series_variance_range,
)
from cagp_dist.latlon.wavenumbers import Wavenumbers
from cagp_dist.runtime import Executor, Handle, SerialExecutor, single_threaded_blas
from cagp_dist.space_time import SpaceTime
from cagp_dist.time_factors import Periodic

T = TypeVar("T")


class SeriesGram:
    """``G = K_t (x) K_s + I (x) D`` of places at hours, each place at each hour.

    Fields are arrays (T, n), or (T, P, Q) on a grid, whose poles are rows of copies of one observation with Q
    times its noise. Shapes: ``where`` a grid or unit vectors (n, 3), ``hours`` (T,), ``noise_variance`` (P,)
    or (n,), of a pole that of its mean. Modes cost 9 P^3 Q / 2 flops and 4 P^2 Q bytes of a grid, 9 n^3 flops
    and 8 n^2 bytes of places; a solve or product 4 P^2 Q T, or 4 n^2 T, and 4 T^2 n flops.
    """

    def __init__(
        self,
        where: LatLonGrid | Array,
        kernel: SpaceTime,
        hours: Array,
        *,
        noise_variance: Array,
        executor: Executor,
        memory_limit_bytes: int | None = None,
    ) -> None:
        assert isinstance(kernel.time, Elementary | Periodic)
        self.where, self.kernel, self.hours, self._time = where, kernel, hours, kernel.time
        self._executor = executor
        self.rings: RingGram | None = None
        self.poles = np.arange(0)
        self.noise = noise_variance.astype(np.float64)
        self._blocks: Wavenumbers | OneBlock
        if isinstance(where, LatLonGrid):
            self.poles = np.flatnonzero(is_pole(where.latitude_degrees))
            self.noise[self.poles] *= where.n_longitudes
            self.rings = RingGram(
                where,
                kernel.space,
                noise_variance=self.noise,
                executor=executor,
                memory_limit_bytes=memory_limit_bytes,
            )
            self._blocks = self.rings.wavenumbers
        else:
            self._blocks = OneBlock(len(where))
        self.K_time = self._time(hours[:, None], hours[:, None])
        lam, self.U = np.linalg.eigh(self.K_time)
        self.lam = np.maximum(lam, 0.0)

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the fields."""
        places = self.where.shape if isinstance(self.where, LatLonGrid) else (len(self.where),)
        return self.hours.size, *places

    @property
    def X(self) -> Array:
        """Unit vectors of the places."""
        return self.where.points if isinstance(self.where, LatLonGrid) else self.where

    @property
    def copies(self) -> int:
        """Q of a grid, in whose units of a row what is summed over wavenumbers comes; else 1."""
        return self.where.n_longitudes if isinstance(self.where, LatLonGrid) else 1

    @property
    def noise_of_places(self) -> Array:
        """Noise that goes with a field: (P, 1), or (n,)."""
        return self.noise[:, None] if self.rings is not None else self.noise

    def solve(self, fields: Array) -> Array:
        """``G^-1 fields``."""
        return self._by_modes(series_solve_range, fields)

    def shrunk(self, fields: Array, tau: float) -> Array:
        """``(G^-1 + D^-1 / tau)^-1 fields``."""
        return self._by_modes(series_shrunk_range, fields, tau)

    def field(self, weights: Array, at: Array, points: Array | None = None) -> Array:
        """Fields ``K weights`` at hours (A,) and the places, (A, ...), or unit vectors (q, 3), (A, q)."""
        if points is None:
            return self.prior_product(weights, at)
        columns = np.tensordot(self.in_time(at), weights, axes=1).reshape(at.size, -1)
        with single_threaded_blas():
            return cross_product(
                self.kernel.space, points, self.X, np.ascontiguousarray(columns.T), executor=self._executor
            ).T

    def prior_product(self, fields: Array, at: Array | None = None) -> Array:
        """``K fields``; at other hours (A,): (A, ...)."""
        K = self.K_time if at is None else self.in_time(at)
        return self._joined(series_field_range, self._blocks.split(np.tensordot(K, fields, axes=1)))

    def in_time(self, at: Array) -> Array:
        """``k_t(at, hours)``, shape (A, T)."""
        return np.asarray(self._time(at[:, None], self.hours[:, None]))

    def draw(self, generator: np.random.Generator, at: Array | None = None) -> Array:
        """Draw fields of the prior at the hours, and at others (A,) after them together: (T + A, ...)."""
        hours = self.hours if at is None else np.concatenate([self.hours, at])
        lam, U = np.linalg.eigh(self._time(hours[:, None], hours[:, None]))
        white = generator.standard_normal((hours.size, *self.shape[1:]))
        in_time = np.tensordot(U * np.sqrt(np.maximum(lam, 0.0)), white, axes=1)
        return self._joined(series_draw_range, self._blocks.split(in_time))

    def logdet(self) -> float:
        """``log|G|``, of each pole that of the one observation."""
        parts = self._each(series_logdet_range, None, self.lam, counts=self._blocks.weights)
        by_place = float(np.log(self.noise).sum()) * self.copies - float(self.of_pole_copies.sum())
        return float(sum(parts)) + by_place * self.hours.size

    def condition_bound(self) -> float:
        """Give an upper bound of the condition number of G."""
        largest = max(self._each(series_largest_range, None))
        spread = float(self.noise.max() / self.noise.min())
        return spread * (1.0 + float(self.lam.max()) * largest)

    @property
    def of_pole_copies(self) -> Array:
        """What copies of each pole beyond one observation add to a determinant, at one time."""
        return np.asarray((self.copies - 1) * np.log(self.noise[self.poles]) + np.log(self.copies))

    def inverse_diagonal(self) -> Array:
        """Diagonal of ``G^-1``, (T, P) or (T, n); of a pole that of the one observation."""
        diagonal = self._by_row(series_precision_range, self.U**2, self._blocks.weights)
        if self.poles.size:  # the sum over the row of copies and over its columns: wavenumber 0
            alone = np.zeros_like(self._blocks.weights)
            alone[0] = self.copies**2
            diagonal[:, self.poles] = self._by_row(series_precision_range, self.U**2, alone)[:, self.poles]
        return diagonal

    def variance(self, at: Array) -> Array:
        """Latent variance at the places and hours (A,), shape (A, P) or (A, n)."""
        squares = (self.in_time(at) @ self.U) ** 2
        return self._by_row(series_variance_range, squares, self._blocks.weights)

    def variance_at(self, points: Array, at: Array) -> Array:
        """Latent variance at unit vectors (q, 3) and hours (A,), shape (A, q)."""
        squares = (self.in_time(at) @ self.U) ** 2
        seeing, view = points, np.arange(len(points))
        if isinstance(self.where, LatLonGrid):
            views = Views.of(points, self.where)
            seeing, view = views.points, views.view
        explained = np.empty((at.size, len(seeing)))
        for group in batches(len(seeing)):
            seen = seen_from(self.kernel.space, seeing[group], self.X).reshape(-1, *self.shape[1:])
            parts = self._each(
                series_explained_range,
                self._blocks.split(seen),
                *(self.lam, squares),
                counts=self._blocks.weights,
            )
            explained[:, group] = np.sum(parts, axis=0).reshape(at.size, len(seen), -1).sum(axis=2)
        return np.maximum(prior_variance(self.kernel.space, points) - explained[:, view], 0.0)

    def of_observations(self, weights: Array) -> Array:
        """Weights of the observations: of the one at a pole the sum of its row, as a field."""
        found = weights.copy()
        found[:, self.poles] = found[:, self.poles].sum(axis=-1, keepdims=True)
        return found

    def _by_row(self, function: Callable[..., list[Array]], squares: Array, counts: Array) -> Array:
        """Sum up (A, size) of each sector over wavenumbers, by latitude or place."""
        parts = self._each(function, None, self.lam, squares, counts=counts)
        by_sector = [np.sum(sector, axis=0) for sector in zip(*parts, strict=True)]
        rows = [self._blocks.to_rings(list(each)) for each in zip(*by_sector, strict=True)]
        return np.stack(rows) / self.copies

    def _by_modes(self, function: Callable[..., list[Array]], fields: Array, *arguments: object) -> Array:
        """Apply a function of ``1 + lam mu`` to fields."""
        columns = self._blocks.split(np.tensordot(self.U.T, fields, axes=1))
        return np.tensordot(self.U, self._joined(function, columns, self.lam, *arguments), axes=1)

    def _joined(
        self, function: Callable[..., list[Array]], columns: list[Array], *arguments: object
    ) -> Array:
        """Fields of what a function makes of columns of each sector."""
        parts = self._each(function, columns, *arguments)
        return self._blocks.join([np.concatenate(sector) for sector in zip(*parts, strict=True)])

    def _each(
        self,
        function: Callable[..., T],
        columns: list[Array] | None,
        *arguments: object,
        counts: Array | None = None,
    ) -> list[T]:
        """Call a function of the modes of each range, and of the columns and counts that go with it."""
        executor: Executor = self._executor if self.rings is not None else SerialExecutor()
        with single_threaded_blas():
            handles = []
            for home, (modes, (first, last)) in enumerate(
                zip(self._modes, self._blocks.ranges(), strict=True)
            ):
                own = () if columns is None else ([part[first:last] for part in columns],)
                weights = () if counts is None else (counts[first:last],)
                handles.append(executor.submit(function, modes, *own, *arguments, *weights, home=home))
            return executor.gather(handles)

    @cached_property
    def _modes(self) -> "Sequence[Handle[RangeModes] | RangeModes]":
        """Eigenvalues and eigenvectors in space of each range."""
        if self.rings is not None:
            return self.rings.make(modes_range, self.noise, copies=2.0)
        assert not isinstance(self.where, LatLonGrid)
        with single_threaded_blas():
            return [block_modes(self.kernel.space(self.where, self.where), self.noise)]
