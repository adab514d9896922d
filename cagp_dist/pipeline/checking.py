"""Which observations do not fit what all others say, at a given share of false flags (math 27)."""

from dataclasses import dataclass, replace

import numpy as np

from cagp_dist.arrays import Array, Mask
from cagp_dist.checks import check_positive
from cagp_dist.errors import DataError
from cagp_dist.kernels import chosen_by
from cagp_dist.likelihood.observed import spread_cells
from cagp_dist.pipeline.censoring import check_seen
from cagp_dist.pipeline.field_solves import Execution
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.left_out import LeftOutNear
from cagp_dist.pipeline.narration import Narrator
from cagp_dist.pipeline.observations import Observations
from cagp_dist.pipeline.outliers import contamination
from cagp_dist.pipeline.steps import fit
from cagp_dist.pipeline.task import Task

ROUNDS = 4  # fits without what looks wrong, at most
# Places by which it is found what looks wrong, and to which kernel and noise are fitted, in cells of so many
FEW, MANY, MANY_MORE, CELL = 500, 1_000, 5_000, 25
FEWEST_DIFFERENT = 3  # Values beside those that are all the same
MOST_FLAGGED = 0.5  # part of all values from where on the model is at fault, not they
DRAWN = 0x636865636B  # names the stream of random numbers


@dataclass(frozen=True, eq=False)
class Checked:
    """What all values that are not flagged say of each value, (T, n); NaN where there is none."""

    flagged: Mask
    expected: Array
    std: Array  # of a value about that, noise included
    model: FittedModel
    rate: float

    @property
    def count(self) -> int:
        """Values that are flagged."""
        return int(np.count_nonzero(self.flagged))


def check_observations(
    task: Task, rate: float, execution: Execution, *, narrator: Narrator | None = None
) -> Checked:
    """Flag values that all others contradict, so that about a ``rate`` of the flags is false.

    Kernel and noise are fitted without what looks wrong. Then flags are those of Benjamini and Hochberg, by
    the distribution of each value given the others: the worst of a neighbourhood is left out, what it made
    look wrong is predicted again, and so on until no more are flagged. That the rate is then kept is no
    theorem but what simulation shows.
    """
    check_positive("rate", rate, most=0.5)
    observed = task.observed
    check_seen(observed, "limits of detection, which are not checked; expected a measured value")
    if observed.count < 10:
        raise DataError(
            f"there are {observed.count} values, of which none can be told to be wrong by the others; "
            "expected at least 10.",
            key="few-to-check",
        )
    different, counts = np.unique(observed.values[observed.present], return_counts=True)
    if counts.max() > observed.count - FEWEST_DIFFERENT:
        raise DataError(
            f"{counts.max():,} of {observed.count:,} values are {different[counts.argmax()]:g}, so that "
            "nothing is known of how values differ; look at the others by eye.",
            key="constant-to-check",
        )
    task = replace(task, model=replace(task.model, hyperparameters="plug-in"))
    model = fit_without_gross_errors(task, execution, narrator=narrator)
    left = LeftOutNear(observed, model, execution.executor)
    forget_gross_errors(left)
    degrees = max(observed.count - 3.0, 1.0)
    while True:
        errors, variance = left.errors()
        surprise, chance = _chances(errors, variance, degrees)
        wrong = chance <= threshold(chance[~np.isnan(chance)], rate)
        more = left.worst(np.where(wrong & ~left.forgotten, surprise, 0.0))
        if not more.any():
            break
        left.forget(left.forgotten | more)
        if np.count_nonzero(left.forgotten) > MOST_FLAGGED * observed.count:
            raise _most_are_flagged(f"more than half of the {observed.count:,} values contradict the others")
    left.forget(left.forgotten & wrong)
    errors, variance = left.errors()
    return Checked(left.forgotten, observed.values - errors, np.sqrt(variance), model, rate)


def threshold(chances: Array, rate: float) -> float:
    """Chance up to which tests are flagged by Benjamini & Hochberg (1995); -1 where none is."""
    ordered = np.sort(chances)
    kept = np.flatnonzero(ordered <= rate * np.arange(1, ordered.size + 1) / ordered.size)
    return float(ordered[kept[-1]]) if kept.size else -1.0


def fit_without_gross_errors(
    task: Task, execution: Execution, *, narrator: Narrator | None = None
) -> FittedModel:
    """Fit kernel and noise without values that are more likely wrong than not.

    These are drawn from what the others predict, so that fields keep their places. Which they are is found
    by few values, and the numbers by some more, unless the kernel is one of time, whose fits choose for
    themselves.
    """
    given = task.model.prior is not None or task.model.noise_variance is not None
    if given or task.fitted_to is not None:
        return fit(task, execution, narrator=narrator)
    whole = task.observed.in_time
    some = task.observed if whole else some_places(task.observed, FEW)
    chooses = not whole and chosen_by(task.model.kernel) is not None
    first = replace(task, model=replace(task.model, kernel="matern32")) if chooses else task
    model = fit(replace(first, fitted_to=some), execution, narrator=narrator)
    wrong: Mask = np.zeros(some.values.shape, dtype=np.bool_)
    for _ in range(1 if whole else ROUNDS):
        left = LeftOutNear(some, model.of_observations(some, task.model.noise_std), execution.executor)
        forget_gross_errors(left)
        if (left.forgotten == wrong).all():
            break
        wrong = left.forgotten
        model = fit(replace(first, fitted_to=_drawn(some, left)), execution, narrator=narrator)
    if whole or (not chooses and some.north.size == task.observed.north.size):
        return model
    many = some_places(task.observed, MANY if task.observed.there.size < MANY_MORE else MANY_MORE)
    left = LeftOutNear(many, model.of_observations(many, task.model.noise_std), execution.executor)
    forget_gross_errors(left)
    return fit(replace(task, fitted_to=_drawn(many, left)), execution, narrator=narrator)


def forget_gross_errors(left: LeftOutNear) -> None:
    """Forget values that are more likely wrong than not, but for those that others made look wrong."""
    for _ in range(2):
        errors, variance = left.errors()
        wrong: Mask = np.nan_to_num(contamination(errors, variance).probability) > 0.5
        present = np.isfinite(errors)
        if not (present & ~wrong)[present.any(axis=1)].any(axis=1).all():
            raise _most_are_flagged("all values of a field contradict each other")
        left.forget(wrong)


def _most_are_flagged(what: str) -> DataError:
    return DataError(
        f"{what}, so that these, or the model, are at fault; expected observations of one quantity in one "
        "unit, most of which are right. Look at the units and the columns, or name a kernel and a mean.",
        key="most-are-flagged",
    )


def some_places(observed: Observations, most: int) -> Observations:
    """Take about so many of the places, as cells of neighbours, or all."""
    there = observed.there
    if there.size <= most:
        return observed
    return observed.at(np.sort(there[spread_cells(observed.X[there], most, cell_size=CELL)]))


def _drawn(observed: Observations, left: LeftOutNear) -> Observations:
    """Observations, and draws from what the others predict instead of what is forgotten."""
    errors, variance = left.errors()
    generator = np.random.default_rng(np.random.SeedSequence(int(left.forgotten.sum()), spawn_key=(DRAWN,)))
    drawn = observed.values - errors + np.sqrt(variance) * generator.standard_normal(errors.shape)
    return replace(observed, values=np.where(left.forgotten, drawn, observed.values))


def _chances(errors: Array, variance: Array, degrees: float) -> tuple[Array, Array]:
    """Errors in standard deviations, and the chance of larger ones: Student's, as the variance is fitted."""
    from scipy.special import stdtr

    surprise = np.asarray(np.abs(errors) / np.sqrt(variance), dtype=np.float64)
    return surprise, np.asarray(2.0 * stdtr(degrees, -surprise), dtype=np.float64)
