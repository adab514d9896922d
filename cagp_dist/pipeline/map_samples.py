"""Draws of the field at all targets of a map: by their full covariance, or pathwise where there are many."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.errors import ArgumentError, NumericalError
from cagp_dist.pipeline.censoring import drawn
from cagp_dist.pipeline.defaults import BLOCK_SIZE, JITTER, MOST_SAMPLED, USUAL_SWEEPS
from cagp_dist.pipeline.field_solves import Execution
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.integration import drawn_numbers, means_of
from cagp_dist.pipeline.map_points import MapPoints, Targets
from cagp_dist.pipeline.map_solves import NAMED_SOLVERS, problem_of_map, solve_map, solver_of
from cagp_dist.pipeline.narration import Narrator
from cagp_dist.pipeline.observations import Observations
from cagp_dist.pipeline.resources import Resources
from cagp_dist.posterior.patterns import fields_by_pattern
from cagp_dist.samples import sample_posterior
from cagp_dist.solvers import BlockGaussSeidel, Solver, Status


class Draws(NamedTuple):
    """Draws of the field (size, T, q), how the solves ended, and the solvers that were used."""

    values: Array
    status: Status
    solvers: tuple[str, ...]


def draw_fields(
    observed: Observations,
    learned: FittedModel,
    targets: MapPoints,
    asked: str | Solver,
    resources: Resources,
    *,
    size: int,
    seed: int,
    narrator: Narrator,
) -> Draws:
    """Draw fields that agree with the observations, from their joint distribution at all targets."""
    many = len(targets.X) > MOST_SAMPLED
    if many and observed.functionals is not None:
        raise ArgumentError(
            f"{len(targets.X):,} targets were asked for, and means over areas were observed, from which at "
            f"most {MOST_SAMPLED:,} are drawn together; expected fewer: a coarser grid, or a mask.",
            key="samples-of-areas",
        )
    solver = solver_of(asked, observed)
    if many and solver == NAMED_SOLVERS["block-gauss-seidel"]:  # no variances say where to stop
        solver = BlockGaussSeidel(USUAL_SWEEPS, block_size=BLOCK_SIZE)
    generator = np.random.default_rng(seed)

    def draw(model: FittedModel, count: int) -> Draws:
        if not observed.hides:
            return draw_of(observed, model, count)
        # for each draw of the field its own of the censored values
        filled = drawn(observed, model, draws=count, seed=int(generator.integers(2**32)))
        found = draw_of(filled, model, 1)
        values = found.values.reshape(observed.fields, count, -1).swapaxes(0, 1)
        return found._replace(values=values)

    def draw_of(observed: Observations, model: FittedModel, count: int) -> Draws:
        if not many:
            return _draw_by_covariance(observed, model, targets, solver, execution, count, generator)
        ends = list[Status]()
        draws = sample_posterior(
            *problem_of_map(observed, model, targets, solver),
            solver=solver,
            samples=count,
            generator=generator,
            executor=resources.executor,
            memory_limit_bytes=resources.memory_limit_bytes,
            progress=lambda state: execution.progress(state.fraction, ""),
            on_status=ends.append,
        )
        if draws.ndim == 3:  # (count, q, T) of points, of a grid (count, T, P, Q)
            draws = draws.transpose(0, 2, 1)
        shape = count, observed.fields, len(targets.X)
        return Draws(draws.reshape(shape), Status.worst(ends), (repr(solver),))

    with narrator.stage("samples", f"{size:,} draws at {len(targets.X):,} targets") as report:
        execution = Execution.on(resources, report=report)
        if learned.likely:
            return _by_probability(learned, size, generator, draw)
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


def _by_probability(
    learned: FittedModel,
    size: int,
    generator: np.random.Generator,
    draw: Callable[[FittedModel, int], Draws],
) -> Draws:
    """Draw numbers by their probability, and the fields that go with them."""
    weights, models = zip(*learned.likely, strict=True)
    chosen = generator.choice(len(models), size=size, p=np.array(weights) / sum(weights))
    parts = {int(one): draw(models[one], int(np.sum(chosen == one))) for one in np.unique(chosen)}
    values = np.empty((size, *next(iter(parts.values())).values.shape[1:]))
    for one, part in parts.items():
        values[chosen == one] = part.values
    solvers = tuple(dict.fromkeys(name for part in parts.values() for name in part.solvers))
    return Draws(values, Status.worst(part.status for part in parts.values()), solvers)


def _draw_by_covariance(
    observed: Observations,
    learned: FittedModel,
    targets: MapPoints,
    solver: Solver,
    execution: Execution,
    size: int,
    generator: np.random.Generator,
) -> Draws:
    """Draw by a root of the covariance, q^3 / 3 flops for all fields with the same gaps."""
    prediction = solve_map(
        observed, learned, Targets(targets), solver=solver, execution=execution, full_covariance=True
    )
    assert prediction.covariance is not None
    draws = np.empty((size, *prediction.mean.shape))
    variance, roots = float(learned.kernel.diagonal(targets.X[:1])[0]), dict[int, Array]()
    first = {int(field): int(group[0]) for group in fields_by_pattern(observed.present) for field in group}
    for field, mean in enumerate(prediction.mean):
        like = first[field]
        if like not in roots:
            roots[like] = _root(prediction.covariance[like], variance)
        draws[:, field] = mean + generator.standard_normal((size, mean.size)) @ roots[like].T
    return Draws(draws, prediction.status, prediction.solvers)


def _root(covariance: Array, variance: float) -> Array:
    """Triangular factor of a covariance (q, q)."""
    jittered = covariance + JITTER * variance * np.eye(len(covariance))
    try:
        return np.asarray(np.linalg.cholesky(jittered))
    except np.linalg.LinAlgError as error:
        raise NumericalError(
            "the covariance of the targets is not positive definite, so that none can be drawn: targets "
            "nearly coincide, or the noise is too small. Take a coarser resolution, or a larger noise_std.",
            key="not-positive-definite",
        ) from error
