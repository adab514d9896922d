"""Folds of a cross-validation: places that lie together are left out together.

Scores of single places left out at random flatter a map whose gaps are wider; blocks some degrees across do
not [Roberts et al. 2017, doi:10.1111/ecog.02881].
"""

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Indices
from cagp_dist.checks import as_numbers, check_count, check_positive
from cagp_dist.errors import ArgumentError
from cagp_dist.space import SPHERE, Space
from cagp_dist.text import counted

SMALLEST_PART = 2e-7  # of the blocks: places that no larger block parts, a tenth of a metre, are one place


def block_folds(
    north: ArrayLike,
    east: ArrayLike,
    *,
    space: Space = SPHERE,
    count: int | None = 10,
    blocks: float | None = 5.0,
    generator: np.random.Generator,
) -> Indices:
    """Fold of each place (n,): blocks of about equal area, dealt to folds of about equal size."""
    north, east = as_numbers("north", north), as_numbers("east", east)
    if north.ndim != 1 or north.shape != east.shape:
        raise ArgumentError(
            f"north has shape {north.shape}, east {east.shape}; expected two vectors of one length.",
            key="shapes",
        )
    if count is not None:
        check_count("count", count, least=2)
    if blocks is not None:
        check_positive("blocks", blocks, most=space.coarsest)
    block = blocks_of(north, east, space=space, blocks=blocks)
    found = int(block.max(initial=-1)) + 1
    if found < (count or 2):
        remedies = [f"take {found} folds"] * (found > 1)
        remedies += ["make the blocks smaller"] * (found < _count(space, north, east, None))
        places = f"{north.size:,} places lie" if north.size != 1 else "one place lies"
        raise ArgumentError(
            f"the {places} in {counted(found, 'block')}, which cannot be dealt to "
            f"{count or 2} folds: {' or '.join(remedies) or 'observe more places'}.",
            key="few-blocks",
        )
    return dealt(block, count, generator, what="block")


def dealt(group: Indices, count: int | None, generator: np.random.Generator, *, what: str) -> Indices:
    """Fold of each place by its group (n,): groups from large to small, each to the emptiest fold."""
    sizes = np.bincount(group)
    if sizes.size < (count or 2):
        raise ArgumentError(
            f"the observations have {counted(sizes.size, what)}, which cannot be dealt to {count or 2} "
            "folds; expected as many at least.",
            key="few-places",
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


def blocks_of(north: Array, east: Array, *, space: Space = SPHERE, blocks: float | None) -> Indices:
    """Say which block of `block_folds` each place lies in: numbers from 0, shape (n,)."""
    cells = space.keys(north, east) if blocks is None else space.blocks(north, east, blocks)
    return np.unique(cells, axis=0, return_inverse=True)[1].reshape(-1)


def fitting_blocks(north: Array, east: Array, *, space: Space = SPHERE, count: int, blocks: float) -> float:
    """Halve the size of blocks until the places lie in at least ``count`` of them."""
    if _count(space, north, east, None) < count:
        return blocks
    smaller = blocks
    while smaller > SMALLEST_PART * blocks:
        if _count(space, north, east, smaller) >= count:
            return smaller
        smaller /= 2.0
    return blocks


def _count(space: Space, north: Array, east: Array, blocks: float | None) -> int:
    return int(blocks_of(north, east, space=space, blocks=blocks).max(initial=-1)) + 1
