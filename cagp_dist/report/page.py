"""The HTML page of a run: the template filled with its numbers, its words and its figures.

What goes into the template is markup. Every text that comes from the run (job file, paths, advice,
provenance) passes through ``html.escape`` on its way.
"""

from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from string import Template

import numpy as np

from cagp_dist.calibration.pit import CORRELATED_TEST_POINTS, histogram
from cagp_dist.report import tables
from cagp_dist.report.published import PublishedRun
from cagp_dist.report.wording import percent, reading, signed, when, when_all
from cagp_dist.solvers.status import Status
from cagp_dist.text import duration

BROKEN_DOWN = {status.value for status in Status if not status.ok}


def render(run: PublishedRun, figures: Mapping[str, str]) -> str:
    """Fill the page.

    Parameters
    ----------
    run : PublishedRun
        What is reported.
    figures : mapping of str to str
        ``<svg>`` elements by name: mean, std, residual, pit, convergence; times for several times.

    Returns
    -------
    str
        A whole HTML document that refers to no other file.
    """
    attributes = run.attributes
    several = len(run.times) > 1
    count = f"{run.points.latitude_degrees.size:,} test points"
    framed = {name: _figure(svg, caption) for name, svg, caption in _captioned(run, figures)}
    template = (resources.files("cagp_dist.report") / "data" / "page.html").read_text(encoding="utf-8")
    return Template(template).substitute(
        title=escape(f"Temperature at 2 m, {when_all(run.times)}"),
        lede=escape(_lede(run)),
        tiles=_tiles(run),
        plain=_plain(run),
        status=escape(attributes.text("status") or "status not recorded"),
        status_class="bad" if attributes.text("status") in BROKEN_DOWN else "good",
        advice=escape(attributes.text("status_advice")),
        time_note=f"<p>{_shown_time(run)}</p>" if several else "",
        mean=framed["mean"],
        std=framed["std"],
        residual=framed["residual"],
        pit=framed["pit"],
        convergence=framed["convergence"],
        by_time=_by_time(run, framed["times"]) if several else "",
        pooled=escape(f"Scores at {count}" + (f" and {len(run.times)} times, pooled" if several else "")),
        scores=_rows(tables.score_rows(run), numbers=(1, 2)),
        coverage=_rows(tables.coverage_rows(run), numbers=(1, 2, 3)),
        ks_note=escape(CORRELATED_TEST_POINTS),
        plan=escape("\n".join(attributes.lines("plan")) or "not recorded"),
        timings=_timings(run),
        prior=_prior(run),
        job=escape(attributes.text("job") or "not recorded"),
        record=_rows(tables.record_rows(run), numbers=()),
        footer=escape(
            f"Run {run.key}. The figures lie beside this page as PNG files. Globes are drawn in the Equal "
            "Earth projection, regions in plate carree. Coastlines: Natural Earth 1:110 million (simplified, "
            "for orientation only), public domain."
        ),
    )


def _captioned(run: PublishedRun, figures: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Name, drawing and caption of every figure."""
    if run.grid:
        rows, columns = run.grid.mean.shape
        drawn = f"Computed on a grid of {rows} x {columns} points and shaded bilinearly between them."
    else:
        drawn = "The job asked for no map: the dots are the test points, and nothing is interpolated."
    bias = float((run.points.observed[0] - run.points.mean[0]).mean())
    captions = {
        "mean": drawn,
        "std": "Uncertainty of the temperature itself, mathematical and computational together; the noise "
        "of a single observation comes on top.",
        "residual": f"On average {signed(bias, 2)} K. Red and blue should look scattered: a region of one "
        "colour was missed as a whole.",
        "pit": reading(histogram(run.calibration.pit)),
        "convergence": "Lower is better. An arrow stands for a prior too far off to share the scale.",
        "times": "The dashed line is the share that honest error bars hold.",
    }
    return [(name, svg, escape(captions[name])) for name, svg in figures.items()]


def _lede(run: PublishedRun) -> str:
    observed = run.attributes.count("train_count")
    count = "Observations" if observed is None else f"{observed:,} observations"
    each = " at each time" if len(run.times) > 1 else ""
    return (
        f"{count}{each}; error bars that count the computation that was not done; "
        f"checked at {run.points.latitude_degrees.size:,} held-out points."
    )


def _tiles(run: PublishedRun) -> str:
    """Give the four numbers a reader wants first."""
    level, inside = tables.headline_coverage(run)
    spread, where = (run.grid.std, "on the map") if run.grid else (run.points.std, "at the test points")
    tiles = [
        (
            f"{run.calibration.scores['rmse']:.2f} K",
            f"typical error (RMSE) at held-out points; {run.trace.rmse[0]:.2f} K for the prior alone",
        ),
        (percent(inside), f"of the held-out observations lie inside their {100.0 * level:g} % error bars"),
        (f"±{float(np.median(spread)):.2f} K", f"median error bar {where} (one standard deviation)"),
    ]
    seconds = tables.seconds_by_stage(run)
    if seconds:
        tiles.append((duration(sum(seconds.values())), "of computing, in all stages of the run"))
    return "\n".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(text)}</span></div>' for value, text in tiles
    )


def _plain(run: PublishedRun) -> str:
    """Say what the error bars include, for readers who are not statisticians."""
    attributes, steps = run.attributes, int(run.trace.iteration[-1])
    level, inside = tables.headline_coverage(run)
    if attributes.text("status") == Status.EXACT.value:
        stopped = "here the solver did all of it, so that this part is zero."
    else:
        stopped = (
            f"the solver stopped after {steps} iteration{'' if steps == 1 else 's'}, before it had used the "
            "observations fully. A solver that stops sooner gives wider error bars, not wrong ones."
        )
    noise = attributes.number("noise_variance")
    noisy = f" (which adds the noise of an observation, {np.sqrt(noise):.2f} K)" if noise else ""
    paragraphs = [
        "<b>What the error bars include.</b> Two kinds of not knowing, added together. "
        "<i>Mathematical</i>: between the observations the temperature cannot be known for certain, "
        f"however much one computes. <i>Computational</i>: {stopped}",
        f"<b>Whether to believe them.</b> Of every 100 held-out observations, {100.0 * inside:.0f} fell "
        f"inside their {100.0 * level:g} % error bar{noisy}; honest ones would hold {100.0 * level:g}. "
        f"All levels together, see the histogram below: {escape(reading(histogram(run.calibration.pit)))}",
    ]
    if attributes.values.get("calibrated") is False:
        paragraphs.append(
            "<b>Note.</b> This solver picks its steps by looking at the observations. Its error bars are "
            "known to be too wide; the Gauss-Seidel solvers do not have this flaw."
        )
    return "\n".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)


def _shown_time(run: PublishedRun) -> str:
    return escape(
        f"The maps show the first of {len(run.times)} times, {when(run.times[0])}. All times were observed "
        "at the same places and solved together; scores and PIT pool all of them."
    )


def _by_time(run: PublishedRun, figure: str) -> str:
    rows, which = tables.time_rows(tables.by_time(run))
    head = "".join(
        f'<th class="number">{name}</th>' for name in ("RMSE", "NLL", "CRPS", f"inside {tables.HEADLINE:.0%}")
    )
    table = f"<table><caption>{escape(which)}</caption>\n<tr><th>time</th>{head}</tr>\n"
    table += f"{_rows(rows, numbers=(1, 2, 3, 4))}</table>"
    return f'<h2>Time by time</h2>\n<div class="grid">\n{figure}\n<div class="card">{table}</div>\n</div>'


def _timings(run: PublishedRun) -> str:
    """Stage, bar and duration."""
    seconds = tables.seconds_by_stage(run)
    longest = max(seconds.values(), default=0.0) or 1.0
    return "\n".join(
        f'<tr><td>{escape(stage)}</td><td class="half"><span class="bar" style="width:{value / longest:.1%}">'
        f'</span></td><td class="number">{escape(duration(value))}</td></tr>'
        for stage, value in seconds.items()
    )


def _prior(run: PublishedRun) -> str:
    """Fitted numbers with their standard errors; nothing if the job stated them."""
    rows = tables.prior_rows(run)
    if not rows:
        return ""
    head = "".join(f'<th class="number">{title}</th>' for title in ("estimate", "standard error"))
    table = f"<table><caption>{escape(tables.fit_caption(run))}</caption>\n"
    table += f"<tr><th>number</th>{head}<th>unit</th></tr>\n{_rows(rows, numbers=(1, 2))}</table>"
    return f'<div class="card">{table}<p class="note">{escape(tables.fit_note(run))}</p></div>'


def _figure(svg: str, caption: str) -> str:
    return f"<figure>\n{svg}\n<figcaption>{caption}</figcaption>\n</figure>"


def _rows(rows: Sequence[tables.Row], *, numbers: Sequence[int]) -> str:
    """Table rows, escaped; the columns listed in ``numbers`` are set flush right."""
    return "\n".join(
        "<tr>"
        + "".join(
            f'<td class="number">{escape(cell)}</td>' if column in numbers else f"<td>{escape(cell)}</td>"
            for column, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
