"""Keys of what solves keep: digests of all that their states, or their weights, depend on."""

from collections.abc import Sequence
from dataclasses import astuple, is_dataclass

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget import Plan
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.gram.targets import target_points
from cagp_dist.kernels import point_columns
from cagp_dist.runtime.memo import key_of
from cagp_dist.solvers.interface import Problem
from cagp_dist.tiling import COLUMN_GROUP, SMALLEST_ROW_TILE


def solve_key(problem: Problem, solver: object, plan: Plan) -> str:
    """Key of the states of a solve; cost 8 (n + q) p + 8 n T bytes to be read."""
    tiles = (plan.block_size, plan.rings_per_block, plan.batches)
    told = (problem.lanczos_steps, problem.full_covariance)  # what they tell of the variance is kept
    points = _points(problem)
    return key_of("states", in_full(solver), problem.gram.kernel, tiles, told, *points, problem.residuals)


def weights_key(problem: Problem, solver: object, plan: Plan, basis: Sequence[Array]) -> str:
    """Key of weights and variances, which depend neither on batches of targets nor on what was observed."""
    tiles = (plan.block_size, COLUMN_GROUP, SMALLEST_ROW_TILE)
    return key_of("weights", in_full(solver), problem.gram.kernel, tiles, *_points(problem), *basis)


def in_full(solver: object) -> tuple[object, ...]:
    """Give a solver, and the values of all its fields: its `repr` leaves out long ones."""
    return (solver, astuple(solver)) if is_dataclass(solver) and not isinstance(solver, type) else (solver,)


def _points(problem: Problem) -> list[Array | Indices]:
    """Observed points, their noise, and targets."""
    gram, targets = problem.gram, problem.targets
    observed = [point_columns(gram.X), np.asarray(gram.noise_variance)]
    if not isinstance(targets, LinearFunctionals):
        return [*observed, target_points(targets)]
    terms = np.zeros(0) if targets.terms is None else targets.terms
    return [*observed, targets.nodes, targets.weights, targets.counts, terms]
