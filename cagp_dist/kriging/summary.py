"""What a map was made with, and why it says nothing, in a few lines of text."""

from collections.abc import Callable, Iterator
from itertools import combinations, groupby
from math import sqrt

import numpy as np
from scipy.spatial import cKDTree

from cagp_dist.factors import Directional
from cagp_dist.fields.observed_objects import ObservedObject
from cagp_dist.geometry import EARTH_RADIUS_KILOMETRES, kilometres_of_chord
from cagp_dist.kernels import VARIABLE
from cagp_dist.kriging.map_targets import MapTargets
from cagp_dist.means import MEANS
from cagp_dist.pipeline.defaults import INTERVAL
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.labelled_fit import variances_of
from cagp_dist.pipeline.observations import Observations
from cagp_dist.predictive.transforms import Identity
from cagp_dist.text import counted, digits_text


def summary(observed: ObservedObject, learned: FittedModel) -> str:
    """Write kernel, noise and fit; see `Kriging.summary`."""
    result = learned.result
    points, unit = observed.points, "".join(f" {text}" for text in observed.units.values())
    transform = points.transform
    if isinstance(transform, Identity):  # with limits of detection
        transform = None
    if transform is not None:
        unit = ""
    noise = np.sqrt(learned.noise_variance)
    shown = f"{noise:.4g}" if noise.ndim == 0 else f"{noise.min():.4g} to {noise.max():.4g}"
    lines = [
        f"Kriging of {observed.name}: {counted(points.count, 'observation')} at {_where_and_when(points)}, "
        f"{observed.missing:,} missing",
        *([] if transform is None else [f"transform    z = {transform.text}; all below is of z"]),
        f"kernel       {_kernel(learned)}",
        *(f"lengthscale  {observed.space.lengthscale_text(number)}" for number in learned.lengthscales),
        *_ellipses(learned),
        *_spreads(observed, learned, f"{shown}{unit}", unit),
        f"prior mean   {'given' if callable(learned.mean) else learned.mean_text}"
        + ", estimated with the field" * (learned.mean_text in MEANS),
    ]
    if result is None:
        return "\n".join([*lines, "fit          none: every number was given"])
    return "\n".join(
        [
            *lines,
            f"fit          {result.status.value}, to {learned.fitted_to} ({result.method})",
            *([errors] if (errors := _all_errors(observed, learned)) else []),
            f"parameters   {learned.numbers}",
            *_intervals(observed, learned),
        ]
    )


def _where_and_when(points: Observations) -> str:
    """Count places, and times or fields where there are several."""
    if points.in_time:
        count = [len(np.unique(each, axis=0)) for each in (points.positions, points.hours)]
        return f"{counted(count[0], 'place')} and {counted(count[1], 'time')}"
    beside = points.beside.get(VARIABLE)  # places of several variables are there once for each
    apart = points.there if beside is None else np.unique(points.positions[points.there], axis=0)
    places = counted(len(apart), "place")
    if points.fields == 1:
        return places
    return f"{places} and {counted(points.fields, 'field' if points.dates() is None else 'time')}"


def _spreads(observed: ObservedObject, learned: FittedModel, noise: str, unit: str) -> Iterator[str]:
    """Write the standard deviations of the field, the noise and of errors that observations share."""
    if not observed.variables:
        yield f"prior std    {sqrt(learned.field_variance):.4g}{unit}"
        yield f"noise std    {noise}"
        for axis, std in learned.bias_std.items():
            yield f"bias std     {std:.4g}{unit}, shared by the observations of one {axis}"
        return
    names, labels = [each.name for each in observed.variables], observed.points.beside[VARIABLE]
    variances, nuggets = variances_of(learned.kernel, len(names))
    every = np.broadcast_to(learned.noise_variance, labels.shape)
    for label, name in enumerate(names):
        own = np.sqrt(every[labels == label] + nuggets[label])
        said = f"{own.min():.4g}" if np.ptp(own) == 0.0 else f"{own.min():.4g} to {own.max():.4g}"
        yield f"{name:12} prior std {sqrt(variances[label]):.4g}, noise std {said}"
    if learned.correlations is not None:
        values, errors = learned.correlations
        for first, second in combinations(range(len(names)), 2):
            error = errors[first, second]
            said = f"{values[first, second]:.3g}" + ("" if np.isnan(error) else f" ± {error:.2g}")
            yield f"             correlation {names[first]} {names[second]} {said}"


def _all_errors(observed: ObservedObject, learned: FittedModel) -> str:
    """Write the standard errors, where there are any."""
    said = ", ".join(_errors(observed, learned))
    return f"             standard errors: {said}" if said else ""


def _intervals(observed: ObservedObject, learned: FittedModel) -> Iterator[str]:
    """Write between which ends numbers lie that are integrated over; lengthscales on the ground in km."""
    if learned.averages:
        space, said = observed.space, []
        for name, ends in learned.intervals.items():
            low, high = (digits_text(end, 3) for end in ends)
            if name == "lengthscale" and space.has_latitudes:
                low, high = (f"{kilometres_of_chord(end):.3g}" for end in ends)
                high += " km"
            elif name == "lengthscale":
                low, high = (space.lengthscale_text(end) for end in ends)
            said.append(f"{name.replace('_', ' ')} {low} to {high}")
        yield f"             {1.0 - 2.0 * INTERVAL[0]:.0%} of probability: {', '.join(said)}"


def _ellipses(learned: FittedModel) -> Iterator[str]:
    """Write the shapes of anisotropic kernels, with their standard errors where there are any."""
    said = learned.ellipses
    for part in learned.kernel.parts:
        if isinstance(part, Directional):
            if part.ratio == 1.0 and learned.result is not None:
                yield "ellipse      none: a circle is nearly as likely"
                continue
            ratio, azimuth = f"{part.ratio:.3g}", f"{part.azimuth_degrees:.0f}"
            if "anisotropy_ratio_standard_error" in said:
                ratio += f" ± {said['anisotropy_ratio_standard_error']:.2g}"
            if "anisotropy_azimuth_degrees_standard_error" in said:
                azimuth += f" ± {said['anisotropy_azimuth_degrees_standard_error']:.0f}"
            yield f"ellipse      {ratio} : 1, major axis {azimuth} degrees from north"


def _kernel(learned: FittedModel) -> str:
    """Name the kernel, and say from what it was chosen."""
    if learned.result is not None and learned.result.choice is not None:
        return learned.result.choice.line()
    return " + ".join(part.family.__name__ for part in learned.kernel.parts)


def _errors(observed: ObservedObject, learned: FittedModel) -> Iterator[str]:
    """Write the standard errors of each kind of number, and why one has none; on the ground in km."""
    for kind, errors in groupby(learned.standard_errors(), key=lambda error: error.kind):
        own = list(errors)
        write: Callable[[float], str] = "{:.2g}".format
        values = [error.value for error in own]
        if kind == "lengthscale" and not observed.space.has_latitudes:
            write = observed.space.lengthscale_text
        elif kind == "lengthscale" and len(own) == len(learned.lengthscales):
            # by the change of the distance on the ground with the chord
            write = "{:.2g} km".format
            slopes = map(_kilometres_per_chord, learned.lengthscales)
            values = [value * slope for value, slope in zip(values, slopes, strict=True)]
        written = [_error(value, write, error.why) for error, value in zip(own, values, strict=True)]
        yield f"{kind.replace('_', ' ')} {' and '.join(written)}"


def _kilometres_per_chord(chord: float) -> float:
    """Give the change of the distance on the ground with the chord; NaN beyond the diameter of the sphere."""
    return EARTH_RADIUS_KILOMETRES / sqrt(1.0 - chord**2 / 4.0) if chord < 2.0 else np.nan


def _error(value: float, write: Callable[[float], str], why: str) -> str:
    """Write a standard error, or why there is none."""
    if not why and not np.isnan(value):
        return write(value)
    return f"none ({why or 'longer than the globe'})"


def why_uninformed(observed: ObservedObject, learned: FittedModel, targets: MapTargets) -> str:
    """Say why the observations say nothing of any target: they are noisy, or far away."""
    points = observed.points
    if points.in_time:
        return "no observation is near any target at these times; check these, their zone, and the targets:"
    distances, _ = cKDTree(points.positions[points.there]).query(targets.positions)
    noise, spread = float(np.sqrt(np.min(learned.noise_variance))), float(np.sqrt(learned.kernel.variance))
    if np.min(distances) < max(learned.lengthscales) and noise > spread:
        return (
            f"the noise is {noise:.3g}, {noise / spread:.3g} times the standard deviation of the field "
            f"({spread:.3g}), so the observations say almost nothing about it: check noise_std (a standard "
            "deviation, in the unit of the values) and variance;"
        )
    covered = ", ".join(f"{edge:.8g}" for edge in observed.points.extent())
    return (
        f"no observation is near any target: the observations lie within [{covered}] (north, west, south, "
        f"east); check the targets, and whether {observed.space.what} are swapped;"
    )
