"""Which errors correct the predictive distributions of a job: decided from its points, before any solve.

Errors must be of predictions that did not use the value that they are compared with. In this order: points
that the job kept, ``[design] calibration``; folds of a cross-validation, those of others for a place; leave
one out, where the solver is exact and that costs no more than the solve, but not beside test points in
blocks, which are further away; points that are drawn by area, in blocks of their own where the test has
blocks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cagp_dist.arrays import Indices
from cagp_dist.calibration.recalibration.methods import RECALIBRATIONS, SHARP
from cagp_dist.errors import ArgumentError, ConfigurationError
from cagp_dist.pipeline import Cholesky, Observations, Rings, Solver, fields_by_pattern
from cagp_dist.pipeline.cross_validation import left_out_is_cheap
from cagp_dist.predictive import Gaussian
from cagp_dist.service.jobfile.job import RecalibrationTable
from cagp_dist.service.point_roles import Design, places_on_grid
from cagp_dist.text import counted

Errors = Literal["none", "points", "folds", "leave-one-out"]

MOST_DRAWN = 2_000  # Calibration points that are drawn where the job does not say
OBSERVED_FOR_EACH = 5  # Observed points for each of them, at least
FEWEST_ERRORS = 500  # Places with errors, below which a job that does not ask for a recalibration has none


@dataclass(frozen=True)
class Recalibrating:
    """What corrects the distributions of a job."""

    method: str = "none"  # of a job file; ``"none"`` where nothing does
    errors: Errors = "none"  # where its errors come from
    places: int = 0  # how many places have errors
    # whether the job names the method; one that is there by itself gives way where it cannot learn
    asked: bool = True
    why_not: str = ""  # why a method that is there by itself was left out; else empty
    blocks: bool = False  # whether calibration points were drawn in blocks of their own
    levels: tuple[float, ...] = ()  # of a sharp GP, those of its quantiles
    split: str = ""  # of a sharp GP, how the calibration points are used

    def key(self) -> dict[str, object]:
        """Give what a run key has to know; nothing where nothing is corrected."""
        if self.method == "none":
            return {}
        named = {"method": self.method, "errors": self.errors, "places": self.places}
        drawn = {"drawn": "blocks"} if self.blocks else {}
        return {"recalibration": named | drawn}

    def attributes(self) -> dict[str, str]:
        """Give what a run says of it."""
        return {"recalibration": self.method, "recalibration_statement": self.statement()}

    def statement(self) -> str:
        """Say it in one sentence."""
        if self.method == "none":
            return self.why_not or "The error bars are not recalibrated, because the job says so."
        source = {
            "points": f"errors at {counted(self.places, 'calibration point')}, none of them observed"
            + (", in separate blocks like the test points" if self.blocks else ""),
            "folds": f"errors at {counted(self.places, 'place')} that were predicted from other folds; each "
            "place uses only errors of folds other than its own",
            "leave-one-out": f"leave-one-out errors of the {counted(self.places, 'observed point')}",
        }[self.errors]
        return f"Predictive distributions are recalibrated ({self.method}) by {source}{self._of_sharp()}."

    def _of_sharp(self) -> str:
        """Say which quantiles have lengthscales of their own, and what is guaranteed."""
        if self.method != SHARP:
            return ""
        chosen = {
            "three-way": "chosen with one half of these points and scaled by the errors at the other half",
            "two-way": "chosen and scaled with the same points, which guarantees no probability",
        }[self.split]
        return (
            f": quantiles at {len(self.levels)} levels from {self.levels[0]:g} to {self.levels[-1]:g} each "
            f"have their own lengthscale, {chosen}"
        )


NOT_ASKED = Recalibrating()


def with_errors(
    table: RecalibrationTable,
    points: Observations,
    solver_at: Callable[[Design], Solver],
    *,
    design_of: Callable[[int], Design],
    distant: bool,
) -> tuple[Design, Recalibrating]:
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
    elif not distant and has_left_out(solver_at(design), points, design):
        errors, places, chosen = "leave-one-out", design.train.size, design
    else:
        chosen = design_of(drawn_points(table, observed=design.train.size))
        errors, places = "points", 0 if chosen.calibration is None else chosen.calibration.size
    blocks = errors == "points" and chosen.calibration_blocks is not None
    found = Recalibrating(table.method, errors, places, asked=table.asked, blocks=blocks)
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
    return design, Recalibrating(asked=False, why_not=why_not)


def _of_points(table: RecalibrationTable, places: int) -> Recalibrating:
    """Correct distributions by errors at points that the job keeps."""
    if table.method != SHARP:
        check_enough(table.method, places)
        return Recalibrating(table.method, "points", places)
    try:
        table.check_points(places)
    except ValueError as error:
        raise ConfigurationError(f'[recalibration] method = "{SHARP}": {error}.') from error
    return Recalibrating(SHARP, "points", places, levels=table.sharp_levels, split=table.sharp_split)


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
        raise ConfigurationError(f'[recalibration] method = "{method}": {error}') from error


def drawn_points(table: RecalibrationTable, *, observed: int) -> int:
    """How many calibration points are drawn at most, where the job does not say."""
    if table.method == "none":
        return 0
    spare = observed // OBSERVED_FOR_EACH
    return min(MOST_DRAWN, max(spare, FEWEST_ERRORS) if table.asked else spare)


def has_left_out(solver: Solver, points: Observations, design: Design) -> bool:
    """Whether an exact solver gives leave-one-out errors at a cost like its own."""
    if isinstance(solver, Cholesky):
        return True
    places = places_on_grid(solver, points, design) if isinstance(solver, Rings) else None
    if places is None or points.noise_variance is not None:
        return False
    present = points.present[:, design.train]
    patterns: Sequence[Indices] = fields_by_pattern(present)
    return all(left_out_is_cheap(solver, places.size(present[fields[0]])) for fields in patterns)
