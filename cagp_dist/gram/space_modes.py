"""Modes in space, in which times of a grid with noise by latitude, or of places, fall apart (math 21)."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TypeVar

import numpy as np

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.geometry import is_pole
from cagp_dist.gram.gaps import batches
from cagp_dist.gram.ring_gram import RingGram, cross_on_grid, many_places
from cagp_dist.gram.targets import prior_variance, seen_from
from cagp_dist.gram.tiled import cross_product
from cagp_dist.kernels import Kernel
from cagp_dist.latlon.entries import PlacesOnGrid
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.latlon.grid_layout import Views
from cagp_dist.latlon.modes import (
    OneBlock,
    RangeModes,
    block_modes,
    blocks_range,
    diagonal_range,
    lift_range,
    modes_range,
    project_range,
    values_range,
)
from cagp_dist.latlon.wavenumbers import Wavenumbers
from cagp_dist.runtime import Executor, Handle, SerialExecutor, single_threaded_blas

T = TypeVar("T")

LEAST = 1e-15  # Part of the largest mu below which a mode is rounding


class SpaceModes:
    """``D^-1/2 K D^-1/2 = V diag(mu) V'`` of each wavenumber of a grid, or of all places.

    Fields are (r, P, Q) on a grid, whose poles are rows of copies of one observation with Q times its noise,
    or (r, n). States are arrays (K, P, 2 r), of K wavenumbers and two columns for each field, or (1, n, r).
    What differs between modes alone is (K, P), or (r, K, P) of several times.

    Modes cost 9 P^3 Q / 2 flops and 4 P^2 Q bytes of a grid, a quarter and half of it of a mirrored one, or
    9 n^3 flops and 8 n^2 bytes of places; `project` and `lift` 2 P^2 Q, or 2 n^2, flops for each field.
    ``heard`` gets the part of the modes that is made.
    """

    def __init__(
        self,
        where: LatLonGrid | Array,
        kernel: Kernel,
        *,
        noise_variance: Array,
        executor: Executor | None = None,
        memory_limit_bytes: int | None = None,
        heard: Callable[[float], None] = lambda part: None,
    ) -> None:
        self.where, self.kernel, self._executor = where, kernel, executor
        self._heard = heard
        self.noise, self.poles = noise_variance.astype(np.float64), np.arange(0)
        self._rings: RingGram | None = None
        self._blocks: Wavenumbers | OneBlock = OneBlock(len(self.X))
        if isinstance(where, LatLonGrid):
            self.poles = np.flatnonzero(is_pole(where.latitude_degrees))
            self.noise[self.poles] *= where.n_longitudes  # so many observations of one place, each with that
            self._rings = RingGram(
                where,
                kernel,
                noise_variance=self.noise,
                executor=executor,
                memory_limit_bytes=memory_limit_bytes,
            )
            self._blocks = self._rings.wavenumbers

    @property
    def shape(self) -> tuple[int, ...]:
        """That of a field."""
        return self.where.shape if isinstance(self.where, LatLonGrid) else (len(self.where),)

    @property
    def X(self) -> Array:
        """Unit vectors of the places."""
        return self.where.points if isinstance(self.where, LatLonGrid) else self.where

    @property
    def copies(self) -> int:
        """Q of a grid, else 1."""
        return self.where.n_longitudes if isinstance(self.where, LatLonGrid) else 1

    @property
    def counts(self) -> Array:
        """How often each wavenumber counts in traces (K,)."""
        return self._blocks.weights

    @property
    def noise_of_places(self) -> Array:
        """Noise that goes with a field: (P, 1), or (n,)."""
        return self.noise if self._rings is None else self.noise[:, None]

    @cached_property
    def mu(self) -> Array:
        """Prior variance of each mode over its noise, (K, P)."""
        return np.concatenate(self._each(values_range, heard=self._heard))

    def condition_bound(self, in_time: float) -> float:
        """Bound of the condition number of all times, with the largest eigenvalue in time."""
        return float(self.noise.max() / self.noise.min()) * (1.0 + in_time * float(self.mu.max()))

    def merged(self, fields: Array) -> Array:
        """Fields in which copies of a pole are their mean."""
        found = fields.astype(np.float64)
        found[..., self.poles, :] = found[..., self.poles, :].mean(axis=-1, keepdims=True)
        return found

    def of_observations(self, weights: Array) -> Array:
        """Weights of the observations: of the one at a pole the sum of its row, as a field."""
        found = weights.copy()
        found[..., self.poles, :] = found[..., self.poles, :].sum(axis=-1, keepdims=True)
        return found

    def columns(self, fields: Array) -> Array:
        """Fields by wavenumber, as arrays of the shape of states; orthonormal."""
        return np.concatenate(self._blocks.split(fields), axis=1)

    def project(self, fields: Array) -> Array:
        """States ``V' D^-1/2 y`` of fields."""
        states = np.empty((*self._shape_of_modes, self._paired * len(fields)))
        for group in batches(len(fields)):
            parts = self._each(project_range, self.columns(fields[group]))
            states[..., self._paired * group.start : self._paired * group.stop] = np.concatenate(parts)
        return states

    def lift(self, states: Array) -> Array:
        """Fields ``D^-1/2 V states``."""
        fields = np.empty((states.shape[-1] // self._paired, *self.shape))
        ends = np.cumsum(self._blocks.sizes)[:-1]
        for group in batches(len(fields)):
            some = states[..., self._paired * group.start : self._paired * group.stop]
            parts = self._each(lift_range, some)
            fields[group] = self._blocks.join(np.split(np.concatenate(parts), ends, axis=1))
        return fields

    @property
    def _paired(self) -> int:
        """Columns of a field, real and imaginary."""
        return 1 if self._rings is None else 2

    @property
    def _shape_of_modes(self) -> tuple[int, int]:
        """(K, P), or (1, n)."""
        return self.counts.size, sum(self._blocks.sizes)

    def of_weights(self, weights: Array) -> Array:
        """States ``V' D^1/2 w`` of weights: the state of the field ``K w`` is mu times them."""
        return self.project(self.noise_of_places * weights)

    def field(self, states: Array) -> Array:
        """Fields ``K w`` of the states of weights."""
        return self.noise_of_places * self.lift(self.mu[..., None] * states)

    def field_at(self, points: Array, weights: Array) -> Array:
        """Fields (r, q) at unit vectors of weights (r, ...)."""
        columns = np.ascontiguousarray(weights.reshape(len(weights), -1).T)
        with self._workers() as executor:
            if self._rings is None:
                return cross_product(self.kernel, points, self.X, columns, executor=executor).T
            grid = self._rings.grid
            return cross_on_grid(
                self._rings,
                grid,
                points,
                columns,
                lambda: self.field(self.of_weights(weights)).reshape(len(weights), -1).T,
                lambda: columns.T,
                executor=executor,
            ).T

    def variance(self, left: Array) -> Array:
        """Variance at the places (r, P) or (r, n), of the parts (r, K, P) of the modes that are left."""
        return self.noise**2 * self._diagonal(self.mu * left, self.counts)

    def variance_at(self, points: Array, left: Array) -> Array:
        """Variance (r, q) at unit vectors (q, 3), of the same."""
        if isinstance(self.where, LatLonGrid) and (index := many_places(points, self.where)) is not None:
            return self.variance(left)[:, index // self.copies]
        rounding = self.mu <= LEAST * self.mu.max()
        known = np.divide(1.0 - left, self.mu, out=np.zeros_like(left), where=~rounding)
        known = (self.counts[:, None] * known).reshape(len(left), -1)
        seeing, view = points, np.arange(len(points))
        if isinstance(self.where, LatLonGrid):
            views = Views.of(points, self.where)
            seeing, view = views.points, views.view
        explained = np.empty((len(left), len(seeing)))
        for group in batches(len(seeing)):
            seen = seen_from(self.kernel, seeing[group], self.X).reshape(-1, *self.shape)
            with single_threaded_blas():
                parts = known @ (self.project(seen) ** 2).reshape(self.mu.size, -1)
            explained[:, group] = parts.reshape(len(left), len(seen), -1).sum(axis=2)
        return np.maximum(prior_variance(self.kernel, points) - explained[:, view], 0.0)

    def precision(self, inverse: Array) -> Array:
        """Diagonal (r, P) or (r, n) of the inverse of observations, of a pole that of the one.

        ``inverse`` (r, K, P) is that of the modes ``V' D^-1/2 y``.
        """
        diagonal = self._diagonal(inverse, self.counts)
        if self.poles.size:  # the sum over the row of copies and over its columns: wavenumber 0
            alone = np.zeros_like(self.counts)
            alone[0] = self.copies**2
            diagonal[:, self.poles] = self._diagonal(inverse, alone)[:, self.poles]
        return diagonal

    def inverse_at(self, inverse: Array, mask: Mask) -> tuple[Array, Indices]:
        """``G^-1`` between points of a mask (P, Q) of a grid, and the latitude of each."""
        assert isinstance(self._blocks, Wavenumbers)
        places = PlacesOnGrid.of(self._blocks, mask)
        parts = self._each(blocks_range, inverse[..., None], also=(places.sector_rows,))
        blocks = [np.concatenate(ranges, axis=2) for ranges in zip(*parts, strict=True)]
        return places.entries(blocks), places.rows

    def _diagonal(self, values: Array, counts: Array) -> Array:
        """Diagonal of ``D^-1/2 V diag(values) V' D^-1/2`` by row, of values (r, K, P)."""
        parts = self._each(diagonal_range, np.moveaxis(values, 0, -1), counts)
        by_sector = [np.sum(sector, axis=0) for sector in zip(*parts, strict=True)]
        rows = [self._blocks.to_rings(list(each)) for each in zip(*by_sector, strict=True)]
        return np.stack(rows) / self.copies

    def _workers(self) -> AbstractContextManager[Executor]:
        """Open the executor on which modes are."""
        if self._rings is not None:
            return self._rings.workers()
        return nullcontext(SerialExecutor() if self._executor is None else self._executor)

    def _each(
        self,
        function: Callable[..., T],
        *arrays: Array,
        also: tuple[object, ...] = (),
        heard: Callable[[float], None] | None = None,
    ) -> list[T]:
        """Call a function of the modes of each range, and the part of arrays (K, ...) that is of it."""
        modes = self._modes
        with self._workers() as executor, single_threaded_blas():
            home = executor if self._rings is not None else SerialExecutor()
            handles = [
                home.submit(function, own, *(part[first:last] for part in arrays), *also, home=number)
                for number, (own, (first, last)) in enumerate(zip(modes, self._blocks.ranges(), strict=True))
            ]
            if heard is None:
                return home.gather(handles)
            found = list[T]()
            for handle in handles:
                found += home.gather([handle])
                heard(len(found) / len(handles))
            return found

    @cached_property
    def _modes(self) -> "Sequence[Handle[RangeModes] | RangeModes]":
        """Eigenvalues and eigenvectors of each range."""
        if self._rings is not None:
            return self._rings.make(modes_range, self.noise, copies=2.0)
        with single_threaded_blas():
            return [block_modes(self.kernel(self.X, self.X), self.noise)]
