"""The drift of universal kriging: a trend whose coefficients are estimated with the field.

Terms are named as in `cagp_dist.MEANS`, or as PyKrige names them, and stand beside a constant. With columns H
at the observations and h at a target, the weights w of the observations and the multipliers m solve::

    [ G   H ] [ w ]   [ v ]        mean     = w' y
    [ H'  0 ] [ m ] = [ h ]        variance = k - w' v - m' h

the kriging system with unbiasedness constraints ([Cressie 1993, 3.4]; universal kriging in PyKrige), which is
what `cagp_dist.condition` computes with any solver (math 1.7).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import xarray as xr
from scipy.interpolate import RegularGridInterpolator
from scipy.spatial import cKDTree

from cagp_dist.arrays import Array, Mask
from cagp_dist.errors import ArgumentError
from cagp_dist.fields.axes import on_plane
from cagp_dist.fields.covariates import covariate, open_covariate
from cagp_dist.fields.missing import observations
from cagp_dist.fields.observed_objects import ObservedObject
from cagp_dist.geometry import degrees, is_pole, widest_gap
from cagp_dist.kriging.map_targets import Targets
from cagp_dist.mapping import Observations
from cagp_dist.means import MEANS, CovariateField, LatitudePolynomial
from cagp_dist.plane import Plane
from cagp_dist.prior import EstimatedMean
from cagp_dist.text import alternatives

Term: TypeAlias = str | xr.DataArray | CovariateField
DriftLike: TypeAlias = Term | Iterable[Term] | EstimatedMean | None

REGIONAL_LINEAR = "regional_linear"
WIDEST_REGION = 180.0  # Degrees of longitude over which a linear function of it can be meant
SAME_PLACE = 1e-9  # Chord of places that are the same: 6 mm
SAME_VALUE = 1e-6  # Relative difference of values of one place that are the same

TRENDS = {name: family for name, family in MEANS.items() if isinstance(family, LatitudePolynomial)}
_OF_PYKRIGE = ("external_Z", "specified", "functional", "point_log")


@dataclass(frozen=True)
class RegionalLinear:
    """Linear functions of latitude and longitude in degrees, an `EstimatedMean`; a pole has no longitude."""

    centre_degrees: float  # from which longitudes are counted, -180 to 180
    coefficient_names: tuple[str, ...] = ("constant", "latitude", "longitude")

    def basis_at(self, X: Array) -> Array:
        """Columns at unit vectors X (n, 3), shape (n, 3)."""
        latitude, longitude = degrees(X)
        east = np.mod(longitude - self.centre_degrees + 180.0, 360.0) - 180.0
        east = np.where(is_pole(latitude), 0.0, east)
        return np.column_stack([np.ones(len(X)), latitude, east])


@dataclass(frozen=True)
class PlaneLinear:
    """Linear functions of x and y of a plane since its centre, an `EstimatedMean`."""

    coefficient_names: tuple[str, ...] = ("constant", "x", "y")

    def basis_at(self, X: Array) -> Array:
        """Columns at positions X (n, 2), or (n, 4) beside hours, shape (n, 3)."""
        return np.column_stack([np.ones(len(X)), X[:, :2]])


@dataclass(frozen=True, eq=False)
class StaticColumn:
    """Values at places, such as the elevation of stations."""

    name: str
    X: Array  # (n, 3), unit vectors of the places, or (n, 2) of a plane
    values: Array  # (n,)
    plane: Plane | None = None

    def __post_init__(self) -> None:
        _, first = cKDTree(self.X).query(self.X)
        known, values = self.values[first], self.values
        wrong: Mask = np.abs(values - known) > SAME_VALUE * np.maximum(np.abs(known), np.abs(values))
        if wrong.any():
            row = int(wrong.argmax())
            raise ArgumentError(
                f"drift has the column {self.name!r}, which is {known[row]:g} and {values[row]:g} at "
                f"{_place(self.X[row], self.plane)}; expected one value for each place, of observations and "
                "of targets."
            )

    def at(self, X: Array) -> Array:
        """Values at positions X, or these beside hours, which must be among the places."""
        X = X[:, : self.X.shape[1]]
        distance, first = cKDTree(self.X).query(X)
        size = 1.0 if self.plane is None else float(np.ptp(self.X, axis=0).max())
        apart: Mask = np.asarray(distance > SAME_PLACE * size)
        if apart.any():
            raise ArgumentError(
                f"drift has the column {self.name!r} of the table, which is not known at "
                f"{int(apart.sum()):,} of {len(X):,} targets, such as "
                f"{_place(X[apart.argmax()], self.plane)}; expected "
                f"a table of places with a column {self.name!r}, or an xarray dataset with such a variable. "
                "For other targets give the term as a field on a grid, drift=DataArray."
            )
        return self.values[first]


@dataclass(frozen=True, eq=False)
class PlaneField:
    """A field on a grid of x and y of a plane, interpolated bilinearly."""

    name: str
    x: Array  # (Q,), ascending
    y: Array  # (P,), ascending
    values: Array  # (P, Q)
    plane: Plane

    def at(self, X: Array) -> Array:
        """Values at positions X (n, 2), or (n, 4) beside hours."""
        x, y = self.plane.back(X[:, :2])
        field = RegularGridInterpolator((self.y, self.x), self.values, bounds_error=False)
        found = np.asarray(field(np.stack([y, x], axis=1)))
        unknown = np.isnan(found)
        if unknown.any():
            raise ArgumentError(
                f"drift has the field {self.name!r}, which is not known at {int(unknown.sum()):,} of "
                f"{len(X):,} places, such as {_place(X[unknown.argmax(), :2], self.plane)}; expected a grid "
                "around all of them, without NaN."
            )
        return found


@dataclass(frozen=True)
class Drift:
    """A trend and multiples of static fields, an `EstimatedMean`."""

    trend: LatitudePolynomial | RegionalLinear | PlaneLinear  # with a constant
    fields: tuple[CovariateField | StaticColumn | PlaneField, ...] = ()

    @property
    def coefficient_names(self) -> tuple[str, ...]:
        """Those of the trend, and the names of the fields."""
        return (*self.trend.coefficient_names, *(field.name for field in self.fields))

    def basis_at(self, X: Array) -> Array:
        """Columns at positions X, or (n, 4) beside hours: the trend's, and the fields'."""
        places = X[:, :3]
        return np.column_stack([self.trend.basis_at(places), *(field.at(places) for field in self.fields)])


def at_targets(drift: Drift, targets: Targets) -> Drift:
    """Give its columns of tables the values that the targets have."""
    fields = list(drift.fields)
    for number, term in enumerate(fields):
        if isinstance(term, StaticColumn) and term.name in targets.static:
            known = np.concatenate([term.values, targets.static[term.name]])
            fields[number] = replace(term, X=np.vstack([term.X, targets.positions]), values=known)
    return replace(drift, fields=tuple(fields))


def named_columns(drift: DriftLike) -> list[str]:
    """Names in a drift that may be those of columns: neither trends nor addresses of fields."""
    terms = [drift] if isinstance(drift, str) else drift if isinstance(drift, list | tuple) else []
    known = (*TRENDS, REGIONAL_LINEAR)
    return [term for term in terms if isinstance(term, str) and ":" not in term and term not in known]


def drift_of(drift: DriftLike, observed: ObservedObject) -> EstimatedMean:
    """Give the drift that is meant."""
    if isinstance(drift, EstimatedMean) and not isinstance(drift, str | xr.DataArray):
        return drift
    single = isinstance(drift, str | xr.DataArray) or _is_field(drift)
    terms = [drift] if single else list(drift) if isinstance(drift, Iterable) else []
    trends: list[str] = []
    fields: list[CovariateField | StaticColumn | PlaneField] = []
    for term in terms:
        if isinstance(term, str) and term in observed.static:
            column = observed.static[term]
            fields.append(StaticColumn(term, observed.points.positions, column, observed.plane))
        elif isinstance(term, str) and ":" not in term:
            trends.append(term)
        elif observed.plane is not None and isinstance(term, xr.DataArray):
            fields.append(_plane_field(term, observed.plane))
        else:
            fields.append(_field(term))
    names = [field.name for field in fields]
    for name in trends:
        if name not in (*TRENDS, REGIONAL_LINEAR):
            advice = " Fields are given themselves." if name in _OF_PYKRIGE else ""
            raise ArgumentError(f"drift has the term {name!r}; expected {_EXPECTED}.{advice}")
    if not terms or len(trends) > 1 or len(set(names)) < len(names):
        raise ArgumentError(
            f"drift is {', '.join([*map(repr, trends), *names]) or repr(drift)}; expected one of "
            f"{alternatives([*TRENDS, REGIONAL_LINEAR])} and different fields beside it."
        )
    trend = trends[0] if trends else "constant"
    if observed.plane is not None:
        return Drift(_in_plane(trend, fields), tuple(fields))
    return Drift(_regional(observed.points) if trend == REGIONAL_LINEAR else TRENDS[trend], tuple(fields))


def _in_plane(
    trend: str, fields: Iterable[CovariateField | StaticColumn | PlaneField]
) -> LatitudePolynomial | PlaneLinear:
    """Give the trend of a plane, beside columns of its table and fields on its x and y."""
    others = [field.name for field in fields if not isinstance(field, StaticColumn | PlaneField)]
    if others or trend not in ("constant", REGIONAL_LINEAR):
        raise ArgumentError(
            f"drift has the term {[*others, trend][0]!r}, which is one of latitude and longitude, and the "
            f'places are points of a plane; expected "constant", "{REGIONAL_LINEAR}", a DataArray on a grid '
            "of x and y, or the name of a column of the table, which that of the targets has as well."
        )
    return PlaneLinear() if trend == REGIONAL_LINEAR else LatitudePolynomial("power", 0)


_EXPECTED = alternatives(
    [*TRENDS, REGIONAL_LINEAR],
    "the name of a column of the table",
    'a field: an xarray.DataArray, cagp_dist.covariate(...), "file:PATH:VARIABLE" or "zarr:ADDRESS:VARIABLE"',
)


def _is_field(term: object) -> bool:
    return callable(getattr(term, "at", None)) and isinstance(getattr(term, "name", None), str)


def _plane_field(term: xr.DataArray, plane: Plane) -> PlaneField:
    """Take a field on a grid of x and y in the system and unit of the observations."""
    name = str(term.name or "field")
    where = on_plane(term)
    own = None if where is None else where.plane
    if where is None or own is None or where.axes is None or term.squeeze().ndim != 2:
        raise ArgumentError(
            f"drift has the field {name!r} with the dimensions {tuple(term.dims)}, and the places are points "
            "of a plane; expected one on a grid with axes x and y."
        )
    if own.crs is not None and not own.is_of(plane):
        raise ArgumentError(
            f"drift has the field {name!r} on the {own.text}, and the observations lie on the {plane.text}; "
            "expected one system. Bring the field to it, with rioxarray for example, or give its values at "
            "the places as a column."
        )
    y, x = (plane.scale_of(own.unit, name) * axis for axis in where.axes)
    down, across = np.argsort(y), np.argsort(x)
    held = term.squeeze().transpose(*where.dims).values
    told = observations(held, term.attrs, what=f"the field {name!r} of drift", encoding=term.encoding)
    values = np.asarray(told, dtype=np.float64)
    if where.dims[0] not in where.north.dims:
        values = values.T
    return PlaneField(name, x[across], y[down], values[np.ix_(down, across)], plane)


def _field(term: object) -> CovariateField:
    if isinstance(term, xr.DataArray):
        return covariate(term)
    if isinstance(term, str):
        return open_covariate(term)
    if _is_field(term):
        found: CovariateField = term  # type: ignore[assignment]
        return found
    raise ArgumentError(f"drift has the term {term!r}; expected {_EXPECTED}.")


def _regional(observed: Observations) -> RegionalLinear:
    """Count longitudes from the middle of the observations, poles left out."""
    there = observed.there[~is_pole(observed.latitude_degrees[observed.there])]
    west, gap = widest_gap(observed.longitude_degrees[there])
    width = 360.0 - gap
    if width > WIDEST_REGION:
        raise ArgumentError(
            f'drift "{REGIONAL_LINEAR}" is linear in longitude, and the observations span {width:g} degrees '
            f"of it; expected at most {WIDEST_REGION:g}. Around the globe take a trend in latitude: "
            f"{alternatives(name for name in TRENDS if name != 'constant')}."
        )
    return RegionalLinear((west + 0.5 * width + 180.0) % 360.0 - 180.0)


def _place(x: Array, plane: Plane | None) -> str:
    """Write where a place is."""
    if plane is not None:
        return ", ".join(
            f"{name} {float(axis[0]):.10g}" for name, axis in zip("xy", plane.back(x[None]), strict=True)
        )
    latitude, longitude = degrees(x[None])
    return f"{latitude[0]:.4f} N, {longitude[0]:.4f} E"
