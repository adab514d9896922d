"""From observations to a map: what `krige` and jobs have in common, as frozen values and pure functions.

- `Observations` (`observations`): places, values with gaps, noise; unit vectors and patterns of gaps.
- `grid_places`: the latitude-longitude grid that points are most of.
- `fitting`: which places and times decide kernel and noise, and the fit.
- `solver_order`: the order of the places in a solve. `defaults`: the numbers that decide, with reasons.

Nothing here knows of job files, tables, xarray or published runs. `cagp_dist.kriging` and
`cagp_dist.service` bring the observations, and give what comes out the form that their users asked for.
"""

from cagp_dist.mapping.grid_places import GridPlaces
from cagp_dist.mapping.observations import Observations

__all__ = ["GridPlaces", "Observations"]
