"""The mean of a map: known, or a trend whose coefficients are estimated with the field (universal kriging).

Terms are named as in `cagp_dist.MEANS`, or as PyKrige names them, and stand beside a constant. With columns H
at the observations and h at a target, the weights w of the observations and the multipliers m solve::

    [ G   H ] [ w ]   [ v ]        mean     = w' y
    [ H'  0 ] [ m ] = [ h ]        variance = k - w' v - m' h

the kriging system with unbiasedness constraints ([Cressie 1993, 3.4]; universal kriging in PyKrige), which is
what `cagp_dist.condition` computes with any solver (math 1.7).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import xarray as xr
from scipy.spatial import cKDTree

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.fields.covariates import PlaneField, covariate, open_covariate, plane_field
from cagp_dist.fields.observed_objects import ObservedObject
from cagp_dist.gram.targets import averaged, part, target_points
from cagp_dist.kriging.map_targets import MapTargets
from cagp_dist.means import (
    MEANS,
    CovariateField,
    EstimatedMean,
    PlacedFamily,
    PlaneLinear,
    ReadFamily,
    RegionalLinear,
    StaticField,
    WithCovariates,
    mean_family,
    place_of,
)
from cagp_dist.pipeline.background import Background
from cagp_dist.pipeline.map_mean import (
    MeanLike,
    MeansByLabel,
    PartlyKnown,
    is_read,
    known_of,
    unknown_text,
)
from cagp_dist.prior import Mean
from cagp_dist.space import SPHERE, Plane, Space
from cagp_dist.text import alternatives, counted
from cagp_dist.variables import bare
from cagp_dist.variables.stated_units import unit_of_name
from cagp_dist.variables.units import conversion
from cagp_dist.warned import warn

Term: TypeAlias = str | xr.DataArray | CovariateField
MeanTerms: TypeAlias = Term | Iterable[Term] | Mean
FieldsLike: TypeAlias = xr.Dataset | xr.DataArray | Mapping[str, Term]

SAME_PLACE = 1e-9  # Chord of places that are the same: 6 mm
SAME_VALUE = 1e-6  # Relative difference of values of one place that are the same
GROSS = (
    100.0  # Ratio of values at observations and at targets that tells of different units, if none is stated
)
MOST_SHOWN = 3  # places that a warning names

_OF_PYKRIGE = ("external_Z", "specified", "functional", "point_log")


def trends() -> list[str]:
    """Name those of `cagp_dist.MEANS` whose coefficients are estimated with the field."""
    return [name for name, family in MEANS.items() if not isinstance(family, ReadFamily)]


def named_terms(mean: MeanLike) -> list[str] | None:
    """Write a trend and columns of the observations as ``mean=`` takes them; None of other terms."""
    trend, fields = (mean.trend, mean.covariates) if isinstance(mean, WithCovariates) else (mean, ())
    regional = isinstance(trend, RegionalLinear | PlaneLinear)
    names = ["regional_linear"] if regional else [name for name in trends() if MEANS[name] == trend]
    if not names or not all(isinstance(each, StaticColumn) for each in fields):
        return None
    return [*names, *(each.name for each in fields)]


@dataclass(frozen=True, eq=False)
class StaticColumn:
    """Values at places, such as the elevation of stations."""

    name: str
    X: Array  # (n, 3), unit vectors of the places, or (n, 2) of a plane; none twice
    values: Array  # (n,), NaN where it is not known
    units: str = ""  # empty if they are not stated
    space: Space = SPHERE
    field: StaticField | None = None  # what says it elsewhere

    @classmethod
    def of(cls, name: str, observed: ObservedObject) -> "StaticColumn":
        """Take a column of observations; where rows of one place have different values, their average."""
        values, names = observed.static[name], observed.points.names
        X, place = np.unique(observed.points.positions, axis=0, return_inverse=True)
        place, least, most = place.ravel(), np.full(len(X), np.nan), np.full(len(X), np.nan)
        np.fmin.at(least, place, values)
        np.fmax.at(most, place, values)
        differ, units = np.flatnonzero(_differ(least, most)), observed.static_units.get(name, "")
        if differ.size == 0:
            return cls(name, X, least, units, observed.space)
        shown = []
        for which in differ[:MOST_SHOWN]:
            called = (
                "" if names is None else f" ({', '.join(dict.fromkeys(map(str, names[place == which])))})"
            )
            shown.append(
                f"{least[which]:g} and {most[which]:g} at {place_of(X[which], observed.space)}{called}"
            )
        more = f" and {differ.size - len(shown):,} others" if differ.size > len(shown) else ""
        warn(
            f"the drift {name!r} has different values at {counted(differ.size, 'place')}, whose average is "
            f"taken: {'; '.join(shown)}{more}. If these are different places, give more digits of them."
        )
        for which in differ:
            least[which] = np.nanmean(values[place == which])
        return cls(name, X, least, units, observed.space)

    @property
    def same_place(self) -> float:
        """Distance within which places are the same."""
        return SAME_PLACE * (1.0 if self.space.has_latitudes else float(np.ptp(self.X, axis=0).max()))

    def nearest(self, X: Array) -> tuple[Mask, Array]:
        """Which positions X (n, p) are among the places, and the values of the nearest ones."""
        distance, first = cKDTree(self.X).query(X)
        return np.asarray(distance <= self.same_place), self.values[first]

    def at(self, X: Array) -> Array:
        """Values at positions X, or these beside hours: among the places, or elsewhere by the field."""
        X = X[:, : self.X.shape[1]]
        there, values = self.nearest(X)
        if self.field is not None:
            elsewhere = self.brought(self.field.at(X), _units_of(self.field))
            return np.where(there & np.isfinite(values), values, elsewhere)
        if not there.all():
            raise ArgumentError(
                f"mean has the column {self.name!r} of the table, which is not known at "
                f"{int((~there).sum()):,} of {len(X):,} targets, such as "
                f"{place_of(X[there.argmin()], self.space)}; expected "
                f"a table of places with a column {self.name!r}, or an xarray object of such a variable. "
                "For other targets give the term as a field on a grid, mean=DataArray; for means over areas "
                f"area_mean takes it as well, covariates={{{self.name!r}: DataArray}}.",
                key="covariate-unknown",
            )
        return values

    def both_units(self, elsewhere: str) -> tuple[str, str]:
        """Units here and elsewhere; where one is not stated, what the name ends in, if the other converts.

        Values of ``elevation_m`` beside others in km are in metres.
        """
        length = re.fullmatch(r".+_(m|km|ft)", self.name)
        ending = length[1] if length else unit_of_name(self.name)
        if self.units and not elsewhere and conversion(self.units, ending):
            return self.units, ending
        if elsewhere and not self.units and conversion(elsewhere, ending):
            return ending, elsewhere
        return self.units, elsewhere

    def brought(self, values: Array, units: str) -> Array:
        """Values of targets in the units of the observations."""
        own, theirs = self.both_units(units)
        found = conversion(theirs, own) if theirs and own else (1.0, 0.0)
        if found is None:
            raise DataError(
                f"the drift {self.name!r} is in {own!r} at the observations and in {theirs!r} at the "
                "targets, which do not convert; expected one quantity. Correct the units, or give the same.",
                key="drift-units",
            )
        if found != (1.0, 0.0) and not (units and self.units):
            warn(
                f"the drift {self.name!r} is converted from {theirs!r} to {own!r}: one is stated, the other "
                "the end of its name. If that is no unit, give the column or variable another name."
            )
        return found[0] * values + found[1]


def with_known_drift(observed: ObservedObject, mean: PartlyKnown) -> ObservedObject:
    """Leave out the observations at places where a field of the drift, or a background, is not known."""
    points, there = observed.points, observed.points.there
    known = np.ones(len(points.positions), dtype=bool)
    known[there] = known_of(mean, part(points.sites, there), points)
    if known.all():
        return observed
    _tell_unknown(mean, "observations", "left out", known, points.positions, observed.space)
    rows = observed.rows
    rows = None if rows is None else rows[known[np.nonzero(points.present)[1]]]
    if not points.in_time:  # they keep their rows, as those of a grid have to
        return replace(observed, points=points.only(np.flatnonzero(known)), rows=rows)
    static = {name: column[known] for name, column in observed.static.items()}
    return replace(observed, points=points.at(known), static=static, rows=rows)


def known_targets(targets: MapTargets, drift: WithCovariates, observed: ObservedObject) -> MapTargets:
    """Say at which targets the drift is known, and bring what they have of it to the observations' units.

    A target at a station with another value there lies 2 cm beside it, as it is another place in the drift.
    """
    static, beside = dict(targets.static), np.zeros(len(targets.positions), dtype=bool)
    for term in drift.covariates:
        if isinstance(term, StaticColumn) and term.name in static:
            values = term.brought(static[term.name], targets.static_units.get(term.name, ""))
            there, seen = term.nearest(targets.positions)
            static[term.name] = np.where(there & np.isnan(values), seen, values)
            beside |= there & _differ(seen, values)
    if beside.any():
        step = (
            2e-7
            if targets.space.has_latitudes
            else 4.0 * max(term.same_place for term in drift.covariates if isinstance(term, StaticColumn))
        )
        south = np.where(targets.north > 0.0, -step, step)
        targets = replace(targets, north=np.where(beside, targets.north + south, targets.north), grid=None)
    targets = replace(targets, static=static)
    wanted = targets.points.wanted
    values = averaged(wanted, _at_targets(drift, targets).covariates_at(target_points(wanted)))
    known: Mask = np.asarray(np.isfinite(values).all(axis=1))
    within = _within(targets)
    if not known.all():
        _tell_unknown(drift, "targets", "NaN", known, targets.positions[within], targets.space)
    sums = observed.points.functionals
    places = part(observed.points.positions if sums is None else sums, observed.points.there)
    seen_at = averaged(places, drift.covariates_at(target_points(places)))
    for number, term in enumerate(drift.covariates):
        _tell_far(term, targets, seen_at[:, number], values[known, number])
    return targets if known.all() else replace(targets, known=_among(within, known, targets))


def fields_of_columns(given: FieldsLike | None, mean: MeanLike, space: Space) -> dict[str, StaticField]:
    """Read the fields that say the columns of a table, which a mean has, where no row of it is."""
    if given is None:
        return {}
    terms = mean.covariates if isinstance(mean, WithCovariates) else ()
    wanted = [term.name for term in terms if isinstance(term, StaticColumn)]
    if isinstance(given, xr.DataArray):
        named: dict[str, object] = {str(given.name or next(iter(wanted), "")): given}
    else:
        named = {str(name): field for name, field in given.items()} if isinstance(given, Mapping) else {}
    found = {name: named.get(name, named.get(bare(name))) for name in wanted}
    if not wanted or not all(
        isinstance(term, str | xr.DataArray) or _is_field(term) for term in found.values()
    ):
        came = f"{type(given).__name__} of {', '.join(map(repr, named)) or 'no fields'}"
        expected = "none, as the mean has no column of the table"
        if wanted:
            expected = (
                f"a DataArray on a grid for each of {', '.join(map(repr, wanted))}, in a Dataset or dict"
            )
        raise ArgumentError(f"covariates is a {came}; expected {expected}.", key="covariates-of-areas")
    return {name: _in_space(term, space) for name, term in found.items()}


def background_targets(targets: MapTargets, mean: Background, observed: ObservedObject) -> MapTargets:
    """Say at which targets a background is known, at all of their times."""
    wanted = targets.points.wanted
    within = _within(targets)
    at_times = known_of(mean, wanted, observed.points).reshape(-1, within.size)
    known: Mask = np.asarray(at_times.all(axis=0))
    if known.all():
        return targets
    _tell_unknown(mean, "targets", "NaN", known, targets.positions[within], targets.space)
    return replace(targets, known=_among(within, known, targets))


def _within(targets: MapTargets) -> Indices:
    """Which targets are wanted, as far as is known before."""
    return np.arange(len(targets.positions)) if targets.known is None else np.flatnonzero(targets.known)


def _among(within: Indices, known: Mask, targets: MapTargets) -> Mask:
    """Say of all targets which of those within are known."""
    every = np.zeros(len(targets.positions), dtype=bool)
    every[within[known]] = True
    return every


def mean_at_targets(mean: MeanLike, targets: MapTargets) -> MeanLike:
    """Give the columns of tables that a mean has the values of the targets, too."""
    if isinstance(mean, MeansByLabel):
        return replace(mean, means=tuple(mean_at_targets(each, targets) for each in mean.means))
    return _at_targets(mean, targets) if isinstance(mean, WithCovariates) else mean


def _at_targets(drift: WithCovariates, targets: MapTargets) -> WithCovariates:
    """Give columns of tables the values that the targets have."""
    fields = list(drift.covariates)
    for number, term in enumerate(fields):
        if isinstance(term, StaticColumn) and term.name in targets.fields:
            fields[number] = replace(term, field=targets.fields[term.name])
        elif isinstance(term, StaticColumn) and term.name in targets.static:
            known = np.concatenate([term.values, targets.static[term.name]])
            fields[number] = replace(term, X=np.vstack([term.X, targets.positions]), values=known)
    return replace(drift, covariates=tuple(fields))


def _differ(first: Array, second: Array) -> Mask:
    """Which values are not the same."""
    return np.asarray(np.abs(first - second) > SAME_VALUE * np.maximum(np.abs(first), np.abs(second)))


def _tell_unknown(mean: PartlyKnown, what: str, become: str, known: Mask, X: Array, space: Space) -> None:
    """Warn of places without a value of the drift or background; `DataError` if these are all."""
    warn(f"{unknown_text(mean, known, X, space, what)}. These {what} are {become}.")


def _tell_far(term: StaticField, targets: MapTargets, seen: Array, values: Array) -> None:
    """Warn where values of a term at targets lie far from those at observations, in other units perhaps."""
    low, high, least, most = (float(end(of)) for of in (seen, values) for end in (np.min, np.max))
    stated = isinstance(term, StaticColumn) and term.name in {**targets.static, **targets.fields}
    units = ("", "")
    if isinstance(term, StaticColumn):
        elsewhere = targets.static_units.get(term.name, "") or _units_of(targets.fields.get(term.name))
        units = term.both_units(elsewhere)
    size = max(abs(low), abs(high)), max(abs(least), abs(most))
    gross = (
        stated
        and not all(units)
        and values.size > 1
        and size[1] > 0.0
        and not 1.0 / GROSS < size[0] / size[1] < GROSS
    )
    if gross or least < low - (high - low) or most > high + (high - low):
        shown = (units[0], units[0] if all(units) else units[1])  # where both are stated they were converted
        said = [f" ({unit or 'no unit stated'})" if stated else "" for unit in shown]
        warn(
            f"the drift {term.name!r} reaches from {low:g} to {high:g}{said[0]} at the observations, and "
            f"from {least:g} to {most:g}{said[1]} at the targets: its effect is extrapolated."
            + " Check that both have one unit."
            * stated
        )


def named_columns(mean: MeanTerms) -> list[str]:
    """Names in a mean that may be those of columns: neither trends nor addresses of fields."""
    terms = [mean] if isinstance(mean, str) else mean if isinstance(mean, list | tuple) else []
    known = trends()
    return [term for term in terms if isinstance(term, str) and ":" not in term and term not in known]


def mean_given(mean: MeanTerms, observed: ObservedObject) -> MeanLike:
    """Give the mean that is meant: a number or function is known, terms have coefficients to estimate."""
    if isinstance(mean, str) and is_read(mean):
        if not observed.space.has_latitudes:
            raise _of_latitudes(mean)
        return mean
    if isinstance(mean, EstimatedMean) and not isinstance(mean, str | xr.DataArray):
        return mean
    single = isinstance(mean, str | xr.DataArray) or _is_field(mean)
    if not single and (callable(mean) or isinstance(mean, int | float | np.number)):
        return mean
    terms = [mean] if single else list(mean) if isinstance(mean, Iterable) else []
    named: list[str] = []
    fields: list[StaticField] = []
    for term in terms:
        if isinstance(term, str) and term in observed.static:
            fields.append(StaticColumn.of(term, observed))
        elif isinstance(term, str) and ":" not in term:
            named.append(term)
        else:
            fields.append(_in_space(term, observed.space))
    names = [field.name for field in fields]
    for name in named:
        if name not in trends():
            advice = " Fields are given themselves." if name in _OF_PYKRIGE else ""
            raise ArgumentError(f"mean has the term {name!r}; expected {_expected()}.{advice}", key="mean")
    if not terms or len(named) > 1 or len(set(names)) < len(names):
        raise ArgumentError(
            f"mean is {', '.join([*map(repr, named), *names]) or repr(mean)}; expected one of "
            f"{alternatives(trends())} and different fields beside it, or a number.",
            key="mean",
        )
    name, space, points = named[0] if named else "constant", observed.space, observed.points
    kind = MEANS[name]
    if not space.has_latitudes:
        others = [field.name for field in fields if not isinstance(field, StaticColumn | PlaneField)]
        if others or not (name == "constant" or isinstance(kind, PlacedFamily)):
            raise _of_latitudes([*others, name][0])
    trend = mean_family(name, places=(space, points.north[points.there], points.east[points.there]))
    assert isinstance(trend, EstimatedMean)  # no one that is read
    return WithCovariates(trend, tuple(fields), space) if fields else trend


def _of_latitudes(term: str) -> ArgumentError:
    return ArgumentError(
        f"mean has the term {term!r}, which is one of latitude and longitude, and the places are points of a "
        f'plane; expected "constant", "regional_linear", a DataArray on a grid of x and y, or the name of '
        "a column of the table, which that of the targets has as well.",
        key="mean-of-latitudes",
    )


def _expected() -> str:
    """Write what a term of a mean may be."""
    return alternatives(
        trends(),
        "the name of a column of the table",
        "a field: an xarray.DataArray, cagp_dist.covariate(...), "
        '"file:PATH:VARIABLE" or "zarr:ADDRESS:VARIABLE"',
    )


def _is_field(term: object) -> bool:
    return callable(getattr(term, "at", None)) and isinstance(getattr(term, "name", None), str)


def _units_of(field: object) -> str:
    """Give the units that a field states; empty for none."""
    return str(getattr(field, "units", ""))


def _in_space(term: object, space: Space) -> CovariateField:
    """Take a field where the observations are."""
    if isinstance(space, Plane) and isinstance(term, xr.DataArray):
        return plane_field(term, space)
    return _field(term)


def _field(term: object) -> CovariateField:
    if isinstance(term, xr.DataArray):
        return covariate(term)
    if isinstance(term, str):
        return open_covariate(term)
    if _is_field(term):
        found: CovariateField = term  # type: ignore[assignment]
        return found
    raise ArgumentError(f"mean has the term {term!r}; expected {_expected()}.", key="mean")
