"""Which kernel data ask for: Matern 1/2, 3/2 and 5/2 are fitted, and tried on each value by all others.

The likelihood and the log score weigh close pairs most, and what is not Gaussian there misleads them. The
CRPS is not misled so: it lost least among the rules that `pipelines.experiments.kernel_rules` compares, on 13
kinds of simulated fields and nine public tables. A thousand points in cells of neighbours decide. Or the
smoothness is a number like the others, that is fitted.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from cagp_dist.errors import NumericalError
from cagp_dist.factors import AnisotropicOf, AxiallySymmetricOf
from cagp_dist.kernels import (
    AUTO,
    FITTED,
    ROUGHEST,
    SMOOTHEST,
    Family,
    Matern12,
    Matern32,
    Matern52,
    MaternOf,
)
from cagp_dist.likelihood.fit_result import FitResult, KernelChoice
from cagp_dist.likelihood.negligible import noise_is_negligible
from cagp_dist.likelihood.starts import FoundStart, Start

# The kernels to choose from; the first is kept unless another predicts better by more than rounding
CANDIDATES: tuple[Family, ...] = (Matern32, Matern12, Matern52)

MARGIN = 2.0  # Log-likelihood by which a kernel with more structure must be better: odds of seven to one
SAME = 1e-6  # Relative difference of errors up to which they are equal

# Points on which kernels are compared, of more by Vecchia's likelihood: two seconds for all of them
MOST_COMPARED = 1_000

OTHER_STARTS = 2  # Starts of all kernels but the first: from where that one ended, and one more

LEAST_PROBABLE = 0.01  # Probability beside that of the best from which on a kernel is averaged over

# What a search for the smoothness begins with, and tells beside the best
FIRST_SMOOTHNESSES = (1.5, 0.5, 2.5)

RESOLUTION = 0.02  # Of the logarithm of the smoothness; its standard error is larger

# How many fits a choice takes, with those that begin near their ends counted in part
KERNELS_COMPARED = {AUTO: len(CANDIDATES), FITTED: 6}


def choose_kernel(
    search: Callable[..., FitResult], *, final: bool, crps: Callable[[FitResult], float]
) -> FitResult:
    """Fit every candidate and give the fit of the best, with what there was to choose from.

    ``crps`` is the mean CRPS of each value by all others, NaN where they do not predict it: then the
    likeliest is taken.
    """
    first = search(CANDIDATES[0])
    found = [first]
    missing: list[str] = []
    for family in CANDIDATES[1:]:
        try:
            found.append(search(family, start=start_of(first), starts=OTHER_STARTS))
        except NumericalError:  # its matrices are too smooth for this noise
            missing.append(family.__name__)
    all_found = found
    if final and any(map(usable, found)):
        found = [result for result in found if usable(result)]
    errors = {_name(result): crps(result) for result in found}
    if any(map(math.isnan, errors.values())):
        likeliest = max(found, key=likelihood_of)
        return replace(likeliest, choice=_choice(likeliest, all_found, missing))
    least = min(errors.values())
    kept = next(result for result in found if errors[_name(result)] <= (1.0 + SAME) * least)
    return replace(kept, choice=replace(_choice(kept, all_found, missing), crps=errors))


def fit_smoothness(
    search: Callable[..., FitResult], *, final: bool, crps: Callable[[FitResult], float]
) -> FitResult:
    """Fit Matern kernels of several smoothnesses, and give the likeliest; arguments as of `choose_kernel`."""
    from scipy.optimize import minimize_scalar

    found: dict[float, FitResult | None] = {}

    def loss(logarithm: float) -> float:
        """Minus the log-likelihood; where that leaves floating point, worse than all others."""
        smoothness = min(max(round(math.exp(logarithm), 3), ROUGHEST), SMOOTHEST)
        known = [result for result in found.values() if result is not None]
        if smoothness not in found:
            near = {"start": start_of(max(known, key=likelihood_of)), "starts": 1} if known else {}
            try:
                found[smoothness] = search(MaternOf(smoothness), **near)
            except NumericalError:
                if not known:
                    raise
                found[smoothness] = None
        result = found[smoothness]
        if result is None:
            return 2.0 * max(-likelihood_of(one) for one in known) + 1e3
        return -likelihood_of(result)

    for smoothness in FIRST_SMOOTHNESSES:
        loss(math.log(smoothness))
    ends = (math.log(ROUGHEST), math.log(SMOOTHEST))
    minimize_scalar(loss, bounds=ends, method="bounded", options={"xatol": RESOLUTION})
    all_found = [result for result in found.values() if result is not None]
    candidates = [result for result in all_found if usable(result)] if final else []
    best = max(candidates or all_found, key=likelihood_of)
    told = [result for result in all_found[: len(FIRST_SMOOTHNESSES)] if result is not best]
    return replace(best, choice=_choice(best, [best, *told], []))


# How a kernel is chosen, by what stands in its place
CHOICES: dict[str, Callable[..., FitResult]] = {AUTO: choose_kernel, FITTED: fit_smoothness}


def kernel_probabilities(result: FitResult, values: int) -> dict[Family, float]:
    """Give the kernel of a fit, and others that it was chosen from where they are nearly as probable.

    Their probability is in proportion to ``CRPS^-n`` of n values by all others, as the likelihood of n errors
    is to ``s^-n`` with their scale s at its best.
    """
    own = result.prior.kernel.parts[0].family
    own = own.kernel if isinstance(own, AnisotropicOf | AxiallySymmetricOf) else own
    crps = {} if result.choice is None else result.choice.crps
    families = (own, *(family for family in CANDIDATES if family is not own and family.__name__ in crps))
    least = crps.get(own.__name__, 1.0)
    found = {family: (least / crps.get(family.__name__, least)) ** values for family in families}
    return {family: value for family, value in found.items() if value > LEAST_PROBABLE}


def start_of(result: FitResult) -> Start:
    """Give the numbers of a fit as a start of another."""
    parts = result.prior.kernel.parts
    one = len(parts) == 1
    own = [part.lengthscale if len(part.numbers) == 1 else part.numbers for part in parts]
    numbers: Start = {
        "lengthscale": own[0] if one else own,
        "variance": parts[0].variance if one else [part.variance for part in parts],
        "noise_variance": result.prior.noise_number,
    }
    return FoundStart(numbers)


def usable(result: FitResult) -> bool:
    """Whether a fit ended well, but for a noise too small to be found, beside a known one for example."""
    at_noise = result.at_bound == ("noise_variance",)
    return result.status.ok or at_noise or noise_is_negligible(result, result.prior)


def likelihood_of(result: FitResult) -> float:
    """Log-likelihood of a fit, which all that are compared have."""
    assert result.log_likelihood is not None  # of all that are compared
    return result.log_likelihood


def _choice(kept: FitResult, found: Sequence[FitResult], missing: Sequence[str]) -> KernelChoice:
    return KernelChoice(
        kernel=_name(kept),
        log_likelihoods={_name(result): likelihood_of(result) for result in found},
        points=kept.points,
        missing=tuple(missing),
    )


def _name(result: FitResult) -> str:
    return result.prior.kernel.parts[0].family.__name__
