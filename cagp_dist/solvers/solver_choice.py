"""The solver that is taken where nobody names one: exact where that is cheap, else neighbours."""

from cagp_dist.budget import Demand
from cagp_dist.errors import BudgetError
from cagp_dist.solvers.exact.exact_solvers import Cholesky, Rings
from cagp_dist.solvers.interface import Solver
from cagp_dist.solvers.local.neighbours import Neighbours

MOST_DENSE = 5_000  # Observed points up to which a dense factor is the solver: a second or two, 0.4 GB
QUICK_SECONDS = 5.0  # An exact solve of a grid with gaps that takes no longer is preferred to neighbours
NEIGHBOURS = Neighbours("auto")

# Of the machine that a choice is made for where it must be the same on every machine
CHOICE_WORKERS, CHOICE_BYTES = 2, 8 * 2**30


def demand_of_choice(n: int, q: int, *, fields: int) -> Demand:
    """Demand of a solve on no machine in particular."""
    return Demand(
        n=n,
        q=q,
        fields=fields,
        full_covariance=False,
        workers=CHOICE_WORKERS,
        shares_memory=True,
        memory_limit_bytes=CHOICE_BYTES,
    )


def chosen_solver(demand: Demand, on_grid: Demand | None = None, *, solves: int = 1) -> Solver:
    """Choose a solver: on a complete grid rings; the quicker exact one where it is quick; else neighbours."""

    def planned(solver: Solver, asked: Demand) -> list[tuple[float, Solver]]:
        try:
            return [(solves * solver.plan(asked).seconds, solver)]
        except BudgetError:
            return []

    exact: list[tuple[float, Solver]] = []
    if on_grid is not None and on_grid.grid is not None:
        exact += planned(Rings(), on_grid)
        if exact and on_grid.grid.has_rings:
            return exact[0][1]
    if demand.n <= MOST_DENSE:
        exact += planned(Cholesky(), demand)
    if not exact:
        return NEIGHBOURS
    seconds, best = min(exact, key=lambda found: found[0])
    if demand.n <= MOST_DENSE or seconds <= QUICK_SECONDS:
        return best
    return min([(seconds, best), *planned(NEIGHBOURS, demand)], key=lambda found: found[0])[1]
