"""From observations to a result: what `krige` and jobs have in common, as frozen values and pure functions.

::

    Task --fit--> FittedModel --fit_folds--> Priors --solve--> Solution
         --out_of_sample, learn--> Distributions --score--> Result

- `solve_task`: all steps after the fit, for a call or a job. `task`, `model_settings`, `steps`: what is
  asked, what comes of it, each step.
- `observations`, `grid_places`, `map_points`, `map_cells`, `split`: places, values, gaps and noise; the grid
  that points are most of; where a map is wanted; cells that fill a region; what is held out.
- `fitting`, `fitted_model`, `map_mean`, `integration`: sites and fits of parameters; the prior; its mean;
  distributions whose parameters are integrated over. `maps_at_times`, `gain_in_time`: all times together;
  `labelled_fit`, `field_fit`: several variables and shared errors, ellipses and depths.
- `field_solves`, `solve_plans`: the solve of all fields; the choice of its solver, and plans.
- `map_solves`, `map_samples`: from observations and prior to that solve, and draws.
- `carried`: a field on a grid that goes on from its state before.
- `left_out`, `recalibration`, `cross_validation`: errors at places that were left out, and what they correct.
- `background`: a first guess and its error. `series_maps`: exact maps of the times of whole grids. `labels`,
  `likely_numbers`: what labels mean; numbers of several variables by their probability.
- `transform_choice`, `in_units`, `censoring`, `outliers`, `robust_fit`, `checking`, `suggestions`,
  `values_plans`: values that are not normal, below limits or wrong. `variogram`: what a model says of pairs.
- `resources`, `narration`, `defaults`: workers and memory; what is said meanwhile; numbers that decide.

Nothing here knows of job files, tables, xarray or published runs: `cagp_dist.kriging` and `cagp_dist.service`
bring the observations. What these need of solvers, likelihoods and posteriors they have from here.
"""

from cagp_dist.likelihood.ellipses import AnisotropyLike as AnisotropyLike
from cagp_dist.likelihood.ellipses import check_anisotropy as check_anisotropy
from cagp_dist.likelihood.exact.integrated import MOST_FLAT as MOST_FLAT
from cagp_dist.likelihood.exact.integrated import Held as Held
from cagp_dist.likelihood.exact.integrated import Hyperparameters as Hyperparameters
from cagp_dist.likelihood.exact.integrated import Integrated as Integrated
from cagp_dist.likelihood.exact.integrated import SharedFields as SharedFields
from cagp_dist.likelihood.exact.integrated import integrate as integrate
from cagp_dist.likelihood.exact.integrated import reason as reason
from cagp_dist.likelihood.exact.integrated import way_of as way_of
from cagp_dist.likelihood.exact.integrated import why_not as why_not
from cagp_dist.likelihood.fit_result import FitProgress as FitProgress
from cagp_dist.likelihood.fit_result import FitResult as FitResult
from cagp_dist.likelihood.fit_result import each as each
from cagp_dist.likelihood.numbering import NAMES as NAMES
from cagp_dist.likelihood.numbering import Model as Model
from cagp_dist.likelihood.numbering import Numbering as Numbering
from cagp_dist.pipeline.grid_places import GridPlaces as GridPlaces
from cagp_dist.pipeline.observations import Observations as Observations
from cagp_dist.pipeline.resources import Resources as Resources
from cagp_dist.pipeline.split import Split as Split
from cagp_dist.posterior.coefficients import check_estimable as check_estimable
from cagp_dist.posterior.kept_solves import bytes_of_weights as bytes_of_weights
from cagp_dist.posterior.patterns import fields_by_pattern as fields_by_pattern
from cagp_dist.posterior.result import Progress as Progress
from cagp_dist.solvers import BlockGaussSeidel as BlockGaussSeidel
from cagp_dist.solvers import Cholesky as Cholesky
from cagp_dist.solvers import Neighbours as Neighbours
from cagp_dist.solvers import Rings as Rings
from cagp_dist.solvers import Solver as Solver
from cagp_dist.solvers import Status as Status
from cagp_dist.solvers.engine.affine import Affine as Affine
from cagp_dist.solvers.interface import LinearMean as LinearMean
from cagp_dist.solvers.registry import SOLVERS as SOLVERS
from cagp_dist.solvers.registry import solver_name as solver_name
from cagp_dist.solvers.solver_choice import chosen_solver as chosen_solver
