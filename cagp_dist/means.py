"""Prior means of a field on the globe: families with coefficients that least squares finds, by name.

One is a basis whose coefficients are estimated with the field, an `EstimatedMean`, or is read. What is fitted
before gives a function of unit vectors that `cagp_dist.Prior` takes::

    min over c of  sum_i w_i (y_i - a(x_i) - sum_k c_k phi_k(x_i))^2        w = cos(lat), the area of a cell

for every field by itself. `MEANS` holds all families by the names that jobs use; a new one is an entry there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Literal, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cagp_dist.arrays import Array, Marks, Mask
from cagp_dist.checks import as_numbers
from cagp_dist.digest import joint_sha256
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.geometry import area_weights, degrees, is_pole, widest_gap
from cagp_dist.space import SPHERE, Space
from cagp_dist.text import alternatives, counted

Times = NDArray[np.datetime64]
Basis = Literal["power", "harmonic"]
WIDEST_REGION = 180.0  # Degrees of longitude over which a linear function of it can be meant


@runtime_checkable
class EstimatedMean(Protocol):
    """A mean ``H c`` whose coefficients c are estimated with the field; nothing is known of them before."""

    @property
    def coefficient_names(self) -> tuple[str, ...]: ...  # one for each of the k columns, for messages

    def basis_at(self, X: Array, /) -> ArrayLike: ...  # columns of H (n, k) at points X (n, p)


class FieldMean(Protocol):
    """A prior mean that was fitted: values at unit vectors X (n, 3), shape (n, T)."""

    def __call__(self, X: Array, /) -> Array: ...


class MeanFamily(Protocol):
    """What a prior mean is fitted from, before the field.

    Attributes
    ----------
    content_sha256 : str or None
        Digest of the data that the family was read from, where there are any.
    units : str
        Of the values that it is fitted to; empty if these may have any.
    """

    @property
    def content_sha256(self) -> str | None: ...

    @property
    def units(self) -> str: ...

    def check_covers(self, latitude_degrees: Array, longitude_degrees: Array) -> None:
        """Raise `ConfigurationError` if the mean is not known at one of these points."""
        ...

    def fit(
        self,
        latitude_degrees: Array,
        longitude_degrees: Array,
        values: ArrayLike,
        *,
        times: Times | None = None,
    ) -> FieldMean:
        """Fit by least squares to values (n,) or (n, T) at n points; times, shape (T,), of the fields."""
        ...


@dataclass(frozen=True)
class LatitudePolynomial:
    """Polynomials in latitude or in its sine, a `MeanFamily`.

    Parameters
    ----------
    basis : {"power", "harmonic"}
        Powers of latitude / 90 degrees, or Legendre polynomials of the sine of latitude: the zonal
        spherical harmonics, which are smooth across the poles.
    degree : int
        At least 0; 0 is the area-weighted average.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> latitude, longitude = np.array([-60.0, 0.0, 30.0, 80.0]), np.zeros(4)
    >>> mean = cagp.mean_family("quadratic-latitude").fit(latitude, longitude, 300 - 0.006 * latitude**2)
    >>> prior = cagp.Prior(cagp.Matern32(0.05, 22.0), noise_variance=0.5, mean=mean)
    >>> prior.mean_at(cagp.unit_sphere([50.0], [8.0])).round(6)
    array([[285.]])
    """

    basis: Basis
    degree: int

    content_sha256: ClassVar[None] = None
    units: ClassVar[str] = ""

    @property
    def coefficient_names(self) -> tuple[str, ...]:
        """Names of the coefficients, degree + 1 of them."""
        power = "P{}(sin latitude)" if self.basis == "harmonic" else "latitude^{}"
        first = ("constant", power.format(1).removesuffix("^1"))
        return (*first, *(power.format(i) for i in range(2, self.degree + 1)))[: self.degree + 1]

    def basis_at(self, X: Array) -> Array:
        """Columns at unit vectors X (n, 3), or those beside hours (n, 4); a constant at points of any kind.

        As the mean of a `cagp_dist.Prior` the polynomial is not fitted before but estimated with the field.
        """
        if self.degree == 0:
            return np.ones((len(X), 1))
        if X.shape[1] not in (3, 4):
            raise ArgumentError(
                f"X has {X.shape[1]} columns, but a mean by latitude needs unit vectors, those of "
                "cagp_dist.unit_sphere. Use the constant mean, or a cagp_dist.BasisMean of X.",
                key="mean-of-latitudes",
            )
        return _features(self.basis, self.degree, latitude_of(X))

    def check_covers(self, latitude_degrees: Array, longitude_degrees: Array) -> None:
        """Accept every point: a polynomial is known everywhere."""

    def fit(
        self,
        latitude_degrees: Array,
        longitude_degrees: Array,
        values: ArrayLike,
        *,
        times: Times | None = None,
    ) -> "LatitudeMean":
        """Fit the coefficients to values (n,) or (n, T), each point weighted with the area of its cell.

        The fitted mean is plugged in as if it had been known, so calibration holds given the mean, not for
        the mean's own error (math 1.6, 8), which is small when the points are many. It is of minimal norm
        where the points do not determine it, as on a single latitude.

        Raises
        ------
        ArgumentError
            If shapes do not match or a value is not finite.
        """
        columns = as_columns(latitude_degrees, longitude_degrees, values)
        root = np.sqrt(area_weights(latitude_degrees))[:, None]
        features = _features(self.basis, self.degree, latitude_degrees)
        coefficients = np.linalg.lstsq(root * features, root * columns, rcond=None)[0]
        return LatitudeMean(basis=self.basis, coefficients=np.asarray(coefficients, dtype=np.float64))


@dataclass(frozen=True, eq=False)
class LatitudeMean:
    """A polynomial in latitude or in its sine for every field, as a function of points on the unit sphere.

    Attributes
    ----------
    basis : {"power", "harmonic"}
        As in `LatitudePolynomial`.
    coefficients : array of float64, shape (degree + 1, T)
        Unit of the values.
    """

    basis: Basis
    coefficients: Array

    def __call__(self, X: Array) -> Array:
        """Values at unit vectors X (n, 3), or those beside hours, (n, T); a constant at any points."""
        if len(self.coefficients) == 1:
            return np.ones((len(X), 1)) @ self.coefficients
        return _features(self.basis, len(self.coefficients) - 1, latitude_of(X)) @ self.coefficients


@dataclass(frozen=True)
class FittedBefore:
    """A mean whose coefficients are fitted before the field and then known, a `MeanFamily`."""

    family: LatitudePolynomial

    content_sha256: ClassVar[None] = None
    units: ClassVar[str] = ""

    def check_covers(self, latitude_degrees: Array, longitude_degrees: Array) -> None:
        """Accept every point: a polynomial is known everywhere."""

    def fit(
        self,
        latitude_degrees: Array,
        longitude_degrees: Array,
        values: ArrayLike,
        *,
        times: Times | None = None,
    ) -> LatitudeMean:
        """Fit as `LatitudePolynomial.fit` does."""
        return self.family.fit(latitude_degrees, longitude_degrees, values, times=times)


@dataclass(frozen=True)
class BasisMean:
    """A prior mean ``H c`` from any functions of the points, its coefficients estimated with the field.

    Parameters
    ----------
    function : callable
        Of points X (n, p): columns of H, shape (n, k).
    coefficient_names : tuple of str
        One for each column, for messages.

    Examples
    --------
    Observations of a straight line; far away the estimate goes on, and says how little it knows:

    >>> import numpy as np, cagp_dist as cagp
    >>> line = cagp.BasisMean(lambda X: np.column_stack([np.ones(len(X)), X]), ("constant", "slope"))
    >>> prior = cagp.Prior(cagp.Matern32(lengthscale=0.3), noise_variance=0.01, mean=line)
    >>> X = np.linspace(0.0, 1.0, 20).reshape(-1, 1)
    >>> posterior = cagp.condition(prior, X, 3.0 + 2.0 * X[:, 0], [[5.0]], solver=cagp.Cholesky())
    >>> posterior.mean.round(6), posterior.coefficients.values.round(6)
    (array([13.]), array([3., 2.]))
    >>> bool(posterior.variance[0] > 10.0)
    True
    """

    function: Callable[[Array], ArrayLike]
    coefficient_names: tuple[str, ...]

    def __post_init__(self) -> None:
        names = self.coefficient_names
        if not callable(self.function):
            raise ArgumentError(
                f"function is a {type(self.function).__name__}; expected one of points (n, p).",
                key="mean-type",
            )
        if isinstance(names, str) or not names or len(set(names)) < len(names):
            raise ArgumentError(
                f"coefficient_names is {names!r}; expected different names, one for each column.",
                key="coefficient-names",
            )
        object.__setattr__(self, "coefficient_names", tuple(names))

    def basis_at(self, X: Array) -> Array:
        """Columns at points X (n, p), shape (n, k)."""
        return as_numbers("the basis of the mean", self.function(X))


class StaticField(Protocol):
    """A field without times that a mean is a multiple of."""

    @property
    def name(self) -> str: ...

    def at(self, X: Array, /) -> Array: ...  # values (n,) at positions X (n, p), NaN where not known


@runtime_checkable
class CovariateField(StaticField, Protocol):
    """A static field that is read."""

    @property
    def content_sha256(self) -> str: ...


@dataclass(frozen=True)
class WithCovariates:
    """A trend and multiples of static fields, an `EstimatedMean`."""

    trend: EstimatedMean  # with a constant
    covariates: tuple[StaticField, ...]  # at least one
    space: Space = SPHERE  # of the places

    @property
    def content_sha256(self) -> str:
        """Digest of the fields that are read."""
        return joint_sha256(
            [each.content_sha256 for each in self.covariates if isinstance(each, CovariateField)]
        )

    @property
    def coefficient_names(self) -> tuple[str, ...]:
        """Those of the trend, and the names of the fields."""
        return (*self.trend.coefficient_names, *(each.name for each in self.covariates))

    def basis_at(self, X: Array) -> Array:
        """Columns at positions X, or these beside hours (n, 4): of trend and fields."""
        columns = self.covariates_at(X)
        for field, values in zip(self.covariates, columns.T, strict=True):
            check_known(field.name, values, lambda row: place_of(X[row], self.space))
        return np.column_stack([self.trend.basis_at(X[:, :3]), columns])

    def covariates_at(self, X: Array) -> Array:
        """Values (n, k) of the fields at positions X, NaN where one is not known."""
        return np.array([each.at(X[:, :3]) for each in self.covariates]).T

    def known_at(self, X: Array) -> Mask:
        """Tell at which positions X all fields are known."""
        return np.asarray(np.isfinite(self.covariates_at(X)).all(axis=1))


def place_of(x: Array, space: Space) -> str:
    """Write where a position (p,) is."""
    north, east = space.places(x[None])
    return space.place_text(float(north[0]), float(east[0]))


@dataclass(frozen=True)
class RegionalLinear:
    """Linear functions of latitude and longitude in degrees, an `EstimatedMean`; a pole has no longitude."""

    centre_degrees: tuple[float, float]  # latitude and longitude, -180 to 180, from which both are counted
    coefficient_names: tuple[str, ...] = ("constant", "latitude", "longitude")

    def basis_at(self, X: Array) -> Array:
        """Columns at unit vectors X (n, 3), or those beside hours, shape (n, 3)."""
        latitude, longitude = degrees(X[:, :3])
        east = np.mod(longitude - self.centre_degrees[1] + 180.0, 360.0) - 180.0
        east = np.where(is_pole(latitude), 0.0, east)
        return np.column_stack([np.ones(len(X)), latitude - self.centre_degrees[0], east])


@dataclass(frozen=True)
class PlaneLinear:
    """Linear functions of x and y of a plane since its centre, an `EstimatedMean`."""

    coefficient_names: tuple[str, ...] = ("constant", "x", "y")

    def basis_at(self, X: Array) -> Array:
        """Columns at positions X (n, 2), or (n, 4) beside hours, shape (n, 3)."""
        return np.column_stack([np.ones(len(X)), X[:, :2]])


def regional_linear(space: Space, north: Array, east: Array) -> RegionalLinear | PlaneLinear:
    """Count from the middle of places, poles left out."""
    if not space.has_latitudes:
        return PlaneLinear()
    there = ~is_pole(north)
    latitude, longitude = north[there], east[there]
    west, gap = widest_gap(longitude)
    width = 360.0 - gap
    if width > WIDEST_REGION:
        polynomials = {name: each for name, each in MEANS.items() if isinstance(each, LatitudePolynomial)}
        raise ArgumentError(
            f'mean "regional_linear" is linear in longitude, and the observations span {width:g} degrees of '
            f"it; expected at most {WIDEST_REGION:g}. Around the globe take a trend in latitude: "
            f"{alternatives(name for name, each in polynomials.items() if each.degree)}.",
            key="regional-mean",
        )
    middle = 0.5 * float(latitude.min() + latitude.max())
    return RegionalLinear((middle, (west + 0.5 * width + 180.0) % 360.0 - 180.0))


@dataclass(frozen=True)
class PlacedFamily:
    """An `EstimatedMean` that depends on where the observations lie."""

    at: Callable[[Space, Array, Array], EstimatedMean]  # of their space, north and east (n,)
    count: int  # of coefficients


@dataclass(frozen=True)
class ReadFamily:
    """A family that is read from what ``NAME:ADDRESS`` names."""

    reader: str  # ``module:function`` of (address, variable), imported when it is needed

    def read(self, address: str, *, variable: str) -> MeanFamily:
        """Read the family."""
        family: MeanFamily = _imported(self.reader)(address, variable=variable)
        return family


MEANS: dict[str, EstimatedMean | PlacedFamily | ReadFamily] = {
    "constant": LatitudePolynomial("power", 0),
    "quadratic-latitude": LatitudePolynomial("power", 2),
    "harmonic-latitude": LatitudePolynomial("harmonic", 4),
    "regional_linear": PlacedFamily(regional_linear, 3),
    "climatology": ReadFamily("cagp_dist.fields.climatology:open_climatology"),
}
"""All by the names that jobs and calls use; a new one is an `EstimatedMean` here: two members are enough."""


def spellings() -> tuple[str, ...]:
    """List how each is written."""
    return tuple(f"{name}:PATH" if isinstance(kind, ReadFamily) else name for name, kind in MEANS.items())


COVARIATE_READER = "cagp_dist.fields.covariates:open_covariate"  # imported when needed


def mean_family(
    name: str,
    *,
    variable: str = "t2m",
    covariates: Sequence[str | CovariateField] = (),
    covariates_missing: Marks = None,
    places: tuple[Space, Array, Array] | None = None,
) -> MeanFamily | EstimatedMean:
    """Give the family of prior means that a job names.

    Parameters
    ----------
    name : str
        A key of `MEANS`, with ``:`` and the address behind it where the family is read.
    variable : str
        Name of the variable where the family is read from a file.
    covariates : sequence of str or CovariateField
        Static fields whose multiples are part of the mean as well: ``"file:PATH:VARIABLE"`` of a NetCDF
        file, ``"zarr:ADDRESS:VARIABLE"`` of a store, or what `cagp_dist.covariate` makes of a DataArray.
    covariates_missing : number or sequence of numbers, optional
        What stands where those that are read are not known, as ``missing`` of `cagp_dist.covariate`.
    places : tuple, optional
        Space, and north and east (n,) of the observations, from whose middle "regional_linear" is counted.

    Returns
    -------
    MeanFamily or EstimatedMean

    Raises
    ------
    ArgumentError
        If there is no such family, or it has no coefficients to stand beside those of covariates, or it is
        no `EstimatedMean`.
    DataError, BudgetError
        If what it is read from is damaged, or does not fit into memory.
    """
    kind, _, address = name.partition(":")
    family = MEANS.get(kind)
    if isinstance(family, ReadFamily) and address and not covariates:
        return family.read(address, variable=variable)
    if family is None or isinstance(family, ReadFamily) != bool(address):
        raise ArgumentError(f"mean is {name!r}; expected {alternatives(spellings())}.", key="mean-unknown")
    if isinstance(family, ReadFamily):
        named = [kind for kind, each in MEANS.items() if not isinstance(each, ReadFamily)]
        raise ArgumentError(
            f"mean is {name!r} with covariates; expected {alternatives(named)} beside them.",
            key="covariates-without-mean",
        )
    if isinstance(family, PlacedFamily):
        if places is None:
            raise ArgumentError(
                f"mean is {name!r}, which is counted from the middle of the observations; expected places.",
                key="mean-without-places",
            )
        family = family.at(*places)
    if not isinstance(family, EstimatedMean):
        raise ArgumentError(
            f"MEANS[{name!r}] is {family!r}; expected coefficient_names and basis_at(X), the columns of its "
            "basis at points X (n, p).",
            key="mean-type",
        )
    if not covariates:
        return family
    fields: tuple[CovariateField, ...] = tuple(
        _imported(COVARIATE_READER)(each, missing=covariates_missing) if isinstance(each, str) else each
        for each in covariates
    )
    if len({field.name for field in fields}) < len(fields):
        raise ArgumentError(
            f"covariates are named {', '.join(field.name for field in fields)}; expected each once.",
            key="covariate-twice",
        )
    return WithCovariates(family, fields)


def check_known(name: str, values: Array, place: Callable[[int], str]) -> None:
    """Raise `DataError` where a covariate is NaN; ``place`` says where a point is."""
    unknown = np.isnan(values)
    if unknown.any():
        raise DataError(
            f"the covariate {name!r} is not known at {counted(int(unknown.sum()), 'point')} of "
            f"{len(values):,}, such as {place(int(unknown.argmax()))}: its grid ends before, or it is NaN "
            "there. Fill it, restrict observations and targets to where it is known, or leave it out.",
            key="covariate-unknown",
        )


def _imported(reader: str) -> Callable[..., Any]:
    """Import ``module:function``."""
    module, function = reader.split(":")
    return cast("Callable[..., Any]", getattr(import_module(module), function))


def as_columns(latitude_degrees: Array, longitude_degrees: Array, values: ArrayLike) -> Array:
    """Check the data of a fit and give the values as (n, T)."""
    columns = as_numbers("values", values)
    n = len(latitude_degrees)
    if columns.ndim not in (1, 2) or len(columns) != n or np.shape(longitude_degrees) != (n,):
        raise ArgumentError(
            f"values have shape {columns.shape} at {n} latitudes and {np.size(longitude_degrees)} "
            "longitudes; expected one of each for every point, values (n,) or (n, T) for T fields.",
            key="shapes",
        )
    if not np.isfinite(columns).all():
        raise ArgumentError("values hold NaN or infinity; drop those points first.", key="not-finite")
    return columns if columns.ndim == 2 else columns[:, None]


def latitude_of(X: Array) -> Array:
    """Degrees north of unit vectors; the arc tangent is exact to rounding also near the poles."""
    return np.asarray(np.rad2deg(np.arctan2(X[:, 2], np.hypot(X[:, 0], X[:, 1]))), dtype=np.float64)


def _features(basis: Basis, degree: int, latitude_degrees: Array) -> Array:
    """Columns 0 .. degree of a basis at n latitudes, shape (n, degree + 1)."""
    if basis == "harmonic":
        sine = np.sin(np.deg2rad(latitude_degrees))
        return np.asarray(np.polynomial.legendre.legvander(sine, degree), dtype=np.float64)
    return np.vander(latitude_degrees / 90.0, degree + 1, increasing=True)
