"""Which errors correct the predictive distributions of a job: decided from its points, before any solve.

Errors must be of predictions that did not use the value that they are compared with. In this order: points
that the job kept, ``[design] calibration``; folds of a cross-validation, those of others for a place; leave
one out, where the solver is exact and that costs no more than the solve, but not beside test points in
blocks, which are further away; points that are drawn by area, in blocks of their own where the test has
blocks.
"""

from collections.abc import Callable

import numpy as np

from cagp_dist.calibration.recalibration.methods import RECALIBRATIONS, SHARP
from cagp_dist.errors import ArgumentError, ConfigurationError
from cagp_dist.pipeline import Observations, Solver
from cagp_dist.pipeline.defaults import MOST_DRAWN, OBSERVED_FOR_EACH
from cagp_dist.pipeline.left_out import has_left_out
from cagp_dist.pipeline.recalibration import NOT_ASKED, Errors, Recalibration
from cagp_dist.predictive import Gaussian
from cagp_dist.service.jobfile.job import RecalibrationTable
from cagp_dist.service.point_roles import Design
from cagp_dist.text import counted

FEWEST_ERRORS = 500  # Places with errors, below which a job that does not ask for a recalibration has none


def with_errors(
    table: RecalibrationTable,
    points: Observations,
    solver_at: Callable[[Design], Solver],
    *,
    design_of: Callable[[int], Design],
    distant: bool,
) -> tuple[Design, Recalibration]:
    """Decide which errors correct the distributions of a job; draw calibration points if that takes any.

    Not those that leave one value out where test points are ``distant``: further from observations than that.
    """
    design = design_of(0)
    if table.method == "none":
        return design, NOT_ASKED
    if design.calibration is not None:
        return design, _of_points(table, design.calibration.size)
    errors: Errors
    if design.folds is not None:
        errors, places, chosen = "folds", design.test.size, design
    elif not distant and has_left_out(points.only(design.train), 0.0, solver_at(design)):
        errors, places, chosen = "leave-one-out", design.train.size, design
    else:
        chosen = design_of(drawn_points(table, observed=design.train.size))
        errors, places = "points", 0 if chosen.calibration is None else chosen.calibration.size
    blocks = errors == "points" and chosen.calibration_blocks is not None
    found = Recalibration(table.method, errors, places, asked=table.asked, blocks=blocks)
    if found.asked:
        check_enough(found.method, places)
    if found.asked or places >= FEWEST_ERRORS:
        return chosen, found
    told = "could be kept as calibration points" if errors == "points" else "have errors"
    why_not = (
        f"The error bars are not recalibrated: {counted(places, 'place')} {told}, and {found.method} is "
        f"not used by default with fewer than {FEWEST_ERRORS}. [recalibration] method = "
        f'"{found.method}" uses it nevertheless.'
    )
    return design, Recalibration(asked=False, why_not=why_not)


def _of_points(table: RecalibrationTable, places: int) -> Recalibration:
    """Correct distributions by errors at points that the job keeps."""
    if table.method != SHARP:
        check_enough(table.method, places)
        return Recalibration(table.method, "points", places)
    try:
        table.check_points(places)
    except ValueError as error:
        raise ConfigurationError(f'[recalibration] method = "{SHARP}": {error}.', key="few-errors") from error
    return Recalibration(SHARP, "points", places, levels=table.sharp_levels, split=table.sharp_split)


def check_enough(method: str, places: int) -> None:
    """Raise `ConfigurationError` if a method cannot learn from so many places: before anything is solved."""
    if places >= FEWEST_ERRORS:
        return
    generator = np.random.default_rng(0)
    distribution = Gaussian(np.zeros(places), np.ones(places))
    try:
        RECALIBRATIONS[method]().fit(
            distribution, generator.standard_normal(places), generator.standard_normal((places, 3))
        )
    except ArgumentError as error:
        raise ConfigurationError(f'[recalibration] method = "{method}": {error}', key="few-errors") from error


def drawn_points(table: RecalibrationTable, *, observed: int) -> int:
    """How many calibration points are drawn at most, where the job does not say."""
    if table.method == "none":
        return 0
    spare = observed // OBSERVED_FOR_EACH
    return min(MOST_DRAWN, max(spare, FEWEST_ERRORS) if table.asked else spare)
