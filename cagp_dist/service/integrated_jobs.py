"""Jobs whose numbers are integrated over: when that is done, and what is published of the mixtures."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.calibration.recalibration.methods import SHARP
from cagp_dist.calibration.verification.scores import PointScores, point_scores, unscored
from cagp_dist.errors import ConfigurationError, NumericalError
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.kernels import Elementary, Kernel, Matern32, chosen_by
from cagp_dist.pipeline import (
    Held,
    Integrated,
    SharedFields,
    Status,
    fields_by_pattern,
    integrate,
    reason,
    why_not,
)
from cagp_dist.pipeline.defaults import INTERVAL, QUANTILE_LEVELS
from cagp_dist.pipeline.field_solves import Execution, LeftOut, SolveStep
from cagp_dist.pipeline.integration import is_exact
from cagp_dist.pipeline.map_mean import columns_of
from cagp_dist.predictive import Mixture
from cagp_dist.predictive.mixtures import mixtures
from cagp_dist.prior import Mean, Prior
from cagp_dist.runtime import SerialExecutor
from cagp_dist.service.folds import parts_of, without_test
from cagp_dist.service.job_fit import FittedPrior, fit_prior
from cagp_dist.service.job_recalibration import JobSolution, MixedDistributions
from cagp_dist.service.task import PreparedJob
from cagp_dist.store.schema import PublishedDistribution

GIVEN = "given"  # Said of numbers that need no fit


@dataclass(frozen=True, eq=False)
class IntegratedNumbers:
    """Posteriors of the numbers of a job."""

    everywhere: Integrated  # by all observations
    by_fold: tuple[Integrated, ...] = ()  # of a cross-validation, by those of the other folds


def integrate_numbers(
    task: PreparedJob, fitted: FittedPrior, *, progress: Callable[[float | None, str], None]
) -> tuple[IntegratedNumbers | None, str]:
    """Integrate over the numbers of a job where it asks for that, or where they are not known well."""
    asked = task.job.prior.hyperparameters
    if asked == "plug-in":
        return None, "plugged in, as asked for"
    if task.job.prior.time_kernel is not None:
        return None, "plugged in: the kernel is one of space and time"
    places, values = task.design.train.size, int(np.count_nonzero(~np.isnan(task.targets)))
    because = reason(asked, values=values, places=places, result=fitted.result)
    if because is None:
        return None, f"plugged in: there are {values:,} observations"
    kernel, patterns = fitted.prior.kernel, [fields for fields, _ in _patterns(task)]
    exact, solver = is_exact(task.solver, places), task.job.solver.name
    obstacle = _obstacle(task) or why_not(kernel, patterns, _held(task), solver=solver, exact=exact)
    if obstacle is not None:
        return None, _plugged_in(asked, obstacle)
    assert isinstance(kernel, Elementary)  # `why_not`
    parts = [task, *parts_of(task)]
    found = []
    for number, part in enumerate(parts):
        progress(number / len(parts), "integral over lengthscale, variance and noise")
        try:
            some = [fields for fields, _ in _patterns(part)]
            own = kernel if part is task else _kernel_of(part, kernel)
            assert isinstance(own, Elementary)  # `why_not`
            found.append(integrate(own, some, held=_held(task)))
        except NumericalError as error:
            return None, _plugged_in(asked, error.text)
    numbers = IntegratedNumbers(found[0], tuple(found[1:]))
    return numbers, f"integrated over {because}: {found[0].distributions}"


def _kernel_of(fold: PreparedJob, kernel: Kernel) -> Kernel:
    """Give the kernel of a fold: where it is chosen, by its own observations."""
    prior = fold.job.prior
    if chosen_by(prior.kernel) is None or prior.fit_to != "observed" or fold.fit_points is not None:
        return kernel
    return fit_prior(fold, Execution(SerialExecutor())).prior.kernel


def with_mixtures(task: PreparedJob, numbers: IntegratedNumbers, solution: JobSolution) -> JobSolution:
    """Put mixtures in the place of what one set of numbers predicts, at the end of a solve."""
    last, columns, found = solution.steps[-1], task.columns, numbers.everywhere
    mean, std = np.empty((2, len(task.points.times), len(task.new_inputs)))
    everywhere = without_test(task) if numbers.by_fold else task
    rest = slice(columns.test.stop if numbers.by_fold else 0, None)
    mean[:, rest], std[:, rest] = _moments(everywhere, found, everywhere.new_inputs)
    scores, of_test = _at_test(task, numbers)
    if numbers.by_fold:
        for part, of_fold in zip(parts_of(task), numbers.by_fold, strict=True):
            at = np.searchsorted(task.design.test, part.design.test)
            mean[:, at], std[:, at] = _moments(part, of_fold, part.new_inputs)
    nuggets = np.array([_nugget(each) for each in numbers.by_fold or (found,)])
    cells = task.design.cells if columns.cells.stop > columns.cells.start else None
    fine, wanted = task.mean_inputs, task.wanted
    published = partial(_published, task, found)
    return replace(
        solution,
        steps=(*solution.steps[:-1], SolveStep(last.iteration, mean, std, last.seconds)),
        status=Status.EXACT,
        computational_std=np.zeros(mean.shape),
        fine_mean=None if fine is None else _moments(task, found, fine)[0],
        left_out=None if solution.left_out is None else _left_out(task, found),
        test_nugget=None if task.design.folds is None else nuggets[task.design.folds],
        mixed=MixedDistributions(
            scores=scores,
            of_test=of_test,
            of_cells=None if cells is None else published(cells.X),
            of_places=None if wanted is None else published(wanted.X),
            nugget=_nugget(found),
        ),
    )


def attributes_of_numbers(numbers: IntegratedNumbers | None, said: str) -> dict[str, object]:
    """Give what a run says of its numbers."""
    if numbers is None:
        return {"hyperparameters": said}
    low, high = INTERVAL
    ends = numbers.everywhere.quantiles(INTERVAL)
    return {"hyperparameters": said, "integrated_intervals": ends, "integrated_level": high - low}


def _moments(task: PreparedJob, found: Integrated, targets: Array | LinearFunctionals) -> tuple[Array, Array]:
    """Means and standard deviations (T, q) of the field at targets."""
    mean, std = np.empty((2, len(task.points.times), len(targets)))
    for fields, times in _patterns(task):
        for some, distribution in mixtures(found, fields, targets):
            mean[times, some], std[times, some] = distribution.mean, distribution.std
    return mean, std


def _at_test(task: PreparedJob, numbers: IntegratedNumbers) -> tuple[PointScores, PublishedDistribution]:
    """Score the observations (T, q) at test points, NaN for none, and publish their distributions."""
    observed = task.points.values[:, task.design.test]
    scores, published = unscored(observed.shape), _distribution(observed.shape)
    for at, times, distribution in _tested(task, numbers):
        rows, places = np.nonzero(~np.isnan(observed[np.ix_(times, at)]))
        if rows.size:
            found = times[rows], at[places]
            scores.put(found, point_scores(distribution[rows, places], observed[found]))
        _put(published, np.ix_(times, at), distribution)
    return scores, published


def _tested(task: PreparedJob, numbers: IntegratedNumbers) -> Iterator[tuple[Indices, Indices, Mixture]]:
    """Yield distributions of the observations at some test points and times together."""
    parts = parts_of(task) or [task]
    for part, found in zip(parts, numbers.by_fold or (numbers.everywhere,), strict=True):
        test = part.design.test
        at = np.searchsorted(task.design.test, test) if numbers.by_fold else np.arange(test.size)
        noise = _known_noise(task, test)
        for fields, times in _patterns(part):
            for some, distribution in mixtures(found, fields, task.points.X[test], noise):
                yield at[some], times, distribution


def _published(task: PreparedJob, found: Integrated, X: Array) -> PublishedDistribution:
    """Distributions of observations with the usual noise at positions X (q, p)."""
    distribution = _distribution((len(task.points.times), len(X)))
    noise = np.full(len(X), np.median(_known_noise(task, task.design.train)))
    for fields, times in _patterns(task):
        for some, mixture in mixtures(found, fields, X, noise):
            _put(distribution, (times, some), mixture)
    return distribution


def _distribution(shape: tuple[int, int]) -> PublishedDistribution:
    """Room for distributions (T, q)."""
    return PublishedDistribution(
        np.empty(shape), np.empty((shape[0], len(QUANTILE_LEVELS), shape[1])), recalibrated=False
    )


def _put(distribution: PublishedDistribution, at: Any, mixture: Mixture) -> None:
    """Publish a mixture at some times and points."""
    distribution.std[at] = mixture.std
    by_level = np.moveaxis(distribution.quantiles, 1, 2)
    by_level[at] = np.moveaxis(mixture.quantile(QUANTILE_LEVELS), 0, 2)


def _left_out(task: PreparedJob, found: Integrated) -> LeftOut:
    """Predict each observation from all others; by the probabilities that all of them give the numbers."""
    present = ~np.isnan(task.targets.T)
    mean, std = np.full((2, *present.shape), np.nan)
    for fields, times in _patterns(task):
        if len(fields.X) <= len(fields.mean.coefficient_names):  # without one, the mean is not estimated
            continue
        distribution, at = Mixture(*found.left_out(fields)), np.ix_(times, np.flatnonzero(present[times[0]]))
        mean[at], std[at] = distribution.mean, distribution.std
    return LeftOut(mean, std)


def _nugget(found: Integrated) -> float:
    """Mean of the nugget, or of the noise variance where nothing is known of it."""
    spread = 1.0 if np.isinf(found.degrees) else found.degrees / (found.degrees - 2.0)
    level = np.asarray(found.noise_level)
    noise = spread * float(found.weights @ found.noise_variances(level))
    return noise - (found.noise_level if found.held.noise else 0.0)


def _known_noise(task: PreparedJob, chosen: Indices) -> Array:
    """Noise variance (k,) as `SharedFields` has it: ones where nothing is known of it."""
    known = task.points.noise_variance
    return np.ones(chosen.size) if known is None else known[chosen]


def _held(task: PreparedJob) -> Held:
    """Known noise has a nugget beside it, which is sought as all else."""
    known = task.points.noise_variance is not None
    return Held(noise=known, nugget=known)


def _patterns(task: PreparedJob) -> list[tuple[SharedFields, Indices]]:
    """Give the fields that were observed at the same places, and which these are."""
    X, values, mean = task.inputs, task.targets, task.mean
    noise, present = _known_noise(task, task.design.train), ~np.isnan(values.T)
    found = []
    for times in fields_by_pattern(present):
        places = present[times[0]]
        own: Mean = partial(columns_of, mean, times) if callable(mean) else mean
        prior = Prior(Matern32(1.0), 1.0, own)  # whose mean alone is used
        found.append((SharedFields(X[places], values[np.ix_(places, times)], prior, noise[places]), times))
    return found


def _obstacle(task: PreparedJob) -> str | None:
    """Say what of a job leaves no room for more than one set of numbers."""
    job = task.job
    obstacles = {
        "the numbers are fitted to the whole field": job.prior.fit_to == "field",
        "the numbers are fitted to other times": task.fit_points is not None,
        "the mean is the previous run": task.carried is not None,
        "lengthscales are stretched for each quantile": task.recalibration.method == SHARP,
        "weights are kept": job.output.keep_weights,
        "error bars of the map come from samples": task.design.samples > 0,
        "fields of one prior are simulated": task.simulations is not None,
    }
    return next((said for said, there in obstacles.items() if there), None)


def _plugged_in(asked: str, why: str) -> str:
    """Say why numbers are plugged in; refuse where a job asks for something else."""
    if asked == "integrate":
        raise ConfigurationError(
            f'[prior] hyperparameters = "integrate" cannot be done here: {why}. Write "plug-in".'
        )
    return f"plugged in: {why}"
