"""Values of which it is known only that they are no larger than a bound, such as rain of zero (math 26).

Their ``z = t(y)`` is below the z of the bound. It is drawn there given all other values, many times, by its
full conditional distribution (Gibbs sampling; De Oliveira 2005). Each draw makes a whole field of values at
the same places, and all fields share one solve. What is predicted is the mixture of them.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import cast

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri, ndtri_exp

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.errors import CagpError, DataError
from cagp_dist.gram.dense import DenseGram
from cagp_dist.gram.neighbourhoods import nearest_points
from cagp_dist.kernels import point_columns
from cagp_dist.likelihood.fit_result import FitResult, FitStatus, Numbers, OwnNumbers, StandardErrors
from cagp_dist.pipeline.defaults import QUANTILE_LEVELS
from cagp_dist.pipeline.field_solves import DrawnFields, DriftCoefficients, Execution, Solution, SolveStep
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.observations import Observations
from cagp_dist.prior import Prior
from cagp_dist.solvers import Status
from cagp_dist.text import counted

DRAWS = 64  # of a map: the standard error of a probability is then a sixteenth at most

FIT_DRAWS, ROUNDS = 8, 3  # of a fit, which follows the draws and is followed by them

# Rounds through all censored values of a draw; from a near start twenty are enough where the noise is
# a hundredth of the variance of the field
SWEEPS = 50

# Observed places up to which full conditionals are of all others; beyond, of so many neighbours
MOST_DRAWN_DENSE, NEIGHBOURS = 2_000, 32

PLACES_AT_ONCE = 1_024

TARGETS_AT_ONCE = 4_096

FAR = -30.0  # Standard deviations of a bound below what is expected from where on logarithms are needed

# Standard deviation of what draws predict, in units of the error bar, up to which their mixture is normal
LITTLE = 0.1

CENSORED = 0x63656E  # names the stream of random numbers


BELOW_BOUNDS = "at or below their bounds, so that nothing says how far; expected a value above"


def check_seen(observed: Observations, otherwise: str = BELOW_BOUNDS) -> None:
    """Raise `DataError` where no value of a field is seen, and say what its values are."""
    seen = observed.present if observed.censored is None else observed.present & ~observed.censored
    if empty := int(np.count_nonzero(~seen.any(axis=1))):
        which = "all values are" if observed.fields == 1 else f"all values of {counted(empty, 'field')} are"
        raise DataError(f"{which} {otherwise}. Leave such fields out.", key="all-censored")


def drawn(observed: Observations, *models: FittedModel, draws: int, seed: int = 0) -> Observations:
    """Give observations in which censored values are drawn, so many times by each of K models.

    The fields, (T K draws, n), are those of one field side by side, and of these those of one model.
    """
    each, values = len(models) * draws, np.repeat(observed.values, len(models) * draws, axis=0)
    censored = np.zeros(observed.values.shape, bool) if observed.censored is None else observed.censored
    for field in range(observed.fields):
        places = np.flatnonzero(observed.present[field])
        hidden = censored[field, places]
        if not hidden.any():
            continue
        generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(CENSORED, field, draws)))
        priors = [model.prior(observed, places, np.array([field])) for model in models]
        z, X = observed.values[field, places], observed.X[places]
        way = _dense if places.size <= MOST_DRAWN_DENSE else _by_neighbours
        found = way(priors, X, z, np.flatnonzero(hidden), draws, generator)
        rows = slice(field * each, (field + 1) * each)
        values[rows, places[hidden]] = found.T
    times = np.repeat(observed.times, each)
    return replace(observed, values=values, times=times, limits=None, censored=None)


def fit_with_draws(observed: Observations, way: Callable[[Observations], FittedModel]) -> FittedModel:
    """Fit to draws of the censored values, draw them by that fit, and so on (stochastic EM).

    The first draws are by a fit to the other values alone: it finds the noise, where draws that are
    independent of each other would be noise, of which a few rounds take away little. They are independent
    where that fit finds no lengthscale: rounds that begin at a bound end there.
    """
    hidden = observed.censored
    assert hidden is not None
    filled = _independent(observed)
    with suppress(CagpError):  # the other values are too few, or all alike
        first = way(replace(observed, values=np.where(hidden, np.nan, observed.values), censored=None))
        if first.result is None or first.result.status is not FitStatus.AT_BOUND:
            filled = drawn(observed, first, draws=FIT_DRAWS, seed=ROUNDS)
    for number in range(ROUNDS):
        model = way(filled)
        if number < ROUNDS - 1:
            filled = drawn(observed, model, draws=FIT_DRAWS, seed=number)
    return replace(
        model,
        result=None if model.result is None else _of_one_draw(model.result),
        likely=(),
        fitted_to=f"{observed.there.size:,} observed places, {int(hidden.sum()):,} censored values drawn "
        f"{FIT_DRAWS} times",
        numbers="plugged in: values are censored",
    )


def _of_one_draw(result: FitResult) -> FitResult:
    """Give likelihood and standard errors of values that are there once, by those of `FIT_DRAWS` of each.

    What the draws leave open of the numbers is not in them.
    """
    factor, errors = float(np.sqrt(FIT_DRAWS)), result.standard_errors
    likelihood, choice = result.log_likelihood, result.choice
    if choice is not None:
        of_each = {name: value / FIT_DRAWS for name, value in choice.log_likelihoods.items()}
        choice = replace(choice, log_likelihoods=of_each)
    return replace(
        result,
        log_likelihood=None if likelihood is None else likelihood / FIT_DRAWS,
        gradient_norm=result.gradient_norm / FIT_DRAWS,
        choice=choice,
        log_covariance=result.log_covariance * FIT_DRAWS,
        standard_errors=StandardErrors(
            _times(factor, errors.lengthscale),
            cast("Numbers", _times(factor, errors.variance)),
            factor * errors.noise_variance,
        ),
    )


def _times(factor: float, numbers: OwnNumbers) -> OwnNumbers:
    """Multiply a number, or each of a tuple of them."""
    if isinstance(numbers, tuple):
        return cast("OwnNumbers", tuple(_times(factor, each) for each in numbers))
    return factor * numbers


def predict_with_draws(
    observed: Observations,
    model: FittedModel,
    solve: Callable[[Observations, FittedModel, Execution], Solution],
    execution: Execution,
) -> Solution:
    """Predict from draws of the censored values, each with its own numbers where these are drawn as well."""
    models = [own for _, own in model.likely] or [model]
    draws = DRAWS // len(models)
    filled, found = drawn(observed, *models, draws=draws), list[Solution]()
    for number, own in enumerate(models):
        rows = np.arange(filled.fields).reshape(observed.fields, len(models), draws)[:, number].ravel()
        part = execution
        if len(models) > 1:
            part = execution.part(number, len(models), "")
            part = part if number == 0 else replace(part, on_plan=lambda plan: None)  # the same
        found.append(solve(filled.of_fields(rows), own, part))
    return _mixed(found, models, model.nugget, draws)


def _mixed(found: Sequence[Solution], models: Sequence[FittedModel], nugget: float, draws: int) -> Solution:
    """Give what all draws of each field predict together, so many of each solve."""
    first = found[0]
    T = len(first.mean) // draws
    means, scale = (
        np.concatenate([values.reshape(T, draws, -1)[:, :count] for values in each], axis=1)
        for count, each in (
            (draws, [solution.mean for solution in found]),
            (1 if len(found) == 1 else draws, [solution.std for solution in found]),
        )
    )
    beside = np.repeat([own.nugget - nugget for own in models], scale.shape[1] // len(models))
    of_draws = DrawnFields(means, scale, np.repeat(beside[:, None], means.shape[2], axis=1))
    mean, std = of_draws.moments
    drift, own, fine = first.drift, first.computational_std, first.fine_mean
    if drift is not None:
        terms = [solution.drift for solution in found if solution.drift is not None]
        values, errors = (
            np.concatenate([each.reshape(len(drift.names), T, draws) for each in both], axis=2)
            for both in ([each.values for each in terms], [each.std for each in terms])
        )
        drift = DriftCoefficients(
            drift.names, values.mean(axis=2), np.sqrt((errors**2).mean(axis=2) + values.var(axis=2))
        )
    if fine is not None:
        each = [solution.fine_mean for solution in found if solution.fine_mean is not None]
        fine = np.mean([values.reshape(T, draws, -1).mean(axis=1) for values in each], axis=0)
    last = first.steps[-1]
    seconds = sum(solution.steps[-1].seconds for solution in found)
    said = f"{DRAWS} draws of censored values"
    return replace(
        first,
        steps=(SolveStep(last.iteration, mean, std, seconds),),
        status=Status.worst(solution.status for solution in found),
        quantiles=quantiles_of(of_draws),
        drift=drift,
        computational_std=None if own is None else own.reshape(T, draws, -1)[:, 0],
        fine_mean=fine,
        drawn=of_draws,
        solvers=(*first.solvers, said if len(found) == 1 else f"{said}, {len(found)} of parameters"),
    )


def quantiles_of(found: DrawnFields) -> Array:
    """Quantiles (T, L, q) of the field."""
    mean, std = found.moments
    scores = ndtri(np.array(QUANTILE_LEVELS))
    quantiles = mean[:, None] + std[:, None] * scores[:, None]
    for own, alike, means, scale in zip(
        quantiles, found.alike(LITTLE), found.means, found.scale, strict=True
    ):
        many = np.flatnonzero(~alike)
        for start in range(0, many.size, TARGETS_AT_ONCE):
            some = many[start : start + TARGETS_AT_ONCE]
            field = DrawnFields(means[:, some], scale[:, some], found.beside[:, some])
            own[:, some] = field.distribution().quantile(QUANTILE_LEVELS)
    return np.asarray(quantiles)


def _independent(observed: Observations) -> Observations:
    """Draw censored values below their bounds as if all were independent of each other."""
    assert observed.censored is not None
    generator = np.random.default_rng(np.random.SeedSequence(0, spawn_key=(CENSORED,)))
    values = np.repeat(observed.values, FIT_DRAWS, axis=0)
    hidden = np.repeat(observed.censored & observed.present, FIT_DRAWS, axis=0)
    centre, spread = tobit(observed.values[observed.present], observed.censored[observed.present])
    values[hidden] = _below(np.full(hidden.sum(), centre), np.array(spread), values[hidden], generator)
    times = np.repeat(observed.times, FIT_DRAWS)
    return replace(observed, values=values, times=times, limits=None, censored=None)


def tobit(z: Array, hidden: Mask) -> tuple[float, float]:
    """Mean and standard deviation of independent normal values z (n,), some no larger than what they say.

    By maximum likelihood (Tobin 1958).
    """
    from scipy.optimize import minimize

    seen, bounds = z[~hidden], z[hidden]
    middle, scale = float(seen.mean()), max(float(seen.std()), 1e-12)

    def loss(numbers: Array) -> float:
        m, s = middle + scale * numbers[0], scale * float(np.exp(numbers[1]))
        of_seen = 0.5 * float((((seen - m) / s) ** 2).sum()) + seen.size * np.log(s)
        return float(of_seen - log_ndtr((bounds - m) / s).sum())

    found = minimize(
        loss, np.array([-0.5, 0.2]), method="Nelder-Mead", options={"xatol": 1e-4, "fatol": 1e-6}
    )
    return middle + scale * float(found.x[0]), scale * float(np.exp(found.x[1]))


def _below(centre: Array, spread: Array, bound: Array, generator: np.random.Generator) -> Array:
    """Draw normal numbers given that they are below a bound."""
    uniform = 1.0 - generator.random(centre.shape)  # of (0, 1]
    at = (bound - centre) / spread
    score = ndtri(ndtr(at) * uniform)
    if (far := at < FAR).any():  # where probabilities are too small to be numbers
        score[far] = ndtri_exp(log_ndtr(at[far]) + np.log(uniform[far]))
    return np.asarray(np.minimum(centre + spread * score, bound))


def _dense(
    priors: Sequence[Prior],
    X: Array,
    z: Array,
    hidden: Indices,
    draws: int,
    generator: np.random.Generator,
) -> Array:
    """Draw (h, K draws) hidden values, each given all others: by rows of the inverses of K Gram matrices.

    With a mean that is estimated that is ``G^-1 - G^-1 H (H' G^-1 H)^-1 H' G^-1``.
    """
    h, K = hidden.size, len(priors)
    precision, pull, known = np.empty((h, K, h)), np.empty((h, K, 1)), np.empty((h, K, 1))
    for number, prior in enumerate(priors):
        rows, mean = _rows_of_inverse(prior, X, z, hidden), prior.known_at(X)[:, 0]
        precision[:, number] = rows[hidden].T
        rows[hidden] = 0.0
        pull[:, number, 0] = rows.T @ (z - mean)  # of the values that were seen
        known[:, number, 0] = mean[hidden]
    bound = z[hidden][:, None, None] - known
    spread = 1.0 / np.sqrt(np.einsum("hkh->hk", precision))[:, :, None]
    found = np.repeat(bound - spread, draws, axis=2).transpose(1, 0, 2).copy()
    for _ in range(SWEEPS):
        for i in range(h):
            others = (precision[i][:, None] @ found)[:, 0]
            centre = found[:, i] - (pull[i] + others) * spread[i] ** 2
            found[:, i] = _below(centre, np.broadcast_to(spread[i], centre.shape), bound[i], generator)
    return np.asarray((found + known.transpose(1, 0, 2)).transpose(1, 0, 2).reshape(h, K * draws))


def _rows_of_inverse(prior: Prior, X: Array, z: Array, hidden: Indices) -> Array:
    """Columns (n, h) of the inverse of the Gram matrix of these values, beside a mean that is estimated."""
    noise = np.broadcast_to(np.asarray(prior.noise_variance), z.shape)
    gram, H = DenseGram(prior.kernel, X, noise_variance=noise), prior.basis_at(X)
    unit = np.zeros((z.size, hidden.size))
    unit[hidden, np.arange(hidden.size)] = 1.0
    rows = gram.solve(unit)
    if H.shape[1]:
        weights = gram.solve(H)
        rows -= weights @ np.linalg.solve(H.T @ weights, weights[hidden].T)
    return rows


def _by_neighbours(
    priors: Sequence[Prior],
    X: Array,
    z: Array,
    hidden: Indices,
    draws: int,
    generator: np.random.Generator,
) -> Array:
    """Draw (h, K draws) hidden values, each given its nearest neighbours, with a level of their own.

    Places none of which is a neighbour of another one are drawn together.
    """
    from cagp_dist.conditional_draws import add_neighbours, colours_of

    near = nearest_points(X, X[hidden], NEIGHBOURS + 1)
    near = np.where(near == hidden[:, None], near[:, -1:], near)[:, :NEIGHBOURS]
    own = np.full(z.size, -1)
    own[hidden] = np.arange(hidden.size)
    among = own[near]
    colours = colours_of(among)
    groups = [np.flatnonzero(colours == colour) for colour in range(int(colours.max()) + 1)]
    of_priors = list[Array]()
    for prior in priors:
        noise = np.broadcast_to(np.asarray(prior.noise_variance), z.shape)
        known = prior.known_at(X)[:, 0]
        weights, spread = np.empty((2, hidden.size, NEIGHBOURS))
        for start in range(0, hidden.size, PLACES_AT_ONCE):
            some = slice(start, start + PLACES_AT_ONCE)
            weights[some], spread[some, 0] = _weights(prior, X, noise, hidden[some], near[some])
        bound, seen = (z - known)[hidden], z - known
        seen[hidden] = 0.0
        pull = np.einsum("hm,hm->h", weights, seen[near])  # of the values that were seen
        found = np.repeat((bound - spread[:, 0])[:, None], draws, axis=1)
        for _ in range(SWEEPS // 2):
            for group in groups:
                centre = np.repeat(pull[group, None], draws, axis=1)
                add_neighbours(group, among, weights, found, centre)
                found[group] = _below(centre, spread[group, :1], bound[group, None], generator)
        of_priors.append(found + known[hidden][:, None])
    return np.concatenate(of_priors, axis=1)


def _weights(prior: Prior, X: Array, noise: Array, hidden: Indices, near: Indices) -> tuple[Array, Array]:
    """Weights (h, m) of neighbours in ordinary kriging, and standard deviations (h,), noise included."""
    from cagp_dist.compiled import evaluate_subsets

    h, m = near.shape
    system = np.empty((h, m + 1, m + 1))
    members = np.column_stack([near, hidden])
    evaluate_subsets(*prior.kernel.parameters, point_columns(X), members, False, system)
    right, own = system[:, m].copy(), system[:, m, m] + noise[hidden]
    system[:, np.arange(m), np.arange(m)] += noise[near]
    system[:, m] = system[:, :, m] = right[:, m] = 1.0
    system[:, m, m] = 0.0
    solved = np.linalg.solve(system, right[..., None])[..., 0]
    return solved[:, :m], np.sqrt(own - (solved * right).sum(axis=1))
