"""What transforms, draws of censored values, wider noise and checks take: in integers, before any work."""

from dataclasses import replace

from cagp_dist.budget.demand import DOUBLE
from cagp_dist.budget.plan import ENTRY_FLOPS, Work
from cagp_dist.gram.left_out_groups import ALONE, MEMBERS, OWN
from cagp_dist.kernels import chosen_by
from cagp_dist.likelihood.fit_work import FitSize, fit_work
from cagp_dist.likelihood.kernel_choice import KERNELS_COMPARED
from cagp_dist.pipeline.censoring import DRAWS, MOST_DRAWN_DENSE, NEIGHBOURS, SWEEPS
from cagp_dist.pipeline.checking import FEW, MANY, MANY_MORE
from cagp_dist.pipeline.defaults import QUANTILE_LEVELS
from cagp_dist.pipeline.field_solves import components_of
from cagp_dist.pipeline.fitting import method_of
from cagp_dist.pipeline.integration import NUMBER_DRAWS, rounds_of_numbers
from cagp_dist.pipeline.transform_choice import MOST_FIELDS, MOST_PLACES
from cagp_dist.predictive.transforms import NODES

FITS = {"none": 1, "log": 1, "sqrt": 1, "box-cox": 2, "asinh": 2}  # of each transform that is compared
STEPS = 6  # of the search of a quantile of draws, about

# Fits without what looks wrong, one where nothing does and two or three else, and passes through all values,
# of a usual check; each value that is flagged among few has one more
ROUNDS_OF_CHECK, PASSES, FLAGGED = 1.5, 4, 0.02

# Lengthscales of the grids on which numbers are looked for, about, and flops of a decomposition over n^3
SPECTRA, EIGEN_FLOPS = 60, 9

ROUNDS_OF_WEIGHTS = 4  # fits with weights of values that look wrong, where there are any


def work_of_transforms(
    names: tuple[str, ...], *, places: int, fields: int, parts: int, deviating: bool, workers: int
) -> tuple[int, Work]:
    """Count fits by which transforms are compared, and what they take; the first is of normal scores."""
    points = min(places, MOST_PLACES)
    size = FitSize(method_of(points), points, parts, deviating=deviating, fields=min(fields, MOST_FIELDS))
    fits = 1 + sum(FITS[name] for name in names)
    return fits, fits * fit_work(size, workers=workers)


def work_of_draws(n: int, hidden: int, *, fields: int = 1, draws: int = DRAWS) -> Work:
    """Count what it takes to draw ``hidden`` of n values of each field so many times.

    By rows of the inverse of the Gram matrix, or by neighbours.
    """
    if n <= MOST_DRAWN_DENSE:
        once = n * n * (ENTRY_FLOPS + n // 3 + 2 * hidden)
        each, sweeps = 2 * hidden, SWEEPS
        held = 2 * n * n + 3 * n * hidden + 2 * n * draws * fields
    else:
        m = NEIGHBOURS + 1
        once = hidden * m * m * (ENTRY_FLOPS + 2 * m // 3)
        each, sweeps = 2 * NEIGHBOURS, SWEEPS // 2
        held = hidden * m * m + 3 * n * draws * fields
    flops = fields * (once + sweeps * hidden * draws * (each + 2 * ENTRY_FLOPS))
    return Work(flops, fields, DOUBLE * held)


def work_of_numbers(n: int, hidden: int, targets: int, *, fields: int = 1, kernel: str = "") -> Work:
    """Count what it takes to draw numbers in turn with ``hidden`` of n values, and to predict by each."""
    rounds, kernels = rounds_of_numbers(hidden / n), KERNELS_COMPARED.get(chosen_by(kernel) or "", 1)
    draws = rounds * NUMBER_DRAWS * work_of_draws(n, hidden, fields=fields, draws=1)
    spectra = fields * kernels * SPECTRA * n * n * (ENTRY_FLOPS + EIGEN_FLOPS * n)
    solves = NUMBER_DRAWS * n * (n * n // 3 + targets * (ENTRY_FLOPS + n))
    held = NUMBER_DRAWS * hidden * hidden + n * targets + kernels * SPECTRA * n * n
    return draws + Work(spectra + solves, 0, DOUBLE * held)


def work_of_mixtures(targets: int, *, fields: int, draws: int = DRAWS, merged: bool = True) -> Work:
    """Count what quantiles and moments of mixtures take: of the field, and of observations."""
    components = components_of(draws) if merged else draws
    evaluations = components * 2 * len(QUANTILE_LEVELS) * STEPS + draws * NODES.size
    flops = 2 * fields * targets * evaluations * ENTRY_FLOPS // 2
    return Work(flops, 0, DOUBLE * fields * targets * (draws + 4 * len(QUANTILE_LEVELS)))


def work_of_check(
    places: int, *, fields: int, kernel: str, parts: int, deviating: bool, fitted: bool, workers: int
) -> Work:
    """Count fits without what looks wrong, and passes in which each value is predicted from the others."""
    found = Work(0, 0, 0)
    if fitted:
        first = min(places, FEW)
        few = FitSize(method_of(first), first, parts, deviating=deviating, fields=fields)
        once = fit_work(few, workers=workers)
        found += replace(once, flops=round(ROUNDS_OF_CHECK * once.flops))
        last = min(places, MANY if places < MANY_MORE else MANY_MORE)
        way = chosen_by(kernel)
        if way is not None or last > first:
            kernels = KERNELS_COMPARED.get(way or "", 1)
            many = few._replace(method=method_of(last), points=last, kernels=kernels)
            found += fit_work(many, workers=workers)
    group, groups, passes = min(places, OWN + MEMBERS), max(1, places // OWN), PASSES
    if places <= ALONE:
        group, groups, passes = places, 1, PASSES + round(FLAGGED * places)
    flops = fields * passes * groups * group**2 * (group + ENTRY_FLOPS * parts)
    return found + Work(flops, fields * passes * max(1, groups // 256), DOUBLE * (2 * group**2 * workers))
