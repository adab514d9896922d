"""What a job has found, and the distributions that it publishes: recalibrated by held-out errors."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Indices
from cagp_dist.calibration.recalibration.corrected import corrected_distributions, in_parts
from cagp_dist.calibration.recalibration.local_scale import FittedLocalScale, LocalScale
from cagp_dist.calibration.recalibration.methods import RECALIBRATIONS, Fitted, Recalibration, Unchanged
from cagp_dist.calibration.recalibration.sharp import FittedSharp
from cagp_dist.calibration.verification.scores import PointScores, point_scores, unscored
from cagp_dist.errors import ArgumentError, ConfigurationError
from cagp_dist.pipeline.defaults import QUANTILE_LEVELS
from cagp_dist.pipeline.field_solves import Solution
from cagp_dist.predictive import Gaussian, Predictive
from cagp_dist.service.recalibration_plan import NOT_ASKED, Recalibrating
from cagp_dist.service.task import PreparedJob, noise_at
from cagp_dist.store.schema import PublishedDistribution
from cagp_dist.text import counted


@dataclass(frozen=True, eq=False)
class Sharpened:
    """A sharp GP that was fitted, and its latent standard deviations for each stretch of its kernel."""

    fitted: FittedSharp
    # (S, 1, q) or (S, T, q) at test points, points of a map and places of a table, in the unit of the
    # observations, without noise
    test: Array
    cells: Array  # (S, 1, q) or (S, T, q)
    places: Array  # (S, 1, q) or (S, T, q)


@dataclass(frozen=True, eq=False)
class MixedDistributions:
    """What is said of observations where the numbers of the prior are integrated over."""

    scores: PointScores  # of the observations (T, q) at test points; NaN where there is none
    of_test: PublishedDistribution  # distributions at test points
    of_cells: PublishedDistribution | None  # with the usual noise, at points of a map and places of a table
    of_places: PublishedDistribution | None
    nugget: float  # mean of the noise variance, or of the nugget beside a known noise


@dataclass(frozen=True, eq=False)
class JobSolution(Solution):
    """The end of the solves of a job."""

    sharp: Sharpened | None = None  # quantiles with lengthscales of their own, where the job asks for them
    mixed: MixedDistributions | None = None  # where the numbers of the prior are integrated over


@dataclass(frozen=True, eq=False)
class OutOfSampleErrors:
    """Predictions that did not use the values that they are compared with."""

    distribution: Gaussian  # (T, N) noise included
    observed: Array  # (T, N) NaN where nothing was observed
    X: Array  # (N, 3) where, on the unit sphere
    folds: Indices | None = None  # (N,) of a cross-validation, the fold of each place
    # places (n, 3) and values (T, n) that the predictions were made from, where these points are none of
    # them
    training: tuple[Array, Array] | None = None
    blocks: Indices | None = None  # (N,) which block each place lies in, where whole blocks were kept

    def fit(self, method: Recalibration, *, without: int | None = None) -> Fitted:
        """Let a method learn from the errors, or from those of all folds but one."""
        known = self if without is None or self.folds is None else self._without(without, self.folds)
        if isinstance(method, LocalScale):
            return method.fit(
                known.distribution, known.observed, known.X, training=known.training, groups=known.blocks
            )
        return method.fit(known.distribution, known.observed, known.X)

    def _without(self, fold: int, folds: Indices) -> "OutOfSampleErrors":
        """Errors of all folds but one; several folds that are left stay together as blocks."""
        others = folds != fold
        left = folds[others]
        return OutOfSampleErrors(
            self.distribution[:, others],
            self.observed[:, others],
            self.X[others],
            left,
            blocks=left if np.unique(left).size > 1 else None,
        )


def out_of_sample_errors(
    task: PreparedJob, solution: JobSolution, noise: float | Array, *, nugget: float
) -> OutOfSampleErrors | None:
    """Give the errors from which the distributions of a job are to be corrected, None if they are not."""
    last, design, values = solution.steps[-1], task.design, task.points.values
    match task.recalibration.errors:
        case "points":
            chosen, at = task.calibrating, task.columns.calibration
            std = predictive_std(noise_at(task.points, chosen, nugget), last.std[:, at])
            return OutOfSampleErrors(
                Gaussian(last.mean[:, at], std),
                values[:, chosen],
                task.points.X[chosen],
                training=(task.inputs, values[:, design.train]),
                blocks=design.calibration_blocks,
            )
        case "folds":
            at = task.columns.test
            distribution = Gaussian(last.mean[:, at], predictive_std(noise, last.std[:, at]))
            return OutOfSampleErrors(
                distribution, values[:, design.test], task.points.X[design.test], design.folds
            )
        case "leave-one-out" if solution.left_out is not None:
            mean, std = solution.left_out.mean, solution.left_out.std
            known = ~np.isnan(mean)  # nothing was observed elsewhere
            distribution = Gaussian(np.where(known, mean, 0.0), np.where(known, std, 1.0))
            return OutOfSampleErrors(
                distribution, np.where(known, values[:, design.train], np.nan), task.inputs
            )
    return None


def predictive_std(noise_variance: float | Array, std: Array) -> Array:
    """Add the noise of an observation to standard deviations of the latent field."""
    return np.asarray(np.sqrt(std**2 + noise_variance), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class JobDistributions:
    """What a job learned of its distributions."""

    found: Recalibrating  # what was decided; ``method = "none"`` where nothing could be learned
    everywhere: Fitted  # from all errors
    # of a cross-validation, for the places of each fold: from the errors of the others
    by_fold: tuple[Fitted, ...] = ()

    @property
    def corrected(self) -> bool:
        """Whether a method changes the distributions."""
        return self.found.method != "none"

    def published(
        self, plain: Gaussian, X: Array, *, folds: Indices | None = None, stretched: Array | None = None
    ) -> PublishedDistribution | None:
        """Give what is published of distributions at points X (q, 3), from plain ones (T, q), or None."""
        if not self.corrected:
            return None
        std, scale = np.empty(plain.shape), np.empty(plain.shape)
        quantiles = np.empty((plain.shape[0], len(QUANTILE_LEVELS), plain.shape[1]))
        for fitted, some in self._groups(plain.shape, folds, stretched):
            found = corrected_distributions(fitted, plain[:, some], X[some], levels=QUANTILE_LEVELS)
            std[:, some], quantiles[..., some], scale[:, some] = found
        return PublishedDistribution(std, quantiles, scale if self.found.method == "local-scale" else None)

    def scored(
        self,
        plain: Gaussian,
        X: Array,
        observed: Array,
        *,
        folds: Indices | None = None,
        stretched: Array | None = None,
    ) -> PointScores:
        """Score observations (T, q); NaN where there is none; see `published`."""
        shape, everywhere = plain.shape, unscored(plain.shape)
        for fitted, chosen in self._groups(shape, folds, stretched):
            for some in in_parts(chosen, times=shape[0]):
                times, places = np.nonzero(~np.isnan(observed[:, some]))
                if not times.size:
                    continue
                distribution = fitted(plain[:, some], X[some])
                found = point_scores(distribution[times, places], observed[times, some[places]])
                everywhere.put((times, some[places]), found)
        return everywhere

    def _groups(
        self, shape: tuple[int, ...], folds: Indices | None, stretched: Array | None
    ) -> Iterator[tuple[Fitted, Indices]]:
        """Yield the points that have one correction."""
        everywhere, points = self.everywhere, np.arange(shape[1])
        if isinstance(everywhere, FittedSharp) and stretched is not None:
            for some in in_parts(points, times=shape[0]):
                yield _Stretched(everywhere, stretched[:, :, some]), some
            return
        if folds is None or not self.by_fold:
            yield everywhere, points
            return
        for fold, fitted in enumerate(self.by_fold):
            yield fitted, np.flatnonzero(folds == fold)


@dataclass(frozen=True, eq=False)
class _Stretched:
    """Distributions of a sharp GP at points whose standard deviations (S, T, q) are known."""

    fitted: FittedSharp
    std: Array

    def __call__(self, distribution: Gaussian, X_new: ArrayLike | None) -> Predictive:
        return self.fitted.with_std(distribution.mean, self.std)


def unchanged(found: Recalibrating = NOT_ASKED) -> JobDistributions:
    """Distributions that nothing corrects."""
    return JobDistributions(found, Unchanged())


def fit_distributions(
    found: Recalibrating, errors: OutOfSampleErrors | None, sharp: FittedSharp | None = None
) -> JobDistributions:
    """Fit the method of a job to its errors."""
    if sharp is not None:
        return JobDistributions(found, sharp)
    if found.method == "none":
        return unchanged(found)
    assert errors is not None  # there is a method only where the plan finds errors
    method = RECALIBRATIONS[found.method]()
    try:
        everywhere = errors.fit(method)
        folds = range(0 if errors.folds is None else int(errors.folds.max()) + 1)
        by_fold = tuple(errors.fit(method, without=fold) for fold in folds)
    except ArgumentError as error:
        if found.asked:
            raise ConfigurationError(f'[recalibration] method = "{found.method}": {error}') from error
        why = f"{found.method} cannot learn here, because {error}"
        said = f"The error bars are not recalibrated: {why}"
        return unchanged(Recalibrating(asked=False, why_not=said))
    if isinstance(everywhere, FittedLocalScale) and everywhere.regression is None:
        said = (
            "The error bars are not recalibrated: a local scale would hardly make the errors at "
            f"{counted(found.places, 'place')} likelier."
        )
        return unchanged(Recalibrating(asked=found.asked, why_not=said))
    return JobDistributions(found, everywhere, by_fold)
