"""How many tasks, bytes and flops a solve takes: decided from integers before any work.

Bytes are upper bounds of what the solve itself allocates, beside the interpreter and the caller's arrays.
How long the work takes depends on the machine, and nothing here says it.
"""

from cagp_dist.budget.demand import Demand, GridSize
from cagp_dist.budget.plan import Plan, Work

__all__ = ["Demand", "GridSize", "Plan", "Work"]
