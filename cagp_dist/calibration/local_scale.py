"""A scale of the error bars that varies from place to place, learnt from errors near by (math 19).

The errors of a stationary model are too large where the field is smooth and too small where it is rough. Let
``z_j = (y_j - mu_j) / sigma_j`` be the standardised errors of N *calibration points*, whose predictions did
not use their own values: leave-one-out errors, or points that were kept out of training. At a place x they
are averaged over the k nearest points, at distances ``d_1 <= ... <= d_k``::

    w_j = max(1e-3, 1 - (d_j / d_k)^2),   M = sum w_j z_j^2 / sum w_j,   e = (sum w_j)^2 / sum w_j^2
    s^2(x) = (nu0 c + e M) / (nu0 + e)
    y(x) ~ mu(x) + sigma(x) s(x) t,       t with kappa (nu0 + e) degrees of freedom

which is the law of a Gaussian whose variance has an inverse-gamma prior of size nu0 about c. As nu0 grows,
with c = 1, it becomes the law that was given. Errors of T times at the same places are pooled: each place
contributes the sum of its squares, and counts as often as it has them.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import betaln

from cagp_dist.arrays import Array, Indices
from cagp_dist.checks import as_numbers, as_points, check_count
from cagp_dist.errors import ArgumentError
from cagp_dist.predictive import Gaussian, StudentT

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

FEWEST_POINTS = 50
"""Of which three settings and the scale around each point are learnt."""

FIT_POINTS = 20_000
"""The settings are fitted to the scores of at most so many points; all of them serve as neighbours."""

CHUNK = 100_000
"""Points whose neighbours are in memory at a time."""

LEAST_DEGREES = 1.05
"""Degrees of freedom of the widest tails; at 1 a Student t law has no mean."""

_LEAST_WEIGHT = 1e-3
_START = np.log([2.0, 0.5, 1.0])
_LOWEST, _HIGHEST = np.log([1e-2, 1e-4, 1e-3]), np.log([1e6, 1e4, 1e3])


class Neighbourhood(NamedTuple):
    """What the errors around points say: arrays of shape (q,).

    Attributes
    ----------
    mean_square : array
        ``M``, the local mean of squared standardised errors.
    size : array
        ``e``, the effective number of errors behind it.
    """

    mean_square: Array
    size: Array


@dataclass(frozen=True, eq=False)
class Errors:
    """Squared standardised errors at places, summed over times.

    Parameters
    ----------
    points : array, shape (N, p)
        Calibration points.
    square_sums : array, shape (N,)
    counts : array of int, shape (N,)
        Number of errors of each place; 0 where nothing was observed.
    """

    points: Array
    square_sums: Array
    counts: Indices

    def around(self, points: Array, k: int, *, own: Indices | None = None) -> Neighbourhood:
        """Average over the k places nearest to each point; its ``own`` place (an index) is left out."""
        tree, known = self._tree
        sums, counts = self.square_sums[known], self.counts[known]
        mean_square, size = np.empty(len(points)), np.empty(len(points))
        wanted = min(k + (own is not None), known.size)
        for start in range(0, len(points), CHUNK):
            part = slice(start, start + CHUNK)
            distance, index = map(np.asarray, tree.query(points[part], k=range(1, wanted + 1), workers=-1))
            if own is not None:
                distance, index = _without(known[index] == own[part, None], distance, index)
            farthest = distance[:, -1:]
            share = np.divide(distance, farthest, out=np.zeros_like(distance), where=farthest > 0.0)
            weights = np.maximum(_LEAST_WEIGHT, 1.0 - share**2)
            total = (weights * counts[index]).sum(axis=1)
            mean_square[part] = (weights * sums[index]).sum(axis=1) / total
            size[part] = total**2 / (weights**2 * counts[index]).sum(axis=1)
        return Neighbourhood(mean_square, size)

    @cached_property
    def _tree(self) -> tuple["cKDTree", Indices]:
        """Tree of the places that have errors, and which they are."""
        from scipy.spatial import cKDTree

        known = np.flatnonzero(self.counts)
        return cKDTree(self.points[known]), known


def _without(own: NDArray[np.bool_], distance: Array, index: Indices) -> tuple[Array, Indices]:
    """Leave each point's own place out of its row, or the farthest place where its own is not there."""
    own[~own.any(axis=1), -1] = True
    shape = (len(own), own.shape[1] - 1)
    return distance[~own].reshape(shape), index[~own].reshape(shape)


@dataclass(frozen=True, kw_only=True)
class LocalScale:
    """Error bars with a scale that varies in space and tails that say how well it is known (math 19).

    Parameters
    ----------
    neighbours : tuple of int
        Numbers k of calibration points around a place, at least 2 and at most 49; the one with the best score
        is taken.

    Examples
    --------
    Errors of a model that is twice too wide in one half of a line and twice too narrow in the other:

    >>> import numpy as np
    >>> from cagp_dist.predictive import Gaussian
    >>> generator = np.random.default_rng(0)
    >>> X = np.sort(generator.uniform(-1.0, 1.0, 2000))[:, None]
    >>> errors = np.where(X[:, 0] < 0.0, 0.5, 2.0) * generator.standard_normal(2000)
    >>> fitted = LocalScale().fit(Gaussian(np.zeros(2000), 1.0), errors, X)
    >>> law = fitted(Gaussian([280.0, 280.0], 1.0), [[-0.5], [0.5]])
    >>> bool(0.4 < law.scale[0] < 0.6), bool(1.6 < law.scale[1] < 2.4)
    (True, True)
    """

    neighbours: tuple[int, ...] = (6, 10, 15, 25, 40)

    def __post_init__(self) -> None:
        if not self.neighbours:
            raise ArgumentError("neighbours is empty; expected numbers of points such as (10, 25).")
        for count in self.neighbours:
            check_count("neighbours", count, least=2)
            if count >= FEWEST_POINTS:
                raise ArgumentError(f"neighbours has {count}; expected numbers below {FEWEST_POINTS}.")

    def fit(self, law: Gaussian, observed: ArrayLike, X: ArrayLike | None) -> "FittedLocalScale":
        """Learn the settings from calibration points: those that maximise their leave-one-out log score.

        Parameters
        ----------
        law : Gaussian, shape (N,) or (T, N)
            Predictions at the calibration points, noise included, that did not use the point's own value.
        observed : array_like, the shape of ``law``
            What was observed there; NaN where nothing was.
        X : array_like, shape (N, p)
            The places; on the sphere unit vectors.

        Returns
        -------
        FittedLocalScale
            O(N k log N) time and O(N) memory.

        Raises
        ------
        ArgumentError
            If there are fewer than `FEWEST_POINTS` places, errors are not finite or all zero, or shapes
            disagree.
        """
        points, errors = _checked(law, observed, X)
        known = Errors(points, np.nansum(errors**2, axis=0), np.count_nonzero(~np.isnan(errors), axis=0))
        typical = float(known.square_sums.sum() / known.counts.sum())
        chosen = np.flatnonzero(known.counts)
        if chosen.size > FIT_POINTS:
            chosen = np.sort(np.random.default_rng(0).choice(chosen, FIT_POINTS, replace=False))
        standard = errors[:, chosen] ** 2 / typical
        settings, found = _START, list[tuple[float, int, Array]]()
        for k in self.neighbours:
            around = known.around(points[chosen], k, own=chosen)
            settings, score = _fitted_settings(
                Neighbourhood(around.mean_square / typical, around.size), standard, settings
            )
            found.append((score, k, settings))
        score, k, settings = max(found, key=lambda fit: fit[0])
        size, centre, factor = np.exp(settings)
        return FittedLocalScale(
            errors=known,
            neighbours=k,
            prior_size=float(size),
            prior_centre=float(centre * typical),
            degrees_factor=float(factor),
            log_score=score - 0.5 * float(np.log(typical)),
            plain_log_score=-0.5 * float(np.log(2.0 * np.pi) + typical * np.nanmean(standard)),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedLocalScale:
    """A scale map: calibration errors and the settings that go with them.

    Parameters
    ----------
    errors : Errors
        Of the calibration points.
    neighbours : int
        k.
    prior_size, prior_centre, degrees_factor : float
        nu0, c and kappa.
    log_score, plain_log_score : float
        Mean log density of the standardised calibration errors, each place's own errors left out, in nats;
        and what it is under the standard normal law.
    """

    errors: Errors
    neighbours: int
    prior_size: float
    prior_centre: float
    degrees_factor: float
    log_score: float
    plain_log_score: float

    def __call__(self, law: Gaussian, X_new: ArrayLike | None) -> StudentT:
        """Laws at new points (q, p), of the shape of ``law``, (q,) or (T, q)."""
        return self._applied(law, self._at(X_new))

    def scale(self, X_new: ArrayLike) -> Array:
        """Scale field ``s(x)`` at new points (q, p), shape (q,), no unit."""
        return self._scale(self._at(X_new))

    def left_out(self, law: Gaussian) -> StudentT:
        """Laws at the calibration points themselves, (N,) or (T, N), each place's own errors left out."""
        points = self.errors.points
        return self._applied(law, self.errors.around(points, self.neighbours, own=np.arange(len(points))))

    def _at(self, X_new: ArrayLike | None) -> Neighbourhood:
        points, known = as_points("X_new", _given(X_new)), self.errors.points
        if points.shape[1] != known.shape[1]:
            raise ArgumentError(
                f"X_new has {points.shape[1]} coordinates and the calibration points {known.shape[1]}; "
                "expected points of the same space."
            )
        return self.errors.around(points, self.neighbours)

    def _scale(self, around: Neighbourhood) -> Array:
        squares = self.prior_size * self.prior_centre + around.size * around.mean_square
        return np.asarray(np.sqrt(squares / (self.prior_size + around.size)), dtype=np.float64)

    def _applied(self, law: Gaussian, around: Neighbourhood) -> StudentT:
        if law.shape[-1:] != around.size.shape:
            raise ArgumentError(
                f"the law has shape {law.shape} and there are {around.size.size} points; expected (q,) or "
                "(T, q), one law for each point."
            )
        degrees = self.degrees_factor * (self.prior_size + around.size)
        return StudentT(law.location, law.scale * self._scale(around), np.maximum(degrees, LEAST_DEGREES))


def _given(X: ArrayLike | None) -> ArrayLike:
    if X is None:
        raise ArgumentError("no places were given; a local scale needs X, one row per point.")
    return X


def _checked(law: Gaussian, observed: ArrayLike, X: ArrayLike | None) -> tuple[Array, Array]:
    """Places (N, p) and standardised errors (T, N), NaN where there are none."""
    points = as_points("X", _given(X))
    values = as_numbers("observed", observed)
    if values.shape != law.shape or law.shape[-1:] != (len(points),) or values.ndim > 2:
        raise ArgumentError(
            f"the law has shape {law.shape}, observed {values.shape} and X {points.shape}; expected (N,) or "
            "(T, N) of the first two, and one row of X for each of the N places. Errors of another grid "
            "cannot be used."
        )
    if np.isinf(values).any():
        raise ArgumentError(
            f"{np.count_nonzero(np.isinf(values))} observed values are infinite; expected numbers, or NaN "
            "where nothing was observed."
        )
    errors = np.atleast_2d((values - law.location) / law.scale)
    places = np.count_nonzero(~np.isnan(errors).all(axis=0))
    if places < FEWEST_POINTS:
        raise ArgumentError(
            f"there are errors at {places} places; expected at least {FEWEST_POINTS}, for a scale is learnt "
            "from the places around it. Give more calibration points, or no local scale."
        )
    if np.nanmax(errors) == np.nanmin(errors):
        raise ArgumentError(
            f"all errors of the calibration points are {np.nanmax(errors):g} standard deviations, which "
            "tells nothing of their scale; check what the predictions are compared with."
        )
    return points, errors


def _fitted_settings(around: Neighbourhood, standard: Array, start: Array) -> tuple[Array, float]:
    """Log of (nu0, c, kappa) of the highest mean log density of squared errors (T, N), and that density."""
    size, seen = around.size, ~np.isnan(standard)

    def loss(settings: Array) -> float:
        prior, centre, factor = np.exp(np.clip(settings, _LOWEST, _HIGHEST))
        degrees = np.maximum(factor * (prior + size), LEAST_DEGREES)
        spread = (prior * centre + size * around.mean_square) / (prior + size)
        constant = betaln(0.5, 0.5 * degrees) + 0.5 * np.log(degrees * spread)
        tail = 0.5 * (degrees + 1.0) * np.log1p(standard / (degrees * spread))
        return float(np.mean((constant + tail)[seen]))

    found = minimize(loss, start, method="Nelder-Mead", options={"xatol": 1e-2, "fatol": 1e-5})
    return np.clip(found.x, _LOWEST, _HIGHEST), -float(found.fun)
