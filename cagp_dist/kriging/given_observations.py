"""What is read of the observations of `krige`, by the settings of a `Kriging`."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, cast, get_args

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.checks import check_memory_limit, check_positive, check_word
from cagp_dist.errors import ArgumentError
from cagp_dist.fields.backgrounds import read_background
from cagp_dist.fields.column_names import ANY
from cagp_dist.fields.column_roles import column_roles
from cagp_dist.fields.observed_objects import (
    ObservedObject,
    Source,
    check_every_field,
    observe_arrays,
)
from cagp_dist.fields.observed_objects import read as read_source
from cagp_dist.fields.sources import noise_of_transformed
from cagp_dist.fields.tables import DataFrameLike, codes_of, is_table
from cagp_dist.kernels import DEPTH, RESERVED_AXES, VARIABLE, Kernel
from cagp_dist.kriging.drift import MeanTerms, mean_given, named_columns, with_known_drift
from cagp_dist.kriging.map_targets import of_array, of_table
from cagp_dist.kriging.observed_areas import CELLS, areas_of_table, check_areas, with_areas, with_cells
from cagp_dist.means import WithCovariates
from cagp_dist.pipeline.background import Background
from cagp_dist.pipeline.censoring import check_seen
from cagp_dist.pipeline.defaults import MEAN, NUGGET
from cagp_dist.pipeline.fitted_model import families
from cagp_dist.pipeline.integration import check_hyperparameters
from cagp_dist.pipeline.labels import check_groups, one_depth, said_of_one_depth, with_pairs, without_depths
from cagp_dist.pipeline.map_mean import MeanLike, MeansByLabel, PartlyKnown, is_estimated, is_read
from cagp_dist.pipeline.model_settings import KernelLike
from cagp_dist.pipeline.observations import Observations, beside_limits
from cagp_dist.pipeline.outliers import Outliers
from cagp_dist.prior import Prior
from cagp_dist.remedies import Setting
from cagp_dist.space import SPHERE, Space, plane_of
from cagp_dist.space_time import SpaceTimeOf
from cagp_dist.variables import Transform
from cagp_dist.warned import warn

if TYPE_CHECKING:
    from cagp_dist.kriging.kriging_model import Kriging


def read(
    model: "Kriging",
    observations: "Source | ArrayLike",
    y: ArrayLike | None = None,
    *,
    part: bool = False,
    progress: Callable[[str], None] | None = None,
) -> tuple[ObservedObject, MeanLike]:
    """Read observations, as they are learned from, and their mean; of one time without ``at``.

    With ``part`` those of one of several variables, which may have other depths than the others. ``progress``
    is told how far reading is.
    """
    if model.drift is not None:
        warn(
            "drift= is now mean=, which takes the same terms; drift= goes with the next release.",
            DeprecationWarning,
        )
    _check_together(model)
    if bias_axes(model) and (model.at is not None or y is not None):
        raise ArgumentError(
            f"bias_by is {model.bias_by!r}, and "
            + ("at was given" if y is None else "y is an array")
            + ", which do not go together; expected a table with both columns, each of whose fields is a map "
            "of its own.",
            key="labels-with-others",
        )
    check_areas(model, named_columns(terms_of_mean(model)), y)
    if isinstance(model.value, list | tuple):
        return _read_variables(model, list(model.value), observations, y, progress)
    for name in BY_VARIABLE:
        if isinstance(getattr(model, name), Mapping):
            raise ArgumentError(
                f"{name} is {getattr(model, name)!r}, a mapping by variables, and value is {model.value!r}; "
                "expected one of it, or the names of several variables as value.",
                key="variable-unknown",
            )
    check_memory_limit(model.memory_limit_bytes)
    check_hyperparameters(model.hyperparameters)
    _check_outliers(model)
    if read_as(model) != "none" and model.noise_std is not None:
        raise noise_of_transformed()
    if model.prior is not None and not isinstance(model.prior, Prior):
        raise ArgumentError(
            f"prior is {model.prior!r}; expected a cagp.Prior, or None to have it fitted.", key="prior-type"
        )
    observed = _observe(model, observations, y, in_time=model.at is not None, progress=progress)
    _check_depths(model, observed)
    _check_limits(model, observed, part=part)
    observed = observed if part else _without_one_depth(observed)
    points, given = observed.points, given_kernel(model)
    has_numbers = isinstance(given, Kernel) and given.of_space_and_time
    if points.in_time and np.ptp(points.hours) == 0.0 and not has_numbers:
        if any(isinstance(part, SpaceTimeOf) for part in families(given)):
            raise ArgumentError(
                f"kernel is {given!r}, of space and time, but all observations have the same time, so its "
                "lengthscale in time cannot be fitted; give its parameters, or two times.",
                key="one-time",
            )
        warn(
            "all observations have the same time, so the change of the field in time is unknown: at= is "
            "ignored, and the map is for this time alone."
        )
        observed = _observe(model, observations, y, in_time=False, progress=progress)
    mean = _mean_of(model, observed)
    if isinstance(mean, PartlyKnown):
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


def _check_together(model: "Kriging") -> None:
    """Refuse settings that say nothing without each other, whatever is observed."""
    if model.causal and model.at is None:
        raise ArgumentError(
            "causal is True and at was not given, so that each field is a map from its own time alone; "
            'expected times of maps beside it, such as at="observed", or causal=False.',
            key="causal-without-times",
        )
    if not isinstance(model.nugget_correlation, bool) or (
        model.nugget_correlation and not isinstance(model.value, list | tuple)
    ):
        raise ArgumentError(
            f"nugget_correlation is {model.nugget_correlation!r} and value is {model.value!r}; expected True "
            "or False, and True of several variables.",
            key="nugget-correlation",
        )
    if model.value is not None and not isinstance(model.value, str | list | tuple):
        raise ArgumentError(
            f"value is {model.value!r}; expected a name, or a list of several.", key="several-values"
        )


def _check_outliers(model: "Kriging") -> None:
    """Refuse outliers that are treated in no known way, and a recalibration that would learn from them."""
    check_word("outliers", model.outliers, get_args(Outliers))
    if model.outliers != "keep" and model.recalibration != "none":
        raise ArgumentError(
            f"outliers is {model.outliers!r} beside recalibration={model.recalibration!r}, which would learn "
            "from values that look wrong; expected one of them.",
            key="outliers-with-others",
            remedies=(Setting("recalibration", "none"),),
        )


def _check_depths(model: "Kriging", observed: ObservedObject) -> None:
    """Refuse depths beside what does not go with them."""
    if observed.depths is None:
        return
    if refused := [name for name in ("at", "background") if getattr(model, name) is not None]:
        raise ArgumentError(
            f"columns names a depth and {' and '.join(refused)} was given, which do not go together; leave "
            "one out, or map depths one by one.",
            key="labels-with-others",
        )
    if observed.depths.name in named_columns(terms_of_mean(model)):
        raise ArgumentError(
            f"{observed.depths.name!r} is the depth, and mean names it as a number of each place; expected "
            "it once.",
            key="depth-in-mean",
        )


def _check_limits(model: "Kriging", observed: ObservedObject, *, part: bool) -> None:
    """Refuse limits of detection beside what takes values alone."""
    limits = observed.points.limits
    if limits is None:
        return
    given = {
        "several variables": part,
        "depths": observed.depths is not None,
        "transform='log1p'": read_as(model) != "none",
        "geometry": model.geometry is not None,
        **{
            f"{name}={getattr(model, name)!r}": getattr(model, name) is not None
            for name in ("at", "background", "bias_by")
        },
    }
    if said := beside_limits(int(limits.sum()), given):
        raise ArgumentError(said, key="limits-with-others")


def _without_one_depth(observed: ObservedObject) -> ObservedObject:
    """Leave depths out where all are the same."""
    depth = one_depth(observed.points)
    if depth is None:
        return observed
    warn(said_of_one_depth(depth))
    return replace(observed, points=without_depths(observed.points))


BY_VARIABLE = ("noise_std", "units", "mean")  # arguments that may be mappings, by variable


def _read_variables(
    model: "Kriging",
    names: list[str],
    observations: "Source | ArrayLike",
    y: ArrayLike | None,
    progress: Callable[[str], None] | None,
) -> tuple[ObservedObject, MeanLike]:
    """Read several variables, each as one is read, and put them together."""
    strings = all(isinstance(name, str) for name in names)
    made = {f"{name}_{kind}" for name in names for kind in ("mean", "std", "std_computational")}
    if y is not None or not strings or len(names) < 2 or len(set(names)) < len(names) or made & set(names):
        raise ArgumentError(
            f"value is {names!r}; expected one name, or two and more different ones, of columns of a table "
            "or of variables of a dataset.",
            key="several-values",
        )
    for name in BY_VARIABLE:
        given = getattr(model, name)
        if isinstance(given, Mapping) and (unknown := set(given) - set(names)):
            raise ArgumentError(
                f"{name} has {', '.join(map(repr, sorted(unknown)))}, and the variables are "
                f"{', '.join(map(repr, names))}; expected these names.",
                key="variable-unknown",
            )
    refused = [n for n in ("at", "transform") if getattr(model, n) not in (None, "none")]
    if refused:
        raise ArgumentError(
            f"value names several variables and {' and '.join(refused)} was given, which do not go together; "
            "map them one by one with it.",
            key="labels-with-others",
        )
    parts, settings = [], []
    for name in names:
        own = {
            key: given.get(name) if isinstance(given := getattr(model, key), Mapping) else given
            for key in BY_VARIABLE
        }
        if isinstance(own["mean"], np.number):
            own["mean"] = float(own["mean"])
        where = dict(model.where or {})
        if is_table(observations):  # what is measured beside does not tell repeated rows apart
            where = {other: ANY for other in names if other != name} | where
        told = {"value": name, "where": where or None, "nugget_correlation": False}
        alone = type(model)(**{**model.get_params(), **own, **told})
        observed, mean = read(alone, observations, part=True, progress=progress)
        points = observed.points
        if isinstance(alone.noise_std, int | float):
            check_positive("noise_std", alone.noise_std)
            noise = np.full(points.north.size, float(alone.noise_std) ** 2)
            observed = replace(observed, points=replace(points, noise_variance=noise))
        if isinstance(mean, Background) or is_read(mean):
            raise ArgumentError(
                f"mean of {name!r} is {alone.mean!r}; expected a number, a trend or static fields, where "
                "there are several variables.",
                key="mean-of-variables",
            )
        parts.append(observed)
        settings.append(alone)
    known = [part.points.noise_variance is not None for part in parts]
    if model.noise_std is None and sum(known) > 1:
        raise ArgumentError(
            "the table has one column of noise, and it cannot be told of which variable it is; expected "
            "noise_std as a mapping by variable.",
            key="noise-of-variables",
            remedies=(Setting("noise_std", {names[0]: "noise_std"}),),
        )
    parts, labels = _with_common_labels(parts)
    points = Observations.together([part.points for part in parts], axis=VARIABLE)
    if model.nugget_correlation:
        points = with_pairs(points)
    # positions are counted from the middle of all places, and so are trends
    parts = [replace(part, points=replace(part.points, space=points.space)) for part in parts]
    means = [_mean_of(alone, part) for alone, part in zip(settings, parts, strict=True)]
    longest = max(parts, key=lambda part: part.points.fields)
    if points.fields > longest.points.fields:
        raise ArgumentError(
            "the variables were observed at different times, and none of them at all of these; expected one "
            'time, where={"times": [...]}, or all times of one of them.',
            key="times-of-variables",
        )
    joined = replace(
        parts[0],
        points=points,
        name=" and ".join(part.name for part in parts),
        dimension=longest.dimension,
        coordinates=longest.coordinates,
        attributes={},
        missing=sum(part.missing for part in parts),
        labels=labels,
        static={key: np.empty(0) for part in parts for key in part.static},
        static_units={key: units for part in parts for key, units in part.static_units.items()},
        variables=tuple(
            replace(part, dimension=longest.dimension, coordinates=longest.coordinates) for part in parts
        ),
    )
    joined = _without_one_depth(joined)
    return joined, MeansByLabel(tuple(means), tuple(part.name for part in parts), VARIABLE)


def _with_common_labels(
    parts: list[ObservedObject],
) -> tuple[list[ObservedObject], dict[str, tuple[str, ...]]]:
    """Give who shares an error the same numbers in all variables."""
    labels = {
        axis: tuple(dict.fromkeys(name for part in parts for name in part.labels[axis]))
        for axis in parts[0].labels
    }
    for axis, names in labels.items():
        texts = [[*part.labels[axis], ""] for part in parts]
        codes = [
            np.minimum(part.points.beside[axis].astype(np.intp), len(part.labels[axis])) for part in parts
        ]
        every = codes_of([own[code] for own, of in zip(texts, codes, strict=True) for code in of], names)
        ends = np.cumsum([code.size for code in codes])[:-1]
        parts = [
            replace(part, points=replace(part.points, beside={**part.points.beside, axis: own}))
            for part, own in zip(parts, np.split(every, ends), strict=True)
        ]
    return parts, labels


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
    others = {
        "prior": model.prior is not None,
        f"mean={terms_of_mean(model)!r}": isinstance(given, WithCovariates)
        or not (number or is_estimated(given)),
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
    model: "Kriging",
    observations: "Source | ArrayLike",
    y: ArrayLike | None,
    *,
    in_time: bool,
    progress: Callable[[str], None] | None,
) -> ObservedObject:
    """Read observations; a number, or a prior, stands instead of the noise that they have."""
    column = model.noise_std if isinstance(model.noise_std, str) else None
    number = None if model.noise_std is None or column is not None else 1.0
    noise = number if model.prior is None else model.prior.noise_variance
    columns, crs, areas = roles_of(model), model.crs, None
    if model.geometry is not None and model.geometry != CELLS:
        areas = areas_of_table(model, cast("Source", observations))
        observations, crs = areas.table, areas.crs
        columns = {**columns, **areas.columns}
    if y is None:
        observed = read_source(
            observations,  # type: ignore[arg-type]
            value=cast("str | None", model.value),
            noise_std=column,
            noise=noise,
            columns=columns,
            units=cast("str | None", model.units),
            missing=model.missing,
            where=model.where,
            static=named_columns(terms_of_mean(model)),
            labels=bias_axes(model),
            in_time=in_time,
            crs=crs,
            transform=read_as(model),
            limits=True,
            progress=progress,
        )
        if areas is not None:
            observed = with_areas(observed, areas)
        elif model.geometry is not None:
            observed = with_cells(observed)
        check_groups(observed.points, [*observed.labels])
        names = ("value", "units", "missing", "where")
        given = {name: getattr(model, name) for name in names if getattr(model, name) is not None}
        given |= {"columns": columns} if columns else {}
        given |= {"transform": read_as(model)} if read_as(model) != "none" else {}
        return replace(observed, read_with=json.dumps(given, default=str) if given else "")
    if in_time:
        raise ArgumentError(
            f"at is {model.at!r}, and arrays have no times; expected a table or an object of xarray.",
            key="no-times",
        )
    if "limit" in columns:
        raise ArgumentError(
            f"columns names {columns['limit']!r} as the limit of detection, and values came as an array; "
            "expected a table that has both.",
            key="limit-of-arrays",
        )
    if DEPTH in columns:
        raise ArgumentError(
            "columns names a depth, and values came as an array; expected a table that has both.",
            key="depth-of-arrays",
        )
    X, rows = observations, None
    space: Space = SPHERE
    if "x" in columns or model.crs is not None:
        space = plane_of(model.crs, names=(columns.get("x", "x"), columns.get("y", "y")))
    named = named_columns(terms_of_mean(model))
    if isinstance(X, DataFrameLike):
        rows = of_table(X, space, columns=columns, static=named)
    elif named:
        rows = of_array(cast("ArrayLike", X), space, named)
    if rows is not None:
        X = np.stack(space.of_columns(np.stack([rows.north, rows.east], axis=1)), axis=1)
    about = {"noise": noise, "missing": model.missing, "space": space, "transform": read_as(model)}
    observed = observe_arrays(X, y, **about)  # type: ignore[arg-type]
    if column is not None:
        raise ArgumentError(
            f"noise_std is {column!r}, the name of a column, but arrays have none; expected "
            "a number. Give a table or a dataset of xarray to have a noise for each place.",
            key="noise-std",
        )
    return observed if rows is None else replace(observed, static=rows.static, static_units=rows.static_units)


def read_as(model: "Kriging") -> Transform:
    """Give what is done with values as they are read, which nothing takes back."""
    return "log1p" if isinstance(model.transform, str) and model.transform == "log1p" else "none"


def transforms(model: "Kriging") -> bool:
    """Whether the field is one of transformed values, whose results are taken back."""
    return not (isinstance(model.transform, str) and model.transform in ("none", "log1p"))


def check_transform(model: "Kriging", observed: ObservedObject, mean: MeanLike) -> None:
    """Refuse what is said in the unit of the values, which are transformed."""
    noise = model.noise_std is not None or (observed.points.noise_variance is not None and not model.prior)
    refused = {
        "noise": noise,
        f"nugget_std={model.nugget_std!r}": model.nugget_std not in (NUGGET, None),
        f"variance={model.variance!r}": model.variance is not None,
        f"mean={model.mean!r}": model.prior is None and not is_estimated(mean),
        f"bias_by={model.bias_by!r}": model.bias_by is not None,
        "a kernel with numbers": isinstance(model.kernel, Kernel),
    }
    if said := [name for name, there in refused.items() if there]:
        raise ArgumentError(
            f"transform is {model.transform!r}, and {' and '.join(said)} was given, in the unit of values "
            "that are transformed; expected none, so that it is fitted to what they become. "
            "prior=cagp.Prior(...) gives all numbers of the transformed field.",
            key="transform-with-others",
        )


def check_censored(model: "Kriging", observed: ObservedObject) -> None:
    """Refuse what draws of censored values do not have."""
    points = observed.points
    if points.censored is None:
        return
    check_seen(points)
    if model.recalibration != "none":
        raise ArgumentError(
            f"transform is {model.transform!r}, values are zero or limits of detection, which are censored, "
            f"and recalibration={model.recalibration!r} was given, which do not go together yet; leave one "
            "out, or take a transform in which zeros are values, such as "
            "transform=cagp.BoxCox(0.5, shift=0.1).",
            key="zeros-with-others",
        )


def bias_axes(model: "Kriging") -> list[str]:
    """Give the columns by which observations share errors."""
    given = model.bias_by
    if given is None:
        return []
    names = [given] if isinstance(given, str) else list(given) if isinstance(given, list | tuple) else []
    wrong = not names or len(set(names)) < len(names)
    if wrong or not all(isinstance(name, str) and name and ", " not in name for name in names):
        raise ArgumentError(
            f"bias_by is {given!r}; expected the name of a column, or several.", key="bias-by"
        )
    if reserved := {*names} & {*RESERVED_AXES}:
        raise ArgumentError(
            f"bias_by is {reserved.pop()!r}, a name with another meaning here; rename the column.",
            key="bias-by",
        )
    return names


def roles_of(model: "Kriging") -> dict[str, str]:
    """Give the columns that were named, by their roles."""
    names = ("latitude", "longitude", "x", "y", "time")
    return column_roles(model.columns, **{name: getattr(model, name) for name in names})
