"""Actions of every kind, in numbers that suit small problems."""

import dataclasses

import cagp_dist as cagp
from cagp_dist.solvers import Solver
from cagp_dist.solvers.actions.known_actions import KnownActions


def policies(actions: int, *, rank: int, block: int, first: tuple[int, int]) -> dict[str, Solver]:
    """Solvers with so many actions, by name.

    ``rank`` and ``block`` are of preconditioners, ``first`` how many actions of two mixtures are of their
    first kind.
    """
    points, inputs = first
    return {
        "conjugate gradients": cagp.ConjugateGradient(actions),
        "random": cagp.RandomActions(actions, seed=3),
        "pivoted points": cagp.UnitVectors(actions),
        "random points": cagp.UnitVectors(actions, order="random", seed=2),
        "first points": cagp.UnitVectors(actions, order="given"),
        "pseudo-inputs": cagp.PseudoInputs(actions),
        "random pseudo-inputs": cagp.PseudoInputs(actions, placement="random", seed=5),
        "block-sparse": cagp.SparseActions(actions, seed=4),
        "block-sparse, as given": cagp.SparseActions(actions, "given"),
        "eigenvectors": cagp.Eigenvectors(actions),
        "Lanczos vectors": cagp.KrylovActions(actions, seed=1),
        "pivoted Cholesky": cagp.ConjugateGradient(actions, "pivoted-cholesky", rank),
        "Nystrom": cagp.ConjugateGradient(actions, "nystrom", rank),
        "symmetric sweeps": cagp.ConjugateGradient(actions, "block-gauss-seidel", block),
        "points, then gradients": cagp.MixedActions(
            [cagp.UnitVectors(points), cagp.ConjugateGradient(actions - points)]
        ),
        "two kinds": cagp.MixedActions(
            [cagp.PseudoInputs(inputs), cagp.RandomActions(actions - inputs, seed=1)]
        ),
    }


def known(found: dict[str, Solver]) -> dict[str, Solver]:
    """Those that do not look at the data."""
    return {
        name: solver
        for name, solver in found.items()
        if isinstance(solver, KnownActions | cagp.SparseActions)
    }


def with_count(solver: Solver, actions: int) -> Solver:
    """The same solver with so many actions."""
    name = "actions" if isinstance(solver, cagp.SparseActions) else "iterations"
    return dataclasses.replace(solver, **{name: actions})
