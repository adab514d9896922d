"""From what was observed to a problem for the solvers, and from their states to a posterior."""
