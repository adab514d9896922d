"""Places at several times, some values missing: solves by way of the complete series (math 21).

With ``A = G^-1`` of all places and times, o what was observed and m the rest (math 7, T28)::

    G_oo^-1 b = [A (b - e)]_o,     A_mm e = [A b]_m
    var(f | o) = var(f | o, m) + K A E_m B E_m' A K',     B = A_mm^-1 = cov(y_m | y_o)

The system of the missing values is solved by conjugate gradients. Its preconditioner
``[(A + D^-1 / tau)^-1]_mm`` is B where everything was observed once more, with noise tau D: near D for
scattered gaps, near ``G_mm`` inside large ones. The second line is the law of total variance. It is exact by
a factor of ``A_mm`` where few are missing, else the mean square of ``K A E_m (y' - E[y' | y'_o])``, with y'
drawn from the prior.
"""

from collections.abc import Callable, Iterator
from functools import cached_property, partial

import numpy as np

from cagp_dist.arrays import Array, Mask
from cagp_dist.errors import NumericalError
from cagp_dist.gram.dense import cholesky_lower
from cagp_dist.gram.series_gram import SeriesGram
from cagp_dist.krylov import conjugate_gradients

TOLERANCE = 1e-11
"""Relative residual of the mean, where rounding allows it."""

ROUNDING = 16.0 * float(np.finfo(np.float64).eps)
"""Part of ``|G| |x|`` to which a residual ``b - G x`` can be known."""

TOLERANCE_OF_DRAWS = 1e-6
"""Relative residual of draws, from which variances and samples come."""

TAU = 100.0
"""Noise of the preconditioner over that of the observations; a few times more or less hardly matters."""

MOST_PRODUCTS = 2000  # Products after which an iteration is given up

ROUNDS = 4
"""How often the residual is solved for again, at most."""

FEW_IN_SERIES = 2048
"""Missing values up to which variances and determinants are exact: two solves for each."""


class SeriesWithGaps:
    """``G_oo`` of the values of a series that are there; poles of grids are observed as a row, or not."""

    def __init__(self, series: SeriesGram, observed: Mask) -> None:
        self.series, self.observed = series, observed
        self.missing = np.flatnonzero(~observed)
        self.relative_residual = 0.0
        self.iterations = 0

    @property
    def few(self) -> bool:
        """Whether variances and determinants are exact."""
        return self.missing.size <= FEW_IN_SERIES

    @property
    def count(self) -> int:
        """Observations; a pole is one."""
        poles = self.series.poles
        copies = np.count_nonzero(self.observed[:, poles]) if poles.size else 0
        return int(np.count_nonzero(self.observed) - copies + copies // self.series.copies)

    def merged(self, values: Array) -> Array:
        """Fields that are zero where nothing was observed, and at poles the mean of what was."""
        found = np.where(np.isnan(values), 0.0, values)
        for pole in self.series.poles:
            there = ~np.isnan(values[:, pole])
            found[:, pole] = (found[:, pole].sum(axis=1) / np.maximum(there.sum(axis=1), 1))[:, None]
        return found

    def weights(self, values: Array, *, tolerance: float = TOLERANCE) -> Array:
        """``G_oo^-1 b`` as a field, zero where nothing is there, of a field b of which only o counts."""
        right = np.where(self.observed, values, 0.0)
        size, found = float(np.linalg.norm(right)), np.zeros_like(right)
        if not self.missing.size:
            return self.series.solve(right)
        left, relative, attainable = right, 1.0 if size else 0.0, tolerance
        norm = self.series.condition_bound() * float(self.series.noise.min())
        self.iterations = 0
        for _ in range(ROUNDS):
            if relative <= attainable:
                break
            found += self._solved(left, tolerance=tolerance)
            left = right - np.where(self.observed, self._product(found), 0.0)
            relative = float(np.linalg.norm(left)) / size
            attainable = max(tolerance, ROUNDING * norm * float(np.linalg.norm(found)) / size)
        self.relative_residual = relative
        if relative > attainable:
            raise NumericalError(
                f"after {self.iterations} products the relative residual of the series with gaps is "
                f"{relative:.2g}; needed is {attainable:.2g}. Raise noise_variance, or condition on points X "
                "(n, 4), unit vectors and hours, with cagp.Neighbours."
            )
        return found

    def logdet(self) -> float:
        """``log|G_oo| = log|G| + log|A_mm|``, where few are missing; a pole is one observation."""
        gaps = float(2.0 * np.log(np.diag(self._factor)).sum()) if self.missing.size else 0.0
        poles = ~self.observed[:, self.series.poles, :1].any(axis=-1) if self.series.poles.size else 0.0
        return self.series.logdet() + gaps + float((poles * self.series.of_pole_copies).sum())

    def uncertain_weights(self) -> Iterator[Array]:
        """Weights of fields whose squares add up to what the missing values would take from variances."""
        from scipy.linalg import solve_triangular

        if not self.missing.size:
            return
        roots = solve_triangular(self._factor, np.eye(self.missing.size), lower=True, trans="T")
        for column in roots.T:
            yield self.series.solve(self._embedded(column))

    def draw(self, generator: np.random.Generator, at: Array) -> tuple[Array, Array, Array]:
        """Draw a field at hours (A,), the weights of observations of it, and weights of its uncertainty.

        The square of a field of the last is on average what the missing values would take from variances.
        """
        series = self.series
        drawn = series.draw(generator, at)
        field, values = drawn[len(series.hours) :], drawn[: len(series.hours)]
        noise = generator.standard_normal(values.shape) * np.sqrt(series.noise_of_places)
        noise[:, series.poles] = noise[:, series.poles].sum(axis=-1, keepdims=True) / series.copies
        values = values + noise
        weights = self.weights(values, tolerance=TOLERANCE_OF_DRAWS)
        return field, weights, series.solve(values) - weights

    def draws(self, generator: np.random.Generator, count: int) -> Iterator[Array]:
        """Weights of fields whose mean square is what the missing values would take from variances."""
        for _ in range(count):
            yield self.draw(generator, np.empty(0))[2]

    def _solved(self, right: Array, *, tolerance: float) -> Array:
        """Give ``[A (b - e)]_o`` of b that is zero where nothing was observed."""
        found = self.series.solve(right)
        found -= self.series.solve(self._embedded(self._errors(found.flat[self.missing], tolerance)))
        found.flat[self.missing] = 0.0
        return found

    def _errors(self, seen: Array, tolerance: float) -> Array:
        """Solve ``A_mm e = [A b]_m``: by a factor where few values are missing, else iteratively."""
        from scipy.linalg import cho_solve

        if self.few:
            return np.asarray(cho_solve((self._factor, True), seen))
        solution = conjugate_gradients(
            partial(self._each, self.series.solve),
            seen[None],
            precondition=partial(self._each, partial(self.series.shrunk, tau=TAU)),
            tolerance=tolerance,
            iterations=MOST_PRODUCTS - min(self.iterations, MOST_PRODUCTS - 1),
            recompute=False,
        )
        self.iterations += solution.products
        return np.asarray(solution.value[0])

    def _each(self, function: Callable[[Array], Array], rows: Array) -> Array:
        """Apply a matrix of the series between missing values, to rows (r, m)."""
        return np.stack([function(self._embedded(row)).ravel()[self.missing] for row in rows])

    def _embedded(self, values: Array) -> Array:
        """Give a field that is zero where something was observed."""
        field = np.zeros(self.series.shape)
        field.flat[self.missing] = values
        return field

    def _product(self, field: Array) -> Array:
        return self.series.prior_product(field) + self.series.noise_of_places * field

    @cached_property
    def _factor(self) -> Array:
        """Lower Cholesky factor of ``A_mm``."""
        inverse = self._each(self.series.solve, np.eye(self.missing.size))
        return cholesky_lower(0.5 * (inverse + inverse.T))
