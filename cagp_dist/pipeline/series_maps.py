"""Maps at times from places that were observed at all of the times: exact, by modes in space and time."""

from dataclasses import replace
from time import perf_counter
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget import Demand, GridSize, Plan
from cagp_dist.budget.demand import sector_sizes
from cagp_dist.budget.plan import check_peak, plan_without_tiles
from cagp_dist.geometry import is_pole
from cagp_dist.kernels import Elementary, Kernel
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.latlon.grid_layout import Views
from cagp_dist.over_times import condition_over_times
from cagp_dist.pipeline.field_solves import DriftCoefficients, Execution, Solution, SolveStep
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.grid_places import grid_if_any
from cagp_dist.pipeline.map_points import MapPoints
from cagp_dist.pipeline.observations import Observations
from cagp_dist.pipeline.resources import Resources
from cagp_dist.prior import Prior
from cagp_dist.remedies import Remedy
from cagp_dist.solvers import Solver
from cagp_dist.solvers.solver_choice import MOST_SOLVED_DENSE
from cagp_dist.space_time import SpaceTime
from cagp_dist.text import counted
from cagp_dist.time_factors import Periodic

MOST_PLACES = 4_096
"""Places that are no grid of which eigenvectors are found: half a minute."""

MOST_SERIES_FLOPS = 2_700_000_000_000
"""Work up to which an exact solve is preferred to neighbours: a minute of one core."""


class SeriesMap(NamedTuple):
    """Observations and targets as places times hours."""

    where: LatLonGrid | Array  # a whole grid, or places (n, 3), that were observed
    hours: Array  # (T,)
    values: Array  # (T, P, Q) or (T, n)
    noise: Array  # (), or of each place
    wanted: Array  # (m, 3)
    at: Array  # (A,)
    plan: Plan


def series_map(
    observed: Observations,
    learned: FittedModel,
    targets: MapPoints,
    solver: str | Solver,
    resources: Resources,
) -> SeriesMap | None:
    """Arrange a map by place and hour; None where that is not what it is, or neighbours are the way."""
    noise = learned.noise_variance
    there = observed.there
    chosen_here = solver == "auto" and there.size > MOST_SOLVED_DENSE
    if not chosen_here or targets.cells is not None or not is_product(learned.kernel):
        return None
    hours, of_hour = np.unique(observed.X[there, -1], return_inverse=True)
    if hours.size < 2 or there.size % hours.size:
        return None
    _, first, of_place = np.unique(observed.positions[there], axis=0, return_index=True, return_inverse=True)
    n, T, chosen = first.size, hours.size, there[first]
    if n * T != there.size:
        return None
    values = np.full((T, n), np.nan)
    values[of_hour, of_place] = observed.values[0, there]
    own = noise if noise.ndim == 0 else noise[chosen]
    whole = not np.isnan(values).any()
    if not whole or not (own > 0.0).all() or (noise.ndim and not np.array_equal(own[of_place], noise[there])):
        return None
    found = _by_hour(targets.X)
    if found is None:
        return None
    where: LatLonGrid | Array = observed.X[chosen, :3]
    if (on_grid := _on_whole_grid(observed, chosen, values, own)) is not None:
        where, values, own = on_grid
    elif n > MOST_PLACES:
        return None
    plan = _plan(where, n, T, found[0], found[1].size, resources)
    return None if plan is None else SeriesMap(where, hours, values, own, *found, plan)


def _on_whole_grid(
    observed: Observations, chosen: Indices, values: Array, noise: Array
) -> tuple[LatLonGrid, Array, Array] | None:
    """Give the whole grid that places are, with their values and noise by latitude on it; or None."""
    if not observed.space.has_latitudes:
        return None
    places = grid_if_any(observed.north[chosen], observed.east[chosen])
    if places is None:
        return None
    poles, fields = is_pole(places.grid.latitude_degrees), places.fields(values)
    fields[:, poles] = fields[:, poles, :1]
    if np.isnan(fields).any() or (noise.ndim and not places.even(noise)):
        return None
    if noise.ndim:
        noise = places.noise(noise)
        noise[poles] = noise[poles, :1]
    return places.grid, fields, noise


def is_product(kernel: Kernel) -> bool:
    """Whether a kernel of space and time is one whose modes are found: a product of two."""
    part, *more = kernel.parts
    return isinstance(part, SpaceTime) and isinstance(part.time, Elementary | Periodic) and not more


def predict_series(found: SeriesMap, prior: Prior, execution: Execution) -> Solution:
    """Predict places at hours, exactly."""
    began = perf_counter()
    execution.on_plan(found.plan)
    prior = replace(prior, noise_variance=found.noise if found.noise.ndim else float(found.noise))
    execution.progress(None, "all times together")
    posterior = condition_over_times(
        prior,
        found.where,
        found.hours,
        found.values,
        found.wanted,
        at=found.at,
        executor=execution.executor,
        memory_limit_bytes=execution.memory_limit_bytes,
        progress=lambda state: execution.progress(state.fraction, "all times together"),
    )
    std, drift = np.sqrt(np.maximum(posterior.variance, 0.0)).reshape(1, -1), None
    if (found_mean := posterior.coefficients) is not None:
        drift = DriftCoefficients(found_mean.names, found_mean.values[:, None], found_mean.std[:, None])
    return Solution(
        steps=(SolveStep(1, posterior.mean.reshape(1, -1), std, perf_counter() - began),),
        status=posterior.status,
        plan=tuple(found.plan.lines()),
        solvers=(found.plan.method,),
        plans=(found.plan,),
        executor=execution.executor.description,
        computational_std=np.zeros_like(std),
        drift=drift,
    )


def _by_hour(X: Array) -> tuple[Array, Array] | None:
    """Places (m, 3) and hours (A,) of targets (A m, 4) that are the same places hour after hour."""
    together = int(np.argmax(X[:, -1] != X[0, -1])) or len(X)
    if len(X) % together:
        return None
    blocks = X.reshape(-1, together, 4)
    same = (blocks[:, :, :3] == blocks[0, :, :3]).all() and (blocks[..., 3] == blocks[:, :1, 3]).all()
    return (blocks[0, :, :3], blocks[:, 0, 3]) if same else None


def _plan(
    where: LatLonGrid | Array, n: int, T: int, wanted: Array, A: int, resources: Resources
) -> Plan | None:
    """Plan T values at n places and targets (m, 3) at A hours; None where that takes long."""
    m, name = len(wanted), counted(n, "place")
    modes, transform, block_bytes, views = 9 * n**3, 2 * n**2, 32 * n**2, m
    if isinstance(where, LatLonGrid):
        size = GridSize(*where.shape, mirrored=where.mirrored)
        squares, cubes = (
            size.wavenumbers * sum(each**power for each in sector_sizes(size.latitudes, size.mirrored))
            for power in (2, 3)
        )
        modes, transform, name = 9 * cubes, 4 * squares, f"{name} of a grid"
        block_bytes = 2 * size.block_bytes + size.task_bytes * resources.executor.workers
        views = 0 if (where.places(wanted) >= 0).all() else len(Views.of(wanted, where).points)
    flops = modes + 9 * T**3 + transform * (4 * T + 2 * A + views) + 4 * n * (T + A) * T + 2 * A * n * views
    if flops > MOST_SERIES_FLOPS:
        return None
    peak = block_bytes + 8 * (3 * T**2 + 12 * n * (T + A) + 8 * A * m + n * min(m, 64))
    demand = Demand(
        n=n * T,
        q=A * m,
        fields=1,
        full_covariance=False,
        workers=1,
        shares_memory=True,
        memory_limit_bytes=resources.memory_bytes,
    )
    method = f"modes in space and time of {name} at {counted(T, 'time')}"
    check_peak(demand, method, peak, Remedy.NEIGHBOURS, Remedy.FEWER_TEST_POINTS)
    return plan_without_tiles(demand, method, None, peak, n**2 + T**2 + n * m, flops, 1)
