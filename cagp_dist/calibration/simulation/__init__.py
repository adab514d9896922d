"""What error bars of a solver do on fields of its own prior.

`laboratory` is the front door; fields come from `field_draws`, errors from `beliefs`, the words from
`simulated_verdict`. `simulation_based` and `strong` are the two tests of the literature.
"""
