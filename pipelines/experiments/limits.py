"""What a few sweeps do not give: smooth fields, and a prior mean that is wrong.

    python -m pipelines.experiments.limits

4,096 points, drawn uniformly on the sphere and put into space-filling order, are observed; 200 others are
predicted. The first table compares the standard deviation that block Gauss-Seidel (blocks of 512) states with
the exact one, lengthscale by lengthscale: how many sweeps are enough. The second draws 100 fields from the
prior, adds 10 K to them that the prior mean knows nothing of, and counts how many of the latent values lie in
90 % intervals: how much of the error bars rests on the prior mean.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

import cagp_dist as cagp
from cagp_dist.solvers import Solver
from pipelines.experiments.output import print_table

Array = NDArray[np.float64]

OBSERVED, PREDICTED, BLOCK, FIELDS = 4096, 200, 512, 100
LENGTHSCALES = (0.05, 0.1, 0.2, 0.5, 1.0)
SWEEPS = (1, 2, 5, 20)
VARIANCE, NOISE_VARIANCE = 22.0, 0.5
OFFSET_KELVIN, OFFSET_LENGTHSCALE = 10.0, 0.1
LEVEL, HALF_WIDTH = 0.9, 1.6448536269514722
"""Level of the intervals, and their half-width in standard deviations."""


@dataclass(frozen=True, eq=False)
class Points:
    """Points on the unit sphere: observed (n, 3), neighbours together, and predicted (q, 3)."""

    observed: Array
    predicted: Array

    @classmethod
    def draw(cls, generator: np.random.Generator, observed: int, predicted: int, *, block: int) -> Self:
        """Draw them uniformly."""
        drawn = generator.standard_normal((observed + predicted, 3))
        drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
        order = cagp.space_filling_order(drawn[:observed], block_size=block)
        return cls(drawn[:observed][order], drawn[observed:])


def prior_of(lengthscale: float) -> cagp.Prior:
    """Make the prior of both tables: Matern 3/2, 22 K^2, noise 0.5 K^2, mean 0."""
    return cagp.Prior(cagp.Matern32(lengthscale, VARIANCE), NOISE_VARIANCE)


def stated_over_exact(points: Points, lengthscale: float, *, sweeps: int, block: int) -> Array:
    """Stated over exact latent standard deviation, shape (1 + sweeps, q); row 0 is the prior's."""
    prior, y = prior_of(lengthscale), np.zeros(len(points.observed))

    def solved(solver: Solver) -> cagp.Posterior:
        return cagp.condition(prior, points.observed, y, points.predicted, solver=solver)

    exact = solved(cagp.Cholesky()).variance
    trace = solved(cagp.BlockGaussSeidel(sweeps, block_size=block)).trace
    return np.sqrt(np.stack([step.variance for step in trace]) / exact)


def coverage(
    points: Points, lengthscale: float, solver: Solver, fields: tuple[Array, Array], *, offset: float
) -> float:
    """Share of latent values inside 90 % intervals when the fields are ``offset`` above the prior mean.

    Parameters
    ----------
    points : Points
        Where fields are observed and predicted.
    lengthscale : float
        Of the prior, chord.
    solver : Solver
        One that takes several fields at once.
    fields : tuple of arrays
        Observations (n, T) and latent values (q, T), drawn from the prior.
    offset : float
        Added to both, kelvin.
    """
    observations, latent = fields
    posterior = cagp.condition(
        prior_of(lengthscale), points.observed, observations + offset, points.predicted, solver=solver
    )
    error = posterior.mean - latent - offset
    return float(np.mean(np.abs(error) <= HALF_WIDTH * np.sqrt(posterior.variance)[:, None]))


def draw_fields(
    points: Points, lengthscale: float, generator: np.random.Generator, *, fields: int
) -> tuple[Array, Array]:
    """Observations (n, T) and latent values (q, T) of fields from the prior, by a dense Cholesky factor."""
    prior, n = prior_of(lengthscale), len(points.observed)
    together = np.concatenate([points.observed, points.predicted])
    covariance = prior.kernel(together, together)
    covariance[np.diag_indices_from(covariance)] += 1e-10 * VARIANCE
    latent = np.linalg.cholesky(covariance) @ generator.standard_normal((len(together), fields))
    noise = np.sqrt(NOISE_VARIANCE) * generator.standard_normal((n, fields))
    return latent[:n] + noise, latent[n:]


def main() -> None:
    """Print both tables."""
    generator = np.random.default_rng(0)
    points = Points.draw(generator, OBSERVED, PREDICTED, block=BLOCK)
    rows = []
    for lengthscale in LENGTHSCALES:
        ratio = stated_over_exact(points, lengthscale, sweeps=max(SWEEPS), block=BLOCK)
        low, middle, high = np.quantile(ratio, (0.05, 0.5, 0.95), axis=1)
        rows.append(
            [f"{lengthscale:g}", *(f"{middle[m]:.2f} ({low[m]:.2f} to {high[m]:.2f})" for m in SWEEPS)]
        )
    print_table(["lengthscale", *(f"m = {m}" for m in SWEEPS)], rows)

    fields = draw_fields(points, OFFSET_LENGTHSCALE, generator, fields=FIELDS)
    orders = {
        "latitude by latitude": np.argsort(points.observed[:, 2]),
        "k-d order": np.arange(OBSERVED),
        "random order": generator.permutation(OBSERVED),
    }
    cases: list[tuple[str, Solver, NDArray[np.int_]]] = [("exact", cagp.Cholesky(), orders["k-d order"])]
    for m in (1, 5):
        for word, order in orders.items():
            cases.append((f"Gauss-Seidel, {word}, m = {m}", cagp.GaussSeidel(m), order))
        blocks = cagp.BlockGaussSeidel(m, block_size=BLOCK)
        cases.append((f"block Gauss-Seidel, k-d order, m = {m}", blocks, orders["k-d order"]))
    rows = []
    for name, solver, order in cases:
        visited, seen = Points(points.observed[order], points.predicted), (fields[0][order], fields[1])
        shares = [
            coverage(visited, OFFSET_LENGTHSCALE, solver, seen, offset=offset)
            for offset in (0.0, OFFSET_KELVIN)
        ]
        rows.append([name, *(f"{100 * share:.1f} %" for share in shares)])
    print_table(["solver", "mean right", f"mean wrong by {OFFSET_KELVIN:g} K"], rows)


if __name__ == "__main__":
    main()
