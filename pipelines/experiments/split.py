"""The published split of a grid, 64,700 points observed and 100 held out, with fields drawn from the prior.

Everything is known here: the latent truth, the observations, and, from the structure of the whole grid, the
exact posterior.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.solvers.actions.policies import residuals
from cagp_dist.solvers.actions.projection import project

LATITUDES, QUICK_LATITUDES = 180, 24
HELD_OUT = 100
LENGTHSCALE, VARIANCE, NOISE_VARIANCE = 0.041, 22.4, 0.53
"""About what maximum likelihood gives for temperature about a mean by latitude: chord, K^2, K^2."""


@dataclass(frozen=True, eq=False)
class Split:
    """A grid of cell centres (no poles) of which some points are held out.

    Attributes
    ----------
    prior : Prior
        From which fields are drawn, and which all solvers use.
    rings : RingGram
        The whole grid.
    observed : array of bool, shape (P, Q)
        False at the q points held out; n are left.
    """

    prior: cagp.Prior
    rings: cagp.RingGram
    observed: NDArray[np.bool_]

    @classmethod
    def make(
        cls,
        latitudes: int,
        generator: np.random.Generator,
        *,
        lengthscale: float = LENGTHSCALE,
        held_out: int = HELD_OUT,
    ) -> Self:
        """Build a grid of this number of latitudes and twice as many longitudes.

        The lengthscale is that of the full size; on a coarser grid it spans as many steps of the grid.
        The points held out are drawn with probabilities proportional to the areas of their cells: averages
        over them are then averages over the globe, which points drawn from all alike, crowded at the
        poles, would not give.
        """
        step = 180.0 / latitudes
        grid = cagp.LatLonGrid(-90.0 + step * (np.arange(latitudes) + 0.5), 2 * latitudes)
        prior = cagp.Prior(cagp.Matern32(lengthscale * LATITUDES / latitudes, VARIANCE), NOISE_VARIANCE)
        share = grid.area_weights.ravel() / grid.size
        observed = np.ones(grid.size, dtype=bool)
        observed[generator.choice(grid.size, held_out, replace=False, p=share)] = False
        rings = cagp.RingGram(grid, prior.kernel, noise_variance=prior.noise_variance)
        return cls(prior, rings, observed.reshape(grid.shape))

    @property
    def block_size(self) -> int:
        """Points of a block: 64 blocks in all, as many as there are blocks of about 1,024 at full size."""
        return -(-int(np.count_nonzero(self.observed)) // 64)

    @property
    def train(self) -> Array:
        """Observed points on the unit sphere, latitude by latitude, shape (n, 3)."""
        return self.rings.grid.points[self.observed.ravel()]

    @property
    def test(self) -> Array:
        """Points held out on the unit sphere, shape (q, 3)."""
        return self.rings.grid.points[~self.observed.ravel()]

    def draw(self, generator: np.random.Generator, fields: int) -> tuple[Array, Array]:
        """Latent fields and observations of them at all points, each (fields, P, Q)."""
        latent = self.rings.sample(generator, fields=fields)
        noise = np.sqrt(self.prior.noise_variance) * generator.standard_normal(latent.shape)
        return latent, latent + noise

    def at_train(self, fields: Array) -> Array:
        """Values at the observed points, shape (n, fields)."""
        return np.ascontiguousarray(fields[:, self.observed].T)

    def at_test(self, fields: Array) -> Array:
        """Values at the points held out, shape (q, fields)."""
        return np.ascontiguousarray(fields[:, ~self.observed].T)

    def exact(self, values: Array) -> cagp.Posterior:
        """Exact posterior at the points held out, with its covariance; means (q, fields)."""
        return cagp.condition(
            self.prior,
            self.rings.grid,
            np.where(self.observed, values, np.nan),
            self.test,
            solver=cagp.Rings(),
            covariance="full",
        )

    def conjugate_gradients(self, values: Array, *, iterations: int) -> Iterator[tuple[Array, Array]]:
        """CAGP-CG at the points held out, by products of the whole grid: quick enough for many fields.

        The same posterior as that of `cagp_dist.condition` with `ConjugateGradient`, up to rounding.

        Parameters
        ----------
        values : array of float64, shape (P, Q)
            Observations of one field.
        iterations : int
            Directions.

        Yields
        ------
        tuple of arrays
            Mean (q,) and downdate of the covariance (q, q), after each direction.
        """
        gram = cagp.MaskedRings(self.rings, self.observed)
        mean = np.zeros(np.count_nonzero(~self.observed))
        downdate = np.zeros((mean.size, mean.size))
        right = values[self.observed][:, None]
        for item in project(gram.__matmul__, right, policy=residuals, iterations=iterations):
            # a direction is zero where nothing was observed, so that the noise has no part in this product
            seen = (self.rings @ gram.layout.embed(item.direction[None]))[0][~self.observed]
            mean = mean + item.step[0] * seen
            downdate = downdate + np.outer(seen, seen) / item.curvature
            yield mean, downdate
