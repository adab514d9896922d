"""The likelihood as it is, in closed form.

- By what the points are: `dense_likelihood` (any), `ring_likelihood` (whole grids),
  `gappy_ring_likelihood` (grids with missing points).
- What they share: `likelihood_evaluation` (all numbers but one), `profile_likelihood` (that one put in),
  `restricted` (means with estimated coefficients).
- Numbers integrated over instead of fitted: `integrated`, under the assumptions of `hyperprior`.
"""
