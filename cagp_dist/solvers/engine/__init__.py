"""Affine solvers: one loop for every method whose weights do not look at the values.

`adjoint` is Algorithm 2 of [Hegde et al. 2025]; it is given stages (`stages`) and a system they act on
(`system`), and asks when to stop (`stopping_rules`).

- What is a system: `tiles` (points, with `panel_layout`, `tile_tasks`, `projected_tiles`,
  `recurrence_tiles`), `ring_system` (whole grids, with `ring_stages`, `ring_tasks`).
- What plans and runs the loop for a solver: `affine`; several solvers one after the other: `hybrid`.
- What goes beside the loop: `stopping` (shares and bounds of variances), `recorder` (with
  `solve_keys`, `kept_panels`), `kept_weights`.
- Stages whose belief is conditioned on actions: `conditioned_stages`.

A new stationary method needs nothing here: see `cagp_dist.solvers.stationary`.
"""
