"""Fields that a prior mean depends on: elevation, a land-sea mask; a first guess, at times and by members."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import h5py
import numpy as np
import xarray as xr

from cagp_dist.arrays import Array, Indices, Marks, Times
from cagp_dist.errors import ArgumentError, CagpError, DataError
from cagp_dist.fields.axes import on_plane
from cagp_dist.fields.bilinear import BilinearGrid, bilinear, closed
from cagp_dist.fields.files.hdf5_links import check_hdf5
from cagp_dist.fields.gridded import grid_once, laid_out, listed, load, named_dataset
from cagp_dist.fields.selection import Asked
from cagp_dist.fields.stores.remote import opened_store
from cagp_dist.fields.tables.table_files import no_file
from cagp_dist.means import latitude_of
from cagp_dist.remedies import Remedy
from cagp_dist.space import Plane, Space
from cagp_dist.store.zarr_arrays import content_sha256
from cagp_dist.text import without_secrets

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Covariate:
    """A field on a grid, interpolated bilinearly, or fields of several times."""

    name: str
    grid: BilinearGrid  # with a layer for each time, NaN where the field is not known
    content_sha256: str
    units: str = ""  # empty if they are not stated
    times: Times | None = None  # of the layers, ascending; None where one holds at all times

    def at(self, X: Array) -> Array:
        """Values of the first layer at unit vectors X (n, 3), shape (n,)."""
        return self.layers_at(X, np.arange(1))[:, 0]

    def layers_at(self, X: Array, layers: Indices) -> Array:
        """Give layers at unit vectors X (n, 3), shape (n, k); NaN outside, and where a neighbour is NaN."""
        latitude, longitude = latitude_of(X), np.rad2deg(np.arctan2(X[:, 1], X[:, 0]))
        values = replace(self.grid, values=self.grid.values[:, :, layers]).at(latitude, longitude)
        return np.where(self.grid.outside(latitude, longitude)[:, None], np.nan, values)


@dataclass(frozen=True, eq=False)
class PlaneField:
    """A field on a grid of x and y of a plane, interpolated bilinearly, or fields of several times."""

    name: str
    x: Array  # (Q,), ascending
    y: Array  # (P,), ascending
    values: Array  # (P, Q, L)
    space: Plane
    content_sha256: str
    units: str = ""
    times: Times | None = None  # as of a `Covariate`

    def at(self, X: Array) -> Array:
        """Values of the first layer at positions X (n, 2), or (n, 4) beside hours; NaN where not known."""
        return self.layers_at(X, np.arange(1))[:, 0]

    def layers_at(self, X: Array, layers: Indices) -> Array:
        """Give layers at positions X, shape (n, k)."""
        return bilinear((self.y, self.x), self.values[:, :, layers], self.space.places(X[:, :2]))


def covariate(field: xr.DataArray, *, name: str | None = None, missing: Marks = None) -> Covariate:
    """Make a covariate of a field.

    Parameters
    ----------
    field : xarray.DataArray
        With a latitude and a longitude in degrees for each row and column, in any order and convention, and
        no other axis of more than one value. On a full circle the seam and the poles are closed.
    name : str, optional
        By default that of the field.
    missing : number or sequence of numbers, optional
        What stands where the field is not known, as for `cagp_dist.krige`.

    Raises
    ------
    DataError
        If it is no such field, infinite somewhere, or holds what looks like a mark of what is missing.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> axes = {"latitude": np.linspace(-90.0, 90.0, 19), "longitude": np.arange(0.0, 360.0, 10.0)}
    >>> height = xr.DataArray(np.ones((19, 36)), coords=axes, dims=list(axes), name="height")
    >>> covariate(height).at(np.eye(3))
    array([1., 1., 1.])
    """
    return _on_globe(layers_on_axes(field, name or str(field.name or "covariate"), missing=missing, most=1))


@dataclass(frozen=True, eq=False)
class Layers:
    """Fields of several times on the axes of one grid, as they were read."""

    name: str
    north: Array  # (P,)
    east: Array  # (Q,)
    values: Array  # (L, P, Q)
    units: str
    times: Times | None  # (L,), ascending; None where nothing says when the one holds


def layers_on_axes(
    field: xr.DataArray,
    called: str,
    *,
    asked: Asked | None = None,
    missing: Marks = None,
    most: int | None = None,
    around: Times | None = None,
) -> Layers:
    """Load the fields of an array, at most so many, or those that lie around some times.

    ``asked`` names x and y of a plane; None: on the globe.
    """
    parts = laid_out(*named_dataset(field, "covariate"), asked=asked)
    laid, axes = parts[0], parts[0].where.axes
    times = None if most == 1 else laid.times
    wrong = axes is None or min(laid.values.shape[-2:]) < 2
    if wrong or len(parts) > 1 or laid.fields > (most or laid.fields):
        raise DataError(
            f"covariate {called} has dimensions {dict(field.sizes)}; expected axes of "
            f"{laid.where.space.what}, of at least two values, and one value of anything else"
            + (", except times" if most is None else "")
            + ". Select it before.",
            key="covariate",
        )
    assert axes is not None
    order = np.arange(laid.fields) if times is None else np.argsort(times, kind="stable")
    if times is not None and around is not None and not np.isnat(around).any():
        first, last = around.min(), around.max()
        after = np.searchsorted(times[order], last)
        order = order[max(np.searchsorted(times[order], first, side="right") - 1, 0) : after + 1]
    found, _ = load(laid, order, missing=missing, computed=True)
    values = np.asarray(found, dtype=np.float64)
    if np.isinf(values).any():
        raise DataError(
            f"covariate {called} is infinite somewhere; expected NaN where it is not known.", key="infinite"
        )
    units = str(field.attrs.get("units", ""))
    return Layers(called, *axes, values, units, None if times is None else times[order])


def _on_globe(layers: Layers) -> Covariate:
    """Give layers of the globe as what is interpolated: the seam and the poles are closed."""
    rows, columns = grid_once(layers.values, layers.north, layers.east)  # a seam that is there twice is one
    latitude, longitude, values = ascending(
        layers.north[rows], np.mod(layers.east[columns], 360.0), layers.values[:, rows][:, :, columns]
    )
    digest = _digest_of(values, {"latitude": latitude, "longitude": longitude}, layers.times)
    grid = BilinearGrid(*closed(latitude, longitude, np.moveaxis(values, 0, -1).copy()))
    return Covariate(layers.name, grid, digest, layers.units, layers.times)


def _digest_of(values: Array, axes: Mapping[str, Array], times: Times | None) -> str:
    """Digest of layers (L, P, Q); of the one of a covariate that is static, without its time."""
    named: dict[str, Array | Times] = dict(axes)
    if times is not None:
        named = {"time": times, **named}
    elif len(values) == 1:
        values = values[0]
    else:
        named = {"layer": np.arange(len(values), dtype=np.float64), **named}
    held = xr.DataArray(values, named, list(named))
    return content_sha256(held.to_dataset(name="covariate"))


def plane_field(field: xr.DataArray, plane: Plane) -> PlaneField:
    """Take a field on a grid of x and y in the system and unit of the observations."""
    found = interpolated(layers_in(plane, field, str(field.name or "field"), what="mean", most=1), plane)
    assert isinstance(found, PlaneField)
    return found


def layers_in(
    space: Space,
    field: xr.DataArray,
    name: str,
    *,
    what: str,
    most: int | None = None,
    around: Times | None = None,
) -> Layers:
    """Load fields where the observations are: on the globe, or in the system and unit of their plane."""
    if not isinstance(space, Plane):
        return layers_on_axes(field, name, most=most, around=around)
    where = on_plane(field)
    own = None if where is None else where.space
    if not isinstance(own, Plane):
        raise ArgumentError(
            f"{what} has the field {name!r} with the dimensions {tuple(field.dims)}, and the places are "
            "points of a plane; expected one on a grid with axes x and y.",
            key="covariate",
        )
    if own.crs is not None and not own.is_of(space):
        raise ArgumentError(
            f"{what} has the field {name!r} on the {own.text}, and the observations lie on the "
            f"{space.text}; expected one system. Bring the field to it, with rioxarray for example, or give "
            "its values at the places as a column.",
            key="drift-system",
        )
    layers = layers_on_axes(field, name, asked=Asked(*own.names), most=most, around=around)
    scale = space.scale_of(own.unit, name)
    return replace(layers, north=scale * layers.north, east=scale * layers.east)


def interpolated(layers: Layers, space: Space) -> Covariate | PlaneField:
    """Give layers as what is interpolated bilinearly; on the globe the seam and the poles are closed."""
    if not isinstance(space, Plane):
        return _on_globe(layers)
    y, x, values = ascending(layers.north, layers.east, layers.values)
    digest = _digest_of(values, {"y": y, "x": x}, layers.times)
    return PlaneField(
        layers.name, x, y, np.moveaxis(values, 0, -1), space, digest, layers.units, layers.times
    )


def ascending(north: Array, east: Array, values: Array) -> tuple[Array, Array, Array]:
    """Put rows and columns of values (L, P, Q) in the order of their axes."""
    down, across = np.argsort(north), np.argsort(east)
    return north[down], east[across], values[:, down][:, :, across]


def open_covariate(spelling: str, *, missing: Marks = None) -> Covariate:
    """Read ``file:PATH:VARIABLE`` or ``zarr:ADDRESS:VARIABLE``; ``missing`` is as for `covariate`."""

    def read(field: xr.DataArray) -> Covariate:
        try:
            return covariate(field, name=str(field.name), missing=missing)
        except DataError as error:
            if error.key not in ("missing-mark", "zero-fill"):
                raise
            raise DataError(error.text, key=error.key, remedies=(Remedy.COVARIATE_MARKS,)) from error

    return opened_variable(spelling, read, what="covariate")


def opened_variable(spelling: str, read: Callable[[xr.DataArray], T], *, what: str) -> T:
    """Read a variable of a NetCDF file or a store, not yet loaded."""
    kind, _, rest = spelling.partition(":")
    address, _, variable = rest.rpartition(":")
    if kind not in ("file", "zarr") or not address or not variable:
        raise ArgumentError(
            f"{what} is {without_secrets(spelling, spelling)!r}; expected "
            '"file:PATH:VARIABLE" of a NetCDF file or "zarr:ADDRESS:VARIABLE" of a store, for example '
            '"file:static.nc:elevation".',
            key=what,
        )

    def chosen(dataset: xr.Dataset) -> T:
        if variable not in dataset.data_vars:
            raise DataError(
                f"{what}: {without_secrets(spelling.rpartition(':')[0])} has no variable {variable!r}; it "
                f"has {listed(dataset.data_vars)}.",
                key="absent-variable",
            )
        return read(dataset[variable])

    if kind == "zarr":
        with opened_store(address) as dataset:
            return chosen(dataset)
    path = Path(address).expanduser()
    if not path.is_file():
        raise no_file(path).told(before=f"{what}:")
    try:
        if h5py.is_hdf5(path):
            check_hdf5(path)
        with xr.open_dataset(path, chunks=None, cache=False, decode_times=False) as dataset:
            return chosen(dataset)
    except CagpError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(f"{what}: {path} cannot be read as NetCDF: {error}", key="damaged") from error
