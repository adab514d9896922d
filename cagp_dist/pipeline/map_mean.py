"""The prior mean of fields that were observed at the same places."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, TypeGuard, cast

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.gram.targets import averaged, target_points
from cagp_dist.kernels import Matern32, in_order_of_columns
from cagp_dist.means import (
    MEANS,
    BasisMean,
    EstimatedMean,
    FieldMean,
    MeanFamily,
    ReadFamily,
    WithCovariates,
    mean_family,
    place_of,
)
from cagp_dist.pipeline.background import Background
from cagp_dist.pipeline.observations import Observations
from cagp_dist.posterior.patterns import fields_by_pattern
from cagp_dist.prior import KnownPlusEstimated, Mean, Prior
from cagp_dist.space import Space
from cagp_dist.variables import range_error
from cagp_dist.variables.units import conversion

MeanLike: TypeAlias = "str | Mean | MeanFamily | Background | MeansByLabel"


# A mean that is not known everywhere: grids of fields end, and have gaps
PartlyKnown: TypeAlias = WithCovariates | Background


def known_at(mean: PartlyKnown, X: Array, observed: Observations) -> Mask:
    """Tell at which points X (n, p) a mean is known, at all times of the observations."""
    return mean.known_at(X, observed) if isinstance(mean, Background) else mean.known_at(X)


def known_of(mean: PartlyKnown, wanted: Array | LinearFunctionals, observed: Observations) -> Mask:
    """Tell for which targets a mean is known: at all points that they are sums over."""
    unknown = (~known_at(mean, target_points(wanted), observed)).astype(np.float64)
    return np.asarray(averaged(wanted, unknown[:, None])[:, 0] == 0.0)


def unknown_text(mean: PartlyKnown, known: Mask, X: Array, space: Space, what: str) -> str:
    """Say at how many positions a mean is not known; `DataError` if these are all."""
    names = mean.names if isinstance(mean, Background) else [field.name for field in mean.covariates]
    text = (
        f"the {'background' if isinstance(mean, Background) else 'covariate'} "
        f"{' or '.join(map(repr, names))} is not known at {int((~known).sum()):,} of {known.size:,} {what}, "
        f"such as {place_of(X[known.argmin()], space)}: its grid ends before, or it is NaN there"
    )
    if not known.any():
        raise DataError(
            f"{text}; expected it around them. Check its region and units.", key="covariate-unknown"
        )
    return text


def is_estimated(mean: MeanLike) -> TypeGuard[EstimatedMean]:
    """Whether the coefficients of a mean are estimated with the field."""
    return isinstance(mean, EstimatedMean) and not callable(mean)


def is_read(mean: MeanLike) -> bool:
    """Whether a mean is read for each time, and known but for a shift."""
    if isinstance(mean, str):
        return isinstance(MEANS.get(mean.partition(":")[0]), ReadFamily)
    known = int | float | EstimatedMean | Background | MeansByLabel
    return not (callable(mean) or isinstance(mean, known))


def residuals_about(mean: Mean, X: Array | LinearFunctionals, values: Array) -> Array:
    """Values (T, n) at X without their mean; with coefficients by least squares where it has some."""
    points = target_points(X)
    if not isinstance(mean, EstimatedMean) or callable(mean):
        return np.asarray(values - averaged(X, Prior(Matern32(1.0), 1.0, mean).mean_at(points)).T)
    basis = averaged(X, np.asarray(mean.basis_at(points)))
    values = values - averaged(X, Prior(Matern32(1.0), 1.0, mean).known_at(points)).T
    return np.asarray(values - (basis @ np.linalg.lstsq(basis, values.T, rcond=None)[0]).T)


def mean_of(mean: MeanLike, observed: Observations, places: Indices, fields: Indices) -> Mean:
    """Prior mean of fields that were observed at the same places; one with coefficients estimates these."""
    if isinstance(mean, MeansByLabel):
        return mean.of(observed, places, fields)
    found = _mean_of(mean, observed, places, fields)
    return _of_positions(found, observed.positions.shape[1]) if observed.beside else found


@dataclass(frozen=True, eq=False)
class AtPositions:
    """A function of positions at points that have more columns."""

    function: Callable[[Array], ArrayLike]
    columns: int

    def __call__(self, X: Array) -> Array:
        """Values at points X (n, p)."""
        return np.asarray(self.function(X[:, : self.columns]))


def _of_positions(mean: Mean, columns: int) -> Mean:
    """Give a mean of positions at points that have more columns."""
    if isinstance(mean, KnownPlusEstimated):
        estimated = _of_positions(mean.estimated, columns)
        return KnownPlusEstimated(AtPositions(mean.known, columns), cast("EstimatedMean", estimated))
    if is_estimated(mean):
        return BasisMean(AtPositions(mean.basis_at, columns), mean.coefficient_names)
    return AtPositions(mean, columns) if callable(mean) else mean


@dataclass(frozen=True, eq=False)
class _BasisByLabel:
    """Columns of the means that are estimated: of each label its own, which are zero at all others."""

    parts: tuple[Mean, ...]
    at: int  # column of labels, from the end
    positions: int  # columns of positions

    def __call__(self, X: Array) -> Array:
        """Columns at points X (n, p)."""
        blocks = []
        for label, part in enumerate(self.parts):
            if is_estimated(part):
                own, block = X[:, self.at] == label, np.zeros((len(X), len(part.coefficient_names)))
                if own.any():
                    block[own] = part.basis_at(X[own][:, : self.positions])
                blocks.append(block)
        return np.hstack(blocks)


@dataclass(frozen=True, eq=False)
class _KnownByLabel:
    """What is known of the means of each label."""

    parts: tuple[Mean, ...]
    at: int
    positions: int
    fields: int

    def __call__(self, X: Array) -> Array:
        """Values at points X (n, p), shape (n, T)."""
        values = np.zeros((len(X), self.fields))
        for label, part in enumerate(self.parts):
            own = X[:, self.at] == label
            if own.any():
                values[own] = Prior(Matern32(1.0), 1.0, part).known_at(X[own][:, : self.positions])
        return values


@dataclass(frozen=True, eq=False)
class MeansByLabel:
    """A mean for each label of an axis, such as one for each of several variables."""

    means: tuple["MeanLike", ...]  # of the labels from 0
    names: tuple[str, ...]  # of these, for messages
    axis: str

    @property
    def coefficient_names(self) -> tuple[str, ...]:
        """Those of the means that are estimated, each with the name of its label."""
        return tuple(
            f"{name} of {label}"
            for mean, label in zip(self.means, self.names, strict=True)
            if (own := _family_of(mean)) is not None
            for name in own.coefficient_names
        )

    def of(self, observed: Observations, places: Indices, fields: Indices) -> Mean:
        """Give the mean of all labels together."""
        at = in_order_of_columns(observed.beside).index(self.axis) - len(observed.beside)  # from the end
        p, labels = observed.positions.shape[1], observed.beside[self.axis]
        parts = [
            _mean_of(mean, observed, places[labels[places] == label], fields)
            for label, mean in enumerate(self.means)
        ]
        known = _KnownByLabel(tuple(parts), at, p, fields.size)
        if not any(is_estimated(part) for part in parts):
            return known
        basis = _BasisByLabel(tuple(parts), at, p)
        return KnownPlusEstimated(known, BasisMean(basis, self.coefficient_names))

    @property
    def text(self) -> str:
        """For people."""
        said = []
        for mean, name in zip(self.means, self.names, strict=True):
            own = _family_of(mean)
            estimated = "" if own is None else ", ".join(own.coefficient_names)
            said.append(f"{name}: {estimated or ('given' if callable(mean) else f'{mean}')}")
        return "; ".join(said)


def coefficient_names(mean: MeanLike) -> tuple[str, ...]:
    """Name the coefficients of a mean that are estimated with the field."""
    if isinstance(mean, MeansByLabel):
        return mean.coefficient_names
    if isinstance(mean, Background):
        return () if mean.estimated is None else mean.estimated.coefficient_names
    own = None if is_read(mean) else _family_of(mean)
    return () if own is None else own.coefficient_names


def _family_of(mean: MeanLike) -> EstimatedMean | None:
    """Give the mean whose coefficients are estimated; None of one that is known."""
    family = mean_family(mean) if isinstance(mean, str) else mean
    return family if is_estimated(cast("MeanLike", family)) else None  # type: ignore[return-value]


def _mean_of(mean: MeanLike, observed: Observations, places: Indices, fields: Indices) -> Mean:
    """Prior mean at positions."""
    if isinstance(mean, Background):
        return mean.mean_of(observed, fields)
    if callable(mean):
        return partial(columns_of, mean, fields)
    if isinstance(mean, int | float):
        return mean
    family = mean_family(mean, variable=observed.variable.name) if isinstance(mean, str) else mean
    if isinstance(family, EstimatedMean):
        return family
    assert not isinstance(family, MeansByLabel)  # which `mean_of` takes apart
    latitude, longitude = observed.north[places], observed.east[places]
    family.check_covers(latitude, longitude)
    factor, offset = _into_units_of(family, observed)
    values = factor * observed.values[np.ix_(fields, places)].T + offset
    fitted = family.fit(latitude, longitude, values, times=observed.dates(fields))
    return fitted if (factor, offset) == (1.0, 0.0) else partial(_converted, fitted, factor, offset)


@dataclass(frozen=True, eq=False)
class MeanByPattern:
    """A prior mean of T fields with different gaps: those with the same gaps share a part."""

    parts: tuple[tuple[Indices, Callable[[Array], Array]], ...]  # fields, and the mean of them

    def __call__(self, X: Array) -> Array:
        """Values at points X (n, p), shape (n, T)."""
        values = np.empty((len(X), sum(fields.size for fields, _ in self.parts)))
        for fields, mean in self.parts:
            values[:, fields] = mean(X)
        return values


def mean_of_all(mean: MeanLike, observed: Observations, places: Indices) -> Mean:
    """Prior mean of all fields at some places: fitted to those that a field has, if it is fitted before."""
    if not is_read(mean):
        return mean_of(mean, observed, places, np.arange(observed.fields))
    present = observed.present[:, places]
    parts = [
        (fields, cast("FieldMean", mean_of(mean, observed, places[present[fields[0]]], fields)))
        for fields in fields_by_pattern(present)
    ]
    return parts[0][1] if len(parts) == 1 else MeanByPattern(tuple(parts))


def columns_of(mean: Callable[[Array], ArrayLike], columns: Indices, X: Array) -> Array:
    """Give some columns at points X of a mean that differs between fields: (n,) or (n, T)."""
    values = np.asarray(mean(X))
    return values if values.ndim == 1 or values.shape[1] == 1 else values[:, columns]


def _converted(mean: FieldMean, factor: float, offset: float, X: Array) -> Array:
    """Give a mean (n, T) in units of the observations; ``factor * observation + offset`` is in its own."""
    return np.asarray((np.asarray(mean(X)) - offset) / factor)


def _into_units_of(family: MeanFamily, observed: Observations) -> tuple[float, float]:
    """Factor and offset that bring the observations to the units of a mean."""
    if not family.units:
        return 1.0, 0.0
    variable = observed.variable
    found = conversion(observed.units, family.units)
    if found is None:
        raise ArgumentError(
            f"the mean is in {family.units!r} and the observations are in {observed.units!r}; expected units "
            'that convert. Name those of the observations, units="...", or take another mean.',
            key="mean-units",
        )
    low, high = float(np.nanmin(observed.values)), float(np.nanmax(observed.values))
    unstated = not observed.units and not variable.is_temperature
    if unstated and range_error(variable, low, high, observed.units) is not None:
        raise ArgumentError(
            f"the mean is in {family.units!r} and the observations, which reach from {low:g} to {high:g}, "
            'state no units; name them, units="...".',
            key="mean-units",
        )
    return (1.0, 0.0) if found[0] == 1.0 else found  # a shift, such as that of Celsius, is fitted anyway
