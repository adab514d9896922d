"""What is solved: parts of the built-in field, and a small problem whose answer is known."""

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import cagp_dist as cagp
from cagp_dist.fields.canonical import observation_points
from cagp_dist.fields.sources import open_source
from pipelines.benchmarks import scattered
from pipelines.benchmarks.measuring import on_sphere
from pipelines.benchmarks.peers.adapters.harness import Array, Problem

if TYPE_CHECKING:
    import xarray as xr

FIT_START = (0.1, 10.0, 1.0)
"""Where every fit starts: lengthscale, variance, noise variance."""

NO_GRID = np.zeros(0)

DRAWN = (scattered.PRIOR.kernel.lengthscale, scattered.PRIOR.kernel.variance, scattered.PRIOR.noise_number)


@dataclass(frozen=True)
class Case:
    """A part of the built-in field, or a field drawn from the prior.

    Attributes
    ----------
    n, q : int
        Points observed and points held out.
    step : int
        0: points drawn at random. Otherwise every ``step``-th row and column, from row ``step / 2``, so that
        the rows are symmetric about the equator and no pole is among them.
    prior : tuple of float
        Lengthscale (chord), variance and noise variance (K^2): maximum likelihood of the points observed, as
        `fitted` finds them. They follow the density of the points: what lies between two of them is noise.
    drawn : bool
        Whether points are uniform on the sphere and values drawn from the prior of the benchmark of scattered
        points: more than the built-in field has.
    """

    n: int
    q: int
    step: int = 0
    prior: tuple[float, float, float] = (0.09, 34.0, 1.4)
    drawn: bool = False

    @property
    def text(self) -> str:
        """What it is, in words."""
        where = f"every {self.step}th row and column of the grid" if self.step else "drawn at random"
        where = "uniform on the sphere, values drawn from the prior" if self.drawn else where
        held_out = f", {self.q:,} held out" if self.q else ""
        return f"{self.n:,} points observed{held_out}, {where}"


CASES = {
    "points-2000": Case(2000, 500, prior=(0.122, 39.7, 2.80)),
    "points-10000": Case(10_000, 1000, prior=(0.0850, 29.4, 1.43)),
    "points-100000": Case(100_000, 10_000, prior=(0.041, 22.4, 0.53)),
    "drawn-1000000": Case(1_000_000, 20_000, prior=DRAWN, drawn=True),
    "grid-60x120": Case(7100, 100, step=4, prior=(0.0982, 30.5, 1.90)),
    "grid-120x240": Case(28_700, 100, step=2, prior=(0.0643, 24.1, 1.03)),
}

FIT_CASES = {
    "fit-40x80": Case(3200, 0, step=6),
    "fit-60x120": Case(7200, 0, step=4),
    "fit-points-10000": Case(10_000, 0),
    "fit-points-100000": Case(100_000, 0),
}


def make_problem(case: Case, *, threads: int) -> tuple[Problem, Array]:
    """Problem of a case, with its prior mean removed, and what was observed at the points held out.

    The mean is a polynomial of degree two in latitude, fitted to the observed points alone. A case without
    held-out points is for a fit and holds the start of it.

    Returns
    -------
    Problem, array of float64, shape (q,)
        Values in kelvin.
    """
    if case.drawn:
        X = on_sphere(case.n + case.q, seed=0)
        y = scattered.field(X)
        nowhere = np.zeros((0, 0), dtype=bool)
        problem = Problem(X[: case.n], y[: case.n], X[case.n :], *case.prior, threads, NO_GRID, nowhere)
        return problem, y[case.n :]
    if case.step:
        latitude, longitude, values = _grid_of_sample(case.step)
        shape = latitude.size, longitude.size
        site_latitude, site_longitude = np.repeat(latitude, shape[1]), np.tile(longitude, shape[0])
    else:
        latitude, shape = NO_GRID, (0, 0)
        site_latitude, site_longitude, values = _points_of_sample()
    chosen = np.random.default_rng(0).permutation(values.size)[: case.n + case.q]
    train, test = chosen[: case.n], chosen[case.n :]
    if case.step:
        train, test = np.sort(train), np.sort(test)  # row by row, as an adapter expects them
    X = cagp.unit_sphere(site_latitude, site_longitude)
    residual = values - _quadratic(site_latitude, values, observed=train)
    observed = np.zeros(shape, dtype=bool)
    if case.step:
        observed.flat[train] = True
    prior = case.prior if case.q else FIT_START
    problem = Problem(X[train], residual[train], X[test], *prior, threads, latitude, observed)
    return problem, residual[test]


def fitted(problem: Problem) -> tuple[float, float, float]:
    """Lengthscale, variance and noise variance of maximum likelihood, from the observed points alone.

    The likelihood is exact on a grid and of up to 2,000 points anywhere, else Vecchia's.
    """
    where: cagp.LatLonGrid | Array = problem.X
    y = problem.y
    if problem.observed.size:
        where = cagp.LatLonGrid(problem.latitude_degrees, problem.observed.shape[1])
        y = np.full(where.shape, np.nan)
        y[problem.observed] = problem.y
    prior = cagp.fit(cagp.Matern32, where, y, mean=0.0).prior
    return prior.kernel.lengthscale, prior.kernel.variance, prior.noise_variance


def check_problem(*, threads: int) -> Problem:
    """70 points of a coarse grid and 10 others; no solver has an excuse for being far off."""
    grid = cagp.LatLonGrid(np.linspace(-70.0, 70.0, 8), 10)
    generator = np.random.default_rng(7)
    observed = np.ones(grid.size, dtype=bool)
    observed[generator.choice(grid.size, size=10, replace=False)] = False
    X = grid.points
    y = np.sin(3.0 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * generator.standard_normal(grid.size)
    field = observed.reshape(grid.shape)
    return Problem(
        X[observed], y[observed], X[~observed], 0.5, 2.0, 0.1, threads, grid.latitude_degrees, field
    )


def check_fit_problem(*, threads: int) -> Problem:
    """Small whole grid, for the warm-up of a fit."""
    part = check_problem(threads=threads)
    grid = cagp.LatLonGrid(part.latitude_degrees, part.observed.shape[1])
    y = np.sin(3.0 * grid.points[:, 0]) + 0.3 * np.random.default_rng(7).standard_normal(grid.size)
    everywhere = np.ones(grid.shape, dtype=bool)
    return Problem(grid.points, y, grid.points[:0], 0.5, 2.0, 0.1, threads, grid.latitude_degrees, everywhere)


def _quadratic(latitude_degrees: Array, values: Array, *, observed: NDArray[np.intp]) -> Array:
    """Polynomial of degree two in latitude, by least squares weighted with area, shape (N,)."""
    powers = np.vander(latitude_degrees / 90.0, 3)
    root = np.sqrt(cagp.area_weights(latitude_degrees[observed]))
    fitted, *_ = np.linalg.lstsq(root[:, None] * powers[observed], root * values[observed], rcond=None)
    return powers @ fitted


def _points_of_sample() -> tuple[Array, Array, Array]:
    """Latitude, longitude and temperature of every place of the built-in field, a pole being one."""
    points = observation_points(_sample())
    return points.north, points.east, points.values[0]


def _grid_of_sample(step: int) -> tuple[Array, Array, Array]:
    """Latitudes (P,) and longitudes (Q,) of a part of the grid, and temperatures (P Q,) row by row."""
    part = _sample().isel(time=0, latitude=slice(step // 2, None, step), longitude=slice(None, None, step))
    return part["latitude"].values, part["longitude"].values, part["t2m"].values.astype(np.float64).ravel()


@cache
def _sample() -> "xr.Dataset":
    with tempfile.TemporaryDirectory() as folder:
        return open_source("sample", cache_directory=Path(folder)).load()
