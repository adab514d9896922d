"""Numbers of the prior integrated over instead of plugged in: where observations are few (math 9).

The covariance of the observations is ``s^2 (R_l + g diag(d))``, d the noises of the points in units of their
mean. On the orthonormal complement Z of the basis of the mean, in units of the noise, one decomposition ``Z'
R_l Z = U diag(e) U'`` has the restricted likelihood at *every* ratio g, and what all ratios predict::

    -2 log L = sum log(e + g) + m log s^2 + Q / s^2,     Q = sum (U' Z' y)^2 / (e + g)

s^2, with a prior of ``1 / s^2``, is integrated out: the likelihood is ``Q^(-m / 2)``, and predictive
distributions are Student's of m degrees of freedom with ``s^2 = Q / m``. l and g are on a grid with weights
likelihood times prior (`hyperprior`): what is predicted is a mixture. Where the noise is known, ``s^2 = noise
/ g``, and where the variance is, s^2 is that: distributions are then Gaussian. A nugget beside a known noise
is a third number. Posteriors of several kernels are joined by the probability of each (`joined`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from math import log
from typing import Literal, NamedTuple

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.errors import ArgumentError, NumericalError
from cagp_dist.gram.targets import Targets, averaged, covariance_with, prior_variance, target_points
from cagp_dist.kernels import Elementary, Family, Kernel
from cagp_dist.likelihood.exact.hyperprior import (
    LARGEST_RATIO,
    LONGEST,
    SHORTEST,
    SMALLEST_RATIO,
    log_prior_of_lengthscale,
    log_prior_of_ratio,
)
from cagp_dist.likelihood.fit_result import FitResult
from cagp_dist.likelihood.negligible import noise_is_negligible
from cagp_dist.prior import Prior
from cagp_dist.text import counted

FIRST_LENGTHSCALES, FIRST_RATIOS = 11, 41  # Of the grid on which the likelihood is looked for

# Of the grid that is integrated over, of which some 80 nodes have a weight that counts, and values of a
# nugget beside a known noise. Quantiles are within a hundredth of a standard deviation of those of a grid
# with four times as many of each.
LENGTHSCALES, RATIOS, NUGGETS = 15, 15, 5

# Logarithm of likelihood times prior, below its maximum, beyond which a grid reaches one step further: of a
# normal distribution of two dimensions 1e-3 of the probability are beyond
FALL = 7.0

FEWEST_WITHIN = 4  # Lengthscales and ratios within that fall, with which the grid is fine enough
MOST_ROUNDS = 6  # Grids that are tried, each finer than the last
LEAST_WEIGHT = 5e-4  # Nodes of a weight below this part of the largest one are left out

# Where the noise is known, variances that are looked at, in units of the mean square of the values; as small
# as they may be
MOST_VARIANCE = 1e4

# Nodes of more than this part of the largest weight must not stand beside some that rounding decides
NEIGHBOURING = 1e-2

# Combinations of the observations that do not depend on the mean: with fewer, a Student distribution has no
# standard deviation
LEAST_DEGREES = 3

FEW = 200  # Observations up to which numbers are integrated over, if nothing else is said
MOST_FLAT = 500  # Places up to which they are where the likelihood is flat: ten seconds
MOST_PLACES = 2_000  # Places up to which they are where that is asked for: five minutes
HYPERPARAMETERS = ("auto", "integrate", "plug-in")
# What is done with the numbers of a prior; "integrated" is another word for "integrate"
Hyperparameters = Literal["auto", "integrate", "integrated", "plug-in"]


def way_of(asked: str) -> str:
    """One of `HYPERPARAMETERS`."""
    return "integrate" if asked == "integrated" else asked


# Of distribution functions of numbers: the probability beyond, and at how many of them they are worked out
BEYOND, POINTS_OF_QUANTILES = 1e-6, 1_000
ROUNDED = 9  # Decimals of the logarithms of numbers that are the same

FLAT = 0.5  # Standard error of the logarithm of a number from which on it is better integrated over
ROUNDING = 1e-6  # Part of its prior variance by which rounding may leave a variance below zero


@dataclass(frozen=True, eq=False)
class SharedFields:
    """Fields that were observed at the same points."""

    X: Array  # (n, p): where
    values: Array  # (n, T)
    mean: Prior  # Whose mean is that of the fields, with a column for each where it is known, or a basis
    noise_variance: Array  # (n,): known noise variance of each point; ones where nothing is known of it

    @property
    def residuals(self) -> Array:
        """Values beside a known mean (n, T)."""
        return self.values - self.mean.known_at(self.X)


@dataclass(frozen=True)
class Held:
    """Numbers that are not integrated over."""

    # lengthscale, variance: where they are given
    lengthscale: float | None = None
    variance: float | None = None
    noise: bool = False  # Whether the noise variances of `SharedFields` are known; if not, they are relative
    nugget: bool = False  # Whether something unknown is added to a known noise


class Node(NamedTuple):
    """One set of numbers, and its probability."""

    weight: float
    family: Family
    lengthscale: float
    ratio: float  # Noise variance over variance, of a point whose noise is the mean one
    variance: float  # ``Q / m``, where it is integrated out; else the variance
    nugget: float = 0.0  # Beside a known noise


class Components(NamedTuple):
    """Distributions of T fields at q targets, a component for each of K nodes."""

    weights: Array  # (K,)
    # location, scale: (K, T, q)
    location: Array
    scale: Array
    degrees: float  # Of Student distributions; infinite for Gaussian ones


class _BesideMean:
    """Fields at the same points in units of their noise, and what a mean leaves of them, at one nugget."""

    def __init__(self, fields: SharedFields, nugget: float, *, level: float) -> None:
        noise = (fields.noise_variance + nugget) / (level + nugget)
        self.X, self.root = fields.X, np.sqrt(noise)
        basis = fields.mean.basis_at(fields.X) / self.root[:, None]
        k = basis.shape[1]
        frame, triangle = np.linalg.qr(basis, mode="complete")
        self.values = fields.residuals / self.root[:, None]
        self.left = np.linalg.pinv(basis)  # coefficients by ordinary least squares
        self.rest = frame[:, k:]
        # log|diag(d)| + log|H'H|: what differs between nuggets
        self.log_determinant = float(np.log(noise).sum()) + 2.0 * float(
            np.log(np.abs(np.diagonal(triangle)[:k])).sum()
        )


@dataclass(frozen=True, eq=False)
class Integrated:
    """A posterior of the numbers of a prior, on a grid."""

    kernel: Elementary  # The only one, or the likeliest; its numbers are replaced by those of each node
    held: Held
    # Weights that sum to one; those of the same family, nugget and lengthscale stand together
    nodes: tuple[Node, ...]
    degrees: float  # m, or infinite where noise or variance are known
    # Mean noise variance of the points, in the unit of `SharedFields.noise_variance`, without the nugget
    noise_level: float
    evaluations: int  # Decompositions

    @property
    def weights(self) -> Array:
        """Of all nodes (K,)."""
        return np.array([node.weight for node in self.nodes])

    @property
    def distributions(self) -> str:
        """What its distributions are, in words."""
        shares: dict[Family, float] = {}
        for node in self.nodes:
            shares[node.family] = shares.get(node.family, 0.0) + node.weight
        each = (f"{family.__name__} {share:.0%}" for family, share in shares.items())
        kernels = f" ({', '.join(each)})" if len(shares) > 1 else ""
        if np.isinf(self.degrees):
            return f"mixtures of {len(self.nodes)} normal distributions{kernels}"
        student = f"Student distributions of {self.degrees:g} degrees of freedom"
        return f"mixtures of {len(self.nodes)} {student}{kernels}"

    @property
    def prior_variance(self) -> float:
        """Mean of the variance of the prior, of which Student distributions have more than the nodes."""
        spread = 1.0 if np.isinf(self.degrees) else self.degrees / (self.degrees - 2.0)
        return spread * float(sum(node.weight * node.variance for node in self.nodes))

    def noise_variances(self, noise_variance: Array) -> Array:
        """Noise variances of points at each node (K, ...), by those in the unit of `SharedFields` (...)."""
        shape = (len(self.nodes), *(1,) * noise_variance.ndim)
        nugget, ratio, variance = (
            np.array([getattr(node, name) for node in self.nodes]).reshape(shape)
            for name in ("nugget", "ratio", "variance")
        )
        return np.asarray(ratio * variance * (noise_variance + nugget) / (self.noise_level + nugget))

    def quantiles(self, levels: Sequence[float]) -> dict[str, list[float]]:
        """Quantiles of lengthscale, variance and noise variance beside `kernel`, for people."""
        own = np.array([node.family == self.kernel.family for node in self.nodes])
        weights = self.weights[own] / self.weights[own].sum()
        lengthscale, variance = (
            np.array([getattr(node, name) for node in self.nodes])[own]
            for name in ("lengthscale", "variance")
        )
        noise = self.noise_variances(np.asarray(self.noise_level))[own]
        return {
            "lengthscale": _quantiles(lengthscale, weights, levels),
            "variance": _quantiles(variance, weights, levels, self.degrees),
            "noise_variance": _quantiles(noise, weights, levels, self.degrees),
        }

    def predict(
        self, fields: SharedFields, targets: Targets, *, noise_variance: Array | None = None
    ) -> Components:
        """Predict fields at targets, by what each node says of them. Shapes: ``noise_variance`` (q,)."""
        points = target_points(targets)
        at_targets = averaged(targets, fields.mean.basis_at(points))
        found = self._predict(
            fields,
            at_targets,
            lambda kernel: covariance_with(kernel, fields.X, targets),
            lambda kernel: prior_variance(kernel, targets),
            noise_variance,
        )
        if fields.mean.knows_mean:
            known = averaged(targets, fields.mean.known_at(points))
            found = found._replace(location=found.location + known.T)
        return found

    def left_out(self, fields: SharedFields) -> Components:
        """Predict each observation (K, T, n) from all others, by the numbers that all of them give."""
        location, scale = [], []
        for kernel, beside, nodes in self._by_lengthscale(fields):
            part = _Decomposed(kernel, beside)
            for node in nodes:
                errors, variance = part.left_out(node.ratio)
                location.append((fields.values - errors).T)
                scale.append(np.broadcast_to(np.sqrt(node.variance * variance).T, location[-1].shape))
        return Components(self.weights, np.stack(location), np.stack(scale), self.degrees)

    def coefficients(self, fields: SharedFields) -> Components:
        """Give the distributions of the coefficients of the mean, (K, T, k)."""
        k, n = len(fields.mean.coefficient_names), len(fields.X)
        nothing = np.zeros((n, k))
        return self._predict(fields, np.eye(k), lambda _: nothing, lambda _: np.zeros(k), None)

    def _by_lengthscale(self, fields: SharedFields) -> Iterator[tuple[Kernel, _BesideMean, list[Node]]]:
        """Yield nodes that share a decomposition: their kernel of variance one, and fields at its nugget."""
        for nugget, group in groupby(self.nodes, lambda node: node.nugget):
            beside = _BesideMean(fields, nugget, level=self.noise_level)
            for (family, lengthscale), alike in groupby(group, lambda node: (node.family, node.lengthscale)):
                yield family(lengthscale, 1.0), beside, list(alike)

    def _predict(
        self,
        fields: SharedFields,
        at_targets: Array,
        cross_of: Callable[[Kernel], Array],
        variance_of: Callable[[Kernel], Array],
        noise_variance: Array | None,
    ) -> Components:
        """Predict what has these covariances (n, q), variances (q,) and parts (q, k) in the mean."""
        shape = len(self.nodes), fields.values.shape[1], len(at_targets)
        location, scale = np.empty(shape), np.empty(shape)
        first = 0
        for kernel, beside, nodes in self._by_lengthscale(fields):
            ratios, variances = (np.array([getattr(node, name) for node in nodes]) for name in _OF_A_NODE)
            part, nugget = _Decomposed(kernel, beside), nodes[0].nugget
            here = slice(first, first + len(nodes))
            mean, variance = part.predicted(ratios, at_targets, cross_of(kernel), variance_of(kernel))
            if noise_variance is not None:
                noise = (noise_variance + nugget) / (self.noise_level + nugget)
                variance = variance + np.outer(ratios, noise)
            location[here], scale[here] = mean, np.sqrt(variances[:, None] * variance)[:, None]
            first += len(nodes)
        return Components(self.weights, location, scale, self.degrees)


_OF_A_NODE = ("ratio", "variance")


class _Spectrum(NamedTuple):
    """What a lengthscale says of points, whatever was observed there."""

    eigenvalues: Array  # (m,)
    vectors: Array  # (n, m)
    smallest_ratio: float  # with which rounding does not decide


Spectra = dict[tuple[Family, float, float, int], _Spectrum]
"""Of families, lengthscales, nuggets and numbers of patterns: kept between draws of the same fields."""


class _Decomposed:
    """What one lengthscale says of fields at the same points, for every ratio."""

    def __init__(self, kernel: Kernel, beside: _BesideMean, known: "_Spectrum | None" = None) -> None:
        self._root, self._values, self._left = beside.root, beside.values, beside.left
        self._kernel, self._X = kernel, beside.X
        self.spectrum = self._decomposed(beside.rest) if known is None else known
        self.eigenvalues, self._vectors, self.smallest_ratio = self.spectrum
        self.projected = self._vectors.T @ self._values
        self.log_determinant = beside.log_determinant

    @cached_property
    def _covariance(self) -> Array:
        """Covariance of the observations in units of their noise (n, n)."""
        return np.asarray(self._kernel(self._X, self._X) / np.outer(self._root, self._root))

    def _decomposed(self, rest: Array) -> "_Spectrum":
        values, vectors = np.linalg.eigh(rest.T @ self._covariance @ rest)
        # no value is left of as many observations as the mean has coefficients
        rounding = len(values) * np.finfo(np.float64).eps * float(values.max(initial=0.0))
        smallest = rounding - max(float(values.min(initial=np.inf)), 0.0)
        return _Spectrum(np.maximum(values, 0.0), rest @ vectors, smallest)  # below zero by rounding

    def likelihood(self, ratios: Array, draws: int) -> tuple[Array, Array]:
        """Log determinants (g,) of the fields of one draw, and quadratic forms (draws, g) of each.

        Determinants are infinite where rounding decides them.
        """
        shifted = self.eigenvalues[:, None] + ratios
        fields = self.projected.shape[1] // draws
        squares = (self.projected**2).reshape(len(shifted), fields, draws).sum(axis=1)
        log_determinant = fields * (np.log(shifted).sum(axis=0) + self.log_determinant)
        return np.where(ratios < self.smallest_ratio, np.inf, log_determinant), squares.T @ (1.0 / shifted)

    def left_out(self, ratio: float) -> tuple[Array, Array]:
        """Errors (n, T) of what all others predict, and their variances (n, 1) in units of the variance."""
        inverse = 1.0 / (self.eigenvalues + ratio)
        diagonal = (self._vectors**2 @ inverse)[:, None]
        errors = self._vectors @ (inverse[:, None] * self.projected) / diagonal
        return errors * self._root[:, None], self._root[:, None] ** 2 / diagonal

    def predicted(self, ratios: Array, at_targets: Array, cross: Array, prior: Array) -> tuple[Array, Array]:
        """Means (g, T, q) and variances (g, q), the latter in units of the variance."""
        inverse = 1.0 / (self.eigenvalues[:, None] + ratios)
        # by ordinary least squares of the mean, whose weights (q, n) are orthogonal to the vectors
        left, cross = self._left, cross.T / self._root
        seen = left @ self._covariance
        rest = (cross - at_targets @ seen) @ self._vectors
        mean = np.stack([rest @ (inverse[:, [i]] * self.projected) for i in range(ratios.size)])
        mean = (mean + at_targets @ (left @ self._values)).transpose(0, 2, 1)
        own = prior - 2.0 * np.einsum("qk,qk->q", at_targets, cross @ left.T)
        own = own + np.einsum("qk,kl,ql->q", at_targets, seen @ left.T, at_targets)
        own = own[:, None] + ratios * np.einsum("qk,kl,ql->q", at_targets, left @ left.T, at_targets)[:, None]
        variance = own - rest**2 @ inverse
        size = np.maximum(own, prior[:, None])
        if (variance < -ROUNDING * size).any():
            raise NumericalError(
                f"the variance of a target is {variance.min():.2g} of the prior's, below zero beyond "
                "rounding: observations nearly coincide and the noise is too small. Give noise_std, or leave "
                "coinciding observations out.",
                key="negative-variance",
            )
        # what rounding leaves of a variance that is known to be positive
        return mean, np.maximum(variance, np.finfo(np.float64).eps * size).T


def is_flat(result: FitResult) -> bool:
    """Whether a fit left lengthscale or variance open: by a factor of e or more, with 95 %."""
    if not result.status.ok and not noise_is_negligible(result, result.prior):
        return True
    errors = np.sqrt(np.diagonal(result.log_covariance))[:-1]
    return bool((errors[np.isfinite(errors)] > FLAT).any())


def reason(asked: str, *, values: int, places: int, result: FitResult) -> str | None:
    """Say why numbers are integrated over; None where they are plugged in."""
    if asked == "integrate":
        return "as asked for"
    if asked == "plug-in":
        return None
    if values <= FEW:
        return f"because there are no more than {counted(values, 'observation')}"
    return "because the likelihood is flat" if places <= MOST_FLAT and is_flat(result) else None


def why_not(
    kernel: Kernel, patterns: Sequence[SharedFields], held: Held, *, solver: object, exact: bool
) -> str | None:
    """Say why numbers cannot be integrated over; None where they can."""
    if len(kernel.parts) > 1:
        return "the kernel is a sum, which has too many numbers for a grid"
    if not exact:
        return f"the solver {solver!r} is not exact"
    if held.nugget and held.variance is not None:
        return "the variance is given, and a nugget beside the known noise is not"
    places = max(len(fields.X) for fields in patterns)
    if places > MOST_PLACES:
        return f"there are {places:,} places, more than {MOST_PLACES:,}"
    if independent_combinations(patterns) < LEAST_DEGREES:
        values = sum(fields.values.size for fields in patterns)
        return f"{counted(values, 'observation')} are not {LEAST_DEGREES} more than the mean has coefficients"
    return None


def independent_combinations(patterns: Sequence[SharedFields]) -> int:
    """Count the combinations of observations that do not depend on coefficients of the mean."""
    return sum(
        fields.values.shape[1] * (len(fields.X) - len(fields.mean.coefficient_names)) for fields in patterns
    )


def integrate(
    kernel: Elementary,
    patterns: Sequence[SharedFields],
    *,
    held: Held,
    progress: Callable[[float], None] | None = None,
) -> Integrated:
    """Find the posterior of the numbers of a prior on a grid."""
    return integrate_draws(kernel, patterns, held=held, draws=1, progress=progress)[0]


def integrate_draws(
    kernel: Elementary,
    patterns: Sequence[SharedFields],
    *,
    held: Held,
    draws: int,
    progress: Callable[[float], None] | None = None,
    spectra: Spectra | None = None,
) -> list[Integrated]:
    """Find the posterior of the numbers of a prior by each of several draws of the same fields.

    Those of one field stand side by side in `SharedFields.values`. All share a grid, and its decompositions;
    ``spectra`` keeps these for other draws.
    """
    degrees = independent_combinations(patterns) // draws
    if degrees < LEAST_DEGREES:
        count = sum(fields.values.size for fields in patterns) // draws
        raise ArgumentError(
            f"there are {count} observations and {count - degrees} coefficients of the mean; expected at "
            f"least {LEAST_DEGREES} observations more, to integrate over lengthscale, variance and noise. "
            'Give these, or plug in what maximum likelihood finds: hyperparameters="plug-in".',
            key="few-observations",
        )
    if held.variance is not None and held.nugget:
        raise ArgumentError(
            "the variance is given, and a nugget beside the known noise is sought; expected both or neither "
            'to be given. Give nugget_std, or hyperparameters="plug-in".',
            key="variance-with-nugget",
        )
    level = float(np.mean(np.concatenate([fields.noise_variance for fields in patterns])))
    extent = _extent(patterns)
    grid = _NumbersGrid(kernel, tuple(patterns), held, draws, degrees, level, extent, spectra)
    return grid.integrated(progress or (lambda _: None))


def joined(posteriors: Sequence[Integrated], probabilities: Sequence[float]) -> Integrated:
    """Average over kernels, of the same data and held numbers; the first is the one that is named."""
    total = sum(probabilities)
    nodes = tuple(
        node._replace(weight=node.weight * probability / total)
        for found, probability in zip(posteriors, probabilities, strict=True)
        for node in found.nodes
    )
    evaluations = sum(found.evaluations for found in posteriors)
    return replace(posteriors[0], nodes=nodes, evaluations=evaluations)


@dataclass(frozen=True, eq=False)
class _NumbersGrid:
    """The likelihood of fields at many numbers, times the prior."""

    kernel: Elementary
    patterns: tuple[SharedFields, ...]
    held: Held
    draws: int  # of each field
    degrees: int  # of the fields of one draw
    level: float
    extent: float
    spectra: Spectra | None

    def integrated(self, progress: Callable[[float], None]) -> list[Integrated]:
        """Look for where the likelihood of any draw is, and put a grid there."""
        nuggets, shares = self._nuggets()
        lengthscales = SHORTEST * self.extent, LONGEST * self.extent
        u = _first(self.held.lengthscale, lengthscales, FIRST_LENGTHSCALES)
        v = _first(self._ratio_held, self._ratios, FIRST_RATIOS)
        evaluations = 0
        for done in range(MOST_ROUNDS):
            value, variance = self._evaluated(nuggets, u, v)
            evaluations += len(nuggets) * len(u)
            progress(min(0.9, 0.4 + 0.25 * done))
            value = value + np.log(shares)[:, None, None]
            top = value.max(axis=(1, 2, 3), keepdims=True)
            if not np.isfinite(top).all():
                raise NumericalError(
                    "the likelihood is not finite anywhere on the grid of lengthscales and noises; check "
                    "that the values vary, and give noise_std or lengthscale_km.",
                    key="likelihood-not-finite",
                )
            within = (value > top - FALL).any(axis=0)
            rows, columns = within.any(axis=(0, 2)), within.any(axis=(0, 1))
            enough = done > 0 and all(
                some.size == 1 or some.sum() >= FEWEST_WITHIN for some in (rows, columns)
            )
            if enough:
                break
            u, v = _around(u, rows, LENGTHSCALES), _around(v, columns, RATIOS)
        of_grid = np.outer(_trapezoid(u), _trapezoid(v))
        return [
            self._of_draw(own, own - highest, own_variance, of_grid, (nuggets, u, v), evaluations)
            for own, highest, own_variance in zip(value, top, variance, strict=True)
        ]

    def _of_draw(
        self,
        value: Array,
        below: Array,
        variance: Array,
        of_grid: Array,
        axes: tuple[Array, Array, Array],
        evaluations: int,
    ) -> Integrated:
        """Give the posterior by one draw: nodes (t, i, j) whose weight counts."""
        nuggets, u, v = axes
        weights = np.exp(below) * of_grid
        _check_determined(value, weights)
        chosen = np.argwhere(weights > LEAST_WEIGHT * weights.max())
        total = float(weights[tuple(chosen.T)].sum())
        nodes = tuple(
            Node(
                float(weights[t, i, j]) / total,
                self.kernel.family,
                float(np.exp(u[i])),
                float(np.exp(v[j])),
                float(variance[t, i, j]),
                float(nuggets[t]),
            )
            for t, i, j in chosen
        )
        gaussian = self.held.noise or self.held.variance is not None
        degrees = np.inf if gaussian else float(self.degrees)
        return Integrated(self.kernel, self.held, nodes, degrees, self.level, evaluations)

    @property
    def _ratio_held(self) -> float | None:
        """Noise over variance, where both are known."""
        if self.held.noise and not self.held.nugget and self.held.variance is not None:
            return self.level / self.held.variance
        return None

    @property
    def _ratios(self) -> tuple[float, float]:
        """Give the ratios of noise over variance that are looked at; of a known noise by the values."""
        if not self.held.noise:
            return SMALLEST_RATIO, LARGEST_RATIO
        power = sum(_squares(fields) for fields in self.patterns) / (self.draws * self.degrees)
        level = self.level / max(power, np.finfo(np.float64).tiny)
        return min(level / MOST_VARIANCE, SMALLEST_RATIO), max(level * MOST_VARIANCE, LARGEST_RATIO)

    def _nuggets(self) -> tuple[Array, Array]:
        """Nuggets beside a known noise, and the part of the prior that each stands for."""
        if not self.held.nugget:
            return np.zeros(1), np.ones(1)
        nodes, weights = np.polynomial.legendre.leggauss(NUGGETS)
        share = 0.5 * (1.0 + nodes)  # of the standard deviation of noise and nugget
        return self.level * share**2 / (1.0 - share**2), 0.5 * weights

    def _evaluated(self, nuggets: Array, u: Array, v: Array) -> tuple[Array, Array]:
        """Log of likelihood times prior, and the variance, of draws, nuggets, lengthscales and ratios."""
        shape = len(nuggets), len(u), len(v)
        log_determinant, quadratic = np.zeros(shape), np.zeros((self.draws, *shape))
        ratios, m = np.exp(v), self.degrees
        for t, nugget in enumerate(nuggets):
            for number, fields in enumerate(self.patterns):
                beside = _BesideMean(fields, float(nugget), level=self.level)
                for i, lengthscale in enumerate(np.exp(u)):
                    key = self.kernel.family, float(lengthscale), float(nugget), number
                    known = None if self.spectra is None else self.spectra.get(key)
                    part = _Decomposed(self.kernel.family(float(lengthscale), 1.0), beside, known)
                    if self.spectra is not None:
                        self.spectra[key] = part.spectrum
                    of_pattern = part.likelihood(ratios, self.draws)
                    log_determinant[t, i] += of_pattern[0]
                    quadratic[:, t, i] += of_pattern[1]
        prior = log_prior_of_lengthscale(np.exp(u), self.extent)[:, None] + log_prior_of_ratio(ratios)
        if self.held.noise:
            variance = np.broadcast_to((self.level + nuggets)[:, None, None] / ratios, quadratic.shape)
        elif self.held.variance is not None:
            variance = np.full(quadratic.shape, self.held.variance)
        else:
            return prior - 0.5 * (log_determinant + m * np.log(quadratic)), quadratic / m
        return prior - 0.5 * (log_determinant + m * np.log(variance) + quadratic / variance), variance


def _squares(fields: SharedFields) -> float:
    """Sum of the squares of what ordinary least squares leave of fields."""
    basis = fields.mean.basis_at(fields.X)
    found = np.linalg.lstsq(basis, fields.residuals, rcond=None)[0]
    return float(np.sum((fields.residuals - basis @ found) ** 2))


def _check_determined(value: Array, weights: Array) -> None:
    """Raise `NumericalError` where numbers that count stand beside some whose likelihood rounding decides."""
    counts = weights > NEIGHBOURING * weights.max()
    beside = np.zeros(value.shape, dtype=bool)
    for axis in (1, 2):
        for start, stop in ((slice(1, None), slice(None, -1)), (slice(None, -1), slice(1, None))):
            left, right = ((*(slice(None),) * axis, part) for part in (start, stop))
            beside[left] |= counts[right]
    if (beside & np.isneginf(value)).any():
        raise NumericalError(
            "the noise is so small beside the field that the likelihood of lengthscales is lost in rounding; "
            "give a larger noise_std or a kernel that is less smooth, or lengthscale and variance.",
            key="noise-lost-in-rounding",
        )


def _extent(patterns: Sequence[SharedFields]) -> float:
    """Give the largest distance between two observed points."""
    from scipy.spatial.distance import pdist

    X = np.unique(np.concatenate([fields.X for fields in patterns]), axis=0)
    if len(X) < 2:
        raise ArgumentError(
            "all observations are at one place, which says nothing of a lengthscale; expected two places at "
            'least. Give lengthscale_km, or hyperparameters="plug-in".',
            key="one-place",
        )
    return float(pdist(X).max())


def _first(held: float | None, ends: tuple[float, float], count: int) -> Array:
    """Logarithms at which the likelihood is looked at first."""
    return np.log([held]) if held is not None else np.linspace(log(ends[0]), log(ends[1]), count)


def _around(x: Array, within: Array, count: int) -> Array:
    """Give a finer grid over the part of one that counts, and one step on each side."""
    if x.size == 1:
        return x
    some = np.flatnonzero(within)
    return np.linspace(x[max(some[0] - 1, 0)], x[min(some[-1] + 1, x.size - 1)], count)


def _trapezoid(x: Array) -> Array:
    """Weights of the trapezoidal rule on equally spaced points, up to a factor."""
    weights = np.ones(x.size)
    if x.size > 1:
        weights[[0, -1]] = 0.5
    return weights


def _quantiles(
    values: Array, weights: Array, levels: Sequence[float], degrees: float = np.inf
) -> list[float]:
    """Quantiles by a density between values on a grid; of finite degrees, of each over chi-square over m."""
    from scipy.interpolate import PchipInterpolator
    from scipy.special import chdtrc, chdtri

    # nodes that differ in another number share a value, but for rounding
    known, place = np.unique(np.log(values).round(ROUNDED), return_inverse=True)
    weights = np.asarray(np.bincount(place, weights=weights), dtype=np.float64)
    if np.isfinite(degrees):
        least, most = np.log(degrees / chdtri(degrees, [BEYOND, 1.0 - BEYOND]))
        x = np.linspace(known[0] + least, known[-1] + most, POINTS_OF_QUANTILES)
        below = weights @ chdtrc(degrees, degrees * np.exp(known[:, None] - x))
    elif known.size == 1:
        return [float(np.exp(known[0]))] * len(levels)
    else:
        x = np.linspace(known[0], known[-1], POINTS_OF_QUANTILES)
        density = np.exp(PchipInterpolator(known, np.log(weights / np.gradient(known)))(x))
        below = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
        below /= below[-1]
    return [float(value) for value in np.exp(np.interp(levels, below, x))]
