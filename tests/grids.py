"""Latitude-longitude grids of every kind, small enough for dense formulas, and their matrices."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

import cagp_dist as cagp
from cagp_dist.runtime import SerialExecutor

from .oracle import KERNELS, ring_matrix, ring_points
from .pairwise import by_turns

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Layout:
    """Latitudes (P,), number of longitudes Q, noise variance (P,), and whether parities separate."""

    latitude: Array
    n_longitudes: int
    noise: Array
    mirrored: bool


def _layout(latitude, n_longitudes, noise, *, mirrored: bool) -> Layout:
    latitude = np.asarray(latitude, dtype=float)
    return Layout(latitude, n_longitudes, np.broadcast_to(noise, latitude.shape).astype(float), mirrored)


def gaussian_latitudes(count: int) -> Array:
    """Latitudes of Gaussian quadrature, as spectral models have them; symmetric up to rounding."""
    return np.rad2deg(np.arcsin(np.polynomial.legendre.leggauss(count)[0]))


_POLES = np.linspace(-90.0, 90.0, 9)
_RAGGED = [-71.0, -64.5, -30.0, -28.0, 3.0, 44.0, 80.0]
LAYOUTS: dict[str, Layout] = {
    "poles, even Q": _layout(_POLES, 12, 0.05, mirrored=True),
    "poles, odd Q, even P, descending": _layout(np.linspace(90.0, -90.0, 8), 9, 0.05, mirrored=True),
    "no poles, odd Q": _layout(np.linspace(-80.0, 80.0, 8), 13, 0.2, mirrored=True),
    "Gaussian latitudes": _layout(gaussian_latitudes(10), 10, 0.05, mirrored=True),
    "irregular latitudes": _layout(_RAGGED, 10, 0.05, mirrored=False),
    "one hemisphere, odd Q, descending": _layout([90.0, 61.0, 35.0, 20.0, 5.0], 11, 0.05, mirrored=False),
    "noise that is its own mirror image": _layout(_POLES, 12, 0.02 + np.abs(np.sin(_POLES)), mirrored=True),
    "noise that is not": _layout(_POLES, 12, np.linspace(0.02, 1.0, 9), mirrored=False),
    "irregular, with noise by latitude": _layout(_RAGGED, 9, np.linspace(1.0, 0.02, 7), mirrored=False),
    "the equator": _layout([0.0], 8, 0.05, mirrored=True),
    "one latitude": _layout([33.0], 7, 0.05, mirrored=False),
    "a pole": _layout([90.0], 6, 0.05, mirrored=False),
    "two mirrored latitudes, two longitudes": _layout([-10.0, 10.0], 2, 0.05, mirrored=True),
    "one longitude": _layout(np.linspace(-60.0, 60.0, 5), 1, 0.05, mirrored=True),
    "one point": _layout([45.0], 1, 0.05, mirrored=False),
}
LENGTHSCALES = (3.0, 0.3, 0.01)


@dataclass(frozen=True, eq=False)
class GridProblem:
    """A Gram matrix by rings, and by brute force: points (n, 3), noise (n,), K and G = K + noise (n, n)."""

    layout: Layout
    kernel: cagp.Matern32
    grid: cagp.LatLonGrid
    rings: cagp.RingGram
    points: Array
    noise: Array
    K: Array
    G: Array

    @property
    def n(self) -> int:
        """Number of points."""
        return len(self.points)

    def solve(self, right: Array) -> Array:
        """``G^-1 right`` by a dense Cholesky factor."""
        return cho_solve(cho_factor(self.G, lower=True), right)

    def field(self, *stack: int, seed: int = 0) -> Array:
        """White noise, one field (P, Q) or a stack of fields."""
        return np.random.default_rng([seed, self.n]).normal(size=(*stack, *self.grid.shape))


def make_problem(layout: Layout, kernel: cagp.Matern32) -> GridProblem:
    """Both matrices of a layout."""
    grid = cagp.LatLonGrid(layout.latitude, layout.n_longitudes)
    noise = np.repeat(layout.noise, layout.n_longitudes)
    K = ring_matrix(kernel, layout.latitude, layout.n_longitudes)
    return GridProblem(
        layout,
        kernel,
        grid,
        cagp.RingGram(grid, kernel, noise_variance=layout.noise, executor=SerialExecutor()),
        ring_points(layout.latitude, layout.n_longitudes),
        noise,
        K,
        K + np.diag(noise),
    )


@cache
def grid_problem(
    name: str = "poles, even Q",
    kernel_class: type[cagp.Matern32] = cagp.Matern32,
    lengthscale: float = 0.3,
) -> GridProblem:
    """The problem of a named layout, of variance 2; made once."""
    return make_problem(LAYOUTS[name], kernel_class(lengthscale=lengthscale, variance=2.0))


EVERY_CASE = by_turns({"name": list(LAYOUTS), "kernel_class": KERNELS, "lengthscale": LENGTHSCALES})
"""Every layout, with kernels and lengthscales by turns; their pairs are left to the exhaustive run."""
EVERY_LAYOUT = [(name, cagp.Matern32, 0.3) for name in LAYOUTS]


def case_name(value: object) -> str:
    """Name of a parameter of a case, for pytest."""
    return value.__name__ if isinstance(value, type) else str(value)
