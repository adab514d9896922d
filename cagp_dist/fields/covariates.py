"""Static fields that a prior mean depends on: elevation, a land-sea mask, the distance to the coast."""

from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import xarray as xr

from cagp_dist.arrays import Array, Marks
from cagp_dist.errors import ArgumentError, CagpError, DataError
from cagp_dist.fields.bilinear import BilinearGrid, closed
from cagp_dist.fields.files.hdf5_links import check_hdf5
from cagp_dist.fields.gridded import grid_once, laid_out, listed, load, named_dataset
from cagp_dist.fields.selection import Asked
from cagp_dist.fields.stores.remote import opened_store
from cagp_dist.fields.tables.table_files import no_file
from cagp_dist.means import latitude_of
from cagp_dist.remedies import Remedy
from cagp_dist.store.zarr_arrays import content_sha256
from cagp_dist.text import without_secrets


@dataclass(frozen=True, eq=False)
class Covariate:
    """A field on a grid, interpolated bilinearly."""

    name: str
    grid: BilinearGrid  # with one layer, NaN where the field is not known
    content_sha256: str

    def at(self, X: Array) -> Array:
        """Values at unit vectors X (n, 3), shape (n,); NaN outside, and where it or a neighbour is NaN."""
        latitude, longitude = latitude_of(X), np.rad2deg(np.arctan2(X[:, 1], X[:, 0]))
        values = self.grid.at(latitude, longitude)[:, 0]
        return np.where(self.grid.outside(latitude, longitude), np.nan, values)


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
    called = str(field.name or "covariate") if name is None else name
    north, east, values = on_axes(field, called, missing=missing)
    rows, columns = grid_once(values, north, east)  # a seam that is there twice is one
    latitude, longitude, values = ascending(
        north[rows], np.mod(east[columns], 360.0), values[np.ix_(rows, columns)]
    )
    held = xr.DataArray(values, {"latitude": latitude, "longitude": longitude}, ["latitude", "longitude"])
    grid = BilinearGrid(*closed(latitude, longitude, values[:, :, None].copy()))
    return Covariate(called, grid, content_sha256(held.to_dataset(name="covariate")))


def on_axes(
    field: xr.DataArray, called: str, *, asked: Asked | None = None, missing: Marks = None
) -> tuple[Array, Array, Array]:
    """Load the one field of an array: its axes north (P,) and east (Q,), and values (P, Q).

    ``asked`` names x and y of a plane; None: on the globe.
    """
    laid = laid_out(*named_dataset(field, "covariate"), asked=asked)[0]
    found, _ = load(laid, np.arange(laid.fields), missing=missing, computed=True)
    values, axes = np.asarray(found, dtype=np.float64), laid.where.axes
    if axes is None or len(values) > 1 or min(values.shape[1:]) < 2:
        raise DataError(
            f"covariate {called} has dimensions {dict(field.sizes)}; expected axes of "
            f"{laid.where.space.what}, of at least two values, and one value of anything else. Select it "
            "before.",
            key="covariate",
        )
    if np.isinf(values).any():
        raise DataError(
            f"covariate {called} is infinite somewhere; expected NaN where it is not known.", key="infinite"
        )
    return *axes, values[0]


def ascending(north: Array, east: Array, values: Array) -> tuple[Array, Array, Array]:
    """Put rows and columns of values (P, Q) in the order of their axes."""
    down, across = np.argsort(north), np.argsort(east)
    return north[down], east[across], values[np.ix_(down, across)]


def open_covariate(spelling: str, *, missing: Marks = None) -> Covariate:
    """Read ``file:PATH:VARIABLE`` or ``zarr:ADDRESS:VARIABLE``; ``missing`` is as for `covariate`."""
    kind, _, rest = spelling.partition(":")
    address, _, variable = rest.rpartition(":")
    if kind not in ("file", "zarr") or not address or not variable:
        raise ArgumentError(
            f"covariate is {without_secrets(spelling, spelling)!r}; expected "
            '"file:PATH:VARIABLE" of a NetCDF file or "zarr:ADDRESS:VARIABLE" of a store, for example '
            '"file:static.nc:elevation".',
            key="covariate",
        )
    if kind == "zarr":
        with opened_store(address) as dataset:
            return _read(dataset, variable, spelling, missing)
    path = Path(address).expanduser()
    if not path.is_file():
        raise no_file(path).told(before="covariates:")
    try:
        if h5py.is_hdf5(path):
            check_hdf5(path)
        with xr.open_dataset(path, chunks=None, cache=False, decode_times=False) as dataset:
            return _read(dataset, variable, spelling, missing)
    except CagpError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(f"covariates: {path} cannot be read as NetCDF: {error}", key="damaged") from error


def _read(dataset: xr.Dataset, variable: str, spelling: str, missing: Marks) -> Covariate:
    """Make a covariate of a variable of a file or a store."""
    if variable not in dataset.data_vars:
        raise DataError(
            f"covariates: {without_secrets(spelling.rpartition(':')[0])} has no variable {variable!r}; it "
            f"has {listed(dataset.data_vars)}.",
            key="absent-variable",
        )
    try:
        return covariate(dataset[variable], name=variable, missing=missing)
    except DataError as error:
        if error.key not in ("missing-mark", "zero-fill"):
            raise
        raise DataError(error.text, key=error.key, remedies=(Remedy.COVARIATE_MARKS,)) from error
