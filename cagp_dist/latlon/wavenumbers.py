"""The Gram matrix of a latitude-longitude grid as one small dense block per wavenumber (math 7).

A chordal kernel on rings of Q equispaced longitudes depends on the difference in longitude alone, and evenly,
so the discrete Fourier transform along longitude turns G into real symmetric P x P blocks, one for each
wavenumber ``k = 0 .. Q // 2``::

    G_k[p, p'] = sum over s < Q of  kappa(phi_p, phi_p', 2 pi s / Q) cos(2 pi k s / Q)  +  noise_p [p = p']

Where the latitudes (and their noise) are their own mirror image beyond the equator, as in ERA5, G_k is
centrosymmetric and splits once more: sums and differences of mirrored latitudes do not mix. That is two
blocks of half the size, a quarter of the flops and half the memory.

Blocks are made, used and dropped in ranges of wavenumbers. The ranges depend on the grid alone, so results do
not depend on the executor.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from cagp_dist.arrays import Array
from cagp_dist.budget.demand import TABLE_ENTRIES, range_count, sector_sizes
from cagp_dist.kernels import Parameters
from cagp_dist.tiling import Range

Spectrum = NDArray[np.complex128]
Rows = TypeVar("Rows", Spectrum, Array)


@dataclass(frozen=True, eq=False)
class Wavenumbers:
    """How fields of a grid are split into wavenumbers and, if the grid is mirrored, parities."""

    latitude_degrees: Array  # (P,): latitudes of the rings
    n_longitudes: int  # Q
    # Whether to split into sums and differences of mirrored latitudes: two sectors instead of one
    mirrored: bool

    @property
    def count(self) -> int:
        """Wavenumbers, ``Q // 2 + 1``."""
        return self.n_longitudes // 2 + 1

    @cached_property
    def weights(self) -> Array:
        """How often each wavenumber counts in traces and inner products: 1 at 0 and Q / 2, else 2."""
        weights = np.full(self.count, 2.0)
        weights[0] = 1.0
        if self.n_longitudes % 2 == 0:
            weights[-1] = 1.0
        return weights

    @property
    def sizes(self) -> tuple[int, ...]:
        """Size of the blocks of each sector: (P,), or (ceil(P / 2), P // 2)."""
        return sector_sizes(self.latitude_degrees.size, self.mirrored)

    @property
    def block_bytes(self) -> int:
        """Bytes of all blocks."""
        return 8 * self.count * sum(size**2 for size in self.sizes)

    def ranges(self) -> list[Range]:
        """Consecutive ranges of wavenumbers, each a task."""
        parts = range_count(self.count, self.block_bytes)
        edges = [self.count * part // parts for part in range(parts + 1)]
        return list(pairwise(edges))

    def by_ring(self, values: Array) -> tuple[Array, ...]:
        """Values of the latitudes (P,), the same for mirror images, as values of the rows of each sector."""
        return tuple(values[:size] for size in self.sizes)

    def to_rings(self, values: Sequence[Array]) -> Array:
        """Diagonals in each sector (size,) as that by latitude (P,): of two parities the average."""
        rings = self.latitude_degrees.size
        if len(self.sizes) == 1:
            return np.asarray(values[0])
        half = rings // 2
        mean = 0.5 * (values[0][:half] + values[1])
        return np.concatenate([mean, values[0][half:], mean[::-1]])

    def mixing(self) -> list[Array]:
        """Rows of each sector as sums of latitudes, (size, P): one entry, or two of mirror images."""
        one = np.eye(self.latitude_degrees.size)[:, :, None]
        return [part[:, :, 0].T for part in self._parities(one)]

    def split(self, fields: Array) -> list[Array]:
        """Transform fields (T, P, Q) into columns (wavenumbers, size, 2 T) of each sector, orthonormally."""
        spectrum = np.fft.rfft(fields, axis=2, norm="ortho")  # (T, P, wavenumbers)
        parts = [np.ascontiguousarray(part.transpose(2, 1, 0)) for part in self._parities(spectrum)]
        return [part.view(np.float64) for part in parts]

    def join(self, columns: Sequence[Array]) -> Array:
        """Transform the columns of each sector back into fields (T, P, Q)."""
        parts = [np.ascontiguousarray(part).view(np.complex128).transpose(2, 1, 0) for part in columns]
        if len(parts) == 1:
            spectrum = parts[0]
        else:
            even, odd = parts
            half = odd.shape[1]
            north = np.sqrt(0.5) * (even[:, :half] - odd)
            spectrum = np.concatenate(
                [np.sqrt(0.5) * (even[:, :half] + odd), even[:, half:], north[:, ::-1]], axis=1
            )
        return np.fft.irfft(spectrum, n=self.n_longitudes, axis=2, norm="ortho")

    def _parities(self, spectrum: Rows) -> list[Rows]:
        if len(self.sizes) == 1:
            return [spectrum]
        half = self.latitude_degrees.size // 2
        first, last = spectrum[:, :half], spectrum[:, ::-1][:, :half]
        middle = spectrum[:, half : spectrum.shape[1] - half]
        even = np.concatenate([np.sqrt(0.5) * (first + last), middle], axis=1)
        return [even, np.sqrt(0.5) * (first - last)]


def ring_blocks(parameters: Parameters, wavenumbers: Wavenumbers, span: Range) -> list[Array]:
    """Blocks (span, size, size) of K for a range of wavenumbers, by a cosine transform in longitude."""
    first, last = span
    Q = wavenumbers.n_longitudes
    order = np.arange(wavenumbers.count)
    # k s modulo Q, so that the argument of the cosine is accurate for any k s
    cosines = wavenumbers.weights * np.cos((np.outer(order[first:last], order) % Q) * (2.0 * np.pi / Q))
    halves = np.asarray(order * (np.pi / Q), dtype=np.float64)
    latitude = np.deg2rad(wavenumbers.latitude_degrees)
    sizes = wavenumbers.sizes
    blocks = [np.zeros((last - first, size, size)) for size in sizes]
    tile = max(1, int(np.sqrt(TABLE_ENTRIES / wavenumbers.count)))
    half = latitude.size // 2
    for i in range(0, sizes[0], tile):
        rows = latitude[i : min(i + tile, sizes[0])]
        for j in range(0, i + 1, tile):
            columns = latitude[j : min(j + tile, sizes[0])]
            values = _transformed(parameters, rows, columns, halves, cosines)
            if len(sizes) == 1:
                _store(blocks[0], values, i, j)
                continue
            mirror = _transformed(parameters, rows, -columns, halves, cosines)
            _store(blocks[1], values - mirror, i, j)
            values += mirror
            if half < sizes[0]:  # the equator, the last row of this sector, is its own mirror image
                values[:, half - i :] *= np.sqrt(0.5) if half >= i else 1.0
                values[:, :, half - j :] *= np.sqrt(0.5) if half >= j else 1.0
            _store(blocks[0], values, i, j)
    return blocks


def _store(block: Array, values: Array, i: int, j: int) -> None:
    """Put a tile at its place, cut to the block; of diagonal tiles the lower triangle."""
    size = block.shape[1]
    rows, columns = min(values.shape[1], size - i), min(values.shape[2], size - j)
    if rows <= 0 or columns <= 0:
        return
    cut = values[:, :rows, :columns]
    block[:, i : i + rows, j : j + columns] = np.tril(cut) if i == j else cut


def _points(latitude: Array, longitude: float) -> Array:
    """Give unit vectors (3, P) at latitudes and a longitude, all in radians."""
    girth = np.cos(latitude)
    return np.stack([girth * np.cos(longitude), girth * np.sin(longitude), np.sin(latitude)])


def _transformed(parameters: Parameters, rows: Array, columns: Array, halves: Array, cosines: Array) -> Array:
    """Cosine transform ``sum_s kappa(phi, phi', s) cosines[k, s]`` of a tile, (span, rows, columns).

    ``halves`` (s,) are half the differences in longitude, in radians.
    """
    from cagp_dist.compiled import Embedding, evaluate, evaluate_rings, kernel_reach

    if isinstance(parameters[1], Embedding):  # of places, and not of their distances alone
        values = np.empty((halves.size, rows.size, columns.size))
        here = _points(rows, 0.0)
        for half, found in zip(halves, values, strict=True):
            evaluate(*parameters, here, _points(columns, 2.0 * half), found)
        return (cosines @ values.reshape(halves.size, -1)).reshape(len(cosines), rows.size, columns.size)
    turn = np.sin(halves) ** 2
    gap = (4.0 * np.sin(0.5 * (rows[:, None] - columns)) ** 2).ravel()
    girth = (4.0 * np.maximum(np.cos(rows)[:, None] * np.cos(columns), 0.0)).ravel()
    farthest = kernel_reach(*parameters[:2]) ** 2
    near = int(np.searchsorted(gap.min() + girth.min() * turn, farthest, side="right"))
    table = np.empty((near, gap.size))
    evaluate_rings(*parameters, gap, girth, turn[:near], table)
    return (cosines[:, :near] @ table).reshape(len(cosines), rows.size, columns.size)
