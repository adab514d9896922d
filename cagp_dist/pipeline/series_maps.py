"""Maps at times from places that were observed at all of the times: exact, by modes in space and time."""

from dataclasses import replace
from time import perf_counter
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.budget import Demand, Plan
from cagp_dist.budget.plan import check_peak, plan_without_tiles
from cagp_dist.kernels import Elementary, Kernel
from cagp_dist.over_times import condition_over_times
from cagp_dist.pipeline.field_solves import DriftCoefficients, Execution, Solution, SolveStep
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.map_points import MapPoints
from cagp_dist.pipeline.observations import Observations
from cagp_dist.pipeline.resources import Resources, SolveSettings
from cagp_dist.prior import Prior
from cagp_dist.remedies import Remedy
from cagp_dist.solvers.solver_choice import MOST_DENSE
from cagp_dist.space_time import SpaceTime
from cagp_dist.text import counted
from cagp_dist.time_factors import Periodic

MOST_PLACES = 4_096
"""Places of which eigenvectors are found: half a minute."""

MOST_SERIES_FLOPS = 2_700_000_000_000
"""Work up to which an exact solve is preferred to neighbours: a minute of one core."""


class SeriesMap(NamedTuple):
    """Observations and targets as places times hours."""

    where: Array  # (n, 3): places that were observed
    hours: Array  # (T,)
    values: Array  # (T, n)
    noise: Array  # () or (n,)
    wanted: Array  # (m, 3)
    at: Array  # (A,)
    plan: Plan


def series_map(
    observed: Observations, learned: FittedModel, targets: MapPoints, settings: SolveSettings
) -> SeriesMap | None:
    """Arrange a map by place and hour; None where that is not what it is, or neighbours are the way."""
    noise = learned.noise_variance
    there = observed.there
    chosen_here = settings.solver == "auto" and there.size > MOST_DENSE
    if not chosen_here or targets.cells is not None or not is_product(learned.kernel):
        return None
    hours, of_hour = np.unique(observed.X[there, -1], return_inverse=True)
    if hours.size < 2 or there.size % hours.size:
        return None
    _, first, of_place = np.unique(observed.positions[there], axis=0, return_index=True, return_inverse=True)
    n, T = first.size, hours.size
    if n > MOST_PLACES or n * T != there.size:
        return None
    values = np.full((T, n), np.nan)
    values[of_hour, of_place] = observed.values[0, there]
    own = noise if noise.ndim == 0 else noise[there][first]
    whole = not np.isnan(values).any()
    if not whole or not (own > 0.0).all() or (noise.ndim and not np.array_equal(own[of_place], noise[there])):
        return None
    found = _by_hour(targets.X)
    if found is None:
        return None
    wanted, at = found
    plan = _plan((T, n), (at.size, len(wanted)), settings)
    if plan is None:
        return None
    return SeriesMap(observed.X[there[first], :3], hours, values, own, wanted, at, plan)


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


def _plan(fields: tuple[int, int], targets: tuple[int, int], resources: Resources) -> Plan | None:
    """Plan T x n values and A x m targets; None where that takes long."""
    (T, n), (A, m) = fields, targets
    flops = 9 * n**3 + 9 * T**3 + 12 * n * T * (n + T) + 2 * n * m * (n + 2 * A)
    if flops > MOST_SERIES_FLOPS:
        return None
    peak = 8 * (4 * n**2 + 3 * T**2 + 8 * n * T + 8 * A * m + A * n + 4 * n * m)
    demand = Demand(
        n=n * T,
        q=A * m,
        fields=1,
        full_covariance=False,
        workers=1,
        shares_memory=True,
        memory_limit_bytes=resources.memory_bytes,
    )
    method = f"modes in space and time of {counted(n, 'place')} at {counted(T, 'time')}"
    check_peak(demand, method, peak, Remedy.NEIGHBOURS, Remedy.FEWER_TEST_POINTS)
    return plan_without_tiles(demand, method, None, peak, n**2 + T**2 + n * m, flops, 1)
