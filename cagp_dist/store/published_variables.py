"""The table of published variables: what each group of a run holds, in which unit, and what it means.

A measure of held-out verification is there once for each weighting (``_area_weighted``: each test point with
the area that it stands for), distribution (``_plain``: the Gaussian one, where the published one was
recalibrated) and grouping (all observations, each iteration, and ``stratum_``: each stratum, weighted by
area). Attributes follow CF-1.13.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import inf
from typing import Any, TypeAlias

from cagp_dist.calibration.verification.pit import AREA_WEIGHTED, CORRELATED_TEST_POINTS
from cagp_dist.variables import T2M, UNCHECKED, Variable

CONVENTIONS = "CF-1.13"  # of attributes, of maps of calls too

GROUPS: Mapping[str, str] = {
    "posterior": "point",
    "map": "latitude longitude",
    "map_std": "latitude longitude",
    "targets": "point",
    "regions": "region",
    "biases": "group",
    "calibration": "",
    "trace": "",
    "observations": "point",
    "flags": "",
    "errors": "",
    "error_draws": "",
    "state": "",
    "simulation": "",
}
"""The groups of a run, and the dimensions of a place in those whose arrays carry the name of the variable."""

VARIABLES_OF_RUN = "variables"  # attribute of the root: names of several variables, as JSON
BIASES = "biases"
SCORED = "calibration", "trace"
"""Groups that a run of several variables has once for each: with the name of all but the first at the end.

So has it ``biases``, the errors that observations share.
"""


def of_another(group: str, variable: str) -> str:
    """Name a group of scores of a variable that is not the first of its run."""
    return f"{group}_{variable}"


def variables_of_run(attributes: Mapping[str, Any]) -> list[str]:
    """Read the names of the variables of a run, from attributes of its root; none where it has one."""
    return list(map(str, json.loads(attributes.get(VARIABLES_OF_RUN, "[]"))))


def scored_groups(variables: Sequence[str], group: str = SCORED[0]) -> dict[str, str]:
    """Name the groups of held-out verification by the variables of a run; by "" where it has one."""
    return {name: of_another(group, name) if at else group for at, name in enumerate(variables or ("",))}


def kind_of(group: str) -> str:
    """Give the group of the table that a group of a run is one of."""
    first = group.partition("_")[0]
    return first if group not in GROUPS and first in (*SCORED, BIASES) else group


_TABLE = """
{v}_mean: posterior map map_std targets regions (time @) field mean
    posterior mean of {said}
{v}_std: posterior map? map_std targets regions (time @) field std
    posterior standard deviation of {said}, latent, without noise | Latent: the uncertainty of the noise-free
    {noun}, mathematical and computational together. WITHOUT noise. The standard deviation of a new
    observation is sqrt({v}_std**2 + noise_variance), published as {v}_predictive_std, with noise_variance
    among the attributes of the root group.
{v}_predictive_std: posterior map? map_std targets (time @) field noisy
    predictive standard deviation of {said}, noise included | sqrt({v}_std**2 + noise_variance). For
    measurements, noise_variance is their error. For values of a reanalysis it is mostly {varying} over less
    than the distance of the points: this is then the uncertainty of a value of the reanalysis.
{v}: posterior observations (time @) field value
    observed {said}
{v}_median: posterior? map? targets? (time @) field mean
    median of {said} | Of the noise-free {noun}, whose distribution is not normal: half of it lies below.
{v}_probability_zero: posterior? map? targets? (time @) 1 share
    probability that {said} is zero | Or the least value there is: without the noise of an observation.
{v}_std_computational: posterior? map? map_std? targets? regions? (time @) field std
    part of the posterior standard deviation of {said} that is unfinished computation, at most | Square root
    of an upper bound of the computational part of {v}_std**2: what more iterations of the solver would take
    away, at most. The rest, {v}_std**2 - {v}_std_computational**2, is what the observations do not tell, at
    least. Zero where the solve was exact.
{v}_quantile: posterior? map? map_std? targets? (time quantile_level @) field quantile
    quantile of the published distribution of an observation of {said} | Noise included.
local_scale: posterior? map? map_std? targets? (time @) 1 >=0
    local scale of the errors | By which the predictive standard deviation of the prior is multiplied to give
    the scale of the published distribution, a Student t distribution: learnt from errors near by.
outlier_probability: observations? (time @) 1 share
    probability that the observation is wrong | By how much it counts less.
below_limit: posterior? observations? (time @) 1 share
    whether the observation is a limit of detection | 1 where it is known only that the value is no larger, 0
    elsewhere, also where nothing was observed. In coverage and PIT these count, in the other scores they do
    not.
flagged_value: flags (flagged) field any
    {said} that was observed, and that all others contradict | Neither used nor scored.
flagged_expected: flags (flagged) field any
    {said} that all others say
flagged_std: flags (flagged) field >=0
    standard deviation of an observation about flagged_expected
region_area: regions (region) km2 >=0
    area of the region
bias: biases (time @) field any
    error that the observations of one group share | How much they are too high.
bias_std: biases (time @) field >=0
    standard deviation of the error that the observations of one group share
pit: calibration (time point) 1 share p
    probability integral transform of the observation | Uniform on [0, 1] if calibrated. {predictive}
nll_of_value: calibration? (time point) 1 any p
    negative log predictive density of the observation | In nats. {predictive}
crps_of_value: calibration? (time point) field >=0 p
    continuous ranked probability score of the observation | {predictive}
area_weight: calibration simulation (point) 1 >=0
    area that a test point stands for, mean 1 | Its area over its probability of being chosen: equal for
    points that were drawn in proportion to area, the area itself where every point was equally likely.
pit_bin: calibration simulation (pit_edge) 1 share
    edges of the PIT histogram
pit_count: calibration simulation (pit_interval) 1 >=0 ws
    number of PIT values per interval between pit_bin edges
coverage: calibration trace (level) 1 share wps
    fraction of observations inside the central interval | {predictive}
coverage_standard_error: calibration (level) 1 share ws
    standard error of coverage | {chance}
mean_width: calibration? (level) field >=0 wps
    mean width of the central interval | {predictive}
interval_score: calibration? (level) field >=0 wps
    mean interval score of the central interval | Width plus 2 / (1 - level) times the distance of an
    observation outside; smaller is better. {predictive}
rmse: calibration trace () field >=0 w
    root mean square error against observations
nll: calibration trace () 1 any wps
    mean negative log predictive density in nats | {predictive}
crps: calibration trace () field >=0 wps
    mean continuous ranked probability score | {predictive}
ks_statistic: calibration trace () 1 share wp
    Kolmogorov-Smirnov distance of PIT values from uniform
ks_pvalue: calibration trace () 1 share wp
    Kolmogorov-Smirnov p-value of PIT values | {correlated}
stratum_observations: calibration? (stratum) 1 >=0
    number of observations
reliability: calibration? (reliability_level) 1 share P
    fraction of all observations inside the central interval | {by_area}
reliability_standard_error: calibration? (reliability_level) 1 share P
    standard error of reliability | {chance}
seconds: trace () s >=0
    wall time from the start of the solve to this iteration
standardised_error: errors (time point) 1 any
    error of a prediction of {said} over its standard deviation | Observation minus prediction, noise
    included in the standard deviation. The prediction did not use the observation.
error_draw: error_draws (time draw latitude longitude) field any
    draw of the error of the posterior mean of {said} | Field minus posterior mean, jointly over the map, as
    the posterior has it: latent, WITHOUT noise.
state_weight: state (time state latitude longitude) 1 any
    weights of the kernel in space that give {said} | The field about its mean by latitude at a place is the
    sum over the grid of the covariance with it times the first of them; of Matern 3/2 in time the second
    belongs to the rate of change. In one over the unit of the variable.
state_covariance: state (time state other_state wavenumber mode) 1 any
    posterior covariance of the state of a mode in units of its prior variance | Of each wavenumber, modes by
    ascending prior variance, even ones before odd ones where the grid is mirrored.
z: simulation (simulation) 1 any
    error of the posterior mean over its stated standard deviation, along one random direction | {latent}
    Standard normal if the solver is calibrated.
pit: simulation (simulation) 1 share
    probability integral transform of z | {latent}
error_ratio: simulation (point) 1 >=0
    root mean square of error over stated standard deviation | {latent} Above 1 where error bars are too
    narrow, below 1 where they are too wide.
coverage: simulation (level) 1 share
    fraction of true values inside the central interval | {latent}
coverage_area_weighted: simulation (level) 1 share
    fraction of true values inside the central interval, points weighted by area | {latent}
error_ratio_joint: simulation () 1 >=0
    root mean square of errors at all points, whitened by their stated covariance | {latent}
error_ratio_along: simulation () 1 >=0
    root mean square of z | {latent}
error_ratio_by_area: simulation () 1 >=0
    root mean square of error over stated standard deviation, points weighted by area | {latent}
error_ratio_by_area_standard_error: simulation () 1 >=0
    standard error of error_ratio_by_area | From the scatter between fields.
ks_statistic: simulation () 1 share
    Kolmogorov-Smirnov distance of PIT values from uniform
ks_pvalue: simulation () 1 share
    Kolmogorov-Smirnov p-value of PIT values | {independent}
variance_pvalue: simulation () 1 share
    chi-square p-value of the sum of squares of z | {independent}
mean_pvalue: simulation () 1 share
    p-value of the mean of z | {independent}
rank_pvalue: simulation () 1 share
    chi-square p-value of pit_count | {independent}
joint_pvalue: simulation () 1 share
    chi-square p-value of the whitened errors | {independent}
null_space_error: simulation () 1 >=0
    root mean square error, in prior standard deviations, where the stated covariance is zero | Zero but for
    rounding if the solver is calibrated.
"""
"""Name, groups (``?`` where runs may lack it), dimensions, unit, range, and the long name with a comment.

``@`` are the dimensions of a place in the group, ``field`` is the unit of the variable ``v``. Letters in
the end are twins: by weighting (``w``), distribution (``p``; ``P`` keeps its comment), stratum (``s``).
"""

_ROW = re.compile(r"(\S+): (.+) \((.*)\) (\S+) (\S+) ?(\w*)\n((?:    .+\n)+)")

_SENTENCES = {
    "predictive": "Against observations, of the published distribution, whose standard deviation is "
    "{v}_predictive_std.",
    "plain": "Of the Gaussian distribution of the prior, noise included, beside that of the published "
    "distribution.",
    "chance": "If the error bars are right. It allows for the correlation of errors of neighbouring points, "
    "not for one of all points.",
    "by_area": "Each test point counted with area_weight.",
    "correlated": CORRELATED_TEST_POINTS,
    "latent": "Of the field without noise, on fields drawn from the prior: the prior is right there, by "
    "construction.",
    "independent": "Fields are independent of each other: uniform on [0, 1] if the solver is calibrated.",
}

FORMAT_VERSION = 2  # raised when names, dimensions or meaning change: no old run is taken for new

Attributes: TypeAlias = dict[str, str | int | float | bool]

MISSING = "missing_observations"  # attribute of a group: how many there are not; left out if all are
ERROR_DRAWS = "error_draws"  # group of draws of the error of a map, of earlier versions
STATE = "state"  # group of what a run tells the next of a field that is Markov in time
JOB = "job"  # attribute of the root: the text of the job file
INNOVATIONS = "innovations"  # attribute of the root: what they say of a background, as JSON
PREVIOUS_RUN = "previous"  # attribute of the root: the run that this one has gone on from, as JSON
ERRORS_OF = "errors_of"  # attribute of draws: of what kind of job the errors are, as JSON
NODES_PER_CELL = "nodes_per_cell"  # attribute of a map of means over cells: nodes of quadrature
PLAIN = "_plain"  # suffix of what is said of the Gaussian distribution without recalibration

QUANTILE_LEVEL = "quantile_level"
TRANSFORM, TRANSFORM_OBJECT = "transform", "transform_object"  # attributes of transformed values
RECALIBRATED = "recalibrated"  # how names of standard deviations end that errors have corrected
BELOW_LIMIT, BELOW_LIMITS = "below_limit", "observations_below_limits"  # a variable; how many were observed
STATION_NAME = "station_name"  # coordinate of points whose names are known; empty where one has none

REGION, REGION_DEFINITION = "region", "region_definition"
SUGGESTION = "suggestion"
GROUP, BIAS_BY = "group", "bias_by"
STRATUM, STRATUM_KIND, STRATUM_DEFINITION = "stratum", "stratum_kind", "stratum_definition"
RELIABILITY_LEVEL = "reliability_level"

COORDINATES: Mapping[str, Attributes] = {
    "time": {"standard_name": "time", "long_name": "time", "axis": "T"},
    STATION_NAME: {"standard_name": "platform_name", "long_name": "name of the place"},
    REGION: {"long_name": "name of the region"},
    REGION_DEFINITION: {"long_name": "where the region is"},
    SUGGESTION: {"long_name": "what would make the value right"},
    GROUP: {"long_name": "name of the group of observations"},
    BIAS_BY: {"long_name": "column whose rows with the same name share an error"},
    "level": {"units": "1", "long_name": "level of the central prediction interval"},
    QUANTILE_LEVEL: {"units": "1", "long_name": "probability of a value no larger than the quantile"},
    "iteration": {"units": "1", "long_name": "solver iteration, 0 is the prior"},
    STRATUM: {
        "long_name": "part of the observations at test points",
        "comment": "The first are all of them. Parts with fewer than 50 are left out.",
    },
    STRATUM_KIND: {"long_name": "by what the observations are divided: all, latitude, surface or roughness"},
    STRATUM_DEFINITION: {"long_name": "what a part is"},
    RELIABILITY_LEVEL: {"units": "1", "long_name": "level of the central prediction interval"},
}


def about_depth(units: str) -> dict[str, str]:
    """Give CF attributes of depths, positive downward; units only where they are known."""
    return {"long_name": "depth", "positive": "down", "axis": "Z"} | ({"units": units} if units else {})


@dataclass(frozen=True)
class Published:
    """An array of a group: what it is, and between what its finite values are plausible."""

    dims: tuple[str, ...]
    units: str
    long_name: str
    comment: str
    range: tuple[float, float]
    optional: bool
    others: Attributes

    @property
    def attributes(self) -> Attributes:
        """CF attributes; a comment of the variable itself comes in the place of that of the table."""
        said = {"units": self.units, "long_name": self.long_name, "comment": self.comment}
        return {**{name: text for name, text in said.items() if text}, **self.others}


@cache
def table(variable: Variable) -> Mapping[str, Mapping[str, Published]]:
    """Give the arrays of each group of a run of a variable, by their names."""
    found: dict[str, dict[str, Published]] = {group: {} for group in GROUPS}
    noun, varying = "value", "what varies"
    if variable.is_temperature:
        noun, varying = "temperature", "temperature that varies"
    words = {"v": variable.name, "said": variable.long_name, "noun": noun, "varying": varying}
    words |= {name: text.format(**words) for name, text in _SENTENCES.items()}
    ranges, others = _ranges(variable), _others(variable)
    for name, groups, dims, units, plausible, twins, text in _ROW.findall(_TABLE):
        long_name, _, comment = " ".join(text.split()).partition(" | ")
        for group in groups.split():
            place = GROUPS[group.rstrip("?")]
            described = Published(
                ("iteration",) * (group == "trace") + tuple(dims.replace("@", place).split()),
                variable.units if units == "field" else units,
                long_name.format(**words),
                comment.format(**words),
                ranges[plausible],
                optional=group.endswith("?"),
                others=others.get(name, {}),
            )
            of_group = {"trace": twins[:1], "simulation": ""}.get(group, twins)
            found[group.rstrip("?")] |= _with_twins(name.format(**words), described, of_group, words)
    return found


def _with_twins(
    name: str, described: Published, twins: str, words: Mapping[str, str]
) -> dict[str, Published]:
    """Give a measure, and the same in the other weighting, of strata and of the other distribution."""
    found = {name: described}
    if "w" in twins:
        said = f"{described.long_name}, points weighted by area"
        comment = f"{words['by_area']} {described.comment}".strip()
        found[f"{name}{AREA_WEIGHTED}"] = replace(described, long_name=said, comment=comment)
    plain = dict(found) if "P" in twins else {}
    if "p" in twins:
        plain = {key: replace(each, comment=words["plain"]) for key, each in found.items()}
    if "s" in twins:
        is_error = name.endswith("standard_error")
        found[f"stratum_{name}"] = plain[f"stratum_{name}"] = replace(
            described,
            dims=("stratum", *described.dims),
            long_name="standard error of stratum_coverage" if is_error else described.long_name,
            comment=described.comment if is_error else words["by_area"],
            optional=True,
        )
    for key, each in plain.items():
        said = f"{each.long_name}, of the Gaussian distribution without recalibration"
        found[f"{key}{PLAIN}"] = replace(each, long_name=said, optional=True)
    return found


def _ranges(variable: Variable) -> dict[str, tuple[float, float]]:
    """Ranges of the table; a mean that stopped early may overshoot what can be observed."""
    low, high, width = variable.low, variable.high, variable.high - variable.low
    if not variable.checked or width == inf:
        low, high, width = -inf, inf, inf
    return {
        "any": (-inf, inf),
        ">=0": (0.0, inf),
        "share": (0.0, 1.0),
        "value": (low, high),
        "mean": (low - 0.25 * width, high + 0.25 * width),
        "std": (0.0, width),
        "noisy": (0.0, 50.0 * width),
        "quantile": (low - 50.0 * width, high + 50.0 * width),
    }


def _others(variable: Variable) -> dict[str, Attributes]:
    """Further attributes of the arrays of a field."""
    name, standard = variable.name, variable.standard_name
    unchecked: Attributes = {} if variable.checked else {"plausible_range": UNCHECKED}
    kept = {key: said for key, said in variable.attributes().items() if key in ("transform", "comment")}
    values = {**({"standard_name": standard} if standard else {}), "cell_methods": "time: point", **kept}
    error: Attributes = {"standard_name": f"{standard} standard_error"} if standard else {}
    return {
        "{v}_mean": {**values, "ancillary_variables": f"{name}_std {name}_predictive_std", **unchecked},
        "{v}_std": {**error, **unchecked},
        "{v}": {**values, **unchecked},
        "{v}_quantile": {**values, **unchecked},
        "{v}_median": {**values, **unchecked},
        "{v}_predictive_std": unchecked,
        "{v}_std_computational": unchecked,
    }


SCORES = tuple(
    name for name, each in table(T2M)["trace"].items() if each.dims == ("iteration",) and name != "seconds"
)
"""Measures that are one number, of the run as a whole and after each iteration."""
