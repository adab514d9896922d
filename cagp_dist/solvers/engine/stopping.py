"""When the adjoint passes of an affine solver have done enough for a group of targets; y has no part in it.

What is known of the exact variance brackets the unfinished part. Where nearby observed points do not tell
enough, Lanczos quadrature on the leftover of the solve does: that part is ``Y0' G^-1 Y0`` (math 1.3, T4).
"""

from dataclasses import dataclass, field

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.gram.quadrature import WIDTH, quadrature_bounds, tile_product
from cagp_dist.gram.targets import prior_variance
from cagp_dist.runtime import Executor
from cagp_dist.runtime.memo import MemoMetadata, MemoReader, MemoWriter
from cagp_dist.solvers.engine.kept_panels import Panels
from cagp_dist.solvers.engine.recorder import RecordedPart
from cagp_dist.solvers.engine.stopping_rules import StoppingRule
from cagp_dist.solvers.engine.tiles import TileSystem
from cagp_dist.solvers.interface import Problem
from cagp_dist.solvers.status import Status
from cagp_dist.tiling import Range
from cagp_dist.warned import warn

MOST_STEPS = 12  # Lanczos steps that a decision may take, at most

# Columns of products that decisions of a group may take, at most, for each column of its sweeps
PART_OF_SWEEPS = 0.5

# Part of a variance by which the bounds of its computational part must differ to be tightened
WORTH_A_STEP = 0.01

# What is kept of decisions: an array of a checkpoint, and some of its numbers
BOUNDS = "exact-variance"
SPENT, OPEN = "spent", "open_groups"


@dataclass(eq=False)
class TightenedBounds(RecordedPart):
    """Bounds of the exact variance, which Lanczos steps on the leftover of a group of targets tighten."""

    problem: Problem
    system: TileSystem | None  # has the leftover; None where the exact variance is known
    executor: Executor
    # Columns of products that were taken for each group
    spent: dict[Range, int] = field(default_factory=dict)
    # Whether steps that were asked for have brought no bound closer; None before there were any
    _useless: bool | None = None

    def begin(self, kept: MemoReader | None) -> None:
        """Work out the bounds before the sweeps, or take them, as they were tightened, from a checkpoint."""
        exact = self.problem.exact_variance
        if kept is not None:
            exact.take(kept.read(BOUNDS))
            self.spent = {(start, stop): spent for start, stop, spent in kept.metadata[SPENT]}
        self._bounds = exact.bounds(self.executor)
        self._prior = prior_variance(self.problem.gram.kernel, self.problem.targets)

    def metadata(self) -> MemoMetadata:
        """Columns of products that decisions of each group took."""
        return {SPENT: [[*group, spent] for group, spent in self.spent.items()]}

    def write(self, writer: MemoWriter) -> bool:
        """Write the bounds of the exact variance, as far as they were tightened."""
        return writer.write(BOUNDS, self._bounds)

    @property
    def reads_leftover(self) -> bool:
        """Whether it may ask for the leftover, also after the last iteration."""
        return self.system is not None

    def variance(self, group: Range, downdate: Array) -> Array:
        """Variance of the targets of a group with this downdate."""
        return self._prior[slice(*group)] - downdate

    def of(self, group: Range) -> Array:
        """Lower and upper bound (2, c) of a group."""
        return self._bounds[:, slice(*group)]

    def ended(self, group: Range, downdate: Array, work: Panels) -> None:
        """Take the steps that were asked for, of a group whose work has ended."""
        if not self.problem.lanczos_steps:
            return
        variance = self.variance(group, downdate)
        least, most = self.of(group)
        wide = np.flatnonzero(most - least > WORTH_A_STEP * variance)
        for start in range(0, len(wide), WIDTH):
            here = wide[start : start + WIDTH]
            before = self.of(group)[:, here]
            self.tighten(group, here, variance[here], work, steps=self.problem.lanczos_steps)
            same = np.array_equal(before, self.of(group)[:, here])
            self._useless = same and self._useless is not False

    def end(self) -> None:
        """Warn if the steps that were asked for have changed nothing."""
        if self._useless:
            gram, steps = self.problem.gram, self.problem.lanczos_steps
            part = gram.noise_variance.min() / gram.diagonal().max()
            warn(
                f"lanczos_steps={steps} brought no bound of the computational variance closer: the least "
                f"noise variance is {part:.1e} of the largest variance of an observation, and steps tell "
                "less than neighbours do until there are several times as many. More iterations bring bounds "
                'closer, and Chebyshev(3, preconditioner="vecchia") leaves little to bound. Leave '
                "lanczos_steps out, or take many more."
            )

    def tighten(
        self,
        group: Range,
        here: Indices,
        variance: Array,
        work: Panels,
        *,
        steps: int,
        allowed: Array | None = None,
    ) -> Array:
        """Take Lanczos steps until it is clear which targets have enough; upper bounds of what they lack."""
        assert self.system is not None
        gram = self.problem.gram
        left = self.system.columns(work, here)
        product = tile_product(gram, self.executor)
        found = quadrature_bounds(product, gram.diagonal(), gram.noise_variance, left)
        for step, (lower, upper) in enumerate(found):
            clear = allowed is not None and ((upper <= allowed).all() or (lower > allowed).any())
            if clear or step == steps:
                break
        self.spent[group] = self.spent.get(group, 0) + step * len(here)
        bounds = np.stack([variance - upper, variance - lower])
        self.problem.exact_variance.tighten(here + group[0], bounds)
        return np.asarray(upper)


class ComputationalShare(StoppingRule[Panels], RecordedPart):
    """A group ends where unfinished computation is a small enough part of the variances of its targets."""

    def __init__(self, share: float, bounds: TightenedBounds) -> None:
        self._share, self._bounds = share, bounds
        self._open: set[Range] = set()  # groups that had too large a share when they were asked last

    def begin(self, kept: MemoReader | None) -> None:
        """Get ready for a solve, or for one that continues from a checkpoint."""
        self._open = set() if kept is None else {(first, last) for first, last in kept.metadata[OPEN]}

    def metadata(self) -> MemoMetadata:
        """List the groups that had too large a share."""
        return {OPEN: sorted(self._open)}

    @property
    def status(self) -> Status:
        """Whether the share is reached in all groups so far."""
        return Status.SHARE_NOT_REACHED if self._open else Status.SHARE_REACHED

    def __call__(self, group: Range, downdate: Array, work: Panels, step: int) -> bool:
        """Say so of a group with this downdate (columns,) and leftover, after so many iterations."""
        reached = self._is_reached(group, self._bounds.variance(group, downdate), work, step)
        self._open = self._open - {group} if reached else self._open | {group}
        return reached

    def _is_reached(self, group: Range, variance: Array, work: Panels, step: int) -> bool:
        least, most = self._bounds.of(group)
        allowed = self._share * variance
        pending = np.flatnonzero(variance - least > allowed)
        if not len(pending):
            return True
        if not self._bounds.reads_leftover or (variance - most > allowed).any():
            return False
        for start in range(0, len(pending), WIDTH):
            here = pending[start : start + WIDTH]
            left = PART_OF_SWEEPS * step * len(variance) - self._bounds.spent.get(group, 0)
            steps = min(MOST_STEPS, max(0, int(left / len(here))))
            upper = self._bounds.tighten(
                group, here, variance[here], work, steps=steps, allowed=allowed[here]
            )
            if (upper > allowed[here]).any():
                return False
        return True
