"""Draws of the field at all targets of a map: by their full covariance, or pathwise where there are many."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.errors import NumericalError
from cagp_dist.mapping.defaults import BLOCK_SIZE, JITTER, MOST_SAMPLED, OFTEN_SWEEPS, USUAL_SWEEPS
from cagp_dist.mapping.fitted_model import FittedModel
from cagp_dist.mapping.integration import drawn_numbers, means_of
from cagp_dist.mapping.map_points import MapPoints
from cagp_dist.mapping.map_solves import (
    NAMED_SOLVERS,
    PlannedSolve,
    arguments_of,
    outlook_of,
    plan_solves,
    predict,
)
from cagp_dist.mapping.narration import Narrator
from cagp_dist.mapping.observations import Observations
from cagp_dist.mapping.resources import Resources, SolveSettings
from cagp_dist.samples import sample_posterior
from cagp_dist.solvers import BlockGaussSeidel, Status


class Draws(NamedTuple):
    """Draws of the field (size, T, q), how the solves ended, and the solvers that were used."""

    values: Array
    status: Status
    solvers: tuple[str, ...]


def draw_fields(
    observed: Observations,
    learned: FittedModel,
    targets: MapPoints,
    settings: SolveSettings,
    *,
    size: int,
    seed: int,
    narrator: Narrator,
) -> Draws:
    """Draw fields that agree with the observations, from their joint distribution at all targets."""
    many = len(targets.X) > MOST_SAMPLED
    solves = plan_solves(
        observed,
        targets,
        settings,
        kernel_parts=len(learned.kernel.parts),
        full_covariance=not many,
        samples=size if many else 1,
    )
    outlook = outlook_of(solves, iterations=USUAL_SWEEPS if many else OFTEN_SWEEPS)
    generator = np.random.default_rng(seed)

    def draw(model: FittedModel, count: int) -> Draws:
        if many:
            return _draw_pathwise(observed, model, targets, solves, settings, count, generator)
        return _draw_by_covariance(observed, model, targets, solves, settings, count, generator)

    with narrator.stage(outlook):
        if learned.integrated is None:
            return draw(learned, size)
        # the numbers first, then the field that goes with them
        values, parts = np.empty((size, observed.fields, len(targets.X))), list[Draws]()
        for chosen, plugged, alone, stretch in drawn_numbers(learned, size, generator):
            found, mean = draw(plugged, chosen.size), means_of(alone, plugged, observed, targets)
            values[chosen] = mean + stretch[:, None, None] * (found.values - mean)
            parts.append(found)
    solvers = tuple(dict.fromkeys(name for part in parts for name in part.solvers))
    return Draws(values, Status.worst(part.status for part in parts), solvers)


def _draw_pathwise(
    observed: Observations,
    learned: FittedModel,
    targets: MapPoints,
    solves: Sequence[PlannedSolve],
    resources: Resources,
    size: int,
    generator: np.random.Generator,
) -> Draws:
    """Draw each field at the targets, pathwise (math 1.5).

    Block Gauss-Seidel that was asked for by its name does `USUAL_SWEEPS`: no variances say where to stop.
    """
    T, q, names, ends = observed.fields, len(targets.X), list[str](), list[Status]()
    draws = np.empty((size, T, q))
    for solve in solves:
        fields, chosen = solve.fields, solve.solver
        if chosen is NAMED_SOLVERS["block-gauss-seidel"]:
            chosen = BlockGaussSeidel(USUAL_SWEEPS, block_size=BLOCK_SIZE)
        found = sample_posterior(
            *arguments_of(observed, learned, targets, solve),
            solver=chosen,
            samples=size,
            generator=generator,
            executor=resources.executor,
            memory_limit_bytes=resources.memory_limit_bytes,
            on_status=ends.append,
        )
        on_grid = chosen.needs_grid and targets.grid is not None  # (size, T, P, Q), of points (size, q, T)
        draws[:, fields] = found.reshape(size, fields.size, q) if on_grid else found.transpose(0, 2, 1)
        names.append(repr(chosen))
    return Draws(draws, Status.worst(ends), tuple(dict.fromkeys(names)))


def _draw_by_covariance(
    observed: Observations,
    learned: FittedModel,
    targets: MapPoints,
    solves: Sequence[PlannedSolve],
    resources: Resources,
    size: int,
    generator: np.random.Generator,
) -> Draws:
    """Draw by a root of the covariance of each field, q^3 / 3 flops."""
    prediction = predict(observed, learned, targets, solves=solves, resources=resources, full_covariance=True)
    assert prediction.covariance is not None
    draws = np.empty((size, *prediction.mean.shape))
    for field, (mean, covariance) in enumerate(zip(prediction.mean, prediction.covariance, strict=True)):
        root = _root(covariance, float(learned.kernel.diagonal(targets.X[:1])[0]))
        draws[:, field] = mean + generator.standard_normal((size, mean.size)) @ root.T
    return Draws(draws, prediction.status, prediction.solvers)


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
