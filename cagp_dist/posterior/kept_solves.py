"""Solves at the same points whose weights are kept: those of the targets, and of coefficients of the mean."""

from collections.abc import Sequence
from dataclasses import replace

from cagp_dist.budget import Plan
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.gram.targets import target_points
from cagp_dist.posterior.coefficients import Coefficients, coefficients_of
from cagp_dist.prior import Prior
from cagp_dist.runtime import Executor
from cagp_dist.runtime.memo import Memo, MemoMetadata, MemoReader, MemoWriter
from cagp_dist.solvers.engine.kept_weights import SPARSE_ENTRY_BYTES, WritesWeights
from cagp_dist.solvers.engine.solve_keys import weights_key
from cagp_dist.solvers.interface import Problem, Solver
from cagp_dist.solvers.local.neighbours import Neighbours

ESTIMATE = ("basis", "at_targets", "triangle", "weights", "image", "seen")  # Arrays of the estimate of a mean


def keeps_weights(solver: Solver, *, full_covariance: bool, lanczos_steps: int) -> bool:
    """Whether the weights of a solver can be kept: sparse ones, or those of one that does all iterations."""
    share = getattr(solver, "computational_share", None)
    plain = isinstance(solver, WritesWeights) and share is None and solver.iterations > 0
    return plain and not full_covariance and lanczos_steps == 0


def bytes_of_weights(solver: Solver, plan: Plan) -> int:
    """Bytes of the weights of all solves of a plan, about; 0 where they are not kept."""
    if plan.rings_per_block or not keeps_weights(solver, full_covariance=False, lanczos_steps=0):
        return 0
    if isinstance(solver, Neighbours):
        return plan.solves * plan.q * SPARSE_ENTRY_BYTES * solver.weights_of_target(plan.n)
    return DOUBLE * plan.solves * plan.n * plan.q


def found_weights(
    store: Memo | None, prior: Prior, problem: Problem, solver: Solver, plan: Plan
) -> MemoReader | None:
    """Find the weights of a problem, if they are kept."""
    if store is None:  # to make a key takes a look at all values
        return None
    key = _key_of(prior, problem, solver, plan)
    return None if key is None else store.find(key)


def made_weights(
    store: Memo | None,
    prior: Prior,
    problem: Problem,
    solver: Solver,
    *,
    plan: Plan,
    estimate: Plan | None,
    executor: Executor,
) -> MemoReader | None:
    """Sweep once without data and keep what comes of it, where that can be; costs as the solve does."""
    key = None if store is None else _key_of(prior, problem, solver, plan)
    if store is None or key is None:
        return None
    assert isinstance(solver, WritesWeights)

    def write(writer: MemoWriter) -> MemoMetadata:
        about: dict[str, object] = {"estimate": prior.estimates_mean}
        if prior.estimates_mean:
            found, _ = coefficients_of(prior, problem, solver, plan=estimate, executor=executor)
            found = found.seen_from(problem, executor=executor)
            for name in ESTIMATE:
                writer.write(f"estimate/{name}", getattr(found, name))
            about["exact_estimate"] = found.exact
        return {**about, **solver.write_weights(problem, writer, executor=executor, plan=plan)}

    return store.get_or(key, write)


def plan_of_products(plan: Plan, weights: Sequence[MemoReader]) -> Plan:
    """Plan what is left to do where all weights are kept."""
    entries = sum(kept.metadata.get("entries", plan.n * plan.q) for kept in weights)
    flops = 2 * entries * plan.fields
    return replace(plan, tasks=0, gram_entries=0, flops=flops, chain_flops=0)


def _key_of(prior: Prior, problem: Problem, solver: Solver, plan: Plan) -> str | None:
    """Key of the weights of a problem; None where it is solved by whole rings, or has no targets.

    And where neighbours are not all that has weights.
    """
    if plan.rings_per_block or problem.q == 0:
        return None
    if isinstance(solver, Neighbours) and solver.sharing(problem) is not None:
        return None
    points = (problem.gram.X, target_points(problem.targets))
    basis = [prior.basis_at(X) for X in points] if prior.estimates_mean else []
    return weights_key(problem, solver, plan, basis)


def kept_coefficients(kept: MemoReader) -> Coefficients | None:
    """How coefficients of the mean follow from the data, where they are estimated."""
    if not kept.metadata["estimate"]:
        return None
    arrays = {name: kept.read(f"estimate/{name}") for name in ESTIMATE}
    return Coefficients(**arrays, exact=kept.metadata["exact_estimate"])
