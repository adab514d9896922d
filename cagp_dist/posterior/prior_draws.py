"""Draws of the prior at observed points and targets together: exact where that is cheap, else nearly so.

Four ways, of which `prior_draws` takes the first that fits; which one depends on kernel, points and targets::

    CovarianceDraws   by a square root of the joint covariance matrix        exact; up to 4,096 points
    GridDraws         on one latitude-longitude grid that has all of them    exact; few points beside them
    FactorDraws       by Vecchia's factor on 60 neighbours                   Matern, smoothness up to 3/2
    WaveDraws         random waves, frequencies shared by 64 draws           exact covariance on average

By Vecchia's factor posterior variances are 0.13 % off at most (root mean square over targets; of smoothness
5/2 1 %). Given the 1,024 frequencies that some draws share, a variance of waves is off by 1 to 4 % mostly,
5.5 % at most (measured in one to three dimensions, for noise of 0.1 to 1e-5 of the prior variance): from N
draws it has a relative standard error of at most ``sqrt((2 + 0.25) / N)``, instead of ``sqrt(2 / N)``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.gram.functionals import LinearFunctionals, runs
from cagp_dist.gram.gram_matrix import Gram
from cagp_dist.gram.masked import MaskedRings
from cagp_dist.gram.ring_gram import RingGram
from cagp_dist.gram.targets import (
    Targets,
    averaged,
    covariance_with,
    list_targets,
    part,
    prior_covariance,
    target_count,
    target_points,
)
from cagp_dist.gram.vecchia_factor import VecchiaFactor, vecchia_factor
from cagp_dist.kernels import Kernel
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.latlon.window import common_grid
from cagp_dist.posterior.fourier import (
    POINTS_AT_ONCE,
    SPECTRUM_WAVES,
    Spectrum,
    draw_spectra,
    evaluate_spectra,
)
from cagp_dist.runtime import Executor
from cagp_dist.tiling import block_ranges, split

# Observed points and targets up to which a dense square root takes no time: 134 MB, a second
MOST_BY_COVARIANCE = 4096

# Nodes of cells up to which their covariances with all targets are made for that
MOST_NODES = 4 * MOST_BY_COVARIANCE

MOST_BESIDE = 4  # Points of a common grid in units of those that are wanted, at most
MOST_ROOT_BYTES = 2**30  # Square roots of the kernel on a common grid, at most
GRID_ENTRIES = 2**22  # Values of draws on a grid that are made at a time, about: 32 MiB
SAME_WAVES = 64  # Draws that share their frequencies, at most
WAVE_POINTS = 2048  # Points of a task of random waves


BY_FACTOR_POINTS = 2**16  # Points up to which Vecchia's factor is made: 0.1 ms for each on one core
BY_FACTOR_NEIGHBOURS = 60

# Twice the smoothness of kernels up to which its covariance is nearer than that of waves
BY_FACTOR_DEGREES = 3.0

BY_FACTOR_NUGGET = 1e-10  # Part of the variance that points have for themselves, so that they may coincide
BY_FACTOR_COLUMNS = 32  # Draws that are made at a time


class PriorDraws(Protocol):
    """Draws of ``N(0, k)`` at n observed points and q targets together."""

    @property
    def description(self) -> str: ...  # how they are drawn, for people

    # of independent exact draws zero; in general how much the squares of the draws vary beyond that: a
    # variance estimated from N of them has the relative standard error ``sqrt((2 + excess) / N)`` at most
    @property
    def excess(self) -> float: ...

    def bytes(self, draws: int) -> int:
        """Count what so many draws take beside the arrays they are returned in."""

    def draw(self, generator: np.random.Generator, draws: int) -> tuple[Array, Array]:
        """Draws at the observed points (n, draws), and the same fields at the targets (q, draws)."""


def prior_draws(gram: Gram, targets: Targets, *, executor: Executor) -> PriorDraws:
    """Choose how to draw at observed points and at targets; see the module."""
    rings = gram.rings if isinstance(gram, MaskedRings) else gram
    if isinstance(rings, RingGram) and isinstance(targets, LatLonGrid) and targets.same_points(rings.grid):
        index = gram.layout.index if isinstance(gram, MaskedRings) else np.arange(rings.grid.size)
        return GridDraws(rings, index, np.arange(rings.grid.size))
    points = target_points(targets)
    q = target_count(targets)
    if len(gram.X) + q <= MOST_BY_COVARIANCE and len(points) <= MOST_NODES:
        return CovarianceDraws(gram.kernel, gram.X, targets)
    if not isinstance(targets, LinearFunctionals) and gram.kernel.is_zonal:
        found = common_grid(gram.X, points)
        if found is not None and _is_cheap(found[0], wanted=len(gram.X) + q):
            grid, (observed, wanted) = found
            on_grid = RingGram(grid, gram.kernel, noise_variance=1.0, executor=executor)  # noise is not used
            return GridDraws(on_grid, observed, wanted)
    rough = all((part.family.degrees_of_freedom or np.inf) <= BY_FACTOR_DEGREES for part in gram.kernel.parts)
    if rough and gram.kernel.coordinates is None and len(gram.X) + len(points) <= BY_FACTOR_POINTS:
        return FactorDraws(gram.kernel, gram.X, targets, executor)
    return WaveDraws(gram.kernel, gram.X, targets, executor)


def _is_cheap(grid: LatLonGrid, *, wanted: int) -> bool:
    roots = DOUBLE * grid.shape[0] ** 2 * (grid.n_longitudes // 2 + 1)
    return grid.size <= MOST_BESIDE * wanted and roots <= MOST_ROOT_BYTES


@dataclass(frozen=True, eq=False)
class CovarianceDraws:
    """Exact draws by a square root of the joint covariance, (n + q)^3 / 3 flops once."""

    kernel: Kernel
    X: Array  # (n, p): observed points
    targets: Targets
    description = "exactly, by the joint covariance"
    excess = 0.0

    def bytes(self, draws: int) -> int:
        """Count the joint covariance, its factor and the root; white noise and values."""
        size = len(self.X) + target_count(self.targets)
        return DOUBLE * (3 * size**2 + 3 * size * draws + len(target_points(self.targets)) * size)

    @cached_property
    def root(self) -> Array:
        """R (n + q, rank) with ``R R'`` the joint covariance, which may be singular up to rounding."""
        from scipy.linalg.lapack import dpstrf

        n = len(self.X)
        seen = covariance_with(self.kernel, self.X, self.targets)
        joint = np.empty((n + seen.shape[1],) * 2, order="F")
        joint[:n, :n] = self.kernel(self.X, self.X)
        joint[:n, n:] = seen
        joint[n:, :n] = seen.T
        joint[n:, n:] = prior_covariance(self.kernel, self.targets)
        rounding = np.finfo(np.float64).eps * self.kernel.variance * len(joint)
        factor, pivots, rank, _ = dpstrf(joint, tol=rounding, lower=1, overwrite_a=1)
        root = np.empty((len(joint), rank))
        root[pivots - 1] = np.tril(factor)[:, :rank]
        return root

    def draw(self, generator: np.random.Generator, draws: int) -> tuple[Array, Array]:
        """Give draws (n, draws) and (q, draws); 2 (n + q)^2 draws flops."""
        values = self.root @ generator.standard_normal((draws, self.root.shape[1])).T
        return values[: len(self.X)], values[len(self.X) :]


@dataclass(frozen=True, eq=False)
class GridDraws:
    """Exact draws on a latitude-longitude grid, of which points are taken."""

    rings: RingGram  # the grid and the kernel
    # where observed points and targets lie in the flattened grid
    observed: Indices
    wanted: Indices
    description = "exactly, on a grid that has all points"
    excess = 0.0

    def bytes(self, draws: int) -> int:
        """Count square roots and what they are made from; some draws on the grid, noise and transforms."""
        grid = self.rings.grid
        at_once = max(1, min(draws, GRID_ENTRIES // grid.size)) * grid.size
        return round(1.25 * self.rings.wavenumbers.block_bytes) + 8 * DOUBLE * at_once

    def draw(self, generator: np.random.Generator, draws: int) -> tuple[Array, Array]:
        """Give draws (n, draws) and (q, draws); 4 P^2 Q flops each and two Fourier transforms of the grid."""
        size = self.rings.grid.size
        at_points, at_targets = np.empty((self.observed.size, draws)), np.empty((self.wanted.size, draws))
        for first, last in split(draws, -(-draws * size // GRID_ENTRIES)):
            fields = self.rings.sample(generator, fields=last - first).reshape(last - first, size)
            at_points[:, first:last] = fields[:, self.observed].T
            at_targets[:, first:last] = fields[:, self.wanted].T
        return at_points, at_targets


@dataclass(frozen=True, eq=False)
class FactorDraws:
    """Draws by Vecchia's factor of the joint covariance, of points in any place (math 4.2)."""

    kernel: Kernel
    X: Array  # (n, p): observed points
    # of cells the values at the nodes are averaged
    targets: Targets
    executor: Executor  # where the factor is made
    description = "by conditionals on neighbours"
    excess = 0.0

    def bytes(self, draws: int) -> int:
        """Count the factor, some draws at all points and nodes, and values at points and targets."""
        return factor_bytes(
            draws,
            points=len(self.X) + len(target_points(self.targets)),
            values=len(self.X) + target_count(self.targets),
            p=int(self.X.shape[1]),
        )

    @cached_property
    def factor(self) -> VecchiaFactor:
        """Of points and nodes; n (k^3 / 3 + k^2) flops."""
        return vecchia_factor(
            self.kernel,
            np.concatenate([self.X, target_points(self.targets)]),
            BY_FACTOR_NUGGET * self.kernel.variance,
            neighbours=BY_FACTOR_NEIGHBOURS,
            executor=self.executor,
        )

    def draw(self, generator: np.random.Generator, draws: int) -> tuple[Array, Array]:
        """Give draws (n, draws) and (q, draws); 2 n k flops each."""
        n = len(self.X)
        at_points, at_targets = np.empty((n, draws)), np.empty((target_count(self.targets), draws))
        for first, last in block_ranges(draws, BY_FACTOR_COLUMNS):
            normals = generator.standard_normal((last - first, len(self.factor.order))).T
            values = self.factor.draw(normals)
            at_points[:, first:last] = values[:n]
            at_targets[:, first:last] = averaged(self.targets, values[n:])
        return at_points, at_targets


def factor_bytes(draws: int, *, points: int, values: int, p: int) -> int:
    """Count what `FactorDraws` takes for so many points and nodes, and values at points and targets."""
    made = points * (7 * BY_FACTOR_NEIGHBOURS + 4 * p + 8)
    return DOUBLE * (made + 5 * points * min(draws, BY_FACTOR_COLUMNS) + values * draws)


@dataclass(frozen=True, eq=False)
class WaveDraws:
    """Random waves, at any points: 150 nanoseconds for each draw and point on one core."""

    kernel: Kernel
    X: Array  # (n, p): observed points
    # of cells the waves at the nodes are averaged
    targets: Targets
    executor: Executor  # where the waves are evaluated
    description = "by random waves"
    excess = 0.25

    def bytes(self, draws: int) -> int:
        """Count copies of points, nodes and draws; of each worker, angles of some points."""
        return wave_bytes(
            draws,
            points=len(self.X) + len(target_points(self.targets)),
            values=len(self.X) + target_count(self.targets),
            p=int(self.X.shape[1]),
            workers=self.executor.workers,
        )

    def draw(self, generator: np.random.Generator, draws: int) -> tuple[Array, Array]:
        """Give draws (n, draws) and (q, draws)."""
        groups = split(draws, -(-draws // SAME_WAVES))
        seeds = generator.integers(2**63, size=len(groups))
        at_points, at_targets = zip(
            *(
                self._together(last - first, int(seed))
                for (first, last), seed in zip(groups, seeds, strict=True)
            ),
            strict=True,
        )
        return np.concatenate(at_points, axis=1), np.concatenate(at_targets, axis=1)

    def _together(self, draws: int, seed: int) -> tuple[Array, Array]:
        """Draws that share their frequencies."""
        spectra = self.executor.submit(draw_spectra, self.kernel, self.X.shape[1], draws, seed)
        targets = list_targets(self.targets)
        at_points, at_targets = (
            [
                self.executor.submit(values_of_waves, spectra, part(places, chunk), home=home)
                for home, chunk in enumerate(_chunks(places))
            ]
            for places in (self.X, targets)
        )
        found = self.executor.gather(at_points + at_targets)
        values, seen = found[: len(at_points)], found[len(at_points) :]
        return np.concatenate(values), np.concatenate(seen) if seen else np.empty((0, draws))


def _chunks(places: Array | LinearFunctionals) -> Iterator[slice]:
    """Places of one task, and of the next."""
    if isinstance(places, LinearFunctionals):
        return runs(places, WAVE_POINTS)
    return (slice(*rows) for rows in block_ranges(len(places), WAVE_POINTS))


def values_of_waves(spectra: list[Spectrum], places: Array | LinearFunctionals) -> Array:
    """Values of the draws at points, or means over cells, shape (q, draws); a task of executors."""
    return averaged(places, evaluate_spectra(spectra, np.ascontiguousarray(target_points(places))))


def wave_bytes(draws: int, *, points: int, values: int, p: int, workers: int) -> int:
    """Count what `WaveDraws` takes for so many points and nodes, and values at points and targets."""
    angles = 4 * POINTS_AT_ONCE * SPECTRUM_WAVES * workers
    return DOUBLE * (2 * points * p + values * draws + angles)


def scattered_bytes(draws: int, *, points: int, values: int, p: int, workers: int) -> int:
    """Count what draws at scattered points take at most, whichever kernel there is."""
    of_waves = wave_bytes(draws, points=points, values=values, p=p, workers=workers)
    if points > BY_FACTOR_POINTS:
        return of_waves
    return max(of_waves, factor_bytes(draws, points=points, values=values, p=p))
