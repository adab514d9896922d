"""Scores of a run by stratum of its test points, and its reliability: read, and put into words and rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.calibration.verification.strata import (
    CHANCE,
    FEWEST_OBSERVATIONS,
    FIFTHS,
    by_latitude,
    by_surface,
)
from cagp_dist.report.run_reader import OpenGroup
from cagp_dist.report.wording import percent
from cagp_dist.store.published_variables import (
    PLAIN,
    RELIABILITY_LEVEL,
    STRATUM,
    STRATUM_DEFINITION,
    STRATUM_KIND,
    table,
)
from cagp_dist.variables import T2M
from cagp_dist.variables.units import amount

if TYPE_CHECKING:
    from cagp_dist.report.published import PublishedRun

HEADLINE = 0.9  # The level of which page and table speak in words

KINDS = {"latitude": "Latitude", "surface": "Surface", "roughness": "Roughness", "lag": "Nearest value"}


@dataclass(frozen=True, eq=False)
class ByStratum:
    """Strata of the test points, S of them; the first is all of them."""

    kinds: tuple[str, ...]
    names: tuple[str, ...]
    definitions: tuple[str, ...]
    level: float  # Of the intervals
    reliability_levels: Array  # (L,)
    measures: Mapping[str, Array]  # (S, ...), or (L,) of the reliability: by their published names
    distributions: tuple[str, ...]  # Suffixes of these: of the published one, then of the one before

    def inside(self, distribution: str = "") -> Array:
        """Share of the observations of each stratum inside the intervals, shape (S,)."""
        return self.measures[f"stratum_coverage{distribution}"]

    def reach(self, distribution: str = "") -> Array:
        """How far from the level these shares are by chance, 95 times of 100, shape (S,)."""
        return CHANCE * self.measures[f"stratum_coverage_standard_error{distribution}"]


@dataclass(frozen=True)
class Bars:
    """A small histogram in the units of its drawing: its boxes by x, y, width and height, and a line."""

    wide: str
    tall: str
    said: str
    boxes: list[tuple[str, str, str, str]]
    flat: str


@dataclass(frozen=True)
class StratumRow:
    """A row of the table; the first of a kind has the name of the kind."""

    kind: str
    name: str
    definition: str
    cells: tuple[str, ...]
    bars: Bars


def by_stratum_of(calibration: OpenGroup) -> ByStratum | None:
    """Read the strata of group ``calibration``; None if the run is of an earlier version."""
    if STRATUM not in calibration:
        return None
    levels = calibration.values("level")
    nearest = int(np.argmin(np.abs(levels - HEADLINE)))
    at = calibration.at(level=nearest)
    measured = [name for name in table(T2M)["calibration"] if name.startswith((STRATUM, "reliability"))]
    kinds, names, definitions = map(calibration.texts, (STRATUM_KIND, STRATUM, STRATUM_DEFINITION))
    return ByStratum(
        kinds=kinds,
        names=names,
        definitions=definitions,
        level=float(levels[nearest]),
        reliability_levels=calibration.values(RELIABILITY_LEVEL),
        measures={name: at.values(name) for name in measured if name in at},
        distributions=("", PLAIN) if f"reliability{PLAIN}" in at else ("",),
    )


def statement(found: ByStratum, noun: str) -> str:
    """Say what the strata are, and in how many of them the error bars hold."""
    if len(found.names) == 1:
        return (
            "There are too few held-out observations to divide them into groups: a group needs at least "
            f"{FEWEST_OBSERVATIONS}."
        )
    said = {
        "latitude": "by latitude",
        "surface": "by sea, land and coast",
        "roughness": f"by roughness (how much the {noun} varies among the ten nearest observed points)",
        "lag": "by lag (how long before or after a value is known there)",
    }
    divided = ", ".join(said[kind] for kind in said if kind in found.kinds)
    text = (
        "Error bars that are right on average may be too wide in one place and too narrow in another. The "
        f"held-out observations are therefore divided by what was known before they were seen: {divided}. "
    )
    level = f"{100.0 * found.level:g} %"
    text += _held(found, "", level)
    for before in found.distributions[1:]:
        text += f" Without recalibration: {_held(found, before, level, again=True)}"
    return text


def _held(found: ByStratum, distribution: str, level: str, *, again: bool = False) -> str:
    """Say in how many parts the error bars hold, and which is furthest off."""
    inside = found.inside(distribution)
    off = np.abs(inside - found.level)
    explained = (off <= found.reach(distribution))[1:]
    furthest = 1 + int(np.argmax(off[1:]))
    share = f"{100.0 * inside[furthest]:.0f} %"
    counts = f"{np.count_nonzero(explained)} of the {explained.size}"
    if again:
        return f"{counts}; the largest difference is at {found.names[furthest]}, with {share}."
    return (
        f"In {counts} groups listed below, the coverage of the {level} error bars is within the 95 % range "
        f"that chance explains; the largest difference is at {found.names[furthest]}, with {share} inside."
    )


def left_out(found: ByStratum, run: "PublishedRun") -> str:
    """Name the groups that have too few observations to be listed; empty if there are none."""
    points = run.points
    every: list[str] = []
    if run.space.has_latitudes:
        for strata in (
            by_latitude(points.latitude_degrees),
            by_surface(points.latitude_degrees, points.longitude_degrees),
        ):
            every += [strata.names[number] for number in np.unique(strata.member)]
    every += FIFTHS if "roughness" in found.kinds else ()  # lags may have no observation at all
    small = [name for name in every if name not in found.names]
    if not small:
        return ""
    return f" Left out, with fewer than {FEWEST_OBSERVATIONS} observations: {', '.join(small)}."


def rows_of(found: ByStratum, units: str) -> list[StratumRow]:
    """Rows of the table, one for each stratum."""
    rows, measures = list[StratumRow](), found.measures
    both = found.distributions[::-1]
    for index, (kind, name) in enumerate(zip(found.kinds, found.names, strict=True)):
        cells = (
            f"{measures['stratum_observations'][index]:,.0f}",
            *(percent(found.inside(each)[index]) for each in both),
            f"±{100.0 * measures['stratum_coverage_standard_error'][index]:.1f}",
            *(amount(measures[f"stratum_mean_width{each}"][index], units, 2) for each in both),
            *(amount(measures[f"stratum_crps{each}"][index], units, 2) for each in both),
        )
        rows.append(
            StratumRow(
                kind=KINDS[kind] if kind in KINDS and found.kinds[index - 1] != kind else "",
                name="all observations" if kind == "all" else name,
                definition=found.definitions[index],
                cells=cells,
                bars=_bars(measures["stratum_pit_count"][index]),
            )
        )
    return rows


def _bars(counts: Array) -> Bars:
    """Lay out a histogram the size of a word, with the height of a flat one."""
    tall, wide = 22.0, 80.0
    each, top = wide / counts.size, max(float(counts.max()), 2.0 * float(counts.mean()))
    return Bars(
        wide=f"{wide:g}",
        tall=f"{tall:g}",
        said=f"PIT histogram: {counts.min():.0f} to {counts.max():.0f} per interval, "
        f"{counts.mean():.0f} if flat",
        boxes=[
            (f"{each * index:.1f}", f"{tall - height:.1f}", f"{0.85 * each:.1f}", f"{height:.1f}")
            for index, height in enumerate(tall * counts / top)
        ],
        flat=f"{tall * (1.0 - float(counts.mean()) / top):.1f}",
    )
