"""Entries of a matrix of a grid at some of its points, from its blocks by wavenumber, and back (math 7.4).

A matrix that is diagonal in wavenumbers depends on two latitudes and on the difference in longitude: its
entries are the inverse Fourier transforms of those of its blocks, one transform for each pair of latitudes
that have points. The adjoint takes a matrix E of some points to the blocks that have the same inner product
with the blocks of any C that C at these points has with E.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.latlon.wavenumbers import Wavenumbers

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True, eq=False)
class PlacesOnGrid:
    """Some points of a grid."""

    wavenumbers: Wavenumbers  # How the grid is split
    # rows, columns: (r,): where the points are
    rows: Indices
    columns: Indices

    @classmethod
    def of(cls, wavenumbers: Wavenumbers, chosen: Mask) -> "PlacesOnGrid":
        """Points of a mask (P, Q), latitude by latitude."""
        rows, columns = np.nonzero(chosen)
        return cls(wavenumbers, rows, columns)

    @cached_property
    def _latitudes(self) -> tuple[Indices, Indices]:
        """Latitudes that have points (l,), and which of them each point has (r,)."""
        latitudes, of_point = np.unique(self.rows, return_inverse=True)
        return latitudes, of_point.reshape(-1)

    @cached_property
    def sector_rows(self) -> list[Indices]:
        """Rows of each sector in which these latitudes are, ascending."""
        latitudes = self._latitudes[0]
        return [np.flatnonzero(mix[:, latitudes].any(axis=1)) for mix in self.wavenumbers.mixing()]

    @cached_property
    def _mixing(self) -> "list[tuple[csr_array, Indices, Array]]":
        """Of each sector with rows: these latitudes in them, (l_s, l); in which, with which factor."""
        from scipy.sparse import csr_array

        mixing = []
        for mix, rows in zip(self.wavenumbers.mixing(), self.sector_rows, strict=True):
            among = mix[rows][:, self._latitudes[0]]
            if not rows.size:  # the equator alone, which is in no difference
                continue
            row = np.abs(among).argmax(axis=0)
            mixing.append((csr_array(among), row, among[row, np.arange(row.size)]))
        return mixing

    def entries(self, blocks: Sequence[Array]) -> Array:
        """Entries (r, r) of a matrix at the points, from its blocks (l_s, l_s, wavenumbers)."""
        Q = self.wavenumbers.n_longitudes
        latitudes, of_point = self._latitudes
        out = np.empty((self.rows.size, self.rows.size))
        for latitude in range(latitudes.size):
            values = self.ring_entries(blocks, latitude)
            mine = np.flatnonzero(of_point == latitude)
            turned = np.mod(self.columns[:, None] - self.columns[mine], Q)
            out[:, mine] = values[of_point[:, None], turned]
        return out

    def ring_entries(self, blocks: Sequence[Array], latitude: int) -> Array:
        """Entries (l, Q) between a point and all that lie so many steps in longitude from it."""
        from scipy.fft import irfft

        spectrum = np.zeros((self._latitudes[0].size, self.wavenumbers.count))
        for block, (mix, row, factor) in zip(blocks, self._mixing, strict=False):
            spectrum += factor[latitude] * (mix.T @ block[row[latitude]])
        return np.asarray(irfft(spectrum, n=self.wavenumbers.n_longitudes, axis=1))

    def adjoint(self, matrix: Array) -> list[Array]:
        """Blocks B with ``sum over k of weight_k <B_k, C_k> = <matrix, C at the points>`` for all C."""
        Q, count = self.wavenumbers.n_longitudes, self.wavenumbers.count
        latitudes, of_point = self._latitudes
        blocks = [np.zeros((rows.size, rows.size, count)) for rows in self.sector_rows]
        for latitude in range(latitudes.size):
            mine = np.flatnonzero(of_point == latitude)
            turned = np.mod(self.columns[:, None] - self.columns[mine], Q)
            place = of_point[:, None] * Q + turned
            values = np.bincount(place.ravel(), matrix[:, mine].ravel(), minlength=latitudes.size * Q)
            spectrum = np.fft.rfft(values.reshape(-1, Q), axis=1).real / Q
            for block, (mix, row, factor) in zip(blocks, self._mixing, strict=False):
                block[row[latitude]] += factor[latitude] * (mix @ spectrum)
        return blocks


def blocks_at(stacks: Sequence[Array], rows: Sequence[Indices]) -> list[Array]:
    """Blocks of a range of wavenumbers (span, size, size) at some rows of each sector, (l_s, l_s, span)."""
    return [
        np.ascontiguousarray(stack[:, chosen[:, None], chosen].transpose(1, 2, 0))
        for stack, chosen in zip(stacks, rows, strict=True)
    ]
