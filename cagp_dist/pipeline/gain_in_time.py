"""Whether fields that are mapped one by one would be mapped better with those around them in time."""

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.kernels import Matern12
from cagp_dist.likelihood.kernel_choice import MARGIN
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.map_mean import mean_of, residuals_about
from cagp_dist.pipeline.observations import Observations, hours_since
from cagp_dist.text import digits_text

# Times that follow each other, and places, of the values that decide: some milliseconds
TIMES, PLACES = 8, 50
ONE_NUMBER = 1.0  # log-likelihood that one more fitted number is worth
STEPS = (1.0, 3.0, 10.0, 30.0)  # Lengthscales in time that are tried, in steps from one time to the next


def gain_of_other_times(observed: Observations, learned: FittedModel) -> str:
    """Compare some fields as draws that are independent with ones that go together, all else the same.

    The kernel of space is multiplied with Matern 1/2 in time. Nothing is said where that is not worth it.
    """
    from scipy.linalg import solve_triangular

    dates = observed.dates()
    if dates is None or observed.in_time or np.unique(dates).size < 2:
        return ""
    order = np.argsort(dates, kind="stable")
    first = max(0, (order.size - TIMES) // 2)
    fields = order[first : first + TIMES]
    places = np.argsort(-observed.present[fields].sum(axis=0), kind="stable")[:PLACES]
    rows, columns = np.nonzero(observed.present[np.ix_(fields, places)])
    when, where = fields[rows], places[columns]
    hours = hours_since(dates[when], dates.min())
    if np.unique(hours).size < 2:
        return ""
    residuals = np.concatenate(
        [_residuals(observed, learned, field, where[when == field]) for field in np.unique(when)]
    )
    back = np.argsort(when, kind="stable")
    hours, where = hours[back], where[back]
    X, noise = observed.X[where], learned.noise_variance
    in_space, noise = learned.kernel(X, X), noise if noise.ndim == 0 else noise[where]
    step = float(np.median(np.diff(np.unique(hours))))

    def log_likelihood(in_time: Array) -> float:
        """But for a constant."""
        factor = np.linalg.cholesky(in_space * in_time + noise * np.eye(hours.size))
        white = solve_triangular(factor, residuals, lower=True)
        return float(-0.5 * white @ white - np.log(factor.diagonal()).sum())

    apart = log_likelihood((hours[:, None] == hours).astype(np.float64))
    tried = {
        steps * step: log_likelihood(Matern12(steps * step)(hours[:, None], hours[:, None])) - apart
        for steps in STEPS
    }
    best = max(tried, key=lambda length: tried[length])
    if tried[best] <= MARGIN + ONE_NUMBER:
        return ""
    return (
        f"Each map uses only the observations of its own time. The log-likelihood of {hours.size} values is "
        f"higher by {tried[best]:.0f} if values at other times are used too, with a correlation that "
        f"fades over about {digits_text(best, 2)} hours; "
        'more than about 10 is strong evidence. at="observed" makes the maps this way.'
    )


def _residuals(observed: Observations, learned: FittedModel, field: int, places: Indices) -> Array:
    """Values (n,) of a field at places without their mean."""
    mean = mean_of(learned.mean, observed, places, np.array([field]))
    found = residuals_about(mean, observed.X[places], observed.values[field, places][None])
    return found.ravel()
