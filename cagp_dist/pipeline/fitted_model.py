"""The prior of a map: given, or fitted to the observations; and its mean for each pattern of gaps."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import NamedTuple, cast

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.checks import check_positive
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.factors import Anisotropic, Directional, SameLabel, check_shape
from cagp_dist.kernels import (
    DEPTH,
    FITTED,
    VARIABLE,
    Elementary,
    Family,
    Kernel,
    MaternOf,
    Sum,
    chosen_by,
    families_of,
    lengthscales_in_space,
)
from cagp_dist.likelihood.bounds import Given
from cagp_dist.likelihood.ellipses import (
    AnisotropyLike,
    Ellipse,
    check_anisotropy,
    ellipse_on_globe,
    lie_on_a_line,
    shape_errors,
)
from cagp_dist.likelihood.exact.integrated import Integrated
from cagp_dist.likelihood.fit_result import FitProgress, FitResult, FitStatus, each
from cagp_dist.likelihood.kernel_choice import CANDIDATES
from cagp_dist.likelihood.negligible import noise_is_negligible
from cagp_dist.likelihood.numbering import NAMES, Model, Numbering, is_family
from cagp_dist.likelihood.starts import Start
from cagp_dist.means import MEANS, EstimatedMean
from cagp_dist.pipeline.background import Background, over_scale
from cagp_dist.pipeline.defaults import INTERVAL, NO_NUGGET
from cagp_dist.pipeline.fitting import Sites, choose_sites, fit_numbers
from cagp_dist.pipeline.map_mean import MeanLike, MeansByLabel, is_estimated, is_read, mean_of, mean_of_all
from cagp_dist.pipeline.model_settings import FitWork, KernelLike, ModelSettings
from cagp_dist.pipeline.observations import Observations
from cagp_dist.pipeline.outliers import Contamination
from cagp_dist.prior import KnownPlusEstimated, Mean, Prior
from cagp_dist.remedies import Setting
from cagp_dist.space.sphere import one_or_all
from cagp_dist.space_time import SpaceTime

GIVEN = "Every number was given."  # Said of the numbers of a prior that needs no fit


class NumberError(NamedTuple):
    """Standard error of the lengthscale, variance or noise_variance; NaN where there is none, and why."""

    kind: str
    value: float
    why: str


class Correlations(NamedTuple):
    """How fields of several variables go together at one place, and how well that is known."""

    values: Array  # (m, m)
    standard_errors: Array  # (m, m), NaN where there is none

    def attributes(self, names: Sequence[str]) -> dict[str, float]:
        """Say them by pairs of names."""
        said: dict[str, float] = {}
        for first, second in combinations(range(len(names)), 2):
            pair = f"correlation_{names[first]}_{names[second]}"
            said[pair] = float(self.values[first, second])
            said[f"{pair}_standard_error"] = float(self.standard_errors[first, second])
        if len(names) == 2:
            said["correlation"] = float(self.values[0, 1])
        return said


@dataclass(frozen=True, eq=False)
class FittedModel:
    """Kernel, noise and mean of a map."""

    kernel: Kernel
    mean: MeanLike  # a family, whose coefficients are fitted to each field; or the mean itself
    known_noise: Array  # variance () of all observations, or (n,) of each place; 0 where none is known
    nugget: float = 0.0  # variance beside it; of all noise, where none is known
    result: FitResult | None = None  # the fit, where one was done
    fitted_to: str = ""  # what decided, for people
    held: Mapping[str, str] = field(default_factory=dict)  # numbers held in the fit, and why
    sites: Sites | None = None  # points and times of the fit; None of a kernel of space and time
    integrated: Integrated | None = None  # the posterior of the numbers, where they are integrated over
    # models with numbers that are as probable as their weights say, by which errors of the map are counted
    likely: "tuple[tuple[float, FittedModel], ...]" = ()
    drawn_intervals: Mapping[str, list[float]] = field(default_factory=dict)  # of numbers that are drawn
    numbers: str = GIVEN  # whether they are, and why, for people
    correlations: Correlations | None = None  # of several variables
    # (m,) of several variables: the noise of each beside what is known of it, all of it, and that part of it
    # which the kernel has; ``known_noise`` has the rest
    nuggets: Array | None = None
    nuggets_of_kernel: Array | None = None
    excess: Array | None = None  # variance (n,) beside that of values that may be wrong
    outliers: Contamination | None = None  # which these are, where that was asked for

    @property
    def noise_variance(self) -> Array:
        """Of an observation, () of all or (n,) of each place; wider where it may be wrong."""
        usual = np.asarray(self.known_noise + self.nugget)
        return usual if self.excess is None else np.asarray(usual + self.excess)

    @property
    def usual_noise_variance(self) -> Array:
        """Of an observation that is right, () of all or (n,) of each place."""
        return np.asarray(self.known_noise + self.nugget)

    def noise_of(self, known: Array) -> Array:
        """Noise variance of observations (k,) of which so much is known, as of `known_noise`.

        Of numbers that are integrated over, the mean of it.
        """
        found = self.integrated
        if found is None or (found.held.noise and not found.held.nugget):
            return np.asarray(known + self.nugget)
        spread = 1.0 if np.isinf(found.degrees) else found.degrees / (found.degrees - 2.0)
        own = known if found.held.noise else np.ones_like(known)
        return np.asarray(spread * np.tensordot(found.weights, found.noise_variances(own), axes=1))

    def known_of(self, known: Array, labels: Indices | None) -> Array:
        """Give what `noise_of` takes of observations (k,) of which so much is known: with own nuggets."""
        return known if self.nuggets is None or labels is None else known + self.nuggets[labels]

    def usual_known_noise(self, observed: Observations) -> float:
        """Give what is known of the noise of most places: the median, which a few bad values do not move."""
        if self.known_noise.ndim == 0:
            return float(self.known_noise)
        there = observed.there
        if observed.in_time:  # each place once
            there = there[np.unique(observed.positions[there], axis=0, return_index=True)[1]]
        return float(np.median(self.known_noise[there]))

    def usual_noise(self, observed: Observations) -> float:
        """Noise variance of a new observation, with what is usually known of it."""
        return float(self.noise_of(np.array([self.usual_known_noise(observed)]))[0])

    def of_observations(self, observed: Observations, noise_std: float | None = None) -> "FittedModel":
        """Take what is known of the noise of other observations than those of the fit."""
        if self.likely:
            own = ((weight, model.of_observations(observed, noise_std)) for weight, model in self.likely)
            return replace(replace(self, likely=()).of_observations(observed, noise_std), likely=tuple(own))
        if self.nuggets is not None and self.nuggets_of_kernel is not None:
            labels = observed.beside[VARIABLE].astype(np.intp)
            given = 0.0 if observed.noise_variance is None else observed.noise_variance
            return replace(self, known_noise=given + (self.nuggets - self.nuggets_of_kernel)[labels])
        return replace(self, known_noise=known_noise(observed, observed.there, noise_std))

    @property
    def lengthscales(self) -> tuple[float, ...]:
        """Chords: of the kernel, or of each part of a sum."""
        return lengthscales_in_space(self.kernel)

    @property
    def field_variance(self) -> float:
        """Prior variance of the field, without errors that observations share."""
        return float(sum(part.variance for part in self.field_kernel.parts))

    @property
    def bias_std(self) -> dict[str, float]:
        """Standard deviations of errors that observations with the same label share, by their axes."""
        shared = (part for part in self.kernel.parts if isinstance(part, SameLabel))
        return {part.axis: float(np.sqrt(part.variance)) for part in shared}

    @property
    def bias_std_errors(self) -> dict[str, float]:
        """Standard errors of these, NaN where there are none; they stand last among the fitted variances."""
        stds = self.bias_std
        own = np.full(len(stds), np.nan)
        if self.result is not None and stds:
            own = np.sqrt(self.result.log_covariance.diagonal()[-1 - len(stds) : -1])
        return {axis: float(0.5 * std * error) for (axis, std), error in zip(stds.items(), own, strict=True)}

    @property
    def field_kernel(self) -> Kernel:
        """Kernel of the field, without errors that observations share."""
        parts = tuple(part for part in self.kernel.parts if not isinstance(part, SameLabel))
        if len(parts) == len(self.kernel.parts):
            return self.kernel
        return parts[0] if len(parts) == 1 else Sum(parts)

    @property
    def hours(self) -> tuple[float, ...]:
        """Lengthscales in time, of kernels of space and time."""
        return tuple(part.hours for part in self.kernel.parts if isinstance(part, SpaceTime))

    @property
    def depths(self) -> tuple[float, ...]:
        """Lengthscales in depth, of kernels of space and depth."""
        parts = self.kernel.parts
        pairs = (pair for part in parts for pair in zip(part.numbers, part.number_axes, strict=True))
        return tuple(number for number, axis in pairs if axis == DEPTH)

    @property
    def ellipses(self) -> dict[str, float | list[float]]:
        """How the kernel is stretched, and how well that is known where it was fitted, by name."""
        factors = (factor for part in self.field_kernel.parts for factor in part.factors)
        shapes = [factor for factor in factors if isinstance(factor, Directional)]
        if not shapes:
            return {}
        said: dict[str, float | list[float]] = {
            "anisotropy_ratio": one_or_all([float(shape.ratio) for shape in shapes]),
            "anisotropy_azimuth_degrees": one_or_all([float(shape.azimuth_degrees) for shape in shapes]),
        }
        if isinstance(shapes[0], Anisotropic) and shapes[0].centre is not None:
            said["anisotropy_centre"] = list(shapes[0].centre)
        if self.result is not None and len(shapes) == 1 and not shapes[0].held:
            of_ratio, of_azimuth = shape_errors(self.result)
            said["anisotropy_ratio_standard_error"] = float(shapes[0].ratio * of_ratio)
            if isinstance(shapes[0], Anisotropic):
                said["anisotropy_azimuth_degrees_standard_error"] = of_azimuth
        return said

    @property
    def draws_numbers(self) -> bool:
        """Whether `likely` are draws of numbers beside censored values, whose mixture is the prediction."""
        return bool(self.drawn_intervals)

    @property
    def averages(self) -> bool:
        """Whether numbers are integrated over, on a grid or by draws beside censored values."""
        return self.integrated is not None or self.draws_numbers

    @property
    def intervals(self) -> Mapping[str, list[float]]:
        """Quantiles at `INTERVAL` of numbers that are integrated over, by name; none of others."""
        return self.drawn_intervals if self.integrated is None else self.integrated.quantiles(INTERVAL)

    def with_mean(self, mean: MeanLike) -> "FittedModel":
        """Take another mean."""
        likely = tuple((weight, model.with_mean(mean)) for weight, model in self.likely)
        return replace(self, mean=mean, likely=likely)

    @property
    def is_doubtful(self) -> bool:
        """Whether numbers are plugged in that the fit did not find."""
        return not self.averages and not self.fit_is_usable

    @property
    def fit_is_usable(self) -> bool:
        """Whether a fit found its numbers, but for a noise that is too small to be found."""
        result = self.result
        if result is None or result.status.ok:
            return True
        # tables of covariances have directions that hardly matter, and ends where two variables go as one
        if self.correlations is not None and result.status in (FitStatus.FLAT, FitStatus.AT_BOUND):
            return True
        return self.noise_is_negligible

    @property
    def noise_is_negligible(self) -> bool:
        """Whether all that a fit did not determine is a noise so small that it makes no difference."""
        if self.result is None:
            return False
        # what is fitted of the noise, beside what is known of it
        beside = Prior(self.kernel, self.nugget) if self.nugget > 0.0 else self.result.prior
        return noise_is_negligible(self.result, beside)

    @property
    def mixes(self) -> bool:
        """Whether each observation has a mixture that all others give it, of numbers integrated over."""
        return self.integrated is not None and not is_read(self.mean)

    @property
    def estimates_mean(self) -> bool:
        """Whether coefficients of the mean are estimated with the field."""
        if isinstance(self.mean, Background):
            return self.mean.estimated is not None
        return is_estimated(self.mean)

    @property
    def mean_text(self) -> str | int | float:
        """The mean for people."""
        if isinstance(self.mean, (str, int, float)):
            return self.mean
        if isinstance(self.mean, MeansByLabel):
            return self.mean.text
        if isinstance(self.mean, Background):
            names = () if self.mean.estimated is None else self.mean.estimated.coefficient_names
            beside = f", and estimated with the field: {', '.join(names)}" if names else ""
            return f"background {self.mean.guess.field.name}{beside}"
        for name, family in MEANS.items():
            if isinstance(self.mean, type(family)) and family == self.mean:
                return name
        if isinstance(self.mean, EstimatedMean) and not callable(self.mean):
            return f"estimated with the field: {', '.join(self.mean.coefficient_names)}"
        return repr(self.mean)

    def standard_errors(self) -> Iterator[NumberError]:
        """Give the standard errors of the fitted numbers, of a sum of kernels for each part."""
        if (result := self.result) is None or self.correlations is not None:
            return
        numbering = Numbering.of_kernel(result.prior.kernel)
        ends = numbering.lengthscales, numbering.lengthscales + numbering.parts
        for kind, own in zip(NAMES, np.split(np.array(numbering.names), ends), strict=True):
            for name, value in zip(own, np.ravel(each(getattr(result.standard_errors, kind))), strict=True):
                if not name.startswith(kind):  # of an ellipse
                    continue
                why = self.held.get(
                    kind, "it is at its bound" if name in result.at_bound else "it is not determined"
                )
                yield NumberError(kind, float(value), why if np.isnan(value) else "")

    def prior(self, observed: Observations, places: Indices, fields: Indices | None = None) -> Prior:
        """Prior of all fields, over their scale, or of some with the same gaps; a mean has a column each."""
        noise = self.noise_variance
        level: float | Array = float(noise) if noise.ndim == 0 else noise[places]
        if fields is None:
            mean = mean_of_all(self.mean, observed, places)
        else:
            mean = mean_of(self.mean, observed, places, fields)
        if (scale := self.scale(observed)) is None:
            return Prior(self.kernel, level, mean)
        return Prior(self.kernel, level / scale(observed.X[places]) ** 2, over_scale(mean, scale))

    def scale(self, observed: Observations) -> Callable[[Array], Array] | None:
        """By what the field is divided before kernel and solvers see it; None where by nothing."""
        mean = self.mean
        return (
            partial(mean.scale_at, observed=observed)
            if isinstance(mean, Background) and mean.scales
            else None
        )


def given_model(observed: Observations, prior: Prior) -> FittedModel:
    """Take kernel, noise and mean as they are given; observations may have a noise of their own."""
    noise, own = prior.noise_variance, observed.noise_variance
    if own is None and isinstance(noise, float | int):
        return FittedModel(prior.kernel, prior.mean, np.asarray(0.0), float(noise))
    return FittedModel(prior.kernel, prior.mean, np.asarray(noise) if own is None else own)


def families(kernel: KernelLike) -> tuple[Family, ...]:
    """Families of the parts of a kernel; of one that is to be chosen, those kept without a fit."""
    if chosen_by(kernel) is not None:
        return CANDIDATES[:1]
    if isinstance(kernel, str):
        return families_of(kernel)
    if isinstance(kernel, Kernel):
        held = (part.kept if isinstance(part, Directional) else part for part in kernel.parts)
        return tuple(part.family for part in held)
    parts = tuple(kernel) if isinstance(kernel, Sequence) else (kernel,)
    if not parts or not all(is_family(part) for part in parts):
        raise ArgumentError(
            f'kernel is {kernel!r}; expected "auto", a name, such as "matern32" or "matern32 + matern32", '
            "a kernel, or its class.",
            key="kernel-unknown",
        )
    return cast("tuple[Family, ...]", parts)


def fit_model(
    observed: Observations,
    asked: ModelSettings,
    work: FitWork,
    *,
    places: Indices | None = None,
    start: Start | None = None,
    sites: Sites | None = None,
) -> FittedModel:
    """Fit what is not given of kernel and noise to observed places (all), by maximum likelihood.

    Those that decide are ``sites``, by default `sites_of_fit`. The search begins at ``start`` alone, where it
    is given.
    """
    kernel, anisotropy, nugget_std = asked.kernel, asked.anisotropy, asked.nugget_std
    places = observed.there if places is None else places
    parts, ellipse = families(kernel), ellipse_of(anisotropy, observed)
    if ellipse is not None and not all(isinstance(part, type | MaternOf) for part in parts):
        raise ArgumentError(
            f"kernel is {kernel!r}, with a shape of its own, and anisotropy is {anisotropy!r}; expected one "
            "of them.",
            key="kernel-and-numbers",
        )
    if ellipse is not None and len(parts) > 1:
        raise ArgumentError(
            f"anisotropy is {anisotropy!r} and the kernel is a sum, {kernel!r}; expected a kernel with one "
            "lengthscale, or one with ellipses: cagp.Anisotropic(...) + cagp.Anisotropic(...).",
            key="anisotropy-of-sum",
        )
    known = known_noise(observed, places, asked.noise_std)
    least = float(known.min() if known.ndim == 0 else known[places].min())
    _check_nugget(nugget_std, known=least > 0.0)
    bounds: dict[str, Sequence[object]] = {
        name: _held(name, held, parts) for name, held in asked.fixed.items()
    }
    level = None if nugget_std is None or least == 0.0 else least + nugget_std**2
    if level is not None:
        bounds["noise_variance"] = (level, level)
    reasons = dict.fromkeys(bounds, "it was given")
    if level is not None and len(asked.fixed) == 2:
        if chosen_by(kernel) == FITTED:
            raise ArgumentError(
                f"kernel is {kernel!r}, whose smoothness is fitted, and every number was given; expected a "
                'kernel with its smoothness, such as "matern(0.8)", or a number less.',
                key="nothing-to-fit",
            )
        given = kernel
        if not isinstance(given, Kernel):
            lengthscales, variances = (
                cast("Sequence[float]", asked.fixed[name]) for name in ("lengthscale", "variance")
            )
            given = Model(parts).kernel(lengthscales, variances)
        if ellipse is not None and ellipse.shape is not None and isinstance(given, Elementary):
            given = ellipse.of(given)
            ellipse = None
        if ellipse is None:
            return FittedModel(given, asked.mean, known, level - least, held=reasons, excess=observed.excess)
    sites = sites_of_fit(observed, places) if sites is None else sites
    text = f"fitting kernel and noise to {sites.chosen.size:,} observations"
    with work.narrator.stage("fit", text) as report:

        def said(state: FitProgress) -> None:
            report(None, f"likelihood {state.evaluations}")
            if work.progress is not None:
                work.progress(state)

        result, nugget = fit_numbers(
            chosen_by(kernel) or parts,
            observed,
            sites,
            mean=mean_of(asked.mean, observed, sites.chosen, sites.times),
            known=known if observed.excess is None else known + observed.excess,
            least=least,
            held=cast(Given, bounds),
            resources=work.resources,
            progress=said,
            checkpoints=work.checkpoints,
            ellipse=ellipse,
            start=start,
        )
    what = "values" if VARIABLE in observed.beside else "places"  # a place has one of each variable
    fitted_to = f"{sites.chosen.size:,} of {places.size:,} observed {what}"
    if observed.fields > 1:
        fitted_to += f", {sites.times.size} of {observed.fields} fields"
    if least > 0.0 and level is None and nugget <= NO_NUGGET * least:
        reasons["noise_variance"] = "no nugget was found beside the known noise"
    return FittedModel(
        result.prior.kernel,
        asked.mean,
        known,
        nugget,
        result,
        fitted_to,
        reasons,
        sites,
        excess=observed.excess,
    )


def ellipse_of(asked: AnisotropyLike, observed: Observations) -> Ellipse | None:
    """Give what is said of ellipses of these observations; None where circles are asked for."""
    checked, X = check_anisotropy(asked), observed.positions[observed.there]
    if checked == "none":
        return None
    if not isinstance(checked, str):
        check_shape(*checked)
    if isinstance(checked, str) and lie_on_a_line(X):
        if checked == "auto":  # as far as is known, nothing depends on the direction
            return None
        raise ArgumentError(
            "all places lie on a line, which tells nothing of how far the field reaches across; expected "
            "places in two directions, ratio and azimuth, or no anisotropy.",
            key="anisotropy-on-line",
        )
    return ellipse_on_globe(checked, X) if observed.space.has_latitudes else Ellipse(checked, None)


def sites_of_fit(observed: Observations, places: Indices | None = None) -> Sites:
    """Choose the places and fields that decide, of all or of some; rings take the same noise everywhere."""
    places = observed.there if places is None else places
    return choose_sites(observed, places, gridded=observed.gridded and observed.noise_by_place is None)


def _held(
    name: str, held: Sequence[float | tuple[float, float]], parts: Sequence[Family]
) -> Sequence[object]:
    """Bounds that hold the number of each part of a kernel, or keep it between two."""
    if len(held) != len(parts):
        raise ArgumentError(
            f"{name} is {held[0] if len(held) == 1 else tuple(held)!r}; the kernel has {len(parts)} "
            f"part{'s' if len(parts) != 1 else ''}: expected a number for each.",
            key="numbers-of-parts",
        )
    pairs = tuple(number if isinstance(number, tuple) else (number, number) for number in held)
    return pairs[0] if len(pairs) == 1 else pairs


def no_nugget(known: Array) -> float:
    """Give what stands for no nugget beside known noise variances (), (n,), where zero cannot be stated."""
    positive = known[known > 0.0]
    return NO_NUGGET * float(positive.min() if positive.size else 1.0)


def known_noise(observed: Observations, there: Indices, noise_std: float | None) -> Array:
    """Variance of the known noise, () or (n,); 0 where nothing is known."""
    if noise_std is not None:
        check_positive("noise_std", noise_std)
        return np.asarray(float(noise_std) ** 2)
    if observed.noise_variance is None:
        return np.asarray(0.0)
    every, own = observed.noise_variance, observed.noise_variance[there]
    if not (own > 0.0).all():
        raise DataError(
            f"the noise is {np.sqrt(own[~(own > 0.0)][0]):g} where there are observations; "
            "expected standard deviations above zero.",
            key="noise-std",
        )
    if (every == own[0]).all():
        return np.asarray(own[0])
    return np.where(every > 0.0, every, own.mean())


def innovations_over_scale(
    observed: Observations, background: Background, noise_std: float | None
) -> tuple[Observations, Mean]:
    """Innovations over the standard deviation of the background's error, with noise and mean likewise."""
    there = observed.there
    known = np.broadcast_to(known_noise(observed, there, noise_std), observed.north.shape)
    if not (known[there] > 0.0).all():
        raise ArgumentError(
            "background_std is a field, and nothing is known of the noise of the observations, which cannot "
            "be told from it then; expected noise_std, a number or a column.",
            key="background-noise",
            remedies=(Setting("noise_std", 0.5, "or what it is"),),
        )
    scale = np.ones(known.size)
    scale[there] = background.scale_at(observed.X[there], observed)
    values = observed.values.copy()
    mean = background.known_of(observed, np.arange(observed.fields))
    values[:, there] = (values[:, there] - mean(observed.X[there]).T) / scale[there]
    left: Mean = 0.0
    if background.estimated is not None:
        whole = background.mean_of(observed, np.arange(observed.fields))
        basis = over_scale(whole, partial(background.scale_at, observed=observed))
        assert isinstance(basis, KnownPlusEstimated)
        left = basis.estimated
    return replace(observed, values=values, noise_variance=known / scale**2), left


def _check_nugget(nugget_std: float | None, *, known: bool) -> None:
    """Refuse a nugget that is none, or that would be added to nothing."""
    if nugget_std is None or nugget_std == 0.0:
        return
    check_positive("nugget_std", nugget_std)
    if not known:
        raise ArgumentError(
            f"nugget_std is {nugget_std:g}, which is added to a known noise, and none is known; expected "
            "noise_std beside it, a number or a column. Without either the noise is fitted.",
            key="nugget-without-noise",
        )
