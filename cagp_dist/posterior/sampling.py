"""Draws of the field given the data, by Matheron's rule, of solvers that need not have converged (math 1.5).

With f' and e' drawn from prior and noise, ``f_s(X') = f'(X') + V A (y - f'(X) - e')`` is a draw of the
posterior that `cagp_dist.condition` states (T7). It takes a right-hand side, a variance one for each target.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.budget import Demand, Plan
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.errors import BudgetError, NumericalError
from cagp_dist.posterior.coefficients import Coefficients
from cagp_dist.posterior.prior_draws import PriorDraws
from cagp_dist.posterior.problem import plan_of_mean
from cagp_dist.remedies import Remedy
from cagp_dist.runtime import Executor, single_threaded_blas
from cagp_dist.solvers.engine.affine import Affine
from cagp_dist.solvers.interface import LinearMean, Problem, Solver, no_op
from cagp_dist.solvers.local.neighbours import Neighbours, NeighbourSearch
from cagp_dist.solvers.status import Status
from cagp_dist.text import bytes_text, counted
from cagp_dist.tiling import COLUMN_GROUP, Range, split

GROUP_ENTRIES = 2**24  # Values of draws at points and targets that are made at a time, about: 128 MiB
FEWEST_AT_ONCE = 64

DRAW_FLOPS = 7_000  # Of a draw of the prior at a point, by random waves, about


def noise_draws(noise_variance: Array, draws: int, generator: np.random.Generator) -> Array:
    """Draws of the noise of n observations, shape (n, draws)."""
    white = generator.standard_normal((draws, noise_variance.size)).T
    return np.asarray(np.sqrt(noise_variance)[:, None] * white)


def draw_groups(draws: int, *, points: int) -> list[Range]:
    """Split draws at so many points and targets into groups that are made at a time."""
    together = min(COLUMN_GROUP, max(FEWEST_AT_ONCE, GROUP_ENTRIES // max(points, 1)))
    return split(draws, -(-draws // together)) if draws else []


def plans_of_draws(
    solver: Solver,
    demand: Demand,
    groups: Sequence[Range],
    *,
    draw_bytes: Callable[[int], int],
    held_bytes: int = 0,
) -> list[Plan]:
    """Plan the solve of each group of draws, the first with the fields too, beside ``held_bytes``."""
    n, q, plans = demand.n, demand.q, []
    for number, (first, last) in enumerate(groups):
        draws = last - first
        columns = draws + (demand.fields if number == 0 else 0)
        # at targets the prior, the solver's part, and one more in the making
        kept = held_bytes + DOUBLE * (3 * (n + q) * draws) + draw_bytes(draws)
        if kept > demand.memory_limit_bytes:
            name = solver.label if isinstance(solver, Affine) else type(solver).__name__
            raise BudgetError(
                f"{name} on {n:,} points needs about {bytes_text(kept)} for {draws} samples of "
                f"{counted(q, 'target')} at a time, more than the {bytes_text(demand.memory_limit_bytes)} "
                "that may be used.",
                remedies=(Remedy.MORE_MEMORY, Remedy.FEWER_TEST_POINTS),
                key="memory",
            )
        left = replace(
            demand,
            fields=columns if solver.many_fields else 1,
            memory_limit_bytes=demand.memory_limit_bytes - kept,
        )
        plan = plan_of_mean(solver, left)
        plans.append(replace(plan, peak_bytes=plan.peak_bytes + kept))
    return plans


def joint_plan_of_draws(plans: Sequence[Plan], demand: Demand, *, draws: int, sums: int) -> Plan:
    """Make one plan of those of all groups of draws, of which ``sums`` columns of sums are kept."""
    points = demand.n + demand.target_points
    # plans of direct solvers have their targets; those of sweeps are of columns alone
    pairs = 0 if plans[0].direct else demand.n * demand.target_points
    entries = sum(plan.gram_entries for plan in plans) + len(plans) * pairs
    flops = sum(plan.flops for plan in plans) + 2 * pairs * (draws + demand.fields)
    flops += DRAW_FLOPS * points * draws
    return replace(
        max(plans, key=lambda plan: plan.peak_bytes),
        method=f"{plans[0].method}, {draws:,} samples",
        q=demand.q,
        fields=demand.fields,
        gram_entries=entries,
        flops=flops,
        tasks=sum(plan.tasks for plan in plans),
        sums=sums,
    )


@dataclass(frozen=True, eq=False)
class Sampler:
    """Draws of ``f(X') - V A b - m0`` for one problem: the error of the mean, of which no data are needed."""

    problem: Problem  # Gram matrix, residuals (n, T) and targets
    # any. If A depends on the data, ``V A`` is replaced by what the solver makes of each right-hand side:
    # every draw is then a solve of its own.
    solver: Solver
    prior: PriorDraws  # how the prior is drawn
    demand: Demand  # size of the problem, and what may be allocated
    executor: Executor  # where the work is done; draws do not depend on it
    held_bytes: int = 0  # what the draws, or what is made of them, take while others are made
    # of the prior mean, where they are estimated: they are estimated from every draw as from the data
    coefficients: Coefficients | None = None

    def plans(self, groups: Sequence[Range]) -> list[Plan]:
        """Plan the solve of each group of draws; see `plans_of_draws`."""
        return plans_of_draws(
            self.solver, self.demand, groups, draw_bytes=self.prior.bytes, held_bytes=self.held_bytes
        )

    def groups(
        self,
        generator: np.random.Generator,
        groups: Sequence[Range],
        plans: Sequence[Plan],
        *,
        done: Callable[[int, int], None],
        begun: int = 0,
    ) -> Iterator[tuple[Array, Array, Status]]:
        """Yield ``V A b`` (q, T), errors (q, draws) and status of the first group; of others the last two.

        The first ``begun`` groups are left out: the generator is as they left it.
        ``done`` is called with the group and the iteration that is handed out.
        """
        fields = self.problem.residuals
        search = NeighbourSearch(
            self.demand.memory_limit_bytes - max((plan.peak_bytes for plan in plans), default=0)
        )
        for number, ((first, last), plan) in list(enumerate(zip(groups, plans, strict=True)))[begun:]:
            with single_threaded_blas():
                at_points, errors = self.prior.draw(generator, last - first)
                at_points += noise_draws(self.problem.gram.noise_variance, last - first, generator)
                if self.coefficients is not None:
                    at_points, mean = self.coefficients.without_mean(at_points)
                    errors -= mean
            columns = at_points if number else np.concatenate([fields, at_points], axis=1)
            seen, status = self._seen(columns, plan, partial(done, number), search)
            known = 0 if number else fields.shape[1]
            errors -= seen[:, known:]
            if not np.isfinite(seen).all():
                raise NumericalError(
                    "a draw of the posterior is not finite: the iteration diverges, or values of y or of the "
                    "prior mean are too large for float64. Lower damping, or use another unit.",
                    key="diverged",
                )
            yield seen[:, :known], errors, status

    def _seen(
        self, columns: Array, plan: Plan, done: Callable[[int], None], search: NeighbourSearch
    ) -> tuple[Array, Status]:
        """``V A columns``, shape (q, r), and how the worst solve of them ended."""
        problem = replace(self.problem, residuals=np.ascontiguousarray(columns))
        if self.solver.iterations == 0 or problem.q == 0:
            return np.zeros((problem.q, columns.shape[1])), Status.COMPLETED
        if isinstance(self.solver, Neighbours):
            return self.solver.mean(problem, executor=self.executor, plan=plan, done=done, search=search)
        if isinstance(self.solver, LinearMean):
            return self.solver.mean(problem, executor=self.executor, plan=plan, done=done)
        if self.solver.many_fields:
            return self._last_mean(problem, plan, done)
        alone = (replace(problem, residuals=np.ascontiguousarray(column[:, None])) for column in columns.T)
        means, ends = zip(*(self._last_mean(one, plan, no_op) for one in alone), strict=True)
        return np.concatenate(means, axis=1), Status.worst(ends)

    def _last_mean(self, problem: Problem, plan: Plan, done: Callable[[int], None]) -> tuple[Array, Status]:
        mean, ends = np.zeros((problem.q, problem.residuals.shape[1])), dict[int, Status]()
        for state in self.solver.states(problem, executor=self.executor, plan=plan):
            mean[state.columns] = state.mean
            ends[state.columns.start or 0] = state.status  # of each part of the targets, the last one
            done(state.iteration)
        return mean, Status.worst(ends.values())
