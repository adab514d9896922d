"""Sharp calibrated Gaussian processes [Capone, Hirche & Pleiss 2023]: a kernel of its own for every quantile.

``Q_delta(x) = mu(x) + beta_delta sigma_{theta_delta}(x)`` (math 12), with the lengthscales theta_delta that
make ``sum (beta sigma)^2`` over calibration points smallest, and ``beta_delta`` a quantile of errors in units
of that sigma: intervals are right on average over places, and as short as lengthscales can make them that do
not grow from the median outwards. At no level is that sum larger than with the prior as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from cagp_dist.arrays import Array, Indices
from cagp_dist.calibration.recalibration.order_statistics import calibration_scores, check_resolved, q_lin
from cagp_dist.calibration.recalibration.sharp_search import Errors, Search
from cagp_dist.calibration.recalibration.stretched import Stretch, StretchedModel
from cagp_dist.checks import as_points, check_between, check_count
from cagp_dist.errors import ArgumentError
from cagp_dist.predictive import Gaussian, QuantileTable

LEVELS = (0.005, 0.01, 0.025, *(round(0.05 * k, 2) for k in range(1, 20)), 0.975, 0.99, 0.995)

FIRST_STEPS = 15

FAR = 50.0  # How many times rarer than the outermost levels is where a tail goes through


@dataclass(frozen=True, eq=False)
class FittedSharp:
    """Factors and lengthscales of L levels."""

    levels: Array  #: (L,), ascending
    beta: Array  #: (L,): factors of the standard deviations
    #: (L, P): logarithms of how much shorter lengthscales are than those of the prior, one number or one for
    #: each coordinate. With a variance that is moved, the logarithm of its factor comes last
    stretches: Array
    model: StretchedModel
    stretch: Stretch
    evaluations: int  #: Stretches that the search evaluated
    #: (S, r) or (S, T, r): latent variances at the points that were asked for beside the fit, under each of
    #: `different`
    beside: Array | None = None

    @property
    def different(self) -> Array:
        """Stretches that one level has or more, shape (S, P)."""
        return self._different[0]

    @cached_property
    def _different(self) -> tuple[Array, Indices]:
        different, which = np.unique(self.stretches, axis=0, return_inverse=True)
        return different, which.ravel()

    def __call__(self, distribution: Gaussian, X_new: ArrayLike | None = None) -> QuantileTable:
        """Give those of new points (q, p): ``distribution`` is (q,) or (T, q).

        It takes a solve for each stretch. Quantiles that cross are put in order [Chernozhukov et al. 2010];
        tails as of `table_with_tails`.
        """
        return self._table(self.quantiles(distribution, X_new), distribution.mean)

    def with_std(self, mean: Array, std: Array) -> QuantileTable:
        """Give those about means (T, q) with standard deviations (S, T, q) for each of `different`."""
        return self._table(self._quantiles(mean, std), mean)

    def quantiles(self, distribution: Gaussian, X_new: ArrayLike | None) -> Array:
        """Quantiles as they are, shape ``(L, *distribution.shape)``."""
        points = _points("X_new", X_new, distribution)
        extra = distribution.std**2 - _plain(distribution, points, self.model, self.stretch)
        latent = np.array([self.model.at(points, x, self.stretch).variance for x in self.different])
        if latent.ndim <= extra.ndim:  # one field, or one variance for all fields
            latent = latent.reshape(-1, *(1,) * (extra.ndim - 1), len(points))
        return self._quantiles(distribution.mean, np.sqrt(extra + latent))

    def _quantiles(self, mean: Array, std: Array) -> Array:
        factor = self.beta.reshape(-1, *(1,) * mean.ndim)
        return np.asarray(mean + factor * std[self._different[1]])

    def _table(self, quantiles: Array, centre: Array) -> QuantileTable:
        return table_with_tails(self.levels, np.sort(quantiles, axis=0), centre)

    def interpolated(self, levels: ArrayLike) -> "FittedSharp":
        """Give the same for other levels, beta and theta linear between those that were fitted.

        Where beta changes its sign it is zero in between, with the longer of the lengthscales on both sides.
        """
        wanted = np.asarray(levels, dtype=np.float64)
        inside = (self.levels[0] <= wanted) & (wanted <= self.levels[-1])
        if wanted.ndim != 1 or not bool(np.all(inside)) or bool(np.any(np.diff(wanted) <= 0.0)):
            raise ArgumentError(
                f"levels are {np.array2string(wanted, threshold=8)}; expected ascending numbers from "
                f"{self.levels[0]:g} to {self.levels[-1]:g}, the levels that were fitted.",
                key="levels",
            )
        nodes, beta, theta = self.levels, self.beta, np.exp(self.stretches)
        for index in np.flatnonzero((beta[:-1] < 0.0) & (beta[1:] > 0.0))[:1]:
            share = beta[index] / (beta[index] - beta[index + 1])
            node = nodes[index] + share * (nodes[index + 1] - nodes[index])
            theta = np.insert(theta, index + 1, np.minimum(theta[index], theta[index + 1]), axis=0)
            nodes, beta = np.insert(nodes, index + 1, node), np.insert(beta, index + 1, 0.0)
        between = np.transpose([np.interp(wanted, nodes, column) for column in theta.T])
        beta = np.interp(wanted, nodes, beta)
        return replace(self, levels=wanted, beta=beta, stretches=np.log(between), beside=None)


def table_with_tails(levels: Array, quantiles: Array, centre: Array) -> QuantileTable:
    """Make distributions of quantiles (L, *S) whose tails are normal ones about a centre, shape S.

    Each is that of the outermost quantile, or goes on as the outermost gap does where this is wider: two
    neighbouring quantiles may be so close that they make no tail.
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
        Stretches that are evaluated before the search, none and others by chance; it continues from the best.
    steps : int
        Most steps of the search at each further level.
    reach : float
        Largest factor by which a lengthscale is made longer or shorter.
    seed : int
        Of the split and the starts.
    factors : int, optional
        Choose every level's lengthscale among so many multiples of that of the prior, itself among them, from
        ``1 / reach`` to ``reach`` in equal ratios, instead of a search: as many solves, known in advance.
        An odd number; not with ``anisotropic`` or ``variance``, which move more than one number.

    Raises
    ------
    ArgumentError
        If there is no model, settings are out of range, or the calibration points are too few for a level.

    Examples
    --------
    A prior with a lengthscale that is too short and a variance that is too large:

    >>> import numpy as np, cagp_dist as cagp
    >>> from cagp_dist.calibration.recalibration.sharp import Sharp
    >>> from cagp_dist.calibration.recalibration.stretched import DenseModel
    >>> from cagp_dist.predictive import Gaussian
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(500, 1))
    >>> y = np.sin(6.0 * X[:, 0]) + 0.1 * rng.standard_normal(500)
    >>> prior = cagp.Prior(cagp.Matern32(0.01, 4.0), noise_variance=0.01)
    >>> found = cagp.condition(prior, X[:100], y[:100], X[100:], solver=cagp.Cholesky())
    >>> distribution = Gaussian(found.mean, np.sqrt(found.variance + 0.01))
    >>> sharp = Sharp(DenseModel(prior, X[:100]), levels=(0.05, 0.25, 0.5, 0.75, 0.95))
    >>> fitted = sharp.fit(distribution[:200], y[100:300], X[100:300])
    >>> lower, upper = fitted(distribution[200:], X[300:]).interval(0.9)
    >>> bool(np.mean(upper - lower) < 0.7 * np.mean(2 * 1.645 * distribution[200:].std))
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
    factors: int | None = None

    def fit(
        self,
        distribution: Gaussian,
        observed: ArrayLike,
        X: ArrayLike | None,
        *,
        beside: Array | None = None,
        report: Callable[[int], None] = lambda solved: None,
    ) -> FittedSharp:
        """Fit to predictions of the model at calibration points X (N, p) and values, each (N,) or (T, N).

        Cost: for each stretch that is visited, of which there are ``factors``, or a few for each level, one
        solve with the first part of the points as targets, and of a search its slopes; for each different
        stretch that is chosen one more with the last part, and with the points ``beside`` (r, p), whose
        variances are wanted too. ``report`` is called with how many stretches were solved for, after each.
        """
        model, levels = self._checked()
        points, values = _points("X", X, distribution), np.asarray(observed, dtype=np.float64)
        calibration_scores(distribution, values)
        stretch = Stretch(points.shape[1] if self.anisotropic else None, self.variance)
        latent = _plain(distribution, points, model, stretch)
        extra, by_field = distribution.std**2 - latent, latent.ndim > 1
        parts = self._parts(points)
        for part in parts:
            check_resolved(levels, int(np.count_nonzero(~np.isnan(values[..., part]))), shared=len(parts) > 1)
        first, last = parts[0], parts[-1]
        search = Search(
            model,
            points[first],
            stretch,
            _errors(distribution[..., first], values[..., first], extra[..., first], by_field=by_field),
            reach=float(np.log(self.reach)),
            report=report,
        )
        searched = self.factors is None
        stretches = search.stretches(
            list(levels),
            first=self._first(stretch.numbers),
            first_steps=FIRST_STEPS if searched else 0,
            steps=self.steps if searched else 0,
        )
        chosen = FittedSharp(levels, np.empty(levels.size), stretches, model, stretch, len(search.visits))
        known = _errors(distribution[..., last], values[..., last], extra[..., last], by_field=by_field)
        more = np.empty((0, points.shape[1])) if beside is None else beside
        at_beside = []
        for number, x in enumerate(chosen.different):
            where = np.all(stretches == x, axis=1)
            if first is last and beside is None:
                latent = search.visit(x).latent
            else:
                variance = model.at(np.concatenate([points[last], more]), x, stretch).variance
                latent, rest = np.split(variance, [last.size], axis=-1)
                at_beside.append(rest)
                report(len(search.visits) + number + 1)
            chosen.beta[where] = q_lin(levels[where], known.scores(latent.ravel()))
        return chosen if beside is None else replace(chosen, beside=np.array(at_beside))

    def _first(self, numbers: int) -> Array:
        """Stretches that are evaluated first, shape (S, P)."""
        if self.factors is not None:
            half = self.factors // 2
            return np.asarray(np.log(self.reach) * np.arange(-half, half + 1)[:, None] / half)
        by_chance = np.random.default_rng(self.seed).uniform(-0.5, 0.5, (self.starts - 1, numbers))
        return np.concatenate([by_chance * np.log(self.reach), np.zeros((1, numbers))])

    def _checked(self) -> tuple[StretchedModel, Array]:
        if not isinstance(self.model, StretchedModel):
            raise ArgumentError(
                "model is missing; a sharp GP moves lengthscales: expected Sharp(DenseModel(prior, X)) or "
                "Sharp(SolvedModel(prior, X, y, solver)).",
                key="model-missing",
            )
        levels = np.asarray(self.levels, dtype=np.float64)
        if levels.ndim != 1 or levels.size < 2 or bool(np.any(np.diff(levels) <= 0.0)):
            raise ArgumentError(
                f"levels are {np.array2string(levels, threshold=8)}; expected at least two in ascending "
                "order.",
                key="levels",
            )
        if self.split not in ("two-way", "three-way"):
            raise ArgumentError(f'split is {self.split!r}; expected "three-way" or "two-way".', key="split")
        check_between("share", self.share, 0.0, 1.0)
        check_count("starts", self.starts, least=1)
        check_count("steps", self.steps, least=1)
        check_count("seed", self.seed, least=0)
        check_between("reach", self.reach, 1.0, 1e6)
        if self.factors is not None:
            self._check_factors(self.factors)
        return self.model, levels

    def _check_factors(self, factors: int) -> None:
        check_count("factors", factors, least=3)
        if factors % 2 == 0 or self.anisotropic or self.variance:
            raise ArgumentError(
                f"factors is {factors}, with anisotropic={self.anisotropic} and variance={self.variance}; "
                "expected an odd number, because the unchanged prior is one of them, and a single "
                "parameter to vary. Leave factors out for a search over several.",
                key="factors",
            )

    def _parts(self, points: Array) -> list[Indices]:
        """Draw the points that lengthscales are chosen with, and those for beta: indices of both."""
        if self.split == "two-way":
            return [np.arange(len(points))]
        order = np.random.default_rng(self.seed).permutation(len(points))
        return np.split(order, [round(self.share * len(points))])


def _errors(distribution: Gaussian, values: Array, extra: Array, *, by_field: bool) -> Errors:
    there = ~np.isnan(values)
    places = np.flatnonzero(there) if by_field else np.nonzero(there)[-1]
    return Errors((values - distribution.mean)[there], extra[there], places)


def _points(name: str, X: ArrayLike | None, distribution: Gaussian) -> Array:
    points = as_points(name, () if X is None else X)
    if distribution.shape[-1:] != (len(points),):
        raise ArgumentError(
            f"{name} holds {len(points)} points and predictions have shape {distribution.shape}; expected "
            f"(N,) or "
            "(T, N).",
            key="shapes",
        )
    return points


def _plain(distribution: Gaussian, points: Array, model: StretchedModel, stretch: Stretch) -> Array:
    """Latent variances of the prior as it is, (N,) or (T, N), below the predictive ones by the noise."""
    latent = model.at(points, np.zeros(stretch.numbers), stretch).variance
    if latent.ndim > 1 and latent.shape != distribution.shape:
        raise ArgumentError(
            f"the fields of the model have variances of shape {latent.shape} and the predictions have shape "
            f"{distribution.shape}; expected predictions of the same fields, (T, N).",
            key="shapes",
        )
    extra = distribution.std**2 - latent
    if extra.size and extra.min() <= 0.0:
        raise ArgumentError(
            f"{np.count_nonzero(extra <= 0.0)} of {extra.size} predictions have a standard deviation that "
            "is not above the latent one of the model; expected predictive ones, noise included, of the "
            "same prior, points and solver.",
            key="predictive-below-latent",
        )
    return latent
