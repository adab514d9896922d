"""How many tasks, bytes and seconds a solve takes: decided from integers before any work.

Seconds are estimates from measured constants (one thread, see the benchmark); bytes are upper bounds of
what the solve itself allocates, beside the interpreter and the caller's arrays.
"""

from cagp_dist.budget.demand import Demand, GridSize
from cagp_dist.budget.plan import Plan

__all__ = ["Demand", "GridSize", "Plan"]
