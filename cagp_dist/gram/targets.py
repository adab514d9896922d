"""What posteriors are wanted of: points, a whole grid, or linear functionals; covariances of each."""

from collections.abc import Sequence
from functools import reduce
from typing import overload

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget.grid_plans import LEAST_ALIKE
from cagp_dist.gram.functionals import (
    LinearFunctionals,
    covariance_of_functionals,
    functional_panel,
    views_of_functionals,
)
from cagp_dist.kernels import Kernel, point_columns
from cagp_dist.latlon.grid import LatLonGrid

# Where weights cancel, the part of what the variance would be without that by which rounding is measured
CANCELLATION = 1e-6

VIEWS_AT_ONCE = 8  # Views whose covariances with the whole grid are held at a time

# What a posterior is wanted of: the field at points (q, p) or on a whole grid, or weighted sums of it
Targets = Array | LatLonGrid | LinearFunctionals


def target_points(targets: Targets) -> Array:
    """Points where the field has a part in the targets: themselves, shape (q, p), or nodes of functionals."""
    if isinstance(targets, LinearFunctionals):
        return targets.nodes
    return targets.points if isinstance(targets, LatLonGrid) else targets


def target_count(targets: Targets) -> int:
    """Count the targets, q."""
    return targets.size if isinstance(targets, LatLonGrid) else len(targets)


def averaged(targets: Targets, values: Array) -> Array:
    """Values at `target_points` (N, T), as those of the targets (q, T): summed with weights."""
    return targets.averaged(values) if isinstance(targets, LinearFunctionals) else values


def list_targets(targets: Targets) -> Array | LinearFunctionals:
    """Targets one by one, of which `part` can be taken."""
    return targets.points if isinstance(targets, LatLonGrid) else targets


@overload
def part(targets: Array, chosen: slice | Indices) -> Array: ...
@overload
def part(targets: Array | LinearFunctionals, chosen: slice | Indices) -> Array | LinearFunctionals: ...
def part(targets: Array | LinearFunctionals, chosen: slice | Indices) -> Array | LinearFunctionals:
    """Take some of the targets."""
    return targets.part(chosen) if isinstance(targets, LinearFunctionals) else targets[chosen]


def joined_targets(targets: Sequence[Array | LinearFunctionals]) -> Array | LinearFunctionals:
    """Give targets one after the other: points, or functionals where some are."""
    if not any(isinstance(each, LinearFunctionals) for each in targets):
        return np.concatenate([np.asarray(each) for each in targets])
    functionals = [
        each if isinstance(each, LinearFunctionals) else LinearFunctionals.of_points(each) for each in targets
    ]
    return reduce(LinearFunctionals.followed_by, functionals)


def covariance_with(kernel: Kernel, X: Array | LinearFunctionals, targets: Targets) -> Array:
    """``V' = k(X, targets)``, shape (m, q) for X (m, p), or m functionals."""
    if isinstance(X, LinearFunctionals):
        wanted = targets if isinstance(targets, LinearFunctionals) else None
        if wanted is None:
            wanted = LinearFunctionals.of_points(target_points(targets))
        return covariance_of_functionals(kernel.parameters, X, wanted)
    if isinstance(targets, LinearFunctionals):
        return functional_panel(kernel.parameters, point_columns(X), targets)
    return kernel(X, target_points(targets))


def seen_from(kernel: Kernel, targets: Targets, X: Array | LinearFunctionals) -> Array:
    """``V = k(targets, X)``, shape (q, m) for X (m, p), or m functionals."""
    if isinstance(targets, LinearFunctionals) or isinstance(X, LinearFunctionals):
        return covariance_with(kernel, X, targets).T
    return kernel(target_points(targets), X)


def cross_by_views(kernel: Kernel, targets: Targets, grid: LatLonGrid, fields: Array) -> Array | None:
    """``k(targets, X) @ columns`` (q, T) of fields (T, P, Q) on a whole grid, where targets see it alike."""
    if not isinstance(targets, LinearFunctionals) or not len(targets):
        return None
    seeing, view, steps = views_of_functionals(targets, grid)
    if len(seeing) > LEAST_ALIKE * len(targets):
        return None
    spectrum = np.fft.rfft(fields, axis=2)
    found = np.empty((len(targets), len(fields)))
    for start in range(0, len(seeing), VIEWS_AT_ONCE):
        seen = seen_from(kernel, seeing.part(slice(start, start + VIEWS_AT_ONCE)), grid.points)
        turned = np.conj(np.fft.rfft(seen.reshape(-1, *grid.shape), axis=2))
        product = np.einsum("vpk,tpk->vtk", turned, spectrum)
        sums = np.fft.irfft(product, n=grid.n_longitudes, axis=2)
        here = np.flatnonzero((view >= start) & (view < start + len(sums)))
        found[here] = sums[view[here] - start, :, steps[here] % grid.n_longitudes]
    return found


def prior_variance(kernel: Kernel, targets: Targets) -> Array:
    """Prior variance of each target, shape (q,)."""
    if isinstance(targets, LinearFunctionals):
        return targets.prior_variance(kernel)
    return kernel.diagonal(target_points(targets))


def variance_scale(kernel: Kernel, targets: Targets, prior: Array) -> Array:
    """Size of variances by which rounding is measured: of the prior, or what weights that cancel leave."""
    if not isinstance(targets, LinearFunctionals) or not len(targets):
        return prior
    uncancelled = kernel.diagonal(targets.nodes[:1]) * targets.magnitudes**2
    return np.maximum(prior, CANCELLATION * uncancelled)


def prior_covariance(kernel: Kernel, targets: Targets) -> Array:
    """Prior covariance of the targets, shape (q, q); of functionals 8 q N bytes beside it for N nodes."""
    return averaged(targets, covariance_with(kernel, target_points(targets), targets))
