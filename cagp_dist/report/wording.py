"""Words and numbers of the report: times, shares, and what a histogram says about the error bars."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cagp_dist.calibration.verification.pit import Histogram
from cagp_dist.solvers.status import Status
from cagp_dist.text import are_days, counted
from cagp_dist.variables.units import symbol

if TYPE_CHECKING:
    from cagp_dist.report.published import PublishedRun

# Spelled out here because strftime follows the locale of whoever runs it
MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip

# name, title, form (empty: the unit of the variable) and meaning
SCORES = (
    ("rmse", "RMSE", "", "typical size of an error"),
    ("crps", "CRPS", "", "error and error bar in one number"),
    ("nll", "NLL", "{:.3f}", "surprise per observation, nats"),
    ("ks_statistic", "KS statistic", "{:.4f}", "largest distance of the PIT from uniform"),
    ("ks_pvalue", "KS p-value", "{:.2g}", "means little here, see the note"),
)

NOTICEABLE_RATIO = 0.15
NOTICEABLE_STANDARD_ERRORS = 3.0

# The verdict on a run (`cagp_dist.calibration.verification.verdict`) in a few words
COVERAGE_WORDS = {
    "consistent": "no fault found in the error bars",
    "undecided": "too few test points to judge",
    "too-narrow": "error bars too narrow",
    "too-wide": "error bars too wide",
    "wrong-shape": "error bars of the wrong shape",
}
# The verdict on simulated fields (`cagp_dist.calibration.simulation.simulated_verdict`) in a few words
SIMULATION_WORDS = {
    "consistent": "no fault found in the error bars",
    "undecided": "too few fields to judge",
    "too-narrow": "error bars too narrow",
    "too-wide": "error bars too wide",
    "wrong-shape": "errors have another distribution",
    "biased": "errors lean to one side",
}
# What a reader has to know of error bars that are not exactly calibrated, by `solver_calibration`
NOT_EXACTLY_CALIBRATED = {
    "approximate": "This solver looks at the observations when it chooses its steps, so no theorem says "
    "how wide its error bars must be. Error bars of conjugate gradients are usually too wide, sometimes too "
    "narrow. Those of the Gauss-Seidel solvers are calibrated if the prior is right.",
    "conservative": "If the prior is right, the error bars of this solver are never too narrow, but they may "
    "be too wide.",
}


def page_of(name: str) -> str:
    """Folder of the page of another variable or depth, "200 dbar"."""
    return name.replace(" ", "-").replace("/", "-")


def at_depth(run: "PublishedRun") -> str:
    """Say at which depth the map of a run is; empty where it has none."""
    return f", at a depth of {run.depths[run.depth]}" if run.depths else ""


def when(time: np.datetime64, among: NDArray[np.datetime64]) -> str:
    """``27 April 2017, 12:00 UTC``; the day where all times are midnight; empty for a run without time."""
    if np.isnat(time):
        return ""
    date, clock = str(time.astype("datetime64[m]")).split("T")
    year, month, day = date.split("-")
    said = f"{int(day)} {MONTHS[int(month) - 1]} {year}"
    return said if are_days(among) else f"{said}, {clock} UTC"


def when_all(times: NDArray[np.datetime64]) -> str:
    """One time as it is; several as their number, first and last, the date once if it is one day."""
    first, last = when(times.min(), times), when(times.max(), times)
    if len(times) == 1:
        return first
    day, _, clock = last.partition(", ")
    last = clock if clock and first.startswith(f"{day},") else last
    return f"{first.removesuffix(' UTC')} to {last} ({len(times)} times)"


def listed(*parts: str) -> str:
    """Write what there is of a heading, with commas."""
    return ", ".join(part for part in parts if part)


def percent(share: float) -> str:
    """``91.2 %``."""
    return f"{100.0 * share:.1f} %"


def signed(value: float, digits: int) -> str:
    """Write a number with its sign, a true minus; zero has none."""
    if float(f"{value:.{digits}f}") == 0.0:
        return f"{0.0:.{digits}f}"
    return f"{value:+.{digits}f}".replace("-", "\N{MINUS SIGN}")


def signed_amount(value: float, units: str, digits: int) -> str:
    """Write a number with its sign and its unit."""
    if units == "K":
        return f"{signed(value, digits)} K"
    return f"{value:+.{digits + 1}g} {symbol(units)}".strip().replace("-", "\N{MINUS SIGN}", 1)


def reading(
    histogram: Histogram, comparatives: tuple[str, str] = ("warmer", "colder"), *, design_effect: float = 1.0
) -> str:
    """Say in one line what the shape of a PIT histogram means.

    A difference counts beyond three standard errors and 15 % (of the outer tenth; a third of that of the
    middle half): with many points even a harmless one is significant. ``design_effect`` is how many times
    more points there are than independent ones, as errors of neighbours agree.
    """

    def excess(count: float, of: float, share: float, noticeable: float) -> int:
        """1 if a count is noticeably above its share of the total, -1 if below, else 0."""
        expected, margin = share * of, _margin(of, share, noticeable, design_effect)
        return int(count > expected + margin) - int(count < expected - margin)

    counts, middles = histogram.counts, 0.5 * (histogram.edges[1:] + histogram.edges[:-1])
    total = float(counts.sum())
    outer, beside = float(counts[0] + counts[-1]), float(counts[1] + counts[-2])
    ends = excess(float(counts[np.abs(middles - 0.5) > 0.45].sum()), total, 0.1, NOTICEABLE_RATIO)
    centre = excess(float(counts[np.abs(middles - 0.5) < 0.25].sum()), total, 0.5, NOTICEABLE_RATIO / 3.0)
    horns = excess(outer, outer + beside, 0.5, NOTICEABLE_RATIO)
    if centre > 0 and horns > 0:
        return (
            "Peaked in the middle with raised ends: the error bars are wider than needed at most points "
            "and too narrow at a few points."
        )
    if ends > 0 or centre < 0:
        return "U-shaped: the error bars are too narrow; errors are larger than they say."
    if ends < 0 or centre > 0:
        return "Hump-shaped: the error bars are too wide; errors are smaller than they say."
    lean = excess(float(counts[middles > 0.5].sum()), total, 0.5, NOTICEABLE_RATIO / 3.0)
    if lean:
        which = comparatives[0] if lean > 0 else comparatives[1]
        return f"Leaning to one side: on the whole, the observations are {which} than predicted."
    points = round(total)
    if 0.1 * total + _margin(total, 0.1, NOTICEABLE_RATIO, design_effect) >= 0.5 * total:
        return f"{counted(points, 'point')} cannot distinguish a shape from chance."
    return "Close to flat: no shape that chance does not explain."


def computed(status: str, iterations: int) -> str:
    """Say how much of the computational part of the error bars is left, by how the solve ended."""
    steps = counted(iterations, "iteration")
    said = {
        Status.EXACT: "the solver finished the computation, so this part is zero.",
        Status.SOLVED: "the system was solved to a relative residual of 1e-10, so this part is practically "
        "zero.",
        Status.CONVERGED: f"the residual reached rounding level after {steps}, so the mean is solved. The "
        "variance reflects the directions that were searched, and may exceed that of an exact solve.",
        Status.NEIGHBOURS: "each point was predicted from the observations near it; the error bars include "
        "what the other observations would add.",
        Status.ILL_CONDITIONED: f"the solver did {steps}, but rounding may have spoilt mean and error bars.",
        Status.BREAKDOWN: f"the solver broke down after {steps}; it follows the observations, so its error "
        "bars are not calibrated.",
        Status.STOPPED: f"the solver did {steps}; it follows the observations, so its error bars are not "
        "calibrated.",
    }
    known = {each.value: text for each, text in said.items()}.get(status)
    if known is None and iterations == 0:
        known = "no iteration was requested: this is the prior."
    return f"here {known or f'the solver did {steps}; the error bars include what it did not compute.'}"


def _margin(total: float, share: float, noticeable: float, design_effect: float = 1.0) -> float:
    """Difference of a count from its share of the total that is neither chance nor harmless."""
    standard_error = np.sqrt(design_effect * total * share * (1.0 - share))
    return float(max(NOTICEABLE_STANDARD_ERRORS * standard_error, noticeable * share * total))
