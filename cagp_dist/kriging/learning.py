"""The prior of a map: given, or fitted to the observations; and its mean for each pattern of gaps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Indices
from cagp_dist.checks import check_positive
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.kernels import FITTED, Family, Kernel, Matern, chosen_by, families_of
from cagp_dist.kriging.given_numbers import check_chords
from cagp_dist.kriging.narration import Outlook
from cagp_dist.kriging.observed_objects import ObservedObject, points_of
from cagp_dist.likelihood.kernel_choice import CANDIDATES, KERNELS_COMPARED
from cagp_dist.likelihood.numbering import is_family
from cagp_dist.mapping.defaults import NO_NUGGET
from cagp_dist.mapping.fitting import Sites, choose_sites, fit_numbers
from cagp_dist.means import MeanFamily, mean_family
from cagp_dist.prior import EstimatedMean, Mean, Prior
from cagp_dist.variables import range_error, variable_named
from cagp_dist.variables.units import conversion

if TYPE_CHECKING:
    from cagp_dist.kriging.narration import Narrator
    from cagp_dist.likelihood.bounds import Given
    from cagp_dist.likelihood.duration import FitSize
    from cagp_dist.likelihood.exact.integrated import Integrated
    from cagp_dist.likelihood.fit_result import FitResult
    from cagp_dist.runtime import Executor

KernelLike: TypeAlias = str | Family | type[Matern] | Sequence[Family] | Kernel
MeanLike: TypeAlias = "str | Mean"

GIVEN = "Every number was given."
"""Said of the numbers of a prior that needs no fit."""


@dataclass(frozen=True, eq=False)
class FittedModel:
    """Kernel and noise of a map.

    Attributes
    ----------
    kernel : Kernel
    noise_variance : array of float64, shape () or (n,)
        Of all observations, or of each place.
    mean : str, number, callable or EstimatedMean
        Family of the prior mean, whose coefficients are fitted to each field; or the mean itself.
    result : FitResult or None
        The fit, where one was done.
    fitted_to : str
        What decided, for people.
    held : mapping of str
        Numbers that were held in the fit, by name, and why.
    known_noise : array of float64, shape () or (n,)
        Noise variance that was known before, of all observations or of each place; 0 where none was.
    integrated : Integrated or None
        The posterior of the numbers, where they are integrated over.
    numbers : str
        Whether they are, and why, for people.
    """

    kernel: Kernel
    noise_variance: Array
    mean: MeanLike
    result: "FitResult | None"
    fitted_to: str
    held: Mapping[str, str] = field(default_factory=dict)
    known_noise: Array = field(default_factory=lambda: np.asarray(0.0))
    integrated: "Integrated | None" = None
    numbers: str = GIVEN

    @property
    def lengthscales(self) -> tuple[float, ...]:
        """Chords: of the kernel, or of each part of a sum."""
        return tuple(part.common_lengthscale for part in self.kernel.parts)

    @property
    def mean_text(self) -> str | int | float:
        """The mean for people."""
        if isinstance(self.mean, (str, int, float)):
            return self.mean
        if isinstance(self.mean, EstimatedMean) and not callable(self.mean):
            return f"estimated with the field: {', '.join(self.mean.coefficient_names)}"
        return repr(self.mean)

    def prior(self, observed: ObservedObject, places: Indices, fields: Indices) -> Prior:
        """Prior of fields that were observed at the same places; its mean has a column for each."""
        noise = self.noise_variance
        level = float(noise) if noise.ndim == 0 else noise[places]
        return Prior(self.kernel, level, mean_of(self.mean, observed, places, fields))


@dataclass(frozen=True, eq=False)
class MeanColumns:
    """Some columns of a mean that differs between fields."""

    mean: Callable[[Array], ArrayLike]
    columns: Indices

    def __call__(self, X: Array) -> Array:
        """Values at unit vectors X (n, 3): (n,) or (n, T)."""
        values = np.asarray(self.mean(X))
        return values if values.ndim == 1 or values.shape[1] == 1 else values[:, self.columns]


@dataclass(frozen=True, eq=False)
class Converted:
    """A mean in the units of the observations: ``factor * observation + offset`` is in those of the mean."""

    mean: Callable[[Array], ArrayLike]
    factor: float
    offset: float

    def __call__(self, X: Array) -> Array:
        """Values at unit vectors X (n, 3): (n, T)."""
        return np.asarray((np.asarray(self.mean(X)) - self.offset) / self.factor)


def mean_of(mean: MeanLike, observed: ObservedObject, places: Indices, fields: Indices) -> Mean:
    """Prior mean of fields that were observed at the same places."""
    if callable(mean):
        return MeanColumns(mean, fields)
    if not isinstance(mean, str):
        return mean
    family = mean_family(mean, variable=observed.name)
    latitude, longitude = observed.latitude_degrees[places], observed.longitude_degrees[places]
    family.check_covers(latitude, longitude)
    times = observed.times
    factor, offset = _into_units_of(family, observed)
    fitted = family.fit(
        latitude,
        longitude,
        factor * observed.values[np.ix_(fields, places)].T + offset,
        times=None if times is None else times[fields],
    )
    return fitted if (factor, offset) == (1.0, 0.0) else Converted(fitted, factor, offset)


def _into_units_of(family: MeanFamily, observed: ObservedObject) -> tuple[float, float]:
    """Factor and offset that bring the observations to the units of a mean."""
    if not family.units:
        return 1.0, 0.0
    units = observed.attributes.get("units", "")
    found = conversion(units, family.units)
    if found is None:
        raise ArgumentError(
            f"the mean is in {family.units!r} and the observations are in {units!r}; expected units that "
            'convert. Name those of the observations, units="...", convert one of them, or take another mean.'
        )
    variable = variable_named(observed.name)
    low, high = float(np.nanmin(observed.values)), float(np.nanmax(observed.values))
    if not units and not variable.is_temperature and range_error(variable, low, high, units) is not None:
        raise ArgumentError(
            f"the mean is in {family.units!r} and the observations, which reach from {low:g} to {high:g}, "
            'state no units; name them, units="...".'
        )
    return (1.0, 0.0) if found[0] == 1.0 else found  # a shift, such as that of Celsius, is fitted anyway


def families(kernel: KernelLike) -> tuple[Family, ...]:
    """Families of the parts of a kernel that is given by its name, by classes, or with its numbers.

    One that is to be chosen stands for the one that is kept where nothing is fitted.
    """
    if chosen_by(kernel) is not None:
        return CANDIDATES[:1]
    if isinstance(kernel, str):
        return families_of(kernel)
    if isinstance(kernel, Kernel):
        return tuple(part.family for part in kernel.parts)
    parts = tuple(kernel) if isinstance(kernel, Sequence) else (kernel,)
    if not parts or not all(is_family(part) for part in parts):
        raise ArgumentError(
            f'kernel is {kernel!r}; expected "auto", a name, such as "matern32" or "matern32 + matern32", '
            "a kernel, or its class."
        )
    return cast("tuple[Family, ...]", parts)


def with_noise_of_prior(observed: ObservedObject, prior: Prior | None) -> ObservedObject:
    """Take over the noise of each place from a prior that has it."""
    if prior is None:
        return observed
    if not isinstance(prior, Prior):
        raise ArgumentError(f"prior is {prior!r}; expected a cagp.Prior, or None to have it fitted.")
    if not isinstance(prior.noise_variance, np.ndarray):
        return observed
    noise, n = prior.noise_variance, observed.latitude_degrees.size
    shapes = [(n,)] if observed.where is None else list(dict.fromkeys([(n,), observed.where.shape]))
    if noise.shape not in shapes:
        raise ArgumentError(
            f"the prior has a noise_variance of shape {noise.shape}; expected one number, or an array of "
            f"shape {' or '.join(map(str, shapes))}, one for each place in the order of the observations."
        )
    return replace(observed, noise_std=np.sqrt(noise.reshape(-1)))


def from_prior(observed: ObservedObject, prior: Prior) -> FittedModel:
    """Take kernel, noise and mean from a prior, of observations with its noise and their poles merged."""
    check_chords("prior", prior.kernel)
    noise = np.asarray(prior.noise_variance, dtype=np.float64)
    if noise.ndim and observed.noise_std is not None:
        noise = noise.reshape(-1)
        merged = observed.noise_std != np.sqrt(noise)  # copies of a pole
        noise = np.where(merged, observed.noise_std**2, noise)
    return FittedModel(prior.kernel, noise, prior.mean, None, "")


def learn(
    observed: ObservedObject,
    *,
    kernel: KernelLike,
    mean: MeanLike,
    fixed: Mapping[str, Sequence[float]],
    noise_std: float | None,
    nugget_std: float | None,
    executor: "Executor",
    memory_limit_bytes: int | None,
    narrator: "Narrator",
) -> FittedModel:
    """Fit what is not known of kernel and noise to the observations, by maximum likelihood."""
    from cagp_dist.likelihood.duration import FitCourse, FitSize

    parts = families(kernel)
    if isinstance(kernel, Kernel):
        if fixed:
            raise ArgumentError(
                f"kernel is {kernel!r}, whose numbers are kept, and {' and '.join(fixed)} were given; "
                "expected one or the other."
            )
        check_chords("kernel", kernel)
        fixed = {
            "lengthscale": tuple(part.common_lengthscale for part in kernel.parts),
            "variance": tuple(part.variance for part in kernel.parts),
        }
    known = _known_noise(observed, noise_std)
    least = float(known.min())
    _check_nugget(nugget_std, known=least > 0.0)
    bounds: dict[str, Sequence[object]] = {name: _held(name, held, parts) for name, held in fixed.items()}
    level = None if nugget_std is None or least == 0.0 else least + nugget_std**2
    if level is not None:
        bounds["noise_variance"] = (level, level)
    reasons = dict.fromkeys(bounds, "it was given")
    if level is not None and len(fixed) == 2:
        if chosen_by(kernel) == FITTED:
            raise ArgumentError(
                f"kernel is {kernel!r}, whose smoothness is fitted, and every number was given; expected a "
                'kernel with its smoothness, such as "matern(0.8)", or a number less.'
            )
        noise = known + (level - least)
        return FittedModel(
            _kernel_of(kernel, parts, fixed), noise, mean, None, "", reasons, known_noise=known
        )
    sites = _sites(observed, gridded=known.ndim == 0)
    centre = mean_of(mean, observed, sites.chosen, sites.times)
    estimated = centre if isinstance(centre, EstimatedMean) and not callable(centre) else None
    X = points_of(observed)[sites.chosen]
    values = observed.values[np.ix_(sites.times, sites.chosen)]
    if estimated is None:
        values = values - Prior(parts[0](1.0), 1.0, centre).mean_at(X).T
    size = FitSize(
        sites.method,
        len(X),
        len(parts),
        None if sites.grid is None else sites.grid.shape,
        sites.missing,
        deviating=known.ndim > 0,
        kernels=KERNELS_COMPARED.get(chosen_by(kernel) or "", 1),
    )
    narrator.expect(_outlook(size, executor))
    narrator.announce()
    course = FitCourse(size, executor.workers)
    with narrator.stage("fit") as report:
        result, nugget = fit_numbers(
            chosen_by(kernel) or parts,
            X,
            values,
            sites,
            mean=estimated,
            known=known if known.ndim == 0 else known[sites.chosen],
            least=least,
            held=cast("Given", bounds),
            executor=executor,
            memory_limit_bytes=memory_limit_bytes,
            progress=lambda state: report(course.fraction(state.points)),
        )
    if least > 0.0 and level is None and nugget <= NO_NUGGET * least:
        reasons["noise_variance"] = "no nugget was found beside the known noise"
    noise = known + nugget
    return FittedModel(result.prior.kernel, noise, mean, result, sites.where, reasons, known_noise=known)


def _outlook(size: "FitSize", executor: "Executor") -> Outlook:
    """Say what a fit is going to take."""
    from cagp_dist.likelihood.duration import fit_seconds

    return Outlook(
        "fit",
        f"kernel and noise by {size.points:,} observations",
        fit_seconds(size, workers=executor.workers),
        0,
        "Give lengthscale_km, variance and noise_std, which are then not fitted, or fewer observations.",
    )


def fit_advice(result: "FitResult") -> str:
    """Say how a fit ended and, if it did not end well, what callers of `krige` can change."""
    status = result.status
    if status.ok:
        return status.advice
    which = f" ({' and '.join(result.at_bound)})" if result.at_bound else ""
    return (
        f"{status.meaning}{which} Give one of the numbers (lengthscale_km, variance, noise_std or "
        "nugget_std), try another kernel or mean, or give more or closer observations."
    )


def _held(name: str, held: Sequence[float], parts: Sequence[Family]) -> Sequence[object]:
    """Bounds that hold the number of each part of a kernel."""
    if len(held) != len(parts):
        raise ArgumentError(
            f"{name} is {held[0] if len(held) == 1 else tuple(held)!r}; the kernel has {len(parts)} "
            f"part{'s' if len(parts) != 1 else ''}: expected a number for each."
        )
    pairs = tuple((number, number) for number in held)
    return pairs[0] if len(pairs) == 1 else pairs


def _kernel_of(kernel: KernelLike, parts: Sequence[Family], fixed: Mapping[str, Sequence[float]]) -> Kernel:
    if isinstance(kernel, Kernel):
        return kernel
    kernels: list[Kernel] = [
        part(*numbers) for part, *numbers in zip(parts, fixed["lengthscale"], fixed["variance"], strict=True)
    ]
    return reduce(add, kernels)


def _known_noise(observed: ObservedObject, noise_std: float | None) -> Array:
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


def _check_nugget(nugget_std: float | None, *, known: bool) -> None:
    """Refuse a nugget that is none, or that would be added to nothing."""
    if nugget_std is None or nugget_std == 0.0:
        return
    check_positive("nugget_std", nugget_std)
    if not known:
        raise ArgumentError(
            f"nugget_std is {nugget_std:g}, which is added to a known noise, and none is known; expected "
            "noise_std beside it, a number or a column. Without either the noise is fitted."
        )


def _sites(observed: ObservedObject, *, gridded: bool) -> Sites:
    """Choose the places and fields that a fit uses."""
    seen, there = ~np.isnan(observed.values), observed.there
    sites = choose_sites(
        observed.latitude_degrees[there],
        observed.longitude_degrees[there],
        seen[:, there],
        gridded=gridded and observed.window is not None,
    )
    times = "" if len(seen) == 1 else f", {sites.times.size} of {len(seen)} fields"
    where = f"{sites.chosen.size:,} of {there.size:,} observed places{times}"
    return replace(sites, chosen=there[sites.chosen], where=where)
