"""The search for the shortest intervals of a sharp calibrated GP: one stretch of the kernel for each level.

Of errors ``dy`` at calibration points, and their variances ``sigma^2 = extra + latent(x)`` under a stretch
x::

    beta(x) = q_lin(level, dy / sigma)                        [Capone et al. 2023, eq. 6]
    J(x)    = sum beta^2 sigma^2                              [eq. 7]

On each side lengthscales do not rise from the median outwards, and ``|beta|`` does not fall: quantiles do not
cross where longer lengthscales mean less variance. The search goes the same way. As all levels further out
must have lengthscales that are no longer than those of a level, each level is searched for with all of them:
for the stretch with which they would do best together, and hardly any worse than with the unchanged prior. Of
all stretches that were visited every level then takes one, so that none is worse than the unchanged prior.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.calibration.recalibration.order_statistics import between
from cagp_dist.calibration.recalibration.stretched import Stretch, StretchedModel, Variances
from cagp_dist.errors import NumericalError

KEPT = 3  # Stretches whose factors are kept in memory
ENOUGH = 1e-4  # Relative fall of the objective that is worth another step
WORSE = 9.0  # Weight in the search of what a level is worse than with the unchanged prior
SHARE = 0.5  # Of the way from the unchanged prior to a stretch of the search, where another one is tried


@dataclass(frozen=True, eq=False)
class Errors:
    """What is known at the calibration points."""

    errors: Array  # (M,): ``y - mu`` wherever there is an observation
    extra: Array  # (M,): what the predictive variance has beside the latent one: the noise
    # (M,): which variance is that of each error: the number of its calibration point, or where fields have
    # variances of their own, of the field and point
    places: Indices

    def side(self, level: float) -> int:
        """Where the quantile of a level lies: 1 above the predictions, -1 below, 0 if it may be at them."""
        ordered = np.sort(self.errors)
        lower, _ = between(level, ordered.size)
        if ordered[lower] >= 0.0:
            return 1
        return -1 if ordered[lower + 1] <= 0.0 else 0

    def scores(self, latent: Array) -> Array:
        """Standardised errors, for latent variances (N,) of the calibration points."""
        return np.asarray(self.errors / np.sqrt(self.extra + latent[self.places]))


class Width(NamedTuple):
    """One stretch at one level: the factor beta, the objective J, and their slopes, (P,) each."""

    beta: float
    objective: float
    beta_slope: Array
    slope: Array


@dataclass(eq=False)
class Visit:
    """One stretch, with all that the levels ask of it."""

    x: Array  # (P,)
    # (N,), or (T N,) where fields have variances of their own: variances at the calibration points
    latent: Array
    search: "Search"
    _widths: dict[float, Width] = field(default_factory=dict)

    @cached_property
    def scores(self) -> Array:
        """Standardised errors, shape (M,)."""
        return self.search.known.scores(self.latent)

    @cached_property
    def order(self) -> Indices:
        """Indices of ascending scores."""
        return np.argsort(self.scores, kind="stable")

    @cached_property
    def squares(self) -> Array:
        """Predictive variances, shape (M,)."""
        return np.asarray(self.search.known.extra + self.latent[self.search.known.places])

    def at(self, level: float) -> tuple[float, float]:
        """Give beta and J of a level."""
        lower, share = between(level, self.scores.size)
        low, high = self.scores[self.order[[int(lower), int(lower) + 1]]]
        beta = float((1.0 - share) * low + share * high)
        return beta, beta**2 * float(self.squares.sum())

    def width(self, level: float) -> Width:
        """Give the slopes as well, through the two scores that beta lies between."""
        if level not in self._widths:
            self._widths[level] = self._width(level)
        return self._widths[level]

    def _width(self, level: float) -> Width:
        beta, objective = self.at(level)
        beta_slope = self.search.variances(self.x).slope_of_sum(self._of_beta(level))
        total = float(self.squares.sum())
        slope = 2.0 * beta * total * beta_slope + beta**2 * self.sum_slope
        return Width(beta, objective, beta_slope, slope)

    def _of_beta(self, level: float) -> Array:
        """Differentiate beta by the variances, shape (N,)."""
        lower, share = between(level, self.scores.size)
        active, parts = self.order[[int(lower), int(lower) + 1]], np.array([1.0 - share, share])
        weights = np.zeros(self.latent.size)
        shares = -0.5 * parts * self.scores[active] / self.squares[active]
        np.add.at(weights, self.search.known.places[active], shares)
        return weights

    def loss(self, usual: Mapping[float, float]) -> float:
        """Sum of objectives, each over that of the unchanged prior, and `WORSE` times what is above one."""
        shares = [self.at(level)[1] / size for level, size in usual.items()]
        return float(sum(share + WORSE * max(share - 1.0, 0.0) for share in shares))

    def loss_slope(self, usual: Mapping[float, float]) -> Array:
        """Slope of `loss`, shape (P,)."""
        total, weights = float(self.squares.sum()), np.zeros(self.latent.size)
        for level, size in usual.items():
            beta, objective = self.at(level)
            scale = (1.0 + WORSE * (objective > size)) / size
            weights += scale * (2.0 * beta * total * self._of_beta(level) + beta**2 * self._counts)
        return self.search.variances(self.x).slope_of_sum(weights)

    @property
    def _counts(self) -> Array:
        """How many errors have each variance, shape (N,)."""
        return np.bincount(self.search.known.places, minlength=self.latent.size).astype(np.float64)

    @cached_property
    def sum_slope(self) -> Array:
        """Slope of the sum of all predictive variances, shape (P,)."""
        return self.search.variances(self.x).slope_of_sum(self._counts)


@dataclass(eq=False)
class Search:
    """Stretches of a model that were visited, and the way from level to level."""

    # model, targets, stretch: whose variances they are
    model: StretchedModel
    targets: Array
    stretch: Stretch
    known: Errors  # At the targets
    reach: float  # No number of a stretch is larger, either way
    # Called with how many stretches were visited, after each
    report: Callable[[int], None] = lambda visited: None
    # What was evaluated, by the bytes of the stretch
    visits: dict[bytes, Visit] = field(default_factory=dict)
    _latest: "OrderedDict[bytes, Variances]" = field(default_factory=OrderedDict)

    def stretches(self, levels: Sequence[float], *, first: Array, first_steps: int, steps: int) -> Array:
        """Stretch of every level, shape (L, P), for ascending levels (L,). Shapes: ``first`` (S, P).

        None has a larger objective than the unchanged prior has at its level.
        """
        plain = self.visit(np.zeros(self.stretch.numbers))
        for x in first:
            self._tried(x)
        # a level that may lie at the predictions goes with the side that the unchanged prior has it on
        sides = np.array([self.known.side(level) or np.sign(plain.at(level)[0]) or 1 for level in levels])
        found = np.empty((len(levels), self.stretch.numbers))
        for side in (1, -1):
            outwards = np.flatnonzero(sides == side)[::side]
            if not outwards.size:
                continue
            of_side = [levels[index] for index in outwards]
            usual = [(level, size) for level in of_side if (size := plain.at(level)[1]) > 0.0]
            low = np.full(self.stretch.numbers, -self.reach)
            for rank in range(len(usual)):
                if most := first_steps if rank == 0 else steps:
                    low = self._descend(dict(usual[rank:]), low, steps=most)
                    self._tried(SHARE * low)
            found[outwards] = self._ordered(of_side, side, plain)
        return found

    def _ordered(self, levels: Sequence[float], side: int, plain: Visit) -> Array:
        """Stretches for the levels of a side from the median outwards, shape (L, P), of those visited.

        Of all sequences whose lengthscales do not rise, whose ``|beta|`` does not fall, and that are nowhere
        worse than the unchanged prior, the one with the least sum of objectives, each over that of the
        unchanged prior. The unchanged prior at every level is such a sequence.
        """
        visits = list(self.visits.values())
        x = np.array([visit.x for visit in visits])
        may_follow = np.all(x[:, None] <= x, axis=-1)
        total, sizes, before = np.zeros(len(visits)), np.zeros(len(visits)), []
        for level in levels:
            beta, objective = np.transpose([visit.at(level) for visit in visits])
            usual = plain.at(level)[1]
            allowed = (objective <= usual) & (side * beta >= 0.0)
            follows = may_follow & (sizes[:, None] <= np.abs(beta) * (1.0 + 1e-12))
            totals = np.where(follows, total[:, None], np.inf)
            before.append(totals.argmin(axis=0))
            total = totals.min(axis=0) + np.where(allowed, objective / (usual or 1.0), np.inf)
            sizes = np.abs(beta)
        chosen = [int(total.argmin())]
        for rows in before[:0:-1]:
            chosen.append(int(rows[chosen[-1]]))
        return x[chosen[::-1]]

    def visit(self, x: Array) -> Visit:
        """Evaluate a stretch, or find it among those that were."""
        key = x.tobytes()
        if key not in self.visits:
            self.visits[key] = Visit(x.copy(), self.variances(x).variance.ravel(), self)
            self.report(len(self.visits))
        return self.visits[key]

    def variances(self, x: Array) -> Variances:
        """Variances of a stretch, from memory if it is one of the latest."""
        key = x.tobytes()
        if key not in self._latest:
            self._latest[key] = self.model.at(self.targets, x.copy(), self.stretch)
        self._latest.move_to_end(key)
        while len(self._latest) > KEPT:
            self._latest.popitem(last=False)
        return self._latest[key]

    def _tried(self, x: Array) -> None:
        """Visit a stretch, unless its matrix cannot be factored."""
        with suppress(NumericalError):
            self.visit(x)

    def _descend(self, usual: Mapping[float, float], low: Array, *, steps: int) -> Array:
        """Lower the loss of a level and all further out, with lengthscales no longer than those of ``low``.

        Gives the best stretch. Shapes: ``low`` (P,).
        """
        from scipy.optimize import minimize

        def best() -> Array:
            allowed = [visit for visit in self.visits.values() if bool(np.all(visit.x >= low))]
            return min(allowed, key=lambda visit: visit.loss(usual)).x

        def loss(x: Array) -> float:
            return self.visit(np.clip(x, low, self.reach)).loss(usual)

        def slope(x: Array) -> Array:
            return self.visit(np.clip(x, low, self.reach)).loss_slope(usual)

        with suppress(NumericalError):
            minimize(
                loss,
                best(),
                jac=slope,
                method="SLSQP",
                bounds=[(float(end), self.reach) for end in low],
                options={"maxiter": steps, "ftol": ENOUGH},
            )
        return best()
