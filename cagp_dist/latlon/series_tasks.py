"""Tasks of places at several times: each wavenumber, or the block of all places, by its eigenvalues.

With ``k_t(t, t') = U diag(lam) U'`` in time and ``D^-1/2 K_k D^-1/2 = V diag(mu) V'`` in space, as in
`ring_states`, the Gram matrix of all places and times is diagonal: ``1 + lam_j mu_i``, over the noise (T44).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.latlon.ring_states import RangeModes, SectorModes
from cagp_dist.tiling import Range


@dataclass(frozen=True)
class OneBlock:
    """Places that are no grid: one block instead of one for each wavenumber, of columns without a pair."""

    count: int  # n

    @property
    def weights(self) -> Array:
        """The block counts once."""
        return np.ones(1)

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


def block_modes(K: Array, noise: Array) -> RangeModes:
    """Eigenvalues and eigenvectors of one block (n, n), whose lower triangle is read; 9 n^3 flops."""
    root = 1.0 / np.sqrt(noise)
    mu, V = np.linalg.eigh(root[:, None] * K * root)
    return [SectorModes(np.maximum(mu, 0.0)[None], (root[:, None] * V)[None], noise)]


def series_solve_range(modes: RangeModes, columns: Sequence[Array], lam: Array) -> list[Array]:
    """Apply ``G^-1`` to columns (span, size, T c), those of a mode in time side by side."""
    return [
        mode.W @ _scaled(mode.of(seen), 1.0 / (1.0 + mode.mu[..., None] * lam))
        for mode, seen in zip(modes, columns, strict=True)
    ]


def series_shrunk_range(modes: RangeModes, columns: Sequence[Array], lam: Array, tau: float) -> list[Array]:
    """Apply ``(G^-1 + D^-1 / tau)^-1`` to columns (span, size, T c)."""
    return [
        mode.noise[:, None]
        * (mode.W @ _scaled(mode.states(seen), 1.0 / (1.0 / (1.0 + mode.mu[..., None] * lam) + 1.0 / tau)))
        for mode, seen in zip(modes, columns, strict=True)
    ]


def _scaled(z: Array, factors: Array) -> Array:
    """Multiply columns (span, size, T c) by factors (span, size, T)."""
    by_time = z.reshape(*factors.shape, -1)
    return np.asarray((by_time * factors[..., None]).reshape(z.shape))


def series_field_range(modes: RangeModes, columns: Sequence[Array]) -> list[Array]:
    """``K_k`` times columns (span, size, r)."""
    return [mode.field(mode.states(seen)) for mode, seen in zip(modes, columns, strict=True)]


def series_draw_range(modes: RangeModes, white: Sequence[Array]) -> list[Array]:
    """Apply a root of ``K_k`` to columns (span, size, r)."""
    return [
        mode.noise[:, None] * (mode.W @ (np.sqrt(mode.mu)[..., None] * own))
        for mode, own in zip(modes, white, strict=True)
    ]


def series_logdet_range(modes: RangeModes, lam: Array, counts: Array) -> float:
    """Weighted sum of ``log(1 + lam_j mu_i)``."""
    return float(sum(counts @ np.log1p(mode.mu[..., None] * lam).sum(axis=(1, 2)) for mode in modes))


def series_largest_range(modes: RangeModes) -> float:
    """Find the largest eigenvalue in space."""
    return max(float(mode.mu.max(initial=0.0)) for mode in modes)


def series_precision_range(modes: RangeModes, lam: Array, squares: Array, counts: Array) -> list[Array]:
    """Weighted sum of the diagonal of the inverse (T, size), with ``squares = U^2``."""
    found = []
    for mode in modes:
        by_time = (1.0 / (1.0 + mode.mu[..., None] * lam)) @ squares.T  # (span, size, T)
        found.append(np.einsum("k,kpi,kit->tp", counts, mode.W**2, by_time, optimize=True))
    return found


def series_variance_range(modes: RangeModes, lam: Array, squares: Array, counts: Array) -> list[Array]:
    """Weighted sum of the latent variance (A, size) at hours, with ``squares = (k_t(at, hours) U)^2``."""
    found = []
    for mode in modes:
        known = (mode.mu[..., None] / (1.0 + mode.mu[..., None] * lam)) @ squares.T  # (span, size, A)
        left = mode.mu[..., None] * np.maximum(1.0 - known, 0.0)
        roots = mode.noise[:, None] * mode.W
        found.append(np.einsum("k,kpi,kia->ap", counts, roots**2, left, optimize=True))
    return found


def series_explained_range(
    modes: RangeModes, columns: Sequence[Array], lam: Array, squares: Array, counts: Array
) -> Array:
    """Sum up what is explained (A, c r) of targets, by covariances (span, size, c r) with the places."""
    total: Array | float = 0.0
    for mode, seen in zip(modes, columns, strict=True):
        inverse = (1.0 / (1.0 + mode.mu[..., None] * lam)) @ squares.T
        total += np.einsum("k,kia,kir->ar", counts, inverse, mode.of(seen) ** 2, optimize=True)
    return np.asarray(total)
