"""Tasks of modes in space: each wavenumber of a grid, or the one block of all places, by its eigenvalues.

With the noise D the same at all times, ``D^-1/2 K D^-1/2 = V diag(mu) V'`` makes the modes ``V' D^-1/2 y`` of
fields y independent of each other, at all times: series in time of variance mu, observed with noise of
variance one (math 21). Columns of a range of wavenumbers are arrays (span, P, r), rows of one sector after
those of another.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.kernels import Parameters
from cagp_dist.latlon.tasks import gram_range
from cagp_dist.latlon.wavenumbers import Wavenumbers
from cagp_dist.tiling import Range


class SectorModes(NamedTuple):
    """Eigenvalues and scaled eigenvectors of one sector, for a range of wavenumbers."""

    mu: Array  # (span, size): prior variance over noise
    W: Array  # (span, size, size): ``D^-1/2 V``


RangeModes = list[SectorModes]
"""Of a range of wavenumbers, for each sector."""


@dataclass(frozen=True)
class OneBlock:
    """Places that are no grid: one block instead of one for each wavenumber, of columns without a pair."""

    size: int  # n

    @property
    def weights(self) -> Array:
        """The block counts once."""
        return np.ones(1)

    @property
    def sizes(self) -> tuple[int, ...]:
        """One sector."""
        return (self.size,)

    def ranges(self) -> list[Range]:
        """One range."""
        return [(0, 1)]

    def split(self, fields: Array) -> list[Array]:
        """Columns (1, n, r) of fields (r, n)."""
        return [np.ascontiguousarray(fields.T)[None]]

    def join(self, columns: Sequence[Array]) -> Array:
        """Fields (r, n) of columns (1, n, r)."""
        return np.ascontiguousarray(columns[0][0].T)

    def to_rings(self, values: Sequence[Array]) -> Array:
        """Values of the places."""
        return np.asarray(values[0])


def modes_range(parameters: Parameters, wavenumbers: Wavenumbers, span: Range, noise: Array) -> RangeModes:
    """Eigenvalues and eigenvectors of a range of wavenumbers; 9 P^3 flops for each, or a quarter of that."""
    blocks = gram_range(parameters, wavenumbers, span, np.zeros_like(noise))
    return [_modes(block, own) for block, own in zip(blocks, wavenumbers.by_ring(noise), strict=True)]


def block_modes(K: Array, noise: Array) -> RangeModes:
    """Eigenvalues and eigenvectors of one block (n, n), whose lower triangle is read; 9 n^3 flops."""
    return [_modes(K[None], noise)]


def _modes(blocks: Array, noise: Array) -> SectorModes:
    root = 1.0 / np.sqrt(noise)
    mu, V = np.linalg.eigh(root[:, None] * blocks * root)
    return SectorModes(np.maximum(mu, 0.0), root[:, None] * V)


def values_range(modes: RangeModes) -> Array:
    """``mu`` (span, P)."""
    return np.concatenate([mode.mu for mode in modes], axis=1)


def project_range(modes: RangeModes, columns: Array) -> Array:
    """``V' D^-1/2 columns``."""
    parts = [mode.W.transpose(0, 2, 1) @ own for mode, own in _by_sector(modes, columns)]
    return np.concatenate(parts, axis=1)


def lift_range(modes: RangeModes, states: Array) -> Array:
    """``D^-1/2 V states``."""
    return np.concatenate([mode.W @ own for mode, own in _by_sector(modes, states)], axis=1)


def diagonal_range(modes: RangeModes, values: Array, counts: Array) -> list[Array]:
    """Diagonal (r, size) of ``D^-1/2 V diag(values) V' D^-1/2``, summed with counts, of each sector."""
    return [
        np.einsum("k,kpi,kir->rp", counts, mode.W**2, own, optimize=True)
        for mode, own in _by_sector(modes, values)
    ]


def blocks_range(modes: RangeModes, values: Array, rows: Sequence[Indices]) -> list[Array]:
    """``D^-1/2 V diag(values) V' D^-1/2`` at some rows of each sector, (l_s, l_s, span); one value a mode."""
    found = []
    for (mode, own), chosen in zip(_by_sector(modes, values), rows, strict=True):
        W = mode.W[:, chosen]
        block = (W * own.transpose(0, 2, 1)) @ W.transpose(0, 2, 1)
        found.append(np.ascontiguousarray(block.transpose(1, 2, 0)))
    return found


def _by_sector(modes: RangeModes, columns: Array) -> list[tuple[SectorModes, Array]]:
    """Give the rows of columns (span, P, r) that are of each sector."""
    ends = np.cumsum([mode.mu.shape[1] for mode in modes])[:-1]
    return list(zip(modes, np.split(columns, ends, axis=1), strict=True))
