"""What is learned of kernel and noise, by the settings of a `Kriging`."""

from typing import TYPE_CHECKING

import numpy as np

from cagp_dist.errors import ArgumentError
from cagp_dist.kernels import Kernel
from cagp_dist.kriging.drift import drift_of
from cagp_dist.kriging.given_numbers import check_chords, fixed_numbers, numbers_of
from cagp_dist.kriging.given_observations import given_kernel
from cagp_dist.kriging.observed_objects import ObservedObject
from cagp_dist.mapping import Resources
from cagp_dist.mapping.fitted_model import FittedModel, fit_model
from cagp_dist.mapping.maps_at_times import fit_in_space_and_time, model_of_prior
from cagp_dist.mapping.narration import Narrator
from cagp_dist.mapping.split import Split

if TYPE_CHECKING:
    from cagp_dist.kriging.kriging_model import Kriging

OF_THE_PRIOR = ("noise_std", "lengthscale_km", "lengthscale", "variance")


def learn(
    model: "Kriging", observed: ObservedObject, resources: Resources, narrator: Narrator
) -> FittedModel:
    """Take kernel and noise as they are given, or fit them."""
    given, in_time = given_kernel(model), observed.points.hours is not None
    if not in_time and isinstance(given, Kernel) and given.parts[0].of_space_and_time:
        raise ArgumentError(
            f"the kernel is {given!r}, one of space and time, and each field would be a map of its own; "
            "expected times of maps beside it: cagp.krige(..., at=times)."
        )
    if model.prior is not None:
        _check_alone(model)
        if in_time:
            return model_of_prior(observed.points, model.prior)
        check_chords("prior", model.prior.kernel, observed.plane)
        noise, own = model.prior.noise_variance, observed.points.noise_variance
        return FittedModel(model.prior.kernel, np.asarray(noise) if own is None else own, model.prior.mean)
    if model.drift is not None and model.mean != "constant":
        raise ArgumentError(
            f"mean is {model.mean!r} and a drift was given, which stands in its place; expected one of "
            "them. A drift has a constant already, and its coefficients are estimated with the field."
        )
    mean = model.mean if model.drift is None else drift_of(model.drift, observed)
    noise_std = None if isinstance(model.noise_std, str) else model.noise_std
    if in_time:
        return fit_in_space_and_time(
            observed.points,
            kernel=model.kernel,
            mean=mean,
            noise_std=noise_std,
            resources=resources,
            narrator=narrator,
        )
    fixed = fixed_numbers(
        lengthscale=model.lengthscale,
        lengthscale_km=model.lengthscale_km,
        variance=model.variance,
        plane=observed.plane,
    )
    if isinstance(model.kernel, Kernel):
        fixed = numbers_of(model.kernel, fixed, observed.plane)
    return fit_model(
        observed.points,
        Split(observed.points.there),
        kernel=model.kernel,
        mean=mean,
        fixed=fixed,
        noise_std=noise_std,
        nugget_std=model.nugget_std,
        resources=resources,
        narrator=narrator,
    )


def _check_alone(model: "Kriging") -> None:
    """Refuse numbers beside a prior, which has them all."""
    others = [name for name in OF_THE_PRIOR if getattr(model, name) is not None]
    others += ["nugget_std"] if model.nugget_std not in (None, 0.0) else []
    others += ["drift"] if model.drift is not None else []
    if others:
        raise ArgumentError(f"prior and {' and '.join(others)} were both given; a prior fixes every number.")
