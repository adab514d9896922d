"""The steps of the one path, each a function of a `Task`: fit, predict (with folds: solve), score."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
from scipy.special import ndtri

from cagp_dist.arrays import Array, Indices
from cagp_dist.calibration.verification.scores import of_limits, point_scores, unscored
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.kernels import DEPTH, Kernel, chosen_by
from cagp_dist.likelihood.exact.integrated import Hyperparameters
from cagp_dist.likelihood.fit_result import FitProgress
from cagp_dist.pipeline.background import Background, Innovations
from cagp_dist.pipeline.carried import update
from cagp_dist.pipeline.censoring import fit_with_draws, predict_with_draws
from cagp_dist.pipeline.defaults import QUANTILE_LEVELS
from cagp_dist.pipeline.field_fit import fit_field
from cagp_dist.pipeline.field_solves import DrawnFields, Execution, Solution, SolveStep
from cagp_dist.pipeline.fitted_model import (
    FittedModel,
    given_model,
    innovations_over_scale,
    known_noise,
)
from cagp_dist.pipeline.integration import (
    distributions_of_observations,
    predict_fields,
    with_numbers_integrated,
)
from cagp_dist.pipeline.labelled_fit import fit_labelled
from cagp_dist.pipeline.map_points import MapPoints, Targets
from cagp_dist.pipeline.map_solves import solver_of
from cagp_dist.pipeline.maps_at_times import (
    check_kernel,
    check_mean,
    fit_in_space_and_time,
    predict_in_time,
)
from cagp_dist.pipeline.model_settings import FitWork
from cagp_dist.pipeline.narration import Narrator
from cagp_dist.pipeline.observations import Observations
from cagp_dist.pipeline.recalibration import NOT_ASKED, Distribution, Distributions
from cagp_dist.pipeline.task import Priors, Result, Task
from cagp_dist.predictive import Gaussian
from cagp_dist.solvers import Status
from cagp_dist.text import counted, shown_time

# Observed places up to which each fold has a fit of its own: a second for all of them, or two
FEW_PLACES = 400

# Observed places where the map is compared with observations, at most
MOST_COMPARED = 1_000


def fit(
    task: Task,
    execution: Execution,
    *,
    narrator: Narrator | None = None,
    progress: Callable[[FitProgress], None] | None = None,
) -> FittedModel:
    """Find kernel and noise: given, or fitted by maximum likelihood, or with probabilities beside."""
    check_folds(task)
    asked, observed = task.model, task.observed
    decide = observed if task.fitted_to is None else task.fitted_to
    if observed.in_time:
        check_mean(asked.mean if asked.prior is None else asked.prior.mean)
    if asked.prior is not None:
        if observed.in_time:
            check_kernel(asked.prior.kernel)
        return given_model(observed, asked.prior)
    if asked.noise_variance is not None:
        assert isinstance(asked.kernel, Kernel)
        known = known_noise(observed, observed.there, asked.noise_std)
        return FittedModel(asked.kernel, asked.mean, known, asked.noise_variance, excess=observed.excess)
    with Narrator(shown=False) if narrator is None else nullcontext(narrator) as told:
        work = FitWork(execution, told, progress, execution.checkpoints)
        if decide.in_time:
            if asked.anisotropy != "none":
                raise ArgumentError(
                    f"anisotropy is {asked.anisotropy!r} beside maps at times of points in space and time; "
                    "expected it without times, where each field is a map of its own.",
                    key="anisotropy-in-time",
                )
            there = decide.there  # in folds some values are left out
            with_values = decide if there.size == decide.north.size else decide.at(there)
            model = fit_in_space_and_time(with_values, asked, work)
        else:
            held = asked
            if isinstance(asked.mean, Background) and asked.mean.scales:
                decide, mean = innovations_over_scale(decide, asked.mean, asked.noise_std)
                held = replace(asked, mean=mean, noise_std=None, nugget_std=0.0)
            way = fit_labelled if asked.labels.any else fit_field
            if decide.censored is not None and decide.censored.any():
                model = fit_with_draws(decide, lambda filled: way(filled, held, work))
            else:
                model = way(decide, held, work)
            model = replace(model, mean=asked.mean)
        fitted_again = decide is not observed or decide.there.size < decide.north.size
        if fitted_again:
            model = model.of_observations(observed, asked.noise_std)
        return model if observed.beside else _integrated(task, model, told)


def _integrated(task: Task, model: FittedModel, narrator: Narrator) -> FittedModel:
    """Integrate over numbers where that is asked for, or where they are not known well."""
    return with_numbers_integrated(
        model,
        task.observed,
        asked=task.model.hyperparameters,
        nugget_sought=task.model.nugget_std is None,
        solver=task.solver,
        obstacle=task.model.obstacle,
        narrator=narrator,
    )


def fit_folds(task: Task, model: FittedModel, execution: Execution) -> tuple[FittedModel, ...]:
    """Fit the prior of each fold without its observations; whatever a search has reached is taken.

    A fold that has a part in the numbers that predict it is not held out. Fits take long: each half of the
    folds is predicted with numbers that were fitted to the other, whose blocks are as dense as all; of few
    places each fold has a fit of its own.
    """
    if not task.fits_folds:
        return ()
    several = bool(task.model.labels.variables) or DEPTH in task.observations.beside
    many = task.observations.in_time or several
    fits = fits_of_folds(task.split.observed.size, task.folds, many_numbers=many)
    groups = np.array_split(np.arange(task.folds), fits)
    found: list[FittedModel] = []
    for number, group in enumerate(groups):
        name = f"without part {number + 1} of {len(groups)} of the folds"
        own = task.without([int(fold) for fold in group])
        found += [_fit_of_fold(own, model, execution.part(number, len(groups), name))] * group.size
    return tuple(found)


def fits_of_folds(places: int, folds: int, *, many_numbers: bool) -> int:
    """Give the number of fits for the folds of so many places; see `fit_folds`.

    Kernels of space and time or depth, and of several variables, have many numbers, whose fits take long.
    """
    return folds if places <= FEW_PLACES and not many_numbers else 2


def _fit_of_fold(task: Task, model: FittedModel, execution: Execution) -> FittedModel:
    """Fit the prior of some folds; probabilities of numbers need none but where the kernel is chosen."""
    # whether numbers are integrated over is decided for all together
    way: Hyperparameters = "integrate" if model.averages else "plug-in"
    way = task.model.hyperparameters if model.likely and not model.averages else way
    task = replace(task, model=replace(task.model, hyperparameters=way))
    if model.averages and chosen_by(task.model.kernel) is None:
        with Narrator(shown=False) as told:
            return _integrated(task, replace(model, integrated=None, likely=()), told)
    return fit(
        task,
        execution,
        progress=lambda state: execution.progress(None, f"likelihood {state.evaluations}"),
    )


def predict(task: Task, model: FittedModel, execution: Execution) -> Solution:
    """Predict all fields at all targets from what is observed, (T, q)."""
    observed = task.observed
    if task.carried is not None:
        return update(
            task.carried,
            task.observations,
            task.split.observed,
            model,
            task.targets,
            execution,
            left_out=task.recalibration.errors == "leave-one-out",
        )
    if not observed.in_time:
        solver = solver_of(task.solver, observed)
        if observed.hides or model.draws_numbers:
            return predict_with_draws(
                observed,
                model,
                lambda filled, own, part: predict_fields(
                    filled, own, task.targets, solver=solver, execution=part
                ),
                execution,
            )
        return predict_fields(observed, model, task.targets, solver=solver, execution=execution)
    found = predict_in_time(
        observed,
        model,
        task.targets.points,
        solver=task.solver,
        lead_hours=task.lead_hours,
        window_hours=task.window_hours,
        execution=execution,
    )
    return found if task.times is None else found.of_times(task.times)


def solve(task: Task, priors: Priors, execution: Execution) -> Solution:
    """Predict all targets; with folds, what is held out from the others, each with a solve of its own."""
    folds, held = task.folds, task.held_out
    if not folds or held is None or held.folds is None:
        return predict(task, priors.model, execution)
    check_folds(task)
    total, k = task.targets.size // (task.times or 1), held.folds.size
    columns = [np.flatnonzero(held.folds == fold) for fold in range(folds)]
    names = [f"fold {fold + 1} of {folds}" for fold in range(folds)]
    if total > k or task.targets.sampled_at is not None:
        names.append("all points")
        columns.append(np.arange(k, total))
    found: dict[int, Solution] = {}
    # all points first: what does not fit is refused before any fold is solved
    order = sorted(range(len(names)), key=lambda number: (number < folds, number))
    for done, number in enumerate(order):
        own = execution.part(done, len(names), names[number])
        if done:  # a plan that is much like the first one is not said
            own = replace(own, on_plan=lambda plan: None)
        if number < folds:
            found[number] = predict(task.without([number]), priors.of_fold(number), own)
            continue
        found[number] = predict(_without_held_out(task, k), priors.model, own)
    tested = max(each.size for each in columns[:folds]) if len(names) > folds else None
    return _together([found[number] for number in range(len(names))], columns, total, tested)


def innovations_of(task: Task, model: FittedModel, execution: Execution) -> Innovations:
    """Compare observations with the background and with the map: Desroziers' diagnostics (math 25, T47)."""
    observed, background = task.observed, model.mean
    assert isinstance(background, Background)
    there = observed.there
    if there.size > MOST_COMPARED:
        generator = np.random.default_rng(np.random.SeedSequence(MOST_COMPARED))
        there = np.sort(generator.choice(there, size=MOST_COMPARED, replace=False))
    alone = replace(
        task,
        targets=Targets(MapPoints(observed.X[there])),
        held_out=None,
        calibrating=None,
        recalibration=NOT_ASKED,
        lead_hours=None,
        window_hours=None,
        times=None,
    )
    found = predict(alone, model, replace(execution, certifies=False, checkpoints=None, weights=None))
    X, values = observed.X[there], observed.values[:, there]
    guess = background.known_of(observed, np.arange(observed.fields))(X).T
    mean: Array = np.full(values.shape, background.innovation_mean)
    if background.estimated is not None and found.drift is not None:
        about = (np.asarray(background.estimated.basis_at(X)) @ found.drift.values).T
        mean, guess = mean + about, guess + about
    variance = np.full(there.size, model.kernel.variance)
    if (scale := model.scale(observed)) is not None:
        variance = variance * scale(X) ** 2
    noise = model.noise_of(np.broadcast_to(model.known_noise, observed.north.shape)[there])
    told = model.result is None or not {"variance", "noise_variance"}.isdisjoint(model.held)
    return Innovations.of(values - guess, values - found.mean, variance, noise, mean=mean, told=told)


def score(task: Task, priors: Priors, solution: Solution, distributions: Distributions) -> Result:
    """Compare distributions with what is held out."""
    result = Result(task, priors, solution, distributions)
    held = task.held_out
    if held is None:
        return result
    at = task.targets.of_kind("held out")
    mean, std = solution.mean[:, at], solution.std[:, at]
    scores, mixtures = unscored(held.values.shape), priors.model.integrated is not None
    transform, of_draws = task.observations.transform, solution.of_targets(at).drawn
    found = None
    if mixtures or of_draws is not None or transform is not None:
        found = Distribution.room_for(mean.shape)
    for chosen, part, model in _predicted_together(task, priors):
        parts = distributions_of_observations(
            mean[:, chosen],
            std[:, chosen],
            part.observed,
            model,
            MapPoints(held.X[chosen]),
            model.known_of(held.known_noise, held.labels)[chosen],
            of_draws=None if of_draws is None else of_draws.part(chosen),
        )
        for fields, some, distribution in parts:
            places = chosen[some]
            rows, here = np.nonzero(~np.isnan(held.values[np.ix_(fields, places)]))
            if rows.size:
                index = fields[rows], places[here]
                scored = point_scores(distribution[rows, here], held.values[index], transform=transform)
                scores.put(index, scored)
            if found is not None and not distributions.corrected:
                found.put(fields, places, distribution)
    if held.limits is not None:
        at_end = np.full(held.values.shape, False) if transform is None else held.values <= transform.end
        scores = of_limits(scores, held.limits, at_end)
    if not distributions.corrected:
        return replace(result, plain=scores, scores=scores, of_held_out=found)
    noise = priors.noise_of(held)
    plain = Gaussian(mean, np.sqrt(std**2 + noise))
    stretched = distributions.stretched_at("held out", noise)
    return replace(
        result,
        plain=scores,
        scores=distributions.scored(
            plain, held.X, held.values, folds=held.folds, stretched=stretched, transform=transform
        ),
        of_held_out=distributions.at(plain, held.X, folds=held.folds, stretched=stretched),
    )


def check_folds(task: Task) -> None:
    """Raise `DataError` where a fold leaves a time without observations: before anything is fitted."""
    split = task.split
    if task.folds and split.fold_of is not None:
        parts = [split.observed[split.fold_of == fold] for fold in range(task.folds)]
        check_left(task.observed, parts, "a fold")


def check_left(observed: Observations, parts: Iterable[Indices], what: str) -> None:
    """Raise `DataError` where a time has no observations without one of these parts of the places.

    Nor may limits of detection be all that is left of a time: nothing says then how far below they are.
    """
    present = observed.present
    seen, text = present, "observation"
    if observed.limits is not None:
        seen, text = present & ~observed.limits, "measured value"
    values, measured = present.sum(axis=1), seen.sum(axis=1)
    for left in parts:
        empty = present[:, left].sum(axis=1) == values
        empty |= (measured > 0) & (seen[:, left].sum(axis=1) == measured)
        if empty.any():
            when, name = observed.times, "a field"
            if when.size == empty.size and not np.isnat(when[empty.argmax()]):
                name = f"the time {shown_time(when[empty.argmax()])}"
            raise DataError(
                f"{name} has no {text} without {what} that is left out, and nothing else predicts that; "
                "expected observations elsewhere at each time. Leave such times out, take fewer folds or "
                "smaller blocks, or leave error bars as they are.",
                key="empty-fold",
            )


def _predicted_together(task: Task, priors: Priors) -> Iterator[tuple[Indices, Task, FittedModel]]:
    """Yield what is held out by the observations and the prior that predict it."""
    held = task.held_out
    assert held is not None
    # of Gaussian distributions only the noise differs, where folds have fits of their own
    mixed = priors.model.integrated is not None
    if held.folds is None or not (mixed or priors.of_folds):
        yield np.arange(held.X.shape[0]), task, priors.model
        return
    for fold in range(task.folds):
        yield np.flatnonzero(held.folds == fold), task.without([fold]), priors.of_fold(fold)


def _without_held_out(task: Task, k: int) -> Task:
    """Leave what is predicted from all observed points."""
    points, q = task.targets.points, task.targets.size
    kept = np.arange(q)
    if task.times is not None:
        kept = kept.reshape(task.times, -1)[:, k:].ravel()
        kinds = task.targets.kinds
    else:
        kept, kinds = kept[k:], task.targets.kinds
    shifted = {name: slice(at.start - k, at.stop - k) for name, at in kinds.items() if at.start >= k}
    like = task.targets.mean_like
    targets = replace(
        task.targets,
        points=points.part(kept),
        kinds=shifted,
        mean_like=None if like is None else like - k,
    )
    return replace(task, targets=targets, held_out=None, recalibration=NOT_ASKED)


def _together(solutions: list[Solution], columns: list[Indices], total: int, tested: int | None) -> Solution:
    """Put the columns of several solves in their places; one that was done early keeps its last step."""
    steps = []
    for iteration in range(max(len(solution.steps) for solution in solutions)):
        states = [solution.steps[min(iteration, len(solution.steps) - 1)] for solution in solutions]
        steps.append(
            SolveStep(
                iteration=max(state.iteration for state in states),
                mean=_placed([state.mean for state in states], columns, total),
                std=_placed([state.std for state in states], columns, total),
                seconds=sum(state.seconds for state in states),
            )
        )
    unfinished = [solution.computational_std for solution in solutions]
    known = [values for values in unfinished if values is not None]
    last = solutions[-1]
    said = f"{len(solutions)} such solves, one for each fold"
    if tested is not None:
        said = (
            f"{len(solutions)} solves, one with all points and one with {counted(tested, 'test point')} for "
            "each fold"
        )
    return Solution(
        steps=tuple(steps),
        status=Status.worst(solution.status for solution in solutions),
        plan=(*solutions[0].plan, said),
        solvers=tuple(dict.fromkeys(name for each in solutions for name in each.solvers)),
        plans=tuple(plan for each in solutions for plan in each.plans),
        executor=last.executor,
        fine_mean=last.fine_mean,
        sampled=last.sampled,
        drift=last.drift,
        drawn=_together_drawn(solutions, columns, total),
        quantiles=_together_quantiles(solutions, columns, total),
        moments=_together_moments(solutions, columns, total),
        computational_std=_placed(known, columns, total) if len(known) == len(unfinished) else None,
        computational_std_known=all(each.computational_std_known for each in solutions),
    )


def _together_drawn(solutions: list[Solution], columns: list[Indices], total: int) -> DrawnFields | None:
    """Put what draws predict in its columns; of a solve without censored values all draws are the same."""
    some = [solution.drawn for solution in solutions if solution.drawn is not None]
    if not some:
        return None
    T, D = some[0].means.shape[:2]
    K = max(len(own.beside) for own in some)
    means, scale, beside = np.empty((T, D, total)), np.empty((T, K, total)), np.zeros((K, total))
    for solution, at in zip(solutions, columns, strict=True):
        own = solution.drawn
        means[..., at] = solution.mean[:, None] if own is None else own.means
        scale[..., at] = solution.std[:, None] if own is None else own.scale
        beside[:, at] = 0.0 if own is None else own.beside
    return DrawnFields(means, scale, beside)


def _together_moments(solutions: list[Solution], columns: list[Indices], total: int) -> Array | None:
    """Put means and standard deviations of values in their columns, where all solves have them."""
    moments = [solution.moments for solution in solutions if solution.moments is not None]
    if len(moments) < len(solutions):
        return None
    found = np.empty((*moments[0].shape[:2], total))
    for own, at in zip(moments, columns, strict=True):
        found[..., at] = own
    return found


def _together_quantiles(solutions: list[Solution], columns: list[Indices], total: int) -> Array | None:
    """Put quantiles (T, L, q) of fields in their columns; those of a normal distribution where it is one."""
    if all(solution.quantiles is None for solution in solutions):
        return None
    scores = ndtri(np.array(QUANTILE_LEVELS))[:, None]
    found = np.empty((len(solutions[0].mean), len(QUANTILE_LEVELS), total))
    for solution, at in zip(solutions, columns, strict=True):
        own = solution.quantiles
        found[..., at] = solution.mean[:, None] + solution.std[:, None] * scores if own is None else own
    return found


def _placed(parts: list[Array], columns: list[Indices], total: int) -> Array:
    """Put values (T, q) of several solves into their columns."""
    values = np.empty((len(parts[0]), total))
    for part, at in zip(parts, columns, strict=True):
        values[:, at] = part
    return values
