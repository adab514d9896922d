"""Errors of the predictions of a job that did not use the values that they are compared with."""

from dataclasses import dataclass

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.calibration.recalibration.local_scale import LocalScale
from cagp_dist.calibration.recalibration.methods import Fitted, Recalibration
from cagp_dist.predictive import Gaussian
from cagp_dist.service.solve import Solution
from cagp_dist.service.task import PreparedJob


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
    """

    law: Gaussian
    observed: Array
    X: Array
    folds: Indices | None = None
    training: tuple[Array, Array] | None = None
    blocks: Indices | None = None

    def teach(self, method: Recalibration, *, without: int | None = None) -> Fitted:
        """Let a method learn from the errors, or from those of all folds but one."""
        known = self if without is None or self.folds is None else self._without(without, self.folds)
        if isinstance(method, LocalScale):
            return method.fit(
                known.law,
                known.observed,
                known.X,
                training=known.training,
                groups=known.blocks,
            )
        return method.fit(known.law, known.observed, known.X)

    def _without(self, fold: int, folds: Indices) -> "KnownErrors":
        """Errors of all folds but one; several folds that are left stay together as blocks."""
        others = folds != fold
        left = folds[others]
        return KnownErrors(
            self.law[:, others],
            self.observed[:, others],
            self.X[others],
            left,
            blocks=left if np.unique(left).size > 1 else None,
        )


def known_errors(
    task: PreparedJob, solution: Solution, noise: float | Array, *, nugget: float
) -> KnownErrors | None:
    """Give the errors from which the laws of a job are to be corrected, None if they are not.

    Shapes: ``noise`` (q,).
    """
    last, design, values = solution.steps[-1], task.design, task.points.values
    match task.recalibration.errors:
        case "points":
            chosen, at = task.calibrating, task.columns.calibration
            std = predictive_std(task.noise_at(chosen, nugget), last.std[:, at])
            law, places = Gaussian(last.mean[:, at], std), task.inputs_at(chosen)
            training = task.inputs, values[:, design.train]
            return KnownErrors(
                law, values[:, chosen], places, training=training, blocks=design.calibration_blocks
            )
        case "folds":
            at = task.columns.test
            law = Gaussian(last.mean[:, at], predictive_std(noise, last.std[:, at]))
            return KnownErrors(law, values[:, design.test], task.inputs_at(design.test), design.folds)
        case "leave-one-out" if solution.left_out is not None:
            found = solution.left_out
            law, observed = _without_gaps(found.mean, found.std, values[:, design.train])
            return KnownErrors(law, observed, task.inputs)
    return None


def predictive_std(noise_variance: float | Array, std: Array) -> Array:
    """Add the noise of an observation to standard deviations of the latent field."""
    return np.asarray(np.sqrt(std**2 + noise_variance), dtype=np.float64)


def _without_gaps(mean: Array, std: Array, observed: Array) -> tuple[Gaussian, Array]:
    """Gaussian laws (T, N) of predictions that are NaN where nothing was observed, and the observations."""
    known = ~np.isnan(mean)
    law = Gaussian(np.where(known, mean, 0.0), np.where(known, std, 1.0))
    return law, np.where(known, observed, np.nan)
