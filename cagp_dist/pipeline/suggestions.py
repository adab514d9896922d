"""What would make a flagged value right: another sign, unit or place, where the changed value is probable."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cagp_dist.arrays import Array, Indices
from cagp_dist.means import WithCovariates
from cagp_dist.pipeline.checking import Checked
from cagp_dist.pipeline.field_solves import Execution
from cagp_dist.pipeline.map_mean import PartlyKnown
from cagp_dist.pipeline.map_points import MapPoints, Targets
from cagp_dist.pipeline.observations import Observations
from cagp_dist.pipeline.steps import predict
from cagp_dist.pipeline.task import Task

GROSS = 5.0  # standard deviations from where on it is asked what would make a value right
APART = 3.0  # standard deviations of what is expected from zero, where a factor or sign may be wrong
PROBABLE = 2.0  # within which a changed value is probable
INFORMED = 0.5  # part of the prior variance below which other places say what is expected at one
MOST_FIELDS = 5  # that are asked where else a place may be
MOST_PLACES = 1_000  # of which that is asked
KELVIN = 273.15


def suggestions(task: Task, checked: Checked, execution: Execution) -> NDArray[np.object_]:
    """Give for each value (T, n) what would make it right, such as "divide by 10: 21.3"; else empty."""
    found = np.full(checked.flagged.shape, "", dtype=object)
    observed = task.observed
    where = np.nonzero(checked.flagged)
    values, expected, std = (each[where] for each in (observed.values, checked.expected, checked.std))
    best = np.full(values.size, PROBABLE)
    gross = np.abs(values - expected) > GROSS * std
    away_from_zero = np.abs(expected) > APART * std  # else anything that is near zero is probable
    said = np.full(values.size, "", dtype=object)
    for text, changed, scales in changes(values, observed.units):
        away = np.abs(changed - expected) / std
        better = gross & (away < best) & (away_from_zero | (not scales))
        said[better] = [f"{text}: {value:.6g}" for value in changed[better]]
        best[better] = away[better]
    found[where] = said
    for place, text in elsewhere(task, checked, execution):
        own = checked.flagged[:, place] & (found[:, place] == "")
        found[own, place] = text
    return found


def changes(values: Array, units: str) -> Iterator[tuple[str, Array, bool]]:
    """Give ways in which values are often wrong, what they would be, and whether zero stays zero."""
    yield "change the sign", -values, True
    for factor in (10.0, 100.0, 1000.0):
        yield f"divide by {factor:g}", values / factor, True
        yield f"multiply by {factor:g}", values * factor, True
    celsius = {
        "from degrees Celsius": values,
        "from degrees Fahrenheit": (values - 32.0) / 1.8,
        "from kelvin": values - KELVIN,
    }
    if units == "degC":
        found = {text: changed for text, changed in celsius.items() if not text.endswith("Celsius")}
    elif units == "K":
        found = {text: c + KELVIN for text, c in celsius.items() if not text.endswith("kelvin")}
    elif units == "degF":
        found = {text: c * 1.8 + 32.0 for text, c in celsius.items() if not text.endswith("Fahrenheit")}
    else:
        found = {}
    for text, changed in found.items():
        yield text, changed, False


def elsewhere(task: Task, checked: Checked, execution: Execution) -> Iterator[tuple[int, str]]:
    """Give places most of whose values are flagged, and would fit at another place, and which."""
    observed = task.observed
    of_places = isinstance(checked.model.mean, WithCovariates | PartlyKnown)  # not known elsewhere
    if observed.in_time or observed.beside or observed.gridded or of_places:
        return
    flags, values = checked.flagged.sum(axis=0), observed.present.sum(axis=0)
    places = np.flatnonzero((flags > 0) & (2 * flags >= values))[:MOST_PLACES]
    fields = np.argsort(-checked.flagged[:, places].sum(axis=1), kind="stable")[:MOST_FIELDS]
    texts, rows, north, east = _other_places(observed, places)
    if not rows.size:
        return
    right = replace(observed, values=np.where(checked.flagged, np.nan, observed.values)[fields],
                    times=observed.times[fields])  # fmt: skip
    X = observed.space.positions(north, east)
    asked = replace(task, observations=right, targets=Targets(MapPoints(X)), held_out=None)
    found = predict(asked, checked.model, replace(execution, certifies=False))
    noise = checked.model.usual_noise(observed)
    latent = found.std**2
    informed = latent.max(axis=0) < INFORMED * checked.model.field_variance
    own = observed.values[np.ix_(fields, rows)]
    away = np.sqrt(np.nanmean((own - found.mean) ** 2 / (latent + noise), axis=0))
    for at in np.flatnonzero(informed & (away < PROBABLE)):
        yield int(rows[at]), texts[at]


def _other_places(observed: Observations, places: Indices) -> tuple[list[str], Indices, Array, Array]:
    """Where places may be instead: with coordinates swapped, or of another sign."""
    north, east = observed.north[places], observed.east[places]
    names = ("latitude", "longitude") if observed.space.has_latitudes else ("y", "x")
    ways = [
        (f"swap {names[0]} and {names[1]}", east, north),
        (f"change the sign of the {names[0]}", -north, east),
        (f"change the sign of the {names[1]}", north, -east),
    ]
    texts, rows, norths, easts = list[str](), list[Indices](), list[Array](), list[Array]()
    for text, other_north, other_east in ways:
        fits = (other_north != north) | (other_east != east)
        if observed.space.has_latitudes:
            fits &= np.abs(other_north) <= 90.0
        texts += [text] * int(fits.sum())
        rows.append(places[fits])
        norths.append(other_north[fits])
        easts.append(other_east[fits])
    return texts, np.concatenate(rows), np.concatenate(norths), np.concatenate(easts)
