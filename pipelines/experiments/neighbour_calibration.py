"""Are error bars from neighbours right? Fields from the prior, at points, jointly, and as means of areas.

    python -m pipelines.experiments.neighbour_calibration [--quick] [--output FOLDER]

5,000 points of the sphere are observed, with fields that a dense Cholesky factor draws from the prior: Matern
3/2, lengthscale 0.1, noise a fortieth of the variance. For 10, 30 and 100 neighbours, each target by itself,
and in groups:

- errors at 200 targets of 200 fields, whitened with the stated joint covariance: 40,000 independent standard
  normal numbers if the joint distribution is right. Their standard deviation, the p-value of their sum of
  squares, and that of a Kolmogorov-Smirnov test; and the standard deviation of errors over the stated one,
  target by target.
- the same for the means of fifteen areas, from caps to the whole sphere, which are sums over 600 places.
- 400 posterior samples of one field at 40 targets, whitened with the same covariance.

Prints the table and writes it to ``neighbour-calibration.json``. ``se`` is the standard error of a ratio
that is 1.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Self

import numpy as np
import scipy.linalg
import scipy.stats

import cagp_dist as cagp
from cagp_dist.arrays import Array
from pipelines.experiments.output import parser, print_table, save_rows

NEIGHBOURS = (10, 30, 100)
PRIOR = cagp.Prior(cagp.Matern32(0.1), 0.025, mean=0.0)
SAMPLED, SAMPLES = 40, 400
CAPS = 14
"""Areas beside the whole sphere: caps of radii between 5 and 90 degrees."""


@dataclass(frozen=True)
class Sizes:
    """How many points are observed and predicted, places areas are sums over, and fields."""

    observed: int = 5_000
    predicted: int = 200
    places: int = 600
    fields: int = 200


QUICK = Sizes(400, 30, 80, 40)


@dataclass(frozen=True, eq=False)
class Fields:
    """Fields of the prior: X (n, 3) with y (n, T), and targets (q, 3) and places (a, 3) with the truth."""

    X: Array
    y: Array
    targets: Array
    truth: Array
    places: Array
    at_places: Array

    @classmethod
    def draw(cls, sizes: Sizes, prior: cagp.Prior, rng: np.random.Generator) -> Self:
        """Draw points and fields, by a dense factor."""
        n, q = sizes.observed, sizes.predicted
        points = rng.standard_normal((n + q + sizes.places, 3))
        points /= np.linalg.norm(points, axis=1)[:, None]
        covariance = prior.kernel(points, points)
        covariance[np.diag_indices_from(covariance)] *= 1.0 + 1e-12
        root = scipy.linalg.cholesky(covariance, lower=True, overwrite_a=True, check_finite=False)
        fields = root @ rng.standard_normal((len(points), sizes.fields))
        noise = np.sqrt(prior.noise_number) * rng.standard_normal((n, sizes.fields))
        return cls(
            points[:n],
            fields[:n] + noise,
            points[n : n + q],
            fields[n : n + q],
            points[n + q :],
            fields[n + q :],
        )

    def areas(self) -> Array:
        """Weights (a, r) of the means over caps of growing radius, each about another place, and over all."""
        radii = np.deg2rad(np.linspace(5.0, 90.0, CAPS))
        cosines = self.places @ self.places[:CAPS].T
        weights = np.hstack([cosines >= np.cos(radii), np.ones((len(self.places), 1))]).astype(float)
        return np.asarray(weights / weights.sum(axis=0))


@dataclass(frozen=True)
class Judged:
    """Whitened errors: their number, standard deviation and p-values; and errors over stated ones, alone.

    The whitened errors of a right joint distribution are independent and standard normal, so that the
    standard error of ``joint_std`` is ``1 / sqrt(2 count)``.
    """

    count: int
    joint_std: float
    joint_pvalue: float
    ks_pvalue: float
    point_std: float

    @classmethod
    def of(cls, errors: Array, covariance: Array) -> Self:
        """Judge errors (q, T) whose covariance is said to be (q, q)."""
        root = scipy.linalg.cholesky(covariance, lower=True)
        white = scipy.linalg.solve_triangular(root, errors, lower=True)
        alone = errors / np.sqrt(covariance.diagonal())[:, None]
        total = float((white**2).sum())
        below = scipy.stats.chi2.cdf(total, white.size)
        return cls(
            white.size,
            float(np.sqrt(total / white.size)),
            float(2.0 * min(below, 1.0 - below)),
            float(scipy.stats.kstest(white.ravel(), "norm").pvalue),
            float(np.sqrt((alone**2).mean())),
        )


def at_targets(fields: Fields, prior: cagp.Prior, solver: cagp.Neighbours) -> Judged:
    """Judge all targets together."""
    found = cagp.condition(prior, fields.X, fields.y, fields.targets, solver=solver, covariance="full")
    return Judged.of(found.mean - fields.truth, found.covariance)


def over_areas(fields: Fields, prior: cagp.Prior, solver: cagp.Neighbours) -> Judged:
    """Judge means over areas together."""
    weights = fields.areas()
    wanted = cagp.LinearFunctionals(fields.places, weights)
    found = cagp.condition(prior, fields.X, fields.y, wanted, solver=solver, covariance="full")
    return Judged.of(found.mean - weights.T @ fields.at_places, found.covariance)


def of_samples(
    fields: Fields, prior: cagp.Prior, solver: cagp.Neighbours, rng: np.random.Generator, samples: int
) -> Judged:
    """Judge samples of the first field as if they were errors of the mean."""
    given = prior, fields.X, fields.y[:, 0], fields.targets[:SAMPLED]
    found = cagp.condition(*given, solver=solver, covariance="full")
    drawn = cagp.sample_posterior(*given, solver=solver, samples=samples, generator=rng)
    return Judged.of(drawn.T - found.mean[:, None], found.covariance)


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate, print, write."""
    chosen = parser(__doc__).parse_args(arguments)
    rng = np.random.default_rng(0)
    fields = Fields.draw(QUICK if chosen.quick else Sizes(), PRIOR, rng)
    found: list[tuple[str, str, Judged]] = []
    for k in NEIGHBOURS:
        for how, solver in (("alone", cagp.Neighbours(k, group=1)), ("groups", cagp.Neighbours(k))):
            name = f"k = {k}, {how}"
            found.append((name, "targets", at_targets(fields, PRIOR, solver)))
            found.append((name, "areas", over_areas(fields, PRIOR, solver)))
            found.append((name, "samples", of_samples(fields, PRIOR, solver, rng, SAMPLES)))
    rows = [
        (
            name,
            what,
            f"{judged.count:,}",
            f"{judged.joint_std:.4f}",
            f"{(2.0 * judged.count) ** -0.5:.4f}",
            f"{judged.joint_pvalue:.2g}",
            f"{judged.ks_pvalue:.2g}",
            f"{judged.point_std:.3f}",
        )
        for name, what, judged in found
    ]
    head = ("solver", "errors of", "numbers", "joint std", "se", "p", "KS p", "point by point")
    print_table(head, rows)
    document = [{"solver": name, "errors of": what, **asdict(judged)} for name, what, judged in found]
    save_rows(chosen.output / "neighbour-calibration.json", document)


if __name__ == "__main__":
    main()
