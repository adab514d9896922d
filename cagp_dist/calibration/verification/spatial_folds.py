"""Folds of a cross-validation: places that lie together are left out together.

Scores of single places left out at random flatter a map whose gaps are wider; blocks some degrees across do
not [Roberts et al. 2017, doi:10.1111/ecog.02881].
"""

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Indices
from cagp_dist.checks import as_numbers, check_count, check_positive
from cagp_dist.errors import ArgumentError
from cagp_dist.text import counted

SMALLEST_BLOCK_DEGREES = 1e-6  # Places that no larger block parts, a tenth of a metre, are one place


def block_folds(
    latitude_degrees: ArrayLike,
    longitude_degrees: ArrayLike,
    *,
    count: int | None = 10,
    blocks_degrees: float | None = 5.0,
    generator: np.random.Generator,
    called: str = "count",
) -> Indices:
    """Fold of each place (n,): blocks of about equal area, dealt to folds of about equal size."""
    latitude = as_numbers("latitude_degrees", latitude_degrees)
    longitude = np.mod(as_numbers("longitude_degrees", longitude_degrees), 360.0)
    if latitude.ndim != 1 or latitude.shape != longitude.shape:
        raise ArgumentError(
            f"latitude_degrees has shape {latitude.shape}, longitude_degrees {longitude.shape}; expected two "
            "vectors of one length."
        )
    if count is not None:
        check_count(called, count, least=2)
    if blocks_degrees is not None:
        check_positive("blocks_degrees", blocks_degrees, most=90.0)
    _, block = np.unique(_blocks(latitude, longitude, blocks_degrees), axis=0, return_inverse=True)
    sizes = np.bincount(block.reshape(-1))
    if sizes.size < (count or 2):
        apart = _count(latitude, longitude, None)
        remedies = [f"lower {called} to {sizes.size}"] * (sizes.size > 1) + ["lower blocks_degrees"] * (
            sizes.size < apart
        )
        places = f"{latitude.size:,} places lie" if latitude.size != 1 else "one place lies"
        raise ArgumentError(
            f"the {places} in {counted(sizes.size, 'block')}, which cannot be dealt to "
            f"{count or 2} folds: {' or '.join(remedies) or 'observe more places'}."
        )
    return dealt(block.reshape(-1), count, generator, what="block")


def dealt(group: Indices, count: int | None, generator: np.random.Generator, *, what: str) -> Indices:
    """Fold of each place by its group (n,): groups from large to small, each to the emptiest fold."""
    sizes = np.bincount(group)
    if sizes.size < (count or 2):
        raise ArgumentError(
            f"the observations have {counted(sizes.size, what)}, which cannot be dealt to {count or 2} "
            "folds; expected as many at least."
        )
    if count is None:
        return group
    shuffled = generator.permutation(sizes.size)
    order = shuffled[np.argsort(-sizes[shuffled], kind="stable")]
    fold_of_group = np.empty(sizes.size, dtype=np.intp)
    filled = np.zeros(count, dtype=np.intp)
    for index in order:
        fold = int(np.argmin(filled))
        fold_of_group[index] = fold
        filled[fold] += sizes[index]
    return fold_of_group[group]


def blocks_of(latitude_degrees: Array, longitude_degrees: Array, *, blocks_degrees: float) -> Indices:
    """Say which block of `block_folds` each place lies in: numbers from 0, shape (n,)."""
    cells = _blocks(latitude_degrees, np.mod(longitude_degrees, 360.0), blocks_degrees)
    return np.unique(cells, axis=0, return_inverse=True)[1].reshape(-1)


def fitting_blocks(
    latitude_degrees: Array, longitude_degrees: Array, *, count: int, blocks_degrees: float
) -> float:
    """Halve the height of blocks until the places lie in at least ``count`` of them."""
    longitude, height = np.mod(longitude_degrees, 360.0), blocks_degrees
    if _count(latitude_degrees, longitude, None) < count:
        return blocks_degrees
    while height > SMALLEST_BLOCK_DEGREES:
        if _count(latitude_degrees, longitude, height) >= count:
            return height
        height /= 2.0
    return blocks_degrees


def _count(latitude: Array, longitude: Array, height: float | None) -> int:
    return len(np.unique(_blocks(latitude, longitude, height), axis=0))


def _blocks(latitude: Array, longitude: Array, height: float | None) -> Array | Indices:
    """Block of each place, shape (n, 2): its band and piece, or the place itself."""
    if height is None:
        return np.stack([latitude, longitude], axis=1)
    return bands_and_pieces(latitude, longitude, height)


def bands_and_pieces(latitude: Array, longitude: Array, height: float) -> Indices:
    """Block of each place, longitudes in [0, 360): its band of latitude and its piece of it, shape (n, 2)."""
    bands = max(1, round(180.0 / height))
    band = np.minimum((latitude + 90.0) / 180.0 * bands, bands - 1).astype(np.intp)
    middle = (band + 0.5) / bands * 180.0 - 90.0
    pieces = np.maximum(1, np.round(2.0 * bands * np.cos(np.deg2rad(middle)))).astype(np.intp)
    piece = np.minimum(longitude / 360.0 * pieces, pieces - 1).astype(np.intp)
    return np.stack([band, piece], axis=1)
