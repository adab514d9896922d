"""The lower bound of the likelihood that block-sparse actions give, and the climb along it (math 11).

- The climb: `optimise`, of an `objective` within bounds; `course` says where it has been.
- Block-sparse actions: `elbo` from the tiles of `projected_data` and `action_tiles`; `bound_fit` fits to it.
"""
