"""A noise that is too small to be found, which is no fault of a fit."""

import numpy as np

from cagp_dist.likelihood.fit_result import FitResult
from cagp_dist.prior import Prior

NEGLIGIBLE = 1e-3  # A noise variance that is surely below this part of the field's need not be known better
SURELY = 3.0  # Standard errors that make it sure

# Standard errors of a logarithm beyond which a number is not determined, and known by its order at best
LOOSE, VAGUE = 3.0, 1.0

ARRIVED = 0.1  # Standard errors that a search may have left to go


def noise_is_negligible(result: FitResult, prior: Prior) -> bool:
    """Whether all that a fit did not determine is a noise variance so small that it makes no difference.

    A search that looks in vain for the noise of a fine grid, which has none, may end unconverged; the other
    numbers are then within a tenth of a standard error.
    """
    noise = prior.noise_number
    variance = float(sum(part.variance for part in prior.kernel.parts))
    error = result.standard_errors.noise_variance
    largest = noise + (SURELY * error if np.isfinite(error) else SURELY * noise)
    if result.at_bound:
        return result.at_bound == ("noise_variance",) and largest <= NEGLIGIBLE * variance
    errors = np.sqrt(np.diag(result.log_covariance))
    if np.isfinite(errors[:-1]).any():  # numbers that are held have no error
        errors[:-1] = np.nan_to_num(errors[:-1], nan=0.0)
    errors = np.nan_to_num(errors, nan=np.inf)
    others = float(errors[:-1].max())
    known = {
        "flat": others <= LOOSE,
        "not-converged": result.log_likelihood is not None
        and errors[-1] >= VAGUE
        and result.gradient_norm * others <= ARRIVED,
    }
    return bool(known.get(result.status.value, False) and largest <= NEGLIGIBLE * variance)
