"""Lower bounds of the likelihood, and what is learnt by climbing them (math 11).

- The climb: `optimise`, of an `objective`, by L-BFGS-B or `adam`.
- Block-sparse actions: `elbo` from the tiles of `projected_data` and `action_tiles`; `bound_fit` fits to it.
- Inducing points: `sgpr`, from `inducing` and `inducing_tiles`.
"""
