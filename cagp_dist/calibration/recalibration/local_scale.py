"""A scale of the error bars that varies from place to place, learned from errors near by (math 19).

With standardised errors of calibration points, whose predictions did not use their own values, and features f
of a place x (sizes of errors near by at two distances, how much values near by vary)::

    log s(x) = b_0 + b' f(x),    y(x) ~ mu(x) + sigma(x) s(x) (m + t),    t a Student t

Points that were kept out of training err together: the centre then follows the errors near by, ``sigma(x) c
B(x)``, B their weighted mean. All numbers maximise the log score of the calibration points, each with its own
errors left out (T38); the distribution as it is stays where that is hardly better.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Indices
from cagp_dist.calibration.recalibration.near_by import NearBy, Training
from cagp_dist.calibration.recalibration.order_statistics import check_not_constant
from cagp_dist.calibration.recalibration.scale_regression import (
    ScaleRegression,
    gain_elsewhere,
    regress_scale,
)
from cagp_dist.checks import as_numbers, as_points, check_count
from cagp_dist.errors import ArgumentError
from cagp_dist.predictive import Gaussian, Predictive, StudentT

FEWEST_POINTS = 100  # Places whose errors tell a scale from chance

# The numbers are fitted to the scores of about so many errors; all of them serve as neighbours
FIT_ERRORS = 20_000

# Nats by which the mean score has to beat that of the distribution as it is, beyond what is chance
WORTHWHILE = 0.01


@dataclass(frozen=True, kw_only=True)
class LocalScale:
    """Error bars with a scale that varies in space and the tails that go with it (math 19).

    Parameters
    ----------
    neighbours : tuple of int
        Numbers of calibration points around a place whose errors are averaged, ascending.
    contrast : int
        Number of values near by that are compared with the prediction.
    terms : callable, optional
        Takes places (n, p) and returns numbers (n, F), known of them beforehand, that the logarithm of the
        scale may depend on, such as `cagp_dist.calibration.verification.strata.surface_terms`.

    Examples
    --------
    Errors of a model that is twice too wide in one half of a line and twice too narrow in the other:

    >>> import numpy as np
    >>> from cagp_dist.predictive import Gaussian
    >>> generator = np.random.default_rng(0)
    >>> X = np.sort(generator.uniform(-1.0, 1.0, 2000))[:, None]
    >>> errors = np.where(X[:, 0] < 0.0, 0.5, 2.0) * generator.standard_normal(2000)
    >>> fitted = LocalScale().fit(Gaussian(np.zeros(2000), 1.0), errors, X)
    >>> scale = fitted.scale(Gaussian([0.0, 0.0], 1.0), [[-0.5], [0.5]])
    >>> bool(0.4 < scale[0] < 0.6), bool(1.6 < scale[1] < 2.4)
    (True, True)
    """

    neighbours: tuple[int, ...] = (8, 40)
    contrast: int = 4
    terms: Callable[[Array], Array] | None = None

    def __post_init__(self) -> None:
        for count in self.neighbours:
            check_count("neighbours", count, least=2)
        ascending = list(self.neighbours) == sorted(set(self.neighbours))
        if not (self.neighbours and ascending and self.neighbours[-1] < FEWEST_POINTS):
            raise ArgumentError(
                f"neighbours is {self.neighbours!r}; expected ascending numbers below {FEWEST_POINTS}, "
                "such as (8, 40).",
                key="neighbours-of-scale",
            )
        check_count("contrast", self.contrast, least=1)
        if self.contrast > self.neighbours[-1]:
            raise ArgumentError(
                f"contrast is {self.contrast}; expected at most {self.neighbours[-1]}, the neighbours.",
                key="contrast",
            )

    def fit(
        self,
        distribution: Gaussian,
        observed: ArrayLike,
        X: ArrayLike | None,
        *,
        training: tuple[ArrayLike, ArrayLike] | None = None,
        groups: ArrayLike | None = None,
    ) -> "FittedLocalScale":
        """Learn from calibration points: by the score of each under the distribution that the others give it.

        Parameters
        ----------
        distribution : Gaussian, shape (N,) or (T, N)
            Predictions at the calibration points, noise included, that did not use the point's own value.
        observed : array_like, the shape of ``distribution``
            What was observed there; NaN where nothing was.
        X : array_like, shape (N, p)
            The places; on the sphere unit vectors.
        training : tuple of array_like, optional
            Places (n, p) and values, (n,) or (T, n), that the predictions were made from, where calibration
            points were kept out of them. The predictions at new points must be made from them too; the
            distributions then follow the errors near by.
        groups : array_like of int, shape (N,), optional
            Which block each place lies in, where whole blocks were kept out of training: no errors of its own
            block then tell of a place.

        Returns
        -------
        FittedLocalScale
            O(N log N) time, O(T N) memory. The numbers are fitted to at most about `FIT_ERRORS` of the
            errors.

        Raises
        ------
        ArgumentError
            If there are errors at fewer than `FEWEST_POINTS` places, they are all the same, shapes disagree,
            calibration points are among those of the training, or too few places lie outside a group.
        """
        points, values, errors = _checked(distribution, observed, X)
        known = np.flatnonzero(~np.isnan(errors).all(axis=0))
        near = NearBy(
            points[known],
            values[:, known],
            errors[:, known],
            _training(training, points, values, self.contrast),
            None if groups is None else _groups(groups, len(points), self.neighbours[-1])[known],
            self.neighbours,
            self.contrast,
        )
        chosen = np.arange(known.size)
        if errors.shape[0] * known.size > FIT_ERRORS:
            count = max(FEWEST_POINTS, FIT_ERRORS // errors.shape[0])
            chosen = np.sort(
                np.random.default_rng(0).choice(known.size, min(count, known.size), replace=False)
            )
        opposed = near.opposed(chosen)
        some = Gaussian(
            np.atleast_2d(distribution.location)[:, known[chosen]],
            np.atleast_2d(distribution.scale)[:, known[chosen]],
        )
        features = np.concatenate(
            list(near.features(some, near.points[chosen], own=chosen, opposed=opposed)), axis=1
        )
        wanted = errors[:, known[chosen]]
        seen = ~np.isnan(wanted)
        scale_terms, lean = _apart(near, features, _terms(self.terms, near.points[chosen]))
        scale_terms, lean = scale_terms[seen], None if lean is None else lean[seen]
        found = regress_scale(scale_terms, wanted[seen], lean=lean)
        plain = -0.5 * float(np.log(2.0 * np.pi) + np.mean(wanted[seen] ** 2))
        numbers = found.coefficients.size + 2 + (lean is not None)
        chance = 2.0 * numbers / np.count_nonzero(seen)
        better = bool(found.log_score - plain > WORTHWHILE + chance)
        if better and training is not None and near.groups is not None:
            group = np.broadcast_to(near.groups[chosen], seen.shape)[seen]
            gain, error = gain_elsewhere(scale_terms, wanted[seen], group, lean=lean)
            better = gain - error > WORTHWHILE
        return FittedLocalScale(
            near=near,
            terms=self.terms,
            regression=found if better else None,
            opposed=opposed,
            log_score=found.log_score if better else plain,
            plain_log_score=plain,
            places=points,
            known=known,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedLocalScale:
    """What the errors of calibration points say of the scale anywhere; `LocalScale.fit` makes it."""

    near: NearBy
    terms: Callable[[Array], Array] | None
    regression: ScaleRegression | None  #: None where the distribution as it is has a score as good
    opposed: Array
    #: Mean log density of the standardised calibration errors, each place's own errors left out, in nats; and
    #: what it is under the standard normal distribution
    log_score: float
    plain_log_score: float
    places: Array
    known: Indices

    def __call__(self, distribution: Gaussian, X_new: ArrayLike | None) -> Predictive:
        """Give those of new points (q, p): ``distribution`` is (q,), or (T, q) of the times fitted."""
        return self._distribution(distribution, *self._parts(distribution, self._new(X_new), None))

    def scale(self, distribution: Gaussian, X_new: ArrayLike | None) -> Array:
        """Scale ``s(x)`` at new points (q, p), of the shape of ``distribution``, no unit."""
        return self._parts(distribution, self._new(X_new), None)[0]

    def _new(self, X_new: ArrayLike | None) -> Array:
        points = as_points("X_new", _given(X_new))
        if points.shape[1] != self.places.shape[1]:
            raise ArgumentError(
                f"X_new has {points.shape[1]} coordinates and the calibration points {self.places.shape[1]}; "
                "expected points of the same space.",
                key="of-another-space",
            )
        return points

    def left_out(self, distribution: Gaussian) -> Predictive:
        """Give those of the calibration points, as they were fitted, each place's own errors left out."""
        own = np.full(len(self.places), -1)
        own[self.known] = np.arange(self.known.size)
        return self._distribution(distribution, *self._parts(distribution, self.places, own))

    def _parts(self, distribution: Gaussian, points: Array, own: Indices | None) -> tuple[Array, Array]:
        """Scale, and shift of the centre with the errors near by, in units of ``distribution.scale``."""
        times = len(self.near.values)
        if distribution.shape not in ([(len(points),)] if times == 1 else []) + [(times, len(points))]:
            raise ArgumentError(
                f"the distribution has shape {distribution.shape}; expected {len(points)} points, at the "
                f"{times} times of the calibration points.",
                key="shapes",
            )
        if self.regression is None:
            return np.ones(distribution.shape), np.zeros(distribution.shape)
        table = Gaussian(np.atleast_2d(distribution.location), np.atleast_2d(distribution.scale))
        coefficients = self.regression.coefficients
        scales, moves = [np.empty((times, 0))], [np.empty((times, 0))]
        done = 0
        for part in self.near.features(table, points, own=own, opposed=self.opposed):
            known = _terms(self.terms, points[done : done + part.shape[1]])
            done += part.shape[1]
            terms, lean = _apart(self.near, part, known)
            scales.append(np.exp(coefficients[0] + terms @ coefficients[1:]))
            moves.append(np.zeros(part.shape[:-1]) if lean is None else self.regression.share * lean)
        scale, move = (np.concatenate(each, axis=1).reshape(distribution.shape) for each in (scales, moves))
        return scale, move

    def _distribution(self, distribution: Gaussian, scale: Array, move: Array) -> Predictive:
        if self.regression is None:
            return distribution
        spread = distribution.scale * scale
        centre = distribution.location + self.regression.centre * spread + distribution.scale * move
        return StudentT(centre, spread, np.array(self.regression.degrees))


def _apart(near: NearBy, features: Array, known: Array) -> tuple[Array, Array | None]:
    """Terms of the scale (T, n, F), and what the errors near by lean to where they say it."""
    own, lean = (features, None) if near.training is None else (features[..., :-1], features[..., -1])
    every = np.broadcast_to(known, (*own.shape[:-1], known.shape[-1]))
    return np.concatenate([own, every], axis=-1), lean


def _terms(terms: Callable[[Array], Array] | None, points: Array) -> Array:
    """Give what is known of places (n, p) beforehand, (n, F)."""
    told = None if terms is None else np.asarray(terms(points))
    if told is None or told.shape[1:] == (0,):
        return np.empty((len(points), 0))
    found = as_points("terms of the places", told)
    if len(found) != len(points):
        raise ArgumentError(
            f"terms gave {len(found)} rows for {len(points)} places; expected one for each.", key="shapes"
        )
    return found


def _given(X: ArrayLike | None) -> ArrayLike:
    if X is None:
        raise ArgumentError(
            "no places were given; a local scale needs X, one row per point.", key="no-places"
        )
    return X


def _training(
    training: tuple[ArrayLike, ArrayLike] | None, calibration: Array, observed: Array, fewest: int
) -> Training | None:
    """Check places and values of the training of calibration points (N, p), observed (T, N)."""
    if training is None:
        return None
    points, values = as_points("training places", training[0]), as_numbers("training values", training[1])
    values = values[None] if values.ndim == 1 else values
    if len(points) < fewest or points.shape[1:] != calibration.shape[1:]:
        raise ArgumentError(
            f"training places have shape {points.shape}; expected at least {fewest} of them, with "
            f"{calibration.shape[1]} coordinates as the calibration points have.",
            key="shapes",
        )
    if values.shape != (len(observed), len(points)):
        raise ArgumentError(
            f"training values have shape {values.shape}; expected ({len(observed)}, {len(points)}), one for "
            "each time and place.",
            key="shapes",
        )
    found = Training(points, values)
    distance, nearest = found.tree.query(calibration, workers=-1)
    shared = np.count_nonzero((distance == 0.0) & (values[:, nearest] == observed).any(axis=0))
    if shared:
        raise ArgumentError(
            f"{shared} of {len(calibration)} calibration points are among those of the training with their "
            "values, which the predictions then know; keep them out of it, or give leave-one-out errors and "
            "no training.",
            key="calibration-in-training",
        )
    return found


def _groups(groups: ArrayLike, places: int, fewest: int) -> Indices:
    """Check which block each place lies in."""
    found = np.asarray(groups)
    if found.shape != (places,):
        raise ArgumentError(
            f"groups have shape {found.shape}; expected ({places},), one for each place.", key="shapes"
        )
    _, numbers = np.unique(found, return_inverse=True)
    largest = int(np.bincount(numbers).max())
    if places - largest < fewest:
        raise ArgumentError(
            f"{largest} of {places} places lie in one group; expected at least {fewest} outside each, from "
            "which its errors are told. Keep more blocks, or smaller ones.",
            key="one-group",
        )
    return numbers


def _checked(distribution: Gaussian, observed: ArrayLike, X: ArrayLike | None) -> tuple[Array, Array, Array]:
    """Places (N, p), values and standardised errors (T, N), NaN where there are none."""
    points = as_points("X", _given(X))
    values = as_numbers("observed", observed)
    if values.shape != distribution.shape or distribution.shape[-1:] != (len(points),) or values.ndim > 2:
        raise ArgumentError(
            f"the distribution has shape {distribution.shape}, observed {values.shape} and X "
            f"{points.shape}; expected "
            "(N,) or (T, N) of the first two, and one row of X for each of the N places. Errors of another "
            "grid cannot be used.",
            key="shapes",
        )
    if np.isinf(values).any():
        raise ArgumentError(
            f"{np.count_nonzero(np.isinf(values))} observed values are infinite; expected numbers, or NaN "
            "where nothing was observed.",
            key="infinite",
        )
    errors = np.atleast_2d((values - distribution.location) / distribution.scale)
    places = np.count_nonzero(~np.isnan(errors).all(axis=0))
    if places < FEWEST_POINTS:
        raise ArgumentError(
            f"there are errors at {places} places; expected at least {FEWEST_POINTS}, because a scale is "
            "learned from the places around it. Give more calibration points, or no local scale.",
            key="few-errors",
        )
    if np.nanmax(errors) == np.nanmin(errors):
        raise ArgumentError(
            f"all errors of the calibration points are {np.nanmax(errors):g} standard deviations, so their "
            "scale cannot be estimated; check what the predictions are compared with.",
            key="constant",
        )
    there = ~np.isnan(values)
    check_not_constant(distribution.location[there], values[there])
    return points, np.atleast_2d(values), errors
