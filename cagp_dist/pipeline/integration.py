"""Maps whose numbers are integrated over: when that is done, and what they predict."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np
from scipy.special import ndtr

from cagp_dist.arrays import Array, Indices
from cagp_dist.errors import ArgumentError, NumericalError
from cagp_dist.factors import Directional
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.gram.targets import part
from cagp_dist.kernels import Elementary
from cagp_dist.likelihood.exact.integrated import (
    HYPERPARAMETERS,
    MOST_FLAT,
    Held,
    Integrated,
    SharedFields,
    Spectra,
    integrate,
    integrate_draws,
    joined,
    reason,
    way_of,
    why_not,
)
from cagp_dist.likelihood.kernel_choice import kernel_probabilities
from cagp_dist.pipeline.background import over_scale, weighted
from cagp_dist.pipeline.censoring import drawn
from cagp_dist.pipeline.defaults import INTERVAL, QUANTILE_LEVELS
from cagp_dist.pipeline.field_solves import DrawnFields, DriftCoefficients, Execution, Solution, SolveStep
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.map_mean import mean_of
from cagp_dist.pipeline.map_points import MapPoints, Targets
from cagp_dist.pipeline.map_solves import solve_map
from cagp_dist.pipeline.narration import Narrator
from cagp_dist.pipeline.observations import Observations
from cagp_dist.predictive import Gaussian, Mixture, Predictive, QuantileTable
from cagp_dist.predictive.transforms import Transform, Transformed
from cagp_dist.prior import Prior
from cagp_dist.solvers import BlockGaussSeidel, Cholesky, Rings, Solver, Status
from cagp_dist.text import alternatives, counted

EXACT = ("auto", "cholesky", "rings")
# Draws of numbers beside censored values, each of which is predicted with some draws of these; how often they
# are drawn in turn, at least and at most; and their first seed, after those of fits
NUMBER_DRAWS, ROUNDS_OF_NUMBERS, FIRST_SEED = 32, (4, 20), 100

TARGETS_AT_ONCE = 4096  # Targets whose distributions are in memory at a time

SCORES = np.linspace(-4.0, 4.0, 41)  # Normal scores of quantiles from which means of values are taken


def check_hyperparameters(asked: str) -> None:
    """Raise `ArgumentError` if there is no such way."""
    if way_of(asked) not in HYPERPARAMETERS:
        raise ArgumentError(
            f"hyperparameters is {asked!r}; expected {alternatives(HYPERPARAMETERS)}.",
            key="hyperparameters-unknown",
        )


def is_exact(solver: Solver, places: int) -> bool:
    """Whether a solver of so many places leaves no error of unfinished computation."""
    one_block = isinstance(solver, BlockGaussSeidel) and solver.block_size >= places
    return one_block or isinstance(solver, Cholesky | Rings)


def with_numbers_integrated(
    learned: FittedModel,
    observed: Observations,
    *,
    asked: str,
    nugget_sought: bool,
    solver: "str | Solver",
    obstacle: str | None = None,
    narrator: Narrator,
) -> FittedModel:
    """Integrate over the numbers of a map where that is asked for, or where they are not known well."""
    asked = way_of(asked)
    if learned.result is None:
        return learned  # there is none to integrate over
    if asked == "plug-in":
        return replace(learned, numbers="plugged in, as asked for")
    because = reason(asked, values=observed.count, places=observed.there.size, result=learned.result)
    if because is None:
        return replace(learned, numbers=f"plugged in: there are {observed.count:,} observations")
    held = Held(
        lengthscale=learned.lengthscales[0] if "lengthscale" in learned.held else None,
        variance=float(learned.kernel.variance) if "variance" in learned.held else None,
        noise=bool(np.min(learned.known_noise) > 0.0),
        nugget=nugget_sought and bool(np.min(learned.known_noise) > 0.0),
    )
    patterns = [fields for fields, _ in fields_of(learned, observed, held)]
    exact = solver in EXACT if isinstance(solver, str) else is_exact(solver, observed.there.size)
    obstacle = obstacle or why_not(learned.kernel, patterns, held, solver=solver, exact=exact)
    if observed.in_time:
        obstacle = "the kernel has a lengthscale in time"
    if obstacle is not None:
        if asked == "integrate":
            raise ArgumentError(
                f'hyperparameters is "integrate", which cannot be done here: {obstacle}. Take "plug-in".',
                key="not-integrated",
            )
        return replace(learned, numbers=f"plugged in: {obstacle}")
    about = f"integrating over lengthscale, variance and noise, from {counted(observed.there.size, 'place')}"
    with narrator.stage("integral", about) as report:
        kernel = learned.kernel
        if isinstance(kernel, Directional):
            kernel = kernel.kept
        assert isinstance(kernel, Elementary)  # `why_not`
        kernels = list[tuple[Elementary, float]]()
        for each, probability in kernel_probabilities(learned.result, observed.count).items():
            # of the same ellipse
            family = replace(kernel.family, kernel=each) if isinstance(kernel, Directional) else each
            kernels.append((kernel if family == kernel.family else family(1.0), probability))
        integral = _integral_beside_draws if observed.hides else _integral
        try:
            found = integral(learned, observed, held, kernels, report)
        except NumericalError as error:
            if asked == "integrate":
                raise
            return replace(learned, numbers=f"plugged in: {error.text}")
        return replace(found, numbers=f"integrated over {because}: {found.numbers}")


def _integral(
    learned: FittedModel,
    observed: Observations,
    held: Held,
    kernels: Sequence[tuple[Elementary, float]],
    progress: Callable[[float], None],
) -> FittedModel:
    """Integrate over numbers on a grid, and over kernels by their probability; the first has to be there."""
    patterns = [fields for fields, _ in fields_of(learned, observed, held)]
    posteriors, probabilities = list[Integrated](), list[float]()
    for kernel, probability in kernels:
        try:
            posteriors.append(integrate(kernel, patterns, held=held, progress=progress))
        except NumericalError:
            if not posteriors:
                raise
            continue
        probabilities.append(probability)
    found = joined(posteriors, probabilities)
    return replace(learned, integrated=found, numbers=found.distributions)


def _integral_beside_draws(
    learned: FittedModel,
    observed: Observations,
    held: Held,
    kernels: Sequence[tuple[Elementary, float]],
    progress: Callable[[float], None],
) -> FittedModel:
    """Draw numbers by their probability, and censored values in turn with them (Tanner and Wong 1987).

    Each of `NUMBER_DRAWS` begins with the numbers of the fit. Censored values are drawn by its numbers, and
    its numbers by the values then, with a kernel of its own where several are probable.
    """
    of_draws = np.repeat(np.arange(len(kernels)), _shares([probability for _, probability in kernels]))
    models, rounds = [learned] * NUMBER_DRAWS, rounds_of_numbers(observed.hidden_share)
    spectra: Spectra | None = {} if observed.there.size <= MOST_FLAT else None
    for number in range(rounds):
        filled = drawn(observed, *models, draws=1, seed=FIRST_SEED + number)
        generator = np.random.default_rng([FIRST_SEED, number])
        posteriors = list[Integrated]()
        for index, (kernel, _) in enumerate(kernels):
            chosen = np.flatnonzero(of_draws == index)
            if not chosen.size:
                continue
            rows = (np.arange(observed.fields)[:, None] * NUMBER_DRAWS + chosen).ravel()
            patterns = [fields for fields, _ in fields_of(learned, filled.of_fields(rows), held)]
            try:
                posteriors += integrate_draws(kernel, patterns, held=held, draws=chosen.size, spectra=spectra)
            except NumericalError:
                if not index:
                    raise
                return _integral_beside_draws(learned, observed, held, kernels[:1], progress)
            progress((number + (index + 1) / len(kernels)) / rounds)
        models = [_drawn_model(learned, found, generator) for found in posteriors]
    return replace(
        learned,
        likely=tuple((1.0 / NUMBER_DRAWS, model) for model in models),
        drawn_intervals=joined(posteriors, [1.0] * NUMBER_DRAWS).quantiles(INTERVAL),
        numbers=f"{NUMBER_DRAWS} draws of them and of censored values",
    )


def rounds_of_numbers(share: float) -> int:
    """Give how often numbers and censored values are drawn in turn: more, the larger the share of the latter.

    Draws begin at the fit, which is near. Of a start whose noise is 80 times too large the six rounds with
    half of the values censored leave a fifth, in logarithms.
    """
    return int(np.clip(np.ceil(np.log(0.02) / np.log(min(share, 0.99))), *ROUNDS_OF_NUMBERS))


def _shares(probabilities: Sequence[float]) -> Indices:
    """Give how many of `NUMBER_DRAWS` each probability has, by the largest remainders."""
    exact = NUMBER_DRAWS * np.array(probabilities) / sum(probabilities)
    counts = exact.astype(np.intp)
    counts[np.argsort(counts - exact)[: NUMBER_DRAWS - counts.sum()]] += 1
    return counts


def _drawn_model(learned: FittedModel, found: Integrated, generator: np.random.Generator) -> FittedModel:
    """Draw numbers by their probability."""
    node = found.nodes[generator.choice(len(found.nodes), p=found.weights)]
    variance = node.variance
    if np.isfinite(found.degrees):
        variance *= found.degrees / generator.chisquare(found.degrees)
    nugget = learned.nugget
    if not found.held.noise:
        nugget = node.ratio * variance / found.noise_level  # of an observation as usual
    elif found.held.nugget:
        nugget = node.nugget
    return replace(learned, kernel=node.family(node.lengthscale, variance), nugget=nugget, likely=())


def predict_fields(
    observed: Observations,
    learned: FittedModel,
    targets: Targets,
    *,
    solver: Solver,
    execution: Execution,
) -> Solution:
    """Predict as `solve_map`, or by a mixture where the numbers are integrated over."""
    found = learned.integrated
    if found is None and learned.likely and is_exact(solver, observed.there.size):
        return _with_errors_of_numbers(observed, learned, targets, solver=solver, execution=execution)
    if found is None:
        return solve_map(observed, learned, targets, solver=solver, execution=execution)
    began = perf_counter()
    T, q, scale = observed.fields, targets.size, learned.scale(observed)
    mean, variance = np.empty((T, q)), np.empty((T, q))
    quantiles = np.empty((T, len(QUANTILE_LEVELS), q))
    moments = None if observed.transform is None else np.empty((2, T, q))
    fine = None if targets.mean_at is None else np.empty((T, targets.mean_at.size))
    drift = None
    patterns = fields_of(learned, observed, found.held)
    for number, (fields, chosen) in enumerate(patterns):
        for some, distribution in mixtures(found, fields, weighted(targets.points.wanted, scale)):
            mean[chosen, some], variance[chosen, some] = distribution.mean, distribution.std**2
            quantiles[chosen, :, some] = np.moveaxis(distribution.quantile(QUANTILE_LEVELS), 0, 1)
            if moments is not None and observed.transform is not None:
                moments[:, chosen, some] = moments_in_units(distribution, observed.transform)
            execution.progress((number + some.stop / q) / len(patterns), "")
        if fine is not None and targets.mean_at is not None:
            for some, distribution in mixtures(found, fields, weighted(targets.mean_at.wanted, scale)):
                fine[chosen, some] = distribution.mean
        if fields.mean.estimates_mean:
            names = tuple(fields.mean.coefficient_names)
            drift = drift or DriftCoefficients(names, np.empty((len(names), T)), np.empty((len(names), T)))
            of_terms = Mixture(*found.coefficients(fields))
            drift.values[:, chosen], drift.std[:, chosen] = of_terms.mean.T, of_terms.std.T
    said = f"{counted(len(found.nodes), 'dense factor')}, integrated over"
    return Solution(
        steps=(SolveStep(1, mean, np.sqrt(variance), perf_counter() - began),),
        status=Status.EXACT,
        plan=(f"{said}: {found.distributions}",),
        solvers=(said,),
        executor=execution.executor.description,
        computational_std=np.zeros((T, q)),
        drift=drift,
        quantiles=quantiles,
        moments=moments,
        fine_mean=fine,
    )


def moments_in_units(distribution: Mixture, transform: Transform) -> tuple[Array, Array]:
    """Mean and standard deviation of transformed values, by many quantiles.

    Beyond these a mixture goes on as a normal distribution: of the exponential of Student's there is no mean.
    """
    rows = distribution.at_normal_score(SCORES.reshape(-1, *(1,) * len(distribution.shape)))
    of_values = Transformed(QuantileTable(ndtr(SCORES), rows), transform)
    return of_values.mean, of_values.std


def _with_errors_of_numbers(
    observed: Observations,
    learned: FittedModel,
    targets: Targets,
    *,
    solver: Solver,
    execution: Execution,
) -> Solution:
    """Predict by the likeliest numbers, with the mean square of the errors by all that are likely.

    Of probability w_i and with means m_i and variances v_i that is the sum of ``w_i (v_i + (m_i - m)^2)``.
    """
    parts = 1 + len(learned.likely)
    found = solve_map(observed, learned, targets, solver=solver, execution=execution.part(0, parts, ""))
    square = np.zeros(found.std.shape)
    drift, of_terms = found.drift, np.zeros(1) if found.drift is None else np.zeros(found.drift.std.shape)
    for at, (weight, model) in enumerate(learned.likely, start=1):
        own = execution.part(at, parts, "other sets of parameters")
        own = replace(own, on_plan=lambda plan: None)  # the same
        other = solve_map(observed, model, targets, solver=solver, execution=own)
        square += weight * (other.std**2 + (other.mean - found.mean) ** 2)
        if drift is not None and other.drift is not None:
            of_terms += weight * (other.drift.std**2 + (other.drift.values - drift.values) ** 2)
    if drift is not None:
        drift = drift._replace(std=np.sqrt(of_terms))
    *before, last = found.steps
    return replace(found, steps=(*before, replace(last, std=np.sqrt(square))), drift=drift)


def distributions_of_observations(
    mean: Array,
    std: Array,
    observed: Observations,
    learned: FittedModel,
    targets: MapPoints,
    known_noise: Array,
    *,
    of_draws: DrawnFields | None = None,
) -> Iterator[tuple[Indices, Indices, Predictive]]:
    """Yield distributions (T', q') of observations at some fields and some of the targets.

    Mean and standard deviation of the field are (T, q); of the noise so much is known there, (q,). What draws
    of censored values predict is their mixture.
    """
    found = learned.integrated
    if found is None:
        noise = learned.noise_of(known_noise)
        if of_draws is not None:
            for start in range(0, mean.shape[1], TARGETS_AT_ONCE):
                own = np.arange(start, min(start + TARGETS_AT_ONCE, mean.shape[1]))
                yield np.arange(len(mean)), own, of_draws.part(own).distribution(noise[own])
            return
        yield np.arange(len(mean)), np.arange(mean.shape[1]), Gaussian(mean, np.sqrt(std**2 + noise))
        return
    known = np.ones_like(known_noise)
    if found.held.noise:  # with a nugget that was given
        known = known_noise + (0.0 if found.held.nugget else learned.nugget)
    scale = learned.scale(observed)
    for fields, chosen in fields_of(learned, observed, found.held):
        for some, distribution in mixtures(found, fields, weighted(targets.wanted, scale), known):
            yield chosen, np.arange(some.start, some.stop), distribution


def mixtures(
    found: Integrated,
    fields: SharedFields,
    targets: Array | LinearFunctionals,
    noise_variance: Array | None = None,
) -> Iterator[tuple[slice, Mixture]]:
    """Yield those (T, q') of fields at some targets after others, where numbers are integrated over."""
    for start in range(0, len(targets), TARGETS_AT_ONCE):
        some = slice(start, min(start + TARGETS_AT_ONCE, len(targets)))
        noise = None if noise_variance is None else noise_variance[some]
        yield some, Mixture(*found.predict(fields, part(targets, some), noise_variance=noise))


def drawn_numbers(
    learned: FittedModel, size: int, generator: np.random.Generator
) -> Iterator[tuple[Indices, FittedModel, Integrated, Array]]:
    """Draw numbers by their probability, for so many draws of the field."""
    found = learned.integrated
    assert found is not None
    chosen = generator.choice(len(found.nodes), size=size, p=found.weights)
    known = _noise(learned, found.held)
    for number in np.unique(chosen):
        node = found.nodes[number]
        draws = np.flatnonzero(chosen == number)
        alone = replace(found, nodes=(node._replace(weight=1.0),))
        plugged = replace(
            learned,
            kernel=node.family(node.lengthscale, node.variance),
            known_noise=alone.noise_variances(known)[0],
            nugget=0.0,
            excess=None,
            integrated=None,
        )
        stretch = np.ones(draws.size)
        if not np.isinf(found.degrees):
            stretch = np.sqrt(found.degrees / generator.chisquare(found.degrees, draws.size))
        yield draws, plugged, alone, stretch


def means_of(found: Integrated, learned: FittedModel, observed: Observations, targets: MapPoints) -> Array:
    """Means (T, q) of one set of numbers at targets."""
    mean = np.empty((observed.fields, len(targets.X)))
    for fields, chosen in fields_of(learned, observed, found.held):
        mean[chosen] = found.predict(fields, weighted(targets.wanted, learned.scale(observed))).location[0]
    return mean


def fields_of(learned: FittedModel, observed: Observations, held: Held) -> list[tuple[SharedFields, Indices]]:
    """Give the fields that were observed at the same places, and which these are."""
    X, scale = observed.X, learned.scale(observed)
    known, found = _noise(learned, held), []
    for places, fields in observed.patterns():
        noise = known[places] if known.ndim else np.full(places.size, known)
        mean = mean_of(learned.mean, observed, places, fields)
        values = observed.values[np.ix_(fields, places)].T
        if scale is not None:
            own = scale(X[places])
            values, noise, mean = values / own[:, None], noise / own**2, over_scale(mean, scale)
        found.append((SharedFields(X[places], values, Prior(learned.kernel, 1.0, mean), noise), fields))
    return found


def _noise(learned: FittedModel, held: Held) -> Array:
    """Noise variance of all observations, or of each place, as `Fields` has it: one where none is known."""
    if not held.noise:  # in units of the usual noise
        return np.asarray(1.0) if learned.excess is None else 1.0 + learned.excess / learned.nugget
    if learned.excess is not None:
        return learned.known_noise + learned.excess + (0.0 if held.nugget else learned.nugget)
    return learned.known_noise if held.nugget else learned.noise_variance  # with a nugget that was given
