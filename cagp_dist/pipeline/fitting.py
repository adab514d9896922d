"""Kernel and noise of a field, fitted to what was observed by maximum likelihood."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget import Work
from cagp_dist.factors import Directional
from cagp_dist.geometry import is_pole
from cagp_dist.gram.targets import part
from cagp_dist.kernels import Kernel, chosen_by, families_of
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.likelihood.bounds import Given
from cagp_dist.likelihood.ellipses import Ellipse, with_ellipse
from cagp_dist.likelihood.fit import Method, fit
from cagp_dist.likelihood.fit_result import FitProgress, FitResult
from cagp_dist.likelihood.fit_work import FitSize, fit_work
from cagp_dist.likelihood.kernel_choice import KERNELS_COMPARED
from cagp_dist.likelihood.nugget import NOISE, fit_beside_known_noise
from cagp_dist.likelihood.numbering import Families
from cagp_dist.likelihood.replicates import effective_fields
from cagp_dist.likelihood.starts import Start
from cagp_dist.likelihood.vecchia.conditionals import MOST_CONDITIONALS, conditionals_text
from cagp_dist.pipeline.defaults import MOST_FITTED_DENSE, MOST_VALUES, NO_NUGGET
from cagp_dist.pipeline.grid_places import grid_if_any
from cagp_dist.pipeline.map_mean import residuals_about
from cagp_dist.pipeline.observations import Observations
from cagp_dist.pipeline.resources import Resources
from cagp_dist.posterior.patterns import shared_places
from cagp_dist.prior import Mean
from cagp_dist.runtime.memo import Memo
from cagp_dist.solvers.solver_choice import few_gaps


@dataclass(frozen=True, eq=False)
class Sites:
    """The points and times that decide."""

    chosen: Indices  # (n,) ascending; all of them have a value at all of these times
    times: Indices  # (T,)
    method: Method  # how their likelihood is worked out, as in `cagp_dist.fit`
    grid: LatLonGrid | None = None  # which they form, but for a few points perhaps, if it is that of rings
    places: Indices | None = None  # (n,) where in the grid each of them lies

    @property
    def missing(self) -> int:
        """Points of the grid that have no value."""
        return 0 if self.grid is None else self.grid.size - self.chosen.size

    def work(self, kernel: str, *, deviating: bool, workers: int) -> Work:
        """Count what a fit of a kernel, by its name, takes; ``deviating``: each point has a noise."""
        shape = None if self.grid is None else self.grid.shape
        way = chosen_by(kernel)
        parts = 1 if way is not None else len(families_of(kernel))
        kernels = KERNELS_COMPARED.get(way or "", 1)
        size = FitSize(
            self.method, self.chosen.size, parts, shape, self.missing, deviating, kernels, self.times.size
        )
        return fit_work(size, workers=workers)

    def on_grid(self, values: Array) -> Array:
        """Values (T, n) as fields (T, P, Q), NaN where the grid has a gap."""
        assert self.grid is not None
        fields = np.full((len(values), self.grid.size), np.nan)
        fields[:, self.places] = values
        return fields.reshape(-1, *self.grid.shape)

    @property
    def likelihood(self) -> str:
        """Which likelihood is worked out, for people."""
        if self.method == "dense":
            return "exact"
        if self.method == "vecchia":
            return f"Vecchia's, by {conditionals_text(self.chosen.size)}"
        gaps = f", {self.missing:,} points of which are missing" if self.missing else ""
        return f"exact, by the rings of the grid{gaps}"


def choose_sites(observed: Observations, places: Indices, *, gridded: bool) -> Sites:
    """Choose of some places (ascending) and all times those that decide, and how their likelihood is found.

    Exactly by rings where a grid is whole or nearly so, exactly by a dense factor up to `MOST_FITTED_DENSE`
    points, else by Vecchia's likelihood. With gaps, some times decide, and the points that all of these have.
    """
    chosen, times, present = places, np.arange(observed.fields), observed.present[:, places]
    if not present.all():
        shared, times = shared_places(present)
        chosen = places[shared]
    found = None
    if gridded and observed.functionals is None and observed.space.has_latitudes:
        found = grid_of_most(observed.north[chosen], observed.east[chosen])
    if found is not None and chosen.size <= MOST_FITTED_DENSE and found[1].size < found[0].size:
        found = None  # so few points with gaps are quicker by a dense factor
    if found is not None:
        grid, kept, places_in_grid = found
        return Sites(chosen[kept], _spread(times, kept.size), "rings", grid, places_in_grid)
    times = _spread(times, min(chosen.size, MOST_CONDITIONALS))
    return Sites(chosen, times, "dense" if observed.functionals is not None else method_of(chosen.size))


def method_of(points: int) -> Method:
    """Choose the likelihood of so many points that are no grid."""
    return "dense" if points <= MOST_FITTED_DENSE else "vecchia"


def _spread(times: Indices, points: int) -> Indices:
    """All times, or evenly spread ones if there are too many values."""
    kept = min(times.size, max(1, MOST_VALUES // points))
    return times[np.linspace(0, times.size - 1, kept).round().astype(np.intp)]


def grid_of_most(
    latitude_degrees: Array, longitude_degrees: Array
) -> tuple[LatLonGrid, Indices, Indices] | None:
    """Find the full-circle grid that points but poles nearly fill: it, which are in it, and where."""
    chosen = np.flatnonzero(~is_pole(latitude_degrees))
    latitude, longitude = latitude_degrees[chosen], longitude_degrees[chosen]
    found = grid_if_any(latitude, longitude) if chosen.size else None
    if found is None or np.unique(longitude).size < found.grid.n_longitudes:
        return None
    return (
        (found.grid, chosen, found.positions)
        if few_gaps(found.grid.size, found.grid.size - chosen.size)
        else None
    )


def residuals_at(sites: Sites, observed: Observations, mean: Mean) -> Array:
    """Values (T, n) at sites without their mean."""
    values = observed.values[np.ix_(sites.times, sites.chosen)]
    return residuals_about(mean, part(observed.sites, sites.chosen), values)


def effective_times(kernel: Kernel, noise: Array, sites: Sites, observed: Observations, mean: Mean) -> float:
    """How many independent fields those at sites, with noise (n,), are worth."""
    return effective_fields(kernel, noise, observed.X[sites.chosen], residuals_at(sites, observed, mean).T)


def fit_numbers(
    kernel: Families,
    observed: Observations,
    sites: Sites,
    *,
    mean: Mean,
    known: Array,
    least: float,
    held: Given | None = None,
    resources: Resources,
    progress: Callable[[FitProgress], None],
    checkpoints: Memo | None = None,
    ellipse: Ellipse | None = None,
    start: Start | None = None,
) -> tuple[FitResult, float]:
    """Fit what is not held of kernel and noise, with a mean of the fields at the sites' times.

    Where noise is known, ``known`` () or (n,), what is fitted is ``least``, its least, with a nugget on top,
    which comes with the result. An ``ellipse`` is fitted from the end of a fit of circles. The search begins
    at ``start`` alone, where it is given.
    """
    values, bounds = observed.values[np.ix_(sites.times, sites.chosen)], dict(held or {})
    own_noise = None if known.ndim == 0 else known[sites.chosen] - least

    def search(kernel: Families, **given: Any) -> FitResult:
        return fit(
            kernel,
            part(observed.sites, sites.chosen) if sites.grid is None else sites.grid,
            values.T if sites.grid is None else sites.on_grid(values),
            mean=mean,
            method=sites.method,
            executor=resources.executor,
            memory_limit_bytes=resources.memory_limit_bytes,
            progress=progress,
            noise_deviations=own_noise,
            checkpoints=checkpoints,
            **given,
        )

    def fitted(bounds: Given | None, kernel: Families = kernel) -> FitResult:
        begin: dict[str, Any] = {} if start is None else {"start": start, "starts": 1}
        found = search(kernel, bounds=bounds, **begin)
        if ellipse is None or isinstance(found.prior.kernel, Directional):
            return found
        return with_ellipse(ellipse, found, partial(search, bounds=bounds))

    if least == 0.0 or NOISE in bounds:
        result = fitted(bounds or None)
        return result, result.prior.noise_number - least
    most = 2.0 * least + 4.0 * float(np.var(residuals_at(sites, observed, mean)))
    result = fit_beside_known_noise(fitted, known=least, most=most, others=bounds)
    return result, max(result.prior.noise_number - least, NO_NUGGET * least)
