"""What a job has found: a solve, and what is said of observations beside the prior as it is."""

from dataclasses import dataclass

from cagp_dist.arrays import Array
from cagp_dist.calibration.recalibration.sharp import FittedSharp
from cagp_dist.calibration.verification.scores import PointScores
from cagp_dist.mapping.field_solves import Solution
from cagp_dist.store.schema import PublishedLaw


@dataclass(frozen=True, eq=False)
class Sharpened:
    """A sharp GP that was fitted, and its latent standard deviations for each stretch of its kernel."""

    fitted: FittedSharp
    # (S, 1, q) or (S, T, q) at test points, points of a map and places of a table, in the unit of the
    # observations, without noise
    test: Array
    cells: Array  # (S, 1, q) or (S, T, q)
    places: Array  # (S, 1, q) or (S, T, q)


@dataclass(frozen=True, eq=False)
class MixedLaws:
    """What is said of observations where the numbers of the prior are integrated over."""

    scores: PointScores  # of the observations (T, q) at test points; NaN where there is none
    of_test: PublishedLaw  # distributions at test points
    of_cells: PublishedLaw | None  # with the usual noise, at points of a map and places of a table
    of_places: PublishedLaw | None
    nugget: float  # mean of the noise variance, or of the nugget beside a known noise


@dataclass(frozen=True, eq=False)
class JobSolution(Solution):
    """The end of the solves of a job."""

    sharp: Sharpened | None = None  # quantiles with lengthscales of their own, where the job asks for them
    mixed: MixedLaws | None = None  # where the numbers of the prior are integrated over
