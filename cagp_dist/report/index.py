"""One page over all runs of an output folder: a small map and the scores of each, and the scores by date."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup

from cagp_dist.cartography.chart_style import ACCENT, INK, MUTED, date_axis, drawing_style, quiet_grid
from cagp_dist.cartography.colour_scale import ColourScale
from cagp_dist.pages.templates import fill
from cagp_dist.report import report_page
from cagp_dist.report.drawing import Drawing, inline_svg, title
from cagp_dist.report.page import BROKEN_DOWN
from cagp_dist.report.thumbnails import Picture, picture_of, thumbnail, thumbnail_scales
from cagp_dist.report.wording import COVERAGE_WORDS, listed, percent, when, when_all
from cagp_dist.service.published_runs import COVERAGE_LEVEL, RunEntry, list_runs
from cagp_dist.store.atomic_files import whole_file
from cagp_dist.store.outputs import readable
from cagp_dist.text import counted
from cagp_dist.variables.units import amount

FEWEST_DATES = 2  # Dates with scores from which a chart is drawn


@dataclass(frozen=True)
class Card:
    """What the page shows of one run; of one that cannot be read, its key and what is wrong with it.

    ``image`` is a ``data:`` address, ``pills`` are colours and words, ``scores`` names and values.
    """

    key: str
    fault: str = ""
    heading: str = ""
    image: str = ""
    shows: str = ""
    pills: Sequence[tuple[str, str]] = ()
    scores: Sequence[tuple[str, str]] = ()
    solved: str = ""
    reported: bool = False


def write_index(root: str | os.PathLike[str]) -> Path:
    """Write ``OUT/report/index.html``: all runs of an output folder, the newest date first.

    The page stands alone, and links the reports that were written. Writing it again replaces it.

    ``root`` is an output folder, or ``s3://BUCKET/PATH`` as text. Cost: about 0.2 s and 20 kB for each run.
    Raises `ConfigurationError` if nothing was published there, or the page cannot be written.
    """
    folder = readable(os.fspath(root), every=True)
    runs = list_runs(folder)
    page = folder / "report" / "index.html"
    found = {run.key: picture_of(run.path) for run in runs if not run.fault}
    pictures = {key: picture for key, picture in found.items() if picture is not None}
    scales = thumbnail_scales(list(pictures.values()))
    ranges = [
        f"{name} from {scale.low:.4g} (dark) to {scale.high:.4g} {scale.label} (bright)".replace(" )", ")")
        for name, scale in scales.items()
    ]
    shown = sorted(runs, key=lambda run: (not run.fault, str(run.times[:1]), run.created), reverse=True)
    times = np.concatenate([run.times for run in runs])
    text = fill(
        "index",
        title=f"Runs in {Path(root).absolute().name}",
        lede=f"{listed(counted(len(runs), 'run'), when_all(np.unique(times)) if times.size else '')}.",
        chart=_chart(runs),
        scale=f"Small maps: posterior mean at the first time, {'; '.join(ranges)}." if ranges else "",
        cards=[_card(run, pictures.get(run.key), scales) for run in shown],
    )
    with whole_file(page) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return page


def _card(run: RunEntry, picture: Picture | None, scales: Mapping[str, ColourScale]) -> Card:
    """Everything about one run; the whole card leads to its report, if that was written."""
    if run.fault:
        return Card(run.key, fault=run.fault)
    date = (when(run.times[0], run.times) if run.times.size else "") or run.key
    more = f" and {run.times.size - 1} more" if run.times.size > 1 else ""
    points = "" if run.observations is None else f"{counted(run.observations, 'point')}, "
    return Card(
        run.key,
        heading=f"{date}{more}",
        image="" if picture is None else thumbnail(picture, scales[picture.variable]),
        shows="" if picture is None else f"Posterior mean of {picture.variable}, {date}",
        pills=_pills(run),
        scores=_scores(run),
        solved=f"{points}{run.source}, {run.solver}",
        reported=report_page(run.path).exists(),
    )


def _pills(run: RunEntry) -> list[tuple[str, str]]:
    """Colour and word of what is known of a run."""
    good = run.calibration_status == "consistent"
    pills = [
        ("current", "current") if run.current else ("", ""),
        ("bad" if run.status in BROKEN_DOWN else "", run.status),
        (
            "good" if good else "" if run.calibration_status in ("", "undecided") else "bad",
            COVERAGE_WORDS.get(run.calibration_status, run.calibration_status),
        ),
    ]
    return [(colour, word) for colour, word in pills if word]


def _scores(run: RunEntry) -> list[tuple[str, str]]:
    """Name and value of each score; none if the run was not scored."""
    if not run.scores:
        return []
    shown = [(name.upper(), amount(run.scores[name], run.units, 2)) for name in ("rmse", "crps")]
    shown.append(("NLL", f"{run.scores['nll']:.2f}"))
    if "coverage" in run.scores:
        shown.append((f"in {100.0 * COVERAGE_LEVEL:g} %", percent(run.scores["coverage"])))
    return shown


def _chart(runs: Sequence[RunEntry]) -> Markup:
    """Scores by date, of runs that have both; nothing if there is one date alone."""
    scored = [run for run in runs if run.scores and run.times.size]
    if len({str(run.times[0]) for run in scored}) < FEWEST_DATES:
        return Markup()
    with drawing_style():
        return inline_svg(draw_scores_by_date(scored))


def draw_scores_by_date(runs: Sequence[RunEntry]) -> Drawing:
    """Draw RMSE, CRPS and coverage of runs over their first times; a dot for each run."""
    from matplotlib.figure import Figure

    dates = np.array([run.times[0] for run in runs])
    units = {run.units for run in runs}
    figure = Figure(figsize=(11.6, 3.1))
    title(figure, "Scores by date", "at held-out points; a run of several times at its first")
    left = figure.add_axes((0.045, 0.17, 0.44, 0.60))
    for name, colour, marker in (("rmse", ACCENT, "o"), ("crps", MUTED, "s")):
        values = np.array([run.scores[name] for run in runs])
        left.plot(dates, values, marker, color=colour, markersize=4.0, label=name.upper())
    left.set_ylim(bottom=0.0)
    left.set_title(f"error{f', {units.pop()}' if len(units) == 1 else ''}", fontsize=8, loc="left", color=INK)
    left.legend(frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1.0, 0.99), ncols=2)
    right = figure.add_axes((0.545, 0.17, 0.44, 0.60))
    covered = [(run.times[0], 100.0 * run.scores["coverage"]) for run in runs if "coverage" in run.scores]
    shares = [share for _, share in covered]
    right.axhline(100.0 * COVERAGE_LEVEL, color=MUTED, linewidth=1.0, linestyle="--")
    right.plot([date for date, _ in covered], shares, "o", color=ACCENT, markersize=4.0)
    # a few points of a percentage are no trend: five on either side of the level are always shown
    level = 100.0 * COVERAGE_LEVEL
    right.set_ylim(min([*shares, level - 5.0]) - 1.0, max([*shares, level + 5.0]) + 1.0)
    inside = f"% of the observations inside their {level:g} % error bars"
    right.set_title(inside, fontsize=8, loc="left", color=INK)
    for axes in (left, right):
        quiet_grid(axes)
        date_axis(axes, most=7)
        axes.margins(x=0.04)
    best, worst = (f(run.scores["rmse"] for run in runs) for f in (min, max))
    return Drawing(
        "scores-by-date", figure, f"Scores of {len(runs)} runs by date: RMSE from {best:.2f} to {worst:.2f}."
    )
