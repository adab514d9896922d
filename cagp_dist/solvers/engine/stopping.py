"""When the adjoint passes of an affine solver have done enough for a group of targets; y has no part in it.

What is known of the exact variance brackets the unfinished part of every variance. Where the observed points
near a target do not tell enough of it, Lanczos quadrature on the leftover of the solve does (math 1.3): the
computational variance is ``Y0' G^-1 Y0`` (T4).
"""

import warnings
from dataclasses import dataclass, field

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.gram.quadrature import WIDTH, quadrature_bounds, tile_product
from cagp_dist.gram.targets import prior_variance
from cagp_dist.runtime import Executor
from cagp_dist.solvers.engine.kept_panels import Panels
from cagp_dist.solvers.engine.solve_checkpoints import CheckpointMetadata, CheckpointReader, CheckpointWriter
from cagp_dist.solvers.engine.tiles import TileSystem
from cagp_dist.solvers.interface import Problem
from cagp_dist.tiling import Range

MOST_STEPS = 12
"""Lanczos steps that a decision may take, at most."""

PART_OF_SWEEPS = 0.5
"""Columns of products that decisions of a group may take, at most, for each column of its sweeps."""

WORTH_A_STEP = 0.01
"""Part of a variance by which the bounds of its computational part must differ to be tightened."""

BOUNDS = "exact-variance"
SPENT = "spent"
"""What is kept of a decision: an array of a checkpoint, and some of its numbers."""


@dataclass(eq=False)
class Enough:
    """Whether unfinished computation is a small enough part of the variances of a group of targets."""

    problem: Problem  # of which the exact variance is known, or bounds of it
    # part of every variance that may be unfinished computation; None: no group is ever done
    share: float | None
    iterations: int  # after which the solve ends anyway: then ``problem.lanczos_steps`` tighten the bounds
    system: TileSystem | None  # has the leftover; None where the exact variance is known
    executor: Executor  # where products run
    _spent: dict[Range, int] = field(default_factory=dict)
    _useless: bool | None = None
    """Whether steps that were asked for have brought no bound closer; None before there were any."""

    def __post_init__(self) -> None:
        self._prior = prior_variance(self.problem.gram.kernel, self.problem.targets)

    def begin(self, kept: CheckpointReader | None) -> None:
        """Work out the bounds before the sweeps, or take them, as they were tightened, from a checkpoint."""
        exact = self.problem.exact_variance
        if kept is not None:
            exact.take(kept.read(BOUNDS))
            self._spent = {(start, stop): spent for start, stop, spent in kept.metadata[SPENT]}
        self._bounds = exact.bounds(self.executor)

    def metadata(self) -> CheckpointMetadata:
        """Columns of products that decisions of each group took."""
        return {SPENT: [[*group, spent] for group, spent in self._spent.items()]}

    def write(self, writer: CheckpointWriter) -> bool:
        """Write the bounds of the exact variance, as far as they were tightened."""
        return writer.write(BOUNDS, self._bounds)

    @property
    def reads_leftover(self) -> bool:
        """Whether it may ask for the leftover, also after the last iteration."""
        return self.system is not None

    def __call__(self, group: Range, downdate: Array, work: Panels, iteration: int) -> bool:
        """Say so of a group with this downdate (columns,) and leftover, after so many iterations."""
        variance = self._prior[slice(*group)] - downdate
        done = self.share is not None and self._decide(group, variance, work, iteration)
        if (done or iteration == self.iterations) and self.problem.lanczos_steps > 0:
            least, most = self._bounds[:, slice(*group)]
            wide = np.flatnonzero(most - least > WORTH_A_STEP * variance)
            for start in range(0, len(wide), WIDTH):
                here = wide[start : start + WIDTH]
                before = self._bounds[:, slice(*group)][:, here]
                self._tighten(group, here, variance[here], work, steps=self.problem.lanczos_steps)
                same = np.array_equal(before, self._bounds[:, slice(*group)][:, here])
                self._useless = same and self._useless is not False
        return done

    def end(self) -> None:
        """Warn if the steps that were asked for have changed nothing."""
        if self._useless:
            gram, steps = self.problem.gram, self.problem.lanczos_steps
            part = gram.noise_variance.min() / gram.diagonal().max()
            warnings.warn(
                f"lanczos_steps={steps} brought no bound of the computational variance closer: the least "
                f"noise variance is {part:.1e} of the largest variance of an observation, and steps tell "
                "less than neighbours do until there are several times as many. More iterations bring bounds "
                'closer, and Chebyshev(3, preconditioner="vecchia") leaves little to bound. Leave '
                "lanczos_steps out, or take many more.",
                stacklevel=2,
            )

    def _decide(self, group: Range, variance: Array, work: Panels, iteration: int) -> bool:
        assert self.share is not None
        least, most = self._bounds[:, slice(*group)]
        allowed = self.share * variance
        pending = np.flatnonzero(variance - least > allowed)
        if not len(pending):
            return True
        if self.system is None or (variance - most > allowed).any():
            return False
        for start in range(0, len(pending), WIDTH):
            here = pending[start : start + WIDTH]
            left = PART_OF_SWEEPS * iteration * len(variance) - self._spent.get(group, 0)
            steps = min(MOST_STEPS, max(0, int(left / len(here))))
            upper = self._tighten(group, here, variance[here], work, steps=steps, allowed=allowed[here])
            if (upper > allowed[here]).any():
                return False
        return True

    def _tighten(
        self,
        group: Range,
        here: Indices,
        variance: Array,
        work: Panels,
        *,
        steps: int,
        allowed: Array | None = None,
    ) -> Array:
        """Take Lanczos steps for some targets of a group, until it is clear whether they have enough.

        Returns the upper bounds of their computational variances.
        """
        assert self.system is not None
        gram = self.problem.gram
        left = self.system.columns(work, here)
        product = tile_product(gram, self.executor)
        found = quadrature_bounds(product, gram.diagonal(), gram.noise_variance, left)
        for step, (lower, upper) in enumerate(found):
            clear = allowed is not None and ((upper <= allowed).all() or (lower > allowed).any())
            if clear or step == steps:
                break
        self._spent[group] = self._spent.get(group, 0) + step * len(here)
        bounds = np.stack([variance - upper, variance - lower])
        self.problem.exact_variance.tighten(here + group[0], bounds)
        return np.asarray(upper)
