"""Scores of a run by stratum of its test points, and its reliability: read, and put into words and rows."""

from dataclasses import dataclass

import numpy as np

from cagp_dist.arrays import Array, Mask
from cagp_dist.calibration.strata import CHANCE, FEWEST_OBSERVATIONS
from cagp_dist.report.reading import Group
from cagp_dist.report.wording import percent
from cagp_dist.store.layout import PLAIN, RELIABILITY_LEVEL, STRATUM, STRATUM_DEFINITION, STRATUM_KIND
from cagp_dist.variables.units import amount

HEADLINE = 0.9
"""The level of which the table speaks."""

_OF_LAW = (
    *(f"stratum_{name}" for name in ("coverage", "coverage_standard_error", "mean_width", "interval_score")),
    *("stratum_crps", "stratum_pit_count", "reliability", "reliability_standard_error"),
)
"""Arrays of `OfLaw`."""

KINDS = {"latitude": "Latitude", "surface": "Surface", "roughness": "Roughness"}


@dataclass(frozen=True, eq=False)
class OfLaw:
    """What S strata say of one law, at the headline level; and all observations at many levels."""

    coverage: Array  # (S,)
    standard_error: Array  # (S,)
    width: Array  # (S,)
    interval_score: Array  # (S,)
    crps: Array  # (S,)
    pit_counts: Array  # (S, k)
    reliability: Array  # (L,)
    reliability_error: Array  # (L,)

    def explained(self, level: float) -> Mask:
        """Whether chance explains the difference of each stratum from the level, 95 times of 100."""
        return np.abs(self.coverage - level) <= CHANCE * self.standard_error


@dataclass(frozen=True, eq=False)
class ByStratum:
    """Strata of the test points; the first is all of them."""

    kinds: tuple[str, ...]
    names: tuple[str, ...]
    definitions: tuple[str, ...]
    count: Array  # (S,): observations
    level: float  # Of the coverage
    reliability_levels: Array  # (L,)
    law: OfLaw  # The published one
    plain: OfLaw | None  # The Gaussian one, where the published one was recalibrated


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


def by_stratum_of(calibration: Group) -> ByStratum | None:
    """Read the strata of group ``calibration``; None if the run is of an earlier version."""
    if STRATUM not in calibration:
        return None
    levels = calibration.values("level")
    nearest = int(np.argmin(np.abs(levels - HEADLINE)))
    at = calibration.at(level=nearest)

    def of_law(suffix: str) -> OfLaw:
        return OfLaw(*(at.values(f"{name}{suffix}") for name in _OF_LAW))

    kinds, names, definitions = map(calibration.texts, (STRATUM_KIND, STRATUM, STRATUM_DEFINITION))
    return ByStratum(
        kinds=kinds,
        names=names,
        definitions=definitions,
        count=calibration.values("stratum_observations"),
        level=float(levels[nearest]),
        reliability_levels=calibration.values(RELIABILITY_LEVEL),
        law=of_law(""),
        plain=of_law(PLAIN) if f"reliability{PLAIN}" in calibration else None,
    )


def statement(found: ByStratum, noun: str) -> str:
    """Say what the strata are, and in how many of them the error bars hold."""
    if len(found.names) == 1:
        return (
            f"There are too few held-out observations to say it part by part: {FEWEST_OBSERVATIONS} are the "
            "fewest of a part."
        )
    kinds = set(found.kinds)
    known = [
        said
        for kind, said in (
            ("latitude", "by latitude"),
            ("surface", "by sea, land and coast"),
            (
                "roughness",
                f"by roughness, which is how much the {noun} varies among the ten nearest observed points",
            ),
        )
        if kind in kinds
    ]
    divided = ", ".join(known)
    text = (
        "Error bars that are right on average may be too wide in one place and too narrow in another. So the "
        f"held-out observations are divided by what was known before they were seen: {divided}. "
    )
    level = f"{100.0 * found.level:g} %"
    text += f"{_held(found, found.law, level)}"
    if found.plain is not None:
        text += f" Without recalibration: {_held(found, found.plain, level, again=True)}"
    return text


def _held(found: ByStratum, law: OfLaw, level: str, *, again: bool = False) -> str:
    parts = slice(1, None)
    explained = law.explained(found.level)[parts]
    furthest = 1 + int(np.argmax(np.abs(law.coverage[parts] - found.level)))
    share = f"{100.0 * law.coverage[furthest]:.0f} %"
    counts = f"{np.count_nonzero(explained)} of {explained.size}"
    if again:
        return f"{counts}; furthest off is {found.names[furthest]} with {share}."
    return (
        f"In {counts} parts the share inside the {level} error bars is no further from {level} than chance "
        f"explains 95 times in a hundred; furthest off is {found.names[furthest]}, with {share} inside."
    )


def rows_of(found: ByStratum, units: str) -> list[StratumRow]:
    """Rows of the table, one for each stratum."""
    laws = [law for law in (found.plain, found.law) if law is not None]
    rows: list[StratumRow] = []
    for index, (kind, name) in enumerate(zip(found.kinds, found.names, strict=True)):
        cells = (
            f"{found.count[index]:,.0f}",
            *(percent(law.coverage[index]) for law in laws),
            f"±{100.0 * found.law.standard_error[index]:.1f}",
            *(amount(law.width[index], units, 2) for law in laws),
            *(amount(law.crps[index], units, 2) for law in laws),
        )
        rows.append(
            StratumRow(
                kind=KINDS[kind] if kind in KINDS and found.kinds[index - 1] != kind else "",
                name="all observations" if kind == "all" else name,
                definition=found.definitions[index],
                cells=cells,
                bars=_bars(found.law.pit_counts[index]),
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
