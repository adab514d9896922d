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
from cagp_dist.report import by_stratum, tables
from cagp_dist.report.published import PublishedRun, Simulation
from cagp_dist.report.wording import (
    COVERAGE_WORDS,
    NOT_EXACTLY_CALIBRATED,
    SIMULATION_WORDS,
    computed,
    percent,
    reading,
    signed_amount,
    when,
    when_all,
)
from cagp_dist.solvers.status import Status
from cagp_dist.text import duration
from cagp_dist.variables.units import amount

BROKEN_DOWN = {status.value for status in Status if not status.ok}
LEAVES_NOTHING = {Status.EXACT.value, Status.SOLVED.value}
"""Statuses of solves without computational uncertainty."""


_ALIKE = "The test points were drawn in proportion to area: counting them alike weights by area."
_ALL_PLACES = "Every place that was observed is a test point, and all are counted alike."
_BY_AREA = "By area, each test point counts with the area that it stands for."


def render(run: PublishedRun, figures: Mapping[str, str], every_time: str = "") -> str:
    """Fill the page.

    Parameters
    ----------
    run : PublishedRun
        What is reported.
    figures : mapping of str to str
        ``<svg>`` elements by name: mean, std, residual and pit; computational, convergence, regions and
        times where they were drawn.

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
        title=escape(f"{run.variable.heading}, {when_all(run.times)}"),
        lede=escape(_lede(run)),
        tiles=_tiles(run),
        plain=_plain(run),
        pills=_pills(run),
        time_note=_shown_time(run, every_time) if several else "",
        every_time=every_time,
        mean=framed["mean"],
        std=framed["std"],
        computational=framed.get("computational", ""),
        scale=framed.get("scale", ""),
        residual=framed["residual"],
        pit=framed["pit"],
        by_stratum=_by_stratum(run, framed),
        by_time=_beside_times(run, framed),
        simulated=_simulated(run.simulation, framed.get("simulation", "")),
        pooled=escape(f"Scores at {count}" + (f" and {len(run.times)} times, pooled" if several else "")),
        before='<th class="number">not recalibrated</th>' if run.calibration.plain_scores else "",
        scores=_rows(tables.score_rows(run), numbers=(1, 2, 3) if run.calibration.plain_scores else (1, 2)),
        coverage=_rows(tables.coverage_rows(run), numbers=(1, 2, 3)),
        ks_note=escape(CORRELATED_TEST_POINTS),
        weighting=_weighting(run),
        computing=_computing(run, framed.get("convergence", "")),
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
        what = "cells" if run.grid.of_cells else "points"
        grids = f"a grid of {rows} x {columns} {what}"
        if run.fine is not None:
            rows, columns = run.fine.mean.shape
            grids = f"a grid of {rows} x {columns} {what}, the error bars on {grids},"
        if run.grid.of_cells:
            drawn = f"Means over the cells of {grids}, shaded bilinearly between their centres."
        else:
            drawn = f"Computed on {grids} and shaded bilinearly between them."
    else:
        drawn = "The job asked for no map: the dots are the test points, and nothing is interpolated."
    noun, units = run.variable.noun, run.variable.units
    bias = float(np.nanmean(run.points.observed - run.points.mean))
    over = " over all times" if len(run.times) > 1 else ""
    corrected = " and is recalibrated" if run.calibration.plain_scores else ""
    uncertain = (
        f"Uncertainty of the {noun} itself, mathematical and computational together. That of a "
        f"single observation, {run.variable.name}_predictive_std in the run, has its noise on top{corrected}."
    )
    if run.grid and run.grid.of_cells:
        uncertain = (
            f"Uncertainty of the mean {noun} of each cell, mathematical and computational together. That of "
            "the field at a point is larger: what differs between points of a cell averages out."
        )
    captions = {
        "mean": drawn,
        "std": uncertain,
        "computational": "What more iterations would take away from the error bars, at most. Variances add "
        "up: a part of 0.3 in an error bar of 1 is 9 % of the variance; without it the error bar is 0.95.",
        "scale": "How errors at points that were not used changed the error bar of an observation: at 2 it "
        "is twice as wide, at 1/2 half as wide. The map of the posterior standard deviation is without it.",
        "reliability": "All held-out observations. The band holds 95 of 100 shares if the error bars are "
        "right; it allows for neighbours that err together, not for an error common to all.",
        "strata": "The band of each part holds 95 of 100 shares if its error bars are right: one part in "
        "twenty is outside by chance. Coast is within 50 km of a coastline.",
        "residual": f"On average {signed_amount(bias, units, 2)}{over}. Red and blue should look scattered: "
        "a region of one colour was missed as a whole.",
        "pit": _shape(run),
        "convergence": "Lower is better. An arrow stands for a prior too far off to share the scale.",
        "simulation": "One value for each field: where the truth lies in its predicted law, along one random "
        "direction. Fields are independent of each other: by chance 95 of 100 counts lie in the band.",
        "regions": "Bands are one error bar to each side.",
        "times": "The dashed line is the share that honest error bars hold.",
    }
    return [(name, svg, escape(captions[name])) for name, svg in figures.items()]


def _shape(run: PublishedRun) -> str:
    """Read the PIT histogram, and that by area where it says something else."""
    scored = run.calibration
    words = run.variable.comparatives
    plain = by_area = reading(
        histogram(scored.pit), words, design_effect=scored.design_effect(scored.standard_error)
    )
    if not scored.by_area_is_the_same:
        by_area = reading(
            histogram(scored.pit, weights=scored.area_weight),
            words,
            design_effect=scored.design_effect(scored.standard_error_by_area),
        )
    return plain if by_area == plain else f"{plain} Weighted by area: {by_area}"


def _pills(run: PublishedRun) -> str:
    """How the solve ended and what the test points say of the error bars; no green beside a fault."""
    attributes = run.attributes
    status, verdict = attributes.text("status"), attributes.text("calibration_status")
    judged = {"consistent": "good", "undecided": "", "": ""}.get(verdict, "bad")
    solved = "bad" if status in BROKEN_DOWN else "" if judged == "bad" else "good"
    pills = [
        (solved, status or "status not recorded", attributes.text("status_advice")),
        (
            judged,
            COVERAGE_WORDS.get(verdict, verdict) or "error bars not judged",
            attributes.text("calibration_statement"),
        ),
    ]
    method = attributes.text("recalibration")
    if method:
        said = "not recalibrated" if method == "none" else f"recalibrated: {method}"
        pills.append(("", said, attributes.text("recalibration_statement")))
    return "\n".join(
        f'<div class="status"><span class="{f"pill {colour}".strip()}">{escape(word)}</span>'
        f"<span>{escape(sentence)}</span></div>"
        for colour, word, sentence in pills
    )


def _lede(run: PublishedRun) -> str:
    observed = run.attributes.count("train_count")
    count = "Observations" if observed is None else f"{observed:,} observations"
    each = " at each time" if len(run.times) > 1 else ""
    if observed is not None and _has_gaps(run):
        count, each = f"{observed:,} observed places", ", not all of them at each time"
    exact = run.attributes.text("status") in LEAVES_NOTHING
    bars = "solved exactly" if exact else "error bars that count the computation that was not done"
    return f"{count}{each}; {bars}; checked at {run.points.latitude_degrees.size:,} held-out points."


def _tiles(run: PublishedRun) -> str:
    """Give the four numbers a reader wants first."""
    level, inside, by_area = tables.headline_coverage(run)
    units = run.variable.units
    alike = run.calibration.by_area_is_the_same
    weighted = "" if alike else f" ({percent(by_area)} by area)"
    spread, where = (run.grid.std, "on the map") if run.grid else (run.points.std, "at the test points")
    tiles = [
        (
            amount(run.calibration.scores["rmse"], units, 2),
            f"typical error (RMSE) at held-out points; {amount(run.trace.rmse[0], units, 2)} for the prior "
            "alone",
        ),
        (
            percent(inside),
            f"of the held-out observations lie inside their {100.0 * level:g} % error bars{weighted}",
        ),
        (
            f"±{amount(float(np.median(spread)), units, 2)}",
            f"median error bar {where} (one standard deviation)",
        ),
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
    level, inside, by_area = tables.headline_coverage(run)
    stopped = escape(
        " ".join(
            filter(
                None,
                (
                    computed(attributes.text("status"), steps),
                    attributes.text("computational_statement"),
                    attributes.text("sampling_statement"),
                ),
            )
        )
    )
    noise = attributes.number("noise_variance")
    noisy = ""
    if noise:
        noisy = (
            f" (which adds the noise of an observation, {amount(np.sqrt(noise), run.variable.units, 2)}: its "
            "error or, in a reanalysis, what varies between the points"
        )
        if run.calibration.plain_scores:
            noisy += "; and which is recalibrated by errors at points that were not used"
        noisy += ")"
    weighted = "" if run.calibration.by_area_is_the_same else f", {100.0 * by_area:.0f} weighted by area"
    mean = (
        "whose coefficients are estimated with the field and add their uncertainty to the error bars"
        if attributes.table("prior").get("mean_estimate") == "generalised"
        else "which is estimated from the observations and then taken as known"
    )
    paragraphs = [
        "<b>What the error bars include.</b> Two kinds of not knowing, added together. "
        f"<i>Mathematical</i>: between the observations the {escape(run.variable.noun)} cannot be known for "
        f"certain, however much one computes. <i>Computational</i>: {stopped}",
        f"<b>Whether to believe them.</b> They presume that the prior is right, its mean included, {mean}. "
        "How far that holds is measured: of every "
        f"100 held-out observations, {100.0 * inside:.0f} fell inside their {100.0 * level:g} % error "
        f"bar{noisy}{weighted}; honest ones would hold {100.0 * level:g}. "
        f"All levels together, see the histogram below: {escape(_shape(run))}",
    ]
    if run.solver_calibration in NOT_EXACTLY_CALIBRATED:
        paragraphs.append(f"<b>Note.</b> {escape(NOT_EXACTLY_CALIBRATED[run.solver_calibration])}")
    return "\n".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)


def _by_stratum(run: PublishedRun, framed: Mapping[str, str]) -> str:
    """Where the error bars hold; nothing if the run does not say."""
    found = run.calibration.by_stratum
    if found is None:
        return ""
    before = "" if found.plain is None else " Before and after recalibration."
    weighted = "" if run.calibration.by_area_is_the_same else f" {_BY_AREA}"
    note = (
        "Chance is one standard error in percentage points, which allows for neighbours that err together."
        f"{before} Width: that of the error bars from end to end, on average; shorter is better where the "
        "share inside is right. CRPS: error and error bar in one number; smaller is better. PIT: high at "
        f"both ends if error bars are too narrow, in the middle if they are too wide.{weighted}"
    )
    return "\n".join(
        (
            "<h2>Where the error bars hold</h2>",
            f"<p>{escape(by_stratum.statement(found, run.variable.noun))}</p>",
            f'<div class="grid">\n{framed.get("reliability", "")}\n{framed.get("strata", "")}\n</div>',
            '<div class="card below"><table class="strata">',
            "<caption>Held-out observations by latitude, surface and roughness</caption>",
            by_stratum.heading(found),
            by_stratum.table(found, run.variable.units),
            f'</table>\n<p class="note">{escape(note)}</p></div>',
        )
    )


def _weighting(run: PublishedRun) -> str:
    folds, blocks = (run.attributes.text(name) for name in ("cross_validation", "held_out_blocks"))
    if not run.calibration.by_area_is_the_same:
        said = _BY_AREA
    else:
        said = escape(f"{_ALL_PLACES} {folds}") if folds else _ALIKE
    return f"{said} {escape(blocks)}" if blocks else said


def _shown_time(run: PublishedRun, every_time: str) -> str:
    shown = escape(f"The maps show the first of {len(run.times)} times, {when(run.times[0])}.")
    patterns = run.attributes.count("patterns_of_gaps")
    apart = "apart" if patterns is None else f"apart, in {patterns:,} solves"
    pooled = (
        f"Not every place was observed at every time, and times with different gaps were solved {apart}; "
        "scores and PIT pool all of them."
        if _has_gaps(run)
        else "All times were observed at the same places and solved together; scores and PIT pool all of "
        "them."
    )
    link = ' <a href="#every-time">Every time</a> is drawn below.' if every_time else ""
    chooser = '\n<div id="choose-time"></div>' if every_time else ""
    return f'<div class="shown"><p><span id="shown-time">{shown}</span> {pooled}{link}</p>{chooser}</div>'


def _has_gaps(run: PublishedRun) -> bool:
    """Whether places were observed at some of the times alone."""
    return run.attributes.count("patterns_of_gaps") is not None or bool(np.isnan(run.points.observed).any())


def _places(run: PublishedRun) -> str:
    """Predictions at places of a table; nothing if the job asked for none."""
    rows, which = tables.place_rows(run)
    if not rows:
        return ""
    head = "".join(
        f'<th class="number">{name}</th>' for name in ("latitude", "longitude", "mean", "error bar")
    )
    table = f"<table><caption>{escape(which)}</caption>\n<tr><th>place</th>{head}</tr>\n"
    table += f"{_rows(rows, numbers=(1, 2, 3, 4))}</table>"
    return f'<h2>At your places</h2>\n<div class="card">{table}</div>'


def _beside_times(run: PublishedRun, framed: Mapping[str, str]) -> str:
    """Regions, places of a table and the scores time by time, of those that there are."""
    by_time = _by_time(run, framed["times"]) if len(run.times) > 1 else ""
    return "\n".join(filter(None, [_regions(run, framed.get("regions", "")), _places(run), by_time]))


def _regions(run: PublishedRun, figure: str) -> str:
    """Means over regions; nothing if the job asked for none."""
    rows = tables.region_rows(run)
    if not rows:
        return ""
    head = "".join(f'<th class="number">{name}</th>' for name in ("mean", "error bar", "unfinished"))
    which = f"Means over regions, weighted with area, {when(run.times[0])}; all in group regions of the run"
    table = f"<table><caption>{escape(which)}</caption>\n<tr><th>region</th><th>where</th>{head}</tr>\n"
    table += f"{_rows(rows, numbers=(2, 3, 4))}</table>"
    note = (
        '<p class="note">Unfinished: the part of the error bar that more iterations take away, at most. '
        "Places of a region that err together are counted as such. Regions that share ground err together, "
        "too: the error bar of a difference does not follow from this table.</p>"
    )
    card = f'<div class="card">{table}{note}</div>'
    body = f'<div class="grid">\n{figure}\n{card}\n</div>' if figure else card
    return f"<h2>Regions</h2>\n{body}"


def _by_time(run: PublishedRun, figure: str) -> str:
    rows, which = tables.time_rows(tables.by_time(run))
    head = "".join(
        f'<th class="number">{name}</th>' for name in ("RMSE", "NLL", "CRPS", f"inside {tables.HEADLINE:.0%}")
    )
    table = f"<table><caption>{escape(which)}</caption>\n<tr><th>time</th>{head}</tr>\n"
    table += f"{_rows(rows, numbers=(1, 2, 3, 4))}</table>"
    return f'<h2>Time by time</h2>\n<div class="grid">\n{figure}\n<div class="card">{table}</div>\n</div>'


def _simulated(found: Simulation | None, figure: str) -> str:
    """Tell what the error bars did on fields of the prior; nothing if none were drawn."""
    if found is None:
        return ""
    colour = {"consistent": "good", "undecided": ""}.get(found.status, "bad")
    pill = (
        f'<div class="status"><span class="{f"pill {colour}".strip()}">'
        f"{escape(SIMULATION_WORDS.get(found.status, found.status))}</span>"
        f"<span>{escape(found.statement)}</span></div>"
    )
    at = "" if found.observed is None else f" at {found.observed:,} points"
    said = escape(
        f"{found.pit.size:,} fields were drawn from the prior, observed as here{at} and solved with the same "
        "settings. The prior is right for them, so that only the solver can be at fault; whether it is right "
        f"for the real field is seen above. Errors are those of the field itself, at "
        f"{found.error_ratio.size:,} points."
    )
    head = "".join(f'<th class="number">{name}</th>' for name in ("measured", "if right", "p-value"))
    table = f"<table><caption>What was measured</caption>\n<tr><th>quantity</th>{head}</tr>\n"
    table += f"{_rows(tables.simulation_rows(found), numbers=(1, 2, 3))}</table>"
    note = (
        '<p class="note">Below 1 error bars are wider than the errors, above 1 narrower; beside 1 stands one '
        "standard error. Together: errors that the stated covariance has made independent. p-values of a "
        "calibrated solver are uniform between 0 and 1; the verdict takes five of them together, with one "
        "false alarm in 370 at most.</p>"
    )
    return (
        f'<h2>On fields drawn from the prior</h2>\n{pill}\n<div class="grid">\n{figure}\n'
        f'<div class="card"><p>{said}</p>{table}{note}</div>\n</div>'
    )


def _computing(run: PublishedRun, convergence: str) -> str:
    """Two columns: convergence and fit, if there are any, beside times and plan."""
    timings = f"<table>\n<caption>Time taken</caption>\n{_timings(run)}\n</table>"
    lines = "\n".join(run.attributes.lines("plan")) or "not recorded"
    plan = f"<div><h3>Plan</h3><pre>{escape(lines)}</pre></div>"
    found = "\n".join(part for part in (convergence, _prior(run)) if part)
    if not found:
        return f'<div class="card">{timings}</div>\n<div class="card">{plan}</div>'
    return f'<div class="column">\n{found}\n</div>\n<div class="card stack">\n{timings}\n{plan}\n</div>'


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
