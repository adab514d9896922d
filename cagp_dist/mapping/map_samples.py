"""Draws of the field at all targets of a map: by their full covariance, or pathwise where there are many."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.errors import NumericalError
from cagp_dist.mapping.defaults import JITTER, MOST_SAMPLED, OFTEN_SWEEPS, USUAL_SWEEPS
from cagp_dist.mapping.fitted_model import FittedModel
from cagp_dist.mapping.integration import drawn_numbers, means_of
from cagp_dist.mapping.map_points import MapPoints
from cagp_dist.mapping.map_solves import PlannedSolve, outlook_of, plan_solves, predict, sample_fields
from cagp_dist.mapping.narration import Narrator
from cagp_dist.mapping.observations import Observations
from cagp_dist.mapping.resources import Resources
from cagp_dist.solvers import Solver, Status


class Draws(NamedTuple):
    """Draws of the field (size, T, q), how the solves ended, and the solvers that were used."""

    values: Array
    status: Status
    solvers: tuple[str, ...]


def draw_fields(
    observed: Observations,
    learned: FittedModel,
    targets: MapPoints,
    *,
    size: int,
    seed: int,
    solver: "str | Solver",
    resources: Resources,
    narrator: Narrator,
) -> Draws:
    """Draw fields that agree with the observations, from their joint distribution at all targets."""
    many = len(targets.X) > MOST_SAMPLED
    solves = plan_solves(
        observed,
        targets,
        solver=solver,
        resources=resources,
        kernel_parts=len(learned.kernel.parts),
        full_covariance=not many,
        samples=size if many else 1,
    )
    narrator.expect(outlook_of(solves, iterations=USUAL_SWEEPS if many else OFTEN_SWEEPS))
    narrator.announce()
    draw = partial(sample_fields if many else _draw_by_covariance, solves=solves, resources=resources)
    generator = np.random.default_rng(seed)
    with narrator.stage("solve"):
        if learned.integrated is None:
            return Draws(*draw(observed, learned, targets, size=size, generator=generator))
        return _draw_with_numbers(draw, observed, learned, targets, size=size, generator=generator)


def _draw_with_numbers(
    draw: Callable[..., tuple[Array, Status, tuple[str, ...]]],
    observed: Observations,
    learned: FittedModel,
    targets: MapPoints,
    *,
    size: int,
    generator: np.random.Generator,
) -> Draws:
    """Draws (size, T, q): of the numbers first, then of the field that goes with them."""
    draws = np.empty((size, observed.fields, len(targets.X)))
    statuses: list[Status] = []
    solvers: list[str] = []
    for chosen, plugged, alone, stretch in drawn_numbers(learned, size, generator):
        found, status, used = draw(observed, plugged, targets, size=chosen.size, generator=generator)
        mean = means_of(alone, plugged, observed, targets)
        draws[chosen] = mean + stretch[:, None, None] * (found - mean)
        statuses.append(status)
        solvers += used
    return Draws(draws, Status.worst(statuses), tuple(dict.fromkeys(solvers)))


def _draw_by_covariance(
    observed: Observations,
    learned: FittedModel,
    targets: MapPoints,
    *,
    size: int,
    generator: np.random.Generator,
    solves: Sequence[PlannedSolve],
    resources: Resources,
) -> tuple[Array, Status, tuple[str, ...]]:
    """Draws (size, T, q) by a root of the covariance of each field, q^3 / 3 flops."""
    prediction = predict(observed, learned, targets, solves=solves, resources=resources, full_covariance=True)
    assert prediction.covariance is not None
    draws = np.empty((size, *prediction.mean.shape))
    for field, (mean, covariance) in enumerate(zip(prediction.mean, prediction.covariance, strict=True)):
        root = _root(covariance, float(learned.kernel.diagonal(targets.X[:1])[0]))
        draws[:, field] = mean + generator.standard_normal((size, mean.size)) @ root.T
    return draws, prediction.status, prediction.solvers


def _root(covariance: Array, variance: float) -> Array:
    """Triangular factor of a covariance (q, q)."""
    jittered = covariance + JITTER * variance * np.eye(len(covariance))
    try:
        return np.asarray(np.linalg.cholesky(jittered))
    except np.linalg.LinAlgError as error:
        raise NumericalError(
            "the covariance of the targets is not positive definite, so that none can be drawn: targets "
            "nearly coincide, or the noise is too small. Take a coarser resolution, or a larger noise_std."
        ) from error
