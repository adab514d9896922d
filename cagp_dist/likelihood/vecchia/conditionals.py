"""Which points are conditioned on which: groups of neighbours in a random order (math 9).

The points are cut into cells of `GROUP` neighbours. The cells come in a random order, and each is conditioned
on `NEIGHBOURS` points of those that come before, most of them the nearest. Of more than `MOST_CONDITIONALS`
points a sample of the cells counts, each of which stands for several: those at the beginning of the order,
whose neighbours are far, are more likely to be in it.
"""

from dataclasses import dataclass

import numpy as np

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.geometry import space_filling_order
from cagp_dist.gram.preceding import nearest_preceding

GROUP = 20
"""Points of a cell, which share their neighbours."""

NEIGHBOURS = 180
"""Points that a cell is conditioned on, at most."""

REACH, FAR = 8, 6
"""One in `FAR` of them is among the `NEIGHBOURS` nearest of each `REACH`-th point, others are the nearest."""

MOST_CONDITIONALS = 100_000
"""Points up to which all conditionals count; of more points about as many do."""

SEED = 20
"""Of the order, and of the sample."""


@dataclass(frozen=True, eq=False)
class ConditionedGroup:
    """Points of a cell behind those that they are conditioned on."""

    members: Indices  # (m,): all of them, those of the cell last
    before: int  # How many are conditioned on
    weight: float  # How many cells it stands for

    @property
    def size(self) -> int:
        """Points of the cell."""
        return self.members.size - self.before

    @property
    def beyond(self) -> float:
        """What the square of the weight is beyond the weight."""
        return self.weight**2 - self.weight


def group_conditionals(X: Array, *, workers: int = 1) -> list[ConditionedGroup]:
    """Choose the cells of points X (n, p) and their neighbours, near cells together; O(n log^2 n).

    The sum of ``weight * log p(cell | neighbours)`` is the likelihood of all points, or an estimate of it.
    """
    rng = np.random.default_rng(SEED)
    n, cells = len(X), -(-len(X) // GROUP)
    tree_order = space_filling_order(X, block_size=GROUP)
    # the last cell may be short; at the beginning it is never left out
    place = np.append(cells - 1, rng.permutation(cells - 1))
    order = np.concatenate([tree_order[cell * GROUP : (cell + 1) * GROUP] for cell in place])
    stops = np.minimum(n - (cells - 1 - np.arange(cells)) * GROUP, n)
    starts = np.append(0, stops[:-1])
    chosen, weights = _sample(cells, rng)
    spatial = np.argsort(place[chosen])
    chosen, weights = chosen[spatial], weights[spatial]
    ordered = X[order]
    centres = np.array([ordered[starts[cell] : stops[cell]].mean(axis=0) for cell in chosen])
    before = starts[chosen]
    near = nearest_preceding(ordered, centres, before, NEIGHBOURS, workers=workers)
    sparse = nearest_preceding(ordered[::REACH], centres, -(-before // REACH), NEIGHBOURS, workers=workers)
    found, taken = [], np.zeros(n, dtype=bool)
    for cell, close, far, weight in zip(chosen, near, REACH * sparse, weights, strict=True):
        neighbours = close[close >= 0]
        if starts[cell] > NEIGHBOURS:
            neighbours = _thinned(close, far[far >= 0], taken)
        members = order[np.concatenate([neighbours, np.arange(starts[cell], stops[cell])])]
        found.append(ConditionedGroup(members, neighbours.size, float(weight)))
    return found


def _thinned(close: Indices, far: Indices, taken: Mask) -> Indices:
    """Take most of the close points, by distance, and of the far ones behind them some, ever sparser."""
    count = NEIGHBOURS // FAR
    kept = close[:-count]
    taken[kept] = True
    behind = far[~taken[far]]
    taken[kept] = False
    if behind.size <= count:
        return close
    ranks = ((np.arange(count) + 1.0) / count) ** 2 * behind.size
    return np.append(kept, behind[np.maximum(np.arange(count), ranks.astype(np.intp) - 1)])


def conditionals_of(points: int) -> int:
    """How many conditionals count, of so many points."""
    left_out = max(0, -(-points // GROUP) - MOST_CONDITIONALS // GROUP)
    return points - left_out * GROUP


def conditionals_text(points: int) -> str:
    """Say how many of them count."""
    some = conditionals_of(points)
    if some == points:
        return f"conditionals of groups of {GROUP} on {NEIGHBOURS} neighbours"
    return f"a sample of {some:,} of {points:,} conditionals, in groups of {GROUP} on {NEIGHBOURS} neighbours"


def _sample(cells: int, rng: np.random.Generator) -> tuple[Indices, Array]:
    """Choose cells by their place in the order, and how many each stands for: one over its chance, scaled."""
    most, certain = MOST_CONDITIONALS // GROUP, 0
    if cells <= most:
        return np.arange(cells), np.ones(cells)
    falling = 1.0 / np.sqrt(np.arange(1.0, cells + 1.0))
    while True:
        chance = np.minimum(1.0, falling * ((most - certain) / falling[certain:].sum()))
        chance[:certain] = 1.0
        if (found := int(np.count_nonzero(chance == 1.0))) == certain:
            break
        certain = found
    chosen = np.searchsorted(np.cumsum(chance), rng.random() + np.arange(most)).clip(max=cells - 1)
    weights = 1.0 / chance[chosen]
    weights[certain:] *= (cells - certain) / weights[certain:].sum()
    return chosen, weights
