"""Fields of a prior, drawn exactly at training and test points together, and observed."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cagp_dist.arrays import Array, Indices
from cagp_dist.calibration.simulation.beliefs import SimulatedFields
from cagp_dist.checks import as_points, check_count, check_generator
from cagp_dist.errors import ArgumentError, BudgetError, NumericalError
from cagp_dist.kernels import Kernel
from cagp_dist.lapack import LARGEST_WHOLE
from cagp_dist.latlon import LatLonGrid
from cagp_dist.latlon.window import common_grid
from cagp_dist.posterior.prior_draws import GridDraws
from cagp_dist.posterior.problem import Observed, noise_of, patterns
from cagp_dist.prior import Prior
from cagp_dist.text import bytes_text, counted

# Training and test points up to which the joint covariance is factored, whatever they lie on
FEW_POINTS = 4096

_JITTERS = (0.0, 1e-14, 1e-13, 1e-12, 1e-11, 1e-10)


@dataclass(frozen=True, eq=False)
class Drawn:
    """Fields of a prior with their observations, and the direction that errors are projected on."""

    fields: SimulatedFields  # What solves get
    direction: Array  # (q,): unit vector
    # Added to the diagonal of the joint covariance, as a fraction of the kernel variance
    relative_jitter: float


def draw(
    prior: Prior,
    X: ArrayLike | LatLonGrid,
    X_test: ArrayLike,
    *,
    simulations: int,
    generator: np.random.Generator,
    observed: NDArray[np.bool_] | None = None,
    memory_limit_bytes: int | None = None,
) -> Drawn:
    """Draw fields jointly at training and test points, and observe them; arguments as of `calibrate`."""
    places = _places(prior, X, observed)
    train, test = places.points, as_points("X_test", X_test)
    check_count("simulations", simulations, least=1)
    check_generator(generator)
    if not (len(train) and len(test)):
        raise ArgumentError(
            f"there are {len(train)} training and {len(test)} test points; expected at least one of each.",
            key="no-points",
        )
    if train.shape[1] != test.shape[1]:
        raise ArgumentError(
            f"X has {counted(train.shape[1], 'column')}, X_test {test.shape[1]}; both need the same "
            "coordinates.",
            key="coordinates-differ",
        )
    direction = generator.standard_normal(len(test))
    direction /= np.linalg.norm(direction)
    source = _source(prior.kernel, train, test, simulations, memory_limit_bytes)
    both = np.concatenate([train, test])
    # coefficients that are estimated are zero in these fields: no error depends on them (math 1.7)
    centre = np.zeros((len(both), 1)) if prior.estimates_mean else prior.mean_at(both)
    if centre.shape[1] != 1:
        raise ArgumentError(
            f"the prior mean has {centre.shape[1]} columns; expected one value per point, as all draws come "
            "from one prior.",
            key="mean-columns",
        )
    values, latent, relative_jitter = source(generator)
    values += centre[: len(train)]
    latent += centre[len(train) :]
    values += np.sqrt(places.noise)[:, None] * generator.standard_normal((len(train), simulations))
    fields = SimulatedFields(places.prior, places.X, places.embedded(values), test, latent)
    return Drawn(fields, direction, relative_jitter)


@dataclass(frozen=True, eq=False)
class ObservedPlaces:
    """Where fields are observed."""

    prior: Prior  # Of the solves; its noise belongs to X
    X: Array | LatLonGrid  # (n, p): what solves get
    points: Array  # (n, p): observed points
    noise: Array  # (n,): noise variance of each
    index: Indices | None = None  # (n,): where they lie on the grid

    def embedded(self, values: Array) -> Array:
        """Values (n, N) as solves take them: on a grid (N, P, Q), NaN where nothing is observed."""
        if self.index is None or not isinstance(self.X, LatLonGrid):
            return values
        fields = np.full((values.shape[1], self.X.size), np.nan)
        fields[:, self.index] = values.T
        return fields.reshape(-1, *self.X.shape)


def _places(prior: Prior, X: ArrayLike | LatLonGrid, observed: NDArray[np.bool_] | None) -> ObservedPlaces:
    if not isinstance(X, LatLonGrid):
        if observed is not None:
            raise ArgumentError(
                "observed is for grids; of points, give those that are observed for X.",
                key="observed-of-points",
            )
        points = as_points("X", X)
        if len(points) == 0:
            return ObservedPlaces(prior, points, points, np.empty(0))
        return ObservedPlaces(
            prior, points, points, noise_of(prior.noise_variance, _observed(points, np.zeros(len(points))))
        )
    mask = np.ones(X.shape, dtype=bool) if observed is None else np.asarray(observed, dtype=bool)
    if mask.shape != X.shape:
        raise ArgumentError(
            f"observed has shape {mask.shape}; expected {X.shape}, that of the grid.", key="shapes"
        )
    seen = _observed(X, np.where(mask, 0.0, np.nan))
    noise = noise_of(prior.noise_variance, seen)
    if seen.layout is None:
        raise TypeError("what is observed on a grid has a layout")
    grid, index = seen.layout.grid, seen.layout.index
    if isinstance(prior.noise_variance, np.ndarray):
        by_point = np.full(grid.size, noise.mean())  # what stands where nothing is observed is not used
        by_point[index] = noise
        prior = Prior(prior.kernel, by_point.reshape(grid.shape), prior.mean)
    return ObservedPlaces(prior, grid, seen.X, noise, index)


def _observed(X: Array | LatLonGrid, values: Array) -> Observed:
    return patterns(X, values)[0].observed()


def _distinct(points: Array) -> tuple[Array, Indices | None]:
    """Points without repetitions, and which of them each one is; None, and all of them, if none coincide."""
    first, where = np.unique(points, axis=0, return_index=True, return_inverse=True)[1:]
    if len(first) == len(points):
        return points, None
    return points[first], where.ravel()


# Draws fields at training points (n, N) and at test points (q, N), and says with how much jitter
Source = Callable[[np.random.Generator], tuple[Array, Array, float]]


def _source(kernel: Kernel, train: Array, test: Array, count: int, memory_limit_bytes: int | None) -> Source:
    """Choose how fields are drawn, exactly: by the joint covariance, or on a grid that has all points."""
    from cagp_dist.memory import available_bytes

    limit = available_bytes() if memory_limit_bytes is None else memory_limit_bytes
    points, where = _distinct(np.concatenate([train, test]))
    needed = 16 * len(points) ** 2 + 32 * len(points) * count

    def dense(generator: np.random.Generator) -> tuple[Array, Array, float]:
        draws, relative_jitter = _draw(kernel, points, count, generator)
        draws = draws if where is None else draws[where]
        return draws[: len(train)], draws[len(train) :], relative_jitter

    if len(points) > FEW_POINTS and kernel.is_zonal:
        grid = _grid_draws(kernel, train, test)
        if grid is not None and grid.bytes(count) + 32 * len(points) * count <= limit:
            rows, columns = grid.rings.grid.shape
            by_grid = columns * (rows**3 // 6 + 4 * rows**2 * count)
            if needed > limit or by_grid < len(points) ** 3 // 3 + 2 * len(points) ** 2 * count:
                return lambda generator: (*grid.draw(generator, count), 0.0)
    if needed > limit:
        raise BudgetError(
            f"{len(points):,} training and test points need a joint covariance, its factor and {count:,} "
            f"draws of {bytes_text(needed)}; expected at most {bytes_text(limit)}. "
            "Simulate on a subset; what a solver that stops early does there holds for so many points only.",
            key="memory",
        )
    return dense


def _grid_draws(kernel: Kernel, train: Array, test: Array) -> GridDraws | None:
    """Exact draws on the grid that all points lie on, if there is one."""
    from cagp_dist.gram import RingGram

    found = common_grid(train, test)
    if found is None:
        return None
    grid, (observed, wanted) = found
    return GridDraws(RingGram(grid, kernel, noise_variance=1.0), observed, wanted)  # noise is not used


def _draw(kernel: Kernel, points: Array, count: int, generator: np.random.Generator) -> tuple[Array, float]:
    """Joint draws of ``N(0, k)`` at all points, shape (points, count), from one Cholesky factor."""
    factor, relative_jitter = _factor(kernel(points, points), scale=kernel.variance)
    return np.asarray(factor @ generator.standard_normal((len(points), count))), relative_jitter


def _factor(covariance: Array, *, scale: float) -> tuple[Array, float]:
    """Lower Cholesky factor, with the smallest diagonal addition that rounding errors call for."""
    from cagp_dist.gram.dense import cholesky_lower

    large = len(covariance) > LARGEST_WHOLE
    diagonal = covariance.diagonal().copy()
    for relative_jitter in _JITTERS:
        covariance[np.diag_indices(len(covariance))] = diagonal + relative_jitter * scale
        try:
            factor = cholesky_lower(covariance) if large else np.linalg.cholesky(covariance)
        except (np.linalg.LinAlgError, NumericalError):
            continue
        return np.asarray(factor, dtype=np.float64), relative_jitter
    raise NumericalError(
        f"the joint prior covariance of {len(covariance)} points is not positive definite, even with "
        f"{_JITTERS[-1]:g} of the kernel variance on its diagonal. Shorten the lengthscale, use a rougher "
        "kernel or thin the points.",
        key="not-positive-definite",
    )
