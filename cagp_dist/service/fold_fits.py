"""Numbers of the prior for each fold of a cross-validation, from values that the fold does not hold.

A fold that has a part in the numbers that predict it is not held out. Fits take longer than most solves, so
that the folds are halved: each half is predicted with numbers that were fitted to the other. Blocks of places
stay together, and so the points of a half are as dense as all of them. Where places are few, each fold has a
fit of its own.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cagp_dist.arrays import Indices
from cagp_dist.prior import Prior
from cagp_dist.runtime import Executor
from cagp_dist.service.job_fit import fit_prior
from cagp_dist.service.task import PreparedJob, fit_mean
from cagp_dist.solvers.engine.solve_checkpoints import SolveCheckpoints

FEW_PLACES = 400
"""Observed places up to which each fold has a fit of its own: a second for all of them, or two."""


def numbers_of_folds(places: int, folds: int) -> list[Indices]:
    """Group the folds: those of a group are predicted with numbers fitted to all other groups."""
    groups = folds if places <= FEW_PLACES else 2
    return np.array_split(np.arange(folds), groups)


def fit_folds(
    task: PreparedJob,
    *,
    executor: Executor,
    memory_limit_bytes: int | None = None,
    progress: Callable[[float | None, str], None],
    checkpoints: SolveCheckpoints | None = None,
) -> tuple[Prior, ...]:
    """Fit the numbers of the prior for each fold, the mean of the prior among them.

    Whatever a search has reached is taken: a number on its bound, or one that few places do not determine, is
    no worse a guess for having been found without the fold.
    """
    design = task.design
    if design.folds is None:
        return ()
    groups = numbers_of_folds(design.test.size, int(design.folds.max()) + 1)
    priors: list[Prior] = []
    for number, group in enumerate(groups):

        def report(part: float | None, text: str, number: int = number) -> None:
            progress(part, f"without part {number + 1} of {len(groups)} of the folds, {text}")

        left = design.test[np.isin(design.folds, group)]
        train = design.train[~np.isin(design.train, left)]
        rest = replace(
            task,
            design=replace(design, train=train),
            mean=fit_mean(task.job, task.family, task.points, train),
        )
        fitted = fit_prior(
            rest,
            executor=executor,
            memory_limit_bytes=memory_limit_bytes,
            progress=report,
            checkpoints=checkpoints,
        )
        priors += [fitted.prior] * group.size
    return tuple(priors)
