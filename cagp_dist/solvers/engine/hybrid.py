"""Hybrids: one solve whose parts are other solvers, each going on from where the last one stopped (math 6).

A part is a cycle of stages, or actions S, the projection on which is a stage as well. So the whole is one
list of stages, and the adjoint engine gives mean and covariance of one and the same matrix A, whatever the
parts. The actions at the end of the list can condition the belief of the parts before them instead.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, final

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.budget import Demand, Plan
from cagp_dist.budget.demand import DOUBLE, GridSize
from cagp_dist.budget.grid_plans import plan_ring_sweeps
from cagp_dist.budget.point_plans import ActionCost, Sweeps, plan_sweeps
from cagp_dist.checks import check_count
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.exact_variance import with_bounds
from cagp_dist.gram.tiled import TiledGram
from cagp_dist.remedies import Remedy
from cagp_dist.runtime import Executor, single_threaded_steps
from cagp_dist.solvers.actions.action_solvers import ConjugateGradient, RandomActions
from cagp_dist.solvers.actions.projection import project
from cagp_dist.solvers.engine.adjoint import adjoint_states
from cagp_dist.solvers.engine.affine import Affine, system_of
from cagp_dist.solvers.engine.conditioned_stages import condition_on
from cagp_dist.solvers.engine.recorder import RecordedResults, Recorder
from cagp_dist.solvers.engine.stages import ProjectionStage, Stage, without_repeats
from cagp_dist.solvers.engine.stopping_rules import Iterations
from cagp_dist.solvers.engine.system import System
from cagp_dist.solvers.interface import Problem, State, check_no_start, check_one_field
from cagp_dist.solvers.named_parts import MadeOfParts, parts_of_text
from cagp_dist.solvers.setting_metadata import BLOCK_SIZE
from cagp_dist.solvers.stationary.gauss_seidel import BlockGaussSeidel, GaussSeidel
from cagp_dist.solvers.stationary.jacobi import BlockJacobi
from cagp_dist.solvers.stationary.spectrum import admissible
from cagp_dist.solvers.stationary.two_level import TwoLevelBlockGaussSeidel, TwoLevelBlockJacobi
from cagp_dist.solvers.status import Status
from cagp_dist.tiling import POINT_TILE

Part = Affine | ConjugateGradient | RandomActions  # What a hybrid is made of
DEFAULT_BLOCK_SIZE = 1024

# Parts that a text may name
NAMED: Mapping[str, Callable[..., Part]] = MappingProxyType(
    {
        "gauss-seidel": GaussSeidel,
        "block-gauss-seidel": BlockGaussSeidel,
        "two-level-block-gauss-seidel": TwoLevelBlockGaussSeidel,
        "block-jacobi": BlockJacobi,
        "two-level-block-jacobi": TwoLevelBlockJacobi,
        "conjugate-gradient": ConjugateGradient,
        "random-actions": RandomActions,
    }
)

EXAMPLE = "block-gauss-seidel 2, conjugate-gradient 20"  # Parts in a text, for messages


@dataclass(frozen=True)
class Hybrid(MadeOfParts):
    """Solvers one after the other, each going on from the estimate of those before it.

    Sweeps over blocks remove errors that vary within a block; conjugate gradients remove those that vary over
    many blocks. Mean and covariance are those of one matrix A (math 6). Calibrated exactly if all parts are;
    approximately with a part of conjugate gradients, whose directions depend on the data.

    Parameters
    ----------
    parts : sequence of solvers, or str
        `ConjugateGradient`, `RandomActions`, or solvers that are cycles of stages, like `BlockGaussSeidel` or
        `TwoLevelBlockGaussSeidel`; all blocks of one size. The first part sees the data first. In job files,
        names and iterations: ``"block-gauss-seidel 2, conjugate-gradient 20"``.
    block_size : int, optional
        Points of a block of parts that are given by name, by default 1024.
    condition : bool
        What the actions at the end of the list do with the residual r of the parts before them. By default
        they solve for what lies in their span S, as conjugate gradients do. If true, the belief of those
        parts is conditioned on ``S' r`` (math 6 c): with the same S no variance is larger, and the mean is
        that of the conditioned belief, not that of conjugate gradients. The parts before them are then
        cycles of stages alone.

    Raises
    ------
    ArgumentError
        If there is no part, one of another kind, blocks of several sizes, or a part with a
        ``computational_share``; if ``condition`` is true and the last part takes no actions, is the only one,
        or is not the only one to take some.

    Notes
    -----
    The cost of the parts, of one more column where conjugate gradients are among them, and 4 n k q flops for
    each k actions; 16 n k bytes, and 48 n k while they are taken. To condition on them takes two more passes
    through the stages with k columns, and 32 n k bytes more.

    On a complete latitude-longitude grid parts that go by rings do so here, if all of them do. Actions mix
    wavenumbers: with `ConjugateGradient` or `RandomActions`, and with sweeps point by point, the points of a
    grid are solved by tiles.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> X = np.linspace(0.0, 1.0, 400).reshape(-1, 1)
    >>> prior = cagp.Prior(cagp.Matern32(lengthscale=1.0), noise_variance=0.01)
    >>> solver = cagp.Hybrid([cagp.BlockGaussSeidel(2, block_size=40), cagp.ConjugateGradient(5)])
    >>> posterior = cagp.condition(prior, X, np.sin(6.0 * X[:, 0]), [[0.5]], solver=solver)
    >>> bool(abs(posterior.mean[0] - np.sin(3.0)) < 0.05), solver.calibrated
    (True, 'approximate')
    """

    parts: tuple[Part, ...] | str = field(
        metadata={
            "description": "names of solvers and their iterations, one after the other",
            "example": "block-gauss-seidel 2, conjugate-gradient 5",
        }
    )
    block_size: int | None = field(default=None, metadata={**BLOCK_SIZE, "job_default": DEFAULT_BLOCK_SIZE})
    condition: bool = field(
        default=False,
        metadata={
            "later": True,
            "description": "whether the last part conditions the belief of the others on its actions",
            "example": True,
        },
    )

    iterations: ClassVar[int] = 1
    needs_grid: ClassVar[bool] = False

    def __post_init__(self) -> None:
        parts: Any = self.parts
        if self.block_size is not None:
            check_count("block_size", self.block_size, least=1)
            if not isinstance(parts, str):
                raise ArgumentError(
                    f"block_size is {self.block_size} beside parts that are solvers; expected it with names "
                    "of parts alone. Give each part its block_size.",
                    key="block-sizes",
                )
        if isinstance(parts, str):
            size = self.block_size or DEFAULT_BLOCK_SIZE
            make = {name: _made(name, size) for name in NAMED}
            parts = parts_of_text(parts, make, numbers="iterations", example=EXAMPLE)
            object.__setattr__(self, "block_size", None)
        if not isinstance(parts, Sequence) or not parts or not all(isinstance(part, Part) for part in parts):
            raise ArgumentError(
                f"parts is {parts!r}; expected a list of at least one of ConjugateGradient, RandomActions "
                "and solvers like BlockGaussSeidel that sweep or update.",
                key="parts-of-solver",
            )
        object.__setattr__(self, "parts", tuple(parts))
        sizes = sorted({size for size in map(_block_size, parts) if size is not None})
        if len(sizes) > 1:
            raise ArgumentError(
                f"parts have blocks of {' and '.join(map(str, sizes))} points; expected one size. Give them "
                "the same block_size.",
                key="block-sizes",
            )
        if any(isinstance(part, Affine) and part.computational_share is not None for part in parts):
            raise ArgumentError(
                "a part has a computational_share; a hybrid does all of its parts. Leave it out.",
                key="share-of-part",
            )
        *before, last = parts
        if self.condition and (
            not before or isinstance(last, Affine) or not all(isinstance(part, Affine) for part in before)
        ):
            raise ArgumentError(
                f"condition is true with {', then '.join(map(_label, parts))}; expected solvers that sweep "
                "or update, and then one part that takes actions, ConjugateGradient or RandomActions. Put "
                "that one last, or leave condition out.",
                key="order-of-parts",
            )

    @property
    def _solvers(self) -> tuple[Part, ...]:
        assert not isinstance(self.parts, str)
        return self.parts

    @final
    def plan(self, demand: Demand) -> Plan:
        """Decide tiles, tasks and bytes; see `cagp_dist.solvers.interface.Solver.plan`."""
        grid = demand.grid if demand.grid is not None and demand.grid.has_rings else None
        affine = [part for part in self._solvers if isinstance(part, Affine)]
        if grid is not None and self._by_rings:
            return with_bounds(self._plan_rings(demand, grid, affine), demand)
        others = [part for part in self._solvers if not isinstance(part, Affine)]
        actions = sum(min(part.iterations, demand.n) for part in others)
        coarse = sum(min(part.coarse_columns, demand.n) for part in affine) + actions
        projected = actions + sum(min(part.coarse_columns, demand.n) * part.projections for part in affine)
        # preconditioners stand beside the sweeps, and so do the matrices of k columns of two more passes
        stages = sum(part.stages * part.iterations for part in affine)
        costs = [part.cost(demand) for part in others] + [part.beside(demand) for part in affine]
        beside = ActionCost(
            sum(cost.memory_bytes for cost in costs) + DOUBLE * demand.n * 8 * actions * self.condition,
            sum(cost.entries for cost in costs),
            sum(cost.flops for cost in costs),
        )
        passes = 2 * stages * self.condition
        plan = plan_sweeps(
            demand,
            Sweeps(
                iterations=1,
                block_size=self.points_per_block,
                stages=stages,
                at_once=any(part.at_once or part.colours_at_once for part in affine),
                colours=max((part.colours_at_once for part in affine), default=0),
                work_matrices=max((part.work_matrices for part in affine), default=0),
                shuffled=any(part.shuffled for part in affine),
                products=sum(part.products for part in affine) + -(-actions // 2) + passes,
                after_solves=sum(part.products_after_solves for part in affine),
                coarse=coarse,
                projections=-(-projected // max(coarse, 1)),
            ),
            method=self._method,
            beside=beside,
            remedies=(Remedy.SMALLER_BLOCKS,),
        )
        flops = plan.flops + 2 * demand.n**2 * actions * passes
        return with_bounds(replace(plan, flops=flops, chain_flops=0), demand)

    @property
    def _by_rings(self) -> bool:
        """Whether all parts go by rings on a whole grid."""
        return all(isinstance(part, Affine) and part.by_rings for part in self._solvers)

    def _plan_rings(self, demand: Demand, grid: GridSize, parts: Sequence[Affine]) -> Plan:
        sizes = [part.points_per_block for part in parts if part.points_per_block is not None]
        return plan_ring_sweeps(
            demand,
            grid,
            method=self._method,
            iterations=1,
            block_size=sizes[0] if sizes else None,
            stages=sum(part.stages * part.iterations for part in parts),
            shuffled=any(part.shuffled or part.colours_at_once for part in parts),
            coarse=max(part.coarse_columns for part in parts),
            projections=sum(part.projections for part in parts),
            work_matrices=max(part.work_matrices for part in parts),
        )

    @property
    def _method(self) -> str:
        return "hybrid of " + ", ".join(map(_label, self._solvers))

    @final
    def states(self, problem: Problem, *, executor: Executor, plan: Plan) -> Iterator[State]:
        """Yield the belief after all parts, batch by batch of targets."""
        check_no_start(problem)
        if not self.many_fields:
            check_one_field(problem.fields)
        yield from single_threaded_steps(self._states(problem, executor, plan))

    def _states(self, problem: Problem, executor: Executor, plan: Plan) -> Iterator[State]:
        system, recorder = system_of(problem, plan, executor), Recorder(problem.checkpoint)
        if recorder.ended(len(system.batches)):
            yield from recorder.states()
            return
        products = RecordedResults("products", recorder.kept)
        recorder.parts.append(products)
        stages, status, residual = self._stages(system, problem, executor, products, recorder.record_parts)
        yield from adjoint_states(
            system,
            StageByStage(stages),
            Iterations(len(stages)),
            recorder=recorder,
            status=status,
            relative_residual=residual,
        )

    def _stages(
        self,
        system: System[Any],
        problem: Problem,
        executor: Executor,
        products: RecordedResults,
        keep: Callable[[], object],
    ) -> tuple[list[Stage], Status, float | None]:
        """All stages in the order of the parts; those of actions are found by going through it once."""
        gram = problem.gram
        follows = [isinstance(part, ConjugateGradient) for part in self._solvers]
        last = max((position for position, does in enumerate(follows) if does), default=-1)
        if self.condition:
            last = len(follows) - 1  # with the residual that it is conditioned on
        work = system.forward(problem.residuals) if last >= 0 else None
        found: list[Stage] = []
        gone: list[Stage] = []
        status, residual = Status.COMPLETED, None
        for position, part in enumerate(self._solvers):
            if isinstance(part, Affine):
                cycle = [
                    admissible(system, stage, gram=gram, executor=executor, setting=part.setting)
                    for stage in part.cycle(gram, executor=executor, blocks=system.blocks)
                ]
                m = part.iterations
                after = found[-1] if found else None
                stages = without_repeats(
                    [stage.at(k, place=k) for k in range(m, 0, -1) for stage in cycle], after=after
                )
                forward = without_repeats(
                    [stage.at(k, place=m + 1 - k) for k in range(m, 0, -1) for stage in cycle], after=after
                )
            else:
                # by tiles, as the stages: a grid would factor all its wavenumbers
                tiled = TiledGram(gram.kernel, gram.X, noise_variance=gram.noise_variance)
                right = system.residual(work) if follows[position] else problem.residuals
                actions = _actions(
                    part, tiled, right, problem.extra_right_hand_sides, executor, products, keep
                )
                forward = stages = [] if actions.projection is None else [actions.projection]
                status = Status.worst([status, actions.status])
                left = actions.relative_residual * _size(right[:, : problem.fields])
                if self.condition and actions.projection is not None:
                    conditioned = condition_on(
                        system,
                        actions.projection,
                        forward=gone,
                        transposed=found,
                        right=problem.residuals,
                        residual=system.residual(work),
                    )
                    forward = stages = [] if conditioned.stage is None else [conditioned.stage]
                    left = _size(conditioned.residual[:, : problem.fields])
                if follows[position] and position == len(self._solvers) - 1:
                    residual = left / (_size(problem.residuals[:, : problem.fields]) or 1.0)
            if position < last:
                for stage in forward:
                    system.apply(stage, work, adjoint=False)
            found += stages
            gone += forward
        return found, status, residual

    @property
    def points_per_block(self) -> int:
        """Points of a block of its parts."""
        sizes = [size for size in map(_block_size, self._solvers) if size is not None]
        return sizes[0] if sizes else POINT_TILE


@dataclass(frozen=True, eq=False)
class StageByStage:
    """Steps that are a stage each, of one iteration, the last stage first."""

    all_stages: Sequence[Stage]

    @property
    def weight_psd(self) -> bool:
        """Whether W of every stage is known to be positive semidefinite."""
        return all(stage.weight_psd for stage in self.all_stages)

    def stages(self, step: int) -> Sequence[Stage]:
        """Give the stage of a step."""
        return self.all_stages[-step : len(self.all_stages) - step + 1]

    def iteration(self, step: int) -> int | None:
        """All steps are one iteration."""
        return 1 if step >= len(self.all_stages) else None


class _Actions(NamedTuple):
    """The projection on the actions of a part, None if there were none, and how taking them ended."""

    projection: ProjectionStage | None
    status: Status
    relative_residual: float


def _actions(
    part: ConjugateGradient | RandomActions,
    gram: TiledGram,
    right: Array,
    extra_right_hand_sides: int,
    executor: Executor,
    products: RecordedResults,
    keep: Callable[[], object],
) -> _Actions:
    """Take the actions of a part from a right-hand side (n, T); ``keep`` is called after each that is new."""
    n = gram.shape[0]
    steps = min(part.iterations, n)
    basis, image = np.empty((n, steps)), np.empty((n, steps))
    status, relative, taken = Status.COMPLETED, 1.0, 0
    for item in project(
        lambda columns: products(columns.shape[1], lambda: gram.product(columns, executor=executor)),
        right,
        policy=part.policy(gram, executor=executor),
        iterations=steps,
        extra_right_hand_sides=extra_right_hand_sides,
    ):
        status, relative = item.status, item.relative_residual
        if item.direction.any():
            root = np.sqrt(item.curvature)
            basis[:, taken], image[:, taken] = item.direction / root, item.image / root
            taken += 1
            if not products.behind:
                keep()
    if taken == 0:
        return _Actions(None, status, relative)
    used = np.ascontiguousarray(basis[:, :taken]), np.ascontiguousarray(image[:, :taken])
    return _Actions(ProjectionStage(*used), status, relative)


def _made(name: str, block_size: int) -> Callable[[int], Part]:
    return partial(NAMED[name], block_size=block_size) if "block" in name else NAMED[name]


def _block_size(part: Part) -> int | None:
    return part.points_per_block if isinstance(part, Affine) else None


def _label(part: Part) -> str:
    if isinstance(part, Affine):
        return part.label
    return "conjugate gradients" if isinstance(part, ConjugateGradient) else "random actions"


def _size(columns: Array) -> float:
    return float(np.linalg.norm(columns))
