"""Projections: the data are seen through actions ``S' y`` (IterGP, math 4 and 11).

- The loop: `projection` takes blocks of actions from a policy (`policies`, `mixed`).
- Actions that follow the residual: `action_solvers` (conjugate gradients, random actions).
- Actions that are known in advance: `known_actions` and `batch_projection` solve; `eigenvectors`,
  `krylov_actions`, `pseudo_inputs`, `subsets` and `sparse_actions` make them (with `block_sparse`,
  `block_products`, `orthonormal`).

To add one, write a class like `subsets.UnitVectors` and a line in `cagp_dist.solvers.registry`.
"""
