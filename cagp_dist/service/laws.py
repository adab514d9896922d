"""The predictive laws that a run publishes: those of its prior, corrected by errors that they did not use."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.calibration.corrected import corrected_laws, in_parts
from cagp_dist.calibration.local_scale import FittedLocalScale, LocalScale
from cagp_dist.calibration.past_errors import PastErrors
from cagp_dist.calibration.recalibration import RECALIBRATIONS, Fitted, Recalibration, Unchanged
from cagp_dist.calibration.scores import LEVELS, PointScores, point_scores
from cagp_dist.errors import ArgumentError, ConfigurationError
from cagp_dist.predictive import Gaussian
from cagp_dist.service.recalibration import NOT_ASKED, Recalibrating
from cagp_dist.store.layout import QUANTILE_LEVELS
from cagp_dist.store.schema import PublishedLaw
from cagp_dist.text import counted


@dataclass(frozen=True, eq=False)
class KnownErrors:
    """Predictions that did not use the values that they are compared with.

    Attributes
    ----------
    law : Gaussian, shape (T, N)
        Noise included.
    observed : array, shape (T, N)
        NaN where nothing was observed.
    X : array, shape (N, 3)
        Where, on the unit sphere.
    folds : array of int, shape (N,), or None
        Of a cross-validation, the fold of each place.
    training : tuple of arrays, or None
        Places (n, 3) and values (T, n) that the predictions were made from, where these points are none of
        them.
    blocks : array of int, shape (N,), or None
        Which block each place lies in, where whole blocks were kept.
    past : PastErrors or None
        Of earlier times at the same places.
    """

    law: Gaussian
    observed: Array
    X: Array
    folds: Indices | None = None
    training: tuple[Array, Array] | None = None
    blocks: Indices | None = None
    past: PastErrors | None = None

    def teach(self, method: Recalibration, *, without: int | None = None) -> Fitted:
        """Let a method learn from the errors, or from those of all folds but one."""
        if without is None or self.folds is None:
            if isinstance(method, LocalScale):
                return method.fit(
                    self.law,
                    self.observed,
                    self.X,
                    training=self.training,
                    past=self.past,
                    groups=self.blocks,
                )
            return method.fit(self.law, self.observed, self.X)
        others = self.folds != without
        law, observed, X, folds = (
            self.law[:, others],
            self.observed[:, others],
            self.X[others],
            self.folds[others],
        )
        if isinstance(method, LocalScale):
            past = None if self.past is None else self.past.at(np.flatnonzero(others))
            several = np.unique(folds).size > 1
            return method.fit(law, observed, X, past=past, groups=folds if several else None)
        return method.fit(law, observed, X)


@dataclass(frozen=True, eq=False)
class Laws:
    """What a job learnt of its laws.

    Attributes
    ----------
    found : Recalibrating
        What was decided; ``method = "none"`` where nothing could be learnt.
    everywhere : Fitted
        From all errors.
    by_fold : tuple of Fitted
        Of a cross-validation, for the places of each fold: from the errors of the others.
    """

    found: Recalibrating
    everywhere: Fitted
    by_fold: tuple[Fitted, ...] = ()

    @property
    def corrected(self) -> bool:
        """Whether anything is."""
        return self.found.method != "none"

    def published(self, plain: Gaussian, X: Array, *, folds: Indices | None = None) -> PublishedLaw | None:
        """Give what is published of the laws at points X (q, 3), of plain ones (T, q); None if nothing is."""
        if not self.corrected:
            return None
        std, scale = np.empty(plain.shape), np.empty(plain.shape)
        quantiles = np.empty((plain.shape[0], len(QUANTILE_LEVELS), plain.shape[1]))
        for fitted, some in self._groups(plain.shape[1], folds):
            found = corrected_laws(fitted, plain[:, some], X[some], levels=QUANTILE_LEVELS)
            std[:, some], quantiles[..., some], scale[:, some] = found
        return PublishedLaw(std, quantiles, scale if self.found.method == "local-scale" else None)

    def scored(
        self, plain: Gaussian, X: Array, observed: Array, *, folds: Indices | None = None
    ) -> PointScores:
        """Score observations (T, q); NaN where there is none."""
        shape, levels = plain.shape, np.asarray(LEVELS)
        everywhere = {name: np.full((*before, *shape), np.nan) for name, before in _before(levels).items()}
        for fitted, chosen in self._groups(shape[1], folds):
            for some in in_parts(chosen, times=shape[0]):
                times, places = np.nonzero(~np.isnan(observed[:, some]))
                if not times.size:
                    continue
                law = fitted(plain[:, some], X[some])
                found = point_scores(law[times, places], observed[times, some[places]])
                for name, whole in everywhere.items():
                    whole[..., times, some[places]] = getattr(found, name)
        return PointScores(**everywhere, levels=levels)

    def _groups(self, q: int, folds: Indices | None) -> Iterator[tuple[Fitted, Indices]]:
        """Yield the points that have one correction."""
        if folds is None or not self.by_fold:
            yield self.everywhere, np.arange(q)
            return
        for fold, fitted in enumerate(self.by_fold):
            yield fitted, np.flatnonzero(folds == fold)


def _before(levels: Array) -> dict[str, tuple[int, ...]]:
    """Dimensions of each score before those of the laws."""
    once = dict.fromkeys(("normal_score", "squared_error", "nll", "crps"), ())
    return {**once, **dict.fromkeys(("width", "interval_score"), levels.shape)}


def unchanged(found: Recalibrating = NOT_ASKED) -> Laws:
    """Laws that nothing corrects."""
    return Laws(found, Unchanged())


def learnt(found: Recalibrating, errors: KnownErrors | None) -> Laws:
    """Fit the method of a job to its errors.

    Raises
    ------
    ConfigurationError
        If the job names a method that cannot learn from them. One that is there by itself is left out, and
        the statement says why.
    """
    if found.method == "none" or errors is None:
        return unchanged(found)
    method = RECALIBRATIONS[found.method]()
    try:
        everywhere = errors.teach(method)
        folds = [] if errors.folds is None else np.unique(errors.folds).tolist()
        by_fold = tuple(errors.teach(method, without=fold) for fold in folds)
    except ArgumentError as error:
        if found.asked:
            raise ConfigurationError(f'[recalibration] method = "{found.method}": {error}') from error
        said = f"The error bars are those of the prior as it is: {found.method} cannot learn here. {error}"
        return unchanged(Recalibrating(asked=False, why_not=said))
    if isinstance(everywhere, FittedLocalScale) and everywhere.regression is None:
        said = (
            "The error bars are those of the prior as it is: a local scale would hardly make the errors at "
            f"{counted(found.places, 'place')} likelier."
        )
        return unchanged(Recalibrating(asked=found.asked, why_not=said))
    return Laws(found, everywhere, by_fold)


def without_gaps(mean: Array, std: Array, observed: Array) -> tuple[Gaussian, Array]:
    """Gaussian laws (T, N) of predictions that are NaN where nothing was observed, and the observations."""
    known = ~np.isnan(mean)
    law = Gaussian(np.where(known, mean, 0.0), np.where(known, std, 1.0))
    return law, np.where(known, observed, np.nan)
