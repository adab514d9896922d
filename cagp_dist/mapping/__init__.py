"""From observations to a map: what `krige` and jobs have in common, as frozen values and pure functions.

::

    Observations --fit_model--> FittedModel --plan_solves, predict_fields--> Prediction --> recalibrate_map

- `observations`: places, values with gaps, noise; unit vectors and patterns of gaps. `grid_places`: the
  latitude-longitude grid that points are most of. `map_points`: where a map is wanted.
- `split`: which places are observed, and which are held out.
- `fitting`: which places and times decide kernel and noise, and the fit of these. `fitted_model`: all that
  is known or fitted of a prior; `map_mean`: its mean. `integration`: numbers integrated over.
- `field_solves`: solves of all times at points of all kinds, as jobs have them; `solve_plans`: which solver,
  and plans of solves that are not done now.
- `map_solves`: a planned solve for each pattern of gaps, and what they predict. `map_samples`: draws.
- `cross_validation`: each place predicted from other folds. `map_recalibration`: errors correct error bars.
- `resources`: an executor and its memory. `narration`: what is said meanwhile. `defaults`: the numbers that
  decide where nobody says, with reasons.

Nothing here knows of job files, tables, xarray or published runs. `cagp_dist.kriging` and
`cagp_dist.service` bring the observations, and give what comes out the form that their users asked for. What
they need of solvers, likelihoods and posteriors they have from here.
"""

from cagp_dist.likelihood.exact.integrated import (
    MOST_FLAT,
    Held,
    Hyperparameters,
    Integrated,
    SharedFields,
    integrate,
    reason,
    way_of,
    why_not,
)
from cagp_dist.likelihood.fit_result import FitProgress, FitResult, each
from cagp_dist.likelihood.negligible import noise_is_negligible
from cagp_dist.likelihood.numbering import NAMES, Model, Numbering
from cagp_dist.mapping.grid_places import GridPlaces
from cagp_dist.mapping.observations import Observations
from cagp_dist.mapping.resources import Resources
from cagp_dist.mapping.split import Split
from cagp_dist.posterior.coefficients import check_estimable
from cagp_dist.posterior.patterns import fields_by_pattern
from cagp_dist.posterior.result import Progress
from cagp_dist.solvers import BlockGaussSeidel, Cholesky, Neighbours, Rings, Solver, Status
from cagp_dist.solvers.engine.affine import Affine
from cagp_dist.solvers.interface import LinearMean
from cagp_dist.solvers.registry import SOLVERS, solver_name

__all__ = [
    "MOST_FLAT",
    "NAMES",
    "SOLVERS",
    "Affine",
    "BlockGaussSeidel",
    "Cholesky",
    "FitProgress",
    "FitResult",
    "GridPlaces",
    "Held",
    "Hyperparameters",
    "Integrated",
    "LinearMean",
    "Model",
    "Neighbours",
    "Numbering",
    "Observations",
    "Progress",
    "Resources",
    "Rings",
    "SharedFields",
    "Solver",
    "Split",
    "Status",
    "check_estimable",
    "each",
    "fields_by_pattern",
    "integrate",
    "noise_is_negligible",
    "reason",
    "solver_name",
    "way_of",
    "why_not",
]
