"""What was observed, as the likelihoods take it: checked, its mean removed, and thinned for first steps."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cagp_dist.arrays import Array, Mask
from cagp_dist.checks import as_numbers, as_points
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.geometry import area_weights, cells_in_order, is_pole
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.kernels import SAME_ON_SPHERE, SPACE_COLUMNS, TIME, Matern12, on_unit_sphere
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.likelihood.bounds import Scales
from cagp_dist.likelihood.numbering import Model, extents, in_extents
from cagp_dist.posterior.coefficients import orthonormal
from cagp_dist.prior import Mean, Prior
from cagp_dist.text import counted

FEWEST_POINTS = 4

ROUNDING = 16.0 * np.finfo(np.float64).eps
"""Part of the largest value: what departs by less from the best mean is rounding of the values themselves."""

LARGEST_SIZE = 1e60
"""Of distances and of y; one over it is the smallest."""

FEWEST_ROWS = 8
"""Latitudes of a thinned grid, at least."""

NEIGHBOURS_CELL = 32
"""Points of the cells that a thinned set keeps whole, so that short distances stay in it."""


@dataclass(frozen=True)
class FieldMeans:
    """A prior mean that is constant in space and differs between fields."""

    values: tuple[float, ...]  # One per field, unit of y

    def __call__(self, X: Array) -> Array:
        """Values at X (n, p), shape (n, T)."""
        return np.tile(np.array(self.values), (len(X), 1))


@dataclass(frozen=True, eq=False)
class ResidualsAtPoints:
    """Residuals at points anywhere."""

    X: Array  # (n, p): points
    residuals: Array  # (n, T): ``y - mean(X)``
    # (p,): which lengthscale each coordinate has, in units of whose extent it is compared; None: all have one
    axes: tuple[int, ...] | None = None
    # (n,): by how much the noise variance of each point differs from that of all
    deviations: Array | None = None
    # (n, k): of a mean whose coefficients are estimated; the residuals are then those of least squares
    basis: Array | None = None
    # n weighted sums of the field that were observed instead of points, which are then their middles
    functionals: LinearFunctionals | None = None

    @property
    def size(self) -> int:
        """Number of points."""
        return len(self.X)

    @property
    def fields(self) -> int:
        """T."""
        return int(self.residuals.shape[1])

    def scales(self) -> Scales:
        """Median distance of nearest neighbours, diagonal of the bounding box, mean square."""
        from scipy.spatial import cKDTree

        power = float(np.mean(self.residuals**2))
        unique = np.unique(self.X, axis=0)
        if len(unique) < 2:
            raise ArgumentError(
                "all points coincide, so the lengthscale cannot be fitted; expected points at "
                "different places.",
                key="one-place",
            )
        sides = extents(unique, self.axes)
        _check_unit("the points extend", float(sides.max()), "X")
        if self.axes is not None:
            _check_unit("the points extend", float(sides.min()), "X")
            unique = in_extents(unique, self.axes)
        some = unique[:: max(1, len(unique) // 2000)]
        nearest = np.asarray(cKDTree(unique).query(some, k=2)[0])[:, 1]
        spacing = float(np.median(nearest))
        _check_unit("neighbouring points are apart", spacing, "X")
        if self.axes is not None:
            first = [self.axes.index(axis) for axis in dict.fromkeys(self.axes)]
            return Scales(spacing, 1.0, power, tuple(sides[first].tolist()))
        return Scales(spacing, float(np.linalg.norm(sides)), power)

    def thinned(self, most: int) -> "ResidualsAtPoints":
        """At most about ``most`` points: whole cells of neighbours, evenly spread."""
        if self.size <= most:
            return self
        X = self.X if self.axes is None else in_extents(self.X, self.axes)
        chosen = spread_cells(X, most, cell_size=NEIGHBOURS_CELL)
        own = None if self.deviations is None else self.deviations[chosen]
        basis = None if self.basis is None else self.basis[chosen]
        sums = None if self.functionals is None else self.functionals.part(chosen)
        return replace(
            self,
            X=self.X[chosen],
            residuals=self.residuals[chosen],
            deviations=own,
            basis=basis,
            functionals=sums,
        )


def spread_cells(X: Array, most: int, *, cell_size: int) -> NDArray[np.intp]:
    """About ``most`` of the points X (n, p): whole cells of neighbours, evenly spread."""
    cells = -(-len(X) // cell_size)
    kept = np.linspace(0, cells - 1, max(2, most // cell_size)).round().astype(int)
    order = cells_in_order(X, cell_size, leaf=cell_size, only=kept)
    return np.concatenate([order[cell * cell_size : (cell + 1) * cell_size] for cell in kept])


@dataclass(frozen=True, eq=False)
class Gridded:
    """Residuals on a grid without pole rows, of which some points may be missing."""

    grid: LatLonGrid  # P latitudes, Q longitudes
    residuals: Array  # (T, P, Q): ``y - mean``, zero where nothing was observed
    basis: Array | None = None  # (k, P, Q): as in `ResidualsAtPoints`
    # (P, Q): where nothing was observed, in any field; None if nothing is missing
    missing: Mask | None = None

    @property
    def size(self) -> int:
        """Observed points."""
        return self.grid.size - self.gaps

    @property
    def gaps(self) -> int:
        """Points of the grid without a value."""
        return 0 if self.missing is None else int(np.count_nonzero(self.missing))

    @property
    def fields(self) -> int:
        """T."""
        return len(self.residuals)

    def scales(self) -> Scales:
        """Smaller of the steps along latitude and along the longest ring, diameter, mean square."""
        latitude = np.deg2rad(self.grid.latitude_degrees)
        steps = [2.0 * np.sin(np.pi / self.grid.n_longitudes) * np.cos(latitude).max()]
        if latitude.size > 1:
            steps.append(float(np.median(np.abs(np.diff(latitude)))))
        spacing = min(step for step in steps if step > 1e-12)
        power = float(np.mean(self.residuals**2)) * self.grid.size / self.size  # zero where they are missing
        return Scales(float(spacing), 2.0, power)

    def thinned(self, most: int) -> "Gridded":
        """At most about ``most`` points: every k-th row and column, columns by a divisor of Q."""
        latitude, Q = self.grid.latitude_degrees, self.grid.n_longitudes
        stride = max(1, int(np.ceil(np.sqrt(self.size / most))))
        column_step = max(step for step in range(1, stride + 1) if Q % step == 0)
        row_step = min(int(np.ceil(self.size / most / column_step)), max(1, latitude.size // FEWEST_ROWS))
        # centred, so that a mirrored grid stays mirrored
        rows = slice((latitude.size - 1) % row_step // 2, None, row_step)
        grid = LatLonGrid(latitude[rows], Q // column_step)
        basis = None if self.basis is None else self.basis[:, rows, ::column_step]
        missing = None if self.missing is None else self.missing[rows, ::column_step]
        return Gridded(
            grid,
            np.ascontiguousarray(self.residuals[:, rows, ::column_step]),
            basis,
            missing if missing is not None and missing.any() else None,
        )

    def as_points(self) -> ResidualsAtPoints:
        """Every observed point by itself."""
        X, residuals = self.grid.points, self.residuals.reshape(-1, self.grid.size).T
        basis = None if self.basis is None else self.basis.reshape(len(self.basis), -1).T
        if self.missing is not None:
            there = ~self.missing.ravel()
            X, residuals = X[there], residuals[there]
            basis = None if basis is None else basis[there]
        return ResidualsAtPoints(X, np.ascontiguousarray(residuals), basis=basis)


def by_coordinate(data: ResidualsAtPoints | Gridded) -> ResidualsAtPoints:
    """Give each coordinate a lengthscale of its own."""
    if isinstance(data, Gridded) or on_unit_sphere(data.X):
        raise ArgumentError(
            f"anisotropic=True asks for a lengthscale for each coordinate, but {SAME_ON_SPHERE} Leave it "
            "out: one lengthscale, a chord, is fitted.",
            key="anisotropic-on-sphere",
        )
    constant = np.flatnonzero(np.ptp(data.X, axis=0) == 0.0)
    if 0 < constant.size < data.X.shape[1]:
        raise ArgumentError(
            f"column {constant[0]} of X is {data.X[0, constant[0]]:g} at all points, so its lengthscale "
            "cannot be fitted; expected coordinates that vary. Leave that column out.",
            key="one-place",
        )
    return replace(data, axes=tuple(range(data.X.shape[1])))


def on_columns(data: ResidualsAtPoints | Gridded, model: Model) -> ResidualsAtPoints | Gridded:
    """Check the columns of points, and give each named axis its own extent."""
    kernel = model.example
    assert kernel.layout is not None
    axes = kernel.layout.axes
    if isinstance(data, Gridded) and kernel.is_zonal:
        return data
    if isinstance(data, Gridded):
        raise ArgumentError(
            f"the kernel is of points with {', '.join(axes) or 'directions'} beside distances in space, and "
            "a grid has none: expected its points.",
            key="kernel-of-axes",
        )
    kernel.check_coordinates(data.X)
    if axes and not np.ptp(data.X[:, :SPACE_COLUMNS], axis=0).any():
        raise ArgumentError(
            "all points are at the same place, so the lengthscale in space cannot be fitted; "
            "expected two places at least.",
            key="one-place",
        )
    if TIME in axes and np.ptp(data.X[:, SPACE_COLUMNS + axes.index(TIME)]) == 0.0:
        raise ArgumentError(
            "all points have the same time, so the lengthscale in time cannot be fitted; expected "
            "two times at least, or a kernel of space alone.",
            key="one-time",
        )
    return replace(data, axes=model.axes)


def centred_observations(
    where: LatLonGrid | LinearFunctionals | ArrayLike,
    y: ArrayLike,
    mean: Mean | Literal["constant"],
    noise_deviations: ArrayLike | None = None,
) -> tuple[ResidualsAtPoints | Gridded, Mean]:
    """Check the data and take the mean away."""
    if isinstance(where, LatLonGrid):
        if noise_deviations is not None:
            raise ArgumentError(
                "noise_deviations are for points and got a grid; expected grid.points, and y of shape (n,) "
                "or (n, T), instead of the grid.",
                key="noise-of-grid",
            )
        fields = _fields(y, where)
        missing = np.isnan(fields[0])
        rows = ~is_pole(where.latitude_degrees)  # Q copies of one point
        _check_size(int(np.count_nonzero(~missing[rows])))
        weights = np.repeat(area_weights(where.latitude_degrees) / where.size, where.n_longitudes)
        values = fields.reshape(len(fields), -1).T
        there = ~missing.ravel()
        if not there.all():
            values, weights = values[there], weights[there] / weights[there].sum()
        centre, mean, basis = _centre(
            mean, values, weights, lambda: where.points if there.all() else where.points[there]
        )
        residuals = _on_grid((values - centre).T, there, where)[:, rows]
        grid = LatLonGrid(where.latitude_degrees[rows], where.n_longitudes)
        if basis is not None:
            basis = np.ascontiguousarray(_on_grid(basis.T, there, where)[:, rows])
        gaps = missing[rows]
        data: ResidualsAtPoints | Gridded = Gridded(
            grid, np.ascontiguousarray(residuals), basis, gaps if gaps.any() else None
        )
    else:
        sums = where if isinstance(where, LinearFunctionals) else None
        X = as_points("X", where) if sums is None else sums.centres  # type: ignore[arg-type]
        values = _columns(y, len(X))
        _check_size(len(X))
        centre, mean, basis = _centre(
            mean, values, np.full(len(X), 1.0 / len(X)), lambda: X if sums is None else sums.nodes, sums
        )
        data = ResidualsAtPoints(
            X,
            values - centre,
            deviations=_deviations(noise_deviations, len(X)),
            basis=basis,
            functionals=sums,
        )
    _check_unit("y departs from the prior mean", float(np.abs(data.residuals).max()), "y")
    return data, mean


def _on_grid(values: Array, there: Mask, grid: LatLonGrid) -> Array:
    """Values (T, n) at the observed points of a grid as fields (T, P, Q), zero elsewhere."""
    if there.all():
        return values.reshape(-1, *grid.shape)
    fields = np.zeros((len(values), grid.size))
    fields[:, there] = values
    return fields.reshape(-1, *grid.shape)


def _deviations(given: ArrayLike | None, n: int) -> Array | None:
    if given is None:
        return None
    deviations = as_numbers("noise_deviations", given)
    if deviations.shape != (n,) or not np.isfinite(deviations).all():
        raise ArgumentError(
            f"noise_deviations have shape {deviations.shape} for {counted(n, 'point')}; expected ({n},) "
            "finite numbers.",
            key="shapes",
        )
    return deviations if deviations.any() else None


def _fields(y: ArrayLike, grid: LatLonGrid) -> Array:
    values = as_numbers("y", y)
    P, Q = grid.shape
    if values.ndim not in (2, 3) or values.shape[-2:] != (P, Q) or values.size == 0:
        hint = " This is (longitude, latitude): transpose it." if values.shape[-2:] == (Q, P) else ""
        raise ArgumentError(
            f"y has shape {values.shape} but the grid has {P} latitudes and {Q} longitudes; expected "
            f"({P}, {Q}), rows being latitudes in the order of the grid, or (T, {P}, {Q}).{hint}",
            key="shapes",
        )
    fields = values.reshape(-1, P, Q)
    there = ~np.isnan(fields).any(axis=0)
    _check_finite(
        np.where(np.isnan(fields).all(axis=0), 0.0, fields),
        "NaN is where no field has a value. Else fit the points that all of them have: "
        "there = np.isfinite(y).all(axis=0); fit(kernel, grid.points[there.ravel()], y[:, there].T)"
        if len(fields) > 1
        else "drop what is infinite, or write NaN where there is no value",
    )
    if not there.any():
        raise ArgumentError(
            "y is NaN everywhere; expected values. Check which variable was passed.", key="nothing-observed"
        )
    return fields


def _columns(y: ArrayLike, n: int) -> Array:
    values = as_numbers("y", y)
    if values.ndim not in (1, 2) or len(values) != n or values.size == 0:
        raise ArgumentError(
            f"y has shape {values.shape} but X has {counted(n, 'point')}; expected ({n},), or ({n}, T) for "
            "T fields. For a field on a latitude-longitude grid pass a cagp_dist.LatLonGrid instead of X.",
            key="shapes",
        )
    _check_finite(values, "drop those points first")
    return values if values.ndim == 2 else values[:, None]


def _check_finite(values: Array, remedy: str) -> None:
    missing = int((~np.isfinite(values)).sum())
    if missing:
        raise ArgumentError(
            f"y holds NaN or infinite values ({missing} of {values.size}); {remedy}.", key="not-finite"
        )


def _check_size(points: int) -> None:
    if points < FEWEST_POINTS:
        raise ArgumentError(
            f"three parameters cannot be learned from {counted(points, 'point')}; expected at least "
            f"{FEWEST_POINTS} (pole rows do not count).",
            key="few-observations",
        )


def _check_unit(what: str, size: float, name: str) -> None:
    """Keep squares, and bounds some orders of magnitude away, far inside float64."""
    if not 1.0 / LARGEST_SIZE < size < LARGEST_SIZE:
        raise ArgumentError(
            f"{what} by {size:g}; expected {1.0 / LARGEST_SIZE:g} to {LARGEST_SIZE:g}. Use another unit for "
            f"{name}.",
            key="out-of-range",
        )


def _centre(
    mean: Mean | Literal["constant"],
    values: Array,
    weights: Array,
    points: Callable[[], Array],
    sums: LinearFunctionals | None = None,
) -> tuple[Array, Mean, Array | None]:
    """Values of the mean, shape (n or 1, T or 1), the mean as a prior takes it, and its basis (n, k).

    Of ``sums`` of the field at points, sums of what is at these.
    """

    def summed(at_points: Array) -> Array:
        return at_points if sums is None else sums.averaged(at_points)

    if isinstance(mean, str):
        if mean != "constant":
            raise ArgumentError(
                f'mean is "{mean}"; expected "constant", a number or a function of X.', key="mean"
            )
        averages = weights @ values
        _check_varies(values, values - values[0])  # exactly: an average is rounded
        if len(averages) == 1:
            return averages, float(averages[0]), None
        return averages, FieldMeans(tuple(averages.tolist())), None
    prior = Prior(Matern12(1.0), 1.0, mean)
    if prior.estimates_mean:
        basis = summed(prior.basis_at(points()))
        columns, _ = orthonormal(basis, prior.coefficient_names)
        known = summed(prior.known_at(points()))
        fitted = known + columns @ (columns.T @ (values - known))
        left = values - fitted
        _check_varies(values, left - columns @ (columns.T @ left))  # without the rounding of the first fit
        return fitted, mean, basis
    centre = summed(prior.mean_at(points()))  # checks it, too
    if centre.shape[1] not in (1, values.shape[1]):
        raise ArgumentError(
            f"the prior mean has {counted(centre.shape[1], 'column')} for "
            f"{counted(values.shape[1], 'field')}; expected one, or "
            "one per field.",
            key="shapes",
        )
    _check_varies(values, values - centre)
    return centre, mean, None


def _check_varies(values: Array, left: Array) -> None:
    """Refuse values (n, T) of which a mean leaves rounding alone."""
    if np.abs(left).max() > ROUNDING * np.abs(values).max():
        return
    low, high = float(values.min()), float(values.max())
    raise DataError(
        f"y is {f'constant, {low:g}' if low == high else f'{low:g} to {high:g}'}, and departs from its prior "
        "mean by rounding alone, so there is nothing to fit; expected values that vary about the mean. Check "
        "which variable was passed, or give lengthscale, variance and noise: then nothing is fitted.",
        key="constant",
    )
