"""Whether the error bars of a run hold what they promise, as far as its test points can tell.

At every level the share of observations inside their central intervals is compared with the level. Errors of
neighbouring points agree; the test points are cut into compact cells, and N is divided by the *design
effect*::

    coverage = sum_i w_i inside_i / sum_i w_i
    effect   = sum_cells (sum_i w_i (inside_i - coverage))^2 / sum_i w_i^2 coverage (1 - coverage),  >= 1
    n        = (sum w)^2 / sum w^2 / effect,      standard error = sqrt(level (1 - level) / n)

A fault is a difference that a binomial distribution of n points makes less likely than three standard errors
of a normal one (0.27 %, both sides). Correlation across cells is not seen: a field is one witness.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cagp_dist.arrays import Array, Indices
from cagp_dist.calibration.verification.pit import effective_count, unit_weights
from cagp_dist.geometry import space_filling_order

Kind = Literal["consistent", "undecided", "too-narrow", "too-wide", "wrong-shape", "biased"]

# Probability of a false alarm, at one level or on simulated fields: that of three normal standard errors
SIGNIFICANCE = 0.0027

POWER = 0.95  # Probability with which a fault is said to be found

# Test points or fields that would not reveal errors this many times as large as stated decide nothing
DECISIVE_SCALE = 2.0

# The level of which sentences speak first
MOST_CELLS, FEWEST_PER_CELL = 32, 4
HEADLINE = 0.9

_HEADLINES: dict[Kind, str] = {
    "too-narrow": "The error bars are too narrow",
    "too-wide": "The error bars are too wide",
    "wrong-shape": "The errors do not have the distribution that the error bars say",
}


@dataclass(frozen=True, eq=False)
class CoverageTest:
    """Coverage of the central intervals, (L,), with what chance explains of its difference from the level."""

    levels: Array
    coverage: Array
    standard_error: Array  #: Of the coverage, if the error bars were right
    effective_points: Array  #: Number of independent points that tell as much
    pvalue: Array  #: Two-sided, binomial

    @property
    def faults(self) -> NDArray[np.int_]:
        """For each level -1 if fewer observations lie inside than chance explains, 1 if more, else 0."""
        return np.where(self.pvalue < SIGNIFICANCE, np.sign(self.coverage - self.levels), 0.0).astype(int)


@dataclass(frozen=True)
class Verdict:
    """What the test points say of the error bars: a word for programs and sentences for people.

    ``undecided`` if nothing was found, and too few points to find error bars twice too narrow.
    """

    kind: Kind
    statement: str

    @property
    def ok(self) -> bool:
        """Whether nothing was found that chance does not explain."""
        return self.kind in ("consistent", "undecided")


def coverage_test(
    pit: ArrayLike, *, levels: Sequence[float] | Array, cells: Indices, weights: ArrayLike | None = None
) -> CoverageTest:
    """Compare the coverage of central intervals with their levels, in (0, 1).

    Shapes: ``pit`` (q,) or (T, q), PIT values; ``cells`` (q,), the compact cell of each point and all its
    times, see `compact_cells`; ``weights`` (q,), the area that each stands for.
    """
    values = np.atleast_2d(np.asarray(pit, dtype=np.float64))
    share = unit_weights(weights, values.shape)
    independent = effective_count(share)
    chosen = np.asarray(levels, dtype=np.float64)
    covered, counts = np.empty(chosen.size), np.empty(chosen.size)
    for index, level in enumerate(chosen):
        inside = np.abs(values - 0.5) <= 0.5 * level
        covered[index] = float((share * inside).mean())
        sums = np.bincount(cells, weights=(share * (inside - covered[index])).sum(axis=0))
        scatter = covered[index] * (1.0 - covered[index]) * float((share**2).sum())
        effect = float(sums @ sums) / scatter if scatter > 0.0 else 1.0
        counts[index] = max(1.0, independent / max(1.0, effect))
    return CoverageTest(
        levels=chosen,
        coverage=covered,
        standard_error=np.sqrt(chosen * (1.0 - chosen) / counts),
        effective_points=counts,
        pvalue=_two_sided(covered, counts, chosen),
    )


def compact_cells(X: ArrayLike) -> Indices:
    """Cell (q,) of each point X (q, p): at most 32 of at least 4 points, cut as by `space_filling_order`."""
    size = len(np.asarray(X))
    members = max(FEWEST_PER_CELL, -(-size // MOST_CELLS))
    cells = np.empty(size, dtype=np.intp)
    cells[space_filling_order(X, block_size=members)] = np.arange(size) // members
    return cells


def judge(every_point: CoverageTest, by_area: CoverageTest, *, observations: int) -> Verdict:
    """Say whether coverage differs from the levels by more than chance, in either weighting.

    ``observations`` is the number of values that were held out, for the sentence.
    """
    faults = np.concatenate([every_point.faults, by_area.faults])
    if not faults.any():
        return _nothing_found(every_point, observations)
    kind: Kind = "too-wide" if faults.min() >= 0 else "too-narrow" if faults.max() <= 0 else "wrong-shape"
    weightings = ((every_point, ""), (by_area, "weighted by area, "))
    test, weighting = max(weightings, key=lambda pair: _gravity(pair[0]))
    shown = _shown(test)
    shares = " and ".join(
        f"{100.0 * test.coverage[i]:.1f} % of the held-out observations lie inside their "
        f"{100.0 * test.levels[i]:g} % error bars"
        for i in shown
    )
    tails = (test.levels > test.levels[shown].max()) & (test.coverage < test.levels - test.standard_error)
    other = ""
    if kind == "too-wide" and tails.any():
        last = np.flatnonzero(tails)[-1]
        other = (
            f" A few errors may nevertheless be larger than stated: only {100.0 * test.coverage[last]:.1f} % "
            f"lie inside their {100.0 * test.levels[last]:g} % error bars."
        )
    chance = " and ".join(f"{300.0 * test.standard_error[i]:.1f}" for i in shown)
    return Verdict(
        kind,
        f"{_HEADLINES[kind]}: {weighting}{shares}. Chance explains differences of {chance} percentage points "
        f"(three standard errors, which allow for correlated errors of neighbours).{other}",
    )


def revealed_scale(points: float, *, levels: Sequence[float] | Array = (HEADLINE,)) -> float:
    """Smallest factor by which errors exceed error bars that ``points`` independent test points reveal.

    A normal error that is s times as large as stated lies inside the central interval of level p with
    probability ``2 Phi(h / s) - 1``, ``h = Phi^-1((1 + p) / 2)``. It is revealed if the binomial test of one
    of the levels, at the significance of `judge`, rejects with probability 0.95. Infinite if there are
    too few points for any factor.

    Examples
    --------
    >>> [round(revealed_scale(points), 2) for points in (50, 1000, 100_000)]
    [1.8, 1.14, 1.01]
    """
    return min(_revealed(max(1, round(points)), float(level)) for level in levels)


def _revealed(points: int, level: float) -> float:
    from scipy.optimize import brentq
    from scipy.special import ndtr, ndtri
    from scipy.stats import binom

    # the most observations inside that are still too few to be chance
    most = int(binom.ppf(0.5 * SIGNIFICANCE, points, level)) - 1
    if most < 0:
        return float("inf")
    half_width = float(ndtri(0.5 + 0.5 * level))

    def power(log_scale: float) -> float:
        inside = 2.0 * float(ndtr(half_width * np.exp(-log_scale))) - 1.0
        return float(binom.cdf(most, points, inside)) - POWER

    return float(np.exp(brentq(power, 0.0, 20.0)))


def _two_sided(coverage: Array, counts: Array, levels: Array) -> Array:
    """Binomial p-values of shares of ``counts`` points, both rounded to whole points."""
    from scipy.stats import binom

    points = np.round(counts)
    inside = np.round(coverage * points)
    tail = np.minimum(binom.cdf(inside, points, levels), binom.sf(inside - 1.0, points, levels))
    return np.asarray(np.minimum(1.0, 2.0 * tail), dtype=np.float64)


def _gravity(test: CoverageTest) -> int:
    """2 if the 90 % error bars are at fault, 1 if others are, else 0."""
    return 2 if np.any(test.faults[test.levels == HEADLINE]) else int(test.faults.any())


def _shown(test: CoverageTest) -> list[int]:
    """Levels at fault that a sentence names: 90 % or the furthest off, and one of the other sign."""
    faults = test.faults
    furthest_off = np.argsort(-np.abs(test.coverage - test.levels) / test.standard_error)
    order = [*np.flatnonzero(test.levels == HEADLINE), *furthest_off]
    first = next(int(i) for i in order if faults[i])
    others = [int(i) for i in furthest_off if faults[i] == -faults[first]]
    return sorted([first, *others[:1]])


def _nothing_found(test: CoverageTest, observations: int) -> Verdict:
    """Say what was measured, and which faults the test points would not have shown."""
    nearest = int(np.argmin(np.abs(test.levels - HEADLINE)))
    worth = test.effective_points[nearest]
    scale = min(
        revealed_scale(count, levels=[level])
        for count, level in zip(test.effective_points, test.levels, strict=True)
    )
    measured = (
        f"{100.0 * test.coverage[nearest]:.1f} % of the held-out observations lie inside their "
        f"{100.0 * test.levels[nearest]:g} % error bars, no further from that share than chance explains."
    )
    witnesses = f"{observations:,} observation{'' if observations == 1 else 's'}"
    if round(worth) < observations:
        witnesses += f", which count as {worth:,.0f} independent ones,"
    if not np.isfinite(scale):
        return Verdict("undecided", f"{measured} {witnesses} can reveal no fault.")
    return Verdict(
        "consistent" if scale < DECISIVE_SCALE else "undecided",
        f"{measured} With {witnesses} we would notice in 95 % of cases if error bars had to be "
        f"{100.0 * (scale - 1.0):.0f} % wider; smaller faults may go unseen.",
    )
