"""Draws of the field at all targets of a map: by their full covariance, or pathwise where there are many."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import xarray as xr

from cagp_dist.arrays import Array
from cagp_dist.errors import NumericalError
from cagp_dist.kriging.integrating import drawn_numbers, means_of
from cagp_dist.kriging.learning import FittedModel
from cagp_dist.kriging.map_dataset import field_dims, target_coordinates
from cagp_dist.kriging.map_targets import Targets
from cagp_dist.kriging.narration import Narrator
from cagp_dist.kriging.observed_objects import ObservedObject
from cagp_dist.kriging.solving import (
    OFTEN_SWEEPS,
    USUAL_SWEEPS,
    PlannedSolve,
    outlook_of,
    plan_solves,
    predict,
    sample_fields,
)
from cagp_dist.runtime import Executor
from cagp_dist.solvers import Solver, Status

MOST_SAMPLED = 4_000
"""Targets from whose full covariance samples are drawn: 130 MB, and 20 s. More are drawn pathwise."""

JITTER = 1e-10
"""Of the prior variance, added to a covariance so that rounding leaves it positive definite."""


def sample(
    observed: ObservedObject,
    learned: FittedModel,
    targets: Targets,
    *,
    size: int,
    seed: int,
    solver: "str | Solver",
    executor: Executor,
    memory_limit_bytes: int | None,
    narrator: Narrator,
) -> xr.Dataset:
    """Draw fields that agree with the observations; see `Kriging.sample`."""
    many = targets.latitude_degrees.size > MOST_SAMPLED
    draw = sample_fields if many else _draw_by_covariance
    solves = plan_solves(
        observed,
        targets,
        solver=solver,
        executor=executor,
        memory_limit_bytes=memory_limit_bytes,
        kernel_parts=len(learned.kernel.parts),
        full_covariance=not many,
        samples=size if many else 1,
    )
    narrator.expect(outlook_of(solves, iterations=USUAL_SWEEPS if many else OFTEN_SWEEPS))
    narrator.announce()
    with narrator.stage("solve"):
        draw = partial(draw, solves=solves, executor=executor, memory_limit_bytes=memory_limit_bytes)
        generator = np.random.default_rng(seed)
        if learned.integrated is None:
            draws, status, solvers = draw(observed, learned, targets, size=size, generator=generator)
        else:
            draws, status, solvers = _draw_with_numbers(
                draw, observed, learned, targets, size=size, generator=generator
            )
    rows = draws[:, 0] if observed.dimension is None else draws
    dims = ("sample", *field_dims(observed, targets))
    values = rows.reshape(*rows.shape[:-1], *targets.shape)
    return xr.Dataset(
        {observed.name: (dims, values, dict(observed.attributes))},
        coords={**target_coordinates(observed, targets), "sample": np.arange(size)},
        attrs={"status": status.value, "solver": "; ".join(solvers), "seed": seed},
    )


def _draw_with_numbers(
    draw: Callable[..., tuple[Array, Status, tuple[str, ...]]],
    observed: ObservedObject,
    learned: FittedModel,
    targets: Targets,
    *,
    size: int,
    generator: np.random.Generator,
) -> tuple[Array, Status, tuple[str, ...]]:
    """Draws (size, T, q): of the numbers first, then of the field that goes with them."""
    draws = np.empty((size, len(observed.values), targets.latitude_degrees.size))
    statuses: list[Status] = []
    solvers: list[str] = []
    for chosen, plugged, alone, stretch in drawn_numbers(learned, size, generator):
        found, status, used = draw(observed, plugged, targets, size=chosen.size, generator=generator)
        mean = means_of(alone, plugged, observed, targets)
        draws[chosen] = mean + stretch[:, None, None] * (found - mean)
        statuses.append(status)
        solvers += used
    return draws, Status.worst(statuses), tuple(dict.fromkeys(solvers))


def _draw_by_covariance(
    observed: ObservedObject,
    learned: FittedModel,
    targets: Targets,
    *,
    size: int,
    generator: np.random.Generator,
    solves: Sequence[PlannedSolve],
    executor: Executor,
    memory_limit_bytes: int | None,
) -> tuple[Array, Status, tuple[str, ...]]:
    """Draws (size, T, q) by a root of the covariance of each field, q^3 / 3 flops."""
    prediction = predict(
        observed,
        learned,
        targets,
        solves=solves,
        executor=executor,
        memory_limit_bytes=memory_limit_bytes,
        full_covariance=True,
    )
    assert prediction.covariance is not None
    draws = np.empty((size, *prediction.mean.shape))
    for field, (mean, covariance) in enumerate(zip(prediction.mean, prediction.covariance, strict=True)):
        root = _root(covariance, float(learned.kernel.diagonal(targets.points[:1])[0]))
        draws[:, field] = mean + generator.standard_normal((size, mean.size)) @ root.T
    return draws, prediction.status, prediction.solvers


def _root(covariance: Array, variance: float) -> Array:
    """Triangular factor of a covariance (q, q)."""
    jittered = covariance + JITTER * variance * np.eye(len(covariance))
    try:
        return np.asarray(np.linalg.cholesky(jittered))
    except np.linalg.LinAlgError as error:
        raise NumericalError(
            "the covariance of the targets is not positive definite, so that no samples can be drawn: "
            "targets nearly coincide, or the noise is too small. Take a coarser "
            "resolution, or a larger noise_std."
        ) from error
