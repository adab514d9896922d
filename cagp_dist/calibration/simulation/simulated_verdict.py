"""From errors of simulated fields to a verdict in words: five tests, which share the false alarms."""

from dataclasses import dataclass

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.calibration.simulation.beliefs import NULL_SPACE, Standardised
from cagp_dist.calibration.verification.pit import NormalTests, chi2_pvalue, histogram
from cagp_dist.calibration.verification.verdict import DECISIVE_SCALE, POWER, SIGNIFICANCE, Kind, Verdict

# Largest root mean square error in a null space, in prior standard deviations, that is rounding
NULL_ERROR = 2.0 * NULL_SPACE**0.5


@dataclass(frozen=True)
class JointTest:
    """All errors of a field at once, made independent by the stated covariance."""

    std: float  #: Root mean square of the whitened errors: how many times as large errors are as stated
    pvalue: float  #: Two-sided p-value of their sum of squares under chi-square
    degrees_of_freedom: int  #: Fields times the rank of the covariance
    #: Directions in which the stated variance is below 1e-8 of the prior variance, the most over fields: the
    #: exact null space, and whatever directions a solve leaves as little of
    null_dimension: int
    #: Root mean square error in it, in prior standard deviations; zero but for rounding if calibrated
    null_error: float

    @property
    def null_space_ok(self) -> bool:
        """Whether errors in the null space are rounding."""
        return bool(self.null_error <= NULL_ERROR)


@dataclass(frozen=True)
class SimulationVerdict(Verdict):
    """What simulated fields say of error bars: a word for programs and sentences for people.

    ``undecided`` if nothing was found, and too few fields to find errors twice as large as stated; ``biased``
    if errors have one sign along the direction.
    """


def joint_test(errors: Standardised) -> JointTest:
    """Chi-square test of whitened errors, and the errors where none are stated."""
    freedom, total = int(errors.rank.sum()), float(errors.squares.sum())
    null = len(errors.mean_error) - errors.rank
    return JointTest(
        std=float(np.sqrt(total / freedom)) if freedom else 1.0,
        pvalue=chi2_pvalue(total, freedom) if freedom else 1.0,
        degrees_of_freedom=freedom,
        null_dimension=int(null.max()),
        null_error=float(np.sqrt(errors.null_squares.sum() / max(1, null.sum()))),
    )


def rank_test(pit: Array) -> float:
    """Chi-square test of PIT values in equal intervals, five values or more in each, at most twenty."""
    from scipy.stats import chi2

    if pit.size < 10:
        return 1.0
    counts = histogram(pit, intervals=min(pit.size // 5, 20))
    total = float(((counts.counts - counts.expected) ** 2).sum() / counts.expected)
    return float(chi2.sf(total, counts.counts.size - 1))


def pvalues_of(tests: NormalTests, rank_pvalue: float, joint: JointTest) -> dict[str, float]:
    """P-values of the five tests by name."""
    return {
        "Kolmogorov-Smirnov": tests.ks_pvalue,
        "variance": tests.variance_pvalue,
        "mean": tests.mean_pvalue,
        "ranks": rank_pvalue,
        "joint": joint.pvalue,
    }


def verdict_of(
    tests: NormalTests, rank_pvalue: float, joint: JointTest, *, ratio: float, fields: int, points: int
) -> SimulationVerdict:
    """Say what all tests together find, each at its part of the significance."""
    pvalues = pvalues_of(tests, rank_pvalue, joint)
    significance = SIGNIFICANCE / len(pvalues)
    faults = {name for name, pvalue in pvalues.items() if pvalue < significance}
    about_mean = fields * (tests.z_std**2 - tests.z_mean**2)
    lean = "mean" in faults and fields > 1 and chi2_pvalue(about_mean, fields - 1) >= significance
    scales = {"variance": tests.z_std, "joint": joint.std}
    wrong = {scale > 1.0 for name, scale in scales.items() if name in faults}
    if not joint.null_space_ok:
        wrong.add(True)
    measured = (
        f"over {fields:,} field{'s' if fields != 1 else ''} drawn from the prior, errors at {points:,} "
        f"point{'s' if points != 1 else ''} are {ratio:.3f} times as large as their error bars, "
        f"{joint.std:.3f} times with the stated correlations and {tests.z_std:.3f} times along one random "
        "direction"
    )
    if not joint.null_space_ok:
        measured += (
            f"; where the covariance states no error at all there is one, of {joint.null_error:.1e} prior "
            "standard deviations"
        )
    if lean and joint.null_space_ok:
        return SimulationVerdict(
            "biased",
            f"The errors lean to one side, by {tests.z_mean:+.2f} error bars on average: {measured}.",
        )
    if wrong == {True}:
        return SimulationVerdict("too-narrow", f"The error bars are too narrow: {measured}.")
    if wrong == {False}:
        return SimulationVerdict("too-wide", f"The error bars are too wide: {measured}.")
    if wrong or faults:
        return SimulationVerdict("wrong-shape", f"The errors are not distributed as stated: {measured}.")
    one, every = revealed_ratio(fields), revealed_ratio(joint.degrees_of_freedom)
    kind: Kind = "consistent" if min(one, every) < DECISIVE_SCALE else "undecided"
    return SimulationVerdict(
        kind,
        f"No fault found: {measured}. Errors {every:.3f} times as large as stated everywhere, or {one:.2f} "
        "times along that direction, would have been found in 95 % of cases.",
    )


def revealed_ratio(freedom: int) -> float:
    """Smallest factor by which errors exceed error bars that chi-square finds with probability `POWER`."""
    from scipy.stats import chi2

    if freedom < 1:
        return float("inf")
    critical = float(chi2.isf(0.5 * SIGNIFICANCE / 5, freedom))
    return float(np.sqrt(critical / chi2.ppf(1.0 - POWER, freedom)))
