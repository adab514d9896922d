"""Which places are observed and which are held out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Self

import numpy as np

from cagp_dist.arrays import Indices
from cagp_dist.calibration.verification.spatial_folds import block_folds, dealt, fitting_blocks
from cagp_dist.pipeline.defaults import FOLDS
from cagp_dist.pipeline.observations import Observations


@dataclass(frozen=True, eq=False)
class Split:
    """Indices of places of `Observations`."""

    observed: Indices  # (n,)
    held_out: Indices = field(default_factory=lambda: np.arange(0))  # (q,), scored
    folds: Indices | None = None  # (q,): the fold of each held-out place, if all of these are observed
    fold_of: Indices | None = None  # (n,): the fold of each observed one; -1 for none
    blocks: float | None = None  # size of the blocks that the folds are made of, in the unit of the space

    @classmethod
    def into_folds(
        cls,
        observed: Observations,
        places: Indices | None = None,
        *,
        count: int | Literal["auto"] | None,
        blocks: float | Literal["auto"] | None = None,
        days: bool = False,
        seed: int,
    ) -> Self:
        """Hold out each place with a value once, or some places, by blocks or days.

        Without a count one by one; "auto" are ten folds, or as many as there are places. Blocks are so large
        in the unit of the space; "auto" are 5 degrees or a tenth of a plane, less where the places are in too
        few of these; None: each place by itself.
        """
        places = observed.there if places is None else places
        places = places[np.argsort(observed.source_index[places])]
        north, east, space = observed.north[places], observed.east[places], observed.space
        generator = np.random.default_rng(seed)
        if count == "auto":
            count = max(2, min(FOLDS, len(np.unique(space.keys(north, east), axis=0))))
        if days:
            day = observed.moments[places].astype("datetime64[D]")
            folds = dealt(np.unique(day, return_inverse=True)[1], count, generator, what="day")
            return cls(places, places, folds, folds)
        if blocks == "auto":
            usual = space.block_size(north, east)
            blocks = fitting_blocks(north, east, space=space, count=count or 2, blocks=usual)
        folds = block_folds(north, east, space=space, count=count, blocks=blocks, generator=generator)
        return cls(places, places, folds, folds, blocks)

    def without(self, folds: Sequence[int]) -> "Split":
        """Leave out the places of some folds."""
        assert self.fold_of is not None
        left = np.isin(self.fold_of, folds)
        return Split(self.observed[~left], self.observed[left])
