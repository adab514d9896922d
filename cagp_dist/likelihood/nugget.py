"""What observations differ from the field by beside their known noise: fitted, or found to be nothing."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from cagp_dist.likelihood.fit_result import FitResult

if TYPE_CHECKING:
    from cagp_dist.likelihood.bounds import Given

NOISE = "noise_variance"


def fit_beside_known_noise(
    search: "Callable[..., FitResult]", *, known: float, most: float, others: "Given | None" = None
) -> FitResult:
    """Fit a noise variance of at least the known one; where no more than that is found, it is held there."""
    bounds = dict(others or {})
    result = search({**bounds, NOISE: (known, most)})
    if NOISE in result.at_bound and result.prior.noise_number < 0.5 * (known + most):
        kernel = tuple(part.family for part in result.prior.kernel.parts)  # it may have been chosen
        return replace(search({**bounds, NOISE: (known, known)}, kernel=kernel), choice=result.choice)
    return result
