"""Every Gram matrix there is, of as many points as a test wants, and its dense matrix by brute force."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import cagp_dist as cagp
from cagp_dist.gram import Gram
from cagp_dist.kernels import Kernel
from cagp_dist.runtime import Executor, SerialExecutor

from ..oracle import kernel_matrix, ring_points

Array = np.ndarray
SERIAL = SerialExecutor()
GRID_SHAPES = {1: (1, 1), 2: (1, 2), 36: (6, 6), 63: (7, 9), 64: (8, 8), 65: (5, 13), 130: (13, 10)}
MISSING = 15
SHAPES_WITH_MISSING = {
    1: (4, 4),
    2: (1, 17),
    36: (3, 17),
    63: (6, 13),
    64: (79, 1),
    65: (8, 10),
    130: (5, 29),
}
SHAPES_WITH_POLES = {1: (1, 5), 2: (2, 4), 36: (4, 17), 63: (11, 7), 64: (33, 2), 65: (9, 9), 130: (18, 8)}
"""Two poles (for one point, one) that were observed once, and n - 2 points of the rows between."""


@dataclass(frozen=True)
class Case:
    """A Gram matrix, and by brute force the points (n, p), the noise (n,) and the matrix (n, n)."""

    gram: Gram
    X: Array
    noise: Array

    @property
    def K(self) -> Array:
        return kernel_matrix(self.gram.kernel, self.X, self.X)

    @property
    def G(self) -> Array:
        return self.K + np.diag(self.noise)

    def cross(self, points: Array) -> Array:
        return kernel_matrix(self.gram.kernel, points, self.X)

    @property
    def grid(self) -> cagp.LatLonGrid | None:
        """The grid of which these are points."""
        rings = getattr(self.gram, "rings", self.gram)
        return rings.grid if isinstance(rings, cagp.RingGram) else None


@dataclass(frozen=True)
class Maker:
    """Makes a Gram matrix of n points (in p dimensions, where that can be chosen), and its dense matrix.

    Grids keep what they compute on an executor.
    """

    make: Callable[..., Case]
    mixes: bool = False
    """Whether rounding errors are relative to the largest entry of a product."""
    solve: Callable[[Gram, Array], Array] | None = None
    """How it solves, where it does."""


def cloud(gram_class, **settings):
    """Random points, noise by point."""

    def make(kernel: Kernel, n: int, p: int, executor: Executor = SERIAL) -> Case:
        rng = np.random.default_rng([n, p])
        X, noise = rng.uniform(size=(n, p)), rng.uniform(0.01, 2.0, size=n)
        return Case(gram_class(kernel, X, noise_variance=noise, **settings), X, noise)

    return make


def whole_grid(latitudes, *, even_noise):
    """All points of a grid, noise by latitude, which is its own mirror image or not."""

    def make(kernel: Kernel, n: int, p: int, executor: Executor = SERIAL) -> Case:
        P, Q = GRID_SHAPES[n]
        latitude, noise = latitudes(P), np.random.default_rng(n).uniform(0.01, 2.0, size=P)
        noise = 0.5 * (noise + noise[::-1]) if even_noise else noise
        gram = cagp.RingGram(cagp.LatLonGrid(latitude, Q), kernel, noise_variance=noise, executor=executor)
        assert len(gram.wavenumbers.sizes) == (2 if even_noise and P > 1 else 1)
        return Case(gram, ring_points(latitude, Q), np.repeat(noise, Q))

    return make


def part_of_a_grid(kernel: Kernel, n: int, p: int, executor: Executor = SERIAL) -> Case:
    """n points of a grid of n + 15, the rest missing: ten together, five scattered."""
    P, Q = SHAPES_WITH_MISSING[n]
    observed = np.ones(n + MISSING, dtype=bool)
    observed[:10] = False
    observed[10 + np.random.default_rng(n).choice(n + 5, 5, replace=False)] = False
    return masked(kernel, regular(P), np.linspace(0.01, 2.0, P), observed.reshape(P, Q), executor)


def poles_observed_once(kernel: Kernel, n: int, p: int, executor: Executor = SERIAL) -> Case:
    """n points of a grid: any copy of each pole, and the first points of the rows between."""
    P, Q = SHAPES_WITH_POLES[n]
    observed = np.zeros((P, Q), dtype=bool)
    observed[0, Q - 1] = True
    if P > 1:
        observed[-1, Q // 2] = True
        observed[1:-1].flat[: n - 2] = True
    gram = masked(kernel, with_poles(P), np.linspace(2.0, 0.01, P), observed, executor)
    assert len(gram.gram.layout.poles) == min(P, 2)
    assert gram.gram.shape == (n, n)
    return gram


def noise_by_point(kernel: Kernel, n: int, p: int, executor: Executor = SERIAL) -> Case:
    """All points of a grid, whose noise varies along latitudes."""
    P, Q = GRID_SHAPES[n]
    noise = np.random.default_rng(n).uniform(0.05, 1.0, size=n)
    mean = np.exp(np.log(noise.reshape(P, Q)).mean(axis=1))
    whole = masked(kernel, regular(P), mean, np.ones((P, Q), dtype=bool), executor)
    return Case(cagp.MaskedRings(whole.gram.rings, whole.gram.observed, noise_variance=noise), whole.X, noise)


def masked(kernel: Kernel, latitude: Array, noise: Array, observed: Array, executor: Executor) -> Case:
    """The observed points of a grid with noise by latitude."""
    Q, there = observed.shape[1], observed.ravel()
    rings = cagp.RingGram(cagp.LatLonGrid(latitude, Q), kernel, noise_variance=noise, executor=executor)
    return Case(
        cagp.MaskedRings(rings, observed), ring_points(latitude, Q)[there], np.repeat(noise, Q)[there]
    )


def regular(P: int) -> Array:
    return np.linspace(-80.0, 80.0, P) if P > 1 else np.zeros(1)


def with_poles(P: int) -> Array:
    return np.linspace(90.0, -90.0, P) if P > 1 else np.array([90.0])


MAKERS = {
    "dense": Maker(cloud(cagp.DenseGram), solve=cagp.DenseGram.solve),
    "tiled": Maker(cloud(cagp.TiledGram)),
    "tiled-64": Maker(cloud(cagp.TiledGram, tile=64)),
    "tiled-7": Maker(cloud(cagp.TiledGram, tile=7)),
    "tiled-1": Maker(cloud(cagp.TiledGram, tile=1)),
    "rings": Maker(whole_grid(regular, even_noise=True), mixes=True, solve=cagp.RingGram.solve),
    "rings with poles": Maker(
        whole_grid(with_poles, even_noise=False), mixes=True, solve=cagp.RingGram.solve
    ),
    "masked rings": Maker(part_of_a_grid, mixes=True),
    "masked rings with poles": Maker(poles_observed_once, mixes=True),
    "masked rings with noise by point": Maker(noise_by_point, mixes=True),
}
