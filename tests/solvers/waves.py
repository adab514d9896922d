"""Coarse spaces of whole grids as dense matrices: waves along the rings (math 7.5)."""

import numpy as np


def waves_of(latitude, n_longitudes: int, *, mirrored: bool, single=()) -> list[np.ndarray]:
    """Orthonormal waves along each ring, (n, 1) or a cosine and its sine (n, 2), wavenumber by wavenumber.

    Of mirrored grids sums and differences of the waves of a ring and its image; of a pole in ``single``,
    which is one point, the point alone.
    """
    turn = 2.0 * np.pi * np.arange(n_longitudes) / n_longitudes
    widths = [1 if p in single else n_longitudes for p in range(len(latitude))]
    starts = np.cumsum([0, *widths])
    n, half = starts[-1], len(latitude) // 2

    def along(p, k):
        wave = np.zeros((n, 1 if k == 0 or 2 * k == n_longitudes else 2))
        if p in single:
            wave[starts[p]] = float(k == 0)
            return wave
        rows = np.stack([np.cos(k * turn), np.sin(k * turn)][: wave.shape[1]], axis=1)
        wave[starts[p] : starts[p + 1]] = rows / np.linalg.norm(rows, axis=0)
        return wave

    found = []
    for k in range(n_longitudes // 2 + 1):
        if not mirrored or half == 0:
            found += [along(p, k) for p in range(len(latitude))]
            continue
        pairs = [(along(p, k), along(len(latitude) - 1 - p, k)) for p in range(half)]
        found += [np.sqrt(0.5) * (one + other) for one, other in pairs]
        found += [along(half, k)] * (len(latitude) % 2)
        found += [np.sqrt(0.5) * (one - other) for one, other in pairs]
    return found


def coarse_waves(K, waves, columns: int) -> np.ndarray:
    """``K W`` for the waves W that are chosen one by one, each where most variance is left given the others.

    Of equal ones the first; those that would be more columns than there is room for are passed over.
    """
    left, chosen, room = K.copy(), [], columns
    open_waves = list(waves)
    while open_waves:
        variances = np.array([wave[:, 0] @ left @ wave[:, 0] for wave in open_waves])
        if variances.max() <= 1e-12 * K.max():
            break
        wave = open_waves.pop(int(np.argmax(variances >= (1.0 - 1e-9) * variances.max())))
        if wave.shape[1] > room:
            continue
        room -= wave.shape[1]
        chosen.append(K @ wave)
        seen = left @ wave
        left = left - seen @ np.linalg.solve(wave.T @ seen, seen.T)
    return np.concatenate(chosen, axis=1)
