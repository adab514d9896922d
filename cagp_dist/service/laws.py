"""The predictive laws that a run publishes: those of its prior, corrected by errors that they did not use."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Indices
from cagp_dist.calibration.recalibration.corrected import corrected_laws, in_parts
from cagp_dist.calibration.recalibration.local_scale import FittedLocalScale
from cagp_dist.calibration.recalibration.methods import RECALIBRATIONS, Fitted, Unchanged
from cagp_dist.calibration.recalibration.sharp import FittedSharp
from cagp_dist.calibration.verification.scores import PointScores, point_scores, unscored
from cagp_dist.errors import ArgumentError, ConfigurationError
from cagp_dist.mapping.defaults import QUANTILE_LEVELS
from cagp_dist.predictive import Gaussian, Predictive
from cagp_dist.service.known_errors import KnownErrors
from cagp_dist.service.recalibration_plan import NOT_ASKED, Recalibrating
from cagp_dist.store.schema import PublishedLaw
from cagp_dist.text import counted


@dataclass(frozen=True, eq=False)
class JobDistributions:
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

    def published(
        self, plain: Gaussian, X: Array, *, folds: Indices | None = None, stretched: Array | None = None
    ) -> PublishedLaw | None:
        """Give what is published of the laws at points X (q, 3), of plain ones (T, q); None if nothing is.

        ``stretched`` has the predictive standard deviations (S, T, q) of a sharp GP there, where they are
        known already.
        """
        if not self.corrected:
            return None
        std, scale = np.empty(plain.shape), np.empty(plain.shape)
        quantiles = np.empty((plain.shape[0], len(QUANTILE_LEVELS), plain.shape[1]))
        for fitted, some in self._groups(plain.shape, folds, stretched):
            found = corrected_laws(fitted, plain[:, some], X[some], levels=QUANTILE_LEVELS)
            std[:, some], quantiles[..., some], scale[:, some] = found
        return PublishedLaw(std, quantiles, scale if self.found.method == "local-scale" else None)

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
                law = fitted(plain[:, some], X[some])
                found = point_scores(law[times, places], observed[times, some[places]])
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
    """Laws of a sharp GP at points whose standard deviations (S, T, q) are known."""

    fitted: FittedSharp
    std: Array

    def __call__(self, law: Gaussian, X_new: ArrayLike | None) -> Predictive:
        return self.fitted.with_std(law.mean, self.std)


def unchanged(found: Recalibrating = NOT_ASKED) -> JobDistributions:
    """Laws that nothing corrects."""
    return JobDistributions(found, Unchanged())


def learnt(
    found: Recalibrating, errors: KnownErrors | None, sharp: FittedSharp | None = None
) -> JobDistributions:
    """Fit the method of a job to its errors."""
    if sharp is not None:
        return JobDistributions(found, sharp)
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
        why = f"{found.method} cannot learn here, because {error}"
        said = f"The error bars are those of the prior as it is: {why}"
        return unchanged(Recalibrating(asked=False, why_not=said))
    if isinstance(everywhere, FittedLocalScale) and everywhere.regression is None:
        said = (
            "The error bars are those of the prior as it is: a local scale would hardly make the errors at "
            f"{counted(found.places, 'place')} likelier."
        )
        return unchanged(Recalibrating(asked=found.asked, why_not=said))
    return JobDistributions(found, everywhere, by_fold)
