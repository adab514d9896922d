"""What error bars of a solver do on fields of its own prior.

`laboratory` is the front door; fields come from `field_draws`, errors from `beliefs`, the words from
`simulated_verdict`. `strong` compares a whole covariance with that of errors that are known exactly.
"""
