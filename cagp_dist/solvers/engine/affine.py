"""Solvers that are a cycle of stages: what every one of them plans, yields and returns."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, final

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget import Demand, Plan
from cagp_dist.budget.grid_plans import plan_ring_sweeps
from cagp_dist.budget.point_plans import ActionCost, Sweeps, plan_sweeps
from cagp_dist.errors import ArgumentError, BudgetError
from cagp_dist.gram.dense import DenseGram
from cagp_dist.gram.exact_variance import bounds_bytes, is_known, with_bounds
from cagp_dist.gram.gram_matrix import Gram
from cagp_dist.gram.quadrature import quadrature_bytes
from cagp_dist.gram.targets import list_targets, part
from cagp_dist.remedies import Remedy
from cagp_dist.runtime import Executor, single_threaded_blas, single_threaded_steps
from cagp_dist.runtime.memo import MemoMetadata, MemoWriter
from cagp_dist.solvers.engine.adjoint import Cycles, adjoint_states, forward_passes
from cagp_dist.solvers.engine.kept_weights import WrittenWeights
from cagp_dist.solvers.engine.recorder import Recorder
from cagp_dist.solvers.engine.ring_system import RingSystem
from cagp_dist.solvers.engine.stages import BlockStage, Stage
from cagp_dist.solvers.engine.stopping import MOST_STEPS, ComputationalShare, TightenedBounds
from cagp_dist.solvers.engine.stopping_rules import Iterations, StoppingRule
from cagp_dist.solvers.engine.system import System
from cagp_dist.solvers.engine.tiles import TileSystem
from cagp_dist.solvers.interface import Calibrated, Problem, State, no_op
from cagp_dist.solvers.setting_metadata import COMPUTATIONAL_SHARE, check_settings
from cagp_dist.solvers.stationary.spectrum import admissible
from cagp_dist.solvers.status import WORST_CONDITION, Status
from cagp_dist.tiling import POINT_TILE


@dataclass(frozen=True)
class Affine(ABC):
    """A solver whose matrix does not depend on the data: stages, gone through ``iterations`` times.

    Calibrated exactly for that reason, after any number of iterations (math 1.1).

    A new one is a frozen dataclass with ``iterations`` and its own settings that says its `cycle`. Where its
    blocks are blocks of points they may be bands of rings on a whole grid.

    Parameters
    ----------
    computational_share : float, optional
        Stop as soon as unfinished computation is at most this part of the variance at every target, above 0
        and below 1; ``iterations`` is then the most that are done. Each group of up to 512 targets stops for
        itself, once it is proved for all of them: by their nearest observed points, or where these do not
        tell, by Lanczos quadrature on the leftover of the group, which takes at most half as many products
        with G again as the sweeps did. When to stop is decided from the points, the noise, the kernel and
        the targets alone, never from the data, so that the solver stays calibrated. A rule that looks at the
        residual ``b - G v``, as other iterative solvers have, makes the solver's matrix depend on y, and the
        stated variance is then no longer that of the error (math 1.6). What coefficients of a mean that are
        estimated lack of generalised least squares, beyond 1,024 points, is not counted (math 1.7). See
        `Posterior.computational_variance_bounds`.
    """

    calibrated: ClassVar[Calibrated] = "exact"
    many_fields: ClassVar[bool] = True
    needs_grid: ClassVar[bool] = False

    label: ClassVar[str]  # The solver, for people
    stages: ClassVar[int] = 1  # Stages of a cycle
    work_matrices: ClassVar[int] = 0  # Tall matrices that are kept from one stage to the next
    at_once: ClassVar[bool] = False  # Whether stages solve all blocks from the same right-hand side
    setting: ClassVar[str] = "relaxation"  # What its relaxation is called
    iterations: int  # How often the cycle is gone through, at most

    # Part of each variance that may be left uncomputed; None: all iterations are done
    computational_share: float | None = field(default=None, kw_only=True, metadata=COMPUTATIONAL_SHARE)

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    @abstractmethod
    def points_per_block(self) -> int | None:
        """Points of a block that is solved as a whole; None where points are solved one by one."""

    @property
    def by_rings(self) -> bool:
        """Whether a whole grid is solved by rings: blocks are bands, or points of a ring are solved alike."""
        return self.points_per_block is not None

    @property
    def shuffled(self) -> bool:
        """Whether blocks are visited in an order that is not given: what is solved with is then a copy."""
        return False

    @property
    def products(self) -> int:
        """Products of G with one column that are needed to make the cycle."""
        return 0

    @property
    def products_after_solves(self) -> int:
        """How many of them follow a solve with every block: to measure what a coarse space leaves."""
        return self.products if self.coarse_columns and self.points_per_block is not None else 0

    @property
    def coarse_columns(self) -> int:
        """Columns of a coarse space that the cycle projects on, or of a preconditioner; 0: none."""
        return 0

    @property
    def projections(self) -> int:
        """Projections on a coarse space in all cycles, which `stages` does not count."""
        return 0

    def beside(self, demand: Demand) -> ActionCost:
        """Say what stands beside the stages, which they do not count."""
        return ActionCost()

    @property
    def colours_at_once(self) -> int:
        """Colours of blocks that are solved at once; 0 where blocks are solved one after the other."""
        return 0

    @abstractmethod
    def cycle(self, gram: Gram, *, executor: Executor, blocks: int) -> tuple[Stage, ...]:
        """Stages for a Gram matrix and so many blocks, in the order in which a forward pass has them."""

    @final
    def plan(self, demand: Demand) -> Plan:
        """Decide tiles, tasks and bytes; see `cagp_dist.solvers.interface.Solver.plan`."""
        # the exact variance and what tightens it stand beside the sweeps, which they may stop
        kept = 0 if self.computational_share is None else bounds_bytes(demand)
        if not is_known(demand):
            own = 0 if self.computational_share is None else min(self.iterations, MOST_STEPS)
            kept += quadrature_bytes(demand, steps=max(own, demand.lanczos_steps))
        left = max(demand.memory_limit_bytes - kept, 0)
        plan = self._plan_stages(replace(demand, memory_limit_bytes=left))
        return with_bounds(replace(plan, peak_bytes=plan.peak_bytes + kept), demand)

    def _plan_stages(self, demand: Demand) -> Plan:
        grid = demand.grid if demand.grid is not None and demand.grid.has_rings else None
        if not self.by_rings or grid is None:
            return self._plan_tiles(demand)
        try:
            return plan_ring_sweeps(
                demand,
                grid,
                method=self.label,
                iterations=self.iterations,
                block_size=self.points_per_block,
                stages=self.stages,
                shuffled=self.shuffled or self.colours_at_once > 0,
                coarse=self.coarse_columns,
                projections=self.projections,
                work_matrices=self.work_matrices,
            )
        except BudgetError:
            if self.points_per_block is not None:
                raise
            return self._plan_tiles(demand)  # points solved one by one: the same stages, in less memory

    def _plan_tiles(self, demand: Demand) -> Plan:
        size = self.points_per_block
        return plan_sweeps(
            demand,
            Sweeps(
                iterations=self.iterations,
                block_size=size or POINT_TILE,
                stages=self.stages,
                at_once=self.at_once or self.colours_at_once > 0,
                colours=self.colours_at_once,
                diagonals_alone=self.at_once and size is None,
                shuffled=self.shuffled and size is None,
                products=self.products,
                after_solves=self.products_after_solves,
                coarse=self.coarse_columns,
                projections=self.projections,
                work_matrices=self.work_matrices + demand.keeps_weights,
            ),
            method=self.label,
            beside=self.beside(demand),
            remedies=(Remedy.SMALLER_BLOCKS,) if size is not None else (),
        )

    @final
    def states(self, problem: Problem, *, executor: Executor, plan: Plan) -> Iterator[State]:
        """Yield the belief after every cycle."""
        if self.iterations > 0:
            yield from single_threaded_steps(self._states(problem, executor, plan))

    def _states(self, problem: Problem, executor: Executor, plan: Plan) -> Iterator[State]:
        system, cycle = self._system(problem, plan, executor)
        recorder, bounds = Recorder(problem.checkpoint), self._bounds(problem, system, executor)
        rule: StoppingRule[Any] = Iterations(self.iterations)
        if bounds is not None:
            bounds.begin(recorder.kept)
            recorder.parts.append(bounds)
            if self.computational_share is not None:
                share = ComputationalShare(self.computational_share, bounds)
                share.begin(recorder.kept)
                recorder.parts.append(share)
                rule = rule | share
        yield from adjoint_states(
            system,
            Cycles(cycle, 0 if problem.start is None else problem.start.iteration),
            rule,
            recorder=recorder,
            watchers=() if bounds is None else (bounds,),
            start=problem.start,
            keep_leftover=problem.keep_leftover,
            status=_status(problem.gram, executor) if _solves(cycle[0], system) else Status.COMPLETED,
        )
        if bounds is not None:
            bounds.end()

    @final
    def write_weights(
        self, problem: Problem, writer: MemoWriter, *, executor: Executor, plan: Plan
    ) -> MemoMetadata:
        """Write ``W = A' V'`` and the downdates after all iterations, and say how they were made.

        The sweeps of `states`, with one more tall matrix. The values of the residuals have no part in it.
        `ArgumentError`: the plan is one of whole rings, which keep no weights of targets.
        """
        blank = replace(problem, residuals=problem.residuals[:, :0])
        with single_threaded_blas():
            system, cycle = self._system(blank, plan, executor)
            if not isinstance(system, TileSystem):
                raise ArgumentError(
                    "a solve of whole rings keeps no weights of targets; expected blocks of points.",
                    key="no-weights-of-rings",
                )
            system.keeps_weights, written = True, WrittenWeights(system, writer)
            for _ in adjoint_states(system, Cycles(cycle), Iterations(self.iterations), watchers=(written,)):
                pass
            status = _status(problem.gram, executor) if _solves(cycle[0], system) else Status.COMPLETED
        return {
            "groups": written.groups,
            "iterations": self.iterations,
            "status": status.name,
            "downdate_psd": all(stage.weight_psd for stage in cycle),
        }

    def _bounds(self, problem: Problem, system: System[Any], executor: Executor) -> TightenedBounds | None:
        """Make the bounds that a share, or the problem, asks for; None where neither does."""
        known = problem.exact_variance.known
        if self.computational_share is None and (problem.lanczos_steps == 0 or known):
            return None
        positive = problem.gram.noise_variance.min() > 0.0
        tiles = system if isinstance(system, TileSystem) and positive and not known else None
        return TightenedBounds(problem, tiles, executor)

    @final
    def mean(
        self,
        problem: Problem,
        *,
        executor: Executor,
        plan: Plan,
        iterations: Indices | None = None,
        done: Callable[[int], None] = no_op,
    ) -> tuple[Array, Status]:
        """``V A b`` (q, T), by the stages themselves: T columns instead of q; and how that ended.

        After all iterations, or at each target after as many as ``iterations`` (q,) says, at least one; where
        cycles differ, that takes a pass for each number of them.
        ``done`` is called with the number of every iteration that is handed out.
        """
        found = np.zeros((problem.q, problem.residuals.shape[1]))
        if self.iterations == 0 or problem.q == 0:
            return found, Status.COMPLETED
        if iterations is not None:
            problem = replace(problem, targets=list_targets(problem.targets))
        # tiles sum up the adjoint's mean beside a pass, which nobody asks for here
        apart = problem if plan.rings_per_block else replace(problem, residuals=problem.residuals[:, :0])
        with single_threaded_blas():
            system, cycle = self._system(apart, plan, executor)
            status = _status(problem.gram, executor) if _solves(cycle[0], system) else Status.COMPLETED

            def passes(count: int) -> Iterator[Any]:
                for number, work in enumerate(
                    forward_passes(system, cycle, problem.residuals, iterations=count), start=1
                ):
                    done(number)
                    yield work

            if iterations is None:
                *_, work = passes(self.iterations)
                return system.mean(work, problem.targets), status
            counts = np.unique(iterations).tolist()
            if any(stage.varies for stage in cycle):
                ends = ((count, list(passes(count))[-1]) for count in counts)
            else:
                ends = (
                    (number, work) for number, work in enumerate(passes(counts[-1]), 1) if number in counts
                )
            for count, work in ends:
                here = np.flatnonzero(iterations == count)
                found[here] = system.mean(work, part(list_targets(problem.targets), here))
            return found, status

    @final
    def forward(self, problem: Problem, *, executor: Executor, plan: Plan) -> tuple[Array, Array]:
        """Return ``A b`` and what it leaves, ``b - G A b``, each (n, T), by the stages themselves."""
        if self.iterations == 0:
            return np.zeros_like(problem.residuals), problem.residuals
        with single_threaded_blas():
            system, cycle = self._system(problem, plan, executor)
            *_, work = forward_passes(
                system, cycle, problem.residuals, iterations=self.iterations, keep_residual=True
            )
            return system.weights(work), system.residual(work)

    def _system(
        self, problem: Problem, plan: Plan, executor: Executor
    ) -> tuple[System[Any], tuple[Stage, ...]]:
        """Open the problem, and work out the cycle for it; a relaxation that does not converge is refused."""
        system = system_of(problem, plan, executor)
        cycle = self.cycle(problem.gram, executor=executor, blocks=system.blocks)
        return system, tuple(
            admissible(system, stage, gram=problem.gram, executor=executor, setting=self.setting)
            for stage in cycle
        )


def system_of(problem: Problem, plan: Plan, executor: Executor) -> System[Any]:
    """Open a problem as a plan says: by whole rings, or in blocks of points."""
    if plan.rings_per_block:
        return RingSystem(problem, plan=plan, executor=executor)
    return TileSystem(problem, plan=plan, executor=executor)


def _solves(stage: Stage, system: System[Any]) -> bool:
    """Whether one such stage solves the whole system: a single block, solved as a whole."""
    whole = isinstance(stage, BlockStage) and stage.whole_blocks and stage.relaxation == 1.0
    return whole and system.blocks == 1


def _status(gram: Gram, executor: Executor) -> Status:
    """Give the status of a solve in one block: G has eigenvalues from the noise to n times its diagonal."""
    noise = gram.noise_variance.min()
    bound = gram.shape[0] * gram.diagonal().max() / noise if noise > 0.0 else np.inf
    if bound <= WORST_CONDITION:
        return Status.EXACT
    exact = gram.exact(executor=executor)
    if exact is None:  # the bound is far too high for rough kernels: measure
        exact = DenseGram(gram.kernel, gram.X, noise_variance=gram.noise_variance).exact(executor=executor)
    return Status.of_direct_solve(exact.condition_number)
