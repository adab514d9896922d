"""From observations to a map: what `krige` and jobs have in common, as functions of arrays.

- `fitting`: which points and times decide kernel and noise, and the fit.
- `solving`: the order of the points in a solve.

Nothing here knows of job files, tables, xarray or published runs. `cagp_dist.kriging` and
`cagp_dist.service` bring the arrays, and give what comes out the form that their users asked for.
"""
