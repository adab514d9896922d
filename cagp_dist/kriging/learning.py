"""The prior of a map: given, or fitted to the observations; and its mean for each pattern of gaps."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.checks import check_positive
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.gp import Prior
from cagp_dist.kernels import KERNELS, Elementary, Kernel
from cagp_dist.kriging.observations import Observations, points_of
from cagp_dist.means import mean_family
from cagp_dist.text import alternatives, nearest

if TYPE_CHECKING:
    from cagp_dist.likelihood.result import FitResult
    from cagp_dist.runtime import Executor

MeanLike: TypeAlias = "str | float | Callable[[Array], ArrayLike]"

MOST_DENSE = 2_000
"""Points up to which the likelihood is exact; beyond, blocks of 1,000 neighbours count as independent."""

MOST_POINTS = 100_000
MOST_FIELDS = 30
"""Points and times that a fit uses, evenly spread."""

FEWEST_SHARED = 50
"""Places observed at all times from which on these are what a fit uses."""


@dataclass(frozen=True, eq=False)
class Learned:
    """Kernel and noise of a map.

    Attributes
    ----------
    kernel : Kernel
    noise_variance : array of float64, shape () or (n,)
        Of all observations, or of each place.
    mean : str, number or callable
        Family of the prior mean, whose coefficients are fitted to each field; or the mean itself.
    result : FitResult or None
        The fit, where one was done.
    fitted_to : str
        What decided, for people.
    """

    kernel: Kernel
    noise_variance: Array
    mean: MeanLike
    result: "FitResult | None"
    fitted_to: str

    @property
    def lengthscales(self) -> tuple[float, ...]:
        """Chords: of the kernel, or of each part of a sum."""
        return tuple(part.common_lengthscale for part in self.kernel.parts)

    def prior(self, observed: Observations, places: Mask, fields: Indices) -> Prior:
        """Prior of fields that were observed at the same places (n,); its mean has a column for each."""
        noise = self.noise_variance
        level = float(noise) if noise.ndim == 0 else noise[places]
        return Prior(self.kernel, level, mean_of(self.mean, observed, places, fields))


@dataclass(frozen=True, eq=False)
class Columns:
    """Some columns of a mean that differs between fields."""

    mean: Callable[[Array], ArrayLike]
    columns: Indices

    def __call__(self, X: Array) -> Array:
        """Values at unit vectors X (n, 3): (n,) or (n, T)."""
        values = np.asarray(self.mean(X))
        return values if values.ndim == 1 or values.shape[1] == 1 else values[:, self.columns]


def mean_of(
    mean: MeanLike, observed: Observations, places: Mask, fields: Indices
) -> "float | Callable[[Array], ArrayLike]":
    """Prior mean of fields that were observed at the same places (n,)."""
    if callable(mean):
        return Columns(mean, fields)
    if not isinstance(mean, str):
        return mean
    family = mean_family(mean, variable=observed.name)
    latitude, longitude = observed.latitude_degrees[places], observed.longitude_degrees[places]
    family.check_covers(latitude, longitude)
    times = observed.times
    return family.fit(
        latitude,
        longitude,
        observed.values[np.ix_(fields, places)].T,
        times=None if times is None else times[fields],
    )


def kernel_family(kernel: "str | type[Elementary] | Kernel") -> "type[Elementary] | Kernel":
    """Find the kernel that a name stands for; a class or a kernel stands for itself."""
    if isinstance(kernel, str):
        if kernel in KERNELS:
            return KERNELS[kernel]
        near = nearest(kernel, KERNELS)
        hint = f' Did you mean "{near}"?' if near else ""
        raise ArgumentError(f"kernel is {kernel!r}; expected {alternatives(KERNELS)}.{hint}")
    if isinstance(kernel, Kernel) or (isinstance(kernel, type) and issubclass(kernel, Elementary)):
        return kernel
    raise ArgumentError(f'kernel is {kernel!r}; expected a name, such as "matern32", a kernel or its class.')


def learn(
    observed: Observations,
    *,
    kernel: "str | type[Elementary] | Kernel",
    mean: MeanLike,
    fixed: dict[str, float],
    noise_std: float | None,
    nugget_std: float | None,
    executor: "Executor",
    memory_limit_bytes: int | None,
) -> Learned:
    """Fit what is not known of kernel and noise to the observations, by maximum likelihood.

    Parameters
    ----------
    observed : Observations
        With the noise of each place, where it is known.
    kernel : str, class of Kernel, or Kernel
        The numbers of a kernel that has them are kept.
    mean : str, number or callable
        Taken away before the fit.
    fixed : dict of float
        "lengthscale" and "variance", if they are to be kept.
    noise_std : float or None
        Noise of all observations, where it is known.
    nugget_std : float or None
        What is added to a known noise; None has it fitted.
    executor, memory_limit_bytes
        As for `cagp_dist.fit`.

    Notes
    -----
    The likelihood knows one noise for all points. Where each place has its own, their mean square (and the
    nugget on top of it) stands for them while lengthscale and variance are fitted; the map then uses the
    noise of each place.
    """
    from cagp_dist.likelihood.fit import fit

    family = kernel_family(kernel)
    if isinstance(family, Elementary):
        fixed = {"lengthscale": family.common_lengthscale, "variance": family.variance, **fixed}
        family = type(family)
    bounds = {name: (number, number) for name, number in fixed.items()}
    known = _known_noise(observed, noise_std)
    typical = float(known.mean())
    if typical > 0.0:
        if nugget_std is not None:
            level = typical + nugget_std**2
            bounds["noise_variance"] = (level, level)
        else:
            bounds["noise_variance"] = (typical, max(2.0 * typical, 4.0 * float(np.nanvar(observed.values))))
    if isinstance(family, Kernel):
        if fixed or "noise_variance" not in bounds or nugget_std is None:
            raise ArgumentError(
                f"kernel is {family!r}, whose numbers are kept; expected noise_std beside it, and neither a "
                "lengthscale nor a variance. Or give prior=cagp.Prior(kernel, noise_variance)."
            )
        return Learned(family, known + nugget_std**2, mean, None, "")
    result, where = None, ""
    if len({name for name, (low, high) in bounds.items() if low == high}) == 3:
        chosen: Kernel = family(bounds["lengthscale"][0], bounds["variance"][0])
        noise_variance = bounds["noise_variance"][0]
    else:
        places, fields, where = _decisive(observed)
        centre = mean_of(mean, observed, places, fields)
        X = points_of(observed)[places]
        y = observed.values[np.ix_(fields, places)].T - Prior(family(1.0), 1.0, centre).mean_at(X)
        grid = observed.grid if places.all() else None
        result = fit(
            family,
            X if grid is None else grid,
            y if grid is None else y.T.reshape(-1, *grid.shape),
            mean=0.0,
            bounds=bounds,
            method="rings" if grid is not None else "dense" if len(X) <= MOST_DENSE else "blocks",
            executor=executor,
            memory_limit_bytes=memory_limit_bytes,
        )
        chosen, noise_variance = result.prior.kernel, float(result.prior.noise_variance)
    return Learned(chosen, known + (noise_variance - typical), mean, result, where)


def _known_noise(observed: Observations, noise_std: float | None) -> Array:
    """Variance of the known noise, () or (n,); 0 where nothing is known."""
    if noise_std is not None:
        check_positive("noise_std", noise_std)
        return np.asarray(float(noise_std) ** 2)
    if observed.noise_std is None:
        return np.asarray(0.0)
    seen = (~np.isnan(observed.values)).any(axis=0)
    own = observed.noise_std[seen] ** 2
    if not (own > 0.0).all():
        raise DataError(
            f"the noise is {observed.noise_std[seen][~(own > 0.0)][0]:g} where there are observations; "
            "expected standard deviations above zero."
        )
    if (own == own[0]).all():
        return np.asarray(own[0])
    return np.where(seen, observed.noise_std**2, own.mean())


def _decisive(observed: Observations) -> tuple[Mask, Indices, str]:
    """Choose the places and fields that a fit uses: fields share their places."""
    from cagp_dist.likelihood.observed import spread_cells

    seen = ~np.isnan(observed.values)
    fields = np.arange(len(seen))
    shared: Mask = np.asarray(seen.all(axis=0))
    if shared.sum() < max(FEWEST_SHARED, 0.5 * np.median(seen.sum(axis=1))):
        # the pattern of gaps with the most values
        shared, fields = max(observed.patterns(), key=lambda pattern: pattern[0].sum() * len(pattern[1]))
    if fields.size > MOST_FIELDS:
        fields = fields[np.linspace(0, fields.size - 1, MOST_FIELDS).round().astype(int)]
    if shared.sum() > MOST_POINTS and not (shared.all() and observed.grid is not None):
        there = np.flatnonzero(shared)
        cells = spread_cells(points_of(observed)[there], MOST_POINTS, cell_size=1000)
        shared = np.zeros_like(shared)
        shared[there[cells]] = True
    times = "" if len(seen) == 1 else f", {fields.size} of {len(seen)} fields"
    return shared, fields, f"{int(shared.sum()):,} of {int(seen.any(axis=0).sum()):,} observed places{times}"
