"""Versions: of installed packages, and of the numbers that this one works out."""

from functools import cache
from importlib import metadata
from typing import NamedTuple


class NumericalVersion(NamedTuple):
    """From when on the same job and data may give other numbers than before."""

    number: str
    date: str
    change: str  # one line


NUMERICAL_VERSIONS = (
    NumericalVersion("0.1.0", "2026-11-26", "The first; until then it was the version of the package."),
    NumericalVersion(
        "0.2.0",
        "2026-11-28",
        "One reader of observations: copies of rows count once, rain is not transformed unless that is said.",
    ),
    NumericalVersion(
        "0.3.0",
        "2026-11-28",
        "One path: a mean that nobody names is a constant, estimated with the field, in calls as in jobs.",
    ),
    NumericalVersion(
        "0.4.0",
        "2026-11-28",
        "Grids with many gaps are solved by neighbours; points of folds have another order.",
    ),
    NumericalVersion(
        "0.5.0",
        "2026-11-29",
        "Kernels are chosen by how well each value is predicted from all others; in time on whole hours.",
    ),
    NumericalVersion(
        "0.6.0",
        "2026-11-29",
        "Jobs correct error bars only where that is asked for; fits by neighbours take other farther points.",
    ),
    NumericalVersion(
        "0.7.0",
        "2026-11-29",
        "Numbers of more than 83 stations in time are fitted to hours that follow each other.",
    ),
    NumericalVersion(
        "0.8.0",
        "2026-11-29",
        "Units that are asked for are converted; any kernel in time is tried with a part that lasts.",
    ),
    NumericalVersion(
        "0.9.0",
        "2026-11-29",
        "Neighbours find errors that are shared from all observations; rows without a name share none.",
    ),
    NumericalVersion(
        "0.10.0",
        "2026-11-29",
        "Fits of many points end a step earlier; targets by neighbours and means differ in last digits.",
    ),
    NumericalVersion(
        "0.11.0",
        "2026-11-29",
        "A given ellipse of a region has its centre among the observed points, as one that is fitted has.",
    ),
    NumericalVersion(
        "0.12.0",
        "2026-11-29",
        "Ellipses that are hardly likelier are circles; error bars of several variables count their numbers.",
    ),
    NumericalVersion(
        "0.13.0",
        "2026-11-29",
        "Errors of ships: in held-out readings of several variables, beside ellipses, by sixty neighbours.",
    ),
    NumericalVersion(
        "0.14.0",
        "2026-11-29",
        "Kernels of depth are found beside errors of ships; more neighbours find these in dense rows.",
    ),
    NumericalVersion(
        "0.15.0",
        "2026-11-29",
        "No sharp quantile is worse than with the unchanged prior; single points are swept coarse first.",
    ),
    NumericalVersion(
        "0.16.0",
        "2026-11-29",
        "Transformed observations: means and error bars of normal distributions from these, not quantiles.",
    ),
    NumericalVersion(
        "0.17.0",
        "2026-11-29",
        "Means and error bars of censored and of integrated values are no longer from seven quantiles.",
    ),
    NumericalVersion(
        "0.18.0",
        "2026-11-30",
        "Censored values are drawn 64 times, and draws that lie side by side are one in quantiles.",
    ),
    NumericalVersion(
        "0.19.0",
        "2026-11-30",
        "Quantiles of mixtures of very unequal components are found to their tolerance.",
    ),
    NumericalVersion(
        "0.20.0",
        "2026-11-30",
        "A number as noise_std of a job is all of the noise, as in calls; a nugget was fitted beside it.",
    ),
    NumericalVersion(
        "0.21.0",
        "2026-11-30",
        "Fits beside many zeros or limits begin with draws by a fit to other values; noise was too large.",
    ),
    NumericalVersion(
        "0.22.0",
        "2026-11-30",
        "Parameters beside zeros or limits are integrated over for few places; standard errors count once.",
    ),
)
"""Oldest first: append one where numbers change, and only there. Runs are then solved again; days that a
series has stay as they are until `cagp daily --redo`."""


def numerical_version() -> str:
    """Give the version that is in the keys of runs, weights and checkpoints; a release need not change it."""
    return NUMERICAL_VERSIONS[-1].number


def numerical_versions() -> list[str]:
    """List all of them, the newest first: days of a series keep the numbers of the version that made them."""
    return [each.number for each in reversed(NUMERICAL_VERSIONS)]


@cache
def version(package: str) -> str:
    """Give the version of an installed package, as it was when it was first asked for.

    They are looked up once, since each takes milliseconds and a run names ten.
    """
    return metadata.version(package)
