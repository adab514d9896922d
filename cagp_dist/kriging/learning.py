"""What is learned of kernel and noise, by the settings of a `Kriging`: numbers that are given, or fitted."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from cagp_dist.checks import check_positive
from cagp_dist.errors import ArgumentError
from cagp_dist.fields.observed_objects import ObservedObject
from cagp_dist.geometry import EARTH_RADIUS_KILOMETRES, chord_of_kilometres
from cagp_dist.kernels import DEPTH, SPACE_COLUMNS, Kernel, lengthscales_in_space
from cagp_dist.kriging.given_observations import given_kernel, says_mean
from cagp_dist.pipeline import Observations
from cagp_dist.pipeline.background import Background
from cagp_dist.pipeline.defaults import KERNEL, NUGGET
from cagp_dist.pipeline.fitted_model import families
from cagp_dist.pipeline.labels import Labels
from cagp_dist.pipeline.map_mean import MeanLike
from cagp_dist.pipeline.model_settings import ModelSettings
from cagp_dist.remedies import Setting
from cagp_dist.space import Space

if TYPE_CHECKING:
    from cagp_dist.kriging.kriging_model import Kriging

OF_THE_PRIOR = ("noise_std", "lengthscale_km", "lengthscale", "variance")

Numbers: TypeAlias = float | Sequence[float] | None


def settings_of(model: "Kriging", observed: ObservedObject, mean: MeanLike) -> ModelSettings:
    """Give what is said of kernel, noise and mean; the rest is fitted."""
    given, in_time = given_kernel(model), observed.points.in_time
    for kernel in (given, None if model.prior is None else model.prior.kernel):
        if isinstance(kernel, Kernel):
            check_columns(kernel, observed.space, {*observed.points.beside})
    if not in_time and isinstance(given, Kernel) and given.of_space_and_time:
        raise ArgumentError(
            f"the kernel is {given!r}, one of space and time, and each field would be a map of its own; "
            "expected times of maps beside it: cagp.krige(..., at=times).",
            key="kernel-of-time",
        )
    if observed.points.beside and model.recalibration != "none":
        raise ArgumentError(
            f"{_beside_space(model, observed)} and recalibration={model.recalibration!r} were given, which "
            "do not go together; leave one out.",
            key="labels-with-others",
            remedies=(Setting("recalibration", "none"),),
        )
    if model.prior is not None:
        _check_alone(model)
        if not in_time:
            check_chords("prior", model.prior.kernel, observed.space)
        return ModelSettings(model.prior.kernel, model.prior.mean, model.prior, outliers=model.outliers)
    fixed: Mapping[str, list[float]] = {}
    labels = labels_of(model, observed)
    if observed.points.beside:
        _check_with_labels(model, observed, mean)
    elif not in_time:
        fixed = fixed_numbers(
            lengthscale=model.lengthscale,
            lengthscale_km=model.lengthscale_km,
            variance=model.variance,
            space=observed.space,
        )
        if isinstance(model.kernel, Kernel):
            if model.anisotropy != "none" and model.kernel.layout is not None:
                raise ArgumentError(
                    f"kernel is {model.kernel!r}, with a shape of its own, and anisotropy is "
                    f"{model.anisotropy!r}; expected one of them.",
                    key="kernel-and-numbers",
                )
            fixed = numbers_of(model.kernel, fixed, observed.space)
    if not in_time and isinstance(mean, Background) and mean.std is not None:
        fixed = _of_background(model, mean, fixed)
    return ModelSettings(
        model.kernel,
        mean,
        fixed=fixed,
        noise_std=model.noise_std if isinstance(model.noise_std, int | float) else None,
        nugget_std=nugget_of(model, observed.points),
        anisotropy=model.anisotropy,
        outliers=model.outliers,
        hyperparameters=model.hyperparameters if observed.points.functionals is None else "plug-in",
        labels=labels,
    )


def labels_of(model: "Kriging", observed: ObservedObject) -> Labels:
    """Say what the labels of observations are."""
    names = tuple(each.name for each in observed.variables)
    return Labels(tuple(observed.labels), names, nugget_correlation=model.nugget_correlation and bool(names))


def _beside_space(model: "Kriging", observed: ObservedObject) -> str:
    """Say what observations have beside places."""
    said = {
        "several variables": bool(observed.variables),
        f"bias_by={model.bias_by!r}": bool(observed.labels),
        "depths": DEPTH in observed.points.beside,
    }
    return " and ".join(name for name, there in said.items() if there)


def _check_with_labels(model: "Kriging", observed: ObservedObject, mean: MeanLike) -> None:
    """Refuse what fits with labels do not have."""
    what = _beside_space(model, observed)
    given = {
        "at": model.at is not None,
        "background": model.background is not None and bool(observed.variables),
        "a field of background_std": isinstance(mean, Background) and mean.scales,
        f"hyperparameters={model.hyperparameters!r}": model.hyperparameters in ("integrate", "integrated"),
        "a kernel with numbers": isinstance(model.kernel, Kernel),
        "numbers of the kernel": any(
            getattr(model, name) is not None for name in ("lengthscale", "lengthscale_km", "variance")
        ),
        f"nugget_std={model.nugget_std!r}": bool(observed.variables)
        and model.nugget_std not in (NUGGET, None),
    }
    if refused := [name for name, there in given.items() if there]:
        raise ArgumentError(
            f"{what} and {' and '.join(refused)} were given, which do not go together; leave one "
            "out. With all numbers known give prior=cagp.Prior(...), whose kernel has the labels as axes.",
            key="labels-with-others",
        )


def _of_background(
    model: "Kriging", background: Background, fixed: Mapping[str, list[float]]
) -> dict[str, list[float]]:
    """Hold the variance at that of the error of a background; over a field of it the variance is one."""
    if "variance" in fixed or len(families(model.kernel)) > 1:
        what = f"kernel {model.kernel!r}, a sum" if "variance" not in fixed else "variance of the kernel"
        raise ArgumentError(
            f"background_std and the {what}, were both given; expected one of them: the variance is the "
            "square of background_std, and is not shared out among parts of a sum.",
            key="background-std-and-variance",
        )
    return {**fixed, "variance": [background.variance]}


def nugget_of(model: "Kriging", points: Observations) -> float | None:
    """Give the nugget, None where it is fitted."""
    asked = model.nugget_std
    if isinstance(asked, str) and asked != NUGGET:
        raise ArgumentError(
            f'nugget_std is {asked!r}; expected a number, None to have it fitted, or "{NUGGET}".',
            key="nugget",
        )
    if not isinstance(asked, str):
        return asked
    of_places = points.noise_variance is not None and not isinstance(model.noise_std, int | float)
    numbers = isinstance(model.kernel, Kernel) or (
        model.variance is not None and (model.lengthscale is not None or model.lengthscale_km is not None)
    )
    holds = model.background_std is not None  # with the noise that is known
    return None if of_places and not numbers and not points.in_time and not holds else 0.0


def _check_alone(model: "Kriging") -> None:
    """Refuse numbers beside a prior, which has them all."""
    others = [name for name in OF_THE_PRIOR if getattr(model, name) is not None]
    others += ["nugget_std"] if model.nugget_std not in (NUGGET, None, 0.0) else []
    others += ["kernel"] if not (isinstance(model.kernel, str) and model.kernel == KERNEL) else []
    others += ["hyperparameters"] if model.hyperparameters in ("integrate", "integrated") else []
    others += ["anisotropy"] if model.anisotropy != "none" else []
    others += ["mean"] if model.drift is not None or says_mean(model) else []
    if others:
        raise ArgumentError(
            f"prior was given beside {' and '.join(others)}; a prior fixes every number. Leave these out.",
            key="prior-and-numbers",
        )


def fixed_numbers(
    *, lengthscale: Numbers, lengthscale_km: Numbers, variance: Numbers, space: Space
) -> dict[str, list[float]]:
    """Lengthscales, as chords or in the unit of a plane, and variances of each part; None is left out."""
    if lengthscale is not None and lengthscale_km is not None:
        raise ArgumentError(
            "lengthscale and lengthscale_km were both given; expected one of them.", key="both-lengthscales"
        )
    chords = _each("lengthscale", lengthscale)
    for chord in chords:
        if chord > space.longest_lengthscale:
            raise ArgumentError(
                f"lengthscale is {chord:g}, a chord of the unit sphere, whose diameter is 2; expected a "
                f"number above 0 and at most 2.{_asking_for_kilometres(chords)} A longer one, of a trend, "
                "comes with the kernel: kernel=cagp.Matern32(lengthscale=3.0, variance=1.0).",
                key="lengthscale-over-sphere",
            )
    chords += [space.of_kilometres(number) for number in _each("lengthscale_km", lengthscale_km)]
    found = {"lengthscale": chords, "variance": _each("variance", variance)}
    return {name: numbers for name, numbers in found.items() if numbers}


def check_columns(kernel: Kernel, space: Space, beside: Collection[str] = ()) -> None:
    """Refuse a kernel of columns that observations do not have, or of directions in another space."""
    layout = kernel.layout
    if kernel.of_space_and_time or (layout is None and not beside):
        return
    if layout is None or set(layout.axes) != set(beside):
        raise ArgumentError(
            f"the kernel is {kernel!r}, of points with "
            f"{', '.join(layout.axes) if layout is not None and layout.axes else 'nothing'} beside space, "
            f"and the observations have {', '.join(sorted(beside)) or 'nothing'}; expected a kernel of "
            "space, or of space and time, or what makes such columns: bias_by, several variables, "
            "depths. cagp.condition takes points with any columns.",
            key="kernel-of-axes",
        )
    if layout.axes:
        return
    if (layout.space == SPACE_COLUMNS) != space.has_latitudes:
        needed = "centre=(latitude, longitude)" if space.has_latitudes else "no centre"
        raise ArgumentError(
            f"the kernel is {kernel!r}, and the observations lie on the {space.text}; expected {needed} for "
            "directions there.",
            key="kernel-of-space",
        )


def check_chords(what: str, kernel: Kernel, space: Space) -> None:
    """Refuse a kernel of the sphere whose lengthscales no fit finds, such as those in kilometres."""
    longest = max(lengthscales_in_space(kernel), default=0.0)
    if longest > space.longest_fitted:
        meant = (
            f" {longest:g} km are the chord {chord_of_kilometres(longest):.4g}."
            if _is_on_earth(longest)
            else ""
        )
        raise ArgumentError(
            f"the {what} has the lengthscale {longest:g}; a lengthscale is a chord of the unit sphere, whose "
            f"diameter is 2, and {space.longest_fitted:g} is longer than any that a fit finds.{meant}",
            key="lengthscale-over-sphere",
        )


def numbers_of(kernel: Kernel, given: Mapping[str, object], space: Space) -> dict[str, list[float]]:
    """Lengthscales and variances of a kernel whose numbers are kept, beside which none are given."""
    if given:
        raise ArgumentError(
            f"kernel is {kernel!r}, whose numbers are kept, and {' and '.join(given)} were given; leave "
            "these out.",
            key="kernel-and-numbers",
        )
    check_chords("kernel", kernel, space)
    return {
        "lengthscale": [part.common_lengthscale for part in kernel.parts],
        "variance": [part.variance for part in kernel.parts],
    }


def _each(name: str, given: Numbers) -> list[float]:
    """Give the numbers of all parts, each above zero; none where nothing is given."""
    if given is None:
        return []
    numbers = list(given) if isinstance(given, Sequence | np.ndarray) else [given]
    for number in numbers:
        check_positive(name, number)
    return numbers


def _asking_for_kilometres(numbers: Sequence[float]) -> str:
    """Write the lengthscales as they would be given in kilometres, if all can be such."""
    if not all(_is_on_earth(number) for number in numbers):
        return ""
    written = ", ".join(f"{number:g}" for number in numbers)
    return f" For kilometres write lengthscale_km={written if len(numbers) == 1 else f'[{written}]'}."


def _is_on_earth(kilometres: float) -> bool:
    return kilometres <= np.pi * EARTH_RADIUS_KILOMETRES
