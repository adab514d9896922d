"""From observations to a map: what `krige` and jobs have in common, as frozen values and pure functions.

::

    Observations --fit_model--> FittedModel --plan_solves, predict_fields--> Prediction --> recalibrate_map

- `observations`: places, values with gaps, noise; unit vectors and patterns of gaps. `grid_places`: the
  latitude-longitude grid that points are most of. `map_points`: where a map is wanted.
- `split`: which places are observed, and which are held out.
- `fitting`: which places and times decide kernel and noise, and the fit of these. `fitted_model`: all that
  is known or fitted of a prior; `map_mean`: its mean. `integration`: numbers integrated over.
- `map_solves`: a planned solve for each pattern of gaps, and what they predict. `map_samples`: draws.
- `cross_validation`: each place predicted from other folds. `map_recalibration`: errors correct error bars.
- `resources`: an executor and its memory. `narration`: what is said meanwhile. `defaults`: the numbers that
  decide where nobody says, with reasons.

Nothing here knows of job files, tables, xarray or published runs. `cagp_dist.kriging` and
`cagp_dist.service` bring the observations, and give what comes out the form that their users asked for. What
they need of solvers, likelihoods and posteriors they have from here.
"""

from cagp_dist.likelihood.exact.integrated import Hyperparameters
from cagp_dist.likelihood.fit_result import FitResult
from cagp_dist.mapping.grid_places import GridPlaces
from cagp_dist.mapping.observations import Observations
from cagp_dist.mapping.resources import Resources
from cagp_dist.mapping.split import Split
from cagp_dist.posterior.result import Progress
from cagp_dist.solvers import Neighbours, Solver, Status

__all__ = [
    "FitResult",
    "GridPlaces",
    "Hyperparameters",
    "Neighbours",
    "Observations",
    "Progress",
    "Resources",
    "Solver",
    "Split",
    "Status",
]
