"""The search for the shortest intervals of a sharp calibrated GP: one stretch of the kernel for each level.

Of errors ``dy`` at calibration points, and their variances ``sigma^2 = extra + latent(x)`` under a stretch
x::

    beta(x) = q_lin(level, dy / sigma)                        [Capone et al. 2023, eq. 6]
    J(x)    = sum beta^2 sigma^2                              [eq. 7]

J is minimised level by level, from the outermost one of each side inwards, with lengthscales that do not fall
and ``|beta|`` that does not rise, so that quantiles do not cross where longer lengthscales mean less
variance.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
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
        lower, share = between(level, self.scores.size)
        active, parts = self.order[[int(lower), int(lower) + 1]], np.array([1.0 - share, share])
        weights = np.zeros(self.latent.size)
        shares = -0.5 * parts * self.scores[active] / self.squares[active]
        np.add.at(weights, self.search.known.places[active], shares)
        beta_slope = self.search.variances(self.x).slope_of_sum(weights)
        total = float(self.squares.sum())
        slope = 2.0 * beta * total * beta_slope + beta**2 * self.sum_slope
        return Width(beta, objective, beta_slope, slope)

    @cached_property
    def sum_slope(self) -> Array:
        """Slope of the sum of all predictive variances, shape (P,)."""
        counts = np.bincount(self.search.known.places, minlength=self.latent.size).astype(np.float64)
        return self.search.variances(self.x).slope_of_sum(counts)


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
        """Stretch of every level, shape (L, P), for ascending levels (L,). Shapes: ``first`` (S, P)."""
        found = np.full((len(levels), self.stretch.numbers), np.nan)
        sides = np.array([self.known.side(level) for level in levels])
        for x in first:
            with suppress(NumericalError) if x.any() else nullcontext():
                self.visit(x)
        for chosen in (np.flatnonzero(sides > 0)[::-1], np.flatnonzero(sides < 0)):
            least, top = np.inf, np.full(self.stretch.numbers, self.reach)
            for rank, index in enumerate(chosen):
                level = levels[index]
                most = first_steps if rank == 0 else steps
                best = self._best(level, top, least)
                if most:
                    best = self._descend(level, best.x, top=top, most_beta=least, steps=most)
                top, least = best.x, abs(best.at(level)[0])
                found[index] = top
        last = [np.flatnonzero(sides == side)[end] for side, end in ((1, 0), (-1, -1)) if side in sides]
        found[sides == 0] = np.min(found[last], axis=0) if last else 0.0
        return found

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

    def _best(self, level: float, top: Array, most_beta: float) -> Visit:
        """Best stretch among those that were visited; that of the level before is always allowed."""
        allowed = [visit for visit in self.visits.values() if _allowed(visit, level, top, most_beta)]
        return min(allowed, key=lambda visit: visit.at(level)[1])

    def _descend(self, level: float, start: Array, *, top: Array, most_beta: float, steps: int) -> Visit:
        """Lower the objective from a start; give the best that was visited on the way."""
        from scipy.optimize import NonlinearConstraint, minimize

        visited = [self.visit(start)]
        scale = visited[0].at(level)[1]
        if scale == 0.0 or bool(np.all(top <= -self.reach)):
            return visited[0]

        def evaluated(x: Array) -> Visit:
            visited.append(self.visit(np.clip(x, -self.reach, top)))
            return visited[-1]

        def objective(x: Array) -> float:
            return evaluated(x).at(level)[1] / scale

        def slope(x: Array) -> Array:
            return evaluated(x).width(level).slope / scale

        limited = np.isfinite(most_beta) and most_beta > 0.0
        room = NonlinearConstraint(
            lambda x: np.array([abs(evaluated(x).at(level)[0]) / most_beta]),
            -np.inf,
            1.0,
            jac=lambda x: _slope_of_size(evaluated(x).width(level)) / most_beta,
        )
        with suppress(NumericalError):
            minimize(
                objective,
                start,
                jac=slope,
                method="SLSQP",
                bounds=[(-self.reach, float(end)) for end in top],
                constraints=[room] if limited else [],
                options={"maxiter": steps, "ftol": ENOUGH},
            )
        allowed = [visit for visit in visited if _allowed(visit, level, top, most_beta)]
        return min(allowed, key=lambda visit: visit.at(level)[1])


def _allowed(visit: Visit, level: float, top: Array, most_beta: float) -> bool:
    return bool(np.all(visit.x <= top)) and abs(visit.at(level)[0]) <= most_beta * (1.0 + 1e-12)


def _slope_of_size(width: Width) -> Array:
    """Slope of ``|beta|``."""
    return np.asarray(np.sign(width.beta) * width.beta_slope)
