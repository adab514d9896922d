"""What is read of the observations of `krige`, by the settings of a `Kriging`."""

import json
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.checks import check_memory_limit, check_word
from cagp_dist.errors import ArgumentError
from cagp_dist.fields.backgrounds import read_background
from cagp_dist.fields.column_roles import column_roles
from cagp_dist.fields.observed_objects import (
    ObservedObject,
    Source,
    check_every_field,
    observe_arrays,
)
from cagp_dist.fields.observed_objects import read as read_source
from cagp_dist.fields.sources import noise_of_transformed
from cagp_dist.fields.tables import DataFrameLike
from cagp_dist.kernels import Kernel
from cagp_dist.kriging.drift import Drift, MeanTerms, mean_given, named_columns, with_known_drift
from cagp_dist.kriging.map_targets import of_table
from cagp_dist.pipeline.background import Background
from cagp_dist.pipeline.defaults import MEAN, NUGGET
from cagp_dist.pipeline.fitted_model import KernelLike, families
from cagp_dist.pipeline.integration import check_hyperparameters
from cagp_dist.pipeline.map_mean import MeanLike, is_estimated
from cagp_dist.prior import Prior
from cagp_dist.space import SPHERE, Space, plane_of
from cagp_dist.space_time import SpaceTimeOf
from cagp_dist.variables import Transform

if TYPE_CHECKING:
    from cagp_dist.kriging.kriging_model import Kriging


def read(
    model: "Kriging", observations: "Source | ArrayLike", y: ArrayLike | None = None
) -> tuple[ObservedObject, MeanLike]:
    """Read observations, as they are learned from, and their mean; of one time without ``at``."""
    if model.drift is not None:
        warnings.warn(
            "drift= is now mean=, which takes the same terms; drift= goes with the next release.",
            DeprecationWarning,
            stacklevel=3,
        )
    check_memory_limit(model.memory_limit_bytes)
    check_hyperparameters(model.hyperparameters)
    check_word("transform", model.transform, get_args(Transform))
    if model.transform != "none" and model.noise_std is not None:
        raise noise_of_transformed()
    if model.prior is not None and not isinstance(model.prior, Prior):
        raise ArgumentError(
            f"prior is {model.prior!r}; expected a cagp.Prior, or None to have it fitted.", key="prior-type"
        )
    observed = _observe(model, observations, y, in_time=model.at is not None)
    points, given = observed.points, given_kernel(model)
    has_numbers = isinstance(given, Kernel) and given.of_space_and_time
    if points.in_time and np.ptp(points.hours) == 0.0 and not has_numbers:
        if any(isinstance(part, SpaceTimeOf) for part in families(given)):
            raise ArgumentError(
                f"kernel is {given!r}, of space and time, but all observations have the same time, so its "
                "lengthscale in time cannot be fitted; give its parameters, or two times.",
                key="one-time",
            )
        warnings.warn(
            "all observations have the same time, so the change of the field in time is unknown: at= is "
            "ignored, and the map is for this time alone.",
            stacklevel=4,
        )
        observed = _observe(model, observations, y, in_time=False)
    mean = _mean_of(model, observed)
    if isinstance(mean, Drift | Background):
        observed = with_known_drift(observed, mean)
    if not observed.points.in_time:  # each field has a mean of its own
        check_every_field(observed.points)
    elif refused := _without_times(model):
        raise ArgumentError(
            f"at and {' and '.join(refused)} were given, which do not go together yet; leave one out. "
            "Numbers of the kernel are given as kernel=cagp.SpaceTime(...).",
            key="at-with-others",
        )
    return observed, mean


def _mean_of(model: "Kriging", observed: ObservedObject) -> MeanLike:
    """Give the mean: that of the prior, a background, or what its terms say."""
    if model.background is None:
        if model.background_std is not None:
            raise ArgumentError(
                "background_std was given without background; expected both, or variance=, the square of the "
                "standard deviation of the field about its mean.",
                key="background-std-alone",
            )
        return mean_given(terms_of_mean(model), observed) if model.prior is None else model.prior.mean
    given: MeanLike = 0.0
    if model.mean is not None or model.drift is not None:
        given = mean_given(terms_of_mean(model), observed)
    number = isinstance(given, int | float | np.number)
    with_fields = isinstance(given, Drift) and bool(given.fields)
    others = {
        "prior": model.prior is not None,
        f"mean={terms_of_mean(model)!r}": not number and (not is_estimated(given) or with_fields),
        "an estimated mean with at": not number and observed.points.in_time,
        f"transform={model.transform!r}": model.transform != "none",
        "background_std with at": model.background_std is not None and observed.points.in_time,
    }
    if refused := [name for name, there in others.items() if there]:
        raise ArgumentError(
            f"background and {' and '.join(refused)} were given, which do not go together; expected a number "
            'or a trend, such as "constant", as mean of the innovations, and otherwise one of them.',
            key="background-with-others",
        )
    points = observed.points
    numbers = model.variance is not None or isinstance(model.kernel, Kernel)
    return read_background(
        model.background,
        model.background_std,
        space=observed.space,
        variable=observed.name,
        units=observed.attributes.get("units", ""),
        innovation_mean=float(given) if isinstance(given, int | float | np.number) else 0.0,
        estimated=given if is_estimated(given) else None,
        around=None if points.in_time or np.isnat(points.times).any() else points.times,
        takes_spread=not numbers and not points.in_time and len(families(model.kernel)) == 1,
    )


def says_mean(model: "Kriging") -> bool:
    """Whether a mean was asked for that is not the default."""
    return model.mean is not None and not (isinstance(model.mean, str) and model.mean == MEAN)


def terms_of_mean(model: "Kriging") -> MeanTerms:
    """Give the mean as it was written: ``drift`` is its name of before."""
    if model.drift is None:
        return MEAN if model.mean is None else model.mean
    if says_mean(model):
        raise ArgumentError(
            f"mean is {model.mean!r}, and a drift was given, the former name of the same argument; expected "
            "one of them.",
            key="mean",
        )
    return model.drift


def given_kernel(model: "Kriging") -> KernelLike:
    """Give the kernel, or that of the prior."""
    return model.kernel if model.prior is None else model.prior.kernel


def _without_times(model: "Kriging") -> list[str]:
    """Name the settings that maps at times do not have."""
    given = {
        f"nugget_std={model.nugget_std!r}": model.nugget_std not in (NUGGET, 0.0),
        f"hyperparameters={model.hyperparameters!r}": model.hyperparameters in ("integrate", "integrated"),
        "numbers of a kernel of space alone": any(
            getattr(model, name) is not None for name in ("lengthscale", "lengthscale_km", "variance")
        ),
    }
    return [name for name, there in given.items() if there]


def _observe(
    model: "Kriging", observations: "Source | ArrayLike", y: ArrayLike | None, *, in_time: bool
) -> ObservedObject:
    """Read observations; a number, or a prior, stands instead of the noise that they have."""
    column = model.noise_std if isinstance(model.noise_std, str) else None
    number = None if model.noise_std is None or column is not None else 1.0
    noise = number if model.prior is None else model.prior.noise_variance
    columns = roles_of(model)
    if y is None:
        observed = read_source(
            observations,  # type: ignore[arg-type]
            value=model.value,
            noise_std=column,
            noise=noise,
            columns=columns,
            units=model.units,
            missing=model.missing,
            where=model.where,
            static=named_columns(terms_of_mean(model)),
            in_time=in_time,
            crs=model.crs,
            transform=model.transform,
        )
        names = ("value", "units", "missing", "where")
        given = {name: getattr(model, name) for name in names if getattr(model, name) is not None}
        given |= {"columns": columns} if columns else {}
        given |= {"transform": model.transform} if model.transform != "none" else {}
        return replace(observed, read_with=json.dumps(given, default=str) if given else "")
    if in_time:
        raise ArgumentError(
            f"at is {model.at!r}, and arrays have no times; expected a table or an object of xarray.",
            key="no-times",
        )
    X, rows = observations, None
    space: Space = SPHERE
    if "x" in columns or model.crs is not None:
        space = plane_of(model.crs, names=(columns.get("x", "x"), columns.get("y", "y")))
    if isinstance(X, DataFrameLike):
        rows = of_table(X, space, columns=columns, static=named_columns(terms_of_mean(model)))
        X = np.stack(space.of_columns(np.stack([rows.north, rows.east], axis=1)), axis=1)
    about = {"noise": noise, "missing": model.missing, "space": space, "transform": model.transform}
    observed = observe_arrays(X, y, **about)  # type: ignore[arg-type]
    if column is not None:
        raise ArgumentError(
            f"noise_std is {column!r}, the name of a column, but arrays have none; expected "
            "a number. Give a table or a dataset of xarray to have a noise for each place.",
            key="noise-std",
        )
    return observed if rows is None else replace(observed, static=rows.static, static_units=rows.static_units)


def roles_of(model: "Kriging") -> dict[str, str]:
    """Give the columns that were named, by their roles."""
    names = ("latitude", "longitude", "x", "y", "time")
    return column_roles(model.columns, **{name: getattr(model, name) for name in names})
