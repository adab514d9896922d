"""Which places are observed and which are held out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from cagp_dist.arrays import Indices
from cagp_dist.calibration.verification.spatial_folds import block_folds, dealt, fitting_blocks
from cagp_dist.pipeline.observations import Observations


@dataclass(frozen=True, eq=False)
class Split:
    """Indices of places of `Observations`."""

    observed: Indices  # (n,)
    held_out: Indices = field(default_factory=lambda: np.arange(0))  # (q,), scored
    folds: Indices | None = None  # (q,): the fold of each held-out place, if all of these are observed
    fold_of: Indices | None = None  # (n,): the fold of each observed one; -1 for none

    @classmethod
    def into_folds(
        cls,
        observed: Observations,
        *,
        count: int | None,
        blocks: float | None = None,
        days: bool = False,
        seed: int,
    ) -> Self:
        """Hold out each place with a value once, by blocks or days; without a count one by one.

        Blocks are so large in the unit of the space; None: each place by itself.
        """
        places = observed.there[np.argsort(observed.source_index[observed.there])]
        generator = np.random.default_rng(seed)
        if days:
            day = observed.moments[places].astype("datetime64[D]")
            folds = dealt(np.unique(day, return_inverse=True)[1], count, generator, what="day")
        else:
            folds = block_folds(
                observed.north[places],
                observed.east[places],
                space=observed.space,
                count=count,
                blocks=blocks,
                generator=generator,
                called="folds",
            )
        return cls(places, places, folds, folds)

    def without(self, folds: Sequence[int]) -> "Split":
        """Leave out the places of some folds."""
        assert self.fold_of is not None
        left = np.isin(self.fold_of, folds)
        return Split(self.observed[~left], self.observed[left])


def usual_blocks(observed: Observations, count: int) -> float:
    """Give the size of blocks for so many folds: 5 degrees or a tenth of a plane, less in a region."""
    space, north, east = observed.space, observed.north, observed.east
    return fitting_blocks(north, east, space=space, count=count, blocks=space.block_size(north, east))
