"""A prediction as a CF data set: coordinates and names of the targets, and attributes that say how."""

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from math import sqrt

import numpy as np
import xarray as xr

from cagp_dist.arrays import Array
from cagp_dist.errors import ArgumentError
from cagp_dist.fields.observed_objects import ObservedObject
from cagp_dist.gram.targets import joined_targets
from cagp_dist.kernels import DEPTH, NO_LABEL, VARIABLE
from cagp_dist.kriging.at_times import ABOUT
from cagp_dist.kriging.drift import named_terms
from cagp_dist.kriging.map_targets import MapTargets, of_places
from cagp_dist.means import RegionalLinear, WithCovariates
from cagp_dist.pipeline import FitResult
from cagp_dist.pipeline.background import Background
from cagp_dist.pipeline.cross_validation import LeftOutFolds
from cagp_dist.pipeline.defaults import INTERVAL, QUANTILE_LEVELS
from cagp_dist.pipeline.field_solves import Solution
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.in_units import InUnits, OfDraws, normal_in_units, quantiles_in_units
from cagp_dist.pipeline.labelled_fit import shared_stds, variances_of
from cagp_dist.pipeline.labels import shared_errors
from cagp_dist.pipeline.map_points import MapPoints
from cagp_dist.pipeline.map_samples import Draws
from cagp_dist.pipeline.task import Result
from cagp_dist.predictive.transforms import Identity, Transform, transform_of
from cagp_dist.space.sphere import one_or_all
from cagp_dist.store.published_variables import (
    BELOW_LIMIT,
    BELOW_LIMITS,
    CONVENTIONS,
    NODES_PER_CELL,
    QUANTILE_LEVEL,
    RECALIBRATED,
    TRANSFORM_OBJECT,
    about_depth,
)
from cagp_dist.text import bytes_text
from cagp_dist.versions import version

READ_WITH = "observations_read_with"  # attribute of a result
MEAN_TERMS = "prior_mean_terms"  # one more: a list in JSON

LEAST_PROBABILITY = 1e-4  # of the least value, which is said where it reaches that

LATENT = "Of the field, without noise: the share of predictive_std that the prior gives it."

LOCAL_SCALE = (
    "Scale of the distribution of an observation, a Student t distribution, over its standard deviation "
    "before recalibration."
)

SUM_OF_SQUARES = "std**2 is the sum of the squares of this and of what the observations leave open."


def as_dataset(
    prediction: Solution, observed: ObservedObject, learned: FittedModel, targets: MapTargets, *, call: str
) -> xr.Dataset:
    """Give mean, std and what is uncomputed the coordinates of the targets, and say how they came about."""
    variables = {"mean": prediction.mean, "std": np.array(prediction.std)}
    if prediction.computational_std is not None:
        variables["std_computational"] = np.array(prediction.computational_std)
    texts = descriptions(observed)
    said = attributes(prediction, observed, learned, call=call)
    if targets.cells is not None:
        for text in texts.values():
            text |= {"long_name": f"{text['long_name']}, mean over the cell", "cell_methods": "area: mean"}
        said |= {"title": f"{said['title']}, means over cells", NODES_PER_CELL: int(targets.cells.counts[0])}
    if not prediction.computational_std_known:
        texts["std_computational"]["comment"] = f"At most: an upper bound. {SUM_OF_SQUARES}"
    found = xr.Dataset(
        {
            name: (field_dims(observed, targets), shaped(values, observed, targets), texts[name])
            for name, values in variables.items()
        }
        | _drift(prediction, observed)
        | _quantiles(prediction, observed, targets, texts["std"])
        | dict(targets.bounds),
        coords=target_coordinates(observed, targets),
        attrs=said,
    )
    return found.set_coords(QUANTILE_LEVEL) if QUANTILE_LEVEL in found else found


def wanted_of(targets: MapTargets, observed: ObservedObject, *, shared: bool = True) -> MapPoints:
    """Where a map is wanted, along the axes beside space that observations have: without shared errors.

    Of several variables the targets of each, one after the other; after those of a map the shared errors,
    unless these are not wanted.
    """
    points, axes = targets.points, observed.points.beside
    if not axes:
        return points
    free: dict[str, float | Array] = dict.fromkeys(axes, NO_LABEL)
    if DEPTH in axes and targets.depths is None:
        raise ArgumentError(
            "the observations have depths, and the targets have none; expected depths of the targets, as a "
            "coordinate of an object of xarray, such as grid.assign_coords(depth=[10.0, 50.0]), or as a "
            'column "depth" of a table of places.',
            key="depth-of-targets",
        )
    if targets.depths is not None:
        free[DEPTH] = targets.depths if targets.known is None else targets.depths[targets.known]
    if observed.variables:
        every = [points.beside({**free, VARIABLE: float(v)}) for v in range(len(observed.variables))]
        found = MapPoints.of(joined_targets([each.wanted for each in every]))
    else:
        found = points.beside(free)
    if not shared or not observed.labels:
        return found
    several = len(observed.variables) or None
    errors = [
        shared_errors(observed.points, axis, len(names), several) for axis, names in observed.labels.items()
    ]
    return MapPoints.of(joined_targets([found.wanted, *errors]))


def with_biases(
    result: xr.Dataset, solution: Solution, observed: ObservedObject, learned: FittedModel, size: int
) -> xr.Dataset:
    """Add the errors that groups share, with their error bars."""
    stds, errors = learned.bias_std, learned.bias_std_errors
    result.attrs["bias_std"] = one_or_all(list(stds.values()))
    result.attrs["bias_by"] = ", ".join(stds)
    result.attrs["bias_std_standard_error"] = one_or_all(list(errors.values()))
    return _with_errors(result, solution, observed, size)


def _with_errors(result: xr.Dataset, solution: Solution, observed: ObservedObject, size: int) -> xr.Dataset:
    """Add the errors that stand behind all other targets, of several variables those of each."""
    end, dims = size, () if observed.dimension is None else (observed.dimension,)
    of_each = {f"{each.name}_": each.units for each in observed.variables} or {"": observed.units}
    for axis, names in observed.labels.items():
        for name, units in of_each.items():
            at = slice(end, end + len(names))
            end = at.stop
            mean, std = (of[:, at] if dims else of[0, at] for of in (solution.mean, solution.std))
            about = f"error that the observations of one {axis} share"
            result[f"{name}bias_{axis}"] = (*dims, axis), mean, {"long_name": about, **units}
            result[f"{name}bias_{axis}_std"] = (
                (*dims, axis),
                std,
                {"long_name": f"standard deviation of the {about}", **units},
            )
        result = result.assign_coords({axis: (axis, np.array(names, dtype=str))})
    return result


def with_outliers(result: xr.Dataset, observed: ObservedObject, learned: FittedModel) -> xr.Dataset:
    """Say which observations count less, as they may be wrong: along ``observed``, where each of them is."""
    found, points = learned.outliers, observed.points
    if found is None:
        return result
    result.attrs |= found.attributes(wider=learned.excess is not None)
    if learned.excess is None:
        return result
    usual = learned.noise_variance - learned.excess  # of an observation that is right
    if np.ptp(usual) <= 1e-9 * usual.max():
        result.attrs["noise_std"] = float(np.sqrt(usual.mean()))
    there = points.there
    about = {"long_name": "probability that the observation is wrong", "units": "1"}
    result["outlier_probability"] = "observed", found.probability[0, there], about
    places = dict(zip(points.space.axes, (points.north, points.east), strict=True))
    coordinates = {f"observed_{name}": ("observed", axis[there]) for name, axis in places.items()}
    if points.in_time:
        coordinates["observed_time"] = ("observed", points.moments[there].astype("datetime64[ns]"))
    return result.assign_coords(coordinates)


def dataset_of_variables(
    solution: Solution, observed: ObservedObject, learned: FittedModel, targets: MapTargets, *, call: str
) -> xr.Dataset:
    """Give ``NAME_mean`` and ``NAME_std`` of each variable, and how they go together as attributes."""
    q, labels = targets.points.size, observed.points.beside[VARIABLE]
    names = [variable.name for variable in observed.variables]
    variances, nuggets = variances_of(learned.kernel, len(names))
    maps: list[xr.Dataset] = []
    said: dict[str, object] = {}
    for label, variable in enumerate(observed.variables):
        noise = np.broadcast_to(learned.noise_variance, labels.shape)[labels == label] + nuggets[label]
        one = (noise == noise[0]).all()
        own = replace(learned, known_noise=noise[0] if one else noise, nugget=0.0)
        part = replace(solution.of_targets(slice(label * q, (label + 1) * q)), drift=None)
        found = as_dataset(part, variable, own, targets, call=call)
        found.attrs["prior_std"] = float(np.sqrt(variances[label]))
        said |= {f"{key}_{names[label]}": found.attrs[key] for key in ("prior_std", "noise_std")}
        maps.append(
            found.rename(
                {key: f"{names[label]}_{key}" for key in ("mean", "std", "std_computational") if key in found}
            )
        )
    result = xr.merge(maps, combine_attrs="drop_conflicts", compat="override", join="outer")
    result.attrs |= said
    result.attrs["variables"] = ", ".join(names)
    result.attrs["observations_used"] = observed.points.count
    result.attrs["title"] = f"{', '.join(names)}: posterior means and standard deviations"
    result.attrs["source"] = f"cokriging of {observed.points.count:,} observations of {len(names)} variables"
    if learned.correlations is not None:
        result.attrs |= learned.correlations.attributes(names)
    if not observed.labels:
        return result
    stds = shared_stds(learned.kernel, len(names)).values()
    result.attrs["bias_by"] = ", ".join(observed.labels)
    for label, name in enumerate(names):
        result.attrs[f"bias_std_{name}"] = one_or_all([float(std[label]) for std in stds])
    return _with_errors(result, solution, observed, len(names) * q)


def _drift(prediction: Solution, observed: ObservedObject) -> dict[str, tuple[object, ...]]:
    """Coefficients of the mean that were estimated, with their standard errors; nothing where none were."""
    found = prediction.drift
    if found is None:
        return {}
    single, what = observed.dimension is None, observed.what
    dims = ("drift_term",) if single else ("drift_term", str(observed.dimension))
    about = {"comment": "Units of the observations over those of the term."}
    values, std = (of[:, 0] if single else of for of in (found.values, found.std))
    return {
        "drift_coefficient": (dims, values, {"long_name": f"coefficient of the drift of {what}", **about}),
        "drift_coefficient_std": (dims, std, {"long_name": "its standard error", **about}),
        "drift_term": ("drift_term", list(found.names), {"long_name": "what the drift depends on"}),
    }


def _quantiles(
    prediction: Solution, observed: ObservedObject, targets: MapTargets, text: Mapping[str, str]
) -> dict[str, tuple[object, ...]]:
    """Quantiles of the field where its distributions are mixtures; nothing where mean and std are enough."""
    if prediction.quantiles is None:
        return {}
    found = [shaped(of_level, observed, targets) for of_level in np.moveaxis(prediction.quantiles, 1, 0)]
    about = {name: text[name] for name in ("units", "cell_methods") if name in text}
    about["long_name"] = text["long_name"].replace("standard deviation", "quantile", 1)
    return {
        "field_quantile": ((QUANTILE_LEVEL, *field_dims(observed, targets)), np.stack(found), about),
        QUANTILE_LEVEL: (QUANTILE_LEVEL, np.array(QUANTILE_LEVELS), {"units": "1"}),
    }


def field_dims(observed: ObservedObject, targets: MapTargets) -> tuple[str, ...]:
    """Dimensions of a result: that of the fields, if there is one, before those of the targets."""
    return targets.dims if observed.dimension is None else (observed.dimension, *targets.dims)


def shaped(values: Array, observed: ObservedObject, targets: MapTargets) -> Array:
    """Values (T, q) in the shape of a result."""
    rows = values[0] if observed.dimension is None else values
    return spread(rows, targets)


def spread(rows: Array, targets: MapTargets) -> Array:
    """Values (..., q) at the targets whose drift is known in the shape of all of them, else NaN."""
    if targets.known is None:
        return rows.reshape(*rows.shape[:-1], *targets.shape)
    every = np.full((*rows.shape[:-1], int(np.prod(targets.shape))), np.nan)
    every[..., np.resize(targets.known, every.shape[-1])] = rows
    return every.reshape(*rows.shape[:-1], *targets.shape)


def target_coordinates(observed: ObservedObject, targets: MapTargets) -> dict[str, xr.Variable]:
    """Coordinates of the targets, and those of the fields unless their names are taken."""
    fields = {name: held for name, held in observed.coordinates.items() if name not in targets.coordinates}
    return {**fields, **targets.coordinates}


def descriptions(observed: ObservedObject) -> dict[str, dict[str, str]]:
    """CF attributes of the variables of a result, from those of the variable that was observed."""
    units, what = observed.units, observed.what
    standard = observed.attributes.get("standard_name", "")
    named, modified = (
        {"standard_name": f"{standard}{of}"} if standard else {} for of in ("", " standard_error")
    )
    said = {key: text for key, text in observed.attributes.items() if key in ("transform", "comment")}
    return {
        "mean": {**named, "long_name": f"mean of {what}", **units, **said},
        "std": {
            **modified,
            "long_name": f"standard deviation of {what}, without the noise of an observation",
            **units,
        },
        "std_computational": {
            "long_name": f"part of the standard deviation of {what} that more computation would remove",
            "comment": SUM_OF_SQUARES,
            **units,
        },
    }


def attributes(
    prediction: Solution, observed: ObservedObject, learned: FittedModel, *, call: str
) -> dict[str, str | int | float | list[float]]:
    """Everything that was chosen inside, for people and programs."""
    kernel, result = learned.kernel, learned.result
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    software = f"cagp-dist {version('cagp-dist')}"
    units = observed.attributes.get("units", "")
    what = observed.what
    said: dict[str, str | int | float | list[float]] = {
        "Conventions": CONVENTIONS,
        "title": f"{what}: posterior mean and standard deviation",
        "source": f"kriging (Gaussian-process regression) of {observed.points.count:,} observations",
        "history": f"{now} {software}: {call}",
        "software": software,
        "status": prediction.status.value,
        "status_advice": prediction.status.advice,
        "solver": "; ".join(prediction.solvers),
        "kernel": repr(kernel),
        **observed.space.lengthscales_said(learned.lengthscales),
        "prior_std": float(np.sqrt(learned.field_variance)),  # over background_std, where that is a field
        "noise_std": noise_text(learned),
        "prior_mean": learned.mean_text,
        "observations_used": observed.points.count,
        **below_limits(observed),
        "observations_missing": observed.missing,
        "patterns_of_gaps": len(observed.points.patterns()),
        "planned_memory": bytes_text(max((plan.peak_bytes for plan in prediction.plans), default=0)),
        "executor": prediction.executor,
        "fit_status": "given" if result is None else result.status.value,
        "hyperparameters": learned.numbers,
    }
    if learned.averages:
        said |= {f"{name}_interval": ends for name, ends in learned.intervals.items()} | {
            "intervals_level": 1.0 - 2.0 * INTERVAL[0]
        }
    estimated = learned.mean.estimated if isinstance(learned.mean, Background) else learned.mean
    trend = estimated.trend if isinstance(estimated, WithCovariates) else estimated
    if isinstance(trend, RegionalLinear):
        said["centre_of_drift"] = list(trend.centre_degrees)
    if (terms := named_terms(learned.mean)) is not None:
        said[MEAN_TERMS] = json.dumps(terms)
    if isinstance(background := learned.mean, Background):
        said |= background.attributes
    said |= learned.ellipses
    if learned.hours:
        said["lengthscale_hours"] = one_or_all(learned.hours)
    if learned.depths:
        said["lengthscale_depth"] = one_or_all(learned.depths)
    if units:
        said["noise_units"] = units
    if observed.read_with:
        said[READ_WITH] = observed.read_with
    if result is not None:
        if result.choice is not None:
            said["kernel_choice"] = result.choice.line()
        said |= {
            "fit_advice": fit_advice(result),
            "fit_method": result.method,
            "fitted_to": learned.fitted_to,
        }
        for kind, errors in groupby(learned.standard_errors(), key=lambda error: error.kind):
            name = "lengthscale_chord" if kind == "lengthscale" and observed.space.has_latitudes else kind
            said[f"{name}_standard_error"] = one_or_all([error.value for error in errors])
    return said


def noise_text(learned: FittedModel) -> float | str:
    """Give the noise of all observations, or write between which ends those of the places lie."""
    noise = np.sqrt(learned.noise_variance)
    return float(noise) if noise.ndim == 0 else f"{noise.min():.6g} to {noise.max():.6g}, of each place"


def fit_advice(result: FitResult) -> str:
    """Say how a fit ended and, if it did not end well, what callers of `krige` can change."""
    status = result.status
    if status.ok:
        return status.advice
    which = f" ({' and '.join(result.at_bound)})" if result.at_bound else ""
    return (
        f"{status.meaning}{which} Give one of the numbers (lengthscale_km, variance, noise_std or "
        "nugget_std), try another kernel or mean, or give more or closer observations."
    )


def with_system(result: xr.Dataset, targets: MapTargets) -> xr.Dataset:
    """Add the coordinate reference system of a plane, as CF has it, to the variables on its x and y."""
    for name, variable in targets.mapping.items():
        result = result.assign_coords({name: variable})
        for each in result.data_vars.values():
            if set(targets.dims) <= set(each.dims):
                each.attrs["grid_mapping"] = name
    return result


def with_recalibration(
    result: xr.Dataset, solved: Result, observed: ObservedObject, targets: MapTargets, *, method: str
) -> xr.Dataset:
    """Add the recalibrated distribution of observations at targets: ``predictive_std`` and ``quantile``."""
    found, corrects = solved.distribution_at(), solved.corrected
    dims = field_dims(observed, targets)
    usual = sqrt(solved.usual_noise)  # with what is known of most places
    of_what = f"of an observation of {observed.what}, with usual noise" + ", recalibrated" * corrects
    quantiles = [shaped(of_level, observed, targets) for of_level in np.moveaxis(found.quantiles, 1, 0)]
    about_std = {
        "long_name": f"standard deviation {of_what}",
        "comment": f"The noise is reference_noise_std, {usual:.4g}, the median of all places.",
    }
    about_quantile = {"long_name": f"quantile {of_what}"}
    corrected = result.assign(
        predictive_std=(dims, shaped(found.std, observed, targets), about_std | observed.units),
        quantile=((QUANTILE_LEVEL, *dims), np.stack(quantiles), about_quantile | observed.units),
    ).assign_coords({QUANTILE_LEVEL: (QUANTILE_LEVEL, np.array(QUANTILE_LEVELS), {"units": "1"})})
    if found.local_scale is not None:
        about = {"long_name": "local scale of the errors", "units": "1", "comment": LOCAL_SCALE}
        corrected["local_scale"] = dims, shaped(found.local_scale, observed, targets), about
    factor = found.correction(solved.solution.std, solved.usual_noise)
    by = xr.DataArray(shaped(factor, observed, targets), dims=dims)
    for name in {"std", "std_computational"} & {*map(str, result.data_vars)}:
        corrected[name] = (by * result[name]).assign_attrs(result[name].attrs)
        corrected[name].attrs["long_name"] += f", {RECALIBRATED}" * corrects
    if "field_quantile" in result:
        spread = result["field_quantile"] - result["mean"]
        corrected["field_quantile"] = (result["mean"] + by * spread).transpose(*spread.dims)
        corrected["field_quantile"].attrs = result["field_quantile"].attrs
    if corrects:
        corrected["std"].attrs["comment"] = LATENT
    return corrected.assign_attrs(
        recalibration=method if corrects else "none",
        reference_noise_std=usual,
        recalibration_statement=f"{solved.distributions.found.statement()} predictive_std and quantile "
        "describe an observation with reference_noise_std.",
    )


def below_limits(observed: ObservedObject) -> dict[str, int]:
    """Attribute that says how many values are limits of detection."""
    limits = observed.points.limits
    return {} if limits is None else {BELOW_LIMITS: int(limits.sum())}


def in_units_of_data(
    result: xr.Dataset,
    transform: Transform,
    *,
    moments: Sequence[Array] | None = None,
    of_draws: Sequence[OfDraws] | None = None,
) -> xr.Dataset:
    """Take a result of transformed values back: everything is of the distribution of the values.

    Where they are known otherwise than by its quantiles, ``moments`` are mean and standard deviation of the
    field. Where draws predict together, ``of_draws`` has those of the field and of an observation. All of
    them have the shape of the mean.
    """
    mean, std, quantile = result["mean"], result["std"], result["quantile"]
    what = str(mean.attrs["long_name"]).removeprefix("mean of ")
    if isinstance(transform, Identity):  # with limits of detection
        median = result["field_quantile"].sel({QUANTILE_LEVEL: 0.5}, drop=True)
        said = {key: text for key, text in mean.attrs.items() if key == "units"}
        result = result.assign(median=median.assign_attrs(long_name=f"median of {what}", **said))
        return result.assign_attrs(transform_object=repr(transform))
    if of_draws is not None:
        field, observation = (
            InUnits(found.mean, found.std, transform.inverse(rows.values), found.least)
            for found, rows in zip(of_draws, (result["field_quantile"], quantile), strict=True)
        )
    else:
        field, observation = _without_draws(result, transform)
        if moments is not None:
            field = field._replace(mean=moments[0], std=moments[1])
    about = {key: said for key, said in mean.attrs.items() if key in ("units", "comment")}
    share = np.divide(field.std, std.values, out=np.zeros(mean.shape), where=std.values > 0.0)
    if "std_computational" in result:
        result["std_computational"] = result["std_computational"].copy(
            data=share * result["std_computational"].values
        )
    result = result.assign(
        mean=mean.copy(data=field.mean),
        std=(mean.dims, field.std, std.attrs),
        median=(mean.dims, field.median, {"long_name": f"median of {what}", **about}),
        field_quantile=(
            (QUANTILE_LEVEL, *mean.dims),
            field.quantiles,
            {"long_name": f"quantile of {what}, without the noise of an observation", **about},
        ),
        predictive_std=result["predictive_std"].copy(data=observation.std),
        quantile=quantile.copy(data=observation.quantiles),
    )
    for name in ("drift_coefficient", "drift_coefficient_std"):
        if name in result:
            result[name].attrs["comment"] = "Of transformed values, over the unit of the term."
    least = field.least
    if float(np.nanmax(least, initial=0.0)) > LEAST_PROBABILITY:
        value = float(transform.inverse(-np.inf))
        zero = "zero" if value == 0.0 else f"{value:.6g}, the least value"
        result["probability_zero"] = (
            mean.dims,
            least,
            {
                "long_name": f"probability that {what} is {zero}",
                "units": "1",
                "comment": "Without the noise of an observation: exceedance(of='observation') counts it.",
            },
        )
    result["predictive_std"].attrs["comment"] = "With usual noise, the median of all places."
    result.attrs |= {
        "transform": transform.text,
        "transform_comment": "Kernel, noise, prior_mean and prior_std are those of the transformed values; "
        "mean, std and quantiles are those of the values.",
    }
    if transform_of(repr(transform)) == transform:
        result.attrs[TRANSFORM_OBJECT] = repr(transform)
    result.attrs.pop("noise_units", None)
    return result


def _without_draws(result: xr.Dataset, transform: Transform) -> tuple[InUnits, InUnits]:
    """Take field and observations back, by their quantiles or as normal distributions."""
    mean, integrated = result["mean"].values, "field_quantile" in result
    if integrated:
        field = quantiles_in_units(result["field_quantile"].values, transform)
    else:
        field = normal_in_units(mean, result["std"].values, transform)
    if not integrated and result.attrs.get("recalibration") == "none":
        return field, normal_in_units(mean, result["predictive_std"].values, transform)
    return field, quantiles_in_units(result["quantile"].values, transform)


def dataset_of_samples(
    draws: Draws, observed: ObservedObject, targets: MapTargets, *, seed: int
) -> xr.Dataset:
    """Give draws the coordinates of the targets; of several variables, those of each."""
    if observed.variables:
        q = targets.points.size
        each = [
            dataset_of_samples(
                draws._replace(values=draws.values[..., at * q : (at + 1) * q]), own, targets, seed=seed
            )
            for at, own in enumerate(observed.variables)
        ]
        return xr.merge(each, combine_attrs="drop_conflicts", join="outer", compat="override")
    rows = draws.values[:, 0] if observed.dimension is None else draws.values
    dims = ("sample", *field_dims(observed, targets))
    values = spread(rows, targets)
    return xr.Dataset(
        {observed.name: (dims, values, dict(observed.attributes))},
        coords={**target_coordinates(observed, targets), "sample": np.arange(len(rows))},
        attrs={"status": draws.status.value, "solver": "; ".join(draws.solvers), "seed": seed}
        | ({READ_WITH: observed.read_with} if observed.read_with else {})
        | dict(observed.space.said),
    ).pipe(with_system, targets)


def dataset_of_folds(
    found: LeftOutFolds, observed: ObservedObject, *, integrated: bool, left_out: str
) -> xr.Dataset:
    """Predictions of each place with a value from the other folds, and their scores."""
    points, places, what = observed.points, found.split.held_out, observed.what
    part = of_places(
        points.north[places],
        points.east[places],
        points.space,
        dim="observation",
        names=None if points.names is None else points.names[places],
    )
    if points.in_time:
        when = points.moments[places].astype("datetime64[ns]")
        time = "time", xr.Variable("observation", when, dict(ABOUT))
        if observed.calendar:  # whose dates are not these
            about = {"units": "h", "long_name": "time since the first observation"}
            time = "hours", xr.Variable("observation", points.hours[places], about)
        part = replace(part, coordinates=dict([time, *part.coordinates.items()]))
    if observed.depths is not None:
        depth = xr.Variable("observation", points.beside[DEPTH][places], about_depth(observed.depths.units))
        part = replace(part, coordinates={**part.coordinates, DEPTH: depth})
    values = points.values_in_units[:, places]
    # without one observation its own mean may not be estimated
    there = ~np.isnan(values) & ~np.isnan(found.mean)
    known = there if points.limits is None else there & ~points.limits[:, places]
    labels = np.zeros(places.size) if not observed.variables else points.beside[VARIABLE][places]
    of_each = [known & (labels == label) for label in np.unique(labels)]
    every = [found.scores[np.nonzero(some)].pooled() for some in of_each]
    # of the means that are given: a recalibrated distribution may have another one
    roots = [float(np.sqrt(np.mean((values - found.mean)[some] ** 2))) for some in of_each]
    result, coverage, of_limits = every[0], every[0].coverage, ""
    if points.limits is not None:  # without which those that were measured are too high
        coverage = found.scores[np.nonzero(there)].pooled().coverage
        of_limits = (
            " rmse, crps and nll are of the values that were measured, which lie higher than all; pit of one "
            "below its limit is drawn evenly from zero to the probability of that, and counts in coverage."
        )
    of_numbers = "were fitted to all observations"
    if integrated:
        of_numbers = "are averaged over what all observations say of them"
    # of transformed values the mean of an observation lies elsewhere than that of the field
    of_what = what if points.transform is None else f"an observation of {what}, noise included,"
    fields = {
        "observed": (values, what),
        "mean": (found.mean, f"mean of {of_what} from the other folds"),
        "std": (found.std, "standard deviation without noise"),
        "predictive_std": (found.predictive_std, "standard deviation with noise"),
        "pit": (found.scores.pit, "probability integral transform"),
    }
    scores = {
        "rmse": (roots, "root mean square error", observed.units),
        "crps": ([each.crps for each in every], "continuous ranked probability score", observed.units),
        "nll": ([each.nll for each in every], "negative log predictive density", {"units": "1"}),
    }
    dims = field_dims(observed, part)
    if observed.variables:  # which may have other units
        by = [variable.name for variable in observed.variables]
        part = replace(
            part,
            coordinates={
                **part.coordinates,
                "variable": xr.Variable("observation", np.array(by)[labels.astype(np.intp)]),
                "scored": xr.Variable("scored", np.array(by)[np.unique(labels).astype(np.intp)]),
            },
        )
    return xr.Dataset(
        {
            name: (
                dims,
                shaped(held, observed, part),
                {"long_name": text, **({"units": "1"} if name == "pit" else observed.units)},
            )
            for name, (held, text) in fields.items()
        }
        | {"fold": ("observation", found.split.folds)}
        | (
            {}
            if points.limits is None
            else {
                BELOW_LIMIT: (
                    dims,
                    shaped(points.limits[:, places].astype(np.float64), observed, part) > 0.0,
                    {"long_name": "whether a limit was observed, below which the value lies"},
                )
            }
        )
        | {
            name: ((), held[0], {"long_name": text, **units})
            if not observed.variables
            else ("scored", np.array(held), {"long_name": text})
            for name, (held, text, units) in scores.items()
        }
        | {
            "coverage": (
                ("scored", "level") if observed.variables else "level",
                np.array([each.coverage for each in every]) if observed.variables else coverage,
                {"long_name": "observations in the central interval"},
            )
        },
        coords={
            **target_coordinates(observed, part),
            "level": ("level", result.levels, {"long_name": "level of the interval"}),
        },
        attrs={
            "comment": f"Each {left_out} is predicted from the other folds alone, with a mean that was "
            f"fitted to these. Kernel and noise {of_numbers}.{of_limits}"
        },
    ).pipe(with_system, part)
