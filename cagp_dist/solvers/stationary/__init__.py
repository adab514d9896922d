"""Stationary and semi-iterative methods: each is a class of settings that names its stages.

- Sweeps: `gauss_seidel`, `jacobi`, `relaxation` (SOR, SSOR); `ordered` lets sweeps visit blocks in any order.
- Polynomials in G: `richardson`, `chebyshev`, with bounds from `spectrum`; `preconditioned` and
  `preconditioners` (`low_rank`, Vecchia's factor) change the matrix that they see.
- Sweeps with a coarse space: `two_level`, with the spaces of `coarse` and `ring_coarse`.

To add one, write a class like `relaxation.SOR` and a line in `cagp_dist.solvers.registry`.
"""
