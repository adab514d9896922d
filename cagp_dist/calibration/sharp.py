"""Sharp calibrated Gaussian processes [Capone, Hirche & Pleiss 2023]: a kernel of its own for every quantile.

The mean stays that of the fitted prior. The quantile of level delta is (math 12)::

    Q_delta(x) = mu(x) + beta_delta sigma_{theta_delta}(x)

with the lengthscales theta_delta that make ``sum (beta sigma)^2`` over calibration points smallest, and
``beta_delta`` a quantile of errors in units of that sigma. So the intervals are right on average over places,
and as short as lengthscales can make them.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from cagp_dist.arrays import Array, Indices
from cagp_dist.calibration.order_statistics import calibration_scores, check_resolved, q_lin
from cagp_dist.calibration.sharp_search import Errors, Search
from cagp_dist.calibration.stretched import Stretch, StretchedModel
from cagp_dist.checks import as_points, check_between, check_count
from cagp_dist.errors import ArgumentError
from cagp_dist.predictive import Gaussian, QuantileTable

LEVELS = (0.005, 0.01, 0.025, *(round(0.05 * k, 2) for k in range(1, 20)), 0.975, 0.99, 0.995)

FIRST_STEPS = 15

FAR = 50.0
"""How many times rarer than the outermost levels is where a tail goes through."""


@dataclass(frozen=True, eq=False)
class FittedSharp:
    """Factors and lengthscales of every level.

    Attributes
    ----------
    levels, beta : array, shape (L,)
        Levels, ascending, and factors of the standard deviations.
    stretches : array, shape (L, P)
        Logarithms of how much shorter lengthscales are than those of the prior; one number, or one for each
        coordinate. With a variance that is moved, the logarithm of its factor comes last.
    model : StretchedModel
    stretch : Stretch
    evaluations : int
        Stretches that the search evaluated.
    """

    levels: Array
    beta: Array
    stretches: Array
    model: StretchedModel
    stretch: Stretch
    evaluations: int

    def __call__(self, law: Gaussian, X_new: ArrayLike | None = None) -> QuantileTable:
        """Laws at new points (q, p), of the shape of ``law``, (q,) or (T, q); a solve for each stretch.

        Quantiles that cross at a point are put in order [Chernozhukov et al. 2010]; tails as of
        `table_with_tails`.
        """
        quantiles = np.sort(self.quantiles(law, X_new), axis=0)
        return table_with_tails(self.levels, quantiles, law.mean)

    def quantiles(self, law: Gaussian, X_new: ArrayLike | None) -> Array:
        """Quantiles as they are, shape ``(L, *law.shape)``."""
        points = _points("X_new", X_new, law)
        extra = _extra(law, points, self.model, self.stretch)
        different, which = np.unique(self.stretches, axis=0, return_inverse=True)
        latent = np.array([self.model.at(points, x, self.stretch).variance for x in different])
        std = np.sqrt(extra + latent.reshape(-1, *(1,) * (extra.ndim - 1), len(points)))
        factor = self.beta.reshape(-1, *(1,) * extra.ndim)
        return np.asarray(law.mean + factor * std[which.ravel()])

    def interpolated(self, levels: ArrayLike) -> "FittedSharp":
        """Give the same for other levels, beta and theta linear between those that were fitted.

        Where beta changes its sign it is zero in between, with the longer of the lengthscales on both sides.
        """
        wanted = np.asarray(levels, dtype=np.float64)
        inside = (self.levels[0] <= wanted) & (wanted <= self.levels[-1])
        if wanted.ndim != 1 or not bool(np.all(inside)) or bool(np.any(np.diff(wanted) <= 0.0)):
            raise ArgumentError(
                f"levels are {np.array2string(wanted, threshold=8)}; expected ascending numbers from "
                f"{self.levels[0]:g} to {self.levels[-1]:g}, the levels that were fitted."
            )
        nodes, beta, theta = self.levels, self.beta, np.exp(self.stretches)
        for index in np.flatnonzero((beta[:-1] < 0.0) & (beta[1:] > 0.0))[:1]:
            share = beta[index] / (beta[index] - beta[index + 1])
            node = nodes[index] + share * (nodes[index + 1] - nodes[index])
            theta = np.insert(theta, index + 1, np.minimum(theta[index], theta[index + 1]), axis=0)
            nodes, beta = np.insert(nodes, index + 1, node), np.insert(beta, index + 1, 0.0)
        between = np.transpose([np.interp(wanted, nodes, column) for column in theta.T])
        return replace(self, levels=wanted, beta=np.interp(wanted, nodes, beta), stretches=np.log(between))


def table_with_tails(levels: Array, quantiles: Array, centre: Array) -> QuantileTable:
    """Laws of quantiles (L, *S) whose tails are those of normal laws about a centre, shape S.

    Each tail belongs to the normal law about the centre that has the outermost quantile, or goes on as the
    outermost gap does where this is wider. Two neighbouring quantiles, each estimated by itself, may be so
    close that they make no tail.
    """
    around = np.array([levels[0] / FAR, *levels, 1.0 - (1.0 - levels[-1]) / FAR])
    z, ends = ndtri(levels), ndtri(around[[0, -1]])
    rows = []
    for outer, inner, end in ((0, 1, ends[0]), (-1, -2, ends[1])):
        about_centre = (quantiles[outer] - centre) / z[outer] if z[outer] else 0.0
        slope = np.maximum(about_centre, (quantiles[outer] - quantiles[inner]) / (z[outer] - z[inner]))
        rows.append(quantiles[outer] + slope * (end - z[outer]))
    return QuantileTable(around, np.stack([rows[0], *quantiles, rows[1]]))


@dataclass(frozen=True, eq=False)
class Sharp:
    """Sharp calibrated Gaussian process [Capone, Hirche & Pleiss 2023].

    Parameters
    ----------
    model : StretchedModel
        `DenseModel`, or `SolvedModel` with a solver: the observed points, and the prior whose lengthscales
        are moved.
    levels : tuple of float
        Levels of the quantiles, ascending.
    anisotropic : bool
        Move the lengthscale of each coordinate by itself, not all together.
    variance : bool
        Move the variance of the kernel as well.
    split : "three-way" or "two-way"
        "three-way": lengthscales are chosen with one part of the calibration points, and beta with the
        others. **Then a new observation lies below a quantile with a probability within 1 / (N + 1) of its
        level**, N the number of the others, if its point is drawn like theirs. "two-way", as in the paper:
        both with all points; the probability is near the level if few numbers are moved, and nothing is
        guaranteed.
    share : float
        Part of the calibration points that the lengthscales are chosen with; not used with "two-way".
    starts : int
        Stretches that are evaluated before the search, none and others by chance; it goes on from the best.
    steps : int
        Most steps of the search at each further level.
    reach : float
        Largest factor by which a lengthscale is made longer or shorter.
    seed : int
        Of the split and the starts.

    Raises
    ------
    ArgumentError
        If there is no model, settings are out of range, or the calibration points are too few for a level.

    Examples
    --------
    A prior with a lengthscale that is too short and a variance that is too large:

    >>> import numpy as np, cagp_dist as cagp
    >>> from cagp_dist.calibration.sharp import Sharp
    >>> from cagp_dist.calibration.stretched import DenseModel
    >>> from cagp_dist.predictive import Gaussian
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(500, 1))
    >>> y = np.sin(6.0 * X[:, 0]) + 0.1 * rng.standard_normal(500)
    >>> prior = cagp.Prior(cagp.Matern32(0.01, 4.0), noise_variance=0.01)
    >>> found = cagp.condition(prior, X[:100], y[:100], X[100:], solver=cagp.Cholesky())
    >>> law = Gaussian(found.mean, np.sqrt(found.variance + 0.01))
    >>> sharp = Sharp(DenseModel(prior, X[:100]), levels=(0.05, 0.25, 0.5, 0.75, 0.95))
    >>> fitted = sharp.fit(law[:200], y[100:300], X[100:300])
    >>> lower, upper = fitted(law[200:], X[300:]).interval(0.9)
    >>> bool(np.mean(upper - lower) < 0.7 * np.mean(2 * 1.645 * law[200:].std))
    True
    >>> bool(0.84 < np.mean((lower < y[300:]) & (y[300:] < upper)) < 0.96)
    True
    """

    model: StretchedModel | None = None
    levels: tuple[float, ...] = LEVELS
    anisotropic: bool = False
    variance: bool = False
    split: Literal["three-way", "two-way"] = "three-way"
    share: float = 0.5
    starts: int = 4
    steps: int = 5
    reach: float = 20.0
    seed: int = 0

    def fit(self, law: Gaussian, observed: ArrayLike, X: ArrayLike | None) -> FittedSharp:
        """Fit to predictions of the model at calibration points X (N, p) and values, each (N,) or (T, N).

        Cost: for each stretch that is visited, of which there are a few for each level, one solve with N
        targets and its slopes.
        """
        model, levels = self._checked()
        points, values = _points("X", X, law), np.asarray(observed, dtype=np.float64)
        calibration_scores(law, values)
        stretch = Stretch(points.shape[1] if self.anisotropic else None, self.variance)
        extra = _extra(law, points, model, stretch)
        parts = self._parts(points, values)
        for part in parts:
            check_resolved(levels, int(np.count_nonzero(~np.isnan(values[..., part]))), shared=len(parts) > 1)
        first, last = parts[0], parts[-1]
        search = Search(
            model,
            points[first],
            stretch,
            _errors(law[..., first], values[..., first], extra[..., first]),
            reach=float(np.log(self.reach)),
        )
        stretches = search.stretches(
            list(levels), starts=self.starts, first_steps=FIRST_STEPS, steps=self.steps, seed=self.seed
        )
        known = _errors(law[..., last], values[..., last], extra[..., last])
        beta = np.empty(levels.size)
        for x in np.unique(stretches, axis=0):
            where = np.all(stretches == x, axis=1)
            latent = search.visit(x).latent if first is last else model.at(points[last], x, stretch).variance
            beta[where] = q_lin(levels[where], known.scores(latent))
        return FittedSharp(levels, beta, stretches, model, stretch, len(search.visits))

    def _checked(self) -> tuple[StretchedModel, Array]:
        if not isinstance(self.model, StretchedModel):
            raise ArgumentError(
                "model is missing; a sharp GP moves lengthscales: expected Sharp(DenseModel(prior, X)) or "
                "Sharp(SolvedModel(prior, X, y, solver))."
            )
        levels = np.asarray(self.levels, dtype=np.float64)
        if levels.ndim != 1 or levels.size < 2 or bool(np.any(np.diff(levels) <= 0.0)):
            raise ArgumentError(
                f"levels are {np.array2string(levels, threshold=8)}; expected at least two in ascending "
                "order."
            )
        if self.split not in ("two-way", "three-way"):
            raise ArgumentError(f'split is {self.split!r}; expected "three-way" or "two-way".')
        check_between("share", self.share, 0.0, 1.0)
        check_count("starts", self.starts, least=1)
        check_count("steps", self.steps, least=1)
        check_count("seed", self.seed, least=0)
        check_between("reach", self.reach, 1.0, 1e6)
        return self.model, levels

    def _parts(self, points: Array, values: Array) -> list[Indices]:
        """Draw the points that lengthscales are chosen with, and those for beta: indices of both."""
        if self.split == "two-way":
            return [np.arange(len(points))]
        order = np.random.default_rng(self.seed).permutation(len(points))
        return np.split(order, [round(self.share * len(points))])


def _errors(law: Gaussian, values: Array, extra: Array) -> Errors:
    there = ~np.isnan(values)
    return Errors((values - law.mean)[there], extra[there], np.nonzero(there)[-1])


def _points(name: str, X: ArrayLike | None, law: Gaussian) -> Array:
    points = as_points(name, () if X is None else X)
    if law.shape[-1:] != (len(points),):
        raise ArgumentError(
            f"{name} holds {len(points)} points and predictions have shape {law.shape}; expected (N,) or "
            "(T, N)."
        )
    return points


def _extra(law: Gaussian, points: Array, model: StretchedModel, stretch: Stretch) -> Array:
    """Give what predictive variances have beside the latent ones of the model, such as noise."""
    latent = model.at(points, np.zeros(stretch.numbers), stretch).variance
    extra = law.std**2 - latent
    if extra.size and extra.min() <= 0.0:
        raise ArgumentError(
            f"{np.count_nonzero(extra <= 0.0)} of {extra.size} predictions have a standard deviation that "
            "is not above the latent one of the model; expected predictive ones, noise included, of the "
            "same prior, points and solver."
        )
    return np.asarray(extra)
