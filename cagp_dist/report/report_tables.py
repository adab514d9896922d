"""Numbers of the report as rows of text: scores, coverage, scores by time, provenance."""

import re
from dataclasses import dataclass

import numpy as np

from cagp_dist.arrays import Array, Mask, Times
from cagp_dist.calibration.verification.pit import AREA_WEIGHTED
from cagp_dist.calibration.verification.scores import scores
from cagp_dist.report.by_stratum import HEADLINE
from cagp_dist.report.published import PublishedRun, Simulation
from cagp_dist.report.wording import SCORES, listed, percent, signed, when
from cagp_dist.store.published_variables import BELOW_LIMITS, PLAIN
from cagp_dist.text import digits_text
from cagp_dist.variables.units import amount, decimals, squared, symbol

Row = tuple[str, ...]

_VERSION = re.compile(r"\d+(\.\w+)+")

_UNITS = {
    "lengthscale": "",  # as its space says it
    "time_lengthscale_hours": "in time",
    "depth_lengthscale": "in depth",
    "variance": "{squared}of the field about its mean",
    "noise_variance": "{squared}of one observation; in a reanalysis mostly variation between the points",
}
_OF_THE_PRIOR = ("rmse", "crps", "nll")

_STAGES = ("Observations", "Points", "Fit", "Fits of folds", "Solve", "Errors", "Scores", "Results")
_METHODS = {
    "rings": "Maximum of the exact likelihood of the grid",
    "dense": "Maximum of the exact likelihood",
    "vecchia": "Maximum of Vecchia's likelihood, by conditionals on neighbours",
    # of earlier runs
    "blocks": "Maximum of the likelihood with blocks of neighbours counted as independent",
    "pathwise": "Maximum of the likelihood, its gradient estimated from samples",
}

# What stands instead of the scores of a time at which no test point has a value
UNSCORED = "nothing to score"
UNMEASURED = "all below limits"  # instead of errors, where every value is a limit of detection
MOST_PLACES = 20  # Rows of the table of places
MOST_TIMES = 8  # Rows of the table by time; the chart beside it shows all of them


@dataclass(frozen=True, eq=False)
class ByTime:
    """Scores of each time, pooled over its test points; ``coverage`` is that of ``level``."""

    times: Times
    rmse: Array
    nll: Array
    crps: Array
    coverage: Array
    level: float
    units: str = "K"


def score_rows(run: PublishedRun) -> list[Row]:
    """Name, value of this run, before recalibration, of the prior, and meaning; by area if that differs."""
    rows: list[Row] = []
    units, scored = run.variable.units, run.calibration
    for name, title, form, meaning in SCORES:
        for suffix, by in scored.weightings.items():
            key = f"{name}{suffix}"
            value, before = scored.measures[key], scored.measures.get(f"{key}{PLAIN}")
            shown = "< 1e-6" if name == "ks_pvalue" and value < 1e-6 else _score(value, form, units)
            plain = ["" if before is None else _score(before, form, units)] if scored.recalibrated else []
            prior = _score(run.trace[key][0], form, units) if name in _OF_THE_PRIOR else ""
            rows.append((f"{title}{by}", shown, *plain, prior, "" if by else meaning))
    return [*rows, *_interval_rows(run)]


def _interval_rows(run: PublishedRun) -> list[Row]:
    """Width and interval score of the headline error bars, as `score_rows`; none in runs of before."""
    found = run.calibration.by_stratum
    if found is None:
        return []
    by_area = "" if run.calibration.by_area_is_the_same else ", by area"
    units, level = run.variable.units, f"{100.0 * found.level:g} %"
    factor = f"{2.0 / (1.0 - found.level):.3g}"

    def of_all(measure: str) -> list[str]:
        """Write it of all observations, for each distribution."""
        values = [found.measures[f"stratum_{measure}{each}"][0] for each in found.distributions]
        return [amount(float(value), units) for value in values]

    outside = f"width plus {factor} times the distance of observations outside; smaller is better"
    across = f"of the {level} error bars from end to end"
    return [
        (f"Width, {level}{by_area}", *of_all("mean_width"), "", across),
        (f"Interval score, {level}{by_area}", *of_all("interval_score"), "", outside),
    ]


def _score(value: float | Array, form: str, units: str) -> str:
    """Write a score in its form; one without has the unit of the variable."""
    return form.format(float(value)) if form else amount(float(value), units)


def coverage_rows(run: PublishedRun) -> list[Row]:
    """Level, share of the observations inside, difference, standard error; then the same by area."""
    scored = run.calibration
    return [
        (
            f"{100.0 * level:g} %{by}",
            percent(share),
            signed(100.0 * (share - level), 1),
            f"±{100.0 * error:.1f}",
        )
        for suffix, by in scored.weightings.items()
        for level, share, error in zip(
            scored.levels,
            scored.measures[f"coverage{suffix}"],
            scored.measures[f"coverage_standard_error{suffix}"],
            strict=True,
        )
    ]


def simulation_rows(found: Simulation) -> list[Row]:
    """Name what was measured on simulated fields, its value, that of right error bars, and a p-value."""
    numbers, fields, points = found.numbers, found.pit.size, found.error_ratio.size
    chance = 1.0 / np.sqrt(2.0 * fields)
    low, high = np.quantile(found.error_ratio, [0.05, 0.95])

    def row(said: str, name: str, form: str, right: str, tested: str) -> Row:
        """Write a number by its name, and the p-value of a test."""
        pvalue = numbers[f"{tested}_pvalue"] if tested else 1.0
        p = "" if not tested else "< 1e-6" if pvalue < 1e-6 else f"{pvalue:.2g}"
        return said, format(numbers[name], form) if name else "", right, p

    joint = f"1 ± {1.0 / np.sqrt(2.0 * fields * points):.4f}"
    by_area = f"1 ± {numbers['error_ratio_by_area_standard_error']:.3f}"
    return [
        row("Error over error bar, points together", "error_ratio_joint", ".4f", joint, "joint"),
        row("the same along a random direction", "error_ratio_along", ".3f", f"1 ± {chance:.3f}", "variance"),
        row("the same point by point, by area", "error_ratio_by_area", ".3f", by_area, ""),
        ("the same at nine of ten points", f"{low:.2f} to {high:.2f}", f"1 ± {chance:.3f} each", ""),
        row("Distance of the PIT from uniform", "ks_statistic", ".4f", "", "ks"),
        row("Counts of the histogram", "", "", "", "rank"),
        row("Mean error along the direction", "", "", "0", "mean"),
    ]


def headline_coverage(run: PublishedRun) -> tuple[float, float, float]:
    """Level nearest to 90 % and the share of the observations inside its error bars: plain and by area."""
    scored = run.calibration
    nearest = int(np.argmin(np.abs(scored.levels - HEADLINE)))
    shares = [scored.measures[f"coverage{suffix}"][nearest] for suffix in ("", AREA_WEIGHTED)]
    return float(scored.levels[nearest]), float(shares[0]), float(shares[1])


def by_time(run: PublishedRun) -> ByTime:
    """Score every time by itself, noise included (math 10.3); NaN where no test point has a value.

    Limits of detection have no errors, but a PIT: where there are no others, coverage alone is known.
    """
    found = np.full((4, len(run.times)), np.nan)
    for index, observed in enumerate(run.points.observed):
        there = ~np.isnan(observed)
        if there.any() or _pit_of_time(run, index).size:
            found[:, index] = _of_time(run, index, there)
    rmse, nll, crps, coverage = found
    return ByTime(run.times, rmse, nll, crps, coverage, level=HEADLINE, units=run.variable.units)


def _of_time(run: PublishedRun, index: int, there: Mask) -> tuple[float, float, float, float]:
    """RMSE, NLL, CRPS and coverage of one time, of its observations."""
    points, values = run.points, run.calibration.values
    mean, observed = points.mean[index, there], points.observed[index, there]
    if values is None:  # a run of before, whose distributions are Gaussian
        row = scores(mean, points.predictive_std[index, there], observed, levels=[HEADLINE])
        return row.rmse, row.nll, row.crps, float(row.coverage[0])
    inside = np.abs(_pit_of_time(run, index) - 0.5) <= 0.5 * HEADLINE  # limits of detection count, too
    if not there.any():
        return np.nan, np.nan, np.nan, float(inside.mean())
    nll, crps = (float(each[index, there].mean()) for each in (values["nll"], values["crps"]))
    return float(np.sqrt(((mean - observed) ** 2).mean())), nll, crps, float(inside.mean())


def _pit_of_time(run: PublishedRun, index: int) -> Array:
    """Give the PIT of what was observed at one time; of runs of before none, as they have no limits."""
    values = run.calibration.values
    pit = np.empty(0) if values is None else values["pit"][index]
    return pit[~np.isnan(pit)]


def time_rows(scored: ByTime) -> tuple[list[Row], str]:
    """Rows of time, RMSE, NLL, CRPS and coverage, and which times they are."""
    count = len(scored.times)
    if count <= MOST_TIMES:
        chosen, which = np.argsort(scored.times), f"All {count} times"
    else:
        chosen = np.sort(np.argsort(-scored.rmse)[:MOST_TIMES])
        which = f"The {MOST_TIMES} of {count} times with the largest errors"
    return [_time_row(scored, index) for index in chosen], which


def _time_row(scored: ByTime, index: int) -> Row:
    """Write the scores of one time, as far as there are any."""
    stamp, inside = when(scored.times[index], scored.times), float(scored.coverage[index])
    if not np.isfinite(inside):
        return stamp, UNSCORED, "", "", ""
    if not np.isfinite(scored.rmse[index]):
        return stamp, UNMEASURED, "", "", percent(inside)
    return (
        stamp,
        amount(scored.rmse[index], scored.units),
        f"{scored.nll[index]:.3f}",
        amount(scored.crps[index], scored.units),
        percent(inside),
    )


def place_rows(run: PublishedRun) -> tuple[list[Row], str]:
    """Rows of name, latitude, longitude, mean and standard deviation at places of a table, and which."""
    places, units = run.places, run.variable.units
    if places is None:
        return [], ""
    count, unit = places.mean.size, f" {symbol(units)}".rstrip()
    rows: list[Row] = []
    for index in range(min(count, MOST_PLACES)):
        name = places.names[index] if places.names is not None else ""
        latitude, longitude = places.latitude_degrees[index], places.longitude_degrees[index]
        where = f"{latitude:.10g}", f"{longitude:.10g}"
        if run.space.has_latitudes:
            where = f"{latitude:.2f}", f"{(longitude + 180.0) % 360.0 - 180.0:.2f}"
        digits = decimals(std := float(places.std[index]))
        spread = f"{'±' if run.normal else ''}{std:.{digits}f}{unit}"
        rows.append((name, *where, f"{places.mean[index]:.{digits}f}{unit}", spread))
    which = f"The first {MOST_PLACES} of {count:,} places" if count > MOST_PLACES else "Places of the table"
    return rows, f"{listed(which, when(run.times[0], run.times))}; all are in group targets of the run"


def region_rows(run: PublishedRun) -> tuple[list[Row], str]:
    """Rows of name, definition, mean, standard deviation and its unfinished part, at the first time."""
    regions, unit = run.regions, f" {symbol(run.variable.units)}".rstrip()
    if regions is None:
        return [], ""
    rows: list[Row] = []
    for index, name in enumerate(regions.names):
        std, part = float(regions.std[0, index]), ""
        digits = decimals(std)
        if regions.computational_std is not None:
            unfinished = float(regions.computational_std[0, index])
            part = f"{unfinished:.{decimals(unfinished)}f}{unit}" if unfinished > 0.0 else "none"
        mean = f"{regions.mean[0, index]:.{digits}f}{unit}"
        rows.append((name, regions.definitions[index], mean, f"±{std:.{digits}f}{unit}", part))
    which = listed("Area-weighted means over regions", when(run.times[0], run.times))
    which += "; all are in group regions of the run"
    return rows, which


def seconds_by_stage(run: PublishedRun) -> dict[str, float]:
    """Seconds of each stage, in the order in which they ran."""
    timings = run.attributes.table("timings").items()
    seconds = {stage: float(value) for stage, value in timings if isinstance(value, (int, float))}
    known = {stage: seconds[stage] for stage in _STAGES if stage in seconds}
    return known | seconds


def prior_rows(run: PublishedRun) -> list[Row]:
    """Name, estimate, standard error and meaning of the numbers that were fitted; empty if none were."""
    errors = run.attributes.table("fit").get("standard_errors")
    if not isinstance(errors, dict):
        return []
    numbers = run.attributes.table("prior")
    square = "" if run.transformed else squared(run.variable.units)
    rows: list[Row] = []
    for name, unit in _UNITS.items():
        values, spread = _each(numbers.get(name)), _each(errors.get(name))
        for part, (value, error) in enumerate(zip(values, spread, strict=False), start=1):
            known = f"±{digits_text(error, 2)}" if isinstance(error, (int, float)) else "unknown"
            if isinstance(value, (int, float)):
                said = unit.format(squared=f"{square}, " if square else "")
                if name == "noise_variance" and run.attributes.table("known_noise_std"):
                    said = f"{square}, beside the noise that is known".removeprefix(", ")
                if name == "lengthscale":
                    said = run.space.lengthscale_text(value)
                called = _spoken(name) if len(values) == 1 else f"{_spoken(name)}, part {part}"
                rows.append((called, digits_text(value, 4), known, said))
    return rows


def _each(numbers: object) -> list[object]:
    """One number, or those of the parts of a sum."""
    return numbers if isinstance(numbers, list) else [numbers]


def fit_note(run: PublishedRun) -> str:
    """Say how the prior was fitted and how the fit ended."""
    fit = run.attributes.table("fit")
    likelihood = fit.get("log_likelihood")
    height = ""
    if isinstance(likelihood, (int, float)):
        height = ", log-likelihood " + f"{likelihood:,.1f}".replace("-", "\N{MINUS SIGN}")
    method = _METHODS.get(str(fit.get("method")), str(fit.get("method")))
    if isinstance(likelihood_said := fit.get("likelihood"), str):
        method = f"Maximum of the likelihood ({likelihood_said})"
    chosen = ""
    if isinstance(choice := fit.get("kernel_choice"), str):
        chosen = f" {choice}.".replace("-", "\N{MINUS SIGN}")
    times, worth = fit.get("times"), fit.get("effective_times")
    fields = ""
    if isinstance(times, int) and times > 1 and isinstance(worth, (int, float)):
        fields = f", {times:,} times treated as independent fields (information of about {worth:.3g})"
    status = f"{str(fit.get('status')).capitalize()}: {fit.get('status_advice')}"
    ended = f"{method}{height}{fields}.{chosen} {status}"
    numbers = fit.get("hyperparameters")
    return f"{ended} In the error bars the parameters are {numbers}." if isinstance(numbers, str) else ended


def record_rows(run: PublishedRun) -> list[Row]:
    """List what was run on what: solver, prior, counts, executor and provenance, as name and text."""
    attributes, origin = run.attributes, run.attributes.table("provenance")
    counts = {
        "Observations": attributes.count("train_count"),
        "Values of all times": attributes.count("train_values"),
        "Limits of detection": attributes.count(BELOW_LIMITS),
        "Patterns of gaps": attributes.count("patterns_of_gaps"),
        "Missing values dropped": attributes.count("dropped_missing"),
        "Copies of a pole merged": attributes.count("merged_pole_copies"),
    }
    versions = {name: value for name, value in origin.items() if _VERSION.fullmatch(str(value))}
    numbers = dict(attributes.table("prior"))
    if numbers.pop("mean_estimate", None) == "generalised":  # as the group has it
        numbers["coefficients of the mean"] = "estimated with the field, by generalised least squares"
    prior = {
        _spoken(name): " + ".join(map(_joined, value)) if isinstance(value, list) else value
        for name, value in numbers.items()
    }
    rest = {_spoken(name).capitalize(): value for name, value in origin.items() if name not in versions}
    rows = [
        ("Run", run.key),
        ("Published", attributes.text("date_created")),
        ("Solver", attributes.text("solver")),
        ("Executor", attributes.text("executor")),
        ("Prior", _joined(prior)),
        ("Transform", attributes.text("transform")),
        ("Transforms compared", attributes.text("transform_log_likelihoods")),
        ("Outliers", attributes.text("outliers")),
        ("Share and width of outliers", _outliers(run)),
        ("Flagged", attributes.text("flagged_statement")),
        ("Innovations", _joined({_spoken(name): of for name, of in attributes.table("innovations").items()})),
        *((name, f"{count:,}") for name, count in counts.items() if count is not None),
        ("Test points", f"{run.points.latitude_degrees.size:,}"),
        *((name, _joined(value)) for name, value in rest.items()),
        ("Versions", _joined(versions)),
    ]
    return [row for row in rows if row[1]]


def _outliers(run: PublishedRun) -> str:
    """Say how many observations count less, and by what noise."""
    share, std = (run.attributes.number(f"outlier_{name}") for name in ("share", "std"))
    if not share or not std:
        return ""
    return f"{share:.2%} of the observations, with errors of {std:.4g}"


def _spoken(name: str) -> str:
    """``noise_variance`` as people read it."""
    return name.replace("_", " ")


def _joined(value: object) -> str:
    """Write mappings and lists as one line of text."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_joined(entry)}" for name, entry in value.items() if entry is not None)
    if isinstance(value, list):
        return ", ".join(_joined(entry) for entry in value)
    return f"{value:g}" if isinstance(value, float) else "" if value is None else str(value)
