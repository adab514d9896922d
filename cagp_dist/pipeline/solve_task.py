"""The one path from observations to a result, whoever asks.

::

    Task --fit--> FittedModel --fit_folds--> Priors --solve--> Solution
         --out_of_sample, learn--> Distributions --score--> Result

A fit stands by itself: a call is fitted once and asked many times, and a job says of its fit what it
publishes. The other steps are `solve_task`. `cagp_dist.krige` and `cagp_dist.run` differ in how they build
a `Task`, in where its steps run and are shown, and in what they write of the `Result`.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal, Protocol, TypeAlias, TypeVar

from cagp_dist.pipeline.background import Background, Innovations
from cagp_dist.pipeline.cross_validation import errors_of_folds, out_of_sample
from cagp_dist.pipeline.field_solves import Execution, Solution
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.recalibration import Distributions, OutOfSampleErrors, learn_distributions
from cagp_dist.pipeline.steps import fit_folds, innovations_of, score, solve
from cagp_dist.pipeline.task import Priors, Result, Task
from cagp_dist.runtime import SerialExecutor
from cagp_dist.text import counted

T = TypeVar("T")

Step: TypeAlias = Literal["fits of folds", "solve", "innovations", "errors", "scores"]

Learn: TypeAlias = Callable[[Task, Priors, OutOfSampleErrors | None], Distributions]


class Steps(Protocol):
    """Where the steps of a task run, and who sees them."""

    def __call__(self, name: Step, do: Callable[[Execution], T], /, *, about: Callable[[T], str]) -> T:
        """Do a step, again where its workers are lost; ``about`` sums up what came of it."""


def solve_task(task: Task, model: FittedModel, steps: Steps, *, learn: Learn | None = None) -> Result:
    """Do what is asked: solve, correct distributions by errors, and score what is held out.

    Parameters
    ----------
    task : Task
        What is asked.
    model : FittedModel
        The prior, as `cagp_dist.pipeline.steps.fit` gives it.
    steps : Steps
        Does each step.
    learn : callable, optional
        What distributions learn from the errors; by default a recalibration, if the task has one.

    Returns
    -------
    Result
    """
    fits: tuple[FittedModel, ...] = ()
    if task.fits_folds:
        fits = steps("fits of folds", partial(fit_folds, task, model), about=_fits)
    priors = Priors(model, fits)
    solution = steps("solve", partial(solve, task, priors), about=Solution.line)
    innovations = None
    if isinstance(model.mean, Background):
        innovations = steps("innovations", partial(innovations_of, task, model), about=Innovations.line)
    errors, of_folds = None, None
    if task.recalibration.errors == "points":  # which the solve has predicted
        errors = out_of_sample(task, priors, solution, Execution(SerialExecutor()))
    elif task.recalibration.errors != "none":
        errors = steps("errors", partial(out_of_sample, task, priors, solution), about=_errors)
        of_folds = errors_of_folds(task, priors, solution)
    distributions = None if learn is None else learn(task, priors, errors)

    def scored(execution: Execution) -> Result:
        learned = distributions or learn_distributions(task.recalibration, errors, of_folds)
        return score(task, priors, solution, learned)

    return replace(steps("scores", scored, about=lambda _: ""), innovations=innovations)


def _fits(models: tuple[FittedModel, ...]) -> str:
    """Say how many fits there were."""
    fits = Priors(models[0], models).fits_of_folds if models else 0
    return f"{counted(fits, 'fit')}, each without the folds that it predicts"


def _errors(found: OutOfSampleErrors | None) -> str:
    """Say how many errors there are."""
    return "" if found is None else counted(found.observed.shape[1], "place")
