"""The one path from observations to a result, whoever asks: five steps, each a function of a `Task`.

`fit` finds the prior, `predict` the field at all targets and what is held out, `out_of_sample` the errors of
predictions that did not use what they are compared with, `recalibrate` corrects distributions by these, and
`score` compares them with what is held out. `solve_task` does all of them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.calibration.recalibration.sharp import FittedSharp
from cagp_dist.calibration.verification.scores import PointScores, point_scores, unscored
from cagp_dist.errors import ArgumentError
from cagp_dist.kernels import Family, Kernel, chosen_by
from cagp_dist.likelihood.exact.integrated import Hyperparameters
from cagp_dist.likelihood.fit_result import FitProgress
from cagp_dist.pipeline.field_solves import Execution, Solution, SolveStep
from cagp_dist.pipeline.fitted_model import FittedModel, KernelLike, fit_model, given_model, known_noise
from cagp_dist.pipeline.integration import (
    distributions_of_observations,
    predict_fields,
    with_numbers_integrated,
)
from cagp_dist.pipeline.left_out import leave_one_out
from cagp_dist.pipeline.map_mean import MeanLike
from cagp_dist.pipeline.map_points import MapPoints, Targets
from cagp_dist.pipeline.map_solves import solver_of
from cagp_dist.pipeline.maps_at_times import (
    COMPARED_IN_TIME,
    check_kernel,
    check_mean,
    fit_in_space_and_time,
    predict_in_time,
)
from cagp_dist.pipeline.narration import Narrator
from cagp_dist.pipeline.observations import Observations
from cagp_dist.pipeline.recalibration import (
    NOT_ASKED,
    Distribution,
    Distributions,
    OutOfSampleErrors,
    Recalibration,
    fit_distributions,
)
from cagp_dist.pipeline.split import Split
from cagp_dist.predictive import Gaussian
from cagp_dist.prior import Prior
from cagp_dist.solvers import Solver, Status
from cagp_dist.text import counted

# Observed places up to which each fold has a fit of its own: a second for all of them, or two
FEW_PLACES = 400


@dataclass(frozen=True, eq=False)
class ModelSettings:
    """What is said of kernel, noise and mean; the rest is fitted."""

    kernel: KernelLike
    mean: MeanLike
    prior: Prior | None = None  # of which everything is given
    fixed: Mapping[str, Sequence[float]] = field(default_factory=dict)  # lengthscale and variance, by part
    noise_std: float | None = None  # known of all observations
    nugget_std: float | None = None  # beside known noise; None: fitted
    noise_variance: float | None = None  # beside known noise, where the numbers of the kernel are given too
    hyperparameters: Hyperparameters = "plug-in"
    obstacle: str | None = None  # why numbers are not integrated over, for people
    in_time: Sequence[Family | None] = COMPARED_IN_TIME  # kernels in time that are compared


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Observations that the solve of a task does not use, or of folds that of their own does not."""

    values: Array  # (T, k), NaN where there is none
    X: Array  # positions (k, p)
    known_noise: Array  # variance (k,), 0 where nothing is known of it
    folds: Indices | None = None  # (k,) from the others of which each is predicted
    blocks: Indices | None = None  # (k,) that were held out as a whole
    # places (n, p) and values (T, n) that predict them, where these are points in space and time
    training: tuple[Array, Array] | None = None


@dataclass(frozen=True, eq=False)
class Task:
    """What is asked: frozen, and the same whoever asks."""

    observations: Observations  # all, held out ones too: fields, or points in space and time
    split: Split  # which of these are observed, and in folds which fold each is of
    targets: Targets  # among them those of kind "held out" and "calibration", where there are any
    model: ModelSettings
    solver: str | Solver = "auto"
    fold_solver: str | Solver = "auto"
    recalibration: Recalibration = NOT_ASKED
    held_out: HeldOut | None = None  # scored; of the kind "held out"
    calibrating: HeldOut | None = None  # of the kind "calibration"
    lead_hours: float | None = None  # how long before a target its observations end; None: later ones count
    window_hours: float | None = None  # how far in time from a target they may lie
    fitted_to: Observations | None = None  # whose values decide on the numbers, if not the observed ones
    refits: bool = True  # whether folds have fits of their own
    hours: int = 0  # of points in space and time, how many times all targets have
    # of a field that goes on from a state: instead of `predict`
    updated: "Callable[[Task, FittedModel, Execution], Solution] | None" = None

    @cached_property
    def observed(self) -> Observations:
        """Observations that the solve uses; the others are forgotten."""
        everything = self.observations
        if self.split.observed.size == everything.north.size:
            return everything
        return everything.only(self.split.observed)

    @property
    def folds(self) -> int:
        """How many folds; 0 without any."""
        folds = None if self.held_out is None else self.held_out.folds
        return 0 if folds is None else int(folds.max()) + 1

    @property
    def sees_all_times(self) -> bool:
        """Whether all observations inform each target, whenever they are of."""
        return self.lead_hours is None and self.window_hours is None

    def without(self, folds: Sequence[int]) -> "Task":
        """Predict the places of some folds from those of the others."""
        held = self.held_out
        assert held is not None
        assert held.folds is not None
        left = np.isin(held.folds, folds)
        at = np.flatnonzero(left)
        points = self.targets.points
        if self.hours:  # all of them at each time
            q = points.size // self.hours
            at = (np.arange(self.hours)[:, None] * q + at).ravel()
        return replace(
            self,
            split=self.split.without(folds),
            targets=Targets(points.part(at), {"held out": slice(0, int(left.sum()))}),
            solver=self.fold_solver,
            held_out=HeldOut(held.values[:, left], held.X[left], held.known_noise[left]),
            recalibration=NOT_ASKED,
            calibrating=None,
        )


@dataclass(frozen=True, eq=False)
class Fitted:
    """The prior, and that of each fold where they differ."""

    model: FittedModel
    of_folds: tuple[FittedModel, ...] = ()

    def of_fold(self, number: int) -> FittedModel:
        """Prior by which a fold is predicted."""
        return self.of_folds[number] if self.of_folds else self.model


@dataclass(frozen=True, eq=False)
class Result:
    """What came of a task."""

    task: Task
    fitted: Fitted
    solution: Solution  # of all targets, those of folds from the others
    distributions: Distributions  # what corrects distributions of observations; perhaps nothing
    plain: PointScores | None = (
        None  # (T, k) of what is held out, before that; NaN where nothing was observed
    )
    scores: PointScores | None = None  # after it
    of_held_out: Distribution | None = None  # distributions there, where `has_distributions`

    @property
    def corrected(self) -> bool:
        """Whether distributions were recalibrated."""
        return self.distributions.corrected

    @property
    def has_distributions(self) -> bool:
        """Whether an observation has another distribution than the normal one of mean and std."""
        return self.corrected or self.fitted.model.integrated is not None

    def distribution_at(self, kind: str | None = None) -> Distribution:
        """Distribution (T, q) of an observation with the usual noise at targets of a kind, or all."""
        at = slice(None) if kind is None else self.task.targets.of_kind(kind)
        last, targets = self.solution.steps[-1], self.task.targets.points
        some = targets if kind is None else targets.part(np.arange(targets.size)[at])
        return self.distribution_of(last.mean[:, at], last.std[:, at], some)

    def distribution_of(self, mean: Array, std: Array, targets: MapPoints) -> Distribution:
        """Distribution (T, q) of an observation with the usual noise, where the field has mean and std."""
        model, places = self.fitted.model, self.task.observations.positions.shape[1]
        X = targets.X[: mean.shape[1], :places]
        if self.corrected:
            told: Mask = np.asarray(~np.isnan(mean).any(axis=0))  # not before an observation
            plain = Gaussian(
                mean[:, told], np.sqrt(std[:, told] ** 2 + model.usual_noise(self.task.observed))
            )
            return self.distributions.at(plain, X[told]).among(told)
        known = np.full(mean.shape[1], model.usual_known_noise(self.task.observed))
        return _published(mean, std, self.task.observed, model, targets, known)


def fit(
    task: Task,
    execution: Execution,
    *,
    narrator: Narrator | None = None,
    progress: Callable[[FitProgress], None] | None = None,
) -> FittedModel:
    """Find kernel and noise: given, or fitted by maximum likelihood, or with probabilities beside."""
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
        return FittedModel(asked.kernel, asked.mean, known, asked.noise_variance)
    with Narrator(shown=False) if narrator is None else nullcontext(narrator) as told:
        if decide.in_time:
            model = fit_in_space_and_time(
                decide,
                kernel=asked.kernel,
                mean=asked.mean,
                noise_std=asked.noise_std,
                resources=execution,
                narrator=told,
                in_time=asked.in_time,
            )
        else:
            model = fit_model(
                decide,
                Split(decide.there),
                kernel=asked.kernel,
                mean=asked.mean,
                fixed=asked.fixed,
                noise_std=asked.noise_std,
                nugget_std=asked.nugget_std,
                resources=execution,
                narrator=told,
                progress=progress,
                checkpoints=execution.checkpoints,
            )
        if task.fitted_to is not None:
            model = model.of_observations(observed, asked.noise_std)
        return _integrated(task, model, told)


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
    given = task.model.prior is not None or task.model.noise_variance is not None
    if not task.folds or not task.refits or given or task.fitted_to is not None:
        return ()
    fits = fits_of_folds(task.split.observed.size, task.folds, in_time=task.observations.in_time)
    groups = np.array_split(np.arange(task.folds), fits)
    found: list[FittedModel] = []
    for number, group in enumerate(groups):
        name = f"without part {number + 1} of {len(groups)} of the folds"
        own = replace(task.without([int(fold) for fold in group]), solver=task.solver)
        found += [_fit_of_fold(own, model, execution.part(number, len(groups), name))] * group.size
    return tuple(found)


def fits_of_folds(places: int, folds: int, *, in_time: bool) -> int:
    """Give the number of fits for the folds of so many places; see `fit_folds`."""
    return folds if places <= FEW_PLACES and not in_time else 2


def _fit_of_fold(task: Task, model: FittedModel, execution: Execution) -> FittedModel:
    """Fit the prior of some folds; probabilities of numbers need none but where the kernel is chosen."""
    # whether numbers are integrated over is decided for all together
    way: Hyperparameters = "plug-in" if model.integrated is None else "integrate"
    task = replace(task, model=replace(task.model, hyperparameters=way))
    if model.integrated is not None and chosen_by(task.model.kernel) is None:
        with Narrator(shown=False) as told:
            return _integrated(task, replace(model, integrated=None), told)
    return fit(
        task,
        execution,
        progress=lambda state: execution.progress(None, f"likelihood {state.evaluations}"),
    )


def predict(task: Task, model: FittedModel, execution: Execution) -> Solution:
    """Predict all fields at all targets from what is observed, (T, q)."""
    observed = task.observed
    if task.updated is not None:
        return task.updated(task, model, execution)
    if not observed.in_time:
        solver = solver_of(task.solver, observed)
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
    return found.of_times(task.hours) if task.hours else found


def solve(task: Task, fitted: Fitted, execution: Execution) -> Solution:
    """Predict all targets; with folds, what is held out from the others, each with a solve of its own."""
    folds, held = task.folds, task.held_out
    if not folds or held is None or held.folds is None:
        return predict(task, fitted.model, execution)
    total, k = task.targets.size // max(task.hours, 1), held.folds.size
    columns = [np.flatnonzero(held.folds == fold) for fold in range(folds)]
    names = [f"fold {fold + 1} of {folds}" for fold in range(folds)]
    if total > k or task.targets.sampled_at is not None:
        names.append("all points")
        columns.append(np.arange(k, total))
    found: dict[int, Solution] = {}
    # all points first: what does not fit is refused before any fold is solved
    for done, number in enumerate([len(names) - 1, *range(len(names) - 1)]):
        own = execution.part(done, len(names), names[number])
        if done:  # a plan that is much like the first one is not said
            own = replace(own, on_plan=lambda plan: None)
        if number < folds:
            found[number] = predict(_fold(task, number), fitted.of_fold(number), own)
            continue
        found[number] = predict(_without_held_out(task, k), fitted.model, own)
    tested = max(each.size for each in columns[:folds]) if len(names) > folds else None
    return _together([found[number] for number in range(len(names))], columns, total, tested)


def out_of_sample(
    task: Task, fitted: Fitted, solution: Solution, execution: Execution
) -> OutOfSampleErrors | None:
    """Give errors of predictions that did not use what they are compared with; None if none are asked for."""
    last, X = solution.steps[-1], task.observations.positions
    match task.recalibration.errors:
        case "points" if task.calibrating is not None:
            held, at = task.calibrating, task.targets.of_kind("calibration")
            std = np.sqrt(last.std[:, at] ** 2 + fitted.model.noise_of(held.known_noise))
            observed = task.observed
            return OutOfSampleErrors(
                Gaussian(last.mean[:, at], std),
                held.values,
                held.X,
                training=held.training or (X[observed.there], observed.values[:, observed.there]),
                blocks=held.blocks,
            )
        case "folds" if task.held_out is not None:
            held, at = task.held_out, task.targets.of_kind("held out")
            std = np.sqrt(last.std[:, at] ** 2 + noise_held_out(task, fitted))
            return OutOfSampleErrors(Gaussian(last.mean[:, at], std), held.values, held.X, held.folds)
        case "leave-one-out":
            execution.progress(1.0, "each observation from all others")
            found = solution.left_out or leave_one_out(task.observed, fitted.model, task.solver, execution)
            assert found is not None  # decided before
            places = task.observed.there
            mean, std = (each[:, places] for each in (found.mean, found.std))
            told = ~np.isnan(mean)  # nothing was observed elsewhere
            distribution = Gaussian(np.where(told, mean, 0.0), np.where(told, std, 1.0))
            values = np.where(told, task.observed.values[:, places], np.nan)
            return OutOfSampleErrors(distribution, values, X[places])
    return None


def recalibrate(
    task: Task, errors: OutOfSampleErrors | None, sharp: FittedSharp | None = None
) -> Distributions:
    """Learn from these errors what corrects distributions of observations; a sharp GP did so already."""
    return fit_distributions(task.recalibration, errors, sharp)


def score(task: Task, fitted: Fitted, solution: Solution, distributions: Distributions) -> Result:
    """Compare distributions with what is held out."""
    result = Result(task, fitted, solution, distributions)
    held = task.held_out
    if held is None:
        return result
    at, last = task.targets.of_kind("held out"), solution.steps[-1]
    mean, std = last.mean[:, at], last.std[:, at]
    scores, mixed = unscored(held.values.shape), fitted.model.integrated is not None
    found = Distribution.room_for(mean.shape) if mixed else None
    for chosen, part, model in _predicted_together(task, fitted):
        parts = distributions_of_observations(
            mean[:, chosen],
            std[:, chosen],
            part.observed,
            model,
            MapPoints(held.X[chosen]),
            held.known_noise[chosen],
        )
        for fields, some, distribution in parts:
            places = chosen[some]
            rows, here = np.nonzero(~np.isnan(held.values[np.ix_(fields, places)]))
            if rows.size:
                index = fields[rows], places[here]
                scores.put(index, point_scores(distribution[rows, here], held.values[index]))
            if found is not None:
                found.put(fields, places, distribution)
    # a sharp GP has standard deviations of its own at each point, with which it is scored
    if not distributions.corrected or isinstance(distributions.everywhere, FittedSharp):
        return replace(result, plain=scores, scores=scores, of_held_out=found)
    plain = Gaussian(mean, np.sqrt(std**2 + noise_held_out(task, fitted)))
    return replace(
        result,
        plain=scores,
        scores=distributions.scored(plain, held.X, held.values, folds=held.folds),
        of_held_out=distributions.at(plain, held.X, folds=held.folds),
    )


def solve_task(
    task: Task,
    execution: Execution,
    *,
    narrator: Narrator | None = None,
) -> Result:
    """Do all five steps."""
    model = fit(task, execution, narrator=narrator)
    fitted = Fitted(model, fit_folds(task, model, execution))
    solution = solve(task, fitted, execution)
    errors = out_of_sample(task, fitted, solution, execution)
    return score(task, fitted, solution, recalibrate(task, errors))


def noise_held_out(task: Task, fitted: Fitted) -> Array:
    """Noise variance (k,) of what is held out, by the prior with which each was predicted."""
    held = task.held_out
    assert held is not None
    noise = fitted.model.noise_of(held.known_noise)
    if held.folds is not None and fitted.of_folds:
        for fold, model in enumerate(fitted.of_folds):
            own = held.folds == fold
            noise[own] = model.noise_of(held.known_noise[own])
    return noise


def _predicted_together(task: Task, fitted: Fitted) -> Iterator[tuple[Indices, Task, FittedModel]]:
    """Yield what is held out by the observations and the prior that predict it."""
    held = task.held_out
    assert held is not None
    # of Gaussian distributions only the noise differs, where folds have fits of their own
    mixed = fitted.model.integrated is not None
    if held.folds is None or not (mixed or fitted.of_folds):
        yield np.arange(held.X.shape[0]), task, fitted.model
        return
    for fold in range(task.folds):
        yield np.flatnonzero(held.folds == fold), _fold(task, fold), fitted.of_fold(fold)


def _fold(task: Task, number: int) -> Task:
    """Give the task of a fold; `ArgumentError` if a field has nothing left."""
    part = task.without([number])
    empty = ~part.observed.present.any(axis=1)
    if empty.any():
        raise ArgumentError(
            f"without fold {number} field {int(empty.argmax())} is empty; expected an observation in another "
            "fold. Use fewer folds, or smaller blocks.",
            key="empty-fold",
        )
    return part


def _without_held_out(task: Task, k: int) -> Task:
    """Leave what is predicted from all observed points."""
    points, q = task.targets.points, task.targets.size
    kept = np.arange(q)
    if task.hours:
        kept = kept.reshape(task.hours, -1)[:, k:].ravel()
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
        computational_std=_placed(known, columns, total) if len(known) == len(unfinished) else None,
        computational_std_known=all(each.computational_std_known for each in solutions),
    )


def _placed(parts: list[Array], columns: list[Indices], total: int) -> Array:
    """Put values (T, q) of several solves into their columns."""
    values = np.empty((len(parts[0]), total))
    for part, at in zip(parts, columns, strict=True):
        values[:, at] = part
    return values


def _published(
    mean: Array, std: Array, observed: Observations, model: FittedModel, targets: MapPoints, known: Array
) -> Distribution:
    """Distributions (T, q) of observations."""
    found = Distribution.room_for(mean.shape)
    parts = distributions_of_observations(mean, std, observed, model, targets, known)
    for fields, some, distribution in parts:
        found.put(fields, some, distribution)
    return found
