"""The HTML page of a run: the template filled with its numbers, its words and its figures."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from cagp_dist.calibration.verification.pit import AREA_WEIGHTED, CORRELATED_TEST_POINTS, histogram
from cagp_dist.pages.templates import fill
from cagp_dist.report import by_stratum
from cagp_dist.report import report_tables as tables
from cagp_dist.report.every_time import Gallery
from cagp_dist.report.published import PublishedRun, Simulation
from cagp_dist.report.wording import (
    COVERAGE_WORDS,
    NOT_EXACTLY_CALIBRATED,
    SIMULATION_WORDS,
    at_depth,
    computed,
    listed,
    page_of,
    percent,
    reading,
    signed_amount,
    when,
    when_all,
)
from cagp_dist.solvers.status import Status
from cagp_dist.store.published_variables import BELOW_LIMITS
from cagp_dist.text import counted, duration
from cagp_dist.variables.units import amount

BROKEN_DOWN = {status.value for status in Status if not status.ok}
# Statuses of solves without computational uncertainty
LEAVES_NOTHING = {Status.EXACT.value, Status.SOLVED.value}


_ALIKE = "The test points were drawn in proportion to area, so counting them equally weights by area."
_ALL_PLACES = "Every observed place is a test point, and all count equally."
_BY_AREA = "By area, each test point is weighted by the area that it represents."


@dataclass(frozen=True)
class Figure:
    """An ``<svg>`` element and what stands below it."""

    svg: Markup
    caption: str


def render(run: PublishedRun, figures: Mapping[str, Markup], every_time: Gallery | None = None) -> str:
    """Fill the page."""
    attributes = run.attributes
    several = len(run.times) > 1
    count = f"{run.points.latitude_degrees.size:,} test points"
    before = ["not recalibrated"] if run.calibration.recalibrated else []
    left = [attributes.text(f"{name}_statement") for name in ("computational", "sampling")]
    stopped = [computed(attributes.text("status"), int(run.trace["iteration"][-1])), *left]
    return fill(
        "page",
        scripts=("player.js", "times.js") if every_time is not None else (),
        title=listed(run.variable.heading, when_all(run.times)) + at_depth(run),
        lede=_lede(run),
        others=_other_pages(run),
        figures=_captioned(run, figures),
        tiles=_tiles(run),
        pills=_pills(run),
        noun=run.variable.noun,
        stopped=" ".join(filter(None, stopped)),
        believed=_believed(run),
        note=" ".join(filter(None, [NOT_EXACTLY_CALIBRATED.get(run.solver_calibration, ""), *_values(run)])),
        several=_several(run) if several else None,
        every_time=every_time,
        pooled=f"Scores at {count}" + (f" and {len(run.times)} times, pooled" if several else ""),
        score_names=["this run", *before, "prior alone"],
        scores=tables.score_rows(run),
        coverage=tables.coverage_rows(run),
        ks_note=CORRELATED_TEST_POINTS,
        weighting=_weighting(run),
        strata=_strata(run),
        regions=_captioned_rows(*tables.region_rows(run)),
        places=_captioned_rows(*tables.place_rows(run)),
        simulated=None if run.simulation is None else _simulated(run.simulation),
        fit=_fit(run),
        stages=_stages(run),
        plan="\n".join(attributes.lines("plan")) or "not recorded",
        job=attributes.text("job") or "not recorded",
        record=tables.record_rows(run),
        footer=f"Run {run.key}. The figures are also PNG files beside this page. Globes are drawn in the "
        "Equal Earth projection, regions in plate carree. Coastlines: Natural Earth "
        "(simplified, for orientation only), public domain.",
    )


def _other_pages(run: PublishedRun) -> tuple[str, list[tuple[str, str]]] | None:
    """Give the names of other variables or depths of the run, and where their pages are from this one."""
    what, names, own = "variables", run.variables, run.variable.name
    if len(run.depths) > 1:
        what, names, own = "depths", run.depths, run.depths[run.depth]
    back = "" if names[:1] == (own,) else "../"
    folders = [f"{page_of(name)}/" if at else "" for at, name in enumerate(names)]
    pages = zip(names, folders, strict=True)
    found = [(name, f"{back}{folder}report.html") for name, folder in pages if name != own]
    return (what, found) if found else None


def _captioned(run: PublishedRun, figures: Mapping[str, Markup]) -> dict[str, Figure]:
    """Drawing and caption of every figure, by its name."""
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
        drawn = "The job requested no map: the dots are the test points, and nothing is interpolated."
    noun = run.variable.noun
    corrected = " and is recalibrated" if run.calibration.recalibrated else ""
    if run.both_recalibrated:
        corrected = "; both are recalibrated"
    uncertain = (
        f"Uncertainty of the {noun} itself, mathematical and computational together. That of a "
        f"single observation, {run.variable.name}_predictive_std in the run, also includes its noise"
        f"{corrected}."
    )
    if run.grid and run.grid.of_cells:
        uncertain = (
            f"Uncertainty of the mean {noun} of each cell, mathematical and computational together. That of "
            "the field at a point is larger, because variation within a cell averages out."
        )
    captions = {
        "mean": drawn,
        "std": uncertain,
        "computational": "The largest part of the error bars that more iterations would remove. Variances "
        "add: a part of 0.3 in an error bar of 1 is 9 % of the variance; without it the error bar is 0.95.",
        "scale": "How recalibration changed the error bar of an observation, from errors of predictions that "
        "did not use it: at 2 it is twice as wide, at 1/2 half as wide.",
        "reliability": "All held-out observations. If the error bars are right, 95 of 100 values are inside "
        "the band. It allows for correlated errors of neighbours, but not for an error common to all.",
        "strata": "If the error bars of a group are right, its value is inside its band 95 times in 100: one "
        "group in twenty is outside by chance. Coast is within 50 km of a coastline.",
        "residual": _of_errors(run),
        "pit": _shape(run),
        "convergence": "Lower is better. An arrow marks a prior that is beyond the scale.",
        "simulation": "One value for each field: where the truth lies in its predictive distribution, along "
        "one random direction. Fields are independent of each other: by chance 95 of 100 counts lie in the "
        "band.",
        "biases": "What observations of a group have too much, such as those of a ship. The group biases of "
        "the run has all of them.",
        "regions": "Bands are one error bar to each side.",
        "times": "The dashed line is the coverage of correct error bars.",
    }
    return {name: Figure(svg, captions[name]) for name, svg in figures.items()}


def _of_errors(run: PublishedRun) -> str:
    """Say what the map of errors should look like; their average, where none is chosen by its value."""
    common = "a region of one colour has errors in common."
    if run.limits_held_out:
        return (
            "Of measured values alone, which lie higher than all: their errors tend to be positive where the "
            f"map is right, too. Otherwise colours should look scattered: {common}"
        )
    bias = float(np.nanmean(run.points.observed - run.points.mean))
    over = " over all times" if len(run.times) > 1 else ""
    average = f"Mean error (observed minus predicted): {signed_amount(bias, run.variable.units, 2)}{over}."
    return f"{average} Red and blue should look scattered: {common}"


def _shape(run: PublishedRun) -> str:
    """Describe the PIT histogram, and the one by area if it says something else."""
    scored = run.calibration
    words = run.variable.comparatives
    plain = by_area = reading(histogram(scored.pit), words, design_effect=scored.design_effect())
    if not scored.by_area_is_the_same:
        weighted = histogram(scored.pit, weights=scored.area_weight)
        by_area = reading(weighted, words, design_effect=scored.design_effect(AREA_WEIGHTED))
    return plain if by_area == plain else f"{plain} Weighted by area: {by_area}"


def _pills(run: PublishedRun) -> list[tuple[str, str, str]]:
    """Colour, word and sentence on the solve and on the error bars; no green beside a fault."""
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
    return pills


def _lede(run: PublishedRun) -> str:
    """Say in a line what was observed, and how it was solved and checked."""
    observed = run.attributes.count("train_count")
    count = "Observations" if observed is None else f"{observed:,} observations"
    each = " at each time" if len(run.times) > 1 else ""
    if observed is not None and _has_gaps(run):
        count, each = f"{observed:,} observed places", ", not all of them at each time"
    status, bars = run.attributes.text("status"), "error bars include unfinished computation"
    if status in LEAVES_NOTHING:
        bars = "solved exactly"
    elif status == Status.NEIGHBOURS.value:
        bars = "each place is predicted from those near it"
    return f"{count}{each}; {bars}; checked at {run.points.latitude_degrees.size:,} held-out points."


def _tiles(run: PublishedRun) -> list[tuple[str, str]]:
    """Give the four numbers a reader wants first."""
    level, inside, by_area = tables.headline_coverage(run)
    units = run.variable.units
    alike = run.calibration.by_area_is_the_same
    weighted = "" if alike else f" ({percent(by_area)} by area)"
    prior = amount(run.trace["rmse"][0], units, 2)
    spread, where = (run.grid.std, "on the map") if run.grid else (run.points.std, "at the test points")
    tiles = [
        (
            amount(float(run.calibration.measures["rmse"]), units, 2),
            f"typical error (RMSE) at held-out points; {prior} for the prior alone",
        ),
        (
            percent(inside),
            f"of the held-out observations lie inside their {100.0 * level:g} % error bars{weighted}",
        ),
        (
            f"{'±' if run.normal else ''}{amount(float(np.median(spread)), units, 2)}",
            f"median error bar {where} (one standard deviation)"
            if run.normal
            else f"median standard deviation {where}, of distributions that are not normal",
        ),
    ]
    seconds = tables.seconds_by_stage(run)
    if seconds:
        tiles.append((duration(sum(seconds.values())), "of computing, over all stages of the run"))
    return tiles


def _values(run: PublishedRun) -> list[str]:
    """Say what was done with the values, and what would help them."""
    text, found = run.attributes.text, []
    if run.transformed:
        found.append(
            f"Values y are mapped as {text('transform')}, and taken back: intervals are those between "
            "published quantiles, not the mean and a multiple of the standard deviation."
        )
    if limits := run.attributes.count(BELOW_LIMITS):
        are = (
            "is a limit of detection, below which the value is"
            if limits == 1
            else "are limits of detection, below which values are"
        )
        found.append(f"{counted(limits, 'observed value')} {are} drawn.")
    if run.limits_held_out:
        found.append(
            "Some held-out values are limits of detection. Coverage and PIT count them; RMSE, CRPS and NLL "
            "are those of measured values alone, which lie higher than all."
        )
    return found + [text(name) for name in ("flagged_statement", "suspicious_values", "values_advice")]


def _believed(run: PublishedRun) -> str:
    """Say what the error bars assume and how far it holds, for readers who are not statisticians."""
    attributes = run.attributes
    level, inside, by_area = tables.headline_coverage(run)
    noise = attributes.number("noise_variance")
    noisy = ""
    if noise and not run.transformed:
        noisy = f" (the noise of an observation, {amount(np.sqrt(noise), run.variable.units, 2)}, included"
        if run.calibration.recalibrated:
            noisy += ", and corrected by errors of predictions that did not use the observation"
        noisy += ")"
    weighted = "" if run.calibration.by_area_is_the_same else f", {100.0 * by_area:.0f} weighted by area"
    prior = attributes.table("prior")
    mean = (
        f"The mean is the background {prior['background']}, taken as known. {_innovations(run)}".rstrip()
        if prior.get("background")
        else "The coefficients of the mean are estimated with the field, and the error bars include their "
        "uncertainty."
        if prior.get("mean_estimate") == "generalised"
        else "The mean is estimated from the observations and then taken as known."
    )
    return (
        f"They assume that the prior is right, its mean included. {mean} How far this holds is measured: "
        f"{100.0 * inside:.0f} of 100 withheld values fell inside their {100.0 * level:g} % range"
        f"{noisy}{weighted}, where {100.0 * level:g} are expected. "
        f"For all levels together, see the histogram below: {_shape(run)}"
    )


def _innovations(run: PublishedRun) -> str:
    """Say what observations tell of the background and its error."""
    found, units = run.attributes.table("innovations"), run.variable.units
    mean, std, noise = (
        found.get(name) for name in ("innovation_mean", "innovation_std_ratio", "innovation_ratio")
    )
    if not isinstance(mean, float):
        return ""
    said = f"Observations lie {signed_amount(mean, units, 2)} from it on average"
    if not isinstance(std, float) or not isinstance(noise, float):
        return f"{said}; {found.get('innovation_comment', '')}."
    return (
        f"{said}, with {std:.2f} times the stated standard deviation; the map's residuals give {noise:.2f} "
        "times the stated noise variance (Desroziers' ratio). Both are 1 where the numbers are right."
    )


def _strata(run: PublishedRun) -> dict[str, object] | None:
    """Where the error bars hold; nothing if the run does not say."""
    found = run.calibration.by_stratum
    if found is None:
        return None
    compared = len(found.distributions) > 1
    before = " Before and after recalibration." if compared else ""
    weighted = "" if run.calibration.by_area_is_the_same else f" {_BY_AREA}"
    return {
        "statement": by_stratum.statement(found, run.variable.noun),
        "compared": compared,
        "inside": f"inside {100.0 * found.level:g} % error bars",
        "rows": by_stratum.rows_of(found, run.variable.units),
        "note": "Chance is one standard error in percentage points, which allows for correlated errors of "
        f"neighbours.{before} Width: mean length of the error bars from end to end; shorter is better "
        "if coverage is right. CRPS: error and error bar in one number; smaller is better. PIT: "
        "high at both ends if error bars are too narrow, in the middle if they are too wide."
        f"{weighted}{by_stratum.left_out(found, run)}",
    }


def _weighting(run: PublishedRun) -> str:
    folds, blocks = (run.attributes.text(name) for name in ("cross_validation", "held_out_blocks"))
    if not run.calibration.by_area_is_the_same:
        said = _BY_AREA
    else:
        said = f"{_ALL_PLACES} {folds}" if folds else _ALIKE
    return f"{said} {blocks}" if blocks else said


def _several(run: PublishedRun) -> dict[str, object]:
    """Which time the maps show, how times were solved, and the scores time by time."""
    patterns = run.attributes.count("patterns_of_gaps")
    apart = "separately" if patterns is None else f"separately, in {patterns:,} solves"
    rows, which = tables.time_rows(tables.by_time(run))
    return {
        "shown": f"The maps show the first of {len(run.times)} times, {when(run.times[0], run.times)}.",
        "pooled": f"Not every place was observed at every time, and times with different gaps were solved "
        f"{apart}; scores and PIT pool all of them."
        if _has_gaps(run)
        else "All times were observed at the same places and solved together; scores and PIT pool all times.",
        "caption": which,
        "inside": f"inside {by_stratum.HEADLINE:.0%}",
        "rows": rows,
    }


def _has_gaps(run: PublishedRun) -> bool:
    """Whether places were observed at some of the times alone."""
    values = run.calibration.values
    scored = run.points.observed if values is None else values["pit"]  # of limits of detection, too
    return run.attributes.count("patterns_of_gaps") is not None or bool(np.isnan(scored).any())


def _captioned_rows(rows: list[tables.Row], caption: str) -> dict[str, object] | None:
    """Give a table with its caption; nothing if it has no rows."""
    return {"rows": rows, "caption": caption} if rows else None


def _simulated(found: Simulation) -> dict[str, object]:
    """Tell what the error bars did on fields of the prior."""
    colour = {"consistent": "good", "undecided": ""}.get(found.status, "bad")
    at = "" if found.observed is None else f" at {found.observed:,} points"
    return {
        "pill": (colour, SIMULATION_WORDS.get(found.status, found.status), found.statement),
        "said": f"{found.pit.size:,} fields were drawn from the prior, observed as here{at} and solved with "
        "the same settings. The prior is right for these fields, so only the solver can be at fault. The "
        "sections above show whether it is right for the real field. Errors are those of the field itself, "
        f"at {found.error_ratio.size:,} points.",
        "rows": tables.simulation_rows(found),
    }


def _stages(run: PublishedRun) -> list[tuple[str, str, str]]:
    """Stage, length of its bar and duration."""
    seconds = tables.seconds_by_stage(run)
    longest = max(seconds.values(), default=0.0) or 1.0
    return [(stage, f"{value / longest:.1%}", duration(value)) for stage, value in seconds.items()]


def _fit(run: PublishedRun) -> dict[str, object] | None:
    """Fitted numbers with their standard errors; nothing if the job stated them."""
    rows = tables.prior_rows(run)
    if not rows:
        return None
    where = run.attributes.table("fit").get("where")
    return {"rows": rows, "caption": f"Prior, fitted to {where}", "note": tables.fit_note(run)}
